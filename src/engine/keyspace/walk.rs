//! Access to keys without names: walks over a database, and random keys. Expired keys are left out.

use super::Keyspace;
use crate::Engine;
use crate::db::Db;
use crate::value::Object;
use basalt_core::base::hash;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::table::EntrySlot;

impl Keyspace<'_> {
    /// Visits a bounded number of entries, starting at a cursor; expired entries are left out. Returns the next
    /// cursor, 0 at the end.
    pub fn scan(
        &mut self,
        cursor: u64,
        budget: usize,
        visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let Some(db) = self.engine.db(self.db) else {
            return 0;
        };
        db.table
            .scan(cursor, budget, unless_gone(db, self.now.unix_ms, visit))
    }

    /// Visits some entries, starting at a position; expired entries are left out. An entry that exists from the first
    /// call to the last is visited exactly once. Returns the next position, 0 at the end.
    pub fn scan_once(
        &mut self,
        position: u64,
        budget: usize,
        visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let engine = &*self.engine;
        let Some(db) = engine.db(self.db) else {
            return 0;
        };
        let mut visit = unless_gone(db, self.now.unix_ms, visit);
        let show = |entry: EntryRef<'_, Object>| {
            if !engine.is_coming(entry.key()) {
                visit(entry);
            }
        };
        db.table.scan_once(position, budget, show)
    }

    /// Visits keys of a hash slot for a client, as [`Keyspace::walk_slot`] does; expired keys, and those of a slot
    /// that is being imported, are left out, though they count for the budget.
    pub fn scan_slot(
        &self,
        slot: u16,
        position: u64,
        budget: usize,
        visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let Some(db) = self.engine.db(self.db) else {
            return 0;
        };
        if self.engine.coming.contains(&slot) {
            return 0;
        }
        self.walk_slot(
            slot,
            position,
            budget,
            unless_gone(db, self.now.unix_ms, visit),
        )
    }

    /// Works like [`Keyspace::scan`], and deletes the expired entries that it finds.
    pub fn scan_expiring(
        &mut self,
        cursor: u64,
        budget: usize,
        mut visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let (now_ms, seed) = (self.now.unix_ms, self.engine.seed());
        let Some(db) = self.engine.db(self.db) else {
            return 0;
        };
        let is_due = |entry: EntryRef<'_, Object>| db.is_gone(entry, now_ms);
        let mut due = Vec::new();
        let next = db.table.scan(cursor, budget, |entry| {
            if is_due(entry) {
                due.push(seed.hash(entry.key()));
            } else if !self.engine.is_coming(entry.key()) {
                visit(entry);
            }
        });
        for hash in due {
            let Some(db) = self.engine.db(self.db) else {
                return 0;
            };
            let is_due = |entry: EntryRef<'_, Object>| db.is_gone(entry, now_ms);
            if let Some(place) = db.table.find_by_hash(hash, is_due) {
                self.take_gone(place);
            }
        }
        next
    }

    /// Returns a random key, sampled nearly uniformly; expired keys are skipped. None if no key is found.
    pub fn random(&mut self) -> Option<Vec<u8>> {
        const TRIES_MAX: usize = 100;
        for _ in 0..TRIES_MAX {
            let Engine {
                dbs,
                random,
                coming,
                ..
            } = &mut *self.engine;
            let db = dbs[self.db].as_deref()?;
            let place = db.table.random(&mut || random.next_u64())?;
            let entry = db.at(place);
            match db.is_gone(entry, self.now.unix_ms) {
                true => self.take_gone(place),
                false if !coming.is_empty() && coming.contains(&hash::slot(entry.key())) => {}
                false => return Some(entry.key().to_vec()),
            }
        }
        None
    }

    /// Deletes an expired or invalidated entry.
    fn take_gone(&mut self, place: EntrySlot) {
        let _ = match self.is_invalidated(place) {
            true => self.drop_invalidated(place),
            false => self.expire(place),
        };
    }
}

/// Wraps a visitor so that it skips expired and invalidated entries.
fn unless_gone(
    db: &Db,
    now_ms: u64,
    mut visit: impl FnMut(EntryRef<'_, Object>),
) -> impl FnMut(EntryRef<'_, Object>) {
    move |entry| {
        if !db.is_gone(entry, now_ms) {
            visit(entry);
        }
    }
}
