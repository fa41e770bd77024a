//! Handling of received packets.

use super::node::{ClusterNode, NodeAddress};
use super::sending::Greeting;
use super::strangers::notice_in;
use super::{Level, Link, LinkId, Machine, Millis, NodeRef, draw};
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::Output;
use crate::cluster::packet::{Body, Extension, Gossip, Header, Message, Packet, PingBody};
use crate::cluster::settings::Local;

/// Milliseconds that another node's clock may be ahead of this one's, when gossip reports the time of a pong.
const CLOCK_TOLERANCE: Millis = 500;

/// Maximum number of nodes that are known from others and have never replied. Redis Cluster is meant for a thousand
/// nodes, and the limit keeps invented nodes from using up the capacity for true ones.
const UNHEARD_MAX: usize = 4_096;

/// Flags that are copied from gossip when a node is added.
const TOLD: NodeFlags = NodeFlags::PRIMARY
    .or(NodeFlags::REPLICA)
    .or(NodeFlags::MAYBE_FAILED)
    .or(NodeFlags::FAILED)
    .or(NodeFlags::NO_FAILOVER);

/// A received packet, and the link that it arrived on.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    packet: &'a Packet,
    /// The sender, if it is a known node.
    sender: Option<NodeRef>,
    id: LinkId,
    /// The link at the time of arrival.
    link: &'a Link,
    now: Millis,
    local: &'a dyn Local,
}

impl Machine {
    /// Handles a packet received over a link. Packets of unknown nodes are ignored, except for MEET.
    pub fn receive(&mut self, link: LinkId, packet: &Packet, now: Millis, local: &dyn Local) {
        let Some(found) = self.links.get(&link).cloned() else {
            return;
        };
        self.received[packet.body.kind() as usize] += 1;
        if packet.header.sender == self.id()
            && let Body::Ping(news) | Body::Pong(news) | Body::Meet(news) = &packet.body
        {
            self.note_own_id(&news.extensions, now);
        }
        let Ok(sender) = self.sender(link, &found, &packet.header) else {
            return self.finish(now, Some(local));
        };
        if sender.is_none() && self.refuses(&found, packet, now) {
            return self.finish(now, Some(local));
        }
        if let Some(sender) = sender {
            self.note_header(sender, &packet.header, now);
        }
        let arrival = Arrival {
            packet,
            sender,
            id: link,
            link: &found,
            now,
            local,
        };
        match (&packet.body, sender) {
            (Body::Ping(news) | Body::Meet(news), _) => {
                self.answer_ping(arrival);
                self.take_greeting(arrival, news);
            }
            (Body::Pong(news), _) => self.take_greeting(arrival, news),
            (_, None) => {}
            (Body::Fail(failed), Some(sender)) => self.take_verdict(*failed, sender, now),
            (Body::Publish(message), Some(_)) => self.deliver(message.clone(), false),
            (Body::PublishShard(message), Some(_)) => self.deliver(message.clone(), true),
            (Body::VoteRequest, Some(sender)) => {
                self.consider_vote(sender, &packet.header, now, local)
            }
            (Body::Vote, Some(sender)) => self.count_vote(sender, &packet.header),
            (Body::ManualFailoverStart, Some(sender)) => self.pause_for(sender, link, now, local),
            (
                Body::Update {
                    node,
                    config_epoch,
                    slots,
                },
                Some(_),
            ) => {
                if let Some(owner) = self.nodes.find(node)
                    && self.nodes.get(owner).config_epoch < *config_epoch
                {
                    self.set_primary(owner);
                    self.nodes.get_mut(owner).config_epoch = *config_epoch;
                    self.changed();
                    self.claim(owner, *config_epoch, slots, local);
                }
            }
            (Body::Module, Some(_)) => {}
        }
        self.finish(now, Some(local));
    }

    fn deliver(&mut self, message: Message, is_shard: bool) {
        self.outputs.push(Output::Deliver { message, is_shard });
    }

