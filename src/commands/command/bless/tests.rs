//! Cases of BLESS. Replies are from the documentation of Redis 8.12.

use std::collections::BTreeSet;

use crate::command::testing::{Terminal, check_all, on_every_setup};

#[test]
fn a_key_is_blessed_until_the_blessing_is_cleared() {
    check_all(&[
        ("SET k v", "OK"),
        ("BLESS GET k", "(empty array)"),
        ("BLESS SET k NO-EVICT", "(integer) 1"),
        ("bless set k no-evict", "(integer) 0"),
        ("BLESS GET k", "1) \"NO-EVICT\""),
        ("BLESS SCAN 0 NO-EVICT", "1) \"0\"\n2) 1) \"k\""),
        ("BLESS CLEAR k NO-EVICT", "(integer) 1"),
        ("BLESS CLEAR k NO-EVICT", "(integer) 0"),
        ("BLESS GET k", "(empty array)"),
        ("BLESS SCAN 0 NO-EVICT", "1) \"0\"\n2) (empty array)"),
    ]);
}

#[test]
fn every_wrong_argument_is_refused() {
    let (syntax, missing) = ("(error) ERR syntax error", "(error) ERR no such key");
    let arity = |name: &str| format!("(error) ERR wrong number of arguments for '{name}' command");
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("SET k v", "OK"),
        ("BLESS SET none NO-EVICT", missing),
        ("BLESS CLEAR none NO-EVICT", missing),
        ("BLESS GET none", missing),
        ("BLESS SET k NONE", syntax),
        ("BLESS CLEAR k EVICT", syntax),
        ("BLESS SCAN 0 NONE", syntax),
        ("BLESS SCAN 0 NO-EVICT MATCH *", syntax),
        ("BLESS SCAN 0 NO-EVICT COUNT", syntax),
        ("BLESS SCAN 0 NO-EVICT COUNT 0", syntax),
        ("BLESS SCAN 0 NO-EVICT COUNT 1 COUNT 1", syntax),
        (
            "BLESS SCAN 0 NO-EVICT COUNT x",
            "(error) ERR value is not an integer or out of range",
        ),
        ("BLESS SCAN x NO-EVICT", "(error) ERR invalid cursor"),
        (
            "BLESS SCAN 18446744073709551615 NO-EVICT",
            "1) \"0\"\n2) (empty array)",
        ),
    ]);
    for (line, name) in [
        ("BLESS", "bless"),
        ("BLESS SET k", "bless|set"),
        ("BLESS SET k NO-EVICT NO-EVICT", "bless|set"),
        ("BLESS CLEAR k", "bless|clear"),
        ("BLESS GET", "bless|get"),
        ("BLESS GET k NO-EVICT", "bless|get"),
        ("BLESS SCAN 0", "bless|scan"),
    ] {
        cli.check(line, &arity(name));
    }
    cli.check("BLESS GET k", "(empty array)");
}

#[test]
fn a_blessing_belongs_to_the_key_and_outlives_its_values() {
    on_every_setup(|cli| {
        let (blessed, plain) = ("1) \"NO-EVICT\"", "(empty array)");
        for key in ["text", "h", "copied", "renamed", "moved", "replaced"] {
            cli.run(&format!("SET {key}{{t}} v"));
            cli.run(&format!("BLESS SET {key}{{t}} NO-EVICT"));
        }
        for line in [
            "SET text{t} w",
            "SET h{t} v EX 100",
            "PERSIST h{t}",
            "DEL h{t}",
            "HSET h{t} f v",
            "BLESS SET h{t} NO-EVICT",
            "ZUNIONSTORE h{t} 1 none{t}",
            "SET plain{t} v",
            "COPY copied{t} copy{t}",
            "RENAME renamed{t} name{t}",
            "RENAME plain{t} replaced{t}",
            "MOVE moved{t} 1",
        ] {
            let reply = cli.run(line);
            assert!(!reply.starts_with("(error)"), "{line}: {reply}");
        }
        for (key, state) in [
            ("text", blessed),
            ("copied", blessed),
            ("copy", blessed),
            ("name", blessed),
            ("replaced", plain),
        ] {
            cli.check(&format!("BLESS GET {key}{{t}}"), state);
        }
        cli.check("EXISTS h{t} moved{t} renamed{t}", "(integer) 0");
        cli.run("SET h{t} v");
        cli.check("BLESS GET h{t}", plain);
        cli.run("SADD s{t} a b");
        cli.run("SUNIONSTORE text{t} s{t}");
        cli.check("BLESS GET text{t}", blessed);
        cli.run("SELECT 1");
        cli.check("BLESS GET moved{t}", blessed);
        cli.check("BLESS SCAN 0 NO-EVICT", "1) \"0\"\n2) 1) \"moved{t}\"");
        cli.run("SWAPDB 0 1");
        cli.run("SELECT 0");
        cli.check("BLESS GET moved{t}", blessed);
        cli.run("FLUSHDB");
        cli.run("SET moved{t} v");
        cli.check("BLESS GET moved{t}", plain);
    });
}

