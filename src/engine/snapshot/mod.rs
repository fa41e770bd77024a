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
//! A large collection is saved by the piece ([`large`]), so that neither the walk nor a write holds the shard for long.
//!
//! Knows no format and no file: an [`Outlet`] encodes entries and takes what is encoded. A snapshot that is given up still
//! has to mark its entries, without encoding them, as the next cut takes all entries for saved.

mod large;

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use super::db::Db;
use super::serial::pieces::Shape;
use super::value::object::entry_bytes;
use super::value::{ElementRef, Journal, Object, Trash};
use crate::structures::account;
use crate::structures::block::Block;
use crate::structures::entry::{Entry, EntryRef};
use crate::structures::table::Place;
use large::{Large, is_large};

/// Encoded entries are handed on when there are this many bytes of them, strings in blocks included.
const CHUNK_BYTES: usize = 64 * 1024;

/// Slots that the walker looks at between two looks at its time. The entries of a step are fetched together.
const STEP_SLOTS: usize = 16;

/// And bytes that are encoded between two looks, where entries are large.
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
    /// Their encoding, but for what lies in blocks.
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
        self.blocks.push((self.bytes.len(), block.clone()));
        self.block_bytes += block.len();
    }

    /// Whether nothing is in it yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.len_bytes() >= CHUNK_BYTES
    }

    /// Bytes that it holds, copied or not.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.block_bytes
    }
}

/// How far a large collection is written.
#[derive(Clone, Copy)]
pub struct Begun<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// What it was at the cut.
    pub shape: &'a Shape,
    /// Elements written so far.
    pub written: u64,
}

