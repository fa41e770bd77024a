//! A shared byte buffer behind one thin pointer: large values, sent without copying.
//!
//! A clone shares the bytes; a write to a shared block copies first. The reference count is the only field that
//! several threads may access at once, so a block is cloned into a slow connection's output or a snapshot and dropped
//! there, on any thread.
//!
//! Structures that measure their memory by allocations and frees during changes ([`account`]) hold a block as a
//! [`Kept`]: whichever thread finally frees the block, the structure's account is charged for it exactly as long as
//! the structure keeps it.
//!
//! Invariants: `len <= cap`; the bytes below `len` are initialised; no owner writes while the count is above one.
//! Growth is that of Redis's strings: below 1 MiB the capacity doubles, above it 1 MiB is added.

#![expect(unsafe_code, reason = "a thin pointer to a header followed by bytes")]

use std::alloc::{self, Layout};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use bytes::Bytes;

use crate::alloc::account::{self, size_class};

/// From this capacity on, growth adds this many bytes instead of doubling.
const GROWTH_MAX: usize = 1 << 20;

/// Elements of collections of at least this length are stored in blocks, so that replies reference them without
/// copying.
pub const LONG_BYTES_MIN: usize = 16 * 1024;

/// A reference-counted buffer of bytes. Eight bytes wide, never null.
pub struct SharedBlock(NonNull<BlockHeader>);

const _: () = assert!(size_of::<Option<SharedBlock>>() == 8);

/// The header in front of the bytes.
#[repr(C)]
struct BlockHeader {
    owners: AtomicU32,
    len: usize,
    cap: usize,
}

// SAFETY: the bytes are plain, only written by a sole owner, and the count is atomic.
unsafe impl Send for SharedBlock {}
// SAFETY: as above; a shared reference only reads bytes or changes the count.
unsafe impl Sync for SharedBlock {}

impl SharedBlock {
    /// Creates a block with a copy of `bytes`, without capacity beyond the allocator's class.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut block = Self::with_capacity(bytes.len());
        block.fill(bytes);
        block
    }

    /// Creates an empty block with capacity for `cap` bytes.
    #[must_use]
    pub fn with_capacity(cap: usize) -> Self {
        let (layout, cap) = layout_for(cap);
        // SAFETY: the layout's size is not zero, as it holds at least the header.
        let Some(head) = NonNull::new(unsafe { alloc::alloc(layout) }.cast::<BlockHeader>()) else {
            alloc::handle_alloc_error(layout)
        };
        // SAFETY: fresh memory of the right size and alignment.
        unsafe {
            head.write(BlockHeader {
                owners: AtomicU32::new(1),
                len: 0,
                cap,
            })
        };
        Self(head)
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.head().cap
    }

    /// Returns the number of bytes held.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.head().len
    }

    /// True if no byte is held.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if this handle is the only one, so that a write needs no copy.
    #[inline]
    #[must_use]
    pub fn is_unique(&self) -> bool {
        // Acquire: the accesses of former owners happen before writes of this one.
        self.head().owners.load(Ordering::Acquire) == 1
    }

    /// Returns the bytes for writing; copies them first if they are shared.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            *self = Self::new(self);
        }
        // SAFETY: this handle is the only owner, as long as `&mut self` exists; the bytes below `len` are initialised.
        unsafe { slice::from_raw_parts_mut(self.data(), self.len()) }
    }

    /// Sets the length to `len`; new bytes are zero. Copies first if the block is shared.
    ///
    /// Growing beyond the capacity allocates more than requested, as a string that grew once grows again.
    pub fn resize(&mut self, len: usize) {
        let old_len = self.len();
        if len > self.head().cap {
            self.regrow(len, len + len.min(GROWTH_MAX));
        } else if !self.is_unique() {
            self.regrow(len, len);
        }
        if len > old_len {
            // SAFETY: this handle is the only owner by now, and `len` is within the capacity.
            unsafe { ptr::write_bytes(self.data().add(old_len), 0, len - old_len) };
        }
        self.head_mut().len = len;
    }

    /// Frees capacity beyond the length, if the allocator has a smaller class for it.
    pub fn shrink_to_fit(&mut self) {
        if layout_for(self.len()).1 < self.head().cap && self.is_unique() {
            self.regrow(self.len(), self.len());
        }
    }

    /// Sets the capacity to `cap` bytes, without excess beyond the allocator's class. The block must have one
    /// owner.
    pub(super) fn reserve_exact(&mut self, cap: usize) {
        debug_assert!(self.is_unique() && cap >= self.len());
        self.regrow(self.len(), cap);
    }

    /// Returns the end of the bytes, where the unused capacity begins.
    pub(super) fn end(&mut self) -> *mut u8 {
        // SAFETY: the end lies within the allocation, or one byte past it.
        unsafe { self.data().add(self.len()) }
    }

    /// Sets the number of bytes held.
    ///
    /// # Safety
    /// The block has one owner, its capacity is not smaller, and the bytes below are initialised.
    pub(super) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.room());
        self.head_mut().len = len;
    }

    /// Returns the block as a network buffer; the bytes are shared, not copied.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Returns the bytes allocated for the block, however many handles share it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        layout_for(self.head().cap).0.size()
    }

    /// Moves the bytes to an allocation with capacity `cap`, of which this handle is the sole owner. The length
    /// becomes the lesser of the old one and `len`.
    #[cold]
    fn regrow(&mut self, len: usize, cap: usize) {
        let kept = len.min(self.len());
        if self.is_unique() {
            let old = layout_for(self.head().cap).0;
            let (new, cap) = layout_for(cap);
            self.head_mut().len = kept;
            // SAFETY: the block was allocated by the same allocator, with the layout of its capacity; this handle is
            // the only owner.
            let moved = unsafe { alloc::realloc(self.0.as_ptr().cast(), old, new.size()) };
            let Some(head) = NonNull::new(moved.cast::<BlockHeader>()) else {
                alloc::handle_alloc_error(new)
            };
            self.0 = head;
            self.head_mut().cap = cap;
        } else {
            let mut copy = Self::with_capacity(cap);
            copy.fill(&self[..kept]);
            *self = copy;
        }
    }

    /// Copies `bytes` into a new block with sufficient capacity.
    fn fill(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.head().cap);
        // SAFETY: the bytes fit the capacity, and new memory overlaps nothing.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.data(), bytes.len()) };
        self.head_mut().len = bytes.len();
    }

    #[inline]
    fn head(&self) -> &BlockHeader {
        // SAFETY: the header lives as long as any handle.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut BlockHeader {
        debug_assert!(self.is_unique());
        // SAFETY: callers are sole owners.
        unsafe { self.0.as_mut() }
    }

    #[inline]
    fn data(&self) -> *mut u8 {
        // SAFETY: the bytes follow the header in the same allocation.
        unsafe { self.0.as_ptr().add(1).cast() }
    }
}

