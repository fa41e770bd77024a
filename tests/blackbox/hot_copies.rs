//! Hot keys, which threads answer from copies of their own (`hot-copies`): no reader sees a value after a newer one, or
//! one that it was told is gone, whatever changes the key; and the figures count all reads.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::support::{self, Draw, Options, Server, check, info_number};
use crate::wire::{Raw, Value};

/// Hot keys of the test of all changes.
const KEYS: usize = 4;
/// Readers beside the writer.
const READERS: u64 = 6;

/// Starts a server whose threads find hot keys soon.
fn start(threads: usize, options: Options) -> Server {
    Server::start(&options.threads(threads).with("hot-keys-sample", "2"))
}

/// Returns the number of reads that were answered from copies.
fn copy_reads(raw: &mut Raw) -> u64 {
    info_number(raw, "basalt", "hot_key_copy_reads") as u64
}

/// The history of one key, which one writer changes: even versions are values, odd ones mean that it does not exist.
#[derive(Default)]
struct Register {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    /// The newest version that any reader has seen.
    seen: AtomicU64,
}

impl Register {
    /// Checks a read that began when `least` was known.
    fn check(&self, least: u64, reply: &Value, what: &str) {
        let most = self.begun.load(SeqCst);
        if reply.show() == "(nil)" {
            let gone = most - u64::from(most.is_multiple_of(2)).min(most);
            let was_gone = gone % 2 == 1 && gone >= least;
            assert!(was_gone, "{what}: nothing, {least} to {most}");
            return;
        }
        let version: u64 = reply.text().parse().expect("a version");
        assert!(
            (least..=most).contains(&version),
            "{what}: {version}, {least} to {most}"
        );
        self.seen.fetch_max(version, SeqCst);
    }

    /// Returns the version that a read which begins now must see at least.
    fn least(&self) -> u64 {
        self.acknowledged.load(SeqCst).max(self.seen.load(SeqCst))
    }
}

/// Brings a key to its next version by one of many commands.
fn change(raw: &mut Raw, draw: &mut Draw, register: &Register, key: &str) {
    let before = register.acknowledged.load(SeqCst);
    let exists = before.is_multiple_of(2);
    let value = before + if exists { 2 } else { 1 };
    let run = |raw: &mut Raw, version: u64, lines: &[String]| {
        register.begun.store(version, SeqCst);
        for line in lines {
            let reply = raw.call(line);
            assert!(!reply.is_error(), "{line}: {}", reply.show());
        }
        register.acknowledged.store(version, SeqCst);
    };
    if exists && draw.below(6) == 0 {
        let line = match draw.below(4) {
            0 => format!("DEL {key}"),
            1 => format!("UNLINK {key}"),
            2 => format!("PEXPIRE {key} 0"),
            _ => format!("RENAME {key} away:{key}"),
        };
        return run(raw, before + 1, &[line]);
    }
    let lines = match draw.below(10) {
        0 => vec![format!("SET {key} {value} PX 100000")],
        1 => vec![
            format!("SET tmp:{key} {value}"),
            format!("RENAME tmp:{key} {key}"),
        ],
        2 => vec![
            format!("SET tmp:{key} {value}"),
            format!("COPY tmp:{key} {key} REPLACE"),
        ],
        3 => vec![format!(
            "EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 {key} {value}"
        )],
        4 => vec![
            "MULTI".into(),
            format!("SET {key} {value}"),
            format!("EXPIRE {key} 100"),
            "EXEC".into(),
        ],
        5 if exists => vec![format!("INCRBY {key} 2")],
        6 if exists => vec![
            format!("EXPIRE {key} 100"),
            format!("SETRANGE {key} 0 {value}"),
        ],
        7 => vec![format!("MSET {key} {value} other:{key} 1")],
        _ => vec![format!("SET {key} {value}")],
    };
    run(raw, value, &lines);
}

