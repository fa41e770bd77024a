//! Members with scores, found by name through a table and by order through an index, which share one record per
//! member.
//!
//! ```text
//! table   hash of the member ─▶ ┌───────────────────────┐
//!                               │ score | len | member  │
//! index   (score, record)   ──▶ └───────────────────────┘
//! ```
//!
//! The order is by score, then by the bytes of the member. A score is never NaN.
//!
//! Invariants: the index contains exactly the table's records, each under its own score. A record leaves the index
//! before the table frees it: the safety of `record` relies on this. While a ranking is being freed in slices, the
//! index is empty while the table is not; then the only allowed call is to continue freeing.

#![expect(unsafe_code, reason = "the index names records that the table owns")]

use super::record::{OwnedRecord, Scored};
use super::{Direction, Index, IndexItems, Movers, Ordered, OrderedIndexType, OrderedItem};
use crate::alloc::slabs::Mover;
use crate::base::hash::HashSeed;
use crate::structures::table::{EntrySlot, Table};
use crate::structures::undo_log::UndoLog;

/// Scored members, see the module.
pub struct Ranking {
    order: Index<Scored>,
    members: Table<OwnedRecord>,
    seed: HashSeed,
    /// Undo log, while changes are recorded: for each change a member and its previous score.
    changes: Option<UndoLog>,
}

/// Items removed from the index at a time.
const SLICE: usize = 256;

impl Ranking {
    /// Creates an empty ranking.
    #[must_use]
    pub fn new(form: OrderedIndexType, seed: HashSeed) -> Self {
        Self {
            order: Index::new(form, index_seed(seed)),
            members: Table::new(seed),
            seed,
            changes: None,
        }
    }

    /// Creates a ranking of members that ascend, by score and then by their bytes. None if a member occurs twice,
    /// or a score is NaN.
    #[must_use]
    pub fn of_ascending<'m>(
        form: OrderedIndexType,
        seed: HashSeed,
        members: impl ExactSizeIterator<Item = (&'m [u8], f64)>,
    ) -> Option<Self> {
        let mut ranking = Self::new(form, seed);
        ranking.members.reserve(members.len());
        let mut order = Vec::with_capacity(members.len());
        for (member, score) in members {
            let hash = ranking.hash(member);
            if score.is_nan() || ranking.find(hash, member).is_some() {
                return None;
            }
            let record = OwnedRecord::new(member, score);
            order.push(record.view().scored());
            ranking.members.insert_new(hash, record);
        }
        ranking.order = Index::of_ascending(form, index_seed(seed), &order);
        Some(ranking)
    }

    /// Returns the kind of the ranking's index.
    #[must_use]
    pub fn form(&self) -> OrderedIndexType {
        self.order.form()
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    // ---- By member --------------------------------------------------------------------------

    /// Returns the hash of a member.
    #[must_use]
    pub fn hash(&self, member: &[u8]) -> u64 {
        self.members.hash(member)
    }

    /// Returns the place of a member, valid until the next insertion or removal.
    #[must_use]
    pub fn find(&self, hash: u64, member: &[u8]) -> Option<EntrySlot> {
        self.members.find(hash, member)
    }

    /// Prefetches the memory used for finding a member by its hash and setting its score, so that the cache misses
    /// of the table and of the index overlap.
    #[inline]
    pub fn prefetch(&self, hash: u64, score: f64) {
        self.members.prefetch(hash);
        if let Index::Tree(tree) = &self.order {
            tree.prefetch(|scored| scored.score < score);
        }
    }

    /// Prefetches the memory for looking up a member; if the ranking was just used, only if it is large.
    #[inline]
    pub fn prefetch_member(&self, member: &[u8], is_in_use: bool) {
        self.members.prefetch_if_far(member, is_in_use);
    }

    /// Returns the score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let found = self.members.get(self.members.hash(member), member);
        found.map(|record| record.score())
    }

    /// Returns the score of the member at `place`.
    #[must_use]
    pub fn score_at(&self, place: EntrySlot) -> f64 {
        self.members.at(place).score()
    }

    /// Adds a member that does not exist, under its hash.
    pub fn insert_new(&mut self, hash: u64, member: &[u8], score: f64) {
        debug_assert!(!score.is_nan());
        if let Some(changes) = &mut self.changes {
            keep(changes, member, ABSENT);
        }
        let record = OwnedRecord::new(member, score);
        let scored = record.view().scored();
        self.members.insert_new(hash, record);
        self.order.insert(scored);
    }

