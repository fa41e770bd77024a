//! Leaves and inner nodes, and their common operations.

use std::array;
use std::cmp::Ordering;
use std::ops::Range;

use super::super::{Movers, OrderedItem, count_before};
use crate::structures::prefetch;

pub(super) const LEAF_ITEMS: usize = 31;
const INNER_CHILDREN: usize = 27;

/// The root of a tree.
pub(super) enum Root<T> {
    Empty,
    Leaf(Box<Leaf<T>>),
    Inner(Box<InnerNode<T>>),
}

impl<T: OrderedItem> Root<T> {
    /// Creates the root above strictly ascending items.
    pub(super) fn of_ascending(items: &[T]) -> Self {
        let mut leaves: Vec<_> = shares(items.len(), Leaf::<T>::cut(true))
            .map(|share| Box::new(Leaf::of(&items[share])))
            .collect();
        if leaves.len() <= 1 {
            return leaves.pop().map_or(Root::Empty, Root::Leaf);
        }
        let mut nodes = above(leaves, InnerNode::Low);
        while nodes.len() > 1 {
            nodes = above(nodes, InnerNode::High);
        }
        nodes.pop().map_or(Root::Empty, Root::Inner)
    }
}

/// Divides `len` into ranges of about equal length, at most `most` long.
fn shares(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = len.div_ceil(most);
    (0..count).map(move |at| len * at / count..len * (at + 1) / count)
}

/// Creates the nodes above others, of which there are at least two.
fn above<C: TreeNode<T>, T: OrderedItem>(
    children: Vec<Box<C>>,
    inner: impl Fn(Fork<C, T>) -> InnerNode<T>,
) -> Vec<Box<InnerNode<T>>> {
    let shares = shares(children.len(), Fork::<C, T>::cut(true));
    let mut children = children.into_iter();
    shares
        .map(|share| Box::new(inner(Fork::of(children.by_ref().take(share.len())))))
        .collect()
}

pub(super) struct Leaf<T> {
    len: u32,
    items: [T; LEAF_ITEMS],
}

/// An inner node: over leaves, or over inner nodes.
pub(super) enum InnerNode<T> {
    Low(Fork<Leaf<T>, T>),
    High(Fork<InnerNode<T>, T>),
}

pub(super) struct Fork<C, T> {
    len: u32,
    counts: [u32; INNER_CHILDREN],
    heads: [T; INNER_CHILDREN],
    children: [Option<Box<C>>; INNER_CHILDREN],
}

const _: () = assert!(size_of::<Leaf<[u64; 2]>>() <= 512);
const _: () = assert!(size_of::<InnerNode<[u64; 2]>>() <= 768);

/// Which items to remove.
#[derive(Clone, Copy)]
pub(super) enum RemovalTarget<T> {
    /// The item that is equal to this one.
    Item(T),
    /// At most `limit` items, starting at this rank.
    Rank { rank: usize, limit: usize },
    /// The first item, to be replaced by the second: if the second belongs at the same position of the same leaf, the
    /// first is overwritten in place, otherwise it is removed. Only positions between two others of one leaf are
    /// tried.
    Replaced(T, T),
}

/// The common interface of leaves and inner nodes.
pub(super) trait TreeNode<T: OrderedItem>: Sized {
    /// Maximum number of items or children.
    const ROOM: usize;

    /// Returns the number of items or children in use.
    fn width(&self) -> usize;

    /// Returns the least item.
    fn head(&self) -> T;

    /// Returns the number of items in and below the node.
    fn count(&self) -> usize;

    /// Adds an item. A full node splits and returns its right part as a new node.
    fn insert(&mut self, item: T, is_rightmost: bool) -> Option<Box<Self>>;

    /// Removes items from one leaf, which may leave the node empty.
    fn take(&mut self, wanted: RemovalTarget<T>, taken: &mut impl FnMut(&[T]));

    /// Moves everything from `at` on to a new node.
    fn split_off(&mut self, at: usize) -> Box<Self>;

    /// Moves the first `count` elements of the right neighbor to the end of this node.
    fn pull(&mut self, right: &mut Self, count: usize);

    /// Moves the last `count` elements of the left neighbor to the front of this node.
    fn pull_back(&mut self, left: &mut Self, count: usize);

    /// Returns the number of items that satisfy `before`.
    fn rank_by(&self, before: &impl Fn(&T) -> bool) -> usize;

