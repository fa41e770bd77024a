//! Messages between connections: which subscribers receive them, in which order, and what happens to
//! subscribers that do not read.

use crate::support::{self, Options, Server, check, eventually};
use crate::wire::{Raw, Value};

/// Returns the next push as redis-cli would print it.
fn message(raw: &mut Raw) -> String {
    let items = raw.read();
    let texts: Vec<String> = items
        .items()
        .iter()
        .map(|item| match item {
            Value::Integer(number) => number.to_string(),
            text => text.body(),
        })
        .collect();
    texts.join(" ")
}

fn subscribe(raw: &mut Raw, line: &str) {
    let reply = raw.call(line);
    assert!(!reply.is_error(), "{line}: {}", reply.show());
}

#[test]
fn messages_reach_channels_patterns_and_shard_channels() {
    support::at_each_shard_count(|server| {
        let mut publisher = server.raw();
        let (mut one, mut two, mut three) = (server.raw(), server.raw3(), server.raw());
        subscribe(&mut one, "SUBSCRIBE news");
        subscribe(&mut two, "PSUBSCRIBE n*");
        subscribe(&mut three, "SSUBSCRIBE news");
        check(&mut publisher, "PUBLISH news a", "(integer) 2");
        check(&mut publisher, "SPUBLISH news b", "(integer) 1");
        check(&mut publisher, "PUBLISH nothing c", "(integer) 1");
        assert_eq!(message(&mut one), "message news a");
        assert_eq!(message(&mut two), "pmessage n* news a");
        assert_eq!(message(&mut two), "pmessage n* nothing c");
        assert_eq!(message(&mut three), "smessage news b");
        // In RESP3 a subscriber may do anything.
        check(&mut two, "SET k v", "OK");
        check(
            &mut one,
            "SET k v",
            "(error) ERR Can't execute 'set': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context",
        );
        check(
            &mut one,
            "UNSUBSCRIBE news",
            "1) \"unsubscribe\"\n2) \"news\"\n3) (integer) 0",
        );
        check(&mut one, "GET k", "\"v\"");
    });
}

#[test]
fn each_publisher_is_heard_in_its_order() {
    support::at_each_shard_count(|server| {
        let mut subscriber = server.raw();
        subscribe(&mut subscriber, "PSUBSCRIBE *");
        std::thread::scope(|scope| {
            for publisher in 0..4 {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    for start in (0..1_000).step_by(50) {
                        let lines: Vec<String> = (start..start + 50)
                            .map(|number| format!("PUBLISH from{publisher} {number}"))
                            .collect();
                        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                        raw.pipeline(&lines);
                    }
                });
            }
            let mut next = [0; 4];
            for _ in 0..4_000 {
                let push = subscriber.read();
                let publisher: usize = push.items()[2].body()["from".len()..]
                    .parse()
                    .expect("a number");
                let number: usize = push.items()[3].body().parse().expect("a number");
                assert_eq!(number, next[publisher]);
                next[publisher] += 1;
            }
        });
    });
}

#[test]
fn a_client_gets_its_own_messages_behind_its_replies() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw3();
        subscribe(&mut raw, "SUBSCRIBE c");
        let replies = raw.pipeline(&[
            "SET k 1",
            "PUBLISH c first",
            "INCR k",
            "PUBLISH c second",
            "GET k",
        ]);
        let shown: Vec<String> = replies.iter().map(|reply| reply.show()).collect();
        assert_eq!(
            shown,
            ["OK", "(integer) 1", "(integer) 2", "(integer) 1", "\"2\""]
        );
        assert_eq!(message(&mut raw), "message c first");
        assert_eq!(message(&mut raw), "message c second");
    });
}

