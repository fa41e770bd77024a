//! Keys of a database by hash slot, indexed only where a server is a cluster or a part of one.
//!
//! For each slot the [short hashes](short_hash) of its keys are kept in [`Parted`] rows: four bytes a key and a
//! little more. With them the keys of a slot are counted without being read, and found one by one in the table,
//! which is the same as in every other server. `docs/internals/engine.md` discusses the alternatives.
//!
//! Invariant: a key is in the row of its slot if and only if it is in the table. [`Db::note_entering`] and
//! [`Db::note_left`], which every insertion and removal calls, ensure that; what replaces an entry has the same
//! key. A database that is dropped, swapped, or put in place of another one takes its rows with it.

use smallvec::SmallVec;

use super::{Db, HAS_BLESSED, HAS_FENCES, IS_BY_SLOT};
use crate::published::PublishedDb;
use crate::short_hash::{self, is_at, places, shorten};
use crate::value::Object;
use basalt_core::base::hash::{SLOTS, slot};
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::parted::Parted;

/// Slots whose rows are allocated together.
const PAGE: usize = 16;

/// Keys for which the lines of the table are prefetched before the first of them is read.
const FETCHED_AHEAD: usize = 64;

type Row = Parted<u32>;

/// The keys of each slot, see the module.
pub(crate) struct SlotKeys {
    /// Number of low bits of a slot number that select the shard: they are equal for all slots of this shard.
    shard_bits: u32,
    /// Rows indexed by the remaining bits of the slot number.
    pages: Box<[Option<Box<[Row; PAGE]>>]>,
}