#[test]
fn no_reader_of_a_hot_key_sees_an_older_value_after_a_newer_one() {
    if support::is_stand_in() {
        return;
    }
    for (threads, runtime) in [
        (1, "shared"),
        (4, "shared"),
        (4, "per-core"),
        (8, "per-core"),
    ] {
        let server = start(threads, Options::shards(4).with("runtime", runtime));
        let registers: [Register; KEYS] = Default::default();
        let is_over = AtomicBool::new(false);
        let mut raw = server.raw();
        for key in 0..KEYS {
            check(&mut raw, &format!("SET hot:{key} 0"), "OK");
        }
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (registers, is_over, port) = (&registers, &is_over, server.port);
                scope.spawn(move || {
                    let mut raw = Raw::connect(port);
                    let mut draw = Draw::new(reader);
                    while !is_over.load(SeqCst) {
                        let least: Vec<u64> = registers.iter().map(Register::least).collect();
                        let keys: Vec<usize> =
                            (0..1 + draw.below(40)).map(|_| draw.below(KEYS)).collect();
                        let lines: Vec<String> =
                            keys.iter().map(|key| format!("GET hot:{key}")).collect();
                        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                        for (reply, key) in raw.pipeline(&lines).iter().zip(keys) {
                            registers[key].check(least[key], reply, &format!("key {key}"));
                        }
                    }
                });
            }
            let mut draw = Draw::new(99);
            let until = Instant::now() + Duration::from_secs(3);
            while Instant::now() < until {
                // Now fast, now with pauses in which the key is copied.
                let pause = Duration::from_millis(if draw.below(2) == 0 { 0 } else { 15 });
                for _ in 0..20 {
                    let key = draw.below(KEYS);
                    change(&mut raw, &mut draw, &registers[key], &format!("hot:{key}"));
                    std::thread::sleep(pause);
                }
            }
            is_over.store(true, SeqCst);
        });
        let reads = copy_reads(&mut raw);
        assert!(
            reads > 1_000,
            "{threads} {runtime}: {reads} reads from copies"
        );
    }
}

