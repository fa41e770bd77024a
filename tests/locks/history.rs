//! Records when each holder of a lock believed that it had the lock, and the invariants of these records.
//! Knows no server and no recipe.
//!
//! All moments are microseconds of one monotonic clock. A hold begins when the holder has the reply that gave
//! it the lock, and ends when it sends the release, or when its validity ends or the holder dies, if that
//! comes first. The verdict is thus about what the users of a lock may rely on, including all delays between
//! them and the server.

use std::time::{Duration, Instant};

/// The one clock of a test.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    /// Sleeps until a moment, at least.
    pub(crate) fn sleep_until(&self, moment_us: u64) {
        loop {
            let left = moment_us.saturating_sub(self.us());
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_micros(left));
        }
    }
}

/// One period in which a worker had a lock.
#[derive(Clone)]
pub(crate) struct Hold {
    /// The lock's number.
    pub(crate) lock: usize,
    pub(crate) worker: usize,
    /// When the holder had the reply.
    pub(crate) acquired_us: u64,
    /// When the holder could no longer rely on the lock.
    pub(crate) until_us: u64,
    /// The fencing token, if the recipe has one.
    pub(crate) fence: Option<u64>,
    /// `None` if the holder died.
    pub(crate) release: Option<Release>,
}

/// The release of a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
    /// According to the reply: the lock was still there as ours, and is gone now.
    pub(crate) deleted: bool,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hold {
            lock,
            worker,
            acquired_us,
            until_us,
            ..
        } = self;
        write!(
            to,
            "lock {lock}, worker {worker}: from {acquired_us} until {until_us}"
        )?;
        if let Some(fence) = self.fence {
            write!(to, ", fence {fence}")?;
        }
        match self.release {
            None => write!(to, ", died"),
            Some(release) => write!(
                to,
                ", released {} to {}, {}",
                release.sent_us,
                release.answered_us,
                if release.deleted {
                    "deleted"
                } else {
                    "not found"
                },
            ),
        }
    }
}

impl Hold {
    /// Returns the end of the time for which the holder could rely on the lock.
    pub(crate) fn end_us(&self) -> u64 {
        match self.release {
            Some(release) => release.sent_us.min(self.until_us),
            None => self.until_us,
        }
    }

    /// True if the release was sent after the validity had ended.
    pub(crate) fn is_stale(&self) -> bool {
        self.release
            .is_some_and(|release| release.sent_us >= self.until_us)
    }
}

/// The checks that a recipe's releases permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Releases {
    /// A release that is answered while the hold is valid always finds the lock.
    Sure,
    /// A release may find the lock changed by others, and leaves it to expire.
    MayMiss,
}

/// Returns all faults of a history, in words. Sorts it by the moment of acquisition, lock by lock.
pub(crate) fn faults(holds: &mut [Hold], releases: Releases) -> Vec<String> {
    holds.sort_by_key(|hold| (hold.lock, hold.acquired_us));
    let mut faults = Vec::new();
    for of_lock in holds.chunk_by(|one, next| one.lock == next.lock) {
        faults.extend(
            overlaps(of_lock)
                .iter()
                .map(|(one, next)| format!("two at once:\n  {one:?}\n  {next:?}")),
        );
        faults.extend(of_lock.windows(2).filter_map(|pair| {
            let (one, next) = (pair[0].fence?, pair[1].fence?);
            (one >= next)
                .then(|| format!("the fence did not grow:\n  {:?}\n  {:?}", pair[0], pair[1]))
        }));
        for (index, hold) in of_lock.iter().enumerate() {
            let Some(release) = hold.release else {
                continue;
            };
            if releases == Releases::Sure && !release.deleted && release.answered_us < hold.until_us
            {
                faults.push(format!("a release in time found nothing:\n  {hold:?}"));
            }
            // An owner that got the lock before the release was sent took it from us: the present lock is not
            // ours to delete.
            if let Some(other) = of_lock.get(index + 1)
                && release.deleted
                && other.acquired_us < release.sent_us
            {
                faults.push(format!("a stale release deleted:\n  {hold:?}\n  {other:?}"));
            }
        }
    }
    faults
}

/// Returns pairs of holds of one lock, sorted by acquisition, of which the second began before the first had
/// ended.
pub(crate) fn overlaps(of_lock: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    let mut longest: Option<&Hold> = None;
    for hold in of_lock {
        if let Some(before) = longest
            && hold.acquired_us < before.end_us()
            && hold.acquired_us < hold.end_us()
        {
            found.push((before.clone(), hold.clone()));
        }
        if longest.is_none_or(|before| before.end_us() < hold.end_us()) {
            longest = Some(hold);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(acquired_us: u64, until_us: u64, fence: u64) -> Hold {
        Hold {
            lock: 0,
            worker: 0,
            acquired_us,
            until_us,
            fence: Some(fence),
            release: None,
        }
    }

    fn released(mut hold: Hold, sent_us: u64, answered_us: u64, deleted: bool) -> Hold {
        hold.release = Some(Release {
            sent_us,
            answered_us,
            deleted,
        });
        hold
    }

    fn words(mut holds: Vec<Hold>) -> String {
        faults(&mut holds, Releases::Sure).join("\n")
    }

    #[test]
    fn a_good_history_has_no_fault() {
        let holds = vec![
            released(hold(10, 100, 1), 50, 55, true),
            hold(52, 150, 2),
            released(hold(150, 200, 3), 260, 270, false),
            released(hold(250, 300, 4), 290, 310, false),
        ];
        assert_eq!(words(holds), "");
    }

    #[test]
    fn holds_that_overlap_are_seen_even_with_others_between() {
        assert!(words(vec![hold(10, 100, 1), hold(99, 200, 2)]).contains("two at once"));
        let short = released(hold(20, 100, 2), 30, 31, true);
        assert!(
            words(vec![hold(10, 100, 1), short.clone(), hold(90, 95, 3)])
                .matches("two")
                .count()
                == 2
        );
        let other_lock = Hold { lock: 1, ..short };
        assert_eq!(words(vec![hold(10, 100, 1), other_lock]), "");
    }

    #[test]
    fn a_fence_that_stands_still_is_seen() {
        assert!(words(vec![hold(10, 20, 2), hold(20, 30, 2)]).contains("fence"));
    }

    #[test]
    fn releases_that_lie_are_seen() {
        let missed = released(hold(10, 100, 1), 50, 60, false);
        assert!(words(vec![missed.clone()]).contains("found nothing"));
        assert_eq!(
            faults(&mut [missed], Releases::MayMiss),
            Vec::<String>::new()
        );
        let stolen = released(hold(10, 100, 1), 150, 160, true);
        assert!(words(vec![stolen, hold(140, 200, 2)]).contains("stale release"));
    }
}
