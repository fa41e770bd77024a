//! Packets that are built and sent: what this node says of itself, and the gossip of pings.

use std::sync::Arc;

use super::{Link, Machine, Millis, NodeRef};
use crate::cluster::flags::NodeFlags;
use crate::cluster::output::{LinkId, Output};
use crate::cluster::packet::{Body, Extension, Gossip, Header, Message, News, Packet};
use crate::cluster::settings::Local;

/// Nodes that a ping tells of at least, if there are so many.
const GOSSIP_MIN: usize = 3;

/// Draws for each node that a ping is to tell of: some are drawn that cannot be told of.
const DRAWS_PER_NODE: usize = 3;

/// Greetings without a shard's name after which a node is taken for one that knows no shards.
const NAMELESS_GREETINGS_MAX: u8 = 3;

/// Which nodes a pong goes to without a ping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    All,
    /// Replicas of this node's shard.
    Shard,
}

/// What a ping is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    Ping,
    Pong,
    Meet,
}

impl Machine {
    /// What every packet says of this node.
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

    /// Sends to a node over the link that this one has opened to it.
    pub(super) fn send_to(&mut self, node: NodeRef, body: Body, local: &dyn Local) {
        if let Some(link) = self.nodes.get(node).link {
            let packet = Arc::new(self.packet(body, local));
            self.send(link, &packet);
        }
    }

    /// Sends to all nodes that are linked and known by their true names.
    pub(super) fn broadcast(&mut self, body: Body, local: &dyn Local) {
        let packet = self.packet(body, local);
        self.broadcast_packet(packet);
    }

    /// Asks all for a vote; `is_forced`: although the primary has not failed.
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

    /// Links to nodes that are known by their true names.
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

    /// The first packet on a link that this node has opened.
    pub(super) fn greet(&mut self, link: LinkId, node: NodeRef, now: Millis, local: &dyn Local) {
        let before = self.nodes.get(node).ping_sent;
        let greeting = match self.nodes.get(node).is(NodeFlags::MEET) {
            true => Greeting::Meet,
            false => Greeting::Ping,
        };
        self.ping(link, greeting, now, local);
        let node = self.nodes.get_mut(node);
        // An older ping is still without an answer.
        node.ping_sent = if before != 0 { before } else { now };
        node.flags.clear(NodeFlags::MEET);
    }

    /// Pings over the link to a node; one that is not open yet is pinged when it is, but waits for it from now on.
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

    /// Tells others at once what has changed here.
    pub(super) fn broadcast_pong(&mut self, to: To, now: Millis, local: &dyn Local) {
        let my_primary = self.nodes.primary_of(self.me);
        let is_sibling = |node: NodeRef| {
            let node = self.nodes.get(node);
            node.is_replica() && node.primary.is_some() && node.primary == my_primary
        };
        for link in self.links_to(|node| to == To::All || is_sibling(node)) {
            self.ping(link, Greeting::Pong, now, local);
        }
    }

    /// What is told of others: some at random, and all that may have failed, so that the verdict comes soon.
    fn news(&mut self, receiver: Option<NodeRef>, now: Millis) -> News {
        let count = self.nodes.len();
        let others = count.saturating_sub(2);
        // With a tenth of them, a majority tells of a failure within the time that reports are valid.
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
        News {
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

    /// More of this node. Servers before 7.2 know host names alone, and log a line for each of the others; they are
    /// known by naming no shard themselves.
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
        extensions.extend(
            self.forgotten
                .iter()
                .map(|(node, until)| Extension::Forgotten {
                    node: *node,
                    ttl_ms: until - now,
                }),
        );
        extensions.push(Extension::ShardId(me.shard_id));
        extensions
    }
}
