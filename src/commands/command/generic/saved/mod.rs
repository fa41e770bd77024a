//! Tests of snapshots with all types: a snapshot contains the state at the cut, each entry once, whatever commands
//! run until its end; and copies made for saving are charged to no account.

mod collector;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::undone::{accounts, draw, script, server};
use crate::command::testing::Terminal;
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::random::Random;
use basalt_engine::evict::Policy;
use basalt_engine::evict::budget::Budget;
use basalt_engine::snapshot::Outlet;
use basalt_engine::{Engine, Now, defrag};

use collector::{Collector, KINDS, SavedEntry, whole};

fn all_entries(engines: &[Engine]) -> Vec<SavedEntry> {
    let mut all = Vec::new();
    for engine in engines {
        for index in 0..engine.database_count() {
            let Some(db) = engine.db(index) else { continue };
            db.table().for_each(|entry| {
                all.push((index, whole(entry)));
            });
        }
    }
    all.sort_unstable();
    all
}

thread_local! {
    /// The last ID of an entry of a stream.
    static LAST_ID: Cell<u64> = const { Cell::new(0) };
}

/// Prefixes of keys that hold sketches.
const SKETCHES: [&str; 5] = ["bloom", "cuckoo", "count-min", "top-k", "t-digest"];

fn change_list(cli: &mut Terminal, random: &mut Random) {
    let key = format!("list{}", draw(random, 3));
    let value = |random: &mut Random| match draw(random, 60) {
        0 => "huge".repeat(6_000),
        1..=4 => "large".repeat(draw(random, 60) as usize),
        _ => format!("value{}", draw(random, 30)),
    };
    let index = draw(random, 160) as i64 - 80;
    let line = match draw(random, 12) {
        0..=3 => {
            let command = ["RPUSH", "LPUSH"][draw(random, 2) as usize];
            let count = draw(random, 30) + 1;
            let values = (0..count).map(|_| value(random));
            format!("{command} {key} {}", values.collect::<Vec<_>>().join(" "))
        }
        4 => format!("LPOP {key} {}", draw(random, 12)),
        5 => format!("RPOP {key} {}", draw(random, 12)),
        6 => format!("LSET {key} {index} {}", value(random)),
        7 => format!("LINSERT {key} BEFORE {} {}", value(random), value(random)),
        8 => format!(
            "LREM {key} {} {}",
            draw(random, 5) as i64 - 2,
            value(random)
        ),
        9 if draw(random, 3) == 0 => format!("LTRIM {key} {} {index}", draw(random, 20)),
        9 => format!("LTRIM {key} {} -{}", draw(random, 10), draw(random, 10) + 1),
        10 => format!("LMOVE {key} list{} LEFT RIGHT", draw(random, 3)),
        _ => format!("LSET {key} {index} other"),
    };
    cli.run(&line);
}

fn change_stream(cli: &mut Terminal, random: &mut Random) {
    let key = format!("stream{}", draw(random, 3));
    let (group, consumer) = (draw(random, 3), draw(random, 3));
    let last = LAST_ID.get();
    let known = (last + 1).saturating_sub(draw(random, 120));
    let line = match draw(random, 24) {
        0..=5 => {
            for _ in 0..draw(random, 20) {
                let id = LAST_ID.get() + 1;
                LAST_ID.set(id);
                cli.run(&format!("XADD {key} {id}-0 field{} v", draw(random, 2)));
            }
            return;
        }
        6 => format!("XDEL {key} {known}-0 {}-0", known + 1),
        7 => format!("XTRIM {key} MAXLEN {}", draw(random, 60)),
        8 => format!("XTRIM {key} MINID ~ {known}"),
        9 => format!("XTRIM {key} MAXLEN 0"),
        10 => format!("XSETID {key} {last}-1"),
        11 | 12 => format!("XGROUP CREATE {key} g{group} 0"),
        13 if draw(random, 3) == 0 => format!("XGROUP DESTROY {key} g{group}"),
        13 => format!("XGROUP CREATECONSUMER {key} g{group} c{consumer}"),
        14 => format!("XGROUP DELCONSUMER {key} g{group} c{consumer}"),
        15 => format!("XGROUP SETID {key} g{group} {known}"),
        16..=18 => {
            let count = draw(random, 30);
            format!("XREADGROUP GROUP g{group} c{consumer} COUNT {count} STREAMS {key} >")
        }
        19 => format!("XREADGROUP GROUP g{group} c{consumer} COUNT 5 STREAMS {key} 0"),
        20 => format!(
            "XACK {key} g{group} {known}-0 {}-0 {}-0",
            known + 1,
            known + 2
        ),
        21 => format!(
            "XCLAIM {key} g{group} c{consumer} 0 {known}-0 {}-0",
            known + 1
        ),
        22 => format!("XAUTOCLAIM {key} g{group} c{consumer} 0 {known} COUNT 5"),
        _ => format!("XCLAIM {key} g{group} c{consumer} 0 {known}-0 FORCE JUSTID"),
    };
    cli.run(&line);
}