#[test]
fn a_transaction_publishes_when_it_runs() {
    support::at_each_shard_count(|server| {
        let (mut publisher, mut subscriber) = (server.raw(), server.raw());
        subscribe(&mut subscriber, "SUBSCRIBE c");
        let lines = [
            "MULTI",
            "SET a 1",
            "PUBLISH c one",
            "SET b 2",
            "PUBLISH none x",
            "PUBLISH c two",
            "GET a",
        ];
        publisher.pipeline(&lines);
        check(
            &mut publisher,
            "EXEC",
            "1) OK\n2) (integer) 1\n3) OK\n4) (integer) 0\n5) (integer) 1\n6) \"1\"",
        );
        assert_eq!(message(&mut subscriber), "message c one");
        assert_eq!(message(&mut subscriber), "message c two");
        let lines = ["MULTI", "PUBLISH c dropped", "DISCARD", "PUBLISH c three"];
        publisher.pipeline(&lines);
        assert_eq!(message(&mut subscriber), "message c three");
        // A number of receivers with more than one digit, with replies after them.
        let mut many: Vec<Raw> = (0..12).map(|_| server.raw()).collect();
        for raw in &mut many {
            subscribe(raw, "SUBSCRIBE wide");
        }
        publisher.pipeline(&[
            "MULTI",
            "PUBLISH wide 1",
            "GET a",
            "PUBLISH wide 2",
            "GET b",
        ]);
        check(
            &mut publisher,
            "EXEC",
            "1) (integer) 12\n2) \"1\"\n3) (integer) 12\n4) \"2\"",
        );
        for raw in &mut many {
            assert_eq!(message(raw), "message wide 1");
            assert_eq!(message(raw), "message wide 2");
        }
    });
}

/// Passes to `body` a RESP3 connection for each path of a transaction's messages: alone, among events, and
/// from a unit with scripts, which is rolled back and runs again when it takes long. The line given is to be
/// queued with the rest.
fn on_each_way_out(body: impl Fn(&mut Raw, &str)) {
    let brief = "EVAL \"return 1\" 0";
    let slow = "EVAL \"local n = 0 for i = 1, 5000000 do n = n + i end return 1\" 0";
    support::at_each_shard_count(|server| {
        let mut listener = server.raw();
        for (events, line) in [
            ("", "PING"),
            ("KEA", "PING"),
            ("", brief),
            ("KEA", brief),
            ("", slow),
        ] {
            let mut raw = server.raw3();
            raw.call(&format!("CONFIG SET notify-keyspace-events \"{events}\""));
            match events {
                "" => subscribe(&mut listener, "PUNSUBSCRIBE __key*"),
                _ => subscribe(&mut listener, "PSUBSCRIBE __key*"),
            }
            body(&mut raw, line);
            // Nothing unexpected was sent.
            check(&mut raw, "SET k v", "OK");
            let info = raw.call("INFO stats").body();
            // A short one is rolled back, too, if its thread loses its core for long.
            let is_undone = !info.contains("script_reruns_for_time:0");
            assert!(is_undone || line != slow, "{line}: {info}");
        }
    });
}

/// Runs commands as a transaction; their replies.
fn transact(raw: &mut Raw, lines: &[&str]) -> Vec<Value> {
    raw.call("MULTI");
    raw.pipeline(lines);
    raw.call("EXEC").items().to_vec()
}

#[test]
fn a_transaction_publishes_to_those_who_have_subscribed_by_then() {
    on_each_way_out(|raw, line| {
        let replies = transact(
            raw,
            &["PUBLISH x early", line, "SUBSCRIBE x", "PUBLISH x late"],
        );
        assert_eq!((replies[0].integer(), replies[3].integer()), (0, 1));
        assert_eq!(message(raw), "message x late");
        subscribe(raw, "UNSUBSCRIBE x");
        let replies = transact(
            raw,
            &["PUBLISH x early", "PSUBSCRIBE x*", "PUBLISH x late", line],
        );
        assert_eq!((replies[0].integer(), replies[2].integer()), (0, 1));
        assert_eq!(message(raw), "pmessage x* x late");
        subscribe(raw, "PUNSUBSCRIBE x*");
        subscribe(raw, "SUBSCRIBE x");
        subscribe(raw, "PSUBSCRIBE ?");
        let replies = transact(
            raw,
            &[
                "SET k v",
                "PUBLISH x both",
                "UNSUBSCRIBE x",
                "PUBLISH x one",
                "PUNSUBSCRIBE ?",
                line,
                "PUBLISH x nobody",
            ],
        );
        let receivers = [1, 3, 6].map(|at| replies[at].integer());
        assert_eq!(receivers, [2, 1, 0], "{line}");
        assert_eq!(message(raw), "message x both");
        assert_eq!(message(raw), "pmessage ? x both");
        assert_eq!(message(raw), "pmessage ? x one");
        subscribe(raw, "SSUBSCRIBE x");
        let replies = transact(
            raw,
            &[line, "SPUBLISH x s", "SUNSUBSCRIBE x", "SPUBLISH x t"],
        );
        assert_eq!((replies[1].integer(), replies[3].integer()), (1, 0));
        assert_eq!(message(raw), "smessage x s");
        check(raw, "PUBLISH x any", "(integer) 0");
    });
}

