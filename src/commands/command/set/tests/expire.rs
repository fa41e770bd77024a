//! Tests of members that expire.

use super::{fill, members, set_of};
use crate::command::testing::{Terminal, on_every_setup};

/// Runs the body on a small set, and on one that was large before any of its members had a deadline.
fn on_small_and_large(mut body: impl FnMut(&mut Terminal)) {
    for listpack_entries in [0, 128] {
        on_every_setup(|cli| {
            cli.configure(|config| {
                config.set_max_listpack_entries = listpack_entries;
                config.set_max_intset_entries = listpack_entries;
            });
            body(cli);
        });
    }
}

#[test]
fn deadlines_of_members_are_set_asked_for_and_taken_away() {
    on_small_and_large(|cli| {
        let now_s = cli.now_ms / 1000;
        cli.check_all(&[
            ("SADD s a b 3", "(integer) 3"),
            (
                "STTL s MEMBERS 2 a none",
                "1) (integer) -1\n2) (integer) -2",
            ),
            (
                "SEXPIRE s 10 MEMBERS 3 a none 3",
                "1) (integer) 1\n2) (integer) -2\n3) (integer) 1",
            ),
            ("STTL s MEMBERS 1 a", "1) (integer) 10"),
            (
                "SPTTL s MEMBERS 2 3 b",
                "1) (integer) 10000\n2) (integer) -1",
            ),
            (
                "SPEXPIRE s 1500 XX MEMBERS 2 a b",
                "1) (integer) 1\n2) (integer) 0",
            ),
            ("STTL s MEMBERS 1 a", "1) (integer) 2"),
            ("SEXPIRE s 1 GT MEMBERS 1 a", "1) (integer) 0"),
            (
                "SEXPIRE s 1 LT MEMBERS 2 a b",
                "1) (integer) 1\n2) (integer) 1",
            ),
            ("SEXPIRE s 9 NX MEMBERS 1 a", "1) (integer) 0"),
            (
                "SPERSIST s MEMBERS 3 a a none",
                "1) (integer) 1\n2) (integer) -1\n3) (integer) -2",
            ),
            ("STTL s MEMBERS 1 a", "1) (integer) -1"),
            ("OBJECT ENCODING s", "\"hashtable\""),
            ("SADD s a", "(integer) 0"),
            (
                "SEXPIRE nokey 10 MEMBERS 2 a b",
                "1) (integer) -2\n2) (integer) -2",
            ),
            ("STTL nokey MEMBERS 1 a", "1) (integer) -2"),
            ("SPERSIST nokey MEMBERS 1 a", "1) (integer) -2"),
            ("SEXPIRE s 10 MEMBERS 1 none", "1) (integer) -2"),
        ]);
        let at = format!("1) (integer) {}", now_s + 100);
        cli.check(
            &format!("SEXPIREAT s {} MEMBERS 1 a", now_s + 100),
            "1) (integer) 1",
        );
        cli.check("SEXPIRETIME s MEMBERS 1 a", &at);
        cli.check("SPEXPIRETIME s MEMBERS 1 a", &format!("{at}000"));
        cli.check("SADD s a", "(integer) 0");
        cli.check("SEXPIRETIME s MEMBERS 1 a", &at);
        cli.events();
        cli.check(
            "SPEXPIREAT s 5 MEMBERS 2 a none",
            "1) (integer) 2\n2) (integer) -2",
        );
        assert_eq!(cli.events(), "s:srem s");
        cli.check(
            "SEXPIRE s 0 MEMBERS 2 b 3",
            "1) (integer) 2\n2) (integer) 2",
        );
        assert_eq!(cli.events(), "s:srem s, g:del s");
        cli.check("EXISTS s", "(integer) 0");
    });
}

