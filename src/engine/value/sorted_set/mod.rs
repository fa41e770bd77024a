//! Sorted sets: a listpack of members and scores in order while small, then a ranking (hash table and ordered index).
//!
//! ```text
//! small   listpack    member score member score …    bytes of the entry, as in Redis's dumps
//! large   skiplist    structures/ordered             OBJECT ENCODING reports this name, whatever the index is
//! ```
//!
//! Members are ordered by score, then by bytes. Ranks count from 0. An insertion that exceeds a limit makes a small
//! set large, and a large set never becomes small again. Ranges of scores or members are interpreted by the commands:
//! here everything is accessed by rank, and ranks are found with a predicate that is true up to some point of the
//! order.
//!
//! Invariants: a listpack has each member's score after the member, and is ascending; scores are never NaN. The
//! command that empties a set deletes it.

mod edit;
#[cfg(test)]
mod tests;

pub use edit::{ScoredMembers, SortedSetMut};

use super::body::{CollectionBody, CollectionCursor, ElementRef, Journal, ShowBefore};
use super::object::{Collection, Object};
use super::{DataType, ObjectKind, ValueEncoding};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::number;
use basalt_core::base::random::Random;
use basalt_core::structures::entry::{EntryRef, Value};
use basalt_core::structures::listpack::{At, Element, Listpack};
use basalt_core::structures::ordered::ranking::{self, Ranking};
use basalt_core::structures::ordered::{Direction, OrderedIndexType};

/// A sorted set that is a listpack.
pub const LISTPACK: ObjectKind = ObjectKind::new(DataType::SortedSet, ValueEncoding::Listpack);
/// A sorted set that is a ranking.
pub const SKIPLIST: ObjectKind = ObjectKind::new(DataType::SortedSet, ValueEncoding::Skiplist);

/// The limits of small sets, and the parameters of large ones.
#[derive(Clone, Copy)]
pub struct SortedSetLimits {
    /// Maximum members of a small set.
    pub members: usize,
    /// Maximum bytes of a small set's member.
    pub member_bytes: usize,
    /// The index type of a large set: skip list or tree.
    pub form: OrderedIndexType,
    /// Hash key of a large set's table.
    pub seed: HashSeed,
}

impl CollectionBody for Ranking {
    fn duplicate(&self) -> Self {
        Ranking::duplicate(self)
    }

    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        self.prefetch_member(name, is_in_use);
    }

    fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
        Ranking::keep_changes(self, Journal::into_log(journal));
        true
    }

    fn take_changes(&mut self) -> Option<Journal> {
        Ranking::take_changes(self).map(Journal::Changes)
    }

    fn undo(&mut self, journal: &Journal) {
        if let Journal::Changes(changes) = journal {
            Ranking::undo(self, changes);
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.len())
    }

    fn element_hash(&self, name: &[u8]) -> u64 {
        self.hash(name)
    }

    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        self.scan_once(position, budget, |member, score| {
            show(ElementRef::new(member, b"", score.to_bits()));
        })
    }

    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        for change in changes.changes_to(from) {
            let was_there = !f64::from_bits(change.number).is_nan();
            let piece = ElementRef::new(change.bytes, b"", change.number);
            show(change.bytes, was_there.then_some(piece));
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        Ranking::free_some(self, budget)
    }

    fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        Ranking::relocate_some(self, from.single(), budget, mover).into()
    }
}

