//! Snapshots of a shard: what all databases hold at one moment, the cut, saved in slices while commands go on.
//!
//! ```text
//! cut      each table flips its parity, so that every entry counts as unsaved; what is inserted from now on
//!          counts as saved
//! walker   goes over a table in the order of hashes, slice by slice, and saves what is not saved yet
//! hook     a change, overwriting, taking out or deletion of an unsaved entry saves it first
//!          ([`Db::save`] and its like)
//! ```
//!
//! Every entry of the cut is saved exactly once, as it was then. The parity stands in the entry's slot and goes
//! wherever the slot goes, so growth, splits, merges and defragmentation between two slices change nothing; the walk
//! over the table may come by an entry twice, which the parity tells, but leaves none out. An exchanged database keeps
//! the number that it had; a flushed one is kept until the walker is through with it. What is rolled back was saved
//! when it first changed.
//!
//! A large collection is saved by the piece ([`large`]), so that neither the walk nor a write holds the shard for long.
//! What is still to be saved of it goes with it: a database that gets one under way takes part in the snapshot until it
//! is saved, and one that was deleted or replaced is kept aside.
//!
//! Knows no format and no file: an [`Outlet`] encodes entries and takes what is encoded. A snapshot that is given up
//! still has to mark its entries, without encoding them, as the next cut takes all entries for saved.

pub mod alone;
pub(crate) mod large;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fences::ByKey;
use super::marks::Marks;
use super::serial::pieces::Shape;
use super::value::{Object, Piece};
use basalt_core::alloc::account;
use basalt_core::structures::block::Block;
use basalt_core::structures::entry::{Entry, EntryRef};
use large::{Large, is_large};

/// Encoded entries are handed on when there are this many bytes of them, strings in blocks included.
const CHUNK_BYTES: usize = 64 * 1024;

/// A chunk is full when less than one part in so many of it is free, and keeps no more room than such a part.
const FULL_PARTS: usize = 16;

/// The room that a chunk begins with: doubled again and again, it is just a chunk.
const ROOM_BYTES: usize = CHUNK_BYTES / FULL_PARTS;

/// Slots that the walker looks at between two looks at its time. The entries of a step are fetched together.
const STEP_SLOTS: usize = 16;

/// Bytes that are encoded between two looks at the time, where entries are large.
const LOOK_BYTES: usize = 4 * 1024;

/// Which pieces belong together, and in their order: those of one large collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Of no other collection in this snapshot.
    pub id: u64,
    /// Nothing follows.
    pub is_last: bool,
}

/// Encoded entries of one database.
#[derive(Default)]
pub struct Chunk {
    /// Number of the database at the cut.
    pub db: usize,
    /// Entries.
    pub keys: u64,
    /// Encoded entries, but for what lies in blocks.
    pub bytes: Vec<u8>,
    /// Strings that are shared instead of copied: each belongs before the byte at its position.
    pub blocks: Vec<(usize, Block)>,
    /// Bytes of these strings.
    block_bytes: usize,
    /// A part of a large collection.
    pub stream: Option<Stream>,
}

impl Chunk {
    fn of(db: usize) -> Chunk {
        Chunk {
            db,
            ..Chunk::default()
        }
    }

    /// Puts a string behind what was encoded so far, without copying it.
    pub fn push_block(&mut self, block: &Block) {
        self.put_block(self.bytes.len(), block.clone());
    }

    /// Puts a string between what was encoded, behind all other strings.
    pub fn put_block(&mut self, position: usize, block: Block) {
        self.block_bytes += block.len();
        self.blocks.push((position, block));
    }

    /// Whether nothing is in it yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    /// Whether it is to be handed on. A vector doubles its room, so it is full a little before that would be more than
    /// a chunk: what waits for a slow sink takes no more than was encoded.
    fn is_full(&self) -> bool {
        self.len_bytes() >= CHUNK_BYTES - CHUNK_BYTES / FULL_PARTS
    }

    /// Gives back room that takes more than one part in so many of what it holds.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() - self.bytes.len() > self.len_bytes() / FULL_PARTS {
            self.bytes.shrink_to_fit();
        }
    }

    /// Bytes that it holds, copied or not.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.block_bytes
    }
}

/// How far a large collection is written.
#[derive(Clone, Copy)]
pub struct Begun<'a> {
    /// Key of the collection.
    pub key: &'a [u8],
    /// What it was at the cut.
    pub shape: &'a Shape,
    /// Elements written so far; nodes, of a stream.
    pub written: u64,
}

