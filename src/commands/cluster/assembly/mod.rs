//! Clusters that assemble themselves (`cluster-size`, `cluster-replicas`): nodes that start for the first time agree on
//! the primary of each range of slots and on its replicas.
//!
//! ```text
//! plan   the parts of all nodes, computed from their IDs and availability zones
//! ```
//!
//! The machine's `assembling` has the agreement. The types here are what its nodes tell each other, what nodes.conf
//! keeps of it, and what users see of it.

pub mod plan;

#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::sync::Arc;

use self::plan::Plan;
use super::node_id::{NODE_ID_BYTES, NodeId};

/// Maximum number of nodes of a cluster that assembles itself. Redis Cluster is meant for a thousand nodes.
pub const MEMBERS_MAX: u64 = 1_024;

/// The part of the agreement that a node keeps over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssemblyRecord {
    /// Number of the attempt. A node agrees to at most one plan of a term, and never goes back to an earlier term.
    pub term: u64,
    /// The stage that this node has reached.
    pub stage: Stage,
}

/// A stage of the assembly that a node has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The node has agreed to no plan in this term.
    Waiting,
    /// The node has agreed to a plan, and does not know whether all others have.
    Agreed(Arc<Plan>),
    /// All nodes have agreed to the plan with this digest, and this node has taken its part; or it has joined their
    /// cluster later.
    Assembled(u128),
}

/// The state of the assembly that a node announces to the others, in pings and pongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `cluster-size` of the node.
    pub size: u32,
    /// `cluster-replicas` of the node.
    pub replicas: u32,
    /// The term of the node's record.
    pub term: u64,
    /// A random number of the running process, by which two nodes with one ID are told apart.
    pub life: u64,
    /// The stage that the node has reached.
    pub stage: NoticeStage,
}

/// The stage of a node as it tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeStage {
    /// See [`Stage::Waiting`].
    Waiting {
        /// Digest of the plan that the node would agree to; 0: there are not enough nodes, or they changed just now.
        plan: u128,
        /// The reason why the node cannot be part of a new cluster.
        unfit: Option<Unfit>,
    },
    /// See [`Stage::Agreed`].
    Agreed(Arc<Plan>),
    /// See [`Stage::Assembled`].
    Assembled(u128),
}

/// The reason why a node cannot be part of a new cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The node has keys.
    HasData,
    /// Another node has the same ID.
    SharesId,
    /// The node knows owners of slots.
    KnowsOwners,
    /// The node has come to an assembled cluster.
    IsJoining,
}

impl Unfit {
    /// All reasons; a reason's number on the wire is its place here, counted from 1.
    pub const ALL: [Unfit; 4] = [
        Unfit::HasData,
        Unfit::SharesId,
        Unfit::KnowsOwners,
        Unfit::IsJoining,
    ];

    /// Returns the number on the wire; 0: none.
    #[must_use]
    pub fn number(this: Option<Unfit>) -> u8 {
        let place = this.and_then(|this| Unfit::ALL.iter().position(|one| *one == this));
        place.map_or(0, |place| place as u8 + 1)
    }

    /// Returns the reason with a number on the wire.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Unfit> {
        let place = usize::from(number).checked_sub(1)?;
        Unfit::ALL.get(place).copied()
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unfit::HasData => "it has data, so it is not new",
            Unfit::SharesId => {
                "another node has the same ID: they were started from one copy of nodes.conf"
            }
            Unfit::KnowsOwners => "it belongs to another cluster: it knows owners of slots",
            Unfit::IsJoining => "it is about to join a cluster that is assembled",
        })
    }
}

/// The state of the assembly as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyView {
    /// The state.
    pub state: AssemblyState,
    /// Nodes that are there and fit (waiting), or that have agreed (agreeing), including this one.
    pub here: u64,
    /// Number of nodes needed.
    pub needed: u64,
    /// The reasons why the assembly does not go on, besides that nodes are missing.
    pub hindrances: Vec<String>,
}

/// The state of the assembly in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssemblyState {
    /// `cluster-size` is 0.
    #[default]
    Off,
    /// Nodes are missing, or something hinders them.
    Waiting,
    /// The nodes are agreeing.
    Agreeing,
    /// A cluster is there, which this node is about to join as a replica.
    Joining,
    /// The cluster is assembled.
    Assembled,
    /// The cluster was made by hand: this node has slots or a primary without an assembly.
    ByHand,
}

impl AssemblyState {
    /// Returns the word in CLUSTER INFO.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            AssemblyState::Off => "off",
            AssemblyState::Waiting => "waiting",
            AssemblyState::Agreeing => "agreeing",
            AssemblyState::Joining => "joining",
            AssemblyState::Assembled => "assembled",
            AssemblyState::ByHand => "by-hand",
        }
    }
}

