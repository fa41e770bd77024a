//! Occupancy of the allocator's slabs, and the choice of allocations to move out of nearly empty ones.
//!
//! The allocator returns a slab to the system only when it is empty. After most of the small values are deleted, many
//! slabs hold a few values each. Reallocating such a value moves it into a fuller slab, if the allocating thread has
//! no cached free slots: see [`without_cache`].
//!
//! This works with jemalloc only. With another allocator, as under the sanitizers, nothing is ever sparse.

#![cfg_attr(
    not(any(miri, feature = "system-allocator")),
    expect(unsafe_code, reason = "the allocator's controls take untyped pointers")
)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Maximum number of addresses queried together: the entries of a table segment, and the segment itself.
const TOGETHER_MAX: usize = 512;

/// Decides which allocations lie in sparse slabs and must be moved, and counts the results.
pub struct Mover {
    query: query::Query,
    addresses: Vec<usize>,
    figures: Vec<[usize; 3]>,
    /// A slab is sparse when its capacity exceeds its contents by at least this percentage.
    waste_percent: usize,
    /// Allocations that were moved.
    pub moved: u64,
    /// Allocations that were examined and not moved.
    pub left_alone: u64,
    told: (u64, u64),
    /// True if every allocation is to be moved, whatever the allocator reports.
    #[cfg(any(test, feature = "testing"))]
    moves_all: bool,
}

impl Mover {
    /// Creates a mover that moves every allocation, without querying any allocator.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn of_everything() -> Mover {
        Mover {
            query: query::Query::default(),
            addresses: Vec::with_capacity(TOGETHER_MAX),
            figures: Vec::new(),
            waste_percent: 0,
            moved: 0,
            left_alone: 0,
            told: (0, 0),
            moves_all: true,
        }
    }

    /// Creates a mover that leaves slabs alone which waste less than this percentage of their contents. Returns
    /// None if the allocator cannot be queried.
    #[must_use]
    pub fn new(waste_percent: usize) -> Option<Mover> {
        Some(Mover {
            query: query::Query::new()?,
            addresses: Vec::with_capacity(TOGETHER_MAX),
            figures: Vec::with_capacity(TOGETHER_MAX),
            waste_percent,
            moved: 0,
            left_alone: 0,
            told: (0, 0),
            #[cfg(any(test, feature = "testing"))]
            moves_all: false,
        })
    }

    /// Returns how many allocations were moved, and how many were left in place, since the last call.
    pub fn take_news(&mut self) -> (u64, u64) {
        let (moved, left_alone) = std::mem::replace(&mut self.told, (self.moved, self.left_alone));
        (self.moved - moved, self.left_alone - left_alone)
    }

    /// Clears the addresses of the last query.
    pub fn begin(&mut self) {
        self.addresses.clear();
        self.figures.clear();
    }

    /// Adds an address to the next query; the result has the same index. Beyond `TOGETHER_MAX` addresses count as
    /// not sparse.
    pub fn add(&mut self, address: usize) {
        if self.addresses.len() < TOGETHER_MAX {
            self.addresses.push(address);
        }
    }

    /// Queries all added addresses.
    pub fn look(&mut self) {
        #[cfg(any(test, feature = "testing"))]
        if self.moves_all {
            return;
        }
        self.figures.resize(self.addresses.len(), [0; 3]);
        if !self.query.ask(&self.addresses, &mut self.figures) {
            self.figures.clear();
        }
    }

    /// Returns whether the address with this index is to be moved, and counts the result.
    pub fn must_move(&mut self, index: usize) -> bool {
        let is_sparse = self.is_sparse(index);
        self.count(is_sparse, 1);
        is_sparse
    }

    /// Returns whether at least one in `part` of all added addresses lies in sparse slabs, for allocations that can
    /// be moved only together. Counts the result as `pieces` allocations.
    pub fn must_move_all(&mut self, part: usize, pieces: u64) -> bool {
        let all = self.addresses.len();
        let sparse = (0..all).filter(|index| self.is_sparse(*index)).count();
        let must_move = sparse > 0 && sparse * part >= all;
        self.count(must_move, pieces);
        must_move
    }

    fn is_sparse(&self, index: usize) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if self.moves_all {
            return true;
        }
        let [free, places, _] = self.figures.get(index).copied().unwrap_or([0, 1, 0]);
        let used = places.saturating_sub(free);
        free > 0 && used * (100 + self.waste_percent) < places * 100
    }

    fn count(&mut self, is_moved: bool, pieces: u64) {
        match is_moved {
            true => self.moved += pieces,
            false => self.left_alone += pieces,
        }
    }
}

