//! Consumer groups: how far a group has read, what was delivered and not acknowledged yet, and to whom.
//!
//! A pending entry stands once in its group, with the consumer that owns it, and once in that consumer's own list;
//! both always agree. One that the group was given back has no owner. It does not know whether the entries are still in
//! the stream.

mod cut;

use std::collections::{BTreeMap, BTreeSet};

use super::Facts;
use super::consumer::{Consumer, ConsumerId, NEVER, Pending};
use super::id::StreamId;
use cut::GroupCut;

/// A group's count of entries read, where it is not known.
pub const UNKNOWN_READ: i64 = -1;

/// See the module.
#[derive(Debug)]
pub struct Group {
    /// The last entry delivered to any of its consumers.
    pub last_id: StreamId,
    /// Entries read since the stream began, or [`UNKNOWN_READ`].
    pub entries_read: i64,
    pending: BTreeMap<StreamId, Pending>,
    consumers: Vec<Option<Consumer>>,
    by_name: BTreeMap<Box<[u8]>, ConsumerId>,
    /// Pending entries that no consumer owns.
    returned: usize,
    /// The number of the next one that is given back.
    returned_next: u64,
    /// What it was at a moment of which not all was shown yet.
    pub(super) cut: Option<Box<GroupCut>>,
}

impl Clone for Group {
    fn clone(&self) -> Group {
        Group {
            pending: self.pending.clone(),
            consumers: self.consumers.clone(),
            by_name: self.by_name.clone(),
            cut: None,
            ..*self
        }
    }
}

impl Group {
    /// A group without consumers.
    pub fn new(last_id: StreamId, entries_read: i64) -> Group {
        Group {
            last_id,
            entries_read,
            pending: BTreeMap::new(),
            consumers: Vec::new(),
            by_name: BTreeMap::new(),
            returned: 0,
            returned_next: 0,
            cut: None,
        }
    }

    /// An entry is about to be pending in another way, or not any more.
    #[inline]
    fn keep(&mut self, id: StreamId) {
        if let Some(cut) = &mut self.cut {
            cut.note(id, self.pending.get(&id).copied());
        }
    }

    // Consumers ----------------------------------------------------------------------------------------

