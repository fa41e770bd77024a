//! Changing a part of a string, in place.

use super::grown_len;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::renewal::{Write, renewed};
use crate::engine::effect::Event;
use crate::engine::keyspace::Deadline;

/// `APPEND key value`
pub(super) static APPEND: Command = Command::new("append", Group::String, 3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .renews()
    .doc(
        "2.0.0",
        "key value",
        "Adds to the end of a string; makes the key if there is none.",
    )
    .complexity("O(1) amortized for short additions, as the room of a string grows by doubling.")
    .on_keys(append);

fn append(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, addition) = (args.key(1), args.get(2));
    let limit = cx.config.proto_max_bulk_len;
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let before = match found {
        Some(place) => keyspace.text(place)?.len(),
        None => 0,
    };
    let total = match found {
        Some(_) => grown_len(before, addition.len(), limit)?,
        None => addition.len(),
    };
    let write = Write {
        offset: before,
        len: addition.len(),
        argument: Some(2),
    };
    let renewed = renewed(cx, args, &key, found, write)?;
    let mut keyspace = cx.at(&key);
    match (renewed, found) {
        (Some(block), _) => keyspace.put_block(&key, found, block, Deadline::Keep),
        (None, None) => keyspace.put_text(&key, None, addition, Deadline::Clear),
        (None, Some(_)) => keyspace.edit_text(&key, found, total, |bytes| {
            bytes[before..].copy_from_slice(addition);
        }),
    }
    keyspace.wrote(key.bytes, Event::string("append"));
    out.integer(total as i64);
    Ok(())
}

/// `SETRANGE key offset value`
pub(super) static SETRANGE: Command = Command::new("setrange", Group::String, 4)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .renews()
    .doc(
        "2.2.0",
        "key offset value",
        "Overwrites a part of a string, which grows with zero bytes where it is too short.",
    )
    .complexity("O(1) for short values, else O(M), M being the length of the value.")
    .on_keys(setrange);

fn setrange(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, offset, value) = (args.key(1), args.integer(2)?, args.get(3));
    let Ok(offset) = usize::try_from(offset) else {
        return Err("ERR offset is out of range".into());
    };
    let limit = cx.config.proto_max_bulk_len;
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let before = match found {
        Some(place) => keyspace.text(place)?.len(),
        None => 0,
    };
    if value.is_empty() {
        out.integer(before as i64);
        return Ok(());
    }
    let end = grown_len(offset, value.len(), limit)?;
    let write = Write {
        offset,
        len: value.len(),
        argument: Some(3),
    };
    let renewed = renewed(cx, args, &key, found, write)?;
    let mut keyspace = cx.at(&key);
    match renewed {
        Some(block) => keyspace.put_block(&key, found, block, Deadline::Keep),
        None => keyspace.edit_text(&key, found, end, |bytes| {
            bytes[offset..end].copy_from_slice(value);
        }),
    }
    keyspace.wrote(key.bytes, Event::string("setrange"));
    out.integer(before.max(end) as i64);
    Ok(())
}
