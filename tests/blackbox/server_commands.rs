//! Commands about the server itself: INFO, CONFIG, COMMAND, SLOWLOG, MEMORY, DEBUG, SHUTDOWN; and start-up
//! errors.

use std::collections::HashMap;
use std::process::Command;

use crate::operating::Killed;
use crate::support::{self, Options, Oracle, Server, check, is_stand_in};
use crate::wire::{Raw, Value};

fn info(raw: &mut Raw, section: &str) -> HashMap<String, String> {
    let text = raw.call(&format!("INFO {section}")).body();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}

#[test]
fn info_counts_what_happened() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        for index in 0..100 {
            check(&mut raw, &format!("SET info:{index} v"), "OK");
            check(&mut raw, &format!("GET info:{index}"), "\"v\"");
            check(&mut raw, &format!("GET miss:{index}"), "(nil)");
        }
        raw.call("NOSUCH");
        raw.call("GET");
        let stats = info(&mut raw, "stats");
        assert_eq!(stats["keyspace_hits"], "100");
        assert_eq!(stats["keyspace_misses"], "100");
        let processed: u64 = stats["total_commands_processed"].parse().expect("a number");
        assert!(processed >= 300, "{processed}");
        let commands = info(&mut raw, "commandstats");
        assert!(
            commands["cmdstat_get"].starts_with("calls=200,usec="),
            "{}",
            commands["cmdstat_get"]
        );
        assert!(
            commands["cmdstat_get"].contains("rejected_calls=1,"),
            "{}",
            commands["cmdstat_get"]
        );
        assert!(
            commands["cmdstat_set"].starts_with("calls=100,usec="),
            "{}",
            commands["cmdstat_set"]
        );
        let errors = info(&mut raw, "errorstats");
        assert_eq!(errors["errorstat_ERR"], "count=2");
        let keyspace = info(&mut raw, "keyspace");
        assert!(
            keyspace["db0"].starts_with("keys=100,expires=0,avg_ttl=0"),
            "{}",
            keyspace["db0"]
        );
    });
}

#[test]
fn what_is_flushed_counts_as_freed_behind_the_clients_back() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let freed = |raw: &mut Raw| info(raw, "memory")["lazyfreed_objects"].clone();
        let fill = |raw: &mut Raw, keys: usize| {
            for key in 0..keys {
                support::check(raw, &format!("SET key:{key} v"), "OK");
            }
        };
        fill(&mut raw, 10);
        support::check(&mut raw, "FLUSHALL ASYNC", "OK");
        assert_eq!(freed(&mut raw), "10");
        fill(&mut raw, 5);
        support::check(&mut raw, "FLUSHDB SYNC", "OK");
        assert_eq!(freed(&mut raw), "15");
        for name in ["f", "g"] {
            let code = format!(
                "#!lua name={name}\\nredis.register_function('{name}', function() return 1 end)"
            );
            let loaded = format!("\"{name}\"");
            support::check(&mut raw, &format!("FUNCTION LOAD \"{code}\""), &loaded);
        }
        support::check(&mut raw, "CONFIG RESETSTAT", "OK");
        support::check(&mut raw, "FUNCTION FLUSH ASYNC", "OK");
        // Both of them, and their compiled forms.
        assert_eq!(freed(&mut raw), "3");
        support::check(&mut raw, "FUNCTION FLUSH", "OK");
        assert_eq!(freed(&mut raw), "3");
    });
}

#[test]
fn errors_of_too_many_words_end_the_counting_by_word_and_the_log_names_them() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let counted = |raw: &mut Raw| {
        let mut counted: Vec<String> = info(raw, "errorstats").into_keys().collect();
        counted.sort();
        counted
    };
    for number in 0..1_100 {
        let line = format!("EVAL \"return redis.error_reply('E{number} made up')\" 0");
        support::check(&mut raw, &line, &format!("(error) E{number} made up"));
        if number == 1 {
            assert_eq!(counted(&mut raw), ["errorstat_E0", "errorstat_E1"]);
        }
    }
    assert_eq!(counted(&mut raw), ["errorstat_ERRORSTATS_DISABLED"]);
    let log = server.log();
    for said in [
        "Errorstats stopped adding new errors",
        "Current errors code list: E0, E1,",
    ] {
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
    support::check(&mut raw, "CONFIG RESETSTAT", "OK");
    raw.call("EVAL \"return redis.error_reply('AGAIN made up')\" 0");
    assert_eq!(counted(&mut raw), ["errorstat_AGAIN"]);
}

