//! Writing the log to disk; commands and replies that wait for it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll};

use super::Service;

/// Writes the log to disk. Positions are those of [`Log::append`](basalt_engine::record::Log::append).
pub trait Durability: Send + Sync {
    /// Whether commands that may write should wait before they take shards.
    fn is_crowded(&self) -> bool;
    /// Ready when they need not any more.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Wakes commands that wait for room.
    fn look_again(&self);
    /// The limit of memory is another one: what may wait follows it.
    fn follow_limit(&self, maxmemory: u64);
    /// Bytes in memory that are not on disk yet, and the log's own buffer.
    fn held_bytes(&self) -> u64;
    /// Whether replies that know of what is before a position have to wait for the disk.
    fn must_wait(&self, position: u64) -> bool;
    /// Ready when they need not any more.
    fn poll_synced(&self, position: u64, cx: &mut Context<'_>) -> Poll<()>;
}

impl Service {
    /// The writer of the log, while anything is logged.
    #[inline]
    fn durability(&self) -> Option<&dyn Durability> {
        let durability = self.durability.get().filter(|_| self.pubsub.is_logging());
        durability.map(|durability| &**durability)
    }

    /// Whether commands that may write should wait before they take shards.
    #[inline]
    pub fn must_writers_wait(&self) -> bool {
        self.is_snapshot_behind.load(Relaxed)
            || self.durability().is_some_and(Durability::is_crowded)
    }

    /// Ready when they need not wait any more.
    pub fn poll_writers_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.durability.get() {
            Some(durability) => durability.poll_room(cx),
            None => Poll::Ready(()),
        }
    }

    /// Sets whether a snapshot is behind.
    #[cold]
    pub fn set_snapshot_behind(&self, is_behind: bool) {
        self.is_snapshot_behind.store(is_behind, SeqCst);
        if !is_behind && let Some(durability) = self.durability.get() {
            durability.look_again();
        }
    }

    /// Whether replies that know of what is before a position have to wait for the disk.
    #[inline]
    pub fn must_sync(&self, position: u64) -> bool {
        let durability = self.durability();
        durability.is_some_and(|durability| durability.must_wait(position))
    }
}
