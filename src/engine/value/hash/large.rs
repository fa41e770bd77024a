//! A hash that outgrew its entry: a table of fields, each with its value and an optional deadline, and an index of
//! the deadlines.

use crate::value::body::{CollectionBody, CollectionCursor, ElementRef, Journal, ShowBefore};
use crate::value::deadlines::{ELEMENT_DEADLINE_MAX, ElementDeadlines, is_live};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::block::{Content, Kept, LONG_BYTES_MIN};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::table::Table;
use basalt_core::structures::undo_log::UndoLog;

/// A field: its name is the key of the record. A long value is a block, which replies share.
pub(super) type HashFieldRecord = Entry<Kept>;

/// A borrowed [`HashFieldRecord`].
pub(super) type HashFieldRecordRef<'a> = EntryRef<'a, Kept>;

/// The kind byte of records, which is not used.
const KIND: u8 = 0;

/// A large hash, see the module.
pub struct HashTable {
    fields: Table<HashFieldRecord>,
    deadlines: ElementDeadlines,
    /// Undo log with the previous state of each changed field; None while changes are not recorded.
    changes: Option<UndoLog>,
}

/// The field did not exist.
const ABSENT: u8 = 0;

/// The field existed, with a deadline or [`NO_DEADLINE`], and the preceding record holds its value.
const PRESENT: u8 = 1;

/// Larger than all deadlines.
const NO_DEADLINE: u64 = u64::MAX;

#[cold]
fn keep_absence(changes: &mut UndoLog, field: &[u8]) {
    changes.keep(field, NO_DEADLINE, ABSENT);
}

#[cold]
fn keep_record(changes: &mut UndoLog, record: HashFieldRecordRef<'_>) {
    record_value(record).with_bytes(|value| changes.keep(value, 0, PRESENT));
    let deadline_ms = record.deadline().unwrap_or(NO_DEADLINE);
    changes.keep(record.key(), deadline_ms, PRESENT);
}

/// The treatment of a field's deadline when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDeadline {
    /// Removes the field's deadline.
    Clear,
    /// Keeps the field's deadline.
    Keep,
}

