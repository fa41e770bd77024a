//! The common commands compared with redis-server and Valkey: the server's CPU time per command, on one core, with 1,
//! 16 and 100 requests in flight on each connection.
//!
//! ```text
//! cargo bench --bench peers -- [--quick] [--cores 0] [--load-cores 1] [--rounds 15] [--ms 150] [--only WORD]
//!     [--pipelines 1,16,100] [--all] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey]
//!     [--out DIR]
//! ```
//!
//! GET and SET are measured with each pipeline, the others with 16; `--all` measures all with each.

use std::fmt::Write as _;

mod support;

use basalt_testing::random::Draw;
use support::arguments::Arguments;
use support::closed_loop::{CONNECTIONS, Measured, Scenario, ask, nothing};
use support::load;
use support::peers;
use support::process::{self, Client, Cost, encode_into};
use support::scenarios;

const KEYS: usize = 1_000_000;
const HASHES: usize = 100_000;
const MEMBERS: usize = 100_000;
const SETS: usize = 1_000;

/// The pipeline of commands measured with only one.
const PIPELINE: usize = 16;

/// Commands that are measured with every pipeline.
const EVERYWHERE: [&str; 2] = ["GET", "SET"];

fn fill_strings(client: &mut Client, scale: usize) {
    let value = "v".repeat(64);
    client.load(KEYS / scale, |index, out| {
        encode_into(out, &["SET", &load::key(index), &value]);
    });
}

fn fill_hashes(client: &mut Client, scale: usize) {
    client.load(HASHES / scale, |index, out| {
        let hash = format!("hash:{index}");
        let mut words = vec!["HSET".to_owned(), hash];
        for field in 0..10 {
            words.extend([format!("f{field}"), format!("value-{field:02}")]);
        }
        encode_into(out, &words);
    });
}

fn fill_zset(client: &mut Client, scale: usize) {
    client.load(MEMBERS / scale, |index, out| {
        encode_into(out, &["ZADD", "zset", &index.to_string(), &member(index)]);
    });
}

fn member(index: usize) -> String {
    format!("member:{index:09}")
}

fn any_key(draw: &mut Draw) -> String {
    load::key(draw.below(KEYS))
}

