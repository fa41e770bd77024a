//! A collection that outgrew its entry and whose elements may have deadlines: a table of records, one allocation
//! each, and an index of their deadlines. Knows nothing of entries, limits and smaller encodings.

use super::{ELEMENT_DEADLINE_MAX, ElementDeadlines, is_live};
use crate::value::{CollectionBody, CollectionCursor, ElementRef, Journal, ShowBefore};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::table::{EntrySlot, Table};
use basalt_core::structures::undo_log::{UndoLog, UndoRecord};

/// The value of an element: what its record holds beside its name, which is the key of the record, and its deadline.
pub trait ElementValue: Send + Sized + 'static {
    /// Whether elements have values. If so, the undo log holds the value of a changed element before the element.
    const EXISTS: bool;

    /// Returns the value in a record.
    fn of(record: EntryRef<'_, Self>) -> Item<'_>;

    /// Creates a record.
    fn record(name: &[u8], value: Content<'_>, deadline: Option<u64>) -> Entry<Self>;

    /// Replaces the value in a record.
    fn set(record: &mut Entry<Self>, value: Content<'_>);
}

/// A large collection, see the module.
pub struct ElementTable<V: ElementValue> {
    pub(in crate::value) records: Table<Entry<V>>,
    pub(in crate::value) deadlines: ElementDeadlines,
    /// Undo log with the previous state of each changed element; None while changes are not recorded.
    changes: Option<UndoLog>,
}

/// The element did not exist.
const ABSENT: u8 = 0;

/// The element existed, with a deadline or [`NO_DEADLINE`].
const PRESENT: u8 = 1;

/// Larger than all deadlines.
const NO_DEADLINE: u64 = u64::MAX;

/// Elements that are freed in the time that one segment of the table takes.
const ELEMENTS_PER_SEGMENT: usize = 256;

#[cold]
fn keep_absence(changes: &mut UndoLog, name: &[u8]) {
    changes.keep(name, NO_DEADLINE, ABSENT);
}

#[cold]
fn keep_record<V: ElementValue>(changes: &mut UndoLog, record: EntryRef<'_, V>) {
    if V::EXISTS {
        V::of(record).with_bytes(|value| changes.keep(value, 0, PRESENT));
    }
    let deadline_ms = record.deadline().unwrap_or(NO_DEADLINE);
    changes.keep(record.key(), deadline_ms, PRESENT);
}

/// Returns the value of the element that was just read from the changes.
fn value_before<'j, V: ElementValue>(
    changes: &mut impl Iterator<Item = UndoRecord<'j>>,
) -> &'j [u8] {
    match V::EXISTS {
        true => changes.next().map_or(&[], |value| value.bytes),
        false => &[],
    }
}

impl<V: ElementValue> ElementTable<V> {
    /// Creates an empty collection; takes no memory until an element is added.
    pub fn new(seed: HashSeed) -> ElementTable<V> {
        ElementTable {
            records: Table::new(seed),
            deadlines: ElementDeadlines::default(),
            changes: None,
        }
    }

    /// Reserves capacity for about `count` elements, if the collection is empty.
    pub fn reserve(&mut self, count: usize) {
        self.records.reserve(count);
    }

    /// Returns the number of elements, including expired ones not deleted yet.
    pub fn total(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of unexpired elements.
    pub fn len(&self, now_ms: u64) -> usize {
        self.total() - self.deadlines.due(now_ms)
    }

    /// True if no unexpired element is left.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.deadlines.is_over(self.total(), now_ms)
    }

    /// Returns the soonest deadline of any element.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Returns the number of elements with a deadline.
    pub fn deadline_count(&self) -> usize {
        self.deadlines.count()
    }

