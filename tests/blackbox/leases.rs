//! Leases over sockets: a missing key is loaded once, and no client stores a value that it read before a
//! change.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use crate::support::{
    self, Draw, Options, Server, blocked, check, eventually, info_number, variable,
};
use crate::wire::{Raw, Value};

/// A reply of LGET.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Got {
    value: Option<String>,
    state: String,
    token: i64,
}

fn got(reply: &Value) -> Got {
    let [value, state, token] = reply.items() else {
        panic!("three items, not {}", reply.show());
    };
    Got {
        value: (!value.is_nil()).then(|| value.text()),
        state: state.text(),
        token: token.integer(),
    }
}

fn lget(raw: &mut Raw, line: &str) -> Got {
    got(&raw.call(line))
}

fn token(raw: &mut Raw, key: &str) -> i64 {
    let got = lget(raw, &format!("LGET {key} LEASE 600000"));
    assert_eq!((got.value, got.state.as_str()), (None, "miss"));
    assert!(got.token > 0);
    got.token
}

fn waiting(raw: &mut Raw) -> f64 {
    info_number(raw, "leases", "leases_waiting")
}

#[test]
fn five_hundred_clients_of_a_missing_key_load_it_once() {
    const CLIENTS: usize = 500;
    support::at_each_shard_count(|server| {
        let loads = AtomicU64::new(0);
        for round in 0..3 {
            let (ready, port) = (Barrier::new(CLIENTS), server.port);
            let key = format!("page:{round}");
            thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    let client = || {
                        let mut raw = Raw::connect(port);
                        ready.wait();
                        let line = format!("LGET {key} LEASE 600000 WAIT 600000");
                        let first = lget(&mut raw, &line);
                        if first.state == "miss" {
                            loads.fetch_add(1, SeqCst);
                            eventually("all others wait", || {
                                waiting(&mut raw) == (CLIENTS - 1) as f64
                            });
                            let line = format!("LFILL {key} {} loaded EX 60", first.token);
                            check(&mut raw, &line, "(integer) 1");
                            return;
                        }
                        // One round trip: the reply to the only request of this client.
                        let value = Some("loaded".to_owned());
                        let state = "hit".to_owned();
                        assert_eq!(
                            first,
                            Got {
                                value,
                                state,
                                token: 0
                            }
                        );
                    };
                    let thread = thread::Builder::new().stack_size(256 * 1024);
                    thread.spawn_scoped(scope, client).expect("a thread");
                }
            });
            assert_eq!(loads.load(SeqCst), round + 1);
        }
        let mut raw = server.raw();
        assert_eq!(info_number(&mut raw, "leases", "leases_given"), 3.0);
        assert_eq!(info_number(&mut raw, "leases", "leases_filled"), 3.0);
        assert_eq!(info_number(&mut raw, "leases", "leases_in_force"), 0.0);
    });
}

#[test]
fn a_long_value_comes_to_all_who_wait() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let token = token(&mut raw, "k");
        let mut other = server.raw();
        let mut clients: Vec<Raw> = (0..20)
            .map(|_| blocked(server, &mut other, "LGET k LEASE 1000 WAIT 600000"))
            .collect();
        let value = "x".repeat(100_000);
        raw.command(&["LFILL", "k", &token.to_string(), &value]);
        for client in &mut clients {
            assert_eq!(got(&client.read()).value.as_deref(), Some(value.as_str()));
        }
    });
}

