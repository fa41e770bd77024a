//! A hash that outgrew its entry: a table of fields, each with its value and an optional deadline.

use crate::value::deadlines::is_live;
use crate::value::deadlines::table::{ElementTable, ElementValue};
use basalt_core::structures::block::{Content, Kept, LONG_BYTES_MIN};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::item::Item;

/// The fields of a large hash. A long value is a block, which replies share.
pub type HashTable = ElementTable<Kept>;

/// A borrowed record of a field.
pub(super) type HashFieldRecordRef<'a> = EntryRef<'a, Kept>;

/// The kind byte of records, which is not used.
const KIND: u8 = 0;

/// The treatment of a field's deadline when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDeadline {
    /// Removes the field's deadline.
    Clear,
    /// Keeps the field's deadline.
    Keep,
}

impl ElementValue for Kept {
    const EXISTS: bool = true;

    fn of(record: EntryRef<'_, Kept>) -> Item<'_> {
        match record.value() {
            Value::Bytes(bytes) => Item::bytes(bytes),
            Value::Object(block) => Item::Block(block),
            Value::Integer(_) | Value::Block(_) => Item::bytes(&[]),
        }
    }

    fn record(field: &[u8], value: Content<'_>, deadline: Option<u64>) -> Entry<Kept> {
        match value.len() >= LONG_BYTES_MIN {
            true => Entry::object(KIND, field, Box::new(Kept::new(value)), deadline),
            false => Entry::bytes(KIND, field, &value, deadline),
        }
    }

    fn set(record: &mut Entry<Kept>, value: Content<'_>) {
        match value.len() >= LONG_BYTES_MIN {
            true => record.set_object(Box::new(Kept::new(value))),
            false => record.set_bytes(&value),
        }
    }
}

impl HashTable {
    /// Sets a field. Returns true if it is new.
    #[inline]
    pub fn set(
        &mut self,
        field: &[u8],
        value: Content<'_>,
        deadline: FieldDeadline,
        now_ms: u64,
    ) -> bool {
        let hash = self.records.hash(field);
        let Some(place) = self.records.find(hash, field) else {
            self.keep_absence(field);
            self.records
                .insert_new(hash, Kept::record(field, value, None));
            return true;
        };
        self.keep(place);
        let was_live = is_live(self.records.at(place), now_ms);
        if deadline == FieldDeadline::Clear || !was_live {
            self.deadlines.change(&mut self.records, place, hash, None);
        }
        Kept::set(&mut self.records.edit(place), value);
        !was_live
    }

    /// Deletes a field. Returns true if it existed and was not expired.
    pub fn remove(&mut self, field: &[u8], now_ms: u64) -> bool {
        let place = self.records.find(self.records.hash(field), field);
        place.is_some_and(|place| is_live(self.take(place).view(), now_ms))
    }
}
