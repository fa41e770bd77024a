//! Strings that hold a HyperLogLog: changed in place, in the entry or in its block.
//!
//! The format of the bytes is defined by `structures::hyperloglog`. The string reports `raw` after a change. A
//! block must not be shared when a function here changes it: [`Keyspace::edit_text`] ensures that.
//!
//! [`Keyspace::edit_text`]: crate::keyspace::Keyspace::edit_text

use super::{Object, ObjectKind, writable_text};
use basalt_core::structures::entry::Entry;
use basalt_core::structures::hyperloglog::{self, Corrupt, Registers};
use basalt_core::structures::splice::Splice;

/// The bytes of a string entry as a buffer.
struct TextBuffer<'e> {
    entry: &'e mut Entry<Object>,
}

impl<'e> TextBuffer<'e> {
    fn of(entry: &'e mut Entry<Object>) -> TextBuffer<'e> {
        entry.set_kind(ObjectKind::RAW.0);
        TextBuffer { entry }
    }

    fn resize(&mut self, len: usize) {
        let old_len = self.bytes().len();
        if len >= old_len {
            writable_text(self.entry, len);
        } else if let Some(block) = self.entry.block_mut() {
            block.resize(len);
        } else {
            self.entry.resize_bytes(len);
        }
    }
}

impl Splice for TextBuffer<'_> {
    fn bytes(&self) -> &[u8] {
        use basalt_core::structures::entry::Value;
        match self.entry.view().value() {
            Value::Bytes(bytes) => bytes,
            Value::Block(block) => block,
            Value::Integer(_) | Value::Object(_) => &[],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        writable_text(self.entry, 0)
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let len = self.bytes().len();
        assert!(removed <= len - at, "the removed bytes are there");
        let len_after = len - removed + inserted;
        if len_after > len {
            self.resize(len_after);
        }
        self.bytes_mut()
            .copy_within(at + removed..len, at + inserted);
        if len_after < len {
            self.resize(len_after);
        }
        &mut self.bytes_mut()[at..at + inserted]
    }
}

/// Adds elements to a sketch. Returns whether the sketch changed; after an error, nothing has changed.
pub fn add<'e>(
    entry: &mut Entry<Object>,
    elements: impl ExactSizeIterator<Item = &'e [u8]>,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    hyperloglog::add(&mut TextBuffer::of(entry), elements, sparse_bytes_max)
}

/// Merges registers into a sketch, keeping the larger of each pair.
pub fn raise_all(
    entry: &mut Entry<Object>,
    registers: &Registers,
    sparse_bytes_max: usize,
) -> Result<(), Corrupt> {
    hyperloglog::raise_all(&mut TextBuffer::of(entry), registers, sparse_bytes_max)
}

/// Converts a sketch to the dense form.
pub fn to_dense(entry: &mut Entry<Object>) -> Result<(), Corrupt> {
    hyperloglog::to_dense(&mut TextBuffer::of(entry))
}
