//! MONITOR, and keyspace events as subscribers receive them.

use std::time::{Duration, Instant};

use crate::support::{self, check, eventually};
use crate::wire::Raw;

/// Returns the next line without its time and address.
fn shown(monitor: &mut Raw) -> String {
    let line = monitor.read().text();
    let (_, rest) = line.split_once(" [").expect("a time, then a place");
    let (place, words) = rest.split_once("] ").expect("a place, then words");
    let (db, _) = place.split_once(' ').expect("a database, then an address");
    format!("{db} {words}")
}

#[test]
fn a_monitor_sees_what_all_connections_run_and_no_secrets() {
    support::at_each_shard_count(|server| {
        let (mut monitor, mut client) = (server.raw(), server.raw());
        check(&mut monitor, "MONITOR", "OK");
        let id = client.call("CLIENT ID").integer();
        assert_eq!(shown(&mut monitor), "0 \"CLIENT\" \"ID\"");
        for (line, expected) in [
            ("SET k \"a b\\x01\"", vec!["0 \"SET\" \"k\" \"a b\\x01\""]),
            (
                "AUTH default secret",
                vec!["0 \"AUTH\" \"(redacted)\" \"(redacted)\""],
            ),
            (
                "HELLO 2 AUTH default secret SETNAME me",
                vec!["0 \"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\""],
            ),
            ("CONFIG SET maxmemory 0", vec![]),
            ("NOPE", vec![]),
            ("MSET a 1 b 2", vec!["0 \"MSET\" \"a\" \"1\" \"b\" \"2\""]),
            ("SELECT 3", vec!["3 \"SELECT\" \"3\""]),
            ("MULTI", vec!["3 \"MULTI\""]),
            ("INCR a", vec![]),
            ("GET b", vec![]),
            (
                "EXEC",
                vec!["3 \"INCR\" \"a\"", "3 \"GET\" \"b\"", "3 \"EXEC\""],
            ),
        ] {
            client.call(line);
            for expected in expected {
                assert_eq!(shown(&mut monitor), expected, "{line}");
            }
        }
        let list = client.call("CLIENT LIST").body();
        assert!(list.contains(" flags=O "), "{list}");
        assert!(list.contains(&format!("id={id} ")));
        check(&mut monitor, "RESET", "RESET");
        client.call("PING");
        check(&mut monitor, "ECHO quiet", "\"quiet\"");
    });
}

#[test]
fn a_monitor_sees_each_command_of_a_transaction_in_its_database() {
    support::at_each_shard_count(|server| {
        let (mut monitor, mut client) = (server.raw(), server.raw());
        check(&mut monitor, "MONITOR", "OK");
        let script = "redis.call('select', 5) return redis.call('get', 'x')";
        client.call("MULTI");
        for words in [
            &["SET", "a", "1"][..],
            &["SELECT", "1"],
            &["SET", "a", "1"],
            &["EVAL", script, "0"],
            &["SELECT", "99"],
            &["SELECT", "2"],
            &["GET", "b"],
            &["EXEC"],
        ] {
            client.command(words);
        }
        for expected in [
            "0 \"MULTI\"",
            "0 \"SET\" \"a\" \"1\"",
            "1 \"SELECT\" \"1\"",
            "1 \"SET\" \"a\" \"1\"",
            &format!("1 \"EVAL\" \"{script}\" \"0\""),
            "5 \"select\" \"5\"",
            "5 \"get\" \"x\"",
            "1 \"SELECT\" \"99\"",
            "2 \"SELECT\" \"2\"",
            "2 \"GET\" \"b\"",
            "2 \"EXEC\"",
        ] {
            assert_eq!(shown(&mut monitor), expected);
        }
    });
}

