//! One message of the bus as a value. `wire` has the bytes of it.

use super::Millis;
use super::flags::NodeFlags;
use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A message: what every packet says of its sender, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Of the sender.
    pub header: Header,
    /// Of the message.
    pub body: Body,
}

/// What every packet says of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub sender: NodeId,
    /// Ports of the sender.
    pub ports: WirePorts,
    /// The address that the sender announces; empty: the one that the packet comes from. At most 45 bytes.
    pub ip: String,
    /// The highest epoch that the sender has seen.
    pub current_epoch: u64,
    /// The epoch of the sender's slots; a replica sends its primary's.
    pub config_epoch: u64,
    /// Where the sender is in the stream of replication.
    pub offset: u64,
    /// Slots of the sender; of its primary if it is a replica.
    pub slots: SlotSet,
    /// The primary that the sender follows.
    pub primary: Option<NodeId>,
    /// Flags of the sender, by itself.
    pub flags: NodeFlags,
    /// Whether the sender holds the cluster to be up.
    pub is_up: bool,
    /// Whether the sender, a primary, has paused its clients for a manual failover, so that `offset` is final.
    pub is_paused: bool,
    /// Whether a vote is to be given although the primary has not failed: a manual failover.
    pub is_forced: bool,
}

/// Ports as a packet has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WirePorts {
    /// For clients: with TLS if the bus has it, plain otherwise.
    pub main: u16,
    /// For clients, of the other kind; 0: none.
    pub other: u16,
    /// Of the bus; 0: `main` plus 10000.
    pub bus: u16,
}

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Are you there? With news of others.
    Ping(News),
    /// I am. With news of others.
    Pong(News),
    /// As a ping, and: take me in.
    Meet(News),
    /// A node has failed, by the majority.
    Fail(NodeId),
    /// A message for the subscribers of a channel, everywhere.
    Publish(Message),
    /// A message for the subscribers of a channel of one shard.
    PublishShard(Message),
    /// A replica asks for a vote.
    VoteRequest,
    /// A primary gives it.
    Vote,
    /// Somebody else owns slots that the receiver claims.
    Update {
        /// The owner.
        node: NodeId,
        /// The epoch of the owner's slots.
        config_epoch: u64,
        /// The owner's slots.
        slots: SlotSet,
    },
    /// A replica asks its primary to pause clients for a manual failover.
    ManualFailoverStart,
    /// A message between modules, which this server has none of.
    Module,
}

/// What pings, pongs and MEETs carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// What the sender knows of others.
    pub gossip: Vec<Gossip>,
    /// More of the sender. Unknown ones are skipped when they are read.
    pub extensions: Vec<Extension>,
}

/// What the sender knows of one other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    /// The node.
    pub node: NodeId,
    /// When the sender has last pinged it and had no answer yet, in seconds; 0: nothing is due.
    pub ping_sent_s: u32,
    /// When the sender has last had a pong of it, in seconds.
    pub pong_received_s: u32,
    /// Where it is. At most 45 bytes.
    pub ip: String,
    /// Ports of it.
    pub ports: WirePorts,
    /// Flags of it.
    pub flags: NodeFlags,
}

/// A part of a ping that older servers do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The sender's announced host name; empty: none any more.
    Hostname(String),
    /// The sender's name for people; empty: none any more.
    HumanName(String),
    /// A node that was forgotten, and for how much longer it is not to be taken in again.
    Forgotten {
        /// The node.
        node: NodeId,
        /// Milliseconds that are left, as seconds on the wire.
        ttl_ms: Millis,
    },
    /// The sender's shard.
    ShardId(NodeId),
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub channel: Vec<u8>,
    /// What.
    pub payload: Vec<u8>,
}
