//! How long others wait while one client does something large: deletes and overwrites huge values, flushes, grows and
//! shrinks the table, walks over all keys, goes away with large buffers. Beside it the same on redis-server.
//!
//! ```text
//! cargo bench --bench stalls -- [--quick] [--only NAME,NAME] [--members 1000000] [--keys 1000000] [--mib 200]
//!     [--rounds 3] [--basalt PATH] [--redis PATH] [--no-redis] [--threads N] [--out DIR]
//! ```
//!
//! Two clients on threads and connections of their own ask all the time, one with a pause of 50 µs between PINGs, the
//! other the same with GETs of keys that lie on all shards. A gap is the time from one reply to the next. The idle gap
//! is the longest on the same server, with the same data, over as long a time (half a second at least) before the
//! operation begins. A gap ends at the latest when the reply of the operation, and what it left to be done behind it, are
//! through. A command over a whole collection is atomic, so the GET of a key that lies with it waits for all of it; the
//! verdict is on the PING. Of several rounds the median is shown, and the least in brackets: what the machine does
//! besides only adds.

use std::fmt::Write;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::process::{self, Client, Process};

/// Between a reply and the next question.
const PAUSE: Duration = Duration::from_micros(50);

/// The shortest look at the idle server.
const IDLE_MIN: Duration = Duration::from_millis(500);

/// How long an operation's aftermath is watched: freeing goes on behind the reply.
const AFTERMATH: Duration = Duration::from_millis(400);

/// What the keyspace holds besides, so that there is something to GET.
const OTHER_KEYS: usize = 10_000;

/// How large things are.
#[derive(Clone, Copy)]
struct Sizes {
    members: usize,
    keys: usize,
    mib: usize,
}

