//! The state machine: its state, and the calls that change it. After each call the driver (the code with sockets and
//! files) carries out [`Machine::outputs`].
//!
//! ```text
//! node       one node
//! nodes      all nodes, and the owners of slots
//! sending    building and sending packets, including gossip
//! receiving  handling received packets
//! claims     changes of slot ownership, and epochs
//! failing    nodes that do not reply, and whether the cluster is up
//! election   promotion of replicas, and votes
//! ticking    periodic work, every tenth of a second
//! changing   changes that CLUSTER requests
//! assembling a new cluster that its nodes assemble themselves (`cluster-size`)
//! strangers  nodes that are not accepted, because they belong to another cluster
//! promises   state that must be on disk before others learn of it
//! views      views of the state: the map, the saved state
//! ```

mod assembling;
mod changing;
mod claims;
mod election;
mod failing;
mod node;
mod nodes;
mod promises;
mod receiving;
mod sending;
mod strangers;
mod ticking;
mod views;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::assembling::Assembly;
use self::election::{Election, Manual};
use self::node::{ClusterNode, NodeAddress, NodeRef};
use self::nodes::Nodes;
use self::promises::Promises;
use super::Millis;
use super::down::Down;
use super::flags::NodeFlags;
use super::kind::KINDS;
use super::node_id::NodeId;
use super::output::{Level, LinkId, Output};
use super::packet::Message;
use super::saved::Saved;
use super::settings::{ClusterSettings, Local};
use super::slot_set::SlotSet;
use basalt_core::base::hash::digest;
use basalt_core::base::random::Random;

/// Maximum number of handshakes at once: a peer that is no node may announce any number of addresses.
const HANDSHAKES_MAX: usize = 1_024;

/// One node's knowledge of the cluster, see the module.
pub struct Machine {
    settings: ClusterSettings,
    random: Random,
    nodes: Nodes,
    me: NodeRef,
    current_epoch: u64,
    last_vote_epoch: u64,
    /// Slots whose owner has stopped claiming them, so that another node may claim them without a greater epoch.
    unclaimed: SlotSet,
    migrating: BTreeMap<u16, NodeRef>,
    importing: BTreeMap<u16, NodeRef>,
    /// Forgotten nodes, each with the time from which it is accepted again.
    forgotten: BTreeMap<NodeId, Millis>,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    /// The reason why this node does not serve requests; None if it does.
    down: Option<Down>,
    size: usize,
    first_look: Option<Millis>,
    in_minority_at: Option<Millis>,
    /// When saving the state to nodes.conf first failed; None while it can be saved. While it cannot, this node sends
    /// nothing.
    unsaved_since: Option<Millis>,
    /// Whether nothing could be saved, and so nothing be sent, for longer than a node timeout.
    is_missed: bool,
    /// Time of the last tick, when this process was seen to run.
    ran_at: Option<Millis>,
    /// When the process resumed after it was stopped for longer than the node timeout, and how long it was stopped;
    /// None once the majority has replied since.
    woken: Option<(Millis, Millis)>,
    election: Election,
    manual: Manual,
    assembly: Assembly,
    ticks: u64,
    /// Whether the server replicates from the primary that this state machine determined.
    is_following: bool,
    due: DeferredTasks,
    /// Outputs of the call that is in progress.
    outputs: Vec<Output>,
    promises: Promises,
    /// Finished outputs, which the driver has yet to carry out.
    ready: Vec<Output>,
    sent: [u64; KINDS],
    received: [u64; KINDS],
}

/// A connection of the bus.
#[derive(Clone, Debug)]
struct Link {
    /// The node at the other end, if it is known.
    node: Option<NodeRef>,
    is_inbound: bool,
    is_open: bool,
    created: Millis,
    /// Address of the other end.
    peer_ip: String,
    /// Address of this end.
    local_ip: String,
}

