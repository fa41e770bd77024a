//! Slots that move from one node to another atomically (CLUSTER MIGRATESLOTS), under load, with everything
//! that can go wrong on the way, and compared with Valkey 9.

pub(crate) mod broken;
mod databases;
mod figures;
mod imported;
mod large;
mod left;
mod marked;
mod replicas;
mod signing_in;
mod silent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use crate::clustered::{TIMEOUT, agree, id, options, run, unite};
use crate::support::{self, Options, Oracle, Server, check, eventually, free_port};
use crate::wire::{Raw, Value};

/// The slot of keys with this tag, which is among the first node's.
const SLOT: &str = "3300";
const TAG: &str = "{b}";

fn start() -> Server {
    Server::start(&options())
}

fn pair(options: &Options) -> (Server, Server) {
    let (one, two) = (start(), Server::start(options));
    unite(&[&one, &two]);
    (one, two)
}

fn migrate(from: &Server, to: &Server) {
    let line = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}",
        id(to)
    );
    check(&mut from.raw(), &line, "OK");
}

/// Returns a field of the latest move that a node knows.
fn latest(server: &Server, field: &str) -> String {
    let reply = server.raw().call("CLUSTER GETSLOTMIGRATIONS");
    let Some(first) = reply.items().first() else {
        return String::new();
    };
    let mut fields = first.items().chunks(2);
    let found = fields.find(|pair| pair[0].text() == field);
    found.map_or(String::new(), |pair| {
        pair[1].show().trim_matches('"').to_owned()
    })
}

/// Returns a field of INFO, as a number.
fn figure(server: &Server, name: &str) -> u64 {
    let value = crate::replicated::info(&mut server.raw(), name);
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name}: {value:?}"))
}

fn is_over(server: &Server) -> bool {
    ["success", "failed", "cancelled"].contains(&latest(server, "state").as_str())
}

fn await_end(server: &Server, state: &str) {
    eventually("the move ends", || is_over(server));
    let message = latest(server, "message");
    assert_eq!(latest(server, "state"), state, "{message}");
}

/// Moves the slot. Valkey does not wait for a target that still deletes keys which the slot had there before.
fn move_over(from: &Server, to: &Server) {
    loop {
        migrate(from, to);
        eventually("the move ends", || is_over(from));
        if !latest(from, "message").contains("TRYAGAIN") {
            return await_end(from, "success");
        }
    }
}

fn count(server: &Server) -> i64 {
    let line = format!("CLUSTER COUNTKEYSINSLOT {SLOT}");
    server.raw().call(&line).integer()
}

fn owns(server: &Server) -> bool {
    let reply = server.raw().command(&["GET", TAG]);
    !reply.show().contains("MOVED")
}

