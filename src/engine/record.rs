//! Command records: the commands to log for one locked section, which reproduce its changes elsewhere.
//!
//! A record is one command in RESP, with its database and its readers. Records are written while the shards are
//! locked and are kept with the effects of their shard ([`Effects`]), which discard them with the effects of a
//! transaction or script that is rolled back. When a command, transaction, script or slice of expiry is over, the
//! records of all its shards are merged by their stamps and handed to the [`Log`] in one piece ([`append`]), so that
//! the log's order agrees with the order of each shard and of each connection.
//!
//! Arguments of at least [`LONG_BYTES_MIN`] bytes are not copied: the record shares their block.
//!
//! Invariant: nothing is recorded unless something reads the log ([`Interest::is_logging`]).
//!
//! [`Effects`]: super::effect::Effects
//! [`Interest::is_logging`]: super::effect::Interest::is_logging

use super::Engine;
use basalt_core::bit_set;
use basalt_core::structures::block::{Content, LONG_BYTES_MIN, SharedBlock};

/// Buffer capacity for records, in bytes, that a shard keeps when it is unlocked.
const ROOM_BYTES_MAX: usize = 64 * 1024;

/// Maximum protocol bytes around a short argument: the line with its length, and the line end after it.
const LINES_BYTES_MAX: usize = 10;

bit_set! {
    /// The readers of a record, as a set.
    #[derive(Debug)]
    pub struct Audience(pub u8) {
        /// The append-only file is the only reader.
        FILE;
        /// The replicas are the only readers.
        REPLICAS;
        /// Slot migrations to other nodes of a cluster: they read everything that the file or the replicas read, and
        /// markers that are for them alone.
        MOVES;
    }
}

impl Audience {
    /// The append-only file and the replicas.
    pub const BOTH: Audience = Audience::FILE.or(Audience::REPLICAS);

    /// Returns the set with these bits; unknown bits are ignored.
    pub const fn from_bits(bits: u8) -> Audience {
        Audience(bits).and(Audience::BOTH.or(Audience::MOVES))
    }
}

impl Default for Audience {
    fn default() -> Audience {
        Audience::BOTH
    }
}

/// The database index of records that do not depend on the selected database.
pub const ANY_DB: usize = u32::MAX as usize;

/// The position and the readers of a record.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Position of the record within its section; records with the same stamp stay in their original order.
    pub stamp: u64,
    /// The database in which the command runs.
    pub db: usize,
    /// The readers of the record.
    pub audience: Audience,
}

/// One record: a command to be logged.
pub struct Record<'a> {
    /// Position of the record within its section.
    pub stamp: u64,
    /// The database in which the command runs.
    pub db: usize,
    /// The readers of the record.
    pub audience: Audience,
    /// One command in RESP, in pieces.
    pub bytes: Pieces<'a>,
}

/// A piece of a record.
#[derive(Clone, Copy)]
pub enum Piece<'a> {
    /// Bytes that the reader must copy.
    Bytes(&'a [u8]),
    /// A long argument, which can be shared.
    Block(&'a SharedBlock),
}

impl<'a> Piece<'a> {
    /// Returns the bytes of the piece.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Block(block) => block,
        }
    }
}

/// The pieces of a record, in order; none is empty.
#[derive(Clone)]
pub struct Pieces<'a> {
    text: &'a [u8],
    /// Offset of `text` in the text of all records of the section.
    at: usize,
    blocks: &'a [(usize, SharedBlock)],
}

impl<'a> Pieces<'a> {
    /// Returns the bytes of all pieces.
    pub fn len_bytes(&self) -> usize {
        let blocks = self.blocks.iter().map(|(_, block)| block.len());
        self.text.len() + blocks.sum::<usize>()
    }

