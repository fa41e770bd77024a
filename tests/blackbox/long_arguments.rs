//! Long arguments, which become values in the buffers that the socket filled: stored whole, on every path,
//! and counted once.

use crate::support::{self, Server, at_each_shard_count, check};
use crate::wire::{Raw, Value};

/// Bytes of all data, as INFO has them.
pub(crate) fn used(raw: &mut Raw) -> f64 {
    support::info_number(raw, "memory", "used_memory_dataset")
}

/// Sends one command with arguments of any length.
pub(crate) fn send(raw: &mut Raw, words: &[&str]) {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    raw.send(bytes.as_bytes());
}

pub(crate) fn ask(raw: &mut Raw, words: &[&str]) -> String {
    send(raw, words);
    match raw.read() {
        Value::Integer(number) => number.to_string(),
        reply => reply.text(),
    }
}

#[test]
fn long_strings_are_stored_as_they_came_and_counted_once() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let long = |letter: &str| letter.repeat(3 << 20);
        check(&mut raw, "SET warm v", "OK");
        let before = used(&mut raw);
        for (round, letter) in ["a", "b", "c"].into_iter().enumerate() {
            let value = long(letter);
            raw.send(format!("SET first {round}\r\n").as_bytes());
            raw.send(
                format!(
                    "*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{value}\r\n",
                    value.len()
                )
                .as_bytes(),
            );
            raw.send(b"GET first\r\nGET long\r\n");
            assert_eq!(raw.read().text(), "OK");
            assert_eq!(raw.read().text(), "OK");
            assert_eq!(raw.read().text(), round.to_string());
            assert!(raw.read().text() == value);
        }
        let options = format!(
            "*5\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{}\r\n$2\r\nEX\r\n$3\r\n100\r\n",
            3 << 20,
            long("d")
        );
        raw.send(options.as_bytes());
        assert_eq!(raw.read().text(), "OK");
        check(&mut raw, "TTL long", "(integer) 100");
        check(&mut raw, "STRLEN long", &format!("(integer) {}", 3 << 20));
        check(&mut raw, "DEL long first warm", "(integer) 3");
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
        // After a refusal, nothing of it is left.
        check(&mut raw, "LPUSH list x", "(integer) 1");
        let refused = format!(
            "*3\r\n$6\r\nAPPEND\r\n$4\r\nlist\r\n${}\r\n{}\r\n",
            3 << 20,
            long("e")
        );
        raw.send(refused.as_bytes());
        assert!(raw.read().show().contains("WRONGTYPE"));
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
    });
}

#[test]
fn long_arguments_arrive_in_pieces_of_any_size() {
    at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        raw.stream().set_nodelay(true).expect("a socket");
        let lens = [16_383, 16_384, 16_385, 24_575, 40_000, 300_000, 1_100_000];
        for piece in [7_000, 16_384, 20_011, 700_000] {
            for len in lens.into_iter().filter(|len| *len < 20 * piece) {
                let value: String = (0..len / 8).map(|number| format!("{number:08}")).collect();
                let value = format!("{value}{}", "x".repeat(len % 8));
                let mut bytes = b"PING\r\n".to_vec();
                let requests: [&[&str]; 4] = [
                    &["MSET", "a", &value, "b", "short", "c", &value],
                    &["RPUSH", "list", "first", &value, "last"],
                    &["HSET", "hash", "f", &value],
                    &["ECHO", &value],
                ];
                for words in requests {
                    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                    bytes.extend(request(&words));
                }
                for part in bytes.chunks(piece) {
                    raw.send(part);
                    // The server has read the earlier bytes, or is about to.
                    check(&mut other, "PING", "PONG");
                }
                let replies: Vec<Value> = (0..5).map(|_| raw.read()).collect();
                let [_, set, pushed, _, echo] = &replies[..] else {
                    unreachable!("five were read")
                };
                assert_eq!((set.text(), pushed.integer()), (String::from("OK"), 3));
                assert!(echo.text() == value, "{len} bytes in pieces of {piece}");
                expect(&mut raw, &["STRLEN", "a"], &format!("(integer) {len}"));
                let again: [&[&str]; 4] = [
                    &["GET", "a"],
                    &["GET", "c"],
                    &["LINDEX", "list", "1"],
                    &["HGET", "hash", "f"],
                ];
                for words in again {
                    assert!(ask(&mut raw, words) == value, "{words:?} of {len}");
                }
                expect(&mut raw, &["DEL", "a", "b", "c", "list"], "(integer) 4");
            }
        }
    });
}

