//! Intersections, unions and differences of sorted sets, with weighted and aggregated scores.
//!
//! All keys are looked up first, in the order of the arguments, so that expired ones are deleted and a wrong type is
//! an error whatever the others hold; then they are read side by side, on any number of shards.

use std::collections::HashMap;

use super::{begin_members, event, log_members, reply_scored, score, store};
use crate::command::Args;
use crate::command::Out;
use crate::command::args::RoutedKey;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use basalt_core::structures::listpack::Element;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::{ScoredMembers, SortedSet};
use basalt_engine::value::{DataType, ObjectKind};

const SOURCES: &[KeySpec] = &[KeySpec::counted(1, KeyFlags::RO.or(KeyFlags::ACCESS))];
const STORED: &[KeySpec] = &[
    KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
    KeySpec::counted(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
];

const UNION_COST: &str = "O(N)+O(M*log(M)) for N members of all sets, M in the result.";
const INTERSECTION_COST: &str =
    "O(N*K)+O(M*log(M)) for K sets, the smallest with N members, M in the result.";
const COUNTS: &[(&str, &str)] = &[("8.8.0", "New option: `AGGREGATE COUNT`.")];
const DIFFERENCE_COST: &str = "O(L)+O(M*log(M)) for L members of all sets, M in the result.";

/// The set operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortedSetOperation {
    Union,
    Intersection,
    /// The members of the first set that none of the others has.
    Difference,
}

/// The function that combines the scores of a member in several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// The number of sets that have the member; its scores there do not matter.
    Count,
}

impl Aggregate {
    /// Returns what a member's score in one set contributes to the result: 1 for `Count`.
    fn counted(self, score: f64) -> f64 {
        match self {
            Aggregate::Count => 1.0,
            Aggregate::Sum | Aggregate::Min | Aggregate::Max => score,
        }
    }