    /// Returns the sender of a packet, if it is a known node. Returns an error if the sender is not the node at the
    /// other end of the link; the link is closed then.
    fn sender(&mut self, id: LinkId, link: &Link, header: &Header) -> Result<Option<NodeRef>, ()> {
        let known = self.nodes.find(&header.sender);
        if known == Some(self.me) {
            // This node met itself, or another node pretends to have its ID. The handshake ends by its time limit.
            return Err(());
        }
        let Some(node) = link.node else {
            if let Some(known) = known
                && let Some(link) = self.links.get_mut(&id)
            {
                link.node = Some(known);
                // If a node has two links to here, the older one is broken.
                if let Some(older) = self.nodes.get_mut(known).inbound.replace(id) {
                    self.links.remove(&older);
                    self.outputs.push(Output::Close(older));
                }
            }
            return Ok(known);
        };
        let expected = self.nodes.get(node);
        if expected.is(NodeFlags::HANDSHAKE) || expected.id == header.sender {
            return Ok(known);
        }
        if !link.is_inbound {
            // Another node uses the address by now.
            let title = expected.title();
            self.log(
                Level::Debug,
                format!("Another node replies at the address of {title}"),
            );
            self.drop_link(node);
            let lost = self.nodes.get_mut(node);
            lost.address = NodeAddress::default();
            lost.flags.set(NodeFlags::NO_ADDRESS);
            self.changed();
        }
        Err(())
    }

    /// Records what every packet contains about its sender.
    fn note_header(&mut self, sender: NodeRef, header: &Header, now: Millis) {
        let node = self.nodes.get_mut(sender);
        node.data_received = now;
        node.told_at = now;
        if node.is(NodeFlags::HANDSHAKE) {
            return;
        }
        node.offset = header.offset;
        if header.config_epoch > node.config_epoch {
            node.config_epoch = header.config_epoch;
            self.changed();
        }
        self.current_epoch = self.current_epoch.max(header.current_epoch);
        if header.is_paused && self.my_primary() == Some(sender) {
            self.note_final_offset(header.offset);
        }
    }

    /// Replies to a ping or a MEET. A MEET starts a handshake with its sender; the gossip in it counts only after the
    /// sender has replied at the address that it gave.
    fn answer_ping(&mut self, arrival: Arrival<'_>) {
        let Arrival {
            packet, link, now, ..
        } = arrival;
        let is_meet = matches!(packet.body, Body::Meet(_));
        let own_ip = &self.me().address.ip;
        let is_unknown = is_meet || own_ip.is_empty();
        if is_unknown
            && self.settings.announce_ip.is_empty()
            && !link.local_ip.is_empty()
            && *own_ip != link.local_ip
        {
            let ip = link.local_ip.clone();
            self.log_seldom(
                "cluster-own-address",
                Level::Notice,
                format!("IP address for this node updated to {ip}"),
            );
            self.nodes.get_mut(self.me).address.ip = ip;
            self.changed();
        }
        if is_meet && arrival.sender.is_none() {
            let address = self.address_of(link, &packet.header);
            self.shake_hands(address, NodeFlags::NONE, false, now);
            self.changed();
        }
        self.ping(arrival.id, Greeting::Pong, now, arrival.local);
    }

    fn address_of(&self, link: &Link, header: &Header) -> NodeAddress {
        let ip = match &*header.ip {
            "" => &link.peer_ip,
            announced => announced,
        };
        NodeAddress::of_wire(ip, header.ports, self.settings.tls_cluster)
    }

    /// Handles the contents of a ping, a pong or a MEET: the sender's own properties, its slots, and gossip about
    /// other nodes.
    fn take_greeting(&mut self, arrival: Arrival<'_>, news: &PingBody) {
        let Arrival {
            packet,
            mut sender,
            id,
            link,
            now,
            local,
        } = arrival;
        let header = &packet.header;
        if let Some(node) = link.node.filter(|_| !link.is_inbound)
            && self.nodes.get(node).is(NodeFlags::HANDSHAKE)
        {
            if let Some(sender) = sender {
                // The node is known already, possibly at another address.
                self.update_address(sender, id, link, header);
                return self.forget(node);
            }
            self.nodes.rename(node, header.sender);
            self.nodes.hear(node);
            let met = self.nodes.get_mut(node);
            met.flags.clear(NodeFlags::HANDSHAKE);
            let roles = NodeFlags::PRIMARY.or(NodeFlags::REPLICA);
            met.flags.set(header.flags.and(roles));
            self.changed();
            // The node's other properties arrive with its next packet.
            sender = None;
            self.note_pong(node, packet, now);
        } else if let Some(node) = link.node.filter(|_| !link.is_inbound) {
            self.note_pong(node, packet, now);
        }
        let Some(sender) = sender else {
            return;
        };
        let node = self.nodes.get_mut(sender);
        node.flags = node.flags.put(
            NodeFlags::NO_FAILOVER,
            header.flags.any(NodeFlags::NO_FAILOVER),
        );
        if matches!(packet.body, Body::Ping(_)) && !self.nodes.get(sender).is(NodeFlags::HANDSHAKE)
        {
            self.update_address(sender, id, link, header);
        }
        self.note_role(sender, header);
        self.note_slots(sender, header, local);
        self.settle_collision(sender, header, now, local);
        for gossip in &news.gossip {
            self.take_gossip(sender, gossip, now, local);
        }
        self.take_extensions(sender, &news.extensions, now);
        if self.nodes.contains(sender) {
            self.note_notice(sender, notice_in(&news.extensions), now);
        }
    }

