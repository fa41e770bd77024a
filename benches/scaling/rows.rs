//! The rows measured, the servers, and their presentation.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::support::arguments::Arguments;
use super::support::load::{self, Kind};
use super::support::peers;
use super::support::process::{self, Process};

pub(crate) const VALUE_BYTES: usize = 64;

/// The setup of basalt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    Bare,
    Shared,
    PerCore,
    EverySecond,
    WithReplica,
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Bare => "",
            Setting::Shared => ", shared",
            Setting::PerCore => ", per-core",
            Setting::EverySecond => ", everysec",
            Setting::WithReplica => ", a replica",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) pipeline: usize,
    pub(crate) clients: usize,
    pub(crate) setting: Setting,
}

impl Scenario {
    pub(crate) fn name(&self) -> String {
        let Scenario {
            kind,
            pipeline,
            clients,
            setting,
        } = self;
        format!(
            "{}, P={pipeline}, {clients} connections{}",
            kind.name(),
            setting.name()
        )
    }
}

/// Returns the requested settings.
pub(crate) fn settings(arguments: &Arguments) -> Vec<Setting> {
    match arguments.has("--quick") {
        _ if arguments.has("--oversubscribed") => vec![Setting::Shared, Setting::PerCore],
        true => vec![Setting::Bare, Setting::EverySecond],
        false => vec![
            Setting::Bare,
            Setting::Shared,
            Setting::PerCore,
            Setting::EverySecond,
            Setting::WithReplica,
        ],
    }
}

pub(crate) fn scenarios(arguments: &Arguments) -> Vec<Scenario> {
    let mut list = Vec::new();
    let mut add = |kind, pipeline, clients, setting| {
        list.push(Scenario {
            kind,
            pipeline,
            clients,
            setting,
        });
    };
    if arguments.has("--oversubscribed") {
        for pipeline in [1, 16] {
            for kind in [Kind::Get, Kind::Set, Kind::HotGet, Kind::HotSet] {
                add(kind, pipeline, 50, Setting::Shared);
                add(kind, pipeline, 50, Setting::PerCore);
            }
        }
        return only(arguments, list);
    }
    let is_full = !arguments.has("--short") && !arguments.has("--quick");
    let pipelines: &[usize] = if arguments.has("--quick") {
        &[10]
    } else {
        &[1, 10, 100]
    };
    for &pipeline in pipelines {
        add(Kind::Get, pipeline, 50, Setting::Bare);
        add(Kind::Set, pipeline, 50, Setting::Bare);
        if is_full || pipeline == 10 {
            let more = [
                Kind::Mixed,
                Kind::ZipfGet,
                Kind::ZipfSet,
                Kind::HotGet,
                Kind::HotSet,
            ];
            more.into_iter()
                .for_each(|kind| add(kind, pipeline, 50, Setting::Bare));
        }
    }
    for kind in [
        Kind::Mget10,
        Kind::Mset10,
        Kind::Multi4,
        Kind::EvalGet,
        Kind::PushPop,
    ] {
        add(kind, 10, 50, Setting::Bare);
    }
    add(Kind::Publish, 10, 10, Setting::Bare);
    for kind in [Kind::Get, Kind::Set] {
        if is_full {
            add(kind, 10, 5000, Setting::Bare);
            add(kind, 1, 50, Setting::Shared);
            add(kind, 1, 50, Setting::PerCore);
        }
        add(kind, 10, 50, Setting::Shared);
        add(kind, 10, 50, Setting::PerCore);
    }
    for setting in [Setting::EverySecond, Setting::WithReplica] {
        for &pipeline in pipelines {
            add(Kind::Set, pipeline, 50, setting);
        }
    }
    only(arguments, list)
}

/// Keeps the scenarios whose name contains the word of `--only`.
fn only(arguments: &Arguments, mut list: Vec<Scenario>) -> Vec<Scenario> {
    let only = arguments.value("--only", "");
    list.retain(|scenario| scenario.name().contains(&only));
    assert!(!list.is_empty(), "no row's name contains {only:?}");
    list
}

