//! MEMORY: memory usage of keys and of the server.

use super::super::context::{Gather, SessionCx, ShardCx};
use super::super::declaration::{
    self, Command, CommandResult, Flags, Group, KeyFlags, KeySpec, always,
};
use super::super::error::CommandError;
use super::super::host::MemoryReport;
use super::super::{Args, Out};
use basalt_engine::value::DataType;

const GROUP: Group = Group::Server;

/// `MEMORY subcommand`
pub(super) static MEMORY: Command = Command::new("memory", GROUP, -2)
    .doc("4.0.0", "", "Groups the commands for memory diagnostics.")
    .complexity("Depends on subcommand.")
    .container(&[
        &BIGKEYS,
        &DOCTOR,
        &HELP,
        &MALLOC_STATS,
        &PURGE,
        &STATS,
        &USAGE,
    ]);

/// `MEMORY USAGE key [SAMPLES count]`
static USAGE: Command = Command::sub("memory|usage", "usage", GROUP, -3)
    .reads(&[KeySpec::one(2, KeyFlags::RO)])
    .doc(
        "4.0.0",
        "key [SAMPLES count]",
        "Returns the memory usage of a key in bytes.",
    )
    .complexity("O(N) where N is the number of samples.")
    .on_keys(usage);

fn usage(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut index = 3;
    while index < args.len() {
        if !args.is(index, "samples") || index + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        if args.integer(index + 1)? < 0 {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    let key = args.key(2);
    let mut keyspace = cx.at(&key).untouched();
    match keyspace.find_write(&key) {
        Some(place) => out.integer(keyspace.memory_bytes(place) as i64),
        None => out.null(),
    }
    Ok(())
}

/// `MEMORY BIGKEYS [COUNT count] [TYPE type]`
static BIGKEYS: Command = Command::sub("memory|bigkeys", "bigkeys", GROUP, -2)
    .reads(&[])
    .databases(declaration::Databases::All)
    .flags(Flags::ADMIN)
    .doc(
        Command::OWN,
        "[COUNT count] [TYPE type]",
        "Returns the largest values of each type; they are always tracked.",
    )
    .complexity("O(N) for N shards.")
    .tips(&["nondeterministic_output"])
    .on_each_shard(bigkeys_part, bigkeys_merge);

/// Number of keys per type reported by default.
const BIGKEYS_DEFAULT: usize = 10;

/// Parses the number of keys to report per type, and the type if only one is requested.
fn bigkeys_options(args: &Args<'_>) -> Result<(usize, Option<DataType>), CommandError> {
    let (mut count, mut only) = (BIGKEYS_DEFAULT, None);
    let mut at = 2;
    while at < args.len() {
        if at + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        if args.is(at, "count") {
            count = usize::try_from(args.integer(at + 1)?)
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| CommandError::from("ERR COUNT must be positive"))?;
        } else if args.is(at, "type") {
            let named = DataType::ALL.iter().find(|(_, name)| args.is(at + 1, name));
            let unknown = || CommandError::from("ERR unknown type name");
            only = Some(named.ok_or_else(unknown)?.0);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    Ok((count, only))
}

/// Visits one shard; each row consists of the type's number, the database's index, the bytes, and the key.
fn bigkeys_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    let (_, only) = bigkeys_options(args)?;
    let engine = cx.engine(0);
    for index in 0..engine.database_count() {
        let Some(db) = engine.db(index) else { continue };
        for (data_type, _) in DataType::ALL {
            if only.is_some_and(|only| only != data_type) {
                continue;
            }
            db.each_large(data_type, |key, bytes| {
                let mut element = vec![data_type as u8];
                element.extend_from_slice(&(index as u32).to_le_bytes());
                element.extend_from_slice(&bytes.to_le_bytes());
                element.extend_from_slice(key);
                gather.rows.push(element);
            });
        }
    }
    Ok(())
}

fn bigkeys_merge(args: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    let (count, _) = bigkeys_options(args)?;
    let mut rows: Vec<(u64, u8, u32, &[u8])> = gather
        .rows
        .iter()
        .filter_map(|element| {
            let (&data_type, rest) = element.split_first()?;
            let (index, rest) = rest.split_first_chunk()?;
            let (bytes, key) = rest.split_first_chunk()?;
            Some((
                u64::from_le_bytes(*bytes),
                data_type,
                u32::from_le_bytes(*index),
                key,
            ))
        })
        .collect();
    rows.sort_unstable_by(|one, other| other.cmp(one));
    let mut named = [0; u8::MAX as usize + 1];
    rows.retain(|(_, data_type, ..)| {
        named[usize::from(*data_type)] += 1;
        named[usize::from(*data_type)] <= count
    });
    out.array(rows.len());
    for (bytes, data_type, index, key) in rows {
        let name = DataType::ALL
            .iter()
            .find(|(each, _)| *each as u8 == data_type)
            .map_or("", |(_, name)| name);
        out.map(4);
        out.bulk(b"key");
        out.bulk(key);
        out.bulk(b"type");
        out.bulk(name.as_bytes());
        out.bulk(b"db");
        out.integer(i64::from(index));
        out.bulk(b"bytes");
        out.integer(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    Ok(())
}

/// `MEMORY STATS`
static STATS: Command = Command::sub("memory|stats", "stats", GROUP, 2)
    .doc("4.0.0", "", "Returns detailed memory usage statistics.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(stats);

/// One figure of MEMORY STATS, and how it is computed from a report.
enum MemoryStat {
    Bytes(&'static str, fn(&MemoryReport) -> u64),
    Ratio(&'static str, fn(&MemoryReport) -> f64),
    /// The first amount minus the second; negative if the first is smaller.
    Beyond(&'static str, fn(&MemoryReport) -> (u64, u64)),
    /// A map for each database with keys.
    Databases,
}

use MemoryStat::{Beyond, Bytes, Databases, Ratio};

/// Figures of MEMORY STATS in the order of Redis.
static FIGURES: [MemoryStat; 31] = [
    Bytes("peak.allocated", |report| report.peak),
    Bytes("total.allocated", |report| report.used),
    Bytes("startup.allocated", |report| report.startup),
    Bytes("replication.backlog", |report| report.backlog),
    Bytes("clients.slaves", |report| report.replicas),
    Bytes("clients.normal", |report| report.clients),
    Bytes("cluster.links", |_| 0),
    Bytes("aof.buffer", |_| 0),
    Bytes("lua.caches", |report| report.scripts),
    Bytes("functions.caches", |report| report.functions),
    Databases,
    Bytes("overhead.db.hashtable.lut", |report| {
        report.dbs.iter().map(|db| tables(*db)).sum()
    }),
    // Tables grow by one segment at a time, so nothing is ever rehashed.
    Bytes("overhead.db.hashtable.rehashing", |_| 0),
    Bytes("db.dict.rehashing.count", |_| 0),
    Bytes("overhead.total", |report| {
        report.startup + report.clients + report.scripts + report.functions
    }),
    Bytes("keys.count", keys),
    Bytes("keys.bytes-per-key", |report| {
        grown(report).checked_div(keys(report)).unwrap_or(0)
    }),
    Bytes("dataset.bytes", |report| report.dataset),
    Bytes("allocator.allocated", |report| report.allocator_allocated),
    Bytes("allocator.active", |report| report.allocator_active),
    Bytes("allocator.resident", |report| report.allocator_resident),
    Ratio("dataset.percentage", |report| {
        100.0 * ratio((report.dataset, grown(report)))
    }),
    Ratio("peak.percentage", |report| {
        100.0 * ratio((report.used, report.peak))
    }),
    Ratio("allocator-fragmentation.ratio", |report| {
        ratio(fragmentation(report))
    }),
    Ratio("allocator-rss.ratio", |report| ratio(free_pages(report))),
    Ratio("rss-overhead.ratio", |report| ratio(overhead(report))),
    Ratio("fragmentation", |report| ratio((report.rss, report.used))),
    Beyond("allocator-fragmentation.bytes", fragmentation),
    Beyond("allocator-rss.bytes", free_pages),
    Beyond("rss-overhead.bytes", overhead),
    Beyond("fragmentation.bytes", |report| (report.rss, report.used)),
];

fn keys(report: &MemoryReport) -> u64 {
    report.dbs.iter().map(|(keys, _)| keys).sum()
}

/// Returns the approximate bytes of a database's table and timer wheel, from its numbers of keys and deadlines.
fn tables((keys, volatile): (u64, u64)) -> u64 {
    keys * TABLE_BYTES_PER_KEY + volatile * WHEEL_BYTES_PER_KEY
}

/// Returns the bytes allocated since the start.
fn grown(report: &MemoryReport) -> u64 {
    report.used.saturating_sub(report.startup)
}

/// Returns the bytes of the allocator's active pages, and of the allocations in them.
fn fragmentation(report: &MemoryReport) -> (u64, u64) {
    (report.allocator_active, report.allocator_allocated)
}

/// Returns the bytes that the allocator has from the system, and those of its active pages.
fn free_pages(report: &MemoryReport) -> (u64, u64) {
    (report.allocator_resident, report.allocator_active)
}

/// Returns the bytes of the process, and of its allocator.
fn overhead(report: &MemoryReport) -> (u64, u64) {
    (report.rss, report.allocator_resident)
}

fn ratio((part, whole): (u64, u64)) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}

fn stats(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let report = &cx.read_figures(|cx| cx.server.memory());
    let databases = report.dbs.iter().enumerate();
    let databases: Vec<_> = databases.filter(|(_, (keys, _))| *keys > 0).collect();
    out.map(FIGURES.len() - 1 + databases.len());
    for figure in &FIGURES {
        match figure {
            Bytes(name, read) => {
                out.bulk(name.as_bytes());
                out.integer(read(report) as i64);
            }
            Ratio(name, read) => {
                out.bulk(name.as_bytes());
                out.double(read(report));
            }
            Beyond(name, read) => {
                let (all, part) = read(report);
                out.bulk(name.as_bytes());
                out.integer(all as i64 - part as i64);
            }
            Databases => {
                for (index, (keys, volatile)) in &databases {
                    // The bytes per key of table and wheel were measured over all fill levels.
                    out.bulk(format!("db.{index}").as_bytes());
                    out.map(2);
                    out.bulk(b"overhead.hashtable.main");
                    out.integer((keys * TABLE_BYTES_PER_KEY) as i64);
                    out.bulk(b"overhead.hashtable.expires");
                    out.integer((volatile * WHEEL_BYTES_PER_KEY) as i64);
                }
            }
        }
    }
    Ok(())
}

/// Bytes of table for each key, on average over all fill levels.
const TABLE_BYTES_PER_KEY: u64 = 12;
/// Bytes of timer wheel for each key with a deadline.
const WHEEL_BYTES_PER_KEY: u64 = 8;

/// `MEMORY DOCTOR`
static DOCTOR: Command = Command::sub("memory|doctor", "doctor", GROUP, 2)
    .doc("4.0.0", "", "Returns a human-readable report about memory.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(doctor);

fn doctor(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let text = cx.read_figures(|cx| cx.server.memory_doctor());
    out.verbatim("txt", text);
    Ok(())
}

/// `MEMORY MALLOC-STATS`
static MALLOC_STATS: Command = Command::sub("memory|malloc-stats", "malloc-stats", GROUP, 2)
    .doc("4.0.0", "", "Returns the allocator's own statistics.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(malloc_stats);

fn malloc_stats(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.verbatim("txt", cx.server.allocator_report());
    Ok(())
}

/// `MEMORY PURGE`
static PURGE: Command = Command::sub("memory|purge", "purge", GROUP, 2)
    .doc(
        "4.0.0",
        "",
        "Returns unused memory of the allocator to the system.",
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .repeatable()
    .postponed_if(always)
    .on_session(purge);

fn purge(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.purge_memory();
    out.ok();
    Ok(())
}

/// `MEMORY HELP`
static HELP: Command = Command::sub("memory|help", "help", GROUP, 2)
    .doc("4.0.0", "", "Explains the subcommands of MEMORY.")
    .on_help(&[
        "BIGKEYS [COUNT <count>] [TYPE <type>]",
        "    Return the largest values of each type: those of 16 KiB and more, the largest first.",
        "DOCTOR",
        "    Return a human-readable report about memory.",
        "MALLOC-STATS",
        "    Return the allocator's own statistics.",
        "PURGE",
        "    Return unused memory of the allocator to the system.",
        "STATS",
        "    Return detailed memory usage statistics.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return the memory usage of a key in bytes.",
    ]);

#[cfg(test)]
mod tests {
    use crate::command::testing::{check, on_every_setup};

    #[test]
    fn bigkeys_names_the_largest_values_of_each_type_that_are_there() {
        on_every_setup(|cli| {
            cli.check("MEMORY BIGKEYS", "(empty array)");
            // The sizes differ enough that the allocator gives each more than the one before.
            for number in 20..40 {
                let bytes = 1.3_f64.powi(number + 20) as u64;
                cli.run(&format!("SETRANGE text:{number} {bytes} x"));
            }
            cli.run("SETRANGE small 10000 x");
            for number in 0..3_000 {
                cli.run(&format!("RPUSH list:long {number}-0123456789"));
                cli.run(&format!("HSET hash {number} 0123456789"));
            }
            cli.check("SELECT 1", "OK");
            cli.run("SETRANGE other 30000 x");
            let keys = |cli: &mut crate::command::testing::Terminal, line: &str| -> Vec<String> {
                let text = cli.run(line);
                let words: Vec<&str> = text.split('"').collect();
                words
                    .windows(3)
                    .filter(|three| three[0] == "key")
                    .map(|three| three[2].to_owned())
                    .collect()
            };
            assert_eq!(
                keys(cli, "MEMORY BIGKEYS COUNT 2 TYPE string"),
                ["text:39", "text:38"]
            );
            let all = keys(cli, "MEMORY BIGKEYS COUNT 100");
            for key in ["list:long", "hash", "other"] {
                assert!(all.iter().any(|each| each == key), "{key} in {all:?}");
            }
            assert!(!all.iter().any(|each| each == "small"));
            // Keys that were deleted, or are small again, are not reported.
            cli.check("SELECT 0", "OK");
            cli.run("DEL text:39");
            cli.run("SET text:38 short");
            cli.run("LTRIM list:long 0 9");
            cli.check("RENAME text:37 renamed", "OK");
            assert_eq!(
                keys(cli, "MEMORY BIGKEYS COUNT 2 TYPE string"),
                ["renamed", "text:36"]
            );
            assert!(keys(cli, "MEMORY BIGKEYS TYPE list").is_empty());
            cli.check("FLUSHALL", "OK");
            cli.check("MEMORY BIGKEYS", "(empty array)");
            let all_published = cli.engines.iter().map(|engine| engine.published());
            let largest =
                all_published.flat_map(|published| published.dbs.iter().map(|db| db.largest(0)));
            assert_eq!(largest.max(), Some(0));
        });
    }

    #[test]
    fn bigkeys_refuses_what_it_does_not_know() {
        check(
            "MEMORY BIGKEYS COUNT 0",
            "(error) ERR COUNT must be positive",
        );
        check("MEMORY BIGKEYS COUNT", "(error) ERR syntax error");
        check("MEMORY BIGKEYS LIMIT 3", "(error) ERR syntax error");
        check("MEMORY BIGKEYS TYPE thing", "(error) ERR unknown type name");
    }
}
