//! Pages with lists: clients, the slow log, directives, and log lines.

use maud::{Markup, html};

use super::super::chart::{bytes, duration, number, time_us};
use super::super::facts::clients::{COLUMNS, ClientPage, ClientQuery, ClientRow, find};
use super::super::facts::settings::{self, Setting};
use super::super::facts::slow::{self, Slow};
use super::super::query::encoded;
use super::super::viewer::Sight;
use super::figures::time;
use super::{Panel, View, panel};
use crate::telemetry::log::{self, recent::RecentLogLine};
use basalt_core::base::text::{visible, visible_within};

pub(super) static CLIENTS: &[Panel] = &[panel("clients", "Connections", 0, clients).wide()];

pub(super) static SLOW: &[Panel] = &[panel("slow", "Slow commands", 5, slow_log).wide()];

pub(super) static CONFIG: &[Panel] = &[panel(
    "config",
    "Directives that differ from their defaults",
    0,
    config,
)
.wide()];

pub(super) static LOG: &[Panel] = &[panel("lines", "Latest log lines", 2, lines).wide()];

fn link(asked: &ClientQuery, sort: &str, descends: bool, page: usize) -> String {
    format!(
        "/clients?search={}&sort={sort}&order={}&page={page}&rows={}",
        encoded(&asked.search),
        if descends { "desc" } else { "asc" },
        asked.rows
    )
}

/// Maximum number of connections per page.
const ROWS_MAX: usize = 200;

fn clients(view: &View<'_>) -> Markup {
    let mut asked = ClientQuery::of(&view.query);
    asked.rows = asked.rows.min(ROWS_MAX);
    let found = find(view, asked);
    let asked = &found.asked;
    let rows = view.room.rows(&found.rows, client);
    html! {
        form method="get" action="/clients" role="search" {
            label for="search" { "Search" }
            input type="search" id="search" name="search" value=(asked.search) placeholder="address, name, user, command";
            input type="hidden" name="sort" value=(asked.sort);
            input type="hidden" name="order" value=(if asked.descends { "desc" } else { "asc" });
            button type="submit" { "Search" }
        }
        p {
            data value=(found.matching) { (found.matching) } " of "
            data value=(found.all) data-field="clients" { (found.all) } " connections"
        }
        div class="scroll" tabindex="0" role="region" aria-label="Connections" {
            table {
                thead { tr {
                    @for column in &COLUMNS {
                        @let is_sorted = column.name == asked.sort;
                        @let order = match (is_sorted, asked.descends) {
                            (false, _) => None,
                            (true, true) => Some("descending"),
                            (true, false) => Some("ascending"),
                        };
                        th scope="col" class=[column.is_number.then_some("number")] aria-sort=[order] {
                            a href=(link(asked, column.name, is_sorted && !asked.descends, 1)) {
                                (column.title)
                                @if is_sorted { span aria-hidden="true" { (if asked.descends { " ▾" } else { " ▴" }) } }
                            }
                        }
                    }
                } }
                tbody { (rows.shown) }
            }
        }
        (rows.rest())
        (turn_pages(&found))
    }
}

fn client(row: &ClientRow) -> Markup {
    html! {
        tr {
            th scope="row" class="number" { (row.id) }
            td class="name" { (row.address) }
            td class="name" { (row.name) }
            td class="name" { (row.user) }
            td class="name" { (row.library) }
            td class="number" { (duration(row.age_s)) }
            td class="number" { (duration(row.idle_s)) }
            td class="number" { (row.db) }
            td { (row.command) }
            td class="number" { (number(row.commands as f64)) }
            td class="number" { (bytes(row.bytes_in as f64)) }
            td class="number" { (bytes(row.bytes_out as f64)) }
            td class="number" { (bytes(row.unsent as f64)) }
            td class="number" { (bytes(row.memory as f64)) }
        }
    }
}

