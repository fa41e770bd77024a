//! The miss ratio curve compared with an exact simulation.

use super::*;
use crate::base::hash::HashSeed;

use basalt_testing::workload::{Lru, Shape, Workload};

const SEED: HashSeed = HashSeed { k0: 7, k1: 9 };
const OVERHEAD_BYTES: usize = 40;

fn totals(reads: u64, memory_bytes: u64) -> Totals {
    Totals {
        reads,
        hits: 0,
        memory_bytes,
        now_ms: 0,
    }
}

#[test]
fn distances_fall_into_the_bucket_that_holds_them() {
    let least = STEPS as u64;
    for distance in (0..5_000).chain((10..35).flat_map(|power| {
        let around = 1u64 << power;
        [around - 1, around, around + around / 3]
    })) {
        let at = bucket(distance);
        assert!(lowest(at) <= distance.max(least), "{distance}");
        assert!(distance.max(least) < lowest(at + 1), "{distance}");
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn a_key_is_found_again_by_caches_that_hold_what_was_used_since() {
    let curve = Curve::default();
    let mut reuse = ReuseDistance::new(Totals::default());
    let scale = reuse.scale();
    // Makes hashes whose marks are sampled: the byte that decides first is zero.
    let hash = |number: u64| number << 24;
    for number in 0..10 {
        reuse.write(hash(number), 100, totals(0, 100_000));
    }
    reuse.read(hash(0), Some(100), totals(1, 100_000), &curve);
    let needed = (900.0 * scale) as u64 + 100;
    let estimate = curve.estimate([needed / 2, needed * 2]);
    assert_eq!(estimate.misses, [1.0, 0.0], "one lookup, scaled to one");
    assert!((curve.beyond(needed / 2) - scale).abs() < 1e-9);
    // The key is the most recently used one now, and a forgotten key has no position.
    reuse.forget(hash(5));
    assert_eq!(reuse.position(mark(hash(0))), Some((0, 0)));
    assert_eq!(reuse.position(mark(hash(9))), Some((1, 100)));
    assert_eq!(reuse.position(mark(hash(5))), None);
    assert_eq!(reuse.bytes, 900);
}

#[test]
fn the_followed_keys_stay_few_and_their_bytes_add_up() {
    let curve = Curve::default();
    let mut reuse = ReuseDistance::new(Totals::default());
    let mut followed = 0;
    for round in 0..400_000u64 {
        let hash = SEED.hash(&(round % 150_000).to_le_bytes());
        if mark(hash) >= reuse.below() {
            continue;
        }
        followed += 1;
        match round % 3 {
            0 => reuse.read(hash, Some(120), totals(round, 1 << 20), &curve),
            1 => reuse.read(hash, None, totals(round, 1 << 20), &curve),
            _ => reuse.write(hash, 80, totals(round, 1 << 20)),
        }
        if round % 1_000 == 0 {
            reuse.forget(hash);
        }
        assert!(reuse.len() <= SAMPLES_MAX);
        assert_eq!(reuse.marks.len(), reuse.sizes.len());
        let sum: u64 = reuse.sizes.iter().map(|size| u64::from(*size)).sum();
        assert_eq!(sum, reuse.bytes);
    }
    assert!(followed > 1_000);
    reuse.clear();
    assert!(reuse.is_empty());
}

#[test]
fn what_is_old_counts_for_less_and_what_was_unknown_for_nothing() {
    let curve = Curve::default();
    let mut reuse = ReuseDistance::new(Totals::default());
    reuse.read(1 << 24, Some(100), totals(16, 1_000), &curve);
    assert_eq!(
        curve.estimate([1_000]).reads,
        0.0,
        "it was there before anybody looked"
    );
    reuse.read(1 << 24, Some(100), totals(32, 1_000), &curve);
    assert_eq!(curve.estimate([1_000]).reads, 16.0);
    let later = Totals {
        now_ms: HALF_LIFE_MS,
        ..totals(32, 1_000)
    };
    reuse.read(2 << 24, None, later, &curve);
    assert_eq!(curve.estimate([1_000]).reads, 8.0);
    curve.clear();
    assert_eq!(curve.estimate([1_000]), Estimate::default());
}

/// Returns the estimates of shards with a curve each for a workload on a cache of a size, without and with the
/// measured correction, and the truth.
fn judge(workload: &Workload, memory_bytes: u64, shards: usize) -> [[f64; 5]; 3] {
    let sizes = [1, 2, 4, 8, 16].map(|quarters| memory_bytes * quarters / 4);
    let mut exact = sizes.map(Lru::new);
    let mut exact_hits = [0u64; 5];
    let mut followed: Vec<(ReuseDistance, Curve, Lru, Totals)> = (0..shards)
        .map(|_| {
            let reuse = ReuseDistance::new(Totals::default());
            let own = Lru::new(memory_bytes / shards as u64);
            (
                reuse,
                Curve::default(),
                own,
                totals(0, memory_bytes / shards as u64),
            )
        })
        .collect();
    for key in workload.keys() {
        let bytes = workload.value_bytes(key) + OVERHEAD_BYTES;
        for (cache, hits) in exact.iter_mut().zip(&mut exact_hits) {
            *hits += u64::from(cache.ask(key, bytes as u64));
        }
        let hash = SEED.hash(&key.to_le_bytes());
        // As in the server, the shard does not depend on the hash that marks come from.
        let shard = (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % shards;
        let (reuse, curve, cache, totals) = &mut followed[shard];
        let found = cache.ask(key, bytes as u64);
        totals.reads += 1;
        totals.hits += u64::from(found);
        if mark(hash) < reuse.below() {
            reuse.read(hash, found.then_some(bytes), *totals, curve);
            if !found {
                reuse.write(hash, bytes, *totals);
            }
        }
    }
    let mut sum = Estimate::default();
    for (_, curve, ..) in &followed {
        sum.add(&curve.estimate(sizes.map(|size| size / shards as u64)));
    }
    let truth = exact_hits.map(|hits| hits as f64 / workload.requests as f64);
    let corrected = sum.corrected(2).expect("there were lookups");
    [sum.lru().expect("there were lookups"), corrected, truth]
}

#[test]
fn estimates_are_within_two_points_of_an_exact_simulation_on_average() {
    // Miri would take hours.
    if cfg!(miri) {
        return;
    }
    let (ranks, requests, shards) = (100_000, 400_000, 32);
    let mut errors = [Vec::new(), Vec::new()];
    for workload in Workload::all(ranks, requests, 3) {
        let values: usize = (0..1_000)
            .map(|key| workload.value_bytes(key))
            .sum::<usize>()
            / 1_000;
        let memory = (ranks * (values + OVERHEAD_BYTES) / 8) as u64;
        let [lru, corrected, truth] = judge(&workload, memory, shards);
        let mut line = String::new();
        for (estimate, errors) in [lru, corrected].iter().zip(&mut errors) {
            let points = estimate
                .iter()
                .zip(truth)
                .map(|(estimate, truth)| (estimate - truth).abs() * 100.0);
            let mean = points.clone().sum::<f64>() / truth.len() as f64;
            errors.push(mean);
            line += &format!("{mean:.2} {estimate:.3?} ");
            // A repeated scan over the same keys has all its lookups at one distance: a step, whose position is
            // never exact.
            let most = if workload.shape == Shape::Rescan {
                6.0
            } else {
                3.0
            };
            assert!(mean < most, "{}: {mean:.2} points", workload.name);
        }
        eprintln!("{}: {line} for {truth:.3?}", workload.name);
    }
    let [lru, corrected] = errors.map(|errors| errors.iter().sum::<f64>() / errors.len() as f64);
    eprintln!("LRU {lru:.2} points, corrected {corrected:.2}");
    assert!(
        lru < 2.0 && corrected < 1.5,
        "{lru:.2} and {corrected:.2} points"
    );
}

#[test]
fn a_correction_gives_the_present_size_what_was_measured() {
    let estimate = Estimate {
        reads: 100.0,
        misses: [80.0, 50.0, 20.0],
        unseen: 10.0,
        measured_reads: 100.0,
        measured_misses: 30.0,
        samples: 1.0,
        represented_keys: 16.0,
    };
    let corrected = estimate.corrected(1).expect("there were lookups");
    for (value, expect) in corrected.iter().zip([0.55, 0.7, 0.85]) {
        assert!((value - expect).abs() < 1e-9, "{corrected:?}");
    }
    assert_eq!(Estimate::<3>::default().corrected(1), None);
}

#[test]
fn where_nothing_was_missed_smaller_sizes_have_the_hit_ratios_of_lru() {
    let estimate = |measured_misses| Estimate {
        reads: 100.0,
        misses: [94.0, 60.0, 30.0, 10.0, 0.0],
        unseen: 0.0,
        measured_reads: 1_000.0,
        measured_misses,
        samples: 1.0,
        represented_keys: 16.0,
    };
    let close = |corrected: [f64; 5], expected: [f64; 5]| {
        let pairs = corrected.iter().zip(expected);
        let far = pairs.filter(|(value, expect)| (**value - expect).abs() > 1e-9);
        assert_eq!(far.count(), 0, "{corrected:?} for {expected:?}");
    };
    // All data fits in the memory, though not under LRU: this tells nothing about a quarter of the memory.
    let corrected = estimate(0.0).corrected(2).expect("there were lookups");
    close(corrected, [0.06, 0.4, 1.0, 1.0, 1.0]);
    // A few misses are no basis either; and no eviction policy is ten times as good as LRU.
    let corrected = estimate(1.0).corrected(2).expect("there were lookups");
    close(corrected, [0.06, 0.4, 0.999, 0.999, 1.0]);
    let corrected = estimate(30.0).corrected(2).expect("there were lookups");
    close(corrected, [1.0 - 0.94 / 3.0, 0.8, 0.97, 0.97, 1.0]);
}
