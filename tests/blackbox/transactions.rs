//! MULTI, EXEC, DISCARD and WATCH, on one shard and over many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{self, check};
use crate::wire::{Raw, Value};

#[test]
fn a_transaction_runs_as_one_step_and_answers_all_replies() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SET a 1", "QUEUED");
        check(&mut raw, "INCR b", "QUEUED");
        check(&mut raw, "INCR a", "QUEUED");
        check(&mut raw, "MGET a b nosuch", "QUEUED");
        check(
            &mut raw,
            "GET",
            "(error) ERR wrong number of arguments for 'get' command",
        );
        check(
            &mut raw,
            "EXEC",
            "(error) EXECABORT Transaction discarded because of previous errors.",
        );
        check(&mut raw, "EXISTS a b", "(integer) 0");
        raw.send(b"MULTI\r\nSET a 1\r\nINCR b\r\nINCRBY a x\r\nMGET a b nosuch\r\nDBSIZE\r\nEXEC\r\nGET b\r\n");
        for _ in 0..6 {
            let _ = raw.read();
        }
        assert_eq!(
            raw.read().show(),
            "1) OK\n2) (integer) 1\n3) (error) ERR value is not an integer or out of range\n\
             4) 1) \"1\"\n   2) \"1\"\n   3) (nil)\n5) (integer) 2"
        );
        assert_eq!(raw.read().show(), "\"1\"");
    });
}

#[test]
fn what_does_not_fit_a_transaction_is_refused() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "EXEC", "(error) ERR EXEC without MULTI");
        check(&mut raw, "DISCARD", "(error) ERR DISCARD without MULTI");
        check(&mut raw, "UNWATCH", "OK");
        check(&mut raw, "MULTI", "OK");
        check(
            &mut raw,
            "MULTI",
            "(error) ERR MULTI calls can not be nested",
        );
        check(
            &mut raw,
            "WATCH k",
            "(error) ERR WATCH inside MULTI is not allowed",
        );
        check(&mut raw, "SELECT 1", "QUEUED");
        check(&mut raw, "SET k 1", "QUEUED");
        check(&mut raw, "UNWATCH", "QUEUED");
        check(&mut raw, "EXEC", "1) OK\n2) OK\n3) OK");
        check(&mut raw, "GET k", "\"1\"");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SET k 2", "QUEUED");
        check(&mut raw, "DISCARD", "OK");
        check(&mut raw, "GET k", "\"1\"");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "RESET", "RESET");
        check(&mut raw, "EXEC", "(error) ERR EXEC without MULTI");
    });
}

#[test]
fn exec_runs_nothing_if_a_watched_key_changed() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        for (change, is_hit) in [
            ("SET watched 1", true),
            ("SET other 1", false),
            ("DEL watched", true),
            ("DEL watched", false),
            ("MSET other 1 watched 2", true),
            ("GET watched", false),
            ("EXPIRE watched 100", true),
            ("RENAME other watched", true),
            ("SELECT 3", false),
            ("SET watched 5", false),
            ("SELECT 0", false),
            ("FLUSHALL", true),
            ("FLUSHALL", false),
        ] {
            check(&mut raw, "WATCH first watched", "OK");
            let _ = other.call(change);
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, "PING", "QUEUED");
            let expected = if is_hit { "(nil array)" } else { "1) PONG" };
            check(&mut raw, "EXEC", expected);
            let _ = other.call("SET other 0");
        }
        check(&mut raw, "WATCH watched", "OK");
        check(&mut other, "SET watched 9", "OK");
        check(&mut raw, "UNWATCH", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "GET watched", "QUEUED");
        check(&mut raw, "EXEC", "1) \"9\"");
        check(&mut raw, "WATCH watched", "OK");
        check(&mut raw, "SET watched own", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "EXEC", "(nil array)");
    });
}

