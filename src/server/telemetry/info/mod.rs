//! INFO: the snapshot as text, with the sections and fields that clients of Redis 7.2 expect, and one section of
//! our own.
//!
//! Features that this server lacks are reported as in an idle Redis (no snapshot in progress, no replicas). No
//! figure is invented. Fields are written in Redis's order, so that texts can be compared line by line.

mod fields;

use std::fmt::{Display, Write};
use std::sync::Arc;

use super::Telemetry;
use super::histogram;
use super::memory::human;
use super::miss_ratio::PERCENT;
use super::observed::Observed;
use super::prefixes::{self, SampledEstimate};
use super::snapshot::{CommandFigures, Snapshot};
use basalt_commands::config::Config;
use basalt_engine::published::DbCounts;
use basalt_engine::sizes::{BINS, Sizes, TYPES_COUNTED};

/// The Redis version claimed towards clients.
pub const REDIS_VERSION: &str = "7.4.0";

/// Returns the Redis version reported to clients: `REDIS_VERSION`, unless the configuration overrides it.
pub fn told_version(config: &Config) -> &str {
    match config.version_override.as_str() {
        "" => REDIS_VERSION,
        version => version,
    }
}

/// Maximum number of prefixes in INFO.
const PREFIXES_MAX: usize = 20;

/// Runs of the cron per second.
const CRON_HZ: u32 = 10;

/// The source of a section.
struct InfoContext<'a> {
    service: &'a dyn Observed,
    telemetry: &'a Telemetry,
    config: &'a Config,
    snapshot: &'a Snapshot,
}

