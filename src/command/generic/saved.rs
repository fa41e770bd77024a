//! Snapshots over all families: what is saved between the cut and the end is what the cut found, each entry once,
//! whatever happens meanwhile; and who is saved pays for nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crossbeam::queue::SegQueue;

use super::undone::{accounts, draw, script, server};
use crate::base::random::Random;
use crate::command::testing::Terminal;
use crate::engine::evict::Policy;
use crate::engine::evict::budget::Budget;
use crate::engine::serial::pieces::Shape;
use crate::engine::serial::{self, Form, writer::Writer};
use crate::engine::snapshot::{Begun, Chunk, Outlet, Stream};
use crate::engine::value::{Body, ElementRef, Object};
use crate::engine::{Engine, Now, defrag};
use crate::structures::entry::{EntryRef, Value};
use crate::structures::slabs::Mover;

/// An entry: database, and all that it is.
type Saved = (usize, Vec<u8>);

/// Takes what is saved.
#[derive(Default)]
struct Collector {
    saved: SegQueue<Saved>,
    /// Parts of large collections with their databases: what comes first, and the elements.
    parts: SegQueue<(Stream, usize, Vec<Vec<u8>>)>,
    streams: AtomicU64,
    is_given_up: AtomicBool,
}

/// All of an entry but a string in a block, and the elements of a collection that can be saved by the piece.
fn inline_part(entry: EntryRef<'_, Object>) -> Vec<u8> {
    let mut bytes = format!("{:?} {:?} ", entry.key(), entry.deadline()).into_bytes();
    let is_large =
        matches!(entry.value(), Value::Object(object) if object.body.elements().is_some());
    if !is_large && !matches!(entry.value(), Value::Block(_)) {
        let mut writer = Writer::new(Form::Whole, false);
        // At the beginning of time no field's time has come.
        serial::write(entry, 0, &mut writer);
        bytes.extend_from_slice(writer.bytes());
    }
    bytes
}

fn bytes_of(piece: &ElementRef<'_>) -> Vec<u8> {
    let value = piece.value.to_vec();
    format!("{:?} {:?} {:x}; ", piece.name, value, piece.number).into_bytes()
}

/// An entry in a form that does not depend on the order of elements.
fn whole(entry: EntryRef<'_, Object>) -> Vec<u8> {
    let mut bytes = inline_part(entry);
    match entry.value() {
        Value::Block(block) => bytes.extend_from_slice(block),
        Value::Object(object) => {
            let mut pieces = Vec::new();
            let mut position = 0;
            loop {
                let body = &object.body;
                position =
                    body.show_some(position, 100, &mut |piece| pieces.push(bytes_of(&piece)));
                if position == 0 {
                    break;
                }
            }
            pieces.sort_unstable();
            bytes.extend(pieces.into_iter().flatten());
        }
        _ => {}
    }
    bytes
}

impl Collector {
    fn push(&self, chunk: &mut Chunk, part: &[u8]) {
        chunk.bytes.extend((part.len() as u32).to_le_bytes());
        chunk.bytes.extend(part);
    }

    /// All entries, in order.
    fn collect(&self) -> Vec<Saved> {
        let mut all: Vec<Saved> = std::iter::from_fn(|| self.saved.pop()).collect();
        let mut open: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        while let Some((stream, db, parts)) = self.parts.pop() {
            let known = open.entry(stream.id).or_default();
            known.extend(parts);
            if stream.is_last {
                known[1..].sort_unstable();
                all.push((db, known.concat()));
                open.remove(&stream.id);
            }
        }
        assert!(open.is_empty() || self.is_given_up(), "each has its end");
        all.sort_unstable();
        all
    }
}

impl Outlet for Collector {
    fn encode(&self, entry: EntryRef<'_, Object>, chunk: &mut Chunk) {
        match entry.value() {
            Value::Block(block) => {
                self.push(chunk, &inline_part(entry));
                chunk.push_block(block);
            }
            _ => self.push(chunk, &whole(entry)),
        }
    }

    fn begin_large(&self, entry: EntryRef<'_, Object>, chunk: &mut Chunk) -> Shape {
        self.push(chunk, &inline_part(entry));
        Shape::begin(entry, 0, &mut Writer::new(Form::Whole, false))
    }

