//! Whole databases: selecting, counting, swapping and emptying them.
//!
//! Commands on all keys at once lock all shards at once, so that no other command sees half of their effect; while
//! the shards are locked they only swap pointers, and the memory of flushed data is freed afterwards, in slices.

use super::context::{SessionCx, ShardCx};
use super::declaration::{Categories, Command, CommandResult, Databases, Flags, Group};
use super::error::CommandError;
use super::{Args, Out};
use crate::config::Config;
use crate::config::values::ClusterMode;
use basalt_core::base::number;

pub(super) static TABLE: &[&Command] = &[&DBSIZE, &FLUSHALL, &FLUSHDB, &SELECT, &SWAPDB];

const TO_ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const FLUSH_HISTORY: &[(&str, &str)] = &[
    ("4.0.0", "Added the `ASYNC` mode."),
    ("6.2.0", "Added the `SYNC` mode."),
];

/// `SELECT index`
static SELECT: Command = Command::new("select", Group::Connection, 2)
    .flags(
        Flags::LOADING
            .or(Flags::STALE)
            .or(Flags::FAST)
            .or(Flags::SELECTS_DB),
    )
    .databases(Databases::Numbered(&[1]))
    .doc("1.0.0", "index", "Selects the database of the connection.")
    .repeatable()
    .on_session(select);

fn select(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = integer_32(args, 1, None)?;
    if wanted != 0 && cx.config.has_first_database_only() {
        return Err("ERR SELECT is not allowed in cluster mode".into());
    }
    cx.client.db = number(args, 1, cx.config, None)?;
    out.ok();
    Ok(())
}

/// Parses a database index from the arguments; `complaint` is the error if it is not a 32-bit integer.
pub(super) fn number(
    args: &Args<'_>,
    at: usize,
    config: &Config,
    complaint: Option<&'static str>,
) -> Result<usize, CommandError> {
    let number = integer_32(args, at, complaint)?;
    existing(number, config)
}

fn integer_32(
    args: &Args<'_>,
    at: usize,
    complaint: Option<&'static str>,
) -> Result<i32, CommandError> {
    let parsed = number::parse_i64(args.get(at));
    match (parsed.map(i32::try_from), complaint) {
        (Some(Ok(number)), _) => Ok(number),
        (_, Some(complaint)) => Err(complaint.into()),
        (None, None) => Err(CommandError::NotInteger),
        (Some(Err(_)), None) => {
            Err("ERR value is out of range, value must between -2147483648 and 2147483647".into())
        }
    }
}

fn existing(number: i32, config: &Config) -> Result<usize, CommandError> {
    usize::try_from(number)
        .ok()
        .filter(|number| *number < config.databases as usize)
        .ok_or(CommandError::DbIndex)
}

/// `DBSIZE`
static DBSIZE: Command = Command::new("dbsize", Group::Server, 1)
    .reads(&[])
    .flags(Flags::FAST)
    .categories(Categories::KEYSPACE)
    .doc(
        "1.0.0",
        "",
        "Returns the number of keys of the database, including expired keys that are not yet deleted.",
    )
    .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
    .on_all_shards(dbsize);

fn dbsize(cx: &mut ShardCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let db = cx.client.db;
    let count: usize = (0..cx.engine_count())
        .map(|index| cx.keyspace(index, db).shown_len())
        .sum();
    out.integer(count as i64);
    Ok(())
}

/// `SWAPDB index1 index2`
static SWAPDB: Command = Command::new("swapdb", Group::Server, 3)
    .writes(&[])
    .flags(Flags::FAST)
    .databases(Databases::Numbered(&[1, 2]))
    .categories(Categories::KEYSPACE.or(Categories::DANGEROUS))
    .doc(
        "4.0.0",
        "index1 index2",
        "Swaps two databases for all connections.",
    )
    .complexity("O(N) for N shards.")
    .on_all_shards(swapdb);

fn swapdb(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.cluster_enabled == ClusterMode::Yes {
        return Err("ERR SWAPDB is not allowed in cluster mode".into());
    }
    let first = integer_32(args, 1, Some("ERR invalid first DB index"))?;
    let second = integer_32(args, 2, Some("ERR invalid second DB index"))?;
    let (first, second) = (existing(first, cx.config)?, existing(second, cx.config)?);
    for index in 0..cx.engine_count() {
        let now = cx.now;
        cx.engine(index).swap_dbs(first, second, now);
    }
    record(cx, 1);
    out.ok();
    Ok(())
}

/// `FLUSHDB [ASYNC | SYNC]`
static FLUSHDB: Command = Command::new("flushdb", Group::Server, -1)
    .writes(&[])
    .categories(Categories::KEYSPACE.or(Categories::DANGEROUS))
    .doc(
        "1.0.0",
        "[ASYNC | SYNC]",
        "Deletes all keys of the database.",
    )
    .complexity("O(N) for N shards; freeing the keys takes time in proportion to their number.")
    .history(FLUSH_HISTORY)
    .tips(TO_ALL_SHARDS)
    .on_all_shards(flushdb);

fn flushdb(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_flush_mode(args)?;
    let db = cx.client.db;
    flush(cx, db..db + 1);
    out.ok();
    Ok(())
}

/// `FLUSHALL [ASYNC | SYNC]`
static FLUSHALL: Command = Command::new("flushall", Group::Server, -1)
    .writes(&[])
    .databases(Databases::All)
    .flags(Flags::EMPTIES)
    .categories(Categories::KEYSPACE.or(Categories::DANGEROUS))
    .doc(
        "1.0.0",
        "[ASYNC | SYNC]",
        "Deletes all keys of all databases.",
    )
    .complexity("O(N) for N shards; freeing the keys takes time in proportion to their number.")
    .history(FLUSH_HISTORY)
    .tips(TO_ALL_SHARDS)
    .on_all_shards(flushall);

fn flushall(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_flush_mode(args)?;
    let count = cx.config.databases as usize;
    flush(cx, 0..count);
    // Counted once, for the rules that decide when to save a snapshot.
    cx.engine(0).published().flushes.add(1);
    out.ok();
    Ok(())
}

/// Checks the flush mode. Both modes detach the data at once and free it in slices, so that SYNC takes no longer than
/// ASYNC.
fn check_flush_mode(args: &Args<'_>) -> CommandResult {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "sync") || args.is(1, "async") => Ok(()),
        _ => Err(CommandError::Syntax),
    }
}

fn flush(cx: &mut ShardCx<'_>, dbs: std::ops::Range<usize>) {
    let mut removed = 0;
    for index in 0..cx.engine_count() {
        let engine = cx.engine(index);
        let of_shard: u64 = dbs.clone().map(|db| engine.flush_db(db) as u64).sum();
        // Counted in either mode, as Redis 7.4 also frees in the background what SYNC deletes.
        engine.published().lazyfreed.add(of_shard);
        removed += of_shard;
    }
    record(cx, removed);
    // Logged even if nothing was deleted, as in Redis: a replica may still have keys.
    cx.log_anyway();
}

/// Records the change of a whole database in one shard only, so that it counts once.
fn record(cx: &mut ShardCx<'_>, count: u64) {
    let engine = cx.engine(0);
    engine.effects.changed(count);
    engine.published().dirty.add(count);
}

#[cfg(test)]
mod tests;
