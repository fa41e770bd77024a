//! Assembly of a new cluster by its nodes (`cluster-size`), in two phases, so that there is one cluster and each slot
//! has one owner whatever fails.
//!
//! ```text
//! waiting    all see as many fit nodes as the cluster needs, and tell each other the digest of the same plan
//! agreed     this node has agreed to the plan for this term, which is in nodes.conf before others hear of it
//! assembled  all nodes of the plan have agreed: each takes its slots, or follows its primary
//! ```
//!
//! A node agrees to one plan in a term. It gives that plan up, by going to a later term, only when a node of the plan
//! is in a later term or has agreed to another plan in this one: then that node never agrees to this plan any more, so
//! this plan is never agreed to by all. Hence there is one plan at most to which all of its nodes agree, and no node of
//! it gives it up. Statements about a term stay true, so that late and repeated packets do no harm.
//!
//! A node that stops in between goes on after its restart: what it agreed to is in its file, and the plan comes from
//! any node that has agreed to it. A node that was agreed with and never comes back is the one case that needs an
//! operator (CLUSTER FORGET): it may have found the plan agreed by all, and have taken writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::node::ClusterNode;
use super::sending::PongTargets;
use super::strangers::Offer;
use super::{Level, Machine, Millis, NodeRef};
use crate::cluster::assembly::plan::{Candidate, Plan, needed};
use crate::cluster::assembly::{
    AssemblyRecord, AssemblyState, AssemblyView, MEMBERS_MAX, Notice, NoticeStage, Stage, Unfit,
};
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::packet::Extension;
use crate::cluster::settings::Local;

/// Milliseconds for which the same nodes must be seen before a plan for them is told: nodes that start together are
/// seen one after the other.
const SETTLE: Millis = 500;

/// Ticks between two notices to all nodes while nothing changes.
const TELL_EVERY: u64 = 5;

/// Milliseconds for which a notice of a waiting node counts.
const NOTICE_VALID: Millis = 3_000;

/// Greetings without a notice after which a node is assumed not to know notices.
const SILENT_GREETINGS_MAX: u8 = 3;

/// Ticks between two notices to such a node, which may have been configured differently meanwhile.
const PROBE_EVERY: u64 = 50;

/// Milliseconds for which a packet under this node's own ID shows that another node has it.
const TWIN_VALID: Millis = 15_000;

/// Milliseconds before a node joins an assembled cluster, and more for each node that joins before it, so that they
/// choose different primaries.
const JOIN_DELAY: Millis = 500;
const JOIN_STEP: Millis = 1_500;

/// Node timeouts, and minimum milliseconds, after which a waiting node forgets one without slots that is silent.
const FORGET_TIMEOUTS: u64 = 4;
const FORGET_MIN: Millis = 10_000;

/// Milliseconds between log lines about the progress, unless the state changes.
const SAY_EVERY: Millis = 1_000;

/// Maximum number of hindrances that are shown.
const HINDRANCES_MAX: usize = 8;

/// State of the assembly.
pub(super) struct Assembly {
    pub(super) record: AssemblyRecord,
    /// A random number of this process.
    life: u64,
    unfit: Option<Unfit>,
    /// The candidates that this node sees, by its settings, the plan for them, and since when they are the same.
    seen: Option<(Vec<Candidate>, Option<Arc<Plan>>, Millis)>,
    /// Digest of the plan that is told to others; 0: none.
    told_plan: u128,
    /// The last notice that all nodes were told.
    told: Option<Notice>,
    /// When another process last used this node's ID.
    twin_at: Option<Millis>,
    /// Since when this node could join an assembled cluster.
    may_join_since: Option<Millis>,
    /// Nodes that are not accepted, by address: why, and when they were last heard.
    pub(super) refused: BTreeMap<String, (String, Millis)>,
    /// Primaries of assembled clusters that are not accepted yet.
    pub(super) offers: BTreeMap<NodeId, Offer>,
    pub(super) view: AssemblyView,
    said_at: Millis,
    said: AssemblyView,
}

impl Assembly {
    pub(super) fn new(record: AssemblyRecord, life: u64) -> Assembly {
        Assembly {
            record,
            life,
            unfit: None,
            seen: None,
            told_plan: 0,
            told: None,
            twin_at: None,
            may_join_since: None,
            refused: BTreeMap::new(),
            offers: BTreeMap::new(),
            view: AssemblyView::default(),
            said_at: 0,
            said: AssemblyView::default(),
        }
    }
}

