//! A closed-loop load generator: some connections, each with one batch of requests in flight, from a pool built before
//! the clock starts and large enough (500,000 random keys) that the server's caches see realistic access. It runs as a
//! separate process, so that it can be pinned, and counts replies by their line ends. One process is one thread; the
//! capacity of the client core therefore limits the throughput, and the relevant figure is the server's CPU time per
//! command.

use std::cell::{Cell, RefCell};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process;
use basalt_testing::random::Draw;
use basalt_testing::workload::{Shape, Sizes, Workload};

/// Number of random keys in a pool: about 390,000 distinct ones of a million.
const POOL_KEYS: usize = 500_000;

/// Number of connections that receive the messages of [`Kind::Publish`], over all load processes.
pub(crate) const SUBSCRIBERS: usize = 100;

/// The channel that they subscribe to.
const CHANNEL: &str = "news";

/// The kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    /// A SET whose value differs in size from the one it replaces, so that memory must be allocated for it.
    SetFresh,
    Incr,
    Mget10,
    Mset10,
    HotGet,
    HotSet,
    Ping,
    /// Nine GETs, then a SET.
    Mixed,
    /// Keys by Zipf's law with exponent 0.99.
    ZipfGet,
    ZipfSet,
    /// A transaction of four SETs.
    Multi4,
    EvalGet,
    /// An LPUSH, and an RPOP from the same list.
    PushPop,
    /// A message to all of [`SUBSCRIBERS`].
    Publish,
    /// The protocol of memcached.
    MemcachedGet,
    MemcachedSet,
}

impl Kind {
    pub(crate) const ALL: [Kind; 18] = [
        Kind::Get,
        Kind::Set,
        Kind::SetFresh,
        Kind::Incr,
        Kind::Mget10,
        Kind::Mset10,
        Kind::HotGet,
        Kind::HotSet,
        Kind::Ping,
        Kind::Mixed,
        Kind::ZipfGet,
        Kind::ZipfSet,
        Kind::Multi4,
        Kind::EvalGet,
        Kind::PushPop,
        Kind::Publish,
        Kind::MemcachedGet,
        Kind::MemcachedSet,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Get => "GET",
            Kind::Set => "SET",
            Kind::SetFresh => "SET fresh",
            Kind::Incr => "INCR",
            Kind::Mget10 => "MGET 10",
            Kind::Mset10 => "MSET 10",
            Kind::HotGet => "GET hot key",
            Kind::HotSet => "SET hot key",
            Kind::Ping => "PING",
            Kind::Mixed => "GET 90, SET 10",
            Kind::ZipfGet => "GET Zipf 0.99",
            Kind::ZipfSet => "SET Zipf 0.99",
            Kind::Multi4 => "MULTI of 4",
            Kind::EvalGet => "EVAL of one GET",
            Kind::PushPop => "LPUSH and RPOP",
            Kind::Publish => "PUBLISH to 100",
            Kind::MemcachedGet => "get",
            Kind::MemcachedSet => "set",
        }
    }

    fn keys_in_one(self) -> usize {
        if matches!(self, Kind::Mget10 | Kind::Mset10) {
            10
        } else {
            1
        }
    }

    /// Returns the number of lines in the reply to the request of this number.
    fn lines_in_reply(self, number: usize) -> usize {
        match self {
            Kind::Mixed => 1 + usize::from(!is_set(number)),
            Kind::Get | Kind::HotGet | Kind::ZipfGet | Kind::EvalGet => 2,
            Kind::Mget10 => 21,
            // MULTI, four times QUEUED, the length, four times OK.
            Kind::Multi4 => 10,
            // The length, then the element.
            Kind::PushPop => 3,
            // VALUE, the value, END.
            Kind::MemcachedGet => 3,
            _ => 1,
        }
    }
}

/// Returns whether the mixed request of this number is a SET.
fn is_set(number: usize) -> bool {
    number.is_multiple_of(10)
}

