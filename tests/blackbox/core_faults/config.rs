//! CONFIG SET while its own work touches shards for which transactions with CONFIG SET wait.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Instant;

use super::{DEADLINE, must_reply};
use crate::support::{Options, Server, check};
use crate::wire::{Raw, encode, encode_into};

const KEYS: usize = 4_000;
const MGET_KEYS: usize = 200;

fn key(number: usize) -> String {
    format!("key:{}", number % KEYS)
}

/// Makes the server remember, for a caching client, that it reads all keys over and over.
fn read_again_and_again(caching: &mut Raw, is_over: &AtomicBool) {
    for first in (0..).step_by(MGET_KEYS) {
        if is_over.load(Relaxed) {
            return;
        }
        let mut words = vec!["MGET".to_owned()];
        words.extend((first..first + MGET_KEYS).map(key));
        let mut bytes = Vec::new();
        encode_into(&mut bytes, &words);
        caching.send(&bytes);
        must_reply(caching, "MGET of a client that caches");
    }
}

/// Sends pipelines of transactions, each of which writes a key and sets a parameter.
fn set_in_transactions(raw: &mut Raw, first: usize, is_over: &AtomicBool) {
    const DEPTH: usize = 16;
    let mut number = first;
    while !is_over.load(Relaxed) {
        let mut bytes = Vec::new();
        for _ in 0..DEPTH {
            number += 1;
            let value = (1 + number % 97).to_string();
            encode_into(&mut bytes, &["MULTI"]);
            encode_into(&mut bytes, &["SET", &key(number), "w"]);
            encode_into(
                &mut bytes,
                &["CONFIG", "SET", "tracking-table-max-keys", &value],
            );
            encode_into(&mut bytes, &["EXEC"]);
        }
        raw.send(&bytes);
        for at in 0..4 * DEPTH {
            let reply = must_reply(raw, &format!("transactions with CONFIG SET, reply {at}"));
            assert!(!reply.is_error(), "{}", reply.show());
        }
    }
}

fn config_set_waits_for_nobody(shards: usize) {
    const CLIENTS: usize = 6;
    const SETTERS: usize = 2;
    const SETS: usize = 1_500;
    let server = Server::start(&Options::shards(shards).threads(4));
    let mut raw = server.raw();
    for first in (0..KEYS).step_by(MGET_KEYS) {
        let mut words = vec!["MSET".to_owned()];
        words.extend((first..first + MGET_KEYS).flat_map(|number| [key(number), "v".to_owned()]));
        assert_eq!(raw.command(&words).show(), "OK");
    }
    // Its notifications go to another connection, which only discards them.
    let mut told = server.raw();
    let id = told.call("CLIENT ID").integer();
    told.call("SUBSCRIBE __redis__:invalidate");
    let mut caching = server.raw();
    check(
        &mut caching,
        &format!("CLIENT TRACKING ON REDIRECT {id}"),
        "OK",
    );
    let (is_over, setters_left) = (AtomicBool::new(false), AtomicUsize::new(SETTERS));
    std::thread::scope(|scope| {
        let (server, is_over, setters_left) = (&server, &is_over, &setters_left);
        scope.spawn(move || {
            while !is_over.load(Relaxed) {
                if super::is_readable(&mut told, super::POLL) {
                    told.read();
                }
            }
        });
        scope.spawn(move || read_again_and_again(&mut caching, is_over));
        for client in 0..CLIENTS {
            scope.spawn(move || set_in_transactions(&mut server.raw(), client * 1_000, is_over));
        }
        for setter in 0..SETTERS {
            scope.spawn(move || {
                let mut raw = server.raw();
                for number in 0..SETS {
                    let value = (100 + (number + setter) % 7).to_string();
                    raw.send(&encode(&[
                        "CONFIG",
                        "SET",
                        "tracking-table-max-keys",
                        &value,
                    ]));
                    let reply = must_reply(&mut raw, &format!("CONFIG SET {number}")).show();
                    assert_eq!(reply, "OK");
                }
                setters_left.fetch_sub(1, SeqCst);
            });
        }
        let began = Instant::now();
        while setters_left.load(SeqCst) > 0 && began.elapsed() < 2 * DEADLINE {
            std::thread::sleep(super::POLL);
        }
        is_over.store(true, Relaxed);
    });
    check(&mut raw, "PING", "PONG");
}

#[test]
fn config_set_in_and_outside_of_transactions_does_not_wait_for_itself() {
    for shards in [1, 4] {
        config_set_waits_for_nobody(shards);
    }
}
