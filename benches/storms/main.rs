//! Latency that served clients see while others cause a storm: of connections, with and without TLS, of long values, or
//! of more work than the machine does. Compared with redis-server and Valkey.
//!
//! ```text
//! cargo bench --bench storms -- [--quick] [--only connections,tls,values,overload] [--clients 8000] [--rounds 3]
//!     [--cores 0] [--load-cores 1] [--mib 1,16,64] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis]
//!     [--no-valkey] [--tls-clients 2000] [--tls-redis PATH] [--out DIR]
//! ```
//!
//! Some clients *are in*: each sends a GET of a small value, reads the reply, pauses for some milliseconds, and so on.
//! The p99 of their times is measured before a storm and during it. In `connections` and `tls` all clients of the storm
//! connect within a second, send AUTH, and try again when they are refused or have waited for too long; the row has the
//! time from the first connect to the last reply. In `values` four connections write and read long values. In
//! `overload` more connections send commands over whole collections than the server's cores can run; basalt is measured
//! with `overload-p99`, too, where refused commands are counted.
//!
//! The clients that are in run on a thread of a higher priority than those of the storm, on the same cores, so that
//! their times are not those of the storm's own work; without permission for it (`nice`) a note says so. The servers
//! run in turns, round by round; the median of the rounds is shown. A server without TLS is left out of `tls`, or
//! replaced: `--tls-redis PATH`, by default the redis-server in the path.

mod connections;
mod overload;
mod steady;
#[path = "../support/mod.rs"]
mod support;
mod values;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;

use support::arguments::Arguments;
use support::peers::{self, Peer, median};
use support::process::{self, Process};

/// Figures of one round, by column.
type Figures = Vec<(&'static str, f64)>;

/// One kind of storm.
struct Scenario {
    name: &'static str,
    /// Directives of all servers, of the files in this folder.
    directives: fn(&Plan) -> Vec<String>,
    run: fn(&Plan, &Process, &str) -> Figures,
    /// The storms of this kind, by name.
    variants: fn(&Plan) -> Vec<String>,
}

static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "connections",
        directives: |_| connections::plain(),
        run: connections::run_plain,
        variants: |plan| vec![format!("{} clients", plan.clients)],
    },
    Scenario {
        name: "tls",
        directives: connections::tls,
        run: connections::run_tls,
        variants: |plan| vec![format!("{} clients", plan.tls_clients)],
    },
    Scenario {
        name: "values",
        directives: |_| Vec::new(),
        run: values::run,
        variants: |plan| plan.mib.iter().map(|mib| format!("{mib} MiB")).collect(),
    },
    Scenario {
        name: "overload",
        directives: |_| Vec::new(),
        run: overload::run,
        variants: |_| {
            overload::KINDS
                .iter()
                .map(|kind| (*kind).to_owned())
                .collect()
        },
    },
];

/// Extent of the measurement.
struct Plan {
    clients: usize,
    tls_clients: usize,
    rounds: usize,
    quick: bool,
    mib: Vec<usize>,
    cores: String,
    /// The port for TLS, which one server has at a time.
    tls_port: u16,
    /// Certificates for TLS.
    folder: tempfile::TempDir,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let quick = arguments.has("--quick");
    let last = process::core_count() - 1;
    process::pin(&arguments.value("--load-cores", &last.to_string()));
    let clients = arguments.sized("--clients", 8_000, 1_000);
    let plan = Plan {
        clients,
        tls_clients: arguments.number("--tls-clients", &(clients / 4).to_string()),
        rounds: arguments.sized("--rounds", 3, 1),
        quick,
        mib: arguments.numbers("--mib", if quick { "1,16" } else { "1,16,64" }),
        cores: arguments.value("--cores", "0"),
        tls_port: free_port(),
        folder: tempfile::tempdir().expect("a folder"),
    };
    connections::write_certificates(plan.folder.path());
    let only = arguments.value("--only", "");
    let servers = peers::all(&arguments, &[]);
    let tls_servers: Vec<Peer> = servers
        .iter()
        .filter_map(|server| connections::with_tls(&plan, server, &arguments))
        .collect();
    let mut report = peers::heading(&servers);
    if !steady::may_have_priority() {
        report += "\nThe clients that are in had no higher priority than those of the storm.\n";
    }
    for scenario in SCENARIOS {
        if only.is_empty() || only.split(',').any(|word| word == scenario.name) {
            let has_tls = scenario.name == "tls";
            let servers = if has_tls { &tls_servers } else { &servers };
            if has_tls {
                let _ = write!(report, "\nWith TLS: {}", peers::heading(servers));
            }
            report += &table(&plan, scenario, servers);
        }
    }
    peers::publish(&arguments, "storms.md", &report);
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Measures all servers, round by round.
fn table(plan: &Plan, scenario: &Scenario, servers: &[Peer]) -> String {
    let mut variants = scenario.name.to_owned();
    let _ = write!(variants, ", median of {} rounds", plan.rounds);
    let mut table = format!("\n{variants}\n\n");
    let mut has_head = false;
    for variant in (scenario.variants)(plan) {
        let mut rounds: BTreeMap<String, Vec<Figures>> = BTreeMap::new();
        let mut names = Vec::new();
        for round in 0..plan.rounds {
            for at in peers::order(servers.len(), round) {
                for (name, more) in ways(scenario, &servers[at]) {
                    let arguments = [(scenario.directives)(plan), more].concat();
                    let process = servers[at].start(&plan.cores, &arguments);
                    let figures = (scenario.run)(plan, &process, &variant);
                    eprintln!("{} {variant} {name}: {figures:?}", scenario.name);
                    rounds.entry(name.clone()).or_default().push(figures);
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        for name in names {
            let rounds = &rounds[&name];
            if !has_head {
                has_head = true;
                table += "| storm | server |";
                for (column, _) in &rounds[0] {
                    let _ = write!(table, " {column} |");
                }
                let _ = writeln!(table, "\n|{}", "---|".repeat(2 + rounds[0].len()));
            }
            let _ = write!(table, "| {variant} | {name} |");
            for index in 0..rounds[0].len() {
                let figure = median(rounds.iter().map(|round| round[index].1).collect());
                let _ = write!(table, " {figure:.2} |");
            }
            table.push('\n');
        }
    }
    table
}

/// The ways in which a server is started: its name in the table, and more directives.
fn ways(scenario: &Scenario, server: &Peer) -> Vec<(String, Vec<String>)> {
    let mut ways = vec![(server.name.to_owned(), Vec::new())];
    if scenario.name == "overload" && server.name == "basalt" {
        let directives = ["--overload-p99", overload::P99_MS];
        let directives = directives.map(str::to_owned).to_vec();
        ways.push((
            format!("basalt, overload-p99 {}", overload::P99_MS),
            directives,
        ));
    }
    ways
}