fn change_sketch(cli: &mut Terminal, random: &mut Random) {
    let kind = draw(random, 5) as usize;
    let key = format!("{}{}", SKETCHES[kind], draw(random, 3));
    let makes = [
        "BF.RESERVE $ 0.01 1000",
        "CF.RESERVE $ 8192",
        "CMS.INITBYDIM $ 1000 3",
        "TOPK.RESERVE $ 4 400 3 0.9",
        "TDIGEST.CREATE $ COMPRESSION 300",
    ];
    cli.run(&makes[kind].replace('$', &key));
    for _ in 0..draw(random, 40) {
        let name = draw(random, 20_000);
        cli.run(&match (kind, draw(random, 12)) {
            (0, _) => format!("BF.ADD {key} {name}"),
            (1, 0..=2) => format!("CF.DEL {key} {name}"),
            (1, _) => format!("CF.ADD {key} {name}"),
            (2, 0) => format!("CMS.MERGE {key} 1 {key} WEIGHTS 2"),
            (2, _) => format!("CMS.INCRBY {key} {name} 3"),
            (3, _) => format!("TOPK.ADD {key} {name}"),
            (_, 0) if name < 2_000 => format!("TDIGEST.RESET {key}"),
            (_, 1) => format!("TDIGEST.QUANTILE {key} 0.5"),
            (_, 2) => format!("TDIGEST.MERGE {key} 1 {key}"),
            _ => {
                let numbers = (name..name + 60).map(|number| format!(" {number}"));
                format!("TDIGEST.ADD {key}{}", numbers.collect::<String>())
            }
        });
    }
}

/// Moves or deletes large collections.
fn move_large(cli: &mut Terminal, random: &mut Random) {
    let db = cli.connection.db;
    let name = |random: &mut Random| {
        let kinds = ["large", "list", "stream"].into_iter().chain(SKETCHES);
        let kind = kinds.cycle().nth(draw(random, 18) as usize);
        format!("{}{}", kind.unwrap_or_default(), draw(random, 4))
    };
    let (key, other) = (name(random), name(random));
    let line = match draw(random, 18) {
        0 => format!("DEL {key}"),
        1 => format!("UNLINK {key} {other}"),
        2..=4 => format!("RENAME {key} {other}"),
        5 => format!("RENAMENX {key} {other}"),
        6 => format!("SET {key} small"),
        7 => format!("PEXPIRE {key} {}", draw(random, 300)),
        8 => format!("MOVE {key} {}", draw(random, 3)),
        9 => format!("COPY {key} {other} REPLACE"),
        10 => format!("SUNIONSTORE {key} {other} {key}"),
        11 => "HPEXPIRE large0 300 FIELDS 3 field1 field2 field3".to_owned(),
        12 if draw(random, 3) == 0 => "FLUSHDB".to_owned(),
        12 | 13 => format!("SWAPDB {} {}", draw(random, 3), draw(random, 3)),
        14 => format!("GETDEL {key}"),
        15 => {
            // Removed keys may be restored by a rollback.
            cli.engines.iter_mut().for_each(Engine::begin_attempt);
            for _ in 0..draw(random, 4) {
                cli.run(&format!("RENAME {} {}", name(random), name(random)));
                cli.run(&format!("DEL {}", name(random)));
                change_list(cli, random);
                change_stream(cli, random);
                change_sketch(cli, random);
            }
            match draw(random, 2) {
                0 => cli.engines.iter_mut().for_each(Engine::undo_attempt),
                _ => cli.engines.iter_mut().for_each(Engine::commit_attempt),
            }
            return;
        }
        _ => return,
    };
    cli.run(&line);
    cli.connection.db = db;
}

