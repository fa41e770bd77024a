//! The commands whose shared writes are counted. Each command uses another of a thousand keys, or a new one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Requests of one command. The number differs with each command of a connection.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Words of the requests that one command takes; MULTI takes several.
    pub(crate) requests: fn(connection: usize, number: usize) -> Vec<Vec<String>>,
}

const VALUE: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

/// The channel of PUBLISH's subscriber.
pub(crate) const CHANNEL: &str = "news";

/// Bytes of a value of `NEW_KEYS`.
pub(crate) const NEW_VALUE_BYTES: usize = 1000;

/// A key that was never used, with a value of [`NEW_VALUE_BYTES`].
pub(crate) const NEW_KEYS: Workload = Workload {
    name: "SET of new keys",
    requests: |_, _| one(&["SET", &new_key(), &"v".repeat(NEW_VALUE_BYTES)]),
};

/// A value with a deadline.
pub(crate) const WITH_DEADLINE: Workload = Workload {
    name: "SET EX",
    requests: |at, number| one(&["SET", &key("key", at, number), VALUE, "EX", "100"]),
};
/// A new key, and its deletion: two requests.
pub(crate) const DELETES: Workload = Workload {
    name: "SET and DEL",
    requests: |_, _| {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let key = new_key();
        vec![words(&["SET", &key, VALUE]), words(&["DEL", &key])]
    },
};

/// One key that all connections read.
pub(crate) const HOT_KEY: Workload = Workload {
    name: "GET of one key",
    requests: |_, _| one(&["GET", &key("key", 0, 0)]),
};

pub(crate) const ALL: &[Workload] = &[
    Workload {
        name: "GET",
        requests: |at, number| one(&["GET", &key("key", at, number)]),
    },
    Workload {
        name: "SET",
        requests: |at, number| one(&["SET", &key("key", at, number), VALUE]),
    },
    Workload {
        name: "INCR",
        requests: |at, number| one(&["INCR", &key("number", at, number)]),
    },
    Workload {
        name: "MGET of 10",
        requests: |at, number| {
            let keys = (0..10).map(|index| key("key", at, number * 10 + index));
            vec![std::iter::once("MGET".to_owned()).chain(keys).collect()]
        },
    },
    Workload {
        name: "MSET of 10",
        requests: |at, number| {
            let pairs =
                (0..10).flat_map(|index| [key("key", at, number * 10 + index), VALUE.to_owned()]);
            vec![std::iter::once("MSET".to_owned()).chain(pairs).collect()]
        },
    },
    Workload {
        name: "LPUSH",
        requests: |at, number| one(&["LPUSH", &key("list", at, number), VALUE]),
    },
    Workload {
        name: "HSET",
        requests: |at, number| one(&["HSET", &key("hash", at, number), "field", VALUE]),
    },
    Workload {
        name: "ZADD",
        requests: |at, number| {
            let score = number.to_string();
            one(&["ZADD", &key("sorted", at, number), &score, "member"])
        },
    },
    Workload {
        name: "PUBLISH to 1",
        requests: |_, _| one(&["PUBLISH", CHANNEL, VALUE]),
    },
    Workload {
        name: "MULTI of 4",
        requests: |at, number| {
            let sets = (0..4).map(|index| {
                let key = key("key", at, number * 4 + index);
                vec!["SET".to_owned(), key, VALUE.to_owned()]
            });
            let ends = [vec!["MULTI".to_owned()], vec!["EXEC".to_owned()]];
            let [begin, end] = ends;
            std::iter::once(begin).chain(sets).chain([end]).collect()
        },
    },
    Workload {
        name: "EVAL",
        requests: |at, number| {
            let script = "return redis.call('GET', KEYS[1])";
            one(&["EVAL", script, "1", &key("key", at, number)])
        },
    },
];

pub(crate) fn named(name: &str) -> &'static Workload {
    let found = ALL.iter().find(|workload| workload.name == name);
    found.unwrap_or_else(|| panic!("no workload {name}"))
}

fn one(words: &[&str]) -> Vec<Vec<String>> {
    vec![words.iter().map(|word| (*word).to_owned()).collect()]
}

/// A key of a thousand that spread over all shards.
fn key(kind: &str, connection: usize, number: usize) -> String {
    format!("{kind}:{:012}", (number * 7919 + connection * 331) % 1000)
}

/// Returns a key that no other call returns.
fn new_key() -> String {
    static USED: AtomicU64 = AtomicU64::new(0);
    format!("new:{:012}", USED.fetch_add(1, Relaxed))
}
