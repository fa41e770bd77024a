//! Commands that give pending entries to another consumer: XCLAIM by ID, XAUTOCLAIM by how long entries have been
//! pending.

use super::logged::{self, ConsumerNames, GroupReadPosition};
use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{edit_stream, event, interval_start, no_group, now_ms, reply_entry, reply_id};
use super::{stream_at, strict_id, unnotified};
use crate::command::declaration::{Flags, Group, KeyFlags, KeySpec};
use crate::command::error::shown;
use basalt_core::base::number;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::stream::consumer::Pending;
use basalt_engine::value::stream::{StreamValue, stream_of};

/// `XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count]
/// [FORCE] [JUSTID] [LASTID id]`
pub(super) static XCLAIM: Command = Command::new("xclaim", Group::Stream, -6)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "5.0.0",
        "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
         [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]",
        "Changes the owner of pending entries to a consumer.",
    )
    .complexity("O(log N) for each ID, N being the count of pending entries.")
    .tips(&["nondeterministic_output"])
    .on_keys(xclaim);

struct Claim {
    idle_ms_min: i64,
    ids: Vec<StreamId>,
    delivered_ms: i64,
    deliveries: Option<u64>,
    forces: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl Claim {
    fn parse(args: &Args<'_>, now_ms: i64) -> Result<Claim, CommandError> {
        let number = |at: usize, error: &'static str| number::parse_i64(args.get(at)).ok_or(error);
        let idle_ms_min = number(4, "ERR Invalid min-idle-time argument for XCLAIM")?;
        let ids: Vec<StreamId> = args.from(5).map_while(|id| strict_id(id).ok()).collect();
        let mut at = 5 + ids.len();
        let mut claim = Claim {
            idle_ms_min: idle_ms_min.max(0),
            ids,
            delivered_ms: now_ms,
            deliveries: None,
            forces: false,
            only_ids: false,
            last_id: StreamId::MIN,
        };
        // An implausible time is replaced by now: clients compute it from clocks of their own.
        let sane = |ms: i64| {
            if (0..=now_ms).contains(&ms) {
                ms
            } else {
                now_ms
            }
        };
        while at < args.len() {
            let has_more = at + 1 < args.len();
            if args.is(at, "force") {
                claim.forces = true;
            } else if args.is(at, "justid") {
                claim.only_ids = true;
            } else if args.is(at, "idle") && has_more {
                at += 1;
                let idle_ms = number(at, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered_ms = sane(now_ms.wrapping_sub(idle_ms));
            } else if args.is(at, "time") && has_more {
                at += 1;
                claim.delivered_ms =
                    sane(number(at, "ERR Invalid TIME option argument for XCLAIM")?);
            } else if args.is(at, "retrycount") && has_more {
                at += 1;
                let count = number(at, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.deliveries = u64::try_from(count).ok();
            } else if args.is(at, "lastid") && has_more {
                at += 1;
                claim.last_id = strict_id(args.get(at))?;
            } else {
                let word = shown(args.get(at));
                return Err(format!("ERR Unrecognized XCLAIM option '{word}'").into());
            }
            at += 1;
        }
        Ok(claim)
    }

    /// Claims the entries that may be claimed, and adds their IDs to `claimed`; IDs of entries that were pending and
    /// no longer exist are added to `gone`. Both vectors have enough capacity. Returns whether a consumer was
    /// created, and whether anything else changed.
    fn run(
        &self,
        stream: &mut StreamValue,
        names: (&[u8], &[u8]),
        now_ms: i64,
        claimed: &mut Vec<StreamId>,
        gone: &mut Vec<StreamId>,
    ) -> (bool, bool) {
        let mut changed = false;
        let consumer = stream.groups.get_mut(names.0).map(|group| {
            if self.last_id > group.last_id {
                group.last_id = self.last_id;
                changed = true;
            }
            group.see_consumer(names.1, now_ms)
        });
        let Some((consumer, created)) = consumer else {
            return (false, false);
        };
        for &id in &self.ids {
            let exists = stream.contains(id);
            let Some(group) = stream.groups.get_mut(names.0) else {
                break;
            };
            if !exists {
                if group.acknowledge(id) {
                    gone.push(id);
                    changed = true;
                }
                continue;
            }
            let counted = match group.pending(id) {
                Some(pending) => {
                    let idle_ms = now_ms.saturating_sub(pending.delivered_ms);
                    if self.idle_ms_min != 0 && idle_ms < self.idle_ms_min {
                        continue;
                    }
                    pending.deliveries_with(u64::from(!self.only_ids))
                }
                None if self.forces => 1 + u64::from(!self.only_ids),
                None => continue,
            };
            let pending = Pending {
                delivered_ms: self.delivered_ms,
                deliveries: self.deliveries.unwrap_or(counted),
                consumer,
            };
            group.set_pending(id, pending);
            group.consumer_mut(consumer).active_ms = now_ms;
            claimed.push(id);
            changed = true;
        }
        (created, changed)
    }
}

/// Returns the place of a stream that has a group of this name.
fn place_with_group(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    group: &[u8],
) -> Result<EntrySlot, CommandError> {
    keyspace
        .read_typed(key, DataType::Stream)?
        .filter(|place| stream_at(keyspace, *place).groups.get(group).is_some())
        .ok_or_else(|| no_group(key.bytes, group))
}

fn xclaim(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let names = (args.get(2), args.get(3));
    let now_ms = now_ms(cx);
    let mut keyspace = cx.at(&key);
    let place = place_with_group(&mut keyspace, &key, names.0)?;
    let claim = Claim::parse(args, now_ms)?;
    let mut claimed = Vec::with_capacity(claim.ids.len());
    let mut gone = Vec::with_capacity(claim.ids.len());
    let (created, changed) = edit_stream(&mut keyspace, place, |stream| {
        claim.run(stream, names, now_ms, &mut claimed, &mut gone)
    });
    if created {
        keyspace.wrote_metadata(key.bytes, event("xgroup-createconsumer"));
    }
    if changed {
        keyspace.wrote_metadata(key.bytes, unnotified("xclaim"));
    }
    reply_claimed(stream_at(&keyspace, place), &claimed, claim.only_ids, out);
    let moved = changed && claimed.is_empty() && gone.is_empty();
    log(cx, args, &claimed, &gone, (created, moved));
    Ok(())
}

/// Logs the entries that the consumer owns now, the entries that are no longer pending, and, if nothing else implies
/// it, that the consumer was `created`, or that the group's last ID `moved`.
fn log(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    claimed: &[StreamId],
    gone: &[StreamId],
    (created, moved): (bool, bool),
) {
    if !cx.is_logged() {
        return;
    }
    let (key, routed) = (args.key(1), args.routed(1));
    let names = ConsumerNames {
        key: key.bytes,
        group: args.get(2),
        consumer: args.get(3),
    };
    let group = cx.peek(&routed, &key).and_then(stream_of);
    let Some(group) = group.and_then(|stream| stream.groups.get(names.group)) else {
        return;
    };
    let position = GroupReadPosition::of(group);
    let pending = |id: &StreamId| Some((*id, group.pending(*id)?));
    let pending: Vec<(StreamId, Pending)> = claimed.iter().filter_map(pending).collect();
    cx.log_nothing();
    if created && pending.is_empty() {
        logged::consumer(cx, names);
    }
    logged::acknowledged(cx, names.key, names.group, gone);
    logged::claims(cx, names, &pending, position);
    if moved {
        logged::position(cx, names, position);
    }
}

fn reply_claimed(stream: &StreamValue, claimed: &[StreamId], only_ids: bool, out: &mut Out) {
    out.array(claimed.len());
    for &id in claimed {
        match stream.range(id, id).next() {
            Some(item) if !only_ids => reply_entry(&item, out),
            _ => reply_id(id, out),
        }
    }
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`
pub(super) static XAUTOCLAIM: Command = Command::new("xautoclaim", Group::Stream, -6)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST)
    .doc(
        "6.2.0",
        "key group consumer min-idle-time start:string [COUNT count] [JUSTID]",
        "Changes the owner of entries that have been pending for long; returns where to continue.",
    )
    .complexity("O(1) if COUNT is small.")
    .history(&[(
        "7.0.0",
        "Returns also the IDs of entries that were deleted.",
    )])
    .tips(&["nondeterministic_output"])
    .on_keys(xautoclaim);

/// Pending entries that are examined per requested entry.
const ATTEMPTS_PER_COUNT: u64 = 10;
const COUNT_MAX: i64 = i64::MAX / 16;

struct AutoClaim {
    idle_ms_min: i64,
    start: StreamId,
    count_max: u64,
    only_ids: bool,
}

/// The result of XAUTOCLAIM.
struct Claimed {
    ids: Vec<StreamId>,
    gone: Vec<StreamId>,
    next: StreamId,
    created: bool,
}

impl AutoClaim {
    fn parse(args: &Args<'_>) -> Result<AutoClaim, CommandError> {
        let idle_ms_min = number::parse_i64(args.get(4))
            .ok_or("ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
        let mut claim = AutoClaim {
            idle_ms_min: idle_ms_min.max(0),
            start: interval_start(args.get(5))?,
            count_max: 100,
            only_ids: false,
        };
        let mut at = 6;
        while at < args.len() {
            if args.is(at, "count") && at + 1 < args.len() {
                at += 1;
                let count = number::parse_i64(args.get(at));
                let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
                claim.count_max = count.ok_or("ERR COUNT must be > 0")? as u64;
            } else if args.is(at, "justid") {
                claim.only_ids = true;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(claim)
    }

    fn run(
        &self,
        stream: &mut StreamValue,
        names: (&[u8], &[u8]),
        now_ms: i64,
        claimed: &mut Claimed,
    ) {
        let group = stream.groups.get_mut(names.0);
        let Some((consumer, created)) = group.map(|group| group.see_consumer(names.1, now_ms))
        else {
            return;
        };
        claimed.created = created;
        let mut attempts = self.count_max.saturating_mul(ATTEMPTS_PER_COUNT);
        let mut from = Some(self.start);
        let next_pending = |stream: &StreamValue, from: Option<StreamId>| {
            let group = stream.groups.get(names.0)?;
            group.pending_between(from?, StreamId::MAX).next()
        };
        while attempts > 0 && ((claimed.ids.len() + claimed.gone.len()) as u64) < self.count_max {
            let Some((id, pending)) = next_pending(stream, from) else {
                break;
            };
            attempts -= 1;
            from = id.next();
            let exists = stream.contains(id);
            let Some(group) = stream.groups.get_mut(names.0) else {
                break;
            };
            if !exists {
                group.acknowledge(id);
                claimed.gone.push(id);
                continue;
            }
            let idle_ms = now_ms.saturating_sub(pending.delivered_ms);
            if self.idle_ms_min != 0 && idle_ms < self.idle_ms_min {
                continue;
            }
            let more = u64::from(!self.only_ids);
            let pending = Pending {
                delivered_ms: now_ms,
                deliveries: pending.deliveries_with(more),
                consumer,
            };
            group.set_pending(id, pending);
            group.consumer_mut(consumer).active_ms = now_ms;
            claimed.ids.push(id);
        }
        claimed.next = next_pending(stream, from).map_or(StreamId::MIN, |(id, _)| id);
    }
}

fn xautoclaim(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let claim = AutoClaim::parse(args)?;
    let key = args.key(1);
    let names = (args.get(2), args.get(3));
    let now_ms = now_ms(cx);
    let mut keyspace = cx.at(&key);
    let place = place_with_group(&mut keyspace, &key, names.0)?;
    let pending = stream_at(&keyspace, place).groups.get(names.0);
    let pending = pending.map_or(0, |group| group.pending_count());
    // Reserves capacity for all possible results, so that nothing is charged to the stream.
    let room = usize::try_from(claim.count_max).map_or(pending, |count| count.min(pending));
    let mut claimed = Claimed {
        ids: Vec::with_capacity(room),
        gone: Vec::with_capacity(room),
        next: StreamId::MIN,
        created: false,
    };
    edit_stream(&mut keyspace, place, |stream| {
        claim.run(stream, names, now_ms, &mut claimed);
    });
    if claimed.created {
        keyspace.wrote_metadata(key.bytes, event("xgroup-createconsumer"));
    }
    if !claimed.ids.is_empty() || !claimed.gone.is_empty() {
        keyspace.wrote_metadata(key.bytes, unnotified("xclaim"));
    }
    out.array(3);
    reply_id(claimed.next, out);
    reply_claimed(
        stream_at(&keyspace, place),
        &claimed.ids,
        claim.only_ids,
        out,
    );
    out.array(claimed.gone.len());
    for id in &claimed.gone {
        reply_id(*id, out);
    }
    log(
        cx,
        args,
        &claimed.ids,
        &claimed.gone,
        (claimed.created, false),
    );
    Ok(())
}
