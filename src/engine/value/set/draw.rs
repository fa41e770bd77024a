//! Random sampling of members: every member, and every combination of several, is equally likely.

use std::collections::HashSet;

use super::{INTSET, LISTPACK, SetLimits, SetRef, add, empty_intset, members_mut};
use crate::value::{Object, ObjectKind};
use basalt_core::base::random::Random;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::intset::{self, IntsetMut};
use basalt_core::structures::listpack::{self, Element, ListpackMut};

/// Chooses `wanted` items at random out of `unseen` items, which are presented one after the other.
struct Choice {
    unseen: usize,
    wanted: usize,
}

impl Choice {
    /// Returns whether the next item is chosen.
    fn takes(&mut self, random: &mut Random) -> bool {
        let takes = random.index(self.unseen) < self.wanted;
        self.unseen = self.unseen.saturating_sub(1);
        self.wanted -= usize::from(takes);
        takes
    }
}

/// Returns a random member of a set that is not empty.
pub fn random_member<'a>(set: SetRef<'a>, random: &mut Random) -> Option<Element<'a>> {
    match set {
        SetRef::Intset(numbers) => numbers
            .get(random.index(numbers.len()))
            .map(Element::Integer),
        SetRef::Listpack(pack) => {
            let at = pack.nth(random.index(pack.len()) as isize)?;
            Some(pack.get(at))
        }
        SetRef::Table(members, now_ms) => {
            let member = members.random(random, now_ms)?;
            Some(Element::Bytes(member.key()))
        }
    }
}

/// Calls `f` with `count` random members, with repetitions.
pub fn random_many(
    set: SetRef<'_>,
    count: usize,
    random: &mut Random,
    mut f: impl FnMut(Element<'_>),
) {
    if let SetRef::Listpack(pack) = set
        && count > 1
        && !pack.is_empty()
    {
        // Walking to each sampled position separately would take as long as walking over the whole listpack.
        let all: Vec<Element<'_>> = pack.iter().collect();
        for _ in 0..count {
            f(all[random.index(all.len())]);
        }
        return;
    }
    for _ in 0..count {
        if let Some(member) = random_member(set, random) {
            f(member);
        }
    }
}

/// Calls `f` with `count` different random members, or with all if there are no more than that.
pub fn sample(set: SetRef<'_>, count: usize, random: &mut Random, mut f: impl FnMut(Element<'_>)) {
    /// A walk over all members costs about as much as sampling one member in this many, including samples that
    /// repeat.
    const WALK_COSTS_DRAWS: usize = 3;
    let len = set.len();
    if count >= len {
        return set.for_each(f);
    }
    if let SetRef::Table(members, now_ms) = set
        && members.total() == len
        && count.saturating_mul(WALK_COSTS_DRAWS) <= len
    {
        let mut drawn = HashSet::with_capacity(count);
        while drawn.len() < count {
            if let Some(member) = members.random(random, now_ms)
                && drawn.insert(member.key())
            {
                f(Element::Bytes(member.key()));
            }
        }
        return;
    }
    let mut choice = Choice {
        unseen: len,
        wanted: count,
    };
    set.for_each(|member| {
        if choice.takes(random) {
            f(member);
        }
    });
}

/// True if taking `count` members leaves so few in a table that moving the remaining ones to a new set is cheaper
/// than removing the others.
pub fn leaves_few(set: SetRef<'_>, count: usize) -> bool {
    /// Number of taken members per remaining one.
    const TAKEN_PER_LEFT_MAX: usize = 5;
    let left = set.len().saturating_sub(count);
    // Moving would lose deadlines, which the new set does not have.
    let can_move = matches!(set, SetRef::Table(members, _) if members.deadline_count() == 0);
    can_move && left.saturating_mul(TAKEN_PER_LEFT_MAX) <= count
}

/// Returns a new set, in its appropriate encoding, of all but `count` random members of a set, with its key and
/// deadline. Calls `f` with each of the members left out.
pub fn left_of(
    entry: EntryRef<'_, Object>,
    count: usize,
    random: &mut Random,
    limits: &SetLimits,
    mut f: impl FnMut(Element<'_>),
) -> Entry<Object> {
    let set = SetRef::of(entry, limits.now_ms);
    let mut choice = Choice {
        unseen: set.len(),
        wanted: count,
    };
    let mut left = empty_intset(entry.key());
    set.for_each(|member| {
        if choice.takes(random) {
            f(member);
        } else {
            member.with_bytes(|member| add(&mut left, member, limits));
        }
    });
    left.set_deadline(entry.deadline());
    left
}

/// Removes `count` random members, fewer than the set has, and calls `f` with each.
pub fn take_many(
    entry: &mut Entry<Object>,
    count: usize,
    random: &mut Random,
    now_ms: u64,
    mut f: impl FnMut(Element<'_>),
) {
    let len = SetRef::of(entry.view(), now_ms).len();
    debug_assert!(count < len);
    let mut choice = Choice {
        unseen: len,
        wanted: count,
    };
    match ObjectKind(entry.view().kind()) {
        kind @ (INTSET | LISTPACK) => {
            let empty = if kind == INTSET {
                intset::EMPTY.as_slice()
            } else {
                listpack::EMPTY.as_slice()
            };
            let mut left = empty.to_vec();
            SetRef::of(entry.view(), now_ms).for_each(|member| {
                if choice.takes(random) {
                    f(member);
                } else if let (INTSET, Element::Integer(number)) = (kind, member) {
                    IntsetMut::new(&mut left).add(number);
                } else {
                    member.with_bytes(|member| ListpackMut::new(&mut left).push_back(member));
                }
            });
            entry.set_bytes(&left);
        }
        _ => {
            let members = members_mut(entry);
            if members.total() == len {
                for _ in 0..count {
                    members.take_random(random, now_ms, |member| f(Element::Bytes(member)));
                }
                return;
            }
            // Random sampling would hit expired members, perhaps most of the time.
            let mut chosen = Vec::with_capacity(count);
            members.for_each(now_ms, |member| {
                if choice.takes(random) {
                    chosen.push(member.key().to_vec());
                }
            });
            for member in &chosen {
                members.remove(member, now_ms);
                f(Element::Bytes(member));
            }
        }
    }
}
