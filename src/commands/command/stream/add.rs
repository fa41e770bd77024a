//! Commands that add entries and trim old ones.

use super::producers::{Named, ProducerOption, usual_rules};
use super::{
    Args, Command, CommandError, CommandResult, DataType, Out, ParsedId, ShardCx, StreamId,
};
use super::{edit_stream, event, invalid_id, reply_id, stream_at, strict_id, unnotified};
use crate::command::declaration::{Flags, Group, KeyFlags, KeySpec};
use crate::config::Config;
use basalt_core::structures::block::Content;
use basalt_engine::value::stream::trim::{Bound, References, Trimming};
use basalt_engine::value::stream::{
    ENTRY_BYTES_MAX, NodeLimits, StreamMetadata, StreamValue, stream_entry,
};

/// The options of XADD and XTRIM, which precede the ID.
struct XaddOptions {
    trimming: Option<Trimming>,
    creates: bool,
    /// The producer and its ID of the entry (IDMP, IDMPAUTO).
    naming: Option<ProducerOption>,
    id: NewId,
    /// Index of the entry's ID; past the end if the request has none.
    id_at: usize,
}

/// The ID requested for an entry.
#[derive(Clone, Copy)]
enum NewId {
    Auto,
    Sequence(u64),
    Given(StreamId),
}

/// The command whose options are parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TrimCommand {
    Xadd,
    Xtrim,
}

