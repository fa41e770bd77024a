//! The first page: the findings, then the server's state.

use maud::{Markup, html};

use super::super::chart::lines::{Chart, line, over};
use super::super::chart::{self, bytes, curve, heat, number};
use super::super::facts::contents;
use super::super::facts::prefixes::{PrefixRow, prefixes};
use super::figures::{BYTES, COUNT, DashboardFigure, FigureFormat, figure, list, over_time, value};
use super::{Panel, View, panel};
use crate::telemetry::history::HistoryResolution;
use crate::telemetry::history::series::{self, SeriesUnit};
use crate::telemetry::miss_ratio::CurveFigures;
use crate::telemetry::prefixes::SampledEstimate;
use basalt_core::base::info::part;

pub(super) static PANELS: &[Panel] = &[
    panel("findings", "Findings", 5, findings).wide(),
    panel("summary", "Now", 1, summary).wide(),
    panel("rates", "Commands", 2, |view| over_time(view, &RATES)),
    panel("latency", "Latency", 2, |view| over_time(view, &LATENCY)),
    panel("heat", "Distribution of command latency", 5, |view| {
        heat::draw(&view.service.telemetry().history, view.span(), view.now_s)
    }),
    panel("hits", "Hit ratio", 2, |view| over_time(view, &HITS)),
    panel("curve", "Hit ratio with more or less memory", 5, |view| {
        curve::draw(&CurveFigures::gather(view.service.all_published()))
    }),
    panel("memory", "Memory", 2, memory),
    panel("contents", "Memory by data type", 10, made_of),
    panel(
        "prefixes",
        "Memory and traffic by key prefix",
        10,
        by_prefix,
    )
    .wide(),
    panel("evictions", "Evicted and expired keys", 2, |view| {
        html! { (over_time(view, &GONE)) (list(view, GONE_FIGURES)) }
    }),
    panel("clients", "Clients", 2, |view| {
        html! { (over_time(view, &CLIENTS)) (list(view, CLIENT_FIGURES)) }
    }),
    panel("network", "Network", 2, |view| over_time(view, &NETWORK)),
    panel("cpu", "CPU", 2, |view| over_time(view, &CPU)),
    panel("commands", "Time by command", 5, commands),
];

static RATES: Chart = over(
    "Commands, hits and misses per second",
    SeriesUnit::PerSecond,
    &[
        line("ops", "Commands"),
        line("hits", "Hits"),
        line("misses", "Misses"),
        line("errors", "Errors"),
    ],
);

static LATENCY: Chart = Chart {
    says: "Command latency",
    unit: SeriesUnit::Microseconds,
    lines: &[
        line("latency_p50", "p50"),
        line("latency_p90", "p90"),
        line("latency_p99", "p99"),
        line("latency_p999", "p99.9"),
        line("latency_max", "Maximum"),
    ],
    is_logarithmic: true,
};

static HITS: Chart = over(
    "Hit ratio of key lookups",
    SeriesUnit::Percent,
    &[line("hit_ratio", "Hit ratio")],
);

static MEMORY: Chart = over(
    "Memory",
    SeriesUnit::Bytes,
    &[
        line("memory_used", "In use"),
        line("memory_dataset", "Keys and values"),
        line("memory_rss", "RSS"),
        line("memory_clients", "Clients"),
    ],
);

static GONE: Chart = over(
    "Evicted and expired keys per second",
    SeriesUnit::PerSecond,
    &[line("evictions", "Evicted"), line("expirations", "Expired")],
);

static GONE_FIGURES: &[DashboardFigure] = &[
    figure("Evicted since start", "evicted_keys", COUNT),
    figure("Expired since start", "expired_keys", COUNT),
    figure(
        "Over the limit, still to be evicted",
        "eviction_debt_bytes",
        BYTES,
    ),
];

static CLIENTS: Chart = over(
    "Clients",
    SeriesUnit::Count,
    &[
        line("clients", "Connected"),
        line("clients_blocked", "Blocked"),
    ],
);

static CLIENT_FIGURES: &[DashboardFigure] = &[
    figure("Blocked", "blocked_clients", COUNT),
    figure(
        "Connections accepted since start",
        "total_connections_received",
        COUNT,
    ),
    figure("Rejected since start", "rejected_connections", COUNT),
];

static NETWORK: Chart = over(
    "Bytes received and sent per second",
    SeriesUnit::BytesPerSecond,
    &[
        line("net_in", "From clients"),
        line("net_out", "To clients"),
        line("replication_in", "From the primary"),
        line("replication_out", "To replicas"),
    ],
);

