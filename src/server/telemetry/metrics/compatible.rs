//! Metrics under redis_exporter's names where this server would choose others, for dashboards and alerts that use
//! them.
//!
//! Names, types, labels and units are those of the exporter, even where promtool objects to them (`_sec`, counters
//! without `_total`), and figures are those of INFO, from which the exporter reads them. `.ci/exporter` compares
//! this page with the exporter's. Figures about the exporter itself are omitted; the test lists them.

use std::sync::atomic::Ordering::Relaxed;

use super::page::{Page, Quantiles};
use super::rows::{self, Row, Source, counter, gauge, info_counter, info_gauge, scaled, seconds};
use crate::telemetry::histogram::percentile_ns;
use crate::telemetry::process;

static ROWS: &[Row] = &[
    info_gauge(
        "redis_allocator_frag_bytes",
        "Bytes of active pages beyond what is allocated.",
        "allocator_frag_bytes",
    ),
    info_gauge(
        "redis_allocator_rss_bytes",
        "Resident bytes of jemalloc beyond its active pages.",
        "allocator_rss_bytes",
    ),
    info_gauge(
        "redis_mem_fragmentation_bytes",
        "Resident bytes beyond the memory in use.",
        "mem_fragmentation_bytes",
    ),
    info_gauge(
        "redis_mem_clients_slaves",
        "Memory of replicas' connections.",
        "mem_clients_slaves",
    ),
    info_gauge(
        "redis_mem_not_counted_for_eviction_bytes",
        "Memory for which no keys are evicted.",
        "mem_not_counted_for_evict",
    ),
    info_gauge(
        "redis_memory_used_lua_bytes",
        "Memory of the interpreter that takes most.",
        "used_memory_lua",
    ),
    info_gauge(
        "redis_memory_used_scripts_bytes",
        "Sources of scripts and functions.",
        "used_memory_scripts",
    ),
    info_gauge(
        "redis_number_of_cached_scripts",
        "Scripts that EVALSHA finds.",
        "number_of_cached_scripts",
    ),
    info_gauge(
        "redis_aof_last_cow_size_bytes",
        "Bytes that the last rewrite saved out of turn, as they were about to change.",
        "aof_last_cow_size",
    ),
    info_gauge(
        "redis_aof_pending_rewrite",
        "Whether a rewrite waits for something.",
        "aof_pending_rewrite",
    ),
    info_gauge(
        "redis_aof_last_rewrite_duration_sec",
        "Seconds that the last rewrite took; -1 before the first.",
        "aof_last_rewrite_time_sec",
    ),
    info_gauge(
        "redis_aof_current_rewrite_duration_sec",
        "Seconds since the rewrite under way began; -1 if there is none.",
        "aof_current_rewrite_time_sec",
    ),
    info_gauge(
        "redis_rdb_last_cow_size_bytes",
        "Bytes that the last snapshot saved out of turn, as they were about to change.",
        "rdb_last_cow_size",
    ),
    info_gauge(
        "redis_rdb_last_bgsave_duration_sec",
        "Seconds that the last snapshot in the background took; -1 before the first.",
        "rdb_last_bgsave_time_sec",
    ),
    info_gauge(
        "redis_rdb_current_bgsave_duration_sec",
        "Seconds since the snapshot under way began; -1 if there is none.",
        "rdb_current_bgsave_time_sec",
    ),
    scaled(
        "redis_latest_fork_seconds",
        "Seconds of the latest fork; snapshots need none here.",
        "latest_fork_usec",
        1e-6,
    ),
    info_gauge(
        "redis_module_fork_in_progress",
        "Whether a module has forked; there are no modules.",
        "module_fork_in_progress",
    ),
    info_gauge(
        "redis_module_fork_last_cow_size",
        "Bytes that a module's fork copied; there are no modules.",
        "module_fork_last_cow_size",
    ),
    info_gauge(
        "redis_clients_in_timeout_table",
        "Clients in Redis's table of timeouts, which is not needed here.",
        "clients_in_timeout_table",
    ),
    info_gauge(
        "redis_cluster_connections",
        "Sockets of the cluster's bus.",
        "cluster_connections",
    ),
    info_gauge(
        "redis_cluster_enabled",
        "Whether clients are told that this is a node of a cluster.",
        "cluster_enabled",
    ),
    gauge(
        "redis_config_io_threads",
        "The directive io-threads.",
        |s| f64::from(s.config.io_threads),
    ),
    info_gauge(
        "redis_io_threads_active",
        "Whether threads beside the main one do I/O as Redis does it.",
        "io_threads_active",
    ),
    info_counter(
        "redis_io_threaded_reads_processed",
        "Reads by I/O threads of Redis's kind.",
        "io_threaded_reads_processed",
    ),
    info_counter(
        "redis_io_threaded_writes_processed",
        "Writes by I/O threads of Redis's kind.",
        "io_threaded_writes_processed",
    ),
    info_counter(
        "redis_total_reads_processed",
        "Reads from sockets.",
        "total_reads_processed",
    ),
    info_counter(
        "redis_total_writes_processed",
        "Writes to sockets.",
        "total_writes_processed",
    ),
    info_gauge(
        "redis_defrag_key_hits",
        "Keys of which something was moved.",
        "active_defrag_key_hits",
    ),
    info_gauge(
        "redis_defrag_key_misses",
        "Keys left as they are.",
        "active_defrag_key_misses",
    ),
    info_gauge(
        "redis_expired_stale_percentage",
        "Percent of keys with deadlines that are overdue by an estimate; deadlines are kept in order here.",
        "expired_stale_perc",
    ),
    info_gauge(
        "redis_expired_time_cap_reached_total",
        "Times that expiry stopped early, as Redis's does.",
        "expired_time_cap_reached_count",
    ),
    info_gauge(
        "redis_slave_expires_tracked_keys",
        "Keys to which clients of a replica gave a deadline.",
        "slave_expires_tracked_keys",
    ),
    info_gauge(
        "redis_migrate_cached_sockets_total",
        "Connections that MIGRATE keeps for its next call.",
        "migrate_cached_sockets",
    ),
    info_gauge(
        "redis_tracking_total_keys",
        "Keys that clients cache.",
        "tracking_total_keys",
    ),
    info_gauge(
        "redis_tracking_total_items",
        "Clients by key that they cache.",
        "tracking_total_items",
    ),
    info_gauge(
        "redis_tracking_total_prefixes",
        "Prefixes that clients track.",
        "tracking_total_prefixes",
    ),
    info_counter(
        "redis_total_error_replies",
        "Error replies.",
        "total_error_replies",
    ),
    info_counter(
        "redis_unexpected_error_replies",
        "Error replies to the primary and to the append-only file.",
        "unexpected_error_replies",
    ),
    info_counter(
        "redis_dump_payload_sanitizations",
        "Deep checks of RESTORE's values as Redis counts them.",
        "dump_payload_sanitizations",
    ),
];

