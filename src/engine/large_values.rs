//! Upkeep of a database's largest values: records values as they are added, changed and removed, publishes the
//! largest sizes, and lists the keys.

use super::db::Db;
use super::largest::{LARGE_BYTES_MIN, is_other_step};
use super::value::object::entry_bytes;
use super::value::{DataType, Object, ObjectKind};
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::table::EntrySlot;

impl Db {
    /// Records the size of a new entry that may be large.
    #[cold]
    #[inline(never)]
    pub(super) fn note_large(&mut self, hash: u64, place: EntrySlot) {
        let entry = self.at(place);
        let (bytes, kind) = (entry_bytes(entry) as u64, ObjectKind(entry.kind()));
        if bytes >= LARGE_BYTES_MIN {
            self.largest.note(kind.data_type(), hash, bytes);
            self.publish_largest(kind.data_type());
        }
    }

    /// Records that an entry was resized from `before` to `after` bytes, at least one of which is large.
    #[cold]
    #[inline(never)]
    pub(super) fn note_resized(&mut self, place: EntrySlot, before: u64, after: u64) {
        if !is_other_step(before, after) {
            return;
        }
        let entry = self.at(place);
        let (hash, data_type) = (self.hash_of(entry), ObjectKind(entry.kind()).data_type());
        if after >= LARGE_BYTES_MIN {
            self.largest.note(data_type, hash, after);
        } else {
            self.largest.forget(data_type, hash);
        }
        self.publish_largest(data_type);
    }

    /// Forgets a removed entry that may have been large.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_large(&mut self, entry: EntryRef<'_, Object>) {
        if entry_bytes(entry) as u64 >= LARGE_BYTES_MIN {
            let data_type = ObjectKind(entry.kind()).data_type();
            self.largest.forget(data_type, self.hash_of(entry));
            self.publish_largest(data_type);
        }
    }

    fn publish_largest(&self, data_type: DataType) {
        let most = self.largest.of(data_type).map(|large| large.bytes);
        self.published_of_own()
            .set_largest(data_type as usize, most.max().unwrap_or(0));
    }

    /// Publishes the largest values again, after the database has been given another number.
    pub(super) fn publish_all_largest(&self) {
        for (data_type, _) in DataType::ALL {
            self.publish_largest(data_type);
        }
    }

    /// Calls `visit` with the key and bytes of each of the recorded largest values of a type that still exist, in no
    /// order.
    pub fn each_large(&self, data_type: DataType, mut visit: impl FnMut(&[u8], u64)) {
        for large in self.largest.of(data_type) {
            let is_it = |entry: EntryRef<'_, Object>| {
                ObjectKind(entry.kind()).data_type() == data_type
                    && self.hash_of(entry) == large.hash
            };
            if let Some(place) = self.table.find_by_hash(large.hash, is_it) {
                let entry = self.at(place);
                let bytes = entry_bytes(entry) as u64;
                if bytes >= LARGE_BYTES_MIN {
                    visit(entry.key(), bytes);
                }
            }
        }
    }
}
