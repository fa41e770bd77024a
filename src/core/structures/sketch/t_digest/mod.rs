//! A t-digest: the distribution of numbers, most exact at both ends, after Dunning and Ertl, "Computing Extremely
//! Accurate Quantiles Using t-Digests" (arXiv:1902.04023), in its merging form.
//!
//! Numbers are buffered; when there are many they are sorted together with the centroids, and neighbors are merged
//! as long as a centroid stays small enough for its position. At quantile q its weight may be at most about
//! `n log(n) q (1 - q) 2 pi / compression`. So the first and the last centroid are single numbers, and the heavy
//! ones are in the middle. Quantiles are interpolated between centroids, with half of each one's weight on either
//! side; centroids of a single number are not spread.

use std::f64::consts::PI;
use std::ops::Range;

use super::cut::things_in;
use super::{SketchCodec, SketchCut, SketchDecoder};

/// The maximum compression: with it a digest has at most some 50 MiB, and merging takes well below a second.
pub const COMPRESSION_MAX: u64 = 1 << 19;

/// Error: the total weight would overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Centroid {
    mean: f64,
    weight: u64,
}

/// A t-digest, see the module.
#[derive(Clone)]
pub struct TDigest {
    compression: u64,
    /// The merged centroids, sorted; after them single numbers in order of addition.
    centroids: Vec<Centroid>,
    merged: usize,
    merged_weight: u64,
    weight: u64,
    min: f64,
    max: f64,
    merges: u64,
    cut: SketchCut,
}

/// Bytes of a serialized centroid.
const CENTROID_BYTES: usize = 16;

/// The maximum total weight.
const WEIGHT_MAX: u64 = i64::MAX as u64;

impl TDigest {
    /// Creates an empty digest; the compression is about the number of centroids, from 1 to [`COMPRESSION_MAX`].
    pub fn new(compression: u64) -> TDigest {
        TDigest {
            compression: compression.clamp(1, COMPRESSION_MAX),
            centroids: Vec::new(),
            merged: 0,
            merged_weight: 0,
            weight: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            merges: 0,
            cut: SketchCut::default(),
        }
    }

    /// Removes all numbers.
    pub fn reset(&mut self) {
        self.replace(&TDigest::new(self.compression));
    }

    /// Replaces the digest by a copy of another one.
    pub fn replace(&mut self, other: &TDigest) {
        self.touch(0..self.data_bytes());
        let cut = std::mem::take(&mut self.cut);
        *self = TDigest {
            cut,
            ..other.clone()
        };
    }

    /// Returns the compression that the digest was created with.
    pub fn compression(&self) -> u64 {
        self.compression
    }

    /// Returns the maximum number of centroids and buffered numbers before the digest merges them.
    pub fn capacity(&self) -> usize {
        6 * self.compression as usize + 10
    }

    /// Returns the numbers of centroids and of buffered numbers.
    pub fn nodes(&self) -> (usize, usize) {
        (self.merged, self.centroids.len() - self.merged)
    }

    /// Returns the total weights of the centroids and of the buffered numbers.
    pub fn weights(&self) -> (u64, u64) {
        (self.merged_weight, self.weight - self.merged_weight)
    }

    /// Returns how often the digest has merged buffered numbers.
    pub fn merges(&self) -> u64 {
        self.merges
    }