/// A value is still a part of its request when later commands of the pipeline write to it.
#[test]
fn what_is_stored_and_written_to_in_one_pipeline_is_right_and_counted_once() {
    with_all_given_back(|raw| {
        let value = "v".repeat(1 << 20);
        let requests: [&[&str]; 9] = [
            &["SET", "k", &value],
            &["SETRANGE", "k", "1", "x"],
            &["APPEND", "k", "end"],
            &["GETSET", "k", &value],
            &["RPUSH", "list", &value, "short"],
            &["LMOVE", "list", "{list}", "LEFT", "LEFT"],
            &["HSET", "hash", "f", &value],
            &["HSET", "hash", "f", "over"],
            &["SET", "other", &value],
        ];
        let mut bytes = Vec::new();
        for words in requests {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            bytes.extend(request(&words));
        }
        for _ in 0..3 {
            raw.send(&bytes);
            let replies: Vec<Value> = requests.iter().map(|_| raw.read()).collect();
            let written = format!("vx{}end", &value[2..]);
            assert!(replies[3].text() == written);
            assert!(replies[5].text() == value);
            for (words, reply) in [
                (&["GET", "k"][..], &*value),
                (&["LPOP", "{list}"], &value),
                (&["LPOP", "list"], "short"),
                (&["HGET", "hash", "f"], "over"),
                (&["GET", "other"], &value),
            ] {
                assert!(ask(raw, words) == reply, "{words:?}");
            }
        }
    });
}

#[test]
fn commands_that_store_several_long_strings_store_each_under_its_key() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let long = |letter: &str| letter.repeat(2 << 20);
        let before = used(&mut raw);
        let (a, b, c) = (&*long("a"), &*long("b"), &*long("c"));
        // Short ones between long ones, and a key that is named twice: the last value counts.
        let first = [
            "MSET", "one", a, "two", "short", "three", b, "one", c, "four", "",
        ];
        assert_eq!(ask(&mut raw, &first), "OK");
        for (key, value) in [("one", c), ("two", "short"), ("three", b), ("four", "")] {
            assert!(ask(&mut raw, &["GET", key]) == value, "{key}");
        }
        assert_eq!(ask(&mut raw, &["MSETNX", "five", a, "three", c]), "0");
        assert_eq!(ask(&mut raw, &["EXISTS", "five"]), "0");
        assert!(ask(&mut raw, &["GET", "three"]) == b);
        assert_eq!(ask(&mut raw, &["MSETNX", "five", a, "six", c]), "1");
        assert_eq!(
            ask(&mut raw, &["MSETEX", "2", "two", b, "six", a, "EX", "100"]),
            "1"
        );
        for (key, value) in [("five", a), ("two", b), ("six", a)] {
            assert!(ask(&mut raw, &["GET", key]) == value, "{key}");
        }
        assert_eq!(ask(&mut raw, &["SETNX", "seven", c]), "1");
        assert_eq!(ask(&mut raw, &["SETNX", "seven", a]), "0");
        assert!(ask(&mut raw, &["GETSET", "seven", b]) == c);
        assert!(ask(&mut raw, &["GET", "seven"]) == b);
        let all = ["DEL", "one", "two", "three", "four", "five", "six", "seven"];
        assert_eq!(ask(&mut raw, &all), "7");
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
    });
}

/// Runs a test on empty servers, and checks that the memory of its values is freed with its keys.
pub(crate) fn with_all_given_back(body: impl Fn(&mut Raw)) {
    at_each_shard_count(|server: &Server| {
        let mut raw = server.raw();
        check(&mut raw, "SET warm v", "OK");
        let before = used(&mut raw);
        body(&mut raw);
        let held = used(&mut raw);
        assert!(held > before + 2e6, "it holds {held}, {before} before");
        check(&mut raw, "FLUSHALL SYNC", "OK");
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
    });
}

