//! The random number generator of `math.random`: POSIX rand48, so that a seed gives the same numbers as in
//! Redis.

/// The 48-bit state of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rand48(u64);

const MULTIPLIER: u64 = 0x5DEE_CE66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

/// Low half of the state after seeding, as specified by POSIX.
const LOW: u64 = 0x330E;

impl Default for Rand48 {
    fn default() -> Rand48 {
        Rand48(basalt_core::base::random::Random::from_system().next_u64() & MASK)
    }
}

impl Rand48 {
    /// The largest result of [`Rand48::next`]. A result modulo `MAX`, divided by `MAX`, is always less than 1.
    pub(super) const MAX: i32 = i32::MAX;

    pub(super) fn seeded(seed: i32) -> Rand48 {
        Rand48((u64::from(seed as u32) << 16) | LOW)
    }

    /// Returns the next number, from 0 to 2^31 - 1.
    pub(super) fn next(&mut self) -> i32 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        (self.0 >> 17) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_posix() {
        let mut random = Rand48::seeded(0);
        let numbers: Vec<i32> = (0..4).map(|_| random.next()).collect();
        assert_eq!(
            numbers,
            [366_850_414, 1_610_402_240, 206_956_554, 1_869_309_841]
        );
    }
}
