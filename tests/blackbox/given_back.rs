//! XNACK: entries that consumers give back, across claims, files, replicas, transactions and scripts.

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Server, check, eventually, outlives_files};
use crate::wire::Raw;

/// Creates a stream of `count` entries, all of them delivered to one consumer.
fn deliver(raw: &mut Raw, key: &str, count: usize) {
    for number in 1..=count {
        raw.call(&format!("XADD {key} {number}-0 f v{number}"));
    }
    check(raw, &format!("XGROUP CREATE {key} g 0"), "OK");
    let read = raw.call(&format!("XREADGROUP GROUP g one STREAMS {key} >"));
    assert!(!read.is_error(), "{}", read.show());
}

/// Returns the pending entries: ID, owner, idle time of -1 or more, and deliveries.
fn pending(raw: &mut Raw, key: &str) -> Vec<(String, String, bool, i64)> {
    let all = raw.call(&format!("XPENDING {key} g - + 100"));
    let all = all.items().iter().map(|one| {
        let [id, owner, idle, deliveries] = one.items() else {
            panic!("{}", one.show());
        };
        let is_nobodys = idle.integer() == -1;
        (id.text(), owner.text(), is_nobodys, deliveries.integer())
    });
    all.collect()
}

fn nobodys(id: &str, deliveries: i64) -> (String, String, bool, i64) {
    (id.to_owned(), String::new(), true, deliveries)
}

fn ones(id: &str, deliveries: i64) -> (String, String, bool, i64) {
    (id.to_owned(), "one".to_owned(), false, deliveries)
}

#[test]
fn what_is_given_back_is_nobodys_and_claimed_first() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        deliver(&mut raw, "s", 5);
        check(&mut raw, "XNACK s g FAIL IDS 1 3-0", "(integer) 1");
        check(&mut raw, "XNACK s g SILENT IDS 2 2-0 9-9", "(integer) 1");
        check(&mut raw, "xnack s g fatal ids 1 5-0", "(integer) 1");
        let most = i64::MAX;
        assert_eq!(
            pending(&mut raw, "s"),
            [
                ones("1-0", 1),
                nobodys("2-0", 0),
                nobodys("3-0", 1),
                ones("4-0", 1),
                nobodys("5-0", most),
            ]
        );
        // The lists of one consumer and the summary leave them out; the count includes them.
        let own = raw.call("XPENDING s g - + 10 one");
        assert_eq!(own.items().len(), 2);
        let summary = raw.call("XPENDING s g");
        assert_eq!(summary.items()[0].integer(), 5);
        assert_eq!(
            summary.items()[3].show(),
            "1) 1) \"one\"\n   2) \"2\"",
            "{}",
            summary.show()
        );
        let full = raw.call("XINFO STREAM s FULL").show();
        assert!(full.contains("\"nacked-count\""), "{full}");
        check(
            &mut raw,
            "XREADGROUP GROUP g one STREAMS s 0",
            "1) 1) \"s\"\n   2) 1) 1) \"1-0\"\n         2) 1) \"f\"\n            2) \"v1\"\n      \
             2) 1) \"4-0\"\n         2) 1) \"f\"\n            2) \"v4\"",
        );
        // However long one waits for others, these come at once, in the order of giving back.
        let claimed = raw.call("XREADGROUP GROUP g two COUNT 2 CLAIM 100000000 STREAMS s >");
        let entries = claimed.items()[0].items()[1].items().to_vec();
        let ids: Vec<String> = entries
            .iter()
            .map(|entry| entry.items()[0].text())
            .collect();
        assert_eq!(ids, ["3-0", "2-0"]);
        assert_eq!(entries[0].items()[3].integer(), 1);
        let claimed = raw.call("XAUTOCLAIM s g two 100000000 0 JUSTID");
        assert_eq!(claimed.items()[1].show(), "1) \"5-0\"");
        let all = pending(&mut raw, "s");
        let owners: Vec<&str> = all.iter().map(|(_, owner, ..)| owner.as_str()).collect();
        assert_eq!(owners, ["one", "two", "two", "one", "two"]);
        assert_eq!(all[4].3, most, "there are no more deliveries than that");
        // Given back once more, acknowledged, and claimed by its name.
        check(&mut raw, "XNACK s g FAIL IDS 2 5-0 1-0", "(integer) 2");
        check(&mut raw, "XACK s g 5-0", "(integer) 1");
        check(
            &mut raw,
            "XCLAIM s g two 100000000 1-0 JUSTID",
            "1) \"1-0\"",
        );
        // Deleting a consumer removes the entries that it owns, and nothing else.
        check(&mut raw, "XNACK s g FAIL IDS 1 4-0", "(integer) 1");
        check(&mut raw, "XGROUP DELCONSUMER s g one", "(integer) 0");
        check(&mut raw, "XGROUP DELCONSUMER s g two", "(integer) 3");
        assert_eq!(pending(&mut raw, "s"), [nobodys("4-0", 2)]);
        check(&mut raw, "XINFO CONSUMERS s g", "(empty array)");
    });
}

