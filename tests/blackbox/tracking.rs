//! Client-side caching: which clients are notified that a key changed, and when; and that no caching client
//! keeps an old value.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::support::{self, Draw, Options, Server, check, eventually};
use crate::wire::{Raw, Value};

/// Returns a push as a line: its words, and the keys in it.
fn push(raw: &mut Raw) -> String {
    raw.read().words()
}

/// Returns the value of a field of INFO.
fn figure(raw: &mut Raw, name: &str) -> u64 {
    support::info_number(raw, "default", name) as u64
}

#[test]
fn a_change_is_told_once_to_each_who_read_the_key() {
    support::at_each_shard_count(|server| {
        let (mut one, mut two, mut writer) = (server.raw3(), server.raw3(), server.raw());
        for raw in [&mut one, &mut two] {
            check(raw, "CLIENT TRACKING ON", "OK");
            raw.call("MGET a b c");
        }
        check(&mut writer, "SET a 1", "OK");
        check(&mut writer, "SET a 2", "OK");
        check(&mut writer, "MSET x 1 c 1", "OK");
        for raw in [&mut one, &mut two] {
            assert_eq!(push(raw), "invalidate a");
            assert_eq!(push(raw), "invalidate c");
            check(raw, "PING", "PONG");
        }
        assert_eq!(figure(&mut writer, "tracking_total_keys"), 1);
        assert_eq!(figure(&mut writer, "tracking_total_items"), 2);
        assert_eq!(figure(&mut writer, "tracking_clients"), 2);
        // In another database it is the same name.
        writer.pipeline(&["SELECT 1", "SET b 1"]);
        assert_eq!(push(&mut one), "invalidate b");
        drop((one, two));
        eventually("forgotten", || figure(&mut writer, "tracking_clients") == 0);
    });
}

#[test]
fn what_is_flushed_expires_or_moves_is_told() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut writer) = (server.raw3(), server.raw());
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        for (prepare, change, told) in [
            ("SET k 1", "FLUSHDB", "invalidate (nil)"),
            ("SET k 1", "FLUSHALL", "invalidate (nil)"),
            ("SET k 1", "SWAPDB 0 5", "invalidate (nil)"),
            ("SET k 1", "PEXPIRE k 1", "invalidate k"),
            ("SET k 1 PX LIFE", "PING", "invalidate k"),
            ("SET k 1", "RENAME k l", "invalidate k"),
            ("SET l 1", "COPY l k REPLACE", "invalidate k"),
            ("HSET h f 1", "HDEL h f", "invalidate h"),
            ("LPUSH h f", "LPOP h", "invalidate h"),
            ("SET k 1", "MOVE k 3", "invalidate k"),
        ] {
            // A key that is to expire by itself must not have done so when it is read, however slow the
            // machine is.
            let mut life_ms = 30;
            loop {
                writer.call(&prepare.replace("LIFE", &life_ms.to_string()));
                let is_there = raw.pipeline(&["EXISTS h", "EXISTS k"])[1].integer() == 1;
                if is_there || !prepare.contains("LIFE") {
                    break;
                }
                life_ms *= 2;
                raw.call("CLIENT TRACKING OFF");
                writer.call("FLUSHALL");
                raw.call("CLIENT TRACKING ON");
            }
            writer.call(change);
            assert_eq!(push(&mut raw), told, "{change}");
            check(&mut raw, "PING", "PONG");
            writer.call("DEL h");
            raw.call("CLIENT TRACKING OFF");
            writer.call("FLUSHALL");
            raw.call("CLIENT TRACKING ON");
        }
    });
}

