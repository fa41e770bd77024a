//! Whole databases: selecting, counting, swapping and emptying them.
//!
//! Commands on all keys at once lock all shards at once, so that no other command sees half of their effect; under
//! the locks they only swap handles, and the memory of flushed data is freed afterwards, in slices.

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

/// Parses a database index from the arguments; `complaint` is the error for one that is not a 32-bit integer.
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

/// Checks the flush mode. Either mode detaches the data at once and frees it in slices: there is no slow mode to
/// offer.
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
        // In either mode, as Redis 7.4 also frees in the background what SYNC deletes.
        engine.published().lazyfreed.add(of_shard);
        removed += of_shard;
    }
    record(cx, removed);
    // Logged even if nothing was deleted, as in Redis: a replica may still have keys.
    cx.log_anyway();
}

/// Accounts the change of a whole database to one shard, so that it counts once.
fn record(cx: &mut ShardCx<'_>, count: u64) {
    let engine = cx.engine(0);
    engine.effects.changed(count);
    engine.published().dirty.add(count);
}

#[cfg(test)]
mod tests {
    use crate::command::testing::{check_all, on_every_setup};

    const OUT_OF_RANGE: &str = "(error) ERR DB index is out of range";

    #[test]
    fn select_takes_existing_databases_only() {
        check_all(&[
            ("SELECT 15", "OK"),
            ("SELECT 16", OUT_OF_RANGE),
            ("SELECT -1", OUT_OF_RANGE),
            (
                "SELECT x",
                "(error) ERR value is not an integer or out of range",
            ),
            (
                "SELECT 99999999999",
                "(error) ERR value is out of range, value must between -2147483648 and 2147483647",
            ),
        ]);
    }

    #[test]
    fn databases_hold_different_keys() {
        check_all(&[
            ("SET k 0", "OK"),
            ("SELECT 9", "OK"),
            ("GET k", "(nil)"),
            ("MSET k 9 l 9", "OK"),
            ("DBSIZE", "(integer) 2"),
            ("SELECT 0", "OK"),
            ("GET k", "\"0\""),
            ("DBSIZE", "(integer) 1"),
        ]);
    }

    #[test]
    fn dbsize_counts_expired_keys_that_are_still_there() {
        on_every_setup(|cli| {
            cli.check("SET k v PX 10", "OK");
            cli.advance_ms(11);
            cli.check("DBSIZE", "(integer) 1");
            cli.check("GET k", "(nil)");
            cli.check("DBSIZE", "(integer) 0");
        });
    }

    #[test]
    fn swapdb_exchanges_what_is_stored() {
        check_all(&[
            ("MSET a 1 b 2 c 3", "OK"),
            ("EXPIRE a 100", "(integer) 1"),
            ("SELECT 1", "OK"),
            ("SET k one", "OK"),
            ("SWAPDB 0 1", "OK"),
            ("MGET a b c", "1) \"1\"\n2) \"2\"\n3) \"3\""),
            ("TTL a", "(integer) 100"),
            ("DBSIZE", "(integer) 3"),
            ("SELECT 0", "OK"),
            ("GET k", "\"one\""),
            ("SWAPDB 0 0", "OK"),
            ("SWAPDB 0 7", "OK"),
            ("DBSIZE", "(integer) 0"),
            ("SWAPDB x 1", "(error) ERR invalid first DB index"),
            ("SWAPDB 1 x", "(error) ERR invalid second DB index"),
            (
                "SWAPDB 1 99999999999",
                "(error) ERR invalid second DB index",
            ),
            ("SWAPDB 1 16", OUT_OF_RANGE),
        ]);
    }

    #[test]
    fn flushdb_empties_one_database_and_flushall_every_one() {
        for mode in ["", "SYNC", "async"] {
            on_every_setup(|cli| {
                cli.check("MSET a 1 b 2 c 3", "OK");
                cli.check("SELECT 1", "OK");
                cli.check("MSET a 1 b 2", "OK");
                cli.check(&format!("FLUSHDB {mode}"), "OK");
                cli.check("DBSIZE", "(integer) 0");
                cli.check("SET a again", "OK");
                cli.check("SELECT 0", "OK");
                cli.check("DBSIZE", "(integer) 3");
                cli.check(&format!("FLUSHALL {mode}"), "OK");
                cli.check("DBSIZE", "(integer) 0");
                cli.check("SELECT 1", "OK");
                cli.check("EXISTS a", "(integer) 0");
            });
        }
        check_all(&[
            ("FLUSHALL foo", "(error) ERR syntax error"),
            ("FLUSHDB SYNC ASYNC", "(error) ERR syntax error"),
        ]);
    }

    #[test]
    fn flushed_keys_count_as_freed_in_the_background() {
        on_every_setup(|cli| {
            let freed = |cli: &mut crate::command::testing::Terminal| {
                let all_published = cli.engines.iter().map(basalt_engine::Engine::published);
                all_published
                    .map(|published| published.lazyfreed.get())
                    .sum::<u64>()
            };
            for (line, count) in [("FLUSHALL ASYNC", 3), ("FLUSHDB", 6), ("FLUSHALL SYNC", 9)] {
                cli.check("MSET a 1 b 2 c 3", "OK");
                cli.check(line, "OK");
                assert_eq!(freed(cli), count, "{line}");
            }
        });
    }

    #[test]
    fn what_was_flushed_is_freed_in_slices() {
        on_every_setup(|cli| {
            for number in 0..64 {
                cli.check(&format!("SET warm:{number} value"), "OK");
            }
            cli.check("FLUSHALL", "OK");
            let drain = |cli: &mut crate::command::testing::Terminal| {
                for engine in &mut cli.engines {
                    let mut doomed = engine.take_doomed();
                    while doomed.free_some(1) {}
                    engine.settle(&mut doomed);
                }
                let used = |engine: &basalt_engine::Engine| engine.used_bytes();
                cli.engines.iter().map(used).sum::<i64>()
            };
            let empty = drain(cli);
            for number in 0..500 {
                cli.check(&format!("SET key:{number} value EX 100"), "OK");
            }
            let held: i64 = cli.engines.iter().map(|engine| engine.used_bytes()).sum();
            assert!(held > empty + 500 * 20);
            cli.check("FLUSHALL", "OK");
            // Directories of tables are pooled process-wide and never freed: 8 bytes for 50 keys.
            let pooled = drain(cli) - empty;
            assert!((0..200).contains(&pooled), "{pooled}");
        });
    }
}
