//! Consumer groups: how far a group has read, which entries were delivered and not acknowledged yet, and to whom.
//!
//! A pending entry is recorded once in its group, with the consumer that owns it, which is the one that it was last
//! delivered to, and once in that consumer's own list; both always agree. An entry returned to the group has no
//! owner. A group does not know whether the entries still exist in the stream.

mod cut;

use std::collections::{BTreeMap, BTreeSet};

use super::StreamMetadata;
use super::consumer::{ConsumerId, NEVER, Pending, StreamConsumer};
use super::id::StreamId;
use cut::GroupCut;

/// The value of `entries_read` if it is not known.
pub const UNKNOWN_READ: i64 = -1;

/// A consumer group, see the module.
#[derive(Debug)]
pub struct ConsumerGroup {
    /// The ID of the last entry delivered to any of the group's consumers.
    pub last_id: StreamId,
    /// Number of entries read since the stream began, or [`UNKNOWN_READ`].
    pub entries_read: i64,
    pending: BTreeMap<StreamId, Pending>,
    consumers: Vec<Option<StreamConsumer>>,
    by_name: BTreeMap<Box<[u8]>, ConsumerId>,
    /// Number of pending entries that no consumer owns.
    returned: usize,
    /// The sequence number of the next returned entry.
    returned_next: u64,
    /// The state at a cut of which some part has not been saved yet.
    pub(super) cut: Option<Box<GroupCut>>,
}

impl Clone for ConsumerGroup {
    fn clone(&self) -> ConsumerGroup {
        ConsumerGroup {
            pending: self.pending.clone(),
            consumers: self.consumers.clone(),
            by_name: self.by_name.clone(),
            cut: None,
            ..*self
        }
    }
}

impl ConsumerGroup {
    /// Creates a group without consumers.
    pub fn new(last_id: StreamId, entries_read: i64) -> ConsumerGroup {
        ConsumerGroup {
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

    /// Keeps the pending state of an entry for the cut, as the state is about to change.
    #[inline]
    fn keep(&mut self, id: StreamId) {
        if let Some(cut) = &mut self.cut {
            cut.note(id, self.pending.get(&id).copied());
        }
    }

    // Consumers ----------------------------------------------------------------------------------------

    /// Returns a consumer by name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.by_name.get(name).copied()
    }

    /// Returns the consumer in a slot, which must exist.
    pub fn consumer(&self, id: ConsumerId) -> &StreamConsumer {
        self.consumers[id.0 as usize]
            .as_ref()
            .expect("ids of deleted consumers are not kept")
    }

    /// Returns the consumer in a slot, for changing its times.
    pub fn consumer_mut(&mut self, id: ConsumerId) -> &mut StreamConsumer {
        self.consumers[id.0 as usize]
            .as_mut()
            .expect("ids of deleted consumers are not kept")
    }

    /// Returns the consumers, by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &StreamConsumer> {
        self.by_name.values().map(|id| self.consumer(*id))
    }

    /// Returns the consumers with their slots, by name.
    pub(super) fn consumers_with_ids(&self) -> impl Iterator<Item = (ConsumerId, &StreamConsumer)> {
        self.by_name.values().map(|id| (*id, self.consumer(*id)))
    }

    /// Returns the first entry, starting at an ID, that the consumer in a slot owns now; None if there is none.
    pub(super) fn owned_from(&self, place: ConsumerId, from: StreamId) -> Option<StreamId> {
        let consumer = self.consumers.get(place.0 as usize)?.as_ref()?;
        consumer.pending.range(from..).next().copied()
    }

    /// Returns the name of the owner of a pending entry; empty, if no consumer owns it.
    pub fn owner_name(&self, pending: Pending) -> &[u8] {
        match pending.consumer {
            ConsumerId::NOBODY => b"",
            owner => &self.consumer(owner).name,
        }
    }

    /// Adds a consumer that does not exist yet.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: i64) -> ConsumerId {
        let consumer = StreamConsumer {
            name: name.into(),
            seen_ms: now_ms,
            active_ms: NEVER,
            pending: BTreeSet::new(),
        };
        // Most groups have no free slots, so that no search for one is needed, however many consumers there are.
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

    /// Deletes a consumer with the pending entries that it owns. Returns the number of these entries.
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

