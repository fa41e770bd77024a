//! What it costs to append: SETs with each `appendfsync`, and without an append-only file.

use std::fmt::Write;
use std::time::Duration;

use crate::support::load::{self, Job, Kind, Sample};
use crate::{Plan, Runner, load_core, median};

/// What is measured: name, what `appendfsync` says (nothing: no file), requests in a batch.
const CASES: &[(&str, &str, usize)] = &[
    ("SET P=16, no file", "", 16),
    ("SET P=16, no", "no", 16),
    ("SET P=16, everysec", "everysec", 16),
    ("SET P=1, always", "always", 1),
    ("SET P=16, always", "always", 16),
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
                case.0,
                runner.name,
                of(own, |one| one.p50_us),
                of(own, |one| one.p99_us),
                rate / of(redis, |one| one.ops_per_s),
                cpu / of(redis, |one| one.cpu_us_per_op),
            );
        }
    }
}

fn sample(plan: &Plan, runner: &Runner, (name, fsync, pipeline): &(&str, &str, usize)) -> Sample {
    let dir = plan.folder("appending");
    let server = match *fsync {
        "" => runner.start(&dir, &[]),
        fsync => runner.start(&dir, &["--appendonly", "yes", "--appendfsync", fsync]),
    };
    let job = Job {
        kind: Kind::Set,
        pipeline: *pipeline,
        clients: 50,
        keys: plan.keys.min(1_000_000),
        value_bytes: 64,
        time: Duration::from_millis(if plan.quick { 500 } else { 3_000 }),
    };
    let sample = load::run(&job, server.port, server.pid(), &load_core());
    eprintln!("{name}, {}: {sample:.1?}", runner.name);
    sample
}
