//! Moves a stream's allocations out of sparse slabs of the allocator: its nodes, and the pending entries of its
//! groups.
//!
//! Trees do not reveal the addresses of their own nodes, nor can these be moved one by one. But the address of a
//! key is inside the node that holds it, and the allocator knows the slab around any address. Where many keys of a
//! stretch lie in sparse slabs, the stretch is taken out and put back, which allocates its nodes anew.

use std::collections::{BTreeMap, BTreeSet};

use super::StreamValue;
use super::group::ConsumerGroup;
use super::id::StreamId;
use crate::value::body::CollectionCursor;
use basalt_core::alloc::slabs::Mover;

/// Approximate number of keys in one node of a tree.
const KEYS_PER_NODE: usize = 6;

/// A stretch is rebuilt when at least this fraction of its keys lies in sparse slabs.
const SPARSE_PART: usize = 3;

/// Part 0 of a [`CollectionCursor`] is the stream's own tree. The parts after it are, for each group, its tree and
/// those of its consumers.
const FIRST_GROUP: u64 = 1;

fn number(id: StreamId) -> u128 {
    u128::from(id.ms) << 64 | u128::from(id.seq)
}

fn id(number: u128) -> StreamId {
    StreamId::new((number >> 64) as u64, number as u64)
}

/// Adjacent keys of a tree, the key after them, and whether the stretch should be rebuilt.
struct StreamKeyRun {
    keys: Vec<StreamId>,
    next: Option<u128>,
    is_sparse: bool,
}

impl StreamKeyRun {
    fn of<'a>(
        mut keys: impl Iterator<Item = &'a StreamId>,
        budget: usize,
        mover: &mut Mover,
    ) -> StreamKeyRun {
        mover.begin();
        let mut stretch = StreamKeyRun {
            keys: Vec::with_capacity(budget),
            next: None,
            is_sparse: false,
        };
        for key in keys.by_ref().take(budget) {
            mover.add(std::ptr::from_ref(key).addr());
            stretch.keys.push(*key);
        }
        stretch.next = keys.next().copied().map(number);
        mover.look();
        let nodes = stretch.keys.len().div_ceil(KEYS_PER_NODE);
        stretch.is_sparse = mover.must_move_all(SPARSE_PART, nodes as u64);
        stretch
    }
}

fn relocate_map<V>(
    map: &mut BTreeMap<StreamId, V>,
    from: u128,
    budget: usize,
    mover: &mut Mover,
) -> Option<u128> {
    let stretch = StreamKeyRun::of(map.range(id(from)..).map(|(key, _)| key), budget, mover);
    if stretch.is_sparse {
        let taken: Vec<(StreamId, V)> = stretch
            .keys
            .iter()
            .filter_map(|key| map.remove_entry(key))
            .collect();
        if map.is_empty() {
            // An empty tree keeps its last node.
            *map = BTreeMap::new();
        }
        map.extend(taken);
    }
    stretch.next
}

fn relocate_set(
    set: &mut BTreeSet<StreamId>,
    from: u128,
    budget: usize,
    mover: &mut Mover,
) -> Option<u128> {
    let stretch = StreamKeyRun::of(set.range(id(from)..), budget, mover);
    if stretch.is_sparse {
        for key in &stretch.keys {
            set.remove(key);
        }
        if set.is_empty() {
            *set = BTreeSet::new();
        }
        set.extend(stretch.keys);
    }
    stretch.next
}

impl StreamValue {
    /// Moves some allocations, see [`Body::relocate_some`](crate::value::CollectionBody::relocate_some).
    pub(super) fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        let budget = budget.max(1);
        let next = match from.part {
            0 => {
                self.relocate_nodes(from.at, budget, mover);
                relocate_map(&mut self.nodes, from.at, budget, mover)
            }
            part => match self.part_mut(part - FIRST_GROUP) {
                Some((group, None)) => group.relocate_pending(from.at, budget, mover),
                Some((group, Some(consumer))) => {
                    group.relocate_consumer(consumer, from.at, budget, mover)
                }
                None => return CollectionCursor::default(),
            },
        };
        match next {
            Some(at) => CollectionCursor { at, ..from },
            None if from.part == 0 && self.groups.is_empty() => CollectionCursor::default(),
            None => CollectionCursor {
                part: from.part + 1,
                at: 0,
            },
        }
    }

    /// Moves the memory of the nodes, not of the tree that holds them.
    fn relocate_nodes(&mut self, from: u128, budget: usize, mover: &mut Mover) {
        mover.begin();
        for (_, node) in self.nodes.range(id(from)..).take(budget) {
            mover.add(node.bytes().as_ptr().addr());
        }
        mover.look();
        let nodes = self.nodes.range_mut(id(from)..).take(budget);
        for (index, (_, node)) in nodes.enumerate() {
            if mover.must_move(index) {
                node.relocate();
            }
        }
    }

    /// Returns the group, or its consumer, that a part refers to.
    fn part_mut(&mut self, part: u64) -> Option<(&mut ConsumerGroup, Option<usize>)> {
        let mut left = usize::try_from(part).ok()?;
        for group in self.groups.by_name.values_mut() {
            let places = 1 + group.consumer_places();
            if left < places {
                return Some((group, left.checked_sub(1)));
            }
            left -= places;
        }
        None
    }
}

impl ConsumerGroup {
    fn relocate_pending(&mut self, from: u128, budget: usize, mover: &mut Mover) -> Option<u128> {
        relocate_map(self.pending_mut(), from, budget, mover)
    }

    fn relocate_consumer(
        &mut self,
        place: usize,
        from: u128,
        budget: usize,
        mover: &mut Mover,
    ) -> Option<u128> {
        let consumer = self.consumer_at_mut(place)?;
        relocate_set(&mut consumer.pending, from, budget, mover)
    }
}
