//! The composition of memory by type, estimated from entries sampled at random, plus the large values that shards
//! track anyhow.
//!
//! Each sampled key stands for the unsampled ones of its shard and database; the result is scaled to the bytes
//! of all data. Large values are counted exactly: samples that hit one are discarded, and all those that shards
//! track are added.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::view::View;
use crate::telemetry::observed::Observed;
use basalt_core::base::random::Random;

/// Maximum number of shards that are sampled.
const SHARDS_MAX: usize = 64;

/// Number of keys sampled from each database of a sampled shard.
const DRAWS: usize = 8;

/// One type's share of the data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DataTypeShare {
    pub(crate) name: &'static str,
    pub(crate) keys: f64,
    pub(crate) bytes: f64,
}

/// The composition of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryComposition {
    /// Number of keys sampled.
    pub(crate) looked_at: u64,
    pub(crate) bytes: u64,
    pub(crate) types: Vec<DataTypeShare>,
}

#[derive(Default)]
struct DataTypeSums {
    looked_at: u64,
    types: HashMap<&'static str, (f64, f64)>,
}

impl DataTypeSums {
    fn add(&mut self, type_name: &'static str, keys: f64, bytes: f64) {
        self.looked_at += 1;
        let of_type = self.types.entry(type_name).or_default();
        of_type.0 += keys;
        of_type.1 += keys * bytes;
    }
}

fn draw(service: &dyn Observed) -> DataTypeSums {
    let mut sums = DataTypeSums::default();
    let shards = service.all_published().len();
    let count = shards.min(SHARDS_MAX);
    let first = Random::from_system().index(shards.max(1));
    // Large values are collected from every shard, because each one counts.
    for big in service.big_keys() {
        sums.add(big.type_name, 1.0, big.bytes as f64);
    }
    for step in 0..count {
        let shard = (first + step * shards / count) % shards;
        for found in service.sample(shard, DRAWS).into_iter().flatten() {
            let each = found.keys as f64 / found.draws.max(1) as f64 * shards as f64 / count as f64;
            for (_, type_name, bytes) in &found.drawn {
                sums.add(type_name, each, *bytes as f64);
            }
        }
    }
    sums
}

/// Returns the composition of memory.
pub(crate) fn contents(view: &View<'_>) -> MemoryComposition {
    let sums = draw(view.service);
    let bytes = used_bytes(view.service);
    MemoryComposition {
        looked_at: sums.looked_at,
        bytes,
        types: parts(sums.types, bytes),
    }
}

/// Returns the bytes of all keys and values.
pub(crate) fn used_bytes(service: &dyn Observed) -> u64 {
    let all_published = service.all_published().iter();
    let used = all_published.map(|shard| shard.used_bytes()).sum::<i64>();
    used.max(0).unsigned_abs()
}

/// Returns the parts by size, largest first, scaled so that their sum is the total `bytes`.
fn parts(sums: HashMap<&'static str, (f64, f64)>, bytes: u64) -> Vec<DataTypeShare> {
    let part = |(name, (keys, bytes))| DataTypeShare { name, keys, bytes };
    let mut parts: Vec<DataTypeShare> = sums.into_iter().map(part).collect();
    let total: f64 = parts.iter().map(|part| part.bytes).sum();
    for part in &mut parts {
        part.bytes *= bytes as f64 / total.max(1.0);
    }
    parts.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    parts
}

impl MemoryComposition {
    /// Formats the contents as JSON.
    pub(crate) fn json(&self) -> Value {
        let part = |part: &DataTypeShare| json!({ "name": part.name, "keys": part.keys.round(), "bytes": part.bytes.round() });
        json!({
            "looked_at": self.looked_at,
            "bytes": self.bytes,
            "types": self.types.iter().map(part).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_up_to_what_all_data_take_and_the_largest_comes_first() {
        let sums = HashMap::from([("string", (100.0, 1_000.0)), ("list", (1.0, 3_000.0))]);
        let parts = parts(sums, 8_000);
        assert_eq!((parts[0].name, parts[0].bytes), ("list", 6_000.0));
        assert_eq!((parts[1].keys, parts[1].bytes), (100.0, 2_000.0));
    }
}
