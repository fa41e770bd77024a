//! A connection's changes are notified in the order in which it made them, each change once, whichever shards
//! it is on and however it was made; messages that a transaction publishes keep their position among them.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::client::{Client, Words, eval, is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::{Raw, Value};

const TELLERS: usize = 4;

/// Tags of the keys: changes of one connection go over some shards.
const TAGS: usize = 7;

/// Sets keys that it does not name.
const SET: &str = "for i, key in ipairs(ARGV) do redis.call('set', key, 'v') end return #ARGV";

/// Changes of each teller, which must be notified.
static TOLD: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
/// Changes of each teller that were received.
static HEARD: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

pub(crate) const FLOORS: &[(&str, u64)] = &[("events heard", 300)];

pub(crate) fn workers(storm: &Storm) -> Vec<Worker> {
    *TOLD.lock().expect("tellers") = vec![Vec::new(); TELLERS];
    *HEARD.lock().expect("tellers") = vec![Vec::new(); TELLERS];
    let mut subscriber = Raw::connect(storm.port);
    for pattern in ["__keyspace@0__:*}ev:*", "said:*"] {
        subscriber.call(&format!("PSUBSCRIBE {pattern}"));
    }
    let mut sink = Raw::connect(storm.port);
    sink.call("PSUBSCRIBE __keyevent@*");
    let mut workers = vec![
        Worker::new("subscriber", move |at| hears(at, subscriber)),
        Worker::new("sink of events", move |at| sinks(at, sink)),
    ];
    for teller in 0..TELLERS {
        workers.push(Worker::new(format!("teller {teller}"), move |at| {
            tells(at, teller)
        }));
    }
    workers
}

/// Returns the key of a change; each is changed once, and expires by itself.
fn key(teller: usize, serial: u64) -> String {
    format!("{{e{}}}ev:{teller}:{serial}", serial * 5 % TAGS as u64)
}

/// Returns a request and the serials of its changes.
fn change(at: &mut At<'_>, teller: usize, serial: &mut u64) -> (Words, Vec<u64>) {
    let mut next = || {
        *serial += 1;
        *serial
    };
    match at.draw.below(5) {
        0 => {
            let serials: Vec<u64> = (0..3).map(|_| next()).collect();
            let mut mset = words("MSET");
            for serial in &serials {
                mset.extend([key(teller, *serial), "v".to_owned()]);
            }
            (mset, serials)
        }
        1 => {
            let serials: Vec<u64> = (0..3).map(|_| next()).collect();
            let keys: Vec<String> = serials.iter().map(|serial| key(teller, *serial)).collect();
            (eval(SET, &[], &keys), serials)
        }
        _ => {
            let serial = next();
            (
                words(&format!("SET {} v PX 60000", key(teller, serial))),
                vec![serial],
            )
        }
    }
}

fn tells(at: &mut At<'_>, teller: usize) {
    let mut client = at.client();
    let mut serial = 0;
    while at.goes_on() {
        // No writer is to be further ahead than the subscriber can follow.
        let (told, heard) = (
            at.storm.kept("changes told"),
            at.storm.kept("changes heard"),
        );
        if told > heard + 5_000 {
            at.nap(std::time::Duration::from_millis(3));
            continue;
        }
        let told = match at.draw.below(4) {
            0 => in_transaction(at, &mut client, teller, &mut serial),
            _ => {
                let changes: Vec<(Words, Vec<u64>)> = (0..1 + at.draw.below(16))
                    .map(|_| change(at, teller, &mut serial))
                    .collect();
                let requests: Vec<Words> = changes.iter().map(|(words, _)| words.clone()).collect();
                let replies = client.batch(&requests);
                let ran = replies.iter().zip(&changes);
                let ran = ran.filter(|(reply, _)| !is_void(reply));
                ran.flat_map(|(_, (_, serials))| serials.clone()).collect()
            }
        };
        at.storm.keep("changes told", told.len() as u64);
        TOLD.lock().expect("tellers")[teller].extend(told);
    }
    client.finish();
    at.storm.keep("tellers done", 1);
}

