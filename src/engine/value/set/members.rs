//! The members of a large set: a table of one allocation each. Knows nothing of entries, limits or smaller encodings.

use crate::alloc::slabs::Mover;
use crate::base::hash::Seed;
use crate::base::random::Random;
use crate::engine::value::{Body, ElementRef, Journal, ShowBefore, Standing};
use crate::structures::entry::Entry;
use crate::structures::table::{Place, Table};
use crate::structures::undo_log::UndoLog;

/// See the module.
pub struct Members {
    table: Table<Entry<()>>,
    /// What undoes its changes, while somebody wants to know.
    changes: Option<UndoLog>,
}

/// A change that is undone by taking a member out.
const ADDED: u8 = 0;

/// A change that is undone by adding a member.
const REMOVED: u8 = 1;

/// Members that are freed in the time of one segment of the table.
const MEMBERS_PER_SEGMENT: usize = 256;

impl Members {
    /// No members; takes no memory until there is one.
    pub fn new(seed: Seed) -> Members {
        Members {
            table: Table::new(seed),
            changes: None,
        }
    }

    /// Makes room for so many, if there are none yet.
    pub fn reserve(&mut self, count: usize) {
        self.table.reserve(count);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether this is one of them.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.table.find(self.table.hash(member), member).is_some()
    }

    /// Adds a member, unless it is there already.
    #[inline]
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let hash = self.table.hash(member);
        let is_new = self.table.find(hash, member).is_none();
        if is_new {
            if let Some(changes) = &mut self.changes {
                keep(changes, member, ADDED);
            }
            self.table.insert_new(hash, new_member(member));
        }
        is_new
    }

    /// Takes a member out, if it is there.
    #[inline]
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self.table.find(self.table.hash(member), member) {
            Some(place) => {
                if let Some(changes) = &mut self.changes {
                    keep(changes, member, REMOVED);
                }
                self.table.remove(place);
                true
            }
            None => false,
        }
    }

    /// Calls `f` with every member.
    pub fn for_each(&self, mut f: impl FnMut(&[u8])) {
        self.table.for_each(|member| f(member.key()));
    }

    /// Calls `f` with some `budget` members from a cursor on, and returns the next cursor, as [`Table::scan`] does.
    pub fn scan(&self, cursor: u64, budget: usize, mut f: impl FnMut(&[u8])) -> u64 {
        self.table.scan(cursor, budget, |member| f(member.key()))
    }

    /// A member drawn at random, each as likely.
    pub fn random(&self, random: &mut Random) -> Option<&[u8]> {
        let place = self.place(random)?;
        Some(self.table.at(place).key())
    }

    /// Takes a member out that is drawn at random, and shows it to `f`.
    pub fn take_random(&mut self, random: &mut Random, f: impl FnOnce(&[u8])) {
        if let Some(place) = self.place(random) {
            let taken = self.table.remove(place);
            if let Some(changes) = &mut self.changes {
                keep(changes, taken.view().key(), REMOVED);
            }
            f(taken.view().key());
        }
    }

    fn place(&self, random: &mut Random) -> Option<Place> {
        self.table.random(&mut || random.next_u64())
    }
}

#[inline]
fn new_member(member: &[u8]) -> Entry<()> {
    Entry::bytes(0, member, b"", None)
}

#[cold]
fn keep(changes: &mut UndoLog, member: &[u8], change: u8) {
    changes.keep(member, 0, change);
}

impl Body for Members {
    fn duplicate(&self) -> Members {
        Members {
            table: self.table.duplicate(|member| new_member(member.key())),
            changes: None,
        }
    }

    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        self.table.prefetch_if_far(name, is_in_use);
    }

    fn relocate_some(&mut self, from: Standing, budget: usize, mover: &mut Mover) -> Standing {
        let table = &mut self.table;
        table
            .relocate_some(from.single(), budget, mover, |_| {})
            .into()
    }

    fn undo_log(&mut self) -> Option<&mut Option<UndoLog>> {
        Some(&mut self.changes)
    }

    fn undo(&mut self, journal: &Journal) {
        for change in journal.changes_to(0) {
            match change.mark {
                ADDED => self.remove(change.bytes),
                _ => self.insert(change.bytes),
            };
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.len())
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
            show(ElementRef::new(member.key(), b"", 0));
        })
    }

    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        for change in changes.changes_to(from) {
            let was_there = change.mark == REMOVED;
            let piece = ElementRef::new(change.bytes, b"", 0);
            show(change.bytes, was_there.then_some(piece));
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        self.table.drain_some((budget / MEMBERS_PER_SEGMENT).max(1))
    }
}
