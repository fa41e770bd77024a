//! Cases that the transcripts cannot show: events, times, memory, RESP3, and features newer than Redis 7.0.

use crate::command::testing::{Terminal, check_all, check_transcript, on_every_setup};
use basalt_core::resp::reply::Protocol;

const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn the_transcript_of_redis_holds() {
    check_transcript(
        include_str!("../../../../tests/transcripts/families/stream.txt"),
        |_| {},
    );
}

/// Played in RESP2 only, as maps look different in RESP3.
#[test]
fn the_transcript_of_redis_holds_for_maps() {
    let text = include_str!("../../../../tests/transcripts/families/stream_resp2.txt");
    check_transcript(text, |_| {});
}

#[test]
fn replies_in_resp3_are_maps_where_redis_has_them() {
    let mut cli = Terminal::with(1, Protocol::Resp3);
    for line in ["XADD s 1-1 a 1", "XGROUP CREATE s g 0"] {
        cli.run(line);
    }
    let wire = |cli: &mut Terminal, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        String::from_utf8(cli.reply_bytes(&words)).expect("text")
    };
    let entry = "*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n";
    assert_eq!(
        wire(&mut cli, "XREAD STREAMS s 0"),
        format!("%1\r\n$1\r\ns\r\n*1\r\n{entry}")
    );
    assert_eq!(
        wire(&mut cli, "XREADGROUP GROUP g c STREAMS s >"),
        format!("%1\r\n$1\r\ns\r\n*1\r\n{entry}")
    );
    assert_eq!(wire(&mut cli, "XREAD STREAMS s 5"), "_\r\n");
    assert_eq!(wire(&mut cli, "XRANGE s - + COUNT 0"), "_\r\n");
    assert!(wire(&mut cli, "XINFO STREAM s").starts_with("%16\r\n"));
    assert!(wire(&mut cli, "XINFO STREAM s FULL").starts_with("%15\r\n"));
    assert!(wire(&mut cli, "XINFO GROUPS s").starts_with("*1\r\n%6\r\n"));
    assert!(wire(&mut cli, "XINFO CONSUMERS s g").starts_with("*1\r\n%4\r\n"));
}

#[test]
fn events_are_those_that_redis_notifies_of() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("XADD s 1-1 a 1", "t:xadd s"),
            ("XADD s MAXLEN 1 1-2 a 1", "t:xadd s, t:xtrim s"),
            ("XADD s MAXLEN 9 1-3 a 1", "t:xadd s"),
            ("XADD s 1-1 a 1", ""),
            ("XADD none NOMKSTREAM 1-1 a 1", ""),
            ("XTRIM s MAXLEN 1", "t:xtrim s"),
            ("XTRIM s MAXLEN 1", ""),
            ("XDEL s 9", ""),
            ("XGROUP CREATE s g 0", "t:xgroup-create s"),
            ("XGROUP CREATE s g 0", ""),
            ("XGROUP SETID s g 0", "t:xgroup-setid s"),
            ("XGROUP CREATECONSUMER s g c", "t:xgroup-createconsumer s"),
            ("XGROUP CREATECONSUMER s g c", ""),
            (
                "XREADGROUP GROUP g d STREAMS s >",
                "t:xgroup-createconsumer s, \0:xreadgroup s",
            ),
            ("XREADGROUP GROUP g d STREAMS s >", ""),
            ("XREADGROUP GROUP g d STREAMS s 0", "\0:xclaim s"),
            ("XREADGROUP GROUP g d STREAMS s 5", ""),
            (
                "XCLAIM s g e 0 1-3",
                "t:xgroup-createconsumer s, \0:xclaim s",
            ),
            ("XCLAIM s g e 0 7-7", ""),
            ("XAUTOCLAIM s g c 0 -", "\0:xclaim s"),
            ("XACK s g 1-3", "\0:xack s"),
            ("XACK s g 1-3", ""),
            ("XGROUP DELCONSUMER s g c", "t:xgroup-delconsumer s"),
            ("XGROUP DELCONSUMER s g c", ""),
            ("XGROUP DESTROY s g", "t:xgroup-destroy s"),
            ("XGROUP DESTROY s g", ""),
            ("XSETID s 9", "t:xsetid s"),
            ("XDEL s 1-3", "t:xdel s"),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn ids_follow_the_clock_and_never_go_back() {
    on_every_setup(|cli| {
        let now_ms = cli.now_ms;
        cli.check("XADD s * a 1", &format!("\"{now_ms}-0\""));
        cli.check("XADD s * a 1", &format!("\"{now_ms}-1\""));
        cli.advance_ms(5);
        cli.check("XADD s * a 1", &format!("\"{}-0\"", now_ms + 5));
        cli.now_ms = now_ms;
        cli.check("XADD s * a 1", &format!("\"{}-1\"", now_ms + 5));
    });
}

