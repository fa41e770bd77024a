//! The age of evicted keys, by policy and server: the number of keys written since, as a share of the number of keys
//! that the cache holds.
//!
//! Servers report evictions by `evicted` events. A key's age counts from the command that created it, so a name that is
//! deleted and written again is new.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::arguments::Arguments;
use super::peers::{self, Peer};
use super::process::{self, Client, encode_into};
use basalt_testing::workload::{Shape, Sizes, Workload};

const LIMIT_BYTES: usize = 30_000_000;
const VALUE_BYTES: usize = 1_000;

/// Requests in flight at once.
const BATCH: usize = 16;

/// Names that are deleted and written again.
const NAMES: usize = 100;

const POLICIES: [&str; 5] = [
    "allkeys-lru",
    "allkeys-lfu",
    "volatile-lru",
    "volatile-lfu",
    "volatile-ttl",
];

/// The load on a full cache.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// New names only.
    New,
    /// New names, and a hundred names of which one is deleted and written again for every five new ones.
    Rewritten,
    /// A look-aside cache: a tenth of the requests write, and therefore delete.
    Aside,
}

const LOADS: [(Load, &str); 3] = [
    (Load::New, "new names"),
    (
        Load::Rewritten,
        "new names, and 100 that are deleted and written again",
    ),
    (Load::Aside, "cache-aside: Zipf 0.9, a tenth deletes"),
];

/// A server with its connections, and the creation times of its keys.
struct Observed {
    client: Client,
    events: Client,
    /// Time of each name's last creation, in names created.
    born: HashMap<String, usize>,
    clock: usize,
    /// Ages of evicted keys.
    ages: Vec<usize>,
}

impl Observed {
    /// Sends requests; returns for each whether it found something.
    fn ask(&mut self, requests: &[[&str; 2]]) -> Vec<bool> {
        let value = "v".repeat(VALUE_BYTES);
        let mut bytes = Vec::new();
        for [command, name] in requests {
            match *command {
                "SET" => encode_into(&mut bytes, &["SET", *name, value.as_str(), "EX", "36000"]),
                command => encode_into(&mut bytes, &[command, *name]),
            }
        }
        self.client.send(&bytes);
        let found = requests.iter().map(|_| !self.client.read().is_empty());
        let found = found.collect();
        for [command, name] in requests {
            if *command == "SET" {
                self.clock += 1;
                self.born.insert((*name).to_owned(), self.clock);
            }
        }
        self.hear();
        found
    }

    /// Reads the pending eviction events.
    fn hear(&mut self) {
        let mut bytes = Vec::new();
        encode_into(&mut bytes, &["PING"]);
        self.events.send(&bytes);
        loop {
            self.events.read();
            if self.events.read() == "pong" {
                self.events.read();
                return;
            }
            self.events.read();
            let name = self.events.read();
            if let Some(born) = self.born.remove(&name) {
                self.ages.push(self.clock - born);
            }
        }
    }
}

/// Measures the ages of evicted keys in a full cache, and the number of keys that it holds.
fn measure(peer: &Peer, policy: &str, load: Load, turnovers: usize) -> (Vec<usize>, usize) {
    let directives = [
        ("--maxmemory", LIMIT_BYTES.to_string()),
        ("--maxmemory-policy", policy.to_owned()),
    ];
    let directives: Vec<String> = directives
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
    let all = format!("0-{}", process::core_count() - 1);
    let server = peer.start(&all, &directives);
    let (mut client, mut events) = (server.client(), server.client());
    client.ask(&["CONFIG", "SET", "notify-keyspace-events", "Ee"]);
    events.ask(&["SUBSCRIBE", "__keyevent@0__:evicted"]);
    for _ in 0..3 {
        events.read();
    }
    let mut observed = Observed {
        client,
        events,
        born: HashMap::new(),
        clock: 0,
        ages: Vec::new(),
    };
    let (mut numbers, mut again) = (0.., 0);
    let mut write_new = |observed: &mut Observed| {
        let names = numbers.by_ref().take(BATCH).map(|at| format!("new:{at}"));
        let names: Vec<String> = names.collect();
        let requests: Vec<_> = names.iter().map(|name| ["SET", name.as_str()]).collect();
        observed.ask(&requests);
    };
    while observed.ages.len() < BATCH {
        write_new(&mut observed);
    }
    let keys = observed.client.ask(&["DBSIZE"]).parse();
    let keys: usize = keys.expect("a number");
    observed.ages.clear();
    let ranked = Workload {
        name: "",
        shape: Shape::Zipf,
        alpha: 0.9,
        sizes: Sizes::Fixed(VALUE_BYTES),
        ranks: 4 * keys,
        requests: usize::MAX,
        writes: 0.1,
        lives: 0.0,
        seed: 1,
    };
    let mut steps = ranked.steps();
    while observed.ages.len() < turnovers * keys {
        match load {
            Load::New => write_new(&mut observed),
            Load::Rewritten => {
                write_new(&mut observed);
                for _ in 0..BATCH / 5 {
                    again += 1;
                    let name = format!("again:{}", again % NAMES);
                    observed.ask(&[["DEL", &name], ["SET", &name]]);
                }
            }
            Load::Aside => {
                let batch = steps.by_ref().take(BATCH);
                let batch: Vec<(String, bool)> = batch
                    .map(|(key, writes)| (format!("rank:{key}"), writes))
                    .collect();
                let requests: Vec<_> = batch
                    .iter()
                    .map(|(name, writes)| [if *writes { "DEL" } else { "GET" }, name.as_str()])
                    .collect();
                let found = observed.ask(&requests);
                let mut missing: Vec<_> = batch
                    .iter()
                    .zip(found)
                    .filter(|((_, writes), found)| !writes && !found)
                    .map(|((name, _), _)| ["SET", name.as_str()])
                    .collect();
                missing.sort_unstable();
                missing.dedup();
                observed.ask(&missing);
            }
        }
    }
    (observed.ages, keys)
}

/// Measures and prints the ages.
pub(crate) fn report(arguments: &Arguments) {
    let servers = peers::all(arguments, &[]);
    let turnovers = arguments.sized("--turnovers", 3, 1);
    let mut out = peers::heading(&servers);
    let _ = writeln!(
        out,
        "\nAges of evicted keys in keys that came since, in percent of the keys that the cache holds ({LIMIT_BYTES} bytes, \
         values of {VALUE_BYTES}): of the youngest, and how many of a thousand had less than one percent.\n\n\
         | policy | load | server | evicted | youngest | under 1 %, of 1000 | median |\n|---|---|---|---|---|---|---|"
    );
    for policy in POLICIES {
        for (load, what) in LOADS {
            for server in &servers {
                let (mut ages, keys) = measure(server, policy, load, turnovers);
                ages.sort_unstable();
                let percent = |age: usize| 100.0 * age as f64 / keys as f64;
                let young = ages.partition_point(|age| percent(*age) < 1.0);
                let row = format!(
                    "| {policy} | {what} | {} | {} | {:.2} % | {:.2} | {:.0} % |",
                    server.name,
                    ages.len(),
                    percent(ages[0]),
                    1e3 * young as f64 / ages.len() as f64,
                    percent(ages[ages.len() / 2]),
                );
                eprintln!("{row}");
                let _ = writeln!(out, "{row}");
            }
        }
    }
    peers::publish(arguments, "evicted_ages.md", &out);
}
