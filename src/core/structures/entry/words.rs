//! Words (32-bit numbers) after an entry's value, for metadata that few entries have.
//!
//! ```text
//! … value | count u8 | count × u32, little-endian
//! ```
//!
//! Invariant: an entry without words has neither the flag nor the count.

use std::ptr;
use std::slice;

use smallvec::SmallVec;

use super::{Entry, EntryLayout, EntryRef, WORDS};

/// Maximum number of words of an entry.
pub const WORDS_MAX: usize = 255;

impl<O> Entry<O> {
    /// Sets the entry's words, at most [`WORDS_MAX`]; without words no byte is used.
    pub fn set_words(&mut self, words: impl ExactSizeIterator<Item = u32>) {
        let count = words.len();
        assert!(count <= WORDS_MAX, "their number is a byte");
        let old = self.shape();
        if count == 0 && old.words_len == 0 {
            return;
        }
        let bytes: SmallVec<[u8; 64]> = words.flat_map(u32::to_le_bytes).collect();
        let new = EntryLayout::new(old.form(), old.key_len, old.value_len, old.has_deadline());
        let new = match count {
            0 => new,
            _ => new.with_words_len(1 + bytes.len()),
        };
        self.reshape(new, old.value_len);
        if count > 0 {
            self.write_words(new, &bytes);
        }
    }

    /// Writes the words at their position in the shape.
    pub(super) fn write_words(&mut self, shape: EntryLayout, bytes: &[u8]) {
        assert_eq!(shape.words_len, 1 + bytes.len());
        // SAFETY: behind the value there is space for their count and for them.
        unsafe {
            let at = self.address.add(shape.words_at());
            at.write((bytes.len() / 4) as u8);
            ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(1).as_ptr(), bytes.len());
        }
    }
}

impl<'a, O> EntryRef<'a, O> {
    /// True if the entry has words.
    #[inline]
    #[must_use]
    pub fn has_words(self) -> bool {
        self.header()[1] & WORDS != 0
    }

    /// Returns the entry's words.
    pub fn words(self) -> impl ExactSizeIterator<Item = u32> + use<'a, O> {
        let words = self.word_bytes().chunks_exact(4);
        words.map(|word| word.try_into().map_or(0, u32::from_le_bytes))
    }

    pub(super) fn word_bytes(self) -> &'a [u8] {
        let shape = self.whole_shape();
        if shape.words_len == 0 {
            return &[];
        }
        // SAFETY: these are initialised bytes of the entry, after their count; the entry is borrowed for `'a`.
        unsafe {
            let at = self.address.add(shape.words_at() + 1);
            slice::from_raw_parts(at.as_ptr(), shape.words_len - 1)
        }
    }

    /// Returns the shape including the words after the value, which are not needed for reading the value.
    #[inline]
    pub(super) fn whole_shape(self) -> EntryLayout {
        let mut shape = self.shape();
        if shape.flags & WORDS != 0 {
            // SAFETY: the flag means that their count is stored there.
            let count = unsafe { self.address.add(shape.words_at()).read() };
            shape.words_len = 1 + 4 * usize::from(count);
        }
        shape
    }
}
