//! What is counted of each shard's token, for telemetry.
//!
//! Relaxed and off the word's line (but for the takes): the numbers guide people and decide nothing.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Raised by the thread that does the thing, from any thread.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) takes_found_held: AtomicU64,
    pub(super) queued: AtomicU64,
    pub(super) multi_shard_runs: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) worker_handovers: AtomicU64,
    longest_hold_ns: AtomicU64,
    recent_hold_ns: AtomicU64,
}

impl Tally {
    /// Whether it is the longest of late.
    #[inline]
    pub(super) fn note_hold_ns(&self, hold_ns: u64) -> bool {
        // The look spares the line a write in the usual case; the longest of all is never shorter than that of late.
        let is_longest = hold_ns > self.recent_hold_ns.load(Relaxed);
        if is_longest {
            self.recent_hold_ns.fetch_max(hold_ns, Relaxed);
            self.longest_hold_ns.fetch_max(hold_ns, Relaxed);
        }
        is_longest
    }

    /// Holds until now are not of late any more.
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

/// One shard's counters as they were read, one after the other. All but the last only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times the token was taken from the free state.
    pub takes: u64,
    /// Times somebody who wanted it at once found it held (a spin counts once).
    pub takes_found_held: u64,
    /// Messages left in the queue because the token was held.
    pub queued: u64,
    /// Runs over several shards of which this was the lowest, at once or as a message.
    pub multi_shard_runs: u64,
    /// Steps of travelling messages that set out from here with this token.
    pub handed_over: u64,
    /// Times a holder reached its bound and gave the held token to the worker.
    pub worker_handovers: u64,
    /// Longest hold that a caller noted.
    pub longest_hold_ns: u64,
}