/// Process metrics as exposed by Prometheus client libraries.
static PROCESS: &[Row] = &[
    seconds(
        "process_cpu_seconds_total",
        "CPU time in the kernel and outside of it.",
        |s| s.snapshot.cpu.own.system + s.snapshot.cpu.own.user,
    ),
    gauge("process_open_fds", "Open file descriptors.", |_| {
        process::open_files() as f64
    }),
    gauge("process_max_fds", "Most open file descriptors.", |_| {
        limit(process::open_files_max())
    }),
    gauge("process_resident_memory_bytes", "Resident set.", |s| {
        s.snapshot.memory.rss as f64
    }),
    gauge("process_virtual_memory_bytes", "Address space.", |_| {
        process::virtual_bytes() as f64
    }),
    gauge(
        "process_virtual_memory_max_bytes",
        "Most address space.",
        |_| limit(process::virtual_bytes_max()),
    ),
    gauge(
        "process_start_time_seconds",
        "Unix time of the start.",
        |s| s.service.telemetry().started_ms as f64 / 1e3,
    ),
];

/// Shows "no limit" as the largest number, as in the exporter.
fn limit(limit: Option<u64>) -> f64 {
    limit.unwrap_or(u64::MAX) as f64
}

/// Scrapes of this page, under the exporter's names.
static SCRAPES: &[Row] = &[
    counter(
        "redis_exporter_scrapes_total",
        "Scrapes of this page.",
        |s| s.service.telemetry().scrapes.count.load(Relaxed),
    ),
    gauge(
        "redis_exporter_last_scrape_duration_seconds",
        "Time that it took to write this page the last time.",
        |s| s.service.telemetry().scrapes.last_ns.load(Relaxed) as f64 / 1e9,
    ),
];

