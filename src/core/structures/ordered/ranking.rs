//! Members with scores, found by name through a table and by order through an index, which share one
//! record a member.
//!
//! ```text
//! table   hash of the member ─▶ ┌───────────────────────┐
//!                               │ score | len | member  │
//! index   (score, record)   ──▶ └───────────────────────┘
//! ```
//!
//! The order is by score, then by the bytes of the member. A score is never NaN.
//!
//! Invariants: the index names exactly the table's records, each under the score that it carries. A
//! record leaves the index before the table frees it: the safety of `record` rests on this. Between two
//! slices of freeing, the index is empty while the table is not; then nothing may be asked but to go on.

#![expect(unsafe_code, reason = "the index names records that the table owns")]

use super::record::{Record, Scored};
use super::{Direction, Form, Index, IndexItems, Item, Movers, Ordered};
use crate::alloc::slabs::Mover;
use crate::base::hash::Seed;
use crate::structures::table::{Place, Table};
use crate::structures::undo_log::UndoLog;

/// See the head of this file.
pub struct Ranking {
    order: Index<Scored>,
    members: Table<Record>,
    seed: Seed,
    /// What undoes its changes, while somebody wants to know: for each, a member and the score that it had.
    changes: Option<UndoLog>,
}

/// Items removed from the index at a time.
const SLICE: usize = 256;

impl Ranking {
    /// An empty ranking.
    #[must_use]
    pub fn new(form: Form, seed: Seed) -> Self {
        Self {
            order: Index::new(form, index_seed(seed)),
            members: Table::new(seed),
            seed,
            changes: None,
        }
    }

