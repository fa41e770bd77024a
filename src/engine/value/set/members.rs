//! The members of a large set: a table with one allocation per member, and an index of their deadlines. Knows nothing
//! of entries, limits and smaller encodings.

use crate::value::deadlines::{ELEMENT_DEADLINE_MAX, ElementDeadlines, is_live};
use crate::value::{CollectionBody, CollectionCursor, ElementRef, Journal, ShowBefore};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::table::{EntrySlot, Table};
use basalt_core::structures::undo_log::UndoLog;

/// The members of a large set, see the module.
pub struct Members {
    table: Table<Entry<()>>,
    deadlines: ElementDeadlines,
    /// Undo log, while changes are recorded.
    changes: Option<UndoLog>,
}

/// The member did not exist.
const ABSENT: u8 = 0;

/// The member existed, with a deadline or [`NO_DEADLINE`].
const PRESENT: u8 = 1;

/// Larger than all deadlines.
const NO_DEADLINE: u64 = u64::MAX;

/// Members that are freed in the time that one segment of the table takes.
const MEMBERS_PER_SEGMENT: usize = 256;

impl Members {
    /// Creates an empty set of members; takes no memory until a member is added.
    pub fn new(seed: HashSeed) -> Members {
        Members {
            table: Table::new(seed),
            deadlines: ElementDeadlines::default(),
            changes: None,
        }
    }

    /// Reserves capacity for `count` members, if the set is empty.
    pub fn reserve(&mut self, count: usize) {
        self.table.reserve(count);
    }

    /// Returns the number of members, including expired ones not deleted yet.
    pub fn total(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of unexpired members.
    pub fn len(&self, now_ms: u64) -> usize {
        self.total() - self.deadlines.due(now_ms)
    }

    /// True if no unexpired member is left.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.deadlines.is_over(self.total(), now_ms)
    }

    /// Returns the soonest deadline of any member.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Returns the number of members with a deadline.
    pub fn deadline_count(&self) -> usize {
        self.deadlines.count()
    }

    /// True if `member` is an unexpired member.
    #[inline]
    pub fn contains(&self, member: &[u8], now_ms: u64) -> bool {
        let place = self.table.find(self.table.hash(member), member);
        place.is_some_and(|place| is_live(self.table.at(place), now_ms))
    }

    /// Returns the optional deadline of a member; the outer None if there is no such member.
    pub fn deadline(&self, member: &[u8], now_ms: u64) -> Option<Option<u64>> {
        let place = self.table.find(self.table.hash(member), member)?;
        let record = self.table.at(place);
        is_live(record, now_ms).then(|| record.deadline())
    }

    /// Adds a member, unless it exists already. An expired member counts as absent: it is added again, without its
    /// deadline. Returns whether the member was added.
    #[inline]
    pub fn insert(&mut self, member: &[u8], now_ms: u64) -> bool {
        let hash = self.table.hash(member);
        match self.table.find(hash, member) {
            Some(place) if is_live(self.table.at(place), now_ms) => false,
            Some(place) => {
                self.keep(member, self.table.at(place).deadline(), PRESENT);
                self.deadlines.change(&mut self.table, place, hash, None);
                true
            }
            None => {
                if self.changes.is_some() {
                    self.keep(member, None, ABSENT);
                }
                self.table.insert_new(hash, new_member(member, None));
                true
            }
        }
    }

    /// Restores the previous state of a member.
    fn put_back(&mut self, member: &[u8], deadline: Option<u64>) {
        let hash = self.table.hash(member);
        match self.table.find(hash, member) {
            Some(place) => self
                .deadlines
                .change(&mut self.table, place, hash, deadline),
            None => {
                self.table.insert_new(hash, new_member(member, deadline));
                if let Some(deadline_ms) = deadline {
                    self.deadlines.note(deadline_ms, hash);
                }
            }
        }
    }

    /// Sets or removes the deadline of a member. Returns false if there is no such member or it is expired.
    pub fn set_deadline(&mut self, member: &[u8], deadline: Option<u64>, now_ms: u64) -> bool {
        let hash = self.table.hash(member);
        let Some(place) = self.table.find(hash, member) else {
            return false;
        };
        let record = self.table.at(place);
        if !is_live(record, now_ms) {
            return false;
        }
        self.keep(member, record.deadline(), PRESENT);
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        self.deadlines
            .change(&mut self.table, place, hash, deadline);
        true
    }

    /// Removes a member, if it exists. An expired member stays until its expiry is logged. Returns whether it was
    /// removed.
    #[inline]
    pub fn remove(&mut self, member: &[u8], now_ms: u64) -> bool {
        let place = self.table.find(self.table.hash(member), member);
        let place = place.filter(|place| is_live(self.table.at(*place), now_ms));
        if let Some(place) = place {
            self.take(place, |_| {});
        }
        place.is_some()
    }

    /// Removes the member at `place`, and passes it to `f`.
    #[inline]
    fn take(&mut self, place: EntrySlot, f: impl FnOnce(&[u8])) {
        let taken = self.table.remove(place);
        let taken = taken.view();
        if self.changes.is_some() {
            self.keep(taken.key(), taken.deadline(), PRESENT);
        }
        if let Some(deadline_ms) = taken.deadline() {
            let hash = self.table.hash(taken.key());
            self.deadlines.forget(&self.table, deadline_ms, hash);
        }
        f(taken.key());
    }

