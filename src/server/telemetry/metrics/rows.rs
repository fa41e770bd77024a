//! Metrics without labels, as rows: a name, a help text, a type, and how the value is read.

use std::sync::atomic::Ordering::Relaxed;

use super::page::MetricsPage;
use crate::telemetry::info::{self, ratio};
use crate::telemetry::observed::Observed;
use crate::telemetry::process;
use crate::telemetry::snapshot::Snapshot;
use basalt_commands::acl::Denied;
use basalt_commands::config::Config;
use basalt_core::alloc::deferred_free;

/// The source of metrics.
pub(super) struct MetricsContext<'a> {
    pub(super) service: &'a dyn Observed,
    pub(super) config: &'a Config,
    pub(super) snapshot: &'a Snapshot,
}

/// A metric.
pub(super) struct MetricRow {
    name: &'static str,
    help: &'static str,
    read: MetricReader,
}

#[cfg(test)]
impl MetricRow {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the field of INFO that is shown, if any.
    pub(super) fn field(&self) -> Option<&'static str> {
        match self.read {
            MetricReader::InfoGauge(field, _) | MetricReader::InfoCounter(field) => Some(field),
            MetricReader::Gauge(_) | MetricReader::Counter(_) | MetricReader::Seconds(_) => None,
        }
    }
}

