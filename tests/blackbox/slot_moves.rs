//! Slots that move from one node to another in one piece (CLUSTER MIGRATESLOTS), under load, with everything that can
//! go wrong on the way, and beside Valkey 9.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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

/// A field of the latest move that a node knows.
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

fn is_over(server: &Server) -> bool {
    ["success", "failed", "cancelled"].contains(&latest(server, "state").as_str())
}

fn await_end(server: &Server, state: &str) {
    eventually("the move ends", || is_over(server));
    let message = latest(server, "message");
    assert_eq!(latest(server, "state"), state, "{message}");
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

/// Values of all types, and what they are read by.
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

/// A client that changes keys of its own, and knows what they have to be by then.
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

    /// A transaction, which runs where its first command is queued.
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
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let (stops, client) = (Arc::clone(&stops), one.raw());
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
        })
        .collect();
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

/// Passes bytes on between the source and the target of a move, until a word has come by.
struct Between {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

/// Where the connection between two ends is cut.
#[derive(Clone, Copy)]
struct Cut {
    word: &'static str,
    /// Behind the word, or before it.
    is_behind: bool,
    /// A process that is killed then.
    kills: Option<u32>,
}

impl Between {
    fn new(target: u16) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let cut = Arc::new(Mutex::new(None));
        let when = Arc::clone(&cut);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let to = TcpStream::connect(("127.0.0.1", target)).expect("the target is there");
                for (from, to) in [
                    (from.try_clone(), to.try_clone()),
                    (to.try_clone(), from.try_clone()),
                ] {
                    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                    let when = Arc::clone(&when);
                    thread::spawn(move || pass(from, to, &when));
                }
            }
        });
        Between { port, cut }
    }

    /// Cuts the connection where a word stands that either side says: before it, or behind it.
    fn cut_at(&self, word: Option<(&'static str, bool)>) {
        let cut = word.map(|(word, is_behind)| Cut {
            word,
            is_behind,
            kills: None,
        });
        *self.cut.lock().expect("nobody panics") = cut;
    }

    /// Kills a process when a word has come by.
    fn kill_at(&self, word: &'static str, pid: u32) {
        let cut = Cut {
            word,
            is_behind: true,
            kills: Some(pid),
        };
        *self.cut.lock().expect("nobody panics") = Some(cut);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, when: &Mutex<Option<Cut>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let said = &bytes[..count];
        let cut = *when.lock().expect("nobody panics");
        let found = cut.and_then(
            |Cut {
                 word, is_behind, ..
             }| {
                let wanted = format!("\r\n{word}\r\n").into_bytes();
                let at = said.windows(wanted.len()).position(|part| part == wanted)?;
                Some(if is_behind { count } else { at })
            },
        );
        let _ = to.write_all(&said[..found.unwrap_or(count)]);
        if found.is_some() {
            if let Some(pid) = cut.and_then(|cut| cut.kills) {
                let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
                assert!(killed.is_ok_and(|status| status.success()), "it was there");
            }
            break;
        }
    }
    // What was sent has to arrive before the end does.
    thread::sleep(Duration::from_millis(20));
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_link_that_breaks_at_any_word_leaves_one_owner_with_all_keys() {
    if support::is_stand_in() {
        return;
    }
    let port = free_port();
    let between = Between::new(port);
    let announced = options()
        .port(port)
        .with("cluster-announce-port", &between.port.to_string());
    let (one, two) = pair(&announced);
    let keys = 300;
    fill(&one, keys);
    for word in [
        "ESTABLISH",
        "ACK",
        "SNAPSHOT-EOF",
        "REQUEST-PAUSE",
        "PAUSED",
        "REQUEST-FAILOVER",
    ] {
        for behind in [false, true] {
            between.cut_at(Some((word, behind)));
            migrate(&one, &two);
            await_end(&one, "failed");
            eventually("both know", || {
                !latest(&two, "state").ends_with("requested")
            });
            assert!(owns(&one) && !owns(&two), "{word} {behind}");
            check_filled(&one, keys);
            // Writes go on.
            check(&mut one.raw(), &format!("SET {TAG}w {word}"), "OK");
            eventually("what had come goes", || count(&two) == 0);
        }
    }
    // The target never hears that it may: the source waits, and keeps the slot.
    between.cut_at(Some(("FAILOVER-GRANTED", false)));
    migrate(&one, &two);
    await_end(&one, "failed");
    assert!(owns(&one) && !owns(&two));
    // It hears it, and the source does not hear that it has: the bus tells.
    between.cut_at(Some(("FAILOVER-GRANTED", true)));
    eventually("what had come goes", || count(&two) == 0);
    migrate(&one, &two);
    await_end(&one, "success");
    let mut client = Raw::connect(port);
    assert_eq!(client.command(&["GET", "{b}k7"]).text(), "7");
    check_filled(&two, keys);
    eventually("the keys go", || count(&one) == 0);
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
    check(&mut one.raw(), "CLUSTER CANCELSLOTMIGRATIONS ALL", "OK");
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
    assert_eq!(latest(&one, "message"), "Data was flushed");
    eventually("what had come goes", || count(&two) == 0);
}

#[test]
fn a_node_that_is_killed_leaves_the_slot_and_its_keys_with_the_other() {
    if support::is_stand_in() {
        return;
    }
    let keys = 20_000;
    for kills_source in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = options()
            .with("dir", dir.path().to_str().expect("a plain path"))
            .with("appendonly", "yes")
            .with("appendfsync", "always");
        let (kept, lost) = (Server::start(&kept), kept);
        let other = start();
        let (one, two) = match kills_source {
            true => (&kept, &other),
            false => (&other, &kept),
        };
        unite(&[one, two]);
        fill(one, keys);
        migrate(one, two);
        eventually("keys come", || count(two) > 0);
        kept.signal("KILL");
        let port = kept.port;
        let mut kept = kept;
        kept.wait_for_exit();
        drop(kept);
        eventually("the other knows", || is_over(&other));
        let again = support::start_loaded(&lost.port(port));
        let (one, two) = match kills_source {
            true => (&again, &other),
            false => (&other, &again),
        };
        agree(&[one, two]);
        assert!(owns(one) && !owns(two));
        check_filled(one, keys);
        eventually("what had come goes", || count(two) == 0);
        migrate(one, two);
        await_end(one, "success");
        check_filled(two, keys);
    }
}

