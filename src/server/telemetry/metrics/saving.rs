//! Metrics of snapshots, the append-only file, the log and loading, beside those of the table of figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::persistence::{DURATION_BOUNDS_US, Durations, WriterWaits};
use super::page::{HistogramSeries, MetricsPage};
use crate::telemetry::figures::{Figure, FigureContext, metric};

/// Writes these metrics.
pub(super) fn write(page: &mut MetricsPage, source: &FigureContext<'_>) {
    let figures = &source.telemetry.persistence;
    page.figures(ROWS, source);
    page.histogram(
        "basalt_aof_fsync_seconds",
        "Duration of fsyncs of the append-only file in seconds.",
        [series(&figures.aof.fsync)],
    );
    writer_waits(page, &figures.writer_waits);
}

fn count(count: &AtomicU64) -> f64 {
    count.load(Relaxed) as f64
}

/// Returns the seconds since the last successful snapshot.
fn age_s(source: &FigureContext<'_>) -> u64 {
    let last_save_s = source.telemetry.persistence.rdb.last_save_s.load(Relaxed);
    (source.snapshot.unix_us / 1_000_000).saturating_sub(last_save_s)
}

static ROWS: &[Figure] = &[
    metric(|s| count(&s.telemetry.persistence.rdb.waiting_bytes)).gauge(
        "basalt_rdb_waiting_bytes",
        "Bytes of the snapshot in progress that are not yet written.",
    ),
    metric(|s| count(&s.telemetry.persistence.rdb.last_keys_per_s)).gauge(
        "basalt_rdb_last_save_keys_per_second",
        "Keys saved per second by the last successful snapshot.",
    ),
    metric(|s| count(&s.telemetry.persistence.rdb.last_bytes)).gauge(
        "basalt_rdb_last_save_bytes",
        "Size of the last successful snapshot in bytes.",
    ),
    metric(|s| age_s(s) as f64).gauge(
        "basalt_rdb_last_save_age_seconds",
        "Seconds since the last successful snapshot, or since the start.",
    ),
    metric(|s| s.config.save.len() as f64).gauge(
        "basalt_rdb_save_points",
        "Number of configured save points.",
    ),
    metric(|s| {
        let dirty = s.sum(|shard| &shard.dirty);
        let changes = s.telemetry.persistence.changes_since_save(dirty);
        let reached = s.config.save.iter();
        let reached = reached.filter(|point| changes >= point.changes);
        let overdue_s = reached.map(|point| age_s(s).saturating_sub(point.seconds));
        overdue_s.max().unwrap_or(0) as f64
    })
    .gauge(
        "basalt_rdb_save_overdue_seconds",
        "Seconds by which the next snapshot is overdue according to the save points.",
    ),
    metric(|s| count(&s.telemetry.persistence.log.ring_bytes)).gauge(
        "basalt_log_ring_bytes",
        "Size of the command log buffer in bytes; 0 while it has no reader.",
    ),
    metric(|s| {
        let log = &s.telemetry.persistence.log;
        count(&log.used_bytes) / count(&log.ring_bytes).max(1.0)
    })
    .gauge(
        "basalt_log_fill_ratio",
        "Fill ratio of the command log buffer; from 0.75 on, write commands wait.",
    ),
];

fn series(durations: &Durations) -> HistogramSeries {
    let counts = durations.counts.each_ref().map(|count| count.load(Relaxed));
    let mut below = 0;
    let buckets = DURATION_BOUNDS_US.iter().zip(&counts).map(|(us, count)| {
        below += count;
        (*us as f64 / 1e6, below)
    });
    HistogramSeries {
        labels: Vec::new(),
        buckets: buckets.collect(),
        count: counts.iter().sum(),
        sum: durations.total_us.load(Relaxed) as f64 / 1e6,
    }
}

/// Writes the waits of write commands for slower consumers.
fn writer_waits(page: &mut MetricsPage, waits: &WriterWaits) {
    let whom = [
        ("disk", &waits.for_disk),
        ("replica", &waits.for_replica),
        ("snapshot", &waits.for_snapshot),
    ];
    let named: u64 = whom.iter().map(|(_, count)| count.load(Relaxed)).sum();
    let own = waits.all.load(Relaxed).saturating_sub(named);
    let counts = whom.map(|(whom, count)| (whom, count.load(Relaxed)));
    for (whom, count) in counts.into_iter().chain([("log", own)]) {
        page.labelled_counter(
            "basalt_writer_waits_total",
            "Times that write commands waited for the disk, a replica, a snapshot or the log thread.",
            vec![("waits_for", whom.to_owned())],
            count,
        );
    }
}
