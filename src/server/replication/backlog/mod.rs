//! The backlog: the newest bytes of this server's replication stream, in pieces that all replicas share.
//!
//! Offsets count the bytes of the stream, beginning with 1 as in Redis: offset `n` is the n-th byte, and
//! `end()` is the offset of the newest byte. Bytes that a [`Cursor`] has not read yet are always kept. In
//! addition, already read bytes are kept up to the configured size (`repl-backlog-size`).
//!
//! On a primary, the stream comes from the command log ([`StreamReader`]) between two markers,
//! [`Backlog::feed_from`] and [`Backlog::feed_until`], or from the link to a primary ([`Backlog::append`]).

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::persist::oplog::{self, Gate, Home, OpLogItem, StreamReader};
use basalt_core::alloc::account::size_class;
use basalt_engine::record::Audience;

/// Callback that runs when a marker arrives from the log, with the stream offset of the newest byte before the
/// marker. Must not wait.
pub type AtMark = Box<dyn FnOnce(u64) + Send>;

/// Maximum pieces that a cursor returns at once.
const PIECES_MAX: usize = 64;

/// Bytes of partially filled blocks that are kept even without a slow reader; they count as the server's base
/// memory.
const RESTING_BYTES: u64 = 2 * oplog::BLOCK_BYTES + 100;

/// Minimum capacity of the list of pieces.
const PIECES_ROOM_MIN: usize = 128;

/// Number of log positions whose stream offsets are remembered.
const SAMPLES_MAX: usize = 4096;

/// The newest bytes of the replication stream, shared by all replicas; see the module.
#[derive(Default)]
pub struct Backlog {
    inner: Mutex<BacklogState>,
    end: AtomicU64,
    /// Bytes kept even if every cursor has read them.
    size_bytes: AtomicU64,
    /// Write commands have to wait if a cursor is more than this number of bytes behind; 0 for no limit.
    behind_bytes_max: AtomicU64,
    /// Number of times the stream was reset.
    resets: AtomicU64,
    /// Gate that opens when bytes were appended, or the stream was reset.
    changed: Gate,
    /// Gate that log positions pass when everything before them has arrived here.
    taken: Gate,
    /// Bytes of memory used beyond the configured size.
    beyond_bytes: Arc<AtomicI64>,
}

struct BacklogChunk {
    /// Stream offset of the piece's last byte.
    end: u64,
    bytes: Bytes,
    /// Bytes of memory freed when the piece is dropped; 0 if later pieces share its block.
    home_bytes: u64,
}

/// The newest memory block: pieces of it are held, and more may arrive.
struct BacklogBlock {
    number: NonZeroU64,
    bytes: u64,
    /// Sequence number of the block's last piece, counted from the first piece ever appended.
    last_piece: u64,
}

#[derive(Default)]
struct BacklogState {
    pieces: VecDeque<BacklogChunk>,
    /// Number of bytes in `pieces`.
    held_bytes: u64,
    /// Bytes of all blocks that contain held pieces, including parts of these blocks that are unused or
    /// belonged to dropped pieces.
    homes_bytes: u64,
    /// The newest block, if pieces of it are held.
    newest_block: Option<BacklogBlock>,
    dropped_pieces: u64,
    /// Bytes about to be allocated, or just allocated, for the next pieces.
    expected_bytes: u64,
    /// Offset of the newest byte.
    end: u64,
    /// Whether received data is kept, because this server has had a replica or follows a primary.
    is_kept: bool,
    /// Whether the stream comes from the log.
    is_fed: bool,
    feed_from: Option<u64>,
    /// Number of the marker at which the log stops feeding the stream, and whether data is still kept
    /// afterwards.
    feed_until: Option<(u64, bool)>,
    at_marks: BTreeMap<u64, AtMark>,
    last_mark: u64,
    /// Offset of the next byte to read, by cursor number.
    cursors: BTreeMap<u64, u64>,
    last_cursor: u64,
    /// Log positions, each with the stream offset of the newest byte before it.
    samples: VecDeque<(u64, u64)>,
}

/// State of a backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFigures {
    /// Whether received data is kept.
    pub is_active: bool,
    /// Offset of the newest byte.
    pub end: u64,
    /// Offset of the first byte that is kept.
    pub first: u64,
    /// Number of bytes kept.
    pub held_bytes: u64,
}

impl BacklogState {
    /// Returns the offset of the first byte held; one past the newest offset if no byte is held.
    fn first(&self) -> u64 {
        self.end + 1 - self.held_bytes
    }

    /// Returns the memory of the held pieces, including that expected for the next pieces.
    fn taken_bytes(&self) -> u64 {
        self.homes_bytes + self.expected_bytes
    }

