//! Intersections, unions and differences of sets.
//!
//! All sets are looked up first, in the order of the arguments, so that expired ones are deleted and a wrong type is
//! an error whatever the others hold; then they are read side by side, on any number of shards. The result is written
//! to the reply as it is found, or to a new set that replaces the target in the end.

use super::{SetOperation, aside, event, is_searched, limits};
use crate::command::Args;
use crate::command::Out;
use crate::command::args::RoutedKey;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_element;
use crate::command::error::CommandError;
use crate::command::prepared::Prepared;
use basalt_core::structures::hyperloglog::Registers;
use basalt_core::structures::listpack::Element;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::object::detached;
use basalt_engine::value::set::{self, Members, SetRef};

const SOURCES: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))];
const STORED_SOURCES: KeySpec = KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS));
const OVERWRITTEN: &[KeySpec] = &[
    KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
    STORED_SOURCES,
];
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const INTERSECTION_COST: &str = "O(N*M) at worst, for M sets of which the smallest has N members.";
const SUM_COST: &str = "O(N), N being the members of all sets together.";

/// `SINTER key [key ...]`
pub(super) static SINTER: Command = Command::new("sinter", Group::Set, -2)
    .reads(SOURCES)
    .doc(
        "1.0.0",
        "key [key ...]",
        "Returns the intersection of sets.",
    )
    .complexity(INTERSECTION_COST)
    .tips(UNORDERED)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SetOperation::Intersection));

/// `SUNION key [key ...]`
pub(super) static SUNION: Command = Command::new("sunion", Group::Set, -2)
    .reads(SOURCES)
    .doc("1.0.0", "key [key ...]", "Returns the union of sets.")
    .complexity(SUM_COST)
    .tips(UNORDERED)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SetOperation::Union));

/// `SDIFF key [key ...]`
pub(super) static SDIFF: Command = Command::new("sdiff", Group::Set, -2)
    .reads(SOURCES)
    .doc("1.0.0", "key [key ...]", "Returns the difference of sets.")
    .complexity(SUM_COST)
    .tips(UNORDERED)
    .takes_long()
    .on_keys(|cx, args, out| reply(cx, args, out, SetOperation::Difference));

/// `SINTERSTORE destination key [key ...]`
pub(super) static SINTERSTORE: Command = Command::new("sinterstore", Group::Set, -3)
    .writes(OVERWRITTEN)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "destination key [key ...]",
        "Stores the intersection of sets.",
    )
    .complexity(INTERSECTION_COST)
    .takes_long()
    .builds_aside(|args, cx| aside::begin(args, cx, SetOperation::Intersection))
    .on_keys(|cx, args, out| store(cx, args, out, SetOperation::Intersection));

/// `SUNIONSTORE destination key [key ...]`
pub(super) static SUNIONSTORE: Command = Command::new("sunionstore", Group::Set, -3)
    .writes(OVERWRITTEN)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "destination key [key ...]",
        "Stores the union of sets.",
    )
    .complexity(SUM_COST)
    .takes_long()
    .builds_aside(|args, cx| aside::begin(args, cx, SetOperation::Union))
    .on_keys(|cx, args, out| store(cx, args, out, SetOperation::Union));

