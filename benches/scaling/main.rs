//! Throughput over threads: basalt and its peers with 1, 2, 4, … threads, compared with the multiple of one thread's
//! throughput.
//!
//! ```text
//! cargo bench --bench scaling -- [--quick|--short] [--threads 1,2,4] [--keys 200000] [--ms 500] [--rounds 1]
//!     [--only WORD] [--together|--oversubscribed] [--basalt PATH] [--redis PATH] [--valkey PATH] [--memcached PATH]
//!     [--no-redis] [--no-valkey] [--no-memcached] [--out DIR]
//! cargo bench --bench scaling -- bundle DIR
//! cargo bench --bench scaling -- model [--from FILE] [--threads 1,2,4] [--only WORD] [--commands 200000]
//! ```
//!
//! Half of the machine's cores generate the load, one process each; the servers have the others, as many as they have
//! threads. A row in which the load's cores were nearly all busy is marked: there the load was the limit. With
//! `--together`, servers and load have all cores, and more threads than cores are allowed: then only CPU per command
//! and switches are meaningful. `--oversubscribed` is that for GET and SET, at random and of one hot key, with 2 to 32
//! threads; its last column compares the CPU with that of the fewest threads. `bundle` creates a folder that does all
//! this on a machine without cargo (`bundle.rs`). `model` predicts the effect of more cores (`model/mod.rs`).

mod bundle;
mod chart;
mod model;
mod rows;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use rows::{Outcome, Scenario, Server};
use support::arguments::Arguments;
use support::load::{self, Job, Sample};
use support::peers;
use support::process;

/// The share of its cores above which the load counts as the limit.
const LOAD_BOUND: f64 = 0.9;

/// The measurements of this run, and its cores.
struct Plan {
    keys: usize,
    rounds: usize,
    time: Duration,
    threads: Vec<usize>,
    load_cores: Vec<String>,
    is_together: bool,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--load-worker") {
        load::worker(&words[1..]);
        return;
    }
    let Some(arguments) = Arguments::read() else {
        return;
    };
    if arguments.has("bundle") {
        bundle::make(&arguments);
        return;
    }
    if arguments.has("model") {
        model::predict(&arguments);
        return;
    }
    let plan = plan(&arguments);
    let scenarios = rows::scenarios(&arguments);
    let mut outcomes = Vec::new();
    for &threads in &plan.threads {
        for setting in rows::settings(&arguments) {
            let wanted: Vec<&Scenario> = scenarios
                .iter()
                .filter(|scenario| scenario.setting == setting)
                .collect();
            if !wanted.is_empty() {
                measure(&arguments, &plan, threads, setting, &wanted, &mut outcomes);
            }
        }
    }
    let heading = peers::heading(&peers::all(&arguments, &[]));
    let load = format!(
        "\nLoad on {} cores, {} keys of 16 bytes, values of 64; median of {} rounds of {} ms in turns.\n\n",
        plan.load_cores.len(),
        plan.keys,
        plan.rounds,
        plan.time.as_millis()
    );
    let table = rows::table(&outcomes);
    let picture = "\n![Throughput over threads](scaling.svg)\n";
    peers::keep(&arguments, "scaling.json", &rows::json(&outcomes));
    peers::keep(&arguments, "scaling.svg", &chart::draw(&outcomes));
    peers::publish(
        &arguments,
        "scaling.md",
        &(heading + &load + &table + rows::LEGEND + picture),
    );
}

fn plan(arguments: &Arguments) -> Plan {
    let cores = process::core_count();
    let is_oversubscribed = arguments.has("--oversubscribed");
    let is_together = is_oversubscribed || arguments.has("--together");
    let for_load = if is_together {
        cores
    } else {
        (cores / 2).max(1)
    };
    let most = (cores - for_load).max(1);
    let powers = (0..)
        .map(|power| 1 << power)
        .take_while(|threads| *threads <= most);
    let own: Vec<String> = powers.map(|threads: usize| threads.to_string()).collect();
    let own = match is_oversubscribed {
        true => "2,4,8,16,32".to_owned(),
        false => own.join(","),
    };
    let is_brief = arguments.has("--short");
    Plan {
        keys: arguments.sized("--keys", 200_000, 20_000),
        rounds: arguments.number("--rounds", "1"),
        time: Duration::from_millis(
            arguments.sized("--ms", if is_brief { 150 } else { 500 }, 100) as u64,
        ),
        threads: arguments.numbers("--threads", &own),
        load_cores: (cores - for_load..cores)
            .map(|core| core.to_string())
            .collect(),
        is_together,
    }
}

