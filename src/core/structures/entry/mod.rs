//! One allocation for a key and its value.
//!
//! ```text
//! 0      1       2      3
//! kind | flags | klen | vlen | [klen u32] | key | [vlen u32] | [deadline u48] | value | [wlen u8 | words]
//! ```
//!
//! `klen` and `vlen` are 255 when the length is in a u32 of its own. The deadline exists only if one is set. The key
//! precedes both, so that a search finds it at a fixed offset. The value is one of four: bytes, whose number is
//! `vlen`; an integer of 8 bytes; or, aligned to 8, the handle of a [`SharedBlock`] or of a boxed object of the
//! caller's. The caller defines the meaning of `kind` and of three of the flags, and of the 32-bit words of metadata
//! that an entry may have: few entries have any, and these words come after everything else, so that reading the rest
//! does not depend on them.
//!
//! Invariants: the allocation has exactly the allocator's size class for the content, so its size is computed,
//! never stored, and a change that stays within the class is made in place; the entry owns its block or object.

#![expect(unsafe_code, reason = "a packed layout behind a thin pointer")]

mod relocate;
mod splice;
#[cfg(test)]
mod tests;
pub mod words;

use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};
use std::slice;

use smallvec::SmallVec;

use crate::alloc::account::size_class;
use crate::structures::block::SharedBlock;
use crate::structures::prefetch;
use crate::structures::table::Stored;

/// An owned key with its value. `O` is the type of values that are neither an integer, nor bytes, nor a block.
pub struct Entry<O> {
    address: NonNull<u8>,
    _owns: PhantomData<Box<O>>,
}

const _: () = assert!(size_of::<Option<Entry<()>>>() == 8);

/// A borrowed [`Entry`].
pub struct EntryRef<'a, O> {
    address: NonNull<u8>,
    _borrows: PhantomData<&'a O>,
}

