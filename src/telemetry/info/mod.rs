//! INFO: the snapshot as text, with the sections and fields that clients of Redis 7.2 look for, and one of our own.
//!
//! What this server does not have stands as in an idle Redis (no snapshot in progress, no replicas). No figure is made
//! up. Fields are written in the order of Redis, so that texts compare line by line.

mod fields;

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::histogram;
use super::memory::human;
use super::miss_ratio::PERCENT;
use super::observed::Observed;
use super::persistence::{LoadingFigures, Persistence, seconds_since};
use super::snapshot::{CommandFigures, Snapshot};
use super::{Telemetry, errors, memory, process};
use crate::alloc::deferred_free;
use crate::command::context::MemoryReport;
use crate::config::Config;

/// The level of Redis that is claimed towards clients.
pub const REDIS_VERSION: &str = "7.4.0";

/// Rounds of the cron a second.
const CRON_HZ: u32 = 10;

/// What a section is written from.
struct Source<'a> {
    service: &'a dyn Observed,
    telemetry: &'a Telemetry,
    config: &'a Config,
    snapshot: &'a Snapshot,
}

/// One section.
struct Section {
    name: &'static str,
    title: &'static str,
    /// Whether INFO without arguments shows it.
    by_default: bool,
    write: fn(&Source<'_>, &mut Lines),
}

const fn section(
    name: &'static str,
    title: &'static str,
    by_default: bool,
    write: fn(&Source<'_>, &mut Lines),
) -> Section {
    Section {
        name,
        title,
        by_default,
        write,
    }
}

/// The section that comes only when it is named.
const ON_DEMAND: &str = "debug";

static SECTIONS: [Section; 16] = [
    section("server", "Server", true, server),
    section("clients", "Clients", true, |source, lines| {
        fields::write(fields::CLIENTS, source, lines);
    }),
    section("memory", "Memory", true, memory_section),
    section("persistence", "Persistence", true, persistence),
    section("stats", "Stats", true, |source, lines| {
        fields::write(fields::STATS, source, lines);
    }),
    section("replication", "Replication", true, replication::section),
    section("cpu", "CPU", true, cpu),
    section("modules", "Modules", true, |_, _| {}),
    section("commandstats", "Commandstats", false, command_stats),
    section("errorstats", "Errorstats", true, error_stats),
    section("latencystats", "Latencystats", false, latency_stats),
    section("cluster", "Cluster", true, |_, lines| {
        lines.field("cluster_enabled", 0)
    }),
    section("basalt", "Basalt", true, basalt),
    section("missratio", "Missratio", true, miss_ratio),
    section("keyspace", "Keyspace", true, keyspace),
    section(ON_DEMAND, "Debug", false, |source, lines| {
        fields::write(fields::DEBUG, source, lines);
    }),
];

/// The text of INFO for these sections, in lower case; none: the default ones.
pub fn text(service: &dyn Observed, sections: &[String]) -> String {
    let wanted = |section: &Section| {
        sections.is_empty() && section.by_default
            || sections.iter().any(|name| match name.as_str() {
                "all" | "everything" => section.name != ON_DEMAND,
                "default" => section.by_default,
                "module_list" => section.name == "modules",
                name => name == section.name,
            })
    };
    let snapshot = Snapshot::gather(service);
    let config = service.config();
    let source = Source {
        service,
        telemetry: service.telemetry(),
        config: &config,
        snapshot: &snapshot,
    };
    let mut lines = Lines::default();
    for section in SECTIONS.iter().filter(|section| wanted(section)) {
        lines.title(section.title);
        (section.write)(&source, &mut lines);
    }
    lines.text
}

/// The text as it grows. Writing to a `String` can not fail.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn title(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\r\n");
        }
        let _ = write!(self.text, "# {title}\r\n");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// With two decimals.
    fn decimal(&mut self, name: &str, value: f64) {
        let _ = write!(self.text, "{name}:{value:.2}\r\n");
    }

    /// Bytes, and once more for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        let _ = write!(self.text, "{name}_human:{}\r\n", human(bytes));
    }

    fn zeroes(&mut self, names: &[&str]) {
        for name in names {
            self.field(name, 0);
        }
    }
}

