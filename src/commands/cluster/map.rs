//! Slot ownership and nodes: the cluster as commands see it. The map is immutable; a change produces a new one.

use std::collections::BTreeMap;

use super::Millis;
use super::assembly::AssemblyView;
use super::down::Down;
use super::flags::NodeFlags;
use super::node_id::NodeId;
use super::slot_set::SlotSet;
use basalt_core::base::hash::SLOTS;

/// Marks a slot without an owner, in place of a node's index in [`ClusterMap::nodes`].
pub const UNOWNED: u16 = u16::MAX;

/// Slot ownership and nodes, see the module.
#[derive(Clone, Debug)]
pub struct ClusterMap {
    /// The owner of each slot, as an index in `nodes`; [`UNOWNED`] for a slot without an owner.
    pub owners: Box<[u16]>,
    /// All nodes that this one knows, including itself, ordered by ID.
    pub nodes: Vec<NodeView>,
    /// The index of this node.
    pub myself: u16,
    /// Slots whose keys are being moved to another node, with that node's index in `nodes`.
    pub migrating: BTreeMap<u16, u16>,
    /// Slots whose keys are being moved from another node, with that node's index in `nodes`.
    pub importing: BTreeMap<u16, u16>,
    /// Whether the cluster serves commands.
    pub is_up: bool,
    /// The reason why the cluster does not serve commands; None if it does.
    pub down: Option<Down>,
    /// The highest epoch seen so far.
    pub current_epoch: u64,
    /// Number of primaries with slots, which may vote.
    pub size: usize,
    /// Slots whose owner may have failed, without a verdict of the majority.
    pub slots_maybe_failed: u16,
    /// Slots whose owner has failed.
    pub slots_failed: u16,
    /// The state of the assembly of the cluster (`cluster-size`).
    pub assembly: AssemblyView,
}

/// A node as the other nodes see it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// ID of the node.
    pub id: NodeId,
    /// ID of the shard, which a primary and its replicas share.
    pub shard_id: NodeId,
    /// Address for clients and for the bus; empty if it is not known.
    pub ip: String,
    /// Plain port for clients; 0: none.
    pub port: u16,
    /// TLS port for clients; 0: none.
    pub tls_port: u16,
    /// Port of the cluster bus.
    pub bus_port: u16,
    /// Host name that the node announces; may be empty.
    pub hostname: String,
    /// Human-readable name; may be empty.
    pub human_name: String,
    /// Availability zone; may be empty.
    pub zone: String,
    /// Flags of the node.
    pub flags: NodeFlags,
    /// The primary of a replica, by its index in the map, if the primary is known.
    pub primary: Option<u16>,
    /// The ID of a replica's primary, whether or not the primary is known.
    pub primary_id: Option<NodeId>,
    /// Slots that the node owns.
    pub slots: SlotSet,
    /// Epoch of the slots that the node serves: for a replica its primary's epoch, even if that is a replica as well.
    pub config_epoch: u64,
    /// The node's offset in the replication stream.
    pub offset: u64,
    /// When the oldest ping without a reply was sent; 0: no ping is unanswered.
    pub ping_sent: Millis,
    /// When the last pong was received; 0: never.
    pub pong_received: Millis,
    /// Whether the link to the node is up; this node counts as linked to itself.
    pub is_linked: bool,
    /// Number of nodes that report the node as failing.
    pub failure_reports: usize,
}

impl ClusterMap {
    /// Returns the owner of a slot.
    #[inline]
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<&NodeView> {
        debug_assert!(slot < SLOTS);
        self.nodes.get(usize::from(self.owners[usize::from(slot)]))
    }

    /// Returns this node.
    #[must_use]
    pub fn me(&self) -> &NodeView {
        &self.nodes[usize::from(self.myself)]
    }

    /// Whether a slot is owned by this node, or by its primary.
    #[must_use]
    pub fn is_of_my_shard(&self, slot: u16) -> bool {
        let owner = self.owners[usize::from(slot)];
        owner == self.myself || (owner != UNOWNED && self.me().primary == Some(owner))
    }

    /// Finds a node by its ID.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<&NodeView> {
        let found = self
            .nodes
            .binary_search_by(|node| node.id.as_bytes().as_slice().cmp(id));
        found.ok().map(|at| &self.nodes[at])
    }
}

impl NodeView {
    /// Whether the node is a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.flags.any(NodeFlags::PRIMARY)
    }

    /// Returns the TLS port for clients, or the plain port; 0: none.
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
