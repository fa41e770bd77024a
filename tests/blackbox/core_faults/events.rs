//! Keyspace events under load: no client hangs because of them or waits because others receive them, and each
//! is received once, in the order in which its connection caused them.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use super::{SHARDS, at_each_thread_count, eval, must_reply, reply_in_time, tag, turns_of_ms};
use crate::support::{Options, Server, check};
use crate::wire::{Raw, encode, encode_into};

/// Starts a server whose subscribers may lag behind without limit.
fn server_with_events(threads: usize, classes: &str) -> Server {
    let options = Options::shards(SHARDS)
        .threads(threads)
        .with("notify-keyspace-events", classes)
        .with("client-output-buffer-limit", "pubsub 0 0 0");
    Server::start(&options)
}

fn subscriber_of(server: &Server, event: &str) -> Raw {
    let mut raw = server.raw();
    raw.call(&format!("SUBSCRIBE __keyevent@0__:{event}"));
    raw
}

/// Returns the key of the next event that a subscriber receives.
fn next_key(subscriber: &mut Raw, what: &str) -> String {
    let push = must_reply(subscriber, what);
    push.items()[2].text()
}

#[test]
fn large_msets_of_many_clients_are_all_answered_while_somebody_listens() {
    const CLIENTS: usize = 60;
    const ROUNDS: usize = 3;
    const KEYS: usize = 2_000;
    let server = server_with_events(4, "E$");
    let mut subscriber = subscriber_of(&server, "set");
    let mut heard: HashMap<String, usize> = HashMap::new();
    let answered: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let mut raw = server.raw();
                    let mut words = vec!["MSET".to_owned()];
                    for key in 0..KEYS {
                        words.extend([format!("{{h}}{client}:{key}"), "v".to_owned()]);
                    }
                    let mset = encode(&words);
                    let rounds = 0..ROUNDS;
                    let is_answered = |_: &usize| {
                        raw.send(&mset);
                        reply_in_time(&mut raw).is_some_and(|reply| reply.show() == "OK")
                    };
                    rounds.take_while(is_answered).count()
                })
            })
            .collect();
        for _ in 0..CLIENTS * ROUNDS * KEYS {
            let Some(push) = reply_in_time(&mut subscriber) else {
                break;
            };
            *heard.entry(push.items()[2].text()).or_default() += 1;
        }
        let answered = clients.into_iter();
        answered.map(|client| client.join().expect("a count")).sum()
    });
    let events: usize = heard.values().sum();
    assert_eq!(
        answered,
        CLIENTS * ROUNDS,
        "MSETs were answered, and {events} events heard"
    );
    assert_eq!(events, CLIENTS * ROUNDS * KEYS, "events were heard");
    assert_eq!(heard.len(), CLIENTS * KEYS);
    assert!(heard.values().all(|times| *times == ROUNDS));
    check(&mut server.raw(), "PING", "PONG");
}

/// Returns how many pipelines of all clients were answered, and the most of these during one client's wait
/// for one of its own.
fn pipelines_answered(server: &Server, clients: usize, time: Duration) -> (u64, u64) {
    const DEPTH: usize = 64;
    let (answered, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (answered, longest, is_over) = (&answered, &longest, &is_over);
            scope.spawn(move || {
                let mut raw = server.raw();
                let mut bytes = Vec::new();
                for number in 0..DEPTH {
                    encode_into(
                        &mut bytes,
                        &["SET", &format!("{{h}}{client}:{number}"), "v"],
                    );
                }
                while !is_over.load(Relaxed) {
                    let before = answered.load(SeqCst);
                    raw.send(&bytes);
                    for number in 0..DEPTH {
                        let what = format!("SET {number} of a pipeline of client {client}");
                        assert_eq!(must_reply(&mut raw, &what).show(), "OK");
                    }
                    let by_others = answered.fetch_add(1, SeqCst) - before;
                    longest.fetch_max(by_others, SeqCst);
                }
            });
        }
        std::thread::sleep(time);
        is_over.store(true, Relaxed);
    });
    (answered.into_inner(), longest.into_inner())
}

#[test]
fn nobody_waits_for_a_reply_because_others_have_events() {
    const CLIENTS: usize = 16;
    /// Each event is compared with all of them: it takes longer to tell of a change than to make it.
    const PATTERNS: usize = 300;
    let server = server_with_events(4, "E$");
    let mut subscriber = server.raw();
    for number in 0..PATTERNS {
        subscriber.call(&format!("PSUBSCRIBE __keyevent@0__:*nothing{number}"));
    }
    let (answered, longest) = pipelines_answered(&server, CLIENTS, Duration::from_secs(4));
    eprintln!("{longest} of {answered} pipelines were answered while one client waited");
    assert!(answered > 4 * CLIENTS as u64, "only {answered} pipelines");
    assert!(
        longest < answered / 2,
        "a client waited for one pipeline while {longest} of all {answered} were answered"
    );
}

