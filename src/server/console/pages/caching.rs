//! Features for caching in front of a database: databases side by side, leases, tags, locks, rate limits,
//! queues of due work. Each panel appears once it has contents.

use maud::{Markup, html};

use super::super::chart::lines::{Chart, line, over};
use super::super::chart::{bytes, number};
use super::super::facts::databases::{Database, databases};
use super::figures::{COUNT, DashboardFigure, figure, list, over_time};
use super::overview::bar;
use super::{Panel, View, panel};
use crate::telemetry::history::series::SeriesUnit;

pub(super) static PANELS: &[Panel] = &[
    panel("unused", "No data yet", 5, unused).wide(),
    panel("databases", "Databases", 2, side_by_side).wide(),
    panel("leases", "Leases", 2, |view| {
        used(view, Some(&LEASES_CHART), LEASES)
    }),
    panel("tags", "Tags", 2, |view| {
        used(view, Some(&TAGS_CHART), TAGS)
    }),
    panel("locks", "Locks", 2, |view| {
        used(view, Some(&LOCKS_CHART), LOCKS)
    }),
    panel("rates", "Rate limits (CL.THROTTLE)", 2, |view| {
        used(view, Some(&RATES_CHART), RATES)
    }),
    panel("due", "Delay queues (BZPOPDUE)", 2, |view| {
        used(view, None, DUE)
    }),
];

static LEASES_CHART: Chart = over(
    "Leases granted and stale values served per second",
    SeriesUnit::PerSecond,
    &[
        line("leases", "Granted"),
        line("stale_served", "Stale values served"),
    ],
);

static LEASES: &[DashboardFigure] = &[
    figure("Active", "leases_in_force", COUNT),
    figure("Waiting clients", "leases_waiting", COUNT),
    figure("Granted since start", "leases_given", COUNT),
    figure("Filled", "leases_filled", COUNT),
    figure("Dropped by the client", "leases_dropped", COUNT),
    figure(
        "Expired before they were filled",
        "leases_void_by_time",
        COUNT,
    ),
    figure("Invalidated by a write", "leases_void_by_change", COUNT),
    figure("Fills rejected", "leases_fills_refused", COUNT),
    figure("Stale values served", "leases_stale_served", COUNT),
];

static TAGS_CHART: Chart = over(
    "Keys deleted by tag per second",
    SeriesUnit::PerSecond,
    &[line("tags_keys", "Keys")],
);

static TAGS: &[DashboardFigure] = &[
    figure("Tags invalidated", "tags_invalidated", COUNT),
    figure("Keys deleted by tag", "tags_keys_invalidated", COUNT),
];

static LOCKS_CHART: Chart = over(
    "Locks acquired per second",
    SeriesUnit::PerSecond,
    &[line("locks", "Acquired")],
);

static LOCKS: &[DashboardFigure] = &[
    figure("Acquired since start", "locks_taken", COUNT),
    figure("Acquired after waiting", "locks_handed_over", COUNT),
    figure("Reacquired by the owner", "locks_retaken", COUNT),
    figure("Released", "locks_released", COUNT),
];

static RATES_CHART: Chart = over(
    "Requests checked by CL.THROTTLE per second",
    SeriesUnit::PerSecond,
    &[line("let_through", "Allowed"), line("limited", "Limited")],
);

static RATES: &[DashboardFigure] = &[
    figure("Allowed since start", "throttle_let_through", COUNT),
    figure("Limited since start", "throttle_limited", COUNT),
];

static DUE: &[DashboardFigure] = &[figure("Due members popped", "due_members_taken", COUNT)];

fn is_used(view: &View<'_>, figures: &[DashboardFigure]) -> bool {
    let mut figures = figures.iter();
    figures.any(|figure| view.info.figure(figure.field) > 0.0)
}

/// Shows a feature's chart and figures; empty while no client has used the feature.
fn used(view: &View<'_>, chart: Option<&Chart>, figures: &[DashboardFigure]) -> Markup {
    html! {
        @if is_used(view, figures) {
            @if let Some(chart) = chart { (over_time(view, chart)) }
            (list(view, figures))
        }
    }
}

/// Text shown if no other panel has contents.
fn unused(view: &View<'_>) -> Markup {
    let all = [LEASES, TAGS, LOCKS, RATES, DUE];
    let is_empty = databases(view).is_empty() && !all.iter().any(|each| is_used(view, each));
    html! {
        @if is_empty {
            p class="empty" {
                "There are no keys, and no client has used leases (LGET), tags (TAG), locks (LOCK), rate limits \
                 (CL.THROTTLE) or delay queues (BZPOPDUE)."
            }
        }
    }
}

fn side_by_side(view: &View<'_>) -> Markup {
    let databases = databases(view);
    let has_shares = databases.iter().any(|each| each.share > 0);
    let rows = view.room.rows(&databases, |each| row(each, has_shares));
    html! {
        @if !databases.is_empty() {
            div class="scroll" tabindex="0" role="region" aria-label="Databases" {
                table {
                    thead { tr {
                        th scope="col" class="number" { "Database" } th scope="col" class="number" { "Keys" }
                        th scope="col" class="number" { "Keys with TTL" } th scope="col" class="number" { "Bytes" }
                        @if has_shares {
                            th scope="col" class="number" { "Share" } th scope="col" { "Share used" }
                        }
                        th scope="col" class="number" { "Hit ratio" } th scope="col" class="number" { "Hits" }
                        th scope="col" class="number" { "Misses" } th scope="col" class="number" { "Expired" }
                        th scope="col" class="number" { "Evicted" }
                    } }
                    tbody { (rows.shown) }
                }
            }
            (rows.rest())
            @if has_shares {
                p class="quiet" { "Eviction begins with the databases that exceed their share (maxmemory-db)." }
            } @else {
                p class="quiet" { "No database has a share of memory (maxmemory-db)." }
            }
        }
    }
}

fn row(each: &Database, has_shares: bool) -> Markup {
    let line = format!("database{}", each.number);
    let of_keyspace = format!("db{}", each.number);
    let figure = |line: &str, name: &str, value: u64, shown: &str| {
        html! { td class="number" { data value=(value) data-field={ (line) "." (name) } { (shown) } } }
    };
    let count = |name: &str, value: u64| figure(&line, name, value, &number(value as f64));
    let of_keys = |name: &str, value: u64| match each.keys {
        // Without keys, INFO has no keyspace line for the database.
        0 => html! { td class="number" { (value) } },
        _ => figure(&of_keyspace, name, value, &number(value as f64)),
    };
    let of_bytes = |name: &str, value: u64| figure(&line, name, value, &bytes(value as f64));
    html! {
        tr {
            th scope="row" class="number" { (each.number) }
            (of_keys("keys", each.keys))
            (of_keys("expires", each.expiring))
            (of_bytes("bytes", each.bytes))
            @if has_shares {
                @if each.share > 0 {
                    (of_bytes("share", each.share))
                    td { (bar(each.bytes as f64 / each.share as f64)) }
                } @else {
                    td class="number quiet" { "none" }
                    td {}
                }
            }
            td class="number" {
                @match each.hit_ratio() {
                    Some(percent) => (format!("{percent:.1} %")),
                    None => span class="quiet" { "–" },
                }
            }
            (count("hits", each.hits))
            (count("misses", each.misses))
            (count("expired", each.expired))
            (count("evicted", each.evicted))
        }
    }
}