/// Creates and changes large collections.
fn change_large(cli: &mut Terminal, random: &mut Random) {
    let command = ["HSET", "SADD", "ZADD", "HDEL", "SREM", "ZREM"][draw(random, 6) as usize];
    let mut line = format!("{command} large{}", draw(random, 4));
    for _ in 0..draw(random, 40) + 1 {
        let (name, value) = (draw(random, 300), draw(random, 50));
        line += &match command {
            "HSET" => format!(" field{name} {value}"),
            "ZADD" => format!(" {value} field{name}"),
            _ => format!(" field{name}"),
        };
    }
    cli.run(&line);
    for _ in 0..draw(random, 8) {
        change_list(cli, random);
        change_stream(cli, random);
        change_sketch(cli, random);
    }
    if draw(random, 4) == 0 {
        move_large(cli, random);
    }
}

/// Performs one step of the work that runs concurrently with a snapshot.
fn step(cli: &mut Terminal, walks: &mut [defrag::Walk], random: &mut Random) {
    let now = Now {
        unix_ms: cli.now_ms,
    };
    match draw(random, 16) {
        12..=15 => change_large(cli, random),
        0 => {
            // Tables grow here,
            let (db, from) = (cli.connection.db, draw(random, 3_000));
            for index in from..from + draw(random, 600) {
                cli.run(&format!("SET bulk{index} {index}"));
            }
            cli.connection.db = db;
        }
        1 => {
            // and shrink here.
            let from = draw(random, 3_000);
            for index in from..from + draw(random, 900) {
                cli.run(&format!("DEL bulk{index}"));
            }
        }
        2 => {
            cli.advance_ms(draw(random, 500));
            for engine in &mut cli.engines {
                while engine.expire_slice(now) {}
            }
        }
        3 => {
            let mut mover = Mover::of_everything();
            for (engine, walk) in cli.engines.iter_mut().zip(walks) {
                for _ in 0..draw(random, 8) {
                    if !engine.defrag_slice(walk, &mut mover) {
                        *walk = defrag::Walk::default();
                    }
                }
            }
        }
        4 => {
            let budget = Arc::clone(cli.engines[0].budget());
            let used = used_bytes(cli);
            budget.configure(used as u64 * 15 / 16, Policy::AllkeysRandom, false);
            for engine in &mut cli.engines {
                engine.evict_slice(now);
            }
            budget.configure(0, Policy::NoEviction, false);
        }
        5 | 6 => {
            let is_undone = draw(random, 2) == 0;
            let db = cli.connection.db;
            cli.engines.iter_mut().for_each(Engine::begin_attempt);
            for line in script(random) {
                cli.run(&line);
            }
            if is_undone {
                cli.connection.db = db;
                cli.engines.iter_mut().for_each(Engine::undo_attempt);
            } else {
                cli.engines.iter_mut().for_each(Engine::commit_attempt);
            }
        }
        _ => {
            for line in script(random) {
                cli.run(&line);
            }
        }
    }
}

fn used_bytes(cli: &Terminal) -> i64 {
    cli.engines.iter().map(Engine::used_bytes).sum()
}

/// Creates a server without any memory limit.
fn unlimited(shard_count: usize) -> Terminal {
    let mut cli = server(shard_count);
    let boards = cli
        .engines
        .iter()
        .map(|engine| Arc::clone(engine.published()));
    let budget = Arc::new(Budget::of(boards.collect()));
    for engine in &mut cli.engines {
        engine.set_budget(Arc::clone(&budget));
    }
    cli
}

/// Takes several snapshots; returns the number of pieces saved of each kind.
fn snapshots(seed: u64, count: usize) -> [u64; KINDS] {
    let shard_count = if seed.is_multiple_of(2) { 1 } else { 4 };
    let mut random = Random::new(seed);
    let mut cli = unlimited(shard_count);
    cli.configure(|config| {
        config.stream_node_max_entries = 5;
        config.list_compress_depth = u32::from(seed.is_multiple_of(3));
    });
    LAST_ID.set(0);
    let walks = (0..shard_count).map(|_| defrag::Walk::default());
    let mut walks: Vec<_> = walks.collect();
    let mut pieces = [0; KINDS];
    for number in 0..count {
        for _ in 0..draw(&mut random, 30) {
            step(&mut cli, &mut walks, &mut random);
        }
        walks.fill_with(defrag::Walk::default);
        let unaccounted = accounts(&mut cli).1;
        let saved = snapshot(&mut cli, &mut walks, &mut random, (seed, number));
        pieces
            .iter_mut()
            .zip(saved)
            .for_each(|(sum, one)| *sum += one);
        walks.fill_with(defrag::Walk::default);
        let after = accounts(&mut cli).1;
        assert_eq!(after, unaccounted, "seed {seed} snapshot {number}: bytes");
    }
    pieces
}

