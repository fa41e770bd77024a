//! The section about memory used by data, clients and scripts.

use std::sync::atomic::Ordering::Relaxed;

use super::cluster::moves;
use super::{
    Figure, FigureContext, bytes, count, decimal, percent, ratio, shown, signed, stored, text, zero,
};
use crate::telemetry::memory::{self, human};
use crate::telemetry::{errors, process};
use basalt_commands::command::host::MemoryReport;
use basalt_core::alloc::{deferred_free, slabs};

fn report<'s>(source: &'s FigureContext<'_>) -> &'s MemoryReport {
    &source.snapshot.memory
}

/// Returns the memory of compiled libraries, which is counted separately although each thread runs scripts and
/// functions in one interpreter.
fn of_functions(source: &FigureContext<'_>) -> u64 {
    let scripts = &source.snapshot.scripts;
    scripts
        .interpreted_functions_bytes
        .min(scripts.interpreters_bytes)
}

/// Returns the bytes of the buffered replication stream.
fn stream_bytes(source: &FigureContext<'_>) -> u64 {
    source.snapshot.replication.stream.held_bytes
}

fn backlog_bytes(source: &FigureContext<'_>) -> u64 {
    stream_bytes(source).min(source.config.repl_backlog_size)
}

/// Returns the bytes still to be sent to slow replicas.
fn kept_for_replicas(source: &FigureContext<'_>) -> u64 {
    report(source).kept_for_replicas
}