#[test]
fn what_a_script_of_a_transaction_publishes_reaches_those_who_have_subscribed_by_then() {
    on_each_way_out(|raw, line| {
        let publish = "EVAL \"return redis.call('publish', 'x', ARGV[1])\" 0";
        let (early, late) = (format!("{publish} early"), format!("{publish} late"));
        for lines in [
            [&early, "SUBSCRIBE x", line, &late, "UNSUBSCRIBE x"],
            [
                &early,
                line,
                "SUBSCRIBE x",
                "PUBLISH x late",
                "UNSUBSCRIBE x",
            ],
        ] {
            let replies = transact(raw, &lines);
            assert_eq!((replies[0].integer(), replies[3].integer()), (0, 1));
            assert_eq!(message(raw), "message x late");
        }
    });
}

#[test]
fn a_transaction_is_sent_its_own_messages_in_the_protocol_that_it_spoke() {
    on_each_way_out(|raw, line| {
        subscribe(raw, "SUBSCRIBE x");
        let replies = transact(
            raw,
            &[
                "PUBLISH x three",
                "HELLO 2",
                line,
                "PUBLISH x two",
                "SET k v",
            ],
        );
        assert_eq!((replies[0].integer(), replies[3].integer()), (1, 1));
        for (is_push, text) in [(true, "three"), (false, "two")] {
            let got = raw.read();
            assert_eq!(matches!(got, Value::Push(_)), is_push, "{text}: {got:?}");
            assert_eq!(got.items()[2].body(), text);
        }
        subscribe(raw, "UNSUBSCRIBE x");
    });
}

#[test]
fn no_message_follows_the_end_of_its_subscription() {
    support::at_each_shard_count(|server| {
        let mut subscriber = server.raw();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut publisher = server.raw();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    publisher.pipeline(&["PUBLISH c x"; 20]);
                }
            });
            for _ in 0..100 {
                subscriber.send(b"SUBSCRIBE c\r\n");
                assert_eq!(message(&mut subscriber), "subscribe c 1");
                assert_eq!(message(&mut subscriber), "message c x");
                subscriber.send(b"UNSUBSCRIBE\r\nECHO over\r\n");
                while message(&mut subscriber) != "unsubscribe c 0" {}
                assert_eq!(subscriber.read().body(), "over");
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_and_others_go_on() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(2).with("client-output-buffer-limit", "pubsub 1mb 0 0");
    let server = Server::start(&options);
    let (mut slow, mut reading, mut publisher) = (server.raw(), server.raw(), server.raw());
    let id = slow.call("CLIENT ID").integer();
    subscribe(&mut slow, "SUBSCRIBE c");
    subscribe(&mut reading, "SUBSCRIBE c");
    let text = "x".repeat(10_000);
    let mut sent = 0;
    loop {
        let reply = publisher.command(&["PUBLISH", "c", &text]);
        sent += 1;
        assert_eq!(message(&mut reading).len(), "message c ".len() + text.len());
        let is_there = publisher.call(&format!("CLIENT LIST ID {id}")).body() != "";
        if !is_there {
            break;
        }
        assert!(reply.integer() >= 1);
        assert!(sent < 20_000, "never cut");
    }
    eventually("forgotten", || publisher.call("PUBLISH c x").integer() == 1);
    let info = publisher.call("INFO stats").body();
    assert!(
        info.contains("client_output_buffer_limit_disconnections:1"),
        "{info}"
    );
}

