//! Decides whether to delay a sync briefly so that it covers more of the waiting clients.
//!
//! If a sync takes long, clients fall into two halves: while the writes of one half are being synced, the
//! other half writes and then has to wait for the whole next sync. Each sync then serves only half of the
//! clients. So before a sync begins, the clients whose replies the last sync released get a moment to write
//! again, unless a sync takes no longer than that moment.
//!
//! A client that still makes this sync gets its reply about one sync earlier, and each waiting client gets its
//! reply later by the length of the delay. So the delay goes on while clients arrive at a rate at which more
//! would arrive during a sync than are already waiting. After a delay that was not worthwhile, the next few
//! syncs are not delayed; their number doubles with each such delay, up to `RESTS_MAX`.

use std::time::Duration;

/// Syncs shorter than this are not delayed, because sleeping costs more than it saves.
const SYNC_MIN: Duration = Duration::from_micros(400);

/// The arrival rate of clients is measured over 1/n of a sync's duration.
const WINDOWS: u32 = 8;

/// Number of times per window to check whether all clients have arrived.
const LOOKS: u32 = 4;

/// Minimum sleep; a shorter sleep costs the system more time than it lasts.
const LOOK_MIN: Duration = Duration::from_micros(50);

/// Maximum number of consecutive syncs that are not delayed after delays that were not worthwhile.
const RESTS_MAX: u32 = 64;

/// State for deciding whether to delay a sync; see the module.
#[derive(Clone, Copy, Default)]
pub(super) struct GroupCommitDelay {
    /// Durations of the last two syncs.
    spent: [Duration; 2],
    /// Number of clients that were waiting when the last sync ended, including those that it released.
    crowd: usize,
    /// Number of coming syncs not to delay, and (`rests_next`) the number not to delay after the next delay
    /// that is not worthwhile.
    rests: u32,
    rests_next: u32,
}

impl GroupCommitDelay {
    /// Records the duration of a finished sync and `crowd`, the number of clients that were waiting when it
    /// ended, released ones included.
    pub(super) fn note(&mut self, spent: Duration, crowd: usize) {
        self.spent = [self.spent[1], spent];
        self.crowd = crowd;
    }

    /// Delays a sync until as many clients wait as at the end of the last sync, too few clients arrive, or the
    /// duration of a sync has passed. Returns whether it delayed the sync at all. `waiting` returns the number
    /// of waiting clients; `sleep` returns how long it slept.
    pub(super) fn gather(
        &mut self,
        mut waiting: impl FnMut() -> usize,
        mut sleep: impl FnMut(Duration) -> Duration,
    ) -> bool {
        // Use the shorter of the last two syncs: a single long sync is no evidence of a slow disk.
        let spent = self.spent[0].min(self.spent[1]);
        let first = waiting();
        // A single client does not wait for others.
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
        // If clients arrive at a constant rate regardless of syncs, a delay gains nothing.
        let come = count.saturating_sub(first);
        self.rests_next = match pays(come, 2 * first, passed, spent) {
            true => 0,
            false => (2 * self.rests_next).clamp(1, RESTS_MAX),
        };
        self.rests = self.rests_next;
        true
    }
}

/// True if waiting for `passed` was worth it: `come` clients arrived while `waited` clients were kept waiting.
fn pays(come: usize, waited: usize, passed: Duration, sync: Duration) -> bool {
    come as u128 * sync.as_nanos() > waited as u128 * passed.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(16);
    const LOOK: Duration = Duration::from_micros(500);

    /// Returns for how many checks a sync is delayed if `waiting[i]` clients wait at check `i`, and the last of
    /// these numbers at all later checks.
    fn looks(mut gathering: GroupCommitDelay, waiting: &[usize]) -> u32 {
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

    fn after(spent: [Duration; 2], crowd: usize) -> GroupCommitDelay {
        let mut gathering = GroupCommitDelay::default();
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
        // A sync lasts as long as 32 checks: at one arrival per check, no more clients arrive during a sync
        // than already wait.
        let steady: Vec<usize> = (32..99).collect();
        assert_eq!(looks(gathering, &steady), LOOKS);
        // The number of waiting clients keeps growing, so the delay lasts for its maximum, the duration of a
        // sync.
        let rush: Vec<usize> = (0..99).collect();
        let gathering = after([SYNC, SYNC], 1000);
        assert_eq!(looks(gathering, &rush), WINDOWS * LOOKS);
    }

    #[test]
    fn what_was_of_no_use_is_tried_again_after_more_and_more_syncs() {
        let mut gathering = after([SYNC, SYNC], 50);
        let mut tries_at = Vec::new();
        for sync in 0..200 {
            // 20 clients wait, and only one arrives during the delay.
            let mut waiting = [20, 20, 20, 20, 21].into_iter();
            let mut look = || waiting.next().unwrap_or(21);
            if gathering.gather(&mut look, |time| time) {
                tries_at.push(sync);
            }
        }
        assert_eq!(tries_at, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
        // All clients arrive.
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
