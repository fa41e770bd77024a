//! The directory of a table, the pool of directories, and the published word through which another thread can
//! prefetch.
//!
//! # Why another thread may look at a directory that it does not own
//!
//! A table is used by one thread at a time, the one that has locked the table's shard. But the best time to prefetch
//! a bucket is before the shard is locked, so a connection prefetches the lines of a whole batch of keys without the
//! lock. For that it needs the directory word of each key:
//!
//! ```text
//!   published word, read by any thread        directory (2^depth words)
//!   [ depth:8 | address of directory:48 ] ──▶ [ word | word | word | … ] ──▶ segment, never read
//! ```
//!
//! Three properties make it safe without locks and epochs:
//!
//! 1. The published word contains the address of a directory *and its size*, so an index computed from it is
//!    within bounds of exactly that directory, however stale the pair is.
//! 2. The memory of a published directory is never unmapped (that of tables without a published word is freed as
//!    usual). It comes from a pool of leaked allocations, one list for each power of two, and returns there; the pool
//!    is bounded by the most that were ever in use together, about 0.1 byte per key. Reading a word of a directory
//!    that meanwhile belongs to another table yields some other word, or a link of the pool's own list: any number.
//! 3. That number is only ever passed to a prefetch instruction, which does nothing at all for an unmapped address.
//!    It is never dereferenced.
//!
//! So the worst outcome of a race is one useless prefetch. Words are atomics with relaxed accesses (plain moves on
//! every relevant machine); the published word is written with release and read with acquire, so that a directory's
//! words are written before its address can be seen.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::segment::Segment;
use crate::alloc::account;

/// Maximum number of hash bits that index a directory. 2^26 segments hold some 2^34 entries.
pub(super) const DEPTH_MAX: u32 = 26;

const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// The pool of unused directories. A directory in the pool contains the address of the next one in its first word.
/// While a thread takes a directory out, it sets a bit above the address in the head, and no other thread takes one
/// out meanwhile: so the first directory, whose next one was read, cannot leave the list and come back with another
/// one after it. Directories may be put back at any time; the worst consequence of waiting for the bit is one more
/// directory.
///
/// The account of the table is charged for a directory, whether it came from the pool or the allocator: memory in the
/// pool counts as freed.
static POOL: [AtomicU64; DEPTH_MAX as usize + 1] =
    [const { AtomicU64::new(0) }; DEPTH_MAX as usize + 1];

/// Set in a head while a directory is taken out.
const TAKING: u64 = 1 << 63;

/// Maximum number of checks of the head while another thread takes a directory out, which is a matter of a few loads.
/// If that thread was preempted, a new directory is allocated.
const LOOKS_MAX: u32 = 1_000;

/// The directory of an empty table: one word without a segment.
static NOTHING: [AtomicU64; 1] = [AtomicU64::new(Segment::NONE.word())];

/// 2^depth words, each referring to the segment for one prefix of the hash.
pub(super) struct Directory {
    words: NonNull<AtomicU64>,
    /// The shift that turns half a hash into an index: 63 less the depth.
    shift: u32,
    /// True if the directory belongs to the pool, because it is published, or was.
    is_pooled: bool,
}

const _: () = assert!(size_of::<Directory>() == 16);

impl Directory {
    /// Returns the directory of an empty table; takes no memory.
    pub(super) fn nothing() -> Self {
        Self {
            words: NonNull::from(&NOTHING[0]),
            shift: 63,
            is_pooled: false,
        }
    }

    /// Returns a directory of 2^depth words of unspecified content: all must be set before one is read. The directory
    /// may be published only if `is_pooled`; otherwise its memory is freed when it is dropped.
    pub(super) fn take(depth: u32, is_pooled: bool) -> Self {
        assert!(
            depth <= DEPTH_MAX,
            "callers stop splitting at the greatest depth"
        );
        let layout = Self::layout(depth);
        let pooled = if is_pooled { pop(depth) } else { None };
        let words = if let Some(words) = pooled {
            account::count_allocated(layout);
            words
        } else {
            // SAFETY: the size is not zero. Zeroed, so that no word is ever uninitialised; large
            // requests come as fresh pages, which are zero without being touched.
            let memory = unsafe { alloc::alloc_zeroed(layout) };
            NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
        };
        Self {
            words,
            shift: 63 - depth,
            is_pooled,
        }
    }