#[test]
fn mistakes_about_deadlines_of_members_are_told_apart() {
    const WRONG: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
    const MISSING: &str =
        "(error) ERR Mandatory argument MEMBERS is missing or not at the right position";
    const MISMATCH: &str =
        "(error) ERR The `nummembers` parameter must match the number of arguments";
    const COUNT: &str = "(error) ERR Parameter `numMembers` should be greater than 0";
    const NUMBER: &str = "(error) ERR Number of members must be a positive integer";
    const INTEGER: &str = "(error) ERR value is not an integer or out of range";
    on_every_setup(|cli| {
        cli.check("SADD s a b", "(integer) 2");
        cli.check("SET t x", "OK");
        cli.check_all(&[
            ("SEXPIRE t 10 MEMBERS 1 a", WRONG),
            ("STTL t MEMBERS 1 a", WRONG),
            ("SPERSIST t MEMBERS 1 a", WRONG),
            ("SEXPIRE s x MEMBERS 1 a", INTEGER),
            ("SEXPIRE s 9223372036854775808 MEMBERS 1 a", INTEGER),
            ("SEXPIRE s 1.5 MEMBERS 1 a", INTEGER),
            (
                "SEXPIRE s -1 MEMBERS 1 a",
                "(error) ERR invalid expire time, must be >= 0",
            ),
            (
                "SEXPIRE s 9223372036854775807 MEMBERS 1 a",
                "(error) ERR invalid expire time in 'sexpire' command",
            ),
            (
                "SPEXPIRE s 9223372036854775807 MEMBERS 1 a",
                "(error) ERR invalid expire time in 'spexpire' command",
            ),
            (
                "SEXPIREAT s 70368744178 MEMBERS 1 a",
                "(error) ERR invalid expire time in 'sexpireat' command",
            ),
            (
                "SPEXPIREAT s 70368744177664 MEMBERS 1 a",
                "(error) ERR invalid expire time in 'spexpireat' command",
            ),
            ("SPEXPIREAT s 70368744177663 MEMBERS 1 a", "1) (integer) 1"),
            ("SPERSIST s MEMBERS 1 a", "1) (integer) 1"),
            ("SEXPIRE s 10 FIELDS 1 a", MISSING),
            ("SEXPIRE s 10 ZZ MEMBERS 1 a", MISSING),
            ("SEXPIRE s 10 NX XX MEMBERS 1 a", MISSING),
            ("SEXPIRE s 10 MEMBERS 0 a", COUNT),
            ("SEXPIRE s 10 MEMBERS -1 a", COUNT),
            ("SEXPIRE s 10 MEMBERS x a", COUNT),
            ("SEXPIRE s 10 MEMBERS 2 a", MISMATCH),
            ("SEXPIRE s 10 MEMBERS 1 a b", MISMATCH),
            ("SEXPIRE s 10 NX MEMBERS 9223372036854775807 a", MISMATCH),
            ("STTL s MEMBERS 0 a", NUMBER),
            ("STTL s MEMBERS 2 a", MISMATCH),
            ("STTL s FIELDS 1 a", MISSING),
            ("SPERSIST s MEMBERS x a", NUMBER),
            ("SPERSIST s MEMBERS 3 a", MISMATCH),
            ("STTL s MEMBERS 1 a", "1) (integer) -1"),
        ]);
        assert_eq!(cli.encoding("s"), "hashtable");
    });
}

#[test]
fn a_member_whose_time_has_come_is_seen_by_no_command() {
    on_small_and_large(|cli| {
        let now_ms = cli.now_ms;
        cli.check("SADD s a b c d", "(integer) 4");
        cli.check("SADD t a b", "(integer) 2");
        cli.check(
            "SPEXPIRE s 100 MEMBERS 3 a b d",
            "1) (integer) 1\n2) (integer) 1\n3) (integer) 1",
        );
        cli.advance_ms(99);
        cli.check("SCARD s", "(integer) 4");
        cli.check("SMOVE s t d", "(integer) 1");
        cli.check("SPTTL t MEMBERS 1 d", "1) (integer) -1");
        cli.check("SADD s d", "(integer) 1");
        cli.check(
            &format!("SPEXPIREAT s {} MEMBERS 1 d", now_ms + 100),
            "1) (integer) 1",
        );
        cli.advance_ms(1);
        cli.events();
        cli.check_all(&[
            ("SCARD s", "(integer) 1"),
            ("SISMEMBER s a", "(integer) 0"),
            ("SMISMEMBER s a c", "1) (integer) 0\n2) (integer) 1"),
            ("SRANDMEMBER s", "\"c\""),
            ("SRANDMEMBER s 10", "1) \"c\""),
            ("SRANDMEMBER s -2", "1) \"c\"\n2) \"c\""),
            ("SSCAN s 0", "1) \"0\"\n2) 1) \"c\""),
            ("STTL s MEMBERS 1 a", "1) (integer) -2"),
            ("SPERSIST s MEMBERS 1 a", "1) (integer) -2"),
            ("SEXPIRE s 10 MEMBERS 1 a", "1) (integer) -2"),
            ("SINTERCARD 2 s t", "(integer) 0"),
            ("SUNIONCARD 2 s t", "(integer) 4"),
            ("SDIFFCARD 2 t s", "(integer) 3"),
            ("SREM s a b", "(integer) 0"),
            ("SMOVE s t b", "(integer) 0"),
            ("SORT s ALPHA", "1) \"c\""),
            ("ZUNIONSTORE z 1 s", "(integer) 1"),
            ("SUNIONSTORE u s", "(integer) 1"),
            ("SINTERSTORE u s t", "(integer) 0"),
        ]);
        assert!(cli.events().starts_with("s:sexpired s"));
        assert_eq!(members(cli, "SMEMBERS s"), set_of("c"));
        assert_eq!(members(cli, "SINTER s s"), set_of("c"));
        assert_eq!(members(cli, "SUNION s t"), set_of("a b c d"));
        assert_eq!(members(cli, "SDIFF t s"), set_of("a b d"));
        cli.check("SADD s a b c", "(integer) 2");
        cli.check("STTL s MEMBERS 2 a b", "1) (integer) -1\n2) (integer) -1");
        cli.check(
            "SPEXPIRE s 10 MEMBERS 2 a b",
            "1) (integer) 1\n2) (integer) 1",
        );
        cli.advance_ms(10);
        cli.check("SPOP s", "\"c\"");
        cli.check("EXISTS s", "(integer) 0");
    });
}

