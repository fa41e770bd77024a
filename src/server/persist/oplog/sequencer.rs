//! The sequencer: turns the records in the ring into one stream and pushes it to the readers.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::{OpLog, OutOfLineData, behind, command, frames_bytes, referenced_bytes, sleeper, tag};
use basalt_core::alloc::account::size_class;
use basalt_core::structures::byte_ring::{ByteRing, Taken};
use basalt_engine::record::{self, Audience, Piece, Records};

use super::reader::{Home, OpLogItem};

/// Minimum bytes of a memory block, from which pieces of the stream are cut. A piece keeps its whole block
/// alive, so a reader may keep up to a block more than the bytes it needs.
pub const BLOCK_BYTES: u64 = 8 << 10;

/// Maximum bytes of a block, used if at least as many bytes arrive in one pass, so that the block is full when
/// the pass ends.
const BLOCK_BYTES_MAX: u64 = 32 << 10;

/// Overhead of a block besides its bytes: the reference count of its pieces.
const BLOCK_OVERHEAD_BYTES: u64 = 48;

/// Maximum bytes taken from the ring in one pass.
const TAKEN_BYTES_MAX: u64 = 1 << 20;

/// Time for which the sequencer waits to gather records if no reply waits for them.
const GATHERING: Duration = Duration::from_millis(1);

/// Number of checks of an empty ring before sleeping, while replies wait.
const LOOKS: usize = 50;

/// Maximum time that the sequencer sleeps.
const NAP: Duration = Duration::from_secs(1);

/// Time that the sequencer sleeps while a driver sequences.
const ASIDE: Duration = Duration::from_millis(20);

/// Number of audiences: the file and the replicas.
const AUDIENCES: usize = 2;

/// The stream under construction.
pub(super) struct OpLogBuilder {
    /// For each audience, the database of the last SELECT in its stream, if any.
    selected: [Option<u64>; AUDIENCES],
    block: BytesMut,
    /// The memory block that pieces cut from `block` keep alive.
    home: Home,
    /// Approximate number of stream bytes at the end of this pass, for sizing blocks.
    pass_end: u64,
    /// Audience of the bytes at the end of `block` that are not yet cut off as a piece.
    block_audience: Audience,
    /// Finished pieces, with their audiences.
    pieces: Vec<(Audience, OpLogItem)>,
    bytes: u64,
    records: u64,
}

/// Returns the size of a block for `coming` bytes of data; the allocator's size class is used fully.
fn block_bytes(coming: u64) -> u64 {
    size_class(coming.clamp(BLOCK_BYTES, BLOCK_BYTES_MAX) as usize) as u64
}

fn home_of(block: NonZeroU64, bytes: u64) -> Home {
    Home {
        block: Some(block),
        bytes: bytes + BLOCK_OVERHEAD_BYTES,
    }
}

impl Default for OpLogBuilder {
    fn default() -> OpLogBuilder {
        OpLogBuilder {
            selected: [None; AUDIENCES],
            // Allocate the first block now, so that it is part of the memory use of the idle server.
            block: BytesMut::with_capacity(BLOCK_BYTES as usize),
            home: home_of(NonZeroU64::MIN, BLOCK_BYTES),
            pass_end: 0,
            block_audience: Audience::NONE,
            pieces: Vec::new(),
            bytes: 0,
            records: 0,
        }
    }
}

impl OpLogBuilder {
    /// Cuts off the bytes written to the block since the last piece as a new piece.
    fn cut(&mut self) {
        if !self.block.is_empty() {
            let bytes = self.block.split().freeze();
            self.pieces
                .push((self.block_audience, OpLogItem::Bytes(bytes, self.home)));
        }
    }

    /// Begins another block, with capacity for `coming` bytes, up to `BLOCK_BYTES_MAX`.
    fn begin_block(&mut self, coming: u64) {
        let bytes = block_bytes(coming);
        let last = self.home.block;
        let number = last.map_or(NonZeroU64::MIN, |last| last.saturating_add(1));
        self.home = home_of(number, bytes);
        self.block = BytesMut::with_capacity(bytes as usize);
    }

    /// Returns the memory that new blocks for `coming` bytes will take.
    fn new_blocks_bytes(&self, coming: u64) -> u64 {
        let room = (self.block.capacity() - self.block.len()) as u64;
        let beyond = coming.saturating_sub(room);
        let (full, rest) = (beyond / BLOCK_BYTES_MAX, beyond % BLOCK_BYTES_MAX);
        let rest_bytes = match rest {
            0 => 0,
            rest => block_bytes(rest) + BLOCK_OVERHEAD_BYTES,
        };
        full * (BLOCK_BYTES_MAX + BLOCK_OVERHEAD_BYTES) + rest_bytes
    }

    fn put(&mut self, audience: Audience, bytes: &[u8]) {
        if audience != self.block_audience {
            self.cut();
            self.block_audience = audience;
        }
        self.bytes += bytes.len() as u64;
        let mut left = bytes;
        loop {
            let room = self.block.capacity() - self.block.len();
            let (fits, more) = left.split_at(left.len().min(room));
            self.block.put_slice(fits);
            if more.is_empty() {
                return;
            }
            left = more;
            self.cut();
            let coming = left.len() as u64 + self.pass_end.saturating_sub(self.bytes);
            self.begin_block(coming);
        }
    }

