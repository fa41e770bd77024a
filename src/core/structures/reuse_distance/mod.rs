//! The miss ratio curve: the share of lookups that would find their key with more memory, or less, estimated while
//! a cache works, in a few KiB.
//!
//! The idea is that of SHARDS. An LRU cache of `C` bytes finds a key again if the different keys used since have
//! fewer than `C` bytes in total: its reuse distance. Few keys are sampled, chosen by a part of their hash: a key
//! whose mark is below a threshold is sampled at each use, all others never. Distances among the sampled keys,
//! divided by the sampling rate, are distances among all. [`ReuseDistance`] holds the sampled keys in the order of
//! their last use; [`Curve`] counts lookups by distance, and may be read by any thread.
//!
//! ```text
//! used recently ─▶ k7 k2 k9 … k4 ◀── long ago      a lookup of k9 finds k7 and k2 before it:
//!                  |bytes each |                   distance = (bytes of k7 + k2) / rate + bytes of k9
//! ```
//!
//! When there is no slot for one more sampled key, the keys are dropped whose distance is too large to be of
//! interest; if there are none, the threshold falls to the largest mark, which drops the key with that mark. So the
//! rate adapts to the number of keys.
//!
//! Limits. It models LRU, and lookups: keys that are only written are sampled, but not counted. Counts are scaled to
//! all lookups of the shard, so that a hot key which happens to be sampled, or not, does not distort the curve. A
//! lookup of a sampled key that exists but has no slot yet (because the curve was just switched on) is not counted.
//! Two keys with one mark are treated as one, which affects at most one key in thousands. Old lookups count for less:
//! half after ten minutes.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Keys sampled at once: 2 KiB of them. The average cost of a lookup grows with the square of this number:
/// proportionally more keys are sampled, and proportionally more are searched for.
const SAMPLES_MAX: usize = 256;

/// Number of marks that are compared at a time, without branches.
const LANES: usize = 16;

/// Initial and maximum threshold: one key in sixteen.
pub const BELOW_MAX: u32 = 1 << 28;

/// Distances beyond the present memory times this are of no interest.
const DEPTH: u64 = 5;

/// Time in which counts lose half their weight.
const HALF_LIFE_MS: u64 = 600_000;

/// Interval at which weights are lowered.
const AGING_MS: u64 = 30_000;

/// Returns the part of a key's hash that decides whether it is sampled. Its highest byte is the one that
/// [`Table::hash_byte`] returns without reading the key.
///
/// [`Table::hash_byte`]: crate::structures::table::Table::hash_byte
#[inline(always)]
pub fn mark(hash: u64) -> u32 {
    ((hash >> 8) as u32).swap_bytes()
}

/// The sampled keys; see the module.
#[derive(Debug)]
pub struct ReuseDistance {
    /// Marks of the sampled keys, most recently used first.
    marks: Vec<u32>,
    /// Bytes of the keys, in the same order.
    sizes: Vec<u32>,
    /// Total bytes of the sampled keys.
    bytes: u64,
    below: u32,
    reads_before: u64,
    hits_before: u64,
    aged_ms: u64,
}

/// Counts of the shard's lookups and memory so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Lookups, sampled or not.
    pub reads: u64,
    /// Lookups that found their key.
    pub hits: u64,
    /// Current bytes of the data.
    pub memory_bytes: u64,
    /// Current time, in Unix milliseconds.
    pub now_ms: u64,
}

impl ReuseDistance {
    /// Creates a sampler without keys; lookups counted in `totals` so far are left out.
    pub fn new(totals: Totals) -> ReuseDistance {
        ReuseDistance {
            marks: Vec::new(),
            sizes: Vec::new(),
            bytes: 0,
            below: BELOW_MAX,
            reads_before: totals.reads,
            hits_before: totals.hits,
            aged_ms: totals.now_ms,
        }
    }

    /// Returns the threshold: keys with a lower mark are sampled.
    pub fn below(&self) -> u32 {
        self.below
    }

    /// Returns the number of sampled keys.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// True if no key is sampled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the reciprocal of the sampling rate.
    fn scale(&self) -> f64 {
        (1u64 << 32) as f64 / f64::from(self.below.max(1))
    }

