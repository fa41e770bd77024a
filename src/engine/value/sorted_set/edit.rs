//! Changes of sorted sets.

use super::{LISTPACK, SKIPLIST, SortedSet, SortedSetLimits, score_behind};
use crate::value::{Collection, Object};
use basalt_core::base::number::F64Buffer;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::listpack::{self, Element, Listpack, ListpackMut};
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::ordered::ranking::Ranking;
use basalt_core::structures::splice::Splice;

/// A sorted set for writing.
pub struct SortedSetMut<'e> {
    entry: &'e mut Entry<Object>,
    limits: SortedSetLimits,
}

/// Members with scores for a new set, each member once, in any order.
pub type ScoredMembers = Vec<(Vec<u8>, f64)>;

impl<'e> SortedSetMut<'e> {
    /// Wraps an entry that was looked up as a sorted set.
    pub fn new(entry: &'e mut Entry<Object>, limits: SortedSetLimits) -> SortedSetMut<'e> {
        SortedSetMut { entry, limits }
    }

    /// Creates an empty set; the caller must add a member, as keys have no empty sets.
    pub fn empty_entry(key: &[u8]) -> Entry<Object> {
        Entry::bytes(LISTPACK.0, key, &listpack::EMPTY, None)
    }

    /// Creates a set of these members.
    pub fn entry_of<M: AsRef<[u8]>>(
        key: &[u8],
        members: &mut [(M, f64)],
        limits: SortedSetLimits,
    ) -> Entry<Object> {
        let by_name = |one: &M, two: &M| one.as_ref().cmp(two.as_ref());
        // Minus zero equals zero in the order of the set.
        let by_score = |one: f64, two: f64| (one + 0.0).total_cmp(&(two + 0.0));
        members.sort_by(|one, two| by_score(one.1, two.1).then_with(|| by_name(&one.0, &two.0)));
        let mut entry = SortedSetMut::empty_entry(key);
        let longest = members.iter().map(|(member, _)| member.as_ref().len());
        let mut is_large = members.len() > limits.members;
        is_large |= longest.max().unwrap_or(0) > limits.member_bytes;
        let ascending = members
            .iter()
            .map(|(member, score)| (member.as_ref(), *score));
        if is_large
            && let Some(ranking) = Ranking::of_ascending(limits.form, limits.seed, ascending)
        {
            become_large(&mut entry, ranking);
            return entry;
        }
        let mut set = SortedSetMut::new(&mut entry, limits);
        for (member, score) in members.iter() {
            set.update(member.as_ref(), *score, |_| Some(*score));
        }
        entry
    }

    /// Returns the set for reading.
    pub fn view(&self) -> SortedSet<'_> {
        SortedSet::of(self.entry.view())
    }

    /// Sets a member's score to the result of `decide`, which gets the current score; adds the member if it is
    /// absent. If `decide` returns None, or NaN, nothing changes. `likely` is a guess at the score.
    pub fn update(
        &mut self,
        member: &[u8],
        likely: f64,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) {
        if let Some(ranking) = large_mut(self.entry) {
            return update_ranking(ranking, member, likely, decide);
        }
        let pack = Listpack::new(Splice::bytes(self.entry));
        let found = pack.find(member, 2);
        let Some(score) = decide(found.map(|at| score_behind(pack, at))) else {
            return;
        };
        if score.is_nan() {
            return;
        }
        match found {
            Some(at) => {
                ListpackMut::new(self.entry).remove_range(at, 2);
                self.insert_packed(member, score);
            }
            None if pack.len() / 2 >= self.limits.members
                || member.len() > self.limits.member_bytes
                || !pack.fits(member.len() + PAIR_BYTES_MAX) =>
            {
                self.promote();
                if let Some(ranking) = large_mut(self.entry) {
                    ranking.insert_new(ranking.hash(member), member, score);
                }
            }
            None => self.insert_packed(member, score),
        }
    }

    /// Removes a member. Returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match large_mut(self.entry) {
            Some(ranking) => {
                let place = ranking.find(ranking.hash(member), member)?;
                Some(ranking.remove(place))
            }
            None => {
                let pack = Listpack::new(Splice::bytes(self.entry));
                let at = pack.find(member, 2)?;
                let score = score_behind(pack, at);
                ListpackMut::new(self.entry).remove_range(at, 2);
                Some(score)
            }
        }
    }

    /// Removes `count` members from a rank on.
    pub fn remove_range(&mut self, from: usize, count: usize) {
        match large_mut(self.entry) {
            Some(ranking) => ranking.remove_range(from, count, |_, _| {}),
            None => {
                let pack = Listpack::new(Splice::bytes(self.entry));
                if let Some(at) = pack.nth(2 * from as isize) {
                    ListpackMut::new(self.entry).remove_range(at, count.saturating_mul(2));
                }
            }
        }
    }

    /// Inserts an absent member at its position in a listpack.
    fn insert_packed(&mut self, member: &[u8], score: f64) {
        let mut buffer = F64Buffer::default();
        // Whole numbers are stored as integers, which have no -0.
        let text = buffer.format(if score == 0.0 { 0.0 } else { score });
        let pack = Listpack::new(Splice::bytes(self.entry));
        let is_behind = |other: Element<'_>, other_score: f64| {
            other_score < score
                || (other_score == score && other.with_bytes(|other| other < member))
        };
        // Scores that grow with time are common: then comparing with the last member suffices.
        let set = SortedSet::Small(pack);
        let mut last = set.range(0, usize::MAX, Direction::Descending);
        let rank = match last.next() {
            Some((other, other_score)) if is_behind(other, other_score) => None,
            None => None,
            Some(_) => set
                .iter()
                .position(|(other, other_score)| !is_behind(other, other_score)),
        };
        let at = rank.and_then(|rank| pack.nth(2 * rank as isize));
        let mut pack = ListpackMut::new(self.entry);
        match at {
            Some(at) => {
                let at = pack.insert_element_before(at, Element::of(member));
                pack.insert_element_after(at, Element::of(text));
            }
            None => {
                let pair = [Element::of(member), Element::of(text)];
                pack.push_back_all(pair.into_iter());
            }
        }
    }

    /// Converts the set to a large one.
    fn promote(&mut self) {
        let mut ranking = Ranking::new(self.limits.form, self.limits.seed);
        for (member, score) in SortedSet::of(self.entry.view()).iter() {
            member.with_bytes(|member| ranking.insert_new(ranking.hash(member), member, score));
        }
        become_large(self.entry, ranking);
    }
}

fn become_large(entry: &mut Entry<Object>, ranking: Ranking) {
    entry.set_object(Object::boxed(Collection::SortedSet(ranking)));
    entry.set_kind(SKIPLIST.0);
}

/// Maximum bytes of a score and of the overhead of two elements.
const PAIR_BYTES_MAX: usize = 64;

fn large_mut(entry: &mut Entry<Object>) -> Option<&mut Ranking> {
    match entry.object_mut() {
        Some(Object {
            body: Collection::SortedSet(ranking),
            ..
        }) => Some(ranking),
        _ => None,
    }
}

fn update_ranking(
    ranking: &mut Ranking,
    member: &[u8],
    likely: f64,
    decide: impl FnOnce(Option<f64>) -> Option<f64>,
) {
    let hash = ranking.hash(member);
    ranking.prefetch(hash, likely);
    let found = ranking.find(hash, member);
    let Some(score) = decide(found.map(|place| ranking.score_at(place))) else {
        return;
    };
    if score.is_nan() {
        return;
    }
    match found {
        Some(place) => ranking.set_score(place, score),
        None => ranking.insert_new(hash, member, score),
    }
}
