//! Eviction: the effect of sharding on the hit ratio, the cost of a write at the limit, and whether memory stays within
//! it.
//!
//! ```text
//! cargo bench --bench eviction -- --simulate [--requests 2000000]     in process: hit ratios with 1, 8, 64 shards
//! cargo bench --bench eviction -- --cpu [--quick] [--rounds 15]      an evicting SET, compared with other servers
//! cargo bench --bench eviction -- --ages [--turnovers 3]            age of evicted keys, compared with other servers
//! cargo bench --bench eviction -- --soak [--seconds 20] [--limit BYTES] [--per-second N] [--of-redis]
//!                                        [--directives "--activedefrag yes"]     all types at the limit
//! ```
//!
//! The simulation runs the engines themselves, with their budget and their policies, on one thread. Its traces are
//! generated from seeds: Zipf of several exponents, a scan through a Zipf, keys that occur once, popularity that moves.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use basalt_core::base::hash::{HashSeed, slot};
use basalt_core::base::random::Random;
use basalt_engine::evict::Policy;
use basalt_engine::evict::budget::Budget;
use basalt_engine::keyspace::Deadline;
use basalt_engine::{Engine, Key, Now};

mod support;

use support::arguments::Arguments;
use support::closed_loop::{CONNECTIONS, Measured, Scenario, ask};
use support::peers;
use support::process::{self, Client, Cost, Process};

fn main() {
    let Some(arguments) = Arguments::read() else {
        // Still check that the simulation works.
        simulate(20_000);
        return;
    };
    if arguments.has("--simulate") {
        simulate(arguments.number("--requests", "2000000"));
    }
    if arguments.has("--cpu") {
        cpu(&arguments);
    }
    if arguments.has("--ages") {
        support::ages::report(&arguments);
    }
    if arguments.has("--soak") {
        let directives = arguments.value("--directives", "");
        soak(&Soak {
            server: match arguments.has("--of-redis") {
                true => arguments.redis(),
                false => arguments.basalt(),
            },
            seconds: arguments.number("--seconds", "20") as u64,
            limit_bytes: arguments.number("--limit", "256000000") as f64,
            directives: directives.split_whitespace().map(str::to_owned).collect(),
            per_second: arguments.number("--per-second", "10000000") as f64,
        });
    }
}

fn say(line: &str) {
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        println!("{line}");
    }
}

// ---- Simulation -------------------------------------------------------------------------------------------------

/// The keys of a sequence of requests.
struct Trace {
    name: &'static str,
    keys: Vec<u32>,
}

/// Zipf-distributed numbers below a bound, the small ones more often.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf {
            sums: sums.collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let point = random.unit() * self.sums[self.sums.len() - 1];
        let rank = self.sums.partition_point(|sum| *sum < point);
        rank.min(self.sums.len() - 1)
    }
}

fn traces(requests: usize) -> Vec<Trace> {
    const RANKS: usize = 200_000;
    let mut random = Random::new(7);
    // Ranks are shuffled over keys by a multiplication, so that neighbours in rank share nothing else.
    let key = |rank: usize| (rank * 7919 % RANKS) as u32;
    let mut traces = Vec::new();
    for (name, exponent) in [("zipf 0.6", 0.6), ("zipf 0.9", 0.9), ("zipf 1.2", 1.2)] {
        let zipf = Zipf::new(RANKS, exponent);
        let keys = (0..requests).map(|_| key(zipf.draw(&mut random)));
        traces.push(Trace {
            name,
            keys: keys.collect(),
        });
    }
    let zipf = Zipf::new(RANKS, 0.9);
    let mut fresh = RANKS as u32;
    let mut next_fresh = || {
        fresh += 1;
        fresh
    };
    let mut keys = Vec::new();
    while keys.len() < requests {
        keys.extend((0..40_000).map(|_| key(zipf.draw(&mut random))));
        keys.extend((0..20_000).map(|_| next_fresh()));
    }
    traces.push(Trace {
        name: "zipf 0.9 and scans",
        keys,
    });
    let keys = (0..requests).map(|_| match random.unit() < 0.4 {
        true => next_fresh(),
        false => key(zipf.draw(&mut random)),
    });
    traces.push(Trace {
        name: "zipf 0.9, 40 % once",
        keys: keys.collect(),
    });
    let keys = (0..requests).map(|at| {
        let moved = at / (requests / 8).max(1) * (RANKS / 16);
        key((zipf.draw(&mut random) + moved) % RANKS)
    });
    traces.push(Trace {
        name: "zipf 0.9, moving",
        keys: keys.collect(),
    });
    traces
}

