//! Cases that the transcript cannot show: events, long strings, and features newer than Redis 7.0.

use crate::command::testing::{Terminal, check_all, check_transcript, on_every_setup};

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../tests/transcripts/families/bitmap.txt");
    check_transcript(text, |_| {});
}

/// Expected replies are from the documentation of Redis 8.2.
#[test]
fn bitop_knows_which_bits_are_in_which_strings() {
    check_all(&[
        ("MSET x \"\\xf0\\x0f\" y \"\\x0c\\xff\" z \"\\xc3\"", "OK"),
        ("BITOP DIFF d x y z", "(integer) 2"),
        ("GET d", "\"0\\x00\""),
        ("BITOP DIFF1 d x y z", "(integer) 2"),
        ("GET d", "\"\\x0f\\xf0\""),
        ("BITOP ANDOR d x y z", "(integer) 2"),
        ("GET d", "\"\\xc0\\x0f\""),
        ("BITOP ONE d x y z", "(integer) 2"),
        ("GET d", "\"?\\xf0\""),
        ("BITOP one d x x x", "(integer) 2"),
        ("GET d", "\"\\x00\\x00\""),
        ("BITOP ONE d z", "(integer) 1"),
        ("GET d", "\"\\xc3\""),
        ("BITOP DIFF d none x", "(integer) 2"),
        ("GET d", "\"\\x00\\x00\""),
        ("BITOP DIFF x x y", "(integer) 2"),
        ("GET x", "\"\\xf0\\x00\""),
        ("BITOP ANDOR d none none", "(integer) 0"),
        ("GET d", "(nil)"),
        (
            "BITOP DIFF d x",
            "(error) ERR BITOP DIFF must be called with at least two source keys.",
        ),
        (
            "BITOP diff1 d x",
            "(error) ERR BITOP DIFF1 must be called with at least two source keys.",
        ),
        (
            "BITOP ANDOR d x",
            "(error) ERR BITOP ANDOR must be called with at least two source keys.",
        ),
    ]);
}

#[test]
fn changes_of_bits_are_recorded_only_where_there_are_any() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("SETBIT k 7 0", "$:setbit k"),
            ("SETBIT k 7 0", ""),
            ("SETBIT k 7 1", "$:setbit k"),
            ("SETBIT k 8 0", "$:setbit k"),
            ("BITFIELD k GET u8 0", ""),
            ("BITFIELD k SET u8 0 1", ""),
            ("BITFIELD k SET u8 0 2 INCRBY u8 0 1", "$:setbit k"),
            ("BITFIELD k SET u8 100 0", "$:setbit k"),
            ("BITFIELD k OVERFLOW FAIL SET u8 0 256", ""),
            ("BITFIELD n OVERFLOW FAIL SET u8 0 256", ""),
            ("BITOP OR d k", "$:set d"),
            ("BITOP OR d none", "g:del d"),
            ("BITOP OR d none", ""),
            ("BITCOUNT k", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn operations_over_long_strings_agree_with_those_over_bytes() {
    let mut cli = Terminal::new();
    let text = |seed: u8, len: usize| -> Vec<u8> {
        (0..len)
            .map(|at| (at as u8).wrapping_mul(seed).wrapping_add(seed))
            .collect()
    };
    let (a, b) = (text(7, 40_000), text(13, 25_001));
    cli.run_args(&[&b"SET"[..], b"a", &a]);
    cli.run_args(&[&b"SET"[..], b"b", &b]);
    let padded = |at: usize| b.get(at).copied().unwrap_or(0);
    let check = |cli: &mut Terminal, name: &str, of: &dyn Fn(u8, u8) -> u8| {
        cli.check(&format!("BITOP {name} d a b"), "(integer) 40000");
        let expected: Vec<u8> = a
            .iter()
            .enumerate()
            .map(|(at, x)| of(*x, padded(at)))
            .collect();
        let reply = cli.reply_bytes(&["GET", "d"]);
        assert_eq!(
            reply,
            [b"$40000\r\n", &expected[..], b"\r\n"].concat(),
            "{name}"
        );
        let ones: u32 = expected.iter().map(|byte| byte.count_ones()).sum();
        cli.check("BITCOUNT d", &format!("(integer) {ones}"));
    };
    check(&mut cli, "AND", &|x, y| x & y);
    check(&mut cli, "OR", &|x, y| x | y);
    check(&mut cli, "XOR", &|x, y| x ^ y);
    check(&mut cli, "DIFF", &|x, y| x & !y);
    check(&mut cli, "DIFF1", &|x, y| !x & y);
    check(&mut cli, "ANDOR", &|x, y| x & y);
    check(&mut cli, "ONE", &|x, y| x ^ y);
}

/// Replies are from the documentation of Redis 8.12.
#[test]
fn offsets_of_bits_are_listed_in_ascending_order() {
    let syntax = "(error) ERR syntax error";
    let limit = "(error) ERR LIMIT should be greater than 0";
    let integer = "(error) ERR value is not an integer or out of range";
    check_all(&[
        ("SET k \"\\x81\\x00\\x10\"", "OK"),
        (
            "BITRANGEINTARRAY k 0 -1",
            "1) (integer) 0\n2) (integer) 7\n3) (integer) 19",
        ),
        ("BITRANGEINTARRAY k 1 2 BYTE", "1) (integer) 19"),
        (
            "BITRANGEINTARRAY k 7 19 bit",
            "1) (integer) 7\n2) (integer) 19",
        ),
        ("BITRANGEINTARRAY k 8 18 BIT", "(empty array)"),
        ("BITRANGEINTARRAY k -5 -5 BIT", "1) (integer) 19"),
        (
            "BITRANGEINTARRAY k 0 8 BIT ZEROS LIMIT 2",
            "1) (integer) 1\n2) (integer) 2",
        ),
        (
            "BITRANGEINTARRAY k 0 -1 LIMIT 2",
            "1) (integer) 0\n2) (integer) 7",
        ),
        (
            "BITRANGEINTARRAY k -1 100 LIMIT 9223372036854775807",
            "1) (integer) 19",
        ),
        ("BITRANGEINTARRAY k 2 1", "(empty array)"),
        ("BITRANGEINTARRAY k -1 -2", "(empty array)"),
        ("BITRANGEINTARRAY none 0 -1 ZEROS", "(empty array)"),
        ("SET empty \"\"", "OK"),
        ("BITRANGEINTARRAY empty 0 -1", "(empty array)"),
        ("LPUSH l a", "(integer) 1"),
        (
            "BITRANGEINTARRAY l 0 -1",
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "BITRANGEINTARRAY k 0",
            "(error) ERR wrong number of arguments for 'bitrangeintarray' command",
        ),
        ("BITRANGEINTARRAY k x -1", integer),
        ("BITRANGEINTARRAY k 0 x", integer),
        ("BITRANGEINTARRAY k 0 -1 NIBBLE", syntax),
        ("BITRANGEINTARRAY k 0 -1 BIT BYTE", syntax),
        ("BITRANGEINTARRAY k 0 -1 LIMIT", syntax),
        ("BITRANGEINTARRAY k 0 -1 LIMIT x", integer),
        ("BITRANGEINTARRAY k 0 -1 LIMIT 0", limit),
        ("BITRANGEINTARRAY k 0 -1 LIMIT -1", limit),
        ("BITRANGEINTARRAY k 0 -1 LIMIT 1 LIMIT 1", syntax),
        ("BITRANGEINTARRAY k 0 -1 ZEROS ZEROS", syntax),
    ]);
}