impl Machine {
    /// Whether this node is new as far as slots and roles show: a primary without slots.
    fn is_blank(&self) -> bool {
        self.me().is_primary() && self.me().slot_count == 0
    }

    /// Whether this node has yet to become part of a cluster that assembles itself.
    pub(super) fn is_unassembled(&self) -> bool {
        match self.assembly.record.stage {
            Stage::Waiting => self.settings.cluster_size > 0 && self.is_blank(),
            Stage::Agreed(_) => true,
            Stage::Assembled(_) => false,
        }
    }

    /// Whether this node belongs to a cluster that assembles itself, or will: then it does not mix with others.
    pub(super) fn is_of_assembly(&self) -> bool {
        let is_assembled = matches!(self.assembly.record.stage, Stage::Assembled(_));
        self.is_unassembled() || is_assembled && self.settings.cluster_size > 0
    }

    /// Returns what this node tells about the assembly.
    pub(super) fn notice(&self) -> Option<Notice> {
        let assembly = &self.assembly;
        self.is_of_assembly().then(|| Notice {
            size: self.settings.cluster_size,
            replicas: self.settings.cluster_replicas,
            term: assembly.record.term,
            life: assembly.life,
            stage: match &assembly.record.stage {
                Stage::Waiting => NoticeStage::Waiting {
                    plan: assembly.told_plan,
                    unfit: assembly.unfit,
                },
                Stage::Agreed(plan) => NoticeStage::Agreed(Arc::clone(plan)),
                Stage::Assembled(digest) => NoticeStage::Assembled(*digest),
            },
        })
    }

    /// Returns the notice for a greeting to a node. Redis and older servers log a line for each unknown extension, so
    /// only nodes that may know notices get some, and after the assembly only those that are not part of it yet.
    pub(super) fn notice_for(&self, receiver: Option<NodeRef>) -> Option<Extension> {
        let notice = self.notice()?;
        let is_wanted = receiver.is_none_or(|receiver| {
            let node = self.nodes.get(receiver);
            match notice.stage {
                NoticeStage::Assembled(_) => node.is(NodeFlags::HANDSHAKE) || is_unassembled(node),
                _ => {
                    node.silent_greetings < SILENT_GREETINGS_MAX
                        || self.ticks.is_multiple_of(PROBE_EVERY)
                }
            }
        });
        is_wanted.then(|| Extension::Assembly(Box::new(notice)))
    }

    /// Records what a greeting of a node says about the assembly.
    pub(super) fn note_notice(&mut self, sender: NodeRef, notice: Option<&Notice>, now: Millis) {
        let node = self.nodes.get_mut(sender);
        match notice {
            Some(notice) => {
                node.silent_greetings = 0;
                node.notice = Some((notice.clone(), now));
            }
            None => {
                node.silent_greetings = node.silent_greetings.saturating_add(1);
                if node.silent_greetings >= SILENT_GREETINGS_MAX {
                    node.notice = None;
                }
            }
        }
    }

    /// Records that a packet has this node's own ID: a node that meets itself by one of its addresses has the same
    /// `life`, a copy of the node another one.
    pub(super) fn note_own_id(&mut self, extensions: &[Extension], now: Millis) {
        let is_other = |extension: &Extension| matches!(extension, Extension::Assembly(notice) if notice.life != self.assembly.life);
        if extensions.iter().any(is_other) {
            self.assembly.twin_at = Some(now);
        }
    }

    /// Continues the assembly, and tells the other nodes how far this one is.
    pub(super) fn assemble(&mut self, now: Millis, local: &dyn Local) {
        if self.settings.cluster_size == 0 && self.assembly.record == AssemblyRecord::default() {
            self.assembly.view = AssemblyView::default();
            return;
        }
        self.forget_refusals(now);
        self.assembly.unfit = None;
        self.assembly.view = match self.assembly.record.stage.clone() {
            Stage::Waiting if !self.is_unassembled() => {
                self.assembly.told_plan = 0;
                let state = match self.settings.cluster_size {
                    0 => AssemblyState::Off,
                    _ => AssemblyState::ByHand,
                };
                AssemblyView {
                    state,
                    ..AssemblyView::default()
                }
            }
            Stage::Waiting => self.wait(now, local),
            Stage::Agreed(plan) => self.agree(&plan, now),
            Stage::Assembled(_) => AssemblyView {
                state: AssemblyState::Assembled,
                hindrances: self.refusals(),
                ..AssemblyView::default()
            },
        };
        self.say_progress(now);
        let notice = self.notice();
        let is_due = self.ticks.is_multiple_of(TELL_EVERY) && self.is_unassembled();
        if self.is_of_assembly() && (is_due || self.assembly.told != notice) {
            self.assembly.told = notice;
            self.broadcast_pong(PongTargets::All, now, local);
        }
    }

