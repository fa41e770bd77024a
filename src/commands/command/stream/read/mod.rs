//! Reading new entries, from several streams at once, as one of many readers or as a consumer of a group.
//!
//! The first pass over the streams checks everything and changes nothing, so that an error leaves all of them
//! unchanged; the second writes the reply. If there is nothing to return, the request may wait: it runs again, from
//! the start, when one of its streams changes. In that run only the shards of streams that changed may be locked. A
//! waiting request is not woken when entries have been pending long enough to be claimed.

mod bounds;
mod claim;

use super::logged::{self, ConsumerNames, GroupReadPosition};
use super::{Args, Command, CommandError, CommandResult, DataType, EntrySlot, Event, Out, ShardCx};
use super::{StreamId, edit_stream, event, reply_entry, reply_id, stream_at, strict_id};
use super::{reply_entries, unnotified};
use crate::command::args::RoutedKey;
use crate::command::context::Wait;
use crate::command::declaration::{FindKeys, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::shown;
use crate::command::options::blocking_timeout_ms;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::stream::consumer::Pending;
use basalt_engine::value::stream::{StreamValue, stream_of};
use bounds::ReadBudget;

const KEYS: FindKeys = FindKeys::Range {
    last: -1,
    step: 1,
    limit: 2,
};
const COMPLEXITY: &str = "O(N) for each stream, N being the count of entries answered.";

/// `XREAD [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]`
pub(super) static XREAD: Command = Command::new("xread", Group::Stream, -4)
    .reads(&[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))
        .after_keyword("STREAMS", 1)
        .find(KEYS)])
    .flags(Flags::BLOCKING.or(Flags::MOVABLEKEYS))
    .doc(
        "5.0.0",
        "[COUNT count] [MAXCOUNT maxcount:integer] [MAXSIZE maxsize:integer] [BLOCK milliseconds] \
         STREAMS key [key ...] id [id ...]",
        "Returns the entries of streams after given IDs, or blocks until there are some.",
    )
    .complexity(COMPLEXITY)
    .history(&[("8.10.0", "New options: `MAXCOUNT` and `MAXSIZE`.")])
    .finds_keyword(streams_at)
    .takes_long()
    .on_keys(|cx, args, out| read(cx, args, ReadForm::Xread, out));

/// `XREADGROUP GROUP group consumer [COUNT count] … [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]`
pub(super) static XREADGROUP: Command = Command::new("xreadgroup", Group::Stream, -7)
    .writes(&[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))
        .after_keyword("STREAMS", 4)
        .find(KEYS)])
    .flags(Flags::BLOCKING.or(Flags::MOVABLEKEYS))
    .doc(
        "5.0.0",
        "GROUP group consumer [COUNT count] [MAXCOUNT maxcount:integer] [MAXSIZE maxsize:integer] \
         [BLOCK milliseconds] [CLAIM min-idle-time:integer] [NOACK] STREAMS key [key ...] id [id ...]",
        "Delivers new entries of streams to a consumer of a group, or returns its pending ones.",
    )
    .complexity(COMPLEXITY)
    .history(&[
        ("8.4.0", "New option: `CLAIM`."),
        ("8.10.0", "New options: `MAXCOUNT` and `MAXSIZE`."),
    ])
    .finds_keyword(streams_at)
    .takes_long()
    .on_keys(|cx, args, out| read(cx, args, ReadForm::Xreadgroup, out));