/// A sorted set for reading.
#[derive(Clone, Copy)]
pub enum SortedSet<'a> {
    /// A small set, as a listpack.
    Small(Listpack<'a>),
    /// A large set, as a ranking.
    Large(&'a Ranking),
}

impl<'a> SortedSet<'a> {
    /// Returns the sorted set of an entry that was looked up as one.
    pub fn of(entry: EntryRef<'a, Object>) -> SortedSet<'a> {
        match entry.value() {
            Value::Bytes(bytes) => SortedSet::Small(Listpack::new(bytes)),
            Value::Object(Object {
                body: Collection::SortedSet(ranking),
                ..
            }) => SortedSet::Large(ranking),
            _ => unreachable!("a sorted set is a pack or a ranking"),
        }
    }

    /// Returns the number of members.
    pub fn len(self) -> usize {
        match self {
            SortedSet::Small(pack) => pack.len() / 2,
            SortedSet::Large(ranking) => ranking.len(),
        }
    }

    /// True if there are no members.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the score of a member.
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSet::Small(pack) => pack.find(member, 2).map(|at| score_behind(pack, at)),
            SortedSet::Large(ranking) => ranking.score(member),
        }
    }

    /// Returns the rank and the score of a member.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            SortedSet::Small(_) => self
                .range(0, self.len(), Direction::Ascending)
                .enumerate()
                .find(|(_, (other, _))| other.is(member))
                .map(|(rank, (_, score))| (rank, score)),
            SortedSet::Large(ranking) => {
                let place = ranking.find(ranking.hash(member), member)?;
                Some((ranking.rank(place), ranking.score_at(place)))
            }
        }
    }

    /// Returns the number of members at the low end whose score satisfies `before`.
    pub fn rank_by_score(self, before: impl Fn(f64) -> bool) -> usize {
        match self {
            SortedSet::Small(pack) => {
                let all = Range::of_listpack(pack, 0, self.len(), Direction::Ascending);
                all.take_while(|(_, score)| before(*score)).count()
            }
            SortedSet::Large(ranking) => ranking.rank_by_score(before),
        }
    }

    /// Returns the number of members at the low end that satisfy `before`.
    pub fn rank_by_member(self, before: impl Fn(&[u8]) -> bool) -> usize {
        match self {
            SortedSet::Small(pack) => {
                let all = Range::of_listpack(pack, 0, self.len(), Direction::Ascending);
                all.take_while(|(member, _)| member.with_bytes(&before))
                    .count()
            }
            SortedSet::Large(ranking) => ranking.rank_by(|_, member| before(member)),
        }
    }

    /// Returns the members with ranks from `from` up to but not including `to`, with their scores.
    pub fn range(self, from: usize, to: usize, direction: Direction) -> Range<'a> {
        match self {
            SortedSet::Small(pack) => Range::of_listpack(pack, from, to, direction),
            SortedSet::Large(ranking) => Range::Large(ranking.range(from, to, direction)),
        }
    }

    /// Returns all members in order.
    pub fn iter(self) -> Range<'a> {
        self.range(0, self.len(), Direction::Ascending)
    }

    /// Returns the member at a rank.
    pub fn get(self, rank: usize) -> Option<(Element<'a>, f64)> {
        match self {
            SortedSet::Small(_) => self.range(rank, rank + 1, Direction::Ascending).next(),
            SortedSet::Large(ranking) => {
                let (member, score) = ranking.get(rank)?;
                Some((Element::Bytes(member), score))
            }
        }
    }

    /// Returns a random member.
    pub fn random(self, random: &mut Random) -> Option<(Element<'a>, f64)> {
        match self.len() {
            0 => None,
            len => self.get(random.index(len)),
        }
    }

    /// Visits some members, starting at a cursor. Returns the next cursor; a walk begins and ends with 0. A small set
    /// is visited whole.
    pub fn scan(self, cursor: u64, budget: usize, mut f: impl FnMut(Element<'_>, f64)) -> u64 {
        match self {
            SortedSet::Small(_) => {
                self.iter().for_each(|(member, score)| f(member, score));
                0
            }
            SortedSet::Large(ranking) => ranking.scan(cursor, budget, |member, score| {
                f(Element::Bytes(member), score);
            }),
        }
    }
}

/// An iterator over a range of a sorted set.
pub enum Range<'a> {
    /// Over a small set.
    Small {
        /// The listpack of the set.
        pack: Listpack<'a>,
        /// Position of the next member; None at the end.
        at: Option<At>,
        /// Number of members still to return.
        left: usize,
        /// Direction of the walk.
        direction: Direction,
    },
    /// Over a large set.
    Large(ranking::RankRangeIter<'a>),
}

impl<'a> Range<'a> {
    fn of_listpack(pack: Listpack<'a>, from: usize, to: usize, direction: Direction) -> Range<'a> {
        let to = to.min(pack.len() / 2);
        let left = to.saturating_sub(from);
        let first = match direction {
            Direction::Ascending => from,
            Direction::Descending => to.saturating_sub(1),
        };
        let at = match left {
            0 => None,
            _ => pack.nth(2 * first as isize),
        };
        Range::Small {
            pack,
            at,
            left,
            direction,
        }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Range::Small {
                pack,
                at: next,
                left,
                direction,
            } => {
                let at = (*next)?;
                *left = left.checked_sub(1)?;
                let score_at = pack.next(at)?;
                *next = match direction {
                    _ if *left == 0 => None,
                    Direction::Ascending => pack.next(score_at),
                    Direction::Descending => pack.prev(at).and_then(|score_at| pack.prev(score_at)),
                };
                Some((pack.get(at), score_of(pack.get(score_at))))
            }
            Range::Large(range) => {
                let (member, score) = range.next()?;
                Some((Element::Bytes(member), score))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Range::Small { left, .. } => (*left, Some(*left)),
            Range::Large(range) => range.size_hint(),
        }
    }
}

impl ExactSizeIterator for Range<'_> {}

/// Returns the score stored in an element of a listpack.
fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Integer(score) => score as f64,
        Element::Bytes(text) => number::parse_f64(text).unwrap_or(0.0),
    }
}

/// Returns the score after a member of a listpack.
fn score_behind(pack: Listpack<'_>, member: At) -> f64 {
    pack.next(member).map_or(0.0, |at| score_of(pack.get(at)))
}

/// True if bytes that come from outside are a listpack of members and scores in order, as required in a dump.
pub fn check_listpack(bytes: &[u8]) -> bool {
    let Some(pack) = Listpack::check(bytes) else {
        return false;
    };
    if pack.is_empty() || !pack.len().is_multiple_of(2) {
        return false;
    }
    let mut scores = pack.iter().skip(1).step_by(2);
    let is_score = |element: Element<'_>| match element {
        Element::Integer(_) => true,
        Element::Bytes(text) => number::parse_f64(text).is_some_and(|score| !score.is_nan()),
    };
    if !scores.all(is_score) {
        return false;
    }
    let mut names = std::collections::HashSet::new();
    let mut last: Option<(f64, Vec<u8>)> = None;
    let set = SortedSet::Small(pack);
    set.iter().all(|(member, score)| {
        let member = member.to_vec();
        let follows = last
            .as_ref()
            .is_none_or(|(before, name)| (*before, name) < (score, &member));
        last = Some((score, member.clone()));
        follows && names.insert(member)
    })
}