#[test]
fn what_config_sets_is_seen_by_what_follows_in_the_transaction() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut subscriber) = (server.raw(), server.raw());
        subscriber.call("PSUBSCRIBE __key*");
        let script = "redis.call('hset', 'scripted', 'a', 1, 'b', 2, 'c', 3)
            return redis.call('object', 'encoding', 'scripted')";
        let steps: [&[&str]; 10] = [
            &["CONFIG", "SET", "hash-max-listpack-entries", "2"],
            &["HSET", "h", "a", "1", "b", "2", "c", "3"],
            &["OBJECT", "ENCODING", "h"],
            &["CONFIG", "GET", "hash-max-listpack-entries"],
            &["EVAL", script, "0"],
            &["CONFIG", "SET", "hash-max-listpack-entries", "9"],
            &["CONFIG", "SET", "notify-keyspace-events", "Eh"],
            &["HSET", "i", "a", "1", "b", "2", "c", "3"],
            &["OBJECT", "ENCODING", "i"],
            &["CONFIG", "SET", "nosuch", "1"],
        ];
        for skipped in [4, 10] {
            raw.pipeline(&[
                "CONFIG SET notify-keyspace-events \"\"",
                "FLUSHALL",
                "MULTI",
            ]);
            let steps = steps.iter().enumerate();
            let steps = steps.filter(|(at, _)| *at != skipped);
            for (_, words) in steps {
                assert_eq!(raw.command(words).text(), "QUEUED");
            }
            let reply = raw.call("EXEC").show();
            let encodings: Vec<&str> = ["hashtable", "listpack"]
                .into_iter()
                .filter(|name| reply.contains(name))
                .collect();
            assert_eq!(encodings, ["hashtable", "listpack"], "{reply}");
            assert!(reply.contains("2) \"2\""), "{reply}");
            check(&mut raw, "OBJECT ENCODING h", "\"hashtable\"");
            check(&mut raw, "OBJECT ENCODING i", "\"listpack\"");
            let push = subscriber.read();
            assert_eq!(push.items()[2].text(), "__keyevent@0__:hset");
            assert_eq!(push.items()[3].text(), "i");
        }
        check(&mut raw, "OBJECT ENCODING scripted", "\"hashtable\"");
    });
}

/// Transfers between accounts keep their sum, for every reader at any time; optimistic increments lose
/// nothing.
#[test]
fn nobody_sees_half_a_transaction() {
    const ACCOUNTS: usize = 8;
    const ROUNDS: usize = 300;
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for account in 0..ACCOUNTS {
            check(&mut raw, &format!("SET account{account} 100"), "OK");
        }
        check(&mut raw, "SET counter 0", "OK");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let mut raw = server.raw();
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let (from, to) = (
                                (worker + round) % ACCOUNTS,
                                (worker * 3 + round * 5 + 1) % ACCOUNTS,
                            );
                            raw.send(
                                format!(
                                    "MULTI\r\nDECR account{from}\r\nINCR account{to}\r\nEXEC\r\n"
                                )
                                .as_bytes(),
                            );
                            for _ in 0..4 {
                                let _ = raw.read();
                            }
                            loop {
                                check(&mut raw, "WATCH counter", "OK");
                                let seen: i64 =
                                    raw.call("GET counter").body().parse().expect("a number");
                                check(&mut raw, "MULTI", "OK");
                                check(&mut raw, &format!("SET counter {}", seen + 1), "QUEUED");
                                if raw.call("EXEC").show() == "1) OK" {
                                    break;
                                }
                            }
                        }
                    })
                })
                .collect();
            let mut watcher = server.raw();
            let stop = &stop;
            let looks = scope.spawn(move || {
                let names: Vec<String> = (0..ACCOUNTS)
                    .map(|account| format!("account{account}"))
                    .collect();
                let mget = format!("MGET {}", names.join(" "));
                while !stop.load(Ordering::Relaxed) {
                    let shown = watcher.call(&mget).show();
                    let sum: i64 = shown
                        .split('"')
                        .skip(1)
                        .step_by(2)
                        .map(|number| number.parse::<i64>().expect("a number"))
                        .sum();
                    assert_eq!(sum, 100 * ACCOUNTS as i64);
                }
            });
            for worker in workers {
                worker.join().expect("a worker");
            }
            stop.store(true, Ordering::Relaxed);
            looks.join().expect("the watcher");
        });
        check(&mut raw, "GET counter", &format!("\"{}\"", 4 * ROUNDS));
    });
}

