//! The miss-ratio curve ("curve") of the whole server: the hit ratio that the same lookups would have at other
//! memory sizes.
//!
//! Each shard keeps its own curve ([`reuse_distance`](basalt_core::structures::reuse_distance)), and its size here
//! is what its data currently takes; a server with twice the memory has twice as much in each shard. No figures
//! exist before the first lookups.

use std::sync::Arc;

use basalt_core::structures::reuse_distance::Estimate;
use basalt_engine::published::Published;

/// Sizes that are estimated, in percent of what the data currently takes.
pub const PERCENT: [u64; 5] = [25, 50, 100, 200, 400];

/// Index of 100 in [`PERCENT`].
const PRESENT: usize = 2;

/// Miss-ratio figures of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveFigures {
    /// Whether shards keep miss-ratio curves.
    pub is_kept: bool,
    /// Bytes that the data currently takes.
    pub memory_bytes: u64,
    /// Number of sampled keys.
    pub samples: u64,
    /// Keys that the samples stand for, evicted ones included.
    pub represented_keys: u64,
    /// Lookups from which the figures are estimated; older lookups count less.
    pub reads: u64,
    /// Measured hit ratio of the same lookups; `None` before the first lookup.
    pub measured: Option<f64>,
    /// Hit ratios of an LRU cache at each of the sizes.
    pub lru: Option<[f64; PERCENT.len()]>,
    /// Estimated hit ratios under the configured eviction policy, corrected by its measured hit ratio. As long as
    /// hardly any misses are due to eviction, smaller sizes have the hit ratios of LRU.
    pub corrected: Option<[f64; PERCENT.len()]>,
    /// Share of lookups that no cache would answer, because the key never existed.
    pub unseen: Option<f64>,
}

/// Returns the bytes that a shard's keys and values take. An empty shard already uses some bytes, which matters
/// only in small caches.
pub fn bytes_of_keys(used: u64) -> u64 {
    const SHARD_BYTES: u64 = 4 * 1024;
    used.saturating_sub(SHARD_BYTES).max(used / 2)
}

impl CurveFigures {
    /// Sums the curves of all shards.
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
        figures.represented_keys = sum.represented_keys as u64;
        figures.reads = sum.reads as u64;
        figures.measured = sum.measured();
        figures.lru = sum.lru();
        figures.corrected = sum.corrected(PRESENT);
        figures.unseen = figures.lru.map(|_| sum.unseen / sum.reads);
        figures
    }
}