    /// Returns the whole record as one slice, if it contains no shared block.
    #[inline]
    pub fn as_text(&self) -> Option<&'a [u8]> {
        self.blocks.is_empty().then_some(self.text)
    }

    /// Returns all pieces, concatenated.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len_bytes());
        self.clone()
            .for_each(|piece| all.extend_from_slice(piece.bytes()));
        all
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let until = match self.blocks.first() {
            Some((at, block)) if *at == self.at => {
                self.blocks = &self.blocks[1..];
                return Some(Piece::Block(block));
            }
            Some((at, _)) => at - self.at,
            None => self.text.len(),
        };
        let (piece, rest) = self.text.split_at(until);
        self.text = rest;
        self.at += until;
        (!piece.is_empty()).then_some(Piece::Bytes(piece))
    }
}

/// The end of a record in the text of all records.
#[derive(Clone, Copy)]
struct RecordEnd {
    head: Head,
    text: usize,
    blocks: usize,
}

/// The records of one locked section, in order.
#[derive(Default)]
pub struct Records {
    /// RESP of all records, without arguments that are blocks.
    text: Vec<u8>,
    /// Long arguments, each with the position in `text` before which it belongs.
    blocks: Vec<(usize, SharedBlock)>,
    ends: Vec<RecordEnd>,
}

impl Records {
    /// Adds a command with its arguments, the name first.
    pub fn push<'a>(&mut self, head: Head, arguments: impl ExactSizeIterator<Item = Content<'a>>) {
        self.begin(arguments.len());
        arguments.for_each(|argument| self.argument(argument));
        self.end(head);
    }

    /// Adds a command with short arguments.
    pub fn push_bytes(&mut self, head: Head, arguments: &[&[u8]]) {
        self.push(head, arguments.iter().map(|bytes| Content::from(*bytes)));
    }

    /// Begins a command with `count` arguments, which are added one by one.
    pub fn begin(&mut self, count: usize) {
        self.length(b'*', count);
    }

    /// Adds an argument to the current command.
    #[inline]
    pub fn argument(&mut self, argument: Content<'_>) {
        if argument.len() < LONG_BYTES_MIN {
            self.text.reserve(argument.len() + LINES_BYTES_MAX);
        }
        self.length(b'$', argument.len());
        match argument.block() {
            Some(block) if argument.len() >= LONG_BYTES_MIN => {
                self.blocks.push((self.text.len(), block.clone()));
            }
            None if argument.len() >= LONG_BYTES_MIN => {
                self.blocks
                    .push((self.text.len(), SharedBlock::new(&argument)));
            }
            _ => self.text.extend_from_slice(&argument),
        }
        self.text.extend_from_slice(b"\r\n");
    }

    /// Ends the current command.
    pub fn end(&mut self, head: Head) {
        self.ends.push(RecordEnd {
            head,
            text: self.text.len(),
            blocks: self.blocks.len(),
        });
    }

    #[inline]
    fn length(&mut self, sign: u8, length: usize) {
        // Nearly all lengths have one digit or two; the general conversion costs a division for each digit.
        if length < 100 {
            let digits = [b'0' + (length / 10) as u8, b'0' + (length % 10) as u8];
            let line = [sign, digits[0], digits[1], b'\r', b'\n'];
            match length < 10 {
                true => self
                    .text
                    .extend_from_slice(&[sign, digits[1], b'\r', b'\n']),
                false => self.text.extend_from_slice(&line),
            }
            return;
        }
        self.text.push(sign);
        let mut digits = itoa::Buffer::new();
        self.text
            .extend_from_slice(digits.format(length).as_bytes());
        self.text.extend_from_slice(b"\r\n");
    }

    /// Returns the record at an index.
    fn get(&self, index: usize) -> Record<'_> {
        let end = &self.ends[index];
        let (text, blocks) = match index.checked_sub(1) {
            Some(before) => (self.ends[before].text, self.ends[before].blocks),
            None => (0, 0),
        };
        Record {
            stamp: end.head.stamp,
            db: end.head.db,
            audience: end.head.audience,
            bytes: Pieces {
                text: &self.text[text..end.text],
                at: text,
                blocks: &self.blocks[blocks..end.blocks],
            },
        }
    }

    /// Returns all records, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns the record if there is exactly one, otherwise None.
    #[inline]
    pub fn only(&self) -> Option<Record<'_>> {
        (self.len() == 1).then(|| self.get(0))
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of all records, including shared blocks.
    pub fn len_bytes(&self) -> usize {
        let blocks = self.blocks.iter().map(|(_, block)| block.len());
        self.text.len() + blocks.sum::<usize>()
    }

    /// Removes all records, keeping some capacity.
    pub fn clear(&mut self) {
        if self.text.capacity() > ROOM_BYTES_MAX {
            *self = Records::default();
        }
        self.truncate(0);
    }

    /// Removes all records after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let last = len.checked_sub(1).and_then(|last| self.ends.get(last));
        let (text, blocks) = match (last, len) {
            (_, 0) => (0, 0),
            (Some(end), _) => (end.text, end.blocks),
            (None, _) => return,
        };
        self.text.truncate(text);
        self.blocks.truncate(blocks);
        self.ends.truncate(len);
    }

    /// Merges the records of several shards, and records made outside of them, by stamp. The sources are left empty.
    pub fn merge(sources: &mut [&mut Records]) -> Records {
        let mut order: Vec<(u64, usize, usize)> = Vec::new();
        let mut merged = Records::default();
        for (source, records) in sources.iter().enumerate() {
            let heads = records.ends.iter().enumerate();
            order.extend(heads.map(|(index, end)| (end.head.stamp, source, index)));
        }
        order.sort();
        for (_, source, index) in order {
            merged.take_over(sources[source].get(index));
        }
        sources.iter_mut().for_each(|records| records.clear());
        merged
    }

    fn take_over(&mut self, record: Record<'_>) {
        for piece in record.bytes {
            match piece {
                Piece::Bytes(bytes) => self.text.extend_from_slice(bytes),
                Piece::Block(block) => self.blocks.push((self.text.len(), block.clone())),
            }
        }
        self.end(Head {
            stamp: record.stamp,
            db: record.db,
            audience: record.audience,
        });
    }
}

