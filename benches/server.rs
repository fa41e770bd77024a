//! Compares basalt with redis-server and Valkey over sockets: throughput, latency, and above all the server's CPU time
//! per command.
//!
//! ```text
//! cargo bench --bench server -- [--quick] [--cores 0] [--load-cores 1] [--wide-cores 0,1] [--load own|redis-benchmark]
//!     [--keys 1000000] [--rounds 3] [--ms 1000] [--only WORD] [--basalt PATH] [--redis PATH]
//!     [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR] [--syscalls]
//! ```
//!
//! All servers are up throughout with the same keys; each scenario is measured in rounds over the servers in turn, in
//! reverse order every second round, and the median of the rounds is printed, so that a slow minute of the machine
//! affects all of them. Servers of one thread are pinned to `--cores`, with the load on `--load-cores`; servers of more
//! threads have `--wide-cores` and the load may run on any of these, so their throughput includes the load and only CPU
//! per command is comparable. Rows with much foreign CPU are marked; run those again on a quiet machine.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

mod support;

use support::arguments::Arguments;
use support::load::{self, Job, Kind, Sample};
use support::peers::{self, Peer};
use support::process::{self, Process};

struct Options {
    quick: bool,
    cores: String,
    load_cores: String,
    wide_cores: String,
    redis_benchmark: bool,
    keys: usize,
    rounds: usize,
    millis: u64,
    only: String,
    basalt: PathBuf,
    others: Vec<Peer>,
    syscalls: bool,
}

/// One row of the table: the kind of requests, and whether servers have one core or all.
struct Scenario {
    kind: Kind,
    pipeline: usize,
    clients: usize,
    wide: bool,
}

impl Scenario {
    fn name(&self) -> String {
        let place = if self.wide { ", all cores" } else { "" };
        format!(
            "{} P={} c={}{place}",
            self.kind.name(),
            self.pipeline,
            self.clients
        )
    }
}

/// The median of each figure over the rounds, for one scenario and server.
struct Row {
    scenario: String,
    server: String,
    sample: Sample,
    syscalls_per_op: Option<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|word| word == "--load-worker")
    {
        load::worker(&arguments[1..]);
        return;
    }
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let options = parse(&arguments);
    let scenarios = scenarios(&options);
    let servers = start(&options, scenarios.iter().any(|scenario| scenario.wide));
    for (server, _) in &servers {
        eprintln!("loading {} keys into {}", options.keys, server.name);
        let value = "v".repeat(64);
        server.client().load(options.keys, |index, out| {
            process::encode_into(out, &["SET", &load::key(index), &value]);
        });
    }
    let mut rows = Vec::new();
    for scenario in &scenarios {
        measure(&options, scenario, &servers, &mut rows);
    }
    let report = report(&options, &rows);
    peers::publish(&arguments, "server.md", &report);
    peers::keep(&arguments, "server.svg", &chart(&rows));
}

fn parse(arguments: &Arguments) -> Options {
    let last = process::core_count() - 1;
    Options {
        quick: arguments.has("--quick"),
        cores: arguments.value("--cores", "0"),
        load_cores: arguments.value("--load-cores", &last.to_string()),
        wide_cores: arguments.value("--wide-cores", &format!("0-{last}")),
        redis_benchmark: arguments.value("--load", "own") == "redis-benchmark",
        keys: arguments.sized("--keys", 1_000_000, 200_000),
        rounds: arguments.number("--rounds", "3"),
        millis: arguments.sized("--ms", 1000, 400) as u64,
        only: arguments.value("--only", ""),
        basalt: arguments.basalt(),
        others: peers::others(arguments),
        syscalls: arguments.has("--syscalls"),
    }
}

