//! HIMPORT: the fields that a connection prepares, and their use in transactions, scripts, files, replicas
//! and slots.

use std::time::Duration;

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Oracle, Server, check, eventually, info_number};
use crate::wire::Raw;

const NO_FIELDSET: &str = "(error) ERR no such fieldset";
const COUNT: &str = "(error) ERR value count does not match fieldset field count";

#[test]
fn hashes_are_made_of_names_that_were_sent_once() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        check(&mut raw, "HIMPORT SET user:1 u a", NO_FIELDSET);
        check(&mut raw, "HIMPORT PREPARE u name email age", "OK");
        check(&mut raw, "HIMPORT SET user:1 u ann a@x 30", "OK");
        // Shorter names first, as Redis has it.
        check(
            &mut raw,
            "HGETALL user:1",
            "1) \"age\"\n2) \"30\"\n3) \"name\"\n4) \"ann\"\n5) \"email\"\n6) \"a@x\"",
        );
        check(&mut other, "HIMPORT SET user:2 u bob b@x 25", NO_FIELDSET);
        check(&mut raw, "HIMPORT SET user:1 u ann a@x", COUNT);
        check(&mut raw, "HIMPORT SET user:1 u ann a@x 30 x", COUNT);
        check(
            &mut raw,
            "HIMPORT PREPARE v a b a",
            "(error) ERR duplicate field name in fieldset",
        );
        check(&mut raw, "HIMPORT SET h v 1 2 3", NO_FIELDSET);
        check(&mut raw, "HIMPORT PREPARE u a", "OK");
        check(&mut raw, "EXPIRE user:1 100", "(integer) 1");
        check(&mut raw, "HIMPORT SET user:1 u 1", "OK");
        check(&mut raw, "HGETALL user:1", "1) \"a\"\n2) \"1\"");
        check(&mut raw, "TTL user:1", "(integer) -1");
        check(&mut raw, "SET text v EX 100", "OK");
        check(
            &mut raw,
            "HIMPORT SET text u 1",
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        check(&mut raw, "GET text", "\"v\"");
        check(&mut raw, "TTL text", "(integer) 100");
        check(&mut raw, "HIMPORT PREPARE \"\" \"\" b", "OK");
        check(&mut raw, "HIMPORT SET e \"\" 1 2", "OK");
        check(&mut raw, "HGET e \"\"", "\"1\"");
        check(&mut raw, "SELECT 1", "OK");
        check(&mut raw, "HIMPORT SET h u 1", "OK");
        check(&mut raw, "SELECT 0", "OK");
        check(&mut raw, "HIMPORT DISCARD u", "(integer) 1");
        check(&mut raw, "HIMPORT DISCARD u", "(integer) 0");
        check(&mut raw, "HIMPORT SET user:1 u 1", NO_FIELDSET);
        check(&mut raw, "HIMPORT PREPARE u a", "OK");
        check(&mut raw, "HIMPORT DISCARDALL", "(integer) 2");
        check(&mut raw, "HIMPORT DISCARDALL", "(integer) 0");
        check(&mut raw, "HIMPORT PREPARE u a", "OK");
        check(&mut raw, "RESET", "RESET");
        check(&mut raw, "HIMPORT SET h u 1", NO_FIELDSET);
        for (line, name) in [
            ("HIMPORT", "himport"),
            ("HIMPORT PREPARE u", "himport|prepare"),
            ("HIMPORT SET k u", "himport|set"),
            ("HIMPORT DISCARD", "himport|discard"),
            ("HIMPORT DISCARDALL x", "himport|discardall"),
        ] {
            let wrong = format!("(error) ERR wrong number of arguments for '{name}' command");
            check(&mut raw, line, &wrong);
        }
        check(
            &mut raw,
            "COMMAND GETKEYS HIMPORT SET key u 1",
            "1) \"key\"",
        );
    });
}

