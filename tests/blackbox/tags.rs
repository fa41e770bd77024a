//! Tags and stale windows over sockets: no client sees an invalidated key, and files and replicas keep tags
//! and windows; and how Redis 7.0 reads them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use crate::replicated::{follow, settle};
use crate::support::{
    self, Options, Oracle, Server, check, eventually, info_number, start_loaded, variable,
};
use crate::wire::Raw;

fn options(dir: &Path) -> Options {
    Options::shards(8).with("dir", &dir.display().to_string())
}

/// Keys of every kind with tags and stale windows, and some without; some tags are invalidated meanwhile.
fn fill(raw: &mut Raw) {
    for number in 0..400 {
        raw.call(&format!(
            "SET page:{number} v TAGS 2 page shop:{}",
            number % 4
        ));
    }
    raw.call("SET stale old PX 1 STALE 100000000");
    raw.call(&format!("SET long {} TAGS 1 page", "x".repeat(50_000)));
    for number in 0..1_500 {
        raw.call(&format!("SADD large member:{number}"));
    }
    raw.call("RPUSH list a b c");
    raw.call("HSET hash f v");
    for key in ["large", "list", "hash"] {
        raw.call(&format!("TAG ADD {key} page kinds"));
    }
    raw.call("SET number 1 TAGS 1 kinds");
    raw.call("INCRBYFLOAT number 0.5");
    raw.call("COPY number copied");
    raw.call("RENAME list renamed");
    raw.call("SET plain v TAGS 1 page");
    raw.call("SET plain w");
    raw.call("SET gone v TAGS 1 gone");
    raw.call("TAG INVALIDATE gone shop:3");
    raw.call("SELECT 3");
    raw.call("SET elsewhere v TAGS 1 page");
    raw.call("SELECT 0");
}

/// Checks that the data of [`fill`] are there, with tags and windows.
fn check_filled(raw: &mut Raw) {
    check(raw, "TAG COUNT page", "(integer) 304");
    check(raw, "TAG COUNT shop:1", "(integer) 100");
    check(raw, "TAG COUNT shop:3", "(integer) 0");
    check(raw, "TAG COUNT kinds", "(integer) 5");
    check(raw, "TAG COUNT gone", "(integer) 0");
    check(raw, "TAG OF copied", "1) \"kinds\"");
    check(raw, "TAG OF plain", "(empty array)");
    check(raw, "GET number", "\"1.5\"");
    check(raw, "SCARD large", "(integer) 1500");
    check(raw, "EXISTS gone page:3", "(integer) 0");
    check(raw, "SELECT 3", "OK");
    check(raw, "TAG COUNT page", "(integer) 1");
    check(raw, "SELECT 0", "OK");
}

fn check_stale(raw: &mut Raw) {
    let shown = raw.call("LGET stale LEASE 1").show();
    assert!(shown.starts_with("1) \"old\"\n2) stale\n"), "{shown}");
}

fn invalidate_all(raw: &mut Raw) {
    let count = raw.call("TAG INVALIDATE page kinds").integer();
    assert!(count >= 304, "{count}");
    check(
        raw,
        "EXISTS page:1 large hash renamed long number copied",
        "(integer) 0",
    );
    check(raw, "EXISTS plain stale", "(integer) 2");
    eventually("the keys are freed", || raw.call("DBSIZE").integer() == 2);
}

#[test]
fn snapshots_keep_tags_and_stale_windows_and_redis_passes_them_over() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    {
        let server = Server::start(&options(dir.path()));
        let mut raw = server.raw();
        fill(&mut raw);
        check(&mut raw, "SAVE", "OK");
        check_filled(&mut raw);
        check(&mut raw, "DEBUG RELOAD", "OK");
        check_filled(&mut raw);
        check_stale(&mut raw);
    }
    if let Some(Oracle(redis)) = Oracle::start_in(dir.path()) {
        let mut raw = redis.raw();
        eventually("it has loaded", || raw.call("GET page:1").show() == "\"v\"");
        check(
            &mut raw,
            "EXISTS large renamed hash long stale plain number copied",
            "(integer) 8",
        );
        check(&mut raw, "EXISTS gone page:3", "(integer) 0");
        check(&mut raw, "DBSIZE", "(integer) 308");
    }
    let server = start_loaded(&options(dir.path()));
    let mut raw = server.raw();
    check_filled(&mut raw);
    check_stale(&mut raw);
    invalidate_all(&mut raw);
}

#[test]
fn append_only_files_keep_tags_and_stale_windows_and_redis_reads_them() {
    let check_in_redis = |raw: &mut Raw| {
        eventually("it has loaded", || raw.call("GET page:1").show() == "\"v\"");
        check(
            raw,
            "EXISTS large renamed hash long stale plain number copied",
            "(integer) 8",
        );
        check(raw, "DBSIZE", "(integer) 308");
    };
    let check_at_last = |raw: &mut Raw| {
        check_stale(raw);
        invalidate_all(raw);
    };
    support::outlives_rewrites(options, fill, check_filled, check_in_redis, check_at_last);
}

