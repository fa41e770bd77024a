//! Changes of a quicklist: at its ends, in its middle, and keeping its nodes full and compressed.
//!
//! A change in the middle edits one node. An element that does not fit goes to the near end of a neighbor, or the
//! node is split there; afterwards small neighbors are merged again.

use std::ops::Range;

use super::node::QuicklistNode;
use super::undo::{keep_pop, keep_push};
use super::{ELEMENT_BYTES_MORE, End, Quicklist, QuicklistNeedle};
use crate::structures::block::{Content, LONG_BYTES_MIN, SharedBlock};
use crate::structures::item::Item;
use crate::structures::listpack::{Listpack, encoded_len};

/// Capacity of a new node at an end, as a fraction of the preceding node: growing in small steps would be slow, and
/// reserving a full node at once would be much for short lists.
const FIRST_ROOM_SHARE: usize = 8;

/// Up to this number of nodes, the array of nodes is not shrunk.
const NODES_KEPT: usize = 32;

impl Quicklist {
    /// Adds an element at an end.
    #[inline]
    pub fn push(&mut self, end: End, element: &[u8]) {
        let limits = self.limits;
        if self.cut.is_some() {
            // At most one node is announced, and announcing a node that then stays unchanged does no harm.
            self.touch(self.end_node(end));
        }
        if let Some(node) = self.end_mut(end)
            && limits.take(node, element.len())
            && element.len() < limits.plain_bytes_min as usize
        {
            node.push(end, element);
        } else {
            self.push_node(end, element);
        }
        self.count += 1;
        if let Some(changes) = &mut self.changes {
            keep_push(changes, end);
        }
    }

    /// Adds an element at an end, keeping its block if it is in one.
    pub fn push_content(&mut self, end: End, element: Content<'_>) {
        match element.block() {
            Some(block) if self.push_block(end, block) => {}
            _ => self.push(end, &element),
        }
    }

    /// Adds a shared element at an end, if it must have a node for itself; otherwise does nothing and returns false.
    fn push_block(&mut self, end: End, element: &SharedBlock) -> bool {
        let is_plain = element.len() >= LONG_BYTES_MIN && self.limits.is_plain(element.len());
        if is_plain {
            self.touch(self.end_node(end));
            if let Some(node) = self.end_mut(end) {
                node.seal();
            }
            self.push_at(end, QuicklistNode::plain(element.into()));
            self.count += 1;
            if let Some(changes) = &mut self.changes {
                keep_push(changes, end);
            }
        }
        is_plain
    }

    #[cold]
    #[inline(never)]
    fn push_node(&mut self, end: End, element: &[u8]) {
        let before = self.end_mut(end).map_or(0, |node| {
            node.seal();
            node.len_bytes()
        });
        let node = if self.limits.is_plain(element.len()) {
            QuicklistNode::plain(element.into())
        } else {
            let mut node = QuicklistNode::empty(
                end,
                (before / FIRST_ROOM_SHARE).max(element.len() + ELEMENT_BYTES_MORE),
            );
            node.push(end, element);
            node
        };
        self.push_at(end, node);
    }

    fn push_at(&mut self, end: End, node: QuicklistNode) {
        match end {
            End::Front => self.nodes.push_front(node),
            End::Back => self.nodes.push_back(node),
        }
        self.compress_borders(1);
    }

    /// Adds a copy of a listpack after the last element, as a separate node.
    pub fn append_listpack(&mut self, pack: Listpack<'_>) {
        if pack.is_empty() {
            return;
        }
        self.append(QuicklistNode::packed(pack));
    }

    /// Adds an element after the last one, as a separate node.
    pub fn append_plain(&mut self, element: &[u8]) {
        self.append(QuicklistNode::plain(element.into()));
    }

    fn append(&mut self, node: QuicklistNode) {
        self.keep_window(self.nodes.len()..self.nodes.len());
        if let Some(last) = self.nodes.back_mut() {
            last.seal();
        }
        self.count += node.count();
        self.nodes.push_back(node);
        self.compress_borders(1);
    }