#[test]
fn what_a_transaction_puts_down_stays_and_what_a_script_does_goes() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let all = [
            "MULTI",
            "HIMPORT PREPARE u a b",
            "HIMPORT SET one u 1 2",
            "HIMPORT SET two u 3 4",
            "HIMPORT SET one none 1",
            "EXEC",
        ];
        let replies = raw.pipeline(&all);
        assert_eq!(
            replies[5].show(),
            format!("1) OK\n2) OK\n3) OK\n4) {NO_FIELDSET}")
        );
        check(&mut raw, "HIMPORT SET one u 5 6", "OK");
        check(&mut raw, "HGET two b", "\"4\"");
        // A transaction that is not run changes nothing.
        let replies = raw.pipeline(&["WATCH one", "HSET one a 7", "MULTI", "HIMPORT DISCARD u"]);
        assert!(replies.iter().all(|reply| !reply.is_error()));
        check(&mut raw, "EXEC", "(nil array)");
        check(&mut raw, "HIMPORT SET one u 1 2", "OK");

        let prepare = "redis.call('HIMPORT','PREPARE','own','x')";
        let call =
            format!("EVAL \"{prepare} return redis.call('HIMPORT','SET',KEYS[1],'own','1')\" 1 s");
        check(&mut raw, &call, "OK");
        check(&mut raw, "HGETALL s", "1) \"x\"\n2) \"1\"");
        check(&mut raw, "HIMPORT SET s own 1", NO_FIELDSET);
        // A script does not see its client's fields either, and cannot discard them.
        let call = "EVAL \"redis.call('HIMPORT','DISCARDALL') return redis.pcall('HIMPORT','SET',KEYS[1],'u','1','2')\" 1 s";
        check(&mut raw, call, NO_FIELDSET);
        check(&mut raw, "HIMPORT SET one u 1 2", "OK");
    });
}

/// A script of the transaction needs undeclared shards: all is rolled back, and run again.
#[test]
fn transaction_that_runs_again_puts_down_what_it_says_once() {
    let server = Server::start(&Options::shards(64).threads(2));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut raw = server.raw();
            scope.spawn(move || {
                check(&mut raw, "HIMPORT PREPARE u before", "OK");
                for round in 0..200 {
                    let script =
                        "for n = 1, 8 do redis.call('INCR', 'k' .. (ARGV[1] * n % 97)) end";
                    let replies = raw.pipeline(&[
                        "MULTI",
                        &format!("HIMPORT SET h{worker} u {round}"),
                        "HIMPORT PREPARE u within",
                        &format!("HIMPORT SET w{worker} u {round}"),
                        &format!("EVAL \"{script}\" 0 {}", round + worker),
                        "HIMPORT PREPARE u before",
                        "EXEC",
                    ]);
                    let shown = replies[6].show();
                    assert_eq!(shown, "1) OK\n2) OK\n3) OK\n4) (nil)\n5) OK");
                    let value = format!("1) \"before\"\n2) \"{round}\"");
                    check(&mut raw, &format!("HGETALL h{worker}"), &value);
                    let value = format!("1) \"within\"\n2) \"{round}\"");
                    check(&mut raw, &format!("HGETALL w{worker}"), &value);
                }
            });
        }
    });
    let mut raw = server.raw();
    assert!(info_number(&mut raw, "stats", "total_commands_processed") > 0.0);
}

/// Long values, and shards that other clients lock: the command goes to a queue, with its fieldset.
#[test]
fn imports_that_wait_for_their_shards_know_their_fields() {
    let server = Server::start(&Options::shards(1).threads(2));
    let mut sleeper = server.raw();
    sleeper.send(&crate::wire::encode(&crate::wire::split("DEBUG SLEEP 0.3")));
    let mut raw = server.raw();
    check(&mut raw, "HIMPORT PREPARE u a b", "OK");
    let mut busy = server.raw();
    let script = "EVAL \"local n = 0 for i = 1, 3000000 do n = n + i end return redis.call('HLEN', KEYS[1])\" 1 h";
    busy.send(&crate::wire::encode(&crate::wire::split(script)));
    std::thread::sleep(Duration::from_millis(5));
    let long = "x".repeat(100_000);
    for round in 0..20 {
        let set = ["HIMPORT", "SET", "h", "u", &long, &round.to_string()];
        assert_eq!(raw.command(&set).show(), "OK");
    }
    check(&mut raw, "HSTRLEN h a", "(integer) 100000");
    check(&mut raw, "HGET h b", "\"19\"");
    busy.read();
    sleeper.read();
}

#[test]
fn connection_has_so_many_fieldsets_at_most() {
    let server = Server::start(&Options::default());
    let mut raw = server.raw();
    let prepare = |name: usize| format!("HIMPORT PREPARE {name} f");
    for name in 0..10_000 {
        raw.send(&crate::wire::encode(&crate::wire::split(&prepare(name))));
    }
    for name in 0..10_000 {
        assert_eq!(raw.read().show(), "OK", "{name}");
    }
    let too_many = "(error) ERR a connection may have 10000 fieldsets at most";
    check(&mut raw, &prepare(10_000), too_many);
    // An existing fieldset may be replaced, and discarding one frees its slot.
    check(&mut raw, &prepare(9_999), "OK");
    check(&mut raw, "HIMPORT DISCARD 10000", "(integer) 0");
    check(&mut raw, "HIMPORT DISCARD 0", "(integer) 1");
    check(&mut raw, &prepare(10_000), "OK");
    check(&mut raw, "HIMPORT DISCARDALL", "(integer) 10000");
}

