//! Promotion of replicas: by election when their primary has failed, by graceful failover in agreement with it, by
//! force; and the votes of this node.

use std::collections::BTreeSet;

use super::node::ClusterNode;
use super::sending::{Greeting, PongTargets};
use super::{Level, LinkId, Machine, Millis, NodeRef};
use crate::cluster::flags::NodeFlags;
use crate::cluster::output::Output;
use crate::cluster::packet::{Body, Header};
use crate::cluster::settings::Local;

/// The primary pauses writes for the time that the failover may take, multiplied by this, so that the new primary's
/// claim can arrive.
const PAUSE_FACTOR: u64 = 2;

/// Time limit of an election, in node timeouts.
const ELECTION_TIMEOUT: u64 = 2;

/// Minimum time limit of an election, in milliseconds.
const ELECTION_MIN: Millis = 2_000;

/// Another election starts after this many time limits.
const RETRY_FACTOR: u64 = 2;

/// Milliseconds before an election, so that all nodes learn that the primary has failed; a random delay of up to as
/// much is added.
const ELECTION_DELAY: Millis = 500;

/// Additional milliseconds for each replica of the shard that has a greater replication offset.
const RANK_DELAY: Millis = 1_000;

/// Additional milliseconds for each other shard without a primary that is ordered before this one, so that not all
/// elections collide.
const SHARD_RANK_DELAY: Millis = 500;

/// Milliseconds after which a manual failover requests missing votes again.
const ASK_AGAIN: Millis = 250;

/// Node timeouts that must pass between votes for different replicas of one primary.
const VOTE_INTERVAL: u64 = 2;

/// Milliseconds after which the reason against a failover is logged again.
const RELOG_INTERVAL: Millis = 10_000;

/// Milliseconds without a primary, besides the node timeout, before the reason against a failover is logged.
const NO_FAILOVER_LOG_AFTER: Millis = 5_000;

/// A candidacy of this node for promotion.
#[derive(Clone, Debug, Default)]
pub(super) struct Election {
    /// The time at which votes are requested.
    at: Millis,
    /// The nodes that voted for this node: a vote counts once, even if it arrives twice.
    voters: BTreeSet<NodeRef>,
    has_asked_for_votes: bool,
    /// The time at which votes were last requested.
    asked_at: Millis,
    rank: u64,
    epoch: u64,
    hindrance: Option<Hindrance>,
    logged_at: Millis,
}

/// The reason why a replica is not promoted in place of its failed primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hindrance {
    DataAge,
    Delay,
    Expired,
    Votes,
}

impl Hindrance {
    fn text(self) -> &'static str {
        match self {
            Hindrance::DataAge => {
                "Disconnected from master for longer than allowed. \
                 Please check the 'cluster-replica-validity-factor' configuration option."
            }
            Hindrance::Delay => "Waiting the delay before I can start a new failover.",
            Hindrance::Expired => "Failover attempt expired.",
            Hindrance::Votes => "Waiting for votes, but majority still not reached.",
        }
    }
}

/// State of a manual failover, on the replica or on the primary.
#[derive(Clone, Debug, Default)]
pub(super) struct Manual {
    /// The time at which the manual failover is given up; None: no such failover is in progress.
    pub(super) until: Option<Millis>,
    /// Whether the replica has the whole stream of its primary, or need not have it.
    pub(super) may_start: bool,
    /// The replica for which the primary has paused writes.
    pub(super) replica: Option<NodeRef>,
    /// The final offset of the stream, once the primary has paused writes.
    pub(super) final_offset: Option<u64>,
}

impl Machine {
    /// Counts a vote for this node.
    pub(super) fn count_vote(&mut self, voter: NodeRef, header: &Header) {
        let node = self.nodes.get(voter);
        let is_of_now =
            self.election.has_asked_for_votes && header.current_epoch >= self.election.epoch;
        if is_of_now && node.is_primary() && node.slot_count > 0 {
            self.election.voters.insert(voter);
            self.due.failover = true;
        }
    }

