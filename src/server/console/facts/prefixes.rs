//! Memory and usage of keys by prefix, as in INFO prefixes, for the prefixes that the viewer may see. Each
//! figure is an independent estimate that does not depend on which other prefixes are shown.

use serde_json::{Map, Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::contents::used_bytes;
use super::name;
use crate::telemetry::prefixes::{self, Prefix, SampledEstimate};

/// Maximum number of prefixes shown.
const SHOWN: usize = 20;

/// Estimated figures of one prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrefixRow {
    /// The prefix as plain text; empty for keys without a prefix.
    pub(crate) name: String,
    pub(crate) figures: Prefix,
}

/// The prefix report for a viewer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrefixReport {
    /// The delimiter that ends each part of a key's prefix. If empty, prefixes are disabled.
    pub(crate) delimiter: String,
    /// Number of entries sampled.
    pub(crate) drawn: u64,
    /// One in `sample` commands is sampled; 0 for none.
    pub(crate) sample: u32,
    /// Bytes of all keys and values.
    pub(crate) bytes: u64,
    /// The most notable prefixes, in descending order.
    pub(crate) rows: Vec<PrefixRow>,
    /// Number of further prefixes that the viewer may see.
    pub(crate) others: usize,
    /// Whether there are prefixes that the viewer may not see.
    pub(crate) hides: bool,
}

/// Returns the prefixes; `None` if the viewer may see no names.
pub(crate) fn prefixes(view: &View<'_>) -> Option<PrefixReport> {
    if !view.viewer.sees(Sight::BigKeys) {
        return None;
    }
    let report = prefixes::report(view.service, usize::MAX);
    let all = report.prefixes.len();
    let seen = report.prefixes.into_iter();
    let mut seen: Vec<Prefix> = seen
        .filter(|prefix| view.viewer.sees_key(&prefix.name, None))
        .collect();
    let visible = seen.len();
    seen.truncate(SHOWN);
    let row = |figures: Prefix| PrefixRow {
        name: name(&figures.name),
        figures,
    };
    Some(PrefixReport {
        delimiter: name(&report.rule.delimiter),
        drawn: report.drawn,
        sample: report.sample,
        bytes: used_bytes(view.service),
        others: visible - seen.len(),
        hides: visible < all,
        rows: seen.into_iter().map(row).collect(),
    })
}

impl PrefixReport {
    /// Formats the report as JSON: figures with their errors.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &PrefixRow| {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), json!(row.name));
            let mut add = |name: &str, estimate: Option<SampledEstimate>, digits: i32| {
                let scale = 10_f64.powi(digits);
                let rounded = |value: f64| (value * scale).round() / scale;
                let value = estimate.map(|estimate| rounded(estimate.value));
                let error = estimate.map(|estimate| rounded(estimate.error));
                fields.insert(name.to_owned(), json!(value));
                fields.insert(format!("{name}_error"), json!(error));
            };
            add("keys", Some(row.figures.keys), 0);
            add("bytes", Some(row.figures.bytes), 0);
            add("reads", row.figures.reads_per_s, 1);
            add("hit_ratio", row.figures.hit_percent, 1);
            add("writes", row.figures.writes_per_s, 1);
            Value::Object(fields)
        };
        Value::Array(self.rows.iter().map(row).collect())
    }
}
