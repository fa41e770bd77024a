//! Frequently used keys, and keys with large values.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::{HIDDEN, name};
use crate::telemetry::observed::BigKey;

/// Maximum number of keys of each kind.
pub(crate) const KEYS_MAX: usize = 100;

/// A key with its share of the total.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyShare {
    pub(crate) key: String,
    pub(crate) percent: f64,
    pub(crate) weight: u64,
    /// Number of threads that have a copy of the key's value.
    pub(crate) copies: u64,
}

/// Keys with the most recent uses and bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HotKeyRanking {
    /// One in `interval` commands is sampled; 0 for none.
    pub(crate) interval: u32,
    pub(crate) uses: u64,
    pub(crate) bytes: u64,
    pub(crate) by_uses: Vec<KeyShare>,
    pub(crate) by_bytes: Vec<KeyShare>,
}

/// Returns the recent hot keys, with the names that the viewer may see.
pub(crate) fn hot(view: &View<'_>, count: usize) -> HotKeyRanking {
    let top = view.service.telemetry().hot_keys.top(count.min(KEYS_MAX));
    let copies: HashMap<&[u8], u64> = (top.copied.iter())
        .map(|(key, threads)| (key.as_slice(), *threads))
        .collect();
    let shares = |keys: &[(Vec<u8>, u64)], total: u64| -> Vec<KeyShare> {
        let share = |(key, weight): &(Vec<u8>, u64)| KeyShare {
            key: shown(view, Sight::HotKeys, key, None),
            percent: 100.0 * *weight as f64 / total.max(1) as f64,
            weight: *weight,
            copies: copies.get(key.as_slice()).copied().unwrap_or(0),
        };
        keys.iter().map(share).collect()
    };
    HotKeyRanking {
        interval: top.interval,
        uses: top.commands,
        bytes: top.bytes,
        by_uses: shares(&top.by_commands, top.commands),
        by_bytes: shares(&top.by_bytes, top.bytes),
    }
}

/// Returns a key's name if the viewer may see it; `db` is `None` if the key's database is unknown.
pub(crate) fn shown(view: &View<'_>, sight: Sight, key: &[u8], db: Option<usize>) -> String {
    match view.viewer.sees(sight) && view.viewer.sees_key(key, db) {
        true => name(key),
        false => HIDDEN.to_owned(),
    }
}

impl HotKeyRanking {
    /// Formats the keys as JSON.
    pub(crate) fn json(&self) -> Value {
        let list = |shares: &[KeyShare]| -> Vec<Value> {
            let share = |share: &KeyShare| {
                json!({
                    "key": share.key,
                    "weight": share.weight,
                    "percent": share.percent,
                    "copies": share.copies,
                })
            };
            shares.iter().map(share).collect()
        };
        json!({
            "interval": self.interval,
            "uses": self.uses,
            "bytes": self.bytes,
            "by_uses": list(&self.by_uses),
            "by_bytes": list(&self.by_bytes),
        })
    }
}

/// A key with a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Big {
    pub(crate) key: String,
    pub(crate) type_name: &'static str,
    pub(crate) db: usize,
    pub(crate) bytes: u64,
}

/// Returns the largest values, in descending order.
pub(crate) fn big(view: &View<'_>, count: usize) -> Vec<Big> {
    let mut keys = view.service.big_keys();
    keys.sort_unstable_by(|one, other| other.cmp(one));
    keys.truncate(count.min(KEYS_MAX));
    let big = |big: &BigKey| Big {
        key: shown(view, Sight::BigKeys, &big.key, Some(big.db)),
        type_name: big.type_name,
        db: big.db,
        bytes: big.bytes,
    };
    keys.iter().map(big).collect()
}

/// Formats large values as JSON.
pub(crate) fn big_json(keys: &[Big]) -> Value {
    let big = |big: &Big| json!({ "key": big.key, "type": big.type_name, "db": big.db, "bytes": big.bytes });
    Value::Array(keys.iter().map(big).collect())
}
