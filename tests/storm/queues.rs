//! Lists on many shards as queues: each pushed element is received by one consumer, once, or is still there.
//! And streams with consumer groups: each entry is received by one consumer.
//!
//! Consumers wait for several lists; other clients move elements from list to list; some are unblocked.
//! Clients that are killed or disconnect at any moment take from lists of their own: an element of these may
//! be lost with its client, but no two clients receive it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::client::{Client, Words, eval, is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::{Raw, Value};

const LISTS: usize = 8;
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 4;

/// Elements that may be in the lists at once.
const AHEAD_MAX: u64 = 400;

/// Elements received so far: from lists, from lists whose consumers may vanish at any moment, and by the
/// groups.
static HAD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Elements that were pushed, according to the replies.
static PUSHED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

pub(crate) fn list(number: usize) -> String {
    format!("{{l{number}}}list")
}

/// Returns a list whose consumers may vanish at any moment.
pub(crate) fn lossy(number: usize) -> String {
    format!("{{y{number}}}lossy")
}

pub(crate) const LOSSY: usize = 4;

const PUSH: &str = "for i = 2, #ARGV do redis.call('rpush', ARGV[1], ARGV[i]) end return #ARGV - 1";

pub(crate) const FLOORS: &[(&str, u64)] = &[("elements had", 200), ("consumers' entries", 50)];

pub(crate) fn workers(storm: &Storm) -> Vec<Worker> {
    let mut raw = Raw::connect(storm.port);
    for stream in 0..GROUP_STREAMS {
        raw.call(&format!(
            "XGROUP CREATE {} g $ MKSTREAM",
            group_stream(stream)
        ));
    }
    let mut workers = Vec::new();
    for producer in 0..PRODUCERS {
        workers.push(Worker::new(format!("producer {producer}"), move |at| {
            produces(at, producer)
        }));
    }
    for consumer in 0..CONSUMERS {
        workers.push(Worker::new(format!("consumer {consumer}"), consumes));
    }
    workers.push(Worker::new("mover of elements", moves_elements));
    workers.push(Worker::new("group producer", produces_entries));
    for consumer in 0..GROUP_CONSUMERS {
        workers.push(Worker::new(
            format!("group consumer {consumer}"),
            move |at| {
                consumes_entries(at, consumer);
            },
        ));
    }
    workers
}

/// A push of some elements to a list.
fn push(at: &mut At<'_>, elements: &[String]) -> Words {
    let key = list(at.draw.below(LISTS));
    match at.draw.below(3) {
        0 => {
            let mut arguments = vec![key];
            arguments.extend(elements.iter().cloned());
            eval(PUSH, &[], &arguments)
        }
        _ => {
            let mut push = words(&format!("RPUSH {key}"));
            push.extend(elements.iter().cloned());
            push
        }
    }
}

fn produces(at: &mut At<'_>, producer: usize) {
    let mut client = at.client();
    let mut serial = 0;
    while at.goes_on() {
        if at.storm.kept("pushed") > at.storm.kept("had") + AHEAD_MAX {
            at.nap(Duration::from_millis(3));
            continue;
        }
        let mut next = |count: usize| -> Vec<String> {
            let first = serial + 1;
            serial += count as u64;
            (first..=serial)
                .map(|serial| format!("e{producer}:{serial}"))
                .collect()
        };
        let pushed: Vec<Vec<String>> = (0..1 + at.draw.below(6))
            .map(|_| next(1 + at.draw.below(4)))
            .collect();
        let mut requests: Vec<Words> = pushed.iter().map(|elements| push(at, elements)).collect();
        let is_pushed: Vec<bool> = match at.draw.below(4) {
            0 => match client.transaction(&requests) {
                Some(replies) => replies.iter().map(|reply| !is_void(reply)).collect(),
                None => vec![false; requests.len()],
            },
            _ => {
                let (one, other) = (lossy(at.draw.below(LOSSY)), lossy(at.draw.below(LOSSY)));
                let element = &pushed[0][0];
                requests.push(words(&format!("RPUSH {one} y{element}")));
                requests.push(words(&format!("LTRIM {other} -20 -1")));
                let replies = client.batch(&requests);
                replies.iter().map(|reply| !is_void(reply)).collect()
            }
        };
        let elements = pushed.into_iter().zip(is_pushed);
        let elements = elements.filter(|(_, is_pushed)| *is_pushed);
        for element in elements.flat_map(|(elements, _)| elements) {
            at.storm.keep("pushed", 1);
            PUSHED.lock().expect("elements").insert(element);
        }
    }
    client.finish();
}