/// Returns the value of a record.
pub(super) fn record_value(record: HashFieldRecordRef<'_>) -> Item<'_> {
    match record.value() {
        Value::Bytes(bytes) => Item::bytes(bytes),
        Value::Object(block) => Item::Block(block),
        Value::Integer(_) | Value::Block(_) => Item::bytes(&[]),
    }
}

fn new_record(field: &[u8], value: Content<'_>, deadline: Option<u64>) -> HashFieldRecord {
    match value.len() >= LONG_BYTES_MIN {
        true => HashFieldRecord::object(KIND, field, Box::new(Kept::new(value)), deadline),
        false => HashFieldRecord::bytes(KIND, field, &value, deadline),
    }
}

fn set_value(record: &mut HashFieldRecord, value: Content<'_>) {
    match value.len() >= LONG_BYTES_MIN {
        true => record.set_object(Box::new(Kept::new(value))),
        false => record.set_bytes(&value),
    }
}

impl HashTable {
    /// Creates a hash without fields.
    pub fn new(seed: HashSeed) -> HashTable {
        HashTable::with_room(seed, 0)
    }

    /// Creates an empty hash with capacity for about `count` fields;
    pub fn with_room(seed: HashSeed, count: usize) -> HashTable {
        let mut fields = Table::new(seed);
        fields.reserve(count);
        HashTable {
            fields,
            deadlines: ElementDeadlines::default(),
            changes: None,
        }
    }

    /// Returns the number of fields, including expired ones not deleted yet.
    pub fn total(&self) -> usize {
        self.fields.len()
    }

    /// Returns the number of unexpired fields.
    pub fn len(&self, now_ms: u64) -> usize {
        self.total() - self.deadlines.due(now_ms)
    }

    /// True if no unexpired field is left.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.deadlines.is_over(self.total(), now_ms)
    }

    /// Returns the soonest deadline of any field.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Returns the number of fields with a deadline.
    pub fn deadline_count(&self) -> usize {
        self.deadlines.count()
    }

    /// Returns the record of an unexpired field.
    #[inline]
    pub fn get(&self, field: &[u8], now_ms: u64) -> Option<HashFieldRecordRef<'_>> {
        self.fields
            .get(self.fields.hash(field), field)
            .filter(|record| is_live(*record, now_ms))
    }

    /// Sets a field. Returns true if it is new.
    #[inline]
    pub fn set(
        &mut self,
        field: &[u8],
        value: Content<'_>,
        deadline: FieldDeadline,
        now_ms: u64,
    ) -> bool {
        let hash = self.fields.hash(field);
        let Some(place) = self.fields.find(hash, field) else {
            if let Some(changes) = &mut self.changes {
                keep_absence(changes, field);
            }
            self.fields.insert_new(hash, new_record(field, value, None));
            return true;
        };
        if let Some(changes) = &mut self.changes {
            keep_record(changes, self.fields.at(place));
        }
        let was_live = is_live(self.fields.at(place), now_ms);
        if deadline == FieldDeadline::Clear || !was_live {
            self.deadlines.change(&mut self.fields, place, hash, None);
        }
        set_value(&mut self.fields.edit(place), value);
        !was_live
    }

    /// Inserts a field that is known to be absent.
    pub fn push(&mut self, field: &[u8], value: &[u8], deadline: Option<u64>) {
        let hash = self.fields.hash(field);
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        if let Some(changes) = &mut self.changes {
            keep_absence(changes, field);
        }
        self.fields
            .insert_new(hash, new_record(field, value.into(), deadline));
        if let Some(deadline_ms) = deadline {
            self.deadlines.note(deadline_ms, hash);
        }
    }

    /// Restores the previous state of a field.
    fn put_back(&mut self, field: &[u8], value: &[u8], deadline: Option<u64>) {
        let hash = self.fields.hash(field);
        let Some(place) = self.fields.find(hash, field) else {
            return self.push(field, value, deadline);
        };
        self.deadlines
            .change(&mut self.fields, place, hash, deadline);
        set_value(&mut self.fields.edit(place), value.into());
    }

    /// Deletes a field. Returns true if it existed and was not expired.
    pub fn remove(&mut self, field: &[u8], now_ms: u64) -> bool {
        let hash = self.fields.hash(field);
        let Some(place) = self.fields.find(hash, field) else {
            return false;
        };
        if let Some(changes) = &mut self.changes {
            keep_record(changes, self.fields.at(place));
        }
        let record = self.fields.remove(place);
        let record = record.view();
        if let Some(deadline_ms) = record.deadline() {
            self.deadlines.forget(&self.fields, deadline_ms, hash);
        }
        is_live(record, now_ms)
    }

    /// Sets or removes the deadline of a field. Returns false if there is no such field or it is expired.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<u64>, now_ms: u64) -> bool {
        let hash = self.fields.hash(field);
        let Some(place) = self.fields.find(hash, field) else {
            return false;
        };
        let record = self.fields.at(place);
        if !is_live(record, now_ms) {
            return false;
        }
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        if let Some(changes) = &mut self.changes {
            keep_record(changes, record);
        }
        self.deadlines
            .change(&mut self.fields, place, hash, deadline);
        true
    }

    /// Deletes at most `budget` expired fields, and passes the name and the deadline of each to `show`. Returns their
    /// number.
    pub fn expire_some(
        &mut self,
        now_ms: u64,
        budget: usize,
        mut deleted: impl FnMut(Element<'_>, u64),
    ) -> usize {
        let HashTable {
            fields,
            deadlines,
            changes,
        } = self;
        deadlines.expire_some(fields, now_ms, budget, |record| {
            if let Some(changes) = changes {
                keep_record(changes, record);
            }
            let deadline_ms = record.deadline().unwrap_or(now_ms);
            deleted(Element::Bytes(record.key()), deadline_ms);
        })
    }

    /// Visits every unexpired field.
    pub fn for_each(&self, now_ms: u64, mut visit: impl FnMut(HashFieldRecordRef<'_>)) {
        self.fields.for_each(|record| {
            if is_live(record, now_ms) {
                visit(record);
            }
        });
    }

    /// Visits about `budget` fields after a cursor, without expired ones. Returns the next cursor, 0 at the end.
    pub fn scan(
        &self,
        cursor: u64,
        budget: usize,
        now_ms: u64,
        mut visit: impl FnMut(HashFieldRecordRef<'_>),
    ) -> u64 {
        self.fields.scan(cursor, budget, |record| {
            if is_live(record, now_ms) {
                visit(record);
            }
        })
    }

    /// Returns a random field, which may be expired.
    pub fn random(&self, draw: &mut dyn FnMut() -> u64) -> Option<HashFieldRecordRef<'_>> {
        self.fields.random(draw).map(|place| self.fields.at(place))
    }

    /// Panics unless the index contains exactly the fields that have deadlines. For tests; reads everything.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.deadlines.check_invariants(&self.fields);
    }
}

/// Elements of a table that are freed together.
const ELEMENTS_PER_SEGMENT: usize = 256;

impl CollectionBody for HashTable {
    fn duplicate(&self) -> HashTable {
        HashTable {
            fields: self.fields.duplicate(|record| {
                record_value(record)
                    .with_bytes(|value| new_record(record.key(), value.into(), record.deadline()))
            }),
            deadlines: self.deadlines.clone(),
            changes: None,
        }
    }

    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        self.fields.prefetch_if_far(name, is_in_use);
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
        let fields = &mut self.fields;
        match fields.relocate_some(from.single(), budget, mover, |_| {}) {
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
            match change.mark {
                ABSENT => {
                    self.remove(change.bytes, 0);
                }
                _ => {
                    let deadline = Some(change.number).filter(|at_ms| *at_ms != NO_DEADLINE);
                    let value = changes.next().map_or(&[][..], |record| record.bytes);
                    self.put_back(change.bytes, value, deadline);
                }
            }
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.total())
    }

    fn element_hash(&self, name: &[u8]) -> u64 {
        self.fields.hash(name)
    }

    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        self.fields.scan_once(position, budget, |record| {
            show(ElementRef {
                name: record.key(),
                value: record_value(record),
                number: record.deadline().unwrap_or(NO_DEADLINE),
            });
        })
    }

    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        let mut changes = changes.changes_to(from);
        while let Some(change) = changes.next() {
            match change.mark {
                ABSENT => show(change.bytes, None),
                _ => {
                    let value = changes.next().map_or(&[][..], |record| record.bytes);
                    let piece = ElementRef::new(change.bytes, value, change.number);
                    show(change.bytes, Some(piece));
                }
            }
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        if self.deadlines.free_some(budget) {
            return true;
        }
        self.fields
            .drain_some(budget.div_ceil(ELEMENTS_PER_SEGMENT))
    }
}