/// Keys that are there before anything moves.
fn fill(server: &Server, keys: usize) {
    let mut client = server.raw();
    for chunk in (0..keys).collect::<Vec<_>>().chunks(500) {
        let lines: Vec<String> = chunk
            .iter()
            .map(|number| format!("SET {TAG}k{number} {number}"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(
            client
                .pipeline(&lines)
                .iter()
                .all(|reply| reply.text() == "OK")
        );
    }
}

fn check_filled(server: &Server, keys: usize) {
    let mut client = server.raw();
    for chunk in (0..keys).collect::<Vec<_>>().chunks(500) {
        let lines: Vec<String> = chunk
            .iter()
            .map(|number| format!("GET {TAG}k{number}"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for (reply, number) in client.pipeline(&lines).iter().zip(chunk) {
            assert_eq!(reply.text(), number.to_string());
        }
    }
}

/// Values of all types, and the commands that read them.
const WRITES: &[&str] = &[
    "RPUSH {b}list a b c",
    "ZADD {b}zset 1.5 a 2 b",
    "HSET {b}hash f v g w",
    "SADD {b}set a b 3",
    "SADD {b}ints 1 2 3",
    "XADD {b}stream 1-1 f v",
    "XGROUP CREATE {b}stream g 0",
    "SET {b}timed v PXAT 99999999999999",
    "SETBIT {b}bits 7 1",
    "PFADD {b}hll a b c",
];
const READS: &[&str] = &[
    "LRANGE {b}list 0 -1",
    "ZRANGE {b}zset 0 -1 WITHSCORES",
    "HGET {b}hash g",
    "SCARD {b}set",
    "SMISMEMBER {b}ints 1 2 3 4",
    "XRANGE {b}stream - +",
    "XINFO GROUPS {b}stream",
    "PEXPIRETIME {b}timed",
    "GETBIT {b}bits 7",
    "PFCOUNT {b}hll",
];

fn all(server: &Server, lines: &[&str]) -> Vec<String> {
    let mut client = server.raw();
    let replies = lines.iter().map(|line| client.call(line).show());
    replies.collect()
}

/// Starts clients that write to a node until they are stopped.
fn start_writers(node: &Server, count: usize, stops: &Arc<AtomicBool>) -> Vec<JoinHandle<Writer>> {
    let start = |number| {
        let (stops, client) = (Arc::clone(stops), node.raw());
        thread::spawn(move || {
            let mut writer = Writer {
                number,
                client,
                done: 0,
            };
            while !stops.load(Relaxed) {
                writer.step();
            }
            writer
        })
    };
    (0..count).map(start).collect()
}

#[test]
fn a_slot_moves_with_values_of_all_types_and_back() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    assert!(
        all(&one, WRITES)
            .iter()
            .all(|reply| !reply.contains("error"))
    );
    let before = all(&one, READS);
    assert_eq!(one.raw().call("CLUSTER GETSLOTMIGRATIONS").items().len(), 0);
    for (from, to) in [(&one, &two), (&two, &one)] {
        migrate(from, to);
        await_end(from, "success");
        await_end(to, "success");
        assert_eq!(all(to, READS), before);
        assert!(owns(to) && !owns(from));
        eventually("the keys go", || count(from) == 0);
        for (server, operation) in [(from, "EXPORT"), (to, "IMPORT")] {
            for (field, value) in [
                ("operation", operation),
                ("slot_ranges", "3300-3300"),
                ("source_node", &id(from)),
                ("target_node", &id(to)),
                ("message", ""),
            ] {
                assert_eq!(latest(server, field), value, "{field}");
            }
        }
    }
    agree(&[&one, &two]);
}

#[test]
fn what_can_not_be_moved_is_refused_as_by_valkey() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    let (mine, other) = (id(&one), id(&two));
    let mut client = one.raw();
    let zero = "0".repeat(40);
    for (rest, error) in [
        (format!("FOO 1 1 NODE {other}"), "syntax error"),
        (
            format!("SLOTSRANGE 1 NODE {other} x"),
            "Invalid or out of range slot",
        ),
        (
            format!("SLOTSRANGE 1 a NODE {other}"),
            "Invalid or out of range slot",
        ),
        (
            format!("SLOTSRANGE 5 1 NODE {other}"),
            "Start slot number 5 is greater than end slot number 1.",
        ),
        (
            format!("SLOTSRANGE 1 3 2 5 NODE {other}"),
            "Slot range 2-5 overlaps with previous range 1-3.",
        ),
        (
            format!("SLOTSRANGE 1 3 NODE {mine}"),
            "Target node can not be this node.",
        ),
        (
            "SLOTSRANGE 1 3 NODE abc".to_owned(),
            "Invalid node name: abc",
        ),
        (
            format!("SLOTSRANGE 1 3 NODE {zero}"),
            "Unknown node name: 0000000000000000000000000000000000000000",
        ),
        (
            format!("SLOTSRANGE 9000 9001 NODE {other}"),
            "Slots are not served by this node.",
        ),
        (
            format!("SLOTSRANGE 8190 8193 NODE {other}"),
            "Requested slots span multiple shards",
        ),
        (
            format!("SLOTSRANGE 1 3 NODE {other} SLOTSRANGE 3 3 NODE {other}"),
            "Slot ranges in migrations overlap",
        ),
        (
            format!("SLOTSRANGE NODE {other} SLOTSRANGE 1 1"),
            "No slot ranges specified",
        ),
    ] {
        let reply = client.call(&format!("CLUSTER MIGRATESLOTS {rest}")).text();
        assert_eq!(reply, format!("ERR {error}"), "{rest}");
    }
    let line = "CLUSTER CANCELSLOTMIGRATIONS";
    assert_eq!(client.call(line).text(), "ERR No migrations ongoing");
    for (rest, error) in [
        (
            "ACK".to_owned(),
            "CLUSTER SYNCSLOTS ACK should only be used by slot migration clients",
        ),
        ("FOO".to_owned(), "syntax error"),
        (
            format!("ESTABLISH SOURCE {other} NAME {mine} SLOTSRANGE 1 1"),
            "Target node does not agree about current slot ownership",
        ),
        (
            format!("ESTABLISH SOURCE {mine} NAME {mine} SLOTSRANGE 9000 9000"),
            "Source node is target node itself",
        ),
        (
            format!("ESTABLISH SOURCE abc NAME {mine} SLOTSRANGE 1 1"),
            "syntax error",
        ),
    ] {
        let reply = client.call(&format!("CLUSTER SYNCSLOTS {rest}")).text();
        assert_eq!(reply, format!("ERR {error}"), "{rest}");
    }
}

#[test]
fn a_connection_over_which_slots_come_is_bound_to_its_move() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    let establish = |name: &str, slot: &str| {
        let name = name.repeat(40);
        format!(
            "CLUSTER SYNCSLOTS ESTABLISH SOURCE {} NAME {name} SLOTSRANGE {slot} {slot}",
            id(&one)
        )
    };
    let mut source = two.raw();
    check(&mut source, &establish("a", SLOT), "OK");
    let taken = two.raw().call(&establish("b", SLOT)).text();
    assert_eq!(taken, format!("ERR I am already importing slot {SLOT}."));
    let ask = |word: &str| {
        format!(
            "*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n${}\r\n{word}\r\n",
            word.len()
        )
    };
    // Requests of the source get no reply, and change nothing unless they belong to the move.
    source.send(b"CLIENT REPLY ON\r\nSET {b}k 1\r\nGET {b}k\r\n");
    source.send(ask("ACK").as_bytes());
    assert!(source.read().show().contains("\"ACK\""));
    assert_eq!(latest(&two, "state"), "receiving-snapshot");
    assert_eq!(count(&two), 1);
    assert_eq!(two.raw().call("DBSIZE").integer(), 0);
    // A word out of turn ends it.
    source.send(ask("FAILOVER-GRANTED").as_bytes());
    assert!(source.is_closed());
    eventually("what had come goes", || count(&two) == 0);
    assert_eq!(latest(&two, "state"), "failed");
    assert!(owns(&one) && !owns(&two));
    // Nor are slots taken over one connection twice, or by a source that does not have them.
    let mut source = two.raw();
    check(&mut source, &establish("c", SLOT), "OK");
    source.send(establish("d", "1").as_bytes());
    source.send(b"\r\n");
    assert!(source.is_closed());
    eventually("it has failed", || latest(&two, "state") == "failed");
    assert_eq!(latest(&two, "name"), "c".repeat(40));
}

/// A client that changes keys of its own, and knows their expected values.
struct Writer {
    number: usize,
    client: Raw,
    done: usize,
}

impl Writer {
    /// Runs commands where the slot is.
    fn run(&mut self, words: &[&str]) -> Value {
        for _ in 0..100 {
            let reply = self.client.command(words);
            let text = match reply {
                Value::Error(_) => reply.text(),
                _ => return reply,
            };
            match text
                .strip_prefix("MOVED ")
                .and_then(|place| place.rsplit_once(':'))
            {
                Some((_, port)) => self.client = Raw::connect(port.parse().expect("a port")),
                None => panic!("{words:?}: {text}"),
            }
        }
        panic!("{words:?} is sent on and on")
    }

    /// Runs a transaction at the node where its first command is queued.
    fn run_together(&mut self, commands: &[Vec<&str>]) {
        for _ in 0..100 {
            assert_eq!(self.client.call("MULTI").text(), "OK");
            let queued = commands
                .iter()
                .map(|words| self.client.command(words).text());
            let queued: Vec<String> = queued.collect();
            let ran = self.client.call("EXEC");
            if !ran.is_error() {
                return;
            }
            let moved = queued.iter().chain([&ran.text()]).find_map(|text| {
                let place = text.strip_prefix("MOVED ")?;
                place.rsplit_once(':').map(|(_, port)| port.to_owned())
            });
            // The slot may have gone between the two.
            if let Some(port) = moved {
                self.client = Raw::connect(port.parse().expect("a port"));
            }
        }
        panic!("{commands:?} is sent on and on")
    }

    fn step(&mut self) {
        let (me, turn) = (self.number, self.done.to_string());
        let key = |kind: &str| format!("{TAG}{kind}{me}");
        let (counter, list, set, union) = (key("c"), key("l"), key("s"), key("u"));
        let (here, there, pair) = (key("here"), key("there"), key("pair"));
        self.run(&["INCR", &counter]);
        self.run(&["RPUSH", &list, &turn]);
        self.run(&["SADD", &set, &turn]);
        self.run(&["SUNIONSTORE", &union, &set]);
        self.run(&["APPEND", &here, "x"]);
        self.run(&["RENAME", &here, &there]);
        self.run(&["RENAME", &there, &here]);
        self.run(&["LMOVE", &list, &list, "LEFT", "RIGHT"]);
        let script = "redis.call('incr', KEYS[1]) return redis.call('rpush', KEYS[2], ARGV[1])";
        let (one, two) = (key("e"), key("el"));
        self.run(&["EVAL", script, "2", &one, &two, &turn]);
        self.run_together(&[
            vec!["INCR", &pair],
            vec!["INCRBY", "{b}sum", "1"],
            vec!["HINCRBY", "{b}hash", &turn[turn.len() - 1..], "1"],
        ]);
        self.done += 1;
    }

    fn check(mut self, sum: &mut usize) {
        let me = self.number;
        let done = self.done.to_string();
        let key = |kind: &str| format!("{TAG}{kind}{me}");
        for (words, expected) in [
            (vec!["GET".to_owned(), key("c")], done.clone()),
            (vec!["GET".to_owned(), key("e")], done.clone()),
            (vec!["GET".to_owned(), key("pair")], done.clone()),
            (vec!["LLEN".to_owned(), key("l")], done.clone()),
            (vec!["LLEN".to_owned(), key("el")], done.clone()),
            (vec!["SCARD".to_owned(), key("s")], done.clone()),
            (vec!["SCARD".to_owned(), key("u")], done.clone()),
            (vec!["STRLEN".to_owned(), key("here")], done.clone()),
            (vec!["EXISTS".to_owned(), key("there")], "0".to_owned()),
        ] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = self.run(&words);
            let said = match &reply {
                Value::Integer(number) => number.to_string(),
                other => other.text(),
            };
            assert_eq!(said, expected, "{words:?}");
        }
        *sum += self.done;
    }
}

