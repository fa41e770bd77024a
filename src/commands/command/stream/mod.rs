//! Streams: logs of entries, read by many or distributed among the consumers of a group.
//!
//! ```text
//! this file  XLEN XSETID, and shared code: IDs as clients write them, replies of entries
//! add        XADD XTRIM
//! delete     XDEL XDELEX XACKDEL
//! range      XRANGE XREVRANGE
//! read       XREAD XREADGROUP
//! group      XGROUP
//! pending    XACK XPENDING
//! claim      XCLAIM XAUTOCLAIM
//! info       XINFO
//! give_back  XNACK
//! producers  XCFGSET XIDMPRECORD, and the implementation of IDMP and IDMPAUTO of XADD
//! ```

mod add;
mod claim;
mod delete;
mod give_back;
mod group;
mod info;
mod logged;
mod pending;
mod producers;
mod range;
mod read;
#[cfg(test)]
mod tests;

use super::context::ShardCx;
use super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::{CommandError, shown};
use super::{Args, Out};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::stream::id::{ParsedId, StreamId};
use basalt_engine::value::stream::node::StreamEntry;
use basalt_engine::value::stream::{StreamValue, stream_of, stream_of_mut};

pub(super) static TABLE: &[&Command] = &[
    &pending::XACK,
    &delete::XACKDEL,
    &add::XADD,
    &claim::XAUTOCLAIM,
    &producers::XCFGSET,
    &claim::XCLAIM,
    &delete::XDEL,
    &delete::XDELEX,
    &group::XGROUP,
    &producers::XIDMPRECORD,
    &info::XINFO,
    &XLEN,
    &give_back::XNACK,
    &pending::XPENDING,
    &range::XRANGE,
    &read::XREAD,
    &read::XREADGROUP,
    &range::XREVRANGE,
    &XSETID,
    &add::XTRIM,
];

/// Returns an event of streams.
const fn event(name: &'static str) -> Event {
    Event::new(b't', name)
}

/// Returns an event with a class that clients cannot subscribe to, for changes of which Redis notifies no client.
const fn unnotified(name: &'static str) -> Event {
    Event::new(0, name)
}

// IDs --------------------------------------------------------------------------------------------------

#[cold]
fn invalid_id() -> CommandError {
    "ERR Invalid stream ID specified as stream command argument".into()
}

/// Parses an ID other than `-` and `+`; a missing sequence is 0.
fn strict_id(text: &[u8]) -> Result<StreamId, CommandError> {
    StreamId::parse(text, 0).ok_or_else(invalid_id)
}

/// Parses an ID, or `-` or `+`.
fn any_id(text: &[u8], seq_missing: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => StreamId::parse(text, seq_missing).ok_or_else(invalid_id),
    }
}

/// Parses the start of an interval; a leading `(` excludes the ID itself.
fn interval_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text.strip_prefix(b"(") {
        Some(id) if !id.is_empty() => StreamId::parse(id, 0)
            .ok_or_else(invalid_id)?
            .next()
            .ok_or_else(|| "ERR invalid start ID for the interval".into()),
        _ => any_id(text, 0),
    }
}

/// Parses the end of an interval, like `interval_start`.
fn interval_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text.strip_prefix(b"(") {
        Some(id) if !id.is_empty() => StreamId::parse(id, u64::MAX)
            .ok_or_else(invalid_id)?
            .previous()
            .ok_or_else(|| "ERR invalid end ID for the interval".into()),
        _ => any_id(text, u64::MAX),
    }
}

/// Parses all arguments as IDs, starting at a position.
fn ids_from(args: &Args<'_>, first: usize) -> Result<Vec<StreamId>, CommandError> {
    args.from(first).map(strict_id).collect()
}

// Streams in the keyspace ------------------------------------------------------------------------------

/// Returns the stream at a place that a lookup for streams found.
fn stream_at<'k>(keyspace: &'k Keyspace<'_>, place: EntrySlot) -> &'k StreamValue {
    stream_of(keyspace.entry(place)).expect("looked up as a stream")
}

/// Changes the stream at a place that a lookup for streams found. The result of `change` must own no memory.
fn edit_stream<R>(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    change: impl FnOnce(&mut StreamValue) -> R,
) -> R {
    keyspace.edit(place, |entry| {
        change(stream_of_mut(entry).expect("looked up as a stream"))
    })
}

