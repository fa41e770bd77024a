//! Many clients at once, at 1, 2, 8 and 64 shards and 1 to 8 threads: exact sums, monotone reads, whole
//! MSETs, program order across shards, and no shard left locked by clients that vanish. Everything checked
//! here holds on redis-server because of its single thread. No check depends on timing; only the number of
//! attempts does (`STORM_MS` for each combination, default 600).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{self, Draw, Options, Server};
use crate::wire::{Raw, Value, encode, encode_into};

/// Shards and threads: every count of each at least once, and the corners.
const COMBINATIONS: [(usize, usize); 10] = [
    (1, 1),
    (1, 4),
    (2, 2),
    (2, 8),
    (8, 1),
    (8, 3),
    (8, 8),
    (64, 1),
    (64, 2),
    (64, 8),
];

fn storm_time() -> Duration {
    let millis = std::env::var("STORM_MS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(600);
    Duration::from_millis(millis)
}

fn at_each_combination(body: impl Fn(&Server, &str)) {
    for (shards, threads) in COMBINATIONS {
        let server = Server::start(&Options::shards(shards).threads(threads));
        body(&server, &format!("{shards} shards, {threads} threads"));
        if support::is_stand_in() {
            return;
        }
    }
}

/// State that the workers of a storm share: whether it is over, and how much was checked.
#[derive(Default)]
struct Storm {
    is_over: AtomicBool,
    checked: AtomicU64,
}

impl Storm {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn note_checked(&self, count: usize) {
        self.checked.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Replies that a storm checks at least, however busy the machine is: one that checks nothing shows nothing.
const CHECKED_MIN: u64 = 200;

/// Greatest time of a storm that has not checked enough yet.
const STORM_TIME_MAX: Duration = Duration::from_secs(240);

/// Runs all workers until the time is over and enough was checked.
fn together<T: Send + 'static>(workers: Vec<Worker<T>>, time: Duration) -> Vec<T> {
    let stop = Arc::new(Storm::default());
    let handles: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || worker(stop))
        })
        .collect();
    let began = Instant::now();
    let checked = || stop.checked.load(Ordering::Relaxed);
    while began.elapsed() < time
        || checked() < CHECKED_MIN && began.elapsed() < STORM_TIME_MAX.max(time)
    {
        std::thread::sleep(Duration::from_millis(20));
        if handles.iter().any(|handle| handle.is_finished()) {
            break;
        }
    }
    stop.is_over.store(true, Ordering::Relaxed);
    let results = handles
        .into_iter()
        .map(|handle| handle.join().expect("no worker fails"))
        .collect();
    let checked = checked();
    assert!(
        checked >= CHECKED_MIN,
        "only {checked} replies were checked"
    );
    results
}

type Worker<T> = Box<dyn FnOnce(Arc<Storm>) -> T + Send>;

/// The other runtime: one for each core, with the connections distributed among them.
#[test]
fn the_runtime_per_core_keeps_the_same_promises() {
    if support::is_stand_in() {
        return;
    }
    for threads in [1, 2, 8] {
        let options = Options::shards(64)
            .threads(threads)
            .with("runtime", "per-core");
        let server = Server::start(&options);
        let port = server.port;
        let workers: Vec<Worker<i64>> = (0..8)
            .map(|client| -> Worker<i64> {
                Box::new(move |stop| {
                    let mut raw = Raw::connect(port);
                    let mut draw = Draw::new(client + 70);
                    let mut sum = 0;
                    while !stop.is_over() {
                        let mut bytes = Vec::new();
                        let count = 1 + draw.below(30);
                        for _ in 0..count {
                            encode_into(&mut bytes, &["INCR", "core:first"]);
                            encode_into(&mut bytes, &["INCR", "core:second"]);
                            encode_into(&mut bytes, &["MGET", "core:second", "core:first"]);
                        }
                        raw.send(&bytes);
                        for _ in 0..count {
                            raw.read().integer();
                            raw.read().integer();
                            let pair = raw.read();
                            let number = |index: usize| -> i64 {
                                pair.items()[index].text().parse().expect("a number")
                            };
                            assert!(number(0) <= number(1), "{}", pair.show());
                        }
                        sum += count as i64;
                        stop.note_checked(count);
                    }
                    sum
                })
            })
            .collect();
        let sum: i64 = together(workers, storm_time()).iter().sum();
        let mut raw = server.raw();
        assert_eq!(raw.call("INCRBY core:first 0").integer(), sum);
        assert_eq!(raw.call("INCRBY core:second 0").integer(), sum);
        every_shard_answers(&server, &format!("runtime per-core, {threads} threads"));
    }
}

