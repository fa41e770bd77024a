//! What a node counts of each of its slots.
//!
//! Valkey also counts the time and the bytes of commands by slot, if it is told to (`cluster-slot-stats-enabled`). That
//! would cost each command, so it is left out here; there are the keys, which are counted in any case.

use super::super::context::{Gather, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::{Args, Out};
use super::slots::check_enabled;
use super::{GROUP, TIPS};
use crate::base::hash::SLOTS;
use crate::base::lossless;

/// `CLUSTER SLOT-STATS <SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>`
pub(super) static SLOT_STATS: Command = Command::sub("cluster|slot-stats", "slot-stats", GROUP, -4)
    .flags(Flags::STALE.or(Flags::LOADING))
    .doc(
        "8.0.0",
        "<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>",
        "Counts the keys of each hash slot of this node.",
    )
    .complexity("O(N) for N slots that are looked at, O(N log N) with ORDERBY.")
    .tips(TIPS)
    .on_each_shard(part, merge);

/// Which slots are asked for, and in which order.
struct Request {
    first: u16,
    last: u16,
    /// Whether they are ordered by their keys, and whether those with most come first.
    order: Option<Order>,
    limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

impl Request {
    fn read(args: &Args<'_>) -> Result<Request, CommandError> {
        if args.is(2, "slotsrange") && args.len() == 5 {
            let (first, last) = (slot_at(args, 3)?, slot_at(args, 4)?);
            if first > last {
                return Err(format!(
                    "ERR Start slot number {first} is greater than end slot number {last}"
                )
                .into());
            }
            let limit = usize::from(SLOTS);
            let order = None;
            return Ok(Request {
                first,
                last,
                order,
                limit,
            });
        }
        if !args.is(2, "orderby") {
            let name = lossless::text_of(args.get(1));
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP."
            )
            .into());
        }
        if !args.is(3, "key-count") {
            return Err("ERR Unrecognized sort metric for ORDERBY.".into());
        }
        let (limit, order) = filters(args)?;
        Ok(Request {
            first: 0,
            last: SLOTS - 1,
            order: Some(order.unwrap_or(Order::Descending)),
            limit: limit.unwrap_or(usize::from(SLOTS)),
        })
    }
}

/// LIMIT, and ASC or DESC, each once at most.
fn filters(args: &Args<'_>) -> Result<(Option<usize>, Option<Order>), CommandError> {
    const TWICE: &str = "ERR Multiple filters of the same type are disallowed.";
    let (mut limit, mut order, mut at) = (None, None, 4);
    while at < args.len() {
        let known = match () {
            () if args.is(at, "limit") && at + 1 < args.len() => {
                let number = args.integer(at + 1)?;
                let number = usize::try_from(number).ok();
                let number = number.filter(|number| (1..=usize::from(SLOTS)).contains(number));
                at += 1;
                limit
                    .replace(number.ok_or(
                        "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                    )?)
                    .is_some()
            }
            () if args.is(at, "asc") => order.replace(Order::Ascending).is_some(),
            () if args.is(at, "desc") => order.replace(Order::Descending).is_some(),
            () => return Err(CommandError::Syntax),
        };
        if known {
            return Err(TWICE.into());
        }
        at += 1;
    }
    Ok((limit, order))
}

fn slot_at(args: &Args<'_>, at: usize) -> Result<u16, CommandError> {
    let number = args.integer(at).ok();
    let slot = number.and_then(|number| u16::try_from(number).ok());
    slot.filter(|slot| *slot < SLOTS)
        .ok_or_else(|| "ERR Invalid or out of range slot".into())
}

/// Rows of the slots of one shard: the slot and its keys, in ten bytes.
fn part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let Request { first, last, .. } = Request::read(args)?;
    let (shard, databases) = (cx.shard, cx.config.databases as usize);
    for slot in (first..=last).filter(|slot| slot % shard.count == shard.index) {
        let is_here = gather
            .routes
            .as_ref()
            .is_none_or(|routes| routes.map.owners[usize::from(slot)] == routes.map.myself);
        if is_here {
            let keys: u64 = (0..databases)
                .map(|db| cx.keyspace(0, db).keys_in_slot(slot))
                .sum();
            let row = [&slot.to_be_bytes()[..], &keys.to_be_bytes()].concat();
            gather.rows.push(row);
        }
    }
    Ok(())
}

fn merge(args: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    let Request { order, limit, .. } = Request::read(args)?;
    let rows = gather.rows.iter();
    let mut rows: Vec<(u16, u64)> = rows
        .filter_map(|row| {
            let (slot, keys) = row.split_first_chunk::<2>()?;
            let keys = keys.first_chunk::<8>()?;
            Some((u16::from_be_bytes(*slot), u64::from_be_bytes(*keys)))
        })
        .collect();
    rows.sort_unstable();
    match order {
        None => {}
        Some(Order::Ascending) => rows.sort_by_key(|(_, keys)| *keys),
        Some(Order::Descending) => rows.sort_by_key(|(_, keys)| std::cmp::Reverse(*keys)),
    }
    rows.truncate(limit);
    out.array(rows.len());
    for (slot, keys) in rows {
        out.array(2);
        out.integer(i64::from(slot));
        out.map(1);
        out.bulk(b"key-count");
        out.integer(keys.cast_signed());
    }
    Ok(())
}
