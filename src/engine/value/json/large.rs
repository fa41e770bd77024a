//! A document beyond the size of those in entries: its packed bytes, shared with the snapshot that is saving it.

use std::sync::Arc;

use crate::value::body::{CollectionBody, Journal};
use basalt_core::structures::splice::Splice;
use basalt_core::structures::undo_log::UndoLog;

/// Spare bytes of a document that grows: this part of its size.
const SPARE_PART: usize = 16;

/// The mark of the only kind of record in the undo log: a splice.
const SPLICED: u8 = 1;

/// A large document.
pub struct LargeJson {
    bytes: Arc<Vec<u8>>,
    changes: Option<UndoLog>,
}

impl LargeJson {
    /// Wraps a document in its packed form.
    pub fn new(mut doc: Vec<u8>) -> LargeJson {
        doc.shrink_to_fit();
        LargeJson {
            bytes: Arc::new(doc),
            changes: None,
        }
    }

    /// Returns the packed form.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Splices the bytes, and records nothing.
    fn splice_bytes(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let bytes = Arc::make_mut(&mut self.bytes);
        let len = bytes.len() - removed + inserted;
        if len > bytes.capacity() {
            bytes.reserve_exact(len - bytes.len() + len / SPARE_PART);
        } else if len < bytes.capacity() / 2 {
            // Twice the spare part is kept, so that a document whose size changes to and fro is not moved each time.
            bytes.shrink_to(len + len / SPARE_PART * 2);
        }
        Splice::splice(bytes, at, removed, inserted)
    }
}

impl Splice for LargeJson {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes: &mut Vec<u8> = Arc::make_mut(&mut self.bytes);
        bytes
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        if let Some(changes) = &mut self.changes {
            let number = (at as u64) << 32 | inserted as u64;
            changes.keep(&self.bytes[at..at + removed], number, SPLICED);
        }
        self.splice_bytes(at, removed, inserted)
    }
}

impl CollectionBody for LargeJson {
    fn duplicate(&self) -> LargeJson {
        LargeJson::new(self.bytes.as_slice().to_vec())
    }

    fn undo_log(&mut self) -> Option<&mut Option<UndoLog>> {
        Some(&mut self.changes)
    }

    fn undo(&mut self, journal: &Journal) {
        let records: Vec<_> = journal.changes_to(0).collect();
        for record in records {
            let (at, inserted) = (record.number >> 32, record.number as u32);
            let len = record.bytes.len();
            self.splice_bytes(at as usize, inserted as usize, len)
                .copy_from_slice(record.bytes);
        }
    }

    fn copied_bytes(&self, _: crate::value::body::Part) -> Option<usize> {
        Some(0)
    }

    fn free_some(&mut self, _: usize) -> bool {
        false
    }
}
