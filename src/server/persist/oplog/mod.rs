//! The command log: all write commands that go to the append-only file, to replicas or to other nodes pass
//! through it, in one order.
//!
//! Threads that have locked shards append their records to a ring buffer (`structures::byte_ring`), which
//! determines the single order. The **sequencer** thread takes the completed prefix, inserts SELECT, MULTI and
//! EXEC, and distributes the stream to **readers** ([`StreamReader`]) in shared, reference-counted pieces.
//! Readers are the writer of the append-only file and the replicas' backlog; each takes pieces at its own pace.
//!
//! Positions count the bytes ever appended to the ring: [`Log::append`] returns the position after the appended
//! records, and with each push the sequencer tells a reader the position before which everything was
//! distributed.
//!
//! Limits: a thread that has locked a shard waits at most for the sequencer, which itself waits for no other
//! thread. [`OpLog::is_crowded`] tells when commands that may write should wait before they lock shards: when
//! three quarters of the ring are full, or when a reader that must not lose records has more bytes queued than
//! [`Bounds`] allow. Both limits are small if `maxmemory` is small, because this memory comes on top of the
//! data and never causes eviction.

mod gate;
mod reader;
mod sequencer;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use crossbeam::utils::CachePadded;
use parking_lot::Mutex;

use crate::telemetry::persistence as telemetry;
use basalt_core::resp::request::append;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::byte_ring::{ByteRing, RingRecord, frame_bytes};
use basalt_engine::record::{ANY_DB, Audience, Head, Log, Piece, Records};
use sequencer::OpLogBuilder;

pub use gate::{Gate, wait_at_relay};
pub use reader::{Home, OpLogItem, OpLogReader, StreamReader, Stretch};
pub use sequencer::BLOCK_BYTES;

/// Minimum and maximum bytes of the ring.
const RING_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// Minimum and maximum bytes of stream that a reader may have queued before write commands have to wait.
const BEHIND_BYTES: (u64, u64) = (4 << 20, 64 << 20);

/// Limits for the data waiting in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Size of the ring in bytes; ignored if the ring already exists.
    pub ring_bytes: u64,
    /// Bytes of stream that a reader may have queued before write commands have to wait.
    pub behind_bytes: u64,
}

impl Bounds {
    /// Returns the bounds for `maxmemory` bytes (0 for no limit): a 32nd of `maxmemory` for the ring, and an
    /// eighth for each reader.
    #[must_use]
    pub fn for_limit(maxmemory: u64) -> Bounds {
        let part = |parts: u64, (least, most): (u64, u64)| match maxmemory {
            0 => most,
            limit => (limit / parts).clamp(least, most),
        };
        let ring_bytes = part(32, RING_BYTES);
        Bounds {
            // Round down to a power of two.
            ring_bytes: 1 << ring_bytes.ilog2(),
            behind_bytes: part(8, BEHIND_BYTES),
        }
    }
}

/// The party for which write commands wait while the log is crowded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackpressureSource {
    /// The sequencer, because the ring is nearly full.
    Log,
    /// The writer of the append-only file, which has too much queued.
    Disk,
    /// A slow replica (`replica-slows-writers`).
    Replica,
}

/// Records that take more bytes than this in the ring are stored by reference, all records of one append in one
/// box.
const INLINE_BYTES_MAX: u64 = 64 << 10;

/// Number of checks of a record that another thread is appending, before the sequencer leaves the record to its
/// next pass.
const LOOKS: usize = 1_000;

/// Bits in the tags of the ring's records; the lower 32 bits are the database.
mod tag {
    /// Bit position of the audience: which readers get the record.
    pub(super) const AUDIENCE: u32 = 32;
    /// The record is the beginning of a transaction (MULTI).
    pub(super) const BEGIN: u64 = 1 << 40;
    /// The record is the end of a transaction (EXEC).
    pub(super) const END: u64 = 1 << 41;
    /// Continuation of the previous record.
    pub(super) const MORE: u64 = 1 << 42;
}

/// Bits for the threads that may sleep until something is appended.
mod sleeper {
    pub(super) const SEQUENCER: u8 = 1;
    /// The driver: a reader's thread that sequences in place of the sequencer.
    pub(super) const DRIVER: u8 = 2;
}