/// Starts a node whose data and slots outlive it, in a folder.
fn lasting(dir: &tempfile::TempDir, more: &Options) -> Options {
    more.clone()
        .with("dir", dir.path().to_str().expect("a plain path"))
        .with("appendonly", "yes")
        .with("appendfsync", "always")
}

#[test]
fn either_end_may_be_killed_at_any_word_and_the_slot_has_one_owner_with_all_keys() {
    if support::is_stand_in() {
        return;
    }
    let keys = 300;
    for kills_source in [false, true] {
        let (source_dir, target_dir) = (tempfile::tempdir(), tempfile::tempdir());
        let dirs = (source_dir.expect("a folder"), target_dir.expect("a folder"));
        let port = free_port();
        let between = Between::new(port);
        let of_source = lasting(&dirs.0, &options());
        let announced = options().with("cluster-announce-port", &between.port.to_string());
        let of_target = lasting(&dirs.1, &announced).port(port);
        let (mut one, mut two) = (Server::start(&of_source), Server::start(&of_target));
        unite(&[&one, &two]);
        fill(&one, keys);
        for word in ["ACK", "SNAPSHOT-EOF", "PAUSED", "FAILOVER-GRANTED"] {
            let pid = if kills_source { one.pid() } else { two.pid() };
            between.kill_at(word, pid);
            migrate(&one, &two);
            let (killed, options) = match kills_source {
                true => (&mut one, &of_source),
                false => (&mut two, &of_target),
            };
            killed.wait_for_exit();
            let options = options.clone().port(killed.port);
            between.cut_at(None);
            *killed = support::start_loaded(&options);
            agree(&[&one, &two]);
            eventually("the slot has one owner", || owns(&one) != owns(&two));
            eventually("the other end knows", || {
                latest(&one, "state").is_empty() || is_over(&one)
            });
            let (owner, other) = match owns(&one) {
                true => (&one, &two),
                false => (&two, &one),
            };
            check_filled(owner, keys);
            eventually("what is not owned goes", || count(other) == 0);
            if owns(&two) {
                migrate(&two, &one);
                await_end(&two, "success");
                eventually("the keys go", || count(&two) == 0);
            }
        }
    }
}

#[test]
fn slots_move_between_our_nodes_and_those_of_valkey() {
    if support::is_stand_in() {
        return;
    }
    let directives = [
        ("cluster-enabled", "yes"),
        ("cluster-node-timeout", TIMEOUT),
        ("cluster-port", &free_port().to_string()),
    ];
    let directives = directives.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let Some(Oracle(valkey)) = Oracle::start_binary("valkey-server", &directives) else {
        return;
    };
    let ours = start();
    unite(&[&ours, &valkey]);
    assert!(
        all(&ours, WRITES)
            .iter()
            .all(|reply| !reply.contains("error"))
    );
    let keys = 2_000;
    fill(&ours, keys);
    let before = all(&ours, READS);
    for (from, to) in [(&ours, &valkey), (&valkey, &ours)] {
        migrate(from, to);
        await_end(from, "success");
        eventually("it has taken them", || owns(to));
        check_filled(to, keys);
        eventually("the keys go", || count(from) == 0);
    }
    assert_eq!(all(&ours, READS), before);
}
