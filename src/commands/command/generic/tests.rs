//! Commands on keys of any type, on one shard and on several, in both protocols.

use crate::command::testing::{Terminal, check_all, on_every_setup};
use basalt_core::resp::reply::Protocol;
use basalt_engine::Now;
use std::collections::BTreeSet;

const NOW_S: u64 = 1_700_000_000;

#[test]
fn del_and_unlink_count_what_was_there() {
    on_every_setup(|cli| {
        for name in ["DEL", "UNLINK"] {
            cli.check("MSET a 1 b 2 c 3", "OK");
            cli.events();
            cli.check(&format!("{name} a b nokey a"), "(integer) 2");
            assert_eq!(cli.events(), "g:del a, g:del b");
            cli.check("EXISTS a b c", "(integer) 1");
        }
    });
}

#[test]
fn an_expired_key_is_not_deleted_again() {
    on_every_setup(|cli| {
        cli.check("SET k v PX 10", "OK");
        cli.advance_ms(11);
        cli.events();
        cli.check("DEL k", "(integer) 0");
        assert_eq!(cli.events(), "x:expired k");
    });
}

#[test]
fn exists_and_touch_count_repeated_keys() {
    check_all(&[
        ("MSET a 1 b 2", "OK"),
        ("EXISTS a a b nokey", "(integer) 3"),
        ("TOUCH a a b nokey", "(integer) 3"),
        (
            "EXISTS",
            "(error) ERR wrong number of arguments for 'exists' command",
        ),
    ]);
}

#[test]
fn type_names_what_a_key_holds() {
    check_all(&[("TYPE k", "none"), ("SET k v", "OK"), ("TYPE k", "string")]);
}

#[test]
fn only_touch_marks_keys_as_used() {
    let mut cli = Terminal::new();
    cli.configure(|config| {
        config.maxmemory_policy = crate::config::values::MaxmemoryPolicy::AllkeysLfu;
    });
    cli.check("SET k v", "OK");
    let fresh = cli.run("OBJECT FREQ k");
    for line in ["TYPE k", "EXISTS k", "TTL k", "OBJECT ENCODING k"] {
        cli.run(line);
        cli.check("OBJECT FREQ k", &fresh);
    }
    cli.check("CLIENT NO-TOUCH ON", "OK");
    cli.run("GET k");
    cli.check("OBJECT FREQ k", &fresh);
    cli.run("TOUCH k");
    assert_ne!(cli.run("OBJECT FREQ k"), fresh);
}

#[test]
fn keys_are_found_by_pattern() {
    on_every_setup(|cli| {
        cli.check("MSET one 1 two 2 three 3 four 4", "OK");
        cli.check("SET gone x PX 5", "OK");
        cli.advance_ms(6);
        for (pattern, expected) in [
            ("*", &["four", "one", "three", "two"][..]),
            ("t*", &["three", "two"]),
            ("?o*", &["four"]),
            ("[ot]*", &["one", "three", "two"]),
            ("one", &["one"]),
            ("ONE", &[]),
        ] {
            let expected: BTreeSet<String> = expected.iter().map(|key| key.to_string()).collect();
            let reply = cli.run_args(&["KEYS", pattern]);
            assert_eq!(elements(&reply), expected, "{pattern}");
        }
    });
}

/// Returns the quoted strings of a reply.
fn elements(reply: &str) -> BTreeSet<String> {
    reply
        .split('"')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect()
}

/// Runs one SCAN. Returns the next cursor, and the keys.
fn scan(cli: &mut Terminal, cursor: &str, options: &str) -> (String, Vec<String>) {
    let reply = cli.run(&format!("SCAN {cursor} {options}"));
    let mut strings = reply.split('"').skip(1).step_by(2).map(String::from);
    let cursor = strings.next().expect("a cursor");
    (cursor, strings.collect())
}