#[test]
fn an_exhausted_millisecond_is_no_reason_to_go_back() {
    check_all(&[
        (
            "XADD s 5-18446744073709551615 a b",
            "\"5-18446744073709551615\"",
        ),
        (
            "XADD s 5-* a b",
            "(error) ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD s 6-* a b", "\"6-0\""),
    ]);
}

#[test]
fn idle_times_are_counted_from_the_last_delivery() {
    on_every_setup(|cli| {
        cli.run("XADD s 1-1 a 1");
        cli.run("XADD s 1-2 a 1");
        cli.run("XGROUP CREATE s g 0");
        cli.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >");
        cli.advance_ms(100);
        cli.run("XREADGROUP GROUP g d STREAMS s >");
        cli.advance_ms(20);
        cli.check_all(&[
            (
                "XPENDING s g - + 10",
                "1) 1) \"1-1\"\n   2) \"c\"\n   3) (integer) 120\n   4) (integer) 1\n\
                 2) 1) \"1-2\"\n   2) \"d\"\n   3) (integer) 20\n   4) (integer) 1",
            ),
            (
                "XPENDING s g IDLE 50 - + 10",
                "1) 1) \"1-1\"\n   2) \"c\"\n   3) (integer) 120\n   4) (integer) 1",
            ),
            ("XPENDING s g IDLE 121 - + 10", "(empty array)"),
            (
                "XPENDING s g - + 10 d",
                "1) 1) \"1-2\"\n   2) \"d\"\n   3) (integer) 20\n   4) (integer) 1",
            ),
            ("XCLAIM s g d 121 1-1 JUSTID", "(empty array)"),
            ("XCLAIM s g d 120 1-1 IDLE 77 JUSTID", "1) \"1-1\""),
            (
                "XPENDING s g - + 10 d",
                "1) 1) \"1-1\"\n   2) \"d\"\n   3) (integer) 77\n   4) (integer) 1\n\
                 2) 1) \"1-2\"\n   2) \"d\"\n   3) (integer) 20\n   4) (integer) 1",
            ),
            (
                "XAUTOCLAIM s g e 50 - COUNT 1",
                "1) \"1-2\"\n2) 1) 1) \"1-1\"\n      2) 1) \"a\"\n         2) \"1\"\n3) (empty array)",
            ),
            (
                "XPENDING s g - + 10 e",
                "1) 1) \"1-1\"\n   2) \"e\"\n   3) (integer) 0\n   4) (integer) 2",
            ),
        ]);
    });
}