/// Data stored in the ring by reference.
enum OutOfLineData {
    /// A long argument of a command.
    Block(SharedBlock),
    /// All records of an append, and whether they are atomic.
    Records(Records, bool),
    /// A marker for the readers of an audience, its number, and whether the next record is preceded by a SELECT.
    Mark(Audience, u64, bool),
}

/// Counters of the log. Only the sequencer writes them: if appending threads wrote them, the cache line would
/// bounce between cores.
#[derive(Debug, Default)]
pub struct LogFigures {
    /// Records in the stream.
    pub records: AtomicU64,
    /// Bytes of the stream.
    pub bytes: AtomicU64,
}

/// The command log; see the module. Fields that change with each pass of the sequencer lie on cache lines of
/// their own: appenders read the rest.
pub struct OpLog {
    /// Created when the first reader or record needs it.
    ring: OnceLock<ByteRing<OutOfLineData>>,
    sequencer: OnceLock<Thread>,
    stream: CachePadded<Mutex<OpLogBuilder>>,
    /// The reader whose thread does the sequencing in place of the sequencer, if any.
    driver: Mutex<Option<Arc<OpLogReader>>>,
    is_driven: AtomicBool,
    /// The threads that are asleep until something is appended, as bits of `sleeper`.
    sleepers: AtomicU8,
    /// Whether replies wait until readers have processed appended records, so that the sequencer must not delay
    /// them to gather more.
    is_urgent: AtomicBool,
    readers: CachePadded<Mutex<Vec<Arc<dyn StreamReader>>>>,
    /// Audience bits of the readers that are too far behind, so that write commands must wait; 0 if none.
    behind: AtomicU8,
    /// The current [`Bounds`].
    ring_bytes: AtomicU64,
    behind_bytes_max: Arc<AtomicU64>,
    /// Bytes of data that the ring holds by reference.
    large_bytes: AtomicU64,
    /// Opens when the log is no longer crowded.
    room: CachePadded<Gate>,
    stops: AtomicBool,
    figures: CachePadded<LogFigures>,
}

impl Default for OpLog {
    fn default() -> OpLog {
        OpLog {
            ring: OnceLock::new(),
            sequencer: OnceLock::new(),
            stream: CachePadded::default(),
            driver: Mutex::new(None),
            is_driven: AtomicBool::new(false),
            sleepers: AtomicU8::new(0),
            is_urgent: AtomicBool::new(false),
            readers: CachePadded::default(),
            behind: AtomicU8::new(0),
            ring_bytes: AtomicU64::new(RING_BYTES.1),
            behind_bytes_max: Arc::new(AtomicU64::new(BEHIND_BYTES.1)),
            large_bytes: AtomicU64::new(0),
            room: CachePadded::default(),
            stops: AtomicBool::new(false),
            figures: CachePadded::default(),
        }
    }
}

impl OpLog {
    /// Returns the ring; the first call creates it.
    fn ring(&self) -> &ByteRing<OutOfLineData> {
        self.ring
            .get_or_init(|| ByteRing::new(self.ring_bytes.load(Relaxed) as usize))
    }

