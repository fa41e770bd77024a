//! The counting allocator: reports allocations to the [accounts](super::account), and puts large blocks
//! [aside](super::deferred_free) instead of freeing them on the spot.

#![expect(unsafe_code, reason = "an allocator is unsafe by nature")]

use std::alloc::{GlobalAlloc, Layout};

use super::account::{count, count_allocated, count_freed, layout_class, size_class};
use super::deferred_free;

/// Wraps an allocator and counts the size classes of its allocations.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on unchanged to an allocator that fulfills the contract; counting neither allocates
// nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            count_allocated(layout);
        }
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count_allocated(layout);
        }
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_freed(layout);
        if layout.size() >= deferred_free::BYTES_MIN {
            // SAFETY: the caller's promise.
            let is_deferred = unsafe { deferred_free::defer(pointer, layout) };
            if is_deferred {
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if !moved.is_null() {
            let align = layout.align() - 1;
            let class = size_class((size + align) & !align) as i64;
            count(class - layout_class(layout));
        }
        moved
    }
}

#[cfg(all(test, not(any(miri, feature = "system-allocator"))))]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        for size in (1..=20_000).chain((20_000..9_000_000).step_by(4099)) {
            let layout = Layout::from_size_align(size, 1).expect("small");
            // SAFETY: allocated and freed with one layout by one allocator.
            let usable = unsafe {
                let pointer = tikv_jemallocator::Jemalloc.alloc(layout);
                let usable = tikv_jemallocator::usable_size(pointer);
                tikv_jemallocator::Jemalloc.dealloc(pointer, layout);
                usable
            };
            assert_eq!(size_class(size), usable, "for {size} bytes");
        }
    }
}
