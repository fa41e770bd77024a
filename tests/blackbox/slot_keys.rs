//! The keys of a hash slot, counted and listed by one server that is a whole cluster: CLUSTER COUNTKEYSINSLOT
//! and GETKEYSINSLOT agree with a scan of all keys, after any operation.

use std::collections::BTreeMap;

use crate::replicated::{Writer, follow, settle};
use crate::support::{self, Draw, Options, Server, check, eventually, info_number, start_loaded};
use crate::wire::Raw;

const DATABASES: usize = 3;

fn options(shards: usize) -> Options {
    Options::shards(shards)
        .threads(2)
        .with("cluster-enabled", "emulated")
}

/// Compares the keys of each slot with their names; returns the difference, if any.
fn differs(client: &mut Raw) -> Option<String> {
    for db in 0..DATABASES {
        check(client, &format!("SELECT {db}"), "OK");
        let mut slots = BTreeMap::<i64, Vec<Vec<u8>>>::new();
        for key in client.call("KEYS *").items() {
            let slot = client.command(&[b"CLUSTER", &b"KEYSLOT"[..], key.bytes()]);
            let keys = slots.entry(slot.integer()).or_default();
            keys.push(key.bytes().to_vec());
        }
        for (slot, keys) in &mut slots {
            let count = client
                .call(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))
                .integer();
            let listed = client.call(&format!("CLUSTER GETKEYSINSLOT {slot} 1000000"));
            let mut listed: Vec<Vec<u8>> = (listed.items().iter())
                .map(|key| key.bytes().to_vec())
                .collect();
            listed.sort();
            keys.sort();
            if count != keys.len() as i64 || listed != *keys {
                let (listed, keys) = (listed.len(), keys.len());
                return Some(format!(
                    "slot {slot} of database {db}: {count} counted, {listed} listed, {keys} there"
                ));
            }
        }
        let lines: Vec<String> = (0..16_384)
            .map(|slot| format!("CLUSTER COUNTKEYSINSLOT {slot}"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let counts = client.pipeline(&lines);
        let sum: i64 = counts.iter().map(|count| count.integer()).sum();
        let size = client.call("DBSIZE").integer();
        if sum != size {
            return Some(format!(
                "{sum} keys in all slots of {size} in database {db}"
            ));
        }
    }
    check(client, "SELECT 0", "OK");
    None
}

/// Checks the counts, which include due keys until these are removed.
fn agrees(client: &mut Raw) {
    eventually("slots have the keys that there are", || {
        let difference = differs(client);
        if let Some(text) = &difference {
            eprintln!("not yet: {text}");
        }
        difference.is_none()
    });
}

/// Returns one of few keys, many of which share a tag.
fn key(draw: &mut Draw) -> String {
    match draw.below(3) {
        0 => format!("{{tag}}{}", draw.below(400)),
        1 => format!("{{{}}}{}", draw.below(10), draw.below(10)),
        _ => format!("k{}", draw.below(200)),
    }
}

fn write(client: &mut Raw, draw: &mut Draw) {
    let (one, other, db) = (key(draw), key(draw), draw.below(DATABASES));
    let ms = 1 + draw.below(40);
    let line = match draw.below(40) {
        0..10 => format!("SET {one} value"),
        10 => format!("SET {one} value PX {ms}"),
        11 => format!("PEXPIRE {one} {ms}"),
        12 => format!("DEL {one} {other} {one}"),
        13 => format!("UNLINK {one}"),
        14 | 15 => format!("RENAME {one} {other}"),
        16 => format!("RENAMENX {one} {other}"),
        17 | 18 => format!("COPY {one} {other} DB {db} REPLACE"),
        19 => format!("MOVE {one} {db}"),
        20 => format!("HSET h{one} f 1 g 2"),
        21 => format!("HPEXPIRE h{one} {ms} FIELDS 2 f g"),
        22 => format!("RPUSH l{one} 1 2 3"),
        23 => format!("LPOP l{one} 2"),
        24 => format!("SINTERSTORE s{one} s{other} s{one}"),
        25 => format!("SADD s{one} a b c"),
        26 => format!("LMOVE l{one} l{other} LEFT RIGHT"),
        27 => format!("MSET {one} 1 {other} 2 k1 3"),
        28 => format!("GETDEL {one}"),
        // Undeclared keys, so that the script is rolled back when it needs another shard.
        29 | 30 => format!(
            "EVAL \"redis.call('SET', '{one}', 1) redis.call('DEL', '{other}') \
             redis.call('RENAME', 'k1', '{other}') return redis.call('INCR', 'k{ms}')\" 0"
        ),
        31 => format!("EVAL \"redis.call('SET', '{one}', 1) redis.call('FLUSHDB') return 1\" 0"),
        32 => "SWAPDB 0 1".to_owned(),
        33 if draw.below(10) == 0 => "FLUSHALL ASYNC".to_owned(),
        34 if draw.below(10) == 0 => "FLUSHDB SYNC".to_owned(),
        35 if draw.below(20) == 0 => "DEBUG RELOAD".to_owned(),
        36 => format!("SELECT {db}"),
        37 => format!("SORT l{one} STORE l{other}"),
        38 => {
            let dump = client.call(&format!("DUMP {one}"));
            if !dump.is_nil() {
                let parts = [b"RESTORE", other.as_bytes(), b"0", dump.bytes(), b"REPLACE"];
                client.command(&parts);
            }
            return;
        }
        _ => {
            client.call("MULTI");
            for _ in 0..5 {
                let (one, other) = (key(draw), key(draw));
                client.call(&format!("SET {one} 1"));
                client.call(&format!("RENAME {other} {one}"));
                client.call(&format!("DEL {other}"));
            }
            client.call("SWAPDB 1 2");
            "EXEC".to_owned()
        }
    };
    client.call(&line);
}

#[test]
fn slots_have_the_keys_that_there_are_whatever_was_done() {
    if support::is_stand_in() {
        return;
    }
    for shards in [1, 4] {
        let server = Server::start(&options(shards));
        let (mut client, mut draw) = (server.raw(), Draw::new(shards as u64));
        for _round in 0..4 {
            for _ in 0..1_500 {
                write(&mut client, &mut draw);
            }
            agrees(&mut client);
        }
        // Some are evicted.
        for at in 0..3_000 {
            let value = "v".repeat(200);
            check(
                &mut client,
                &format!("SET {{x{}}}{at} {value}", at % 50),
                "OK",
            );
        }
        // Interpreters, which some of the writes made, evict nothing.
        let mut bytes = |field: &str| info_number(&mut client, "memory", field) as u64;
        let used = bytes("used_memory") - bytes("used_memory_vm_total");
        check(&mut client, "CONFIG SET maxmemory-policy allkeys-lru", "OK");
        check(
            &mut client,
            &format!("CONFIG SET maxmemory {}", used - 300_000),
            "OK",
        );
        eventually("keys are evicted", || {
            client.call("SET one more");
            info_number(&mut client, "stats", "evicted_keys") > 200.0
        });
        check(&mut client, "CONFIG SET maxmemory 0", "OK");
        agrees(&mut client);
        check(&mut client, "FLUSHALL", "OK");
        agrees(&mut client);
    }
}

#[test]
fn loaded_and_copied_data_have_their_slots_too() {
    if support::is_stand_in() {
        return;
    }
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options_of_file = options(shards)
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", "yes");
        let mut primary = start_loaded(&options_of_file);
        Writer::new(&primary, 5).write(2_000);
        let replica = Server::start(&options(shards));
        let mut client = replica.raw();
        // These go when the replica begins to follow.
        for at in 0..100 {
            check(&mut client, &format!("SET {{gone}}{at} v"), "OK");
        }
        follow(&replica, &primary);
        Writer::new(&primary, 6).write(2_000);
        settle(&[&primary, &replica]);
        agrees(&mut primary.raw());
        agrees(&mut client);
        check(&mut client, "CLUSTER KEYSLOT {gone}", "(integer) 11139");
        check(&mut client, "CLUSTER COUNTKEYSINSLOT 11139", "(integer) 0");
        // From a base and the commands after it.
        primary.signal("KILL");
        primary.wait_for_exit();
        drop(primary);
        let primary = start_loaded(&options_of_file);
        assert!(primary.raw().call("DBSIZE").integer() > 0);
        agrees(&mut primary.raw());
    }
}

#[test]
fn keys_that_migrate_leave_one_slot_and_come_to_the_other() {
    if support::is_stand_in() {
        return;
    }
    let (from, to) = (Server::start(&options(4)), Server::start(&options(1)));
    let (mut here, mut there) = (from.raw(), to.raw());
    for at in 0..100 {
        check(&mut here, &format!("SET {{a}}{at} v"), "OK");
    }
    let names: Vec<String> = (0..60).map(|at| format!("{{a}}{at}")).collect();
    let line = format!(
        "MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {}",
        to.port,
        names.join(" ")
    );
    check(&mut here, &line, "OK");
    check(&mut here, "CLUSTER COUNTKEYSINSLOT 15495", "(integer) 40");
    check(&mut there, "CLUSTER COUNTKEYSINSLOT 15495", "(integer) 60");
    agrees(&mut here);
    agrees(&mut there);
}
