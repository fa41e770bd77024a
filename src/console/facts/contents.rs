//! What memory is made of, by type and by prefix: estimated from entries that are drawn at random, with the large
//! values that are known anyhow.
//!
//! Each key that is drawn stands for the others of its shard and database that were not; what comes of that is made to
//! sum up to the bytes that all data take. Large values are not left to chance: a draw that meets one is put aside, and
//! those that shards remember are added.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::pages::View;
use super::super::viewer::Sight;
use super::name;
use crate::base::random::Random;
use crate::telemetry::observed::Observed;

/// Shards that are looked at.
const SHARDS_MAX: usize = 64;

/// Keys that are drawn of each database of such a shard.
const DRAWS: usize = 8;

/// Prefixes that are shown.
const PREFIXES_MAX: usize = 20;

/// Part of the data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) keys: f64,
    pub(crate) bytes: f64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// Keys that were looked at.
    pub(crate) looked_at: u64,
    pub(crate) bytes: u64,
    pub(crate) types: Vec<Part>,
    /// Empty where the viewer may see no names.
    pub(crate) prefixes: Vec<Part>,
}

/// What a key belongs to by its name: what stands before the first colon, with that.
fn prefix_of(key: &[u8]) -> &[u8] {
    match key.iter().position(|byte| *byte == b':') {
        Some(at) => &key[..=at],
        None => b"",
    }
}

#[derive(Default)]
struct Sums {
    looked_at: u64,
    types: HashMap<&'static str, (f64, f64)>,
    prefixes: HashMap<Vec<u8>, (f64, f64)>,
}

impl Sums {
    fn add(&mut self, key: &[u8], type_name: &'static str, keys: f64, bytes: f64) {
        self.looked_at += 1;
        let of_type = self.types.entry(type_name).or_default();
        of_type.0 += keys;
        of_type.1 += keys * bytes;
        let of_prefix = self.prefixes.entry(prefix_of(key).to_vec()).or_default();
        of_prefix.0 += keys;
        of_prefix.1 += keys * bytes;
    }
}

fn draw(service: &dyn Observed) -> Sums {
    let mut sums = Sums::default();
    let shards = service.all_published().len();
    let count = shards.min(SHARDS_MAX);
    let first = Random::from_system().index(shards.max(1));
    // What is large is looked for in every shard, as each of them counts.
    for big in service.big_keys() {
        sums.add(&big.key, big.type_name, 1.0, big.bytes as f64);
    }
    for step in 0..count {
        let shard = (first + step * shards / count) % shards;
        for found in service.sample(shard, DRAWS).into_iter().flatten() {
            let each = found.keys as f64 / found.draws.max(1) as f64 * shards as f64 / count as f64;
            for (key, type_name, bytes) in &found.drawn {
                sums.add(key, type_name, each, *bytes as f64);
            }
        }
    }
    sums
}

/// The contents, with prefixes if the viewer may see names.
pub(crate) fn contents(view: &View<'_>) -> Contents {
    let sums = draw(view.service);
    let all_published = view.service.all_published().iter();
    let used = all_published.map(|shard| shard.used_bytes()).sum::<i64>();
    let bytes = used.max(0).unsigned_abs();
    let sees = view.viewer.sees(Sight::BigKeys);
    let prefixes = match sees {
        true => sums.prefixes,
        false => HashMap::new(),
    };
    let visible = prefixes
        .into_iter()
        .filter(|(prefix, _)| view.viewer.sees_key(prefix));
    Contents {
        looked_at: sums.looked_at,
        bytes,
        types: parts(
            sums.types
                .into_iter()
                .map(|(name, sum)| (name.to_owned(), sum)),
            bytes,
        ),
        prefixes: parts(visible.map(|(prefix, sum)| (name(&prefix), sum)), bytes),
    }
}

/// Parts by their bytes, the largest first, scaled so that they sum up to what all take.
fn parts(sums: impl Iterator<Item = (String, (f64, f64))>, bytes: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = sums
        .map(|(name, (keys, bytes))| Part { name, keys, bytes })
        .collect();
    let total: f64 = parts.iter().map(|part| part.bytes).sum();
    for part in &mut parts {
        part.bytes *= bytes as f64 / total.max(1.0);
    }
    parts.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    parts.truncate(PREFIXES_MAX);
    parts
}

impl Contents {
    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let list = |parts: &[Part]| -> Vec<Value> {
            let part = |part: &Part| json!({ "name": part.name, "keys": part.keys.round(), "bytes": part.bytes.round() });
            parts.iter().map(part).collect()
        };
        json!({
            "looked_at": self.looked_at,
            "bytes": self.bytes,
            "types": list(&self.types),
            "prefixes": list(&self.prefixes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_up_to_what_all_data_take_and_the_largest_comes_first() {
        let sums = [
            ("string".to_owned(), (100.0, 1_000.0)),
            ("list".to_owned(), (1.0, 3_000.0)),
        ];
        let parts = parts(sums.into_iter(), 8_000);
        assert_eq!((parts[0].name.as_str(), parts[0].bytes), ("list", 6_000.0));
        assert_eq!((parts[1].keys, parts[1].bytes), (100.0, 2_000.0));
    }

    #[test]
    fn a_prefix_ends_at_the_first_colon() {
        assert_eq!(prefix_of(b"user:1:name"), b"user:");
        assert_eq!(prefix_of(b"plain"), b"");
        assert_eq!(prefix_of(b":x"), b":");
    }
}
