//! XGROUP: creates and changes consumer groups.

use super::{
    Args, Command, CommandError, CommandResult, DataType, EntrySlot, Out, ShardCx, StreamId,
};
use super::{any_id, edit_stream, event, stream_at, strict_id};
use crate::command::declaration::{Flags, Group, KeyFlags, KeySpec};
use crate::command::error::{shown, shown_name};
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::stream::group::{ConsumerGroup, UNKNOWN_READ};
use basalt_engine::value::stream::{StreamValue, stream_entry};

const INSERTS: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT))];
const UPDATES: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::UPDATE))];
const DELETES: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::DELETE))];

/// `XGROUP subcommand`
pub(super) static XGROUP: Command = Command::new("xgroup", Group::Stream, -2)
    .doc(
        "5.0.0",
        "",
        "Groups the commands that manage consumer groups.",
    )
    .complexity("Depends on subcommand.")
    .container(&[
        &CREATE,
        &CREATECONSUMER,
        &DELCONSUMER,
        &DESTROY,
        &HELP,
        &SETID,
    ]);

/// The options after the ID of CREATE and SETID.
struct XgroupOptions {
    makes_stream: bool,
    entries_read: i64,
}

impl XgroupOptions {
    fn parse(args: &Args<'_>, may_make: bool) -> Result<XgroupOptions, CommandError> {
        let mut options = XgroupOptions {
            makes_stream: false,
            entries_read: UNKNOWN_READ,
        };
        let mut at = 5;
        while at < args.len() {
            if may_make && args.is(at, "mkstream") {
                options.makes_stream = true;
                at += 1;
            } else if args.is(at, "entriesread") && at + 1 < args.len() {
                options.entries_read = args.integer(at + 1)?;
                if options.entries_read < UNKNOWN_READ {
                    return Err("ERR value for ENTRIESREAD must be positive or -1".into());
                }
                at += 2;
            } else {
                return Err(wrong_arguments(args));
            }
        }
        Ok(options)
    }
}

