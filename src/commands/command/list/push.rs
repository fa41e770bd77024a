//! Insertion at either end: LPUSH RPUSH LPUSHX RPUSHX.

use super::{PUSHED, limits, pushed_event};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::{Args, Out};
use basalt_core::structures::quicklist::End;
use basalt_engine::value::{DataType, list};

const ONE_PUSHED: &[KeySpec] = &[KeySpec::one(1, PUSHED)];
const FLAGS: Flags = Flags::DENYOOM.or(Flags::FAST);
const SYNTAX: &str = "key element [element ...]";
const COMPLEXITY: &str = "O(N) for N elements, O(1) for each of them.";
const SEVERAL: &str = "Accepts several elements at once.";

/// `LPUSH key element [element ...]`
pub(super) static LPUSH: Command = Command::new("lpush", Group::List, -3)
    .writes(ONE_PUSHED)
    .flags(FLAGS)
    .keeps_blocks(2, 1)
    .doc(
        "1.0.0",
        SYNTAX,
        "Prepends elements to a list, one after the other; creates the list if it does not exist.",
    )
    .complexity(COMPLEXITY)
    .history(&[("2.4.0", SEVERAL)])
    .on_keys(|cx, args, out| push(cx, args, out, End::Front, Absent::IsMade));

/// `RPUSH key element [element ...]`
pub(super) static RPUSH: Command = Command::new("rpush", Group::List, -3)
    .writes(ONE_PUSHED)
    .flags(FLAGS)
    .keeps_blocks(2, 1)
    .doc(
        "1.0.0",
        SYNTAX,
        "Appends elements to a list, one after the other; creates the list if it does not exist.",
    )
    .complexity(COMPLEXITY)
    .history(&[("2.4.0", SEVERAL)])
    .on_keys(|cx, args, out| push(cx, args, out, End::Back, Absent::IsMade));

/// `LPUSHX key element [element ...]`
pub(super) static LPUSHX: Command = Command::new("lpushx", Group::List, -3)
    .writes(ONE_PUSHED)
    .flags(FLAGS)
    .keeps_blocks(2, 1)
    .doc("2.2.0", SYNTAX, "Prepends elements to a list if it exists.")
    .complexity(COMPLEXITY)
    .history(&[("4.0.0", SEVERAL)])
    .on_keys(|cx, args, out| push(cx, args, out, End::Front, Absent::StaysAbsent));

/// `RPUSHX key element [element ...]`
pub(super) static RPUSHX: Command = Command::new("rpushx", Group::List, -3)
    .writes(ONE_PUSHED)
    .flags(FLAGS)
    .keeps_blocks(2, 1)
    .doc("2.2.0", SYNTAX, "Appends elements to a list if it exists.")
    .complexity(COMPLEXITY)
    .history(&[("4.0.0", SEVERAL)])
    .on_keys(|cx, args, out| push(cx, args, out, End::Back, Absent::StaysAbsent));

/// What to do if the list does not exist: create it, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    IsMade,
    StaysAbsent,
}

#[inline]
fn push(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    end: End,
    absent: Absent,
) -> CommandResult {
    let (key, limits) = (args.key(1), limits(cx));
    let mut keyspace = cx.at(&key);
    let place = match keyspace.find_typed(&key, DataType::List)? {
        Some(place) => place,
        None if absent == Absent::StaysAbsent => {
            out.integer(0);
            return Ok(());
        }
        None => keyspace.create(&key, || list::empty_entry(key.bytes)),
    };
    let len = keyspace.edit(place, |entry| match args.may_have_blocks() {
        true => list::push_contents(entry, end, || args.contents(2), &limits),
        false => list::push(entry, end, || args.from(2), &limits),
    });
    keyspace.wrote(key.bytes, pushed_event(end));
    out.integer(len as i64);
    Ok(())
}