#[test]
fn no_acknowledged_write_is_lost_while_a_slot_goes_to_and_fro() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    let keys = 4_000;
    fill(&one, keys);
    let stops = Arc::new(AtomicBool::new(false));
    let writers = start_writers(&one, 3, &stops);
    for _ in 0..2 {
        for (from, to) in [(&one, &two), (&two, &one)] {
            migrate(from, to);
            await_end(from, "success");
            assert!(owns(to) && !owns(from));
        }
    }
    stops.store(true, Relaxed);
    let mut sum = 0;
    for writer in writers {
        let writer = writer.join().expect("it has not failed");
        assert!(writer.done > 0, "it has run");
        writer.check(&mut sum);
    }
    let total = run(&one, &["GET", "{b}sum"]).text();
    assert_eq!(total, sum.to_string());
    check_filled(&one, keys);
    eventually("the keys go", || count(&two) == 0);
}

#[test]
fn a_move_ends_when_data_are_flushed_memory_is_short_or_a_client_wants_it() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    let keys = 20_000;
    fill(&one, keys);
    let begin = || {
        migrate(&one, &two);
        eventually("keys come", || count(&two) > 0 || is_over(&one));
    };
    let failed = |message: &str| {
        eventually("both are at their end", || is_over(&one) && is_over(&two));
        assert_eq!(latest(&two, "state"), "failed");
        assert!(
            latest(&two, "message").contains(message),
            "{}",
            latest(&two, "message")
        );
        assert!(owns(&one) && !owns(&two));
        eventually("what had come goes", || count(&two) == 0);
        check_filled(&one, keys);
    };
    begin();
    check(&mut one.raw(), "CLUSTER CANCELSLOTMIGRATIONS", "OK");
    failed("Connection lost to source");
    assert_eq!(latest(&one, "state"), "cancelled");
    begin();
    check(&mut two.raw(), "FLUSHALL", "OK");
    failed("Data was flushed");
    check(&mut two.raw(), "CONFIG SET maxmemory 1", "OK");
    migrate(&one, &two);
    failed("OOM");
    check(&mut two.raw(), "CONFIG SET maxmemory 0", "OK");
    begin();
    for (node, direction) in [(&one, "export"), (&two, "import")] {
        let reply = node.raw().call("CLUSTER SETSLOT 3300 STABLE").text();
        assert!(
            is_over(node) || reply == format!("ERR Slot {direction} in progress."),
            "{reply}"
        );
    }
    let others: i64 = (0..3).map(|_| two.raw().call("DBSIZE").integer()).sum();
    assert!(is_over(&two) || others == 0, "what comes is not shown");
    check(&mut one.raw(), "FLUSHALL", "OK");
    eventually("both are at their end", || is_over(&one) && is_over(&two));
    if latest(&one, "state") == "success" {
        // The move was faster than the client: the flush did not remove the keys that arrived.
        return check_filled(&two, keys);
    }
    assert_eq!(latest(&one, "message"), "Data was flushed");
    eventually("what had come goes", || count(&two) == 0);
    assert_eq!(figure(&one, "slot_exports_cancelled"), 1);
    assert_eq!(figure(&one, "slot_exports_failed"), 3);
    assert_eq!(figure(&two, "slot_imports_failed"), 4);
}

