//! Compares traffic to other clients with redis-server's and Valkey's: published messages, invalidations of client-side
//! caches, expired events; also transactions and scripts. The figure is the server's CPU time, per publish, delivery,
//! read, write or transaction.
//!
//! ```text
//! cargo bench --bench messages -- [--quick] [--cores 0] [--load-cores 1] [--rounds 3] [--only WORD]
//!     [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR]
//! ```
//!
//! All servers are pinned to one core and take turns; the load is one thread that sends a pipeline, reads its replies,
//! then reads the messages due on every other connection. `threads` compares basalt with itself: a script on one key
//! with two threads against one. `--only` takes `publish`, `tracking`, `multi`, `scripts`, `threads` or `expired`.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod support;

use basalt_testing::random::Draw;
use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{self, Client, Cost, CpuTime, Process, encode_into};

/// Measures one kind of traffic, and returns a table.
type Part = fn(&Plan) -> String;

/// Parameters from the command line.
struct Plan {
    servers: Vec<Peer>,
    cores: String,
    rounds: usize,
    is_quick: bool,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let is_quick = arguments.has("--quick");
    let plan = Plan {
        servers: peers::all(&arguments, &[]),
        cores: arguments.value("--cores", "0"),
        rounds: arguments.sized("--rounds", 3, 1),
        is_quick,
    };
    let last = process::core_count() - 1;
    process::pin(&arguments.value("--load-cores", &last.to_string()));
    let only = arguments.value("--only", "");
    let parts: [(&str, Part); 6] = [
        ("publish", publish),
        ("tracking", tracking),
        ("multi", multi),
        ("scripts", scripts),
        ("threads", threads),
        ("expired", expired),
    ];
    let mut report = peers::heading(&plan.servers);
    for (name, part) in parts {
        if name.contains(&only) {
            report += &part(&plan);
        }
    }
    peers::publish(&arguments, "messages.md", &report);
}

impl Plan {
    fn start(&self, index: usize) -> Process {
        let peer = &self.servers[index];
        // A subscriber that lags for a moment must not be disconnected.
        let mut arguments = ["--client-output-buffer-limit", "pubsub", "0", "0", "0"].to_vec();
        if peer.name == "basalt" {
            arguments.extend(["--threads", "1"]);
        }
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        peer.start(&self.cores, &arguments)
    }

    /// Returns the medians of some figures of each server, in rounds over the servers in turn: per figure, those of all
    /// servers.
    fn compare<const N: usize>(&self, measure: impl Fn(&Process) -> [f64; N]) -> [Vec<f64>; N] {
        let mut samples: Vec<Vec<[f64; N]>> = vec![Vec::new(); self.servers.len()];
        for round in 0..self.rounds {
            for index in peers::order(self.servers.len(), round) {
                let server = self.start(index);
                samples[index].push(measure(&server));
            }
        }
        std::array::from_fn(|figure| {
            let of = |samples: &Vec<[f64; N]>| {
                peers::median(samples.iter().map(|sample| sample[figure]).collect())
            };
            samples.iter().map(of).collect()
        })
    }

    /// Returns a table of the compared figures.
    fn table(&self, title: &str, rows: &[String], figures: &[Vec<f64>]) -> String {
        let head = peers::table_head(&self.servers, "what", "");
        let rows = rows.iter().zip(figures);
        let rows = rows.map(|(row, figures)| peers::table_row(row, figures, 3));
        format!("\n{title}\n\n{head}{}", rows.collect::<String>())
    }
}

/// Measures the server's cost of each of `count` items of `work`.
fn cost(server: &Process, count: usize, work: impl FnOnce()) -> Cost {
    let before = CpuTime::of(server.pid());
    work();
    // The server's work after its last reply is included.
    std::thread::sleep(Duration::from_millis(2));
    CpuTime::of(server.pid()).since(before).per(count)
}

/// Measures the server's CPU microseconds per item.
fn cpu_us(server: &Process, count: usize, work: impl FnOnce()) -> f64 {
    cost(server, count, work).us
}

/// Reads `count` bytes and drops them.
fn skip(stream: &mut TcpStream, mut count: usize) {
    let mut chunk = [0; 64 * 1024];
    while count > 0 {
        let room = count.min(chunk.len());
        let read = stream.read(&mut chunk[..room]).expect("what is due");
        assert!(read > 0, "the server gave up");
        count -= read;
    }
}

