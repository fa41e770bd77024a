//! Deadlines of keys and fields: the items of the timer wheel, and the rebuild of a wheel that is full of stale
//! items.

use super::{Db, WANTS_CHANGES};
use crate::value::Object;
use crate::value::lapse::next_element_deadline;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::table::EntrySlot;
use basalt_core::structures::wheel::Wheel;

/// Returns the first time at which a key with this deadline is expired: the millisecond after it.
///
/// Times are whole milliseconds, rounded down. A key that was set for 20 ms within the millisecond 1000 has the
/// deadline 1020; if it expired when 1020 begins, it would have lived for less than 20 ms: a lock would pass to
/// another owner too early. Redis keeps it through 1020 too.
pub(crate) fn expired_from(deadline_ms: u64) -> u64 {
    deadline_ms.saturating_add(1)
}

/// Returns the time at which the next part of an entry expires: the whole entry, or some of its elements.
#[inline(always)]
pub(crate) fn next_due(entry: EntryRef<'_, Object>) -> Option<u64> {
    match (
        entry.deadline().map(expired_from),
        next_element_deadline(entry),
    ) {
        (Some(whole_ms), Some(field_ms)) => Some(whole_ms.min(field_ms)),
        (whole_ms, field_ms) => whole_ms.or(field_ms),
    }
}

/// Count and mean of the key deadlines in a database.
///
/// The sum is exact however keys are added and removed. Times count from the creation of the database, so that the
/// sum fits a machine word, which is fast to divide, except for deadlines in thousands of years.
#[derive(Debug)]
pub(super) struct Deadlines {
    count: usize,
    sum_ms: i128,
    base_ms: u64,
}

impl Deadlines {
    /// Creates an empty count; `now_ms` is the time that deadlines are counted from.
    pub(super) fn new(now_ms: u64) -> Deadlines {
        Deadlines {
            count: 0,
            sum_ms: 0,
            base_ms: now_ms,
        }
    }

    /// Updates the count and the sum after a key's deadline has changed from `before` to `after`.
    #[inline]
    pub(super) fn change(&mut self, before: Option<u64>, after: Option<u64>) {
        let since_base = |ms: u64| i128::from(ms) - i128::from(self.base_ms);
        let added = after.map_or(0, since_base) - before.map_or(0, since_base);
        self.sum_ms += added;
        self.count += usize::from(after.is_some());
        self.count -= usize::from(before.is_some());
    }

    /// Returns the number of keys with a deadline.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the mean of the deadlines in Unix milliseconds; 0 if no key has a deadline.
    #[inline]
    pub(super) fn mean_ms(&self) -> u64 {
        if self.count == 0 {
            return 0;
        }
        // Signed 64-bit integers convert to floats in one instruction; unsigned ones take several, 128 bits a
        // function call.
        let sum_ms = match i64::try_from(self.sum_ms) {
            Ok(sum_ms) => sum_ms as f64,
            Err(_) => far(self.sum_ms),
        };
        let mean_ms = sum_ms / self.count as i64 as f64;
        self.base_ms.saturating_add_signed(mean_ms as i64)
    }
}

/// Averages a sum that exceeds an `i64`: deadlines in thousands of years. Out of line, or the compiler would convert
/// every sum in this way.
#[cold]
#[inline(never)]
fn far(sum_ms: i128) -> f64 {
    sum_ms as f64
}

/// A new wheel under construction, which will replace one that is full of items whose keys are gone.
///
/// Only eviction cancels items: deleting a key leaves its item until it fires. A workload that sets keys with long
/// deadlines and deletes them soon would pile items up, so the wheel is rebuilt from the keys, some at a time, when
/// it holds several times more items than there are deadlines.
pub(super) struct Sweep {
    wheel: Wheel,
    cursor: u64,
}

/// Items per deadline, beyond [`STALE_ITEMS_MAX`] items, at which a sweep begins.
const STALE_ITEMS_RATIO_MAX: usize = 4;
/// Fixed number of items that is allowed in addition to those per deadline before a sweep begins.
const STALE_ITEMS_MAX: usize = 4096;
/// Like `STALE_ITEMS_RATIO_MAX`, while memory is limited.
const STALE_ITEMS_RATIO_LIMITED: usize = 2;
/// Like `STALE_ITEMS_MAX`, while memory is limited.
const STALE_ITEMS_LIMITED: usize = 256;
/// Keys examined by a sweep in one slice.
const SWEEP_KEYS: usize = 256;

impl Db {
    /// Updates counts and the wheel after the soonest field deadline of a hash has changed.
    pub(super) fn move_field_deadline(
        &mut self,
        hash: u64,
        before: Option<u64>,
        after: Option<u64>,
    ) {
        if before.is_none() && after.is_none() {
            return;
        }
        self.field_volatile_count -= usize::from(before.is_some());
        if let Some(deadline_ms) = after {
            self.field_volatile_count += 1;
            // Only a sooner deadline needs a new item: an item that fires early arms itself again, as for keys.
            if before.is_none_or(|old_ms| deadline_ms < old_ms) {
                self.arm(hash, deadline_ms);
            }
        }
        if before.is_some() != after.is_some() {
            self.publish();
        }
    }