#[test]
fn reading_again_what_is_pending_changes_nothing() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let changes = |raw: &mut Raw| info(raw, "persistence")["rdb_changes_since_last_save"].clone();
    support::check(&mut raw, "XADD s 1-1 f v", "\"1-1\"");
    support::check(&mut raw, "XGROUP CREATE s g 0", "OK");
    raw.call("XREADGROUP GROUP g c STREAMS s >");
    let before = changes(&mut raw);
    let again = raw.call("XREADGROUP GROUP g c STREAMS s 0");
    assert!(again.show().contains("1-1"), "{}", again.show());
    assert_eq!(changes(&mut raw), before);
}

#[test]
fn memory_stats_tells_what_the_tables_of_databases_take() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let table = |raw: &mut Raw| {
        let stats = raw.call("MEMORY STATS");
        let items = stats.items();
        let names = [
            "overhead.db.hashtable.lut",
            "overhead.db.hashtable.rehashing",
            "db.dict.rehashing.count",
        ];
        names.map(|name| {
            let shown = format!("\"{name}\"");
            let at = items.iter().position(|item| item.show() == shown);
            items[at.expect("the figure") + 1].show()
        })
    };
    let nothing = "(integer) 0";
    assert_eq!(table(&mut raw), [nothing; 3]);
    support::check(&mut raw, "SET k v", "OK");
    let [bytes, rehashing, count] = table(&mut raw);
    assert_ne!(bytes, nothing);
    assert_eq!([rehashing, count], [nothing; 2]);
}

#[test]
fn info_has_the_fields_that_monitoring_reads() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    let all = info(&mut raw, "everything");
    for name in [
        "redis_version",
        "redis_mode",
        "os",
        "arch_bits",
        "process_id",
        "tcp_port",
        "run_id",
        "uptime_in_seconds",
        "uptime_in_days",
        "hz",
        "connected_clients",
        "maxclients",
        "blocked_clients",
        "used_memory",
        "used_memory_human",
        "used_memory_rss",
        "used_memory_peak",
        "maxmemory",
        "maxmemory_policy",
        "mem_fragmentation_ratio",
        "mem_allocator",
        "loading",
        "rdb_last_save_time",
        "aof_enabled",
        "total_connections_received",
        "total_commands_processed",
        "instantaneous_ops_per_sec",
        "total_net_input_bytes",
        "total_net_output_bytes",
        "rejected_connections",
        "expired_keys",
        "evicted_keys",
        "keyspace_hits",
        "keyspace_misses",
        "role",
        "connected_slaves",
        "used_cpu_sys",
        "used_cpu_user",
        "cluster_enabled",
        "executable",
        "config_file",
    ] {
        assert!(all.contains_key(name), "INFO lacks {name}");
    }
    assert_eq!(all["process_id"], server.pid().to_string());
    assert_eq!(all["tcp_port"], server.port.to_string());
    support::eventually("nobody else is connected", || {
        info(&mut raw, "clients")["connected_clients"] == "1"
    });
    if !is_stand_in() {
        assert_eq!(all["server_name"], "basalt");
    }
    let used: u64 = all["used_memory"].parse().expect("a number");
    let value = vec![b'm'; 10 << 20];
    assert_eq!(
        raw.command(&[b"SET", b"big".as_slice(), &value]).show(),
        "OK"
    );
    let after: u64 = info(&mut raw, "memory")["used_memory"]
        .parse()
        .expect("a number");
    assert!(
        (10 << 20..40 << 20).contains(&(after - used)),
        "{used} to {after} for 10 MiB"
    );
    check(&mut raw, "DEL big", "(integer) 1");
    support::eventually("the memory is given back", || {
        let now: u64 = info(&mut raw, "memory")["used_memory"]
            .parse()
            .expect("a number");
        now < used + (1 << 20)
    });
}

