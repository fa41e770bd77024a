//! Index of the deadlines in a large collection, soonest first.
//!
//! An item is a deadline with most of a name's hash, in 12 bytes; items are kept sorted in pages, so that one costs
//! 14 to 16 bytes with all overhead. An item leaves out those bits of the hash that a table ignores when it is
//! searched for all entries with a hash; two elements may therefore share one item, which is kept once.
//!
//! Invariants: items are sorted within a page and from page to page; no page is empty; a page's key in the map is
//! not above its first item and above all items of the pages before.

use std::collections::BTreeMap;

use basalt_core::alloc::slabs::Mover;

/// Items of a full page. Inserting moves half of them on average, which takes some ten nanoseconds.
const PAGE_ITEMS_MAX: usize = 128;

/// Number of items by which a page grows.
const PAGE_ITEMS_STEP: usize = 8;

/// A page with fewer items is merged with the next one if both fit half a page.
const PAGE_ITEMS_MIN: usize = PAGE_ITEMS_MAX / 8;

/// Pages are moved together if at least this fraction of their allocations is in sparse slabs.
const SPARSE_PART: usize = 4;

/// The latest deadline that an item can store, in Unix milliseconds.
pub(in crate::value) const DEADLINE_MAX: u64 = (1 << 46) - 1;

/// The bits of a hash that are stored in an item.
const HASH: u64 = !(0x3_ffff << 16);

/// A deadline and a hash, ordered by the deadline first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::value) struct DeadlineItem([u32; 3]);

impl DeadlineItem {
    /// Encodes the item as a number, see `DeadlineItem::at`.
    fn position(self) -> u128 {
        let [high, middle, low] = self.0.map(u128::from);
        high << 64 | middle << 32 | low
    }

    /// Decodes the number from `DeadlineItem::position`.
    fn at(position: u128) -> DeadlineItem {
        DeadlineItem([64, 32, 0].map(|shift| (position >> shift) as u32))
    }

    /// Creates an item; the deadline is limited to [`DEADLINE_MAX`].
    pub(in crate::value) fn new(deadline_ms: u64, hash: u64) -> DeadlineItem {
        let kept = u128::from(hash >> 34 << 16 | hash & 0xffff);
        let all = u128::from(deadline_ms.min(DEADLINE_MAX)) << 46 | kept;
        DeadlineItem([(all >> 64) as u32, (all >> 32) as u32, all as u32])
    }

    fn all(self) -> u128 {
        let [high, middle, low] = self.0.map(u128::from);
        high << 64 | middle << 32 | low
    }

    /// Returns the deadline, in Unix milliseconds.
    pub(in crate::value) fn deadline_ms(self) -> u64 {
        (self.all() >> 46) as u64
    }

    /// Returns the hash; bits that are not stored are zero.
    pub(in crate::value) fn hash(self) -> u64 {
        let kept = self.all() as u64 & ((1 << 46) - 1);
        kept >> 16 << 34 | kept & 0xffff
    }

    /// True if an item of this hash would have the same stored bits.
    pub(in crate::value) fn is_of(self, hash: u64) -> bool {
        self.hash() == hash & HASH
    }
}

/// Index of deadlines, see the module.
#[derive(Clone, Default)]
pub(in crate::value) struct DeadlineIndex {
    pages: BTreeMap<DeadlineItem, Vec<DeadlineItem>>,
    len: usize,
}

impl DeadlineIndex {
    /// Returns the number of items.
    #[cfg(test)]
    pub(in crate::value) fn len(&self) -> usize {
        self.len
    }

    /// True if there are no items.
    pub(in crate::value) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the soonest item.
    pub(in crate::value) fn first(&self) -> Option<DeadlineItem> {
        self.pages.values().next()?.first().copied()
    }

    /// Returns the last item.
    pub(in crate::value) fn last(&self) -> Option<DeadlineItem> {
        self.pages.values().next_back()?.last().copied()
    }

    /// Returns the number of items that are due at a time.
    pub(in crate::value) fn due(&self, now_ms: u64) -> usize {
        let mut count = 0;
        for page in self.pages.values() {
            let due = page.partition_point(|due| due.deadline_ms() <= now_ms);
            count += due;
            if due < page.len() {
                break;
            }
        }
        count
    }

    /// Adds an item, unless it exists.
    pub(in crate::value) fn insert(&mut self, due: DeadlineItem) {
        let before = self.pages.range(..=due).next_back().map(|(name, _)| *name);
        let name = before.unwrap_or_else(|| {
            // The item precedes all others, so the first page gets it as its key.
            let first = self.pages.pop_first().map(|(_, page)| page);
            self.pages.insert(due, first.unwrap_or_default());
            due
        });
        let page = self.pages.entry(name).or_default();
        let Err(at) = page.binary_search(&due) else {
            return;
        };
        self.len += 1;
        if page.len() == PAGE_ITEMS_MAX {
            // Deadlines mostly come in rising order: then the full page stays full and the item begins a new one.
            let split = if at == PAGE_ITEMS_MAX {
                PAGE_ITEMS_MAX
            } else {
                PAGE_ITEMS_MAX / 2
            };
            let mut upper = page_of(&page[split..], PAGE_ITEMS_STEP);
            page.truncate(split);
            page.shrink_to_fit();
            if at > split || split == PAGE_ITEMS_MAX {
                insert_at(&mut upper, at - split, due);
            } else {
                insert_at(page, at, due);
            }
            if let Some(first) = upper.first().copied() {
                self.pages.insert(first, upper);
            }
        } else {
            insert_at(page, at, due);
        }
    }

