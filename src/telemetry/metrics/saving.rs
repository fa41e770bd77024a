//! What the metrics say of snapshots.

use std::sync::atomic::Ordering::Relaxed;

use super::super::observed::Observed;
use super::super::persistence::seconds_since;
use super::super::snapshot::Snapshot;
use super::page::Page;

/// Snapshots that were saved, or are being saved.
pub(super) fn snapshots(page: &mut Page, service: &dyn Observed, snapshot: &Snapshot) {
    let persistence = &service.telemetry().persistence;
    let rdb = &persistence.rdb;
    let now_s = snapshot.unix_us / 1_000_000;
    let last_save_s = rdb.last_save_s.load(Relaxed);
    let current_s = seconds_since(&rdb.began_s, now_s);
    for (name, help, value) in [
        (
            "redis_rdb_changes_since_last_save",
            "Changes since the last snapshot.",
            persistence.changes_since_save(snapshot.dirty) as f64,
        ),
        (
            "redis_rdb_bgsave_in_progress",
            "Whether a snapshot is being saved in the background.",
            f64::from(u8::from(rdb.in_progress.load(Relaxed))),
        ),
        (
            "redis_rdb_last_save_timestamp_seconds",
            "Unix time of the last snapshot that was saved.",
            last_save_s as f64,
        ),
        (
            "basalt_rdb_last_save_age_seconds",
            "Seconds since the last snapshot was saved.",
            now_s.saturating_sub(last_save_s) as f64,
        ),
        (
            "redis_rdb_last_bgsave_status",
            "Whether the last snapshot in the background went well.",
            f64::from(u8::from(rdb.last_ok.load(Relaxed))),
        ),
        (
            "basalt_rdb_last_bgsave_duration_seconds",
            "Seconds that the last snapshot in the background took; -1 before the first.",
            rdb.last_duration_s.load(Relaxed) as f64,
        ),
        (
            "basalt_rdb_current_bgsave_duration_seconds",
            "Seconds since the snapshot under way began; -1 if there is none.",
            current_s as f64,
        ),
        (
            "basalt_rdb_keys_saved",
            "Keys saved by the snapshot under way.",
            rdb.keys_processed.load(Relaxed) as f64,
        ),
        (
            "basalt_rdb_keys_to_save",
            "Keys that the snapshot under way saves.",
            rdb.keys_total.load(Relaxed) as f64,
        ),
        (
            "basalt_rdb_waiting_bytes",
            "Bytes of the snapshot under way that wait to be written.",
            rdb.waiting_bytes.load(Relaxed) as f64,
        ),
        (
            "basalt_rdb_last_save_keys_per_second",
            "Keys per second of the last snapshot that was saved.",
            rdb.last_keys_per_s.load(Relaxed) as f64,
        ),
        (
            "basalt_rdb_last_save_bytes",
            "Bytes of the last snapshot that was saved.",
            rdb.last_bytes.load(Relaxed) as f64,
        ),
    ] {
        page.gauge(name, help, value);
    }
    page.counter(
        "basalt_rdb_saves_total",
        "Snapshots that were saved to files.",
        rdb.saves.load(Relaxed),
    );
}
