//! Metrics of snapshots, the append-only file, the log and loading.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::super::observed::Observed;
use super::super::persistence::{
    AofFigures, DURATION_BOUNDS_US, Durations, LoadingFigures, LogFigures, Persistence, WriterWaits,
};
use super::super::snapshot::Snapshot;
use super::page::{Page, Series};
use basalt_commands::config::Config;

/// A name, a help text, and the value.
type Row = (&'static str, &'static str, f64);

/// Writes all persistence metrics.
pub(super) fn persistence(
    page: &mut Page,
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

fn gauges(page: &mut Page, rows: &[Row]) {
    for (name, help, value) in rows {
        page.gauge(name, help, *value);
    }
}

/// Writes the figures of finished and running snapshots.
fn snapshots(page: &mut Page, figures: &Persistence, dirty: u64) {
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
                "Whether a snapshot is being saved in the background.",
                flag(&rdb.in_progress),
            ),
            (
                "redis_rdb_last_bgsave_status",
                "Whether the last snapshot in the background went well.",
                flag(&rdb.last_ok),
            ),
            (
                "basalt_rdb_keys_saved",
                "Keys saved by the snapshot under way.",
                count(&rdb.keys_processed),
            ),
            (
                "basalt_rdb_keys_to_save",
                "Keys that the snapshot under way saves.",
                count(&rdb.keys_total),
            ),
            (
                "basalt_rdb_waiting_bytes",
                "Bytes of the snapshot under way that wait to be written.",
                count(&rdb.waiting_bytes),
            ),
            (
                "basalt_rdb_last_save_keys_per_second",
                "Keys per second of the last snapshot that was saved.",
                count(&rdb.last_keys_per_s),
            ),
            (
                "basalt_rdb_last_save_bytes",
                "Bytes of the last snapshot that was saved.",
                count(&rdb.last_bytes),
            ),
        ],
    );
    page.counter(
        "redis_rdb_saves_total",
        "Snapshots that were saved to files.",
        rdb.saves.load(Relaxed),
    );
}

/// Writes when a snapshot was last saved, and whether another one is due.
fn schedule(page: &mut Page, figures: &Persistence, config: &Config, dirty: u64, now_s: u64) {
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
                "Unix time of the last snapshot that was saved, or of the start.",
                last_save_s as f64,
            ),
            (
                "basalt_rdb_last_save_age_seconds",
                "Seconds since the last snapshot was saved, or since the start.",
                age_s as f64,
            ),
            (
                "basalt_rdb_save_points",
                "Save points that are configured.",
                config.save.len() as f64,
            ),
            (
                "basalt_rdb_save_overdue_seconds",
                "Seconds by which the last snapshot is older than a save point with as many changes allows.",
                overdue.max().unwrap_or(0) as f64,
            ),
        ],
    );
}

/// Writes the figures of the append-only file and its rewrites. Sizes date from when it was last enabled.
fn append_only(page: &mut Page, aof: &AofFigures) {
    gauges(
        page,
        &[
            (
                "redis_aof_enabled",
                "Whether changes are logged to disk.",
                flag(&aof.enabled),
            ),
            (
                "redis_aof_rewrite_in_progress",
                "Whether the append-only file is being rewritten.",
                flag(&aof.rewrite_in_progress),
            ),
            (
                "redis_aof_rewrite_scheduled",
                "Whether a rewrite begins when the snapshot under way is done.",
                flag(&aof.rewrite_scheduled),
            ),
            (
                "redis_aof_last_bgrewrite_status",
                "Whether the last rewrite went well.",
                flag(&aof.last_rewrite_ok),
            ),
            (
                "basalt_aof_rewrite_failures",
                "Rewrites that failed one after the other.",
                count(&aof.rewrite_failures),
            ),
            (
                "redis_aof_last_write_status",
                "Whether the last write and the last sync went well.",
                flag(&aof.last_write_ok),
            ),
            (
                "redis_aof_current_size_bytes",
                "Bytes of the append-only files.",
                count(&aof.current_bytes),
            ),
            (
                "redis_aof_base_size_bytes",
                "Bytes of them after the last rewrite or at the start.",
                count(&aof.base_bytes),
            ),
            (
                "redis_aof_buffer_length",
                "Bytes that wait to be appended.",
                count(&aof.buffer_bytes),
            ),
        ],
    );
    page.counter(
        "basalt_aof_rewrites_total",
        "Rewrites that went well.",
        aof.rewrites.load(Relaxed),
    );
}

