//! Consumers of a group, and what is pending with them.

use std::collections::BTreeSet;

use super::id::StreamId;

/// The active time of a consumer that never got anything.
pub const NEVER: i64 = -1;

/// One entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// When it was last delivered, in Unix milliseconds.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub deliveries: u64,
    /// Who owns it.
    pub consumer: ConsumerId,
}

/// A consumer's place in its group, good until the consumer is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerId(pub(super) u32);

/// One consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Name of the consumer.
    pub name: Box<[u8]>,
    /// When it last asked for anything, in Unix milliseconds.
    pub seen_ms: i64,
    /// When it last got anything, or [`NEVER`].
    pub active_ms: i64,
    pub(super) pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// Entries that it owns.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The IDs of the entries that it owns, ascending.
    pub fn pending_ids(&self) -> impl Iterator<Item = StreamId> {
        self.pending.iter().copied()
    }
}
