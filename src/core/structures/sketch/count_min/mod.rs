//! A count-min sketch: counts of elements, never too low.
//!
//! `depth` rows of `width` counters. An element adds to one counter of each row; the lowest of these counters is the
//! estimate. With a width of 2/e and a depth of log2(1/p), the probability that the estimate is too high by more than
//! e times the sum of all counts is below p. Counters have one to eight bytes, and a change that a counter cannot hold
//! changes nothing. The counters of an element are the same as in Redis.

use std::ops::Range;

use super::{COUNTERS_BYTES_MAX, SketchCodec, SketchCut, SketchDecoder, is_available};
use crate::structures::murmur::murmur32;

/// Bytes of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellSize {
    /// One byte.
    One,
    /// Two bytes.
    Two,
    /// Four bytes.
    #[default]
    Four,
    /// Eight bytes.
    Eight,
}

impl CellSize {
    /// Returns the size with this number of bytes.
    pub fn of(bytes: u64) -> Option<CellSize> {
        Some(match bytes {
            1 => CellSize::One,
            2 => CellSize::Two,
            4 => CellSize::Four,
            8 => CellSize::Eight,
            _ => return None,
        })
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> usize {
        1 << self as u32
    }

    /// Returns the largest count: of eight bytes what a signed integer holds, as replies are signed.
    pub fn count_max(self) -> u64 {
        match self {
            CellSize::One => u8::MAX.into(),
            CellSize::Two => u16::MAX.into(),
            CellSize::Four => u32::MAX.into(),
            CellSize::Eight => i64::MAX.cast_unsigned(),
        }
    }
}

/// The parameters of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountMinParams {
    width: u64,
    depth: u64,
    cell: CellSize,
}

impl CountMinParams {
    /// Plans `depth` rows of `width` counters. Returns `None` if they would take too much memory.
    pub fn new(width: u64, depth: u64, cell: CellSize) -> Option<CountMinParams> {
        let bytes = width.checked_mul(depth)?.checked_mul(cell.bytes() as u64)?;
        (bytes > 0 && bytes <= COUNTERS_BYTES_MAX && is_available(bytes))
            .then_some(CountMinParams { width, depth, cell })
    }

    fn bytes(&self) -> usize {
        (self.width * self.depth) as usize * self.cell.bytes()
    }

    /// Creates the empty sketch that was planned.
    pub fn build(&self) -> CountMin {
        self.with(0, vec![0; self.bytes()])
    }

    fn with(&self, count: u64, cells: Vec<u8>) -> CountMin {
        CountMin {
            params: *self,
            count,
            cells,
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

/// A change of a count that a counter cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// A counter would become too large.
    Overflow,
    /// A counter would become negative.
    Underflow,
}

/// A count-min sketch, see the module.
#[derive(Clone)]
pub struct CountMin {
    params: CountMinParams,
    count: u64,
    /// The counters, each in little-endian order.
    cells: Vec<u8>,
    cut: SketchCut,
}

impl CountMin {
    /// Returns the place of an element's counter in each row.
    fn places<'e>(&self, element: &'e [u8]) -> impl Iterator<Item = usize> + use<'e> {
        let width = self.params.width;
        (0..self.params.depth).map(move |row| {
            let hash = murmur32(element, row as u32);
            (row * width + u64::from(hash) % width) as usize
        })
    }

    fn range(&self, place: usize) -> Range<usize> {
        let bytes = self.params.cell.bytes();
        place * bytes..(place + 1) * bytes
    }

    fn counter(&self, place: usize) -> u64 {
        let mut number = [0; 8];
        let range = self.range(place);
        number[..range.len()].copy_from_slice(&self.cells[range]);
        u64::from_le_bytes(number)
    }

    fn set_counter(&mut self, place: usize, number: u64) {
        let range = self.range(place);
        let bytes = range.len();
        self.cells[range].copy_from_slice(&number.to_le_bytes()[..bytes]);
    }

    fn counters(&self) -> impl Iterator<Item = u64> {
        let count = self.cells.len() / self.params.cell.bytes();
        (0..count).map(|place| self.counter(place))
    }

