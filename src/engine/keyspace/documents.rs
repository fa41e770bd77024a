//! Whole documents that replace others.

use super::marks::KeptMarks;
use super::{Deadline, Keyspace};
use crate::Key;
use crate::value::Object;
use crate::value::object::entry_bytes;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::table::EntrySlot;

impl Keyspace<'_> {
    /// Stores a detached entry with a document, which already has its key, in place of the document that a lookup has
    /// just found, if any. The deadline and the marks of the key stay, as the document is changed, not the key.
    pub fn put_document(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        mut entry: Entry<Object>,
    ) {
        self.add_used(entry_bytes(entry.view()) as i64);
        self.put_keeping(key, found, Deadline::Keep, KeptMarks::All, |deadline| {
            entry.set_deadline(deadline);
            entry
        });
    }
}