    /// Votes for a replica, if that is permitted. A node gives one vote per epoch, and saves it before sending it.
    pub(super) fn consider_vote(
        &mut self,
        replica: NodeRef,
        request: &Header,
        now: Millis,
        local: &dyn Local,
    ) {
        if !self.me().is_primary() || self.me().slot_count == 0 {
            return;
        }
        let title = self.nodes.get(replica).title();
        match self.objection(replica, request, now) {
            Some(why) => {
                self.log_seldom(
                    "cluster-vote-denied",
                    Level::Warning,
                    format!("Failover auth denied to {title}: {why}"),
                );
                // The replica may request the vote again after it has learned the owner.
                self.tell_newer_claim(replica, request, local);
            }
            None => {
                self.last_vote_epoch = self.current_epoch;
                if let Some(primary) = self.nodes.get(replica).primary {
                    self.nodes.get_mut(primary).voted_at = Some(now);
                }
                self.changed_for_good();
                self.send_to(replica, Body::Vote, local);
                let epoch = self.current_epoch;
                self.log(
                    Level::Notice,
                    format!("Failover auth granted to {title} for epoch {epoch}"),
                );
            }
        }
    }

    fn objection(&self, replica: NodeRef, request: &Header, now: Millis) -> Option<String> {
        let node = self.nodes.get(replica);
        if request.current_epoch < self.current_epoch {
            let (asked, current) = (request.current_epoch, self.current_epoch);
            return Some(format!("reqEpoch ({asked}) < curEpoch({current})"));
        }
        if self.last_vote_epoch == self.current_epoch {
            return Some(format!("already voted for epoch {}", self.current_epoch));
        }
        if node.is_primary() {
            return Some("it is a master node".to_owned());
        }
        let Some(primary) = node.primary else {
            return Some("I don't know its master".to_owned());
        };
        let primary = self.nodes.get(primary);
        if !primary.is(NodeFlags::FAILED) && !request.is_forced {
            return Some("its master is up".to_owned());
        }
        let interval = self.settings.node_timeout.saturating_mul(VOTE_INTERVAL);
        if let Some(at) = primary.voted_at
            && now.saturating_sub(at) < interval
        {
            let left = interval - now.saturating_sub(at);
            return Some(format!(
                "can't vote about this master before {left} milliseconds"
            ));
        }
        let newer = |slot: &u16| self.is_claimed_after(*slot, request.config_epoch).is_some();
        let slot = request.slots.iter().find(newer)?;
        let owner = self.nodes.get(self.nodes.owner(slot)?);
        Some(format!(
            "slot {slot} epoch ({}) > reqEpoch ({})",
            owner.config_epoch, request.config_epoch
        ))
    }

    /// Counts the replicas of the shard that have a greater replication offset than this one.
    fn rank(&self, offset: u64) -> u64 {
        let Some(primary) = self.my_primary() else {
            return 0;
        };
        let siblings = self
            .nodes
            .replicas_of(primary)
            .into_iter()
            .filter(|node| *node != self.me);
        let siblings = siblings.map(|node| self.nodes.get(node));
        let ahead =
            siblings.filter(|node| !node.is(NodeFlags::NO_FAILOVER) && node.offset > offset);
        ahead.count() as u64
    }

    /// Counts the other shards that have lost their primary and are ordered before this one.
    fn shard_rank(&self) -> u64 {
        let own = self.me().shard_id;
        let failed = self.nodes.iter().filter(|(_, node)| {
            node.is_primary()
                && node.slot_count > 0
                && node.is(NodeFlags::FAILED)
                && node.shard_id < own
        });
        failed.count() as u64
    }

    /// Continues a failover, if this node is a replica that should be promoted.
    pub(super) fn go_on_with_failover(&mut self, now: Millis, local: &dyn Local) {
        if let Some(primary) = self.my_primary() {
            self.compare_offsets(local);
            self.stand_for_election(primary, now, local);
        }
    }

