//! Loading of append-only files: the resulting data for several numbers of shards and threads, where a
//! truncated file's valid part ends, and which files are refused.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::persist::load::fault::AofFault;

/// Returns random commands, many of which depend on earlier ones on the same key.
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
        let one = lenient_service(1);
        let loaded = replay(one, &file, 1).expect("commands");
        assert_eq!(loaded.bytes, file.len() as u64);
        let expected = state(one);
        assert!(expected.len() > 100, "seed {seed}");
        for (shards, threads) in [(4, 1), (4, 2), (8, 3), (2, 4)] {
            let other = lenient_service(shards);
            replay(other, &file, threads).expect("commands");
            assert!(
                state(other) == expected,
                "seed {seed}, {shards} shards, {threads} threads"
            );
        }
    }
}

#[test]
fn what_redis_and_valkey_trim_nearly_is_trimmed_exactly() {
    let mut lines: Vec<String> = (1..=8).map(|n| format!("XADD x {n}-1 f v")).collect();
    // As servers rewrite `MAXLEN ~ 4 LIMIT 10`, `MINID ~ 6 LIMIT 10` and `MAXLEN ~ 1`, with nodes of three entries.
    lines.extend([
        "XADD x MAXLEN = 6 LIMIT 10 9-1 f v".to_owned(),
        "XTRIM x MINID = 6-1 LIMIT 10".to_owned(),
        "XADD x MINID = 7-1 LIMIT 10 10-1 f v".to_owned(),
        "XADD x MAXLEN = 2 11-1 f v".to_owned(),
    ]);
    let [taken, met] = [" LIMIT 10", ""].map(|limit| {
        let lines = lines.iter().map(|line| line.replace(" LIMIT 10", limit));
        let file: Vec<u8> = lines.flat_map(|line| command(&line)).collect();
        let service = service(2);
        replay(service, &file, 2).expect("commands");
        state(service)
    });
    assert_eq!(taken, met);
}

#[test]
fn deadlines_that_are_too_late_to_be_kept_are_cut_off_where_a_server_has_taken_them() {
    // Deadlines of hash fields as Valkey 9 writes them. This server's latest deadline of a hash field is
    // 2^46 - 1 ms.
    let far = [70_368_744_177_664, 9_223_372_036_854_775_807_i64];
    let [taken, latest] = [far, [70_368_744_177_663; 2]].map(|[one, two]| {
        let lines = [
            "HSET h f v g w".to_owned(),
            format!("HPEXPIREAT h {one} FIELDS 1 f"),
            format!("HSETEX h PXAT {two} FIELDS 1 z 1"),
            "SADD s a b".to_owned(),
            format!("SPEXPIREAT s {two} MEMBERS 1 a"),
        ];
        let file: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        let service = service(2);
        replay(service, &file, 2).expect("commands");
        state(service)
    });
    assert_eq!(taken, latest);
    // The latest deadline of a key is 2^48 - 1 ms.
    let [taken, latest] = [i64::MAX, (1 << 48) - 1].map(|at_ms| {
        let lines = [
            format!("SET k v PXAT {at_ms}"),
            "SET l v".to_owned(),
            format!("PEXPIREAT l {at_ms}"),
        ];
        let file: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        let service = service(2);
        replay(service, &file, 2).expect("commands");
        state(service)
    });
    assert_eq!(taken, latest);
}

