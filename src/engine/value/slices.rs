//! Large collections read in slices, by those who watch that the elements stay the same from the first slice to the
//! last.
//!
//! The structure that holds the elements may change all the same: a transaction is rolled back, memory is defragmented.
//! So positions depend on the elements alone. In sets, sorted sets and hashes they are hashes, as in the walk of a
//! snapshot ([`CollectionBody::show_some`]); in what has an order, numbers of elements.

use std::ops::{ControlFlow, Range};

use super::body::{CollectionBody, ElementRef};
use super::list::ListRef;
use super::object::Object;
use super::set::SetRef;
use super::sorted_set::SortedSet;
use super::{DataType, ObjectKind};
use basalt_core::structures::entry::{EntryRef, Value};
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::quicklist::End;

/// Maximum elements of a small encoding that is read in one slice.
const SMALL_MAX: usize = 1024;

/// The number of an element without deadline or score.
const NO_NUMBER: u64 = u64::MAX;

/// True if each slice of a collection takes a short time: for large collections, and for small ones that are not much
/// larger than usual.
pub fn is_sliceable(entry: EntryRef<'_, Object>) -> bool {
    if let Value::Object(_) = entry.value() {
        return true;
    }
    let len = match ObjectKind(entry.kind()).data_type() {
        DataType::Set => SetRef::of(entry, 0).len(),
        DataType::SortedSet => SortedSet::of(entry).len(),
        DataType::List => ListRef::of(entry).map_or(0, ListRef::len),
        _ => return false,
    };
    len <= SMALL_MAX
}

/// Visits about `budget` elements of a set, a sorted set or a large hash, starting at a position, and all of a small
/// one. Each is visited once. Returns the next position, 0 at the end.
pub fn show_some(
    entry: EntryRef<'_, Object>,
    position: u64,
    budget: usize,
    show: &mut dyn for<'a> FnMut(ElementRef<'a>),
) -> u64 {
    if let Value::Object(object) = entry.value() {
        return object.body.show_some(position, budget, show);
    }
    match ObjectKind(entry.kind()).data_type() {
        DataType::Set => SetRef::of(entry, 0).for_each(|member| {
            member.with_bytes(|member| show(ElementRef::new(member, b"", NO_NUMBER)));
        }),
        DataType::SortedSet => SortedSet::of(entry).iter().for_each(|(member, score)| {
            member.with_bytes(|member| show(ElementRef::new(member, b"", score.to_bits())));
        }),
        _ => {}
    }
    0
}

/// Returns the number of elements of a list or a sorted set, which have an order.
pub fn ordered_len(entry: EntryRef<'_, Object>) -> usize {
    match ObjectKind(entry.kind()).data_type() {
        DataType::SortedSet => SortedSet::of(entry).len(),
        _ => ListRef::of(entry).map_or(0, ListRef::len),
    }
}

/// Visits elements of a list or a sorted set in order, or backwards, with their scores (0 in lists), until `visit`
/// returns false. The range counts from where the order begins, and must be within the collection.
pub fn visit_ordered(
    entry: EntryRef<'_, Object>,
    direction: Direction,
    range: Range<usize>,
    mut visit: impl FnMut(&[u8], f64) -> bool,
) {
    if ObjectKind(entry.kind()).data_type() == DataType::SortedSet {
        let (set, len) = (SortedSet::of(entry), ordered_len(entry));
        let (from, to) = match direction {
            Direction::Ascending => (range.start, range.end),
            Direction::Descending => (len - range.end, len - range.start),
        };
        for (member, score) in set.range(from, to, direction) {
            if !member.with_bytes(|member| visit(member, score)) {
                break;
            }
        }
        return;
    }
    let (Some(list), mut left) = (ListRef::of(entry), range.len()) else {
        return;
    };
    if left == 0 {
        return;
    }
    let from = match direction {
        Direction::Ascending => End::Front,
        Direction::Descending => End::Back,
    };
    let _ = list.walk(from, range.start, |element| {
        left -= 1;
        match element.with_bytes(|element| visit(element, 0.0)) && left > 0 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
}