#[test]
fn a_scan_sees_every_key_that_stays() {
    for shard_count in [1, 2, 8] {
        let mut cli = Terminal::with(shard_count, Protocol::Resp2);
        for number in 0..500 {
            cli.check(&format!("SET stays:{number} v"), "OK");
        }
        let mut seen = BTreeSet::new();
        let mut cursor = String::from("0");
        let mut calls = 0;
        loop {
            let (next, keys) = scan(&mut cli, &cursor, "COUNT 7");
            seen.extend(keys);
            // The database changes meanwhile.
            cli.run(&format!("SET comes:{calls} v"));
            cli.run(&format!("DEL comes:{}", calls / 2));
            calls += 1;
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        for number in 0..500 {
            assert!(seen.contains(&format!("stays:{number}")), "stays:{number}");
        }
        assert!(calls > 30, "COUNT bounds a call: {calls} calls");
    }
}

#[test]
fn a_small_database_is_scanned_in_one_call() {
    on_every_setup(|cli| {
        cli.check("MSET a 1 b 2 c 3", "OK");
        let (cursor, keys) = scan(cli, "0", "COUNT 100");
        assert_eq!(cursor, "0");
        assert_eq!(keys.len(), 3);
        cli.check("SELECT 1", "OK");
        let (cursor, keys) = scan(cli, "0", "");
        assert_eq!((cursor.as_str(), keys.len()), ("0", 0));
    });
}

#[test]
fn scan_filters_by_pattern_and_type() {
    on_every_setup(|cli| {
        cli.check("MSET aa 1 ab 2 ba 3", "OK");
        let keys = |cli: &mut Terminal, options: &str| -> BTreeSet<String> {
            scan(cli, "0", options).1.into_iter().collect()
        };
        assert_eq!(keys(cli, "COUNT 99 MATCH a*").len(), 2);
        assert_eq!(keys(cli, "COUNT 99 MATCH *").len(), 3);
        assert_eq!(keys(cli, "COUNT 99 TYPE STRING").len(), 3);
        assert_eq!(keys(cli, "COUNT 99 TYPE hash").len(), 0);
        assert_eq!(keys(cli, "COUNT 99 TYPE bogus").len(), 0);
        assert_eq!(keys(cli, "TYPE string MATCH b* COUNT 99").len(), 1);
    });
}

#[test]
fn scan_deletes_the_expired_keys_that_it_meets() {
    on_every_setup(|cli| {
        for number in 0..100 {
            cli.check(&format!("SET gone:{number} v PX 1"), "OK");
            cli.check(&format!("SET stays:{number} v"), "OK");
        }
        cli.advance_ms(2);
        cli.check("DBSIZE", "(integer) 200");
        let (cursor, keys) = scan(cli, "0", "COUNT 1000 TYPE hash");
        assert_eq!((cursor.as_str(), keys.len()), ("0", 0));
        cli.check("DBSIZE", "(integer) 100");
        assert_eq!(scan(cli, "0", "COUNT 1000").1.len(), 100);
    });
}

#[test]
fn scan_checks_cursor_then_options() {
    check_all(&[
        ("SCAN x COUNT 0", "(error) ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "(error) ERR syntax error"),
        (
            "SCAN 0 COUNT x",
            "(error) ERR value is not an integer or out of range",
        ),
        ("SCAN 0 MATCH", "(error) ERR syntax error"),
        ("SCAN 0 NOVALUES", "(error) ERR syntax error"),
        ("SCAN 0 FOO 1", "(error) ERR syntax error"),
    ]);
}

#[test]
fn any_number_is_safe_as_a_cursor() {
    on_every_setup(|cli| {
        cli.check("MSET a 1 b 2", "OK");
        for cursor in ["1", "-1", "18446744073709551615", "281474976710656"] {
            assert!(cli.run(&format!("SCAN {cursor}")).starts_with("1) \""));
        }
    });
}

#[test]
fn random_keys_come_from_every_shard() {
    on_every_setup(|cli| {
        cli.check("RANDOMKEY", "(nil)");
        cli.check("MSET a 1 b 2 c 3 d 4 e 5 f 6", "OK");
        let drawn: BTreeSet<String> = (0..500).map(|_| cli.run("RANDOMKEY")).collect();
        assert_eq!(drawn.len(), 6, "{drawn:?}");
    });
}

#[test]
fn random_key_passes_expired_ones_over() {
    on_every_setup(|cli| {
        for key in ["a", "b", "c", "d"] {
            cli.check(&format!("SET {key} v PX 1"), "OK");
        }
        cli.check("SET stays v", "OK");
        cli.advance_ms(2);
        cli.check("RANDOMKEY", "\"stays\"");
        cli.check("DEL stays", "(integer) 1");
        cli.check("RANDOMKEY", "(nil)");
    });
}

#[test]
fn rename_moves_value_and_deadline() {
    on_every_setup(|cli| {
        cli.check("SET a value PX 5000", "OK");
        cli.check("SET b other", "OK");
        cli.events();
        cli.check("RENAME a b", "OK");
        assert_eq!(cli.events(), "g:rename_from a, g:rename_to b");
        cli.check("GET a", "(nil)");
        cli.check("GET b", "\"value\"");
        cli.check("PTTL b", "(integer) 5000");
        cli.check("SET c other PX 9000", "OK");
        cli.check("SET d plain", "OK");
        cli.check("RENAME d c", "OK");
        cli.check("TTL c", "(integer) -1");
        cli.advance_ms(5001);
        cli.check("EXISTS b", "(integer) 0");
    });
}

#[test]
fn rename_wants_a_source_and_leaves_itself_alone() {
    check_all(&[
        ("RENAME nokey b", "(error) ERR no such key"),
        ("RENAMENX nokey b", "(error) ERR no such key"),
        ("RENAME nokey nokey", "(error) ERR no such key"),
        ("SET a 1", "OK"),
        ("RENAME a a", "OK"),
        ("RENAMENX a a", "(integer) 0"),
        ("GET a", "\"1\""),
    ]);
}

#[test]
fn renamenx_spares_what_is_there() {
    check_all(&[
        ("MSET a 1 b 2", "OK"),
        ("RENAMENX a b", "(integer) 0"),
        ("GET b", "\"2\""),
        ("RENAMENX a c", "(integer) 1"),
        ("GET c", "\"1\""),
        ("EXISTS a", "(integer) 0"),
    ]);
}

#[test]
fn entries_of_every_encoding_survive_a_move() {
    on_every_setup(|cli| {
        let large = "x".repeat(20_000);
        cli.check("SET int 12345", "OK");
        cli.check("SET embstr short", "OK");
        cli.check(&format!("SET raw {large}"), "OK");
        for key in ["int", "embstr", "raw"] {
            let value = cli.run(&format!("GET {key}"));
            cli.check(&format!("RENAME {key} {key}:renamed"), "OK");
            cli.check(&format!("COPY {key}:renamed {key}:copy"), "(integer) 1");
            cli.check(&format!("MOVE {key}:copy 3"), "(integer) 1");
            cli.check(&format!("GET {key}:renamed"), &value);
            assert_eq!(cli.encoding(&format!("{key}:renamed")), key);
            cli.check("SELECT 3", "OK");
            cli.check(&format!("GET {key}:copy"), &value);
            assert_eq!(cli.encoding(&format!("{key}:copy")), key);
            cli.check("SELECT 0", "OK");
        }
    });
}

#[test]
fn memory_is_charged_to_whoever_has_the_entry() {
    for shard_count in [1, 4] {
        let mut cli = Terminal::with(shard_count, Protocol::Resp2);
        let used =
            |cli: &Terminal| -> i64 { cli.engines.iter().map(|engine| engine.used_bytes()).sum() };
        // Create tables and databases before the first measurement.
        for db in ["0", "1"] {
            cli.run(&format!("SELECT {db}"));
            for number in 0..64 {
                cli.run(&format!("SET warm:{number} v"));
                cli.run(&format!("DEL warm:{number}"));
            }
        }
        cli.run("SELECT 0");
        let before = used(&cli);
        for value in ["v".repeat(10), "v".repeat(1_000), "v".repeat(100_000)] {
            cli.check(&format!("SET source {value}"), "OK");
            cli.check("RENAME source a-longer-name-than-before", "OK");
            cli.check("COPY a-longer-name-than-before copy", "(integer) 1");
            cli.check("COPY a-longer-name-than-before copy REPLACE", "(integer) 1");
            cli.check("MOVE copy 1", "(integer) 1");
            assert!(used(&cli) >= before + 2 * value.len() as i64);
            cli.check("DEL a-longer-name-than-before", "(integer) 1");
            cli.check("SELECT 1", "OK");
            cli.check("DEL copy", "(integer) 1");
            cli.check("SELECT 0", "OK");
            assert_eq!(used(&cli), before, "{} bytes", value.len());
        }
    }
}

#[test]
fn copy_keeps_the_source_and_its_deadline() {
    on_every_setup(|cli| {
        cli.check("SET a 1 PX 5000", "OK");
        cli.events();
        cli.check("COPY a b", "(integer) 1");
        assert_eq!(cli.events(), "g:copy_to b");
        cli.check("PTTL b", "(integer) 5000");
        cli.check("SET a 2", "OK");
        cli.check("GET b", "\"1\"");
        cli.check("COPY a b", "(integer) 0");
        cli.check("COPY a b REPLACE", "(integer) 1");
        cli.check("GET b", "\"2\"");
        cli.check("TTL b", "(integer) -1");
        cli.check("COPY nokey b REPLACE", "(integer) 0");
    });
}

#[test]
fn copy_to_another_database() {
    check_all(&[
        ("SET a 1", "OK"),
        (
            "COPY a a",
            "(error) ERR source and destination objects are the same",
        ),
        (
            "COPY a a DB 0",
            "(error) ERR source and destination objects are the same",
        ),
        ("COPY a a DB 1", "(integer) 1"),
        ("COPY a b DB 1 REPLACE", "(integer) 1"),
        ("COPY a a DB 16", "(error) ERR DB index is out of range"),
        (
            "COPY a a DB x",
            "(error) ERR value is not an integer or out of range",
        ),
        ("COPY a b DB", "(error) ERR syntax error"),
        ("COPY a b FOO", "(error) ERR syntax error"),
        ("DBSIZE", "(integer) 1"),
        ("SELECT 1", "OK"),
        ("MGET a b", "1) \"1\"\n2) \"1\""),
    ]);
}

#[test]
fn move_takes_a_key_to_another_database() {
    on_every_setup(|cli| {
        cli.check("SET a 1 PX 5000", "OK");
        cli.events();
        cli.check("MOVE a 1", "(integer) 1");
        assert_eq!(cli.events(), "g:move_from a, g:move_to a");
        cli.check("MOVE a 1", "(integer) 0");
        cli.check("SET a 2", "OK");
        cli.check("MOVE a 1", "(integer) 0");
        cli.check("SELECT 1", "OK");
        cli.check("GET a", "\"1\"");
        cli.check("PTTL a", "(integer) 5000");
        for (line, error) in [
            (
                "MOVE a 1",
                "ERR source and destination objects are the same",
            ),
            ("MOVE a x", "ERR value is not an integer or out of range"),
            ("MOVE a 16", "ERR DB index is out of range"),
            ("MOVE a -1", "ERR DB index is out of range"),
            (
                "MOVE a 99999999999",
                "ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
    });
}

#[test]
fn expire_in_all_four_forms() {
    on_every_setup(|cli| {
        for (line, left_ms) in [
            ("EXPIRE k 10".to_owned(), 10_000),
            ("PEXPIRE k 10".to_owned(), 10),
            (format!("EXPIREAT k {}", NOW_S + 10), 10_000),
            (format!("PEXPIREAT k {}", NOW_S * 1000 + 10), 10),
        ] {
            cli.check("SET k v", "OK");
            cli.events();
            cli.check(&line, "(integer) 1");
            assert_eq!(cli.events(), "g:expire k");
            assert_eq!(cli.ttl_ms("k"), left_ms, "{line}");
            cli.check(&line.replacen(" k ", " nokey ", 1), "(integer) 0");
        }
    });
}

#[test]
fn a_time_that_has_passed_deletes_the_key() {
    on_every_setup(|cli| {
        for line in [
            "EXPIRE k 0",
            "EXPIRE k -1",
            "PEXPIRE k -100",
            "EXPIREAT k 1",
            "PEXPIREAT k 0",
            "PEXPIREAT k -9223372036854770000",
        ] {
            cli.check("SET k v", "OK");
            cli.events();
            cli.check(line, "(integer) 1");
            assert_eq!(cli.events(), "g:del k", "{line}");
            cli.check("EXISTS k", "(integer) 0");
        }
    });
}

#[test]
fn expire_heeds_its_conditions() {
    on_every_setup(|cli| {
        for (before, option, time, set) in [
            (None, "NX", 10, true),
            (Some(20), "NX", 10, false),
            (None, "XX", 10, false),
            (Some(20), "XX", 10, true),
            (None, "GT", 10, false),
            (Some(20), "GT", 10, false),
            (Some(20), "GT", 20, false),
            (Some(20), "GT", 30, true),
            (None, "LT", 10, true),
            (Some(20), "LT", 10, true),
            (Some(20), "LT", 20, false),
            (Some(20), "LT", 30, false),
            (Some(20), "lt xx", 10, true),
            (None, "LT XX", 10, false),
        ] {
            cli.check("SET k v", "OK");
            if let Some(before) = before {
                cli.check(&format!("EXPIRE k {before}"), "(integer) 1");
            }
            let line = format!("EXPIRE k {time} {option}");
            cli.check(&line, if set { "(integer) 1" } else { "(integer) 0" });
            let left_s = if set { Some(time) } else { before };
            let left_ms = left_s.map_or(-1, |seconds| seconds * 1000);
            assert_eq!(cli.ttl_ms("k"), left_ms, "{line} after {before:?}");
        }
    });
}

#[test]
fn expire_checks_options_then_the_time() {
    let not_together =
        "(error) ERR NX and XX, GT or LT options at the same time are not compatible";
    check_all(&[
        ("EXPIRE k x FOO", "(error) ERR Unsupported option FOO"),
        ("EXPIRE k x NX XX", not_together),
        ("EXPIRE k 1 NX GT", not_together),
        ("EXPIRE k 1 LT NX", not_together),
        (
            "EXPIRE k 1 GT LT",
            "(error) ERR GT and LT options at the same time are not compatible",
        ),
        (
            "EXPIRE k x",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "EXPIRE k 9223372036854776",
            "(error) ERR invalid expire time in 'expire' command",
        ),
        (
            "EXPIRE k -9223372036854776",
            "(error) ERR invalid expire time in 'expire' command",
        ),
        (
            "EXPIREAT k 9223372036854776",
            "(error) ERR invalid expire time in 'expireat' command",
        ),
        (
            "PEXPIRE k 9223372036854770000",
            "(error) ERR invalid expire time in 'pexpire' command",
        ),
        ("SET k v", "OK"),
        ("PEXPIREAT k 9223372036854770000", "(integer) 1"),
        ("PEXPIREAT k 9223372036854770000 GT", "(integer) 0"),
        ("EXISTS k", "(integer) 1"),
    ]);
}

#[test]
fn the_time_left_is_rounded_to_the_nearest_second() {
    on_every_setup(|cli| {
        for name in ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"] {
            cli.check(&format!("{name} nokey"), "(integer) -2");
            cli.check("SET k v", "OK");
            cli.check(&format!("{name} k"), "(integer) -1");
        }
        for (ms, seconds) in [(1, 0), (499, 0), (500, 1), (1499, 1), (1500, 2)] {
            cli.check(&format!("SET k v PX {ms}"), "OK");
            cli.check("TTL k", &format!("(integer) {seconds}"));
            cli.check("PTTL k", &format!("(integer) {ms}"));
            let at_s = NOW_S + seconds;
            cli.check("EXPIRETIME k", &format!("(integer) {at_s}"));
            let at_ms = NOW_S * 1000 + ms;
            cli.check("PEXPIRETIME k", &format!("(integer) {at_ms}"));
        }
    });
}

#[test]
fn persist_takes_the_deadline_away() {
    on_every_setup(|cli| {
        cli.check("PERSIST k", "(integer) 0");
        cli.check("SET k v", "OK");
        cli.check("PERSIST k", "(integer) 0");
        cli.check("EXPIRE k 10", "(integer) 1");
        cli.events();
        cli.check("PERSIST k", "(integer) 1");
        assert_eq!(cli.events(), "g:persist k");
        cli.check("TTL k", "(integer) -1");
    });
}

#[test]
fn keys_go_on_time_after_their_deadline_moved() {
    on_every_setup(|cli| {
        cli.check("SET k v PX 100", "OK");
        cli.check("PEXPIRE k 300", "(integer) 1");
        // The first timer fires at 100 ms and finds the key's deadline extended; a slot of the wheel is 16 ms wide.
        for (ms, there) in [(150, true), (149, true), (17, false)] {
            cli.advance_ms(ms);
            let now = Now {
                unix_ms: cli.now_ms,
            };
            for engine in &mut cli.engines {
                while engine.expire_slice(now) {}
            }
            cli.check("DBSIZE", if there { "(integer) 1" } else { "(integer) 0" });
        }
    });
}

#[test]
fn object_looks_behind_values() {
    on_every_setup(|cli| {
        cli.check("SET k short", "OK");
        cli.check("SET n 7", "OK");
        cli.check("SET big 10000", "OK");
        cli.check_all(&[
            ("OBJECT ENCODING k", "\"embstr\""),
            ("object encoding n", "\"int\""),
            ("OBJECT ENCODING nokey", "(nil)"),
            ("OBJECT REFCOUNT k", "(integer) 1"),
            ("OBJECT REFCOUNT n", "(integer) 2147483647"),
            ("OBJECT REFCOUNT big", "(integer) 1"),
            ("OBJECT IDLETIME k", "(integer) 0"),
            ("OBJECT FREQ nokey", "(nil)"),
        ]);
        let refused = cli.run("OBJECT FREQ k");
        assert!(refused.starts_with("(error) ERR An LFU maxmemory policy is not selected, access"));
        cli.configure(|config| {
            config.maxmemory = 1 << 40;
            config.maxmemory_policy = crate::config::values::MaxmemoryPolicy::AllkeysLfu;
        });
        let refused = cli.run("OBJECT IDLETIME k");
        assert!(refused.starts_with("(error) ERR An LFU maxmemory policy is selected, idle time"));
        cli.check("OBJECT REFCOUNT n", "(integer) 1");
        let new_and_used = ["(integer) 5", "(integer) 6"];
        assert!(new_and_used.contains(&cli.run("OBJECT FREQ k").as_str()));
        assert!(
            cli.run("OBJECT HELP")
                .starts_with(" 1) OBJECT <subcommand>")
        );
        cli.check(
            "OBJECT ENCODING",
            "(error) ERR wrong number of arguments for 'object|encoding' command",
        );
    });
}

#[test]
fn idle_time_passes_while_nothing_in_the_shard_is_used() {
    on_every_setup(|cli| {
        cli.check("SET k v", "OK");
        cli.advance_ms(3_000);
        cli.check_all(&[
            ("TTL k", "(integer) -1"),
            ("TYPE k", "string"),
            ("EXISTS k", "(integer) 1"),
            ("OBJECT IDLETIME k", "(integer) 3"),
            ("TOUCH k", "(integer) 1"),
            ("OBJECT IDLETIME k", "(integer) 0"),
        ]);
    });
}
