//! Strings as integers: INCR, DECR, INCRBY, DECRBY.

use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use basalt_engine::effect::Event;

pub(super) const COUNTER_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

pub(super) const COUNTER_FLAGS: Flags = Flags::DENYOOM.or(Flags::FAST);

/// `INCR key`
pub(super) static INCR: Command = Command::new("incr", Group::String, 2)
    .writes(COUNTER_KEY)
    .flags(COUNTER_FLAGS)
    .doc(
        "1.0.0",
        "key",
        "Increments the integer value of a key by one; a missing key counts as 0.",
    )
    .on_keys(|cx, args, out| add(cx, args, out, 1));

/// `DECR key`
pub(super) static DECR: Command = Command::new("decr", Group::String, 2)
    .writes(COUNTER_KEY)
    .flags(COUNTER_FLAGS)
    .doc(
        "1.0.0",
        "key",
        "Decrements the integer value of a key by one; a missing key counts as 0.",
    )
    .on_keys(|cx, args, out| add(cx, args, out, -1));

/// `INCRBY key increment`
pub(super) static INCRBY: Command = Command::new("incrby", Group::String, 3)
    .writes(COUNTER_KEY)
    .flags(COUNTER_FLAGS)
    .doc(
        "1.0.0",
        "key increment",
        "Increments the integer value of a key; a missing key counts as 0.",
    )
    .on_keys(|cx, args, out| {
        let increment = args.integer(2)?;
        add(cx, args, out, increment)
    });

/// `DECRBY key decrement`
pub(super) static DECRBY: Command = Command::new("decrby", Group::String, 3)
    .writes(COUNTER_KEY)
    .flags(COUNTER_FLAGS)
    .doc(
        "1.0.0",
        "key decrement",
        "Decrements the integer value of a key; a missing key counts as 0.",
    )
    .on_keys(|cx, args, out| {
        let increment = args.integer(2)?.checked_neg();
        add(
            cx,
            args,
            out,
            increment.ok_or("ERR decrement would overflow")?,
        )
    });

#[inline]
fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, increment: i64) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    let before = match found {
        Some(place) => keyspace
            .text(place)?
            .integer()
            .ok_or(CommandError::NotInteger)?,
        None => 0,
    };
    let after = before
        .checked_add(increment)
        .ok_or(CommandError::Overflow)?;
    keyspace.put_integer(&key, found, after);
    keyspace.wrote(key.bytes, Event::string("incrby"));
    out.integer(after);
    Ok(())
}
