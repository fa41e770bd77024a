//! Streams on several shards: readers that wait for all of them see every entry of each in order, and a
//! client that waits for two is served from the one with a matching change, while the other's changes do not
//! concern it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::client::{Words, is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::Raw;

const STREAMS: usize = 4;
const WRITERS: usize = 2;
const READERS: usize = 2;

/// Entries that a writer may be ahead of the slowest reader.
const AHEAD_MAX: u64 = 500;

fn stream(number: usize) -> String {
    format!("{{s{number}}}stream")
}

/// Name under which a reader's position in a writer's entries is kept.
fn seen_name(reader: usize, writer: usize) -> String {
    format!("reader {reader} of writer {writer}")
}

pub(crate) const FLOORS: &[(&str, u64)] = &[("entries read", 100), ("two streams awaited", 12)];

pub(crate) fn workers(storm: &Storm) -> Vec<Worker> {
    let mut raw = Raw::connect(storm.port);
    for number in 0..STREAMS {
        raw.call(&format!("XADD {} * w none", stream(number)));
    }
    let mut workers = Vec::new();
    for writer in 0..WRITERS {
        workers.push(Worker::new(format!("stream writer {writer}"), move |at| {
            writes(at, writer)
        }));
    }
    for reader in 0..READERS {
        workers.push(Worker::new(format!("stream reader {reader}"), move |at| {
            reads(at, reader)
        }));
    }
    workers.extend(meetings());
    workers
}

fn writes(at: &mut At<'_>, writer: usize) {
    let mut client = at.client();
    // For each stream.
    let mut serials = [0_u64; STREAMS];
    let mut written = 0;
    while at.goes_on() {
        let seen = (0..READERS).map(|reader| at.storm.kept(&seen_name(reader, writer)));
        if written > seen.min().unwrap_or(0) + AHEAD_MAX {
            at.nap(Duration::from_millis(3));
            continue;
        }
        let numbers: Vec<usize> = (0..1 + at.draw.below(6))
            .map(|_| at.draw.below(STREAMS))
            .collect();
        let mut serials_now = serials;
        let adds: Vec<Words> = numbers
            .iter()
            .map(|&number| {
                serials_now[number] += 1;
                let (key, serial) = (stream(number), serials_now[number]);
                words(&format!("XADD {key} MAXLEN ~ 5000 * w {writer}:{serial}"))
            })
            .collect();
        // All or none of them: no serial may be missing because of a refusal.
        if client.transaction(&adds).is_some() {
            serials = serials_now;
            written += adds.len() as u64;
        }
    }
    client.finish();
}

fn reads(at: &mut At<'_>, reader: usize) {
    let mut client = at.client();
    let mut last_ids = vec!["0".to_owned(); STREAMS];
    // The last serial seen of each writer in each stream.
    let mut serials: HashMap<(usize, usize), u64> = HashMap::new();
    while at.goes_on() {
        let keys: Vec<String> = (0..STREAMS).map(stream).collect();
        let reply = client.call(words(&format!(
            "XREAD COUNT 40 BLOCK 300 STREAMS {} {}",
            keys.join(" "),
            last_ids.join(" ")
        )));
        if reply.is_nil() || is_void(&reply) {
            continue;
        }
        for found in reply.items() {
            let key = found.items()[0].text();
            let number = keys
                .iter()
                .position(|name| *name == key)
                .expect("one of ours");
            for entry in found.items()[1].items() {
                last_ids[number] = entry.items()[0].text();
                let value = entry.items()[1].items()[1].text();
                let Some((writer, serial)) = value.split_once(':') else {
                    continue;
                };
                let writer: usize = writer.parse().expect("a number");
                let serial: u64 = serial.parse().expect("a number");
                let last = serials.entry((number, writer)).or_default();
                if serial != *last + 1 {
                    at.storm.fault(format!(
                        "{}: entry {serial} of writer {writer} in {key} after {last}",
                        at.name
                    ));
                }
                *last = serial;
                at.storm.keep(&seen_name(reader, writer), 1);
                at.storm.count("entries read", 1);
            }
        }
    }
    client.finish();
}

