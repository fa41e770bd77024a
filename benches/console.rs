//! The cost of open console pages on a loaded server: its CPU at a fixed command rate, without pages and with ten.
//!
//! ```text
//! cargo bench --bench console -- [--quick] [--rate 100000] [--pages 10] [--page /] [--seconds 10] [--rounds 5]
//!     [--keys 100000] [--cores 0] [--load-cores 1] [--basalt PATH] [--out DIR]
//! ```
//!
//! A page is what a browser keeps open: a stream of events, which is read as it arrives and reopened when it ends.
//! Pages of visitors share their content; the page of a signed-in user is made for that user alone. The load is one
//! thread that sends nine GETs and a SET at a time by the clock, so that the server has the same work in every turn.
//! Turns without and with pages alternate on one server, and the difference is taken within a round.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

mod support;

use basalt_testing::random::Draw;
use support::arguments::Arguments;
use support::load::key;
use support::peers;
use support::process::{self, Process, encode_into};

/// Connections of the load.
const CONNECTIONS: usize = 20;

/// Requests of a batch: nine GETs and a SET.
const BATCH: usize = 10;

/// Number of batches generated before the clock starts, and repeated from the first when all were sent.
const BATCHES: usize = 20_000;

const VALUE_BYTES: usize = 100;

/// Pause before a turn is measured.
const SETTLING: Duration = Duration::from_secs(2);

/// Maximum delay of the load that is caught up.
const SLACK: Duration = Duration::from_millis(100);

/// Pause after a stream has ended, as the server tells browsers.
const RETRY: Duration = Duration::from_secs(1);

/// The kind of clients that have pages open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Nobody,
    Visitors,
    Users,
}

impl Who {
    const ALL: [Who; 3] = [Who::Nobody, Who::Visitors, Who::Users];

    fn name(self) -> &'static str {
        match self {
            Who::Nobody => "none",
            Who::Visitors => "of visitors",
            Who::Users => "signed in",
        }
    }

    fn header(self) -> &'static str {
        match self {
            // The user `watcher` with the password `secret`.
            Who::Users => "Authorization: Basic d2F0Y2hlcjpzZWNyZXQ=\r\n",
            _ => "",
        }
    }
}

/// Parameters from the command line.
struct Plan {
    rate: usize,
    pages: usize,
    page: String,
    time: Duration,
    rounds: usize,
    keys: usize,
}

/// Result of a turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    commands_per_s: f64,
    /// CPU use, in percent of a core.
    cpu: f64,
    events_per_s: f64,
    bytes_per_s: f64,
    resident_bytes: f64,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let plan = Plan {
        rate: arguments.sized("--rate", 100_000, 10_000),
        pages: arguments.number("--pages", "10"),
        page: arguments.value("--page", "/"),
        time: Duration::from_secs(arguments.sized("--seconds", 10, 2) as u64),
        rounds: arguments.sized("--rounds", 5, 1),
        keys: arguments.sized("--keys", 100_000, 10_000),
    };
    let last = process::core_count() - 1;
    process::pin(&arguments.value("--load-cores", &last.to_string()));
    let metrics = free_port();
    let directives = [
        "--metrics-port".to_owned(),
        metrics.to_string(),
        "--maxmemory".to_owned(),
        "1gb".to_owned(),
    ];
    let cores = arguments.value("--cores", "0");
    let server = Process::start("basalt", &arguments.basalt(), &cores, &directives);
    fill(&server, plan.keys);
    let mut rounds: Vec<[Turn; 3]> = Vec::new();
    for round in 0..plan.rounds {
        let mut turns = [Turn::default(); 3];
        for index in peers::order(Who::ALL.len(), round) {
            turns[index] = plan.turn(&server, metrics, Who::ALL[index]);
            eprintln!(
                "round {round}, {}: {:.2} % of a core",
                Who::ALL[index].name(),
                turns[index].cpu
            );
        }
        rounds.push(turns);
    }
    peers::publish(&arguments, "console.md", &plan.report(&rounds));
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

fn fill(server: &Process, keys: usize) {
    let mut client = server.client();
    client.ask(&["ACL", "SETUSER", "watcher", "on", ">secret", "~*", "+@all"]);
    let value = "v".repeat(VALUE_BYTES);
    client.load(keys, |index, out| {
        encode_into(out, &["SET", &key(index), &value]);
    });
}

impl Plan {
    fn turn(&self, server: &Process, metrics: u16, who: Who) -> Turn {
        let stop = Arc::new(AtomicBool::new(false));
        let read = Arc::new(Taken::default());
        let count = if who == Who::Nobody { 0 } else { self.pages };
        let request = format!(
            "GET /events?page={} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{}\r\n",
            self.page,
            who.header()
        );
        let pages: Vec<JoinHandle<()>> = (0..count)
            .map(|_| {
                let (request, read, stop) = (request.clone(), Arc::clone(&read), Arc::clone(&stop));
                thread::spawn(move || watch(metrics, &request, &read, &stop))
            })
            .collect();
        let done = Arc::new(AtomicU64::new(0));
        let load = {
            let (port, rate, keys) = (server.port, self.rate, self.keys);
            let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
            thread::spawn(move || keep_rate(port, rate, keys, &done, &stop))
        };
        thread::sleep(SETTLING);
        let figures = || {
            (
                done.load(Relaxed),
                process::cpu_ns(server.pid()),
                read.events.load(Relaxed),
                read.bytes.load(Relaxed),
            )
        };
        let (before, began) = (figures(), Instant::now());
        thread::sleep(self.time);
        let (after, took) = (figures(), began.elapsed().as_secs_f64());
        let resident_bytes = process::resident_bytes(server.pid()) as f64;
        stop.store(true, Relaxed);
        load.join().expect("the load");
        for page in pages {
            page.join().expect("a page");
        }
        let each_s = |before: u64, after: u64| (after - before) as f64 / took;
        Turn {
            commands_per_s: each_s(before.0, after.0),
            cpu: each_s(before.1, after.1) / 1e7,
            events_per_s: each_s(before.2, after.2),
            bytes_per_s: each_s(before.3, after.3),
            resident_bytes,
        }
    }

