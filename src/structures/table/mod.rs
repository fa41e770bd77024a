//! A hash table of owned thin pointers that never stops the world: extendible hashing over segments
//! of cache-line buckets.
//!
//! A directory indexed by the top bits of the hash names segments; several words name the same
//! segment when it is shallower than the directory. A segment that fills grows in steps without any
//! key being read, and at its largest splits in two; so an insert touches a few KiB at worst. The
//! directory's doubling, the only step that grows with the table, is prepared a little at each split.
//! A search reads one directory word, one bucket line (seldom two), and the entry itself.
//!
//! The table does not hash: callers hand the hash in, except that a split must hash the keys anew, for
//! which the table keeps the seed. It knows nothing of what entries hold beyond their key, nor
//! what the seven bits beside each address mean (save the counter in the lowest two, see `touch`).
//!
//! Invariants: a word names a segment whose entries share the word's top `depth` bits; all words of
//! one segment are equal; an empty table has no memory; those of `segment` and `directory`.

#![expect(unsafe_code, reason = "entries are owned through tagged addresses")]

mod directory;
mod segment;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::hash::Seed;

use directory::{DEPTH_MAX, Directory};
use segment::{BUCKETS_MAX, BUCKETS_MIN, Hit, Probe, STEPS, Segment, Slot, Spot, WIDTH};

pub use directory::prefetch_line;

/// An owned value behind one thin pointer, with a key inside. Dropping it frees it.
///
/// # Safety
/// `into_raw` and `from_raw` are inverse and pass ownership through an address below 2^48; `borrow`
/// reads through that address without taking ownership, and moves of the owner do not disturb it.
pub unsafe trait Stored: Sized + Send {
    /// A borrowed view of the value.
    type Ref<'a>: Copy
    where
        Self: 'a;

    /// Gives the ownership away as an address.
    fn into_raw(self) -> NonNull<u8>;

    /// Takes the ownership back.
    ///
    /// # Safety
    /// `raw` came from `into_raw` and nobody has taken it back since.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;

    /// Looks at a value that stays where it is.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and for `'a` nobody takes it back or changes the value.
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> Self::Ref<'a>
    where
        Self: 'a;

    /// The key that the value is found by.
    fn key<'a>(view: Self::Ref<'a>) -> &'a [u8]
    where
        Self: 'a;
}

/// Where an entry is. Good until the next insertion or removal; afterwards it may name another entry,
/// or none, which panics when used.
///
/// One word, so that finding one returns it in a register:
///
/// ```text
/// 63 set | 35-62 link of the overflow chain, nearly always 0 | 9-34 index | 3-8 bucket | 0-2 slot
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(NonZeroU64);

const _: () = assert!(size_of::<Option<Place>>() == 8);

/// A hash table of `T`; see the head of this file.
pub struct Table<T: Stored> {
    directory: Directory,
    len: usize,
    /// How many segments are as deep as the directory.
    deepest: usize,
    /// The directory to come, its words below twice `prepared` already set.
    successor: Option<Directory>,
    prepared: usize,
    /// Words at and above this index have been drained.
    drained: usize,
    parity: bool,
    seed: Seed,
    board: Option<Arc<AtomicU64>>,
    _owns: PhantomData<T>,
}

/// Buddies with fewer entries together than this become one: three fifths of the smallest segment,
/// so that the result is far from splitting again.
const MERGE_BELOW: usize = BUCKETS_MIN * WIDTH * 6 / 10;

/// Directories from this depth on are prepared in slices before they are needed; smaller ones are
/// copied at once, in a microsecond.
const PREPARE_FROM_DEPTH: u32 = 9;
/// Words prepared at each split. Preparation starts when a quarter of the words are as deep as the
/// directory; a quarter as many splits again, or more, come before one of those segments is full, so
/// there is time for many times the words. Should it be short after all, doubling does the rest.
const PREPARE_WORDS: usize = 64;

/// How many times deeper than the average a segment may be before it grows a chain instead of
/// splitting. Honest hashes stay within two levels: only a flood that aims at one prefix, which
/// takes knowledge of the seed, gets here, and its directory stays within half a byte per entry.
const DEPTH_GUARD: u32 = 4;

