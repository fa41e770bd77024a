//! Shards that were held for long: for how long their holders ran, and for how long they waited for a core.
//!
//! A thread that holds a shard and gets no core holds it just as long as one whose command is long, and only the
//! scheduler knows which it was. It keeps two sums for each thread: how long it ran, and how long it was ready to run
//! and waited (`schedstat`). The background reads them for all threads once a second. A thread that has held a shard
//! for long reads its own at the end of the hold, and compares: commands pay nothing for that.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

use super::clock::Ticks;

/// A shard that is held for so long has kept others waiting.
pub const LONG_HOLD_NS: u64 = 100_000_000;

/// Readings that are kept of each thread: of about so many seconds.
const READINGS_MAX: usize = 4;

/// Threads that are read: far more than a server has.
const THREADS_MAX: usize = 1024;

/// A hold of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// From the take to the release, in nanoseconds.
    pub ns: u64,
    /// For how long of that the thread that held the shard waited for a core, about; 0 where the system does not say.
    pub waited_ns: u64,
}

impl Hold {
    /// For how long of it the thread ran.
    pub fn ran_ns(&self) -> u64 {
        self.ns.saturating_sub(self.waited_ns)
    }
}

/// The longest of some holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The one whose thread ran for longest.
    pub by_run: Hold,
    /// The one whose thread waited for longest.
    pub by_wait: Hold,
}

impl Longest {
    /// The longest of both.
    #[must_use]
    pub fn with(self, other: Longest) -> Longest {
        Longest {
            by_run: std::cmp::max_by_key(self.by_run, other.by_run, Hold::ran_ns),
            by_wait: std::cmp::max_by_key(self.by_wait, other.by_wait, |hold| hold.waited_ns),
        }
    }
}

/// The scheduler's account of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scheduled {
    ran_ns: u64,
    waited_ns: u64,
}

impl Scheduled {
    /// Reads the account of a thread, given its folder in `/proc`.
    fn read(thread: &Path) -> Option<Scheduled> {
        let text = fs::read_to_string(thread.join("schedstat")).ok()?;
        let mut words = text.split_ascii_whitespace();
        Some(Scheduled {
            ran_ns: words.next()?.parse().ok()?,
            waited_ns: words.next()?.parse().ok()?,
        })
    }

