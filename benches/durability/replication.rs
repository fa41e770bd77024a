//! The cost of a replica: the primary's CPU with and without one, the replica's own, its lag, and a first
//! synchronization of many keys.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::snapshots::worst_gap;
use crate::support::load::{self, Job, Kind};
use crate::support::process::{self, Client, Process};
use crate::{Plan, Runner, load_core, median};

/// Interval of the checks of a replica's lag.
const LOOK: Duration = Duration::from_millis(10);

/// Observation before a synchronization begins, as a baseline.
const BEFORE: Duration = Duration::from_millis(500);

/// The cases: name, directives of the primary, whether there is a replica.
const CASES: &[(&str, &[&str], bool)] = &[
    ("no replica", &[], false),
    ("one replica", &[], true),
    (
        "one replica, everysec",
        &["--appendonly", "yes", "--appendfsync", "everysec"],
        true,
    ),
];

/// Result of a load on a primary that may have a replica.
#[derive(Clone, Copy, Default)]
struct Followed {
    ops_per_s: f64,
    /// The primary's CPU, in µs per command.
    cpu_us: f64,
    /// The replica's CPU, in µs per command.
    replica_cpu_us: f64,
    /// The replica's lag in commands: the median, the maximum, and at the end of the load.
    behind: [f64; 3],
    /// Milliseconds until it had caught up.
    caught_up_ms: f64,
}

impl Followed {
    const FIGURES: [fn(&Followed) -> f64; 7] = [
        |one| one.ops_per_s,
        |one| one.cpu_us,
        |one| one.replica_cpu_us,
        |one| one.behind[0] / 1e3,
        |one| one.behind[1] / 1e3,
        |one| one.behind[2] / 1e3,
        |one| one.caught_up_ms,
    ];

    /// Returns the median of each figure.
    fn medians(all: &[Followed]) -> [f64; 7] {
        Followed::FIGURES.map(|figure| median(all.iter().map(figure).collect()))
    }
}

const HEAD: &str = "| what | server | commands/s | primary's CPU µs a command | of redis | replica's CPU µs a command | of redis | \
     thousand commands behind, median | at most | at the end | ms to catch up |\n\
     |---|---|---|---|---|---|---|---|---|---|---|\n";

fn row(what: &str, runner: &Runner, own: [f64; 7], redis: [f64; 7]) -> String {
    let [rate, cpu, replica, median, most, end, catching] = own;
    let line = format!(
        "| {what} | {} | {rate:.0} | {cpu:.2} | {:.2} | {replica:.2} | {:.2} | {median:.1} | {most:.1} | {end:.1} | \
         {catching:.0} |\n",
        runner.name,
        cpu / redis[1],
        if replica > 0.0 {
            replica / redis[2]
        } else {
            0.0
        }
    );
    eprint!("{line}");
    line
}

pub(crate) fn measure(plan: &Plan, out: &mut String) {
    let _ = write!(
        out,
        "\n## Replicas: SET P=16, 50 connections, each server with a replica of its kind\n\n{HEAD}"
    );
    for (what, directives, is_followed) in CASES {
        let mut samples: Vec<Vec<Followed>> = plan.runners.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds {
            for (runner, samples) in plan.runners.iter().zip(&mut samples) {
                let pair = Pair::start(plan, runner, directives, is_followed.then(replica_core));
                samples.push(pair.follow(plan, vec![load_core()]));
            }
        }
        let medians: Vec<[f64; 7]> = samples.iter().map(|all| Followed::medians(all)).collect();
        for (runner, own) in plan.runners.iter().zip(&medians) {
            *out += &row(what, runner, *own, medians[0]);
        }
    }
    measure_uneven(plan, out);
    measure_synchronizations(plan, out);
}

/// Measures a primary that shares all cores but one with the load, and a replica on the remaining one.
fn measure_uneven(plan: &Plan, out: &mut String) {
    let most = process::core_count().max(2) - 1;
    let cores: Vec<String> = (0..most).map(|core| core.to_string()).collect();
    let _ = write!(
        out,
        "\n## Primary and load on all cores but one ({most}), the replica on that one\n\n{HEAD}"
    );
    let mut medians = Vec::new();
    let runners = [&plan.runners[0], &plan.runners[1]].map(|runner| Runner {
        name: runner.name.split(',').next().unwrap_or(runner.name),
        binary: runner.binary.clone(),
        cores: cores.join(","),
        arguments: match runner.arguments.is_empty() {
            true => Vec::new(),
            false => vec!["--threads".to_owned(), most.to_string()],
        },
    });
    for runner in &runners {
        let samples: Vec<Followed> = (0..plan.rounds)
            .map(|_| {
                let pair = Pair::start(plan, runner, &[], Some(load_core()));
                pair.follow(plan, cores.clone())
            })
            .collect();
        medians.push(Followed::medians(&samples));
        *out += &row("SET P=16", runner, medians[medians.len() - 1], medians[0]);
    }
}

