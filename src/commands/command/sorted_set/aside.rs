//! ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE and ZRANGESTORE of large sets, built aside
//! ([`command::aside`](crate::command::aside)).
//!
//! Members are copied while the shards are locked; scores are summed up, and the new set is sorted, while they are not.
//! As in [`combine`](super::combine), the sets of a union are walked from the smallest to the largest, which determines
//! the order in which scores are added; of an intersection the smallest, of a difference the first.

use std::ops::Range;

use super::bounds::Ranks;
use super::limits_of;
use super::operands::{
    Aggregate, Combination, SortedSetOperand, SortedSetOperation, UnitedMembers, ZsetCombineForm,
    unite_member,
};
use crate::command::Args;
use crate::command::aside::{
    Aside, AsideContext, BYTES_PER_SLICE, BuildAside, LOOKUPS_PER_SLICE, SliceResult,
};
use crate::command::owned::OwnedArgs;
use crate::command::prepared::Built;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::listpack::Element;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::text_arena::TextArena;
use basalt_engine::value::object::detached;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::{ScoredMembers, SortedSet, SortedSetLimits, SortedSetMut};
use basalt_engine::value::{DataType, Object, ObjectKind, slices};

/// Members visited between two looks at the limits of a slice.
const MEMBERS_PER_STEP: usize = 16;

/// Members with scores that a slice has read.
#[derive(Default)]
struct MemberSlice {
    names: TextArena,
    scores: Vec<f64>,
}

impl MemberSlice {
    fn push(&mut self, name: &[u8], score: f64) {
        self.names.push(name);
        self.scores.push(score);
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.names.iter().zip(self.scores.iter().copied())
    }

    fn clear(&mut self) {
        self.names.clear();
        self.scores.clear();
    }
}

/// The new set: its members, until it is made of all of them.
struct NewSet {
    limits: SortedSetLimits,
    members: ScoredMembers,
    entry: Entry<Object>,
}

impl NewSet {
    fn new(args: &Args<'_>, cx: &AsideContext<'_>) -> NewSet {
        NewSet {
            limits: limits_of(cx.config, cx.seed),
            members: ScoredMembers::new(),
            entry: SortedSetMut::empty_entry(args.get(1)),
        }
    }

    fn complete(&mut self) {
        let (mut members, limits) = (std::mem::take(&mut self.members), self.limits);
        let key = self.entry.view().key();
        let entry = detached(|| SortedSetMut::entry_of(key, &mut members, limits));
        self.entry = entry;
    }

    fn take(&mut self) -> Entry<Object> {
        std::mem::replace(&mut self.entry, SortedSetMut::empty_entry(b""))
    }
}

/// The result of a set operation, being built aside.
struct CombinedAside {
    operation: SortedSetOperation,
    aggregate: Aggregate,
    /// The weight and the hash of each key.
    keys: Vec<(f64, u64)>,
    /// The sources yet to be walked, by their numbers, the next one last; None before the first slice.
    walked: Option<Vec<usize>>,
    /// The position in that source.
    position: u64,
    slice: MemberSlice,
    is_whole: bool,
    /// The members of a union.
    united: UnitedMembers,
    result: NewSet,
}

/// Parses a request of a set operation that stores its result. None if it is malformed.
fn parse(args: &Args<'_>, operation: SortedSetOperation) -> Option<(usize, Combination)> {
    let numkeys = usize::try_from(args.integer(2).ok()?).ok()?;
    let form = ZsetCombineForm::Store;
    let request = Combination::parse(args, 3 + numkeys, numkeys, operation, form).ok()?;
    Some((numkeys, request))
}

/// True if a good request stores numbers of sets, instead of scores.
pub(super) fn counts(args: &Args<'_>, operation: SortedSetOperation) -> bool {
    parse(args, operation).is_some_and(|(_, request)| request.aggregate == Aggregate::Count)
}

