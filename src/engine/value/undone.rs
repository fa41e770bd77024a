//! Entries are put back as they were before an edit, by what the edit's journal says.

use super::body::{Body, Journal};
use super::list;
use super::object::Object;
use basalt_core::structures::entry::Entry;

/// Takes over the journal of an object that an edit is done with, which may be small again by now.
pub(crate) fn take_journal(entry: &mut Entry<Object>) -> Option<Journal> {
    let journal = entry.object_mut()?.body.take_changes();
    list::settle_late(entry);
    journal
}

/// Undoes what a journal says of an entry.
pub(crate) fn undo(entry: &mut Entry<Object>, journal: &Journal) {
    if let Journal::List { limits, .. } = journal {
        list::unsettle(entry, *limits);
    }
    if let Some(object) = entry.object_mut() {
        object.body.undo(journal);
    }
}