    /// Combines two scores; infinities of opposite signs give 0.
    fn join(self, one: f64, two: f64) -> f64 {
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
struct SortedSetOperand<'a> {
    set: Option<Read<'a>>,
    weight: f64,
    /// The hash of the set's key: equal for a key that is named twice.
    hash: u64,
}

/// A sorted set or a set, for reading.
#[derive(Clone, Copy)]
enum Read<'a> {
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
    fn while_each(self, mut f: impl FnMut(Element<'_>, f64) -> bool) {
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

impl SortedSetOperand<'_> {
    fn len(&self) -> usize {
        self.set.map_or(0, Read::len)
    }

    fn weighted(&self, score: f64) -> f64 {
        number_or_zero(self.weight * score)
    }
}

/// Returns an upper bound of the members examined.
fn visited(operation: SortedSetOperation, sources: &[SortedSetOperand<'_>]) -> usize {
    let mut lens = sources.iter().map(SortedSetOperand::len);
    match operation {
        SortedSetOperation::Intersection => lens.min().unwrap_or(0),
        SortedSetOperation::Union => lens.sum(),
        SortedSetOperation::Difference => lens.next().unwrap_or(0),
    }
}

/// A parsed request of a set operation.
struct Combination {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

/// The form of a command, which determines its options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZsetCombineForm {
    Reply,
    Store,
    Count,
}

/// Parses the number of keys, the argument before the keys.
fn numkeys(cx: &ShardCx<'_>, args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
    let numkeys = args.integer(at)?;
    if numkeys < 1 {
        return Err(format!(
            "ERR at least 1 input key is needed for '{}' command",
            cx.command.full_name
        )
        .into());
    }
    usize::try_from(numkeys)
        .ok()
        .filter(|numkeys| *numkeys < args.len() - at)
        .ok_or(CommandError::Syntax)
}

impl Combination {
    /// Parses the options after the keys.
    fn parse(
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

/// Looks up all sources, and checks that all are sets of some kind.
fn look_up(cx: &mut ShardCx<'_>, args: &Args<'_>, keys: &[RoutedKey]) -> CommandResult {
    for routed in keys {
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed);
        if let Some(place) = keyspace.find_read(&key) {
            match keyspace.kind(place).data_type() {
                DataType::SortedSet | DataType::Set => {}
                _ => return Err(CommandError::WrongType),
            }
        }
    }
    Ok(())
}

fn sources<'c>(
    cx: &'c ShardCx<'_>,
    args: &Args<'_>,
    keys: &[RoutedKey],
    weights: &[f64],
) -> Vec<SortedSetOperand<'c>> {
    let due_ms = cx.elements_due_ms();
    let source = |(number, routed): (usize, &RoutedKey)| {
        let entry = cx.peek(routed, &args.key_of(routed));
        SortedSetOperand {
            set: entry.and_then(|entry| match ObjectKind(entry.kind()).data_type() {
                DataType::SortedSet => Some(Read::Sorted(SortedSet::of(entry))),
                DataType::Set => Some(Read::Plain(SetRef::of(entry, due_ms))),
                _ => None,
            }),
            weight: weights.get(number).copied().unwrap_or(1.0),
            hash: routed.hash,
        }
    };
    keys.iter().enumerate().map(source).collect()
}

/// Calls `f` with the members that all sources have, and their aggregated scores, as long as it returns true.
fn intersect(
    sources: &mut [SortedSetOperand<'_>],
    aggregate: Aggregate,
    mut f: impl FnMut(Element<'_>, f64) -> bool,
) {
    sources.sort_by_key(SortedSetOperand::len);
    let Some((first, others)) = sources.split_first() else {
        return;
    };
    let Some(set) = first.set else {
        return;
    };
    set.while_each(|member, own| {
        let mut score = first.weighted(aggregate.counted(own));
        for other in others {
            let found = if other.hash == first.hash {
                Some(own)
            } else {
                other.set.and_then(|set| set.score(member))
            };
            let Some(found) = found else {
                return true;
            };
            score = aggregate.join(score, aggregate.counted(found) * other.weight);
        }
        f(member, score)
    });
}

/// Returns the members of all sources, with their aggregated scores.
fn unite(sources: &mut [SortedSetOperand<'_>], aggregate: Aggregate) -> ScoredMembers {
    sources.sort_by_key(SortedSetOperand::len);
    let mut found: HashMap<Vec<u8>, f64> = HashMap::new();
    for source in sources.iter() {
        let Some(set) = source.set else {
            continue;
        };
        set.while_each(|member, own| {
            let own = source.weighted(aggregate.counted(own));
            member.with_bytes(|member| match found.get_mut(member) {
                Some(score) => *score = aggregate.join(*score, own),
                None => {
                    found.insert(member.to_vec(), own);
                }
            });
            true
        });
    }
    found.into_iter().collect()
}

/// Returns the members that only the first source has.
fn subtract(sources: &[SortedSetOperand<'_>]) -> ScoredMembers {
    let mut members = ScoredMembers::new();
    if let Some((first, others)) = sources.split_first()
        && let Some(set) = first.set
    {
        set.while_each(|member, score| {
            let has_it = |other: &SortedSetOperand<'_>| {
                other.hash == first.hash || other.set.is_some_and(|set| set.score(member).is_some())
            };
            if !others.iter().any(has_it) {
                members.push((member.to_vec(), score));
            }
            true
        });
    }
    members
}

fn combine(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    numkeys_at: usize,
    operation: SortedSetOperation,
    form: ZsetCombineForm,
) -> Result<(ScoredMembers, Combination), CommandError> {
    let numkeys = numkeys(cx, args, numkeys_at)?;
    let keys = &args.keys()[args.keys().len() - numkeys..];
    look_up(cx, args, keys)?;
    let request = Combination::parse(args, numkeys_at + 1 + numkeys, numkeys, operation, form)?;
    let mut sources = sources(cx, args, keys, &request.weights);
    cx.scales().weigh(visited(operation, &sources))?;
    let members = match operation {
        SortedSetOperation::Union => unite(&mut sources, request.aggregate),
        SortedSetOperation::Difference => subtract(&sources),
        SortedSetOperation::Intersection => {
            let mut members = ScoredMembers::new();
            intersect(&mut sources, request.aggregate, |member, score| {
                members.push((member.to_vec(), score));
                true
            });
            members
        }
    };
    Ok((members, request))
}

fn reply(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    operation: SortedSetOperation,
) -> CommandResult {
    let (mut members, request) = combine(cx, args, 1, operation, ZsetCombineForm::Reply)?;
    members.sort_by(|one, two| {
        let by_score = one.1.partial_cmp(&two.1);
        by_score
            .unwrap_or(std::cmp::Ordering::Equal)
            .then_with(|| one.0.cmp(&two.0))
    });
    begin_members(members.len(), request.with_scores, out);
    for (member, score) in &members {
        reply_scored(Element::Bytes(member), *score, request.with_scores, out);
    }
    Ok(())
}

fn store_result(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    operation: SortedSetOperation,
) -> CommandResult {
    let (members, request) = combine(cx, args, 2, operation, ZsetCombineForm::Store)?;
    if request.aggregate == Aggregate::Count {
        log_members(cx, &args.key(1), &members);
    }
    let event = event(cx.command.name);
    store(cx, &args.key(1), members, event, out);
    Ok(())
}

/// `ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] [WITHSCORES]`
pub(super) static ZUNION: Command = Command::new("zunion", Group::SortedSet, -3)
    .reads(SOURCES)
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "6.2.0",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] \
         [WITHSCORES]",
        "Returns the union of sorted sets.",
    )
    .complexity(UNION_COST)
    .history(COUNTS)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SortedSetOperation::Union));

/// `ZINTER numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] [WITHSCORES]`
pub(super) static ZINTER: Command = Command::new("zinter", Group::SortedSet, -3)
    .reads(SOURCES)
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "6.2.0",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] \
         [WITHSCORES]",
        "Returns the intersection of sorted sets.",
    )
    .complexity(INTERSECTION_COST)
    .history(COUNTS)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SortedSetOperation::Intersection));

