//! The number of nodes that Redis's radix tree would have over the same keys: XINFO STREAM reports it, and clients
//! use it as a measure of memory. There is no such tree here.
//!
//! In that tree the keys are 16 bytes, big-endian. Every branching is a node, every key's end is a node, and each
//! stretch of bytes without a branching between two such nodes is one node more.

use super::id::StreamId;

const KEY_BYTES: usize = 16;

/// Returns the number of nodes of the tree over keys in ascending order.
pub(super) fn node_count(keys: impl Iterator<Item = StreamId>) -> u64 {
    let mut nodes = 0;
    // Depths of the branchings above the last key, the deepest last.
    let mut branchings: Vec<usize> = Vec::new();
    let mut before: Option<StreamId> = None;
    for key in keys {
        if let Some(before) = before {
            let shared = shared_bytes(before, key);
            let mut depth = KEY_BYTES;
            while let Some(&above) = branchings.last()
                && above > shared
            {
                branchings.pop();
                nodes += node_below(depth, above);
                depth = above;
            }
            if branchings.last() != Some(&shared) {
                branchings.push(shared);
            }
            nodes += node_below(depth, shared);
        }
        before = Some(key);
    }
    if before.is_none() {
        return 1;
    }
    let mut depth = KEY_BYTES;
    while let Some(above) = branchings.pop() {
        nodes += node_below(depth, above);
        depth = above;
    }
    nodes + 1 + u64::from(depth > 0)
}

/// Counts a node at `depth` under a branching at `above`, with the stretch between them.
fn node_below(depth: usize, above: usize) -> u64 {
    1 + u64::from(depth > above + 1)
}

fn shared_bytes(first: StreamId, second: StreamId) -> usize {
    let differing = |first: u64, second: u64| ((first ^ second).leading_zeros() / 8) as usize;
    if first.ms == second.ms {
        8 + differing(first.seq, second.seq)
    } else {
        differing(first.ms, second.ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(ids: &[(u64, u64)]) -> u64 {
        node_count(ids.iter().map(|&(ms, seq)| StreamId::new(ms, seq)))
    }

    /// Counts by the definition: over all prefixes of all keys.
    fn count_plainly(ids: &[(u64, u64)]) -> u64 {
        use std::collections::{BTreeMap, BTreeSet};
        let mut children: BTreeMap<Vec<u8>, BTreeSet<u8>> = BTreeMap::new();
        for (ms, seq) in ids {
            let key = [ms.to_be_bytes(), seq.to_be_bytes()].concat();
            for depth in 0..KEY_BYTES {
                children
                    .entry(key[..depth].to_vec())
                    .or_default()
                    .insert(key[depth]);
            }
        }
        let is_single = |prefix: &[u8]| children.get(prefix).is_some_and(|next| next.len() == 1);
        let branchings = children.values().filter(|next| next.len() > 1).count();
        let stretches = children
            .keys()
            .filter(|prefix| {
                is_single(prefix) && (prefix.is_empty() || !is_single(&prefix[..prefix.len() - 1]))
            })
            .count();
        (ids.len() + branchings + stretches).max(1) as u64
    }

    #[test]
    fn small_trees_have_the_nodes_that_redis_says() {
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[(1, 1)]), 2);
        assert_eq!(count(&[(1, 1), (1, 2)]), 4);
    }

    #[test]
    fn counting_agrees_with_the_definition() {
        let mut random = basalt_core::base::random::Random::new(7);
        for round in 0..300_u64 {
            let mut ids: Vec<(u64, u64)> = (0..random.below(40))
                .map(|_| {
                    let shift = random.below(60);
                    (random.next_u64() >> shift >> (round % 4), random.below(300))
                })
                .collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(count(&ids), count_plainly(&ids), "{ids:?}");
        }
    }
}