/// A part of a whole, zero where there is no whole.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn server(source: &Source<'_>, lines: &mut Lines) {
    let Source {
        telemetry,
        config,
        snapshot,
        ..
    } = source;
    lines.field("redis_version", REDIS_VERSION);
    lines.field("server_name", "basalt");
    lines.field("basalt_version", env!("CARGO_PKG_VERSION"));
    lines.field("redis_git_sha1", "00000000");
    lines.field("redis_git_dirty", 0);
    lines.field("redis_build_id", 0);
    lines.field("redis_mode", "standalone");
    lines.field("os", process::os());
    lines.field("arch_bits", usize::BITS);
    lines.field("monotonic_clock", "time stamp counter");
    lines.field("multiplexing_api", "epoll");
    lines.field("atomicvar_api", "rust");
    lines.field("gcc_version", "0.0.0");
    lines.field("process_id", std::process::id());
    lines.field("process_supervised", "no");
    lines.field("run_id", &telemetry.run_id);
    lines.field("tcp_port", config.port);
    lines.field("server_time_usec", snapshot.unix_us);
    lines.field("uptime_in_seconds", snapshot.uptime_s);
    lines.field("uptime_in_days", snapshot.uptime_s / 86_400);
    lines.field("hz", CRON_HZ);
    lines.field("configured_hz", config.hz);
    let ends_at_ms = telemetry.replication.ends_at_ms.load(Relaxed);
    if ends_at_ms > 0 {
        let left_ms = ends_at_ms.saturating_sub(snapshot.unix_us / 1_000);
        lines.field("shutdown_in_milliseconds", left_ms);
    }
    lines.field("lru_clock", (snapshot.unix_us / 1_000_000) & 0xff_ffff);
    lines.field("executable", telemetry.executable.display());
    let file = telemetry
        .config_file
        .as_ref()
        .map(|file| file.display().to_string());
    lines.field("config_file", file.unwrap_or_default());
    lines.field("io_threads_active", 0);
    let mut listener = 0;
    if config.port != 0 {
        let mut value = "name=tcp".to_owned();
        for address in &config.bind {
            let _ = write!(value, ",bind={address}");
        }
        lines.field("listener0", format_args!("{value},port={}", config.port));
        listener += 1;
    }
    if !config.unixsocket.is_empty() {
        let name = format!("listener{listener}");
        lines.field(&name, format_args!("name=unix,bind={}", config.unixsocket));
    }
}

