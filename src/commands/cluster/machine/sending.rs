//! Building and sending packets: the state of this node, and the gossip in pings.

use std::sync::Arc;

use super::{Link, Machine, Millis, NodeRef};
use crate::cluster::flags::NodeFlags;
use crate::cluster::output::{LinkId, Output};
use crate::cluster::packet::{Body, Extension, Gossip, Header, Message, Packet, PingBody};
use crate::cluster::settings::Local;

/// Minimum number of nodes in the gossip of a ping, if that many are known.
const GOSSIP_MIN: usize = 3;

/// Samples taken per node in the gossip of a ping: some sampled nodes cannot be included.
const DRAWS_PER_NODE: usize = 3;

/// Number of greetings without a shard ID after which a node is assumed not to support shards.
const NAMELESS_GREETINGS_MAX: u8 = 3;

/// The receivers of a pong that is sent without a ping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PongTargets {
    All,
    /// Replicas of this node's shard.
    Shard,
}

/// The kind of a greeting: a ping, a pong or a MEET.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    Ping,
    Pong,
    Meet,
}

impl Machine {
    /// Returns the header of every packet.
    fn header(&self, local: &dyn Local) -> Header {
        let me = self.me();
        let claims = self.claims();
        Header {
            sender: claims.sender,
            ports: me.address.wire_ports(self.settings.tls_cluster),
            ip: self.settings.announce_ip.clone(),
            current_epoch: claims.current_epoch,
            config_epoch: claims.config_epoch,
            offset: local.offset(),
            slots: claims.slots,
            primary: claims.primary,
            flags: claims.flags,
            is_up: self.is_up(),
            is_paused: me.is_primary() && self.manual.until.is_some(),
            is_forced: false,
        }
    }

    /// Sends on a link, if it is open.
    pub(super) fn send(&mut self, link: LinkId, packet: &Arc<Packet>) {
        if self.links.get(&link).is_some_and(|link| link.is_open) {
            self.sent[packet.body.kind() as usize] += 1;
            self.outputs.push(Output::Send(link, Arc::clone(packet)));
        }
    }

    fn packet(&self, body: Body, local: &dyn Local) -> Packet {
        Packet {
            header: self.header(local),
            body,
        }
    }

    /// Sends a packet to a node over the link that this node has opened to it.
    pub(super) fn send_to(&mut self, node: NodeRef, body: Body, local: &dyn Local) {
        if let Some(link) = self.nodes.get(node).link {
            let packet = Arc::new(self.packet(body, local));
            self.send(link, &packet);
        }
    }

    /// Sends a packet to all nodes that have an open link and whose true IDs are known.
    pub(super) fn broadcast(&mut self, body: Body, local: &dyn Local) {
        let packet = self.packet(body, local);
        self.broadcast_packet(packet);
    }

    /// Requests votes from all nodes; `is_forced`: they are to vote although the primary has not failed.
    pub(super) fn ask_for_votes(&mut self, is_forced: bool, local: &dyn Local) {
        let mut packet = self.packet(Body::VoteRequest, local);
        packet.header.is_forced = is_forced;
        self.broadcast_packet(packet);
    }

    fn broadcast_packet(&mut self, packet: Packet) {
        let packet = Arc::new(packet);
        for link in self.links_to(|_| true) {
            self.send(link, &packet);
        }
    }

    /// Returns the links to nodes whose true IDs are known.
    fn links_to(&self, is_wanted: impl Fn(NodeRef) -> bool) -> Vec<LinkId> {
        let is_stranger = NodeFlags::MYSELF.or(NodeFlags::HANDSHAKE);
        let nodes = self.nodes.iter().filter(|(_, node)| !node.is(is_stranger));
        let nodes = nodes.filter(|(at, _)| is_wanted(*at));
        nodes.filter_map(|(_, node)| node.link).collect()
    }

    pub(super) fn send_message(&mut self, message: Message, is_shard: bool, local: &dyn Local) {
        let shard_id = self.me().shard_id;
        let links = self.links_to(|node| !is_shard || self.nodes.get(node).shard_id == shard_id);
        let body = match is_shard {
            true => Body::PublishShard(message),
            false => Body::Publish(message),
        };
        let packet = Arc::new(self.packet(body, local));
        for link in links {
            self.send(link, &packet);
        }
    }

    /// Sends the first packet on a link that this node has opened.
    pub(super) fn greet(&mut self, link: LinkId, node: NodeRef, now: Millis, local: &dyn Local) {
        let before = self.nodes.get(node).ping_sent;
        let greeting = match self.nodes.get(node).is(NodeFlags::MEET) {
            true => Greeting::Meet,
            false => Greeting::Ping,
        };
        self.ping(link, greeting, now, local);
        let node = self.nodes.get_mut(node);
        // An older ping has no reply yet: keep its time.
        node.ping_sent = if before != 0 { before } else { now };
        node.flags.clear(NodeFlags::MEET);
    }