    /// Sets the limits. An existing ring keeps its size.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.ring_bytes.store(bounds.ring_bytes, Relaxed);
        self.behind_bytes_max.store(bounds.behind_bytes, Relaxed);
        self.look_at_readers();
    }

    /// Returns the bytes of the ring, including data stored by reference.
    pub fn ring_taken_bytes(&self) -> u64 {
        let ring = self.ring.get().map_or(0, ByteRing::capacity);
        ring + self.large_bytes.load(Relaxed)
    }

    /// Starts the sequencer, unless it runs.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.sequencer.get().is_some() {
            return Ok(());
        }
        self.ring();
        let log = Arc::clone(self);
        let thread = std::thread::Builder::new().name("basalt-log".to_owned());
        let thread = thread.spawn(move || sequencer::run(&log))?;
        // The value was not set before: only one thread, at startup, calls this.
        let _ = self.sequencer.set(thread.thread().clone());
        Ok(())
    }

    /// Returns the counters of the log.
    pub fn figures(&self) -> &LogFigures {
        &self.figures
    }

    /// Copies the current counters to the telemetry.
    pub fn publish(&self, told: &telemetry::CommandLogFigures) {
        let LogFigures { records, bytes } = &*self.figures;
        let copy = |from: &AtomicU64, to: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(records, &told.records);
        copy(bytes, &told.bytes);
        let sizes = |ring: &ByteRing<OutOfLineData>| (ring.len_bytes(), ring.capacity());
        let (used, capacity) = self.ring.get().map_or((0, 0), sizes);
        told.used_bytes.store(used, Relaxed);
        told.ring_bytes.store(capacity, Relaxed);
    }

    /// Returns the log position after everything appended so far.
    pub fn tail(&self) -> u64 {
        self.ring.get().map_or(0, ByteRing::tail)
    }

    /// True if commands that may write should wait before they lock shards.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        match self.ring.get() {
            Some(ring) => {
                ring.is_crowded() || self.behind.load(Relaxed) != 0 || self.has_much_by_reference()
            }
            None => false,
        }
    }

    fn has_much_by_reference(&self) -> bool {
        self.large_bytes.load(Relaxed) > self.behind_bytes_max.load(Relaxed)
    }

    /// Returns the source of the backpressure on write commands; `None` if the log is not crowded.
    pub fn awaited(&self) -> Option<BackpressureSource> {
        let file = Audience::FILE.0;
        match self.behind.load(Relaxed) {
            0 => self.is_crowded().then_some(BackpressureSource::Log),
            behind if behind & file != 0 => Some(BackpressureSource::Disk),
            _ => Some(BackpressureSource::Replica),
        }
    }

    /// Completes when `has_room` returns true. Checks `has_room` whenever the log may no longer be crowded, and
    /// at each [`OpLog::look_again`]. The caller must have no shard locked.
    pub fn poll_room(&self, cx: &mut Context<'_>, has_room: impl Fn() -> bool) -> Poll<()> {
        match has_room() {
            true => Poll::Ready(()),
            false => self.room.poll_next(cx, has_room),
        }
    }

    /// Makes the commands that wait in `OpLog::poll_room` check again.
    pub fn look_again(&self) {
        self.room.open();
    }

    /// Adds a reader with a queue, for everything appended from now on for `audience`.
    pub fn add_reader(&self, audience: Audience) -> Arc<OpLogReader> {
        let reader = Arc::new(OpLogReader::new(
            audience,
            Arc::clone(&self.behind_bytes_max),
        ));
        self.subscribe(Arc::clone(&reader) as _);
        reader
    }

    /// Adds a reader of everything appended from now on.
    pub fn subscribe(&self, reader: Arc<dyn StreamReader>) {
        self.readers.lock().push(reader);
    }

    /// Removes a reader; nothing more is pushed to it.
    pub fn remove_reader(&self, reader: &dyn StreamReader) {
        self.readers
            .lock()
            .retain(|one| !std::ptr::addr_eq(Arc::as_ptr(one), reader));
        reader.close();
        self.look_at_readers();
    }

    /// Checks whether write commands still have to wait; call after a reader has taken items or been removed.
    pub fn look_at_readers(&self) {
        let behind = behind(&self.readers.lock());
        self.behind.store(behind, Relaxed);
        if behind == 0 {
            self.room.open();
        }
    }

    /// Appends a marker for the readers of an audience; the next record after it is preceded by a SELECT. If
    /// the caller has locked all shards, the records before the marker are exactly the writes made so far.
    /// Returns the position after the marker.
    pub fn mark(&self, audience: Audience, number: u64) -> u64 {
        self.append_mark(audience, number, true)
    }

    /// Appends a marker that only tells readers where the stream is: what follows it needs what precedes it. Returns
    /// the position after the marker.
    pub fn mark_within(&self, audience: Audience, number: u64) -> u64 {
        self.append_mark(audience, number, false)
    }

    fn append_mark(&self, audience: Audience, number: u64, begins_part: bool) -> u64 {
        let mark = OutOfLineData::Mark(audience, number, begins_part);
        let mark = RingRecord::Boxed(0, Box::new(mark));
        let position = self
            .ring()
            .append(frame_bytes(size_of::<usize>()), std::iter::once(mark));
        self.wake();
        position
    }

    /// Appends a command that concerns the link to an audience and not data, in order but without a SELECT. Returns the
    /// position after it.
    pub fn tell(&self, audience: Audience, arguments: &[&[u8]]) -> u64 {
        let mut records = Records::default();
        let head = Head {
            stamp: 0,
            db: ANY_DB,
            audience,
        };
        records.push_bytes(head, arguments);
        self.append(&mut records, false)
    }

    /// Sets whether replies wait for appended records. If not, the sequencer waits a moment to gather more of
    /// them.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Relaxed);
    }

    #[inline]
    fn wake(&self) {
        // SeqCst: this load must come after the tail has moved; see `sleep` in the sequencer.
        if self.sleepers.load(SeqCst) != 0 {
            self.wake_now();
        }
    }

    #[cold]
    fn wake_now(&self) {
        let sleepers = self.sleepers.swap(0, SeqCst);
        if sleepers & sleeper::DRIVER != 0
            && let Some(driver) = &*self.driver.lock()
        {
            driver.nudge();
        } else if sleepers & sleeper::SEQUENCER != 0 {
            self.wake_sequencer();
        }
    }

    fn wake_sequencer(&self) {
        if let Some(thread) = self.sequencer.get() {
            thread.unpark();
        }
    }

    /// Makes the thread of a reader do the sequencing, by calling [`OpLog::drive`], which saves a hop through
    /// the sequencer's thread. `None` returns the sequencing to the sequencer.
    pub fn set_driver(&self, reader: Option<&Arc<OpLogReader>>) {
        *self.driver.lock() = reader.map(Arc::clone);
        self.is_driven.store(reader.is_some(), SeqCst);
        if reader.is_none() {
            self.wake_sequencer();
        }
    }

    /// Sequences appended records and takes those of the reader; called by the driving thread. Waits up to
    /// `patience` if there are none.
    pub fn drive(&self, reader: &OpLogReader, patience: Duration) -> Option<Stretch> {
        let ring = self.ring();
        if !sequencer::pass(self, ring) && ring.tail() == ring.head() {
            self.sleepers.fetch_or(sleeper::DRIVER, SeqCst);
            let patience = match ring.tail() == ring.head() {
                true => patience,
                false => Duration::ZERO,
            };
            let taken = reader.take(patience);
            self.sleepers.fetch_and(!sleeper::DRIVER, SeqCst);
            return taken;
        }
        reader.take(Duration::ZERO)
    }

    /// Passes everything appended by now to the readers, on the caller's thread: this only copies in memory,
    /// and no reader's push sleeps. Does not wait for records that another thread is still appending.
    pub fn hand_out(&self) {
        let ring = self.ring();
        let tail = ring.tail();
        let mut looks = 0;
        while ring.head() < tail && looks < LOOKS {
            if !sequencer::pass(self, ring) {
                looks += 1;
                std::hint::spin_loop();
            }
        }
        // Another thread may have taken records from the ring that it has not distributed yet: wait for it.
        drop(self.stream.lock());
    }

    /// Marks the driving thread as busy with something that may take long, such as a sync. Meanwhile the
    /// sequencer serves the other readers, if any.
    pub fn lend(&self, is_away: bool) {
        let is_driven = self.driver.lock().is_some();
        if !is_away {
            self.is_driven.store(is_driven, SeqCst);
        } else if is_driven && self.readers.lock().len() > 1 {
            self.is_driven.store(false, SeqCst);
            self.sleepers.fetch_or(sleeper::SEQUENCER, SeqCst);
            if self.tail() != self.ring().head() {
                self.wake_now();
            }
        }
    }

    /// Stops the sequencer after it has distributed all appended records.
    pub fn stop(&self) {
        self.stops.store(true, SeqCst);
        self.wake_sequencer();
    }
}

