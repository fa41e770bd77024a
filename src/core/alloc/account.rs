//! Bytes allocated per thread, exact to jemalloc's size classes, without calls to jemalloc: the [counting
//! allocator](super::counting) reports them.
//!
//! Each thread owns one padded cell of a fixed table and is the only one to write it, so counting is a plain load
//! and store; readers sum the cells at any time. A thread that ends leaves its sum behind, because its allocations
//! may well live on, and the next thread that takes the cell counts on from there. The table has room for far more
//! threads than the server makes; the system provides its pages when cells in them are first taken, the lowest free
//! one first. What a thread allocates and frees after it has given its cell back, in its last destructors, is added to
//! one more cell by atomic additions, and so are threads beyond the table.
//!
//! Invariants: nothing here allocates, and nothing needs initialization, so that allocations before `main` and during
//! the last moments of a thread are counted like all others. The one thread-local with a destructor is registered
//! without the global allocator (std promises that), and only after the thread has its cell. Foreign code's direct use
//! of `malloc` is not counted.

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Number of cells with one owner each; one more cell is shared by threads that have none.
const OWNED_CELLS: usize = 4096;
const SHARED_CELL: usize = OWNED_CELLS;

/// A cell that fills two cache lines, as processors fetch lines in pairs.
#[repr(align(128))]
struct Padded(AtomicI64);

static CELLS: [Padded; OWNED_CELLS + 1] = [const { Padded(AtomicI64::new(0)) }; OWNED_CELLS + 1];

/// A bit for each owned cell, set while a thread has the cell.
static TAKEN: [AtomicU64; OWNED_CELLS / 64] = [const { AtomicU64::new(0) }; OWNED_CELLS / 64];

/// Number of owned cells that were ever taken: all cells from there on are 0.
static CELLS_USED: AtomicUsize = AtomicUsize::new(0);

const UNSET: usize = usize::MAX;

thread_local! {
    static CELL: Cell<usize> = const { Cell::new(UNSET) };
    /// Bytes that a thread without a cell of its own has allocated, less those it freed.
    static SHARED_PART: Cell<i64> = const { Cell::new(0) };
    /// Gives the cell back when the thread ends.
    static GIVES_BACK: GivesBack = const { GivesBack };
    /// Bytes allocated inside [`uncharged`] so far.
    static UNCHARGED: Cell<i64> = const { Cell::new(0) };
}

struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        give_back();
    }
}

/// Returns the bytes that jemalloc reserves for a request of `size` bytes at its usual alignment.
///
/// Classes are 8, the multiples of 16 up to 128, then four for each doubling.
#[inline]
#[must_use]
pub const fn size_class(size: usize) -> usize {
    let grain = if size <= 128 {
        if size <= 8 {
            return 8;
        }
        16
    } else {
        // A quarter of the largest power of two below `size`.
        1 << ((size - 1).ilog2() - 2)
    };
    (size + grain - 1) & !(grain - 1)
}

/// Returns the size class of a request with an alignment of its own, see [`size_class`].
#[inline]
pub(super) const fn layout_class(layout: Layout) -> i64 {
    let align = layout.align() - 1;
    size_class((layout.size() + align) & !align) as i64
}

/// Returns the bytes allocated less the bytes freed by the calling thread, since some time in the past; may be
/// negative.
///
/// The difference of two readings is what the code between them has added.
#[must_use]
pub fn thread_bytes() -> i64 {
    match CELL.get() {
        UNSET => {
            take_cell();
            thread_bytes()
        }
        SHARED_CELL => SHARED_PART.get(),
        cell => CELLS[cell].0.load(Ordering::Relaxed),
    }
}

/// Returns [`thread_bytes`] without what was allocated in [`uncharged`]: the difference of two readings is what the
/// code between them charged to the calling thread's current account.
#[inline]
#[must_use]
pub fn charged_bytes() -> i64 {
    thread_bytes() - UNCHARGED.get()
}

/// Runs a function whose allocations are not charged to the current account, such as building a reply while a value
/// changes.
#[inline]
pub fn uncharged<R>(run: impl FnOnce() -> R) -> R {
    let before = charged_bytes();
    let result = run();
    UNCHARGED.set(UNCHARGED.get() + charged_bytes() - before);
    result
}

