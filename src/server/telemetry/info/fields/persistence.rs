//! The section about snapshots, the append-only file and loading.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{InfoField, count, decimal, shown, text, zero};
use crate::telemetry::info::{InfoContext, Lines, ratio};
use crate::telemetry::persistence::{
    AofFigures, CommandLogFigures, LoadingFigures, RdbFigures, WriterWaits, seconds_since,
};

/// Writes the section; rows of the append-only file and of loading only while they apply.
pub(in crate::telemetry::info) fn section(source: &InfoContext<'_>, lines: &mut Lines) {
    let persistence = &source.telemetry.persistence;
    super::write(ALWAYS, source, lines);
    if persistence.aof.enabled.load(Relaxed) {
        super::write(APPENDING, source, lines);
    }
    if persistence.loading.is_loading.load(Relaxed) {
        super::write(LOADING, source, lines);
    }
}

fn rdb(source: &InfoContext<'_>, figure: fn(&RdbFigures) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.persistence.rdb).load(Relaxed)
}

fn aof(source: &InfoContext<'_>, figure: fn(&AofFigures) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.persistence.aof).load(Relaxed)
}

fn log(source: &InfoContext<'_>, figure: fn(&CommandLogFigures) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.persistence.log).load(Relaxed)
}

fn waits(source: &InfoContext<'_>, figure: fn(&WriterWaits) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.persistence.writer_waits).load(Relaxed)
}

fn loading(source: &InfoContext<'_>, figure: fn(&LoadingFigures) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.persistence.loading).load(Relaxed)
}

fn flag(flag: &AtomicBool) -> u64 {
    u64::from(flag.load(Relaxed))
}

fn status(is_good: &AtomicBool) -> Option<String> {
    shown(if is_good.load(Relaxed) { "ok" } else { "err" })
}

fn now_s(source: &InfoContext<'_>) -> u64 {
    source.snapshot.unix_us / 1_000_000
}

/// Rows that are always shown.
pub(super) static ALWAYS: &[InfoField] = &[
    count("loading", |s| {
        flag(&s.telemetry.persistence.loading.is_loading)
    }),
    count("async_loading", |s| {
        flag(&s.telemetry.persistence.loading.is_aside)
    }),
    count("current_cow_peak", |s| rdb(s, |rdb| &rdb.copied_bytes)),
    count("current_cow_size", |s| rdb(s, |rdb| &rdb.copied_bytes)),
    zero("current_cow_size_age"),
    decimal("current_fork_perc", |s| {
        let done = rdb(s, |rdb| &rdb.keys_processed);
        100.0 * ratio(done, rdb(s, |rdb| &rdb.keys_total))
    }),
    count("current_save_keys_processed", |s| {
        rdb(s, |rdb| &rdb.keys_processed)
    }),
    count("current_save_keys_total", |s| rdb(s, |rdb| &rdb.keys_total)),
    text("rdb_changes_since_last_save", |s| {
        let persistence = &s.telemetry.persistence;
        shown(persistence.changes_since_save(s.snapshot.dirty))
    }),
    count("rdb_bgsave_in_progress", |s| {
        flag(&s.telemetry.persistence.rdb.in_progress)
    }),
    count("rdb_last_save_time", |s| rdb(s, |rdb| &rdb.last_save_s)),
    text("rdb_last_bgsave_status", |s| {
        status(&s.telemetry.persistence.rdb.last_ok)
    }),
    text("rdb_last_bgsave_time_sec", |s| {
        let rdb = &s.telemetry.persistence.rdb;
        shown(rdb.last_duration_s.load(Relaxed))
    }),
    text("rdb_current_bgsave_time_sec", |s| {
        let rdb = &s.telemetry.persistence.rdb;
        shown(seconds_since(&rdb.began_s, now_s(s)))
    }),
    count("rdb_saves", |s| rdb(s, |rdb| &rdb.saves)),
    count("rdb_last_cow_size", |s| {
        rdb(s, |rdb| &rdb.last_copied_bytes)
    }),
    count("rdb_last_load_keys_expired", |s| {
        loading(s, |loading| &loading.keys_expired)
    }),
    count("rdb_last_load_keys_loaded", |s| {
        loading(s, |loading| &loading.keys_loaded)
    }),
    count("aof_enabled", |s| {
        flag(&s.telemetry.persistence.aof.enabled)
    }),
    count("aof_rewrite_in_progress", |s| {
        flag(&s.telemetry.persistence.aof.rewrite_in_progress)
    }),
    count("aof_rewrite_scheduled", |s| {
        flag(&s.telemetry.persistence.aof.rewrite_scheduled)
    }),
    text("aof_last_rewrite_time_sec", |s| {
        let aof = &s.telemetry.persistence.aof;
        shown(aof.last_rewrite_s.load(Relaxed))
    }),
    text("aof_current_rewrite_time_sec", |s| {
        let aof = &s.telemetry.persistence.aof;
        shown(seconds_since(&aof.rewrite_began_s, now_s(s)))
    }),
    text("aof_last_bgrewrite_status", |s| {
        status(&s.telemetry.persistence.aof.last_rewrite_ok)
    }),
    count("aof_rewrites", |s| aof(s, |aof| &aof.rewrites)),
    count("aof_rewrites_consecutive_failures", |s| {
        aof(s, |aof| &aof.rewrite_failures)
    }),
    text("aof_last_write_status", |s| {
        status(&s.telemetry.persistence.aof.last_write_ok)
    }),
    count("aof_last_cow_size", |s| {
        aof(s, |aof| &aof.last_copied_bytes)
    }),
    zero("module_fork_in_progress"),
    zero("module_fork_last_cow_size"),
    zero("slot_migration_fork_in_progress"),
    count("writer_waits", |s| waits(s, |waits| &waits.all)),
    count("writer_waits_for_disk", |s| {
        waits(s, |waits| &waits.for_disk)
    }),
    count("writer_waits_for_replica", |s| {
        waits(s, |waits| &waits.for_replica)
    }),
    count("writer_waits_for_snapshot", |s| {
        waits(s, |waits| &waits.for_snapshot)
    }),
];

