//! A counted B+tree: each inner node knows how many items are below each child, so a rank costs one descent, and so
//! does the item at a rank.
//!
//! ```text
//! leaf   len | 31 items                                                512 bytes for items of 16
//! inner  len | 27 least items | 27 counts | 27 children                768 bytes
//! ```
//!
//! A full node splits in the middle, except at the right edge of the tree, where it keeps nine tenths, so that
//! ascending insertions leave full nodes behind. A node below a quarter is merged with its neighbor, or takes half
//! of the neighbor's contents. There are no links between leaves: a walk descends anew for each leaf, which costs
//! less than maintaining links would.
//!
//! Invariants: all leaves are equally deep; no node but the root is empty; an inner root has at least two children;
//! `heads` are the least items below the children and `counts` their numbers of items, less than 2^32; the contents
//! of a node beyond its length are meaningless.

mod node;

use std::cmp::Ordering;

use node::{Fork, InnerNode, LEAF_ITEMS, Leaf, RemovalTarget, Root, TreeNode, relocated};

use super::{Direction, Movers, Ordered, OrderedItem};

/// A counted B+tree, see the module.
pub struct Tree<T> {
    root: Root<T>,
    len: usize,
}

impl<T: OrderedItem> Tree<T> {
    /// Creates an empty tree, which takes no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            root: Root::Empty,
            len: 0,
        }
    }

    /// Creates a tree of strictly ascending items. Its nodes are as full as those left by ascending insertions.
    #[must_use]
    pub fn of_ascending(items: &[T]) -> Self {
        Self {
            root: Root::of_ascending(items),
            len: items.len(),
        }
    }

    /// Prefetches the leaf with the last item that satisfies `before`, so that the inner nodes and the leaf are in
    /// the cache when needed.
    pub fn prefetch(&self, before: impl Fn(&T) -> bool) {
        match &self.root {
            Root::Empty => {}
            Root::Leaf(leaf) => leaf.prefetch(&before),
            Root::Inner(inner) => inner.prefetch(&before),
        }
    }

    fn leaf_at(&self, rank: usize) -> Option<(&[T], usize)> {
        match &self.root {
            Root::Empty => None,
            Root::Leaf(leaf) => leaf.leaf_at(rank),
            Root::Inner(inner) => inner.leaf_at(rank),
        }
    }

    fn take(&mut self, wanted: RemovalTarget<T>, taken: &mut impl FnMut(&[T])) {
        let mut count = 0;
        let mut count_taken = |items: &[T]| {
            count += items.len();
            taken(items);
        };
        match &mut self.root {
            Root::Empty => {}
            Root::Leaf(leaf) => leaf.take(wanted, &mut count_taken),
            Root::Inner(inner) => inner.take(wanted, &mut count_taken),
        }
        self.len -= count;
        if self.len == 0 {
            self.root = Root::Empty;
        }
        while let Root::Inner(inner) = &mut self.root
            && let Some(child) = inner.only_child()
        {
            self.root = child;
        }
    }
}