#[test]
fn what_readers_of_a_stream_leave_is_told_to_nobody_and_a_count_that_is_noted_is() {
    const CHANGES: &[(&str, &str, Option<&str>)] = &[
        ("XRANGE x - +", "XGROUP CREATE x g 0", None),
        (
            "XRANGE x - +",
            "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
            None,
        ),
        ("XRANGE x - +", "XCLAIM x g d 0 1-1", None),
        ("XRANGE x - +", "XAUTOCLAIM x g e 0 0", None),
        ("XRANGE x - +", "XACK x g 1-1", None),
        ("XRANGE x - +", "XGROUP SETID x g 0", None),
        ("XRANGE x - +", "XSETID x 9-9", None),
        ("XRANGE x - +", "XGROUP DESTROY x g", None),
        ("XRANGE x - +", "XDEL x 1-1", Some("invalidate x")),
        ("GET p", "PFCOUNT p", Some("invalidate p")),
        ("GET p", "PFCOUNT p", None),
    ];
    support::at_each_shard_count(|server| {
        let (mut raw, mut writer) = (server.raw3(), server.raw());
        writer.pipeline(&["XADD x 1-1 f v", "XADD x 2-1 f v", "PFADD p a b"]);
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        for (read, change, told) in CHANGES {
            raw.call(read);
            let reply = writer.call(change);
            assert!(!reply.is_error(), "{change}: {}", reply.show());
            match told {
                Some(told) => assert_eq!(push(&mut raw), *told, "{change}"),
                None => check(&mut raw, "PING", "PONG"),
            }
        }
        writer.call("PFADD p c");
        assert_eq!(push(&mut raw), "invalidate p");
        check(&mut raw, "WATCH p", "OK");
        check(&mut writer, "PFCOUNT p", "(integer) 3");
        raw.pipeline(&["MULTI", "PING"]);
        check(&mut raw, "EXEC", "(null)");
    });
}

#[test]
fn in_resp2_another_connection_is_told() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut target, mut writer) = (server.raw(), server.raw(), server.raw());
        let id = target.call("CLIENT ID").integer();
        check(&mut raw, &format!("CLIENT TRACKING ON REDIRECT {id}"), "OK");
        raw.call("GET lost");
        check(&mut writer, "SET lost 1", "OK");
        target.call("SUBSCRIBE __redis__:invalidate");
        raw.call("GET k");
        check(&mut writer, "SET k 1", "OK");
        assert_eq!(push(&mut target), "message __redis__:invalidate k");
        check(&mut writer, "FLUSHALL", "OK");
        assert_eq!(push(&mut target), "message __redis__:invalidate (nil)");
        let line = writer.call("CLIENT LIST").body();
        assert!(line.contains(&format!("redir={id} ")), "{line}");
        // The client to be notified is gone.
        raw.call("HELLO 3");
        raw.call("GET k");
        target.call("QUIT");
        check(&mut writer, "SET k 2", "OK");
        assert_eq!(push(&mut raw), format!("tracking-redir-broken {id}"));
        let info = raw.call("CLIENT TRACKINGINFO").show();
        assert!(info.contains("broken_redirect"), "{info}");
        assert!(writer.call("CLIENT LIST").body().contains(" flags=tR "));
    });
}

#[test]
fn prefixes_hear_of_each_transaction_in_one_push() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut quiet, mut writer) = (server.raw3(), server.raw3(), server.raw());
        check(
            &mut raw,
            "CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:",
            "OK",
        );
        check(&mut quiet, "CLIENT TRACKING ON BCAST NOLOOP", "OK");
        assert_eq!(figure(&mut writer, "tracking_total_prefixes"), 3);
        writer.pipeline(&[
            "MULTI",
            "SET a:2 1",
            "SET b:1 1",
            "SET a:1 1",
            "INCR a:2",
            "SET c 1",
        ]);
        writer.call("EXEC");
        assert_eq!(push(&mut raw), "invalidate a:1 a:2");
        assert_eq!(push(&mut raw), "invalidate b:1");
        assert_eq!(push(&mut quiet), "invalidate a:1 a:2 b:1 c");
        check(&mut quiet, "SET a:3 1", "OK");
        check(&mut quiet, "PING", "PONG");
        assert_eq!(push(&mut raw), "invalidate a:3");
        check(&mut quiet, "RESET", "RESET");
        drop(raw);
        eventually("forgotten", || {
            figure(&mut writer, "tracking_total_prefixes") == 0
        });
    });
}

