//! A count-min sketch: counts of elements, never too low.
//!
//! `depth` rows of `width` counters. An element adds to one counter of each row; the lowest of them is the
//! estimate. With a width of 2/e and a depth of log2(1/p) it is too high by more than e times the sum of all counts
//! with a probability below p. Counters saturate. The counters of an element are the same as in Redis.

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

    /// Creates the sketch.
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
    // In single precision, as Redis computes it.
    let depth = ((probability as f32).log10() / 0.5_f32.log10()).ceil();
    (width as u64, depth as u64)
}

const COUNTER_BYTES: usize = size_of::<u32>();

/// Returns the range of bytes of counters in serialized form.
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

    /// Adds to an element's count. Returns the new estimate.
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

    /// Returns how often an element was added, or a higher number.
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

    /// Replaces the counters by the sum of other sketches of the same size. Returns false, without a change, if the
    /// sum does not fit.
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
mod tests {
    use super::*;
    use crate::base::random::Random;
    use std::collections::HashMap;

    fn make(width: u64, depth: u64) -> CountMin {
        CountMinParams::new(width, depth).expect("small").build()
    }

    /// Adds random names, a few frequent and many rare ones. Returns their exact counts.
    fn fill(sketch: &mut CountMin, seed: u64, count: u64) -> HashMap<u64, u64> {
        let mut random = Random::new(seed);
        let mut exact = HashMap::new();
        for _ in 0..count {
            let name = (1.0 / (random.unit() + 0.0005)) as u64;
            sketch.add(&name.to_le_bytes(), 1);
            *exact.entry(name).or_default() += 1;
        }
        exact
    }

    #[cfg(not(miri))]
    #[test]
    fn estimates_are_never_too_low_and_seldom_much_too_high() {
        let (error_rate, probability) = (0.005, 0.01);
        let (width, depth) = dimensions(error_rate, probability);
        assert_eq!((width, depth), (400, 7));
        let mut sketch = make(width, depth);
        let count = 30_000;
        let exact = fill(&mut sketch, 5, count);
        assert_eq!(sketch.count(), count);
        let mut too_high = 0;
        for (name, times) in &exact {
            let estimate = u64::from(sketch.estimate(&name.to_le_bytes()));
            assert!(estimate >= *times);
            too_high += usize::from((estimate - times) as f64 > error_rate * count as f64);
        }
        assert!(
            too_high as f64 <= probability * exact.len() as f64,
            "{too_high}"
        );
    }

    #[test]
    fn dimensions_are_those_of_redis() {
        assert_eq!(dimensions(0.001, 0.01), (2000, 7));
        assert_eq!(dimensions(0.1, 0.5), (20, 1));
        let (_, depth) = dimensions(0.1, 1e-300);
        assert!(CountMinParams::new(20, depth).is_none());
    }

    #[test]
    fn a_sum_is_as_if_everything_had_been_added_to_one() {
        let (mut first, mut second, mut both) = (make(100, 4), make(100, 4), make(100, 4));
        for number in 0..500_u32 {
            let element = number.to_le_bytes();
            first.add(&element, 1);
            second.add(&element, 2);
            both.add(&element, 3 + 4);
        }
        let mut sum = Sum::new(&first);
        assert!(sum.add(&first, 3) && sum.add(&second, 2));
        let mut target = make(100, 4);
        assert!(target.replace(&sum));
        assert_eq!((target.counters, target.count), (both.counters, both.count));
        assert!(!sum.add(&make(10, 4), 1));
    }

    #[test]
    fn sums_that_do_not_fit_change_nothing() {
        let (mut small, mut target) = (make(1, 1), make(1, 1));
        small.add(b"a", 5);
        target.add(b"a", 7);
        for (weight, adds, fits) in [
            (-1, true, false),
            (i64::from(u32::MAX), true, false),
            (i64::MAX, false, false),
            (2, true, true),
        ] {
            let mut sum = Sum::new(&small);
            assert_eq!(sum.add(&small, weight), adds);
            assert_eq!(target.replace(&sum) && adds, fits);
            if !fits && adds {
                assert_eq!(target.estimate(b"a"), 7);
            }
        }
        assert_eq!(target.estimate(b"a"), 10);
    }

    #[test]
    fn counters_stop_at_their_highest_value() {
        let mut sketch = make(10, 2);
        assert_eq!(sketch.add(b"a", u64::from(u32::MAX) - 1), u32::MAX - 1);
        assert_eq!(sketch.add(b"a", 5), u32::MAX);
        assert_eq!(sketch.add(b"a", u64::MAX), u32::MAX);
        assert_eq!(sketch.count(), u64::MAX);
    }

    #[test]
    fn more_memory_than_allowed_is_refused_before_it_is_taken() {
        for (width, depth) in [(0, 1), (1, 0), (u64::MAX, 2), (1 << 30, 1 << 10)] {
            assert!(CountMinParams::new(width, depth).is_none());
        }
    }
}