/// One measurement to be made.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) pipeline: usize,
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) value_bytes: usize,
    pub(crate) time: Duration,
    /// Connections of this process that subscribe.
    pub(crate) subscribers: usize,
}

/// The result of a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) cpu_us_per_op: f64,
    /// Context switches of the server's threads.
    pub(crate) switches_per_op: f64,
    /// Context switches in which a thread went to sleep: in epoll when idle, or in a futex. There are no more futex
    /// waits than this; the kernel distinguishes the two for root only.
    pub(crate) sleeps_per_op: f64,
    /// Cores busy with processes other than the server and the load.
    pub(crate) foreign_cores: f64,
    /// Cores used by the load, which has one: near that, the load is the limit.
    pub(crate) load_cores: f64,
}

/// Runs a job in a separate process on the given cores, against a local server.
pub(crate) fn run(job: &Job, port: u16, pid: u32, cores: &str) -> Sample {
    let kind = Kind::ALL
        .iter()
        .position(|kind| *kind == job.kind)
        .expect("listed");
    let this = std::env::current_exe().expect("this program");
    let numbers = [
        port as usize,
        pid as usize,
        kind,
        job.pipeline,
        job.clients,
        job.keys,
        job.value_bytes,
        job.time.as_millis() as usize,
        job.subscribers,
    ];
    let mut command = Command::new(this);
    command
        .arg("--load-worker")
        .args(numbers.map(|number| number.to_string()))
        .stderr(Stdio::inherit());
    let output = process::on_cores(cores, || command.output()).expect("start the load");
    assert!(output.status.success(), "the load failed: {job:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(fields.len(), 9, "the load said {text:?}");
    Sample {
        ops_per_s: fields[0],
        p50_us: fields[1],
        p99_us: fields[2],
        cpu_us_per_op: fields[3],
        switches_per_op: fields[4],
        sleeps_per_op: fields[5],
        foreign_cores: fields[6],
        p999_us: fields[7],
        load_cores: fields[8],
    }
}

/// Runs the job in the process started by `run`: called by main when the first argument is `--load-worker`.
pub(crate) fn worker(arguments: &[String]) {
    let numbers: Vec<usize> = arguments
        .iter()
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [
        port,
        pid,
        kind,
        pipeline,
        clients,
        keys,
        value_bytes,
        millis,
        subscribers,
    ] = numbers[..]
    else {
        panic!("nine numbers, not {arguments:?}")
    };
    let kind = Kind::ALL[kind];
    let pid = pid as u32;
    let pool: &'static Pool = Box::leak(Box::new(Pool::new(kind, pipeline, keys, value_bytes)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let state = Rc::new(State::default());
    let sample = local.block_on(&runtime, async {
        for _ in 0..subscribers {
            let mut stream = TcpStream::connect(("127.0.0.1", port as u16))
                .await
                .expect("connect");
            let mut request = Vec::new();
            process::encode_into(&mut request, &["SUBSCRIBE", CHANNEL]);
            stream.write_all(&request).await.expect("subscribe");
            assert_ne!(stream.read_u8().await.expect("a reply"), b'-');
            tokio::task::spawn_local(hear(stream));
        }
        let mut tasks = Vec::new();
        for client in 0..clients {
            let start = client * pool.batches() / clients;
            tasks.push(tokio::task::spawn_local(connection(
                port as u16,
                pool,
                start,
                Rc::clone(&state),
            )));
        }
        tokio::time::sleep(Duration::from_millis(millis as u64 / 4 + 50)).await;
        let before = Reading::now(pid);
        state.measuring.set(true);
        tokio::time::sleep(Duration::from_millis(millis as u64)).await;
        state.measuring.set(false);
        let after = Reading::now(pid);
        state.stopped.set(true);
        for task in tasks {
            task.await.expect("no connection fails");
        }
        let ops = (state.batches.get() * pipeline as u64) as f64;
        let wall = (after.at - before.at).as_secs_f64();
        let server = (after.cpu_ns - before.cpu_ns) as f64 / 1e9;
        let own = (after.own_ns - before.own_ns) as f64 / 1e9;
        let foreign = ((after.busy_s - before.busy_s - server - own) / wall).max(0.0);
        let histogram = state.histogram.borrow();
        let switches = after.switches.saturating_sub(before.switches) as f64;
        let sleeps = after.sleeps.saturating_sub(before.sleeps) as f64;
        [
            ops / wall,
            histogram.quantile(0.5),
            histogram.quantile(0.99),
            server * 1e6 / ops,
            switches / ops,
            sleeps / ops,
            foreign,
            histogram.quantile(0.999),
            own / wall,
        ]
    });
    let words: Vec<String> = sample.iter().map(|number| format!("{number:.6}")).collect();
    #[expect(clippy::print_stdout, reason = "the parent process reads it")]
    {
        println!("{}", words.join(" "));
    }
}

struct Reading {
    at: Instant,
    cpu_ns: u64,
    own_ns: u64,
    switches: u64,
    sleeps: u64,
    busy_s: f64,
}

impl Reading {
    fn now(pid: u32) -> Reading {
        Reading {
            cpu_ns: process::cpu_ns(pid),
            own_ns: process::cpu_ns(std::process::id()),
            switches: process::context_switches(pid),
            sleeps: process::sleeps(pid),
            busy_s: process::machine_busy_s(),
            at: Instant::now(),
        }
    }
}

#[derive(Default)]
struct State {
    measuring: Cell<bool>,
    stopped: Cell<bool>,
    batches: Cell<u64>,
    histogram: RefCell<Histogram>,
}

/// Reads and drops messages until the server is gone.
async fn hear(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

async fn connection(port: u16, pool: &'static Pool, start: usize, state: Rc<State>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connect");
    stream.set_nodelay(true).expect("no delay");
    let mut buffer = vec![0; 64 * 1024];
    let mut batch = start;
    while !state.stopped.get() {
        let sent = Instant::now();
        stream.write_all(pool.batch(batch)).await.expect("send");
        let mut lines = pool.lines[batch];
        while lines > 0 {
            let count = stream.read(&mut buffer).await.expect("a reply");
            assert!(
                count > 0 && buffer[0] != b'-',
                "the server gave up or answered an error"
            );
            lines -= memchr::memchr_iter(b'\n', &buffer[..count]).count();
        }
        if state.measuring.get() {
            state.batches.set(state.batches.get() + 1);
            state.histogram.borrow_mut().add(sent.elapsed());
        }
        batch = (batch + 1) % pool.batches();
    }
}

/// Requests, in order, divided into batches.
struct Pool {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Number of reply lines of each batch.
    lines: Vec<usize>,
}

impl Pool {
    fn new(kind: Kind, pipeline: usize, keys: usize, value_bytes: usize) -> Pool {
        let commands = (POOL_KEYS / kind.keys_in_one()).max(pipeline * 50);
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        let mut lines = Vec::new();
        let mut lines_in_batch = 0;
        let ranked = Workload {
            name: "popular",
            shape: Shape::Zipf,
            alpha: 0.99,
            sizes: Sizes::Fixed(value_bytes),
            ranks: keys,
            requests: commands,
            writes: 0.0,
            lives: 0.0,
            seed: 1,
        };
        let is_ranked = matches!(kind, Kind::ZipfGet | Kind::ZipfSet);
        let mut ranked = is_ranked.then(|| ranked.keys());
        let mut popular = || key(ranked.as_mut().and_then(Iterator::next).unwrap_or(0) as usize);
        let mut random = Draw::new(1);
        let mut draw = |bound: usize| random.below(bound);
        let value = "v".repeat(value_bytes);
        let long = "w".repeat(value_bytes * 2);
        for index in 1..=commands {
            match kind {
                Kind::Get => process::encode_into(&mut bytes, &["GET", &key(draw(keys))]),
                Kind::Set => process::encode_into(&mut bytes, &["SET", &key(draw(keys)), &value]),
                Kind::SetFresh => {
                    // Sizes from half to one and a half: seldom the size class of the current value.
                    let size = value_bytes / 2 + draw(value_bytes + 1);
                    process::encode_into(&mut bytes, &["SET", &key(draw(keys)), &long[..size]]);
                }
                Kind::Incr => {
                    process::encode_into(&mut bytes, &["INCR", &format!("cnt:{:012}", draw(keys))])
                }
                Kind::HotGet => process::encode_into(&mut bytes, &["GET", &key(7)]),
                Kind::HotSet => process::encode_into(&mut bytes, &["SET", &key(7), &value]),
                Kind::Mixed if is_set(index) => {
                    process::encode_into(&mut bytes, &["SET", &key(draw(keys)), &value]);
                }
                Kind::Mixed => process::encode_into(&mut bytes, &["GET", &key(draw(keys))]),
                Kind::ZipfGet => process::encode_into(&mut bytes, &["GET", &popular()]),
                Kind::ZipfSet => process::encode_into(&mut bytes, &["SET", &popular(), &value]),
                Kind::Multi4 => {
                    process::encode_into(&mut bytes, &["MULTI"]);
                    for _ in 0..4 {
                        process::encode_into(&mut bytes, &["SET", &key(draw(keys)), &value]);
                    }
                    process::encode_into(&mut bytes, &["EXEC"]);
                }
                Kind::EvalGet => {
                    let script = "return redis.call('GET', KEYS[1])";
                    process::encode_into(&mut bytes, &["EVAL", script, "1", &key(draw(keys))]);
                }
                Kind::PushPop => {
                    let list = format!("list:{:04}", draw(1000));
                    process::encode_into(&mut bytes, &["LPUSH", &list, &value]);
                    process::encode_into(&mut bytes, &["RPOP", &list]);
                }
                Kind::MemcachedGet => {
                    bytes.extend_from_slice(format!("get {}\r\n", key(draw(keys))).as_bytes());
                }
                Kind::MemcachedSet => memcached_set(&mut bytes, &key(draw(keys)), &value),
                Kind::Publish => process::encode_into(&mut bytes, &["PUBLISH", CHANNEL, &value]),
                Kind::Ping => process::encode_into(&mut bytes, &["PING"]),
                Kind::Mget10 => {
                    let mut words = vec!["MGET".to_owned()];
                    words.extend((0..10).map(|_| key(draw(keys))));
                    process::encode_into(&mut bytes, &words);
                }
                Kind::Mset10 => {
                    let mut words = vec!["MSET".to_owned()];
                    for _ in 0..10 {
                        words.push(key(draw(keys)));
                        words.push(value.clone());
                    }
                    process::encode_into(&mut bytes, &words);
                }
            }
            lines_in_batch += kind.lines_in_reply(index);
            if index % pipeline == 0 {
                ends.push(bytes.len());
                lines.push(std::mem::take(&mut lines_in_batch));
            }
        }
        Pool { bytes, ends, lines }
    }

    fn batches(&self) -> usize {
        self.ends.len()
    }

    fn batch(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

/// Encodes a request in memcached's protocol.
pub(crate) fn memcached_set(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
}

/// Returns a key of 16 bytes, the same as redis-benchmark's `key:__rand_int__`.
pub(crate) fn key(number: usize) -> String {
    format!("key:{number:012}")
}

/// Latencies in steps of about 3 %.
struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; 1024],
        }
    }
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let micros = (time.as_nanos() as f64 / 1000.0).max(1.0);
        let step = ((micros.ln() / 1.03_f64.ln()) as usize).min(self.counts.len() - 1);
        self.counts[step] += 1;
    }

    fn quantile(&self, part: f64) -> f64 {
        let total: u64 = self.counts.iter().sum();
        let mut left = (total as f64 * part) as u64;
        for (step, &count) in self.counts.iter().enumerate() {
            if count > left {
                return 1.03_f64.powf(step as f64 + 0.5);
            }
            left -= count;
        }
        0.0
    }
}
