//! Removal from either end: LPOP RPOP LMPOP, and BLPOP BRPOP BLMPOP, which wait for an element.

use super::edit::at;
use super::{POPPED, end_named, limits, popped_event, took};
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::element::reply_item;
use crate::command::error::CommandError;
use crate::command::options::blocking_timeout;
use crate::command::{Args, Out};
use basalt_core::alloc::account;
use basalt_core::base::number;
use basalt_core::structures::quicklist::{End, QuicklistLimits};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::{DataType, list};

const ONE_POPPED: &[KeySpec] = &[KeySpec::one(1, POPPED)];
const COUNT_ADDED: &[(&str, &str)] = &[("6.2.0", "New argument: `count`.")];
const DOUBLE_TIMEOUT: &[(&str, &str)] = &[("6.0.0", "`timeout` may be a fraction of a second.")];
const POP_COMPLEXITY: &str = "O(N) for N elements answered.";

/// `LPOP key [count]`
pub(super) static LPOP: Command = Command::new("lpop", Group::List, -2)
    .writes(ONE_POPPED)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key [count]",
        "Removes and returns the first elements of a list.",
    )
    .complexity(POP_COMPLEXITY)
    .history(COUNT_ADDED)
    .reads_from(End::Front)
    .on_keys(|cx, args, out| pop(cx, args, out, End::Front));

/// `RPOP key [count]`
pub(super) static RPOP: Command = Command::new("rpop", Group::List, -2)
    .writes(ONE_POPPED)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key [count]",
        "Removes and returns the last elements of a list.",
    )
    .complexity(POP_COMPLEXITY)
    .history(COUNT_ADDED)
    .reads_from(End::Back)
    .on_keys(|cx, args, out| pop(cx, args, out, End::Back));

#[inline]
fn pop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, end: End) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => Some(
            number::parse_i64(args.get(2))
                .and_then(|count| usize::try_from(count).ok())
                .ok_or("ERR value is out of range, must be positive")?,
        ),
        _ => return Err(CommandError::Arity(cx.command.full_name)),
    };
    let (key, limits) = (args.key(1), limits(cx));
    let mut keyspace = cx.at(&key);
    match (keyspace.find_typed(&key, DataType::List)?, count) {
        (None, None) => out.null(),
        (None, Some(_)) => out.null_array(),
        (Some(_), Some(0)) => out.array(0),
        (Some(place), None) => pop_one(&mut keyspace, &key, place, end, &limits, out),
        (Some(place), Some(count)) => {
            pop_many(&mut keyspace, &key, place, end, count, &limits, out)
        }
    }
    Ok(())
}

/// Replies with the element at an end, and removes it.
#[inline]
fn pop_one(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    place: EntrySlot,
    end: End,
    limits: &QuicklistLimits,
    out: &mut Out,
) {
    let popped = keyspace.edit(place, |entry| {
        list::pop(entry, end, limits, |element| {
            account::uncharged(|| reply_item(element, out));
        })
    });
    let ((), len) = popped.expect("a list is never empty");
    took(keyspace, key, place, popped_event(end), len);
}

/// Replies with elements removed from an end, the outermost first.
fn pop_many(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    place: EntrySlot,
    end: End,
    count: usize,
    limits: &QuicklistLimits,
    out: &mut Out,
) {
    let list = at(keyspace, place);
    let len = list.len();
    let count = count.min(len);
    out.array(count);
    list.visit(end, 0, count, |element| reply_item(element, out));
    if count < len {
        let first = match end {
            End::Front => 0,
            End::Back => len - count,
        };
        keyspace.edit(place, |entry| {
            list::remove_range(entry, first, count, limits)
        });
    }
    took(keyspace, key, place, popped_event(end), len - count);
}

/// `LMPOP numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`
pub(super) static LMPOP: Command = Command::new("lmpop", Group::List, -4)
    .writes(&[KeySpec::counted(1, POPPED)])
    .flags(Flags::MOVABLEKEYS)
    .doc(
        "7.0.0",
        "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        "Removes and returns elements of the first non-empty list of several keys.",
    )
    .complexity("O(N+M) for N keys and M elements answered.")
    .reads_from(End::Front)
    .on_keys(lmpop);

fn lmpop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (end, count) = end_and_count(args, 1)?;
    if !pop_first(cx, args, end, Some(count), out)? {
        out.null_array();
    }
    Ok(())
}