/// From 7.2 on, attempts to read are distinguished from successful ones.
#[test]
fn consumers_were_seen_when_they_asked_and_active_when_they_got_something() {
    let mut cli = Terminal::new();
    cli.run("XGROUP CREATE s g $ MKSTREAM");
    cli.run("XREADGROUP GROUP g c STREAMS s >");
    cli.advance_ms(100);
    let consumer = |idle: u64, inactive: i64, pending: u64| {
        format!(
            "1) 1) \"name\"\n   2) \"c\"\n   3) \"pending\"\n   4) (integer) {pending}\n   \
             5) \"idle\"\n   6) (integer) {idle}\n   7) \"inactive\"\n   8) (integer) {inactive}"
        )
    };
    cli.check("XINFO CONSUMERS s g", &consumer(100, -1, 0));
    cli.run("XADD s 1-1 f v");
    cli.run("XREADGROUP GROUP g c STREAMS s >");
    cli.advance_ms(100);
    cli.check("XINFO CONSUMERS s g", &consumer(100, 100, 1));
    cli.run("XREADGROUP GROUP g c STREAMS s >");
    cli.advance_ms(50);
    cli.check("XINFO CONSUMERS s g", &consumer(50, 150, 1));
    let full = cli.run("XINFO STREAM s FULL");
    let at = |ms: u64| format!("(integer) {}", cli.now_ms - ms);
    assert!(
        full.contains("\"seen-time\"") && full.contains(&at(50)),
        "{full}"
    );
    assert!(
        full.contains("\"active-time\"") && full.contains(&at(150)),
        "{full}"
    );
}

/// Expected replies are from the documentation of Redis 7.4.
#[test]
fn xread_answers_the_last_entry_for_a_plus() {
    let last = "1) 1) \"s\"\n   2) 1) 1) \"1-3\"\n         2) 1) \"a\"\n            2) \"3\"";
    let mut cli = Terminal::new();
    cli.check("XREAD STREAMS s +", "(nil)");
    for line in [
        "XADD s 1-1 a 1",
        "XADD s 1-3 a 3",
        "XADD s 1-5 a 5",
        "XDEL s 1-5",
    ] {
        cli.run(line);
    }
    cli.check("XREAD STREAMS s +", last);
    cli.check("XREAD COUNT 5 STREAMS s none + +", last);
    cli.run("XGROUP CREATE s g 0");
    assert!(
        cli.run("XREADGROUP GROUP g c STREAMS s +")
            .starts_with("(error) ERR The + ID is meaningless")
    );
}

/// Returns the number of entries of each stream in a reply, in its order.
fn counts(reply: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for line in reply.lines() {
        let text = line
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .trim_matches('"');
        match text {
            "a" | "b" | "c" if line.contains("1) \"") => found.push((text.to_owned(), 0)),
            text if text.contains('-') => found.last_mut().expect("a stream").1 += 1,
            _ => {}
        }
    }
    found
}

/// Expected replies are from the documentation of Redis 8.10.
#[test]
fn bounds_of_a_read_are_of_all_streams_together() {
    let wanted = |found: &[(&str, usize)]| -> Vec<(String, usize)> {
        let owned = |(name, count): &(&str, usize)| ((*name).to_owned(), *count);
        found.iter().map(owned).collect()
    };
    on_every_setup(|cli| {
        if cli.connection.protocol != basalt_core::resp::reply::Protocol::Resp2 {
            return;
        }
        for key in ["a", "b", "c"] {
            for seq in 1..=10 {
                cli.run(&format!("XADD {key} 1-{seq} f {}", "v".repeat(20)));
            }
            cli.run(&format!("XGROUP CREATE {key} g 0"));
        }
        for (bounds, found) in [
            ("COUNT 5", &[("a", 5), ("b", 5), ("c", 5)][..]),
            ("COUNT 5 MAXCOUNT 8", &[("a", 5), ("b", 3)]),
            ("MAXCOUNT 7", &[("a", 7)]),
            ("MAXCOUNT 12", &[("a", 10), ("b", 2)]),
            ("MAXCOUNT 30", &[("a", 10), ("b", 10), ("c", 10)]),
            ("MAXCOUNT 5 MAXSIZE 100000", &[("a", 5)]),
            ("MAXSIZE 1", &[("a", 1)]),
            ("MAXSIZE 200", &[("a", 3)]),
            ("COUNT 2 MAXSIZE 200", &[("a", 2), ("b", 1)]),
        ] {
            let reply = cli.run(&format!("XREAD {bounds} STREAMS a b c 0 0 0"));
            assert_eq!(counts(&reply), wanted(found), "{bounds}");
            let reply = cli.run(&format!(
                "XREADGROUP GROUP g {} {bounds} STREAMS a b c > > >",
                "x"
            ));
            assert_eq!(counts(&reply), wanted(found), "{bounds}");
            // The entries that were left out are not pending with any consumer.
            for (key, count) in found {
                cli.check(
                    &format!("XREADGROUP GROUP g x MAXCOUNT 100 STREAMS {key} 0"),
                    &cli_history(key, *count),
                );
                cli.run(&format!("XGROUP DESTROY {key} g"));
                cli.run(&format!("XGROUP CREATE {key} g 0"));
            }
        }
        let positive = "(error) ERR value is out of range, must be positive";
        let integer = "(error) ERR value is not an integer or out of range";
        for (bounds, error) in [
            ("MAXCOUNT 0", positive),
            ("MAXCOUNT -1", positive),
            ("MAXSIZE 0", positive),
            ("MAXCOUNT x", integer),
            ("MAXSIZE 1.5", integer),
            (
                "COUNT 5 MAXCOUNT 4",
                "(error) ERR MAXCOUNT must be greater than or equal to COUNT",
            ),
        ] {
            cli.check(&format!("XREAD {bounds} STREAMS a 0"), error);
            cli.check(&format!("XREADGROUP GROUP g c {bounds} STREAMS a >"), error);
        }
    });
}