#[test]
fn config_is_set_all_or_nothing_and_rewritten() {
    let server = Server::start(&Options::shards(2));
    let file = server.dir().join("own.conf");
    let port = support::free_port();
    std::fs::write(
        &file,
        format!("# a comment\nport {port}\nbind 127.0.0.1\n\nmaxclients 100\nsave \"\"\n"),
    )
    .expect("a file");
    let binary = std::env::var_os("BASALT_TEST_SERVER").unwrap_or_else(support::basalt);
    let mut command = Command::new(binary);
    command.env_remove("BASALT_BINARY").arg(&file);
    if !is_stand_in() {
        command.args(["--metrics-port", "0"]);
    }
    command
        .current_dir(server.dir())
        .stdout(std::process::Stdio::null());
    let mut started = Killed(command.spawn().expect("a server"));
    support::eventually("it listens", || support::is_listening(port));
    let mut raw = Raw::connect(port);
    check(
        &mut raw,
        "CONFIG GET maxclients",
        "1) \"maxclients\"\n2) \"100\"",
    );
    assert!(
        raw.call("CONFIG SET maxclients 90 timeout nonsense")
            .is_error()
    );
    check(
        &mut raw,
        "CONFIG GET maxclients",
        "1) \"maxclients\"\n2) \"100\"",
    );
    check(&mut raw, "CONFIG SET maxclients 90 timeout 77", "OK");
    check(&mut raw, "CONFIG REWRITE", "OK");
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(
        text.starts_with(&format!(
            "# a comment\nport {port}\nbind 127.0.0.1\n\nmaxclients 90\n"
        )),
        "{text}"
    );
    assert!(text.lines().any(|line| line == "timeout 77"), "{text}");
    raw.send_unchecked(b"SHUTDOWN NOSAVE\r\n");
    assert!(raw.read_to_close().is_empty());
    assert!(started.0.wait().expect("its end").success());
}

#[test]
fn slow_commands_are_logged_whole_and_shortened() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(
            &mut raw,
            "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 4",
            "OK",
        );
        check(&mut raw, "SLOWLOG RESET", "OK");
        let long = "x".repeat(200);
        for index in 0..10 {
            check(&mut raw, &format!("SET slow:{index} {long}"), "OK");
        }
        check(&mut raw, "SLOWLOG LEN", "(integer) 4");
        let reply = raw.call("SLOWLOG GET 1");
        let entry = reply.items()[0].items();
        assert_eq!(entry.len(), 6);
        // The last command logged is SLOWLOG LEN or the SET before, by the moment of logging; each has its words.
        assert!(entry[3].items().len() >= 2);
        check(&mut raw, "CONFIG SET slowlog-log-slower-than -1", "OK");
        check(&mut raw, "SLOWLOG RESET", "OK");
        check(&mut raw, "SLOWLOG LEN", "(integer) 0");
    });
}

#[test]
fn digests_equal_redis_servers_for_the_same_data() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    support::at_each_shard_count(|server| {
        let mut ours = server.raw();
        let mut theirs = oracle.raw();
        theirs.call("FLUSHALL");
        for index in 0..300 {
            let line = match index % 3 {
                0 => format!("SET digest:{index} v{index}"),
                1 => format!("SET digest:{index} {} EX 10000", index * 1_000_003_i64),
                _ => format!("APPEND digest:{} tail", index - 2),
            };
            assert_eq!(ours.call(&line), theirs.call(&line));
        }
        assert_eq!(ours.call("DEBUG DIGEST"), theirs.call("DEBUG DIGEST"));
        for index in [0, 1, 3, 299] {
            let line = format!("DEBUG DIGEST-VALUE digest:{index}");
            assert_eq!(ours.call(&line), theirs.call(&line));
        }
    });
}

