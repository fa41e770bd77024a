//! The replication topology as a picture, how many bytes and seconds the replicas are behind, and what clients are told
//! of failovers.

use maud::{Markup, html};

use super::super::chart::bytes;
use super::super::chart::lines::{Chart, line, over};
use super::super::facts::replication::{ReplicaSummary, picture};
use super::figures::{BYTES, COUNT, DashboardFigure, FigureFormat, figure, list, over_time, value};
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
    panel("maintenance", "Maintenance notifications", 1, |view| {
        list(view, MAINTENANCE)
    }),
];

static BEHIND: Chart = over(
    "Bytes not yet sent to the slowest replica",
    SeriesUnit::Bytes,
    &[line("replication_behind", "Not yet sent")],
);

static LAG: Chart = over(
    "Seconds since the last acknowledgement from the slowest replica",
    SeriesUnit::Seconds,
    &[line("replication_lag", "Lag")],
);

static TRAFFIC: Chart = over(
    "Replication traffic in bytes per second",
    SeriesUnit::BytesPerSecond,
    &[
        line("replication_out", "To replicas"),
        line("replication_in", "From the primary"),
    ],
);

static STREAM: &[DashboardFigure] = &[
    figure("Replicas", "connected_slaves", COUNT),
    figure("Offset", "master_repl_offset", FigureFormat::Text),
    figure(
        "Link to the primary",
        "master_link_status",
        FigureFormat::Text,
    ),
    figure(
        "Time since last data from the primary",
        "master_last_io_seconds_ago",
        FigureFormat::Duration,
    ),
    figure("Backlog used", "repl_backlog_histlen", BYTES),
    figure(
        "Backlog size (repl-backlog-size)",
        "repl_backlog_size",
        BYTES,
    ),
    figure("Full resynchronizations", "sync_full", COUNT),
    figure("Partial resynchronizations", "sync_partial_ok", COUNT),
    figure(
        "Partial resynchronizations refused",
        "sync_partial_err",
        COUNT,
    ),
];

static MAINTENANCE: &[DashboardFigure] = &[
    figure(
        "Clients that asked for them",
        "maint_notification_clients",
        COUNT,
    ),
    figure("Sent", "maint_notifications_sent", COUNT),
    figure(
        "Dropped, because the client did not read",
        "maint_notifications_dropped",
        COUNT,
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
                span class="quiet" { "offset " (value(view, &figure("", "master_repl_offset", FigureFormat::Text))) }
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
