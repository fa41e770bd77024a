//! Commands on an existing lock.

use super::{EXPIRE_EVENT, HELD, NOT_OWNER, deadline_ms, holds, only_owner, owner};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::hash::{edit, rules};
use crate::command::{Args, Out};
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, HashRef};

/// `UNLOCK key owner`
pub(super) static UNLOCK: Command = Command::new("unlock", Group::Lock, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key owner",
        "Releases a lock for its owner; returns its remaining hold count, 0 once it is released.",
    )
    .on_keys(unlock);

fn unlock(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (rules, owner) = (rules(cx), owner(args)?);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Hash)? else {
        return Err(NOT_OWNER.into());
    };
    let Some(before) = holds(&keyspace, place, owner)? else {
        return Err(NOT_OWNER.into());
    };
    let left = before.saturating_sub(1).max(0);
    if left > 0 {
        edit(&mut keyspace, place, &rules, |hash| {
            let mut digits = itoa::Buffer::new();
            hash.set(owner, digits.format(left).as_bytes(), FieldDeadline::Keep)
        });
        keyspace.wrote(key.bytes, Event::new(b'h', "hincrby"));
        let request = [&b"HINCRBY"[..], key.bytes, owner, b"-1"];
        cx.log_instead(request.map(Into::into));
    } else {
        let hash = HashRef::of(keyspace.entry(place), keyspace.elements_due_ms());
        // Other fields do not belong to a lock of this server: they stay.
        if hash.is_some_and(|hash| hash.len() > 1) {
            edit(&mut keyspace, place, &rules, |hash| hash.remove(owner));
            keyspace.wrote(key.bytes, Event::new(b'h', "hdel"));
            cx.log_instead([&b"HDEL"[..], key.bytes, owner].map(Into::into));
        } else {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, Event::DEL);
            keyspace.engine().published().locks.released.add(1);
            cx.log_deletion(key.bytes, false);
        }
    }
    out.integer(left);
    Ok(())
}

/// `LOCKEXTEND key owner ttl-ms`
pub(super) static LOCKEXTEND: Command = Command::new("lockextend", Group::Lock, 4)
    .writes(HELD)
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key owner ttl-ms:integer",
        "Sets the remaining time of a lock in milliseconds, for its owner.",
    )
    .on_keys(extend);

fn extend(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (owner, at_ms) = (owner(args)?, deadline_ms(cx, args)?);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Hash)? else {
        return Err(NOT_OWNER.into());
    };
    if holds(&keyspace, place, owner)?.is_none() {
        return Err(NOT_OWNER.into());
    }
    keyspace.set_deadline(&key, place, Some(at_ms));
    keyspace.hold(key.bytes);
    keyspace.wrote(key.bytes, EXPIRE_EVENT);
    cx.log_deadline(key.bytes, at_ms);
    out.integer(1);
    Ok(())
}

/// `LOCKINFO key`
pub(super) static LOCKINFO: Command = Command::new("lockinfo", Group::Lock, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key",
        "Returns the owner of a lock, its count, fencing token, remaining time and waiters.",
    )
    .tips(&["nondeterministic_output"])
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (db, now_ms) = (cx.client.db, cx.now.unix_ms);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.read_typed(&key, DataType::Hash)? else {
        out.null_array();
        return Ok(());
    };
    let Some((owner, holds)) = only_owner(&keyspace, place) else {
        return Err("ERR The hash is not a lock".into());
    };
    let left_ms = match keyspace.entry(place).deadline() {
        Some(at_ms) => at_ms.saturating_sub(now_ms) as i64,
        None => -1,
    };
    let fence = keyspace.fence(key.bytes, &owner).unwrap_or(0);
    let waiting = keyspace.engine().waiters.waiting_in_turn(db, key.bytes);
    out.map(5);
    out.bulk(b"owner");
    out.bulk(&owner);
    let figures = [
        ("holds", holds),
        ("fence", fence as i64),
        ("ttl", left_ms),
        ("waiters", waiting as i64),
    ];
    for (name, figure) in figures {
        out.bulk(name.as_bytes());
        out.integer(figure);
    }
    Ok(())
}