    fn since(self, earlier: Scheduled) -> Scheduled {
        Scheduled {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// For how long a thread waited for a core in a hold, given what it did in a window that ends with the hold: between
/// what it must have waited, as it ran too little in the window for the whole hold, and what it can have.
fn waited_ns(hold_ns: u64, window_ns: u64, in_window: Scheduled) -> u64 {
    let Scheduled { ran_ns, waited_ns } = in_window;
    let before_ns = window_ns.saturating_sub(hold_ns);
    let least = (hold_ns.saturating_sub(ran_ns)).max(waited_ns.saturating_sub(before_ns));
    let most = hold_ns.min(waited_ns);
    // In a hold a thread sleeps at most for a moment: it shares its time as while it was awake.
    let awake_ns = (ran_ns + waited_ns).max(1);
    let about = hold_ns as f64 * waited_ns as f64 / awake_ns as f64;
    (about as u64).max(least).min(most)
}

/// See the module.
#[derive(Debug, Default)]
pub struct Holds {
    /// The longest holds of this minute.
    longest: Mutex<Longest>,
    /// By the thread's number.
    readings: Mutex<BTreeMap<u32, VecDeque<(Ticks, Scheduled)>>>,
}

impl Holds {
    /// The calling thread has held a shard for so long until now.
    #[cold]
    #[inline(never)]
    pub fn note(&self, hold_ns: u64) {
        let hold = Hold {
            ns: hold_ns,
            waited_ns: self.waited_ns(hold_ns).unwrap_or(0),
        };
        let mut longest = self.longest.lock();
        *longest = longest.with(Longest {
            by_run: hold,
            by_wait: hold,
        });
    }

    fn waited_ns(&self, hold_ns: u64) -> Option<u64> {
        let thread = fs::read_link("/proc/thread-self").ok()?;
        let number = number(&thread)?;
        let now = Ticks::now();
        let scheduled = Scheduled::read(&Path::new("/proc").join(thread))?;
        let readings = self.readings.lock();
        let of_thread = readings.get(&number)?;
        // The last one before the hold; else the oldest that there is.
        let before = (of_thread.iter().rev()).find(|(at, _)| now.since_ns(*at) >= hold_ns);
        let (at, earlier) = before.or_else(|| of_thread.front())?;
        Some(waited_ns(
            hold_ns,
            now.since_ns(*at),
            scheduled.since(*earlier),
        ))
    }

    /// To be called once a second or so: reads what threads have done.
    pub fn read(&self) {
        let Ok(threads) = fs::read_dir("/proc/self/task") else {
            return;
        };
        let now = Ticks::now();
        let mut readings = self.readings.lock();
        let mut before = std::mem::take(&mut *readings);
        for thread in threads.filter_map(Result::ok).take(THREADS_MAX) {
            let path = thread.path();
            let (Some(number), Some(scheduled)) = (number(&path), Scheduled::read(&path)) else {
                continue;
            };
            let mut of_thread = before.remove(&number).unwrap_or_default();
            of_thread.push_back((now, scheduled));
            if of_thread.len() > READINGS_MAX {
                of_thread.pop_front();
            }
            readings.insert(number, of_thread);
        }
    }

    /// The longest holds since these were taken the last time.
    pub fn longest(&self) -> Longest {
        *self.longest.lock()
    }

    /// [`Holds::longest`], which are not of late any more.
    pub fn take_longest(&self) -> Longest {
        std::mem::take(&mut *self.longest.lock())
    }
}

/// The number of a thread, by its folder.
fn number(thread: &Path) -> Option<u32> {
    thread.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_a_thread_waited_is_told_from_what_it_ran() {
        let waited = |hold, window, ran, waited| {
            let in_window = Scheduled {
                ran_ns: ran * MS,
                waited_ns: waited * MS,
            };
            waited_ns(hold * MS, window * MS, in_window) / MS
        };
        // A long command of a thread that was idle before, with cores to spare.
        assert_eq!(waited(662, 1_500, 670, 1), 0);
        // The same hold without a core: it ran for 30 ms in all.
        assert_eq!(waited(662, 1_500, 30, 640), 632);
        // A busy thread that shares its core with another one.
        assert_eq!(waited(600, 1_500, 750, 750), 300);
        // It waited for all but the hold's own time before it.
        assert_eq!(waited(600, 700, 100, 600), 514);
        // Nothing is known of it.
        assert_eq!(waited(600, 700, 0, 0), 0);
    }

    #[test]
    fn the_longest_run_and_the_longest_wait_are_two_holds() {
        let hold = |ns, waited_ns| Longest {
            by_run: Hold { ns, waited_ns },
            by_wait: Hold { ns, waited_ns },
        };
        let longest = hold(300, 10).with(hold(900, 800)).with(hold(200, 0));
        assert_eq!((longest.by_run.ns, longest.by_wait.ns), (300, 900));
    }

    /// Loads this core and another one with work for a moment.
    fn spin(until: Instant) {
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_hold_without_a_core_is_known_as_one() {
        if Scheduled::read(Path::new("/proc/self")).is_none() {
            return;
        }
        // Eight threads for each core: each runs for an eighth of the time.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ends = Instant::now() + Duration::from_secs(60);
        let found = std::sync::atomic::AtomicBool::new(false);
        let holds = Holds::default();
        std::thread::scope(|scope| {
            for _ in 0..cores * 8 {
                scope.spawn(|| {
                    while !found.load(std::sync::atomic::Ordering::Relaxed) && Instant::now() < ends
                    {
                        spin(Instant::now() + Duration::from_millis(5));
                    }
                });
            }
            scope.spawn(|| {
                while Instant::now() < ends {
                    holds.read();
                    let began = Ticks::now();
                    spin(Instant::now() + Duration::from_millis(400));
                    holds.note(Ticks::now().since_ns(began));
                    let hold = holds.take_longest().by_wait;
                    if hold.waited_ns > hold.ns / 2 {
                        break;
                    }
                }
                found.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        });
        assert!(Instant::now() < ends, "no hold was found that waited");
    }
}
