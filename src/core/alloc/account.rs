//! Bytes allocated per thread, exact to jemalloc's size classes, without calls to jemalloc: the [counting
//! allocator](super::counting) reports them.
//!
//! Each thread owns one padded cell of a fixed table and is the only one to write it, so counting is a plain load
//! and store; readers sum the cells at any time. A cell is never released: a thread that ends leaves its sum
//! behind, because its allocations may well live on. When the cells run out (threads come and go in a pool), later
//! threads share the last one through atomic additions.
//!
//! Invariants: nothing here allocates, nothing needs initialization, and no thread-local has a destructor, so that
//! allocations before `main` and during the last moments of a thread are counted like all others. Foreign code's
//! direct use of `malloc` is not counted.

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Number of cells with one owner each; one more cell is shared by all later threads.
const OWNED_CELLS: usize = 255;
const SHARED_CELL: usize = OWNED_CELLS;

/// A cell that fills two cache lines, as processors fetch lines in pairs.
#[repr(align(128))]
struct Padded(AtomicI64);

static CELLS: [Padded; OWNED_CELLS + 1] = [const { Padded(AtomicI64::new(0)) }; OWNED_CELLS + 1];
static CELLS_TAKEN: AtomicUsize = AtomicUsize::new(0);

const UNSET: usize = usize::MAX;

thread_local! {
    static CELL: Cell<usize> = const { Cell::new(UNSET) };
    /// The part of the shared cell that belongs to this thread.
    static SHARED_PART: Cell<i64> = const { Cell::new(0) };
    /// Bytes allocated inside [`apart`] so far.
    static APART: Cell<i64> = const { Cell::new(0) };
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

/// Returns the bytes allocated less the bytes freed by the calling thread, which may be negative.
///
/// The difference of two readings is what the code between them has added.
#[must_use]
pub fn thread_bytes() -> i64 {
    match CELL.get() {
        UNSET => 0,
        SHARED_CELL => SHARED_PART.get(),
        cell => CELLS[cell].0.load(Ordering::Relaxed),
    }
}

/// Returns [`thread_bytes`] without what was allocated [`apart`]: the difference of two readings is what the code
/// between them charged to the calling thread's current account.
#[inline]
#[must_use]
pub fn charged_bytes() -> i64 {
    thread_bytes() - APART.get()
}

/// Runs a function whose allocations are not charged to the current account, such as building a reply while a value
/// changes.
#[inline]
pub fn apart<R>(run: impl FnOnce() -> R) -> R {
    let before = charged_bytes();
    let result = run();
    APART.set(APART.get() + charged_bytes() - before);
    result
}

/// Returns the bytes in use by the whole process: the sum over all threads, including ended ones.
///
/// Exact if no thread allocates meanwhile, otherwise off by what other threads allocate and free during the sum.
#[must_use]
pub fn total_bytes() -> i64 {
    let taken = CELLS_TAKEN.load(Ordering::Relaxed).min(CELLS.len());
    CELLS[..taken]
        .iter()
        .map(|cell| cell.0.load(Ordering::Relaxed))
        .sum()
}

/// Removes an allocation from the current account, as other code will free it.
pub(crate) fn hand_over(layout: Layout) {
    APART.set(APART.get() + layout_class(layout));
}

/// Charges an allocation, which another account handed over or which was made apart, to the current account.
pub(crate) fn take_in(layout: Layout) {
    APART.set(APART.get() - layout_class(layout));
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
        // Saturation keeps the counter from wrapping around to cells that have owners already.
        let taken = CELLS_TAKEN
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < CELLS.len()).then_some(taken + 1)
            })
            .unwrap_or(SHARED_CELL);
        CELL.set(taken.min(SHARED_CELL));
        return count(bytes);
    }
    SHARED_PART.set(SHARED_PART.get().wrapping_add(bytes));
    CELLS[SHARED_CELL].0.fetch_add(bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

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

    #[test]
    fn threads_beyond_the_cells_still_count_their_own_bytes() {
        for _ in 0..OWNED_CELLS + 20 {
            std::thread::spawn(|| {
                let before = thread_bytes();
                let buffer = black_box(vec![0_u8; 2000]);
                assert_eq!(thread_bytes() - before, 2048);
                drop(buffer);
                assert_eq!(thread_bytes(), before);
            })
            .join()
            .expect("the thread's assertions hold");
        }
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
        let mut state = 1_u64;
        for _ in 0..4 {
            let part = std::thread::spawn(move || {
                let mut part: Vec<Vec<u8>> = Vec::new();
                for _ in 0..40_000 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let size = ((state >> 33) % 3000) as usize;
                    part.push(vec![1; size]);
                    if state >> 62 == 0 {
                        let index = (state >> 20) as usize % part.len();
                        part.swap_remove(index);
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