const SEED: HashSeed = HashSeed { k0: 11, k1: 22 };

struct Cache {
    engines: Vec<Engine>,
    budget: Arc<Budget>,
    asked: u64,
    hits: u64,
}

impl Cache {
    fn new(shards: usize, limit: u64, policy: Policy, by_size: bool) -> Cache {
        let mut engines: Vec<Engine> = (0..shards)
            .map(|shard| Engine::new(1, SEED, shard as u64 + 1))
            .collect();
        let all_published = engines.iter().map(|engine| Arc::clone(engine.published()));
        let budget = Arc::new(Budget::of(all_published.collect()));
        for engine in &mut engines {
            engine.set_budget(Arc::clone(&budget));
        }
        budget.configure(limit, policy, by_size);
        Cache {
            engines,
            budget,
            asked: 0,
            hits: 0,
        }
    }

    /// Reads a key, and writes it if it is missing, as users of caches do.
    fn ask(&mut self, number: u32, value: &[u8]) {
        let name = format!("key:{number:08}");
        let shard = usize::from(slot(name.as_bytes())) & (self.engines.len() - 1);
        let engine = &mut self.engines[shard];
        let key = Key::new(name.as_bytes(), SEED);
        self.asked += 1;
        let now = Now {
            unix_ms: 1_700_000_000_000 + self.asked / 500,
        };
        if engine.keyspace(0, now).find_read(&key).is_some() {
            self.hits += 1;
        } else if engine.make_room(0, now).is_ok() {
            let mut keyspace = engine.keyspace(0, now);
            keyspace.put_text(&key, None, value, Deadline::Clear);
            engine.pay(now, 1);
        }
        if self.asked.is_multiple_of(5_000) {
            // The work of the background task.
            self.budget.assess();
            for engine in &mut self.engines {
                engine.evict_slice(now);
            }
        }
    }

    fn keys(&self) -> usize {
        let keys = self.engines.iter().map(|engine| engine.db(0));
        keys.map(|db| db.map_or(0, |db| db.len())).sum()
    }

    fn hit_percent(&self) -> f64 {
        100.0 * self.hits as f64 / self.asked as f64
    }
}

/// Returns the hit percentage of a cache of `capacity` keys that evicts the least recently used one.
fn exact_lru_percent(keys: &[u32], capacity: usize) -> f64 {
    let mut last: HashMap<u32, usize> = HashMap::new();
    let mut by_time: BTreeMap<usize, u32> = BTreeMap::new();
    let mut hits = 0;
    for (at, key) in keys.iter().enumerate() {
        if let Some(before) = last.insert(*key, at) {
            hits += 1;
            by_time.remove(&before);
        } else if last.len() > capacity
            && let Some((_, oldest)) = by_time.pop_first()
        {
            last.remove(&oldest);
        }
        by_time.insert(at, *key);
    }
    100.0 * f64::from(hits) / keys.len() as f64
}

/// Returns the bytes of a value, a few of them large.
fn value_bytes(number: u32, varies: bool) -> usize {
    if !varies {
        return 100;
    }
    let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match mixed % 100 {
        0..60 => 40,
        60..90 => 200,
        90..99 => 1_000,
        _ => 8_000,
    }
}

fn simulate(requests: usize) {
    say(
        "| trace | limit | keys held | exact LRU | lru 1 | lru 8 | lru 64 | lfu 1 | lfu 8 | lfu 64 |",
    );
    say("|---|---|---|---|---|---|---|---|---|---|");
    let traces = traces(requests);
    let mut sums = [0.0; 6];
    let mut rows = 0;
    for trace in &traces {
        for limit_mib in [2, 6, 16_u64] {
            let mut cells = Vec::new();
            let mut held = 0;
            for policy in [Policy::AllkeysLru, Policy::AllkeysLfu] {
                for shards in [1, 8, 64] {
                    let cache = run(trace, shards, limit_mib << 20, policy, false, true);
                    held = held.max(cache.keys());
                    cells.push(cache.hit_percent());
                }
            }
            for (sum, cell) in sums.iter_mut().zip(&cells) {
                *sum += cell;
            }
            rows += 1;
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:.2}")).collect();
            say(&format!(
                "| {} | {limit_mib} MiB | {held} | {:.2} | {} |",
                trace.name,
                exact_lru_percent(&trace.keys, held),
                cells.join(" | ")
            ));
        }
    }
    let means: Vec<String> = sums
        .iter()
        .map(|sum| format!("{:.2}", sum / f64::from(rows)))
        .collect();
    say(&format!("| mean | | | | {} |", means.join(" | ")));
    say(
        "\nValues of several sizes, 64 shards, allkeys-lfu: hit ratio without and with the size rule.\n",
    );
    for trace in &traces {
        for limit_mib in [6, 16_u64] {
            let cell = |by_size| {
                let limit = limit_mib << 20;
                run(trace, 64, limit, Policy::AllkeysLfu, true, by_size).hit_percent()
            };
            say(&format!(
                "| {} | {limit_mib} MiB | {:.2} | {:.2} |",
                trace.name,
                cell(false),
                cell(true)
            ));
        }
    }
}