    // Waiting.

    fn wait(&mut self, now: Millis, local: &dyn Local) -> AssemblyView {
        let (size, replicas) = (self.settings.cluster_size, self.settings.cluster_replicas);
        let mut view = AssemblyView {
            state: AssemblyState::Waiting,
            here: 0,
            needed: needed(size, replicas),
            hindrances: Vec::new(),
        };
        self.forget_silent(now);
        self.assembly.unfit = self.find_unfit(now, local);
        if let Some(unfit) = self.assembly.unfit {
            self.assembly.told_plan = 0;
            let text = format!("this node does not take part: {unfit}");
            view.hindrances.push(text);
            view.hindrances.extend(self.refusals());
            return view;
        }
        if let Some(term) = self.latest_term(now) {
            self.assembly.record.term = term;
            self.assembly.seen = None;
            self.changed_for_good();
        }
        if let Some((term, plan)) = self.plan_to_follow(now) {
            self.agree_to(term, plan);
            return view;
        }
        if let Some(digest) = self.assembled_elsewhere() {
            view.state = AssemblyState::Joining;
            self.assembly.unfit = Some(Unfit::IsJoining);
            self.join(digest, now);
            return view;
        }
        self.assembly.may_join_since = None;
        let candidates = self.candidates(now);
        view.here = candidates.len() as u64;
        view.hindrances = self.hindrances(now);
        let plan = self.settled_plan(candidates, &view, now);
        self.assembly.told_plan = plan.as_ref().map_or(0, |plan| plan.digest());
        if let Some(plan) = plan
            && self.is_told_by_all(&plan, now)
        {
            self.agree_to(self.assembly.record.term, plan);
        }
        view
    }

    /// Returns the reason why this node cannot be part of a new cluster.
    fn find_unfit(&self, now: Millis, local: &dyn Local) -> Option<Unfit> {
        let has_twin = |at: Millis| now.saturating_sub(at) < TWIN_VALID;
        if self.assembly.twin_at.is_some_and(has_twin) {
            return Some(Unfit::SharesId);
        }
        if local.has_keys() {
            return Some(Unfit::HasData);
        }
        let mut nodes = self.nodes.iter();
        let knows_owner = nodes.any(|(_, node)| !self.claims_nothing(node));
        (knows_owner && self.assembled_elsewhere().is_none()).then_some(Unfit::KnowsOwners)
    }

    fn claims_nothing(&self, node: &ClusterNode) -> bool {
        node.slot_count == 0 || node.slots.iter().all(|slot| self.unclaimed.contains(slot))
    }

    /// Returns the latest term of waiting nodes, if it is later than this node's.
    fn latest_term(&self, now: Millis) -> Option<u64> {
        let terms = self.waiting(now).map(|(_, notice)| notice.term);
        terms.max().filter(|term| *term > self.assembly.record.term)
    }

    /// Returns the other nodes that are waiting, with their notices.
    fn waiting(&self, now: Millis) -> impl Iterator<Item = (&ClusterNode, &Notice)> {
        self.nodes.iter().filter_map(move |(_, node)| {
            let (notice, at) = node.notice.as_ref()?;
            let is_recent = is_recent(*at, now);
            let is_waiting = matches!(notice.stage, NoticeStage::Waiting { .. });
            (is_recent && is_waiting && node.is_heard).then_some((node, notice))
        })
    }

    /// Returns the nodes that may be part of a new cluster, in the order of their IDs.
    fn candidates(&self, now: Millis) -> Vec<Candidate> {
        let is_fit = |node: &ClusterNode, notice: &Notice| {
            matches!(notice.stage, NoticeStage::Waiting { unfit: None, .. })
                && self.is_alike(notice)
                && node.is_primary()
                && self.claims_nothing(node)
        };
        let others = self.waiting(now);
        let others = others.filter(|(node, notice)| is_fit(node, notice));
        let all = others.map(|(node, _)| node).chain([self.me()]);
        let mut candidates: Vec<Candidate> = all
            .map(|node| Candidate {
                id: node.id,
                zone: node.zone.clone(),
            })
            .collect();
        candidates.sort();
        candidates
    }

