//! Pushes to several connections, compared with redis-server's: messages, and invalidations to caching
//! clients.
//!
//! One command is sent at a time, and then each connection is read until nothing more can come. Each
//! connection's replies and pushes are compared in order, but separately: their relative order differs where
//! a server sends its pushes for a whole batch at once.

use std::fmt::Write;

use crate::support::Draw;
use crate::support::{Options, Oracle, Server};
use crate::wire::{Raw, Value, encode_into, split};
use crate::{SHARD_COUNTS, number};

/// Connections of a stream: two that cache, one that only writes, one that others redirect to.
const CONNECTIONS: usize = 4;

/// The one that others redirect to.
const TARGET: usize = 3;

struct Side {
    raws: Vec<Raw>,
    target_id: i64,
}

/// Replies and pushes of one command on a connection.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    replies: Vec<String>,
    pushes: Vec<String>,
}

impl Side {
    fn new(port: u16) -> Side {
        let mut raws: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::connect(port)).collect();
        raws[0].call("FLUSHALL");
        for raw in &mut raws {
            raw.call("HELLO 3");
        }
        let target_id = raws[TARGET].call("CLIENT ID").integer();
        Side { raws, target_id }
    }

    /// Sends a command, or several lines, on one connection; returns what each connection received.
    fn play(&mut self, at: usize, line: &str) -> Vec<Seen> {
        let line = line.replace("TARGET", &self.target_id.to_string());
        let mut seen: Vec<Seen> = (0..CONNECTIONS).map(|_| Seen::default()).collect();
        self.raws[at].send(format!("{line}\n").as_bytes());
        for line in line.lines() {
            // A subscription is confirmed by a push for each name, and by no reply: the reply to the next
            // request ends it.
            if !line.contains("SUBSCRIBE") {
                self.next(at, &mut seen[at]);
            }
        }
        for (at, seen) in seen.iter_mut().enumerate() {
            for _ in 0..2 {
                self.raws[at].send(b"ECHO over\r\n");
                self.next(at, seen);
                let over = seen.replies.pop();
                assert_eq!(over.as_deref(), Some("\"over\""), "> {line}");
            }
        }
        if line.contains('\n') {
            // Within one step the order of pushes does not matter: the reply comes first in any case.
            for seen in &mut seen {
                seen.pushes.sort();
            }
        }
        if line.starts_with("PUBLISH") {
            // Patterns have no order, there or here.
            for seen in &mut seen {
                let names = |push: &String| !push.contains("\"pmessage\"");
                let by_name = seen.pushes.iter().take_while(|push| names(push)).count();
                seen.pushes[by_name..].sort();
            }
        }
        seen
    }

    /// Reads pushes until a reply comes.
    fn next(&mut self, at: usize, seen: &mut Seen) {
        loop {
            let value = self.raws[at].read();
            let text = value
                .show()
                .replace(&format!("(integer) {}", self.target_id), "(integer) TARGET");
            if let Value::Push(_) = value {
                seen.pushes.push(text);
            } else {
                seen.replies.push(text);
                return;
            }
        }
    }
}

fn line(draw: &mut Draw, at: usize) -> String {
    let key = |draw: &mut Draw| ["a:1", "a:2", "b:1", "b:2", "c"][draw.below(5)];
    let channel = |draw: &mut Draw| ["x", "xy", "z"][draw.below(3)];
    let (one, two) = (key(draw), key(draw));
    let caches = at < 2;
    match draw.below(if caches { 35 } else { 24 }) {
        0..=3 => format!("SET {one} {}", draw.below(9)),
        4 => format!("MSET {one} 1 {two} 2"),
        5 => format!("DEL {one} {two}"),
        6 => format!("RENAME {one} {two}"),
        7 => format!("COPY {one} {two} REPLACE"),
        8 => format!("EXPIRE {one} {}", [0, 100][draw.below(2)]),
        9 => format!("INCR {one}"),
        10 => format!("SET {one} 1 GET"),
        11 => ["FLUSHALL", "FLUSHDB"][draw.below(2)].to_owned(),
        12 => format!("APPEND {one} 1"),
        13 => format!("SETEX {one} 100 1"),
        14 => format!("PUBLISH {} hello", channel(draw)),
        15 => format!("SUBSCRIBE {}", channel(draw)),
        16 => format!("PSUBSCRIBE {}*", channel(draw)),
        17 => format!("UNSUBSCRIBE {}", channel(draw)),
        18 => format!("PUNSUBSCRIBE {}*", channel(draw)),
        19 => format!("SETRANGE {one} 3 x"),
        20 => format!("PERSIST {one}"),
        21 => format!("GETDEL {one}"),
        22 => format!("SETNX {one} 1"),
        23 => "UNLINK c".to_owned(),
        24..=28 => format!("GET {one}"),
        29 => format!("MGET {one} {two}"),
        30 => format!("EXISTS {one}"),
        31 => {
            let options = [
                "",
                "",
                "NOLOOP",
                "BCAST",
                "BCAST NOLOOP",
                "BCAST PREFIX a: PREFIX b:",
                "OPTIN",
                "OPTOUT",
                "OPTIN NOLOOP",
                "REDIRECT TARGET",
                "BCAST REDIRECT TARGET",
                "BCAST PREFIX a",
                "PREFIX a",
                "BCAST PREFIX a PREFIX a:",
                "REDIRECT 99999999",
            ];
            format!("CLIENT TRACKING on {}", options[draw.below(options.len())])
        }
        32 => {
            let lines = [
                "CLIENT TRACKING off",
                "CLIENT CACHING yes",
                "CLIENT CACHING no",
            ];
            lines[draw.below(lines.len())].to_owned()
        }
        _ => {
            let lines = [
                "CLIENT TRACKINGINFO",
                "CLIENT GETREDIR",
                "STRLEN c",
                "TYPE a:1",
            ];
            lines[draw.below(lines.len())].to_owned()
        }
    }
}