#[test]
fn events_of_one_connection_are_heard_in_its_order() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 40;
    const PAIRS: usize = 32;
    at_each_thread_count(&[2, 4, 8], |threads| {
        let server = server_with_events(threads, "E$");
        let mut subscriber = subscriber_of(&server, "set");
        let reversed = std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let server = &server;
                scope.spawn(move || {
                    let mut raw = server.raw();
                    // All clients share a few shards, so that queues form.
                    let tags = [tag(client % 3), tag(3 + client % 2)];
                    for round in 0..ROUNDS {
                        let mut bytes = Vec::new();
                        for pair in 0..PAIRS {
                            for (at, tag) in tags.iter().enumerate() {
                                let number = (round * PAIRS + pair) * 2 + at;
                                let key = format!("{tag}{client}:{number}");
                                encode_into(&mut bytes, &["SET", &key, "v"]);
                            }
                        }
                        raw.send(&bytes);
                        for _ in 0..2 * PAIRS {
                            assert_eq!(must_reply(&mut raw, "SET").show(), "OK");
                        }
                    }
                });
            }
            let mut last: HashMap<usize, usize> = HashMap::new();
            let mut reversed = 0;
            for number in 0..CLIENTS * ROUNDS * PAIRS * 2 {
                let key = next_key(&mut subscriber, &format!("event {number}"));
                let (_, name) = key.split_once('}').expect("a tag");
                let (client, number) = name.split_once(':').expect("client:number");
                let (client, number) = (
                    client.parse().expect("a number"),
                    number.parse::<usize>().expect("a number") + 1,
                );
                let last = last.entry(client).or_default();
                reversed += usize::from(number != *last + 1);
                *last = number;
            }
            reversed
        });
        let heard = CLIENTS * ROUNDS * PAIRS * 2;
        eprintln!("{threads} threads: {reversed} of {heard} events were heard out of their order");
        assert_eq!(
            reversed, 0,
            "of {heard} events heard out of their connection's order, {threads} threads"
        );
    });
}

#[test]
fn a_script_that_is_run_again_tells_of_a_miss_once() {
    let server = server_with_events(2, "Em");
    let mut raw = server.raw();
    let mut subscriber = subscriber_of(&server, "keymiss");
    let turns = turns_of_ms(&mut raw, 40).to_string();
    // Too slow for the thread of a connection, and in need of a shard that others keep taking.
    let script = "
        local found = redis.call('get', KEYS[1])
        for i = 1, tonumber(ARGV[1]) do end
        redis.call('incr', ARGV[2])
        return found";
    let (mine, other) = (tag(1), tag(2));
    let is_over = AtomicBool::new(false);
    const ROUNDS: usize = 10;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut raw = server.raw();
                let line = format!("INCR {other}busy");
                let lines = vec![line.as_str(); 64];
                while !is_over.load(Relaxed) {
                    raw.pipeline(&lines);
                }
            });
        }
        for round in 0..ROUNDS {
            // Each is a different script, whose running time is unknown.
            let script = format!("-- {round}\n{script}");
            let (missing, counter) = (format!("{mine}missing:{round}"), format!("{other}counter"));
            let reply = eval(&mut raw, &script, &["1", &missing, &turns, &counter]);
            assert!(reply.is_nil(), "{}", reply.show());
            raw.call("MULTI");
            raw.call(&format!("GET {missing}:in-exec"));
            eval(&mut raw, &script, &["1", &missing, &turns, &counter]);
            assert_eq!(raw.call("EXEC").items().len(), 2);
        }
        is_over.store(true, Relaxed);
    });
    raw.call("GET mark");
    let mut heard: HashMap<String, usize> = HashMap::new();
    loop {
        let key = next_key(&mut subscriber, "the mark");
        if key == "mark" {
            break;
        }
        *heard.entry(key).or_default() += 1;
    }
    for round in 0..ROUNDS {
        let missing = format!("{mine}missing:{round}");
        assert_eq!(heard.remove(&missing), Some(2), "{missing}");
        let missing = format!("{missing}:in-exec");
        assert_eq!(heard.remove(&missing), Some(1), "{missing}");
    }
    assert_eq!(heard, HashMap::new());
}
