//! Changes of the cluster that clients request by CLUSTER commands.

use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A change of the cluster that a client requests; its arguments have been checked as far as that is possible without
/// the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the others are named like their commands")]
pub enum ClusterChange {
    /// `CLUSTER MEET`: introduces a node.
    Meet {
        /// Numeric address of the node.
        ip: String,
        /// Port for clients.
        port: u16,
        /// Port of the cluster bus; 0: `port` plus 10000.
        bus_port: u16,
        /// Whether an operator has named the node; otherwise it was found at a seed.
        is_by_hand: bool,
    },
    Forget(NodeId),
    /// `CLUSTER ADDSLOTS` and `ADDSLOTSRANGE`.
    AddSlots(SlotSet),
    /// `CLUSTER DELSLOTS` and `DELSLOTSRANGE`.
    DelSlots(SlotSet),
    FlushSlots,
    SetSlot {
        /// The slot that changes.
        slot: u16,
        /// The new state of the slot.
        to: SlotChange,
    },
    /// Slots whose keys have all been received from their owner, which waits for this node to become the owner.
    TakeSlots {
        /// The slots to take over.
        slots: SlotSet,
        /// The current owner.
        from: NodeId,
    },
    Replicate(NodeId),
    Failover(Failover),
    Reset {
        /// Whether epochs are also reset to 0 and a new ID is generated.
        is_hard: bool,
    },
    SaveConfig,
    BumpEpoch,
    SetConfigEpoch(u64),
}

/// The new state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Keys of the slot are being moved to this other node.
    Migrating(NodeId),
    /// Keys of the slot are being moved from this other node.
    Importing(NodeId),
    /// Keys of the slot are not being moved.
    Stable,
    /// The slot belongs to the node with this ID.
    Node(NodeId),
}

/// How a replica is promoted in place of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// Graceful failover: in agreement with the primary, without data loss.
    Agreed,
    /// By the votes of the other primaries, without asking the current one.
    Force,
    /// As [`Failover::Force`], at the request of the primary, which is about to stop and has paused writes.
    Handover,
    /// Without any votes, by taking a new epoch.
    Takeover,
}
