//! Views of the state: the cluster map for commands, and the state saved in nodes.conf.

use std::collections::BTreeMap;

use super::node::{ClusterNode, NodeAddress};
use super::{Machine, Millis, NodeRef, Nodes, draw};
use crate::cluster::flags::NodeFlags;
use crate::cluster::kind::KINDS;
use crate::cluster::map::{ClusterMap, NodeView, UNOWNED};
use crate::cluster::node_id::NodeId;
use crate::cluster::output::LinkId;
use crate::cluster::saved::{Saved, SavedNode};
use basalt_core::base::hash::SLOTS;
use basalt_core::base::random::Random;

/// Restores saved nodes. Returns the reference to this node.
pub(super) fn restore(
    nodes: &mut Nodes,
    saved: &Saved,
    random: &mut Random,
    now: Millis,
) -> Option<NodeRef> {
    let mut me = None;
    for old in &saved.nodes {
        let mut node = ClusterNode::new(
            old.id,
            old.shard_id.unwrap_or_else(|| draw(random)),
            old.flags,
            now,
        );
        node.address = NodeAddress {
            ip: old.ip.clone(),
            port: old.port,
            tls_port: old.tls_port,
            bus_port: old.bus_port,
        };
        node.hostname.clone_from(&old.hostname);
        node.human_name.clone_from(&old.human_name);
        node.config_epoch = old.config_epoch;
        node.is_heard = true;
        if node.is(NodeFlags::FAILED) {
            node.failed_at = now;
        }
        let place = nodes.add(node)?;
        if old.flags.any(NodeFlags::MYSELF) {
            me = Some(place);
        }
    }
    for old in &saved.nodes {
        let place = nodes.find(&old.id)?;
        nodes.follow(place, old.primary.and_then(|primary| nodes.find(&primary)));
        for slot in old.slots.iter() {
            nodes.assign(slot, Some(place));
        }
    }
    me
}

impl Machine {
    /// Returns the map for commands. Too expensive to be called for each command.
    #[must_use]
    pub fn map(&self) -> ClusterMap {
        let order: Vec<NodeRef> = self.nodes.in_order().collect();
        let places: BTreeMap<NodeRef, u16> = order
            .iter()
            .enumerate()
            .map(|(at, node)| (*node, at as u16))
            .collect();
        let place = |node: NodeRef| places[&node];
        let moving = |slots: &BTreeMap<u16, NodeRef>| {
            slots
                .iter()
                .map(|(slot, node)| (*slot, place(*node)))
                .collect()
        };
        ClusterMap {
            owners: (0..SLOTS)
                .map(|slot| self.nodes.owner(slot).map_or(UNOWNED, place))
                .collect(),
            nodes: order.iter().map(|node| self.view(*node, place)).collect(),
            myself: place(self.me),
            migrating: moving(&self.migrating),
            importing: moving(&self.importing),
            is_up: self.is_up(),
            down: self.down.clone(),
            current_epoch: self.current_epoch,
            size: self.size,
            slots_maybe_failed: self.slots_of(NodeFlags::MAYBE_FAILED),
            slots_failed: self.slots_of(NodeFlags::FAILED),
            assembly: self.assembly.view.clone(),
        }
    }

    /// Updates the fields of a recent map that change with every packet. Slot ownership, roles and the state of the
    /// cluster keep their values in `map`.
    pub fn refresh(&self, map: &mut ClusterMap) {
        let roles = NodeFlags::PRIMARY.or(NodeFlags::REPLICA);
        for node in &mut map.nodes {
            let Some(at) = self.nodes.find(&node.id) else {
                continue;
            };
            let now = self.view(at, |_| UNOWNED);
            let role = node.flags.without(node.flags.without(roles));
            node.flags = now.flags.without(roles).or(role);
            node.config_epoch = now.config_epoch;
            node.offset = now.offset;
            node.ping_sent = now.ping_sent;
            node.pong_received = now.pong_received;
            node.is_linked = now.is_linked;
            node.failure_reports = now.failure_reports;
        }
        map.current_epoch = self.current_epoch;
        map.size = self.size;
        map.slots_maybe_failed = self.slots_of(NodeFlags::MAYBE_FAILED);
        map.slots_failed = self.slots_of(NodeFlags::FAILED);
        map.assembly.clone_from(&self.assembly.view);
    }

