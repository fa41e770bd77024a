//! Moves to a node that falls silent at some step: they can be cancelled at every step, and end when too much
//! output waits for them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{
    SLOT, TAG, await_end, check_filled, count, figure, fill, is_over, latest, migrate, owns, pair,
};
use crate::clustered::{id, options};
use crate::support::{self, Server, check, eventually};

/// The last message to the source.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Until {
    /// Nothing.
    Connected,
    /// The move may begin; nothing is read from then on.
    Established,
    /// Nothing more, but all is read.
    Reading,
    RequestPause,
    RequestFailover,
}

/// Answers in the place of a node that is the target of moves.
struct Silent {
    port: u16,
    until: Arc<Mutex<Until>>,
}

impl Silent {
    fn new() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let until = Arc::new(Mutex::new(Until::Connected));
        let told = Arc::clone(&until);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let until = *told.lock().expect("nobody panics");
                thread::spawn(move || answer(stream, until));
            }
        });
        Silent { port, until }
    }

    fn falls_silent(&self, until: Until) {
        *self.until.lock().expect("nobody panics") = until;
    }
}

fn answer(mut stream: TcpStream, until: Until) {
    let says = |word: &str| {
        let len = word.len();
        format!("*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n${len}\r\n{word}\r\n")
    };
    let mut script = VecDeque::from([
        ("SLOTSRANGE", Until::Established, "+OK\r\n".to_owned()),
        ("SNAPSHOT-EOF", Until::RequestPause, says("REQUEST-PAUSE")),
        ("PAUSED", Until::RequestFailover, says("REQUEST-FAILOVER")),
    ]);
    let (mut heard, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        heard.extend_from_slice(&bytes[..read]);
        if let Some((word, level, said)) = script.front() {
            let wanted = format!("\r\n{word}\r\n").into_bytes();
            if heard.windows(wanted.len()).any(|part| part == wanted) {
                if until < *level {
                    script.clear();
                    continue;
                }
                if stream.write_all(said.as_bytes()).is_err() {
                    return;
                }
                script.pop_front();
                if until == Until::Established {
                    // Until the other end is tired of it.
                    thread::sleep(std::time::Duration::from_secs(600));
                }
            }
        }
        // Messages are shorter than the kept bytes.
        let kept = heard.len().saturating_sub(64);
        heard.drain(..kept);
    }
}

/// Starts a source, a node that is the target of its moves, and a proxy that answers in its place.
fn with_silent() -> (Server, Server, Silent) {
    let silent = Silent::new();
    let announced = options().with("cluster-announce-port", &silent.port.to_string());
    let (one, two) = pair(&announced);
    (one, two, silent)
}

/// Stores more than fits between two ends of a connection of which one does not read.
fn fill_much(server: &Server) {
    let value = "x".repeat(16 << 10);
    let mut client = server.raw();
    for number in 0..1_200 {
        let line = format!("SET {TAG}much{number} {value}");
        assert_eq!(client.call(&line).text(), "OK");
    }
}

