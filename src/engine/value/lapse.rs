//! Partial expiry of an entry: the elements of collections that have deadlines of their own.

use super::kind::ObjectKind;
use super::object::Object;
use super::{hash, set};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::listpack::Element;

/// Returns the soonest deadline of an element, if the entry is a collection with element deadlines, otherwise None at
/// next to no cost.
#[inline(always)]
pub fn next_element_deadline(entry: EntryRef<'_, Object>) -> Option<u64> {
    match ObjectKind(entry.kind()) {
        hash::LISTPACKEX | hash::HASHTABLE => hash::next_field_deadline(entry),
        set::HASHTABLE => set::next_member_deadline(entry),
        _ => None,
    }
}

/// Returns the number of expired elements if the entry is a collection without any unexpired element, otherwise None.
pub fn is_empty_or_over(entry: EntryRef<'_, Object>, now_ms: u64) -> Option<usize> {
    match ObjectKind(entry.kind()) {
        set::HASHTABLE => set::is_empty_or_over(entry, now_ms),
        _ => hash::is_empty_or_over(entry, now_ms),
    }
}

/// True if an entry is a collection whose elements are all expired.
#[inline]
pub fn is_over(entry: EntryRef<'_, Object>, now_ms: u64) -> bool {
    next_element_deadline(entry).is_some_and(|deadline_ms| deadline_ms <= now_ms)
        && is_empty_or_over(entry, now_ms).is_some()
}

/// Deletes expired elements of a collection, at most `budget` of them if it is large, and passes the name and the
/// deadline of each to `show`. Returns their number. The collection may be empty afterwards.
pub fn expire_some(
    entry: &mut Entry<Object>,
    now_ms: u64,
    budget: usize,
    deleted: impl FnMut(Element<'_>, u64),
) -> usize {
    match ObjectKind(entry.view().kind()) {
        set::HASHTABLE => set::expire_some(entry, now_ms, budget, deleted),
        _ => hash::expire_some(entry, now_ms, budget, deleted),
    }
}
