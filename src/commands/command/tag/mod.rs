//! Tags: groups of keys under a name, which can be invalidated all at once.
//!
//! ```text
//! mod    TAG ADD, TAG REM, TAG OF, TAG COUNT, TAG KEYS, TAG INVALIDATE
//! ```
//!
//! A tag belongs to one database of this server; in a cluster each node knows only the tags of its own keys, and TAG
//! INVALIDATE is sent to all primaries. How a tag is invalidated in a time independent of the number of its keys is
//! described in [`engine::db::tags`](basalt_engine::db).

#[cfg(test)]
mod tests;

use super::context::{Gather, ShardCx};
use super::declaration::{Categories, Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::CommandError;
use super::marks::{check_lengths, check_tags, too_many_tags};
use super::{Args, Out, scan};
use basalt_engine::effect::Event;
use basalt_engine::invalidation::FREED_AT_ONCE_IN_ALL;

pub(super) static TABLE: &[&Command] = &[&TAG];

/// The subcommands that occur in notes of the log.
pub(super) static NOTED: &[&Command] = &[&ADD, &INVALIDATE, &REM];

/// A change of a key's tags changes the key, but not its value.
const MARKED: &[KeySpec] = &[KeySpec::one(
    2,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

/// `TAG subcommand`
static TAG: Command = Command::new("tag", Group::Generic, -2)
    .doc(Command::OWN, "", "Groups the commands for tags of keys.")
    .complexity("Depends on subcommand.")
    .container(&[&ADD, &COUNT, &HELP, &INVALIDATE, &KEYS, &OF, &REM]);

/// `TAG ADD key tag [tag ...]`
static ADD: Command = Command::sub("tag|add", "add", Group::Generic, -4)
    .writes(MARKED)
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(Command::OWN, "key tag [tag ...]", "Adds tags to a key.")
    .complexity("O(N) for N tags of the key.")
    .on_keys(add);

fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_tags(args.from(3))?;
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_write(&key) else {
        out.integer(0);
        return Ok(());
    };
    let added = keyspace.add_tags(place, args.from(3));
    let added = added.map_err(|_| too_many_tags())?;
    if added > 0 {
        keyspace.wrote(key.bytes, Event::generic("tag_add"));
        cx.log_tags(key.bytes, args.from(3));
    }
    out.integer(added as i64);
    Ok(())
}

/// `TAG REM key tag [tag ...]`
static REM: Command = Command::sub("tag|rem", "rem", Group::Generic, -4)
    .writes(MARKED)
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key tag [tag ...]",
        "Removes tags from a key.",
    )
    .complexity("O(N) for N tags of the key.")
    .on_keys(rem);

fn rem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_write(&key) else {
        out.integer(0);
        return Ok(());
    };
    let before = keyspace.tags(place);
    let removed = keyspace.remove_tags(place, args.from(3));
    if removed > 0 {
        keyspace.wrote(key.bytes, Event::generic("tag_rem"));
        // Only the tags that the key had are logged, as a request may name many more.
        let left = keyspace.tags_of(&key);
        let gone = before.iter().filter(|tag| !left.contains(tag));
        cx.log_removed_tags(key.bytes, gone.map(|tag| &**tag));
    }
    out.integer(removed as i64);
    Ok(())
}

