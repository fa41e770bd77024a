//! Memory that a client occupies beside data, replies and transactions: all of it is counted as the client's,
//! and is freed with the client.

use std::io::Write;

use crate::support::{self, Options, Server, check, eventually, info_number};
use crate::wire::{Raw, Value, encode, encode_into};

const NAMES: usize = 20_000;

fn start() -> Server {
    Server::start(&Options::shards(8).threads(2))
}

/// Returns a number from a client's line in CLIENT LIST.
fn field(other: &mut Raw, id: i64, name: &str) -> f64 {
    let line = other.call(&format!("CLIENT LIST ID {id}")).body();
    let text = line.split(' ').find_map(|word| word.strip_prefix(name));
    let text = text.unwrap_or_else(|| panic!("no {name} in {line:?}"));
    text.trim().parse().expect("a number")
}

fn used(other: &mut Raw) -> f64 {
    info_number(other, "memory", "used_memory")
}

/// Returns the bytes of the table of keys that clients have cached.
fn table(other: &mut Raw) -> f64 {
    info_number(other, "memory", "mem_tracking_table")
}

/// Returns a command with `count` names, each of about a hundred bytes.
fn with_names(words: &[&str], count: usize) -> Vec<String> {
    let names = (0..count).map(|number| format!("{number:0>100}"));
    words
        .iter()
        .map(|word| (*word).to_owned())
        .chain(names)
        .collect()
}

