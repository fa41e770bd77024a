//! A skip list whose links know how many items they pass, so that ranks add up on the way down.
//!
//! ```text
//! level 2   head ───────────────5──────────────▶ e ──▶
//! level 1   head ──2──▶ b ──────────3──────────▶ e ──▶
//! level 0   head ▶ a ─▶ b ─▶ c ─▶ d ─▶ e ─▶ …           each passes one item
//! ```
//!
//! Nodes and links live in pools of small chunks and refer to each other by number, four bytes each; freed slots
//! are reused. When little of the pools is in use the list is rebuilt, in time proportional to the remaining items.
//! A node is a level higher with a probability of one in four. The random numbers for this follow from a seed which
//! should be secret, so that no client can delete just the high nodes.
//!
//! Invariants: the links of level 0 refer to all nodes in ascending order and `back` in descending order; a node of
//! height h is on the levels below h, whose links refer to the next nodes that high; `reach` is the distance in
//! ranks, and for a level's last link the number of items from its origin to the end.

use std::cmp::Ordering;

use super::{Direction, Movers, Ordered, OrderedItem};

/// Number of levels: enough for 4^16 items.
const LEVELS: usize = 16;

/// Stands for no node: the head as the origin of a link, the end as its target.
const NONE: u32 = u32::MAX;

/// Pools with fewer slots than this are not worth rebuilding.
const COMPACT_FROM: usize = 1024;

#[derive(Clone, Copy)]
struct SkipListNode<T> {
    item: T,
    /// The preceding node; in a free node, the next free one.
    back: u32,
    /// Position of its links, one per level.
    links: u32,
    height: u8,
}

#[derive(Clone, Copy)]
struct SkipListLink {
    /// The next node of the level; in free links, the next free links of the same height.
    to: u32,
    /// Distance to the next node, in ranks.
    reach: u32,
}

const END: SkipListLink = SkipListLink { to: NONE, reach: 0 };

/// A growing array that is never moved in memory as a whole.
struct Pool<X> {
    chunks: Vec<Vec<X>>,
}

const CHUNK_BITS: u32 = 6;
const CHUNK: usize = 1 << CHUNK_BITS;

impl<X> Pool<X> {
    const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    fn len(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * CHUNK + last.len(),
            None => 0,
        }
    }

    fn push(&mut self, element: X) -> u32 {
        let number = self.len() as u32;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(element),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(element);
                self.chunks.push(chunk);
            }
        }
        number
    }

    #[inline]
    fn get(&self, number: u32) -> &X {
        &self.chunks[(number >> CHUNK_BITS) as usize][number as usize & (CHUNK - 1)]
    }

    #[inline]
    fn get_mut(&mut self, number: u32) -> &mut X {
        &mut self.chunks[(number >> CHUNK_BITS) as usize][number as usize & (CHUNK - 1)]
    }
}

/// A skip list, see the module.
pub struct SkipList<T> {
    nodes: Pool<SkipListNode<T>>,
    links: Pool<SkipListLink>,
    head: [SkipListLink; LEVELS],
    /// Number of levels in use, at least one.
    levels: usize,
    tail: u32,
    len: usize,
    free_node: u32,
    /// The first free links of each height; index 0 is height 1.
    free_links: [u32; LEVELS],
    draws: u64,
}

/// A path from the head to an item: for each level the last node before the item, and that node's position, which is
/// its rank plus one.
struct Trail {
    before: [u32; LEVELS],
    position: [usize; LEVELS],
}

