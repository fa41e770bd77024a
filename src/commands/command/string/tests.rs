//! Cases that the transcript cannot show: deadlines, encodings, events, blocks, and features newer than Redis 7.0.

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../tests/transcripts/families/string.txt");
    check_transcript(text, |_| {});
}

/// Runs a dialogue on every setup, with a key `list` that does not hold a string.
#[track_caller]
fn dialogue(lines: &[(&str, &str)]) {
    on_every_setup(|cli| {
        cli.put_other_type("list");
        cli.check_all(lines);
    });
}

#[test]
fn lcs_ranges_are_a_map() {
    let mut cli = Terminal::with(4, Protocol::Resp2);
    cli.check_all(&[
        ("MSET a ohmytext b mynewtext", "OK"),
        (
            "LCS a b IDX",
            "1) \"matches\"\n\
             2) 1) 1) 1) (integer) 4\n         2) (integer) 7\n      2) 1) (integer) 5\n         2) (integer) 8\n   \
             2) 1) 1) (integer) 2\n         2) (integer) 3\n      2) 1) (integer) 0\n         2) (integer) 1\n\
             3) \"len\"\n4) (integer) 6",
        ),
        (
            "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
            "1) \"matches\"\n\
             2) 1) 1) 1) (integer) 4\n         2) (integer) 7\n      2) 1) (integer) 5\n         2) (integer) 8\n      \
             3) (integer) 4\n\
             3) \"len\"\n4) (integer) 6",
        ),
        ("LCS a none IDX", "1) \"matches\"\n2) (empty array)\n3) \"len\"\n4) (integer) 0"),
    ]);
    let mut cli = Terminal::with(1, Protocol::Resp3);
    cli.check_all(&[
        ("MSET a ohmytext b mynewtext", "OK"),
        (
            "LCS a b IDX MINMATCHLEN 4",
            "1# \"matches\" => \n   1) 1) 1) (integer) 4\n         2) (integer) 7\n      2) 1) (integer) 5\n         \
             2) (integer) 8\n2# \"len\" => (integer) 6",
        ),
        ("LCS a b IDX MINMATCHLEN 9", "1# \"matches\" => (empty array)\n2# \"len\" => (integer) 6"),
    ]);
}

#[test]
fn lcs_is_bound_by_the_longest_argument_allowed() {
    let mut cli = Terminal::new();
    cli.configure(|config| config.proto_max_bulk_len = 4 * 11 * 11);
    cli.check_all(&[("SET a 0123456789", "OK"), ("SET b 01234567890", "OK")]);
    cli.check("LCS a a LEN", "(integer) 10");
    let error =
        "(error) ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    cli.check_all(&[
        ("LCS a b LEN", error),
        ("LCS a b", error),
        ("LCS a b IDX", error),
    ]);
}

/// Expected replies are from the tests of Redis 8.4.
#[test]
fn set_compares_values_and_digests() {
    dialogue(&[
        ("SET k v IFEQ v", "(nil)"),
        ("SET k v IFDEQ 1234567890", "(nil)"),
        ("GET k", "(nil)"),
        ("SET k hello IFNE hello", "OK"),
        ("SET k x IFEQ other", "(nil)"),
        ("SET k x IFEQ other GET", "\"hello\""),
        ("SET k hello IFNE other GET", "\"hello\""),
        ("SET k x IFNE hello GET", "\"hello\""),
        ("GET k", "\"hello\""),
        ("SET k hello ifdeq 9555e8555c62dcfd", "OK"),
        ("SET k hello IFDEQ 9555E8555C62DCFD GET", "\"hello\""),
        ("SET k x IFDNE 9555e8555c62dcfd", "(nil)"),
        ("SET k hello IFDNE 9555e8555c62dcfe", "OK"),
        (
            "SET k x IFDEQ 9555e8555c62dcf",
            "(error) ERR must be exactly 16 hexadecimal characters",
        ),
        (
            "SET k x IFDNE \"\" GET",
            "(error) ERR must be exactly 16 hexadecimal characters",
        ),
        ("SET k 12345 IFEQ hello EX 10", "OK"),
        (
            "SET k x IFEQ 12345 EX 0",
            "(error) ERR invalid expire time in 'set' command",
        ),
        ("SET k \"\" IFEQ 12345", "OK"),
        ("SET k w IFEQ \"\"", "OK"),
        ("SET n v IFNE x GET", "(nil)"),
        ("GET n", "\"v\""),
        ("SET k x IFEQ", "(error) ERR syntax error"),
        ("SET k x IFEQ a NX", "(error) ERR syntax error"),
        ("SET k x XX IFNE a", "(error) ERR syntax error"),
        ("SET k x IFEQ a IFNE b", "(error) ERR syntax error"),
        ("SET list x IFEQ a", WRONG_TYPE),
        ("SET list x IFNE a", WRONG_TYPE),
        ("SET list x IFDEQ 1", WRONG_TYPE),
    ]);
}