#[test]
fn a_monitor_sees_each_connection_in_its_order() {
    support::at_each_shard_count(|server| {
        let mut monitor = server.raw();
        check(&mut monitor, "MONITOR", "OK");
        std::thread::scope(|scope| {
            for writer in 0..3 {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    for number in 0..300 {
                        raw.call(&format!("SET key{} {writer}:{number}", number % 7));
                    }
                });
            }
            let mut next = [0; 3];
            for _ in 0..900 {
                let line = shown(&mut monitor);
                let value = line.rsplit('"').nth(1).expect("the value");
                let (writer, number) = value.split_once(':').expect("two numbers");
                let writer: usize = writer.parse().expect("a number");
                assert_eq!(number, next[writer].to_string());
                next[writer] += 1;
            }
        });
    });
}

fn event(raw: &mut Raw) -> String {
    let push = raw.read();
    let [.., channel, payload] = push.items() else {
        panic!("no message: {}", push.show());
    };
    format!("{} {}", channel.text(), payload.text())
}

#[test]
fn events_come_in_the_order_of_the_commands_on_any_shards() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        check(&mut client, "CONFIG SET notify-keyspace-events KEA", "OK");
        subscriber.call("PSUBSCRIBE __keyevent*");
        let lines = [
            "MSET a 1 b 2 c 3",
            "RENAME a d",
            "DEL b c nothing",
            "RPUSH l 1",
            "LPOP l",
        ];
        client.pipeline(&lines);
        for expected in [
            "set a",
            "set b",
            "set c",
            "rename_from a",
            "rename_to d",
            "del b",
            "del c",
            "rpush l",
            "lpop l",
            "del l",
        ] {
            assert_eq!(
                event(&mut subscriber),
                format!("__keyevent@0__:{}", expected)
            );
        }
        client.pipeline(&["MULTI", "SET x 1", "SET y 2", "INCR x", "EXEC"]);
        for expected in ["set x", "set y", "incrby x"] {
            assert_eq!(
                event(&mut subscriber),
                format!("__keyevent@0__:{}", expected)
            );
        }
        check(&mut client, "CONFIG SET notify-keyspace-events Kmn", "OK");
        subscriber.call("PSUBSCRIBE __keyspace*");
        client.pipeline(&["GET none", "SET n 1", "SET n 2"]);
        assert_eq!(event(&mut subscriber), "__keyspace@0__:none keymiss");
        assert_eq!(event(&mut subscriber), "__keyspace@0__:n new");
        check(&mut client, "CONFIG SET notify-keyspace-events \"\"", "OK");
        client.call("SET m 1");
        client.call("PUBLISH __keyspace@mark x");
        assert_eq!(event(&mut subscriber), "__keyspace@mark x");
    });
}

#[test]
fn messages_stand_between_the_events_of_what_was_done_before_and_behind() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        check(&mut client, "CONFIG SET notify-keyspace-events EA", "OK");
        subscriber.call("PSUBSCRIBE *");
        let script = "redis.call('set', 'e', 1) redis.call('publish', 'c', 'four')
            redis.call('set', 'f', 1) return redis.call('publish', 'c', 'five')";
        let steps: [&[&str]; 8] = [
            &["PUBLISH", "c", "one"],
            &["SET", "a", "1"],
            &["PUBLISH", "c", "two"],
            &["MSET", "b", "1", "d", "1"],
            &["PUBLISH", "c", "three"],
            &["EVAL", script, "0"],
            &["DEL", "a", "b"],
            &["PUBLISH", "c", "six"],
        ];
        let heard = |subscriber: &mut Raw, expected: &[&str]| {
            for expected in expected {
                let event = event(subscriber);
                assert_eq!(event.trim_start_matches("__keyevent@0__:"), *expected);
            }
        };
        let ends = ["c four", "set f", "c five"];
        // Without a script it runs otherwise.
        for skipped in [5, 8] {
            client.call("MULTI");
            let steps = steps.iter().enumerate();
            let steps: Vec<_> = steps.filter(|(at, _)| *at != skipped).collect();
            for (_, words) in &steps {
                assert_eq!(client.command(words).text(), "QUEUED");
            }
            let reply = client.call("EXEC");
            for ((_, words), reply) in steps.iter().zip(reply.items()) {
                if words[0] == "PUBLISH" {
                    assert_eq!(reply.integer(), 1);
                }
            }
            // Nothing that follows overtakes it.
            client.call("PUBLISH c seven");
            heard(
                &mut subscriber,
                &["c one", "set a", "c two", "set b", "set d", "c three"],
            );
            if skipped != 5 {
                heard(&mut subscriber, &["set e"]);
                heard(&mut subscriber, &ends);
            }
            heard(&mut subscriber, &["del a", "del b", "c six", "c seven"]);
        }
        assert_eq!(client.command(&["EVAL", script, "0"]).integer(), 1);
        heard(&mut subscriber, &["set e"]);
        heard(&mut subscriber, &ends);
    });
}