/// A measured server.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) process: Process,
    is_memcached: bool,
    _replica: Option<Process>,
    _folder: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts basalt, and with the bare setting its peers: those with I/O threads have as many threads as basalt.
    pub(crate) fn start_all(
        arguments: &Arguments,
        setting: Setting,
        threads: usize,
        cores: &str,
        keys: usize,
    ) -> Vec<Server> {
        let mut servers = Vec::new();
        let count = threads.to_string();
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let mut add = |name: &str, process: Process| {
            servers.push(Server {
                name: name.to_owned(),
                is_memcached: name == "memcached",
                process,
                _replica: None,
                _folder: None,
            });
        };
        if setting == Setting::Bare && !arguments.has("--oversubscribed") {
            for peer in peers::others(arguments) {
                if !is_there(&peer.binary) {
                    continue;
                }
                if peer.name == "redis" {
                    add("redis, one thread", peer.start(cores, &[]));
                }
                if threads > 1 || peer.name == "valkey" {
                    let mut io = words(&["--io-threads", &count]);
                    if peer.name == "redis" {
                        io.extend(words(&["--io-threads-do-reads", "yes"]));
                    }
                    add(
                        &format!("{}, io-threads", peer.name),
                        peer.start(cores, &io),
                    );
                }
            }
            let memcached = PathBuf::from(arguments.value("--memcached", "memcached"));
            if !arguments.has("--no-memcached") && is_there(&memcached) {
                let own = words(&[
                    "-l",
                    "127.0.0.1",
                    "-t",
                    &count,
                    "-m",
                    "1024",
                    "-c",
                    "8192",
                    "-u",
                    "root",
                ]);
                add(
                    "memcached",
                    Process::start_bare("memcached", &memcached, cores, "-p", &own),
                );
            }
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dir = folder.path().to_str().expect("UTF-8");
        let mut own = words(&["--threads", &count, "--dir", dir]);
        own.extend(match setting {
            Setting::Shared => words(&["--runtime", "shared"]),
            Setting::PerCore => words(&["--runtime", "per-core"]),
            Setting::EverySecond => words(&["--appendonly", "yes", "--appendfsync", "everysec"]),
            Setting::Bare | Setting::WithReplica => Vec::new(),
        });
        add(
            "basalt",
            Process::start("basalt", &arguments.basalt(), cores, &own),
        );
        let basalt = servers.last_mut().expect("it was just added");
        if setting == Setting::WithReplica {
            basalt._replica = Some(follow(arguments, &basalt.process));
        }
        basalt._folder = Some(folder);
        servers.iter().for_each(|server| server.fill(keys));
        servers
    }

    fn fill(&self, keys: usize) {
        let value = "v".repeat(VALUE_BYTES);
        self.process
            .client()
            .load(keys, |index, out| match self.is_memcached {
                true => load::memcached_set(out, &load::key(index), &value),
                false => process::encode_into(out, &["SET", &load::key(index), &value]),
            });
    }

    /// Returns the load for a row, or `None` if this server does not support it.
    pub(crate) fn kind(&self, scenario: &Scenario) -> Option<Kind> {
        match scenario.kind {
            kind if !self.is_memcached => Some(kind),
            Kind::Get => Some(Kind::MemcachedGet),
            Kind::Set => Some(Kind::MemcachedSet),
            _ => None,
        }
    }
}

/// Starts a replica of a server, on the least used core.
fn follow(arguments: &Arguments, primary: &Process) -> Process {
    let last = (process::core_count() - 1).to_string();
    let of = format!("127.0.0.1 {}", primary.port);
    let replica = Process::start(
        "replica",
        &arguments.basalt(),
        &last,
        &["--replicaof".to_owned(), of],
    );
    while !primary
        .client()
        .ask(&["INFO", "replication"])
        .contains("state=online")
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    replica
}

/// Returns whether a program exists, by its path or in the search path.
pub(crate) fn is_there(program: &Path) -> bool {
    find(program).is_some()
}

/// Returns the path of a program.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Result of a row on a server.
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) server: String,
    pub(crate) threads: usize,
    pub(crate) ops_per_s: f64,
    pub(crate) cpu_us_per_op: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) switches_per_op: f64,
    pub(crate) sleeps_per_op: f64,
    /// Throughput per thread, relative to that with the fewest threads measured.
    pub(crate) efficiency: f64,
    /// CPU per command, relative to that with the fewest threads.
    pub(crate) cpu_of_fewest: f64,
    pub(crate) is_load_bound: bool,
}

impl Outcome {
    pub(crate) fn row(&self) -> String {
        let bound = if self.is_load_bound {
            " (load is the bound)"
        } else {
            ""
        };
        format!(
            "| {} | {} | {} | {:.0}{bound} | {:.3} | {:.0} | {:.0} | {:.0} | {:.4} | {:.4} | {:.2} | {:.2} |",
            self.scenario,
            self.server,
            self.threads,
            self.ops_per_s / 1000.0,
            self.cpu_us_per_op,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.switches_per_op,
            self.sleeps_per_op,
            self.efficiency,
            self.cpu_of_fewest
        )
    }
}

/// Explanation of the columns.
pub(crate) const LEGEND: &str = "
*switches*: context switches of the server's threads; *sleeps*: those of them with which a thread went to sleep of its own
will, in epoll as there was nothing to do, or in a futex, so that there are no more futex waits than this (the kernel tells
the two apart to root alone). *efficiency*: the throughput over the threads, of that of the fewest threads in the table;
*CPU of fewest*: CPU a command, of that of the fewest threads.
";

pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut text = "| row | server | threads | kop/s | CPU us/op | p50 us | p99 us | p99.9 us | switches/op | \
                    sleeps/op | efficiency | CPU of fewest |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for outcome in outcomes {
        let _ = writeln!(text, "{}", outcome.row());
    }
    text
}

pub(crate) fn json(outcomes: &[Outcome]) -> String {
    let rows: Vec<String> = outcomes
        .iter()
        .map(|outcome| {
            format!(
                "{{\"row\":\"{}\",\"server\":\"{}\",\"threads\":{},\"ops_per_s\":{:.0},\"cpu_us_per_op\":{:.4},\
                 \"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"switches_per_op\":{:.5},\"sleeps_per_op\":{:.5},\
                 \"efficiency\":{:.3},\"cpu_of_fewest\":{:.3},\"is_load_bound\":{}}}",
                outcome.scenario,
                outcome.server,
                outcome.threads,
                outcome.ops_per_s,
                outcome.cpu_us_per_op,
                outcome.p50_us,
                outcome.p99_us,
                outcome.p999_us,
                outcome.switches_per_op,
                outcome.sleeps_per_op,
                outcome.efficiency,
                outcome.cpu_of_fewest,
                outcome.is_load_bound
            )
        })
        .collect();
    // JSON has no representation of a missing figure.
    format!("[\n{}\n]\n", rows.join(",\n")).replace("NaN", "null")
}
