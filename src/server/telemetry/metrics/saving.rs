//! Metrics of snapshots, the append-only file, the log and loading.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::super::observed::Observed;
use super::super::persistence::{
    AofFigures, CommandLogFigures, DURATION_BOUNDS_US, Durations, LoadingFigures, Persistence,
    WriterWaits,
};
use super::super::snapshot::Snapshot;
use super::page::{HistogramSeries, MetricsPage};
use basalt_commands::config::Config;

/// A metric: its name, its help text, and its value.
type SaveMetric = (&'static str, &'static str, f64);

/// Writes all persistence metrics.
pub(super) fn persistence(
    page: &mut MetricsPage,
    service: &dyn Observed,
    config: &Config,
    snapshot: &Snapshot,
) {
    let figures = &service.telemetry().persistence;
    let now_s = snapshot.unix_us / 1_000_000;
    snapshots(page, figures, snapshot.dirty);
    schedule(page, figures, config, snapshot.dirty, now_s);
    append_only(page, &figures.aof);
    syncs(page, &figures.aof);
    log(page, &figures.log);
    writer_waits(page, &figures.writer_waits);
    loading(page, &figures.loading);
}

fn flag(flag: &AtomicBool) -> f64 {
    f64::from(u8::from(flag.load(Relaxed)))
}

fn count(count: &AtomicU64) -> f64 {
    count.load(Relaxed) as f64
}

fn gauges(page: &mut MetricsPage, rows: &[SaveMetric]) {
    for (name, help, value) in rows {
        page.gauge(name, help, *value);
    }
}

/// Writes the figures of finished and running snapshots.
fn snapshots(page: &mut MetricsPage, figures: &Persistence, dirty: u64) {
    let rdb = &figures.rdb;
    let changes = figures.changes_since_save(dirty) as f64;
    gauges(
        page,
        &[
            (
                "redis_rdb_changes_since_last_save",
                "Changes since the last snapshot.",
                changes,
            ),
            (
                "redis_rdb_bgsave_in_progress",
                "1 if a background save is in progress, else 0.",
                flag(&rdb.in_progress),
            ),
            (
                "redis_rdb_last_bgsave_status",
                "1 if the last background save succeeded, else 0.",
                flag(&rdb.last_ok),
            ),
            (
                "basalt_rdb_keys_saved",
                "Keys saved so far by the snapshot in progress.",
                count(&rdb.keys_processed),
            ),
            (
                "basalt_rdb_keys_to_save",
                "Total keys of the snapshot in progress.",
                count(&rdb.keys_total),
            ),
            (
                "basalt_rdb_waiting_bytes",
                "Bytes of the snapshot in progress that are not yet written.",
                count(&rdb.waiting_bytes),
            ),
            (
                "basalt_rdb_last_save_keys_per_second",
                "Keys saved per second by the last successful snapshot.",
                count(&rdb.last_keys_per_s),
            ),
            (
                "basalt_rdb_last_save_bytes",
                "Size of the last successful snapshot in bytes.",
                count(&rdb.last_bytes),
            ),
        ],
    );
    page.counter(
        "redis_rdb_saves_total",
        "Snapshots saved to files.",
        rdb.saves.load(Relaxed),
    );
}

/// Writes when a snapshot was last saved, and whether another one is due.
fn schedule(
    page: &mut MetricsPage,
    figures: &Persistence,
    config: &Config,
    dirty: u64,
    now_s: u64,
) {
    let last_save_s = figures.rdb.last_save_s.load(Relaxed);
    let age_s = now_s.saturating_sub(last_save_s);
    let changes = figures.changes_since_save(dirty);
    let reached = config.save.iter().filter(|point| changes >= point.changes);
    let overdue = reached.map(|point| age_s.saturating_sub(point.seconds));
    gauges(
        page,
        &[
            (
                "redis_rdb_last_save_timestamp_seconds",
                "Unix time of the last successful snapshot, or of the start.",
                last_save_s as f64,
            ),
            (
                "basalt_rdb_last_save_age_seconds",
                "Seconds since the last successful snapshot, or since the start.",
                age_s as f64,
            ),
            (
                "basalt_rdb_save_points",
                "Number of configured save points.",
                config.save.len() as f64,
            ),
            (
                "basalt_rdb_save_overdue_seconds",
                "Seconds by which the next snapshot is overdue according to the save points.",
                overdue.max().unwrap_or(0) as f64,
            ),
        ],
    );
}