/// Compares COMMAND INFO, without the parts on which redis-server 7.0 and later versions disagree: tips,
/// subcommands' order, and the categories and flags' order.
#[test]
fn command_info_equals_redis_servers() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&Options::shards(2));
    let mut ours = server.raw();
    let mut theirs = oracle.raw();
    let names: Vec<String> = ours
        .call("COMMAND LIST")
        .items()
        .iter()
        .map(Value::text)
        .collect();
    assert!(names.len() > 50, "{} commands", names.len());
    let mut wrong = Vec::new();
    for name in &names {
        // Since 7.2 WAIT counts as a command that blocks; `command_rows` compares it with newer servers.
        if name.contains('|') || name == "wait" {
            continue;
        }
        let (our, their) = (
            ours.call(&format!("COMMAND INFO {name}")),
            theirs.call(&format!("COMMAND INFO {name}")),
        );
        let Value::Array(their) = &their.items()[0] else {
            continue;
        };
        let our = our.items()[0].items();
        let sorted = |value: &Value| {
            let mut items = value.items().to_vec();
            items.sort();
            // From 7.2 on, blocking commands are allowed in scripts, where they do not wait.
            if items.iter().any(|item| item.text() == "blocking") {
                items.retain(|item| item.text() != "noscript");
            }
            items
        };
        for (index, what) in [(1, "arity"), (3, "first key"), (4, "last key"), (5, "step")] {
            // These take one argument more from 7.2 on.
            let is_longer = what == "arity" && ["zrank", "zrevrank"].contains(&name.as_str());
            if our[index] != their[index] && !is_longer {
                wrong.push(format!(
                    "{name}: {what} {} for {}",
                    our[index].show(),
                    their[index].show()
                ));
            }
        }
        for (index, what) in [(2, "flags"), (6, "categories")] {
            if sorted(&our[index]) != sorted(&their[index]) {
                wrong.push(format!(
                    "{name}: {what}\n{}\nfor\n{}",
                    our[index].show(),
                    their[index].show()
                ));
            }
        }
        // Newer servers say that SINTERSTORE overwrites its destination.
        if our[8] != their[8] && name != "sinterstore" {
            wrong.push(format!(
                "{name}: key specifications\n{}\nfor\n{}",
                our[8].show(),
                their[8].show()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_command_refuses_a_wrong_number_of_arguments() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let Value::Array(commands) = raw.call("COMMAND") else {
        panic!("COMMAND answers an array")
    };
    for command in &commands {
        let (name, arity) = (command.items()[0].text(), command.items()[1].integer());
        let least = arity.unsigned_abs() as usize;
        let expected = format!("(error) ERR wrong number of arguments for '{name}' command");
        // Commands that Redis does not have say more behind that.
        let is_expected = |answer: &str| {
            let more = answer.strip_prefix(&expected);
            more.is_some_and(|more| more.is_empty() || more.starts_with(": usage is "))
        };
        let mut words = vec![name.clone()];
        if least > 1 {
            words.resize(least - 1, "1".to_owned());
            let answer = raw.command(&words).show();
            assert!(is_expected(&answer), "too few: {words:?}: {answer}");
        }
        // EXEC has its own answer, QUIT takes anything.
        if arity > 0 && name != "quit" && name != "exec" {
            words.resize(least + 1, "1".to_owned());
            let answer = raw.command(&words).show();
            assert!(is_expected(&answer), "too many: {words:?}: {answer}");
        }
    }
}

#[test]
fn commands_go_by_the_names_that_the_configuration_gives_them() {
    let options = Options::shards(2)
        .with("rename-command", "FLUSHDB badger")
        .with("rename-command", "KEYS ")
        .with("rename-command", "badger weasel");
    let server = Server::start(&options);
    let mut raw = server.raw();
    check(&mut raw, "SET k 1", "OK");
    for gone in ["flushdb", "badger", "keys *"] {
        assert!(raw.call(gone).body().starts_with("ERR unknown command"));
    }
    check(&mut raw, "WEASEL x", "(error) ERR syntax error");
    check(&mut raw, "EVAL \"return redis.call('weasel')\" 0", "OK");
    check(&mut raw, "DBSIZE", "(integer) 0");
    check(
        &mut raw,
        "COMMAND LIST FILTERBY PATTERN keys",
        "(empty array)",
    );
    check(&mut raw, "COMMAND INFO flushdb keys", "1) (nil)\n2) (nil)");
    let named = raw.call("COMMAND INFO weasel");
    assert_eq!(named.items()[0].items()[0].text(), "flushdb");
}

#[test]
fn what_follows_config_set_in_a_pipeline_sees_it() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let replies = raw.pipeline(&[
            "CONFIG SET slowlog-log-slower-than 0",
            "SLOWLOG RESET",
            "ECHO kept",
            "CONFIG SET slowlog-log-slower-than -1",
            "ECHO lost",
            "SLOWLOG LEN",
            "CONFIG SET min-replicas-to-write 1",
            "SET k 1",
            "CONFIG SET min-replicas-to-write 0",
            "SET k 1",
        ]);
        assert_eq!(replies[5].show(), "(integer) 2");
        assert!(replies[7].is_error());
        assert_eq!(replies[9].show(), "OK");
    });
}

