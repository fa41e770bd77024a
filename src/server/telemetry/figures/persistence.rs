//! Snapshots, the append-only file and loading.

use std::sync::atomic::Ordering::Relaxed;

use super::{Figure, FigureContext, count, decimal, flag, ratio, signed, status, stored, zero};
use crate::telemetry::persistence::{LoadingFigures, seconds_since};

fn loading<'s>(source: &FigureContext<'s>) -> &'s LoadingFigures {
    &source.telemetry.persistence.loading
}

fn now_s(source: &FigureContext<'_>) -> u64 {
    source.snapshot.unix_us / 1_000_000
}

/// Rows that are always shown.
pub(in crate::telemetry) static ALWAYS: &[Figure] = &[
    flag("loading", |t| &t.persistence.loading.is_loading).gauge(
        "redis_loading_dump_file",
        "1 if data is being loaded, else 0.",
    ),
    flag("async_loading", |t| &t.persistence.loading.is_aside),
    stored("current_cow_peak", |t| &t.persistence.rdb.copied_bytes),
    stored("current_cow_size", |t| &t.persistence.rdb.copied_bytes),
    zero("current_cow_size_age"),
    decimal("current_fork_perc", |s| {
        let rdb = &s.telemetry.persistence.rdb;
        let done = rdb.keys_processed.load(Relaxed);
        100.0 * ratio(done, rdb.keys_total.load(Relaxed))
    }),
    stored("current_save_keys_processed", |t| {
        &t.persistence.rdb.keys_processed
    })
    .gauge(
        "basalt_rdb_keys_saved",
        "Keys saved so far by the snapshot in progress.",
    ),
    stored("current_save_keys_total", |t| &t.persistence.rdb.keys_total).gauge(
        "basalt_rdb_keys_to_save",
        "Total keys of the snapshot in progress.",
    ),
    count("rdb_changes_since_last_save", |s| {
        let dirty = s.sum(|shard| &shard.dirty);
        s.telemetry.persistence.changes_since_save(dirty)
    })
    .gauge(
        "redis_rdb_changes_since_last_save",
        "Changes since the last snapshot.",
    ),
    flag("rdb_bgsave_in_progress", |t| &t.persistence.rdb.in_progress).gauge(
        "redis_rdb_bgsave_in_progress",
        "1 if a background save is in progress, else 0.",
    ),
    stored("rdb_last_save_time", |t| &t.persistence.rdb.last_save_s).gauge(
        "redis_rdb_last_save_timestamp_seconds",
        "Unix time of the last successful snapshot, or of the start.",
    ),
    status("rdb_last_bgsave_status", |t| &t.persistence.rdb.last_ok).gauge(
        "redis_rdb_last_bgsave_status",
        "1 if the last background save succeeded, else 0.",
    ),
    signed("rdb_last_bgsave_time_sec", |s| {
        s.telemetry.persistence.rdb.last_duration_s.load(Relaxed)
    })
    .gauge(
        "redis_rdb_last_bgsave_duration_sec",
        "Duration of the last background save in seconds; -1 before the first one.",
    ),
    signed("rdb_current_bgsave_time_sec", |s| {
        seconds_since(&s.telemetry.persistence.rdb.began_s, now_s(s))
    })
    .gauge(
        "redis_rdb_current_bgsave_duration_sec",
        "Duration of the background save in progress in seconds; -1 if there is none.",
    ),
    stored("rdb_saves", |t| &t.persistence.rdb.saves)
        .counter("redis_rdb_saves_total", "Snapshots saved to files."),
    stored("rdb_last_cow_size", |t| {
        &t.persistence.rdb.last_copied_bytes
    })
    .gauge(
        "redis_rdb_last_cow_size_bytes",
        "Bytes that the last snapshot saved early because they were about to change \
         (copy-on-write).",
    ),
    stored("rdb_last_load_keys_expired", |t| {
        &t.persistence.loading.keys_expired
    })
    .gauge(
        "redis_rdb_last_load_expired_keys",
        "Expired keys skipped in the last loaded snapshot.",
    ),
    stored("rdb_last_load_keys_loaded", |t| {
        &t.persistence.loading.keys_loaded
    })
    .gauge(
        "redis_rdb_last_load_loaded_keys",
        "Keys loaded from the last snapshot.",
    ),
    stored("rdb_last_load_module_values_skipped", |t| {
        &t.persistence.loading.module_values_skipped
    })
    .gauge(
        "redis_rdb_last_load_skipped_module_values",
        "Values of unknown modules left out of the last loaded snapshot (rdb-skip-unknown-modules).",
    ),
    flag("aof_enabled", |t| &t.persistence.aof.enabled).gauge(
        "redis_aof_enabled",
        "1 if the append-only file is enabled, else 0.",
    ),
    flag("aof_rewrite_in_progress", |t| {
        &t.persistence.aof.rewrite_in_progress
    })
    .gauge(
        "redis_aof_rewrite_in_progress",
        "1 if an AOF rewrite is in progress, else 0.",
    ),
    flag("aof_rewrite_scheduled", |t| {
        &t.persistence.aof.rewrite_scheduled
    })
    .gauge(
        "redis_aof_rewrite_scheduled",
        "1 if an AOF rewrite is scheduled after the snapshot in progress, else 0.",
    ),
    signed("aof_last_rewrite_time_sec", |s| {
        s.telemetry.persistence.aof.last_rewrite_s.load(Relaxed)
    })
    .gauge(
        "redis_aof_last_rewrite_duration_sec",
        "Duration of the last AOF rewrite in seconds; -1 before the first one.",
    ),
    signed("aof_current_rewrite_time_sec", |s| {
        seconds_since(&s.telemetry.persistence.aof.rewrite_began_s, now_s(s))
    })
    .gauge(
        "redis_aof_current_rewrite_duration_sec",
        "Duration of the AOF rewrite in progress in seconds; -1 if there is none.",
    ),
    status("aof_last_bgrewrite_status", |t| {
        &t.persistence.aof.last_rewrite_ok
    })
    .gauge(
        "redis_aof_last_bgrewrite_status",
        "1 if the last AOF rewrite succeeded, else 0.",
    ),
    stored("aof_rewrites", |t| &t.persistence.aof.rewrites)
        .counter("basalt_aof_rewrites_total", "Successful AOF rewrites."),
    stored("aof_rewrites_consecutive_failures", |t| {
        &t.persistence.aof.rewrite_failures
    })
    .gauge(
        "basalt_aof_rewrite_failures",
        "Consecutive failed AOF rewrites.",
    ),
    status("aof_last_write_status", |t| {
        &t.persistence.aof.last_write_ok
    })
    .gauge(
        "redis_aof_last_write_status",
        "1 if the last write and fsync of the append-only file succeeded, else 0.",
    ),
    stored("aof_last_cow_size", |t| {
        &t.persistence.aof.last_copied_bytes
    })
    .gauge(
        "redis_aof_last_cow_size_bytes",
        "Bytes that the last AOF rewrite saved early because they were about to change \
         (copy-on-write).",
    ),
    zero("module_fork_in_progress").gauge(
        "redis_module_fork_in_progress",
        "Always 0: modules are not supported.",
    ),
    zero("module_fork_last_cow_size").gauge(
        "redis_module_fork_last_cow_size",
        "Always 0: modules are not supported.",
    ),
    zero("slot_migration_fork_in_progress"),
    stored("writer_waits", |t| &t.persistence.writer_waits.all),
    stored("writer_waits_for_disk", |t| {
        &t.persistence.writer_waits.for_disk
    }),
    stored("writer_waits_for_replica", |t| {
        &t.persistence.writer_waits.for_replica
    }),
    stored("writer_waits_for_snapshot", |t| {
        &t.persistence.writer_waits.for_snapshot
    }),
];

