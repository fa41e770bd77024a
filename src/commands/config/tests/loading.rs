//! Layers: the values of files, environment and arguments, their precedence, and refusals.

use super::*;

#[test]
fn without_anything_the_defaults_stand() {
    let startup = load_arguments(&[]).expect("nothing to complain of");
    assert_eq!(
        startup.config,
        Config {
            dir: std::env::current_dir().expect("here"),
            ..Config::default()
        }
    );
    assert_eq!((startup.file, startup.action), (None, Action::Run));
    assert!(startup.warnings.is_empty());
}

#[test]
fn a_server_with_another_name_leaves_the_exporters_port_free() {
    let port = |program: &str, text: &str| {
        let input = &mut text.as_bytes();
        let startup = layers::load_from(program.as_ref(), &arguments(&["-"]), vec![], input);
        startup.expect("good").config.metrics_port
    };
    for program in ["redis-server", "/usr/local/bin/valkey-server"] {
        assert_eq!(port(program, ""), 9122, "{program}");
        assert_eq!(port(program, "metrics-port 9121"), 9121, "{program}");
        assert_eq!(port(program, "metrics-port 0"), 0, "{program}");
    }
    assert_eq!(port("/usr/bin/basalt", ""), 9121);
}

#[test]
fn values_with_units_quotes_and_escapes_are_read() {
    let startup = load_text(
        "# a comment\n  maxclients   77\t\r\nMAXMEMORY 2gb\nproto-max-bulk-len 4m\n\nrequirepass \"a \\\"b\\\" \\x41\"\n\
         unixsocket '/tmp/it''\n",
    );
    assert_eq!(
        complaint(startup),
        "Reading the configuration file, at line 7 of -\n>>> 'unixsocket '/tmp/it'''\n\
         Unbalanced quotes in configuration line"
    );
    let config = load_text(
        "maxclients   77\t\r\nMAXMEMORY 2gb\nproto-max-bulk-len 4m\nrequirepass \"a \\\"b\\\" \\x41\"\nunixsocket '/tmp/it\\'s'",
    );
    let config = config.expect("good").config;
    assert_eq!(config.maxclients, 77);
    assert_eq!(config.maxmemory, 2 << 30);
    assert_eq!(config.proto_max_bulk_len, 4_000_000);
    assert_eq!(config.requirepass, "a \"b\" A");
    assert_eq!(config.unixsocket, "/tmp/it's");
}

#[test]
fn repeated_save_adds_up_and_the_first_mention_drops_the_defaults() {
    let config = load_text("save 60 1\nsave 30 2 20 3\n")
        .expect("good")
        .config;
    let points = [(60, 1), (30, 2), (20, 3)];
    assert_eq!(
        config.save,
        points.map(|(seconds, changes)| SavePoint { seconds, changes })
    );
    let config = load_all(&["-", "--save", "1 2"], &[], "save 60 1")
        .expect("good")
        .config;
    assert_eq!(get_one(&config, "save"), "60 1 1 2");
    let config = load_all(&["-", "--save", ""], &[], "save 60 1")
        .expect("good")
        .config;
    assert_eq!(get_one(&config, "save"), "");
    let config = load_text("save 60 1\nsave \"\"\nsave 5 5")
        .expect("good")
        .config;
    assert_eq!(get_one(&config, "save"), "5 5");
}

#[test]
fn output_limits_are_set_class_by_class() {
    let text =
        "client-output-buffer-limit replica 1mb 2k 3\nclient-output-buffer-limit normal 5 6 7\n";
    let config = load_text(text).expect("good").config;
    assert_eq!(
        get_one(&config, "client-output-buffer-limit"),
        "normal 5 6 7 slave 1048576 2000 3 pubsub 33554432 8388608 60"
    );
}

#[test]
fn several_addresses_and_one_word_that_holds_several() {
    let config = load_text("bind 127.0.0.1 -::1").expect("good").config;
    assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
    let config = load_arguments(&["--bind", "127.0.0.1 ::1"])
        .expect("good")
        .config;
    assert_eq!(config.bind, ["127.0.0.1", "::1"]);
    let config = load_arguments(&["--bind", ""]).expect("good").config;
    assert!(config.bind.is_empty());
}

