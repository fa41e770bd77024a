//! Compares collections with redis-server's: the server's CPU time a command, and bytes an element.
//!
//! ```text
//! cargo bench --bench collections -- [--quick] [--cores 0] [--load-cores 1] [--rounds 3] [--ms 600] [--only WORD]
//!     [--speed | --memory] [--basalt PATH] [--redis PATH] [--out DIR]
//! ```
//!
//! Speed: 50 connections, each with 16 requests under way, in rounds that go through the servers in turn, both pinned
//! to one core; the median of the rounds. Requests are made before the clock starts, every sample has the same number of
//! them, what they take away is given back before the next, and each connection goes on as soon as it has its replies;
//! the figure that counts is the server's own. Memory: what `used_memory` grew by, divided by the elements, payload
//! included.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

mod support;

use support::arguments::Arguments;
use support::process::{self, Client, Process};

const CONNECTIONS: usize = 50;
const PIPELINE: usize = 16;

/// A command to measure: how a server is prepared for it, and its requests.
struct Scenario {
    name: &'static str,
    /// Makes what the requests meet, a part of it only if the scale is above one; each scenario can run alone.
    prepare: fn(&mut Client, usize),
    /// Gives back, outside the clock, what so many requests have taken.
    restore: fn(&mut Client, usize),
    request: fn(&mut Draw, &mut Vec<u8>),
}

/// A collection to weigh.
struct Weight {
    name: &'static str,
    /// How many elements, or small collections, there are in the end.
    count: usize,
    request: fn(usize, &mut Vec<u8>),
}

/// Random numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}

fn ask(out: &mut Vec<u8>, words: &[&str]) {
    process::encode_into(out, words);
}

fn nothing(_: &mut Client, _: usize) {}

const LISTS: usize = 1_000;
const HASHES: usize = 100_000;
const MEMBERS: usize = 1_000_000;

