//! Periodic work, every tenth of a second: opening links, pinging nodes, raising suspicions, continuing failovers.

use super::{Level, Link, Machine, Millis, NodeRef};
use crate::cluster::flags::NodeFlags;
use crate::cluster::output::Output;
use crate::cluster::settings::Local;

/// Minimum time limit of a handshake in milliseconds; the limit is the node timeout if that is longer.
const HANDSHAKE_MIN: Millis = 1_000;

/// Node timeouts after which a node that has never replied is forgotten, if no other node mentions it meanwhile.
const HEARSAY_TIMEOUTS: u64 = 4;

/// Maximum number of nodes that a tick forgets because they have never replied.
const FORGETS_MAX: usize = 128;

/// Number of ticks between pings to a random node.
const PING_EVERY: u64 = 10;

/// Number of random nodes of which the one that was silent for the longest is pinged.
const PING_DRAWS: usize = 5;

/// Maximum number of links that a tick opens, so that a starting node does not connect to all at once.
const CONNECTS_MAX: usize = 128;

/// Milliseconds that a primary must be without replicas before a replica of another primary moves to it.
const MIGRATION_DELAY: Millis = 5_000;

/// Numbers of working replicas, by primary.
struct Replicas {
    of_mine: usize,
    most: usize,
    orphans: usize,
}

impl Machine {
    /// Does the periodic work; to be called every 100 milliseconds.
    pub fn tick(&mut self, now: Millis, local: &dyn Local) {
        self.ticks += 1;
        self.notice_stop(now);
        self.open_links(now);
        if self.ticks.is_multiple_of(PING_EVERY) {
            self.ping_one(now, local);
        }
        for node in self.nodes.refs() {
            self.watch(node, now, local);
        }
        self.follow_if_known();
        self.expire_manual_failover(now);
        if self.me().is_replica() {
            self.go_on_with_failover(now, local);
            let replicas = self.count_replicas();
            let may_leave =
                replicas.orphans > 0 && replicas.most >= 2 && replicas.of_mine == replicas.most;
            if may_leave && self.settings.allow_replica_migration {
                self.migrate(replicas.most, now);
            }
        }
        self.assemble(now, local);
        if !self.is_up() {
            self.due.state = true;
        }
        self.finish(now, Some(local));
    }

    /// Checks whether this process was stopped; to be called if the last tick is long ago, as a client's thread may
    /// run before the ticking thread.
    pub fn wake(&mut self, now: Millis, local: &dyn Local) {
        if self.ran_at.is_some() {
            self.notice_stop(now);
            self.finish(now, Some(local));
        }
    }

    fn open_links(&mut self, now: Millis) {
        let limit = self.settings.node_timeout.max(HANDSHAKE_MIN);
        let hearsay_limit = limit.saturating_mul(HEARSAY_TIMEOUTS);
        let (mut opened, mut forgotten) = (0, 0);
        for node in self.nodes.refs() {
            let known = self.nodes.get(node);
            if known.is(NodeFlags::MYSELF.or(NodeFlags::NO_ADDRESS)) {
                continue;
            }
            if known.is(NodeFlags::HANDSHAKE) && now.saturating_sub(known.created) > limit {
                self.forget(node);
                continue;
            }
            if forgotten < FORGETS_MAX
                && now.saturating_sub(known.told_at) > hearsay_limit
                && self.is_hearsay(node)
            {
                forgotten += 1;
                self.forget(node);
                continue;
            }
            if known.link.is_some() || opened == CONNECTS_MAX {
                continue;
            }
            opened += 1;
            let (ip, bus_port) = (known.address.ip.clone(), known.address.bus_port);
            let link = self.new_link(Link {
                node: Some(node),
                is_inbound: false,
                is_open: false,
                created: now,
                peer_ip: ip.clone(),
                local_ip: String::new(),
            });
            self.nodes.get_mut(node).link = Some(link);
            self.outputs.push(Output::Connect { link, ip, bus_port });
        }
    }

    /// Pings the node that was silent for the longest, of some random ones.
    fn ping_one(&mut self, now: Millis, local: &dyn Local) {
        let drawn: Vec<NodeRef> = (0..PING_DRAWS)
            .map(|_| self.nodes.random(&mut self.random))
            .collect();
        let is_free = |node: &NodeRef| {
            let node = self.nodes.get(*node);
            self.is_linked(node)
                && node.ping_sent == 0
                && !node.is(NodeFlags::MYSELF.or(NodeFlags::HANDSHAKE))
        };
        let free = drawn.into_iter().filter(is_free);
        if let Some(oldest) = free.min_by_key(|node| self.nodes.get(*node).pong_received) {
            self.ping_node(oldest, now, local);
        }
    }