/// Work to be done at the end of a call, once.
#[derive(Clone, Copy, Default)]
struct DeferredTasks {
    save: bool,
    save_soon: bool,
    state: bool,
    failover: bool,
    map: bool,
}

impl Machine {
    /// Creates a node without other nodes, or from its saved state; all randomness depends on `seed`.
    ///
    /// # Errors
    ///
    /// Returns an error if no node in `saved` is this node.
    pub fn new(
        settings: ClusterSettings,
        saved: Option<Saved>,
        seed: u64,
        now: Millis,
    ) -> Result<Machine, String> {
        let mut random = Random::new(seed);
        let is_new = saved.is_none();
        let mut nodes = Nodes::new();
        let me = match &saved {
            None => {
                let flags = NodeFlags::MYSELF.or(NodeFlags::PRIMARY);
                let mut node = ClusterNode::new(draw(&mut random), draw(&mut random), flags, now);
                node.is_heard = true;
                nodes.add(node)
            }
            Some(saved) => views::restore(&mut nodes, saved, &mut random, now),
        };
        let me = me.ok_or("no node in it is this node (myself)")?;
        let saved = saved.unwrap_or_default();
        let places = |slots: &BTreeMap<u16, NodeId>| {
            let known = slots
                .iter()
                .filter_map(|(slot, id)| Some((*slot, nodes.find(id)?)));
            known.collect()
        };
        let (migrating, importing) = (places(&saved.migrating), places(&saved.importing));
        let mut machine = Machine {
            settings: settings.clone(),
            random,
            nodes,
            me,
            current_epoch: saved.current_epoch,
            last_vote_epoch: saved.last_vote_epoch,
            unclaimed: SlotSet::default(),
            migrating,
            importing,
            forgotten: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            down: Some(Down::Starting),
            size: 0,
            first_look: None,
            in_minority_at: None,
            unsaved_since: None,
            is_missed: false,
            ran_at: None,
            woken: None,
            election: Election::default(),
            manual: Manual::default(),
            assembly: Assembly::new(saved.assembly, digest(&seed.to_le_bytes())),
            ticks: 0,
            is_following: false,
            due: DeferredTasks::default(),
            outputs: Vec::new(),
            promises: Promises::default(),
            ready: Vec::new(),
            sent: [0; KINDS],
            received: [0; KINDS],
        };
        let greatest = machine
            .nodes
            .iter()
            .map(|(_, node)| node.config_epoch)
            .max();
        machine.current_epoch = machine.current_epoch.max(greatest.unwrap_or(0));
        machine.apply(settings);
        // Save a new ID, as it must stay the same at the next start.
        machine.due.save = is_new;
        machine.update_cluster_state(now);
        machine.finish(now, None);
        Ok(machine)
    }

