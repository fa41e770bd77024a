//! Ordered sequences with ranks, and sets of scored members on top.
//!
//! ```text
//! this file  the interface of an index of ordered items, and the choice between two of them
//! tree       a counted B+tree: the default, smaller and faster
//! skip       a skip list whose links know how far they reach
//! record     one allocation for a member and its score
//! ranking    members found by name through a table, and by order through an index
//! ```
//!
//! An index holds small items that can be copied and compared, and knows nothing of their meaning. Positions are
//! always given by a predicate that is true for the items up to some point and false from there on, so that bounds of
//! any kind cost one descent.
//!
//! Invariants: items are in strictly ascending order; no two compare equal; those of each module.

pub mod ranking;
mod record;
pub mod skip;
pub mod tree;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use skip::SkipList;
use tree::Tree;

/// An item of an index: small, with a total order.
pub trait OrderedItem: Copy {
    /// Compares the item to another one.
    fn order(&self, other: &Self) -> Ordering;

    /// True if a first comparison, without following any pointer, shows that the item comes before another. If this
    /// is false in both directions, only [`OrderedItem::order`] can tell.
    fn is_surely_before(&self, other: &Self) -> bool;
}

/// A callback that moves the nodes of an index, and the targets of its items, in memory.
pub trait Movers<T> {
    /// May replace each item by one that compares as equal.
    fn items(&mut self, items: &mut [T]);

    /// Returns whether the node at this address is to be moved.
    fn moves_node(&mut self, address: usize) -> bool;
}

/// Counts the ascending items that come before another: those that compare as less, or with `and_equal` as less or
/// equal. The first comparisons are branchless; only items that look alike are compared in full.
#[inline]
fn count_before<T: OrderedItem>(items: &[T], item: &T, and_equal: bool) -> usize {
    let first = items.partition_point(|other| other.is_surely_before(item));
    let alike = &items[first..];
    match alike.first() {
        Some(other) if !item.is_surely_before(other) => {}
        _ => return first,
    }
    let end = alike.partition_point(|other| !item.is_surely_before(other));
    let last = if and_equal {
        Ordering::Equal
    } else {
        Ordering::Less
    };
    first + alike[..end].partition_point(|other| other.order(item) <= last)
}

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least to the greatest.
    Ascending,
    /// From the greatest to the least.
    Descending,
}

/// An ordered sequence of items with ranks, which count from 0.
pub trait Ordered<T: OrderedItem> {
    /// An iterator over a range.
    type Items<'a>: Iterator<Item = T>
    where
        Self: 'a,
        T: 'a;

    /// Returns the number of items.
    fn len(&self) -> usize;

    /// True if there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an item that does not exist yet.
    fn insert(&mut self, item: T);

    /// Removes an item. Returns whether it existed.
    fn remove(&mut self, item: T) -> bool;

    /// Replaces `old`, which exists, by `new`, which does not exist yet, and moves it to its position.
    fn replace(&mut self, old: T, new: T);

    /// Returns the number of items that satisfy `before`, which must be false for all items after one for which it is
    /// false.
    fn rank_by(&self, before: impl Fn(&T) -> bool) -> usize;

    /// Returns the item at this rank; None beyond the end.
    fn get(&self, rank: usize) -> Option<T>;

    /// Returns the items with ranks from `from` up to but not including `to`.
    fn items(&self, from: usize, to: usize, direction: Direction) -> Self::Items<'_>;

    /// Removes some items starting at `rank`, at least one if there is one and at most `limit`, and adds them to
    /// `taken`. Compares no items.
    fn take_some(&mut self, rank: usize, limit: usize, taken: &mut Vec<T>);

    /// Passes adjacent items starting at `rank`, at least one if there is one, and the nodes that hold them, to
    /// `movers`. Returns the rank after the last of them.
    fn relocate_from(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize;

    /// Frees the memory of about `budget` items. Returns true while any is left; until then no other method may be
    /// called.
    fn free_some(&mut self, budget: usize) -> bool;

    /// Panics unless the index's invariants hold. For tests; reads everything.
    fn check_invariants(&self);
}

/// The implementation of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderedIndexType {
    /// The counted B+tree.
    #[default]
    Tree,
    /// The skip list.
    Skip,
}

