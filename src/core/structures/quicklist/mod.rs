//! A list of byte strings, long or short: a row of nodes, each of which packs many elements into a few KiB.
//!
//! ```text
//!          front                                                   back
//! nodes    [a b c …]   [lzf of d e f …]   [one large element]   [… y z]
//! ```
//!
//! Adding and removing at either end costs the same however long the list is; the middle is reached from the nearer
//! end by the counts of the nodes, which are contiguous. The capacity of a node and the number of uncompressed
//! nodes at either end are fixed when the list is made. An element too large to be packed with others has a node
//! for itself.
//!
//! Invariants: no node is empty; a node is within the limits unless it holds only one element or was taken over
//! whole; the `compress_depth` nodes at either end are not compressed, and the others are if that saves memory; only
//! the nodes at the ends have more memory than their size class requires. The module knows nothing of the meaning of
//! elements.

mod cut;
mod edit;
mod node;
#[cfg(test)]
mod tests;
mod undo;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::alloc::slabs::Mover;
use crate::base::number::parse_i64;
use crate::structures::item::Item;
use crate::structures::listpack::Listpack;
use crate::structures::undo_log::UndoLog;

use cut::QuicklistCut;
use node::QuicklistNode;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end with the first element.
    Front,
    /// The end with the last element.
    Back,
}

/// The limits of nodes, and the compression depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicklistLimits {
    /// Maximum elements of a node if positive; -1 to -5 for nodes of 4, 8, 16, 32 and 64 KiB.
    pub fill: i32,
    /// Number of nodes at either end that are not compressed; 0 disables compression.
    pub compress_depth: u32,
    /// Elements of at least this length have a node for themselves even if they would fit.
    pub plain_bytes_min: u32,
}

/// Maximum bytes of a node whose limit is a number of elements.
const COUNTED_BYTES_MAX: usize = 8192;

/// Maximum overhead bytes of an element in a listpack, except for very long elements.
const ELEMENT_BYTES_MORE: usize = 8;

/// Bytes of the header and the end marker of a listpack.
const PACK_BYTES_MIN: usize = 7;

impl QuicklistLimits {
    /// Returns the maximum bytes and elements of a node, divided by `share`.
    fn most(&self, share: usize) -> (usize, usize) {
        match self.fill {
            0.. => (usize::MAX, self.fill.max(1) as usize / share),
            _ => {
                let level = self.fill.unsigned_abs().min(5) - 1;
                ((4096 << level) / share, usize::MAX)
            }
        }
    }

    /// True if a listpack of this size may be a node, or a list of its own.
    #[inline]
    pub fn allow(&self, bytes: usize, count: usize) -> bool {
        let (bytes_max, count_max) = self.most(1);
        bytes
            <= bytes_max.min(if self.fill < 0 {
                usize::MAX
            } else {
                COUNTED_BYTES_MAX
            })
            && count <= count_max
    }

    /// True if a list of this size is so small that it should become a single listpack again: half of the limit of
    /// [`QuicklistLimits::allow`], so that a list that stays near the limit is not converted repeatedly.
    pub fn are_far(&self, bytes: usize, count: usize) -> bool {
        let (bytes_max, count_max) = self.most(2);
        bytes <= bytes_max && count <= count_max
    }

    /// True if an element must have a node for itself.
    #[inline]
    fn is_plain(&self, len: usize) -> bool {
        len >= self.plain_bytes_min as usize
            || !self.allow(PACK_BYTES_MIN + len + ELEMENT_BYTES_MORE, 1)
    }

    /// True if a node can take one more element.
    #[inline]
    fn take(&self, node: &QuicklistNode, len: usize) -> bool {
        !node.is_plain()
            && self.allow(
                node.len_bytes() + len + ELEMENT_BYTES_MORE,
                node.count() + 1,
            )
    }
}

/// An element to search for, which may be stored as a number.
struct QuicklistNeedle<'a> {
    bytes: &'a [u8],
    integer: Option<i64>,
}

