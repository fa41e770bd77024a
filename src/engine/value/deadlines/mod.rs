//! Elements with their own deadlines: the fields of hashes and the members of sets.
//!
//! A large collection is a table whose records may have deadlines ([`table`]), with an index of the deadlines, soonest
//! first (`ElementDeadlines`); small collections keep them in their own way. An element whose deadline has passed is
//! invisible to readers; the engine deletes it a little later, see [`lapse`](super::lapse).
//!
//! Invariant: the index contains exactly the records that have deadlines. Two records with the same deadline and
//! nearly equal hashes share one item of the index, see [`pages`].

pub(super) mod pages;
pub mod table;

use basalt_core::alloc::slabs::Mover;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::table::{EntrySlot, Table};
use pages::{DeadlineIndex, DeadlineItem};

/// The latest deadline of an element, as in Redis.
pub const ELEMENT_DEADLINE_MAX: u64 = pages::DEADLINE_MAX;

/// True if a record has not expired.
#[inline]
pub(super) fn is_live<O>(record: EntryRef<'_, O>, now_ms: u64) -> bool {
    record
        .deadline()
        .is_none_or(|deadline_ms| deadline_ms > now_ms)
}

/// Index of the deadlines of a table's records.
#[derive(Clone)]
pub(super) struct ElementDeadlines {
    index: DeadlineIndex,
    /// The soonest deadline, `u64::MAX` if there is none.
    next_ms: u64,
    /// Number of records with a deadline.
    count: usize,
}

impl Default for ElementDeadlines {
    fn default() -> ElementDeadlines {
        ElementDeadlines {
            index: DeadlineIndex::default(),
            next_ms: u64::MAX,
            count: 0,
        }
    }
}

impl ElementDeadlines {
    /// Returns the number of records with a deadline.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the soonest deadline.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        (self.next_ms != u64::MAX).then_some(self.next_ms)
    }

    /// Returns the number of records that are expired at a time.
    #[inline]
    pub(super) fn due(&self, now_ms: u64) -> usize {
        match self.next_ms > now_ms {
            true => 0,
            false => self.index.due(now_ms),
        }
    }

    /// True if all `total` records are expired.
    pub(super) fn is_over(&self, total: usize, now_ms: u64) -> bool {
        let last = self.index.last();
        self.count == total && last.is_none_or(|due| due.deadline_ms() <= now_ms)
    }

    /// Sets or removes the deadline of a record.
    pub(super) fn change<O: Send + 'static>(
        &mut self,
        table: &mut Table<Entry<O>>,
        place: EntrySlot,
        hash: u64,
        to: Option<u64>,
    ) {
        let from = table.at(place).deadline();
        if from == to {
            return;
        }
        table.edit(place).set_deadline(to);
        if let Some(deadline_ms) = to {
            self.note(deadline_ms, hash);
        }
        if let Some(deadline_ms) = from {
            self.forget(table, deadline_ms, hash);
        }
    }

    /// Adds a record's new deadline.
    pub(super) fn note(&mut self, deadline_ms: u64, hash: u64) {
        self.count += 1;
        self.index.insert(DeadlineItem::new(deadline_ms, hash));
        self.next_ms = self.next_ms.min(deadline_ms);
    }

    /// Removes a deadline that a record no longer has, or whose record is gone.
    pub(super) fn forget<O: Send + 'static>(
        &mut self,
        table: &Table<Entry<O>>,
        deadline_ms: u64,
        hash: u64,
    ) {
        self.count -= 1;
        let due = DeadlineItem::new(deadline_ms, hash);
        if find(table, due).is_some() {
            // Another record shares the item.
            return;
        }
        self.index.remove(due);
        if deadline_ms == self.next_ms {
            self.note_next();
        }
    }

    fn note_next(&mut self) {
        self.next_ms = self
            .index
            .first()
            .map_or(u64::MAX, DeadlineItem::deadline_ms);
    }

    /// Deletes at most `budget` expired records, and passes each to `show` before its deletion. Returns their number.
    pub(super) fn expire_some<O: Send + 'static>(
        &mut self,
        table: &mut Table<Entry<O>>,
        now_ms: u64,
        budget: usize,
        mut goes: impl FnMut(EntryRef<'_, O>),
    ) -> usize {
        let mut count = 0;
        while count < budget
            && let Some(due) = self.index.first()
            && due.deadline_ms() <= now_ms
        {
            // Several records may share the item.
            while let Some(place) = find(table, due) {
                goes(table.at(place));
                drop(table.remove(place));
                self.count -= 1;
                count += 1;
            }
            self.index.pop_first();
        }
        self.note_next();
        count
    }

    /// Moves a part of the index out of sparse slabs of the allocator, see [`DeadlineIndex::relocate_some`].
    pub(super) fn relocate_some(&mut self, from: u128, budget: usize, mover: &mut Mover) -> u128 {
        self.index.relocate_some(from, budget, mover)
    }

    /// Frees a bounded part of the index. Returns false if nothing was left. What is left is no valid index.
    pub(super) fn free_some(&mut self, budget: usize) -> bool {
        if self.index.is_empty() {
            return false;
        }
        for _ in 0..budget {
            self.index.pop_first();
        }
        true
    }

    /// True if the index has no items.
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Panics unless the index contains exactly the records that have deadlines. For tests; reads everything.
    #[cfg(test)]
    pub(super) fn check_invariants<O: Send + 'static>(&self, table: &Table<Entry<O>>) {
        table.check_invariants();
        let (mut wanted, mut count) = (std::collections::BTreeSet::new(), 0);
        table.for_each(|record| {
            if let Some(deadline_ms) = record.deadline() {
                count += 1;
                wanted.insert(DeadlineItem::new(deadline_ms, table.hash(record.key())));
            }
        });
        self.index.check_invariants();
        assert!(self.index.iter().eq(wanted.iter().copied()));
        assert_eq!(count, self.count);
        let next = wanted.first().map(|due| due.deadline_ms());
        assert_eq!(next, self.next());
    }
}

/// Returns a record that an item of the index refers to.
fn find<O: Send + 'static>(table: &Table<Entry<O>>, due: DeadlineItem) -> Option<EntrySlot> {
    table.find_by_hash(due.hash(), |record| {
        record.deadline() == Some(due.deadline_ms()) && due.is_of(table.hash(record.key()))
    })
}
