//! Metrics without labels, as rows: a name, a help text, a type, and how the value is read.

use std::sync::atomic::Ordering::Relaxed;

use super::page::Page;
use crate::telemetry::info::{self, ratio};
use crate::telemetry::observed::Observed;
use crate::telemetry::process;
use crate::telemetry::snapshot::Snapshot;
use basalt_commands::acl::Denied;
use basalt_commands::config::Config;
use basalt_core::alloc::deferred_free;

/// The source of metrics.
pub(super) struct Source<'a> {
    pub(super) service: &'a dyn Observed,
    pub(super) config: &'a Config,
    pub(super) snapshot: &'a Snapshot,
}

/// A metric.
pub(super) struct Row {
    name: &'static str,
    help: &'static str,
    read: Read,
}

#[cfg(test)]
impl Row {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the field of INFO that is shown, if any.
    pub(super) fn field(&self) -> Option<&'static str> {
        match self.read {
            Read::InfoGauge(field, _) | Read::InfoCounter(field) => Some(field),
            Read::Gauge(_) | Read::Counter(_) | Read::Seconds(_) => None,
        }
    }
}

/// The type of a metric, and how it is read.
enum Read {
    Gauge(fn(&Source<'_>) -> f64),
    Counter(fn(&Source<'_>) -> u64),
    /// A counter with a fractional value.
    Seconds(fn(&Source<'_>) -> f64),
    /// A gauge that shows a field of INFO, multiplied by a factor.
    InfoGauge(&'static str, f64),
    /// A counter that shows a field of INFO.
    InfoCounter(&'static str),
}

pub(super) const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Source<'_>) -> f64,
) -> Row {
    Row {
        name,
        help,
        read: Read::Gauge(read),
    }
}

pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Source<'_>) -> u64,
) -> Row {
    Row {
        name,
        help,
        read: Read::Counter(read),
    }
}

pub(super) const fn seconds(
    name: &'static str,
    help: &'static str,
    read: fn(&Source<'_>) -> f64,
) -> Row {
    Row {
        name,
        help,
        read: Read::Seconds(read),
    }
}

/// A gauge that shows INFO's `field`; use [`scaled`] if the unit differs.
pub(super) const fn info_gauge(name: &'static str, help: &'static str, field: &'static str) -> Row {
    scaled(name, help, field, 1.0)
}

pub(super) const fn scaled(
    name: &'static str,
    help: &'static str,
    field: &'static str,
    factor: f64,
) -> Row {
    Row {
        name,
        help,
        read: Read::InfoGauge(field, factor),
    }
}

/// A counter that shows INFO's `field`.
pub(super) const fn info_counter(
    name: &'static str,
    help: &'static str,
    field: &'static str,
) -> Row {
    Row {
        name,
        help,
        read: Read::InfoCounter(field),
    }
}

impl Source<'_> {
    /// Returns the figure of a field of INFO.
    pub(super) fn info(&self, field: &str) -> Option<f64> {
        info::number(self.service, self.config, self.snapshot, field)
    }
}

/// Writes rows to the page.
pub(super) fn write(rows: &[Row], source: &Source<'_>, page: &mut Page) {
    for Row { name, help, read } in rows {
        match read {
            Read::Gauge(read) => page.gauge(name, help, read(source)),
            Read::Counter(read) => page.counter(name, help, read(source)),
            Read::Seconds(read) => page.seconds_total(name, help, &[(&[], read(source))]),
            // Omit figures that do not exist: a zero would be wrong.
            Read::InfoGauge(field, factor) => {
                if let Some(figure) = source.info(field) {
                    page.gauge(name, help, figure * factor);
                }
            }
            Read::InfoCounter(field) => {
                if let Some(figure) = source.info(field) {
                    page.counter(name, help, figure as u64);
                }
            }
        }
    }
}

/// Returns the number and microseconds of the latest slow command.
fn slowest(source: &Source<'_>) -> (u64, u64) {
    source
        .service
        .telemetry()
        .slowlog
        .newest()
        .unwrap_or_default()
}

/// Locks, rate limits and queues of due work.
pub(super) static LOCKS: &[Row] = &[
    info_counter(
        "basalt_locks_taken_total",
        "Locks that an owner got.",
        "locks_taken",
    ),
    info_counter(
        "basalt_locks_handed_over_total",
        "Locks that an owner got who had waited for them.",
        "locks_handed_over",
    ),
    info_counter(
        "basalt_locks_retaken_total",
        "Times that an owner took a lock which it had.",
        "locks_retaken",
    ),
    info_counter(
        "basalt_locks_released_total",
        "Locks that their owner released.",
        "locks_released",
    ),
    info_counter(
        "basalt_throttle_let_through_total",
        "Requests that CL.THROTTLE let through.",
        "throttle_let_through",
    ),
    info_counter(
        "basalt_throttle_limited_total",
        "Requests that CL.THROTTLE did not let through.",
        "throttle_limited",
    ),
    info_counter(
        "basalt_due_members_taken_total",
        "Members of queues that were taken out as they were due.",
        "due_members_taken",
    ),
];

/// Connections, commands, bytes, slow commands.
pub(super) static TRAFFIC: &[Row] = &[
    gauge("redis_connected_clients", "Connections now.", |s| {
        s.snapshot.clients as f64
    }),
    gauge(
        "redis_blocked_clients",
        "Clients that wait for data.",
        |s| s.snapshot.client_figures.blocked as f64,
    ),
    gauge(
        "redis_tracking_clients",
        "Clients that cache on their side.",
        |s| s.snapshot.pubsub.tracking_clients as f64,
    ),
    gauge(
        "redis_client_recent_max_input_buffer_bytes",
        "Largest unread input of a client.",
        |s| s.snapshot.client_figures.input_max as f64,
    ),
    gauge(
        "redis_client_recent_max_output_buffer_bytes",
        "Largest unsent output of a client.",
        |s| s.snapshot.client_figures.output_max as f64,
    ),
    counter(
        "redis_connections_received_total",
        "Connections accepted.",
        |s| s.snapshot.accepted,
    ),
    counter(
        "redis_rejected_connections_total",
        "Connections refused.",
        |s| s.snapshot.rejected,
    ),
    gauge(
        "basalt_unauthenticated_clients",
        "Clients that have yet to sign in.",
        |s| s.service.clients().unauthenticated() as f64,
    ),
    counter(
        "basalt_unauthenticated_clients_closed_total",
        "Clients closed because they did not sign in.",
        |s| {
            let closed = &s.service.clients().unauthenticated_closed;
            closed.load(Relaxed)
        },
    ),
    counter(
        "redis_acl_access_denied_auth_total",
        "Attempts to sign in that failed.",
        |s| s.service.users().figures.of(Denied::Auth),
    ),
    counter(
        "redis_acl_access_denied_cmd_total",
        "Commands that the rules of a user refused.",
        |s| s.service.users().figures.of(Denied::Command),
    ),
    counter(
        "redis_acl_access_denied_key_total",
        "Commands refused for one of their keys.",
        |s| s.service.users().figures.of(Denied::Key),
    ),
    counter(
        "redis_acl_access_denied_channel_total",
        "Commands refused for one of their channels.",
        |s| s.service.users().figures.of(Denied::Channel),
    ),
    counter(
        "redis_acl_access_denied_tls_cert_total",
        "Clients whose certificate names no user that may sign in.",
        |s| s.service.users().figures.of(Denied::Certificate),
    ),
    counter(
        "redis_acl_access_denied_db_total",
        "Commands refused for the database that they would use.",
        |s| s.service.users().figures.of(Denied::Database),
    ),
    counter("redis_commands_processed_total", "Commands run.", |s| {
        s.snapshot.calls
    }),
    gauge(
        "redis_instantaneous_input_kbps",
        "KiB received a second, over the latest 1.6 s.",
        |s| s.snapshot.rates.bytes_in / 1_024.0,
    ),
    gauge(
        "redis_instantaneous_output_kbps",
        "KiB sent a second, over the latest 1.6 s.",
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
        "Reads that found something.",
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
        "Number of the latest slow command.",
        |s| slowest(s).0 as f64,
    ),
    gauge(
        "redis_last_slow_execution_duration_seconds",
        "Time of the latest slow command.",
        |s| slowest(s).1 as f64 / 1e6,
    ),
];

/// Memory of the process, the allocator and the machine; deferred frees and defragmentation.
pub(super) static MEMORY: &[Row] = &[
    gauge("redis_memory_used_bytes", "Memory in use.", |s| {
        s.snapshot.memory.used as f64
    }),
    gauge(
        "redis_memory_used_rss_bytes",
        "Resident set of the process.",
        |s| s.snapshot.memory.rss as f64,
    ),
    gauge(
        "redis_memory_used_peak_bytes",
        "Most memory ever in use.",
        |s| s.snapshot.memory.peak as f64,
    ),
    gauge(
        "redis_memory_used_startup_bytes",
        "Memory in use at the start.",
        |s| s.snapshot.memory.startup as f64,
    ),
    gauge(
        "redis_memory_used_dataset_bytes",
        "Memory of keys and values.",
        |s| s.snapshot.memory.dataset as f64,
    ),
    gauge(
        "redis_memory_used_overhead_bytes",
        "Memory of everything else.",
        |s| {
            let report = &s.snapshot.memory;
            report.used.saturating_sub(report.dataset) as f64
        },
    ),
    gauge(
        "redis_memory_max_bytes",
        "Limit of memory; 0 for none.",
        |s| s.config.maxmemory as f64,
    ),
    gauge("redis_mem_clients_normal", "Memory of connections.", |s| {
        s.snapshot.memory.clients as f64
    }),
    gauge(
        "redis_allocator_allocated_bytes",
        "Allocated, by jemalloc.",
        |s| s.snapshot.memory.allocator_allocated as f64,
    ),
    gauge("redis_allocator_active_bytes", "In active pages.", |s| {
        s.snapshot.memory.allocator_active as f64
    }),
    gauge(
        "redis_allocator_resident_bytes",
        "Resident for jemalloc.",
        |s| s.snapshot.memory.allocator_resident as f64,
    ),
    gauge("redis_total_system_memory_bytes", "Of the machine.", |_| {
        process::total_memory_bytes() as f64
    }),
    gauge(
        "redis_mem_fragmentation_ratio",
        "Resident set over memory in use.",
        |s| ratio(s.snapshot.memory.rss, s.snapshot.memory.used),
    ),
    gauge(
        "redis_allocator_frag_ratio",
        "Active pages over what is allocated.",
        |s| {
            let report = &s.snapshot.memory;
            ratio(report.allocator_active, report.allocator_allocated)
        },
    ),
    gauge(
        "redis_allocator_rss_ratio",
        "Resident for jemalloc over active pages.",
        |s| {
            let report = &s.snapshot.memory;
            ratio(report.allocator_resident, report.allocator_active)
        },
    ),
    gauge(
        "redis_lazyfree_pending_objects",
        "Objects whose memory is yet to be freed.",
        |s| {
            let pending = s.service.budget().pending_objects();
            (pending + deferred_free::waiting_pieces() as u64) as f64
        },
    ),
    gauge(
        "redis_active_defrag_running",
        "Percent of a core that may be spent on moving values together now.",
        |s| s.service.telemetry().defrag.percent.load(Relaxed) as f64,
    ),
    gauge("redis_defrag_hits", "Allocations moved.", |s| {
        s.service.telemetry().defrag.moved.load(Relaxed) as f64
    }),
    gauge("redis_defrag_misses", "Allocations left alone.", |s| {
        s.service.telemetry().defrag.left_alone.load(Relaxed) as f64
    }),
];

/// Hits, misses, and keys evicted or expired.
pub(super) static KEYSPACE: &[Row] = &[
    counter("redis_keyspace_hits_total", "Keys found by reads.", |s| {
        s.snapshot.counts.hits
    }),
    counter(
        "redis_keyspace_misses_total",
        "Keys not found by reads.",
        |s| s.snapshot.counts.misses,
    ),
    counter(
        "redis_expired_keys_total",
        "Keys whose time had come.",
        |s| s.snapshot.counts.expired,
    ),
    counter(
        "redis_evicted_keys_total",
        "Keys deleted to make room.",
        |s| s.snapshot.counts.evicted,
    ),
    counter(
        "basalt_eviction_promotions_total",
        "Keys that were used while they were new.",
        |s| s.snapshot.eviction.promoted,
    ),
    counter(
        "basalt_eviction_ghost_hits_total",
        "Keys that came again soon after they were evicted.",
        |s| s.snapshot.eviction.ghost_hits,
    ),
    gauge(
        "basalt_evictable_keys",
        "Keys that maxmemory-policy lets go: with noeviction none, and no held locks.",
        |s| s.service.budget().evictable_keys() as f64,
    ),
    gauge(
        "basalt_locks_held_bytes",
        "Memory of locks made by LOCK, which are not evicted.",
        |s| s.service.budget().held_bytes() as f64,
    ),
    gauge(
        "basalt_eviction_debt_bytes",
        "Bytes that are yet to be evicted.",
        |s| s.snapshot.eviction.debt_bytes as f64,
    ),
    gauge(
        "basalt_memory_limit_exceeded_seconds",
        "How long memory has been above its limit by now.",
        |s| s.snapshot.eviction.exceeded_ms as f64 / 1e3,
    ),
    seconds(
        "basalt_eviction_cycle_seconds_total",
        "Time spent on eviction in the background.",
        |s| s.snapshot.eviction.spent_ns as f64 / 1e9,
    ),
    seconds(
        "basalt_expire_cycle_seconds_total",
        "Time spent on expiry in the background.",
        |s| s.snapshot.expire_ns as f64 / 1e9,
    ),
    gauge(
        "basalt_expiry_lag_max_seconds",
        "The latest that an expired key was ever deleted.",
        |s| s.snapshot.lag_max_ms as f64 / 1e3,
    ),
];

/// Leases for loading missing keys, and tags.
pub(super) static LEASES: &[Row] = &[
    info_gauge(
        "basalt_leases_in_force",
        "Keys that a client is loading.",
        "leases_in_force",
    ),
    info_gauge(
        "basalt_leases_waiting_clients",
        "Clients that wait for a key to be loaded.",
        "leases_waiting",
    ),
    info_counter(
        "basalt_leases_given_total",
        "Leases given to clients that load a key.",
        "leases_given",
    ),
    info_counter(
        "basalt_leases_filled_total",
        "Leases that ended with a value.",
        "leases_filled",
    ),
    info_counter(
        "basalt_leases_dropped_total",
        "Leases that were given up.",
        "leases_dropped",
    ),
    info_counter(
        "basalt_leases_void_by_time_total",
        "Leases whose time was over.",
        "leases_void_by_time",
    ),
    info_counter(
        "basalt_leases_void_by_change_total",
        "Leases that ended as their key changed.",
        "leases_void_by_change",
    ),
    info_counter(
        "basalt_leases_fills_refused_total",
        "Values that LFILL did not store, as their token was void.",
        "leases_fills_refused",
    ),
    info_counter(
        "basalt_leases_stale_served_total",
        "Values answered past their fresh time.",
        "leases_stale_served",
    ),
    info_counter(
        "basalt_tags_invalidated_total",
        "Tags invalidated, in each shard that had keys with them.",
        "tags_invalidated",
    ),
    info_counter(
        "basalt_tags_invalidated_keys_total",
        "Keys deleted because a tag was invalidated.",
        "tags_keys_invalidated",
    ),
];

/// Unusual runs of scripts.
pub(super) static SCRIPTS: &[Row] = &[
    counter(
        "basalt_script_apart_runs_total",
        "Runs of scripts on threads of their own.",
        |s| s.snapshot.scripts.apart,
    ),
    counter(
        "basalt_script_shards_extended_total",
        "Shards that scripts got on the way.",
        |s| s.snapshot.scripts.extended,
    ),
    counter(
        "basalt_script_reruns_total",
        "Times that scripts were undone and run again.",
        |s| s.snapshot.scripts.reruns,
    ),
];