    /// Counts a lookup of a sampled key; `found` is the key's size in bytes, if it exists.
    pub fn read(&mut self, hash: u64, found: Option<usize>, totals: Totals, curve: &Curve) {
        self.catch_up(totals, curve);
        let scale = self.scale();
        match (self.position(mark(hash)), found) {
            (Some((at, before)), found) => {
                let own = found.unwrap_or(self.sizes[at] as usize);
                curve.count((before as f64 * scale) as u64 + own as u64, scale);
                self.bring_forward(at, own);
            }
            (None, None) => curve.unseen.add(scale),
            (None, Some(bytes)) => {
                curve.reads.add(-scale);
                self.enter(hash, bytes, totals);
            }
        }
        curve.samples.set(self.len() as f64);
        curve.share.set(1.0 / self.scale());
    }

    /// Records that a sampled key was changed and now has `bytes` bytes.
    pub fn write(&mut self, hash: u64, bytes: usize, totals: Totals) {
        match self.position(mark(hash)) {
            Some((at, _)) => self.bring_forward(at, bytes),
            None => self.enter(hash, bytes, totals),
        }
    }

    /// Removes a key that was deleted or expired, not evicted: no cache would find it again.
    pub fn forget(&mut self, hash: u64) {
        if let Some((at, _)) = self.position(mark(hash)) {
            self.marks.remove(at);
            self.bytes -= u64::from(self.sizes.remove(at));
            if self.len() < SAMPLES_MAX / 4 {
                self.below = self.below.saturating_mul(2).min(BELOW_MAX);
            }
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.sizes.clear();
        self.bytes = 0;
        self.below = BELOW_MAX;
    }

    /// Returns the position of a key, and the bytes of those before it.
    fn position(&self, mark: u32) -> Option<(usize, u64)> {
        let sum = |sizes: &[u32]| sizes.iter().map(|size| u64::from(*size)).sum::<u64>();
        let holds = |marks: &[u32]| {
            marks
                .iter()
                .fold(false, |found, each| found | (*each == mark))
        };
        let mut before = 0;
        for (index, (marks, sizes)) in self
            .marks
            .chunks(LANES)
            .zip(self.sizes.chunks(LANES))
            .enumerate()
        {
            if holds(marks) {
                let within = marks.iter().position(|each| *each == mark)?;
                return Some((index * LANES + within, before + sum(&sizes[..within])));
            }
            before += sum(sizes);
        }
        None
    }

    fn bring_forward(&mut self, at: usize, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let (mark, before) = (self.marks[at], self.sizes[at]);
        self.marks.copy_within(..at, 1);
        self.sizes.copy_within(..at, 1);
        (self.marks[0], self.sizes[0]) = (mark, bytes);
        self.bytes = self.bytes - u64::from(before) + u64::from(bytes);
    }

    fn enter(&mut self, hash: u64, bytes: usize, totals: Totals) {
        let mark = mark(hash);
        if self.len() == SAMPLES_MAX {
            self.make_room(totals.memory_bytes);
        }
        if mark >= self.below {
            return;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.is_empty() {
            self.marks.reserve_exact(SAMPLES_MAX);
            self.sizes.reserve_exact(SAMPLES_MAX);
        }
        self.marks.insert(0, mark);
        self.sizes.insert(0, bytes);
        self.bytes += u64::from(bytes);
    }

    #[cold]
    fn make_room(&mut self, memory_bytes: u64) {
        let limit = memory_bytes.saturating_mul(DEPTH) as f64;
        let mut depth = self.bytes as f64 * self.scale();
        if depth > limit {
            let could_be_finer = depth > 2.0 * limit;
            while depth > limit
                && let (Some(_), Some(last)) = (self.marks.pop(), self.sizes.pop())
            {
                self.bytes -= u64::from(last);
                depth = self.bytes as f64 * self.scale();
            }
            if could_be_finer && self.len() < SAMPLES_MAX / 2 {
                self.below = self.below.saturating_mul(2).min(BELOW_MAX);
            }
            return;
        }
        self.below = self.marks.iter().copied().max().unwrap_or(0).max(1);
        for at in (0..self.len()).rev() {
            if self.marks[at] >= self.below {
                self.marks.remove(at);
                self.bytes -= u64::from(self.sizes.remove(at));
            }
        }
    }

    /// Counts the lookups since the last call, sampled or not, and lowers the weight of old ones.
    fn catch_up(&mut self, totals: Totals, curve: &Curve) {
        let age_ms = totals.now_ms.saturating_sub(self.aged_ms);
        if age_ms >= AGING_MS {
            self.aged_ms = totals.now_ms;
            curve.age(0.5_f64.powf(age_ms as f64 / HALF_LIFE_MS as f64));
        }
        let reads = totals.reads.saturating_sub(self.reads_before);
        let hits = totals.hits.saturating_sub(self.hits_before);
        (self.reads_before, self.hits_before) = (totals.reads, totals.hits);
        curve.reads.add(reads as f64);
        curve.all_reads.add(reads as f64);
        curve.all_hits.add(hits as f64);
    }
}

/// A number with one writer at a time that any thread may read.
#[derive(Debug, Default)]
struct Figure(AtomicU64);

impl Figure {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    fn add(&self, value: f64) {
        self.set(self.get() + value);
    }
}

/// Number of buckets for each doubling of the distance.
const STEPS: usize = 4;

/// Number of buckets: for distances up to 64 GiB in one shard, a little more than 1 KiB of numbers.
const BUCKETS: usize = 34 * STEPS;

/// Lookups counted by distance; see the module.
#[derive(Debug, Default)]
pub struct Curve {
    buckets: OnceLock<Box<[Figure]>>,
    /// Lookups covered by the curve.
    reads: Figure,
    /// All lookups, and the lookups that found their key.
    all_reads: Figure,
    all_hits: Figure,
    /// Lookups of keys that were not sampled before: no cache would have found them.
    unseen: Figure,
    samples: Figure,
    share: Figure,
}

/// The estimate of a curve, for one shard or for all shards together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate<const N: usize> {
    /// Lookups covered by the curve, weighted by age.
    pub reads: f64,
    /// Misses of an LRU cache of each of the given sizes.
    pub misses: [f64; N],
    /// Misses that a cache of any size would have.
    pub unseen: f64,
    /// Measured lookups, weighted by age.
    pub measured_reads: f64,
    /// Misses among the measured lookups, weighted by age.
    pub measured_misses: f64,
    /// Number of keys in the sample.
    pub samples: f64,
    /// Number of keys that the sampled keys represent.
    pub represented_keys: f64,
}

impl<const N: usize> Default for Estimate<N> {
    fn default() -> Estimate<N> {
        Estimate {
            reads: 0.0,
            misses: [0.0; N],
            unseen: 0.0,
            measured_reads: 0.0,
            measured_misses: 0.0,
            samples: 0.0,
            represented_keys: 0.0,
        }
    }
}

impl Curve {
    fn count(&self, distance: u64, weight: f64) {
        let buckets = self
            .buckets
            .get_or_init(|| (0..BUCKETS).map(|_| Figure::default()).collect());
        buckets[bucket(distance)].add(weight);
    }