fn memory_of(raw: &mut Raw) -> u64 {
    let text = raw.call("CLIENT INFO").body();
    let (_, rest) = text.split_once("tot-mem=").expect("a field");
    let number = rest.split(' ').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn fieldsets_count_as_their_clients_memory_and_may_cost_the_connection() {
    let server = Server::start(&Options::shards(4));
    let mut raw = server.raw();
    let before = memory_of(&mut raw);
    let prepare = |raw: &mut Raw, number: usize, fields: usize| {
        let mut words = vec!["HIMPORT".into(), "PREPARE".into(), format!("set{number}")];
        words.extend((0..fields).map(|field| format!("field_{number}_{field}")));
        raw.send(&crate::wire::encode(&words));
    };
    for cycle in 0..3 {
        for number in 0..100 {
            prepare(&mut raw, number, 64);
            assert_eq!(raw.read().show(), "OK");
        }
        assert!(memory_of(&mut raw) > before + 100 * 64 * 10);
        // A transaction that fails keeps none of its fieldsets.
        let replies = raw.pipeline(&[
            "MULTI",
            "HIMPORT PREPARE more x",
            "HIMPORT DISCARD more",
            "EXEC",
        ]);
        assert_eq!(replies[3].show(), "1) OK\n2) (integer) 1");
        if cycle % 2 == 0 {
            check(&mut raw, "HIMPORT DISCARDALL", "(integer) 100");
        } else {
            for number in 0..100 {
                check(
                    &mut raw,
                    &format!("HIMPORT DISCARD set{number}"),
                    "(integer) 1",
                );
            }
        }
        let after = memory_of(&mut raw);
        assert!(after < before + 20_000, "{before} became {after}");
    }
    check(&mut raw, "CLIENT NO-EVICT on", "OK");
    check(&mut raw, "CONFIG SET maxmemory-clients 2mb", "OK");
    let mut greedy = server.raw();
    let kept = (0..200).take_while(|number| {
        let mut words = vec!["HIMPORT".into(), "PREPARE".into(), format!("set{number}")];
        words.extend((0..2_000).map(|field| format!("field_{number}_{field}")));
        greedy.send_unchecked(&crate::wire::encode(&words));
        greedy.try_read().is_ok()
    });
    assert!(kept.count() < 100, "2 MiB are for less than that");
    assert_eq!(info_number(&mut raw, "stats", "evicted_clients"), 1.0);
}

#[test]
fn servers_of_before_and_files_get_plain_hashes() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = Options::shards(8)
        .with("dir", &dir.path().display().to_string())
        .with("appendonly", "yes")
        .with("appendfsync", "always");
    let server = Server::start(&options);
    let replica = Server::start(&Options::shards(1));
    follow(&replica, &server);
    let old = Oracle::start();
    let port = server.port.to_string();
    if let Some(old) = &old {
        let mut raw = Raw::connect(old.0.port);
        check(&mut raw, &format!("REPLICAOF 127.0.0.1 {port}"), "OK");
        eventually("the link is up", || {
            raw.call("INFO replication")
                .body()
                .contains("master_link_status:up")
        });
    }
    let mut raw = server.raw();
    check(&mut raw, "HSET user:0 old 1", "(integer) 1");
    check(&mut raw, "HIMPORT PREPARE u name mail", "OK");
    for number in 0..200 {
        check(
            &mut raw,
            &format!("HIMPORT SET user:{number} u n{number} m"),
            "OK",
        );
    }
    check(&mut raw, "HIMPORT SET user:7 u again m", "OK");
    settle(&[&server, &replica]);
    let digest = raw.call("DEBUG DIGEST").show();
    assert_eq!(replica.raw().call("DEBUG DIGEST").show(), digest);
    check(
        &mut replica.raw(),
        "HIMPORT SET user:7 u x y",
        "(error) READONLY You can't write against a read only replica.",
    );
    if let Some(old) = &old {
        let mut old = Raw::connect(old.0.port);
        eventually("the same there", || {
            old.call("DEBUG DIGEST").show() == digest
        });
    }
    drop(server);
    let server = support::start_loaded(&options);
    assert_eq!(server.raw().call("DEBUG DIGEST").show(), digest);
}
