//! On what terms a unit runs, and on which ones it runs again after it was undone.

use std::cell::Cell;

use crate::script::footprint::Outcome;

/// Why a unit had to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Somebody has a shard that it needs.
    Lacks,
    /// It calls a command that needs all shards.
    NeedsAll,
    /// It would change what is too large to be copied.
    NeedsBare,
    /// It takes too long for the thread of a connection.
    Slow,
}

/// Runs that may be undone for want of a shard before the unit gets all of them.
const RERUNS_MAX: u8 = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The shards that it gets before it begins, ascending.
    pub shards: Vec<u16>,
    /// It has all shards, and nothing is kept to undo it.
    pub is_bare: bool,
    /// It runs on a thread of its own.
    pub is_apart: bool,
    /// How often it was undone for want of a shard.
    pub reruns: u8,
    /// How the runs went so far.
    pub outcome: Outcome,
    /// The number of its script, where it is known already.
    pub tag: Option<u64>,
}

/// Shards of a unit for which room is kept.
const SPARE_MAX: usize = 64;

thread_local! {
    /// Room for the shards of a unit.
    static SPARE: Cell<Vec<u16>> = const { Cell::new(Vec::new()) };
}

impl Terms {
    /// With these shards to begin with, in any order, in room that [`Terms::end`] leaves.
    #[inline]
    pub fn with_all(shards: impl Iterator<Item = u16>) -> Terms {
        let mut room = SPARE.take();
        room.clear();
        room.extend(shards);
        Terms::with(room)
    }

    /// The unit is done.
    #[inline]
    pub fn end(mut self) {
        if self.shards.capacity() <= SPARE_MAX {
            SPARE.set(std::mem::take(&mut self.shards));
        }
    }

    /// With these shards to begin with, in any order.
    #[inline]
    pub fn with(mut shards: Vec<u16>) -> Terms {
        if shards.len() > 1 {
            shards.sort_unstable();
            shards.dedup();
        }
        Terms {
            shards,
            ..Terms::default()
        }
    }

    /// The same on a thread of its own, if that is known to be better.
    #[must_use]
    pub fn apart_if(mut self, is_slow: bool) -> Terms {
        self.is_apart = is_slow;
        self
    }

    /// With all shards, on a thread of its own, never undone: for what cannot be undone.
    pub fn bare(count: u16) -> Terms {
        Terms {
            shards: (0..count).collect(),
            is_bare: true,
            is_apart: true,
            ..Terms::default()
        }
    }

    /// The unit was undone: the terms of its next run.
    pub fn after(&mut self, stop: Stop, in_hand: &[u16], lacks: &[u16], count: u16) {
        self.outcome.reruns += 1;
        self.outcome.was_slow |= stop == Stop::Slow;
        match stop {
            Stop::Lacks => {
                self.reruns += 1;
                self.shards = in_hand.iter().chain(lacks).copied().collect();
            }
            Stop::NeedsAll => self.shards = (0..count).collect(),
            Stop::NeedsBare => {
                let outcome = std::mem::take(&mut self.outcome);
                *self = Terms::bare(count);
                self.outcome = outcome;
            }
            Stop::Slow => {
                self.is_apart = true;
                self.shards = in_hand.to_vec();
            }
        }
        if self.reruns > RERUNS_MAX {
            self.shards = (0..count).collect();
        }
        self.shards.sort_unstable();
        self.shards.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_lacks_shards_gets_them_and_in_the_end_all() {
        let mut terms = Terms::with(vec![3, 1, 3]);
        assert_eq!(terms.shards, [1, 3]);
        terms.after(Stop::Lacks, &[1, 3], &[2], 8);
        assert_eq!((&terms.shards[..], terms.is_apart), (&[1, 2, 3][..], false));
        for _ in 0..RERUNS_MAX {
            terms.after(Stop::Lacks, &[1, 2, 3], &[5], 8);
        }
        assert_eq!(terms.shards, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_slow_unit_keeps_what_it_had_and_one_that_cannot_be_undone_gets_all() {
        let mut terms = Terms::with(vec![]);
        terms.after(Stop::Slow, &[4], &[], 8);
        assert_eq!((&terms.shards[..], terms.is_apart), (&[4][..], true));
        terms.after(Stop::NeedsBare, &[4], &[], 2);
        assert_eq!((&terms.shards[..], terms.is_bare), (&[0, 1][..], true));
    }
}