fn memory_section(source: &Source<'_>, lines: &mut Lines) {
    let Source {
        config, snapshot, ..
    } = source;
    let report: &MemoryReport = &snapshot.memory;
    lines.bytes("used_memory", report.used);
    lines.bytes("used_memory_rss", report.rss);
    lines.bytes("used_memory_peak", report.peak);
    let percent = |part, whole| format!("{:.2}%", 100.0 * ratio(part, whole));
    lines.field("used_memory_peak_perc", percent(report.used, report.peak));
    lines.field(
        "used_memory_overhead",
        report.used.saturating_sub(report.dataset),
    );
    lines.field("used_memory_startup", report.startup);
    lines.field("used_memory_dataset", report.dataset);
    let grown = report
        .used
        .saturating_sub(report.startup)
        .max(report.dataset);
    lines.field("used_memory_dataset_perc", percent(report.dataset, grown));
    lines.field("allocator_allocated", report.allocator_allocated);
    lines.field("allocator_active", report.allocator_active);
    lines.field("allocator_resident", report.allocator_resident);
    lines.bytes("total_system_memory", process::total_memory_bytes());
    // One interpreter a thread runs scripts and functions alike: what compiled libraries take there is counted apart.
    let scripts = snapshot.scripts;
    lines.field("used_memory_lua", scripts.interpreter_bytes);
    let of_functions = scripts
        .interpreted_functions_bytes
        .min(scripts.interpreters_bytes);
    let of_scripts = scripts.interpreters_bytes - of_functions;
    lines.field("used_memory_vm_eval", of_scripts);
    lines.field("used_memory_lua_human", human(scripts.interpreter_bytes));
    lines.field("used_memory_scripts_eval", scripts.scripts_bytes);
    lines.field("number_of_cached_scripts", scripts.scripts);
    lines.field("number_of_functions", scripts.functions);
    lines.field("number_of_libraries", scripts.libraries);
    lines.field("used_memory_vm_functions", of_functions);
    lines.bytes("used_memory_vm_total", scripts.interpreters_bytes);
    lines.field("used_memory_functions", scripts.functions_bytes);
    lines.bytes(
        "used_memory_scripts",
        scripts.scripts_bytes + scripts.functions_bytes,
    );
    lines.bytes("maxmemory", config.maxmemory);
    lines.field("maxmemory_policy", config.maxmemory_policy.name());
    let mut pair = |name: &str, unit: &str, part: u64, whole: u64| {
        lines.decimal(&format!("{name}_ratio"), ratio(part, whole));
        lines.field(&format!("{name}_{unit}"), part as i64 - whole as i64);
    };
    pair(
        "allocator_frag",
        "bytes",
        report.allocator_active,
        report.allocator_allocated,
    );
    pair(
        "allocator_rss",
        "bytes",
        report.allocator_resident,
        report.allocator_active,
    );
    pair(
        "rss_overhead",
        "bytes",
        report.rss,
        report.allocator_resident,
    );
    pair("mem_fragmentation", "bytes", report.rss, report.used);
    let held_bytes = source.snapshot.replication.stream.held_bytes;
    let backlog_bytes = held_bytes.min(source.config.repl_backlog_size);
    let kept_bytes = source.service.budget().kept_for_replicas();
    let kept_bytes = kept_bytes.load(Relaxed).unsigned_abs();
    lines.field("mem_not_counted_for_evict", kept_bytes);
    lines.field("mem_replication_backlog", backlog_bytes);
    lines.field("mem_total_replication_buffers", held_bytes);
    lines.field("mem_clients_slaves", report.replicas + kept_bytes);
    lines.field("mem_clients_normal", report.clients);
    lines.zeroes(&["mem_cluster_links"]);
    let aof = &source.telemetry.persistence.aof;
    let buffer_bytes = match aof.enabled.load(Relaxed) {
        true => aof.buffer_bytes.load(Relaxed),
        false => 0,
    };
    lines.field("mem_aof_buffer", buffer_bytes);
    lines.field("mem_allocator", memory::allocator_name());
    // Tables grow a segment at a time.
    lines.zeroes(&["mem_overhead_db_hashtable_rehashing"]);
    let defrag = &source.service.telemetry().defrag;
    lines.field("active_defrag_running", defrag.percent.load(Relaxed));
    let budget = source.service.budget();
    let pending = budget.pending_objects() + deferred_free::waiting_pieces() as u64;
    lines.field("lazyfree_pending_objects", pending);
    // Redis frees the words of errors in the background too, and its tests count them there.
    let lazyfreed = source.snapshot.lazyfreed + errors::dropped();
    lines.field("lazyfreed_objects", lazyfreed);
}