    fn put_shared(&mut self, audience: Audience, bytes: Bytes) {
        self.cut();
        self.bytes += bytes.len() as u64;
        self.pieces.push((audience, OpLogItem::alone(bytes)));
    }

    /// Inserts SELECT for those audiences of a record that are in another database. Slot migrations read the
    /// records of all audiences.
    fn select(&mut self, audience: Audience, db: u64) {
        if db == record::ANY_DB as u64 {
            return;
        }
        let audience = audience.or(Audience::MOVES);
        for index in 0..AUDIENCES {
            let one = Audience::from_bits(1 << index);
            if !audience.any(one) || self.selected[index] == Some(db) {
                continue;
            }
            // Audiences that need the same SELECT share one.
            let others = (index..AUDIENCES)
                .filter(|other| audience.0 & 1 << other != 0 && self.selected[*other] != Some(db));
            let told = others.fold(Audience::NONE, |all, other| {
                all.or(Audience::from_bits(1 << other))
            });
            for (index, selected) in self.selected.iter_mut().enumerate() {
                if told.0 & 1 << index != 0 {
                    *selected = Some(db);
                }
            }
            let mut digits = itoa::Buffer::new();
            let select = command(&[b"SELECT", digits.format(db).as_bytes()]);
            self.put(told, &select);
        }
    }

    fn begin(&mut self, audience: Audience) {
        self.put(audience, b"*1\r\n$5\r\nMULTI\r\n");
    }

    fn end(&mut self, audience: Audience) {
        self.put(audience, b"*1\r\n$4\r\nEXEC\r\n");
    }

    /// Adds a record from the ring to the stream; returns how many of its bytes the ring held by reference.
    fn take(&mut self, taken: Taken<'_, OutOfLineData>, position: u64) -> u64 {
        let tag = match &taken {
            Taken::Bytes(tag, ..) | Taken::Boxed(tag, _) => *tag,
        };
        let audience = Audience::from_bits((tag >> tag::AUDIENCE) as u8);
        let db = tag & u64::from(u32::MAX);
        self.records += records_of(&taken);
        match taken {
            Taken::Bytes(..) if tag & tag::BEGIN != 0 => self.begin(audience),
            Taken::Bytes(..) if tag & tag::END != 0 => self.end(audience),
            Taken::Bytes(_, here, there) => {
                if tag & tag::MORE == 0 {
                    self.select(audience, db);
                }
                self.put(audience, here);
                if !there.is_empty() {
                    self.put(audience, there);
                }
            }
            Taken::Boxed(_, large) => match *large {
                OutOfLineData::Block(block) => {
                    let bytes = block.len() as u64;
                    self.put_shared(audience, block.into_bytes());
                    return bytes;
                }
                OutOfLineData::Records(records, is_atomic) => {
                    self.take_records(&records, is_atomic);
                    return frames_bytes(&records) + referenced_bytes(&records);
                }
                OutOfLineData::Mark(audience, number, begins_part) => {
                    self.cut();
                    for (index, selected) in self.selected.iter_mut().enumerate() {
                        if begins_part && audience.0 & 1 << index != 0 {
                            *selected = None;
                        }
                    }
                    self.pieces
                        .push((audience, OpLogItem::Mark(number, position)));
                }
            },
        }
        0
    }

    fn take_records(&mut self, records: &Records, is_atomic: bool) {
        let union = records
            .iter()
            .fold(Audience::NONE, |all, record| all.or(record.audience));
        if is_atomic {
            self.begin(union);
        }
        for record in records.iter() {
            self.select(record.audience, record.db as u64);
            for piece in record.bytes {
                match piece {
                    Piece::Bytes(bytes) => self.put(record.audience, bytes),
                    Piece::Block(block) => {
                        self.put_shared(record.audience, block.clone().into_bytes());
                    }
                }
            }
        }
        if is_atomic {
            self.end(union);
        }
    }
}

/// Returns how many log records begin with this item of the ring: none for a continuation.
fn records_of(taken: &Taken<'_, OutOfLineData>) -> u64 {
    match taken {
        Taken::Bytes(tag, ..) => u64::from(tag & (tag::BEGIN | tag::END | tag::MORE) == 0),
        Taken::Boxed(tag, large) => match &**large {
            OutOfLineData::Block(_) => u64::from(tag & tag::MORE == 0),
            OutOfLineData::Records(records, _) => records.len() as u64,
            OutOfLineData::Mark(..) => 0,
        },
    }
}

