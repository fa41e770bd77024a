//! In which order keys go under the LRU and LFU policies: S3-FIFO, fitted onto the table.
//!
//! A new key stands in a small queue at first. If it was not used by the time it comes to the front, it goes, and only
//! eight bits of its hash are remembered; most keys of most workloads are used once, and this is how little they get.
//! If it was used, it belongs to the main part. There a hand goes round the table in hash order: a key that was used
//! since the hand last came by is spared once for each use, up to three; one that was not goes. So a scan passes
//! through the small queue, and what is used often stays.
//!
//! ```text
//!                 used ┌──▶ main: the table itself, a hand goes round ──▶ gone
//! new ──▶ small queue ─┤
//!  ▲                   └──▶ gone, its fingerprint noted ──┐
//!  └────────────── comes again: counts as used ───────────┘
//! ```
//!
//! Whatever is known of its name, a key that comes goes through the queue: the hand could stand just before it, and in
//! the main part it would be gone as soon as it is written. A key whose fingerprint is noted counts as used once. Under
//! the policies for keys with deadlines, a key comes when it gets its deadline.
//!
//! All that a key takes for it are seven bits in its slot, which are there anyway:
//!
//! ```text
//! bits 0-1 uses, counted by the table | 2 in the small queue | 3 has a deadline | 4-5 size class | 6 held lock
//! ```
//!
//! and beside that 4 bytes for each key in the queue, a tenth or a fifth of all, and a byte for each of the ghosts,
//! which are half as many as keys. The [`Queue`] knows which of its words stand for keys that are gone. The hand
//! reads seven slots in a line and no entry but the one that goes.
//!
//! With the size rule, a key that is larger than twice, eight times, 32 times the average counts one, two, three uses
//! less: more keys find room, at the cost of some bytes that would have been hit.
//!
//! An order begins when memory becomes scarce. What is in the table by then belongs to the main part, which is what the
//! bits say if they were never written.

use super::Policy;
use super::queue::Queue;
use crate::published::Published;
use basalt_core::structures::ghost::Ghost;

/// Uses since the hand came by.
pub(super) const USES: u8 = 3;
/// The key stands in the small queue.
pub(crate) const SMALL_BIT: u8 = 1 << 2;
/// The key has a deadline.
pub(crate) const VOLATILE_BIT: u8 = 1 << 3;
/// The key is a lock that is held: it never goes for want of memory.
pub(crate) const HELD_BIT: u8 = 1 << 6;
const CLASS_SHIFT: u32 = 4;
const CLASS: u8 = 3 << CLASS_SHIFT;

/// Slots that the hand passes for one eviction before the best seen so far goes.
pub(super) const SLOTS_PER_EVICTION: usize = 256;

/// How often that many are tried if there is no candidate among them.
pub(super) const ROUNDS_MAX: usize = 4;

/// Keys looked at from the front of the queue for one eviction.
pub(super) const FRONT_MAX: usize = 64;

/// The queue may hold this many keys more than half of all.
const QUEUE_SLACK: usize = 256;

/// Keys that leave a queue which is too long, for each that comes.
pub(super) const SETTLED_PER_INSERT: usize = 2;

/// Ghosts for each 100 keys.
const GHOSTS_PERCENT: usize = 50;

/// What a policy asks of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Only keys with a deadline go.
    pub(super) volatile_only: bool,
    /// Percent of keys that stand in the small queue.
    pub(super) share_percent: usize,
    /// Larger values go earlier.
    pub(super) by_size: bool,
}

impl Rules {
    /// Whether a key with these bits may go.
    pub(super) fn may_go(self, bits: u8) -> bool {
        bits & HELD_BIT == 0 && (!self.volatile_only || bits & VOLATILE_BIT != 0)
    }

    /// The rules of a policy, if it is one of order.
    pub(super) fn of(policy: Policy, by_size: bool) -> Option<Rules> {
        let share_percent = match policy {
            Policy::AllkeysLru | Policy::VolatileLru => 20,
            Policy::AllkeysLfu | Policy::VolatileLfu => 10,
            _ => return None,
        };
        Some(Rules {
            volatile_only: policy.is_volatile_only(),
            share_percent,
            by_size,
        })
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Order {
    /// None: the policy is another one now, and the queue is being emptied.
    pub(super) rules: Option<Rules>,
    /// New keys, the oldest in front.
    pub(super) small: Queue,
    pub(super) hand: u64,
    pub(super) ghost: Ghost,
}

impl Order {
    /// The access bits of a key that was not there before; it has `bits` already.
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

    /// The access bits of a key that does not stand in the queue and may be new to the order: from now on it does, if
    /// the policy may let it go at all.
    pub(crate) fn enter(&mut self, hash: u64, bits: u8, published: &Published) -> u8 {
        let may_go = |rules: Rules| !rules.volatile_only || bits & VOLATILE_BIT != 0;
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

    /// A key that stands in the queue leaves the table.
    pub(crate) fn depart(&mut self, hash: u64) {
        self.small.depart(hash);
    }

    /// Whether only keys with a deadline are kept in order.
    pub(crate) fn is_volatile_only(&self) -> bool {
        self.rules.is_some_and(|rules| rules.volatile_only)
    }

    /// Fetches into the cache what [`Order::note_new`] will look at.
    pub(crate) fn prefetch_new(&self, hash: u64) {
        self.ghost.prefetch(hash);
    }

    /// Keys that the queue may hold out of so many before some of them settle.
    pub(super) fn queue_max(&self, keys: usize) -> usize {
        match self.rules {
            Some(_) => keys / 2 + QUEUE_SLACK,
            None => 0,
        }
    }

    /// Where the hand stands.
    #[cfg(test)]
    pub(super) fn hand(&self) -> u64 {
        self.hand
    }

    /// Whether the size of values matters.
    pub(crate) fn is_by_size(&self) -> bool {
        self.rules.is_some_and(|rules| rules.by_size)
    }

    pub(super) fn fit_ghosts(&mut self, keys: usize) {
        let wanted = keys * GHOSTS_PERCENT / 100;
        let has = self.ghost.capacity();
        // Within a quarter, or a bucket, it is good enough.
        if wanted.abs_diff(has) > has / 4 + 8 {
            self.ghost.resize(wanted);
        }
    }
}

/// Bits with another size class, for an entry of so many bytes in a shard that takes `used` for so many keys.
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

/// Bits of an entry that has this size class from now on.
pub(crate) fn with_class(bits: u8, class: u8) -> u8 {
    bits & !CLASS | class << CLASS_SHIFT
}

/// Uses less what is taken off for size.
pub(super) fn worth(bits: u8) -> i8 {
    (bits & USES) as i8 - ((bits & CLASS) >> CLASS_SHIFT) as i8
}
