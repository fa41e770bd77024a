//! Randomness: a small fast generator for choices whose outcome clients gain nothing by predicting, and the system's
//! generator for secrets.
//!
//! Engines receive a [`Random`] with a seed and are thus deterministic. Only [`Random::from_system`] and
//! [`fill_from_system`] query the system, once each.

use rand::rngs::{OsRng, SmallRng};
use rand::{Rng, RngCore, SeedableRng, TryRngCore};

use super::hex;

/// A seeded generator. Not for secrets: its output reveals its state.
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// Creates a generator; equal seeds give equal sequences, within one version of this program.
    pub fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// Creates a generator seeded by the system.
    pub fn from_system() -> Self {
        let mut seed = [0; 8];
        fill_from_system(&mut seed);
        Self::new(u64::from_ne_bytes(seed))
    }

    /// Creates an independent generator, such as for another shard.
    pub fn fork(&mut self) -> Self {
        Self(SmallRng::from_rng(&mut self.0))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniformly random number below `bound`; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.0.random_range(0..bound)
        }
    }

    /// Returns a uniformly random index into something of `len` elements; 0 when there are none.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a number from 0 up to but not including 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// Puts the elements in random order.
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            let other = self.index(last + 1);
            elements.swap(last, other);
        }
    }
}

/// Fills `bytes` from the system's generator, fit for keys, seeds and passwords.
///
/// # Panics
/// Panics if the system cannot provide randomness: nothing that follows would be safe.
pub fn fill_from_system(bytes: &mut [u8]) {
    OsRng
        .try_fill_bytes(bytes)
        .expect("the system gives random bytes");
}

/// Returns `count` hexadecimal digits from the system's generator: run ids, replication ids, generated passwords.
///
/// # Panics
/// Panics if the system cannot provide randomness.
pub fn hex_from_system(count: usize) -> String {
    let mut bytes = vec![0; count.div_ceil(2)];
    fill_from_system(&mut bytes);
    let mut digits = hex::text(&bytes);
    digits.truncate(count);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_sequence() {
        let sequence = |seed| {
            let mut random = Random::new(seed);
            [
                random.next_u64(),
                random.next_u64(),
                random.fork().next_u64(),
            ]
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
    }

    #[test]
    fn all_numbers_below_a_bound_occur_about_equally() {
        let mut random = Random::new(7);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[random.index(10)] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(
            (random.below(1), random.below(0), random.index(0)),
            (0, 0, 0)
        );
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }

    #[test]
    fn shuffling_keeps_all_elements_and_moves_them() {
        let mut elements: Vec<usize> = (0..100).collect();
        Random::new(3).shuffle(&mut elements);
        assert!(
            elements
                .iter()
                .enumerate()
                .filter(|(index, element)| index == *element)
                .count()
                < 10
        );
        elements.sort_unstable();
        assert!(elements.into_iter().eq(0..100));
    }

    #[test]
    fn the_system_gives_hexadecimal_digits() {
        for count in [0, 1, 39, 40] {
            let id = hex_from_system(count);
            assert_eq!(id.len(), count);
            let is_digit = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
            assert!(id.bytes().all(is_digit), "{id}");
        }
        assert_ne!(hex_from_system(40), hex_from_system(40));
        assert_ne!(
            Random::from_system().next_u64(),
            Random::from_system().next_u64()
        );
    }
}