    /// Returns the number of entries delivered and not acknowledged.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of pending entries that no consumer owns.
    pub fn returned_count(&self) -> usize {
        self.returned
    }

    /// Returns the pending entries that no consumer owns, in the order of their return.
    pub fn returned(&self) -> Vec<(StreamId, Pending)> {
        if self.returned == 0 {
            return Vec::new();
        }
        let pending = self.pending.iter().map(|(id, one)| (*id, *one));
        let mut returned: Vec<_> = pending.filter(|(_, one)| one.is_returned()).collect();
        returned.sort_unstable_by_key(|(_, one)| one.delivered_ms);
        returned
    }

    /// Returns an entry to the group: makes it pending without an owner, after all other returned entries.
    pub fn give_back(&mut self, id: StreamId, deliveries: u64) {
        let pending = Pending::returned(self.returned_next, deliveries);
        self.returned_next += 1;
        self.set_pending(id, pending);
    }

    /// Returns the pending state of an entry.
    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// Returns the first and the last pending entry.
    pub fn pending_ends(&self) -> Option<(StreamId, StreamId)> {
        let (first, _) = self.pending.first_key_value()?;
        let (last, _) = self.pending.last_key_value()?;
        Some((*first, *last))
    }

    /// Returns the pending entries with IDs in a range, ascending.
    pub fn pending_between(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl Iterator<Item = (StreamId, Pending)> {
        let found = (start <= end).then(|| self.pending.range(start..=end));
        found.into_iter().flatten().map(|(id, one)| (*id, *one))
    }

    /// Returns the pending entries of one consumer with IDs in a range, see [`ConsumerGroup::pending_between`].
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

    /// Sets the pending state of an entry, whichever consumer owned it before.
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

    /// Acknowledges an entry. Returns whether it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        self.keep(id);
        let Some(pending) = self.pending.remove(&id) else {
            return false;
        };
        self.disown(pending.consumer, id);
        true
    }

    /// Records that a consumer requested entries, and creates the consumer if it does not exist. Returns its slot and
    /// whether it is new.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> (ConsumerId, bool) {
        match self.find_consumer(name) {
            Some(id) => {
                self.consumer_mut(id).seen_ms = now_ms;
                (id, false)
            }
            None => (self.add_consumer(name, now_ms), true),
        }
    }

    /// Records that a pending entry was delivered to its owner again.
    pub fn deliver_again(&mut self, id: StreamId, now_ms: i64) {
        self.keep(id);
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries_with(1);
        }
    }

    /// Records that a consumer received entries after the last one that the group read.
    pub fn deliver(
        &mut self,
        metadata: StreamMetadata,
        ids: &[StreamId],
        consumer: ConsumerId,
        now_ms: i64,
        is_acknowledged: bool,
    ) {
        for &id in ids {
            if id > self.last_id {
                if self.entries_read != UNKNOWN_READ && !metadata.has_deleted_from(id) {
                    self.entries_read = self.entries_read.wrapping_add(1);
                } else if metadata.entries_added > 0 {
                    self.entries_read = metadata.entries_before(id).unwrap_or(UNKNOWN_READ);
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

    /// Returns how many entries the group has not read yet, if that is known.
    pub fn lag(&self, metadata: StreamMetadata) -> Option<i64> {
        if metadata.entries_added == 0 {
            return Some(0);
        }
        let read = if self.entries_read != UNKNOWN_READ && !metadata.has_deleted_from(self.last_id)
        {
            self.entries_read
        } else {
            metadata.entries_before(self.last_id)?
        };
        Some((metadata.entries_added as i64).wrapping_sub(read))
    }

    /// Returns the number of consumer slots, including free ones.
    pub(super) fn consumer_places(&self) -> usize {
        self.consumers.len()
    }

    /// Returns the pending entries, for relocation.
    pub(super) fn pending_mut(&mut self) -> &mut BTreeMap<StreamId, Pending> {
        &mut self.pending
    }

    /// Returns the consumer in a slot, if there is one.
    pub(super) fn consumer_at_mut(&mut self, place: usize) -> Option<&mut StreamConsumer> {
        self.consumers.get_mut(place)?.as_mut()
    }

    /// Frees some of its contents. Returns true while more is left.
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

    /// Checks that both lists of pending entries agree.
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
