//! The blessed keys of a database.

use std::sync::Arc;

use super::{Db, HAS_BLESSED};
use crate::Key;
use crate::blessed::{ByHash, Pin};
use crate::evict::order::{HELD_BIT, VOLATILE_BIT};
use basalt_core::alloc::account;
use basalt_core::structures::table::EntrySlot;

impl Db {
    /// True if a key is blessed.
    pub(crate) fn is_blessed(&self, key: &Key<'_>) -> bool {
        self.hooks & HAS_BLESSED != 0 && self.blessed.contains(key.hash, key.bytes)
    }

    /// Blesses a key, or ends its blessing. Returns whether that changed anything; a key that does not exist stays
    /// unblessed.
    pub(crate) fn set_blessed(&mut self, key: &Key<'_>, is_blessed: bool) -> bool {
        let Some(place) = self.find(key) else {
            return false;
        };
        if self.keeps_images() {
            self.blessed.keep_changes();
        }
        let pin = self.pin(place);
        let has_changed = self.charged(|db| match is_blessed {
            true => db.blessed.put(key.hash, key.bytes, pin),
            false => db.blessed.remove(key.hash, key.bytes),
        });
        self.settle_blessed();
        self.settle_pin(place);
        has_changed
    }

    /// Returns the reason for which the key at `place` counts while it is blessed.
    fn pin(&self, place: EntrySlot) -> Pin {
        if self.fences.is_held(self.table.at(place).key()) {
            Pin::HeldLock
        } else if self.table.bits(place) & VOLATILE_BIT != 0 {
            Pin::Volatile
        } else {
            Pin::Plain
        }
    }

    /// Brings the counts of blessed keys and the access bit that protects the key at `place` up to date.
    #[cold]
    pub(super) fn settle_pin(&mut self, place: EntrySlot) {
        let (entry, pin) = (self.table.at(place), self.pin(place));
        let hash = self.seed.hash(entry.key());
        let is_blessed = self.blessed.set_pin(hash, entry.key(), pin);
        let bits = self.table.bits(place);
        let settled = match is_blessed || pin == Pin::HeldLock {
            true => bits | HELD_BIT,
            false => bits & !HELD_BIT,
        };
        self.table.set_bits(place, settled);
        self.publish_blessed();
    }

    /// Ends the blessing of a key that has left the table.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_blessing(&mut self, key: &[u8]) {
        if self.keeps_images() {
            self.blessed.keep_changes();
        }
        let hash = self.seed.hash(key);
        self.blessed.remove(hash, key);
        self.settle_blessed();
        self.publish_blessed();
    }

    fn settle_blessed(&mut self) {
        match self.blessed.is_empty() {
            true => self.hooks &= !HAS_BLESSED,
            false => self.hooks |= HAS_BLESSED,
        }
    }

    /// Returns all blessed keys as they are now, for a snapshot.
    pub(crate) fn blessed_at_cut(&self) -> Option<Arc<ByHash>> {
        (self.hooks & HAS_BLESSED != 0).then(|| self.blessed.at_cut())
    }

    /// Visits blessed keys, see [`Blessed::walk`](crate::blessed::Blessed::walk).
    pub(crate) fn walk_blessed(
        &self,
        position: u64,
        count: usize,
        visit: impl FnMut(&[u8]),
    ) -> u64 {
        self.blessed.walk(position, count, visit)
    }

    /// Commits the changes of blessings that the current attempt made.
    pub(crate) fn commit_blessings(&mut self) {
        self.blessed.forget_changes();
    }

    /// Rolls blessings back to their state before the attempt; its other changes are undone already.
    pub(crate) fn undo_blessings(&mut self) {
        let changes = self.blessed.take_changes();
        for (key, was_blessed) in changes.iter().rev() {
            let key = Key::new(key, self.seed);
            self.charged(|db| match was_blessed {
                true => db.blessed.put(key.hash, key.bytes, Pin::Plain),
                false => db.blessed.remove(key.hash, key.bytes),
            });
            if let Some(place) = self.find(&key) {
                self.settle_pin(place);
            }
        }
        if !changes.is_empty() {
            self.settle_blessed();
            self.publish_blessed();
        }
        account::uncharged(|| drop(changes));
    }

    /// Publishes the numbers of blessed keys.
    pub(super) fn publish_blessed(&self) {
        let counts = self.blessed.counts();
        let published = self.published_of_own();
        published.blessed_keys.set(counts.all);
        published.pinned_keys.set(counts.pinned);
        published.pinned_volatile_keys.set(counts.pinned_volatile);
    }
}
