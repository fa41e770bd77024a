//! Cases that the transcript cannot show: encodings, events, memory, and features newer than Redis 7.0.

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn the_transcript_of_redis_holds() {
    check_transcript(
        include_str!("../../../../tests/transcripts/families/list.txt"),
        |_| {},
    );
}

#[test]
fn the_transcript_of_redis_holds_for_lists_of_many_nodes() {
    for depth in [0, 1] {
        check_transcript(
            include_str!("../../../../tests/transcripts/families/list.txt"),
            |cli| {
                cli.configure(|config| {
                    config.list_max_listpack_size = 1;
                    config.list_compress_depth = depth;
                });
            },
        );
    }
}

fn words(count: usize, word: &str) -> String {
    (0..count)
        .map(|number| format!(" {word}{number}"))
        .collect()
}

#[test]
fn a_list_is_packed_until_it_passes_the_limit_and_again_below_half_of_it() {
    on_every_setup(|cli| {
        cli.configure(|config| config.list_max_listpack_size = 10);
        cli.check(&format!("RPUSH l{}", words(10, "e")), "(integer) 10");
        assert_eq!(cli.encoding("l"), "listpack");
        cli.check("LPUSH l x", "(integer) 11");
        assert_eq!(cli.encoding("l"), "quicklist");
        cli.check("LTRIM l 5 -1", "OK");
        assert_eq!(
            cli.encoding("l"),
            "quicklist",
            "six are more than half of ten"
        );
        cli.check("LPOP l", "\"e4\"");
        assert_eq!(cli.encoding("l"), "listpack");
        cli.check("LRANGE l 0 0", "1) \"e5\"");
    });
}

#[test]
fn bytes_count_when_the_limit_is_one_of_bytes() {
    let mut cli = Terminal::new();
    let long = "x".repeat(4_000);
    cli.check(&format!("RPUSH l {long} {long}"), "(integer) 2");
    assert_eq!(cli.encoding("l"), "listpack");
    cli.check(&format!("RPUSH l {long}"), "(integer) 3");
    assert_eq!(cli.encoding("l"), "quicklist");
    cli.run("RPOP l");
    assert_eq!(cli.encoding("l"), "quicklist");
    cli.run("LPOP l");
    assert_eq!(cli.encoding("l"), "listpack");
    cli.check(&format!("LSET l 0 {}", "y".repeat(9_000)), "OK");
    assert_eq!(cli.encoding("l"), "quicklist");
    cli.check("LSET l 0 short", "OK");
    assert_eq!(cli.encoding("l"), "listpack");
    cli.check(
        &format!("LINSERT l BEFORE short {}", "y".repeat(9_000)),
        "(integer) 2",
    );
    assert_eq!(cli.encoding("l"), "quicklist");
    cli.check("LREM l 0 short", "(integer) 1");
    cli.check("LLEN l", "(integer) 1");
}

#[test]
fn what_changes_nothing_does_not_change_the_encoding() {
    let mut cli = Terminal::new();
    cli.check("RPUSH l a", "(integer) 1");
    let long = "y".repeat(9_000);
    cli.check(&format!("LINSERT l BEFORE none {long}"), "(integer) -1");
    cli.check(
        &format!("LSET l 1 {long}"),
        "(error) ERR index out of range",
    );
    assert_eq!(cli.encoding("l"), "listpack");
}

#[test]
fn events_name_what_happened_and_where() {
    let mut cli = Terminal::with(4, Protocol::Resp2);
    for (line, events) in [
        ("LPUSH l a b", "l:lpush l"),
        ("RPUSH l c d", "l:rpush l"),
        ("LPUSHX none a", ""),
        ("RPUSHX l e", "l:rpush l"),
        ("LSET l 0 x", "l:lset l"),
        ("LINSERT l AFTER x y", "l:linsert l"),
        ("LINSERT l AFTER none y", ""),
        ("LREM l 0 none", ""),
        ("LREM l 0 y", "l:lrem l"),
        ("LTRIM l 0 3", "l:ltrim l"),
        ("LPOP l", "l:lpop l"),
        ("RPOP l 1", "l:rpop l"),
        ("LPOP l 0", ""),
        ("LMOVE l m LEFT RIGHT", "l:rpush m, l:lpop l"),
        ("RPOPLPUSH l m", "l:lpush m, l:rpop l, g:del l"),
        ("LMOVE m m LEFT RIGHT", "l:rpush m, l:lpop m"),
        ("LMPOP 2 l m LEFT COUNT 5", "l:lpop m, g:del m"),
        ("RPUSH l a", "l:rpush l"),
        ("LMOVE l l LEFT LEFT", "l:lpush l, l:lpop l"),
        ("BLPOP l 0", "l:lpop l, g:del l"),
        ("RPUSH l a b c", "l:rpush l"),
        ("BLMOVE l m LEFT RIGHT 0", "l:rpush m, l:lpop l"),
        ("LTRIM l 5 6", "l:ltrim l, g:del l"),
        ("LREM m 0 a", "l:lrem m, g:del m"),
    ] {
        cli.events();
        cli.run(line);
        assert_eq!(cli.events(), events, "{line}");
    }
}