    fn age(&self, factor: f64) {
        let figures = [&self.reads, &self.all_reads, &self.all_hits, &self.unseen];
        for figure in figures
            .into_iter()
            .chain(self.buckets.get().into_iter().flatten())
        {
            figure.set(figure.get() * factor);
        }
    }

    /// Clears all counts, as counting has ended.
    pub fn clear(&self) {
        self.age(0.0);
        self.samples.set(0.0);
        self.share.set(0.0);
    }

    /// Returns the estimate for caches of these sizes in bytes.
    pub fn estimate<const N: usize>(&self, sizes: [u64; N]) -> Estimate<N> {
        let reads = self.reads.get().max(0.0);
        let unseen = self.unseen.get();
        let (all_reads, all_hits) = (self.all_reads.get(), self.all_hits.get());
        let samples = self.samples.get();
        Estimate {
            reads,
            misses: sizes.map(|size| (unseen + self.beyond(size)).min(reads)),
            unseen: unseen.min(reads),
            measured_reads: all_reads,
            measured_misses: (all_reads - all_hits).max(0.0),
            samples,
            represented_keys: match self.share.get() {
                share if share > 0.0 => samples / share,
                _ => 0.0,
            },
        }
    }

    /// Returns the lookups with a distance of more than `bytes`.
    fn beyond(&self, bytes: u64) -> f64 {
        let Some(buckets) = self.buckets.get() else {
            return 0.0;
        };
        let at = bucket(bytes);
        let (low, high) = (lowest(at) as f64, lowest(at + 1) as f64);
        let part = ((high - bytes as f64) / (high - low)).clamp(0.0, 1.0);
        let above: f64 = buckets[at + 1..].iter().map(Figure::get).sum();
        above + part * buckets[at].get()
    }
}

impl<const N: usize> Estimate<N> {
    /// Adds the estimate of another shard.
    pub fn add(&mut self, other: &Estimate<N>) {
        self.reads += other.reads;
        self.unseen += other.unseen;
        self.measured_reads += other.measured_reads;
        self.measured_misses += other.measured_misses;
        self.samples += other.samples;
        self.represented_keys += other.represented_keys;
        for (sum, misses) in self.misses.iter_mut().zip(other.misses) {
            *sum += misses;
        }
    }