/// Returns the bytes in use by the whole process: the sum over all threads, including ended ones.
///
/// Exact if no thread allocates meanwhile, otherwise off by what other threads allocate and free during the sum.
#[must_use]
pub fn total_bytes() -> i64 {
    let used = &CELLS[..CELLS_USED.load(Ordering::Relaxed)];
    let cells = used.iter().chain([&CELLS[SHARED_CELL]]);
    cells.map(|cell| cell.0.load(Ordering::Relaxed)).sum()
}

/// Removes an allocation from the current account, as other code will free it.
pub(crate) fn hand_over(layout: Layout) {
    UNCHARGED.set(UNCHARGED.get() + layout_class(layout));
}

/// Charges an allocation, which another account handed over or which was made in [`uncharged`], to the current account.
pub(crate) fn take_in(layout: Layout) {
    UNCHARGED.set(UNCHARGED.get() - layout_class(layout));
}

/// Counts memory as allocated by the calling thread. It was just allocated, or comes from a pool or list where it
/// counted as freed.
#[inline]
pub(crate) fn count_allocated(layout: Layout) {
    count(layout_class(layout));
}

/// Counts memory as freed by the calling thread. It was just freed, or goes to a pool or list instead.
#[inline]
pub(crate) fn count_freed(layout: Layout) {
    count(-layout_class(layout));
}

/// Adds to the byte count of the calling thread.
#[inline]
pub(super) fn count(bytes: i64) {
    let cell = CELL.get();
    if cell < OWNED_CELLS {
        let cell = &CELLS[cell].0;
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(bytes),
            Ordering::Relaxed,
        );
    } else {
        count_without_owned_cell(bytes);
    }
}

#[cold]
#[inline(never)]
fn count_without_owned_cell(bytes: i64) {
    if CELL.get() == UNSET {
        take_cell();
        return count(bytes);
    }
    SHARED_PART.set(SHARED_PART.get().wrapping_add(bytes));
    CELLS[SHARED_CELL].0.fetch_add(bytes, Ordering::Relaxed);
}

/// Gives the calling thread the lowest free cell until it ends, or a part of the shared cell if none is free.
#[cold]
fn take_cell() {
    CELL.set(free_cell().unwrap_or(SHARED_CELL));
    // Registers the destructor, now that the thread has its cell. No thread takes one after that has run.
    let _ = GIVES_BACK.try_with(|_| ());
}

fn free_cell() -> Option<usize> {
    for (word, index) in TAKEN.iter().zip(0..) {
        let mut taken = word.load(Ordering::Relaxed);
        while taken != u64::MAX {
            let bit = taken.trailing_ones();
            // Acquire: the last owner's sum is seen.
            let before = word.fetch_or(1 << bit, Ordering::Acquire);
            if before & 1 << bit == 0 {
                let cell = 64 * index + bit as usize;
                CELLS_USED.fetch_max(cell + 1, Ordering::Relaxed);
                return Some(cell);
            }
            taken = before;
        }
    }
    None
}