/// Changes with messages between them.
fn in_transaction(
    at: &mut At<'_>,
    client: &mut Client,
    teller: usize,
    serial: &mut u64,
) -> Vec<u64> {
    let mut commands = Vec::new();
    let mut serials = Vec::new();
    for _ in 0..2 {
        let (request, changed) = change(at, teller, serial);
        commands.push(request);
        serials.push(changed);
        *serial += 1;
        commands.push(words(&format!("PUBLISH said:{teller} {serial}")));
        serials.push(vec![*serial]);
    }
    let Some(replies) = client.transaction(&commands) else {
        return Vec::new();
    };
    let ran = replies.iter().zip(&serials);
    let ran = ran.filter(|(reply, _)| !is_void(reply));
    ran.flat_map(|(_, serials)| serials.clone()).collect()
}

/// Returns the teller and the serial of a push, if it is about a change.
fn heard_of(push: &Value) -> Option<(usize, u64)> {
    let [_, _, channel, payload] = push.items() else {
        return None;
    };
    let (channel, payload) = (channel.text(), payload.text());
    if let Some(teller) = channel.strip_prefix("said:") {
        return Some((teller.parse().ok()?, payload.parse().ok()?));
    }
    // Each key is set once; later events of it (`expire`, `new`) are no changes of their own.
    if payload != "set" {
        return None;
    }
    let (_, name) = channel.split_once("}ev:")?;
    let (teller, serial) = name.split_once(':')?;
    Some((teller.parse().ok()?, serial.parse().ok()?))
}

fn hears(at: &mut At<'_>, mut subscriber: Raw) {
    const POLL: std::time::Duration = std::time::Duration::from_millis(20);
    const IDLE_MAX: usize = 250;
    let mut last: HashMap<usize, u64> = HashMap::new();
    let stream = subscriber.stream().try_clone().expect("the socket");
    let is_there = |subscriber: &Raw| {
        if subscriber.has_pending() {
            return true;
        }
        stream.set_read_timeout(Some(POLL)).expect("a time-out");
        let is_there = stream.peek(&mut [0]).is_ok();
        let patience = Some(crate::storm::STALLED_AFTER);
        stream.set_read_timeout(patience).expect("a time-out");
        is_there
    };
    let are_done = |at: &At<'_>| {
        let is_all_heard = at.storm.kept("changes told") == at.storm.kept("changes heard");
        is_all_heard && at.storm.kept("tellers done") == TELLERS as u64
    };
    let mut idle = 0;
    // Beyond the end, until everything was received or nothing comes any more.
    while at.goes_on() || idle < IDLE_MAX && !are_done(at) {
        if !is_there(&subscriber) {
            idle += usize::from(at.storm.is_over());
            continue;
        }
        idle = 0;
        let push = subscriber.read();
        let Some((teller, serial)) = heard_of(&push) else {
            continue;
        };
        let last = last.entry(teller).or_default();
        if serial <= *last {
            at.storm.fault(format!(
                "change {serial} of teller {teller} was heard after {last}"
            ));
        }
        *last = serial;
        at.storm.keep("changes heard", 1);
        at.storm.count("events heard", 1);
        HEARD.lock().expect("tellers")[teller].push(serial);
    }
}

/// Reads all messages and checks only that they come.
fn sinks(at: &mut At<'_>, sink: Raw) {
    use std::io::Read;
    let mut stream = sink.stream();
    let mut bytes = vec![0; 256 * 1024];
    let poll = Some(std::time::Duration::from_millis(50));
    stream.set_read_timeout(poll).expect("a time-out");
    while at.goes_on() {
        match stream.read(&mut bytes) {
            Ok(0) => panic!("the sink of events was closed"),
            Ok(count) => at.storm.count("bytes of other events", count as u64),
            Err(_) => {}
        }
    }
}

/// Checks that all changes were received, once, and nothing else.
pub(crate) fn judge(storm: &Storm) {
    let (told, heard) = (
        TOLD.lock().expect("tellers"),
        HEARD.lock().expect("tellers"),
    );
    for (teller, (told, heard)) in told.iter().zip(heard.iter()).enumerate() {
        if told != heard {
            let first = told
                .iter()
                .zip(heard)
                .position(|(told, heard)| told != heard);
            storm.fault(format!(
                "teller {teller}: {} changes, {} heard; the first that differs is {:?} of them",
                told.len(),
                heard.len(),
                first
            ));
        }
    }
}