fn encoded(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_into(&mut bytes, words);
    bytes
}

// PUBLISH ------------------------------------------------------------------------------------------------------------

/// Messages in flight at once.
const PUBLISHES_AT_ONCE: usize = 16;

fn publish(plan: &Plan) -> String {
    let cases = [(1, 1), (100, 1), (1_000, 1), (100, PUBLISHES_AT_ONCE)];
    let mut text = String::new();
    for (count, publishers) in cases {
        let pipelines = match (plan.is_quick, count) {
            (true, 1) => 500,
            (true, 100) => 50,
            (true, _) => 5,
            (false, 1) => 10_000,
            (false, 100) => 1_000,
            (false, _) => 100,
        };
        let figures = plan.compare(|server| {
            let Cost { us, own_us } = publish_to(server, count, publishers, pipelines);
            [us, us / count as f64, own_us / count as f64]
        });
        let rows = [
            "us a publish",
            "us a delivery",
            "us a delivery, without the kernel",
        ]
        .map(str::to_owned);
        let per_publisher = PUBLISHES_AT_ONCE / publishers;
        let title = format!(
            "PUBLISH of 64 bytes to {count} subscribers; connections that publish: {publishers}, with pipelines of {per_publisher}."
        );
        text += &plan.table(&title, &rows, &figures);
    }
    text
}

fn publish_to(server: &Process, count: usize, publishers: usize, pipelines: usize) -> Cost {
    let payload = "x".repeat(64);
    let message = encoded(&["message", "channel", &payload]).len();
    let mut subscribers: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = server.client().into_stream();
            let request = encoded(&["SUBSCRIBE", "channel"]);
            stream.write_all(&request).expect("send");
            skip(
                &mut stream,
                "*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n".len(),
            );
            stream
        })
        .collect();
    let mut publishers: Vec<TcpStream> = (0..publishers)
        .map(|_| server.client().into_stream())
        .collect();
    let per_publisher = PUBLISHES_AT_ONCE / publishers.len();
    let pipeline = encoded(&["PUBLISH", "channel", &payload]).repeat(per_publisher);
    let reply = format!(":{count}\r\n").len();
    let mut run = |pipelines: usize| {
        for _ in 0..pipelines {
            for publisher in &mut publishers {
                publisher.write_all(&pipeline).expect("send");
            }
            for publisher in &mut publishers {
                skip(publisher, reply * per_publisher);
            }
            for subscriber in &mut subscribers {
                skip(subscriber, message * PUBLISHES_AT_ONCE);
            }
        }
    };
    run(2);
    cost(server, pipelines * PUBLISHES_AT_ONCE, || run(pipelines))
}

// CLIENT TRACKING ----------------------------------------------------------------------------------------------------

const READS_PER_PIPELINE: usize = 100;

fn tracking(plan: &Plan) -> String {
    let keys = if plan.is_quick { 50_000 } else { 1_000_000 };
    let figures = plan.compare(|server| track(server, keys));
    let rows = [
        "us a GET of a connection that does not track",
        "us a GET that is tracked for the first time",
        "us a GET that is tracked already",
        "us a SET of a key that nobody tracks",
        "us a SET that invalidates",
        "bytes a tracked key",
    ]
    .map(str::to_owned);
    let title = format!("CLIENT TRACKING of {keys} keys of 16 bytes, pipelines of 100.");
    plan.table(&title, &rows, &figures)
}

fn name(index: usize) -> String {
    format!("key:{index:012}")
}