#[test]
fn long_elements_fields_and_members_are_stored_where_they_belong() {
    with_all_given_back(|raw| {
        let long = |letter: &str, bytes: usize| letter.repeat(bytes);
        let (a, b) = (&*long("a", 2 << 20), &*long("b", 600 << 10));
        let (c, d) = (&*long("c", 40_000), &*long("d", 3 << 20));
        // Lists: at both ends, in the middle, over others; short ones between long ones.
        assert_eq!(ask(raw, &["RPUSH", "list", a, "short", b, c]), "4");
        assert_eq!(ask(raw, &["LPUSH", "list", b, "", d]), "7");
        assert_eq!(ask(raw, &["RPUSHX", "list", d]), "8");
        assert_eq!(ask(raw, &["LINSERT", "list", "BEFORE", "short", d]), "9");
        assert_eq!(ask(raw, &["LSET", "list", "1", a]), "OK");
        for (index, element) in [d, a, b, a, d, "short", b, c, d].into_iter().enumerate() {
            let got = ask(raw, &["LINDEX", "list", &index.to_string()]);
            assert!(got == element, "element {index}");
        }
        assert_eq!(ask(raw, &["RPUSHX", "nothing", d]), "0");
        // Hashes: new fields, over short and long ones, twice the same, names that are long themselves.
        assert_eq!(ask(raw, &["HSET", "hash", "f", "v"]), "1");
        assert_eq!(ask(raw, &["HSET", "hash", "f", a, "g", b, "h", "v"]), "2");
        assert_eq!(ask(raw, &["HSET", "hash", "g", d, "h", a, "h", b]), "0");
        assert_eq!(ask(raw, &["HSETNX", "hash", "f", d]), "0");
        assert_eq!(ask(raw, &["HSETNX", "hash", "i", d]), "1");
        assert_eq!(ask(raw, &["HSET", "hash", a, "short", b, c]), "2");
        let fields = [("f", a), ("g", d), ("h", b), ("i", d), (a, "short"), (b, c)];
        for (name, value) in fields {
            assert!(ask(raw, &["HGET", "hash", name]) == value);
        }
        // A deadline stays or goes with its field, whatever was planned for the value.
        assert_eq!(
            ask(raw, &["HSETEX", "hash", "EX", "100", "FIELDS", "1", "f", b]),
            "1"
        );
        assert!(ask(raw, &["HGET", "hash", "f"]) == b);
        assert_eq!(ask(raw, &["HSET", "hash", "f", d]), "0");
        assert!(ask(raw, &["HGET", "hash", "f"]) == d);
        // A payload that is not compressed: a string of 2 MiB that repeats nothing for long.
        let text: String = (0..300_000).map(|n: u64| format!("{:x}", n * n)).collect();
        assert_eq!(ask(raw, &["CONFIG", "SET", "rdbcompression", "no"]), "OK");
        assert_eq!(ask(raw, &["SET", "dumped", &text]), "OK");
        raw.send(b"DUMP dumped\r\n");
        let payload = raw.read().bytes().to_vec();
        assert!(payload.len() > text.len());
        let mut request = b"*4\r\n$7\r\nRESTORE\r\n$8\r\nrestored\r\n$1\r\n0\r\n".to_vec();
        request.extend(format!("${}\r\n", payload.len()).bytes());
        request.extend(payload);
        request.extend(b"\r\n");
        raw.send(&request);
        assert_eq!(raw.read().text(), "OK");
        assert!(ask(raw, &["GET", "restored"]) == text);
        // Sets and sorted sets.
        assert_eq!(ask(raw, &["SADD", "set", a, "short", c, a, d]), "4");
        assert_eq!(ask(raw, &["SADD", "set", a, b]), "1");
        assert_eq!(ask(raw, &["SMOVE", "set", "{set}", d]), "1");
        for (key, member, is_there) in [
            ("set", a, "1"),
            ("set", b, "1"),
            ("set", c, "1"),
            ("set", d, "0"),
            ("{set}", d, "1"),
        ] {
            assert_eq!(ask(raw, &["SISMEMBER", key, member]), is_there);
        }
        assert_eq!(
            ask(raw, &["ZADD", "zset", "1", a, "2", "short", "3", c]),
            "3"
        );
        assert_eq!(ask(raw, &["ZADD", "zset", "NX", "CH", "5", a, "4", d]), "1");
        assert_eq!(ask(raw, &["ZINCRBY", "zset", "7", a]), "8");
        assert_eq!(ask(raw, &["ZINCRBY", "zset", "9", b]), "9");
        for (member, score) in [(a, "8"), ("short", "2"), (c, "3"), (d, "4"), (b, "9")] {
            assert_eq!(ask(raw, &["ZSCORE", "zset", member]), score);
        }
    });
}

