//! The undo log of one collection: small records that undo its changes, written forwards and read backwards.
//!
//! ```text
//! bytes | length u64 | number u64 | mark u8     bytes | length u64 | number u64 | mark u8     …
//! ```
//!
//! All records are in one allocation, so that a change seldom needs another one. The writer defines their meaning.
//! The memory is charged to no account (see [`account::uncharged`]); a log must be dropped where no account is charged.

use crate::alloc::account;

/// Bytes of a record's fixed fields, which follow its variable bytes.
const TAIL_BYTES: usize = 17;

/// Initial capacity of a log at its first record.
const FIRST_BYTES: usize = 64;

/// The undo log of a collection, see the module.
#[derive(Default)]
pub struct UndoLog {
    bytes: Vec<u8>,
}

/// A record of one change; the collection defines the meaning of its fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UndoRecord<'a> {
    /// Bytes of the record, such as a member.
    pub bytes: &'a [u8],
    /// Number of the record, such as a deadline or the bits of a score.
    pub number: u64,
    /// Identifies the kind of record.
    pub mark: u8,
}

impl UndoLog {
    /// Appends a record at the end.
    pub fn keep(&mut self, bytes: &[u8], number: u64, mark: u8) {
        let more = bytes.len() + TAIL_BYTES;
        if self.bytes.capacity() - self.bytes.len() < more {
            account::uncharged(|| self.bytes.reserve(more.max(FIRST_BYTES)));
        }
        self.bytes.extend_from_slice(bytes);
        let mut tail = [0; TAIL_BYTES];
        tail[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        tail[8..16].copy_from_slice(&number.to_le_bytes());
        tail[16] = mark;
        self.bytes.extend_from_slice(&tail);
    }

    /// Returns the bytes of all records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all records, newest first.
    pub fn backwards(&self) -> impl Iterator<Item = UndoRecord<'_>> {
        self.backwards_to(0)
    }

    /// Returns the records at byte offset `from` and later, newest first.
    pub fn backwards_to(&self, from: usize) -> impl Iterator<Item = UndoRecord<'_>> {
        let mut left = self.bytes.get(from..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (before, tail) = left.split_last_chunk::<TAIL_BYTES>()?;
            let number = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&tail[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            let start = before.len().checked_sub(number(0) as usize)?;
            left = &before[..start];
            Some(UndoRecord {
                bytes: &before[start..],
                number: number(8),
                mark: tail[16],
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_from_the_last_to_the_first() {
        let mut log = UndoLog::default();
        assert_eq!(log.backwards().next(), None);
        let texts: Vec<String> = (0..100).map(|len| "x".repeat(len)).collect();
        for (number, text) in texts.iter().enumerate() {
            log.keep(text.as_bytes(), number as u64 * 3, number as u8);
        }
        assert!(!log.is_empty() && log.len() == 100 * TAIL_BYTES + 4_950);
        let mut records = log.backwards();
        for (number, text) in texts.iter().enumerate().rev() {
            let record = UndoRecord {
                bytes: text.as_bytes(),
                number: number as u64 * 3,
                mark: number as u8,
            };
            assert_eq!(records.next(), Some(record));
        }
        assert_eq!(records.next(), None);
    }

    #[test]
    fn a_log_is_charged_to_nobody() {
        let before = account::charged_bytes();
        let mut log = UndoLog::default();
        for number in 0..1_000 {
            log.keep(b"something", number, 1);
        }
        assert_eq!(account::charged_bytes(), before);
        std::mem::forget(log);
    }
}