/// Rows shown while there is an append-only file.
pub(in crate::telemetry) static APPENDING: &[Figure] = &[
    stored("aof_current_size", |t| &t.persistence.aof.current_bytes).gauge(
        "redis_aof_current_size_bytes",
        "Size of the append-only files in bytes.",
    ),
    stored("aof_base_size", |t| &t.persistence.aof.base_bytes).gauge(
        "redis_aof_base_size_bytes",
        "Size of the append-only files after the last rewrite or at startup, in bytes.",
    ),
    zero("aof_pending_rewrite").gauge(
        "redis_aof_pending_rewrite",
        "1 if an AOF rewrite is scheduled, else 0.",
    ),
    stored("aof_buffer_length", |t| &t.persistence.aof.buffer_bytes).gauge(
        "redis_aof_buffer_length",
        "Bytes not yet written to the append-only file.",
    ),
    stored("aof_pending_bio_fsync", |t| {
        &t.persistence.aof.pending_fsync
    })
    .gauge(
        "redis_aof_pending_bio_fsync",
        "Background fsyncs of the append-only file in progress.",
    ),
    stored("aof_delayed_fsync", |t| &t.persistence.aof.delayed_fsync).gauge(
        "redis_aof_delayed_fsync",
        "Fsyncs of the append-only file that took longer than two seconds.",
    ),
    stored("log_records", |t| &t.persistence.log.records).counter(
        "basalt_log_records_total",
        "Records appended to the command log.",
    ),
    stored("log_bytes", |t| &t.persistence.log.bytes).counter(
        "basalt_log_bytes_total",
        "Bytes of the stream made from the command log.",
    ),
    stored("log_used_bytes", |t| &t.persistence.log.used_bytes).gauge(
        "basalt_log_used_bytes",
        "Bytes in use in the command log buffer.",
    ),
];

/// Progress of loading; Redis shows these rows while it loads.
pub(in crate::telemetry) static LOADING: &[Figure] = &[
    stored("loading_start_time", |t| &t.persistence.loading.began_s).gauge(
        "basalt_loading_start_timestamp_seconds",
        "Unix time at which loading last began; 0: never.",
    ),
    stored("loading_total_bytes", |t| {
        &t.persistence.loading.total_bytes
    })
    .gauge(
        "basalt_loading_total_bytes",
        "Total bytes of the file that is or was last loaded.",
    ),
    stored("loading_rdb_used_mem", |t| {
        &t.persistence.loading.snapshot_used_memory
    }),
    stored("loading_loaded_bytes", |t| {
        &t.persistence.loading.loaded_bytes
    })
    .gauge("basalt_loading_loaded_bytes", "Bytes loaded so far."),
    decimal("loading_loaded_perc", |s| {
        let done = loading(s).loaded_bytes.load(Relaxed);
        100.0 * ratio(done, loading(s).total_bytes.load(Relaxed))
    }),
    count("loading_eta_seconds", |s| {
        let done = loading(s).loaded_bytes.load(Relaxed);
        let total = loading(s).total_bytes.load(Relaxed);
        match now_s(s).saturating_sub(loading(s).began_s.load(Relaxed)) {
            0 => 1,
            spent_s => spent_s.saturating_mul(total.saturating_sub(done)) / (done + 1),
        }
    }),
];