/// Returns the expected reply with `count` entries of a stream.
fn cli_history(key: &str, count: usize) -> String {
    let value = "v".repeat(20);
    let mut lines = Vec::new();
    for number in 1..=count {
        let indent = if number == 1 {
            format!("1) 1) \"{key}\"\n   2) ")
        } else {
            " ".repeat(6)
        };
        let width = count.to_string().len();
        lines.push(format!("{indent}{number:>width$}) 1) \"1-{number}\""));
        let pad = " ".repeat(6 + width + 2);
        lines.push(format!("{pad}2) 1) \"f\"\n{pad}   2) \"{value}\""));
    }
    lines.join("\n")
}

/// Expected replies are from the documentation of Redis 8.4.
#[test]
fn xreadgroup_claims_what_was_pending_for_long_before_it_reads() {
    let mut cli = Terminal::new();
    for seq in 1..=5 {
        cli.run(&format!("XADD s 1-{seq} f {seq}"));
    }
    cli.run("XGROUP CREATE s g 0");
    cli.run("XREADGROUP GROUP g one COUNT 2 STREAMS s >");
    cli.advance_ms(50);
    cli.run("XREADGROUP GROUP g one COUNT 1 STREAMS s >");
    // The second entry was delivered again meanwhile, so that the first has been idle for longer.
    cli.run("XCLAIM s g one 0 1-2 JUSTID");
    cli.advance_ms(30);
    cli.check(
        "XREADGROUP GROUP g two CLAIM 31 STREAMS s >",
        "1) 1) \"s\"\n   2) 1) 1) \"1-1\"\n         2) 1) \"f\"\n            2) \"1\"\n         \
         3) (integer) 80\n         4) (integer) 1\n      2) 1) \"1-4\"\n         2) 1) \"f\"\n            \
         2) \"4\"\n         3) (integer) 0\n         4) (integer) 0\n      3) 1) \"1-5\"\n         \
         2) 1) \"f\"\n            2) \"5\"\n         3) (integer) 0\n         4) (integer) 0",
    );
    cli.check(
        "XPENDING s g - + 10 two",
        "1) 1) \"1-1\"\n   2) \"two\"\n   3) (integer) 0\n   4) (integer) 2\n2) 1) \"1-4\"\n   2) \"two\"\n   \
         3) (integer) 0\n   4) (integer) 1\n3) 1) \"1-5\"\n   2) \"two\"\n   3) (integer) 0\n   4) (integer) 1",
    );
    // Entries that count against the limits, and those deleted from the stream.
    cli.run("XDEL s 1-2");
    cli.check(
        "XREADGROUP GROUP g three COUNT 1 CLAIM 0 NOACK STREAMS s >",
        "1) 1) \"s\"\n   2) 1) 1) \"1-3\"\n         2) 1) \"f\"\n            2) \"3\"\n         \
         3) (integer) 30\n         4) (integer) 1",
    );
    cli.check("XREADGROUP GROUP g three CLAIM 1000 STREAMS s >", "(nil)");
    // With an ID other than `>` the option is ignored.
    cli.check(
        "XREADGROUP GROUP g three CLAIM 0 STREAMS s 1-3",
        "1) 1) \"s\"\n   2) (empty array)",
    );
    for line in ["CLAIM -1", "CLAIM x", "CLAIM 9223372036854775808"] {
        cli.check(
            &format!("XREADGROUP GROUP g c {line} STREAMS s >"),
            "(error) ERR min-idle-time must be a non-negative integer",
        );
    }
    cli.check(
        "XREAD CLAIM 0 STREAMS s 0",
        "(error) ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
    );
    cli.check(
        "XREADGROUP GROUP g c CLAIM",
        "(error) ERR wrong number of arguments for 'xreadgroup' command",
    );
}

