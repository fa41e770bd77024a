//! Commands that read some fields of a hash.

use super::{LOOKED_AT, read};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::element::reply_item;

/// `HGET key field`
pub(super) static HGET: Command = Command::new("hget", Group::Hash, 3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc("2.0.0", "key field", "Returns the value of a field.")
    .looks_up(2)
    .on_keys(hget);

fn hget(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    match read(&mut keyspace, &key)?.and_then(|hash| hash.get(args.get(2))) {
        Some(field) => reply_item(field.value, out),
        None => out.null(),
    }
    Ok(())
}

/// `HMGET key field [field ...]`
pub(super) static HMGET: Command = Command::new("hmget", Group::Hash, -3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.0.0",
        "key field [field ...]",
        "Returns the values of several fields.",
    )
    .complexity("O(N), N being the count of fields asked for.")
    .on_keys(hmget);

fn hmget(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let hash = read(&mut keyspace, &key)?;
    out.array(args.len() - 2);
    for name in args.from(2) {
        match hash.and_then(|hash| hash.get(name)) {
            Some(field) => reply_item(field.value, out),
            None => out.null(),
        }
    }
    Ok(())
}

/// `HEXISTS key field`
pub(super) static HEXISTS: Command = Command::new("hexists", Group::Hash, 3)
    .reads(LOOKED_AT)
    .flags(Flags::FAST)
    .doc("2.0.0", "key field", "Returns whether a hash has a field.")
    .looks_up(2)
    .on_keys(hexists);

fn hexists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let field = read(&mut keyspace, &key)?.and_then(|hash| hash.get(args.get(2)));
    out.integer(i64::from(field.is_some()));
    Ok(())
}

/// `HSTRLEN key field`
pub(super) static HSTRLEN: Command = Command::new("hstrlen", Group::Hash, 3)
    .reads(LOOKED_AT)
    .flags(Flags::FAST)
    .doc(
        "3.2.0",
        "key field",
        "Returns the length of the value of a field in bytes.",
    )
    .looks_up(2)
    .on_keys(hstrlen);

fn hstrlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let field = read(&mut keyspace, &key)?.and_then(|hash| hash.get(args.get(2)));
    out.integer(field.map_or(0, |field| field.value.len() as i64));
    Ok(())
}

/// `HLEN key`
pub(super) static HLEN: Command = Command::new("hlen", Group::Hash, 2)
    .reads(LOOKED_AT)
    .flags(Flags::FAST)
    .doc("2.0.0", "key", "Returns the number of fields of a hash.")
    .on_keys(hlen);

fn hlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let len = read(&mut keyspace, &key)?.map_or(0, |hash| hash.len());
    out.integer(len as i64);
    Ok(())
}
