//! Reading the time: wall-clock time for deadlines, the time stamp counter for durations.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use basalt_engine::Now;

static CLOCK: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// A reading of the time stamp counter; only differences are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks(u64);

impl Ticks {
    /// Reads the counter.
    #[inline]
    pub fn now() -> Ticks {
        Ticks(CLOCK.raw())
    }

    /// Returns the nanoseconds from an earlier reading to this one.
    #[inline]
    pub fn since_ns(self, earlier: Ticks) -> u64 {
        CLOCK.delta_as_nanos(earlier.0, self.0)
    }
}

/// Returns the microseconds since the Unix epoch.
pub fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

/// Returns the milliseconds since the Unix epoch.
pub fn unix_ms() -> u64 {
    unix_us() / 1_000
}

/// Returns the milliseconds since this machine booted, including time suspended.
pub fn since_boot_ms() -> u64 {
    let since = clock_gettime(ClockId::Boottime);
    since.tv_sec.cast_unsigned() * 1_000 + since.tv_nsec.cast_unsigned() / 1_000_000
}

/// Returns the time seen by commands that start now.
pub fn now() -> Now {
    Now { unix_ms: unix_ms() }
}
