//! Tests of `database`.

use crate::command::testing::{check_all, on_every_setup};

const OUT_OF_RANGE: &str = "(error) ERR DB index is out of range";

#[test]
fn select_takes_existing_databases_only() {
    check_all(&[
        ("SELECT 15", "OK"),
        ("SELECT 16", OUT_OF_RANGE),
        ("SELECT -1", OUT_OF_RANGE),
        (
            "SELECT x",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "SELECT 99999999999",
            "(error) ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
    ]);
}

#[test]
fn databases_hold_different_keys() {
    check_all(&[
        ("SET k 0", "OK"),
        ("SELECT 9", "OK"),
        ("GET k", "(nil)"),
        ("MSET k 9 l 9", "OK"),
        ("DBSIZE", "(integer) 2"),
        ("SELECT 0", "OK"),
        ("GET k", "\"0\""),
        ("DBSIZE", "(integer) 1"),
    ]);
}

#[test]
fn dbsize_counts_expired_keys_that_are_still_there() {
    on_every_setup(|cli| {
        cli.check("SET k v PX 10", "OK");
        cli.advance_ms(11);
        cli.check("DBSIZE", "(integer) 1");
        cli.check("GET k", "(nil)");
        cli.check("DBSIZE", "(integer) 0");
    });
}

#[test]
fn swapdb_exchanges_what_is_stored() {
    check_all(&[
        ("MSET a 1 b 2 c 3", "OK"),
        ("EXPIRE a 100", "(integer) 1"),
        ("SELECT 1", "OK"),
        ("SET k one", "OK"),
        ("SWAPDB 0 1", "OK"),
        ("MGET a b c", "1) \"1\"\n2) \"2\"\n3) \"3\""),
        ("TTL a", "(integer) 100"),
        ("DBSIZE", "(integer) 3"),
        ("SELECT 0", "OK"),
        ("GET k", "\"one\""),
        ("SWAPDB 0 0", "OK"),
        ("SWAPDB 0 7", "OK"),
        ("DBSIZE", "(integer) 0"),
        ("SWAPDB x 1", "(error) ERR invalid first DB index"),
        ("SWAPDB 1 x", "(error) ERR invalid second DB index"),
        (
            "SWAPDB 1 99999999999",
            "(error) ERR invalid second DB index",
        ),
        ("SWAPDB 1 16", OUT_OF_RANGE),
    ]);
}

#[test]
fn flushdb_empties_one_database_and_flushall_every_one() {
    for mode in ["", "SYNC", "async"] {
        on_every_setup(|cli| {
            cli.check("MSET a 1 b 2 c 3", "OK");
            cli.check("SELECT 1", "OK");
            cli.check("MSET a 1 b 2", "OK");
            cli.check(&format!("FLUSHDB {mode}"), "OK");
            cli.check("DBSIZE", "(integer) 0");
            cli.check("SET a again", "OK");
            cli.check("SELECT 0", "OK");
            cli.check("DBSIZE", "(integer) 3");
            cli.check(&format!("FLUSHALL {mode}"), "OK");
            cli.check("DBSIZE", "(integer) 0");
            cli.check("SELECT 1", "OK");
            cli.check("EXISTS a", "(integer) 0");
        });
    }
    check_all(&[
        ("FLUSHALL foo", "(error) ERR syntax error"),
        ("FLUSHDB SYNC ASYNC", "(error) ERR syntax error"),
    ]);
}

#[test]
fn flushed_keys_count_as_freed_in_the_background() {
    on_every_setup(|cli| {
        let freed = |cli: &mut crate::command::testing::Terminal| {
            let all_published = cli.engines.iter().map(basalt_engine::Engine::published);
            all_published
                .map(|published| published.lazyfreed.get())
                .sum::<u64>()
        };
        for (line, count) in [("FLUSHALL ASYNC", 3), ("FLUSHDB", 6), ("FLUSHALL SYNC", 9)] {
            cli.check("MSET a 1 b 2 c 3", "OK");
            cli.check(line, "OK");
            assert_eq!(freed(cli), count, "{line}");
        }
    });
}

#[test]
fn what_was_flushed_is_freed_in_slices() {
    on_every_setup(|cli| {
        for number in 0..64 {
            cli.check(&format!("SET warm:{number} value"), "OK");
        }
        cli.check("FLUSHALL", "OK");
        let drain = |cli: &mut crate::command::testing::Terminal| {
            for engine in &mut cli.engines {
                let mut doomed = engine.take_doomed();
                while doomed.free_some(1) {}
                engine.settle(&mut doomed);
            }
            let used = |engine: &basalt_engine::Engine| engine.used_bytes();
            cli.engines.iter().map(used).sum::<i64>()
        };
        let empty = drain(cli);
        for number in 0..500 {
            cli.check(&format!("SET key:{number} value EX 100"), "OK");
        }
        let held: i64 = cli.engines.iter().map(|engine| engine.used_bytes()).sum();
        assert!(held > empty + 500 * 20);
        cli.check("FLUSHALL", "OK");
        // Directories of tables are pooled for the whole process and never freed: 8 bytes for 50 keys.
        let pooled = drain(cli) - empty;
        assert!((0..200).contains(&pooled), "{pooled}");
    });
}
