//! Growth and shrinkage of a table: segments in steps, splits, merges and chains; and freeing. The directory's own
//! growth is in `successor`.
//!
//! Invariants: all words of a segment change together; a segment is freed only once no word refers to it; an entry
//! is owned by exactly one slot of a referenced segment, or by the caller.

use std::mem;

use super::directory::{DEPTH_MAX, Directory};
use super::segment::{
    self, BUCKETS_MAX, BUCKETS_MIN, ENTRIES_USUAL, STEPS, Segment, TableSlot, WIDTH,
};
use super::{EntrySlot, Stored, Table};
use crate::alloc::slabs::Mover;
use crate::base::sizes::usual_or_small;

/// Buddies (the two halves of a prefix) with fewer entries together than this are merged: three fifths of the
/// smallest segment, so that the result is far from splitting again.
const MERGE_BELOW: usize = BUCKETS_MIN * WIDTH * 6 / 10;

/// Maximum number of words that refer to a merged segment. All of them change at once, so deletions in the order of
/// hashes leave a small segment for as many words, until the directory halves.
fn merged_words_max() -> usize {
    usual_or_small(4_096, 32)
}

/// Maximum number of expected entries for which a segment is reserved: as many as a segment has before it splits,
/// less the random variation.
const RESERVED_FILL: usize = BUCKETS_MAX * WIDTH * 7 / 10;

/// The maximum depth of a directory whose segments are reserved: 256 segments.
const RESERVED_DEPTH_MAX: u32 = 8;

/// Levels by which a segment may be deeper than the average before it grows a chain instead of splitting. Honest
/// hashes stay within two levels: only an attack with keys of one hash prefix, which requires knowledge of the seed,
/// exceeds this, and even then the directory stays within half a byte per entry.
const DEPTH_GUARD: u32 = if cfg!(miri) { 1 } else { 4 };

impl<T: Stored> Table<T> {
    /// Returns which words refer to `segment`, one of which is `index`: the index of the first, and their number.
    pub(super) fn span(&self, index: usize, segment: Segment) -> (usize, usize) {
        let words = 1 << (self.directory.depth() - segment.depth());
        (index & !(words - 1), words)
    }

    /// Returns the segments of one word: one, unless the word is chained.
    pub(super) fn chain(&self, index: usize) -> impl Iterator<Item = Segment> {
        let mut next = self.directory.get(index);
        std::iter::from_fn(move || {
            let this = next;
            if this.is_none() {
                return None;
            }
            // SAFETY: links of a chain are live as long as the table is borrowed.
            next = unsafe { this.next() };
            Some(this)
        })
    }

    /// Calls `f` with the first index and each segment of every chain.
    pub(super) fn each_link(&self, mut f: impl FnMut(usize, Segment)) {
        let mut index = 0;
        while index < self.directory.len() {
            let segment = self.directory.get(index);
            if segment.is_none() {
                index += 1;
                continue;
            }
            for link in self.chain(index) {
                f(index, link);
            }
            index += self.span(index, segment).1;
        }
    }

    /// Reserves segments for `count` entries in an empty table, as far as that takes no more than a moment, so that
    /// fewer of them grow and split while it is filled.
    pub fn reserve(&mut self, count: usize) {
        self.reserve_to_depth(count, RESERVED_DEPTH_MAX);
    }

    /// Reserves segments for `count` entries in an empty table, however long that takes: milliseconds for a
    /// million.
    pub fn reserve_all(&mut self, count: usize) {
        self.reserve_to_depth(count, DEPTH_MAX);
    }