    fn is_alike(&self, notice: &Notice) -> bool {
        let own = (self.settings.cluster_size, self.settings.cluster_replicas);
        (notice.size, notice.replicas) == own
    }

    /// Returns the reasons why no plan is made.
    fn hindrances(&self, now: Millis) -> Vec<String> {
        let (size, replicas) = (self.settings.cluster_size, self.settings.cluster_replicas);
        let mut texts = Vec::new();
        if needed(size, replicas) > MEMBERS_MAX {
            texts.push(format!(
                "a cluster that assembles itself has at most {MEMBERS_MAX} nodes"
            ));
        }
        for (node, notice) in self.waiting(now) {
            let name = named(node);
            match notice.stage {
                NoticeStage::Waiting {
                    unfit: Some(unfit), ..
                } => texts.push(format!("{name} does not take part: {unfit}")),
                _ if !self.is_alike(notice) => texts.push(format!(
                    "{name} has cluster-size {} and cluster-replicas {}, this node {size} and {replicas}",
                    notice.size, notice.replicas
                )),
                _ => {}
            }
        }
        texts.extend(self.refusals());
        texts.truncate(HINDRANCES_MAX);
        texts
    }

    /// Returns the nodes that are not accepted, with the reasons.
    fn refusals(&self) -> Vec<String> {
        let refused = self.assembly.refused.iter();
        refused
            .map(|(address, (why, _))| format!("the node at {address} does not join: {why}"))
            .collect()
    }

    /// Returns the plan for the candidates, once they have been the same for a while. There is none while nodes
    /// disagree about the size of the cluster.
    fn settled_plan(
        &mut self,
        candidates: Vec<Candidate>,
        view: &AssemblyView,
        now: Millis,
    ) -> Option<Arc<Plan>> {
        let (size, replicas) = (self.settings.cluster_size, self.settings.cluster_replicas);
        let disagree = self.waiting(now).any(|(_, notice)| !self.is_alike(notice));
        if view.here < view.needed || disagree {
            self.assembly.seen = None;
            return None;
        }
        let is_same = matches!(&self.assembly.seen, Some((seen, ..)) if *seen == candidates);
        if !is_same {
            let plan = Plan::new(&candidates, size, replicas).map(Arc::new);
            self.assembly.seen = Some((candidates, plan, now));
        }
        let (_, plan, since) = self.assembly.seen.as_ref()?;
        plan.clone()
            .filter(|_| now.saturating_sub(*since) >= SETTLE)
    }

    /// Whether all other nodes of a plan tell this plan in this term.
    fn is_told_by_all(&self, plan: &Plan, now: Millis) -> bool {
        let term = self.assembly.record.term;
        let told: Vec<NodeId> = self
            .waiting(now)
            .filter(|(_, notice)| {
                let is_it = matches!(notice.stage, NoticeStage::Waiting { plan: told, unfit: None } if told == plan.digest());
                is_it && notice.term == term
            })
            .map(|(node, _)| node.id)
            .collect();
        let own = self.me().id;
        plan.part_of(&own).is_some()
            && plan
                .members()
                .all(|member| *member == own || told.contains(member))
    }

    /// Returns a plan of which this node is a part, and to which another node has agreed: this node had told the same
    /// plan before, and may have been restarted since.
    fn plan_to_follow(&self, now: Millis) -> Option<(u64, Arc<Plan>)> {
        let own = self.me().id;
        let agreed = self.nodes.iter().filter_map(|(_, node)| {
            let (notice, at) = node.notice.as_ref()?;
            let NoticeStage::Agreed(plan) = &notice.stage else {
                return None;
            };
            let is_of_plan = |id: &NodeId| plan.part_of(id).is_some();
            let is_due = notice.term >= self.assembly.record.term && is_recent(*at, now);
            (is_due && is_of_plan(&own) && is_of_plan(&node.id))
                .then(|| (notice.term, Arc::clone(plan)))
        });
        agreed.max_by_key(|(term, plan)| (*term, std::cmp::Reverse(plan.digest())))
    }

    fn agree_to(&mut self, term: u64, plan: Arc<Plan>) {
        let text = format!(
            "Agreeing to a cluster of {} primaries and {} nodes (plan {:016x}, term {term})",
            plan.shards(),
            plan.len(),
            plan.digest() >> 64
        );
        self.log(Level::Notice, text);
        self.assembly.record = AssemblyRecord {
            term,
            stage: Stage::Agreed(plan),
        };
        self.assembly.told_plan = 0;
        self.assembly.seen = None;
        self.changed_for_good();
    }

