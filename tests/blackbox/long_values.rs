//! Long values under concurrent writers, under limits and after their clients are gone: their contents are
//! right, and all memory is freed.

use crate::long_arguments::{ask, expect, send, used, with_all_given_back};
use crate::support::{self, Options, Server, at_each_shard_count, check};
use crate::wire::{self, Raw};

#[test]
fn long_arguments_are_given_back_where_there_is_no_room_for_them() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let a = &*"a".repeat(2 << 20);
        expect(&mut raw, &["SADD", "set", a], "(integer) 1");
        expect(&mut raw, &["CONFIG", "SET", "maxmemory", "1mb"], "OK");
        let before = used(&mut raw);
        let oom = "(error) OOM command not allowed when used memory > 'maxmemory'.";
        for _ in 0..4 {
            for words in [
                &["SADD", "set", a][..],
                &["RPUSH", "list", a],
                &["SET", a, a],
                &["ZADD", "zset", "1", a],
                &["HSET", "hash", a, a],
            ] {
                expect(&mut raw, words, oom);
            }
        }
        expect(&mut raw, &["CONFIG", "SET", "maxmemory", "0"], "OK");
        expect(&mut raw, &["SISMEMBER", "set", a], "(integer) 1");
        expect(&mut raw, &["DBSIZE"], "(integer) 1");
        support::eventually("all is given back", || {
            (used(&mut raw) - before).abs() < 1e6
        });
    });
}

#[test]
fn strings_that_are_written_to_are_made_anew_with_what_they_held() {
    with_all_given_back(|raw| {
        let (a, b) = (&*"a".repeat(2 << 20), &*"b".repeat(3 << 20));
        // Made from an absent key, a number, a short and a long string.
        assert_eq!(ask(raw, &["APPEND", "none", a]), a.len().to_string());
        check(raw, "SET number 12345", "OK");
        check(raw, "EXPIRE number 100", "(integer) 1");
        assert_eq!(
            ask(raw, &["APPEND", "number", a]),
            (5 + a.len()).to_string()
        );
        check(raw, "TTL number", "(integer) 100");
        assert!(ask(raw, &["GET", "number"]) == format!("12345{a}"));
        let both = (5 + a.len() + b.len()).to_string();
        assert_eq!(ask(raw, &["APPEND", "number", b]), both);
        assert!(ask(raw, &["GET", "number"]) == format!("12345{a}{b}"));
        check(raw, "OBJECT ENCODING number", "\"raw\"");
        // Within, over the end, and behind it.
        let mut model = format!("12345{a}{b}").into_bytes();
        let mut set_range = |raw: &mut Raw, offset: usize, value: &str| {
            let end = offset + value.len();
            model.resize(model.len().max(end), 0);
            model[offset..end].copy_from_slice(value.as_bytes());
            let len = ask(raw, &["SETRANGE", "number", &offset.to_string(), value]);
            assert_eq!(len, model.len().to_string());
            assert!(ask(raw, &["GET", "number"]).as_bytes() == model);
        };
        set_range(raw, 10, b);
        set_range(raw, 4 << 20, b);
        set_range(raw, 8 << 20, a);
        set_range(raw, 12 << 20, "x");
        set_range(raw, 3, "yz");
        assert_eq!(
            ask(raw, &["SETRANGE", "fresh", "5", a]),
            (5 + a.len()).to_string()
        );
        assert!(ask(raw, &["GET", "fresh"]) == format!("\0\0\0\0\0{a}"));
        // Bits far behind the end.
        check(raw, "SETBIT bits 80000000 1", "(integer) 0");
        check(raw, "SETBIT bits 80000000 1", "(integer) 1");
        check(raw, "BITCOUNT bits", "(integer) 1");
        check(raw, "STRLEN bits", "(integer) 10000001");
        check(raw, "BITFIELD fields SET u8 #5000000 255", "1) (integer) 0");
        check(raw, "BITCOUNT fields", "(integer) 8");
        check(raw, "STRLEN fields", "(integer) 5000001");
        // Refused, and then nothing has changed.
        check(raw, "LPUSH list x", "(integer) 1");
        assert!(ask(raw, &["SETRANGE", "list", "0", a]).starts_with("WRONGTYPE"));
        check(raw, "LLEN list", "(integer) 1");
    });
}

#[test]
fn writers_of_one_long_string_all_find_their_bytes_in_it() {
    at_each_shard_count(|server| {
        const ROUNDS: usize = 8;
        const PART: usize = 700 << 10;
        std::thread::scope(|scope| {
            for letter in ["a", "b", "c"] {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    let part = letter.repeat(PART);
                    for round in 0..ROUNDS {
                        match round % 2 {
                            0 => drop(ask(&mut raw, &["APPEND", "long", &part])),
                            _ => drop(ask(&mut raw, &["APPEND", "long", letter])),
                        }
                    }
                });
            }
        });
        let mut raw = server.raw();
        let text = ask(&mut raw, &["GET", "long"]);
        for letter in ["a", "b", "c"] {
            let count = text.matches(letter).count();
            assert_eq!(count, ROUNDS / 2 * (PART + 1), "of {letter}");
        }
    });
}

#[test]
fn a_long_write_takes_effect_though_its_client_is_gone() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let part = "a".repeat(2 << 20);
        for round in 1..=4 {
            send(&mut server.raw(), &["APPEND", "long", &part]);
            support::eventually("it is written", || {
                raw.call("STRLEN long").integer() == (round * part.len()) as i64
            });
        }
    });
}

/// A flush frees the shards' accounts of values that unsent replies still share: else an empty server would
/// be out of memory.
#[test]
fn a_flush_while_replies_hold_long_values_leaves_nothing_charged() {
    // A request may take more than the quarter of the limit that clients have by default.
    let server = Server::start(&Options::shards(4).threads(2).with("maxmemory-clients", "0"));
    let mut raw = server.raw();
    check(&mut raw, "CONFIG SET maxmemory 64mb", "OK");
    let element = "x".repeat(1 << 20);
    let mut push = vec!["RPUSH", "l"];
    push.extend([element.as_str(); 16]);
    let mut fields = vec!["HSET", "h", "a", "1"];
    for name in [
        "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
    ] {
        fields.extend([name, &element]);
    }
    let long = "y".repeat(14 << 20);
    for (store, read, shown) in [
        (push, "LRANGE l 0 -1", "cmd=lrange"),
        (fields, "HVALS h", "cmd=hvals"),
        (vec!["SET", "s", &long], "GET s", "cmd=get"),
    ] {
        for _ in 0..5 {
            support::eventually("there is room for them", || !raw.command(&store).is_error());
            let mut reader = server.raw();
            reader.send(&wire::encode(&wire::split(read)));
            support::eventually("they are on their way", || {
                raw.call("CLIENT LIST").body().contains(shown)
            });
            check(&mut raw, "FLUSHALL", "OK");
            drop(reader);
        }
        support::eventually("all is freed", || {
            !raw.command(&["SET", "free", &"z".repeat(1 << 20)])
                .is_error()
        });
        check(&mut raw, "FLUSHALL", "OK");
    }
    // As much fits as at first.
    support::eventually("there is room", || {
        let reply = raw.command(&["SET", "s", &"z".repeat(30 << 20)]);
        let kept = !reply.is_error();
        raw.call("FLUSHALL");
        kept
    });
}