    /// Pings a node when it is time, and suspects it if it does not reply.
    fn watch(&mut self, at: NodeRef, now: Millis, local: &dyn Local) {
        if !self.nodes.contains(at) {
            return;
        }
        let node = self.nodes.get(at);
        if node.is(NodeFlags::MYSELF
            .or(NodeFlags::NO_ADDRESS)
            .or(NodeFlags::HANDSHAKE))
        {
            return;
        }
        let timeout = self.settings.node_timeout;
        let ping_delay = now.saturating_sub(node.ping_sent);
        let data_delay = now.saturating_sub(node.data_received);
        let is_waiting = node.ping_sent != 0;
        // Notices of an unassembled node come whether or not it answers.
        let is_quiet = data_delay > timeout / 2 || self.is_unassembled();
        let is_silent = is_waiting && ping_delay > timeout / 2 && is_quiet;
        let link_created = node.link.map(|link| self.links[&link].created);
        if is_silent && link_created.is_some_and(|created| now.saturating_sub(created) > timeout) {
            // Possibly only the connection is broken: open a new one.
            self.drop_link(at);
        }
        let node = self.nodes.get(at);
        let interval = match self.settings.ping_interval {
            0 => timeout / 2,
            interval => interval,
        };
        let is_due = !is_waiting && now.saturating_sub(node.pong_received) > interval;
        let is_failing_over = self.me().is_primary() && self.manual.replica == Some(at);
        if node.link.is_some() && (is_due || is_failing_over) {
            return self.ping_node(at, now, local);
        }
        if !is_waiting || ping_delay.min(data_delay) <= timeout || !node.is_reachable() {
            return;
        }
        self.nodes.get_mut(at).flags.set(NodeFlags::MAYBE_FAILED);
        self.changed();
        self.due.state = true;
        if self.me().is_primary() && self.size == 1 {
            // This node is the only primary, so no other one can report the failure.
            self.mark_failed_if_majority(at, now, local);
        } else {
            let title = self.nodes.get(at).title();
            self.log(Level::Notice, format!("NODE {title} possibly failing."));
        }
    }

    /// Makes a replica follow its primary as soon as the primary's address is known.
    fn follow_if_known(&mut self) {
        if !self.is_following
            && let Some(primary) = self.my_primary()
            && !self.nodes.get(primary).is(NodeFlags::NO_ADDRESS)
        {
            self.follow_primary(primary);
        }
    }

    /// Counts the working replicas of each primary.
    fn working_replicas(&self) -> std::collections::BTreeMap<NodeRef, usize> {
        let mut counts = std::collections::BTreeMap::new();
        for (_, node) in self.nodes.iter() {
            if let Some(primary) = node.primary
                && !node.is(NodeFlags::FAILED)
            {
                *counts.entry(primary).or_default() += 1;
            }
        }
        counts
    }

    fn count_replicas(&self) -> Replicas {
        let counts = self.working_replicas();
        let working = |node: &NodeRef| counts.get(node).copied().unwrap_or(0);
        let primaries = self.nodes.iter().filter(|(_, node)| {
            node.is_primary()
                && !node.is(NodeFlags::FAILED
                    .or(NodeFlags::NO_ADDRESS)
                    .or(NodeFlags::HANDSHAKE))
        });
        let mut replicas = Replicas {
            of_mine: self.my_primary().map_or(0, |primary| working(&primary)),
            most: 0,
            orphans: 0,
        };
        for (at, node) in primaries {
            let count = working(&at);
            replicas.most = replicas.most.max(count);
            if count == 0 && node.slot_count > 0 && node.is(NodeFlags::MIGRATE_TO) {
                replicas.orphans += 1;
            }
        }
        replicas
    }

    /// Moves this replica to a primary without replicas, if this node is next among the replicas of the primary that
    /// has the most (`most`).
    fn migrate(&mut self, most: usize, now: Millis) {
        let Some(mine) = self.my_primary().filter(|_| self.is_up()) else {
            return;
        };
        let siblings = self.nodes.replicas_of(mine);
        let working = siblings
            .iter()
            .filter(|node| self.nodes.get(**node).is_reachable())
            .count();
        if working <= self.settings.migration_barrier as usize {
            return;
        }
        let counts = self.working_replicas();
        let mut target = None;
        for at in self.nodes.refs() {
            let count = counts.get(&at).copied().unwrap_or(0);
            let node = self.nodes.get_mut(at);
            let may_have =
                node.is_primary() && !node.is(NodeFlags::FAILED) && node.is(NodeFlags::MIGRATE_TO);
            if may_have && count == 0 {
                let since = *node.orphaned_since.get_or_insert(now);
                let is_ripe = node.slot_count > 0 && now.saturating_sub(since) > MIGRATION_DELAY;
                if is_ripe && target.is_none() {
                    target = Some(at);
                }
            } else {
                node.orphaned_since = None;
            }
        }
        let rich = counts
            .iter()
            .filter(|(_, count)| **count == most)
            .map(|(primary, _)| *primary);
        let candidates = rich.flat_map(|primary| self.nodes.replicas_of(primary));
        let candidate = candidates.min_by_key(|node| self.nodes.get(*node).id);
        if let Some(target) = target.filter(|_| candidate == Some(self.me)) {
            let id = self.nodes.get(target).id;
            self.log(Level::Notice, format!("Migrating to orphaned master {id}"));
            self.replicate(target);
        }
    }
}