impl<T: Stored> Table<T> {
    /// An empty table, which takes no memory.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            directory: Directory::nothing(),
            len: 0,
            deepest: 0,
            successor: None,
            prepared: 0,
            drained: usize::MAX,
            parity: false,
            seed,
            board: None,
            _owns: PhantomData,
        }
    }

    /// An empty table that shows its directory on `board`, for [`prefetch_line`].
    #[must_use]
    pub fn with_board(seed: Seed, board: Arc<AtomicU64>) -> Self {
        let mut table = Self::new(seed);
        table.set_board(Some(board));
        table
    }

    /// Shows the directory on another board, or on none. The former board is left blank.
    pub fn set_board(&mut self, board: Option<Arc<AtomicU64>>) {
        Directory::nothing().publish(self.board.as_ref());
        self.board = board;
        self.directory.publish(self.board.as_ref());
    }

    /// The number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hash that this table expects for `key`.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash(key)
    }

    /// What the table occupies, without its entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let mut bytes = self.directory.memory_bytes();
        bytes += self.successor.as_ref().map_or(0, Directory::memory_bytes);
        self.each_link(|_, segment| bytes += Segment::memory_bytes(segment.buckets()));
        bytes
    }

    // ---- Finding ----------------------------------------------------------------------------

    /// The entry with this key.
    #[inline]
    #[must_use]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<T::Ref<'_>> {
        match self.probe(hash, key) {
            // SAFETY: the slot owns the entry, unchanged while `self` is borrowed.
            Probe::Likely(hit) => Some(unsafe { T::borrow(hit.entry) }),
            Probe::Absent => None,
            Probe::Unsure => self.get_slowly(hash, key),
        }
    }

    /// Where the entry with this key is.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Place> {
        match self.probe(hash, key) {
            Probe::Likely(hit) => {
                let spot = self.directory.of(hash).spot(&hit);
                Some(Place::new(self.directory.index(hash), 0, spot))
            }
            Probe::Absent => None,
            Probe::Unsure => self.find_slowly(hash, key),
        }
    }

    /// The first entry of this hash, or of one that cannot be told apart from it, that `accept` takes.
    /// It is shown every entry with this hash.
    #[inline]
    pub fn find_by_hash(&self, hash: u64, accept: impl FnMut(T::Ref<'_>) -> bool) -> Option<Place> {
        let (segment, link, hit) = self.search(hash, accept)?;
        Some(Place::new(
            self.directory.index(hash),
            link,
            segment.spot(&hit),
        ))
    }

    /// A first look, complete for all but a few. What is likely is certain here.
    #[inline(always)]
    fn probe(&self, hash: u64, key: &[u8]) -> Probe {
        let segment = self.directory.of(hash);
        if segment.is_unusual() {
            return Probe::Unsure;
        }
        // SAFETY: the directory names live segments, and slots own their entries, which nobody
        // changes while `self` is borrowed.
        let probe = unsafe { segment.probe(hash) };
        if let Probe::Likely(hit) = &probe
            // SAFETY: as above.
            && !same_short_bytes(T::key(unsafe { T::borrow(hit.entry) }), key)
        {
            return Probe::Unsure;
        }
        probe
    }

    #[inline(never)]
    fn get_slowly(&self, hash: u64, key: &[u8]) -> Option<T::Ref<'_>> {
        let (_, _, hit) = self.search(hash, |view| T::key(view) == key)?;
        // SAFETY: as in `get`.
        Some(unsafe { T::borrow(hit.entry) })
    }

    #[inline(never)]
    fn find_slowly(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.find_by_hash(hash, |view| T::key(view) == key)
    }

    fn search<'t>(
        &'t self,
        hash: u64,
        mut same: impl FnMut(T::Ref<'t>) -> bool,
    ) -> Option<(Segment, usize, Hit)> {
        let segment = self.directory.of(hash);
        if segment.is_unusual() {
            return self.search_chain(hash, same);
        }
        // SAFETY: as in `probe`.
        let hit = unsafe { segment.find(hash, |raw| same(T::borrow(raw))) }?;
        Some((segment, 0, hit))
    }

    #[cold]
    #[inline(never)]
    fn search_chain<'t>(
        &'t self,
        hash: u64,
        mut same: impl FnMut(T::Ref<'t>) -> bool,
    ) -> Option<(Segment, usize, Hit)> {
        for (link, segment) in self.chain(self.directory.index(hash)).enumerate() {
            // SAFETY: as in `probe`.
            if let Some(hit) = unsafe { segment.find(hash, |raw| same(T::borrow(raw))) } {
                return Some((segment, link, hit));
            }
        }
        None
    }

    /// Prefetches the lines of the directory's choice for `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.directory
            .get(self.directory.index(hash))
            .prefetch_home(hash);
    }

    /// Prefetches the first two lines of every entry that may have this hash, without reading any.
    #[inline]
    pub fn prefetch_matches(&self, hash: u64) {
        let segment = self.directory.of(hash);
        if !segment.is_none() {
            // SAFETY: live; nothing is read through the address.
            unsafe {
                segment.find(hash, |raw| {
                    prefetch_two_lines(raw);
                    false
                });
            }
        }
    }

    /// Prefetches the first two lines of the entry at `place`.
    #[inline]
    pub fn prefetch_entry(&self, place: Place) {
        if let Some(entry) = self.slot(place).entry() {
            prefetch_two_lines(entry);
        }
    }

    // ---- At a place -------------------------------------------------------------------------

    /// The entry at `place`.
    #[inline]
    #[must_use]
    pub fn at(&self, place: Place) -> T::Ref<'_> {
        let Some(entry) = self.slot(place).entry() else {
            nothing_there()
        };
        // SAFETY: the slot owns the entry, unchanged while `self` is borrowed.
        unsafe { T::borrow(entry) }
    }

    /// The entry at `place`, for changes. It must keep its key's hash.
    #[inline]
    pub fn edit(&mut self, place: Place) -> Edit<'_, T> {
        let slot = self.slot_mut(place);
        let Some(entry) = slot.entry() else {
            nothing_there()
        };
        // The slot names nothing meanwhile: an edit that is forgotten leaks its entry, rather than
        // leaving an address behind that may have been freed.
        *slot = slot.with_entry(None);
        // SAFETY: the slot owned it and has just let it go.
        let value = ManuallyDrop::new(unsafe { T::from_raw(entry) });
        Edit { slot, value }
    }

    /// The seven bits kept beside the entry's address; zero for a new entry.
    #[inline]
    #[must_use]
    pub fn bits(&self, place: Place) -> u8 {
        self.slot(place).bits()
    }

    /// Sets the seven bits.
    #[inline]
    pub fn set_bits(&mut self, place: Place, bits: u8) {
        let slot = self.slot_mut(place);
        *slot = slot.with_bits(bits);
    }

    /// Counts a use in the lowest two bits, which stay at three. Then nothing is written, so that the
    /// line of a hot entry is not dirtied.
    #[inline]
    pub fn touch(&mut self, place: Place) {
        let slot = self.slot_mut(place);
        let bits = slot.bits();
        if bits & 3 != 3 {
            *slot = slot.with_bits(bits + 1);
        }
    }

    /// The table's parity: entries of the other parity have not been saved since the last flip.
    #[must_use]
    pub fn parity(&self) -> bool {
        self.parity
    }

    /// Makes every entry unsaved, at once. Entries inserted from now on count as saved.
    ///
    /// Every entry must have been marked since the last flip, or it counts as saved by this one.
    pub fn flip_parity(&mut self) {
        self.parity = !self.parity;
    }

    /// Whether the entry has been marked, or inserted, since the last flip.
    #[inline]
    #[must_use]
    pub fn saved(&self, place: Place) -> bool {
        self.slot(place).parity() == self.parity
    }

    /// Marks the entry as saved.
    #[inline]
    pub fn mark_saved(&mut self, place: Place) {
        let parity = self.parity;
        let slot = self.slot_mut(place);
        *slot = slot.with_parity(parity);
    }

    #[inline]
    fn segment_at(&self, place: Place) -> Segment {
        let segment = self.directory.get(place.index());
        if place.link() == 0 {
            segment
        } else {
            self.link_at(place)
        }
    }

    #[cold]
    fn link_at(&self, place: Place) -> Segment {
        self.chain(place.index())
            .nth(place.link())
            .unwrap_or(Segment::NONE)
    }

    #[inline]
    fn slot(&self, place: Place) -> Slot {
        // SAFETY: the directory names live segments; a missing one has no buckets and so no slots.
        match unsafe { self.segment_at(place).slot(place.spot()) } {
            // SAFETY: a slot in use of a live segment, read while the table is borrowed.
            Some(slot) => unsafe { *slot },
            None => nothing_there(),
        }
    }

    #[inline]
    fn slot_mut(&mut self, place: Place) -> &mut Slot {
        // SAFETY: as in `slot`.
        match unsafe { self.segment_at(place).slot(place.spot()) } {
            // SAFETY: as in `slot`, and the table is borrowed for writing.
            Some(slot) => unsafe { &mut *slot },
            None => nothing_there(),
        }
    }

    // ---- Changing ---------------------------------------------------------------------------

    /// Adds an entry. The caller knows that its key is absent, and that `hash` is its key's.
    #[inline]
    pub fn insert_new(&mut self, hash: u64, value: T) -> Place {
        let slot = Slot::new(value.into_raw(), hash, self.parity);
        self.len += 1;
        let index = self.directory.index(hash);
        let segment = self.directory.of(hash);
        // SAFETY: a live segment with room.
        unsafe {
            if !segment.is_unusual() && segment.count() < Segment::room(segment.buckets()) {
                return Place::new(index, 0, segment.insert(slot, hash & 0xff));
            }
        }
        self.insert_making_room(hash, slot)
    }

    /// Puts `value`, which has the same key, in the place of another entry. The bits beside the
    /// address stay as they are.
    pub fn replace(&mut self, place: Place, value: T) -> T {
        mem::replace(&mut *self.edit(place), value)
    }

    /// Takes an entry out. Other places are void afterwards.
    pub fn remove(&mut self, place: Place) -> T {
        let segment = self.segment_at(place);
        // SAFETY: live segments; the spot was found in use; the slot's ownership passes to the caller.
        let value = unsafe {
            let Some(entry) = segment.slot(place.spot()).and_then(|slot| (*slot).entry()) else {
                nothing_there()
            };
            segment.remove(place.spot());
            T::from_raw(entry)
        };
        self.len -= 1;
        self.shrink(place.index() & (self.directory.len() - 1));
        value
    }

    // ---- Walking ----------------------------------------------------------------------------

    /// Calls `f` with every entry.
    pub fn for_each(&self, mut f: impl FnMut(T::Ref<'_>)) {
        self.each_link(|_, segment| {
            // SAFETY: live; slots own their entries, unchanged while `self` is borrowed.
            unsafe {
                segment.each(|_, slot, _| {
                    if let Some(entry) = slot.entry() {
                        f(T::borrow(entry));
                    }
                });
            }
        });
    }

    /// Calls `f` with some `budget` entries from where the call that returned `cursor` stopped, and
    /// returns where this one stops: 0 at the end. A walk begins with 0.
    ///
    /// Every entry that is present from the first call to the last is seen at least once, whatever
    /// happens between calls; an entry is seen twice only when its segment has split or merged. Any
    /// number is safe as a cursor. Cursors take 48 bits.
    pub fn scan(&self, cursor: u64, budget: usize, mut f: impl FnMut(T::Ref<'_>)) -> u64 {
        self.visit(cursor, budget, |_, slot| {
            if let Some(entry) = slot.entry() {
                // SAFETY: the slot owns the entry, unchanged while `self` is borrowed.
                f(unsafe { T::borrow(entry) });
            }
        })
    }

    /// As `scan`, without touching the entries: `f` gets the place, the seven bits and whether the
    /// entry is saved.
    pub fn walk(&self, cursor: u64, budget: usize, mut f: impl FnMut(Place, u8, bool)) -> u64 {
        let parity = self.parity;
        self.visit(cursor, budget, |place, slot| {
            if slot.entry().is_some() {
                f(place, slot.bits(), slot.parity() == parity);
            }
        })
    }

    /// The walk behind `scan`, in hash order.
    ///
    /// A cursor says "every entry whose hash starts with a lesser prefix has been seen, and of those
    /// that start with this very prefix, the ones with a lesser t16":
    ///
    /// ```text
    /// bits 21-47 prefix | 16-20 its length (the depth of the segment it was taken from) | 0-15 t16
    /// ```
    ///
    /// Segments cover contiguous ranges of prefixes and are walked by rising home, so this is an exact
    /// position, and remains one however the table changes: a segment that has split is several with
    /// longer prefixes, all of which have been seen below t16, and we go on in the first; one that has
    /// merged covers more than the prefix and is begun anew, which repeats entries but misses none.
    /// Example: a walk stopped at prefix 101, t16 0x4000; the segment splits; the walk goes on in 1010
    /// at 0x4000 and repeats nothing there, then sees 1011 from the start and repeats its first quarter.
    fn visit(&self, cursor: u64, budget: usize, mut f: impl FnMut(Place, Slot)) -> u64 {
        if self.directory.is_nothing() {
            return 0;
        }
        let directory_depth = self.directory.depth();
        let mut from = cursor & 0xffff;
        let mut depth = (cursor >> 16 & 31) as u32;
        let mut prefix = (cursor >> 21) & ((1 << depth) - 1);
        let mut left = budget.max(1);
        // Empty stretches cost time too.
        let mut homes_left = left.saturating_mul(8).saturating_add(BUCKETS_MAX);
        loop {
            let index = if depth <= directory_depth {
                prefix << (directory_depth - depth)
            } else {
                prefix >> (depth - directory_depth)
            } as usize;
            let segment = self.directory.get(index);
            let found = if segment.is_none() {
                directory_depth
            } else {
                segment.depth()
            };
            if found < depth {
                from = 0;
            }
            depth = found;
            prefix = (index >> (directory_depth - depth)) as u64;
            let homes = if segment.is_none() {
                0..0
            } else {
                segment.home(from)..segment.buckets()
            };
            for home in homes {
                let to = segment.first_t16(home + 1);
                for (link, segment) in self.chain(index).enumerate() {
                    // SAFETY: live segments; `f` has no way to change them.
                    unsafe {
                        segment.each_within(from, to, |spot, slot| {
                            left = left.saturating_sub(1);
                            f(Place::new(index, link, spot), slot);
                        });
                    }
                }
                from = to;
                homes_left = homes_left.saturating_sub(1);
                if (left == 0 || homes_left == 0) && to < 1 << 16 {
                    return prefix << 21 | u64::from(depth) << 16 | to;
                }
            }
            prefix += 1;
            from = 0;
            if prefix == 1 << depth {
                return 0;
            }
            if left == 0 || homes_left == 0 {
                return prefix << 21 | u64::from(depth) << 16;
            }
        }
    }

    /// An entry drawn at random: a range of hashes, then a slot within it. Uniform but for how unevenly
    /// the hash fills segments of equal depth.
    #[must_use]
    pub fn random(&self, draw: &mut dyn FnMut() -> u64) -> Option<Place> {
        if self.is_empty() {
            return None;
        }
        // Segments are half full at least, unless the table was drained or has just shrunk.
        for _ in 0..64 {
            let number = draw();
            let index = self.directory.index(number);
            let segment = self.directory.get(index);
            if segment.is_none() {
                continue;
            }
            let (link, segment) = if segment.is_chained() {
                let links = self.chain(index).count();
                let link = draw() as usize % links;
                (link, self.chain(index).nth(link)?)
            } else {
                (0, segment)
            };
            // The low half is independent of the bits that chose the segment.
            let slots = (segment.buckets() * WIDTH) as u64;
            let drawn = (((number & 0xffff_ffff) * slots) >> 32) as usize;
            let spot = Spot {
                bucket: drawn / WIDTH,
                slot: drawn % WIDTH,
            };
            let place = Place::new(index, link, spot);
            // SAFETY: a live segment.
            if let Some(slot) = unsafe { segment.slot(spot) }
                // SAFETY: a slot in use, read while the table is borrowed.
                && unsafe { *slot }.entry().is_some()
            {
                return Some(place);
            }
        }
        self.first_from(self.directory.index(draw()))
    }

    /// Some entry, for tables so sparse that drawing at random finds none.
    #[cold]
    fn first_from(&self, start: usize) -> Option<Place> {
        for index in start..start + self.directory.len() {
            let index = index & (self.directory.len() - 1);
            let mut found = None;
            for (link, segment) in self.chain(index).enumerate() {
                // SAFETY: live.
                unsafe {
                    segment.each(|spot, slot, _| {
                        if slot.entry().is_some() {
                            found = Some(Place::new(index, link, spot));
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

    /// Drops the entries of up to `segments` segments; says whether any are left. The table can be used
    /// as any other meanwhile, but that entries keep vanishing; one drains it to free a large table in
    /// slices.
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
            self.forget_successor();
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
            // What came in behind the drain goes with the next round.
            self.drained = usize::MAX;
            if self.len == 0 {
                self.release();
            }
        }
        !self.directory.is_nothing()
    }

    /// Panics unless the table is sound. For tests; reads everything.
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
                        let entry = slot.entry().expect("no edit was forgotten");
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
                if let Some(successor) = &self.successor {
                    for later in (2 * other)..(2 * self.prepared).min(2 * other + 2) {
                        assert!(successor.get(later) == segment, "the successor follows");
                    }
                }
            }
            index += words;
        }
        assert_eq!(len, self.len);
        assert_eq!(deepest, self.deepest);
    }

    // ---- Structure --------------------------------------------------------------------------

    /// The words that name `segment`, one of which is `index`: the first, and how many.
    fn span(&self, index: usize, segment: Segment) -> (usize, usize) {
        let words = 1 << (self.directory.depth() - segment.depth());
        (index & !(words - 1), words)
    }

    /// The segments that one word stands for: one, unless the word is chained.
    fn chain(&self, index: usize) -> impl Iterator<Item = Segment> {
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
    fn each_link(&self, mut f: impl FnMut(usize, Segment)) {
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

    /// Makes all words that named the segment around `index` name `segment`, of the same depth.
    fn rename(&mut self, index: usize, segment: Segment) {
        let (first, words) = self.span(index, segment);
        for index in first..first + words {
            self.directory.set(index, segment);
            if let Some(successor) = &mut self.successor
                && index < self.prepared
            {
                successor.set(2 * index, segment);
                successor.set(2 * index + 1, segment);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_making_room(&mut self, hash: u64, slot: Slot) -> Place {
        if self.directory.is_nothing() {
            self.directory = Directory::take(0);
            self.directory.set(0, Segment::NONE);
            self.directory.publish(self.board.as_ref());
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
                // SAFETY: a live segment with room.
                unsafe {
                    if segment.count() < Segment::room(segment.buckets()) {
                        return Place::new(index, link, segment.insert(slot, hash & 0xff));
                    }
                }
            }
            if segment.buckets() < BUCKETS_MAX && !segment.is_chained() {
                let step = STEPS.partition_point(|&step| step <= segment.buckets());
                self.resize(index, segment, STEPS[step]);
            } else if segment.depth() < self.depth_limit() {
                self.split(index, segment);
            } else {
                self.lengthen_chain(index, segment);
            }
        }
    }

    /// The depth at which segments no longer split.
    fn depth_limit(&self) -> u32 {
        ((self.len / 256).max(1).ilog2() + DEPTH_GUARD).min(DEPTH_MAX)
    }

    /// Lays the entries of an unchained segment out in another number of buckets.
    fn resize(&mut self, index: usize, segment: Segment, buckets: usize) {
        let resized = Segment::allocate(buckets, segment.depth());
        // SAFETY: live segments; the new one has room for all, as steps and thresholds have it; the
        // old one is freed once no word names it.
        unsafe {
            move_all(segment, resized);
            self.rename(index, resized);
            segment.free();
        }
    }

    /// Deals the entries of a segment out to two that are one bit deeper.
    fn split(&mut self, index: usize, segment: Segment) {
        if segment.depth() == self.directory.depth() {
            self.double();
            let index = 2 * index;
            return self.split_shallow(index, segment);
        }
        self.split_shallow(index, segment);
    }

    fn split_shallow(&mut self, index: usize, segment: Segment) {
        let depth = segment.depth() + 1;
        // Keys must be read to be hashed: ask for all of them before waiting for the first.
        let chained = segment.is_chained();
        // SAFETY: live; nothing is read through the addresses.
        unsafe {
            segment.each(|_, slot, _| {
                if let Some(entry) = slot.entry() {
                    segment::prefetch(entry.as_ptr());
                }
            });
        }
        let mut halves = [const { Half::new() }; 2];
        for half in &mut halves {
            half.grow_to(Segment::allocate(BUCKETS_MIN, depth));
        }
        let mut next = segment;
        while !next.is_none() {
            // SAFETY: live; slots own their entries, and each slot moves to exactly one half; the old
            // segment is freed when all have moved and never used again (its words are set below).
            unsafe {
                next.each(|_, slot, t16| {
                    // An entry that is lost to a forgotten edit moves with nothing to hash.
                    let hash = slot
                        .entry()
                        .map_or(0, |entry| self.seed.hash(T::key(T::borrow(entry))));
                    halves[(hash >> (64 - depth) & 1) as usize].insert(slot, t16, depth);
                });
                let this = next;
                next = if chained { this.next() } else { Segment::NONE };
                this.free();
            }
        }
        let words = 1 << (self.directory.depth() - segment.depth());
        let first = index & !(words - 1);
        let [low, high] = halves.map(|half| half.first);
        self.rename(first, low);
        self.rename(first + words / 2, high);
        if depth == self.directory.depth() {
            self.deepest += 2;
        }
        self.prepare();
    }

    /// Copies a slice of the directory into the one that will succeed it, if it is time.
    fn prepare(&mut self) {
        let depth = self.directory.depth();
        if self.successor.is_none() {
            if depth < PREPARE_FROM_DEPTH
                || depth == DEPTH_MAX
                || self.deepest < self.directory.len() / 4
            {
                return;
            }
            self.successor = Some(Directory::take(depth + 1));
            self.prepared = 0;
        }
        self.prepare_words(PREPARE_WORDS);
    }

    fn prepare_words(&mut self, words: usize) {
        let Some(successor) = &mut self.successor else {
            return;
        };
        let until = self
            .prepared
            .saturating_add(words)
            .min(self.directory.len());
        for index in self.prepared..until {
            let segment = self.directory.get(index);
            successor.set(2 * index, segment);
            successor.set(2 * index + 1, segment);
        }
        self.prepared = until;
    }

    fn forget_successor(&mut self) {
        self.successor = None;
        self.prepared = 0;
    }

    /// Doubles the directory. All segments are shallower than it then.
    fn double(&mut self) {
        if self.successor.is_none() {
            self.successor = Some(Directory::take(self.directory.depth() + 1));
            self.prepared = 0;
        }
        self.prepare_words(usize::MAX);
        self.prepared = 0;
        if let Some(successor) = self.successor.take() {
            self.install(successor);
        }
        self.deepest = 0;
    }

    fn install(&mut self, directory: Directory) {
        // Published before the old one returns to the pool, if only to spare useless prefetches.
        directory.publish(self.board.as_ref());
        self.directory = directory;
        self.drained = usize::MAX;
    }

    /// Halves the directory as long as no segment needs its depth.
    fn halve(&mut self) {
        while self.deepest == 0 && self.directory.depth() > 0 {
            self.forget_successor();
            let depth = self.directory.depth() - 1;
            let mut half = Directory::take(depth);
            for index in 0..half.len() {
                let segment = self.directory.get(2 * index);
                half.set(index, segment);
                self.deepest += usize::from(!segment.is_none() && segment.depth() == depth);
            }
            self.install(half);
        }
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

    /// After a removal: makes the segment smaller, or one with its buddy, when it has become sparse.
    #[inline]
    fn shrink(&mut self, index: usize) {
        let segment = self.directory.get(index);
        if segment.is_chained() {
            return self.shorten_chain(index, segment);
        }
        // SAFETY: live.
        let count = unsafe { segment.count() };
        // A merge needs a look at the buddy, so it is only tried now and then.
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
        // Three quarters full, so that it neither grows nor shrinks again soon.
        let buckets = STEPS
            .into_iter()
            .find(|&step| step >= least && count * 4 <= step * WIDTH * 3)
            .unwrap_or(BUCKETS_MAX);
        if buckets < segment.buckets() {
            self.resize(index, segment, buckets);
        }
    }

    /// Makes a segment one with its buddy, the other half of their common prefix, if both are sparse
    /// enough. Returns an index of the result.
    fn merge(&mut self, index: usize, segment: Segment) -> Option<usize> {
        let (first, words) = self.span(index, segment);
        let buddy = self.directory.get(first ^ words);
        if buddy.is_none() || buddy.depth() != segment.depth() || buddy.is_chained() {
            return None;
        }
        // SAFETY: live.
        if unsafe { segment.count() + buddy.count() } >= MERGE_BELOW {
            return None;
        }
        let merged = Segment::allocate(BUCKETS_MIN, segment.depth() - 1);
        // SAFETY: live segments; the new one has room for both; they are freed once unnamed.
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
            self.halve();
        }
        Some(first >> (depth - self.directory.depth()))
    }

    /// Frees the links of a chain that have become empty.
    #[cold]
    fn shorten_chain(&mut self, index: usize, segment: Segment) {
        let mut before = segment;
        // SAFETY: live; an empty link is freed once its predecessor names its successor.
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

    /// Drops the entries of `segment` and of the chain behind it, and frees it. No word names it.
    fn drop_segments(&mut self, segment: Segment) {
        let mut next = segment;
        while !next.is_none() {
            // SAFETY: live and unnamed; slots own their entries, each is dropped once.
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

    /// Gives everything back: the table is as new but for its parity.
    fn release(&mut self) {
        self.forget_successor();
        Directory::nothing().publish(self.board.as_ref());
        let directory = mem::replace(&mut self.directory, Directory::nothing());
        self.deepest = 0;
        self.drained = usize::MAX;
        let mut index = 0;
        while index < directory.len() {
            let segment = directory.get(index);
            if segment.is_none() {
                index += 1;
                continue;
            }
            index += 1 << (directory.depth() - segment.depth());
            self.drop_segments(segment);
        }
    }
}

impl<T: Stored> Drop for Table<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Place {
    const LINKS_MAX: usize = 1 << 28;

    #[inline(always)]
    fn new(index: usize, link: usize, spot: Spot) -> Self {
        let rest = link << 35 | index << 9 | spot.bucket << 3 | spot.slot;
        match NonZeroU64::new(rest as u64 | 1 << 63) {
            Some(word) => Self(word),
            None => unreachable!("a bit was just set"),
        }
    }

    #[inline(always)]
    fn index(self) -> usize {
        (self.0.get() >> 9) as usize & ((1 << DEPTH_MAX) - 1)
    }

    #[inline(always)]
    fn link(self) -> usize {
        (self.0.get() >> 35) as usize & (Self::LINKS_MAX - 1)
    }

    #[inline(always)]
    fn spot(self) -> Spot {
        let word = self.0.get() as usize;
        Spot {
            bucket: word >> 3 & 63,
            slot: word & 7,
        }
    }
}

/// An entry taken out of its slot for changes; dropping this puts it back, wherever it is by then.
pub struct Edit<'t, T: Stored> {
    slot: &'t mut Slot,
    value: ManuallyDrop<T>,
}

impl<T: Stored> Deref for Edit<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Stored> DerefMut for Edit<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Stored> Drop for Edit<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, as the guard is going.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        *self.slot = self.slot.with_entry(Some(value.into_raw()));
    }
}

/// One side of a split: a segment that grows while entries are dealt to it, with a chain behind it in
/// the unlikely case that all entries of a chain go to one side.
struct Half {
    first: Segment,
}

impl Half {
    const fn new() -> Self {
        Self {
            first: Segment::NONE,
        }
    }

    fn grow_to(&mut self, segment: Segment) {
        self.first = segment;
    }

    /// # Safety
    /// The half's segments are live and named by nobody else.
    #[inline]
    unsafe fn insert(&mut self, slot: Slot, t16: u64, depth: u32) {
        // SAFETY: the caller's promise; `room_for_one` leaves room in the first segment.
        unsafe {
            if self.first.count() == Segment::room(self.first.buckets()) {
                self.make_room(depth);
            }
            self.first.insert(slot, t16 & 0xff);
        }
    }

    /// # Safety
    /// As `insert`.
    #[cold]
    unsafe fn make_room(&mut self, depth: u32) {
        let full = self.first;
        // SAFETY: live; entries move once, and the former segment is freed or linked, never both.
        unsafe {
            if full.buckets() < BUCKETS_MAX {
                let step = STEPS.partition_point(|&step| step <= full.buckets());
                let larger = Segment::allocate(STEPS[step], depth);
                move_all(full, larger);
                larger.set_next(full.next());
                self.first = larger.with_chained(full.is_chained());
                full.free();
            } else {
                let link = Segment::allocate(BUCKETS_MAX, depth);
                link.set_next(full.with_chained(false));
                self.first = link.with_chained(true);
            }
        }
    }
}

/// Copies the slots of one segment into another with room for them, by the hash bits that they keep.
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

#[inline(always)]
fn prefetch_two_lines(entry: NonNull<u8>) {
    segment::prefetch(entry.as_ptr());
    segment::prefetch(entry.as_ptr().wrapping_add(64));
}

/// Whether two keys of 4 to 32 bytes are equal; false for others. Two loads from either end, which may
/// overlap, take fewer instructions than calling the library, and leave no call on the way.
#[inline(always)]
fn same_short_bytes(one: &[u8], two: &[u8]) -> bool {
    /// # Safety
    /// Both have `len` bytes, which are at least `size_of::<W>()`.
    #[inline(always)]
    unsafe fn same_ends<W: Copy + PartialEq>(one: *const u8, two: *const u8, len: usize) -> bool {
        let last = len - size_of::<W>();
        // SAFETY: the caller's promise.
        unsafe {
            let (one_last, two_last) = (one.add(last).cast::<W>(), two.add(last).cast::<W>());
            one.cast::<W>().read_unaligned() == two.cast::<W>().read_unaligned()
                && one_last.read_unaligned() == two_last.read_unaligned()
        }
    }
    let len = two.len();
    if one.len() != len {
        return false;
    }
    let (one, two) = (one.as_ptr(), two.as_ptr());
    // SAFETY: lengths are equal and in the range of each arm.
    unsafe {
        match len {
            8..=16 => same_ends::<u64>(one, two, len),
            17..=32 => same_ends::<u128>(one, two, len),
            4..=7 => same_ends::<u32>(one, two, len),
            _ => false,
        }
    }
}

#[cold]
#[inline(never)]
fn nothing_there() -> ! {
    panic!("the place names no entry; it was kept over an insertion or a removal")
}
