//! A storm: every kind of client at once against one server, for `STORM_SECONDS` (default 5; 600 is the long
//! run), with eight threads (`STORM_THREADS`), and checkers of invariants that hold whatever happens.
//!
//! ```text
//! storm      state that all clients share: the end, the counts, the faults, clients that make no progress
//! client     a connection that knows exactly which replies it must receive
//! accounts   amounts that move between accounts on many shards; their sum stays
//! groups     keys that are written together are read together
//! queues     each element of a list, each entry of a stream, is received by one consumer, once
//! streams    clients that wait for two streams are served from each; readers see every entry in order
//! events     subscribers receive a connection's changes in its order, each once
//! caching    a cached value is invalidated before its client can learn of the change otherwise
//! weather    endless scripts, kills, disconnects, CONFIG SET, and commands that visit all shards
//! ```
//!
//! Requests may be refused (`BUSY`) or killed at any moment; a request with such a reply has had no effect,
//! and the checkers rely on it. `STORM_BINARY` names another build of this server, `BASALT_TEST_SERVER`
//! redis-server. The run ends when the time is over and each checker has checked enough; a client that makes
//! no progress is a fault.

use basalt_testing::{support, wire};

mod accounts;
mod caching;
mod client;
mod events;
mod groups;
mod queues;
mod storm;
mod streams;
mod weather;

use storm::{Storm, Worker};

use support::{Options, Server, variable};

/// A part of the storm.
struct Part {
    name: &'static str,
    workers: fn(&Storm) -> Vec<Worker>,
    /// Checks the final state when nothing is under way any more.
    judge: fn(&Storm),
    /// Least counts of checks, however short the storm was.
    floors: &'static [(&'static str, u64)],
}

macro_rules! part {
    ($name:ident, $judge:expr) => {
        Part {
            name: stringify!($name),
            workers: $name::workers,
            judge: $judge,
            floors: $name::FLOORS,
        }
    };
}

const PARTS: &[Part] = &[
    part!(accounts, accounts::judge),
    part!(groups, |_| {}),
    part!(queues, queues::judge),
    part!(streams, |_| {}),
    part!(events, events::judge),
    part!(caching, caching::judge),
    part!(weather, |_| {}),
];

/// Returns the parts, except for those in `STORM_WITHOUT`: to look for other faults while one is known.
fn parts() -> Vec<&'static Part> {
    let without = std::env::var("STORM_WITHOUT").unwrap_or_default();
    let is_wanted = |part: &&Part| !without.split(',').any(|name| name == part.name);
    PARTS.iter().filter(is_wanted).collect()
}

fn server() -> Server {
    let options = Options::shards(64)
        .threads(variable("STORM_THREADS", 8) as usize)
        .with("busy-reply-threshold", "150")
        .with("notify-keyspace-events", "KEA")
        .with("client-output-buffer-limit", "pubsub 0 0 0");
    Server::start(&options.binary(std::env::var_os("STORM_BINARY")))
}

#[test]
fn a_storm_leaves_everything_in_order() {
    let server = server();
    let seed = variable("STORM_SEED", 1);
    let storm = Storm::new(&server, seed);
    let parts = parts();
    let workers = parts.iter().flat_map(|part| (part.workers)(&storm));
    let floors = parts.iter().flat_map(|part| part.floors).copied();
    storm.rage(
        workers.collect(),
        variable("STORM_SECONDS", 5),
        &floors.collect::<Vec<_>>(),
    );
    if storm.is_faultless() {
        parts.iter().for_each(|part| (part.judge)(&storm));
    }
    eprintln!("{}", storm.summary());
    storm.assert_faultless();
}