/// Rows shown while there is an append-only file.
pub(super) static APPENDING: &[InfoField] = &[
    count("aof_current_size", |s| aof(s, |aof| &aof.current_bytes)),
    count("aof_base_size", |s| aof(s, |aof| &aof.base_bytes)),
    zero("aof_pending_rewrite"),
    count("aof_buffer_length", |s| aof(s, |aof| &aof.buffer_bytes)),
    count("aof_pending_bio_fsync", |s| {
        aof(s, |aof| &aof.pending_fsync)
    }),
    count("aof_delayed_fsync", |s| aof(s, |aof| &aof.delayed_fsync)),
    count("log_records", |s| log(s, |log| &log.records)),
    count("log_bytes", |s| log(s, |log| &log.bytes)),
    count("log_used_bytes", |s| log(s, |log| &log.used_bytes)),
];

/// Progress of loading; Redis shows these rows while it loads.
static LOADING: &[InfoField] = &[
    count("loading_start_time", |s| {
        loading(s, |loading| &loading.began_s)
    }),
    count("loading_total_bytes", |s| {
        loading(s, |loading| &loading.total_bytes)
    }),
    count("loading_rdb_used_mem", |s| {
        loading(s, |loading| &loading.snapshot_used_memory)
    }),
    count("loading_loaded_bytes", |s| {
        loading(s, |loading| &loading.loaded_bytes)
    }),
    decimal("loading_loaded_perc", |s| {
        let done = loading(s, |loading| &loading.loaded_bytes);
        100.0 * ratio(done, loading(s, |loading| &loading.total_bytes))
    }),
    count("loading_eta_seconds", |s| {
        let done = loading(s, |loading| &loading.loaded_bytes);
        let total = loading(s, |loading| &loading.total_bytes);
        match now_s(s).saturating_sub(loading(s, |loading| &loading.began_s)) {
            0 => 1,
            spent_s => spent_s.saturating_mul(total.saturating_sub(done)) / (done + 1),
        }
    }),
];
