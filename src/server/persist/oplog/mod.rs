//! The log: everything that has to leave the process in order passes through here.
//!
//! Holders of shards append their records to a ring (`structures::byte_ring`), which gives them their single order.
//! The **sequencer** thread takes the completed prefix, inserts SELECT, MULTI and EXEC, and distributes the stream
//! to **readers** ([`StreamReader`]) in reference-counted pieces, which they share: the writer of the append-only
//! file, the backlog of the replicas. Each reader takes at its own pace.
//!
//! Positions are bytes of the ring: [`Log::append`] returns the position after what was appended, and the sequencer
//! passes readers the position up to which they have everything.
//!
//! Limits: a thread that has locked a shard waits for the sequencer alone, which waits for no thread.
//! [`OpLog::is_crowded`] tells when commands that may write should wait before they lock shards: three quarters of
//! the ring are full, or a reader that must not lose anything holds more than [`Bounds`] allow. Both limits are
//! small where `maxmemory` is, as this memory comes on top of the data and never causes eviction.

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
use basalt_engine::record::{Audience, Log, Piece, Records};
use sequencer::OpLogBuilder;

pub use gate::{Gate, wait_at_relay};
pub use reader::{Home, OpLogItem, OpLogReader, StreamReader, Stretch};
pub use sequencer::BLOCK_BYTES;

/// Minimum and maximum bytes of the ring.
const RING_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// Minimum and maximum bytes of stream that a reader may hold before writers have to wait.
const BEHIND_BYTES: (u64, u64) = (4 << 20, 64 << 20);

/// Limits for the data waiting in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the ring, if it is yet to be created.
    pub ring_bytes: u64,
    /// Bytes of stream that a reader may hold before writers have to wait.
    pub behind_bytes: u64,
}

impl Bounds {
    /// Returns the bounds for this `maxmemory`, 0 for none: a ring of a 32nd of it, and an eighth of it for
    /// readers.
    #[must_use]
    pub fn for_limit(maxmemory: u64) -> Bounds {
        let part = |parts: u64, (least, most): (u64, u64)| match maxmemory {
            0 => most,
            limit => (limit / parts).clamp(least, most),
        };
        let ring_bytes = part(32, RING_BYTES);
        Bounds {
            // A power of two, not above its part.
            ring_bytes: 1 << ring_bytes.ilog2(),
            behind_bytes: part(8, BEHIND_BYTES),
        }
    }
}

/// The party that writers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackpressureSource {
    /// The log's own thread.
    Log,
    /// The append-only file.
    Disk,
    /// A replica (`replica-slows-writers`).
    Replica,
}

/// Records of more bytes in the ring are stored by reference, all those of one append in one box.
const INLINE_BYTES_MAX: u64 = 64 << 10;

/// Number of checks of a record that another thread is appending, before it is left to the next pass.
const LOOKS: usize = 1_000;

/// Flags in tags of the ring's records, besides the database in the lower half.
mod tag {
    /// Position of the audience's bits.
    pub(super) const AUDIENCE: u32 = 32;
    /// MULTI marker.
    pub(super) const BEGIN: u64 = 1 << 40;
    /// EXEC marker.
    pub(super) const END: u64 = 1 << 41;
    /// Continuation of the previous record.
    pub(super) const MORE: u64 = 1 << 42;
}

/// Bits of threads that sleep until something is appended.
mod sleeper {
    pub(super) const SEQUENCER: u8 = 1;
    /// The thread that sequences in its place.
    pub(super) const DRIVER: u8 = 2;
}

/// Data stored in the ring by reference.
enum OutOfLineData {
    /// A long argument.
    Block(SharedBlock),
    /// All records of an append, and whether they are atomic.
    Records(Records, bool),
    /// A marker for the readers of an audience, and its number.
    Mark(Audience, u64),
}

/// Counters of the log. Only the sequencer writes them: appenders would bounce the cache line between cores.
#[derive(Debug, Default)]
pub struct LogFigures {
    /// Records in the stream.
    pub records: AtomicU64,
    /// Bytes of the stream.
    pub bytes: AtomicU64,
}

