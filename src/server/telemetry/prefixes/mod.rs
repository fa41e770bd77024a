//! Memory and usage of keys by prefix: INFO prefixes and the metrics.
//!
//! A prefix is the start of a key, up to and including its first `prefix-delimiter`, or its `prefix-depth`th; keys
//! without a delimiter belong to the empty prefix. No state is kept per key or prefix, and nothing is scanned.
//! Memory is estimated on request from entries sampled at random, plus the large values that shards track anyhow
//! ([`draw`]). Usage comes from the commands sampled for hot keys ([`prefix_uses`](super::prefix_uses)), whose figures
//! are halved every minute. Each estimate comes with its error: the true figure lies within it 99 times out of 100.

pub mod draw;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::observed::Observed;
use super::prefix_uses::{Counts, Uses};
use super::{clock, counters};

/// Leading bytes of a key in which a prefix is searched for.
pub const NAME_BYTES_MAX: usize = 128;

/// Source of generation numbers; each change of the rule or of the sampling takes a new one.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// Interval at which the weight of past uses is halved.
const AGING_MS: u64 = 60_000;

/// Standard deviations covered by a reported error.
const DEVIATIONS: f64 = 3.0;

/// The definition of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The delimiter that ends each part of a key's prefix. If empty, prefixes are disabled.
    pub delimiter: Vec<u8>,
    /// Maximum number of parts in a prefix.
    pub depth: u32,
}

impl Rule {
    /// Returns the prefix of a key: as many of its parts as it has, at most `depth`.
    pub fn prefix_of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let delimiter = self.delimiter.as_slice();
        if delimiter.is_empty() {
            return b"";
        }
        let key = &key[..key.len().min(NAME_BYTES_MAX)];
        let (mut end, mut at, mut parts) = (0, 0, 0);
        while parts < self.depth && at + delimiter.len() <= key.len() {
            if key[at..].starts_with(delimiter) {
                at += delimiter.len();
                (end, parts) = (at, parts + 1);
            } else {
                at += 1;
            }
        }
        &key[..end]
    }
}

/// Prefix usage; see the module.
#[derive(Debug)]
pub struct Prefixes {
    rule: ArcSwap<Rule>,
    /// The current generation; lists of another generation were counted under another rule.
    generation: AtomicU64,
    window: Mutex<Window>,
}

/// The effective time over which uses were counted, in which past time is discounted like past uses.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Effective milliseconds before `since_ms`.
    past_ms: u64,
    since_ms: u64,
}

impl Window {
    fn at(self, now_ms: u64) -> u64 {
        self.past_ms + now_ms.saturating_sub(self.since_ms)
    }
}

impl Default for Prefixes {
    fn default() -> Prefixes {
        Prefixes {
            rule: ArcSwap::default(),
            generation: AtomicU64::new(0),
            window: Mutex::new(Window::default()),
        }
    }
}

impl Prefixes {
    /// Restarts the counts with this rule (`prefix-delimiter`, `prefix-depth`), or because the sampling changed.
    pub fn configure(&self, delimiter: &str, depth: u32) {
        let mut window = self.window.lock();
        self.rule.store(
            Rule {
                delimiter: delimiter.as_bytes().to_vec(),
                depth,
            }
            .into(),
        );
        let generation = GENERATIONS.fetch_add(1, Relaxed) + 1;
        self.generation.store(generation, Relaxed);
        *window = Window {
            past_ms: 0,
            since_ms: clock::unix_ms(),
        };
    }

    /// Counts a use of a key by a sampled command.
    pub(super) fn count(&self, uses: &mut Uses, key: &[u8], counts: Counts) {
        let rule = self.rule.load();
        if !rule.delimiter.is_empty() {
            let generation = self.generation.load(Relaxed);
            uses.add(generation, rule.prefix_of(key), counts);
        }
    }

    /// Runs in the cron: halves the weight of past uses when due.
    pub(super) fn tick(&self, now_ms: u64) {
        let mut window = self.window.lock();
        if now_ms.saturating_sub(window.since_ms) >= AGING_MS {
            *window = Window {
                past_ms: window.at(now_ms) / 2,
                since_ms: now_ms,
            };
            for thread in counters::all() {
                if let Some(lists) = thread.hot.lock().as_mut() {
                    lists.by_prefix.age();
                }
            }
        }
    }

    /// Returns the recent usage by prefix, and the effective milliseconds over which it was counted.
    fn used(&self) -> (HashMap<Vec<u8>, PrefixUsage>, u64) {
        let window_ms = self.window.lock().at(clock::unix_ms());
        let generation = self.generation.load(Relaxed);
        let mut all: HashMap<Vec<u8>, PrefixUsage> = HashMap::new();
        // A prefix missing from a full list may have been evicted from it.
        let mut missed = 0;
        for thread in counters::all() {
            let lists = thread.hot.lock();
            let Some(uses) = lists.as_ref().map(|lists| &lists.by_prefix) else {
                continue;
            };
            if uses.generation() != generation {
                continue;
            }
            let least = uses.least();
            missed += least;
            for (name, counts, excess) in uses.iter() {
                let used = all.entry(name.into_vec()).or_default();
                used.counts.add(counts);
                used.excess += excess;
                used.listed += least;
            }
        }
        for used in all.values_mut() {
            used.excess += missed - used.listed;
        }
        (all, window_ms)
    }
}

