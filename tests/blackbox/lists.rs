//! Lists as queues with many waiting clients: no element is lost or duplicated, clients are served in order
//! of arrival, and every way in which a wait can end.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::support::{self, blocked, check, eventually};
use crate::wire::{Raw, encode};

fn popped(raw: &mut Raw) -> (String, String) {
    let reply = raw.read();
    let items = reply.items();
    (items[0].text(), items[1].text())
}

#[test]
fn a_hundred_consumers_of_queues_on_many_shards_lose_and_double_nothing() {
    const QUEUES: usize = 16;
    const CONSUMERS: usize = 100;
    const PRODUCERS: usize = 8;
    const ITEMS_EACH: usize = 500;
    support::at_each_shard_count(|server| {
        let port = server.port;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    let command = ["BLPOP", "BRPOP", "BLMPOP"][number % 3];
                    let stop = format!("stop:{number}");
                    let queues = [
                        format!("queue:{}", number % QUEUES),
                        format!("queue:{}", (number * 7 + 3) % QUEUES),
                        format!("queue:{}", (number * 5 + 11) % QUEUES),
                    ];
                    let [a, b, c] = &queues;
                    let request = if command == "BLMPOP" {
                        encode(&[command, "0", "4", a, b, c, &stop, "LEFT", "COUNT", "3"])
                    } else {
                        encode(&[command, a, b, c, &stop, "0"])
                    };
                    let mut got: Vec<String> = Vec::new();
                    let mut last: HashMap<String, usize> = HashMap::new();
                    loop {
                        raw.send(&request);
                        let reply = raw.read();
                        let items = reply.items();
                        let key = items[0].text();
                        if key == stop {
                            return got;
                        }
                        let values = match command {
                            "BLMPOP" => items[1].items().iter().map(|item| item.text()).collect(),
                            _ => vec![items[1].text()],
                        };
                        for value in values {
                            // A queue delivers one producer's values in order, except to consumers that take
                            // from the back.
                            let (producer, count) = value.split_once(':').expect("as produced");
                            let count: usize = count.parse().expect("as produced");
                            let before = last.insert(format!("{key} {producer}"), count);
                            if command != "BRPOP" {
                                assert!(before.is_none_or(|before| before < count), "{value}");
                            }
                            got.push(value);
                        }
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    for number in 0..ITEMS_EACH {
                        let queue = format!("queue:{}", (number * 3 + producer) % QUEUES);
                        let value = format!("{producer}:{number}");
                        raw.command(&["RPUSH", &queue, &value]).integer();
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().expect("no producer fails");
        }
        let mut raw = server.raw();
        for queue in 0..QUEUES {
            eventually("all taken", || {
                raw.call(&format!("LLEN queue:{queue}")).integer() == 0
            });
        }
        for number in 0..CONSUMERS {
            raw.command(&["RPUSH", &format!("stop:{number}"), "now"]);
        }
        let mut seen = HashSet::new();
        for consumer in consumers {
            for value in consumer.join().expect("no consumer fails") {
                assert!(seen.insert(value.clone()), "{value} was given out twice");
            }
        }
        assert_eq!(seen.len(), PRODUCERS * ITEMS_EACH);
        check(&mut raw, "DBSIZE", "(integer) 0");
    });
}

#[test]
fn who_waits_first_is_served_first() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut clients: Vec<Raw> = (0..6)
            .map(|number| {
                let line = match number % 3 {
                    0 => "BLPOP k 0",
                    1 => "BRPOP elsewhere k 0",
                    _ => "BLMPOP 0 2 k elsewhere RIGHT",
                };
                blocked(server, &mut other, line)
            })
            .collect();
        for (number, client) in clients.iter_mut().enumerate().take(4) {
            check(&mut other, &format!("RPUSH k v{number}"), "(integer) 1");
            let shown = client.read().show();
            assert!(shown.contains(&format!("v{number}")), "{shown}");
        }
        // Several elements at once: the first waiter in line is served first, and no element stays while a
        // client waits.
        check(&mut other, "RPUSH k a b c", "(integer) 3");
        assert_eq!(popped(&mut clients[4]), ("k".to_owned(), "c".to_owned()));
        assert_eq!(clients[5].read().show(), "1) \"k\"\n2) 1) \"b\"");
        check(&mut other, "LRANGE k 0 -1", "1) \"a\"");
    });
}