#[test]
fn more_members_than_a_look_up_deletes_are_hidden_all_the_same() {
    on_every_setup(|cli| {
        fill(cli, "s", 300);
        let due: Vec<String> = (0..250).map(|number| format!("m{number}")).collect();
        cli.run(&format!("SPEXPIRE s 10 MEMBERS 250 {}", due.join(" ")));
        cli.advance_ms(10);
        cli.check("SCARD s", "(integer) 50");
        let left = members(cli, "SMEMBERS s");
        assert_eq!(left.len(), 50);
        assert_eq!(members(cli, "SRANDMEMBER s 60"), left);
        assert_eq!(members(cli, "SRANDMEMBER s 12").len(), 12);
        let taken = members(cli, "SPOP s 10");
        assert!(taken.len() == 10 && taken.is_subset(&left));
        cli.check("SCARD s", "(integer) 40");
        cli.check("SADD s m0 m1", "(integer) 2");
        cli.check("STTL s MEMBERS 1 m0", "1) (integer) -1");
        assert_eq!(members(cli, "SPOP s 42").len(), 42);
        cli.check("EXISTS s", "(integer) 0");
    });
}

#[test]
fn copies_dumps_and_renamed_sets_keep_the_deadlines_of_members() {
    on_small_and_large(|cli| {
        cli.check("SADD s a b", "(integer) 2");
        cli.check("SPEXPIRE s 100 MEMBERS 1 a", "1) (integer) 1");
        cli.check("COPY s c", "(integer) 1");
        cli.check("RENAME s r", "OK");
        for key in ["c", "r"] {
            cli.check(
                &format!("SPTTL {key} MEMBERS 2 a b"),
                "1) (integer) 100\n2) (integer) -1",
            );
        }
        let dump = cli.reply_bytes(&["DUMP", "r"]);
        let start = dump.iter().position(|byte| *byte == b'\n').expect("a bulk") + 1;
        let payload = &dump[start..dump.len() - 2];
        let restored = cli.reply_bytes(&[&b"RESTORE"[..], b"new", b"0", payload]);
        assert_eq!(restored, b"+OK\r\n");
        cli.check(
            "SPTTL new MEMBERS 2 a b",
            "1) (integer) 100\n2) (integer) -1",
        );
        cli.advance_ms(100);
        for key in ["c", "r", "new"] {
            cli.check(&format!("SCARD {key}"), "(integer) 1");
        }
        // Members that had expired at the time of the dump are not included; members that have expired since are not
        // visible.
        let restored = cli.reply_bytes(&[&b"RESTORE"[..], b"late", b"0", payload]);
        assert_eq!(restored, b"+OK\r\n");
        assert_eq!(members(cli, "SMEMBERS late"), set_of("b"));
    });
}

#[test]
fn a_set_whose_members_have_all_expired_is_gone_for_every_command() {
    for line in [
        "SCARD s",
        "EXISTS s",
        "TYPE s",
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "SRANDMEMBER s",
        "SRANDMEMBER s 3",
        "SPOP s",
        "SPOP s 2",
        "RENAME s k",
        "COPY s k",
        "OBJECT ENCODING s",
        "TTL s",
        "SUNION s",
        "SUNIONSTORE k s",
        "SMOVE s k a",
    ] {
        on_every_setup(|cli| {
            cli.run("FLUSHALL");
            let empty = cli.run(line);
            cli.check("SADD s a b", "(integer) 2");
            cli.check(
                "SPEXPIRE s 10 MEMBERS 2 a b",
                "1) (integer) 1\n2) (integer) 1",
            );
            cli.advance_ms(10);
            if line != "DBSIZE" {
                cli.check(line, &empty);
            }
            cli.check("GET s", "(nil)");
            cli.check("DBSIZE", "(integer) 0");
        });
    }
}