/// Writes how long syncs of the append-only file take.
fn syncs(page: &mut Page, aof: &AofFigures) {
    gauges(
        page,
        &[
            (
                "redis_aof_pending_bio_fsync",
                "Syncs of the append-only file under way beside its writer.",
                count(&aof.pending_fsync),
            ),
            // redis_exporter uses a gauge, too.
            (
                "redis_aof_delayed_fsync",
                "Syncs of the append-only file that took longer than two seconds.",
                count(&aof.delayed_fsync),
            ),
        ],
    );
    page.histogram(
        "basalt_aof_fsync_seconds",
        "How long syncs of the append-only file took.",
        &[series(&aof.fsync)],
    );
}

fn series(durations: &Durations) -> Series<'_> {
    let counts = durations.counts.each_ref().map(|count| count.load(Relaxed));
    let mut below = 0;
    let buckets = DURATION_BOUNDS_US.iter().zip(&counts).map(|(us, count)| {
        below += count;
        (*us as f64 / 1e6, below)
    });
    Series {
        labels: &[],
        buckets: buckets.collect(),
        count: counts.iter().sum(),
        sum: durations.total_us.load(Relaxed) as f64 / 1e6,
    }
}

/// Writes the figures of the command log. Nothing is logged while there is no reader.
fn log(page: &mut Page, log: &LogFigures) {
    let (used, ring) = (count(&log.used_bytes), count(&log.ring_bytes));
    gauges(
        page,
        &[
            (
                "basalt_log_ring_bytes",
                "Bytes of the log's ring; 0 while nobody has read it.",
                ring,
            ),
            (
                "basalt_log_used_bytes",
                "Of these, bytes that are taken up.",
                used,
            ),
            (
                "basalt_log_fill_ratio",
                "The same as a share; commands that may write wait from 0.75 on.",
                used / ring.max(1.0),
            ),
        ],
    );
    for (name, help, count) in [
        (
            "basalt_log_records_total",
            "Records appended to the log.",
            &log.records,
        ),
        (
            "basalt_log_bytes_total",
            "Bytes of the stream that they became.",
            &log.bytes,
        ),
    ] {
        page.counter(name, help, count.load(Relaxed));
    }
}

/// Writes the waits of write commands for slower consumers.
fn writer_waits(page: &mut Page, waits: &WriterWaits) {
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
            "Times that commands which may write waited, as much lay in memory for the disk, a replica, a snapshot, or \
             the log's own thread.",
            vec![("waits_for", whom.to_owned())],
            count,
        );
    }
}

/// Writes the progress of loading, or the figures of the last load.
fn loading(page: &mut Page, loading: &LoadingFigures) {
    gauges(
        page,
        &[
            (
                "redis_loading_dump_file",
                "Whether data are being loaded.",
                flag(&loading.is_loading),
            ),
            (
                "basalt_loading_start_timestamp_seconds",
                "Unix time at which loading began the last time; 0 for never.",
                count(&loading.began_s),
            ),
            (
                "basalt_loading_total_bytes",
                "Bytes of what is loaded, or was last.",
                count(&loading.total_bytes),
            ),
            (
                "basalt_loading_loaded_bytes",
                "Of these, bytes that were loaded.",
                count(&loading.loaded_bytes),
            ),
            (
                "redis_rdb_last_load_loaded_keys",
                "Keys of the last snapshot that was loaded.",
                count(&loading.keys_loaded),
            ),
            (
                "redis_rdb_last_load_expired_keys",
                "Keys that had expired in the last snapshot that was loaded.",
                count(&loading.keys_expired),
            ),
        ],
    );
}