/// Sends one command, and compares all of its reply.
pub(crate) fn expect(raw: &mut Raw, words: &[&str], reply: &str) {
    send(raw, words);
    let got = raw.read().show();
    let shown = |text: &str| text.chars().take(60).collect::<String>();
    let what: Vec<String> = words.iter().map(|word| shown(word)).collect();
    assert!(got == reply, "{what:?} answered {}", shown(&got));
}

#[test]
fn elements_are_found_by_long_names() {
    with_all_given_back(|raw| {
        // Two names that differ in their last byte only, and one that is nowhere.
        let name = |last: &str| format!("{}{last}", "n".repeat(2 << 20));
        let (a, b, none) = (&*name("a"), &*name("b"), &*name("c"));
        expect(raw, &["SADD", "set", a, a, "short", b, a], "(integer) 3");
        expect(raw, &["SISMEMBER", "set", a], "(integer) 1");
        expect(raw, &["SISMEMBER", "set", none], "(integer) 0");
        expect(
            raw,
            &["SMISMEMBER", "set", none, b, "short", a],
            "1) (integer) 0\n2) (integer) 1\n3) (integer) 1\n4) (integer) 1",
        );
        expect(raw, &["SREM", "set", a, none, a, b], "(integer) 2");
        expect(raw, &["SADD", "set", b, a], "(integer) 2");
        expect(raw, &["SMOVE", "set", "{set}", a], "(integer) 1");
        expect(raw, &["SMOVE", "set", "{set}", none], "(integer) 0");
        expect(raw, &["SISMEMBER", "{set}", a], "(integer) 1");

        expect(
            raw,
            &["HSET", "hash", a, "1", b, "2", a, "3"],
            "(integer) 2",
        );
        expect(raw, &["HINCRBY", "hash", a, "4"], "(integer) 7");
        expect(raw, &["HINCRBY", "hash", none, "4"], "(integer) 4");
        expect(raw, &["HDEL", "hash", none, none], "(integer) 1");
        expect(raw, &["HGET", "hash", none], "(nil)");
        expect(raw, &["HEXISTS", "hash", b], "(integer) 1");
        expect(raw, &["HSETNX", "hash", b, "5"], "(integer) 0");
        expect(raw, &["HSETNX", "hash", none, "5"], "(integer) 1");
        expect(
            raw,
            &["HMGET", "hash", a, "short", b, none],
            "1) \"7\"\n2) (nil)\n3) \"2\"\n4) \"5\"",
        );
        expect(raw, &["HINCRBYFLOAT", "hash", none, "0.5"], "\"5.5\"");
        expect(raw, &["HSTRLEN", "hash", none], "(integer) 3");

        expect(
            raw,
            &["ZADD", "zset", "1", a, "2", b, "3", a],
            "(integer) 2",
        );
        expect(raw, &["ZSCORE", "zset", a], "\"3\"");
        expect(raw, &["ZRANK", "zset", b], "(integer) 0");
        expect(raw, &["ZRANK", "zset", none], "(nil)");
        expect(raw, &["ZINCRBY", "zset", "-5", a], "\"-2\"");
        expect(
            raw,
            &["ZMSCORE", "zset", none, b, a],
            "1) (nil)\n2) \"2\"\n3) \"-2\"",
        );
        expect(raw, &["ZREM", "zset", none, a, a], "(integer) 1");
        expect(
            raw,
            &["GEOADD", "geo", "1", "2", a, "1", "2", b],
            "(integer) 2",
        );
        expect(raw, &["GEODIST", "geo", b, a], "\"0.0000\"");
        expect(raw, &["GEODIST", "geo", b, none], "(nil)");

        expect(raw, &["RPUSH", "list", "x"], "(integer) 1");
        for words in [
            ["SISMEMBER", "list", a],
            ["ZSCORE", "list", a],
            ["HGET", "list", a],
        ] {
            send(raw, &words);
            assert!(raw.read().show().contains("WRONGTYPE"));
        }
    });
}

