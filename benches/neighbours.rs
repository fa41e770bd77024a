//! Latency of many light clients beside a client that fills a core, and the time until all connections are on loops of
//! their own: `cargo bench --bench neighbours -- [--quick] [--light 1000] [--rate 3000] [--seconds 4] [--threads 4]
//! [--heavy 1] [--rounds 3] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR]`.
//!
//! The light clients send a GET each in turn, `--rate` in a second all together; each of the heavy ones sends pipelines
//! of 1,000 GETs all the time. The median and p99 are those of the light clients, alone, in the first second beside
//! the heavy ones, and in the last second. basalt is measured with both runtimes. Threads of the server beyond the
//! machine's cores compete with each other and the load, so a machine with few cores shows more than the server's part.

use std::fmt::Write;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{self, Client, Process, encode_into};

/// Number of keys.
const KEYS: usize = 10_000;

const VALUE: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

/// Requests in a pipeline of a heavy client.
const PIPELINE: usize = 1000;

struct Setup {
    light: usize,
    heavy: usize,
    rate: usize,
    time: Duration,
}

/// Latencies of the light clients in one phase.
struct Phase {
    p50_us: f64,
    p99_us: f64,
}

/// Result of one server.
struct Outcome {
    alone: Phase,
    first: Phase,
    last: Phase,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let setup = Setup {
        light: arguments.sized("--light", 1000, 100),
        heavy: arguments.sized("--heavy", 1, 1),
        rate: arguments.sized("--rate", 3000, 2000),
        time: Duration::from_secs(arguments.sized("--seconds", 4, 2) as u64),
    };
    let rounds = arguments.sized("--rounds", 3, 1);
    let threads = arguments.sized("--threads", 4, 4).to_string();
    let with = |runtime: &str| {
        let words = ["--threads", &threads, "--runtime", runtime];
        words.map(str::to_owned).to_vec()
    };
    let mut servers: Vec<Peer> = ["per-core", "shared"]
        .into_iter()
        .map(|name| Peer {
            name,
            binary: arguments.basalt(),
            arguments: with(name),
        })
        .collect();
    servers.extend(peers::others(&arguments));
    let mut outcomes: Vec<Vec<Outcome>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for at in peers::order(servers.len(), round) {
            let outcome = measure(&servers[at], &setup);
            outcomes[at].push(outcome);
        }
    }
    let mut report = format!(
        "{}; {}; {} light clients, {} GETs/s, {} heavy, {threads} threads; microseconds, medians of {rounds} rounds.\n\n\
         | server | alone p50 | p99 | first second p50 | p99 | last second p50 | p99 | p99 last/alone |\n|{}\n",
        process::machine(),
        process::date(),
        setup.light,
        setup.rate,
        setup.heavy,
        "---|".repeat(8)
    );
    for (server, outcomes) in servers.iter().zip(&outcomes) {
        let median = |of: fn(&Outcome) -> f64| peers::median(outcomes.iter().map(of).collect());
        let alone = median(|outcome| outcome.alone.p99_us);
        let last = median(|outcome| outcome.last.p99_us);
        writeln!(
            report,
            "| {} | {:.0} | {alone:.0} | {:.0} | {:.0} | {:.0} | {last:.0} | {:.2} |",
            server.name,
            median(|outcome| outcome.alone.p50_us),
            median(|outcome| outcome.first.p50_us),
            median(|outcome| outcome.first.p99_us),
            median(|outcome| outcome.last.p50_us),
            last / alone
        )
        .expect("a text");
    }
    peers::publish(&arguments, "neighbours.md", &report);
}

fn measure(peer: &Peer, setup: &Setup) -> Outcome {
    let cores = format!("0-{}", process::core_count() - 1);
    let server = peer.start(&cores, &[]);
    let mut client = server.client();
    for number in 0..KEYS {
        client.ask(&["SET", &key(number), VALUE]);
    }
    let mut light: Vec<Client> = (0..setup.light).map(|_| server.client()).collect();
    for client in &mut light {
        client.ask(&["PING"]);
    }
    let second = Duration::from_secs(1);
    let alone = latencies(&mut light, setup.rate, second);
    let stop = Arc::new(AtomicBool::new(false));
    let heavy: Vec<JoinHandle<()>> = (0..setup.heavy)
        .map(|_| fill_a_core(&server, Arc::clone(&stop)))
        .collect();
    let first = latencies(&mut light, setup.rate, second);
    latencies(
        &mut light,
        setup.rate,
        setup.time.saturating_sub(2 * second),
    );
    let last = latencies(&mut light, setup.rate, second);
    stop.store(true, Relaxed);
    for thread in heavy {
        thread.join().expect("a heavy client");
    }
    Outcome { alone, first, last }
}

fn key(number: usize) -> String {
    format!("key:{:06}", number % KEYS)
}

/// Starts a client that sends pipelines all the time.
fn fill_a_core(server: &Process, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let mut bytes = Vec::new();
    for number in 0..PIPELINE {
        encode_into(&mut bytes, &["GET", &key(number * 7)]);
    }
    let mut replies = vec![0; PIPELINE * format!("${}\r\n{VALUE}\r\n", VALUE.len()).len()];
    let mut stream: TcpStream = server.client().into_stream();
    std::thread::spawn(move || {
        // Two pipelines are on their way, so that the server always has one to serve.
        stream.write_all(&bytes).expect("it is sent");
        while !stop.load(Relaxed) {
            stream.write_all(&bytes).expect("it is sent");
            stream.read_exact(&mut replies).expect("the replies");
        }
    })
}

/// Sends requests at a constant rate, over one connection after the other. A request that is late because of the
/// one before counts from when it was due.
fn latencies(clients: &mut [Client], rate: usize, time: Duration) -> Phase {
    let gap = Duration::from_secs(1) / rate as u32;
    let began = Instant::now();
    let mut spent = Vec::new();
    for number in 0.. {
        let due = began + gap * number;
        if due.duration_since(began) >= time {
            break;
        }
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
        let at = number as usize % clients.len();
        clients[at].ask(&["GET", &key(number as usize)]);
        spent.push(due.elapsed());
    }
    spent.sort_unstable();
    let at = |part: f64| {
        let index = ((spent.len() as f64 * part) as usize).min(spent.len().saturating_sub(1));
        spent
            .get(index)
            .map_or(0.0, |spent| spent.as_secs_f64() * 1e6)
    };
    Phase {
        p50_us: at(0.5),
        p99_us: at(0.99),
    }
}
