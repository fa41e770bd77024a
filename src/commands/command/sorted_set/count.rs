//! Commands that count and remove ranges.

use super::bounds::SortedSetRange;
use super::{event, limits, read, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use basalt_core::structures::ordered::Direction;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::{SortedSet, SortedSetMut};

const WRITTEN: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))];
const COUNT_COST: &str = "O(log(N)) in a set of N members.";
const REMOVE_COST: &str = "O(log(N)+M) in a set of N members, for M that are removed.";

fn count(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    bounds: SortedSetRange<'_>,
) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let set = read(&mut keyspace, &key)?;
    let count = set.map_or(0, |set| bounds.ranks(set, Direction::Ascending).count());
    out.integer(count as i64);
    Ok(())
}

/// `ZCOUNT key min max`
pub(super) static ZCOUNT: Command = Command::new("zcount", Group::SortedSet, 4)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.0.0",
        "key min max",
        "Counts the members with scores in a range.",
    )
    .complexity(COUNT_COST)
    .takes_long()
    .on_keys(|cx, args, out| {
        let bounds = SortedSetRange::scores(cx.client.origin, args.get(2), args.get(3))?;
        count(cx, args, out, bounds)
    });

/// `ZLEXCOUNT key min max`
pub(super) static ZLEXCOUNT: Command = Command::new("zlexcount", Group::SortedSet, 4)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.8.9",
        "key min:string max:string",
        "Counts a range of members of equal scores, by name.",
    )
    .complexity(COUNT_COST)
    .takes_long()
    .on_keys(|cx, args, out| {
        let bounds = SortedSetRange::members(args.get(2), args.get(3))?;
        count(cx, args, out, bounds)
    });

fn remove(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    bounds: SortedSetRange<'_>,
    event: Event,
) -> CommandResult {
    let (limits, scales) = (limits(cx), cx.scales());
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let mut count = 0;
    if let Some(place) = keyspace.find_typed(&key, DataType::SortedSet)? {
        let set = SortedSet::of(keyspace.entry(place));
        let ranks = bounds.ranks(set, Direction::Ascending);
        count = ranks.count();
        if count == set.len() {
            // The whole set is removed at once, to be freed in slices if it is large.
            keyspace.delete(place);
            keyspace.wrote(key.bytes, event);
            keyspace.wrote(key.bytes, Event::DEL);
        } else if count > 0 {
            scales.weigh(count)?;
            keyspace.edit(place, |entry| {
                SortedSetMut::new(entry, limits).remove_range(ranks.from, count);
            });
            took_out(&mut keyspace, &key, place, event);
        }
    }
    out.integer(count as i64);
    Ok(())
}

/// `ZREMRANGEBYRANK key start stop`
pub(super) static ZREMRANGEBYRANK: Command = Command::new("zremrangebyrank", Group::SortedSet, 4)
    .writes(WRITTEN)
    .doc("2.0.0", "key start stop", "Removes a range of ranks.")
    .complexity(REMOVE_COST)
    .takes_long()
    .on_keys(|cx, args, out| {
        let bounds = SortedSetRange::Rank(args.integer(2)?, args.integer(3)?);
        remove(cx, args, out, bounds, event("zremrangebyrank"))
    });

/// `ZREMRANGEBYSCORE key min max`
pub(super) static ZREMRANGEBYSCORE: Command = Command::new("zremrangebyscore", Group::SortedSet, 4)
    .writes(WRITTEN)
    .doc(
        "1.2.0",
        "key min max",
        "Removes the members with scores in a range.",
    )
    .complexity(REMOVE_COST)
    .takes_long()
    .on_keys(|cx, args, out| {
        let bounds = SortedSetRange::scores(cx.client.origin, args.get(2), args.get(3))?;
        remove(cx, args, out, bounds, event("zremrangebyscore"))
    });

/// `ZREMRANGEBYLEX key min max`
pub(super) static ZREMRANGEBYLEX: Command = Command::new("zremrangebylex", Group::SortedSet, 4)
    .writes(WRITTEN)
    .doc(
        "2.8.9",
        "key min:string max:string",
        "Removes a range of members of equal scores, by name.",
    )
    .complexity(REMOVE_COST)
    .takes_long()
    .on_keys(|cx, args, out| {
        let bounds = SortedSetRange::members(args.get(2), args.get(3))?;
        remove(cx, args, out, bounds, event("zremrangebylex"))
    });
