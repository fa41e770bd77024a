//! Sessions without sockets, on threads with a core each: `cargo bench --bench sessions -- [--quick] [--threads 1,2]
//! [--ms 500] [--rounds 3] [--only WORD] [--out DIR]`.
//!
//! Each thread has its own core, and 25 sessions that always have a batch ready; no kernel, runtime or load is
//! involved. So even a machine on which servers have to share their cores with the load shows the cost of threads that
//! share shards. The same threads, each with its own server state, show the mutual cost of the cores alone, through
//! shared caches and memory. For comparison, the model's prediction from the one-thread figures is shown.

use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::config::Config;
use basalt_core::resp::request::RequestLimits;
use basalt_server::session::batch::Batch;
use basalt_server::session::{Session, Step};
use basalt_server::shard::job::Ticket;
use basalt_server::state::Service;
use basalt_server::telemetry::{Telemetry, clock};

#[path = "scaling/model/mod.rs"]
#[expect(dead_code, reason = "the bench of servers predicts more")]
mod model;
mod support;

use model::inputs::{COPIED_SHARE, TOGETHER};
use model::machine::{self, Cost, Runtime, Setup};
use model::{CHOICES, KEYS, Keys};
use support::arguments::Arguments;
use support::process::{self, encode_into};
use support::{load, peers};

const VALUE_BYTES: usize = 64;

/// Clients per thread, as many as one server has in the other rows of this bench.
const SESSIONS: usize = 25;

/// Number of commands that each thread encodes before the clock starts, and repeats.
const COMMANDS_ENCODED: usize = 50_000;

const PIPELINES: [usize; 3] = [1, 10, 100];

/// The work of all threads.
#[derive(Clone, Copy)]
struct Job<'j> {
    kind: &'j str,
    choice: &'j str,
    pipeline: usize,
    time: Duration,
}

/// A session, and the batches that it sends repeatedly.
struct Client {
    session: Session,
    batch: Batch,
    config: Arc<Config>,
    encoded: Vec<Vec<u8>>,
    next: usize,
    under_way: UnderWay,
}

enum UnderWay {
    /// The next batch may begin.
    Nothing,
    /// The batch continues from here.
    Batch,
    /// A command of the batch is in the queue of a shard.
    Command(Arc<Ticket>),
}

impl Client {
    fn new(service: &'static Service, encoded: Vec<Vec<u8>>) -> Client {
        let id = service.clients.next_id();
        let shared = Shared::new(
            id,
            String::new(),
            String::new(),
            -1,
            false,
            clock::unix_ms(),
        );
        let mut connection = Connection::new(Arc::new(shared), true);
        connection.set_user(service.users.default(), true);
        Client {
            session: Session::new(connection, service),
            batch: Batch::default(),
            config: service.config.load_full(),
            encoded,
            next: 0,
            under_way: UnderWay::Nothing,
        }
    }

    /// Runs as far as possible without waiting; returns the number of commands with replies.
    fn visit(&mut self) -> usize {
        let step = match std::mem::replace(&mut self.under_way, UnderWay::Batch) {
            UnderWay::Nothing => {
                self.begin();
                None
            }
            UnderWay::Batch => None,
            UnderWay::Command(ticket) => {
                match ticket.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => {
                        self.under_way = UnderWay::Command(ticket);
                        return 0;
                    }
                    Poll::Ready(mut job) => {
                        let (batch, config) = (&mut self.batch, &self.config);
                        self.session.resume(batch, &mut job, config, clock::now())
                    }
                }
            }
        };
        let step = step.unwrap_or_else(|| {
            let (batch, config) = (&mut self.batch, &self.config);
            self.session.run(batch, config, clock::now())
        });
        match step {
            Step::Done => self.end(),
            Step::Wait(ticket) => {
                self.under_way = UnderWay::Command(ticket);
                0
            }
            _ => 0,
        }
    }

    fn begin(&mut self) {
        let (session, batch) = (&mut self.session, &mut self.batch);
        batch.input.extend_from_slice(&self.encoded[self.next]);
        self.next = (self.next + 1) % self.encoded.len();
        let limits = RequestLimits {
            bulk_len_max: self.config.proto_max_bulk_len,
            query_bytes_max: self.config.client_query_buffer_limit,
            inline_len_max: 65_536,
            authenticated: true,
        };
        let (input, requests) = batch.parsing();
        let parsed = session.parser.parse(input, &limits, 128, requests);
        parsed.expect("whole requests");
        batch.out.set_protocol(session.connection.protocol);
        batch.plan(&session.service().router);
    }

    fn end(&mut self) -> usize {
        let answered = self.batch.plans.len();
        assert_eq!(self.batch.out.errors(), 0, "a command failed");
        self.batch.out.clear();
        self.batch.consume(self.batch.input.len());
        self.under_way = UnderWay::Nothing;
        answered
    }
}

