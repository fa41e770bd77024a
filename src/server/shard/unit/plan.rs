//! How a unit runs, and how it runs again after it was rolled back.

use crate::script::footprint::Outcome;
use crate::shard::ownership::ShardList;
use crate::shard::route;

/// Why a unit had to be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// A shard that it needs is held.
    MissingShards,
    /// The unit calls a command that needs all shards.
    NeedsAllShards,
    /// The unit would change what is too large to be copied.
    TooLargeToUndo,
    /// The unit takes too long for the thread of a connection.
    TooSlow,
}

/// Runs that may be rolled back for want of a shard before the unit gets all of them.
const RERUNS_MAX: u8 = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct UnitPlan {
    /// The shards that it gets before it begins, ascending.
    pub shards: ShardList,
    /// The unit can come to need no others.
    pub is_complete: bool,
    /// The unit has all shards, and nothing is kept to undo it.
    pub is_irrevocable: bool,
    /// The unit runs on a thread of its own.
    pub is_offloaded: bool,
    /// Times that it was rolled back for want of a shard.
    pub reruns: u8,
    /// The scripts in it that were killed, by their numbers: they end at once when it runs again.
    pub killed: Vec<usize>,
    /// How the runs went so far.
    pub outcome: Outcome,
    /// The number of its script, where it is known already.
    pub tag: Option<u64>,
}

impl UnitPlan {
    /// With these shards to begin with, in any order.
    #[inline]
    pub fn with(shards: impl IntoIterator<Item = u16>) -> UnitPlan {
        UnitPlan {
            shards: route::in_order(shards),
            ..UnitPlan::default()
        }
    }

    /// Has it run on a thread of its own, if that is known to be better.
    #[must_use]
    pub fn offloaded_if(mut self, is_slow: bool) -> UnitPlan {
        self.is_offloaded = is_slow;
        self
    }

    /// With all shards, on a thread of its own, never rolled back: for what cannot be undone.
    pub fn irrevocable(count: u16) -> UnitPlan {
        UnitPlan {
            shards: (0..count).collect(),
            is_irrevocable: true,
            is_offloaded: true,
            ..UnitPlan::default()
        }
    }

    /// The unit was rolled back: changes to the plan of its next run.
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
