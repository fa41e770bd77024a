//! The cost of persistence, compared with redis-server: appending, snapshots under load, large collections written
//! during a snapshot, saving and loading, replicas.
//!
//! ```text
//! cargo bench --bench durability -- [--quick] [--only appending,snapshots,large,files,replication] [--keys 2000000]
//!     [--members 10000000] [--rounds 5] [--dir DIR] [--basalt PATH] [--redis PATH] [--out DIR]
//! ```
//!
//! `BASALT_REDIS_SERVER` names the redis-server too. Servers run in turns on core 0 and the load on the last one; with
//! two threads, basalt has cores 0 and 1. `--dir` is the folder for files: on a disk, not in memory, as a sync would
//! cost nothing. CPU is that of all threads of the process; redis-server's forked child has its own, which is not
//! counted.

mod appending;
mod files;
mod replication;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use support::arguments::Arguments;
use support::load;
use support::peers::{self, median};
use support::process::{self, Process};

/// Extent and place of the measurement.
struct Plan {
    quick: bool,
    keys: usize,
    members: usize,
    rounds: usize,
    dir: PathBuf,
    runners: Vec<Runner>,
}

/// A server to start.
struct Runner {
    name: &'static str,
    binary: PathBuf,
    cores: String,
    arguments: Vec<String>,
}

impl Runner {
    fn start(&self, dir: &Path, more: &[&str]) -> Process {
        let dir = ["--dir".to_owned(), dir.display().to_string()];
        let more = more.iter().map(|word| (*word).to_owned());
        let all: Vec<String> = self
            .arguments
            .iter()
            .cloned()
            .chain(dir)
            .chain(more)
            .collect();
        Process::start(self.name, &self.binary, &self.cores, &all)
    }
}

impl Plan {
    fn from(arguments: &Arguments) -> Plan {
        let quick = arguments.has("--quick");
        let (basalt, redis) = (arguments.basalt(), arguments.redis());
        let runner = |name, binary: &PathBuf, cores: &str, threads: &str| Runner {
            name,
            binary: binary.clone(),
            cores: cores.to_owned(),
            arguments: match threads {
                "" => Vec::new(),
                threads => vec!["--threads".to_owned(), threads.to_owned()],
            },
        };
        let default_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/durability");
        Plan {
            quick,
            keys: arguments.sized("--keys", 2_000_000, 100_000),
            members: arguments.sized("--members", 10_000_000, 100_000),
            rounds: arguments.sized("--rounds", 5, 1),
            // A separate folder, which is removed in the end; the given one may contain other files.
            dir: PathBuf::from(arguments.value("--dir", default_dir)).join("basalt-durability"),
            runners: vec![
                runner("redis-server", &redis, "0", ""),
                runner("basalt, 1 thread", &basalt, "0", "1"),
                runner("basalt, 2 threads", &basalt, "0-1", "2"),
            ],
        }
    }

    /// Creates an empty folder of this name.
    fn folder(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a folder");
        dir
    }
}

/// Returns the core that the load runs on.
fn load_core() -> String {
    (process::core_count() - 1).to_string()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--load-worker") {
        return load::worker(&words[1..]);
    }
    if words.first().is_some_and(|word| word == "--busy") {
        snapshots::keep_busy();
    }
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let plan = Plan::from(&arguments);
    let only = arguments.value("--only", "appending,snapshots,large,files,replication");
    let mut out = format!(
        "{}; {}; median of {}.\n",
        process::machine(),
        process::date(),
        plan.rounds
    );
    for part in only.split(',') {
        match part {
            "appending" => appending::measure(&plan, &mut out),
            "snapshots" => snapshots::measure(&plan, &mut out),
            "large" => snapshots::measure_large(&plan, &mut out),
            "files" => files::measure(&plan, &mut out),
            "replication" => replication::measure(&plan, &mut out),
            other => panic!("nothing is called {other}"),
        }
    }
    let _ = std::fs::remove_dir_all(&plan.dir);
    peers::publish(&arguments, "durability.md", &out);
}