static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "GET",
        prepare: fill_strings,
        restore: nothing,
        request: |draw, out| ask(out, &["GET", &any_key(draw)]),
    },
    Scenario {
        name: "SET",
        prepare: fill_strings,
        restore: nothing,
        request: |draw, out| ask(out, &["SET", &any_key(draw), &"w".repeat(64)]),
    },
    Scenario {
        name: "INCR",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| ask(out, &["INCR", &format!("counter:{}", draw.below(HASHES))]),
    },
    Scenario {
        name: "MGET of 10",
        prepare: fill_strings,
        restore: nothing,
        request: |draw, out| {
            let mut words = vec!["MGET".to_owned()];
            words.extend((0..10).map(|_| any_key(draw)));
            encode_into(out, &words);
        },
    },
    scenarios::LPUSH,
    scenarios::RPOP,
    scenarios::LRANGE,
    Scenario {
        name: "HSET",
        prepare: fill_hashes,
        restore: nothing,
        request: |draw, out| {
            let hash = format!("hash:{}", draw.below(HASHES));
            let field = format!("f{}", draw.below(10));
            ask(out, &["HSET", &hash, &field, "value-99"]);
        },
    },
    Scenario {
        name: "HGET",
        prepare: fill_hashes,
        restore: nothing,
        request: |draw, out| {
            let hash = format!("hash:{}", draw.below(HASHES));
            ask(out, &["HGET", &hash, &format!("f{}", draw.below(10))]);
        },
    },
    Scenario {
        name: "SADD",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let set = format!("set:{}", draw.below(SETS));
            ask(out, &["SADD", &set, &member(draw.below(MEMBERS))]);
        },
    },
    Scenario {
        name: "ZADD",
        prepare: fill_zset,
        restore: nothing,
        request: |draw, out| {
            let score = draw.below(MEMBERS).to_string();
            ask(out, &["ZADD", "zset", &score, &member(draw.below(MEMBERS))]);
        },
    },
    Scenario {
        name: "ZSCORE",
        prepare: fill_zset,
        restore: nothing,
        request: |draw, out| ask(out, &["ZSCORE", "zset", &member(draw.below(MEMBERS))]),
    },
    Scenario {
        name: "ZRANGEBYSCORE of 10",
        prepare: fill_zset,
        restore: nothing,
        request: |draw, out| {
            let from = draw.below(MEMBERS).to_string();
            let words = ["ZRANGEBYSCORE", "zset", &from, "+inf", "LIMIT", "0", "10"];
            ask(out, &words);
        },
    },
    Scenario {
        name: "XADD MAXLEN ~",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let stream = format!("stream:{}", draw.below(100));
            let words = [
                "XADD", &stream, "MAXLEN", "~", "1000", "*", "field", "value",
            ];
            ask(out, &words);
        },
    },
    Scenario {
        name: "PFADD",
        prepare: nothing,
        restore: nothing,
        request: |draw, out| {
            let sketch = format!("sketch:{}", draw.below(100));
            ask(out, &["PFADD", &sketch, &member(draw.below(MEMBERS))]);
        },
    },
    Scenario {
        name: "EXPIRE",
        prepare: fill_strings,
        restore: nothing,
        request: |draw, out| {
            let seconds = (100_000 + draw.below(100_000)).to_string();
            ask(out, &["EXPIRE", &any_key(draw), &seconds]);
        },
    },
    Scenario {
        name: "EVAL of one GET",
        prepare: fill_strings,
        restore: nothing,
        request: |draw, out| {
            let words = ["EVAL", "return redis.call('GET', KEYS[1])", "1"];
            ask(out, &[&words[..], &[any_key(draw).as_str()]].concat());
        },
    },
];

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let quick = arguments.has("--quick");
    let only = arguments.value("--only", "");
    let pipelines: Vec<usize> = arguments.numbers("--pipelines", "1,16,100");
    let last = process::core_count() - 1;
    process::pin(&arguments.value("--load-cores", &last.to_string()));
    let servers = peers::all(&arguments, &[]);
    let measured = Measured::from(&arguments, quick);
    let mut report = peers::heading(&servers);
    let _ = write!(
        report,
        "\nCPU of the server a command, one core, {CONNECTIONS} connections, median of {} rounds.\n\n{}",
        measured.rounds,
        peers::table_head(&servers, "command", "us")
    );
    let is_wanted = |scenario: &Scenario, pipeline: usize| {
        let everywhere = arguments.has("--all") || EVERYWHERE.contains(&scenario.name);
        scenario.name.contains(&only) && (everywhere || pipeline == PIPELINE)
    };
    let all = pipelines
        .iter()
        .flat_map(|pipeline| SCENARIOS.iter().map(move |scenario| (scenario, *pipeline)));
    let wanted = all.filter(|(scenario, pipeline)| is_wanted(scenario, *pipeline));
    let running = measured.start(&servers);
    // The kernel does the same work for each of them.
    let mut own = format!(
        "\nOf that, what the server itself took and not the kernel, by the clock's ticks.\n\n{}",
        peers::table_head(&servers, "command", "own us")
    );
    measured.compare(&running, wanted, |scenario, pipeline, costs| {
        let name = format!("{}, P={pipeline}", scenario.name);
        let of = |figure: fn(&Cost) -> f64| costs.iter().map(figure).collect::<Vec<f64>>();
        report += &peers::table_row(&name, &of(|cost| cost.us), 3);
        own += &peers::table_row(&name, &of(|cost| cost.own_us), 3);
    });
    report += &own;
    peers::publish(&arguments, "peers.md", &report);
}