/// Returns the layout of a block with capacity for at least `cap` bytes, and its actual capacity.
fn layout_for(cap: usize) -> (Layout, usize) {
    let size = size_class(size_of::<BlockHeader>() + cap);
    let layout =
        Layout::from_size_align(size, align_of::<BlockHeader>()).expect("no value is that large");
    (layout, size - size_of::<BlockHeader>())
}

impl Deref for SharedBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes below `len` are initialised, and no thread writes them while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.data(), self.len()) }
    }
}

impl AsRef<[u8]> for SharedBlock {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for SharedBlock {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for SharedBlock {}

impl fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

impl Clone for SharedBlock {
    #[inline]
    fn clone(&self) -> Self {
        let owners = self.head().owners.fetch_add(1, Ordering::Relaxed);
        // Half the range is far more handles than fit in memory.
        assert!(owners < u32::MAX / 2, "handles leak");
        Self(self.0)
    }
}

impl SharedBlock {
    /// Releases this handle. Returns whether it was the last one, in which case the block is freed.
    ///
    /// # Safety
    /// The handle is never used again, nor dropped.
    #[inline]
    unsafe fn let_go(&mut self) -> bool {
        let is_last = self.head().owners.fetch_sub(1, Ordering::Release) == 1;
        if is_last {
            // The accesses of other owners happen before the memory is freed.
            fence(Ordering::Acquire);
            let layout = layout_for(self.head().cap).0;
            // SAFETY: this was the last owner, and the block was allocated with this layout.
            unsafe { alloc::dealloc(self.0.as_ptr().cast(), layout) };
        }
        is_last
    }
}

impl SharedBlock {
    /// Releases the handle of a structure that was charged for the block: the charge ends, whichever owner finally
    /// frees the block.
    ///
    /// # Safety
    /// The handle is never used again, nor dropped.
    pub(super) unsafe fn hand_over(&mut self) {
        // Done before the release: another thread may free the block right after that.
        let layout = layout_for(self.head().cap).0;
        // SAFETY: the caller promises not to use the handle again.
        if !unsafe { self.let_go() } {
            account::hand_over(layout);
        }
    }
}

impl Drop for SharedBlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a dropped handle is never used again.
        unsafe { self.let_go() };
    }
}

/// Bytes to be stored; if they are in a block, the block is kept instead of copied.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    bytes: &'a [u8],
    block: Option<&'a SharedBlock>,
}

impl<'a> Content<'a> {
    /// Returns the bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the block, if the bytes are in one.
    #[inline]
    #[must_use]
    pub fn block(self) -> Option<&'a SharedBlock> {
        self.block
    }
}

