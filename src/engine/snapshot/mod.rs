//! Snapshots of a shard: the contents of all databases at one moment, the cut, saved in slices while commands go
//! on.
//!
//! ```text
//! cut      each table flips its parity, so that every entry counts as unsaved; entries inserted from now on
//!          count as saved
//! walker   goes over a table in the order of hashes, slice by slice, and saves what is not saved yet
//! hook     before an unsaved entry is changed, overwritten, taken out or deleted, it is saved
//!          ([`Db::save`] and its like)
//! ```
//!
//! Every entry of the cut is saved exactly once, in its state at the cut. The parity is stored in the entry's slot
//! and moves with the slot, so growth, splits, merges and defragmentation between two slices change nothing; the walk
//! over the table may visit an entry twice, which the parity reveals, but leaves none out. A swapped database is
//! saved under the number that it had at the cut; a flushed one is kept until the snapshot has saved it. Rolled back
//! changes were saved when they were first made.
//!
//! A large collection is saved in pieces ([`large`]), so that neither the walk nor a write holds the shard for
//! long. The rest to be saved moves with it: a database that receives one in progress takes part in the snapshot
//! until it is saved, and one that was deleted or replaced is kept aside.
//!
//! This module knows no formats and no files: an [`Outlet`] encodes entries and takes the result. An aborted snapshot
//! still has to mark its entries, without encoding them, as the next cut assumes that all entries are saved.

pub mod alone;
pub(crate) mod large;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::blessed::ByHash;
use super::fences::ByKey;
use super::marks::Marks;
use super::serial::pieces::CollectionShape;
use super::value::{CollectionPiece, Object};
use basalt_core::alloc::account;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::entry::{Entry, EntryRef};
use large::{LargeCollectionSave, is_large};

/// Encoded entries are passed to the outlet once there are this many bytes of them, including strings in blocks.
const CHUNK_BYTES: usize = 64 * 1024;

/// A chunk counts as full when less than this fraction of it is free, and its unused capacity may be at most this
/// fraction.
const FULL_PARTS: usize = 16;

/// The initial capacity of a chunk: repeated doubling leads exactly to the size of a chunk.
const ROOM_BYTES: usize = CHUNK_BYTES / FULL_PARTS;

/// Slots that the walk examines between two checks of the time. The entries of a step are prefetched together.
const STEP_SLOTS: usize = 16;

/// Bytes encoded between two checks of the time, in case that entries are large.
const LOOK_BYTES: usize = 4 * 1024;

/// Identifies the chunks of one large collection: they must be written together, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Unique among the collections of this snapshot.
    pub id: u64,
    /// True for the last chunk of the collection.
    pub is_last: bool,
}

/// Encoded entries of one database.
#[derive(Default)]
pub struct Chunk {
    /// Number of the database at the cut.
    pub db: usize,
    /// Number of entries in the chunk.
    pub keys: u64,
    /// Encoded entries, without strings in blocks.
    pub bytes: Vec<u8>,
    /// Strings that are shared instead of copied: each belongs before the byte at its position.
    pub blocks: Vec<(usize, SharedBlock)>,
    /// Bytes of the strings in `blocks`.
    block_bytes: usize,
    /// Set for a part of a large collection.
    pub stream: Option<Stream>,
}

impl Chunk {
    fn of(db: usize) -> Chunk {
        Chunk {
            db,
            ..Chunk::default()
        }
    }

    /// Appends a string without copying it.
    pub fn push_block(&mut self, block: &SharedBlock) {
        self.put_block(self.bytes.len(), block.clone());
    }

    /// Inserts a string at a position of the encoded bytes, after all other strings.
    pub fn put_block(&mut self, position: usize, block: SharedBlock) {
        self.block_bytes += block.len();
        self.blocks.push((position, block));
    }

    /// True if the chunk is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    /// True if the chunk is to be passed on. A vector doubles its capacity, so a chunk counts as full a little before
    /// that would exceed its size: chunks waiting for a slow sink use no more memory than was encoded.
    fn is_full(&self) -> bool {
        self.len_bytes() >= CHUNK_BYTES - CHUNK_BYTES / FULL_PARTS
    }

    /// Releases unused capacity if it is more than the permitted fraction of the chunk.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() - self.bytes.len() > self.len_bytes() / FULL_PARTS {
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns the bytes of the chunk, with those of shared strings.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.block_bytes
    }
}

