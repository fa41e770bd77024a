//! Metrics under redis_exporter's names where this server would choose others, for dashboards and alerts that use
//! them.
//!
//! Names, types, labels and units are those of the exporter, even where promtool objects to them (`_sec`, counters
//! without `_total`), and figures are those of INFO, from which the exporter reads them. `.ci/exporter` compares
//! this page with the exporter's. Figures about the exporter itself are omitted; the test lists them.

use std::sync::atomic::Ordering::Relaxed;

use super::page::{MetricsPage, Quantiles};
use super::rows::{
    self, MetricRow, MetricsContext, counter, gauge, info_counter, info_gauge, scaled, seconds,
};
use crate::telemetry::histogram::percentile_ns;
use crate::telemetry::process;

static ROWS: &[MetricRow] = &[
    info_gauge(
        "redis_allocator_frag_bytes",
        "Bytes of active allocator pages that are not allocated.",
        "allocator_frag_bytes",
    ),
    info_gauge(
        "redis_allocator_rss_bytes",
        "Resident bytes of the allocator that are not in active pages.",
        "allocator_rss_bytes",
    ),
    info_gauge(
        "redis_mem_fragmentation_bytes",
        "Resident bytes (RSS) minus used memory.",
        "mem_fragmentation_bytes",
    ),
    info_gauge(
        "redis_mem_clients_slaves",
        "Memory of replica connections in bytes.",
        "mem_clients_slaves",
    ),
    info_gauge(
        "redis_mem_not_counted_for_eviction_bytes",
        "Memory that does not count against maxmemory, in bytes.",
        "mem_not_counted_for_evict",
    ),
    info_gauge(
        "redis_memory_used_lua_bytes",
        "Memory of the largest Lua interpreter in bytes.",
        "used_memory_lua",
    ),
    info_gauge(
        "redis_memory_used_scripts_bytes",
        "Memory of the sources of scripts and functions in bytes.",
        "used_memory_scripts",
    ),
    info_gauge(
        "redis_number_of_cached_scripts",
        "Number of cached scripts.",
        "number_of_cached_scripts",
    ),
    info_gauge(
        "redis_aof_last_cow_size_bytes",
        "Bytes that the last AOF rewrite saved early because they were about to change (copy-on-write).",
        "aof_last_cow_size",
    ),
    info_gauge(
        "redis_aof_pending_rewrite",
        "1 if an AOF rewrite is scheduled, else 0.",
        "aof_pending_rewrite",
    ),
    info_gauge(
        "redis_aof_last_rewrite_duration_sec",
        "Duration of the last AOF rewrite in seconds; -1 before the first one.",
        "aof_last_rewrite_time_sec",
    ),
    info_gauge(
        "redis_aof_current_rewrite_duration_sec",
        "Duration of the AOF rewrite in progress in seconds; -1 if there is none.",
        "aof_current_rewrite_time_sec",
    ),
    info_gauge(
        "redis_rdb_last_cow_size_bytes",
        "Bytes that the last snapshot saved early because they were about to change (copy-on-write).",
        "rdb_last_cow_size",
    ),
    info_gauge(
        "redis_rdb_last_bgsave_duration_sec",
        "Duration of the last background save in seconds; -1 before the first one.",
        "rdb_last_bgsave_time_sec",
    ),
    info_gauge(
        "redis_rdb_current_bgsave_duration_sec",
        "Duration of the background save in progress in seconds; -1 if there is none.",
        "rdb_current_bgsave_time_sec",
    ),
    scaled(
        "redis_latest_fork_seconds",
        "Duration of the latest fork; always 0, as snapshots do not fork.",
        "latest_fork_usec",
        1e-6,
    ),
    info_gauge(
        "redis_module_fork_in_progress",
        "Always 0: modules are not supported.",
        "module_fork_in_progress",
    ),
    info_gauge(
        "redis_module_fork_last_cow_size",
        "Always 0: modules are not supported.",
        "module_fork_last_cow_size",
    ),
    info_gauge(
        "redis_clients_in_timeout_table",
        "Always 0: there is no table of client timeouts.",
        "clients_in_timeout_table",
    ),
    info_gauge(
        "redis_cluster_connections",
        "Number of cluster bus connections.",
        "cluster_connections",
    ),
    info_gauge(
        "redis_cluster_enabled",
        "1 if cluster mode is enabled, else 0.",
        "cluster_enabled",
    ),
    gauge(
        "redis_config_io_threads",
        "Value of the directive io-threads.",
        |s| f64::from(s.config.io_threads),
    ),
    info_gauge(
        "redis_io_threads_active",
        "Always 0: there are no separate I/O threads.",
        "io_threads_active",
    ),
    info_counter(
        "redis_io_threaded_reads_processed",
        "Always 0: there are no separate I/O threads.",
        "io_threaded_reads_processed",
    ),
    info_counter(
        "redis_io_threaded_writes_processed",
        "Always 0: there are no separate I/O threads.",
        "io_threaded_writes_processed",
    ),
    info_counter(
        "redis_total_reads_processed",
        "Reads from client sockets.",
        "total_reads_processed",
    ),
    info_counter(
        "redis_total_writes_processed",
        "Writes to client sockets.",
        "total_writes_processed",
    ),
    info_gauge(
        "redis_defrag_key_hits",
        "Keys whose values were moved by active defragmentation.",
        "active_defrag_key_hits",
    ),
    info_gauge(
        "redis_defrag_key_misses",
        "Keys that active defragmentation did not need to move.",
        "active_defrag_key_misses",
    ),
    info_gauge(
        "redis_expired_stale_percentage",
        "Always 0: expired keys are found in order of their expiry time.",
        "expired_stale_perc",
    ),
    info_gauge(
        "redis_expired_time_cap_reached_total",
        "Always 0: the expiry cycle has no such time limit.",
        "expired_time_cap_reached_count",
    ),
    info_gauge(
        "redis_slave_expires_tracked_keys",
        "Always 0: such keys expire like all others.",
        "slave_expires_tracked_keys",
    ),
    info_gauge(
        "redis_migrate_cached_sockets_total",
        "Connections cached by MIGRATE.",
        "migrate_cached_sockets",
    ),
    info_gauge(
        "redis_tracking_total_keys",
        "Keys tracked for client-side caching.",
        "tracking_total_keys",
    ),
    info_gauge(
        "redis_tracking_total_items",
        "Tracked keys, summed over clients.",
        "tracking_total_items",
    ),
    info_gauge(
        "redis_tracking_total_prefixes",
        "Prefixes tracked for client-side caching.",
        "tracking_total_prefixes",
    ),
    info_counter(
        "redis_total_error_replies",
        "Number of error replies.",
        "total_error_replies",
    ),
    info_counter(
        "redis_unexpected_error_replies",
        "Errors of commands from the primary or the append-only file.",
        "unexpected_error_replies",
    ),
    info_counter(
        "redis_dump_payload_sanitizations",
        "Always 0: values in RESTORE are always fully checked.",
        "dump_payload_sanitizations",
    ),
];

