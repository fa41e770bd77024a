//! Commands on several keys, on any number of shards.

use super::reply_text;
use super::set::{EXPIRE_EVENT, SET_EVENT};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, FindKeys, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::options::{Expiry, KEEPTTL};
use basalt_core::base::number;
use basalt_core::structures::block::Content;
use basalt_engine::keyspace::Deadline;
use basalt_engine::value::DataType;

/// `MGET key [key ...]`
pub(super) static MGET: Command = Command::new("mget", Group::String, -2)
    .reads(&[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key [key ...]",
        "Returns the string values of several keys.",
    )
    .complexity("O(N), N being the count of keys.")
    .tips(&["request_policy:multi_shard"])
    .on_keys(mget);

fn mget(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(args.keys().len());
    for routed in args.keys() {
        // A key of another type replies null here, not an error.
        match cx.at_routed(routed).read_text(&args.key_of(routed)) {
            Ok(Some(text)) => reply_text(text, out),
            Ok(None) | Err(_) => out.null(),
        }
    }
    Ok(())
}

const PAIRS_COMPLEXITY: &str = "O(N), N being the count of keys.";

/// `MSET key value [key value ...]`
pub(super) static MSET: Command = Command::new("mset", Group::String, -3)
    .writes(&[KeySpec::range(1, -1, 2, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .keeps_blocks(2, 2)
    .doc(
        "1.0.1",
        "key value [key value ...]",
        "Sets the string values of several keys atomically.",
    )
    .complexity(PAIRS_COMPLEXITY)
    .tips(&[
        "request_policy:multi_shard",
        "response_policy:all_succeeded",
    ])
    .on_keys(mset);

fn mset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_pairs(args, "mset")?;
    set_all(cx, args, Deadline::Clear);
    out.ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub(super) static MSETNX: Command = Command::new("msetnx", Group::String, -3)
    .writes(&[KeySpec::range(1, -1, 2, KeyFlags::OW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM)
    .keeps_blocks(2, 2)
    .doc(
        "1.0.1",
        "key value [key value ...]",
        "Sets the string values of several keys atomically, unless any of them exists.",
    )
    .complexity(PAIRS_COMPLEXITY)
    .on_keys(msetnx);

fn msetnx(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_pairs(args, "msetnx")?;
    let sets = !any_exists(cx, args);
    if sets {
        set_all(cx, args, Deadline::Clear);
    }
    out.integer(i64::from(sets));
    Ok(())
}

fn check_pairs(args: &Args<'_>, command: &'static str) -> CommandResult {
    if args.len().is_multiple_of(2) {
        Err(CommandError::Arity(command))
    } else {
        Ok(())
    }
}

/// Sets each key to the value that follows it. A key that is named twice gets the last value.
fn set_all(cx: &mut ShardCx<'_>, args: &Args<'_>, deadline: Deadline) {
    for routed in args.keys() {
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed);
        let found = keyspace.find_write(&key);
        let value = routed.argument as usize + 1;
        keyspace.overwrites(&key, found, DataType::String);
        keyspace.put_text(&key, found, args.content(value), deadline);
        keyspace.wrote(key.bytes, SET_EVENT);
        if matches!(deadline, Deadline::At(_)) {
            keyspace.wrote(key.bytes, EXPIRE_EVENT);
        }
    }
}

fn any_exists(cx: &mut ShardCx<'_>, args: &Args<'_>) -> bool {
    args.keys().iter().any(|routed| {
        cx.at_routed(routed)
            .find_write(&args.key_of(routed))
            .is_some()
    })
}

fn all_exist(cx: &mut ShardCx<'_>, args: &Args<'_>) -> bool {
    args.keys().iter().all(|routed| {
        cx.at_routed(routed)
            .find_write(&args.key_of(routed))
            .is_some()
    })
}

/// `MSETEX numkeys key value [key value ...] [NX | XX] [expiry]`
pub(super) static MSETEX: Command = Command::new("msetex", Group::String, -4)
    .writes(&[KeySpec::counted(1, KeyFlags::OW.or(KeyFlags::UPDATE))
        .find(FindKeys::KeyNum { count_at: 0, first: 1, step: 2 })])
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .keeps_blocks(3, 2)
    .doc(
        "8.4.0",
        "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
         PXAT unix-time-milliseconds | KEEPTTL]",
        "Sets the string values of several keys atomically, with one expiration for all.",
    )
    .complexity(PAIRS_COMPLEXITY)
    .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
    .on_keys(msetex);

fn msetex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = number::parse_i64(args.get(1))
        .filter(|count| (1..=i64::from(i32::MAX)).contains(count))
        .ok_or("ERR invalid numkeys value")? as usize;
    if args.len() - 2 < count * 2 {
        return Err("ERR wrong number of key-value pairs".into());
    }
    let (mut if_absent, mut if_present, mut expiry) = (false, false, Expiry::Unsaid);
    let mut at = 2 + count * 2;
    while at < args.len() {
        if let Some(next) = expiry.accept(args, at, KEEPTTL) {
            at = next;
            continue;
        }
        if args.is(at, "nx") && !if_present {
            if_absent = true;
        } else if args.is(at, "xx") && !if_absent {
            if_present = true;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let deadline = expiry.on_replace(args, cx.now, "msetex")?;
    let sets = (!if_absent || !any_exists(cx, args)) && (!if_present || all_exist(cx, args));
    if sets {
        set_all(cx, args, deadline);
        log_all(cx, args, count, deadline);
    }
    out.integer(i64::from(sets));
    Ok(())
}

/// Logs the effect of MSETEX: without deadlines as one command, otherwise key by key.
fn log_all(cx: &mut ShardCx<'_>, args: &Args<'_>, count: usize, deadline: Deadline) {
    let pairs = args.contents(2).take(count * 2);
    match deadline {
        _ if !cx.is_logged() => {}
        Deadline::Clear => {
            let all: Vec<Content<'_>> = std::iter::once(b"MSET".into()).chain(pairs).collect();
            cx.log_instead(all);
        }
        Deadline::Keep | Deadline::At(_) => {
            for pair in 0..count {
                let at = 2 + 2 * pair;
                cx.log_string(args.get(at), args.content(at + 1), deadline);
            }
        }
    }
}
