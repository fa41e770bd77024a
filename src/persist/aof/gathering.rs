//! Whether a sync is put off for a moment, so that it is for more of the clients that wait.
//!
//! Where a sync takes long, clients fall into two halves: while the writes of one are synced the other half writes, and
//! has to wait for the whole next sync. The disk then serves half of them at a time. So before a sync begins, the
//! clients that the last one let go get a moment to write again; not where a sync takes no longer than that moment.
//!
//! A client that still makes this sync is answered about one sync earlier, and each one that waits is answered later by
//! as long as the sync is put off. So it is put off as long as clients come at a rate at which more would come in the
//! time of a sync than wait already.

use std::time::Duration;

/// Syncs that take less are not put off: what is saved is less than what it costs to sleep.
const SYNC_MIN: Duration = Duration::from_micros(400);

/// The rate at which clients come is measured over this part of a sync's time.
const WINDOWS: u32 = 8;

/// In each of them, whether all have come is looked at so often.
const LOOKS: u32 = 4;

/// Shorter sleeps take the system longer than they last.
const LOOK_MIN: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct Gathering {
    /// How long the last two syncs took.
    spent: [Duration; 2],
    /// Who waited when the last one was over, whether it let them go or not.
    crowd: usize,
}

impl Gathering {
    /// A sync is over, of which so many heard or for which they wait further.
    pub(super) fn note(&mut self, spent: Duration, crowd: usize) {
        self.spent = [self.spent[1], spent];
        self.crowd = crowd;
    }

    /// Waits until as many wait as the last time, too few come, or the time of a sync has passed. Whether it waited at
    /// all. `sleep` tells how long it slept.
    pub(super) fn gather(
        &self,
        mut waiting: impl FnMut() -> usize,
        mut sleep: impl FnMut(Duration) -> Duration,
    ) -> bool {
        // One that took long for once says nothing.
        let spent = self.spent[0].min(self.spent[1]);
        let mut count = waiting();
        if spent < SYNC_MIN || count >= self.crowd {
            return false;
        }
        let window = spent / WINDOWS;
        let look = (window / LOOKS).max(LOOK_MIN);
        let mut passed = Duration::ZERO;
        while passed < spent {
            let (before, began) = (count, passed);
            while passed - began < window {
                passed += sleep(look);
                count = waiting();
                if count >= self.crowd {
                    return true;
                }
            }
            let come = count.saturating_sub(before) as u128;
            if come * spent.as_nanos() <= count as u128 * (passed - began).as_nanos() {
                break;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(16);
    const LOOK: Duration = Duration::from_micros(500);

    /// How often a sync is put off by a look if so many wait at each, and for ever as many as at the last.
    fn looks(gathering: &Gathering, waiting: &[usize]) -> u32 {
        let mut at = 0;
        let mut sleeps = 0;
        let is_put_off = gathering.gather(
            || {
                at += 1;
                waiting[(at - 1).min(waiting.len() - 1)]
            },
            |time| {
                assert_eq!(time, LOOK);
                sleeps += 1;
                time
            },
        );
        assert_eq!(is_put_off, sleeps > 0);
        sleeps
    }

    fn after(spent: [Duration; 2], crowd: usize) -> Gathering {
        let mut gathering = Gathering::default();
        for spent in spent {
            gathering.note(spent, crowd);
        }
        gathering
    }

    #[test]
    fn a_sync_is_put_off_for_those_who_are_coming() {
        let gathering = after([SYNC, SYNC], 50);
        assert_eq!(looks(&gathering, &[25, 40, 50]), 2, "all are there");
        assert_eq!(looks(&gathering, &[60]), 0);
        assert_eq!(looks(&after([SYNC, SYNC], 1), &[1]), 0, "one alone");
        assert_eq!(looks(&gathering, &[20]), LOOKS, "nobody comes");
        assert_eq!(
            looks(&gathering, &[20, 20, 20, 20, 23]),
            2 * LOOKS,
            "nobody comes any more"
        );
    }

    #[test]
    fn a_sync_is_not_put_off_for_those_who_come_now_and_then() {
        let gathering = after([SYNC, SYNC], 100);
        // 32 looks are the time of a sync: at one a look no more come in it than wait.
        let steady: Vec<usize> = (32..99).collect();
        assert_eq!(looks(&gathering, &steady), LOOKS);
        // It takes too long, but more and more come.
        let rush: Vec<usize> = (0..99).collect();
        let gathering = after([SYNC, SYNC], 1000);
        assert_eq!(looks(&gathering, &rush), WINDOWS * LOOKS);
    }

    #[test]
    fn a_sync_that_takes_no_time_is_not_put_off() {
        let short = Duration::from_micros(300);
        for spent in [[short, short], [SYNC, short], [short, SYNC]] {
            assert_eq!(looks(&after(spent, 50), &[1]), 0);
        }
    }
}