#[test]
fn the_first_command_that_fails_is_named_with_its_place_on_any_number_of_threads() {
    let sets = |from: usize| {
        let lines: Vec<String> = (from..from + 700).map(|n| format!("SET k{n} v")).collect();
        commands(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let failing = command("LPUSH k3 x");
    let group = commands(&["MULTI", "INCR n", "LPUSH k4 x"]);
    for (between, name) in [(Vec::new(), "lpush"), (group, "lpush")] {
        let last = match between.is_empty() {
            true => failing.clone(),
            false => command("EXEC"),
        };
        let before = [sets(0), between].concat();
        let file = [&before[..], &last, &sets(700), &failing].concat();
        for (shards, threads) in [(1, 1), (4, 1), (4, 2), (8, 3)] {
            let loaded = replay(service(shards), &file, threads);
            let error = loaded.expect_err("it fails");
            assert_eq!(error.offset, before.len() as u64, "{shards} {threads}");
            let AofFault::Failed(failed) = &error.fault else {
                panic!("{error}");
            };
            assert_eq!(failed.command, name);
            assert!(failed.reply.contains("WRONGTYPE"), "{}", failed.reply);
            let lenient = lenient_service(shards);
            replay(lenient, &file, threads).expect("they are passed over");
            let figures = &lenient.telemetry.replication;
            assert_eq!(figures.unexpected_errors.load(Relaxed), 2);
        }
    }
}

#[test]
fn a_file_that_is_cut_is_loaded_up_to_where_it_is_good() {
    let lines = [
        "SET a 1",
        "MULTI",
        "SET b 2",
        "APPEND b x",
        "EXEC",
        "SET c 3",
    ];
    let file = commands(&lines);
    let ends: Vec<usize> = lines
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
fn a_snapshot_in_the_format_of_a_later_valkey_at_the_beginning_is_called_that() {
    let error = replay(service(1), b"VALKEY099", 1).expect_err("ours does not read it");
    let is_named = matches!(error.fault, AofFault::Snapshot(Fault::Valkey(99)));
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

/// Returns a transaction of `count` commands without its EXEC, on keys that no other command uses.
fn begun(count: usize) -> Vec<u8> {
    let value = "x".repeat(1_000);
    let sets = (0..count).flat_map(|number| command(&format!("SET long:{number} {value}")));
    [command("MULTI"), sets.collect()].concat()
}

#[test]
fn a_transaction_may_be_longer_than_what_is_run_at_once_and_is_loaded_whole_or_not_at_all() {
    const COUNT: usize = 3_000;
    let before = commands(&["SET a 1", "SELECT 1", "SET b 1"]);
    let behind = commands(&["SET c 1", "SELECT 0", "SET d 1"]);
    let open = [before.clone(), begun(COUNT)].concat();
    assert!(open.len() > 2 * framing::COMMAND_BYTES_MAX);
    for threads in [1, 2, 3] {
        let whole = service(4);
        let file = [&open[..], &command("EXEC"), &behind].concat();
        let loaded = replay(whole, &file, threads).expect("a transaction");
        assert_eq!(loaded.commands, COUNT as u64 + 8);
        let there = state(whole);
        assert_eq!(there.len(), COUNT + 4);
        assert!(there.contains_key(&(1, b"long:2999".to_vec())));
        assert!(there.contains_key(&(1, b"c".to_vec())), "behind it");

        let cut = service(4);
        let error = replay(cut, &open, threads).expect_err("it has no end");
        assert!(matches!(error.fault, AofFault::Unfinished), "{error}");
        assert_eq!(error.valid, before.len() as u64);
        assert_eq!(state(cut).len(), 2, "nothing of it");

        let discarded = service(4);
        let file = [&open[..], &command("DISCARD"), &behind].concat();
        replay(discarded, &file, threads).expect("it has an end");
        assert_eq!(state(discarded).len(), 4, "nothing of it");

        let damaged = service(4);
        let file = [&open[..], &command("EXEB"), &behind].concat();
        let error = replay(damaged, &file, threads).expect_err("no such command");
        assert!(matches!(error.fault, AofFault::Unknown(_)), "{error}");
        assert_eq!(error.offset, open.len() as u64);
        assert_eq!(state(damaged).len(), 2, "nothing of it");
    }
}

#[test]
fn what_is_damaged_in_a_transaction_is_said_with_its_place_wherever_it_stands() {
    for (first, second) in [(0, 1_500), (700, 0), (1_500, 3)] {
        for threads in [1, 2] {
            let front = [command("SET a 1"), begun(first)].concat();
            let rest = begun(second);
            let file = [&front[..], &command("NOSUCH x"), &rest].concat();
            let service = service(4);
            let error = replay(service, &file, threads).expect_err("no such command");
            assert!(matches!(error.fault, AofFault::Unknown(_)), "{error}");
            assert_eq!(error.offset, front.len() as u64);
            assert_eq!(state(service).len(), 1);
        }
    }
}

#[test]
fn a_command_that_is_too_long_is_refused_at_its_place() {
    let value = "x".repeat(framing::COMMAND_BYTES_MAX);
    let front = commands(&["SET a 1", "SET b 1"]);
    for threads in [1, 2] {
        let service = service(4);
        let long = command(&format!("SET c {value}"));
        let file = [&front[..], &long, &command("SET d 1")].concat();
        let error = replay(service, &file, threads).expect_err("too long");
        assert!(matches!(error.fault, AofFault::Format), "{error}");
        assert_eq!(error.offset, front.len() as u64);
        assert_eq!(state(service).len(), 2);
        // A command that does not fit in a window together with the others, but fits in one alone.
        let long = command(&format!("SET c {}", &value[100..]));
        let file = [&front[..], &long, &command("SET d 1")].concat();
        replay(self::service(4), &file, threads).expect("all of it");
    }
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

/// Loads until `stop` returns true.
fn replay_until(
    service: &'static Service,
    file: &[u8],
    threads: usize,
    stop: &dyn Fn() -> bool,
) -> Result<AofLoaded, AofError> {
    let mut progress = Progress::begin(service, file.len() as u64, stop);
    let loader = Loader::new(service).with_threads(threads);
    loader.aof(&mut &file[..], &mut progress)
}

#[test]
fn progress_is_made_and_the_end_of_the_server_seen_whatever_the_file_is_made_of() {
    let alternating = (0..5_000).flat_map(|number| {
        commands(&[
            "MULTI",
            &format!("SET a{number} 1"),
            "EXEC",
            &format!("SET b{number} 1"),
        ])
    });
    let alternating: Vec<u8> = alternating.collect();
    let long = [begun(10_000), command("EXEC")].concat();
    let sets: Vec<u8> = (0..10_000)
        .flat_map(|number| command(&format!("SET c{number} 1")))
        .collect();
    for (name, file) in [
        ("alternating", alternating),
        ("long", long),
        ("single", sets),
    ] {
        for threads in [1, 2] {
            let service = service(4);
            let figures = &service.telemetry.persistence.loading;
            let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
            let go_on = || {
                seen.borrow_mut().insert(figures.loaded_bytes.load(Relaxed));
                false
            };
            replay_until(service, &file, threads, &go_on).expect("commands");
            let steps = seen.borrow().len();
            assert!(steps > 10, "{name}, {threads} threads: {steps}");
            let all = state(service).len();

            let service = self::service(4);
            let asked = std::cell::Cell::new(0);
            let stop = || asked.replace(asked.get() + 1) >= steps / 2;
            let error = replay_until(service, &file, threads, &stop).expect_err("stopped");
            assert!(matches!(error.fault, AofFault::Stopped), "{error}");
            let there = state(service).len();
            assert!(there < all, "{name}, {threads} threads: {there}");
            assert!(
                name != "long" || there == 0,
                "half of a transaction: {there}"
            );
        }
    }
}

#[test]
fn a_delay_for_each_key_holds_for_snapshots_and_for_commands_and_the_end_of_the_server_is_seen_meanwhile()
 {
    let snapshot = made(&[(&[], &[0, 1, b'v'])], 10);
    let commands = commands(&["SET a 1", "MULTI", "SET b 1", "EXEC"]);
    for file in [&snapshot, &commands] {
        let service = service(2);
        service.config.store(Arc::new(Config {
            key_load_delay: i32::MAX,
            ..Config::default()
        }));
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= 2;
        let error = replay_until(service, file, 1, &stop).expect_err("it takes too long");
        let is_stopped = match &error.fault {
            AofFault::Snapshot(fault) => matches!(fault, Fault::Stopped),
            fault => matches!(fault, AofFault::Stopped),
        };
        assert!(is_stopped, "{error}");
        assert_eq!(state(service).len(), 0);
    }
}
