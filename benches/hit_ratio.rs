//! Hit ratios of basalt, redis-server and Valkey (allkeys-lru and allkeys-lfu) at the same `maxmemory`, over generated
//! workloads, each replayed through the protocol as a look-aside cache: GET, and SET on a miss. In some of them
//! requests delete keys (DEL), and values have deadlines (SET with PX).
//!
//! ```text
//! cargo bench --bench hit_ratio -- [--quick] [--cells zipf,scan] [--ranks N] [--requests N] [--shares 0.1,0.3]
//!     [--seed N] [--policies allkeys-lru,allkeys-lfu] [--basalt PATH] [--redis PATH] [--valkey PATH]
//!     [--shards N] [--no-redis] [--no-valkey]
//!     [--exact] [--in-process] [--out DIR]
//! ```
//!
//! The workloads are described in `tests/support/workload.rs`. Memory is a share of what all ranks would take in Redis,
//! plus 2 MiB for the server itself. Servers run one after the other. Requests are pipelined, 64 GETs per batch, then
//! the SETs of the misses, over one connection: the same for all. `--exact` simulates an exact LRU cache with the same
//! budget for keys, values and 28 bytes each instead of starting servers, and is quick. `--in-process` feeds basalt's
//! engines directly, without sockets, and compares their miss-ratio curves with exact LRU. To interpret the table:
//! Redis ages its LFU counters by the minute and a replay takes seconds, so they hardly age here; that helps its LFU
//! where popularity is fixed and hurts it where popularity moves. Where values have deadlines, requests are sent at the
//! same pace to all.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod support;

use basalt_core::base::hash::{HashSeed, slot};
use basalt_core::structures::reuse_distance::Estimate;
use basalt_engine::evict::Policy;
use basalt_engine::evict::budget::Budget;
use basalt_engine::keyspace::Deadline;
use basalt_engine::{Engine, Key, Now};
use basalt_server::telemetry::miss_ratio::bytes_of_keys;
use basalt_testing::workload::{Lru, STEPS_PER_MS, Sizes, Workload};
use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{self, Process};

/// GETs in flight at once.
const BATCH: usize = 64;

/// Bytes that Redis takes for a string key, besides key and value.
const REDIS_OVERHEAD_BYTES: usize = 60;

/// Memory for the server itself.
const BASE_BYTES: usize = 2 << 20;

const KEY_BYTES: usize = 16;

/// One cell of the table, for one server.
#[derive(Clone, Copy, Default)]
struct Figures {
    hit_ratio: f64,
    keys: f64,
    refused: u64,
    seconds: f64,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let ranks = arguments.sized("--ranks", 200_000, 50_000);
    let requests = arguments.sized("--requests", 1_000_000, 200_000);
    let seed = arguments.number("--seed", "1") as u64;
    let shares: Vec<f64> = arguments.numbers("--shares", "0.1,0.3");
    let cells = arguments.value("--cells", "");
    let is_wanted =
        |name: &str| cells.is_empty() || cells.split(',').any(|cell| name.contains(cell));
    let policies: Vec<String> = arguments
        .value("--policies", "allkeys-lru,allkeys-lfu")
        .split(',')
        .map(str::to_owned)
        .collect();

    let mut out = format!(
        "{}; {}; {ranks} ranks, {requests} requests, seed {seed}; hit ratio in percent (keys kept).\n\n",
        process::machine(),
        process::date()
    );
    let mut workloads = Workload::all(ranks, requests, seed);
    workloads.extend(Workload::changing(ranks, requests, seed));
    let workloads = workloads.iter().filter(|workload| is_wanted(workload.name));
    if arguments.has("--exact") {
        exact(&mut out, workloads, &shares);
    } else if arguments.has("--in-process") {
        let shards = arguments.number("--shards", "64").next_power_of_two();
        in_process(&mut out, workloads, &shares, &policies, shards);
    } else {
        let basalt = arguments.basalt();
        let others = peers::others(&arguments);
        let shards = arguments.value("--shards", "");
        compare(
            &mut out, workloads, &shares, &policies, &basalt, &others, &shards,
        );
    }
    peers::publish(&arguments, "hit_ratio.md", &out);
}