#[test]
fn who_waits_first_loads_next_when_a_loader_gives_up_dies_or_is_too_late() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        let given_up = token(&mut raw, "k");
        let wait = "LGET k LEASE 600000 WAIT 600000";
        let mut clients: Vec<Raw> = (0..4).map(|_| blocked(server, &mut other, wait)).collect();
        check(&mut raw, "LDROP k 1", "(integer) 0");
        check(&mut raw, &format!("LDROP k {given_up}"), "(integer) 1");
        check(&mut raw, &format!("LDROP k {given_up}"), "(integer) 0");
        check(&mut raw, &format!("LFILL k {given_up} v"), "(integer) 0");
        let next = got(&clients.remove(0).read());
        assert_eq!((next.value, next.state.as_str()), (None, "miss"));
        assert!(next.token > 0 && next.token != given_up);
        // A deletion, where there is nothing to delete, voids its lease. The next one in line loads.
        check(&mut raw, "DEL k", "(integer) 0");
        let after = got(&clients.remove(0).read());
        assert_eq!(after.state, "miss");
        check(
            &mut raw,
            &format!("LFILL k {} old", next.token),
            "(integer) 0",
        );
        check(
            &mut raw,
            &format!("LFILL k {} new", after.token),
            "(integer) 1",
        );
        for mut client in clients {
            assert_eq!(got(&client.read()).value.as_deref(), Some("new"));
        }
        // A loader that dies: its time ends the lease.
        let short = lget(&mut raw, "LGET dies LEASE 200");
        let wait = "LGET dies LEASE 600000 WAIT 600000";
        let mut first = blocked(server, &mut other, wait);
        let mut second = blocked(server, &mut other, wait);
        let third = blocked(server, &mut other, wait);
        let taken_over = got(&first.read());
        assert_eq!(taken_over.state, "miss");
        assert!(taken_over.token > 0 && taken_over.token != short.token);
        check(
            &mut raw,
            &format!("LFILL dies {} late", short.token),
            "(integer) 0",
        );
        // A client that waits and goes is passed over, and the queue moves on without it.
        drop(third);
        let line = format!("LFILL dies {} v", taken_over.token);
        check(&mut first, &line, "(integer) 1");
        assert_eq!(got(&second.read()).value.as_deref(), Some("v"));
        eventually("nobody waits", || waiting(&mut raw) == 0.0);
        assert_eq!(info_number(&mut raw, "leases", "leases_in_force"), 0.0);
    });
}

#[test]
fn every_way_in_which_a_wait_can_end() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        let mine = token(&mut raw, "k");
        let busy = "1) (nil)\n2) busy\n3) (integer) 0";
        check(&mut other, "LGET k LEASE 1000", busy);
        check(&mut other, "LGET k WAIT 0 LEASE 1000", busy);
        check(&mut other, "LGET k LEASE 1000 WAIT 30", busy);
        for (how, answer) in [
            ("TIMEOUT", busy),
            (
                "ERROR",
                "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            let mut client = server.raw();
            let id = client.call("CLIENT ID").integer();
            client.send(b"LGET k LEASE 1000 WAIT 600000\r\n");
            eventually("it waits", || waiting(&mut other) == 1.0);
            check(
                &mut other,
                &format!("CLIENT UNBLOCK {id} {how}"),
                "(integer) 1",
            );
            assert_eq!(client.read().show(), answer);
        }
        let mut client = server.raw();
        let id = client.call("CLIENT ID").integer();
        client.send(b"LGET k LEASE 1000 WAIT 600000\r\n");
        eventually("it waits", || waiting(&mut other) == 1.0);
        check(&mut other, &format!("CLIENT KILL ID {id}"), "(integer) 1");
        assert!(client.is_closed());
        eventually("nobody waits", || waiting(&mut other) == 0.0);
        // Changing the key's type ends the wait too.
        let mut client = blocked(server, &mut other, "LGET k LEASE 1000 WAIT 600000");
        check(&mut other, "RPUSH k element", "(integer) 1");
        assert!(client.read().show().starts_with("(error) WRONGTYPE"));
        check(&mut other, &format!("LFILL k {mine} v"), "(integer) 0");
        // In a transaction and in a script nothing waits.
        let mine = token(&mut raw, "m");
        let replies = other.pipeline(&["MULTI", "LGET m LEASE 1000 WAIT 600000", "EXEC"]);
        assert_eq!(got(&replies[2].items()[0]).state, "busy");
        let script =
            "EVAL \"return redis.call('LGET', KEYS[1], 'LEASE', '1000', 'WAIT', '600000')\" 1 m";
        assert_eq!(got(&other.call(script)).state, "busy");
        check(&mut raw, &format!("LDROP m {mine}"), "(integer) 1");
        // A replica cannot store a loaded value.
        let mut client = blocked_on(server, &mut other, &mut raw);
        check(&mut other, "REPLICAOF 127.0.0.1 1", "OK");
        assert!(client.read().show().starts_with("(error) UNBLOCKED"));
        let readonly = "(error) READONLY You can't write against a read only replica.";
        check(&mut other, "LGET nothing LEASE 1000", readonly);
        check(&mut other, "REPLICAOF NO ONE", "OK");
        assert_eq!(lget(&mut other, "LGET nothing LEASE 1000").state, "miss");
    });
}

