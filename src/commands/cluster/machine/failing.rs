//! Nodes that do not reply: this node's suspicion, the majority's verdict, and whether the cluster can serve.

use super::{Level, Machine, Millis, NodeRef, SlotSet};
use crate::cluster::down::Down;
use crate::cluster::flags::NodeFlags;
use crate::cluster::packet::Body;
use crate::cluster::settings::Local;
use basalt_core::base::hash::SLOTS;

/// Node timeouts for which a failure report is valid.
const REPORT_VALIDITY: u64 = 2;

/// Node timeouts after which a failed primary that replies again is considered alive, if no other node has taken over
/// its slots.
const UNDO_AFTER: u64 = 2;

/// Minimum milliseconds before a primary that has just started serves requests: other nodes may own its slots by now.
const WRITABLE_DELAY: Millis = 2_000;

/// Minimum milliseconds without a tick after which this process is considered to have been stopped.
const STOPPED_MIN: Millis = 1_000;

/// Minimum and maximum milliseconds that a primary waits before serving again after it was in a minority; the node
/// timeout if it is between these.
const REJOIN_DELAY: (Millis, Millis) = (500, 5_000);

impl Machine {
    pub(super) fn count_reports(&mut self, node: NodeRef, now: Millis) -> usize {
        let validity = self.settings.node_timeout.saturating_mul(REPORT_VALIDITY);
        self.nodes.get_mut(node).failure_reports(now, validity)
    }

    /// Marks a node as failed if the majority of primaries cannot reach it, and announces it to all nodes.
    pub(super) fn mark_failed_if_majority(
        &mut self,
        node: NodeRef,
        now: Millis,
        local: &dyn Local,
    ) {
        let suspect = self.nodes.get(node);
        if !suspect.is(NodeFlags::MAYBE_FAILED) || suspect.is(NodeFlags::FAILED) {
            return;
        }
        let own = usize::from(self.me().is_primary());
        if self.count_reports(node, now) + own < self.quorum() {
            return;
        }
        let title = self.nodes.get(node).title();
        self.log(
            Level::Notice,
            format!("Marking node {title} as failing (quorum reached)."),
        );
        self.set_failed(node, now);
        let id = self.nodes.get(node).id;
        self.broadcast(Body::Fail(id), local);
    }

    pub(super) fn set_failed(&mut self, node: NodeRef, now: Millis) {
        let failed = self.nodes.get_mut(node);
        failed.flags.clear(NodeFlags::MAYBE_FAILED);
        failed.flags.set(NodeFlags::FAILED);
        failed.failed_at = now;
        self.changed();
        self.due.state = true;
    }

    /// Handles a node that replies again. A replica is considered alive at once; a primary only if it still owns its
    /// slots after some time.
    pub(super) fn forgive(&mut self, node: NodeRef, now: Millis) {
        let undo_after = self.settings.node_timeout.saturating_mul(UNDO_AFTER);
        let failed = self.nodes.get_mut(node);
        let has_slots = failed.is_primary() && failed.slot_count > 0;
        let why = if failed.is_replica() {
            "replica is reachable again"
        } else if !has_slots {
            "master without slots is reachable again"
        } else if now.saturating_sub(failed.failed_at) > undo_after {
            "is reachable again and nobody is serving its slots after some time"
        } else {
            return;
        };
        failed.flags.clear(NodeFlags::FAILED);
        let title = failed.title();
        self.log(
            Level::Notice,
            format!("Clear FAIL state for node {title}: {why}."),
        );
        self.changed();
        self.due.state = true;
    }

    /// Returns after how many milliseconds without a tick this process is considered to have been stopped. The limit
    /// is generous, as a thread may be late by some ticks.
    pub fn stopped_after(&self) -> Millis {
        self.settings.node_timeout.max(STOPPED_MIN)
    }

    /// Checks whether this node was stopped for longer than the node timeout, as by SIGSTOP or a suspended host. If
    /// so, a primary does not serve until the majority has replied: another node may have been promoted meanwhile.
    pub(super) fn notice_stop(&mut self, now: Millis) {
        let millis = self
            .ran_at
            .replace(now)
            .map_or(0, |ran_at| now.saturating_sub(ran_at));
        if millis <= self.stopped_after() || !self.me().is_primary() {
            return;
        }
        self.log(
            Level::Warning,
            format!(
                "This node was stopped for {millis} milliseconds, longer than the node timeout"
            ),
        );
        self.woken = Some((now, millis));
        // Data waiting in old links were sent before the stop: only replies to pings sent from now on count.
        for node in self.nodes.refs() {
            self.drop_link(node);
        }
        self.update_cluster_state(now);
    }

    /// Checks which nodes are reachable, and decides whether the cluster can serve.
    pub(super) fn update_cluster_state(&mut self, now: Millis) {
        let voters = self.nodes.iter().filter(|(_, node)| node.is_voter());
        self.size = voters.count();
        let first_look = *self.first_look.get_or_insert(now);
        let is_primary = self.me().is_primary();
        if is_primary && !self.is_up() && now.saturating_sub(first_look) < WRITABLE_DELAY {
            return;
        }
        let mut down = self.why_down();
        if let Some(Down::Slept { .. } | Down::Minority { .. } | Down::Unsaved) = down {
            self.in_minority_at = Some(now);
        }
        let (least, most) = REJOIN_DELAY;
        let delay = self.settings.node_timeout.clamp(least, most);
        let was_cut_off = self
            .in_minority_at
            .is_some_and(|at| now.saturating_sub(at) < delay);
        if down.is_none() && !self.is_up() && is_primary && was_cut_off {
            down = Some(Down::Rejoining);
        }
        if down == self.down {
            return;
        }
        let was_up = self.is_up();
        match &down {
            None => self.log(Level::Notice, "Cluster state changed: ok"),
            Some(why) if was_up => {
                let text = format!("Cluster state changed: fail: {why}");
                self.log(Level::Warning, text);
            }
            Some(_) => {}
        }
        self.down = down;
        self.due.map = true;
    }

    /// Returns the reason why this node cannot serve, as far as it knows the others.
    fn why_down(&mut self) -> Option<Down> {
        let needed = self.quorum();
        let woken_at = self.woken.map_or(0, |(at, _)| at);
        let (mut reachable, mut heard) = (0, 0);
        for (at, node) in self.nodes.iter().filter(|(_, node)| node.is_voter()) {
            if node.is_reachable() {
                reachable += 1;
                heard += usize::from(at == self.me || node.answered_at >= woken_at);
            }
        }
        if heard >= needed || !self.me().is_primary() {
            self.woken = None;
        }
        if let Some((_, millis)) = self.woken {
            return Some(Down::Slept {
                millis,
                heard,
                needed,
            });
        }
        let is_minority = reachable < needed;
        if self.is_missed && self.size > 1 || is_minority && self.unsaved_since.is_some() {
            return Some(Down::Unsaved);
        }
        if is_minority {
            return Some(Down::Minority { reachable, needed });
        }
        if !self.settings.require_full_coverage {
            return None;
        }
        let is_served = |slot: &u16| {
            let owner = self.nodes.owner(*slot);
            owner.is_some_and(|owner| !self.nodes.get(owner).is(NodeFlags::FAILED))
        };
        let uncovered: SlotSet = (0..SLOTS).filter(|slot| !is_served(slot)).collect();
        (!uncovered.is_empty()).then_some(Down::Uncovered(uncovered))
    }
}