/// Returns a server's state without a server, with all keys, and the shards of a server with this many threads.
fn service(threads: usize) -> &'static Service {
    let config = Arc::new(Config::default());
    let shards = config.shard_count(threads);
    let telemetry = Telemetry::new(None, threads);
    let service = basalt_server::start::build(config, shards, telemetry);
    let service: &'static Service = Box::leak(Box::new(service));
    let keys: Vec<usize> = (0..KEYS).collect();
    let encode = |keys: &[usize]| {
        let mut bytes = Vec::new();
        keys.iter().for_each(|&key| set(&mut bytes, key));
        bytes
    };
    let encoded: Vec<Vec<u8>> = keys.chunks(100).map(encode).collect();
    let mut client = Client::new(service, encoded);
    let mut stored = 0;
    while stored < KEYS {
        stored += client.visit();
    }
    service
}

fn set(bytes: &mut Vec<u8>, key: usize) {
    let (key, value) = (load::key(key), [b'x'; VALUE_BYTES]);
    encode_into(bytes, &[b"SET".as_slice(), key.as_bytes(), &value]);
}

/// Returns commands per second, and CPU nanoseconds per command, of threads pinned to separate cores.
fn run(job: Job<'_>, services: &[&'static Service]) -> (f64, f64) {
    let threads = services.len();
    let (begin, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = services
            .iter()
            .enumerate()
            .map(|(number, service)| {
                let (begin, stop) = (&begin, &stop);
                scope.spawn(move || {
                    process::pin(&number.to_string());
                    let mut clients = clients(job, service, number);
                    // Warms up the caches.
                    let until = Instant::now() + job.time / 5;
                    while Instant::now() < until {
                        visit_all(&mut clients, service);
                    }
                    begin.wait();
                    let cpu_before = process::thread_cpu_ns();
                    let mut answered = 0;
                    while !stop.load(Relaxed) {
                        answered += visit_all(&mut clients, service);
                    }
                    (answered, process::thread_cpu_ns() - cpu_before)
                })
            })
            .collect();
        begin.wait();
        let began = Instant::now();
        std::thread::sleep(job.time);
        stop.store(true, Relaxed);
        let took = began.elapsed().as_secs_f64();
        let parts: Vec<(usize, u64)> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread ends"))
            .collect();
        let answered: usize = parts.iter().map(|(answered, _)| answered).sum();
        let cpu_ns: u64 = parts.iter().map(|(_, cpu_ns)| cpu_ns).sum();
        (answered as f64 / took, cpu_ns as f64 / answered as f64)
    })
}

fn clients(job: Job<'_>, service: &'static Service, thread: usize) -> Vec<Client> {
    let batches = (COMMANDS_ENCODED / SESSIONS / job.pipeline).max(2);
    let mut keys = Keys::new(job.choice, 1, thread as u64);
    let mut encode = || {
        let mut bytes = Vec::new();
        for _ in 0..job.pipeline {
            let key = keys.next();
            match job.kind {
                "GET" => encode_into(&mut bytes, &["GET", &load::key(key)]),
                _ => set(&mut bytes, key),
            }
        }
        bytes
    };
    (0..SESSIONS)
        .map(|_| Client::new(service, (0..batches).map(|_| encode()).collect()))
        .collect()
}

/// Visits each client once; returns the number of commands with replies. Where clients wait, a token may have been left
/// to the shards' workers, which have no threads of their own here.
fn visit_all(clients: &mut [Client], service: &'static Service) -> usize {
    let answered = clients.iter_mut().map(Client::visit).sum();
    let waits = |client: &Client| matches!(client.under_way, UnderWay::Command(_));
    if clients.iter().any(waits) {
        for shard in 0..service.shards.len() as u16 {
            let _ = service.shards.poll_worker(shard, Waker::noop());
        }
    }
    answered
}

/// Measures the nanoseconds until a thread's write is seen by another, which replies on the same line.
fn hand_over_ns() -> f64 {
    const ROUNDS: u64 = 50_000;
    if process::core_count() == 1 {
        return 0.0;
    }
    let ball = AtomicU64::new(0);
    let play = |parity: u64, core: &str| {
        process::pin(core);
        for round in 0..ROUNDS {
            let wanted = 2 * round + parity;
            while ball.load(Acquire) != wanted {
                std::hint::spin_loop();
            }
            ball.store(wanted + 1, Release);
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| play(0, "0"));
        scope.spawn(|| play(1, "1"));
    });
    began.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64
}

/// The figures of one row.
struct Row {
    ops_per_s: f64,
    cpu_ns_per_op: f64,
    apart_ops_per_s: f64,
    hand_over_ns: f64,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    measure(&arguments);
}

