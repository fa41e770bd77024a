//! Append-only files: what they leave, whatever the number of shards and of threads, where they end, and what is
//! refused.

use super::*;
use crate::persist::load::fault::AofFault;

/// Commands drawn at random, many of which depend on what came before on the same key.
fn drawn(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut file = Vec::new();
    let mut draw = |below: u64| random.next_u64() % below;
    for number in 0..count {
        let (key, other) = (draw(40), draw(40));
        let line = match draw(14) {
            0 => format!("SET s{key} {number}"),
            1 => format!("APPEND s{key} {number}"),
            2 => format!("INCR n{key}"),
            3 => format!("RPUSH l{key} {number} {other}"),
            4 => format!("LPOP l{key}"),
            5 => format!("HSET h{key} f{other} {number}"),
            6 => format!("ZADD z{key} {number} m{other}"),
            7 => format!("DEL s{key} l{other}"),
            8 if number % 5 == 0 => format!("SELECT {}", draw(3)),
            9 if number % 7 == 0 => format!("MSET s{key} a{number} s{other} b{number}"),
            10 if number % 5 == 0 => format!("RENAME l{key} l{other}"),
            11 => format!("PEXPIREAT s{key} {FAR_MS}"),
            _ if number % 9 == 0 => {
                file.extend(commands(&["MULTI"]));
                file.extend(command(&format!("APPEND s{key} x{number}")));
                file.extend(command(&format!("LPUSH l{other} y{number}")));
                "EXEC".to_owned()
            }
            _ => format!("SADD u{key} {number} m{other}"),
        };
        file.extend(command(&line));
        if number % 50 == 0 {
            file.extend_from_slice(b"#TS:1700000000\r\n");
        }
    }
    file
}

#[test]
fn commands_have_the_same_effect_on_any_number_of_threads_and_shards() {
    for seed in 1..4 {
        let file = drawn(seed, 4_000);
        let one = service(1);
        let loaded = replay(one, &file, 1).expect("commands");
        assert_eq!(loaded.bytes, file.len() as u64);
        let expected = state(one);
        assert!(expected.len() > 100, "seed {seed}");
        for (shards, threads) in [(4, 1), (4, 2), (8, 3), (2, 4)] {
            let other = service(shards);
            replay(other, &file, threads).expect("commands");
            assert!(
                state(other) == expected,
                "seed {seed}, {shards} shards, {threads} threads"
            );
        }
    }
}

#[test]
fn a_file_that_is_cut_is_loaded_up_to_where_it_is_good() {
    let file = commands(&[
        "SET a 1",
        "MULTI",
        "SET b 2",
        "APPEND b x",
        "EXEC",
        "SET c 3",
    ]);
    let ends: Vec<usize> = [
        "SET a 1",
        "MULTI",
        "SET b 2",
        "APPEND b x",
        "EXEC",
        "SET c 3",
    ]
    .iter()
    .scan(0, |end, line| {
        *end += command(line).len();
        Some(*end)
    })
    .collect();
    for len in 0..=file.len() {
        let service = service(2);
        let result = replay(service, &file[..len], 1 + len % 2);
        let whole = ends.iter().filter(|end| **end <= len).count();
        let (valid, keys) = match whole {
            0 => (0, 0),
            1..5 => (ends[0], 1),
            5 => (ends[4], 2),
            _ => (ends[5], 3),
        };
        assert_eq!(state(service).len(), keys, "cut at {len}");
        match result {
            Ok(loaded) => {
                assert_eq!((loaded.bytes, valid), (len as u64, len));
            }
            Err(error) => {
                assert_eq!(error.valid, valid as u64, "cut at {len}");
                let is_open = (1..5).contains(&whole) && len > ends[0];
                let in_transaction = whole >= 2 && is_open;
                match error.fault {
                    AofFault::Unfinished => assert!(in_transaction),
                    AofFault::Short => assert!(!in_transaction),
                    fault => panic!("{fault}"),
                }
            }
        }
    }
}