/// An index of either form.
pub enum Index<T> {
    /// A counted B+tree.
    Tree(Tree<T>),
    /// A skip list; boxed, as its struct is large.
    Skip(Box<SkipList<T>>),
}

/// An iterator over an index of either form.
pub enum IndexItems<'a, T: OrderedItem> {
    /// Over a tree.
    Tree(tree::TreeItems<'a, T>),
    /// Over a skip list.
    Skip(skip::SkipItems<'a, T>),
}

impl<T: OrderedItem> Index<T> {
    /// Creates an empty index. `seed` determines the heights of a skip list's nodes.
    #[must_use]
    pub fn new(form: OrderedIndexType, seed: u64) -> Self {
        match form {
            OrderedIndexType::Tree => Self::Tree(Tree::new()),
            OrderedIndexType::Skip => Self::Skip(Box::new(SkipList::new(seed))),
        }
    }

    /// Creates an index of strictly ascending items.
    #[must_use]
    pub fn of_ascending(form: OrderedIndexType, seed: u64, items: &[T]) -> Self {
        if form == OrderedIndexType::Tree {
            return Self::Tree(Tree::of_ascending(items));
        }
        let mut index = Self::new(form, seed);
        items.iter().for_each(|item| index.insert(*item));
        index
    }

    /// Returns the index's implementation.
    #[must_use]
    pub fn form(&self) -> OrderedIndexType {
        match self {
            Self::Tree(_) => OrderedIndexType::Tree,
            Self::Skip(_) => OrderedIndexType::Skip,
        }
    }
}

/// Dispatches a call to either form.
macro_rules! either {
    ($index:expr, $inner:ident => $call:expr) => {
        match $index {
            Index::Tree($inner) => $call,
            Index::Skip($inner) => $call,
        }
    };
}

impl<T: OrderedItem> Ordered<T> for Index<T> {
    type Items<'a>
        = IndexItems<'a, T>
    where
        T: 'a;

    #[inline]
    fn len(&self) -> usize {
        either!(self, inner => inner.len())
    }

    #[inline]
    fn insert(&mut self, item: T) {
        either!(self, inner => inner.insert(item));
    }

    #[inline]
    fn remove(&mut self, item: T) -> bool {
        either!(self, inner => inner.remove(item))
    }

    #[inline]
    fn replace(&mut self, old: T, new: T) {
        either!(self, inner => inner.replace(old, new));
    }

    #[inline]
    fn rank_by(&self, before: impl Fn(&T) -> bool) -> usize {
        either!(self, inner => inner.rank_by(before))
    }

    #[inline]
    fn get(&self, rank: usize) -> Option<T> {
        either!(self, inner => inner.get(rank))
    }

    #[inline]
    fn items(&self, from: usize, to: usize, direction: Direction) -> IndexItems<'_, T> {
        match self {
            Self::Tree(tree) => IndexItems::Tree(tree.items(from, to, direction)),
            Self::Skip(list) => IndexItems::Skip(list.items(from, to, direction)),
        }
    }

    fn take_some(&mut self, rank: usize, limit: usize, taken: &mut Vec<T>) {
        either!(self, inner => inner.take_some(rank, limit, taken));
    }

    fn relocate_from(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        either!(self, inner => inner.relocate_from(rank, movers))
    }

    fn free_some(&mut self, budget: usize) -> bool {
        either!(self, inner => inner.free_some(budget))
    }

    fn check_invariants(&self) {
        either!(self, inner => inner.check_invariants());
    }
}

impl<T: OrderedItem> Iterator for IndexItems<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            Self::Tree(items) => items.next(),
            Self::Skip(items) => items.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Tree(items) => items.size_hint(),
            Self::Skip(items) => items.size_hint(),
        }
    }
}
