//! The state of one node as this node knows it.

use std::collections::BTreeMap;

use crate::cluster::Millis;
use crate::cluster::assembly::Notice;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::LinkId;
use crate::cluster::packet::WirePorts;
use crate::cluster::slot_set::SlotSet;

/// Refers to a node by its index, which stays the same as long as the node is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeRef(pub(super) u16);

/// The state of one node, see the module.
#[derive(Clone, Debug)]
pub(super) struct ClusterNode {
    pub(super) id: NodeId,
    pub(super) shard_id: NodeId,
    pub(super) flags: NodeFlags,
    pub(super) address: NodeAddress,
    /// The host name that the node announces; empty if it announces none.
    pub(super) hostname: String,
    /// The human-readable name that the node announces; empty if it announces none.
    pub(super) human_name: String,
    /// The availability zone that the node announces; empty if it announces none.
    pub(super) zone: String,
    /// The primary of the node, if the node is a replica and its primary is known. Set by `Nodes::follow`.
    pub(super) primary: Option<NodeRef>,
    /// Slots that the node owns. Set by `Nodes::assign`.
    pub(super) slots: SlotSet,
    pub(super) slot_count: u16,
    pub(super) config_epoch: u64,
    /// The node's offset in the replication stream.
    pub(super) offset: u64,
    pub(super) created: Millis,
    /// When the oldest ping without a reply was sent; 0: no ping is unanswered.
    pub(super) ping_sent: Millis,
    /// When the last pong was received from the node, by this node or by others that report it; 0: never.
    pub(super) pong_received: Millis,
    /// When the node last replied over the link that this node opens to it; 0: never.
    pub(super) answered_at: Millis,
    /// When anything was last received from the node.
    pub(super) data_received: Millis,
    /// Whether the node has ever replied over a link that this node opened, even before a restart. Set by
    /// `Nodes::hear`. Until then the node is known by hearsay only: neither saved nor announced to others, and
    /// forgotten when no other node mentions it any more.
    pub(super) is_heard: bool,
    /// When the node was last mentioned by another node, or sent something itself.
    pub(super) told_at: Millis,
    /// When the node was marked as failed.
    pub(super) failed_at: Millis,
    /// When this node last voted for a replica of the node.
    pub(super) voted_at: Option<Millis>,
    /// When the node was first found to be a primary without working replicas; `None` if it is not one.
    pub(super) orphaned_since: Option<Millis>,
    /// When the node was first found to have the same epoch as this node, both being primaries; `None` if it has
    /// another.
    pub(super) collides_since: Option<Millis>,
    /// Primaries that report the node as failing, with the time of their last report.
    pub(super) reports: BTreeMap<NodeRef, Millis>,
    /// Number of greetings (pings, pongs, MEETs) from the node without a shard ID since the last one with a shard ID.
    pub(super) nameless_greetings: u8,
    /// Whether an operator has named the node (CLUSTER MEET).
    pub(super) is_met_by_hand: bool,
    /// The last notice of the node about the assembly of the cluster, and its time.
    pub(super) notice: Option<(Notice, Millis)>,
    /// Number of greetings from the node without a notice since the last one with a notice.
    pub(super) silent_greetings: u8,
    /// The link that this node opens to the node.
    pub(super) link: Option<LinkId>,
    /// The link that the node has opened to this node.
    pub(super) inbound: Option<LinkId>,
}

/// The address and ports of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAddress {
    /// IP address or host name; empty if it is not known.
    pub(super) ip: String,
    /// Plain port for clients; 0: none.
    pub(super) port: u16,
    /// TLS port for clients; 0: none.
    pub(super) tls_port: u16,
    /// Port of the cluster bus.
    pub(super) bus_port: u16,
}

/// Distance of the bus port from the port for clients, if the bus port is not given.
const BUS_PORT_OFFSET: u16 = 10_000;

impl NodeAddress {
    /// Converts from the fields of a packet.
    pub(super) fn of_wire(ip: &str, ports: WirePorts, is_tls: bool) -> NodeAddress {
        let (port, tls_port) = match is_tls {
            true => (ports.other, ports.main),
            false => (ports.main, ports.other),
        };
        NodeAddress {
            ip: ip.to_owned(),
            port,
            tls_port,
            bus_port: match ports.bus {
                0 => ports.main.saturating_add(BUS_PORT_OFFSET),
                bus => bus,
            },
        }
    }

    /// Converts the ports to the fields of a packet.
    pub(super) fn wire_ports(&self, is_tls: bool) -> WirePorts {
        let (main, other) = match is_tls {
            true => (self.tls_port, self.port),
            false => (self.port, self.tls_port),
        };
        WirePorts {
            main,
            other,
            bus: self.bus_port,
        }
    }
}

impl ClusterNode {
    /// Creates a node with these properties and no others.
    pub(super) fn new(id: NodeId, shard_id: NodeId, flags: NodeFlags, now: Millis) -> ClusterNode {
        ClusterNode {
            id,
            shard_id,
            flags,
            address: NodeAddress::default(),
            hostname: String::new(),
            human_name: String::new(),
            zone: String::new(),
            primary: None,
            slots: SlotSet::default(),
            slot_count: 0,
            config_epoch: 0,
            offset: 0,
            created: now,
            ping_sent: 0,
            pong_received: 0,
            answered_at: 0,
            data_received: 0,
            is_heard: false,
            told_at: now,
            failed_at: 0,
            voted_at: None,
            orphaned_since: None,
            collides_since: None,
            reports: BTreeMap::new(),
            nameless_greetings: 0,
            is_met_by_hand: false,
            notice: None,
            silent_greetings: 0,
            link: None,
            inbound: None,
        }
    }

    pub(super) fn is(&self, flags: NodeFlags) -> bool {
        self.flags.any(flags)
    }

    pub(super) fn is_primary(&self) -> bool {
        self.is(NodeFlags::PRIMARY)
    }

    /// Whether the node has a vote: primaries with slots have one.
    pub(super) fn is_voter(&self) -> bool {
        self.is_primary() && self.slot_count > 0
    }

    pub(super) fn is_replica(&self) -> bool {
        self.is(NodeFlags::REPLICA)
    }

    /// Makes a primary a replica.
    pub(super) fn demote(&mut self) {
        self.flags
            .clear(NodeFlags::PRIMARY.or(NodeFlags::MIGRATE_TO));
        self.flags.set(NodeFlags::REPLICA);
    }

    /// Whether the node is reachable, that is, not marked as failed or possibly failed.
    pub(super) fn is_reachable(&self) -> bool {
        !self.is(NodeFlags::FAILED.or(NodeFlags::MAYBE_FAILED))
    }

    /// Drops reports older than `validity`, and counts the others.
    pub(super) fn failure_reports(&mut self, now: Millis, validity: Millis) -> usize {
        self.reports
            .retain(|_, at| now.saturating_sub(*at) <= validity);
        self.reports.len()
    }

    /// Returns the ID and the human-readable name, for the log.
    pub(super) fn title(&self) -> String {
        format!("{} ({})", self.id, self.human_name)
    }
}