    /// A ranking of members that ascend, by score and then by their bytes. None if a member comes twice, or a score is
    /// NaN.
    #[must_use]
    pub fn of_ascending<'m>(
        form: Form,
        seed: Seed,
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
            let record = Record::new(member, score);
            order.push(record.view().scored());
            ranking.members.insert_new(hash, record);
        }
        ranking.order = Index::of_ascending(form, index_seed(seed), &order);
        Some(ranking)
    }

    /// Which kind of index it has.
    #[must_use]
    pub fn form(&self) -> Form {
        self.order.form()
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    // ---- By member --------------------------------------------------------------------------

    /// The hash of a member.
    #[must_use]
    pub fn hash(&self, member: &[u8]) -> u64 {
        self.members.hash(member)
    }

    /// Where a member is, until the next insertion or removal.
    #[must_use]
    pub fn find(&self, hash: u64, member: &[u8]) -> Option<Place> {
        self.members.find(hash, member)
    }

    /// Fetches what finding a member by its hash and giving it a score will touch. The misses of the table and of the
    /// index overlap so.
    #[inline]
    pub fn prefetch(&self, hash: u64, score: f64) {
        self.members.prefetch(hash);
        if let Index::Tree(tree) = &self.order {
            tree.prefetch(|scored| scored.score < score);
        }
    }

    /// Fetches where a member is looked up, but of a ranking that was in use just now only if it is large.
    #[inline]
    pub fn prefetch_member(&self, member: &[u8], is_in_use: bool) {
        self.members.prefetch_if_far(member, is_in_use);
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let found = self.members.get(self.members.hash(member), member);
        found.map(|record| record.score())
    }

    /// The score of the member at a place.
    #[must_use]
    pub fn score_at(&self, place: Place) -> f64 {
        self.members.at(place).score()
    }

    /// Adds a member that is not there, under its hash.
    pub fn insert_new(&mut self, hash: u64, member: &[u8], score: f64) {
        debug_assert!(!score.is_nan());
        if let Some(changes) = &mut self.changes {
            keep(changes, member, ABSENT);
        }
        let record = Record::new(member, score);
        let scored = record.view().scored();
        self.members.insert_new(hash, record);
        self.order.insert(scored);
    }

    /// Gives the member at a place another score.
    pub fn set_score(&mut self, place: Place, score: f64) {
        debug_assert!(!score.is_nan());
        let old = self.members.at(place).scored();
        if let Some(changes) = &mut self.changes {
            keep(changes, self.members.at(place).member(), old.score);
        }
        self.order.replace(old, old.with_score(score));
        self.members.edit(place).set_score(score);
    }

    /// Takes the member at a place out; its score.
    pub fn remove(&mut self, place: Place) -> f64 {
        let scored = self.members.at(place).scored();
        if let Some(changes) = &mut self.changes {
            keep(changes, self.members.at(place).member(), scored.score);
        }
        self.order.remove(scored);
        self.members.remove(place);
        scored.score
    }

    /// The rank of the member at a place, counted from 0.
    #[must_use]
    pub fn rank(&self, place: Place) -> usize {
        let scored = self.members.at(place).scored();
        self.order.rank_by(|other| other.order(&scored).is_lt())
    }

    // ---- By order ---------------------------------------------------------------------------

    /// How many members `before` is true for. It must be true for none behind one that it is false for.
    pub fn rank_by(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.order
            .rank_by(|scored| before(scored.score, self.member(*scored)))
    }

    /// How many members have a score that `before` is true for. As [`Ranking::rank_by`], without looking
    /// at members.
    pub fn rank_by_score(&self, before: impl Fn(f64) -> bool) -> usize {
        self.order.rank_by(|scored| before(scored.score))
    }

    /// The member with this rank, and its score.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(&[u8], f64)> {
        let scored = self.order.get(rank)?;
        Some((self.member(scored), scored.score))
    }

    /// The members with ranks from `from` up to but not including `to`, with their scores.
    #[must_use]
    pub fn range(&self, from: usize, to: usize, direction: Direction) -> Range<'_> {
        Range {
            ranking: self,
            items: self.order.items(from, to, direction),
        }
    }

    /// Takes out `count` members from rank `from` on, and shows each before it goes.
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
                // SAFETY: the index named it until now, and the table frees it further down.
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

    /// The bytes of a member that the index names.
    #[inline]
    fn member(&self, scored: Scored) -> &[u8] {
        // SAFETY: the index names live records only; they are freed and changed through `&mut self`.
        unsafe { scored.record() }.member()
    }

    // ---- Going back -------------------------------------------------------------------------

    /// From now on writes down what undoes its changes, behind what was written before.
    pub fn keep_changes(&mut self, changes: UndoLog) {
        self.changes = Some(changes);
    }

    /// No longer does, and hands it out.
    pub fn take_changes(&mut self) -> Option<UndoLog> {
        self.changes.take()
    }

    /// Undoes what was written down, from the last change to the first.
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

    // ---- As a whole -------------------------------------------------------------------------

    /// Shows some members from a cursor on, in no order, and returns the next cursor; 0 begins and ends.
    /// See [`Table::scan`] for what it promises.
    pub fn scan(&self, cursor: u64, budget: usize, mut f: impl FnMut(&[u8], f64)) -> u64 {
        self.members
            .scan(cursor, budget, |record| f(record.member(), record.score()))
    }

    /// Shows some members from a position on, each that is there from the first call to the last once; see
    /// [`Table::scan_once`].
    pub fn scan_once(&self, position: u64, budget: usize, mut f: impl FnMut(&[u8], f64)) -> u64 {
        self.members.scan_once(position, budget, |record| {
            f(record.member(), record.score());
        })
    }

    /// A copy of the members in a structure of its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let members = self.range(0, self.len(), Direction::Ascending);
        let copy = Self::of_ascending(self.form(), self.seed, members);
        copy.unwrap_or_else(|| unreachable!("each member is there once"))
    }

    /// Moves what lies in sparse slabs, among some `budget` segments of the table, or some `budget` members and the
    /// nodes of the index around them, from where the call that returned `position` stopped; returns where this one
    /// stops, 0 at the end.
    ///
    /// The table comes first, whose positions are even; then the members, by their ranks.
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

    /// Frees some `budget` members; true while any are left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        /// What a segment of the table holds, roughly.
        const SEGMENT: usize = 256;
        if !self.order.is_empty() {
            self.order.free_some(budget);
            return true;
        }
        self.members.drain_some((budget / SEGMENT).max(1))
    }

    /// Panics unless the ranking is sound. For tests; reads everything.
    pub fn check_invariants(&self) {
        self.members.check_invariants();
        self.order.check_invariants();
        assert_eq!(self.order.len(), self.members.len());
        for (member, score) in self.range(0, self.len(), Direction::Ascending) {
            assert_eq!(self.score(member), Some(score));
        }
    }
}

fn index_seed(seed: Seed) -> u64 {
    seed.k0 ^ seed.k1.rotate_left(32)
}

/// Moves records, which both the table and the index name, and nodes of the index.
struct MembersAndNodes<'a> {
    members: &'a mut Table<Record>,
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
            // SAFETY: the index names live records only.
            let member = unsafe { scored.record() }.member();
            let hash = self.members.hash(member);
            let found = self.members.find_by_hash(hash, |record| record.is(*scored));
            if let Some(place) = found {
                let mut record = self.members.edit(place);
                let fresh = record.duplicate();
                // Until the old one is freed at the end of this turn no reader looks at it any more.
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

/// The score of a member that was not there.
const ABSENT: f64 = f64::NAN;

#[cold]
fn keep(changes: &mut UndoLog, member: &[u8], score: f64) {
    changes.keep(member, score.to_bits(), 0);
}

/// A walk over a range of members.
pub struct Range<'a> {
    ranking: &'a Ranking,
    items: IndexItems<'a, Scored>,
}

impl<'a> Iterator for Range<'a> {
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

impl ExactSizeIterator for Range<'_> {}
