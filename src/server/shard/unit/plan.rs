//! The plan of a unit's run, and of its rerun after a rollback.

use crate::script::footprint::Outcome;
use crate::shard::ownership::ShardList;
use crate::shard::route;

/// The reason for a unit's rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The unit needs a shard that another thread has locked.
    MissingShards,
    /// The unit calls a command that needs all shards.
    NeedsAllShards,
    /// The unit would change a value that is too large to be copied.
    TooLargeToUndo,
    /// The unit takes too long for a connection's thread.
    TooSlow,
}

/// Maximum number of rollbacks for lack of a shard before the unit gets all shards.
const RERUNS_MAX: u8 = 3;

/// The plan of a unit; see the module.
#[derive(Clone, Debug, Default)]
pub struct UnitPlan {
    /// The shards to lock before the unit begins, ascending.
    pub shards: ShardList,
    /// True if the unit cannot need any other shards.
    pub is_complete: bool,
    /// True if the unit runs with all shards locked, and keeps no undo log.
    pub is_irrevocable: bool,
    /// True if the unit runs on a separate thread.
    pub is_offloaded: bool,
    /// Number of rollbacks for lack of a shard.
    pub reruns: u8,
    /// Indices of the unit's scripts that were killed: in a rerun, they end at once.
    pub killed: Vec<usize>,
    /// Statistics of the runs so far.
    pub outcome: Outcome,
    /// The hash tag that the script's keys share, if known from earlier runs.
    pub tag: Option<u64>,
}

impl UnitPlan {
    /// Creates a plan with these initial shards, in any order.
    #[inline]
    pub fn with(shards: impl IntoIterator<Item = u16>) -> UnitPlan {
        UnitPlan {
            shards: route::in_order(shards),
            ..UnitPlan::default()
        }
    }

    /// Makes the unit run on a separate thread, if `is_slow`.
    #[must_use]
    pub fn offloaded_if(mut self, is_slow: bool) -> UnitPlan {
        self.is_offloaded = is_slow;
        self
    }

    /// Creates a plan with all shards, on a separate thread, without rollback, for a unit whose effects cannot
    /// be undone.
    pub fn irrevocable(count: u16) -> UnitPlan {
        UnitPlan {
            shards: (0..count).collect(),
            is_irrevocable: true,
            is_offloaded: true,
            ..UnitPlan::default()
        }
    }

    /// Adapts the plan for the next run after a rollback.
    pub fn after(&mut self, abort: Abort, in_hand: &[u16], missing: &[u16], count: u16) {
        self.outcome.reruns += 1;
        self.outcome.was_slow |= abort == Abort::TooSlow;
        match abort {
            Abort::MissingShards => {
                self.reruns += 1;
                self.shards = route::in_order(in_hand.iter().chain(missing).copied());
            }
            Abort::NeedsAllShards => self.shards = (0..count).collect(),
            Abort::TooLargeToUndo => {
                let outcome = std::mem::take(&mut self.outcome);
                *self = UnitPlan::irrevocable(count);
                self.outcome = outcome;
            }
            Abort::TooSlow => {
                self.is_offloaded = true;
                self.shards = in_hand.into();
            }
        }
        if self.reruns > RERUNS_MAX {
            self.shards = (0..count).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_misses_shards_gets_them_and_in_the_end_all() {
        let mut plan = UnitPlan::with(vec![3, 1, 3]);
        assert_eq!(plan.shards[..], [1, 3]);
        plan.after(Abort::MissingShards, &[1, 3], &[2], 8);
        assert_eq!(
            (&plan.shards[..], plan.is_offloaded),
            (&[1, 2, 3][..], false)
        );
        for _ in 0..RERUNS_MAX {
            plan.after(Abort::MissingShards, &[1, 2, 3], &[5], 8);
        }
        assert_eq!(plan.shards[..], [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_slow_unit_keeps_what_it_had_and_one_that_cannot_be_undone_gets_all() {
        let mut plan = UnitPlan::with(vec![]);
        plan.after(Abort::TooSlow, &[4], &[], 8);
        assert_eq!((&plan.shards[..], plan.is_offloaded), (&[4][..], true));
        plan.after(Abort::TooLargeToUndo, &[4], &[], 2);
        assert_eq!((&plan.shards[..], plan.is_irrevocable), (&[0, 1][..], true));
    }
}