/// Checks that every shard answers, one by one and all at once.
fn every_shard_answers(server: &Server, at: &str) {
    let mut raw = server.raw();
    let keys: Vec<String> = (0..1000).map(|index| format!("answers:{index}")).collect();
    let mut bytes = Vec::new();
    for key in &keys {
        encode_into(&mut bytes, &["SET", key, "1"]);
    }
    raw.send(&bytes);
    for key in &keys {
        assert_eq!(raw.read().show(), "OK", "{key} at {at}");
    }
    let mut all = vec!["MGET"];
    all.extend(keys.iter().map(String::as_str));
    let values = raw.command(&all);
    assert!(
        values.items().iter().all(|value| value.bytes() == b"1"),
        "MGET at {at}"
    );
    all[0] = "DEL";
    assert_eq!(raw.command(&all).show(), "(integer) 1000", "DEL at {at}");
    assert!(raw.call("DBSIZE").integer() >= 0, "DBSIZE at {at}");
}

#[test]
fn pipelined_increments_are_exact_and_reads_never_go_back() {
    const KEYS: usize = 20;
    const CLIENTS: usize = 12;
    at_each_combination(|server, at| {
        let port = server.port;
        let workers: Vec<Worker<[i64; KEYS]>> = (0..CLIENTS)
            .map(|client| -> Worker<[i64; KEYS]> {
                Box::new(move |stop| {
                    let mut raw = Raw::connect(port);
                    let mut draw = Draw::new(client as u64 + 1);
                    let mut sums = [0; KEYS];
                    let mut seen = [0; KEYS];
                    while !stop.is_over() {
                        let mut bytes = Vec::new();
                        let batch: Vec<(usize, bool)> = (0..1 + draw.below(60))
                            .map(|_| (draw.below(KEYS), draw.below(3) > 0))
                            .collect();
                        for &(key, write) in &batch {
                            let name = format!("sum:{key}");
                            encode_into(&mut bytes, &[if write { "INCR" } else { "GET" }, &name]);
                        }
                        raw.send(&bytes);
                        stop.note_checked(batch.len());
                        for &(key, write) in &batch {
                            let now = match raw.read() {
                                Value::Integer(number) => number,
                                Value::Bulk(text) => String::from_utf8(text)
                                    .expect("text")
                                    .parse()
                                    .expect("a number"),
                                Value::NilBulk => 0,
                                other => panic!("{}", other.show()),
                            };
                            if write {
                                sums[key] += 1;
                                assert!(
                                    now > seen[key],
                                    "INCR of sum:{key} gave {now} after {}",
                                    seen[key]
                                );
                            } else {
                                assert!(
                                    now >= seen[key],
                                    "GET of sum:{key} gave {now} after {}",
                                    seen[key]
                                );
                            }
                            seen[key] = now;
                        }
                    }
                    sums
                })
            })
            .collect();
        let sums = together(workers, storm_time());
        let mut raw = server.raw();
        let mut total = 0;
        for key in 0..KEYS {
            let expected: i64 = sums.iter().map(|sum| sum[key]).sum();
            total += expected;
            let got = raw.call(&format!("GET sum:{key}"));
            let got: i64 = if got.is_nil() {
                0
            } else {
                got.text().parse().expect("a number")
            };
            assert_eq!(got, expected, "sum:{key} at {at}");
        }
        eprintln!("{at}: {total} increments");
    });
}

