//! The cluster: a map of its slots, its nodes, and the links to them.

use maud::{Markup, html};

use super::super::chart::duration;
use super::super::facts::cluster::{Node, Seen, seen};
use super::{Panel, View, panel};
use crate::base::hash::SLOTS;

pub(super) static PANELS: &[Panel] = &[
    panel("map", "Slots", 2, |view| with(view, map)).wide(),
    panel("nodes", "Nodes and links", 2, |view| with(view, nodes)).wide(),
];

/// Rows of the map.
const ROWS: u16 = 16;

/// Colours that owners are told apart by.
const COLOURS: usize = 8;

fn with(view: &View<'_>, show: fn(&Seen) -> Markup) -> Markup {
    match seen(view) {
        Some(seen) => show(&seen),
        None => {
            html! { p class="empty" { "This server is no node of a cluster (cluster-enabled)." } }
        }
    }
}

fn map(seen: &Seen) -> Markup {
    let across = SLOTS / ROWS;
    let owners: Vec<&Node> = seen.nodes.iter().filter(|node| node.slots > 0).collect();
    // A range goes over the ends of rows.
    let pieces = |node: &Node| -> Vec<(u16, u16, u16)> {
        let mut pieces = Vec::new();
        for (first, last) in &node.ranges {
            let mut at = *first;
            loop {
                let end = (at / across * across + across - 1).min(*last);
                pieces.push((at % across, at / across, end - at + 1));
                if end == *last {
                    break;
                }
                at = end + 1;
            }
        }
        pieces
    };
    let label = format!(
        "{} of {SLOTS} slots have one of {} owners.",
        seen.assigned,
        owners.len()
    );
    html! {
        p {
            @if seen.is_up { span class="tag good" { "ok" } } @else { span class="tag bad" { "down" } }
            " " data value=(seen.assigned) data-field="cluster_slots_assigned" { (seen.assigned) } " of " (SLOTS) " slots have an owner; epoch " (seen.epoch) "."
        }
        svg class="slots" viewBox={ "0 0 " (across) " " (ROWS) } preserveAspectRatio="none" role="img" aria-label=(label) {
            rect class="of" width=(across) height=(ROWS) {}
            @for (number, node) in owners.iter().enumerate() {
                @for (x, y, width) in pieces(node) {
                    rect class={ "c" (number % COLOURS) } x=(x) y=(y) width=(width) height="0.9" {}
                }
            }
        }
        ul class="legend" {
            @for (number, node) in owners.iter().enumerate() {
                li {
                    span class={ "key c" (number % COLOURS) } aria-hidden="true" {}
                    span class="name" { (node.address) } " " (node.slots) " slots"
                    @if node.is_myself { " (this node)" }
                    @if node.state != "ok" { " " span class="tag bad" { (node.state) } }
                }
            }
        }
    }
}

fn nodes(seen: &Seen) -> Markup {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    html! {
        p class="quiet" { "Links to other nodes: " (seen.links_to) "; from them: " (seen.links_from) "." }
        div class="scroll" tabindex="0" role="region" aria-label="Nodes" {
            table {
                thead { tr {
                    th scope="col" { "Node" } th scope="col" { "Address" } th scope="col" { "Role" } th scope="col" { "State" }
                    th scope="col" { "Link" } th scope="col" class="number" { "Heard of" }
                    th scope="col" class="number" { "Slots" } th scope="col" { "Ranges" }
                    th scope="col" class="number" { "Epoch" }
                } }
                tbody {
                    @for node in &seen.nodes {
                        tr {
                            th scope="row" { code { (short(&node.id)) } @if node.is_myself { " (this node)" } }
                            td class="name" { (node.address) }
                            td { (node.role) @if let Some(primary) = &node.primary { " of " code { (short(primary)) } } }
                            td { span class={ "tag " (if node.state == "ok" { "good" } else { "bad" }) } { (node.state) } }
                            td { span class={ "tag " (if node.is_linked { "good" } else { "bad" }) } { (if node.is_linked { "up" } else { "down" }) } }
                            td class="number" {
                                @match node.heard_ms {
                                    _ if node.is_myself => "–",
                                    Some(heard_ms) if heard_ms < 10_000 => { (heard_ms) " ms ago" },
                                    Some(heard_ms) => { (duration(heard_ms / 1_000)) " ago" },
                                    None => "never",
                                }
                            }
                            td class="number" { (node.slots) }
                            td class="says" { (ranges(&node.ranges)) }
                            td class="number" { (node.epoch) }
                        }
                    }
                }
            }
        }
    }
}

/// The first ranges of slots, and how many there are more.
fn ranges(ranges: &[(u16, u16)]) -> String {
    const SHOWN: usize = 6;
    let one = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    };
    let shown: Vec<String> = ranges.iter().take(SHOWN).map(one).collect();
    let more = ranges.len().saturating_sub(SHOWN);
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
