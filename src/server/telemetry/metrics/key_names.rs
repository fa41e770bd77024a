//! Metrics by key name, enabled by `metrics-key-names yes`.
//!
//! A page has at most [`NAMES_MAX`] names of each kind. Transient keys leave series behind in Prometheus, because
//! labels distinguish series.

use super::page::MetricsPage;
use crate::telemetry::figures::ratio;
use crate::telemetry::observed::{BigKey, Observed};
use crate::telemetry::prefixes;

/// Keys of each kind on a page.
const NAMES_MAX: usize = 10;

/// Bytes shown of a key.
const NAME_BYTES_MAX: usize = 128;

/// Writes all of these metrics.
pub(super) fn write(page: &mut MetricsPage, service: &dyn Observed) {
    hot(page, service);
    big(page, service);
    prefixes(page, service);
}

fn prefixes(page: &mut MetricsPage, service: &dyn Observed) {
    for prefix in prefixes::report(service, NAMES_MAX).prefixes {
        let name = label(&prefix.name);
        let mut gauge = |name_of_series, help, figure: f64| {
            page.labelled_gauge(name_of_series, help, vec![("prefix", name.clone())], figure);
        };
        let (keys, bytes) = (prefix.keys, prefix.bytes);
        gauge(
            "basalt_prefix_keys",
            "Estimated number of keys with a prefix.",
            keys.value,
        );
        gauge(
            "basalt_prefix_keys_error",
            "Margin of error of the estimate.",
            keys.error,
        );
        gauge(
            "basalt_prefix_bytes",
            "Estimated memory of keys with a prefix in bytes.",
            bytes.value,
        );
        gauge(
            "basalt_prefix_bytes_error",
            "Margin of error of the estimate.",
            bytes.error,
        );
        if let Some(reads) = prefix.reads_per_s {
            let help = "Estimated lookups per second of keys with a prefix by read commands.";
            gauge("basalt_prefix_reads_per_second", help, reads.value);
            let help = "Margin of error of the estimate.";
            gauge("basalt_prefix_reads_per_second_error", help, reads.error);
        }
        if let Some(percent) = prefix.hit_percent {
            let help = "Estimated ratio of these lookups that found a key.";
            gauge("basalt_prefix_hit_ratio", help, percent.value / 100.0);
            let help = "Margin of error of the estimate.";
            gauge("basalt_prefix_hit_ratio_error", help, percent.error / 100.0);
        }
        if let Some(writes) = prefix.writes_per_s {
            let help = "Estimated accesses per second to keys with a prefix by write commands.";
            gauge("basalt_prefix_writes_per_second", help, writes.value);
            let help = "Margin of error of the estimate.";
            gauge("basalt_prefix_writes_per_second_error", help, writes.error);
        }
    }
}

fn hot(page: &mut MetricsPage, service: &dyn Observed) {
    let top = service.telemetry().hot_keys.top(NAMES_MAX);
    for (name, help, keys, total) in [
        (
            "basalt_hot_key_by_name_commands_ratio",
            "Ratio of all key accesses that go to each of the hottest keys.",
            &top.by_commands,
            top.commands,
        ),
        (
            "basalt_hot_key_by_name_bytes_ratio",
            "Ratio of the traffic of all commands with keys that goes to each of the hottest keys.",
            &top.by_bytes,
            top.bytes,
        ),
    ] {
        for (key, weight) in keys {
            let labels = vec![("key", label(key))];
            page.labelled_gauge(name, help, labels, ratio(*weight, total));
        }
    }
}

fn big(page: &mut MetricsPage, service: &dyn Observed) {
    let mut keys = service.big_keys();
    keys.sort_unstable_by(|one, other| other.cmp(one));
    keys.truncate(NAMES_MAX);
    for BigKey {
        bytes,
        type_name,
        db,
        key,
    } in keys
    {
        page.labelled_gauge(
            "basalt_big_key_bytes",
            "Memory of the largest values in bytes.",
            vec![
                ("db", format!("db{db}")),
                ("type", type_name.to_owned()),
                ("key", label(&key)),
            ],
            bytes as f64,
        );
    }
}

/// Formats a key as a label's value: non-text bytes are escaped, and long keys are truncated.
fn label(key: &[u8]) -> String {
    let cut = key.len() > NAME_BYTES_MAX;
    let shown = key[..key.len().min(NAME_BYTES_MAX)].escape_ascii();
    match cut {
        true => format!("{shown}…"),
        false => shown.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_plain_text() {
        assert_eq!(label(b"user:1"), "user:1");
        assert_eq!(label(b"\x00\xff\n\""), "\\x00\\xff\\n\\\"");
        let long = label(&[b'k'; 10_000]);
        assert_eq!(
            (long.chars().count(), long.ends_with('…')),
            (NAME_BYTES_MAX + 1, true)
        );
    }
}