/// Takes one snapshot, which may be aborted.
fn snapshot(
    cli: &mut Terminal,
    walks: &mut [defrag::Walk],
    random: &mut Random,
    which: (u64, usize),
) -> [u64; KINDS] {
    let expected = all_entries(&cli.engines);
    let collector = Arc::new(Collector::default());
    let outlet: Arc<dyn Outlet> = Arc::clone(&collector) as _;
    let mut keys = 0;
    for engine in &mut cli.engines {
        let captured = engine.begin_snapshot(&outlet);
        keys += captured.iter().map(|db| db.keys).sum::<u64>();
    }
    assert_eq!(keys, expected.len() as u64);
    let stops_at = match draw(random, 4) {
        0 => draw(random, 20),
        _ => u64::MAX,
    };
    let mut steps = 0;
    while cli.engines.iter().any(Engine::is_in_snapshot) {
        if steps == stops_at {
            collector.is_given_up.store(true, Relaxed);
            drop(collector.collect());
        }
        steps += 1;
        step(cli, walks, random);
        let shard = draw(random, cli.engines.len() as u64) as usize;
        let mut looks = draw(random, 6);
        cli.engines[shard].save_slice(&mut || {
            looks = looks.saturating_sub(1);
            looks > 0
        });
    }
    let saved = collector.collect();
    if collector.is_given_up() {
        assert_eq!(saved, [], "seed and snapshot {which:?}");
    } else {
        let is_equal = saved == expected;
        assert!(is_equal, "{which:?}: {}", difference(&saved, &expected));
    }
    assert_eq!(collector.open_streams.load(Relaxed), 0);
    collector.pieces.each_ref().map(|count| count.load(Relaxed))
}

/// Lists the entries that are in only one of two sorted lists.
fn difference(saved: &[SavedEntry], expected: &[SavedEntry]) -> String {
    let text = |(db, bytes): &SavedEntry| format!("{db} {}", String::from_utf8_lossy(bytes));
    let missing = expected
        .iter()
        .filter(|entry| saved.binary_search(entry).is_err());
    let foreign = saved
        .iter()
        .filter(|entry| expected.binary_search(entry).is_err());
    let twice = saved
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| &pair[0]);
    format!(
        "missing {:#?}, foreign {:#?}, twice {:#?}",
        missing.map(text).collect::<Vec<_>>(),
        foreign.map(text).collect::<Vec<_>>(),
        twice.map(text).collect::<Vec<_>>()
    )
}

#[test]
fn a_snapshot_is_the_state_of_its_cut_with_each_entry_once() {
    let seeds: u64 = if cfg!(debug_assertions) { 12 } else { 240 };
    let mut pieces = [0; KINDS];
    for seed in 0..seeds {
        let saved = snapshots(seed, 4);
        pieces
            .iter_mut()
            .zip(saved)
            .for_each(|(sum, one)| *sum += one);
    }
    let are_many = pieces.iter().all(|count| *count > 20 * seeds);
    assert!(are_many, "lists, streams, others, sketches: {pieces:?}");
}

/// Creates a large collection of each type.
fn fill_large(cli: &mut Terminal) {
    cli.run("BF.RESERVE bloom 0.001 9000");
    for number in 0..200 {
        cli.run(&format!("RPUSH list value{number}"));
        cli.run(&format!("XADD stream {}-0 field {number}", number + 1));
        cli.run(&format!("SADD set member{number}"));
        cli.run(&format!("HSET hash field{number} {number}"));
        cli.run(&format!("ZADD zset {number} member{number}"));
        cli.run(&format!("BF.ADD bloom {number}"));
    }
    cli.run("SET tiny text");
    cli.run("XGROUP CREATE stream group 0");
    cli.run("XREADGROUP GROUP group somebody COUNT 150 STREAMS stream >");
}

/// Moving or deleting a collection that is being saved does not save any piece of it at that moment: saving continues
/// in slices.
#[test]
fn who_moves_or_deletes_what_is_under_way_saves_nothing_of_it() {
    let ways = [
        "RENAME $ elsewhere",
        "RENAME $ at-home",
        "MOVE $ 1",
        "DEL $",
        "UNLINK $",
        "SET $ small",
        "PEXPIRE $ 0",
        "PEXPIRE $ 10",
        "SORT other STORE $",
        "RESTORE $ 0 \x00\x01x\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00 REPLACE",
        "SWAPDB 0 1",
        "FLUSHALL",
        "FLUSHDB",
        "EVICT",
    ];
    for shard_count in [1, 4] {
        for way in ways {
            for key in ["list", "stream", "set", "hash", "zset", "bloom"] {
                let mut cli = unlimited(shard_count);
                cli.configure(|config| config.stream_node_max_entries = 5);
                fill_large(&mut cli);
                moved_or_deleted(&mut cli, way, key);
            }
        }
    }
}