/// `SDIFFSTORE destination key [key ...]`
pub(super) static SDIFFSTORE: Command = Command::new("sdiffstore", Group::Set, -3)
    .writes(OVERWRITTEN)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "destination key [key ...]",
        "Stores the difference of sets.",
    )
    .complexity(SUM_COST)
    .takes_long()
    .builds_aside(|args, cx| aside::begin(args, cx, SetOperation::Difference))
    .on_keys(|cx, args, out| store(cx, args, out, SetOperation::Difference));

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) static SINTERCARD: Command = Command::new("sintercard", Group::Set, -3)
    .reads(&[KeySpec::counted(1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "7.0.0",
        "numkeys key [key ...] [LIMIT limit]",
        "Returns the size of the intersection of sets.",
    )
    .complexity(INTERSECTION_COST)
    .takes_long()
    .on_keys(|cx, args, out| cardinality(cx, args, out, SetOperation::Intersection));

/// `SUNIONCARD numkeys key [key ...] [APPROX] [LIMIT limit]`
pub(super) static SUNIONCARD: Command = Command::new("sunioncard", Group::Set, -3)
    .reads(&[KeySpec::counted(1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "8.10.0",
        "numkeys key [key ...] [APPROX] [LIMIT limit]",
        "Returns the size of the union of sets.",
    )
    .complexity(SUM_COST)
    .takes_long()
    .on_keys(|cx, args, out| cardinality(cx, args, out, SetOperation::Union));

/// `SDIFFCARD numkeys key [key ...] [LIMIT limit]`
pub(super) static SDIFFCARD: Command = Command::new("sdiffcard", Group::Set, -3)
    .reads(&[KeySpec::counted(1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "8.10.0",
        "numkeys key [key ...] [LIMIT limit]",
        "Returns the size of the difference of sets.",
    )
    .complexity(SUM_COST)
    .takes_long()
    .on_keys(|cx, args, out| cardinality(cx, args, out, SetOperation::Difference));

fn reply(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    operation: SetOperation,
) -> CommandResult {
    look_up(cx, args, args.keys())?;
    let sources = sources(cx, args, args.keys());
    cx.scales().weigh(visited(operation, &sources))?;
    // Only a union of several sets yields members more than once.
    let mut seen =
        (operation == SetOperation::Union && sources.len() > 1).then(|| Members::new(cx.seed()));
    let mark = out.later();
    let mut count = 0;
    combine(operation, &sources, cx, |member| {
        let is_new = seen
            .as_mut()
            .is_none_or(|seen| member.with_bytes(|member| seen.insert(member, 0)));
        if is_new {
            count += 1;
            reply_element(member, out);
        }
    });
    out.close_set(mark, count);
    Ok(())
}

fn store(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    operation: SetOperation,
) -> CommandResult {
    let (limits, event) = (limits(cx), event(cx.command.name));
    let target = args.key(1);
    let keys = &args.keys()[1..];
    look_up(cx, args, keys)?;
    let entry = match args.prepared().and_then(Prepared::take) {
        Some(built) => built?,
        None => {
            let sources = sources(cx, args, keys);
            cx.scales().weigh(visited(operation, &sources))?;
            detached(|| {
                let mut entry = set::empty_intset(target.bytes);
                combine(operation, &sources, cx, |member| {
                    member.with_bytes(|member| set::add(&mut entry, member, &limits));
                });
                entry
            })
        }
    };
    let count = SetRef::of(entry.view(), limits.now_ms).len();
    let mut keyspace = cx.at(&target);
    let found = keyspace.find_write(&target);
    if count > 0 {
        keyspace.overwrites(&target, found, DataType::Set);
        keyspace.adopt(&target, found, entry);
        keyspace.wrote(target.bytes, event);
    } else if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(target.bytes, Event::DEL);
    }
    out.integer(count as i64);
    Ok(())
}

fn cardinality(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    operation: SetOperation,
) -> CommandResult {
    let numkeys = args
        .integer(1)
        .ok()
        .filter(|numkeys| *numkeys > 0)
        .ok_or("ERR numkeys should be greater than 0")?;
    let numkeys = usize::try_from(numkeys).unwrap_or(usize::MAX);
    if numkeys > args.len() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (mut limit, mut is_rough) = (0, false);
    let mut at = 2 + numkeys;
    while at < args.len() {
        if operation == SetOperation::Union && args.is(at, "approx") {
            is_rough = true;
            at += 1;
            continue;
        }
        if !args.is(at, "limit") || at + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        limit = args
            .integer(at + 1)
            .ok()
            .and_then(|limit| usize::try_from(limit).ok())
            .ok_or("ERR LIMIT can't be negative")?;
        at += 2;
    }
    look_up(cx, args, args.keys())?;
    let sources = sources(cx, args, args.keys());
    cx.scales().weigh(visited(operation, &sources))?;
    let limit = if limit == 0 { usize::MAX } else { limit };
    let mut count = 0;
    let mut counts = |_: Element<'_>| {
        count += 1;
        count != limit
    };
    match operation {
        SetOperation::Intersection => intersect(&sources, counts),
        SetOperation::Difference => subtract(&sources, cx, counts),
        SetOperation::Union if is_rough => {
            count = limit.min(estimated_union(&sources));
        }
        SetOperation::Union => {
            let mut seen = (sources.len() > 1).then(|| Members::new(cx.seed()));
            let mut goes_on = true;
            for set in sources.iter().filter_map(|source| source.set) {
                if !goes_on {
                    break;
                }
                set.while_each(|member| {
                    let is_new = seen
                        .as_mut()
                        .is_none_or(|seen| member.with_bytes(|member| seen.insert(member, 0)));
                    goes_on = !is_new || counts(member);
                    goes_on
                });
            }
        }
    }
    out.integer(count as i64);
    Ok(())
}

/// Estimates the size of a union, without the memory that computing it would take: with a standard error of 0.81 %.
fn estimated_union(sources: &[SetOperand<'_>]) -> usize {
    let mut registers = Registers::new();
    for set in sources.iter().filter_map(|source| source.set) {
        set.for_each(|member| member.with_bytes(|member| registers.add(member)));
    }
    usize::try_from(registers.count()).unwrap_or(usize::MAX)
}

/// One of the sets that a command reads, or nothing if the key does not exist.
#[derive(Clone, Copy)]
struct SetOperand<'a> {
    key: &'a [u8],
    set: Option<SetRef<'a>>,
}

impl SetOperand<'_> {
    fn len(&self) -> usize {
        self.set.map_or(0, SetRef::len)
    }
}

/// Looks up all keys as reads; expired keys are deleted now.
fn look_up(cx: &mut ShardCx<'_>, args: &Args<'_>, keys: &[RoutedKey]) -> CommandResult {
    for routed in keys {
        let key = args.key_of(routed);
        cx.at_routed(routed).read_typed(&key, DataType::Set)?;
    }
    Ok(())
}

/// Returns the sets under keys that have just been looked up.
fn sources<'c>(cx: &'c ShardCx<'_>, args: &Args<'c>, keys: &[RoutedKey]) -> Vec<SetOperand<'c>> {
    let due_ms = cx.elements_due_ms();
    let source = |routed: &RoutedKey| SetOperand {
        key: args.get(routed.argument as usize),
        set: cx
            .peek(routed, &args.key_of(routed))
            .map(|entry| SetRef::of(entry, due_ms)),
    };
    keys.iter().map(source).collect()
}

/// Returns an upper bound of the members examined.
fn visited(operation: SetOperation, sources: &[SetOperand<'_>]) -> usize {
    let lens = sources.iter().map(SetOperand::len);
    match operation {
        SetOperation::Intersection => lens.min().unwrap_or(0),
        SetOperation::Union | SetOperation::Difference => lens.sum(),
    }
}

/// Calls `f` with the members of the result; members of a union may be repeated.
fn combine(
    operation: SetOperation,
    sources: &[SetOperand<'_>],
    cx: &ShardCx<'_>,
    mut f: impl FnMut(Element<'_>),
) {
    match operation {
        SetOperation::Intersection => intersect(sources, |member| {
            f(member);
            true
        }),
        SetOperation::Union => {
            for set in sources.iter().filter_map(|source| source.set) {
                set.for_each(&mut f);
            }
        }
        SetOperation::Difference => subtract(sources, cx, |member| {
            f(member);
            true
        }),
    }
}

/// Calls `f` with the members that all sets have, as long as it returns true: each member of the smallest set is
/// searched in the others.
fn intersect(sources: &[SetOperand<'_>], mut f: impl FnMut(Element<'_>) -> bool) {
    let Some(mut sets) = sources
        .iter()
        .map(|source| source.set)
        .collect::<Option<Vec<SetRef<'_>>>>()
    else {
        return;
    };
    sets.sort_by_key(|set| set.len());
    if let [smallest, others @ ..] = sets.as_slice() {
        smallest.while_each(|member| !others.iter().all(|set| set.has(member)) || f(member));
    }
}

/// Calls `f` with the members of the first set that no other set has, as long as it returns true.
fn subtract(sources: &[SetOperand<'_>], cx: &ShardCx<'_>, mut f: impl FnMut(Element<'_>) -> bool) {
    let Some((first, others)) = sources.split_first() else {
        return;
    };
    let Some(set) = first.set else {
        return;
    };
    if others.iter().any(|other| other.key == first.key) {
        return;
    }
    let mut others: Vec<SetRef<'_>> = others.iter().filter_map(|other| other.set).collect();
    let lens: Vec<usize> = std::iter::once(first.len())
        .chain(others.iter().map(|other| other.len()))
        .collect();
    if is_searched(&lens) {
        // Members to exclude are found soonest in the largest set.
        others.sort_by_key(|other| std::cmp::Reverse(other.len()));
        set.while_each(|member| others.iter().any(|other| other.has(member)) || f(member));
        return;
    }
    let mut left = Members::new(cx.seed());
    set.for_each(|member| {
        member.with_bytes(|member| left.insert(member, 0));
    });
    for other in others {
        if left.total() == 0 {
            break;
        }
        other.for_each(|member| {
            member.with_bytes(|member| left.remove(member, 0));
        });
    }
    SetRef::Table(&left, 0).while_each(f);
}
