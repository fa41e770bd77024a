//! Changing an entry's key, and moving it in memory.

use std::alloc;
use std::ptr;

use super::{CALLER_FLAGS, Entry, FORM, HANDLE, allocate};

impl<O> Entry<O> {
    /// Returns the entry with another key.
    #[must_use]
    pub fn with_key(mut self, key: &[u8]) -> Self {
        let view = self.view();
        let shape = self.shape();
        let [kind, flags, ..] = view.header();
        let (mut copy, _) = Self::build(
            kind,
            key,
            shape.flags & FORM,
            shape.value_len,
            view.deadline(),
        );
        copy.set_flag(flags & CALLER_FLAGS, true);
        copy.set_words(view.words());
        let at = copy.value_ptr();
        // SAFETY: either address has this number of bytes. Data that the value owns move with the bytes, so the old
        // value is forgotten.
        unsafe {
            ptr::copy_nonoverlapping(self.value_ptr(), at, shape.value_len);
            if shape.flags & HANDLE != 0 {
                self.forget_value();
            }
        }
        copy
    }

    /// Returns the entry in newly allocated memory; nothing else changes.
    #[must_use]
    pub fn moved(mut self) -> Self {
        let layout = self.shape().layout();
        let to = allocate(self.shape());
        // SAFETY: both are allocations of this layout. The entry's owned data moves with its bytes, as the old ones
        // are freed without being dropped.
        unsafe {
            ptr::copy_nonoverlapping(self.address.as_ptr(), to.as_ptr(), layout.size());
            alloc::dealloc(self.address.as_ptr(), layout);
        }
        self.address = to;
        self
    }
}