#[test]
fn a_command_that_waited_counts_once_with_how_it_ended() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut waiting) = (server.raw(), server.raw());
        let id = waiting.call("CLIENT ID").integer();
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        for (how, seen) in [("ERROR", "calls=1,"), ("TIMEOUT", "calls=2,")] {
            waiting.send(b"BLPOP nosuch 0\r\n");
            support::eventually("blocked", || {
                let mut list = server.raw();
                let line = list.call(&format!("CLIENT LIST ID {id}")).body();
                line.contains(" flags=b ")
            });
            check(
                &mut raw,
                &format!("CLIENT UNBLOCK {id} {how}"),
                "(integer) 1",
            );
            let _ = waiting.read();
            let text = raw.call("INFO commandstats").body();
            let line = text.lines().find(|line| line.starts_with("cmdstat_blpop:"));
            let line = line.expect("it was run");
            assert!(
                line.contains(seen) && line.contains("failed_calls=1"),
                "{line}"
            );
        }
        let text = raw.call("INFO errorstats").body();
        assert!(text.contains("errorstat_UNBLOCKED:count=1"), "{text}");
        check(
            &mut raw,
            "CONFIG SET latency-tracking-info-percentiles 50",
            "OK",
        );
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        check(&mut raw, "DEBUG SLEEP 0.05", "OK");
        let text = raw.call("INFO latencystats").body();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("latency_percentiles_usec_debug:p50="));
        let p50_us: f64 = line.expect("it was run").trim().parse().expect("a number");
        // The sleep and the measurement use two different clocks.
        assert!(p50_us >= 45_000.0, "{p50_us}");
    });
}

#[test]
fn info_tells_how_often_the_loops_went_round() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        raw.pipeline(&["PING"; 10]);
        let number = |found: &HashMap<String, String>, name: &str| -> u64 {
            found[name].parse().expect("a number")
        };
        let before = info(&mut raw, "stats");
        support::eventually("a round of the cron", || {
            let now = info(&mut raw, "stats");
            let debug = info(&mut raw, "debug");
            let grows = |name| number(&now, name) > number(&before, name);
            grows("eventloop_cycles")
                && grows("eventloop_duration_sum")
                && grows("eventloop_duration_cmd_sum")
                && number(&now, "instantaneous_eventloop_cycles_per_sec") > 0
                && number(&debug, "eventloop_duration_cron_sum") > 0
                && number(&debug, "eventloop_cmd_per_cycle_max") > 0
        });
        let all = info(&mut raw, "everything");
        assert!(!all.contains_key("eventloop_duration_aof_sum"));
        assert!(all.contains_key("instantaneous_eventloop_duration_usec"));
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        let after = info(&mut raw, "stats");
        assert!(number(&after, "eventloop_cycles") < number(&before, "eventloop_cycles") + 100);
    });
}
