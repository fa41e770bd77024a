//! One allocation for a member and its score, owned by a table and referenced by an index.
//!
//! ```text
//! 0         8      12
//! score f64 | len u32 | member
//! ```
//!
//! The table holds the record as a [`OwnedRecord`], which frees it. The index holds it as a [`Scored`]: the record's
//! address and a copy of the score, so that an index seldom has to read records.
//!
//! Invariant, on which the safety of [`Scored`] relies and which [`super::ranking`] maintains: no `Scored` is
//! compared or dereferenced once its record has been freed.

#![expect(unsafe_code, reason = "an allocation that two structures share")]

use std::alloc::{self, Layout};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, NonNull};
use std::slice;

use super::OrderedItem;
use crate::structures::table::Stored;

const LEN_AT: usize = 8;
const MEMBER_AT: usize = 12;

/// An owned record of a member and its score.
pub(super) struct OwnedRecord {
    address: NonNull<u8>,
}

/// A borrowed [`OwnedRecord`].
#[derive(Clone, Copy)]
pub(super) struct RecordRef<'a> {
    address: NonNull<u8>,
    _borrows: PhantomData<&'a OwnedRecord>,
}

/// An index's reference to a record.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    /// The record's score.
    pub(super) score: f64,
    record: NonNull<u8>,
}

const _: () = assert!(size_of::<Scored>() == 16);

// SAFETY: a record is plain bytes, owned.
unsafe impl Send for OwnedRecord {}

// SAFETY: an address of plain bytes; any access follows the invariant at the head of this file, which is
// independent of threads.
unsafe impl Send for Scored {}

impl OwnedRecord {
    /// Creates a record.
    pub(super) fn new(member: &[u8], score: f64) -> Self {
        assert!(
            member.len() <= u32::MAX as usize,
            "lengths are kept in 32 bits"
        );
        let layout = layout(member.len());
        // SAFETY: the size is not zero.
        let Some(address) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        // SAFETY: the score, the length and the member are within new memory of the layout, which is aligned to 8.
        unsafe {
            address.cast::<f64>().write(score);
            address.add(LEN_AT).cast::<u32>().write(member.len() as u32);
            let to = address.add(MEMBER_AT).as_ptr();
            ptr::copy_nonoverlapping(member.as_ptr(), to, member.len());
        }
        Self { address }
    }

    /// Returns a copy of the record in new memory.
    pub(super) fn duplicate(&self) -> Self {
        let view = self.view();
        Self::new(view.member(), view.score())
    }

    pub(super) fn view(&self) -> RecordRef<'_> {
        RecordRef {
            address: self.address,
            _borrows: PhantomData,
        }
    }

    /// Sets the member's score. The caller has to update the copy of the score in an index.
    pub(super) fn set_score(&mut self, score: f64) {
        // SAFETY: every record begins with its score, aligned.
        unsafe { self.address.cast::<f64>().write(score) };
    }
}

/// Returns the layout of a record. Lengths of 32 bits stay far below the limit of a layout.
fn layout(member_len: usize) -> Layout {
    let size = MEMBER_AT + member_len;
    debug_assert!(Layout::from_size_align(size, 8).is_ok());
    // SAFETY: the alignment is a power of two, and the size stays below the limit.
    unsafe { Layout::from_size_align_unchecked(size, 8) }
}

impl Drop for OwnedRecord {
    fn drop(&mut self) {
        let layout = layout(self.view().member().len());
        // SAFETY: allocated with this layout, as the length never changes; no reference is left.
        unsafe { alloc::dealloc(self.address.as_ptr(), layout) };
    }
}

impl<'a> RecordRef<'a> {
    pub(super) fn score(self) -> f64 {
        // SAFETY: every record begins with its score, aligned.
        unsafe { self.address.cast::<f64>().read() }
    }

    pub(super) fn member(self) -> &'a [u8] {
        // SAFETY: the length is the number of following bytes; no thread changes them while they are borrowed.
        unsafe {
            let len = self.address.add(LEN_AT).cast::<u32>().read() as usize;
            slice::from_raw_parts(self.address.add(MEMBER_AT).as_ptr(), len)
        }
    }

    /// Returns the reference to this record for an index.
    pub(super) fn scored(self) -> Scored {
        Scored {
            score: self.score(),
            record: self.address,
        }
    }

    /// True if an index's reference is to this record.
    pub(super) fn is(self, scored: Scored) -> bool {
        self.address == scored.record
    }
}

impl Scored {
    /// Returns a reference to the record under another score.
    pub(super) fn with_score(self, score: f64) -> Self {
        Self { score, ..self }
    }

    /// Returns the address of the record.
    pub(super) fn address(self) -> usize {
        self.record.addr().get()
    }

    /// Returns the record.
    ///
    /// # Safety
    /// The record is not freed for `'a`, nor given another score.
    pub(super) unsafe fn record<'a>(self) -> RecordRef<'a> {
        RecordRef {
            address: self.record,
            _borrows: PhantomData,
        }
    }
}

impl OrderedItem for Scored {
    #[inline]
    fn is_surely_before(&self, other: &Self) -> bool {
        self.score < other.score
    }

    /// Compares by score, then by member.
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        match self.score.partial_cmp(&other.score) {
            Some(Ordering::Equal) | None => {}
            Some(order) => return order,
        }
        if self.record == other.record {
            return Ordering::Equal;
        }
        // SAFETY: both records are alive, by the invariant of this file; only members are read.
        unsafe { self.record().member().cmp(other.record().member()) }
    }
}

// SAFETY: the address of the allocation is the record, and user space lies below 2^48; all reading goes through it.
unsafe impl Stored for OwnedRecord {
    type Ref<'a> = RecordRef<'a>;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        let address = self.address;
        mem::forget(self);
        address
    }

    #[inline]
    unsafe fn from_raw(address: NonNull<u8>) -> Self {
        Self { address }
    }

    #[inline]
    unsafe fn borrow<'a>(address: NonNull<u8>) -> RecordRef<'a>
    where
        Self: 'a,
    {
        RecordRef {
            address,
            _borrows: PhantomData,
        }
    }

    #[inline]
    fn key<'a>(view: RecordRef<'a>) -> &'a [u8]
    where
        Self: 'a,
    {
        view.member()
    }
}
