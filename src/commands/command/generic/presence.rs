//! Commands that check for keys, reply their type, and delete them.

use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, CopyReply, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::{Args, Out};
use basalt_engine::effect::Event;

const ALL_KEYS: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::RO)];
const ALL_KEYS_REMOVED: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::RM.or(KeyFlags::DELETE))];
const SUM_OVER_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

/// `DEL key [key ...]`
pub(super) static DEL: Command = Command::new("del", Group::Generic, -2)
    .writes(ALL_KEYS_REMOVED)
    .doc("1.0.0", "key [key ...]", "Deletes keys.")
    .complexity("O(N) for N keys; memory of large values is freed after the reply.")
    .tips(SUM_OVER_SHARDS)
    .on_keys(delete);

/// `UNLINK key [key ...]`: like DEL, which also frees large values outside of the shard.
pub(super) static UNLINK: Command = Command::new("unlink", Group::Generic, -2)
    .writes(ALL_KEYS_REMOVED)
    .flags(Flags::FAST)
    .doc(
        "4.0.0",
        "key [key ...]",
        "Deletes keys and frees their memory later.",
    )
    .complexity("O(1) for each key; freeing a value takes time in proportion to its parts.")
    .tips(SUM_OVER_SHARDS)
    .on_keys(delete);

fn delete(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut deleted = 0;
    for routed in args.keys() {
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed);
        if let Some(place) = keyspace.find_write(&key) {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, Event::DEL);
            deleted += 1;
        } else {
            keyspace.missed_deletion(key.bytes);
        }
    }
    out.integer(deleted);
    Ok(())
}

/// `EXISTS key [key ...]`
pub(super) static EXISTS: Command = Command::new("exists", Group::Generic, -2)
    .reads(ALL_KEYS)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key [key ...]",
        "Returns the number of given keys that exist; a key given twice counts twice.",
    )
    .complexity("O(N) for N keys.")
    .history(&[("3.0.3", "Accepts several keys.")])
    .tips(SUM_OVER_SHARDS)
    .answered_from_copy(CopyReply::Presence)
    .on_keys(exists);

fn exists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut found = 0;
    for routed in args.keys() {
        let mut keyspace = cx.at_routed(routed).untouched();
        found += i64::from(keyspace.find_read(&args.key_of(routed)).is_some());
    }
    out.integer(found);
    Ok(())
}

/// `TOUCH key [key ...]`
pub(super) static TOUCH: Command = Command::new("touch", Group::Generic, -2)
    .reads(ALL_KEYS)
    .flags(Flags::FAST)
    .doc(
        "3.2.1",
        "key [key ...]",
        "Updates the access time of keys and returns the number of those that exist.",
    )
    .complexity("O(N) for N keys.")
    .tips(SUM_OVER_SHARDS)
    .on_keys(touch);

/// Touches keys, even with CLIENT NO-TOUCH.
fn touch(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let db = cx.client.db;
    let mut found = 0;
    for routed in args.keys() {
        let mut keyspace = cx.keyspace(usize::from(routed.engine_index), db);
        found += i64::from(keyspace.find_read(&args.key_of(routed)).is_some());
    }
    out.integer(found);
    Ok(())
}

/// `TYPE key`
pub(super) static TYPE: Command = Command::new("type", Group::Generic, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO)])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key",
        "Returns the type of a key's value, or `none`.",
    )
    .on_keys(type_of);

fn type_of(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key).untouched();
    match keyspace.find_read(&key) {
        Some(place) => out.simple(keyspace.kind(place).data_type().name()),
        None => out.simple("none"),
    }
    Ok(())
}
