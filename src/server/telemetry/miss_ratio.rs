//! The miss-ratio curve of the whole server: what hit ratio the same look-ups would have with more memory, or less.
//!
//! Each shard keeps a curve of its own ([`reuse_distance`](basalt_core::structures::reuse_distance)), and its size here
//! is what its data takes now; a server with twice the memory has twice of it in each shard. Nothing is known before
//! something was looked up.

use std::sync::Arc;

use basalt_core::structures::reuse_distance::Estimate;
use basalt_engine::published::Published;

/// Sizes that are asked about, in percent of what the data takes now.
pub const PERCENT: [u64; 5] = [25, 50, 100, 200, 400];

/// Where 100 stands.
const PRESENT: usize = 2;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveFigures {
    /// Whether curves are kept.
    pub is_kept: bool,
    /// Bytes that the data takes now.
    pub memory_bytes: u64,
    /// Keys followed.
    pub samples: u64,
    /// Keys that these stand for, evicted ones included.
    pub stands_for: u64,
    /// Look-ups behind the figures; older ones count for less.
    pub reads: u64,
    /// The hit ratio over the same time.
    pub measured: Option<f64>,
    /// Hit ratios of an LRU cache of each of the sizes.
    pub lru: Option<[f64; PERCENT.len()]>,
    /// Hit ratios as they may be with the eviction at work, whose own hit ratio is the one that was measured. As long
    /// as hardly anything is missed for want of memory, smaller sizes have the hit ratios of LRU.
    pub corrected: Option<[f64; PERCENT.len()]>,
    /// Part of the look-ups that no cache would answer: of keys that were never there.
    pub unseen: Option<f64>,
}

/// What of a shard's bytes keys and values take: some is there before the first key, which counts only in caches that
/// are small.
pub fn bytes_of_keys(used: u64) -> u64 {
    const SHARD_BYTES: u64 = 4 * 1024;
    used.saturating_sub(SHARD_BYTES).max(used / 2)
}

impl CurveFigures {
    /// The curves of all shards together.
    pub fn gather(all_published: &[Arc<Published>]) -> CurveFigures {
        let mut sum = Estimate::default();
        let mut figures = CurveFigures::default();
        for published in all_published {
            let used = published.used_bytes().max(0).unsigned_abs();
            figures.memory_bytes += used;
            figures.is_kept |= published.keeps_curve();
            let bytes = bytes_of_keys(used);
            sum.add(
                &published
                    .curve
                    .estimate(PERCENT.map(|percent| bytes.saturating_mul(percent) / 100)),
            );
        }
        figures.samples = sum.samples as u64;
        figures.stands_for = sum.stands_for as u64;
        figures.reads = sum.reads as u64;
        figures.measured = sum.measured();
        figures.lru = sum.lru();
        figures.corrected = sum.corrected(PRESENT);
        figures.unseen = figures.lru.map(|_| sum.unseen / sum.reads);
        figures
    }
}