    /// Returns the record of an unexpired element.
    #[inline]
    pub fn get(&self, name: &[u8], now_ms: u64) -> Option<EntryRef<'_, V>> {
        self.records
            .get(self.records.hash(name), name)
            .filter(|record| is_live(*record, now_ms))
    }

    /// Inserts an element that is known to be absent.
    pub fn push(&mut self, name: &[u8], value: &[u8], deadline: Option<u64>) {
        let hash = self.records.hash(name);
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        self.keep_absence(name);
        self.records
            .insert_new(hash, V::record(name, value.into(), deadline));
        if let Some(deadline_ms) = deadline {
            self.deadlines.note(deadline_ms, hash);
        }
    }

    /// Records that an element did not exist, if changes are recorded.
    #[inline]
    pub(in crate::value) fn keep_absence(&mut self, name: &[u8]) {
        if let Some(changes) = &mut self.changes {
            keep_absence(changes, name);
        }
    }

    /// Records the state of the element at a place, if changes are recorded.
    #[inline]
    pub(in crate::value) fn keep(&mut self, place: EntrySlot) {
        if let Some(changes) = &mut self.changes {
            keep_record(changes, self.records.at(place));
        }
    }

    /// Restores the previous state of an element.
    fn put_back(&mut self, name: &[u8], value: &[u8], deadline: Option<u64>) {
        let hash = self.records.hash(name);
        let Some(place) = self.records.find(hash, name) else {
            return self.push(name, value, deadline);
        };
        self.deadlines
            .change(&mut self.records, place, hash, deadline);
        V::set(&mut self.records.edit(place), value.into());
    }

    /// Removes the element at a place, and returns its record.
    #[inline]
    pub(in crate::value) fn take(&mut self, place: EntrySlot) -> Entry<V> {
        self.keep(place);
        let taken = self.records.remove(place);
        let record = taken.view();
        if let Some(deadline_ms) = record.deadline() {
            let hash = self.records.hash(record.key());
            self.deadlines.forget(&self.records, deadline_ms, hash);
        }
        taken
    }

    /// Sets or removes the deadline of an element. Returns false if there is no such element or it is expired.
    pub fn set_deadline(&mut self, name: &[u8], deadline: Option<u64>, now_ms: u64) -> bool {
        let hash = self.records.hash(name);
        let Some(place) = self.records.find(hash, name) else {
            return false;
        };
        if !is_live(self.records.at(place), now_ms) {
            return false;
        }
        self.keep(place);
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        self.deadlines
            .change(&mut self.records, place, hash, deadline);
        true
    }

    /// Deletes at most `budget` expired elements, and passes the name and the deadline of each to `deleted`. Returns
    /// their number.
    pub fn expire_some(
        &mut self,
        now_ms: u64,
        budget: usize,
        mut deleted: impl FnMut(Element<'_>, u64),
    ) -> usize {
        let ElementTable {
            records,
            deadlines,
            changes,
        } = self;
        deadlines.expire_some(records, now_ms, budget, |record| {
            if let Some(changes) = changes {
                keep_record(changes, record);
            }
            let deadline_ms = record.deadline().unwrap_or(now_ms);
            deleted(Element::Bytes(record.key()), deadline_ms);
        })
    }

    /// Visits every unexpired element.
    pub fn for_each(&self, now_ms: u64, mut visit: impl FnMut(EntryRef<'_, V>)) {
        self.records.for_each(|record| {
            if is_live(record, now_ms) {
                visit(record);
            }
        });
    }

    /// Visits about `budget` elements after a cursor, without expired ones. Returns the next cursor, 0 at the end.
    pub fn scan(
        &self,
        cursor: u64,
        budget: usize,
        now_ms: u64,
        mut visit: impl FnMut(EntryRef<'_, V>),
    ) -> u64 {
        self.records.scan(cursor, budget, |record| {
            if is_live(record, now_ms) {
                visit(record);
            }
        })
    }

    /// Returns a uniformly random unexpired element.
    pub fn random(&self, random: &mut Random, now_ms: u64) -> Option<EntryRef<'_, V>> {
        let place = self.random_place(random, now_ms)?;
        Some(self.records.at(place))
    }

    /// Returns the place of a uniformly random unexpired element.
    pub(in crate::value) fn random_place(
        &self,
        random: &mut Random,
        now_ms: u64,
    ) -> Option<EntrySlot> {
        /// After so many samples of expired elements, a walk over all elements is cheaper.
        const SAMPLES_MAX: usize = 1000;
        for _ in 0..SAMPLES_MAX {
            let place = self.records.random(&mut || random.next_u64())?;
            if is_live(self.records.at(place), now_ms) {
                return Some(place);
            }
        }
        let mut left = random.index(self.len(now_ms).max(1));
        let mut chosen = None;
        self.for_each(now_ms, |record| {
            if left == 0 {
                let name = record.key();
                chosen = self.records.find(self.records.hash(name), name);
            }
            left = left.wrapping_sub(1);
        });
        chosen
    }

    /// Panics unless the index contains exactly the elements that have deadlines. For tests; reads everything.
    #[cfg(test)]
    pub(in crate::value) fn check_invariants(&self) {
        self.deadlines.check_invariants(&self.records);
    }
}

impl<V: ElementValue> CollectionBody for ElementTable<V> {
    fn duplicate(&self) -> ElementTable<V> {
        ElementTable {
            records: self.records.duplicate(|record| {
                V::of(record)
                    .with_bytes(|value| V::record(record.key(), value.into(), record.deadline()))
            }),
            deadlines: self.deadlines.clone(),
            changes: None,
        }
    }

    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        self.records.prefetch_if_far(name, is_in_use);
    }

    fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        const DEADLINES: u64 = 1;
        if from.part == DEADLINES {
            let at = self.deadlines.relocate_some(from.at, budget / 4, mover);
            let part = if at == 0 { 0 } else { DEADLINES };
            return CollectionCursor { part, at };
        }
        let records = &mut self.records;
        match records.relocate_some(from.single(), budget, mover, |_| {}) {
            0 if !self.deadlines.is_empty() => CollectionCursor {
                part: DEADLINES,
                at: 0,
            },
            next => next.into(),
        }
    }

    fn undo_log(&mut self) -> Option<&mut Option<UndoLog>> {
        Some(&mut self.changes)
    }

    fn undo(&mut self, journal: &Journal) {
        let mut changes = journal.changes_to(0);
        while let Some(change) = changes.next() {
            let name = change.bytes;
            if change.mark == PRESENT {
                let deadline = Some(change.number).filter(|at_ms| *at_ms != NO_DEADLINE);
                self.put_back(name, value_before::<V>(&mut changes), deadline);
            } else if let Some(place) = self.records.find(self.records.hash(name), name) {
                self.take(place);
            }
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.total())
    }

    fn element_hash(&self, name: &[u8]) -> u64 {
        self.records.hash(name)
    }

    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        self.records.scan_once(position, budget, |record| {
            show(ElementRef {
                name: record.key(),
                value: V::of(record),
                number: record.deadline().unwrap_or(NO_DEADLINE),
            });
        })
    }

    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        let mut changes = changes.changes_to(from);
        while let Some(change) = changes.next() {
            let was_there = change.mark == PRESENT;
            let piece = was_there.then(|| {
                let value = value_before::<V>(&mut changes);
                ElementRef::new(change.bytes, value, change.number)
            });
            show(change.bytes, piece);
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        if self.deadlines.free_some(budget) {
            return true;
        }
        self.records
            .drain_some(budget.div_ceil(ELEMENTS_PER_SEGMENT))
    }
}