#[test]
fn each_value_put_by_getset_is_taken_once() {
    const KEYS: usize = 4;
    const CLIENTS: usize = 8;
    at_each_combination(|server, at| {
        let port = server.port;
        type Record = (Vec<Vec<u8>>, Vec<Vec<u8>>);
        let workers: Vec<Worker<Record>> = (0..CLIENTS)
            .map(|client| -> Worker<Record> {
                Box::new(move |stop| {
                    let mut raw = Raw::connect(port);
                    let mut draw = Draw::new(client as u64 + 77);
                    let (mut put, mut taken) = (Vec::new(), Vec::new());
                    let mut serial = 0;
                    while !stop.is_over() {
                        let mut bytes = Vec::new();
                        let count = 1 + draw.below(20);
                        for _ in 0..count {
                            serial += 1;
                            let key = draw.below(KEYS);
                            let value = format!("{key}/{client}/{serial}");
                            encode_into(&mut bytes, &["GETSET", &format!("swap:{key}"), &value]);
                            put.push(value.into_bytes());
                        }
                        raw.send(&bytes);
                        stop.note_checked(count);
                        for _ in 0..count {
                            if let Value::Bulk(old) = raw.read() {
                                taken.push(old);
                            }
                        }
                    }
                    (put, taken)
                })
            })
            .collect();
        let mut balance: HashMap<Vec<u8>, i32> = HashMap::new();
        for (put, taken) in together(workers, storm_time() / 2) {
            for value in put {
                *balance.entry(value).or_default() += 1;
            }
            for value in taken {
                *balance.entry(value).or_default() -= 1;
            }
        }
        let mut raw = server.raw();
        for key in 0..KEYS {
            if let Value::Bulk(last) = raw.call(&format!("GET swap:{key}")) {
                *balance.entry(last).or_default() -= 1;
            }
        }
        let lost = balance.iter().find(|(_, count)| **count != 0);
        assert!(lost.is_none(), "{lost:?} at {at}");
    });
}

#[test]
fn no_mget_sees_half_an_mset() {
    const GROUPS: usize = 3;
    const KEYS: usize = 10;
    at_each_combination(|server, at| {
        let port = server.port;
        let mut workers: Vec<Worker<usize>> = Vec::new();
        for writer in 0..4_usize {
            workers.push(Box::new(move |stop| {
                let mut raw = Raw::connect(port);
                let mut draw = Draw::new(writer as u64 + 5);
                let mut serial = 0;
                while !stop.is_over() {
                    let mut bytes = Vec::new();
                    let count = 1 + draw.below(8);
                    for _ in 0..count {
                        serial += 1;
                        let group = draw.below(GROUPS);
                        let value = format!("{writer}:{serial}");
                        let mut args = vec!["MSET".to_owned()];
                        // Each time in another order: the order of the arguments must not matter to atomicity.
                        let shift = draw.below(KEYS);
                        for index in 0..KEYS {
                            args.push(format!("whole:{group}:{}", (index + shift) % KEYS));
                            args.push(value.clone());
                        }
                        encode_into(&mut bytes, &args);
                        encode_into(&mut bytes, &["INCR", "whole:noise"]);
                    }
                    raw.send(&bytes);
                    for _ in 0..count {
                        assert_eq!(raw.read().show(), "OK");
                        raw.read().integer();
                    }
                }
                serial
            }));
        }
        for reader in 0..4_usize {
            workers.push(Box::new(move |stop| {
                let mut raw = Raw::connect(port);
                let mut draw = Draw::new(reader as u64 + 500);
                let mut checked = 0;
                // The newest value seen of each writer and group: a later MGET never sees an older one.
                let mut newest: HashMap<(usize, String), u64> = HashMap::new();
                while !stop.is_over() {
                    let groups: Vec<usize> =
                        (0..1 + draw.below(8)).map(|_| draw.below(GROUPS)).collect();
                    let mut bytes = Vec::new();
                    for &group in &groups {
                        let mut args = vec!["MGET".to_owned()];
                        let shift = draw.below(KEYS);
                        args.extend(
                            (0..KEYS)
                                .map(|index| format!("whole:{group}:{}", (index + shift) % KEYS)),
                        );
                        encode_into(&mut bytes, &args);
                    }
                    raw.send(&bytes);
                    for &group in &groups {
                        let reply = raw.read();
                        let values = reply.items();
                        assert!(
                            values.iter().all(|value| *value == values[0]),
                            "half an MSET: {}",
                            reply.show()
                        );
                        if let Value::Bulk(text) = &values[0] {
                            let text = String::from_utf8_lossy(text).into_owned();
                            let (writer, serial) = text.split_once(':').expect("writer:serial");
                            let serial = serial.parse().expect("a number");
                            let last = newest.entry((group, writer.to_owned())).or_default();
                            assert!(serial >= *last, "writer {writer}: {serial} after {last}");
                            *last = serial;
                        }
                        checked += 1;
                        stop.note_checked(1);
                    }
                }
                checked
            }));
        }
        let counts = together(workers, storm_time());
        eprintln!(
            "{at}: {} MSETs, {} MGETs",
            counts[..4].iter().sum::<usize>(),
            counts[4..].iter().sum::<usize>()
        );
        every_shard_answers(server, at);
    });
}

