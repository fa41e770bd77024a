//! Commands under a closed loop: some connections, each with one batch of requests in flight, on servers that take
//! turns.
//!
//! Requests are generated before the clock starts, every sample has the same number of them, the elements that they
//! remove are restored before the next sample, and each connection continues as soon as it has its replies. The figure
//! is the server's CPU time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use basalt_testing::random::Draw;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::arguments::Arguments;
use super::peers::{self, Peer};
use super::process::{self, Client, Cost, CpuTime, Process};

pub(crate) const CONNECTIONS: usize = 50;

/// Number of requests generated beforehand, and repeated from the first when all were sent.
const REQUESTS: usize = 640_000;

/// A command to measure: the preparation of a server, and the requests.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Creates the data for the requests, only a fraction of it if the scale is above one; each scenario can run alone.
    pub(crate) prepare: fn(&mut Client, usize),
    /// Restores, outside the measured time, the elements removed by this many requests.
    pub(crate) restore: fn(&mut Client, usize),
    pub(crate) request: fn(&mut Draw, &mut Vec<u8>),
}

pub(crate) fn ask(out: &mut Vec<u8>, words: &[&str]) {
    process::encode_into(out, words);
}

pub(crate) fn nothing(_: &mut Client, _: usize) {}

/// Parameters of the measurement.
pub(crate) struct Measured {
    /// The core of the servers.
    cores: String,
    pub(crate) rounds: usize,
    time: Duration,
    /// Divisor of the amount of prepared data.
    scale: usize,
}

impl Measured {
    /// Reads the parameters from the command line.
    pub(crate) fn from(arguments: &Arguments, quick: bool) -> Measured {
        // Turns are short: the speed of a shared machine may change within seconds.
        let millis = arguments.sized("--ms", 150, 100);
        Measured {
            cores: arguments.value("--cores", "0"),
            rounds: arguments.sized("--rounds", 15, 1),
            time: Duration::from_millis(millis as u64),
            scale: if quick { 10 } else { 1 },
        }
    }

    /// Starts all servers on the one core, basalt with one thread.
    pub(crate) fn start(&self, servers: &[Peer]) -> Vec<Process> {
        let one_thread = ["--threads".to_owned(), "1".to_owned()];
        let more = |peer: &Peer| match peer.name {
            "basalt" => &one_thread[..],
            _ => &[],
        };
        let start = |peer: &Peer| peer.start(&self.cores, more(peer));
        servers.iter().map(start).collect()
    }

    /// Measures commands, each with its pipeline, and shows their cost on each server.
    pub(crate) fn compare<'s>(
        &self,
        servers: &[Process],
        scenarios: impl Iterator<Item = (&'s Scenario, usize)>,
        mut show: impl FnMut(&Scenario, usize, &[Cost]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let open = |server: &Process| Load::open(&runtime, server);
        let mut loads: Vec<Load> = servers.iter().map(open).collect();
        let mut draw = Draw::new(1);
        for (scenario, pipeline) in scenarios {
            for server in servers {
                (scenario.prepare)(&mut server.client(), self.scale);
            }
            let pool = Rc::new(Pool::of(scenario, pipeline, &mut draw, self.scale));
            for load in &mut loads {
                load.at = 0;
            }
            // The amount that the first server does in the time is the amount for each server in every sample, so that
            // all get the same requests and their collections grow alike.
            let end = Until::Time(Instant::now() + self.time);
            let batches = loads[0].run(&runtime, &pool, end);
            for load in &mut loads[1..] {
                load.run(&runtime, &pool, Until::Batches(batches));
            }
            let requests = batches * pipeline;
            let restore = |server: &Process| (scenario.restore)(&mut server.client(), requests);
            servers.iter().for_each(restore);
            let mut samples = vec![Vec::new(); servers.len()];
            for round in 0..self.rounds {
                for index in peers::order(servers.len(), round) {
                    let pid = servers[index].pid();
                    let before = CpuTime::of(pid);
                    loads[index].run(&runtime, &pool, Until::Batches(batches));
                    samples[index].push(CpuTime::of(pid).since(before));
                    restore(&servers[index]);
                }
            }
            let costs: Vec<Cost> = samples.iter().map(|times| cost(times, requests)).collect();
            show(scenario, pipeline, &costs);
        }
    }
}

/// Returns the median of rounds of this many requests, with their ticks added up.
fn cost(times: &[CpuTime], requests: usize) -> Cost {
    let each = times.iter().map(|time| time.per(requests).us).collect();
    let sum = times
        .iter()
        .copied()
        .fold(CpuTime::default(), CpuTime::plus);
    let (us, sum) = (peers::median(each), sum.per(requests * times.len()));
    Cost {
        us,
        own_us: us * sum.own_us / sum.us,
    }
}

/// Requests generated before the measurement, so that the server is kept busy and not the client.
struct Pool {
    batches: Vec<Vec<u8>>,
    /// Requests in each batch.
    pipeline: usize,
}

impl Pool {
    fn of(scenario: &Scenario, pipeline: usize, draw: &mut Draw, scale: usize) -> Pool {
        let batches = (0..REQUESTS / pipeline / scale)
            .map(|_| {
                let mut batch = Vec::new();
                for _ in 0..pipeline {
                    (scenario.request)(draw, &mut batch);
                }
                batch
            })
            .collect();
        Pool { batches, pipeline }
    }
}

/// The end of a run.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Batches(usize),
}

