//! Locks with waiting clients: which client gets the lock, when and in which order, every way in which a wait
//! can end; and what remains of a lock after a restart, on replicas and in the files of redis-server.

use std::time::Duration;

use crate::replicated::{follow, info, settle};
use crate::support::{
    Options, Oracle, Server, at_each_shard_count, blocked, check, eventually, start_loaded,
};
use crate::wire::{Raw, Value};

/// Returns the fence and the number of holds in a reply.
fn had(reply: &Value) -> (u64, i64) {
    let items = reply.items();
    (items[0].integer().unsigned_abs(), items[1].integer())
}

fn lock(raw: &mut Raw, line: &str) -> (u64, i64) {
    had(&raw.call(line))
}

/// Returns the number of clients that wait for this client's lock.
fn waiting_count(raw: &mut Raw) -> i64 {
    raw.call("LOCKINFO l").items()[9].integer()
}

fn calls(raw: &mut Raw, command: &str) -> u64 {
    let text = raw.call("INFO commandstats").body();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    let count = line.and_then(|line| line.split(',').next());
    count.map_or(0, |count| count.parse().expect("a count"))
}

/// Fifty owners wait for one lock: each release hands it to the first in line, which is woken once and sends
/// no second request.
#[test]
fn fifty_owners_get_a_lock_in_the_order_of_their_coming_by_one_request_each() {
    const OWNERS: usize = 50;
    at_each_shard_count(|server| {
        let mut other = server.raw();
        let (mut fence, _) = lock(&mut other, "LOCK l first 600000");
        let mut waiters: Vec<Raw> = (0..OWNERS)
            .map(|number| {
                let line = format!("LOCK l owner:{number} 600000 WAIT 600000");
                blocked(server, &mut other, &line)
            })
            .collect();
        assert_eq!(waiting_count(&mut other), OWNERS as i64);
        let mut holder = "first".to_owned();
        for (number, waiter) in waiters.iter_mut().enumerate() {
            check(&mut other, &format!("UNLOCK l {holder}"), "(integer) 0");
            let (next, holds) = had(&waiter.read());
            assert!(next > fence && holds == 1, "{next} after {fence}");
            fence = next;
            holder = format!("owner:{number}");
            let told = other.call("LOCKINFO l");
            assert_eq!(told.items()[1].text(), holder);
            assert_eq!(told.items()[9].integer(), (OWNERS - number - 1) as i64);
        }
        assert_eq!(calls(&mut other, "lock"), 1 + OWNERS as u64);
        assert_eq!(
            info(&mut other, "locks_handed_over"),
            OWNERS.to_string(),
            "each was handed over"
        );
        check(&mut other, "UNLOCK l owner:49", "(integer) 0");
        check(&mut other, "EXISTS l", "(integer) 0");
        assert_eq!(info(&mut other, "total_blocking_keys"), "0");
    });
}

#[test]
fn the_first_in_line_has_a_lock_when_it_runs_out_or_goes_whatever_takes_it_away() {
    at_each_shard_count(|server| {
        let mut other = server.raw();
        for way in [
            "",
            "DEL l",
            "UNLINK l",
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 5",
            "RENAME l elsewhere",
            "PEXPIRE l 1",
            "PEXPIRE l -1",
            "HDEL l holder",
            "MOVE l 7",
            "EVAL \"return redis.call('DEL', KEYS[1])\" 1 l",
        ] {
            other.call("FLUSHALL");
            let ttl = if way.is_empty() { 60 } else { 600_000 };
            let (fence, _) = lock(&mut other, &format!("LOCK l holder {ttl}"));
            let mut first = blocked(server, &mut other, "LOCK l a 600000 WAIT 600000");
            let mut second = blocked(server, &mut other, "LOCK l b 600000 WAIT 600000");
            if !way.is_empty() {
                other.call(way);
            }
            let (next, holds) = had(&first.read());
            assert!(next > fence && holds == 1, "{way}");
            check(&mut other, "HGETALL l", "1) \"a\"\n2) \"1\"");
            assert_eq!(waiting_count(&mut other), 1, "{way}");
            check(&mut other, "UNLOCK l a", "(integer) 0");
            assert_eq!(had(&second.read()).1, 1, "{way}");
        }
        // A new lock under that key may be another owner's.
        other.call("FLUSHALL");
        other.call("HSET other x 1");
        lock(&mut other, "LOCK l holder 600000");
        let mut first = blocked(server, &mut other, "LOCK l a 600000 WAIT 600000");
        other.call("RENAME other l");
        assert_eq!(waiting_count(&mut other), 1);
        other.call("SET l v");
        let shown = first.read().show();
        assert!(shown.starts_with("(error) WRONGTYPE"), "{shown}");
    });
}

