//! The frame around a value that DUMP hands out and RESTORE takes: behind the value its version and a checksum.
//!
//! ```text
//! value … | version u16 | CRC-64 of all before u64          little-endian
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use super::V12;
use crate::base::checksum::crc64;

const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;

/// Whether checksums are believed; only tests that make payloads by hand set it, through DEBUG.
static SKIPS_CHECKSUMS: AtomicBool = AtomicBool::new(false);

/// From now on checksums are believed, or not any more.
pub fn skip_checksums(skips: bool) {
    SKIPS_CHECKSUMS.store(skips, Ordering::Relaxed);
}

/// Puts the frame behind a value.
pub fn seal(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.reserve_exact(VERSION_BYTES + CHECKSUM_BYTES);
    value.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// The value in a frame; `None` if its version is of the future or its checksum is another.
pub fn open(payload: &[u8]) -> Option<&[u8]> {
    let (summed, checksum) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (value, version) = summed.split_last_chunk::<VERSION_BYTES>()?;
    let is_known = u16::from_le_bytes(*version) <= V12;
    let is_whole = || {
        crc64(summed) == u64::from_le_bytes(*checksum) || SKIPS_CHECKSUMS.load(Ordering::Relaxed)
    };
    (is_known && is_whole()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SET foo bar`, `DUMP foo` at redis-server 7.0.15.
    #[test]
    fn the_frame_is_that_of_redis() {
        let payload = b"\x00\x03bar\n\x00\xe6\xbeI`\xeef\xfd\x17";
        assert_eq!(open(payload), Some(&b"\x00\x03bar"[..]));
        assert_eq!(seal(b"\x00\x03bar".to_vec(), 10), payload);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let payload = seal(b"\x00\x03bar".to_vec(), 10);
        for at in 0..payload.len() {
            let mut bad = payload.clone();
            bad[at] ^= 0x20;
            assert_eq!(open(&bad), None, "byte {at}");
            assert_eq!(open(&payload[..at]), None, "cut at {at}");
        }
        assert_eq!(open(&seal(b"\x00\x03bar".to_vec(), 13)), None);
        assert!(open(&seal(b"\x00\x03bar".to_vec(), 1)).is_some());
    }
}