    fn stand_for_election(&mut self, primary: NodeRef, now: Millis, local: &dyn Local) {
        let is_manual = self.manual.until.is_some() && self.manual.may_start;
        let failed = self.nodes.get(primary);
        let is_wanted = failed.is(NodeFlags::FAILED) && !self.settings.replica_no_failover;
        if failed.slot_count == 0 || !(is_wanted || is_manual) {
            self.election.hindrance = None;
            return;
        }
        if !is_manual && self.is_outdated(local) {
            return self.hinder(Hindrance::DataAge, primary, now);
        }
        let timeout = self
            .settings
            .node_timeout
            .saturating_mul(ELECTION_TIMEOUT)
            .max(ELECTION_MIN);
        if now.saturating_sub(self.election.at) > timeout.saturating_mul(RETRY_FACTOR) {
            return self.schedule_election(now, local);
        }
        if !self.election.has_asked_for_votes && self.manual.until.is_none() {
            let rank = self.rank(local.offset());
            if rank > self.election.rank {
                let more = (rank - self.election.rank) * RANK_DELAY;
                self.election.at += more;
                self.election.rank = rank;
                let text =
                    format!("Replica rank updated to #{rank}, added {more} milliseconds of delay.");
                self.log(Level::Notice, text);
            }
        }
        if now < self.election.at {
            return self.hinder(Hindrance::Delay, primary, now);
        }
        if now - self.election.at > timeout {
            return self.hinder(Hindrance::Expired, primary, now);
        }
        if !self.election.has_asked_for_votes {
            self.current_epoch = self.current_epoch.saturating_add(1);
            let epoch = self.current_epoch;
            self.election.epoch = epoch;
            self.election.has_asked_for_votes = true;
            self.log(
                Level::Notice,
                format!("Starting a failover election for epoch {epoch}."),
            );
            self.election.asked_at = now;
            self.ask_for_votes(self.manual.until.is_some(), local);
            self.changed_for_good();
            self.due.state = true;
        } else if self.election.voters.len() >= self.quorum() {
            self.log(Level::Notice, "Failover election won: I'm the new master.");
            let epoch = self.election.epoch;
            if self.me().config_epoch < epoch {
                self.nodes.get_mut(self.me).config_epoch = epoch;
                self.log(
                    Level::Notice,
                    format!("configEpoch set to {epoch} after successful failover"),
                );
            }
            self.take_primarys_place(now, local);
        } else {
            self.ask_again(now, local);
            self.hinder(Hindrance::Votes, primary, now);
        }
    }

    /// Requests votes again in a manual failover: a primary that refused because this node did not know of newer
    /// claims of slots may vote for this node now. Within one epoch no node votes twice; if another epoch has begun,
    /// nodes that have not voted can no longer do so in this election.
    fn ask_again(&mut self, now: Millis, local: &dyn Local) {
        let is_due = now.saturating_sub(self.election.asked_at) >= ASK_AGAIN;
        if self.manual.until.is_none() || !is_due {
            return;
        }
        if self.current_epoch > self.election.epoch {
            return self.schedule_election(now, local);
        }
        self.election.asked_at = now;
        self.ask_for_votes(true, local);
    }

    /// Whether this replica was without its primary's stream for longer than `cluster-replica-validity-factor`
    /// allows.
    fn is_outdated(&self, local: &dyn Local) -> bool {
        let factor = u64::from(self.settings.replica_validity_factor);
        let timeout = self.settings.node_timeout;
        // A replica that never had the stream has the maximum age.
        let silent = local
            .primary_link()
            .map_or(Millis::MAX, |link| link.silent_ms);
        // A primary is silent for the node timeout before it is considered failed.
        let age = if silent > timeout {
            silent - timeout
        } else {
            silent
        };
        factor != 0
            && age
                > self
                    .settings
                    .replica_ping_period
                    .saturating_add(timeout.saturating_mul(factor))
    }

    fn schedule_election(&mut self, now: Millis, local: &dyn Local) {
        let is_manual = self.manual.until.is_some();
        let (rank, delay) = match is_manual {
            true => (0, 0),
            false => {
                let rank = self.rank(local.offset());
                let spread = ELECTION_DELAY + self.random.below(ELECTION_DELAY);
                (
                    rank,
                    spread + rank * RANK_DELAY + self.shard_rank() * SHARD_RANK_DELAY,
                )
            }
        };
        self.election.at = now + delay;
        self.election.voters.clear();
        self.election.has_asked_for_votes = false;
        self.election.rank = rank;
        let offset = local.offset();
        let text = format!(
            "Start of election delayed for {delay} milliseconds (rank #{rank}, offset {offset})."
        );
        self.log(Level::Notice, text);
        self.broadcast_pong(PongTargets::Shard, now, local);
        if is_manual && let Some(primary) = self.my_primary() {
            self.stand_for_election(primary, now, local);
        }
    }

    /// Logs the reason against a failover: once for each reason, then every ten seconds.
    fn hinder(&mut self, why: Hindrance, primary: NodeRef, now: Millis) {
        let is_said = self.election.hindrance == Some(why);
        if is_said && now.saturating_sub(self.election.logged_at) < RELOG_INTERVAL {
            return;
        }
        self.election.hindrance = Some(why);
        let failed = self.nodes.get(primary);
        let log_after = self
            .settings
            .node_timeout
            .saturating_add(NO_FAILOVER_LOG_AFTER);
        if failed.is(NodeFlags::FAILED) && now.saturating_sub(failed.failed_at) < log_after {
            return;
        }
        self.election.logged_at = now;
        self.log(
            Level::Notice,
            format!("Currently unable to failover: {}", why.text()),
        );
        if why == Hindrance::Votes {
            let (needed, votes) = (self.quorum(), self.election.voters.len());
            self.log(
                Level::Notice,
                format!("Needed quorum: {needed}. Number of votes received so far: {votes}"),
            );
        }
    }

