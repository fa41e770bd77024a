//! The order of eviction under the LRU and LFU policies: S3-FIFO, adapted to the table.
//!
//! A new key starts in a small queue. If it was not used by the time it reaches the front, it is evicted, and only
//! eight bits of its hash are remembered; most keys of most workloads are used once, and this is how little they
//! cost. If it was used, it moves to the main part. There a clock hand goes round the table in hash order: a key
//! that was used since the hand last passed is spared once for each use, up to three; an unused one is evicted. So
//! a scan passes through the small queue, and frequently used keys stay.
//!
//! ```text
//!                 used ┌──▶ main: the table itself, a hand goes round ──▶ evicted
//! new ──▶ small queue ─┤
//!  ▲                   └──▶ evicted, its fingerprint noted ──┐
//!  └────────────── comes again: counts as used ──────────────┘
//! ```
//!
//! A key that is added goes through the queue even if its fingerprint is known: the hand could be just before it,
//! and in the main part it would be evicted as soon as it is written. A key with a known fingerprint counts as used
//! once. Under the policies for keys with deadlines, a key is added when it gets its deadline.
//!
//! The state of a key is seven bits in its slot, which exist anyway:
//!
//! ```text
//! bits 0-1 uses, counted by the table | 2 in the small queue | 3 has a deadline | 4-5 size class | 6 held lock
//! ```
//!
//! In addition, each key in the queue takes 4 bytes (a tenth or a fifth of all keys are in the queue), and each
//! ghost, a remembered eviction, a byte; there are half as many ghosts as keys. The [`NewKeyQueue`] knows which of its
//! entries refer to keys that are gone. The clock hand reads seven slots in one cache line, and no entry except the
//! one that is evicted.
//!
//! With the size rule, a key that is larger than twice, eight times, 32 times the average counts one, two, three
//! uses less: more keys fit, at the cost of some bytes that would have been hit.
//!
//! An order begins when memory becomes scarce. Keys already in the table belong to the main part, because access bits
//! that were never written mean just that.

use super::Policy;
use super::queue::NewKeyQueue;
use crate::published::Published;
use basalt_core::structures::ghost::Ghost;

/// The access bits that hold the number of uses since the clock hand last passed.
pub(super) const USES: u8 = 3;
/// The key is in the small queue.
pub(crate) const SMALL_BIT: u8 = 1 << 2;
/// The key has a deadline.
pub(crate) const VOLATILE_BIT: u8 = 1 << 3;
/// The key is a held lock and never evicted.
pub(crate) const HELD_BIT: u8 = 1 << 6;
const CLASS_SHIFT: u32 = 4;
const CLASS: u8 = 3 << CLASS_SHIFT;

/// Slots that the clock hand passes for one eviction before the best candidate so far is evicted.
pub(super) const SLOTS_PER_EVICTION: usize = 256;

/// Number of rounds of `SLOTS_PER_EVICTION` slots, while no candidate is found, before giving up.
pub(super) const ROUNDS_MAX: usize = 4;

/// Keys examined from the front of the queue for one eviction.
pub(super) const FRONT_MAX: usize = 64;

/// Number of keys by which the queue may exceed half of all keys.
const QUEUE_SLACK: usize = 256;

/// Keys that leave an overlong queue, for each insertion.
pub(super) const SETTLED_PER_INSERT: usize = 2;

/// Remembered evictions (ghosts) per 100 keys.
const GHOSTS_PERCENT: usize = 50;

/// The parameters of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionParams {
    /// True if only keys with a deadline are evicted.
    pub(super) volatile_only: bool,
    /// Percentage of keys in the small queue.
    pub(super) share_percent: usize,
    /// True if larger values are evicted earlier.
    pub(super) by_size: bool,
}

impl EvictionParams {
    /// True if a key with these access bits may be evicted.
    pub(super) fn may_go(self, bits: u8) -> bool {
        bits & HELD_BIT == 0 && (!self.volatile_only || bits & VOLATILE_BIT != 0)
    }

    /// Returns the rules of a policy; None if the policy does not order keys (it is neither LRU nor LFU).
    pub(super) fn of(policy: Policy, by_size: bool) -> Option<EvictionParams> {
        let share_percent = match policy {
            Policy::AllkeysLru | Policy::VolatileLru => 20,
            Policy::AllkeysLfu | Policy::VolatileLfu => 10,
            _ => return None,
        };
        Some(EvictionParams {
            volatile_only: policy.is_volatile_only(),
            share_percent,
            by_size,
        })
    }
}

