//! SORT over keys of many shards, through a socket: it sees one moment of all of them, despite concurrent
//! writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{Options, Server, check};

const SHARD_COUNTS: [usize; 2] = [1, 64];

#[test]
fn sort_reads_keys_of_all_shards_in_transactions_and_outside() {
    for shards in SHARD_COUNTS {
        let server = Server::start(&Options::shards(shards).threads(2));
        let mut raw = server.raw();
        for number in 0..50 {
            raw.call(&format!("RPUSH l {number}"));
            raw.call(&format!("SET weight_{number} {}", 100 - number));
            raw.call(&format!("HSET object_{number} name n{number}"));
        }
        let sorted = "1) \"n49\"\n2) \"49\"\n3) \"n48\"\n4) \"48\"";
        check(
            &mut raw,
            "SORT l BY weight_* LIMIT 0 2 GET object_*->name GET #",
            sorted,
        );
        check(&mut raw, "MULTI", "OK");
        for line in [
            "RPUSH l 50",
            "SET weight_50 -1",
            "SORT l BY weight_* LIMIT 0 2 GET # STORE d",
            "LRANGE d 0 -1",
            "SORT_RO l DESC LIMIT 0 1",
        ] {
            check(&mut raw, line, "QUEUED");
        }
        check(
            &mut raw,
            "EXEC",
            "1) (integer) 51\n2) OK\n3) (integer) 2\n4) 1) \"50\"\n   2) \"49\"\n5) 1) \"50\"",
        );
    }
}

/// A writer gives all values the same new number, over and over; a reader must never see two different ones.
#[test]
fn sort_sees_one_moment_of_all_shards() {
    const ROUNDS: usize = 300;
    for shards in SHARD_COUNTS {
        let server = Server::start(&Options::shards(shards).threads(2));
        let mut raw = server.raw();
        let keys: Vec<String> = (0..16).map(|number| format!("v_{number}")).collect();
        for number in 0..16 {
            raw.call(&format!("RPUSH l {number}"));
        }
        let write = |number: usize| {
            let pairs: Vec<String> = keys.iter().map(|key| format!("{key} {number}")).collect();
            format!("MSET {}", pairs.join(" "))
        };
        raw.call(&write(0));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = server.raw();
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    writer.call(&write(number));
                }
            });
            for round in 0..ROUNDS {
                let line = ["SORT l GET v_*", "SORT l BY v_* GET v_*"][round % 2];
                let reply = raw.call(line);
                let values: Vec<String> = reply.items().iter().map(|value| value.text()).collect();
                if values.len() != 16 || values.iter().any(|value| *value != values[0]) {
                    done.store(true, Ordering::Relaxed);
                    panic!("{shards} shards: {values:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn what_sort_stores_wakes_who_waits_for_a_list() {
    for shards in SHARD_COUNTS {
        let server = Server::start(&Options::shards(shards).threads(2));
        let (mut raw, mut waiter) = (server.raw(), server.raw());
        raw.call("SADD s 2 1 3");
        waiter.send(b"BLPOP target 20\r\n");
        crate::support::eventually("somebody waits", || {
            raw.call("INFO clients")
                .text()
                .contains("blocked_clients:1")
        });
        check(&mut raw, "SORT s BY none_* STORE target", "(integer) 3");
        assert_eq!(waiter.read().show(), "1) \"target\"\n2) \"1\"");
        check(&mut raw, "LRANGE target 0 -1", "1) \"2\"\n2) \"3\"");
    }
}