#[test]
fn what_can_not_be_run_ends_it_at_its_place() {
    let good = commands(&["SET a 1"]);
    for (bad, is_expected) in [
        (
            command("NOSUCH x"),
            (|fault| matches!(fault, AofFault::Unknown(_))) as fn(&AofFault) -> bool,
        ),
        (command("GET"), |fault| {
            matches!(fault, AofFault::Arguments(_))
        }),
        (b"SET k v\r\n".to_vec(), |fault| {
            matches!(fault, AofFault::Format)
        }),
        (command("BLPOP nothing 0"), |fault| {
            matches!(fault, AofFault::Waits)
        }),
        (command("SHUTDOWN"), |fault| {
            matches!(fault, AofFault::Waits)
        }),
    ] {
        for threads in [1, 2] {
            let service = service(4);
            let file = [&good[..], &bad, &good].concat();
            let error = replay(service, &file, threads).expect_err("broken");
            assert!(is_expected(&error.fault), "{error}");
            assert_eq!(error.offset, good.len() as u64, "{error}");
            assert_eq!(state(service).len(), 1);
        }
    }
}

#[test]
fn a_transaction_whose_end_is_damaged_is_no_unfinished_one() {
    let before = commands(&["SET a 1", "MULTI", "SET a 2"]);
    for (bad, is_unknown) in [("EXEB", true), ("EXEC x", false)] {
        for threads in [1, 2] {
            let behind = commands(&["SET b 1", "SET c 1"]);
            let file = [&before[..], &command(bad), &behind].concat();
            let error = replay(service(4), &file, threads).expect_err("broken");
            assert_eq!(matches!(error.fault, AofFault::Unknown(_)), is_unknown);
            assert_eq!(error.offset, before.len() as u64, "{error}");
        }
    }
}

#[test]
fn a_snapshot_may_stand_at_the_beginning_and_commands_follow_on_it() {
    let due = [&[opcode::DEADLINE_MS][..], &1_000_u64.to_le_bytes()].concat();
    let mut file = made(&[(&due, &[0, 1, b'v'])], 10);
    file.extend(commands(&["PERSIST key0", "APPEND key0 w"]));
    let service = service(2);
    let loaded = replay(service, &file, 2).expect("both");
    assert_eq!(loaded.snapshot.expect("a snapshot").keys, 1);
    assert_eq!(loaded.commands, 2);
    let (value, deadline) = &state(service)[&(0, b"key0".to_vec())];
    assert_eq!(
        (value.as_slice(), deadline),
        (&[0, 2, b'v', b'w'][..], &None)
    );
}

#[test]
fn a_snapshot_in_the_format_of_valkey_at_the_beginning_is_called_that() {
    let error = replay(service(1), b"VALKEY080", 1).expect_err("ours does not read it");
    let is_named = matches!(error.fault, AofFault::Snapshot(Fault::Valkey(80)));
    assert!(is_named, "{error}");
}

#[test]
fn keys_whose_time_has_come_meanwhile_are_there_while_loading() {
    let file = commands(&[
        "SET a 1 PXAT 1000",
        "APPEND a 2",
        "PERSIST a",
        "SET b 1",
        "PEXPIREAT b 1000",
        "PERSIST b",
        "SET c 1",
        "GETEX c PXAT 1000",
        "PERSIST c",
        "HSET h f 1 g 2",
        "HPEXPIREAT h 1000 FIELDS 1 f",
        "HINCRBY h f 1",
        "HPERSIST h FIELDS 1 f",
        "SET gone 1 PXAT 1000",
    ]);
    let service = service(2);
    replay(service, &file, 1).expect("commands");
    let state = state(service);
    for (key, value) in [
        ("a", &[0, 0xc0, 12]),
        ("b", &[0, 0xc0, 1]),
        ("c", &[0, 0xc0, 1]),
    ] {
        let (found, deadline) = &state[&(0, key.as_bytes().to_vec())];
        assert_eq!((found.as_slice(), deadline), (&value[..], &None), "{key}");
    }
    assert_eq!(state[&(0, b"gone".to_vec())].1, Some(1000));
    each_entry(service, |_, entry| {
        if let Some(hash) = HashRef::of(entry, FAR_MS) {
            assert_eq!(hash.len(), 2);
            let field = hash.get(b"f").expect("it was kept");
            assert_eq!(field.deadline, None);
        }
    });
}

#[test]
fn a_reset_ends_a_transaction_and_what_follows_is_run() {
    for (file, keys) in [
        (&["MULTI", "SET a 1", "RESET", "SET b 1", "SET c 1"][..], 2),
        (&["CLIENT REPLY ON", "SET a 1"], 1),
        (&["CLIENT REPLY OFF", "MULTI", "SET a 1", "EXEC"], 1),
    ] {
        for threads in [1, 2] {
            let (file, service) = (commands(file), service(4));
            let loaded = replay(service, &file, threads).expect("nothing is open");
            assert_eq!(loaded.bytes, file.len() as u64);
            assert_eq!(state(service).len(), keys);
        }
    }
}
