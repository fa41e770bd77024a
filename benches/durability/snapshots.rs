//! The effect of a snapshot on other clients, and its cost: with many keys that are overwritten meanwhile, and with one
//! large collection that is written all the time.
//!
//! The client that measures gaps runs on the core of the load. Memory is measured in a separate snapshot: adding up the
//! pages of 800 MiB keeps the kernel busy for 6 to 13 ms, which delays everything on that core. The share of the
//! machine and its scheduler is measured separately: the same requests while an unrelated process is as busy on the
//! server's cores as a walker would be.

use std::fmt::Write;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::load::{self, Job, Kind};
use crate::support::peers::median;
use crate::support::process::{self, Client, Process};
use crate::{Plan, Runner, load_core};

const MIB: f64 = (1 << 20) as f64;

/// Interval of the memory checks.
const LOOK: Duration = Duration::from_millis(20);

/// Pause between a reply and the next query of the client that measures gaps.
const PAUSE: Duration = Duration::from_micros(50);

/// Window of each p99, of which the median counts: a momentary disturbance by a neighbour of the machine triples the
/// p99 of a longer time, in every server.
const WINDOW: Duration = Duration::from_millis(500);

/// Time for which a busy process runs before it yields its core, as a walker does after each slice.
const SLICE: Duration = Duration::from_micros(100);

/// Measures snapshots of many keys.
pub(crate) fn measure(plan: &Plan, out: &mut String) {
    process::pin(&load_core());
    let _ = write!(
        out,
        "\n## Snapshots of {} keys of 100 bytes under uniform SETs\n\n\
         | what | server | p99 µs before | p99 µs during | ratio | worst gap ms before | beside a busy process | \
         during | memory MiB before | peak MiB more | % more | copied MiB | fork ms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        plan.keys
    );
    for runner in &plan.runners {
        let dir = plan.folder("snapshots");
        // An automatic rewrite would make the measured BGSAVE fail.
        let by_hand = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
        let server = runner.start(&dir, &by_hand);
        let mut client = server.client();
        let value = "v".repeat(100);
        client.load(plan.keys, |index, bytes| {
            process::encode_into(bytes, &["SET", &load::key(index), &value]);
        });
        for (name, command, flag) in [
            ("BGSAVE", "BGSAVE", "rdb_bgsave_in_progress"),
            ("BGREWRITEAOF", "BGREWRITEAOF", "aof_rewrite_in_progress"),
        ] {
            until_over(&mut client, flag);
            // One run to find the duration and the memory under load, then a measurement for as long.
            let memory = resident_bytes(&server) as f64;
            let began = Instant::now();
            let (took, peak_bytes) = {
                let stopped = Arc::new(AtomicBool::new(false));
                let loading = keep_loading(plan, &server, &stopped);
                let watcher = watch_memory(&server, &stopped);
                client.ask(&[command]);
                until_over(&mut client, flag);
                let took = began.elapsed();
                stopped.store(true, Relaxed);
                loading.join().expect("the load");
                (took, watcher.join().expect("who looks at memory"))
            };
            let (mut before, mut beside, mut during) = (Vec::new(), Vec::new(), Vec::new());
            let mut ratios = Vec::new();
            for _ in 0..plan.rounds {
                let usual = under_load(plan, &server, base_time(plan));
                before.push(usual);
                {
                    let _busy = Busy::start(&runner.cores);
                    beside.push(under_load(plan, &server, base_time(plan)));
                }
                client.ask(&[command]);
                let noticed = under_load(plan, &server, took.mul_f64(0.7));
                ratios.push(noticed.p99_us / usual.p99_us);
                during.push(noticed);
                until_over(&mut client, flag);
            }
            let p99_us = |all: &[Noticed]| median(all.iter().map(|one| one.p99_us).collect());
            let gap_ms = |all: &[Noticed]| median(all.iter().map(|one| one.gap_ms).collect());
            let field = match flag {
                "rdb_bgsave_in_progress" => "rdb_last_cow_size",
                _ => "aof_last_cow_size",
            };
            let copied = client.info("persistence", field).unwrap_or(0.0);
            let fork_us = client.info("stats", "latest_fork_usec").unwrap_or(0.0);
            let more = (peak_bytes as f64 - memory).max(0.0);
            let _ = writeln!(
                out,
                "| {name} | {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} | {:.0} | {:.1} |",
                runner.name,
                p99_us(&before),
                p99_us(&during),
                median(ratios),
                gap_ms(&before),
                gap_ms(&beside),
                gap_ms(&during),
                memory / MIB,
                more / MIB,
                100.0 * more / memory,
                copied / MIB,
                fork_us / 1_000.0,
            );
        }
    }
    *out += "\nA p99 is the median of those of half-second windows; a gap is the worst of all. Memory is that of the process \
         and its children, pages that they share counted once.\n";
}

