//! LATENCY: events that took longer than `latency-monitor-threshold`, at most one sample per second, the latest 160
//! kept.
//!
//! This module knows no commands: the code that notices a slow event names the event and passes the time.
//! LATENCY HISTOGRAM is implemented elsewhere, from the commands' own latency buckets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use parking_lot::Mutex;

use basalt_commands::command::host::LatencyEvent;
use basalt_commands::config::Config;

/// Samples kept of each event.
const SAMPLES_MAX: usize = 160;

/// Columns of a graph.
const GRAPH_COLUMNS: usize = 80;

/// Rows of a graph.
const GRAPH_ROWS: usize = 4;

/// A command that is not declared fast.
pub const COMMAND: &str = "command";
/// A command declared fast.
pub const FAST_COMMAND: &str = "fast-command";
/// A pass of background expiry, including the freeing of expired values. Not a stall: see [`Pass`].
pub const EXPIRE_CYCLE: &str = "expire-cycle";
/// An uninterrupted stretch of defragmentation.
pub const DEFRAG_CYCLE: &str = "active-defrag-cycle";
/// A slice of background eviction.
pub const EVICTION_CYCLE: &str = "eviction-cycle";
/// The freeing of the values that a slice of background eviction removed.
pub const EVICTION_DEL: &str = "eviction-del";

/// Whether something that took `duration_ns` is an event.
#[inline]
pub fn is_slow(config: &Config, duration_ns: u64) -> bool {
    let threshold_ms = config.latency_monitor_threshold;
    threshold_ms > 0 && duration_ns / 1_000_000 >= threshold_ms as u64
}

/// One stretch of background work in many short slices, which ends when nothing is left to do. It is one event with one
/// sample, which grows while the work goes on. The sample includes the slices and the pauses between them, but not
/// waits for shards locked by others. No client waited that long, because others run between two slices; the sample
/// shows how long there was work.
#[derive(Debug, Default)]
pub struct Pass {
    began_s: Option<u64>,
    spent_ns: u64,
    /// Whether a slice has run since the last recorded pause.
    has_worked: bool,
}

impl Pass {
    /// Adds a pause after a slice; a pause that follows no slice is ignored.
    pub fn rested(&mut self, rest_ns: u64) {
        if std::mem::take(&mut self.has_worked) {
            self.spent_ns = self.spent_ns.saturating_add(rest_ns);
        }
    }

    /// Adds a slice. Returns when the pass began, in Unix seconds, and its duration so far, in milliseconds.
    pub fn add(&mut self, now_ms: u64, spent_ns: u64) -> (u64, u64) {
        let began_s = *self.began_s.get_or_insert(now_ms / 1_000);
        self.spent_ns = self.spent_ns.saturating_add(spent_ns);
        self.has_worked = true;
        (began_s, self.spent_ns / 1_000_000)
    }

    /// Ends the pass; call when no work is left.
    pub fn end(&mut self) {
        *self = Pass::default();
    }
}

/// Samples of all events.
#[derive(Debug, Default)]
pub struct Latency {
    events: Mutex<BTreeMap<&'static str, LatencySeries>>,
}

#[derive(Clone, Debug, Default)]
struct LatencySeries {
    /// Unix seconds and milliseconds, oldest first.
    samples: VecDeque<(u64, u64)>,
    max_ms: u64,
}

/// Summary of an event's samples.
#[derive(Debug, PartialEq, Eq)]
struct LatencySummary {
    count: u64,
    low_ms: u64,
    high_ms: u64,
    average_ms: u64,
    deviation_ms: u64,
    period_s: u64,
}

impl Latency {
    /// Records a sample of an event if `duration_ms` reaches `latency-monitor-threshold`.
    pub fn note(&self, config: &Config, event: &'static str, at_s: u64, duration_ms: u64) {
        let threshold_ms = config.latency_monitor_threshold;
        if threshold_ms > 0 && duration_ms >= threshold_ms.unsigned_abs() {
            self.add(event, at_s, duration_ms);
        }
    }

    fn add(&self, event: &'static str, at_s: u64, duration_ms: u64) {
        let mut events = self.events.lock();
        let series = events.entry(event).or_default();
        series.max_ms = series.max_ms.max(duration_ms);
        match series.samples.back_mut() {
            Some((second, kept_ms)) if *second == at_s => *kept_ms = duration_ms.max(*kept_ms),
            _ => {
                if series.samples.len() == SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back((at_s, duration_ms));
            }
        }
    }

    /// Returns the latest sample of each event: LATENCY LATEST.
    pub fn latest(&self) -> Vec<LatencyEvent> {
        let events = self.events.lock();
        let latest = events.iter().filter_map(|(name, series)| {
            let &(at_s, latest_ms) = series.samples.back()?;
            Some(LatencyEvent {
                name: (*name).to_owned(),
                at_s,
                latest_ms,
                max_ms: series.max_ms,
            })
        });
        latest.collect()
    }