/// Returns the names in the rows.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(Row::name)
}

/// Returns the fields of INFO that rows show.
#[cfg(test)]
pub(super) fn fields() -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter_map(Row::field)
}

/// Writes all of these metrics.
pub(super) fn write(page: &mut Page, source: &Source<'_>) {
    rows::write(ROWS, source, page);
    rows::write(PROCESS, source, page);
    scrapes(page, source);
    ttls(page, source);
    percentiles(page, source);
}

fn scrapes(page: &mut Page, source: &Source<'_>) {
    rows::write(SCRAPES, source, page);
    let scrapes = &source.service.telemetry().scrapes;
    page.summary(
        "redis_exporter_scrape_duration_seconds",
        "Time that it took to write this page.",
        &[Quantiles {
            labels: &[],
            quantiles: Vec::new(),
            count: scrapes.count.load(Relaxed),
            sum: scrapes.total_ns.load(Relaxed) as f64 / 1e9,
        }],
    );
    page.labelled_gauge(
        "redis_exporter_last_scrape_error",
        "Whether a figure could not be had; they are read where they are counted, which does not fail.",
        vec![("err", String::new())],
        0.0,
    );
}

fn ttls(page: &mut Page, source: &Source<'_>) {
    let snapshot = source.snapshot;
    for (index, (keys, _)) in snapshot.memory.dbs.iter().enumerate() {
        let Some(db) = snapshot.databases.get(index).filter(|_| *keys > 0) else {
            continue;
        };
        page.labelled_gauge(
            "redis_db_avg_ttl_seconds",
            "Mean of the time that keys with a deadline have left.",
            vec![("db", format!("db{index}"))],
            db.ttl_mean_ms as f64 / 1e3,
        );
    }
}

/// Writes latency percentiles as in INFO latencystats; the label is in percent, as in the exporter.
fn percentiles(page: &mut Page, source: &Source<'_>) {
    if !source.config.latency_tracking {
        return;
    }
    let percents = &source.config.latency_tracking_info_percentiles;
    let ran = source.snapshot.commands.iter();
    let ran: Vec<_> = ran.filter(|command| command.calls > 0).collect();
    let labels: Vec<_> = ran.iter().map(|command| [("cmd", command.name)]).collect();
    let summaries: Vec<Quantiles<'_>> = ran
        .iter()
        .zip(&labels)
        .map(|(command, labels)| {
            let value_us = |percent: f64| percentile_ns(&command.buckets, percent) / 1e3;
            let quantiles = percents.iter();
            Quantiles {
                labels,
                quantiles: quantiles
                    .map(|percent| (percent.to_string(), value_us(*percent)))
                    .collect(),
                count: command.calls,
                sum: command.duration_ns as f64 / 1e3,
            }
        })
        .collect();
    page.summary(
        "redis_latency_percentiles_usec",
        "Microseconds that runs of a command took, by percent of the runs.",
        &summaries,
    );
}