    /// Removes the element at an end and passes it to `take`; None if the list is empty.
    #[inline]
    pub fn pop<R>(&mut self, end: End, take: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        if self.changes.is_some() {
            self.keep_end(end);
        }
        if self.cut.is_some() {
            self.touch(self.end_node(end));
        }
        let node = self.end_mut(end)?;
        let result = node.pop(end, take);
        let is_empty = node.count() == 0;
        self.count -= 1;
        if is_empty {
            self.drop_nodes(match end {
                End::Front => 0..1,
                End::Back => self.nodes.len() - 1..self.nodes.len(),
            });
        }
        Some(result)
    }

    /// Records the element at an end, which is about to be removed, in the undo log.
    #[cold]
    fn keep_end(&mut self, end: End) {
        let at = match end {
            End::Front => 0,
            End::Back => self.nodes.len().saturating_sub(1),
        };
        let Quicklist { nodes, changes, .. } = self;
        if let (Some(node), Some(changes)) = (nodes.get(at), changes)
            && node.count() > 1
            && let Some(pack) = node.as_listpack()
        {
            let last = match end {
                End::Front => pack.first(),
                End::Back => pack.last(),
            };
            if let Some(last) = last {
                let keep = |element: &[u8]| keep_pop(changes, end, element);
                return pack.get(last).with_bytes(keep);
            }
        }
        self.keep_window(at..at + 1);
    }