#[cfg(test)]
thread_local! {
    /// Entries that walks over slots have examined, for tests that count them.
    static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl SlotKeys {
    /// Creates an empty index, in one of `shard_count` shards, a power of two.
    pub(crate) fn new(shard_count: u16) -> SlotKeys {
        let slots = usize::from(SLOTS / shard_count.min(SLOTS));
        SlotKeys {
            shard_bits: shard_count.ilog2(),
            pages: (0..slots.div_ceil(PAGE)).map(|_| None).collect(),
        }
    }

    fn place(&self, slot: u16) -> (usize, usize) {
        let number = usize::from(slot >> self.shard_bits);
        (number / PAGE, number % PAGE)
    }

    fn row(&self, slot: u16) -> Option<&Row> {
        let (page, row) = self.place(slot);
        Some(&self.pages.get(page)?.as_ref()?[row])
    }

    /// Adds a key. Returns the slot if it was empty.
    fn add(&mut self, key: &[u8], hash: u64) -> Option<u16> {
        let slot = slot(key);
        let (page, row) = self.place(slot);
        let rows = &mut self.pages[page];
        let rows = rows.get_or_insert_with(|| Box::new([const { Row::EMPTY }; PAGE]));
        rows[row].push(shorten(hash));
        (rows[row].len() == 1).then_some(slot)
    }

    /// Removes a key. Returns the slot if it is now empty.
    fn remove(&mut self, key: &[u8], hash: u64) -> Option<u16> {
        let slot = slot(key);
        let (page, row) = self.place(slot);
        let rows = self.pages[page].as_mut();
        let was_there = rows.is_some_and(|rows| rows[row].remove(shorten(hash)));
        debug_assert!(was_there, "a removed key was added before");
        self.row(slot)
            .is_none_or(|row| row.is_empty())
            .then_some(slot)
    }

    /// Publishes which slots have keys.
    fn publish(&self, published: &PublishedDb) {
        let rows = self.pages.iter().enumerate().flat_map(|(at, page)| {
            let rows = page.iter().flat_map(|rows| rows.iter().enumerate());
            rows.map(move |(row, keys)| (at * PAGE + row, keys))
        });
        for (number, keys) in rows {
            if !keys.is_empty() {
                // The low bits, which select the shard, do not matter.
                let slot = (number << self.shard_bits) as u16;
                published.slots_in_use.note(slot, true);
            }
        }
    }
}

impl Db {
    /// Starts indexing keys by slot, before the first key is added.
    pub(crate) fn keep_slots(&mut self, shard_count: u16) {
        debug_assert!(self.is_empty());
        self.by_slot = Some(Box::new(SlotKeys::new(shard_count)));
        self.hooks |= IS_BY_SLOT;
    }

    /// True if keys are indexed by slot.
    pub(crate) fn keeps_slots(&self) -> bool {
        self.by_slot.is_some()
    }

    /// Prepares for the insertion of a key into the table.
    #[inline(never)]
    pub(super) fn note_entering(&mut self, hash: u64, key: &[u8]) {
        if self.keeps_images() {
            self.save_absence(hash, key);
        }
        if let Some(by_slot) = &mut self.by_slot
            && let Some(slot) = by_slot.add(key, hash)
        {
            self.published.dbs[self.index].slots_in_use.note(slot, true);
        }
    }

    /// Removes an entry that has just left the table from the index.
    #[inline(never)]
    pub(super) fn note_left(&mut self, entry: EntryRef<'_, Object>) {
        if self.is_saving() {
            self.forget_under_way(entry);
        }
        if self.hooks & HAS_FENCES != 0 {
            self.drop_fence(entry.key());
        }
        if self.hooks & HAS_BLESSED != 0 {
            self.drop_blessing(entry.key());
        }
        if let Some(by_slot) = &mut self.by_slot
            && let Some(slot) = by_slot.remove(entry.key(), self.seed.hash(entry.key()))
        {
            self.published.dbs[self.index]
                .slots_in_use
                .note(slot, false);
        }
    }

    /// Publishes which slots have keys, after the database has been given a number.
    pub(super) fn publish_slots(&self) {
        self.published_of_own().slots_in_use.clear();
        if let Some(by_slot) = &self.by_slot {
            by_slot.publish(self.published_of_own());
        }
    }

    /// Returns the number of keys in a slot of this shard, including expired ones that have not been deleted yet.
    pub(crate) fn keys_in_slot(&self, slot: u16) -> u64 {
        let row = self.by_slot.as_ref().and_then(|by_slot| by_slot.row(slot));
        row.map_or(0, |row| row.len() as u64)
    }

    /// Walks over the keys of a slot, see [`Keyspace::walk_slot`](crate::keyspace::Keyspace::walk_slot).
    pub(crate) fn walk_slot(
        &self,
        slot: u16,
        position: u64,
        budget: usize,
        mut visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let row = self.by_slot.as_ref().and_then(|by_slot| by_slot.row(slot));
        let Some(row) = row else { return 0 };
        let (mut position, mut left) = (position, budget.max(1));
        let mut shorts = SmallVec::<[u32; FETCHED_AHEAD]>::new();
        loop {
            shorts.clear();
            let next = row.following(position, left.min(FETCHED_AHEAD), &mut shorts);
            self.visit_all(slot, &shorts, &mut visit);
            left -= shorts.len();
            match next {
                None => return 0,
                Some(next) if left == 0 => return next,
                Some(next) => position = next,
            }
        }
    }

    /// Returns how many entries walks over slots have examined on this thread.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        LOOKED_AT.get()
    }

    /// Calls `visit` with the keys of a slot that have these short hashes.
    fn visit_all(&self, wanted: u16, shorts: &[u32], visit: &mut impl FnMut(EntryRef<'_, Object>)) {
        let depth = self.table.depth();
        let each = |short: &u32| places(short_hash::known(*short), depth);
        for at in shorts.iter().flat_map(each) {
            self.table.prefetch(at);
        }
        for at in shorts.iter().flat_map(each) {
            self.table.prefetch_matches(at);
        }
        for at in shorts.iter().flat_map(each) {
            // The closure rejects every entry, so that it sees all.
            let found = self.table.find_by_hash(at, |entry| {
                #[cfg(test)]
                LOOKED_AT.set(LOOKED_AT.get() + 1);
                if is_at(self.seed.hash(entry.key()), at, depth) && slot(entry.key()) == wanted {
                    visit(entry);
                }
                false
            });
            debug_assert!(found.is_none());
        }
    }
}
