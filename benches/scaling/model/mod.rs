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
use machine::{Outcome, Setup};

use super::support::arguments::Arguments;
use super::support::peers;
use basalt_testing::random::Draw;

/// Nanoseconds of a hand-over: of a line of a nearby core, and of one on another die.
const HAND_OVERS_NS: [f64; 2] = [100.0, 300.0];

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

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
        }
    }

    pub(crate) fn shard(&mut self) -> usize {
        let key = self.next();
        self.shards[key]
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
        batch_ns: 5_000.0,
        command_ns: 400.0,
        log_ns: 0.0,
        sequencer_ns: 0.0,
        together: 10.0,
        connection_lines: 8.0,
        global_batch_lines: 0.0,
        global_command_lines: 0.0,
    };
    let run = |threads: usize, choice: &str, hand_over_ns: f64| {
        let setup = setup(threads, 10, 20_000, &cost, hand_over_ns);
        let mut keys = Keys::new(choice, setup.shards, 0);
        machine::run(&setup, &mut || keys.shard()).ops_per_s
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
    for setting in Setting::ALL {
        for kind in ["GET", "SET"] {
            // Commands that are not logged are the same in every setting.
            if kind == "GET" && setting != Setting::Bare {
                continue;
            }
            for choice in CHOICES {
                for pipeline in [1, 10, 100] {
                    let name = format!("{kind}{choice}, P={pipeline}{}", setting.name());
                    let cost = measured.cost(kind, choice, pipeline, setting);
                    let Some(cost) = cost.filter(|_| name.contains(&only)) else {
                        continue;
                    };
                    let mut firsts = HAND_OVERS_NS.map(|_| None);
                    for &threads in &threads {
                        let outcomes = HAND_OVERS_NS.map(|hand_over_ns| {
                            let setup = setup(threads, pipeline, commands, &cost, hand_over_ns);
                            let mut keys = Keys::new(choice, setup.shards, 0);
                            machine::run(&setup, &mut || keys.shard())
                        });
                        report += &row(&name, threads, &outcomes, &mut firsts);
                    }
                }
            }
        }
    }
    peers::publish(arguments, "scaling-model.md", &report);
}

pub(crate) fn setup(
    threads: usize,
    pipeline: usize,
    commands: usize,
    cost: &machine::Cost,
    hand_over_ns: f64,
) -> Setup {
    Setup {
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
    "\nkop/s, the throughput over the threads of that of one thread, and CPU us a command, with hand-overs of 100 and of \
     300 ns; then what is in use for more than nine tenths of the time, or else what is used most.\n\n\
     | row | threads | kop/s | efficiency | CPU us/op | bound by |\n|---|---|---|---|---|---|\n"
        .to_owned()
}

fn row(
    name: &str,
    threads: usize,
    outcomes: &[Outcome; 2],
    firsts: &mut [Option<f64>; 2],
) -> String {
    let each =
        |of: &dyn Fn(&Outcome) -> String| format!("{} to {}", of(&outcomes[1]), of(&outcomes[0]));
    let mut efficiencies = Vec::new();
    for (outcome, first) in outcomes.iter().zip(firsts) {
        let one = outcome.ops_per_s / threads as f64;
        efficiencies.push(one / *first.get_or_insert(one));
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
        "| {name} | {threads} | {} | {:.2} to {:.2} | {} | {} |",
        each(&|outcome| format!("{:.0}", outcome.ops_per_s / 1000.0)),
        efficiencies[1],
        efficiencies[0],
        each(&|outcome| format!("{:.3}", outcome.cpu_ns_per_op / 1000.0)),
        most(&outcomes[1]),
    )
    .expect("a text");
    text
}