/// Keeps a core busy in the process started by [`Busy`]: called by main when the first argument is `--busy`.
pub(crate) fn keep_busy() -> ! {
    loop {
        let began = Instant::now();
        while began.elapsed() < SLICE {}
        std::thread::yield_now();
    }
}

/// A process that is busy on the cores of a server, with which it shares nothing else; ends on drop.
struct Busy(Child);

impl Busy {
    fn start(cores: &str) -> Busy {
        let this = std::env::current_exe().expect("this program");
        let start = || Command::new(this).arg("--busy").spawn();
        Busy(process::on_cores(cores, start).expect("a busy process"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn base_time(plan: &Plan) -> Duration {
    Duration::from_millis(if plan.quick { 500 } else { 3_000 })
}

#[derive(Clone, Copy)]
struct Noticed {
    p99_us: f64,
    gap_ms: f64,
}

fn job(plan: &Plan, time: Duration) -> Job {
    Job {
        kind: Kind::Set,
        pipeline: 1,
        clients: 20,
        keys: plan.keys,
        value_bytes: 100,
        time,
        subscribers: 0,
    }
}

/// Measures the effect on SETs, and on a client that queries all the time, for this time.
fn under_load(plan: &Plan, server: &Process, time: Duration) -> Noticed {
    let stopped = Arc::new(AtomicBool::new(false));
    let prober = {
        let (mut client, stopped) = (server.client(), Arc::clone(&stopped));
        std::thread::spawn(move || {
            worst_gap(&mut client, &stopped, |client, _| {
                client.ask(&["PING"]);
            })
        })
    };
    let began = Instant::now();
    let mut p99s_us = Vec::new();
    while p99s_us.is_empty() || began.elapsed() + WINDOW <= time {
        let sample = load::run(&job(plan, WINDOW), server.port, server.pid(), &load_core());
        p99s_us.push(sample.p99_us);
    }
    stopped.store(true, Relaxed);
    Noticed {
        p99_us: median(p99s_us),
        gap_ms: prober.join().expect("who looks for gaps").as_secs_f64() * 1e3,
    }
}

/// Records the memory of a server and its children until stopped; returns the maximum, in bytes.
fn watch_memory(server: &Process, stopped: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (pid, stopped) = (server.pid(), Arc::clone(stopped));
    std::thread::spawn(move || {
        let mut peak = 0;
        while !stopped.load(Relaxed) {
            peak = peak.max(family_bytes(pid));
            std::thread::sleep(LOOK);
        }
        peak
    })
}

fn keep_loading(
    plan: &Plan,
    server: &Process,
    stopped: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let (job, port, pid) = (
        job(plan, Duration::from_millis(300)),
        server.port,
        server.pid(),
    );
    let stopped = Arc::clone(stopped);
    std::thread::spawn(move || {
        while !stopped.load(Relaxed) {
            load::run(&job, port, pid, &load_core());
        }
    })
}

/// Returns the longest time of a query.
pub(crate) fn worst_gap(
    client: &mut Client,
    stopped: &AtomicBool,
    mut ask: impl FnMut(&mut Client, usize),
) -> Duration {
    let (mut worst, mut asked) = (Duration::ZERO, 0);
    while !stopped.load(Relaxed) {
        let began = Instant::now();
        ask(client, asked);
        worst = worst.max(began.elapsed());
        asked += 1;
        std::thread::sleep(PAUSE);
    }
    worst
}

fn until_over(client: &mut Client, flag: &str) {
    while client.info("persistence", flag) != Some(0.0) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn resident_bytes(server: &Process) -> u64 {
    family_bytes(server.pid())
}

/// Returns the memory of a process and its children, counting shared pages once.
fn family_bytes(pid: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let all = std::iter::once(pid).chain(
        children
            .split_whitespace()
            .filter_map(|word| word.parse().ok()),
    );
    all.map(proportional_bytes).sum()
}

fn proportional_bytes(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The filling and writing of a collection: its name, and a command for a number.
struct Collection {
    name: &'static str,
    write: fn(usize, &mut Vec<u8>),
}

const COLLECTIONS: &[Collection] = &[
    Collection {
        name: "sorted set",
        write: |number, bytes| {
            let (score, member) = ((number % 9_973).to_string(), format!("member:{number}"));
            process::encode_into(bytes, &["ZADD", "big", &score, &member]);
        },
    },
    Collection {
        name: "hash",
        write: |number, bytes| {
            let field = format!("field:{number}");
            process::encode_into(bytes, &["HSET", "big", &field, "a value of some bytes"]);
        },
    },
    Collection {
        name: "set",
        write: |number, bytes| {
            process::encode_into(bytes, &["SADD", "big", &format!("member:{number}")]);
        },
    },
    Collection {
        name: "list",
        write: |number, bytes| {
            process::encode_into(bytes, &["RPUSH", "big", &format!("element:{number}")]);
        },
    },
    Collection {
        name: "stream",
        write: |number, bytes| {
            process::encode_into(bytes, &["XADD", "big", "*", "field", &number.to_string()]);
        },
    },
];

/// Measures snapshots of one large collection.
pub(crate) fn measure_large(plan: &Plan, out: &mut String) {
    process::pin(&load_core());
    let _ = write!(
        out,
        "\n## A collection of {} members, written all the time during BGSAVE\n\n\
         | what | server | worst gap ms before | beside a busy process | during | memory MiB before | peak MiB more |\n\
         |---|---|---|---|---|---|---|\n",
        plan.members
    );
    for collection in COLLECTIONS {
        for runner in &plan.runners {
            large(plan, runner, collection, out);
        }
    }
}

/// One large collection that is being written.
struct Written<'s> {
    server: &'s Process,
    collection: &'s Collection,
    members: usize,
}

impl Written<'_> {
    /// Returns the longest time of a write during `meanwhile`, in milliseconds.
    fn gap_ms(&self, meanwhile: impl FnOnce()) -> f64 {
        let stopped = Arc::new(AtomicBool::new(false));
        let (mut client, ends) = (self.server.client(), Arc::clone(&stopped));
        let (write, members) = (self.collection.write, self.members);
        let writer = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            worst_gap(&mut client, &ends, |client, asked| {
                bytes.clear();
                // Existing and new members in turn.
                let number = match asked % 2 {
                    0 => asked.wrapping_mul(0x9e37_79b9) % members,
                    _ => members + asked,
                };
                write(number, &mut bytes);
                client.send(&bytes);
                client.read();
            })
        });
        meanwhile();
        stopped.store(true, Relaxed);
        writer.join().expect("who writes").as_secs_f64() * 1e3
    }
}

fn large(plan: &Plan, runner: &Runner, collection: &Collection, out: &mut String) {
    const FLAG: &str = "rdb_bgsave_in_progress";
    let dir = plan.folder("large");
    let server = runner.start(&dir, &[]);
    let mut client = server.client();
    client.load(plan.members, collection.write);
    let written = Written {
        server: &server,
        collection,
        members: plan.members,
    };
    let mut save = || {
        client.ask(&["BGSAVE"]);
        until_over(&mut client, FLAG);
    };
    let memory = resident_bytes(&server) as f64;
    let (mut peak_bytes, began) = (0, Instant::now());
    written.gap_ms(|| {
        let stopped = Arc::new(AtomicBool::new(false));
        let watcher = watch_memory(&server, &stopped);
        save();
        stopped.store(true, Relaxed);
        peak_bytes = watcher.join().expect("who looks at memory");
    });
    let took = began.elapsed();
    let rest = || std::thread::sleep(took);
    let (mut before, mut beside, mut during) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        before.push(written.gap_ms(rest));
        let busy = Busy::start(&runner.cores);
        beside.push(written.gap_ms(rest));
        drop(busy);
        during.push(written.gap_ms(&mut save));
    }
    let [before_ms, beside_ms, during_ms] = [before, beside, during].map(median);
    let _ = writeln!(
        out,
        "| {} | {} | {before_ms:.2} | {beside_ms:.2} | {during_ms:.2} | {:.0} | {:.0} |",
        collection.name,
        runner.name,
        memory / MIB,
        (peak_bytes as f64 - memory).max(0.0) / MIB,
    );
    eprintln!(
        "{}, {}: {before_ms:.2} ms, {beside_ms:.2} ms, {during_ms:.2} ms",
        collection.name, runner.name
    );
}
