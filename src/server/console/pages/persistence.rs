//! The page about snapshots, the append-only file, and their results.

use maud::{Markup, html};

use super::super::chart::lines::{Chart, line, over};
use super::super::chart::{number, time_us};
use super::figures::{BYTES, COUNT, DashboardFigure, FigureFormat, figure, list, over_time};
use super::overview::bar;
use super::{Panel, View, panel};
use crate::telemetry::history::series::SeriesUnit;
use crate::telemetry::persistence::DURATION_BOUNDS_US;

use std::sync::atomic::Ordering::Relaxed;

pub(super) static PANELS: &[Panel] = &[
    panel("snapshots", "Snapshots", 1, snapshots),
    panel("unsaved", "Changes since the last snapshot", 2, |view| {
        over_time(view, &UNSAVED)
    }),
    panel("aof", "Append-only file (AOF)", 1, |view| {
        list(view, APPENDING)
    }),
    panel("growth", "AOF growth", 2, |view| over_time(view, &GROWTH)),
    panel("size", "AOF size", 2, |view| over_time(view, &SIZE)),
    panel("sync-time", "AOF fsync latency", 2, |view| {
        over_time(view, &SYNCS)
    }),
    panel("syncs", "Distribution of AOF fsync latency", 5, syncs).wide(),
];

/// Figures of the last snapshot, once there was one.
static LAST_SNAPSHOT: &[DashboardFigure] = &[
    figure(
        "Last successful snapshot",
        "rdb_last_save_time",
        FigureFormat::Time,
    ),
    figure(
        "Duration of the last snapshot",
        "rdb_last_bgsave_time_sec",
        FigureFormat::Duration,
    ),
];

/// The result of the last attempt to save a snapshot, once there was one.
static LAST_TRY: &[DashboardFigure] = &[figure(
    "Status of the last snapshot",
    "rdb_last_bgsave_status",
    FigureFormat::Text,
)];

static SNAPSHOTS: &[DashboardFigure] = &[
    figure(
        "Snapshot in progress",
        "rdb_bgsave_in_progress",
        FigureFormat::Flag,
    ),
    figure(
        "Progress",
        "current_fork_perc",
        FigureFormat::Number(SeriesUnit::Percent),
    ),
    figure(
        "Changes since the last snapshot",
        "rdb_changes_since_last_save",
        COUNT,
    ),
    figure("Snapshots since start", "rdb_saves", COUNT),
];

static APPENDING: &[DashboardFigure] = &[
    figure("Enabled", "aof_enabled", FigureFormat::Flag),
    figure(
        "Status of the last write",
        "aof_last_write_status",
        FigureFormat::Text,
    ),
    figure("Size", "aof_current_size", BYTES),
    figure("Size after the last rewrite", "aof_base_size", BYTES),
    figure(
        "Rewrite in progress",
        "aof_rewrite_in_progress",
        FigureFormat::Flag,
    ),
    figure(
        "Status of the last rewrite",
        "aof_last_bgrewrite_status",
        FigureFormat::Text,
    ),
    figure("Not yet written", "aof_buffer_length", BYTES),
    figure("Delayed fsyncs", "aof_delayed_fsync", COUNT),
];

fn snapshots(view: &View<'_>) -> Markup {
    let has_one = view.info.figure("rdb_saves") > 0.0;
    let was_tried = has_one || view.info.text("rdb_last_bgsave_status") == Some("err");
    let last = if has_one { LAST_SNAPSHOT } else { &[] };
    let tried = if was_tried { LAST_TRY } else { &[] };
    html! {
        @if !has_one { p class="quiet" { "No snapshot has been written since the server started." } }
        (list(view, &[last, tried, SNAPSHOTS].concat()))
    }
}

static UNSAVED: Chart = over(
    "Changes since the last snapshot",
    SeriesUnit::Count,
    &[line("unsaved_changes", "Changes")],
);

static GROWTH: Chart = over(
    "Growth of the append-only file in bytes per second",
    SeriesUnit::BytesPerSecond,
    &[line("aof_growth", "Growth")],
);

static SIZE: Chart = over(
    "Size of the append-only file",
    SeriesUnit::Bytes,
    &[line("aof_size", "Size")],
);

static SYNCS: Chart = over(
    "Latency of fsync of the append-only file",
    SeriesUnit::Microseconds,
    &[line("sync_time", "Mean per second")],
);

fn syncs(view: &View<'_>) -> Markup {
    let fsync = &view.service.telemetry().persistence.aof.fsync;
    let counts: Vec<u64> = fsync
        .counts
        .iter()
        .map(|count| count.load(Relaxed))
        .collect();
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return html! { p class="empty" { "The file has not been synced yet." } };
    }
    let bounds = DURATION_BOUNDS_US
        .iter()
        .map(|bound_us| format!("up to {}", time_us(*bound_us as f64)));
    let bounds = bounds.chain(std::iter::once("longer".to_owned()));
    html! {
        table {
            thead { tr {
                th scope="col" { "Latency" } th scope="col" class="number" { "Syncs" }
                th scope="col" { "Share of syncs" }
            } }
            tbody {
                @for (bound, count) in bounds.zip(&counts) {
                    tr {
                        th scope="row" { (bound) }
                        td class="number" { (number(*count as f64)) }
                        td { (bar(*count as f64 / all as f64)) }
                    }
                }
            }
        }
    }
}
