//! Whether a sync is put off for a moment, so that it is for more of the clients that wait.
//!
//! Where a sync takes long, clients fall into two halves: while the writes of one are synced the other half writes, and
//! has to wait for the whole next sync. The disk then serves half of them at a time. So before a sync begins, the
//! clients that the last one let go get a moment to write again; not where a sync takes no longer than that moment.
//!
//! A client that still makes this sync is answered about one sync earlier, and each one that waits is answered later by
//! as long as the sync is put off. So it is put off as long as clients come at a rate at which more would come in the
//! time of a sync than wait already; where that was of no use it is tried again only after some syncs, more each time.

use std::time::Duration;

/// Syncs that take less are not put off: what is saved is less than what it costs to sleep.
const SYNC_MIN: Duration = Duration::from_micros(400);

/// The rate at which clients come is measured over this part of a sync's time.
const WINDOWS: u32 = 8;

/// In each of them, whether all have come is looked at so often.
const LOOKS: u32 = 4;

/// Shorter sleeps take the system longer than they last.
const LOOK_MIN: Duration = Duration::from_micros(50);

/// The most syncs that are not put off, one after the other, where to put off the one before was of no use.
const RESTS_MAX: u32 = 64;

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct Gathering {
    /// How long the last two syncs took.
    spent: [Duration; 2],
    /// Who waited when the last one was over, whether it let them go or not.
    crowd: usize,
    /// How many are not put off now, and how many the next time that it is of no use.
    rests: u32,
    rests_next: u32,
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
        &mut self,
        mut waiting: impl FnMut() -> usize,
        mut sleep: impl FnMut(Duration) -> Duration,
    ) -> bool {
        // One that took long for once says nothing.
        let spent = self.spent[0].min(self.spent[1]);
        let first = waiting();
        // One alone is not waited for by itself.
        if spent < SYNC_MIN || self.crowd <= 1 || first >= self.crowd {
            return false;
        }
        if self.rests > 0 {
            self.rests -= 1;
            return false;
        }
        let window = spent / WINDOWS;
        let look = (window / LOOKS).max(LOOK_MIN);
        let (mut count, mut passed) = (first, Duration::ZERO);
        while passed < spent {
            let (before, began) = (count, passed);
            while passed - began < window && count < self.crowd {
                passed += sleep(look);
                count = waiting();
            }
            let come = count.saturating_sub(before);
            if count >= self.crowd || !pays(come, count, passed - began, spent) {
                break;
            }
        }
        // Those who come now and then are about as many in any time.
        let come = count.saturating_sub(first);
        self.rests_next = match pays(come, 2 * first, passed, spent) {
            true => 0,
            false => (2 * self.rests_next).clamp(1, RESTS_MAX),
        };
        self.rests = self.rests_next;
        true
    }
}

/// Whether it pays that so many were waited for, while others waited already, for so long.
fn pays(come: usize, waited: usize, passed: Duration, sync: Duration) -> bool {
    come as u128 * sync.as_nanos() > waited as u128 * passed.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(16);
    const LOOK: Duration = Duration::from_micros(500);

    /// How often a sync is put off by a look if so many wait at each, and for ever as many as at the last.
    fn looks(mut gathering: Gathering, waiting: &[usize]) -> u32 {
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
        assert_eq!(looks(gathering, &[25, 40, 50]), 2, "all are there");
        assert_eq!(looks(gathering, &[60]), 0);
        assert_eq!(looks(after([SYNC, SYNC], 1), &[1]), 0, "one alone");
        assert_eq!(looks(gathering, &[20]), LOOKS, "nobody comes");
        assert_eq!(
            looks(gathering, &[20, 20, 20, 20, 23]),
            2 * LOOKS,
            "nobody comes any more"
        );
    }

    #[test]
    fn a_sync_is_not_put_off_for_those_who_come_now_and_then() {
        let gathering = after([SYNC, SYNC], 100);
        // 32 looks are the time of a sync: at one a look no more come in it than wait.
        let steady: Vec<usize> = (32..99).collect();
        assert_eq!(looks(gathering, &steady), LOOKS);
        // It takes too long, but more and more come.
        let rush: Vec<usize> = (0..99).collect();
        let gathering = after([SYNC, SYNC], 1000);
        assert_eq!(looks(gathering, &rush), WINDOWS * LOOKS);
    }

    #[test]
    fn what_was_of_no_use_is_tried_again_after_more_and_more_syncs() {
        let mut gathering = after([SYNC, SYNC], 50);
        let mut tries_at = Vec::new();
        for sync in 0..200 {
            // 20 wait, and one comes in a while.
            let mut waiting = [20, 20, 20, 20, 21].into_iter();
            let mut look = || waiting.next().unwrap_or(21);
            if gathering.gather(&mut look, |time| time) {
                tries_at.push(sync);
            }
        }
        assert_eq!(tries_at, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
        // All come.
        assert!((0..=RESTS_MAX).any(|_| {
            let mut waiting = [20, 40].into_iter();
            gathering.gather(|| waiting.next().unwrap_or(50), |time| time)
        }));
        let mut waiting = [20, 40].into_iter();
        assert!(gathering.gather(|| waiting.next().unwrap_or(50), |time| time));
    }

    #[test]
    fn a_sync_that_takes_no_time_is_not_put_off() {
        let short = Duration::from_micros(300);
        for spent in [[short, short], [SYNC, short], [short, SYNC]] {
            assert_eq!(looks(after(spent, 50), &[1]), 0);
        }
    }
}
