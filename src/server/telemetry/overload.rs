//! Overload (`overload-p99`): how long requests wait before they run, and which commands are refused while they wait
//! for too long.
//!
//! *Probes*, sent to the threads that serve connections, measure the wait: each takes the way of a request, through a
//! thread's queue of tasks and the queue of a shard. Four times a second the 99th percentile of the last second is
//! compared with the limit. Above it the *pressure* rises, below two thirds of it the pressure falls, slowly, so that
//! as much work is let through as the machine does in time.
//!
//! Commands are refused by what they cost here: each command's mean run time makes it one of a *class*, and the dearest
//! class is refused first. The pressure says how much: at 1.5 all of the dearest class and half of the second one.
//! Commands in constant or logarithmic time have no class, nor have those that are no work on data: AUTH, INFO, PING,
//! what replicas and nodes say to each other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::clock::Ticks;
use super::counters;
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_commands::command::registry::registry;

/// The error of a refused command.
pub const TEXT: &str =
    "OVERLOADED The server is overloaded and refuses commands that take long: try again later";

/// Pressure at which all of a class is refused.
const WHOLE: u32 = 256;

/// Mean run time in nanoseconds from which on a command belongs to each class, the dearest one first.
const CLASSES_FROM_NS: [u64; 3] = [1_000_000, 200_000, 40_000];

/// The dearest class. Requests that report themselves that they take long belong to it, whatever their command.
const DEAREST: u8 = 1;

/// Change of the pressure at one evaluation.
const RISE: u32 = 64;
const FALL: u32 = 8;

/// Evaluations in a second.
const PERIODS: usize = 4;

/// Milliseconds between two evaluations.
pub const PERIOD_MS: u64 = 1_000 / PERIODS as u64;

/// State of the protection against overload; see the module.
#[derive(Debug)]
pub struct Overload {
    /// 0 to `WHOLE` for each class.
    pressure: AtomicU32,
    /// Number of draws so far, which decide what of a partly refused class is let through.
    draws: AtomicU32,
    /// The class of each command; 0 for commands that are never refused.
    classes: Box<[AtomicU8]>,
    /// Number of commands refused.
    pub refused: AtomicU64,
    /// The 99th percentile of the waits of the last second, in microseconds; 0 while nothing is measured.
    pub wait_p99_us: AtomicU64,
    probes: Mutex<Probes>,
    costs: Mutex<Vec<MeanCost>>,
}

/// Probes on their way, and the waits of those that have arrived.
#[derive(Debug, Default)]
struct Probes {
    count: u64,
    on_their_way: BTreeMap<u64, Ticks>,
    /// Waits in microseconds, by period, the current one last.
    waits_us: VecDeque<Vec<u64>>,
}

/// A command's mean run time lately.
#[derive(Clone, Copy, Debug, Default)]
struct MeanCost {
    calls: u64,
    duration_ns: u64,
    mean_ns: u64,
}

impl MeanCost {
    /// Takes the command's sums since the start into account.
    fn follow(&mut self, calls: u64, duration_ns: u64) {
        let (more, more_ns) = (
            calls.saturating_sub(self.calls),
            duration_ns.saturating_sub(self.duration_ns),
        );
        if let Some(mean_ns) = more_ns.checked_div(more) {
            self.mean_ns = match self.mean_ns {
                0 => mean_ns,
                before => (3 * before + mean_ns) / 4,
            };
        }
        (self.calls, self.duration_ns) = (calls, duration_ns);
    }

    fn class(&self) -> u8 {
        let class = CLASSES_FROM_NS
            .iter()
            .position(|from| self.mean_ns >= *from);
        class.map_or(0, |class| class as u8 + DEAREST)
    }
}

/// Whether a command may be refused: it works on data, and for longer the more there are.
fn may_be_refused(command: &Command) -> bool {
    const EXEMPT: Flags = Flags::FAST
        .or(Flags::ADMIN)
        .or(Flags::NO_AUTH)
        .or(Flags::LOADING)
        .or(Flags::ALLOW_BUSY)
        .or(Flags::BLOCKING);
    let is_script = matches!(command.run, Run::Script(_));
    is_script
        || command.flags.any(Flags::READONLY.or(Flags::WRITE))
            && !command.flags.any(EXEMPT)
            && !command.complexity.starts_with("O(1)")
}

impl Default for Overload {
    fn default() -> Overload {
        let commands = registry().all();
        Overload {
            pressure: AtomicU32::new(0),
            draws: AtomicU32::new(0),
            classes: commands.iter().map(|_| AtomicU8::new(0)).collect(),
            refused: AtomicU64::new(0),
            wait_p99_us: AtomicU64::new(0),
            probes: Mutex::default(),
            costs: Mutex::new(vec![MeanCost::default(); commands.len()]),
        }
    }
}

