//! Deferred freeing of large blocks of memory, by one thread that serves no connection.
//!
//! The allocator returns the pages of a large block to the system at once, which takes some 0.1 ms for each MiB: a
//! connection that drops a long reply, or deletes a string of 1 GiB, would stall all others on its thread. So once a
//! thread has promised to call [`DeferredFrees::free_some`], the counting allocator puts such blocks aside here, on a
//! stack whose links are stored in the blocks themselves. The blocks count as freed from then on.
//!
//! Invariants: a block on the stack has no other owner; its first bytes hold its link; blocks are only ever taken off
//! the stack all together, so that the stack has no ABA problem.

#![expect(unsafe_code, reason = "memory that nobody owns any more is linked up")]

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// Minimum size of blocks that are put aside.
pub const BYTES_MIN: usize = 1 << 20;

/// Maximum bytes waiting to be freed; beyond that, a block is freed on the spot: a thread that frees faster than this
/// has to bear the delay.
const BACKLOG_BYTES_MAX: usize = 1 << 30;

struct DeferredFreeNode {
    next: *mut DeferredFreeNode,
    layout: Layout,
}

static IS_SERVED: AtomicBool = AtomicBool::new(false);
static TOP: AtomicPtr<DeferredFreeNode> = AtomicPtr::new(ptr::null_mut());
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);
static WAITING_PIECES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FREES: Cell<bool> = const { Cell::new(false) };
}

/// Promises that [`DeferredFrees::free_some`] will be called periodically from now on.
pub fn begin() {
    IS_SERVED.store(true, Relaxed);
}

/// Revokes the promise, for tests.
#[cfg(test)]
fn end() {
    IS_SERVED.store(false, Relaxed);
}

/// Returns the bytes put aside and not freed yet.
pub fn waiting_bytes() -> usize {
    WAITING_BYTES.load(Relaxed)
}

/// Returns the number of blocks put aside and not freed yet.
pub fn waiting_pieces() -> usize {
    WAITING_PIECES.load(Relaxed)
}

/// Puts a block aside. Returns false if it must be freed immediately.
///
/// # Safety
/// The block is about to be freed: it was allocated with this layout, and no thread uses it any more.
#[cold]
#[inline(never)]
pub(super) unsafe fn defer(pointer: *mut u8, layout: Layout) -> bool {
    let backlog = WAITING_BYTES.load(Relaxed);
    if !IS_SERVED.load(Relaxed) || FREES.get() || backlog > BACKLOG_BYTES_MAX {
        return false;
    }
    let link = pointer.cast::<DeferredFreeNode>();
    if !link.is_aligned() || layout.size() < size_of::<DeferredFreeNode>() {
        return false;
    }
    WAITING_BYTES.fetch_add(layout.size(), Relaxed);
    WAITING_PIECES.fetch_add(1, Relaxed);
    let mut next = TOP.load(Relaxed);
    loop {
        // SAFETY: the caller's promise; large and aligned enough, as was just checked.
        unsafe { link.write(DeferredFreeNode { next, layout }) };
        // Release: the thread that takes the stack sees the links written in the blocks.
        match TOP.compare_exchange_weak(next, link, Release, Relaxed) {
            Ok(_) => return true,
            Err(now) => next = now,
        }
    }
}

/// Blocks taken off the stack for freeing.
pub struct DeferredFrees(*mut DeferredFreeNode);

// SAFETY: the blocks belong to the thread that has taken them, whichever it is.
unsafe impl Send for DeferredFrees {}

impl Default for DeferredFrees {
    fn default() -> DeferredFrees {
        DeferredFrees(ptr::null_mut())
    }
}

impl DeferredFrees {
    /// Frees blocks of about `bytes` in total, at least one. Returns true while more are waiting.
    pub fn free_some(&mut self, bytes: usize) -> bool {
        let mut freed = 0;
        while freed < bytes {
            if self.0.is_null() {
                self.0 = TOP.swap(ptr::null_mut(), Acquire);
            }
            if self.0.is_null() {
                return false;
            }
            // SAFETY: a block of the stack, which this thread owns now.
            let link = unsafe { self.0.read() };
            let piece = std::mem::replace(&mut self.0, link.next);
            freed += link.layout.size();
            WAITING_BYTES.fetch_sub(link.layout.size(), Relaxed);
            WAITING_PIECES.fetch_sub(1, Relaxed);
            FREES.set(true);
            super::account::count_allocated(link.layout);
            // SAFETY: allocated with this layout, as the caller of `defer` has promised; nothing else refers to it.
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