/// Process metrics as exposed by Prometheus client libraries.
static PROCESS: &[MetricRow] = &[
    seconds(
        "process_cpu_seconds_total",
        "Total CPU time in seconds, user and system.",
        |s| s.snapshot.cpu.own.system + s.snapshot.cpu.own.user,
    ),
    gauge(
        "process_open_fds",
        "Number of open file descriptors.",
        |_| process::open_files() as f64,
    ),
    gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        |_| limit(process::open_files_max()),
    ),
    gauge(
        "process_resident_memory_bytes",
        "Resident memory (RSS) in bytes.",
        |s| s.snapshot.memory.rss as f64,
    ),
    gauge(
        "process_virtual_memory_bytes",
        "Virtual memory in bytes.",
        |_| process::virtual_bytes() as f64,
    ),
    gauge(
        "process_virtual_memory_max_bytes",
        "Maximum virtual memory in bytes.",
        |_| limit(process::virtual_bytes_max()),
    ),
    gauge(
        "process_start_time_seconds",
        "Start time in Unix seconds.",
        |s| s.service.telemetry().started_ms as f64 / 1e3,
    ),
];

/// Shows "no limit" as the largest number, as in the exporter.
fn limit(limit: Option<u64>) -> f64 {
    limit.unwrap_or(u64::MAX) as f64
}

/// Scrapes of this page, under the exporter's names.
static SCRAPES: &[MetricRow] = &[
    counter(
        "redis_exporter_scrapes_total",
        "Number of scrapes of this page.",
        |s| s.service.telemetry().scrapes.count.load(Relaxed),
    ),
    gauge(
        "redis_exporter_last_scrape_duration_seconds",
        "Duration of the last scrape in seconds.",
        |s| s.service.telemetry().scrapes.last_ns.load(Relaxed) as f64 / 1e9,
    ),
];

/// Returns the names in the rows.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(MetricRow::name)
}

/// Returns the fields of INFO that rows show.
#[cfg(test)]
pub(super) fn fields() -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter_map(MetricRow::field)
}

/// Writes all of these metrics.
pub(super) fn write(page: &mut MetricsPage, source: &MetricsContext<'_>) {
    rows::write(ROWS, source, page);
    rows::write(PROCESS, source, page);
    scrapes(page, source);
    ttls(page, source);
    percentiles(page, source);
}

fn scrapes(page: &mut MetricsPage, source: &MetricsContext<'_>) {
    rows::write(SCRAPES, source, page);
    let scrapes = &source.service.telemetry().scrapes;
    page.summary(
        "redis_exporter_scrape_duration_seconds",
        "Duration of scrapes in seconds.",
        &[Quantiles {
            labels: &[],
            quantiles: Vec::new(),
            count: scrapes.count.load(Relaxed),
            sum: scrapes.total_ns.load(Relaxed) as f64 / 1e9,
        }],
    );
    page.labelled_gauge(
        "redis_exporter_last_scrape_error",
        "Always 0: reading the metrics cannot fail.",
        vec![("err", String::new())],
        0.0,
    );
}

fn ttls(page: &mut MetricsPage, source: &MetricsContext<'_>) {
    let snapshot = source.snapshot;
    for (index, (keys, _)) in snapshot.memory.dbs.iter().enumerate() {
        let Some(db) = snapshot.databases.get(index).filter(|_| *keys > 0) else {
            continue;
        };
        page.labelled_gauge(
            "redis_db_avg_ttl_seconds",
            "Average remaining TTL of keys with a TTL, in seconds.",
            vec![("db", format!("db{index}"))],
            db.ttl_mean_ms as f64 / 1e3,
        );
    }
}

/// Writes latency percentiles as in INFO latencystats; the label is in percent, as in the exporter.
fn percentiles(page: &mut MetricsPage, source: &MetricsContext<'_>) {
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
        "Latency percentiles of a command in microseconds.",
        &summaries,
    );
}