impl XaddOptions {
    /// Parses the options. `has_run_before`: the request has run on another server, or on this one, so that options
    /// are accepted that no client may send.
    fn parse(
        args: &Args<'_>,
        of: TrimCommand,
        config: &Config,
        has_run_before: bool,
    ) -> Result<XaddOptions, CommandError> {
        let mut bound = None;
        let mut references = None;
        let mut is_approximate = false;
        let mut limit = None;
        let mut creates = true;
        let mut naming = None;
        let mut id = NewId::Auto;
        let mut at = 2;
        while at < args.len() {
            let has_more = at + 1 < args.len();
            if of == TrimCommand::Xadd && args.get(at) == b"*" {
                break;
            } else if (args.is(at, "maxlen") || args.is(at, "minid")) && has_more {
                if bound.is_some() {
                    return Err(
                        "ERR syntax error, MAXLEN and MINID options at the same time are \
                                not compatible"
                            .into(),
                    );
                }
                let read;
                (read, is_approximate, at) = read_bound(args, at)?;
                bound = Some(read);
            } else if args.is(at, "limit") && has_more {
                at += 1;
                let count = u64::try_from(args.integer(at)?)
                    .map_err(|_| "ERR The LIMIT argument must be >= 0.")?;
                limit = Some(count);
            } else if of == TrimCommand::Xadd && args.is(at, "nomkstream") {
                creates = false;
            } else if of == TrimCommand::Xadd
                && let Some((read, last)) = ProducerOption::parse(args, at, naming)?
            {
                naming = Some(read);
                at = last;
            } else if let Some(kind) = references_named(args.get(at)) {
                if references.is_some() {
                    return Err(CommandError::Syntax);
                }
                references = Some(kind);
            } else if of == TrimCommand::Xadd {
                id = match ParsedId::parse(args.get(at)).ok_or_else(invalid_id)? {
                    ParsedId::Whole(id) => NewId::Given(id),
                    ParsedId::Time(ms) => NewId::Given(StreamId::new(ms, 0)),
                    ParsedId::AnySequence(ms) => NewId::Sequence(ms),
                };
                break;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if has_run_before && bound.is_some() {
            // Redis and Valkey replicate `~` as `=` with the remaining length, and keep LIMIT next to it: the length
            // must be met exactly, however many entries are deleted for that.
            limit = is_approximate.then_some(0);
        }
        let trimming = trimming(of, bound, references, limit, is_approximate, config)?;
        Ok(XaddOptions {
            trimming,
            creates,
            naming,
            id,
            id_at: at,
        })
    }
}

/// Returns the trimming that the options request.
fn trimming(
    of: TrimCommand,
    bound: Option<Bound>,
    references: Option<References>,
    limit: Option<u64>,
    is_approximate: bool,
    config: &Config,
) -> Result<Option<Trimming>, CommandError> {
    if bound.is_none() && limit.is_some_and(|limit| limit > 0) {
        return Err(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming \
                    strategy"
                .into(),
        );
    }
    if bound.is_none() && of == TrimCommand::Xtrim {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    }
    if limit.is_some() && !is_approximate {
        return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
    }
    let limit = match limit {
        Some(limit) => limit,
        None if is_approximate => usual_limit(config),
        None => 0,
    };
    Ok(bound.map(|bound| Trimming {
        bound,
        is_approximate,
        limit,
        references: references.unwrap_or_default(),
    }))
}

/// Parses the bound of a trimming, starting at its keyword. Returns the bound, whether it is approximate, and the
/// index of its last argument.
fn read_bound(args: &Args<'_>, word_at: usize) -> Result<(Bound, bool, usize), CommandError> {
    let mut at = word_at + 1;
    let mut is_approximate = false;
    if at + 1 < args.len() && matches!(args.get(at), b"~" | b"=") {
        is_approximate = args.get(at) == b"~";
        at += 1;
    }
    let bound = if args.is(word_at, "maxlen") {
        let length = u64::try_from(args.integer(at)?)
            .map_err(|_| "ERR The MAXLEN argument must be >= 0.")?;
        Bound::Length(length)
    } else {
        Bound::Id(strict_id(args.get(at))?)
    };
    Ok((bound, is_approximate, at))
}

/// Parses the treatment of pending entries, by the keywords of Redis 8.2; None for other words.
pub(super) fn references_named(word: &[u8]) -> Option<References> {
    [
        ("keepref", References::Keep),
        ("delref", References::Delete),
        ("acked", References::Acknowledged),
    ]
    .into_iter()
    .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    .map(|(_, kind)| kind)
}

/// Returns the default LIMIT: approximate trimming deletes at most a hundred nodes at a time, as it must reply soon.
fn usual_limit(config: &Config) -> u64 {
    const WITHOUT_NODE_LIMIT: u64 = 10_000;
    const MAX: u64 = 1_000_000;
    match limits(config).entries_max.saturating_mul(100) {
        0 => WITHOUT_NODE_LIMIT,
        limit => limit.min(MAX),
    }
}

fn limits(config: &Config) -> NodeLimits {
    NodeLimits {
        bytes_max: config.stream_node_max_bytes,
        entries_max: u64::try_from(config.stream_node_max_entries).unwrap_or(0),
    }
}

/// `XADD key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO pid | IDMP pid iid] [MAXLEN | MINID ...] <* | id> field
/// value [field value ...]`
pub(super) static XADD: Command = Command::new("xadd", Group::Stream, -5)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))
        .note("UPDATE instead of INSERT because of the optional trimming feature")])
    .flags(
        Flags::DENYOOM
            .or(Flags::FAST)
            .or(Flags::ENTRIES_ONLY),
    )
    .doc(
        "5.0.0",
        "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO producer-id | <IDMP producer-id idempotent-id>] \
         [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
        "Appends an entry to a stream, which is created if it does not exist.",
    )
    .complexity("O(1) for the entry, O(N) for trimming, N being the count of entries that go.")
    .history(&[
        ("6.2.0", "New options: `NOMKSTREAM`, `MINID` and `LIMIT`."),
        ("7.0.0", "Accepts IDs of the form `<ms>-*`."),
        ("8.2.0", "New options: `KEEPREF`, `DELREF` and `ACKED`."),
        ("8.6.0", "New options: `IDMP` and `IDMPAUTO`."),
    ])
    .tips(&["nondeterministic_output"])
    .on_keys(xadd);