fn track(server: &Process, keys: usize) -> [f64; 6] {
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "tracking-table-max-keys", "0"]);
    client.load(keys, |index, out| {
        encode_into(out, &["SET", &name(index), "value-01"])
    });
    let mut reader = server.client();
    let hello = encoded(&["HELLO", "3"]);
    reader.send(&hello);
    // The reply to HELLO ends with an empty array of modules.
    let mut seen = String::new();
    while seen != "0" {
        seen = reader.read();
    }
    let mut reader = reader.into_stream();
    // Spread over the keys, so that their order gives no advantage.
    let order = |index: usize| name(index * 7_919 % keys);
    let get = |reader: &mut TcpStream| {
        let mut bytes = Vec::new();
        for start in (0..keys).step_by(READS_PER_PIPELINE) {
            bytes.clear();
            let end = keys.min(start + READS_PER_PIPELINE);
            for index in start..end {
                encode_into(&mut bytes, &["GET", &order(index)]);
            }
            reader.write_all(&bytes).expect("send");
            skip(reader, "$8\r\nvalue-01\r\n".len() * (end - start));
        }
    };
    let plain_us = cpu_us(server, keys, || get(&mut reader));
    let on = encoded(&["CLIENT", "TRACKING", "ON"]);
    reader.write_all(&on).expect("send");
    skip(&mut reader, "+OK\r\n".len());
    let used = |client: &mut Client| {
        std::thread::sleep(Duration::from_millis(300));
        client.info("memory", "used_memory").expect("used_memory")
    };
    let before = used(&mut client);
    let first_us = cpu_us(server, keys, || get(&mut reader));
    let bytes = (used(&mut client) - before) / keys as f64;
    let again_us = cpu_us(server, keys, || get(&mut reader));
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$16\r\nkey:000000000001\r\n".len();
    let mut writer = server.client().into_stream();
    let mut set = |due: usize| {
        let mut bytes = Vec::new();
        for start in (0..keys).step_by(READS_PER_PIPELINE) {
            bytes.clear();
            let end = keys.min(start + READS_PER_PIPELINE);
            for index in start..end {
                encode_into(&mut bytes, &["SET", &order(index), "value-02"]);
            }
            writer.write_all(&bytes).expect("send");
            skip(&mut writer, "+OK\r\n".len() * (end - start));
            skip(&mut reader, due * (end - start));
        }
    };
    let invalidating_us = cpu_us(server, keys, || set(push));
    let untracked_us = cpu_us(server, keys, || set(0));
    [
        plain_us,
        first_us,
        again_us,
        untracked_us,
        invalidating_us,
        bytes,
    ]
}

// MULTI --------------------------------------------------------------------------------------------------------------

const SETS: usize = 10;

fn multi(plan: &Plan) -> String {
    let count = if plan.is_quick { 2_000 } else { 50_000 };
    let figures = plan.compare(|server| {
        let one_slot = transactions(server, count, |number| format!("{{t}}:{number:06}"));
        let spread = transactions(server, count, |number| format!("key:{number:06}"));
        [one_slot, spread]
    });
    let rows = ["10 SETs in one slot", "10 SETs over shards"].map(str::to_owned);
    let title = "MULTI, 10 SETs of 8 bytes, EXEC, 16 at a time: us a transaction.";
    plan.table(title, &rows, &figures)
}

fn transactions(server: &Process, count: usize, key: impl Fn(usize) -> String) -> f64 {
    const AT_A_TIME: usize = 16;
    let mut stream = server.client().into_stream();
    let mut draw = Draw::new(1);
    let reply =
        "+OK\r\n".len() + SETS * "+QUEUED\r\n".len() + "*10\r\n".len() + SETS * "+OK\r\n".len();
    let mut run = |count: usize| {
        let mut bytes = Vec::new();
        for _ in 0..count / AT_A_TIME {
            bytes.clear();
            for _ in 0..AT_A_TIME {
                encode_into(&mut bytes, &["MULTI"]);
                for _ in 0..SETS {
                    encode_into(&mut bytes, &["SET", &key(draw.below(100_000)), "value-01"]);
                }
                encode_into(&mut bytes, &["EXEC"]);
            }
            stream.write_all(&bytes).expect("send");
            skip(&mut stream, reply * AT_A_TIME);
        }
    };
    run(count / 10);
    cpu_us(server, count / AT_A_TIME * AT_A_TIME, || run(count))
}

// Scripts ------------------------------------------------------------------------------------------------------------

/// The release of a lock.
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// Adds a job to a queue: its id, its data, its position, its time.
const ADD_JOB: &str = "\
    local id = redis.call('INCR', KEYS[1]) \
    redis.call('HSET', KEYS[2] .. id % 10000, 'data', ARGV[1], 'at', ARGV[2]) \
    redis.call('LPUSH', KEYS[3], id) \
    if id > 1000 then redis.call('RPOP', KEYS[3]) end \
    redis.call('ZADD', KEYS[4], ARGV[2], id % 1000) \
    return 1";

