//! Austin Appleby's MurmurHash2, in both widths, required for sketches that other servers read.
//!
//! The hashes are not keyed: a client that chooses the elements can make them collide.

/// MurmurHash64A. Words are little-endian on every machine.
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
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

/// MurmurHash2 for 32 bits.
pub fn murmur32(bytes: &[u8], seed: u32) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = seed ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> 24;
        hash = hash.wrapping_mul(FACTOR) ^ word.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_length_up_to_several_words_hashes_differently() {
        let bytes = [7; 40];
        let lengths = 0..=bytes.len();
        let wide: HashSet<u64> = lengths
            .clone()
            .map(|len| murmur64a(&bytes[..len], 1))
            .collect();
        let narrow: HashSet<u32> = lengths.map(|len| murmur32(&bytes[..len], 1)).collect();
        assert_eq!((wide.len(), narrow.len()), (41, 41));
    }

    /// Expected values are published ones of the reference implementation.
    #[test]
    fn hashes_are_those_of_the_reference() {
        assert_eq!(murmur64a(b"", 0), 0);
        assert_eq!(murmur32(b"", 0), 0);
        assert_eq!(murmur32(b"", 1), 0x5bd1_5e36);
    }
}