/// Returns the jemalloc arenas that hold most of the memory in use.
///
/// Each thread allocates from one arena. Moved allocations are to fill the slabs from which writing threads
/// allocate, and not new ones that no thread uses.
#[must_use]
pub fn busy_arenas() -> Vec<u32> {
    // A thread that only serves metrics has little memory; arenas with less than this fraction need not be
    // distinguished.
    const PARTS: u64 = 32;
    let bytes = query::arena_bytes();
    let sum: u64 = bytes.iter().sum();
    let numbers = (0..).zip(&bytes);
    numbers
        .filter(|(_, bytes)| **bytes > sum / PARTS)
        .map(|(number, _)| number)
        .collect()
}

/// Runs a function while the calling thread allocates from one arena.
pub fn in_arena<R>(arena: Option<u32>, run: impl FnOnce() -> R) -> R {
    let before = arena.and_then(query::set_arena);
    let result = run();
    if let Some(before) = before {
        query::set_arena(before);
    }
    result
}

/// Runs a function while the calling thread allocates and frees without its cache of free slots, because cached slots
/// lie in the very slabs that are to become empty.
pub fn without_cache<R>(run: impl FnOnce() -> R) -> R {
    let was_on = query::set_thread_cache(false);
    let result = run();
    if was_on {
        query::set_thread_cache(true);
    }
    result
}

/// Releases the free slots cached by the calling thread. Such slots are spread over the slabs from which the thread
/// freed much, and a slab is returned to the system only once its cached slots are released. The allocator itself
/// reclaims cached slots only from threads that go on allocating.
pub fn empty_cache() -> bool {
    query::flush_thread_cache()
}

static EMPTYINGS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static EMPTIED: Cell<u32> = const { Cell::new(0) };
}

/// Empties the cache of the calling thread now, and makes other threads empty theirs when they next call
/// [`empty_cache_if_told`].
pub fn empty_caches() {
    EMPTYINGS.fetch_add(1, Relaxed);
    empty_cache_if_told();
}

/// Empties the calling thread's cache once after each call of [`empty_caches`]; for threads that are about to wait.
#[inline]
pub fn empty_cache_if_told() {
    let emptyings = EMPTYINGS.load(Relaxed);
    if EMPTIED.replace(emptyings) != emptyings {
        empty_cache();
    }
}

/// Returns a number of the allocator by its jemalloc name; None if there is no such number.
#[must_use]
pub fn allocator_number(name: &str) -> Option<u64> {
    match is_number(name) {
        true => query::number(&std::ffi::CString::new(name).ok()?),
        false => None,
    }
}

/// True if a jemalloc control only reads a number: other controls take or return addresses, or create objects.
fn is_number(name: &str) -> bool {
    const ALONE: [&str; 24] = [
        "arenas.dirty_decay_ms",
        "arenas.muzzy_decay_ms",
        "arenas.narenas",
        "arenas.nbins",
        "arenas.nhbins",
        "arenas.nlextents",
        "arenas.page",
        "arenas.quantum",
        "arenas.tcache_max",
        "background_thread",
        "epoch",
        "max_background_threads",
        "opt.abort",
        "opt.background_thread",
        "opt.dirty_decay_ms",
        "opt.max_background_threads",
        "opt.muzzy_decay_ms",
        "opt.narenas",
        "opt.oversize_threshold",
        "opt.retain",
        "opt.tcache",
        "thread.allocated",
        "thread.arena",
        "thread.deallocated",
    ];
    /// All controls with these prefixes return numbers, except for those with the following suffixes.
    const BELOW: [&str; 4] = ["arenas.bin.", "arenas.lextent.", "config.", "stats."];
    const BUT: [&str; 3] = [".dss", ".malloc_conf", ".reset"];
    let is_below = BELOW.iter().any(|begin| name.starts_with(begin))
        && !BUT.iter().any(|end| name.ends_with(end));
    let words: Vec<&str> = name.split('.').collect();
    let is_of_arena = matches!(
        words[..],
        [
            "arena",
            _,
            "dirty_decay_ms" | "muzzy_decay_ms" | "initialized"
        ]
    );
    ALONE.contains(&name) || is_below || is_of_arena
}

/// Returns a text of the allocator by its jemalloc name.
#[must_use]
pub fn allocator_text(name: &str) -> Option<String> {
    const TEXTS: [&str; 4] = [
        "version",
        "config.malloc_conf",
        "opt.dss",
        "opt.metadata_thp",
    ];
    TEXTS.contains(&name).then(|| query::text(name)).flatten()
}