    /// Pings a node over its link; if the link is not open yet the ping is sent later, but the timeout starts now.
    pub(super) fn ping_node(&mut self, node: NodeRef, now: Millis, local: &dyn Local) {
        if let Some(link) = self.nodes.get(node).link {
            self.ping(link, Greeting::Ping, now, local);
            self.nodes.get_mut(node).ping_sent = now;
        }
    }

    /// Sends a ping, a pong or a MEET with gossip.
    pub(super) fn ping(
        &mut self,
        link: LinkId,
        greeting: Greeting,
        now: Millis,
        local: &dyn Local,
    ) {
        let receiver = self.links.get(&link).and_then(|link: &Link| link.node);
        let news = self.news(receiver, now);
        let body = match greeting {
            Greeting::Ping => Body::Ping(news),
            Greeting::Pong => Body::Pong(news),
            Greeting::Meet => Body::Meet(news),
        };
        let packet = Arc::new(self.packet(body, local));
        self.send(link, &packet);
    }

    /// Sends a pong to other nodes at once, so that they learn of changes here.
    pub(super) fn broadcast_pong(&mut self, to: PongTargets, now: Millis, local: &dyn Local) {
        let my_primary = self.nodes.primary_of(self.me);
        let is_sibling = |node: NodeRef| {
            let node = self.nodes.get(node);
            node.is_replica() && node.primary.is_some() && node.primary == my_primary
        };
        for link in self.links_to(|node| to == PongTargets::All || is_sibling(node)) {
            self.ping(link, Greeting::Pong, now, local);
        }
    }

    /// Selects the gossip: some random nodes, and all nodes that may have failed, so that the majority's verdict
    /// comes soon.
    fn news(&mut self, receiver: Option<NodeRef>, now: Millis) -> PingBody {
        let count = self.nodes.len();
        let others = count.saturating_sub(2);
        // With a tenth of all nodes, a majority reports a failure within the time for which reports are valid.
        let wanted = count * self.settings.gossip_percent as usize / 100;
        let wanted = wanted.max(GOSSIP_MIN).min(others);
        let mut told: Vec<NodeRef> = Vec::with_capacity(wanted);
        let mut draws = wanted * DRAWS_PER_NODE;
        while told.len() < wanted && draws > 0 {
            draws -= 1;
            let drawn = self.nodes.random(&mut self.random);
            let node = self.nodes.get(drawn);
            let is_lonely = node.link.is_none() && node.slot_count == 0;
            let unknown = NodeFlags::HANDSHAKE
                .or(NodeFlags::NO_ADDRESS)
                .or(NodeFlags::MAYBE_FAILED);
            if drawn != self.me
                && Some(drawn) != receiver
                && !node.is(unknown)
                && node.is_heard
                && !is_lonely
                && !told.contains(&drawn)
            {
                told.push(drawn);
            }
        }
        let nameless = NodeFlags::HANDSHAKE.or(NodeFlags::NO_ADDRESS);
        let suspects = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is(NodeFlags::MAYBE_FAILED) && !node.is(nameless))
            .filter(|(_, node)| node.is_heard);
        told.extend(suspects.map(|(at, _)| at));
        PingBody {
            gossip: told.into_iter().map(|node| self.gossip_of(node)).collect(),
            extensions: self.extensions(receiver, now),
        }
    }

    fn gossip_of(&self, node: NodeRef) -> Gossip {
        let node = self.nodes.get(node);
        let seconds = |at: Millis| (at / 1000) as u32;
        Gossip {
            node: node.id,
            ping_sent_s: seconds(node.ping_sent),
            pong_received_s: seconds(node.pong_received),
            ip: node.address.ip.clone(),
            ports: node.address.wire_ports(self.settings.tls_cluster),
            flags: node.flags,
        }
    }

    /// Returns further properties of this node. Servers before 7.2 know only the extension for host names, and log a
    /// line for each other one; these servers are recognized by sending no shard ID.
    fn extensions(&mut self, receiver: Option<NodeRef>, now: Millis) -> Vec<Extension> {
        self.forgotten.retain(|_, until| *until > now);
        let me = self.me();
        let named = |name: &String, kind: fn(String) -> Extension| {
            (!name.is_empty()).then(|| kind(name.clone()))
        };
        let mut extensions = Vec::new();
        extensions.extend(named(&me.hostname, Extension::Hostname));
        let nameless = receiver.map_or(0, |node| self.nodes.get(node).nameless_greetings);
        if nameless >= NAMELESS_GREETINGS_MAX {
            return extensions;
        }
        extensions.extend(named(&me.human_name, Extension::HumanName));
        extensions.extend(named(&me.zone, Extension::Zone));
        extensions.extend(
            self.forgotten
                .iter()
                .map(|(node, until)| Extension::Forgotten {
                    node: *node,
                    ttl_ms: until - now,
                }),
        );
        extensions.push(Extension::ShardId(me.shard_id));
        extensions.extend(self.notice_for(receiver));
        extensions
    }
}
