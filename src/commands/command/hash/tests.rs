//! Cases that the transcript cannot show: unordered replies, encodings, events, and features newer than Redis 7.0.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../tests/transcripts/families/hash.txt");
    check_transcript(text, |_| {});
}

/// Runs a test on every setup, with small hashes and with tables.
#[track_caller]
fn on_every_encoding(mut test: impl FnMut(&mut Terminal, &str)) {
    for (fields_max, small) in [(512, true), (0, false)] {
        on_every_setup(|cli| {
            cli.configure(|config| config.hash_max_listpack_entries = fields_max);
            cli.put_other_type("list");
            test(cli, if small { "listpackex" } else { "hashtable" });
        });
    }
}

/// Returns the strings of a RESP2 reply, regardless of nesting.
fn strings(cli: &mut Terminal, arguments: &[impl AsRef<[u8]>]) -> Vec<String> {
    let reply = cli.reply_bytes(arguments);
    let text = String::from_utf8(reply).expect("text");
    let mut strings = Vec::new();
    let mut lines = text.split("\r\n");
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            strings.extend(lines.next().map(str::to_owned));
        }
    }
    strings
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn hgetall_is_a_map() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("HGETALL nokey", "(empty array)"),
        ("HSET h a 1 b x", "(integer) 2"),
        ("HGETALL h", "1) \"a\"\n2) \"1\"\n3) \"b\"\n4) \"x\""),
    ]);
    let mut cli = Terminal::with(1, Protocol::Resp3);
    cli.check_all(&[
        ("HGETALL nokey", "(empty hash)"),
        ("HSET h a 1 b x", "(integer) 2"),
        ("HGETALL h", "1# \"a\" => \"1\"\n2# \"b\" => \"x\""),
        ("HKEYS nokey", "(empty array)"),
        (
            "HRANDFIELD h 2 WITHVALUES",
            "1) 1) \"a\"\n   2) \"1\"\n2) 1) \"b\"\n   2) \"x\"",
        ),
    ]);
}

#[test]
fn a_hash_grows_into_a_table_and_stays_one() {
    on_every_setup(|cli| {
        cli.configure(|config| config.hash_max_listpack_entries = 3);
        for index in 0..4 {
            cli.run(&format!("HSET h f{index} {index}"));
            let expected = if index < 3 { "listpack" } else { "hashtable" };
            assert_eq!(cli.encoding("h"), expected);
        }
        cli.check_all(&[
            ("HDEL h f0 f1", "(integer) 2"),
            (
                "HMGET h f0 f1 f2 f3",
                "1) (nil)\n2) (nil)\n3) \"2\"\n4) \"3\"",
            ),
        ]);
        assert_eq!(cli.encoding("h"), "hashtable");
        // Many fields in one request are assumed to be different ones.
        cli.check("HSET k a 1 a 2 a 3 a 4", "(integer) 1");
        assert_eq!(cli.encoding("k"), "hashtable");
        cli.check("HSET e a 1", "(integer) 1");
        cli.check("HSET e a 1 a 2 a 3 a 4", "(integer) 0");
        assert_eq!(cli.encoding("e"), "hashtable");
    });
}

#[test]
fn events_are_those_of_redis() {
    let mut cli = Terminal::new();
    for (line, events) in [
        ("HSET h a 1 b 2", "h:hset h"),
        ("HSETNX h a 1", ""),
        ("HSETNX h c 1", "h:hset h"),
        ("HMSET h d 1", "h:hset h"),
        ("HINCRBY h a 1", "h:hincrby h"),
        ("HINCRBYFLOAT h a 1", "h:hincrbyfloat h"),
        ("HDEL h z", ""),
        ("HDEL h a b z", "h:hdel h"),
        ("HDEL h c d", "h:hdel h, g:del h"),
        ("HSET h a 1 b 2", "h:hset h"),
        ("HEXPIRE h 10 FIELDS 2 a z", "h:hexpire h"),
        ("HEXPIRE h 10 NX FIELDS 1 a", ""),
        ("HPERSIST h FIELDS 2 a b", "h:hpersist h"),
        ("HPERSIST h FIELDS 2 a b", ""),
        ("HEXPIRE h 0 FIELDS 1 a", "h:hdel h"),
        ("HPEXPIREAT h 1 FIELDS 1 b", "h:hdel h, g:del h"),
        ("HSETEX h EX 10 FIELDS 2 a 1 b 2", "h:hset h, h:hexpire h"),
        ("HSETEX h FNX FIELDS 1 a 2", ""),
        ("HGETEX h FIELDS 1 a", ""),
        ("HGETEX h PX 500 FIELDS 1 a", "h:hexpire h"),
        ("HGETEX h PERSIST FIELDS 2 a z", "h:hpersist h"),
        ("HGETEX h PERSIST FIELDS 1 a", ""),
        ("HGETDEL h FIELDS 1 z", ""),
        ("HGETDEL h FIELDS 1 a", "h:hdel h"),
        ("HGETEX h EXAT 1 FIELDS 1 b", "h:hdel h, g:del h"),
        (
            "HSETEX h PXAT 1 FIELDS 1 a 1",
            "h:hset h, h:hdel h, g:del h",
        ),
    ] {
        cli.run(line);
        assert_eq!(cli.events(), events, "{line}");
    }
}

