//! Sets as handlers access them, independent of the encoding.
//!
//! ```text
//! intset     integers only, sorted, as narrow as the widest needs    inside the entry
//! listpack   anything, in the order of insertion                     inside the entry
//! hashtable  a table of members                                      an object
//! ```
//!
//! A set begins in the first of these encodings that its first member and the expected number of members allow, and
//! moves down the list when it exceeds a limit, or when a member gets a deadline, which only a table can store;
//! removals never move it back. The caller passes in the limits. Where versions of Redis differ in their limits,
//! version 7.2 is followed.
//!
//! Invariants: a listpack holds no member twice, and integers in it are packed as such; no key keeps an empty set.

mod draw;
mod members;
#[cfg(test)]
mod tests;

pub use draw::{leaves_few, left_of, random_many, random_member, sample, take_many};
pub use members::Members;

use super::{Collection, DataType, Object, ObjectKind, ValueEncoding};
use basalt_core::base::hash::HashSeed;
use basalt_core::base::number;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::intset::{self, Intset, IntsetMut};
use basalt_core::structures::listpack::{self, Element, Listpack, ListpackMut};

const INTSET: ObjectKind = ObjectKind::new(DataType::Set, ValueEncoding::Intset);
const LISTPACK: ObjectKind = ObjectKind::new(DataType::Set, ValueEncoding::Listpack);
pub(super) const HASHTABLE: ObjectKind = ObjectKind::new(DataType::Set, ValueEncoding::Hashtable);

/// The limits of small sets, and the hash key of large ones.
#[derive(Clone, Copy)]
pub struct SetLimits {
    /// Maximum members of an intset.
    pub intset_entries: usize,
    /// Maximum members of a listpack.
    pub listpack_entries: usize,
    /// Maximum bytes of a member of a listpack.
    pub listpack_value: usize,
    /// Hash key for the tables of large sets.
    pub seed: HashSeed,
    /// Time of the command: members whose deadline has passed are absent.
    pub now_ms: u64,
}

/// Returns the soonest deadline of a member of a large set, if any has one.
#[inline]
pub(super) fn next_member_deadline(entry: EntryRef<'_, Object>) -> Option<u64> {
    members_of(entry)?.next_deadline()
}

/// Returns the number of expired members, if a large set has no unexpired one, otherwise None.
pub(super) fn is_empty_or_over(entry: EntryRef<'_, Object>, now_ms: u64) -> Option<usize> {
    let members = members_of(entry)?;
    members.is_over(now_ms).then(|| members.total())
}

/// Deletes expired members, see [`lapse::expire_some`](super::lapse::expire_some).
pub(super) fn expire_some(
    entry: &mut Entry<Object>,
    now_ms: u64,
    budget: usize,
    deleted: impl FnMut(Element<'_>, u64),
) -> usize {
    members_mut(entry).expire_some(now_ms, budget, deleted)
}

fn members_of<'a>(entry: EntryRef<'a, Object>) -> Option<&'a Members> {
    match entry.value() {
        Value::Object(object) => match &object.body {
            Collection::Set(members) => Some(members),
            _ => None,
        },
        _ => None,
    }
}