/// The value of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Value<'a, O> {
    /// A number, stored as such.
    Integer(i64),
    /// Bytes in the entry, after the key.
    Bytes(&'a [u8]),
    /// Bytes in a shared block.
    Block(&'a SharedBlock),
    /// A value of the type `O`.
    Object(&'a O),
}

impl<O> Clone for Value<'_, O> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Value<'_, O> {}

/// The two flags available to the caller.
pub const CALLER_FLAGS: u8 = 0b1100_0000;

/// The latest deadline that can be stored: in the year 10889.
pub const DEADLINE_MAX: u64 = (1 << 48) - 1;

const DEADLINE: u8 = 1;
const VALUE_LONG: u8 = 2;
const FORM: u8 = 0b0001_1000;
/// Words follow the value.
const WORDS: u8 = 0b0010_0000;

/// Exactly the forms with handles have the higher bit.
const FORM_BYTES: u8 = 0;
const FORM_INTEGER: u8 = 0b0000_1000;
const FORM_BLOCK: u8 = 0b0001_0000;
const FORM_OBJECT: u8 = 0b0001_1000;
const HANDLE: u8 = FORM_BLOCK;

const ALIGN: usize = 8;
/// Lengths of at least this are stored in a separate u32.
const LONG: usize = 255;
const DEADLINE_BYTES: usize = 6;

/// The layout and the size of an entry.
#[derive(Clone, Copy)]
struct EntryLayout {
    /// The deadline, long and form bits.
    flags: u8,
    key_len: usize,
    /// Length of the value if it is bytes; 8 for other forms.
    value_len: usize,
    /// Bytes of the words and of their count.
    words_len: usize,
}

impl EntryLayout {
    #[inline]
    fn new(form: u8, key_len: usize, value_len: usize, deadline: bool) -> Self {
        assert!(
            key_len | value_len <= u32::MAX as usize,
            "lengths are kept in 32 bits"
        );
        let mut flags = form | if deadline { DEADLINE } else { 0 };
        if value_len >= LONG {
            flags |= VALUE_LONG;
        }
        Self {
            flags,
            key_len,
            value_len,
            words_len: 0,
        }
    }

    /// Returns the shape with `words_len` bytes behind the value.
    #[inline]
    fn with_words_len(mut self, words_len: usize) -> Self {
        if words_len > 0 {
            self.flags |= WORDS;
            self.words_len = words_len;
        }
        self
    }

    #[inline]
    fn words_at(self) -> usize {
        self.value_at() + self.value_len
    }

    #[inline]
    fn form(self) -> u8 {
        self.flags & FORM
    }

    #[inline]
    fn has_deadline(self) -> bool {
        self.flags & DEADLINE != 0
    }

    #[inline]
    fn key_at(self) -> usize {
        if self.key_len < LONG { 4 } else { 8 }
    }

    #[inline]
    fn value_len_at(self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    fn deadline_at(self) -> usize {
        self.value_len_at() + if self.flags & VALUE_LONG == 0 { 0 } else { 4 }
    }

    #[inline]
    fn value_at(self) -> usize {
        let deadline = if self.flags & DEADLINE == 0 {
            0
        } else {
            DEADLINE_BYTES
        };
        let end = self.deadline_at() + deadline;
        if self.flags & HANDLE != 0 {
            end.next_multiple_of(ALIGN)
        } else {
            end
        }
    }

    #[inline]
    fn class(self) -> usize {
        size_class(self.words_at() + self.words_len)
    }

    #[inline]
    fn layout(self) -> Layout {
        let size = self.class();
        debug_assert!(Layout::from_size_align(size, ALIGN).is_ok());
        // SAFETY: the alignment is a power of two, and two lengths of 32 bits stay below the limit.
        unsafe { Layout::from_size_align_unchecked(size, ALIGN) }
    }
}

impl<O> Entry<O> {
    /// Creates an entry with bytes as its value.
    #[must_use]
    pub fn bytes(kind: u8, key: &[u8], value: &[u8], deadline: Option<u64>) -> Self {
        let (entry, at) = Self::build(kind, key, FORM_BYTES, value.len(), deadline);
        // SAFETY: the value's bytes are within new memory.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), at, value.len()) };
        entry
    }

    /// Creates an entry with a number as its value.
    #[must_use]
    pub fn integer(kind: u8, key: &[u8], value: i64, deadline: Option<u64>) -> Self {
        let (entry, at) = Self::build(kind, key, FORM_INTEGER, 8, deadline);
        // SAFETY: eight bytes are reserved for it.
        unsafe { at.cast::<i64>().write_unaligned(value) };
        entry
    }

    /// Creates an entry with a shared block as its value.
    #[must_use]
    pub fn block(kind: u8, key: &[u8], value: SharedBlock, deadline: Option<u64>) -> Self {
        let (entry, at) = Self::build(kind, key, FORM_BLOCK, 8, deadline);
        // SAFETY: eight aligned bytes are reserved for it.
        unsafe { at.cast::<SharedBlock>().write(value) };
        entry
    }

    /// Creates an entry with an object of the caller's as its value.
    #[must_use]
    pub fn object(kind: u8, key: &[u8], value: Box<O>, deadline: Option<u64>) -> Self {
        let (entry, at) = Self::build(kind, key, FORM_OBJECT, 8, deadline);
        // SAFETY: eight aligned bytes are reserved for it.
        unsafe { at.cast::<Box<O>>().write(value) };
        entry
    }

    /// Returns a borrowed view of the entry.
    #[inline]
    #[must_use]
    pub fn view(&self) -> EntryRef<'_, O> {
        EntryRef {
            address: self.address,
            _borrows: PhantomData,
        }
    }

    /// Prefetches the entry's first cache line.
    #[inline]
    pub fn prefetch(&self) {
        prefetch::line_at(self.address.as_ptr());
    }

    /// Replaces the value, of any form, by a copy of `value`.
    #[inline]
    pub fn set_bytes(&mut self, value: &[u8]) {
        let old = self.shape();
        let new = EntryLayout {
            value_len: value.len(),
            ..old
        };
        if old.flags & (FORM | VALUE_LONG | WORDS) == FORM_BYTES
            && value.len() < LONG
            && new.class() == old.class()
        {
            // The common case: short bytes replace short bytes of the same size class.
            // SAFETY: the last byte of the header; `vlen` is within range.
            unsafe { self.address.add(3).write(value.len() as u8) };
        } else {
            self.set_form(FORM_BYTES, value.len(), 0);
        }
        // SAFETY: space for the bytes exists, and `&mut self` excludes that `value` is within.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), self.value_ptr(), value.len()) };
    }

    /// Replaces the value by a number.
    pub fn set_integer(&mut self, value: i64) {
        self.set_form(FORM_INTEGER, 8, 0);
        // SAFETY: eight bytes are reserved for it.
        unsafe { self.value_ptr().cast::<i64>().write_unaligned(value) };
    }

    /// Replaces the value by a shared block.
    pub fn set_block(&mut self, value: SharedBlock) {
        self.set_form(FORM_BLOCK, 8, 0);
        // SAFETY: eight aligned bytes are reserved for it; their previous contents have been dropped.
        unsafe { self.value_ptr().cast::<SharedBlock>().write(value) };
    }

    /// Replaces the value by an object.
    pub fn set_object(&mut self, value: Box<O>) {
        self.set_form(FORM_OBJECT, 8, 0);
        // SAFETY: eight aligned bytes are reserved for it; their previous contents have been dropped.
        unsafe { self.value_ptr().cast::<Box<O>>().write(value) };
    }

    /// Sets the length of a value that is bytes; new bytes are zero. Any other value becomes that many zero bytes.
    pub fn resize_bytes(&mut self, len: usize) {
        let kept = match self.view().value() {
            Value::Bytes(bytes) => bytes.len().min(len),
            _ => 0,
        };
        self.set_form(FORM_BYTES, len, kept);
        // SAFETY: the range is within the value's space of `len` bytes.
        unsafe { ptr::write_bytes(self.value_ptr().add(kept), 0, len - kept) };
    }

    /// Returns the value's bytes for writing, if it is bytes.
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let shape = self.shape();
        // SAFETY: these are initialised bytes of the entry, and borrowed with it.
        (shape.flags & FORM == FORM_BYTES)
            .then(|| unsafe { slice::from_raw_parts_mut(self.value_ptr(), shape.value_len) })
    }

    /// Returns the block for writing, if the value is one.
    pub fn block_mut(&mut self) -> Option<&mut SharedBlock> {
        // SAFETY: the form determines the contents, which are aligned.
        (self.shape().flags & FORM == FORM_BLOCK)
            .then(|| unsafe { &mut *self.value_ptr().cast::<SharedBlock>() })
    }

    /// Returns the object for writing, if the value is one.
    #[inline]
    pub fn object_mut(&mut self) -> Option<&mut O> {
        // SAFETY: the form determines the contents, which are aligned.
        (self.shape().flags & FORM == FORM_OBJECT)
            .then(|| unsafe { &mut **self.value_ptr().cast::<Box<O>>() })
    }

    /// Returns the object, if the value is one; otherwise the entry is dropped.
    #[must_use]
    pub fn into_object(mut self) -> Option<Box<O>> {
        let shape = self.shape();
        if shape.flags & FORM != FORM_OBJECT {
            return None;
        }
        // SAFETY: the form determines the contents; they are taken once, as the entry is an integer afterwards.
        unsafe {
            let object = self.value_ptr().cast::<Box<O>>().read();
            self.forget_value();
            Some(object)
        }
    }

    /// Sets or removes the deadline, in milliseconds. The value stays.
    pub fn set_deadline(&mut self, deadline: Option<u64>) {
        let old = self.shape();
        let has = old.flags & DEADLINE != 0;
        if has != deadline.is_some() {
            let form = old.flags & FORM;
            let new = EntryLayout::new(form, old.key_len, old.value_len, deadline.is_some());
            self.reshape(new.with_words_len(old.words_len), old.value_len);
        }
        self.write_deadline(deadline);
    }

    /// Sets the kind, a byte whose meaning the caller defines.
    #[inline]
    pub fn set_kind(&mut self, kind: u8) {
        // SAFETY: the first byte of the header.
        unsafe { self.address.write(kind) };
    }

    /// Sets or clears some of the caller's flags, see [`CALLER_FLAGS`].
    pub fn set_flag(&mut self, flag: u8, on: bool) {
        debug_assert_eq!(flag & !CALLER_FLAGS, 0);
        let flag = flag & CALLER_FLAGS;
        let flags = self.view().header()[1];
        // SAFETY: the second byte of the header.
        unsafe {
            self.address
                .add(1)
                .write(if on { flags | flag } else { flags & !flag })
        };
    }

    /// Creates an entry whose value is yet to be written. Also returns the address of the value.
    #[inline]
    fn build(
        kind: u8,
        key: &[u8],
        form: u8,
        value_len: usize,
        deadline: Option<u64>,
    ) -> (Self, *mut u8) {
        let shape = EntryLayout::new(form, key.len(), value_len, deadline.is_some());
        let mut entry = Self {
            address: allocate(shape),
            _owns: PhantomData,
        };
        // SAFETY: the header and the key are within new memory of the shape's size.
        let at = unsafe {
            entry.write_header(kind, 0, shape);
            let key_at = entry.address.add(shape.key_at()).as_ptr();
            ptr::copy_nonoverlapping(key.as_ptr(), key_at, key.len());
            entry.address.add(shape.value_at()).as_ptr()
        };
        if deadline.is_some() {
            entry.write_deadline(deadline);
        }
        (entry, at)
    }

    #[inline]
    fn shape(&self) -> EntryLayout {
        self.view().whole_shape()
    }

    #[inline]
    fn value_ptr(&self) -> *mut u8 {
        // SAFETY: the value is within the allocation.
        unsafe { self.address.add(self.view().shape().value_at()).as_ptr() }
    }

    /// Drops the value and prepares for another form; the first `kept` bytes of the old value stay.
    fn set_form(&mut self, form: u8, value_len: usize, kept: usize) {
        let old = self.shape();
        let new = EntryLayout::new(form, old.key_len, value_len, old.flags & DEADLINE != 0);
        let new = new.with_words_len(old.words_len);
        // SAFETY: the dropped value is no longer owned: the shape changes before any other access. Dropping can
        // only be interrupted by a panic, for which the value is forgotten first.
        unsafe {
            match old.flags & FORM {
                FORM_BLOCK => {
                    let block = self.value_ptr().cast::<SharedBlock>().read();
                    let mut block = ManuallyDrop::new(block);
                    self.forget_value();
                    block.hand_over();
                }
                FORM_OBJECT => {
                    let object = self.value_ptr().cast::<Box<O>>().read();
                    self.forget_value();
                    drop(object);
                }
                _ => {}
            }
        }
        self.reshape(new, kept);
    }

    /// Turns an entry with a handle into one that owns nothing: eight bytes that count as a number.
    ///
    /// # Safety
    /// The value is a handle, and its target has another owner.
    unsafe fn forget_value(&mut self) {
        let old = self.shape();
        let new = EntryLayout {
            flags: old.flags & !FORM | FORM_INTEGER,
            ..old
        };
        // A number is not aligned, so its size class may differ from the handle's.
        self.reshape(new, 8);
    }

    /// Changes the layout of the entry, with the same key and the first `kept` bytes of the value. The deadline
    /// stays if the new shape has one.
    fn reshape(&mut self, new: EntryLayout, kept: usize) {
        self.move_value(new, kept, 0, 0);
    }

    /// Like [`Entry::reshape`], for a value that is and stays bytes: keeps its first `head` and last `tail` bytes, at
    /// both ends of the new value. The bytes in between are zero.
    fn reshape_around(&mut self, new: EntryLayout, head: usize, tail: usize) {
        let old = self.shape();
        assert!(head + tail <= old.value_len.min(new.value_len));
        self.move_value(new, head, old.value_len - tail, tail);
        let gap = new.value_len - tail - head;
        // SAFETY: the gap lies between the two parts, within the value. It is zeroed because the memory may never have
        // been written.
        unsafe { ptr::write_bytes(self.value_ptr().add(head), 0, gap) };
    }

    /// Changes the layout of the entry: the first `head` bytes of the value stay in front, and the `tail` bytes at
    /// `tail_at` become its last.
    fn move_value(&mut self, new: EntryLayout, head: usize, tail_at: usize, tail: usize) {
        let old = self.shape();
        debug_assert_eq!(old.key_len, new.key_len);
        let view = self.view();
        let ([kind, flags, ..], deadline) = (view.header(), view.deadline());
        let (old_layout, new_layout) = (old.layout(), new.layout());
        let from = self.address;
        let words = match old.words_len == 0 || new.words_len != old.words_len {
            true => None,
            false => Some(SmallVec::<[u8; 64]>::from_slice(view.word_bytes())),
        };
        // SAFETY: both shapes lie within their allocations; where they are the same one, only the
        // value moves, and the copies allow overlap. Neither part is overwritten before it moves: a
        // value that begins later leaves its tail first, as that ends up behind the whole old head; one
        // that begins earlier, its head first, as that ends up before the old tail.
        unsafe {
            let mut to = from;
            if old_layout != new_layout {
                to = allocate(new);
                let key_end = old.key_at() + old.key_len;
                ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), key_end);
            }
            let old_value = from.add(old.value_at()).as_ptr();
            let new_value = to.add(new.value_at()).as_ptr();
            let move_tail = || {
                if tail > 0 {
                    let tail_to = new_value.add(new.value_len - tail);
                    ptr::copy(old_value.add(tail_at), tail_to, tail);
                }
            };
            if new.value_at() >= old.value_at() {
                move_tail();
                ptr::copy(old_value, new_value, head);
            } else {
                ptr::copy(old_value, new_value, head);
                move_tail();
            }
            if old_layout != new_layout {
                alloc::dealloc(from.as_ptr(), old_layout);
                self.address = to;
            }
            self.write_header(kind, flags & CALLER_FLAGS, new);
        }
        self.write_deadline(deadline);
        if let Some(words) = words {
            self.write_words(new, &words);
        }
    }

    /// Writes the header before the key, and the value's length after it.
    ///
    /// # Safety
    /// The allocation has the class of `shape`.
    #[inline]
    unsafe fn write_header(&mut self, kind: u8, caller_flags: u8, shape: EntryLayout) {
        let value_len = if shape.flags & FORM == FORM_BYTES {
            shape.value_len
        } else {
            0
        };
        let (key_short, value_short) = (shape.key_len.min(LONG), value_len.min(LONG));
        // SAFETY: the header is part of every shape, and so are the long lengths where required.
        unsafe {
            self.address.cast::<[u8; 4]>().write([
                kind,
                shape.flags | caller_flags,
                key_short as u8,
                value_short as u8,
            ]);
            if shape.key_len >= LONG {
                self.address
                    .add(4)
                    .cast::<u32>()
                    .write_unaligned(shape.key_len as u32);
            }
            if shape.flags & VALUE_LONG != 0 {
                let at = self.address.add(shape.value_len_at());
                at.cast::<u32>().write_unaligned(value_len as u32);
            }
        }
    }

    /// Writes the deadline, if the shape has one.
    fn write_deadline(&mut self, deadline: Option<u64>) {
        let shape = self.shape();
        if let Some(deadline) = deadline
            && shape.flags & DEADLINE != 0
        {
            let [low @ .., _, _] = deadline.min(DEADLINE_MAX).to_le_bytes();
            // SAFETY: six bytes before the key are the deadline's.
            unsafe {
                self.address
                    .add(shape.deadline_at())
                    .cast::<[u8; 6]>()
                    .write(low)
            };
        }
    }
}

