//! What persistence costs: loading a snapshot, keys per second of CPU and of the clock, beside redis-server on the same
//! file.
//!
//! ```text
//! cargo bench --bench durability -- [--quick] [--keys 2000000] [--rounds 5] [--basalt PATH] [--redis PATH] [--out DIR]
//! ```
//!
//! redis-server makes the files and saves them. Then each server starts on each file in turn: redis-server on one core,
//! basalt with one thread on one core, and with two threads on two. CPU is that of the whole process, less that of a
//! start without a file; the clock runs from the start of the process to when it says that all is loaded.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::process::{self, Client, Process};

/// What a file holds; each script is run by redis-server for a range of numbers.
const FILES: &[(&str, usize, &str)] = &[
    (
        "strings of 100 bytes",
        1,
        "local v = string.rep('x', 84) for i = ARGV[1], ARGV[2] do \
         redis.call('set', 'key:' .. i, string.format('%016d', i) .. v) end",
    ),
    (
        "strings that compress",
        1,
        "local v = string.rep('abcdefgh', 12) for i = ARGV[1], ARGV[2] do redis.call('set', 'key:' .. i, i .. v) end",
    ),
    (
        "hashes of 10 fields",
        4,
        "for i = ARGV[1], ARGV[2] do local f = {} for j = 1, 10 do f[#f + 1] = 'field' .. j f[#f + 1] = 'value' .. i .. j \
         end redis.call('hset', 'hash:' .. i, unpack(f)) end",
    ),
    (
        "sorted sets of 1,000 members",
        1_000,
        "for i = ARGV[1], ARGV[2] do for j = 1, 1000 do redis.call('zadd', 'zset:' .. i, j * 7 % 1000, 'member' .. j) end \
         end",
    ),
];

/// One start.
#[derive(Clone, Copy)]
struct Start {
    cpu_s: f64,
    wall_s: f64,
    keys: f64,
}

/// Who is started.
struct Runner<'r> {
    name: &'static str,
    binary: &'r Path,
    cores: &'static str,
    threads: Option<usize>,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let quick = arguments.has("--quick");
    let keys = arguments.number("--keys", if quick { "100000" } else { "2000000" });
    let rounds = arguments.number("--rounds", if quick { "1" } else { "5" });
    let (basalt, redis) = (arguments.basalt(), arguments.redis());
    let runner = |name, binary, cores, threads| Runner {
        name,
        binary,
        cores,
        threads,
    };
    let runners = [
        runner("redis-server", redis.as_path(), "0", None),
        runner("basalt, 1 thread", basalt.as_path(), "0", Some(1)),
        runner("basalt, 2 threads", basalt.as_path(), "0-1", Some(2)),
    ];
    let mut out = format!(
        "{}; {}; median of {rounds}.\n\n## Loading a snapshot\n\n\
         | what | server | keys | keys per CPU second | keys per second | ratio (CPU) | ratio (clock) |\n\
         |---|---|---|---|---|---|---|\n",
        process::machine(),
        process::date()
    );
    for (name, parts, script) in FILES {
        let dir = folder();
        make(&redis, &dir, keys / parts, script);
        let mut starts: Vec<Vec<Start>> = runners.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (runner, starts) in runners.iter().zip(&mut starts) {
                let empty = start(runner, None);
                let mut full = start(runner, Some(&dir));
                full.cpu_s -= empty.cpu_s;
                full.wall_s -= empty.wall_s;
                eprintln!(
                    "{name}, {}: {:.3} s of CPU, {:.3} s",
                    runner.name, full.cpu_s, full.wall_s
                );
                starts.push(full);
            }
        }
        let rates: Vec<[f64; 2]> = starts.iter().map(|starts| rates(starts)).collect();
        for (index, runner) in runners.iter().enumerate() {
            let [cpu, wall] = rates[index];
            // Two threads are held against one.
            let against = if index == 2 { rates[1] } else { rates[0] };
            let _ = writeln!(
                out,
                "| {name} | {} | {:.0} | {cpu:.0} | {wall:.0} | {:.2} | {:.2} |",
                runner.name,
                starts[index][0].keys,
                cpu / against[0],
                wall / against[1],
            );
        }
        let _ = std::fs::remove_dir_all(&dir);
    }
    out += "\nRatios are against redis-server; those of two threads against one.\n";
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        println!("{out}");
    }
    let dir = arguments.value(
        "--out",
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench"),
    );
    std::fs::create_dir_all(&dir).expect("the output folder");
    std::fs::write(Path::new(&dir).join("durability.md"), out).expect("write the table");
}

/// Keys per second of CPU and of the clock: medians.
fn rates(starts: &[Start]) -> [f64; 2] {
    let median = |of: fn(&Start) -> f64| {
        let mut values: Vec<f64> = starts.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    [
        median(|start| start.keys / start.cpu_s),
        median(|start| start.keys / start.wall_s),
    ]
}

/// A folder of this process's own, in the system's place for such.
fn folder() -> std::path::PathBuf {
    let number = std::process::id();
    let dir = std::env::temp_dir().join(format!("basalt-durability-{number}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// Has redis-server make a file of so many keys.
fn make(redis: &Path, dir: &Path, keys: usize, script: &str) {
    const STEP: usize = 10_000;
    let told = ["--dir".to_owned(), dir.display().to_string()];
    let server = Process::start("maker", redis, "0-1", &told);
    let mut client = server.client();
    for first in (1..=keys).step_by(STEP) {
        let last = (first + STEP - 1).min(keys);
        let (first, last) = (first.to_string(), last.to_string());
        client.ask(&["EVAL", script, "0", &first, &last]);
    }
    assert!(client.ask(&["SAVE"]).contains("OK"), "the file is saved");
}

/// Starts a server on a folder, or on none, until it answers.
fn start(runner: &Runner<'_>, dir: Option<&Path>) -> Start {
    let empty = folder_beside();
    let dir = dir.unwrap_or(&empty);
    let mut told = vec!["--dir".to_owned(), dir.display().to_string()];
    if let Some(threads) = runner.threads {
        told.extend(["--threads".to_owned(), threads.to_string()]);
    }
    let began = Instant::now();
    let server = Process::start(runner.name, runner.binary, runner.cores, &told);
    let mut client: Client = server.client();
    while client.info("persistence", "loading") != Some(0.0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let wall_s = began.elapsed().as_secs_f64();
    let cpu = |client: &mut Client, field| client.info("cpu", field).expect("a figure of CPU");
    let cpu_s = cpu(&mut client, "used_cpu_user") + cpu(&mut client, "used_cpu_sys");
    let size = client.ask(&["DBSIZE"]);
    let keys = size.trim_start_matches(':').trim().parse().unwrap_or(0.0);
    Start {
        cpu_s,
        wall_s,
        keys,
    }
}

fn folder_beside() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("basalt-durability-{}-empty", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}