    fn layout(depth: u32) -> Layout {
        Layout::array::<AtomicU64>(1 << depth).expect("bounded by the depth")
    }

    #[inline]
    pub(super) fn depth(&self) -> u32 {
        63 - self.shift
    }

    /// Returns the number of words.
    #[inline]
    pub(super) fn len(&self) -> usize {
        1 << self.depth()
    }

    pub(super) fn is_nothing(&self) -> bool {
        ptr::eq(self.words.as_ptr(), &NOTHING[0])
    }

    /// Returns the bytes of the words.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.is_nothing() {
            0
        } else {
            self.len() * size_of::<AtomicU64>()
        }
    }

    /// Returns the index of the segment for `hash`: its top `depth` bits.
    #[inline(always)]
    pub(super) fn index(&self, hash: u64) -> usize {
        index(hash, self.shift)
    }

    /// Returns the segment that contains `hash`.
    #[inline(always)]
    pub(super) fn of(&self, hash: u64) -> Segment {
        // SAFETY: the index of any hash is below the number of words.
        let word = unsafe { self.words.add(self.index(hash)).as_ref() };
        Segment::from_word(word.load(Ordering::Relaxed))
    }

    /// Returns the word at `index`, which wraps around at the end.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Segment {
        // SAFETY: the mask keeps the index below the number of words.
        let word = unsafe { self.words.add(index & (self.len() - 1)).as_ref() };
        Segment::from_word(word.load(Ordering::Relaxed))
    }

    /// Returns the directory's segments, each once. They may be freed during the iteration: only words are read.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        let mut index = 0;
        std::iter::from_fn(move || {
            while index < self.len() {
                let segment = self.get(index);
                if !segment.is_none() {
                    index += 1 << (self.depth() - segment.depth());
                    return Some(segment);
                }
                index += 1;
            }
            None
        })
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, segment: Segment) {
        debug_assert!(!self.is_nothing());
        // SAFETY: as in `get`.
        let word = unsafe { self.words.add(index & (self.len() - 1)).as_ref() };
        word.store(segment.word(), Ordering::Relaxed);
    }

    /// Stores the address and size of this directory in `published`, if given.
    pub(super) fn publish(&self, published: Option<&Arc<AtomicU64>>) {
        if let Some(published) = published {
            debug_assert!(self.is_pooled || self.is_nothing());
            let word = if self.is_nothing() {
                0
            } else {
                let address = self.words.as_ptr().expose_provenance() as u64;
                debug_assert_eq!(address & !ADDRESS, 0, "user space has 47 bits");
                address | u64::from(self.depth()) << ADDRESS_BITS
            };
            published.store(word, Ordering::Release);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_nothing() {
            return;
        }
        let layout = Self::layout(self.depth());
        if self.is_pooled {
            push(self.words, self.depth());
            account::count_freed(layout);
        } else {
            // SAFETY: allocated by `take` with this layout, never published, and not used any more.
            unsafe { alloc::dealloc(self.words.as_ptr().cast(), layout) };
        }
    }
}

// SAFETY: a directory owns its words; other threads only read them, atomically.
unsafe impl Send for Directory {}

#[inline(always)]
fn index(hash: u64, shift: u32) -> usize {
    // In two steps, as all 64 bits are shifted out when the depth is 0.
    (hash >> 1 >> shift) as usize
}

fn pop(depth: u32) -> Option<NonNull<AtomicU64>> {
    pop_with(depth, || ())
}

/// Takes a directory out of the pool; `between` is called between the steps, for tests.
#[inline(always)]
fn pop_with(depth: u32, mut between: impl FnMut()) -> Option<NonNull<AtomicU64>> {
    let head = &POOL[depth as usize];
    let mut seen = head.load(Ordering::Relaxed);
    let mut looks_left = LOOKS_MAX;
    loop {
        if seen & ADDRESS == 0 {
            return None;
        }
        if seen & TAKING != 0 {
            looks_left = looks_left.checked_sub(1)?;
            std::hint::spin_loop();
            seen = head.load(Ordering::Relaxed);
            continue;
        }
        match head.compare_exchange_weak(seen, seen | TAKING, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => break,
            Err(now) => seen = now,
        }
    }
    seen |= TAKING;
    loop {
        let address = (seen & ADDRESS) as usize;
        let first = NonNull::new(ptr::with_exposed_provenance_mut::<AtomicU64>(address))?;
        // SAFETY: it is in the pool, and no other thread takes it out.
        let next = unsafe { first.as_ref() }.load(Ordering::Relaxed) & ADDRESS;
        between();
        // Fails if another directory was put in front of it meanwhile.
        match head.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(first),
            Err(now) => seen = now,
        }
    }
}