/// One operation: what stands before it, and itself.
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
        // A part, so that gathering it is no matter of its own.
        process::encode_into(&mut bytes, &["LRANGE", "big", "0", "1000"]);
        for _ in 0..sizes.mib {
            leaving.write_all(&bytes).expect("send");
        }
        std::thread::sleep(Duration::from_millis(100 + sizes.mib as u64));
    }),
    stall("leave-with-query", nothing, |server, _, sizes| {
        let mut leaving = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        let len = sizes.mib << 20;
        let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n");
        leaving.write_all(header.as_bytes()).expect("send");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..sizes.mib - 1 {
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
        let value = "x".repeat(sizes.mib << 20);
        client.ask(&["SET", "big", &value]);
    }),
    stall("sunionstore", big_set, |_, client, _| {
        ask(client, "SUNIONSTORE copy big")
    }),
    stall("copy-set", big_set, |_, client, _| {
        ask(client, "COPY big copy")
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
    stall("append-large", big_string, |_, client, _| {
        ask(client, "APPEND big x")
    }),
];

fn ask(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    client.ask(&words);
}

/// One command whose reply is read and thrown away.
fn drain(client: &mut Client, words: &[&str]) {
    let count: usize = client.ask(words).parse().expect("a count of elements");
    for _ in 0..count {
        client.read();
    }
}

fn nothing(_: &mut Client, _: Sizes) {}

/// Loads `count` elements, a hundred a command, each by what `element` appends.
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
    client.ask(&["SETRANGE", "big", &((sizes.mib << 20) - 1).to_string(), "x"]);
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

/// A client that asks all the time, and the longest time from one of its replies to the next.
struct Probe {
    longest_ns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    fn start(server: &Process, question: impl Fn(usize, &mut Vec<u8>) + Send + 'static) -> Probe {
        let mut client = server.client();
        let longest_ns = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (longest, stopped) = (Arc::clone(&longest_ns), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut number = 0;
            let mut before = Instant::now();
            while !stopped.load(Relaxed) {
                bytes.clear();
                question(number, &mut bytes);
                client.send(&bytes);
                client.read();
                number += 1;
                let now = Instant::now();
                longest.fetch_max((now - before).as_nanos() as u64, Relaxed);
                before = now;
                std::thread::sleep(PAUSE);
            }
        });
        Probe {
            longest_ns,
            stop,
            thread: Some(thread),
        }
    }

    /// The longest gap since the last call, in milliseconds.
    fn take_ms(&self) -> f64 {
        self.longest_ns.swap(0, Relaxed) as f64 / 1e6
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

/// Of one round: the gaps of both clients, idle and meanwhile, and how long the operation itself took.
#[derive(Clone, Copy)]
struct Round {
    idle_ms: f64,
    ping_ms: f64,
    get_ms: f64,
    took_ms: f64,
}

fn measure(binary: &Path, arguments: &[String], scenario: &Scenario, sizes: Sizes) -> Round {
    let all = format!("0-{}", process::core_count() - 1);
    let server = Process::start(scenario.name, binary, &all, arguments);
    let mut client = server.client();
    client.load(OTHER_KEYS, |index, out| {
        process::encode_into(out, &["SET", &format!("other:{index}"), "v"]);
    });
    (scenario.prepare)(&mut client, sizes);
    std::thread::sleep(Duration::from_millis(300));
    let ping = Probe::start(&server, |_, out| process::encode_into(out, &["PING"]));
    let get = Probe::start(&server, |number, out| {
        let key = format!("other:{}", number * 7919 % OTHER_KEYS);
        process::encode_into(out, &["GET", &key]);
    });
    std::thread::sleep(Duration::from_millis(100));
    ping.take_ms();
    get.take_ms();
    std::thread::sleep(IDLE_MIN);
    let idle_ms = ping.take_ms().max(get.take_ms());
    let started = Instant::now();
    (scenario.run)(&server, &mut client, sizes);
    let took_ms = started.elapsed().as_secs_f64() * 1e3;
    std::thread::sleep(AFTERMATH);
    Round {
        idle_ms,
        ping_ms: ping.take_ms(),
        get_ms: get.take_ms(),
        took_ms,
    }
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn least(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    rounds.iter().map(of).fold(f64::INFINITY, f64::min)
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let number = |name: &str, default: usize, quick: usize| -> usize {
        let default = if arguments.has("--quick") {
            quick
        } else {
            default
        };
        arguments.number(name, &default.to_string())
    };
    let sizes = Sizes {
        members: number("--members", 1_000_000, 200_000),
        keys: number("--keys", 1_000_000, 200_000),
        mib: number("--mib", 200, 50),
    };
    let rounds = number("--rounds", 3, 1);
    let only = arguments.value("--only", "");
    let basalt = arguments.basalt();
    let redis = arguments.redis();
    let mut own = Vec::new();
    let threads = arguments.value("--threads", "");
    if !threads.is_empty() {
        own.extend(["--threads".to_owned(), threads]);
    }
    let is_wanted = |scenario: &&Scenario| {
        only.is_empty() || only.split(',').any(|name| scenario.name.contains(name))
    };

    let mut out = format!(
        "{}; {}; {} members, {} keys, {} MiB; worst gap in ms: median of {rounds} rounds (least).\n\n",
        process::machine(),
        process::date(),
        sizes.members,
        sizes.keys,
        sizes.mib
    );
    out += "| operation | idle | PING | GET | took | redis idle | redis PING | redis took | |\n";
    out += "|---|---|---|---|---|---|---|---|---|\n";
    for scenario in SCENARIOS.iter().filter(is_wanted) {
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..rounds {
            ours.push(measure(&basalt, &own, scenario, sizes));
            if !arguments.has("--no-redis") {
                theirs.push(measure(&redis, &[], scenario, sizes));
            }
        }
        let idle = median(&ours, |round| round.idle_ms);
        let gap = median(&ours, |round| round.ping_ms);
        let verdict = if gap <= f64::max(5.0, 1.5 * idle) {
            "ok"
        } else {
            "**stalls**"
        };
        let shown = |rounds: &[Round], of: fn(&Round) -> f64| match rounds {
            [] => String::from("-"),
            rounds => format!("{:.1} ({:.1})", median(rounds, of), least(rounds, of)),
        };
        let row = format!(
            "| {} | {idle:.1} | {} | {} | {:.0} | {} | {} | {} | {verdict} |",
            scenario.name,
            shown(&ours, |round| round.ping_ms),
            shown(&ours, |round| round.get_ms),
            median(&ours, |round| round.took_ms),
            shown(&theirs, |round| round.idle_ms),
            shown(&theirs, |round| round.ping_ms),
            shown(&theirs, |round| round.took_ms),
        );
        eprintln!("{row}");
        let _ = writeln!(out, "{row}");
    }
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        println!("{out}");
    }
    let dir = arguments.value(
        "--out",
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench"),
    );
    std::fs::create_dir_all(&dir).expect("the output folder");
    std::fs::write(Path::new(&dir).join("stalls.md"), out).expect("write the table");
}
