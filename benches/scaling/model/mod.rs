//! Predicts the effect of more cores: `cargo bench --bench scaling -- model [--from FILE] [--commands 200000]`.
//!
//! The machine (`machine.rs`) has as many cores as the server has threads. The costs of its steps (`inputs.rs`) were
//! measured with one thread by the bench, whose `scaling.json` is read, or counted by `tests/sharing`, or are assumed.
//! The simulation in `src/server/shard/unit/simulation` is unrelated: it orders steps of the real shards to find
//! faults, and has no notion of time.

pub(crate) mod inputs;
pub(crate) mod machine;

use std::fmt::Write;
use std::path::PathBuf;

use inputs::{Measured, Setting};
use machine::{Outcome, Runtime, Setup};

use super::support::arguments::Arguments;
use super::support::peers;
use basalt_testing::random::Draw;

/// Nanoseconds of a hand-over: of a line of a nearby core, between the two, and of one on another die.
const HAND_OVERS_NS: [f64; 3] = [100.0, 200.0, 300.0];

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 64, 128];

/// The runtimes, as the directive names them.
const RUNTIMES: [(&str, Runtime); 2] =
    [("shared", Runtime::Shared), ("per-core", Runtime::PerCore)];

/// A thread copies keys with at least this part of its reads.
const COPIED_PART: usize = 64;

/// One in so many reads of a copied key runs in the ordinary way.
const ORDINARY_PART: usize = 256;

pub(crate) const KEYS: usize = 200_000;

/// Share of time in use above which a resource counts as the bottleneck.
const SATURATED: f64 = 0.9;

/// The choices of keys, by their names in the bench's rows.
pub(crate) const CHOICES: [&str; 3] = ["", " Zipf 0.99", " hot key"];

/// A generator of random keys and their shards.
pub(crate) struct Keys {
    draw: Draw,
    /// Shard of each key.
    shards: Vec<usize>,
    /// Cumulative weights by key; empty if all are equal, or for a single key.
    weights: Vec<f64>,
    is_hot: bool,
    /// Number of keys, the hottest first, whose reads copies answer.
    copied: usize,
    reads_of_copied: usize,
}

impl Keys {
    pub(crate) fn new(choice: &str, shards: usize, seed: u64) -> Keys {
        let mut draw = Draw::new(38 + seed);
        let shards = (0..KEYS).map(|_| draw.next() as usize % shards).collect();
        let mut weights = Vec::new();
        if choice.contains("Zipf") {
            let mut sum = 0.0;
            weights.extend((1..=KEYS).map(|rank| {
                sum += 1.0 / (rank as f64).powf(0.99);
                sum
            }));
        }
        Keys {
            draw,
            shards,
            weights,
            is_hot: choice.contains("hot"),
            copied: 0,
            reads_of_copied: 0,
        }
    }

    /// Returns the keys as they are read by threads with copies of hot keys.
    pub(crate) fn with_copies(mut self) -> Keys {
        self.copied = match self.weights.last() {
            Some(all) => {
                let mut before = 0.0;
                let shares = self
                    .weights
                    .iter()
                    .map(|sum| sum - std::mem::replace(&mut before, *sum));
                shares
                    .take_while(|share| share / all >= 1.0 / COPIED_PART as f64)
                    .count()
            }
            None => usize::from(self.is_hot),
        };
        self
    }

    /// Returns the shard of the next command's key; none if a copy answers it.
    pub(crate) fn shard(&mut self) -> Option<usize> {
        let key = self.next();
        if key < self.copied {
            self.reads_of_copied += 1;
            if !self.reads_of_copied.is_multiple_of(ORDINARY_PART) {
                return None;
            }
        }
        Some(self.shards[key])
    }

    pub(crate) fn next(&mut self) -> usize {
        match self.weights.last() {
            Some(all) => {
                let at = self.draw.unit() * all;
                self.weights.partition_point(|sum| *sum <= at).min(KEYS - 1)
            }
            None if self.is_hot => 0,
            None => self.draw.next() as usize % KEYS,
        }
    }
}

/// Checks the machine against known results: one thread takes the sum of its steps, threads that share nothing do not
/// slow each other down, and with one key the token is the limit.
fn check() {
    let cost = machine::Cost {
        copied_ns: 300.0,
        driver_ns: 500.0,
        batch_ns: 5_000.0,
        command_ns: 400.0,
        log_ns: 0.0,
        sequencer_ns: 0.0,
        together: 10.0,
        connection_lines: 8.0,
        global_batch_lines: 0.0,
        global_command_lines: 0.0,
    };
    let on = |runtime: Runtime, threads: usize, choice: &str, hand_over_ns: f64| {
        let setup = Setup {
            runtime,
            ..setup(threads, 10, 20_000, &cost, hand_over_ns)
        };
        let mut keys = Keys::new(choice, setup.shards, 0);
        if choice.contains("copied") {
            keys = keys.with_copies();
        }
        machine::run(&setup, &mut || keys.shard()).ops_per_s
    };
    let run = |threads: usize, choice: &str, hand_over_ns: f64| {
        on(Runtime::Shared, threads, choice, hand_over_ns)
    };
    let alone = run(1, "", 200.0);
    let reckoned = 1e9 / (5_000.0 / 10.0 + 400.0);
    assert!(
        (alone / reckoned - 1.0).abs() < 0.02,
        "{alone} of {reckoned}"
    );
    let eight = run(8, "", 0.0) / alone;
    assert!(
        (7.0..=8.1).contains(&eight),
        "{eight} times with 8 threads that share nothing"
    );
    assert!(
        run(8, "", 300.0) < run(8, "", 100.0),
        "hand-overs cost nothing"
    );
    let hot = run(64, " hot key", 100.0);
    assert!(hot <= 1e9 / 400.0 * 1.02, "{hot} on one token");
    let copied = on(Runtime::PerCore, 64, " hot key, copied", 100.0) / alone;
    assert!(copied > 40.0, "{copied} times with copies of the key");
    let driver = run(128, "", 0.0);
    assert!(
        driver <= 1e9 / 500.0 * 10.0 * 1.02,
        "{driver} with one driver"
    );
    let own = on(Runtime::PerCore, 128, "", 0.0) / alone;
    assert!(own > 110.0, "{own} times with a driver for each thread");
}

