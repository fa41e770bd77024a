//! The records of a shard's changes for the log of commands, and their positions there.

use super::Effects;
use crate::record::{Audience, Head, Records};
use basalt_core::structures::block::Content;

impl Effects {
    /// Logs a command with a stamp larger than any that this shard has seen.
    pub fn log_command<'a>(
        &mut self,
        db: usize,
        audience: Audience,
        arguments: impl ExactSizeIterator<Item = Content<'a>>,
    ) {
        self.hot.has_writes = true;
        self.log_record(db, audience, arguments);
    }

    fn log_record<'a>(
        &mut self,
        db: usize,
        audience: Audience,
        arguments: impl ExactSizeIterator<Item = Content<'a>>,
    ) {
        self.hot.stamp += 1;
        let stamp = self.hot.stamp;
        let head = Head {
            stamp,
            db,
            audience,
        };
        self.records.push(head, arguments);
        self.hot.has_records = true;
    }

    /// Logs that a key expired.
    pub(crate) fn log_expired(&mut self, db: usize, key: &[u8]) {
        if self.is_logging() {
            let name = self.interest.deletion_of_expired();
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Logs that a key was evicted.
    pub(crate) fn log_evicted(&mut self, db: usize, key: &[u8]) {
        if self.is_logging() {
            let name = self.interest.deletion_of_evicted();
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Logs that elements of a collection expired, as one command per element that removes it.
    pub(crate) fn log_expired_elements(
        &mut self,
        db: usize,
        removal: &[u8],
        key: &[u8],
        elements: &[Vec<u8>],
    ) {
        for element in elements {
            self.log_bytes(db, &[removal, key, element]);
        }
    }

    /// Logs a deletion that no command asked for. Replies do not wait for it ([`Effects::log_position`]): expiry and
    /// eviction may happen again, or not, after a crash or a failover.
    #[cold]
    pub(super) fn log_bytes(&mut self, db: usize, arguments: &[&[u8]]) {
        let arguments = arguments.iter().map(|bytes| Content::from(*bytes));
        self.log_record(db, Audience::BOTH, arguments);
    }

    /// Returns the records to be logged.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the records to be logged; the caller takes all of them.
    pub(crate) fn records_mut(&mut self) -> &mut Records {
        self.hot.has_records = false;
        &mut self.records
    }

    /// Appends the records of several shards together, if this shard has a log. The log is borrowed, because its
    /// reference count is shared by all threads.
    pub(crate) fn append_for_several(&self, records: &mut Records, is_atomic: bool) -> Option<u64> {
        let log = self.commands_log.as_ref()?;
        Some(log.append(records, is_atomic))
    }

    /// Appends the records of this shard alone.
    pub(crate) fn append_records(&mut self, is_unit: bool) -> Option<u64> {
        if !std::mem::take(&mut self.hot.has_records) {
            return None;
        }
        let is_atomic = is_unit && self.records.len() > 1;
        let position = self
            .commands_log
            .as_ref()
            .map(|log| log.append(&mut self.records, is_atomic));
        self.records.clear();
        let position = position.filter(|_| self.take_has_writes());
        self.hot.log_position = position.unwrap_or(self.hot.log_position);
        position
    }

    /// Returns whether the records since the last call contain one of a command, not only of keys that expired or
    /// were evicted.
    pub(crate) fn take_has_writes(&mut self) -> bool {
        std::mem::take(&mut self.hot.has_writes)
    }

    /// Returns the position in the log after all changes by commands that are visible in this shard.
    #[inline]
    pub fn log_position(&self) -> u64 {
        self.hot.log_position
    }

    /// Records that this shard's records, perhaps with those of other shards, were appended before this position.
    pub fn note_log_position(&mut self, position: u64) {
        self.hot.log_position = self.hot.log_position.max(position);
    }
}
