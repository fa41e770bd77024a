//! Whether a sync is put off for a moment, so that it is for more of the clients that wait.
//!
//! Where a sync takes long, clients fall into two halves: while the writes of one are synced the other half writes, and
//! has to wait for the whole next sync. The disk then serves half of them at a time. So before a sync begins, the
//! clients that the last one let go get a moment to write again; not where a sync takes no longer than that moment.

use std::time::Duration;

/// Syncs that take less are not put off: what is saved is less than what it costs to sleep.
const SYNC_MIN: Duration = Duration::from_micros(400);

/// Looks at whether more have come, in half of the time of a sync.
const LOOKS: u32 = 4;

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

    /// Waits until as many wait as the last time, no further client comes, or half of the time of a sync has passed.
    /// Whether it waited at all.
    pub(super) fn gather(
        &self,
        mut waiting: impl FnMut() -> usize,
        mut sleep: impl FnMut(Duration),
    ) -> bool {
        // One that took long for once says nothing.
        let spent = self.spent[0].min(self.spent[1]);
        if spent < SYNC_MIN {
            return false;
        }
        let mut before = waiting();
        for look in 0..LOOKS {
            if before >= self.crowd {
                return look > 0;
            }
            sleep(spent / (2 * LOOKS));
            let now = waiting();
            if now <= before {
                break;
            }
            before = now;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(4);
    const LOOK: Duration = Duration::from_micros(500);

    /// How often a sync is put off if so many wait at each look.
    fn sleeps(gathering: &Gathering, waiting: &[usize]) -> usize {
        let mut waiting = waiting.iter();
        let mut sleeps = 0;
        let is_put_off = gathering.gather(
            || *waiting.next().expect("no more looks"),
            |time| {
                assert_eq!(time, LOOK);
                sleeps += 1;
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
        assert_eq!(sleeps(&gathering, &[25, 40, 50]), 2, "all are there");
        assert_eq!(
            sleeps(&gathering, &[25, 26, 26]),
            2,
            "nobody comes any more"
        );
        assert_eq!(
            sleeps(&gathering, &[5, 9, 12, 15, 20]),
            4,
            "it takes too long"
        );
        assert_eq!(sleeps(&gathering, &[60]), 0);
        assert_eq!(sleeps(&after([SYNC, SYNC], 1), &[1]), 0, "one alone");
    }

    #[test]
    fn a_sync_that_takes_no_time_is_not_put_off() {
        let short = Duration::from_micros(300);
        for spent in [[short, short], [SYNC, short], [short, SYNC]] {
            assert_eq!(sleeps(&after(spent, 50), &[]), 0);
        }
    }
}