/// Expected replies are from the documentation of Redis 8.2.
#[test]
fn xdelex_answers_for_each_id() {
    on_every_setup(|cli| {
        let prepare = |cli: &mut Terminal| {
            cli.run("DEL s");
            for seq in 1..=4 {
                cli.run(&format!("XADD s 1-{seq} a {seq}"));
            }
            cli.run("XGROUP CREATE s g 0");
            cli.run("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
            cli.run("XACK s g 1-1");
        };
        prepare(cli);
        cli.check_all(&[
            (
                "XDELEX s IDS 3 1-1 1-2 9-9",
                "1) (integer) 1\n2) (integer) 1\n3) (integer) -1",
            ),
            (
                "XPENDING s g",
                "1) (integer) 2\n2) \"1-2\"\n3) \"1-3\"\n4) 1) 1) \"c\"\n      2) \"2\"",
            ),
            ("XDELEX s IDS 1 1-2 DELREF", "1) (integer) -1"),
            (
                "XPENDING s g",
                "1) (integer) 1\n2) \"1-3\"\n3) \"1-3\"\n4) 1) 1) \"c\"\n      2) \"1\"",
            ),
            ("XDELEX s DELREF IDS 1 1-3", "1) (integer) 1"),
            (
                "XPENDING s g",
                "1) (integer) 0\n2) (nil)\n3) (nil)\n4) (nil)",
            ),
            (
                "XDELEX none IDS 2 1-1 1-2",
                "1) (integer) -1\n2) (integer) -1",
            ),
        ]);
        prepare(cli);
        // 1-1 is acknowledged, 1-2 and 1-3 are pending, 1-4 was not read.
        cli.check(
            "XDELEX s ACKED IDS 5 1-1 1-2 1-3 1-4 1-5",
            "1) (integer) 1\n2) (integer) 2\n3) (integer) 2\n4) (integer) 2\n5) (integer) -1",
        );
        cli.check("XLEN s", "(integer) 3");
        cli.run("XGROUP DESTROY s g");
        cli.check("XDELEX s ACKED IDS 1 1-2", "1) (integer) 1");
        cli.check("XDELEX s KEEPREF IDS 1 1-3", "1) (integer) 1");
    });
}

/// Expected replies are from the documentation of Redis 8.2.
#[test]
fn xackdel_acknowledges_and_deletes() {
    on_every_setup(|cli| {
        for seq in 1..=5 {
            cli.run(&format!("XADD s 1-{seq} a {seq}"));
        }
        for group in ["g", "h"] {
            cli.run(&format!("XGROUP CREATE s {group} 0"));
            cli.run(&format!("XREADGROUP GROUP {group} c COUNT 4 STREAMS s >"));
        }
        cli.events();
        cli.check_all(&[
            (
                "XACKDEL s g IDS 3 1-1 1-5 9-9",
                "1) (integer) 1\n2) (integer) -1\n3) (integer) -1",
            ),
            ("XLEN s", "(integer) 4"),
            (
                "XPENDING s h",
                "1) (integer) 4\n2) \"1-1\"\n3) \"1-4\"\n4) 1) 1) \"c\"\n      2) \"4\"",
            ),
            ("XACKDEL s g ACKED IDS 1 1-2", "1) (integer) 2"),
            ("XACKDEL s g ACKED IDS 1 1-2", "1) (integer) -1"),
            ("XACKDEL s h ACKED IDS 1 1-2", "1) (integer) 1"),
            ("XACKDEL s g DELREF IDS 1 1-3", "1) (integer) 1"),
            (
                "XPENDING s h",
                "1) (integer) 2\n2) \"1-1\"\n3) \"1-4\"\n4) 1) 1) \"c\"\n      2) \"2\"",
            ),
            ("XACKDEL s h DELREF IDS 1 1-1", "1) (integer) 1"),
            ("XACKDEL s none IDS 1 1-4", "1) (integer) -1"),
            ("XACKDEL none g IDS 1 1-4", "1) (integer) -1"),
            ("XLEN s", "(integer) 2"),
        ]);
        assert_eq!(
            cli.events(),
            "t:xdel s, \0:xack s, t:xdel s, t:xdel s, \0:xack s"
        );
    });
}

#[test]
fn blocks_of_ids_are_checked() {
    const SYNTAX: &str = "(error) ERR syntax error";
    const POSITIVE: &str = "(error) ERR Number of IDs must be a positive integer";
    const MATCH: &str = "(error) ERR The `numids` parameter must match the number of arguments";
    const INVALID: &str = "(error) ERR Invalid stream ID specified as stream command argument";
    on_every_setup(|cli| {
        cli.run("XADD s 1-1 a 1");
        cli.run("XGROUP CREATE s g 0");
        for (line, error) in [
            ("IDS abc 1-1", POSITIVE),
            ("IDS 0 1-1", POSITIVE),
            ("IDS -5 1-1", POSITIVE),
            ("IDS 3 1-1 2-2", MATCH),
            ("IDS 9223372036854775807 1-1 2-2", MATCH),
            ("IDS 1 1-1 2-2", SYNTAX),
            ("IDS 1 1-1 IDS 1 1-1", SYNTAX),
            ("KEEPREF DELREF IDS 1 1-1", SYNTAX),
            ("KEEPREF ACKED FOO", SYNTAX),
            ("DELREF 1-1 IDS", SYNTAX),
            ("IDS 1 x", INVALID),
            ("IDS 1 1-*", INVALID),
        ] {
            cli.check(&format!("XDELEX s {line}"), error);
            cli.check(&format!("XACKDEL s g {line}"), error);
        }
        cli.check("XLEN s", "(integer) 1");
        // If there is no stream, or no group, the IDs are not checked, as in Redis.
        cli.check("XDELEX none IDS 1 x", "1) (integer) -1");
        cli.check("XACKDEL none g IDS 1 x", "1) (integer) -1");
        cli.check("XACKDEL s none IDS 1 x", "1) (integer) -1");
        cli.check("XDELEX none IDS 1 1-1 2-2", SYNTAX);
        cli.put_other_type("list");
        cli.check("XDELEX list IDS 0 x", WRONG_TYPE);
        cli.check("XDELEX list IDS 1 1-1", WRONG_TYPE);
        cli.check("XACKDEL list g IDS 1 1-1", WRONG_TYPE);
    });
}

/// Expected replies are from the documentation of Redis 8.2.
#[test]
fn trimming_may_spare_what_groups_need() {
    on_every_setup(|cli| {
        for seq in 1..=4 {
            cli.run(&format!("XADD s 1-{seq} a {seq}"));
        }
        cli.run("XGROUP CREATE s g 0");
        cli.run("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        cli.run("XACK s g 1-2");
        cli.check_all(&[
            ("XTRIM s MAXLEN 0 ACKED", "(integer) 1"),
            ("XLEN s", "(integer) 3"),
            ("XADD s ACKED MAXLEN = 1 1-5 a 5", "\"1-5\""),
            ("XLEN s", "(integer) 4"),
            ("XTRIM s MINID 1-2 DELREF", "(integer) 1"),
            (
                "XPENDING s g",
                "1) (integer) 1\n2) \"1-3\"\n3) \"1-3\"\n4) 1) 1) \"c\"\n      2) \"1\"",
            ),
            ("XADD s MAXLEN 1 DELREF 1-6 a 6", "\"1-6\""),
            (
                "XPENDING s g",
                "1) (integer) 0\n2) (nil)\n3) (nil)\n4) (nil)",
            ),
            ("XTRIM s KEEPREF MAXLEN 0", "(integer) 1"),
            ("XTRIM s KEEPREF ACKED MAXLEN 0", "(error) ERR syntax error"),
            (
                "XTRIM s LIMIT 0 ACKED",
                "(error) ERR syntax error, XTRIM must be called with a trimming strategy",
            ),
            ("XTRIM none MAXLEN 0 ACKED", "(integer) 0"),
        ]);
        cli.run("DEL s");
        cli.run("XADD s 1-1 a 1");
        // Without groups no acknowledgement is needed.
        cli.check("XTRIM s MAXLEN 0 ACKED", "(integer) 1");
    });
}

#[test]
fn nodes_are_as_large_as_configured_and_go_whole() {
    let mut cli = Terminal::new();
    cli.configure(|config| config.stream_node_max_entries = 10);
    for seq in 1..=95 {
        cli.run(&format!("XADD s 1-{seq} a 1"));
    }
    let keys = |cli: &mut Terminal, count: u64| {
        let info = cli.run("XINFO STREAM s");
        let wanted = format!("3) \"radix-tree-keys\"\n 4) (integer) {count}");
        assert!(info.contains(&wanted), "{info}");
    };
    keys(&mut cli, 10);
    cli.check("XTRIM s MAXLEN ~ 55", "(integer) 40");
    cli.check("XTRIM s MAXLEN ~ 55", "(integer) 0");
    cli.check("XTRIM s MAXLEN ~ 0 LIMIT 25", "(integer) 20");
    cli.check("XTRIM s MINID ~ 1-75", "(integer) 10");
    cli.check("XLEN s", "(integer) 25");
    cli.check("XTRIM s MAXLEN 3", "(integer) 22");
    keys(&mut cli, 1);
    cli.configure(|config| {
        config.stream_node_max_entries = 0;
        config.stream_node_max_bytes = 60;
    });
    for seq in 1..=4 {
        cli.run(&format!("XADD t 1-{seq} a {}", "x".repeat(40)));
    }
    assert!(cli.run("XINFO STREAM t").contains("(integer) 4\n 5)"));
    // Without a limit of entries per node, approximate trimming has a LIMIT of 10,000.
    cli.configure(|config| config.stream_node_max_bytes = 0);
    cli.check("XTRIM s MAXLEN ~ 0", "(integer) 3");
}

#[test]
fn words_that_look_like_options_confuse_nobody() {
    on_every_setup(|cli| {
        cli.run("XADD streams 1-1 a 1");
        cli.run("XGROUP CREATE streams streams 0");
        assert!(
            cli.run("XREADGROUP GROUP streams streams STREAMS streams >")
                .contains("1-1")
        );
        assert!(cli.run("XREAD STREAMS streams 0").contains("1-1"));
        cli.run("XADD streams 2-1 a 1");
        assert!(
            cli.run("XREADGROUP NOACK GROUP streams streams STREAMS streams >")
                .contains("2-1")
        );
        cli.run("XADD count 3-1 a 1");
        cli.run("XGROUP CREATE count noack 0");
        assert!(
            cli.run("XREADGROUP COUNT 1 BLOCK 1 NOACK GROUP noack count STREAMS count >")
                .contains("3-1")
        );
        cli.check(
            "COMMAND GETKEYS XREADGROUP NOACK GROUP streams streams STREAMS k l > >",
            "1) \"k\"\n2) \"l\"",
        );
        // Keys are found in requests that the command will refuse, as in Redis.
        for refused in [
            "COMMAND GETKEYS XREADGROUP GROUP g c STREAMS k l >",
            "COMMAND GETKEYS XREAD COUNT 1 WHAT STREAMS k >",
        ] {
            cli.check(refused, "1) \"k\"");
        }
        cli.run("XADD s KEEPREF 1-1 MAXLEN 5");
        assert!(cli.run("XRANGE s - +").contains("MAXLEN"));
    });
}

#[test]
fn memory_is_given_back_to_the_byte() {
    let mut cli = Terminal::new();
    cli.run("XADD s 1-1 a 1");
    cli.run("DEL s");
    let before = cli.engines[0].used_bytes();
    for round in 0..3 {
        for seq in 1..=500 {
            cli.run(&format!("XADD s {round}-{seq} field {seq} other value"));
        }
        for line in [
            "XGROUP CREATE s g 0",
            "XGROUP CREATE s h 0",
            "XREADGROUP GROUP g c COUNT 400 STREAMS s >",
            "XREADGROUP GROUP g d STREAMS s >",
            "XREADGROUP GROUP h c NOACK STREAMS s >",
            "XREADGROUP GROUP g c STREAMS s 0",
            "XCLAIM s g e 0 0-1 0-2 0-3 0-4 FORCE",
            "XDEL s 0-7 0-8 0-9",
            "XAUTOCLAIM s g f 0 - COUNT 1000",
            "XACKDEL s g DELREF IDS 2 0-20 0-21",
            "XNACK s g FAIL IDS 3 0-30 0-31 0-32",
            "XGROUP DELCONSUMER s g d",
            "XTRIM s MAXLEN 300",
            "XTRIM s MINID 0-250 DELREF",
            "COPY s t",
            "XADD t MAXLEN ~ 10 9-9 a b",
            "XGROUP DESTROY t g",
            "DEL t",
        ] {
            assert!(!cli.run(line).starts_with("(error)"), "{line}");
        }
        let usage = cli.run("MEMORY USAGE s");
        assert!(usage.starts_with("(integer) "), "{usage}");
        cli.run("DEL s");
        assert_eq!(cli.engines[0].used_bytes(), before);
    }
}

#[test]
fn counts_that_nobody_has_room_for_are_no_harm() {
    let mut cli = Terminal::new();
    cli.run("XADD s 1-1 a 1");
    cli.run("XGROUP CREATE s g 0");
    for line in [
        "XRANGE s - + COUNT 9223372036854775807",
        "XREAD COUNT 9223372036854775807 STREAMS s 0",
        "XREADGROUP GROUP g c COUNT 9223372036854775807 STREAMS s >",
        "XPENDING s g - + 9223372036854775807",
        "XAUTOCLAIM s g c 0 - COUNT 576460752303423487",
        "XINFO STREAM s FULL COUNT 9223372036854775807",
        "XTRIM s MAXLEN 9223372036854775807",
        "XTRIM s MAXLEN ~ 0 LIMIT 9223372036854775807",
        "XSETID s 5-5 ENTRIESADDED 9223372036854775807",
        "XADD s 6-6 a b",
        "XGROUP SETID s g 0 ENTRIESREAD 9223372036854775807",
        "XREADGROUP GROUP g c STREAMS s >",
        "XCLAIM s g c 9223372036854775807 1-1 IDLE -9223372036854775808",
        "XCLAIM s g c 0 6-6 RETRYCOUNT 9223372036854775807",
        "XCLAIM s g c 0 6-6",
        "XINFO GROUPS s",
        "XINFO STREAM s FULL",
    ] {
        assert!(!cli.run(line).starts_with("(error)"), "{line}");
    }
}

#[test]
fn what_is_pending_and_read_again_is_no_change_to_be_saved() {
    on_every_setup(|cli| {
        for line in [
            "XADD s 1-1 a 1",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g c STREAMS s >",
        ] {
            cli.run(line);
        }
        let before = cli.dirty();
        cli.run("XREADGROUP GROUP g c STREAMS s 0");
        assert_eq!(cli.dirty(), before);
        cli.run("XREADGROUP GROUP g d STREAMS s 0");
        assert_eq!(cli.dirty(), before + 1, "a consumer is made");
    });
}
