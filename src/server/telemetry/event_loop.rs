//! Iterations and busy time of the server's loops, corresponding to Redis's figures of its single event loop.
//!
//! Here an iteration is a read of a connection that returned data, or a run of the cron. Threads that serve
//! connections are busy while they do not wait for the system, which their runtimes measure; nothing is measured on
//! the data path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::runtime::Handle;

/// Iterations and busy time of the loops.
#[derive(Debug, Default)]
pub struct Rounds {
    runtimes: OnceLock<Box<[Handle]>>,
    cron_rounds: AtomicU64,
    cron_ns: AtomicU64,
    cron_ns_max: AtomicU64,
    connections_moved: AtomicU64,
    connections_begun_max: AtomicU64,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundFigures {
    /// Runs of the cron, the background's periodic work.
    pub cron_rounds: u64,
    /// Nanoseconds spent by the background thread.
    pub cron_ns: u64,
    /// The longest iteration of the background thread, in nanoseconds.
    pub cron_ns_max: u64,
    /// Busy nanoseconds of all threads, including the background.
    pub busy_ns: u64,
}

impl RoundFigures {
    /// Returns the growth since `earlier`; the longest iteration is kept as is.
    pub fn since(&self, earlier: &RoundFigures) -> RoundFigures {
        RoundFigures {
            cron_rounds: self.cron_rounds.saturating_sub(earlier.cron_rounds),
            cron_ns: self.cron_ns.saturating_sub(earlier.cron_ns),
            cron_ns_max: self.cron_ns_max,
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
        }
    }
}

impl Rounds {
    /// Sets the runtimes that serve connections.
    pub fn follow(&self, runtimes: &[Handle]) {
        let _was_known = self.runtimes.set(runtimes.into());
    }

    /// Records an iteration of the background.
    pub fn note_background(&self, spent_ns: u64) {
        self.cron_ns.fetch_add(spent_ns, Relaxed);
        self.cron_ns_max.fetch_max(spent_ns, Relaxed);
    }

    /// Records a run of the cron, of which there are ten per second.
    pub fn note_cron(&self) {
        self.cron_rounds.fetch_add(1, Relaxed);
    }

    /// Records that a connection moved to another thread's event loop.
    pub fn note_connection_moved(&self) {
        self.connections_moved.fetch_add(1, Relaxed);
    }

    /// Returns how many times a connection moved to another thread's event loop.
    pub fn connections_moved(&self) -> u64 {
        self.connections_moved.load(Relaxed)
    }

    /// Returns the busy time of each thread that serves connections, in nanoseconds since the start.
    pub fn busy_by_thread(&self) -> impl Iterator<Item = u64> {
        let runtimes = self.runtimes.get().into_iter().flatten();
        runtimes.flat_map(busy_by_thread)
    }

    /// Records the number of connections that an event loop began in one turn.
    pub fn note_begun(&self, count: usize) {
        self.connections_begun_max.fetch_max(count as u64, Relaxed);
    }

    /// Returns the largest number of connections that an event loop began in one turn.
    pub fn connections_begun_max(&self) -> u64 {
        self.connections_begun_max.load(Relaxed)
    }

    /// Returns the current sums.
    pub fn figures(&self) -> RoundFigures {
        let cron_ns = self.cron_ns.load(Relaxed);
        let runtimes = self.runtimes.get().into_iter().flatten();
        let busy_ns: u64 = runtimes.map(busy_ns).sum();
        RoundFigures {
            cron_rounds: self.cron_rounds.load(Relaxed),
            cron_ns,
            cron_ns_max: self.cron_ns_max.load(Relaxed),
            busy_ns: busy_ns + cron_ns,
        }
    }
}

/// Returns the busy time of a runtime's threads since their start, in nanoseconds.
pub fn busy_ns(runtime: &Handle) -> u64 {
    busy_by_thread(runtime).sum()
}

fn busy_by_thread(runtime: &Handle) -> impl Iterator<Item = u64> + use<> {
    let metrics = runtime.metrics();
    (0..metrics.num_workers())
        .map(move |worker| metrics.worker_total_busy_duration(worker))
        .map(|busy| u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_add_up_and_the_longest_stays() {
        let rounds = Rounds::default();
        rounds.note_background(30);
        rounds.note_cron();
        let then = rounds.figures();
        rounds.note_background(20);
        rounds.note_cron();
        let since = rounds.figures().since(&then);
        assert_eq!(
            since,
            RoundFigures {
                cron_rounds: 1,
                cron_ns: 20,
                cron_ns_max: 30,
                busy_ns: 20,
            }
        );
    }
}
