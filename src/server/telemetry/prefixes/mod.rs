//! What keys with one prefix take and how they are used: INFO prefixes, the metrics.
//!
//! A prefix is what a key begins with, up to and with its first `prefix-delimiter`, or the `prefix-depth`th; keys
//! without a delimiter belong to the empty one. Nothing is kept for each key or prefix, and nothing is scanned. What
//! keys take is estimated when it is asked for, from entries drawn at random, with the large values that shards know
//! anyhow ([`draw`]). How they are used comes of the commands that are sampled for hot keys ([`uses`]), whose figures
//! count for half after a minute. Each estimate comes with its error: the true figure lies within it 99 times of 100.

pub mod draw;
pub mod uses;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::observed::Observed;
use super::{clock, counters};
use uses::{Counts, Uses};

/// Bytes of a key that are looked at.
pub const NAME_BYTES_MAX: usize = 128;

/// Numbers of rules, or of ways to sample.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// How often what is old loses half its weight.
const AGING_MS: u64 = 60_000;

/// Standard deviations that an error is.
const DEVIATIONS: f64 = 3.0;

/// What a prefix is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What stands behind each part of a key; keys have no prefixes where it is empty.
    pub delimiter: Vec<u8>,
    /// How many parts a prefix has at most.
    pub depth: u32,
}

impl Rule {
    /// The prefix of a key: as many of its parts as the rule says and the key has.
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

/// See the module.
#[derive(Debug)]
pub struct Prefixes {
    rule: ArcSwap<Rule>,
    /// Lists of another generation are of another rule.
    generation: AtomicU64,
    window: Mutex<Window>,
}

/// For how long uses were counted, where what is old counts for less.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// What was before `since_ms`.
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
    /// Begins anew, by this rule (`prefix-delimiter`, `prefix-depth`), or with samples that come otherwise.
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

    /// Counts a use of a key that a sampled command made.
    pub(super) fn count(&self, uses: &mut Uses, key: &[u8], counts: Counts) {
        let rule = self.rule.load();
        if !rule.delimiter.is_empty() {
            let generation = self.generation.load(Relaxed);
            uses.add(generation, rule.prefix_of(key), counts);
        }
    }

    /// What the cron does: lets what is old count for less.
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

    /// How prefixes were used of late, and for how many milliseconds that was counted.
    fn used(&self) -> (HashMap<Vec<u8>, Used>, u64) {
        let window_ms = self.window.lock().at(clock::unix_ms());
        let generation = self.generation.load(Relaxed);
        let mut all: HashMap<Vec<u8>, Used> = HashMap::new();
        // A prefix that a full list does not have may have been in it.
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

/// How a prefix was used, by all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    counts: Counts,
    /// What may be missing in the counts.
    excess: u64,
    listed: u64,
}

/// A figure, and how far it may be from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The truth lies between the figure less this and the figure with this, 99 times of 100.
    pub error: f64,
}

/// One prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prefix {
    /// The prefix, with its delimiters; empty for keys without one.
    pub name: Vec<u8>,
    /// Keys that begin with it.
    pub keys: Estimate,
    /// What these take.
    pub bytes: Estimate,
    /// Look-ups of its keys by commands that read, a second; none where no commands are sampled.
    pub reads_per_s: Option<Estimate>,
    /// Percent of these that found a key; none where too little was read.
    pub hit_percent: Option<Estimate>,
    /// Keys that commands which write named, a second.
    pub writes_per_s: Option<Estimate>,
}

/// What is known of prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What a prefix is.
    pub rule: Rule,
    /// Entries that were drawn at random.
    pub drawn: u64,
    /// Over how many milliseconds uses are averaged, in which older ones count for less.
    pub window_ms: u64,
    /// One in so many commands is sampled; 0 for none.
    pub sample: u32,
    /// The prefixes that stand out by what they take or how they are used, those first that do most.
    pub prefixes: Vec<Prefix>,
}

/// Looks at what there is, and says so many of the prefixes that stand out. It takes shards that are free, for some
/// microseconds each.
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

impl Used {
    /// Uses of one kind, a second. Samples come at random, each for as many commands as there are between two.
    fn rate(&self, weight: u64, sample: u32, window_ms: u64) -> Estimate {
        let seconds = window_ms.max(1) as f64 / 1e3;
        let (weight, sample) = (weight as f64, f64::from(sample));
        let chance = match sample > 1.0 {
            true => DEVIATIONS * (weight * sample).sqrt() + DEVIATIONS * sample,
            false => 0.0,
        };
        Estimate {
            value: weight / seconds,
            error: (chance + self.excess as f64) / seconds,
        }
    }

    fn hit_percent(&self, sample: u32) -> Option<Estimate> {
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
        Some(Estimate {
            value: 100.0 * part,
            error: (100.0 * (chance + missing)).min(100.0),
        })
    }
}

#[cfg(test)]
mod tests;