    /// Prefetches the leaf with the last item that satisfies `before`.
    fn prefetch(&self, before: &impl Fn(&T) -> bool);

    /// Returns the leaf that contains a rank, and the position of the rank in that leaf.
    fn leaf_at(&self, rank: usize) -> Option<(&[T], usize)>;

    /// Passes the items of the leaf that contains a rank, and the nodes below this one that begin there, to `movers`.
    /// Returns the number of items of the leaf at and after the rank.
    fn relocate(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize;

    /// Checks the node and everything below. Returns its depth.
    fn check(&self, is_root: bool) -> usize;

    /// Returns the position at which a full node is split.
    fn cut(is_rightmost: bool) -> usize {
        if is_rightmost {
            Self::ROOM - Self::ROOM / 10
        } else {
            Self::ROOM / 2
        }
    }
}

/// Moves the first `count` elements of `right` after the `left_len` elements of `left`.
fn shift_left<X>(left: &mut [X], left_len: usize, right: &mut [X], right_len: usize, count: usize) {
    left[left_len..left_len + count].swap_with_slice(&mut right[..count]);
    right[..right_len].rotate_left(count);
}

/// Moves the last `count` elements of `left` before the `right_len` elements of `right`.
fn shift_right<X>(
    left: &mut [X],
    left_len: usize,
    right: &mut [X],
    right_len: usize,
    count: usize,
) {
    right[..right_len + count].rotate_right(count);
    right[..count].swap_with_slice(&mut left[left_len - count..left_len]);
}

impl<T: OrderedItem> Leaf<T> {
    pub(super) fn new(item: T) -> Self {
        Self {
            len: 1,
            items: [item; LEAF_ITEMS],
        }
    }

    /// Creates a leaf with at least one item, and no more than fit.
    fn of(items: &[T]) -> Self {
        let mut leaf = Self::new(items[0]);
        leaf.items[..items.len()].copy_from_slice(items);
        leaf.len = items.len() as u32;
        leaf
    }

    fn used(&self) -> &[T] {
        &self.items[..self.len as usize]
    }

    fn put(&mut self, at: usize, item: T) {
        let len = self.len as usize;
        self.items.copy_within(at..len, at + 1);
        self.items[at] = item;
        self.len += 1;
    }

    /// True if an item may be stored at a position in place of the item there, without breaking the order.
    fn may_overwrite(&self, at: usize, item: T) -> bool {
        at > 0
            && at + 1 < self.len as usize
            && self.items[at - 1].order(&item) == Ordering::Less
            && item.order(&self.items[at + 1]) == Ordering::Less
    }

    fn find(&self, item: &T) -> Result<usize, usize> {
        let at = count_before(self.used(), item, false);
        match self.used().get(at) {
            Some(other) if other.order(item) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }
}

/// Returns a node, moved to newly allocated memory if `movers` wants that.
pub(super) fn relocated<C, T>(node: Box<C>, movers: &mut impl Movers<T>) -> Box<C> {
    match movers.moves_node(std::ptr::from_ref::<C>(&node).addr()) {
        // The old memory is freed after the new one is allocated.
        true => Box::new(*node),
        false => node,
    }
}

impl<T: OrderedItem> TreeNode<T> for Leaf<T> {
    const ROOM: usize = LEAF_ITEMS;

    fn width(&self) -> usize {
        self.len as usize
    }

    fn head(&self) -> T {
        self.items[0]
    }

    fn count(&self) -> usize {
        self.len as usize
    }

    fn insert(&mut self, item: T, is_rightmost: bool) -> Option<Box<Self>> {
        let (Ok(at) | Err(at)) = self.find(&item);
        if self.width() < Self::ROOM {
            self.put(at, item);
            return None;
        }
        let cut = Self::cut(is_rightmost && at == Self::ROOM);
        let mut right = self.split_off(cut);
        if at <= cut {
            self.put(at, item);
        } else {
            right.put(at - cut, item);
        }
        Some(right)
    }

    fn take(&mut self, wanted: RemovalTarget<T>, taken: &mut impl FnMut(&[T])) {
        let (from, limit) = match wanted {
            RemovalTarget::Item(item) => match self.find(&item) {
                Ok(at) => (at, 1),
                Err(_) => return,
            },
            RemovalTarget::Replaced(old, new) => match self.find(&old) {
                Ok(at) if self.may_overwrite(at, new) => {
                    self.items[at] = new;
                    return;
                }
                Ok(at) => (at, 1),
                Err(_) => return,
            },
            RemovalTarget::Rank { rank, limit } => (rank, limit),
        };
        let len = self.width();
        let from = from.min(len);
        let to = from.saturating_add(limit).min(len);
        taken(&self.items[from..to]);
        self.items.copy_within(to..len, from);
        self.len -= (to - from) as u32;
    }

