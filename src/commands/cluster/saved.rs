//! The state that a node keeps over a restart; `nodes_conf` defines its text.

use std::collections::BTreeMap;

use super::Millis;
use super::assembly::AssemblyRecord;
use super::flags::NodeFlags;
use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A node's saved state of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// All nodes except those in handshake; one of them has the flag [`NodeFlags::MYSELF`].
    pub nodes: Vec<SavedNode>,
    /// The highest epoch seen so far.
    pub current_epoch: u64,
    /// The epoch of the last vote given.
    pub last_vote_epoch: u64,
    /// Slots whose keys are being moved to another node.
    pub migrating: BTreeMap<u16, NodeId>,
    /// Slots whose keys are being moved from another node.
    pub importing: BTreeMap<u16, NodeId>,
    /// The stage of the assembly of the cluster that this node has reached.
    pub assembly: AssemblyRecord,
}

/// One node, as a line of nodes.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedNode {
    /// ID of the node.
    pub id: NodeId,
    /// Address; empty if it is not known.
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
    /// ID of the shard; None in files of servers before 7.2.
    pub shard_id: Option<NodeId>,
    /// Flags of the node.
    pub flags: NodeFlags,
    /// The primary of a replica.
    pub primary: Option<NodeId>,
    /// When the oldest ping without a reply was sent; 0: no ping is unanswered.
    pub ping_sent: Millis,
    /// When the last pong was received; 0: never.
    pub pong_received: Millis,
    /// Epoch of the node's claim of its slots.
    pub config_epoch: u64,
    /// Slots that the node owns.
    pub slots: SlotSet,
}
