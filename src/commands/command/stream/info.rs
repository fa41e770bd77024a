//! XINFO: properties of streams, groups and consumers.

use super::group::no_group_of;
use super::producers::usual_rules;
use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{now_ms, reply_entries, reply_entry, reply_id, stream_at};
use crate::command::declaration::{Group, KeyFlags, KeySpec};
use crate::command::error::shown_name;
use basalt_engine::value::stream::StreamValue;
use basalt_engine::value::stream::consumer::{NEVER, StreamConsumer};
use basalt_engine::value::stream::group::{ConsumerGroup, UNKNOWN_READ};
use basalt_engine::value::stream::producers::{ProducerFacts, ProducerLimits};

const KEY: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))];

/// `XINFO subcommand`
pub(super) static XINFO: Command = Command::new("xinfo", Group::Stream, -2)
    .doc("5.0.0", "", "Groups the commands that describe streams.")
    .complexity("Depends on subcommand.")
    .container(&[&CONSUMERS, &GROUPS, &HELP, &STREAM]);

/// `XINFO CONSUMERS key groupname`
static CONSUMERS: Command = Command::sub("xinfo|consumers", "consumers", Group::Stream, 4)
    .reads(KEY)
    .doc(
        "5.0.0",
        "key groupname",
        "Describes the consumers of a group.",
    )
    .complexity("O(N), N being the count of consumers.")
    .history(&[("7.2.0", "The reply includes the field `inactive`.")])
    .tips(&["nondeterministic_output"])
    .on_keys(consumers);

fn consumers(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let now_ms = now_ms(cx);
    with_stream(cx, args, |stream| {
        let name = args.get(3);
        let group = stream.groups.get(name);
        let group = group.ok_or_else(|| no_group_of(args.get(2), name))?;
        out.array(group.consumers().len());
        for consumer in group.consumers() {
            out.map(4);
            out.bulk(b"name");
            out.bulk(&consumer.name);
            out.bulk(b"pending");
            out.integer(consumer.pending_count() as i64);
            out.bulk(b"idle");
            out.integer(now_ms.saturating_sub(consumer.seen_ms).max(0));
            out.bulk(b"inactive");
            out.integer(match consumer.active_ms {
                NEVER => NEVER,
                at_ms => now_ms.saturating_sub(at_ms),
            });
        }
        Ok(())
    })
}

/// Calls `show` with the stream. Returns an error if the key does not exist.
fn with_stream(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    show: impl FnOnce(&StreamValue) -> CommandResult,
) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .read_typed(&key, DataType::Stream)?
        .ok_or(CommandError::NoSuchKey)?;
    show(stream_at(&keyspace, place))
}

/// `XINFO GROUPS key`
static GROUPS: Command = Command::sub("xinfo|groups", "groups", Group::Stream, 3)
    .reads(KEY)
    .doc("5.0.0", "key", "Describes the consumer groups of a stream.")
    .complexity("O(N), N being the count of groups.")
    .history(&[(
        "7.0.0",
        "The reply includes the number of entries read and the lag of each group.",
    )])
    .on_keys(groups);

fn groups(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    with_stream(cx, args, |stream| {
        out.array(stream.groups.len());
        for (name, group) in stream.groups.iter() {
            out.map(6);
            out.bulk(b"name");
            out.bulk(name);
            out.bulk(b"consumers");
            out.integer(group.consumers().len() as i64);
            out.bulk(b"pending");
            out.integer(group.pending_count() as i64);
            reply_progress(stream, group, out);
        }
        Ok(())
    })
}

/// Writes how far a group has read: three pairs of a map.
fn reply_progress(stream: &StreamValue, group: &ConsumerGroup, out: &mut Out) {
    out.bulk(b"last-delivered-id");
    reply_id(group.last_id, out);
    out.bulk(b"entries-read");
    match group.entries_read {
        UNKNOWN_READ => out.null(),
        count => out.integer(count),
    }
    out.bulk(b"lag");
    match group.lag(stream.metadata()) {
        Some(lag) => out.integer(lag),
        None => out.null(),
    }
}

/// `XINFO STREAM key [FULL [COUNT count]]`
static STREAM: Command = Command::sub("xinfo|stream", "stream", Group::Stream, -3)
    .reads(KEY)
    .doc(
        "5.0.0",
        "key [FULL [COUNT count]]",
        "Describes a stream, optionally with its entries, groups and consumers.",
    )
    .history(&[
        ("6.0.0", "New option: `FULL`."),
        (
            "7.0.0",
            "The reply includes the number of added entries, deletions and the progress of groups.",
        ),
        (
            "7.2.0",
            "The reply includes when a consumer last received entries and was last seen.",
        ),
        (
            "8.6.0",
            "The reply includes the entries remembered per producer.",
        ),
        (
            "8.8.0",
            "With `FULL` the reply includes the number of entries returned to groups.",
        ),
    ])
    .on_keys(stream);

/// Number of entries and pending entries that FULL lists by default.
const COUNT_USUAL: u64 = 10;

fn stream(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (usual, now_ms) = (usual_rules(cx.config), cx.now.unix_ms);
    with_stream(cx, args, |stream| {
        match full_count(args)? {
            None => {
                out.map(16);
                reply_facts(stream, out);
                reply_producers(stream, usual, now_ms, out);
                reply_ends(stream, out);
            }
            Some(count_max) => {
                out.map(15);
                reply_facts(stream, out);
                reply_producers(stream, usual, now_ms, out);
                reply_all(stream, count_max, out);
            }
        }
        Ok(())
    })
}