/// `TAG OF key`
static OF: Command = Command::sub("tag|of", "of", Group::Generic, 3)
    .reads(&[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .doc(Command::OWN, "key", "Returns the tags of a key.")
    .complexity("O(N) for N tags of the key.")
    .tips(&["nondeterministic_output_order"])
    .on_keys(of);

fn of(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let tags = match keyspace.find_read(&key) {
        Some(place) => keyspace.tags(place),
        None => Vec::new(),
    };
    out.array(tags.len());
    tags.iter().for_each(|tag| out.bulk(tag));
    Ok(())
}

/// `TAG COUNT tag`
static COUNT: Command = Command::sub("tag|count", "count", Group::Generic, 3)
    .reads(&[])
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "tag",
        "Returns the number of keys with a tag, including expired keys that are not yet deleted.",
    )
    .complexity("O(N) for N shards.")
    .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
    .on_all_shards(count);

fn count(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let db = cx.client.db;
    let count: usize = (0..cx.engine_count())
        .map(|index| cx.keyspace(index, db).tagged_count(args.get(2)))
        .sum();
    out.integer(count as i64);
    Ok(())
}

/// `TAG KEYS tag cursor [COUNT count]`
static KEYS: Command = Command::sub("tag|keys", "keys", Group::Generic, -4)
    .reads(&[])
    .flags(Flags::TOUCHES_ARBITRARY_KEYS)
    .doc(
        Command::OWN,
        "tag cursor [COUNT count]",
        "Iterates over the keys with a tag.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N keys.")
    .tips(&["nondeterministic_output", "request_policy:special"])
    .by_cursor(keys_shard, keys_part, scan::merge);

fn keys_shard(args: &Args<'_>, shard_count: u16) -> Result<u16, CommandError> {
    scan::shard_of(args.get(3), shard_count)
}

fn keys_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    let options = scan::Options::parse(args, 4)?;
    if options.pattern.is_some() {
        return Err(CommandError::Syntax);
    }
    let (shard, db) = (cx.shard, cx.client.db);
    let position = scan::position_in(args.get(3), shard)?;
    let count = options.count as u64;
    let budget = count.saturating_sub(gather.visited).clamp(1, 4096);
    let keyspace = cx.keyspace(0, db);
    let next = keyspace.walk_tag(args.get(2), position, budget as usize, |entry| {
        gather.visited += 1;
        gather.push(entry.key());
    });
    scan::end_visit(gather, shard, next, count);
    Ok(())
}

/// `TAG INVALIDATE tag [tag ...]`
static INVALIDATE: Command = Command::sub("tag|invalidate", "invalidate", Group::Generic, -3)
    .writes(&[])
    .categories(Categories::DANGEROUS)
    .doc(
        Command::OWN,
        "tag [tag ...]",
        "Deletes all keys with any of the given tags; their memory is freed in the background.",
    )
    .complexity("O(N) for N tags, whatever the number of their keys.")
    .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
    .on_all_shards(invalidate);

fn invalidate(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_lengths(args.from(2))?;
    let db = cx.client.db;
    let mut gone = 0;
    let mut deletions_left = FREED_AT_ONCE_IN_ALL;
    let mut invalidated: Vec<&[u8]> = Vec::new();
    for tag in args.from(2) {
        let before = gone;
        for index in 0..cx.engine_count() {
            let engine = cx.engine(index);
            gone += engine.invalidate_tag(db, tag, &mut deletions_left);
        }
        if gone > before {
            invalidated.push(tag);
        }
    }
    if gone > 0 {
        cx.log_invalidation(invalidated.into_iter());
        // Counted in one shard only, so that the invalidation counts once.
        let engine = cx.engine(0);
        engine.effects.changed(1);
        engine.published().dirty.add(1);
    }
    out.integer(gone as i64);
    Ok(())
}

/// `TAG HELP`
static HELP: Command = Command::sub("tag|help", "help", Group::Generic, 2)
    .doc(Command::OWN, "", "Explains the subcommands.")
    .on_help(&[
        "ADD <key> <tag> [<tag> ...]",
        "    Add tags to a key.",
        "COUNT <tag>",
        "    Return the number of keys with a tag.",
        "INVALIDATE <tag> [<tag> ...]",
        "    Delete all keys with any of these tags.",
        "KEYS <tag> <cursor> [COUNT <count>]",
        "    Iterate over the keys with a tag.",
        "OF <key>",
        "    Return the tags of a key.",
        "REM <key> <tag> [<tag> ...]",
        "    Remove tags from a key.",
    ]);