    fn split_off(&mut self, at: usize) -> Box<Self> {
        let count = self.width() - at;
        let mut right = Box::new(Self::new(self.items[at]));
        right.items[..count].copy_from_slice(&self.items[at..at + count]);
        right.len = count as u32;
        self.len = at as u32;
        right
    }

    fn pull(&mut self, right: &mut Self, count: usize) {
        let (len, right_len) = (self.width(), right.width());
        shift_left(&mut self.items, len, &mut right.items, right_len, count);
        self.len += count as u32;
        right.len -= count as u32;
    }

    fn pull_back(&mut self, left: &mut Self, count: usize) {
        let (len, left_len) = (self.width(), left.width());
        shift_right(&mut left.items, left_len, &mut self.items, len, count);
        self.len += count as u32;
        left.len -= count as u32;
    }

    fn rank_by(&self, before: &impl Fn(&T) -> bool) -> usize {
        self.used().partition_point(before)
    }

    fn prefetch(&self, _: &impl Fn(&T) -> bool) {
        prefetch::whole(self);
    }

    fn leaf_at(&self, rank: usize) -> Option<(&[T], usize)> {
        (rank < self.width()).then(|| (self.used(), rank))
    }

    fn relocate(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        let len = self.width();
        movers.items(&mut self.items[..len]);
        len.saturating_sub(rank)
    }

    fn check(&self, _: bool) -> usize {
        assert!(self.len > 0, "no leaf is empty");
        for pair in self.used().windows(2) {
            assert_eq!(pair[0].order(&pair[1]), Ordering::Less, "items ascend");
        }
        1
    }
}

impl<C: TreeNode<T>, T: OrderedItem> Fork<C, T> {
    pub(super) fn of_two(left: Box<C>, right: Box<C>) -> Self {
        Self::of([left, right].into_iter())
    }

    /// Creates a fork with at least one child, and no more than fit.
    fn of(mut children: impl Iterator<Item = Box<C>>) -> Self {
        let first = children.next().expect("no node is empty");
        let mut fork = Self {
            len: 0,
            counts: [0; INNER_CHILDREN],
            heads: [first.head(); INNER_CHILDREN],
            children: array::from_fn(|_| None),
        };
        fork.put(0, first);
        children.for_each(|child| fork.put(fork.len as usize, child));
        fork
    }

    fn heads(&self) -> &[T] {
        &self.heads[..self.len as usize]
    }

    fn child(&self, at: usize) -> &C {
        self.children[at]
            .as_deref()
            .expect("children below the length are there")
    }

    fn child_mut(&mut self, at: usize) -> &mut C {
        self.children[at]
            .as_deref_mut()
            .expect("children below the length are there")
    }

    /// Returns the child in whose range an item lies.
    fn child_of(&self, item: &T) -> usize {
        count_before(self.heads(), item, true).saturating_sub(1)
    }

    /// Returns the child that contains a rank, and the rank within that child; for a rank beyond the end, the last
    /// child and a rank beyond its end.
    fn child_at(&self, rank: usize) -> (usize, usize) {
        let mut left = rank;
        let last = self.len as usize - 1;
        for (at, count) in self.counts[..last].iter().enumerate() {
            let count = *count as usize;
            if left < count {
                return (at, left);
            }
            left -= count;
        }
        (last, left)
    }

    fn put(&mut self, at: usize, child: Box<C>) {
        let len = self.len as usize;
        self.counts.copy_within(at..len, at + 1);
        self.heads.copy_within(at..len, at + 1);
        self.children[at..=len].rotate_right(1);
        self.counts[at] = child.count() as u32;
        self.heads[at] = child.head();
        self.children[at] = Some(child);
        self.len += 1;
    }

    fn cut_out(&mut self, at: usize) {
        let len = self.len as usize;
        self.counts.copy_within(at + 1..len, at);
        self.heads.copy_within(at + 1..len, at);
        self.children[at] = None;
        self.children[at..len].rotate_left(1);
        self.len -= 1;
    }

    /// Updates the least item and the count of a child.
    fn note(&mut self, at: usize) {
        let child = self.child(at);
        (self.heads[at], self.counts[at]) = (child.head(), child.count() as u32);
    }