/// An expired lock goes to the first waiter, never to a client that arrives at the right moment; an owner
/// that already has the lock does not wait for it.
#[test]
fn a_lock_whose_time_is_over_is_the_first_ones_and_not_the_next_comers() {
    at_each_shard_count(|server| {
        let mut other = server.raw();
        // Nothing expires by itself: the next comer comes across the lock.
        check(&mut other, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        lock(&mut other, "LOCK l holder 30");
        let mut first = blocked(server, &mut other, "LOCK l a 600000 WAIT 600000");
        std::thread::sleep(Duration::from_millis(40));
        check(&mut other, "LOCK l b 600000", "(nil array)");
        assert_eq!(had(&first.read()).1, 1);
        let mut second = blocked(server, &mut other, "LOCK l b 600000 WAIT 600000");
        assert_eq!(lock(&mut other, "LOCK l a 600000 WAIT 600000").1, 2);
        check(&mut other, "UNLOCK l a", "(integer) 1");
        assert_eq!(waiting_count(&mut other), 1);
        // In a transaction nothing waits, and its commands do not overtake the waiting clients.
        for line in ["MULTI", "UNLOCK l a", "LOCK l c 600000 WAIT 600000"] {
            other.call(line);
        }
        check(&mut other, "EXEC", "1) (integer) 0\n2) (nil array)");
        assert_eq!(had(&second.read()).1, 1);
        let script = "EVAL \"return redis.call('LOCK', KEYS[1], 'd', 1000, 'WAIT', 600000)\" 1 l";
        check(&mut other, script, "(nil)");
        check(&mut other, "UNLOCK l b", "(integer) 0");
        check(
            &mut other,
            &script.replace("return", "return #"),
            "(integer) 2",
        );
    });
}

#[test]
fn a_wait_ends_with_its_time_by_unblock_and_with_its_client() {
    at_each_shard_count(|server| {
        let mut other = server.raw();
        lock(&mut other, "LOCK l holder 600000");
        let mut late = blocked(server, &mut other, "LOCK l late 1000 WAIT 50");
        check_read(&mut late, "(nil array)");
        let mut raw = server.raw();
        let id = raw.call("CLIENT ID").integer();
        for (how, shown) in [
            ("", "(nil array)"),
            (" TIMEOUT", "(nil array)"),
            (
                " ERROR",
                "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            raw.send(b"LOCK l me 1000 WAIT 600000\r\n");
            eventually("it waits", || {
                other.call(&format!("CLIENT UNBLOCK {id}{how}")).integer() == 1
            });
            check_read(&mut raw, shown);
        }
        // Waiters that have disconnected are skipped.
        let gone = blocked(server, &mut other, "LOCK l gone 600000 WAIT 600000");
        let mut killed = server.raw();
        let id = killed.call("CLIENT ID").integer();
        killed.send(b"LOCK l killed 600000 WAIT 600000\r\n");
        let mut next = blocked(server, &mut other, "LOCK l next 600000 WAIT 600000");
        check(&mut other, &format!("CLIENT KILL ID {id}"), "(integer) 1");
        drop(gone);
        check(&mut other, "UNLOCK l holder", "(integer) 0");
        // A client that has only just disconnected may still get the lock; it loses it by expiry or by hand.
        let owner = other.call("LOCKINFO l").items()[1].text();
        if owner != "next" {
            check(&mut other, &format!("UNLOCK l {owner}"), "(integer) 0");
        }
        assert_eq!(had(&next.read()).1, 1);
        check(&mut other, "UNLOCK l next", "(integer) 0");
        assert_eq!(info(&mut other, "total_blocking_keys"), "0");
        assert_eq!(info(&mut other, "total_blocking_keys_on_nokey"), "0");
    });
}

#[track_caller]
fn check_read(raw: &mut Raw, expected: &str) {
    assert_eq!(raw.read().show(), expected);
}

#[test]
fn a_server_that_becomes_a_replica_sends_its_waiters_away_and_takes_no_locks() {
    let primary = Server::start(&Options::shards(2));
    let server = Server::start(&Options::shards(2));
    let mut other = server.raw();
    lock(&mut other, "LOCK l holder 600000");
    let mut waiter = blocked(&server, &mut other, "LOCK l a 1000 WAIT 600000");
    let mut due = blocked(&server, &mut other, "BZPOPDUE q 0");
    follow(&server, &primary);
    for raw in [&mut waiter, &mut due] {
        let shown = raw.read().show();
        assert!(
            shown.starts_with("(error) UNBLOCKED force unblock"),
            "{shown}"
        );
    }
    for line in [
        "LOCK l a 1000 WAIT 5",
        "UNLOCK l a",
        "LOCKEXTEND l a 5",
        "SET k v FENCE l 1",
        "INCREX k",
        "CL.THROTTLE k 1 1 1",
        "ZPOPDUE q",
        "BZPOPDUE q 0",
        "EVAL \"return redis.call('LOCK', KEYS[1], 'a', 5)\" 1 l",
    ] {
        let shown = other.call(line).show();
        assert!(shown.contains("READONLY"), "{line}: {shown}");
    }
    check(&mut other, "LOCKINFO l", "(nil array)");
}

/// The layout of a reentrant lock of Redisson, as its documentation has it: a hash of owner and count, taken and given
/// back by scripts.
const TAKE: &str = "local free = redis.call('EXISTS', KEYS[1]) == 0 \
    if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return false end \
    return redis.call('PTTL', KEYS[1])";
const GIVE_BACK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end \
    local left = redis.call('HINCRBY', KEYS[1], ARGV[2], -1) \
    if left > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 0 end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'released', KEYS[1]) return 1";

#[test]
fn scripts_of_the_documented_layout_and_our_commands_exclude_each_other() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let theirs = |raw: &mut Raw, script: &str, owner: &str| {
            raw.command(&["EVAL", script, "1", "l", "600000", owner])
                .show()
        };
        assert_eq!(theirs(&mut raw, TAKE, "uuid:1"), "(nil)");
        check(&mut raw, "LOCK l ours 1000", "(nil array)");
        check(
            &mut raw,
            "UNLOCK l ours",
            "(error) NOTOWNER The lock is not held by this owner",
        );
        let mut waiter = blocked(server, &mut raw, "LOCK l ours 600000 WAIT 600000");
        assert_eq!(theirs(&mut raw, TAKE, "uuid:1"), "(nil)");
        assert_eq!(theirs(&mut raw, GIVE_BACK, "uuid:1"), "(integer) 0");
        assert_eq!(waiting_count(&mut raw), 1);
        assert_eq!(theirs(&mut raw, GIVE_BACK, "uuid:1"), "(integer) 1");
        assert_eq!(had(&waiter.read()).1, 1);
        // Now it is ours, and their request is refused with the remaining time of our lock.
        let left = theirs(&mut raw, TAKE, "uuid:2");
        assert!(left.starts_with("(integer) "), "{left}");
        assert_eq!(theirs(&mut raw, GIVE_BACK, "uuid:2"), "(nil)");
        check(&mut raw, "UNLOCK l ours", "(integer) 0");
        assert_eq!(theirs(&mut raw, TAKE, "uuid:2"), "(nil)");
        // The same owner can renew it by either.
        assert_eq!(lock(&mut raw, "LOCK l uuid:2 1000").1, 2);
        assert_eq!(theirs(&mut raw, GIVE_BACK, "uuid:2"), "(integer) 0");
        check(&mut raw, "UNLOCK l uuid:2", "(integer) 0");
    });
}