    /// Returns the digest's size in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<TDigest>() + self.centroids.capacity() * size_of::<Centroid>()
    }

    /// Returns how many numbers were added.
    pub fn count(&self) -> u64 {
        self.weight
    }

    /// Returns the lowest number; NaN if there is none.
    pub fn min(&self) -> f64 {
        if self.weight == 0 { f64::NAN } else { self.min }
    }

    /// Returns the highest number; NaN if there is none.
    pub fn max(&self) -> f64 {
        if self.weight == 0 { f64::NAN } else { self.max }
    }

    /// Adds a finite number; NaN and infinities are ignored.
    pub fn add(&mut self, number: f64) -> Result<(), Overflow> {
        self.add_weighted(number, 1)
    }

    fn add_weighted(&mut self, mean: f64, weight: u64) -> Result<(), Overflow> {
        if !mean.is_finite() || weight == 0 {
            return Ok(());
        }
        let total = self.weight.checked_add(weight).ok_or(Overflow)?;
        if total > WEIGHT_MAX {
            return Err(Overflow);
        }
        if self.centroids.len() + 1 >= self.capacity() {
            self.merge();
        }
        self.centroids.push(Centroid { mean, weight });
        self.weight = total;
        self.min = self.min.min(mean);
        self.max = self.max.max(mean);
        Ok(())
    }

    /// Adds the contents of another digest. On an error, some of them may have been added.
    pub fn add_all(&mut self, other: &TDigest) -> Result<(), Overflow> {
        self.merge();
        let mut other = other.clone();
        other.merge();
        for centroid in &other.centroids {
            self.add_weighted(centroid.mean, centroid.weight)?;
        }
        // The lowest and highest numbers of the other digest are in centroids of their own, but the mean of a merged
        // centroid may have been rounded.
        if other.weight > 0 {
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
        Ok(())
    }

    /// True if no buffered numbers wait to be merged.
    pub fn is_merged(&self) -> bool {
        self.merged == self.centroids.len()
    }

    /// Merges the buffered numbers into the centroids.
    pub fn merge(&mut self) {
        if self.is_merged() {
            return;
        }
        // Announced at once for all data, as merging takes longer than a copy.
        self.touch(0..self.data_bytes());
        self.centroids
            .sort_unstable_by(|first, second| first.mean.total_cmp(&second.mean));
        let total = self.weight as f64;
        let normalizer = self.compression as f64 / (2.0 * PI * total * total.ln());
        let mut kept = 0;
        let mut weight_before = 0_u64;
        for next in 1..self.centroids.len() {
            let (current, other) = (self.centroids[kept], self.centroids[next]);
            let weight = current.weight + other.weight;
            let size = weight as f64 * normalizer;
            let fits = |weight: u64| {
                let quantile = weight as f64 / total;
                size <= quantile * (1.0 - quantile)
            };
            if fits(weight_before) && fits(weight_before + weight) {
                self.centroids[kept] = Centroid {
                    mean: mean_of(current, other),
                    weight,
                };
            } else {
                weight_before += current.weight;
                kept += 1;
                self.centroids[kept] = other;
            }
        }
        self.centroids.truncate(kept + 1);
        self.merged = self.centroids.len();
        self.merged_weight = self.weight;
        self.merges += 1;
    }

    /// Returns the number below which a share of all numbers lies; NaN if there are none. Buffered numbers are
    /// ignored: call [`TDigest::merge`] before.
    pub fn quantile(&self, share: f64) -> f64 {
        let (Some(first), Some(last)) = (self.centroids.first(), self.centroids.last()) else {
            return f64::NAN;
        };
        if self.centroids.len() == 1 {
            return first.mean;
        }
        let total = self.weight as f64;
        let index = share * total;
        let (first_weight, last_weight) = (first.weight as f64, last.weight as f64);
        if index < 1.0 {
            return self.min;
        }
        if first_weight > 1.0 && index < first_weight / 2.0 {
            // The first centroid includes the lowest number itself; the rest of its lower half is spread between that
            // number and the mean.
            let share = (index - 1.0) / (first_weight / 2.0 - 1.0);
            return self.min + share * (first.mean - self.min);
        }
        if index > total - 1.0 {
            return self.max;
        }
        if last_weight > 1.0 && total - index <= last_weight / 2.0 {
            let share = (total - index - 1.0) / (last_weight / 2.0 - 1.0);
            return self.max - share * (self.max - last.mean);
        }
        let mut before = first_weight / 2.0;
        for pair in self.centroids.windows(2) {
            let &[left, right] = pair else { break };
            let between = (left.weight as f64 + right.weight as f64) / 2.0;
            if before + between > index {
                return between_centroids(left, right, index - before, before + between - index);
            }
            before += between;
        }
        let behind = index - before;
        weighted(last.mean, last_weight / 2.0 - behind, self.max, behind)
    }

    /// Returns the share of all numbers that are below `number`, counting equal ones half. Buffered numbers are
    /// ignored: call [`TDigest::merge`] before.
    pub fn share_below(&self, number: f64) -> f64 {
        let (Some(first), Some(last)) = (self.centroids.first(), self.centroids.last()) else {
            return f64::NAN;
        };
        let total = self.weight as f64;
        if number.is_nan() {
            return f64::NAN;
        }
        if number < self.min {
            return 0.0;
        }
        if number > self.max {
            return 1.0;
        }
        if self.centroids.len() == 1 {
            // All numbers are equal, or so close that nothing lies between.
            return 0.5;
        }
        if number < first.mean {
            let width = first.mean - self.min;
            return if number == self.min {
                0.5 / total
            } else {
                let share = (number - self.min) / width;
                (1.0 + share * (first.weight as f64 / 2.0 - 1.0)) / total
            };
        }
        if number > last.mean {
            let width = self.max - last.mean;
            return if number == self.max {
                1.0 - 0.5 / total
            } else {
                let share = (self.max - number) / width;
                1.0 - (1.0 + share * (last.weight as f64 / 2.0 - 1.0)) / total
            };
        }
        let mut before = 0_u64;
        for (at, centroid) in self.centroids.iter().enumerate() {
            if centroid.mean == number {
                let same = self.centroids[at..].iter();
                let same: u64 = same
                    .take_while(|other| other.mean == number)
                    .map(|other| other.weight)
                    .sum();
                return (before as f64 + same as f64 / 2.0) / total;
            }
            if let Some(next) = self.centroids.get(at + 1)
                && number < next.mean
            {
                return (before as f64 + part_below(*centroid, *next, number)) / total;
            }
            before += centroid.weight;
        }
        1.0 - 0.5 / total
    }

    /// Returns the mean of the numbers between two shares; NaN if there are none. Buffered numbers are ignored: call
    /// [`TDigest::merge`] before.
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        if let [only] = self.centroids[..] {
            return only.mean;
        }
        let total = self.weight as f64;
        let (from, to) = ((total * low).floor(), (total * high).ceil());
        let (mut before, mut sum, mut count) = (0.0, 0.0, 0.0);
        for centroid in &self.centroids {
            let weight = centroid.weight as f64;
            let skipped = (from - before).clamp(0.0, weight);
            let taken = (weight - skipped).min((to - before).max(0.0));
            before += weight;
            sum += centroid.mean * taken;
            count += taken;
            if before >= to {
                break;
            }
        }
        sum / count
    }
}