#[test]
fn who_waits_gets_at_once_what_is_given_back() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut waiter) = (server.raw(), server.raw());
        deliver(&mut raw, "s", 2);
        waiter.send(b"XREADGROUP GROUP g two BLOCK 60000 CLAIM 50000 STREAMS s >\r\n");
        eventually("it waits", || {
            raw.call("INFO clients")
                .body()
                .contains("blocked_clients:1")
        });
        check(&mut raw, "XNACK s g FAIL IDS 1 2-0", "(integer) 1");
        let claimed = waiter.read();
        let entry = &claimed.items()[0].items()[1].items()[0];
        assert_eq!(entry.items()[0].text(), "2-0");
        assert_eq!(pending(&mut raw, "s")[0], ones("1-0", 1));
    });
}

#[test]
fn counts_are_as_asked_for_and_force_makes_entries_pending() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        deliver(&mut raw, "s", 3);
        raw.call("XADD s 4-0 f v4");
        raw.call("XADD s 5-0 f v5");
        check(
            &mut raw,
            "XNACK s g SILENT IDS 1 1-0 RETRYCOUNT 7",
            "(integer) 1",
        );
        check(&mut raw, "XNACK s g FAIL IDS 1 4-0", "(integer) 0");
        check(
            &mut raw,
            "XNACK s g FAIL IDS 3 4-0 9-9 2-0 FORCE",
            "(integer) 2",
        );
        check(&mut raw, "XNACK s g FATAL IDS 1 5-0 FORCE", "(integer) 1");
        check(&mut raw, "XDEL s 2-0", "(integer) 1");
        assert_eq!(
            pending(&mut raw, "s"),
            [
                nobodys("1-0", 7),
                nobodys("2-0", 1),
                ones("3-0", 1),
                nobodys("4-0", 0),
                nobodys("5-0", i64::MAX),
            ]
        );
        // An entry that was deleted meanwhile is removed from the pending list when a claim comes across it.
        let claimed = raw.call("XAUTOCLAIM s g two 0 0 COUNT 2 JUSTID");
        assert_eq!(claimed.items()[2].show(), "1) \"2-0\"");
        // A silent one that was never delivered stays so.
        check(&mut raw, "XNACK s g SILENT IDS 1 4-0", "(integer) 1");
        assert_eq!(pending(&mut raw, "s")[2], nobodys("4-0", 0));
    });
}

#[test]
fn wrong_requests_say_what_is_wrong_and_change_nothing() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        deliver(&mut raw, "s", 2);
        raw.call("SET text v");
        for (line, expected) in [
            (
                "XNACK s g FAIL IDS 1",
                "(error) ERR wrong number of arguments for 'xnack' command",
            ),
            ("XNACK s g SOFT IDS 1 1-0", "(error) ERR syntax error"),
            ("XNACK s g FAIL 1-0 2-0 3-0", "(error) ERR syntax error"),
            (
                "XNACK s g FAIL IDS 0 1-0",
                "(error) ERR Number of IDs must be a positive integer",
            ),
            (
                "XNACK s g FAIL IDS x 1-0",
                "(error) ERR Number of IDs must be a positive integer",
            ),
            (
                "XNACK s g FAIL IDS 3 1-0 2-0",
                "(error) ERR The `numids` parameter must match the number of arguments",
            ),
            (
                "XNACK s g FAIL IDS 1 1-0 2-0",
                "(error) ERR Unrecognized XNACK option '2-0'",
            ),
            (
                "XNACK s g FAIL IDS 1 x",
                "(error) ERR Invalid stream ID specified as stream command argument",
            ),
            (
                "XNACK s g FAIL IDS 1 1-0 AGAIN",
                "(error) ERR Unrecognized XNACK option 'AGAIN'",
            ),
            (
                "XNACK s g FAIL IDS 1 1-0 RETRYCOUNT",
                "(error) ERR Unrecognized XNACK option 'RETRYCOUNT'",
            ),
            (
                "XNACK s g FAIL IDS 1 1-0 RETRYCOUNT -1",
                "(error) ERR Invalid RETRYCOUNT option argument for XNACK",
            ),
            (
                "XNACK none g FAIL IDS 1 1-0",
                "(error) NOGROUP No such key 'none' or consumer group 'g'",
            ),
            (
                "XNACK s none FAIL IDS 1 1-0",
                "(error) NOGROUP No such key 's' or consumer group 'none'",
            ),
            (
                "XNACK text g FAIL IDS 1 1-0",
                "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ] {
            check(&mut raw, line, expected);
        }
        assert_eq!(pending(&mut raw, "s"), [ones("1-0", 1), ones("2-0", 1)]);
        // A transaction or a script that is rolled back takes back its changes as a whole.
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "XNACK s g FAIL IDS 1 1-0", "QUEUED");
        check(&mut raw, "XNACK s g FAIL IDS 1 9-0", "QUEUED");
        check(&mut raw, "EXEC", "1) (integer) 1\n2) (integer) 0");
        let script = "return redis.call('XNACK',KEYS[1],'g','FAIL','IDS',1,'2-0')";
        let reply = raw.command(&[&b"EVAL"[..], script.as_bytes(), b"1", b"s"]);
        assert_eq!(reply.show(), "(integer) 1");
        assert_eq!(
            pending(&mut raw, "s"),
            [nobodys("1-0", 1), nobodys("2-0", 1)]
        );
        check(&mut raw, "ACL SETUSER reader on nopass +@read ~*", "OK");
        check(&mut raw, "AUTH reader x", "OK");
        let refused = raw.call("XNACK s g FAIL IDS 1 1-0").show();
        assert!(refused.contains("NOPERM"), "{refused}");
    });
}