    /// Makes this node the owner of its primary's slots, and announces it.
    pub(super) fn take_primarys_place(&mut self, now: Millis, local: &dyn Local) {
        let Some(old) = self.my_primary() else {
            return;
        };
        self.set_primary(self.me);
        self.is_following = false;
        self.outputs.push(Output::Lead);
        for slot in self.nodes.get(old).slots.clone().iter() {
            self.assign(slot, Some(self.me));
        }
        self.update_cluster_state(now);
        self.changed_for_good();
        self.broadcast_pong(PongTargets::All, now, local);
        self.end_manual_failover();
    }

    /// Announces to all nodes that this primary has failed, as it is about to stop: then a replica is promoted
    /// without waiting for the node timeout. Nothing is announced if no replica can be promoted. Returns whether it
    /// was announced.
    pub fn leave(&mut self, now: Millis, local: &dyn Local) -> bool {
        let me = self.me();
        let could = |replica: &ClusterNode| {
            self.is_linked(replica) && replica.is_reachable() && !replica.is(NodeFlags::NO_FAILOVER)
        };
        let mut replicas = self.nodes.replicas_of(self.me).into_iter();
        let is_wanted = me.is_primary()
            && me.slot_count > 0
            && replicas.any(|replica| could(self.nodes.get(replica)));
        if is_wanted {
            let id = me.id;
            self.log(
                Level::Notice,
                "This node is shutting down: asking a replica to take over.",
            );
            self.broadcast(Body::Fail(id), local);
        }
        self.finish(now, Some(local));
        is_wanted
    }

    // Manual failover (CLUSTER FAILOVER).

    /// Starts a manual failover: if agreement is needed, the primary is asked to pause writes.
    pub(super) fn begin_manual_failover(
        &mut self,
        needs_agreement: bool,
        now: Millis,
        local: &dyn Local,
    ) {
        self.end_manual_failover();
        // An election that was not won is discarded.
        self.election = Election::default();
        self.manual.until = Some(now + self.settings.manual_failover_timeout);
        if !needs_agreement {
            self.manual.may_start = true;
            self.due.failover = true;
        } else if let Some(primary) = self.my_primary() {
            self.send_to(primary, Body::ManualFailoverStart, local);
        }
    }

    /// Handles a replica's request to be promoted: pauses writes, and sends the replica the final offset.
    pub(super) fn pause_for(
        &mut self,
        replica: NodeRef,
        link: LinkId,
        now: Millis,
        local: &dyn Local,
    ) {
        if self.nodes.get(replica).primary != Some(self.me) || !self.me().is_primary() {
            return;
        }
        self.end_manual_failover();
        self.manual.until = Some(now + self.settings.manual_failover_timeout);
        self.manual.replica = Some(replica);
        self.outputs.push(Output::Pause(
            now + self.settings.manual_failover_timeout * PAUSE_FACTOR,
        ));
        let title = self.nodes.get(replica).title();
        self.log_seldom(
            "cluster-failover-requested",
            Level::Notice,
            format!("Manual failover requested by replica {title}."),
        );
        self.ping(link, Greeting::Ping, now, local);
    }

    pub(super) fn note_final_offset(&mut self, offset: u64) {
        if self.manual.until.is_some() && self.manual.final_offset.is_none() {
            self.manual.final_offset = Some(offset);
            self.due.failover = true;
            let text =
                format!("Received replication offset for paused master manual failover: {offset}");
            self.log(Level::Notice, text);
        }
    }

    /// Checks whether this replica has the whole stream of its primary, which has paused writes.
    fn compare_offsets(&mut self, local: &dyn Local) {
        let is_waiting = self.manual.until.is_some() && !self.manual.may_start;
        if is_waiting && self.manual.final_offset == Some(local.offset()) {
            self.manual.may_start = true;
            let text = "All master replication stream processed, manual failover can start.";
            self.log(Level::Notice, text);
        }
    }

    pub(super) fn end_manual_failover(&mut self) {
        let ended = std::mem::take(&mut self.manual);
        if ended.replica.is_some() {
            self.outputs.push(Output::Unpause);
        }
    }

    pub(super) fn expire_manual_failover(&mut self, now: Millis) {
        if self.manual.until.is_some_and(|until| until < now) {
            self.log(Level::Warning, "Manual failover timed out.");
            self.end_manual_failover();
        }
    }
}