    fn append(&mut self, bytes: Bytes, home: Home) {
        let len = bytes.len() as u64;
        self.end += len;
        if self.is_kept && len > 0 {
            self.held_bytes += len;
            let home_bytes = match home.block {
                Some(number) => {
                    self.hold(number, home.bytes);
                    0
                }
                None => {
                    self.homes_bytes += home.bytes;
                    home.bytes
                }
            };
            self.pieces.push_back(BacklogChunk {
                end: self.end,
                bytes,
                home_bytes,
            });
        }
    }

    /// Accounts for the memory block of the next piece: its number and size. If the block is new, the previous
    /// block is complete, so dropping its last piece will free it.
    fn hold(&mut self, number: NonZeroU64, bytes: u64) {
        let last_piece = self.dropped_pieces + self.pieces.len() as u64;
        if let Some(block) = &mut self.newest_block {
            if block.number == number {
                block.last_piece = last_piece;
                return;
            }
            let at = block.last_piece - self.dropped_pieces;
            self.pieces[at as usize].home_bytes = block.bytes;
        }
        self.homes_bytes += bytes;
        self.newest_block = Some(BacklogBlock {
            number,
            bytes,
            last_piece,
        });
    }

    /// Drops the oldest piece, if it exceeds the configured size and all cursors have read it; returns whether
    /// it was dropped.
    fn drop_one(&mut self, size_bytes: u64, unread: Option<u64>) -> bool {
        let Some(first) = self.pieces.front() else {
            return false;
        };
        let len = first.bytes.len() as u64;
        let is_unread = unread.is_some_and(|next| next <= first.end);
        if is_unread || self.held_bytes - len < size_bytes {
            return false;
        }
        self.held_bytes -= len;
        self.homes_bytes -= first.home_bytes;
        let piece = self.dropped_pieces;
        if let Some(block) = self.newest_block.take_if(|block| block.last_piece == piece) {
            self.homes_bytes -= block.bytes;
        }
        self.pieces.pop_front();
        self.dropped_pieces += 1;
        self.shrink();
        true
    }

    /// Frees excess capacity of the list of pieces that was needed for a slow reader.
    fn shrink(&mut self) {
        let len = self.pieces.len();
        if self.pieces.capacity() > PIECES_ROOM_MIN.max(4 * len) {
            self.pieces.shrink_to(2 * len);
        }
    }

    fn forget(&mut self) {
        self.dropped_pieces += self.pieces.len() as u64;
        self.pieces = VecDeque::new();
        self.newest_block = None;
        (self.held_bytes, self.homes_bytes, self.expected_bytes) = (0, 0, 0);
    }
}

impl Backlog {
    /// Creates a backlog that reports its memory beyond the configured size in `beyond_bytes`.
    pub fn telling(beyond_bytes: &Arc<AtomicI64>) -> Backlog {
        Backlog {
            beyond_bytes: Arc::clone(beyond_bytes),
            ..Backlog::default()
        }
    }

    /// Drops the pieces that exceed the configured size and that all cursors have read. The reported memory is
    /// updated along the way, so that it never lags far behind.
    fn trim(&self, inner: &mut BacklogState) {
        let size_bytes = self.size_bytes.load(Relaxed);
        let unread = inner.cursors.values().min().copied();
        while inner.drop_one(size_bytes, unread) {
            self.tell_all(inner, inner.pieces.capacity());
        }
        self.tell(inner, inner.pieces.capacity());
    }

    /// Reports the memory beyond the configured size, with a list of pieces of capacity `room`.
    fn tell(&self, inner: &BacklogState, room: usize) {
        if !inner.cursors.is_empty() {
            self.tell_all(inner, room);
            return;
        }
        // Without slow readers, at most the configured size and one piece are held; the rest are unused parts
        // of blocks.
        let size_bytes = self.size_bytes.load(Relaxed).max(inner.held_bytes);
        let beyond_bytes = inner
            .taken_bytes()
            .saturating_sub(size_bytes + RESTING_BYTES);
        self.beyond_bytes.store(beyond_bytes.cast_signed(), Relaxed);
    }

    /// Does the same as [`Backlog::tell`], but only while cursors exist, and includes the memory of the list.
    fn tell_all(&self, inner: &BacklogState, room: usize) {
        // With many short pieces, the list itself takes as much memory.
        let list_bytes = size_class(room * size_of::<BacklogChunk>()) as u64;
        let size_bytes = self.size_bytes.load(Relaxed);
        let beyond_bytes = (inner.taken_bytes() + list_bytes).saturating_sub(size_bytes);
        self.beyond_bytes.store(beyond_bytes.cast_signed(), Relaxed);
    }