fn blocked_on(server: &Server, other: &mut Raw, raw: &mut Raw) -> Raw {
    token(raw, "r");
    blocked(server, other, "LGET r LEASE 1000 WAIT 600000")
}

#[test]
fn whatever_writes_or_deletes_a_key_voids_its_lease() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        let dump = {
            other.call("SET source value");
            other.call("DUMP source").bytes().to_vec()
        };
        other.call("SELECT 1");
        other.call("SET moved value");
        other.call("SELECT 0");
        let lines = [
            "SET k v",
            "SETNX k v",
            "APPEND k v",
            "INCR k",
            "MSET k v other v",
            "HSET k f v",
            "DEL k",
            "UNLINK k",
            "GETDEL k",
            "DELEX k",
            "RENAME source k",
            "COPY again k",
            "FLUSHDB",
            "FLUSHALL",
            "SWAPDB 0 5",
            "SWAPDB 6 0",
            "EVAL \"redis.call('DEL', KEYS[1])\" 1 k",
        ];
        let mut seen = HashSet::new();
        for line in lines {
            other.pipeline(&["DEL k", "SET source value", "SET again value"]);
            let mine = token(&mut raw, "k");
            assert!(seen.insert(mine), "tokens do not come again");
            let reply = other.call(line);
            assert!(!reply.is_error(), "{line}: {}", reply.show());
            check(&mut raw, &format!("LFILL k {mine} old"), "(integer) 0");
        }
        other.call("DEL k");
        let mine = token(&mut raw, "k");
        other.command(&[&b"RESTORE"[..], b"k", b"0", &dump]);
        check(&mut raw, &format!("LFILL k {mine} old"), "(integer) 0");
        let mine = token(&mut raw, "moved");
        other.pipeline(&["SELECT 1", "SET moved value", "MOVE moved 0", "SELECT 0"]);
        check(&mut raw, &format!("LFILL moved {mine} old"), "(integer) 0");
        // In a transaction that is given up nothing is void.
        other.call("DEL k");
        let mine = token(&mut raw, "k");
        other.pipeline(&["MULTI", "DEL k", "DISCARD"]);
        check(&mut raw, &format!("LFILL k {mine} new"), "(integer) 1");
        check(&mut raw, "GET k", "\"new\"");
        check(&mut raw, &format!("LFILL k {mine} again"), "(integer) 0");
    });
}

/// Runs one race: the reader has its token, the writer changes the row and deletes the key, and the reader
/// stores its old row, at the same time. Both requests are on their way before either is answered.
fn race(reader: &mut Raw, writer: &mut Raw, key: &str, row: &mut u64, draw: &mut Draw) {
    let read_first = draw.below(2) == 0;
    let before = *row;
    let mine = lget(reader, &format!("LGET {key} LEASE 600000"));
    assert_eq!(mine.state, "miss");
    let seen = if read_first { before } else { before + 1 };
    *row += 1;
    let store = format!("LFILL {key} {} {seen}\r\n", mine.token);
    let delete = format!("DEL {key}\r\n");
    match draw.below(2) {
        0 => {
            reader.send(store.as_bytes());
            writer.send(delete.as_bytes());
        }
        _ => {
            writer.send(delete.as_bytes());
            reader.send(store.as_bytes());
        }
    }
    reader.read().integer();
    writer.read().integer();
    let left = reader.call(&format!("GET {key}"));
    // Even the new row is not there any more if the deletion came last, or first.
    assert!(left.is_nil(), "{key} holds {} of row {row}", left.show());
}

/// `BASALT_LEASE_RACES` sets the number of races, over eight threads.
#[test]
fn who_read_before_a_deletion_never_leaves_the_old_value() {
    const THREADS: u64 = 8;
    let races = variable("BASALT_LEASE_RACES", 4_000) / THREADS;
    let server = Server::start(&Options::shards(4).threads(2));
    let port = server.port;
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let (mut reader, mut writer) = (Raw::connect(port), Raw::connect(port));
                let (mut row, mut draw) = (0, Draw::new(number));
                for _ in 0..races {
                    race(
                        &mut reader,
                        &mut writer,
                        &format!("row:{number}"),
                        &mut row,
                        &mut draw,
                    );
                }
            });
        }
    });
}