fn scripts(plan: &Plan) -> String {
    let count = if plan.is_quick { 4_000 } else { 100_000 };
    let figures = plan.compare(|server| {
        let mut client = server.client();
        let sha = client.ask(&["SCRIPT", "LOAD", ADD_JOB]);
        let mut stream = client.into_stream();
        let add_job = |at: usize| {
            let at = at.to_string();
            let mut words = vec!["EVALSHA", &sha];
            words.extend(["4", "{q}:id", "{q}:job:", "{q}:wait", "{q}:times"]);
            words.extend(["payload-of-a-job", &at]);
            encoded(&words)
        };
        let set = |at: usize| encoded(&["SET", &lock(at), "token"]);
        let release = |at: usize| encoded(&["EVAL", COMPARE_AND_DELETE, "1", &lock(at), "token"]);
        send(&mut stream, 16, count, "+OK\r\n", set);
        let many = cpu_us(server, count, || {
            send(&mut stream, 16, count, ":1\r\n", release)
        });
        let few = count / 5;
        send(&mut stream, 16, few, "+OK\r\n", set);
        let one = cpu_us(server, few, || send(&mut stream, 1, few, ":1\r\n", release));
        send(&mut stream, 16, few, ":1\r\n", add_job);
        let jobs = cpu_us(server, few, || {
            send(&mut stream, 16, few, ":1\r\n", add_job)
        });
        // A server that always finds the next pipeline ready pays nothing for sleeping and waking.
        let mut streams: Vec<TcpStream> = (0..BUSY_CONNECTIONS)
            .map(|_| server.client().into_stream())
            .collect();
        send(&mut stream, 16, count, "+OK\r\n", set);
        let many_busy = busy(server, &mut streams, count, ":1\r\n", release);
        let jobs_busy = busy(server, &mut streams, few, ":1\r\n", add_job);
        [many, many_busy, one, jobs, jobs_busy]
    });
    let rows = [
        "EVAL, compare and delete, P=16".to_owned(),
        format!("the same, {BUSY_CONNECTIONS} connections"),
        "EVAL, compare and delete, P=1".to_owned(),
        "EVALSHA, five commands over a queue's keys, P=16".to_owned(),
        format!("the same, {BUSY_CONNECTIONS} connections"),
    ];
    let title = "Scripts with declared keys: us a call, one connection unless said.";
    plan.table(title, &rows, &figures)
}

/// Number of connections, as in redis-benchmark.
const BUSY_CONNECTIONS: usize = 50;

/// Measures the cost of a call on a server that has a pending pipeline on each connection.
fn busy(
    server: &Process,
    streams: &mut [TcpStream],
    count: usize,
    reply: &str,
    request: impl Fn(usize) -> Vec<u8>,
) -> f64 {
    const AT_A_TIME: usize = 16;
    let numbers: Vec<usize> = (0..count / AT_A_TIME * AT_A_TIME).collect();
    let pipelines: Vec<Vec<u8>> = numbers
        .chunks(AT_A_TIME)
        .map(|numbers| numbers.iter().flat_map(|at| request(*at)).collect())
        .collect();
    cpu_us(server, numbers.len(), || {
        for pipelines in pipelines.chunks(streams.len()) {
            for (stream, bytes) in streams.iter_mut().zip(pipelines) {
                stream.write_all(bytes).expect("send");
            }
            for (stream, _) in streams.iter_mut().zip(pipelines) {
                skip(stream, reply.len() * AT_A_TIME);
            }
        }
    })
}

/// A counter that increments only up to a limit.
const COUNT: &str = "\
    local now = tonumber(redis.call('GET', KEYS[1]) or '0') \
    if now >= tonumber(ARGV[1]) then return 0 end \
    redis.call('SET', KEYS[1], now + 1) \
    return 1";

/// Connections that take turns, so that every thread has some.
const CONNECTIONS: usize = 8;