    /// Sets the score of the member at `place`.
    pub fn set_score(&mut self, place: EntrySlot, score: f64) {
        debug_assert!(!score.is_nan());
        let old = self.members.at(place).scored();
        if let Some(changes) = &mut self.changes {
            keep(changes, self.members.at(place).member(), old.score);
        }
        self.order.replace(old, old.with_score(score));
        self.members.edit(place).set_score(score);
    }

    /// Removes the member at `place`. Returns its score.
    pub fn remove(&mut self, place: EntrySlot) -> f64 {
        let scored = self.members.at(place).scored();
        if let Some(changes) = &mut self.changes {
            keep(changes, self.members.at(place).member(), scored.score);
        }
        self.order.remove(scored);
        self.members.remove(place);
        scored.score
    }

    /// Returns the rank of the member at `place`, counted from 0.
    #[must_use]
    pub fn rank(&self, place: EntrySlot) -> usize {
        let scored = self.members.at(place).scored();
        self.order.rank_by(|other| other.order(&scored).is_lt())
    }

    // ---- By order ---------------------------------------------------------------------------

    /// Returns the number of members that satisfy `before`, which must be false for all members after one for which
    /// it is false.
    pub fn rank_by(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.order
            .rank_by(|scored| before(scored.score, self.member(*scored)))
    }

    /// Returns the number of members whose score satisfies `before`. Like [`Ranking::rank_by`], without reading
    /// members.
    pub fn rank_by_score(&self, before: impl Fn(f64) -> bool) -> usize {
        self.order.rank_by(|scored| before(scored.score))
    }

    /// Returns the member at this rank, and its score.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(&[u8], f64)> {
        let scored = self.order.get(rank)?;
        Some((self.member(scored), scored.score))
    }

    /// Returns the members with ranks from `from` up to but not including `to`, with their scores.
    #[must_use]
    pub fn range(&self, from: usize, to: usize, direction: Direction) -> RankRangeIter<'_> {
        RankRangeIter {
            ranking: self,
            items: self.order.items(from, to, direction),
        }
    }

    /// Removes `count` members starting at rank `from`, and passes each to `gone` before its removal.
    pub fn remove_range(&mut self, from: usize, count: usize, mut gone: impl FnMut(&[u8], f64)) {
        let mut left = count.min(self.len().saturating_sub(from));
        let mut taken = Vec::with_capacity(left.min(SLICE));
        while left > 0 {
            taken.clear();
            self.order.take_some(from, left.min(SLICE), &mut taken);
            if taken.is_empty() {
                break;
            }
            left -= taken.len();
            for scored in &taken {
                // SAFETY: the index contained it until now, and the table frees it further down.
                let member = unsafe { scored.record() }.member();
                gone(member, scored.score);
                if let Some(changes) = &mut self.changes {
                    keep(changes, member, scored.score);
                }
                let hash = self.members.hash(member);
                let found = self.members.find_by_hash(hash, |record| record.is(*scored));
                if let Some(place) = found {
                    self.members.remove(place);
                }
            }
        }
    }

    /// Returns the bytes of a member in the index.
    #[inline]
    fn member(&self, scored: Scored) -> &[u8] {
        // SAFETY: the index contains live records only; they are freed and changed through `&mut self`.
        unsafe { scored.record() }.member()
    }

    // ---- Undo -------------------------------------------------------------------------------

    /// Starts recording an undo log, appending to `changes`.
    pub fn keep_changes(&mut self, changes: UndoLog) {
        self.changes = Some(changes);
    }

    /// Stops recording and returns the undo log.
    pub fn take_changes(&mut self) -> Option<UndoLog> {
        self.changes.take()
    }

    /// Undoes the recorded changes, from the last to the first.
    pub fn undo(&mut self, changes: &UndoLog) {
        for change in changes.backwards() {
            let (hash, score) = (self.hash(change.bytes), f64::from_bits(change.number));
            match (self.find(hash, change.bytes), score.is_nan()) {
                (Some(place), true) => {
                    self.remove(place);
                }
                (Some(place), false) => self.set_score(place, score),
                (None, true) => {}
                (None, false) => self.insert_new(hash, change.bytes, score),
            }
        }
    }

    // ---- All members: scan, copy, relocate, free --------------------------------------------

    /// Visits some members from a cursor on, in no order, and returns the next cursor; 0 begins and ends. See
    /// [`Table::scan`] for the guarantees.
    pub fn scan(&self, cursor: u64, budget: usize, mut f: impl FnMut(&[u8], f64)) -> u64 {
        self.members
            .scan(cursor, budget, |record| f(record.member(), record.score()))
    }

    /// Visits some members, starting at a position; a member that exists from the first call to the last is visited
    /// once; see [`Table::scan_once`].
    pub fn scan_once(&self, position: u64, budget: usize, mut f: impl FnMut(&[u8], f64)) -> u64 {
        self.members.scan_once(position, budget, |record| {
            f(record.member(), record.score());
        })
    }

    /// Returns a copy of the members in a structure of its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let members = self.range(0, self.len(), Direction::Ascending);
        let copy = Self::of_ascending(self.form(), self.seed, members);
        copy.unwrap_or_else(|| unreachable!("each member is there once"))
    }

    /// Moves allocations out of sparse slabs, examining about `budget` segments of the table, or about `budget`
    /// members and the nodes of the index around them, starting at `position`, where the previous call stopped.
    /// Returns the position where this call stops, 0 at the end.
    ///
    /// The walk visits the table first, with even positions; then the members, by their ranks.
    pub fn relocate_some(&mut self, position: u64, budget: usize, mover: &mut Mover) -> u64 {
        if position & 1 == 0 {
            return match self.members.relocate_some(position, budget, mover, |_| {}) {
                0 => 1,
                next => next & !1,
            };
        }
        let mut rank = usize::try_from(position >> 1).unwrap_or(usize::MAX);
        let end = rank.saturating_add(budget.max(1)).min(self.order.len());
        let mut movers = MembersAndNodes {
            members: &mut self.members,
            mover,
        };
        while rank < end {
            rank = self.order.relocate_from(rank, &mut movers).max(rank + 1);
        }
        match rank < self.order.len() {
            true => (rank as u64) << 1 | 1,
            false => 0,
        }
    }

    /// Frees about `budget` members. Returns true while any are left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        /// Approximate contents of a segment of the table.
        const SEGMENT: usize = 256;
        if !self.order.is_empty() {
            self.order.free_some(budget);
            return true;
        }
        self.members.drain_some((budget / SEGMENT).max(1))
    }

    /// Panics unless the ranking's invariants hold. For tests; reads everything.
    pub fn check_invariants(&self) {
        self.members.check_invariants();
        self.order.check_invariants();
        assert_eq!(self.order.len(), self.members.len());
        for (member, score) in self.range(0, self.len(), Direction::Ascending) {
            assert_eq!(self.score(member), Some(score));
        }
    }
}

