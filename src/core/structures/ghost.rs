//! A bounded memory of past hashes: eight bits for each; the oldest is forgotten first.
//!
//! ```text
//! bucket   one word: eight fingerprints, the newest in the lowest byte, 0 for none
//! hash     the high half selects the bucket, in order; the low half gives the fingerprint, 1 to 255
//! ```
//!
//! False positives are one in thirty hashes. Buckets are in hash order, so that the memory can be resized: a bucket
//! then starts with the old contents at its position.

use super::prefetch;

/// A memory of hashes, see the module.
#[derive(Debug, Default)]
pub struct Ghost {
    buckets: Box<[u64]>,
}

/// Number of fingerprints in a bucket.
const WIDTH: usize = 8;

const HALF: u64 = 0xffff_ffff;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

impl Ghost {
    /// Returns the maximum number of hashes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buckets.len() * WIDTH
    }

    /// Changes the capacity to about `capacity` hashes.
    pub fn resize(&mut self, capacity: usize) {
        let count = capacity.div_ceil(WIDTH).max(1);
        let old = std::mem::take(&mut self.buckets);
        self.buckets = match old.len() {
            0 => vec![0; count].into(),
            len => (0..count)
                .map(|at| {
                    // A bucket that spans two old buckets takes the newer half of each.
                    let first = old[at * len / count];
                    let last = (at + 1) * len - 1;
                    match last / count {
                        last if last == at * len / count => first,
                        last => first & HALF | old[last] << 32,
                    }
                })
                .collect(),
        };
    }

    fn place(&self, hash: u64) -> Option<(usize, u64)> {
        let at = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        let fingerprint = (hash & 0xffff_ffff) % 255 + 1;
        (!self.buckets.is_empty()).then_some((at as usize, fingerprint))
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some((at, _)) = self.place(hash) {
            prefetch::line_of(&self.buckets[at]);
        }
    }

    /// Adds a hash to the memory.
    pub fn note(&mut self, hash: u64) {
        if let Some((at, fingerprint)) = self.place(hash) {
            self.buckets[at] = self.buckets[at] << 8 | fingerprint;
        }
    }

    /// Removes a hash. Returns whether it was in the memory (or another one with the same fingerprint).
    pub fn take(&mut self, hash: u64) -> bool {
        let Some((at, fingerprint)) = self.place(hash) else {
            return false;
        };
        let word = self.buckets[at];
        let apart = word ^ (fingerprint * LOW_BITS);
        // The lowest zero byte is marked correctly; those above it may be wrong.
        let zeroes = apart.wrapping_sub(LOW_BITS) & !apart & (LOW_BITS << 7);
        if zeroes == 0 {
            return false;
        }
        let byte = zeroes.trailing_zeros() & !7;
        let below = (1_u64 << byte) - 1;
        self.buckets[at] = word & below | (word >> 8) & !below;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 17
    }

    #[test]
    fn what_was_noted_of_late_is_known_and_what_was_not_seldom() {
        let mut ghost = Ghost::default();
        assert!(!ghost.take(hash(1)) && ghost.capacity() == 0);
        ghost.note(hash(1));
        ghost.resize(4096);
        assert_eq!(ghost.capacity(), 4096);
        for number in 0..2_000 {
            ghost.note(hash(number));
        }
        let known = (1_000..2_000).filter(|&number| ghost.take(hash(number)));
        assert!(known.count() > 980);
        let known = (1_000..2_000).filter(|&number| ghost.take(hash(number)));
        assert!(known.count() < 80, "each is known once");
        let known = (50_000..60_000).filter(|&number| ghost.take(hash(number)));
        assert!(known.count() < 400);
    }

    #[test]
    fn the_oldest_in_a_bucket_goes_first() {
        let mut ghost = Ghost::default();
        ghost.resize(8);
        for fingerprint in 0..9 {
            ghost.note(fingerprint);
        }
        assert!(!ghost.take(0));
        assert!(ghost.take(4) && !ghost.take(4));
        for fingerprint in [8, 1, 7, 2] {
            assert!(ghost.take(fingerprint), "{fingerprint}");
        }
    }

    #[test]
    fn what_is_known_survives_another_size() {
        let mut ghost = Ghost::default();
        ghost.resize(2048);
        for number in 0..1_000 {
            ghost.note(hash(number));
        }
        for capacity in [2600, 2048] {
            ghost.resize(capacity);
        }
        let known = (0..1_000).filter(|&number| ghost.take(hash(number)));
        let count = known.count();
        assert!(count > 600, "{count}");
    }
}