    /// Returns the hit ratios of an LRU cache of each size, from 0 to 1; None before any lookup.
    pub fn lru(&self) -> Option<[f64; N]> {
        (self.reads > 0.0).then(|| self.misses.map(|misses| 1.0 - misses / self.reads))
    }

    /// Returns the measured hit ratio over the same time; None before any lookup.
    pub fn measured(&self) -> Option<f64> {
        (self.measured_reads > 0.0).then(|| 1.0 - self.measured_misses / self.measured_reads)
    }

    /// Returns the probable hit ratios with the actual eviction, which is not LRU: the capacity misses of LRU are
    /// scaled by the measurement at the size at index `present`. Sizes must be ascending. The result at `present` is
    /// the measured hit ratio; at smaller sizes it is never higher, at larger sizes never lower.
    ///
    /// With hardly any capacity misses, it is unknown how the eviction compares with LRU, and smaller sizes have
    /// LRU's hit ratios: all data may fit now, and hardly any at a quarter of the memory.
    pub fn corrected(&self, present: usize) -> Option<[f64; N]> {
        /// No eviction policy is better or worse than LRU by a larger factor; larger differences are noise.
        const SCALE_MAX: f64 = 3.0;
        /// If capacity misses are a smaller share of all lookups than this, there is no basis for scaling.
        const NOTABLE: f64 = 0.002;
        let lru = self.lru()?;
        let measured = self.measured()?;
        let unseen = self.unseen / self.reads;
        let modelled = 1.0 - lru.get(present)? - unseen;
        let missed = 1.0 - measured - unseen;
        let scale = match modelled > NOTABLE && missed > NOTABLE {
            true => (missed / modelled).clamp(1.0 / SCALE_MAX, SCALE_MAX),
            false => 1.0,
        };
        let mut corrected = lru.map(|hit_ratio| {
            let wanting = (1.0 - hit_ratio - unseen).max(0.0);
            (1.0 - unseen - wanting * scale).clamp(0.0, 1.0)
        });
        for (at, hit_ratio) in corrected.iter_mut().enumerate() {
            *hit_ratio = match at.cmp(&present) {
                Less => hit_ratio.min(measured),
                Equal => measured,
                Greater => hit_ratio.max(measured),
            };
        }
        Some(corrected)
    }
}

/// Returns the index of the bucket of a distance: four equal steps for each power of two.
fn bucket(distance: u64) -> usize {
    let distance = distance.max(STEPS as u64);
    let power = distance.ilog2() - STEPS.ilog2();
    let step = (distance >> power) as usize - STEPS;
    (power as usize * STEPS + step).min(BUCKETS - 1)
}

/// Returns the least distance of a bucket.
fn lowest(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    ((STEPS + step) as u64) << power
}

#[cfg(test)]
mod tests;