// Small histories ----------------------------------------------------------------------------------------------------

/// A model of one key and the clients that may load it: every history must be possible in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Model {
    value: Option<String>,
    lease: Option<i64>,
}

#[derive(Clone, Debug)]
enum Did {
    Get(Got),
    Set(i64, String, i64),
    Drop(i64, i64),
    Write(String),
    Delete(i64),
}

impl Model {
    /// Returns the key's state after a request with this reply, or `None` if the reply is impossible.
    fn after(&self, did: &Did) -> Option<Model> {
        let mut next = self.clone();
        let is_right = match did {
            Did::Get(got) => match (&self.value, self.lease) {
                (Some(_), _) => got.value == self.value && got.state == "hit" && got.token == 0,
                (None, Some(_)) => got.value.is_none() && got.state == "busy" && got.token == 0,
                (None, None) => {
                    next.lease = Some(got.token);
                    got.value.is_none() && got.state == "miss" && got.token > 0
                }
            },
            Did::Set(token, value, reply) => {
                let is_good = self.lease == Some(*token);
                if is_good {
                    next = Model {
                        value: Some(value.clone()),
                        lease: None,
                    };
                }
                *reply == i64::from(is_good)
            }
            Did::Drop(token, reply) => {
                let is_good = self.lease == Some(*token);
                next.lease = self.lease.filter(|_| !is_good);
                *reply == i64::from(is_good)
            }
            Did::Write(value) => {
                next = Model {
                    value: Some(value.clone()),
                    lease: None,
                };
                true
            }
            Did::Delete(reply) => {
                next = Model::default();
                *reply == i64::from(self.value.is_some())
            }
        };
        is_right.then_some(next)
    }
}

/// Requests of one thread, each with the times before and after it.
type Line = Vec<(u64, u64, Did)>;

/// Whether some order of all requests, in which none stands before one that had ended when it began, explains them.
fn is_explained(
    lines: &[Line],
    at: &mut Vec<usize>,
    model: &Model,
    seen: &mut HashSet<(Vec<usize>, Model)>,
) -> bool {
    if lines.iter().zip(&*at).all(|(line, at)| *at == line.len()) {
        return true;
    }
    if !seen.insert((at.clone(), model.clone())) {
        return false;
    }
    let ends = lines
        .iter()
        .zip(&*at)
        .filter_map(|(line, at)| line.get(*at));
    let first_end = ends.map(|(_, end, _)| *end).min().unwrap_or(u64::MAX);
    for number in 0..lines.len() {
        if let Some((began, _, did)) = lines[number].get(at[number])
            && *began <= first_end
            && let Some(next) = model.after(did)
        {
            at[number] += 1;
            if is_explained(lines, at, &next, seen) {
                return true;
            }
            at[number] -= 1;
        }
    }
    false
}

fn history(port: u16, key: &str, clock: &AtomicU64, seed: u64) -> Line {
    let (mut raw, mut draw) = (Raw::connect(port), Draw::new(seed));
    let (mut line, mut mine) = (Line::new(), 1);
    for number in 0..10 {
        let began = clock.fetch_add(1, SeqCst);
        let value = format!("{seed}:{number}");
        let did = match draw.below(10) {
            0..4 => {
                let got = lget(&mut raw, &format!("LGET {key} LEASE 600000"));
                mine = if got.token > 0 { got.token } else { mine };
                Did::Get(got)
            }
            4..6 => {
                let reply = raw.call(&format!("LFILL {key} {mine} {value}")).integer();
                Did::Set(mine, value, reply)
            }
            6 => Did::Drop(mine, raw.call(&format!("LDROP {key} {mine}")).integer()),
            7 => {
                raw.call(&format!("SET {key} {value}"));
                Did::Write(value)
            }
            _ => Did::Delete(raw.call(&format!("DEL {key}")).integer()),
        };
        line.push((began, clock.fetch_add(1, SeqCst), did));
    }
    line
}