    /// Appends a piece. A longer list is reported before it is allocated; otherwise keys would be evicted for
    /// its memory.
    fn add(&self, inner: &mut BacklogState, bytes: Bytes, home: Home) {
        let (len, room) = (inner.pieces.len(), inner.pieces.capacity());
        if inner.is_kept && len == room {
            let more = room.max(PIECES_ROOM_MIN);
            self.tell(inner, room + more);
            inner.pieces.reserve_exact(more);
        }
        inner.append(bytes, home);
    }

    /// Returns the offset of the newest byte: `master_repl_offset`.
    pub fn end(&self) -> u64 {
        self.end.load(Acquire)
    }

    /// Returns the state of the backlog.
    pub fn figures(&self) -> BacklogFigures {
        let inner = self.inner.lock();
        BacklogFigures {
            is_active: inner.is_kept,
            end: inner.end,
            first: inner.first(),
            held_bytes: inner.held_bytes,
        }
    }

    /// Sets how many bytes are kept even if every cursor has read them.
    pub fn set_size(&self, bytes: u64) {
        self.size_bytes.store(bytes, Relaxed);
        self.trim(&mut self.inner.lock());
    }

    /// Sets how many bytes a cursor may be behind before write commands have to wait; 0 for no limit.
    pub fn hold_back_at(&self, bytes: u64) {
        self.behind_bytes_max.store(bytes, Relaxed);
    }

    /// True if write commands have to wait for slow cursors at all.
    pub fn holds_back(&self) -> bool {
        self.behind_bytes_max.load(Relaxed) > 0
    }

    /// Sets whether received data is kept. If not, kept data is dropped, and only offsets advance.
    pub fn keep(&self, is_kept: bool) {
        let mut inner = self.inner.lock();
        inner.is_kept = is_kept;
        if !is_kept {
            inner.forget();
            self.tell(&inner, 0);
        }
    }

    /// Drops all data, which no longer belongs to the stream, and continues after the offset `end`. Existing
    /// cursors return no more data.
    pub fn reset(&self, end: u64) {
        let mut inner = self.inner.lock();
        inner.forget();
        inner.cursors.clear();
        inner.end = end;
        self.tell(&inner, 0);
        self.end.store(end, Release);
        self.resets.fetch_add(1, Release);
        drop(inner);
        self.changed.open();
    }

    /// Appends bytes of the stream that did not come through the log.
    pub fn append(&self, bytes: Bytes) {
        let mut inner = self.inner.lock();
        let home = Home::alone(bytes.len());
        self.add(&mut inner, bytes, home);
        self.publish(inner);
    }

    fn publish(&self, mut inner: parking_lot::MutexGuard<'_, BacklogState>) {
        self.trim(&mut inner);
        let end = inner.end;
        self.end.store(end, Release);
        drop(inner);
        self.changed.open();
    }

    /// Registers a callback and returns the number of the marker ([`crate::persist::oplog::OpLog::mark`]) at
    /// which it will run.
    pub fn expect_mark(&self, at_mark: AtMark) -> u64 {
        let mut inner = self.inner.lock();
        inner.last_mark += 1;
        let number = inner.last_mark;
        inner.at_marks.insert(number, at_mark);
        number
    }

    /// Returns the number of the marker from which the log feeds the stream, and data is kept. The callback
    /// gets the stream offset at the marker.
    pub fn feed_from(&self, at_mark: AtMark) -> u64 {
        let number = self.expect_mark(at_mark);
        self.inner.lock().feed_from = Some(number);
        number
    }

    /// Returns the number of the marker from which the log no longer feeds the stream; `keeps` tells whether
    /// data is still kept afterwards.
    pub fn feed_until(&self, keeps: bool, at_mark: AtMark) -> u64 {
        let number = self.expect_mark(at_mark);
        self.inner.lock().feed_until = Some((number, keeps));
        number
    }

    /// Completes once everything before a log position is part of the stream, if the log feeds the stream.
    pub fn poll_taken(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.taken.poll_passed(position, cx)
    }

    /// Returns the offset of the newest byte that was appended to the log before a position, or a slightly
    /// later offset; `None` if the log has not reached the position.
    pub fn offset_before(&self, position: u64) -> Option<u64> {
        let inner = self.inner.lock();
        let at = inner
            .samples
            .partition_point(|(taken, _)| *taken < position);
        inner.samples.get(at).map(|(_, end)| *end)
    }

    /// Returns a cursor that reads from the offset `next` on, if all bytes from there on are held.
    pub fn cursor(self: &Arc<Self>, next: u64) -> Option<Cursor> {
        let mut inner = self.inner.lock();
        let is_held = inner.is_kept && (inner.first()..=inner.end + 1).contains(&next);
        is_held.then(|| {
            inner.last_cursor += 1;
            let number = inner.last_cursor;
            inner.cursors.insert(number, next);
            Cursor {
                backlog: Arc::clone(self),
                number,
                next,
                resets: self.resets.load(Relaxed),
            }
        })
    }
}

