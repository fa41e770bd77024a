//! Snapshots of a shard: what all databases hold at one moment, the cut, saved in slices while commands go on.
//!
//! ```text
//! cut      each table flips its parity, so that every entry counts as unsaved; what is inserted from now on counts as saved
//! walker   goes over a table in the order of hashes, slice by slice, and saves what is not saved yet
//! hook     whoever changes, overwrites, takes out or deletes an unsaved entry saves it first ([`Db::save`] and its like)
//! ```
//!
//! Every entry of the cut is saved exactly once, as it was then. The parity stands in the entry's slot and goes wherever the
//! slot goes, so growth, splits, merges and defragmentation between two slices change nothing; the walk over the table
//! may come by an entry twice, which the parity tells, but leaves none out. An exchanged database keeps the number that it
//! had; a flushed one is kept until the walker is through with it. What is rolled back was saved when it first changed.
//!
//! Knows no format and no file: an [`Outlet`] encodes entries and takes what is encoded. A snapshot that is given up still
//! has to mark its entries, without encoding them, as the next cut takes all entries for saved.

use std::sync::Arc;

use super::Engine;
use super::db::Db;
use super::value::Object;
use crate::structures::account;
use crate::structures::block::Block;
use crate::structures::entry::EntryRef;
use crate::structures::table::Place;

/// Encoded entries are handed on when there are this many bytes of them, strings in blocks included.
const CHUNK_BYTES: usize = 64 * 1024;

/// Slots that the walker looks at between two looks at its time. The entries of a step are fetched together.
const STEP_SLOTS: usize = 16;

/// And bytes that are encoded between two looks, where entries are large.
const LOOK_BYTES: usize = 4 * 1024;

/// Encoded entries of one database.
#[derive(Default)]
pub struct Chunk {
    /// Number of the database at the cut.
    pub db: usize,
    /// Entries.
    pub keys: u64,
    /// Their encoding, but for what lies in blocks.
    pub bytes: Vec<u8>,
    /// Strings that are shared instead of copied: each belongs before the byte at its position.
    pub blocks: Vec<(usize, Block)>,
    /// Bytes of these strings.
    block_bytes: usize,
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
        self.blocks.push((self.bytes.len(), block.clone()));
        self.block_bytes += block.len();
    }

    /// Whether nothing is in it yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    /// Bytes that it holds, copied or not.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.block_bytes
    }
}

/// Where a snapshot goes. It is called with a shard's token in hand, by one thread for each shard, and never waits.
pub trait Outlet: Send + Sync {
    /// Appends an entry to a chunk as it is to be saved.
    fn encode(&self, entry: EntryRef<'_, Object>, chunk: &mut Chunk);

    /// Takes a chunk. The order of chunks does not matter.
    fn give(&self, chunk: Chunk);

    /// Whether the snapshot was given up, so that nothing needs to be encoded any more.
    fn is_given_up(&self) -> bool;
}

/// One database at the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DbAtCut {
    /// Its number.
    pub number: usize,
    /// Keys, those included whose time has come and that are still there.
    pub keys: u64,
    /// Keys with a deadline.
    pub volatile_keys: u64,
}

/// What a database knows of the snapshot that it has a part in.
pub(super) struct Saving {
    outlet: Arc<dyn Outlet>,
    /// Where the walk goes on.
    cursor: u64,
    chunk: Chunk,
    /// Bytes encoded so far.
    encoded_bytes: usize,
}

impl Saving {
    /// Encodes an entry; charged to nobody.
    fn encode(&mut self, entry: EntryRef<'_, Object>) {
        if self.outlet.is_given_up() {
            return;
        }
        account::apart(|| {
            self.chunk.keys += 1;
            let before = self.chunk.bytes.len();
            self.outlet.encode(entry, &mut self.chunk);
            self.encoded_bytes += self.chunk.bytes.len() - before;
            if self.chunk.len_bytes() >= CHUNK_BYTES {
                let next = Chunk::of(self.chunk.db);
                self.outlet.give(std::mem::replace(&mut self.chunk, next));
            }
        });
    }
}

impl Db {
    /// The cut: what is here now is to be saved.
    fn begin_saving(&mut self, number: usize, outlet: Arc<dyn Outlet>) {
        debug_assert!(!self.is_saving(), "one snapshot at a time");
        self.table.flip_parity();
        let chunk = Chunk::of(number);
        self.set_saving(account::apart(|| {
            Some(Box::new(Saving {
                outlet,
                cursor: 0,
                chunk,
                encoded_bytes: 0,
            }))
        }));
    }

