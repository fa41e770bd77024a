//! Undo of an edit: restores entries from the edit's journal.

use super::body::{CollectionBody, Journal};
use super::list;
use super::object::Object;
use basalt_core::structures::entry::Entry;

/// Takes the journal of the last edit from an entry's object; None if the value is not an object any more, or
/// recorded none.
pub(crate) fn take_journal(entry: &mut Entry<Object>) -> Option<Journal> {
    let journal = entry.object_mut()?.body.take_changes();
    list::settle_late(entry);
    journal
}

/// Applies a journal to an entry.
pub(crate) fn undo(entry: &mut Entry<Object>, journal: &Journal) {
    if let Journal::List { limits, .. } = journal {
        list::unsettle(entry, *limits);
    }
    if let Some(object) = entry.object_mut() {
        object.body.undo(journal);
    }
}
