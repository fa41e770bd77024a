//! A disk, a replica or a snapshot file that accepts no data: no data are lost, and at worst writers wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{self, Draw, Options, Server, check, eventually, info_number, start_loaded};
use crate::wire::{Raw, encode_into};

/// Commands sent at once.
const BATCH: usize = 100;

/// The limit that is tested with.
const LIMIT: &str = "40mb";

fn options() -> Options {
    Options::shards(64)
        .threads(2)
        .with("maxmemory", LIMIT)
        .with("maxmemory-policy", "allkeys-lru")
}

/// Sets the keys of a batch; returns the number of errors.
fn set_some(client: &mut Raw, draw: &mut Draw, value: &[u8]) -> usize {
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        let key = format!("key:{:012}", draw.below(1 << 40));
        encode_into(&mut batch, &[b"SET", key.as_bytes(), value]);
    }
    client.send(&batch);
    (0..BATCH).filter(|_| client.read().is_error()).count()
}

fn keys(client: &mut Raw) -> i64 {
    client.call("DBSIZE").integer()
}

/// Fills the server until it evicts; returns its number of keys.
fn fill(server: &Server) -> i64 {
    let (mut client, mut draw) = (server.raw(), Draw::new(1));
    while info_number(&mut client, "stats", "evicted_keys") < 20_000.0 {
        for _ in 0..50 {
            assert_eq!(set_some(&mut client, &mut draw, &[b'x'; 200]), 0);
        }
    }
    keys(&mut client)
}

/// Writes from several connections for a while before `something` runs and meanwhile. At most one in a
/// hundred of the earlier keys may be missing, and no write may fail.
fn assert_keeps_all_during(server: &Server, something: impl FnOnce()) {
    let (begins, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let errors = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 2..4 {
            let (ends, errors) = (&ends, &errors);
            let mut client = server.raw();
            scope.spawn(move || {
                let mut draw = Draw::new(seed);
                while !ends.load(Relaxed) {
                    let failed = set_some(&mut client, &mut draw, &[b'y'; 200]);
                    errors.fetch_add(failed, Relaxed);
                }
            });
        }
        let looks = scope.spawn(|| {
            let mut client = server.raw();
            let (mut before, mut least) = (i64::MAX, i64::MAX);
            while !ends.load(Relaxed) {
                let seen = match begins.load(Relaxed) {
                    false => &mut before,
                    true => &mut least,
                };
                *seen = (*seen).min(keys(&mut client));
                std::thread::sleep(Duration::from_millis(20));
            }
            (before, least)
        });
        // The writers' buffers take memory of their own, once.
        std::thread::sleep(Duration::from_millis(500));
        begins.store(true, Relaxed);
        something();
        ends.store(true, Relaxed);
        let (before, least) = looks.join().expect("it only looks");
        assert!(
            least * 100 >= before * 99,
            "of {before} keys {least} are left"
        );
    });
    assert_eq!(errors.load(Relaxed), 0);
}

#[test]
fn a_disk_that_stalls_costs_no_data() {
    if support::is_stand_in() {
        return;
    }
    let server = start_loaded(&options().with("appendonly", "yes"));
    fill(&server);
    let mut client = server.raw();
    assert_keeps_all_during(&server, || {
        check(&mut client, "DEBUG AOF-FLUSH-SLEEP 1500000", "OK");
        std::thread::sleep(Duration::from_secs(4));
        check(&mut client, "DEBUG AOF-FLUSH-SLEEP 0", "OK");
    });
    let waits = info_number(&mut client, "persistence", "writer_waits_for_disk");
    assert!(waits > 0.0, "writers wait for the disk at a bound");
    let bound = info_number(&mut client, "memory", "mem_not_counted_log");
    assert!(bound < 10e6, "{bound}");
}

#[test]
fn an_append_only_file_takes_no_room_from_data() {
    if support::is_stand_in() {
        return;
    }
    let without = fill(&Server::start(&options()));
    let with = fill(&start_loaded(&options().with("appendonly", "yes")));
    assert!(with * 100 >= without * 98, "{with} keys, {without} without");
}

/// Connects a replica that asks for everything, and reads nothing of it.
fn idle_replica(server: &Server) -> Raw {
    let mut replica = server.raw();
    replica.send(b"PSYNC ? -1\r\n");
    let mut client = server.raw();
    eventually("the snapshot begins", || {
        info_number(&mut client, "stats", "sync_full") > 0.0
    });
    replica
}

#[test]
fn a_replica_that_takes_nothing_costs_no_data() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&options().with("repl-diskless-sync-delay", "0"));
    fill(&server);
    let mut replica = None;
    assert_keeps_all_during(&server, || {
        replica = Some(idle_replica(&server));
        std::thread::sleep(Duration::from_secs(3));
    });
}

#[test]
fn what_a_slow_snapshot_saves_out_of_turn_takes_what_it_is() {
    const KEYS: usize = 60_000;
    const VALUE: usize = 1_000;
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(
        &Options::shards(8)
            .with("repl-diskless-sync-delay", "0")
            .with("rdbcompression", "no"),
    );
    let mut client = server.raw();
    let write = |client: &mut Raw, byte: u8| {
        for begin in (0..KEYS).step_by(500) {
            let mut batch = Vec::new();
            for key in begin..begin + 500 {
                let key = format!("key:{key:06}");
                encode_into(&mut batch, &[b"SET", key.as_bytes(), &[byte; VALUE]]);
            }
            client.send(&batch);
            (0..500).for_each(|_| assert_eq!(client.read().show(), "OK"));
        }
    };
    write(&mut client, b'a');
    let before = info_number(&mut client, "memory", "used_memory");
    let _replica = idle_replica(&server);
    write(&mut client, b'b');
    let grown = info_number(&mut client, "memory", "used_memory") - before;
    // The log of a replica, and its backlog, have rooms of their own.
    let log = info_number(&mut client, "memory", "mem_not_counted_log");
    let stream = info_number(&mut client, "memory", "mem_not_counted_replicas");
    let copies = (grown - log - stream) / (KEYS * VALUE) as f64;
    assert!(copies < 1.1, "{copies} bytes for one");
}