/// Returns the core of a replica: apart from primary and load, if there are three cores.
fn replica_core() -> String {
    match process::core_count() {
        0..=2 => load_core(),
        count => (count - 2).to_string(),
    }
}

/// A primary, and its replica if any.
struct Pair {
    primary: Process,
    replica: Option<Process>,
}

impl Pair {
    fn start(plan: &Plan, runner: &Runner, directives: &[&str], replica: Option<String>) -> Pair {
        let primary = runner.start(&plan.folder("primary"), directives);
        let replica = replica.map(|cores| start_replica(plan, runner, cores, &primary));
        if let Some(replica) = &replica {
            await_link(&mut replica.client());
        }
        Pair { primary, replica }
    }

    /// Loads the primary from these cores, and measures how the replica follows.
    fn follow(&self, plan: &Plan, loads: Vec<String>) -> Followed {
        let time = Duration::from_millis(if plan.quick { 500 } else { 5_000 });
        let job = Job {
            kind: Kind::Set,
            pipeline: 16,
            clients: 50_usize.div_ceil(loads.len()),
            keys: plan.keys.min(1_000_000),
            value_bytes: 64,
            time,
            subscribers: 0,
        };
        let (port, pid) = (self.primary.port, self.primary.pid());
        let watcher = Watcher::start(&self.primary, self.replica.as_ref());
        let mut client = self.primary.client();
        let commands = |client: &mut Client| client.info("stats", "total_commands_processed");
        let mut replica = self.replica.as_ref().map(Process::client);
        let replica_pid = self.replica.as_ref().map(Process::pid);
        let replica_cpu = || replica_pid.map_or(0, process::cpu_ns) as f64;
        let before = (commands(&mut client), replica_cpu(), offset(&mut client));
        let loads: Vec<JoinHandle<load::Sample>> = loads
            .into_iter()
            .map(|core| {
                let job = job.clone();
                std::thread::spawn(move || load::run(&job, port, pid, &core))
            })
            .collect();
        let samples: Vec<load::Sample> = loads
            .into_iter()
            .map(|load| load.join().expect("the load"))
            .collect();
        let end = replica
            .as_mut()
            .map_or(0.0, |replica| behind(&mut client, replica));
        let began = Instant::now();
        while replica
            .as_mut()
            .is_some_and(|replica| behind(&mut client, replica) > 0.0)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let caught_up_ms = began.elapsed().as_secs_f64() * 1e3;
        let seen = watcher.stop();
        let after = (commands(&mut client), replica_cpu(), offset(&mut client));
        let done = after.0.unwrap_or(0.0) - before.0.unwrap_or(0.0);
        let bytes_each = ((after.2 - before.2) / done).max(1.0);
        let ops_per_s: f64 = samples.iter().map(|sample| sample.ops_per_s).sum();
        // Each load has measured the primary's total CPU, but only its own commands.
        let cores = samples
            .iter()
            .map(|sample| sample.cpu_us_per_op * sample.ops_per_s);
        let cpu_us = median(cores.collect()) / ops_per_s;
        let most = seen.iter().copied().fold(0.0, f64::max);
        Followed {
            ops_per_s,
            cpu_us,
            replica_cpu_us: (after.1 - before.1) / 1e3 / done,
            behind: [median(seen), most, end].map(|bytes| match self.replica {
                Some(_) => bytes / bytes_each,
                None => 0.0,
            }),
            caught_up_ms,
        }
    }
}

fn start_replica(plan: &Plan, runner: &Runner, cores: String, primary: &Process) -> Process {
    let replica = Runner {
        name: runner.name,
        binary: runner.binary.clone(),
        cores,
        arguments: match runner.arguments.is_empty() {
            true => Vec::new(),
            false => vec!["--threads".to_owned(), "1".to_owned()],
        },
    };
    primary
        .client()
        .ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let port = primary.port.to_string();
    replica.start(
        &plan.folder("replica"),
        &["--replicaof", "127.0.0.1", &port],
    )
}

