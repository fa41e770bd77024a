//! The two hashes of a key: a keyed one for tables, and the public one that determines a cluster slot.
//!
//! The two hashes are independent on purpose. The slot is CRC16, for which anybody can construct colliding keys; the
//! table's hash is SipHash-1-3 under a secret key, because keys come from untrusted clients and a flood of equal
//! prefixes would split one segment of an extendible table repeatedly. As all keys of a shard share some bits of
//! their slot, tables must never reuse the slot's bits.

use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::hex;

/// The secret key of a table's hash function. Two tables with equal seeds hash alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed {
    /// First half of the key.
    pub k0: u64,
    /// Second half of the key.
    pub k1: u64,
}

impl HashSeed {
    /// Returns SipHash-1-3 of `bytes`.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.k0, self.k1).hash(bytes)
    }
}

/// Returns the 64-bit XXH3 of `bytes`, which is the same in every process.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Returns the 64-bit XXH3 of `bytes` in sixteen hexadecimal digits: the digest of a value as clients know it.
#[must_use]
pub fn digest_hex(bytes: &[u8]) -> [u8; 16] {
    hex::array(&digest(bytes).to_be_bytes())
}

/// Returns the 128-bit XXH3 of the concatenated parts.
#[must_use]
pub fn digest_128(parts: &[&[u8]]) -> u128 {
    let mut state = Xxh3::new();
    parts.iter().for_each(|part| state.update(part));
    state.digest128()
}

/// Number of hash slots of a cluster.
pub const SLOTS: u16 = 16384;

/// Returns the cluster slot of `key`: CRC16 of its hash tag, modulo 16384.
///
/// The tag is the text between the first `{` and the next `}`, if that is not empty; without such a tag the whole key
/// is hashed.
#[inline]
#[must_use]
pub fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) & (SLOTS - 1)
}

/// Returns the part of `key` that determines its slot.
#[inline]
#[must_use]
pub fn tag(key: &[u8]) -> &[u8] {
    if !may_have_open_brace(key) {
        return key;
    }
    let Some(open) = memchr::memchr(b'{', key) else {
        return key;
    };
    let inside = &key[open + 1..];
    match memchr::memchr(b'}', inside) {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// In keys longer than this, the library searches for the brace; its startup takes longer than examining a short key.
const SHORT_BYTES_MAX: usize = 64;

/// False if a key certainly contains no `{`.
#[inline]
fn may_have_open_brace(key: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let last = match key.last_chunk::<8>() {
        _ if key.len() > SHORT_BYTES_MAX => return true,
        Some(last) => last,
        None => return key.contains(&b'{'),
    };
    // Examines eight bytes at a time: the highest bit of each byte tells whether it is the brace or a greater byte.
    let braces = |word: &[u8; 8]| {
        let others = u64::from_le_bytes(*word) ^ (u64::from(b'{') * EACH);
        others.wrapping_sub(EACH) & !others
    };
    let (words, _) = key.as_chunks::<8>();
    let found = words
        .iter()
        .fold(braces(last), |found, word| found | braces(word));
    found & (0x80 * EACH) != 0
}

const POLYNOMIAL: u16 = 0x1021;

/// `TABLES[k][b]` is the checksum of byte `b` followed by `k` zero bytes.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut zeros = 0;
        while zeros < 8 {
            let mut bit = 0;
            while bit < 8 {
                let carry = crc & 0x8000 != 0;
                crc <<= 1;
                if carry {
                    crc ^= POLYNOMIAL;
                }
                bit += 1;
            }
            tables[zeros][byte] = crc;
            zeros += 1;
        }
        byte += 1;
    }
    tables
}

/// Computes CRC-16/XMODEM, eight bytes per step: byte by byte it would cost several times the table's hash.
#[inline]
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    let at = |zeros: usize, byte: u8| TABLES[zeros][usize::from(byte)];
    let mut crc = 0_u16;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let [high, low] = crc.to_be_bytes();
        crc = at(7, chunk[0] ^ high)
            ^ at(6, chunk[1] ^ low)
            ^ at(5, chunk[2])
            ^ at(4, chunk[3])
            ^ at(3, chunk[4])
            ^ at(2, chunk[5])
            ^ at(1, chunk[6])
            ^ at(0, chunk[7]);
    }
    for &byte in rest {
        crc = (crc << 8) ^ at(0, (crc >> 8) as u8 ^ byte);
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc16_bit_by_bit(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                (crc << 1) ^ if crc & 0x8000 != 0 { POLYNOMIAL } else { 0 }
            })
        })
    }

    #[test]
    fn the_checksum_is_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
        let bytes: Vec<u8> = (0..=255_u8).map(|byte| byte.wrapping_mul(167)).collect();
        for length in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..length]), crc16_bit_by_bit(&bytes[..length]));
        }
    }

    #[test]
    fn slots_are_those_that_a_cluster_computes() {
        // Expected values are replies of CLUSTER KEYSLOT.
        for (key, expect) in [
            (&b"foo"[..], 12182),
            (b"bar", 5061),
            (b"{user1000}.following", 3443),
            (b"user1000", 3443),
            (b"", 0),
            (b"somekey", 11058),
        ] {
            assert_eq!(slot(key), expect, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn only_the_first_non_empty_tag_counts() {
        assert_eq!(tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(tag(b"foo{bar"), b"foo{bar");
        assert_eq!(tag(b"foo}{bar"), b"foo}{bar");
    }

    #[test]
    fn a_brace_is_found_wherever_it_stands() {
        for length in 1..140 {
            for open in 0..length {
                let mut key: Vec<u8> = (0..length).map(|at| b"z|\xfbw~}\x00"[at % 7]).collect();
                assert_eq!(tag(&key), key, "no tag in {length}");
                key[open] = b'{';
                let tail = &key[open + 1..];
                let close = tail.iter().position(|byte| *byte == b'}');
                let expect = match close {
                    None | Some(0) => &key,
                    Some(close) => &tail[..close],
                };
                assert_eq!(tag(&key), expect, "at {open} of {length}");
            }
        }
    }

    #[test]
    fn digests_are_those_that_redis_8_4_computes() {
        for (value, digest) in [
            (&b"hello"[..], b"9555e8555c62dcfd"),
            (b"", b"2d06800538d394c2"),
            (b"123", b"404a763b3f4c8c9a"),
            (b"v8", b"0cc76dbb41381419"),
            (b"Hello world", b"b6acb9d84a38ff74"),
        ] {
            assert_eq!(&digest_hex(value), digest);
        }
    }

    #[test]
    fn the_table_hash_is_keyed() {
        let one = HashSeed { k0: 1, k1: 2 };
        let two = HashSeed { k0: 1, k1: 3 };
        assert_eq!(one.hash(b"key"), one.hash(b"key"));
        assert_ne!(one.hash(b"key"), two.hash(b"key"));
    }
}
