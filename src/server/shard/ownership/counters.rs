//! Counters of each shard's token, for telemetry.
//!
//! The counters are updated with relaxed ordering, on another cache line than the token's word (except for the
//! takes): they are for information only.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Live counters, incremented from any thread.
#[derive(Debug, Default)]
pub(super) struct OwnershipCounters {
    pub(super) takes_found_held: AtomicU64,
    pub(super) queued: AtomicU64,
    pub(super) multi_shard_runs: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) worker_handovers: AtomicU64,
    longest_hold_ns: AtomicU64,
    recent_hold_ns: AtomicU64,
}

impl OwnershipCounters {
    /// Records a hold; returns whether it is the longest recent one.
    #[inline]
    pub(super) fn note_hold_ns(&self, hold_ns: u64) -> bool {
        // Load first, to avoid a write to the cache line in the usual case. The overall maximum is never below
        // the recent one.
        let is_longest = hold_ns > self.recent_hold_ns.load(Relaxed);
        if is_longest {
            self.recent_hold_ns.fetch_max(hold_ns, Relaxed);
            self.longest_hold_ns.fetch_max(hold_ns, Relaxed);
        }
        is_longest
    }

    /// Restarts the measurement of the longest recent hold.
    pub(super) fn forget_recent_hold(&self) {
        self.recent_hold_ns.store(0, Relaxed);
    }

    pub(super) fn read(&self, takes: u64) -> Counters {
        Counters {
            takes,
            takes_found_held: self.takes_found_held.load(Relaxed),
            queued: self.queued.load(Relaxed),
            multi_shard_runs: self.multi_shard_runs.load(Relaxed),
            handed_over: self.handed_over.load(Relaxed),
            worker_handovers: self.worker_handovers.load(Relaxed),
            longest_hold_ns: self.longest_hold_ns.load(Relaxed),
        }
    }
}

/// One shard's counters, read one after the other. All but the last only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times the token was taken from the free state.
    pub takes: u64,
    /// Times a caller that wanted the token at once found it held (a spin counts once).
    pub takes_found_held: u64,
    /// Messages left in the queue because the token was held.
    pub queued: u64,
    /// Runs over several shards of which this shard was the lowest, immediate runs and messages.
    pub multi_shard_runs: u64,
    /// Times that a travelling message took this shard's token along to its next shard.
    pub handed_over: u64,
    /// Times a holder reached its bound and handed the held token to the worker.
    pub worker_handovers: u64,
    /// Longest hold reported by a caller, in nanoseconds.
    pub longest_hold_ns: u64,
}
