//! How long other clients wait while one client does something large: deletes and overwrites huge values, flushes,
//! grows and shrinks the table, walks over all keys, disconnects with large buffers. Compared with redis-server and
//! Valkey.
//!
//! ```text
//! cargo bench --bench stalls -- [--quick] [--only NAME,NAME] [--members 1000000] [--keys 1000000] [--mib 200]
//!     [--rounds 3] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey]
//!     [--threads N] [--freeze-trace MS] [--out DIR]
//! ```
//!
//! Two clients on separate threads and connections query all the time, one with a pause of 50 µs between PINGs, the
//! other likewise with GETs of keys on all shards. A gap is the time from one reply to the next. The idle gap is the
//! longest on the same server over as long a time: half a second before the operation begins, with the same data, and
//! the rest, five seconds at most, after everything is over. A gap ends at the latest when the reply of the operation
//! and its deferred work are done. A command over a whole collection is atomic, so the GET of a key on the same shard
//! waits for all of it; the verdict is on the PING. The median of the rounds is shown, with minimum and maximum in
//! brackets: other load on the machine only adds.
//!
//! A rented machine stalls now and then: one of its cores does nothing at all, not even interrupts, for some
//! milliseconds. So a thread of the highest priority watches each core: if it wakes late, the core stalled, which no
//! program caused. PING and GET are shown without the time for which any core stalled, and the verdict is on that; the
//! PING as measured is in the column `raw`. Without permission for such threads (as `chrt` reports) nothing is
//! subtracted. If other programs use the cores too, `nice -n -20` for the whole bench keeps them out, if the kernel
//! groups processes by session (`/proc/sys/kernel/sched_autogroup_enabled`) with -20 in `/proc/self/autogroup` of a
//! separate session: at normal priority a concurrent compiler has caused gaps of 76 ms on its own.
//!
//! With `--freeze-trace MS` the kernel's tracer, which must be switched on already, stops at the first PING gap of that
//! many milliseconds: its contents (`/sys/kernel/tracing/trace`) then show what ran meanwhile.

use std::fmt::Write;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod support;

use basalt_core::base::checksum::crc64;
use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{self, Client, Process};

/// Pause between a reply and the next query.
const PAUSE: Duration = Duration::from_micros(50);

/// Minimum observation of the idle server.
const IDLE_MIN: Duration = Duration::from_millis(500);

/// Maximum observation of the idle server after an operation.
const IDLE_AFTER_MAX: Duration = Duration::from_secs(5);

/// Observation after an operation, for each million of members or keys, or 200 MiB: freeing continues after the reply.
const AFTERMATH: Duration = Duration::from_millis(400);

/// Number of other keys in the keyspace, for the GETs.
const OTHER_KEYS: usize = 10_000;

/// Sizes of the test data.
#[derive(Clone, Copy)]
struct Sizes {
    members: usize,
    keys: usize,
    mib: usize,
}

impl Sizes {
    /// Returns the MiB of one string, at most what servers accept.
    fn string_mib(self) -> usize {
        self.mib.min(500)
    }

    /// Returns the factor of the sizes over the defaults, at least one.
    fn times_usual(self) -> u32 {
        let members = self.members.max(self.keys) / 1_000_000;
        members.max(self.mib / 200).max(1) as u32
    }
}

/// One operation, with its preparation.
struct Scenario {
    name: &'static str,
    prepare: fn(&mut Client, Sizes),
    run: fn(&Process, &mut Client, Sizes),
}

const fn stall(
    name: &'static str,
    prepare: fn(&mut Client, Sizes),
    run: fn(&Process, &mut Client, Sizes),
) -> Scenario {
    Scenario { name, prepare, run }
}

