//! The choice of a database's next key to evict under an LRU or LFU policy: from the front of the queue of new keys,
//! or by the clock hand. See [`order`](super::order).

use super::order::{
    EvictionParams, FRONT_MAX, Order, ROUNDS_MAX, SETTLED_PER_INSERT, SLOTS_PER_EVICTION,
    SMALL_BIT, USES, worth,
};
use crate::db::Db;
use crate::published::Published;
use crate::short_hash::{self, KNOWN, places};
use basalt_core::structures::ghost::Ghost;
use basalt_core::structures::table::EntrySlot;

impl Db {
    /// Orders keys by other rules from now on; None: stops ordering them.
    pub(crate) fn set_order(&mut self, rules: Option<EvictionParams>) {
        match (&mut self.order, rules) {
            (Some(order), rules) => {
                order.rules = rules;
                if rules.is_none() {
                    order.ghost = Ghost::default();
                }
            }
            (none, Some(_)) => {
                let order = Order {
                    rules,
                    ..Order::default()
                };
                *none = Some(Box::new(order));
            }
            (None, None) => {}
        }
    }

    /// Removes keys from an overlong queue, so that it stays bounded while nothing is evicted; called for each
    /// insertion.
    pub(crate) fn settle_queue(&mut self) {
        for _ in 0..SETTLED_PER_INSERT {
            let keys = self.table.len();
            let Some(order) = &mut self.order else {
                return;
            };
            if order.small.len() <= order.queue_max(keys) {
                if order.rules.is_none() {
                    self.order = None;
                }
                return;
            }
            self.pop_queued();
        }
    }

    /// Finds the key in the table that a queue entry's short hash refers to. Returns the key's place, access bits and
    /// whole hash; None if the key is no longer in the queue.
    ///
    /// Two keys with the same short hash are found in any order. A key that has left the queue must not hide one that
    /// is still in the queue, which would then stay forever.
    fn queued(&self, known: u64) -> Option<(EntrySlot, u8, u64)> {
        let seed = self.seed();
        for passed in 0.. {
            let (mut alike, mut hash) = (0, 0);
            let place = places(known, self.table.depth()).find_map(|at| {
                self.table.find_by_hash(at, |entry| {
                    hash = seed.hash(entry.key());
                    let is_alike = hash & KNOWN == known;
                    alike += usize::from(is_alike);
                    is_alike && alike > passed
                })
            })?;
            let bits = self.table.bits(place);
            if bits & SMALL_BIT != 0 {
                return Some((place, bits, hash));
            }
        }
        None
    }

    /// Returns the next key to evict; None if keys are not ordered, or no candidate was found.
    pub(super) fn choose_by_order(&mut self, published: &Published) -> Option<EntrySlot> {
        let keys = self.table.len();
        let order = self.order.as_mut()?;
        let rules = order.rules?;
        order.fit_ghosts(keys);
        let candidates = self.evictable_count(rules.volatile_only);
        // In a database with few keys, the newest key must still not be evicted for the next one.
        let small_max = (candidates * rules.share_percent / 100).max(1);
        let found = self.choose_from_queue(rules, published, |queue| {
            queue > small_max || queue >= candidates
        });
        if found.is_some() {
            return found;
        }
        for _ in 0..ROUNDS_MAX {
            let found = self.choose_by_hand(rules);
            if found.is_some() {
                published.evicted_main.add(1);
                return found;
            }
        }
        self.choose_oldest(rules, published)
    }

    /// Prefetches the memory read for the first keys of the queue.
    pub(super) fn prefetch_front(&self, count: usize) {
        let Some(order) = &self.order else {
            return;
        };
        let front = || (0..count).map_while(|at| order.small.get(at).map(short_hash::known));
        for hash in front() {
            self.table.prefetch(hash);
        }
        for hash in front() {
            self.table.prefetch_removal(hash);
        }
    }

    /// Removes the key at the front of the queue. Returns its place, its access bits and its hash.
    fn pop_queued(&mut self) -> Option<(EntrySlot, u8, u64)> {
        let word = self.order.as_mut()?.small.pop()?;
        let (place, bits, hash) = self.queued(short_hash::known(word))?;
        let bits = bits & !SMALL_BIT;
        self.table.set_bits(place, bits);
        Some((place, bits, hash))
    }

    /// Examines keys at the front of the queue while `is_due` returns true for the queue's length.
    fn choose_from_queue(
        &mut self,
        rules: EvictionParams,
        published: &Published,
        is_due: impl Fn(usize) -> bool,
    ) -> Option<EntrySlot> {
        for _ in 0..FRONT_MAX {
            if !is_due(self.order.as_ref()?.small.len()) {
                return None;
            }
            let (place, bits, hash) = self.pop_queued()?;
            if !rules.may_go(bits) {
                continue;
            }
            if worth(bits) > 0 {
                published.promoted.add(1);
                self.table.set_bits(place, bits & !USES);
            } else {
                published.evicted_small.add(1);
                self.order.as_mut()?.ghost.note(hash);
                return Some(place);
            }
        }
        None
    }

    /// Returns the key that has been in the queue longest, used or not: if nothing else is found, a new key must
    /// not be evicted before it.
    fn choose_oldest(&mut self, rules: EvictionParams, published: &Published) -> Option<EntrySlot> {
        for _ in 0..FRONT_MAX {
            let (place, bits, hash) = self.pop_queued()?;
            if rules.may_go(bits) {
                published.evicted_small.add(1);
                self.order.as_mut()?.ghost.note(hash);
                return Some(place);
            }
        }
        None
    }

    /// Advances the clock hand to a key of the main part that may be evicted; if all keys on the way are in use,
    /// returns the least used of them.
    fn choose_by_hand(&mut self, rules: EvictionParams) -> Option<EntrySlot> {
        let order = self.order.as_mut()?;
        let mut found = None;
        let mut least: Option<(i8, EntrySlot)> = None;
        order.hand = self
            .table
            .sweep(order.hand, SLOTS_PER_EVICTION, |place, bits| {
                let is_candidate = bits & SMALL_BIT == 0 && rules.may_go(bits);
                if found.is_some() || !is_candidate {
                    return (bits, found.is_some());
                }
                let worth = worth(bits);
                if worth <= 0 {
                    found = Some(place);
                    return (bits, true);
                }
                if least.is_none_or(|(least, _)| worth < least) {
                    least = Some((worth, place));
                }
                (bits - 1, false)
            });
        found.or(least.map(|(_, place)| place))
    }
}