#[test]
fn caching_speaks_of_the_next_command_or_transaction_only() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut writer) = (server.raw3(), server.raw());
        check(&mut raw, "CLIENT TRACKING ON OPTIN", "OK");
        for lines in [
            &["GET a", "CLIENT CACHING yes", "GET b", "GET c"][..],
            &["CLIENT CACHING yes", "CLIENT ID", "MGET b", "GET c"],
            &["CLIENT CACHING yes", "MULTI", "GET b", "EXEC", "GET c"],
            &["CLIENT CACHING yes", "GET b", "MULTI", "GET c", "EXEC"],
        ] {
            raw.pipeline(lines);
            writer.pipeline(&["SET a 1", "SET c 1", "SET b 1"]);
            assert_eq!(push(&mut raw), "invalidate b", "{lines:?}");
            check(&mut raw, "PING", "PONG");
        }
        raw.pipeline(&["CLIENT TRACKING OFF", "CLIENT TRACKING ON OPTOUT"]);
        raw.pipeline(&["CLIENT CACHING no", "GET a", "GET b"]);
        writer.pipeline(&["SET a 1", "SET b 1"]);
        assert_eq!(push(&mut raw), "invalidate b");
    });
}

#[test]
fn the_table_keeps_to_its_bound() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut writer) = (server.raw3(), server.raw());
        let lines: Vec<String> = (0..300).map(|number| format!("GET key:{number}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        raw.pipeline(&lines);
        assert_eq!(figure(&mut writer, "tracking_total_keys"), 300);
        check(&mut writer, "CONFIG SET tracking-table-max-keys 7", "OK");
        for _ in 0..293 {
            assert!(push(&mut raw).starts_with("invalidate key:"));
        }
        check(&mut raw, "PING", "PONG");
        if support::is_stand_in() {
            return;
        }
        // Further reads evict other keys, whose readers are notified.
        let mut told = 0;
        for line in &lines {
            raw.send(&crate::wire::encode(&crate::wire::split(line)));
            while let Value::Push(_) = raw.read() {
                told += 1;
            }
        }
        while told < 293 {
            assert!(push(&mut raw).starts_with("invalidate key:"));
            told += 1;
        }
        assert!(figure(&mut writer, "tracking_total_keys") <= 7);
    });
}

#[test]
fn a_served_request_gets_its_reply_before_the_change_that_came_of_it() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut writer) = (server.raw3(), server.raw());
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        for _ in 0..50 {
            raw.call("LRANGE to 0 -1");
            raw.call("XLEN s");
            raw.send(b"BLMOVE from to LEFT LEFT 0\r\n");
            eventually("blocked", || {
                writer
                    .call("INFO clients")
                    .body()
                    .contains("blocked_clients:1")
            });
            // While it is blocked it is notified at once.
            writer.call("XADD s * f v");
            assert_eq!(push(&mut raw), "invalidate s");
            check(&mut writer, "RPUSH from v", "(integer) 1");
            assert_eq!(raw.read().text(), "v");
            assert_eq!(push(&mut raw), "invalidate to");
        }
    });
}

#[test]
fn no_message_of_a_transaction_overtakes_what_it_made_void() {
    support::at_each_shard_count(|server| {
        for (options, events) in [("", ""), ("BCAST PREFIX key", ""), ("", "KEA")] {
            let (mut reader, mut writer) = (server.raw3(), server.raw());
            writer.call(&format!("CONFIG SET notify-keyspace-events \"{events}\""));
            check(&mut reader, &format!("CLIENT TRACKING ON {options}"), "OK");
            reader.call("SUBSCRIBE news");
            if !events.is_empty() {
                reader.call("SUBSCRIBE __keyevent@0__:set");
            }
            for line in ["PING", "EVAL \"return redis.call('get', KEYS[1])\" 1 other"] {
                reader.pipeline(&["GET key:1", "GET key:2"]);
                writer.pipeline(&[
                    "MULTI",
                    "SET key:1 1",
                    "PUBLISH news one",
                    line,
                    "SET key:2 2",
                    "PUBLISH news two",
                ]);
                assert_eq!(writer.call("EXEC").items().len(), 5);
                let expected: &[&str] = match (options, events) {
                    ("", "") => &[
                        "invalidate key:1",
                        "message news one",
                        "invalidate key:2",
                        "message news two",
                    ],
                    // All of them in one push.
                    (_, "") => &[
                        "invalidate key:1 key:2",
                        "message news one",
                        "message news two",
                    ],
                    _ => &[
                        "invalidate key:1",
                        "message __keyevent@0__:set key:1",
                        "message news one",
                        "invalidate key:2",
                        "message __keyevent@0__:set key:2",
                        "message news two",
                    ],
                };
                let told: Vec<String> = expected.iter().map(|_| push(&mut reader)).collect();
                assert_eq!(told, expected, "{line}");
            }
            check(&mut reader, "PING", "PONG");
        }
    });
}

