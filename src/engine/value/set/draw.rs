//! Members by chance: every member, or every choice of several, is as likely as any other.

use std::collections::HashSet;

use super::{INTSET, LISTPACK, Limits, Members, SetRef, add, members_mut};
use crate::base::random::Random;
use crate::engine::value::{Kind, Object};
use crate::structures::entry::Entry;
use crate::structures::intset::{self, IntsetMut};
use crate::structures::pack::{self, Element, PackMut};

/// Chooses so many out of so many, told one after the other.
struct Choice {
    unseen: usize,
    wanted: usize,
}

impl Choice {
    /// Whether the next one is chosen.
    fn takes(&mut self, random: &mut Random) -> bool {
        let takes = random.index(self.unseen) < self.wanted;
        self.unseen = self.unseen.saturating_sub(1);
        self.wanted -= usize::from(takes);
        takes
    }
}

/// A member of a set that is not empty.
pub fn random_member<'a>(set: SetRef<'a>, random: &mut Random) -> Option<Element<'a>> {
    match set {
        SetRef::Intset(numbers) => numbers
            .get(random.index(numbers.len()))
            .map(Element::Integer),
        SetRef::Listpack(pack) => {
            let at = pack.nth(random.index(pack.len()) as isize)?;
            Some(pack.get(at))
        }
        SetRef::Table(members) => members.random(random).map(Element::Bytes),
    }
}

/// Calls `f` with `count` members, each drawn anew.
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
        // Walking to each one would take as long as walking over all once.
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

/// Calls `f` with `count` different members, or with all if there are no more.
pub fn sample(set: SetRef<'_>, count: usize, random: &mut Random, mut f: impl FnMut(Element<'_>)) {
    /// A walk over all costs about as much as so many draws for each third member, some of them in vain.
    const WALK_COSTS_DRAWS: usize = 3;
    let len = set.len();
    if count >= len {
        return set.for_each(f);
    }
    if let SetRef::Table(members) = set
        && count.saturating_mul(WALK_COSTS_DRAWS) <= len
    {
        let mut drawn = HashSet::with_capacity(count);
        while drawn.len() < count {
            if let Some(member) = members.random(random)
                && drawn.insert(member)
            {
                f(Element::Bytes(member));
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

/// Takes `count` members out, fewer than there are, and calls `f` with each. What is left may take a smaller encoding.
pub fn take_many(
    entry: &mut Entry<Object>,
    count: usize,
    random: &mut Random,
    limits: &Limits,
    mut f: impl FnMut(Element<'_>),
) {
    /// Beyond so many taken members for each one left, moving those is cheaper than drawing the others.
    const TAKEN_PER_LEFT_MAX: usize = 5;
    let len = SetRef::of(entry.view()).len();
    debug_assert!(count < len);
    let mut choice = Choice {
        unseen: len,
        wanted: count,
    };
    match Kind(entry.view().kind()) {
        kind @ (INTSET | LISTPACK) => {
            let empty = if kind == INTSET {
                intset::EMPTY.as_slice()
            } else {
                pack::EMPTY.as_slice()
            };
            let mut left = empty.to_vec();
            SetRef::of(entry.view()).for_each(|member| {
                if choice.takes(random) {
                    f(member);
                } else if let (INTSET, Element::Integer(number)) = (kind, member) {
                    IntsetMut::new(&mut left).add(number);
                } else {
                    member.with_bytes(|member| PackMut::new(&mut left).push_back(member));
                }
            });
            entry.set_bytes(&left);
        }
        _ if (len - count).saturating_mul(TAKEN_PER_LEFT_MAX) > count => {
            let members = members_mut(entry);
            for _ in 0..count {
                members.take_random(random, |member| f(Element::Bytes(member)));
            }
        }
        _ if members_mut(entry).keeps_changes() => {
            // The table stays: whoever wants to undo this puts members back into it.
            let members = members_mut(entry);
            let mut taken: Vec<Vec<u8>> = Vec::new();
            members.for_each(|member| {
                if choice.takes(random) {
                    taken.push(member.to_vec());
                }
            });
            for member in taken {
                f(Element::Bytes(&member));
                members.remove(&member);
            }
        }
        _ => {
            let members = std::mem::replace(members_mut(entry), Members::new(limits.seed));
            entry.set_kind(INTSET.0);
            entry.set_bytes(&intset::EMPTY);
            members.for_each(|member| {
                if choice.takes(random) {
                    f(Element::Bytes(member));
                } else {
                    add(entry, member, limits);
                }
            });
        }
    }
}
