//! Large pieces of memory are freed later, by one thread that serves no connection.
//!
//! The allocator gives the pages of a large piece back to the system at once, which takes some 0.1 ms for each MiB: a
//! connection that drops a long reply, or deletes a string of 1 GiB, would stall everybody else on its thread. So from
//! the moment that somebody has promised to [`DeferredFrees::free_some`], the counting allocator puts such pieces aside
//! here, on a stack that lies in the pieces themselves. They count as freed from then on.
//!
//! Invariants: a piece on the stack has no other owner; its first bytes hold its link; pieces are only ever taken off
//! all together, so that the stack knows no ABA.

#![expect(unsafe_code, reason = "memory that nobody owns any more is linked up")]

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// Pieces of this size and more are put aside.
pub const BYTES_MIN: usize = 1 << 20;

/// With so much put aside, a piece is freed on the spot: a thread that frees faster than this has to bear it.
const BACKLOG_BYTES_MAX: usize = 1 << 30;

struct Link {
    next: *mut Link,
    layout: Layout,
}

static IS_SERVED: AtomicBool = AtomicBool::new(false);
static TOP: AtomicPtr<Link> = AtomicPtr::new(ptr::null_mut());
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);
static WAITING_PIECES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FREES: Cell<bool> = const { Cell::new(false) };
}

/// Promises that [`DeferredFrees::free_some`] will be called again and again from now on.
pub fn begin() {
    IS_SERVED.store(true, Relaxed);
}

/// Takes the promise back, for tests.
#[cfg(test)]
fn end() {
    IS_SERVED.store(false, Relaxed);
}

/// Bytes put aside and not freed yet.
pub fn waiting_bytes() -> usize {
    WAITING_BYTES.load(Relaxed)
}

/// Pieces put aside and not freed yet.
pub fn waiting_pieces() -> usize {
    WAITING_PIECES.load(Relaxed)
}

/// Puts a piece aside; false if it is to be freed at once.
///
/// # Safety
/// The piece is about to be freed: it was allocated with this layout, and no thread uses it any more.
#[cold]
#[inline(never)]
pub(super) unsafe fn defer(pointer: *mut u8, layout: Layout) -> bool {
    let backlog = WAITING_BYTES.load(Relaxed);
    if !IS_SERVED.load(Relaxed) || FREES.get() || backlog > BACKLOG_BYTES_MAX {
        return false;
    }
    let link = pointer.cast::<Link>();
    if !link.is_aligned() || layout.size() < size_of::<Link>() {
        return false;
    }
    WAITING_BYTES.fetch_add(layout.size(), Relaxed);
    WAITING_PIECES.fetch_add(1, Relaxed);
    let mut next = TOP.load(Relaxed);
    loop {
        // SAFETY: the caller's promise; large and aligned enough, as was just seen.
        unsafe { link.write(Link { next, layout }) };
        // Release: the thread that takes the stack sees what was written in the pieces.
        match TOP.compare_exchange_weak(next, link, Release, Relaxed) {
            Ok(_) => return true,
            Err(now) => next = now,
        }
    }
}

/// What somebody has taken to free.
pub struct DeferredFrees(*mut Link);

// SAFETY: the pieces belong to the thread that has taken them, whichever it is.
unsafe impl Send for DeferredFrees {}

impl Default for DeferredFrees {
    fn default() -> DeferredFrees {
        DeferredFrees(ptr::null_mut())
    }
}

impl DeferredFrees {
    /// Frees pieces of some `bytes` together, one at least; true while more are waiting.
    pub fn free_some(&mut self, bytes: usize) -> bool {
        let mut freed = 0;
        while freed < bytes {
            if self.0.is_null() {
                self.0 = TOP.swap(ptr::null_mut(), Acquire);
            }
            if self.0.is_null() {
                return false;
            }
            // SAFETY: a piece of the stack, which is ours now.
            let link = unsafe { self.0.read() };
            let piece = std::mem::replace(&mut self.0, link.next);
            freed += link.layout.size();
            WAITING_BYTES.fetch_sub(link.layout.size(), Relaxed);
            WAITING_PIECES.fetch_sub(1, Relaxed);
            FREES.set(true);
            super::account::count_allocated(link.layout);
            // SAFETY: allocated with this layout, as the caller of `defer` has promised; nothing else knows of it.
            unsafe { alloc::dealloc(piece.cast(), link.layout) };
            FREES.set(false);
        }
        !self.0.is_null() || !TOP.load(Relaxed).is_null()
    }
}

#[cfg(all(test, not(feature = "system-allocator")))]
mod tests {
    use super::*;
    use crate::alloc::account::thread_bytes;

    #[test]
    fn large_pieces_count_as_freed_at_once_and_are_freed_later() {
        begin();
        let mut deferred = DeferredFrees::default();
        let before = thread_bytes();
        let pieces: Vec<Vec<u8>> = (1..5).map(|size| vec![size; BYTES_MIN << size]).collect();
        let small = vec![1_u8; BYTES_MIN / 2];
        drop((pieces, small));
        assert_eq!(thread_bytes(), before);
        assert!(waiting_bytes() >= 30 * BYTES_MIN);
        assert!(waiting_pieces() >= 4);
        end();
        while deferred.free_some(BYTES_MIN) {}
        assert_eq!(thread_bytes(), before, "who frees has nothing taken off");
    }
}
