//! One segment of a table: a header line and a run of buckets. It knows nothing of hashes beyond the sixteen bits
//! stored with each address, nor of the meaning of the addresses.
//!
//! ```text
//! segment   [ header 64 B ][ bucket 64 B ] × nb
//! bucket    [ 7 fingerprints | ctl ][ slot ] × 7         ctl: bits 0-6 slot in use, bit 7 overflow
//! slot      63 parity | 56-62 eviction byte | 48-55 hash byte | 0-47 address of the entry
//! word      56-63 local depth | 55 chained | 48-54 bucket count nb | 0-47 address of the segment
//! ```
//!
//! The sixteen bits `t16 = hash byte << 8 | fingerprint` are the low bits of the hash, while the directory uses the
//! high ones. They determine the home bucket of an entry, for any number of buckets, `home = t16 * nb >> 16`, so a
//! segment can be resized without reading a key, and homes follow hash order. An entry whose home is full goes to
//! the next bucket that is not, cyclically.
//!
//! Invariants: an entry found `k` buckets after its home has passed over `k` full buckets with the overflow bit
//! set; a bucket has the overflow bit if and only if an entry has passed over it; so a search stops at the first
//! bucket without the bit, and removal refills the slot that it empties. An address of zero in a slot in use is an
//! entry being edited: searches do not see it.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};

pub(super) use crate::structures::prefetch::line_at as prefetch;

/// Number of entries in one bucket.
pub(super) const WIDTH: usize = 7;

/// The numbers of buckets that a segment grows through. The last four fill 2560, 3072, 3584 and 4096 bytes with the
/// header; the ones before are for tables that are still small, and their sizes are allocator classes too (128, 192,
/// 256, 384, 512, 768, 1024, 1536, 2048). Miri, which is slow, stops at fifteen buckets: everything that happens to
/// large segments happens to small ones too.
pub(super) const STEPS: &[usize] = if cfg!(miri) {
    &[1, 2, 3, 5, 7, 11, 15]
} else {
    &[1, 2, 3, 5, 7, 11, 15, 23, 31, 39, 47, 55, 63]
};

/// Buckets of a new segment after a split.
pub(super) const BUCKETS_MIN: usize = if cfg!(miri) { 11 } else { 39 };
/// Buckets of a segment that must split.
pub(super) const BUCKETS_MAX: usize = if cfg!(miri) { 15 } else { 63 };
/// Typical number of entries of a segment.
pub(super) const ENTRIES_USUAL: usize = if cfg!(miri) { 64 } else { 256 };

const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const CHAINED: u64 = 1 << 55;
const DEPTH_SHIFT: u32 = 56;
const USED: u64 = 0x7f << 56;
const OVERFLOW: u64 = 1 << 63;
const LOW_BITS: u64 = 0x0001_0101_0101_0101;

/// The word that a bucket stores for each entry: its address and some bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableSlot(pub(super) u64);

impl TableSlot {
    const EVICTION_SHIFT: u32 = 56;
    const EVICTION: u64 = 0x7f << Self::EVICTION_SHIFT;
    const PARITY: u64 = 1 << 63;

    /// Creates a slot for the entry at `address` with this hash; its eviction bits are zero.
    #[inline]
    pub(super) fn new(address: NonNull<u8>, hash: u64, parity: bool) -> Self {
        let address = address.as_ptr().expose_provenance() as u64;
        assert!(address <= ADDRESS, "user space has 47 bits");
        Self(address | (hash >> 8 & 0xff) << ADDRESS_BITS | u64::from(parity) << 63)
    }

    /// Returns the address of the entry; None while the entry is being edited.
    #[inline(always)]
    pub(super) fn entry(self) -> Option<NonNull<u8>> {
        NonNull::new(ptr::with_exposed_provenance_mut(
            (self.0 & ADDRESS) as usize,
        ))
    }

    /// Returns the slot with another address of the entry, or with none while it is being edited.
    #[inline]
    pub(super) fn with_entry(self, entry: Option<NonNull<u8>>) -> Self {
        let address = entry.map_or(0, |entry| entry.as_ptr().expose_provenance() as u64);
        assert!(address <= ADDRESS, "user space has 47 bits");
        Self(self.0 & !ADDRESS | address)
    }

