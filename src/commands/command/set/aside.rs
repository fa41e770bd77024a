//! SINTERSTORE, SUNIONSTORE and SDIFFSTORE of large sets, built aside ([`command::aside`](crate::command::aside)).
//!
//! Some sets are walked, and each of their members is searched for in the others: all sets for a union, the smallest
//! for an intersection, the first for a difference. Members are copied while the shards are locked, and added to the
//! new set, which takes longer, while they are not.

use super::{SetOperation, is_searched, limits_of};
use crate::command::Args;
use crate::command::aside::{Aside, AsideContext, BuildAside, SliceResult};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_engine::value::object::change_detached;
use basalt_engine::value::set::{self, SetLimits, SetRef};
use basalt_engine::value::{DataType, Object, ObjectKind};

/// Look-ups of members in one slice: some 0.1 ms.
const LOOKUPS_PER_SLICE: usize = 512;

/// Bytes of members after which a slice ends.
const BYTES_PER_SLICE: usize = 64 * 1024;

/// Members visited between two looks at these limits.
const MEMBERS_PER_STEP: usize = 16;

/// Maximum members of a walked set that is no table, which is walked in one slice.
const SMALL_MAX: usize = 1024;

/// A set operation's result, being built aside.
struct CombinedAside {
    operation: SetOperation,
    limits: SetLimits,
    /// True if the first key is named again.
    is_first_repeated: bool,
    /// The sets yet to be walked, by their numbers, the next one last; None before the first slice.
    walked: Option<Vec<usize>>,
    /// The position in that set.
    cursor: u64,
    /// The members read in this slice, one after the other, and where each ends.
    members: Vec<u8>,
    ends: Vec<usize>,
    entry: Entry<Object>,
}

/// Begins to build the result of a set operation aside.
pub(super) fn begin(args: &Args<'_>, cx: &AsideContext<'_>, operation: SetOperation) -> Aside {
    let keys = &args.keys()[1..];
    let names: Vec<&[u8]> = args.from(2).collect();
    let value = CombinedAside {
        operation,
        // Sets with deadlines are not built aside, so the time does not matter.
        limits: limits_of(cx.config, cx.seed, 0),
        is_first_repeated: names[1..].contains(&names[0]),
        walked: None,
        cursor: 0,
        members: Vec::new(),
        ends: Vec::new(),
        entry: set::empty_intset(args.get(1)),
    };
    Aside::new(args, keys, cx.db, Box::new(value))
}

impl CombinedAside {
    /// Returns the sets to walk, the next one last; None if the operation is better done at once.
    fn plan(&self, sets: &[Option<SetRef<'_>>]) -> Option<Vec<usize>> {
        let lens: Vec<usize> = sets.iter().map(|set| set.map_or(0, SetRef::len)).collect();
        let all = 0..sets.len();
        let walked: Vec<usize> = match self.operation {
            SetOperation::Union => all.rev().filter(|number| lens[*number] > 0).collect(),
            SetOperation::Intersection => {
                all.min_by_key(|number| lens[*number]).into_iter().collect()
            }
            SetOperation::Difference if self.is_first_repeated || !is_searched(&lens) => {
                return None;
            }
            SetOperation::Difference => vec![0],
        };
        let is_sliced = |number: &usize| {
            sets[*number]
                .is_some_and(|set| matches!(set, SetRef::Table(..)) || set.len() <= SMALL_MAX)
        };
        walked.iter().all(is_sliced).then_some(walked)
    }

    /// Reads some members of the set that is walked. Returns the number visited.
    fn step(&mut self, number: usize, sets: &[Option<SetRef<'_>>]) -> usize {
        let Some(set) = sets[number] else {
            return 0;
        };
        let CombinedAside {
            operation,
            cursor,
            members,
            ends,
            ..
        } = self;
        let others = sets.iter().zip(0..).filter(|(_, other)| *other != number);
        let mut visited = 0;
        *cursor = set.scan(*cursor, MEMBERS_PER_STEP, |member| {
            visited += 1;
            let mut others = others.clone().filter_map(|(set, _)| *set);
            let belongs = match operation {
                SetOperation::Union => true,
                SetOperation::Intersection => others.all(|set| set.has(member)),
                SetOperation::Difference => !others.any(|set| set.has(member)),
            };
            if belongs {
                member.with_bytes(|member| members.extend_from_slice(member));
                ends.push(members.len());
            }
        });
        visited
    }
}

impl BuildAside for CombinedAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        let is_set = |entry: &EntryRef<'_, Object>| {
            let is_set = ObjectKind(entry.kind()).data_type() == DataType::Set;
            is_set && SetRef::of(*entry, 0).next_deadline().is_none()
        };
        if !sources.iter().flatten().all(is_set) {
            return SliceResult::Unsuitable;
        }
        let sets: Vec<Option<SetRef<'_>>> = sources
            .iter()
            .map(|entry| entry.map(|entry| SetRef::of(entry, 0)))
            .collect();
        let plan = self.walked.take().or_else(|| self.plan(&sets));
        let Some(mut walked) = plan else {
            return SliceResult::Unsuitable;
        };
        let mut lookups = 0;
        while lookups < LOOKUPS_PER_SLICE && self.members.len() < BYTES_PER_SLICE {
            let Some(&number) = walked.last() else {
                break;
            };
            lookups += (1 + self.step(number, &sets)) * sets.len();
            if self.cursor == 0 {
                walked.pop();
            }
        }
        let is_whole = walked.is_empty();
        self.walked = Some(walked);
        match is_whole {
            true => SliceResult::Whole,
            false => SliceResult::More,
        }
    }

    fn add(&mut self) {
        let (members, ends, limits) = (&self.members, &self.ends, &self.limits);
        change_detached(&mut self.entry, |entry| {
            let mut start = 0;
            for &end in ends {
                set::add(entry, &members[start..end], limits);
                start = end;
            }
        });
        self.members.clear();
        self.ends.clear();
    }

    fn take(&mut self) -> Entry<Object> {
        std::mem::replace(&mut self.entry, set::empty_intset(b""))
    }
}
