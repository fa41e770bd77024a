//! Consumers of a group, and their pending entries.

use std::collections::BTreeSet;

use super::id::StreamId;

/// The active time of a consumer that never received an entry.
pub const NEVER: i64 = -1;

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Time of the last delivery, in Unix milliseconds.
    pub delivered_ms: i64,
    /// Number of deliveries.
    pub deliveries: u64,
    /// The consumer that owns the entry.
    pub consumer: ConsumerId,
}

/// The delivery time of the first entry returned to its group: before all real times. Each entry returned later gets
/// a time one millisecond later, so that returned entries are pending for longest, in the order of their return.
const RETURNED_FIRST_MS: i64 = i64::MIN / 2;

/// Maximum number of deliveries that can be reported.
pub const DELIVERIES_MAX: u64 = i64::MAX as u64;

impl Pending {
    /// Creates the state of an entry returned to its group, as number `number`, counted from 0.
    pub(super) fn returned(number: u64, deliveries: u64) -> Pending {
        Pending {
            delivered_ms: RETURNED_FIRST_MS + i64::try_from(number).unwrap_or(0),
            deliveries,
            consumer: ConsumerId::NOBODY,
        }
    }

    /// True if the entry was returned to its group, so that no consumer owns it.
    pub fn is_returned(&self) -> bool {
        self.consumer == ConsumerId::NOBODY
    }

    /// Returns the time of the last delivery as reported to clients: 0 if no consumer owns it.
    pub fn shown_ms(&self) -> i64 {
        self.delivered_ms.max(0)
    }

    /// Returns the number of deliveries plus `more`, at most [`DELIVERIES_MAX`].
    pub fn deliveries_with(&self, more: u64) -> u64 {
        let most = self.deliveries.max(DELIVERIES_MAX);
        self.deliveries.saturating_add(more).min(most)
    }
}

/// The number of a consumer's slot in its group, valid until the consumer is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerId(pub(super) u32);

impl ConsumerId {
    /// Stands for no consumer: the entry was returned to the group.
    pub const NOBODY: ConsumerId = ConsumerId(u32::MAX);
}

/// One consumer of a group.
#[derive(Clone, Debug)]
pub struct StreamConsumer {
    /// Name of the consumer.
    pub name: Box<[u8]>,
    /// Time of its last request, in Unix milliseconds.
    pub seen_ms: i64,
    /// Time of its last successful delivery, or [`NEVER`].
    pub active_ms: i64,
    pub(super) pending: BTreeSet<StreamId>,
}

impl StreamConsumer {
    /// Returns the number of pending entries that the consumer owns.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the IDs of the pending entries that the consumer owns, ascending.
    pub fn pending_ids(&self) -> impl Iterator<Item = StreamId> {
        self.pending.iter().copied()
    }
}