/// Predicts and prints the throughput.
pub(crate) fn predict(arguments: &Arguments) {
    check();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/scaling.json");
    let file = PathBuf::from(arguments.value("--from", kept));
    let measured = Measured::read(&file).unwrap_or_else(|why| {
        panic!("{why}; measure first: cargo bench --bench scaling -- --threads 1 --no-redis --no-valkey --no-memcached")
    });
    let commands = arguments.sized("--commands", 200_000, 10_000);
    let threads: Vec<usize> = arguments.numbers(
        "--threads",
        &THREADS.map(|count| count.to_string()).join(","),
    );
    let only = arguments.value("--only", "");
    let mut report = inputs::list(&file) + &heading();
    for (runtime_name, runtime) in RUNTIMES {
        report += &predictions(
            &measured,
            (runtime_name, runtime),
            &threads,
            (commands, &only),
        );
    }
    peers::publish(arguments, "scaling-model.md", &report);
}

/// Returns the rows of one runtime.
fn predictions(
    measured: &Measured,
    (runtime_name, runtime): (&str, Runtime),
    threads: &[usize],
    (commands, only): (usize, &str),
) -> String {
    let mut report = String::new();
    for setting in Setting::ALL {
        for kind in ["GET", "SET"] {
            // Commands that are not logged are the same in every setting.
            if kind == "GET" && setting != Setting::Bare {
                continue;
            }
            for choice in CHOICES {
                for pipeline in [1, 10, 100] {
                    let name = format!(
                        "{kind}{choice}, P={pipeline}{}, {runtime_name}",
                        setting.name()
                    );
                    let cost = measured.cost(kind, choice, pipeline, setting);
                    let Some(cost) = cost.filter(|_| name.contains(only)) else {
                        continue;
                    };
                    let mut firsts = HAND_OVERS_NS.map(|_| None);
                    for &threads in threads {
                        let outcomes = HAND_OVERS_NS.map(|hand_over_ns| {
                            let setup = Setup {
                                runtime,
                                ..setup(threads, pipeline, commands, &cost, hand_over_ns)
                            };
                            let mut keys = Keys::new(choice, setup.shards, 0);
                            if kind == "GET" {
                                keys = keys.with_copies();
                            }
                            machine::run(&setup, &mut || keys.shard())
                        });
                        report += &row(&name, threads, &outcomes, &mut firsts);
                    }
                }
            }
        }
    }
    report
}

pub(crate) fn setup(
    threads: usize,
    pipeline: usize,
    commands: usize,
    cost: &machine::Cost,
    hand_over_ns: f64,
) -> Setup {
    Setup {
        runtime: Runtime::Shared,
        threads,
        // As chosen by the server.
        shards: (8 * threads).next_power_of_two().clamp(64, 1024),
        connections: (8 * threads).max(50),
        pipeline,
        commands: commands.max(2_000 * threads),
        cost: cost.clone(),
        hand_over_ns,
        spin_ns: 400.0,
        queue_ns: 300.0,
    }
}

fn heading() -> String {
    "\nkop/s, the throughput over the threads of that of one thread, CPU us a command, and that CPU by that of one \
     thread, with hand-overs of 300, 200 and 100 ns; then what is in use for more than nine tenths of the time with 300 \
     ns, or else what is used most. Reads of hot keys are answered from copies.\n\n\
     | row | threads | kop/s | efficiency | CPU us/op | CPU by one thread's | bound by |\n|---|---|---|---|---|---|---|\n"
        .to_owned()
}

/// Throughput and CPU of a command for each thread with one thread, by hand-over.
type First = Option<(f64, f64)>;

fn row(name: &str, threads: usize, outcomes: &[Outcome; 3], firsts: &mut [First; 3]) -> String {
    let each = |of: &dyn Fn(&Outcome) -> String| {
        let shown: Vec<String> = outcomes.iter().rev().map(of).collect();
        shown.join(" / ")
    };
    let (mut efficiencies, mut costs) = (Vec::new(), Vec::new());
    for (outcome, first) in outcomes.iter().zip(firsts).rev() {
        let one = outcome.ops_per_s / threads as f64;
        let (first_ops, first_ns) = *first.get_or_insert((one, outcome.cpu_ns_per_op));
        efficiencies.push(format!("{:.2}", one / first_ops));
        costs.push(format!("{:.2}", outcome.cpu_ns_per_op / first_ns));
    }
    let mut text = String::new();
    let most = |outcome: &Outcome| {
        let mut uses = outcome.uses.clone();
        uses.sort_by(|one, other| other.1.total_cmp(&one.1));
        let (name, share) = uses[0];
        match share >= SATURATED {
            true => format!("**{name}**"),
            false => format!("{name} {:.0} %", share * 100.0),
        }
    };
    writeln!(
        text,
        "| {name} | {threads} | {} | {} | {} | {} | {} |",
        each(&|outcome| format!("{:.0}", outcome.ops_per_s / 1000.0)),
        efficiencies.join(" / "),
        each(&|outcome| format!("{:.3}", outcome.cpu_ns_per_op / 1000.0)),
        costs.join(" / "),
        most(&outcomes[2]),
    )
    .expect("a text");
    text
}