fn run(
    trace: &Trace,
    shards: usize,
    limit: u64,
    policy: Policy,
    varies: bool,
    by_size: bool,
) -> Cache {
    let mut cache = Cache::new(shards, limit, policy, by_size);
    let value = vec![b'v'; 8_000];
    for key in &trace.keys {
        cache.ask(*key, &value[..value_bytes(*key, varies)]);
    }
    let used = cache.budget.used_bytes();
    let over = used - limit as i64;
    assert!(
        over <= limit as i64 / 64 + 64 * 1024,
        "{} with {shards} shards: {over} bytes over {limit}",
        trace.name
    );
    cache
}

// ---- Beside other servers ---------------------------------------------------------------------------------------

/// Far fewer keys fit than there are requests before a key recurs.
const LIMIT: &str = "30000000";

const NEW_KEYS: Scenario = Scenario {
    name: "SET of a new key",
    prepare: |client, _| {
        client.ask(&["FLUSHALL"]);
        client.ask(&["CONFIG", "SET", "maxmemory", LIMIT]);
        client.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        client.load(500_000, |index, out| {
            ask(out, &["SET", &format!("old:{index:012}"), VALUE]);
        });
        client.ask(&["CONFIG", "RESETSTAT"]);
    },
    restore: |client, requests| {
        let evicted = client.info("stats", "evicted_keys").unwrap_or(0.0);
        assert!(evicted > 0.9 * requests as f64, "every SET evicts");
        client.ask(&["CONFIG", "RESETSTAT"]);
    },
    request: |_, out| {
        // Never a recently used key.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        ask(out, &["SET", &format!("key:{number:012}"), VALUE]);
    },
};

const VALUE: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

fn cpu(arguments: &Arguments) {
    let servers = peers::all(arguments, &[]);
    let measured = Measured::from(arguments, arguments.has("--quick"));
    let last = process::core_count() - 1;
    process::pin(&arguments.value("--load-cores", &last.to_string()));
    let mut table = peers::heading(&servers);
    let _ = write!(
        table,
        "\nCPU of the server for a SET of a new key at the limit ({LIMIT} bytes, values of {} bytes), every one evicts; one \
         core, {CONNECTIONS} connections, median of {} rounds.\n\n{}",
        VALUE.len(),
        measured.rounds,
        peers::table_head(&servers, "pipeline", "us")
    );
    let running = measured.start(&servers);
    let pipelines = [1, 16, 100].map(|pipeline| (&NEW_KEYS, pipeline));
    measured.compare(&running, pipelines.into_iter(), |_, pipeline, costs| {
        let of = |figure: fn(&Cost) -> f64| costs.iter().map(figure).collect::<Vec<f64>>();
        table += &peers::table_row(&format!("P={pipeline}"), &of(|cost| cost.us), 2);
        let name = format!("P={pipeline}, without the kernel");
        table += &peers::table_row(&name, &of(|cost| cost.own_us), 2);
    });
    say(&table);
}

// ---- Soak -------------------------------------------------------------------------------------------------------

/// Parameters of a soak run.
struct Soak {
    server: std::path::PathBuf,
    seconds: u64,
    limit_bytes: f64,
    /// Additional directives.
    directives: Vec<String>,
    /// Maximum commands per second of all writers together.
    per_second: f64,
}