    /// Saves the entry at a place unless it is saved already: it is about to change, or to go.
    #[cold]
    #[inline(never)]
    pub(super) fn save_unsaved(&mut self, place: Place) {
        if self.table.saved(place) {
            return;
        }
        let (table, saving) = self.table_and_saving();
        if let Some(saving) = saving {
            saving.encode(table.at(place));
        }
        table.mark_saved(place);
    }

    /// Goes on with the walk; true while it is not at its end. `goes_on` is asked every few entries.
    fn save_slice(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let mut places = smallvec::SmallVec::<[Place; 4 * STEP_SLOTS]>::new();
        loop {
            let (table, Some(saving)) = self.table_and_saving() else {
                return false;
            };
            places.clear();
            let next = table.walk(saving.cursor, STEP_SLOTS, |place, _, is_saved| {
                if !is_saved {
                    places.push(place);
                }
            });
            if !saving.outlet.is_given_up() {
                places.iter().for_each(|&place| table.prefetch_entry(place));
            }
            let mut looked_at_bytes = saving.encoded_bytes;
            for (index, &place) in places.iter().enumerate() {
                saving.encode(table.at(place));
                table.mark_saved(place);
                if saving.encoded_bytes - looked_at_bytes > LOOK_BYTES && index + 1 < places.len() {
                    looked_at_bytes = saving.encoded_bytes;
                    if !goes_on() {
                        // The walk comes by here again, and finds what is saved.
                        return true;
                    }
                }
            }
            saving.cursor = next;
            if next == 0 {
                self.end_saving();
                return false;
            }
            if !goes_on() {
                return true;
            }
        }
    }

    /// All is saved.
    fn end_saving(&mut self) {
        account::apart(|| {
            if let Some(saving) = self.set_saving(None) {
                let Saving { outlet, chunk, .. } = *saving;
                if chunk.keys > 0 && !outlet.is_given_up() {
                    outlet.give(chunk);
                }
            }
        });
    }

    /// A database without keys goes: it has nothing left to save.
    pub(super) fn end_saving_of_nothing(&mut self) {
        debug_assert!(self.is_empty());
        if self.is_saving() {
            self.end_saving();
        }
    }
}

impl Engine {
    /// The cut: what the shard holds now is to be saved, by [`Engine::save_slice`] and by whoever changes it. The databases
    /// that hold anything.
    pub fn begin_snapshot(&mut self, outlet: &Arc<dyn Outlet>) -> Vec<DbAtCut> {
        debug_assert!(!self.is_in_attempt() && !self.is_in_snapshot());
        let mut captured = Vec::new();
        for (number, db) in self.dbs[..self.dbs_end].iter_mut().enumerate() {
            let Some(db) = db.as_deref_mut().filter(|db| !db.is_empty()) else {
                continue;
            };
            db.begin_saving(number, Arc::clone(outlet));
            captured.push(DbAtCut {
                number,
                keys: db.len() as u64,
                volatile_keys: db.volatile_count() as u64,
            });
        }
        captured
    }

    /// Whether something of the last cut is not saved yet.
    pub fn is_in_snapshot(&self) -> bool {
        let mut dbs = self.dbs[..self.dbs_end].iter().flatten();
        !self.flushed_unsaved.is_empty() || dbs.any(|db| db.is_saving())
    }

    /// Goes on with saving; true while something is left. `goes_on` is asked every few entries whether there is time for
    /// more, and at least a few are saved.
    pub fn save_slice(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        // First, as their memory comes back then.
        while let Some(db) = self.flushed_unsaved.last_mut() {
            if db.save_slice(goes_on) {
                return true;
            }
            if let Some(db) = self.flushed_unsaved.pop() {
                self.doom(db);
            }
            if self.flushed_unsaved.is_empty() {
                self.flushed_unsaved = Vec::new();
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        for index in 0..self.dbs_end {
            let Some(db) = self.dbs[index].as_deref_mut().filter(|db| db.is_saving()) else {
                continue;
            };
            if db.save_slice(goes_on) {
                return true;
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        false
    }

    /// Keeps a database that was given up until the walker is through with it.
    pub(super) fn keep_unsaved(&mut self, db: Box<Db>) {
        account::apart(|| self.flushed_unsaved.push(db));
    }
}
