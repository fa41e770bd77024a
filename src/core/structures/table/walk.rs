//! Walks over a table: all of it, a slice after a cursor, one random entry.
//!
//! Invariants: a walk changes nothing; its cursor keeps its meaning whatever the table does between two slices (see
//! `visit`).

use std::ops::Range;

use super::segment::{self, BUCKETS_MAX, Segment, Spot, TableSlot, WIDTH};
use super::{EntrySlot, Stored, Table};

/// The position of a walk, as encoded in the cursor (see `visit`).
#[derive(Clone, Copy)]
struct TableWalkPosition {
    prefix: u64,
    /// Number of bits of the prefix.
    depth: u32,
    t16: u64,
}

impl TableWalkPosition {
    #[inline(always)]
    fn of(cursor: u64) -> TableWalkPosition {
        let depth = (cursor >> 16 & 31) as u32;
        TableWalkPosition {
            prefix: (cursor >> 21) & ((1 << depth) - 1),
            depth,
            t16: cursor & 0xffff,
        }
    }

    #[inline(always)]
    fn cursor(self) -> u64 {
        self.prefix << 21 | u64::from(self.depth) << 16 | self.t16
    }

    /// True if the prefix has passed the last one.
    #[inline(always)]
    fn is_end(self) -> bool {
        self.prefix == 1 << self.depth
    }
}

/// Returns the buckets of a segment, starting at the home of a `t16`.
#[inline(always)]
fn homes(segment: Segment, t16: u64) -> Range<usize> {
    match segment.is_none() {
        true => 0..0,
        false => segment.home(t16)..segment.buckets(),
    }
}