/// Begins to build the result of a set operation aside.
pub(super) fn begin(
    args: &Args<'_>,
    cx: &AsideContext<'_>,
    operation: SortedSetOperation,
) -> Option<Aside> {
    let (numkeys, request) = parse(args, operation)?;
    let keys = &args.keys()[args.keys().len().checked_sub(numkeys)?..];
    let weights = request.weights.into_iter().chain(std::iter::repeat(1.0));
    let value = CombinedAside {
        operation,
        aggregate: request.aggregate,
        keys: weights.zip(keys.iter().map(|key| key.hash)).collect(),
        walked: None,
        position: 0,
        slice: MemberSlice::default(),
        is_whole: false,
        united: UnitedMembers::new(),
        result: NewSet::new(args, cx),
    };
    Some(Aside::new(args, keys, cx.db, Box::new(value)))
}

/// True for a sorted set, and for a set none of whose members expires between two slices.
fn is_suitable(entry: &EntryRef<'_, Object>) -> bool {
    match ObjectKind(entry.kind()).data_type() {
        DataType::SortedSet => true,
        DataType::Set => SetRef::of(*entry, 0).next_deadline().is_none(),
        _ => false,
    }
}

impl CombinedAside {
    /// Returns the sources to walk, the next one last; None if one of them takes too long.
    fn plan(&self, sources: &[Option<EntryRef<'_, Object>>]) -> Option<Vec<usize>> {
        let len = |number: &usize| self.operand(sources, *number).len();
        let mut walked: Vec<usize> = (0..sources.len()).collect();
        if self.operation != SortedSetOperation::Difference {
            walked.sort_by_key(len);
        }
        match self.operation {
            SortedSetOperation::Union => walked.retain(|number| sources[*number].is_some()),
            SortedSetOperation::Intersection | SortedSetOperation::Difference => walked.truncate(1),
        }
        walked.reverse();
        let is_sliceable = |number: &usize| sources[*number].is_none_or(slices::is_sliceable);
        walked.iter().all(is_sliceable).then_some(walked)
    }

    fn operand<'a>(
        &self,
        sources: &[Option<EntryRef<'a, Object>>],
        number: usize,
    ) -> SortedSetOperand<'a> {
        let (weight, hash) = self.keys[number];
        SortedSetOperand::new(sources[number], weight, hash, 0)
    }

    /// Reads some members of the source that is walked. Returns the number visited.
    fn step(&mut self, number: usize, sources: &[Option<EntryRef<'_, Object>>]) -> usize {
        let Some(walked) = sources[number] else {
            self.position = 0;
            return 0;
        };
        let own = self.operand(sources, number);
        let others = (0..sources.len()).filter(|other| *other != number);
        let mut others: Vec<_> = others.map(|other| self.operand(sources, other)).collect();
        if self.operation == SortedSetOperation::Intersection {
            others.sort_by_key(SortedSetOperand::len);
        }
        let is_sorted = ObjectKind(walked.kind()).data_type() == DataType::SortedSet;
        let CombinedAside {
            operation,
            aggregate,
            position,
            slice,
            ..
        } = self;
        let mut visited = 0;
        *position = slices::show_some(walked, *position, MEMBERS_PER_STEP, &mut |element| {
            visited += 1;
            let member = Element::Bytes(element.name);
            let score = match is_sorted {
                true => f64::from_bits(element.number),
                false => 1.0,
            };
            let score = match operation {
                SortedSetOperation::Union => Some(own.weighted(aggregate.counted(score))),
                SortedSetOperation::Intersection => own.meet(&others, *aggregate, member, score),
                SortedSetOperation::Difference => own.is_left(&others, member).then_some(score),
            };
            if let Some(score) = score {
                slice.push(element.name, score);
            }
        });
        visited
    }
}

impl BuildAside for CombinedAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        if !sources.iter().flatten().all(is_suitable) {
            return SliceResult::Unsuitable;
        }
        let plan = self.walked.take().or_else(|| self.plan(sources));
        let Some(mut walked) = plan else {
            return SliceResult::Unsuitable;
        };
        let times = match self.operation {
            SortedSetOperation::Union => 1,
            SortedSetOperation::Intersection | SortedSetOperation::Difference => sources.len(),
        };
        let mut lookups = 0;
        while lookups < LOOKUPS_PER_SLICE && self.slice.names.bytes() < BYTES_PER_SLICE {
            let Some(&number) = walked.last() else {
                break;
            };
            lookups += (1 + self.step(number, sources)) * times;
            if self.position == 0 {
                walked.pop();
            }
        }
        self.is_whole = walked.is_empty();
        self.walked = Some(walked);
        match self.is_whole {
            true => SliceResult::Whole,
            false => SliceResult::More,
        }
    }

    fn add(&mut self) {
        let (slice, members) = (&self.slice, &mut self.result.members);
        match self.operation {
            SortedSetOperation::Union => {
                for (name, score) in slice.iter() {
                    unite_member(&mut self.united, self.aggregate, name, score);
                }
            }
            SortedSetOperation::Intersection | SortedSetOperation::Difference => {
                members.extend(slice.iter().map(|(name, score)| (name.to_vec(), score)));
            }
        }
        self.slice.clear();
        if self.is_whole {
            members.extend(std::mem::take(&mut self.united));
            self.result.complete();
        }
    }

    fn take(&mut self) -> Built {
        Ok(self.result.take())
    }
}