#[test]
fn sketches_count_long_elements_as_any_others() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let name = |last: &str| format!("{}{last}", "n".repeat(2 << 20));
        let (a, b, none) = (&*name("a"), &*name("b"), &*name("c"));
        for (add, has) in [
            ("PFADD", ""),
            ("BF.ADD", "BF.EXISTS"),
            ("CF.ADD", "CF.EXISTS"),
        ] {
            let script = format!("return redis.call('{add}', KEYS[1], ARGV[1])");
            for element in [a, b] {
                expect(&mut raw, &[add, "{k}", element], "(integer) 1");
                expect(
                    &mut raw,
                    &["EVAL", &script, "1", "k", element],
                    "(integer) 1",
                );
            }
            let digest = |raw: &mut Raw, key: &str| {
                send(raw, &["DEBUG", "DIGEST-VALUE", key]);
                raw.read().show()
            };
            assert_eq!(digest(&mut raw, "k"), digest(&mut raw, "{k}"), "{add}");
            if has.is_empty() {
                expect(&mut raw, &["PFADD", "k", a, b, "short"], "(integer) 1");
                expect(&mut raw, &["PFCOUNT", "k"], "(integer) 3");
            } else {
                expect(&mut raw, &[has, "k", b], "(integer) 1");
                expect(&mut raw, &[has, "k", none], "(integer) 0");
            }
            expect(&mut raw, &["DEL", "k", "{k}"], "(integer) 2");
        }
    });
}