#[test]
fn a_dump_has_no_blessing_and_a_restored_value_keeps_that_of_its_key() {
    let mut cli = Terminal::new();
    cli.run("SET k v");
    cli.run("BLESS SET k NO-EVICT");
    let dump = cli.reply_bytes(&["DUMP", "k"]);
    let at = dump.iter().position(|byte| *byte == b'\n').expect("a bulk") + 1;
    let payload = &dump[at..dump.len() - 2];
    cli.run_args(&[&b"RESTORE"[..], b"other", b"0", payload]);
    cli.check("BLESS GET other", "(empty array)");
    cli.run_args(&[&b"RESTORE"[..], b"k", b"0", payload, b"REPLACE"]);
    cli.check("BLESS GET k", "1) \"NO-EVICT\"");
}

#[test]
fn changes_are_told_and_logged_as_notes() {
    on_every_setup(|cli| {
        cli.start_log();
        cli.run("SET k v");
        cli.events();
        cli.logged();
        for (line, events, logged) in [
            (
                "BLESS SET k NO-EVICT",
                "g:bless k",
                "COMMAND INFO basalt:note BLESS SET k NO-EVICT",
            ),
            ("BLESS SET k NO-EVICT", "", ""),
            (
                "BLESS CLEAR k NO-EVICT",
                "g:unbless k",
                "COMMAND INFO basalt:note BLESS CLEAR k NO-EVICT",
            ),
            ("BLESS CLEAR k NO-EVICT", "", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
            let records = cli.logged();
            let texts: Vec<String> = records.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(" | "), logged, "{line}");
        }
    });
}

#[test]
fn a_scan_visits_every_blessed_key_whatever_the_count() {
    on_every_setup(|cli| {
        let mut expected = BTreeSet::new();
        for number in 0..300 {
            cli.run(&format!("SET k{number} v"));
            if number % 3 == 0 {
                cli.run(&format!("BLESS SET k{number} NO-EVICT"));
                expected.insert(format!("k{number}"));
            }
        }
        cli.run("SET late v PX 5");
        cli.run("BLESS SET late NO-EVICT");
        cli.advance_ms(10);
        for count in [1, 7, 1000] {
            let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
            loop {
                let reply = cli.run(&format!("BLESS SCAN {cursor} NO-EVICT COUNT {count}"));
                let mut quoted = reply.split('"').skip(1).step_by(2);
                cursor = quoted.next().expect("a cursor").to_owned();
                seen.extend(quoted.map(str::to_owned));
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(seen, expected, "{count}");
        }
    });
}

#[test]
fn what_is_rolled_back_leaves_blessings_as_they_were() {
    on_every_setup(|cli| {
        cli.run("MSET a{t} 1 b{t} 2 c{t} 3");
        cli.run("BLESS SET a{t} NO-EVICT");
        cli.run("BLESS SET b{t} NO-EVICT");
        cli.run("EXPIRE b{t} 100");
        let counts = |cli: &Terminal| -> Vec<(u64, u64, u64)> {
            let engines = cli.engines.iter();
            let dbs = engines.flat_map(|engine| engine.published().dbs.iter());
            dbs.map(|db| {
                (
                    db.blessed_keys.get(),
                    db.pinned_keys.get(),
                    db.pinned_volatile_keys.get(),
                )
            })
            .collect()
        };
        let before = counts(cli);
        assert_eq!(before.iter().map(|db| db.0).sum::<u64>(), 2);
        assert_eq!(before.iter().map(|db| db.2).sum::<u64>(), 1);
        for lines in [
            &["DEL a{t}", "SET a{t} 5"][..],
            &["BLESS CLEAR a{t} NO-EVICT", "BLESS SET c{t} NO-EVICT"],
            &["PERSIST b{t}", "EXPIRE a{t} 5", "RENAME b{t} c{t}"],
            &["FLUSHALL", "SET a{t} 1", "BLESS SET a{t} NO-EVICT"],
            &[
                "SWAPDB 0 1",
                "SELECT 1",
                "BLESS CLEAR b{t} NO-EVICT",
                "SELECT 0",
            ],
        ] {
            let engines = &mut cli.engines;
            engines.iter_mut().for_each(|engine| engine.begin_attempt());
            for line in lines {
                let reply = cli.run(line);
                assert!(!reply.starts_with("(error)"), "{line}: {reply}");
            }
            let engines = &mut cli.engines;
            engines.iter_mut().for_each(|engine| engine.undo_attempt());
            assert_eq!(counts(cli), before, "{lines:?}");
            for (key, state) in [
                ("a", "1) \"NO-EVICT\""),
                ("b", "1) \"NO-EVICT\""),
                ("c", "(empty array)"),
            ] {
                cli.check(&format!("BLESS GET {key}{{t}}"), state);
            }
        }
    });
}
