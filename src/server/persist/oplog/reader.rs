//! Readers of the stream, and one with a queue, from which a thread takes.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use basalt_engine::record::Audience;

/// The memory that bytes of the stream lie in: all of it is kept while any part of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The number of a block that other pieces have parts of too, higher than those of blocks before; none if no other
    /// piece has.
    pub block: Option<NonZeroU64>,
    /// What all of it takes.
    pub bytes: u64,
}

impl Home {
    /// Of bytes that lie alone.
    pub fn alone(len: usize) -> Home {
        Home {
            block: None,
            bytes: len as u64,
        }
    }
}

/// A piece of the stream.
#[derive(Clone, Debug)]
pub enum Item {
    /// Bytes, shared with other readers, and what they lie in.
    Bytes(Bytes, Home),
    /// A mark of [`super::OpLog::mark`], and the position behind it.
    Mark(u64, u64),
}

impl Item {
    /// Bytes that lie alone.
    pub fn alone(bytes: Bytes) -> Item {
        let home = Home::alone(bytes.len());
        Item::Bytes(bytes, home)
    }
}

/// Somebody who reads the stream. The sequencer alone hands it out, in order, and is never to be held up.
pub trait StreamReader: Send + Sync {
    /// Which records it reads.
    fn audience(&self) -> Audience;
    /// Told, before memory is taken for what is pushed next, how much.
    fn expect(&self, _bytes: u64) {}
    /// Takes what follows. Bytes end with whole records of one append, in the end and before each mark. All before
    /// `position` was handed out then, even if none of it was for this reader.
    fn push(&self, items: &mut dyn Iterator<Item = Item>, position: u64);
    /// Whether writers are to be held back until it has caught up.
    fn is_far_behind(&self) -> bool;
    /// Nothing more comes.
    fn close(&self);
}

/// What a reader takes at once.
#[derive(Debug, Default)]
pub struct Stretch {
    /// In order. Bytes end with whole records of one append, here and before each mark.
    pub items: Vec<Item>,
    /// All before this position was handed out.
    pub position: u64,
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    position: u64,
    taken: u64,
    is_closed: bool,
    is_nudged: bool,
}

/// See the module.
pub struct Reader {
    audience: Audience,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    bytes: AtomicU64,
    /// Bytes that it has taken, and is not done with.
    held_bytes: AtomicU64,
    /// Bytes of both that are far behind.
    bytes_max: Arc<AtomicU64>,
    /// Whether writers wait when it is far behind.
    holds_back: AtomicBool,
}

impl Reader {
    pub(super) fn new(audience: Audience, bytes_max: Arc<AtomicU64>) -> Reader {
        Reader {
            audience,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            bytes_max,
            holds_back: AtomicBool::new(true),
        }
    }

    /// Takes all there is, or waits for so long at most; none if nothing came, or somebody wants the reader's thread to
    /// look up.
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
        // It is counted as held before it is counted as taken, or else writers would go on meanwhile.
        let bytes = self.bytes.load(Relaxed);
        self.held_bytes.fetch_add(bytes, Relaxed);
        self.bytes.store(0, Relaxed);
        drop(waiting);
        Some(Stretch { items, position })
    }

    /// Has a thread that waits in [`Reader::take`] return.
    pub fn nudge(&self) {
        self.waiting.lock().is_nudged = true;
        self.changed.notify_one();
    }

    /// Bytes that it has not taken.
    pub fn waiting_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes that it has not taken, and those that it is not done with.
    pub fn behind_bytes(&self) -> u64 {
        self.bytes.load(Relaxed) + self.held_bytes.load(Relaxed)
    }

    /// Says of how much of what it has taken it is not done with.
    pub fn set_held(&self, bytes: u64) {
        self.held_bytes.store(bytes, Relaxed);
    }

    /// Says whether writers wait when it is far behind.
    pub fn set_holding_back(&self, holds_back: bool) {
        self.holds_back.store(holds_back, Relaxed);
    }

    /// Whether it gets nothing more.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }
}

impl StreamReader for Reader {
    fn audience(&self) -> Audience {
        self.audience
    }

    fn push(&self, items: &mut dyn Iterator<Item = Item>, position: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        let mut bytes = 0;
        for item in items {
            if let Item::Bytes(piece, _) = &item {
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
        let reader = Reader::new(Audience::FILE, Arc::new(AtomicU64::new(u64::MAX)));
        reader.nudge();
        assert!(reader.take(Duration::from_secs(600)).is_none());
        reader.push(&mut std::iter::once(Item::Mark(1, 9)), 9);
        let stretch = reader.take(Duration::ZERO).expect("a mark");
        assert_eq!((stretch.items.len(), stretch.position), (1, 9));
        assert!(reader.take(Duration::ZERO).is_none());
        reader.close();
        reader.push(&mut std::iter::once(Item::Mark(1, 19)), 19);
        assert!(reader.take(Duration::ZERO).is_none());
    }
}