fn await_link(replica: &mut Client) {
    loop {
        let text = replica.ask(&["INFO", "replication"]);
        if text.contains("master_link_status:up") {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn offset(primary: &mut Client) -> f64 {
    primary
        .info("replication", "master_repl_offset")
        .unwrap_or(0.0)
}

/// Returns the bytes of the stream that a replica has not applied.
fn behind(primary: &mut Client, replica: &mut Client) -> f64 {
    let applied = replica.info("replication", "slave_repl_offset");
    (offset(primary) - applied.unwrap_or(0.0)).max(0.0)
}

/// Records a replica's lag in bytes, until it is stopped.
struct Watcher {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Watcher {
    fn start(primary: &Process, replica: Option<&Process>) -> Watcher {
        let stopped = Arc::new(AtomicBool::new(false));
        let (ends, mut primary) = (Arc::clone(&stopped), primary.client());
        let mut replica = replica.map(Process::client);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while let Some(replica) = replica.as_mut().filter(|_| !ends.load(Relaxed)) {
                seen.push(behind(&mut primary, replica));
                std::thread::sleep(LOOK);
            }
            seen
        });
        Watcher { stopped, thread }
    }

    fn stop(self) -> Vec<f64> {
        self.stopped.store(true, Relaxed);
        self.thread.join().expect("who watches")
    }
}

/// Measures the first synchronization of a replica of the same server with many keys.
fn measure_synchronizations(plan: &Plan, out: &mut String) {
    let _ = write!(
        out,
        "\n## A first synchronization of {} keys of 100 bytes\n\n\
         | server | seconds | keys/s | MiB/s of keys and values | keys/s of redis | primary's CPU s | replica's CPU s | \
         worst gap ms of the primary before | during |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        plan.keys
    );
    let mut of_redis = None;
    for runner in &plan.runners {
        let primary = runner.start(&plan.folder("primary"), &[]);
        let value = "v".repeat(100);
        primary.client().load(plan.keys, |index, bytes| {
            process::encode_into(bytes, &["SET", &load::key(index), &value]);
        });
        let rounds: Vec<Synchronized> = (0..plan.rounds)
            .map(|_| synchronize(plan, runner, &primary))
            .collect();
        let of = |figure: fn(&Synchronized) -> f64| median(rounds.iter().map(figure).collect());
        let seconds = of(|one| one.took.as_secs_f64());
        let rate = plan.keys as f64 / seconds;
        let line = format!(
            "| {} | {seconds:.2} | {rate:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
            runner.name,
            rate * 116.0 / f64::from(1 << 20),
            rate / of_redis.get_or_insert(rate).to_owned(),
            of(|one| one.cpu_s),
            of(|one| one.replica_cpu_s),
            of(|one| one.gap_before_ms),
            of(|one| one.gap_ms),
        );
        eprint!("{line}");
        *out += &line;
    }
    *out += "\nRedis's primary forks a child, whose CPU is not counted; CPU of the replica is that of loading alone.\n";
}

struct Synchronized {
    took: Duration,
    cpu_s: f64,
    replica_cpu_s: f64,
    gap_before_ms: f64,
    gap_ms: f64,
}

fn synchronize(plan: &Plan, runner: &Runner, primary: &Process) -> Synchronized {
    let gap_before_ms = while_asked(primary, || std::thread::sleep(BEFORE)).0;
    let cpu = process::cpu_ns(primary.pid());
    // Starting the server is not included.
    primary
        .client()
        .ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let alone = Runner {
        name: runner.name,
        binary: runner.binary.clone(),
        cores: load_core(),
        arguments: runner.arguments.clone(),
    };
    let replica = alone.start(&plan.folder("replica"), &[]);
    let mut client = replica.client();
    let (gap_ms, took) = while_asked(primary, || {
        let began = Instant::now();
        client.ask(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        await_link(&mut client);
        began.elapsed()
    });
    let size: usize = client.ask(&["DBSIZE"]).parse().expect("a number");
    assert_eq!(size, plan.keys);
    Synchronized {
        took,
        cpu_s: (process::cpu_ns(primary.pid()) - cpu) as f64 / 1e9,
        replica_cpu_s: process::cpu_ns(replica.pid()) as f64 / 1e9,
        gap_before_ms,
        gap_ms,
    }
}

/// Returns the longest time, in ms, that a client waited for a reply during `work`.
fn while_asked<R>(server: &Process, work: impl FnOnce() -> R) -> (f64, R) {
    let stopped = Arc::new(AtomicBool::new(false));
    let (mut client, ends) = (server.client(), Arc::clone(&stopped));
    let prober = std::thread::spawn(move || {
        worst_gap(&mut client, &ends, |client, _| {
            client.ask(&["PING"]);
        })
    });
    let result = work();
    stopped.store(true, Relaxed);
    let worst = prober.join().expect("who looks for gaps");
    (worst.as_secs_f64() * 1e3, result)
}
