//! Whole databases: choosing, counting, exchanging and emptying them.
//!
//! What concerns all keys at once takes all shards at once, so that no other command sees half of it; it only swaps
//! handles there, and the memory of what was flushed is freed afterwards, in slices.

use super::context::{SessionCx, ShardCx};
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::error::CommandError;
use super::{Args, Out};
use crate::base::number;
use crate::config::Config;

pub(super) static TABLE: &[&Command] = &[&DBSIZE, &FLUSHALL, &FLUSHDB, &SELECT, &SWAPDB];

const TO_ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const FLUSH_HISTORY: &[(&str, &str)] = &[
    ("4.0.0", "Added the `ASYNC` mode."),
    ("6.2.0", "Added the `SYNC` mode."),
];

/// `SELECT index`
static SELECT: Command = Command::new("select", Group::Connection, 2)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
    .doc("1.0.0", "index", "Chooses the connection's database.")
    .on_session(select);

fn select(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.client.db = number(args, 1, cx.config, None)?;
    out.ok();
    Ok(())
}

/// A database's number among the arguments; `complaint` is the error for what is no 32-bit integer.
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
        "Counts the keys of the database, expired ones that are still there included.",
    )
    .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
    .on_all_shards(dbsize);

fn dbsize(cx: &mut ShardCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let db = cx.client.db;
    let count: usize = (0..cx.engine_count())
        .map(|hand| cx.keyspace(hand, db).len())
        .sum();
    out.integer(count as i64);
    Ok(())
}

/// `SWAPDB index1 index2`
static SWAPDB: Command = Command::new("swapdb", Group::Server, 3)
    .writes(&[])
    .flags(Flags::FAST)
    .categories(Categories::KEYSPACE.or(Categories::DANGEROUS))
    .doc(
        "4.0.0",
        "index1 index2",
        "Exchanges two databases under the connections that use them.",
    )
    .complexity("O(N) for N shards.")
    .on_all_shards(swapdb);

fn swapdb(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let first = integer_32(args, 1, Some("ERR invalid first DB index"))?;
    let second = integer_32(args, 2, Some("ERR invalid second DB index"))?;
    let (first, second) = (existing(first, cx.config)?, existing(second, cx.config)?);
    for hand in 0..cx.engine_count() {
        cx.engine(hand).swap_dbs(first, second);
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
    out.ok();
    Ok(())
}

/// Either mode detaches the data at once and frees it in slices: there is no slow way to offer.
fn check_flush_mode(args: &Args<'_>) -> CommandResult {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "sync") || args.is(1, "async") => Ok(()),
        _ => Err(CommandError::Syntax),
    }
}

fn flush(cx: &mut ShardCx<'_>, dbs: std::ops::Range<usize>) {
    let mut removed = 0;
    for hand in 0..cx.engine_count() {
        for db in dbs.clone() {
            removed += cx.engine(hand).flush_db(db) as u64;
        }
    }
    record(cx, removed);
}

/// One shard carries a change of the whole database, so that it counts once.
fn record(cx: &mut ShardCx<'_>, count: u64) {
    let engine = cx.engine(0);
    engine.effects.changed(count);
    engine.board().dirty.add(count);
}