static CPU: Chart = over(
    "CPU use in percent of one core",
    SeriesUnit::Percent,
    &[line("cpu_user", "User"), line("cpu_system", "System")],
);

static MEMORY_FIGURES: &[DashboardFigure] = &[
    figure("Used memory", "used_memory", BYTES),
    figure("Limit (maxmemory)", "maxmemory", BYTES),
    figure("Eviction policy", "maxmemory_policy", FigureFormat::Text),
    figure("Keys and values", "used_memory_dataset", BYTES),
    figure("Resident (RSS)", "used_memory_rss", BYTES),
    figure("Peak used memory", "used_memory_peak", BYTES),
    figure("Fragmentation ratio", "mem_fragmentation_ratio", COUNT),
    figure("Client buffers", "mem_clients_normal", BYTES),
];

fn findings(view: &View<'_>) -> Markup {
    let findings = view.findings();
    html! {
        @if findings.is_empty() {
            p class="good" { "No findings: nothing needs attention." }
        } @else {
            ul class="findings" {
                @for (about, text, remedy) in &findings {
                    li { span class="tag" { (about) } " " (text) " " code { (remedy) } }
                }
            }
        }
    }
}

fn summary(view: &View<'_>) -> Markup {
    let keyspace = view.info.section("keyspace").iter();
    let of_db = |(_, value): &(String, String)| part(value, "keys")?.parse::<u64>().ok();
    let keys: u64 = keyspace.filter_map(of_db).sum();
    let limit = view.info.figure("maxmemory");
    // Only this memory counts against the limit.
    let counted = view.info.figure("used_memory") - view.info.figure("mem_not_counted_for_evict");
    let tile = |title: &str, figure: Markup, beside: String| {
        html! { div class="tile" { dt { (title) } dd { (figure) @if !beside.is_empty() { small { (beside) } } } } }
    };
    let of = |title, field, how| value(view, &figure(title, field, how));
    html! {
        dl class="tiles" {
            (tile("Commands per second", of("", "instantaneous_ops_per_sec", COUNT), String::new()))
            (tile("Hit ratio", latest(view, "hit_ratio"), "in the last second".to_owned()))
            (tile("Latency (p99)", latest(view, "latency_p99"), "in the last second".to_owned()))
            (tile("Used memory", of("", "used_memory", BYTES), match limit > 0.0 {
                true => format!("{:.0} % of {}", 100.0 * counted / limit, bytes(limit)),
                false => "no limit".to_owned(),
            }))
            (tile("Keys", html! { data value=(keys) data-field="keys" { (number(keys as f64)) } }, String::new()))
            (tile("Clients", of("", "connected_clients", COUNT), format!("of {}", view.config.maxclients)))
            (tile("Evicted keys", of("", "evicted_keys", COUNT), String::new()))
            (tile("Hits", of("", "keyspace_hits", COUNT), String::new()))
            (tile("Misses", of("", "keyspace_misses", COUNT), String::new()))
            (tile("Uptime", of("", "uptime_in_seconds", FigureFormat::Duration), String::new()))
        }
    }
}

/// Shows a series' latest value.
fn latest(view: &View<'_>, name: &str) -> Markup {
    let index = series::find(name);
    let mut found = None;
    let since_s = view.now_s.saturating_sub(5);
    view.service
        .telemetry()
        .history
        .each(HistoryResolution::Second, since_s, |point| {
            found = index.and_then(|index| point.value(index));
        });
    let unit = index.map_or(SeriesUnit::Count, |index| series::SERIES[index].unit);
    match found {
        Some(value) => {
            html! { data value=(value) data-series=(name) { (chart::shown(value, unit)) } }
        }
        None => html! { span class="quiet" { "–" } },
    }
}

fn memory(view: &View<'_>) -> Markup {
    html! { (over_time(view, &MEMORY)) (list(view, MEMORY_FIGURES)) }
}

fn made_of(view: &View<'_>) -> Markup {
    let contents = contents::contents(view);
    if contents.types.is_empty() {
        return html! { p class="empty" { "There are no keys." } };
    }
    html! {
        table {
            thead { tr {
                th scope="col" { "Type" } th scope="col" class="number" { "Keys" }
                th scope="col" class="number" { "Bytes" } th scope="col" { "Share of memory" }
            } }
            tbody {
                @for part in &contents.types {
                    tr {
                        th scope="row" { (part.name) }
                        td class="number" { (number(part.keys)) }
                        td class="number" { (bytes(part.bytes)) }
                        td { (bar(part.bytes / contents.bytes.max(1) as f64)) }
                    }
                }
            }
        }
        p class="quiet" { "Estimated from a random sample of " (contents.looked_at) " keys." }
    }
}

