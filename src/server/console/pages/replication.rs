//! The replication topology as a picture, and how many bytes and seconds the replicas are behind.

use maud::{Markup, html};

use super::super::chart::bytes;
use super::super::chart::lines::{Chart, ChartSeries};
use super::super::facts::replication::{ReplicaSummary, picture};
use super::figures::{DashboardFigure, How, figure, list, over_time, value};
use super::{Panel, View, panel};
use crate::telemetry::history::series::SeriesUnit;

pub(super) static PANELS: &[Panel] = &[
    panel("picture", "Topology", 1, drawn).wide(),
    panel(
        "behind",
        "Bytes not yet sent to the slowest replica",
        2,
        |view| over_time(view, &BEHIND),
    ),
    panel("lag", "Replication lag", 2, |view| over_time(view, &LAG)),
    panel("traffic", "Replication traffic", 2, |view| {
        over_time(view, &TRAFFIC)
    }),
    panel("stream", "Offsets and backlog", 1, |view| {
        list(view, STREAM)
    }),
];

static BEHIND: Chart = Chart {
    says: "Bytes not yet sent to the slowest replica",
    unit: SeriesUnit::Bytes,
    lines: &[ChartSeries {
        series: "replication_behind",
        label: "Not yet sent",
    }],
    is_logarithmic: false,
};

static LAG: Chart = Chart {
    says: "Seconds since the last acknowledgement from the slowest replica",
    unit: SeriesUnit::Seconds,
    lines: &[ChartSeries {
        series: "replication_lag",
        label: "Lag",
    }],
    is_logarithmic: false,
};

static TRAFFIC: Chart = Chart {
    says: "Replication traffic in bytes per second",
    unit: SeriesUnit::BytesPerSecond,
    lines: &[
        ChartSeries {
            series: "replication_out",
            label: "To replicas",
        },
        ChartSeries {
            series: "replication_in",
            label: "From the primary",
        },
    ],
    is_logarithmic: false,
};

static STREAM: &[DashboardFigure] = &[
    figure(
        "Replicas",
        "connected_slaves",
        How::Number(SeriesUnit::Count),
    ),
    figure("Offset", "master_repl_offset", How::Text),
    figure("Link to the primary", "master_link_status", How::Text),
    figure(
        "Time since data from the primary",
        "master_last_io_seconds_ago",
        How::Duration,
    ),
    figure(
        "Backlog used",
        "repl_backlog_histlen",
        How::Number(SeriesUnit::Bytes),
    ),
    figure(
        "Backlog size (repl-backlog-size)",
        "repl_backlog_size",
        How::Number(SeriesUnit::Bytes),
    ),
    figure(
        "Full resynchronizations",
        "sync_full",
        How::Number(SeriesUnit::Count),
    ),
    figure(
        "Partial resynchronizations",
        "sync_partial_ok",
        How::Number(SeriesUnit::Count),
    ),
    figure(
        "Partial resynchronizations refused",
        "sync_partial_err",
        How::Number(SeriesUnit::Count),
    ),
];

fn drawn(view: &View<'_>) -> Markup {
    let picture = picture(view);
    let rows = view.room.rows(&picture.replicas, follower);
    html! {
        div class="chain" {
            @if let Some((address, link)) = &picture.primary {
                div class="node" { span class="tag" { "primary" } span class="name" { (address) } }
                div class={ "edge " (if *link == "connected" { "good" } else { "bad" }) } { (link) }
            }
            div class="node myself" {
                span class="tag" { (picture.role) }
                span { "this server" }
                span class="quiet" { "offset " (value(view, &figure("", "master_repl_offset", How::Text))) }
            }
            @if picture.replicas.is_empty() {
                p class="empty" { "No replicas are connected." }
            } @else {
                ul class="fan" { (rows.shown) }
            }
        }
        (rows.rest())
    }
}

fn follower(replica: &ReplicaSummary) -> Markup {
    html! {
        li {
            div class={ "edge " (if replica.state == "online" { "good" } else { "bad" }) } {
                (replica.state) ", last acknowledgement " (replica.lag_s) " s ago, "
                (bytes(replica.behind as f64)) " not yet sent"
            }
            div class="node" {
                span class="tag" { "replica" }
                span class="name" { (replica.address) }
                span class="quiet" { "acknowledged offset " (replica.offset) }
            }
        }
    }
}