static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "LPUSH",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let list = format!("list:{}", draw.below(LISTS));
            ask(out, &["LPUSH", &list, "element:00000001"]);
        },
    },
    Scenario {
        name: "RPOP",
        // Which lists are popped is drawn, so each has some to spare: none is ever empty.
        prepare: |client, scale| fill_lists(client, 2_000_000 / scale),
        restore: fill_lists,
        request: |draw, out| {
            let list = format!("pop:{}", draw.below(LISTS));
            ask(out, &["RPOP", &list]);
        },
    },
    Scenario {
        name: "LRANGE of 10",
        prepare: |client, _| {
            client.load(LISTS * 100, |index, out| {
                let list = format!("range:{}", index % LISTS);
                ask(out, &["RPUSH", &list, "element:00000001"]);
            });
        },
        restore: nothing,
        request: |draw, out| {
            let list = format!("range:{}", draw.below(LISTS));
            ask(out, &["LRANGE", &list, "0", "9"]);
        },
    },
    Scenario {
        name: "HSET",
        prepare: fill_hashes,
        restore: nothing,
        request: |draw, out| {
            let (hash, field) = (draw.below(HASHES), draw.below(10));
            ask(
                out,
                &[
                    "HSET",
                    &format!("hash:{hash}"),
                    &format!("field{field}"),
                    "value-02",
                ],
            );
        },
    },
    Scenario {
        name: "HSET of 1M fields",
        prepare: fill_large_hash,
        restore: nothing,
        request: |draw, out| {
            let field = format!("field:{:010}", draw.below(MEMBERS));
            ask(out, &["HSET", "large-hash", &field, "value-02"]);
        },
    },
    Scenario {
        name: "HGETALL of 10",
        prepare: fill_hashes,
        restore: nothing,
        request: |draw, out| ask(out, &["HGETALL", &format!("hash:{}", draw.below(HASHES))]),
    },
    Scenario {
        name: "SADD",
        prepare: fill_sets,
        restore: nothing,
        request: |draw, out| {
            let member = format!("member:{:09}", draw.below(MEMBERS));
            ask(out, &["SADD", &format!("set:{}", draw.below(100)), &member]);
        },
    },
    Scenario {
        name: "SISMEMBER",
        prepare: fill_sets,
        restore: nothing,
        request: |draw, out| {
            let member = format!("member:{:09}", draw.below(MEMBERS));
            ask(
                out,
                &["SISMEMBER", &format!("set:{}", draw.below(100)), &member],
            );
        },
    },
    Scenario {
        name: "ZADD of 1,000",
        prepare: |client, _| {
            client.load(100_000, |index, out| {
                let (zset, member) = (index % 100, index / 100);
                add_scored(
                    out,
                    &format!("zset:{zset}"),
                    index * 7_919 % 1_000_003,
                    member,
                );
            });
        },
        restore: nothing,
        request: |draw, out| {
            let (zset, score, member) = (draw.below(100), draw.below(MEMBERS), draw.below(1_000));
            add_scored(out, &format!("zset:{zset}"), score, member);
        },
    },
    Scenario {
        name: "ZADD of 1M",
        prepare: fill_large_zset,
        restore: nothing,
        request: |draw, out| {
            let (score, member) = (draw.below(MEMBERS), draw.below(MEMBERS));
            add_scored(out, "large-zset", score, member);
        },
    },
    Scenario {
        name: "ZRANGE of 10, of 1M",
        prepare: fill_large_zset,
        restore: nothing,
        request: |draw, out| {
            let first = draw.below(MEMBERS - 10);
            ask(
                out,
                &[
                    "ZRANGE",
                    "large-zset",
                    &first.to_string(),
                    &(first + 9).to_string(),
                ],
            );
        },
    },
    Scenario {
        name: "ZRANK of 1M",
        prepare: fill_large_zset,
        restore: nothing,
        request: |draw, out| {
            let member = format!("member:{:09}", draw.below(MEMBERS));
            ask(out, &["ZRANK", "large-zset", &member]);
        },
    },
    Scenario {
        name: "XADD",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let stream = format!("stream:{}", draw.below(100));
            ask(
                out,
                &[
                    "XADD", &stream, "MAXLEN", "~", "10000", "*", "field", "value-02",
                ],
            );
        },
    },
    Scenario {
        name: "XREADGROUP",
        prepare: |client, scale| {
            client.load(100, |index, out| {
                let stream = format!("group:{index}");
                ask(out, &["XGROUP", "CREATE", &stream, "g", "0", "MKSTREAM"]);
            });
            fill_streams(client, 1_000_000 / scale);
        },
        restore: fill_streams,
        request: |draw, out| {
            let stream = format!("group:{}", draw.below(100));
            ask(
                out,
                &[
                    "XREADGROUP",
                    "GROUP",
                    "g",
                    "c",
                    "COUNT",
                    "1",
                    "NOACK",
                    "STREAMS",
                    &stream,
                    ">",
                ],
            );
        },
    },
    Scenario {
        name: "PFADD",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let element = draw.below(MEMBERS).to_string();
            ask(
                out,
                &["PFADD", &format!("hll:{}", draw.below(100)), &element],
            );
        },
    },
    Scenario {
        name: "GEOSEARCH of about 10",
        prepare: |client, _| {
            client.load(100_000, |index, out| {
                let longitude = (index * 7_919 % 100_003) as f64 / 100_003.0 * 10.0;
                let latitude = 40.0 + (index * 104_729 % 100_019) as f64 / 100_019.0 * 10.0;
                ask(
                    out,
                    &[
                        "GEOADD",
                        "places",
                        &longitude.to_string(),
                        &latitude.to_string(),
                        &format!("place{index}"),
                    ],
                );
            });
        },
        restore: nothing,
        request: |draw, out| {
            let longitude = 1.0 + draw.below(8_000) as f64 / 1_000.0;
            let latitude = 41.0 + draw.below(8_000) as f64 / 1_000.0;
            ask(
                out,
                &[
                    "GEOSEARCH",
                    "places",
                    "FROMLONLAT",
                    &longitude.to_string(),
                    &latitude.to_string(),
                    "BYRADIUS",
                    "5",
                    "km",
                ],
            );
        },
    },
    Scenario {
        name: "SORT of 100",
        prepare: |client, _| {
            client.load(10_000, |index, out| {
                let (list, number) = (index % 100, index * 7_919 % 10_007);
                ask(
                    out,
                    &["RPUSH", &format!("sort:{list}"), &number.to_string()],
                );
            });
        },
        restore: nothing,
        request: |draw, out| {
            ask(out, &["SORT", &format!("sort:{}", draw.below(100))]);
        },
    },
];

fn fill_lists(client: &mut Client, elements: usize) {
    client.load(elements, |index, out| {
        let list = format!("pop:{}", index % LISTS);
        ask(out, &["LPUSH", &list, "element:00000001"]);
    });
}

fn fill_streams(client: &mut Client, entries: usize) {
    client.load(entries, |index, out| {
        let stream = format!("group:{}", index % 100);
        ask(out, &["XADD", &stream, "*", "field", "value-02"]);
    });
}

fn exists(client: &mut Client, key: &str) -> bool {
    client.ask(&["EXISTS", key]).contains('1')
}

fn fill_hashes(client: &mut Client, scale: usize) {
    if exists(client, "hash:0") {
        return;
    }
    client.load(HASHES * 10 / scale, |index, out| {
        let (hash, field) = (index % HASHES, index / HASHES);
        ask(
            out,
            &[
                "HSET",
                &format!("hash:{hash}"),
                &format!("field{field}"),
                "value-01",
            ],
        );
    });
}

