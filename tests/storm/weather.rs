//! The disturbances of the storm: endless scripts and the clients that kill them, clients that disconnect at
//! any moment or are killed, CONFIG SET in and outside of transactions, and commands that visit all shards.

use std::sync::Mutex;
use std::time::Duration;

use crate::client::{Words, eval, is_killed, is_void, words};
use crate::queues::{LOSSY, list, lossy, note_lossy};
use crate::storm::{At, Storm, Worker};
use crate::wire::{Raw, Value, encode, encode_into};

const ENDLESS: usize = 2;
const VANISHERS: usize = 3;
const CONFIGURERS: usize = 2;

/// Reads declared and undeclared keys, and never ends.
const FOREVER: &str = "
    redis.call('get', KEYS[1])
    if ARGV[1] then redis.call('exists', ARGV[1]) end
    while true do end";

/// Clients that may be killed at any moment.
static VICTIMS: Mutex<Vec<i64>> = Mutex::new(Vec::new());

pub(crate) const FLOORS: &[(&str, u64)] = &[
    ("endless scripts killed", 3),
    ("CONFIG SETs in EXEC", 20),
    ("clients gone", 10),
    ("blocked clients killed", 2),
    ("visits of all shards", 10),
];

pub(crate) fn workers(_: &Storm) -> Vec<Worker> {
    let mut workers = vec![
        Worker::new("killer of scripts", kills_scripts),
        Worker::new("killer of clients", kills_clients),
        Worker::new("visitor", visits),
        Worker::new("sorter", sorts),
    ];
    for number in 0..ENDLESS {
        workers.push(Worker::new(format!("endless {number}"), never_ends));
    }
    for number in 0..VANISHERS {
        workers.push(Worker::new(format!("vanisher {number}"), vanishes));
    }
    for number in 0..CONFIGURERS {
        workers.push(Worker::new(format!("configurer {number}"), configures));
    }
    workers
}

fn never_ends(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        at.nap(Duration::from_millis(800));
        let key = format!("endless:{}", at.draw.below(200));
        let stray = format!("endless:{}", at.draw.below(200));
        let arguments = match at.draw.below(2) {
            0 => vec![stray],
            _ => Vec::new(),
        };
        let request = eval(FOREVER, &[key], &arguments);
        // Before the check whether it is over, so that the killing clients do not leave earlier.
        at.storm.keep("endless scripts sent", 1);
        if at.storm.is_over() {
            at.storm.keep("endless scripts over", 1);
            break;
        }
        let reply = client.call(request);
        at.storm.keep("endless scripts over", 1);
        assert!(is_void(&reply), "an endless script: {}", reply.show());
        if is_killed(&reply) {
            at.storm.count("endless scripts killed", 1);
        }
    }
    client.finish();
}

fn kills_scripts(at: &mut At<'_>) {
    let mut client = at.client();
    let is_one_left =
        |at: &At<'_>| at.storm.kept("endless scripts over") < at.storm.kept("endless scripts sent");
    // Beyond the end, until the last of them is over.
    while at.goes_on() || is_one_left(at) {
        // Now and then long enough for other requests to be refused.
        let longest = if at.draw.below(6) == 0 { 400 } else { 30 };
        at.nap(Duration::from_millis(longest));
        let kill = if at.draw.below(4) == 0 {
            "FUNCTION KILL"
        } else {
            "SCRIPT KILL"
        };
        let reply = client.call_alone(&words(kill));
        match reply {
            Value::Simple(_) => at.storm.count("kills answered OK", 1),
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                let is_known = ["NOTBUSY", "UNKILLABLE", "BUSY"]
                    .iter()
                    .any(|word| text.starts_with(word));
                assert!(is_known, "{kill}: {text}");
            }
            reply => panic!("{kill}: {}", reply.show()),
        }
    }
}

/// Returns requests of a client that soon disconnects.
fn some_requests(at: &mut At<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + at.draw.below(30) {
        let (one, other) = (at.draw.below(300), at.draw.below(300));
        let request = match at.draw.below(9) {
            0 => words(&format!("INCR v:{one}")),
            1 => words(&format!("MGET v:{one} v:{other} w:{one}")),
            2 => words(&format!("MSET w:{one} x w:{other} y")),
            3 => eval(
                "redis.call('set', ARGV[1], 1) return redis.call('get', ARGV[2])",
                &[],
                &[format!("w:{one}"), format!("v:{other}")],
            ),
            4 => words(&format!("XADD vs:{} * f v", one % 8)),
            5 => words(&format!(
                "XREAD BLOCK 5 STREAMS vs:{} vs:{} $ $",
                one % 8,
                other % 8
            )),
            6 => {
                encode_into(&mut bytes, &["MULTI"]);
                encode_into(&mut bytes, &["INCR", &format!("v:{one}")]);
                encode_into(
                    &mut bytes,
                    &["EVAL", "return redis.call('incr', 'v:1')", "0"],
                );
                words("EXEC")
            }
            7 => words(&format!("LPUSH vl:{} x", one % 8)),
            _ => words(&format!("BLPOP vl:{} vl:{} 0.01", one % 8, other % 8)),
        };
        encode_into(&mut bytes, &request);
    }
    bytes
}

