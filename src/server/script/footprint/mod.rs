//! Undeclared keys and shards that scripts used in earlier runs, so that the next run starts with what it will
//! need.
//!
//! This module knows keys and arguments, but no shards. A script that uses only declared keys is not stored
//! here and costs one check of one word. For a script that used undeclared keys, was slow or had to run again,
//! this stores how its undeclared keys are formed: as a constant, or from an argument with a prefix and a
//! suffix. These templates are guesses: a wrong one locks an unneeded shard, but never changes the result.
//!
//! The tag of a script is odd. An even number in a slot marks an entry that is no longer needed.
//!
//! Invariants: at most one script per slot, so the memory is bounded; a script whose guesses are useless runs with
//! all shards for a while, and is then tried with fewer again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::sha;
use basalt_commands::command::Args;
use basalt_commands::command::host::scripts::ScriptStatistics;

/// Maximum number of scripts stored.
const SLOTS: usize = 1024;

/// Maximum key templates stored per script.
const TEMPLATES_MAX: usize = 16;

/// Maximum undeclared keys inspected per run.
pub const UNDECLARED_MAX: usize = 16;

/// Maximum length of a key that is stored as a template.
const KEY_BYTES_MAX: usize = 256;

/// Number of runs after which the usefulness of the guesses is evaluated.
const PERIOD: u32 = 32;

/// Guesses are given up if more than 1/n of a period's runs had to run again.
const RERUN_PART: u32 = 4;

/// Number of runs with all shards before fewer are tried again.
const WIDE_RUNS: u32 = 256;

/// Nanoseconds of a run above which the script's next run gets its own thread.
const SLOW_NS: u64 = 5_000_000;

/// Index of the first request argument (after the name and the number of keys) that keys may be formed from.
const ARGUMENTS_FROM: usize = 3;

/// The rule by which an undeclared key is formed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Template {
    Constant(Vec<u8>),
    Around {
        argument: usize,
        before: Vec<u8>,
        behind: Vec<u8>,
    },
}

impl Template {
    fn of(key: &[u8], args: &Args<'_>) -> Option<Template> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let mut best: Option<(usize, usize, usize)> = None;
        for (at, argument) in args.from(ARGUMENTS_FROM).enumerate().take(64) {
            if argument.is_empty() || argument.len() > key.len() {
                continue;
            }
            let found = key
                .windows(argument.len())
                .rposition(|part| part == argument);
            if let Some(start) = found
                && best.is_none_or(|(_, _, len)| argument.len() > len)
            {
                best = Some((at + ARGUMENTS_FROM, start, argument.len()));
            }
        }
        Some(match best {
            Some((argument, start, len)) => Template::Around {
                argument,
                before: key[..start].to_vec(),
                behind: key[start + len..].to_vec(),
            },
            None => Template::Constant(key.to_vec()),
        })
    }

    fn key(&self, args: &Args<'_>) -> Option<Vec<u8>> {
        match self {
            Template::Constant(key) => Some(key.clone()),
            Template::Around {
                argument,
                before,
                behind,
            } => (*argument < args.len()).then(|| [before, args.get(*argument), behind].concat()),
        }
    }
}

/// State of one script.
#[derive(Default)]
struct Footprint {
    name: Vec<u8>,
    templates: Vec<Template>,
    next_replaced: usize,
    statistics: ScriptStatistics,
    /// Number of runs in this period, and (`reran`) of those that had to run again.
    runs: u32,
    reran: u32,
    wide_left: u32,
    is_slow: bool,
    /// Number of consecutive runs that had all needed shards from the start.
    calm: u32,
}

/// Recommendations for running a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Keys that the script will probably use without declaring them.
    pub keys: Vec<Vec<u8>>,
    /// Whether to run the script with all shards.
    pub is_wide: bool,
    /// Whether to run the script on its own thread.
    pub is_slow: bool,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Undeclared keys of shards that were not locked at first.
    pub undeclared: Vec<Vec<u8>>,
    /// Number of shards that were locked during the run.
    pub extended: u32,
    /// Number of times that the script was rolled back and run again.
    pub reruns: u32,
    /// Whether the script was rolled back because it took long.
    pub was_slow: bool,
    /// Whether the script ran with all shards.
    pub is_wide: bool,
    /// Duration of the last run, in nanoseconds.
    pub duration_ns: u64,
}

impl Outcome {
    fn is_unusual(&self) -> bool {
        self.extended > 0 || self.reruns > 0 || self.duration_ns > SLOW_NS
    }
}

/// Footprints of scripts that need advice, by tag; see the module.
pub struct Footprints {
    tags: Box<[AtomicU64]>,
    known: Mutex<HashMap<u64, Footprint>>,
}

impl Default for Footprints {
    fn default() -> Footprints {
        Footprints {
            tags: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            known: Mutex::default(),
        }
    }
}

/// Returns the tag of the script that the arguments of EVAL, EVALSHA or FCALL name; tags are odd.
#[inline]
pub fn tag_of(args: &Args<'_>) -> u64 {
    tag(args.get(1))
}

/// Returns the tag of a script, from parts of its text: two scripts with the same tag only mislead each other's
/// guesses.
#[inline]
pub(super) fn tag(name: &[u8]) -> u64 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64 ^ name.len() as u64;
    let mut mix = |word: u64| {
        mixed = (mixed ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> 32;
    };
    let word = |start: usize| {
        let (_, rest) = name.split_at(start);
        rest.first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word))
    };
    let len = name.len();
    match len {
        ..8 => mix(name
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))),
        8..48 => {
            (0..len - 8).step_by(8).for_each(|start| mix(word(start)));
            mix(word(len - 8));
        }
        // Hash parts of the beginning, the middle and the end of a long text.
        _ => {
            for start in [0, 8, 16, len / 2 - 8, len / 2, len - 24, len - 16, len - 8] {
                mix(word(start));
            }
        }
    }
    mixed | 1
}

