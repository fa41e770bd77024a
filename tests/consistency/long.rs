//! Shows for as long as one likes what docs/guarantees.md promises: the rounds of `tests/consistency`, one after the
//! other, with each fault, and a row of figures for each.
//!
//! ```text
//! cargo build --release
//! cargo run --release --example consistency -- --minutes 60 --seed 1
//!     --faults nothing,stops     which faults (by default all)
//!     --threads 4 --shards 64    the size of the server
//!     --server redis             judges redis-server, newer-redis or valkey in place of basalt
//!     --round 10                 seconds of a round; each is a history that is judged by itself
//!     --edn DIR                  keeps each history of transactions there, for Elle
//!     --check FILE               judges a history of list-append in a file, and nothing else
//! ```
//!
//! `BASALT_BINARY` names the server to judge. The exit status is 1 if there was an anomaly; its history is kept.

#![allow(clippy::print_stdout, reason = "a program that prints its results")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use basalt_testing::{support, wire};

mod appending;
mod clients;
mod edn;
mod graph;
mod history;
mod linear;
mod list_append;
mod objects;
mod rounds;
mod singles;
mod survivors;

use rounds::{FAULTS, Fault, Make, Plan, Shown, Site};

struct Options {
    minutes: f64,
    seed: u64,
    faults: Vec<Fault>,
    make: Make,
    round: Duration,
    clients: u64,
    edn: Option<PathBuf>,
}

/// The figures of a fault.
#[derive(Default)]
struct Row {
    histories: usize,
    transactions: usize,
    unknown: usize,
    keys: usize,
    operations: usize,
    faults: usize,
    lost: usize,
    undecided: usize,
    anomalies: usize,
    time: Duration,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file] = words.as_slice()
        && flag == "--check"
    {
        return check(Path::new(file));
    }
    let Some(options) = options(&words) else {
        eprintln!("unknown arguments {words:?}; the head of tests/consistency/long.rs lists them");
        return ExitCode::from(2);
    };
    let faults = FAULTS
        .iter()
        .filter(|(fault, _)| options.faults.contains(fault));
    let faults: Vec<_> = faults.collect();
    let each = Duration::from_secs_f64(options.minutes * 60.0 / faults.len() as f64);
    println!(
        "| fault | histories | transactions | unknown | lost | keys | operations on them | faults | minutes | undecided | anomalies |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut is_sound = true;
    for (fault, name) in faults {
        let Some(row) = run(&options, *fault, each) else {
            eprintln!("{:?} is not installed", options.make);
            return ExitCode::from(2);
        };
        is_sound &= row.anomalies == 0;
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} | {} |",
            row.histories,
            row.transactions,
            row.unknown,
            row.lost,
            row.keys,
            row.operations,
            row.faults,
            row.time.as_secs_f64() / 60.0,
            row.undecided,
            row.anomalies,
        );
    }
    ExitCode::from(u8::from(!is_sound))
}

/// Reads the arguments; `None` if they are none of ours.
fn options(words: &[String]) -> Option<Options> {
    let (pairs, odd) = words.as_chunks::<2>();
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for [name, value] in pairs {
        given.insert(name.strip_prefix("--")?, value);
    }
    let mut take = |name, default| given.remove(name).unwrap_or(default);
    let faults = take("faults", "");
    let threads = take("threads", "4").parse().ok()?;
    let shards = take("shards", "64").parse().ok()?;
    let options = Options {
        minutes: take("minutes", "10").parse().ok()?,
        seed: take("seed", "1").parse().ok()?,
        faults: match faults {
            "" => FAULTS.iter().map(|(fault, _)| *fault).collect(),
            names => names.split(',').map(fault).collect::<Option<_>>()?,
        },
        make: match take("server", "basalt") {
            "basalt" => Make::Basalt { threads, shards },
            "redis" => Make::Redis,
            "newer-redis" => Make::NewerRedis,
            "valkey" => Make::Valkey,
            _ => return None,
        },
        round: Duration::from_secs_f64(take("round", "10").parse().ok()?),
        clients: take("clients", "6").parse().ok()?,
        edn: Some(take("edn", ""))
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from),
    };
    (odd.is_empty() && given.is_empty()).then_some(options)
}

fn fault(name: &str) -> Option<Fault> {
    let row = FAULTS.iter().find(|(_, known)| *known == name);
    row.map(|(fault, _)| *fault)
}

/// Runs rounds with a fault for a time.
fn run(options: &Options, fault: Fault, time: Duration) -> Option<Row> {
    let mut row = Row::default();
    let began = Instant::now();
    while began.elapsed() < time {
        let is_odd = row.histories % 2 == 1;
        // Without readers of single keys a primary may be stopped as well as killed.
        let singles = match fault {
            Fault::Confirmed if is_odd => 0,
            _ => rounds::singles_beside(fault, options.clients),
        };
        let plan = Plan {
            fault,
            time: options.round.min(time),
            writes_min: 100,
            appenders: options.clients,
            singles,
            seed: options.seed * 100_000 + row.histories as u64,
        };
        // Each round has servers of its own.
        let mut site = Site::start(options.make, &plan)?;
        if fault == Fault::KillEverysec && is_odd {
            site.disk_loses = rounds::POWER_CUT;
        }
        let shown = site.round(&plan, None);
        row.histories += 1;
        row.transactions += shown.transactions;
        row.unknown += shown.unknown;
        row.keys += shown.keys;
        row.operations += shown.operations;
        row.faults += shown.faults;
        row.lost += shown.lost;
        row.undecided += shown.undecided;
        row.anomalies += shown.anomalies.values().map(Vec::len).sum::<usize>();
        keep(options, &plan, &shown);
    }
    row.time = began.elapsed();
    Some(row)
}

/// Prints what is wrong with a history, and keeps it.
fn keep(options: &Options, plan: &Plan, shown: &Shown) {
    let dir = match &options.edn {
        Some(dir) => dir.clone(),
        None if shown.anomalies.is_empty() => return,
        None => std::env::temp_dir(),
    };
    let file = dir.join(format!("{:?}-{}.edn", plan.fault, plan.seed).to_lowercase());
    if let Err(error) = std::fs::write(&file, edn::write(&shown.history)) {
        eprintln!("{}: {error}", file.display());
    }
    for (name, texts) in &shown.anomalies {
        eprintln!(
            "{name}, seed {}, {}:\n{}",
            plan.seed,
            file.display(),
            texts.join("\n")
        );
    }
}

/// Judges a history in a file.
fn check(file: &Path) -> ExitCode {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let Some(history) = edn::read(&text) else {
        eprintln!("{} is no history of list-append", file.display());
        return ExitCode::from(2);
    };
    let anomalies = list_append::judge(&history);
    println!(
        "{} transactions, {} anomalies",
        history.len(),
        anomalies.count
    );
    for (name, texts) in &anomalies.found {
        println!("{name}:\n{}", texts.join("\n"));
    }
    ExitCode::from(u8::from(!anomalies.is_empty()))
}