    fn report(&self, rounds: &[[Turn; 3]]) -> String {
        let mut text = format!("{}; {}.\n\n", process::machine(), process::date());
        let _ = write!(
            text,
            "CPU of the server at {} commands a second, with no page of the console and with {} of `{}` open; median of {} \
             rounds of {} s. What a page costs is the difference to the turn without pages of the same round.\n\n\
             | pages | commands a second | of a core, % | a page, % of a core | events a second | KiB a second | resident, MiB |\n\
             |---|---|---|---|---|---|---|\n",
            self.rate,
            self.pages,
            self.page,
            rounds.len(),
            self.time.as_secs()
        );
        for (index, who) in Who::ALL.iter().enumerate() {
            let of = |figure: fn(&Turn) -> f64| {
                peers::median(rounds.iter().map(|turns| figure(&turns[index])).collect())
            };
            let more = rounds.iter().map(|turns| turns[index].cpu - turns[0].cpu);
            let more = match who {
                Who::Nobody => "–".to_owned(),
                _ => format!(
                    "{:.3}",
                    peers::median(more.collect()) / self.pages.max(1) as f64
                ),
            };
            let _ = writeln!(
                text,
                "| {} | {:.0} | {:.2} | {more} | {:.1} | {:.1} | {:.1} |",
                who.name(),
                of(|turn| turn.commands_per_s),
                of(|turn| turn.cpu),
                of(|turn| turn.events_per_s),
                of(|turn| turn.bytes_per_s / 1_024.0),
                of(|turn| turn.resident_bytes / 1_048_576.0),
            );
        }
        let _ = writeln!(
            text,
            "\nThe past that pages show takes {:.2} MiB at most, which is allocated as it fills in an hour and a day.",
            basalt_server::telemetry::history::BYTES_MAX as f64 / 1_048_576.0
        );
        text
    }
}

/// Events and bytes received by pages.
#[derive(Default)]
struct Taken {
    events: AtomicU64,
    bytes: AtomicU64,
}

/// Keeps a page open.
fn watch(port: u16, request: &str, taken: &Taken, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(Relaxed) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
        let timeout = Some(Duration::from_millis(200));
        stream.set_read_timeout(timeout).expect("a time-out");
        stream.write_all(request.as_bytes()).expect("send");
        let mut is_first = true;
        while !stop.load(Relaxed) {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            let is_good = buffer.starts_with(b"HTTP/1.1 200");
            assert!(!is_first || is_good, "the page is refused");
            is_first = false;
            // The mark of an event is seldom split between reads.
            let events = memchr::memmem::find_iter(&buffer[..count], b"data: {").count();
            taken.events.fetch_add(events as u64, Relaxed);
            taken.bytes.fetch_add(count as u64, Relaxed);
        }
        if !stop.load(Relaxed) {
            thread::sleep(RETRY);
        }
    }
}

/// Sends batches by the clock and reads their replies; a late one is sent without a pause.
fn keep_rate(port: u16, rate: usize, keys: usize, done: &AtomicU64, stop: &AtomicBool) {
    let mut draw = Draw::new(1);
    let value = "v".repeat(VALUE_BYTES);
    let batches: Vec<Vec<u8>> = (0..BATCHES)
        .map(|_| {
            let mut bytes = Vec::new();
            for _ in 1..BATCH {
                encode_into(&mut bytes, &["GET", &key(draw.below(keys))]);
            }
            encode_into(&mut bytes, &["SET", &key(draw.below(keys)), &value]);
            bytes
        })
        .collect();
    // Two lines for each value found, and one for the SET.
    let lines = 2 * (BATCH - 1) + 1;
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
            stream.set_nodelay(true).expect("no delay");
            stream
        })
        .collect();
    let each = Duration::from_secs_f64((CONNECTIONS * BATCH) as f64 / rate as f64);
    let mut buffer = vec![0; 64 * 1024];
    let mut batch = 0;
    let mut due = Instant::now();
    while !stop.load(Relaxed) {
        for stream in &mut streams {
            stream.write_all(&batches[batch]).expect("send");
            batch = (batch + 1) % batches.len();
        }
        for stream in &mut streams {
            let mut left = lines;
            while left > 0 {
                let count = stream.read(&mut buffer).expect("a reply");
                assert!(count > 0 && buffer[0] != b'-', "the server gave up");
                left -= memchr::memchr_iter(b'\n', &buffer[..count]).count();
            }
        }
        done.fetch_add((CONNECTIONS * BATCH) as u64, Relaxed);
        // Long delays are not caught up, as other turns would have less to do.
        due = (due + each).max(Instant::now() - SLACK);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