    #[inline(always)]
    pub(super) fn hash_byte(self) -> u64 {
        self.0 >> ADDRESS_BITS & 0xff
    }

    #[inline]
    pub(super) fn bits(self) -> u8 {
        (self.0 >> Self::EVICTION_SHIFT & 0x7f) as u8
    }

    #[inline]
    pub(super) fn with_bits(self, bits: u8) -> Self {
        debug_assert!(bits < 128, "the eviction byte has seven bits");
        Self(self.0 & !Self::EVICTION | u64::from(bits & 0x7f) << Self::EVICTION_SHIFT)
    }

    #[inline]
    pub(super) fn parity(self) -> bool {
        self.0 & Self::PARITY != 0
    }

    #[inline]
    pub(super) fn with_parity(self, parity: bool) -> Self {
        Self(self.0 & !Self::PARITY | u64::from(parity) << 63)
    }
}

#[repr(C, align(64))]
struct SegmentHeader {
    /// Number of slots in use.
    count: usize,
    /// The next segment of an overflow chain, or zero.
    next: u64,
}

#[repr(C, align(64))]
struct Bucket {
    meta: u64,
    slots: [TableSlot; WIDTH],
}

const _: () = assert!(size_of::<Bucket>() == 64 && size_of::<SegmentHeader>() == 64);

/// A directory word: the address of a segment and the data needed to search it.
///
/// A copy does not own the segment; using one after the segment is freed violates the contract of the `unsafe`
/// methods, all of which require a live segment and no other access to it meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment(u64);

/// Position of an entry within a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub(super) bucket: usize,
    pub(super) slot: usize,
}

/// The result of a search, in fewer words than a [`Spot`] needs.
pub(super) struct Hit {
    line: *mut Bucket,
    slot: usize,
    pub(super) entry: NonNull<u8>,
}

impl Hit {
    /// Returns the slot of the entry.
    #[inline(always)]
    pub(super) fn slot(&self) -> *mut TableSlot {
        // SAFETY: returned by a search, which counts slots within their line.
        unsafe {
            (&raw mut (*self.line).slots)
                .cast::<TableSlot>()
                .add(self.slot)
        }
    }
}

/// The result of a first look at a segment.
pub(super) enum Probe {
    /// An entry with the same sixteen hash bits; its key decides.
    Likely(Hit),
    /// There is no such entry.
    Absent,
    /// Only a full search can tell.
    Unsure,
}

impl Segment {
    /// No segment. It counts as chained, so that one test detects all unusual cases.
    pub(super) const NONE: Self = Self(CHAINED);

