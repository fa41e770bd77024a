//! The section about memory used by data, clients and scripts.

use std::sync::atomic::Ordering::Relaxed;

use super::{InfoField, bytes, count, decimal, defrag, moves, percent, shown, text, zero};
use crate::telemetry::info::{InfoContext, ratio};
use crate::telemetry::memory::{self, human};
use crate::telemetry::{errors, process};
use basalt_commands::command::host::MemoryReport;
use basalt_core::alloc::{deferred_free, slabs};

fn report<'s>(source: &InfoContext<'s>) -> &'s MemoryReport {
    &source.snapshot.memory
}

/// Returns the memory of compiled libraries, which is counted separately although each thread runs scripts and
/// functions in one interpreter.
fn of_functions(source: &InfoContext<'_>) -> u64 {
    let scripts = &source.snapshot.scripts;
    scripts
        .interpreted_functions_bytes
        .min(scripts.interpreters_bytes)
}

/// Returns the bytes of the buffered replication stream.
fn stream_bytes(source: &InfoContext<'_>) -> u64 {
    source.snapshot.replication.stream.held_bytes
}

fn backlog_bytes(source: &InfoContext<'_>) -> u64 {
    stream_bytes(source).min(source.config.repl_backlog_size)
}

/// Returns the bytes still to be sent to slow replicas.
fn kept_for_replicas(source: &InfoContext<'_>) -> u64 {
    report(source).kept_for_replicas
}

/// Returns the memory of the log, the replication stream and a snapshot, for which no data are evicted.
fn not_counted(source: &InfoContext<'_>) -> u64 {
    let report = report(source);
    report.not_counted_log
        + report.not_counted_snapshot
        + kept_for_replicas(source)
        + backlog_bytes(source)
}

/// Returns the bytes of pages that the system may reclaim, in all arenas.
fn muzzy_bytes() -> u64 {
    let number = |name| slabs::allocator_number(name).unwrap_or(0);
    number("stats.arenas.4096.pmuzzy") * number("arenas.page")
}

/// Formats by how much the first figure exceeds the second.
fn more(one: u64, other: u64) -> Option<String> {
    shown(one as i64 - other as i64)
}

/// Rows of the section `memory`.
pub(in crate::telemetry::info) static MEMORY: &[InfoField] = &[
    bytes("used_memory", |s| report(s).used),
    bytes("used_memory_rss", |s| report(s).rss),
    bytes("used_memory_peak", |s| report(s).peak),
    count("used_memory_peak_time", |s| report(s).peak_at_s),
    percent("used_memory_peak_perc", |s| {
        (report(s).used, report(s).peak)
    }),
    count("used_memory_overhead", |s| {
        report(s).used.saturating_sub(report(s).dataset)
    }),
    count("used_memory_startup", |s| report(s).startup),
    count("used_memory_dataset", |s| report(s).dataset),
    percent("used_memory_dataset_perc", |s| {
        let MemoryReport {
            used,
            startup,
            dataset,
            ..
        } = *report(s);
        (dataset, used.saturating_sub(startup).max(dataset))
    }),
    count("allocator_allocated", |s| report(s).allocator_allocated),
    count("allocator_active", |s| report(s).allocator_active),
    count("allocator_resident", |s| report(s).allocator_resident),
    count("allocator_muzzy", |_| muzzy_bytes()),
    bytes("total_system_memory", |_| process::total_memory_bytes()),
    count("used_memory_lua", |s| s.snapshot.scripts.interpreter_bytes),
    count("used_memory_vm_eval", |s| {
        s.snapshot.scripts.interpreters_bytes - of_functions(s)
    }),
    text("used_memory_lua_human", |s| {
        shown(human(s.snapshot.scripts.interpreter_bytes))
    }),
    count("used_memory_scripts_eval", |s| {
        s.snapshot.scripts.scripts_bytes
    }),
    count("number_of_cached_scripts", |s| s.snapshot.scripts.scripts),
    count("number_of_functions", |s| s.snapshot.scripts.functions),
    count("number_of_libraries", |s| s.snapshot.scripts.libraries),
    count("used_memory_vm_functions", of_functions),
    bytes("used_memory_vm_total", |s| {
        s.snapshot.scripts.interpreters_bytes
    }),
    count("used_memory_functions", |s| {
        s.snapshot.scripts.functions_bytes
    }),
    bytes("used_memory_scripts", |s| {
        s.snapshot.scripts.scripts_bytes + s.snapshot.scripts.functions_bytes
    }),
    bytes("maxmemory", |s| s.config.maxmemory),
    text("maxmemory_policy", |s| {
        shown(s.config.maxmemory_policy.name())
    }),
    decimal("allocator_frag_ratio", |s| {
        ratio(report(s).allocator_active, report(s).allocator_allocated)
    }),
    text("allocator_frag_bytes", |s| {
        more(report(s).allocator_active, report(s).allocator_allocated)
    }),
    decimal("allocator_rss_ratio", |s| {
        ratio(report(s).allocator_resident, report(s).allocator_active)
    }),
    text("allocator_rss_bytes", |s| {
        more(report(s).allocator_resident, report(s).allocator_active)
    }),
    decimal("rss_overhead_ratio", |s| {
        ratio(report(s).rss, report(s).allocator_resident)
    }),
    text("rss_overhead_bytes", |s| {
        more(report(s).rss, report(s).allocator_resident)
    }),
    decimal("mem_fragmentation_ratio", |s| {
        ratio(report(s).rss, report(s).used)
    }),
    text("mem_fragmentation_bytes", |s| {
        more(report(s).rss, report(s).used)
    }),
    count("mem_not_counted_for_evict", not_counted),
    count("mem_not_counted_log", |s| report(s).not_counted_log),
    count("mem_not_counted_replicas", |s| {
        kept_for_replicas(s) + backlog_bytes(s)
    }),
    count("mem_not_counted_snapshot", |s| {
        report(s).not_counted_snapshot
    }),
    count("mem_replication_backlog", backlog_bytes),
    count("mem_total_replication_buffers", stream_bytes),
    count("mem_clients_slaves", |s| match report(s).replicas {
        0 => 0,
        replicas => replicas + kept_for_replicas(s),
    }),
    count("mem_clients_normal", |s| report(s).clients),
    count("mem_clients_unauthenticated", |s| {
        s.snapshot.client_figures.unauthenticated
    }),
    count("mem_tracking_table", |s| s.snapshot.pubsub.tracked_bytes),
    count("mem_cluster_links", |s| {
        let cluster = s.service.cluster();
        cluster.map_or(0, |cluster| cluster.traffic().link_buffer_bytes)
    }),
    count("mem_cluster_slot_import", |s| moves(s).import_buffer_bytes),
    count("mem_cluster_slot_export", |s| moves(s).export_buffer_bytes),
    count("mem_aof_buffer", |s| {
        let aof = &s.telemetry.persistence.aof;
        match aof.enabled.load(Relaxed) {
            true => aof.buffer_bytes.load(Relaxed),
            false => 0,
        }
    }),
    text("mem_allocator", |_| shown(memory::allocator_name())),
    // Always zero: hash tables grow one segment at a time, so no second table exists while rehashing.
    zero("mem_overhead_db_hashtable_rehashing"),
    count("active_defrag_running", |s| defrag(s, |d| &d.percent)),
    count("lazyfree_pending_objects", |s| {
        s.service.budget().pending_objects() + deferred_free::waiting_pieces() as u64
    }),
    // Redis also frees the words of errors in the background, and its tests count them here.
    count("lazyfreed_objects", |s| {
        s.snapshot.lazyfreed + errors::dropped()
    }),
];
