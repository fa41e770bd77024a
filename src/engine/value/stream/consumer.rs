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

/// When an entry was delivered that its group was given back first: before all times that there are. The next one is a
/// millisecond later, so that what was given back is pending for longest, the first of it before the others.
const RETURNED_FIRST_MS: i64 = i64::MIN / 2;

/// As many deliveries as can be said.
pub const DELIVERIES_MAX: u64 = i64::MAX as u64;

impl Pending {
    /// Of an entry that its group was given back, as the one of this number, counted from 0.
    pub(super) fn returned(number: u64, deliveries: u64) -> Pending {
        Pending {
            delivered_ms: RETURNED_FIRST_MS + i64::try_from(number).unwrap_or(0),
            deliveries,
            consumer: ConsumerId::NOBODY,
        }
    }

    /// Whether its group was given it back, so that no consumer owns it.
    pub fn is_returned(&self) -> bool {
        self.consumer == ConsumerId::NOBODY
    }

    /// When it was last delivered, as clients are told: at no time, if no consumer owns it.
    pub fn shown_ms(&self) -> i64 {
        self.delivered_ms.max(0)
    }

    /// How often it was delivered once it is so again.
    pub fn deliveries_with(&self, more: u64) -> u64 {
        let most = self.deliveries.max(DELIVERIES_MAX);
        self.deliveries.saturating_add(more).min(most)
    }
}

/// A consumer's place in its group, good until the consumer is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerId(pub(super) u32);

impl ConsumerId {
    /// No consumer: the group was given the entry back.
    pub const NOBODY: ConsumerId = ConsumerId(u32::MAX);
}

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
