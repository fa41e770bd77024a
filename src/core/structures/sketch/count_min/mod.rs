//! A count-min sketch: counts of elements, never too low.
//!
//! `depth` rows of `width` counters. An element adds to one counter of each row; the lowest of these counters is the
//! estimate. With a width of 2/e and a depth of log2(1/p), the probability that the estimate is too high by more than
//! e times the sum of all counts is below p. Counters saturate. The counters of an element are the same as in Redis.

use std::ops::Range;

use super::cut::things_in;
use super::{COUNTERS_BYTES_MAX, SketchCodec, SketchCut, SketchDecoder, is_available};
use crate::structures::murmur::murmur32;

/// The parameters of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountMinParams {
    width: u64,
    depth: u64,
}

impl CountMinParams {
    /// Plans `depth` rows of `width` counters. Returns `None` if they would take too much memory.
    pub fn new(width: u64, depth: u64) -> Option<CountMinParams> {
        let bytes = width.checked_mul(depth)?.checked_mul(4)?;
        (bytes > 0 && bytes <= COUNTERS_BYTES_MAX && is_available(bytes))
            .then_some(CountMinParams { width, depth })
    }

    /// Creates the empty sketch that was planned.
    pub fn build(&self) -> CountMin {
        CountMin {
            width: self.width,
            depth: self.depth,
            count: 0,
            counters: vec![0; (self.width * self.depth) as usize],
            cut: SketchCut::default(),
        }
    }
}

/// Returns width and depth for an error rate and a probability, both between 0 and 1.
pub fn dimensions(error_rate: f64, probability: f64) -> (u64, u64) {
    let width = (2.0 / error_rate).ceil();
    // Computed in single precision, as in Redis.
    let depth = ((probability as f32).log10() / 0.5_f32.log10()).ceil();
    (width as u64, depth as u64)
}

const COUNTER_BYTES: usize = size_of::<u32>();

/// Returns the bytes that a range of counters takes in serialized form.
fn bytes_of(counters: Range<usize>) -> Range<u64> {
    let at = |counter: usize| (counter * COUNTER_BYTES) as u64;
    at(counters.start)..at(counters.end)
}

/// A count-min sketch, see the module.
#[derive(Clone)]
pub struct CountMin {
    width: u64,
    depth: u64,
    count: u64,
    counters: Vec<u32>,
    cut: SketchCut,
}

impl CountMin {
    fn places<'e>(&self, element: &'e [u8]) -> impl Iterator<Item = usize> + use<'e> {
        let width = self.width;
        (0..self.depth).map(move |row| {
            let hash = murmur32(element, row as u32);
            (row * width + u64::from(hash) % width) as usize
        })
    }

    /// Adds `count` to an element's count. Returns the new estimate.
    pub fn add(&mut self, element: &[u8], count: u64) -> u32 {
        let mut lowest = u32::MAX;
        let step = u32::try_from(count).unwrap_or(u32::MAX);
        for place in self.places(element) {
            self.touch(bytes_of(place..place + 1));
            if let Some(counter) = self.counters.get_mut(place) {
                *counter = counter.saturating_add(step);
                lowest = lowest.min(*counter);
            }
        }
        self.count = self.count.saturating_add(count);
        lowest
    }

    /// Returns an estimate of how often an element was added, which is never too low.
    pub fn estimate(&self, element: &[u8]) -> u32 {
        let counters = self
            .places(element)
            .filter_map(|place| self.counters.get(place));
        counters.min().copied().unwrap_or(0)
    }

    /// Returns the number of counters per row.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// Returns the sum of all counts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Replaces the counters by the sum of sketches of the same size. Returns false, without a change, if a counter
    /// of the sum is out of range.
    pub fn replace(&mut self, sum: &Sum) -> bool {
        let fits = sum.counters.len() == self.counters.len()
            && sum
                .counters
                .iter()
                .all(|counter| (0..=i64::from(u32::MAX)).contains(counter));
        let Some(count) = u64::try_from(sum.count).ok().filter(|_| fits) else {
            return false;
        };
        self.touch(bytes_of(0..self.counters.len()));
        for (counter, sum) in self.counters.iter_mut().zip(&sum.counters) {
            *counter = *sum as u32;
        }
        self.count = count;
        true
    }
}

/// The sum of several sketches.
pub struct Sum {
    counters: Vec<i64>,
    count: i64,
}

impl Sum {
    /// Creates an empty sum, for sketches of the size of this one.
    pub fn new(like: &CountMin) -> Sum {
        Sum {
            counters: vec![0; like.counters.len()],
            count: 0,
        }
    }

    /// Adds a sketch multiplied by `weight`. Returns false on overflow, or if its size differs.
    pub fn add(&mut self, sketch: &CountMin, weight: i64) -> bool {
        if sketch.counters.len() != self.counters.len() {
            return false;
        }
        for (sum, counter) in self.counters.iter_mut().zip(&sketch.counters) {
            let weighted = i64::from(*counter).checked_mul(weight);
            match weighted.and_then(|weighted| sum.checked_add(weighted)) {
                Some(added) => *sum = added,
                None => return false,
            }
        }
        let weighted = i64::try_from(sketch.count)
            .ok()
            .and_then(|count| count.checked_mul(weight));
        match weighted.and_then(|weighted| self.count.checked_add(weighted)) {
            Some(added) => self.count = added,
            None => return false,
        }
        true
    }
}

impl SketchCodec for CountMin {
    fn head(&self) -> Vec<u8> {
        [self.width, self.depth, self.count]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    fn data_bytes(&self) -> u64 {
        bytes_of(0..self.counters.len()).end
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        let counters = &self.counters[things_in(bytes, COUNTER_BYTES)];
        counters
            .iter()
            .flat_map(|counter| counter.to_le_bytes())
            .collect()
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<CountMin> {
        let mut reader = SketchDecoder { rest: head };
        let (width, depth, count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let bytes = width.checked_mul(depth)?.checked_mul(4)?;
        if !reader.rest.is_empty() || bytes != data.len() as u64 {
            return None;
        }
        let mut sketch = CountMinParams::new(width, depth)?.build();
        let mut reader = SketchDecoder { rest: data };
        for counter in &mut sketch.counters {
            *counter = reader.u32()?;
        }
        sketch.count = count;
        Some(sketch)
    }
}

#[cfg(test)]
mod tests;
