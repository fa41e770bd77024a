//! What CLUSTER asks for.

use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A change of the cluster that a client asks for; arguments have been looked at as far as that needs no cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `CLUSTER MEET`: a node to get to know.
    Meet {
        /// Address of it, a number.
        ip: String,
        /// Port for clients.
        port: u16,
        /// Port of the bus; 0: the other one plus 10000.
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
        /// What becomes of it.
        to: SlotChange,
    },
    /// Slots have come from their owner with all their keys, and it waits for this node to own them.
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
        /// Whether epochs go back to 0 and the name is drawn again too.
        is_hard: bool,
    },
    /// `CLUSTER SAVECONFIG`.
    SaveConfig,
    /// `CLUSTER BUMPEPOCH`.
    BumpEpoch,
    /// `CLUSTER SET-CONFIG-EPOCH`.
    SetConfigEpoch(u64),
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Keys of it go to a node.
    Migrating(NodeId),
    /// Keys of it come from a node.
    Importing(NodeId),
    /// Neither.
    Stable,
    /// A node owns it.
    Node(NodeId),
}

/// How a replica is to take its primary's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// In agreement with the primary, which loses nothing.
    Agreed,
    /// By the votes of the other primaries, without asking it.
    Force,
    /// Without anybody's vote.
    Takeover,
}