fn by_prefix(view: &View<'_>) -> Markup {
    let Some(found) = prefixes(view) else {
        return html! { p class="empty" { "Key prefixes are shown only to users who may see key names." } };
    };
    if found.delimiter.is_empty() {
        return html! { p class="empty" { "Keys are not grouped by prefix: prefix-delimiter is empty." } };
    }
    if found.rows.is_empty() {
        return html! {
            p class="empty" { (if found.hides { "This user may not read any key." } else { "There are no keys." }) }
        };
    }
    let rows = view.room.rows(&found.rows, |row| prefix(row, found.bytes));
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Prefixes" {
            table {
                thead { tr {
                    th scope="col" { "Prefix" } th scope="col" class="number" { "Keys" }
                    th scope="col" class="number" { "Bytes" } th scope="col" { "Share of memory" }
                    th scope="col" class="number" { "Reads/s" } th scope="col" class="number" { "Hit ratio" }
                    th scope="col" class="number" { "Writes/s" }
                } }
                tbody { (rows.shown) }
            }
        }
        (rows.rest())
        p class="quiet" {
            "Estimated from a random sample of " (found.drawn) " keys"
            @match found.sample {
                0 => "; reads and writes are not sampled (hot-keys-sample is 0).",
                1 => " and from all commands.",
                sample => { " and from one in every " (sample) " commands." },
            }
            " The value after ± is the margin of error."
            @if found.others > 0 { " " (found.others) " more prefixes are not shown." }
            @if found.hides { " Prefixes that this user may not read are not shown." }
        }
    }
}

fn prefix(row: &PrefixRow, all: u64) -> Markup {
    let figures = &row.figures;
    let shown = |estimate: Option<SampledEstimate>, show: fn(f64) -> String| match estimate {
        Some(SampledEstimate { value, error }) => {
            html! { (show(value)) @if error > 0.0 { span class="quiet" { " ± " (show(error)) } } }
        }
        None => html! { span class="quiet" { "–" } },
    };
    html! {
        tr {
            th scope="row" class="name" {
                @if row.name.is_empty() { span class="quiet" { "(none)" } } @else { (row.name) }
            }
            td class="number" { (shown(Some(figures.keys), number)) }
            td class="number" { (shown(Some(figures.bytes), bytes)) }
            td { (bar(figures.bytes.value / all.max(1) as f64)) }
            td class="number" { (shown(figures.reads_per_s, number)) }
            td class="number" { (shown(figures.hit_percent, |percent| format!("{percent:.1} %"))) }
            td class="number" { (shown(figures.writes_per_s, number)) }
        }
    }
}

/// Draws a fraction of a whole as a bar.
pub(super) fn bar(part: f64) -> Markup {
    let percent = (100.0 * part).clamp(0.0, 100.0);
    html! {
        svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=(format!("{percent:.1} %")) {
            rect class="of" width="100" height="8" {}
            rect class="part" width=(format!("{percent:.1}")) height="8" {}
        }
    }
}

/// Maximum number of commands shown.
const COMMANDS_MAX: usize = 12;

fn commands(view: &View<'_>) -> Markup {
    let part = |value: &str, name: &str| -> f64 {
        let found = part(value, name);
        found.and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    let mut rows: Vec<(&str, &str)> = view
        .info
        .section("commandstats")
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?, value.as_str())))
        .collect();
    rows.sort_by(|one, other| part(other.1, "usec").total_cmp(&part(one.1, "usec")));
    let all: f64 = rows.iter().map(|row| part(row.1, "usec")).sum();
    rows.truncate(COMMANDS_MAX);
    if rows.is_empty() {
        return html! { p class="empty" { "No command has run yet." } };
    }
    html! {
        table {
            thead { tr {
                th scope="col" { "Command" } th scope="col" class="number" { "Calls" }
                th scope="col" class="number" { "Mean time" } th scope="col" class="number" { "Errors" }
                th scope="col" { "Share of total time" }
            } }
            tbody {
                @for (name, stats) in &rows {
                    tr {
                        th scope="row" { (name.replace('|', " ").to_uppercase()) }
                        td class="number" {
                            data value=(part(stats, "calls")) data-field={ "cmdstat_" (name) ".calls" } { (number(part(stats, "calls"))) }
                        }
                        td class="number" { (chart::time_us(part(stats, "usec_per_call"))) }
                        td class="number" { (number(part(stats, "failed_calls") + part(stats, "rejected_calls"))) }
                        td { (bar(part(stats, "usec") / all.max(1.0))) }
                    }
                }
            }
        }
    }
}