/// Starts the servers of a setting with this many threads, and measures rows on them in turns.
fn measure(
    arguments: &Arguments,
    plan: &Plan,
    threads: usize,
    setting: rows::Setting,
    wanted: &[&Scenario],
    outcomes: &mut Vec<Outcome>,
) {
    let all = process::core_count() - 1;
    let cores = match plan.is_together {
        true => format!("0-{all}"),
        false => format!("0-{}", threads.min(all.max(1)) - 1),
    };
    let servers = Server::start_all(arguments, setting, threads, &cores, plan.keys);
    for scenario in wanted {
        let mut samples = vec![Vec::new(); servers.len()];
        for round in 0..plan.rounds {
            for at in peers::order(servers.len(), round) {
                if let Some(kind) = servers[at].kind(scenario) {
                    samples[at].push(one(plan, scenario, kind, &servers[at]));
                }
            }
        }
        for (server, samples) in servers.iter().zip(samples) {
            if samples.is_empty() {
                continue;
            }
            let of = |read: fn(&Sample) -> f64| peers::median(samples.iter().map(read).collect());
            let fewest = outcomes.iter().find(|earlier: &&Outcome| {
                earlier.scenario == scenario.name() && earlier.server == server.name
            });
            let ops_per_s = of(|sample| sample.ops_per_s);
            let cpu_us_per_op = of(|sample| sample.cpu_us_per_op);
            let each = ops_per_s / threads as f64;
            let each_of_fewest =
                fewest.map_or(each, |fewest| fewest.ops_per_s / fewest.threads as f64);
            let outcome = Outcome {
                scenario: scenario.name(),
                server: server.name.clone(),
                threads,
                ops_per_s,
                cpu_us_per_op,
                p50_us: of(|sample| sample.p50_us),
                p99_us: of(|sample| sample.p99_us),
                p999_us: of(|sample| sample.p999_us),
                switches_per_op: of(|sample| sample.switches_per_op),
                sleeps_per_op: of(|sample| sample.sleeps_per_op),
                efficiency: each / each_of_fewest,
                cpu_of_fewest: fewest.map_or(1.0, |fewest| cpu_us_per_op / fewest.cpu_us_per_op),
                is_load_bound: of(|sample| sample.load_cores)
                    > LOAD_BOUND * plan.load_cores.len() as f64,
            };
            eprintln!("{}", outcome.row());
            outcomes.push(outcome);
        }
    }
}

/// Takes one sample of all load processes together.
fn one(plan: &Plan, scenario: &Scenario, kind: load::Kind, server: &Server) -> Sample {
    let processes = plan.load_cores.len().min(scenario.clients);
    let subscribers = match kind {
        load::Kind::Publish => load::SUBSCRIBERS,
        _ => 0,
    };
    let job = Job {
        kind,
        pipeline: scenario.pipeline,
        clients: scenario.clients / processes,
        keys: plan.keys,
        value_bytes: rows::VALUE_BYTES,
        time: plan.time,
        subscribers: 0,
    };
    let parts: Vec<Sample> = std::thread::scope(|scope| {
        let run = |(number, core): (usize, &String)| {
            // The total is fixed, however many processes there are.
            let own = (number + 1) * subscribers / processes - number * subscribers / processes;
            let job = Job {
                subscribers: own,
                ..job.clone()
            };
            let core = core.clone();
            let (port, pid) = (server.process.port, server.process.pid());
            scope.spawn(move || load::run(&job, port, pid, &core))
        };
        let running: Vec<_> = plan.load_cores[..processes]
            .iter()
            .enumerate()
            .map(run)
            .collect();
        let join =
            |one: std::thread::ScopedJoinHandle<'_, Sample>| one.join().expect("the load ends");
        running.into_iter().map(join).collect()
    });
    let sum = |read: fn(&Sample) -> f64| parts.iter().map(read).sum::<f64>();
    let worst = |read: fn(&Sample) -> f64| parts.iter().map(read).fold(0.0, f64::max);
    // Each process has measured the server's total, and divided it by its own part of the commands.
    let of_server = |read: fn(&Sample) -> f64| {
        let seen = parts
            .iter()
            .map(|part| read(part) * part.ops_per_s)
            .sum::<f64>();
        seen / parts.len() as f64 / sum(|part| part.ops_per_s)
    };
    Sample {
        ops_per_s: sum(|part| part.ops_per_s),
        p50_us: worst(|part| part.p50_us),
        p99_us: worst(|part| part.p99_us),
        p999_us: worst(|part| part.p999_us),
        cpu_us_per_op: of_server(|part| part.cpu_us_per_op),
        switches_per_op: of_server(|part| part.switches_per_op),
        sleeps_per_op: of_server(|part| part.sleeps_per_op),
        foreign_cores: worst(|part| part.foreign_cores),
        load_cores: sum(|part| part.load_cores),
    }
}
