//! What keys with one prefix take and how they are used, as INFO prefixes says it, of the prefixes that the viewer may
//! see. Figures are estimates of their own, none of which depends on what else is shown.

use serde_json::{Map, Value, json};

use super::super::pages::View;
use super::super::viewer::Sight;
use super::contents::used_bytes;
use super::name;
use crate::telemetry::prefixes::{self, Estimate, Prefix};

/// Prefixes that are shown.
const SHOWN: usize = 20;

/// A prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// As plain text; empty for keys without a prefix.
    pub(crate) name: String,
    pub(crate) figures: Prefix,
}

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prefixes {
    /// What stands behind each part of a key; keys have no prefixes where it is empty.
    pub(crate) delimiter: String,
    /// Entries that were drawn at random.
    pub(crate) drawn: u64,
    /// One in so many commands is looked at; 0: none.
    pub(crate) sample: u32,
    /// What all keys and values take.
    pub(crate) bytes: u64,
    /// Prefixes, those first that do most.
    pub(crate) rows: Vec<Row>,
    /// Others that the viewer could see.
    pub(crate) others: usize,
    /// Whether there are prefixes that the viewer may not see.
    pub(crate) hides: bool,
}

/// The prefixes; none where the viewer may see no names.
pub(crate) fn prefixes(view: &View<'_>) -> Option<Prefixes> {
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
    let row = |figures: Prefix| Row {
        name: name(&figures.name),
        figures,
    };
    Some(Prefixes {
        delimiter: name(&report.rule.delimiter),
        drawn: report.drawn,
        sample: report.sample,
        bytes: used_bytes(view.service),
        others: visible - seen.len(),
        hides: visible < all,
        rows: seen.into_iter().map(row).collect(),
    })
}

impl Prefixes {
    /// As JSON: figures, and how far each may be from the truth.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &Row| {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), json!(row.name));
            let mut add = |name: &str, estimate: Option<Estimate>, digits: i32| {
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