#[test]
fn what_threads_see_of_a_key_has_an_order() {
    for shards in [1, 4] {
        let server = Server::start(&Options::shards(shards).threads(2));
        for round in 0..24u64 {
            let (clock, port) = (AtomicU64::new(0), server.port);
            let key = format!("key:{round}");
            let lines: Vec<Line> = thread::scope(|scope| {
                let threads = 1 + round % 8;
                let handles: Vec<_> = (0..threads)
                    .map(|number| {
                        let (key, clock) = (&key, &clock);
                        scope.spawn(move || history(port, key, clock, round * 8 + number))
                    })
                    .collect();
                let lines = handles.into_iter().map(|handle| handle.join());
                lines.map(|line| line.expect("no thread fails")).collect()
            });
            let mut at = vec![0; lines.len()];
            let explained = is_explained(&lines, &mut at, &Model::default(), &mut HashSet::new());
            assert!(explained, "round {round}: no order explains {lines:#?}");
        }
    }
}

#[test]
fn whoever_asks_for_leases_without_end_voids_none_of_the_others() {
    let server = Server::start(&Options::shards(1));
    let mut others: Vec<(Raw, String, i64)> = (0..20)
        .map(|number| {
            let (mut raw, key) = (server.raw(), format!("other:{number}"));
            let token = token(&mut raw, &key);
            (raw, key, token)
        })
        .collect();
    let mut greedy = server.raw();
    for batch in 0..100 {
        let keys = (0..100).map(|number| format!("greedy:{batch}:{number}"));
        let lines: Vec<String> = keys
            .map(|key| format!("LGET {key} LEASE 3600000"))
            .collect();
        for reply in greedy.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>()) {
            assert_eq!(got(&reply).state, "miss");
        }
    }
    for (raw, key, token) in &mut others {
        let fill = format!("LFILL {key} {token} value");
        assert_eq!(raw.call(&fill).integer(), 1, "{key}");
    }
    // It has not lost all of its own either.
    let last = token(&mut greedy, "greedy:last");
    drop(greedy);
    let mut raw = server.raw();
    assert_eq!(
        raw.call(&format!("LFILL greedy:last {last} value"))
            .integer(),
        1
    );
}

/// Many connections of one user that take few leases each, and close or stay, void none of a program that has
/// one connection and loads fifty pages at a time.
#[test]
fn leases_of_many_connections_end_before_those_of_a_program_on_one() {
    let server = Server::start(&Options::shards(1));
    for is_other_user in [false, true] {
        let mut left = Vec::new();
        for number in 0..320 {
            let mut raw = server.raw();
            if is_other_user {
                check(&mut raw, "ACL SETUSER u on nopass ~* +lget +lfill", "OK");
                check(&mut raw, "AUTH u any", "OK");
            }
            let lines: Vec<String> = (0..28)
                .map(|lease| format!("LGET mine:{is_other_user}:{number}:{lease} LEASE 3600000"))
                .collect();
            raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            // Every tenth one stays.
            left.extend((number % 10 == 0).then_some(raw));
        }
        let mut raw = server.raw();
        let in_force = info_number(&mut raw, "leases", "leases_in_force");
        assert_eq!(in_force, 8_192.0);
        for round in 0..10 {
            let tokens: Vec<i64> = (0..50)
                .map(|number| token(&mut raw, &format!("page:{round}:{number}")))
                .collect();
            for (number, token) in tokens.iter().enumerate() {
                let fill = format!("LFILL page:{round}:{number} {token} value EX 1");
                assert_eq!(raw.call(&fill).integer(), 1, "{round}, {number}");
            }
        }
        check(&mut raw, "FLUSHALL", "OK");
    }
}

