//! The core that a walker shares with others: the server's threads, which have priority, and other processes.

use std::thread;

use crate::telemetry::clock::Ticks;
use crate::telemetry::process;

/// Maximum time a shard is held at once, by a walker that has a core for itself and by one that shares it. With shorter
/// slices a snapshot takes much longer where others keep the core busy: they get as much of it between two slices
/// however long these are.
const SLICE_NS: u64 = 100_000;
const SLICE_SHARED_NS: u64 = 25_000;

/// Minimum duration of an offer of the core that was taken.
const OFFER_TAKEN_NS: u64 = 3_000;

/// Number of consecutive yields that return at once after which a snapshot thread is taken to be alone on its core and
/// uses longer slices. Many, since a serving thread may be idle at some yields and busy at the next.
const OFFERS_LEFT: u32 = 64;

/// Duration from which an offer is long: it may have been taken by other processes, which never rest.
const OFFER_LONG_NS: u64 = 1_000_000;

/// Fraction (1/n) of the time taken by other processes that the walker gets back before its next offer, in CPU time
/// of its own: otherwise it would run for one slice in some milliseconds, and a snapshot take minutes. Time taken
/// by the server's own threads was meant for them.
const FOREIGN_SHARE: u64 = 4;

/// Maximum CPU time that a snapshot thread runs without yielding to make up for time lost to other processes. The
/// measured loss can be hours if the server was stopped.
const GIVEN_BACK_NS_MAX: u64 = 10_000_000;

/// The core that a walker runs on.
pub(super) struct SharedCore {
    /// Number of cores that the server's threads share.
    cores: u64,
    /// Number of offers still to be declined before the core counts as the walker's own.
    offers_left: u32,
    /// Time taken by offers since CPU times were last read, and the CPU times then.
    taken_ns: u64,
    looked: CpuTimes,
    /// CPU time of its own up to which the walker continues without another offer.
    goes_on_until_ns: Option<u64>,
}

/// CPU times so far.
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

    /// Returns the CPU time of the server's other threads since then.
    fn others_ns_since(self, then: CpuTimes) -> u64 {
        let server_ns = self.server_ns.saturating_sub(then.server_ns);
        server_ns.saturating_sub(self.walker_ns.saturating_sub(then.walker_ns))
    }
}

impl SharedCore {
    /// Creates the state of one of `cores` cores, for a walker that begins.
    pub(super) fn new(cores: usize) -> SharedCore {
        SharedCore {
            cores: cores as u64,
            offers_left: 0,
            taken_ns: 0,
            looked: CpuTimes::now(),
            goes_on_until_ns: None,
        }
    }

    /// Returns the maximum duration of a slice.
    pub(super) fn slice_ns(&self) -> u64 {
        match self.offers_left {
            0 => SLICE_NS,
            _ => SLICE_SHARED_NS,
        }
    }

    /// Offers the core, after a slice, to threads waiting for it, so that a walker that the system schedules only
    /// when others rest is not preempted while holding a shard.
    pub(super) fn offer(&mut self) {
        if self.goes_on(process::thread_cpu_ns) {
            return;
        }
        let offered = Ticks::now();
        thread::yield_now();
        self.note(Ticks::now().since_ns(offered), CpuTimes::now);
    }

    /// True while the walker has CPU time left that it got back.
    fn goes_on(&mut self, walker_ns: impl Fn() -> u64) -> bool {
        self.goes_on_until_ns = self.goes_on_until_ns.filter(|&until| walker_ns() < until);
        self.goes_on_until_ns.is_some()
    }

    /// Records the duration of an offer. Reading the CPU times costs too much after a short one.
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
        // The server's threads run on this core as much as on each of the others.
        let own_ns = times.others_ns_since(self.looked) / self.cores;
        let foreign_ns = self.taken_ns.saturating_sub(own_ns);
        // A smaller remainder is due to the kernel and the hypervisor.
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
        // The server's other threads had both cores.
        core.note(TAKEN_NS, || times(500, 500 + CORES * TAKEN_NS));
        assert!(!core.goes_on(|| 500), "the core was offered to them");
        assert_eq!(core.slice_ns(), SLICE_SHARED_NS);
        // They had a quarter of both. Offers that returned at once in between make no difference.
        core.note(0, no_look);
        core.note(OFFER_LONG_NS / 2, no_look);
        core.note(0, no_look);
        let server_ns = 900 + CORES * (TAKEN_NS + TAKEN_NS / 4);
        core.note(TAKEN_NS - OFFER_LONG_NS / 2, || times(900, server_ns));
        let until = 900 + TAKEN_NS * 3 / 4 / FOREIGN_SHARE;
        assert!(core.goes_on(|| until - 1));
        assert!(!core.goes_on(|| until));
        // The remainder may also be the kernel's.
        let server_ns = server_ns + CORES * (TAKEN_NS - OFFER_LONG_NS + CORES);
        core.note(TAKEN_NS, || times(900, server_ns));
        assert!(!core.goes_on(|| 900));
        core.note(u64::MAX / 2, || times(900, server_ns));
        assert!(!core.goes_on(|| 900 + GIVEN_BACK_NS_MAX));
        (0..OFFERS_LEFT).for_each(|_| core.note(0, no_look));
        assert_eq!(core.slice_ns(), SLICE_NS, "it is the walker's own");
    }
}