/// Executes a jemalloc control of this name. Returns false if it is not supported here.
pub fn tell_allocator(name: &str) -> bool {
    name == "thread.tcache.flush" && empty_cache()
}

#[cfg(not(any(miri, feature = "system-allocator")))]
mod query {
    use std::ffi::CStr;
    use std::ptr;
    use tikv_jemalloc_sys::{mallctl, mallctlbymib, mallctlnametomib};

    const NAME: &CStr = c"experimental.utilization.batch_query";
    const NAME_PARTS: usize = 3;

    /// The control's name in jemalloc's numeric form (MIB).
    #[cfg_attr(any(test, feature = "testing"), derive(Default))]
    pub(super) struct Query([usize; NAME_PARTS]);

    impl Query {
        pub(super) fn new() -> Option<Query> {
            let (mut mib, mut len) = ([0; NAME_PARTS], NAME_PARTS);
            // SAFETY: a name that ends with a zero, and space for as many numbers as it has parts.
            let error = unsafe { mallctlnametomib(NAME.as_ptr(), mib.as_mut_ptr(), &mut len) };
            (error == 0 && len == NAME_PARTS).then_some(Query(mib))
        }

        /// Writes for each address the free slots of its slab, all slots, and their bytes. The addresses must be of
        /// live allocations.
        pub(super) fn ask(&self, addresses: &[usize], figures: &mut [[usize; 3]]) -> bool {
            if addresses.is_empty() || addresses.len() != figures.len() {
                return false;
            }
            let mut figures_len = size_of_val(figures);
            // SAFETY: the control reads as many addresses, and writes as many results, as the lengths say; it looks
            // the addresses up and dereferences none of them.
            let error = unsafe {
                mallctlbymib(
                    self.0.as_ptr(),
                    NAME_PARTS,
                    figures.as_mut_ptr().cast(),
                    &mut figures_len,
                    addresses.as_ptr().cast_mut().cast(),
                    size_of_val(addresses),
                )
            };
            error == 0
        }
    }

    /// Returns the bytes of small allocations in each arena, as of the last epoch.
    pub(super) fn arena_bytes() -> Vec<u64> {
        use tikv_jemalloc_ctl::{Access, AsName, arenas};
        let count = arenas::narenas::read().unwrap_or(0);
        let bytes = (0..count).map(|arena| {
            let name = format!("stats.arenas.{arena}.small.allocated\0");
            let bytes: Result<usize, _> = name.as_str().name().read();
            bytes.unwrap_or(0) as u64
        });
        bytes.collect()
    }

    /// Makes the calling thread allocate from this arena from now on. Returns its previous arena.
    pub(super) fn set_arena(arena: u32) -> Option<u32> {
        use tikv_jemalloc_ctl::{Access, AsName};
        let name = "thread.arena\0".name();
        let before: u32 = name.read().ok()?;
        name.write(arena).ok()?;
        Some(before)
    }

    /// Releases the contents of the calling thread's cache.
    pub(super) fn flush_thread_cache() -> bool {
        let nothing = ptr::null_mut();
        // SAFETY: a name that ends with a zero, of a control that neither reads nor writes a value.
        let error = unsafe {
            mallctl(
                c"thread.tcache.flush".as_ptr(),
                nothing,
                ptr::null_mut(),
                nothing,
                0,
            )
        };
        error == 0
    }

    /// Returns the value of a control that is a number or a switch.
    pub(super) fn number(name: &CStr) -> Option<u64> {
        [8, 4, 1].into_iter().find_map(|size| {
            let mut bytes = [0_u8; 8];
            let mut len: usize = size;
            // SAFETY: a name that ends with a zero; a control writes its value, limited by `len`, and reports if
            // that is not all. Nothing is written to it, and the caller requests none that reads its argument.
            let error = unsafe {
                mallctl(
                    name.as_ptr(),
                    bytes.as_mut_ptr().cast(),
                    &mut len,
                    ptr::null_mut(),
                    0,
                )
            };
            (error == 0 && len == size).then(|| u64::from_le_bytes(bytes))
        })
    }

    /// Returns the value of a control that is known to be a text.
    pub(super) fn text(name: &str) -> Option<String> {
        use tikv_jemalloc_ctl::{Access, AsName};
        let name = format!("{name}\0");
        let text: &'static [u8] = name.as_str().name().read().ok()?;
        String::from_utf8(text.strip_suffix(b"\0").unwrap_or(text).to_vec()).ok()
    }