#[test]
fn a_move_can_be_cancelled_wherever_it_is() {
    if support::is_stand_in() {
        return;
    }
    let (one, two, silent) = with_silent();
    let keys = 100;
    fill(&one, keys);
    fill_much(&one);
    for (until, state) in [
        (Until::Connected, "reading-establish-response"),
        (Until::Established, "snapshotting"),
        (Until::Reading, "replicating"),
        (Until::RequestPause, "failover-paused"),
    ] {
        silent.falls_silent(until);
        migrate(&one, &two);
        eventually("it has come there", || latest(&one, "state") == state);
        // A move that waits for its turn is cancelled with it.
        let queued = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 1 1 NODE {}", id(&two));
        check(&mut one.raw(), &queued, "OK");
        check(&mut one.raw(), "CLUSTER CANCELSLOTMIGRATIONS", "OK");
        assert_eq!(latest(&one, "slot_ranges"), "1-1");
        assert_eq!(latest(&one, "state"), "cancelled");
        eventually("it ends", || figure(&one, "slot_exports_in_progress") == 0);
        check(&mut one.raw(), &format!("SET {TAG}w {state}"), "OK");
        assert!(owns(&one) && !owns(&two));
    }
    assert_eq!(figure(&one, "slot_exports_cancelled"), 8);
    assert_eq!(figure(&one, "slot_exports_failed"), 0);
    // Writes are not held back for ever: they go on, and the slot stays.
    silent.falls_silent(Until::RequestPause);
    migrate(&one, &two);
    eventually("writes are held back", || {
        latest(&one, "state") == "failover-paused"
    });
    check(&mut one.raw(), &format!("SET {TAG}w waited"), "OK");
    await_end(&one, "failed");
    assert_eq!(
        latest(&one, "message"),
        "Writes have been paused for too long"
    );
    // The slots may be taken from then on: a cancellation comes too late, and they stay as they are not
    // taken.
    silent.falls_silent(Until::RequestFailover);
    migrate(&one, &two);
    eventually("it is granted", || {
        latest(&one, "state") == "failover-granted"
    });
    check(&mut one.raw(), "CLUSTER CANCELSLOTMIGRATIONS", "OK");
    check(&mut one.raw(), &format!("SET {TAG}w late"), "OK");
    await_end(&one, "failed");
    assert!(owns(&one) && !owns(&two));
    check_filled(&one, keys);
    let line = format!("CLUSTER COUNTKEYSINSLOT {SLOT}");
    assert_eq!(one.raw().call(&line).integer(), (keys + 1_200 + 1) as i64);
}

#[test]
fn a_move_ends_when_more_waits_for_it_than_the_limit_of_replicas() {
    if support::is_stand_in() {
        return;
    }
    let (one, two, silent) = with_silent();
    let limit = "CONFIG SET client-output-buffer-limit \"replica 1mb 0 0\"";
    check(&mut one.raw(), limit, "OK");
    fill_much(&one);
    silent.falls_silent(Until::Established);
    migrate(&one, &two);
    eventually("it walks", || latest(&one, "state") == "snapshotting");
    let value = "x".repeat(16 << 10);
    let mut client = one.raw();
    for number in 0..200 {
        // Tags of another slot, and of the moving one.
        let tag = if number % 2 == 0 { "{c}" } else { TAG };
        let line = format!("SET {tag}more{number} {value}");
        assert_eq!(client.call(&line).text(), "OK");
    }
    eventually("it ends", || is_over(&one));
    assert_eq!(latest(&one, "state"), "failed");
    assert_eq!(
        latest(&one, "message"),
        "The target node is too slow for the rate of changes"
    );
    assert!(owns(&one) && !owns(&two));
    assert_eq!(count(&one), 1_300);
    eventually("nothing is kept", || {
        figure(&one, "mem_cluster_slot_export") == 0
    });
}

#[test]
fn a_target_that_runs_out_of_memory_on_the_way_gives_back_what_had_come() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill_much(&one);
    let limit = figure(&two, "used_memory") + (4 << 20);
    let line = format!("CONFIG SET maxmemory {limit}");
    check(&mut two.raw(), &line, "OK");
    migrate(&one, &two);
    await_end(&one, "failed");
    eventually("the target knows", || is_over(&two));
    assert_eq!(
        latest(&two, "message"),
        "Ran out of memory (OOM) during slot import"
    );
    assert_eq!(latest(&two, "state"), "failed");
    eventually("what had come goes", || count(&two) == 0);
    assert!(owns(&one) && !owns(&two));
    assert_eq!(count(&one), 1_200);
    check(&mut two.raw(), "CONFIG SET maxmemory 0", "OK");
    migrate(&one, &two);
    await_end(&one, "success");
    assert_eq!(count(&two), 1_200);
}