/// Usage of a prefix, summed over all threads.
#[derive(Clone, Copy, Debug, Default)]
struct PrefixUsage {
    counts: Counts,
    /// An upper bound of the uses missing from the counts.
    excess: u64,
    listed: u64,
}

/// An estimated figure with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledEstimate {
    /// The estimated figure.
    pub value: f64,
    /// The true figure lies within `value ± error` 99 times out of 100.
    pub error: f64,
}

/// Estimated figures of one prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prefix {
    /// The prefix, including its delimiters; empty for keys without one.
    pub name: Vec<u8>,
    /// Number of keys with this prefix.
    pub keys: SampledEstimate,
    /// Bytes taken by these keys.
    pub bytes: SampledEstimate,
    /// Lookups per second of its keys by read commands; `None` if no commands are sampled.
    pub reads_per_s: Option<SampledEstimate>,
    /// Percent of these lookups that hit; `None` if there were none.
    pub hit_percent: Option<SampledEstimate>,
    /// Keys per second named by write commands.
    pub writes_per_s: Option<SampledEstimate>,
}

/// The prefix report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The definition of a prefix.
    pub rule: Rule,
    /// Number of entries sampled.
    pub drawn: u64,
    /// Effective milliseconds over which usage is averaged; past time is discounted.
    pub window_ms: u64,
    /// One in `sample` commands is sampled; 0 for none.
    pub sample: u32,
    /// The most notable prefixes by memory and usage, in descending order.
    pub prefixes: Vec<Prefix>,
}

/// Samples the keys and returns the `count` most notable prefixes. It locks only shards that are free, each for
/// some microseconds.
pub fn report(service: &dyn Observed, count: usize) -> Report {
    let telemetry = service.telemetry();
    let prefixes = &telemetry.prefixes;
    let rule = prefixes.rule.load_full();
    let sample = telemetry.hot_keys.sampled();
    let (used, window_ms) = prefixes.used();
    let mut report = Report {
        rule: (*rule).clone(),
        window_ms,
        sample,
        ..Report::default()
    };
    if rule.delimiter.is_empty() {
        return report;
    }
    let drawn = draw::draw(service, &rule);
    report.drawn = drawn.draws;
    let mut names: Vec<&Vec<u8>> = drawn.of.keys().chain(used.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let bytes: f64 = drawn.of.values().map(|of| of.bytes()).sum();
    let uses: u64 = used.values().map(|used| used.counts.all()).sum();
    let mut ranked: Vec<(f64, Prefix)> = names
        .into_iter()
        .map(|name| {
            let held = drawn.of.get(name).copied().unwrap_or_default();
            let used = used.get(name).copied().unwrap_or_default();
            let weight =
                held.bytes() / bytes.max(1.0) + used.counts.all() as f64 / uses.max(1) as f64;
            let mut prefix = Prefix {
                name: name.clone(),
                keys: held.keys_estimate(drawn.draws),
                bytes: held.bytes_estimate(drawn.draws),
                ..Prefix::default()
            };
            if sample > 0 {
                prefix.reads_per_s = Some(used.rate(used.counts.reads, sample, window_ms));
                prefix.writes_per_s = Some(used.rate(used.counts.writes, sample, window_ms));
                prefix.hit_percent = used.hit_percent(sample);
            }
            (weight, prefix)
        })
        .collect();
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    ranked.truncate(count);
    report.prefixes = ranked.into_iter().map(|(_, prefix)| prefix).collect();
    report
}

impl PrefixUsage {
    /// Returns the rate per second of one kind of use. Samples are random, each standing for `sample` commands on
    /// average.
    fn rate(&self, weight: u64, sample: u32, window_ms: u64) -> SampledEstimate {
        let seconds = window_ms.max(1) as f64 / 1e3;
        let (weight, sample) = (weight as f64, f64::from(sample));
        let chance = match sample > 1.0 {
            true => DEVIATIONS * (weight * sample).sqrt() + DEVIATIONS * sample,
            false => 0.0,
        };
        SampledEstimate {
            value: weight / seconds,
            error: (chance + self.excess as f64) / seconds,
        }
    }

    fn hit_percent(&self, sample: u32) -> Option<SampledEstimate> {
        let Counts { hits, misses, .. } = self.counts;
        let known = hits + misses;
        if known == 0 {
            return None;
        }
        let part = hits as f64 / known as f64;
        let samples = (known as f64 / f64::from(sample)).max(1.0);
        let chance = match sample > 1 {
            true => DEVIATIONS * (part * (1.0 - part) / samples).sqrt() + DEVIATIONS / samples,
            false => 0.0,
        };
        let missing = self.excess as f64 / (known + self.excess) as f64;
        Some(SampledEstimate {
            value: 100.0 * part,
            error: (100.0 * (chance + missing)).min(100.0),
        })
    }
}

#[cfg(test)]
mod tests;
