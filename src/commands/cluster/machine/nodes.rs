//! All nodes, and slot ownership: this type keeps their references to each other consistent.

use std::collections::BTreeMap;

use super::node::{ClusterNode, NodeRef};
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use basalt_core::base::hash::SLOTS;
use basalt_core::base::random::Random;

/// Maximum number of nodes. Redis Cluster is meant for a thousand; the limit keeps peers from filling the memory.
pub(super) const NODES_MAX: usize = 16_384;

const NONE: NodeRef = NodeRef(u16::MAX);

/// All nodes, and slot ownership, see the module.
#[derive(Clone)]
pub(super) struct Nodes {
    places: Vec<Option<ClusterNode>>,
    free: Vec<NodeRef>,
    /// Indexes of known nodes, in arbitrary order.
    known: Vec<NodeRef>,
    by_id: BTreeMap<NodeId, NodeRef>,
    /// Number of known nodes that have never replied.
    unheard: usize,
    owners: Box<[NodeRef]>,
    /// Whether the set of nodes, slot ownership or the roles have changed since [`Nodes::take_change`].
    has_changed: bool,
}

impl Nodes {
    pub(super) fn new() -> Nodes {
        Nodes {
            places: Vec::new(),
            free: Vec::new(),
            known: Vec::new(),
            by_id: BTreeMap::new(),
            unheard: 0,
            owners: vec![NONE; usize::from(SLOTS)].into_boxed_slice(),
            has_changed: false,
        }
    }

    /// Returns whether commands need a new cluster map, and resets that.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the number of known nodes that have never replied.
    pub(super) fn unheard(&self) -> usize {
        self.unheard
    }

    /// Records that a node has replied.
    pub(super) fn hear(&mut self, node: NodeRef) {
        let node = self.get_mut(node);
        if !node.is_heard {
            node.is_heard = true;
            self.unheard -= 1;
        }
    }

    pub(super) fn find(&self, id: &NodeId) -> Option<NodeRef> {
        self.by_id.get(id).copied()
    }

    /// Returns a known node.
    pub(super) fn get(&self, node: NodeRef) -> &ClusterNode {
        self.places[usize::from(node.0)]
            .as_ref()
            .expect("known nodes have a place")
    }

    /// Whether a node is still known.
    pub(super) fn contains(&self, node: NodeRef) -> bool {
        self.places
            .get(usize::from(node.0))
            .is_some_and(Option::is_some)
    }

    /// Like [`Nodes::get`], for changing the node.
    pub(super) fn get_mut(&mut self, node: NodeRef) -> &mut ClusterNode {
        self.places[usize::from(node.0)]
            .as_mut()
            .expect("known nodes have a place")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeRef, &ClusterNode)> {
        self.known.iter().map(|node| (*node, self.get(*node)))
    }

    /// Returns references to all nodes, so that nodes can be changed while iterating.
    pub(super) fn refs(&self) -> Vec<NodeRef> {
        self.known.clone()
    }

    /// Returns all references ordered by the nodes' IDs.
    pub(super) fn in_order(&self) -> impl Iterator<Item = NodeRef> + '_ {
        self.by_id.values().copied()
    }

    pub(super) fn random(&self, random: &mut Random) -> NodeRef {
        self.known[random.index(self.known.len())]
    }

    /// Adds a node with a new ID; None if the ID exists, or if there are too many nodes.
    pub(super) fn add(&mut self, node: ClusterNode) -> Option<NodeRef> {
        if self.known.len() >= NODES_MAX || self.by_id.contains_key(&node.id) {
            return None;
        }
        let id = node.id;
        self.unheard += usize::from(!node.is_heard);
        let place = self.free.pop().unwrap_or(NodeRef(self.places.len() as u16));
        match self.places.get_mut(usize::from(place.0)) {
            Some(empty) => *empty = Some(node),
            None => self.places.push(Some(node)),
        }
        self.known.push(place);
        self.by_id.insert(id, place);
        self.has_changed = true;
        Some(place)
    }

    /// Forgets a node that owns no slot: its replicas lose their primary, and its failure reports no longer count.
    pub(super) fn remove(&mut self, node: NodeRef) {
        debug_assert_eq!(
            self.get(node).slot_count,
            0,
            "slots have owners that are known"
        );
        self.follow(node, None);
        for replica in self.replicas_of(node) {
            self.get_mut(replica).primary = None;
        }
        for other in self.refs() {
            self.get_mut(other).reports.remove(&node);
        }
        let removed = self.places[usize::from(node.0)].take();
        if let Some(removed) = removed {
            self.by_id.remove(&removed.id);
            self.unheard -= usize::from(!removed.is_heard);
        }
        self.known.retain(|known| *known != node);
        self.free.push(node);
        self.has_changed = true;
    }

    /// Gives a node its true ID, in place of a temporary one; the ID must not exist.
    pub(super) fn rename(&mut self, node: NodeRef, id: NodeId) {
        let old = std::mem::replace(&mut self.get_mut(node).id, id);
        self.by_id.remove(&old);
        self.by_id.insert(id, node);
        self.has_changed = true;
    }

    pub(super) fn owner(&self, slot: u16) -> Option<NodeRef> {
        let owner = self.owners[usize::from(slot)];
        (owner != NONE).then_some(owner)
    }

    /// Sets or removes a slot's owner.
    pub(super) fn assign(&mut self, slot: u16, owner: Option<NodeRef>) {
        let before = self.owner(slot);
        if before == owner {
            return;
        }
        self.has_changed = true;
        if let Some(before) = before {
            let node = self.get_mut(before);
            node.slots.remove(slot);
            node.slot_count -= 1;
        }
        self.owners[usize::from(slot)] = owner.unwrap_or(NONE);
        if let Some(owner) = owner {
            let is_first = self.get(owner).slot_count == 0;
            // A primary that gets its first slot may be given a replica of another primary, if the cluster has
            // replicas.
            let may_have_replica = is_first && self.iter().any(|(_, node)| node.primary.is_some());
            let node = self.get_mut(owner);
            node.slots.insert(slot);
            node.slot_count += 1;
            if may_have_replica {
                node.flags.set(NodeFlags::MIGRATE_TO);
            }
        }
    }

    /// Sets the primary of a node. A primary that has had replicas may be given one of another primary.
    pub(super) fn follow(&mut self, replica: NodeRef, primary: Option<NodeRef>) {
        let before = std::mem::replace(&mut self.get_mut(replica).primary, primary);
        if before == primary {
            return;
        }
        self.has_changed = true;
        if let Some(before) = before
            && self.replicas_of(before).is_empty()
        {
            self.get_mut(before).flags.clear(NodeFlags::MIGRATE_TO);
        }
        if let Some(primary) = primary {
            self.get_mut(primary).flags.set(NodeFlags::MIGRATE_TO);
        }
    }

    pub(super) fn replicas_of(&self, primary: NodeRef) -> Vec<NodeRef> {
        let replicas = self
            .iter()
            .filter(|(_, node)| node.primary == Some(primary));
        replicas.map(|(at, _)| at).collect()
    }

    /// Returns the primary whose slots a node serves: the node itself, or the primary that it replicates.
    pub(super) fn primary_of(&self, node: NodeRef) -> Option<NodeRef> {
        match self.get(node).is_primary() {
            true => Some(node),
            false => self.get(node).primary,
        }
    }
}
