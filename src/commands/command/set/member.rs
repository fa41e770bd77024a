//! Commands that add, remove, move, look up and list members.

use super::{SREM_EVENT, at, event, lapsed, limits, log_lapsed, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_element;
use crate::command::scan;
use basalt_core::structures::entry::Entry;
use basalt_engine::effect::Event;
use basalt_engine::value::set;
use basalt_engine::value::{DataType, Object};

const SADD_EVENT: Event = event("sadd");

const READ: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];

/// `SADD key member [member ...]`
pub(super) static SADD: Command = Command::new("sadd", Group::Set, -3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        "1.0.0",
        "key member [member ...]",
        "Adds members to a set, which is created if it does not exist.",
    )
    .complexity("O(N), N being the count of members that are named.")
    .history(&[("2.4.0", "Accepts several members.")])
    .looks_up(2)
    .on_keys(sadd);

fn sadd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (limits, is_logged) = (limits(cx), cx.is_logged());
    let key = args.key(1);
    let count = args.len() - 2;
    let mut revived = Vec::new();
    let mut keyspace = cx.at(&key);
    let add_all = |entry: &mut Entry<Object>| {
        let new = args
            .from(2)
            .filter(|member| set::add(entry, member, &limits));
        new.count()
    };
    let added = match keyspace.find_typed(&key, DataType::Set)? {
        Some(place) => {
            revived = lapsed(&keyspace, place, is_logged, args.from(2));
            keyspace.edit(place, |entry| {
                set::expect_members(entry, count, &limits);
                add_all(entry)
            })
        }
        None => {
            let mut added = 0;
            keyspace.create(&key, || {
                let mut entry = set::new_entry(key.bytes, args.get(2), count, &limits);
                added = add_all(&mut entry);
                entry
            });
            added
        }
    };
    if added > 0 {
        keyspace.wrote(key.bytes, SADD_EVENT);
    }
    log_lapsed(cx, args, key.bytes, &revived);
    out.integer(added as i64);
    Ok(())
}

/// `SREM key member [member ...]`
pub(super) static SREM: Command = Command::new("srem", Group::Set, -3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key member [member ...]",
        "Removes members from a set, which is deleted with the last one.",
    )
    .complexity("O(N), N being the count of members that are named.")
    .history(&[("2.4.0", "Accepts several members.")])
    .looks_up(2)
    .on_keys(srem);

fn srem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, due_ms) = (args.key(1), cx.elements_due_ms());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Set)? else {
        out.integer(0);
        return Ok(());
    };
    let removed = keyspace.edit(place, |entry| {
        let there = args
            .from(2)
            .filter(|member| set::remove(entry, member, due_ms));
        there.count()
    });
    if removed > 0 {
        took_out(&mut keyspace, &key, place, SREM_EVENT);
    }
    out.integer(removed as i64);
    Ok(())
}

/// `SMOVE source destination member`
pub(super) static SMOVE: Command = Command::new("smove", Group::Set, 4)
    .writes(&[
        KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
        KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
    ])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "source destination member",
        "Moves a member from one set to another.",
    )
    .on_keys(smove);

fn smove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (limits, is_logged) = (limits(cx), cx.is_logged());
    let (source, target, member) = (args.key(1), args.key(2), args.get(3));
    let mut from = cx.at(&source);
    let Some(place) = from.find_typed(&source, DataType::Set)? else {
        out.integer(0);
        return Ok(());
    };
    let is_member = at(&from, place).contains(member);
    cx.at(&target).find_typed(&target, DataType::Set)?;
    if !is_member || source.bytes == target.bytes {
        out.integer(i64::from(is_member));
        return Ok(());
    }
    let mut from = cx.at(&source);
    // Looked up again: if the target had expired it was deleted meanwhile, which invalidates places.
    if let Some(place) = from.find_write(&source) {
        from.edit(place, |entry| set::remove(entry, member, limits.now_ms));
        took_out(&mut from, &source, place, SREM_EVENT);
    }
    let mut to = cx.at(&target);
    let found = to.find_write(&target);
    let place = found
        .unwrap_or_else(|| to.create(&target, || set::new_entry(target.bytes, member, 1, &limits)));
    let revived = lapsed(&to, place, is_logged, std::iter::once(member));
    if to.edit(place, |entry| set::add(entry, member, &limits)) {
        to.wrote(target.bytes, SADD_EVENT);
    }
    log_lapsed(cx, args, target.bytes, &revived);
    out.integer(1);
    Ok(())
}

/// `SISMEMBER key member`
pub(super) static SISMEMBER: Command = Command::new("sismember", Group::Set, 3)
    .reads(READ)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key member",
        "Returns whether a value is a member of a set.",
    )
    .looks_up(2)
    .on_keys(sismember);

fn sismember(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Set)?;
    let set = found.map(|place| at(&keyspace, place));
    let is_member = set.is_some_and(|set| set.contains(args.get(2)));
    out.integer(i64::from(is_member));
    Ok(())
}

/// `SMISMEMBER key member [member ...]`
pub(super) static SMISMEMBER: Command = Command::new("smismember", Group::Set, -3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "6.2.0",
        "key member [member ...]",
        "Returns which of the given values are members of a set.",
    )
    .complexity("O(N), N being the count of members that are named.")
    .on_keys(smismember);

fn smismember(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Set)?;
    let set = found.map(|place| at(&keyspace, place));
    out.array(args.len() - 2);
    for member in args.from(2) {
        out.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

/// `SCARD key`
pub(super) static SCARD: Command = Command::new("scard", Group::Set, 2)
    .reads(READ)
    .flags(Flags::FAST)
    .doc("1.0.0", "key", "Counts the members of a set.")
    .on_keys(scard);

fn scard(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Set)?;
    let count = found.map_or(0, |place| at(&keyspace, place).len());
    out.integer(count as i64);
    Ok(())
}

/// `SMEMBERS key`
pub(super) static SMEMBERS: Command = Command::new("smembers", Group::Set, 2)
    .reads(KeySpec::FIRST_READ)
    .doc("1.0.0", "key", "Returns all members of a set.")
    .complexity("O(N), N being the count of members.")
    .tips(&["nondeterministic_output_order"])
    .takes_long()
    .on_keys(smembers);

fn smembers(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.read_typed(&key, DataType::Set)? else {
        out.set(0);
        return Ok(());
    };
    let set = at(&keyspace, place);
    scales.weigh(set.len())?;
    out.set(set.len());
    set.for_each(|member| reply_element(member, out));
    Ok(())
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
pub(super) static SSCAN: Command = Command::new("sscan", Group::Set, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count]",
        "Iterates over the members of a set.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N members.")
    .tips(&["nondeterministic_output"])
    .on_keys(sscan);

fn sscan(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cursor = scan::cursor(args.get(2))?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    // If the key does not exist, any options are accepted.
    let Some(place) = keyspace.read_typed(&key, DataType::Set)? else {
        scan::reply_nothing(out);
        return Ok(());
    };
    let options = scan::Options::parse(args, 3)?;
    let mut found = Out::new(out.protocol());
    let mut count = 0;
    let set = at(&keyspace, place);
    let next = set.scan(cursor, options.count, |member| {
        if member.with_bytes(|member| options.fits(member)) {
            count += 1;
            reply_element(member, &mut found);
        }
    });
    scan::reply(next, count, &mut found, out);
    Ok(())
}
