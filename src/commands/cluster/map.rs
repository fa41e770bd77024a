//! Who owns which slot, and who the nodes are: what commands see of the cluster. A value that does not change; the
//! next one takes its place.

use std::collections::BTreeMap;

use super::Millis;
use super::down::Down;
use super::flags::NodeFlags;
use super::node_id::NodeId;
use super::slot_set::SlotSet;
use basalt_core::base::hash::SLOTS;

/// Says that a slot has no owner, where a node's place in [`ClusterMap::nodes`] is expected.
pub const UNOWNED: u16 = u16::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct ClusterMap {
    /// The owner of each slot, by its place in `nodes`; [`UNOWNED`] if it has none.
    pub owners: Box<[u16]>,
    /// All nodes that this one knows, itself among them, in the order of their names.
    pub nodes: Vec<NodeView>,
    /// The place of this node.
    pub myself: u16,
    /// Slots whose keys go to another node, by its place.
    pub migrating: BTreeMap<u16, u16>,
    /// Slots whose keys come from another node, by its place.
    pub importing: BTreeMap<u16, u16>,
    /// Whether the cluster serves commands.
    pub is_up: bool,
    /// Why it does not, if it does not.
    pub down: Option<Down>,
    /// The highest epoch that was seen.
    pub current_epoch: u64,
    /// Primaries with slots, those that may vote.
    pub size: usize,
    /// Slots whose owner may have failed, and has by the majority.
    pub slots_maybe_failed: u16,
    /// Slots whose owner has failed.
    pub slots_failed: u16,
}

/// A node as others see it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Name of the node.
    pub id: NodeId,
    /// Name of the shard, which a primary and its replicas have in common.
    pub shard_id: NodeId,
    /// Address for clients and for the bus; empty if it is not known.
    pub ip: String,
    /// Plain port for clients; 0: none.
    pub port: u16,
    /// TLS port for clients; 0: none.
    pub tls_port: u16,
    /// Port of the bus.
    pub bus_port: u16,
    /// Host name that it announces; may be empty.
    pub hostname: String,
    /// Name for people; may be empty.
    pub human_name: String,
    /// Flags of it.
    pub flags: NodeFlags,
    /// The primary that it follows, by its place among the nodes, if that is known.
    pub primary: Option<u16>,
    /// The name of the primary, known or not.
    pub primary_id: Option<NodeId>,
    /// Slots that it owns.
    pub slots: SlotSet,
    /// Epoch of the slots that it serves: of a replica, its primary's own, even if that is a replica as well.
    pub config_epoch: u64,
    /// Where it is in the stream of replication.
    pub offset: u64,
    /// When a ping was sent that has no answer yet; 0: there is none.
    pub ping_sent: Millis,
    /// When the last pong came; 0: never.
    pub pong_received: Millis,
    /// Whether the link to it is up; this node is linked to itself.
    pub is_linked: bool,
    /// Nodes that report it as failing.
    pub failure_reports: usize,
}

impl ClusterMap {
    /// The owner of a slot.
    #[inline]
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<&NodeView> {
        debug_assert!(slot < SLOTS);
        self.nodes.get(usize::from(self.owners[usize::from(slot)]))
    }

    /// What others see of this node.
    #[must_use]
    pub fn me(&self) -> &NodeView {
        &self.nodes[usize::from(self.myself)]
    }

    /// Whether a slot is this node's, or its primary's.
    #[must_use]
    pub fn is_of_my_shard(&self, slot: u16) -> bool {
        let owner = self.owners[usize::from(slot)];
        owner == self.myself || (owner != UNOWNED && self.me().primary == Some(owner))
    }

    /// The node of a name.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<&NodeView> {
        let found = self
            .nodes
            .binary_search_by(|node| node.id.as_bytes().as_slice().cmp(id));
        found.ok().map(|at| &self.nodes[at])
    }
}

impl NodeView {
    /// Whether it is a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.flags.any(NodeFlags::PRIMARY)
    }

    /// The port for clients whose connections are encrypted, or for others; 0: none.
    #[must_use]
    pub fn client_port(&self, is_tls: bool) -> u16 {
        if is_tls { self.tls_port } else { self.port }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{THIRD, map};

    #[test]
    fn nodes_are_found_by_their_names() {
        let map = map();
        let name = map.nodes[usize::from(THIRD)].id;
        let found = map.find(name.as_bytes()).expect("it is known");
        assert_eq!((found.id, found.client_port(true)), (name, 8003));
        assert!(map.find(&[b'f'; 40]).is_none() && map.find(b"short").is_none());
    }
}