/// Starts a node of Valkey, if it is installed, with some more directives.
fn valkey_node(more: &[(&str, &str)]) -> Option<Oracle> {
    let bus_port = free_port().to_string();
    let own = [
        ("cluster-enabled", "yes"),
        ("cluster-node-timeout", TIMEOUT),
        ("cluster-port", &bus_port),
    ];
    let all: Vec<(&str, &str)> = own.iter().chain(more).copied().collect();
    Oracle::start_valkey_with(&all)
}

/// Starts a node of this server in a cluster with one of Valkey, if it is installed, with some more
/// directives.
fn valkey_beside(more: &[(&str, &str)]) -> Option<(Server, Server)> {
    if support::is_stand_in() {
        return None;
    }
    let Oracle(valkey) = valkey_node(more)?;
    let ours = more.iter().fold(options(), |options, (name, value)| {
        options.with(name, value)
    });
    let ours = Server::start(&ours);
    unite(&[&ours, &valkey]);
    Some((ours, valkey))
}

#[test]
fn slots_move_between_our_nodes_and_those_of_valkey() {
    let Some((ours, valkey)) = valkey_beside(&[]) else {
        return;
    };
    assert!(
        all(&ours, WRITES)
            .iter()
            .all(|reply| !reply.contains("error"))
    );
    let keys = 2_000;
    fill(&ours, keys);
    let before = all(&ours, READS);
    for (from, to) in [(&ours, &valkey), (&valkey, &ours)] {
        move_over(from, to);
        eventually("it has taken them", || owns(to));
        check_filled(to, keys);
        eventually("the keys go", || count(from) == 0);
    }
    assert_eq!(all(&ours, READS), before);
}
