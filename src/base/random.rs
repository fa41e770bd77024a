//! Random numbers from a seed that is handed in, so that an engine replays exactly.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// A small fast generator; not for secrets.
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// A generator that always yields the same for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(SmallRng::seed_from_u64(seed))
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, evenly; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.0.random_range(0..bound)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_yields_the_same_numbers_within_bounds() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for bound in 1..100 {
            let number = one.below(bound);
            assert_eq!(number, two.below(bound));
            assert!(number < bound);
        }
        assert_eq!(one.below(0), 0);
    }
}
