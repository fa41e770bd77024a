//! Streams over the wire: waiting readers, groups that share work, and the ways in which a wait ends without
//! an entry.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, Server, check, eventually};
use crate::wire::Raw;

const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

/// Sends a request that is to wait, and returns when it does.
fn waits(server: &Server, request: &str) -> Raw {
    let mut raw = server.raw();
    let id = raw.call("CLIENT ID").integer();
    raw.send(format!("{request}\r\n").as_bytes());
    let mut other = server.raw();
    eventually("blocked", || {
        let line = other.call(&format!("CLIENT LIST ID {id}")).body();
        line.contains(" flags=b ")
    });
    raw
}

#[test]
fn a_reader_gets_what_was_added_after_it_asked() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        other.call("XADD a 1-1 f old");
        let mut reader = waits(server, "XREAD BLOCK 0 STREAMS a b c $ $ $");
        check(&mut other, "XADD d 1-1 f v", "\"1-1\"");
        check(&mut other, "XADD b 5-5 f new", "\"5-5\"");
        assert_eq!(
            reader.read().show(),
            "1) 1) \"b\"\n   2) 1) 1) \"5-5\"\n         2) 1) \"f\"\n            2) \"new\""
        );
        // All readers of a stream get new entries, not only the first.
        let mut readers: Vec<Raw> = (0..3)
            .map(|_| waits(server, "XREAD COUNT 1 BLOCK 0 STREAMS a 1-1"))
            .collect();
        other.pipeline(&["XADD a 2-1 f x", "XADD a 2-2 f y"]);
        for reader in &mut readers {
            assert!(reader.read().show().contains("2-1"));
        }
    });
}

#[test]
fn a_wait_for_entries_ends_by_its_time_and_by_unblock() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let started = Instant::now();
        check(&mut raw, "XREAD BLOCK 30 STREAMS s $", "(nil array)");
        assert!(started.elapsed() >= Duration::from_millis(30));
        raw.call("XGROUP CREATE s g $ MKSTREAM");
        check(
            &mut raw,
            "XREADGROUP GROUP g c BLOCK 30 STREAMS s >",
            "(nil array)",
        );
        let mut waiting = server.raw();
        let id = waiting.call("CLIENT ID").integer();
        waiting.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
        eventually("blocked", || {
            raw.call(&format!("CLIENT UNBLOCK {id} ERROR")).integer() == 1
        });
        assert_eq!(
            waiting.read().show(),
            "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK"
        );
        // An ID requests history, which never waits; existing entries do not either.
        check(
            &mut waiting,
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s 0",
            "1) 1) \"s\"\n   2) (empty array)",
        );
    });
}

#[test]
fn what_is_gone_before_it_is_read_wakes_nobody() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut reader = waits(server, "XREAD BLOCK 0 STREAMS s $");
        other.pipeline(&["XADD s 1-1 f v", "DEL s"]);
        // The first of them woke it already where they ran one by one; it was served before DEL ran.
        assert!(reader.read().show().contains("1-1"));
        let mut reader = waits(server, "XREAD BLOCK 0 STREAMS s $");
        for line in [
            "MULTI",
            "XADD s 2-1 f v",
            "DEL s",
            "LPUSH s x",
            "EXEC",
            "DEL s",
        ] {
            other.call(line);
        }
        check(&mut other, "XADD s 3-1 f v", "\"3-1\"");
        assert!(reader.read().show().contains("3-1"));
    });
}

#[test]
fn a_group_reader_is_told_when_its_group_goes() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let no_group = "(error) NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with \
                        GROUP option";
        for (goodbye, reply) in [
            ("DEL s", no_group),
            ("XGROUP DESTROY s g", no_group),
            ("SET s x", WRONG_TYPE),
            ("RENAME other s", no_group),
            ("PEXPIRE s 1", no_group),
            ("FLUSHALL", no_group),
        ] {
            other.pipeline(&["DEL s other", "XADD other 1-1 a b"]);
            other.call("XGROUP CREATE s g $ MKSTREAM");
            let request = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
            let mut first = waits(server, request);
            let mut second = waits(server, request);
            other.call(goodbye);
            assert_eq!(first.read().show(), reply, "{goodbye}");
            assert_eq!(second.read().show(), reply, "{goodbye}");
        }
    });
}

#[test]
fn consumers_of_a_group_share_what_comes_first_come_first_served() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        other.call("XGROUP CREATE s g $ MKSTREAM");
        let request = |name: &str| format!("XREADGROUP GROUP g {name} COUNT 1 BLOCK 0 STREAMS s >");
        let mut first = waits(server, &request("a"));
        let mut second = waits(server, &request("b"));
        check(&mut other, "XADD s 1-1 f v", "\"1-1\"");
        assert!(first.read().show().contains("1-1"));
        check(&mut other, "XADD s 1-2 f v", "\"1-2\"");
        assert!(second.read().show().contains("1-2"));
        check(
            &mut other,
            "XPENDING s g",
            "1) (integer) 2\n2) \"1-1\"\n3) \"1-2\"\n4) 1) 1) \"a\"\n      2) \"1\"\n   2) 1) \"b\"\n      2) \"1\"",
        );
    });
}

/// Workers of one group over streams in many shards: every entry is delivered once, acknowledged once.
#[test]
fn every_entry_of_a_group_reaches_one_consumer() {
    const STREAMS: usize = 8;
    const ENTRIES: usize = 300;
    const WORKERS: usize = 12;
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for stream in 0..STREAMS {
            other.call(&format!("XGROUP CREATE s{stream} g $ MKSTREAM"));
        }
        let keys: Vec<String> = (0..STREAMS).map(|stream| format!("s{stream}")).collect();
        let request = |worker: usize| {
            format!(
                "XREADGROUP GROUP g w{worker} COUNT 7 BLOCK 50 STREAMS {} {}",
                keys.join(" "),
                [">"; STREAMS].join(" ")
            )
        };
        let still_produce = AtomicUsize::new(STREAMS);
        let (keys, request, still_produce) = (&keys, &request, &still_produce);
        let work = &move |worker: usize| {
            let mut raw = server.raw();
            let mut got = Vec::new();
            loop {
                // Checked first: entries that exist then were all.
                let is_last = still_produce.load(SeqCst) == 0;
                let reply = raw.call(&request(worker));
                if reply.is_nil() {
                    if is_last {
                        return got;
                    }
                    continue;
                }
                for stream in reply.items() {
                    let key = stream.items()[0].text();
                    for entry in stream.items()[1].items() {
                        let id = entry.items()[0].text();
                        let acked = raw.call(&format!("XACK {key} g {id}")).integer();
                        assert_eq!(acked, 1, "{key} {id}");
                        got.push(format!("{key} {id}"));
                    }
                }
            }
        };
        let got: Vec<String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();
            for key in keys {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    for entry in 1..=ENTRIES {
                        raw.call(&format!("XADD {key} {entry}-1 n {entry}"));
                    }
                    still_produce.fetch_sub(1, SeqCst);
                });
            }
            let join = |worker: thread::ScopedJoinHandle<'_, Vec<String>>| {
                worker.join().expect("a worker that does not fail")
            };
            workers.into_iter().flat_map(join).collect()
        });
        assert_eq!(got.len(), STREAMS * ENTRIES, "none twice");
        assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), got.len());
        for key in keys {
            let summary = other.call(&format!("XPENDING {key} g")).show();
            assert!(summary.starts_with("1) (integer) 0"), "{summary}");
        }
    });
}
