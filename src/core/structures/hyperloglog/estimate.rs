//! The cardinality estimate from registers, after Otmar Ertl, "New cardinality estimation algorithms for
//! HyperLogLog sketches" (arXiv:1702.01284), whose improved raw estimator needs no table of corrections.
//!
//! The result must equal Redis's exactly, so the sums are computed in the order of the paper's algorithm, in
//! doubles. The terms of this file: `m` registers; a histogram of their values; sigma corrects for registers at
//! zero, tau for those at the highest value.

use super::{REGISTERS, VALUE_MAX};

/// Values beyond [`VALUE_MAX`] occur in a corrupt dense sketch; they are counted and not used.
const VALUES: usize = 64;

/// The number of registers with each value.
pub(super) struct Histogram {
    /// Neighboring registers are counted in different rows, so that increments of equal values do not wait for each
    /// other.
    rows: [[u32; VALUES]; ROWS],
    /// Number of registers in whole runs; a corrupt sparse sketch may declare more than the number of registers.
    runs: [u64; VALUES],
}

const ROWS: usize = 4;

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram {
            rows: [[0; VALUES]; ROWS],
            runs: [0; VALUES],
        }
    }

    /// Counts registers, given as one byte each.
    #[inline]
    pub(super) fn add_all(&mut self, values: &[u8]) {
        let (groups, rest) = values.as_chunks::<ROWS>();
        debug_assert!(rest.is_empty(), "registers come in groups");
        for group in groups {
            for (row, value) in self.rows.iter_mut().zip(group) {
                row[usize::from(*value) % VALUES] += 1;
            }
        }
    }

    /// Counts a run of registers.
    #[inline]
    pub(super) fn add_run(&mut self, value: u8, len: usize) {
        self.runs[usize::from(value) % VALUES] += len as u64;
    }

    fn count(&self, value: u8) -> f64 {
        let at = usize::from(value) % VALUES;
        let singles: u64 = self.rows.iter().map(|row| u64::from(row[at])).sum();
        (singles + self.runs[at]) as f64
    }

    /// Returns the estimate for a whole sketch.
    pub(super) fn cardinality(&self) -> u64 {
        /// 0.5 / ln 2.
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let m = REGISTERS as f64;
        let mut z = m * tau((m - self.count(VALUE_MAX)) / m);
        for value in (1..VALUE_MAX).rev() {
            z = (z + self.count(value)) * 0.5;
        }
        z += m * sigma(self.count(0) / m);
        let estimate = (ALPHA * m * m / z).round();
        if estimate.is_finite() {
            estimate as u64
        } else {
            // Only a corrupt sketch gives infinity; this is the result of the C library on x86.
            1 << 63
        }
    }
}

fn sigma(x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut weight, mut sum) = (x, 1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before || !sum.is_finite() {
            return sum;
        }
    }
}

fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut x, mut weight, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before || !sum.is_finite() {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_seen_counts_as_zero() {
        let mut counts = Histogram::new();
        counts.add_run(0, REGISTERS);
        assert_eq!(counts.cardinality(), 0);
    }

    #[test]
    fn whatever_the_registers_hold_the_estimate_ends() {
        for value in 0..VALUES as u8 {
            for len in [0, 1, REGISTERS - 1, REGISTERS, 1 << 40] {
                let mut counts = Histogram::new();
                counts.add_run(value, len);
                counts.add_run(0, REGISTERS.saturating_sub(len));
                let _ = counts.cardinality();
            }
        }
    }
}