    /// Handles a removal from a child: drops the child if it is empty, and balances it with a neighbor if it is
    /// nearly empty.
    fn settle(&mut self, at: usize) {
        let width = self.child(at).width();
        if width == 0 {
            self.cut_out(at);
            return;
        }
        self.note(at);
        if width * 4 >= C::ROOM || self.len == 1 {
            return;
        }
        let left_at = at.saturating_sub(1);
        let right_at = left_at + 1;
        let [Some(left), Some(right)] = &mut self.children[left_at..=right_at] else {
            return;
        };
        let (left_width, right_width) = (left.width(), right.width());
        let both = left_width + right_width;
        if both <= C::ROOM {
            left.pull(right, right_width);
            self.cut_out(right_at);
            self.note(left_at);
            return;
        }
        if left_width < right_width {
            left.pull(right, right_width - both / 2);
        } else {
            right.pull_back(left, left_width - both / 2);
        }
        self.note(left_at);
        self.note(right_at);
    }
}

impl<C: TreeNode<T>, T: OrderedItem> TreeNode<T> for Fork<C, T> {
    const ROOM: usize = INNER_CHILDREN;

    fn width(&self) -> usize {
        self.len as usize
    }

    fn head(&self) -> T {
        self.heads[0]
    }

    fn count(&self) -> usize {
        let used = &self.counts[..self.len as usize];
        used.iter().map(|count| *count as usize).sum()
    }

    fn insert(&mut self, item: T, is_rightmost: bool) -> Option<Box<Self>> {
        let at = self.child_of(&item);
        let is_rightmost = is_rightmost && at + 1 == self.width();
        let Some(child) = self.child_mut(at).insert(item, is_rightmost) else {
            self.counts[at] += 1;
            if item.order(&self.heads[at]) == Ordering::Less {
                self.heads[at] = item;
            }
            return None;
        };
        self.note(at);
        let at = at + 1;
        if self.width() < Self::ROOM {
            self.put(at, child);
            return None;
        }
        let cut = Self::cut(is_rightmost);
        let mut right = self.split_off(cut);
        if at <= cut {
            self.put(at, child);
        } else {
            right.put(at - cut, child);
        }
        Some(right)
    }

    fn take(&mut self, wanted: RemovalTarget<T>, taken: &mut impl FnMut(&[T])) {
        let (at, wanted) = match wanted {
            RemovalTarget::Item(item) | RemovalTarget::Replaced(item, _) => {
                (self.child_of(&item), wanted)
            }
            RemovalTarget::Rank { rank, limit } => {
                let (at, rank) = self.child_at(rank);
                (at, RemovalTarget::Rank { rank, limit })
            }
        };
        self.child_mut(at).take(wanted, taken);
        self.settle(at);
    }

    fn split_off(&mut self, at: usize) -> Box<Self> {
        let count = self.width() - at;
        let mut right = Box::new(Self {
            len: 0,
            counts: [0; INNER_CHILDREN],
            heads: [self.heads[at]; INNER_CHILDREN],
            children: array::from_fn(|_| None),
        });
        right.pull_back(self, count);
        right
    }

    fn pull(&mut self, right: &mut Self, count: usize) {
        let (len, right_len) = (self.width(), right.width());
        shift_left(&mut self.counts, len, &mut right.counts, right_len, count);
        shift_left(&mut self.heads, len, &mut right.heads, right_len, count);
        shift_left(
            &mut self.children,
            len,
            &mut right.children,
            right_len,
            count,
        );
        self.len += count as u32;
        right.len -= count as u32;
    }

    fn pull_back(&mut self, left: &mut Self, count: usize) {
        let (len, left_len) = (self.width(), left.width());
        shift_right(&mut left.counts, left_len, &mut self.counts, len, count);
        shift_right(&mut left.heads, left_len, &mut self.heads, len, count);
        shift_right(&mut left.children, left_len, &mut self.children, len, count);
        self.len += count as u32;
        left.len -= count as u32;
    }

    fn rank_by(&self, before: &impl Fn(&T) -> bool) -> usize {
        let behind = self.heads().partition_point(before);
        let Some(at) = behind.checked_sub(1) else {
            return 0;
        };
        let skipped: usize = self.counts[..at].iter().map(|count| *count as usize).sum();
        skipped + self.child(at).rank_by(before)
    }

