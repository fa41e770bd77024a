//! What each database takes, and how its clients fare.

use crate::support::{self, Options, Server, check, is_stand_in};
use crate::wire::Raw;

/// A figure of a database's line of INFO keyspace.
fn figure(raw: &mut Raw, db: usize, name: &str) -> i64 {
    let line = support::info_field(raw, "keyspace", &format!("db{db}"));
    let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(field, _)| *field == name);
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is not in {line}"));
    value.parse().expect("a number")
}

#[test]
fn each_database_has_figures_of_its_own() {
    if is_stand_in() {
        return;
    }
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        check(&mut raw, "MSET a 1 b 2", "OK");
        check(&mut raw, "SELECT 3", "OK");
        check(&mut raw, &format!("SET big {}", "x".repeat(5_000)), "OK");
        check(&mut raw, "SET short v PX 1", "OK");
        for line in ["GET big", "GET big", "EXISTS big none", "GET none"] {
            raw.call(line);
        }
        support::eventually("the key is gone", || raw.call("GET short").is_nil());
        let of = |raw: &mut Raw, db| {
            ["keys", "expires", "hits", "misses", "expired", "evicted"]
                .map(|name| figure(raw, db, name))
        };
        let [keys, expires, hits, misses, expired, evicted] = of(&mut raw, 3);
        assert_eq!([keys, expires, hits, expired, evicted], [1, 0, hits, 1, 0]);
        assert!(hits >= 3 && misses >= 3, "{hits} {misses}");
        assert_eq!(of(&mut raw, 0), [2, 0, 0, 0, 0, 0]);
        let (first, other) = (figure(&mut raw, 0, "bytes"), figure(&mut raw, 3, "bytes"));
        assert!(other > first + 4_000, "{first} {other}");
        // Figures of data go with the data, counts stay with the number.
        check(&mut raw, "SWAPDB 0 3", "OK");
        assert_eq!(figure(&mut raw, 0, "bytes"), other);
        assert_eq!(figure(&mut raw, 3, "bytes"), first);
        assert_eq!(figure(&mut raw, 3, "hits"), hits);
        // What is undone of a script is not counted, nor is it when it runs again.
        check(&mut raw, "SELECT 0", "OK");
        let script =
            "redis.call('GET','big'); redis.call('SELECT',3); redis.call('GET','a'); return 1";
        check(&mut raw, &format!("EVAL \"{script}\" 0"), "(integer) 1");
        assert_eq!(figure(&mut raw, 0, "hits"), 1);
        assert_eq!(figure(&mut raw, 3, "hits"), hits + 1);
        let all = support::info_field(&mut raw, "stats", "keyspace_hits");
        assert_eq!(all, (hits + 2).to_string());
        check(&mut raw, "MOVE big 3", "(integer) 1");
        let moved = figure(&mut raw, 3, "bytes");
        assert!(moved > first + 4_000, "{first} {moved}");
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        assert_eq!(figure(&mut raw, 3, "hits"), 0);
        check(&mut raw, "FLUSHDB", "OK");
        let keyspace = raw.call("INFO keyspace").body();
        assert!(!keyspace.contains("db0:"), "{keyspace}");
    });
}

#[test]
fn metrics_tell_databases_apart() {
    if is_stand_in() {
        return;
    }
    let port = support::free_port();
    let options = Options::shards(8).with("metrics-port", &port.to_string());
    let server = Server::start(&options.with("maxmemory-policy", "allkeys-random"));
    let mut raw = server.raw();
    check(&mut raw, "SELECT 2", "OK");
    check(&mut raw, "DEBUG POPULATE 5000 key 200", "OK");
    check(
        &mut raw,
        "GET key:7",
        &format!("\"value:7{}\"", "\\x00".repeat(193)),
    );
    raw.call("GET none");
    let before = support::info_field(&mut raw, "memory", "used_memory");
    let limit = before.parse::<i64>().expect("a number") - 400_000;
    check(&mut raw, &format!("CONFIG SET maxmemory {limit}"), "OK");
    support::eventually("keys go", || figure(&mut raw, 2, "evicted") > 100);
    let page = support::http(port, "/metrics");
    let value = |name: &str, db: usize| -> f64 {
        let series = format!("{name}{{db=\"db{db}\"}} ");
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(&series));
        let value = lines.next().unwrap_or_else(|| panic!("no {series}"));
        value.parse().expect("a number")
    };
    assert!(value("basalt_db_bytes", 2) > 400_000.0);
    assert_eq!(value("basalt_db_hits_total", 2), 1.0);
    assert_eq!(value("basalt_db_misses_total", 2), 1.0);
    assert!(value("basalt_db_evicted_keys_total", 2) > 100.0);
    for name in [
        "basalt_db_bytes",
        "basalt_db_hits_total",
        "basalt_db_evicted_keys_total",
        "basalt_db_expired_keys_total",
    ] {
        assert_eq!(value(name, 0), 0.0, "{name}");
    }
}