/// Checks a holder's guarantees after its server has restarted: its lock, its fence, and fences that keep
/// growing.
fn check_kept(client: &mut Raw, held: u64, last: u64) {
    check(client, "HGETALL {l}held", "1) \"me\"\n2) \"2\"");
    check(client, &format!("SET k v FENCE {{l}}held {held}"), "OK");
    check(
        client,
        &format!("SET k v FENCE {{l}}held {}", held + 1),
        "(nil)",
    );
    check(client, "LOCK {l}held other 1000", "(nil array)");
    assert_eq!(lock(client, "LOCK {l}held me 600000"), (held, 3));
    check(client, "UNLOCK {l}held me", "(integer) 2");
    let (next, _) = lock(client, "LOCK free me 600000");
    assert!(next > last, "{next} after {last}");
    check(client, "UNLOCK free me", "(integer) 0");
}

/// Takes a lock that stays and one that is released, whose fence is the last; a server whose clock was set
/// back returns no smaller one. Returns both fences.
fn take_two(client: &mut Raw) -> (u64, u64) {
    let (held, _) = lock(client, "LOCK {l}held me 600000");
    assert_eq!(lock(client, "LOCK {l}held me 600000"), (held, 2));
    let mut last = held;
    // Many at once: the last fence lies before the clock.
    for round in 0..40 {
        let lines: Vec<String> = (0..100)
            .flat_map(|number| {
                let key = format!("released:{}", round * 100 + number);
                [format!("LOCK {key} me 600000"), format!("UNLOCK {key} me")]
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for reply in client.pipeline(&lines).iter().step_by(2) {
            last = last.max(had(reply).0);
        }
    }
    (held, last)
}

#[test]
fn fences_outlive_restarts_by_snapshots_and_by_append_only_files() {
    for (appends, preamble, rewrites) in [
        ("no", "yes", false),
        ("yes", "yes", false),
        ("yes", "yes", true),
        ("yes", "no", true),
    ] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = Options::shards(8)
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", appends)
            .with("aof-use-rdb-preamble", preamble);
        let mut server = start_loaded(&options);
        let mut client = server.raw();
        let (held, last) = take_two(&mut client);
        if rewrites {
            check(
                &mut client,
                "BGREWRITEAOF",
                "Background append only file rewriting started",
            );
            eventually("it is rewritten", || {
                info(&mut client, "aof_rewrite_in_progress") == "0"
                    && info(&mut client, "aof_last_bgrewrite_status") == "ok"
            });
        }
        if appends == "no" {
            check(&mut client, "SAVE", "OK");
        }
        client.send_unchecked(b"SHUTDOWN\r\n");
        assert_eq!(server.wait_for_exit(), Some(0));
        let server = start_loaded(&options);
        let mut client = server.raw();
        check_kept(&mut client, held, last);
        check(&mut client, "DEBUG RELOAD", "OK");
        check_kept(&mut client, held, last);
    }
}

#[test]
fn fences_outlive_failovers_to_replicas_that_had_all_data_anew_or_the_stream() {
    for streamed in [false, true] {
        let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
        let replica = Server::start(&Options::shards(2));
        let mut client = primary.raw();
        if streamed {
            follow(&replica, &primary);
        }
        let (held, last) = take_two(&mut client);
        if !streamed {
            follow(&replica, &primary);
        }
        settle(&[&primary, &replica]);
        let mut client = replica.raw();
        let told = client.call("LOCKINFO {l}held");
        assert_eq!(told.items()[5].integer().unsigned_abs(), held);
        check(&mut client, "REPLICAOF NO ONE", "OK");
        check_kept(&mut client, held, last);
    }
}

/// Only data that redis-server cannot store are lost there.
#[test]
fn redis_server_has_the_keys_and_values_as_a_replica_and_from_the_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().display().to_string();
    let mut server = start_loaded(
        &Options::shards(8)
            .with("dir", &path)
            .with("appendonly", "yes")
            .with("repl-diskless-sync-delay", "0"),
    );
    let mut client = server.raw();
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    follow(&replica, &server);
    take_two(&mut client);
    client.call("ZADD q 1 a 2 b 9999999999 c");
    check(
        &mut client,
        "ZPOPDUE q COUNT 9",
        "1) \"a\"\n2) \"1\"\n3) \"b\"\n4) \"2\"",
    );
    client.call("INCREX counter BYINT 5 EX 600");
    client.call("CL.THROTTLE rate 5 1 60");
    let mut waiter = blocked(
        &server,
        &mut client,
        "LOCK {l}held waiter 600000 WAIT 600000",
    );
    client.call("UNLOCK {l}held me");
    client.call("UNLOCK {l}held me");
    had(&waiter.read());
    settle(&[&server, &replica]);
    let log = replica.log();
    assert!(!log.contains("CRITICAL"), "{log}");
    drop(replica);
    client.send_unchecked(b"SHUTDOWN\r\n");
    assert_eq!(server.wait_for_exit(), Some(0));
    let directives = [
        ("appendonly".to_owned(), "yes".to_owned()),
        ("dir".to_owned(), path),
    ];
    let Some(Oracle(theirs)) = Oracle::start_with(&directives) else {
        return;
    };
    let mut client = theirs.raw();
    eventually("the data are there", || {
        !client.call("GET k").show().contains("LOADING")
    });
    check(&mut client, "HGETALL {l}held", "1) \"waiter\"\n2) \"1\"");
    check(&mut client, "ZRANGE q 0 -1", "1) \"c\"");
    check(&mut client, "GET counter", "\"5\"");
    check(&mut client, "DBSIZE", "(integer) 4");
}

