//! A hash table of owned thin pointers without long pauses: extendible hashing over segments of cache-line buckets.
//!
//! A directory indexed by the top bits of the hash refers to segments; several words refer to the same segment when
//! it is shallower than the directory. A segment that fills grows in steps without reading any key, and at its
//! largest splits in two; so an insertion touches a few KiB at worst. The directory's doubling and halving, the only
//! steps that grow with the table, are prepared a little at each split and merge. A search reads one directory word,
//! one bucket line (seldom two), and the entry itself.
//!
//! The table does not hash: callers pass in the hash, except that a split must hash the keys anew, for which the
//! table keeps the seed. The table knows nothing of the contents of entries beyond their keys, nor of the meaning of
//! the seven bits stored with each address (except the counter in the lowest two, see `touch`).
//!
//! Invariants: a word refers to a segment whose entries share the word's top `depth` bits; all words of one segment
//! are equal; an empty table has no memory; those of `segment` and `directory`.

#![expect(unsafe_code, reason = "entries are owned through tagged addresses")]

mod directory;
mod refit;
mod segment;
mod shape;
mod successor;
mod walk;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::hash::HashSeed;

use directory::{DEPTH_MAX, Directory};
use segment::{Hit, Probe, Segment, Spot, TableSlot};
use successor::Successor;

pub use directory::prefetch_line;

/// An owned value behind one thin pointer, that contains its key. Dropping the value frees its memory.
///
/// # Safety
/// `into_raw` and `from_raw` are inverse and pass ownership through an address below 2^48; `borrow` reads through
/// that address without taking ownership, and moves of the owner do not affect it.
pub unsafe trait Stored: Sized + Send {
    /// A borrowed view of the value.
    type Ref<'a>: Copy
    where
        Self: 'a;

    /// Converts the value to an address, which carries the ownership.
    fn into_raw(self) -> NonNull<u8>;

    /// Takes back the ownership of a value.
    ///
    /// # Safety
    /// `raw` came from `into_raw` and has not been taken back since.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;

    /// Borrows a value in place.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and for `'a` no caller takes it back or changes the value.
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> Self::Ref<'a>
    where
        Self: 'a;

    /// True if only the table refers to the address, so that the value may be moved in memory.
    const CAN_MOVE: bool = false;

    /// Returns the value in newly allocated memory, if [`Stored::CAN_MOVE`].
    #[must_use]
    fn moved(self) -> Self {
        self
    }

    /// Returns the key of the value.
    fn key<'a>(view: Self::Ref<'a>) -> &'a [u8]
    where
        Self: 'a;
}

/// Position of an entry. Valid until the next insertion or removal; afterwards it may refer to another entry, or to
/// no entry, in which case using it panics.
///
/// One word, so that a search returns it in a register:
///
/// ```text
/// 63 set | 35-62 link of the overflow chain, nearly always 0 | 9-34 index | 3-8 bucket | 0-2 slot
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntrySlot(NonZeroU64);

const _: () = assert!(size_of::<Option<EntrySlot>>() == 8);

/// A hash table of `T`; see the head of this file.
pub struct Table<T: Stored> {
    directory: Directory,
    len: usize,
    /// Number of segments that are as deep as the directory.
    deepest: usize,
    /// The next directory, while it is being prepared. Boxed, since most tables are small and never have one.
    successor: Option<Box<Successor>>,
    /// Directory words at and above this index have been drained.
    drained: usize,
    parity: bool,
    seed: HashSeed,
    published: Option<Arc<AtomicU64>>,
    /// True if the table's directories may be published.
    may_publish: bool,
    _owns: PhantomData<T>,
}

impl<T: Stored> Table<T> {
    /// Creates an empty table, which takes no memory.
    #[must_use]
    pub fn new(seed: HashSeed) -> Self {
        Self {
            directory: Directory::nothing(),
            len: 0,
            deepest: 0,
            successor: None,
            drained: usize::MAX,
            parity: false,
            seed,
            published: None,
            may_publish: false,
            _owns: PhantomData,
        }
    }