impl Overload {
    /// Returns whether a command is to be refused, and counts it then.
    #[cold]
    pub fn refuses(&self, command: &Command) -> bool {
        let class = self.classes[command.id()].load(Relaxed);
        class >= DEAREST && self.draws_refusal(class)
    }

    /// Returns whether a request that takes long is to be refused, and counts it then.
    #[cold]
    pub fn refuses_long(&self) -> bool {
        self.draws_refusal(DEAREST)
    }

    fn draws_refusal(&self, class: u8) -> bool {
        let cheaper = u32::from(class - DEAREST) * WHOLE;
        let part = self.pressure.load(Relaxed).saturating_sub(cheaper);
        // An odd step visits all remainders, so that the part is kept exactly.
        let drawn = self.draws.fetch_add(1, Relaxed).wrapping_mul(97) % WHOLE;
        let is_refused = drawn < part;
        self.refused.fetch_add(u64::from(is_refused), Relaxed);
        is_refused
    }

    /// Returns the pressure: the number of classes that are refused.
    pub fn pressure(&self) -> f64 {
        f64::from(self.pressure.load(Relaxed)) / f64::from(WHOLE)
    }

    /// Whether any command is refused.
    pub fn is_refusing(&self) -> bool {
        self.pressure.load(Relaxed) > 0
    }

    /// Sends a probe; returns its number, with which [`Overload::probe_arrived`] is called.
    pub fn send_probe(&self) -> u64 {
        let mut probes = self.probes.lock();
        probes.count += 1;
        let number = probes.count;
        probes.on_their_way.insert(number, Ticks::now());
        number
    }

    /// Records how long a probe waited.
    pub fn probe_arrived(&self, number: u64) {
        let mut probes = self.probes.lock();
        let sent = probes.on_their_way.remove(&number);
        let wait_us = sent.map(|sent| Ticks::now().since_ns(sent) / 1_000);
        if let Some(period) = probes.waits_us.back_mut() {
            period.extend(wait_us);
        }
    }

    /// Evaluates the last second, at the end of each period.
    pub fn evaluate(&self, limit_ms: u64) {
        let now = Ticks::now();
        let p99_us = {
            let mut probes = self.probes.lock();
            let waiting = probes.on_their_way.values();
            let waiting: Vec<u64> = waiting.map(|sent| now.since_ns(*sent) / 1_000).collect();
            let p99_us = percentile_99(probes.waits_us.iter().flatten().copied().chain(waiting));
            probes.waits_us.push_back(Vec::new());
            if probes.waits_us.len() > PERIODS {
                probes.waits_us.pop_front();
            }
            p99_us
        };
        self.classify();
        self.follow(p99_us, limit_ms * 1_000);
    }

    /// Changes the pressure after an evaluation.
    fn follow(&self, p99_us: u64, limit_us: u64) {
        self.wait_p99_us.store(p99_us, Relaxed);
        let before = self.pressure.load(Relaxed);
        let pressure = match p99_us {
            _ if p99_us > limit_us => (before + RISE).min(WHOLE * CLASSES_FROM_NS.len() as u32),
            _ if p99_us < limit_us * 2 / 3 => before.saturating_sub(FALL),
            _ => before,
        };
        self.pressure.store(pressure, Relaxed);
    }

    /// Assigns the commands to classes, by what they cost lately.
    fn classify(&self) {
        let threads = counters::all();
        let mut costs = self.costs.lock();
        for (command, cost) in registry().all().iter().zip(&mut *costs) {
            if !may_be_refused(command) {
                continue;
            }
            let of_threads = threads.iter().map(|thread| thread.command(command));
            let (calls, duration_ns) = of_threads.fold((0, 0), |(calls, ns), counters| {
                (
                    calls + counters.calls.get(),
                    ns + counters.duration_ns.get(),
                )
            });
            cost.follow(calls, duration_ns);
            self.classes[command.id()].store(cost.class(), Relaxed);
        }
    }

    /// Refuses nothing, and forgets what was measured.
    pub fn end(&self) {
        self.pressure.store(0, Relaxed);
        self.wait_p99_us.store(0, Relaxed);
        *self.probes.lock() = Probes::default();
    }
}

