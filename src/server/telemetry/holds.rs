//! Shards that were locked for long ("holds"): how long the locking thread ran, and how long it waited for a
//! core.
//!
//! A thread that holds a shard but is not scheduled holds it just as long as one with a long command; only the
//! scheduler can tell the two apart. It keeps two sums per thread: how long it ran, and how long it was runnable
//! but waited (`schedstat`). The background reads them for all threads once a second. A thread that has held a
//! shard for long reads its own at the end of the hold and compares, so commands pay nothing for it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

use super::clock::Ticks;

/// A shard lock of at least this duration counts as long: it delayed other clients.
pub const LONG_HOLD_NS: u64 = 100_000_000;

/// Samples kept of each thread, about one per second.
const READINGS_MAX: usize = 4;

/// Maximum number of threads read; far more than a server has.
const THREADS_MAX: usize = 1024;

/// One period during which a thread kept a shard locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Time from locking to releasing the shard, in nanoseconds.
    pub ns: u64,
    /// Approximate part of it that the thread waited for a core; 0 if the system does not report it.
    pub waited_ns: u64,
}

impl Hold {
    /// Returns how long the thread ran during the hold.
    pub fn ran_ns(&self) -> u64 {
        self.ns.saturating_sub(self.waited_ns)
    }
}

/// The longest of a set of holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The hold whose thread ran longest.
    pub by_run: Hold,
    /// The hold whose thread waited longest.
    pub by_wait: Hold,
}

impl Longest {
    /// Returns the longest of both sets.
    #[must_use]
    pub fn with(self, other: Longest) -> Longest {
        Longest {
            by_run: std::cmp::max_by_key(self.by_run, other.by_run, Hold::ran_ns),
            by_wait: std::cmp::max_by_key(self.by_wait, other.by_wait, |hold| hold.waited_ns),
        }
    }
}

/// The scheduler's accounting of a thread since the thread began: running and waiting nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scheduled {
    ran_ns: u64,
    waited_ns: u64,
}

impl Scheduled {
    /// Reads the accounting of a thread from its `/proc` directory.
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

/// Estimates how long a thread waited for a core during a hold, from its accounting over a window that ends with
/// the hold. The result is bounded below by the wait implied by too little running time, and above by the most that
/// is possible.
fn waited_ns(hold_ns: u64, window_ns: u64, in_window: Scheduled) -> u64 {
    let Scheduled { ran_ns, waited_ns } = in_window;
    let before_ns = window_ns.saturating_sub(hold_ns);
    let least = (hold_ns.saturating_sub(ran_ns)).max(waited_ns.saturating_sub(before_ns));
    let most = hold_ns.min(waited_ns);
    // During a hold a thread hardly sleeps, so assume the same ratio of running to waiting as while it was awake.
    let awake_ns = (ran_ns + waited_ns).max(1);
    let about = hold_ns as f64 * waited_ns as f64 / awake_ns as f64;
    (about as u64).max(least).min(most)
}

/// Recent holds; see the module.
#[derive(Debug, Default)]
pub struct Holds {
    /// The longest holds of the current minute.
    longest: Mutex<Longest>,
    /// Samples by thread id.
    readings: Mutex<BTreeMap<u32, VecDeque<(Ticks, Scheduled)>>>,
}

impl Holds {
    /// Records that the calling thread has just ended a hold of `hold_ns`.
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
        // Use the last sample before the hold, or else the oldest.
        let before = (of_thread.iter().rev()).find(|(at, _)| now.since_ns(*at) >= hold_ns);
        let (at, earlier) = before.or_else(|| of_thread.front())?;
        Some(waited_ns(
            hold_ns,
            now.since_ns(*at),
            scheduled.since(*earlier),
        ))
    }

    /// Samples all threads; call about once a second.
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

    /// Returns the longest holds since they were last taken.
    pub fn longest(&self) -> Longest {
        *self.longest.lock()
    }

    /// Returns [`Holds::longest`] and resets it.
    pub fn take_longest(&self) -> Longest {
        std::mem::take(&mut *self.longest.lock())
    }
}

/// Returns a thread's id from its directory.
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
        // A long command on a previously idle thread, with free cores.
        assert_eq!(waited(662, 1_500, 670, 1), 0);
        // A hold of the same length whose thread got no core: the thread ran for 30 ms in total.
        assert_eq!(waited(662, 1_500, 30, 640), 632);
        // A busy thread that shares its core with another thread.
        assert_eq!(waited(600, 1_500, 750, 750), 300);
        // In a window of 700 ms that includes the hold, the thread ran for 100 ms and waited for 600 ms.
        assert_eq!(waited(600, 700, 100, 600), 514);
        // No accounting is available.
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

    /// Keeps a core busy until then.
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
        // With eight busy threads per core, each runs for an eighth of the time.
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
