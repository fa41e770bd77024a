//! Clients that wait for a key, and are thrown out or killed while they are served.

use std::thread::{self, JoinHandle};

use super::{at_each_shape, is_well};
use crate::support::{Server, blocked, check, eventually, info_number};
use crate::wire::{Raw, Value, encode, split};

/// Clients that wait at once, and the rounds of each test.
const WAITING: usize = 10;
const ROUNDS: usize = 5;

/// Length of a name in each waiting request, for which its client is thrown out.
const NAME_BYTES: usize = 40_000;

/// Creates a stream with a group, and clients that wait for it or for a list.
fn waiting(server: &Server, admin: &mut Raw, round: usize, name_bytes: usize) -> Vec<Raw> {
    admin.call("DEL stream list list2 other");
    check(admin, "XGROUP CREATE stream g $ MKSTREAM", "OK");
    let name = "n".repeat(name_bytes);
    let requests = (0..WAITING).map(|at| match (round + at) % 5 {
        0 => format!("XREAD BLOCK 0 STREAMS stream {name} $ $"),
        1 => format!("XREADGROUP GROUP g {name}{at} BLOCK 0 STREAMS stream >"),
        2 => format!("BLPOP list {name} 0"),
        3 => format!("BLMPOP 0 2 list {name} LEFT COUNT 5"),
        _ => "BLMOVE list list2 LEFT RIGHT 0".to_owned(),
    });
    requests.map(|line| blocked(server, admin, &line)).collect()
}

fn nobody_waits(admin: &mut Raw) {
    eventually("nobody waits", || {
        info_number(admin, "clients", "blocked_clients") == 0.0
    });
}

/// A client that was thrown out while its request ran again was used after it had been freed (23479); so was another
/// client in the list of those who wait for the same key (#15594).
#[test]
fn cve_2026_23479_and_redis_15594_waiting_clients_may_be_thrown_out_while_they_are_served() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        for round in 0..ROUNDS {
            let held = waiting(server, &mut admin, round, NAME_BYTES);
            let mut writer = server.raw();
            // The first limits throw out some of them, the last one all that hold much.
            let limit = ["300kb", "200kb", "100kb", "60kb", "50kb"][round];
            let mut requests = Vec::new();
            for line in [
                "MULTI",
                &format!("CONFIG SET maxmemory-clients {limit}"),
                "XADD stream * f v",
                "RPUSH list a b c d e f g h",
                "RPUSH other a b",
                "EXEC",
            ] {
                requests.extend(encode(&split(line)));
            }
            writer.send(&requests);
            // The writer may be thrown out too.
            while writer
                .try_read()
                .is_ok_and(|reply| !matches!(reply, Value::Array(_)))
            {}
            is_well(server);
            let mut again = server.raw();
            eventually("the limit is taken back", || {
                again.call("CONFIG SET maxmemory-clients 0").show() == "OK"
            });
            admin = again;
            drop(held);
            nobody_waits(&mut admin);
        }
        let thrown_out = info_number(&mut admin, "stats", "evicted_clients");
        assert!(thrown_out > 0.0, "nobody was thrown out");
    });
}

/// Waiting clients that another one closes in the very moment in which they are served.
#[test]
fn cve_2026_23479_waiting_clients_may_be_killed_while_they_are_served() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        for round in 0..ROUNDS {
            let held = waiting(server, &mut admin, round, 10);
            let others: Vec<_> = (0..3).map(|at| push_beside(server, at)).collect();
            let replies = admin.pipeline(&[
                "MULTI",
                "XADD stream * f v",
                "RPUSH list a b c d e f g h",
                "CLIENT KILL TYPE normal SKIPME yes",
                "RPUSH other a b",
                "EXEC",
            ]);
            assert_eq!(replies[5].items().len(), 4, "{}", replies[5].show());
            for other in others {
                other.join().expect("it ends");
            }
            drop(held);
            nobody_waits(&mut admin);
        }
    });
}

/// Pushes and unblocks from another thread until it is closed.
fn push_beside(server: &Server, at: usize) -> JoinHandle<()> {
    let mut client = server.raw();
    thread::spawn(move || {
        for id in 1..40 {
            let line = format!("RPUSH list {at}\r\nCLIENT UNBLOCK {id}\r\nXADD stream * f v\r\n");
            client.send_unchecked(line.as_bytes());
            if (0..3).any(|_| client.try_read().is_err()) {
                return;
            }
        }
    })
}
