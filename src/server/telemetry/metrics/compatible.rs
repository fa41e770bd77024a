//! Metrics that redis_exporter takes from elsewhere than INFO's plain numbers, under its names, for dashboards and
//! alerts that use them.
//!
//! Names, types, labels and units are those of the exporter, even where promtool objects to them (`_sec`, counters
//! without `_total`). `.ci/exporter` compares the page with the exporter's. Figures about the exporter itself are
//! omitted; the test lists them.

use std::sync::atomic::Ordering::Relaxed;

use super::page::{MetricsPage, Quantiles};
use crate::telemetry::figures::{Figure, FigureContext, metric, metric_count};
use crate::telemetry::histogram::percentile_ns;
use crate::telemetry::process;

/// Process metrics as exposed by Prometheus client libraries.
static PROCESS: &[Figure] = &[
    metric(|s| s.snapshot.cpu.own.system + s.snapshot.cpu.own.user).counter(
        "process_cpu_seconds_total",
        "Total CPU time in seconds, user and system.",
    ),
    metric(|_| process::open_files() as f64)
        .gauge("process_open_fds", "Number of open file descriptors."),
    metric(|_| limit(process::open_files_max())).gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
    ),
    metric(|s| s.snapshot.memory.rss as f64).gauge(
        "process_resident_memory_bytes",
        "Resident memory (RSS) in bytes.",
    ),
    metric(|_| process::virtual_bytes() as f64)
        .gauge("process_virtual_memory_bytes", "Virtual memory in bytes."),
    metric(|_| limit(process::virtual_bytes_max())).gauge(
        "process_virtual_memory_max_bytes",
        "Maximum virtual memory in bytes.",
    ),
    metric(|s| s.telemetry.started_ms as f64 / 1e3)
        .gauge("process_start_time_seconds", "Start time in Unix seconds."),
];

/// Shows "no limit" as the largest number, as in the exporter.
fn limit(limit: Option<u64>) -> f64 {
    limit.unwrap_or(u64::MAX) as f64
}

/// Scrapes of this page, under the exporter's names.
static SCRAPES: &[Figure] = &[
    metric_count(|s| s.telemetry.scrapes.count.load(Relaxed)).counter(
        "redis_exporter_scrapes_total",
        "Number of scrapes of this page.",
    ),
    metric(|s| s.telemetry.scrapes.last_ns.load(Relaxed) as f64 / 1e9).gauge(
        "redis_exporter_last_scrape_duration_seconds",
        "Duration of the last scrape in seconds.",
    ),
];

/// Writes all of these metrics.
pub(super) fn write(page: &mut MetricsPage, source: &FigureContext<'_>) {
    page.figures(PROCESS, source);
    scrapes(page, source);
    ttls(page, source);
    percentiles(page, source);
}

fn scrapes(page: &mut MetricsPage, source: &FigureContext<'_>) {
    page.figures(SCRAPES, source);
    let scrapes = &source.telemetry.scrapes;
    page.summary(
        "redis_exporter_scrape_duration_seconds",
        "Duration of scrapes in seconds.",
        [Quantiles {
            labels: Vec::new(),
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

fn ttls(page: &mut MetricsPage, source: &FigureContext<'_>) {
    let snapshot = &source.snapshot;
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
fn percentiles(page: &mut MetricsPage, source: &FigureContext<'_>) {
    if !source.config.latency_tracking {
        return;
    }
    let percents = &source.config.latency_tracking_info_percentiles;
    let ran = source.snapshot.commands.iter();
    let summaries = ran.filter(|command| command.calls > 0).map(|command| {
        let value_us = |percent: f64| percentile_ns(&command.buckets, percent) / 1e3;
        let quantiles = percents.iter();
        Quantiles {
            labels: vec![("cmd", command.name.to_owned())],
            quantiles: quantiles
                .map(|percent| (percent.to_string(), value_us(*percent)))
                .collect(),
            count: command.calls,
            sum: command.duration_ns as f64 / 1e3,
        }
    });
    page.summary(
        "redis_latency_percentiles_usec",
        "Latency percentiles of a command in microseconds.",
        summaries,
    );
}