/// Number of clients that wait in one meeting.
const WAITERS: usize = 4;

/// Three workers that meet over and over: the first waits for two streams on other shards; meanwhile another
/// one adds an entry without a waiter to the one stream, and the third the awaited entry to the other stream.
fn meetings() -> Vec<Worker> {
    let (tell_noise, hear_noise) = sync_channel(1);
    let (tell_news, hear_news) = sync_channel(1);
    let (tell_done, hear_done) = sync_channel(2);
    let done = tell_done.clone();
    vec![
        Worker::new("meeting", move |at| {
            meets(at, &[tell_noise, tell_news], &hear_done)
        }),
        Worker::new("meeting's noise", move |at| {
            adds(at, &hear_noise, &tell_done, |round| {
                let key = meeting_stream(round, 0);
                let add = |number| words(&format!("XADD {key} {number}-0 w noise"));
                (1..=20).map(add).collect()
            });
        }),
        Worker::new("meeting's news", move |at| {
            adds(at, &hear_news, &done, |round| {
                vec![words(&format!(
                    "XADD {} 1-0 w news",
                    meeting_stream(round, 1)
                ))]
            });
        }),
    ]
}

fn meeting_stream(round: u64, which: u64) -> String {
    format!("{{m{}}}meeting{which}", (round * 2 + which) % 61)
}

/// Returns the waiting request: for entries of the one stream that never come, and the first of the other.
fn waits_for(round: u64) -> Words {
    let (noise, news) = (meeting_stream(round, 0), meeting_stream(round, 1));
    words(&format!("XREAD BLOCK 0 STREAMS {noise} {news} 999999-0 0"))
}

fn meets(at: &mut At<'_>, tell: &[SyncSender<u64>; 2], hear_done: &Receiver<()>) {
    let mut control = at.client();
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| at.client()).collect();
    for round in 0.. {
        if !at.goes_on() {
            break;
        }
        let (noise, news) = (meeting_stream(round, 0), meeting_stream(round, 1));
        // Repeated while a script is busy, or else the awaited entry would be there already.
        while is_void(&control.call(words(&format!("DEL {noise} {news}")))) {
            at.nap(Duration::from_millis(5));
        }
        for waiter in &mut waiters {
            waiter.raw().send(&crate::wire::encode(&waits_for(round)));
        }
        at.nap(Duration::from_millis(3));
        for tell in tell {
            if tell.send(round).is_err() {
                return;
            }
        }
        for _ in 0..2 {
            if hear_done.recv().is_err() {
                return;
            }
        }
        for waiter in &mut waiters {
            let what = format!("round {round}, whose news are there");
            let reply = waiter.read("XREAD BLOCK of two streams,", Some(&what));
            if is_void(&reply) {
                continue;
            }
            assert!(reply.show().contains("news"), "{}", reply.show());
            at.storm.count("two streams awaited", 1);
        }
    }
    control.finish();
    waiters.iter_mut().for_each(|waiter| waiter.finish());
}

/// Sends the entries that each round needs, until all were received.
fn adds(
    at: &mut At<'_>,
    hear: &Receiver<u64>,
    tell_done: &SyncSender<()>,
    requests: impl Fn(u64) -> Vec<Words>,
) {
    let mut client = at.client();
    loop {
        at.goes_on();
        let round = match hear.recv_timeout(Duration::from_millis(200)) {
            Ok(round) => round,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => continue,
            Err(_) => break,
        };
        for request in requests(round) {
            // Refused requests are sent again; noise may be there by then.
            while is_void(&client.call(request.clone())) {
                at.nap(Duration::from_millis(5));
            }
        }
        if tell_done.send(()).is_err() {
            break;
        }
    }
    client.finish();
}