/// A way to make the server allocate memory for a client: the requests, and a check that it has done so.
type Way = (&'static str, fn(&mut Raw), fn(&mut Raw, i64) -> bool);

fn answers(client: &mut Raw, request: &[String], count: usize) {
    client.send(&encode(request));
    for _ in 0..count {
        assert!(!client.read().is_error());
    }
}

const WAYS: &[Way] = &[
    (
        "channels",
        |client| answers(client, &with_names(&["SUBSCRIBE"], NAMES), NAMES),
        |other, id| field(other, id, "sub=") == NAMES as f64,
    ),
    (
        "patterns",
        |client| answers(client, &with_names(&["PSUBSCRIBE"], NAMES), NAMES),
        |other, id| field(other, id, "psub=") == NAMES as f64,
    ),
    (
        "shard channels",
        |client| answers(client, &with_names(&["SSUBSCRIBE"], NAMES), NAMES),
        |other, id| field(other, id, "ssub=") == NAMES as f64,
    ),
    (
        "keys that are watched",
        |client| answers(client, &with_names(&["WATCH"], NAMES), 1),
        |other, id| field(other, id, "watch=") == NAMES as f64,
    ),
    (
        "keys that are waited for",
        |client| {
            let mut request = with_names(&["BLPOP"], NAMES);
            request.push("0".to_owned());
            client.send(&encode(&request));
        },
        |other, _| info_number(other, "clients", "blocked_clients") == 1.0,
    ),
    (
        "prefixes of keys that are cached",
        |client| {
            let mut request = "CLIENT TRACKING ON BCAST".to_owned();
            for number in 0..5_000 {
                request.push_str(&format!(" PREFIX {number:0>100}"));
            }
            check(client, &request, "OK");
        },
        |other, _| info_number(other, "stats", "tracking_total_prefixes") == 5_000.0,
    ),
    (
        "its name",
        |client| {
            check(
                client,
                &format!("CLIENT SETNAME {}", "n".repeat(4_000_000)),
                "OK",
            )
        },
        |_, _| true,
    ),
    (
        "the name of its library",
        |client| {
            check(
                client,
                &format!("CLIENT SETINFO LIB-NAME {}", "n".repeat(4_000_000)),
                "OK",
            )
        },
        |_, _| true,
    ),
];

#[test]
fn what_is_held_for_a_client_counts_as_its_own_and_goes_with_it() {
    if support::is_stand_in() {
        return;
    }
    for (what, begin, has_begun) in WAYS {
        let server = start();
        let mut other = server.raw();
        let mut client = server.raw();
        let id = client.call("CLIENT ID").integer();
        let before = used(&mut other);
        begin(&mut client);
        eventually(what, || has_begun(&mut other, id));
        // Nearly all of the server's growth is reported for the client: 64 shards' tables may have spare
        // capacity.
        let mut seen = (0.0, 0.0);
        eventually(&format!("{what} count as the client's"), || {
            seen = (used(&mut other) - before, field(&mut other, id, "tot-mem="));
            seen.0 > 1e6 && seen.1 > seen.0 * 0.8 && seen.1 < seen.0 * 1.6
        });
        let normal = info_number(&mut other, "memory", "mem_clients_normal");
        assert!(normal > seen.1, "{what}: {normal} of {seen:?}");
        // Hence this client is disconnected, and all of that memory is freed with it.
        check(&mut other, "CONFIG SET maxmemory-clients 1mb", "OK");
        assert!(client.is_closed(), "{what}");
        check(&mut other, "CONFIG SET maxmemory-clients 0", "OK");
        eventually(&format!("{what} are held no more"), || {
            used(&mut other) - before < seen.0 * 0.1
        });
        let normal = info_number(&mut other, "memory", "mem_clients_normal");
        assert!(normal < 2e5, "{what}: {normal}");
    }
}

#[test]
fn what_was_held_is_given_back_name_by_name() {
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let (mut client, mut other, mut third) = (server.raw(), server.raw(), server.raw());
    let id = client.call("CLIENT ID").integer();
    // Other clients have a little of the same kind all the time.
    answers(&mut third, &with_names(&["SUBSCRIBE"], 1), 1);
    let before = (used(&mut other), field(&mut other, id, "tot-mem="));
    answers(&mut client, &with_names(&["SUBSCRIBE"], NAMES), NAMES);
    answers(&mut client, &with_names(&["UNSUBSCRIBE"], NAMES), NAMES);
    check(&mut client, "CLIENT SETNAME short", "OK");
    check(&mut client, "CLIENT SETNAME ''", "OK");
    eventually("nothing is left of it", || {
        let now = (used(&mut other), field(&mut other, id, "tot-mem="));
        now.0 - before.0 < 8e5 && (now.1 - before.1).abs() < 5e4
    });
}

#[test]
fn requests_behind_a_blocked_one_are_bounded_and_count_as_the_clients() {
    const PINGS: usize = 4_000;
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let mut other = server.raw();
    for request in ["BLPOP list 0", "WAIT 1 0"] {
        let before = used(&mut other);
        let mut client = server.raw();
        let id = client.call("CLIENT ID").integer();
        client.call(&format!("SET written {id}"));
        let mut pipeline = encode(&request.split(' ').collect::<Vec<_>>());
        let text = "x".repeat(10_000);
        for _ in 0..PINGS {
            encode_into(&mut pipeline, &["PING", &text]);
        }
        let mut sending = client.stream().try_clone().expect("a second handle");
        let sender = std::thread::spawn(move || sending.write_all(&pipeline));
        eventually("as much is received as may be", || {
            field(&mut other, id, "qbuf=") >= 1024.0 * 1024.0
        });
        let (qbuf, total) = (
            field(&mut other, id, "qbuf="),
            field(&mut other, id, "tot-mem="),
        );
        let grown = used(&mut other) - before;
        assert!(qbuf < 2e6 && total > qbuf, "{qbuf} {total}");
        assert!(grown < 4.5e6 && grown < total * 1.3, "{grown} {total}");
        // All requests sent run all the same, in order.
        match request.starts_with("BLPOP") {
            true => check(&mut other, "LPUSH list element", "(integer) 1"),
            false => check(&mut other, &format!("CLIENT UNBLOCK {id}"), "(integer) 1"),
        }
        assert!(!client.read().is_error());
        for _ in 0..PINGS {
            assert!(matches!(client.read(), Value::Bulk(bytes) if bytes.len() == 10_000));
        }
        sender.join().expect("no panic").expect("all is sent");
    }
    // A client that disconnects meanwhile is noticed, though nothing is read from it.
    let mut client = server.raw();
    client.send(&encode(&["BLPOP", "list", "0"]));
    client.send(&encode(&["PING", &"x".repeat(1_500_000)]));
    eventually("it waits", || {
        info_number(&mut other, "clients", "blocked_clients") == 1.0
    });
    drop(client);
    eventually("it is gone", || {
        info_number(&mut other, "clients", "blocked_clients") == 0.0
    });
}

#[test]
fn a_client_with_much_behind_a_blocked_request_is_the_first_to_go() {
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let mut other = server.raw();
    let clients: Vec<Raw> = (0..40)
        .map(|_| {
            let mut client = server.raw();
            client.send(&encode(&["BLPOP", "list", "0"]));
            client.send(&encode(&["PING", &"x".repeat(900_000)]));
            client
        })
        .collect();
    eventually("all is held, and counts", || {
        info_number(&mut other, "memory", "mem_clients_normal") > 40.0 * 0.9e6
    });
    check(&mut other, "CONFIG SET maxmemory-clients 10mb", "OK");
    eventually("it is held no more", || {
        info_number(&mut other, "memory", "mem_clients_normal") < 11e6
    });
    let left = info_number(&mut other, "clients", "blocked_clients");
    assert!((1.0..12.0).contains(&left), "{left}");
    drop(clients);
}

#[test]
fn the_table_of_what_clients_have_cached_is_bounded_in_bytes_and_counts() {
    const MB: f64 = 1048576.0;
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let (mut client, mut other) = (server.raw3(), server.raw());
    check(&mut client, "CLIENT TRACKING ON", "OK");
    let mut invalidated = 0;
    let mut read = |client: &mut Raw, keys: std::ops::Range<usize>, len: usize| {
        let mut requests = Vec::new();
        let count = keys.len();
        for key in keys {
            encode_into(&mut requests, &["GET", &format!("{key:x>len$}")]);
        }
        client.send(&requests);
        let mut replies = 0;
        while replies < count {
            match client.read() {
                Value::Push(_) => invalidated += 1,
                reply => replies += usize::from(reply.is_nil()),
            }
        }
        invalidated
    };
    // The counted bytes are the bytes in use.
    let before = used(&mut other);
    read(&mut client, 0..20_000, 500);
    let (grown, told) = (used(&mut other) - before, table(&mut other));
    assert!(
        told > 1e7 && (0.8..1.2).contains(&(told / grown)),
        "{told} {grown}"
    );
    // If memory is limited, so is the table: to an eighth of the limit.
    check(&mut other, "CONFIG SET maxmemory-policy allkeys-lru", "OK");
    check(&mut other, "CONFIG SET maxmemory 40mb", "OK");
    eventually("keys lapse", || table(&mut other) <= 5.0 * MB);
    let mut most = 0.0_f64;
    for round in 0..20 {
        read(&mut client, round * 100..(round + 1) * 100, 30_000);
        most = most.max(table(&mut other));
    }
    assert!((4.0 * MB..5.1 * MB).contains(&most), "{most}");
    // Names of the greatest length: each is dropped at once, and its reader is notified.
    let told = read(&mut client, 0..40, 60_000);
    assert!(told > 20_000, "{told}");
    let held = info_number(&mut other, "memory", "used_memory");
    assert!(held < before + 12.0 * MB, "{held}");
    // A change of a remaining key is notified.
    let pushes_before_reply = |client: &mut Raw, request: &[&str]| {
        client.send(&encode(request));
        let mut told = String::new();
        loop {
            match client.read() {
                Value::Push(items) => told.push_str(&Value::Array(items).show()),
                _ => return told,
            }
        }
    };
    pushes_before_reply(&mut client, &["GET", "some key"]);
    check(&mut other, "SET 'some key' value", "OK");
    let mut told = String::new();
    eventually("a change is told", || {
        told.push_str(&pushes_before_reply(&mut client, &["PING"]));
        told.contains("some key")
    });
    pushes_before_reply(&mut client, &["CLIENT", "TRACKING", "OFF"]);
    check(&mut other, "FLUSHALL", "OK");
    eventually("nothing is left", || table(&mut other) == 0.0);
}

#[test]
fn scripts_of_eval_give_way_loaded_ones_stay_and_both_count() {
    const KEPT: usize = 500;
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let (mut client, mut other) = (server.raw(), server.raw());
    let script = |number: usize| format!("return {number} --{:-<10300}", "");
    let scripts = |other: &mut Raw, figure: &str| info_number(other, "memory", figure);
    let first = client.command(&["SCRIPT", "LOAD", &script(0)]).body();
    let before = (used(&mut other), scripts(&mut other, "used_memory_scripts"));
    for number in 1..KEPT {
        client.command(&["SCRIPT", "LOAD", &script(number)]);
    }
    let grown = used(&mut other) - before.0;
    let told = scripts(&mut other, "used_memory_scripts") - before.1;
    assert!((0.9..1.1).contains(&(told / grown)), "{told} {grown}");
    // Others, sent to be run: the latest of them are kept.
    for number in 1_000..1_000 + KEPT + 100 {
        let answer = client.command(&["EVAL", &script(number), "0"]);
        assert_eq!(answer.integer(), number as i64);
    }
    let kept = scripts(&mut other, "number_of_cached_scripts");
    assert_eq!(kept, 2.0 * KEPT as f64);
    let evicted = info_number(&mut other, "stats", "evicted_scripts");
    assert_eq!(evicted, 100.0);
    let told_now = scripts(&mut other, "used_memory_scripts") - before.1;
    assert!((1.9..2.1).contains(&(told_now / told)), "{told_now} {told}");
    assert_eq!(client.command(&["EVALSHA", &first, "0"]).integer(), 0);
    check(&mut client, "SCRIPT FLUSH", "OK");
    assert_eq!(scripts(&mut other, "used_memory_scripts"), 0.0);
    eventually("what interpreters compiled goes too", || {
        used(&mut other) - before.0 < 1.5e6
    });
}