impl StreamReader for Backlog {
    fn audience(&self) -> Audience {
        Audience::REPLICAS
    }

    fn expect(&self, bytes: u64) {
        let mut inner = self.inner.lock();
        if inner.is_fed {
            inner.expected_bytes = bytes;
            self.tell(&inner, inner.pieces.capacity());
        }
    }

    fn push(&self, items: &mut dyn Iterator<Item = OpLogItem>, position: u64) {
        let mut inner = self.inner.lock();
        let mut due = Vec::new();
        for item in items {
            match item {
                OpLogItem::Bytes(bytes, home) if inner.is_fed => self.add(&mut inner, bytes, home),
                OpLogItem::Bytes(..) => {}
                OpLogItem::Mark(number, _) => {
                    if inner.feed_from.take_if(|mark| *mark == number).is_some() {
                        inner.is_fed = true;
                        // Keep data from this byte on: data after the marker may already be in this batch.
                        inner.is_kept = true;
                    }
                    let until = inner.feed_until.take_if(|(mark, _)| *mark == number);
                    if let Some((_, keeps)) = until {
                        inner.is_fed = false;
                        inner.is_kept = keeps;
                        if !keeps {
                            inner.forget();
                        }
                    }
                    if let Some(at_mark) = inner.at_marks.remove(&number) {
                        due.push((at_mark, inner.end));
                    }
                }
            }
        }
        inner.expected_bytes = 0;
        // Reserve the full capacity at once: growth while a replica is slow would be attributed to that
        // replica.
        let samples = &mut inner.samples;
        samples.reserve_exact(SAMPLES_MAX - samples.len());
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        let end = inner.end;
        inner.samples.push_back((position, end));
        // Run the callbacks before pieces are dropped: a replica may begin to read at the marker.
        self.end.store(end, Release);
        drop(inner);
        for (at_mark, offset) in due {
            at_mark(offset);
        }
        self.publish(self.inner.lock());
        self.taken.pass(position);
    }

    fn is_far_behind(&self) -> bool {
        let most = self.behind_bytes_max.load(Relaxed);
        if most == 0 {
            return false;
        }
        let inner = self.inner.lock();
        let slowest = inner.cursors.values().min();
        slowest.is_some_and(|next| inner.end + 1 - next.min(&inner.end) > most)
    }

    fn close(&self) {}
}

/// Position of a reader of the stream. Data it has not read is kept.
pub struct Cursor {
    backlog: Arc<Backlog>,
    number: u64,
    next: u64,
    resets: u64,
}

impl Cursor {
    /// Returns the offset of the next byte to read.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Completes once unread bytes exist, or the stream was reset.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let backlog = &self.backlog;
        let is_ready = || backlog.end() >= self.next || backlog.resets.load(Acquire) != self.resets;
        match is_ready() {
            true => Poll::Ready(()),
            false => backlog.changed.poll_next(cx, is_ready),
        }
    }

    /// Returns the next data, at least one byte and at most about `bytes_max`, which stays kept until
    /// [`Cursor::advance`]; `None` if the stream was [`Backlog::reset`].
    pub fn peek(&self, bytes_max: usize) -> Option<Vec<Bytes>> {
        let inner = self.backlog.inner.lock();
        inner.cursors.get(&self.number)?;
        let first = inner.pieces.partition_point(|piece| piece.end < self.next);
        let mut room = bytes_max;
        let mut found = Vec::new();
        for BacklogChunk { end, bytes, .. } in inner.pieces.range(first..) {
            let left = (*end + 1).saturating_sub(self.next) as usize;
            let skipped = bytes.len().saturating_sub(left);
            let part = bytes.slice(skipped..bytes.len().min(skipped + room));
            room -= part.len();
            found.push(part);
            if room == 0 || found.len() == PIECES_MAX {
                break;
            }
        }
        Some(found)
    }

    /// Advances over bytes that have been read.
    pub fn advance(&mut self, bytes: u64) {
        self.next += bytes;
        let mut inner = self.backlog.inner.lock();
        if let Some(next) = inner.cursors.get_mut(&self.number) {
            *next = self.next;
        }
        self.backlog.trim(&mut inner);
    }

    /// Returns the number of unread bytes.
    pub fn behind_bytes(&self) -> u64 {
        (self.backlog.end() + 1).saturating_sub(self.next)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut inner = self.backlog.inner.lock();
        inner.cursors.remove(&self.number);
        self.backlog.trim(&mut inner);
    }
}

#[cfg(test)]
mod tests;