/// Creates a large stream of which much was given back, and a small one that knows producers.
fn give_back(raw: &mut Raw) {
    deliver(raw, "large", 2_000);
    let ids: Vec<String> = (1..=1_000)
        .rev()
        .map(|number| format!("{number}-0"))
        .collect();
    let line = format!("XNACK large g SILENT IDS 1000 {}", ids.join(" "));
    check(raw, &line, "(integer) 1000");
    deliver(raw, "small", 3);
    raw.call("XADD small IDMP p one * f v");
    check(raw, "XNACK small g FATAL IDS 1 2-0", "(integer) 1");
    check(
        raw,
        "XNACK small g FAIL IDS 1 1-0 RETRYCOUNT 4",
        "(integer) 1",
    );
}

/// Checks that they are as [`give_back`] left them, and claims some.
fn check_given_back(raw: &mut Raw) {
    let all = pending(raw, "small");
    assert_eq!(
        all,
        [nobodys("1-0", 4), nobodys("2-0", i64::MAX), ones("3-0", 1)]
    );
    let claimed = raw.call("XREADGROUP GROUP g two COUNT 3 CLAIM 100000000 STREAMS large >");
    let entries = claimed.items()[0].items()[1].items().to_vec();
    let ids: Vec<String> = entries
        .iter()
        .map(|entry| entry.items()[0].text())
        .collect();
    assert_eq!(ids, ["1000-0", "999-0", "998-0"]);
    let again = raw.call("XNACK large g FAIL IDS 3 1000-0 999-0 998-0 RETRYCOUNT 0");
    assert_eq!(again.integer(), 3);
    let claimed = raw.call("XREADGROUP GROUP g two COUNT 1 CLAIM 100000000 STREAMS large >");
    let first = claimed.items()[0].items()[1].items()[0].items()[0].text();
    assert_eq!(first, "997-0", "what comes later stands behind");
    // The next claim finds it unchanged.
    let ids: Vec<String> = (1..=1_000)
        .rev()
        .map(|number| format!("{number}-0"))
        .collect();
    let line = format!("XNACK large g FAIL IDS 1000 {} RETRYCOUNT 0", ids.join(" "));
    check(raw, &line, "(integer) 1000");
}

#[test]
fn what_was_given_back_outlives_every_kind_of_file() {
    let options = Options::shards(4).with("stream-idmp-duration", "86400");
    outlives_files(&options, give_back, |raw, ()| check_given_back(raw));
}

#[test]
fn replicas_copies_and_restored_values_know_what_was_given_back() {
    let options = Options::shards(4).with("repl-diskless-sync-delay", "0");
    let primary = Server::start(&options);
    let replica = Server::start(&Options::shards(1));
    follow(&replica, &primary);
    let mut raw = primary.raw();
    give_back(&mut raw);
    let late = Server::start(&Options::shards(2));
    follow(&late, &primary);
    settle(&[&primary, &replica, &late]);
    let refused = replica.raw().call("XNACK small g FAIL IDS 1 3-0").show();
    assert!(refused.contains("READONLY"), "{refused}");
    for follower in [&replica, &late] {
        let mut raw = follower.raw();
        check(&mut raw, "REPLICAOF NO ONE", "OK");
        check_given_back(&mut raw);
    }
    for key in ["small", "large"] {
        let payload = raw.call(&format!("DUMP {key}"));
        let restored = raw.command(&[
            b"RESTORE",
            key.as_bytes(),
            b"0",
            payload.bytes(),
            b"REPLACE",
        ]);
        assert!(!restored.is_error(), "{}", restored.show());
    }
    check_given_back(&mut raw);
    for key in ["small", "large"] {
        check(&mut raw, &format!("COPY {key} copy"), "(integer) 1");
        check(&mut raw, &format!("RENAME copy {key}"), "OK");
    }
    check_given_back(&mut raw);
}