/// Two keys that only EXEC and scripts change, both at once: who has seen the new value of one never sees the old value
/// of the other, in either order of the reads.
#[test]
fn no_part_of_a_transaction_is_seen_by_copies() {
    if support::is_stand_in() {
        return;
    }
    let server = start(4, Options::shards(8));
    let mut raw = server.raw();
    check(&mut raw, "MSET one 0 two 0", "OK");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (is_over, port) = (&is_over, server.port);
            scope.spawn(move || {
                let mut raw = Raw::connect(port);
                let lines = if reader % 2 == 0 {
                    ["GET one", "GET two"]
                } else {
                    ["GET two", "GET one"]
                };
                let lines = lines.repeat(10);
                while !is_over.load(SeqCst) {
                    let replies = raw.pipeline(&lines);
                    let values: Vec<u64> = replies
                        .iter()
                        .map(|reply| reply.text().parse().expect("a number"))
                        .collect();
                    assert!(values.is_sorted(), "{values:?}");
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(3);
        for value in 1.. {
            if Instant::now() > until {
                break;
            }
            let lines = match value % 3 {
                0 => vec![format!("MSET one {value} two {value}")],
                1 => vec![
                    "MULTI".into(),
                    format!("SET two {value}"),
                    format!("SET one {value}"),
                    "EXEC".into(),
                ],
                _ => vec![format!(
                    "EVAL \"redis.call('set', KEYS[1], ARGV[1]) return redis.call('set', KEYS[2], ARGV[1])\" 2 one two {value}"
                )],
            };
            lines
                .iter()
                .for_each(|line| assert!(!raw.call(line).is_error(), "{line}"));
            std::thread::sleep(Duration::from_millis(value % 4 * 10));
        }
        is_over.store(true, SeqCst);
    });
    let reads = copy_reads(&mut raw);
    assert!(reads > 1_000, "{reads} reads from copies");
}

/// Reads a key often enough, for long enough, that its thread copies it.
fn warm(raw: &mut Raw, line: &str, expected: &str) {
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until {
        for reply in raw.pipeline(&[line; 50]) {
            assert_eq!(reply.show(), expected, "{line}");
        }
    }
}

#[test]
fn what_ends_all_keys_ends_copies_and_what_cannot_be_copied_is_not() {
    if support::is_stand_in() {
        return;
    }
    let server = start(1, Options::shards(2).with("databases", "4"));
    let mut raw = server.raw();
    let mut other = server.raw();
    for (end, expected) in [
        ("FLUSHALL", "(nil)"),
        ("FLUSHDB ASYNC", "(nil)"),
        ("SWAPDB 0 1", "\"of the other\""),
        ("SET k other", "\"other\""),
        ("DEBUG RELOAD", "\"value\""),
        ("MOVE k 2", "(nil)"),
        ("PEXPIREAT k 1", "(nil)"),
    ] {
        check(&mut other, "FLUSHALL", "OK");
        check(&mut other, "SELECT 1", "OK");
        check(&mut other, "SET k \"of the other\"", "OK");
        check(&mut other, "SELECT 0", "OK");
        check(&mut other, "SET k value", "OK");
        let before = copy_reads(&mut other);
        warm(&mut raw, "GET k", "\"value\"");
        assert!(copy_reads(&mut other) > before + 100, "{end}: copied");
        assert!(!other.call(end).is_error(), "{end}");
        check(&mut raw, "GET k", expected);
    }
    // A deadline passes without any command; other replies of the same copy.
    check(&mut other, "SET k value PX 900", "OK");
    let before = copy_reads(&mut other);
    warm(&mut raw, "STRLEN k", "(integer) 5");
    warm(&mut raw, "EXISTS k", "(integer) 1");
    assert!(copy_reads(&mut other) > before + 100, "copied");
    support::eventually("it expires", || raw.call("GET k").show() == "(nil)");
    check(&mut raw, "STRLEN k", "(integer) 0");
    // Reads that a copy cannot answer.
    let mut tracking = server.raw();
    tracking.call("HELLO 3");
    check(&mut tracking, "CLIENT TRACKING ON", "OK");
    check(
        &mut other,
        &format!("SET long {}", "x".repeat(16_385)),
        "OK",
    );
    check(&mut other, "RPUSH list 1", "(integer) 1");
    check(&mut other, "SET k value", "OK");
    check(&mut other, "TAG ADD k t", "(integer) 1");
    let before = copy_reads(&mut other);
    warm(&mut raw, "STRLEN long", "(integer) 16385");
    warm(&mut raw, "EXISTS list", "(integer) 1");
    warm(&mut raw, "GET k", "\"value\"");
    warm(&mut raw, "EXISTS k k", "(integer) 2");
    check(&mut other, "SET plain value", "OK");
    warm(&mut tracking, "GET plain", "\"value\"");
    assert_eq!(copy_reads(&mut other), before);
    // Switched off, and on again.
    warm(&mut raw, "GET plain", "\"value\"");
    assert!(copy_reads(&mut other) > before);
    assert_eq!(info_number(&mut other, "basalt", "hot_key_copies"), 1.0);
    // A copy that has ended is not counted, even if the key is not read again.
    check(&mut other, "SET plain value", "OK");
    assert_eq!(info_number(&mut other, "basalt", "hot_key_copies"), 0.0);
    warm(&mut raw, "GET plain", "\"value\"");
    check(&mut other, "CONFIG SET hot-copies no", "OK");
    let before = copy_reads(&mut other);
    warm(&mut raw, "GET plain", "\"value\"");
    assert_eq!(copy_reads(&mut other), before);
    assert_eq!(info_number(&mut other, "basalt", "hot_key_copies"), 0.0);
}

#[test]
fn reads_from_copies_are_counted_as_any_other() {
    if support::is_stand_in() {
        return;
    }
    let server = start(1, Options::shards(2));
    let mut raw = server.raw();
    check(&mut raw, "SELECT 3", "OK");
    check(&mut raw, "SET k value", "OK");
    check(&mut raw, "CONFIG RESETSTAT", "OK");
    let mut count = 0;
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        count += raw.pipeline(&["GET k"; 50]).len() as u64;
    }
    let from_copies = copy_reads(&mut raw);
    assert!(from_copies > count / 2, "{from_copies} of {count}");
    // One in 256 goes the ordinary way.
    assert!(
        from_copies < count - count / 300,
        "{from_copies} of {count}"
    );
    assert_eq!(
        info_number(&mut raw, "stats", "keyspace_hits") as u64,
        count
    );
    let stats = raw.call("INFO commandstats").text();
    assert!(
        stats.contains(&format!("cmdstat_get:calls={count},")),
        "{stats}"
    );
    let top = raw.call("HOTKEYS TOP");
    let copied: Vec<String> = top.items()[11].items().iter().map(Value::show).collect();
    assert_eq!(copied, ["\"k\"", "(integer) 1"], "{}", top.show());
}