static SCENARIOS: &[Scenario] = &[
    stall("unlink-set", big_set, |_, client, _| {
        ask(client, "UNLINK big")
    }),
    stall("del-set", big_set, |_, client, _| ask(client, "DEL big")),
    stall("expire-set", big_set, |_, client, _| {
        ask(client, "PEXPIRE big 20")
    }),
    stall("set-over-set", big_set, |_, client, _| {
        ask(client, "SET big v")
    }),
    stall("rename-over-set", big_set, |_, client, _| {
        ask(client, "SET small v");
        ask(client, "RENAME small big");
    }),
    stall("store-over-set", big_set, |_, client, _| {
        ask(client, "SADD a 1 2 3");
        ask(client, "SUNIONSTORE big a");
    }),
    stall("del-hash", big_hash, |_, client, _| ask(client, "DEL big")),
    stall("del-zset", big_zset, |_, client, _| ask(client, "DEL big")),
    stall("del-stream", big_stream, |_, client, _| {
        ask(client, "DEL big")
    }),
    stall("del-hash-200k", hash_200k, |_, client, _| {
        ask(client, "DEL big")
    }),
    stall("unlink-list", big_list, |_, client, _| {
        ask(client, "UNLINK big")
    }),
    stall("del-list", big_list, |_, client, _| ask(client, "DEL big")),
    stall("set-over-list", big_list, |_, client, _| {
        ask(client, "SET big v")
    }),
    stall("ltrim-list", big_list, |_, client, _| {
        ask(client, "LTRIM big 0 0")
    }),
    stall("del-string", big_string, |_, client, _| {
        ask(client, "DEL big")
    }),
    stall("del-many-strings", many_strings, |_, client, _| {
        let names: Vec<String> = (0..64).map(|index| format!("big{index}")).collect();
        let mut words = vec!["DEL"];
        words.extend(names.iter().map(String::as_str));
        client.ask(&words);
    }),
    stall("flushall", many_keys, |_, client, _| {
        ask(client, "FLUSHALL")
    }),
    stall("flushall-async", many_keys, |_, client, _| {
        ask(client, "FLUSHALL ASYNC")
    }),
    stall("swapdb", many_keys, |_, client, _| {
        ask(client, "SWAPDB 0 1")
    }),
    stall("grow", nothing, |_, client, sizes| {
        load_keys(client, sizes.keys)
    }),
    stall("shrink", many_keys, |_, client, sizes| {
        client.load(sizes.keys - sizes.keys / 100, |index, out| {
            process::encode_into(out, &["DEL", &format!("key:{index}")]);
        });
    }),
    stall("keys-all", many_keys, |_, client, _| {
        drain(client, &["KEYS", "*"])
    }),
    stall("keys-none", many_keys, |_, client, _| {
        drain(client, &["KEYS", "*nothing*like*this*"])
    }),
    stall("leave-with-output", big_string, |server, _, sizes| {
        let mut leaving = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        let mut bytes = Vec::new();
        process::encode_into(&mut bytes, &["GET", "big"]);
        leaving.write_all(&bytes).expect("send");
        std::thread::sleep(Duration::from_millis(100 + sizes.mib as u64));
    }),
    stall("leave-with-list", big_list, |server, _, sizes| {
        let mut leaving = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        let mut bytes = Vec::new();
        // Only a part, so that building the reply does not dominate.
        process::encode_into(&mut bytes, &["LRANGE", "big", "0", "1000"]);
        for _ in 0..sizes.mib {
            leaving.write_all(&bytes).expect("send");
        }
        std::thread::sleep(Duration::from_millis(100 + sizes.mib as u64));
    }),
    stall("leave-with-query", nothing, |server, _, sizes| {
        let mut leaving = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        let len = sizes.string_mib() << 20;
        let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n");
        leaving.write_all(header.as_bytes()).expect("send");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..sizes.string_mib() - 1 {
            leaving.write_all(&piece).expect("send");
        }
    }),
    stall("leave-in-multi", nothing, |server, _, sizes| {
        let mut leaving = server.client();
        leaving.ask(&["MULTI"]);
        leaving.load(sizes.keys / 10, |index, out| {
            process::encode_into(out, &["SET", &format!("key:{index}"), "some value"]);
        });
    }),
    stall("set-large-string", nothing, |_, client, sizes| {
        client.ask(&["SET", "big", &text(sizes)]);
    }),
    stall("sunionstore", big_set, |_, client, _| {
        ask(client, "SUNIONSTORE copy big")
    }),
    stall("copy-set", big_set, |_, client, _| {
        ask(client, "COPY big copy")
    }),
    stall("copy-hash", big_hash, |_, client, _| {
        ask(client, "COPY big copy")
    }),
    stall("copy-zset", big_zset, |_, client, _| {
        ask(client, "COPY big copy")
    }),
    stall("copy-list", big_list, |_, client, _| {
        ask(client, "COPY big copy")
    }),
    stall("zunionstore", big_zset, |_, client, _| {
        ask(client, "ZUNIONSTORE copy 1 big")
    }),
    stall("sort-store", big_set, |_, client, _| {
        ask(client, "SORT big ALPHA STORE copy")
    }),
    stall("hgetall", big_hash, |_, client, _| {
        drain(client, &["HGETALL", "big"])
    }),
    stall("smembers", big_set, |_, client, _| {
        drain(client, &["SMEMBERS", "big"])
    }),
    stall("lrange", big_list, |_, client, _| {
        drain(client, &["LRANGE", "big", "0", "-1"])
    }),
    stall("append-to-large", big_string, |_, client, _| {
        ask(client, "APPEND big x")
    }),
    stall("append-large", nothing, |_, client, sizes| {
        ask(client, "SET big x");
        client.ask(&["APPEND", "big", &text(sizes)]);
    }),
    stall("setrange-large", nothing, |_, client, sizes| {
        client.ask(&["SETRANGE", "big", "1", &text(sizes)]);
    }),
    stall("append-large-to-large", big_string, |_, client, sizes| {
        client.ask(&["APPEND", "big", &text(sizes)]);
    }),
    stall("setrange-within-large", big_string, |_, client, sizes| {
        client.ask(&["SETRANGE", "big", "0", &text(sizes)]);
    }),
    stall("setbit-far", nothing, |_, client, sizes| {
        let offset = (sizes.string_mib() << 23) - 1;
        client.ask(&["SETBIT", "big", &offset.to_string(), "1"]);
    }),
    stall("mset-large", nothing, |_, client, sizes| {
        client.ask(&["MSET", "big", &text(sizes), "small", "x"]);
    }),
    stall("rpush-large", nothing, |_, client, sizes| {
        client.ask(&["RPUSH", "big", &text(sizes)]);
    }),
    stall("lset-large", nothing, |_, client, sizes| {
        ask(client, "RPUSH big a b c");
        client.ask(&["LSET", "big", "1", &text(sizes)]);
    }),
    stall("hset-large", nothing, |_, client, sizes| {
        client.ask(&["HSET", "big", "field", &text(sizes)]);
    }),
    stall("sadd-large", nothing, |_, client, sizes| {
        client.ask(&["SADD", "big", &text(sizes)]);
    }),
    stall("zadd-large", nothing, |_, client, sizes| {
        client.ask(&["ZADD", "big", "1", &text(sizes)]);
    }),
    stall("hset-large-field", nothing, |_, client, sizes| {
        client.ask(&["HSET", "big", &text(sizes), "value"]);
    }),
    stall("sismember-large", big_set, |_, client, sizes| {
        client.ask(&["SISMEMBER", "big", &text(sizes)]);
    }),
    stall("pfadd-large", nothing, |_, client, sizes| {
        client.ask(&["PFADD", "big", &text(sizes)]);
    }),
    stall("set-large-key", nothing, |_, client, sizes| {
        client.ask(&["SET", &text(sizes), "value"]);
    }),
    stall("lrange-large", large_list, |_, client, _| {
        drain(client, &["LRANGE", "big", "0", "-1"])
    }),
    stall("lmove-large", large_list, |_, client, _| {
        ask(client, "LMOVE big other LEFT LEFT")
    }),
    stall("hget-large", large_hash, |_, client, _| {
        ask(client, "HGET big field")
    }),
    stall("restore-large", nothing, |_, client, sizes| {
        let payload = payload(sizes);
        let header = format!(
            "*4\r\n$7\r\nRESTORE\r\n$3\r\nbig\r\n$1\r\n0\r\n${}\r\n",
            payload.len()
        );
        client.send(&[header.as_bytes(), &payload, b"\r\n"].concat());
        client.read();
    }),
    stall("exec-large", nothing, |_, client, sizes| {
        ask(client, "MULTI");
        client.ask(&["RPUSH", "big", &text(sizes)]);
        ask(client, "EXEC");
    }),
];