/// Records a received element.
fn note(storm: &Storm, name: &str, element: String) {
    if !HAD.lock().expect("elements").insert(element.clone()) {
        storm.fault(format!("{name}: {element} was had twice"));
    }
}

fn note_element(at: &At<'_>, element: String) {
    note(at.storm, &at.name, element);
    at.storm.keep("had", 1);
    at.storm.count("elements had", 1);
}

/// Elements of a reply to BLPOP, BLMPOP, LPOP and the like.
fn elements_of(reply: &Value) -> Vec<String> {
    match reply {
        Value::Bulk(_) => vec![reply.text()],
        Value::Array(items) => match items.as_slice() {
            [_, Value::Array(elements)] => elements.iter().map(Value::text).collect(),
            [_, element] => vec![element.text()],
            _ => panic!("{}", reply.show()),
        },
        reply if reply.is_nil() || is_void(reply) => Vec::new(),
        Value::Error(text) if text.starts_with(b"UNBLOCKED") => Vec::new(),
        reply => panic!("{}", reply.show()),
    }
}

fn lists_from(at: &mut At<'_>) -> String {
    let first = at.draw.below(LISTS);
    let count = 2 + at.draw.below(LISTS - 1);
    let lists = (0..count).map(|offset| list((first + offset) % LISTS));
    lists.collect::<Vec<_>>().join(" ")
}

fn consumes(at: &mut At<'_>) {
    let mut client = at.client();
    let id = match client.call(words("CLIENT ID")) {
        Value::Integer(id) => id,
        _ => 0,
    };
    while at.goes_on() {
        let lists = lists_from(at);
        let request = match at.draw.below(6) {
            0 => words(&format!("BRPOP {lists} 0.3")),
            1 => {
                let count = lists.split(' ').count();
                words(&format!("BLMPOP 0.3 {count} {lists} LEFT COUNT 2"))
            }
            2 => {
                // Twice in one pipeline, and something behind.
                let request = words(&format!("BLPOP {lists} 0.2"));
                let requests = [request.clone(), request, words("INCR queue:noise")];
                let replies = client.batch(&requests);
                for reply in &replies[..2] {
                    elements_of(reply)
                        .into_iter()
                        .for_each(|element| note_element(at, element));
                }
                continue;
            }
            3 if id > 0 => {
                let mut other = at.client();
                client
                    .raw()
                    .send(&crate::wire::encode(&words(&format!("BLPOP {lists} 0.3"))));
                at.nap(Duration::from_millis(5));
                other.call(words(&format!("CLIENT UNBLOCK {id}")));
                let reply = client.read("BLPOP", None);
                elements_of(&reply)
                    .into_iter()
                    .for_each(|element| note_element(at, element));
                continue;
            }
            _ => words(&format!("BLPOP {lists} 0.3")),
        };
        let reply = client.call(request);
        elements_of(&reply)
            .into_iter()
            .for_each(|element| note_element(at, element));
    }
    client.finish();
}

/// Moves elements from list to list, both on other shards.
fn moves_elements(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        let from = at.draw.below(LISTS);
        let to = (from + 1 + at.draw.below(LISTS - 1)) % LISTS;
        let (from, to) = (list(from), list(to));
        let request = match at.draw.below(4) {
            0 => words(&format!("LMOVE {from} {to} LEFT RIGHT")),
            1 => words(&format!("BRPOPLPUSH {from} {to} 0.1")),
            _ => words(&format!("BLMOVE {from} {to} LEFT RIGHT 0.2")),
        };
        let reply = client.call(request);
        at.storm
            .count("elements moved", elements_of(&reply).len() as u64);
    }
    client.finish();
}

const GROUP_STREAMS: usize = 3;
const GROUP_CONSUMERS: usize = 4;