/// Clients that publish between changes on the same shards receive every client's messages in order.
#[test]
fn messages_of_racing_transactions_keep_the_order_of_each() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        check(&mut client, "CONFIG SET notify-keyspace-events E$", "OK");
        subscriber.call("PSUBSCRIBE *");
        const ROUNDS: usize = 60;
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    for round in 0..ROUNDS {
                        let (first, second) = (2 * round, 2 * round + 1);
                        raw.pipeline(&[
                            "MULTI",
                            &format!("SET w{writer} {round}"),
                            &format!("PUBLISH from{writer} {first}"),
                            "INCR shared",
                            "EXEC",
                            &format!("PUBLISH from{writer} {second}"),
                            "INCR other",
                        ]);
                    }
                });
            }
            let mut next = [0; 4];
            let mut incremented = 0;
            while incremented < 4 * 2 * ROUNDS || next.iter().sum::<usize>() < 4 * 2 * ROUNDS {
                let event = event(&mut subscriber);
                if event.starts_with("__keyevent@0__:incrby") {
                    incremented += 1;
                } else if let Some(message) = event.strip_prefix("from") {
                    let (writer, number) = message.split_once(' ').expect("two words");
                    let writer: usize = writer.parse().expect("a number");
                    assert_eq!(number, next[writer].to_string());
                    next[writer] += 1;
                }
            }
        });
    });
}

#[test]
fn keys_that_nobody_touches_are_reported_when_they_expire() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        check(&mut client, "CONFIG SET notify-keyspace-events Ex", "OK");
        subscriber.call("SUBSCRIBE __keyevent@0__:expired");
        let started = Instant::now();
        let lines: Vec<String> = (0..50)
            .map(|number| format!("SET k{number} v PX 60"))
            .collect();
        client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let mut seen: Vec<String> = (0..50).map(|_| event(&mut subscriber)).collect();
        // Deadlines are whole milliseconds, of another clock.
        assert!(started.elapsed() >= Duration::from_millis(50));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 50);
        eventually("empty", || client.call("DBSIZE").integer() == 0);
    });
}

#[test]
fn events_of_a_key_keep_their_order_under_contention() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        check(&mut client, "CONFIG SET notify-keyspace-events K$g", "OK");
        subscriber.call("PSUBSCRIBE __keyspace@0__:*");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut raw = server.raw();
                    for _ in 0..20 {
                        // On one key, set and del can only alternate.
                        raw.pipeline(&[
                            "SET k v NX",
                            "DEL k",
                            "MSET a 1 b 2 k2 3",
                            "SET k v NX",
                            "DEL k",
                        ]);
                    }
                });
            }
        });
        client.call("PUBLISH __keyspace@0__:mark x");
        let mut is_there = false;
        loop {
            let event = event(&mut subscriber);
            if event.ends_with(":mark x") {
                break;
            }
            if let Some(name) = event.strip_prefix("__keyspace@0__:k ") {
                assert_eq!(name, if is_there { "del" } else { "set" });
                is_there = !is_there;
            }
        }
    });
}
