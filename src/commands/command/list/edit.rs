//! Changes in the middle of a list: LINSERT LSET LREM LTRIM.

use super::{PUSHED, index_within, limits, range_within, took};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::structures::quicklist::End;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::list::{self, ListRef};

const ONE_THINNED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))];

/// Returns the list at a place; the lookup has checked the type.
pub(super) fn at<'k>(keyspace: &'k Keyspace<'_>, place: EntrySlot) -> ListRef<'k> {
    ListRef::of(keyspace.entry(place)).expect("looked up as a list")
}

/// `LINSERT key <BEFORE | AFTER> pivot element`
pub(super) static LINSERT: Command = Command::new("linsert", Group::List, 5)
    .writes(&[KeySpec::one(1, PUSHED)])
    .flags(Flags::DENYOOM)
    .keeps_block(4)
    .doc(
        "2.2.0",
        "key <BEFORE | AFTER> pivot element",
        "Inserts an element before or after the first occurrence of a pivot element.",
    )
    .complexity("O(N) for the N elements before the pivot.")
    .on_keys(linsert);

fn linsert(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let behind = if args.is(2, "after") {
        1
    } else if args.is(2, "before") {
        0
    } else {
        return Err(CommandError::Syntax);
    };
    let (key, limits) = (args.key(1), limits(cx));
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::List)? else {
        out.integer(0);
        return Ok(());
    };
    let Some(pivot) = at(&keyspace, place).position(args.get(3)) else {
        out.integer(-1);
        return Ok(());
    };
    let len = keyspace.edit(place, |entry| {
        list::insert(entry, pivot + behind, args.content(4), &limits)
    });
    keyspace.wrote(key.bytes, Event::new(b'l', "linsert"));
    out.integer(len as i64);
    Ok(())
}

/// `LSET key index element`
pub(super) static LSET: Command = Command::new("lset", Group::List, 4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM)
    .keeps_block(3)
    .doc(
        "1.0.0",
        "key index element",
        "Replaces the element at an index.",
    )
    .complexity("O(N) for N elements between it and the nearer end.")
    .on_keys(lset);

fn lset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, limits) = (args.key(1), limits(cx));
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .find_typed(&key, DataType::List)?
        .ok_or(CommandError::NoSuchKey)?;
    let index = index_within(args.integer(2)?, at(&keyspace, place).len())
        .ok_or(CommandError::OutOfRange)?;
    keyspace.edit(place, |entry| {
        list::set(entry, index, args.content(3), &limits)
    });
    keyspace.wrote(key.bytes, Event::new(b'l', "lset"));
    out.ok();
    Ok(())
}

/// `LREM key count element`
pub(super) static LREM: Command = Command::new("lrem", Group::List, 4)
    .writes(ONE_THINNED)
    .doc(
        "1.0.0",
        "key count element",
        "Removes elements that equal the given one: all, or the given number from the head (negative: from the tail).",
    )
    .complexity("O(N+M) for a list of N elements of which M are removed.")
    .reads_from(End::Front)
    .takes_long()
    .on_keys(lrem);

fn lrem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = args.integer(2)?;
    let from = if count < 0 { End::Back } else { End::Front };
    let count_max = match count.unsigned_abs() {
        0 => usize::MAX,
        count => usize::try_from(count).unwrap_or(usize::MAX),
    };
    let (key, limits, scales) = (args.key(1), limits(cx), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::List)? else {
        out.integer(0);
        return Ok(());
    };
    scales.weigh(at(&keyspace, place).len() / 4)?;
    let (removed, len) = keyspace.edit(place, |entry| {
        list::remove_equal(entry, args.get(3), from, count_max, &limits)
    });
    if removed > 0 {
        took(&mut keyspace, &key, place, Event::new(b'l', "lrem"), len);
    }
    out.integer(removed as i64);
    Ok(())
}

/// `LTRIM key start stop`
pub(super) static LTRIM: Command = Command::new("ltrim", Group::List, 4)
    .writes(ONE_THINNED)
    .doc(
        "1.0.0",
        "key start stop",
        "Removes the elements outside a range of indices.",
    )
    .complexity("O(N) for N elements removed.")
    .reads_from(End::Front)
    .takes_long()
    .on_keys(ltrim);

fn ltrim(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let (key, limits, scales) = (args.key(1), limits(cx), cx.scales());
    let mut keyspace = cx.at(&key);
    if let Some(place) = keyspace.find_typed(&key, DataType::List)? {
        let len = at(&keyspace, place).len();
        let (first, kept) = range_within(start, stop, len).unwrap_or((0, 0));
        // Whole nodes of many elements are removed at once, hence the divisor; a list that is removed as a whole is
        // freed in slices.
        scales.weigh(if kept > 0 { (len - kept) / 16 } else { 0 })?;
        if kept > 0 && kept < len {
            keyspace.edit(place, |entry| {
                list::remove_range(entry, first + kept, len - first - kept, &limits);
                list::remove_range(entry, 0, first, &limits);
            });
        }
        // Redis notifies of a trim that removed nothing, too.
        took(&mut keyspace, &key, place, Event::new(b'l', "ltrim"), kept);
    }
    out.ok();
    Ok(())
}