/// The log of writes, see the module. Fields that change with each pass of the sequencer lie on cache lines of
/// their own: appenders read the rest.
pub struct OpLog {
    /// Created when the first reader or record needs it.
    ring: OnceLock<ByteRing<OutOfLineData>>,
    sequencer: OnceLock<Thread>,
    stream: CachePadded<Mutex<OpLogBuilder>>,
    /// The reader whose thread sequences, if any.
    driver: Mutex<Option<Arc<OpLogReader>>>,
    is_driven: AtomicBool,
    /// Threads that sleep until something is appended.
    sleepers: AtomicU8,
    /// A reply waits for appended records to arrive somewhere: the sequencer must not gather.
    is_urgent: AtomicBool,
    readers: CachePadded<Mutex<Vec<Arc<dyn StreamReader>>>>,
    /// Audience bits of readers that must not lose anything and are far behind; 0 if none is.
    behind: AtomicU8,
    /// [`Bounds`].
    ring_bytes: AtomicU64,
    behind_bytes_max: Arc<AtomicU64>,
    /// Bytes stored in the ring by reference.
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
    /// Returns the ring, creating it with the first call.
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
        // A second caller would have started a thread for nothing, which cannot happen: one thread sets the log up.
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

    /// Returns the position after everything appended.
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

    /// Returns what commands that may write should wait for, if anything.
    pub fn awaited(&self) -> Option<BackpressureSource> {
        let file = Audience::FILE.bits();
        match self.behind.load(Relaxed) {
            0 => self.is_crowded().then_some(BackpressureSource::Log),
            behind if behind & file != 0 => Some(BackpressureSource::Disk),
            _ => Some(BackpressureSource::Replica),
        }
    }

    /// Completes when `has_room` returns true; checks it whenever the log may no longer be crowded, and with
    /// [`OpLog::look_again`]. For callers that hold no shard.
    pub fn poll_room(&self, cx: &mut Context<'_>, has_room: impl Fn() -> bool) -> Poll<()> {
        match has_room() {
            true => Poll::Ready(()),
            false => self.room.poll_next(cx, has_room),
        }
    }

    /// Makes commands that wait for capacity check again.
    pub fn look_again(&self) {
        self.room.open();
    }

    /// Adds a queued reader of everything appended from now on.
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

    /// Removes a reader, which gets nothing more.
    pub fn remove_reader(&self, reader: &dyn StreamReader) {
        self.readers
            .lock()
            .retain(|one| !std::ptr::addr_eq(Arc::as_ptr(one), reader));
        reader.close();
        self.look_at_readers();
    }

    /// Checks whether writers still have to wait, after a reader has taken something or been removed.
    pub fn look_at_readers(&self) {
        let behind = behind(&self.readers.lock());
        self.behind.store(behind, Relaxed);
        if behind == 0 {
            self.room.open();
        }
    }

    /// Inserts a marker for the readers of an audience at this point of the order, and makes a SELECT follow it. If
    /// all shards are locked, everything before the marker precedes whatever is then done with the shards. Returns
    /// the position after it.
    pub fn mark(&self, audience: Audience, number: u64) -> u64 {
        let mark = RingRecord::Boxed(0, Box::new(OutOfLineData::Mark(audience, number)));
        let position = self
            .ring()
            .append(frame_bytes(size_of::<usize>()), std::iter::once(mark));
        self.wake();
        position
    }

    /// Sets whether appended records are waited for: if not, the sequencer gathers for a moment.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Relaxed);
    }

    #[inline]
    fn wake(&self) {
        // SeqCst: after the tail has moved; see the sequencer.
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

    /// Makes the thread of a reader do the sequencing, by [`OpLog::drive`], so that records reach it without
    /// another thread in between. `None` returns the sequencing to the sequencer.
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

    /// Passes everything appended by now to the readers, on the caller's thread: a pass only copies in memory, and
    /// no reader sleeps. Does not wait for records that another thread is still appending.
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
        // Another thread may have taken records and not distributed them yet.
        drop(self.stream.lock());
    }

    /// Marks the driving thread as busy with something that may take long: meanwhile the sequencer serves the other
    /// readers, if there are any.
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

    /// Stops the sequencer once it has taken everything.
    pub fn stop(&self) {
        self.stops.store(true, SeqCst);
        self.wake_sequencer();
    }
}

/// Returns the audiences of readers that are far behind.
fn behind(readers: &[Arc<dyn StreamReader>]) -> u8 {
    let far_behind = readers.iter().filter(|reader| reader.is_far_behind());
    far_behind.fold(0, |all, reader| all | reader.audience().bits())
}

/// Returns the tag of a record.
fn tag_of(db: usize, audience: Audience) -> u64 {
    db as u64 | u64::from(audience.bits()) << tag::AUDIENCE
}

/// Returns the tag and the text of a single short record, which is what nearly every hold of a shard appends.
#[inline]
fn only_text(records: &Records) -> Option<(u64, &[u8])> {
    let record = records.only()?;
    let text = record.bytes.as_text()?;
    (frame_bytes(text.len()) <= INLINE_BYTES_MAX)
        .then(|| (tag_of(record.db, record.audience), text))
}

/// Returns the ring's records for some log records: their bytes, and their long arguments by reference.
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
    /// Counts data stored in the ring by reference, until the sequencer takes it.
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