    /// Creates an empty table that publishes its directory in a word, for [`prefetch_line`].
    #[must_use]
    pub fn with_published(seed: HashSeed, published: Arc<AtomicU64>) -> Self {
        let mut table = Self::new(seed);
        table.may_publish = true;
        table.set_published(Some(published));
        table
    }

    /// Creates a table with copies of the entries made by `copy`, under the same keys.
    pub fn duplicate(&self, mut copy: impl FnMut(T::Ref<'_>) -> T) -> Table<T> {
        let mut table = Table::new(self.seed);
        self.for_each(|entry| {
            table.insert_new(self.seed.hash(T::key(entry)), copy(entry));
        });
        table
    }

    /// Publishes the directory in another word, or in none. The former word is set to zero.
    ///
    /// Only for tables created with a published word: the directories of other tables cannot be published.
    pub fn set_published(&mut self, published: Option<Arc<AtomicU64>>) {
        assert!(self.may_publish, "the table began without a published word");
        Directory::nothing().publish(self.published.as_ref());
        self.published = published;
        self.directory.publish(self.published.as_ref());
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the hash that this table expects for `key`.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash(key)
    }

    /// Returns how many of the highest bits of a hash select the segment of its entry.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.directory.depth()
    }

    /// Returns the bytes allocated for the table, without its entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let mut bytes = self.directory.memory_bytes();
        bytes += (self.successor.as_ref()).map_or(0, |next| next.directory.memory_bytes());
        self.each_link(|_, segment| bytes += Segment::memory_bytes(segment.buckets()));
        bytes
    }

    // ---- Finding ----------------------------------------------------------------------------

    /// Returns the entry with this key.
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

    /// Returns the place of the entry with this key.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<EntrySlot> {
        match self.probe(hash, key) {
            Probe::Likely(hit) => {
                let spot = self.directory.of(hash).spot(&hit);
                Some(EntrySlot::new(self.directory.index(hash), 0, spot))
            }
            Probe::Absent => None,
            Probe::Unsure => self.find_slowly(hash, key),
        }
    }

    /// Returns the entry with this key, with access to its slot.
    #[inline(always)]
    pub fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<Found<'_, T>> {
        let (place, slot) = match self.probe(hash, key) {
            Probe::Likely(hit) => {
                let spot = self.directory.of(hash).spot(&hit);
                let place = EntrySlot::new(self.directory.index(hash), 0, spot);
                // SAFETY: a slot in use of a live segment, and the table is borrowed for writing.
                (place, unsafe { &mut *hit.slot() })
            }
            Probe::Absent => return None,
            Probe::Unsure => {
                let place = self.find_slowly(hash, key)?;
                (place, self.slot_mut(place))
            }
        };
        Some(Found {
            slot,
            place,
            entries: PhantomData,
        })
    }

    /// Returns the first entry with this hash that `accept` accepts. All entries with this hash, and those whose
    /// hashes the table cannot distinguish from it, are passed to `accept`, until it accepts one.
    #[inline]
    pub fn find_by_hash(
        &self,
        hash: u64,
        accept: impl FnMut(T::Ref<'_>) -> bool,
    ) -> Option<EntrySlot> {
        let (segment, link, hit) = self.search(hash, accept)?;
        Some(EntrySlot::new(
            self.directory.index(hash),
            link,
            segment.spot(&hit),
        ))
    }

    /// Looks at the home bucket only, which suffices for all but a few searches. The key of a likely hit is compared
    /// here.
    #[inline(always)]
    fn probe(&self, hash: u64, key: &[u8]) -> Probe {
        let segment = self.directory.of(hash);
        if segment.is_unusual() {
            return Probe::Unsure;
        }
        // SAFETY: the directory contains live segments, and slots own their entries, which no thread changes while
        // `self` is borrowed.
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
    fn find_slowly(&self, hash: u64, key: &[u8]) -> Option<EntrySlot> {
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

    /// Prefetches the cache lines in which a search for `hash` begins.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.directory
            .get(self.directory.index(hash))
            .prefetch_home(hash);
    }

    /// Prefetches the cache line in which a search for a key begins; if the table was just used, only if it is too
    /// large for a near cache.
    #[inline]
    pub fn prefetch_if_far(&self, key: &[u8], is_in_use: bool) {
        const NEAR_LEN_MAX: usize = 4_096;
        if !is_in_use || self.len() > NEAR_LEN_MAX {
            self.prefetch(self.hash(key));
        }
    }

    /// Prefetches the first two lines of every entry that may have this hash, without reading any entry. If there is
    /// no such entry, prefetches the memory needed for an insertion instead, and returns false.
    #[inline]
    pub fn prefetch_matches(&self, hash: u64) -> bool {
        let segment = self.directory.of(hash);
        if segment.is_none() {
            return false;
        }
        let mut is_any = false;
        // SAFETY: live; nothing is read through the address.
        unsafe {
            segment.find(hash, |raw| {
                prefetch_two_lines(raw);
                is_any = true;
                false
            });
        }
        if !is_any {
            segment.prefetch_header();
        }
        is_any
    }

    /// Prefetches the memory touched by a removal: the entries that may have this hash, and the part of their segment
    /// that is written.
    #[inline]
    pub fn prefetch_removal(&self, hash: u64) {
        if self.prefetch_matches(hash) {
            self.directory.of(hash).prefetch_header();
        }
    }

    /// Prefetches the first two lines of the entry at `place`.
    #[inline]
    pub fn prefetch_entry(&self, place: EntrySlot) {
        if let Some(entry) = self.slot(place).entry() {
            prefetch_two_lines(entry);
        }
    }

    // ---- At a place -------------------------------------------------------------------------

    /// Returns the entry at `place`.
    #[inline]
    #[must_use]
    pub fn at(&self, place: EntrySlot) -> T::Ref<'_> {
        let Some(entry) = self.slot(place).entry() else {
            nothing_there()
        };
        // SAFETY: the slot owns the entry, unchanged while `self` is borrowed.
        unsafe { T::borrow(entry) }
    }

    /// Returns the entry at `place`, for changes. The hash of its key must stay the same.
    #[inline]
    pub fn edit(&mut self, place: EntrySlot) -> Edit<'_, T> {
        let slot = self.slot_mut(place);
        let Some(entry) = slot.entry() else {
            nothing_there()
        };
        // The slot is empty meanwhile: a forgotten edit leaks its entry, rather than leaving an address behind that
        // may have been freed.
        *slot = slot.with_entry(None);
        // SAFETY: the slot owned it and has just released it.
        let value = ManuallyDrop::new(unsafe { T::from_raw(entry) });
        Edit { slot, value }
    }

    /// Returns the second lowest byte of the hash of the entry at `place`, which is in the slot, so the entry is
    /// not read.
    #[inline]
    #[must_use]
    pub fn hash_byte(&self, place: EntrySlot) -> u8 {
        self.slot(place).hash_byte() as u8
    }

    /// Returns the seven bits stored with the entry's address; zero for a new entry.
    #[inline]
    #[must_use]
    pub fn bits(&self, place: EntrySlot) -> u8 {
        self.slot(place).bits()
    }

    /// Sets the seven bits stored with the entry's address.
    #[inline]
    pub fn set_bits(&mut self, place: EntrySlot, bits: u8) {
        let slot = self.slot_mut(place);
        *slot = slot.with_bits(bits);
    }

    /// Returns the table's parity: entries with the other parity have not been saved since the last flip.
    #[must_use]
    pub fn parity(&self) -> bool {
        self.parity
    }

    /// Makes every entry unsaved, in one step. Entries inserted from now on count as saved.
    ///
    /// Every entry must have been marked since the last flip, or it will count as saved after this one.
    pub fn flip_parity(&mut self) {
        self.parity = !self.parity;
    }

    /// True if the entry has been marked, or inserted, since the last flip.
    #[inline]
    #[must_use]
    pub fn saved(&self, place: EntrySlot) -> bool {
        self.slot(place).parity() == self.parity
    }

    /// Marks the entry as saved.
    #[inline]
    pub fn mark_saved(&mut self, place: EntrySlot) {
        let parity = self.parity;
        let slot = self.slot_mut(place);
        *slot = slot.with_parity(parity);
    }

    #[inline]
    fn segment_at(&self, place: EntrySlot) -> Segment {
        let segment = self.directory.get(place.index());
        if place.link() == 0 {
            segment
        } else {
            self.link_at(place)
        }
    }

    #[cold]
    fn link_at(&self, place: EntrySlot) -> Segment {
        self.chain(place.index())
            .nth(place.link())
            .unwrap_or(Segment::NONE)
    }

    #[inline]
    fn slot(&self, place: EntrySlot) -> TableSlot {
        // SAFETY: the directory contains live segments; a missing one has no buckets and so no slots.
        match unsafe { self.segment_at(place).slot(place.spot()) } {
            // SAFETY: a slot in use of a live segment, read while the table is borrowed.
            Some(slot) => unsafe { *slot },
            None => nothing_there(),
        }
    }

    #[inline]
    fn slot_mut(&mut self, place: EntrySlot) -> &mut TableSlot {
        // SAFETY: as in `slot`.
        match unsafe { self.segment_at(place).slot(place.spot()) } {
            // SAFETY: as in `slot`, and the table is borrowed for writing.
            Some(slot) => unsafe { &mut *slot },
            None => nothing_there(),
        }
    }

    // ---- Changing ---------------------------------------------------------------------------

    /// Adds an entry. The caller ensures that its key is absent, and that `hash` is the hash of the key.
    #[inline]
    pub fn insert_new(&mut self, hash: u64, value: T) -> EntrySlot {
        let slot = TableSlot::new(value.into_raw(), hash, self.parity);
        self.len += 1;
        let index = self.directory.index(hash);
        let segment = self.directory.of(hash);
        // SAFETY: a live segment with a free slot.
        unsafe {
            if !segment.is_unusual() && segment.count() < Segment::room(segment.buckets()) {
                return EntrySlot::new(index, 0, segment.insert(slot, hash & 0xff));
            }
        }
        self.insert_making_room(hash, slot)
    }

    /// Replaces an entry by `value`, which must have the same key, and returns the old one. The bits stored with the
    /// address stay the same.
    pub fn replace(&mut self, place: EntrySlot, value: T) -> T {
        mem::replace(&mut *self.edit(place), value)
    }

    /// Removes and returns an entry. Other places become invalid.
    pub fn remove(&mut self, place: EntrySlot) -> T {
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
}

