//! Yielding of the CPU core on which a snapshot thread ("walker") runs to the server's other threads, which
//! have priority, and to other processes. Calling `sched_yield` is named an "offer" of the core here.

use std::thread;

use crate::telemetry::clock::Ticks;
use crate::telemetry::process;

/// Maximum time that a walker keeps a shard locked: if the walker has a core for itself, and
/// (`SLICE_SHARED_NS`) if it shares its core. With still shorter slices, snapshots would take much longer on a
/// busy core: between two slices, other threads run for the same time however short the slices are.
const SLICE_NS: u64 = 100_000;
const SLICE_SHARED_NS: u64 = 25_000;

/// Minimum duration of a yield during which another thread ran.
const OFFER_TAKEN_NS: u64 = 3_000;

/// Number of consecutive yields that return at once after which a snapshot thread is taken to be alone on its core and
/// uses longer slices. Many, since a serving thread may be idle at some yields and busy at the next.
const OFFERS_LEFT: u32 = 64;

/// Minimum duration of a yield that counts as long. During a long yield, other processes that never sleep may
/// have run.
const OFFER_LONG_NS: u64 = 1_000_000;

/// After other processes used the core during a yield, the walker runs without yielding for 1/n of that time,
/// in its own CPU time. Otherwise it would run for one slice every few milliseconds, and a snapshot would take
/// minutes. Time used by the server's own threads is not made up for, because the yields are meant for them.
const FOREIGN_SHARE: u64 = 4;

/// Maximum CPU time that a snapshot thread runs without yielding to make up for time lost to other processes. The
/// measured loss can be hours if the server was stopped.
const GIVEN_BACK_NS_MAX: u64 = 10_000_000;

/// State of a walker for sharing its core with other threads.
pub(super) struct SharedCore {
    /// Number of cores available to the server's threads.
    cores: u64,
    /// Number of further yields that must return at once before the walker is taken to be alone on its core.
    offers_left: u32,
    /// Total duration of yields since CPU times were last read, and (`looked`) the CPU times at that reading.
    taken_ns: u64,
    looked: CpuTimes,
    /// The walker's CPU time up to which it runs without yielding; `None` if it yields after each slice.
    goes_on_until_ns: Option<u64>,
}

/// CPU times consumed so far.
#[derive(Clone, Copy)]
struct CpuTimes {
    /// CPU time of the walker.
    walker_ns: u64,
    /// CPU time of all threads of the server, including the walker.
    server_ns: u64,
}

impl CpuTimes {
    fn now() -> CpuTimes {
        CpuTimes {
            walker_ns: process::thread_cpu_ns(),
            server_ns: process::cpu_ns(),
        }
    }

    /// Returns the CPU time consumed by the server's other threads since the reading `then`.
    fn others_ns_since(self, then: CpuTimes) -> u64 {
        let server_ns = self.server_ns.saturating_sub(then.server_ns);
        server_ns.saturating_sub(self.walker_ns.saturating_sub(then.walker_ns))
    }
}

impl SharedCore {
    /// Creates the state for a walker that starts on one of `cores` cores.
    pub(super) fn new(cores: usize) -> SharedCore {
        SharedCore {
            cores: cores as u64,
            offers_left: 0,
            taken_ns: 0,
            looked: CpuTimes::now(),
            goes_on_until_ns: None,
        }
    }

    /// Returns the maximum duration of a slice, in nanoseconds.
    pub(super) fn slice_ns(&self) -> u64 {
        match self.offers_left {
            0 => SLICE_NS,
            _ => SLICE_SHARED_NS,
        }
    }

    /// Yields the core after a slice to threads that wait for it. A walker that used up its time on the core
    /// would otherwise be preempted while it has a shard locked.
    pub(super) fn offer(&mut self) {
        if self.goes_on(process::thread_cpu_ns) {
            return;
        }
        let offered = Ticks::now();
        thread::yield_now();
        self.note(Ticks::now().since_ns(offered), CpuTimes::now);
    }

    /// True while the walker may still run without yielding, to make up for time lost to other processes.
    fn goes_on(&mut self, walker_ns: impl Fn() -> u64) -> bool {
        self.goes_on_until_ns = self.goes_on_until_ns.filter(|&until| walker_ns() < until);
        self.goes_on_until_ns.is_some()
    }

    /// Records the duration of a yield. CPU times are read only after a long yield, because reading them is
    /// expensive.
    fn note(&mut self, taken_ns: u64, look: impl Fn() -> CpuTimes) {
        self.offers_left = match taken_ns < OFFER_TAKEN_NS {
            true => self.offers_left.saturating_sub(1),
            false => OFFERS_LEFT,
        };
        self.taken_ns += taken_ns;
        if taken_ns < OFFER_LONG_NS {
            return;
        }
        let times = look();
        // Assume that the server's threads have run on this core as much as on each of the other cores.
        let own_ns = times.others_ns_since(self.looked) / self.cores;
        let foreign_ns = self.taken_ns.saturating_sub(own_ns);
        // A smaller remainder is taken to be due to the kernel and the hypervisor.
        let is_shared = foreign_ns >= OFFER_LONG_NS;
        let given_back_ns = (foreign_ns / FOREIGN_SHARE).min(GIVEN_BACK_NS_MAX);
        self.goes_on_until_ns = is_shared.then_some(times.walker_ns + given_back_ns);
        self.looked = times;
        self.taken_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_processes_take_of_offers_is_given_back_in_part() {
        const CORES: u64 = 2;
        const TAKEN_NS: u64 = 10 * OFFER_LONG_NS;
        let times = |walker_ns, server_ns| CpuTimes {
            walker_ns,
            server_ns,
        };
        let no_look = || panic!("a short offer is not worth a look");
        let mut core = SharedCore {
            looked: times(0, 0),
            ..SharedCore::new(CORES as usize)
        };
        // The server's other threads used both cores, so nothing is made up for.
        core.note(TAKEN_NS, || times(500, 500 + CORES * TAKEN_NS));
        assert!(!core.goes_on(|| 500), "the core was offered to them");
        assert_eq!(core.slice_ns(), SLICE_SHARED_NS);
        // The server's other threads used a quarter of both cores; the rest went to other processes. Yields
        // that returned at once in between make no difference.
        core.note(0, no_look);
        core.note(OFFER_LONG_NS / 2, no_look);
        core.note(0, no_look);
        let server_ns = 900 + CORES * (TAKEN_NS + TAKEN_NS / 4);
        core.note(TAKEN_NS - OFFER_LONG_NS / 2, || times(900, server_ns));
        let until = 900 + TAKEN_NS * 3 / 4 / FOREIGN_SHARE;
        assert!(core.goes_on(|| until - 1));
        assert!(!core.goes_on(|| until));
        // A remainder this small may be the kernel's, so nothing is made up for.
        let server_ns = server_ns + CORES * (TAKEN_NS - OFFER_LONG_NS + CORES);
        core.note(TAKEN_NS, || times(900, server_ns));
        assert!(!core.goes_on(|| 900));
        core.note(u64::MAX / 2, || times(900, server_ns));
        assert!(!core.goes_on(|| 900 + GIVEN_BACK_NS_MAX));
        (0..OFFERS_LEFT).for_each(|_| core.note(0, no_look));
        assert_eq!(core.slice_ns(), SLICE_NS, "it is the walker's own");
    }
}