/// Runs the sequencer's thread until the log is stopped.
pub(super) fn run(log: &OpLog) {
    let ring = log.ring();
    let mut looks = 0;
    loop {
        if log.is_driven.load(SeqCst) && is_aside(log, ring) {
            std::thread::park_timeout(ASIDE);
            continue;
        }
        if pass(log, ring) {
            looks = 0;
            if !log.is_urgent.load(Relaxed) && ring.len_bytes() < ring.capacity() / 8 {
                std::thread::sleep(GATHERING);
            }
            continue;
        }
        if log.stops.load(SeqCst) && ring.tail() == ring.head() {
            return;
        }
        if ring.tail() != ring.head() || (looks < LOOKS && log.is_urgent.load(Relaxed)) {
            // Another thread is about to complete a record, or to append the next one.
            looks += 1;
            std::thread::yield_now();
            continue;
        }
        sleep(log, ring);
        looks = 0;
    }
}

/// True if a driver does the sequencing and makes progress.
fn is_aside(log: &OpLog, ring: &ByteRing<OutOfLineData>) -> bool {
    ring.len_bytes() < ring.capacity() / 8 && !log.stops.load(SeqCst)
}

/// Takes completed records from the ring and distributes them to the readers; returns whether there were any.
pub(super) fn pass(log: &OpLog, ring: &ByteRing<OutOfLineData>) -> bool {
    let stream = &mut *log.stream.lock();
    let mut position = ring.head();
    // Take no more than this, because readers are told the size in advance (`StreamReader::expect`).
    let coming = ring.len_bytes().min(TAKEN_BYTES_MAX);
    if coming == 0 {
        return false;
    }
    stream.pass_end = stream.bytes + coming;
    let readers = log.readers.lock().clone();
    let expected = stream.new_blocks_bytes(coming);
    if expected > 0 {
        readers.iter().for_each(|reader| reader.expect(expected));
    }
    let mut by_reference = 0;
    let taken = ring.take(coming, |record, end| {
        position = end;
        by_reference += stream.take(record, end);
    });
    if by_reference > 0 {
        log.large_bytes.fetch_sub(by_reference, Relaxed);
    }
    if taken == 0 {
        readers.iter().for_each(|reader| reader.expect(0));
        return false;
    }
    stream.cut();
    log.figures.bytes.store(stream.bytes, Relaxed);
    log.figures.records.store(stream.records, Relaxed);
    for reader in &readers {
        let own = stream
            .pieces
            .iter()
            .filter(|(audience, _)| audience.any(reader.audience()));
        reader.push(&mut own.map(|(_, item)| item.clone()), position);
    }
    stream.pieces.clear();
    log.behind.store(behind(&readers), Relaxed);
    if !log.is_crowded() {
        log.room.open();
    }
    true
}

/// Sleeps until something is appended. Either the appending thread sees that the sequencer sleeps, or the
/// sequencer sees that the tail has moved.
fn sleep(log: &OpLog, ring: &ByteRing<OutOfLineData>) {
    log.sleepers.fetch_or(sleeper::SEQUENCER, SeqCst);
    if ring.tail() == ring.head() && !log.stops.load(SeqCst) {
        std::thread::park_timeout(NAP);
    }
    log.sleepers.fetch_and(!sleeper::SEQUENCER, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_core::alloc::account::thread_bytes;

    #[test]
    fn what_blocks_take_is_known_before_and_said_of_each() {
        for coming in [1, 8_191, 8_193, 20_000, 32 << 10, 100_001, 1 << 20] {
            let mut stream = OpLogBuilder::default();
            stream.pieces.reserve(20_000);
            stream.put(Audience::BOTH, b"x");
            stream.cut();
            for _ in 0..3 {
                let (before, known) = (thread_bytes(), stream.home.block);
                stream.pass_end = stream.bytes + coming;
                let expected = stream.new_blocks_bytes(coming);
                for at in (0..coming).step_by(100) {
                    let audience = [Audience::FILE, Audience::REPLICAS][(at / 700 % 2) as usize];
                    stream.put(audience, &[b'x'; 100][..(coming - at).min(100) as usize]);
                }
                stream.cut();
                assert_eq!(thread_bytes() - before, expected.cast_signed(), "{coming}");
                let homes = stream.pieces.iter().filter_map(|(_, item)| match item {
                    OpLogItem::Bytes(_, home) if home.block > known => Some(*home),
                    _ => None,
                });
                let mut homes: Vec<Home> = homes.collect();
                homes.dedup();
                let said: u64 = homes.iter().map(|home| home.bytes).sum();
                assert_eq!(said, expected, "{coming}");
            }
        }
    }

    #[test]
    fn a_record_goes_on_in_the_next_block() {
        let mut stream = OpLogBuilder::default();
        let record: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        stream.put(Audience::REPLICAS, &record);
        stream.put(Audience::FILE, &record[..5_000]);
        stream.cut();
        let of = |audience: Audience| -> Vec<Bytes> {
            let pieces = stream.pieces.iter().filter(|piece| piece.0 == audience);
            let bytes = pieces.map(|(_, item)| match item {
                OpLogItem::Bytes(bytes, _) => bytes.clone(),
                OpLogItem::Mark(..) => unreachable!("there is none"),
            });
            bytes.collect()
        };
        assert!(of(Audience::REPLICAS).concat() == record);
        assert!(of(Audience::FILE).concat() == record[..5_000]);
        assert_eq!(of(Audience::REPLICAS)[0].len() as u64, BLOCK_BYTES);
        assert_eq!(stream.bytes, 105_000);
    }
}