/// `ZDIFF numkeys key [key ...] [WITHSCORES]`
pub(super) static ZDIFF: Command = Command::new("zdiff", Group::SortedSet, -3)
    .reads(SOURCES)
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "6.2.0",
        "numkeys key [key ...] [WITHSCORES]",
        "Returns the difference of sorted sets.",
    )
    .complexity(DIFFERENCE_COST)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SortedSetOperation::Difference));

/// `ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]`
pub(super) static ZUNIONSTORE: Command = Command::new("zunionstore", Group::SortedSet, -4)
    .writes(STORED)
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] \
         [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the union of sorted sets.",
    )
    .complexity(UNION_COST)
    .history(COUNTS)
    .takes_long()
    .on_keys(|cx, args, out| store_result(cx, args, out, SortedSetOperation::Union));

/// `ZINTERSTORE destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]`
pub(super) static ZINTERSTORE: Command = Command::new("zinterstore", Group::SortedSet, -4)
    .writes(STORED)
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        "2.0.0",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] \
         [AGGREGATE <SUM | MIN | MAX | COUNT>]",
        "Stores the intersection of sorted sets.",
    )
    .complexity(INTERSECTION_COST)
    .history(COUNTS)
    .takes_long()
    .on_keys(|cx, args, out| store_result(cx, args, out, SortedSetOperation::Intersection));

/// `ZDIFFSTORE destination numkeys key [key ...]`
pub(super) static ZDIFFSTORE: Command = Command::new("zdiffstore", Group::SortedSet, -4)
    .writes(STORED)
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        "6.2.0",
        "destination numkeys key [key ...]",
        "Stores the difference of sorted sets.",
    )
    .complexity(DIFFERENCE_COST)
    .takes_long()
    .on_keys(|cx, args, out| store_result(cx, args, out, SortedSetOperation::Difference));

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) static ZINTERCARD: Command = Command::new("zintercard", Group::SortedSet, -3)
    .reads(SOURCES)
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "7.0.0",
        "numkeys key [key ...] [LIMIT limit]",
        "Returns the size of the intersection of sorted sets.",
    )
    .complexity("O(N*K) for K sets, the smallest with N members.")
    .takes_long()
    .on_keys(zintercard);

fn zintercard(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let numkeys = numkeys(cx, args, 1)?;
    look_up(cx, args, args.keys())?;
    let request = Combination::parse(
        args,
        2 + numkeys,
        numkeys,
        SortedSetOperation::Intersection,
        ZsetCombineForm::Count,
    )?;
    let mut sources = sources(cx, args, args.keys(), &[]);
    cx.scales()
        .weigh(visited(SortedSetOperation::Intersection, &sources))?;
    let mut count = 0;
    intersect(&mut sources, Aggregate::Sum, |_, _| {
        count += 1;
        count < request.limit
    });
    out.integer(count as i64);
    Ok(())
}
