//! MEMORY: what it is used for.

use super::super::context::{SessionCx, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::super::error::CommandError;
use super::super::{Args, Out};
use super::reply_help;

const GROUP: Group = Group::Server;

/// `MEMORY subcommand`
pub(super) static MEMORY: Command = Command::new("memory", GROUP, -2)
    .doc("4.0.0", "", "Holds the commands for memory diagnostics.")
    .complexity("Depends on subcommand.")
    .container(&[&DOCTOR, &HELP, &MALLOC_STATS, &PURGE, &STATS, &USAGE]);

/// `MEMORY USAGE key [SAMPLES count]`
static USAGE: Command = Command::sub("memory|usage", "usage", GROUP, -3)
    .reads(&[KeySpec::one(2, KeyFlags::RO)])
    .doc(
        "4.0.0",
        "key [SAMPLES count]",
        "Answers how many bytes a key and its value take.",
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

/// `MEMORY STATS`
static STATS: Command = Command::sub("memory|stats", "stats", GROUP, 2)
    .doc(
        "4.0.0",
        "",
        "Answers what memory is used for, figure by figure.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .on_session(stats);

fn stats(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let report = cx.server.memory();
    let keys: u64 = report.dbs.iter().map(|(keys, _)| keys).sum();
    let overhead = report.startup + report.clients + report.scripts + report.functions;
    let ratio = |part: u64, whole: u64| {
        if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        }
    };
    let databases: Vec<_> = report
        .dbs
        .iter()
        .enumerate()
        .filter(|(_, (keys, _))| *keys > 0)
        .collect();
    let figures: [(&str, u64); 13] = [
        ("peak.allocated", report.peak),
        ("total.allocated", report.used),
        ("startup.allocated", report.startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", report.clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", report.scripts),
        ("functions.caches", report.functions),
        ("overhead.total", overhead),
        ("keys.count", keys),
        (
            "keys.bytes-per-key",
            report
                .used
                .saturating_sub(report.startup)
                .checked_div(keys)
                .unwrap_or(0),
        ),
    ];
    let tail: [(&str, u64); 4] = [
        ("dataset.bytes", report.dataset),
        ("allocator.allocated", report.allocator_allocated),
        ("allocator.active", report.allocator_active),
        ("allocator.resident", report.allocator_resident),
    ];
    let ratios: [(&str, f64); 6] = [
        (
            "dataset.percentage",
            100.0 * ratio(report.dataset, report.used.saturating_sub(report.startup)),
        ),
        ("peak.percentage", 100.0 * ratio(report.used, report.peak)),
        (
            "allocator-fragmentation.ratio",
            ratio(report.allocator_active, report.allocator_allocated),
        ),
        (
            "allocator-rss.ratio",
            ratio(report.allocator_resident, report.allocator_active),
        ),
        (
            "rss-overhead.ratio",
            ratio(report.rss, report.allocator_resident),
        ),
        ("fragmentation", ratio(report.rss, report.used)),
    ];
    let bytes: [(&str, i64); 4] = [
        (
            "allocator-fragmentation.bytes",
            report.allocator_active as i64 - report.allocator_allocated as i64,
        ),
        (
            "allocator-rss.bytes",
            report.allocator_resident as i64 - report.allocator_active as i64,
        ),
        (
            "rss-overhead.bytes",
            report.rss as i64 - report.allocator_resident as i64,
        ),
        (
            "fragmentation.bytes",
            report.rss as i64 - report.used as i64,
        ),
    ];
    out.map(figures.len() + databases.len() + tail.len() + ratios.len() + bytes.len());
    for (name, value) in &figures {
        out.bulk(name.as_bytes());
        out.integer(*value as i64);
    }
    for (index, (keys, volatile)) in databases {
        // The table and the wheel of a database: measured per key, see ARCHITECTURE.md.
        out.bulk(format!("db.{index}").as_bytes());
        out.map(2);
        out.bulk(b"overhead.hashtable.main");
        out.integer((*keys * TABLE_BYTES_PER_KEY) as i64);
        out.bulk(b"overhead.hashtable.expires");
        out.integer((*volatile * WHEEL_BYTES_PER_KEY) as i64);
    }
    for (name, value) in &tail {
        out.bulk(name.as_bytes());
        out.integer(*value as i64);
    }
    for (name, value) in &ratios {
        out.bulk(name.as_bytes());
        out.double(*value);
    }
    for (name, value) in &bytes {
        out.bulk(name.as_bytes());
        out.integer(*value);
    }
    Ok(())
}

/// Bytes of table for each key, on average over all fill levels.
const TABLE_BYTES_PER_KEY: u64 = 12;
/// Bytes of timer wheel for each key with a deadline.
const WHEEL_BYTES_PER_KEY: u64 = 8;

/// `MEMORY DOCTOR`
static DOCTOR: Command = Command::sub("memory|doctor", "doctor", GROUP, 2)
    .doc(
        "4.0.0",
        "",
        "Answers a report on the use of memory, for people.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .on_session(doctor);

fn doctor(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.verbatim("txt", cx.server.memory_doctor());
    Ok(())
}

/// `MEMORY MALLOC-STATS`
static MALLOC_STATS: Command = Command::sub("memory|malloc-stats", "malloc-stats", GROUP, 2)
    .doc("4.0.0", "", "Answers the allocator's own statistics.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
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
        "Gives unused memory of the allocator back to the system.",
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .on_session(purge);

fn purge(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.purge_memory();
    out.ok();
    Ok(())
}

/// `MEMORY HELP`
static HELP: Command = Command::sub("memory|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("4.0.0", "", "Explains the subcommands of MEMORY.")
    .on_session(help);

fn help(_: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    reply_help(
        "MEMORY",
        &[
            "DOCTOR",
            "    A report on the use of memory.",
            "MALLOC-STATS",
            "    The allocator's own statistics.",
            "PURGE",
            "    Gives unused memory of the allocator back to the system.",
            "STATS",
            "    What memory is used for, figure by figure.",
            "USAGE <key> [SAMPLES <count>]",
            "    Bytes that a key and its value take.",
        ],
        out,
    );
    Ok(())
}