/// The connections to a server, each with one batch in flight during a run, as for independent clients.
struct Load {
    connections: Vec<Connection>,
    /// Number of batches sent for this scenario.
    at: usize,
}

impl Load {
    fn open(runtime: &Runtime, server: &Process) -> Load {
        let _inside = runtime.enter();
        let connections = (0..CONNECTIONS)
            .map(|_| {
                let stream = server.client().into_stream();
                stream.set_nonblocking(true).expect("set up");
                Connection {
                    stream: TcpStream::from_std(stream).expect("register"),
                    buffer: Vec::new(),
                }
            })
            .collect();
        Load { connections, at: 0 }
    }

    /// Returns the number of batches run.
    fn run(&mut self, runtime: &Runtime, pool: &Rc<Pool>, until: Until) -> usize {
        let first = self.at;
        let next = Rc::new(Cell::new(first));
        let local = LocalSet::new();
        let connections = std::mem::take(&mut self.connections);
        self.connections = local.block_on(runtime, async {
            let tasks: Vec<_> = connections
                .into_iter()
                .map(|mut connection| {
                    let (pool, next) = (Rc::clone(pool), Rc::clone(&next));
                    tokio::task::spawn_local(async move {
                        while match until {
                            Until::Time(end) => Instant::now() < end,
                            Until::Batches(count) => next.get() < first + count,
                        } {
                            let batch = &pool.batches[next.get() % pool.batches.len()];
                            next.set(next.get() + 1);
                            connection.stream.write_all(batch).await.expect("send");
                            connection.read_replies(pool.pipeline).await;
                        }
                        connection
                    })
                })
                .collect();
            let mut connections = Vec::new();
            for task in tasks {
                connections.push(task.await.expect("no connection fails"));
            }
            connections
        });
        self.at = next.get();
        self.at - first
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Reads `count` whole replies, which are all that is in flight.
    async fn read_replies(&mut self, count: usize) {
        self.buffer.clear();
        let mut wanted = count;
        let mut at = 0;
        while wanted > 0 {
            let read = self
                .stream
                .read_buf(&mut self.buffer)
                .await
                .expect("a reply");
            assert!(read > 0, "the server gave up");
            while wanted > 0 {
                let Some((end, more)) = element(&self.buffer, at) else {
                    break;
                };
                (at, wanted) = (end, wanted - 1 + more);
            }
        }
    }
}

/// Returns the end of the RESP2 element at a position, if it is complete, and how many elements it announces.
fn element(buffer: &[u8], at: usize) -> Option<(usize, usize)> {
    let line_end = at + buffer[at..].iter().position(|byte| *byte == b'\n')? + 1;
    let number = || -> i64 {
        std::str::from_utf8(&buffer[at + 1..line_end - 2])
            .ok()
            .and_then(|text| text.parse().ok())
            .expect("a length")
    };
    match buffer[at] {
        b'$' => {
            let end = match number() {
                -1 => line_end,
                length => line_end + length as usize + 2,
            };
            (end <= buffer.len()).then_some((end, 0))
        }
        b'*' => Some((line_end, number().max(0) as usize)),
        b'-' => panic!(
            "the server says {}",
            String::from_utf8_lossy(&buffer[at..line_end])
        ),
        _ => Some((line_end, 0)),
    }
}
