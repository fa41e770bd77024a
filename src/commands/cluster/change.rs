//! Changes of the cluster that CLUSTER requests.

use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A change of the cluster that a client requests; arguments have been checked as far as that is possible without the
/// cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// `CLUSTER MEET`: introduces a node.
    Meet {
        /// Numeric address of the node.
        ip: String,
        /// Port for clients.
        port: u16,
        /// Port of the bus; 0: `port` plus 10000.
        bus_port: u16,
    },
    /// `CLUSTER FORGET`.
    Forget(NodeId),
    /// `CLUSTER ADDSLOTS` and `ADDSLOTSRANGE`.
    AddSlots(SlotSet),
    /// `CLUSTER DELSLOTS` and `DELSLOTSRANGE`.
    DelSlots(SlotSet),
    /// `CLUSTER FLUSHSLOTS`.
    FlushSlots,
    /// `CLUSTER SETSLOT`.
    SetSlot {
        /// The slot.
        slot: u16,
        /// The new state of the slot.
        to: SlotChange,
    },
    /// Slots were received from their owner with all their keys, and it waits for this node to own them.
    TakeSlots {
        /// The slots.
        slots: SlotSet,
        /// The owner.
        from: NodeId,
    },
    /// `CLUSTER REPLICATE`.
    Replicate(NodeId),
    /// `CLUSTER FAILOVER`.
    Failover(Failover),
    /// `CLUSTER RESET`.
    Reset {
        /// Whether epochs are also reset to 0 and a new ID is generated.
        is_hard: bool,
    },
    /// `CLUSTER SAVECONFIG`.
    SaveConfig,
    /// `CLUSTER BUMPEPOCH`.
    BumpEpoch,
    /// `CLUSTER SET-CONFIG-EPOCH`.
    SetConfigEpoch(u64),
}

/// The new state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Keys of the slot are being moved to a node.
    Migrating(NodeId),
    /// Keys of the slot are being moved from a node.
    Importing(NodeId),
    /// Neither.
    Stable,
    /// A node owns it.
    Node(NodeId),
}

/// The way in which a replica is promoted in place of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// Graceful failover: in agreement with the primary, without data loss.
    Agreed,
    /// By the votes of the other primaries, without asking the current one.
    Force,
    /// Without any votes.
    Takeover,
}