#[test]
fn what_can_not_wait_answers_as_if_its_time_were_over() {
    let mut cli = Terminal::with(4, Protocol::Resp2);
    for (line, wire) in [
        ("BLPOP a b c 0", "*-1\r\n"),
        ("BRPOP a b c 0", "*-1\r\n"),
        ("BLMPOP 0 1 a LEFT", "*-1\r\n"),
        ("BLMOVE a b LEFT LEFT 0", "$-1\r\n"),
        ("BRPOPLPUSH a b 0", "$-1\r\n"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let reply = cli.reply_bytes(&arguments);
        assert_eq!(String::from_utf8_lossy(&reply), wire, "{line}");
    }
}

#[test]
fn nulls_are_of_their_kind() {
    let mut cli = Terminal::with(1, Protocol::Resp2);
    for (line, wire) in [
        ("LPOP none", "$-1\r\n"),
        ("LPOP none 2", "*-1\r\n"),
        ("RPOP none 0", "*-1\r\n"),
        ("LMPOP 1 none LEFT", "*-1\r\n"),
        ("LMOVE none other LEFT LEFT", "$-1\r\n"),
        ("LINDEX none 0", "$-1\r\n"),
        ("LPOS none a", "$-1\r\n"),
        ("LPOS none a COUNT 0", "*0\r\n"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let reply = cli.reply_bytes(&arguments);
        assert_eq!(String::from_utf8_lossy(&reply), wire, "{line}");
    }
}

#[test]
fn the_lowest_rank_has_no_opposite_and_is_refused() {
    let mut cli = Terminal::new();
    cli.check(
        "LPOS l a RANK -9223372036854775808",
        "(error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
}

#[test]
fn an_expired_target_does_not_lose_the_element() {
    on_every_setup(|cli| {
        for number in 0..200 {
            cli.check(&format!("RPUSH s{number} a b"), "(integer) 2");
            cli.check(&format!("RPUSH t{number} old"), "(integer) 1");
            cli.check(&format!("PEXPIRE t{number} 10"), "(integer) 1");
        }
        cli.advance_ms(11);
        for number in 0..200 {
            cli.check(&format!("LMOVE s{number} t{number} LEFT RIGHT"), "\"a\"");
            cli.check(&format!("LRANGE t{number} 0 -1"), "1) \"a\"");
            cli.check(&format!("LRANGE s{number} 0 -1"), "1) \"b\"");
        }
    });
}

#[test]
fn a_shard_pays_for_its_lists_to_the_byte() {
    let mut cli = Terminal::new();
    cli.run("SET warm up");
    cli.run("DEL warm");
    let before = cli.engines[0].used_bytes();
    for round in 0..3 {
        for number in 0..2_000 {
            cli.run(&format!(
                "{} l element:{number:08}",
                ["LPUSH", "RPUSH"][number % 2]
            ));
        }
        cli.run("COPY l m");
        cli.run("LREM m 0 element:00000100");
        cli.run("LTRIM m 10 -10");
        cli.run("LINSERT l BEFORE element:00000007 here");
        for _ in 0..700 {
            cli.run("RPOP l");
            cli.run("LPOP l 2");
            cli.run("LMOVE m l LEFT RIGHT");
        }
        if round == 1 {
            cli.run("RENAME l other");
            cli.run("DEL other");
        }
    }
    cli.run("LPOP l 100000");
    cli.run("DEL m");
    assert_eq!(cli.engines[0].used_bytes(), before);
}

#[test]
fn long_elements_are_paid_for_as_long_as_a_list_has_them_to_the_byte() {
    let mut cli = Terminal::with(2, Protocol::Resp2);
    let long = |letter: &str, len: usize| letter.repeat(len);
    let (a, b, c) = (
        &*long("a", 100_000),
        &*long("b", 16 * 1024),
        &*long("c", 16 * 1024 - 1),
    );
    let used = |cli: &Terminal| -> [i64; 2] { [0, 1].map(|shard| cli.engines[shard].used_bytes()) };
    // The memory that tables keep is known only after the first round.
    let mut before = None;
    // The keys are in different shards.
    let (source, target) = ("foo", "bar");
    let reply = |element: &str| format!("\"{element}\"");
    for _ in 0..3 {
        cli.run_args(&["RPUSH", source, a, "short", b, c]);
        let with_all = used(&cli);
        assert!(with_all[0].max(with_all[1]) > 132_000);
        for element in [a, "short", b, c] {
            // The element is rotated within its own list, while replies share it.
            assert!(
                cli.run_args(&["LRANGE", source, "0", "0"]) == format!("1) {}", reply(element))
            );
            assert!(cli.run_args(&["LMOVE", source, source, "LEFT", "RIGHT"]) == reply(element));
            assert!(cli.run_args(&["LINDEX", source, "-1"]) == reply(element));
        }
        assert_eq!(used(&cli), with_all);
        for element in [a, "short", b, c] {
            assert!(cli.run_args(&["LMOVE", source, target, "LEFT", "RIGHT"]) == reply(element));
        }
        // The memory that the source's shard was charged for is now charged to the target's.
        assert_eq!(
            used(&cli).map(|bytes| bytes > 132_000),
            with_all.map(|bytes| bytes < 132_000)
        );
        assert!(
            cli.run_args(&["RPOP", target, "2"]) == format!("1) {}\n2) {}", reply(c), reply(b))
        );
        assert_eq!(cli.run_args(&["COPY", target, source]), "(integer) 1");
        assert!(cli.run_args(&["LMPOP", "1", source, "LEFT"]).contains(a));
        assert!(cli.run_args(&["LPOP", target]) == reply(a));
        cli.run_args(&["LSET", target, "0", b]);
        cli.run_args(&["LINSERT", target, "AFTER", b, a]);
        assert_eq!(cli.run_args(&["LREM", target, "0", b]), "(integer) 1");
        assert!(cli.run_args(&["LRANGE", target, "0", "-1"]) == format!("1) {}", reply(a)));
        cli.run_args(&["LTRIM", target, "1", "0"]);
        cli.run_args(&["DEL", source]);
        assert_eq!(used(&cli), *before.get_or_insert_with(|| used(&cli)));
    }
}

#[test]
fn elements_of_16_bytes_take_18_and_a_half_at_most() {
    const COUNT: usize = 100_000;
    for command in ["LPUSH", "RPUSH"] {
        let mut cli = Terminal::new();
        for chunk in 0..COUNT / 100 {
            let mut arguments = vec![command.to_owned(), "l".to_owned()];
            arguments.extend((0..100).map(|number| format!("element:{:08}", chunk * 100 + number)));
            cli.run_args(&arguments);
        }
        let each = cli.engines[0].used_bytes() as f64 / COUNT as f64;
        assert!(each <= 18.5, "{each} bytes each after {command}");
    }
}

#[test]
fn lmovem_moves_several_elements_in_either_order() {
    // For each pair of ends: the rest of the source `1 2 3 4`, the new value of the target `x`, and the reply.
    for (ends, order, left, target, reply) in [
        ("LEFT LEFT", "OBO", "3 4", "2 1 x", "2 1"),
        ("LEFT RIGHT", "OBO", "3 4", "x 1 2", "1 2"),
        ("RIGHT LEFT", "OBO", "1 2", "3 4 x", "3 4"),
        ("RIGHT RIGHT", "OBO", "1 2", "x 4 3", "4 3"),
        ("LEFT LEFT", "BULK", "3 4", "1 2 x", "1 2"),
        ("LEFT RIGHT", "BULK", "3 4", "x 1 2", "1 2"),
        ("RIGHT LEFT", "BULK", "1 2", "3 4 x", "3 4"),
        ("RIGHT RIGHT", "BULK", "1 2", "x 3 4", "3 4"),
    ] {
        let shown = |words: &str| {
            let words = words.split(' ').enumerate();
            let lines: Vec<String> = words
                .map(|(number, word)| format!("{}) \"{word}\"", number + 1))
                .collect();
            lines.join("\n")
        };
        for count in ["COUNT", "EXACTLY"] {
            on_every_setup(|cli| {
                cli.run("RPUSH l 1 2 3 4");
                cli.run("RPUSH t x");
                cli.check(
                    &format!("LMOVEM l t {ends} {count} 2 {order}"),
                    &shown(reply),
                );
                cli.check("LRANGE l 0 -1", &shown(left));
                cli.check("LRANGE t 0 -1", &shown(target));
                cli.check(&format!("BLMOVEM t l {ends} 0 {count} 3 {order}"), &{
                    let moved: Vec<&str> = target.split(' ').collect();
                    let moved: Vec<&str> = match (ends, order) {
                        ("LEFT LEFT" | "RIGHT RIGHT", "OBO") => moved.into_iter().rev().collect(),
                        _ => moved,
                    };
                    shown(&moved.join(" "))
                });
                cli.check("EXISTS t", "(integer) 0");
            });
        }
    }
}

#[test]
fn lmovem_turns_a_single_list_in_place() {
    for (line, list) in [
        ("LMOVEM l l LEFT LEFT EXACTLY 2 OBO", "b a c d"),
        ("LMOVEM l l RIGHT RIGHT EXACTLY 3 OBO", "a d c b"),
        ("LMOVEM l l LEFT RIGHT COUNT 3 OBO", "d a b c"),
        ("LMOVEM l l RIGHT LEFT COUNT 3 OBO", "b c d a"),
        ("LMOVEM l l LEFT RIGHT COUNT 3 BULK", "d a b c"),
        ("LMOVEM l l LEFT LEFT COUNT 3 BULK", "a b c d"),
        ("LMOVEM l l LEFT RIGHT COUNT 9 BULK", "a b c d"),
        ("LMOVEM l l LEFT LEFT COUNT 9 OBO", "d c b a"),
        ("LMOVEM l l LEFT RIGHT", "b c d a"),
    ] {
        on_every_setup(|cli| {
            cli.run("RPUSH l a b c d");
            cli.run("EXPIRE l 100");
            cli.run(line);
            let words = list.split(' ').enumerate();
            let shown: Vec<String> = words
                .map(|(number, word)| format!("{}) \"{word}\"", number + 1))
                .collect();
            cli.check("LRANGE l 0 -1", &shown.join("\n"));
            cli.check("TTL l", "(integer) 100");
        });
    }
}

#[test]
fn lmovem_says_what_is_wrong_and_moves_nothing() {
    const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
    const SYNTAX: &str = "(error) ERR syntax error";
    const COUNT: &str = "(error) ERR count should be greater than 0";
    on_every_setup(|cli| {
        let empty = "(nil)";
        cli.run("RPUSH l a b");
        cli.run("SET s v");
        cli.check_all(&[
            ("LMOVEM none t LEFT LEFT", empty),
            ("LMOVEM none t LEFT LEFT COUNT 2 OBO", empty),
            ("LMOVEM none t LEFT LEFT EXACTLY 2 OBO", "(nil)"),
            ("LMOVEM l t LEFT LEFT EXACTLY 3 BULK", "(nil)"),
            ("LMOVEM l t UP LEFT", SYNTAX),
            ("LMOVEM l t LEFT DOWN", SYNTAX),
            ("LMOVEM l t LEFT LEFT COUNT 2", SYNTAX),
            ("LMOVEM l t LEFT LEFT COUNT", SYNTAX),
            ("LMOVEM l t LEFT LEFT SOME 2 OBO", SYNTAX),
            ("LMOVEM l t LEFT LEFT COUNT 2 TWICE", SYNTAX),
            ("LMOVEM l t LEFT LEFT COUNT 2 OBO x", SYNTAX),
            ("LMOVEM l t LEFT LEFT COUNT 0 OBO", COUNT),
            ("LMOVEM l t LEFT LEFT COUNT -1 OBO", COUNT),
            ("LMOVEM l t LEFT LEFT EXACTLY x OBO", COUNT),
            (
                "LMOVEM l t LEFT LEFT EXACTLY 9223372036854775808 OBO",
                COUNT,
            ),
            ("LMOVEM s t LEFT LEFT", WRONG),
            ("LMOVEM l s LEFT LEFT", WRONG),
            ("LMOVEM none s LEFT LEFT", empty),
            (
                "BLMOVEM l t LEFT LEFT x",
                "(error) ERR timeout is not a float or out of range",
            ),
            (
                "BLMOVEM l t LEFT LEFT -1",
                "(error) ERR timeout is negative",
            ),
            ("BLMOVEM l t LEFT LEFT 0 COUNT 1", SYNTAX),
            ("EXISTS t", "(integer) 0"),
            ("LRANGE l 0 -1", "1) \"a\"\n2) \"b\""),
        ]);
    });
}