fn moved_or_deleted(cli: &mut Terminal, way: &str, key: &str) {
    let expected = all_entries(&cli.engines);
    let collector = Arc::new(Collector::default());
    let outlet: Arc<dyn Outlet> = Arc::clone(&collector) as _;
    for engine in &mut cli.engines {
        engine.begin_snapshot(&outlet);
    }
    // The first change to each collection begins with saving it.
    for line in [
        "LSET list 100 other",
        "XDEL stream 100-0",
        "SREM set member100",
        "HDEL hash field100",
        "ZREM zset member100",
        "BF.ADD bloom another",
    ] {
        cli.run(line);
    }
    let pieces = || -> u64 {
        let counts = collector.pieces.iter();
        counts.map(|count| count.load(Relaxed)).sum()
    };
    let slice = |cli: &mut Terminal, looks: u64| {
        for engine in &mut cli.engines {
            let mut looks = looks;
            engine.save_slice(&mut || {
                looks = looks.saturating_sub(1);
                looks > 0
            });
        }
    };
    slice(cli, 3);
    let before = pieces();
    match way {
        "EVICT" => {
            let budget = Arc::clone(cli.engines[0].budget());
            budget.configure(1, Policy::AllkeysRandom, false);
            let now = Now {
                unix_ms: cli.now_ms,
            };
            for engine in &mut cli.engines {
                for _ in 0..100 {
                    engine.evict_slice(now);
                }
            }
            budget.configure(0, Policy::NoEviction, false);
        }
        way => drop(cli.run(&way.replace('$', key))),
    }
    cli.advance_ms(50);
    cli.run(&format!("EXISTS {key}"));
    assert_eq!(pieces(), before, "{way} of a {key}");
    // A moved collection can be changed under its new key.
    for (name, db) in [("elsewhere", 0), ("at-home", 0), (key, 1)] {
        let line = match key {
            "list" => format!("LPOP {name} 20"),
            "stream" => format!("XTRIM {name} MAXLEN 3"),
            "set" => format!("SREM {name} member1 member2 member199"),
            "hash" => format!("HDEL {name} field1 field2 field199"),
            "bloom" => format!("BF.MADD {name} one two three"),
            _ => format!("ZREM {name} member1 member2 member199"),
        };
        cli.connection.db = db;
        cli.run(&line);
    }
    cli.connection.db = 0;
    while cli.engines.iter().any(Engine::is_in_snapshot) {
        slice(cli, 2);
    }
    let saved = collector.collect();
    let is_equal = saved == expected;
    assert!(is_equal, "{way}, {key}: {}", difference(&saved, &expected));
    assert_eq!(collector.open_streams.load(Relaxed), 0);
}

#[test]
fn a_collection_that_is_being_saved_is_evicted_after_all_else() {
    for is_saving in [false, true] {
        let mut cli = unlimited(1);
        cli.run(&format!("RPUSH big {}", "element ".repeat(2_000)));
        (0..200).for_each(|number| _ = cli.run(&format!("SET small{number} {}", "v".repeat(500))));
        let outlet: Arc<dyn Outlet> = Arc::new(Collector::default());
        if is_saving {
            cli.engines[0].begin_snapshot(&outlet);
        }
        let (mut limit, now) = (
            used_bytes(&cli) as u64,
            Now {
                unix_ms: cli.now_ms,
            },
        );
        let budget = Arc::clone(cli.engines[0].budget());
        // Nearly all of the small ones go, and the large one, unless it is passed over.
        while cli.engines[0].db(0).is_some_and(|db| db.len() > 4) {
            limit -= 1_000;
            budget.configure(limit, Policy::AllkeysRandom, false);
            cli.engines[0].evict_slice(now);
        }
        assert_eq!(cli.engines[0].is_in_snapshot(), is_saving);
        cli.check("EXISTS big", &format!("(integer) {}", u8::from(is_saving)));
        // It goes when nothing else is left.
        budget.configure(1, Policy::AllkeysRandom, false);
        for _ in 0..100 {
            cli.engines[0].evict_slice(now);
        }
        cli.check("EXISTS big", "(integer) 0");
        while cli.engines[0].save_slice(&mut || true) {}
    }
}