    #[inline(always)]
    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Returns the address of the segment's memory.
    pub(super) fn address(self) -> usize {
        (self.0 & ADDRESS) as usize
    }

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.0 & ADDRESS == 0
    }

    /// Returns the number of buckets.
    #[inline(always)]
    pub(super) fn buckets(self) -> usize {
        (self.0 >> ADDRESS_BITS & 0x7f) as usize
    }

    /// Returns the number of top bits of the hash that the segment's entries have in common.
    #[inline]
    pub(super) fn depth(self) -> u32 {
        (self.0 >> DEPTH_SHIFT) as u32
    }

    /// True if more segments are chained to this one.
    #[inline]
    pub(super) fn is_chained(self) -> bool {
        self.is_unusual() && !self.is_none()
    }

    /// True if there is no segment, or if it is chained.
    #[inline(always)]
    pub(super) fn is_unusual(self) -> bool {
        self.0 & CHAINED != 0
    }

    #[inline]
    pub(super) fn with_depth(self, depth: u32) -> Self {
        Self(self.0 & !(0xff << DEPTH_SHIFT) | u64::from(depth) << DEPTH_SHIFT)
    }

    #[inline]
    pub(super) fn with_chained(self, chained: bool) -> Self {
        Self(self.0 & !CHAINED | if chained { CHAINED } else { 0 })
    }

    /// Returns the maximum number of entries in `buckets` buckets: nine tenths of the slots, or all slots of a single
    /// bucket. With several buckets at least one slot stays free, which ends every search.
    pub(super) const fn room(buckets: usize) -> usize {
        if buckets == 1 {
            WIDTH
        } else {
            buckets * WIDTH * 9 / 10
        }
    }

    fn layout(buckets: usize) -> Layout {
        Layout::from_size_align(64 * (1 + buckets), 64).expect("a few KiB")
    }

    /// Returns the bytes of a segment with `buckets` buckets.
    pub(super) const fn memory_bytes(buckets: usize) -> usize {
        64 * (1 + buckets)
    }

    /// Allocates a segment without entries, which the caller frees.
    pub(super) fn allocate(buckets: usize, depth: u32) -> Self {
        debug_assert!(STEPS.contains(&buckets));
        let layout = Self::layout(buckets);
        // SAFETY: the size is not zero. All-zero bytes are an empty segment.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            alloc::handle_alloc_error(layout)
        }
        let address = memory.expose_provenance() as u64;
        assert!(address <= ADDRESS, "user space has 47 bits");
        Self(address | (buckets as u64) << ADDRESS_BITS).with_depth(depth)
    }

    /// Frees the segment; entries still inside are leaked.
    ///
    /// # Safety
    /// A live segment, and no copy of the word is used afterwards.
    pub(super) unsafe fn free(self) {
        // SAFETY: allocated by `allocate` with the layout of its number of buckets.
        unsafe { alloc::dealloc(self.header().cast(), Self::layout(self.buckets())) }
    }

    #[inline(always)]
    fn header(self) -> *mut SegmentHeader {
        ptr::with_exposed_provenance_mut((self.0 & ADDRESS) as usize)
    }

    /// Prefetches the line with the entry count.
    #[inline(always)]
    pub(super) fn prefetch_header(self) {
        prefetch(self.header().cast());
    }

    #[inline(always)]
    fn bucket(self, bucket: usize) -> *mut Bucket {
        debug_assert!(bucket < self.buckets());
        self.header().cast::<Bucket>().wrapping_add(1 + bucket)
    }

    /// Returns the home bucket of entries with these low sixteen hash bits.
    #[inline(always)]
    pub(super) fn home(self, t16: u64) -> usize {
        ((t16 * (self.0 >> ADDRESS_BITS & 0x7f)) >> 16) as usize
    }

    /// Returns the least `t16` (low sixteen hash bits) whose home is `bucket` or later.
    #[inline]
    pub(super) fn first_t16(self, bucket: usize) -> u64 {
        ((bucket as u64) << 16).div_ceil(self.buckets() as u64)
    }

    #[inline(always)]
    fn after(self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets() {
            0
        } else {
            bucket + 1
        }
    }

    #[inline]
    fn before(self, bucket: usize) -> usize {
        if bucket == 0 {
            self.buckets() - 1
        } else {
            bucket - 1
        }
    }

    /// Returns how many buckets lie from `from` to `to`, going forward.
    #[inline]
    fn distance(self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.buckets() - from
        }
    }

    /// Prefetches the home line of `hash` and the line after it. Allowed for any word at all, even one without a
    /// live segment: nothing is read.
    #[inline(always)]
    pub(super) fn prefetch_home(self, hash: u64) {
        let line = self
            .header()
            .cast::<Bucket>()
            .wrapping_add(1 + self.home(hash & 0xffff));
        prefetch(line.cast());
        prefetch(line.wrapping_add(1).cast());
    }

    /// Returns the number of entries.
    ///
    /// # Safety
    /// A live segment.
    #[inline]
    pub(super) unsafe fn count(self) -> usize {
        // SAFETY: live.
        unsafe { (*self.header()).count }
    }

    /// Returns the next segment of the chain, or none.
    ///
    /// # Safety
    /// A live segment.
    pub(super) unsafe fn next(self) -> Self {
        // SAFETY: live.
        Self(unsafe { (*self.header()).next })
    }

    /// # Safety
    /// A live segment.
    pub(super) unsafe fn set_next(self, next: Self) {
        // SAFETY: live.
        unsafe { (*self.header()).next = next.0 }
    }

    /// Returns the entry that a search for `hash` nearly always ends at: the first entry with the same sixteen bits,
    /// if it is in the home bucket. Straight-line code, as it is inlined wherever a key is looked up; uncertain cases
    /// are left to `find`.
    ///
    /// # Safety
    /// A live segment.
    #[inline(always)]
    pub(super) unsafe fn probe(self, hash: u64) -> Probe {
        let line = self.bucket(self.home(hash & 0xffff));
        // SAFETY: live, and the bucket is within it.
        let meta = unsafe { (*line).meta };
        let matches = zero_bytes(meta ^ (hash & 0xff).wrapping_mul(LOW_BITS));
        if matches == 0 {
            return if meta & OVERFLOW == 0 {
                Probe::Absent
            } else {
                Probe::Unsure
            };
        }
        let slot = (matches.trailing_zeros() >> 3) as usize;
        // SAFETY: `zero_bytes` marks the low seven bytes only.
        let word = unsafe { *(*line).slots.get_unchecked(slot) };
        match word.entry() {
            Some(entry) if word.hash_byte() as u8 == (hash >> 8) as u8 => {
                Probe::Likely(Hit { line, slot, entry })
            }
            _ => Probe::Unsure,
        }
    }

    /// Finds an entry with the low sixteen bits of `hash` that `same` accepts.
    ///
    /// # Safety
    /// A live segment.
    #[inline]
    pub(super) unsafe fn find(
        self,
        hash: u64,
        mut same: impl FnMut(NonNull<u8>) -> bool,
    ) -> Option<Hit> {
        let fingerprints = (hash & 0xff).wrapping_mul(LOW_BITS);
        let mut line = self.bucket(self.home(hash & 0xffff));
        loop {
            // SAFETY: live, and the bucket is within it.
            let meta = unsafe { (*line).meta };
            let mut matches = zero_bytes(meta ^ fingerprints);
            while matches != 0 {
                let slot = (matches.trailing_zeros() >> 3) as usize;
                // SAFETY: `zero_bytes` marks the low seven bytes only.
                let word = unsafe { *(*line).slots.get_unchecked(slot) };
                if word.hash_byte() as u8 == (hash >> 8) as u8
                    && let Some(entry) = word.entry()
                    && same(entry)
                {
                    return Some(Hit { line, slot, entry });
                }
                matches &= matches - 1;
            }
            if meta & OVERFLOW == 0 {
                return None;
            }
            line = line.wrapping_add(1);
            if line == self.bucket(0).wrapping_add(self.buckets()) {
                line = self.bucket(0);
            }
        }
    }

    /// Returns the spot of a hit in this segment.
    #[inline(always)]
    pub(super) fn spot(self, hit: &Hit) -> Spot {
        let bytes = hit.line as usize - self.bucket(0) as usize;
        Spot {
            bucket: bytes / size_of::<Bucket>(),
            slot: hit.slot,
        }
    }

    /// Returns the slot at `spot`, if it exists and is in use.
    ///
    /// # Safety
    /// A live segment.
    #[inline]
    pub(super) unsafe fn slot(self, spot: Spot) -> Option<*mut TableSlot> {
        if spot.bucket >= self.buckets() || spot.slot >= WIDTH {
            return None;
        }
        let line = self.bucket(spot.bucket);
        // SAFETY: live, and both indices were checked.
        unsafe {
            let used = (*line).meta >> (56 + spot.slot) & 1 != 0;
            used.then(|| (&raw mut (*line).slots[spot.slot]))
        }
    }

    /// Returns the sixteen hash bits of the slot at `spot`.
    ///
    /// # Safety
    /// A live segment, and a spot within it.
    #[inline]
    unsafe fn t16(self, spot: Spot) -> u64 {
        let line = self.bucket(spot.bucket);
        // SAFETY: the caller's promise.
        unsafe {
            let fingerprint = (*line).meta >> (8 * spot.slot) & 0xff;
            (*line).slots[spot.slot].hash_byte() << 8 | fingerprint
        }
    }

    /// Puts `slot` into the first bucket with a free slot, starting at its home. `fingerprint` is the low byte of the
    /// hash.
    ///
    /// # Safety
    /// A live segment with fewer entries than `room`.
    #[inline]
    pub(super) unsafe fn insert(self, slot: TableSlot, fingerprint: u64) -> Spot {
        let mut bucket = self.home(slot.hash_byte() << 8 | fingerprint);
        loop {
            let line = self.bucket(bucket);
            // SAFETY: live; the index of a free slot is below seven.
            unsafe {
                let free = !(*line).meta & USED;
                if free != 0 {
                    let index = (free.trailing_zeros() - 56) as usize;
                    let byte = 8 * index as u32;
                    (*line).meta =
                        (*line).meta & !(0xff << byte) | fingerprint << byte | 1 << (56 + index);
                    (*line).slots[index] = slot;
                    (*self.header()).count += 1;
                    return Spot {
                        bucket,
                        slot: index,
                    };
                }
                (*line).meta |= OVERFLOW;
            }
            bucket = self.after(bucket);
        }
    }

    /// Removes the entry at `spot`, and moves entries that had passed over its bucket closer to their homes, so
    /// that the invariant of overflow bits at the head of this file is maintained.
    ///
    /// # Safety
    /// A live segment, and a spot in use.
    pub(super) unsafe fn remove(self, spot: Spot) -> TableSlot {
        // SAFETY: the caller's promise; all other spots come from walks over live buckets.
        unsafe {
            let removed = (*self.bucket(spot.bucket)).slots[spot.slot];
            let first = self.home(self.t16(spot));
            let mut hole = spot;
            while (*self.bucket(hole.bucket)).meta & OVERFLOW != 0 {
                let Some(passer) = self.passer_over(hole.bucket) else {
                    debug_assert!(false, "the overflow bit is exact");
                    break;
                };
                self.copy(passer, hole);
                hole = passer;
            }
            let line = self.bucket(hole.bucket);
            let byte = 8 * hole.slot as u32;
            (*line).meta &= !(0xff << byte | 1 << (56 + hole.slot));
            (*line).slots[hole.slot] = TableSlot(0);
            (*self.header()).count -= 1;
            // Entries have left these buckets' overflow, or moved into it.
            let mut bucket = hole.bucket;
            while bucket != first {
                bucket = self.before(bucket);
                if self.passer_over(bucket).is_none() {
                    (*self.bucket(bucket)).meta &= !OVERFLOW;
                }
            }
            removed
        }
    }

    /// Returns an entry that has passed over `bucket`, because that was full, and is in a later one.
    ///
    /// # Safety
    /// A live segment.
    unsafe fn passer_over(self, bucket: usize) -> Option<Spot> {
        let mut at = bucket;
        // SAFETY: live; spots are within it.
        unsafe {
            while (*self.bucket(at)).meta & OVERFLOW != 0 {
                at = self.after(at);
                if at == bucket {
                    break;
                }
                let reach = self.distance(bucket, at);
                let found = self
                    .spots(at)
                    .find(|&spot| self.distance(self.home(self.t16(spot)), at) >= reach);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// # Safety
    /// A live segment, and two spots within it.
    unsafe fn copy(self, from: Spot, to: Spot) {
        // SAFETY: the caller's promise.
        unsafe {
            let fingerprint = self.t16(from) & 0xff;
            let line = self.bucket(to.bucket);
            let byte = 8 * to.slot as u32;
            (*line).meta = (*line).meta & !(0xff << byte) | fingerprint << byte;
            (*line).slots[to.slot] = (*self.bucket(from.bucket)).slots[from.slot];
        }
    }

    /// Returns the spots in use within one bucket.
    ///
    /// # Safety
    /// A live segment, and a bucket of it.
    #[inline]
    unsafe fn spots(self, bucket: usize) -> impl Iterator<Item = Spot> {
        // SAFETY: the caller's promise.
        let mut used = unsafe { (*self.bucket(bucket)).meta } >> 56 & 0x7f;
        std::iter::from_fn(move || {
            let slot = used.trailing_zeros() as usize;
            used &= used.wrapping_sub(1);
            (slot < WIDTH).then_some(Spot { bucket, slot })
        })
    }

    /// Calls `f` with each spot in use, its slot and its sixteen hash bits.
    ///
    /// # Safety
    /// A live segment, which `f` does not change.
    #[inline]
    pub(super) unsafe fn each(self, mut f: impl FnMut(Spot, TableSlot, u64)) {
        for bucket in 0..self.buckets() {
            // SAFETY: live.
            unsafe {
                for spot in self.spots(bucket) {
                    f(
                        spot,
                        (*self.bucket(bucket)).slots[spot.slot],
                        self.t16(spot),
                    );
                }
            }
        }
    }

    /// Calls `f` with each entry whose `t16` is in `from..to`, in the order of homes.
    ///
    /// # Safety
    /// A live segment, which `f` does not change.
    pub(super) unsafe fn each_within(self, from: u64, to: u64, mut f: impl FnMut(Spot, TableSlot)) {
        debug_assert!(from < to && to <= 1 << 16);
        for home in self.home(from)..=self.home(to - 1) {
            let mut bucket = home;
            loop {
                // SAFETY: live.
                unsafe {
                    for spot in self.spots(bucket) {
                        let t16 = self.t16(spot);
                        if self.home(t16) == home && (from..to).contains(&t16) {
                            f(spot, (*self.bucket(bucket)).slots[spot.slot]);
                        }
                    }
                    if (*self.bucket(bucket)).meta & OVERFLOW == 0 {
                        break;
                    }
                }
                bucket = self.after(bucket);
                if bucket == home {
                    break;
                }
            }
        }
    }

    /// Panics unless all invariants at the head of this file hold. Returns the number of entries.
    ///
    /// # Safety
    /// A live segment.
    pub(super) unsafe fn check(self) -> usize {
        let mut count = 0;
        let mut passed = vec![false; self.buckets()];
        // SAFETY: live.
        unsafe {
            self.each(|spot, _, t16| {
                count += 1;
                let mut bucket = self.home(t16);
                while bucket != spot.bucket {
                    passed[bucket] = true;
                    bucket = self.after(bucket);
                }
            });
            for (bucket, passed) in passed.into_iter().enumerate() {
                let meta = (*self.bucket(bucket)).meta;
                assert_eq!(meta & OVERFLOW != 0, passed, "overflow bits are exact");
                assert!(
                    !passed || meta & USED == USED,
                    "only full buckets are passed over"
                );
                for slot in 0..WIDTH {
                    let used = meta >> (56 + slot) & 1 != 0;
                    let word = (*self.bucket(bucket)).slots[slot];
                    assert!(used || word == TableSlot(0), "a free slot is zero");
                }
            }
            assert_eq!(self.count(), count, "the header counts the slots in use");
        }
        assert!(
            count <= Self::room(self.buckets()),
            "one slot in ten stays free"
        );
        count
    }
}

/// Marks, by its top bit, each of the seven low bytes that is zero. Above a zero byte, a byte of 1 may be marked as
/// well, which does no harm: the entry of a mark is compared in full anyway.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & (0x80 * LOW_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn zero_bytes_marks_every_zero_byte_and_nothing_if_there_is_none() {
        let mut random = Random::new(1);
        for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
            let word = random.next_u64();
            // Many bytes of zero, one and 0x80.
            let word = word & word.rotate_left(17) & 0x8181_8181_8181_8181;
            let exact = (0..7).fold(0, |marks, byte| {
                marks
                    | if word >> (8 * byte) & 0xff == 0 {
                        0x80_u64 << (8 * byte)
                    } else {
                        0
                    }
            });
            let marks = zero_bytes(word);
            assert_eq!(marks & exact, exact);
            assert_eq!(
                marks & marks.wrapping_neg(),
                exact & exact.wrapping_neg(),
                "the first is"
            );
            assert_eq!(marks & !(0x80 * LOW_BITS), 0);
        }
    }

    #[test]
    fn homes_follow_hash_order_and_first_t16_inverts_them() {
        for &buckets in STEPS {
            let segment = Segment((buckets as u64) << ADDRESS_BITS);
            for bucket in 0..buckets {
                let first = segment.first_t16(bucket);
                assert_eq!(segment.home(first), bucket);
                assert!(first == 0 || segment.home(first - 1) == bucket - 1);
            }
            assert_eq!(segment.first_t16(buckets), 1 << 16);
            assert_eq!(segment.home(0xffff), buckets - 1);
        }
    }
}