fn turn_pages(found: &ClientPage) -> Markup {
    let asked = &found.asked;
    let to = |page: usize| link(asked, asked.sort, asked.descends, page);
    html! {
        @if found.pages > 1 {
            nav aria-label="Pages of connections" class="turn" {
                @if asked.page > 1 { a href=(to(asked.page - 1)) rel="prev" { "Previous" } }
                span { "Page " (asked.page) " of " (found.pages) }
                @if asked.page < found.pages { a href=(to(asked.page + 1)) rel="next" { "Next" } }
            }
        }
    }
}

/// Slow log entries shown.
const ENTRIES: usize = 100;

fn slow_log(view: &View<'_>) -> Markup {
    let entries = slow::entries(view, ENTRIES);
    let rows = view.room.rows(&entries, slow_row);
    let threshold_us = view.config.slowlog_log_slower_than;
    let since = match threshold_us < 0 {
        true => "The slow log is off (slowlog-log-slower-than).".to_owned(),
        false => format!(
            "The slow log records commands that take {} or longer (slowlog-log-slower-than).",
            time_us(threshold_us as f64)
        ),
    };
    html! {
        p class="quiet" { (since) }
        @if entries.is_empty() {
            p class="empty" { "The slow log is empty." }
        } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Slow commands" {
                table {
                    thead { tr {
                        th scope="col" class="number" { "ID" } th scope="col" { "Time (UTC)" }
                        th scope="col" class="number" { "Duration" } th scope="col" { "Command" }
                        th scope="col" { "Keys" }
                        th scope="col" class="number" { "Arguments" } th scope="col" { "Client" }
                    } }
                    tbody { (rows.shown) }
                }
            }
            (rows.rest())
        }
    }
}

fn slow_row(entry: &Slow) -> Markup {
    html! {
        tr {
            th scope="row" class="number" { (entry.id) }
            td class="time" { (time(entry.at_s)) }
            td class="number" { data value=(entry.duration_us) { (time_us(entry.duration_us as f64)) } }
            td { (entry.command) }
            td class="name" { (entry.keys.join("  ")) }
            td class="number" { (entry.arguments) }
            td class="name" { (entry.client) }
        }
    }
}

/// Characters shown of a directive's value.
const VALUE_CHARS_MAX: usize = 256;

fn config(view: &View<'_>) -> Markup {
    let settings = settings::differing(view);
    if settings.is_empty() {
        return html! { p class="empty" { "Every directive has its default value." } };
    }
    let rows = view.room.rows(&settings, directive);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Directives" {
            table {
                thead { tr {
                    th scope="col" { "Directive" } th scope="col" { "Value" } th scope="col" { "Default" }
                    th scope="col" { "Description" }
                } }
                tbody { (rows.shown) }
            }
        }
        (rows.rest())
    }
}

fn directive(setting: &Setting) -> Markup {
    let value = visible_within(setting.value.as_bytes(), VALUE_CHARS_MAX);
    html! {
        tr {
            th scope="row" { code { (setting.name) } }
            td class="name" { (value) }
            td class="name quiet" { (setting.default) }
            td class="says" { (setting.says) @if !setting.is_mutable { " Can be set only at startup." } }
        }
    }
}

/// Number of log lines shown.
const LINES: usize = 100;

fn lines(view: &View<'_>) -> Markup {
    if !view.viewer.sees(Sight::Log) {
        return html! { p class="empty" { "Log lines are shown only to users who may run MONITOR." } };
    }
    let mut lines = log::latest(LINES);
    lines.reverse();
    let rows = view.room.rows(&lines, line);
    html! {
        ol class="log" { (rows.shown) }
        (rows.rest())
    }
}

fn line(each: &RecentLogLine) -> Markup {
    html! {
        li class=(each.level) {
            span class="quiet" { (time(each.at_ms / 1_000)) } " "
            @if each.level == "warning" { span class="tag bad" { "warning" } " " }
            (visible(each.text.as_bytes()))
        }
    }
}
