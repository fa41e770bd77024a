//! BLESS: keys that are protected from eviction, as in Redis 8.12.
//!
//! [`engine::blessed`](basalt_engine::blessed) describes how blessings are stored. The log has them as notes.

#[cfg(test)]
mod tests;

use super::context::{Gather, ShardCx};
use super::declaration::{Categories, Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::CommandError;
use super::{Args, Out, scan};
use basalt_engine::effect::Event;

pub(super) static TABLE: &[&Command] = &[&BLESS];

/// The subcommands that occur in notes of the log.
pub(super) static NOTED: &[&Command] = &[&CLEAR, &SET];

/// The only protection that there is.
pub(super) const NO_EVICT: &[u8] = b"NO-EVICT";

/// Without ACCESS and UPDATE, users without rights to the key could use these commands.
const BLESSED: &[KeySpec] = &[KeySpec::one(
    2,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

/// Keys that BLESS SCAN visits unless COUNT says otherwise.
const COUNT_DEFAULT: u64 = 1024;

/// Maximum number of keys that are visited at once with a shard locked.
const VISITED_AT_ONCE_MAX: u64 = 4096;

/// `BLESS subcommand`
static BLESS: Command = Command::new("bless", Group::Generic, -2)
    .doc(
        "8.12.0",
        "",
        "Groups the commands that protect keys from eviction.",
    )
    .complexity("Depends on subcommand.")
    .container(&[&CLEAR, &GET, &HELP, &SCAN, &SET]);

/// `BLESS SET key NO-EVICT`
static SET: Command = Command::sub("bless|set", "set", Group::Generic, 4)
    .writes(BLESSED)
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .categories(Categories::DANGEROUS)
    .doc("8.12.0", "key NO-EVICT", "Protects a key from eviction.")
    .on_keys(|cx, args, out| set_blessed(cx, args, out, true));

/// `BLESS CLEAR key NO-EVICT`
static CLEAR: Command = Command::sub("bless|clear", "clear", Group::Generic, 4)
    .writes(BLESSED)
    .flags(Flags::FAST)
    .categories(Categories::DANGEROUS)
    .doc(
        "8.12.0",
        "key NO-EVICT",
        "Ends the protection of a key from eviction.",
    )
    .on_keys(|cx, args, out| set_blessed(cx, args, out, false));

fn set_blessed(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    is_blessed: bool,
) -> CommandResult {
    check_protection(args, 3)?;
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    if keyspace.find_write(&key).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    let has_changed = keyspace.set_blessed(&key, is_blessed);
    if has_changed {
        let (event, word): (_, &[u8]) = match is_blessed {
            true => ("bless", b"SET"),
            false => ("unbless", b"CLEAR"),
        };
        keyspace.wrote(key.bytes, Event::generic(event));
        cx.log_note(&[b"BLESS", word, key.bytes, NO_EVICT]);
    }
    out.integer(i64::from(has_changed));
    Ok(())
}

fn check_protection(args: &Args<'_>, at: usize) -> CommandResult {
    match args.is(at, "no-evict") {
        true => Ok(()),
        false => Err(CommandError::Syntax),
    }
}

/// `BLESS GET key`
static GET: Command = Command::sub("bless|get", "get", Group::Generic, 3)
    .reads(&[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .flags(Flags::FAST)
    .doc("8.12.0", "key", "Returns the protections of a key.")
    .on_keys(get);

fn get(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    if keyspace.find_read(&key).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    match keyspace.is_blessed(&key) {
        true => {
            out.array(1);
            out.bulk(NO_EVICT);
        }
        false => out.array(0),
    }
    Ok(())
}

/// `BLESS SCAN cursor NO-EVICT [COUNT count]`
static SCAN: Command = Command::sub("bless|scan", "scan", Group::Generic, -4)
    .reads(&[])
    .flags(Flags::TOUCHES_ARBITRARY_KEYS)
    .doc(
        "8.12.0",
        "cursor NO-EVICT [COUNT count]",
        "Iterates over the keys of the database that are protected from eviction.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N protected keys.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:special",
        "response_policy:special",
    ])
    .by_cursor(scan_shard, scan_part, scan::merge);

fn scan_shard(args: &Args<'_>, shard_count: u16) -> Result<u16, CommandError> {
    scan::shard_of(args.get(2), shard_count)
}

fn scan_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_protection(args, 3)?;
    if args.len() != 4 && (args.len() != 6 || !args.is(4, "count")) {
        return Err(CommandError::Syntax);
    }
    let options = scan::Options::parse(args, 4)?;
    let count = match args.len() {
        4 => COUNT_DEFAULT,
        _ => options.count as u64,
    };
    let (shard, db) = (cx.shard, cx.client.db);
    let position = scan::position_in(args.get(2), shard)?;
    let budget = count.saturating_sub(gather.visited);
    let budget = budget.clamp(1, VISITED_AT_ONCE_MAX) as usize;
    let keyspace = cx.keyspace(0, db);
    let next = keyspace.walk_blessed(position, budget, |key| {
        gather.visited += 1;
        if let Some(key) = key {
            gather.push(key);
        }
    });
    scan::end_visit(gather, shard, next, count);
    Ok(())
}

/// `BLESS HELP`
static HELP: Command = Command::sub("bless|help", "help", Group::Generic, 2)
    .doc("8.12.0", "", "Explains the subcommands.")
    .on_help(&[
        "CLEAR <key> NO-EVICT",
        "    End the protection of a key from eviction.",
        "GET <key>",
        "    Return the protections of a key.",
        "SCAN <cursor> NO-EVICT [COUNT <count>]",
        "    Iterate over the protected keys of the selected database.",
        "SET <key> NO-EVICT",
        "    Protect a key from eviction.",
    ]);
