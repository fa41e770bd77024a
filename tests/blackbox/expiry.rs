//! Keys that expire, by themselves and on access. Waits poll for the expected state; no test asserts how
//! fast.

use std::time::Duration;

use crate::support::{self, check};

#[test]
fn keys_go_by_themselves_and_are_counted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let lines: Vec<String> = (0..500)
            .map(|index| format!("SET gone:{index} v PX {}", 50 + index % 100))
            .collect();
        raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        check(&mut raw, "SET stays v", "OK");
        check(&mut raw, "SET later v EX 1000", "OK");
        support::eventually("all volatile keys are gone untouched", || {
            raw.call("DBSIZE").integer() == 2
        });
        let stats = raw.call("INFO stats").body();
        assert!(stats.contains("expired_keys:500\r\n"), "{stats}");
        let keyspace = raw.call("INFO keyspace").body();
        assert!(
            keyspace.contains("db0:keys=2,expires=1,avg_ttl="),
            "{keyspace}"
        );
    });
}

/// One sweeper for each 16 threads: each has shards of its own, and together they have all.
#[test]
fn the_shards_of_a_server_with_many_threads_have_several_sweepers() {
    let server = support::Server::start(&support::Options::shards(64).threads(48));
    let mut raw = server.raw();
    let process = support::info_field(&mut raw, "server", "process_id");
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    let names = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("basalt-sweeper"));
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    assert_eq!(
        names,
        ["basalt-sweeper-1", "basalt-sweeper-2"].map(|name| name[..15].to_owned())
    );
    for index in 0..20 {
        let members: Vec<String> = (0..2_000).map(|member| member.to_string()).collect();
        raw.call(&format!("SADD big:{index} {}", members.join(" ")));
    }
    let lines: Vec<String> = (0..2_000)
        .map(|index| format!("SET gone:{index} v PX 50"))
        .collect();
    raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    check(&mut raw, "SET stays v", "OK");
    for index in 0..20 {
        check(&mut raw, &format!("PEXPIRE big:{index} 50"), "(integer) 1");
    }
    support::eventually("all volatile keys are gone untouched", || {
        raw.call("DBSIZE").integer() == 1
    });
    check(&mut raw, "FLUSHALL ASYNC", "OK");
    support::eventually("all is freed", || {
        support::info_number(&mut raw, "memory", "lazyfree_pending_objects") == 0.0
            && support::info_number(&mut raw, "stats", "expired_keys") == 2_020.0
    });
}

#[test]
fn info_has_the_mean_of_the_time_that_keys_have_left() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut mean_s = || {
            let keyspace = raw.call("INFO keyspace").body();
            let (_, after) = keyspace.split_once("avg_ttl=").expect("a mean");
            let (ms, _) = after.split_once(',').expect("more fields");
            ms.parse::<u64>().expect("a number").div_ceil(1_000)
        };
        let mut raw = server.raw();
        check(&mut raw, "SET stays v", "OK");
        assert_eq!(mean_s(), 0);
        // The means of shards count by their keys; a slow machine may take a while between two requests.
        let about = |mean_s: u64, expected_s: u64| {
            let late_s = expected_s.checked_sub(mean_s);
            assert!(
                late_s.is_some_and(|late_s| late_s < 300),
                "{mean_s} {expected_s}"
            );
        };
        for number in 0..20 {
            check(&mut raw, &format!("SET key{number} v EX 10000"), "OK");
        }
        about(mean_s(), 10_000);
        for number in 0..10 {
            check(
                &mut raw,
                &format!("EXPIRE key{number} 20000"),
                "(integer) 1",
            );
        }
        about(mean_s(), 15_000);
        for number in 10..20 {
            check(&mut raw, &format!("PERSIST key{number}"), "(integer) 1");
        }
        about(mean_s(), 20_000);
        check(&mut raw, "SET key0 v EX 20000", "OK");
        check(&mut raw, "DEL key1", "(integer) 1");
        about(mean_s(), 20_000);
        check(&mut raw, "SWAPDB 0 1", "OK");
        about(mean_s(), 20_000);
        check(&mut raw, "FLUSHALL", "OK");
        check(&mut raw, "SET stays v", "OK");
        assert_eq!(mean_s(), 0);
    });
}

