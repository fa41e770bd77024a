//! The cluster: a map of its slots, its nodes, and their links.

use maud::{Markup, html};

use super::super::chart::duration;
use super::super::facts::cluster::{ClusterOverview, NodeFacts, seen};
use super::{Panel, View, panel};
use basalt_core::base::hash::SLOTS;

pub(super) static PANELS: &[Panel] = &[
    panel("map", "Slots", 2, |view| with(view, map)).wide(),
    panel("nodes", "Nodes and links", 2, |view| with(view, nodes)).wide(),
];

/// Rows of the slot map.
const ROWS: u16 = 16;

/// Number of colors that distinguish owners.
const COLOURS: usize = 8;

/// Maximum number of pieces drawn slot by slot; with more pieces, each mark on the map stands for several
/// slots.
const PIECES_MAX: usize = 1_024;

/// Slots per mark if there are more than `PIECES_MAX` pieces.
const GRAIN: u16 = 16;

/// Maximum number of owners in the legend.
const OWNERS_MAX: usize = 32;

fn with(view: &View<'_>, show: fn(&View<'_>, &ClusterOverview) -> Markup) -> Markup {
    match seen(view) {
        Some(seen) => show(view, &seen),
        None => {
            html! { p class="empty" { "Cluster mode is off (cluster-enabled no)." } }
        }
    }
}

/// Adjacent slots with one owner: the first slot, their number, and the owner's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnedSlotRange {
    first: u16,
    count: u16,
    owner: usize,
}

/// Returns all pieces, split at row ends. With a `grain`, each mark of that many slots belongs to the owner of its
/// first slot.
fn pieces(owners: &[&NodeFacts], grain: u16) -> Vec<OwnedSlotRange> {
    let across = SLOTS / ROWS;
    let mut owner_of: Vec<Option<usize>> = vec![None; usize::from(SLOTS)];
    for (number, node) in owners.iter().enumerate() {
        for (first, last) in &node.ranges {
            owner_of[usize::from(*first)..=usize::from(*last)].fill(Some(number));
        }
    }
    let mut pieces: Vec<OwnedSlotRange> = Vec::new();
    for first in (0..SLOTS).step_by(usize::from(grain)) {
        let Some(owner) = owner_of[usize::from(first)] else {
            continue;
        };
        match pieces.last_mut() {
            Some(piece)
                if piece.owner == owner
                    && piece.first + piece.count == first
                    && first % across != 0 =>
            {
                piece.count += grain;
            }
            _ => pieces.push(OwnedSlotRange {
                first,
                count: grain,
                owner,
            }),
        }
    }
    pieces
}

fn map(_: &View<'_>, seen: &ClusterOverview) -> Markup {
    let across = SLOTS / ROWS;
    let owners: Vec<&NodeFacts> = seen.nodes.iter().filter(|node| node.slots > 0).collect();
    let fine = pieces(&owners, 1);
    let is_coarse = fine.len() > PIECES_MAX;
    let drawn = if is_coarse {
        pieces(&owners, GRAIN)
    } else {
        fine
    };
    let label = format!(
        "{} of {SLOTS} slots are assigned to {} primaries.",
        seen.assigned,
        owners.len()
    );
    html! {
        p {
            @if seen.is_up { span class="tag good" { "ok" } } @else { span class="tag bad" { "down" } }
            " " data value=(seen.assigned) data-field="cluster_slots_assigned" { (seen.assigned) }
            " of " (SLOTS) " slots are assigned; epoch " (seen.epoch) "."
            @if is_coarse { " There are many ranges, so each mark stands for " (GRAIN) " slots." }
        }
        svg class="slots" viewBox={ "0 0 " (across) " " (ROWS) } preserveAspectRatio="none" role="img" aria-label=(label) {
            rect class="of" width=(across) height=(ROWS) {}
            @for piece in &drawn {
                rect class={ "c" (piece.owner % COLOURS) } x=(piece.first % across) y=(piece.first / across) width=(piece.count) height="0.9" {}
            }
        }
        ul class="legend" {
            @for (number, node) in owners.iter().enumerate().take(OWNERS_MAX) {
                li {
                    span class={ "key c" (number % COLOURS) } aria-hidden="true" {}
                    span class="name" { (node.address) } " " (node.slots) " slots"
                    @if node.is_myself { " (this node)" }
                    @if node.state != "ok" { " " span class="tag bad" { (node.state) } }
                }
            }
            @if owners.len() > OWNERS_MAX { li { "and " (owners.len() - OWNERS_MAX) " more" } }
        }
    }
}

fn nodes(view: &View<'_>, seen: &ClusterOverview) -> Markup {
    let rows = view.room.rows(&seen.nodes, node_row);
    html! {
        p class="quiet" { "Cluster bus links: " (seen.links_to) " outbound, " (seen.links_from) " inbound." }
        div class="scroll" tabindex="0" role="region" aria-label="Nodes" {
            table {
                thead { tr {
                    th scope="col" { "Node" } th scope="col" { "Address" } th scope="col" { "Role" } th scope="col" { "State" }
                    th scope="col" { "Link" } th scope="col" class="number" { "Last pong" }
                    th scope="col" class="number" { "Slots" } th scope="col" { "Ranges" }
                    th scope="col" class="number" { "Epoch" }
                } }
                tbody { (rows.shown) }
            }
        }
        (rows.rest())
    }
}

fn node_row(node: &NodeFacts) -> Markup {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    html! {
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

/// Formats the first slot ranges, and the number of further ones.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ranges: Vec<(u16, u16)>) -> NodeFacts {
        NodeFacts {
            id: "x".repeat(40),
            address: "10.0.0.1:6379".to_owned(),
            is_myself: false,
            role: "primary",
            state: "ok",
            primary: None,
            slots: ranges.len() as u16,
            ranges,
            is_linked: true,
            heard_ms: None,
            links: 0,
            epoch: 1,
        }
    }

    #[test]
    fn a_range_goes_over_the_ends_of_rows() {
        let one = node(vec![(1_000, 2_100)]);
        let found = pieces(&[&one], 1);
        let spans: Vec<(u16, u16)> = found
            .iter()
            .map(|piece| (piece.first, piece.count))
            .collect();
        assert_eq!(spans, [(1_000, 24), (1_024, 1_024), (2_048, 53)]);
    }

    #[test]
    fn a_cluster_whose_slots_lie_scattered_has_a_map_of_few_marks() {
        let of = |rest: u16| {
            node(
                (0..SLOTS)
                    .filter(|slot| slot % 2 == rest)
                    .map(|slot| (slot, slot))
                    .collect(),
            )
        };
        let (even, odd) = (of(0), of(1));
        assert_eq!(pieces(&[&even, &odd], 1).len(), usize::from(SLOTS));
        assert!(pieces(&[&even, &odd], GRAIN).len() <= PIECES_MAX);
    }
}
