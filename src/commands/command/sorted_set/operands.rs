//! The sets that the set operations of sorted sets read, and their effect on single members: shared by those that
//! run with their shards locked to the end ([`combine`](super::combine)) and those that are built aside.

use std::collections::HashMap;

use super::score;
use crate::command::Args;
use crate::command::error::CommandError;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::listpack::Element;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::SortedSet;
use basalt_engine::value::{DataType, Object, ObjectKind};

/// The set operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortedSetOperation {
    Union,
    Intersection,
    /// The members of the first set that none of the others has.
    Difference,
}

/// The function that combines the scores of a member in several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Min,
    Max,
    /// The number of sets that have the member; its scores there do not matter.
    Count,
}

impl Aggregate {
    /// Returns what a member's score in one set contributes to the result: 1 for `Count`.
    pub(super) fn counted(self, score: f64) -> f64 {
        match self {
            Aggregate::Count => 1.0,
            Aggregate::Sum | Aggregate::Min | Aggregate::Max => score,
        }
    }

    /// Combines two scores; infinities of opposite signs give 0.
    pub(super) fn join(self, one: f64, two: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => number_or_zero(one + two),
            Aggregate::Min if two < one => two,
            Aggregate::Max if two > one => two,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// One of the sets that a command reads, or nothing if the key does not exist.
#[derive(Clone, Copy)]
pub(super) struct SortedSetOperand<'a> {
    pub(super) set: Option<Read<'a>>,
    weight: f64,
    /// The hash of the set's key: equal for a key that is named twice.
    hash: u64,
}

/// A sorted set or a set, for reading.
#[derive(Clone, Copy)]
pub(super) enum Read<'a> {
    Sorted(SortedSet<'a>),
    /// A plain set, whose members have no scores.
    Plain(SetRef<'a>),
}

impl Read<'_> {
    fn len(self) -> usize {
        match self {
            Read::Sorted(set) => set.len(),
            Read::Plain(set) => set.len(),
        }
    }

    /// Returns the score of a member; members of plain sets have score 1.
    fn score(self, member: Element<'_>) -> Option<f64> {
        match self {
            Read::Sorted(set) => member.with_bytes(|member| set.score(member)),
            Read::Plain(set) => set.has(member).then_some(1.0),
        }
    }

    /// Calls `f` with the members and their scores as long as it returns true.
    pub(super) fn while_each(self, mut f: impl FnMut(Element<'_>, f64) -> bool) {
        match self {
            Read::Sorted(set) => {
                for (member, score) in set.iter() {
                    if !f(member, score) {
                        break;
                    }
                }
            }
            Read::Plain(set) => set.while_each(|member| f(member, 1.0)),
        }
    }
}

impl<'a> SortedSetOperand<'a> {
    /// Returns the operand under a key with this hash; its set is read at a time, in Unix milliseconds.
    pub(super) fn new(
        entry: Option<EntryRef<'a, Object>>,
        weight: f64,
        hash: u64,
        due_ms: u64,
    ) -> SortedSetOperand<'a> {
        let set = entry.and_then(|entry| match ObjectKind(entry.kind()).data_type() {
            DataType::SortedSet => Some(Read::Sorted(SortedSet::of(entry))),
            DataType::Set => Some(Read::Plain(SetRef::of(entry, due_ms))),
            _ => None,
        });
        SortedSetOperand { set, weight, hash }
    }

    pub(super) fn len(&self) -> usize {
        self.set.map_or(0, Read::len)
    }

    pub(super) fn weighted(&self, score: f64) -> f64 {
        number_or_zero(self.weight * score)
    }

    /// Returns the score of a member in an intersection, if the others, which are not smaller, have it too; `own` is
    /// its score here.
    pub(super) fn meet(
        &self,
        others: &[SortedSetOperand<'_>],
        aggregate: Aggregate,
        member: Element<'_>,
        own: f64,
    ) -> Option<f64> {
        let mut score = self.weighted(aggregate.counted(own));
        for other in others {
            let found = match other.hash == self.hash {
                true => own,
                false => other.set?.score(member)?,
            };
            score = aggregate.join(score, aggregate.counted(found) * other.weight);
        }
        Some(score)
    }

    /// True if none of the other sets has a member of this one.
    pub(super) fn is_left(&self, others: &[SortedSetOperand<'_>], member: Element<'_>) -> bool {
        let has_it = |other: &SortedSetOperand<'_>| {
            other.hash == self.hash || other.set.is_some_and(|set| set.score(member).is_some())
        };
        !others.iter().any(has_it)
    }
}

/// The members of a union found so far, with their aggregated scores.
pub(super) type UnitedMembers = HashMap<Vec<u8>, f64>;

/// Adds a member of one set, with its weighted score, to a union.
pub(super) fn unite_member(
    found: &mut UnitedMembers,
    aggregate: Aggregate,
    member: &[u8],
    score: f64,
) {
    match found.get_mut(member) {
        Some(joined) => *joined = aggregate.join(*joined, score),
        None => {
            found.insert(member.to_vec(), score);
        }
    }
}

/// A parsed request of a set operation.
pub(super) struct Combination {
    /// The factors of the sets' scores, in the order of their keys; empty if all are 1.
    pub(super) weights: Vec<f64>,
    pub(super) aggregate: Aggregate,
    pub(super) with_scores: bool,
    pub(super) limit: usize,
}

/// The form of a command, which determines its options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ZsetCombineForm {
    Reply,
    Store,
    Count,
}

impl Combination {
    /// Parses the options after the keys.
    pub(super) fn parse(
        args: &Args<'_>,
        from: usize,
        numkeys: usize,
        operation: SortedSetOperation,
        form: ZsetCombineForm,
    ) -> Result<Combination, CommandError> {
        let mut request = Combination {
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: usize::MAX,
        };
        let joins_scores =
            operation != SortedSetOperation::Difference && form != ZsetCombineForm::Count;
        let mut at = from;
        while at < args.len() {
            let left = args.len() - at;
            if joins_scores && left > numkeys && args.is(at, "weights") {
                let weights = (at + 1..=at + numkeys).map(|at| {
                    score(args.get(at)).map_err(|_| "ERR weight value is not a float".into())
                });
                request.weights = weights.collect::<Result<_, CommandError>>()?;
                at += 1 + numkeys;
            } else if joins_scores && left >= 2 && args.is(at, "aggregate") {
                request.aggregate = if args.is(at + 1, "sum") {
                    Aggregate::Sum
                } else if args.is(at + 1, "min") {
                    Aggregate::Min
                } else if args.is(at + 1, "max") {
                    Aggregate::Max
                } else if args.is(at + 1, "count") {
                    Aggregate::Count
                } else {
                    return Err(CommandError::Syntax);
                };
                at += 2;
            } else if form == ZsetCombineForm::Reply && args.is(at, "withscores") {
                request.with_scores = true;
                at += 1;
            } else if form == ZsetCombineForm::Count && left >= 2 && args.is(at, "limit") {
                let limit = args.integer(at + 1).ok();
                let limit = limit
                    .and_then(|limit| usize::try_from(limit).ok())
                    .ok_or("ERR LIMIT can't be negative")?;
                request.limit = if limit == 0 { usize::MAX } else { limit };
                at += 2;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(request)
    }
}