const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

/// Expected replies are from the tests of Redis 8.4 and the documentation of Valkey 9.
#[test]
fn keys_are_deleted_if_they_hold_the_value() {
    dialogue(&[
        ("DELEX k", "(integer) 0"),
        ("DELEX k bogus x", "(integer) 0"),
        ("DELEX k IFDEQ 1", "(integer) 0"),
        (
            "DELEX k IFEQ",
            "(error) ERR wrong number of arguments for 'delex' command",
        ),
        (
            "DELEX k IFEQ a b",
            "(error) ERR wrong number of arguments for 'delex' command",
        ),
        ("SET k hello", "OK"),
        ("DELEX k IFEQ world", "(integer) 0"),
        ("DELEX k IFNE hello", "(integer) 0"),
        ("DELEX k IFDEQ 9555e8555c62dcfe", "(integer) 0"),
        ("DELEX k IFDNE 9555E8555C62DCFD", "(integer) 0"),
        (
            "DELEX k IFDEQ 1",
            "(error) ERR must be exactly 16 hexadecimal characters",
        ),
        (
            "DELEX k bogus x",
            "(error) ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
        ),
        ("DELEX k ifeq hello", "(integer) 1"),
        ("GET k", "(nil)"),
        ("SET k 123", "OK"),
        ("DELEX k IFDEQ 404a763b3f4c8c9a", "(integer) 1"),
        ("SET k 123", "OK"),
        ("DELEX k IFEQ 0123", "(integer) 0"),
        ("DELEX k IFNE 0123", "(integer) 1"),
        (
            "DELEX list IFEQ x",
            "(error) ERR Key should be of string type if conditions are specified",
        ),
        (
            "DELEX list bogus x",
            "(error) ERR Key should be of string type if conditions are specified",
        ),
        ("DELIFEQ list x", WRONG_TYPE),
        ("DELEX list", "(integer) 1"),
        ("SET k v", "OK"),
        ("DELIFEQ k w", "(integer) 0"),
        ("DELIFEQ k v", "(integer) 1"),
        ("DELIFEQ k v", "(integer) 0"),
        (
            "DELIFEQ k",
            "(error) ERR wrong number of arguments for 'delifeq' command",
        ),
    ]);
}

#[test]
fn digest_is_the_xxh3_of_the_text() {
    dialogue(&[
        ("DIGEST k", "(nil)"),
        ("SET k hello", "OK"),
        ("DIGEST k", "\"9555e8555c62dcfd\""),
        ("SET k 123", "OK"),
        ("DIGEST k", "\"404a763b3f4c8c9a\""),
        (
            "SET k v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd",
            "OK",
        ),
        ("DIGEST k", "\"00006c38adf31777\""),
        ("DIGEST list", WRONG_TYPE),
    ]);
}

