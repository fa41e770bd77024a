//! The rows of the history: a stable name, a unit, a description, and how the value is read from published figures.

use std::sync::atomic::Ordering::Relaxed;

use crate::telemetry::figures::FigureContext;
use crate::telemetry::histogram::{self, Buckets};
use SeriesUnit::{Bytes, BytesPerSecond, Count, Microseconds, PerSecond, Percent, Seconds};
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
    const fn new(name: &'static str, read: SeriesReader) -> Series {
        Series {
            name,
            unit: Count,
            says: "",
            fold: Fold::Mean,
            read,
        }
    }

    /// Sets the unit and the description.
    const fn of(self, unit: SeriesUnit, says: &'static str) -> Series {
        Series { unit, says, ..self }
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

const fn field(name: &'static str, field: &'static str) -> Series {
    Series::new(name, SeriesReader::Field(field))
}

const fn rate(name: &'static str, field: &'static str) -> Series {
    Series::new(name, SeriesReader::FieldRate(field))
}

const fn percentile(name: &'static str, percent: f64) -> Series {
    Series::new(name, SeriesReader::Percentile(percent)).worst()
}

/// Returns the largest value of `figure` among all replicas.
fn worst_replica(source: &FigureContext<'_>, figure: fn(&ReplicaFacts) -> u64) -> f64 {
    let replicas = source.snapshot.replication.replicas.iter();
    replicas.map(figure).max().unwrap_or(0) as f64
}

/// The rows, in display order.
pub static SERIES: [Series; 50] = [
    rate("ops", "total_commands_processed").of(PerSecond, "Commands run"),
    rate("hits", "keyspace_hits").of(PerSecond, "Key lookups that found a key"),
    rate("misses", "keyspace_misses").of(PerSecond, "Key lookups that found no key"),
    Series::new(
        "hit_ratio",
        SeriesReader::Share(["keyspace_hits", "keyspace_misses"]),
    )
    .of(Percent, "Key lookups that found a key, in percent of all"),
    rate("errors", "total_error_replies").of(PerSecond, "Error replies"),
    percentile("latency_p50", 50.0).of(Microseconds, "Half of all commands took less"),
    percentile("latency_p90", 90.0).of(Microseconds, "90 % of all commands took less"),
    percentile("latency_p99", 99.0).of(Microseconds, "99 % of all commands took less"),
    percentile("latency_p999", 99.9).of(Microseconds, "99.9 % of all commands took less"),
    percentile("latency_max", 100.0).of(Microseconds, "Upper bound of the latency of all commands"),
    Series::new(
        "slow_commands",
        SeriesReader::Rate(|s| s.telemetry.slowlog.totals().0 as f64),
    )
    .of(PerSecond, "Commands recorded in the slow log"),
    rate("queued_commands", "commands_queued")
        .of(PerSecond, "Commands queued because their shard was busy"),
    field("memory_used", "used_memory").of(Bytes, "Used memory"),
    field("memory_dataset", "used_memory_dataset").of(Bytes, "Memory of keys and values"),
    field("memory_rss", "used_memory_rss").of(Bytes, "Resident set of the process"),
    field("memory_limit", "maxmemory").of(Bytes, "maxmemory; 0: no limit"),
    field("memory_clients", "mem_clients_normal").of(Bytes, "Memory of client connections"),
    Series::new(
        "keys",
        SeriesReader::Gauge(|s| s.snapshot.memory.dbs.iter().map(|db| db.0).sum::<u64>() as f64),
    )
    .of(Count, "Keys"),
    Series::new(
        "keys_expiring",
        SeriesReader::Gauge(|s| s.snapshot.memory.dbs.iter().map(|db| db.1).sum::<u64>() as f64),
    )
    .of(Count, "Keys with a TTL"),
    rate("evictions", "evicted_keys").of(PerSecond, "Evicted keys"),
    field("eviction_debt", "eviction_debt_bytes")
        .of(Bytes, "Bytes over the limit, still to be evicted")
        .worst(),
    rate("expirations", "expired_keys").of(PerSecond, "Expired keys"),
    field("clients", "connected_clients").of(Count, "Connected clients"),
    field("clients_blocked", "blocked_clients").of(Count, "Clients blocked waiting for data"),
    rate("connections", "total_connections_received").of(PerSecond, "Accepted client connections"),
    rate("connections_refused", "rejected_connections")
        .of(PerSecond, "Rejected client connections"),
    rate("net_in", "total_net_input_bytes").of(BytesPerSecond, "Received from clients"),
    rate("net_out", "total_net_output_bytes").of(BytesPerSecond, "Sent to clients"),
    rate("replication_in", "total_net_repl_input_bytes")
        .of(BytesPerSecond, "Received from the primary"),
    rate("replication_out", "total_net_repl_output_bytes").of(BytesPerSecond, "Sent to replicas"),
    field("replicas", "connected_slaves").of(Count, "Connected replicas"),
    Series::new(
        "replication_lag",
        SeriesReader::Gauge(|s| worst_replica(s, |replica| replica.lag_s)),
    )
    .of(
        Seconds,
        "Time since the last acknowledgement from the slowest replica",
    )
    .worst(),
    Series::new(
        "replication_behind",
        SeriesReader::Gauge(|s| worst_replica(s, |replica| replica.behind_bytes)),
    )
    .of(Bytes, "Bytes not yet sent to the slowest replica")
    .worst(),
    field("unsaved_changes", "rdb_changes_since_last_save")
        .of(Count, "Changes since the last snapshot"),
    field("saving", "rdb_bgsave_in_progress")
        .of(Count, "1 while a snapshot is being written, else 0")
        .worst(),
    field("aof_size", "aof_current_size").of(Bytes, "Size of the append-only file"),
    rate("aof_growth", "aof_current_size").of(BytesPerSecond, "Growth of the append-only file"),
    Series::new(
        "sync_time",
        SeriesReader::Mean(|s| {
            let syncs = &s.telemetry.persistence.aof.fsync;
            let count: u64 = syncs.counts.iter().map(|count| count.load(Relaxed)).sum();
            [syncs.total_us.load(Relaxed) as f64, count as f64]
        }),
    )
    .of(
        Microseconds,
        "Mean latency of fsync of the append-only file",
    )
    .worst(),
    rate("syncs_delayed", "aof_delayed_fsync").of(
        PerSecond,
        "Writes made while the previous fsync was still running",
    ),
    Series::new(
        "cpu_user",
        SeriesReader::Rate(|s| s.snapshot.cpu.own.user * 100.0),
    )
    .of(Percent, "User CPU time, in percent of one core"),
    Series::new(
        "cpu_system",
        SeriesReader::Rate(|s| s.snapshot.cpu.own.system * 100.0),
    )
    .of(Percent, "System CPU time, in percent of one core"),
    Series::new(
        "expiry_lag",
        SeriesReader::Mean(|s| {
            let count: u64 = s.snapshot.lag.iter().sum();
            [s.snapshot.lag_sum_ms as f64 * 1e3, count as f64]
        }),
    )
    .of(
        Microseconds,
        "Mean delay between the expiry of a key and its deletion",
    )
    .worst(),
    rate("writer_waits", "writer_waits").of(
        PerSecond,
        "Times a write waited for the disk, a replica or a snapshot",
    ),
    rate("leases", "leases_given").of(PerSecond, "Leases granted"),
    field("leases_waiting", "leases_waiting")
        .of(
            Count,
            "Clients waiting for a value that another client loads",
        )
        .worst(),
    rate("stale_served", "leases_stale_served").of(PerSecond, "Stale values served"),
    rate("tags_keys", "tags_keys_invalidated").of(PerSecond, "Keys deleted by tag"),
    rate("locks", "locks_taken").of(PerSecond, "Locks acquired"),
    rate("let_through", "throttle_let_through").of(PerSecond, "Requests allowed by CL.THROTTLE"),
    rate("limited", "throttle_limited").of(PerSecond, "Requests limited by CL.THROTTLE"),
];