impl<T: Stored> Table<T> {
    /// Calls `f` with every entry.
    pub fn for_each(&self, mut f: impl FnMut(T::Ref<'_>)) {
        self.each_link(|_, segment| {
            // SAFETY: live; slots own their entries, unchanged while `self` is borrowed.
            unsafe {
                // All entries of a segment are prefetched before the first of them is read.
                segment.each(|_, slot, _| {
                    if let Some(entry) = slot.entry() {
                        segment::prefetch(entry.as_ptr());
                    }
                });
                segment.each(|_, slot, _| {
                    if let Some(entry) = slot.entry() {
                        f(T::borrow(entry));
                    }
                });
            }
        });
    }

    /// Calls `f` with about `budget` entries, starting at `cursor`, where the previous call stopped. Returns the
    /// cursor where this call stops, 0 at the end. A walk begins with 0.
    ///
    /// Every entry that is present from the first call to the last is seen at least once, whatever happens between
    /// calls; an entry is seen twice only when its segment has split or merged. Any number is safe as a cursor.
    /// Cursors take 48 bits.
    pub fn scan(&self, cursor: u64, budget: usize, mut f: impl FnMut(T::Ref<'_>)) -> u64 {
        self.visit(cursor, budget, |_, slot| {
            if let Some(entry) = slot.entry() {
                // SAFETY: the slot owns the entry, unchanged while `self` is borrowed.
                f(unsafe { T::borrow(entry) });
            }
        })
    }

    /// Calls `f` with the entries of some whole segments, `budget` entries or slightly more, starting at `position`,
    /// where the previous call stopped. Returns the position where this call stops, 0 at the end. A walk begins with
    /// 0.
    ///
    /// Every entry that is present from the first call to the last is seen exactly once, whatever happens between the
    /// calls. The position is the least hash that has not been seen, so that no state of the segments is needed: if a
    /// segment has merged with one that was already seen, its entries are distinguished by the hashes of their keys.
    pub fn scan_once(&self, position: u64, budget: usize, mut f: impl FnMut(T::Ref<'_>)) -> u64 {
        if self.directory.is_nothing() {
            return 0;
        }
        let depth = self.directory.depth();
        // The first hash that a word stands for; after the last word, a number beyond all hashes.
        let hash_of = |index: usize| (index as u128) << (64 - depth);
        let mut index = self.directory.index(position);
        // Empty segments take time too, so they count as well.
        let mut left = budget.max(1);
        while index < self.directory.len() {
            let segment = self.directory.get(index);
            let cost;
            if segment.is_none() {
                index += 1;
                cost = 1;
            } else {
                let (first, words) = self.span(index, segment);
                let is_partly_seen = hash_of(first) < u128::from(position);
                let mut seen = 0;
                for link in self.chain(index) {
                    // SAFETY: live segments, slots of which own their entries; `f` has no way to change them.
                    unsafe {
                        link.each(|_, slot, _| {
                            if let Some(entry) = slot.entry() {
                                segment::prefetch(entry.as_ptr());
                            }
                        });
                        link.each(|_, slot, _| {
                            seen += 1;
                            let Some(entry) = slot.entry() else { return };
                            let entry = T::borrow(entry);
                            if !is_partly_seen || self.seed.hash(T::key(entry)) >= position {
                                f(entry);
                            }
                        });
                    }
                }
                index = first + words;
                cost = seen.max(1);
            }
            left = left.saturating_sub(cost);
            if left == 0 && index < self.directory.len() {
                return hash_of(index) as u64;
            }
        }
        0
    }

    /// Like `scan`, without touching the entries: `f` gets the place, the seven bits stored with the entry, and
    /// whether the entry is saved.
    pub fn walk(&self, cursor: u64, budget: usize, mut f: impl FnMut(EntrySlot, u8, bool)) -> u64 {
        let parity = self.parity;
        self.visit(cursor, budget, |place, slot| {
            if slot.entry().is_some() {
                f(place, slot.bits(), slot.parity() == parity);
            }
        })
    }

    /// Returns the index of the directory word that contains a position, and its segment; the position takes on the
    /// segment's depth.
    #[inline(always)]
    fn settle(&self, at: &mut TableWalkPosition) -> (usize, Segment) {
        let depth = self.directory.depth();
        let index = if at.depth <= depth {
            at.prefix << (depth - at.depth)
        } else {
            at.prefix >> (at.depth - depth)
        } as usize;
        let segment = self.directory.get(index);
        at.depth = if segment.is_none() {
            depth
        } else {
            segment.depth()
        };
        at.prefix = (index >> (depth - at.depth)) as u64;
        (index, segment)
    }

    /// The walk behind `scan`, in hash order.
    ///
    /// A cursor means "every entry whose hash starts with a lesser prefix has been seen, and of those that start
    /// with this very prefix, the ones with a lesser t16":
    ///
    /// ```text
    /// bits 21-47 prefix | 16-20 its length (the depth of the segment it was taken from) | 0-15 t16
    /// ```
    ///
    /// Segments cover contiguous ranges of prefixes and are walked by rising home, so this is an exact position, and
    /// remains one however the table changes: a segment that has split has become several with longer prefixes, all
    /// of which have been seen below t16, and the walk continues in the first; a segment that has merged covers more
    /// than the prefix and is walked from its start, which repeats entries but misses none. Example: a walk stopped
    /// at prefix 101, t16 0x4000; the segment splits; the walk continues in 1010 at 0x4000 and repeats nothing there,
    /// then sees 1011 from the start and repeats its first quarter.
    fn visit(&self, cursor: u64, budget: usize, mut f: impl FnMut(EntrySlot, TableSlot)) -> u64 {
        if self.directory.is_nothing() {
            return 0;
        }
        let mut at = TableWalkPosition::of(cursor);
        let mut left = budget.max(1);
        // Empty buckets take time too, so they count as well.
        let mut homes_left = left.saturating_mul(8).saturating_add(BUCKETS_MAX);
        loop {
            let depth = at.depth;
            let (index, segment) = self.settle(&mut at);
            if at.depth < depth {
                at.t16 = 0;
            }
            for home in homes(segment, at.t16) {
                let to = segment.first_t16(home + 1);
                for (link, segment) in self.chain(index).enumerate() {
                    // SAFETY: live segments; `f` has no way to change them.
                    unsafe {
                        segment.each_within(at.t16, to, |spot, slot| {
                            left = left.saturating_sub(1);
                            f(EntrySlot::new(index, link, spot), slot);
                        });
                    }
                }
                at.t16 = to;
                homes_left = homes_left.saturating_sub(1);
                if (left == 0 || homes_left == 0) && to < 1 << 16 {
                    return at.cursor();
                }
            }
            at.prefix += 1;
            at.t16 = 0;
            if at.is_end() {
                return 0;
            }
            if left == 0 || homes_left == 0 {
                return at.cursor();
            }
        }
    }

    /// Returns the cursor with which a [`sweep`](Table::sweep) begins at a hash.
    #[must_use]
    pub fn cursor_at(&self, hash: u64) -> u64 {
        let depth = self.depth();
        let prefix = hash.checked_shr(u64::BITS - depth).unwrap_or(0);
        let t16 = hash & 0xffff;
        TableWalkPosition { prefix, depth, t16 }.cursor()
    }

    /// Advances a clock hand: continues from `cursor`, where the previous call stopped, in hash order and cyclically,
    /// over about `slots` entries. For each entry, `judge` gets its place and its seven bits, and returns the new
    /// value of these bits and whether to stop after this entry.
    ///
    /// As in a `scan`, the cursor means the same position whatever happens to the table in between; but the sweep
    /// follows the slots of entries and not their homes, as it need not see each entry exactly once.
    ///
    /// ```text
    /// bits 48-50 slot | 21-47 prefix | 16-20 its length | 0-15 t16 of the first home in the bucket
    /// ```
    pub fn sweep(
        &mut self,
        cursor: u64,
        slots: usize,
        mut judge: impl FnMut(EntrySlot, u8) -> (u8, bool),
    ) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut first_slot = (cursor >> 48 & 7) as usize;
        let mut at = TableWalkPosition::of(cursor);
        let mut left = slots;
        let mut buckets_left = slots.saturating_mul(4).saturating_add(BUCKETS_MAX);
        loop {
            let (index, segment) = self.settle(&mut at);
            for bucket in homes(segment, at.t16) {
                at.t16 = segment.first_t16(bucket);
                for (link, segment) in self.chain(index).enumerate() {
                    for slot in first_slot..WIDTH {
                        let spot = Spot { bucket, slot };
                        // SAFETY: a live segment, which returns no slot beyond its own; no other reference to the
                        // slot exists.
                        let Some(word) = (unsafe { segment.slot(spot).map(|slot| &mut *slot) })
                        else {
                            continue;
                        };
                        if word.entry().is_none() {
                            continue;
                        }
                        let (bits, stops) = judge(EntrySlot::new(index, link, spot), word.bits());
                        if bits != word.bits() {
                            *word = word.with_bits(bits);
                        }
                        left = left.saturating_sub(1);
                        // Chains are so rare that they are walked bucket by bucket.
                        if (stops || left == 0)
                            && slot + 1 < WIDTH
                            && !segment.is_chained()
                            && link == 0
                        {
                            return (slot as u64 + 1) << 48 | at.cursor();
                        }
                        if stops {
                            left = 0;
                        }
                    }
                }
                first_slot = 0;
                buckets_left = buckets_left.saturating_sub(1);
                if (left == 0 || buckets_left == 0) && bucket + 1 < segment.buckets() {
                    at.t16 = segment.first_t16(bucket + 1);
                    return at.cursor();
                }
            }
            first_slot = 0;
            at.t16 = 0;
            at.prefix += 1;
            if at.is_end() {
                at = TableWalkPosition::of(0);
            }
            buckets_left = buckets_left.saturating_sub(1);
            if left == 0 || buckets_left == 0 {
                return at.cursor();
            }
        }
    }

    /// Returns a uniformly random entry, except that entries in overflow chains are not equally likely.
    #[must_use]
    pub fn random(&self, draw: &mut dyn FnMut() -> u64) -> Option<EntrySlot> {
        if self.is_empty() {
            return None;
        }
        // With several segments, each counts as one of maximum size; slots that a smaller segment lacks count as
        // misses.
        let slots = if self.directory.len() == 1 {
            self.directory.get(0).buckets()
        } else {
            BUCKETS_MAX
        } * WIDTH;
        // Three or four tries on average; only a drained table needs more than a few dozen.
        for _ in 0..256 {
            let number = draw();
            let index = self.directory.index(number);
            let segment = self.directory.get(index);
            // A segment with several words must not be chosen proportionally more often.
            if segment.is_none() || self.span(index, segment).0 != index {
                continue;
            }
            let (link, segment) = if segment.is_chained() {
                let links = self.chain(index).count();
                let link = draw() as usize % links;
                (link, self.chain(index).nth(link)?)
            } else {
                (0, segment)
            };
            // The low half of the number is independent of the bits that chose the segment.
            let drawn = (((number & 0xffff_ffff) * slots as u64) >> 32) as usize;
            let spot = Spot {
                bucket: drawn / WIDTH,
                slot: drawn % WIDTH,
            };
            let place = EntrySlot::new(index, link, spot);
            // SAFETY: a live segment, which returns no slot beyond its own.
            if let Some(slot) = unsafe { segment.slot(spot) }
                // SAFETY: a slot in use, read while the table is borrowed.
                && unsafe { *slot }.entry().is_some()
            {
                return Some(place);
            }
        }
        self.first_from(self.directory.index(draw()))
    }

    /// Returns any entry, searching from `start` on; for tables so sparse that random sampling finds none.
    #[cold]
    fn first_from(&self, start: usize) -> Option<EntrySlot> {
        for index in start..start + self.directory.len() {
            let index = index & (self.directory.len() - 1);
            let mut found = None;
            for (link, segment) in self.chain(index).enumerate() {
                // SAFETY: live.
                unsafe {
                    segment.each(|spot, slot, _| {
                        if slot.entry().is_some() {
                            found = Some(EntrySlot::new(index, link, spot));
                        }
                    });
                }
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Panics unless the table's invariants hold. For tests; reads everything.
    pub fn check_invariants(&self) {
        let mut len = 0;
        let mut deepest = 0;
        let mut index = 0;
        while index < self.directory.len() {
            let segment = self.directory.get(index);
            if segment.is_none() {
                index += 1;
                continue;
            }
            let (first, words) = self.span(index, segment);
            assert_eq!(
                first, index,
                "a segment's words start at a multiple of their number"
            );
            deepest += usize::from(segment.depth() == self.directory.depth());
            let mut links = 0;
            for link in self.chain(index) {
                links += 1;
                // SAFETY: live; entries are owned by their slots.
                unsafe {
                    len += link.check();
                    link.each(|_, slot, t16| {
                        let entry = slot.entry().expect("no slot is left vacant by an edit");
                        let hash = self.seed.hash(T::key(T::borrow(entry)));
                        assert_eq!(hash & 0xffff, t16, "a slot keeps its key's low hash bits");
                        let home = self.directory.index(hash);
                        assert!(
                            (first..first + words).contains(&home),
                            "in its prefix's segment"
                        );
                    });
                }
            }
            assert_eq!(segment.is_chained(), links > 1);
            for other in first..first + words {
                assert!(
                    self.directory.get(other) == segment,
                    "words of one segment are equal"
                );
            }
            index += words;
        }
        assert_eq!(len, self.len);
        assert_eq!(deepest, self.deepest);
        self.check_successor();
    }
}
