//! XNACK: a consumer returns pending entries to its group, so that others can claim them at once.

use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{edit_stream, no_group, stream_at, strict_id, unnotified};
use crate::command::declaration::{Flags, Group, KeySpec};
use crate::command::error::shown;
use basalt_core::base::number;
use basalt_core::structures::block::Content;
use basalt_engine::value::stream::StreamValue;
use basalt_engine::value::stream::consumer::DELIVERIES_MAX;

/// `XNACK key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]`
pub(super) static XNACK: Command = Command::new("xnack", Group::Stream, -7)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.8.0",
        "key group <SILENT | FAIL | FATAL> IDS numids:integer id [id ...] [RETRYCOUNT count:integer] \
         [FORCE]",
        "Releases pending entries, so that any consumer can claim them at once.",
    )
    .complexity("O(1) for each ID.")
    .on_keys(xnack);

/// The change of the count of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NackMode {
    /// The last delivery does not count.
    Silent,
    Fail,
    /// The count is set to its maximum.
    Fatal,
}

#[derive(Debug)]
struct XnackOptions {
    mode: NackMode,
    ids: Vec<StreamId>,
    deliveries: Option<u64>,
    forces: bool,
}

impl XnackOptions {
    fn parse(args: &Args<'_>) -> Result<XnackOptions, CommandError> {
        let mode = match () {
            () if args.is(3, "silent") => NackMode::Silent,
            () if args.is(3, "fail") => NackMode::Fail,
            () if args.is(3, "fatal") => NackMode::Fatal,
            () => return Err(CommandError::Syntax),
        };
        if !args.is(4, "ids") {
            return Err(CommandError::Syntax);
        }
        let count = args.integer(5).ok().filter(|count| *count > 0);
        let count = count.ok_or("ERR Number of IDs must be a positive integer")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > args.len() - 6 {
            return Err("ERR The `numids` parameter must match the number of arguments".into());
        }
        let texts = args.from(6).take(count);
        let mut parsed = XnackOptions {
            mode,
            ids: texts.map(strict_id).collect::<Result<Vec<_>, _>>()?,
            deliveries: None,
            forces: false,
        };
        let mut at = 6 + count;
        while at < args.len() {
            if args.is(at, "force") {
                parsed.forces = true;
            } else if args.is(at, "retrycount") && at + 1 < args.len() {
                at += 1;
                let count = number::parse_i64(args.get(at));
                let count = count.and_then(|count| u64::try_from(count).ok());
                let count = count.ok_or("ERR Invalid RETRYCOUNT option argument for XNACK")?;
                parsed.deliveries = Some(count);
            } else {
                let word = shown(args.get(at));
                return Err(format!("ERR Unrecognized XNACK option '{word}'").into());
            }
            at += 1;
        }
        Ok(parsed)
    }

    /// Returns the new count of deliveries of an entry, given the previous one; `before` is None if the entry was not
    /// pending.
    fn deliveries_of(&self, before: Option<u64>) -> u64 {
        match (self.deliveries, self.mode, before) {
            (Some(count), ..) => count,
            (None, NackMode::Fatal, _) => DELIVERIES_MAX,
            (None, NackMode::Silent, Some(before)) => before.saturating_sub(1),
            (None, _, before) => before.unwrap_or(0),
        }
    }

    /// Returns entries to the group if possible, and adds them with their counts of deliveries to `returned`, which
    /// has the capacity.
    fn run(&self, stream: &mut StreamValue, group: &[u8], returned: &mut Vec<(StreamId, u64)>) {
        for &id in &self.ids {
            let exists = self.forces && stream.contains(id);
            let Some(group) = stream.groups.get_mut(group) else {
                return;
            };
            let before = group.pending(id).map(|pending| pending.deliveries);
            if before.is_some() || exists {
                let deliveries = self.deliveries_of(before);
                group.give_back(id, deliveries);
                returned.push((id, deliveries));
            }
        }
    }
}

fn xnack(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let asked = XnackOptions::parse(args)?;
    let (key, group) = (args.key(1), args.get(2));
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .find_typed(&key, DataType::Stream)?
        .filter(|place| stream_at(&keyspace, *place).groups.get(group).is_some())
        .ok_or_else(|| no_group(key.bytes, group))?;
    let mut returned = Vec::with_capacity(asked.ids.len());
    edit_stream(&mut keyspace, place, |stream| {
        asked.run(stream, group, &mut returned);
    });
    if !returned.is_empty() {
        keyspace.wrote_metadata(key.bytes, unnotified("xnack"));
    }
    out.integer(returned.len() as i64);
    log(cx, key.bytes, group, &returned);
    Ok(())
}

/// Logs the returned entries with their new counts, as the counts on a replica may differ.
fn log(cx: &mut ShardCx<'_>, key: &[u8], group: &[u8], returned: &[(StreamId, u64)]) {
    if !cx.is_logged() {
        return;
    }
    cx.log_nothing();
    for same in returned.chunk_by(|one, next| one.1 == next.1) {
        let (mut count, mut deliveries) = (itoa::Buffer::new(), itoa::Buffer::new());
        let texts: Vec<_> = same.iter().map(|(id, _)| id.text()).collect();
        let mut request: Vec<&[u8]> = vec![b"XNACK", key, group, b"FAIL", b"IDS"];
        request.push(count.format(same.len()).as_bytes());
        request.extend(texts.iter().map(|text| text.as_bytes()));
        request.push(b"RETRYCOUNT");
        request.push(deliveries.format(same[0].1).as_bytes());
        request.push(b"FORCE");
        let request: Vec<Content<'_>> = request.into_iter().map(Content::from).collect();
        cx.log_instead(request);
    }
}