/// Writes all types at the limit for a while and watches memory.
fn soak(plan: &Soak) {
    const ROWS: u64 = 10;
    let limit = plan.limit_bytes;
    let cores = format!("0-{}", process::core_count() - 1);
    let server = Process::start("soak", &plan.server, &cores, &plan.directives);
    let mut watch = server.client();
    watch.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    watch.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]);
    let began = std::time::Instant::now();
    let until = began + std::time::Duration::from_secs(plan.seconds);
    let writers: Vec<_> = (0..SOAK_WRITERS)
        .map(|writer| {
            let client = server.client();
            let per_second = plan.per_second / SOAK_WRITERS as f64;
            std::thread::spawn(move || soak_writer(client, writer, until, per_second))
        })
        .collect();
    say(&format!(
        "soak of {} s at {limit:.0} bytes, {} {}; parts of the limit:",
        plan.seconds,
        plan.server.display(),
        plan.directives.join(" ")
    ));
    say(
        "| second | used | allocated | active | resident | RSS | RSS max | used max | keys | evicted |",
    );
    say("|---|---|---|---|---|---|---|---|---|---|");
    let (mut used_max, mut rss_max): (f64, f64) = (0.0, 0.0);
    for row in 1..=ROWS {
        let row_until = began + std::time::Duration::from_millis(plan.seconds * 1_000 * row / ROWS);
        let (mut row_used, mut row_rss): (f64, f64) = (0.0, 0.0);
        loop {
            row_used = row_used.max(watch.info("memory", "used_memory").unwrap_or(0.0));
            row_rss = row_rss.max(process::resident_bytes(server.pid()) as f64);
            if std::time::Instant::now() >= row_until {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (used_max, rss_max) = (used_max.max(row_used), rss_max.max(row_rss));
        let fields = [
            "used_memory",
            "allocator_allocated",
            "allocator_active",
            "allocator_resident",
        ];
        let part = |bytes: f64| format!("{:.3}", bytes / limit);
        let mut cells: Vec<String> = fields
            .iter()
            .map(|field| part(watch.info("memory", field).unwrap_or(0.0)))
            .collect();
        cells.push(part(process::resident_bytes(server.pid()) as f64));
        cells.push(part(row_rss));
        cells.push(format!("{:.4}", row_used / limit));
        cells.push(watch.ask(&["DBSIZE"]));
        let evicted = watch.info("stats", "evicted_keys").unwrap_or(0.0);
        cells.push(evicted.to_string());
        say(&format!(
            "| {} | {} |",
            began.elapsed().as_secs(),
            cells.join(" | ")
        ));
    }
    let sent: u64 = writers
        .into_iter()
        .map(|writer| writer.join().expect("the writer's assertions hold"))
        .sum();
    say(&format!(
        "{sent} commands, {:.2} us of CPU each; used_memory at most {:.4} of the limit, RSS at most {:.3} of it",
        process::cpu_ns(server.pid()) as f64 / 1e3 / sent as f64,
        used_max / limit,
        rss_max / limit
    ));
    if let Some(path) = std::env::var_os("SOAK_ALLOCATOR_REPORT") {
        let report = watch.ask(&["MEMORY", "MALLOC-STATS"]);
        std::fs::write(path, report).expect("a place for the allocator's report");
    }
}

const SOAK_WRITERS: u64 = 4;

fn soak_writer(mut client: Client, writer: u64, until: std::time::Instant, per_second: f64) -> u64 {
    const BATCH: usize = 50;
    let began = std::time::Instant::now();
    let text = "x".repeat(20_000);
    let mut sent = 0;
    while std::time::Instant::now() < until {
        client.load(BATCH, |index, out| {
            let seed = writer << 48 | (sent + index as u64);
            soak_request(&mut Random::new(seed), &text, out);
        });
        sent += BATCH as u64;
        let due = std::time::Duration::from_secs_f64(sent as f64 / per_second);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    sent
}

/// Encodes a command that adds something, or now and then removes something.
fn soak_request(random: &mut Random, text: &str, out: &mut Vec<u8>) {
    let number = random.below(2_000_000);
    let member = random.below(1_000_000).to_string();
    let long = match random.below(50) {
        0 => random.below(20_000),
        _ => random.below(300),
    };
    let value = &text[..long as usize];
    let key = |kind: &str| format!("{kind}:{number}");
    // Collections grow large only if few keys share many members.
    let few = |kind: &str| format!("{kind}:{}", number % 2_000);
    match random.below(12) {
        0 | 1 => process::encode_into(out, &["SET", &key("s"), value]),
        2 => process::encode_into(out, &["SET", &key("s"), value, "EX", "5"]),
        3 => process::encode_into(out, &["APPEND", &few("a"), &value[..value.len().min(500)]]),
        4 => process::encode_into(out, &["RPUSH", &few("l"), value]),
        5 => process::encode_into(out, &["HSET", &few("h"), &member, value]),
        6 => process::encode_into(out, &["SADD", &few("u"), &member]),
        7 => process::encode_into(out, &["ZADD", &few("z"), &member, &member]),
        8 => process::encode_into(out, &["XADD", &few("x"), "*", "f", value]),
        9 => process::encode_into(out, &["PFADD", &few("p"), &member]),
        10 => process::encode_into(out, &["DEL", &key("s")]),
        _ => process::encode_into(out, &["INCR", &key("n")]),
    }
}