/// Returns what 99 of 100 values do not exceed; 0 if there are none.
fn percentile_99(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    let rank = values.len().saturating_sub(1) * 99 / 100;
    match values.is_empty() {
        true => 0,
        false => *values.select_nth_unstable(rank).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> &'static Command {
        registry().find(name.as_bytes()).expect("a command")
    }

    /// Returns how many of 1,024 requests of a class are refused.
    fn refused(overload: &Overload, class: u8) -> usize {
        (0..1_024).filter(|_| overload.draws_refusal(class)).count()
    }

    #[test]
    fn the_dearest_class_is_refused_first_and_in_parts() {
        let overload = Overload::default();
        for (pressure, expected) in [
            (0, [0, 0, 0]),
            (64, [256, 0, 0]),
            (256, [1_024, 0, 0]),
            (384, [1_024, 512, 0]),
            (768, [1_024, 1_024, 1_024]),
        ] {
            overload.pressure.store(pressure, Relaxed);
            let counts = [1, 2, 3].map(|class| refused(&overload, class));
            assert_eq!(counts, expected, "at {pressure}");
        }
        assert_eq!(overload.refused.load(Relaxed), 256 + 1_024 + 1_536 + 3_072);
    }

    #[test]
    fn pressure_rises_fast_falls_slowly_and_has_bounds() {
        let overload = Overload::default();
        overload.follow(5_001, 5_000);
        assert_eq!(overload.pressure(), 0.25);
        overload.follow(4_000, 5_000);
        assert_eq!(overload.pressure(), 0.25, "near the limit it stays");
        overload.follow(3_000, 5_000);
        assert_eq!(overload.pressure(), 0.25 - 8.0 / 256.0);
        (0..40).for_each(|_| overload.follow(9_000, 5_000));
        assert_eq!(overload.pressure(), 3.0);
        (0..200).for_each(|_| overload.follow(0, 5_000));
        assert!(!overload.is_refusing());
    }

    #[test]
    fn a_command_has_the_class_of_what_it_cost_lately() {
        let mut cost = MeanCost::default();
        assert_eq!(cost.class(), 0);
        cost.follow(10, 10 * 39_000);
        assert_eq!(cost.class(), 0);
        cost.follow(10, 10 * 39_000);
        assert_eq!(cost.mean_ns, 39_000, "nothing has run");
        let (mut calls, mut duration_ns) = (10, 390_000);
        let mut classes = Vec::new();
        for _ in 0..40 {
            calls += 5;
            duration_ns += 5 * 1_500_000;
            cost.follow(calls, duration_ns);
            classes.push(cost.class());
        }
        classes.dedup();
        assert_eq!(classes, [2, 1]);
        // CONFIG RESETSTAT begins anew.
        cost.follow(0, 0);
        assert_eq!(cost.class(), 1);
    }

    #[test]
    fn only_work_that_grows_with_the_data_is_ever_refused() {
        for name in [
            "eval",
            "fcall",
            "evalsha_ro",
            "keys",
            "zrange",
            "sunionstore",
            "sort",
            "lrange",
        ] {
            assert!(may_be_refused(find(name)), "{name}");
        }
        for name in [
            "get",
            "set",
            "setex",
            "ping",
            "auth",
            "hello",
            "info",
            "psync",
            "replconf",
            "config",
            "client",
            "hget",
            "incr",
            "exec",
            "multi",
            "publish",
            "subscribe",
            "cluster",
            "shutdown",
            "blpop",
            "replicaof",
        ] {
            assert!(!may_be_refused(find(name)), "{name}");
        }
    }

    #[test]
    fn waits_count_for_a_second_and_those_that_last_count_already() {
        let overload = Overload::default();
        overload.evaluate(1);
        assert_eq!(overload.wait_p99_us.load(Relaxed), 0);
        overload.probes.lock().waits_us[0] = [vec![10; 98], vec![70; 2]].concat();
        for _ in 0..PERIODS {
            overload.evaluate(1);
            assert_eq!(overload.wait_p99_us.load(Relaxed), 70);
        }
        overload.evaluate(1);
        assert_eq!(overload.wait_p99_us.load(Relaxed), 0, "they were long ago");
        let number = overload.send_probe();
        let began = Ticks::now();
        while Ticks::now().since_ns(began) < 2_000_000 {
            std::hint::spin_loop();
        }
        overload.evaluate(1);
        assert!(overload.wait_p99_us.load(Relaxed) >= 2_000);
        assert_eq!(overload.pressure(), 0.25);
        overload.probe_arrived(number);
        assert!(overload.probes.lock().on_their_way.is_empty());
        overload.end();
        assert!(!overload.is_refusing());
        overload.probe_arrived(number);
    }
}
