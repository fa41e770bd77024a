//! BLESS over sockets: blessed keys are not evicted under any policy, and files and replicas keep blessings; Redis 7.0
//! reads both.

use std::collections::BTreeSet;
use std::path::Path;

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Oracle, Server, check, eventually, info_number, start_loaded};
use crate::wire::Raw;

const BLESSED: &str = "1) \"NO-EVICT\"";
const PLAIN: &str = "(empty array)";

/// Blesses keys of every kind, and keys whose blessing ended in some way.
fn fill(raw: &mut Raw) {
    for line in [
        "SET text v",
        "SET lasting v EX 1000000",
        "RPUSH list a b",
        "SADD set a",
        "HSET hash f v",
        "ZADD zset 1 a",
        "XADD stream 1-1 f v",
        "SET cleared v",
        "SET deleted v",
        "SET name v",
        "SET plain v",
    ] {
        assert!(!raw.call(line).is_error(), "{line}");
    }
    for key in [
        "text", "lasting", "list", "set", "hash", "zset", "stream", "cleared", "deleted", "name",
    ] {
        check(raw, &format!("BLESS SET {key} NO-EVICT"), "(integer) 1");
    }
    for line in [
        "BLESS CLEAR cleared NO-EVICT",
        "DEL deleted",
        "SET deleted v",
        "RENAME name renamed",
        "COPY renamed copied",
        "SET text w",
        "HSET hash f w",
        "MOVE copied 3",
    ] {
        assert!(!raw.call(line).is_error(), "{line}");
    }
}

fn check_filled(raw: &mut Raw) {
    for key in [
        "text", "lasting", "list", "set", "hash", "zset", "stream", "renamed",
    ] {
        check(raw, &format!("BLESS GET {key}"), BLESSED);
    }
    for key in ["cleared", "deleted", "plain"] {
        check(raw, &format!("BLESS GET {key}"), PLAIN);
    }
    let scanned = raw.call("BLESS SCAN 0 NO-EVICT");
    assert_eq!(scanned.items()[1].items().len(), 8, "{}", scanned.show());
    check(raw, "SELECT 3", "OK");
    check(raw, "BLESS GET copied", BLESSED);
    check(raw, "SELECT 0", "OK");
    assert_eq!(info_number(raw, "stats", "blessed_keys"), 9.0);
}

#[test]
fn blessed_keys_outlive_the_pressure_of_every_policy() {
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let server = Server::start(&Options::shards(4).with("maxmemory-policy", policy));
        let mut raw = server.raw();
        let value = "x".repeat(500);
        let lines: Vec<String> = (0..4_000)
            .map(|number| format!("SET key:{number} {value} EX {}", 1_000 + number))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        raw.pipeline(&lines);
        // Those with the soonest deadlines and the oldest, which would go first.
        let names: BTreeSet<String> = (0..200).map(|number| format!("key:{number}")).collect();
        for name in &names {
            check(
                &mut raw,
                &format!("BLESS SET {name} NO-EVICT"),
                "(integer) 1",
            );
        }
        let used = info_number(&mut raw, "memory", "used_memory") as u64;
        let limit = used - 1_000_000;
        check(&mut raw, &format!("CONFIG SET maxmemory {limit}"), "OK");
        for number in 0..3_000 {
            let reply = raw.call(&format!("SET new:{number} {value} EX 100"));
            assert_eq!(reply.show(), "OK", "{policy}");
        }
        eventually("keys were evicted", || {
            info_number(&mut raw, "stats", "evicted_keys") >= 1_000.0
        });
        for name in &names {
            check(&mut raw, &format!("EXISTS {name}"), "(integer) 1");
        }
        assert_eq!(info_number(&mut raw, "stats", "blessed_keys"), 200.0);
    }
}

/// Commands that may grow are refused when nothing is left to evict; BLESS CLEAR is not.
#[test]
fn clearing_a_blessing_makes_room_again_where_everything_is_blessed() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "CONFIG SET maxmemory-policy allkeys-lru", "OK");
        let value = "x".repeat(500);
        for number in 0..2_000 {
            raw.call(&format!("SET key:{number} {value}"));
            raw.call(&format!("BLESS SET key:{number} NO-EVICT"));
        }
        let used = info_number(&mut raw, "memory", "used_memory") as u64;
        let limit = format!("CONFIG SET maxmemory {}", used - 500_000);
        check(&mut raw, &limit, "OK");
        let refused = "(error) OOM command not allowed when used memory > 'maxmemory'.";
        check(&mut raw, "SET more v", refused);
        check(&mut raw, "BLESS SET key:0 NO-EVICT", refused);
        check(&mut raw, "DBSIZE", "(integer) 2000");
        for number in 0..2_000 {
            let line = format!("BLESS CLEAR key:{number} NO-EVICT");
            assert!(!raw.call(&line).is_error(), "{line}");
        }
        eventually("there is room", || raw.call("SET more v").show() == "OK");
        assert!(raw.call("DBSIZE").integer() < 2_001);
    });
}

