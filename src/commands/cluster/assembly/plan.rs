//! The plan of a new cluster: its primaries, their slots and their replicas.
//!
//! A plan is a function of the nodes' IDs and zones, so that all nodes that see the same nodes compute the same plan.
//! Zones take turns in giving a primary, each the node with its smallest ID; without zones the nodes with the smallest
//! IDs are primaries. Otherwise the zone of most primaries would be able to take the cluster down, because a replica
//! is promoted by the majority of the primaries. Each primary gets replicas from zones that its shard does not have
//! yet, as far as there are any.

use std::collections::{BTreeMap, BTreeSet};

use super::MEMBERS_MAX;
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;
use basalt_core::base::hash::{SLOTS, digest_128};

/// Maximum number of passes over all pairs of replicas that exchange their places.
const PASSES_MAX: usize = 16;

/// A node that may be part of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// ID of the node.
    pub id: NodeId,
    /// Availability zone; may be empty.
    pub zone: String,
}

/// The parts of all nodes, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The nodes of all shards, shard after shard, each with its primary first.
    members: Vec<NodeId>,
    nodes_per_shard: usize,
    digest: u128,
}

impl Plan {
    /// Plans a cluster of this many primaries, with this many replicas each, for the candidates with the smallest IDs.
    /// Returns None if there are not enough candidates, or the cluster would be too large. The candidates must be in
    /// the order of their IDs, each with another one.
    #[must_use]
    pub fn new(candidates: &[Candidate], size: u32, replicas: u32) -> Option<Plan> {
        let needed = needed(size, replicas);
        if needed == 0 || needed > MEMBERS_MAX {
            return None;
        }
        let candidates = candidates.get(..needed as usize)?;
        let mut free: BTreeSet<&Candidate> = candidates.iter().collect();
        let mut shards = primaries(&mut free, size as usize);
        for _ in 0..replicas {
            for shard in &mut shards {
                let clashes = |one: &&&Candidate| {
                    let (first, rest) = (shard[0], &shard[1..]);
                    (
                        one.zone == first.zone,
                        rest.iter().filter(|other| other.zone == one.zone).count(),
                        one.id,
                    )
                };
                let chosen = free.iter().min_by_key(clashes).copied()?;
                free.remove(chosen);
                shard.push(chosen);
            }
        }
        exchange(&mut shards);
        let members = shards.into_iter().flatten().map(|one| one.id).collect();
        Plan::of_members(members, 1 + replicas as usize)
    }

    /// Makes a plan of the nodes of all shards, each shard with its primary first. Returns None if the shards are not
    /// all as large, or an ID occurs twice.
    #[must_use]
    pub fn of_members(members: Vec<NodeId>, nodes_per_shard: usize) -> Option<Plan> {
        let distinct: BTreeSet<&NodeId> = members.iter().collect();
        let is_whole = nodes_per_shard > 0
            && !members.is_empty()
            && members.len().is_multiple_of(nodes_per_shard)
            && members.len() as u64 <= MEMBERS_MAX
            && members.len() / nodes_per_shard <= usize::from(SLOTS);
        if !is_whole || distinct.len() != members.len() {
            return None;
        }
        let count = (nodes_per_shard as u64).to_be_bytes();
        let names = members.iter().map(|member| member.as_bytes().as_slice());
        let parts: Vec<&[u8]> = std::iter::once(count.as_slice()).chain(names).collect();
        // A digest of 0 means that there is no plan.
        let digest = digest_128(&parts).max(1);
        Some(Plan {
            members,
            nodes_per_shard,
            digest,
        })
    }

    /// Returns a number that differs between plans.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Returns the nodes of all shards, each shard with its primary first.
    pub fn members(&self) -> impl Iterator<Item = &NodeId> {
        self.members.iter()
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the plan has no nodes, which is never the case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the number of nodes of each shard.
    #[must_use]
    pub fn nodes_per_shard(&self) -> usize {
        self.nodes_per_shard
    }

    /// Returns the number of shards, which is that of the primaries.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.members.len() / self.nodes_per_shard
    }

    /// Returns the shard of a node, and the primary of that shard.
    #[must_use]
    pub fn part_of(&self, id: &NodeId) -> Option<(usize, NodeId)> {
        let at = self.members.iter().position(|member| member == id)?;
        let shard = at / self.nodes_per_shard;
        Some((shard, self.members[shard * self.nodes_per_shard]))
    }

    /// Returns the slots of a shard. All shards have the same number of slots, or one more.
    #[must_use]
    pub fn slots_of(&self, shard: usize) -> SlotSet {
        let first = |shard: usize| (shard * usize::from(SLOTS) / self.shards()) as u16;
        (first(shard)..first(shard + 1)).collect()
    }
}

/// Returns the number of nodes of a cluster of this many primaries with this many replicas each.
#[must_use]
pub fn needed(size: u32, replicas: u32) -> u64 {
    u64::from(size) * (1 + u64::from(replicas))
}

/// Takes the primaries out of the candidates: the zones take turns, in the order of their smallest IDs. Returns a shard
/// for each primary, in the order of the primaries' IDs.
fn primaries<'c>(free: &mut BTreeSet<&'c Candidate>, size: usize) -> Vec<Vec<&'c Candidate>> {
    let mut zones: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for one in free.iter() {
        zones.entry(&one.zone).or_default().push(one);
    }
    let mut zones: Vec<Vec<&Candidate>> = zones.into_values().collect();
    zones.sort();
    let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|turn| zones.iter().filter_map(move |zone| zone.get(turn)));
    let mut chosen: Vec<&Candidate> = turns.copied().take(size).collect();
    chosen.sort();
    for one in &chosen {
        free.remove(one);
    }
    chosen.into_iter().map(|one| vec![one]).collect()
}

/// Counts the pairs of nodes of a shard that are in one zone.
fn clashes(shard: &[&Candidate]) -> usize {
    let pairs = shard.iter().enumerate().map(|(at, one)| {
        let rest = shard[at + 1..].iter();
        rest.filter(|other| other.zone == one.zone).count()
    });
    pairs.sum()
}

/// Exchanges replicas of different shards as long as that reduces the number of nodes that share a zone with another
/// node of their shard: a shard that was served last may be left with replicas of its own zone.
fn exchange(shards: &mut [Vec<&Candidate>]) {
    for _ in 0..PASSES_MAX {
        let mut has_changed = false;
        for one in 0..shards.len() {
            for other in one + 1..shards.len() {
                has_changed |= exchange_between(shards, one, other);
            }
        }
        if !has_changed {
            return;
        }
    }
}

fn exchange_between(shards: &mut [Vec<&Candidate>], one: usize, other: usize) -> bool {
    let count = |shards: &[Vec<&Candidate>]| clashes(&shards[one]) + clashes(&shards[other]);
    let mut least = count(shards);
    let mut has_changed = false;
    for a in 1..shards[one].len() {
        for b in 1..shards[other].len() {
            if least == 0 {
                return has_changed;
            }
            swap(shards, (one, a), (other, b));
            let now = count(shards);
            if now < least {
                (least, has_changed) = (now, true);
            } else {
                swap(shards, (one, a), (other, b));
            }
        }
    }
    has_changed
}

fn swap(shards: &mut [Vec<&Candidate>], (one, a): (usize, usize), (other, b): (usize, usize)) {
    let taken = shards[one][a];
    shards[one][a] = shards[other][b];
    shards[other][b] = taken;
}
