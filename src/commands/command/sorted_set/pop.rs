//! Commands that remove the members with the lowest or highest scores, possibly waiting for some.

use super::{event, limits, reply_scored, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_element;
use crate::command::error::CommandError;
use crate::command::options;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::{SortedSet, SortedSetLimits, SortedSetMut};

const TAKEN: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);

/// The end from which members are removed: the lowest or the highest scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PopEnd {
    Min,
    Max,
}

/// The format of the members in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZpopReplyFormat {
    /// Members and scores in one array.
    Flat,
    /// A pair for each member.
    Pairs,
    /// The key, one member, its score.
    KeyAndOne,
    /// The key and an array of pairs.
    KeyAndPairs,
}

/// The parameters of a removal: the end, the count and the format of the reply.
#[derive(Clone, Copy)]
pub(super) struct Pop {
    pub(super) end: PopEnd,
    pub(super) count: usize,
    pub(super) style: ZpopReplyFormat,
    pub(super) limits: SortedSetLimits,
}

impl Pop {
    /// Removes members from a set and replies with them.
    pub(super) fn run(
        self,
        keyspace: &mut Keyspace<'_>,
        key: &Key<'_>,
        place: EntrySlot,
        out: &mut Out,
    ) {
        let set = SortedSet::of(keyspace.entry(place));
        let len = set.len();
        let count = self.count.min(len);
        match self.style {
            ZpopReplyFormat::Flat => out.array(count * 2),
            ZpopReplyFormat::Pairs => out.array(count),
            ZpopReplyFormat::KeyAndOne => {
                out.array(1 + count * 2);
                out.bulk(key.bytes);
            }
            ZpopReplyFormat::KeyAndPairs => {
                out.array(2);
                out.bulk(key.bytes);
                out.array(count);
            }
        }
        let (from, direction) = match self.end {
            PopEnd::Min => (0, Direction::Ascending),
            PopEnd::Max => (len - count, Direction::Descending),
        };
        for (member, score) in set.range(from, from + count, direction) {
            match self.style {
                ZpopReplyFormat::Flat | ZpopReplyFormat::KeyAndOne => {
                    reply_element(member, out);
                    out.double(score);
                }
                ZpopReplyFormat::Pairs | ZpopReplyFormat::KeyAndPairs => {
                    if !out.is_resp3() {
                        out.array(2);
                    }
                    reply_scored(member, score, true, out);
                }
            }
        }
        if count == 0 {
            return;
        }
        let event = match self.end {
            PopEnd::Min => event("zpopmin"),
            PopEnd::Max => event("zpopmax"),
        };
        if count == len {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, event);
            keyspace.wrote(key.bytes, Event::DEL);
        } else {
            keyspace.edit(place, |entry| {
                SortedSetMut::new(entry, self.limits).remove_range(from, count);
            });
            took_out(keyspace, key, place, event);
        }
    }

    /// Logs a removal from a set of `len` members as the equivalent ZPOPMIN or ZPOPMAX.
    fn log(self, cx: &mut ShardCx<'_>, key: &[u8], len: usize) {
        let name = match self.end {
            PopEnd::Min => b"ZPOPMIN",
            PopEnd::Max => b"ZPOPMAX",
        };
        match self.style {
            // Commands of these formats never wait and are logged as they are.
            ZpopReplyFormat::Flat | ZpopReplyFormat::Pairs => {}
            ZpopReplyFormat::KeyAndOne => cx.log_instead([name.into(), key.into()]),
            ZpopReplyFormat::KeyAndPairs => cx.log_taken(name, key, self.count.min(len)),
        }
    }

    /// Removes members from the first of several keys that exists. Returns whether there was one.
    fn run_first(
        self,
        cx: &mut ShardCx<'_>,
        args: &Args<'_>,
        out: &mut Out,
    ) -> Result<bool, CommandError> {
        for routed in args.keys() {
            if !cx.holds(routed) {
                continue;
            }
            let key = args.key_of(routed);
            let mut keyspace = cx.at_routed(routed);
            if let Some(place) = keyspace.find_typed(&key, DataType::SortedSet)? {
                let len = SortedSet::of(keyspace.entry(place)).len();
                self.run(&mut keyspace, &key, place, out);
                self.log(cx, key.bytes, len);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

const POP_COST: &str = "O(M*log(N)) for M members, in a set of N.";

/// `ZPOPMIN key [count]`
pub(super) static ZPOPMIN: Command = Command::new("zpopmin", Group::SortedSet, -2)
    .writes(&[KeySpec::one(1, TAKEN)])
    .flags(Flags::FAST)
    .doc(
        "5.0.0",
        "key [count]",
        "Removes and returns the members with the lowest scores.",
    )
    .complexity(POP_COST)
    .on_keys(|cx, args, out| pop(cx, args, out, PopEnd::Min));

/// `ZPOPMAX key [count]`
pub(super) static ZPOPMAX: Command = Command::new("zpopmax", Group::SortedSet, -2)
    .writes(&[KeySpec::one(1, TAKEN)])
    .flags(Flags::FAST)
    .doc(
        "5.0.0",
        "key [count]",
        "Removes and returns the members with the highest scores.",
    )
    .complexity(POP_COST)
    .on_keys(|cx, args, out| pop(cx, args, out, PopEnd::Max));

fn pop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, end: PopEnd) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => {
            let count = args
                .integer(2)
                .ok()
                .and_then(|count| usize::try_from(count).ok())
                .ok_or("ERR value is out of range, must be positive")?;
            Some(count)
        }
        _ => return Err(CommandError::Syntax),
    };
    let pop = Pop {
        end,
        count: count.unwrap_or(1),
        style: match count {
            Some(_) if out.is_resp3() => ZpopReplyFormat::Pairs,
            _ => ZpopReplyFormat::Flat,
        },
        limits: limits(cx),
    };
    if !pop.run_first(cx, args, out)? {
        out.array(0);
    }
    Ok(())
}