impl<'a> QuicklistNeedle<'a> {
    fn new(bytes: &'a [u8]) -> QuicklistNeedle<'a> {
        QuicklistNeedle {
            bytes,
            integer: parse_i64(bytes),
        }
    }

    #[inline]
    fn is(&self, item: Item<'_>) -> bool {
        item.equals(self.bytes, self.integer)
    }
}

/// A node as visible to others.
pub enum QuicklistNodeView<'a> {
    /// A node of packed elements: the bytes of its listpack.
    Packed(Cow<'a, [u8]>),
    /// A node of a single large element.
    Plain(Item<'a>),
}

/// A list, see the module.
pub struct Quicklist {
    nodes: VecDeque<QuicklistNode>,
    count: usize,
    limits: QuicklistLimits,
    /// Undo log, while changes are recorded.
    changes: Option<UndoLog>,
    /// The state at a cut of which some part has not been saved yet.
    cut: Option<Box<QuicklistCut>>,
}

impl Quicklist {
    /// Creates an empty list.
    #[must_use]
    pub fn new(limits: QuicklistLimits) -> Quicklist {
        Quicklist {
            nodes: VecDeque::new(),
            count: 0,
            limits,
            changes: None,
            cut: None,
        }
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Moves nodes out of sparse slabs, examining about `budget` nodes, starting at the node `first`. Returns the
    /// index of the node to continue with, 0 at the end.
    pub fn relocate_nodes(&mut self, first: usize, budget: usize, mover: &mut Mover) -> usize {
        let end = first
            .saturating_add(budget.clamp(1, 256))
            .min(self.nodes.len());
        let first = first.min(end);
        mover.begin();
        for node in self.nodes.range(first..end) {
            mover.add(node.address());
        }
        mover.look();
        for (index, node) in self.nodes.range_mut(first..end).enumerate() {
            if mover.must_move(index) {
                node.relocate();
            }
        }
        if end < self.nodes.len() { end } else { 0 }
    }

    /// Returns the limits of nodes, fixed when the list was created.
    #[must_use]
    pub fn limits(&self) -> QuicklistLimits {
        self.limits
    }

    /// Returns the listpack of a list with a single packed node.
    #[must_use]
    pub fn single_listpack(&self) -> Option<Listpack<'_>> {
        match self.nodes.len() {
            1 => self.nodes[0].as_listpack(),
            _ => None,
        }
    }

    /// Returns the bytes of all listpacks and large elements, as if nothing were compressed.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        self.nodes.iter().map(QuicklistNode::len_bytes).sum()
    }

    /// Passes the element at an index to `read` and returns the result; None if the index is not in the list.
    pub fn get<R>(&self, index: usize, read: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let (at, offset) = self.locate(index)?;
        let node = &self.nodes[at];
        if let Some(element) = node.as_plain() {
            return Some(read(element));
        }
        node.with_pack(|pack| {
            pack.nth(offset as isize)
                .map(|at| read(pack.get(at).into()))
        })
    }

    /// Visits elements from one end towards the other, skipping the first `skipped`, until `visit` returns a break.
    pub fn walk<B>(
        &self,
        from: End,
        skipped: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if skipped >= self.count {
            return ControlFlow::Continue(());
        }
        let first = match from {
            End::Front => skipped,
            End::Back => self.count - 1 - skipped,
        };
        let (mut at, offset) = self.locate(first).expect("within the list");
        let mut offset = match from {
            End::Front => offset,
            End::Back => self.nodes[at].count() - 1 - offset,
        };
        loop {
            visit_node(&self.nodes[at], from, offset, &mut visit)?;
            offset = 0;
            at = match from {
                End::Front if at + 1 < self.nodes.len() => at + 1,
                End::Back if at > 0 => at - 1,
                _ => return ControlFlow::Continue(()),
            };
        }
    }

    /// Returns the index, counted from the front, of the first element equal to `element`.
    #[must_use]
    pub fn position(&self, element: &[u8]) -> Option<usize> {
        let wanted = QuicklistNeedle::new(element);
        let mut index = 0;
        let found = self.walk(End::Front, 0, |element| {
            if wanted.is(element) {
                return ControlFlow::Break(());
            }
            index += 1;
            ControlFlow::Continue(())
        });
        found.is_break().then_some(index)
    }

    /// Returns a copy that shares nothing with the original.
    #[must_use]
    pub fn duplicate(&self) -> Quicklist {
        Quicklist {
            nodes: self.nodes.iter().map(QuicklistNode::duplicate).collect(),
            count: self.count,
            limits: self.limits,
            changes: None,
            cut: None,
        }
    }

    /// Returns copies of some nodes, of about `bytes_max` bytes in total, from that on which begins with the element
    /// at `index`; None if no node begins there. They share long elements with the list until they are
    /// [appended](Quicklist::append_copies).
    #[must_use]
    pub fn copy_some(&self, index: usize, bytes_max: usize) -> Option<Quicklist> {
        let (first, offset) = self.locate(index)?;
        if offset > 0 {
            return None;
        }
        let mut part = Quicklist::new(self.limits);
        let mut bytes = 0;
        for node in self.nodes.range(first..) {
            if bytes >= bytes_max {
                break;
            }
            bytes += node.copied_bytes();
            part.count += node.count();
            part.nodes.push_back(node.share());
        }
        Some(part)
    }

    /// Appends nodes from [`Quicklist::copy_some`], and copies the elements that they share.
    pub fn append_copies(&mut self, part: Quicklist) {
        self.count += part.count;
        let nodes = part.nodes.into_iter();
        self.nodes.extend(nodes.map(QuicklistNode::without_sharing));
    }

    /// Prefetches the memory that a command at one end reads first.
    pub fn prefetch(&self, end: End) {
        let node = match end {
            End::Front => self.nodes.front(),
            End::Back => self.nodes.back(),
        };
        if let Some(node) = node {
            node.prefetch(end);
        }
    }

    /// Frees some nodes with about `budget` elements. Returns true while some are left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        let mut freed = 0;
        while freed < budget {
            match self.nodes.pop_back() {
                Some(node) => freed += node.count(),
                None => return false,
            }
        }
        self.count = self.count.saturating_sub(freed);
        !self.nodes.is_empty()
    }

    /// Returns the node of an element and its index there.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.count {
            return None;
        }
        if index <= self.count / 2 {
            let mut before = 0;
            for (at, node) in self.nodes.iter().enumerate() {
                if index < before + node.count() {
                    return Some((at, index - before));
                }
                before += node.count();
            }
        } else {
            let mut before = self.count;
            for (at, node) in self.nodes.iter().enumerate().rev() {
                before -= node.count();
                if index >= before {
                    return Some((at, index - before));
                }
            }
        }
        unreachable!("the nodes hold as many elements as the list")
    }
}

fn visit_node<B>(
    node: &QuicklistNode,
    from: End,
    skipped: usize,
    visit: &mut impl FnMut(Item<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    if let Some(element) = node.as_plain() {
        return visit(element);
    }
    node.with_pack(|pack| match from {
        End::Front => { pack.iter().skip(skipped) }.try_for_each(|element| visit(element.into())),
        End::Back => {
            { pack.iter().rev().skip(skipped) }.try_for_each(|element| visit(element.into()))
        }
    })
}