/// A user who may read a key and not fill it gets its value, and does not keep other clients from loading it.
#[test]
fn a_user_that_may_not_fill_a_key_gets_no_lease_of_it() {
    support::at_each_shard_count(|server| {
        let (mut admin, mut reader) = (server.raw(), server.raw());
        let rules = "on nopass +@read +lfill %R~page:* ~own:*";
        check(&mut admin, &format!("ACL SETUSER reader {rules}"), "OK");
        check(&mut admin, "ACL SETUSER plain on nopass +@read ~*", "OK");
        check(&mut reader, "AUTH reader any", "OK");
        check(&mut admin, "SET page:stale old PX 1 STALE 600000", "OK");
        check(&mut admin, "SET page:there value", "OK");
        thread::sleep(std::time::Duration::from_millis(10));
        for user in ["reader", "plain"] {
            check(&mut reader, &format!("AUTH {user} any"), "OK");
            let refusal = reader.call("LGET page:1 LEASE 600000");
            assert!(refusal.text().starts_with("NOPERM "), "{}", refusal.show());
            let refusal =
                reader.call("EVAL return{redis.call('LGET',KEYS[1],'LEASE','9')} 1 page:1");
            assert!(refusal.is_error(), "{}", refusal.show());
            for (key, state) in [("page:there", "hit"), ("page:stale", "stale")] {
                let found = lget(&mut reader, &format!("LGET {key} LEASE 600000"));
                assert_eq!(
                    (found.state.as_str(), found.token),
                    (state, 0),
                    "{user} {key}"
                );
            }
        }
        let loading = token(&mut admin, "page:1");
        let busy = lget(&mut reader, "LGET page:1 LEASE 600000");
        assert_eq!((busy.state.as_str(), busy.token), ("busy", 0));
        assert_eq!(
            admin.call(&format!("LFILL page:1 {loading} v")).integer(),
            1
        );
        assert_ne!(lget(&mut admin, "LGET page:stale LEASE 600000").token, 0);
        check(&mut reader, "AUTH reader any", "OK");
        token(&mut reader, "own:1");
    });
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let integer = "(error) ERR value is not an integer or out of range";
        let get = ": usage is LGET key LEASE lease-milliseconds [WAIT wait-milliseconds]";
        let fill = ": usage is LFILL key token value [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                    PXAT unix-time-milliseconds] [STALE stale-milliseconds] [TAGS numtags tag [tag ...]]";
        let [no_get, no_fill] = [get, fill].map(|usage| format!("(error) ERR syntax error{usage}"));
        let arity = "(error) ERR wrong number of arguments for";
        let lease = "(error) ERR invalid lease time in 'lget' command";
        let too_long =
            "(error) ERR invalid lease time in 'lget' command: at most 3600000 milliseconds";
        for (line, answer) in [
            (
                "LGET k LEASE",
                format!("{arity} 'lget' command{get}").as_str(),
            ),
            ("LGET k LEASE x", integer),
            ("LGET k LEASE 99999999999999999999", integer),
            ("LGET k LEASE 0", lease),
            ("LGET k LEASE -1", lease),
            ("LGET k LEASE 3600001", too_long),
            ("LGET k LEASE 9223372036854775807", too_long),
            ("LGET k WAIT 10", &no_get),
            ("LGET k LEASE 10 WAIT", &no_get),
            ("LGET k LEASE 10 TWICE 10", &no_get),
            (
                "LGET k LEASE 10 WAIT x",
                "(error) ERR timeout is not an integer or out of range",
            ),
            ("LGET k LEASE 10 WAIT -1", "(error) ERR timeout is negative"),
            (
                "LGET k LEASE 10 WAIT 9223372036854775807",
                "(error) ERR timeout is out of range",
            ),
            ("LFILL k 1", &format!("{arity} 'lfill' command{fill}")),
            ("LFILL k x v", integer),
            ("LFILL k 1 v EX", &no_fill),
            ("LFILL k 1 v EX x", integer),
            (
                "LFILL k 1 v EX 0",
                "(error) ERR invalid expire time in 'lfill' command",
            ),
            (
                "LFILL k 1 v EX 9223372036854775807",
                "(error) ERR invalid expire time in 'lfill' command",
            ),
            ("LFILL k 1 v KEEPTTL", &no_fill),
            ("LFILL k 1 v NX", &no_fill),
            ("LFILL k 0 v", "(integer) 0"),
            ("LFILL k -1 v", "(integer) 0"),
            (
                "LDROP k",
                "(error) ERR wrong number of arguments for 'ldrop' command",
            ),
            ("LDROP k x", integer),
            ("LDROP k 0", "(integer) 0"),
            ("EXISTS k", "(integer) 0"),
        ] {
            check(&mut raw, line, answer);
        }
        check(&mut raw, "RPUSH list a", "(integer) 1");
        let wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&mut raw, "LGET list LEASE 10", wrong);
        assert_eq!(info_number(&mut raw, "leases", "leases_in_force"), 0.0);
    });
}