#[test]
fn keys_may_be_long() {
    with_all_given_back(|raw| {
        let name = |last: &str| format!("{}{last}", "{tag}".repeat(400_000));
        let (a, b, none) = (&*name("a"), &*name("b"), &*name("c"));
        let value = &*"v".repeat(1 << 20);
        expect(raw, &["SET", a, "short", "EX", "100"], "OK");
        expect(raw, &["TTL", a], "(integer) 100");
        expect(raw, &["SET", a, value, "KEEPTTL"], "OK");
        expect(raw, &["TTL", a], "(integer) 100");
        assert!(ask(raw, &["GET", a]) == value);
        expect(raw, &["GET", none], "(nil)");
        expect(raw, &["INCR", b], "(integer) 1");
        expect(raw, &["APPEND", b, "23"], "(integer) 3");
        expect(raw, &["INCR", b], "(integer) 124");
        expect(raw, &["MSET", a, "x", none, "y", a, "z"], "OK");
        expect(raw, &["MGET", a, none], "1) \"z\"\n2) \"y\"");
        expect(raw, &["RENAME", none, b], "OK");
        expect(raw, &["GET", b], "\"y\"");
        expect(raw, &["RENAMENX", b, a], "(integer) 0");
        expect(raw, &["COPY", b, none], "(integer) 1");
        expect(raw, &["EXPIRE", none, "100"], "(integer) 1");
        expect(raw, &["DEL", a, b, b], "(integer) 2");
        expect(
            raw,
            &["LPUSH", none, "x"],
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        expect(raw, &["LPUSH", a, value, "x"], "(integer) 2");
        expect(raw, &["HSET", b, "f", value, "g", "v"], "(integer) 2");
        expect(raw, &["HGET", b, "g"], "\"v\"");
        expect(raw, &["RPOP", a], &format!("\"{value}\""));
        expect(raw, &["EXISTS", a, b, none], "(integer) 3");
    });
}

/// Unread replies keep the old values that are deleted and overwritten meanwhile.
#[test]
fn long_elements_and_values_are_shared_with_replies_under_way() {
    at_each_shard_count(|server: &Server| {
        let mut raw = server.raw();
        let long = |letter: &str| letter.repeat(2 << 20);
        let (a, b, c) = (&*long("a"), &*long("b"), &*long("c"));
        let waits = server.raw();
        expect(&mut raw, &["SET", "warm", "v"], "OK");
        let before = used(&mut raw);
        let mut waits = waits;
        for _ in 0..8 {
            expect(&mut raw, &["RPUSH", "list", a, b, c], "(integer) 3");
            expect(&mut raw, &["HSET", "hash", "f", a, "g", b], "(integer) 2");
            let requests: [&[&str]; 9] = [
                &["LRANGE", "list", "0", "-1"],
                &["HGET", "hash", "f"],
                &["HSET", "hash", "f", "over"],
                &["LMOVE", "list", "{list}", "LEFT", "LEFT"],
                &["BLPOP", "{list}", "0"],
                &["HGETDEL", "hash", "FIELDS", "1", "g"],
                &["LPOP", "list", "2"],
                &["HGETALL", "hash"],
                &["DEL", "hash"],
            ];
            for words in requests {
                send(&mut waits, words);
            }
            support::eventually("all have run", || {
                raw.call("EXISTS list {list} hash").integer() == 0
            });
            let quoted = |text: &str| format!("\"{text}\"");
            let [a, b, c] = [a, b, c].map(quoted);
            let replies = [
                format!("1) {a}\n2) {b}\n3) {c}"),
                a.clone(),
                String::from("(integer) 0"),
                a.clone(),
                format!("1) \"{{list}}\"\n2) {a}"),
                format!("1) {b}"),
                format!("1) {b}\n2) {c}"),
                String::from("1) \"f\"\n2) \"over\""),
                String::from("(integer) 1"),
            ];
            for (number, reply) in replies.iter().enumerate() {
                assert!(waits.read().show() == *reply, "reply {number}");
            }
        }
        // The memory of clients' buffers does not count there.
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
    });
}

/// Returns a command as bytes, for arguments that are no text.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn long_payloads_are_restored_as_they_were_dumped() {
    with_all_given_back(|raw| {
        expect(raw, &["CONFIG", "SET", "rdbcompression", "no"], "OK");
        let a = &*"a".repeat(2 << 20);
        let elements: Vec<String> = (0..3000)
            .map(|number| format!("{number:05}").repeat(60))
            .collect();
        let fill = |raw: &mut Raw, command: &str, scored: bool| {
            let mut words = vec![command, "key"];
            for element in &elements {
                if scored {
                    words.push("1");
                }
                words.push(element);
            }
            send(raw, &words);
            assert!(raw.read().show().starts_with("(integer)"));
        };
        for what in ["text", "list", "set", "hash", "zset", "stream"] {
            match what {
                "text" => expect(raw, &["SET", "key", a], "OK"),
                "list" => fill(raw, "RPUSH", false),
                "set" => fill(raw, "SADD", false),
                "hash" => fill(raw, "HSET", false),
                "zset" => fill(raw, "ZADD", true),
                _ => expect(raw, &["XADD", "key", "1-1", "f", a], "\"1-1\""),
            }
            // Long elements among them, and fields that expire.
            match what {
                "list" => expect(raw, &["LPUSH", "key", a], "(integer) 3001"),
                "set" => expect(raw, &["SADD", "key", a], "(integer) 1"),
                "hash" => {
                    expect(raw, &["HSET", "key", "f", a], "(integer) 1");
                    let expire = ["HEXPIRE", "key", "100", "FIELDS", "1", "f"];
                    expect(raw, &expire, "1) (integer) 1");
                }
                "zset" => expect(raw, &["ZADD", "key", "2", a], "(integer) 1"),
                _ => {}
            }
            let digest = |raw: &mut Raw, key: &str| {
                send(raw, &["DEBUG", "DIGEST-VALUE", key]);
                raw.read().show()
            };
            let before = digest(raw, "key");
            raw.send(b"DUMP key\r\n");
            let payload = raw.read().bytes().to_vec();
            assert!(payload.len() > 512 << 10, "{what}: {}", payload.len());
            let mut restore = |key: &str, ttl: &str, more: &[&[u8]], payload: &[u8]| {
                let words = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload];
                raw.send(&request(&[&words[..], more].concat()));
                raw.read().show()
            };
            assert_eq!(restore("new", "0", &[], &payload), "OK", "{what}");
            let busy = "(error) BUSYKEY Target key name already exists.";
            assert_eq!(restore("key", "0", &[], &payload), busy);
            assert_eq!(restore("key", "100000", &[b"REPLACE"], &payload), "OK");
            let mut broken = payload.clone();
            broken[payload.len() / 2] ^= 1;
            let wrong = "(error) ERR DUMP payload version or checksum are wrong";
            assert_eq!(restore("broken", "0", &[], &broken), wrong);
            let negative = "(error) ERR Invalid TTL value, must be >= 0";
            assert_eq!(restore("broken", "-1", &[], &broken), negative);
            assert_eq!(restore("gone", "1", &[b"ABSTTL"], &payload), "OK");
            assert!(raw.call("PTTL key").integer() > 90_000);
            expect(raw, &["PERSIST", "key"], "(integer) 1");
            assert_eq!(digest(raw, "new"), before, "{what}");
            assert_eq!(digest(raw, "key"), before, "{what}");
            expect(raw, &["EXISTS", "broken", "gone"], "(integer) 0");
            expect(raw, &["TTL", "new"], "(integer) -1");
            if what != "stream" {
                expect(raw, &["DEL", "key", "new"], "(integer) 2");
            }
        }
    });
}

