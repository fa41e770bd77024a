//! Splicing of an entry whose value is bytes, as a buffer that grows and shrinks anywhere: a small collection is thus
//! stored in the same allocation as its key. A change within the allocator's size class moves only the bytes after
//! it.

#[cfg(test)]
mod tests;

use crate::structures::entry::{Entry, EntryLayout, FORM, FORM_BYTES, Value};
use crate::structures::splice::Splice;

impl<O> Splice for Entry<O> {
    /// Returns the value; empty if the value is not bytes.
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self.view().value() {
            Value::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        Entry::bytes_mut(self).unwrap_or_default()
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let old = self.shape();
        assert!(old.flags & FORM == FORM_BYTES, "only bytes can be spliced");
        let tail = old
            .value_len
            .checked_sub(at)
            .and_then(|after| after.checked_sub(removed))
            .expect("the removed bytes are there");
        if inserted != removed {
            let value_len = at + inserted + tail;
            let new = EntryLayout::new(old.form(), old.key_len, value_len, old.has_deadline());
            self.reshape_around(new.with_words_len(old.words_len), at, tail);
        }
        let end = at + inserted;
        &mut Splice::bytes_mut(self)[at..end]
    }
}
