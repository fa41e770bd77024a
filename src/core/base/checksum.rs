//! CRC-64 as Redis computes it (polynomial of Jones, reflected, no inversion): used at the end of an RDB file and
//! of the payload of DUMP.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the checksum of `bytes`.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Redis, bytes)
}

/// Returns the checksum of some data followed by `bytes`, given the checksum `crc` of that data.
pub fn update(crc: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Redis, crc);
    digest.update(bytes);
    digest.finalize()
}

/// An incremental checksum.
#[derive(Clone, Debug)]
pub struct Crc64(Digest);

impl Crc64 {
    /// Creates the checksum of no bytes, which is 0.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Redis))
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Crc64 {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes bit by bit, from the definition.
    fn crc64_slowly(bytes: &[u8]) -> u64 {
        const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9;
        bytes.iter().fold(0, |crc: u64, byte| {
            (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
                crc >> 1
                    ^ if crc & 1 == 1 {
                        POLYNOMIAL.reverse_bits()
                    } else {
                        0
                    }
            })
        })
    }

    #[test]
    fn the_check_value_is_that_of_redis() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(b""), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn pieces_give_the_checksum_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            cut: prop::sample::Index,
        ) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut crc = Crc64::new();
            crc.update(first);
            crc.update(second);
            prop_assert_eq!(crc.value(), crc64_slowly(&bytes));
            prop_assert_eq!(update(crc64(first), second), crc64_slowly(&bytes));
            prop_assert_eq!(crc64(&bytes), crc64_slowly(&bytes));
        }
    }
}
