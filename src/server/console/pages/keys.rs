//! Frequently used keys, and keys with large values.

use maud::{Markup, html};

use super::super::chart::bytes;
use super::super::facts::keys::{HotKeyRanking, KeyShare, big, hot};
use super::super::viewer::Sight;
use super::overview::bar;
use super::{Panel, View, how_to_see_names, panel};

pub(super) static PANELS: &[Panel] = &[
    panel("hot-uses", "Keys with the most uses", 5, |view| {
        let hot = hot(view, SHOWN);
        html! {
            (shares(&hot, &hot.by_uses, "Uses"))
            @if !view.viewer.sees(Sight::HotKeys) {
                p class="quiet" { (how_to_see_names(view.service)) }
            }
        }
    }),
    panel("hot-bytes", "Keys with the most traffic", 5, |view| {
        let hot = hot(view, SHOWN);
        shares(&hot, &hot.by_bytes, "Bytes")
    }),
    panel("big", "Largest values", 10, largest).wide(),
];

/// Keys shown of each kind.
const SHOWN: usize = 20;

fn shares(hot: &HotKeyRanking, shares: &[KeyShare], what: &str) -> Markup {
    if hot.interval == 0 {
        return html! { p class="empty" { "Hot keys are not tracked: hot-keys-sample is 0." } };
    }
    if shares.is_empty() {
        return html! { p class="empty" { "No key is used much more than the others." } };
    }
    html! {
        table {
            thead { tr {
                th scope="col" { "Key" } th scope="col" class="number" { (what) }
                th scope="col" class="number" { "Percent" } th scope="col" class="number" { "Copies" }
                th scope="col" { "Share of total" }
            } }
            tbody {
                @for share in shares {
                    tr {
                        th scope="row" class="name" { (share.key) }
                        td class="number" {
                            @if what == "Bytes" { (bytes(share.weight as f64)) } @else { (super::super::chart::number(share.weight as f64)) }
                        }
                        td class="number" { (format!("{:.1} %", share.percent)) }
                        td class="number" { (share.copies) }
                        td { (bar(share.percent / 100.0)) }
                    }
                }
            }
        }
        p class="quiet" { "Estimated from one in every " (hot.interval) " commands; older uses count for less. Copies: threads that answer reads of the key from a copy of their own." }
    }
}

fn largest(view: &View<'_>) -> Markup {
    let keys = big(view, SHOWN);
    if keys.is_empty() {
        return html! { p class="empty" { "No value is 16 KiB or larger." } };
    }
    html! {
        table {
            thead { tr {
                th scope="col" { "Key" } th scope="col" { "Type" } th scope="col" class="number" { "Database" }
                th scope="col" class="number" { "Bytes" }
            } }
            tbody {
                @for key in &keys {
                    tr {
                        th scope="row" class="name" { (key.key) }
                        td { (key.type_name) }
                        td class="number" { (key.db) }
                        td class="number" { data value=(key.bytes) { (bytes(key.bytes as f64)) } }
                    }
                }
            }
        }
    }
}