    /// Handles a node's reply (pong) over the link that this node opened.
    fn note_pong(&mut self, node: NodeRef, packet: &Packet, now: Millis) {
        if !matches!(packet.body, Body::Pong(_)) {
            return;
        }
        if !self.nodes.get(node).is_heard {
            self.nodes.hear(node);
            self.changed();
        }
        let answering = self.nodes.get_mut(node);
        answering.pong_received = now;
        answering.answered_at = now;
        answering.ping_sent = 0;
        if answering.is(NodeFlags::MAYBE_FAILED) {
            answering.flags.clear(NodeFlags::MAYBE_FAILED);
            self.changed();
            self.due.state = true;
        } else if answering.is(NodeFlags::FAILED) {
            self.forgive(node, now);
        }
    }

    /// Updates the address of a node, as seen in a packet over a link that the node has opened.
    fn update_address(&mut self, node: NodeRef, id: LinkId, link: &Link, header: &Header) {
        if self.nodes.get(node).link == Some(id) {
            return;
        }
        let address = self.address_of(link, header);
        if address.ip.is_empty() || self.nodes.get(node).address == address {
            return;
        }
        self.move_to(node, address);
        let moved = self.nodes.get(node);
        let text = format!(
            "Address updated for node {}, now {}:{}",
            moved.title(),
            moved.address.ip,
            moved.address.port
        );
        self.log_seldom("cluster-address", Level::Notice, text);
        self.due.state = true;
    }

    fn move_to(&mut self, node: NodeRef, address: NodeAddress) {
        self.drop_link(node);
        let moved = self.nodes.get_mut(node);
        moved.address = address;
        moved.flags.clear(NodeFlags::NO_ADDRESS);
        if self.my_primary() == Some(node) {
            self.follow_primary(node);
        }
        self.changed();
    }

    /// Updates the sender's role, and its primary.
    fn note_role(&mut self, sender: NodeRef, header: &Header) {
        let Some(primary) = header.primary else {
            return self.set_primary(sender);
        };
        if self.nodes.get(sender).is_primary() {
            self.take_all_slots(sender);
            self.nodes.get_mut(sender).demote();
            self.changed();
            self.due.state = true;
        }
        if let Some(primary) = self.nodes.find(&primary)
            && self.nodes.get(sender).primary != Some(primary)
            && primary != sender
        {
            self.nodes.follow(sender, Some(primary));
            let shard_id = self.nodes.get(primary).shard_id;
            self.set_shard(sender, shard_id);
            self.changed();
        }
    }

    /// Compares the slots that the sender claims with the known owners.
    fn note_slots(&mut self, sender: NodeRef, header: &Header, local: &dyn Local) {
        let Some(primary) = self.nodes.primary_of(sender) else {
            return;
        };
        if self.nodes.get(primary).slots == header.slots {
            return;
        }
        if self.nodes.get(sender).is_primary() {
            self.claim(sender, header.config_epoch, &header.slots, local);
        }
        self.tell_newer_claim(sender, header, local);
    }

    /// Handles what another node reports about a third one.
    fn take_gossip(&mut self, sender: NodeRef, gossip: &Gossip, now: Millis, local: &dyn Local) {
        let Some(node) = self.nodes.find(&gossip.node) else {
            if self.nodes.get(sender).is_heard {
                self.take_in(gossip, now);
            }
            return;
        };
        self.nodes.get_mut(node).told_at = now;
        let is_failing = gossip
            .flags
            .any(NodeFlags::FAILED.or(NodeFlags::MAYBE_FAILED));
        if self.nodes.get(sender).is_primary() && node != self.me {
            let reports = &mut self.nodes.get_mut(node).reports;
            if is_failing {
                if reports.insert(sender, now).is_none() {
                    self.log_report(sender, node, "as not reachable");
                }
                self.mark_failed_if_majority(node, now, local);
            } else if reports.remove(&sender).is_some() {
                self.log_report(sender, node, "is back online");
            }
        }
        let reports = self.count_reports(node, now);
        let known = self.nodes.get_mut(node);
        if !is_failing && known.ping_sent == 0 && reports == 0 {
            let pong = Millis::from(gossip.pong_received_s) * 1000;
            if pong <= now + CLOCK_TOLERANCE && pong > known.pong_received {
                known.pong_received = pong;
            }
        }
        if !known.is_reachable()
            && !is_failing
            && !gossip.flags.any(NodeFlags::NO_ADDRESS)
            && node != self.me
        {
            let address = NodeAddress::of_wire(&gossip.ip, gossip.ports, self.settings.tls_cluster);
            if known.address != address && !address.ip.is_empty() {
                self.move_to(node, address);
            }
        }
    }