#[test]
fn a_subscriber_that_is_behind_for_too_long_is_cut() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(1).with("client-output-buffer-limit", "pubsub 0 100kb 1");
    let server = Server::start(&options);
    let (mut slow, mut publisher) = (server.raw(), server.raw());
    subscribe(&mut slow, "SUBSCRIBE c");
    let text = "x".repeat(1 << 20);
    for _ in 0..20 {
        publisher.command(&["PUBLISH", "c", &text]);
    }
    eventually("cut", || publisher.call("PUBLISH c x").integer() == 0);
}

#[test]
fn a_hundred_thousand_channels_come_and_go() {
    let server = Server::start(&Options::shards(2));
    let (mut subscriber, mut publisher) = (server.raw(), server.raw());
    let count = if support::is_stand_in() {
        1_000
    } else {
        100_000
    };
    for start in (0..count).step_by(1_000) {
        let mut line = vec!["SUBSCRIBE".to_owned()];
        line.extend((start..start + 1_000).map(|number| format!("channel:{number}")));
        subscriber.send(&crate::wire::encode(&line));
        for _ in 0..1_000 {
            subscriber.read();
        }
    }
    let list = publisher.call("CLIENT LIST TYPE PUBSUB").body();
    assert!(
        list.contains(&format!(" flags=P capa= db=0 sub={count} psub=0 ssub=0 ")),
        "{list}"
    );
    let info = publisher.call("INFO stats").body();
    assert!(info.contains(&format!("pubsub_channels:{count}")), "{info}");
    check(
        &mut publisher,
        &format!("PUBLISH channel:{} x", count - 1),
        "(integer) 1",
    );
    assert_eq!(
        message(&mut subscriber),
        format!("message channel:{} x", count - 1)
    );
    drop(subscriber);
    eventually("forgotten", || {
        publisher
            .call("INFO stats")
            .body()
            .contains("pubsub_channels:0\r")
    });
}

#[test]
fn kill_and_list_know_subscribers() {
    support::at_each_shard_count(|server| {
        let (mut normal, mut subscriber) = (server.raw(), server.raw());
        let id = subscriber.call("CLIENT ID").integer();
        subscribe(&mut subscriber, "PSUBSCRIBE a");
        let line = normal.call(&format!("CLIENT LIST ID {id}")).body();
        assert!(
            line.contains(" flags=P ") && line.contains(" sub=0 psub=1 ssub=0 "),
            "{line}"
        );
        assert!(
            !normal
                .call("CLIENT LIST TYPE NORMAL")
                .body()
                .contains(&format!("id={id} "))
        );
        check(&mut normal, "CLIENT KILL TYPE PUBSUB", "(integer) 1");
        assert!(subscriber.is_closed());
        eventually("forgotten", || normal.call("PUBSUB NUMPAT").integer() == 0);
    });
}

#[test]
fn a_message_reaches_a_blocked_client_at_once() {
    support::at_each_shard_count(|server| {
        let (mut waiting, mut other) = (server.raw3(), server.raw());
        subscribe(&mut waiting, "SUBSCRIBE c");
        waiting.send(b"BLPOP list 0\r\n");
        eventually("blocked", || {
            other
                .call("INFO clients")
                .body()
                .contains("blocked_clients:1")
        });
        for text in ["x", "y"] {
            check(&mut other, &format!("PUBLISH c {text}"), "(integer) 1");
            assert_eq!(message(&mut waiting), format!("message c {text}"));
        }
        check(&mut other, "RPUSH list v", "(integer) 1");
        assert_eq!(waiting.read().show(), "1) \"list\"\n2) \"v\"");
    });
}
