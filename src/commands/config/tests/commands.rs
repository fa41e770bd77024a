//! CONFIG GET and CONFIG SET.

use super::*;

fn names(config: &Config, patterns: &[&str]) -> Vec<String> {
    live::get(config, patterns)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn get_takes_names_in_any_case_and_patterns_and_gives_each_once() {
    let config = Config::default();
    assert_eq!(
        live::get(&config, &["MaxClients"]),
        [("MaxClients".to_owned(), "10000".to_owned())]
    );
    assert_eq!(
        names(&config, &["MAXCLIENTS", "maxclients", "maxcl*"]),
        ["MAXCLIENTS"]
    );
    assert_eq!(names(&config, &["nosuch", "*nosuch*"]), [""; 0]);
    assert_eq!(
        names(&config, &["hash-max-*-entries"]),
        ["hash-max-listpack-entries", "hash-max-ziplist-entries"]
    );
    assert_eq!(
        names(&config, &["SAV?", "[p]ort", "t[a-i]meout"]),
        ["save", "port", "timeout"]
    );
    assert_eq!(
        names(&config, &["slaveof", "replicaof"]),
        ["slaveof", "replicaof"]
    );
}

#[test]
fn hidden_parameters_answer_to_their_full_name_only() {
    let config = Config::default();
    assert!(names(&config, &["watchdog*"]).is_empty());
    assert_eq!(names(&config, &["watchdog-period"]), ["watchdog-period"]);
    assert!(names(&config, &["*"]).len() > 200);
}

#[test]
fn set_changes_all_or_nothing_and_names_what_changed() {
    let mut config = Config::default();
    let changed = live::set(
        &mut config,
        &[("maxclients", "5"), ("TIMEOUT", "0"), ("port", "1")],
        ClientLocality::Remote,
    );
    assert_eq!(changed.expect("good"), ["maxclients", "port"]);
    assert_eq!((config.maxclients, config.port), (5, 1));
    let before = config.clone();
    for wrong in [
        ("hz", "x"),
        ("databases", "1"),
        ("nosuch", "1"),
        ("dir", "/"),
        ("aclfile", "a"),
    ] {
        let pairs = [("maxclients", "6"), wrong, ("port", "2")];
        assert!(live::set(&mut config, &pairs, ClientLocality::Remote).is_err());
        assert_eq!(config, before, "{wrong:?}");
    }
}

#[test]
fn set_complains_in_redis_servers_words() {
    // Recorded from redis-server 7.0.15.
    let table: &[(&[(&str, &str)], &str)] = &[
        (
            &[("foo", "1")],
            "Unknown option or number of arguments for CONFIG SET - 'foo'",
        ),
        (
            &[("port", "1"), ("PORT", "2")],
            "CONFIG SET failed (possibly related to argument 'PORT') - duplicate parameter",
        ),
        (
            &[("Databases", "3")],
            "CONFIG SET failed (possibly related to argument 'Databases') - can't set immutable config",
        ),
        (
            &[("dir", "/tmp")],
            "CONFIG SET failed (possibly related to argument 'dir') - can't set protected config",
        ),
        (
            &[("MaxClients", "0")],
            "CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and 4294967295 inclusive",
        ),
        (
            &[("lua-time-limit", "-1")],
            "CONFIG SET failed (possibly related to argument 'lua-time-limit') - argument must be between 0 and 9223372036854775807 inclusive",
        ),
        (
            &[("maxmemory-clients", "101%")],
            "CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage argument must be less or equal to 100",
        ),
        (
            &[("maxmemory-clients", "x")],
            "CONFIG SET failed (possibly related to argument 'maxmemory-clients') - argument must be a memory or percent value",
        ),
        (
            &[("maxmemory", "-1")],
            "CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
        ),
        (
            &[("bind", "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8")],
            "CONFIG SET failed (possibly related to argument 'bind') - Too many bind addresses specified.",
        ),
        (
            &[("notify-keyspace-events", "Q")],
            "CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class character. Use 'Ag$lshzxeKEtmdnocSTIV'.",
        ),
        (
            &[("oom-score-adj-values", "1 2")],
            "CONFIG SET failed (possibly related to argument 'oom-score-adj-values') - wrong number of arguments",
        ),
        (
            &[("client-output-buffer-limit", "foo 1 2 3")],
            "CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Invalid client class specified in buffer limit configuration.",
        ),
        (
            &[("client-output-buffer-limit", "normal 1 2")],
            "CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Wrong number of arguments in buffer limit configuration.",
        ),
        (
            &[("client-output-buffer-limit", "normal a 2 3")],
            "CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        (
            &[("save", "1")],
            "CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters",
        ),
        (
            &[("latency-tracking-info-percentiles", "101")],
            "CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles') - latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
        (
            &[("latency-tracking-info-percentiles", "x")],
            "CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles') - Invalid latency-tracking-info-percentiles parameters",
        ),
        (
            &[("shutdown-on-sigint", "save nosave")],
            "CONFIG SET failed (possibly related to argument 'shutdown-on-sigint') - shutdown options SAVE and NOSAVE can't be used simultaneously",
        ),
        (
            &[("oom-score-adj-values", "1 2 2001")],
            "CONFIG SET failed (possibly related to argument 'oom-score-adj-values') - Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ),
        (
            &[("proc-title-template", "{x}")],
            "CONFIG SET failed (possibly related to argument 'proc-title-template') - template format is invalid or contains unknown variables",
        ),
        // The first wrong name determines the error.
        (
            &[("databases", "1"), ("foo", "1")],
            "CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
        (
            &[("foo", "1"), ("databases", "1")],
            "Unknown option or number of arguments for CONFIG SET - 'foo'",
        ),
    ];
    for (pairs, expected) in table {
        let error =
            live::set(&mut Config::default(), pairs, ClientLocality::Remote).expect_err(expected);
        assert_eq!(error.to_string(), *expected);
    }
}

#[test]
fn set_keeps_what_changes_nothing_here() {
    let mut config = Config::default();
    let set = set_one(&mut config, "tls-dh-params-file", "a");
    assert_eq!(set.expect("kept"), ["tls-dh-params-file"]);
    assert_eq!(config.tls_dh_params_file, "a");
}

#[test]
fn what_only_we_have_and_is_fixed_may_be_set_to_what_it_is() {
    let mut config = Config::default();
    let shown = live::get(&config, &["*"]);
    let mut fixed = 0;
    for (name, value) in shown {
        let traits = find(&name).expect("shown").traits;
        if traits.since == "basalt" && !traits.mutable {
            fixed += 1;
            assert_eq!(set_one(&mut config, &name, &value), Ok(vec![]), "{name}");
        }
    }
    assert!(fixed > 4);
    assert_eq!(
        set_one(&mut config, "shards", "8").expect_err("fixed"),
        "CONFIG SET failed (possibly related to argument 'shards') - can't set immutable config"
    );
}

#[test]
fn set_takes_several_words_in_one_argument() {
    let mut config = Config::default();
    for (name, value, shown) in [
        ("save", "60 1 30 2", "60 1 30 2"),
        ("save", "", ""),
        ("bind", "127.0.0.1 ::1", "127.0.0.1 ::1"),
        ("bind", "", ""),
        ("shutdown-on-sigint", "now force", "now force"),
        ("oom-score-adj", "relative", "yes"),
        ("maxmemory-clients", "10%", "10%"),
        ("maxmemory", "3mb", "3145728"),
        ("notify-keyspace-events", "KEA", "AKE"),
        ("notify-keyspace-events", "xKEgm", "gxKEm"),
        (
            "latency-tracking-info-percentiles",
            "50.123456789 1",
            "50.123457 1",
        ),
        ("latency-tracking-info-percentiles", "", ""),
        (
            "client-output-buffer-limit",
            "slave 1kb 2 3",
            "normal 0 0 0 slave 1024 2 3 pubsub 33554432 8388608 60",
        ),
        ("hz", "0", "1"),
        ("lua-time-limit", "7", "7"),
    ] {
        set_one(&mut config, name, value).expect(name);
        assert_eq!(get_one(&config, name), shown, "{name} {value}");
    }
    assert_eq!(config.oom_score_adj, OomScoreAdj::Relative);
    assert!(config.shutdown_on_sigint.has(ShutdownOptions::FORCE));
    assert!(!config.shutdown_on_sigint.has(ShutdownOptions::SAVE));
    assert!(
        config
            .notify_keyspace_events
            .contains(EventClasses::of('x').expect("known"))
    );
}

#[test]
fn protected_parameters_open_for_all_or_for_local_clients() {
    let mut config = Config {
        enable_protected_configs: Protected::Local,
        ..Config::default()
    };
    let pairs = [("dbfilename", "a.rdb")];
    assert!(live::set(&mut config, &pairs, ClientLocality::Remote).is_err());
    live::set(&mut config, &pairs, ClientLocality::Local).expect("allowed");
    config.enable_protected_configs = Protected::Yes;
    live::set(&mut config, &[("dir", "/")], ClientLocality::Remote).expect("allowed");
    assert_eq!(config.dir, Path::new("/"));
    let error = live::set(
        &mut config,
        &[("dbfilename", "a/b")],
        ClientLocality::Remote,
    )
    .expect_err("a path");
    assert!(
        error
            .to_string()
            .ends_with("dbfilename can't be a path, just a filename")
    );
    let error =
        live::set(&mut config, &[("dir", "/nosuch")], ClientLocality::Remote).expect_err("missing");
    assert!(
        matches!(error, SetError::Failed { reason, .. } if reason == "No such file or directory")
    );
}

#[test]
fn values_may_be_any_bytes_and_names_that_nothing_has_are_unknown() {
    let mut config = Config::default();
    let pairs: [(&[u8], &[u8]); 1] = [(b"requirepass", b"\xff")];
    let changed = live::set(&mut config, &pairs, ClientLocality::Remote);
    assert_eq!(changed.expect("any bytes"), ["requirepass"]);
    assert_eq!(*lossless::bytes_of(&config.requirepass), *b"\xff");
    let pairs: [(&[u8], &[u8]); 1] = [(b"\xff", b"1")];
    assert!(matches!(
        live::set(&mut config, &pairs, ClientLocality::Remote),
        Err(SetError::Unknown(_))
    ));
}

#[test]
fn a_name_ends_with_a_zero_wherever_it_is_looked_at() {
    let mut config = Config::default();
    let pairs: [(&[u8], &[u8]); 1] = [(b"port\0x", b"7")];
    let changed = live::set(&mut config, &pairs, ClientLocality::Remote);
    assert_eq!(changed.expect("as in Redis"), ["port"]);
    assert!(live::asks_system(b"port\0x") && !live::asks_system(b"maxmemory"));
    assert!(live::asks_system(b"oom-score-adj") && live::asks_system(b"oom-score-adj-values"));
    assert!(live::is_sensitive(b"requirepass\0x") && !live::is_sensitive(b"port"));
}