/// A section of INFO.
struct Section {
    name: &'static str,
    title: &'static str,
    /// Whether INFO without arguments shows it.
    by_default: bool,
    write: fn(&InfoContext<'_>, &mut Lines),
}

const fn section(
    name: &'static str,
    title: &'static str,
    by_default: bool,
    write: fn(&InfoContext<'_>, &mut Lines),
) -> Section {
    Section {
        name,
        title,
        by_default,
        write,
    }
}

/// Sections shown only when named.
const ON_DEMAND: [&str; 2] = ["prefixes", "debug"];

static SECTIONS: [Section; 21] = [
    section("server", "Server", true, |source, lines| {
        fields::write(fields::server::SERVER, source, lines);
    }),
    section("clients", "Clients", true, |source, lines| {
        fields::write(fields::CLIENTS, source, lines);
    }),
    section("memory", "Memory", true, |source, lines| {
        fields::write(fields::memory::MEMORY, source, lines);
    }),
    section(
        "persistence",
        "Persistence",
        true,
        fields::persistence::section,
    ),
    section("stats", "Stats", true, |source, lines| {
        fields::write(fields::STATS, source, lines);
    }),
    section(
        "replication",
        "Replication",
        true,
        fields::replication::section,
    ),
    section("cpu", "CPU", true, cpu),
    section("modules", "Modules", true, |_, _| {}),
    section("commandstats", "Commandstats", false, command_stats),
    section("errorstats", "Errorstats", true, error_stats),
    section("latencystats", "Latencystats", false, latency_stats),
    section("cluster", "Cluster", true, |source, lines| {
        fields::write(fields::CLUSTER, source, lines);
        if source.service.cluster().is_some() {
            fields::write(fields::SLOT_MOVES, source, lines);
        }
    }),
    section("basalt", "Basalt", true, basalt),
    section("leases", "Leases", true, |source, lines| {
        fields::write(fields::LEASES, source, lines);
    }),
    section("locks", "Locks", true, |source, lines| {
        fields::write(fields::LOCKS, source, lines);
    }),
    section("databases", "Databases", true, databases),
    section("missratio", "Missratio", true, miss_ratio),
    section("keyspace", "Keyspace", true, keyspace),
    section("keysizes", "Keysizes", false, key_sizes),
    section("prefixes", "Prefixes", false, prefixes),
    section("debug", "Debug", false, |source, lines| {
        fields::write(fields::DEBUG, source, lines);
    }),
];

/// Returns the text of INFO for these sections, given in lower case; the default ones if empty.
pub fn text(service: &dyn Observed, sections: &[String]) -> String {
    let wanted = |section: &Section| {
        sections.is_empty() && section.by_default
            || sections.iter().any(|name| match name.as_str() {
                "all" | "everything" => !ON_DEMAND.contains(&section.name),
                "default" => section.by_default,
                "module_list" => section.name == "modules",
                name => name == section.name,
            })
    };
    let snapshot = Snapshot::gather(service);
    let config = service.config();
    let source = InfoContext {
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

/// Returns the unrounded number of a field, so that the metrics agree with INFO; `None` if the field is a text or
/// does not exist.
pub(super) fn number(
    service: &dyn Observed,
    config: &Config,
    snapshot: &Snapshot,
    field: &str,
) -> Option<f64> {
    let telemetry = service.telemetry();
    let source = InfoContext {
        service,
        telemetry,
        config,
        snapshot,
    };
    fields::number(&source, field)
}

/// The text being built. Writing to a `String` cannot fail.
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

    /// Writes a number with two decimals.
    fn decimal(&mut self, name: &str, value: f64) {
        let _ = write!(self.text, "{name}:{value:.2}\r\n");
    }

    /// Writes bytes, and a second field for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        let _ = write!(self.text, "{name}_human:{}\r\n", human(bytes));
    }
}

/// Returns `part` divided by `whole`, or zero if `whole` is zero.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn cpu(source: &InfoContext<'_>, lines: &mut Lines) {
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

fn command_stats(source: &InfoContext<'_>, lines: &mut Lines) {
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

fn error_stats(source: &InfoContext<'_>, lines: &mut Lines) {
    for (code, count) in &source.snapshot.errors {
        lines.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(source: &InfoContext<'_>, lines: &mut Lines) {
    let InfoContext {
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

fn basalt(source: &InfoContext<'_>, lines: &mut Lines) {
    let InfoContext {
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

/// Writes hit ratios in percent, for memory sizes in percent of what the data currently takes.
fn miss_ratio(source: &InfoContext<'_>, lines: &mut Lines) {
    let curve = &source.snapshot.curve;
    lines.field("miss_ratio_curve", u8::from(curve.is_kept));
    lines.field("curve_memory", curve.memory_bytes);
    lines.field("curve_reads", curve.reads);
    lines.field("curve_samples", curve.samples);
    lines.field("curve_keys_estimated", curve.stands_for);
    let is_known = curve.corrected.is_some() || curve.lru.is_some();
    lines.field(
        "curve_status",
        match (curve.is_kept, is_known) {
            (false, _) => "off (CONFIG SET miss-ratio-curve yes)",
            (true, false) => "no hit ratios yet (they need reads of many keys)",
            (true, true) => "known",
        },
    );
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

/// Writes the prefixes. Names are escaped, so that no line or field is cut short.
fn prefixes(source: &InfoContext<'_>, lines: &mut Lines) {
    let report = prefixes::report(source.service, PREFIXES_MAX);
    lines.field("prefix_delimiter", report.rule.delimiter.escape_ascii());
    lines.field("prefix_depth", report.rule.depth);
    lines.field("prefix_keys_drawn", report.drawn);
    lines.field("prefix_commands_sampled", report.sample);
    lines.decimal("prefix_window_sec", report.window_ms as f64 / 1e3);
    for (index, prefix) in report.prefixes.iter().enumerate() {
        let name = prefix.name.escape_ascii().to_string();
        let name = name.replace(',', "\\x2c").replace('=', "\\x3d");
        let mut fields = format!("name={name}");
        for (figure, estimate, decimals) in [
            ("keys", Some(prefix.keys), 0),
            ("bytes", Some(prefix.bytes), 0),
            ("reads_per_sec", prefix.reads_per_s, 2),
            ("hit_ratio", prefix.hit_percent, 2),
            ("writes_per_sec", prefix.writes_per_s, 2),
        ] {
            if let Some(SampledEstimate { value, error }) = estimate {
                let _ = write!(
                    fields,
                    ",{figure}={value:.decimals$},{figure}_error={error:.decimals$}"
                );
            }
        }
        lines.field(&format!("prefix{index}"), fields);
    }
}

fn keyspace(source: &InfoContext<'_>, lines: &mut Lines) {
    for (index, (keys, volatile)) in source.snapshot.memory.dbs.iter().enumerate() {
        if *keys > 0
            && let Some(db) = source.snapshot.databases.get(index)
        {
            let (ttl_ms, fields) = (db.ttl_mean_ms, db.field_volatile);
            // Add no field: redis_exporter ignores a line with fields other than these four.
            lines.field(
                &format!("db{index}"),
                format_args!("keys={keys},expires={volatile},avg_ttl={ttl_ms},subexpiry={fields}"),
            );
        }
    }
}

/// Writes histograms of value sizes in powers of two, by type: first by number of items, then by bytes.
fn key_sizes(source: &InfoContext<'_>, lines: &mut Lines) {
    const TYPES: [(&str, &str); TYPES_COUNTED] = [
        ("strings", "sizes"),
        ("lists", "items"),
        ("sets", "items"),
        ("zsets", "items"),
        ("hashes", "items"),
    ];
    let shards = source.service.all_published();
    let dbs = shards.first().map_or(0, |shard| shard.dbs.len());
    for db in 0..dbs {
        let kept = shards.iter().filter_map(|shard| shard.dbs[db].sizes());
        let kept: Vec<Arc<Sizes>> = kept.collect();
        for (data_type, (name, unit)) in TYPES.into_iter().enumerate() {
            let lengths = kept.iter().map(|sizes| sizes.lengths(data_type));
            distribution(lines, format!("db{db}_distrib_{name}_{unit}"), lengths);
        }
        // For strings, lengths are sizes in bytes.
        for (data_type, (name, _)) in TYPES.into_iter().enumerate().skip(1) {
            let bytes = kept.iter().map(|sizes| sizes.bytes(data_type));
            distribution(lines, format!("db{db}_distrib_{name}_sizes"), bytes);
        }
    }
}

/// Writes one line with the lower bound and count of each non-empty bin, unless all are empty.
fn distribution<C: Iterator<Item = u64>>(
    lines: &mut Lines,
    name: String,
    parts: impl Iterator<Item = C>,
) {
    let mut counts = [0u64; BINS];
    for part in parts {
        for (sum, count) in counts.iter_mut().zip(part) {
            *sum += count;
        }
    }
    let bins = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let shown: Vec<String> = bins
        .map(|(bin, count)| format!("{}={count}", least_of_bin(bin)))
        .collect();
    if !shown.is_empty() {
        lines.field(&name, shown.join(","));
    }
}

/// Returns the lower bound of a bin, in units of 1,024.
fn least_of_bin(bin: usize) -> String {
    match bin {
        0 => "0".to_owned(),
        bin => {
            let power = bin - 1;
            let unit = ["", "K", "M", "G", "T"][power / 10];
            format!("{}{unit}", 1u64 << (power % 10))
        }
    }
}

/// Writes the per-database figures that Redis does not report.
fn databases(source: &InfoContext<'_>, lines: &mut Lines) {
    for (index, db) in source.snapshot.databases.iter().enumerate() {
        let (bytes, share) = (db.bytes, db.share_bytes);
        let DbCounts {
            hits,
            misses,
            expired,
            evicted,
        } = db.counts;
        let keys = source.snapshot.memory.dbs.get(index);
        let has_keys = keys.is_some_and(|(keys, _)| *keys > 0);
        if has_keys || share > 0 || hits + misses + expired + evicted > 0 {
            lines.field(
                &format!("database{index}"),
                format_args!(
                    "bytes={bytes},share={share},hits={hits},misses={misses},expired={expired},evicted={evicted}"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests;