/// Where a snapshot goes. It is called with a shard's token in hand, by one thread for each shard, and never waits.
pub trait Outlet: Send + Sync {
    /// Appends an entry to a chunk as it is to be saved.
    fn encode(&self, entry: EntryRef<'_, Object>, marks: &Marks<'_>, chunk: &mut Chunk);

    /// Whether a large collection can be taken by the piece.
    fn takes_pieces(&self, entry: EntryRef<'_, Object>) -> bool;

    /// A large collection begins, of which the pieces follow.
    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        marks: &Marks<'_>,
        chunk: &mut Chunk,
    ) -> Shape;

    /// Appends a piece of a large collection, before which there were others; how many elements that is. Those are left
    /// out whose time had come.
    fn encode_piece(&self, piece: &Piece<'_>, at: &Begun<'_>, chunk: &mut Chunk) -> u64;

    /// Appends what follows the last piece.
    fn end_large(&self, at: &Begun<'_>, chunk: &mut Chunk);

    /// A number for the chunks of a large collection, which is under way from now on.
    fn begin_stream(&self) -> u64;

    /// One of those that were under way is not any more.
    fn end_stream(&self);

    /// Takes a chunk. The order of chunks does not matter, but for those of one stream.
    fn give(&self, chunk: Chunk);

    /// An entry of so many bytes was saved out of turn, as it was about to change.
    fn note_copied(&self, bytes: usize);

    /// What was given is worth nothing.
    fn fail(&self, why: &'static str);

    /// Whether the snapshot was given up, so that nothing needs to be encoded any more.
    fn is_given_up(&self) -> bool;
}

/// One database at the cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbAtCut {
    /// Number of the database.
    pub number: usize,
    /// Keys, those included whose time has come and that are still there.
    pub keys: u64,
    /// Keys with a deadline.
    pub volatile_keys: u64,
    /// The fences of locks, of each shard that has any.
    pub fences: Vec<Arc<ByKey>>,
}

/// What a database knows of the snapshot that it has a part in.
pub(super) struct Saving {
    outlet: Arc<dyn Outlet>,
    /// Where the walk goes on.
    cursor: u64,
    chunk: Chunk,
    /// Bytes encoded so far.
    encoded_bytes: usize,
    /// The walk has seen all of the table.
    is_walked: bool,
    /// The keys of large collections that are saved by the piece.
    larges: BTreeSet<Box<[u8]>>,
    /// The one that the walk is in.
    open: Option<Box<[u8]>>,
}

impl Saving {
    fn new(number: usize, outlet: Arc<dyn Outlet>) -> Saving {
        Saving {
            outlet,
            cursor: 0,
            chunk: Chunk::of(number),
            encoded_bytes: 0,
            is_walked: false,
            larges: BTreeSet::new(),
            open: None,
        }
    }

    /// Whether an entry is to be saved by the piece.
    fn is_by_piece(&self, entry: EntryRef<'_, Object>) -> bool {
        is_large(entry) && !self.outlet.is_given_up() && self.outlet.takes_pieces(entry)
    }

    /// Begins to save an entry by the piece; charged to no account.
    #[cold]
    fn begin(&mut self, entry: &mut Entry<Object>, marks: &Marks<'_>) {
        account::apart(|| {
            Large::begin(entry, marks, self.chunk.db, &self.outlet);
            self.larges.insert(entry.view().key().into());
        });
    }

    /// An entry that is saved by the piece has left.
    fn forget(&mut self, key: &[u8]) {
        account::apart(|| {
            self.larges.remove(key);
            self.open.take_if(|open| **open == *key);
        });
    }

    fn encode(&mut self, entry: EntryRef<'_, Object>, marks: &Marks<'_>) {
        if self.outlet.is_given_up() {
            return;
        }
        account::apart(|| {
            if self.chunk.bytes.capacity() == 0 {
                self.chunk.bytes.reserve_exact(ROOM_BYTES);
            }
            self.chunk.keys += 1;
            let before = self.chunk.bytes.len();
            self.outlet.encode(entry, marks, &mut self.chunk);
            self.encoded_bytes += self.chunk.bytes.len() - before;
            if self.chunk.is_full() {
                let next = Chunk::of(self.chunk.db);
                self.outlet.give(std::mem::replace(&mut self.chunk, next));
            }
        });
    }
}
