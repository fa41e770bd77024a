//! The keys of a replica's database whose deadline was set by a client here, not by the primary.

use std::collections::HashMap;

use basalt_core::structures::wheel::{ITEM, Wheel};

/// Deadlines set on this replica, see the module.
pub(super) struct OwnDeadlines {
    wheel: Wheel,
    /// The time at which the item of each key fires, so that a deadline that is moved repeatedly does not pile up
    /// items.
    armed: HashMap<u64, u64>,
}

impl OwnDeadlines {
    pub(super) fn new(now_ms: u64) -> OwnDeadlines {
        OwnDeadlines {
            wheel: Wheel::new(now_ms),
            armed: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Arms a key's deadline. An item that fires sooner is enough: when it fires, the caller finds that the key is
    /// due later and arms it again.
    pub(super) fn arm(&mut self, due_ms: u64, hash: u64) {
        let item = hash & ITEM;
        let is_armed = self.armed.get(&item).is_some_and(|at_ms| *at_ms <= due_ms);
        if !is_armed {
            self.armed.insert(item, due_ms);
            self.wheel.arm(due_ms, item);
        }
    }

    /// Fires up to `budget` due items. Returns true if there are more.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        budget: usize,
        mut fire: impl FnMut(u64),
    ) -> bool {
        let Self { wheel, armed } = self;
        wheel.advance(now_ms, budget, |item| {
            armed.remove(&item);
            fire(item);
        })
    }

    /// Returns a time before which nothing is due, if anything is armed.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.wheel.next_due_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_is_moved_over_and_over_fires_once() {
        let mut own = OwnDeadlines::new(1_000);
        (0..100).for_each(|step| own.arm(2_000 + step, 5));
        own.arm(1_500, 6);
        let fired = |own: &mut OwnDeadlines, now_ms| {
            let mut fired = Vec::new();
            own.advance(now_ms, 1_000, |item| fired.push(item));
            fired
        };
        assert_eq!(fired(&mut own, 1_600), [6]);
        assert_eq!(fired(&mut own, 3_000), [5]);
        assert!(own.is_empty());
        own.arm(4_000, 5);
        assert_eq!(fired(&mut own, 4_100), [5]);
    }
}