    /// Records the previous state of a member, if changes are recorded.
    #[cold]
    fn keep(&mut self, member: &[u8], deadline: Option<u64>, change: u8) {
        if let Some(changes) = &mut self.changes {
            changes.keep(member, deadline.unwrap_or(NO_DEADLINE), change);
        }
    }

    /// Deletes at most `budget` expired members, and passes each with its deadline to `show`. Returns their number.
    pub fn expire_some(
        &mut self,
        now_ms: u64,
        budget: usize,
        mut deleted: impl FnMut(Element<'_>, u64),
    ) -> usize {
        let Members {
            table,
            deadlines,
            changes,
        } = self;
        deadlines.expire_some(table, now_ms, budget, |record| {
            let deadline_ms = record.deadline().unwrap_or(now_ms);
            if let Some(changes) = changes {
                changes.keep(record.key(), deadline_ms, PRESENT);
            }
            deleted(Element::Bytes(record.key()), deadline_ms);
        })
    }

    /// Calls `f` with every unexpired member.
    pub fn for_each(&self, now_ms: u64, mut f: impl FnMut(&[u8])) {
        self.for_each_with_deadline(now_ms, |member, _| f(member));
    }

    /// Calls `f` with every unexpired member and its deadline.
    pub fn for_each_with_deadline(&self, now_ms: u64, mut f: impl FnMut(&[u8], Option<u64>)) {
        self.table.for_each(|member| {
            if is_live(member, now_ms) {
                f(member.key(), member.deadline());
            }
        });
    }

    /// Calls `f` with about `budget` members from a cursor on. Returns the next cursor, as [`Table::scan`] does.
    pub fn scan(&self, cursor: u64, budget: usize, now_ms: u64, mut f: impl FnMut(&[u8])) -> u64 {
        self.table.scan(cursor, budget, |member| {
            if is_live(member, now_ms) {
                f(member.key());
            }
        })
    }

    /// Returns a uniformly random member.
    pub fn random(&self, random: &mut Random, now_ms: u64) -> Option<&[u8]> {
        let place = self.place(random, now_ms)?;
        Some(self.table.at(place).key())
    }

    /// Removes a random member, and passes it to `f`.
    pub fn take_random(&mut self, random: &mut Random, now_ms: u64, f: impl FnOnce(&[u8])) {
        if let Some(place) = self.place(random, now_ms) {
            self.take(place, f);
        }
    }

    /// Returns the place of a uniformly random unexpired member.
    fn place(&self, random: &mut Random, now_ms: u64) -> Option<EntrySlot> {
        let (total, live) = (self.total(), self.len(now_ms));
        if live == total {
            return self.table.random(&mut || random.next_u64());
        }
        if live > total / 2 {
            // At least every second sample hits an unexpired member.
            loop {
                let place = self.table.random(&mut || random.next_u64())?;
                if is_live(self.table.at(place), now_ms) {
                    return Some(place);
                }
            }
        }
        let mut left = random.index(live.max(1));
        let mut chosen = None;
        self.for_each(now_ms, |member| {
            if left == 0 {
                chosen = self.table.find(self.table.hash(member), member);
            }
            left = left.wrapping_sub(1);
        });
        chosen
    }

    /// Panics unless the index of deadlines is right. For tests; reads everything.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.deadlines.check_invariants(&self.table);
    }
}

#[inline]
fn new_member(member: &[u8], deadline: Option<u64>) -> Entry<()> {
    Entry::bytes(0, member, b"", deadline)
}

impl CollectionBody for Members {
    fn duplicate(&self) -> Members {
        Members {
            table: self
                .table
                .duplicate(|member| new_member(member.key(), member.deadline())),
            deadlines: self.deadlines.clone(),
            changes: None,
        }
    }

    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        self.table.prefetch_if_far(name, is_in_use);
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
        let table = &mut self.table;
        match table.relocate_some(from.single(), budget, mover, |_| {}) {
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
        for change in journal.changes_to(0) {
            match change.mark {
                ABSENT => {
                    self.remove(change.bytes, 0);
                }
                _ => {
                    let deadline = Some(change.number).filter(|at_ms| *at_ms != NO_DEADLINE);
                    self.put_back(change.bytes, deadline);
                }
            }
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.total())
    }

    fn element_hash(&self, name: &[u8]) -> u64 {
        self.table.hash(name)
    }

    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        self.table.scan_once(position, budget, |member| {
            let number = member.deadline().unwrap_or(NO_DEADLINE);
            show(ElementRef::new(member.key(), b"", number));
        })
    }

    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        for change in changes.changes_to(from) {
            let was_there = change.mark == PRESENT;
            let piece = ElementRef::new(change.bytes, b"", change.number);
            show(change.bytes, was_there.then_some(piece));
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        if self.deadlines.free_some(budget) {
            return true;
        }
        self.table.drain_some((budget / MEMBERS_PER_SEGMENT).max(1))
    }
}