/// Expected replies are from the tests of Redis 8.4.
#[test]
fn msetex_sets_all_or_none_with_one_deadline() {
    on_every_setup(|cli| {
        cli.put_other_type("list");
        cli.check("MSETEX 2 a 1 b 2 EX 5", "(integer) 1");
        assert_eq!((cli.ttl_ms("a"), cli.ttl_ms("b")), (5_000, 5_000));
        cli.check("MSETEX 2 a 3 list 4 KEEPTTL", "(integer) 1");
        assert_eq!((cli.ttl_ms("a"), cli.ttl_ms("list")), (5_000, -1));
        cli.check_all(&[
            ("MGET a b list", "1) \"3\"\n2) \"2\"\n3) \"4\""),
            ("MSETEX 2 a 9 new 9 NX", "(integer) 0"),
            ("MSETEX 2 a 9 new 9 XX", "(integer) 0"),
            ("GET new", "(nil)"),
            ("MSETEX 2 a 5 b 6 px 3000 xx XX", "(integer) 1"),
            ("MSETEX 1 new 7 nx", "(integer) 1"),
            ("MSETEX 2 same 1 same 2 NX", "(integer) 1"),
            (
                "MGET a b new same",
                "1) \"5\"\n2) \"6\"\n3) \"7\"\n4) \"2\"",
            ),
        ]);
        assert_eq!(
            (cli.ttl_ms("a"), cli.ttl_ms("b"), cli.ttl_ms("new")),
            (3_000, 3_000, -1)
        );
        cli.check("MSETEX 1 a 8", "(integer) 1");
        assert_eq!(cli.ttl_ms("a"), -1);
    });
    dialogue(&[
        (
            "MSETEX",
            "(error) ERR wrong number of arguments for 'msetex' command",
        ),
        (
            "MSETEX 1 a",
            "(error) ERR wrong number of arguments for 'msetex' command",
        ),
        (
            "MSETEX key1 val1 EX 10",
            "(error) ERR invalid numkeys value",
        ),
        ("MSETEX 0 a 1", "(error) ERR invalid numkeys value"),
        ("MSETEX -1 a 1", "(error) ERR invalid numkeys value"),
        (
            "MSETEX 2147483648 a 1 EX 10",
            "(error) ERR invalid numkeys value",
        ),
        (
            "MSETEX 2147483647 a 1 EX 10",
            "(error) ERR wrong number of key-value pairs",
        ),
        (
            "MSETEX 2 a 1 b",
            "(error) ERR wrong number of key-value pairs",
        ),
        ("MSETEX 1 a 1 bogus", "(error) ERR syntax error"),
        ("MSETEX 1 a 1 NX XX", "(error) ERR syntax error"),
        ("MSETEX 1 a 1 EX 10 PX 10", "(error) ERR syntax error"),
        ("MSETEX 1 a 1 KEEPTTL EX 10", "(error) ERR syntax error"),
        ("MSETEX 1 a 1 EX", "(error) ERR syntax error"),
        (
            "MSETEX 1 a 1 EX a",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "MSETEX 1 a 1 EX 0",
            "(error) ERR invalid expire time in 'msetex' command",
        ),
        ("GET a", "(nil)"),
    ]);
}

#[test]
fn deadlines_follow_the_options() {
    let mut cli = Terminal::new();
    for (line, ttl_ms) in [
        ("SET k v", -1),
        ("SET k v EX 10", 10_000),
        ("SET k w KEEPTTL", 10_000),
        ("APPEND k x", 10_000),
        ("SETRANGE k 0 abc", 10_000),
        ("SETBIT k 3 1", 10_000),
        ("BITFIELD k SET u8 0 1", 10_000),
        ("GETEX k", 10_000),
        (
            "SET k \"a value that is too long to fit where the one before it was, so that it moves\" KEEPTTL",
            10_000,
        ),
        ("SET k 1 KEEPTTL", 10_000),
        ("INCR k", 10_000),
        ("INCRBYFLOAT k 1.5", 10_000),
        ("GETEX k PERSIST", -1),
        ("GETEX k PX 77", 77),
        ("GETEX k EXAT 1700000005", 5_000),
        ("GETEX k PXAT 1700000000006", 6),
        ("GETSET k v", -1),
        ("SET k v PX 5", 5),
        ("MSET k v", -1),
        ("SETEX k 5 v", 5_000),
        ("PSETEX k 5 v", 5),
        ("SETNX k v", 5),
        ("SET k v NX EX 100", 5),
        ("SET k v GET PX 9", 9),
        ("SET k v EXAT 1700000100 EXAT 1700000010", 10_000),
        ("SET k v PXAT 1700000000010", 10),
        ("SET k v", -1),
        ("SET k v KEEPTTL", -1),
        ("GETDEL k", -2),
    ] {
        cli.run(line);
        assert_eq!(cli.ttl_ms("k"), ttl_ms, "{line}");
    }
    cli.check_all(&[("SET k v PX 5", "OK"), ("GET k", "\"v\"")]);
    cli.advance_ms(5);
    cli.check("GET k", "\"v\"");
    cli.check("PTTL k", "(integer) 0");
    cli.advance_ms(1);
    cli.check("GET k", "(nil)");
    cli.check_all(&[("SET k v PX 5", "OK"), ("SET k w PX 50", "OK")]);
    cli.advance_ms(20);
    cli.check("GET k", "\"w\"");
    cli.advance_ms(31);
    cli.check("SET k v XX", "(nil)");
}