/// A range of a sorted set, being copied aside.
struct RangeAside {
    args: OwnedArgs,
    ranks_of: RanksOf,
    /// The ranks yet to be read; None before the first slice.
    left: Option<Range<usize>>,
    slice: MemberSlice,
    result: NewSet,
}

/// Returns the ranks that a request refers to in a set; None if the request is malformed.
pub(super) type RanksOf = fn(&Args<'_>, SortedSet<'_>) -> Option<Ranks>;

/// Begins to copy a range aside.
pub(super) fn begin_range(
    args: &Args<'_>,
    cx: &AsideContext<'_>,
    ranks_of: RanksOf,
) -> Option<Aside> {
    let value = RangeAside {
        args: OwnedArgs::copy_of(args),
        ranks_of,
        left: None,
        slice: MemberSlice::default(),
        result: NewSet::new(args, cx),
    };
    Some(Aside::new(args, &args.keys()[1..], cx.db, Box::new(value)))
}

impl BuildAside for RangeAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        let source = sources.first().copied().flatten();
        let Some(entry) = source.filter(|entry| {
            let is_sorted = ObjectKind(entry.kind()).data_type() == DataType::SortedSet;
            is_sorted && slices::is_sliceable(*entry)
        }) else {
            return SliceResult::Unsuitable;
        };
        let left = self.left.take().or_else(|| {
            let ranks = (self.ranks_of)(&self.args.args(), SortedSet::of(entry))?;
            Some(ranks.from..ranks.to)
        });
        let Some(mut left) = left else {
            return SliceResult::Unsuitable;
        };
        let slice = &mut self.slice;
        slices::visit_ordered(
            entry,
            Direction::Ascending,
            left.clone(),
            |member, score| {
                slice.push(member, score);
                slice.scores.len() < LOOKUPS_PER_SLICE && slice.names.bytes() < BYTES_PER_SLICE
            },
        );
        left.start += slice.scores.len();
        let is_whole = left.is_empty();
        self.left = Some(left);
        match is_whole {
            true => SliceResult::Whole,
            false => SliceResult::More,
        }
    }

    fn add(&mut self) {
        let members = self.slice.iter();
        self.result
            .members
            .extend(members.map(|(name, score)| (name.to_vec(), score)));
        self.slice.clear();
        if self.left.as_ref().is_some_and(|left| left.is_empty()) {
            self.result.complete();
        }
    }

    fn take(&mut self) -> Built {
        Ok(self.result.take())
    }
}