impl Default for AssemblyRecord {
    fn default() -> Self {
        AssemblyRecord {
            term: 1,
            stage: Stage::Waiting,
        }
    }
}

/// Formats the record as one word of nodes.conf.
impl fmt::Display for AssemblyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = self.term;
        match &self.stage {
            Stage::Waiting => write!(f, "waiting:{term}"),
            Stage::Assembled(digest) => write!(f, "assembled:{term}:{digest:032x}"),
            Stage::Agreed(plan) => {
                write!(f, "agreed:{term}:{}", plan.nodes_per_shard())?;
                for (at, member) in plan.members().enumerate() {
                    write!(f, "{}{member}", if at == 0 { ':' } else { ',' })?;
                }
                Ok(())
            }
        }
    }
}

impl AssemblyRecord {
    /// Parses the word that `Display` writes.
    #[must_use]
    pub fn from_word(word: &str) -> Option<AssemblyRecord> {
        let mut fields = word.split(':');
        let (stage, term) = (fields.next()?, fields.next()?.parse().ok()?);
        let stage = match stage {
            "waiting" => Stage::Waiting,
            "assembled" => Stage::Assembled(u128::from_str_radix(fields.next()?, 16).ok()?),
            "agreed" => {
                let per_shard = fields.next()?.parse().ok()?;
                let names = fields.next()?.split(',');
                let names: Option<Vec<NodeId>> = names
                    .take(MEMBERS_MAX as usize + 1)
                    .map(|name| NodeId::from_text(name.as_bytes()))
                    .collect();
                Stage::Agreed(Arc::new(Plan::of_members(names?, per_shard)?))
            }
            _ => return None,
        };
        fields
            .next()
            .is_none()
            .then_some(AssemblyRecord { term, stage })
    }
}

/// Bytes of a notice on the wire, without the IDs of a plan.
pub(super) const NOTICE_HEAD_BYTES: usize = 56;

/// The only version of the notice.
const VERSION: u8 = 1;

/// A notice in bytes, big-endian.
///
/// ```text
///  0 version   1 stage   2 reason why the node is unfit   3 zero
///  4 cluster-size   8 cluster-replicas   12 nodes of a shard of the plan
/// 16 term   24 life   32 digest of the plan (16 bytes)   48 IDs that follow   52 zero   56 IDs
/// ```
impl Notice {
    /// Appends the bytes of the notice.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (stage, unfit, per_shard, digest, plan) = match &self.stage {
            NoticeStage::Waiting { plan, unfit } => (0, *unfit, 0, *plan, None),
            NoticeStage::Agreed(plan) => {
                let per_shard = plan.nodes_per_shard() as u32;
                (1, None, per_shard, plan.digest(), Some(plan))
            }
            NoticeStage::Assembled(digest) => (2, None, 0, *digest, None),
        };
        out.extend_from_slice(&[VERSION, stage, Unfit::number(unfit), 0]);
        for number in [self.size, self.replicas, per_shard] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.life.to_be_bytes());
        out.extend_from_slice(&digest.to_be_bytes());
        let count = plan.map_or(0, |plan| plan.members().count());
        out.extend_from_slice(&(count as u32).to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        for member in plan.into_iter().flat_map(|plan| plan.members()) {
            out.extend_from_slice(member.as_bytes());
        }
    }

    /// Decodes a notice; None if its version or its contents are unknown.
    pub(super) fn decode(bytes: &[u8]) -> Option<Notice> {
        let (head, rest) = bytes.split_at_checked(NOTICE_HEAD_BYTES)?;
        let number = |at: usize| head[at..at + 4].try_into().map(u32::from_be_bytes).ok();
        let long = |at: usize| head[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let digest = head[32..48].try_into().map(u128::from_be_bytes).ok()?;
        if head[0] != VERSION {
            return None;
        }
        let stage = match head[1] {
            0 => NoticeStage::Waiting {
                plan: digest,
                unfit: Unfit::from_number(head[2]),
            },
            1 => {
                let count = number(48)? as usize;
                let (names, _) = rest.as_chunks::<NODE_ID_BYTES>();
                let names = names.get(..count)?.iter();
                let names: Option<Vec<NodeId>> =
                    names.map(|name| NodeId::from_text(name)).collect();
                let plan = Plan::of_members(names?, number(12)? as usize)?;
                NoticeStage::Agreed(Arc::new(plan))
            }
            2 => NoticeStage::Assembled(digest),
            _ => return None,
        };
        Some(Notice {
            size: number(4)?,
            replicas: number(8)?,
            term: long(16)?,
            life: long(24)?,
            stage,
        })
    }
}