    fn log_report(&mut self, sender: NodeRef, node: NodeRef, how: &str) {
        let (sender, node) = (self.nodes.get(sender).title(), self.nodes.get(node).title());
        let text = format!("Node {sender} reported node {node} {how}.");
        self.log(Level::Notice, text);
    }

    /// Adds a node that another node reports, unless it was forgotten, or too many known nodes have not replied yet.
    fn take_in(&mut self, gossip: &Gossip, now: Millis) {
        let is_forgotten = self
            .forgotten
            .get(&gossip.node)
            .is_some_and(|until| *until > now);
        let has_address = !gossip.flags.any(NodeFlags::NO_ADDRESS) && !gossip.ip.is_empty();
        if is_forgotten || !has_address || self.nodes.unheard() >= UNHEARD_MAX {
            return;
        }
        let flags = gossip.flags.and(TOLD);
        let shard_id = draw(&mut self.random);
        let mut node = ClusterNode::new(gossip.node, shard_id, flags, now);
        node.address = NodeAddress::of_wire(&gossip.ip, gossip.ports, self.settings.tls_cluster);
        if node.is(NodeFlags::FAILED) {
            node.failed_at = now;
        }
        self.nodes.add(node);
        self.changed();
    }

    fn take_extensions(&mut self, sender: NodeRef, extensions: &[Extension], now: Millis) {
        let (mut hostname, mut human_name, mut shard) = (String::new(), String::new(), None);
        let mut zone = String::new();
        for extension in extensions {
            match extension {
                Extension::Hostname(name) => hostname.clone_from(name),
                Extension::HumanName(name) => human_name.clone_from(name),
                Extension::ShardId(id) => shard = Some(*id),
                Extension::Zone(name) => zone.clone_from(name),
                Extension::Assembly(_) => {}
                Extension::Forgotten { node, ttl_ms } => {
                    self.forget_too(*node, now.saturating_add(*ttl_ms))
                }
            }
        }
        // One of the forgotten nodes may be the sender.
        if !self.nodes.contains(sender) {
            return;
        }
        let node = self.nodes.get_mut(sender);
        node.nameless_greetings = match shard {
            Some(_) => 0,
            None => node.nameless_greetings.saturating_add(1),
        };
        if node.hostname != hostname || node.human_name != human_name || node.zone != zone {
            node.hostname = hostname;
            node.human_name = human_name;
            node.zone = zone;
            self.changed();
        }
        let primary = self.nodes.primary_of(sender).unwrap_or(sender);
        let shard = shard.unwrap_or(self.nodes.get(primary).shard_id);
        self.set_shard(sender, shard);
    }

    /// Sets a node's shard, and this node's shard too if that node is its primary.
    fn set_shard(&mut self, node: NodeRef, shard_id: NodeId) {
        let mut of = vec![node];
        if self.my_primary() == Some(node) {
            of.push(self.me);
        }
        for node in of {
            if self.nodes.get(node).shard_id != shard_id {
                self.nodes.get_mut(node).shard_id = shard_id;
                self.changed();
            }
        }
    }

    /// Forgets a node that another node has forgotten, unless it is this one or its primary.
    fn forget_too(&mut self, id: NodeId, until: Millis) {
        if let Some(node) = self.nodes.find(&id)
            && node != self.me
            && self.my_primary() != Some(node)
        {
            self.forgotten.insert(id, until);
            self.give_up_plan_with(&id);
            self.forget(node);
        }
    }

    /// Handles the majority's verdict that a node has failed.
    fn take_verdict(&mut self, failed: NodeId, sender: NodeRef, now: Millis) {
        if let Some(node) = self.nodes.find(&failed)
            && !self
                .nodes
                .get(node)
                .is(NodeFlags::FAILED.or(NodeFlags::MYSELF))
        {
            let text = format!(
                "FAIL message received from {} about {}",
                self.nodes.get(sender).title(),
                self.nodes.get(node).title()
            );
            self.log(Level::Notice, text);
            self.set_failed(node, now);
        }
    }
}