#[test]
fn a_hundred_thousand_commands_run_as_one_step() {
    const COMMANDS: usize = 100_000;
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "MULTI", "OK");
        for start in (0..COMMANDS).step_by(1_000) {
            let mut bytes = Vec::new();
            for number in start..start + 1_000 {
                let key = format!("k{}", number % 500);
                crate::wire::encode_into(&mut bytes, &["INCR", &key]);
            }
            raw.send(&bytes);
            for _ in 0..1_000 {
                assert_eq!(raw.read().text(), "QUEUED");
            }
        }
        // Every reader meanwhile sees all of it or nothing.
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = server.raw();
                while !is_over.load(Ordering::Relaxed) {
                    let seen = other.call("MGET k0 k7 k499");
                    let seen: Vec<String> = seen.items().iter().map(|item| item.show()).collect();
                    assert!(
                        seen.iter().all(|item| item == "(nil)")
                            || seen.iter().all(|item| item == "\"200\""),
                        "{seen:?}"
                    );
                }
            });
            let replies = raw.call("EXEC");
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(replies.items().len(), COMMANDS);
            let last = replies.items().last().map(|reply| reply.integer());
            assert_eq!(last, Some(200));
        });
        // A refused one counts as many.
        check(&mut raw, "MULTI", "OK");
        raw.send(&crate::wire::encode(&["INCR", "k0"]).repeat(COMMANDS / 10));
        for _ in 0..COMMANDS / 10 {
            raw.read();
        }
        assert!(raw.call("NOSUCH").is_error());
        assert!(raw.call("EXEC").is_error());
        check(&mut raw, "GET k0", "\"200\"");
    });
}

/// As in Redis: the read position of a stream's groups is not part of the data that WATCH checks.
#[test]
fn what_groups_read_is_no_change_to_who_watches_the_stream() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        for (line, changes) in [
            ("XACK s g 1-1", false),
            ("XGROUP CREATE s g2 0", false),
            ("XGROUP CREATE n g2 0 MKSTREAM", true),
            ("XGROUP SETID s g 0", false),
            ("XGROUP DELCONSUMER s g c", false),
            ("XGROUP DESTROY s g", false),
            ("XREADGROUP GROUP g d STREAMS s >", false),
            ("XCLAIM s g d 0 1-1", false),
            ("XAUTOCLAIM s g d 0 0", false),
            ("XSETID s 9-9", false),
            ("XDEL s 1-1", true),
            ("XTRIM s MAXLEN 0", true),
            ("XADD s 8-8 a b", true),
        ] {
            for line in [
                "FLUSHALL",
                "XADD s 1-1 a b",
                "XADD s 2-2 a b",
                "XGROUP CREATE s g 0",
                "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
            ] {
                assert!(!other.call(line).is_error(), "{line}");
            }
            check(&mut raw, "WATCH s n", "OK");
            assert!(!other.call(line).is_error(), "{line}");
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, "PING", "QUEUED");
            let expected = if changes { "(nil array)" } else { "1) PONG" };
            assert_eq!(raw.call("EXEC").show(), expected, "{line}");
        }
    });
}

#[test]
fn keys_that_are_watched_over_and_over_are_watched_once() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        for is_changed in [false, true] {
            check(&mut raw, "WATCH first", "OK");
            for _ in 0..200 {
                check(&mut raw, "WATCH a a b c a", "OK");
            }
            if is_changed {
                check(&mut other, "SET first 1", "OK");
            }
            check(&mut raw, "MULTI", "OK");
            let expected = if is_changed {
                "(nil array)"
            } else {
                "(empty array)"
            };
            assert_eq!(raw.call("EXEC").show(), expected);
            // No client watches now.
            check(&mut other, "SET a 1", "OK");
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, "EXEC", "(empty array)");
        }
    });
}