fn fill_large_hash(client: &mut Client, scale: usize) {
    client.load(MEMBERS / scale, |index, out| {
        let field = format!("field:{index:010}");
        ask(out, &["HSET", "large-hash", &field, "value-01"]);
    });
}

fn fill_sets(client: &mut Client, scale: usize) {
    if exists(client, "set:0") {
        return;
    }
    client.load(MEMBERS / scale, |index, out| {
        let member = format!("member:{index:09}");
        ask(out, &["SADD", &format!("set:{}", index % 100), &member]);
    });
}

fn fill_large_zset(client: &mut Client, scale: usize) {
    if exists(client, "large-zset") {
        return;
    }
    client.load(MEMBERS / scale, |index, out| {
        add_scored(out, "large-zset", index * 7_919 % 1_000_003, index);
    });
}

fn add_scored(out: &mut Vec<u8>, zset: &str, score: usize, member: usize) {
    ask(
        out,
        &[
            "ZADD",
            zset,
            &score.to_string(),
            &format!("member:{member:09}"),
        ],
    );
}

static WEIGHTS: &[Weight] = &[
    Weight {
        name: "zset of 1M, members of 16 bytes",
        count: MEMBERS,
        request: |index, out| add_scored(out, "z", index * 7_919 % 1_000_003, index),
    },
    Weight {
        name: "hash of 1M, fields of 16 and values of 8 bytes",
        count: MEMBERS,
        request: |index, out| {
            ask(
                out,
                &["HSET", "h", &format!("field:{index:010}"), "value-01"],
            );
        },
    },
    Weight {
        name: "set of 1M, members of 16 bytes",
        count: MEMBERS,
        request: |index, out| ask(out, &["SADD", "s", &format!("member:{index:09}")]),
    },
    Weight {
        name: "list of 1M, elements of 16 bytes",
        count: MEMBERS,
        request: |index, out| ask(out, &["RPUSH", "l", &format!("element:{index:08}")]),
    },
    Weight {
        name: "100k hashes of 10 (6 and 8 bytes), a hash",
        count: 100_000,
        request: |index, out| {
            let hash = format!("hash:{index:08}");
            let fields: Vec<String> = (0..10).map(|field| format!("field{field}")).collect();
            let mut words = vec!["HSET", hash.as_str()];
            for field in &fields {
                words.extend([field.as_str(), "value-01"]);
            }
            ask(out, &words);
        },
    },
    Weight {
        name: "100k sets of 20 ints, a set",
        count: 100_000,
        request: |index, out| {
            let members: Vec<String> = (0..20)
                .map(|number| ((index * 31 + number * 17) % 30_000).to_string())
                .collect();
            let set = format!("set:{index:08}");
            let mut words = vec!["SADD", set.as_str()];
            words.extend(members.iter().map(String::as_str));
            ask(out, &words);
        },
    },
    Weight {
        name: "100k lists of 10 (16 bytes), a list",
        count: 100_000,
        request: |index, out| {
            let list = format!("list:{index:08}");
            let mut words = vec!["RPUSH", list.as_str()];
            words.extend(["element:00000001"; 10]);
            ask(out, &words);
        },
    },
    Weight {
        name: "100k zsets of 10 (16 bytes), a zset",
        count: 100_000,
        request: |index, out| {
            let zset = format!("zset:{index:08}");
            let pairs: Vec<(String, String)> = (0..10)
                .map(|member| {
                    (
                        (index * 7 + member).to_string(),
                        format!("member:{member:09}"),
                    )
                })
                .collect();
            let mut words = vec!["ZADD", zset.as_str()];
            for (score, member) in &pairs {
                words.extend([score.as_str(), member.as_str()]);
            }
            ask(out, &words);
        },
    },
];

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let last = process::core_count() - 1;
    let basalt = arguments.basalt();
    let redis = arguments.redis();
    let only = arguments.value("--only", "");
    let quick = arguments.has("--quick");
    let mut report = format!("{}; {}.\n", process::machine(), process::date());
    if !arguments.has("--memory") {
        let cores = arguments.value("--cores", "0");
        process::pin(&arguments.value("--load-cores", &last.to_string()));
        let rounds = arguments.value("--rounds", if quick { "1" } else { "3" });
        let millis = arguments.value("--ms", if quick { "200" } else { "600" });
        let servers = [
            Process::start("redis", &redis, &cores, &[]),
            Process::start(
                "basalt",
                &basalt,
                &cores,
                &["--threads".to_owned(), "1".to_owned()],
            ),
        ];
        report += &speed(
            &servers,
            &only,
            rounds.parse().expect("a number"),
            Duration::from_millis(millis.parse().expect("a number")),
            if quick { 10 } else { 1 },
        );
    }
    if !arguments.has("--speed") {
        report += &memory([&redis, &basalt], &only);
    }
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        println!("{report}");
    }
    let dir = arguments.value(
        "--out",
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench"),
    );
    std::fs::create_dir_all(&dir).expect("the output folder");
    std::fs::write(Path::new(&dir).join("collections.md"), report).expect("write the table");
}

