//! Keys as the commands that recreate them elsewhere, large collections in pieces: for slots that are migrated to
//! another server.
//!
//! A large collection is begun as in a snapshot that contains nothing else: its state at that moment is sent slice
//! by slice ([`Engine::save_slice`]) while commands change it. No snapshot may be in progress meanwhile.

use std::sync::Arc;

use super::large::{LargeCollectionSave, is_large};
use super::{Chunk, Outlet};
use crate::db::Db;
use crate::marks::{Marks, stale_ms};
use crate::serial::commands;
use crate::slots::walk_position;
use crate::value::Object;
use crate::{Engine, Key};
use basalt_core::alloc::account;
use basalt_core::structures::entry::{EntryRef, Value};

/// Keys written between two checks of the output's size.
const WRITTEN_TOGETHER: usize = 16;

/// The treatment of large collections.
#[derive(Clone, Copy)]
pub enum Larges<'a> {
    /// The first large collection is begun in pieces, sent to this outlet; the keys after it wait.
    ByPiece(&'a Arc<dyn Outlet>),
    /// The walk stops before the first large collection, so that this and the keys after it wait.
    Wait,
    /// Large collections are written whole, like all others.
    Whole,
}

/// The result of writing keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyWriteProgress {
    /// The position at which the walk over the slot continues, 0 at the end; for named keys, how many have been
    /// written.
    pub next: u64,
    /// Keys visited, including a large one that was begun.
    pub keys: u64,
    /// True if a large collection has been begun; [`Engine::save_slice`] continues it.
    pub has_begun: bool,
    /// True if the walk stopped before a large collection that waits.
    pub waits: bool,
}

impl Chunk {
    /// Appends the commands that recreate an entry; a long string is shared instead of copied.
    pub fn push_commands(&mut self, entry: EntryRef<'_, Object>, now_ms: u64) {
        let Value::Block(block) = entry.value() else {
            return commands::entry(&mut self.bytes, entry, now_ms);
        };
        commands::before_text(&mut self.bytes, entry, block.len());
        self.push_block(block);
        commands::behind_text(&mut self.bytes, entry);
    }
}

impl Larges<'_> {
    /// True if an entry is a large collection that is not to be written whole.
    fn include(self, entry: EntryRef<'_, Object>) -> bool {
        // Tags can only be given to an existing key, so their commands follow those that recreate the key.
        if entry.has_words() {
            return false;
        }
        match self {
            Larges::ByPiece(outlet) => is_large(entry) && outlet.takes_pieces(entry),
            Larges::Wait => is_large(entry) && commands::takes_pieces(entry),
            Larges::Whole => false,
        }
    }
}

impl Db {
    /// True if an entry has expired or one of its tags was invalidated.
    fn is_over(&self, entry: EntryRef<'_, Object>, now_ms: u64) -> bool {
        let deadline = entry.deadline();
        deadline.is_some_and(|deadline| deadline <= now_ms) || self.is_invalidated(entry)
    }

    /// Appends the commands that recreate an entry, with its marks, its fence and its blessing.
    fn write_alone(&self, entry: EntryRef<'_, Object>, now_ms: u64, out: &mut Chunk) {
        out.push_commands(entry, now_ms);
        if entry.has_words() {
            let marks = Marks {
                stale_ms: stale_ms(entry),
                tags: self.tag_names(entry).collect(),
            };
            commands::marks(&mut out.bytes, entry.key(), &marks);
        }
        if let Some(fence) = self.fence(entry.key()) {
            commands::fence(&mut out.bytes, entry.key(), fence);
        }
        if self.is_blessed(&Key::new(entry.key(), self.seed())) {
            commands::blessing(&mut out.bytes, entry.key());
        }
    }

    /// Begins to send the collection under a key in pieces.
    fn begin_alone(&mut self, key: &Key<'_>, outlet: &Arc<dyn Outlet>) {
        let found = self
            .table
            .find_by_hash(key.hash, |entry| entry.key() == key.bytes);
        let Some(place) = found else {
            debug_assert!(false, "it was found just now");
            return;
        };
        let number = self.number();
        account::uncharged(|| {
            let entry = &mut self.table.edit(place);
            LargeCollectionSave::begin(entry, &Marks::default(), number, outlet);
        });
        self.note_under_way(place);
    }
}

