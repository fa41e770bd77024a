//! Saving and loading: keys per second of CPU and of wall time, compared with redis-server on the same files.
//!
//! redis-server creates the files. Then each server starts on each file in turn. CPU is that of the whole process,
//! minus that of a start without a file; wall time is from the start of the process until it reports that all is
//! loaded. SAVE follows, so that redis-server saves without a fork.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::load;
use crate::support::process::{self, Client};
use crate::{Plan, Runner, median};

/// Contents of the files; each script is run by redis-server for a range of numbers.
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

/// Times of one start, and of the SAVE after it.
#[derive(Clone, Copy)]
struct Took {
    keys: f64,
    cpu_s: f64,
    wall_s: f64,
    save_cpu_s: f64,
    save_wall_s: f64,
}

pub(crate) fn measure(plan: &Plan, out: &mut String) {
    *out += "\n## Loading and saving\n\n\
             | what | server | keys | loads keys per CPU second | keys per second | ratio (CPU) | ratio (clock) | \
             saves keys per CPU second | keys per second | ratio (CPU) | ratio (clock) |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n";
    for (name, parts, script) in FILES {
        let dir = plan.folder("files");
        make(&plan.runners[0], &dir, plan.keys / parts, script);
        compare(plan, name, &dir, &[], out);
    }
    let dir = plan.folder("files");
    append(&plan.runners[0], &dir, plan.keys);
    let flags = ["--appendonly", "yes"];
    compare(plan, "an append-only file of SETs", &dir, &flags, out);
    *out += "\nRatios are against redis-server; those of two threads against one.\n";
}

fn compare(plan: &Plan, name: &str, dir: &Path, flags: &[&str], out: &mut String) {
    let mut all: Vec<Vec<Took>> = plan.runners.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds {
        for (runner, all) in plan.runners.iter().zip(&mut all) {
            let empty = start(runner, &plan.folder("empty"), flags);
            let mut full = start(runner, dir, flags);
            full.cpu_s -= empty.cpu_s;
            full.wall_s -= empty.wall_s;
            eprintln!(
                "{name}, {}: {:.3} s of CPU, {:.3} s",
                runner.name, full.cpu_s, full.wall_s
            );
            all.push(full);
        }
    }
    let rates: Vec<[f64; 4]> = all.iter().map(|all| rates(all)).collect();
    for (index, runner) in plan.runners.iter().enumerate() {
        let own = rates[index];
        // Two threads are compared with one.
        let against = if index == 2 { rates[1] } else { rates[0] };
        let [cpu, wall, save_cpu, save_wall] = own;
        let _ = writeln!(
            out,
            "| {name} | {} | {:.0} | {cpu:.0} | {wall:.0} | {:.2} | {:.2} | {save_cpu:.0} | {save_wall:.0} | {:.2} | {:.2} |",
            runner.name,
            all[index][0].keys,
            cpu / against[0],
            wall / against[1],
            save_cpu / against[2],
            save_wall / against[3],
        );
    }
}

/// Returns keys per second: loaded, by CPU and wall time, and saved, by both.
fn rates(all: &[Took]) -> [f64; 4] {
    let figures: [fn(&Took) -> f64; 4] = [
        |took| took.keys / took.cpu_s,
        |took| took.keys / took.wall_s,
        |took| took.keys / took.save_cpu_s,
        |took| took.keys / took.save_wall_s,
    ];
    figures.map(|figure| median(all.iter().map(figure).collect()))
}

/// Makes redis-server create a snapshot of `keys` keys.
fn make(redis: &Runner, dir: &Path, keys: usize, script: &str) {
    const STEP: usize = 10_000;
    let server = redis.start(dir, &[]);
    let mut client = server.client();
    for first in (1..=keys).step_by(STEP) {
        let last = (first + STEP - 1).min(keys);
        let (first, last) = (first.to_string(), last.to_string());
        client.ask(&["EVAL", script, "0", &first, &last]);
    }
    assert!(client.ask(&["SAVE"]).contains("OK"), "the file is saved");
}

/// Makes redis-server append `keys` SETs to an empty base.
fn append(redis: &Runner, dir: &Path, keys: usize) {
    let server = redis.start(
        dir,
        &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
    );
    let mut client = server.client();
    let value = "v".repeat(100);
    client.load(keys, |index, bytes| {
        process::encode_into(bytes, &["SET", &load::key(index), &value]);
    });
    client.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    client.ask(&["SET", "last", "1"]);
}

/// Starts a server on a folder, waits until it replies, and makes it save.
fn start(runner: &Runner, dir: &Path, flags: &[&str]) -> Took {
    let began = Instant::now();
    let flags = [flags, &["--enable-protected-configs", "yes"]].concat();
    let server = runner.start(dir, &flags);
    let mut client: Client = server.client();
    while client.info("persistence", "loading") != Some(0.0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let wall_s = began.elapsed().as_secs_f64();
    let cpu = |client: &mut Client| {
        let mut field = |field| client.info("cpu", field).expect("a figure of CPU");
        field("used_cpu_user") + field("used_cpu_sys")
    };
    let cpu_s = cpu(&mut client);
    let keys = client.ask(&["DBSIZE"]).trim().parse().unwrap_or(0.0);
    // The loaded file stays unchanged.
    client.ask(&["CONFIG", "SET", "dbfilename", "saved.rdb"]);
    let began = Instant::now();
    client.ask(&["SAVE"]);
    let save_wall_s = began.elapsed().as_secs_f64();
    let save_cpu_s = cpu(&mut client) - cpu_s;
    let _ = std::fs::remove_file(dir.join("saved.rdb"));
    Took {
        keys,
        cpu_s,
        wall_s,
        save_cpu_s,
        save_wall_s,
    }
}