#[test]
fn in_a_pipeline_a_push_stands_behind_the_reply_of_the_request_that_brought_it_about() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw3();
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        raw.send(b"GET a\r\nSET a 1\r\nGET a\r\nPING\r\nMULTI\r\nINCR a\r\nGET b\r\nEXEC\r\nGET a\r\nFLUSHALL\r\nPING\r\n");
        let told: Vec<String> = (0..14).map(|_| push(&mut raw)).collect();
        let expected = [
            "(nil)",
            "OK",
            "invalidate a",
            "1",
            "PONG",
            "OK",
            "QUEUED",
            "QUEUED",
            "2 (nil)",
            "invalidate a",
            "2",
            "OK",
            "invalidate (nil)",
            "PONG",
        ];
        assert_eq!(told, expected);
        raw.send(b"CLIENT REPLY SKIP\r\nGET a\r\nSET a 1\r\nPING\r\n");
        let told: Vec<String> = (0..3).map(|_| push(&mut raw)).collect();
        assert_eq!(told, ["OK", "invalidate a", "PONG"]);
    });
}

#[test]
fn what_one_command_evicts_of_other_shards_is_told_before_the_next_reply() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw3();
        check(&mut raw, "CLIENT TRACKING ON", "OK");
        for round in 0..5 {
            let limit = figure(&mut raw, "used_memory") + 100 * 1024;
            check(
                &mut raw,
                &format!("CONFIG SET maxmemory {limit} maxmemory-policy volatile-random"),
                "OK",
            );
            check(&mut raw, "SETEX volatile 10000 x", "OK");
            raw.call("GET volatile");
            check(
                &mut raw,
                &format!("SETBIT big{round} 1600000 0"),
                "(integer) 0",
            );
            assert_eq!(push(&mut raw), "invalidate volatile");
            check(&mut raw, "CONFIG SET maxmemory 0", "OK");
        }
    });
}

/// Knowledge of a caching connection: the keys that it read and was not told to drop.
struct Cache {
    raw: Raw,
    known: HashMap<String, String>,
    told: usize,
}

impl Cache {
    fn new(server: &Server, options: &str) -> Cache {
        let mut raw = server.raw3();
        check(&mut raw, &format!("CLIENT TRACKING ON {options}"), "OK");
        Cache {
            raw,
            known: HashMap::new(),
            told: 0,
        }
    }

    /// Returns the next reply; keys invalidated before it are dropped.
    fn reply(&mut self) -> Value {
        loop {
            match self.raw.read() {
                Value::Push(items) => {
                    assert_eq!(items[0].text(), "invalidate");
                    self.told += 1;
                    match &items[1] {
                        Value::Array(keys) => {
                            for key in keys {
                                self.known.remove(&key.text());
                            }
                        }
                        _ => self.known.clear(),
                    }
                }
                reply => return reply,
            }
        }
    }

    fn learn(&mut self, keys: &[String], values: &[Value]) {
        for (key, value) in keys.iter().zip(values) {
            let value = if value.is_nil() {
                String::new()
            } else {
                value.text()
            };
            self.known.insert(key.clone(), value);
        }
    }

    /// Reads some keys in one of the ways that there are.
    fn read(&mut self, draw: &mut Draw, keys: &[String]) {
        let spoken = keys.join(" ");
        match draw.below(4) {
            0 => {
                self.raw.send(format!("MGET {spoken}\r\n").as_bytes());
                let reply = self.reply();
                self.learn(keys, reply.items());
            }
            1 => {
                let mut lines = String::from("MULTI\r\n");
                for key in keys {
                    lines += &format!("GET {key}\r\n");
                }
                self.raw.send((lines + "EXEC\r\n").as_bytes());
                for _ in 0..=keys.len() {
                    self.reply();
                }
                let reply = self.reply();
                self.learn(keys, reply.items());
            }
            _ => {
                let lines: String = keys.iter().map(|key| format!("GET {key}\r\n")).collect();
                self.raw.send(lines.as_bytes());
                for key in keys {
                    let reply = self.reply();
                    self.learn(std::slice::from_ref(key), &[reply]);
                }
            }
        }
    }

