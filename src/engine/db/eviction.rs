//! The keys of a database that may be evicted, and the bookkeeping when they are added and removed.

use super::{Db, HAS_BLESSED, HAS_FENCES, HAS_PINS};
use crate::evict::order::{HELD_BIT, SMALL_BIT, VOLATILE_BIT};
use crate::value::hash::HashRef;
use crate::value::object::entry_bytes;
use basalt_core::structures::table::EntrySlot;

/// Approximate bytes of a lock's fence, in addition to the lock's entry.
const FENCE_BYTES: usize = 96;

/// Maximum bytes of a held lock. A lock that is larger, because of the names of its key and its owner, is evictable
/// like other keys.
pub(crate) const LOCK_BYTES_MAX: usize = 4096;

/// Returns the approximate bytes that a lock with a key of this length uses in addition to its entry.
pub(crate) fn lock_overhead_bytes(key_len: usize) -> usize {
    2 * key_len + FENCE_BYTES
}

impl Db {
    /// Returns the number of evictable keys: all but held locks and blessed keys, or those with a deadline.
    pub(crate) fn evictable_count(&self, volatile_only: bool) -> usize {
        let blessed = self.blessed.counts();
        let (keys, pinned) = match volatile_only {
            true => (self.volatile_count(), blessed.pinned_volatile),
            false => (self.len(), blessed.pinned),
        };
        keys.saturating_sub(self.fences.held_keys() + pinned as usize)
    }

    /// Treats the key at `place` as new for eviction, as it is rewritten as if it had not existed.
    pub(crate) fn renew(&mut self, place: EntrySlot, hash: u64) {
        let bits = self.table.bits(place);
        let Some(order) = &mut self.order else {
            return;
        };
        if bits & SMALL_BIT != 0 {
            order.depart(hash);
        }
        let bits = order.enter(hash, bits & !SMALL_BIT, &self.published);
        self.table.set_bits(place, bits);
        self.settle_queue();
    }

    /// Updates eviction's bookkeeping before the key at `place` leaves the table.
    pub(super) fn note_departing(&mut self, place: EntrySlot) {
        if let Some(order) = &mut self.order
            && self.table.bits(place) & SMALL_BIT != 0
        {
            order.depart(self.seed.hash(self.table.at(place).key()));
        }
    }

    /// Stores in the access bits whether an entry has a deadline, so that eviction need not read the entry.
    pub(super) fn mark_volatile(&mut self, place: EntrySlot, hash: u64, is_volatile: bool) {
        let before = self.table.bits(place);
        let mut bits = match is_volatile {
            true => before | VOLATILE_BIT,
            false => before & !VOLATILE_BIT,
        };
        if bits == before {
            return;
        }
        // The key is new among the keys with deadlines.
        if let Some(order) = &mut self.order
            && order.is_volatile_only()
            && is_volatile
            && bits & SMALL_BIT == 0
        {
            bits = order.enter(hash, bits, &self.published);
        }
        self.table.set_bits(place, bits);
        self.settle_queue();
        if self.hooks & HAS_PINS != 0 {
            self.settle_pins(place);
        }
    }

    /// Brings up to date what protects the key at `place` after its deadline has changed.
    #[cold]
    fn settle_pins(&mut self, place: EntrySlot) {
        if self.hooks & HAS_FENCES != 0 {
            self.settle_hold(place);
        }
        if self.hooks & HAS_BLESSED != 0 {
            self.settle_pin(place);
        }
    }

    /// Brings up to date what protects a key whose entry at `place` has been replaced.
    #[cold]
    #[inline(never)]
    pub(super) fn settle_replaced(&mut self, key: &[u8], place: EntrySlot) {
        if self.hooks & HAS_FENCES != 0 {
            self.drop_fence(key);
            self.settle_hold(place);
        }
    }

    /// Returns the bytes of the lock at `place` if it may be held, otherwise 0. To be held, a key must have the form
    /// that LOCK creates: a small hash whose only field is the owner's name with the hold count, with a deadline and
    /// the owner's fence. So a held lock cannot grow under another command.
    fn lock_bytes(&self, place: EntrySlot) -> usize {
        let entry = self.table.at(place);
        let bytes = entry_bytes(entry) + lock_overhead_bytes(entry.key().len());
        if entry.deadline().is_none() || entry.has_words() || bytes > LOCK_BYTES_MAX {
            return 0;
        }
        let Some(fence) = self.fences.of(entry.key()) else {
            return 0;
        };
        // An expired field counts as well, until it is deleted.
        let hash = HashRef::of(entry, 0).filter(|hash| hash.len() == 1);
        let mut is_lock = false;
        if let Some(hash) = hash {
            hash.for_each(|field| {
                is_lock = field.deadline.is_none()
                    && field.value.integer().is_some()
                    && field.name.with_bytes(|owner| fence.is_of(owner));
            });
        }
        if is_lock { bytes } else { 0 }
    }

    /// Updates the recorded bytes of a held lock that has changed; they count because held locks, which are never
    /// evicted, reduce the memory of all other keys. If the lock no longer has the form that LOCK creates, it is an
    /// ordinary key from now on.
    #[cold]
    pub(super) fn settle_hold(&mut self, place: EntrySlot) {
        let is_held = self.is_held(place);
        let bytes = if is_held { self.lock_bytes(place) } else { 0 };
        self.set_hold(place, bytes);
    }

    /// True if the key at `place` is a held lock; blessed keys have the same access bit.
    fn is_held(&self, place: EntrySlot) -> bool {
        self.table.bits(place) & HELD_BIT != 0 && self.fences.is_held(self.table.at(place).key())
    }

    /// Marks the lock under a key as held (never evicted), if it is a lock and takes no more than `room` bytes, or is
    /// held already.
    pub(crate) fn begin_hold(&mut self, key: &[u8], room: u64) {
        let Some(place) = self.table.find(self.seed.hash(key), key) else {
            return;
        };
        let bytes = self.lock_bytes(place);
        let is_held = self.is_held(place);
        let has_room = is_held || bytes as u64 <= room;
        self.set_hold(place, if has_room { bytes } else { 0 });
    }

    /// Restores the held state of a key after an attempt was undone: its fence is already as it was before the
    /// attempt.
    pub(super) fn restore_hold(&mut self, key: &[u8]) {
        if let Some(place) = self.table.find(self.seed.hash(key), key) {
            let was_held = self.fences.is_held(key);
            let bytes = if was_held { self.lock_bytes(place) } else { 0 };
            self.set_hold(place, bytes);
        }
    }

    fn set_hold(&mut self, place: EntrySlot, bytes: usize) {
        if self.keeps_images() {
            self.fences.keep_changes();
        }
        let key = self.table.at(place).key();
        let is_held = self.fences.hold(key, bytes);
        let bits = self.table.bits(place);
        let held = match is_held {
            true => bits | HELD_BIT,
            false => bits & !HELD_BIT,
        };
        self.table.set_bits(place, held);
        self.publish_held();
        if self.hooks & HAS_BLESSED != 0 {
            self.settle_pin(place);
        }
    }

    /// Publishes the number and the bytes of held locks.
    pub(super) fn publish_held(&self) {
        let (keys, bytes) = (self.fences.held_keys(), self.fences.held_bytes());
        self.published
            .set_held(self.index, keys as u64, bytes as u64);
    }
}