    /// Inserts an element before the one at an index; at the end if the index is the number of elements.
    pub fn insert<'v>(&mut self, index: usize, element: impl Into<Content<'v>>) {
        let element: Content<'_> = element.into();
        if index == 0 {
            return self.push_content(End::Front, element);
        }
        let Some((at, offset)) = self.locate(index) else {
            return self.push_content(End::Back, element);
        };
        let limits = self.limits;
        let alone = limits.is_plain(element.len());
        self.count += 1;
        if !alone && limits.take(&self.nodes[at], element.len()) {
            self.keep_window(at..at + 1);
            self.change(at, |node| node.insert(offset, &element));
        } else if !alone && offset == 0 && limits.take(&self.nodes[at - 1], element.len()) {
            self.keep_window(at - 1..at);
            self.change(at - 1, |node| node.push(End::Back, &element));
        } else {
            self.keep_window(around(at..at + 1));
            self.insert_node(at, offset, element);
        }
    }

    /// Inserts an element as a separate node, between two nodes or between the halves of one.
    fn insert_node(&mut self, mut at: usize, offset: usize, element: Content<'_>) {
        if offset > 0 {
            let second = self.change(at, |node| node.split(offset));
            at += 1;
            self.nodes.insert(at, second);
        }
        let node = if self.limits.is_plain(element.len()) {
            QuicklistNode::plain(element)
        } else {
            let mut node = QuicklistNode::empty(End::Back, element.len() + ELEMENT_BYTES_MORE);
            node.push(End::Back, &element);
            node.seal();
            node
        };
        self.nodes.insert(at, node);
        self.merge_around(at);
    }

    /// Replaces the element at an index. Returns false if there is none.
    pub fn set<'v>(&mut self, index: usize, element: impl Into<Content<'v>>) -> bool {
        let element: Content<'_> = element.into();
        let Some((at, offset)) = self.locate(index) else {
            return false;
        };
        let alone = self.limits.is_plain(element.len());
        if self.nodes[at].count() == 1 {
            self.keep_window(around(at..at + 1));
            self.nodes.remove(at);
            self.insert_node(at, 0, element);
        } else if !alone && self.may_replace(at, offset, &element) {
            self.keep_window(at..at + 1);
            self.change(at, |node| node.replace(offset, &element));
        } else {
            self.keep_window(at..at + 1);
            self.change(at, |node| node.remove_range(offset, 1));
            self.count -= 1;
            self.insert(index, element);
        }
        true
    }

    /// True if a node stays within the limits when one of its elements is replaced by another.
    fn may_replace(&self, at: usize, offset: usize, element: &[u8]) -> bool {
        let node = &self.nodes[at];
        let replaced = node.with_pack(|pack| {
            pack.nth(offset as isize)
                .map_or(0, |at| pack.get(at).encoded_len())
        });
        let len = encoded_len(element);
        // An element that is not longer than the replaced one may stay even in a node that is too full.
        len <= replaced
            || self
                .limits
                .allow(node.len_bytes() - replaced + len, node.count())
    }

    /// Removes elements, starting at an index.
    pub fn remove_range(&mut self, first: usize, count: usize) {
        let count = count.min(self.count.saturating_sub(first));
        if count == 0 {
            return;
        }
        let (first_node, first_offset) = self.locate(first).expect("within the list");
        let (last_node, last_offset) = self.locate(first + count - 1).expect("within the list");
        let is_merged = first_node > 0 || first_offset > 0;
        let stays = match first_node == last_node {
            true => last_offset + 1 - first_offset < self.nodes[first_node].count(),
            false => first_offset > 0,
        };
        let last_stays = last_offset + 1 < self.nodes[last_node].count();
        let leaving = first_node + usize::from(stays)..last_node + usize::from(!last_stays);
        self.keep_leaving(
            match is_merged {
                true => around(first_node..last_node + 1),
                false => first_node..last_node + 1,
            },
            leaving,
        );
        self.count -= count;
        let is_whole = |node: &QuicklistNode, offsets: Range<usize>| offsets.len() == node.count();
        let mut whole = first_node..last_node + 1;
        for at in [last_node, first_node] {
            let node = &self.nodes[at];
            let from = if at == first_node { first_offset } else { 0 };
            let to = if at == last_node {
                last_offset + 1
            } else {
                node.count()
            };
            if !is_whole(node, from..to) {
                self.change(at, |node| node.remove_range(from, to - from));
                if at == last_node {
                    whole.end = last_node;
                }
                if at == first_node {
                    whole.start = first_node + 1;
                }
            }
            if first_node == last_node {
                break;
            }
        }
        if whole.start < whole.end {
            self.drop_nodes(whole);
        }
        // A removal from the middle may have left two small nodes side by side.
        if is_merged {
            self.merge_around(first_node.min(self.nodes.len().saturating_sub(1)));
        }
    }

    /// Removes at most `count_max` elements equal to `element`, the first ones counted from an end. Returns their
    /// number.
    pub fn remove_equal(&mut self, element: &[u8], from: End, count_max: usize) -> usize {
        let wanted = QuicklistNeedle::new(element);
        let mut removed = 0;
        let mut found = Vec::new();
        let mut emptied = 0;
        let mut changed = self.nodes.len()..0;
        for step in 0..self.nodes.len() {
            if removed == count_max {
                break;
            }
            let at = match from {
                End::Front => step,
                End::Back => self.nodes.len() - 1 - step,
            };
            found.clear();
            find_in(&self.nodes[at], &wanted, &mut found);
            let excess = found.len().saturating_sub(count_max - removed);
            match from {
                End::Front => found.truncate(found.len() - excess),
                End::Back => drop(found.drain(..excess)),
            }
            if found.is_empty() {
                continue;
            }
            removed += found.len();
            self.keep_window(at..at + 1);
            changed = changed.start.min(at)..changed.end.max(at + 1);
            if found.len() == self.nodes[at].count() {
                self.nodes[at] = QuicklistNode::empty(End::Back, 0);
                emptied += 1;
            } else {
                self.change(at, |node| node.remove_each(&found));
            }
        }
        self.count -= removed;
        if removed > 0 {
            self.tidy(changed, emptied);
        }
        removed
    }

    /// Returns the node at an end as a range of nodes; empty for an empty list.
    pub(super) fn end_node(&self, end: End) -> Range<usize> {
        let count = self.nodes.len();
        match end {
            End::Front => 0..count.min(1),
            End::Back => count.saturating_sub(1)..count,
        }
    }

    #[inline]
    pub(super) fn end_mut(&mut self, end: End) -> Option<&mut QuicklistNode> {
        match end {
            End::Front => self.nodes.front_mut(),
            End::Back => self.nodes.back_mut(),
        }
    }

    /// Changes a node; a compressed node is decompressed before and compressed again afterwards.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut QuicklistNode) -> R) -> R {
        let node = &mut self.nodes[at];
        node.decompress();
        let result = change(node);
        node.seal_if_loose();
        self.compress_if_inner(at);
        result
    }

    fn drop_nodes(&mut self, nodes: Range<usize>) {
        self.nodes.drain(nodes);
        if self.nodes.len() < self.nodes.capacity() / 4 && self.nodes.capacity() > NODES_KEPT {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
        self.decompress_ends();
    }

    /// Merges small adjacent nodes, at and near a node.
    fn merge_around(&mut self, at: usize) {
        let mut at = at;
        for _ in 0..2 {
            if self.try_merge(at + 1) {
                continue;
            }
            break;
        }
        for _ in 0..2 {
            if at == 0 || !self.try_merge(at) {
                break;
            }
            at -= 1;
        }
        self.settle(at);
    }

    /// Merges a node with the preceding one, if that is within the limits.
    fn try_merge(&mut self, at: usize) -> bool {
        if at == 0 || at >= self.nodes.len() || !self.may_merge(at) {
            return false;
        }
        let mut second = self.nodes.remove(at).expect("within the row");
        second.decompress();
        let first = &mut self.nodes[at - 1];
        first.decompress();
        first.absorb(&second);
        true
    }

    fn may_merge(&self, at: usize) -> bool {
        let (first, second) = (&self.nodes[at - 1], &self.nodes[at]);
        !first.is_plain()
            && !second.is_plain()
            && self.limits.allow(
                first.len_bytes() + second.len_bytes() - super::PACK_BYTES_MIN,
                first.count() + second.count(),
            )
    }

    /// Cleans up after removals from nodes in a range: drops the `emptied` empty ones, and merges small adjacent
    /// ones.
    fn tidy(&mut self, changed: Range<usize>, emptied: usize) {
        let touched = changed.start.saturating_sub(1)..(changed.end + 1).min(self.nodes.len());
        if emptied > 0 {
            self.keep_window(touched.clone());
            self.nodes.retain(|node| node.count() > 0);
        }
        let touched = touched.start..touched.end - emptied;
        if (touched.start + 1..touched.end).any(|at| self.may_merge(at)) {
            if emptied == 0 {
                self.keep_window(touched.clone());
            }
            let rest = std::mem::take(&mut self.nodes);
            for (at, node) in rest.into_iter().enumerate() {
                self.nodes.push_back(node);
                if at > touched.start && at < touched.end {
                    self.try_merge(self.nodes.len() - 1);
                }
            }
        }
        self.compress_all();
    }

    /// Ensures that exactly the nodes near the ends are not compressed.
    pub(super) fn compress_all(&mut self) {
        if self.limits.compress_depth == 0 {
            return;
        }
        for at in 0..self.nodes.len() {
            self.compress_if_inner(at);
        }
        self.decompress_ends();
    }

    /// Updates compression after nodes were added or removed at and next to this one.
    fn settle(&mut self, at: usize) {
        if self.limits.compress_depth == 0 {
            return;
        }
        for at in at.saturating_sub(1)..(at + 3).min(self.nodes.len()) {
            self.compress_if_inner(at);
        }
        // The halves of a split node, and the nodes between them.
        self.compress_borders(2);
        self.decompress_ends();
    }

    /// Compresses the nodes that `added` new nodes may have moved from the ends into the middle.
    fn compress_borders(&mut self, added: usize) {
        let depth = self.limits.compress_depth as usize;
        if depth == 0 || self.nodes.len() <= depth {
            return;
        }
        let (first, last) = (depth, self.nodes.len() - 1 - depth);
        for step in 0..added {
            self.compress_if_inner(first + step);
            self.compress_if_inner(last.saturating_sub(step));
        }
    }

    fn compress_if_inner(&mut self, at: usize) {
        let depth = self.limits.compress_depth as usize;
        if depth > 0 && at >= depth && at + depth < self.nodes.len() {
            self.nodes[at].compress();
        }
    }

    fn decompress_ends(&mut self) {
        let count = self.nodes.len();
        let depth = (self.limits.compress_depth as usize).min(count);
        for at in 0..depth {
            self.nodes[at].decompress();
            self.nodes[count - 1 - at].decompress();
        }
    }
}

/// Extends a range of nodes by those that may change too, because small adjacent nodes are merged.
fn around(nodes: Range<usize>) -> Range<usize> {
    nodes.start.saturating_sub(3)..nodes.end + 3
}

fn find_in(node: &QuicklistNode, wanted: &QuicklistNeedle<'_>, found: &mut Vec<usize>) {
    if let Some(element) = node.as_plain() {
        if wanted.is(element) {
            found.push(0);
        }
        return;
    }
    node.with_pack(|pack| {
        let matching = pack
            .iter()
            .enumerate()
            .filter(|(_, element)| wanted.is((*element).into()));
        found.extend(matching.map(|(index, _)| index));
    });
}