#[test]
fn what_was_invalidated_stays_so_when_the_server_is_killed_at_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path())
        .with("appendonly", "yes")
        .with("appendfsync", "always");
    {
        let mut server = start_loaded(&options);
        let mut raw = server.raw();
        let lines: Vec<String> = (0..20_000)
            .map(|number| format!("SET key:{number} v TAGS 1 all"))
            .collect();
        for lines in lines.chunks(1_000) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            raw.pipeline(&lines);
        }
        check(&mut raw, "TAG INVALIDATE all", "(integer) 20000");
        server.signal("KILL");
        server.wait_for_exit();
    }
    let server = start_loaded(&options);
    let mut raw = server.raw();
    check(&mut raw, "EXISTS key:1 key:19999", "(integer) 0");
    check(&mut raw, "KEYS *", "(empty array)");
}

#[test]
fn replicas_of_basalt_keep_tags_and_those_of_redis_the_keys() {
    let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    let replica = Server::start(&Options::shards(4));
    let mut raw = primary.raw();
    // Some of it comes with the snapshot, and the same by the stream.
    fill(&mut raw);
    follow(&replica, &primary);
    settle(&[&primary, &replica]);
    check_filled(&mut replica.raw());
    check_stale(&mut replica.raw());
    raw.call("FLUSHALL");
    fill(&mut raw);
    let redis = Oracle::start();
    let mut all = vec![&primary, &replica];
    if let Some(Oracle(redis)) = &redis {
        follow(redis, &primary);
        all.push(redis);
    }
    settle(&all);
    check_filled(&mut replica.raw());
    raw.call("SET later v TAGS 1 page");
    settle(&all);
    check(&mut replica.raw(), "TAG OF later", "1) \"page\"");
    let readonly = "(error) READONLY You can't write against a read only replica.";
    check(&mut replica.raw(), "TAG ADD later more", readonly);
    check(&mut replica.raw(), "TAG INVALIDATE page", readonly);
    invalidate_all(&mut raw);
    settle(&all);
    for server in &all[1..] {
        let mut raw = server.raw();
        check(&mut raw, "DBSIZE", "(integer) 2");
        check(&mut raw, "GET plain", "\"w\"");
    }
}

/// `BASALT_TAG_KEYS` sets the number of keys.
#[test]
fn no_read_behind_the_reply_sees_a_key_of_an_invalidated_tag() {
    let keys = variable("BASALT_TAG_KEYS", 40_000);
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let lines: Vec<String> = (0..keys)
            .map(|number| format!("SET key:{number} v TAGS 1 all"))
            .collect();
        for lines in lines.chunks(1_000) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            raw.pipeline(&lines);
        }
        drop(lines);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..4u64)
                .map(|reader| {
                    let (is_over, mut raw) = (&is_over, server.raw());
                    scope.spawn(move || {
                        let mut number = reader;
                        let mut looks_after = 0;
                        while looks_after < 300 {
                            let was_over = is_over.load(SeqCst);
                            number = (number * 48_271 + 11) % keys;
                            let line = match number % 4 {
                                0 => format!("GET key:{number}"),
                                1 => format!(
                                    "EVAL \"return redis.call('GET', KEYS[1])\" 1 key:{number}"
                                ),
                                2 => "RANDOMKEY".to_owned(),
                                _ => format!("GETRANGE key:{number} 0 -1"),
                            };
                            let reply = raw.call(&line);
                            if was_over {
                                looks_after += 1;
                                assert!(reply.is_nil() || reply.body().is_empty(), "{line}");
                            }
                        }
                    })
                })
                .collect();
            check(&mut raw, "TAG INVALIDATE all", &format!("(integer) {keys}"));
            is_over.store(true, SeqCst);
            check(&mut raw, "KEYS *", "(empty array)");
            for reader in readers {
                reader.join().expect("no reader fails");
            }
        });
        eventually("all are freed", || raw.call("DBSIZE").integer() == 0);
        assert_eq!(
            info_number(&mut raw, "leases", "tags_keys_invalidated"),
            keys as f64
        );
    });
}

#[test]
fn transactions_and_scripts_see_their_own_invalidations() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let set = "SET {a}1 v TAGS 1 t";
        raw.pipeline(&[set, "SET {b}1 v TAGS 1 t"]);
        let replies = raw.pipeline(&["MULTI", "TAG INVALIDATE t", "MGET {a}1 {b}1", set, "EXEC"]);
        assert_eq!(
            replies[4].show(),
            "1) (integer) 2\n2) 1) (nil)\n   2) (nil)\n3) OK"
        );
        check(&mut raw, "MGET {a}1 {b}1", "1) \"v\"\n2) (nil)");
        let script = "EVAL \"local n = redis.call('TAG','INVALIDATE','t') \
                      return {n, redis.call('EXISTS', KEYS[1])}\" 1 {a}1";
        check(&mut raw, script, "1) (integer) 1\n2) (integer) 0");
        // A client that watches a key is affected.
        let mut other = server.raw();
        raw.call(set);
        raw.pipeline(&["WATCH {a}1", "MULTI", "PING"]);
        check(&mut other, "TAG INVALIDATE t", "(integer) 1");
        check(&mut raw, "EXEC", "(nil array)");
        // And so is a client that waits for a key being loaded: its lease ends with the tag.
        check(&mut other, "SET {a}1 v PX 1 STALE 1000000 TAGS 1 t", "OK");
        eventually("it is stale", || {
            other.call("LGET {a}1 LEASE 1").show().contains("stale")
        });
        eventually("a token is given", || {
            other.call("LGET {a}1 LEASE 600000").items()[2].integer() > 0
        });
        check(&mut other, "TAG INVALIDATE t", "(integer) 1");
        assert_eq!(other.call("LGET {a}1 LEASE 1000").items()[1].text(), "miss");
    });
}