#[test]
fn encodings_are_those_that_redis_reports() {
    let mut cli = Terminal::new();
    let long = "x".repeat(45);
    for (line, encoding) in [
        ("SET k 123".to_string(), "int"),
        ("SET k -9223372036854775808".into(), "int"),
        ("SET k 9223372036854775808".into(), "embstr"),
        ("SET k 0123".into(), "embstr"),
        ("SET k 1.5".into(), "embstr"),
        ("SET k \"\"".into(), "embstr"),
        (format!("SET k {}", &long[1..]), "embstr"),
        (format!("SET k {long}"), "raw"),
        ("SET k 1".into(), "int"),
        ("INCR k".into(), "int"),
        ("APPEND k 5".into(), "raw"),
        ("INCR k".into(), "int"),
        ("SETRANGE k 0 \"\"".into(), "int"),
        ("SETRANGE k 0 3".into(), "raw"),
        ("SET k v".into(), "embstr"),
        ("APPEND k \"\"".into(), "raw"),
        ("SET k 7".into(), "int"),
        ("SETBIT k 7 1".into(), "raw"),
        ("SET k 7".into(), "int"),
        ("BITFIELD k GET u8 0".into(), "int"),
        ("BITFIELD k INCRBY u8 0 0".into(), "raw"),
        ("INCRBYFLOAT k 1".into(), "embstr"),
        ("INCRBY k 1".into(), "int"),
        ("INCRBYFLOAT k 1e60".into(), "raw"),
        ("GETSET k 12".into(), "int"),
        ("SETEX k 10 12".into(), "int"),
        ("MSET k 13".into(), "int"),
        ("BITOP NOT k k".into(), "raw"),
        ("GETDEL k".into(), "none"),
        ("APPEND k 12".into(), "int"),
        ("GETDEL k".into(), "none"),
        ("SETRANGE k 0 12".into(), "raw"),
        ("GETDEL k".into(), "none"),
        ("INCR k".into(), "int"),
        ("GETDEL k".into(), "none"),
        ("INCRBYFLOAT k 5".into(), "embstr"),
    ] {
        cli.run(&line);
        assert_eq!(cli.encoding("k"), encoding, "{line}");
    }
}

#[test]
fn changes_are_recorded_as_redis_notifies_them() {
    let mut cli = Terminal::new();
    cli.put_other_type("list");
    cli.events();
    for (line, events) in [
        ("SET k v", "$:set k"),
        ("SET k v NX", ""),
        ("SET n v XX", ""),
        ("SET list v GET", ""),
        ("SET k v EX 100", "$:set k, g:expire k"),
        ("SET k v KEEPTTL", "$:set k"),
        ("SET k v IFEQ w", ""),
        ("GET k", ""),
        ("GETEX k", ""),
        ("GETEX k PERSIST", "g:persist k"),
        ("GETEX k PERSIST", ""),
        ("GETEX k EX 100", "g:expire k"),
        ("GETEX k EXAT 1", "g:del k"),
        ("SETNX k 1", "$:set k"),
        ("SETNX k 1", ""),
        ("GETSET k 5", "$:set k"),
        ("SETEX k 10 5", "$:set k, g:expire k"),
        ("PSETEX k 10 5", "$:set k, g:expire k"),
        ("INCR k", "$:incrby k"),
        ("DECRBY k 3", "$:incrby k"),
        ("INCRBY k abc", ""),
        ("INCRBYFLOAT k 1", "$:incrbyfloat k"),
        ("APPEND k \"\"", "$:append k"),
        ("SETRANGE k 0 \"\"", ""),
        ("SETRANGE k 0 1", "$:setrange k"),
        ("GETDEL k", "g:del k"),
        ("GETDEL k", ""),
        ("MSET a 1 b 2", "$:set a, $:set b"),
        ("MSETNX a 1 c 2", ""),
        ("MSETEX 1 c 2 PX 5", "$:set c, g:expire c"),
        ("DELEX a IFEQ 2", ""),
        ("DELEX a IFEQ 1", "g:del a"),
        ("DELIFEQ b 2", "g:del b"),
        ("LCS a b", ""),
    ] {
        cli.run(line);
        assert_eq!(cli.events(), events, "{line}");
    }
}

