//! INFO: the snapshot as text, with the sections and fields that clients of Redis 7.2 expect, and one section of
//! our own.
//!
//! Features that this server lacks are reported as in an idle Redis (no snapshot in progress, no replicas). No
//! figure is invented. Fields are written in Redis's order, so that texts can be compared line by line. Most are
//! rows of the table of figures ([`super::figures`]).

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::counters;
pub use super::figures::server::REDIS_VERSION;
use super::figures::{
    Figure, FigureContext, FigureReader, cluster, memory, persistence, ratio, replication, server,
    shards, stats,
};
use super::histogram;
use super::memory::human;
use super::miss_ratio::PERCENT;
use super::observed::Observed;
use super::prefixes::{self, SampledEstimate};
use super::sizes::CommandSizes;
use super::snapshot::CommandFigures;
use basalt_commands::command::host::primary::{ReplicaChannel, ReplicaFacts};
use basalt_core::base::text::visible;
use basalt_engine::published::DbCounts;
use basalt_engine::sizes::{BINS, Sizes, TYPES_COUNTED};

/// Maximum number of prefixes in INFO.
const PREFIXES_MAX: usize = 20;

/// A section of INFO.
struct Section {
    name: &'static str,
    title: &'static str,
    /// Whether INFO without arguments shows it.
    by_default: bool,
    /// The section's first rows.
    rows: &'static [Figure],
    /// Writes the lines after the first rows.
    rest: fn(&FigureContext<'_>, &mut Lines),
}

/// A section that consists of rows.
const fn table(name: &'static str, title: &'static str, rows: &'static [Figure]) -> Section {
    section(name, title, rows, |_, _| {})
}

const fn section(
    name: &'static str,
    title: &'static str,
    rows: &'static [Figure],
    rest: fn(&FigureContext<'_>, &mut Lines),
) -> Section {
    Section {
        name,
        title,
        by_default: true,
        rows,
        rest,
    }
}

/// A section without rows.
const fn list(
    name: &'static str,
    title: &'static str,
    write: fn(&FigureContext<'_>, &mut Lines),
) -> Section {
    section(name, title, &[], write)
}

impl Section {
    /// Shows the section only if it is asked for.
    const fn on_request(self) -> Section {
        Section {
            by_default: false,
            ..self
        }
    }
}

/// Sections shown only when named.
const ON_DEMAND: [&str; 2] = ["prefixes", "debug"];

static SECTIONS: [Section; 22] = [
    table("server", "Server", server::SERVER),
    table("clients", "Clients", stats::CLIENTS),
    table("memory", "Memory", memory::MEMORY),
    section("persistence", "Persistence", persistence::ALWAYS, saving),
    table("stats", "Stats", stats::STATS),
    section("replication", "Replication", replication::ROLE, replicas),
    section("cpu", "CPU", server::CPU, active_times),
    table("modules", "Modules", &[]),
    list("commandstats", "Commandstats", command_stats).on_request(),
    list("errorstats", "Errorstats", error_stats),
    list("latencystats", "Latencystats", latency_stats).on_request(),
    list("sizestats", "Sizestats", size_stats).on_request(),
    section("cluster", "Cluster", cluster::CLUSTER, |source, lines| {
        if source.service.cluster().is_some() {
            lines.rows(cluster::SLOT_MOVES, source);
        }
    }),
    table("basalt", "Basalt", shards::SHARDS),
    table("leases", "Leases", shards::LEASES),
    table("locks", "Locks", shards::LOCKS),
    list("databases", "Databases", databases),
    section("missratio", "Missratio", shards::CURVE, miss_ratio),
    list("keyspace", "Keyspace", keyspace),
    list("keysizes", "Keysizes", key_sizes).on_request(),
    list("prefixes", "Prefixes", prefixes).on_request(),
    table("debug", "Debug", server::DEBUG).on_request(),
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
    let source = FigureContext::gather(service);
    let mut lines = Lines::default();
    for section in SECTIONS.iter().filter(|section| wanted(section)) {
        lines.title(section.title);
        lines.rows(section.rows, &source);
        (section.rest)(&source, &mut lines);
    }
    lines.text
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

    /// Writes rows in order.
    fn rows(&mut self, figures: &[Figure], source: &FigureContext<'_>) {
        for figure in figures {
            self.row(figure, source);
        }
    }

    fn row(&mut self, figure: &Figure, source: &FigureContext<'_>) {
        let name = figure.field;
        match figure.read {
            FigureReader::Signed(read) => self.field(name, read(source)),
            FigureReader::Bytes(read) => {
                let bytes = read(source);
                self.field(name, bytes);
                let _ = write!(self.text, "{name}_human:{}\r\n", human(bytes));
            }
            FigureReader::Decimal(read) => self.decimal(name, read(source)),
            FigureReader::Seconds(read) => self.field(name, format_args!("{:.6}", read(source))),
            FigureReader::Percent(_) => {
                let percent = figure.number(source).unwrap_or_default();
                self.field(name, format_args!("{percent:.2}%"));
            }
            FigureReader::Status(read) => {
                let is_good = read(source.telemetry).load(Relaxed);
                self.field(name, if is_good { "ok" } else { "err" });
            }
            FigureReader::Text(read) => {
                if let Some(text) = read(source) {
                    self.field(name, text);
                }
            }
            FigureReader::Constant(value) => self.field(name, value),
            FigureReader::Count(_)
            | FigureReader::Stored(_)
            | FigureReader::ShardSum(_)
            | FigureReader::Flag(_)
            | FigureReader::Zero => self.field(name, figure.whole(source).unwrap_or_default()),
        }
    }
}

/// Writes the busy seconds of the threads that serve connections; the first one is the main thread of Valkey's names.
fn active_times(source: &FigureContext<'_>, lines: &mut Lines) {
    for (number, busy_ns) in source.telemetry.rounds.busy_by_thread().enumerate() {
        let name = match number {
            0 => "used_active_time_main_thread".to_owned(),
            number => format!("used_active_time_io_thread_{number}"),
        };
        lines.field(&name, format_args!("{:.6}", busy_ns as f64 / 1e9));
    }
}

/// Writes the rows of the append-only file and of loading while they apply.
fn saving(source: &FigureContext<'_>, lines: &mut Lines) {
    let figures = &source.telemetry.persistence;
    if figures.aof.enabled.load(Relaxed) {
        lines.rows(persistence::APPENDING, source);
    }
    if figures.loading.is_loading.load(Relaxed) {
        lines.rows(persistence::LOADING, source);
    }
}

/// Writes the link to the primary (if any), one line for each replica, and the stream.
fn replicas(source: &FigureContext<'_>, lines: &mut Lines) {
    let facts = &source.snapshot.replication;
    for (name, value) in facts.upstream.iter().flat_map(|upstream| &upstream.info) {
        lines.field(name, value);
    }
    lines.rows(replication::REPLICAS, source);
    for (number, replica) in facts.replicas.iter().enumerate() {
        lines.field(&format!("slave{number}"), line_of(replica));
    }
    lines.rows(replication::STREAM, source);
}

fn line_of(replica: &ReplicaFacts) -> String {
    let ReplicaFacts {
        ip,
        port,
        channel,
        state,
        offset,
        lag_s,
        ..
    } = replica;
    // A replica may announce any text, including line ends.
    let (ip, state) = (visible(ip.as_bytes()), state.name());
    let kind = match channel {
        Some(ReplicaChannel::Main(_)) => ",type=main-channel",
        Some(ReplicaChannel::Rdb(_)) => ",type=rdb-channel",
        None => "",
    };
    format!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}{kind}")
}

fn command_stats(source: &FigureContext<'_>, lines: &mut Lines) {
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

fn error_stats(source: &FigureContext<'_>, lines: &mut Lines) {
    for (code, count) in &source.snapshot.errors {
        lines.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(source: &FigureContext<'_>, lines: &mut Lines) {
    let FigureContext {
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

/// Writes the sizes of each command's requests and replies: their number, their bytes, and the number of those from
/// each power of two on, below the next one.
fn size_stats(_: &FigureContext<'_>, lines: &mut Lines) {
    for CommandSizes {
        name,
        requests,
        replies,
    } in counters::sizes()
    {
        for (direction, figures) in [("request", requests), ("reply", replies)] {
            let (count, bytes) = (figures.count(), figures.bytes);
            let bins = figures.bins.iter().enumerate();
            let bins = bins.filter(|(_, count)| **count > 0);
            let bins = bins.map(|(bin, count)| format!(",{}={count}", 1_u64 << bin));
            lines.field(
                &format!("{direction}_sizes_{name}"),
                format_args!("count={count},bytes={bytes}{}", bins.collect::<String>()),
            );
        }
    }
}

/// Writes hit ratios in percent, for memory sizes in percent of what the data currently takes.
fn miss_ratio(source: &FigureContext<'_>, lines: &mut Lines) {
    let curve = &source.snapshot.curve;
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
fn prefixes(source: &FigureContext<'_>, lines: &mut Lines) {
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

fn keyspace(source: &FigureContext<'_>, lines: &mut Lines) {
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
fn key_sizes(source: &FigureContext<'_>, lines: &mut Lines) {
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
fn databases(source: &FigureContext<'_>, lines: &mut Lines) {
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