impl<T: OrderedItem> SkipList<T> {
    /// Creates an empty list. `seed` determines the heights.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: Pool::new(),
            links: Pool::new(),
            head: [END; LEVELS],
            levels: 1,
            tail: NONE,
            len: 0,
            free_node: NONE,
            free_links: [NONE; LEVELS],
            draws: seed,
        }
    }

    #[inline]
    fn link(&self, node: u32, level: usize) -> SkipListLink {
        if node == NONE {
            self.head[level]
        } else {
            *self.links.get(self.nodes.get(node).links + level as u32)
        }
    }

    #[inline]
    fn link_mut(&mut self, node: u32, level: usize) -> &mut SkipListLink {
        if node == NONE {
            &mut self.head[level]
        } else {
            let at = self.nodes.get(node).links + level as u32;
            self.links.get_mut(at)
        }
    }

    /// Returns the path to the first item that does not satisfy `before`.
    #[inline]
    fn descend(&self, mut before: impl FnMut(&T, usize) -> bool) -> Trail {
        let mut trail = Trail {
            before: [NONE; LEVELS],
            position: [0; LEVELS],
        };
        let (mut node, mut position) = (NONE, 0);
        for level in (0..self.levels).rev() {
            loop {
                let link = self.link(node, level);
                let next = position + link.reach as usize;
                if link.to == NONE || !before(&self.nodes.get(link.to).item, next) {
                    break;
                }
                (node, position) = (link.to, next);
            }
            trail.before[level] = node;
            trail.position[level] = position;
        }
        trail
    }

    /// Returns the path to an item's position.
    fn descend_to(&self, item: &T) -> Trail {
        self.descend(|other, _| other.order(item) == Ordering::Less)
    }

    fn draw_height(&mut self) -> usize {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.draws;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (1 + mixed.trailing_zeros() as usize / 2).min(LEVELS)
    }

    fn new_node(&mut self, item: T, height: usize) -> u32 {
        let links = match self.free_links[height - 1] {
            NONE => {
                let first = self.links.push(END);
                for _ in 1..height {
                    self.links.push(END);
                }
                first
            }
            free => {
                self.free_links[height - 1] = self.links.get(free).to;
                free
            }
        };
        let node = SkipListNode {
            item,
            back: NONE,
            links,
            height: height as u8,
        };
        match self.free_node {
            NONE => self.nodes.push(node),
            free => {
                self.free_node = self.nodes.get(free).back;
                *self.nodes.get_mut(free) = node;
                free
            }
        }
    }

    fn free(&mut self, number: u32) {
        let SkipListNode { links, height, .. } = *self.nodes.get(number);
        let free = &mut self.free_links[height as usize - 1];
        self.links.get_mut(links).to = *free;
        *free = links;
        self.nodes.get_mut(number).back = self.free_node;
        self.free_node = number;
    }

    /// Inserts an item at the end of a path.
    fn insert_at(&mut self, trail: &Trail, item: T) {
        let height = self.draw_height();
        let node = self.new_node(item, height);
        let position = trail.position[0] + 1;
        self.levels = self.levels.max(height);
        for level in 0..self.levels {
            // Levels that the list did not have when the path was found begin at the head, which the path's zeros
            // mean.
            let (before, from) = (trail.before[level], trail.position[level]);
            let was_last = self.link(before, level).to == NONE;
            let ends_at = if was_last {
                self.len + 1
            } else {
                from + self.link(before, level).reach as usize + 1
            };
            let link = self.link_mut(before, level);
            if level >= height {
                link.reach = (ends_at - from) as u32;
                continue;
            }
            let to = link.to;
            *link = SkipListLink {
                to: node,
                reach: (position - from) as u32,
            };
            *self.link_mut(node, level) = SkipListLink {
                to,
                reach: (ends_at - position) as u32,
            };
        }
        let next = self.link(node, 0).to;
        self.nodes.get_mut(node).back = trail.before[0];
        match next {
            NONE => self.tail = node,
            next => self.nodes.get_mut(next).back = node,
        }
        self.len += 1;
    }

    /// Removes the node after the end of a path.
    fn remove_at(&mut self, trail: &Trail) -> Option<T> {
        let node = self.link(trail.before[0], 0).to;
        if node == NONE {
            return None;
        }
        for level in 0..self.levels {
            let before = trail.before[level];
            let link = self.link(before, level);
            *self.link_mut(before, level) = if link.to == node {
                let beyond = self.link(node, level);
                SkipListLink {
                    to: beyond.to,
                    reach: link.reach + beyond.reach - 1,
                }
            } else {
                SkipListLink {
                    to: link.to,
                    reach: link.reach - 1,
                }
            };
        }
        match self.link(trail.before[0], 0).to {
            NONE => self.tail = trail.before[0],
            next => self.nodes.get_mut(next).back = trail.before[0],
        }
        while self.levels > 1 && self.head[self.levels - 1].to == NONE {
            self.levels -= 1;
            // An unused level has no reach; a node that reaches it later counts from scratch.
            self.head[self.levels] = END;
        }
        let item = self.nodes.get(node).item;
        self.free(node);
        self.len -= 1;
        Some(item)
    }

    /// Frees memory when little of the pools is in use.
    fn compact(&mut self) {
        let slots = self.nodes.len();
        if self.len == 0 {
            *self = Self::new(self.draws);
            return;
        }
        if slots < COMPACT_FROM || self.len * 4 > slots {
            return;
        }
        let mut fresh = Self::new(self.draws);
        let mut trail = Trail {
            before: [NONE; LEVELS],
            position: [0; LEVELS],
        };
        for item in self.items(0, self.len, Direction::Ascending) {
            fresh.insert_at(&trail, item);
            let node = fresh.tail;
            for level in 0..fresh.nodes.get(node).height as usize {
                trail.before[level] = node;
                trail.position[level] = fresh.len;
            }
        }
        *self = fresh;
    }

    /// Returns the node at this rank.
    fn node_at(&self, rank: usize) -> u32 {
        if rank >= self.len {
            return NONE;
        }
        let trail = self.descend(|_, position| position <= rank);
        self.link(trail.before[0], 0).to
    }
}

