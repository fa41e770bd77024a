//! Strings: GET, SET and what edits them.

use super::Args;
use super::Out;
use super::context::ShardCx;
use super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::engine::effect::Event;
use crate::engine::keyspace::Deadline;
use crate::engine::value::Text;

pub(super) static TABLE: &[&Command] = &[&GET, &SET];

/// `GET key`
static GET: Command = Command::new("get", Group::String, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::FAST)
    .doc("1.0.0", "key", "Answers the string that a key holds.")
    .on_keys(get);

fn get(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    match cx.at(&key).read_text(&key)? {
        Some(text) => reply_text(text, out),
        None => out.null(),
    }
    Ok(())
}

/// `SET key value`
static SET: Command = Command::new("set", Group::String, -3)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .doc("1.0.0", "key value", "Sets the string that a key holds.")
    .on_keys(set);

fn set(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    keyspace.put_text(&key, found, args.get(2), Deadline::Clear);
    keyspace.wrote(key.bytes, Event::string("set"));
    out.ok();
    Ok(())
}

/// Writes a string value; a large one is shared, not copied.
pub(super) fn reply_text(text: Text<'_>, out: &mut Out) {
    match text {
        Text::Integer(number) => out.bulk_integer(number),
        Text::Bytes(bytes) => out.bulk(bytes),
        Text::Block(block) => out.bulk_shared(block.clone().into_bytes()),
    }
}