/// A set for reading, at one time.
#[derive(Clone, Copy)]
pub enum SetRef<'a> {
    /// Integers only, in ascending order.
    Intset(Intset<'a>),
    /// Few and short members.
    Listpack(Listpack<'a>),
    /// All other sets, and the time at which their members are read.
    Table(&'a Members, u64),
}

impl<'a> SetRef<'a> {
    /// Returns the set in an entry, whose type has been checked, at a time.
    #[inline]
    pub fn of(entry: EntryRef<'a, Object>, now_ms: u64) -> SetRef<'a> {
        match entry.value() {
            Value::Bytes(bytes) if ObjectKind(entry.kind()) == INTSET => {
                SetRef::Intset(Intset::new(bytes))
            }
            Value::Bytes(bytes) => SetRef::Listpack(Listpack::new(bytes)),
            Value::Object(object) => match &object.body {
                Collection::Set(members) => SetRef::Table(members, now_ms),
                _ => unreachable!("the type was checked"),
            },
            Value::Integer(_) | Value::Block(_) => unreachable!("the type was checked"),
        }
    }

    /// Returns the number of members.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            SetRef::Intset(numbers) => numbers.len(),
            SetRef::Listpack(pack) => pack.len(),
            SetRef::Table(members, now_ms) => members.len(now_ms),
        }
    }

    /// True if there are no members.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// True if this is a member.
    #[inline]
    pub fn contains(self, member: &[u8]) -> bool {
        match self {
            SetRef::Intset(numbers) => {
                number::parse_i64(member).is_some_and(|number| numbers.contains(number))
            }
            SetRef::Listpack(pack) => pack.find(member, 1).is_some(),
            SetRef::Table(members, now_ms) => members.contains(member, now_ms),
        }
    }

    /// True if `member`, which comes from another set, is also in this one.
    #[inline]
    pub fn has(self, member: Element<'_>) -> bool {
        match (self, member) {
            (SetRef::Intset(numbers), Element::Integer(number)) => numbers.contains(number),
            (_, member) => member.with_bytes(|member| self.contains(member)),
        }
    }

    /// Returns the optional deadline of a member; the outer None if there is no such member.
    pub fn deadline(self, member: &[u8]) -> Option<Option<u64>> {
        match self {
            SetRef::Table(members, now_ms) => Some(members.get(member, now_ms)?.deadline()),
            small => small.contains(member).then_some(None),
        }
    }

    /// Calls `f` with every member and its deadline.
    pub fn for_each_with_deadline(self, mut f: impl FnMut(Element<'_>, Option<u64>)) {
        match self {
            SetRef::Table(members, now_ms) => members.for_each(now_ms, |member| {
                f(Element::Bytes(member.key()), member.deadline());
            }),
            small => small.for_each(|member| f(member, None)),
        }
    }

    /// Returns the soonest deadline of any member.
    pub fn next_deadline(self) -> Option<u64> {
        match self {
            SetRef::Table(members, _) => members.next_deadline(),
            _ => None,
        }
    }

    /// Calls `f` with every member.
    pub fn for_each(self, mut f: impl FnMut(Element<'_>)) {
        match self {
            SetRef::Intset(numbers) => {
                numbers
                    .iter()
                    .for_each(|number| f(Element::Integer(number)));
            }
            SetRef::Listpack(pack) => pack.iter().for_each(f),
            SetRef::Table(members, now_ms) => {
                members.for_each(now_ms, |member| f(Element::Bytes(member.key())));
            }
        }
    }

    /// Calls `f` with one member after the other as long as `f` returns true.
    pub fn while_each(self, mut f: impl FnMut(Element<'_>) -> bool) {
        const SLICE: usize = 64;
        match self {
            SetRef::Intset(numbers) => {
                numbers.iter().all(|number| f(Element::Integer(number)));
            }
            SetRef::Listpack(pack) => {
                pack.iter().all(f);
            }
            SetRef::Table(members, now_ms) => {
                let (mut cursor, mut goes_on) = (0, true);
                while goes_on {
                    cursor = members.scan(cursor, SLICE, now_ms, |member| {
                        goes_on = goes_on && f(Element::Bytes(member.key()));
                    });
                    goes_on = goes_on && cursor != 0;
                }
            }
        }
    }

    /// Calls `f` with about `budget` members, starting at a cursor, and with all members of a small set. Returns the
    /// next cursor, 0 at the end.
    pub fn scan(self, cursor: u64, budget: usize, mut f: impl FnMut(Element<'_>)) -> u64 {
        match self {
            SetRef::Table(members, now_ms) => members.scan(cursor, budget, now_ms, |member| {
                f(Element::Bytes(member.key()));
            }),
            small => {
                small.for_each(f);
                0
            }
        }
    }
}

/// Creates an empty set in the encoding that suits its first member and the expected number of members.
pub fn new_entry(key: &[u8], first: &[u8], count: usize, limits: &SetLimits) -> Entry<Object> {
    if count <= limits.intset_entries && number::parse_i64(first).is_some() {
        empty_intset(key)
    } else if count <= limits.listpack_entries {
        Entry::bytes(LISTPACK.0, key, &listpack::EMPTY, None)
    } else {
        empty_table(key, limits.seed)
    }
}

/// Creates an empty set to which anything may be added: it uses the smallest encoding that can hold its members.
pub fn empty_intset(key: &[u8]) -> Entry<Object> {
    Entry::bytes(INTSET.0, key, &intset::EMPTY, None)
}

/// Prepares a set for `count` members that are about to be added.
pub fn expect_members(entry: &mut Entry<Object>, count: usize, limits: &SetLimits) {
    let count_max = match ObjectKind(entry.view().kind()) {
        INTSET => limits.intset_entries,
        LISTPACK => limits.listpack_entries,
        _ => return,
    };
    if count > count_max {
        to_table(entry, limits);
    }
}

/// Reserves capacity for `count` members in an empty set whose encoding is already that of large sets.
pub fn reserve(entry: &mut Entry<Object>, count: usize) {
    if ObjectKind(entry.view().kind()) == HASHTABLE {
        members_mut(entry).reserve(count);
    }
}

/// Adds a member, unless it exists already. Returns whether it was added.
#[inline]
pub fn add(entry: &mut Entry<Object>, member: &[u8], limits: &SetLimits) -> bool {
    match ObjectKind(entry.view().kind()) {
        INTSET => add_to_intset(entry, member, limits),
        LISTPACK => add_to_listpack(entry, member, limits),
        _ => members_mut(entry).insert(member, limits.now_ms),
    }
}

fn add_to_intset(entry: &mut Entry<Object>, member: &[u8], limits: &SetLimits) -> bool {
    let Some(number) = number::parse_i64(member) else {
        let numbers = SetRef::of(entry.view(), limits.now_ms);
        let stays_small = numbers.len() < limits.listpack_entries
            && member.len().max(widest(numbers)) <= limits.listpack_value;
        if stays_small {
            let mut bytes = listpack::EMPTY.to_vec();
            let mut pack = ListpackMut::new(&mut bytes);
            numbers.for_each(|number| number.with_bytes(|number| pack.push_back(number)));
            entry.set_kind(LISTPACK.0);
            entry.set_bytes(&bytes);
            return add_to_listpack(entry, member, limits);
        }
        return to_table(entry, limits).insert(member, limits.now_ms);
    };
    let mut numbers = IntsetMut::new(entry);
    let is_new = numbers.add(number);
    if is_new && numbers.as_intset().len() > limits.intset_entries {
        to_table(entry, limits);
    }
    is_new
}

/// Returns the number of characters of the longest number in an intset.
fn widest(numbers: SetRef<'_>) -> usize {
    let SetRef::Intset(numbers) = numbers else {
        return 0;
    };
    let digits = |number: Option<i64>| number.map_or(0, |number| Element::Integer(number).len());
    digits(numbers.min()).max(digits(numbers.max()))
}

fn add_to_listpack(entry: &mut Entry<Object>, member: &[u8], limits: &SetLimits) -> bool {
    let mut pack = ListpackMut::new(entry);
    let view = pack.as_listpack();
    if view.find(member, 1).is_some() {
        return false;
    }
    let stays_small = view.len() < limits.listpack_entries
        && member.len() <= limits.listpack_value
        && view.fits(listpack::encoded_len(member));
    if stays_small {
        pack.push_back(member);
    } else {
        to_table(entry, limits).insert(member, limits.now_ms);
    }
    true
}

/// Sets or removes the deadline of a member. Returns false if there is no such member. A deadline makes the set
/// large.
pub fn set_deadline(
    entry: &mut Entry<Object>,
    member: &[u8],
    deadline: Option<u64>,
    limits: &SetLimits,
) -> bool {
    if ObjectKind(entry.view().kind()) != HASHTABLE {
        let is_member = SetRef::of(entry.view(), limits.now_ms).contains(member);
        if !is_member || deadline.is_none() {
            return is_member;
        }
        to_table(entry, limits);
    }
    members_mut(entry).set_deadline(member, deadline, limits.now_ms)
}

/// Creates a large set without members.
pub fn empty_table(key: &[u8], seed: HashSeed) -> Entry<Object> {
    let members = Members::new(seed);
    Entry::object(
        HASHTABLE.0,
        key,
        Object::boxed(Collection::Set(members)),
        None,
    )
}

/// Removes a member, if it exists.
pub fn remove(entry: &mut Entry<Object>, member: &[u8], now_ms: u64) -> bool {
    match ObjectKind(entry.view().kind()) {
        INTSET => {
            number::parse_i64(member).is_some_and(|number| IntsetMut::new(entry).remove(number))
        }
        LISTPACK => {
            let mut pack = ListpackMut::new(entry);
            let found = pack.as_listpack().find(member, 1);
            if let Some(at) = found {
                pack.remove(at);
            }
            found.is_some()
        }
        _ => members_mut(entry).remove(member, now_ms),
    }
}

/// Converts a small set to a large one.
#[cold]
fn to_table<'e>(entry: &'e mut Entry<Object>, limits: &SetLimits) -> &'e mut Members {
    let mut members = Members::new(limits.seed);
    SetRef::of(entry.view(), limits.now_ms).for_each(|member| {
        member.with_bytes(|member| members.insert(member, limits.now_ms));
    });
    entry.set_kind(HASHTABLE.0);
    entry.set_object(Object::boxed(Collection::Set(members)));
    members_mut(entry)
}

fn members_mut(entry: &mut Entry<Object>) -> &mut Members {
    match entry.object_mut().map(|object| &mut object.body) {
        Some(Collection::Set(members)) => members,
        _ => unreachable!("the type and the encoding were checked"),
    }
}