    /// Moves some pages, and the tree nodes that hold them, out of sparse slabs of the allocator, starting at a
    /// position: 0, or the result of the last call. Returns the next position, 0 at the end.
    pub(in crate::value) fn relocate_some(
        &mut self,
        from: u128,
        budget: usize,
        mover: &mut Mover,
    ) -> u128 {
        mover.begin();
        let mut pages = self.pages.range(DeadlineItem::at(from)..);
        let mut names = Vec::with_capacity(budget);
        for (name, page) in pages.by_ref().take(budget) {
            mover.add(std::ptr::from_ref(name).addr());
            mover.add(page.as_ptr().addr());
            names.push(*name);
        }
        let next = pages.next().map_or(0, |(name, _)| name.position());
        mover.look();
        if mover.must_move_all(SPARSE_PART, names.len() as u64) {
            let taken = names
                .iter()
                .filter_map(|name| self.pages.remove_entry(name));
            let taken: Vec<(DeadlineItem, Vec<DeadlineItem>)> = taken.collect();
            // An empty tree keeps its last node, which is freed once there is a new one.
            let emptied = self
                .pages
                .is_empty()
                .then(|| std::mem::take(&mut self.pages));
            let anew = |(name, page): (DeadlineItem, Vec<DeadlineItem>)| {
                (name, page_of(&page, page.capacity() - page.len()))
            };
            self.pages.extend(taken.into_iter().map(anew));
            drop(emptied);
        }
        next
    }

    /// Removes an item, if it exists.
    pub(in crate::value) fn remove(&mut self, due: DeadlineItem) {
        let Some((&name, page)) = self.pages.range_mut(..=due).next_back() else {
            return;
        };
        let Ok(at) = page.binary_search(&due) else {
            return;
        };
        page.remove(at);
        self.len -= 1;
        self.tidy(name);
    }

    /// Removes and returns the soonest item; None if there is none.
    pub(in crate::value) fn pop_first(&mut self) -> Option<DeadlineItem> {
        let (&name, page) = self.pages.iter_mut().next()?;
        let due = page.remove(0);
        self.len -= 1;
        if page.is_empty() {
            self.pages.remove(&name);
        }
        Some(due)
    }

    /// Frees a page that lost its last item, and merges a nearly empty one with the next.
    fn tidy(&mut self, name: DeadlineItem) {
        let Some(page) = self.pages.get_mut(&name) else {
            return;
        };
        if page.capacity() - page.len() >= 2 * PAGE_ITEMS_STEP {
            page.shrink_to(page.len() + PAGE_ITEMS_STEP);
        }
        if page.len() >= PAGE_ITEMS_MIN {
            return;
        }
        let mut few = std::mem::take(page);
        let next = self
            .pages
            .range_mut(name..)
            .nth(1)
            .filter(|(_, next)| few.len() + next.len() <= PAGE_ITEMS_MAX / 2)
            .map(|(name, _)| *name);
        if let Some(next) = next
            && let Some(more) = self.pages.remove(&next)
        {
            few.reserve_exact(more.len() + PAGE_ITEMS_STEP);
            few.extend_from_slice(&more);
        }
        if few.is_empty() {
            self.pages.remove(&name);
        } else {
            self.pages.insert(name, few);
        }
    }

    /// Panics unless the invariants hold. For tests.
    #[cfg(test)]
    pub(in crate::value) fn check_invariants(&self) {
        let mut before: Option<DeadlineItem> = None;
        let mut len = 0;
        for (name, page) in &self.pages {
            assert!(!page.is_empty() && page.len() <= PAGE_ITEMS_MAX);
            assert!(before.is_none_or(|before| before < *name) && *name <= page[0]);
            assert!(page.windows(2).all(|two| two[0] < two[1]));
            before = page.last().copied();
            len += page.len();
        }
        assert_eq!(len, self.len);
    }

    /// Returns all items in order. For tests.
    #[cfg(test)]
    pub(in crate::value) fn iter(&self) -> impl Iterator<Item = DeadlineItem> {
        self.pages.values().flatten().copied()
    }
}

fn page_of(items: &[DeadlineItem], more: usize) -> Vec<DeadlineItem> {
    let mut page = Vec::with_capacity(items.len() + more);
    page.extend_from_slice(items);
    page
}

fn insert_at(page: &mut Vec<DeadlineItem>, at: usize, due: DeadlineItem) {
    if page.len() == page.capacity() {
        page.reserve_exact(PAGE_ITEMS_STEP);
    }
    page.insert(at, due);
}

#[cfg(test)]
mod tests;
