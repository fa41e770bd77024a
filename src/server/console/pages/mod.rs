//! The console's pages. A page consists of panels, each a row of a table here; a panel that updates declares
//! how often it is resent while the page is open. The report uses the same panels.
//!
//! Everything written into a page is escaped by `maud`; what is inserted unescaped was produced here from numbers.

mod caching;
mod cluster;
mod figures;
mod keys;
mod lists;
mod overview;
mod persistence;
mod replication;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::lines::SPANS;
use super::room::Room;
use super::view::View;
use super::viewer::any_can_sign_in;
use crate::telemetry::observed::Observed;
use basalt_core::base::lossless;

/// Path of the event stream that updates panels of an open page.
pub(super) const EVENTS: &str = "/events";

/// Path of a self-contained page that can be passed on.
pub(super) const REPORT: &str = "/report";

/// Advises a viewer who is not logged in to log in or, if no user can log in, how to create one.
pub(super) fn how_to_see_names(service: &dyn Observed) -> Markup {
    html! {
        @if any_can_sign_in(service) {
            "Names of keys and clients are hidden. To see them, " a href=(super::SIGN_IN) { "sign in" } "."
        } @else {
            "Names of keys and clients are hidden, and no user has a password to sign in with. "
            code { "ACL SETUSER viewer on >PASSWORD ~* +@read +hotkeys +memory +slowlog +client|list" }
            " creates such a user; "
            code { "CONFIG SET metrics-key-names yes" } " shows names to everybody."
        }
    }
}

/// A panel of a page.
pub(super) struct Panel {
    /// Id of the panel's element.
    id: &'static str,
    title: &'static str,
    /// Update interval in seconds; 0 for never.
    every_s: u64,
    /// Whether the panel takes the whole width.
    is_wide: bool,
    /// Renders the contents. An empty text means that there is nothing to show, and hides the panel.
    show: fn(&View<'_>) -> Markup,
}

const fn panel(
    id: &'static str,
    title: &'static str,
    every_s: u64,
    show: fn(&View<'_>) -> Markup,
) -> Panel {
    Panel {
        id,
        title,
        every_s,
        is_wide: false,
        show,
    }
}

impl Panel {
    const fn wide(self) -> Panel {
        Panel {
            is_wide: true,
            ..self
        }
    }
}

/// A page.
pub(super) struct Page {
    pub(super) path: &'static str,
    title: &'static str,
    /// Whether the time range of the page's charts can be selected.
    has_time_range: bool,
    panels: &'static [Panel],
}

/// All pages, in menu order.
pub(super) static PAGES: [Page; 10] = [
    Page {
        path: "/",
        title: "Overview",
        has_time_range: true,
        panels: overview::PANELS,
    },
    Page {
        path: "/keys",
        title: "Keys",
        has_time_range: false,
        panels: keys::PANELS,
    },
    Page {
        path: "/caching",
        title: "Caching",
        has_time_range: true,
        panels: caching::PANELS,
    },
    Page {
        path: "/clients",
        title: "Clients",
        has_time_range: false,
        panels: lists::CLIENTS,
    },
    Page {
        path: "/slow-log",
        title: "Slow log",
        has_time_range: false,
        panels: lists::SLOW,
    },
    Page {
        path: "/persistence",
        title: "Persistence",
        has_time_range: true,
        panels: persistence::PANELS,
    },
    Page {
        path: "/replication",
        title: "Replication",
        has_time_range: true,
        panels: replication::PANELS,
    },
    Page {
        path: "/cluster",
        title: "Cluster",
        has_time_range: false,
        panels: cluster::PANELS,
    },
    Page {
        path: "/configuration",
        title: "Configuration",
        has_time_range: false,
        panels: lists::CONFIG,
    },
    Page {
        path: "/log",
        title: "Log",
        has_time_range: false,
        panels: lists::LOG,
    },
];

/// Returns the page at a path.
pub(super) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

/// Renders a page.
pub(super) fn render(page: &Page, view: &View<'_>) -> String {
    let has_live = page.panels.iter().any(|panel| panel.every_s > 0);
    let live = format!("{}?page={}&range={}", EVENTS, page.path, view.span().name);
    let body = html! {
        a class="skip" href="#main" { "Skip to content" }
        header {
            (identity(view))
            nav aria-label="Pages" {
                ul {
                    @for each in &PAGES {
                        li {
                            @if each.path == page.path {
                                a href=(each.path) aria-current="page" { (each.title) }
                            } @else {
                                a href=(each.path) { (each.title) }
                            }
                        }
                    }
                }
            }
        }
        main id="main" {
            div class="head" {
                h1 { (page.title) }
                @if page.has_time_range {
                    (spans(page, view))
                }
                @if has_live {
                    button type="button" id="pause" aria-pressed="false" hidden { "Pause" }
                }
                span id="state" class="quiet" role="status" {}
            }
            div class="panels" {
                @for panel in page.panels {
                    (section(panel, panel.id, view))
                }
            }
        }
        footer {
            p {
                "JSON API: " a href="/api/v1" { "/api/v1" } ". For an incident ticket: "
                a href=(REPORT) { "report of the last hour" } ". "
                @match &view.viewer.user {
                    Some(user) => { "Signed in as " (lossless::text_of(user.name())) "." },
                    None if view.viewer.names_for_all => { "Names are shown to everybody (metrics-key-names yes)." },
                    None => (how_to_see_names(view.service)),
                }
            }
        }
    };
    let head = html! {
        link rel="stylesheet" href="/console.css";
        link rel="icon" href="/icon.svg" type="image/svg+xml";
        @if has_live {
            script src="/console.js" defer {}
        }
    };
    let title = format!("{} – {}", page.title, address(view));
    document(&title, &head, has_live.then_some(live.as_str()), &body)
}

fn document(title: &str, head: &Markup, live: Option<&str>, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                (head)
            }
            body data-live=[live] { (body) }
        }
    }
    .into_string()
}