/// Returns the `maxmemory` bytes for a share of what all ranks would take.
fn memory_bytes(workload: &Workload, share: f64) -> usize {
    let sample = 0..workload.ranks.min(20_000) as u32;
    let count = sample.len().max(1);
    let value: usize = sample.map(|key| workload.value_bytes(key)).sum::<usize>() / count;
    let all = workload.ranks * (KEY_BYTES + value + REDIS_OVERHEAD_BYTES);
    (share * all as f64) as usize + BASE_BYTES
}

fn compare<'w>(
    out: &mut String,
    workloads: impl Iterator<Item = &'w Workload>,
    shares: &[f64],
    policies: &[String],
    basalt: &Path,
    others: &[Peer],
    shards: &str,
) {
    let own: Vec<String> = match shards {
        "" => Vec::new(),
        shards => vec!["--shards".to_owned(), shards.to_owned()],
    };
    let mut columns: Vec<(String, &Path, &str, &[String])> = Vec::new();
    for policy in policies {
        columns.push((format!("basalt {policy}"), basalt, policy, &own));
    }
    for Peer { name, binary, .. } in others {
        for policy in ["allkeys-lru", "allkeys-lfu"] {
            columns.push((format!("{name} {policy}"), binary, policy, &[]));
        }
    }
    let _ = write!(out, "| workload | MB |");
    for (name, ..) in &columns {
        let _ = write!(out, " {name} |");
    }
    let differs = !others.is_empty();
    for policy in policies.iter().filter(|_| differs) {
        let _ = write!(out, " basalt {policy} over the best |");
    }
    let _ = writeln!(out);
    let dashes = 2 + columns.len() + if differs { policies.len() } else { 0 };
    let _ = writeln!(out, "|{}", "---|".repeat(dashes));
    let mut sums = vec![(0.0, 0usize); policies.len()];
    let mut cells = 0;
    for workload in workloads {
        for &share in shares {
            let bytes = memory_bytes(workload, share);
            let mut row = format!("| {} | {:.1} |", workload.name, bytes as f64 / 1e6);
            let mut figures = Vec::new();
            for (_, binary, policy, extra) in &columns {
                let cell = served(workload, binary, policy, bytes, extra);
                let _ = write!(row, " {:.2} ({:.0})", cell.hit_ratio * 100.0, cell.keys);
                if cell.refused > 0 {
                    let _ = write!(row, " {} SETs refused", cell.refused);
                }
                row.push_str(" |");
                eprintln!(
                    "{} at {share}: {:.2} % in {:.1} s",
                    workload.name,
                    cell.hit_ratio * 100.0,
                    cell.seconds
                );
                figures.push(cell.hit_ratio * 100.0);
            }
            if differs {
                let (ours, theirs) = figures.split_at(policies.len());
                let better = theirs.iter().copied().fold(0.0, f64::max);
                for (own, (sum, above)) in ours.iter().zip(&mut sums) {
                    let _ = write!(row, " {:+.2} |", own - better);
                    *sum += own - better;
                    *above += usize::from(*own > better);
                }
            }
            cells += 1;
            eprintln!("{row}");
            let _ = writeln!(out, "{row}");
        }
    }
    let _ = writeln!(out);
    for (policy, (sum, above)) in policies.iter().zip(&sums).filter(|_| differs) {
        let _ = writeln!(
            out,
            "basalt {policy}: {:+.2} points over the best of the others on average, above it in {above} of {cells} \
             cells.",
            sum / cells as f64
        );
    }
}