#[test]
fn what_is_queued_counts_when_it_is_run_and_what_waits_when_it_is_answered() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        raw.pipeline(&["CONFIG RESETSTAT", "CONFIG SET slowlog-log-slower-than 0"]);
        raw.pipeline(&["MULTI", "SET a 1", "INCR a", "DISCARD"]);
        raw.pipeline(&["MULTI", "SLOWLOG RESET", "SET a 1", "INCR a", "EXEC"]);
        let stats = raw.call("INFO commandstats").body();
        for name in ["set", "incr", "exec"] {
            assert!(
                stats.contains(&format!("cmdstat_{name}:calls=1,")),
                "{stats}"
            );
        }
        let log = |raw: &mut Raw| -> Vec<String> {
            let entries = raw.call("SLOWLOG GET 50");
            let words = |entry: &Value| -> Vec<String> {
                entry.items()[3].items().iter().map(Value::text).collect()
            };
            let lines = entries.items().iter().map(|entry| words(entry).join(" "));
            lines.collect()
        };
        let seen = log(&mut raw);
        assert!(seen.contains(&"SET a 1".to_owned()) && seen.contains(&"INCR a".to_owned()));
        assert!(!seen.contains(&"EXEC".to_owned()), "{seen:?}");
        other.send(b"BLPOP list 0\r\n");
        support::eventually("blocked", || {
            raw.call("INFO clients")
                .body()
                .contains("blocked_clients:1")
        });
        assert!(!log(&mut raw).contains(&"BLPOP list 0".to_owned()));
        raw.call("RPUSH list v");
        other.read();
        support::eventually("noted", || {
            log(&mut raw).contains(&"BLPOP list 0".to_owned())
        });
    });
}

#[test]
fn writes_are_refused_while_fewer_replicas_follow_than_asked_for() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        let lacks = "NOREPLICAS Not enough good replicas to write.";
        check(&mut raw, "SET k 1", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "INCR k", "QUEUED");
        check(&mut other, "CONFIG SET min-slaves-to-write 2", "OK");
        check(
            &mut raw,
            "EXEC",
            &format!("(error) EXECABORT Transaction discarded because of: {lacks}"),
        );
        check(&mut raw, "SET k 2", &format!("(error) {lacks}"));
        check(&mut raw, "BLPOP l 0", &format!("(error) {lacks}"));
        check(
            &mut raw,
            "EVAL \"return redis.call('set', KEYS[1], 2)\" 1 k",
            &format!(
                "(error) {lacks} script: d0647ecb72b066f4143793dcabef7360f58246a2, on @user_script:1."
            ),
        );
        check(&mut raw, "GET k", "\"1\"");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "GET k", "QUEUED");
        check(&mut raw, "EXEC", "1) \"1\"");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "INCR k", &format!("(error) {lacks}"));
        check(
            &mut raw,
            "EXEC",
            "(error) EXECABORT Transaction discarded because of previous errors.",
        );
        let info = raw.call("INFO replication").body();
        assert!(info.contains("min_slaves_good_slaves:0"), "{info}");
        check(&mut raw, "CONFIG SET min-replicas-max-lag 0", "OK");
        check(&mut raw, "INCR k", "(integer) 2");
        check(
            &mut raw,
            "CONFIG SET min-replicas-max-lag 10 min-replicas-to-write 0",
            "OK",
        );
        check(&mut raw, "INCR k", "(integer) 3");
    });
}

#[test]
fn an_exec_that_is_refused_ends_its_transaction() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SET t 1", "QUEUED");
        check(
            &mut raw,
            "EXEC x",
            "(error) EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        );
        check(&mut raw, "GET t", "(nil)");
        check(&mut raw, "EXEC", "(error) ERR EXEC without MULTI");
        // Nor is anything watched behind one that had none.
        check(&mut raw, "WATCH t", "OK");
        check(
            &mut raw,
            "EXEC x",
            "(error) EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        );
        check(&mut server.raw(), "SET t 1", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "EXEC", "(empty array)");
        raw.call("SUBSCRIBE c");
        let refused = raw.call("EXEC").text();
        assert!(
            refused.starts_with("EXECABORT Transaction discarded because of: Can't execute 'exec'"),
            "{refused}"
        );
    });
}
