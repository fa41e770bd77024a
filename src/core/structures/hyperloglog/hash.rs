//! The hash of an element: MurmurHash64A of its bytes, with the seed that Redis uses.

use super::INDEX_BITS;
use crate::structures::murmur::murmur64a;

const SEED: u64 = 0xadc8_3b19;

/// Returns the register of an element and its value for that register: 1 to 51.
#[inline]
pub fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, SEED);
    let index = hash & ((1 << INDEX_BITS) - 1);
    // A one bit after the last bit ends every run of zeros.
    let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
    (index as usize, rest.trailing_zeros() as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are the output of PFDEBUG DECODE of redis-server for sketches with one element.
    #[test]
    fn elements_go_to_the_registers_that_redis_gives_them() {
        assert_eq!(register_of(b"a"), (12_711, 2));
    }
}
