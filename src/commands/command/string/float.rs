//! Strings as fractional numbers, in the extended precision that Redis computes in.

use super::counter::{COUNTER_FLAGS, COUNTER_KEY};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group};
use crate::command::error::CommandError;
use basalt_core::base::extended::Extended;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Deadline;

/// `INCRBYFLOAT key increment`
pub(super) static INCRBYFLOAT: Command = Command::new("incrbyfloat", Group::String, 3)
    .writes(COUNTER_KEY)
    .flags(COUNTER_FLAGS)
    .doc(
        "2.6.0",
        "key increment:double",
        "Increments the floating-point value of a key; a missing key counts as 0.",
    )
    .on_keys(incrbyfloat);

fn incrbyfloat(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    let before = match found {
        Some(place) => keyspace.text(place)?.with_bytes(Extended::parse),
        None => Some(Extended::ZERO),
    };
    let before = before.ok_or(CommandError::NotFloat)?;
    let increment = Extended::parse(args.get(2)).ok_or(CommandError::NotFloat)?;
    let after = before
        .checked_add(increment)
        .ok_or("ERR increment would produce NaN or Infinity")?;
    let mut text = Vec::new();
    after.print(&mut text);
    keyspace.put_bytes(&key, found, &text);
    keyspace.wrote(key.bytes, Event::string("incrbyfloat"));
    cx.log_edited_string(&key, text[..].into(), Deadline::Keep);
    out.bulk(&text);
    Ok(())
}
