//! Compares collections with redis-server's and Valkey's: the server's CPU time per command, and bytes per element.
//!
//! ```text
//! cargo bench --bench collections -- [--quick] [--cores 0] [--load-cores 1] [--rounds 15] [--ms 150] [--only WORD]
//!     [--speed | --memory] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR]
//! ```
//!
//! Speed: 50 connections, each with 16 requests in flight, in rounds over the servers in turn, pinned to one core; the
//! median of the rounds. Requests are generated before the clock starts, every sample has the same number of them, the
//! elements that they remove are restored before the next, and each connection continues as soon as it has its replies;
//! the relevant figure is the server's own CPU. Memory: the growth of `used_memory`, divided by the elements, payload
//! included.

use std::fmt::Write as _;
use std::time::Duration;

mod support;

use support::arguments::Arguments;
use support::closed_loop::{CONNECTIONS, Measured, Scenario, ask, nothing};
use support::peers::{self, Peer};
use support::process::{self, Client, Process};
use support::scenarios;

const PIPELINE: usize = 16;

/// A collection whose memory is measured.
struct Weight {
    name: &'static str,
    /// Final number of elements, or of small collections.
    count: usize,
    request: fn(usize, &mut Vec<u8>),
}

const HASHES: usize = 100_000;
const MEMBERS: usize = 1_000_000;

static SCENARIOS: &[Scenario] = &[
    scenarios::LPUSH,
    scenarios::RPOP,
    scenarios::LRANGE,
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
    let only = arguments.value("--only", "");
    let quick = arguments.has("--quick");
    let servers = peers::all(&arguments, &[]);
    let mut report = peers::heading(&servers);
    if !arguments.has("--memory") {
        process::pin(&arguments.value("--load-cores", &last.to_string()));
        let measured = Measured::from(&arguments, quick);
        let _ = write!(
            report,
            "\nCPU of the server a command, P={PIPELINE}, {CONNECTIONS} connections, median of {} rounds.\n\n{}",
            measured.rounds,
            peers::table_head(&servers, "command", "us")
        );
        let scenarios = SCENARIOS.iter().map(|scenario| (scenario, PIPELINE));
        let wanted = scenarios.filter(|(scenario, _)| scenario.name.contains(&only));
        let running = measured.start(&servers);
        measured.compare(&running, wanted, |scenario, _, costs| {
            let figures: Vec<f64> = costs.iter().map(|cost| cost.us).collect();
            report += &peers::table_row(scenario.name, &figures, 3);
        });
    }
    if !arguments.has("--speed") {
        report += &memory(&servers, &only);
    }
    peers::publish(&arguments, "collections.md", &report);
}

fn memory(servers: &[Peer], only: &str) -> String {
    let mut table =
        String::from("\nBytes of used_memory an element, or a collection, payload included.\n");
    table += peers::allocator_note(servers);
    table += "\n";
    table += &peers::table_head(servers, "what", "bytes");
    for weight in WEIGHTS {
        if !weight.name.contains(only) {
            continue;
        }
        let weights: Vec<f64> = servers.iter().map(|peer| weigh(peer, weight)).collect();
        table += &peers::table_row(weight.name, &weights, 1);
    }
    table
}

fn weigh(peer: &Peer, weight: &Weight) -> f64 {
    let all = format!("0-{}", process::core_count() - 1);
    let server = peer.start(&all, &[]);
    let mut client = server.client();
    // The loading connection's buffers exist before and after.
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