fn address(view: &View<'_>) -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().into_owned();
    format!("{name}:{}", view.info.text("tcp_port").unwrap_or_default())
}

/// Shows the server's name, version and address.
fn identity(view: &View<'_>) -> Markup {
    let role = match view.info.text("role") {
        Some("slave") => "replica",
        _ => "primary",
    };
    html! {
        p class="identity" {
            a href="/" class="brand" { "basalt" }
            span { (address(view)) }
            span class="tag" { (role) }
            span class="quiet" { "version " (env!("CARGO_PKG_VERSION")) }
        }
    }
}

fn spans(page: &Page, view: &View<'_>) -> Markup {
    let chosen = view.span();
    html! {
        ul class="spans" aria-label="Time range of the charts" {
            @for span in &SPANS {
                li {
                    @if span.name == chosen.name {
                        a href={ (page.path) "?range=" (span.name) } aria-current="true" { (span.title) }
                    } @else {
                        a href={ (page.path) "?range=" (span.name) } { (span.title) }
                    }
                }
            }
        }
    }
}

fn section(panel: &Panel, id: &str, view: &View<'_>) -> Markup {
    let class = if panel.is_wide { "panel wide" } else { "panel" };
    let shown = view.room.fit((panel.show)(view));
    // A panel without contents stays hidden until it has some.
    let is_hidden = shown.0.is_empty();
    html! {
        section class=(class) aria-labelledby={ "t-" (id) } hidden[is_hidden] {
            h2 id={ "t-" (id) } { (panel.title) }
            div id=(id) { (shown) }
        }
    }
}

/// Returns the contents of those panels of a page that are due in this second, by panel id.
pub(super) fn fragments(page: &Page, view: &View<'_>, second: u64) -> serde_json::Value {
    let due = page.panels.iter().filter(|panel| {
        let every_s = panel.every_s;
        every_s > 0 && second.is_multiple_of(every_s)
    });
    let fragment = |panel: &Panel| {
        let text = view.room.fit((panel.show)(view)).into_string();
        (panel.id.to_owned(), serde_json::Value::String(text))
    };
    serde_json::Value::Object(due.map(fragment).collect())
}

/// Renders all pages in one self-contained page, with inline styles.
pub(super) fn report(view: View<'_>) -> String {
    let view = View {
        query: view.query.clone().or("range", "1h").or("rows", "200"),
        room: Room::of_report(),
        ..view
    };
    let head = html! {
        meta http-equiv="Content-Security-Policy" content=(super::REPORT_META);
        style { (PreEscaped(super::ASSETS[0].text)) }
    };
    let body = html! {
        header { (identity(&view)) }
        main id="main" class="report" {
            h1 { "Report of " (address(&view)) }
            p class="quiet" {
                "Generated at " (figures::time(view.now_s)) " (UTC). Charts show the last " (view.span().title) "."
            }
            @for (number, page) in PAGES.iter().enumerate() {
                h2 class="page" { (page.title) }
                div class="panels" {
                    @for panel in page.panels {
                        (section(panel, &format!("r{number}-{}", panel.id), &view))
                    }
                }
            }
        }
    };
    document(&format!("Report of {}", address(&view)), &head, None, &body)
}