fn speed(
    servers: &[Process; 2],
    only: &str,
    rounds: usize,
    time: Duration,
    scale: usize,
) -> String {
    let mut table = format!(
        "\nCPU of the server a command, P={PIPELINE}, {CONNECTIONS} connections, median of {rounds} rounds.\n\n\
         | command | redis us | basalt us | ratio |\n|---|---|---|---|\n"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut loads = [0, 1].map(|index| Load::open(&runtime, &servers[index]));
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    for scenario in SCENARIOS {
        if !scenario.name.contains(only) {
            continue;
        }
        for server in servers {
            (scenario.prepare)(&mut server.client(), scale);
        }
        let pool = Rc::new(Pool::of(scenario, &mut draw, scale));
        for load in &mut loads {
            load.at = 0;
        }
        // What redis-server does in the time is what each server does in every sample, so that both meet the same
        // requests and their collections grow alike.
        let batches = loads[0].run(&runtime, &pool, Until::Time(Instant::now() + time));
        loads[1].run(&runtime, &pool, Until::Batches(batches));
        let restore =
            |server: &Process| (scenario.restore)(&mut server.client(), batches * PIPELINE);
        servers.iter().for_each(restore);
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for index in order {
                let before = process::cpu_ns(servers[index].pid());
                loads[index].run(&runtime, &pool, Until::Batches(batches));
                let cpu_ns = process::cpu_ns(servers[index].pid()) - before;
                samples[index].push(cpu_ns as f64 / 1_000.0 / (batches * PIPELINE) as f64);
                restore(&servers[index]);
            }
        }
        let [redis, basalt] = samples.map(|mut values| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        });
        let row = format!(
            "| {} | {redis:.3} | {basalt:.3} | {:.2} |",
            scenario.name,
            basalt / redis
        );
        eprintln!("{row}");
        let _ = writeln!(table, "{row}");
    }
    table
}

/// Requests made before the measurement, so that it is the server that is kept busy and not the one who asks.
struct Pool {
    batches: Vec<Vec<u8>>,
}

impl Pool {
    fn of(scenario: &Scenario, draw: &mut Draw, scale: usize) -> Pool {
        let batches = (0..40_000 / scale)
            .map(|_| {
                let mut batch = Vec::new();
                for _ in 0..PIPELINE {
                    (scenario.request)(draw, &mut batch);
                }
                batch
            })
            .collect();
        Pool { batches }
    }
}

/// When a run ends.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Batches(usize),
}

/// The connections to a server, each with one batch under way while a run is on, as clients have it that do not know
/// of each other.
struct Load {
    connections: Vec<Connection>,
    /// How many batches were sent for this scenario.
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

    /// How many batches were run.
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
                            connection.read_replies(PIPELINE).await;
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
    /// Reads so many whole replies, which are all that is under way.
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

/// The end of the RESP2 element at a position, if it is there whole, and how many elements it announces.
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

fn memory(binaries: [&Path; 2], only: &str) -> String {
    let mut table = String::from(
        "\nBytes of used_memory an element, or a collection, payload included.\n\n\
         | what | redis | basalt | ratio |\n|---|---|---|---|\n",
    );
    for weight in WEIGHTS {
        if !weight.name.contains(only) {
            continue;
        }
        let [redis, basalt] = binaries.map(|binary| weigh(binary, weight));
        let row = format!(
            "| {} | {redis:.1} | {basalt:.1} | {:.2} |",
            weight.name,
            basalt / redis
        );
        eprintln!("{row}");
        let _ = writeln!(table, "{row}");
    }
    table
}

fn weigh(binary: &Path, weight: &Weight) -> f64 {
    let all = format!("0-{}", process::core_count() - 1);
    let server = Process::start("weighed", binary, &all, &[]);
    let mut client = server.client();
    // The loading connection's buffers are there before and after.
    client.load(1000, |_, out| process::encode_into(out, &["PING"]));
    let used = |server: &Process| {
        std::thread::sleep(Duration::from_millis(300));
        server
            .client()
            .info("memory", "used_memory")
            .expect("used_memory")
    };
    let before = used(&server);
    client.load(weight.count, |index, out| (weight.request)(index, out));
    (used(&server) - before) / weight.count as f64
}