    /// Reads all notifications sent so far.
    fn catch_up(&mut self) {
        for _ in 0..2 {
            self.raw.send(b"PING\r\n");
            assert_eq!(self.reply().text(), "PONG");
        }
    }
}

const KEYS: usize = 6;

fn some_keys(draw: &mut Draw) -> Vec<String> {
    let count = 1 + draw.below(3);
    (0..count)
        .map(|_| format!("k{}", draw.below(KEYS)))
        .collect()
}

/// Writers and readers race; whenever the writers pause, no caching client has a wrong value.
#[test]
fn nobody_is_left_with_an_old_value() {
    support::at_each_shard_count(|server| {
        let number = AtomicU64::new(0);
        let mut told = [0; 4];
        for round in 0..25 {
            let mut caches = [
                Cache::new(server, ""),
                Cache::new(server, "NOLOOP"),
                Cache::new(server, "BCAST"),
                Cache::new(server, "BCAST PREFIX k"),
            ];
            let number = &number;
            std::thread::scope(|scope| {
                for writer in 0..2 {
                    scope.spawn(move || {
                        let mut draw = Draw::new(round * 7 + writer);
                        let mut raw = server.raw();
                        for _ in 0..60 {
                            let keys = some_keys(&mut draw);
                            let next = || number.fetch_add(1, SeqCst);
                            let pairs: Vec<String> =
                                keys.iter().map(|key| format!("{key} {}", next())).collect();
                            match draw.below(12) {
                                0 => drop(raw.call(&format!("DEL {}", keys.join(" ")))),
                                1 => drop(raw.call(&format!("SET {} PX 1", pairs[0]))),
                                2 => drop(raw.call("FLUSHDB")),
                                3..=5 => {
                                    let sets: Vec<String> =
                                        pairs.iter().map(|pair| format!("SET {pair}")).collect();
                                    let mut lines = vec!["MULTI"];
                                    lines.extend(sets.iter().map(String::as_str));
                                    lines.push("EXEC");
                                    raw.pipeline(&lines);
                                }
                                _ => drop(raw.call(&format!("MSET {}", pairs.join(" ")))),
                            }
                        }
                    });
                }
                for (reader, cache) in caches.iter_mut().enumerate() {
                    scope.spawn(move || {
                        let mut draw = Draw::new(round * 11 + reader as u64 + 100);
                        for _ in 0..40 {
                            let keys = some_keys(&mut draw);
                            cache.read(&mut draw, &keys);
                        }
                    });
                }
            });
            // No key is about to expire any more.
            std::thread::sleep(std::time::Duration::from_millis(5));
            let mut raw = server.raw();
            let truth: HashMap<String, String> = (0..KEYS)
                .map(|index| {
                    let key = format!("k{index}");
                    let value = raw.call(&format!("GET {key}"));
                    let value = if value.is_nil() {
                        String::new()
                    } else {
                        value.text()
                    };
                    (key, value)
                })
                .collect();
            for (reader, cache) in caches.iter_mut().enumerate() {
                // Only the notification of an expired key may still be under way.
                let what = format!("reader {reader} knows what is so after round {round}");
                eventually(&what, || {
                    cache.catch_up();
                    let mut known = cache.known.iter();
                    known.all(|(key, value)| value == &truth[key])
                });
                told[reader] += cache.told;
            }
        }
        assert!(
            told.iter().all(|told| *told > 0),
            "somebody was never told anything: {told:?}"
        );
    });
}

#[test]
fn who_caches_and_does_not_read_is_cut_and_forgotten() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(2).with("client-output-buffer-limit", "pubsub 200kb 0 0");
    let server = Server::start(&options);
    let (mut slow, mut writer) = (server.raw3(), server.raw());
    check(&mut slow, "CLIENT TRACKING ON BCAST", "OK");
    let key = "k".repeat(10_000);
    eventually("cut", || {
        for _ in 0..100 {
            writer.command(&["SET", &key, "v"]);
        }
        figure(&mut writer, "tracking_clients") == 0
    });
    assert_eq!(figure(&mut writer, "tracking_total_prefixes"), 0);
    check(&mut writer, "PING", "PONG");
}