/// Returns the position of the word STREAMS that is not the name of a group or a consumer; None if the word is not
/// followed by one ID per key.
fn streams_at<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> Option<usize> {
    let mut at = 1;
    while at < count {
        let is = |word: &str| argument(at).eq_ignore_ascii_case(word.as_bytes());
        at += match () {
            () if is("streams") => {
                let behind = count - at - 1;
                return (behind > 0 && behind.is_multiple_of(2)).then_some(at);
            }
            () if is("block") || is("count") || is("maxcount") || is("maxsize") || is("claim") => 2,
            () if is("group") => 3,
            () if is("noack") => 1,
            () => return None,
        };
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadForm {
    Xread,
    Xreadgroup,
}

/// The group and the consumer that a request of XREADGROUP reads for.
#[derive(Clone, Copy)]
struct GroupReader<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    acknowledges: bool,
    /// Entries that have been pending for at least this many milliseconds are moved to this consumer.
    claims_from_ms: Option<i64>,
}

impl<'a> GroupReader<'a> {
    fn names(self, key: &'a [u8]) -> ConsumerNames<'a> {
        ConsumerNames {
            key,
            group: self.group,
            consumer: self.consumer,
        }
    }
}

/// The options before the streams.
struct XreadOptions<'a> {
    reader: Option<GroupReader<'a>>,
    /// Maximum entries per stream; 0 for no limit.
    count_max: u64,
    /// Limits on all streams together.
    bounds: ReadBudget,
    /// When to stop waiting, in Unix milliseconds; the inner None: never. The outer None: do not wait.
    until_ms: Option<Option<u64>>,
    streams_at: usize,
    stream_count: usize,
}

/// The position from which to read one stream.
#[derive(Clone, Copy)]
enum StreamReadStart {
    /// Entries after this ID: of the stream, or of the consumer's pending entries.
    Behind(StreamId),
    /// Entries not yet delivered to the group.
    New,
}

impl<'a> XreadOptions<'a> {
    fn parse(
        cx: &ShardCx<'_>,
        args: &Args<'a>,
        of: ReadForm,
    ) -> Result<XreadOptions<'a>, CommandError> {
        let mut names = None;
        let mut acknowledges = false;
        let mut claims_from_ms = None;
        let mut options = XreadOptions {
            reader: None,
            count_max: 0,
            bounds: ReadBudget::default(),
            until_ms: None,
            streams_at: 0,
            stream_count: 0,
        };
        let mut at = 1;
        while at < args.len() && options.stream_count == 0 {
            let more = args.len() - at - 1;
            if args.is(at, "block") && more >= 1 {
                at += 1;
                options.until_ms = Some(blocking_timeout_ms(args, at, cx.now)?);
            } else if args.is(at, "count") && more >= 1 {
                at += 1;
                options.count_max = u64::try_from(args.integer(at)?).unwrap_or(0);
            } else if args.is(at, "maxcount") && more >= 1 {
                at += 1;
                options.bounds.entries_left = Some(bounds::positive(args, at)?);
            } else if args.is(at, "maxsize") && more >= 1 {
                at += 1;
                options.bounds.bytes_left = Some(bounds::positive(args, at)?);
            } else if args.is(at, "streams") && more >= 1 {
                if !more.is_multiple_of(2) {
                    return Err(unbalanced(of));
                }
                (options.streams_at, options.stream_count) = (at + 1, more / 2);
            } else if args.is(at, "group") && more >= 2 {
                refuse_of_xread(of, "GROUP")?;
                names = Some((args.get(at + 1), args.get(at + 2)));
                at += 2;
            } else if args.is(at, "noack") {
                refuse_of_xread(of, "NOACK")?;
                acknowledges = true;
            } else if args.is(at, "claim") && more >= 1 {
                refuse_of_xread(of, "CLAIM")?;
                at += 1;
                let idle_ms = args.integer(at).ok().filter(|idle_ms| *idle_ms >= 0);
                let wrong = "ERR min-idle-time must be a non-negative integer";
                claims_from_ms = Some(idle_ms.ok_or(wrong)?);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if options.stream_count == 0 {
            return Err(CommandError::Syntax);
        }
        if of == ReadForm::Xreadgroup && names.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        let least = options.bounds.entries_left;
        if least.is_some_and(|least| least < options.count_max) {
            return Err("ERR MAXCOUNT must be greater than or equal to COUNT".into());
        }
        options.reader = names.map(|(group, consumer)| GroupReader {
            group,
            consumer,
            acknowledges,
            claims_from_ms,
        });
        Ok(options)
    }
}

/// Returns an error for an option that only XREADGROUP has.
fn refuse_of_xread(of: ReadForm, option: &str) -> CommandResult {
    match of {
        ReadForm::Xreadgroup => Ok(()),
        ReadForm::Xread => Err(format!(
            "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        )
        .into()),
    }
}

#[cold]
fn unbalanced(of: ReadForm) -> CommandError {
    match of {
        ReadForm::Xread => {
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
             specified."
        }
        ReadForm::Xreadgroup => {
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must \
             be specified."
        }
    }
    .into()
}

/// Arguments that are replaced when the request runs again.
type Rewritten = Vec<(usize, Vec<u8>)>;

/// Returns the locked streams, each with the position from which to read it, and the arguments that are replaced when
/// the request runs again.
fn targets_of<'a>(
    cx: &mut ShardCx<'_>,
    args: &Args<'a>,
    options: &XreadOptions<'a>,
) -> Result<(Vec<(RoutedKey, StreamReadStart)>, Rewritten), CommandError> {
    let mut targets: Vec<(RoutedKey, StreamReadStart)> = Vec::with_capacity(options.stream_count);
    let mut rewritten = Vec::new();
    for index in 0..options.stream_count {
        let key_at = options.streams_at + index;
        let id_at = key_at + options.stream_count;
        let routed = args
            .keys()
            .iter()
            .find(|key| key.argument as usize == key_at);
        let routed = routed.ok_or(CommandError::Syntax)?;
        if !cx.holds(routed) {
            continue;
        }
        let from = start(cx, args, routed, id_at, options.reader)?;
        if let (b"$", StreamReadStart::Behind(id)) = (args.get(id_at), from) {
            // When the request runs again, entries added from now on must count as new.
            rewritten.push((id_at, id.text().as_bytes().to_vec()));
        }
        targets.push((*routed, from));
    }
    Ok((targets, rewritten))
}

fn read(cx: &mut ShardCx<'_>, args: &Args<'_>, of: ReadForm, out: &mut Out) -> CommandResult {
    let options = XreadOptions::parse(cx, args, of)?;
    let mut bounds = options.bounds;
    // The effects on groups are logged separately for each stream.
    cx.log_nothing();
    let (targets, rewritten) = targets_of(cx, args, &options)?;
    claim::weigh(cx, args, &targets, options.reader)?;
    let mut count = 0;
    let mut mark = None;
    for (routed, from) in targets {
        let key = args.key_of(&routed);
        let mut keyspace = cx.at_routed(&routed);
        let Some(place) = keyspace.find_typed(&key, DataType::Stream)? else {
            continue;
        };
        if bounds.are_reached() {
            break;
        }
        let mut begin = |out: &mut Out| {
            mark.get_or_insert_with(|| out.later());
            count += 1;
            if !out.is_resp3() {
                out.array(2);
            }
            out.bulk(key.bytes);
        };
        match (options.reader, from) {
            (None, StreamReadStart::Behind(id)) => {
                let stream = stream_at(&keyspace, place);
                if stream.last_entry_id().is_some_and(|last| last > id)
                    && let Some(start) = id.next()
                {
                    let entries = stream.range(start, StreamId::MAX);
                    let mut entries = entries.take_while(|item| bounds.admit(item)).peekable();
                    if entries.peek().is_some() {
                        begin(out);
                        reply_entries(entries, options.count_max, out);
                    }
                }
            }
            (Some(reader), StreamReadStart::Behind(id)) => {
                begin(out);
                let most = (options.count_max, &mut bounds);
                let created = answer_history(&mut keyspace, &key, place, reader, id, most, out);
                if created {
                    logged::consumer(cx, reader.names(key.bytes));
                }
            }
            (Some(reader), StreamReadStart::New) => {
                let (ids, created) = answer_new(
                    &mut keyspace,
                    &key,
                    place,
                    reader,
                    (options.count_max, &mut bounds),
                    begin,
                    out,
                );
                if cx.is_logged() {
                    log_read(cx, &routed, &key, reader, &ids, created);
                }
            }
            // `start` has refused this combination.
            (None, StreamReadStart::New) => {}
        }
    }
    match (mark, options.until_ms) {
        (Some(mark), _) if out.is_resp3() => out.close_map(mark, count),
        (Some(mark), _) => out.close_array(mark, count),
        (None, Some(until_ms)) if cx.may_block() => cx.wait(Wait {
            when_gone: of == ReadForm::Xreadgroup,
            rewritten,
            ..Wait::new(DataType::Stream, until_ms)
        }),
        (None, _) => out.null_array(),
    }
    Ok(())
}

/// Returns the position from which to read one stream, after checking it.
fn start(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    routed: &RoutedKey,
    id_at: usize,
    reader: Option<GroupReader<'_>>,
) -> Result<StreamReadStart, CommandError> {
    let key = args.key_of(routed);
    let mut keyspace = cx.at_routed(routed);
    let place = keyspace.read_typed(&key, DataType::Stream)?;
    let stream = place.map(|place| stream_at(&keyspace, place));
    if let Some(reader) = reader
        && stream.is_none_or(|stream| stream.groups.get(reader.group).is_none())
    {
        return Err(CommandError::from(format!(
            "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
            shown(key.bytes),
            shown(reader.group)
        )));
    }
    let last_id = stream.map_or(StreamId::MIN, |stream| stream.metadata().last_id);
    match (args.get(id_at), reader) {
        (b"$", None) => Ok(StreamReadStart::Behind(last_id)),
        (b"+", None) => {
            let last = stream.and_then(StreamValue::last_entry_id);
            let before = last.and_then(StreamId::previous);
            Ok(StreamReadStart::Behind(before.unwrap_or(last_id)))
        }
        (b"$", Some(_)) => Err(meaningless('$')),
        (b"+", Some(_)) => Err(meaningless('+')),
        (b">", Some(_)) => Ok(StreamReadStart::New),
        (b">", None) => Err(
            "ERR The > ID can be specified only when calling XREADGROUP using the \
                             GROUP <group> <consumer> option."
                .into(),
        ),
        (text, reader) => match (strict_id(text)?, reader) {
            // Redis represents `>` by this ID, so it has the same meaning.
            (StreamId::MAX, Some(_)) => Ok(StreamReadStart::New),
            (id, _) => Ok(StreamReadStart::Behind(id)),
        },
    }
}

#[cold]
fn meaningless(id: char) -> CommandError {
    format!(
        "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history \
         of this consumer by specifying a proper ID, or use the > ID to get new messages. The {id} \
         ID would just return an empty result set."
    )
    .into()
}

const CONSUMER_CREATED: Event = event("xgroup-createconsumer");

/// Replies with the consumer's pending entries, from its own list; deleted entries have no fields. Returns whether
/// the consumer was created.
fn answer_history(
    keyspace: &mut Keyspace<'_>,
    key: &basalt_engine::Key<'_>,
    place: EntrySlot,
    reader: GroupReader<'_>,
    behind: StreamId,
    (count_max, bounds): (u64, &mut ReadBudget),
    out: &mut Out,
) -> bool {
    let now_ms = keyspace.now().unix_ms as i64;
    let stream = stream_at(keyspace, place);
    let mut again = Vec::new();
    let mut count = 0;
    let mark = out.later();
    if let Some(group) = stream.groups.get(reader.group)
        && let Some(consumer) = group.find_consumer(reader.consumer)
        && let Some(start) = behind.next()
    {
        for (id, _) in group.pending_of(consumer, start, StreamId::MAX) {
            match stream.range(id, id).next() {
                Some(item) if !bounds.admit(&item) => break,
                Some(item) => {
                    reply_entry(&item, out);
                    again.push(id);
                }
                None if !bounds.admit_gone() => break,
                None => {
                    out.array(2);
                    reply_id(id, out);
                    out.null_array();
                }
            }
            count += 1;
            if count as u64 == count_max {
                break;
            }
        }
    }
    out.close_array(mark, count);
    let created = edit_stream(keyspace, place, |stream| {
        let Some(group) = stream.groups.get_mut(reader.group) else {
            return false;
        };
        let (_, created) = group.see_consumer(reader.consumer, now_ms);
        for id in &again {
            group.deliver_again(*id, now_ms);
        }
        created
    });
    if created {
        keyspace.wrote_metadata(key.bytes, CONSUMER_CREATED);
    }
    if !again.is_empty() {
        keyspace.note_metadata(key.bytes, unnotified("xclaim"));
    }
    created
}

/// Logs what a group read: the entries that its consumer owns now, and the group's new position. A repeated delivery
/// to a consumer is not logged, as in Redis.
fn log_read(
    cx: &mut ShardCx<'_>,
    routed: &RoutedKey,
    key: &Key<'_>,
    reader: GroupReader<'_>,
    ids: &[StreamId],
    created: bool,
) {
    let names = reader.names(key.bytes);
    let group = cx.peek(routed, key).and_then(stream_of);
    let Some(group) = group.and_then(|stream| stream.groups.get(reader.group)) else {
        return;
    };
    let position = GroupReadPosition::of(group);
    let pending = |id: &StreamId| Some((*id, group.pending(*id)?));
    let pending: Vec<(StreamId, Pending)> = match reader.acknowledges {
        // Claimed entries stay pending.
        true if reader.claims_from_ms.is_none() => Vec::new(),
        _ => ids.iter().filter_map(pending).collect(),
    };
    if created && pending.is_empty() {
        logged::consumer(cx, names);
    }
    logged::claims(cx, names, &pending, position);
    if !ids.is_empty() {
        logged::position(cx, names, position);
    }
}

/// Replies with the entries not yet delivered to the group, after those that the consumer claims. The new entries
/// become pending with the consumer, unless it needs no acknowledgement. Returns the IDs, and whether the consumer
/// was created.
fn answer_new(
    keyspace: &mut Keyspace<'_>,
    key: &basalt_engine::Key<'_>,
    place: EntrySlot,
    reader: GroupReader<'_>,
    (count_max, bounds): (u64, &mut ReadBudget),
    begin: impl FnOnce(&mut Out),
    out: &mut Out,
) -> (Vec<StreamId>, bool) {
    let now_ms = keyspace.now().unix_ms as i64;
    let stream = stream_at(keyspace, place);
    let last_id = stream.groups.get(reader.group).map(|group| group.last_id);
    let claimed = claim::chosen(stream, reader, now_ms, count_max, bounds);
    let count_left = match count_max {
        0 => 0,
        max => max - claimed.len() as u64,
    };
    let is_full = count_max > 0 && count_left == 0;
    let mut new = Vec::new();
    if let Some(start) = last_id.and_then(StreamId::next).filter(|_| !is_full)
        && stream.last_entry_id().is_some_and(|last| last >= start)
    {
        let entries = stream.range(start, StreamId::MAX);
        let entries = entries.take_while(|item| bounds.admit(item));
        let count_left = usize::try_from(count_left).unwrap_or(usize::MAX);
        let count_left = if count_left == 0 {
            usize::MAX
        } else {
            count_left
        };
        new.extend(entries.take(count_left));
    }
    if !claimed.is_empty() || !new.is_empty() {
        begin(out);
        out.array(claimed.len() + new.len());
        for one in &claimed {
            claim::reply(stream, one, out);
        }
        for item in &new {
            match reader.claims_from_ms {
                None => reply_entry(item, out),
                Some(_) => claim::reply_new(item, out),
            }
        }
    }
    let ids: Vec<StreamId> = new.iter().map(|item| item.id).collect();
    let created = edit_stream(keyspace, place, |stream| {
        let metadata = stream.metadata();
        let Some(group) = stream.groups.get_mut(reader.group) else {
            return false;
        };
        let (consumer, created) = group.see_consumer(reader.consumer, now_ms);
        for one in &claimed {
            let pending = Pending {
                delivered_ms: now_ms,
                deliveries: one.pending.deliveries_with(1),
                consumer,
            };
            group.set_pending(one.id, pending);
            group.consumer_mut(consumer).active_ms = now_ms;
        }
        group.deliver(metadata, &ids, consumer, now_ms, reader.acknowledges);
        created
    });
    if created {
        keyspace.wrote_metadata(key.bytes, CONSUMER_CREATED);
    }
    if !claimed.is_empty() {
        keyspace.wrote_metadata(key.bytes, unnotified("xclaim"));
    }
    if !ids.is_empty() {
        keyspace.wrote_metadata(key.bytes, unnotified("xreadgroup"));
    }
    let claimed = claimed.iter().map(|one| one.id);
    (claimed.chain(ids).collect(), created)
}
