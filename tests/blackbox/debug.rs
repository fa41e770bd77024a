//! DEBUG over a socket: who may use it, that it stops all clients, and that digests equal the reference's.

use std::time::{Duration, Instant};

use crate::support::{Options, Oracle, Server, at_each_shard_count, is_stand_in};
use crate::wire::Raw;

const REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
                       can run it from a local connection, otherwise you need to set this option in the \
                       configuration file, and then restart the server.";

#[test]
fn debug_needs_a_permission() {
    let server = Server::start(&Options::shards(1).with("enable-debug-command", "no"));
    let mut client = Raw::connect(server.port);
    for line in [
        "DEBUG DIGEST",
        "DEBUG OBJECT k",
        "DEBUG SLEEP 0",
        "DEBUG nosuch",
    ] {
        assert_eq!(client.call(line).text(), REFUSED, "{line}");
    }
    assert_eq!(
        client.call("DEBUG").text(),
        "ERR wrong number of arguments for 'debug' command"
    );
}

#[test]
fn local_lets_connections_from_this_machine_debug() {
    let server = Server::start(&Options::shards(1).with("enable-debug-command", "local"));
    let mut client = Raw::connect(server.port);
    assert_eq!(client.call("DEBUG SLEEP 0").text(), "OK");
}

#[test]
fn sleep_stops_everybody() {
    const SLEEP: Duration = Duration::from_millis(300);
    const ROUNDS: usize = 5;
    at_each_shard_count(|server| {
        let mut sleeper = Raw::connect(server.port);
        let mut other = Raw::connect(server.port);
        assert_eq!(other.call("SET k v").text(), "OK");
        // On a loaded machine the other one may sleep through a pause itself.
        let waited = (0..ROUNDS).filter(|_| {
            sleeper.send(b"DEBUG SLEEP 0.3\r\nECHO after\r\n");
            let started = Instant::now();
            let mut longest = Duration::ZERO;
            while started.elapsed() < SLEEP * 2 {
                let asked = Instant::now();
                assert_eq!(other.call("GET k").text(), "v");
                longest = longest.max(asked.elapsed());
            }
            assert_eq!(sleeper.read().text(), "OK");
            assert_eq!(sleeper.read().text(), "after");
            longest >= SLEEP / 2
        });
        let waited = waited.count();
        assert!(
            waited > ROUNDS / 2,
            "the other client had to wait in {waited} of {ROUNDS} rounds"
        );
    });
}

#[test]
fn signatures_equal_those_of_the_reference() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    if is_stand_in() {
        return;
    }
    at_each_shard_count(|server| {
        let mut theirs = Raw::connect(oracle.port);
        let mut ours = Raw::connect(server.port);
        let mut both = |line: &str| {
            assert_eq!(ours.call(line).show(), theirs.call(line).show(), "{line}");
        };
        both("FLUSHALL");
        both("DEBUG DIGEST");
        for db in [0, 3, 15] {
            both(&format!("SELECT {db}"));
            both("DEBUG POPULATE 300 key 20");
            both("MSET n 17 empty \"\" binary \"\\x00\\xff\" float 1.5");
            both("SET volatile x EX 100000");
            both("APPEND n 5");
            both("DEBUG DIGEST-VALUE n empty binary float volatile key:7 nosuch n");
            both("DEBUG DIGEST");
        }
    });
}