/// Returns the audience bits of all readers that are far behind.
fn behind(readers: &[Arc<dyn StreamReader>]) -> u8 {
    let far_behind = readers.iter().filter(|reader| reader.is_far_behind());
    far_behind.fold(0, |all, reader| all | reader.audience().0)
}

/// Returns the tag of a record.
fn tag_of(db: usize, audience: Audience) -> u64 {
    db as u64 | u64::from(audience.0) << tag::AUDIENCE
}

/// Returns the tag and the text of a single short record, which is what a thread nearly always appends when it
/// releases a shard; `None` for other records.
#[inline]
fn only_text(records: &Records) -> Option<(u64, &[u8])> {
    let record = records.only()?;
    let text = record.bytes.as_text()?;
    (frame_bytes(text.len()) <= INLINE_BYTES_MAX)
        .then(|| (tag_of(record.db, record.audience), text))
}

/// Returns how log records are stored in the ring: short parts as bytes, long arguments by reference.
fn frames(records: &Records) -> impl Iterator<Item = RingRecord<'_, OutOfLineData>> {
    records.iter().flat_map(|record| {
        let tag = tag_of(record.db, record.audience);
        record.bytes.enumerate().map(move |(index, piece)| {
            let tag = if index == 0 { tag } else { tag | tag::MORE };
            match piece {
                Piece::Bytes(bytes) => RingRecord::Bytes(tag, bytes),
                Piece::Block(block) => {
                    RingRecord::Boxed(tag, Box::new(OutOfLineData::Block(block.clone())))
                }
            }
        })
    })
}

