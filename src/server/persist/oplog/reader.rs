//! The trait of the log's readers, and a reader with a queue from which a thread takes items.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use basalt_engine::record::Audience;

/// The memory block that contains a piece of the stream. The whole block is kept while any part of it is
/// referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Number of the block, which rises from block to block; `None` if the block contains only this piece.
    pub block: Option<NonZeroU64>,
    /// Bytes of the whole block.
    pub bytes: u64,
}

impl Home {
    /// Returns the home of `len` bytes in a block of their own.
    pub fn alone(len: usize) -> Home {
        Home {
            block: None,
            bytes: len as u64,
        }
    }
}

/// A piece of the stream.
#[derive(Clone, Debug)]
pub enum OpLogItem {
    /// Bytes, shared with other readers, and the block that holds them.
    Bytes(Bytes, Home),
    /// The number of a marker set by [`super::OpLog::mark`], and the log position after it.
    Mark(u64, u64),
}

impl OpLogItem {
    /// Creates an item of bytes in a block of their own.
    pub fn alone(bytes: Bytes) -> OpLogItem {
        let home = Home::alone(bytes.len());
        OpLogItem::Bytes(bytes, home)
    }
}

/// A reader of the stream. Only the sequencer pushes to it, in order, and must never be blocked.
pub trait StreamReader: Send + Sync {
    /// Returns the audience whose records this reader gets.
    fn audience(&self) -> Audience;
    /// Announces how much memory will be allocated for the next push.
    fn expect(&self, _bytes: u64) {}
    /// Takes the next items. At the end and before each marker, the bytes are complete: no append's records are
    /// split. Everything in the log before `position` has then been distributed, even if none of it was for
    /// this reader.
    fn push(&self, items: &mut dyn Iterator<Item = OpLogItem>, position: u64);
    /// True if write commands have to wait until this reader has caught up.
    fn is_far_behind(&self) -> bool;
    /// Ends the stream; nothing more will be pushed.
    fn close(&self);
}

/// Items taken from the queue together.
#[derive(Debug, Default)]
pub struct Stretch {
    /// The items in order. At the end and before each marker, the bytes are complete: no append's records are
    /// split.
    pub items: Vec<OpLogItem>,
    /// Log position before which everything was distributed.
    pub position: u64,
}

#[derive(Default)]
struct OpLogReaderQueue {
    items: VecDeque<OpLogItem>,
    position: u64,
    taken: u64,
    is_closed: bool,
    is_nudged: bool,
}

/// A reader with a queue that a thread takes from.
pub struct OpLogReader {
    audience: Audience,
    waiting: Mutex<OpLogReaderQueue>,
    changed: Condvar,
    bytes: AtomicU64,
    /// Bytes taken but not processed yet.
    held_bytes: AtomicU64,
    /// Limit for the sum of queued and unprocessed bytes, beyond which the reader is far behind.
    bytes_max: Arc<AtomicU64>,
    /// Whether write commands wait while this reader is far behind.
    holds_back: AtomicBool,
}

impl OpLogReader {
    pub(super) fn new(audience: Audience, bytes_max: Arc<AtomicU64>) -> OpLogReader {
        OpLogReader {
            audience,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            bytes_max,
            holds_back: AtomicBool::new(true),
        }
    }

    /// Takes everything queued, waiting up to `patience` for something to arrive. Returns `None` if nothing
    /// arrived, or if the reader was nudged or closed.
    pub fn take(&self, patience: Duration) -> Option<Stretch> {
        let mut waiting = self.waiting.lock();
        if waiting.taken == waiting.position && !waiting.is_closed && !waiting.is_nudged {
            self.changed.wait_for(&mut waiting, patience);
        }
        waiting.is_nudged = false;
        if waiting.taken == waiting.position {
            return None;
        }
        waiting.taken = waiting.position;
        let items = Vec::from(std::mem::take(&mut waiting.items));
        let position = waiting.position;
        // Add to the unprocessed bytes before subtracting from the queued bytes; otherwise write commands would
        // continue in between.
        let bytes = self.bytes.load(Relaxed);
        self.held_bytes.fetch_add(bytes, Relaxed);
        self.bytes.store(0, Relaxed);
        drop(waiting);
        Some(Stretch { items, position })
    }

    /// Makes a thread that waits in [`OpLogReader::take`] return.
    pub fn nudge(&self) {
        self.waiting.lock().is_nudged = true;
        self.changed.notify_one();
    }

    /// Returns the number of queued bytes, which were not taken yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of bytes that are queued, or taken but not processed yet.
    pub fn behind_bytes(&self) -> u64 {
        self.bytes.load(Relaxed) + self.held_bytes.load(Relaxed)
    }

    /// Sets how many of the taken bytes are not processed yet.
    pub fn set_held(&self, bytes: u64) {
        self.held_bytes.store(bytes, Relaxed);
    }

    /// Sets whether write commands wait while this reader is far behind.
    pub fn set_holding_back(&self, holds_back: bool) {
        self.holds_back.store(holds_back, Relaxed);
    }

    /// True if the stream has ended and the reader gets nothing more.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }
}

impl StreamReader for OpLogReader {
    fn audience(&self) -> Audience {
        self.audience
    }

    fn push(&self, items: &mut dyn Iterator<Item = OpLogItem>, position: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        let mut bytes = 0;
        for item in items {
            if let OpLogItem::Bytes(piece, _) = &item {
                bytes += piece.len() as u64;
            }
            waiting.items.push_back(item);
        }
        waiting.position = position;
        self.bytes.fetch_add(bytes, Relaxed);
        drop(waiting);
        self.changed.notify_one();
    }

    fn is_far_behind(&self) -> bool {
        self.holds_back.load(Relaxed) && self.behind_bytes() > self.bytes_max.load(Relaxed)
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.items.clear();
        self.bytes.store(0, Relaxed);
        self.held_bytes.store(0, Relaxed);
        drop(waiting);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nudge_ends_a_wait_with_nothing() {
        let reader = OpLogReader::new(Audience::FILE, Arc::new(AtomicU64::new(u64::MAX)));
        reader.nudge();
        assert!(reader.take(Duration::from_secs(600)).is_none());
        reader.push(&mut std::iter::once(OpLogItem::Mark(1, 9)), 9);
        let stretch = reader.take(Duration::ZERO).expect("a mark");
        assert_eq!((stretch.items.len(), stretch.position), (1, 9));
        assert!(reader.take(Duration::ZERO).is_none());
        reader.close();
        reader.push(&mut std::iter::once(OpLogItem::Mark(1, 19)), 19);
        assert!(reader.take(Duration::ZERO).is_none());
    }
}