fn persistence(source: &Source<'_>, lines: &mut Lines) {
    let Persistence {
        rdb,
        aof,
        loading,
        log,
    } = &source.telemetry.persistence;
    let now_s = source.snapshot.unix_us / 1_000_000;
    let status = |is_good: &AtomicBool| if is_good.load(Relaxed) { "ok" } else { "err" };
    let flag = |flag: &AtomicBool| u8::from(flag.load(Relaxed));
    lines.field("loading", flag(&loading.is_loading));
    lines.field("async_loading", flag(&loading.is_aside));
    let copied_bytes = rdb.copied_bytes.load(Relaxed);
    lines.field("current_cow_peak", copied_bytes);
    lines.field("current_cow_size", copied_bytes);
    lines.zeroes(&["current_cow_size_age"]);
    let (done, total) = (&rdb.keys_processed, &rdb.keys_total);
    let (done, total) = (done.load(Relaxed), total.load(Relaxed));
    lines.decimal("current_fork_perc", 100.0 * ratio(done, total));
    lines.field("current_save_keys_processed", done);
    lines.field("current_save_keys_total", total);
    let dirty = source.snapshot.dirty;
    let unsaved = source.telemetry.persistence.changes_since_save(dirty);
    lines.field("rdb_changes_since_last_save", unsaved);
    lines.field("rdb_bgsave_in_progress", flag(&rdb.in_progress));
    lines.field("rdb_last_save_time", rdb.last_save_s.load(Relaxed));
    lines.field("rdb_last_bgsave_status", status(&rdb.last_ok));
    let last_s = rdb.last_duration_s.load(Relaxed);
    lines.field("rdb_last_bgsave_time_sec", last_s);
    let current_s = seconds_since(&rdb.began_s, now_s);
    lines.field("rdb_current_bgsave_time_sec", current_s);
    lines.field("rdb_saves", rdb.saves.load(Relaxed));
    lines.field("rdb_last_cow_size", rdb.last_copied_bytes.load(Relaxed));
    let expired = loading.keys_expired.load(Relaxed);
    lines.field("rdb_last_load_keys_expired", expired);
    let loaded = loading.keys_loaded.load(Relaxed);
    lines.field("rdb_last_load_keys_loaded", loaded);
    lines.field("aof_enabled", flag(&aof.enabled));
    lines.field("aof_rewrite_in_progress", flag(&aof.rewrite_in_progress));
    lines.field("aof_rewrite_scheduled", flag(&aof.rewrite_scheduled));
    let last_s = aof.last_rewrite_s.load(Relaxed);
    lines.field("aof_last_rewrite_time_sec", last_s);
    let current_s = seconds_since(&aof.rewrite_began_s, now_s);
    lines.field("aof_current_rewrite_time_sec", current_s);
    lines.field("aof_last_bgrewrite_status", status(&aof.last_rewrite_ok));
    lines.field("aof_rewrites", aof.rewrites.load(Relaxed));
    let failures = aof.rewrite_failures.load(Relaxed);
    lines.field("aof_rewrites_consecutive_failures", failures);
    lines.field("aof_last_write_status", status(&aof.last_write_ok));
    lines.field("aof_last_cow_size", aof.last_copied_bytes.load(Relaxed));
    lines.zeroes(&["module_fork_in_progress", "module_fork_last_cow_size"]);
    if aof.enabled.load(Relaxed) {
        lines.field("aof_current_size", aof.current_bytes.load(Relaxed));
        lines.field("aof_base_size", aof.base_bytes.load(Relaxed));
        lines.zeroes(&["aof_pending_rewrite"]);
        lines.field("aof_buffer_length", aof.buffer_bytes.load(Relaxed));
        lines.field("aof_pending_bio_fsync", aof.pending_fsync.load(Relaxed));
        lines.field("aof_delayed_fsync", aof.delayed_fsync.load(Relaxed));
        lines.field("log_records", log.records.load(Relaxed));
        lines.field("log_bytes", log.bytes.load(Relaxed));
        lines.field("log_used_bytes", log.used_bytes.load(Relaxed));
        lines.field("log_waits", log.waits.load(Relaxed));
    }
    if loading.is_loading.load(Relaxed) {
        loading_fields(loading, now_s, lines);
    }
}

/// How far loading is; Redis shows these while it loads.
fn loading_fields(loading: &LoadingFigures, now_s: u64, lines: &mut Lines) {
    let began_s = loading.began_s.load(Relaxed);
    let (done, total) = (&loading.loaded_bytes, &loading.total_bytes);
    let (done, total) = (done.load(Relaxed), total.load(Relaxed));
    lines.field("loading_start_time", began_s);
    lines.field("loading_total_bytes", total);
    let memory = loading.snapshot_used_memory.load(Relaxed);
    lines.field("loading_rdb_used_mem", memory);
    lines.field("loading_loaded_bytes", done);
    lines.decimal("loading_loaded_perc", 100.0 * ratio(done, total));
    let left_s = match now_s.saturating_sub(began_s) {
        0 => 1,
        spent_s => spent_s.saturating_mul(total.saturating_sub(done)) / (done + 1),
    };
    lines.field("loading_eta_seconds", left_s);
}

fn cpu(source: &Source<'_>, lines: &mut Lines) {
    let cpu = &source.snapshot.cpu;
    for (suffix, seconds) in [
        ("", cpu.own),
        ("_children", cpu.children),
        ("_main_thread", cpu.main_thread),
    ] {
        lines.field(
            &format!("used_cpu_sys{suffix}"),
            format_args!("{:.6}", seconds.system),
        );
        lines.field(
            &format!("used_cpu_user{suffix}"),
            format_args!("{:.6}", seconds.user),
        );
    }
}

fn command_stats(source: &Source<'_>, lines: &mut Lines) {
    for command in &source.snapshot.commands {
        let CommandFigures {
            name,
            calls,
            duration_ns,
            rejected,
            failed,
            ..
        } = command;
        let duration_us = duration_ns / 1_000;
        lines.field(
            &format!("cmdstat_{name}"),
            format_args!(
                "calls={calls},usec={duration_us},usec_per_call={:.2},rejected_calls={rejected},failed_calls={failed}",
                ratio(*duration_ns, *calls) / 1_000.0
            ),
        );
    }
}

