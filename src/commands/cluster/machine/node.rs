//! One node as this one knows it.

use std::collections::BTreeMap;

use crate::cluster::Millis;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::LinkId;
use crate::cluster::packet::WirePorts;
use crate::cluster::slot_set::SlotSet;

/// A node by its place, which it keeps as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeRef(pub(super) u16);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) shard_id: NodeId,
    pub(super) flags: NodeFlags,
    pub(super) address: Address,
    /// Empty if it announces none.
    pub(super) hostname: String,
    /// Empty if it announces none.
    pub(super) human_name: String,
    /// Whom it follows, if it is a replica and that is known. `Nodes::follow` changes it.
    pub(super) primary: Option<NodeRef>,
    /// Slots that it owns. `Nodes::assign` changes them.
    pub(super) slots: SlotSet,
    pub(super) slot_count: u16,
    pub(super) config_epoch: u64,
    /// Where it is in the stream of replication.
    pub(super) offset: u64,
    pub(super) created: Millis,
    /// When a ping was sent that has no answer yet; 0: there is none.
    pub(super) ping_sent: Millis,
    /// When the last pong came, by this node or by what others say; 0: never.
    pub(super) pong_received: Millis,
    /// When it last answered over the link that this node opens to it; 0: never.
    pub(super) answered_at: Millis,
    /// When anything came from it last.
    pub(super) data_received: Millis,
    /// Whether it has answered over a link that this node opened, in this life or before. `Nodes::hear` sets it.
    /// Until then it is hearsay: neither saved nor told on, and forgotten when no other node tells of it any more.
    pub(super) is_heard: bool,
    /// When it was last told of by another node, or by itself.
    pub(super) told_at: Millis,
    /// When it was seen to have failed.
    pub(super) failed_at: Millis,
    /// When this node last voted for a replica of it.
    pub(super) voted_at: Option<Millis>,
    /// Since when it is a primary without replicas that work.
    pub(super) orphaned_since: Option<Millis>,
    /// Since when it is seen to be a primary with the epoch of this one.
    pub(super) collides_since: Option<Millis>,
    /// Primaries that report it as failing, and when they last did.
    pub(super) reports: BTreeMap<NodeRef, Millis>,
    /// Greetings of it without a shard's name since the last one with it.
    pub(super) nameless_greetings: u8,
    /// The link that this node opens to it.
    pub(super) link: Option<LinkId>,
    /// The link that it has opened to this node.
    pub(super) inbound: Option<LinkId>,
}

/// Where a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    /// Empty if it is not known.
    pub(super) ip: String,
    /// Plain port for clients; 0: none.
    pub(super) port: u16,
    /// TLS port for clients; 0: none.
    pub(super) tls_port: u16,
    /// Port of the bus.
    pub(super) bus_port: u16,
}

/// What is added to a port for clients to have that of the bus, if none is given.
const BUS_PORT_OFFSET: u16 = 10_000;

impl Address {
    /// From what a packet says.
    pub(super) fn of_wire(ip: &str, ports: WirePorts, is_tls: bool) -> Address {
        let (port, tls_port) = match is_tls {
            true => (ports.other, ports.main),
            false => (ports.main, ports.other),
        };
        Address {
            ip: ip.to_owned(),
            port,
            tls_port,
            bus_port: match ports.bus {
                0 => ports.main.saturating_add(BUS_PORT_OFFSET),
                bus => bus,
            },
        }
    }

    /// For a packet.
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

impl Node {
    /// A node of which nothing is known but what is given.
    pub(super) fn new(id: NodeId, shard_id: NodeId, flags: NodeFlags, now: Millis) -> Node {
        Node {
            id,
            shard_id,
            flags,
            address: Address::default(),
            hostname: String::new(),
            human_name: String::new(),
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

    /// Whether it has a vote: primaries with slots do.
    pub(super) fn is_voter(&self) -> bool {
        self.is_primary() && self.slot_count > 0
    }

    pub(super) fn is_replica(&self) -> bool {
        self.is(NodeFlags::REPLICA)
    }

    /// Makes a replica of a primary.
    pub(super) fn demote(&mut self) {
        self.flags
            .clear(NodeFlags::PRIMARY.or(NodeFlags::MIGRATE_TO));
        self.flags.set(NodeFlags::REPLICA);
    }

    /// Whether it works, as far as is known.
    pub(super) fn is_reachable(&self) -> bool {
        !self.is(NodeFlags::FAILED.or(NodeFlags::MAYBE_FAILED))
    }

    /// Drops reports older than `validity`, and counts the others.
    pub(super) fn failure_reports(&mut self, now: Millis, validity: Millis) -> usize {
        self.reports
            .retain(|_, at| now.saturating_sub(*at) <= validity);
        self.reports.len()
    }

    /// For the log: the name, and the one for people.
    pub(super) fn title(&self) -> String {
        format!("{} ({})", self.id, self.human_name)
    }
}
