//! Commands that delete entries by their IDs.

use std::ops::Range;

use super::add::references_named;
use super::logged;
use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{edit_stream, event, ids_from, stream_at, strict_id, unnotified};
use crate::command::declaration::{Flags, Group, KeyFlags, KeySpec};
use basalt_engine::value::stream::StreamValue;
use basalt_engine::value::stream::trim::References;

/// `XDEL key id [id ...]`
pub(super) static XDEL: Command = Command::new("xdel", Group::Stream, -3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST.or(Flags::ENTRIES_ONLY))
    .doc(
        "5.0.0",
        "key id [id ...]",
        "Deletes entries of a stream; returns how many there were.",
    )
    .complexity("O(1) for each entry, however long the stream is.")
    .on_keys(xdel);

fn xdel(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Stream)? else {
        out.integer(0);
        return Ok(());
    };
    let ids = ids_from(args, 2)?;
    let deleted = edit_stream(&mut keyspace, place, |stream| {
        ids.iter().filter(|id| stream.delete(**id)).count()
    });
    if deleted > 0 {
        keyspace.wrote(key.bytes, event("xdel"));
    }
    out.integer(deleted as i64);
    Ok(())
}

/// The reply of Redis 8.2 for each ID.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamDeleteReply {
    /// The entry does not exist, or was not pending.
    Absent = -1,
    Deleted = 1,
    /// Some group has yet to read or acknowledge the entry.
    Needed = 2,
}

/// The arguments after the names: `[KEEPREF | DELREF | ACKED] IDS numids id [id ...]`, in any order.
struct Deletion {
    references: References,
    /// Positions of the IDs. They are parsed only if the stream exists, as in Redis.
    ids: Range<usize>,
}

fn parse(args: &Args<'_>, first: usize) -> Result<Deletion, CommandError> {
    let mut references = None;
    let mut ids = None;
    let mut at = first;
    while at < args.len() {
        if let Some(kind) = references_named(args.get(at)) {
            if references.is_some() {
                return Err(CommandError::Syntax);
            }
            references = Some(kind);
            at += 1;
        } else if args.is(at, "ids") && at + 1 < args.len() && ids.is_none() {
            let count = args.integer(at + 1).ok().filter(|count| *count > 0);
            let count = count.ok_or("ERR Number of IDs must be a positive integer")?;
            let room = args.len() - (at + 2);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count > room {
                return Err("ERR The `numids` parameter must match the number of arguments".into());
            }
            ids = Some(at + 2..at + 2 + count);
            at += 2 + count;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Deletion {
        references: references.unwrap_or_default(),
        ids: ids.ok_or(CommandError::Syntax)?,
    })
}

impl Deletion {
    fn ids(&self, args: &Args<'_>) -> Result<Vec<StreamId>, CommandError> {
        self.ids.clone().map(|at| strict_id(args.get(at))).collect()
    }
}

/// `XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`
pub(super) static XDELEX: Command = Command::new("xdelex", Group::Stream, -5)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST)
    .doc(
        "8.2.0",
        "key [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
        "Deletes entries of a stream, with a choice of how references in consumer groups are handled.",
    )
    .complexity("O(1) for each entry and group.")
    .on_keys(xdelex);

fn xdelex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let is_logged = cx.is_logged();
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Stream)?;
    let deletion = parse(args, 2)?;
    let references = deletion.references;
    let Some(place) = found else {
        reply(&vec![StreamDeleteReply::Absent; deletion.ids.len()], out);
        return Ok(());
    };
    let ids = deletion.ids(args)?;
    let mut outcomes = vec![StreamDeleteReply::Absent; ids.len()];
    let forgotten = match references {
        References::Delete if is_logged => pending_in_groups(stream_at(&keyspace, place), &ids),
        _ => Vec::new(),
    };
    let mut forgot = false;
    edit_stream(&mut keyspace, place, |stream| {
        for (id, outcome) in ids.iter().zip(&mut outcomes) {
            // Without groups every entry may be deleted: Redis does so, whatever its documentation says.
            let may_go = references != References::Acknowledged || !is_needed(stream, *id);
            if !may_go {
                if stream.contains(*id) {
                    *outcome = StreamDeleteReply::Needed;
                }
                continue;
            }
            if stream.delete(*id) {
                *outcome = StreamDeleteReply::Deleted;
            }
            if references == References::Delete {
                stream.groups.forget(*id);
                forgot = true;
            }
        }
    });
    if outcomes.contains(&StreamDeleteReply::Deleted) {
        keyspace.wrote(key.bytes, event("xdel"));
    } else if forgot {
        keyspace.wrote_metadata(key.bytes, unnotified("xack"));
    }
    log(cx, key.bytes, &forgotten, &deleted_ids(&ids, &outcomes));
    reply(&outcomes, out);
    Ok(())
}

