//! The cost of appending: SETs with each `appendfsync`, and without an append-only file.

use std::fmt::Write;
use std::time::Duration;

use crate::support::load::{self, Job, Kind, Sample};
use crate::{Plan, Runner, load_core, median};

struct Case {
    name: &'static str,
    /// Value of `appendfsync`; empty for no file.
    fsync: &'static str,
    pipeline: usize,
    /// Microseconds of delay added to the disk, with DEBUG AOF-FLUSH-SLEEP: before each write, and so before each sync
    /// of `always`.
    slower_us: u32,
}

const fn case(name: &'static str, fsync: &'static str, pipeline: usize, slower_us: u32) -> Case {
    Case {
        name,
        fsync,
        pipeline,
        slower_us,
    }
}

const CASES: &[Case] = &[
    case("SET P=16, no file", "", 16, 0),
    case("SET P=16, no", "no", 16, 0),
    case("SET P=16, everysec", "everysec", 16, 0),
    case("SET P=1, always", "always", 1, 0),
    case("SET P=1, always, disk slower by 1 ms", "always", 1, 1_000),
    case("SET P=1, always, by 2 ms", "always", 1, 2_000),
    case("SET P=1, always, by 5 ms", "always", 1, 5_000),
    case("SET P=16, always", "always", 16, 0),
];

pub(crate) fn measure(plan: &Plan, out: &mut String) {
    *out += "\n## Appending, 50 connections\n\n\
             | what | server | commands/s | p50 µs | p99 µs | CPU µs a command | commands/s of redis | CPU of redis |\n\
             |---|---|---|---|---|---|---|---|\n";
    for case in CASES {
        let mut samples: Vec<Vec<Sample>> = plan.runners.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds {
            for (runner, samples) in plan.runners.iter().zip(&mut samples) {
                samples.push(sample(plan, runner, case));
            }
        }
        let of = |samples: &[Sample], figure: fn(&Sample) -> f64| {
            median(samples.iter().map(figure).collect())
        };
        for (runner, own) in plan.runners.iter().zip(&samples) {
            let (rate, cpu) = (
                of(own, |one| one.ops_per_s),
                of(own, |one| one.cpu_us_per_op),
            );
            let redis = &samples[0];
            let _ = writeln!(
                out,
                "| {} | {} | {rate:.0} | {:.0} | {:.0} | {cpu:.2} | {:.2} | {:.2} |",
                case.name,
                runner.name,
                of(own, |one| one.p50_us),
                of(own, |one| one.p99_us),
                rate / of(redis, |one| one.ops_per_s),
                cpu / of(redis, |one| one.cpu_us_per_op),
            );
        }
    }
}

fn sample(plan: &Plan, runner: &Runner, case: &Case) -> Sample {
    let dir = plan.folder("appending");
    let server = match case.fsync {
        "" => runner.start(&dir, &[]),
        fsync => {
            let mut words = vec!["--appendonly", "yes", "--appendfsync", fsync];
            words.extend(["--enable-debug-command", "yes"]);
            runner.start(&dir, &words)
        }
    };
    if case.slower_us > 0 {
        let slower_us = case.slower_us.to_string();
        server
            .client()
            .ask(&["DEBUG", "AOF-FLUSH-SLEEP", &slower_us]);
    }
    let job = Job {
        kind: Kind::Set,
        pipeline: case.pipeline,
        clients: 50,
        keys: plan.keys.min(1_000_000),
        value_bytes: 64,
        time: Duration::from_millis(if plan.quick { 500 } else { 3_000 }),
        subscribers: 0,
    };
    let sample = load::run(&job, server.port, server.pid(), &load_core());
    eprintln!("{}, {}: {sample:.1?}", case.name, runner.name);
    sample
}
