//! Keys that are written together are read together: MSETs over tags on many shards, and MGETs, EXECs and scripts that
//! read them. Large MSETs of one shard's keys stand between them.

use std::collections::HashMap;

use crate::client::{Client, Words, eval, is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::Value;

const GROUPS: usize = 4;
const KEYS: usize = 10;
const WRITERS: usize = 3;
const READERS: usize = 3;

/// Keys of the MSETs that cause a row of events on one shard.
const LARGE_KEYS: usize = 500;

fn key(group: usize, index: usize) -> String {
    format!("{{g{}}}group:{group}:{}", index % KEYS, index % KEYS)
}

/// Writes a value to all keys in its arguments, none of which it declares.
const WRITE: &str = "for i = 2, #ARGV do redis.call('set', ARGV[i], ARGV[1]) end return 'OK'";

const READ: &str = "
    local values = {}
    for i, key in ipairs(ARGV) do values[i] = redis.call('get', key) or 'none' end
    return values";

pub(crate) const FLOORS: &[(&str, u64)] = &[("groups written", 50), ("groups read", 50)];

pub(crate) fn workers(_: &Storm) -> Vec<Worker> {
    let writers = (0..WRITERS).map(|writer| {
        Worker::new(format!("group writer {writer}"), move |at| {
            writes(at, writer)
        })
    });
    let readers = (0..READERS).map(|reader| Worker::new(format!("group reader {reader}"), reads));
    writers.chain(readers).collect()
}

/// The keys of a group, each time in another order.
fn keys_of(at: &mut At<'_>, group: usize) -> Vec<String> {
    let shift = at.draw.below(KEYS);
    (0..KEYS).map(|index| key(group, index + shift)).collect()
}

fn writes(at: &mut At<'_>, writer: usize) {
    let mut client = at.client();
    let mut serial = 0;
    while at.goes_on() {
        serial += 1;
        let value = format!("{writer}:{serial}");
        let group = at.draw.below(GROUPS);
        let keys = keys_of(at, group);
        match at.draw.below(8) {
            0 => {
                let mut arguments = vec![value];
                arguments.extend(keys);
                let reply = client.call(eval(WRITE, &[], &arguments));
                assert!(is_void(&reply) || !reply.is_error(), "{}", reply.show());
            }
            1 => {
                let sets: Vec<Words> = keys
                    .iter()
                    .map(|key| words(&format!("SET {key} {value}")))
                    .collect();
                client.transaction(&sets);
            }
            2 => large_mset(&mut client, writer, serial),
            _ => {
                let mut mset = words("MSET");
                mset.extend(keys.into_iter().flat_map(|key| [key, value.clone()]));
                let noise = words("INCR group:noise");
                client.batch(&[noise.clone(), mset, noise]);
            }
        }
        at.storm.count("groups written", 1);
    }
    client.finish();
}

fn large_mset(client: &mut Client, writer: usize, serial: u64) {
    let mut mset = words("MSET");
    for index in 0..LARGE_KEYS {
        mset.push(format!("{{large}}{writer}:{index}"));
        mset.push(serial.to_string());
    }
    client.call(mset);
}

fn reads(at: &mut At<'_>) {
    let mut client = at.client();
    // The newest value seen of each writer in each group: nothing older comes later.
    let mut newest: HashMap<(usize, String), u64> = HashMap::new();
    while at.goes_on() {
        let group = at.draw.below(GROUPS);
        let keys = keys_of(at, group);
        let values = match at.draw.below(6) {
            0 => client.call(eval(READ, &[], &keys)),
            1 => {
                let gets: Vec<Words> = keys
                    .iter()
                    .map(|key| words(&format!("GET {key}")))
                    .collect();
                match client.transaction(&gets) {
                    Some(values) => Value::Array(values),
                    None => continue,
                }
            }
            _ => {
                let mut mget = words("MGET");
                mget.extend(keys);
                client.call(mget)
            }
        };
        if is_void(&values) {
            continue;
        }
        at.storm.count("groups read", 1);
        let items = values.items();
        if items.iter().any(|value| *value != items[0]) {
            let text = values.show();
            at.storm.fault(format!(
                "{}: half of what was written together: {text}",
                at.name
            ));
        }
        if let Value::Bulk(text) = &items[0]
            && text != b"none"
        {
            let text = String::from_utf8_lossy(text).into_owned();
            let (writer, serial) = text.split_once(':').expect("writer:serial");
            let serial = serial.parse().expect("a number");
            let last = newest.entry((group, writer.to_owned())).or_default();
            if serial < *last {
                at.storm.fault(format!(
                    "{}: {serial} after {last} of writer {writer}",
                    at.name
                ));
            }
            *last = serial;
        }
    }
    client.finish();
}