/// Writes the figures of the append-only file and its rewrites. While the append-only file is disabled, its
/// sizes are those of the time when it was last enabled.
fn append_only(page: &mut MetricsPage, aof: &AofFigures) {
    gauges(
        page,
        &[
            (
                "redis_aof_enabled",
                "1 if the append-only file is enabled, else 0.",
                flag(&aof.enabled),
            ),
            (
                "redis_aof_rewrite_in_progress",
                "1 if an AOF rewrite is in progress, else 0.",
                flag(&aof.rewrite_in_progress),
            ),
            (
                "redis_aof_rewrite_scheduled",
                "1 if an AOF rewrite is scheduled after the snapshot in progress, else 0.",
                flag(&aof.rewrite_scheduled),
            ),
            (
                "redis_aof_last_bgrewrite_status",
                "1 if the last AOF rewrite succeeded, else 0.",
                flag(&aof.last_rewrite_ok),
            ),
            (
                "basalt_aof_rewrite_failures",
                "Consecutive failed AOF rewrites.",
                count(&aof.rewrite_failures),
            ),
            (
                "redis_aof_last_write_status",
                "1 if the last write and fsync of the append-only file succeeded, else 0.",
                flag(&aof.last_write_ok),
            ),
            (
                "redis_aof_current_size_bytes",
                "Size of the append-only files in bytes.",
                count(&aof.current_bytes),
            ),
            (
                "redis_aof_base_size_bytes",
                "Size of the append-only files after the last rewrite or at startup, in bytes.",
                count(&aof.base_bytes),
            ),
            (
                "redis_aof_buffer_length",
                "Bytes not yet written to the append-only file.",
                count(&aof.buffer_bytes),
            ),
        ],
    );
    page.counter(
        "basalt_aof_rewrites_total",
        "Successful AOF rewrites.",
        aof.rewrites.load(Relaxed),
    );
}

/// Writes how long syncs of the append-only file take.
fn syncs(page: &mut MetricsPage, aof: &AofFigures) {
    gauges(
        page,
        &[
            (
                "redis_aof_pending_bio_fsync",
                "Background fsyncs of the append-only file in progress.",
                count(&aof.pending_fsync),
            ),
            // A gauge, as in redis_exporter, although the value only grows.
            (
                "redis_aof_delayed_fsync",
                "Fsyncs of the append-only file that took longer than two seconds.",
                count(&aof.delayed_fsync),
            ),
        ],
    );
    page.histogram(
        "basalt_aof_fsync_seconds",
        "Duration of fsyncs of the append-only file in seconds.",
        &[series(&aof.fsync)],
    );
}

fn series(durations: &Durations) -> HistogramSeries<'_> {
    let counts = durations.counts.each_ref().map(|count| count.load(Relaxed));
    let mut below = 0;
    let buckets = DURATION_BOUNDS_US.iter().zip(&counts).map(|(us, count)| {
        below += count;
        (*us as f64 / 1e6, below)
    });
    HistogramSeries {
        labels: &[],
        buckets: buckets.collect(),
        count: counts.iter().sum(),
        sum: durations.total_us.load(Relaxed) as f64 / 1e6,
    }
}

/// Writes the figures of the command log. Nothing is logged while no reader (append-only file or replica)
/// exists.
fn log(page: &mut MetricsPage, log: &CommandLogFigures) {
    let (used, ring) = (count(&log.used_bytes), count(&log.ring_bytes));
    gauges(
        page,
        &[
            (
                "basalt_log_ring_bytes",
                "Size of the command log buffer in bytes; 0 while it has no reader.",
                ring,
            ),
            (
                "basalt_log_used_bytes",
                "Bytes in use in the command log buffer.",
                used,
            ),
            (
                "basalt_log_fill_ratio",
                "Fill ratio of the command log buffer; from 0.75 on, write commands wait.",
                used / ring.max(1.0),
            ),
        ],
    );
    for (name, help, count) in [
        (
            "basalt_log_records_total",
            "Records appended to the command log.",
            &log.records,
        ),
        (
            "basalt_log_bytes_total",
            "Bytes of the stream made from the command log.",
            &log.bytes,
        ),
    ] {
        page.counter(name, help, count.load(Relaxed));
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

/// Writes the progress of loading, or the figures of the last load.
fn loading(page: &mut MetricsPage, loading: &LoadingFigures) {
    gauges(
        page,
        &[
            (
                "redis_loading_dump_file",
                "1 if data is being loaded, else 0.",
                flag(&loading.is_loading),
            ),
            (
                "basalt_loading_start_timestamp_seconds",
                "Unix time at which loading last began; 0: never.",
                count(&loading.began_s),
            ),
            (
                "basalt_loading_total_bytes",
                "Total bytes of the file that is or was last loaded.",
                count(&loading.total_bytes),
            ),
            (
                "basalt_loading_loaded_bytes",
                "Bytes loaded so far.",
                count(&loading.loaded_bytes),
            ),
            (
                "redis_rdb_last_load_loaded_keys",
                "Keys loaded from the last snapshot.",
                count(&loading.keys_loaded),
            ),
            (
                "redis_rdb_last_load_expired_keys",
                "Expired keys skipped in the last loaded snapshot.",
                count(&loading.keys_expired),
            ),
        ],
    );
}