/// Returns the pending entries among these IDs, by group.
fn pending_in_groups(stream: &StreamValue, ids: &[StreamId]) -> Vec<(Vec<u8>, Vec<StreamId>)> {
    let groups = stream.groups.iter().map(|(name, group)| {
        let pending = ids.iter().filter(|id| group.pending(**id).is_some());
        (name.to_vec(), pending.copied().collect())
    });
    groups.collect()
}

fn deleted_ids(ids: &[StreamId], outcomes: &[StreamDeleteReply]) -> Vec<StreamId> {
    let all = ids.iter().zip(outcomes);
    let deleted = all.filter(|(_, outcome)| **outcome == StreamDeleteReply::Deleted);
    deleted.map(|(id, _)| *id).collect()
}

/// Logs the entries that are no longer pending in groups, and the deleted ones, with commands that older servers
/// know.
fn log(
    cx: &mut ShardCx<'_>,
    key: &[u8],
    forgotten: &[(Vec<u8>, Vec<StreamId>)],
    deleted: &[StreamId],
) {
    cx.log_nothing();
    for (group, ids) in forgotten {
        logged::acknowledged(cx, key, group, ids);
    }
    logged::deleted(cx, key, deleted);
}

/// `XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`
pub(super) static XACKDEL: Command = Command::new("xackdel", Group::Stream, -6)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::DELETE).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::FAST)
    .doc(
        "8.2.0",
        "key group [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
        "Acknowledges entries for a group and deletes them, optionally only if no other group needs them.",
    )
    .complexity("O(1) for each entry and group.")
    .on_keys(xackdel);

fn xackdel(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let is_logged = cx.is_logged();
    let key = args.key(1);
    let name = args.get(2);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Stream)?;
    let deletion = parse(args, 3)?;
    let references = deletion.references;
    let place = found.filter(|place| stream_at(&keyspace, *place).groups.get(name).is_some());
    let mut outcomes = vec![StreamDeleteReply::Absent; deletion.ids.len()];
    let Some(place) = place else {
        reply(&outcomes, out);
        return Ok(());
    };
    let ids = deletion.ids(args)?;
    let mut forgotten = match is_logged {
        true => pending_in_groups(stream_at(&keyspace, place), &ids),
        false => Vec::new(),
    };
    // The entries stay pending in other groups.
    forgotten.retain(|(group, _)| references == References::Delete || group == name);
    let mut deleted = false;
    edit_stream(&mut keyspace, place, |stream| {
        for (id, outcome) in ids.iter().zip(&mut outcomes) {
            let group = stream.groups.get_mut(name);
            if !group.is_some_and(|group| group.acknowledge(*id)) {
                if references == References::Delete {
                    stream.groups.forget(*id);
                }
                continue;
            }
            if references == References::Acknowledged && is_needed(stream, *id) {
                *outcome = StreamDeleteReply::Needed;
                continue;
            }
            if references == References::Delete {
                stream.groups.forget(*id);
            }
            deleted |= stream.delete(*id);
            *outcome = StreamDeleteReply::Deleted;
        }
    });
    if deleted {
        keyspace.wrote(key.bytes, event("xdel"));
    } else if references == References::Delete
        || outcomes.iter().any(|one| *one != StreamDeleteReply::Absent)
    {
        keyspace.wrote_metadata(key.bytes, unnotified("xack"));
    }
    log(cx, key.bytes, &forgotten, &deleted_ids(&ids, &outcomes));
    reply(&outcomes, out);
    Ok(())
}

fn is_needed(stream: &StreamValue, id: StreamId) -> bool {
    stream.groups.need(id, stream.groups.needed_from())
}

fn reply(outcomes: &[StreamDeleteReply], out: &mut Out) {
    out.array(outcomes.len());
    for outcome in outcomes {
        out.integer(*outcome as i64);
    }
}