#[test]
fn deadlines_of_fields_are_set_asked_for_and_taken_away() {
    on_every_encoding(|cli, encoding| {
        cli.check_all(&[
            ("HTTL h FIELDS 2 a b", "1) (integer) -2\n2) (integer) -2"),
            ("HSET h a 1 b 2 c 3", "(integer) 3"),
            ("HTTL h FIELDS 2 a z", "1) (integer) -1\n2) (integer) -2"),
            (
                "HEXPIRE h 100 FIELDS 2 a z",
                "1) (integer) 1\n2) (integer) -2",
            ),
            ("HPTTL h FIELDS 1 a", "1) (integer) 100000"),
            ("HEXPIRETIME h FIELDS 1 a", "1) (integer) 1700000100"),
            ("HPEXPIRETIME h FIELDS 1 a", "1) (integer) 1700000100000"),
            (
                "HPEXPIRE h 1 NX FIELDS 2 a b",
                "1) (integer) 0\n2) (integer) 1",
            ),
            ("HTTL h FIELDS 2 a b", "1) (integer) 100\n2) (integer) 1"),
            (
                "HPEXPIRE h 50001 XX FIELDS 2 b c",
                "1) (integer) 1\n2) (integer) 0",
            ),
            ("HTTL h FIELDS 1 b", "1) (integer) 51"),
            (
                "HPEXPIREAT h 1700000060000 GT FIELDS 3 a b c",
                "1) (integer) 0\n2) (integer) 1\n3) (integer) 0",
            ),
            (
                "HEXPIREAT h 1700000070 LT FIELDS 3 a b c",
                "1) (integer) 1\n2) (integer) 0\n3) (integer) 1",
            ),
            ("HEXPIREAT h 1700000070 GT FIELDS 1 a", "1) (integer) 0"),
            ("HEXPIREAT h 1700000070 LT FIELDS 1 a", "1) (integer) 0"),
            (
                "HTTL h FIELDS 3 a b c",
                "1) (integer) 70\n2) (integer) 60\n3) (integer) 70",
            ),
            (
                "HPERSIST h FIELDS 3 a z a",
                "1) (integer) 1\n2) (integer) -2\n3) (integer) -1",
            ),
            ("HTTL h FIELDS 1 a", "1) (integer) -1"),
        ]);
        assert_eq!(cli.encoding("h"), encoding);
        cli.check_all(&[
            // A new field has no deadline, a changed one keeps its deadline.
            ("HSET h b 5", "(integer) 0"),
            ("HINCRBY h c 5", "(integer) 8"),
            ("HTTL h FIELDS 2 b c", "1) (integer) -1\n2) (integer) 70"),
            ("HINCRBYFLOAT h c 0.5", "\"8.5\""),
            ("HTTL h FIELDS 1 c", "1) (integer) 70"),
            // A deadline in the past deletes the field.
            (
                "HEXPIRE h 0 FIELDS 2 a a",
                "1) (integer) 2\n2) (integer) -2",
            ),
            ("HPEXPIREAT h 1700000000000 FIELDS 1 b", "1) (integer) 2"),
            ("HLEN h", "(integer) 1"),
            ("HEXPIREAT h 1 NX FIELDS 1 c", "1) (integer) 0"),
            ("HEXPIREAT h 1 FIELDS 1 c", "1) (integer) 2"),
            ("EXISTS h", "(integer) 0"),
        ]);
    });
}

