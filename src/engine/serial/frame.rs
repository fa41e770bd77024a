//! The frame around a value in DUMP and RESTORE: the value is followed by its version and a checksum.
//!
//! ```text
//! value … | version u16 | CRC-64 of all before u64          little-endian
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use super::reader::DecodeContext;
use super::{REDIS_VERSION_MAX, V12, VALKEY_VERSIONS};
use basalt_core::base::checksum::crc64;

const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;

/// Whether checksums are ignored; set through DEBUG, only by tests that make payloads by hand.
static SKIPS_CHECKSUMS: AtomicBool = AtomicBool::new(false);

/// Sets whether checksums are ignored.
pub fn skip_checksums(skips: bool) {
    SKIPS_CHECKSUMS.store(skips, Ordering::Relaxed);
}

/// Appends the version and the checksum to a value.
pub fn seal(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.reserve_exact(VERSION_BYTES + CHECKSUM_BYTES);
    value.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// Returns the value in a frame and its origin; `None` if the version is unknown or the checksum is wrong.
pub fn open(payload: &[u8]) -> Option<(&[u8], DecodeContext)> {
    let (summed, checksum) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (value, version) = summed.split_last_chunk::<VERSION_BYTES>()?;
    let version = u16::from_le_bytes(*version);
    let is_valkey = VALKEY_VERSIONS.contains(&version);
    let is_known = version <= REDIS_VERSION_MAX || is_valkey;
    // Redis 8.10 logs imported hashes in this frame without a checksum.
    let may_lack_sum = version > V12 && !is_valkey;
    let expected = u64::from_le_bytes(*checksum);
    let is_whole = || {
        crc64(summed) == expected
            || expected == 0 && may_lack_sum
            || SKIPS_CHECKSUMS.load(Ordering::Relaxed)
    };
    let origin = DecodeContext {
        is_valkey,
        ..DecodeContext::default()
    };
    (is_known && is_whole()).then_some((value, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SET foo bar`, `DUMP foo` at redis-server 7.0.15.
    #[test]
    fn the_frame_is_that_of_redis() {
        let payload = b"\x00\x03bar\n\x00\xe6\xbeI`\xeef\xfd\x17";
        let (value, origin) = open(payload).expect("it is whole");
        assert_eq!((value, origin.is_valkey), (&b"\x00\x03bar"[..], false));
        assert_eq!(seal(b"\x00\x03bar".to_vec(), 10), payload);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let payload = seal(b"\x00\x03bar".to_vec(), 10);
        for at in 0..payload.len() {
            let mut bad = payload.clone();
            bad[at] ^= 0x20;
            assert!(open(&bad).is_none(), "byte {at}");
            assert!(open(&payload[..at]).is_none(), "cut at {at}");
        }
        for (version, is_valkey) in [(13, Some(false)), (16, Some(false)), (17, None), (79, None)]
            .into_iter()
            .chain([(80, Some(true)), (81, Some(true)), (82, None)])
        {
            let sealed = seal(b"\x00\x03bar".to_vec(), version);
            let opened = open(&sealed).map(|(_, origin)| origin.is_valkey);
            assert_eq!(opened, is_valkey, "{version}");
            // A missing checksum is accepted where Redis 8 wrote none.
            let end = sealed.len() - CHECKSUM_BYTES;
            let mut unsummed = sealed.clone();
            unsummed[end..].fill(0);
            assert_eq!(open(&unsummed).is_some(), (13..=16).contains(&version));
        }
        let mut unsummed = payload.clone();
        unsummed[payload.len() - CHECKSUM_BYTES..].fill(0);
        assert!(open(&unsummed).is_none());
        assert!(open(&seal(b"\x00\x03bar".to_vec(), 1)).is_some());
    }
}