fn error_stats(source: &Source<'_>, lines: &mut Lines) {
    for (code, count) in &source.snapshot.errors {
        lines.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(source: &Source<'_>, lines: &mut Lines) {
    let Source {
        config, snapshot, ..
    } = source;
    if !config.latency_tracking {
        return;
    }
    for command in snapshot.commands.iter().filter(|command| command.calls > 0) {
        let percentiles: Vec<String> = config
            .latency_tracking_info_percentiles
            .iter()
            .map(|percent| {
                let value_ns = histogram::percentile_ns(&command.buckets, *percent);
                format!("p{percent}={:.3}", value_ns / 1_000.0)
            })
            .collect();
        lines.field(
            &format!("latency_percentiles_usec_{}", command.name),
            percentiles.join(","),
        );
    }
}

fn basalt(source: &Source<'_>, lines: &mut Lines) {
    let Source {
        service,
        telemetry,
        snapshot,
        ..
    } = source;
    let token = snapshot.tokens();
    lines.field("shards", service.all_published().len());
    lines.field("threads", telemetry.thread_count);
    lines.field("takes", token.takes);
    lines.field("takes_found_held", token.takes_found_held);
    let tries = token.takes + token.takes_found_held;
    lines.field(
        "takes_found_held_perc",
        format_args!("{:.4}%", 100.0 * ratio(token.takes_found_held, tries)),
    );
    lines.field("commands_queued", token.queued);
    lines.field("multi_shard_operations", token.multi_shard_runs);
    lines.field("handovers", token.handed_over);
    lines.field("worker_handovers", token.worker_handovers);
    lines.field(
        "longest_hold_usec",
        format_args!("{:.3}", token.longest_hold_ns as f64 / 1_000.0),
    );
    let eviction = &snapshot.eviction;
    for (name, count) in [
        ("evicted_from_small_queue", eviction.from_small),
        ("evicted_from_main", eviction.from_main),
        ("evicted_otherwise", eviction.otherwise),
        ("eviction_promotions", eviction.promoted),
        ("eviction_ghost_hits", eviction.ghost_hits),
        ("eviction_debt_bytes", eviction.debt_bytes),
    ] {
        lines.field(name, count);
    }
    lines.decimal("expiry_lag_p50_ms", snapshot.lag_percentile_ms(50.0));
    lines.decimal("expiry_lag_p99_ms", snapshot.lag_percentile_ms(99.0));
    lines.field("expiry_lag_max_ms", snapshot.lag_max_ms);
}

/// Hit ratios in percent, for other sizes of memory in percent of what the data takes now.
fn miss_ratio(source: &Source<'_>, lines: &mut Lines) {
    let curve = &source.snapshot.curve;
    lines.field("miss_ratio_curve", u8::from(curve.is_kept));
    lines.field("curve_memory", curve.memory_bytes);
    lines.field("curve_reads", curve.reads);
    lines.field("curve_samples", curve.samples);
    lines.field("curve_keys_estimated", curve.stands_for);
    if let Some(measured) = curve.measured {
        lines.decimal("curve_hit_ratio_measured", 100.0 * measured);
    }
    if let Some(unseen) = curve.unseen {
        lines.decimal("curve_first_reads", 100.0 * unseen);
    }
    for (name, ratios) in [
        ("curve_hit_ratio", &curve.corrected),
        ("curve_lru_hit_ratio", &curve.lru),
    ] {
        for (percent, ratio) in PERCENT.iter().zip(ratios.iter().flatten()) {
            lines.decimal(&format!("{name}_at_{percent}"), 100.0 * ratio);
        }
    }
}

fn keyspace(source: &Source<'_>, lines: &mut Lines) {
    for (index, (keys, volatile)) in source.snapshot.memory.dbs.iter().enumerate() {
        if *keys > 0 {
            let fields = source.snapshot.field_volatile.get(index).unwrap_or(&0);
            lines.field(
                &format!("db{index}"),
                format_args!("keys={keys},expires={volatile},avg_ttl=0,subexpiry={fields}"),
            );
        }
    }
}

mod replication;
#[cfg(test)]
mod tests;