fn push(words: NonNull<AtomicU64>, depth: u32) {
    let head = &POOL[depth as usize];
    let address = words.as_ptr().expose_provenance() as u64;
    let mut seen = head.load(Ordering::Relaxed);
    loop {
        // SAFETY: never unmapped.
        unsafe { words.as_ref() }.store(seen & ADDRESS, Ordering::Relaxed);
        match head.compare_exchange_weak(
            seen,
            address | seen & TAKING,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Prefetches the bucket line, and the next, where the table that wrote `published` would search for `hash`.
///
/// Callable on any thread at any time; see the head of this file.
#[inline]
pub fn prefetch_line(published: &AtomicU64, hash: u64) {
    let word = published.load(Ordering::Acquire);
    let address = (word & ADDRESS) as usize;
    if address == 0 {
        return;
    }
    let index = index(hash, 63 - (word >> ADDRESS_BITS) as u32);
    // SAFETY: a published directory has 2^depth words and is never unmapped.
    let word = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(address).add(index) };
    Segment::from_word(word.load(Ordering::Relaxed)).prefetch_home(hash);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A depth used by no other test.
    const DEPTH: u32 = 17;

    fn fresh() -> NonNull<AtomicU64> {
        let mut directory = Directory::take(DEPTH, true);
        let words = directory.words;
        // Drop this directory without returning it to the pool.
        directory.words = NonNull::from(&NOTHING[0]);
        directory.shift = 63;
        words
    }

    #[test]
    fn what_left_the_pool_and_came_back_is_not_taken_for_what_never_left() {
        let (one, two, three) = (fresh(), fresh(), fresh());
        push(two, DEPTH);
        push(one, DEPTH);
        let mut in_use = Vec::new();
        let mut is_first = true;
        let taken = pop_with(DEPTH, || {
            if !std::mem::replace(&mut is_first, false) {
                return;
            }
            // Puts in and takes out as often as 16 bits can count, ending with the same head and another directory
            // after it.
            let mut changes = 0;
            let mut back = Vec::new();
            while let Some(words) = pop(DEPTH) {
                back.push(words);
                changes += 1;
            }
            if !back.is_empty() {
                in_use.push(two);
                push(three, DEPTH);
                push(one, DEPTH);
                changes += 2;
                while changes < 1 << 16 {
                    push(pop(DEPTH).expect("it is there"), DEPTH);
                    changes += 2;
                }
            }
        });
        in_use.extend(taken);
        in_use.extend(std::iter::from_fn(|| pop(DEPTH)));
        let count = in_use.len();
        in_use.sort();
        in_use.dedup();
        assert_eq!(in_use.len(), count, "one directory for two tables");
        in_use.into_iter().for_each(|words| push(words, DEPTH));
    }

    #[cfg(not(any(miri, feature = "system-allocator")))]
    #[test]
    fn whoever_holds_a_directory_pays_for_it_wherever_it_came_from() {
        const DEPTH: u32 = 15;
        let before = account::charged_bytes();
        for _from in ["the allocator", "the pool", "the pool"] {
            let directory = Directory::take(DEPTH, true);
            assert_eq!(account::charged_bytes() - before, 8 << DEPTH);
            drop(directory);
            assert_eq!(account::charged_bytes(), before);
        }
    }

    #[test]
    fn threads_take_and_give_back_and_no_two_have_the_same() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
        const DEPTH: u32 = 16;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mine = thread * ROUNDS + round;
                        let directory = Directory::take(DEPTH, true);
                        // SAFETY: within the words.
                        let word = unsafe { directory.words.add(1).as_ref() };
                        word.store(mine, Ordering::Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(word.load(Ordering::Relaxed), mine);
                    }
                });
            }
        });
    }
}