    /// Returns an event's samples, oldest first: LATENCY HISTORY.
    pub fn history(&self, event: &str) -> Vec<(u64, u64)> {
        let events = self.events.lock();
        events.get(event).map_or(Vec::new(), |series| {
            series.samples.iter().copied().collect()
        })
    }

    /// Discards these events, or all if none are named, and returns their number: LATENCY RESET.
    pub fn reset(&self, names: &[String]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        let named = |event: &str| names.iter().any(|name| name.eq_ignore_ascii_case(event));
        events.retain(|event, _| !names.is_empty() && !named(event));
        before - events.len()
    }

    /// Returns the samples as a graph, or `None` if the event has no samples: LATENCY GRAPH.
    pub fn graph(&self, event: &str, now_s: u64) -> Option<String> {
        let events = self.events.lock();
        let (name, series) = events.get_key_value(event)?;
        let figures = series.figures(now_s)?;
        let mut text = format!(
            "{name} - high {} ms, low {} ms (all time high {} ms)\n{:-<GRAPH_COLUMNS$}\n",
            figures.high_ms, figures.low_ms, series.max_ms, ""
        );
        let samples: Vec<(u64, u64)> = series.samples.iter().copied().collect();
        for band in samples.chunks(GRAPH_COLUMNS) {
            draw(&mut text, band, &figures, now_s);
        }
        Some(text)
    }

    /// Returns the observations for LATENCY DOCTOR; [`super::findings::latency`] adds possible fixes.
    pub fn doctor(&self, config: &Config, now_s: u64) -> String {
        let events = self.events.lock();
        let threshold_ms = config.latency_monitor_threshold;
        if events.is_empty() && threshold_ms == 0 {
            return "The latency monitor is off: latency-monitor-threshold is 0. Set it to the duration in \
                    milliseconds from which events are recorded, for example with CONFIG SET \
                    latency-monitor-threshold 100, and run this again after some load.\n"
                .to_owned();
        }
        if events.is_empty() {
            return format!(
                "No event took {threshold_ms} ms or longer since the last LATENCY RESET.\n"
            );
        }
        let mut text = "Events that took longer than the threshold:\n\n".to_owned();
        for (number, (name, series)) in events.iter().enumerate() {
            let Some(figures) = series.figures(now_s) else {
                continue;
            };
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "{}. {name}: {} latency spikes (average {} ms, mean deviation {} ms, one every {:.2} s). Longest \
                 ever: {} ms.",
                number + 1,
                figures.count,
                figures.average_ms,
                figures.deviation_ms,
                figures.period_s as f64 / figures.count as f64,
                series.max_ms
            );
        }
        text
    }
}

impl LatencySeries {
    fn figures(&self, now_s: u64) -> Option<LatencySummary> {
        let count = self.samples.len() as u64;
        let &(first_s, _) = self.samples.front()?;
        let values = || self.samples.iter().map(|(_, value_ms)| *value_ms);
        let average_ms = values().sum::<u64>() / count;
        Some(LatencySummary {
            count,
            low_ms: values().min()?,
            high_ms: values().max()?,
            average_ms,
            deviation_ms: values()
                .map(|value_ms| value_ms.abs_diff(average_ms))
                .sum::<u64>()
                / count,
            period_s: now_s.saturating_sub(first_s).max(1),
        })
    }
}

/// Draws one band of a graph: a column for each sample, and its age below, read downwards.
fn draw(text: &mut String, samples: &[(u64, u64)], figures: &LatencySummary, now_s: u64) {
    /// The character for the top of a column: the more of its topmost row the column fills, the later in this list.
    const TIPS: [char; 3] = ['_', 'o', '#'];
    let steps = GRAPH_ROWS * TIPS.len();
    let range = (figures.high_ms - figures.low_ms).max(1) as usize;
    let heights: Vec<usize> = samples
        .iter()
        .map(|(_, value_ms)| (value_ms - figures.low_ms) as usize * (steps - 1) / range)
        .collect();
    for row in (0..GRAPH_ROWS).rev() {
        push_row(
            text,
            heights.iter().map(|&height| {
                let (rows, tip) = (height / TIPS.len(), height % TIPS.len());
                match row {
                    _ if row < rows => '|',
                    _ if row == rows => TIPS[tip],
                    _ => ' ',
                }
            }),
        );
    }
    text.push('\n');
    let labels: Vec<Vec<char>> = samples
        .iter()
        .map(|(at_s, _)| age(now_s.saturating_sub(*at_s)).chars().collect())
        .collect();
    let longest = labels.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..longest {
        push_row(
            text,
            labels
                .iter()
                .map(|label| label.get(row).copied().unwrap_or(' ')),
        );
    }
}

fn push_row(text: &mut String, row: impl Iterator<Item = char>) {
    let row: String = row.collect();
    text.push_str(row.trim_end());
    text.push('\n');
}

/// Formats seconds in the largest unit that they fill.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
