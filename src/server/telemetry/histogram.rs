//! Percentiles and rows from the commands' latency buckets, each twice as wide as the one before.
//!
//! Bucket `i` holds durations below 2^(i + 10) ns that are not in a smaller bucket; the last one holds all the
//! rest. Percentiles are interpolated inside a bucket, as in Prometheus, so they are within a factor of two of the
//! truth and usually far closer.

use super::counters::BUCKETS;

/// Bucket counts of one command.
pub type Buckets = [u64; BUCKETS];

/// Returns a bucket's exclusive upper bound.
pub const fn upper_ns(bucket: usize) -> u64 {
    1 << (bucket + 10)
}

/// Returns the label in whole microseconds by which LATENCY HISTOGRAM names a bucket.
///
/// Redis's histogram keeps seven bits of each value and names a bucket by the largest value indistinguishable from
/// its bound: 33 for 32.768. Tools look for those numbers.
pub const fn label_us(bucket: usize) -> u64 {
    let bound = upper_ns(bucket);
    (bound + bound / 128 - 1) / 1_000
}

/// Returns the latency in ns that `percent` of all runs stayed below; zero when nothing ran.
pub fn percentile_ns(buckets: &Buckets, percent: f64) -> f64 {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let rank = (percent / 100.0 * total as f64).max(f64::MIN_POSITIVE);
    let mut before = 0;
    for (index, &count) in buckets.iter().enumerate() {
        if count > 0 && (before + count) as f64 >= rank {
            let lower = if index == 0 { 0 } else { upper_ns(index - 1) };
            let share = (rank - before as f64) / count as f64;
            return lower as f64 + share * (upper_ns(index) - lower) as f64;
        }
        before += count;
    }
    upper_ns(BUCKETS - 1) as f64
}

/// Returns the rows of LATENCY HISTOGRAM: bounds in µs with the runs below them, only for non-empty buckets.
pub fn cumulative_us(buckets: &Buckets) -> Vec<(u64, u64)> {
    let mut below = 0;
    let mut rows = Vec::new();
    for (index, &count) in buckets.iter().enumerate() {
        below += count;
        if count > 0 {
            rows.push((label_us(index), below));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::counters::CommandCounters;

    fn buckets(durations_ns: &[u64]) -> Buckets {
        let counters = CommandCounters::default();
        for &duration_ns in durations_ns {
            counters.ran(duration_ns, false);
        }
        std::array::from_fn(|index| counters.histogram().expect("something ran")[index].get())
    }

    #[test]
    fn a_duration_lies_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for duration_ns in [0, 1, 1_023, 1_024, 1_500, 2_047, 2_048, 999_999, 1 << 35] {
            let counts = buckets(&[duration_ns]);
            let index = counts
                .iter()
                .position(|count| *count == 1)
                .expect("it was counted");
            assert!(duration_ns < upper_ns(index), "{duration_ns} in {index}");
            assert!(
                index == 0 || duration_ns >= upper_ns(index - 1),
                "{duration_ns} in {index}"
            );
        }
    }

    #[test]
    fn percentiles_lie_in_the_bucket_of_the_value_they_stand_for() {
        let counts = buckets(
            &[1_500; 99]
                .into_iter()
                .chain([3_000_000])
                .collect::<Vec<_>>(),
        );
        for percent in [0.0, 1.0, 50.0, 99.0] {
            let value = percentile_ns(&counts, percent);
            assert!(
                (1_024.0..=2_048.0).contains(&value),
                "p{percent} is {value}"
            );
        }
        let worst = percentile_ns(&counts, 100.0);
        assert!((2_097_152.0..=4_194_304.0).contains(&worst), "{worst}");
        assert!(percentile_ns(&counts, 10.0) < percentile_ns(&counts, 90.0));
        assert_eq!(percentile_ns(&[0; BUCKETS], 50.0), 0.0);
    }

    #[test]
    fn cumulative_rows_use_the_bounds_of_redis() {
        let counts = buckets(&[100, 1_500, 1_600, 20_000, 40_000, 100_000]);
        assert_eq!(
            cumulative_us(&counts),
            [(1, 1), (2, 3), (33, 4), (66, 5), (132, 6)]
        );
    }
}