/// Where a snapshot goes. It is called with a shard's token in hand, by one thread for each shard, and never waits.
pub trait Outlet: Send + Sync {
    /// Appends an entry to a chunk as it is to be saved.
    fn encode(&self, entry: EntryRef<'_, Object>, chunk: &mut Chunk);

    /// A large collection begins, of which the pieces follow.
    fn begin_large(&self, entry: EntryRef<'_, Object>, chunk: &mut Chunk) -> Shape;

    /// Appends a piece of a large collection, before which there were others; false if it is left out, as its time had come.
    fn encode_piece(&self, piece: &ElementRef<'_>, at: &Begun<'_>, chunk: &mut Chunk) -> bool;

    /// A number for the chunks of a large collection.
    fn next_stream(&self) -> u64;

    /// Takes a chunk. The order of chunks does not matter, but for those of one stream.
    fn give(&self, chunk: Chunk);

    /// What was given is worth nothing.
    fn fail(&self, why: &'static str);

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
    /// The walk has seen all of the table.
    is_walked: bool,
    /// Large collections that are saved by the piece, by their keys.
    larges: HashMap<Box<[u8]>, Large>,
    /// The one that the walk is in.
    open: Option<Box<[u8]>>,
    /// Those that were deleted or replaced meanwhile.
    left: Vec<Large>,
    /// And those of these that are saved, and to be freed. They are charged to nobody.
    saved: Vec<Entry<Object>>,
}

impl Saving {
    /// Encodes an entry, or begins to; charged to nobody.
    fn save(&mut self, entry: EntryRef<'_, Object>) {
        if !is_large(entry) || self.outlet.is_given_up() {
            return self.encode(entry);
        }
        account::apart(|| {
            let large = Large::begin(entry, self.chunk.db, &*self.outlet);
            self.larges.insert(entry.key().into(), large);
        });
    }

    /// Elements of a collection have changed that is saved by the piece.
    pub(super) fn note(&mut self, entry: EntryRef<'_, Object>, changes: &Journal, from: usize) {
        account::apart(|| {
            if let Some(large) = self.larges.get_mut(entry.key()) {
                large.note(entry, changes, from);
            }
        });
    }

    /// Whether the entry of this key is saved by the piece.
    pub(super) fn is_under_way(&self, key: &[u8]) -> bool {
        !self.larges.is_empty() && self.larges.contains_key(key)
    }

    /// Saves the rest of a collection that leaves its place for another one.
    pub(super) fn finish(&mut self, entry: EntryRef<'_, Object>) {
        account::apart(|| {
            if let Some(mut large) = self.larges.remove(entry.key()) {
                self.open.take_if(|open| **open == *entry.key());
                while large.go_on(entry, &*self.outlet, &mut || true) {}
                large.end(&*self.outlet);
            }
        });
    }

    /// Keeps a collection that nobody else wants any more.
    fn keep(&mut self, entry: Entry<Object>) {
        account::apart(|| {
            if let Some(mut large) = self.larges.remove(entry.view().key()) {
                self.open.take_if(|open| **open == *entry.view().key());
                large.left = Some(entry);
                self.left.push(large);
            }
        });
    }

    /// Goes on with collections that were deleted or replaced; true while something is left.
    fn save_left(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        while let Some(large) = self.left.last_mut() {
            let Some(entry) = large.left.take() else {
                self.left.pop();
                continue;
            };
            let is_over = self.outlet.is_given_up();
            let more = !is_over && large.go_on(entry.view(), &*self.outlet, goes_on);
            large.left = Some(entry);
            if more {
                return true;
            }
            if let Some(large) = self.left.pop() {
                self.saved.extend(match is_over {
                    true => large.left,
                    false => large.end(&*self.outlet),
                });
            }
        }
        false
    }

    fn encode(&mut self, entry: EntryRef<'_, Object>) {
        if self.outlet.is_given_up() {
            return;
        }
        account::apart(|| {
            self.chunk.keys += 1;
            let before = self.chunk.bytes.len();
            self.outlet.encode(entry, &mut self.chunk);
            self.encoded_bytes += self.chunk.bytes.len() - before;
            if self.chunk.is_full() {
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
                is_walked: false,
                larges: HashMap::new(),
                open: None,
                left: Vec::new(),
                saved: Vec::new(),
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
            saving.save(table.at(place));
        }
        table.mark_saved(place);
    }

    /// Goes on with what is saved by the piece; true while something is left.
    fn save_larges(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let (table, Some(saving)) = self.table_and_saving() else {
            return false;
        };
        if saving.save_left(goes_on) {
            return true;
        }
        if saving.outlet.is_given_up() {
            saving.larges = HashMap::new();
            saving.open = None;
        }
        while !saving.larges.is_empty() {
            let open = saving.open.take();
            let Some(key) = open.or_else(|| saving.larges.keys().next().cloned()) else {
                break;
            };
            let place = table.find(table.hash(&key), &key);
            let (Some(place), Some(large)) = (place, saving.larges.get_mut(&key)) else {
                debug_assert!(false, "who takes it out says so");
                saving.larges.remove(&key);
                continue;
            };
            if large.go_on(table.at(place), &*saving.outlet, goes_on) {
                saving.open = Some(key);
                return true;
            }
            if let Some(large) = saving.larges.remove(&key) {
                large.end(&*saving.outlet);
            }
        }
        false
    }

    /// What is to be freed of an entry that was taken out for good: nothing of a collection that is still being saved.
    pub(super) fn leave(&mut self, entry: Entry<Object>) -> Option<Entry<Object>> {
        let keeps_images = self.keeps_images();
        let bytes = entry_bytes(entry.view()) as i64;
        let Some(saving) = self.table_and_saving().1 else {
            return Some(entry);
        };
        if !saving.is_under_way(entry.view().key()) {
            return Some(entry);
        }
        if keeps_images {
            saving.finish(entry.view());
            return Some(entry);
        }
        saving.keep(entry);
        // It moves from the shard's account to the snapshot, which has none.
        self.note_left(bytes);
        None
    }

    /// Collections that were deleted or replaced, and are saved now.
    fn take_saved(&mut self) -> Vec<Entry<Object>> {
        let saving = self.table_and_saving().1;
        saving.map_or_else(Vec::new, |saving| std::mem::take(&mut saving.saved))
    }

    /// Whether something is left to be saved that is in the table no more.
    pub(super) fn has_left(&self) -> bool {
        self.saving()
            .is_some_and(|saving| !saving.left.is_empty() || !saving.saved.is_empty())
    }

    /// Goes on with the walk; true while it is not at its end. `goes_on` is asked every few entries.
    fn save_slice(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let mut places = smallvec::SmallVec::<[Place; 4 * STEP_SLOTS]>::new();
        loop {
            if self.save_larges(goes_on) {
                return true;
            }
            let (table, Some(saving)) = self.table_and_saving() else {
                return false;
            };
            if saving.is_walked {
                return false;
            }
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
                saving.save(table.at(place));
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
            saving.is_walked = next == 0;
            if !goes_on() {
                return true;
            }
        }
    }

    /// All is saved.
    fn end_saving(&mut self) {
        account::apart(|| {
            if let Some(saving) = self.set_saving(None) {
                debug_assert!(saving.larges.is_empty() && saving.left.is_empty());
                let Saving { outlet, chunk, .. } = *saving;
                if chunk.keys > 0 && !outlet.is_given_up() {
                    outlet.give(chunk);
                }
            }
        });
    }

    /// A database without keys goes: it has nothing left to save.
    pub(super) fn end_saving_of_nothing(&mut self) {
        debug_assert!(self.is_empty() && !self.has_left());
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
        while let Some(mut db) = self.flushed_unsaved.pop() {
            let more = self.save_some_of(&mut db, goes_on);
            match more {
                true => self.flushed_unsaved.push(db),
                false => self.doom(db),
            }
            if more {
                return true;
            }
            if self.flushed_unsaved.is_empty() {
                self.flushed_unsaved = Vec::new();
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        for index in 0..self.dbs_end {
            let Some(mut db) = self.dbs[index].take_if(|db| db.is_saving()) else {
                continue;
            };
            let more = self.save_some_of(&mut db, goes_on);
            self.dbs[index] = Some(db);
            if more {
                return true;
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        false
    }

    /// Goes on with one database; true while something is left.
    fn save_some_of(&mut self, db: &mut Db, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let more = db.save_slice(goes_on);
        let saved = db.take_saved();
        for trash in saved.into_iter().filter_map(Trash::from_entry) {
            self.keep_trash(trash);
        }
        if !more {
            db.end_saving();
        }
        more
    }

    /// Keeps a database that was given up until the walker is through with it.
    pub(super) fn keep_unsaved(&mut self, db: Box<Db>) {
        account::apart(|| self.flushed_unsaved.push(db));
    }
}