fn allocate(shape: EntryLayout) -> NonNull<u8> {
    let layout = shape.layout();
    // SAFETY: a class is eight bytes at least.
    let memory = unsafe { alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

impl<O> Drop for Entry<O> {
    fn drop(&mut self) {
        let shape = self.shape();
        // SAFETY: the form determines the owned data; no reference to the entry is left.
        unsafe {
            match shape.flags & FORM {
                FORM_BLOCK => (*self.value_ptr().cast::<SharedBlock>()).hand_over(),
                FORM_OBJECT => ptr::drop_in_place(self.value_ptr().cast::<Box<O>>()),
                _ => {}
            }
            alloc::dealloc(self.address.as_ptr(), shape.layout());
        }
    }
}

// SAFETY: an entry owns plain bytes, a block that may change threads, or a box.
unsafe impl<O: Send> Send for Entry<O> {}

// SAFETY: the address of the allocation is the entry; all reading goes through it.
unsafe impl<O: Send> Stored for Entry<O> {
    const CAN_MOVE: bool = true;

    fn moved(self) -> Self {
        Entry::moved(self)
    }

    type Ref<'a>
        = EntryRef<'a, O>
    where
        O: 'a;

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        let address = self.address;
        mem::forget(self);
        address
    }

    #[inline]
    unsafe fn from_raw(address: NonNull<u8>) -> Self {
        Self {
            address,
            _owns: PhantomData,
        }
    }

    #[inline]
    unsafe fn borrow<'a>(address: NonNull<u8>) -> EntryRef<'a, O>
    where
        O: 'a,
    {
        EntryRef {
            address,
            _borrows: PhantomData,
        }
    }

    #[inline]
    fn key<'a>(view: EntryRef<'a, O>) -> &'a [u8]
    where
        O: 'a,
    {
        view.key()
    }
}