fn scenarios(options: &Options) -> Vec<Scenario> {
    let mut list = Vec::new();
    let mut add = |kind, pipeline, clients, wide| {
        list.push(Scenario {
            kind,
            pipeline,
            clients,
            wide,
        })
    };
    for pipeline in [1, 16, 100] {
        add(Kind::Get, pipeline, 50, false);
        add(Kind::Set, pipeline, 50, false);
    }
    add(Kind::Incr, 16, 50, false);
    add(Kind::Mget10, 16, 50, false);
    add(Kind::Mset10, 16, 50, false);
    add(Kind::HotGet, 16, 50, false);
    add(Kind::HotSet, 16, 50, false);
    for wide in [false, true] {
        for pipeline in [1, 16, 100] {
            if wide {
                add(Kind::Get, pipeline, 50, true);
                add(Kind::Set, pipeline, 50, true);
            }
        }
        if wide {
            add(Kind::HotGet, 16, 50, true);
            add(Kind::HotSet, 16, 50, true);
            add(Kind::Mget10, 16, 50, true);
        }
        if !options.quick {
            add(Kind::Get, 16, 400, wide);
            add(Kind::Set, 16, 400, wide);
            add(Kind::Get, 1, 400, wide);
        }
    }
    // Last, because it changes the sizes of the values that the others find.
    add(Kind::SetFresh, 16, 50, false);
    add(Kind::SetFresh, 100, 50, false);
    list.retain(|scenario| scenario.name().contains(&options.only));
    assert!(
        !list.is_empty(),
        "no scenario's name contains {:?}",
        options.only
    );
    list
}

/// Starts the servers; returns each with whether it is a wide one.
fn start(options: &Options, wide: bool) -> Vec<(Process, bool)> {
    let with = |threads: usize| vec!["--threads".to_owned(), threads.to_string()];
    let others = |cores: &str| -> Vec<Process> {
        let others = options.others.iter();
        others.map(|other| other.start(cores, &[])).collect()
    };
    let mut servers: Vec<(Process, bool)> = Vec::new();
    servers.extend(
        others(&options.cores)
            .into_iter()
            .map(|server| (server, false)),
    );
    servers.push((
        Process::start(
            "basalt, 1 thread",
            &options.basalt,
            &options.cores,
            &with(1),
        ),
        false,
    ));
    if wide {
        servers.extend(
            others(&options.wide_cores)
                .into_iter()
                .map(|server| (server, true)),
        );
        for threads in [1, 2, 4, 8] {
            let name = format!(
                "basalt, {threads} thread{}",
                if threads == 1 { "" } else { "s" }
            );
            servers.push((
                Process::start(&name, &options.basalt, &options.wide_cores, &with(threads)),
                true,
            ));
        }
    }
    servers
}

fn measure(
    options: &Options,
    scenario: &Scenario,
    servers: &[(Process, bool)],
    rows: &mut Vec<Row>,
) {
    let chosen: Vec<&Process> = servers
        .iter()
        .filter(|(_, wide)| *wide == scenario.wide)
        .map(|(server, _)| server)
        .collect();
    let job = Job {
        kind: scenario.kind,
        pipeline: scenario.pipeline,
        clients: scenario.clients,
        keys: options.keys,
        value_bytes: 64,
        time: Duration::from_millis(options.millis),
        subscribers: 0,
    };
    let cores = if scenario.wide {
        &options.wide_cores
    } else {
        &options.load_cores
    };
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); chosen.len()];
    for round in 0..options.rounds {
        for index in peers::order(chosen.len(), round) {
            let server = chosen[index];
            let sample = if options.redis_benchmark {
                run_redis_benchmark(&job, server, cores)
            } else {
                Some(load::run(&job, server.port, server.pid(), cores))
            };
            samples[index].extend(sample);
        }
    }
    for (server, samples) in chosen.iter().zip(samples) {
        if samples.is_empty() {
            continue;
        }
        let syscalls_per_op = options
            .syscalls
            .then(|| count_syscalls(&job, server, cores))
            .flatten();
        let row = Row {
            scenario: scenario.name(),
            server: server.name.clone(),
            sample: median(&samples),
            syscalls_per_op,
        };
        let spread = samples
            .iter()
            .map(|sample| format!("{:.3}", sample.cpu_us_per_op))
            .collect::<Vec<_>>()
            .join(" ");
        eprintln!("{} | {}: CPU {spread} us", row.scenario, row.server);
        rows.push(row);
    }
}

fn median(samples: &[Sample]) -> Sample {
    let of = |read: fn(&Sample) -> f64| peers::median(samples.iter().map(read).collect());
    Sample {
        ops_per_s: of(|sample| sample.ops_per_s),
        p50_us: of(|sample| sample.p50_us),
        p99_us: of(|sample| sample.p99_us),
        p999_us: of(|sample| sample.p999_us),
        cpu_us_per_op: of(|sample| sample.cpu_us_per_op),
        switches_per_op: of(|sample| sample.switches_per_op),
        sleeps_per_op: of(|sample| sample.sleeps_per_op),
        foreign_cores: of(|sample| sample.foreign_cores),
        load_cores: of(|sample| sample.load_cores),
    }
}