/// Parses the arguments of ZMPOP and BZMPOP after the number of keys.
fn many(cx: &ShardCx<'_>, args: &Args<'_>, numkeys_at: usize) -> Result<Pop, CommandError> {
    let at_least_one = |at: usize| {
        let number = args.integer(at).ok().filter(|number| *number > 0);
        number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let numkeys = at_least_one(numkeys_at).ok_or("ERR numkeys should be greater than 0")?;
    let end_at = numkeys.saturating_add(numkeys_at + 1);
    if end_at >= args.len() {
        return Err(CommandError::Syntax);
    }
    let end = if args.is(end_at, "min") {
        PopEnd::Min
    } else if args.is(end_at, "max") {
        PopEnd::Max
    } else {
        return Err(CommandError::Syntax);
    };
    let mut count = None;
    let mut at = end_at + 1;
    while at < args.len() {
        if count.is_some() || !args.is(at, "count") || at + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        count = Some(at_least_one(at + 1).ok_or("ERR count should be greater than 0")?);
        at += 2;
    }
    Ok(Pop {
        end,
        count: count.unwrap_or(1),
        style: ZpopReplyFormat::KeyAndPairs,
        limits: limits(cx),
    })
}

/// `ZMPOP numkeys key [key ...] <MIN | MAX> [COUNT count]`
pub(super) static ZMPOP: Command = Command::new("zmpop", Group::SortedSet, -4)
    .writes(&[KeySpec::counted(1, TAKEN)])
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "7.0.0",
        "numkeys key [key ...] <MIN | MAX> [COUNT count]",
        "Removes and returns members of the first non-empty sorted set of several keys.",
    )
    .complexity("O(K) + O(M*log(N)) for K keys and M members out of N.")
    .on_keys(zmpop);

fn zmpop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let pop = many(cx, args, 1)?;
    if !pop.run_first(cx, args, out)? {
        out.null_array();
    }
    Ok(())
}

fn pop_or_wait(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    pop: Pop,
    timeout_at: usize,
) -> CommandResult {
    let until_ms = options::blocking_timeout(args, timeout_at, cx.now)?;
    if pop.run_first(cx, args, out)? {
        return Ok(());
    }
    if cx.may_block() {
        cx.wait(Wait::new(DataType::SortedSet, until_ms));
    } else {
        out.null_array();
    }
    Ok(())
}

const WAITED_FOR: &[KeySpec] = &[KeySpec::range(1, -2, 1, TAKEN)];
const TIMEOUT_HISTORY: &[(&str, &str)] = &[("6.0.0", "The timeout may have a fraction.")];

/// `BZPOPMIN key [key ...] timeout`
pub(super) static BZPOPMIN: Command = Command::new("bzpopmin", Group::SortedSet, -3)
    .writes(WAITED_FOR)
    .flags(Flags::FAST.or(Flags::BLOCKING))
    .doc(
        "5.0.0",
        "key [key ...] timeout",
        "Removes and returns the member with the lowest score, or blocks until there is one.",
    )
    .complexity("O(log(N)) in a set of N members.")
    .history(TIMEOUT_HISTORY)
    .on_keys(|cx, args, out| wait_for_one(cx, args, out, PopEnd::Min));

/// `BZPOPMAX key [key ...] timeout`
pub(super) static BZPOPMAX: Command = Command::new("bzpopmax", Group::SortedSet, -3)
    .writes(WAITED_FOR)
    .flags(Flags::FAST.or(Flags::BLOCKING))
    .doc(
        "5.0.0",
        "key [key ...] timeout",
        "Removes and returns the member with the highest score, or blocks until there is one.",
    )
    .complexity("O(log(N)) in a set of N members.")
    .history(TIMEOUT_HISTORY)
    .on_keys(|cx, args, out| wait_for_one(cx, args, out, PopEnd::Max));

fn wait_for_one(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    end: PopEnd,
) -> CommandResult {
    let pop = Pop {
        end,
        count: 1,
        style: ZpopReplyFormat::KeyAndOne,
        limits: limits(cx),
    };
    pop_or_wait(cx, args, out, pop, args.len() - 1)
}

/// `BZMPOP timeout numkeys key [key ...] <MIN | MAX> [COUNT count]`
pub(super) static BZMPOP: Command = Command::new("bzmpop", Group::SortedSet, -5)
    .writes(&[KeySpec::counted(2, TAKEN)])
    .flags(Flags::BLOCKING.or(Flags::MOVABLEKEYS))
    .doc(
        "7.0.0",
        "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
        "Removes and returns members of the first non-empty sorted set of several keys, or blocks until there is one.",
    )
    .complexity("O(K) + O(M*log(N)) for K keys and M members out of N.")
    .on_keys(bzmpop);

fn bzmpop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let pop = many(cx, args, 2)?;
    pop_or_wait(cx, args, out, pop, 1)
}