/// Returns the steps of one stream, each with its connection. Now and then a step is a transaction.
fn stream(seed: u64) -> Vec<(usize, String)> {
    let mut draw = Draw::new(seed);
    let mut lines = vec![(0, "CLIENT TRACKING on".to_owned())];
    for _ in 0..60 {
        let at = draw.below(CONNECTIONS);
        if draw.below(12) > 0 {
            lines.push((at, line(&mut draw, at)));
            continue;
        }
        let mut inside = vec!["MULTI".to_owned()];
        for _ in 0..2 + draw.below(3) {
            let line = line(&mut draw, 0);
            // In a transaction, Redis 7.0 puts a client's messages to itself, and the push that invalidates
            // all keys, into the middle of EXEC's reply.
            let is_out = ["SUBSCRIBE", "CLIENT", "PUBLISH", "FLUSH"]
                .iter()
                .any(|word| line.contains(word));
            if !is_out {
                inside.push(line);
            }
        }
        inside.push("EXEC".to_owned());
        if draw.below(2) == 0 {
            inside.insert(0, "CLIENT CACHING yes".to_owned());
        }
        lines.push((at, inside.join("\n")));
    }
    lines
}

#[test]
fn every_connection_is_pushed_what_redis_server_pushes() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let servers = SHARD_COUNTS.map(|shards| Server::start(&Options::shards(shards)));
    let first = number("DIFF_FIRST", 1);
    let mut failures = String::new();
    for seed in first..first + number("DIFF_SEEDS", 200) / 2 {
        let server = &servers[(seed % SHARD_COUNTS.len() as u64) as usize];
        let (mut ours, mut theirs) = (Side::new(server.port), Side::new(oracle.port));
        let mut played = String::new();
        for (at, line) in stream(seed) {
            let _ = writeln!(played, "  {at}> {line}");
            let (our, their) = (ours.play(at, &line), theirs.play(at, &line));
            if our != their {
                let _ = writeln!(
                    failures,
                    "seed {seed}:\n{played}ours  {our:#?}\nredis {their:#?}"
                );
                break;
            }
        }
        if failures.len() > 20_000 {
            break;
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// Subscriptions of each listener, after its HELLO.
const LISTENERS: [(&str, &[&str]); 4] = [
    (
        "HELLO 2",
        &[
            "SUBSCRIBE a",
            "SUBSCRIBE b",
            "SUBSCRIBE c",
            "SUBSCRIBE over",
        ],
    ),
    (
        "HELLO 3",
        &[
            "SUBSCRIBE a",
            "SUBSCRIBE c",
            "SSUBSCRIBE a",
            "SUBSCRIBE __keyspace@0__:k",
            "SUBSCRIBE over",
        ],
    ),
    (
        "HELLO 2",
        &["SSUBSCRIBE b", "SUBSCRIBE a", "SUBSCRIBE over"],
    ),
    (
        "HELLO 2",
        &[
            "SUBSCRIBE __keyevent@0__:set",
            "SUBSCRIBE b",
            "SUBSCRIBE over",
        ],
    ),
];

/// Returns a pipeline that mostly publishes. Messages of one channel follow each other often, some are long,
/// and some come after writes with events, in transactions, or in scripts.
fn publishing(draw: &mut Draw) -> Vec<String> {
    let mut lines = Vec::new();
    for number in 0..5 + draw.below(30) {
        let channel = ["a", "a", "a", "b", "nobody"][draw.below(5)];
        let command = ["PUBLISH", "PUBLISH", "PUBLISH", "SPUBLISH"][draw.below(4)];
        match draw.below(16) {
            0 => lines.push(format!("SET k {number}")),
            1 => lines.push("PUBSUB NUMSUB a b nobody".to_owned()),
            2 => lines.push(format!(
                "EVAL \"redis.call('set','k',1); return redis.call('publish','{channel}','{number}')\" 0"
            )),
            3 => lines.extend([
                "MULTI".to_owned(),
                format!("PUBLISH {channel} in{number}"),
                "INCR n".to_owned(),
                format!("{command} b in{number}"),
                "EXEC".to_owned(),
            ]),
            4 => lines.push("PUBLISH a".to_owned()),
            5 => {
                let length = [100, 5_000, 16_000, 40_000][draw.below(4)];
                lines.push(format!("{command} {channel} {}", "x".repeat(length)));
            }
            // Redis 7.0 puts a client's messages to itself in a transaction into the middle of EXEC's reply:
            // the client does not subscribe to channels that transactions publish to.
            6 => lines.extend(["SUBSCRIBE c".to_owned(), "PUBLISH c mine".to_owned()]),
            7 => lines.extend(["PUBLISH c mine".to_owned(), "UNSUBSCRIBE c".to_owned()]),
            _ => {
                for part in 0..1 + draw.below(5) {
                    lines.push(format!("{command} {channel} {number}.{part}"));
                }
            }
        }
    }
    lines
}

/// Returns what a server's publisher and listeners receive for some pipelines, before each of which a
/// listener with a pattern subscription connects or disconnects. The publisher subscribes itself now and
/// then; its replies and messages are separate.
fn published(port: u16, pipelines: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut publisher = Raw::connect(port);
    for line in [
        "FLUSHALL",
        "CONFIG SET notify-keyspace-events KEA",
        "HELLO 3",
    ] {
        publisher.call(line);
    }
    let mut listeners: Vec<Raw> = LISTENERS.map(|_| Raw::connect(port)).into();
    for (raw, (hello, lines)) in listeners.iter_mut().zip(LISTENERS) {
        raw.call(hello);
        for line in lines {
            raw.call(line);
        }
    }
    let mut seen = vec![Vec::new(); LISTENERS.len() + 2];
    for (number, pipeline) in pipelines.iter().enumerate() {
        if number > 0 {
            let change = ["PSUBSCRIBE a* b*", "PUNSUBSCRIBE a* b*"][number % 2];
            listeners[0].send(format!("{change}\r\n").as_bytes());
            (0..2).for_each(|_| drop(listeners[0].read()));
        }
        let mut bytes = Vec::new();
        for line in pipeline {
            encode_into(&mut bytes, &split(line));
        }
        for _ in 0..2 {
            // Its own messages may come behind its replies.
            encode_into(&mut bytes, &["ECHO", "over"]);
            publisher.send(&bytes);
            bytes.clear();
            loop {
                let value = publisher.read();
                match (value.show(), &value) {
                    (text, _) if text == "\"over\"" => break,
                    (text, Value::Push(_)) if text.contains("message\"") => seen[1].push(text),
                    (text, _) => seen[0].push(text),
                }
            }
        }
        publisher.call("PUBLISH over x");
        for (raw, seen) in listeners.iter_mut().zip(&mut seen[2..]) {
            loop {
                let push = raw.read().show();
                if push.contains("\"over\"") {
                    break;
                }
                seen.push(push);
            }
        }
    }
    seen
}

#[test]
fn what_a_pipeline_publishes_reaches_each_listener_in_its_order() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let servers = SHARD_COUNTS.map(|shards| Server::start(&Options::shards(shards)));
    let first = number("DIFF_FIRST", 1);
    for seed in first..first + number("DIFF_SEEDS", 200) / 10 {
        let mut draw = Draw::new(seed);
        let pipelines: Vec<Vec<String>> = (0..8).map(|_| publishing(&mut draw)).collect();
        let theirs = published(oracle.port, &pipelines);
        let heard: usize = theirs[2..].iter().map(Vec::len).sum();
        assert!(heard > 100, "seed {seed}: {heard} pushes");
        let ours = published(servers[seed as usize % SHARD_COUNTS.len()].port, &pipelines);
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let differs =
                (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at));
            if let Some(differs) = differs {
                let (our, their) = (ours.get(differs), theirs.get(differs));
                panic!(
                    "seed {seed}, {at}, push {differs}: ours {our:?}, redis {their:?}\n{pipelines:#?}"
                );
            }
        }
    }
}
