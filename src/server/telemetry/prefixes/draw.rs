//! Memory by key prefix, estimated from entries sampled at random in every shard, in proportion to its share of all
//! keys.
//!
//! A sampled key stands for the others of its shard and database. The large values that shards track are counted
//! exactly and excluded from the sample, because random sampling estimates them worst.

use std::collections::HashMap;

use super::{DEVIATIONS, Rule, SampledEstimate};
use crate::telemetry::observed::{Drawn as FromDb, Observed};

/// Total sample size; at least one entry is sampled from each database of a shard.
const DRAWS: u64 = 4_096;

/// Entries sampled per lock of a shard.
const DRAWS_AT_ONCE: u64 = 64;

/// Attempts to lock a shard that other threads have locked, before it is left out.
const TRIES: usize = 3;

/// Sampled figures of one prefix.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledPrefix {
    keys: SampledSum,
    bytes: SampledSum,
    known_keys: f64,
    known_bytes: f64,
}

/// A sum of sampled values, scaled to all keys, with the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
struct SampledSum {
    sum: f64,
    squares: f64,
    largest: f64,
}

impl SampledSum {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
        self.largest = self.largest.max(value);
    }

    fn estimate(&self, draws: u64, known: f64) -> SampledEstimate {
        let variance = self.squares - self.sum * self.sum / draws.max(1) as f64;
        SampledEstimate {
            value: self.sum + known,
            error: DEVIATIONS * variance.max(0.0).sqrt() + self.largest,
        }
    }
}

impl SampledPrefix {
    pub(super) fn bytes(&self) -> f64 {
        self.bytes.sum + self.known_bytes
    }

    pub(super) fn keys_estimate(&self, draws: u64) -> SampledEstimate {
        self.keys.estimate(draws, self.known_keys)
    }

    pub(super) fn bytes_estimate(&self, draws: u64) -> SampledEstimate {
        self.bytes.estimate(draws, self.known_bytes)
    }
}

/// The sample, aggregated by prefix.
#[derive(Debug, Default)]
pub struct PrefixSample {
    /// Number of entries sampled.
    pub draws: u64,
    /// Sampled figures by prefix.
    pub of: HashMap<Vec<u8>, SampledPrefix>,
}

/// Samples all shards except those that stay locked.
pub(super) fn draw(service: &dyn Observed, rule: &Rule) -> PrefixSample {
    let mut found = PrefixSample::default();
    for big in service.big_keys() {
        let held = found.of.entry(rule.prefix_of(&big.key).to_vec());
        let held = held.or_default();
        held.known_keys += 1.0;
        held.known_bytes += big.bytes as f64;
    }
    let keys_in = |shard: usize| -> u64 {
        let dbs = service.all_published()[shard].dbs.iter();
        dbs.map(|db| db.keys.get()).sum()
    };
    let counts: Vec<u64> = (0..service.all_published().len()).map(keys_in).collect();
    let keys: u64 = counts.iter().sum();
    let mut shards = Vec::with_capacity(counts.len());
    for (shard, count) in counts.into_iter().enumerate() {
        let drawn = draw_from(service, shard, (count * DRAWS).div_ceil(keys.max(1)));
        if !drawn.is_empty() {
            shards.push((count, drawn));
        }
    }
    // A shard that stayed locked is assumed to resemble the others.
    let seen: u64 = shards.iter().map(|(count, _)| count).sum();
    let scale = keys as f64 / seen.max(1) as f64;
    for (_, slices) in shards {
        let asked: u64 = slices.iter().map(|(asked, _)| asked).sum();
        for (of_slice, of_db) in slices.into_iter().flat_map(|(of_slice, dbs)| {
            let part = scale * of_slice as f64 / asked as f64;
            dbs.into_iter().map(move |of_db| (part, of_db))
        }) {
            found.draws += of_db.draws;
            let each = of_slice * of_db.keys as f64 / of_db.draws.max(1) as f64;
            for (key, _, bytes) in &of_db.drawn {
                let held = found.of.entry(rule.prefix_of(key).to_vec());
                let held = held.or_default();
                held.keys.add(each);
                held.bytes.add(each * *bytes as f64);
            }
        }
    }
    found
}

/// Samples `count` entries from each database of a shard, in slices. Returns the size of each slice and its
/// entries, or nothing if the shard stays locked.
fn draw_from(service: &dyn Observed, shard: usize, count: u64) -> Vec<(u64, Vec<FromDb>)> {
    let mut slices = Vec::new();
    let mut left = count;
    while left > 0 {
        let draws = left.min(DRAWS_AT_ONCE);
        left -= draws;
        let Some(drawn) = (0..TRIES).find_map(|_| service.sample(shard, draws as usize)) else {
            break;
        };
        slices.push((draws, drawn));
    }
    slices
}