#[test]
fn a_wait_ends_with_its_time() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for line in [
            "BLPOP a 0.12",
            "BRPOP a b c d e f 0.12",
            "BLMPOP 0.12 3 a b c LEFT",
            "BLMOVE a b LEFT RIGHT 0.12",
            "BRPOPLPUSH a b 0.12",
        ] {
            let started = Instant::now();
            raw.send(format!("{line}\r\n").as_bytes());
            assert_eq!(
                String::from_utf8_lossy(&read_line(&mut raw)),
                "*-1",
                "{line}"
            );
            assert!(started.elapsed() >= Duration::from_millis(120), "{line}");
        }
        check(&mut raw, "RPUSH a 1", "(integer) 1");
        check(&mut raw, "LLEN a", "(integer) 1");
    });
}

/// Reads one line as it comes over the wire; the kinds of null can be told apart only there.
fn read_line(raw: &mut Raw) -> Vec<u8> {
    use std::io::Read;
    let mut line = Vec::new();
    let mut stream = raw.stream();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("a line");
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    line
}

#[test]
fn a_wait_is_ended_by_unblock_and_leaves_nothing_behind() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for (how, reply) in [
            ("", "(nil array)"),
            (" TIMEOUT", "(nil array)"),
            (
                " ERROR",
                "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            let mut raw = server.raw();
            let id = raw.call("CLIENT ID").integer();
            raw.send(b"BLPOP a b c 0\r\nPING\r\n");
            eventually("blocked", || {
                other.call(&format!("CLIENT UNBLOCK {id}{how}")).integer() == 1
            });
            assert_eq!(raw.read().show(), reply);
            assert_eq!(raw.read().show(), "PONG");
            check(&mut other, "RPUSH a 1", "(integer) 1");
            check(&mut other, "LPOP a", "\"1\"");
        }
    });
}

#[test]
fn who_goes_away_while_waiting_takes_nothing_along() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for line in ["BLPOP a b 0", "BLMOVE a b LEFT LEFT 0"] {
            let gone = blocked(server, &mut other, line);
            let mut stays = blocked(server, &mut other, "BRPOP a 0");
            drop(gone);
            eventually("gone", || {
                let list = other.call("CLIENT LIST").body();
                list.matches(" flags=b ").count() == 1
            });
            check(&mut other, "RPUSH a 1 2", "(integer) 2");
            assert_eq!(popped(&mut stays).1, "2");
            check(&mut other, "LPOP a", "\"1\"");
            check(&mut other, "EXISTS a b", "(integer) 0");
        }
    });
}

#[test]
fn a_waiting_move_takes_place_with_both_lists_in_hand() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for number in 0..20 {
            let (from, to) = (format!("from:{number}"), format!("to:{number}"));
            let mut raw = blocked(
                server,
                &mut other,
                &format!("BLMOVE {from} {to} LEFT RIGHT 0"),
            );
            let mut next = blocked(
                server,
                &mut other,
                &format!("BRPOPLPUSH {to} end:{number} 0"),
            );
            check(&mut other, &format!("RPUSH {from} x"), "(integer) 1");
            assert_eq!(raw.read().show(), "\"x\"");
            assert_eq!(next.read().show(), "\"x\"");
            check(&mut other, &format!("EXISTS {from} {to}"), "(integer) 0");
            check(&mut other, &format!("LRANGE end:{number} 0 -1"), "1) \"x\"");
        }
        // A target of another type is an error when it is met, and the element stays where it is.
        let mut raw = blocked(server, &mut other, "BLMOVE a b LEFT LEFT 0");
        check(&mut other, "SET b text", "OK");
        check(&mut other, "RPUSH a 1", "(integer) 1");
        assert!(raw.read().show().starts_with("(error) WRONGTYPE"));
        check(&mut other, "LRANGE a 0 -1", "1) \"1\"");
    });
}

