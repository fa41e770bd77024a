//! A client that caches what it reads: an invalidation arrives before the client can learn of the change
//! otherwise, so that in the end none of its cached values is wrong.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::client::{is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::{Raw, Value};

const KEYS: usize = 30;

/// The client's final cache.
static CACHE: Mutex<Option<HashMap<String, Value>>> = Mutex::new(None);

const WRITER_IS_DONE: &str = "the writer of cached keys is done";

fn key(number: usize) -> String {
    format!("{{c{}}}cached:{number}", number % 11)
}

pub(crate) const FLOORS: &[(&str, u64)] = &[("values cached", 100)];

pub(crate) fn workers(storm: &Storm) -> Vec<Worker> {
    let mut raw = Raw::connect(storm.port);
    raw.call("HELLO 3");
    raw.call("CLIENT TRACKING ON NOLOOP");
    vec![
        Worker::new("caching client", move |at| caches(at, raw)),
        Worker::new("writer of cached keys", writes),
    ]
}

fn writes(at: &mut At<'_>) {
    let mut client = at.client();
    let mut serial = 0;
    while at.goes_on() {
        serial += 1;
        let (one, other) = (key(at.draw.below(KEYS)), key(at.draw.below(KEYS)));
        match at.draw.below(3) {
            0 => {
                client.call(words(&format!("MSET {one} {serial} {other} {serial}")));
            }
            1 => {
                client.transaction(&[
                    words(&format!("SET {one} {serial}")),
                    words(&format!("INCR {other}")),
                ]);
            }
            _ => {
                client.call(words(&format!("SET {one} {serial}")));
            }
        }
        at.nap(Duration::from_millis(2));
    }
    client.finish();
    at.storm.keep(WRITER_IS_DONE, 1);
}

/// Removes the keys that a push invalidates.
fn forget(cache: &mut HashMap<String, Value>, push: &Value) {
    let Value::Push(items) = push else {
        panic!("not an invalidation: {}", push.show());
    };
    match &items[1] {
        Value::Array(keys) => keys.iter().for_each(|key| {
            cache.remove(&key.text());
        }),
        _ => cache.clear(),
    }
}

/// Reads a reply, and applies the invalidations before it.
fn read(raw: &mut Raw, cache: &mut HashMap<String, Value>) -> Value {
    loop {
        let value = raw.read();
        match value {
            Value::Push(_) => forget(cache, &value),
            reply => return reply,
        }
    }
}

fn caches(at: &mut At<'_>, mut raw: Raw) {
    let patience = Some(2 * crate::storm::STALLED_AFTER);
    raw.stream().set_read_timeout(patience).expect("a time-out");
    let mut cache = HashMap::new();
    while at.goes_on() {
        let keys: Vec<String> = (0..4).map(|_| key(at.draw.below(KEYS))).collect();
        let mut bytes = Vec::new();
        for key in &keys {
            crate::wire::encode_into(&mut bytes, &["GET", key]);
        }
        raw.send(&bytes);
        for key in keys {
            let reply = read(&mut raw, &mut cache);
            if !is_void(&reply) {
                cache.insert(key, reply);
                at.storm.count("values cached", 1);
            }
        }
        at.nap(Duration::from_millis(2));
    }
    let began = Instant::now();
    let is_late = || began.elapsed() > crate::storm::STALLED_AFTER;
    while at.storm.kept(WRITER_IS_DONE) == 0 && !is_late() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Invalidations of the writer's last change were sent before the writer had its reply, or are about to
    // be.
    std::thread::sleep(Duration::from_millis(200));
    loop {
        raw.send(b"PING\r\n");
        let reply = read(&mut raw, &mut cache);
        if !is_void(&reply) || is_late() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    *CACHE.lock().expect("the cache") = Some(cache);
}

/// Checks that the cached values equal the stored ones.
pub(crate) fn judge(storm: &Storm) {
    let mut raw = Raw::connect(storm.port);
    let cache = CACHE.lock().expect("the cache").take();
    for (key, kept) in cache.unwrap_or_default() {
        let now = raw.call(&format!("GET {key}"));
        storm.count("values compared with the cache", 1);
        let is_same = now == kept || now.is_nil() && kept.is_nil();
        if !is_same {
            let (now, kept) = (now.show(), kept.show());
            storm.fault(format!("{key} is {now}, and a client still keeps {kept}"));
        }
    }
}
