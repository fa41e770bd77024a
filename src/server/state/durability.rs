//! Interface to the writer of the append-only file, and to the replicas, for commands and replies that wait for them.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};
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

/// Confirmation of writes by replicas (`min-sync-replicas`). Positions are those of
/// [`Log::append`](basalt_engine::record::Log::append).
pub trait Confirmation: Send + Sync {
    /// Whether replies that depend on records before `position` may not be sent now: they must wait, or replicas
    /// have not confirmed the position in time.
    fn must_wait(&self, position: u64) -> bool;
    /// Ready once replicas have confirmed the records before `position` (true), or were too late (false). Asks
    /// the replicas for the confirmation.
    fn poll_confirmed(&self, position: u64, cx: &mut Context<'_>) -> Poll<bool>;
    /// Returns the position before which everything is confirmed.
    fn confirmed(&self) -> u64;
}

/// Reasons for which replies may have to wait before they are sent, as bits of one word, which is read for each
/// batch of replies.
#[derive(Default)]
pub struct ReplyHolds {
    reasons: AtomicU8,
    /// Confirmation of writes by replicas; set before the first connection.
    pub confirmation: OnceLock<Arc<dyn Confirmation>>,
}

impl ReplyHolds {
    const DISK: u8 = 1;
    const REPLICAS: u8 = 2;

    /// Sets whether replies wait until the log is on disk (`appendfsync always`, or during shutdown).
    pub fn set_disk(&self, holds: bool) {
        self.set(Self::DISK, holds);
    }

    /// Sets whether replies wait until replicas have confirmed (`min-sync-replicas`).
    pub fn set_replicas(&self, holds: bool) {
        self.set(Self::REPLICAS, holds);
    }

    /// Stores with SeqCst, because clients are served meanwhile: if a reply did not see the new value, its command
    /// was appended to the log before this store.
    fn set(&self, bit: u8, holds: bool) {
        match holds {
            true => self.reasons.fetch_or(bit, SeqCst),
            false => self.reasons.fetch_and(!bit, SeqCst),
        };
    }

    /// Whether replies wait until the log is on disk.
    pub fn wait_for_disk(&self) -> bool {
        self.reasons.load(SeqCst) & Self::DISK != 0
    }

    #[inline]
    fn are_none(&self) -> bool {
        self.reasons.load(SeqCst) == 0
    }
}

impl Service {
    /// Whether replies that depend on records before `position` must wait for the disk, or for replicas.
    #[inline]
    pub fn holds_replies(&self, position: u64) -> bool {
        !self.reply_holds.are_none() && self.is_held(position)
    }

    #[cold]
    fn is_held(&self, position: u64) -> bool {
        let confirmation = self.reply_holds.confirmation.get();
        self.must_sync(position) || confirmation.is_some_and(|them| them.must_wait(position))
    }

    /// Ready once replies that depend on records before `position` need not wait any more. Returns whether they may
    /// be sent: false if too few replicas have confirmed the records in time.
    pub fn poll_released(&self, position: u64, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(durability) = self.durability.get()
            && durability.poll_synced(position, cx).is_pending()
        {
            return Poll::Pending;
        }
        match self.reply_holds.confirmation.get() {
            Some(confirmation) => confirmation.poll_confirmed(position, cx),
            None => Poll::Ready(true),
        }
    }

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