/// Gives the calling thread's cell to later threads; from now on this thread counts in the shared cell.
fn give_back() {
    let cell = CELL.replace(SHARED_CELL);
    if cell < OWNED_CELLS {
        // Readings of this thread go on from where they are.
        SHARED_PART.set(CELLS[cell].0.load(Ordering::Relaxed));
        // Release: the next owner sees the sum.
        TAKEN[cell / 64].fetch_and(!(1 << (cell % 64)), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use std::collections::BTreeSet;
    use std::hint::black_box;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_thread_sees_what_it_allocates_and_frees() {
        let before = thread_bytes();
        let buffer = black_box(vec![0_u8; 1000]);
        assert_eq!(thread_bytes() - before, 1024);
        drop(buffer);
        assert_eq!(thread_bytes() - before, 0);
        let mut grown: Vec<u8> = Vec::with_capacity(10);
        grown.reserve_exact(300);
        assert_eq!(thread_bytes() - before, 320);
        drop(black_box(grown));
        assert_eq!(thread_bytes() - before, 0);
    }

    /// Checks that the calling thread's bytes are counted exactly.
    fn check_counts() {
        let before = thread_bytes();
        let buffer = black_box(vec![0_u8; 2000]);
        assert_eq!(thread_bytes() - before, 2048);
        drop(buffer);
        assert_eq!(thread_bytes(), before);
    }

    #[test]
    fn each_of_many_threads_has_a_cell_of_its_own() {
        let count = if cfg!(miri) { 20 } else { 400 };
        let all_there = Barrier::new(count);
        let cells: BTreeSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(|| {
                        check_counts();
                        all_there.wait();
                        CELL.get()
                    })
                })
                .collect();
            let cells = threads.into_iter().map(|thread| thread.join());
            cells.map(|cell| cell.expect("it counts")).collect()
        });
        assert_eq!(cells.len(), count, "no two have the same");
        assert!(!cells.contains(&SHARED_CELL));
    }

    #[test]
    fn the_cells_of_ended_threads_are_taken_again() {
        let count = if cfg!(miri) { 20 } else { 1_000 };
        let cells: BTreeSet<usize> = (0..count)
            .map(|_| {
                let one = thread::spawn(|| {
                    check_counts();
                    CELL.get()
                });
                one.join().expect("it counts")
            })
            .collect();
        assert!(!cells.contains(&SHARED_CELL));
        // Other tests of this process have threads meanwhile.
        assert!(cells.len() < count / 2, "{} cells", cells.len());
    }

    #[test]
    fn a_thread_without_a_cell_counts_in_the_shared_one() {
        let one = thread::spawn(|| {
            let kept = black_box(vec![0_u8; 3000]);
            let before = thread_bytes();
            give_back();
            assert_eq!(thread_bytes(), before, "readings go on");
            drop(kept);
            assert_eq!(thread_bytes() - before, -3072);
            check_counts();
        });
        one.join().expect("it counts");
    }

    #[test]
    fn a_reading_before_the_first_allocation_is_as_good_as_any() {
        let one = thread::spawn(|| {
            give_back();
            CELL.set(UNSET);
            check_counts();
        });
        one.join().expect("it counts");
    }

    #[cfg(not(any(miri, feature = "system-allocator")))]
    #[test]
    fn the_total_agrees_with_the_allocator() {
        const ALONE: &str = "BASALT_TEST_ALONE";
        // Other tests of this process allocate and free hundreds of megabytes meanwhile, so this test runs in a
        // process of its own.
        if std::env::var_os(ALONE).is_none() {
            let name = "alloc::account::tests::the_total_agrees_with_the_allocator";
            let this = std::env::current_exe().expect("a test has a file");
            let mut alone = std::process::Command::new(this);
            let alone = alone.args(["--exact", name]).env(ALONE, "1").output();
            let alone = alone.expect("it was run once already");
            let said = String::from_utf8_lossy(&alone.stdout);
            assert!(
                alone.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        let allocated = || {
            tikv_jemalloc_ctl::epoch::advance().expect("jemalloc answers");
            tikv_jemalloc_ctl::stats::allocated::read().expect("jemalloc answers") as i64
        };
        let (total_before, allocated_before) = (total_bytes(), allocated());
        let mut kept = Vec::new();
        for _ in 0..4 {
            let part = thread::spawn(|| {
                let mut random = Random::new(1);
                let mut part: Vec<Vec<u8>> = Vec::new();
                for _ in 0..40_000 {
                    let size = random.index(3000);
                    part.push(vec![1; size]);
                    if random.below(4) == 0 {
                        part.swap_remove(random.index(part.len()));
                    }
                }
                part
            });
            kept.push(part.join().expect("no assertion inside"));
        }
        let counted = (total_bytes() - total_before) as f64;
        let measured = (allocated() - allocated_before) as f64;
        assert!(measured > 100e6, "far more than what comes about by itself");
        assert!(
            (counted / measured - 1.0).abs() < 0.02,
            "counted {counted}, measured {measured}"
        );
        drop(kept);
    }
}