/// Returns the mean of two centroids together, which is never outside of their means.
fn mean_of(first: Centroid, second: Centroid) -> f64 {
    let (weight, total) = (second.weight as f64, (first.weight + second.weight) as f64);
    let step = (second.mean - first.mean) * weight / total;
    if step.is_finite() {
        return first.mean + step;
    }
    // The means are at the extremes of the range of doubles, so that their distance overflows.
    first.mean * (first.weight as f64 / total) + second.mean * (weight / total)
}

/// Returns the number at a position between two centroids: with weight `behind` after the left one and `before`
/// before the right one.
fn between_centroids(left: Centroid, right: Centroid, behind: f64, before: f64) -> f64 {
    let mut spread = (behind, before);
    if left.weight == 1 {
        if behind < 0.5 {
            return left.mean;
        }
        spread.0 -= 0.5;
    }
    if right.weight == 1 {
        if before <= 0.5 {
            return right.mean;
        }
        spread.1 -= 0.5;
    }
    weighted(left.mean, spread.1, right.mean, spread.0)
}

/// Returns how much of the weight of two centroids, at most the whole left one and half of the right one, lies
/// below a number between them.
fn part_below(left: Centroid, right: Centroid, number: f64) -> f64 {
    let between = (left.weight as f64 + right.weight as f64) / 2.0;
    let width = right.mean - left.mean;
    let (left_alone, right_alone) = match (left.weight, right.weight) {
        (1, 1) => return 1.0,
        (1, _) => (0.5, 0.0),
        (_, 1) => (0.0, 0.5),
        _ => (0.0, 0.0),
    };
    let spread = between - left_alone - right_alone;
    left.weight as f64 / 2.0 + left_alone + spread * ((number - left.mean) / width)
}

/// Returns the weighted mean of two numbers, which is never outside of them, whatever the weights.
fn weighted(first: f64, first_weight: f64, second: f64, second_weight: f64) -> f64 {
    let mean = (first * first_weight + second * second_weight) / (first_weight + second_weight);
    let (low, high) = (first.min(second), first.max(second));
    mean.min(high).max(low)
}

impl SketchCodec for TDigest {
    fn head(&self) -> Vec<u8> {
        let numbers = [
            self.compression,
            self.merged as u64,
            self.merges,
            self.min.to_bits(),
            self.max.to_bits(),
        ];
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    fn data_bytes(&self) -> u64 {
        (self.centroids.len() * CENTROID_BYTES) as u64
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        let numbers = self.centroids[things_in(bytes, CENTROID_BYTES)]
            .iter()
            .flat_map(|centroid| [centroid.mean.to_bits(), centroid.weight]);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<TDigest> {
        let mut reader = SketchDecoder { rest: head };
        let compression = reader.u64()?;
        let mut digest = TDigest::new(compression);
        digest.merged = usize::try_from(reader.u64()?).ok()?;
        digest.merges = reader.u64()?;
        (digest.min, digest.max) = (reader.f64()?, reader.f64()?);
        let count = data.len() / CENTROID_BYTES;
        let fits = reader.rest.is_empty()
            && data.len().is_multiple_of(CENTROID_BYTES)
            && digest.compression == compression
            && digest.merged <= count
            && count <= digest.capacity();
        if !fits {
            return None;
        }
        let mut reader = SketchDecoder { rest: data };
        for _ in 0..count {
            let (mean, weight) = (reader.f64()?, reader.u64()?);
            if !mean.is_finite() || weight == 0 {
                return None;
            }
            digest.weight = digest.weight.checked_add(weight)?;
            digest.centroids.push(Centroid { mean, weight });
        }
        let merged = digest.centroids.get(..digest.merged)?;
        digest.merged_weight = merged.iter().map(|centroid| centroid.weight).sum();
        let is_sorted = merged.is_sorted_by(|one, two| one.mean <= two.mean);
        let has_ends = if count == 0 {
            digest.min == f64::INFINITY && digest.max == f64::NEG_INFINITY
        } else {
            digest.min.is_finite() && digest.max.is_finite() && digest.min <= digest.max
        };
        (is_sorted && has_ends && digest.weight <= WEIGHT_MAX).then_some(digest)
    }
}

#[cfg(test)]
mod tests;