/// Measures, and compares with the model.
fn measure(arguments: &Arguments) {
    let cores = process::core_count();
    let powers = (0..).map(|power| 1_usize << power);
    let own: Vec<String> = powers
        .take_while(|threads| *threads <= cores)
        .map(|threads| threads.to_string())
        .collect();
    let threads: Vec<usize> = arguments.numbers("--threads", &own.join(","));
    let time = Duration::from_millis(arguments.sized("--ms", 500, 50) as u64);
    let rounds = arguments.number("--rounds", "3");
    let only = arguments.value("--only", "");
    let mut report = format!(
        "{}\n\nMedian of {rounds} rounds of {} ms.\n\n{}",
        process::machine(),
        time.as_millis(),
        "| row | threads | hand-over ns | kop/s | CPU us/op | efficiency | apart | model | model/measured |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    );
    let most = threads.iter().copied().max().unwrap_or(1);
    let apart: Vec<&'static Service> = (0..most).map(|_| service(1)).collect();
    let shared: Vec<&'static Service> = threads.iter().map(|&threads| service(threads)).collect();
    for kind in ["GET", "SET"] {
        for choice in CHOICES {
            let job = |pipeline| Job {
                kind,
                choice,
                pipeline,
                time,
            };
            let name = |pipeline| format!("{kind}{choice}, P={pipeline}");
            if !PIPELINES
                .iter()
                .any(|pipeline| name(*pipeline).contains(&only))
            {
                continue;
            }
            let alone_ns = PIPELINES.map(|pipeline| {
                let ns = (0..rounds).map(|_| run(job(pipeline), &apart[..1]).1);
                peers::median(ns.collect())
            });
            for (pipeline, each_ns) in PIPELINES.into_iter().zip(alone_ns) {
                let name = name(pipeline);
                if !name.contains(&only) {
                    continue;
                }
                let mut cost = cost_of_sessions(alone_ns, pipeline, each_ns);
                let job = job(pipeline);
                if kind == "GET" && choice.contains("hot") {
                    // The bench measured reads from the copy of one thread.
                    (cost.copied_ns, cost.command_ns) =
                        (cost.command_ns, cost.command_ns / COPIED_SHARE);
                }
                let mut first = None;
                for (&threads, &service) in threads.iter().zip(&shared) {
                    let row = one(job, rounds, &vec![service; threads], &apart[..threads]);
                    let (alone, alone_apart) = *first.get_or_insert((
                        row.ops_per_s / threads as f64,
                        row.apart_ops_per_s / threads as f64,
                    ));
                    let predicted = predict((threads, SESSIONS), job, &cost, row.hand_over_ns);
                    let text = format!(
                        "| {name} | {threads} | {:.0} | {:.0} | {:.3} | {:.2} | {:.2} | {:.0} | {:.2} |\n",
                        row.hand_over_ns,
                        row.ops_per_s / 1000.0,
                        row.cpu_ns_per_op / 1000.0,
                        row.ops_per_s / threads as f64 / alone,
                        row.apart_ops_per_s / threads as f64 / alone_apart,
                        predicted / 1000.0,
                        predicted / row.ops_per_s
                    );
                    eprint!("{text}");
                    report.write_str(&text).expect("a text");
                }
            }
        }
    }
    peers::publish(arguments, "scaling-sessions.md", &report);
}

fn one(
    job: Job<'_>,
    rounds: usize,
    shared: &[&'static Service],
    apart: &[&'static Service],
) -> Row {
    let (mut ops, mut cpu, mut ops_apart) = (Vec::new(), Vec::new(), Vec::new());
    // A virtual machine's cores may be on one die now and on two a minute later.
    let mut hand_overs = vec![hand_over_ns()];
    for _ in 0..rounds {
        let (ops_per_s, cpu_ns_per_op) = run(job, shared);
        ops.push(ops_per_s);
        cpu.push(cpu_ns_per_op);
        hand_overs.push(hand_over_ns());
        ops_apart.push(run(job, apart).0);
    }
    Row {
        ops_per_s: peers::median(ops),
        cpu_ns_per_op: peers::median(cpu),
        apart_ops_per_s: peers::median(ops_apart),
        hand_over_ns: peers::median(hand_overs),
    }
}

/// Returns the cost of commands of sessions without sockets in batches of `pipeline`, from the one-thread time per
/// command, in these batches and in batches of all sizes.
fn cost_of_sessions([_, ten_ns, hundred_ns]: [f64; 3], pipeline: usize, each_ns: f64) -> Cost {
    let command_ns = (hundred_ns * 100.0 - ten_ns * 10.0) / 90.0;
    Cost {
        copied_ns: command_ns * COPIED_SHARE,
        driver_ns: 0.0,
        batch_ns: ((each_ns - command_ns) * pipeline as f64).max(0.0),
        command_ns,
        log_ns: 0.0,
        sequencer_ns: 0.0,
        together: TOGETHER,
        // Sessions stay with their threads, which share nothing else.
        connection_lines: 0.0,
        global_batch_lines: 0.0,
        global_command_lines: 0.0,
    }
}

/// Predicts the commands per second of this many threads with this many sessions each.
fn predict(
    (threads, sessions): (usize, usize),
    job: Job<'_>,
    cost: &Cost,
    hand_over_ns: f64,
) -> f64 {
    let setup = Setup {
        runtime: Runtime::PerCore,
        connections: threads * sessions,
        ..model::setup(threads, job.pipeline, 200_000, cost, hand_over_ns)
    };
    let mut keys = Keys::new(job.choice, setup.shards, 0);
    if job.kind == "GET" {
        keys = keys.with_copies();
    }
    machine::run(&setup, &mut || keys.shard()).ops_per_s
}