    /// Forgets nodes without slots that have long been silent, so that nodes that came once leave nothing behind.
    fn forget_silent(&mut self, now: Millis) {
        let limit = self.settings.node_timeout.saturating_mul(FORGET_TIMEOUTS);
        let limit = limit.max(FORGET_MIN);
        for at in self.nodes.refs() {
            let node = self.nodes.get(at);
            let heard_at = node.data_received.max(node.created);
            let is_silent = now.saturating_sub(heard_at) > limit;
            if at != self.me && node.slot_count == 0 && node.is_primary() && is_silent {
                self.forget(at);
            }
        }
    }

    // Agreed.

    fn agree(&mut self, plan: &Arc<Plan>, now: Millis) -> AssemblyView {
        let (term, digest) = (self.assembly.record.term, plan.digest());
        let next = term.saturating_add(1);
        let (mut agreed, mut is_assembled) = (0, false);
        let mut missing = Vec::new();
        let mut later: Option<u64> = None;
        for member in plan.members() {
            if *member == self.me().id {
                agreed += 1;
                continue;
            }
            let node = self.nodes.find(member).map(|node| self.nodes.get(node));
            let name = node.map_or_else(|| member.to_string(), named);
            let notice = node.and_then(|node| node.notice.as_ref());
            match notice.map(|(notice, _)| (notice.term, &notice.stage)) {
                Some((_, NoticeStage::Assembled(other))) if *other == digest => {
                    (is_assembled, agreed) = (true, agreed + 1);
                }
                Some((at, NoticeStage::Agreed(other))) if at == term && **other == **plan => {
                    agreed += 1;
                }
                Some((at, NoticeStage::Agreed(_))) if at == term => later = later.max(Some(next)),
                Some((_, NoticeStage::Assembled(_))) => later = later.max(Some(next)),
                Some((at, _)) if at > term => later = later.max(Some(at)),
                _ if notice.is_some_and(|(_, at)| is_recent(*at, now)) => {}
                _ => missing.push(format!("{name} has not agreed, and is not there")),
            }
        }
        missing.truncate(HINDRANCES_MAX);
        let view = AssemblyView {
            state: AssemblyState::Agreeing,
            here: agreed,
            needed: plan.len() as u64,
            hindrances: missing,
        };
        if is_assembled || agreed == view.needed {
            self.take_part(plan, now);
        } else if let Some(later) = later {
            self.give_up_plan(later);
        }
        view
    }

    /// Gives up the plan that this node has agreed to, because not all of its nodes will agree to it any more.
    fn give_up_plan(&mut self, term: u64) {
        self.log(
            Level::Notice,
            format!("Giving up the plan of the cluster: waiting again, in term {term}"),
        );
        self.assembly.record = AssemblyRecord {
            term,
            stage: Stage::Waiting,
        };
        self.changed_for_good();
    }

    /// Gives up the plan if a node of it is forgotten by an operator.
    pub(super) fn give_up_plan_with(&mut self, id: &NodeId) {
        if let Stage::Agreed(plan) = &self.assembly.record.stage
            && plan.part_of(id).is_some()
        {
            self.give_up_plan(self.assembly.record.term.saturating_add(1));
        }
    }

    /// Handles CLUSTER RESET: a new node, after a hard reset, may be part of a new cluster.
    pub(super) fn reset_assembly(&mut self, is_hard: bool) {
        if is_hard {
            self.assembly.record = AssemblyRecord::default();
        } else if matches!(self.assembly.record.stage, Stage::Agreed(_)) {
            self.give_up_plan(self.assembly.record.term.saturating_add(1));
        }
    }

    /// Takes this node's part of the plan that all its nodes have agreed to.
    fn take_part(&mut self, plan: &Arc<Plan>, now: Millis) {
        let Some((shard, primary)) = plan.part_of(&self.me().id) else {
            return;
        };
        let (term, shards) = (self.assembly.record.term, plan.shards() as u64);
        if primary == self.me().id {
            for slot in plan.slots_of(shard).iter() {
                self.assign(slot, Some(self.me));
            }
            let before = term.saturating_sub(1).saturating_mul(shards);
            let epoch = before.saturating_add(shard as u64 + 1);
            let me = self.nodes.get_mut(self.me);
            me.config_epoch = me.config_epoch.max(epoch);
        } else {
            // A primary that was forgotten meanwhile is met again.
            let Some(primary) = self.nodes.find(&primary) else {
                return;
            };
            self.replicate(primary);
        }
        let latest = term.saturating_mul(shards).max(self.me().config_epoch);
        self.current_epoch = self.current_epoch.max(latest);
        self.assembly.record.stage = Stage::Assembled(plan.digest());
        self.assembly.view.state = AssemblyState::Assembled;
        let role = match self.me().is_primary() {
            true => format!("a primary with {} slots", self.me().slot_count),
            false => format!("a replica of {primary}"),
        };
        self.log(
            Level::Notice,
            format!("The cluster is assembled: this node is {role}"),
        );
        self.changed_for_good();
        self.update_cluster_state(now);
    }