#[test]
fn pipelined_writes_and_reads_take_effect_in_program_order() {
    const PAIRS: usize = 16;
    at_each_combination(|server, at| {
        let port = server.port;
        let mut workers: Vec<Worker<usize>> = Vec::new();
        // Writers raise `first` before `second`; readers read `second` before `first`. A reader that finds
        // second > first has seen a connection's writes swapped, or had its own reads swapped.
        for writer in 0..4_usize {
            workers.push(Box::new(move |stop| {
                let mut raw = Raw::connect(port);
                let mut draw = Draw::new(writer as u64 + 9);
                let mut count = 0;
                while !stop.is_over() {
                    let mut bytes = Vec::new();
                    let batch = 1 + draw.below(30);
                    for _ in 0..batch {
                        let pair = draw.below(PAIRS);
                        encode_into(&mut bytes, &["INCR", &format!("first:{pair}")]);
                        if draw.below(4) == 0 {
                            // A command over several shards in between must not let the later one pass.
                            encode_into(&mut bytes, &["MSET", "between:1", "x", "between:2", "y"]);
                        } else {
                            encode_into(&mut bytes, &["ECHO", "between"]);
                        }
                        encode_into(&mut bytes, &["INCR", &format!("second:{pair}")]);
                    }
                    raw.send(&bytes);
                    for _ in 0..batch * 3 {
                        assert!(!raw.read().is_error());
                    }
                    count += batch;
                }
                count
            }));
        }
        for reader in 0..4_usize {
            workers.push(Box::new(move |stop| {
                let mut raw = Raw::connect(port);
                let mut draw = Draw::new(reader as u64 + 900);
                let number = |value: &Value| -> i64 {
                    if value.is_nil() {
                        0
                    } else {
                        value.text().parse().expect("a number")
                    }
                };
                let mut count = 0;
                while !stop.is_over() {
                    let mut bytes = Vec::new();
                    let batch: Vec<(usize, bool)> = (0..1 + draw.below(30))
                        .map(|_| (draw.below(PAIRS), draw.below(5) == 0))
                        .collect();
                    for &(pair, at_once) in &batch {
                        let (first, second) = (format!("first:{pair}"), format!("second:{pair}"));
                        if at_once {
                            encode_into(&mut bytes, &["MGET", &second, &first]);
                        } else {
                            encode_into(&mut bytes, &["GET", &second]);
                            encode_into(&mut bytes, &["GET", &first]);
                        }
                    }
                    raw.send(&bytes);
                    for &(pair, at_once) in &batch {
                        let (second, first) = if at_once {
                            let reply = raw.read();
                            (number(&reply.items()[0]), number(&reply.items()[1]))
                        } else {
                            (number(&raw.read()), number(&raw.read()))
                        };
                        assert!(
                            second <= first,
                            "pair {pair}: second {second} seen before first {first}"
                        );
                        count += 1;
                        stop.note_checked(1);
                    }
                }
                count
            }));
        }
        let counts = together(workers, storm_time());
        eprintln!(
            "{at}: {} writes, {} reads",
            counts[..4].iter().sum::<usize>(),
            counts[4..].iter().sum::<usize>()
        );
    });
}

