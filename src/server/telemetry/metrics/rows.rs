//! Figures that are only metrics: INFO has no field for them, or one with another unit.

use crate::telemetry::figures::{Figure, FigureContext, metric, metric_count};
use basalt_commands::command::host::primary::StreamFacts;

/// Returns the number and microseconds of the latest slow command.
fn slowest(source: &FigureContext<'_>) -> (u64, u64) {
    source.telemetry.slowlog.newest().unwrap_or_default()
}

fn stream<'s>(source: &'s FigureContext<'_>) -> &'s StreamFacts {
    &source.snapshot.replication.stream
}

/// The rows.
pub(super) static ROWS: &[Figure] = &[
    metric(|_| 1.0).gauge("redis_up", "1 if the server is up."),
    metric(|s| (s.telemetry.started_ms / 1_000) as f64)
        .gauge("redis_start_time_seconds", "Start time in Unix seconds."),
    metric(|s| s.config.maxmemory as f64).gauge(
        "redis_config_maxmemory",
        "Memory limit in bytes (maxmemory).",
    ),
    metric(|s| f64::from(s.config.io_threads)).gauge(
        "redis_config_io_threads",
        "Value of the directive io-threads.",
    ),
    metric(|s| stream(s).first as f64).gauge(
        "redis_repl_backlog_first_byte_offset",
        "Offset of the first byte in the replication backlog.",
    ),
    metric(|s| stream(s).held_bytes as f64).gauge(
        "redis_repl_backlog_history_bytes",
        "Bytes in the replication backlog.",
    ),
    metric_count(|s| s.snapshot.reads).counter(
        "basalt_socket_reads_total",
        "Reads from sockets that returned data.",
    ),
    metric_count(|s| s.snapshot.writes).counter("basalt_socket_writes_total", "Writes to sockets."),
    metric(|s| s.telemetry.slowlog.len() as f64)
        .gauge("redis_slowlog_length", "Commands in the slow log."),
    metric(|s| slowest(s).0 as f64).gauge(
        "redis_slowlog_last_id",
        "ID of the latest entry in the slow log.",
    ),
    metric(|s| slowest(s).1 as f64 / 1e6).gauge(
        "redis_last_slow_execution_duration_seconds",
        "Duration of the latest slow command in seconds.",
    ),
    metric(|_| 0.0).gauge(
        "redis_latest_fork_seconds",
        "Duration of the latest fork; always 0, as snapshots do not fork.",
    ),
    metric(|s| s.service.budget().evictable_keys() as f64).gauge(
        "basalt_evictable_keys",
        "Keys that maxmemory-policy allows to evict: none with noeviction, no held locks and no blessed keys.",
    ),
    metric(|s| s.service.budget().held_bytes() as f64).gauge(
        "basalt_locks_held_bytes",
        "Memory of held locks (LOCK) in bytes; they are not evicted.",
    ),
    metric(|s| s.snapshot.eviction.exceeded_ms as f64 / 1e3).gauge(
        "basalt_memory_limit_exceeded_seconds",
        "Seconds for which used memory has been above the limit.",
    ),
    metric(|s| s.snapshot.eviction.spent_ns as f64 / 1e9).counter(
        "basalt_eviction_cycle_seconds_total",
        "Seconds spent on eviction in the background.",
    ),
    metric(|s| s.snapshot.expire_ns as f64 / 1e9).counter(
        "basalt_expire_cycle_seconds_total",
        "Seconds spent on expiry in the background.",
    ),
    metric(|s| s.snapshot.lag_max_ms as f64 / 1e3).gauge(
        "basalt_expiry_lag_max_seconds",
        "Longest delay between the expiry of a key and its deletion in seconds.",
    ),
];
