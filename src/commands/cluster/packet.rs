//! One message of the bus as a value. `wire` encodes it.

use super::Millis;
use super::assembly::Notice;
use super::flags::NodeFlags;
use super::node_id::NodeId;
use super::slot_set::SlotSet;

/// A message: a header about its sender, and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The header, about the sender.
    pub header: Header,
    /// The body.
    pub body: Body,
}

/// The fields of every packet, about its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// ID of the sending node.
    pub sender: NodeId,
    /// Ports of the sender.
    pub ports: WirePorts,
    /// The address that the sender announces; empty: the source address of the packet. At most 45 bytes.
    pub ip: String,
    /// The highest epoch that the sender has seen.
    pub current_epoch: u64,
    /// The epoch of the sender's slots; a replica sends the epoch of its primary.
    pub config_epoch: u64,
    /// The sender's offset in the replication stream.
    pub offset: u64,
    /// Slots that the sender owns; for a replica the slots of its primary.
    pub slots: SlotSet,
    /// The primary that the sender follows.
    pub primary: Option<NodeId>,
    /// Flags of the sender, as it sees itself.
    pub flags: NodeFlags,
    /// Whether the sender considers the cluster to be up.
    pub is_up: bool,
    /// Whether the sender, a primary, has paused its clients for a manual failover, so that `offset` is final.
    pub is_paused: bool,
    /// Whether a vote is requested although the primary has not failed: a manual failover.
    pub is_forced: bool,
}

/// The ports in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WirePorts {
    /// Port for clients: the TLS port if the bus uses TLS, otherwise the plain port.
    pub main: u16,
    /// The other port for clients, plain or TLS; 0: none.
    pub other: u16,
    /// Port of the cluster bus; 0: `main` plus 10000.
    pub bus: u16,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A request to reply, which shows that the receiver is alive, with gossip.
    Ping(PingBody),
    /// The reply to a ping, with gossip.
    Pong(PingBody),
    /// Like a ping, and a request to be accepted into the cluster.
    Meet(PingBody),
    /// A node has failed, according to the majority.
    Fail(NodeId),
    /// A message for the subscribers of a channel, on all nodes.
    Publish(Message),
    /// A message for the subscribers of a channel of one shard.
    PublishShard(Message),
    /// A replica asks for a vote.
    VoteRequest,
    /// A primary votes for the replica that requested the vote.
    Vote,
    /// Another node owns slots that the receiver claims.
    Update {
        /// ID of the owner.
        node: NodeId,
        /// The epoch of the owner's slots.
        config_epoch: u64,
        /// The owner's slots.
        slots: SlotSet,
    },
    /// A replica asks its primary to pause clients for a manual failover.
    ManualFailoverStart,
    /// A message between modules, which this server does not have.
    Module,
}

/// The body of pings, pongs and MEETs: gossip and extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingBody {
    /// The sender's knowledge of other nodes.
    pub gossip: Vec<Gossip>,
    /// Further properties of the sender. Unknown ones are skipped when parsing.
    pub extensions: Vec<Extension>,
}

/// The sender's knowledge of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    /// ID of the other node.
    pub node: NodeId,
    /// When the sender sent its oldest ping without a reply to the node, in seconds; 0: no ping is unanswered.
    pub ping_sent_s: u32,
    /// When the sender last received a pong from the node, in seconds.
    pub pong_received_s: u32,
    /// Address of the node. At most 45 bytes.
    pub ip: String,
    /// Ports of the node.
    pub ports: WirePorts,
    /// Flags of the node.
    pub flags: NodeFlags,
}

/// A part of a ping that older servers do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The sender's announced host name; empty: none any more.
    Hostname(String),
    /// The sender's human-readable name; empty: none any more.
    HumanName(String),
    /// A node that was forgotten, and for how long it must not be accepted again.
    Forgotten {
        /// ID of the forgotten node.
        node: NodeId,
        /// Remaining milliseconds; seconds on the wire.
        ttl_ms: Millis,
    },
    /// ID of the sender's shard.
    ShardId(NodeId),
    /// The sender's availability zone; empty: none any more.
    Zone(String),
    /// The sender's part in the assembly of the cluster.
    Assembly(Box<Notice>),
}

/// A message published by PUBLISH or SPUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name of the channel.
    pub channel: Vec<u8>,
    /// The published text.
    pub payload: Vec<u8>,
}