fn group_stream(number: usize) -> String {
    format!("{{x{number}}}entries")
}

fn produces_entries(at: &mut At<'_>) {
    let mut client = at.client();
    let mut serial = 0_u64;
    while at.goes_on() {
        if at.storm.kept("entries added") > at.storm.kept("entries had") + AHEAD_MAX {
            at.nap(Duration::from_millis(3));
            continue;
        }
        let adds: Vec<Words> = (0..1 + at.draw.below(4))
            .map(|_| {
                serial += 1;
                let stream = group_stream(at.draw.below(GROUP_STREAMS));
                words(&format!("XADD {stream} MAXLEN ~ 5000 * n g:{serial}"))
            })
            .collect();
        let replies = client.batch(&adds);
        let added = replies
            .iter()
            .zip(&adds)
            .filter(|(reply, _)| !is_void(reply));
        for (_, add) in added {
            at.storm.keep("entries added", 1);
            let element = add.last().expect("a value").clone();
            PUSHED.lock().expect("elements").insert(element);
        }
    }
    client.finish();
}

fn consumes_entries(at: &mut At<'_>, consumer: usize) {
    let mut client = at.client();
    while at.goes_on() {
        let first = at.draw.below(GROUP_STREAMS);
        let streams: Vec<String> = (0..GROUP_STREAMS)
            .map(|offset| group_stream((first + offset) % GROUP_STREAMS))
            .collect();
        let ids = [">"; GROUP_STREAMS].join(" ");
        let count = 1 + at.draw.below(3);
        let reply = client.call(words(&format!(
            "XREADGROUP GROUP g c{consumer} COUNT {count} BLOCK 300 STREAMS {} {ids}",
            streams.join(" ")
        )));
        had_entries(at, &mut client, &reply);
    }
    client.finish();
}

fn had_entries(at: &At<'_>, client: &mut Client, reply: &Value) {
    if reply.is_nil() || is_void(reply) {
        return;
    }
    let mut acknowledgements = Vec::new();
    for stream in reply.items() {
        let key = stream.items()[0].text();
        for entry in stream.items()[1].items() {
            let id = entry.items()[0].text();
            acknowledgements.push(words(&format!("XACK {key} g {id}")));
            note(at.storm, &at.name, entry.items()[1].items()[1].text());
            at.storm.keep("entries had", 1);
            at.storm.count("consumers' entries", 1);
        }
    }
    client.batch(&acknowledgements);
}

/// Records elements of a client that may vanish at any moment: no other client may have received them.
pub(crate) fn note_lossy(at: &At<'_>, reply: &Value) {
    for element in elements_of(reply) {
        note(at.storm, &at.name, element);
    }
}

/// Checks that the pushed elements that were not received are still there, and nothing else.
pub(crate) fn judge(storm: &Storm) {
    let mut raw = Raw::connect(storm.port);
    let mut left = BTreeSet::new();
    for number in 0..LISTS {
        for element in raw.call(&format!("LRANGE {} 0 -1", list(number))).items() {
            if !left.insert(element.text()) {
                storm.fault(format!("{} is there twice", element.show()));
            }
        }
    }
    for number in 0..GROUP_STREAMS {
        let line = format!("XREADGROUP GROUP g last STREAMS {} >", group_stream(number));
        let reply = raw.call(&line);
        if reply.is_nil() {
            continue;
        }
        for entry in reply.items()[0].items()[1].items() {
            left.insert(entry.items()[1].items()[1].text());
        }
    }
    let (had, pushed) = (
        HAD.lock().expect("elements"),
        PUSHED.lock().expect("elements"),
    );
    let is_kept = |element: &&String| !element.starts_with('y');
    for element in left.iter().filter(|element| had.contains(*element)) {
        storm.fault(format!("{element} was had, and is still there"));
    }
    for element in had.iter().chain(&left).filter(is_kept) {
        if !pushed.contains(element) {
            storm.fault(format!("{element} was never pushed, as its reply says"));
        }
    }
    for element in pushed.iter() {
        if !had.contains(element) && !left.contains(element) {
            storm.fault(format!("{element} is lost"));
        }
    }
}