#[test]
fn clients_that_vanish_at_any_point_leave_no_shard_held() {
    at_each_combination(|server, at| {
        let port = server.port;
        let honest = Arc::new(Mutex::new(0_i64));
        let mut workers: Vec<Worker<usize>> = Vec::new();
        for client in 0..6_usize {
            workers.push(Box::new(move |stop| {
                let mut draw = Draw::new(client as u64 + 4000);
                let mut count = 0;
                // Sent after each client that vanished: clients that await no reply would otherwise come
                // faster than a slow server gets rid of them, and the honest ones wait for hundreds of them.
                let mut steady = Raw::connect(port);
                while !stop.is_over() {
                    steady.call("PING");
                    let Ok(mut raw) = Raw::try_connect(port) else {
                        continue;
                    };
                    let mut bytes = Vec::new();
                    for _ in 0..1 + draw.below(40) {
                        match draw.below(5) {
                            0 => {
                                encode_into(&mut bytes, &["INCR", &format!("v:{}", draw.below(50))])
                            }
                            1 => {
                                encode_into(&mut bytes, &["GET", &format!("v:{}", draw.below(50))])
                            }
                            2 => {
                                let mut args = vec!["MSET".to_owned()];
                                for _ in 0..1 + draw.below(20) {
                                    args.push(format!("w:{}", draw.below(200)));
                                    args.push("x".repeat(draw.below(300)));
                                }
                                encode_into(&mut bytes, &args);
                            }
                            3 => {
                                let mut args = vec!["MGET".to_owned()];
                                args.extend(
                                    (0..1 + draw.below(30))
                                        .map(|_| format!("w:{}", draw.below(200))),
                                );
                                encode_into(&mut bytes, &args);
                            }
                            _ => encode_into(&mut bytes, &["DBSIZE"]),
                        }
                    }
                    let cut = draw.below(bytes.len() + 1);
                    raw.send_unchecked(&bytes[..cut]);
                    match draw.below(4) {
                        // A reset, with replies on their way; a half-close; a read of one reply; or just gone.
                        0 => {
                            let socket = socket2::SockRef::from(raw.stream());
                            let _ = socket.set_linger(Some(Duration::ZERO));
                        }
                        1 => raw.finish_sending(),
                        2 if cut == bytes.len() => drop(raw.try_read()),
                        _ => {}
                    }
                    drop(raw);
                    count += 1;
                }
                count
            }));
        }
        for _ in 0..2 {
            let honest = Arc::clone(&honest);
            workers.push(Box::new(move |stop| {
                let mut raw = Raw::connect(port);
                let request = encode(&["INCR", "honest"]);
                let mut count = 0;
                while !stop.is_over() {
                    raw.send(&request.repeat(10));
                    for _ in 0..10 {
                        raw.read().integer();
                    }
                    count += 10;
                    stop.note_checked(10);
                }
                *honest.lock().expect("the sum") += count;
                0
            }));
        }
        let gone: usize = together(workers, storm_time()).iter().sum();
        eprintln!("{at}: {gone} clients vanished");
        every_shard_answers(server, at);
        let mut raw = server.raw();
        // INCRBY 0 reads a counter that, on a busy machine, no client may have raised.
        let sum = raw.call("INCRBY honest 0").integer();
        eprintln!("{at}: {sum} honest increments");
        assert_eq!(sum, *honest.lock().expect("the sum"), "at {at}");
        support::eventually("all other clients are gone", || {
            raw.call("CLIENT LIST").body().lines().count() == 1
        });
    });
}

/// Not guaranteed, but Redis does so and programs (its own tests among them) rely on it: of two requests that
/// arrive one after the other on two connections, the first runs first. Threads race now and then; a queue
/// that serves the last arrival first reversed a third of them. Without the build option that keeps tokio
/// from doing so (`.cargo/config.toml`, which `RUSTFLAGS` in the environment overrides) there is nothing to
/// check.
#[test]
fn what_came_first_on_another_connection_mostly_runs_first() {
    const PAIRS: usize = 200;
    const ROUNDS: usize = 15;
    if !cfg!(tokio_unstable) {
        support::skipped("built without --cfg tokio_unstable");
        return;
    }
    let server = Server::start(&Options::shards(8).threads(2));
    let mut clients: Vec<Raw> = (0..8).map(|_| server.raw()).collect();
    let mut draw = Draw::new(1);
    // The number of races depends on the machine's other load; the queue would reverse a third of every
    // round.
    let rounds = (0..ROUNDS).map(|round| {
        let mut reversed = 0;
        for pair in 0..PAIRS {
            let writer = draw.below(clients.len());
            let reader = (writer + 1 + draw.below(clients.len() - 1)) % clients.len();
            let written = (round * PAIRS + pair).to_string();
            clients[writer].send(&encode(&["SET", "order", &written]));
            clients[reader].send(&encode(&["GET", "order"]));
            clients[writer].read();
            reversed += usize::from(clients[reader].read().show() != format!("\"{written}\""));
        }
        eprintln!("{reversed} of {PAIRS} pairs were reversed");
        reversed
    });
    let mut rounds: Vec<usize> = rounds.collect();
    rounds.sort_unstable();
    let median = rounds[ROUNDS / 2];
    assert!(
        median < PAIRS / 6,
        "{median} of {PAIRS} in the median round: {rounds:?}"
    );
}