/// The type of a metric, and how it is read.
enum MetricReader {
    Gauge(fn(&MetricsContext<'_>) -> f64),
    Counter(fn(&MetricsContext<'_>) -> u64),
    /// A counter with a fractional value.
    Seconds(fn(&MetricsContext<'_>) -> f64),
    /// A gauge that shows a field of INFO, multiplied by a factor.
    InfoGauge(&'static str, f64),
    /// A counter that shows a field of INFO.
    InfoCounter(&'static str),
}

pub(super) const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsContext<'_>) -> f64,
) -> MetricRow {
    MetricRow {
        name,
        help,
        read: MetricReader::Gauge(read),
    }
}

pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsContext<'_>) -> u64,
) -> MetricRow {
    MetricRow {
        name,
        help,
        read: MetricReader::Counter(read),
    }
}

pub(super) const fn seconds(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsContext<'_>) -> f64,
) -> MetricRow {
    MetricRow {
        name,
        help,
        read: MetricReader::Seconds(read),
    }
}

/// A gauge that shows INFO's `field`; use [`scaled`] if the unit differs.
pub(super) const fn info_gauge(
    name: &'static str,
    help: &'static str,
    field: &'static str,
) -> MetricRow {
    scaled(name, help, field, 1.0)
}

pub(super) const fn scaled(
    name: &'static str,
    help: &'static str,
    field: &'static str,
    factor: f64,
) -> MetricRow {
    MetricRow {
        name,
        help,
        read: MetricReader::InfoGauge(field, factor),
    }
}

/// A counter that shows INFO's `field`.
pub(super) const fn info_counter(
    name: &'static str,
    help: &'static str,
    field: &'static str,
) -> MetricRow {
    MetricRow {
        name,
        help,
        read: MetricReader::InfoCounter(field),
    }
}

impl MetricsContext<'_> {
    /// Returns the figure of a field of INFO.
    pub(super) fn info(&self, field: &str) -> Option<f64> {
        info::number(self.service, self.config, self.snapshot, field)
    }
}

/// Writes rows to the page.
pub(super) fn write(rows: &[MetricRow], source: &MetricsContext<'_>, page: &mut MetricsPage) {
    for MetricRow { name, help, read } in rows {
        match read {
            MetricReader::Gauge(read) => page.gauge(name, help, read(source)),
            MetricReader::Counter(read) => page.counter(name, help, read(source)),
            MetricReader::Seconds(read) => page.seconds_total(name, help, &[(&[], read(source))]),
            // Omit figures that do not exist: a zero would be wrong.
            MetricReader::InfoGauge(field, factor) => {
                if let Some(figure) = source.info(field) {
                    page.gauge(name, help, figure * factor);
                }
            }
            MetricReader::InfoCounter(field) => {
                if let Some(figure) = source.info(field) {
                    page.counter(name, help, figure as u64);
                }
            }
        }
    }
}

/// Returns the number and microseconds of the latest slow command.
fn slowest(source: &MetricsContext<'_>) -> (u64, u64) {
    source
        .service
        .telemetry()
        .slowlog
        .newest()
        .unwrap_or_default()
}

/// Locks, rate limits and queues of due work.
pub(super) static LOCKS: &[MetricRow] = &[
    info_counter("basalt_locks_taken_total", "Acquired locks.", "locks_taken"),
    info_counter(
        "basalt_locks_handed_over_total",
        "Locks acquired after waiting.",
        "locks_handed_over",
    ),
    info_counter(
        "basalt_locks_retaken_total",
        "Locks acquired again by their owner.",
        "locks_retaken",
    ),
    info_counter(
        "basalt_locks_released_total",
        "Locks released by their owner.",
        "locks_released",
    ),
    info_counter(
        "basalt_throttle_let_through_total",
        "Requests allowed by CL.THROTTLE.",
        "throttle_let_through",
    ),
    info_counter(
        "basalt_throttle_limited_total",
        "Requests limited by CL.THROTTLE.",
        "throttle_limited",
    ),
    info_counter(
        "basalt_due_members_taken_total",
        "Due members removed from delay queues.",
        "due_members_taken",
    ),
];

/// Connections, commands, bytes, slow commands.
pub(super) static TRAFFIC: &[MetricRow] = &[
    gauge(
        "redis_connected_clients",
        "Number of connected clients.",
        |s| s.snapshot.clients as f64,
    ),
    gauge("redis_blocked_clients", "Number of blocked clients.", |s| {
        s.snapshot.client_figures.blocked as f64
    }),
    gauge(
        "redis_tracking_clients",
        "Clients that use client-side caching (CLIENT TRACKING).",
        |s| s.snapshot.pubsub.tracking_clients as f64,
    ),
    gauge(
        "redis_client_recent_max_input_buffer_bytes",
        "Largest unprocessed input of a client in bytes.",
        |s| s.snapshot.client_figures.input_max as f64,
    ),
    gauge(
        "redis_client_recent_max_output_buffer_bytes",
        "Largest unsent output of a client in bytes.",
        |s| s.snapshot.client_figures.output_max as f64,
    ),
    counter(
        "redis_connections_received_total",
        "Accepted connections.",
        |s| s.snapshot.accepted,
    ),
    counter(
        "redis_rejected_connections_total",
        "Rejected connections.",
        |s| s.snapshot.rejected,
    ),
    gauge(
        "basalt_unauthenticated_clients",
        "Clients that have not authenticated yet.",
        |s| s.service.clients().unauthenticated() as f64,
    ),
    counter(
        "basalt_unauthenticated_clients_closed_total",
        "Clients disconnected because they did not authenticate in time.",
        |s| {
            let closed = &s.service.clients().unauthenticated_closed;
            closed.load(Relaxed)
        },
    ),
    counter(
        "redis_acl_access_denied_auth_total",
        "Failed authentications.",
        |s| s.service.users().figures.of(Denied::Auth),
    ),
    counter(
        "redis_acl_access_denied_cmd_total",
        "Commands denied by the ACL rules of a user.",
        |s| s.service.users().figures.of(Denied::Command),
    ),
    counter(
        "redis_acl_access_denied_key_total",
        "Commands denied because of a key.",
        |s| s.service.users().figures.of(Denied::Key),
    ),
    counter(
        "redis_acl_access_denied_channel_total",
        "Commands denied because of a channel.",
        |s| s.service.users().figures.of(Denied::Channel),
    ),
    counter(
        "redis_acl_access_denied_tls_cert_total",
        "Clients denied because their certificate matches no enabled user.",
        |s| s.service.users().figures.of(Denied::Certificate),
    ),
    counter(
        "redis_acl_access_denied_db_total",
        "Commands denied because of the database.",
        |s| s.service.users().figures.of(Denied::Database),
    ),
    counter(
        "redis_commands_processed_total",
        "Processed commands.",
        |s| s.snapshot.calls,
    ),
    gauge(
        "redis_instantaneous_input_kbps",
        "KiB received per second over the last 1.6 s.",
        |s| s.snapshot.rates.bytes_in / 1_024.0,
    ),
    gauge(
        "redis_instantaneous_output_kbps",
        "KiB sent per second over the last 1.6 s.",
        |s| s.snapshot.rates.bytes_out / 1_024.0,
    ),
    counter("redis_net_input_bytes_total", "Bytes received.", |s| {
        s.snapshot.bytes_in
    }),
    counter("redis_net_output_bytes_total", "Bytes sent.", |s| {
        s.snapshot.bytes_out
    }),
    counter(
        "basalt_socket_reads_total",
        "Reads from sockets that returned data.",
        |s| s.snapshot.reads,
    ),
    counter("basalt_socket_writes_total", "Writes to sockets.", |s| {
        s.snapshot.writes
    }),
    gauge("redis_slowlog_length", "Commands in the slow log.", |s| {
        s.service.telemetry().slowlog.len() as f64
    }),
    gauge(
        "redis_slowlog_last_id",
        "ID of the latest entry in the slow log.",
        |s| slowest(s).0 as f64,
    ),
    gauge(
        "redis_last_slow_execution_duration_seconds",
        "Duration of the latest slow command in seconds.",
        |s| slowest(s).1 as f64 / 1e6,
    ),
];

/// Memory of the process, the allocator and the machine; deferred frees and defragmentation.
pub(super) static MEMORY: &[MetricRow] = &[
    gauge("redis_memory_used_bytes", "Used memory in bytes.", |s| {
        s.snapshot.memory.used as f64
    }),
    gauge(
        "redis_memory_used_rss_bytes",
        "Resident memory of the process (RSS) in bytes.",
        |s| s.snapshot.memory.rss as f64,
    ),
    gauge(
        "redis_memory_used_peak_bytes",
        "Peak of used memory in bytes.",
        |s| s.snapshot.memory.peak as f64,
    ),
    gauge(
        "redis_memory_used_startup_bytes",
        "Used memory at startup in bytes.",
        |s| s.snapshot.memory.startup as f64,
    ),
    gauge(
        "redis_memory_used_dataset_bytes",
        "Memory of keys and values in bytes.",
        |s| s.snapshot.memory.dataset as f64,
    ),
    gauge(
        "redis_memory_used_overhead_bytes",
        "Used memory except for keys and values, in bytes.",
        |s| {
            let report = &s.snapshot.memory;
            report.used.saturating_sub(report.dataset) as f64
        },
    ),
    gauge(
        "redis_memory_max_bytes",
        "Memory limit in bytes (maxmemory); 0: no limit.",
        |s| s.config.maxmemory as f64,
    ),
    gauge(
        "redis_mem_clients_normal",
        "Memory of client connections in bytes.",
        |s| s.snapshot.memory.clients as f64,
    ),
    gauge(
        "redis_allocator_allocated_bytes",
        "Bytes allocated from the allocator.",
        |s| s.snapshot.memory.allocator_allocated as f64,
    ),
    gauge(
        "redis_allocator_active_bytes",
        "Bytes in active pages of the allocator.",
        |s| s.snapshot.memory.allocator_active as f64,
    ),
    gauge(
        "redis_allocator_resident_bytes",
        "Resident bytes of the allocator.",
        |s| s.snapshot.memory.allocator_resident as f64,
    ),
    gauge(
        "redis_total_system_memory_bytes",
        "Memory of the machine in bytes.",
        |_| process::total_memory_bytes() as f64,
    ),
    gauge(
        "redis_mem_fragmentation_ratio",
        "Ratio of resident memory (RSS) to used memory.",
        |s| ratio(s.snapshot.memory.rss, s.snapshot.memory.used),
    ),
    gauge(
        "redis_allocator_frag_ratio",
        "Ratio of active pages to allocated memory of the allocator.",
        |s| {
            let report = &s.snapshot.memory;
            ratio(report.allocator_active, report.allocator_allocated)
        },
    ),
    gauge(
        "redis_allocator_rss_ratio",
        "Ratio of resident memory to active pages of the allocator.",
        |s| {
            let report = &s.snapshot.memory;
            ratio(report.allocator_resident, report.allocator_active)
        },
    ),
    gauge(
        "redis_lazyfree_pending_objects",
        "Objects waiting to be freed in the background.",
        |s| {
            let pending = s.service.budget().pending_objects();
            (pending + deferred_free::waiting_pieces() as u64) as f64
        },
    ),
    gauge(
        "redis_active_defrag_running",
        "Percent of a CPU core that active defragmentation may use now.",
        |s| s.service.telemetry().defrag.percent.load(Relaxed) as f64,
    ),
    gauge(
        "redis_defrag_hits",
        "Allocations moved by active defragmentation.",
        |s| s.service.telemetry().defrag.moved.load(Relaxed) as f64,
    ),
    gauge(
        "redis_defrag_misses",
        "Allocations that active defragmentation did not need to move.",
        |s| s.service.telemetry().defrag.left_alone.load(Relaxed) as f64,
    ),
];

/// Hits, misses, and keys evicted or expired.
pub(super) static KEYSPACE: &[MetricRow] = &[
    counter(
        "redis_keyspace_hits_total",
        "Key lookups that found a key.",
        |s| s.snapshot.counts.hits,
    ),
    counter(
        "redis_keyspace_misses_total",
        "Key lookups that found no key.",
        |s| s.snapshot.counts.misses,
    ),
    counter("redis_expired_keys_total", "Expired keys.", |s| {
        s.snapshot.counts.expired
    }),
    counter("redis_evicted_keys_total", "Evicted keys.", |s| {
        s.snapshot.counts.evicted
    }),
    counter(
        "basalt_eviction_promotions_total",
        "Keys promoted from the queue of new keys because they were used again.",
        |s| s.snapshot.eviction.promoted,
    ),
    counter(
        "basalt_eviction_ghost_hits_total",
        "Keys written again soon after their eviction.",
        |s| s.snapshot.eviction.ghost_hits,
    ),
    gauge(
        "basalt_evictable_keys",
        "Keys that maxmemory-policy allows to evict: none with noeviction, and no held locks.",
        |s| s.service.budget().evictable_keys() as f64,
    ),
    gauge(
        "basalt_locks_held_bytes",
        "Memory of held locks (LOCK) in bytes; they are not evicted.",
        |s| s.service.budget().held_bytes() as f64,
    ),
    gauge(
        "basalt_eviction_debt_bytes",
        "Bytes over the memory limit that are still to be evicted.",
        |s| s.snapshot.eviction.debt_bytes as f64,
    ),
    gauge(
        "basalt_memory_limit_exceeded_seconds",
        "Seconds for which used memory has been above the limit.",
        |s| s.snapshot.eviction.exceeded_ms as f64 / 1e3,
    ),
    seconds(
        "basalt_eviction_cycle_seconds_total",
        "Seconds spent on eviction in the background.",
        |s| s.snapshot.eviction.spent_ns as f64 / 1e9,
    ),
    seconds(
        "basalt_expire_cycle_seconds_total",
        "Seconds spent on expiry in the background.",
        |s| s.snapshot.expire_ns as f64 / 1e9,
    ),
    gauge(
        "basalt_expiry_lag_max_seconds",
        "Longest delay between the expiry of a key and its deletion in seconds.",
        |s| s.snapshot.lag_max_ms as f64 / 1e3,
    ),
];

/// Leases for loading missing keys, and tags.
pub(super) static LEASES: &[MetricRow] = &[
    info_gauge(
        "basalt_leases_in_force",
        "Active leases.",
        "leases_in_force",
    ),
    info_gauge(
        "basalt_leases_waiting_clients",
        "Clients waiting for a key that another client loads.",
        "leases_waiting",
    ),
    info_counter(
        "basalt_leases_given_total",
        "Leases granted to clients that load a key.",
        "leases_given",
    ),
    info_counter(
        "basalt_leases_filled_total",
        "Leases filled with a value.",
        "leases_filled",
    ),
    info_counter(
        "basalt_leases_dropped_total",
        "Leases dropped by their client.",
        "leases_dropped",
    ),
    info_counter(
        "basalt_leases_void_by_time_total",
        "Leases that expired before they were filled.",
        "leases_void_by_time",
    ),
    info_counter(
        "basalt_leases_void_by_change_total",
        "Leases that became void because their key changed.",
        "leases_void_by_change",
    ),
    info_counter(
        "basalt_leases_fills_refused_total",
        "Values that LFILL rejected because their token was void.",
        "leases_fills_refused",
    ),
    info_counter(
        "basalt_leases_stale_served_total",
        "Stale values served.",
        "leases_stale_served",
    ),
    info_counter(
        "basalt_tags_invalidated_total",
        "Tags invalidated, counted in each shard that had keys with them.",
        "tags_invalidated",
    ),
    info_counter(
        "basalt_tags_invalidated_keys_total",
        "Keys deleted by the invalidation of a tag.",
        "tags_keys_invalidated",
    ),
];

/// Script runs that were slow, rolled back or moved to dedicated threads.
pub(super) static SCRIPTS: &[MetricRow] = &[
    counter(
        "basalt_script_apart_runs_total",
        "Scripts run on a thread of their own.",
        |s| s.snapshot.scripts.apart,
    ),
    counter(
        "basalt_script_shards_extended_total",
        "Shards that scripts acquired while running.",
        |s| s.snapshot.scripts.extended,
    ),
    counter(
        "basalt_script_reruns_total",
        "Scripts that were rolled back and run again.",
        |s| s.snapshot.scripts.reruns,
    ),
];