#[test]
fn a_waiting_move_goes_before_what_the_pusher_asks_next() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for number in 0..50 {
            let (from, to) = (format!("from:{number}"), format!("to:{number}"));
            let mut raw = blocked(
                server,
                &mut other,
                &format!("BLMOVE {from} {to} LEFT RIGHT 0"),
            );
            let look = [format!("LPOP {from}"), format!("DEL {from}")][number % 2].clone();
            let requests = match number % 3 {
                0 => vec![format!("RPUSH {from} x"), look, format!("LRANGE {to} 0 -1")],
                1 => vec![
                    "MULTI".to_owned(),
                    format!("RPUSH {from} x"),
                    "EXEC".to_owned(),
                    look,
                    format!("LRANGE {to} 0 -1"),
                ],
                _ => vec![
                    format!("EVAL \"return redis.call('RPUSH', KEYS[1], 'x')\" 1 {from}"),
                    look,
                    format!("LRANGE {to} 0 -1"),
                ],
            };
            let lines: Vec<&str> = requests.iter().map(String::as_str).collect();
            let replies = other.pipeline(&lines);
            let [.., looked, moved] = replies.as_slice() else {
                unreachable!("each has several replies")
            };
            let nothing = ["(nil)", "(integer) 0"][number % 2];
            assert_eq!(looked.show(), nothing, "{requests:?}");
            assert_eq!(moved.show(), "1) \"x\"", "{requests:?}");
            assert_eq!(raw.read().show(), "\"x\"");
            // The client no longer counts as waiting.
            let id = raw.call("CLIENT ID").integer();
            let list = other.call(&format!("CLIENT LIST ID {id}")).body();
            assert!(list.contains(" flags=N "), "{list}");
            let clients = other.call("INFO clients").body();
            assert!(clients.contains("blocked_clients:0"), "{clients}");
        }
    });
}

#[test]
fn many_moves_into_one_list_wait_side_by_side() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut movers: Vec<Raw> = (0..12)
            .map(|number| {
                let line = match number % 2 {
                    0 => format!("BLMOVE from:{number} to LEFT RIGHT 0"),
                    _ => format!("BRPOPLPUSH from:{number} to 0"),
                };
                blocked(server, &mut other, &line)
            })
            .collect();
        // Elements of the target list do not end the wait.
        check(&mut other, "RPUSH to x", "(integer) 1");
        for (number, mover) in movers.iter_mut().enumerate() {
            check(
                &mut other,
                &format!("RPUSH from:{number} {number}"),
                "(integer) 1",
            );
            assert_eq!(mover.read().show(), format!("\"{number}\""));
        }
        check(&mut other, "LLEN to", "(integer) 13");
        check(&mut other, "DBSIZE", "(integer) 1");
    });
}

#[test]
fn one_who_waits_and_does_not_read_holds_nobody_up() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        other.command(&["SET", "big", &"x".repeat(1_000_000)]);
        let mut lazy = server.raw();
        let id = lazy.call("CLIENT ID").integer();
        let is_blocked = |other: &mut Raw| {
            let list = other.call(&format!("CLIENT LIST ID {id}")).body();
            list.contains(" flags=b ")
        };
        // More than the sockets can buffer, and less than the amount of output at which the connection stops
        // running.
        lazy.send("GET big\r\n".repeat(8).as_bytes());
        lazy.send(b"BLMOVE k d LEFT LEFT 0\r\nBLMOVE k d LEFT LEFT 0.05\r\n");
        eventually("blocked", || is_blocked(&mut other));
        let mut next = blocked(server, &mut other, "BLPOP k 0");
        check(&mut other, "RPUSH k 1 2", "(integer) 2");
        assert_eq!(popped(&mut next), ("k".to_owned(), "2".to_owned()));
        check(&mut other, "LRANGE d 0 -1", "1) \"1\"");
        for _ in 0..8 {
            assert_eq!(lazy.read().body().len(), 1_000_000);
        }
        assert_eq!(lazy.read().show(), "\"1\"");
        assert_eq!(lazy.read().show(), "(nil array)");
        // A client whose timeout has passed takes nothing, even if its reply has not been sent yet.
        lazy.send("GET big\r\n".repeat(8).as_bytes());
        lazy.send(b"BLPOP k 0.05\r\n");
        eventually("blocked", || is_blocked(&mut other));
        eventually("not blocked", || !is_blocked(&mut other));
        check(&mut other, "RPUSH k 3", "(integer) 1");
        check(&mut other, "LRANGE k 0 -1", "1) \"3\"");
    });
}