/// Measures one cell through the protocol.
fn served(
    workload: &Workload,
    binary: &Path,
    policy: &str,
    bytes: usize,
    extra: &[String],
) -> Figures {
    let mut arguments = extra.to_vec();
    for (name, value) in [
        ("--maxmemory", bytes.to_string()),
        ("--maxmemory-policy", policy.to_owned()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    let all = format!("0-{}", process::core_count() - 1);
    let server = Process::start("server", binary, &all, &arguments);
    let started = Instant::now();
    let (hits, asked, refused) = replay(workload, server.client().into_stream());
    Figures {
        hit_ratio: hits as f64 / asked as f64,
        seconds: started.elapsed().as_secs_f64(),
        keys: server
            .client()
            .ask(&["DBSIZE"])
            .parse()
            .expect("DBSIZE answers a number"),
        refused,
    }
}

/// Replays a workload; returns hits, requests, and refused SETs.
fn replay(workload: &Workload, stream: TcpStream) -> (u64, u64, u64) {
    let mut replies = Replies::new(stream);
    let value = vec![b'v'; 1 << 16];
    let mut steps = workload.steps();
    let (mut batch, mut missing) = (Vec::new(), Vec::new());
    let mut bytes = Vec::new();
    let (mut hits, mut asked, mut refused) = (0, 0, 0);
    let (started, mut done) = (Instant::now(), 0);
    loop {
        if workload.lives > 0.0 {
            let due = Duration::from_millis(done / STEPS_PER_MS);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
        done += BATCH as u64;
        batch.clear();
        batch.extend(steps.by_ref().take(BATCH));
        if batch.is_empty() {
            return (hits, asked, refused);
        }
        bytes.clear();
        for (key, writes) in &batch {
            let command = if *writes { "DEL" } else { "GET" };
            let _ = write!(bytes, "*2\r\n$3\r\n{command}\r\n$16\r\nkey:{key:012}\r\n");
        }
        replies.send(&bytes);
        missing.clear();
        for (key, writes) in &batch {
            let reply = replies.next();
            assert!(!matches!(reply, Reply::Error), "GET or DEL is refused");
            if !writes {
                asked += 1;
                match reply {
                    Reply::Value => hits += 1,
                    _ => missing.push(*key),
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        bytes.clear();
        for key in &missing {
            let (length, life) = (workload.value_bytes(*key), workload.life_ms(*key));
            let words = if life.is_some() { 5 } else { 3 };
            let _ = write!(
                bytes,
                "*{words}\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${length}\r\n"
            );
            bytes.extend_from_slice(&value[..length]);
            bytes.extend_from_slice(b"\r\n");
            if let Some(life) = life {
                let life = life.to_string();
                let _ = write!(bytes, "$2\r\nPX\r\n${}\r\n{life}\r\n", life.len());
            }
        }
        if bytes.is_empty() {
            continue;
        }
        replies.send(&bytes);
        for _ in &missing {
            refused += u64::from(matches!(replies.next(), Reply::Error));
        }
    }
}

enum Reply {
    Value,
    Nothing,
    Error,
}

/// A reader of replies that does not copy them.
struct Replies {
    stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Replies {
    fn new(stream: TcpStream) -> Replies {
        Replies {
            stream,
            buffer: Vec::new(),
            at: 0,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send");
    }

    /// Buffers at least `count` bytes.
    fn fill(&mut self, count: usize) {
        let mut chunk = [0; 1 << 16];
        while self.buffer.len() - self.at < count {
            self.buffer.drain(..std::mem::take(&mut self.at));
            let read = self.stream.read(&mut chunk).expect("a reply");
            assert!(read > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }

    fn next(&mut self) -> Reply {
        let mut length = 0;
        let end = loop {
            let rest = &self.buffer[self.at..];
            if let Some(end) = memchr::memchr(b'\n', rest) {
                break end;
            }
            length = rest.len().max(length) + 1;
            self.fill(length);
        };
        let line = &self.buffer[self.at..self.at + end - 1];
        let (mark, rest) = (line[0], &line[1..]);
        let length: i64 = match mark {
            b'$' => std::str::from_utf8(rest)
                .ok()
                .and_then(|text| text.parse().ok())
                .expect("the length of a bulk"),
            _ => 0,
        };
        let (is_error, is_nothing) = (mark == b'-', length < 0);
        self.at += end + 1;
        if mark == b'$' && length >= 0 {
            self.fill(length as usize + 2);
            self.at += length as usize + 2;
        }
        match (is_error, is_nothing) {
            (true, _) => Reply::Error,
            (_, true) => Reply::Nothing,
            _ => Reply::Value,
        }
    }
}

/// Measures the engines alone, on one thread.
fn in_process<'w>(
    out: &mut String,
    workloads: impl Iterator<Item = &'w Workload>,
    shares: &[f64],
    policies: &[String],
    shards: usize,
) {
    let _ = write!(out, "| workload | MB | exact LRU | its curve |");
    for policy in policies {
        let _ = write!(out, " {policy} |");
    }
    let _ = writeln!(out, "\n|{}", "---|".repeat(4 + policies.len()));
    for workload in workloads {
        for &share in shares {
            let bytes = memory_bytes(workload, share) - BASE_BYTES;
            let mut row = String::new();
            let (mut curve, mut data_bytes) = (0.0, 0);
            for policy in policies {
                let cell = engines(workload, policy, bytes, shards);
                let _ = write!(row, " {:.2} ({}) |", cell.hit_ratio * 100.0, cell.keys);
                (curve, data_bytes) = (cell.lru_estimate, cell.data_bytes);
            }
            // The curve refers to the memory that the data took in the end.
            let per_key = data_bytes / cell_keys(&row).max(1);
            let mut cache = Lru::new(data_bytes);
            let exact = 100.0
                * asked_of(&mut cache, workload, |key| match workload.sizes {
                    Sizes::Fixed(_) => per_key,
                    Sizes::Lognormal(..) => (workload.value_bytes(key) + KEY_BYTES + 28) as u64,
                });
            let row = format!(
                "| {} | {:.1} | {exact:.2} | {:.2} |{row}",
                workload.name,
                bytes as f64 / 1e6,
                curve * 100.0
            );
            eprintln!("{row}");
            let _ = writeln!(out, "{row}");
        }
    }
}

/// Returns the keys kept in the last cell of a row.
fn cell_keys(row: &str) -> u64 {
    let last = row.rsplit('(').next().unwrap_or_default();
    last.split(')')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// One cell of [`in_process`].
struct Cell {
    hit_ratio: f64,
    keys: usize,
    data_bytes: u64,
    lru_estimate: f64,
}

fn engines(workload: &Workload, policy: &str, bytes: usize, shards: usize) -> Cell {
    let seed = HashSeed { k0: 11, k1: 13 };
    let mut engines: Vec<Engine> = (0..shards)
        .map(|shard| Engine::new(1, seed, workload.seed + shard as u64))
        .collect();
    let all_published: Vec<_> = engines
        .iter()
        .map(|engine| Arc::clone(engine.published()))
        .collect();
    let budget = Arc::new(Budget::of(all_published.clone().into()));
    let mut now = Now { unix_ms: 1_000_000 };
    for engine in &mut engines {
        engine.set_budget(Arc::clone(&budget));
        engine.published().want_curve(true);
        engine.toggle_miss_ratio_curve(now);
    }
    let policy = match policy {
        "allkeys-lfu" => Policy::AllkeysLfu,
        "allkeys-random" => Policy::AllkeysRandom,
        _ => Policy::AllkeysLru,
    };
    budget.configure(bytes as u64, policy, false);
    let value = vec![b'v'; 1 << 16];
    let (mut hits, mut asked) = (0, 0);
    for (index, (number, writes)) in workload.steps().enumerate() {
        // At the pace of requests to a server over a connection.
        now.unix_ms = 1_000_000
            + match workload.lives > 0.0 {
                true => index as u64 / STEPS_PER_MS,
                false => index as u64 / 300,
            };
        let name = format!("key:{number:012}");
        let key = Key::new(name.as_bytes(), seed);
        let engine = &mut engines[slot(name.as_bytes()) as usize & (shards - 1)];
        if writes {
            let mut keyspace = engine.keyspace(0, now);
            if let Some(place) = keyspace.find_write(&key) {
                keyspace.delete(place);
            }
            engine.deferred.settle();
            continue;
        }
        asked += 1;
        if engine.keyspace(0, now).find_read(&key).is_some() {
            hits += 1;
        } else if engine.make_room(0, now).is_ok() {
            let value = &value[..workload.value_bytes(number)];
            let mut keyspace = engine.keyspace(0, now);
            let found = keyspace.find_write(&key);
            let life = workload.life_ms(number);
            let deadline = life.map_or(Deadline::Clear, |life| Deadline::At(now.unix_ms + life));
            keyspace.put_text(&key, found, value, deadline);
            engine.pay(now, 1);
        }
        engine.deferred.settle();
    }
    let mut estimate = Estimate::<1>::default();
    for published in &all_published {
        let used = published.used_bytes().max(0) as u64;
        estimate.add(&published.curve.estimate([bytes_of_keys(used)]));
    }
    Cell {
        hit_ratio: f64::from(hits) / f64::from(asked),
        keys: engines
            .iter()
            .map(|engine| engine.db(0).map_or(0, |db| db.len()))
            .sum(),
        data_bytes: all_published
            .iter()
            .map(|published| published.used_bytes().max(0) as u64)
            .sum(),
        lru_estimate: estimate.lru().map_or(0.0, |[ratio]| ratio),
    }
}

/// Returns the hit ratio of an exact cache over a workload, given the bytes of each key.
fn asked_of(cache: &mut Lru, workload: &Workload, bytes_of: impl Fn(u32) -> u64) -> f64 {
    let (mut hits, mut asked) = (0u64, 0u64);
    // By key: the millisecond at which its value expires.
    let mut ends = Vec::new();
    for (index, (key, writes)) in workload.steps().enumerate() {
        let now = index as u64 / STEPS_PER_MS;
        if ends.len() <= key as usize {
            ends.resize(key as usize + 1, u64::MAX);
        }
        let end = &mut ends[key as usize];
        if writes || *end < now {
            cache.remove(key);
            *end = u64::MAX;
        }
        if writes {
            continue;
        }
        asked += 1;
        match cache.ask(key, bytes_of(key)) {
            true => hits += 1,
            false => *end = workload.life_ms(key).map_or(u64::MAX, |life| now + life),
        }
    }
    hits as f64 / asked as f64
}

/// Measures an exact LRU cache.
fn exact<'w>(out: &mut String, workloads: impl Iterator<Item = &'w Workload>, shares: &[f64]) {
    /// Bytes that basalt takes for a string key, besides key and value.
    const OVERHEAD_BYTES: usize = 28;
    let _ = writeln!(
        out,
        "| workload | keys | MB | exact LRU |\n|---|---|---|---|"
    );
    for workload in workloads {
        let (different, _) = workload.footprint();
        for &share in shares {
            let bytes = memory_bytes(workload, share) - BASE_BYTES;
            let mut cache = Lru::new(bytes as u64);
            let ratio = asked_of(&mut cache, workload, |key| {
                (workload.value_bytes(key) + KEY_BYTES + OVERHEAD_BYTES) as u64
            });
            let _ = writeln!(
                out,
                "| {} | {different} | {:.1} | {:.2} |",
                workload.name,
                bytes as f64 / 1e6,
                100.0 * ratio
            );
        }
    }
}