#[test]
fn old_names_are_known_and_those_of_dead_directives_are_read_over() {
    let text = "hash-max-ziplist-entries 7\nlist-max-ziplist-value 64\nlua-replicate-commands yes\nlua-time-limit 9";
    let config = load_text(text).expect("good").config;
    assert_eq!(
        (
            config.hash_max_listpack_entries,
            config.busy_reply_threshold
        ),
        (7, 9)
    );
}

#[test]
fn rename_command_and_users_are_kept() {
    let text = "rename-command FLUSHALL \"\"\nrename-command KEYS hidden\nuser default on >secret ~* &* +@all\nuser alice";
    let config = load_text(text).expect("good").config;
    let renamed = [("FLUSHALL", ""), ("KEYS", "hidden")];
    assert_eq!(
        config.renamed_commands,
        renamed.map(|(from, to)| (from.to_owned(), to.to_owned()))
    );
    let rules = ["on", ">secret", "~*", "&*", "+@all"].map(str::to_owned);
    assert_eq!(
        config.users,
        [
            ("default".to_owned(), rules.to_vec()),
            ("alice".to_owned(), Vec::new())
        ]
    );
    let again = complaint(load_text("user bob on\nuser bob off"));
    assert!(
        again.ends_with("Duplicate user found. A user can only be defined once in config files"),
        "{again}"
    );
}

#[test]
fn each_layer_goes_over_the_one_below() {
    let file = "maxclients 1\ntimeout 1\ntcp-keepalive 1\nport 1";
    let environment = [
        ("BASALT_TIMEOUT", "2"),
        ("BASALT_TCP_KEEPALIVE", "2"),
        ("BASALT_HZ", "20"),
    ];
    let words = ["-", "--tcp-keepalive", "3", "--databases", "3"];
    let config = load_all(&words, &environment, file).expect("good").config;
    assert_eq!(
        (config.maxclients, config.timeout, config.tcp_keepalive),
        (1, 2, 3)
    );
    assert_eq!((config.hz, config.databases, config.port), (20, 3, 1));
}

#[test]
fn the_environment_names_directives_and_leaves_those_of_an_orchestrator() {
    let environment = [
        ("BASALT_PORT", "tcp://10.0.0.1:6379"),
        ("BASALT_SERVICE_HOST", "10.0.0.1"),
        ("BASALT_BIND", "127.0.0.1 ::1"),
        ("BASALT_SERVER_CPULIST", ""),
        ("PATH", "/bin"),
    ];
    let startup = load_all(&[], &environment, "").expect("good");
    assert_eq!(startup.config.port, 6379);
    assert_eq!(startup.config.bind, ["127.0.0.1", "::1"]);
    assert_eq!(
        startup.warnings,
        [
            "the environment variable BASALT_PORT=tcp://10.0.0.1:6379 is ignored: \
             it seems to be set by the orchestrator",
            "the environment variable BASALT_SERVICE_HOST does not match any directive",
        ]
    );
    assert_eq!(
        complaint(load_all(&[], &[("BASALT_MAXCLIENTS", "many")], "")),
        "Reading the environment\n>>> 'BASALT_MAXCLIENTS=many'\nargument couldn't be parsed into an integer"
    );
}

#[test]
fn arguments_are_taken_as_redis_server_takes_them() {
    let good = |words: &[&str]| load_arguments(words).expect("good").config;
    assert_eq!(good(&["--port 6380", "--maxclients", "5"]).port, 6380);
    assert_eq!(
        get_one(&good(&["--save", "60", "1", "--save", "30", "2"]), "save"),
        "60 1 30 2"
    );
    assert_eq!(get_one(&good(&["--save", "--port", "1"]), "save"), "");
    assert_eq!(get_one(&good(&["--port", "1", "--save"]), "save"), "");
    assert_eq!(good(&["--requirepass", "a b\n\"c"]).requirepass, "a b\n\"c");
    assert_eq!(good(&["--PORT", "7"]).port, 7);
    // The word directly after a name is its value, whatever it looks like.
    assert_eq!(good(&["--requirepass", "--secret"]).requirepass, "--secret");
    assert_eq!(
        get_one(
            &good(&["--client-output-buffer-limit", "normal", "1", "2", "3"]),
            "client-output-buffer-limit"
        )
        .split(' ')
        .nth(1),
        Some("1")
    );
}