fn xadd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = XaddOptions::parse(
        args,
        TrimCommand::Xadd,
        cx.config,
        cx.client.origin.has_run_before(),
    )?;
    let limits = limits(cx.config);
    let first = options.id_at + 1;
    let parts = args.len().saturating_sub(first);
    if parts < 2 || !parts.is_multiple_of(2) {
        return Err(CommandError::Arity("xadd"));
    }
    if matches!(options.id, NewId::Given(StreamId::MIN)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    // A request from a primary, or from a file, contains the ID that the entry was given at first.
    let has_own_id = !matches!(options.id, NewId::Auto);
    if options.naming.is_some() && has_own_id && !cx.client.origin.has_run_before() {
        return Err(
            "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs".into(),
        );
    }
    let named = options.naming.map(|naming| naming.named(args, first));
    let key = args.key(1);
    let (now, usual) = (cx.now, usual_rules(cx.config));
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Stream)?;
    if found.is_none() && !options.creates {
        out.null();
        return Ok(());
    }
    if let (Some(Named { producer, id }), Some(place)) = (&named, found) {
        let stream = stream_at(&keyspace, place);
        if let Some(entry) = stream.added_before(producer, id, now.unix_ms) {
            edit_stream(&mut keyspace, place, StreamValue::note_duplicate);
            keyspace.wrote_metadata(key.bytes, unnotified("xadd"));
            cx.log_nothing();
            reply_id(entry, out);
            return Ok(());
        }
    }
    let metadata = found.map_or(StreamMetadata::default(), |place| {
        stream_at(&keyspace, place).metadata()
    });
    if metadata.last_id == StreamId::MAX {
        return Err(
            "ERR The stream has exhausted the last possible ID, unable to add more items".into(),
        );
    }
    let id = new_id(options.id, metadata, now.unix_ms)?;
    let bytes: u64 = args.from(first).map(|part| part.len() as u64).sum();
    if bytes > ENTRY_BYTES_MAX {
        return Err("ERR Elements are too large to be stored".into());
    }
    let place = found.unwrap_or_else(|| {
        keyspace.create(&key, || stream_entry(key.bytes, StreamValue::default()))
    });
    let trimmed = edit_stream(&mut keyspace, place, |stream| {
        stream.append(id, parts / 2, |at| args.get(first + at), limits);
        if let Some(named) = &named {
            stream.remember(named.producer, &named.id, id, usual, now.unix_ms);
        }
        options.trimming.map_or(0, |trimming| stream.trim(trimming))
    });
    keyspace.wrote(key.bytes, event("xadd"));
    if trimmed > 0 {
        keyspace.wrote(key.bytes, event("xtrim"));
    }
    let length = match options.trimming {
        Some(_) => stream_at(&keyspace, place).metadata().length,
        None => 0,
    };
    match &named {
        Some(named) => log_named(cx, args, &options, named, (id, length, trimmed > 0)),
        None => log(cx, args, &options, Some(id), length),
    }
    reply_id(id, out);
    Ok(())
}

/// Returns the ID of an entry that is added now; it must be greater than all others.
fn new_id(id: NewId, metadata: StreamMetadata, now_ms: u64) -> Result<StreamId, CommandError> {
    let id = match id {
        NewId::Auto => metadata.next_id(now_ms),
        NewId::Given(id) => Some(id),
        NewId::Sequence(ms) if ms == metadata.last_id.ms => metadata
            .last_id
            .seq
            .checked_add(1)
            .map(|seq| StreamId::new(ms, seq)),
        NewId::Sequence(ms) => Some(StreamId::new(ms, 0)),
    };
    id.filter(|id| *id > metadata.last_id).ok_or_else(|| {
        "ERR The ID specified in XADD is equal or smaller than the target stream top item".into()
    })
}

