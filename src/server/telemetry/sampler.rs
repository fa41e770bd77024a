//! The `instantaneous_*` figures: rates over the last second and a half, from samples taken ten times a second.
//!
//! The totals and the time are passed in.

use parking_lot::Mutex;

/// Samples that a rate is averaged over, as in Redis.
const SAMPLES: usize = 16;

/// Totals at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerTotals {
    /// Number of commands run.
    pub commands: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received over replication links.
    pub replication_in: u64,
    /// Bytes sent over replication links.
    pub replication_out: u64,
    /// Iterations of all event loops.
    pub rounds: u64,
    /// Nanoseconds that these iterations took.
    pub busy_ns: u64,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands per second.
    pub commands: f64,
    /// Bytes received per second.
    pub bytes_in: f64,
    /// Bytes sent per second.
    pub bytes_out: f64,
    /// Bytes received over replication links, per second.
    pub replication_in: f64,
    /// Bytes sent over replication links, per second.
    pub replication_out: f64,
    /// Iterations of all event loops, per second.
    pub rounds: f64,
    /// Mean duration of an iteration, in nanoseconds.
    pub round_ns: f64,
}

/// Samples of the totals.
#[derive(Debug, Default)]
pub struct Sampler {
    inner: Mutex<SampleRing>,
}

#[derive(Debug, Default)]
struct SampleRing {
    /// The samples, as a ring.
    ring: [(u64, SamplerTotals); SAMPLES + 1],
    /// Samples taken since the start.
    taken: usize,
}

impl Sampler {
    /// Takes a sample of the totals at `now_ms`, in milliseconds.
    pub fn tick(&self, now_ms: u64, totals: SamplerTotals) {
        let mut inner = self.inner.lock();
        let index = inner.taken % inner.ring.len();
        inner.ring[index] = (now_ms, totals);
        inner.taken += 1;
    }

    /// Returns the rates between the oldest kept sample and the newest.
    pub fn rates(&self) -> Rates {
        let inner = self.inner.lock();
        let kept = inner.taken.min(inner.ring.len());
        if kept < 2 {
            return Rates::default();
        }
        let (then_ms, then) = inner.ring[(inner.taken - kept) % inner.ring.len()];
        let (now_ms, now) = inner.ring[(inner.taken - 1) % inner.ring.len()];
        let seconds = now_ms.saturating_sub(then_ms) as f64 / 1_000.0;
        let rate = |now: u64, then: u64| {
            // Totals shrink when statistics are reset.
            if seconds > 0.0 {
                now.saturating_sub(then) as f64 / seconds
            } else {
                0.0
            }
        };
        Rates {
            commands: rate(now.commands, then.commands),
            bytes_in: rate(now.bytes_in, then.bytes_in),
            bytes_out: rate(now.bytes_out, then.bytes_out),
            replication_in: rate(now.replication_in, then.replication_in),
            replication_out: rate(now.replication_out, then.replication_out),
            rounds: rate(now.rounds, then.rounds),
            round_ns: match now.rounds.saturating_sub(then.rounds) {
                0 => 0.0,
                rounds => now.busy_ns.saturating_sub(then.busy_ns) as f64 / rounds as f64,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(commands: u64) -> SamplerTotals {
        SamplerTotals {
            commands,
            bytes_in: commands * 10,
            bytes_out: commands * 100,
            replication_in: commands * 2,
            replication_out: commands * 3,
            rounds: commands / 2,
            busy_ns: commands * 1_000,
        }
    }

    #[test]
    fn rates_are_per_second_over_the_latest_readings() {
        let sampler = Sampler::default();
        assert_eq!(sampler.rates(), Rates::default());
        sampler.tick(0, totals(0));
        assert_eq!(sampler.rates(), Rates::default());
        sampler.tick(100, totals(50));
        assert_eq!(
            sampler.rates(),
            Rates {
                commands: 500.0,
                bytes_in: 5e3,
                bytes_out: 5e4,
                replication_in: 1e3,
                replication_out: 1.5e3,
                rounds: 250.0,
                round_ns: 2e3,
            }
        );
        for tick in 2..100 {
            sampler.tick(tick * 100, totals(50));
        }
        assert_eq!(sampler.rates().commands, 0.0);
    }

    #[test]
    fn a_reset_of_the_totals_gives_no_negative_rate() {
        let sampler = Sampler::default();
        sampler.tick(0, totals(1_000));
        sampler.tick(100, totals(3));
        assert_eq!(sampler.rates().commands, 0.0);
        sampler.tick(100, totals(9));
        assert_eq!(sampler.rates().commands, 0.0);
    }
}