#[test]
fn strings_stay_below_the_longest_argument_allowed() {
    let mut cli = Terminal::new();
    cli.configure(|config| config.proto_max_bulk_len = 1 << 20);
    let too_long = "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    cli.check("SETRANGE k 1048575 x", "(integer) 1048576");
    cli.check("SETRANGE k 1048576 x", too_long);
    cli.check("SETRANGE k 1048575 xy", too_long);
    cli.check("APPEND k x", too_long);
    cli.check("APPEND k \"\"", "(integer) 1048576");
    cli.check("SETRANGE n 1048576 x", too_long);
    cli.check("GET n", "(nil)");
    cli.check("SETBIT k 8388607 1", "(integer) 0");
    let no_offset = "(error) ERR bit offset is not an integer or out of range";
    cli.check("SETBIT k 8388608 1", no_offset);
    cli.check("GETBIT k 8388608", no_offset);
    cli.check("BITFIELD k GET u8 8388608", no_offset);
}

/// Long strings are in blocks that replies share: an edit must not change an earlier reply.
#[test]
fn blocks_grow_in_place_and_are_copied_when_shared() {
    on_every_setup(|cli| {
        let mut model = vec![b'a'; 16_000];
        assert_eq!(cli.run_args(&[&b"SET"[..], b"k", &model]), "OK");
        for round in 0..40_u8 {
            let more = vec![b'b' + round; 30 + usize::from(round) * 7];
            model.extend_from_slice(&more);
            let reply = cli.run_args(&[&b"APPEND"[..], b"k", &more]);
            assert_eq!(reply, format!("(integer) {}", model.len()));
            assert_eq!(cli.reply_bytes(&["GET", "k"]), bulk(&model));
        }
        assert_eq!(cli.encoding("k"), "raw");
        cli.check("GETRANGE k 0 2", "\"aaa\"");
        assert_eq!(
            cli.reply_bytes(&["GETRANGE", "k", "10", "-10"]),
            bulk(&model[10..model.len() - 9])
        );
        cli.check(
            "SETRANGE k 16000 xyz",
            &format!("(integer) {}", model.len()),
        );
        model[16_000..16_003].copy_from_slice(b"xyz");
        cli.check("SETBIT k 0 1", "(integer) 0");
        model[0] |= 0x80;
        assert_eq!(cli.reply_bytes(&["GET", "k"]), bulk(&model));
        cli.check("SETRANGE k 40000 end", "(integer) 40003");
        model.resize(40_000, 0);
        model.extend_from_slice(b"end");
        assert_eq!(cli.reply_bytes(&["GET", "k"]), bulk(&model));
        assert_eq!(
            cli.run_args(&[&b"SET"[..], b"copy", &model, b"EX", b"10"]),
            "OK"
        );
        assert_eq!(cli.reply_bytes(&["GETSET", "copy", "short"]), bulk(&model));
        cli.check("GET copy", "\"short\"");
        cli.check("SET k 1 KEEPTTL", "OK");
        cli.check("INCR k", "(integer) 2");
    });
}

/// In Redis the memory of an overwritten value is credited at once.
#[test]
fn overwriting_leaves_no_memory_behind() {
    let mut cli = Terminal::new();
    cli.run("SET k 1");
    let before = cli.engines[0].used_bytes();
    for len in [1, 8, 40, 100, 1_000, 20_000, 100_000, 5, 300, 17_000, 2] {
        let value = "v".repeat(len);
        assert_eq!(cli.run_args(&["SET", "k", &value]), "OK");
        assert_eq!(
            cli.run_args(&["APPEND", "k", &value]),
            format!("(integer) {}", 2 * len)
        );
    }
    cli.run("SET k 1");
    cli.run("SET k 1");
    assert_eq!(cli.engines[0].used_bytes(), before);
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