    fn slots_of(&self, flag: NodeFlags) -> u16 {
        let nodes = self.nodes.iter().filter(|(_, node)| node.is(flag));
        nodes.map(|(_, node)| node.slot_count).sum()
    }

    fn view(&self, at: NodeRef, place: impl Fn(NodeRef) -> u16) -> NodeView {
        let node = self.nodes.get(at);
        NodeView {
            id: node.id,
            shard_id: node.shard_id,
            ip: node.address.ip.clone(),
            port: node.address.port,
            tls_port: node.address.tls_port,
            bus_port: node.address.bus_port,
            hostname: node.hostname.clone(),
            human_name: node.human_name.clone(),
            zone: node.zone.clone(),
            flags: node.flags,
            primary: node.primary.map(place),
            primary_id: node.primary.map(|primary| self.nodes.get(primary).id),
            slots: node.slots.clone(),
            config_epoch: node.primary.map_or(node.config_epoch, |primary| {
                self.nodes.get(primary).config_epoch
            }),
            offset: node.offset,
            ping_sent: node.ping_sent,
            pong_received: node.pong_received,
            is_linked: at == self.me || self.is_linked(node),
            failure_reports: node.reports.len(),
        }
    }

    /// Returns the state to be kept over a restart, in nodes.conf.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let id = |node: &NodeRef| self.nodes.get(*node).id;
        let moving = |slots: &BTreeMap<u16, NodeRef>| {
            slots.iter().map(|(slot, node)| (*slot, id(node))).collect()
        };
        let known = self.nodes.in_order().filter(|node| {
            !self.nodes.get(*node).is(NodeFlags::HANDSHAKE) && !self.is_hearsay(*node)
        });
        Saved {
            nodes: known.map(|node| self.saved_node(node)).collect(),
            current_epoch: self.current_epoch,
            last_vote_epoch: self.last_vote_epoch,
            migrating: moving(&self.migrating),
            importing: moving(&self.importing),
            assembly: self.assembly.record.clone(),
        }
    }

    fn saved_node(&self, at: NodeRef) -> SavedNode {
        let node = self.nodes.get(at);
        SavedNode {
            id: node.id,
            ip: node.address.ip.clone(),
            port: node.address.port,
            tls_port: node.address.tls_port,
            bus_port: node.address.bus_port,
            hostname: node.hostname.clone(),
            human_name: node.human_name.clone(),
            shard_id: Some(node.shard_id),
            flags: node.flags,
            primary: node.primary.map(|primary| self.nodes.get(primary).id),
            ping_sent: node.ping_sent,
            pong_received: node.pong_received,
            config_epoch: node.config_epoch,
            slots: node.slots.clone(),
        }
    }

    /// Returns this node as other nodes see it, except for its index in the map.
    #[must_use]
    pub fn own_view(&self) -> NodeView {
        self.view(self.me, |_| 0)
    }

    /// Whether the cluster serves, as seen by this node.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.down.is_none()
    }

    /// Returns the ID of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.me().id
    }

    /// Returns the numbers of sent and of received messages, by kind.
    #[must_use]
    pub fn all_messages(&self) -> ([u64; KINDS], [u64; KINDS]) {
        (self.sent, self.received)
    }

    /// Returns the node at the other end of a link, if it is known, whether that node opened the link, and when it
    /// was opened.
    #[must_use]
    pub fn link(&self, link: LinkId) -> Option<(Option<NodeId>, bool, Millis)> {
        let link = self.links.get(&link)?;
        Some((
            link.node.map(|node| self.nodes.get(node).id),
            link.is_inbound,
            link.created,
        ))
    }

    /// Whether a link comes from the address of the node whose ID it uses.
    #[must_use]
    pub fn is_from_its_address(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| {
            link.node
                .is_some_and(|node| self.nodes.get(node).address.ip == link.peer_ip)
        })
    }

    /// Returns the number of nodes that report a node as failing, counting reports that are still valid; None for an
    /// unknown node.
    pub fn failure_reports(&mut self, id: NodeId, now: Millis) -> Option<usize> {
        let node = self.nodes.find(&id)?;
        Some(self.count_reports(node, now))
    }
}