    /// Adds `by` to an element's count, or subtracts from it. Returns the new estimate. If a counter cannot hold its
    /// new count, nothing changes.
    pub fn add(&mut self, element: &[u8], by: i64) -> Result<u64, OutOfRange> {
        let limit = self.params.cell.count_max();
        let changed = |counter: u64| match counter.checked_add_signed(by) {
            Some(changed) if changed <= limit => Ok(changed),
            None if by < 0 => Err(OutOfRange::Underflow),
            _ => Err(OutOfRange::Overflow),
        };
        let mut lowest = u64::MAX;
        for place in self.places(element) {
            lowest = lowest.min(changed(self.counter(place))?);
        }
        for place in self.places(element) {
            let range = self.range(place);
            self.touch(range.start as u64..range.end as u64);
            if let Ok(changed) = changed(self.counter(place)) {
                self.set_counter(place, changed);
            }
        }
        let count = self.count.saturating_add_signed(by);
        self.count = count.min(i64::MAX.cast_unsigned());
        Ok(lowest)
    }

    /// Returns an estimate of an element's count, which is never too low if no count was subtracted that was not added
    /// before.
    pub fn estimate(&self, element: &[u8]) -> u64 {
        let counters = self.places(element).map(|place| self.counter(place));
        counters.min().unwrap_or(0)
    }

    /// Returns the number of counters per row.
    pub fn width(&self) -> u64 {
        self.params.width
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> u64 {
        self.params.depth
    }

    /// Returns the size of a counter.
    pub fn cell_size(&self) -> CellSize {
        self.params.cell
    }

    /// Returns the sum of all counts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Replaces the counters by the sum of sketches of the same size. Returns false, without a change, if a counter
    /// of the sum is out of range.
    pub fn replace(&mut self, sum: &Sum) -> bool {
        let limit = self.params.cell.count_max();
        let is_within =
            |counter: &i64| u64::try_from(*counter).is_ok_and(|counter| counter <= limit);
        let fits = sum.params == self.params && sum.counters.iter().all(is_within);
        let Some(count) = u64::try_from(sum.count).ok().filter(|_| fits) else {
            return false;
        };
        self.touch(0..self.cells.len() as u64);
        for (place, counter) in sum.counters.iter().enumerate() {
            self.set_counter(place, counter.cast_unsigned());
        }
        self.count = count;
        true
    }
}

/// The sum of several sketches.
pub struct Sum {
    params: CountMinParams,
    counters: Vec<i64>,
    count: i64,
}

impl Sum {
    /// Creates an empty sum, for sketches of the size of this one.
    pub fn new(like: &CountMin) -> Sum {
        Sum {
            params: like.params,
            counters: vec![0; like.cells.len() / like.params.cell.bytes()],
            count: 0,
        }
    }

    /// Adds a sketch multiplied by `weight`. Returns false on overflow, or if its size differs.
    pub fn add(&mut self, sketch: &CountMin, weight: i64) -> bool {
        if sketch.params != self.params {
            return false;
        }
        let weighted = |number: u64| i64::try_from(number).ok()?.checked_mul(weight);
        for (sum, counter) in self.counters.iter_mut().zip(sketch.counters()) {
            match weighted(counter).and_then(|weighted| sum.checked_add(weighted)) {
                Some(added) => *sum = added,
                None => return false,
            }
        }
        match weighted(sketch.count).and_then(|weighted| self.count.checked_add(weighted)) {
            Some(added) => self.count = added,
            None => return false,
        }
        true
    }
}

impl SketchCodec for CountMin {
    fn head(&self) -> Vec<u8> {
        let CountMinParams { width, depth, cell } = self.params;
        let numbers = [width, depth, self.count];
        let mut head: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        // Sketches of the default size stay readable for versions that know no other.
        if cell != CellSize::default() {
            head.push(cell.bytes() as u8);
        }
        head
    }

    fn data_bytes(&self) -> u64 {
        self.cells.len() as u64
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        self.cells[bytes.start as usize..bytes.end as usize].to_vec()
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<CountMin> {
        let mut reader = SketchDecoder { rest: head };
        let (width, depth, count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let cell = match reader.rest {
            [] => CellSize::default(),
            [bytes] => CellSize::of(u64::from(*bytes))?,
            _ => return None,
        };
        let params = CountMinParams::new(width, depth, cell)?;
        let count = count.min(i64::MAX.cast_unsigned());
        let sketch = params.with(count, data.to_vec());
        let is_good = params.bytes() == data.len()
            && (cell != CellSize::Eight
                || sketch.counters().all(|counter| counter <= cell.count_max()));
        is_good.then_some(sketch)
    }
}

#[cfg(test)]
mod tests;