    pub(crate) fn set_deadline(&mut self, place: EntrySlot, hash: u64, deadline: Option<u64>) {
        let before = self.table.at(place).deadline();
        if before == deadline {
            return;
        }
        if self.hooks & WANTS_CHANGES != 0 {
            self.save_deadline(place, hash);
        }
        self.table.edit(place).set_deadline(deadline);
        self.count_deadline(before, deadline);
        self.mark_volatile(place, hash, deadline.is_some());
        if let Some(deadline_ms) = deadline {
            // The old item will find the later deadline when it fires, and arm itself again for that.
            if before.is_none_or(|old| deadline_ms < old) {
                self.arm(hash, expired_from(deadline_ms));
            }
        }
    }

    /// Updates the count and mean of key deadlines. Keys without deadlines, which most writes are about, cost
    /// nothing.
    #[inline]
    pub(super) fn count_deadline(&mut self, before: Option<u64>, after: Option<u64>) {
        if before.is_some() || after.is_some() {
            self.deadlines.change(before, after);
            self.publish_deadlines();
        }
    }

    /// Publishes the count and the mean of key deadlines.
    pub(super) fn publish_deadlines(&self) {
        let db = &self.published.dbs[self.index];
        db.volatile_keys.set(self.deadlines.count() as u64);
        db.deadline_mean_ms.set(self.deadlines.mean_ms());
    }

    pub(super) fn arm(&mut self, hash: u64, due_ms: u64) {
        self.arm_item(due_ms, hash);
        if self.is_stale() {
            // 0 makes the background visit this shard: it looks at shards whose next deadline has passed.
            self.published.next_deadline_ms.set(0);
        }
        if due_ms < self.published.next_deadline_ms.get() {
            self.published.next_deadline_ms.set(due_ms);
        }
    }

    /// Adds an item to the wheel, and to its replacement if there is one.
    pub(crate) fn arm_item(&mut self, due_ms: u64, hash: u64) {
        self.wheel.arm(due_ms, hash);
        if let Some(sweep) = &mut self.sweep {
            sweep.wheel.arm(due_ms, hash);
        }
    }

    /// Removes a key's item from the wheel, if the item is still at the slot of the key's deadline: the key at
    /// `place` is about to be removed, perhaps long before its deadline. An item in another slot fires without
    /// effect, or is dropped by a sweep.
    pub(crate) fn disarm(&mut self, place: EntrySlot) {
        let entry = self.table.at(place);
        let Some(deadline_ms) = entry.deadline() else {
            return;
        };
        let (due_ms, hash) = (expired_from(deadline_ms), self.seed.hash(entry.key()));
        self.wheel.cancel(due_ms, hash);
        if let Some(sweep) = &mut self.sweep {
            sweep.wheel.cancel(due_ms, hash);
        }
    }

    /// Returns the number of keys that need an item in the wheel.
    fn deadline_count(&self) -> usize {
        self.deadlines.count() + self.field_volatile_count
    }

    fn is_stale(&self) -> bool {
        let (ratio, items) = match self.published.is_limited() {
            true => (STALE_ITEMS_RATIO_LIMITED, STALE_ITEMS_LIMITED),
            false => (STALE_ITEMS_RATIO_MAX, STALE_ITEMS_MAX),
        };
        self.wheel.len() > ratio * self.deadline_count() + items
    }

    /// Continues a sweep, or begins one if too many items are stale. Returns true while it is not done.
    pub(crate) fn sweep_slice(&mut self, now_ms: u64) -> bool {
        if self.sweep.is_none() {
            if !self.is_stale() {
                return false;
            }
            self.sweep = Some(Sweep {
                wheel: Wheel::new(now_ms),
                cursor: 0,
            });
        }
        let Db {
            table,
            sweep: Some(sweep),
            seed,
            ..
        } = self
        else {
            return false;
        };
        let Sweep { wheel, cursor } = sweep;
        *cursor = table.scan(*cursor, SWEEP_KEYS, |entry| {
            if let Some(due_ms) = next_due(entry) {
                wheel.arm(due_ms, seed.hash(entry.key()));
            }
        });
        if *cursor != 0 {
            return true;
        }
        if let Some(sweep) = self.sweep.take() {
            self.wheel = sweep.wheel;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_deadlines_stays_exact_however_keys_come_and_go() {
        let now_ms = 1_795_816_832_000;
        let mut deadlines = Deadlines::new(now_ms);
        assert_eq!(deadlines.mean_ms(), 0);
        // Deadlines in the far future and in the past must leave no rounding error in the sum.
        let odd = [0, u64::MAX, 1 << 62, now_ms - 5_000, now_ms];
        for ms in odd {
            deadlines.change(None, Some(ms));
        }
        deadlines.change(None, Some(now_ms + 1_000));
        deadlines.change(Some(now_ms + 1_000), Some(now_ms + 2_000));
        deadlines.change(None, Some(now_ms + 4_000));
        assert_eq!(deadlines.count(), odd.len() + 2);
        assert!(deadlines.mean_ms() > 1 << 61);
        for ms in odd {
            deadlines.change(Some(ms), None);
        }
        assert_eq!(
            (deadlines.count(), deadlines.mean_ms()),
            (2, now_ms + 3_000)
        );
        deadlines.change(Some(now_ms + 2_000), None);
        deadlines.change(Some(now_ms + 4_000), None);
        assert_eq!((deadlines.count(), deadlines.mean_ms()), (0, 0));
    }
}
