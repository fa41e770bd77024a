//! The cluster: nodes, slot ownership, and the links between nodes.

use serde_json::{Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::{HIDDEN, name};
use crate::telemetry::clock;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::map::{ClusterMap, NodeView};
use basalt_commands::command::host::cluster::{LinkDirection, LinkView};

/// A node of the cluster, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) is_myself: bool,
    pub(crate) role: &'static str,
    /// State of the node: `ok`, or its problem, such as `fail`.
    pub(crate) state: &'static str,
    /// The primary that the node replicates, if it is a replica.
    pub(crate) primary: Option<String>,
    pub(crate) slots: u16,
    pub(crate) ranges: Vec<(u16, u16)>,
    pub(crate) is_linked: bool,
    /// Milliseconds since the node's last pong, if any.
    pub(crate) heard_ms: Option<u64>,
    /// Number of open links to and from the node.
    pub(crate) links: usize,
    pub(crate) epoch: u64,
}

/// The cluster as seen by this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterOverview {
    pub(crate) is_up: bool,
    pub(crate) epoch: u64,
    pub(crate) assigned: u16,
    pub(crate) links_to: usize,
    pub(crate) links_from: usize,
    pub(crate) nodes: Vec<NodeFacts>,
}

/// Returns the current view; `None` if there is no cluster.
pub(crate) fn seen(view: &View<'_>) -> Option<ClusterOverview> {
    let cluster = view.service.cluster()?;
    let (map, links) = (cluster.view(), cluster.links());
    let sees = view.viewer.sees(Sight::Clients);
    let now_ms = clock::unix_ms();
    let node = |node: &NodeView| {
        let of_node = links.iter().filter(|link| link.node == node.id);
        describe(&map, node, sees, now_ms, of_node.count())
    };
    let mut nodes: Vec<NodeFacts> = map.nodes.iter().map(node).collect();
    nodes.sort_by_key(|node| node.ranges.first().copied().unwrap_or((u16::MAX, 0)));
    Some(ClusterOverview {
        is_up: map.is_up,
        epoch: map.current_epoch,
        assigned: nodes.iter().map(|node| node.slots).sum(),
        links_to: links.iter().filter(|link| is_to(link)).count(),
        links_from: links.iter().filter(|link| !is_to(link)).count(),
        nodes,
    })
}

fn is_to(link: &LinkView) -> bool {
    link.direction == LinkDirection::To
}

fn describe(map: &ClusterMap, node: &NodeView, sees: bool, now_ms: u64, links: usize) -> NodeFacts {
    let has = |flag: NodeFlags| node.flags.any(flag);
    let id = String::from_utf8_lossy(node.id.as_bytes()).into_owned();
    let primary = node.primary.and_then(|at| map.nodes.get(usize::from(at)));
    NodeFacts {
        address: match sees {
            true => format!(
                "{}:{}",
                name(node.ip.as_bytes()),
                node.port.max(node.tls_port)
            ),
            false => HIDDEN.to_owned(),
        },
        is_myself: has(NodeFlags::MYSELF),
        role: match node.is_primary() {
            true => "primary",
            false => "replica",
        },
        state: match () {
            () if has(NodeFlags::FAILED) => "failed",
            () if has(NodeFlags::MAYBE_FAILED) => "may have failed",
            () if has(NodeFlags::HANDSHAKE) => "handshake",
            () => "ok",
        },
        primary: primary.map(|primary| String::from_utf8_lossy(primary.id.as_bytes()).into_owned()),
        slots: node.slots.len(),
        ranges: node.slots.ranges().collect(),
        is_linked: node.is_linked,
        heard_ms: (node.pong_received > 0).then(|| now_ms.saturating_sub(node.pong_received)),
        links,
        epoch: node.config_epoch,
        id,
    }
}

impl ClusterOverview {
    /// Formats the view as JSON.
    pub(crate) fn json(&self) -> Value {
        let node = |node: &NodeFacts| {
            json!({
                "id": node.id, "address": node.address, "myself": node.is_myself, "role": node.role,
                "state": node.state, "primary": node.primary, "slots": node.slots, "ranges": node.ranges,
                "linked": node.is_linked, "heard_ms": node.heard_ms, "links": node.links, "epoch": node.epoch,
            })
        };
        json!({
            "up": self.is_up,
            "epoch": self.epoch,
            "slots_assigned": self.assigned,
            "links_to": self.links_to,
            "links_from": self.links_from,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }
}
