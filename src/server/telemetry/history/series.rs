//! The rows of the history: a stable name, a unit, a description, and how the value is read from published figures.

use std::sync::atomic::Ordering::Relaxed;

use crate::telemetry::figures::FigureContext;
use crate::telemetry::histogram::{self, Buckets};
use basalt_commands::command::host::primary::ReplicaFacts;

/// Maximum number of figures sampled per row.
pub const READ_EACH: usize = 2;

/// The unit of a row's values, as shown by the console's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesUnit {
    /// A count.
    Count,
    /// A count per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
    /// A percentage of a whole.
    Percent,
}

impl SeriesUnit {
    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            SeriesUnit::Count => "count",
            SeriesUnit::PerSecond => "per_second",
            SeriesUnit::Bytes => "bytes",
            SeriesUnit::BytesPerSecond => "bytes_per_second",
            SeriesUnit::Microseconds => "microseconds",
            SeriesUnit::Seconds => "seconds",
            SeriesUnit::Percent => "percent",
        }
    }
}

/// How the seconds of a minute are combined into the minute's point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// A minute's value is the mean of its seconds.
    Mean,
    /// A minute's value is the largest of its seconds.
    Max,
}

/// How a row's value is computed from samples.
pub(super) enum SeriesReader {
    /// A figure, recorded unchanged.
    Gauge(fn(&FigureContext<'_>) -> f64),
    /// A field of INFO, unchanged.
    Field(&'static str),
    /// A monotonic sum, recorded as its growth per second.
    Rate(fn(&FigureContext<'_>) -> f64),
    /// A field of INFO that only grows, recorded as its growth per second.
    FieldRate(&'static str),
    /// The growth of the first field of INFO, in percent of the growth of both.
    Share([&'static str; READ_EACH]),
    /// The growth of the first sum, divided by that of the second.
    Mean(fn(&FigureContext<'_>) -> [f64; READ_EACH]),
    /// A latency percentile of all commands.
    Percentile(f64),
}

/// A row of the history.
pub struct Series {
    /// The name in the API.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: SeriesUnit,
    /// Description of the row, as shown by the console's API.
    pub says: &'static str,
    /// How the seconds of a minute are combined.
    pub fold: Fold,
    pub(super) read: SeriesReader,
}

impl Series {
    const fn new(
        name: &'static str,
        unit: SeriesUnit,
        says: &'static str,
        read: SeriesReader,
    ) -> Series {
        let fold = Fold::Mean;
        Series {
            name,
            unit,
            says,
            fold,
            read,
        }
    }

    /// Makes a minute keep its worst second.
    const fn worst(self) -> Series {
        let fold = Fold::Max;
        Series { fold, ..self }
    }

    /// Returns the fields of INFO that are read.
    #[cfg(test)]
    pub(crate) fn fields(&self) -> Vec<&'static str> {
        match self.read {
            SeriesReader::Field(name) | SeriesReader::FieldRate(name) => vec![name],
            SeriesReader::Share(names) => names.to_vec(),
            _ => Vec::new(),
        }
    }

    pub(super) fn figures(&self, source: &FigureContext<'_>) -> [f64; READ_EACH] {
        let field = |name| source.number(name).unwrap_or(f64::NAN);
        match self.read {
            SeriesReader::Gauge(read) | SeriesReader::Rate(read) => [read(source), 0.0],
            SeriesReader::Field(name) | SeriesReader::FieldRate(name) => [field(name), 0.0],
            SeriesReader::Share(names) => names.map(field),
            SeriesReader::Mean(read) => read(source),
            SeriesReader::Percentile(_) => [0.0; READ_EACH],
        }
    }
}

/// Returns the index of a row in [`SERIES`].
pub fn find(name: &str) -> Option<usize> {
    SERIES.iter().position(|row| row.name == name)
}

/// Returns a percentile of these runs, in microseconds; NaN if nothing ran.
pub(super) fn percentile_us(ran: &Buckets, percent: f64) -> f64 {
    match ran.iter().all(|count| *count == 0) {
        true => f64::NAN,
        false => histogram::percentile_ns(ran, percent) / 1e3,
    }
}

const fn field(
    name: &'static str,
    unit: SeriesUnit,
    says: &'static str,
    field: &'static str,
) -> Series {
    Series::new(name, unit, says, SeriesReader::Field(field))
}

const fn rate(
    name: &'static str,
    unit: SeriesUnit,
    says: &'static str,
    field: &'static str,
) -> Series {
    Series::new(name, unit, says, SeriesReader::FieldRate(field))
}

const fn percentile(name: &'static str, says: &'static str, percent: f64) -> Series {
    Series::new(
        name,
        SeriesUnit::Microseconds,
        says,
        SeriesReader::Percentile(percent),
    )
    .worst()
}

/// Returns the largest value of `figure` among all replicas.
fn worst_replica(source: &FigureContext<'_>, figure: fn(&ReplicaFacts) -> u64) -> f64 {
    let replicas = source.snapshot.replication.replicas.iter();
    replicas.map(figure).max().unwrap_or(0) as f64
}

/// The rows, in display order.
pub static SERIES: [Series; 50] = [
    rate(
        "ops",
        SeriesUnit::PerSecond,
        "Commands run",
        "total_commands_processed",
    ),
    rate(
        "hits",
        SeriesUnit::PerSecond,
        "Key lookups that found a key",
        "keyspace_hits",
    ),
    rate(
        "misses",
        SeriesUnit::PerSecond,
        "Key lookups that found no key",
        "keyspace_misses",
    ),
    Series::new(
        "hit_ratio",
        SeriesUnit::Percent,
        "Key lookups that found a key, in percent of all",
        SeriesReader::Share(["keyspace_hits", "keyspace_misses"]),
    ),
    rate(
        "errors",
        SeriesUnit::PerSecond,
        "Error replies",
        "total_error_replies",
    ),
    percentile("latency_p50", "Half of all commands took less", 50.0),
    percentile("latency_p90", "90 % of all commands took less", 90.0),
    percentile("latency_p99", "99 % of all commands took less", 99.0),
    percentile("latency_p999", "99.9 % of all commands took less", 99.9),
    percentile(
        "latency_max",
        "Upper bound of the latency of all commands",
        100.0,
    ),
    Series::new(
        "slow_commands",
        SeriesUnit::PerSecond,
        "Commands recorded in the slow log",
        SeriesReader::Rate(|s| s.telemetry.slowlog.totals().0 as f64),
    ),
    rate(
        "queued_commands",
        SeriesUnit::PerSecond,
        "Commands queued because their shard was busy",
        "commands_queued",
    ),
    field(
        "memory_used",
        SeriesUnit::Bytes,
        "Used memory",
        "used_memory",
    ),
    field(
        "memory_dataset",
        SeriesUnit::Bytes,
        "Memory of keys and values",
        "used_memory_dataset",
    ),
    field(
        "memory_rss",
        SeriesUnit::Bytes,
        "Resident set of the process",
        "used_memory_rss",
    ),
    field(
        "memory_limit",
        SeriesUnit::Bytes,
        "maxmemory; 0: no limit",
        "maxmemory",
    ),
    field(
        "memory_clients",
        SeriesUnit::Bytes,
        "Memory of client connections",
        "mem_clients_normal",
    ),
    Series::new(
        "keys",
        SeriesUnit::Count,
        "Keys",
        SeriesReader::Gauge(|s| s.snapshot.memory.dbs.iter().map(|db| db.0).sum::<u64>() as f64),
    ),
    Series::new(
        "keys_expiring",
        SeriesUnit::Count,
        "Keys with a TTL",
        SeriesReader::Gauge(|s| s.snapshot.memory.dbs.iter().map(|db| db.1).sum::<u64>() as f64),
    ),
    rate(
        "evictions",
        SeriesUnit::PerSecond,
        "Evicted keys",
        "evicted_keys",
    ),
    field(
        "eviction_debt",
        SeriesUnit::Bytes,
        "Bytes over the limit, still to be evicted",
        "eviction_debt_bytes",
    )
    .worst(),
    rate(
        "expirations",
        SeriesUnit::PerSecond,
        "Expired keys",
        "expired_keys",
    ),
    field(
        "clients",
        SeriesUnit::Count,
        "Connected clients",
        "connected_clients",
    ),
    field(
        "clients_blocked",
        SeriesUnit::Count,
        "Clients blocked waiting for data",
        "blocked_clients",
    ),
    rate(
        "connections",
        SeriesUnit::PerSecond,
        "Accepted client connections",
        "total_connections_received",
    ),
    rate(
        "connections_refused",
        SeriesUnit::PerSecond,
        "Rejected client connections",
        "rejected_connections",
    ),
    rate(
        "net_in",
        SeriesUnit::BytesPerSecond,
        "Received from clients",
        "total_net_input_bytes",
    ),
    rate(
        "net_out",
        SeriesUnit::BytesPerSecond,
        "Sent to clients",
        "total_net_output_bytes",
    ),
    rate(
        "replication_in",
        SeriesUnit::BytesPerSecond,
        "Received from the primary",
        "total_net_repl_input_bytes",
    ),
    rate(
        "replication_out",
        SeriesUnit::BytesPerSecond,
        "Sent to replicas",
        "total_net_repl_output_bytes",
    ),
    field(
        "replicas",
        SeriesUnit::Count,
        "Connected replicas",
        "connected_slaves",
    ),
    Series::new(
        "replication_lag",
        SeriesUnit::Seconds,
        "Time since the last acknowledgement from the slowest replica",
        SeriesReader::Gauge(|s| worst_replica(s, |replica| replica.lag_s)),
    )
    .worst(),
    Series::new(
        "replication_behind",
        SeriesUnit::Bytes,
        "Bytes not yet sent to the slowest replica",
        SeriesReader::Gauge(|s| worst_replica(s, |replica| replica.behind_bytes)),
    )
    .worst(),
    field(
        "unsaved_changes",
        SeriesUnit::Count,
        "Changes since the last snapshot",
        "rdb_changes_since_last_save",
    ),
    field(
        "saving",
        SeriesUnit::Count,
        "1 while a snapshot is being written, else 0",
        "rdb_bgsave_in_progress",
    )
    .worst(),
    field(
        "aof_size",
        SeriesUnit::Bytes,
        "Size of the append-only file",
        "aof_current_size",
    ),
    rate(
        "aof_growth",
        SeriesUnit::BytesPerSecond,
        "Growth of the append-only file",
        "aof_current_size",
    ),
    Series::new(
        "sync_time",
        SeriesUnit::Microseconds,
        "Mean latency of fsync of the append-only file",
        SeriesReader::Mean(|s| {
            let syncs = &s.telemetry.persistence.aof.fsync;
            let count: u64 = syncs.counts.iter().map(|count| count.load(Relaxed)).sum();
            [syncs.total_us.load(Relaxed) as f64, count as f64]
        }),
    )
    .worst(),
    rate(
        "syncs_delayed",
        SeriesUnit::PerSecond,
        "Writes made while the previous fsync was still running",
        "aof_delayed_fsync",
    ),
    Series::new(
        "cpu_user",
        SeriesUnit::Percent,
        "User CPU time, in percent of one core",
        SeriesReader::Rate(|s| s.snapshot.cpu.own.user * 100.0),
    ),
    Series::new(
        "cpu_system",
        SeriesUnit::Percent,
        "System CPU time, in percent of one core",
        SeriesReader::Rate(|s| s.snapshot.cpu.own.system * 100.0),
    ),
    Series::new(
        "expiry_lag",
        SeriesUnit::Microseconds,
        "Mean delay between the expiry of a key and its deletion",
        SeriesReader::Mean(|s| {
            let count: u64 = s.snapshot.lag.iter().sum();
            [s.snapshot.lag_sum_ms as f64 * 1e3, count as f64]
        }),
    )
    .worst(),
    rate(
        "writer_waits",
        SeriesUnit::PerSecond,
        "Times a write waited for the disk, a replica or a snapshot",
        "writer_waits",
    ),
    rate(
        "leases",
        SeriesUnit::PerSecond,
        "Leases granted",
        "leases_given",
    ),
    field(
        "leases_waiting",
        SeriesUnit::Count,
        "Clients waiting for a value that another client loads",
        "leases_waiting",
    )
    .worst(),
    rate(
        "stale_served",
        SeriesUnit::PerSecond,
        "Stale values served",
        "leases_stale_served",
    ),
    rate(
        "tags_keys",
        SeriesUnit::PerSecond,
        "Keys deleted by tag",
        "tags_keys_invalidated",
    ),
    rate(
        "locks",
        SeriesUnit::PerSecond,
        "Locks acquired",
        "locks_taken",
    ),
    rate(
        "let_through",
        SeriesUnit::PerSecond,
        "Requests allowed by CL.THROTTLE",
        "throttle_let_through",
    ),
    rate(
        "limited",
        SeriesUnit::PerSecond,
        "Requests limited by CL.THROTTLE",
        "throttle_limited",
    ),
];