impl<T: OrderedItem> Default for Tree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: OrderedItem> Ordered<T> for Tree<T> {
    type Items<'a>
        = TreeItems<'a, T>
    where
        T: 'a;

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, item: T) {
        self.len += 1;
        match &mut self.root {
            Root::Empty => self.root = Root::Leaf(Box::new(Leaf::new(item))),
            Root::Leaf(leaf) => {
                if let Some(right) = leaf.insert(item, true)
                    && let Root::Leaf(left) = std::mem::replace(&mut self.root, Root::Empty)
                {
                    let fork = Fork::of_two(left, right);
                    self.root = Root::Inner(Box::new(InnerNode::Low(fork)));
                }
            }
            Root::Inner(inner) => {
                if let Some(right) = inner.insert(item, true)
                    && let Root::Inner(left) = std::mem::replace(&mut self.root, Root::Empty)
                {
                    let fork = Fork::of_two(left, right);
                    self.root = Root::Inner(Box::new(InnerNode::High(fork)));
                }
            }
        }
    }

    fn remove(&mut self, item: T) -> bool {
        let before = self.len;
        self.take(RemovalTarget::Item(item), &mut |_| {});
        self.len < before
    }

    fn replace(&mut self, old: T, new: T) {
        let before = self.len;
        self.take(RemovalTarget::Replaced(old, new), &mut |_| {});
        if self.len < before {
            self.insert(new);
        }
    }

    fn rank_by(&self, before: impl Fn(&T) -> bool) -> usize {
        match &self.root {
            Root::Empty => 0,
            Root::Leaf(leaf) => leaf.rank_by(&before),
            Root::Inner(inner) => inner.rank_by(&before),
        }
    }

    fn get(&self, rank: usize) -> Option<T> {
        let (leaf, at) = self.leaf_at(rank)?;
        leaf.get(at).copied()
    }

    fn items(&self, from: usize, to: usize, direction: Direction) -> TreeItems<'_, T> {
        let to = to.min(self.len);
        TreeItems {
            tree: self,
            from: from.min(to),
            to,
            leaf: &[],
            direction,
        }
    }

    fn take_some(&mut self, rank: usize, limit: usize, taken: &mut Vec<T>) {
        if rank < self.len && limit > 0 {
            self.take(RemovalTarget::Rank { rank, limit }, &mut |items| {
                taken.extend_from_slice(items);
            });
        }
    }

    fn relocate_from(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        if rank >= self.len {
            return self.len;
        }
        if rank == 0 {
            self.root = match std::mem::replace(&mut self.root, Root::Empty) {
                Root::Empty => Root::Empty,
                Root::Leaf(leaf) => Root::Leaf(relocated(leaf, movers)),
                Root::Inner(inner) => Root::Inner(relocated(inner, movers)),
            };
        }
        rank + match &mut self.root {
            Root::Empty => 0,
            Root::Leaf(leaf) => leaf.relocate(rank, movers),
            Root::Inner(inner) => inner.relocate(rank, movers),
        }
    }

    fn free_some(&mut self, budget: usize) -> bool {
        let end = self.len.saturating_sub(budget.max(1));
        while self.len > end {
            let rank = end.max(self.len.saturating_sub(LEAF_ITEMS));
            let limit = self.len - rank;
            self.take(RemovalTarget::Rank { rank, limit }, &mut |_| {});
        }
        self.len > 0
    }

    fn check_invariants(&self) {
        match &self.root {
            Root::Empty => assert_eq!(self.len, 0),
            Root::Leaf(leaf) => {
                leaf.check(true);
                assert_eq!(self.len, leaf.count());
            }
            Root::Inner(inner) => {
                inner.check(true);
                assert_eq!(self.len, inner.count());
            }
        }
        let mut last: Option<T> = None;
        for item in self.items(0, self.len, Direction::Ascending) {
            assert!(last.is_none_or(|last| last.order(&item) == Ordering::Less));
            last = Some(item);
        }
    }
}

/// An iterator over some ranks of a tree.
pub struct TreeItems<'a, T: OrderedItem> {
    tree: &'a Tree<T>,
    /// Ranks not visited yet; `leaf` contains the first, or the last, of them.
    from: usize,
    to: usize,
    leaf: &'a [T],
    direction: Direction,
}

impl<T: OrderedItem> Iterator for TreeItems<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.from >= self.to {
            return None;
        }
        if self.leaf.is_empty() {
            self.leaf = match self.direction {
                Direction::Ascending => {
                    let (leaf, at) = self.tree.leaf_at(self.from)?;
                    leaf.get(at..)?
                }
                Direction::Descending => {
                    let (leaf, at) = self.tree.leaf_at(self.to - 1)?;
                    leaf.get(..=at)?
                }
            };
        }
        match self.direction {
            Direction::Ascending => {
                let (first, rest) = self.leaf.split_first()?;
                self.leaf = rest;
                self.from += 1;
                Some(*first)
            }
            Direction::Descending => {
                let (last, rest) = self.leaf.split_last()?;
                self.leaf = rest;
                self.to -= 1;
                Some(*last)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.to.saturating_sub(self.from);
        (left, Some(left))
    }
}

impl<T: OrderedItem> ExactSizeIterator for TreeItems<'_, T> {}