#[test]
fn arguments_that_are_wrong_are_shown_as_redis_server_shows_them() {
    // All errors are recorded from redis-server 7.0.15, except for the first line, where that server mentions a file.
    let table: &[(&[&str], &str)] = &[
        (
            &["--port", "abc"],
            "'port \"abc\"'\nargument couldn't be parsed into an integer",
        ),
        (
            &["--foo"],
            "'foo'\nBad directive or wrong number of arguments",
        ),
        (&["--port"], "'port'\nwrong number of arguments"),
        (
            &["--replicaof", "--127.0.0.1"],
            "'replicaof \"--127.0.0.1\"'\nwrong number of arguments",
        ),
        (
            &["--dir", "/nosuch"],
            "'dir \"/nosuch\"'\nNo such file or directory",
        ),
        (
            &["--save", "1", "2", "3"],
            "'save \"1\" \"2\" \"3\"'\nInvalid save parameters",
        ),
        (
            &["--unixsocketperm", "9"],
            "'unixsocketperm \"9\"'\nargument couldn't be parsed as an octal number",
        ),
        (
            &["--loadmodule"],
            "'loadmodule'\nBad directive or wrong number of arguments",
        ),
        (&["--a.b"], "'a.b'\nModule config specified without value"),
        (
            &["--timeout", "1", "2"],
            "'timeout \"1\" \"2\"'\nwrong number of arguments",
        ),
    ];
    for (words, expected) in table {
        assert_eq!(
            complaint(load_arguments(words)),
            format!("Reading the arguments\n>>> {expected}")
        );
    }
}