/// Returns the memory of the log, the replication stream and a snapshot, for which no data are evicted.
fn not_counted(source: &FigureContext<'_>) -> u64 {
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

/// Returns by how much the first figure exceeds the second.
fn more(one: u64, other: u64) -> i64 {
    one as i64 - other as i64
}

/// Rows of the section `memory`.
pub(in crate::telemetry) static MEMORY: &[Figure] = &[
    bytes("used_memory", |s| report(s).used)
        .gauge("redis_memory_used_bytes", "Used memory in bytes."),
    bytes("used_memory_rss", |s| report(s).rss).gauge(
        "redis_memory_used_rss_bytes",
        "Resident memory of the process (RSS) in bytes.",
    ),
    bytes("used_memory_peak", |s| report(s).peak).gauge(
        "redis_memory_used_peak_bytes",
        "Peak of used memory in bytes.",
    ),
    count("used_memory_peak_time", |s| report(s).peak_at_s),
    percent("used_memory_peak_perc", |s| {
        (report(s).used, report(s).peak)
    }),
    count("used_memory_overhead", |s| {
        report(s).used.saturating_sub(report(s).dataset)
    })
    .gauge(
        "redis_memory_used_overhead_bytes",
        "Used memory except for keys and values, in bytes.",
    ),
    count("used_memory_startup", |s| report(s).startup).gauge(
        "redis_memory_used_startup_bytes",
        "Used memory at startup in bytes.",
    ),
    count("used_memory_dataset", |s| report(s).dataset).gauge(
        "redis_memory_used_dataset_bytes",
        "Memory of keys and values in bytes.",
    ),
    percent("used_memory_dataset_perc", |s| {
        let MemoryReport {
            used,
            startup,
            dataset,
            ..
        } = *report(s);
        (dataset, used.saturating_sub(startup).max(dataset))
    }),
    count("allocator_allocated", |s| report(s).allocator_allocated).gauge(
        "redis_allocator_allocated_bytes",
        "Bytes allocated from the allocator.",
    ),
    count("allocator_active", |s| report(s).allocator_active).gauge(
        "redis_allocator_active_bytes",
        "Bytes in active pages of the allocator.",
    ),
    count("allocator_resident", |s| report(s).allocator_resident).gauge(
        "redis_allocator_resident_bytes",
        "Resident bytes of the allocator.",
    ),
    count("allocator_muzzy", |_| muzzy_bytes()),
    bytes("total_system_memory", |_| process::total_memory_bytes()).gauge(
        "redis_total_system_memory_bytes",
        "Memory of the machine in bytes.",
    ),
    count("used_memory_lua", |s| s.snapshot.scripts.interpreter_bytes).gauge(
        "redis_memory_used_lua_bytes",
        "Memory of the largest Lua interpreter in bytes.",
    ),
    count("used_memory_vm_eval", |s| {
        s.snapshot.scripts.interpreters_bytes - of_functions(s)
    }),
    text("used_memory_lua_human", |s| {
        shown(human(s.snapshot.scripts.interpreter_bytes))
    }),
    count("used_memory_scripts_eval", |s| {
        s.snapshot.scripts.scripts_bytes
    }),
    count("number_of_cached_scripts", |s| s.snapshot.scripts.scripts).gauge(
        "redis_number_of_cached_scripts",
        "Number of cached scripts.",
    ),
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
    })
    .gauge(
        "redis_memory_used_scripts_bytes",
        "Memory of the sources of scripts and functions in bytes.",
    ),
    bytes("maxmemory", |s| s.config.maxmemory).gauge(
        "redis_memory_max_bytes",
        "Memory limit in bytes (maxmemory); 0: no limit.",
    ),
    text("maxmemory_policy", |s| {
        shown(s.config.maxmemory_policy.name())
    }),
    decimal("allocator_frag_ratio", |s| {
        ratio(report(s).allocator_active, report(s).allocator_allocated)
    })
    .gauge(
        "redis_allocator_frag_ratio",
        "Ratio of active pages to allocated memory of the allocator.",
    ),
    signed("allocator_frag_bytes", |s| {
        more(report(s).allocator_active, report(s).allocator_allocated)
    })
    .gauge(
        "redis_allocator_frag_bytes",
        "Bytes of active allocator pages that are not allocated.",
    ),
    decimal("allocator_rss_ratio", |s| {
        ratio(report(s).allocator_resident, report(s).allocator_active)
    })
    .gauge(
        "redis_allocator_rss_ratio",
        "Ratio of resident memory to active pages of the allocator.",
    ),
    signed("allocator_rss_bytes", |s| {
        more(report(s).allocator_resident, report(s).allocator_active)
    })
    .gauge(
        "redis_allocator_rss_bytes",
        "Resident bytes of the allocator that are not in active pages.",
    ),
    decimal("rss_overhead_ratio", |s| {
        ratio(report(s).rss, report(s).allocator_resident)
    }),
    signed("rss_overhead_bytes", |s| {
        more(report(s).rss, report(s).allocator_resident)
    }),
    decimal("mem_fragmentation_ratio", |s| {
        ratio(report(s).rss, report(s).used)
    })
    .gauge(
        "redis_mem_fragmentation_ratio",
        "Ratio of resident memory (RSS) to used memory.",
    ),
    signed("mem_fragmentation_bytes", |s| {
        more(report(s).rss, report(s).used)
    })
    .gauge(
        "redis_mem_fragmentation_bytes",
        "Resident bytes (RSS) minus used memory.",
    ),
    count("mem_not_counted_for_evict", not_counted).gauge(
        "redis_mem_not_counted_for_eviction_bytes",
        "Memory that does not count against maxmemory, in bytes.",
    ),
    count("mem_not_counted_log", |s| report(s).not_counted_log),
    count("mem_not_counted_replicas", |s| {
        kept_for_replicas(s) + backlog_bytes(s)
    }),
    count("mem_not_counted_snapshot", |s| {
        report(s).not_counted_snapshot
    }),
    count("mem_pooled_buffers", |s| s.snapshot.pooled_bytes),
    count("mem_replication_backlog", backlog_bytes),
    count("mem_total_replication_buffers", stream_bytes),
    count("mem_clients_slaves", |s| match report(s).replicas {
        0 => 0,
        replicas => replicas + kept_for_replicas(s),
    })
    .gauge(
        "redis_mem_clients_slaves",
        "Memory of replica connections in bytes.",
    ),
    count("mem_clients_normal", |s| report(s).clients).gauge(
        "redis_mem_clients_normal",
        "Memory of client connections in bytes.",
    ),
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
    stored("active_defrag_running", |t| &t.defrag.percent).gauge(
        "redis_active_defrag_running",
        "Percent of a CPU core that active defragmentation may use now.",
    ),
    count("lazyfree_pending_objects", |s| {
        s.service.budget().pending_objects() + deferred_free::waiting_pieces() as u64
    })
    .gauge(
        "redis_lazyfree_pending_objects",
        "Objects waiting to be freed in the background.",
    ),
    // Redis also frees the words of errors in the background, and its tests count them here.
    count("lazyfreed_objects", |s| {
        s.snapshot.since_reset.lazyfreed + errors::dropped()
    }),
];
