//! Estimated recent use counts of the server's hottest keys, from samples. Replaced from time to time by the
//! sampler, and read by the shards that own the keys.

use arc_swap::ArcSwap;

/// Estimated uses of a few keys, by the hash of the key. Keys not listed here are used less, or were not sampled.
#[derive(Debug, Default)]
pub struct HotCounts(ArcSwap<Vec<(u64, u64)>>);

impl HotCounts {
    /// Replaces all counts; pairs of a key's hash and its uses, in any order.
    pub fn replace(&self, mut counts: Vec<(u64, u64)>) {
        counts.sort_unstable();
        self.0.store(counts.into());
    }

    /// Returns the uses of the key with this hash; 0 if unknown.
    pub fn of(&self, hash: u64) -> u64 {
        let counts = self.0.load();
        let found = counts.binary_search_by_key(&hash, |(known, _)| *known);
        found.map_or(0, |at| counts[at].1)
    }
}

/// Converts a number of uses to the scale from 0 to 255 of Redis: a key begins at 5, and each further step takes
/// `factor` (`lfu-log-factor`) uses more than the step before it. Redis steps at random; this is the average
/// result.
///
/// ```text
/// factor 10   uses 100 → 10   1,000 → 19   100,000 → 146   1,000,000 → 255
/// ```
pub fn on_logarithmic_scale(uses: u64, factor: u32) -> u8 {
    let (mut left, mut step, mut reached) = (uses, 1, NEW_KEY);
    while left >= step && reached < u8::MAX {
        left -= step;
        step += u64::from(factor);
        reached += 1;
    }
    reached
}

/// Start of the scale: the value of a key that was written and not used since.
pub const NEW_KEY: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_one_that_redis_documents() {
        // Redis's documentation has a table of the counter after a number of hits, as measured; these are its values
        // for factor 10.
        for (uses, about) in [(100, 10), (1_000, 18), (100_000, 142), (1_000_000, 255)] {
            let reached = i32::from(on_logarithmic_scale(uses, 10));
            assert!((reached - about).abs() <= 4, "{uses}: {reached}");
        }
        for (uses, reached) in [
            (0, 5),
            (1, 6),
            (2, 7),
            (249, 254),
            (250, 255),
            (u64::MAX, 255),
        ] {
            assert_eq!(on_logarithmic_scale(uses, 0), reached, "{uses}");
        }
        assert_eq!(on_logarithmic_scale(1, 10), 6);
        assert_eq!(on_logarithmic_scale(u64::MAX, u32::MAX), 255);
    }

    #[test]
    fn counts_are_found_by_the_hash_of_the_key() {
        let counts = HotCounts::default();
        assert_eq!(counts.of(1), 0);
        counts.replace(vec![(9, 90), (1, 10), (5, 50)]);
        assert_eq!(
            [1, 5, 9, 2, u64::MAX].map(|hash| counts.of(hash)),
            [10, 50, 90, 0, 0]
        );
        counts.replace(vec![]);
        assert_eq!(counts.of(1), 0);
    }
}