impl<T: OrderedItem> Ordered<T> for SkipList<T> {
    type Items<'a>
        = SkipItems<'a, T>
    where
        T: 'a;

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, item: T) {
        let trail = self.descend_to(&item);
        self.insert_at(&trail, item);
    }

    fn remove(&mut self, item: T) -> bool {
        let trail = self.descend_to(&item);
        let node = self.link(trail.before[0], 0).to;
        if node == NONE || self.nodes.get(node).item.order(&item) != Ordering::Equal {
            return false;
        }
        self.remove_at(&trail);
        self.compact();
        true
    }

    fn replace(&mut self, old: T, new: T) {
        let trail = self.descend_to(&old);
        let before = trail.before[0];
        let node = self.link(before, 0).to;
        if node != NONE && self.nodes.get(node).item.order(&old) == Ordering::Equal {
            let after = self.link(node, 0).to;
            let is_behind =
                before == NONE || self.nodes.get(before).item.order(&new) == Ordering::Less;
            let is_ahead =
                after == NONE || new.order(&self.nodes.get(after).item) == Ordering::Less;
            if is_behind && is_ahead {
                self.nodes.get_mut(node).item = new;
                return;
            }
            self.remove_at(&trail);
        }
        self.insert(new);
    }

    fn rank_by(&self, before: impl Fn(&T) -> bool) -> usize {
        self.descend(|item, _| before(item)).position[0]
    }

    fn get(&self, rank: usize) -> Option<T> {
        match self.node_at(rank) {
            NONE => None,
            node => Some(self.nodes.get(node).item),
        }
    }

    fn items(&self, from: usize, to: usize, direction: Direction) -> SkipItems<'_, T> {
        let to = to.min(self.len);
        let left = to.saturating_sub(from);
        let next = match direction {
            _ if left == 0 => NONE,
            Direction::Ascending => self.node_at(from),
            Direction::Descending if to == self.len => self.tail,
            Direction::Descending => self.node_at(to - 1),
        };
        SkipItems {
            list: self,
            next,
            left,
            direction,
        }
    }

    fn take_some(&mut self, rank: usize, limit: usize, taken: &mut Vec<T>) {
        /// Number of items removed at a time.
        const SLICE: usize = 32;
        let trail = self.descend(|_, position| position <= rank);
        for _ in 0..limit.min(SLICE) {
            match self.remove_at(&trail) {
                Some(item) => taken.push(item),
                None => break,
            }
        }
        self.compact();
    }

    /// The nodes are in chunks that are larger than the allocator's slab allocations, and stay.
    fn relocate_from(&mut self, rank: usize, movers: &mut impl Movers<T>) -> usize {
        let node = self.node_at(rank);
        if rank >= self.len || node == NONE {
            return self.len;
        }
        movers.items(std::slice::from_mut(&mut self.nodes.get_mut(node).item));
        rank + 1
    }

    fn free_some(&mut self, budget: usize) -> bool {
        for _ in 0..budget.div_ceil(CHUNK).max(1) {
            let chunks = (self.nodes.chunks.pop(), self.links.chunks.pop());
            if let (None, None) = chunks {
                *self = Self::new(self.draws);
                return false;
            }
        }
        true
    }

    fn check_invariants(&self) {
        let order: Vec<u32> = {
            let mut order = Vec::new();
            let mut node = self.head[0].to;
            while node != NONE {
                order.push(node);
                node = self.link(node, 0).to;
            }
            order
        };
        assert_eq!(order.len(), self.len);
        assert_eq!(order.last().copied().unwrap_or(NONE), self.tail);
        for (rank, node) in order.iter().enumerate() {
            let before = rank.checked_sub(1).map_or(NONE, |before| order[before]);
            assert_eq!(self.nodes.get(*node).back, before);
            if before != NONE {
                let before = self.nodes.get(before).item;
                assert_eq!(before.order(&self.nodes.get(*node).item), Ordering::Less);
            }
        }
        for level in 0..self.levels {
            let (mut node, mut position) = (NONE, 0);
            loop {
                let link = self.link(node, level);
                position += link.reach as usize;
                node = link.to;
                if node == NONE {
                    assert_eq!(position, self.len, "the last link reaches to the end");
                    break;
                }
                assert_eq!(order[position - 1], node, "reach is the distance in ranks");
                assert!(usize::from(self.nodes.get(node).height) > level);
            }
        }
    }
}

/// An iterator over some ranks of a skip list.
pub struct SkipItems<'a, T: OrderedItem> {
    list: &'a SkipList<T>,
    next: u32,
    left: usize,
    direction: Direction,
}

impl<T: OrderedItem> Iterator for SkipItems<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.left == 0 || self.next == NONE {
            return None;
        }
        self.left -= 1;
        let node = self.list.nodes.get(self.next);
        self.next = match self.direction {
            Direction::Ascending => self.list.links.get(node.links).to,
            Direction::Descending => node.back,
        };
        Some(node.item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T: OrderedItem> ExactSizeIterator for SkipItems<'_, T> {}