impl Footprints {
    fn is_known(&self, tag: u64) -> bool {
        self.tags[tag as usize / 2 % SLOTS].load(Relaxed) == tag
    }

    /// Returns recommendations for the script of this tag, if it needs anything special.
    #[inline]
    pub fn advice(&self, tag: u64, args: &Args<'_>) -> Option<Advice> {
        match self.is_known(tag) {
            true => self.look_up(tag, args),
            false => None,
        }
    }

    #[cold]
    fn look_up(&self, tag: u64, args: &Args<'_>) -> Option<Advice> {
        let known = self.known.lock();
        let footprint = known.get(&tag)?;
        let keys = footprint
            .templates
            .iter()
            .filter_map(|template| template.key(args));
        Some(Advice {
            keys: keys.collect(),
            is_wide: footprint.wide_left > 0,
            is_slow: footprint.is_slow,
        })
    }

    /// Learns from a finished run of the script of this tag.
    #[inline]
    pub fn note(&self, tag: u64, args: &Args<'_>, outcome: &Outcome) {
        if outcome.is_unusual() || self.is_known(tag) {
            self.learn(tag, args, outcome);
        }
    }

    #[cold]
    fn learn(&self, tag: u64, args: &Args<'_>, outcome: &Outcome) {
        let mut known = self.known.lock();
        let slot = &self.tags[tag as usize / 2 % SLOTS];
        let other = slot.swap(tag, Relaxed);
        if other | 1 != tag {
            known.remove(&(other | 1));
        }
        let footprint = known.entry(tag).or_default();
        if footprint.name.is_empty() {
            let name = args.get(1);
            footprint.name = match args.get(0).to_ascii_lowercase().as_slice() {
                b"eval" | b"eval_ro" => sha::hex(&sha::sha1(name)).to_vec(),
                _ => name[..name.len().min(KEY_BYTES_MAX)].to_vec(),
            };
        }
        let statistics = &mut footprint.statistics;
        statistics.runs += 1;
        statistics.extended += u64::from(outcome.extended);
        statistics.reruns += u64::from(outcome.reruns);
        statistics.slow += u64::from(outcome.was_slow);
        statistics.wide += u64::from(outcome.is_wide);
        footprint.is_slow = outcome.duration_ns > SLOW_NS;
        for key in &outcome.undeclared {
            footprint.add(Template::of(key, args));
        }
        let was_wide = footprint.wide_left > 0;
        footprint.judge(outcome);
        if footprint.is_at_rest(was_wide || outcome.is_unusual()) {
            slot.store(tag & !1, Relaxed);
        }
    }

    /// Returns the statistics of scripts that used undeclared keys, were slow or ran again, those with the most
    /// reruns first. With `name`, returns only those of this script.
    pub fn statistics(&self, name: Option<&[u8]>) -> Vec<ScriptStatistics> {
        let known = self.known.lock();
        let is_asked_for = |footprint: &&Footprint| {
            name.is_none_or(|name| footprint.name.eq_ignore_ascii_case(name))
        };
        let mut all: Vec<ScriptStatistics> = known
            .values()
            .filter(is_asked_for)
            .map(|footprint| ScriptStatistics {
                name: footprint.name.clone(),
                learned_keys: footprint.templates.len() as u64,
                ..footprint.statistics.clone()
            })
            .collect();
        all.sort_by(|a, b| {
            let weight = |of: &ScriptStatistics| (of.reruns, of.extended, of.wide, of.slow);
            weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name))
        });
        all
    }
}

impl Footprint {
    fn add(&mut self, template: Option<Template>) {
        let Some(template) = template else { return };
        if self.templates.contains(&template) {
            return;
        }
        if self.templates.len() < TEMPLATES_MAX {
            self.templates.push(template);
            return;
        }
        // All templates are equally good, so replace the oldest.
        self.templates[self.next_replaced] = template;
        self.next_replaced = (self.next_replaced + 1) % TEMPLATES_MAX;
    }

    /// Returns whether the script needs no advice any more: its runs are then inspected again only if one is
    /// unusual. An example are scripts whose first run took long because they had to be compiled. Runs of such
    /// scripts are not in the statistics. A run with all shards (`says_little`) does not show what is needed.
    fn is_at_rest(&mut self, says_little: bool) -> bool {
        self.calm = match says_little {
            true => 0,
            false => self.calm + 1,
        };
        self.calm >= PERIOD && self.templates.is_empty() && self.wide_left == 0
    }

    /// Decides whether the next runs use guessed keys or all shards.
    fn judge(&mut self, outcome: &Outcome) {
        if self.wide_left > 0 {
            self.wide_left -= 1;
            if self.wide_left == 0 {
                // The runs with all shards are over: try with fewer again, with new guesses.
                self.templates.clear();
                (self.runs, self.reran) = (0, 0);
            }
            return;
        }
        self.runs += 1;
        let lacked = outcome.reruns > u32::from(outcome.was_slow);
        self.reran += u32::from(lacked);
        if self.runs == PERIOD {
            if self.reran > PERIOD / RERUN_PART {
                self.wide_left = WIDE_RUNS;
            }
            (self.runs, self.reran) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests;