fn vanishes(at: &mut At<'_>) {
    while at.goes_on() {
        let Ok(mut raw) = Raw::try_connect(at.storm.port) else {
            continue;
        };
        if at.draw.below(4) == 0 {
            waits_to_be_killed(at, raw);
            continue;
        }
        let bytes = some_requests(at);
        let cut = at.draw.below(bytes.len() + 1);
        raw.send_unchecked(&bytes[..cut]);
        match at.draw.below(4) {
            // A reset with replies on their way, a half-close, a read of one reply, or just gone.
            0 => {
                let socket = socket2::SockRef::from(raw.stream());
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
            1 => raw.finish_sending(),
            2 if cut == bytes.len() => drop(raw.try_read()),
            _ => at.nap(Duration::from_millis(2)),
        }
        drop(raw);
        at.storm.count("clients gone", 1);
        at.nap(Duration::from_millis(4));
    }
}

/// Waits for lists on several shards until it is served, is killed, or gives up.
fn waits_to_be_killed(at: &mut At<'_>, mut raw: Raw) {
    let patience = Some(Duration::from_secs(20));
    raw.stream().set_read_timeout(patience).expect("a time-out");
    let Value::Integer(id) = raw.call("CLIENT ID") else {
        return;
    };
    let lists: Vec<String> = (0..LOSSY).map(lossy).collect();
    let request = format!("BLPOP {} 0.5", lists.join(" "));
    VICTIMS.lock().expect("victims").push(id);
    raw.send_unchecked(&encode(&words(&request)));
    if at.draw.below(3) == 0 {
        at.nap(Duration::from_millis(10));
    } else if let Ok(reply) = raw.try_read() {
        note_lossy(at, &reply);
    }
    VICTIMS
        .lock()
        .expect("victims")
        .retain(|victim| *victim != id);
}

fn kills_clients(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        at.nap(Duration::from_millis(30));
        let victim = VICTIMS.lock().expect("victims").first().copied();
        let Some(id) = victim else {
            continue;
        };
        match client.call(words(&format!("CLIENT KILL ID {id}"))) {
            Value::Integer(count) => at.storm.count("blocked clients killed", count as u64),
            reply => assert!(is_void(&reply), "CLIENT KILL: {}", reply.show()),
        }
    }
    client.finish();
}

fn configures(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        let number = at.draw.below(1_000);
        let set = match at.draw.below(4) {
            0 => format!("CONFIG SET tracking-table-max-keys {}", 5 + number % 60),
            1 => format!("CONFIG SET maxmemory {}gb", 4 + number % 4),
            2 => format!("CONFIG SET slowlog-log-slower-than {}", 10_000 + number),
            _ => format!(
                "CONFIG SET notify-keyspace-events {}",
                ["KEA", "AKE"][number % 2]
            ),
        };
        if at.draw.below(3) > 0 {
            let commands = [
                words(&format!("SET configured:{number} v")),
                words(&set),
                words(&format!("INCR configured:{}:n", number % 17)),
                eval("return redis.call('incr', 'configured:scripts')", &[], &[]),
            ];
            let count = 3 + at.draw.below(2);
            if let Some(replies) = client.transaction(&commands[..count]) {
                assert_eq!(replies[1].show(), "OK", "{set}");
                at.storm.count("CONFIG SETs in EXEC", 1);
            }
        } else {
            let reply = client.call(words(&set));
            assert!(
                is_void(&reply) || reply.show() == "OK",
                "{set}: {}",
                reply.show()
            );
            at.storm.count("CONFIG SETs", 1);
        }
        at.nap(Duration::from_millis(8));
    }
    client.finish();
}

fn visits(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        let request = match at.draw.below(10) {
            0 => words("DBSIZE"),
            1 => words("KEYS account:*"),
            2 => words("SWAPDB 5 6"),
            3 => words("RANDOMKEY"),
            4 => words("INFO"),
            5 => words("CLIENT LIST"),
            6 => words("SCAN 0 COUNT 200"),
            7 => words("RENAME visited:a visited:b"),
            8 => words("COPY visited:b visited:c REPLACE"),
            _ => words("SUNIONSTORE visited:union visited:s visited:t"),
        };
        let in_db_five = [
            words("SELECT 5"),
            words("SET visited x"),
            words("FLUSHDB"),
            words("SELECT 0"),
            words("SET visited:a x"),
        ];
        if at.draw.below(3) == 0 {
            client.transaction(&in_db_five);
        }
        let reply = client.call(request);
        let is_known = is_void(&reply) || !reply.is_error() || reply.text().contains("no such key");
        assert!(is_known, "{}", reply.show());
        at.storm.count("visits of all shards", 1);
        at.nap(Duration::from_millis(10));
    }
    client.finish();
}

/// Commands that take long on one shard.
fn sorts(at: &mut At<'_>) {
    const ELEMENTS: usize = 20_000;
    let mut client = at.client();
    let keys: Vec<String> = (0..4)
        .map(|number| format!("{{z{number}}}sorted"))
        .collect();
    for key in &keys {
        let mut push: Words = words(&format!("RPUSH {key}"));
        push.extend((0..ELEMENTS).map(|_| at.draw.below(1 << 30).to_string()));
        while is_void(&client.call(push.clone())) {
            at.nap(Duration::from_millis(20));
        }
    }
    while at.goes_on() {
        let key = &keys[at.draw.below(keys.len())];
        let request = match at.draw.below(3) {
            0 => words(&format!("SORT {key} STORE {key}:stored")),
            1 => words(&format!("SORT {key} ALPHA STORE {key}:stored")),
            _ => words(&format!("LRANGE {} 0 -1", list(0))),
        };
        let reply = client.call(request);
        assert!(is_void(&reply) || !reply.is_error(), "{}", reply.show());
        at.storm.count("long commands", 1);
        at.nap(Duration::from_millis(60));
    }
    client.finish();
}