#[test]
fn transactions_store_long_arguments() {
    with_all_given_back(|raw| {
        let long = |letter: &str, bytes: usize| letter.repeat(bytes);
        let (a, b, c) = (
            &*long("a", 2 << 20),
            &*long("b", 600 << 10),
            &*long("c", 40_000),
        );
        let queue = |raw: &mut Raw, all: &[&[&str]]| {
            expect(raw, &["MULTI"], "OK");
            for words in all {
                expect(raw, words, "QUEUED");
            }
        };
        let steps: [&[&str]; 12] = [
            &["SET", "text", a],
            &["SET", "text", b],
            &["APPEND", "text", c],
            &["RPUSH", "list", a, b, a, "short"],
            &["HSET", "hash", "f", a, b, c, "f", b],
            &["SADD", "set", a, b, a],
            &["SADD", "text", a],
            &["ZADD", "zset", "1", a, "2", a],
            &["SISMEMBER", "set", b],
            &["LSET", "list", "3", a],
            &["SREM", "set", b],
            &["GETSET", "text", a],
        ];
        queue(raw, &steps);
        send(raw, &["EXEC"]);
        let Value::Array(replies) = raw.read() else {
            panic!("a reply for each step");
        };
        let shown: Vec<String> = replies[..11].iter().map(Value::show).collect();
        let numbers = [&shown[2..6], &shown[7..9], &shown[10..]]
            .concat()
            .join(" ");
        let wanted =
            [b.len() + c.len(), 4, 2, 2, 1, 1, 1].map(|number| format!("(integer) {number}"));
        assert_eq!(numbers, wanted.join(" "));
        assert!(shown[6].contains("WRONGTYPE"), "{}", shown[6]);
        assert!(replies[11].text() == format!("{b}{c}"));
        assert!(ask(raw, &["GET", "text"]) == a);
        for (index, element) in [a, b, a, a].into_iter().enumerate() {
            assert!(ask(raw, &["LINDEX", "list", &index.to_string()]) == element);
        }
        assert!(ask(raw, &["HGET", "hash", "f"]) == b);
        assert!(ask(raw, &["HGET", "hash", b]) == c);
        expect(raw, &["ZSCORE", "zset", a], "\"2\"");
        expect(raw, &["SCARD", "set"], "(integer) 1");
        // If the command does not run, nothing is stored.
        expect(raw, &["WATCH", "text"], "OK");
        expect(
            raw,
            &["SETRANGE", "text", "0", "x"],
            &format!("(integer) {}", a.len()),
        );
        queue(raw, &[&["RPUSH", "list", a], &["SET", "other", a]]);
        expect(raw, &["EXEC"], "(nil array)");
        queue(raw, &[&["SET", "other", a]]);
        expect(raw, &["DISCARD"], "OK");
        expect(raw, &["EXISTS", "other"], "(integer) 0");
        // A script among the steps finds the values that they have stored.
        let script = "return {redis.call('LLEN', KEYS[1]), redis.call('LINDEX', KEYS[1], -1)}";
        queue(
            raw,
            &[&["RPUSH", "list", b], &["EVAL", script, "1", "list"]],
        );
        send(raw, &["EXEC"]);
        let reply = raw.read().show();
        assert!(reply == format!("1) (integer) 5\n2) 1) (integer) 5\n   2) \"{b}\""));
    });
}
