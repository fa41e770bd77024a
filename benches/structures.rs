//! The table at sizes that fit the cache and sizes that do not: lookups one by one and in batches, inserts, removals;
//! the wheel; rankings with either index; the keys of one slot of a cluster among others; the expiry of many keys; the
//! worst pause of an insert while a table grows; how long TAG INVALIDATE works with all shards locked; and what the
//! count of allocations takes when many threads have one.
//!
//! Dimensions: keys of 16 bytes, values of 32; 1 000 keys (all in cache), 1 000 000 (few in cache). `cargo bench
//! --bench structures -- pauses` prints the last three only, and `expiry` the time to expire a key. Under `cargo test
//! --benches` everything runs once, small.

#![expect(clippy::print_stdout, reason = "a bench prints its findings")]

use std::hint::black_box;
use std::sync::Barrier;

use basalt_core::base::hash::{HashSeed, SLOTS, slot};
use basalt_core::structures::entry::Entry;
use basalt_core::structures::ordered::ranking::Ranking;
use basalt_core::structures::ordered::{Direction, OrderedIndexType};
use basalt_core::structures::table::Table;
use basalt_core::structures::wheel::Wheel;
use basalt_engine::invalidation::FREED_AT_ONCE_IN_ALL;
use basalt_engine::keyspace::Deadline;
use basalt_engine::{Engine, Key, Now};
use basalt_testing::random::Draw;
use criterion::{BatchSize, Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};

const SEED: HashSeed = HashSeed {
    k0: 0x0123_4567_89ab_cdef,
    k1: 0xfedc_ba98_7654_3210,
};
const VALUE: [u8; 32] = [b'v'; 32];
const BATCH: usize = 32;

fn main() {
    let given = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    let small = given("--test") || !given("--bench");
    if !given("pauses") && !given("expiry") {
        let mut criterion = Criterion::default().configure_from_args();
        for count in [1000, if small { 10_000 } else { 1_000_000 }] {
            lookups(&mut criterion, count);
            changes(&mut criterion, count);
            for form in [OrderedIndexType::Tree, OrderedIndexType::Skip] {
                rankings(&mut criterion, count, form);
            }
            slots(&mut criterion, count);
        }
        timers(&mut criterion);
        criterion.final_summary();
    }
    if !given("pauses") {
        expiry(if small { 10_000 } else { 2_000_000 });
    }
    if !given("expiry") {
        growth_pause(if small { 20_000 } else { 5_000_000 });
        invalidation_pause(if small { &[4] } else { &[64, 256, 1024] });
        allocations(if small { 100_000 } else { 10_000_000 });
    }
}

/// Returns a key; keys look alike, as real ones do.
fn key(number: usize) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn filled(count: usize) -> Table<Entry<()>> {
    let mut table = Table::new(SEED);
    for number in 0..count {
        let key = key(number);
        table.insert_new(table.hash(&key), Entry::bytes(0, &key, &VALUE, None));
    }
    table
}

fn lookups(criterion: &mut Criterion, count: usize) {
    let table = filled(count);
    // Generated before the measurement: making a key takes longer than finding it.
    let mut draw = Draw::new(1);
    let present: Vec<_> = (0..1 << 16).map(|_| key(draw.below(count))).collect();
    let absent: Vec<_> = (0..1 << 16)
        .map(|_| key(count + draw.below(count)))
        .collect();
    let mut at = 0;
    let mut group = criterion.benchmark_group(format!("table of {count}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function("hash alone", |bench| {
        bench.iter(|| {
            at = (at + 1) % present.len();
            table.hash(black_box(&present[at]))
        });
    });
    for (name, keys) in [("get", &present), ("get absent", &absent)] {
        group.bench_function(name, |bench| {
            // Each lookup depends on the one before, as in a server with other work in between.
            let mut found = 0;
            bench.iter(|| {
                at = (at + 1 + found) % keys.len();
                let key = &keys[at];
                found = table
                    .get(table.hash(key), key)
                    .map_or(0, |view| usize::from(view.kind()));
            });
        });
    }
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("get 32 with prefetch", |bench| {
        bench.iter(|| {
            at = (at + BATCH) % (present.len() - BATCH);
            let batch = &present[at..][..BATCH];
            let hashes: [u64; BATCH] = std::array::from_fn(|index| table.hash(&batch[index]));
            hashes.iter().for_each(|hash| table.prefetch(*hash));
            hashes.iter().for_each(|hash| {
                table.prefetch_matches(*hash);
            });
            let found = hashes
                .iter()
                .zip(batch)
                .filter_map(|(hash, key)| table.get(*hash, key));
            found.map(|view| u64::from(view.kind())).sum::<u64>()
        });
    });
    group.finish();
}