/// Runs redis-benchmark instead of the load generator. It supports no values of changing size, and saturates at P=100
/// or about 1.5 million operations per second: trust its CPU column, not its throughput.
fn run_redis_benchmark(job: &Job, server: &Process, cores: &str) -> Option<Sample> {
    let key = "key:__rand_int__".to_owned();
    let value = "v".repeat(job.value_bytes);
    let mut words = match job.kind {
        Kind::Get => vec!["GET".to_owned(), key],
        Kind::Set => vec!["SET".to_owned(), key, value],
        Kind::Incr => vec!["INCR".to_owned(), "cnt:__rand_int__".to_owned()],
        Kind::HotGet => vec!["GET".to_owned(), load::key(7)],
        Kind::HotSet => vec!["SET".to_owned(), load::key(7), value],
        Kind::Mget10 => std::iter::once("MGET".to_owned())
            .chain(std::iter::repeat_n(key, 10))
            .collect(),
        Kind::Mset10 => {
            let pairs = (0..10).flat_map(|_| [key.clone(), value.clone()]);
            std::iter::once("MSET".to_owned()).chain(pairs).collect()
        }
        Kind::Ping => vec!["PING".to_owned()],
        _ => return None,
    };
    let per_ms = if job.pipeline == 1 { 90 } else { 700 } / if words.len() > 5 { 4 } else { 1 };
    let requests = (job.time.as_millis() as usize * per_ms).max(job.clients * job.pipeline * 4);
    let before = (
        process::cpu_ns(server.pid()),
        process::context_switches(server.pid()),
    );
    let started = std::time::Instant::now();
    let busy = process::machine_busy_s();
    let mut command = Command::new("redis-benchmark");
    command.args(["--csv", "-p", &server.port.to_string()]);
    command.args([
        "-c",
        &job.clients.to_string(),
        "-P",
        &job.pipeline.to_string(),
    ]);
    command.args(["-n", &requests.to_string(), "-r", &job.keys.to_string()]);
    command.args(words.drain(..));
    let output = process::on_cores(cores, || command.output()).expect("redis-benchmark");
    assert!(
        output.status.success(),
        "redis-benchmark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after = (
        process::cpu_ns(server.pid()),
        process::context_switches(server.pid()),
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default();
    let fields: Vec<f64> = last
        .rsplitn(8, ',')
        .filter_map(|word| word.trim_matches('"').parse().ok())
        .collect();
    // Read from the end: max, p99, p95, p50, min, avg, rps.
    assert!(fields.len() >= 7, "redis-benchmark said {last:?}");
    let ops = requests as f64;
    let server_s = (after.0 - before.0) as f64 / 1e9;
    let wall = started.elapsed().as_secs_f64();
    Some(Sample {
        ops_per_s: fields[6],
        p50_us: fields[3] * 1000.0,
        p99_us: fields[1] * 1000.0,
        p999_us: f64::NAN,
        cpu_us_per_op: server_s * 1e6 / ops,
        switches_per_op: after.1.saturating_sub(before.1) as f64 / ops,
        sleeps_per_op: f64::NAN,
        foreign_cores: ((process::machine_busy_s() - busy - server_s) / wall - 1.0).max(0.0),
        load_cores: f64::NAN,
    })
}

/// Counts system calls in one more run under `perf stat`, where the kernel allows it; its own cost keeps it out of the
/// other figures.
fn count_syscalls(job: &Job, server: &Process, cores: &str) -> Option<f64> {
    let millis = job.time.as_millis() as u64;
    let seconds = format!("{:.3}", millis as f64 / 2000.0);
    let mut counter = Command::new("perf")
        .args([
            "stat",
            "-x",
            ",",
            "-e",
            "raw_syscalls:sys_enter",
            "-p",
            &server.pid().to_string(),
        ])
        .args(["sleep", &seconds])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    // The load starts with a quarter of its time unmeasured; the counter's window lies within its run.
    let sample = load::run(job, server.port, server.pid(), cores);
    let _ = counter.wait();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut counter.stderr.take()?, &mut text).ok()?;
    let count: f64 = text.split(',').next()?.trim().parse().ok()?;
    Some(count / (sample.ops_per_s * millis as f64 / 2000.0))
}