#[cold]
fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::from(format!(
        "NOGROUP No such key '{}' or consumer group '{}'",
        shown(key),
        shown(group)
    ))
}

/// Returns the current time in Unix milliseconds, in the type that consumer groups use.
fn now_ms(cx: &ShardCx<'_>) -> i64 {
    cx.now.unix_ms as i64
}

// Replies ----------------------------------------------------------------------------------------------

fn reply_id(id: StreamId, out: &mut Out) {
    out.bulk(id.text().as_bytes());
}

/// Replies with an entry: its ID, and its names and values in turn.
fn reply_entry(item: &StreamEntry<'_>, out: &mut Out) {
    out.array(2);
    reply_id(item.id, out);
    out.array(2 * item.field_count());
    for (name, value) in item.fields() {
        name.with_bytes(|bytes| out.bulk(bytes));
        value.with_bytes(|bytes| out.bulk(bytes));
    }
}

/// Replies with entries as an array, at most `count_max`; 0 for all. Returns their number.
fn reply_entries<'s>(
    entries: impl Iterator<Item = StreamEntry<'s>>,
    count_max: u64,
    out: &mut Out,
) -> usize {
    let mark = out.later();
    let mut count = 0;
    for item in entries {
        reply_entry(&item, out);
        count += 1;
        if count as u64 == count_max {
            break;
        }
    }
    out.close_array(mark, count);
    count
}

/// `XLEN key`
static XLEN: Command = Command::new("xlen", Group::Stream, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO)])
    .flags(Flags::FAST)
    .doc("5.0.0", "key", "Returns the number of entries of a stream.")
    .on_keys(xlen);

fn xlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Stream)?;
    let length = found.map_or(0, |place| stream_at(&keyspace, place).metadata().length);
    out.integer(length as i64);
    Ok(())
}

/// `XSETID key last-id [ENTRIESADDED entries_added] [MAXDELETEDID max_deleted_entry_id]`
static XSETID: Command = Command::new("xsetid", Group::Stream, -3)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM.or(Flags::FAST).or(Flags::ENTRIES_ONLY))
    .doc(
        "5.0.0",
        "key last-id [ENTRIESADDED entries_added:integer] [MAXDELETEDID max_deleted_entry_id]",
        "Sets the last ID of a stream; used in replication.",
    )
    .history(&[(
        "7.0.0",
        "Accepts the number of entries ever added and the greatest deleted ID.",
    )])
    .on_keys(xsetid);

fn xsetid(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let last_id = strict_id(args.get(2))?;
    let mut entries_added = None;
    let mut max_deleted_id = StreamId::MIN;
    let mut at = 3;
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if args.is(at, "entriesadded") && has_more {
            let count = args.integer(at + 1)?;
            let count = u64::try_from(count).map_err(|_| "ERR entries_added must be positive")?;
            entries_added = Some(count);
        } else if args.is(at, "maxdeletedid") && has_more {
            max_deleted_id = strict_id(args.get(at + 1))?;
            if last_id < max_deleted_id {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided \
                            max_deleted_entry_id"
                        .into(),
                );
            }
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .find_typed(&key, DataType::Stream)?
        .ok_or(CommandError::NoSuchKey)?;
    let stream = stream_at(&keyspace, place);
    let mut metadata = stream.metadata();
    if last_id < metadata.max_deleted_id {
        return Err(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into(),
        );
    }
    if metadata.length > 0 {
        if stream.last_entry_id().is_some_and(|top| last_id < top) {
            return Err(
                "ERR The ID specified in XSETID is smaller than the target stream top item".into(),
            );
        }
        if entries_added.is_some_and(|added| metadata.length > added) {
            return Err(
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
                    .into(),
            );
        }
    }
    metadata.last_id = last_id;
    if let Some(added) = entries_added {
        metadata.entries_added = added;
    }
    if max_deleted_id != StreamId::MIN {
        metadata.max_deleted_id = max_deleted_id;
    }
    edit_stream(&mut keyspace, place, |stream| stream.set_metadata(metadata));
    keyspace.wrote_metadata(key.bytes, event("xsetid"));
    out.ok();
    Ok(())
}
