//! Intersections, unions and differences of sorted sets, with weighted and aggregated scores.
//!
//! All keys are looked up first, in the order of the arguments, so that expired ones are deleted and a wrong type is
//! an error whatever the others hold; then they are read side by side, on any number of shards.

use super::operands::{
    Aggregate, Combination, SortedSetOperand, SortedSetOperation, UnitedMembers, ZsetCombineForm,
    unite_member,
};
use super::{aside, begin_members, event, install, log_members, reply_scored, store};
use crate::command::Args;
use crate::command::Out;
use crate::command::args::RoutedKey;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::prepared::Prepared;
use basalt_core::structures::listpack::Element;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::{ScoredMembers, SortedSet};

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

/// Returns an upper bound of the members examined.
fn visited(operation: SortedSetOperation, sources: &[SortedSetOperand<'_>]) -> usize {
    let mut lens = sources.iter().map(SortedSetOperand::len);
    match operation {
        SortedSetOperation::Intersection => lens.min().unwrap_or(0),
        SortedSetOperation::Union => lens.sum(),
        SortedSetOperation::Difference => lens.next().unwrap_or(0),
    }
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
        let weight = weights.get(number).copied().unwrap_or(1.0);
        SortedSetOperand::new(entry, weight, routed.hash, due_ms)
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
    set.while_each(
        |member, own| match first.meet(others, aggregate, member, own) {
            Some(score) => f(member, score),
            None => true,
        },
    );
}

/// Returns the members of all sources, with their aggregated scores.
fn unite(sources: &mut [SortedSetOperand<'_>], aggregate: Aggregate) -> ScoredMembers {
    sources.sort_by_key(SortedSetOperand::len);
    let mut found = UnitedMembers::new();
    for source in sources.iter() {
        let Some(set) = source.set else {
            continue;
        };
        set.while_each(|member, own| {
            let own = source.weighted(aggregate.counted(own));
            member.with_bytes(|member| unite_member(&mut found, aggregate, member, own));
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
            if first.is_left(others, member) {
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
    let key = args.key(1);
    let event = event(cx.command.name);
    if args.prepared().is_some() {
        look_up(cx, args, &args.keys()[1..])?;
    }
    if let Some(built) = args.prepared().and_then(Prepared::take) {
        let entry = built?;
        if aside::counts(args, operation) {
            let members = SortedSet::of(entry.view()).iter();
            let members = members.map(|(member, score)| (member.to_vec(), score));
            log_members(cx, &key, &members.collect());
        }
        install(cx, &key, entry, event, out);
        return Ok(());
    }
    let (members, request) = combine(cx, args, 2, operation, ZsetCombineForm::Store)?;
    if request.aggregate == Aggregate::Count {
        log_members(cx, &key, &members);
    }
    store(cx, &key, members, event, out);
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
    .builds_aside(|args, cx| aside::begin(args, cx, SortedSetOperation::Union))
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
    .builds_aside(|args, cx| aside::begin(args, cx, SortedSetOperation::Intersection))
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
    .builds_aside(|args, cx| aside::begin(args, cx, SortedSetOperation::Difference))
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
