//! Requests that wait for streams of several shards while all of these change at once: each is served as soon
//! as there is an entry for it, on any shard.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{DEADLINE, POLL, SHARDS, at_each_thread_count, figure, is_readable, must_reply, tag};
use crate::support::{Options, Server, eventually};
use crate::wire::{Raw, Value, encode, encode_into, split};

const WAITERS: usize = 16;

/// Sends the same request on each connection, and waits until all of them wait.
fn all_wait(waiters: &mut [Raw], control: &mut Raw, line: impl Fn(usize) -> String) {
    let count = waiters.len() as u64;
    for (number, raw) in waiters.iter_mut().enumerate() {
        raw.send(&encode(&split(&line(number))));
    }
    eventually("all wait", || {
        figure(control, "clients", "blocked_clients") == count
    });
}

/// Sends some bytes on each of two connections, at once, and takes as many replies.
fn at_once(writers: &mut [(Raw, Vec<u8>, usize)]) {
    let start = Barrier::new(writers.len());
    std::thread::scope(|scope| {
        for (raw, bytes, replies) in writers {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                raw.send(bytes);
                for _ in 0..*replies {
                    let reply = must_reply(raw, "a write");
                    assert!(!reply.is_error(), "{}", reply.show());
                }
            });
        }
    });
}

/// Of two streams, one gets entries older than the waiters ask for, the other one the entries that they wait
/// for.
#[test]
fn who_waits_for_two_streams_hears_of_each() {
    const ROUNDS: usize = 120;
    const OLD: usize = 60;
    at_each_thread_count(&[4], |threads| {
        let server = Server::start(&Options::shards(SHARDS).threads(threads));
        let mut control = server.raw();
        let mut waiters: Vec<Raw> = (0..WAITERS).map(|_| server.raw()).collect();
        let mut writers = [(server.raw(), Vec::new(), 0), (server.raw(), Vec::new(), 0)];
        for round in 0..ROUNDS {
            let (one, other) = (
                format!("{}a", tag(round % SHARDS)),
                format!("{}b", tag((round + 31) % SHARDS)),
            );
            control.call(&format!("DEL {one} {other}"));
            all_wait(&mut waiters, &mut control, |number| match number % 2 {
                0 => format!("XREAD BLOCK 0 STREAMS {one} {other} 9999-0 0"),
                _ => format!("XREAD BLOCK 0 STREAMS {other} {one} 0 9999-0"),
            });
            for (_, bytes, replies) in &mut writers {
                bytes.clear();
                *replies = 0;
            }
            for number in 1..=OLD {
                let id = format!("{number}-0");
                encode_into(&mut writers[0].1, &["XADD", &one, &id, "f", "old"]);
                writers[0].2 += 1;
            }
            // The entry comes somewhere among the others.
            for _ in 0..round % 60 {
                encode_into(&mut writers[1].1, &["EXISTS", &other]);
                writers[1].2 += 1;
            }
            encode_into(&mut writers[1].1, &["XADD", &other, "1-0", "f", "new"]);
            writers[1].2 += 1;
            at_once(&mut writers);
            for (number, raw) in waiters.iter_mut().enumerate() {
                let what =
                    format!("XREAD of waiter {number} in round {round}, whose entry is there");
                let reply = must_reply(raw, &what);
                let show = reply.show();
                assert!(show.contains("new") && !show.contains("old"), "{show}");
            }
        }
    });
}

/// Each entry goes to one consumer; no consumer waits while an entry is left.
#[test]
fn consumers_who_wait_for_two_streams_get_each_entry_once() {
    const ROUNDS: usize = 80;
    at_each_thread_count(&[4], |threads| {
        let server = Server::start(&Options::shards(SHARDS).threads(threads));
        let mut control = server.raw();
        let mut waiters: Vec<Raw> = (0..WAITERS).map(|_| server.raw()).collect();
        let mut writers = [(server.raw(), Vec::new(), 0), (server.raw(), Vec::new(), 0)];
        for round in 0..ROUNDS {
            let keys = [
                format!("{}a", tag(round % SHARDS)),
                format!("{}b", tag((round + 17) % SHARDS)),
            ];
            for key in &keys {
                control.call(&format!("DEL {key}"));
                control.call(&format!("XGROUP CREATE {key} g $ MKSTREAM"));
            }
            let [one, other] = &keys;
            all_wait(&mut waiters, &mut control, |number| match number % 2 {
                0 => format!(
                    "XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS {one} {other} > >"
                ),
                _ => format!(
                    "XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS {other} {one} > >"
                ),
            });
            for (_, bytes, replies) in &mut writers {
                bytes.clear();
                *replies = 0;
            }
            // The one stream gets entries that no consumer finds, so that all are tried in vain, over and over.
            for _ in 0..WAITERS * 2 {
                let (bytes, replies) = (&mut writers[0].1, &mut writers[0].2);
                encode_into(bytes, &["MULTI"]);
                encode_into(bytes, &["XADD", one, "*", "f", "v"]);
                encode_into(bytes, &["XGROUP", "SETID", one, "g", "$"]);
                encode_into(bytes, &["EXEC"]);
                *replies += 4;
            }
            // The other gets as many as there are consumers, meanwhile.
            for number in 1..=WAITERS {
                let (bytes, replies) = (&mut writers[1].1, &mut writers[1].2);
                let id = format!("{number}-0");
                encode_into(bytes, &["XADD", other, &id, "f", "v"]);
                *replies += 1;
            }
            at_once(&mut writers);
            take_each_entry_once(&mut waiters, &mut control, &keys, round);
        }
    });
}

/// Takes replies until all entries were consumed; the remaining consumers then take the entries that were not
/// delivered.
fn take_each_entry_once(waiters: &mut [Raw], control: &mut Raw, keys: &[String; 2], round: usize) {
    let mut is_waiting = [true; WAITERS];
    let mut seen = BTreeSet::new();
    let entries = |reply: &Value| -> Vec<String> {
        let streams = reply.items().iter();
        let of_stream = |stream: &Value| {
            let key = stream.items()[0].text();
            let entries = stream.items()[1].items().iter();
            let id = move |entry: &Value| format!("{key} {}", entry.items()[0].text());
            entries.map(id).collect::<Vec<_>>()
        };
        streams.flat_map(of_stream).collect()
    };
    let began = Instant::now();
    while seen.len() < WAITERS {
        for (raw, is_waiting) in waiters.iter_mut().zip(&mut is_waiting) {
            if *is_waiting && is_readable(raw, Duration::from_millis(1)) {
                *is_waiting = false;
                for entry in entries(&raw.read()) {
                    assert!(
                        seen.insert(entry.clone()),
                        "{entry} was had twice, round {round}"
                    );
                }
            }
        }
        let waiting = is_waiting.iter().filter(|is_waiting| **is_waiting).count();
        assert!(
            began.elapsed() < DEADLINE,
            "{waiting} consumers wait, and {} of {WAITERS} entries are left, round {round}",
            WAITERS - seen.len()
        );
    }
    // A request may have had an entry of each stream; then others wait rightly.
    for (raw, is_waiting) in waiters.iter_mut().zip(is_waiting) {
        while is_waiting && !is_readable(raw, POLL) {
            assert!(
                began.elapsed() < 2 * DEADLINE,
                "a consumer does not hear of new entries"
            );
            control.call(&format!("XADD {} * f v", keys[0]));
        }
        if is_waiting {
            raw.read();
        }
    }
}