#[test]
fn the_rules_of_users_know_locks_and_the_lock_of_a_write() {
    let server = Server::start(&Options::shards(2));
    let mut other = server.raw();
    check(&mut other, "ACL CAT lock", {
        "1) \"lock\"\n2) \"lockextend\"\n3) \"lockinfo\"\n4) \"unlock\""
    });
    let user = "ACL SETUSER w on nopass ~k %R~l +@lock +set +hello";
    check(&mut other, user, "OK");
    let (fence, _) = lock(&mut other, "LOCK l me 600000");
    let mut raw = server.raw();
    raw.call("AUTH w x");
    check(&mut raw, &format!("SET k v FENCE l {fence}"), "OK");
    for line in ["LOCK l me 5", "SET k v FENCE other 1", "SET l v FENCE k 1"] {
        let shown = raw.call(line).show();
        assert!(shown.contains("NOPERM"), "{line}: {shown}");
    }
    check(
        &mut raw,
        "LOCK k me 600000",
        "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    // A waiter whose rules change is refused when its turn comes.
    other.call("ACL SETUSER w ~l");
    let mut waiter = server.raw();
    waiter.call("AUTH w x");
    let id = waiter.call("CLIENT ID");
    assert!(id.is_error());
    waiter.send(b"LOCK l w 600000 WAIT 600000\r\n");
    eventually("it waits", || info(&mut other, "blocked_clients") == "1");
    other.call("ACL SETUSER w resetkeys");
    check(&mut other, "UNLOCK l me", "(integer) 0");
    let shown = waiter.read().show();
    assert!(shown.contains("NOPERM"), "{shown}");
    check(&mut other, "EXISTS l", "(integer) 0");
}

#[test]
fn the_keys_of_a_write_with_a_fence_and_of_a_queue_are_found() {
    let server = Server::start(&Options::shards(8).with("cluster-enabled", "emulated"));
    let mut raw = server.raw();
    let (fence, _) = lock(&mut raw, "LOCK {a}l me 600000");
    check(
        &mut raw,
        &format!("SET {{a}}k v FENCE {{a}}l {fence}"),
        "OK",
    );
    check(
        &mut raw,
        "COMMAND GETKEYSANDFLAGS SET k v EX 5 FENCE l 7",
        "1) 1) \"k\"\n   2) 1) OW\n      2) update\n2) 1) \"l\"\n   2) 1) RO\n      2) access",
    );
    check(
        &mut raw,
        "COMMAND GETKEYS BZPOPDUE a b 0 COUNT 5",
        "1) \"a\"\n2) \"b\"",
    );
    check(
        &mut raw,
        "COMMAND GETKEYS BZPOPDUE a count 5",
        "1) \"a\"\n2) \"count\"",
    );
}

/// A lock that a script took has no fence and may be evicted. An eviction ends it like any other end: the
/// first waiter gets it.
#[test]
fn an_evicted_lock_is_the_first_ones() {
    let server = Server::start(
        &Options::shards(1)
            .with("maxmemory", "8mb")
            .with("maxmemory-policy", "allkeys-random"),
    );
    let mut other = server.raw();
    check(&mut other, "HSET l holder 1", "(integer) 1");
    check(&mut other, "PEXPIRE l 600000", "(integer) 1");
    let mut waiter = blocked(&server, &mut other, "LOCK l a 600000 WAIT 600000");
    let value = "v".repeat(1_000);
    let mut number = 0;
    eventually("the lock was evicted", || {
        for _ in 0..1_000 {
            number += 1;
            other.command(&["SET", &format!("k{number}"), &value]);
        }
        info(&mut other, "locks_handed_over") == "1"
    });
    assert_eq!(had(&waiter.read()).1, 1);
}