impl<'a> From<&'a [u8]> for Content<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Content<'a> {
        Content { bytes, block: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Content<'a> {
    fn from(bytes: &'a Vec<u8>) -> Content<'a> {
        Content::from(&bytes[..])
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Content<'a> {
    fn from(bytes: &'a [u8; N]) -> Content<'a> {
        Content::from(&bytes[..])
    }
}

impl<'a> From<&'a SharedBlock> for Content<'a> {
    #[inline]
    fn from(block: &'a SharedBlock) -> Content<'a> {
        Content {
            bytes: block,
            block: Some(block),
        }
    }
}

impl Deref for Content<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A block that belongs to a structure, whose account is charged for it: see the module.
pub struct Kept(ManuallyDrop<SharedBlock>);

impl Kept {
    /// Keeps the block of the bytes, for which no other account may be charged, or a copy of the bytes if they are in
    /// no block.
    #[must_use]
    pub fn new(content: Content<'_>) -> Self {
        match content.block {
            Some(block) => Self::adopt(block.clone()),
            None => Self(ManuallyDrop::new(SharedBlock::new(content.bytes))),
        }
    }

    /// Keeps a block for which no other account may be charged.
    #[must_use]
    pub fn adopt(block: SharedBlock) -> Self {
        account::take_in(layout_for(block.head().cap).0);
        Self(ManuallyDrop::new(block))
    }
}

impl Deref for Kept {
    type Target = SharedBlock;

    #[inline]
    fn deref(&self) -> &SharedBlock {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: a dropped handle is never used again, and the wrapper does not drop its content itself.
        unsafe { self.0.hand_over() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn a_write_to_a_shared_block_copies_first() {
        let mut one = SharedBlock::new(b"abc");
        let two = one.clone();
        assert!(!one.is_unique());
        one.make_mut()[0] = b'x';
        assert_eq!((&one[..], &two[..]), (&b"xbc"[..], &b"abc"[..]));
        assert!(one.is_unique() && two.is_unique());
    }

    #[cfg(not(feature = "system-allocator"))]
    #[test]
    fn a_kept_block_is_paid_for_as_long_as_it_is_kept_whoever_frees_it() {
        use crate::alloc::account::{charged_bytes, thread_bytes};
        let bytes = [7; 20_000];
        let size = SharedBlock::new(&bytes).memory_bytes() as i64;
        let (charged, own) = (charged_bytes(), thread_bytes());
        let paid = || (charged_bytes() - charged, thread_bytes() - own);
        // The block is freed with the structure.
        let kept = Kept::new(Content::from(&bytes[..]));
        assert_eq!(paid(), (size, size));
        drop(kept);
        assert_eq!(paid(), (0, 0));
        // A reply holds the block for longer, and frees it elsewhere.
        let kept = Kept::new(Content::from(&bytes[..]));
        let shared = kept.clone();
        drop(kept);
        assert_eq!(paid(), (0, size));
        // Another structure gets the block, and the reply is sent first.
        let kept = Kept::adopt(shared.clone());
        assert_eq!(paid(), (size, size));
        drop(shared);
        assert_eq!(paid(), (size, size));
        drop(kept);
        assert_eq!(paid(), (0, 0));
    }

    #[test]
    fn growth_doubles_up_to_a_mebibyte_and_then_adds_one() {
        let mut block = SharedBlock::new(b"");
        block.resize(1000);
        assert_eq!(block.memory_bytes(), size_class(2000 + 24));
        block.resize(1500);
        assert_eq!(block.memory_bytes(), size_class(2000 + 24));
        block.resize(3 << 20);
        assert_eq!(block.memory_bytes(), size_class((4 << 20) + 24));
        block.resize(10);
        block.shrink_to_fit();
        assert_eq!(block.memory_bytes(), size_class(10 + 24));
    }

    #[test]
    fn resizing_behaves_as_a_vector_and_leaves_other_owners_alone() {
        let mut random = Random::new(7);
        let mut model: Vec<u8> = Vec::new();
        let mut block = SharedBlock::new(&[]);
        let mut others: Vec<(Vec<u8>, SharedBlock)> = Vec::new();
        for _ in 0..if cfg!(miri) { 200 } else { 2000 } {
            match random.below(4) {
                0 => {
                    let len = random.index(5000);
                    block.resize(len);
                    model.resize(len, 0);
                }
                1 if !model.is_empty() => {
                    let at = random.index(model.len());
                    block.make_mut()[at] = at as u8;
                    model[at] = at as u8;
                }
                2 => others.push((model.clone(), block.clone())),
                _ => drop(others.pop()),
            }
            assert_eq!(&block[..], &model[..]);
            assert!(others.iter().all(|(model, block)| block[..] == model[..]));
        }
    }

    #[test]
    fn a_network_buffer_shares_the_bytes() {
        let block = SharedBlock::new(&[5; 40_000]);
        let address = block.as_ptr();
        let bytes = block.clone().into_bytes();
        assert_eq!(bytes.as_ptr(), address);
        drop(block);
        assert_eq!(
            std::thread::spawn(move || bytes.len()).join().ok(),
            Some(40_000)
        );
    }
}