    // Joining.

    /// Returns the digest of the assembled cluster that this node has come to.
    fn assembled_elsewhere(&self) -> Option<u128> {
        let digests = self.nodes.iter().filter_map(|(_, node)| {
            let (notice, _) = node.notice.as_ref()?;
            match notice.stage {
                NoticeStage::Assembled(digest) => Some(digest),
                _ => None,
            }
        });
        digests.min()
    }

    /// Makes this node a replica of the primary with the fewest replicas, once the cluster is up.
    fn join(&mut self, digest: u128, now: Millis) {
        self.assembly.told_plan = 0;
        self.assembly.seen = None;
        if !self.is_up() {
            self.assembly.may_join_since = None;
            return;
        }
        let own = self.me().id;
        let before = self.waiting(now).filter(|(node, _)| node.id < own).count();
        let since = *self.assembly.may_join_since.get_or_insert(now);
        let delay = JOIN_DELAY + before as Millis * JOIN_STEP;
        if now.saturating_sub(since) < delay {
            return;
        }
        let zone = &self.me().zone;
        let primaries = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_voter() && !node.is(NodeFlags::FAILED));
        let chosen = primaries.min_by_key(|(at, node)| {
            let replicas = self.nodes.replicas_of(*at).into_iter();
            let working = replicas.map(|replica| self.nodes.get(replica));
            let working: Vec<&ClusterNode> =
                working.filter(|node| !node.is(NodeFlags::FAILED)).collect();
            let in_zone = working.iter().filter(|node| node.zone == *zone).count();
            (working.len(), node.zone == *zone, in_zone, node.id)
        });
        let Some((primary, node)) = chosen else {
            return;
        };
        let text = format!(
            "Joining the assembled cluster as a replica of {}",
            node.title()
        );
        self.log(Level::Notice, text);
        self.assembly.record.stage = Stage::Assembled(digest);
        self.replicate(primary);
        self.changed_for_good();
    }

    /// Logs the state when it has changed.
    fn say_progress(&mut self, now: Millis) {
        let assembly = &mut self.assembly;
        let has_state_changed = assembly.view.state != assembly.said.state;
        if assembly.view == assembly.said
            || !has_state_changed && now.saturating_sub(assembly.said_at) < SAY_EVERY
        {
            return;
        }
        (assembly.said, assembly.said_at) = (assembly.view.clone(), now);
        let AssemblyView {
            state,
            here,
            needed,
            hindrances,
        } = assembly.view.clone();
        let why = match hindrances.len() {
            0 => String::new(),
            _ => format!("; {}", hindrances.join("; ")),
        };
        let text = match state {
            AssemblyState::Waiting => {
                format!(
                    "Waiting for the nodes of the new cluster: {here} of {needed} are there{why}"
                )
            }
            AssemblyState::Agreeing => {
                format!("Assembling the cluster: {here} of {needed} nodes have agreed{why}")
            }
            AssemblyState::Joining => "This node has come to an assembled cluster".to_owned(),
            AssemblyState::Assembled if !why.is_empty() => {
                format!("Nodes are kept out of the cluster{why}")
            }
            _ => return,
        };
        self.log(Level::Notice, text);
    }
}

/// Whether a notice of this time counts still.
fn is_recent(at: Millis, now: Millis) -> bool {
    now.saturating_sub(at) < NOTICE_VALID
}

/// Whether the last notice of a node says that it is not part of an assembled cluster.
fn is_unassembled(node: &ClusterNode) -> bool {
    let notice = node.notice.as_ref();
    notice.is_some_and(|(notice, _)| !matches!(notice.stage, NoticeStage::Assembled(_)))
}

/// Returns the ID and address of a node, for operators.
fn named(node: &ClusterNode) -> String {
    let address = &node.address;
    let port = address.port.max(address.tls_port);
    format!("node {} at {}:{port}", node.id, address.ip)
}