/// The progress of writing a large collection.
#[derive(Clone, Copy)]
pub struct CollectionProgress<'a> {
    /// Key of the collection.
    pub key: &'a [u8],
    /// Shape of the collection at the cut.
    pub shape: &'a CollectionShape,
    /// Elements written so far; nodes for a stream.
    pub written: u64,
}

/// The sink of a snapshot. Its methods are called with a shard locked, by at most one thread for each shard, and must
/// never block.
pub trait Outlet: Send + Sync {
    /// Appends an entry to a chunk in its saved form.
    fn encode(&self, entry: EntryRef<'_, Object>, marks: &Marks<'_>, chunk: &mut Chunk);

    /// True if a large collection may be saved in pieces.
    fn takes_pieces(&self, entry: EntryRef<'_, Object>) -> bool;

    /// Begins a large collection, whose pieces follow.
    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        marks: &Marks<'_>,
        chunk: &mut Chunk,
    ) -> CollectionShape;

    /// Appends a further piece of a large collection. Returns its number of elements; expired ones are left out and
    /// do not count.
    fn encode_piece(
        &self,
        piece: &CollectionPiece<'_>,
        at: &CollectionProgress<'_>,
        chunk: &mut Chunk,
    ) -> u64;

    /// Appends the trailer after the last piece.
    fn end_large(&self, at: &CollectionProgress<'_>, chunk: &mut Chunk);

    /// Begins a large collection's series of chunks. Returns a number that identifies it.
    fn begin_stream(&self) -> u64;

    /// Records that a large collection is no longer in progress.
    fn end_stream(&self);

    /// Takes a chunk. The order of chunks does not matter, except within one stream.
    fn give(&self, chunk: Chunk);

    /// Records that an entry of `bytes` bytes was saved before its turn, as it was about to change.
    fn note_copied(&self, bytes: usize);

    /// Marks the whole snapshot as failed.
    fn fail(&self, why: &'static str);

    /// True if the snapshot was aborted, so that nothing needs to be encoded.
    fn is_given_up(&self) -> bool;
}

/// One database at the cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbAtCut {
    /// Number of the database.
    pub number: usize,
    /// Number of keys, including expired ones that were not deleted yet.
    pub keys: u64,
    /// Number of keys with a deadline.
    pub volatile_keys: u64,
    /// The fences of locks, for each shard that has any.
    pub fences: Vec<Arc<ByKey>>,
    /// The blessed keys, for each shard that has any.
    pub blessed: Vec<Arc<ByHash>>,
}

/// Progress of a database's part in a snapshot.
pub(super) struct DatabaseProgress {
    outlet: Arc<dyn Outlet>,
    /// The position at which the walk continues.
    cursor: u64,
    chunk: Chunk,
    /// Bytes encoded so far.
    encoded_bytes: usize,
    /// True if the walk has seen the whole table.
    is_walked: bool,
    /// The keys of large collections that are being saved in pieces.
    larges: BTreeSet<Box<[u8]>>,
    /// The key of the collection whose chunks are being written.
    open: Option<Box<[u8]>>,
}

impl DatabaseProgress {
    fn new(number: usize, outlet: Arc<dyn Outlet>) -> DatabaseProgress {
        DatabaseProgress {
            outlet,
            cursor: 0,
            chunk: Chunk::of(number),
            encoded_bytes: 0,
            is_walked: false,
            larges: BTreeSet::new(),
            open: None,
        }
    }

    /// True if an entry is to be saved in pieces.
    fn is_by_piece(&self, entry: EntryRef<'_, Object>) -> bool {
        is_large(entry) && !self.outlet.is_given_up() && self.outlet.takes_pieces(entry)
    }

    /// Begins to save an entry in pieces; charged to no account.
    #[cold]
    fn begin(&mut self, entry: &mut Entry<Object>, marks: &Marks<'_>) {
        account::uncharged(|| {
            LargeCollectionSave::begin(entry, marks, self.chunk.db, &self.outlet);
            self.larges.insert(entry.view().key().into());
        });
    }

    /// Forgets an entry in progress that has left the table.
    fn forget(&mut self, key: &[u8]) {
        account::uncharged(|| {
            self.larges.remove(key);
            self.open.take_if(|open| **open == *key);
        });
    }

    fn encode(&mut self, entry: EntryRef<'_, Object>, marks: &Marks<'_>) {
        if self.outlet.is_given_up() {
            return;
        }
        account::uncharged(|| {
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