impl<T: Stored> Drop for Table<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl EntrySlot {
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

/// An entry that was just found.
pub struct Found<'t, T> {
    slot: &'t mut TableSlot,
    place: EntrySlot,
    entries: PhantomData<&'t T>,
}

impl<T: Stored> Found<'_, T> {
    /// Returns the place of the entry.
    #[inline]
    #[must_use]
    pub fn place(&self) -> EntrySlot {
        self.place
    }

    /// Returns the entry.
    #[inline]
    #[must_use]
    pub fn view(&self) -> T::Ref<'_> {
        let Some(entry) = self.slot.entry() else {
            nothing_there()
        };
        // SAFETY: the slot owns the entry, unchanged while the table is borrowed.
        unsafe { T::borrow(entry) }
    }

    /// Counts a use in the lowest two of the seven bits, which saturate at three. At three nothing is written, so
    /// that the cache line of a hot entry stays clean.
    #[inline]
    pub fn touch(&mut self) {
        let bits = self.slot.bits();
        if bits & 3 != 3 {
            *self.slot = self.slot.with_bits(bits + 1);
        }
    }
}

/// An entry taken out of its slot for changes; dropping this guard puts the entry back, at its current address.
pub struct Edit<'t, T: Stored> {
    slot: &'t mut TableSlot,
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
        // SAFETY: taken once, as the guard is being dropped.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        *self.slot = self.slot.with_entry(Some(value.into_raw()));
    }
}

#[inline(always)]
fn prefetch_two_lines(entry: NonNull<u8>) {
    segment::prefetch(entry.as_ptr());
    segment::prefetch(entry.as_ptr().wrapping_add(64));
}

/// True if two keys of 4 to 32 bytes are equal; false for other lengths. Compares a load from either end, which may
/// overlap: take fewer instructions than a library call, and avoid a call on the path.
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