    /// Removes and returns the outputs since the last call, in order.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.ready)
    }

    /// Applies new settings.
    pub fn settings(&mut self, settings: ClusterSettings, now: Millis, local: &dyn Local) {
        self.apply(settings);
        self.due.state = true;
        self.finish(now, Some(local));
    }

    fn apply(&mut self, settings: ClusterSettings) {
        let announced_before = std::mem::replace(&mut self.settings, settings).announce_ip;
        let settings = self.settings.clone();
        let me = self.nodes.get_mut(self.me);
        let before = (
            me.address.clone(),
            me.hostname.clone(),
            me.human_name.clone(),
            me.zone.clone(),
            me.flags,
        );
        if !settings.announce_ip.is_empty() {
            me.address.ip = settings.announce_ip;
        } else if !announced_before.is_empty() {
            // The address that other nodes see is determined anew.
            me.address.ip = String::new();
        }
        me.address.port = settings.port;
        me.address.tls_port = settings.tls_port;
        me.address.bus_port = settings.bus_port;
        me.hostname = settings.hostname;
        me.human_name = settings.human_name;
        me.zone = settings.zone;
        me.flags = me
            .flags
            .put(NodeFlags::NO_FAILOVER, settings.replica_no_failover);
        if before
            != (
                me.address.clone(),
                me.hostname.clone(),
                me.human_name.clone(),
                me.zone.clone(),
                me.flags,
            )
        {
            self.changed();
        }
    }

    /// Registers a link that another node has opened, with the addresses of both ends.
    pub fn accepted(&mut self, peer_ip: &str, local_ip: &str, now: Millis) -> LinkId {
        self.new_link(Link {
            node: None,
            is_inbound: true,
            is_open: true,
            created: now,
            peer_ip: peer_ip.to_owned(),
            local_ip: local_ip.to_owned(),
        })
    }

    fn new_link(&mut self, link: Link) -> LinkId {
        let id = LinkId(self.next_link);
        self.next_link += 1;
        self.links.insert(id, link);
        id
    }

    /// Handles the opening of a link that [`Output::Connect`] requested.
    pub fn opened(
        &mut self,
        link: LinkId,
        peer_ip: &str,
        local_ip: &str,
        now: Millis,
        local: &dyn Local,
    ) {
        let Some(found) = self.links.get_mut(&link) else {
            return self.ready.push(Output::Close(link));
        };
        found.is_open = true;
        peer_ip.clone_into(&mut found.peer_ip);
        local_ip.clone_into(&mut found.local_ip);
        if let Some(node) = found.node {
            self.greet(link, node, now, local);
        }
        self.finish(now, Some(local));
    }

    /// Handles a link that was closed, or could not be opened.
    pub fn closed(&mut self, link: LinkId) {
        let Some(Link {
            node: Some(node), ..
        }) = self.links.remove(&link)
        else {
            return;
        };
        let node = self.nodes.get_mut(node);
        if node.link == Some(link) {
            node.link = None;
        }
        if node.inbound == Some(link) {
            node.inbound = None;
        }
    }

    /// Records whether [`Output::Save`] fails. While it fails, nothing is sent. After a node timeout the other nodes
    /// then consider this node failed, although it still hears from them, so it stops serving.
    pub fn note_unsaved(&mut self, is_unsaved: bool, now: Millis) {
        let since = is_unsaved.then(|| self.unsaved_since.unwrap_or(now));
        self.unsaved_since = since;
        let timeout = self.settings.node_timeout;
        let is_missed = since.is_some_and(|since| now.saturating_sub(since) > timeout);
        if is_missed != self.is_missed {
            self.is_missed = is_missed;
            self.due.state = true;
        }
    }

    /// Publishes a message to subscribers on other nodes: on all nodes, or (`is_shard`) only on those of this shard.
    pub fn publish(&mut self, message: Message, is_shard: bool, local: &dyn Local) {
        self.send_message(message, is_shard, local);
        self.release(false);
    }

    /// Does the remaining work of a call, and releases its outputs.
    fn finish(&mut self, now: Millis, local: Option<&dyn Local>) {
        if let Some(local) = local {
            if std::mem::take(&mut self.due.failover) {
                self.go_on_with_failover(now, local);
            }
            if std::mem::take(&mut self.due.state) {
                self.update_cluster_state(now);
            }
        }
        let due = std::mem::take(&mut self.due);
        let has_changed = self.nodes.take_change();
        if due.save_soon && !due.save {
            self.outputs.push(Output::SaveSoon);
        }
        if due.save || due.save_soon || due.map || has_changed {
            self.outputs.push(Output::Publish);
        }
        self.release(due.save);
    }

    /// Marks that something has changed that other nodes, or this node after a restart, should know. nodes.conf is
    /// written soon; a change that a crash loses before is known to other nodes, or the client can request it again.
    fn changed(&mut self) {
        self.due.save_soon = true;
        self.due.map = true;
    }

    /// Marks that a promise was made: this node gave a vote, or has a new epoch or ID. nodes.conf is written before
    /// other nodes learn of the promise.
    fn changed_for_good(&mut self) {
        self.due.save = true;
        self.due.map = true;
    }

    fn log(&mut self, level: Level, text: impl Into<String>) {
        self.outputs.push(Output::Log(level, text.into()));
    }

    /// Logs a line that another node can cause any number of times; lines of the same kind are rate-limited.
    fn log_seldom(&mut self, kind: &'static str, level: Level, text: impl Into<String>) {
        self.outputs
            .push(Output::LogSeldom(kind, level, text.into()));
    }

    fn me(&self) -> &ClusterNode {
        self.nodes.get(self.me)
    }

    /// Returns the primary that this node follows, if it is a replica and knows it.
    fn my_primary(&self) -> Option<NodeRef> {
        let me = self.me();
        me.primary.filter(|_| me.is_replica())
    }

    /// Whether the link that this node opens to another node is open.
    fn is_linked(&self, node: &ClusterNode) -> bool {
        let link = node.link.and_then(|link| self.links.get(&link));
        link.is_some_and(|link| link.is_open)
    }

    fn quorum(&self) -> usize {
        self.size / 2 + 1
    }

    /// Closes the link that this node has opened to another node.
    fn drop_link(&mut self, node: NodeRef) {
        if let Some(link) = self.nodes.get_mut(node).link.take() {
            self.links.remove(&link);
            self.outputs.push(Output::Close(link));
        }
    }

    /// Forgets a node and everything that refers to it.
    fn forget(&mut self, node: NodeRef) {
        self.take_all_slots(node);
        self.migrating.retain(|_, to| *to != node);
        self.importing.retain(|_, from| *from != node);
        if self.manual.replica == Some(node) {
            self.end_manual_failover();
        }
        for link in self.links_of(node) {
            self.links.remove(&link);
            self.outputs.push(Output::Close(link));
        }
        self.nodes.remove(node);
        self.changed();
        self.due.state = true;
    }

    fn links_of(&self, node: NodeRef) -> Vec<LinkId> {
        let links = self
            .links
            .iter()
            .filter(|(_, link)| link.node == Some(node));
        links.map(|(id, _)| *id).collect()
    }

    /// Whether a node has never replied, and no confirmed state refers to it, so that it is known by hearsay only.
    fn is_hearsay(&self, at: NodeRef) -> bool {
        let node = self.nodes.get(at);
        let is_needed = node.slot_count > 0
            || self.my_primary() == Some(at)
            || self.migrating.values().any(|to| *to == at)
            || self.importing.values().any(|from| *from == at);
        !node.is_heard && !is_needed
    }

    /// Starts a handshake with a node at an address; returns false if one is already under way. If there are too many
    /// handshakes, the one that has been silent for the longest is dropped.
    fn shake_hands(
        &mut self,
        address: NodeAddress,
        flags: NodeFlags,
        is_by_hand: bool,
        now: Millis,
    ) -> bool {
        let begun = || {
            let nodes = self.nodes.iter();
            nodes.filter(|(_, node)| node.is(NodeFlags::HANDSHAKE))
        };
        if begun().any(|(_, node)| node.address == address) {
            return false;
        }
        if begun().count() >= HANDSHAKES_MAX
            && let Some((oldest, _)) = begun().min_by_key(|(_, node)| node.created)
        {
            self.forget(oldest);
        }
        let (id, shard_id) = (draw(&mut self.random), draw(&mut self.random));
        let mut node = ClusterNode::new(id, shard_id, NodeFlags::HANDSHAKE.or(flags), now);
        node.address = address;
        node.is_met_by_hand = is_by_hand;
        self.nodes.add(node).is_some()
    }
}

/// Generates a random ID.
fn draw(random: &mut Random) -> NodeId {
    let mut bytes = [0; 20];
    for chunk in bytes.chunks_mut(4) {
        chunk.copy_from_slice(&random.next_u64().to_le_bytes()[..4]);
    }
    NodeId::from_random(bytes)
}