    fn prefetch(&self, before: &impl Fn(&T) -> bool) {
        let at = self.heads().partition_point(before).saturating_sub(1);
        self.child(at).prefetch(before);
    }

    fn leaf_at(&self, rank: usize) -> Option<(&[T], usize)> {
        let (at, rank) = self.child_at(rank);
        self.child(at).leaf_at(rank)
    }

    fn relocate(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        let (at, rank) = self.child_at(rank);
        if rank == 0 {
            let child = self.children[at].take();
            self.children[at] = child.map(|child| relocated(child, movers));
        }
        let shown = self.child_mut(at).relocate(rank, movers);
        self.note(at);
        shown
    }

    fn check(&self, is_root: bool) -> usize {
        assert!(self.len > u32::from(is_root), "a root has two children");
        let mut depth = None;
        for at in 0..self.width() {
            let child = self.child(at);
            assert!(child.width() <= C::ROOM);
            assert_eq!(child.count(), self.counts[at] as usize);
            assert_eq!(child.head().order(&self.heads[at]), Ordering::Equal);
            let below = child.check(false);
            assert_eq!(
                *depth.get_or_insert(below),
                below,
                "leaves are equally deep"
            );
        }
        assert!(self.children[self.width()..].iter().all(Option::is_none));
        depth.unwrap_or(0) + 1
    }
}

/// Dispatches a call to either kind of inner node.
macro_rules! either {
    ($node:expr, $fork:ident => $call:expr) => {
        match $node {
            InnerNode::Low($fork) => $call,
            InnerNode::High($fork) => $call,
        }
    };
}

impl<T: OrderedItem> InnerNode<T> {
    /// Returns the only child, if there is just one.
    pub(super) fn only_child(&mut self) -> Option<Root<T>> {
        match self {
            Self::Low(fork) if fork.len == 1 => fork.children[0].take().map(Root::Leaf),
            Self::High(fork) if fork.len == 1 => fork.children[0].take().map(Root::Inner),
            _ => None,
        }
    }
}

impl<T: OrderedItem> TreeNode<T> for InnerNode<T> {
    const ROOM: usize = INNER_CHILDREN;

    fn width(&self) -> usize {
        either!(self, fork => fork.width())
    }

    fn head(&self) -> T {
        either!(self, fork => fork.head())
    }

    fn count(&self) -> usize {
        either!(self, fork => fork.count())
    }

    fn insert(&mut self, item: T, is_rightmost: bool) -> Option<Box<Self>> {
        match self {
            Self::Low(fork) => {
                let right = fork.insert(item, is_rightmost)?;
                Some(Box::new(Self::Low(*right)))
            }
            Self::High(fork) => {
                let right = fork.insert(item, is_rightmost)?;
                Some(Box::new(Self::High(*right)))
            }
        }
    }

    fn take(&mut self, wanted: RemovalTarget<T>, taken: &mut impl FnMut(&[T])) {
        either!(self, fork => fork.take(wanted, taken));
    }

    fn split_off(&mut self, at: usize) -> Box<Self> {
        match self {
            Self::Low(fork) => Box::new(Self::Low(*fork.split_off(at))),
            Self::High(fork) => Box::new(Self::High(*fork.split_off(at))),
        }
    }

    fn pull(&mut self, right: &mut Self, count: usize) {
        match (self, right) {
            (Self::Low(left), Self::Low(right)) => left.pull(right, count),
            (Self::High(left), Self::High(right)) => left.pull(right, count),
            _ => unreachable!("neighbours are equally deep"),
        }
    }

    fn pull_back(&mut self, left: &mut Self, count: usize) {
        match (self, left) {
            (Self::Low(right), Self::Low(left)) => right.pull_back(left, count),
            (Self::High(right), Self::High(left)) => right.pull_back(left, count),
            _ => unreachable!("neighbours are equally deep"),
        }
    }

    fn rank_by(&self, before: &impl Fn(&T) -> bool) -> usize {
        either!(self, fork => fork.rank_by(before))
    }

    fn prefetch(&self, before: &impl Fn(&T) -> bool) {
        either!(self, fork => fork.prefetch(before));
    }

    fn leaf_at(&self, rank: usize) -> Option<(&[T], usize)> {
        either!(self, fork => fork.leaf_at(rank))
    }

    fn relocate(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        either!(self, fork => fork.relocate(rank, movers))
    }

    fn check(&self, is_root: bool) -> usize {
        either!(self, fork => fork.check(is_root))
    }
}