fn report(options: &Options, rows: &[Row]) -> String {
    let mut out = String::new();
    let load = if options.redis_benchmark {
        "redis-benchmark"
    } else {
        "own load generator"
    };
    let _ = writeln!(
        out,
        "{}; {}; {load}; {} keys of 16 bytes, values of 64; median of {} rounds of {} ms, interleaved.",
        process::machine(),
        process::date(),
        options.keys,
        options.rounds,
        options.millis
    );
    let _ = writeln!(
        out,
        "One-thread servers on core {}, load on {}; \"all cores\": servers and load on {}.\n",
        options.cores, options.load_cores, options.wide_cores
    );
    out += "| scenario | server | kop/s | p50 us | p99 us | CPU us/op | of redis | of valkey | of 1 thread | switches/op | syscalls/op |\n";
    out += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let cpu_of = |server: &str| {
            let found = rows
                .iter()
                .find(|other| other.scenario == row.scenario && other.server == server)?;
            Some(row.sample.cpu_us_per_op / found.sample.cpu_us_per_op)
        };
        // More threads are compared with one thread on its own core, where that row was measured.
        let narrow = row
            .scenario
            .strip_suffix(", all cores")
            .unwrap_or(&row.scenario);
        let one = rows
            .iter()
            .find(|other| other.scenario == narrow && other.server == "basalt, 1 thread");
        let of_one = one
            .filter(|_| row.server.starts_with("basalt"))
            .map(|one| row.sample.cpu_us_per_op / one.sample.cpu_us_per_op);
        let show = |ratio: Option<f64>| {
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let noisy = if row.sample.foreign_cores > 0.25 {
            format!(" (foreign {:.1})", row.sample.foreign_cores)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "| {} | {}{noisy} | {:.0} | {:.0} | {:.0} | {:.3} | {} | {} | {} | {:.4} | {} |",
            row.scenario,
            row.server,
            row.sample.ops_per_s / 1000.0,
            row.sample.p50_us,
            row.sample.p99_us,
            row.sample.cpu_us_per_op,
            show(cpu_of("redis")),
            show(cpu_of("valkey")),
            show(of_one),
            row.sample.switches_per_op,
            row.syscalls_per_op
                .map_or_else(|| "-".to_owned(), |count| format!("{count:.3}"))
        );
    }
    out
}

/// Draws bars of CPU time per command, redis-server as 1, one group per scenario.
fn chart(rows: &[Row]) -> String {
    const BAR: usize = 14;
    const LEFT: usize = 330;
    const WIDTH: usize = 520;
    let widest = 1.5;
    let mut y = 50;
    let mut body = String::new();
    let mut last = "";
    for row in rows {
        let redis = rows
            .iter()
            .find(|other| other.scenario == row.scenario && other.server == "redis");
        let Some(redis) = redis else { continue };
        if row.scenario != last {
            y += 10;
            last = &row.scenario;
        }
        let ratio = row.sample.cpu_us_per_op / redis.sample.cpu_us_per_op;
        let width = (ratio.min(widest) / widest * WIDTH as f64) as usize;
        let colour = match row.server.as_str() {
            "redis" => "#b8b8b8",
            "valkey" => "#8fae8b",
            _ => "#4a6fa5",
        };
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}: {}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{ratio:.2} ({:.2} us)</text>",
            LEFT - 6,
            y + BAR - 3,
            row.scenario,
            row.server,
            BAR - 2,
            LEFT + width + 4,
            y + BAR - 3,
            row.sample.cpu_us_per_op
        );
        y += BAR;
    }
    let line = LEFT + (WIDTH as f64 / widest) as usize;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"11\">\n\
        <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
        <text x=\"10\" y=\"22\" font-size=\"15\">Server CPU time a command, redis-server = 1 ({}, {})</text>\n\
        <line x1=\"{line}\" y1=\"40\" x2=\"{line}\" y2=\"{y}\" stroke=\"#888\" stroke-dasharray=\"3\"/>\n{body}</svg>\n",
        LEFT + WIDTH + 110,
        y + 20,
        process::machine(),
        process::date()
    )
}