    fn encode_piece(&self, piece: &ElementRef<'_>, _: &Begun<'_>, chunk: &mut Chunk) -> bool {
        self.push(chunk, &bytes_of(piece));
        true
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Relaxed)
    }

    fn fail(&self, why: &'static str) {
        panic!("{why}");
    }

    fn give(&self, chunk: Chunk) {
        let (mut at, mut blocks) = (0, chunk.blocks.iter().peekable());
        let mut entries = Vec::new();
        while at < chunk.bytes.len() {
            let len = chunk.bytes[at..at + 4].try_into().expect("four bytes");
            let end = at + 4 + u32::from_le_bytes(len) as usize;
            let mut entry = chunk.bytes[at + 4..end].to_vec();
            if let Some((_, block)) = blocks.next_if(|(position, _)| *position == end) {
                entry.extend_from_slice(block);
            }
            entries.push(entry);
            at = end;
        }
        assert!(blocks.next().is_none());
        match chunk.stream {
            Some(stream) => self.parts.push((stream, chunk.db, entries)),
            None => {
                assert_eq!(entries.len() as u64, chunk.keys);
                for entry in entries {
                    self.saved.push((chunk.db, entry));
                }
            }
        }
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }
}

fn all_entries(engines: &[Engine]) -> Vec<Saved> {
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

/// One step of what goes on beside a snapshot.
fn step(cli: &mut Terminal, walks: &mut [defrag::Walk], random: &mut Random) {
    let now = Now {
        unix_ms: cli.now_ms,
    };
    match draw(random, 16) {
        12..=15 => {
            // Large collections come to be, and change.
            let command =
                ["HSET", "SADD", "ZADD", "HDEL", "SREM", "ZREM"][draw(random, 6) as usize];
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
            match draw(random, 30) {
                0 => cli.run("DEL large0"),
                1 => cli.run("RENAME large1 large2"),
                2 => cli.run("SET large3 small"),
                3 => cli.run("HPEXPIRE large0 300 FIELDS 3 field1 field2 field3"),
                _ => String::new(),
            };
        }
        0 => {
            // Tables grow,
            let (db, from) = (cli.connection.db, draw(random, 3_000));
            for index in from..from + draw(random, 600) {
                cli.run(&format!("SET bulk{index} {index}"));
            }
            cli.connection.db = db;
        }
        1 => {
            // and shrink.
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

/// A server of which nothing was ever told how much memory there is.
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

/// How many collections were saved by the piece.
fn snapshots(seed: u64, count: usize) -> u64 {
    let shard_count = if seed.is_multiple_of(2) { 1 } else { 4 };
    let mut random = Random::new(seed);
    let mut cli = unlimited(shard_count);
    let walks = (0..shard_count).map(|_| defrag::Walk::default());
    let mut walks: Vec<_> = walks.collect();
    let mut streams = 0;
    for number in 0..count {
        for _ in 0..draw(&mut random, 30) {
            step(&mut cli, &mut walks, &mut random);
        }
        walks.fill_with(defrag::Walk::default);
        let unaccounted = accounts(&mut cli).1;
        streams += snapshot(&mut cli, &mut walks, &mut random, (seed, number));
        walks.fill_with(defrag::Walk::default);
        let after = accounts(&mut cli).1;
        assert_eq!(after, unaccounted, "seed {seed} snapshot {number}: bytes");
    }
    streams
}

/// One snapshot, which may be given up on its way.
fn snapshot(
    cli: &mut Terminal,
    walks: &mut [defrag::Walk],
    random: &mut Random,
    which: (u64, usize),
) -> u64 {
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
    collector.streams.load(Relaxed)
}

/// What is in one of two sorted lists alone.
fn difference(saved: &[Saved], expected: &[Saved]) -> String {
    let text = |(db, bytes): &Saved| format!("{db} {}", String::from_utf8_lossy(bytes));
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
    let seeds: u64 = if cfg!(debug_assertions) { 24 } else { 240 };
    let streams: u64 = (0..seeds).map(|seed| snapshots(seed, 4)).sum();
    assert!(streams > seeds, "{streams} collections by the piece");
}