fn index_seed(seed: HashSeed) -> u64 {
    seed.k0 ^ seed.k1.rotate_left(32)
}

/// Moves records, to which both the table and the index refer, and nodes of the index.
struct MembersAndNodes<'a> {
    members: &'a mut Table<OwnedRecord>,
    mover: &'a mut Mover,
}

impl Movers<Scored> for MembersAndNodes<'_> {
    fn items(&mut self, items: &mut [Scored]) {
        self.mover.begin();
        for scored in &*items {
            self.mover.add(scored.address());
        }
        self.mover.look();
        for (index, scored) in items.iter_mut().enumerate() {
            if !self.mover.must_move(index) {
                continue;
            }
            // SAFETY: the index contains live records only.
            let member = unsafe { scored.record() }.member();
            let hash = self.members.hash(member);
            let found = self.members.find_by_hash(hash, |record| record.is(*scored));
            if let Some(place) = found {
                let mut record = self.members.edit(place);
                let fresh = record.duplicate();
                // The old record is freed before this call returns; until then no reader accesses it.
                *scored = fresh.view().scored();
                *record = fresh;
            }
        }
    }

    fn moves_node(&mut self, address: usize) -> bool {
        self.mover.begin();
        self.mover.add(address);
        self.mover.look();
        self.mover.must_move(0)
    }
}

/// In the undo log: the previous score of a member that did not exist.
const ABSENT: f64 = f64::NAN;

#[cold]
fn keep(changes: &mut UndoLog, member: &[u8], score: f64) {
    changes.keep(member, score.to_bits(), 0);
}

/// An iterator over a range of members.
pub struct RankRangeIter<'a> {
    ranking: &'a Ranking,
    items: IndexItems<'a, Scored>,
}

impl<'a> Iterator for RankRangeIter<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let scored = self.items.next()?;
        Some((self.ranking.member(scored), scored.score))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl ExactSizeIterator for RankRangeIter<'_> {}