fn changes(criterion: &mut Criterion, count: usize) {
    let mut table = filled(count);
    let mut draw = Draw::new(2);
    let keys: Vec<_> = (0..1 << 16).map(|_| key(draw.below(count))).collect();
    let mut at = 0;
    let mut group = criterion.benchmark_group(format!("table of {count}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function("overwrite", |bench| {
        bench.iter(|| {
            at = (at + 1) % keys.len();
            let place = table
                .find(table.hash(&keys[at]), &keys[at])
                .expect("all are there");
            table.edit(place).set_bytes(&VALUE);
        });
    });
    group.bench_function("remove and insert again", |bench| {
        bench.iter(|| {
            at = (at + 1) % keys.len();
            let hash = table.hash(&keys[at]);
            let place = table.find(hash, &keys[at]).expect("all are there");
            let entry = table.remove(place);
            table.insert_new(hash, entry);
        });
    });
    if count <= 10_000 {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function("fill", |bench| bench.iter_with_large_drop(|| filled(count)));
        group.bench_function("empty one by one", |bench| {
            bench.iter_batched(
                || filled(count),
                |mut table| {
                    for number in 0..count {
                        let key = key(number);
                        let place = table.find(table.hash(&key), &key).expect("all are there");
                        drop(table.remove(place));
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Adds and removes a key with and without the slot index, and visits the keys of one slot, which has as many as any
/// other, or a hundredth of all.
fn slots(criterion: &mut Criterion, count: usize) {
    let put = |engine: &mut Engine, name: &[u8]| {
        let key = Key::new(name, SEED);
        let mut keyspace = engine.keyspace(0, Now::default());
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, &VALUE, Deadline::Clear);
    };
    let mut group = criterion.benchmark_group(format!("slots of {count} keys"));
    for name in ["kept", "not kept"] {
        let mut engine = Engine::new(1, SEED, 1);
        if name == "kept" {
            engine.keep_slots(1);
        }
        for number in 0..count {
            put(&mut engine, &key(number));
        }
        let mut draw = Draw::new(5);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("a key comes and goes, {name}"), |bench| {
            bench.iter(|| {
                let name = key(count + draw.below(count));
                put(&mut engine, &name);
                let mut keyspace = engine.keyspace(0, Now::default());
                let found = keyspace.find_write(&Key::new(&name, SEED));
                keyspace.delete(found.expect("it was put"));
            });
        });
        if name == "not kept" {
            continue;
        }
        for number in 0..count / 100 {
            put(&mut engine, format!("{{hot}}{number}").as_bytes());
        }
        let hot = slot(b"hot");
        for (name, wanted) in [("any slot", (hot + 1) % SLOTS), ("a full slot", hot)] {
            let keyspace = engine.keyspace(0, Now::default());
            group.throughput(Throughput::Elements(keyspace.keys_in_slot(wanted).max(1)));
            group.bench_function(format!("visit the keys of {name}"), |bench| {
                bench.iter(|| {
                    let mut bytes = 0;
                    keyspace.walk_slot(wanted, 0, usize::MAX, |entry| bytes += entry.key().len());
                    black_box(bytes)
                });
            });
        }
    }
    group.finish();
}

fn timers(criterion: &mut Criterion) {
    const COUNT: u64 = 10_000;
    let mut group = criterion.benchmark_group("wheel");
    group.throughput(Throughput::Elements(COUNT));
    group.bench_function("arm and fire within a minute", |bench| {
        bench.iter(|| {
            let mut wheel = Wheel::new(0);
            let mut draw = Draw::new(3);
            for number in 0..COUNT {
                wheel.arm(draw.below(60_000) as u64, number << 34);
            }
            let mut fired = 0_u64;
            for now_ms in (0..60_100).step_by(10) {
                while wheel.advance(now_ms, 64, |_| fired += 1) {}
            }
            assert_eq!(fired, COUNT);
        });
    });
    group.finish();
}

/// Sorted sets of members with random scores, over either index.
fn rankings(criterion: &mut Criterion, count: usize, form: OrderedIndexType) {
    let mut ranking = Ranking::new(form, SEED);
    let mut draw = Draw::new(4);
    for number in 0..count {
        let key = key(number);
        let hash = ranking.hash(&key);
        ranking.insert_new(hash, &key, draw.below(1 << 40) as f64);
    }
    let keys: Vec<_> = (0..1 << 16).map(|_| key(draw.below(count))).collect();
    let mut at = 0;
    let mut group = criterion.benchmark_group(format!("{form:?} ranking of {count}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function("new score", |bench| {
        bench.iter(|| {
            at = (at + 1) % keys.len();
            let place = ranking.find(ranking.hash(&keys[at]), &keys[at]);
            ranking.set_score(place.expect("all are there"), draw.below(1 << 40) as f64);
        });
    });
    group.bench_function("remove and insert again", |bench| {
        bench.iter(|| {
            at = (at + 1) % keys.len();
            let hash = ranking.hash(&keys[at]);
            let place = ranking.find(hash, &keys[at]);
            ranking.remove(place.expect("all are there"));
            ranking.insert_new(hash, &keys[at], draw.below(1 << 40) as f64);
        });
    });
    group.bench_function("rank", |bench| {
        bench.iter(|| {
            at = (at + 1) % keys.len();
            let place = ranking.find(ranking.hash(&keys[at]), &keys[at]);
            ranking.rank(place.expect("all are there"))
        });
    });
    group.bench_function("ten from a rank on", |bench| {
        bench.iter(|| {
            let from = draw.below(count - 10);
            let range = ranking.range(from, from + 10, Direction::Ascending);
            range.map(|(member, _)| member[15]).max()
        });
    });
    group.finish();
}

/// Prints the time that one thread takes to delete a key that has expired, among as many that stay.
fn expiry(count: usize) {
    for _ in 0..3 {
        let mut engine = Engine::new(1, SEED, 1);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
        for number in 0..2 * count {
            let name = key(number);
            let deadline_ms = [2_000 + number as u64 % 60_000, 900_000_000][number % 2];
            let (name, deadline) = (Key::new(&name, SEED), Deadline::At(deadline_ms));
            keyspace.put_text(&name, None, &VALUE, deadline);
        }
        let start = thread_ns();
        for unix_ms in (2_000..62_100).step_by(10) {
            while engine.expire_slice(Now { unix_ms }) {}
        }
        let per_key = (thread_ns() - start) as f64 / count as f64;
        assert_eq!(engine.db(0).map(|db| db.len()), Some(count));
        println!("expiry: {count} keys, {per_key:.0} ns each");
    }
}

/// Prints the longest that one insert keeps its thread busy: thread CPU time, so that other processes do not count, and
/// for each insert the minimum of three identical runs, so that interrupts do not either. Each run's own maximum is
/// printed too.
fn growth_pause(count: usize) {
    let mut least: Vec<u32> = vec![u32::MAX; count];
    for _ in 0..3 {
        let mut table = Table::new(SEED);
        let mut longest = 0;
        for (number, least) in least.iter_mut().enumerate() {
            let key = key(number);
            let hash = table.hash(&key);
            let entry: Entry<()> = Entry::bytes(0, &key, &VALUE[..8], None);
            let start = thread_ns();
            table.insert_new(hash, entry);
            let taken = thread_ns() - start;
            *least = (*least).min(u32::try_from(taken).unwrap_or(u32::MAX));
            longest = longest.max(taken);
        }
        let per_key = table.memory_bytes() as f64 / count as f64;
        println!("growth_pause: longest insert {longest} ns, table {per_key:.1} B/key");
    }
    least.sort_unstable();
    let at = |part: f64| least[((least.len() - 1) as f64 * part) as usize];
    println!(
        "growth_pause: {count} keys, least of three runs: p50 {} p99 {} p99.9 {} p99.99 {} \
         longest {} ns",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0),
    );
}

/// Prints how long an invalidation works on all shards, each of which has 40 keys of the tag: the minimum of some runs,
/// each on engines that other work has put out of the cache.
fn invalidation_pause(shard_counts: &[u64]) {
    const KEYS_EACH: usize = 40;
    for &shard_count in shard_counts {
        let (mut least_ns, mut deleted) = (u64::MAX, 0);
        for _ in 0..5 {
            let mut engines: Vec<Engine> = (0..shard_count)
                .map(|number| Engine::new(1, SEED, number + 1))
                .collect();
            for (number, engine) in engines.iter_mut().enumerate() {
                for key_number in 0..KEYS_EACH {
                    let name = key(number * KEYS_EACH + key_number);
                    let key = Key::new(&name, SEED);
                    let mut keyspace = engine.keyspace(0, Now::default());
                    keyspace.put_text(&key, None, &VALUE, Deadline::Clear);
                    let place = keyspace.find_write(&key).expect("it was put");
                    let tagged = keyspace.add_tags(place, [&b"tag"[..]].into_iter());
                    tagged.expect("one tag is not too many");
                }
            }
            black_box(vec![1_u8; 64 << 20]);
            let mut deletions_left = FREED_AT_ONCE_IN_ALL;
            let start = thread_ns();
            for engine in &mut engines {
                engine.invalidate_tag(0, b"tag", &mut deletions_left);
            }
            least_ns = least_ns.min(thread_ns() - start);
            deleted = FREED_AT_ONCE_IN_ALL - deletions_left;
        }
        println!(
            "invalidation_pause: {shard_count} shards, {least_ns} ns, {deleted} keys deleted at once"
        );
    }
}

/// Prints the time of an allocation and its deallocation on two threads at once, alone and after 400 others have begun
/// to allocate.
fn allocations(count: u32) {
    let measured = || {
        let work = || {
            let start = thread_ns();
            for _ in 0..count {
                drop(black_box(Box::new([0_u64; 4])));
            }
            (thread_ns() - start) as f64 / f64::from(count)
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            let times = threads.map(|thread| thread.join().expect("it only allocates"));
            (times[0] + times[1]) / 2.0
        })
    };
    let alone = measured();
    let (all_there, is_over) = (Barrier::new(401), Barrier::new(401));
    std::thread::scope(|scope| {
        for _ in 0..400 {
            scope.spawn(|| {
                black_box(Box::new(1));
                all_there.wait();
                is_over.wait();
            });
        }
        all_there.wait();
        let among_many = measured();
        println!("allocations: {alone:.1} ns, {among_many:.1} ns after 400 other threads");
        is_over.wait();
    });
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