fn options(dir: &Path) -> Options {
    Options::shards(8).with("dir", &dir.display().to_string())
}

#[test]
fn snapshots_keep_blessings_and_redis_passes_them_over() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    {
        let server = Server::start(&options(dir.path()));
        let mut raw = server.raw();
        fill(&mut raw);
        check(&mut raw, "SAVE", "OK");
        check_filled(&mut raw);
        check(&mut raw, "DEBUG RELOAD", "OK");
        check_filled(&mut raw);
    }
    if let Some(Oracle(redis)) = Oracle::start_in(dir.path()) {
        let mut raw = redis.raw();
        eventually("it has loaded", || raw.call("GET text").show() == "\"w\"");
        check(&mut raw, "DBSIZE", "(integer) 11");
    }
    let server = start_loaded(&options(dir.path()));
    check_filled(&mut server.raw());
}

#[test]
fn append_only_files_keep_blessings_and_redis_reads_them() {
    let check_in_redis = |raw: &mut Raw| {
        eventually("it has loaded", || raw.call("GET text").show() == "\"w\"");
        check(raw, "DBSIZE", "(integer) 11");
    };
    support::outlives_rewrites(options, fill, check_filled, check_in_redis, |_| ());
}

#[test]
fn replicas_of_basalt_keep_blessings_and_those_of_redis_the_keys() {
    let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    let replica = Server::start(&Options::shards(4));
    let mut raw = primary.raw();
    fill(&mut raw);
    follow(&replica, &primary);
    settle(&[&primary, &replica]);
    check_filled(&mut replica.raw());
    check(&mut raw, "FLUSHALL", "OK");
    let redis = Oracle::start();
    let mut all = vec![&primary, &replica];
    if let Some(Oracle(redis)) = &redis {
        follow(redis, &primary);
        all.push(redis);
    }
    fill(&mut raw);
    settle(&all);
    check_filled(&mut replica.raw());
    check(
        &mut replica.raw(),
        "BLESS SET plain NO-EVICT",
        "(error) READONLY You can't write against a read only replica.",
    );
    for server in &all[1..] {
        check(&mut server.raw(), "DBSIZE", "(integer) 11");
    }
}

#[test]
fn users_scripts_and_transactions_bless_as_they_may() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "MSET a 1 b 2", "OK");
        check(
            &mut raw,
            "BLESS NOSUCH a",
            "(error) ERR unknown subcommand 'NOSUCH'. Try BLESS HELP.",
        );
        check(
            &mut raw,
            "EVAL \"return redis.call('BLESS','SET',KEYS[1],'NO-EVICT')\" 1 a",
            "(integer) 1",
        );
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "BLESS SET b NO-EVICT", "QUEUED");
        check(&mut raw, "BLESS GET none", "QUEUED");
        check(&mut raw, "BLESS SCAN 0 NO-EVICT COUNT 10", "QUEUED");
        let replies = raw.call("EXEC");
        assert_eq!(replies.items()[0].show(), "(integer) 1");
        assert_eq!(replies.items()[1].show(), "(error) ERR no such key");
        assert_eq!(replies.items()[2].items()[1].items().len(), 2);
        check(
            &mut raw,
            "ACL SETUSER reader on nopass ~a %R~b +@all -@dangerous",
            "OK",
        );
        let mut other = server.raw();
        check(&mut other, "AUTH reader x", "OK");
        let denied = other.call("BLESS CLEAR a NO-EVICT").show();
        assert!(denied.starts_with("(error) NOPERM"), "{denied}");
        check(&mut other, "BLESS GET a", BLESSED);
        check(&mut raw, "ACL SETUSER reader +bless", "OK");
        check(&mut other, "BLESS CLEAR a NO-EVICT", "(integer) 1");
        let denied = other.call("BLESS CLEAR b NO-EVICT").show();
        assert!(denied.starts_with("(error) NOPERM"), "{denied}");
    });
}
