//! Entries that were delivered and not acknowledged.

use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{edit_stream, ids_from, interval_end, interval_start, no_group, now_ms, reply_id};
use super::{stream_at, unnotified};
use crate::command::declaration::{Flags, Group, KeySpec};
use basalt_engine::value::stream::consumer::Pending;
use basalt_engine::value::stream::group::ConsumerGroup;

/// `XACK key group id [id ...]`
pub(super) static XACK: Command = Command::new("xack", Group::Stream, -4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "5.0.0",
        "key group id [id ...]",
        "Acknowledges pending entries and returns how many were pending.",
    )
    .complexity("O(log N) for each ID, N being the count of pending entries.")
    .on_keys(xack);

fn xack(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let name = args.get(2);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Stream)?;
    let place = found.filter(|place| stream_at(&keyspace, *place).groups.get(name).is_some());
    let Some(place) = place else {
        out.integer(0);
        return Ok(());
    };
    let ids = ids_from(args, 3)?;
    let count = edit_stream(&mut keyspace, place, |stream| {
        stream.groups.get_mut(name).map_or(0, |group| {
            ids.iter().filter(|id| group.acknowledge(**id)).count()
        })
    });
    if count > 0 {
        keyspace.wrote_metadata(key.bytes, unnotified("xack"));
    }
    out.integer(count as i64);
    Ok(())
}

/// `XPENDING key group [[IDLE min-idle-time] start end count [consumer]]`
pub(super) static XPENDING: Command = Command::new("xpending", Group::Stream, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "5.0.0",
        "key group [[IDLE min-idle-time:integer] start:string end:string count [consumer]]",
        "Returns the entries of a group that were delivered and not acknowledged.",
    )
    .complexity("O(N), N being the count of entries answered or skipped, or of consumers.")
    .history(&[(
        "6.2.0",
        "New option: `IDLE`; range bounds can be exclusive.",
    )])
    .tips(&["nondeterministic_output"])
    .on_keys(xpending);

/// The pending entries that are requested.
struct PendingFilter<'a> {
    idle_ms_min: i64,
    start: StreamId,
    end: StreamId,
    count_max: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingFilter<'a> {
    fn parse(args: &Args<'a>) -> Result<Option<PendingFilter<'a>>, CommandError> {
        match args.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(CommandError::Syntax),
        }
        let mut at = 3;
        let mut idle_ms_min = 0;
        if args.is(3, "idle") {
            idle_ms_min = args.integer(4)?;
            if args.len() < 8 {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        let count_max = u64::try_from(args.integer(at + 2)?).unwrap_or(0);
        Ok(Some(PendingFilter {
            idle_ms_min,
            start: interval_start(args.get(at))?,
            end: interval_end(args.get(at + 1))?,
            count_max,
            consumer: (at + 3 < args.len()).then(|| args.get(at + 3)),
        }))
    }
}

fn xpending(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let filter = PendingFilter::parse(args)?;
    let key = args.key(1);
    let name = args.get(2);
    let now_ms = now_ms(cx);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Stream)?;
    let group = found
        .and_then(|place| stream_at(&keyspace, place).groups.get(name))
        .ok_or_else(|| no_group(key.bytes, name))?;
    match filter {
        None => summarise(group, out),
        Some(filter) => list(group, &filter, now_ms, out),
    }
    Ok(())
}

fn summarise(group: &ConsumerGroup, out: &mut Out) {
    out.array(4);
    out.integer(group.pending_count() as i64);
    let Some((first, last)) = group.pending_ends() else {
        out.null();
        out.null();
        out.null_array();
        return;
    };
    reply_id(first, out);
    reply_id(last, out);
    let busy = || {
        let consumers = group.consumers();
        consumers.filter(|consumer| consumer.pending_count() > 0)
    };
    out.array(busy().count());
    for consumer in busy() {
        out.array(2);
        out.bulk(&consumer.name);
        out.bulk_integer(consumer.pending_count() as i64);
    }
}

fn list(group: &ConsumerGroup, filter: &PendingFilter<'_>, now_ms: i64, out: &mut Out) {
    match filter.consumer {
        None => {
            let pending = group.pending_between(filter.start, filter.end);
            list_some(group, pending, filter, now_ms, out);
        }
        Some(name) => match group.find_consumer(name) {
            None => out.array(0),
            Some(consumer) => {
                let pending = group.pending_of(consumer, filter.start, filter.end);
                list_some(group, pending, filter, now_ms, out);
            }
        },
    }
}

fn list_some(
    group: &ConsumerGroup,
    pending: impl Iterator<Item = (StreamId, Pending)>,
    filter: &PendingFilter<'_>,
    now_ms: i64,
    out: &mut Out,
) {
    let mark = out.later();
    let mut count = 0;
    for (id, one) in pending {
        if count as u64 >= filter.count_max {
            break;
        }
        let idle_ms = now_ms.saturating_sub(one.delivered_ms);
        if filter.idle_ms_min != 0 && idle_ms < filter.idle_ms_min {
            continue;
        }
        count += 1;
        out.array(4);
        reply_id(id, out);
        out.bulk(group.owner_name(one));
        match one.is_returned() {
            true => out.integer(-1),
            false => out.integer(idle_ms.max(0)),
        }
        out.integer(one.deliveries as i64);
    }
    out.close_array(mark, count);
}