#[test]
fn moves_between_lists_on_several_shards_are_seen_whole_by_everybody() {
    const LISTS: usize = 8;
    const ELEMENTS: usize = 100;
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for number in 0..ELEMENTS {
            raw.command(&["RPUSH", "list:0", &number.to_string()]);
        }
        let port = server.port;
        let movers: Vec<_> = (0..8)
            .map(|mover| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    for round in 0..300 {
                        let from = format!("list:{}", (mover + round) % LISTS);
                        let to = format!("list:{}", (mover * 3 + round * 5 + 1) % LISTS);
                        let (a, b) = [("LEFT", "RIGHT"), ("RIGHT", "LEFT")][round % 2];
                        match round % 3 {
                            0 => raw.command(&["LMOVE", &from, &to, a, b]),
                            1 => raw.command(&["BLMOVE", &from, &to, a, b, "0.002"]),
                            _ => raw.command(&["RPOPLPUSH", &from, &to]),
                        };
                    }
                })
            })
            .collect();
        let is_over = || movers.iter().all(std::thread::JoinHandle::is_finished);
        while !is_over() {
            raw.call("MULTI");
            for list in 0..LISTS {
                raw.call(&format!("LLEN list:{list}"));
            }
            let lengths = raw.call("EXEC");
            let sum: i64 = lengths.items().iter().map(|item| item.integer()).sum();
            assert_eq!(
                sum, ELEMENTS as i64,
                "an element is in neither list or in both"
            );
        }
        for mover in movers {
            mover.join().expect("no mover fails");
        }
        let mut all = Vec::new();
        for list in 0..LISTS {
            let reply = raw.call(&format!("LRANGE list:{list} 0 -1"));
            all.extend(reply.items().iter().map(|item| item.text()));
        }
        all.sort_by_key(|text| text.parse::<usize>().expect("a number"));
        let expected: Vec<String> = (0..ELEMENTS).map(|number| number.to_string()).collect();
        assert_eq!(all, expected);
    });
}

#[test]
fn whatever_makes_the_key_a_list_serves_those_who_wait() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for (prepare, trigger) in [
            ("PING", "LPUSH k v"),
            ("RPUSH other v", "RENAME other k"),
            ("RPUSH other v", "COPY other k"),
            ("RPUSH other v", "LMOVE other k LEFT LEFT"),
            ("RPUSH other v", "RPOPLPUSH other k"),
        ] {
            other.call("FLUSHALL");
            other.call(prepare);
            let mut raw = blocked(server, &mut other, "BLPOP k 0");
            other.call(trigger);
            assert_eq!(popped(&mut raw).1, "v", "{trigger}");
            check(&mut other, "EXISTS k", "(integer) 0");
        }
        // Another type, or the key's end, is nothing to it.
        let mut raw = blocked(server, &mut other, "BLPOP k 0");
        check(&mut other, "SET k text", "OK");
        check(&mut other, "DEL k", "(integer) 1");
        check(&mut other, "LPUSHX k v", "(integer) 0");
        check(&mut other, "RPUSH k v", "(integer) 1");
        assert_eq!(popped(&mut raw), ("k".to_owned(), "v".to_owned()));
        // A key of another database is another key.
        let mut raw = blocked(server, &mut other, "BLPOP k 0");
        other.call("SELECT 1");
        check(&mut other, "RPUSH k v", "(integer) 1");
        check(&mut other, "MOVE k 0", "(integer) 1");
        assert_eq!(popped(&mut raw).1, "v");
        other.call("SELECT 0");
    });
}

#[test]
fn what_is_sent_behind_a_waiting_pop_is_answered_behind_it() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut raw = server.raw();
        raw.send(b"PING\r\nBLPOP k 0\r\nSET s 1\r\nBLPOP k 0\r\nGET s\r\n");
        assert_eq!(raw.read().show(), "PONG");
        check(&mut other, "RPUSH k a", "(integer) 1");
        assert_eq!(popped(&mut raw).1, "a");
        assert_eq!(raw.read().show(), "OK");
        check(&mut other, "RPUSH k b", "(integer) 1");
        assert_eq!(popped(&mut raw).1, "b");
        assert_eq!(raw.read().show(), "\"1\"");
    });
}