    /// Turns the calling thread's cache of free slots on or off. Returns whether it was on.
    pub(super) fn set_thread_cache(on: bool) -> bool {
        let (mut before, mut new) = (false, on);
        let mut len = size_of::<bool>();
        // SAFETY: a name that ends with a zero; old and new value are of the control's type.
        let error = unsafe {
            mallctl(
                c"thread.tcache.enabled".as_ptr(),
                ptr::from_mut(&mut before).cast(),
                &mut len,
                ptr::from_mut(&mut new).cast(),
                size_of::<bool>(),
            )
        };
        error == 0 && before
    }
}

#[cfg(any(miri, feature = "system-allocator"))]
mod query {
    #[cfg_attr(any(test, feature = "testing"), derive(Default))]
    pub(super) struct Query;

    impl Query {
        pub(super) fn new() -> Option<Query> {
            None
        }

        pub(super) fn ask(&self, _: &[usize], _: &mut [[usize; 3]]) -> bool {
            false
        }
    }

    pub(super) fn arena_bytes() -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn set_arena(_: u32) -> Option<u32> {
        None
    }

    pub(super) fn flush_thread_cache() -> bool {
        false
    }

    pub(super) fn number(_: &std::ffi::CStr) -> Option<u64> {
        None
    }

    pub(super) fn text(_: &str) -> Option<String> {
        None
    }

    pub(super) fn set_thread_cache(_: bool) -> bool {
        false
    }
}

#[cfg(all(test, not(any(miri, feature = "system-allocator"))))]
mod tests {
    use super::*;

    #[test]
    fn what_lies_alone_in_a_slab_is_to_be_moved_and_what_lies_close_is_not() {
        const COUNT: usize = 20_000;
        let mut mover = Mover::new(10).expect("jemalloc can be asked");
        let mut boxes: Vec<Option<Box<[u8; 448]>>> =
            (0..COUNT).map(|_| Some(Box::new([1; 448]))).collect();
        let count = |boxes: &[Option<Box<[u8; 448]>>], mover: &mut Mover| {
            let mut sparse = 0;
            for some in boxes.chunks(256) {
                mover.begin();
                some.iter()
                    .flatten()
                    .for_each(|one| mover.add(one.as_ptr().addr()));
                mover.look();
                sparse += (0..some.iter().flatten().count())
                    .filter(|index| mover.must_move(*index))
                    .count();
            }
            sparse
        };
        let before = count(&boxes, &mut mover);
        assert!(before < COUNT / 10, "{before} of {COUNT} lie close");
        for (index, one) in boxes.iter_mut().enumerate() {
            if index % 8 != 0 {
                *one = None;
            }
        }
        let after = count(&boxes, &mut mover);
        assert!(after > COUNT / 8 * 8 / 10, "{after} of {}", COUNT / 8);
        assert_eq!((mover.moved + mover.left_alone) as usize, COUNT + COUNT / 8);
    }

    #[test]
    fn a_thread_allocates_elsewhere_for_a_while() {
        let own = query::set_arena(0).expect("it has one");
        query::set_arena(own);
        let inside = in_arena(Some(0), || query::set_arena(0));
        assert_eq!(inside, Some(0));
        assert_eq!(query::set_arena(own), Some(own));
        let _boxes: Vec<Box<[u8; 100]>> = (0..10_000).map(|_| Box::new([1; 100])).collect();
        let _ = tikv_jemalloc_ctl::epoch::advance();
        assert!(!busy_arenas().is_empty());
    }

    #[test]
    fn a_thread_gives_its_free_places_back_once_it_is_told() {
        // An arena for this thread alone.
        let arena = query::number(c"arenas.create").expect("there may be more");
        let own = query::set_arena(u32::try_from(arena).expect("a small number"));
        let name = format!("stats.arenas.{arena}.tcache_bytes");
        let name = std::ffi::CString::new(name).expect("no zeros");
        let kept_bytes = || {
            let _ = tikv_jemalloc_ctl::epoch::advance();
            query::number(&name).expect("jemalloc counts")
        };
        let free_some = || {
            let boxes = [(); 100].map(|()| Box::new([1_u8; 448]));
            drop(std::hint::black_box(boxes));
        };
        empty_caches();
        assert_eq!(kept_bytes(), 0);
        free_some();
        empty_cache_if_told();
        assert!(kept_bytes() >= 448, "that was told once only");
        empty_caches();
        assert_eq!(kept_bytes(), 0);
        assert!(own.and_then(query::set_arena).is_some());
    }

    #[test]
    fn the_cache_of_a_thread_is_on_again_afterwards() {
        let inside = without_cache(|| query::set_thread_cache(false));
        assert!(!inside, "it was off");
        assert!(query::set_thread_cache(true), "it was on");
    }
}