impl Engine {
    /// Appends the commands that recreate the keys of a database's slot elsewhere, from a position on, until
    /// `bytes` bytes are written or a large collection is found. Expired keys are left out.
    pub fn write_slot(
        &mut self,
        (index, wanted): (usize, u16),
        position: u64,
        bytes: usize,
        (out, larges): (&mut Chunk, Larges<'_>),
        now_ms: u64,
    ) -> KeyWriteProgress {
        let mut written = KeyWriteProgress {
            next: position,
            ..KeyWriteProgress::default()
        };
        let seed = self.seed;
        let mut met: Option<(u64, Box<[u8]>)> = None;
        loop {
            let Some(db) = self.db(index).filter(|_| self.has_slot(wanted)) else {
                written.next = 0;
                return written;
            };
            // Keys at the same position are written together.
            let mut before = None;
            let next = db.walk_slot(wanted, written.next, WRITTEN_TOGETHER, |entry| {
                let at = walk_position(seed.hash(entry.key()));
                let is_behind = match (&met, larges) {
                    (None, _) => false,
                    (Some((stop, _)), Larges::Wait) => at >= *stop,
                    (Some((stop, _)), _) => at > *stop,
                };
                if is_behind {
                    return;
                }
                let is_first = met.is_none() && before != Some(at);
                let is_blessed = db.is_blessed(&Key::new(entry.key(), seed));
                let is_apart = larges.include(entry) && !is_blessed;
                if is_apart && is_first && !db.is_over(entry, now_ms) {
                    met = Some((at, entry.key().into()));
                    return;
                }
                before = Some(at);
                written.keys += 1;
                if !db.is_over(entry, now_ms) {
                    db.write_alone(entry, now_ms, out);
                }
            });
            match (met.take(), larges) {
                (Some((at, key)), Larges::ByPiece(outlet)) => {
                    written.keys += 1;
                    written.next = at + 1;
                    written.has_begun = true;
                    if let Some(db) = self.dbs[index].as_deref_mut() {
                        db.begin_alone(&Key::new(&key, seed), outlet);
                    }
                    return written;
                }
                (Some((at, _)), _) => {
                    written.next = at;
                    written.waits = true;
                    return written;
                }
                (None, _) => written.next = next,
            }
            if next == 0 || out.len_bytes() >= bytes {
                return written;
            }
        }
    }

    /// Appends the commands that recreate named keys of a database elsewhere in their current state, replacing what
    /// the destination has, up to a large collection. Keys that do not exist here are deleted there.
    pub fn write_keys(
        &mut self,
        index: usize,
        keys: &[Vec<u8>],
        (out, larges): (&mut Chunk, Larges<'_>),
        now_ms: u64,
    ) -> KeyWriteProgress {
        let mut written = KeyWriteProgress::default();
        for key in keys {
            let key = Key::new(key, self.seed);
            let mut begins = false;
            let db = self.db(index);
            let found = db.and_then(|db| {
                let place = db
                    .table
                    .find_by_hash(key.hash, |entry| entry.key() == key.bytes);
                Some(db.at(place?))
            });
            let live = db
                .zip(found)
                .filter(|(db, entry)| !db.is_over(*entry, now_ms));
            if live.is_some_and(|(_, entry)| larges.include(entry)) {
                if matches!(larges, Larges::Wait) {
                    written.waits = true;
                    return written;
                }
                begins = true;
            }
            commands::command(&mut out.bytes, &[b"DEL", key.bytes]);
            written.next += 1;
            written.keys += 1;
            match (live, larges) {
                (Some(_), Larges::ByPiece(outlet)) if begins => {
                    if let Some(db) = self.dbs[index].as_deref_mut() {
                        db.begin_alone(&key, outlet);
                    }
                    written.has_begun = true;
                    return written;
                }
                (Some((db, entry)), _) => db.write_alone(entry, now_ms, out),
                (None, _) => {}
            }
        }
        written
    }
}