/// Logs the request. An XADD gets the ID that was generated; a length or an ID that was met only approximately is
/// replaced by the remaining length.
fn log(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    options: &XaddOptions,
    id: Option<StreamId>,
    length: u64,
) {
    let nearly = options.trimming.filter(|trimming| trimming.is_approximate);
    let is_given = id.is_none() || matches!(options.id, NewId::Given(_));
    if nearly.is_none() && is_given || !cx.is_logged() {
        return;
    }
    let (text, mut digits) = (id.map(StreamId::text), itoa::Buffer::new());
    let mut request: Vec<Content<'_>> = args.contents(0).take(2).collect();
    if !options.creates && (nearly.is_some() || options.trimming.is_none()) {
        request.push(b"NOMKSTREAM".into());
    }
    match options.trimming {
        None => {}
        // The options are logged as they are.
        Some(_) if nearly.is_none() => request.extend(args.contents(2).take(options.id_at - 2)),
        Some(trimming) => {
            request.extend(word_of(trimming.references));
            let length = digits.format(length).as_bytes();
            request.extend([b"MAXLEN".into(), b"=".into(), Content::from(length)]);
        }
    }
    if let Some(text) = &text {
        request.push(text.as_bytes().into());
        request.extend(args.contents(options.id_at + 1));
    }
    cx.log_instead(request);
}

/// Logs an entry with an ID of its producer, then that ID, then the trimming: an entry may be trimmed by its own
/// request, but the producer's ID is remembered.
fn log_named(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    options: &XaddOptions,
    named: &Named<'_>,
    (id, length, has_trimmed): (StreamId, u64, bool),
) {
    if !cx.is_logged() {
        return;
    }
    let (key, text) = (args.get(1), id.text());
    let id = text.as_bytes();
    let mut request: Vec<Content<'_>> = vec![b"XADD".into(), key.into(), id.into()];
    request.extend(args.contents(options.id_at + 1));
    cx.log_instead(request);
    let record: [&[u8]; 5] = [b"XIDMPRECORD", key, named.producer, &named.id, id];
    cx.log_instead(record.map(Content::from));
    if let Some(trimming) = options.trimming.filter(|_| has_trimmed) {
        let bound = match trimming.bound {
            bound if !trimming.is_approximate => bound,
            _ => Bound::Length(length),
        };
        let (mut digits, id_text);
        let (word, bound): (&[u8], &[u8]) = match bound {
            Bound::Length(length) => {
                digits = itoa::Buffer::new();
                (b"MAXLEN", digits.format(length).as_bytes())
            }
            Bound::Id(id) => {
                id_text = id.text();
                (b"MINID", id_text.as_bytes())
            }
        };
        let mut request: Vec<Content<'_>> = vec![
            b"XTRIM".into(),
            key.into(),
            word.into(),
            b"=".into(),
            bound.into(),
        ];
        request.extend(word_of(trimming.references));
        cx.log_instead(request);
    }
}

/// Returns the keyword for the treatment of pending entries; None for the default.
fn word_of(references: References) -> Option<Content<'static>> {
    match references {
        References::Keep => None,
        References::Delete => Some(b"DELREF".into()),
        References::Acknowledged => Some(b"ACKED".into()),
    }
}

/// `XTRIM key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]`
pub(super) static XTRIM: Command = Command::new("xtrim", Group::Stream, -4)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::ENTRIES_ONLY)
    .doc(
        "5.0.0",
        "key <<MAXLEN | MINID> [= | ~] threshold [LIMIT count]> [KEEPREF | DELREF | ACKED]",
        "Deletes the oldest entries of a stream down to a length or an ID.",
    )
    .complexity("O(N), N being the number of removed entries, most of them with their whole node.")
    .history(&[("6.2.0", "New options: `MINID` and `LIMIT`.")])
    .tips(&["nondeterministic_output"])
    .on_keys(xtrim);

fn xtrim(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = XaddOptions::parse(
        args,
        TrimCommand::Xtrim,
        cx.config,
        cx.client.origin.has_run_before(),
    )?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Stream)?;
    let (Some(place), Some(trimming)) = (found, options.trimming) else {
        out.integer(0);
        return Ok(());
    };
    let trimmed = edit_stream(&mut keyspace, place, |stream| stream.trim(trimming));
    if trimmed > 0 {
        keyspace.wrote(key.bytes, event("xtrim"));
        let length = stream_at(&keyspace, place).metadata().length;
        log(cx, args, &options, None, length);
    }
    out.integer(trimmed as i64);
    Ok(())
}