#[test]
fn what_redis_server_has_and_this_server_has_not_is_refused_by_name() {
    for (words, expected) in [
        (
            &["--test-memory", "100"][..],
            "--test-memory is not supported: basalt does not test memory",
        ),
        (&["--check-system"], "--check-system is not supported"),
        (
            &["a.conf", "--sentinel"],
            "--sentinel is not supported: basalt is not a Sentinel",
        ),
    ] {
        let error = load_arguments(words).expect_err("refused");
        assert!(matches!(error, ConfigError::Argument(_)));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    for line in ["loadmodule a.so", "bf.error-rate 1"] {
        let text = complaint(load_text(&format!("port 0\n{line}\n")));
        let place = format!("Reading the configuration file, at line 2 of -\n>>> '{line}'\n");
        let reason = text
            .strip_prefix(&place)
            .unwrap_or_else(|| panic!("{text}"));
        assert!(
            reason.contains("not built") || reason.contains("modules are not supported"),
            "{reason}"
        );
    }
}

#[test]
fn a_primary_is_named_by_host_and_port() {
    for line in ["replicaof somewhere 6380", "slaveof somewhere 6380"] {
        let config = load_text(line).expect("fine").config;
        assert_eq!(config.replicaof, Some(("somewhere".to_owned(), 6380)));
    }
    let config = load_text("replicaof no one").expect("fine").config;
    assert_eq!(config.replicaof, None);
    let text = complaint(load_text("cluster-enabled yes\nreplicaof somewhere 6380"));
    let why = "replicaof directive not allowed in cluster mode";
    assert!(text.ends_with(why) && text.contains("line 2"), "{text}");
    let text = complaint(load_text("replicaof somewhere x"));
    assert!(text.ends_with("Invalid master port"), "{text}");
}

#[test]
fn the_last_word_decides_what_is_refused() {
    let config = load_all(&["-", "--appendonly", "no"], &[], "appendonly yes")
        .expect("taken back")
        .config;
    assert!(!config.appendonly);
    load_text("replicaof no one\ntls-port 0\naclfile \"\"\ncluster-enabled no")
        .expect("nothing asked for");
}

#[test]
fn what_is_accepted_without_effect_is_warned_about() {
    let warnings = |text: &str| load_text(text).expect("good").warnings;
    assert_eq!(warnings("dynamic-hz no\nio-threads 4").len(), 2);
    assert!(
        warnings("daemonize yes\nsupervised auto\nsyslog-enabled yes\nlog-format json").is_empty()
    );
    assert_eq!(
        warnings("activerehashing no\nmaxmemory-samples 5\nlfu-decay-time 0\nserver-cpulist 0"),
        [
            "server_cpulist 0 is accepted, but threads are not pinned: use taskset or a cpuset",
            "'activerehashing' has no effect: tables grow a segment at a time and never rehash",
            "'lfu-decay-time' has no effect: it tunes something that this server does not have",
        ]
    );
    let none: [&str; 0] = [];
    assert_eq!(
        warnings(
            "save 60 1\nio-threads 1\nmaxmemory-policy allkeys-lru\nnotify-keyspace-events KEA"
        ),
        none
    );
}

#[test]
fn the_version_the_help_and_a_check_are_asked_for() {
    let action = |words: &[&str]| load_arguments(words).expect("good").action;
    assert_eq!(action(&["--version"]), Action::Version);
    assert_eq!(action(&["-v", "--foo"]), Action::Version);
    assert_eq!(action(&["-h"]), Action::Help);
    assert_eq!(action(&["--check-config"]), Action::Check);
    assert_eq!(
        action(&["--port", "1", "--check-config", "--hz", "3"]),
        Action::Check
    );
}

#[test]
fn a_log_file_must_open_unless_only_checked() {
    let text = "Can't open the log file: No such file or directory";
    assert_eq!(
        complaint(load_arguments(&["--logfile", "/nosuch/log"])),
        text
    );
    load_arguments(&["--check-config", "--logfile", "/nosuch/log"]).expect("not tried");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    load_arguments(&["--logfile", "here.log", "--dir", path]).expect("made");
    assert!(directory.path().join("here.log").exists());
}

#[test]
fn hz_is_brought_within_its_range() {
    assert_eq!(load_text("hz 0").expect("good").config.hz, 1);
    assert_eq!(load_text("hz 1000").expect("good").config.hz, 500);
}

#[test]
fn shards_and_threads_follow_the_cores_unless_given() {
    let config = Config::default();
    assert_eq!(
        [1, 2, 8, 9, 16, 1000].map(|cores| config.shard_count(cores)),
        [64, 64, 64, 128, 128, 1024]
    );
    assert_eq!(config.thread_count(3), 3);
    let config = load_text("shards 5\nthreads 2\nruntime per-core")
        .expect("good")
        .config;
    assert_eq!((config.shard_count(64), config.thread_count(64)), (8, 2));
    assert_eq!(config.runtime, Runtime::PerCore);
    let config = load_text("shards 1").expect("good").config;
    assert_eq!(config.shard_count(64), 1);
    assert!(load_text("shards 1025").is_err());
}

#[test]
fn what_files_of_other_versions_say_starts_the_server_and_is_named_if_it_has_no_effect() {
    let shipped = include_str!("shipped.txt").lines();
    for line in shipped.filter(|line| !line.starts_with('#')) {
        let started = load_text(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let name = line.split(' ').next().expect("a name");
        let is_known = find(name).is_some() || name == "lua-replicate-commands";
        let is_named = started.warnings.iter().any(|text| text.contains(name));
        assert!(is_known || is_named, "{line}: {:?}", started.warnings);
    }
    assert_eq!(
        load_text("hash-seed a\nRepl-Mptcp no")
            .expect("good")
            .warnings,
        [
            "'hash-seed' has no effect: keys are always hashed with a random seed",
            "'repl-mptcp' has no effect: only TCP is supported",
        ]
    );
    assert!(load_text("hash-seed").is_err());
    let config = load_text("primaryauth secret\ncommandlog-execution-slower-than 7")
        .expect("good")
        .config;
    assert_eq!(
        (config.masterauth.as_str(), config.slowlog_log_slower_than),
        ("secret", 7)
    );
}