fn threads(plan: &Plan) -> String {
    let pipelines = if plan.is_quick { 50 } else { 1_500 };
    let Some(basalt) = plan.servers.last() else {
        unreachable!("it is always there")
    };
    let cores = format!("0-{}", process::core_count() - 1);
    let sides = ["1 thread", "2 threads"].map(|name| Peer {
        name,
        ..basalt.clone()
    });
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..plan.rounds {
        for index in peers::order(2, round) {
            let arguments = ["--threads".to_owned(), (index + 1).to_string()];
            let server = basalt.start(&cores, &arguments);
            samples[index].push(count_up(&server, pipelines));
        }
    }
    let title = format!("A script on one key, {CONNECTIONS} connections: us a call.");
    let row = "EVALSHA, a GET and a SET of one key, P=16";
    let head = peers::table_head(&sides, "what", "");
    let row = peers::table_row(row, &samples.map(peers::median), 3);
    format!("\n{title}\n\n{head}{row}")
}

fn count_up(server: &Process, pipelines: usize) -> f64 {
    const AT_A_TIME: usize = 16;
    let mut client = server.client();
    let sha = client.ask(&["SCRIPT", "LOAD", COUNT]);
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| server.client().into_stream())
        .collect();
    let mut at = 0;
    let mut run = |pipelines: usize| {
        for _ in 0..pipelines {
            for stream in &mut streams {
                let mut bytes = Vec::new();
                for _ in 0..AT_A_TIME {
                    at += 1;
                    let key = format!("counter:{:05}", at * 7_919 % 100_000);
                    encode_into(&mut bytes, &["EVALSHA", &sha, "1", &key, "1000000"]);
                }
                stream.write_all(&bytes).expect("send");
            }
            for stream in &mut streams {
                skip(stream, ":1\r\n".len() * AT_A_TIME);
            }
        }
    };
    run(pipelines / 10 + 1);
    cpu_us(server, pipelines * CONNECTIONS * AT_A_TIME, || {
        run(pipelines)
    })
}

fn lock(at: usize) -> String {
    format!("lock:{at:06}")
}

/// Sends `count` requests, in batches, and reads as many replies, which are all alike.
fn send(
    stream: &mut TcpStream,
    at_a_time: usize,
    count: usize,
    reply: &str,
    request: impl Fn(usize) -> Vec<u8>,
) {
    for first in (0..count).step_by(at_a_time) {
        let last = count.min(first + at_a_time);
        let bytes: Vec<u8> = (first..last).flat_map(&request).collect();
        stream.write_all(&bytes).expect("send");
        skip(stream, reply.len() * (last - first));
    }
}

// Expired events -----------------------------------------------------------------------------------------------------

fn expired(plan: &Plan) -> String {
    let keys = if plan.is_quick { 1_000 } else { 20_000 };
    let figures = plan.compare(|server| expired_lag_ms(server, keys));
    let rows = ["p50", "p99", "longest"].map(str::to_owned);
    let title = format!(
        "Expired events of {keys} keys whose deadlines fall into 2 s: ms from the deadline to the message."
    );
    plan.table(&title, &rows, &figures)
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_millis() as u64
}

/// Each key is named after its deadline.
fn expired_lag_ms(server: &Process, keys: usize) -> [f64; 3] {
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    let mut listener = server.client();
    listener.send(&encoded(&["SUBSCRIBE", "__keyevent@0__:expired"]));
    while listener.read() != "1" {}
    let first_ms = unix_ms() + 1_500;
    client.load(keys, |index, out| {
        let deadline_ms = (first_ms + index as u64 * 2_000 / keys as u64).to_string();
        let key = format!("{deadline_ms}:{index}");
        encode_into(out, &["SET", &key, "v", "PXAT", &deadline_ms]);
    });
    let mut lags: Vec<u64> = Vec::with_capacity(keys);
    let started = Instant::now();
    while lags.len() < keys && started.elapsed() < Duration::from_secs(60) {
        let text = listener.read();
        let Some((deadline_ms, _)) = text.split_once(':') else {
            continue;
        };
        if let Ok(deadline_ms) = deadline_ms.parse::<u64>() {
            lags.push(unix_ms().saturating_sub(deadline_ms));
        }
    }
    lags.sort_unstable();
    let at = |share: f64| lags[((lags.len() - 1) as f64 * share) as usize] as f64;
    // A lag below the clock's resolution is no lag; zero would break the division.
    [at(0.5).max(0.5), at(0.99).max(0.5), at(1.0).max(0.5)]
}