#[test]
fn an_expired_key_is_gone_for_every_command_though_not_yet_deleted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        let set = |raw: &mut crate::wire::Raw| check(raw, "SET dead v PX 1", "OK");
        let cases = [
            ("GET dead", "(nil)"),
            ("EXISTS dead", "(integer) 0"),
            ("TTL dead", "(integer) -2"),
            ("TYPE dead", "none"),
            ("STRLEN dead", "(integer) 0"),
            ("MGET dead", "1) (nil)"),
            ("DEL dead", "(integer) 0"),
            ("EXPIRE dead 100", "(integer) 0"),
            ("PERSIST dead", "(integer) 0"),
            ("RENAME dead other", "(error) ERR no such key"),
            ("COPY dead other", "(integer) 0"),
            ("GETDEL dead", "(nil)"),
            ("TOUCH dead", "(integer) 0"),
            ("SET dead v XX", "(nil)"),
            ("OBJECT ENCODING dead", "(nil)"),
            ("KEYS *", "(empty array)"),
            ("RANDOMKEY", "(nil)"),
            ("BITCOUNT dead", "(integer) 0"),
            ("APPEND dead x", "(integer) 1"),
            ("INCR dead", "(integer) 1"),
            ("SETNX dead x", "(integer) 1"),
            ("GETSET dead x", "(nil)"),
            ("SETBIT dead 1 1", "(integer) 0"),
        ];
        for (line, expected) in cases {
            set(&mut raw);
            std::thread::sleep(Duration::from_millis(5));
            check(&mut raw, line, expected);
            raw.call("DEL dead");
        }
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 1", "OK");
    });
}

#[test]
fn a_deadline_moved_or_cleared_is_not_kept() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for index in 0..200 {
            raw.call(&format!("SET moved:{index} v PX 60"));
        }
        // On a slow machine some have run out before they are moved; all others stay.
        let moved: Vec<usize> = (0..200)
            .filter(|index| {
                let reply = match index % 4 {
                    0 => raw.call(&format!("PERSIST moved:{index}")),
                    1 => raw.call(&format!("PEXPIRE moved:{index} 1000000")),
                    2 => raw.call(&format!("SET moved:{index} w")),
                    _ => raw.call(&format!("GETEX moved:{index} EX 5000")),
                };
                !["(integer) 0", "(nil)"].contains(&reply.show().as_str())
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        for index in moved {
            check(&mut raw, &format!("EXISTS moved:{index}"), "(integer) 1");
        }
        check(&mut raw, "FLUSHALL", "OK");
        check(&mut raw, "SET again v", "OK");
        std::thread::sleep(Duration::from_millis(50));
        check(&mut raw, "GET again", "\"v\"");
    });
}

#[test]
fn flushed_and_reused_names_do_not_inherit_deadlines() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for round in 0..20 {
            for index in 0..20 {
                raw.call(&format!("SET name:{index} v{round} PX {}", 20 + index));
            }
            raw.call(if round % 2 == 0 {
                "FLUSHALL"
            } else {
                "FLUSHDB ASYNC"
            });
            for index in 0..20 {
                raw.call(&format!("SET name:{index} kept"));
            }
        }
        std::thread::sleep(Duration::from_millis(120));
        for index in 0..20 {
            check(&mut raw, &format!("GET name:{index}"), "\"kept\"");
        }
        check(&mut raw, "DBSIZE", "(integer) 20");
    });
}

#[test]
fn a_pass_of_expiry_is_one_event_with_the_freeing_of_what_expired() {
    let server = support::Server::start(&support::Options::shards(4));
    let mut raw = server.raw();
    check(&mut raw, "CONFIG SET latency-monitor-threshold 1", "OK");
    let fill = |raw: &mut crate::wire::Raw| {
        for batch in 0..200 {
            let members: Vec<String> = (0..1_000)
                .map(|index| (batch * 1_000 + index).to_string())
                .collect();
            raw.call(&format!("SADD big {}", members.join(" ")));
        }
        check(raw, "SCARD big", "(integer) 200000");
    };
    // A key that a client deletes goes the same way, and is no expiry.
    fill(&mut raw);
    check(&mut raw, "UNLINK big", "(integer) 1");
    support::eventually("the set is freed", || {
        let stats = raw.call("INFO memory").body();
        stats.contains("lazyfree_pending_objects:0\r\n")
    });
    check(&mut raw, "LATENCY HISTORY expire-cycle", "(empty array)");
    fill(&mut raw);
    check(&mut raw, "PEXPIRE big 1", "(integer) 1");
    support::eventually("the pass is an event", || {
        !raw.call("LATENCY HISTORY expire-cycle").items().is_empty()
    });
    support::eventually("the set is freed", || {
        let stats = raw.call("INFO memory").body();
        stats.contains("lazyfree_pending_objects:0\r\n")
    });
    let samples = raw.call("LATENCY HISTORY expire-cycle");
    assert_eq!(samples.items().len(), 1, "{}", samples.show());
}