/// The eviction order of a database, see the module.
#[derive(Default)]
pub(crate) struct Order {
    /// The rules of the policy; None after the policy has changed, while the queue is being emptied.
    pub(super) rules: Option<EvictionParams>,
    /// New keys, the oldest at the front.
    pub(super) small: NewKeyQueue,
    pub(super) hand: u64,
    pub(super) ghost: Ghost,
}

impl Order {
    /// Returns the access bits for a key that did not exist before; `bits` are already set.
    pub(crate) fn note_new(&mut self, hash: u64, bits: u8, class: u8, published: &Published) -> u8 {
        let Some(rules) = self.rules else {
            return bits;
        };
        let bits = match rules.by_size {
            true => bits | class << CLASS_SHIFT,
            false => bits,
        };
        self.enter(hash, bits, published)
    }

    /// Returns the access bits for a key that is not in the queue and may be new to the order. Adds it to the
    /// queue, if the policy may evict it at all.
    pub(crate) fn enter(&mut self, hash: u64, bits: u8, published: &Published) -> u8 {
        let may_go = |rules: EvictionParams| !rules.volatile_only || bits & VOLATILE_BIT != 0;
        if !self.rules.is_some_and(may_go) {
            return bits;
        }
        let mut bits = bits | SMALL_BIT;
        if self.ghost.take(hash) {
            published.ghost_hits.add(1);
            bits |= u8::from(bits & USES == 0);
        }
        self.small.push(hash);
        bits
    }

    /// Notes that a key in the queue leaves the table.
    pub(crate) fn depart(&mut self, hash: u64) {
        self.small.depart(hash);
    }

    /// True if only keys with a deadline are ordered.
    pub(crate) fn is_volatile_only(&self) -> bool {
        self.rules.is_some_and(|rules| rules.volatile_only)
    }

    /// Prefetches the memory that [`Order::note_new`] reads.
    pub(crate) fn prefetch_new(&self, hash: u64) {
        self.ghost.prefetch(hash);
    }

    /// Returns the maximum length of the queue for a number of keys; beyond that length some keys leave the queue.
    pub(super) fn queue_max(&self, keys: usize) -> usize {
        match self.rules {
            Some(_) => keys / 2 + QUEUE_SLACK,
            None => 0,
        }
    }

    /// Returns the position of the clock hand, as a hash.
    #[cfg(test)]
    pub(super) fn hand(&self) -> u64 {
        self.hand
    }

    /// True if larger values are evicted earlier.
    pub(crate) fn is_by_size(&self) -> bool {
        self.rules.is_some_and(|rules| rules.by_size)
    }

    pub(super) fn fit_ghosts(&mut self, keys: usize) {
        let wanted = keys * GHOSTS_PERCENT / 100;
        let has = self.ghost.capacity();
        // A size within a quarter, or a bucket, of the wanted one is close enough.
        if wanted.abs_diff(has) > has / 4 + 8 {
            self.ghost.resize(wanted);
        }
    }
}

/// Returns the size bucket (0 to 3, by the ratio to the average) of an entry of `bytes` bytes in a shard that uses
/// `used` bytes for `keys` keys.
pub(crate) fn size_class(bytes: usize, used: i64, keys: usize) -> u8 {
    let (whole, average) = (
        (bytes as u64).saturating_mul(keys as u64),
        used.max(0) as u64,
    );
    match whole {
        whole if whole <= average.saturating_mul(2) => 0,
        whole if whole <= average.saturating_mul(8) => 1,
        whole if whole <= average.saturating_mul(32) => 2,
        _ => 3,
    }
}

/// Returns the access bits with another size bucket.
pub(crate) fn with_class(bits: u8, class: u8) -> u8 {
    bits & !CLASS | class << CLASS_SHIFT
}

/// Returns the number of uses in the access bits, reduced by the size bucket.
pub(super) fn worth(bits: u8) -> i8 {
    (bits & USES) as i8 - ((bits & CLASS) >> CLASS_SHIFT) as i8
}