/// The destination of records.
pub trait Log: Send + Sync {
    /// Appends the records of one locked section as one contiguous piece, while all its shards are locked. Returns
    /// the log position after them. There is at least one record. The implementation may take the records; what it
    /// leaves is dropped.
    ///
    /// `is_atomic`: every reader gets its part of the records, if any, between MULTI and EXEC.
    fn append(&self, records: &mut Records, is_atomic: bool) -> u64;
}

/// Appends the records of shards that are locked together, merged by stamp with the records made outside of the
/// shards (`beside`), and stores the log position in the shards. Returns the position; None if there was nothing to
/// append but the deletions of keys that expired or were evicted, or no reader.
///
/// `is_unit`: the records are those of one command, one transaction or one script, and if there are several of
/// them, they take effect together or not at all. Keys that expire or are evicted on their own are appended one by
/// one.
pub fn append(all: &mut [&mut Engine], beside: &mut Records, is_unit: bool) -> Option<u64> {
    if let ([engine], true) = (&mut *all, beside.is_empty()) {
        return engine.effects.append_records(is_unit);
    }
    if all.is_empty() {
        // The caller has no shard and appends its records itself.
        return None;
    }
    let mut has_writes = !beside.is_empty();
    for engine in all.iter_mut() {
        has_writes |= engine.effects.take_has_writes();
    }
    let mut sources: Vec<&mut Records> = Vec::with_capacity(all.len() + 1);
    sources.extend(all.iter_mut().map(|engine| engine.effects.records_mut()));
    sources.push(beside);
    let mut merged = Records::merge(&mut sources);
    if merged.is_empty() {
        return None;
    }
    let is_atomic = is_unit && merged.len() > 1;
    let mut appended = all.iter().map(|engine| {
        let effects = &engine.effects;
        effects.append_for_several(&mut merged, is_atomic)
    });
    let position = appended
        .find_map(|position| position)
        .filter(|_| has_writes)?;
    for engine in all {
        engine.effects.note_log_position(position);
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(stamp: u64) -> Head {
        Head {
            stamp,
            db: 0,
            audience: Audience::BOTH,
        }
    }

    fn texts(records: &Records) -> Vec<String> {
        let text = |record: Record<'_>| String::from_utf8_lossy(&record.bytes.to_vec()).into();
        records.iter().map(text).collect()
    }

    #[test]
    fn commands_are_written_in_resp_and_can_be_cut_off_again() {
        let mut records = Records::default();
        records.push_bytes(head(1), &[b"SET", b"k", b"v"]);
        records.push_bytes(head(2), &[b"DEL", b""]);
        let (set, del) = (
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
            "*2\r\n$3\r\nDEL\r\n$0\r\n\r\n",
        );
        assert_eq!(texts(&records), [set, del]);
        assert_eq!(records.len_bytes(), set.len() + del.len());
        records.truncate(1);
        assert_eq!(texts(&records), [set]);
        records.truncate(5);
        assert_eq!(records.len(), 1);
        records.clear();
        assert!(records.is_empty() && records.len_bytes() == 0);
    }

    #[test]
    fn long_arguments_are_shared() {
        let block = SharedBlock::new(&[b'x'; LONG_BYTES_MIN]);
        let mut records = Records::default();
        records.push_bytes(head(1), &[b"PING"]);
        let arguments = [
            Content::from(&b"SET"[..]),
            Content::from(&block),
            Content::from(&block),
        ];
        records.push(head(2), arguments.into_iter());
        records.push_bytes(head(3), &[b"PING"]);
        let pieces: Vec<Piece<'_>> = records.iter().nth(1).expect("one").bytes.collect();
        let is_shared = |piece: &&Piece<'_>| matches!(piece, Piece::Block(shared) if shared.as_ptr() == block.as_ptr());
        assert_eq!(pieces.iter().filter(is_shared).count(), 2);
        let text: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.bytes().to_vec())
            .collect();
        let x = "x".repeat(LONG_BYTES_MIN);
        let wanted = format!("*3\r\n$3\r\nSET\r\n$16384\r\n{x}\r\n$16384\r\n{x}\r\n");
        assert!(text == wanted.as_bytes());
        assert_eq!(
            records.len_bytes(),
            wanted.len() + 2 * "*1\r\n$4\r\nPING\r\n".len()
        );
        assert_eq!(texts(&records)[2], "*1\r\n$4\r\nPING\r\n");
        records.truncate(1);
        assert!(records.blocks.is_empty());
    }

    #[test]
    fn what_is_beside_no_shard_stays_for_whoever_knows_the_log() {
        let mut records = Records::default();
        records.push_bytes(head(1), &[b"PING"]);
        assert_eq!(append(&mut [], &mut records, true), None);
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn records_of_several_shards_come_by_stamp_and_as_they_came_where_it_is_the_same() {
        let mut all = [Records::default(), Records::default(), Records::default()];
        for (source, stamp, name) in [
            (0, 3, "c"),
            (0, 9, "f"),
            (1, 1, "a"),
            (1, 2, "b"),
            (1, 4, "d"),
            (2, 4, "e"),
        ] {
            all[source].push_bytes(head(stamp), &[name.as_bytes()]);
        }
        let [first, second, third] = &mut all;
        let merged = Records::merge(&mut [first, second, third]);
        let names: String = merged
            .iter()
            .map(|record| char::from(record.bytes.to_vec()[8]))
            .collect();
        assert_eq!(names, "abcdef");
        assert!(all.iter().all(Records::is_empty));
    }
}