impl<'a, O> EntryRef<'a, O> {
    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(self) -> &'a [u8] {
        let [_, _, short, _] = self.header();
        let (at, len) = self.key_range(short);
        // SAFETY: these are initialised bytes of the entry, which is borrowed for `'a`.
        unsafe { slice::from_raw_parts(self.address.add(at).as_ptr(), len) }
    }

    /// Returns the kind, a byte whose meaning the caller defines.
    #[inline]
    #[must_use]
    pub fn kind(self) -> u8 {
        self.header()[0]
    }

    /// Returns the caller's flags, see [`CALLER_FLAGS`].
    #[inline]
    #[must_use]
    pub fn flags(self) -> u8 {
        self.header()[1] & CALLER_FLAGS
    }

    /// Returns the deadline, in milliseconds.
    #[inline]
    #[must_use]
    pub fn deadline(self) -> Option<u64> {
        if self.header()[1] & DEADLINE == 0 {
            return None;
        }
        let at = self.shape().deadline_at();
        // SAFETY: the flag means that there are six bytes of deadline.
        let [a, b, c, d, e, f] = unsafe { self.address.add(at).cast::<[u8; 6]>().read() };
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(self) -> Value<'a, O> {
        let shape = self.shape();
        // SAFETY: the form determines the contents; handles are aligned; all is borrowed for `'a`.
        unsafe {
            let at = self.address.add(shape.value_at()).as_ptr();
            match shape.flags & FORM {
                FORM_BYTES => Value::Bytes(slice::from_raw_parts(at, shape.value_len)),
                FORM_INTEGER => Value::Integer(at.cast::<i64>().read_unaligned()),
                FORM_BLOCK => Value::Block(&*at.cast::<SharedBlock>()),
                _ => Value::Object(&**at.cast::<Box<O>>()),
            }
        }
    }

    /// Returns the bytes allocated for the entry, with its block or box, but without what an object owns beyond its
    /// box.
    #[must_use]
    pub fn memory_bytes(self) -> usize {
        let beyond = match self.value() {
            Value::Integer(_) | Value::Bytes(_) => 0,
            Value::Block(block) => block.memory_bytes(),
            Value::Object(_) => match size_of::<O>() {
                0 => 0,
                size => size_class(size),
            },
        };
        self.whole_shape().class() + beyond
    }

    #[inline]
    fn header(self) -> [u8; 4] {
        // SAFETY: every entry begins with a header.
        unsafe { self.address.cast::<[u8; 4]>().read() }
    }

    /// Returns the offset of the key, and its length.
    #[inline(always)]
    fn key_range(self, short: u8) -> (usize, usize) {
        if usize::from(short) < LONG {
            (4, usize::from(short))
        } else {
            (8, self.long(4))
        }
    }

    /// Returns the length stored at `at`.
    #[cold]
    fn long(self, at: usize) -> usize {
        // SAFETY: callers have checked that it exists.
        unsafe { self.address.add(at).cast::<u32>().read_unaligned() as usize }
    }

    #[inline]
    fn shape(self) -> EntryLayout {
        let [_, flags, key_short, value_short] = self.header();
        let (key_at, key_len) = self.key_range(key_short);
        let value_len = if flags & FORM != FORM_BYTES {
            8
        } else if flags & VALUE_LONG == 0 {
            usize::from(value_short)
        } else {
            self.long(key_at + key_len)
        };
        EntryLayout {
            flags: flags & !CALLER_FLAGS,
            key_len,
            value_len,
            words_len: 0,
        }
    }
}

impl<O> Clone for EntryRef<'_, O> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for EntryRef<'_, O> {}
