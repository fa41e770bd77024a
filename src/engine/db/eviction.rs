//! Which keys of a database eviction may choose among, and what it has to know when they come and go.

use super::{Db, HAS_FENCES};
use crate::evict::order::{HELD_BIT, SMALL_BIT, VOLATILE_BIT};
use crate::value::hash::HashRef;
use crate::value::object::entry_bytes;
use basalt_core::structures::table::Place;

/// Bytes that the fence of a lock takes beside the lock, about.
const FENCE_BYTES: usize = 96;

/// Maximum bytes of a held lock. A larger one, by the names of its key and its owner, is evictable like other keys.
pub(crate) const LOCK_BYTES_MAX: usize = 4096;

/// Bytes of a lock beside its entry, by the length of its key.
pub(crate) fn beside_lock(key_len: usize) -> usize {
    2 * key_len + FENCE_BYTES
}

impl Db {
    /// Keys that may be evicted: all but held locks, or those with a deadline.
    pub(crate) fn evictable_count(&self, volatile_only: bool) -> usize {
        let keys = match volatile_only {
            true => self.volatile_count(),
            false => self.len(),
        };
        keys.saturating_sub(self.fences.held_keys())
    }

    /// The key at a place is written as if it had not been there: eviction takes it for a new one.
    pub(crate) fn renew(&mut self, place: Place, hash: u64) {
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

    /// The key at a place is about to leave the table.
    pub(super) fn note_departing(&mut self, place: Place) {
        if let Some(order) = &mut self.order
            && self.table.bits(place) & SMALL_BIT != 0
        {
            order.depart(self.seed.hash(self.table.at(place).key()));
        }
    }

    /// Notes in the access bits whether an entry has a deadline, so that eviction need not look at it.
    pub(super) fn mark_volatile(&mut self, place: Place, hash: u64, is_volatile: bool) {
        let before = self.table.bits(place);
        let mut bits = match is_volatile {
            true => before | VOLATILE_BIT,
            false => before & !VOLATILE_BIT,
        };
        if bits == before {
            return;
        }
        // Among the keys with deadlines this one is new.
        if let Some(order) = &mut self.order
            && order.is_volatile_only()
            && is_volatile
            && bits & SMALL_BIT == 0
        {
            bits = order.enter(hash, bits, &self.published);
        }
        self.table.set_bits(place, bits);
        self.settle_queue();
        if self.hooks & HAS_FENCES != 0 {
            self.settle_hold(place);
        }
    }

    /// Bytes of the lock at a place if it may be held, otherwise 0: it must be as LOCK made it, a hash of its
    /// owner alone and how often that holds it, with a deadline, the fence of that owner and nothing else, and small.
    /// So what is held cannot grow under another command.
    fn lock_bytes(&self, place: Place) -> usize {
        let entry = self.table.at(place);
        let bytes = entry_bytes(entry) + beside_lock(entry.key().len());
        if entry.deadline().is_none() || entry.has_words() || bytes > LOCK_BYTES_MAX {
            return 0;
        }
        let Some(fence) = self.fences.of(entry.key()) else {
            return 0;
        };
        // A field whose time is over is one as well, until it is deleted.
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

    /// A lock that is held, and so never evicted, has changed: counts what it takes now, as it takes it from all
    /// others. If it is not as LOCK made it any more, it is a key like any other from now on.
    #[cold]
    pub(super) fn settle_hold(&mut self, place: Place) {
        let is_held = self.table.bits(place) & HELD_BIT != 0;
        let bytes = if is_held { self.lock_bytes(place) } else { 0 };
        self.set_hold(place, bytes);
    }

    /// The lock under a key is held from now on, if it is one and takes no more than `room`, or is held already.
    pub(crate) fn begin_hold(&mut self, key: &[u8], room: u64) {
        let Some(place) = self.table.find(self.seed.hash(key), key) else {
            return;
        };
        let bytes = self.lock_bytes(place);
        let is_held = self.table.bits(place) & HELD_BIT != 0;
        let has_room = is_held || bytes as u64 <= room;
        self.set_hold(place, if has_room { bytes } else { 0 });
    }

    /// Goes back to what was held, for a key whose fence is as it was before an attempt.
    pub(super) fn restore_hold(&mut self, key: &[u8]) {
        if let Some(place) = self.table.find(self.seed.hash(key), key) {
            let was_held = self.fences.is_held(key);
            let bytes = if was_held { self.lock_bytes(place) } else { 0 };
            self.set_hold(place, bytes);
        }
    }

    fn set_hold(&mut self, place: Place, bytes: usize) {
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
    }

    /// What held locks take.
    pub(super) fn publish_held(&self) {
        let (keys, bytes) = (self.fences.held_keys(), self.fences.held_bytes());
        self.published
            .set_held(self.index, keys as u64, bytes as u64);
    }
}