#[test]
fn mistakes_about_deadlines_are_those_of_redis_7_4() {
    let missing = "(error) ERR Mandatory argument FIELDS is missing or not at the right position";
    let mismatch = "(error) ERR The `numfields` parameter must match the number of arguments";
    let zero = "(error) ERR Parameter `numFields` should be greater than 0";
    let positive = "(error) ERR Number of fields must be a positive integer";
    let wrong_type = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
    on_every_encoding(|cli, _| {
        cli.check("HSET h a 1", "(integer) 1");
        for key in ["h", "nokey"] {
            for (rest, error) in [
                (
                    "-1 FIELDS 1 a",
                    "(error) ERR invalid expire time, must be >= 0",
                ),
                (
                    "x FIELDS 1 a",
                    "(error) ERR value is not an integer or out of range",
                ),
                (
                    "9223372036854775807 FIELDS 1 a",
                    "(error) ERR invalid expire time in 'hexpire' command",
                ),
                (
                    "70368744177 FIELDS 1 a",
                    "(error) ERR invalid expire time in 'hexpire' command",
                ),
                ("10 FIELD 1 a", missing),
                ("10 NX 1 a", missing),
                ("10 NX FIELDS 1", mismatch),
                ("10 NX XX FIELDS 1 a", missing),
                ("10 FIELDS 0 a", zero),
                ("10 FIELDS -1 a", zero),
                ("10 FIELDS x a", zero),
                ("10 FIELDS 2 a", mismatch),
                ("10 FIELDS 1 a b", mismatch),
            ] {
                cli.check(&format!("HEXPIRE {key} {rest}"), error);
            }
            for command in [
                "HPERSIST",
                "HTTL",
                "HPTTL",
                "HEXPIRETIME",
                "HPEXPIRETIME",
                "HGETDEL",
                "HGETEX",
            ] {
                for (rest, error) in [
                    ("FIELD 1 a", missing),
                    ("FIELDS 0 a", positive),
                    ("FIELDS x a", positive),
                    ("FIELDS 9223372036854775807 a", mismatch),
                    ("FIELDS 2 a", mismatch),
                    ("FIELDS 1 a b", mismatch),
                ] {
                    cli.check(&format!("{command} {key} {rest}"), error);
                }
            }
        }
        cli.check_all(&[
            ("HEXPIRE list x FIELDS 1 a", wrong_type),
            ("HPERSIST list x 1 a", wrong_type),
            ("HTTL list x 1 a", wrong_type),
            ("HGETDEL list x 1 a", wrong_type),
            ("HGETEX list x 1 a", wrong_type),
            ("HSETEX list FIELDS 1 a 1", wrong_type),
            (
                "HEXPIRE h 10 FIELDS 1",
                "(error) ERR wrong number of arguments for 'hexpire' command",
            ),
            ("HGETEX h EX 10 FIELDS", positive),
            (
                "HGETEX h EX -1 FIELDS 1 a",
                "(error) ERR invalid expire time, must be >= 0",
            ),
            (
                "HGETEX h PXAT 9223372036854775807 FIELDS 1 a",
                "(error) ERR invalid expire time in 'hgetex' command",
            ),
            ("HGETEX h EX 1 PERSIST FIELDS 1 a", missing),
            ("HGET h a", "\"1\""),
            ("HTTL h FIELDS 1 a", "1) (integer) -1"),
        ]);
    });
}

#[test]
fn hgetex_answers_values_and_changes_deadlines() {
    on_every_encoding(|cli, _| {
        cli.check_all(&[
            ("HGETEX nokey EX 10 FIELDS 2 a b", "1) (nil)\n2) (nil)"),
            ("HSET h a 1 b x", "(integer) 2"),
            ("HGETEX h FIELDS 3 a z b", "1) \"1\"\n2) (nil)\n3) \"x\""),
            ("HGETEX h EX 10 FIELDS 2 a z", "1) \"1\"\n2) (nil)"),
            ("HTTL h FIELDS 2 a b", "1) (integer) 10\n2) (integer) -1"),
            ("HGETEX h PX 1500 FIELDS 1 a", "1) \"1\""),
            ("HPTTL h FIELDS 1 a", "1) (integer) 1500"),
            ("HGETEX h EXAT 1700000020 FIELDS 1 a", "1) \"1\""),
            ("HTTL h FIELDS 1 a", "1) (integer) 20"),
            ("HGETEX h PERSIST FIELDS 1 a", "1) \"1\""),
            ("HTTL h FIELDS 1 a", "1) (integer) -1"),
            ("HGETEX h EX 0 FIELDS 2 a a", "1) \"1\"\n2) (nil)"),
            ("HGETEX h PXAT 5 FIELDS 1 b", "1) \"x\""),
            ("EXISTS h", "(integer) 0"),
        ]);
    });
}