/// Parses `numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`, which begins at `at`.
fn end_and_count(args: &Args<'_>, at: usize) -> Result<(End, usize), CommandError> {
    let positive = |at: usize, error: &'static str| {
        number::parse_i64(args.get(at))
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or(CommandError::from(error))
    };
    let key_count = positive(at, "ERR numkeys should be greater than 0")?;
    let end_at = key_count.saturating_add(at + 1);
    if end_at >= args.len() {
        return Err(CommandError::Syntax);
    }
    let end = end_named(args, end_at)?;
    match args.len() - end_at {
        1 => Ok((end, 1)),
        3 if args.is(end_at + 1, "count") => Ok((
            end,
            positive(end_at + 2, "ERR count should be greater than 0")?,
        )),
        // An invalid count is reported before mistakes in later arguments.
        4.. if args.is(end_at + 1, "count") => {
            positive(end_at + 2, "ERR count should be greater than 0")?;
            Err(CommandError::Syntax)
        }
        _ => Err(CommandError::Syntax),
    }
}

/// Pops from the first of the keys that holds a list. Returns false if none does. With a count, the reply contains an
/// array of the elements.
fn pop_first(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    end: End,
    count: Option<usize>,
    out: &mut Out,
) -> Result<bool, CommandError> {
    let limits = limits(cx);
    for routed in args.keys() {
        if !cx.holds(routed) {
            continue;
        }
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed);
        let Some(place) = keyspace.find_typed(&key, DataType::List)? else {
            continue;
        };
        out.array(2);
        out.bulk(key.bytes);
        let name = match end {
            End::Front => b"LPOP",
            End::Back => b"RPOP",
        };
        match count {
            None => {
                pop_one(&mut keyspace, &key, place, end, &limits, out);
                cx.log_instead([name.into(), key.bytes.into()]);
            }
            Some(count) => {
                let count = count.min(at(&keyspace, place).len());
                pop_many(&mut keyspace, &key, place, end, count, &limits, out);
                cx.log_taken(name, key.bytes, count);
            }
        }
        return Ok(true);
    }
    Ok(false)
}

/// `BLPOP key [key ...] timeout`
pub(super) static BLPOP: Command = Command::new("blpop", Group::List, -3)
    .writes(&[KeySpec::range(1, -2, 1, POPPED)])
    .flags(Flags::BLOCKING)
    .doc(
        "2.0.0",
        "key [key ...] timeout",
        "Pops the first element of the first non-empty list of several keys, or blocks until there is one.",
    )
    .complexity("O(N) for N keys.")
    .history(DOUBLE_TIMEOUT)
    .reads_from(End::Front)
    .on_keys(|cx, args, out| blocking_pop(cx, args, out, End::Front));

/// `BRPOP key [key ...] timeout`
pub(super) static BRPOP: Command = Command::new("brpop", Group::List, -3)
    .writes(&[KeySpec::range(1, -2, 1, POPPED)])
    .flags(Flags::BLOCKING)
    .doc(
        "2.0.0",
        "key [key ...] timeout",
        "Pops the last element of the first non-empty list of several keys, or blocks until there is one.",
    )
    .complexity("O(N) for N keys.")
    .history(DOUBLE_TIMEOUT)
    .reads_from(End::Back)
    .on_keys(|cx, args, out| blocking_pop(cx, args, out, End::Back));

/// Blocks until one of the keys holds a list; where blocking is not allowed, replies as on timeout.
fn wait(cx: &mut ShardCx<'_>, until_ms: Option<u64>, out: &mut Out) {
    if cx.may_block() {
        cx.wait(Wait::new(DataType::List, until_ms));
    } else {
        out.null_array();
    }
}

fn blocking_pop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, end: End) -> CommandResult {
    let until_ms = blocking_timeout(args, args.len() - 1, cx.now)?;
    if pop_first(cx, args, end, None, out)? {
        return Ok(());
    }
    wait(cx, until_ms, out);
    Ok(())
}

/// `BLMPOP timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`
pub(super) static BLMPOP: Command = Command::new("blmpop", Group::List, -5)
    .writes(&[KeySpec::counted(2, POPPED)])
    .flags(Flags::BLOCKING.or(Flags::MOVABLEKEYS))
    .doc(
        "7.0.0",
        "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        "Pops elements of the first non-empty list of several keys, or blocks until there is one.",
    )
    .complexity("O(N+M) for N keys and M elements answered.")
    .reads_from(End::Front)
    .on_keys(blmpop);

fn blmpop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (end, count) = end_and_count(args, 2)?;
    let until_ms = blocking_timeout(args, 1, cx.now)?;
    if pop_first(cx, args, end, Some(count), out)? {
        return Ok(());
    }
    wait(cx, until_ms, out);
    Ok(())
}