    /// A consumer by name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.by_name.get(name).copied()
    }

    /// A consumer by its place.
    pub fn consumer(&self, id: ConsumerId) -> &Consumer {
        self.consumers[id.0 as usize]
            .as_ref()
            .expect("ids of deleted consumers are not kept")
    }

    /// A consumer, for changing its times.
    pub fn consumer_mut(&mut self, id: ConsumerId) -> &mut Consumer {
        self.consumers[id.0 as usize]
            .as_mut()
            .expect("ids of deleted consumers are not kept")
    }

    /// The consumers, by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.by_name.values().map(|id| self.consumer(*id))
    }

    /// The consumers with their places, by name.
    pub(super) fn consumers_with_ids(&self) -> impl Iterator<Item = (ConsumerId, &Consumer)> {
        self.by_name.values().map(|id| (*id, self.consumer(*id)))
    }

    /// The first entry from one on that the consumer at a place owns now, if there is one.
    pub(super) fn owned_from(&self, place: ConsumerId, from: StreamId) -> Option<StreamId> {
        let consumer = self.consumers.get(place.0 as usize)?.as_ref()?;
        consumer.pending.range(from..).next().copied()
    }

    /// The name of who owns a pending entry; empty, if no consumer does.
    pub fn owner_name(&self, pending: Pending) -> &[u8] {
        match pending.consumer {
            ConsumerId::NOBODY => b"",
            owner => &self.consumer(owner).name,
        }
    }

    /// Adds a consumer that is not there yet.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: i64) -> ConsumerId {
        let consumer = Consumer {
            name: name.into(),
            seen_ms: now_ms,
            active_ms: NEVER,
            pending: BTreeSet::new(),
        };
        // Most groups have no free places; then none is looked for, however many consumers there are.
        let free = if self.by_name.len() == self.consumers.len() {
            None
        } else {
            self.consumers.iter().position(Option::is_none)
        };
        let at = free.unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() - 1
        });
        self.consumers[at] = Some(consumer);
        let id = ConsumerId(u32::try_from(at).expect("fewer than 2^32 consumers"));
        self.by_name.insert(name.into(), id);
        id
    }

    /// Deletes a consumer with the entries that it owns; says how many those were.
    pub fn remove_consumer(&mut self, id: ConsumerId) -> usize {
        let Some(consumer) = self.consumers[id.0 as usize].take() else {
            return 0;
        };
        for entry in &consumer.pending {
            self.keep(*entry);
            self.pending.remove(entry);
        }
        self.by_name.remove(&consumer.name);
        consumer.pending.len()
    }

    // Pending entries ----------------------------------------------------------------------------------

    /// Entries delivered and not acknowledged.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// How many of them no consumer owns.
    pub fn returned_count(&self) -> usize {
        self.returned
    }

    /// What no consumer owns of them, in the order in which it was given back.
    pub fn returned(&self) -> Vec<(StreamId, Pending)> {
        if self.returned == 0 {
            return Vec::new();
        }
        let pending = self.pending.iter().map(|(id, one)| (*id, *one));
        let mut returned: Vec<_> = pending.filter(|(_, one)| one.is_returned()).collect();
        returned.sort_unstable_by_key(|(_, one)| one.delivered_ms);
        returned
    }

    /// Makes an entry pending that no consumer owns, behind all of these.
    pub fn give_back(&mut self, id: StreamId, deliveries: u64) {
        let pending = Pending::returned(self.returned_next, deliveries);
        self.returned_next += 1;
        self.set_pending(id, pending);
    }

    /// One pending entry.
    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// The first and the last of them.
    pub fn pending_ends(&self) -> Option<(StreamId, StreamId)> {
        let (first, _) = self.pending.first_key_value()?;
        let (last, _) = self.pending.last_key_value()?;
        Some((*first, *last))
    }

    /// Pending entries with IDs in a range, ascending.
    pub fn pending_between(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl Iterator<Item = (StreamId, Pending)> {
        let found = (start <= end).then(|| self.pending.range(start..=end));
        found.into_iter().flatten().map(|(id, one)| (*id, *one))
    }

    /// As [`Group::pending_between`], only those of one consumer.
    pub fn pending_of(
        &self,
        consumer: ConsumerId,
        start: StreamId,
        end: StreamId,
    ) -> impl Iterator<Item = (StreamId, Pending)> {
        let own = &self.consumer(consumer).pending;
        let found = (start <= end).then(|| own.range(start..=end));
        found.into_iter().flatten().filter_map(|id| {
            let pending = self.pending(*id)?;
            Some((*id, pending))
        })
    }

    /// Makes an entry pending as stated, whichever consumer owned it before.
    pub fn set_pending(&mut self, id: StreamId, pending: Pending) {
        self.keep(id);
        let before = self.pending.insert(id, pending);
        if let Some(before) = before {
            if before.consumer == pending.consumer {
                return;
            }
            self.disown(before.consumer, id);
        }
        match pending.consumer {
            ConsumerId::NOBODY => self.returned += 1,
            owner => {
                self.consumer_mut(owner).pending.insert(id);
            }
        }
    }

    fn disown(&mut self, owner: ConsumerId, id: StreamId) {
        match owner {
            ConsumerId::NOBODY => self.returned -= 1,
            owner => {
                self.consumer_mut(owner).pending.remove(&id);
            }
        }
    }

    /// Acknowledges an entry; says whether it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        self.keep(id);
        let Some(pending) = self.pending.remove(&id) else {
            return false;
        };
        self.disown(pending.consumer, id);
        true
    }

    /// Notes that a consumer asked for entries; makes it if there is none of this name, and says so.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> (ConsumerId, bool) {
        match self.find_consumer(name) {
            Some(id) => {
                self.consumer_mut(id).seen_ms = now_ms;
                (id, false)
            }
            None => (self.add_consumer(name, now_ms), true),
        }
    }

    /// Notes that the owner of a pending entry got it once more.
    pub fn deliver_again(&mut self, id: StreamId, now_ms: i64) {
        self.keep(id);
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries_with(1);
        }
    }

    /// Notes that a consumer got entries behind the last one that the group read.
    pub fn deliver(
        &mut self,
        facts: Facts,
        ids: &[StreamId],
        consumer: ConsumerId,
        now_ms: i64,
        is_acknowledged: bool,
    ) {
        for &id in ids {
            if id > self.last_id {
                if self.entries_read != UNKNOWN_READ && !facts.has_deleted_from(id) {
                    self.entries_read = self.entries_read.wrapping_add(1);
                } else if facts.entries_added > 0 {
                    self.entries_read = facts.entries_before(id).unwrap_or(UNKNOWN_READ);
                }
                self.last_id = id;
            }
            if !is_acknowledged {
                // An entry may be pending already, after XGROUP SETID went back.
                let pending = Pending {
                    delivered_ms: now_ms,
                    deliveries: 1,
                    consumer,
                };
                self.set_pending(id, pending);
                self.consumer_mut(consumer).active_ms = now_ms;
            }
        }
    }

    /// How many entries the group has not read yet, if that can be told.
    pub fn lag(&self, facts: Facts) -> Option<i64> {
        if facts.entries_added == 0 {
            return Some(0);
        }
        let read = if self.entries_read != UNKNOWN_READ && !facts.has_deleted_from(self.last_id) {
            self.entries_read
        } else {
            facts.entries_before(self.last_id)?
        };
        Some((facts.entries_added as i64).wrapping_sub(read))
    }

    /// Places of consumers, those that are free too.
    pub(super) fn consumer_places(&self) -> usize {
        self.consumers.len()
    }

    /// What is pending, for moving it.
    pub(super) fn pending_mut(&mut self) -> &mut BTreeMap<StreamId, Pending> {
        &mut self.pending
    }

    /// The consumer at a place, if there is one.
    pub(super) fn consumer_at_mut(&mut self, place: usize) -> Option<&mut Consumer> {
        self.consumers.get_mut(place)?.as_mut()
    }

    /// Frees some of what it holds; true while more is left.
    pub(super) fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 {
            *budget -= 1;
            if self.pending.pop_first().is_some() {
                continue;
            }
            let Some(last) = self.consumers.last_mut() else {
                return false;
            };
            let is_empty = last
                .as_mut()
                .is_none_or(|consumer| consumer.pending.pop_first().is_none());
            if is_empty {
                self.consumers.pop();
            }
        }
        true
    }

    /// Both lists of pending entries agree.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut total = 0;
        for (name, id) in &self.by_name {
            let consumer = self.consumer(*id);
            assert_eq!(*name, consumer.name);
            total += consumer.pending.len();
            for entry in &consumer.pending {
                assert_eq!(self.pending[entry].consumer, *id);
            }
        }
        assert_eq!(self.returned, self.returned().len());
        assert_eq!(total + self.returned, self.pending.len());
        assert_eq!(self.consumers.iter().flatten().count(), self.by_name.len());
    }
}