/// Returns the bytes that records take in the ring.
fn frames_bytes(records: &Records) -> u64 {
    let pieces = records.iter().flat_map(|record| record.bytes);
    let one = |piece: Piece<'_>| match piece {
        Piece::Bytes(bytes) => frame_bytes(bytes.len()),
        Piece::Block(_) => frame_bytes(size_of::<usize>()),
    };
    pieces.map(one).sum()
}

/// Returns the bytes that records store by reference.
fn referenced_bytes(records: &Records) -> u64 {
    let pieces = records.iter().flat_map(|record| record.bytes);
    let blocks = pieces.map(|piece| match piece {
        Piece::Bytes(_) => 0,
        Piece::Block(block) => block.len() as u64,
    });
    blocks.sum()
}

impl OpLog {
    /// Adds to the count of bytes that the ring holds by reference, until the sequencer takes them.
    fn note_by_reference(&self, records: &Records, bytes: u64) {
        let whole = if bytes > INLINE_BYTES_MAX { bytes } else { 0 };
        let by_reference = whole + referenced_bytes(records);
        if by_reference > 0 {
            self.large_bytes.fetch_add(by_reference, Relaxed);
        }
    }
}

impl Log for OpLog {
    fn append(&self, records: &mut Records, is_atomic: bool) -> u64 {
        let ring = self.ring();
        if !is_atomic && let Some((tag, text)) = only_text(records) {
            let one = std::iter::once(RingRecord::Bytes(tag, text));
            let position = ring.append(frame_bytes(text.len()), one);
            self.wake();
            return position;
        }
        let bytes = frames_bytes(records);
        self.note_by_reference(records, bytes);
        let position = if bytes > INLINE_BYTES_MAX {
            let all = OutOfLineData::Records(std::mem::take(records), is_atomic);
            let all = RingRecord::Boxed(0, Box::new(all));
            ring.append(frame_bytes(size_of::<usize>()), std::iter::once(all))
        } else if is_atomic {
            let union = records
                .iter()
                .fold(Audience::NONE, |all, one| all.or(one.audience));
            let (begin, end) = (tag_of(0, union) | tag::BEGIN, tag_of(0, union) | tag::END);
            let begin = std::iter::once(RingRecord::Bytes(begin, &[]));
            let end = std::iter::once(RingRecord::Bytes(end, &[]));
            let bytes = bytes + 2 * frame_bytes(0);
            ring.append(bytes, begin.chain(frames(records)).chain(end))
        } else {
            ring.append(bytes, frames(records))
        };
        self.wake();
        position
    }
}

/// Encodes a command with short arguments.
fn command(arguments: &[&[u8]]) -> Bytes {
    let mut bytes = Vec::new();
    append(&mut bytes, arguments);
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests;