/// Parses the number of entries that FULL lists; 0 for all; None if COUNT is not given.
fn full_count(args: &Args<'_>) -> Result<Option<u64>, CommandError> {
    let wrong = || {
        let name = shown_name(args.get(1));
        CommandError::from(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try XINFO HELP."
        ))
    };
    if args.len() == 3 {
        return Ok(None);
    }
    if !args.is(3, "full") {
        return Err(wrong());
    }
    match args.len() {
        4 => Ok(Some(COUNT_USUAL)),
        6 if args.is(4, "count") => {
            let count = args.integer(5)?;
            Ok(Some(u64::try_from(count).unwrap_or(COUNT_USUAL)))
        }
        _ => Err(wrong()),
    }
}

/// Replies with the stream's properties: seven pairs of a map.
fn reply_facts(stream: &StreamValue, out: &mut Out) {
    let metadata = stream.metadata();
    out.bulk(b"length");
    out.integer(metadata.length as i64);
    out.bulk(b"radix-tree-keys");
    out.integer(stream.node_count() as i64);
    out.bulk(b"radix-tree-nodes");
    out.integer(stream.tree_node_count() as i64);
    out.bulk(b"last-generated-id");
    reply_id(metadata.last_id, out);
    out.bulk(b"max-deleted-entry-id");
    reply_id(metadata.max_deleted_id, out);
    out.bulk(b"entries-added");
    out.integer(metadata.entries_added as i64);
    out.bulk(b"recorded-first-entry-id");
    reply_id(metadata.first_id, out);
}

/// Replies with the figures of producers: six pairs of a map.
fn reply_producers(stream: &StreamValue, usual: ProducerLimits, now_ms: u64, out: &mut Out) {
    let known = stream.producers();
    let facts = known.map_or(ProducerFacts::under(usual), |producers| producers.facts());
    let (producers, ids) = known.map_or((0, 0), |producers| producers.counts(now_ms));
    for (name, value) in [
        ("idmp-duration", facts.rules.seconds),
        ("idmp-maxsize", facts.rules.each_max),
        ("pids-tracked", producers as u64),
        ("iids-tracked", ids as u64),
        ("iids-added", facts.added),
        ("iids-duplicates", facts.duplicates),
    ] {
        out.bulk(name.as_bytes());
        out.integer(value as i64);
    }
}

fn reply_ends(stream: &StreamValue, out: &mut Out) {
    out.bulk(b"groups");
    out.integer(stream.groups.len() as i64);
    let mut backwards = stream.range_reverse(StreamId::MIN, StreamId::MAX);
    for (name, item) in [
        ("first-entry", stream.all().next()),
        ("last-entry", backwards.next()),
    ] {
        out.bulk(name.as_bytes());
        match item {
            Some(item) => reply_entry(&item, out),
            None => out.null(),
        }
    }
}

fn reply_all(stream: &StreamValue, count_max: u64, out: &mut Out) {
    out.bulk(b"entries");
    reply_entries(stream.all(), count_max, out);
    out.bulk(b"groups");
    out.array(stream.groups.len());
    for (name, group) in stream.groups.iter() {
        out.map(8);
        out.bulk(b"name");
        out.bulk(name);
        reply_progress(stream, group, out);
        out.bulk(b"pel-count");
        out.integer(group.pending_count() as i64);
        out.bulk(b"pending");
        out.array(shown(group.pending_count(), count_max));
        let pending = group.pending_between(StreamId::MIN, StreamId::MAX);
        for (id, one) in pending.take(shown(group.pending_count(), count_max)) {
            out.array(4);
            reply_id(id, out);
            out.bulk(group.owner_name(one));
            out.integer(one.shown_ms());
            out.integer(one.deliveries as i64);
        }
        out.bulk(b"consumers");
        out.array(group.consumers().len());
        for consumer in group.consumers() {
            reply_consumer(group, consumer, count_max, out);
        }
        out.bulk(b"nacked-count");
        out.integer(group.returned_count() as i64);
    }
}

fn reply_consumer(group: &ConsumerGroup, consumer: &StreamConsumer, count_max: u64, out: &mut Out) {
    out.map(5);
    out.bulk(b"name");
    out.bulk(&consumer.name);
    out.bulk(b"seen-time");
    out.integer(consumer.seen_ms);
    out.bulk(b"active-time");
    out.integer(consumer.active_ms);
    out.bulk(b"pel-count");
    out.integer(consumer.pending_count() as i64);
    out.bulk(b"pending");
    let mark = out.later();
    let mut count = 0;
    let own = consumer.pending_ids();
    for id in own.take(shown(consumer.pending_count(), count_max)) {
        if let Some(one) = group.pending(id) {
            out.array(3);
            reply_id(id, out);
            out.integer(one.delivered_ms);
            out.integer(one.deliveries as i64);
            count += 1;
        }
    }
    out.close_array(mark, count);
}

/// Returns how many of `count` items are listed; `count_max` 0 means all.
fn shown(count: usize, count_max: u64) -> usize {
    match count_max {
        0 => count,
        max => usize::try_from(max).map_or(count, |max| count.min(max)),
    }
}

/// `XINFO HELP`
static HELP: Command = Command::sub("xinfo|help", "help", Group::Stream, 2)
    .doc("5.0.0", "", "Lists the subcommands.")
    .on_help(&[
        "CONSUMERS <key> <groupname>",
        "    Describe the consumers of a group.",
        "GROUPS <key>",
        "    Describe the groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Describe a stream.",
    ]);