#[test]
fn a_refused_request_is_what_client_caching_spoke_of() {
    let server = Server::start(&Options::default());
    let (mut raw, mut other) = (server.raw(), server.raw());
    check(&mut raw, "CONFIG SET busy-reply-threshold 20", "OK");
    check(&mut raw, "CLIENT TRACKING ON OPTIN", "OK");
    let is_caching = |raw: &mut Raw| {
        let reply = raw.call("CLIENT TRACKINGINFO");
        reply.show().contains("caching-yes")
    };
    for refused in ["NOSUCH", "GET"] {
        check(&mut raw, "CLIENT CACHING YES", "OK");
        assert!(is_caching(&mut raw));
        assert!(raw.call(refused).is_error());
        assert!(!is_caching(&mut raw), "{refused}");
    }
    check(&mut raw, "CLIENT CACHING YES", "OK");
    other.send(b"EVAL \"redis.call('get', KEYS[1]) while true do end\" 1 k\r\n");
    while !server.raw().call("PING").is_error() {}
    let reply = raw.call("GET k").show();
    assert!(reply.contains("BUSY"), "{reply}");
    check(&mut server.raw(), "SCRIPT KILL", "OK");
    assert!(!is_caching(&mut raw), "BUSY");
}

#[test]
fn a_client_hears_of_no_key_that_its_user_may_not_read() {
    if support::is_stand_in() {
        // Redis names them.
        return;
    }
    let server = Server::start(&Options::shards(8));
    let mut other = server.raw();
    check(
        &mut other,
        "ACL SETUSER reader on >secret ~a:* %W~w:* (%R~b:* +get) +@all",
        "OK",
    );
    let mut client = server.raw();
    assert!(!client.call("HELLO 3 AUTH reader secret").is_error());
    check(&mut client, "CLIENT TRACKING ON BCAST", "OK");
    let keys = "a:1 1 b:1 1 c:1 1 w:1 1";
    check(&mut other, &format!("MSET {keys}"), "OK");
    check(&mut other, "SET c:2 1", "OK");
    check(&mut other, "SET a:2 1", "OK");
    let mut told = String::new();
    while !told.contains("a:2") {
        told.push_str(&client.read().show());
    }
    assert!(told.contains("a:1") && told.contains("b:1"), "{told}");
    assert!(!told.contains("c:") && !told.contains("w:"), "{told}");
    // Rights that it gains count from then on.
    check(&mut other, "ACL SETUSER reader allkeys", "OK");
    check(&mut other, "SET c:3 1", "OK");
    assert!(client.read().show().contains("c:3"));
}

#[test]
fn a_client_hears_of_no_key_of_a_database_that_its_user_may_not_use() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8));
    let mut other = server.raw();
    check(
        &mut other,
        "ACL SETUSER reader on >secret ~a:* db=0 (~c:* db=0,2) +@all",
        "OK",
    );
    let mut client = server.raw();
    assert!(!client.call("HELLO 3 AUTH reader secret").is_error());
    check(&mut client, "CLIENT TRACKING ON BCAST", "OK");
    for (db, keys) in [
        (1, ["a:1", "c:1"]),
        (2, ["a:2", "c:2"]),
        (0, ["a:0", "c:0"]),
    ] {
        check(&mut other, &format!("SELECT {db}"), "OK");
        for key in keys {
            check(&mut other, &format!("SET {key} 1"), "OK");
        }
    }
    // One name in two databases, in one step, is notified once.
    let step = [
        "MULTI",
        "SET a:9 1",
        "SELECT 1",
        "SET a:9 1",
        "SET a:8 1",
        "EXEC",
    ];
    assert!(other.pipeline(&step).iter().all(|reply| !reply.is_error()));
    check(&mut other, "SELECT 0", "OK");
    check(&mut other, "SET a:last 1", "OK");
    let mut told = String::new();
    while !told.contains("a:last") {
        told.push_str(&client.read().show());
    }
    let named: Vec<&str> = told.split('"').filter(|word| word.contains(':')).collect();
    assert_eq!(named, ["c:2", "a:0", "c:0", "a:9", "a:last"], "{told}");
}