fn ask(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    client.ask(&words);
}

/// Sends one command and discards its reply.
fn drain(client: &mut Client, words: &[&str]) {
    let count: usize = client.ask(words).parse().expect("a count of elements");
    for _ in 0..count {
        client.read();
    }
}

fn nothing(_: &mut Client, _: Sizes) {}

/// Returns one large string.
fn text(sizes: Sizes) -> String {
    "x".repeat(sizes.string_mib() << 20)
}

/// Returns a list of one long element in DUMP format.
fn payload(sizes: Sizes) -> Vec<u8> {
    // A list of one node with one element, whose length is in 32 bits; then the version.
    let mut payload = vec![18, 1, 1, 0x80];
    payload.extend(((sizes.string_mib() << 20) as u32).to_be_bytes());
    payload.extend(text(sizes).bytes());
    payload.extend(10_u16.to_le_bytes());
    let checksum = crc64(&payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

fn large_list(client: &mut Client, sizes: Sizes) {
    client.ask(&["RPUSH", "big", &text(sizes)]);
}

fn large_hash(client: &mut Client, sizes: Sizes) {
    client.ask(&["HSET", "big", "field", &text(sizes)]);
}

/// Loads `count` elements, a hundred per command, each appended by `element`.
fn load_elements(
    client: &mut Client,
    command: &str,
    count: usize,
    element: impl Fn(usize, &mut Vec<String>),
) {
    const ELEMENTS: usize = 100;
    client.load(count.div_ceil(ELEMENTS), |index, out| {
        let mut words = vec![command.to_owned(), "big".to_owned()];
        for at in index * ELEMENTS..((index + 1) * ELEMENTS).min(count) {
            element(at, &mut words);
        }
        process::encode_into(out, &words);
    });
}

fn big_set(client: &mut Client, sizes: Sizes) {
    load_elements(client, "SADD", sizes.members, |index, words| {
        words.push(format!("member:{index}"));
    });
}

fn load_hash(client: &mut Client, count: usize) {
    load_elements(client, "HSET", count, |index, words| {
        words.extend([format!("field:{index}"), format!("value:{index}")]);
    });
}

fn big_hash(client: &mut Client, sizes: Sizes) {
    load_hash(client, sizes.members);
}

fn hash_200k(client: &mut Client, _: Sizes) {
    load_hash(client, 200_000);
}

fn big_zset(client: &mut Client, sizes: Sizes) {
    load_elements(client, "ZADD", sizes.members, |index, words| {
        words.extend([index.to_string(), format!("member:{index}")]);
    });
}

fn big_stream(client: &mut Client, sizes: Sizes) {
    client.load(sizes.members / 4, |index, out| {
        process::encode_into(out, &["XADD", "big", &format!("1-{}", index + 1), "f", "v"]);
    });
}

fn big_list(client: &mut Client, sizes: Sizes) {
    let value = "e".repeat(1000);
    load_elements(client, "RPUSH", sizes.mib << 10, |_, words| {
        words.push(value.clone());
    });
}

fn big_string(client: &mut Client, sizes: Sizes) {
    client.ask(&[
        "SETRANGE",
        "big",
        &((sizes.string_mib() << 20) - 1).to_string(),
        "x",
    ]);
}

fn many_strings(client: &mut Client, sizes: Sizes) {
    let value = "x".repeat((sizes.mib << 20) / 64);
    for index in 0..64 {
        client.ask(&["SET", &format!("big{index}"), &value]);
    }
}

fn load_keys(client: &mut Client, count: usize) {
    client.load(count, |index, out| {
        process::encode_into(out, &["SET", &format!("key:{index}"), "some value"]);
    });
}

fn many_keys(client: &mut Client, sizes: Sizes) {
    load_keys(client, sizes.keys);
}

/// A time span.
#[derive(Clone, Copy)]
struct Span {
    from: Instant,
    to: Instant,
}

impl Span {
    fn ms(self) -> f64 {
        (self.to - self.from).as_secs_f64() * 1e3
    }

    /// Returns its duration without the other spans, which are sorted by start.
    fn ms_without(self, others: &[Span]) -> f64 {
        let (mut out, mut seen_to) = (0.0, self.from);
        for other in others {
            let (from, to) = (other.from.max(seen_to), other.to.min(self.to));
            if from < to {
                out += Span { from, to }.ms();
                seen_to = to;
            }
        }
        self.ms() - out
    }
}

/// Threads that detect when a core stalls.
struct Witness {
    seen: Arc<Mutex<Vec<Span>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Sleep of such a thread, and the delay of its wake that counts as a stall.
    const SLEEP: Duration = Duration::from_micros(250);
    const LATE: Duration = Duration::from_micros(250);

    fn start() -> Witness {
        let seen = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..process::core_count())
            .map(|core| {
                let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
                std::thread::spawn(move || Witness::watch(core, &seen, &stop))
            })
            .collect();
        Witness {
            seen,
            stop,
            threads,
        }
    }

    fn watch(core: usize, seen: &Mutex<Vec<Span>>, stop: &AtomicBool) {
        let this = std::fs::read_link("/proc/thread-self").expect("the thread's number");
        let this = this.file_name().expect("a number").to_owned();
        process::pin(&core.to_string());
        let mut command = std::process::Command::new("chrt");
        let done = command.args(["-f", "-p", "50"]).arg(&this).output();
        if !done.is_ok_and(|output| output.status.success()) {
            return;
        }
        while !stop.load(Relaxed) {
            let from = Instant::now() + Witness::SLEEP;
            std::thread::sleep(Witness::SLEEP);
            let to = Instant::now();
            if to > from + Witness::LATE {
                seen.lock().expect("nobody panics").push(Span { from, to });
            }
        }
    }

    /// Returns the stalls of any core so far.
    fn seen(&self) -> Vec<Span> {
        let mut seen = self.seen.lock().expect("nobody panics").clone();
        seen.sort_by_key(|span| span.from);
        seen
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Stops the kernel's tracer at the first long gap.
struct Tracer {
    gap_ms: f64,
    still: Arc<Mutex<Vec<Span>>>,
}

impl Tracer {
    fn look(&self, gap: Span) {
        if gap.ms() < self.gap_ms {
            return;
        }
        let still = self.still.lock().expect("nobody panics").clone();
        if gap.ms_without(&still) >= self.gap_ms {
            let mark = format!("gap of {} ms", gap.ms());
            let _ = std::fs::write("/sys/kernel/tracing/trace_marker", mark);
            let _ = std::fs::write("/sys/kernel/tracing/tracing_on", "0");
        }
    }
}

/// A client that queries all the time, and the long times between its replies.
struct Probe {
    gaps: Arc<Mutex<Vec<Span>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Shorter gaps are not recorded.
    const GAP_MIN: Duration = Duration::from_micros(200);

    fn start(
        server: &Process,
        tracer: Option<Tracer>,
        question: impl Fn(usize, &mut Vec<u8>) + Send + 'static,
    ) -> Probe {
        let mut client = server.client();
        let gaps = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (noted, stopped) = (Arc::clone(&gaps), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut number = 0;
            let mut from = Instant::now();
            while !stopped.load(Relaxed) {
                bytes.clear();
                question(number, &mut bytes);
                client.send(&bytes);
                client.read();
                number += 1;
                let to = Instant::now();
                if to - from > Probe::GAP_MIN {
                    let noted: &Mutex<Vec<Span>> = &noted;
                    noted.lock().expect("nobody panics").push(Span { from, to });
                }
                if let Some(tracer) = &tracer {
                    tracer.look(Span { from, to });
                }
                from = to;
                std::thread::sleep(PAUSE);
            }
        });
        Probe {
            gaps,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the longest gap since the last call, in milliseconds, and the longest without the time that any core
    /// stalled.
    fn take(&self, witness: &Witness) -> (f64, f64) {
        let gaps = std::mem::take(&mut *self.gaps.lock().expect("nobody panics"));
        let still = witness.seen();
        let longest = |of: &dyn Fn(&Span) -> f64| gaps.iter().map(of).fold(0.0, f64::max);
        let net = |gap: &Span| gap.ms_without(&still);
        (longest(&|gap| gap.ms()), longest(&net))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Result of one round: the gaps of both clients, idle and during the operation, and the operation's duration.
#[derive(Clone, Copy)]
struct Round {
    idle_ms: f64,
    ping_ms: f64,
    ping_raw_ms: f64,
    get_ms: f64,
    took_ms: f64,
}

fn measure(
    binary: &Path,
    arguments: &[String],
    scenario: &Scenario,
    sizes: Sizes,
    freezes_at_ms: Option<f64>,
) -> Round {
    let all = format!("0-{}", process::core_count() - 1);
    let server = Process::start(scenario.name, binary, &all, arguments);
    let mut client = server.client();
    client.load(OTHER_KEYS, |index, out| {
        process::encode_into(out, &["SET", &format!("other:{index}"), "v"]);
    });
    (scenario.prepare)(&mut client, sizes);
    std::thread::sleep(Duration::from_millis(300));
    let witness = Witness::start();
    let tracer = freezes_at_ms.map(|gap_ms| Tracer {
        gap_ms,
        still: Arc::clone(&witness.seen),
    });
    let ping = Probe::start(&server, tracer, |_, out| {
        process::encode_into(out, &["PING"])
    });
    let get = Probe::start(&server, None, |number, out| {
        let key = format!("other:{}", number * 7919 % OTHER_KEYS);
        process::encode_into(out, &["GET", &key]);
    });
    std::thread::sleep(Duration::from_millis(100));
    let idle = || {
        let (_, ping) = ping.take(&witness);
        let (_, get) = get.take(&witness);
        ping.max(get)
    };
    idle();
    std::thread::sleep(IDLE_MIN);
    let idle_before_ms = idle();
    let started = Instant::now();
    (scenario.run)(&server, &mut client, sizes);
    let took = started.elapsed();
    let aftermath = AFTERMATH * sizes.times_usual();
    std::thread::sleep(aftermath);
    // A gap that has begun by now is over when this has its reply, and recorded a moment later.
    client.ask(&["PING"]);
    std::thread::sleep(Duration::from_millis(20));
    let (ping_raw_ms, ping_ms) = ping.take(&witness);
    let (_, get_ms) = get.take(&witness);
    let rest = (took + aftermath).saturating_sub(IDLE_MIN);
    std::thread::sleep(rest.min(IDLE_AFTER_MAX));
    Round {
        idle_ms: idle_before_ms.max(idle()),
        ping_ms,
        ping_raw_ms,
        get_ms,
        took_ms: took.as_secs_f64() * 1e3,
    }
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    peers::median(rounds.iter().map(of).collect())
}

fn least(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    rounds.iter().map(of).fold(f64::INFINITY, f64::min)
}

fn most(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    rounds.iter().map(of).fold(0.0, f64::max)
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let sizes = Sizes {
        members: arguments.sized("--members", 1_000_000, 200_000),
        keys: arguments.sized("--keys", 1_000_000, 200_000),
        mib: arguments.sized("--mib", 200, 50),
    };
    let rounds = arguments.sized("--rounds", 3, 1);
    let only = arguments.value("--only", "");
    let freezes_at_ms = arguments.value("--freeze-trace", "").parse().ok();
    let basalt = arguments.basalt();
    let others = peers::others(&arguments);
    let mut own = Vec::new();
    let threads = arguments.value("--threads", "");
    if !threads.is_empty() {
        own.extend(["--threads".to_owned(), threads]);
    }
    let is_wanted = |scenario: &&Scenario| {
        only.is_empty() || only.split(',').any(|name| scenario.name.contains(name))
    };

    let mut out = format!(
        "{}; {}; {} members, {} keys, {} MiB; worst gap in ms: median of {rounds} rounds (least-most).\n\n",
        process::machine(),
        process::date(),
        sizes.members,
        sizes.keys,
        sizes.mib
    );
    out += "| operation | idle | PING | raw | GET | took |";
    for Peer { name, .. } in &others {
        let _ = write!(
            out,
            " {name} idle | {name} PING | {name} raw | {name} took |"
        );
    }
    let _ = writeln!(out, " |\n|{}", "---|".repeat(7 + 4 * others.len()));
    for scenario in SCENARIOS.iter().filter(is_wanted) {
        let mut ours = Vec::new();
        let mut theirs: Vec<Vec<Round>> = others.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            ours.push(measure(&basalt, &own, scenario, sizes, freezes_at_ms));
            for (other, rounds) in others.iter().zip(&mut theirs) {
                rounds.push(measure(&other.binary, &[], scenario, sizes, None));
            }
        }
        let idle = median(&ours, |round| round.idle_ms);
        let gap = median(&ours, |round| round.ping_ms);
        let verdict = if gap <= f64::max(5.0, 1.5 * idle) {
            "ok"
        } else {
            "**stalls**"
        };
        let shown = |rounds: &[Round], of: fn(&Round) -> f64| {
            format!(
                "{:.1} ({:.1}-{:.1})",
                median(rounds, of),
                least(rounds, of),
                most(rounds, of)
            )
        };
        let mut row = format!(
            "| {} | {idle:.1} | {} | {} | {} | {:.0} |",
            scenario.name,
            shown(&ours, |round| round.ping_ms),
            shown(&ours, |round| round.ping_raw_ms),
            shown(&ours, |round| round.get_ms),
            median(&ours, |round| round.took_ms),
        );
        for rounds in &theirs {
            let _ = write!(
                row,
                " {} | {} | {} | {} |",
                shown(rounds, |round| round.idle_ms),
                shown(rounds, |round| round.ping_ms),
                shown(rounds, |round| round.ping_raw_ms),
                shown(rounds, |round| round.took_ms),
            );
        }
        let _ = write!(row, " {verdict} |");
        eprintln!("{row}");
        let _ = writeln!(out, "{row}");
    }
    peers::publish(&arguments, "stalls.md", &out);
}