#[cold]
fn wrong_arguments(args: &Args<'_>) -> CommandError {
    let name = shown_name(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP.")
        .into()
}

#[cold]
fn no_stream() -> CommandError {
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically."
        .into()
}

/// Looks up the stream. Returns an error if the key does not exist.
fn find(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> Result<EntrySlot, CommandError> {
    keyspace
        .find_typed(key, DataType::Stream)?
        .ok_or_else(no_stream)
}

/// Looks up the stream. Returns an error if it has no group of this name.
fn find_group(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    name: &[u8],
) -> Result<EntrySlot, CommandError> {
    let place = find(keyspace, key)?;
    match stream_at(keyspace, place).groups.get(name) {
        Some(_) => Ok(place),
        None => Err(no_group_of(key.bytes, name)),
    }
}

#[cold]
pub(super) fn no_group_of(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::from(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        shown(group),
        shown(key)
    ))
}

fn edit_group<R: Default>(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    name: &[u8],
    change: impl FnOnce(&mut ConsumerGroup) -> R,
) -> R {
    edit_stream(keyspace, place, |stream| {
        stream.groups.get_mut(name).map(change).unwrap_or_default()
    })
}

/// `XGROUP CREATE key groupname <id | $> [MKSTREAM] [ENTRIESREAD entries_read]`
static CREATE: Command = Command::sub("xgroup|create", "create", Group::Stream, -5)
    .writes(INSERTS)
    .flags(Flags::DENYOOM)
    .doc(
        "5.0.0",
        "key groupname <id | $> [MKSTREAM] [ENTRIESREAD entries_read:integer]",
        "Creates a consumer group that reads after an ID.",
    )
    .history(&[("7.0.0", "New option: `ENTRIESREAD`.")])
    .on_keys(create);

fn create(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = XgroupOptions::parse(args, true)?;
    let key = args.key(2);
    let name = args.get(3);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Stream)?;
    if found.is_none() && !options.makes_stream {
        return Err(no_stream());
    }
    // Options may be repeated, but not all of them.
    if args.len() > 8 {
        return Err(wrong_arguments(args));
    }
    let stream = found.map(|place| stream_at(&keyspace, place));
    let last_id = match args.get(4) {
        b"$" => stream.map_or(StreamId::MIN, |stream| stream.metadata().last_id),
        text => strict_id(text)?,
    };
    if stream.is_some_and(|stream| stream.groups.get(name).is_some()) {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    let place = found.unwrap_or_else(|| {
        keyspace.create(&key, || stream_entry(key.bytes, StreamValue::default()))
    });
    edit_stream(&mut keyspace, place, |stream| {
        let group = ConsumerGroup::new(last_id, options.entries_read);
        stream.groups.insert(name, group);
    });
    match found {
        Some(_) => keyspace.wrote_metadata(key.bytes, event("xgroup-create")),
        None => keyspace.wrote(key.bytes, event("xgroup-create")),
    }
    out.ok();
    Ok(())
}

/// `XGROUP SETID key groupname <id | $> [ENTRIESREAD entries_read]`
static SETID: Command = Command::sub("xgroup|setid", "setid", Group::Stream, -5)
    .writes(UPDATES)
    .doc(
        "5.0.0",
        "key groupname <id | $> [ENTRIESREAD entries_read:integer]",
        "Sets the last-delivered ID of a consumer group.",
    )
    .history(&[("7.0.0", "New option: `ENTRIESREAD`.")])
    .on_keys(set_id);

fn set_id(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = XgroupOptions::parse(args, false)?;
    let key = args.key(2);
    let name = args.get(3);
    let mut keyspace = cx.at(&key);
    let place = find_group(&mut keyspace, &key, name)?;
    if args.len() > 7 {
        return Err(wrong_arguments(args));
    }
    let last_id = match args.get(4) {
        b"$" => stream_at(&keyspace, place).metadata().last_id,
        text => any_id(text, 0)?,
    };
    edit_group(&mut keyspace, place, name, |group| {
        group.last_id = last_id;
        group.entries_read = options.entries_read;
    });
    keyspace.wrote_metadata(key.bytes, event("xgroup-setid"));
    out.ok();
    Ok(())
}

/// `XGROUP DESTROY key groupname`
static DESTROY: Command = Command::sub("xgroup|destroy", "destroy", Group::Stream, 4)
    .writes(DELETES)
    .doc("5.0.0", "key groupname", "Deletes a consumer group.")
    .complexity("O(N), N being the count of entries that are pending in the group.")
    .on_keys(destroy);

fn destroy(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let name = args.get(3);
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let removed = edit_stream(&mut keyspace, place, |stream| stream.groups.remove(name));
    if removed {
        keyspace.wrote_metadata(key.bytes, event("xgroup-destroy"));
    }
    out.integer(i64::from(removed));
    Ok(())
}

/// `XGROUP CREATECONSUMER key groupname consumername`
static CREATECONSUMER: Command =
    Command::sub("xgroup|createconsumer", "createconsumer", Group::Stream, 5)
        .writes(INSERTS)
        .flags(Flags::DENYOOM)
        .doc(
            "6.2.0",
            "key groupname consumername",
            "Creates a consumer in a consumer group.",
        )
        .on_keys(create_consumer);

fn create_consumer(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let (name, consumer) = (args.get(3), args.get(4));
    let now_ms = super::now_ms(cx);
    let mut keyspace = cx.at(&key);
    let place = find_group(&mut keyspace, &key, name)?;
    let created = edit_group(&mut keyspace, place, name, |group| {
        let is_new = group.find_consumer(consumer).is_none();
        if is_new {
            group.add_consumer(consumer, now_ms);
        }
        is_new
    });
    if created {
        keyspace.wrote_metadata(key.bytes, event("xgroup-createconsumer"));
    }
    out.integer(i64::from(created));
    Ok(())
}

/// `XGROUP DELCONSUMER key groupname consumername`
static DELCONSUMER: Command = Command::sub("xgroup|delconsumer", "delconsumer", Group::Stream, 5)
    .writes(DELETES)
    .doc(
        "5.0.0",
        "key groupname consumername",
        "Deletes a consumer; returns how many entries were pending for it.",
    )
    .on_keys(delete_consumer);

fn delete_consumer(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let (name, consumer) = (args.get(3), args.get(4));
    let mut keyspace = cx.at(&key);
    let place = find_group(&mut keyspace, &key, name)?;
    let removed = edit_group(&mut keyspace, place, name, |group| {
        let id = group.find_consumer(consumer)?;
        Some(group.remove_consumer(id))
    });
    if removed.is_some() {
        keyspace.wrote_metadata(key.bytes, event("xgroup-delconsumer"));
    }
    out.integer(removed.unwrap_or(0) as i64);
    Ok(())
}

/// `XGROUP HELP`
static HELP: Command = Command::sub("xgroup|help", "help", Group::Stream, 2)
    .doc("5.0.0", "", "Lists the subcommands.")
    .on_help(&[
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a consumer group. Options are:",
        "    * MKSTREAM",
        "      Create an empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the number of entries that the group has read (for replication).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a consumer in a group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Delete a consumer.",
        "DESTROY <key> <groupname>",
        "    Delete a group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the last-delivered ID of a group.",
    ]);
