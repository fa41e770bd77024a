//! Interface to the writer of the append-only file, for commands and replies that wait for the disk.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll};

use super::Service;

/// The writer of the command log to disk. Positions are those of
/// [`Log::append`](basalt_engine::record::Log::append).
pub trait Durability: Send + Sync {
    /// Whether write commands should wait before they lock shards.
    fn is_crowded(&self) -> bool;
    /// Ready once write commands no longer need to wait.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Wakes waiting write commands, so that they check again.
    fn look_again(&self);
    /// Adapts the limit of buffered bytes to a changed `maxmemory`.
    fn follow_limit(&self, maxmemory: u64);
    /// Bytes in memory that are not on disk yet, and the log's own buffer.
    fn held_bytes(&self) -> u64;
    /// Whether replies that depend on records before `position` must wait for the disk.
    fn must_wait(&self, position: u64) -> bool;
    /// Ready once replies that depend on records before `position` no longer need to wait.
    fn poll_synced(&self, position: u64, cx: &mut Context<'_>) -> Poll<()>;
}

impl Service {
    /// Returns the writer of the log; `None` while nothing is logged to disk.
    #[inline]
    fn durability(&self) -> Option<&dyn Durability> {
        let durability = self.durability.get().filter(|_| self.pubsub.is_logging());
        durability.map(|durability| &**durability)
    }

    /// Whether write commands should wait before they lock shards.
    #[inline]
    pub fn must_writers_wait(&self) -> bool {
        self.is_snapshot_behind.load(Relaxed)
            || self.durability().is_some_and(Durability::is_crowded)
    }

    /// Ready once write commands no longer need to wait.
    pub fn poll_writers_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.durability.get() {
            Some(durability) => durability.poll_room(cx),
            None => Poll::Ready(()),
        }
    }

    /// Sets whether a snapshot's sink is so far behind that write commands must wait.
    #[cold]
    pub fn set_snapshot_behind(&self, is_behind: bool) {
        self.is_snapshot_behind.store(is_behind, SeqCst);
        if !is_behind && let Some(durability) = self.durability.get() {
            durability.look_again();
        }
    }

    /// Whether replies that depend on records before `position` must wait for the disk.
    #[inline]
    pub fn must_sync(&self, position: u64) -> bool {
        let durability = self.durability();
        durability.is_some_and(|durability| durability.must_wait(position))
    }
}
