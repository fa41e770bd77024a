//! Nodes that do not answer: this node's suspicion, the majority's verdict, and whether the cluster can serve.

use super::{Level, Machine, Millis, NodeRef};
use crate::base::hash::SLOTS;
use crate::cluster::flags::NodeFlags;
use crate::cluster::packet::Body;
use crate::cluster::settings::Local;

/// Node timeouts that a report of a failure counts for.
const REPORT_VALIDITY: u64 = 2;

/// Node timeouts after which a primary that answers again has failed no longer, if its slots are still its own.
const UNDO_AFTER: u64 = 2;

/// A primary that has just started serves after so many milliseconds at the earliest: others may have its slots by now.
const WRITABLE_DELAY: Millis = 2_000;

/// Bounds of the time that a primary waits after it was in a minority, by milliseconds; the node timeout between.
const REJOIN_DELAY: (Millis, Millis) = (500, 5_000);

impl Machine {
    pub(super) fn count_reports(&mut self, node: NodeRef, now: Millis) -> usize {
        let validity = self.settings.node_timeout.saturating_mul(REPORT_VALIDITY);
        self.nodes.get_mut(node).failure_reports(now, validity)
    }

    /// Holds a node to have failed if the majority of primaries cannot reach it, and tells everybody.
    pub(super) fn judge(&mut self, node: NodeRef, now: Millis, local: &dyn Local) {
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

    /// A node answers again. A replica is well at once; a primary is when its slots are still its own after a time.
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

    /// Looks at who can be reached, and says whether the cluster can serve.
    pub(super) fn judge_state(&mut self, now: Millis) {
        let voters = || {
            self.nodes
                .iter()
                .filter(|(_, node)| node.is_primary() && node.slot_count > 0)
        };
        let reachable = voters().filter(|(_, node)| node.is_reachable()).count();
        self.size = voters().count();
        let first_look = *self.first_look.get_or_insert(now);
        let is_primary = self.me().is_primary();
        if is_primary && !self.is_up && now.saturating_sub(first_look) < WRITABLE_DELAY {
            return;
        }
        let is_covered = !self.settings.require_full_coverage
            || (0..SLOTS).all(|slot| {
                let owner = self.nodes.owner(slot);
                owner.is_some_and(|owner| !self.nodes.get(owner).is(NodeFlags::FAILED))
            });
        let is_majority = reachable >= self.quorum();
        if !is_majority {
            self.in_minority_at = Some(now);
        }
        let is_up = is_covered && is_majority;
        if is_up == self.is_up {
            return;
        }
        let (least, most) = REJOIN_DELAY;
        let delay = self.settings.node_timeout.clamp(least, most);
        let was_cut_off = self
            .in_minority_at
            .is_some_and(|at| now.saturating_sub(at) < delay);
        if is_up && is_primary && was_cut_off {
            return;
        }
        self.is_up = is_up;
        self.due.map = true;
        let (level, word) = match is_up {
            true => (Level::Notice, "ok"),
            false => (Level::Warning, "fail"),
        };
        self.log(level, format!("Cluster state changed: {word}"));
    }
}
