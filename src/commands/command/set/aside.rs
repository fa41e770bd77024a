//! SINTERSTORE, SUNIONSTORE and SDIFFSTORE of large sets, built aside ([`command::aside`](crate::command::aside)).
//!
//! Some sets are walked, and each of their members is searched for in the others: all sets for a union, the smallest
//! for an intersection, the first for a difference. Members are copied while the shards are locked, and added to the
//! new set, which takes longer, while they are not.

use super::{SetOperation, is_searched, limits_of};
use crate::command::Args;
use crate::command::aside::{
    Aside, AsideContext, BYTES_PER_SLICE, BuildAside, LOOKUPS_PER_SLICE, SliceResult,
};
use crate::command::prepared::Built;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::listpack::Element;
use basalt_core::structures::text_arena::TextArena;
use basalt_engine::value::object::change_detached;
use basalt_engine::value::set::{self, SetLimits, SetRef};
use basalt_engine::value::{DataType, Object, ObjectKind, slices};

/// Members visited between two looks at these limits.
const MEMBERS_PER_STEP: usize = 16;

/// A set operation's result, being built aside.
struct CombinedAside {
    operation: SetOperation,
    limits: SetLimits,
    /// True if the first key is named again.
    is_first_repeated: bool,
    /// The sets yet to be walked, by their numbers, the next one last; None before the first slice.
    walked: Option<Vec<usize>>,
    /// The position in that set.
    position: u64,
    /// The members read in this slice.
    members: TextArena,
    entry: Entry<Object>,
}

/// Begins to build the result of a set operation aside.
pub(super) fn begin(
    args: &Args<'_>,
    cx: &AsideContext<'_>,
    operation: SetOperation,
) -> Option<Aside> {
    let keys = &args.keys()[1..];
    let names: Vec<&[u8]> = args.from(2).collect();
    let value = CombinedAside {
        operation,
        // Sets with deadlines are not built aside, so the time does not matter.
        limits: limits_of(cx.config, cx.seed, 0),
        is_first_repeated: names[1..].contains(&names[0]),
        walked: None,
        position: 0,
        members: TextArena::default(),
        entry: set::empty_intset(args.get(1)),
    };
    Some(Aside::new(args, keys, cx.db, Box::new(value)))
}

impl CombinedAside {
    /// Returns the sets to walk, the next one last; None if the operation is better done at once.
    fn plan(&self, sources: &[Option<EntryRef<'_, Object>>]) -> Option<Vec<usize>> {
        let len =
            |entry: &Option<EntryRef<'_, Object>>| entry.map_or(0, |entry| set_of(entry).len());
        let lens: Vec<usize> = sources.iter().map(len).collect();
        let all = 0..sources.len();
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
        let is_sliceable = |number: &usize| sources[*number].is_some_and(slices::is_sliceable);
        walked.iter().all(is_sliceable).then_some(walked)
    }

    /// Reads some members of the set that is walked. Returns the number visited.
    fn step(&mut self, number: usize, sources: &[Option<EntryRef<'_, Object>>]) -> usize {
        let Some(walked) = sources[number] else {
            return 0;
        };
        let CombinedAside {
            operation,
            position,
            members,
            ..
        } = self;
        let others = sources
            .iter()
            .zip(0..)
            .filter(|(_, other)| *other != number);
        let others: Vec<SetRef<'_>> = others.filter_map(|(entry, _)| entry.map(set_of)).collect();
        let mut visited = 0;
        *position = slices::show_some(walked, *position, MEMBERS_PER_STEP, &mut |element| {
            visited += 1;
            let member = Element::Bytes(element.name);
            let belongs = match operation {
                SetOperation::Union => true,
                SetOperation::Intersection => others.iter().all(|set| set.has(member)),
                SetOperation::Difference => !others.iter().any(|set| set.has(member)),
            };
            if belongs {
                members.push(element.name);
            }
        });
        visited
    }
}

/// Returns the set in an entry, none of whose members have deadlines.
fn set_of(entry: EntryRef<'_, Object>) -> SetRef<'_> {
    SetRef::of(entry, 0)
}

impl BuildAside for CombinedAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        let is_set = |entry: &EntryRef<'_, Object>| {
            let is_set = ObjectKind(entry.kind()).data_type() == DataType::Set;
            is_set && set_of(*entry).next_deadline().is_none()
        };
        if !sources.iter().flatten().all(is_set) {
            return SliceResult::Unsuitable;
        }
        let plan = self.walked.take().or_else(|| self.plan(sources));
        let Some(mut walked) = plan else {
            return SliceResult::Unsuitable;
        };
        let mut lookups = 0;
        while lookups < LOOKUPS_PER_SLICE && self.members.bytes() < BYTES_PER_SLICE {
            let Some(&number) = walked.last() else {
                break;
            };
            let times = match self.operation {
                SetOperation::Union => 1,
                SetOperation::Intersection | SetOperation::Difference => sources.len(),
            };
            lookups += (1 + self.step(number, sources)) * times;
            if self.position == 0 {
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
        let (members, limits) = (&self.members, &self.limits);
        change_detached(&mut self.entry, |entry| {
            for member in members.iter() {
                set::add(entry, member, limits);
            }
        });
        self.members.clear();
    }

    fn take(&mut self) -> Built {
        Ok(std::mem::replace(&mut self.entry, set::empty_intset(b"")))
    }
}