#[test]
fn hsetex_sets_values_with_deadlines() {
    let one_time =
        "(error) ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
    let arity = "(error) ERR wrong number of arguments for 'hsetex' command";
    on_every_encoding(|cli, _| {
        cli.check_all(&[
            ("HSETEX h FXX FIELDS 1 a 1", "(integer) 0"),
            ("EXISTS h", "(integer) 0"),
            ("HSETEX h FNX EX 10 FIELDS 2 a 1 b 2", "(integer) 1"),
            ("HTTL h FIELDS 2 a b", "1) (integer) 10\n2) (integer) 10"),
            ("HSETEX h FNX FIELDS 2 c 1 b 2", "(integer) 0"),
            ("HSETEX h FXX FIELDS 2 c 1 b 2", "(integer) 0"),
            ("HEXISTS h c", "(integer) 0"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 a 3", "(integer) 1"),
            ("HTTL h FIELDS 1 a", "1) (integer) 10"),
            ("HSETEX h FIELDS 1 a 4", "(integer) 1"),
            ("HTTL h FIELDS 1 a", "1) (integer) -1"),
            ("HSETEX h PX 700 FXX FIELDS 2 a 5 a 6", "(integer) 1"),
            ("HPTTL h FIELDS 1 a", "1) (integer) 700"),
            ("HGET h a", "\"6\""),
            ("HSETEX h EX 1 KEEPTTL FIELDS 1 a 1", one_time),
            ("HSETEX h KEEPTTL PX 1 FIELDS 1 a 1", one_time),
            ("HSETEX h EX 1 EX 2 FIELDS 1 a 1", one_time),
            (
                "HSETEX h FNX FXX FIELDS 1 a 1",
                "(error) ERR Only one of FXX or FNX arguments can be specified",
            ),
            (
                "HSETEX h FNX FNX FIELDS 1 a 1",
                "(error) ERR Only one of FXX or FNX arguments can be specified",
            ),
            (
                "HSETEX h NY FIELDS 1 a 1",
                "(error) ERR unknown argument: NY",
            ),
            (
                "HSETEX h NX XX FIELDS 1 a 1",
                "(error) ERR Only one of NX or XX arguments can be specified",
            ),
            (
                "HSETEX h XX FNX XX FIELDS 1 a 1",
                "(error) ERR Only one of NX or XX arguments can be specified",
            ),
            ("HSETEX h NX FIELDS 1 z 1", "(integer) 0"),
            ("HSETEX nokey XX FIELDS 1 z 1", "(integer) 0"),
            ("HSETEX nokey XX FNX FIELDS 1 z 1", "(integer) 0"),
            ("HSETEX h XX FNX FIELDS 1 a 1", "(integer) 0"),
            ("HSETEX h XX FXX EX 10 FIELDS 1 a 7", "(integer) 1"),
            ("HSETEX h2 NX EX 10 FNX FIELDS 1 a 7", "(integer) 1"),
            ("HTTL h2 FIELDS 1 a", "1) (integer) 10"),
            ("DEL h2", "(integer) 1"),
            (
                "HSETEX h EX x FIELDS 1 a 1",
                "(error) ERR value is not an integer or out of range",
            ),
            (
                "HSETEX h EX -1 FIELDS 1 a 1",
                "(error) ERR invalid expire time, must be >= 0",
            ),
            (
                "HSETEX h PXAT 9223372036854775807 FIELDS 1 a 1",
                "(error) ERR invalid expire time in 'hsetex' command",
            ),
            (
                "HSETEX h FIELDS 0 a 1",
                "(error) ERR invalid number of fields",
            ),
            (
                "HSETEX h FIELDS x a 1",
                "(error) ERR invalid number of fields",
            ),
            (
                "HSETEX h FIELDS 2147483648 a 1",
                "(error) ERR invalid number of fields",
            ),
            ("HSETEX h FIELDS 2 a 1", arity),
            ("HSETEX h FIELDS 1 a 1 b", arity),
            ("HSETEX h FNX KEEPTTL FIELDS 1", arity),
            ("HSETEX h FNX EX 1 KEEPTTL", one_time),
            ("HSETEX h FNX KEEPTTL KEEPTTL EX", one_time),
            (
                "HSETEX h FXX x FIELDS EX",
                "(error) ERR unknown argument: x",
            ),
            (
                "HGETALL nokey",
                if cli.connection.protocol == Protocol::Resp3 {
                    "(empty hash)"
                } else {
                    "(empty array)"
                },
            ),
            ("HSETEX h EXAT 1 FIELDS 2 a 1 c 2", "(integer) 1"),
            ("HKEYS h", "1) \"b\""),
            ("HSETEX h PX 0 FIELDS 1 b 1", "(integer) 1"),
            ("EXISTS h", "(integer) 0"),
            ("HSETEX new PXAT 1 FIELDS 1 b 1", "(integer) 1"),
            ("EXISTS new", "(integer) 0"),
        ]);
    });
}

#[test]
fn hgetdel_answers_values_for_the_last_time() {
    on_every_encoding(|cli, _| {
        cli.check_all(&[
            ("HGETDEL nokey FIELDS 1 a", "1) (nil)"),
            ("HSET h a 1 b x", "(integer) 2"),
            ("HGETDEL h FIELDS 3 a z a", "1) \"1\"\n2) (nil)\n3) (nil)"),
            ("HLEN h", "(integer) 1"),
            ("HGETDEL h FIELDS 2 b b", "1) \"x\"\n2) (nil)"),
            ("EXISTS h", "(integer) 0"),
        ]);
    });
}

#[test]
fn a_field_whose_time_has_come_is_seen_by_no_command() {
    on_every_encoding(|cli, _| {
        cli.check("HSET h a 1 b 2 c 3 d 4", "(integer) 4");
        cli.check(
            "HPEXPIRE h 100 FIELDS 3 a b d",
            "1) (integer) 1\n2) (integer) 1\n3) (integer) 1",
        );
        cli.advance_ms(99);
        cli.check("HLEN h", "(integer) 4");
        cli.advance_ms(1);
        cli.events();
        cli.check_all(&[
            ("HLEN h", "(integer) 1"),
            ("HGET h a", "(nil)"),
            ("HMGET h a c", "1) (nil)\n2) \"3\""),
            ("HEXISTS h a", "(integer) 0"),
            ("HSTRLEN h a", "(integer) 0"),
            ("HKEYS h", "1) \"c\""),
            ("HVALS h", "1) \"3\""),
            ("HSCAN h 0", "1) \"0\"\n2) 1) \"c\"\n   2) \"3\""),
            ("HRANDFIELD h 10", "1) \"c\""),
            ("HTTL h FIELDS 1 a", "1) (integer) -2"),
            ("HPERSIST h FIELDS 1 a", "1) (integer) -2"),
            ("HEXPIRE h 10 FIELDS 1 a", "1) (integer) -2"),
            ("HGETEX h FIELDS 1 a", "1) (nil)"),
            ("HGETDEL h FIELDS 1 b", "1) (nil)"),
            ("HDEL h a", "(integer) 0"),
        ]);
        assert_eq!(cli.events(), "h:hexpired h");
        cli.check_all(&[
            ("HSETNX h a 9", "(integer) 1"),
            ("HSET h b 9", "(integer) 1"),
            ("HINCRBY h d 1", "(integer) 1"),
            (
                "HTTL h FIELDS 3 a b d",
                "1) (integer) -1\n2) (integer) -1\n3) (integer) -1",
            ),
        ]);
    });
}

#[test]
fn a_hash_whose_fields_have_all_expired_is_gone_for_every_command() {
    for line in [
        "HGET h a",
        "HLEN h",
        "EXISTS h",
        "TYPE h",
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "HRANDFIELD h",
        "HRANDFIELD h 3",
        "RENAME h k",
        "COPY h k",
        "OBJECT ENCODING h",
        "TTL h",
    ] {
        on_every_encoding(|cli, _| {
            cli.run("FLUSHALL");
            let empty = cli.run(line);
            cli.check("HSETEX h PX 10 FIELDS 2 a 1 b 2", "(integer) 1");
            cli.advance_ms(10);
            if line != "DBSIZE" {
                cli.events();
                cli.check(line, &empty);
                let events = cli.events();
                // KEYS does not delete expired keys.
                assert!(
                    events == "h:hexpired h, g:del h" || line == "KEYS *",
                    "{line}: {events}"
                );
            }
            cli.check("SET h 1", "OK");
            cli.check("TTL h", "(integer) -1");
        });
    }
}

#[test]
fn deadlines_of_key_and_fields_go_together() {
    on_every_encoding(|cli, _| {
        cli.check_all(&[
            ("HSET h a 1 b 2 c 3", "(integer) 3"),
            ("PEXPIRE h 1000", "(integer) 1"),
            ("HPEXPIRE h 500 FIELDS 1 a", "1) (integer) 1"),
            ("HPEXPIRE h 5000 FIELDS 1 b", "1) (integer) 1"),
            ("PTTL h", "(integer) 1000"),
        ]);
        cli.advance_ms(500);
        cli.check("HMGET h a b", "1) (nil)\n2) \"2\"");
        cli.check("PTTL h", "(integer) 500");
        cli.advance_ms(500);
        cli.check("HLEN h", "(integer) 2");
        cli.events();
        cli.advance_ms(1);
        cli.check("HLEN h", "(integer) 0");
        assert_eq!(cli.events(), "x:expired h");
    });
}

#[test]
fn copies_and_renamed_hashes_keep_the_deadlines_of_fields() {
    on_every_encoding(|cli, encoding| {
        cli.check_all(&[
            ("HSET h a 1 b 2", "(integer) 2"),
            ("HPEXPIRE h 500 FIELDS 1 a", "1) (integer) 1"),
            ("COPY h {other}copy", "(integer) 1"),
            ("RENAME h {more}name", "OK"),
        ]);
        for key in ["{other}copy", "{more}name"] {
            assert_eq!(cli.encoding(key), encoding);
            cli.check(
                &format!("HPTTL {key} FIELDS 2 a b"),
                "1) (integer) 500\n2) (integer) -1",
            );
        }
        cli.advance_ms(500);
        for key in ["{other}copy", "{more}name"] {
            cli.check(&format!("HKEYS {key}"), "1) \"b\"");
        }
    });
}

#[test]
fn a_table_is_walked_by_hscan_whatever_happens_meanwhile() {
    on_every_setup(|cli| {
        for index in 0..2_000 {
            cli.run(&format!("HSET h f{index} {index}"));
        }
        assert_eq!(cli.encoding("h"), "hashtable");
        let (mut cursor, mut seen, mut calls) = (String::from("0"), BTreeMap::new(), 0);
        loop {
            let reply = strings(cli, &words(&format!("HSCAN h {cursor} COUNT 50")));
            cursor.clone_from(&reply[0]);
            for pair in reply[1..].chunks(2) {
                seen.insert(pair[0].clone(), pair[1].clone());
            }
            calls += 1;
            // Fields are added and deleted; those below 2,000 with an even number stay.
            cli.run(&format!("HDEL h f{}", 2 * calls + 1));
            cli.run(&format!("HSET h g{calls} x"));
            if cursor == "0" {
                break;
            }
        }
        assert!(calls >= 20, "{calls} calls");
        for index in (0..2_000).step_by(2) {
            assert_eq!(seen.get(&format!("f{index}")), Some(&index.to_string()));
        }
        let reply = strings(cli, &words("HSCAN h 0 COUNT 5000 MATCH f199? NOVALUES"));
        assert_eq!(reply[0], "0");
        let names: BTreeSet<&String> = reply[1..].iter().collect();
        assert_eq!(names.len(), reply.len() - 1);
        assert!(names.len() >= 5, "{names:?}");
    });
}

#[test]
fn hscan_novalues_answers_names_only() {
    on_every_encoding(|cli, _| {
        cli.check_all(&[
            ("HSET h a 1", "(integer) 1"),
            ("HSCAN h 0 NOVALUES", "1) \"0\"\n2) 1) \"a\""),
            (
                "HSCAN h 0 novalues COUNT 5 MATCH b*",
                "1) \"0\"\n2) (empty array)",
            ),
        ]);
    });
}

#[test]
fn random_fields_differ_unless_the_count_is_negative() {
    on_every_encoding(|cli, _| {
        for index in 0..100 {
            cli.run(&format!("HSET h f{index} {index}"));
        }
        let mut seen = BTreeSet::new();
        for _ in 0..400 {
            seen.extend(strings(cli, &words("HRANDFIELD h")));
            seen.extend(strings(cli, &words("HRANDFIELD h 3")));
        }
        assert_eq!(seen.len(), 100);
        for count in [1, 2, 10, 33, 34, 50, 99, 100, 1000] {
            let drawn = strings(cli, &words(&format!("HRANDFIELD h {count}")));
            let distinct: BTreeSet<&String> = drawn.iter().collect();
            assert_eq!(distinct.len(), count.min(100));
            assert_eq!(drawn.len(), distinct.len());
            let drawn = strings(cli, &words(&format!("HRANDFIELD h -{count}")));
            assert_eq!(drawn.len(), count);
            let drawn = strings(cli, &words(&format!("HRANDFIELD h {count} WITHVALUES")));
            assert_eq!(drawn.len(), 2 * count.min(100));
            for pair in drawn.chunks(2) {
                assert_eq!(pair[0], format!("f{}", pair[1]));
            }
        }
    });
}

#[test]
fn a_reply_of_random_fields_is_bounded() {
    on_every_encoding(|cli, _| {
        cli.configure(|config| config.proto_max_bulk_len = 1_000);
        cli.check("HSET h field value", "(integer) 1");
        for count in ["-1000000000000", "-167", "-91"] {
            cli.check(
                &format!("HRANDFIELD h {count}"),
                "(error) ERR value is out of range",
            );
        }
        assert_eq!(strings(cli, &words("HRANDFIELD h -90")).len(), 90);
    });
}

#[test]
fn long_values_are_paid_for_as_long_as_a_hash_has_them_to_the_byte() {
    let mut cli = Terminal::new();
    let (a, b) = (&*"a".repeat(100_000), &*"b".repeat(16 * 1024));
    // The memory that the table of keys keeps is known only after the first round.
    let mut before = None;
    let reply = |value: &str| format!("\"{value}\"");
    for _ in 0..3 {
        cli.run_args(&["HSET", "h", "f", a, "g", "short"]);
        cli.run_args(&["HDEL", "h", "g"]);
        let with_one = cli.engines[0].used_bytes();
        assert!(with_one > 100_000);
        assert!(cli.run_args(&["HGET", "h", "f"]) == reply(a));
        // Replaces long and short values, and one with a deadline, which moves the value within its record.
        cli.run_args(&["HSET", "h", "f", b, "f", "short", "g", b, "f", a]);
        assert!(
            cli.run_args(&["HMGET", "h", "f", "g"]) == format!("1) {}\n2) {}", reply(a), reply(b))
        );
        assert!(cli.run_args(&["HGETALL", "h"]).contains(&reply(b)));
        assert_eq!(cli.run_args(&["HSTRLEN", "h", "g"]), "(integer) 16384");
        assert!(cli.run_args(&["HGETDEL", "h", "FIELDS", "1", "g"]) == format!("1) {}", reply(b)));
        assert_eq!(cli.engines[0].used_bytes(), with_one);
        let not_a_number = cli.run_args(&["HINCRBY", "h", "f", "1"]);
        assert_eq!(not_a_number, "(error) ERR hash value is not an integer");
        cli.run("COPY h i");
        assert!(cli.run_args(&["HGET", "h", "f"]) == reply(a));
        cli.run_args(&["HDEL", "i", "f"]);
        cli.run_args(&["DEL", "h", "i"]);
        let used = cli.engines[0].used_bytes();
        assert_eq!(used, *before.get_or_insert(used));
    }
    // A deadline, for which records get another layout, does not change what is shared.
    cli.run_args(&["HSET", "h", "f", a, "g", b]);
    cli.run_args(&["HEXPIRE", "h", "100", "FIELDS", "1", "f"]);
    assert!(cli.run_args(&["HGET", "h", "f"]) == reply(a));
    cli.run_args(&["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", b]);
    assert!(cli.run_args(&["HGET", "h", "f"]) == reply(b));
    cli.run_args(&["HPERSIST", "h", "FIELDS", "1", "f"]);
    cli.run_args(&["HSETEX", "h", "PX", "10", "FIELDS", "1", "g", a]);
    assert!(cli.run_args(&["HGETALL", "h"]).contains(&reply(a)));
    cli.advance_ms(11);
    assert_eq!(cli.run_args(&["HGET", "h", "g"]), "(nil)");
    assert!(cli.run_args(&["HGET", "h", "f"]) == reply(b));
}