    fn reserve_to_depth(&mut self, count: usize, depth_max: u32) {
        if count == 0 || !self.directory.is_nothing() {
            return;
        }
        let depth = match count <= Segment::room(BUCKETS_MAX) {
            true => 0,
            false => count.div_ceil(RESERVED_FILL).next_power_of_two().ilog2(),
        };
        let depth = depth.min(depth_max);
        let expected = count >> depth;
        let (least, expected) = match depth {
            0 => (STEPS[0], expected),
            // Hashes of keys that are not chosen by an attacker stay within three standard deviations.
            _ => (BUCKETS_MIN, expected + 3 * expected.isqrt()),
        };
        let fits = |step: &&usize| **step >= least && Segment::room(**step) >= expected;
        let buckets = STEPS.iter().find(fits).copied().unwrap_or(BUCKETS_MAX);
        self.directory = Directory::take(depth, self.may_publish);
        for index in 0..self.directory.len() {
            self.directory.set(index, Segment::allocate(buckets, depth));
        }
        self.deepest = self.directory.len();
        self.directory.publish(self.published.as_ref());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn insert_making_room(&mut self, hash: u64, slot: TableSlot) -> EntrySlot {
        if self.directory.is_nothing() {
            self.directory = Directory::take(0, self.may_publish);
            self.directory.set(0, Segment::NONE);
            self.directory.publish(self.published.as_ref());
        }
        loop {
            let index = self.directory.index(hash);
            let segment = self.directory.get(index);
            if segment.is_none() {
                self.rename(index, Segment::allocate(STEPS[0], self.directory.depth()));
                self.deepest += 1;
                continue;
            }
            for (link, segment) in self.chain(index).enumerate() {
                // SAFETY: a live segment with a free slot.
                unsafe {
                    if segment.count() < Segment::room(segment.buckets()) {
                        return EntrySlot::new(index, link, segment.insert(slot, hash & 0xff));
                    }
                }
            }
            if segment.buckets() < BUCKETS_MAX && !segment.is_chained() {
                self.resize(index, segment, step_above(segment.buckets()));
            } else if segment.depth() < self.depth_limit() {
                self.split(index, segment);
            } else {
                self.lengthen_chain(index, segment);
            }
        }
    }

    /// Returns the depth at which segments no longer split.
    fn depth_limit(&self) -> u32 {
        ((self.len / ENTRIES_USUAL).max(1).ilog2() + DEPTH_GUARD).min(DEPTH_MAX)
    }

    /// Moves the entries of an unchained segment to one with another number of buckets.
    fn resize(&mut self, index: usize, segment: Segment, buckets: usize) {
        let resized = Segment::allocate(buckets, segment.depth());
        // SAFETY: live segments; the new one has space for all, by the choice of steps and thresholds; the old one
        // is freed once no word refers to it.
        unsafe {
            move_all(segment, resized);
            self.rename(index, resized);
            segment.free();
        }
    }

    /// Distributes the entries of a segment to two new segments that are one bit deeper.
    fn split(&mut self, index: usize, segment: Segment) {
        if segment.depth() < self.directory.depth() {
            self.split_shallow(index, segment);
        } else {
            self.double();
            self.split_shallow(2 * index, segment);
        }
    }

    fn split_shallow(&mut self, index: usize, segment: Segment) {
        let depth = segment.depth() + 1;
        // Keys must be read to be hashed: prefetch all entries before waiting for the first.
        let chained = segment.is_chained();
        // SAFETY: live; nothing is read through the addresses.
        unsafe {
            segment.each(|_, slot, _| {
                if let Some(entry) = slot.entry() {
                    segment::prefetch(entry.as_ptr());
                }
            });
        }
        let mut halves = [(); 2].map(|()| Half(Segment::allocate(BUCKETS_MIN, depth)));
        let mut next = segment;
        while !next.is_none() {
            // SAFETY: live; slots own their entries, and each slot moves to exactly one half; the old segment is
            // freed when all have moved and never used again (its words are set below).
            unsafe {
                next.each(|_, slot, t16| {
                    // An entry that a forgotten edit has leaked has no key to hash.
                    let hash = slot
                        .entry()
                        .map_or(0, |entry| self.seed.hash(T::key(T::borrow(entry))));
                    halves[(hash >> (64 - depth) & 1) as usize].insert(slot, t16);
                });
                let this = next;
                next = if chained { this.next() } else { Segment::NONE };
                this.free();
            }
        }
        let words = 1 << (self.directory.depth() - segment.depth());
        let first = index & !(words - 1);
        let [low, high] = halves.map(|half| half.0);
        self.rename(first, low);
        self.rename(first + words / 2, high);
        if depth == self.directory.depth() {
            self.deepest += 2;
        }
        self.prepare_doubling();
    }

    #[cold]
    fn lengthen_chain(&mut self, index: usize, segment: Segment) {
        let link = Segment::allocate(BUCKETS_MAX, segment.depth());
        // SAFETY: both live; the new link goes right behind the first.
        unsafe {
            link.set_next(segment.next());
            segment.set_next(link);
        }
        self.rename(index, segment.with_chained(true));
    }

    /// Shrinks the segment after a removal, or merges it with its buddy, when it has become sparse.
    #[inline]
    pub(super) fn shrink(&mut self, index: usize) {
        let segment = self.directory.get(index);
        if segment.is_chained() {
            return self.shorten_chain(index, segment);
        }
        // SAFETY: live.
        let count = unsafe { segment.count() };
        // A merge needs a look at the buddy, so it is only tried occasionally.
        let deep = segment.depth() > 0;
        let mergeable = deep && count < MERGE_BELOW && count.is_multiple_of(16);
        let sparse = count * 2 < segment.buckets() * WIDTH;
        if mergeable || sparse && (!deep || segment.buckets() > BUCKETS_MIN) {
            self.shrink_sparse(index, segment, mergeable);
        }
    }

    #[cold]
    fn shrink_sparse(&mut self, index: usize, segment: Segment, mergeable: bool) {
        if self.len == 0 {
            return self.release();
        }
        if mergeable {
            let (mut index, mut segment, mut merged) = (index, segment, false);
            while segment.depth() > 0
                && let Some(at) = self.merge(index, segment)
            {
                (index, segment, merged) = (at, self.directory.get(at), true);
            }
            if merged {
                return;
            }
        }
        // SAFETY: live.
        let count = unsafe { segment.count() };
        let least = if segment.depth() > 0 {
            BUCKETS_MIN
        } else {
            STEPS[0]
        };
        // Choose a size of which three quarters are filled, so that the segment neither grows nor shrinks again soon.
        let buckets = STEPS
            .iter()
            .copied()
            .find(|&step| step >= least && count * 4 <= step * WIDTH * 3)
            .unwrap_or(BUCKETS_MAX);
        if buckets < segment.buckets() {
            self.resize(index, segment, buckets);
        }
        // A halving that has begun ends even if nothing merges any more.
        if self.deepest == 0 {
            self.halve_some();
        }
    }

    /// Merges a segment with its buddy, the other half of their common prefix, if both are sparse enough and do not
    /// take up too much of the directory. Returns an index of the result.
    fn merge(&mut self, index: usize, segment: Segment) -> Option<usize> {
        let (first, words) = self.span(index, segment);
        let buddy = self.directory.get(first ^ words);
        if 2 * words > merged_words_max()
            || buddy.is_none()
            || buddy.depth() != segment.depth()
            || buddy.is_chained()
        {
            return None;
        }
        // SAFETY: live.
        if unsafe { segment.count() + buddy.count() } >= MERGE_BELOW {
            return None;
        }
        let merged = Segment::allocate(BUCKETS_MIN, segment.depth() - 1);
        // SAFETY: live segments; the new one has space for both; they are freed once no word refers to them.
        unsafe {
            move_all(segment, merged);
            move_all(buddy, merged);
            self.rename(first, merged);
            segment.free();
            buddy.free();
        }
        let depth = self.directory.depth();
        if segment.depth() == depth {
            self.deepest -= 2;
        }
        self.halve_some();
        Some(first >> (depth - self.directory.depth()))
    }

    /// Frees the segments of a chain that have become empty.
    #[cold]
    fn shorten_chain(&mut self, index: usize, segment: Segment) {
        let mut before = segment;
        // SAFETY: live; an empty link is freed once its predecessor refers to its successor.
        unsafe {
            while !before.next().is_none() {
                let link = before.next();
                if link.count() == 0 {
                    before.set_next(link.next());
                    link.free();
                } else {
                    before = link;
                }
            }
            if segment.next().is_none() {
                self.rename(index, segment.with_chained(false));
            }
        }
        if self.len == 0 {
            self.release();
        }
    }

    /// Drops the entries of up to `segments` segments. Returns whether any are left. The table can be used as usual
    /// meanwhile, except that entries keep disappearing; this is for freeing a large table in slices.
    pub fn drain_some(&mut self, segments: usize) -> bool {
        let mut budget = segments;
        self.drained = self.drained.min(self.directory.len());
        while budget > 0 && self.drained > 0 {
            self.drained -= 1;
            let index = self.drained;
            let segment = self.directory.get(index);
            if segment.is_none() {
                continue;
            }
            self.successor = None;
            let (first, words) = self.span(index, segment);
            for index in first..first + words {
                self.directory.set(index, Segment::NONE);
            }
            self.drained = first;
            self.deepest -= usize::from(segment.depth() == self.directory.depth());
            self.drop_segments(segment);
            budget -= 1;
        }
        if self.drained == 0 {
            // Entries that were added to segments already drained are dropped in the next round.
            self.drained = usize::MAX;
            if self.len == 0 {
                self.release();
            }
        }
        !self.directory.is_nothing()
    }

    /// Moves entries and segments out of sparse slabs, examining `budget` entries or slightly more, starting at
    /// `position`, where the previous call stopped. Returns the position where this call stops, 0 at the end. A walk
    /// begins with 0. `seen` is called with every entry that the walk has visited.
    ///
    /// All places become invalid.
    pub fn relocate_some(
        &mut self,
        position: u64,
        budget: usize,
        mover: &mut Mover,
        mut seen: impl FnMut(T::Ref<'_>),
    ) -> u64 {
        if self.directory.is_nothing() {
            return 0;
        }
        let mut index = self.directory.index(position);
        let mut left = budget.max(1);
        while index < self.directory.len() {
            let segment = self.directory.get(index);
            if segment.is_none() {
                index += 1;
                left = left.saturating_sub(1);
            } else {
                let (first, words) = self.span(index, segment);
                let links: Vec<Segment> =
                    crate::alloc::account::uncharged(|| self.chain(first).collect());
                for link in &links {
                    left = left.saturating_sub(self.relocate_entries(*link, mover, &mut seen));
                }
                mover.begin();
                mover.add(segment.address());
                mover.look();
                if !segment.is_chained() && mover.must_move(0) {
                    self.resize(first, segment, segment.buckets());
                }
                crate::alloc::account::uncharged(|| drop(links));
                index = first + words;
            }
            if left == 0 && index < self.directory.len() {
                return ((index as u128) << (64 - self.directory.depth())) as u64;
            }
        }
        0
    }

    /// Moves the entries of one segment of a chain out of sparse slabs. Returns the number of entries.
    fn relocate_entries(
        &mut self,
        link: Segment,
        mover: &mut Mover,
        seen: &mut impl FnMut(T::Ref<'_>),
    ) -> usize {
        let mut count = 0;
        mover.begin();
        // SAFETY: a live segment of this table, which is borrowed for writing; each slot gets back the ownership
        // that was taken out of it.
        unsafe {
            link.each(|_, slot, _| {
                if let Some(entry) = slot.entry() {
                    segment::prefetch(entry.as_ptr());
                    if T::CAN_MOVE {
                        mover.add(entry.as_ptr().addr());
                    }
                }
            });
            mover.look();
            link.each(|spot, slot, _| {
                let Some(entry) = slot.entry() else { return };
                let mut entry = entry;
                if T::CAN_MOVE
                    && mover.must_move(count)
                    && let Some(slot) = link.slot(spot)
                {
                    entry = T::from_raw(entry).moved().into_raw();
                    *slot = (*slot).with_entry(Some(entry));
                }
                seen(T::borrow(entry));
                count += 1;
            });
        }
        count
    }

    /// Drops the entries of `segment` and of the segments chained to it, and frees these segments. No word may refer
    /// to them.
    fn drop_segments(&mut self, segment: Segment) {
        let mut next = segment;
        while !next.is_none() {
            // SAFETY: live and unreferenced; slots own their entries, each is dropped once.
            unsafe {
                let mut dropped = 0;
                next.each(|_, slot, _| {
                    if let Some(entry) = slot.entry() {
                        segment::prefetch(entry.as_ptr());
                    }
                });
                next.each(|_, slot, _| {
                    dropped += 1;
                    if let Some(entry) = slot.entry() {
                        drop(T::from_raw(entry));
                    }
                });
                self.len -= dropped;
                let this = next;
                next = this.next();
                this.free();
            }
        }
    }

    /// Frees everything: the table is like a new one, except for its parity.
    pub(super) fn release(&mut self) {
        self.successor = None;
        Directory::nothing().publish(self.published.as_ref());
        let directory = mem::replace(&mut self.directory, Directory::nothing());
        self.deepest = 0;
        self.drained = usize::MAX;
        for segment in directory.segments() {
            self.drop_segments(segment);
        }
    }
}

/// One side of a split: the segment that receives entries, which grows as needed. Segments are chained to it in the
/// unlikely case that all entries of a chain go to one side.
struct Half(Segment);

impl Half {
    /// # Safety
    /// The half's segments are live and in no other directory word.
    #[inline]
    unsafe fn insert(&mut self, slot: TableSlot, t16: u64) {
        // SAFETY: the caller's promise; `make_room` provides a free slot in the first segment.
        unsafe {
            if self.0.count() == Segment::room(self.0.buckets()) {
                self.make_room();
            }
            self.0.insert(slot, t16 & 0xff);
        }
    }

    /// # Safety
    /// As for `insert`.
    #[cold]
    unsafe fn make_room(&mut self) {
        let full = self.0;
        // SAFETY: live; entries move once, and the former segment is freed or linked, never both.
        unsafe {
            if full.buckets() < BUCKETS_MAX && !full.is_chained() {
                let larger = Segment::allocate(step_above(full.buckets()), full.depth());
                move_all(full, larger);
                full.free();
                self.0 = larger;
            } else {
                let link = Segment::allocate(BUCKETS_MAX, full.depth());
                link.set_next(full.with_chained(false));
                self.0 = link.with_chained(true);
            }
        }
    }
}

/// Returns the next larger number of buckets.
fn step_above(buckets: usize) -> usize {
    STEPS[STEPS.partition_point(|&step| step <= buckets)]
}

/// Copies the slots of one segment into another that has space for them; the stored hash bits suffice for that.
///
/// # Safety
/// Two live segments; the entries belong to the second from now on.
unsafe fn move_all(from: Segment, to: Segment) {
    // SAFETY: the caller's promise.
    unsafe {
        from.each(|_, slot, t16| {
            to.insert(slot, t16 & 0xff);
        });
    }
}
