//! Delayed queues with many waiting consumers: each member goes to one consumer, not before it is due, and no
//! consumer has to ask twice.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{self, at_each_shard_count, blocked, check, eventually};
use crate::wire::{Raw, encode};

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a time after 1970").as_millis() as u64
}

fn in_seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

/// Returns key, member and score of a reply of BZPOPDUE.
fn taken(raw: &mut Raw) -> (String, String, f64) {
    let reply = raw.read();
    let first = &reply.items()[1].items()[0];
    let score = first.items()[1].text().parse().expect("a score");
    (reply.items()[0].text(), first.items()[0].text(), score)
}

#[test]
fn consumers_sleep_until_the_earliest_is_due_or_an_earlier_one_comes() {
    at_each_shard_count(|server| {
        let mut other = server.raw();
        let late = now_ms() + 600_000;
        other.command(&["ZADD", "q", &in_seconds(late), "late"]);
        let mut first = blocked(server, &mut other, "BZPOPDUE none q 0");
        let mut second = blocked(server, &mut other, "BZPOPDUE q 0 COUNT 5");
        let at = now_ms() + 120;
        other.command(&["ZADD", "q", &in_seconds(at), "soon"]);
        let (key, member, score) = taken(&mut first);
        assert!(now_ms() >= at, "before its time");
        assert_eq!((key.as_str(), member.as_str()), ("q", "soon"));
        assert!((score * 1_000.0 - at as f64).abs() < 0.5, "{score}");
        check(&mut other, "ZCARD q", "(integer) 1");
        // Overdue members are returned at once, as many as were requested.
        other.call("ZADD q 1 a 2 b 3 c");
        check_read(
            &mut second,
            "1) \"q\"\n2) 1) 1) \"a\"\n      2) \"1\"\n   2) 1) \"b\"\n      2) \"2\"\n   3) 1) \"c\"\n      2) \"3\"",
        );
        check(&mut other, "ZPOPDUE q COUNT 5", "(empty array)");
        check(&mut other, "ZCARD q", "(integer) 1");
        // The time ends for nothing, and an earlier score brings a member forward.
        let mut third = blocked(server, &mut other, "BZPOPDUE q 0.05");
        check_read(&mut third, "(nil array)");
        let mut fourth = blocked(server, &mut other, "BZPOPDUE q 0");
        other.call("ZADD q 5 late");
        assert_eq!(taken(&mut fourth).1, "late");
        check(&mut other, "EXISTS q", "(integer) 0");
        // In a transaction and a script nothing waits.
        other.call("MULTI");
        other.call("BZPOPDUE q 0");
        check(&mut other, "EXEC", "1) (nil array)");
        check(
            &mut other,
            "EVAL \"return redis.call('BZPOPDUE', KEYS[1], 0)\" 1 q",
            "(nil)",
        );
    });
}

#[track_caller]
fn check_read(raw: &mut Raw, expected: &str) {
    assert_eq!(raw.read().show(), expected);
}

#[test]
fn many_consumers_and_producers_lose_double_and_hasten_nothing() {
    const CONSUMERS: usize = 20;
    const PRODUCERS: usize = 4;
    const EACH: usize = 200;
    at_each_shard_count(|server| {
        let port = server.port;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    let (stop, mut got) = (format!("stop:{number}"), Vec::new());
                    let mut requests = 0;
                    loop {
                        requests += 1;
                        raw.send(&encode(&["BZPOPDUE", "queue:0", "queue:1", &stop, "0"]));
                        let (key, member, score) = taken(&mut raw);
                        assert!(
                            now_ms() as f64 >= score * 1_000.0 - 0.5,
                            "{member} came too early"
                        );
                        if key == stop {
                            return (got, requests);
                        }
                        got.push(member);
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    let mut draw = support::Draw::new(producer as u64);
                    for number in 0..EACH {
                        let at = now_ms() + draw.below(150) as u64;
                        let (queue, member) = (
                            format!("queue:{}", number % 2),
                            format!("{producer}:{number}"),
                        );
                        raw.command(&["ZADD", &queue, &in_seconds(at), &member])
                            .integer();
                        if number % 10 == 0 {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().expect("no producer fails");
        }
        let mut raw = server.raw();
        eventually("all taken", || {
            raw.call("EXISTS queue:0 queue:1").integer() == 0
        });
        for number in 0..CONSUMERS {
            raw.command(&["ZADD", &format!("stop:{number}"), "1", "now"]);
        }
        let mut seen = HashSet::new();
        let mut requests = 0;
        for consumer in consumers {
            let (got, asked) = consumer.join().expect("no consumer fails");
            requests += asked;
            for member in got {
                assert!(seen.insert(member.clone()), "{member} was given out twice");
            }
        }
        assert_eq!(seen.len(), PRODUCERS * EACH);
        assert_eq!(
            requests,
            PRODUCERS * EACH + CONSUMERS,
            "no consumer asked in vain"
        );
        check(&mut raw, "DBSIZE", "(integer) 0");
    });
}

#[test]
fn mistakes_are_named() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        raw.call("SET string v");
        raw.call("ZADD q 1 a");
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (line, error) in [
            (
                "ZPOPDUE",
                "ERR wrong number of arguments for 'zpopdue' command",
            ),
            ("ZPOPDUE q 5", "ERR syntax error"),
            ("ZPOPDUE q COUNT", "ERR syntax error"),
            ("ZPOPDUE q COUNT 1 2", "ERR syntax error"),
            ("ZPOPDUE q COUNT 0", "ERR count should be greater than 0"),
            ("ZPOPDUE q COUNT -1", "ERR count should be greater than 0"),
            ("ZPOPDUE q COUNT x", "ERR count should be greater than 0"),
            ("ZPOPDUE string", wrong),
            (
                "BZPOPDUE q",
                "ERR wrong number of arguments for 'bzpopdue' command",
            ),
            ("BZPOPDUE q x", "ERR timeout is not a float or out of range"),
            ("BZPOPDUE q -1", "ERR timeout is negative"),
            ("BZPOPDUE q 0 COUNT 0", "ERR count should be greater than 0"),
            (
                "BZPOPDUE q x COUNT 1",
                "ERR timeout is not a float or out of range",
            ),
            ("BZPOPDUE string 0", wrong),
        ] {
            check(&mut raw, line, &format!("(error) {error}"));
        }
        raw.call("DEL q");
        raw.call("ZADD q -inf a inf never");
        check(
            &mut raw,
            "ZPOPDUE q COUNT 9223372036854775807",
            "1) \"a\"\n2) \"-inf\"",
        );
        // A client may wait for a member that is never due, and still gets another member.
        let mut other = server.raw();
        let mut waiter = blocked(server, &mut other, "BZPOPDUE q 0");
        other.call("ZADD q 1 b");
        assert_eq!(taken(&mut waiter).1, "b");
    });
}
