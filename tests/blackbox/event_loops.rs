//! Connections that move from one thread's event loop to another after each turn (DEBUG MOVE-CONNECTIONS): nothing is
//! lost or out of order, whatever the client does meanwhile.

use std::io::{Read, Write};
use std::thread::JoinHandle;

use crate::support::{self, Draw, Options, Server, check};
use crate::tls::{Authority, connect};
use crate::wire::{Raw, encode, encode_into};

/// Rounds of each client.
const ROUNDS: usize = 150;

fn start(options: Options) -> Server {
    let options = options.threads(4).with("runtime", "per-core");
    let server = Server::start(&options);
    check(&mut server.raw(), "DEBUG MOVE-CONNECTIONS 1", "OK");
    server
}

/// Requests in one pipeline are answered in order, also where they are sent in two parts.
fn pipelines(port: u16, seed: u64) {
    let mut raw = Raw::connect(port);
    let mut draw = Draw::new(seed);
    let mut sum = raw.call(&format!("INCRBY sum:{seed} 0")).integer();
    for _ in 0..ROUNDS {
        // More than one turn's requests, now and then.
        let count_max = if draw.below(10) == 0 { 300 } else { 20 };
        let count = 1 + draw.below(count_max);
        let mut bytes = Vec::new();
        for _ in 0..count {
            encode_into(&mut bytes, &["INCR", &format!("sum:{seed}")]);
        }
        let cut = draw.below(bytes.len());
        raw.send(&bytes[..cut]);
        std::thread::yield_now();
        raw.send(&bytes[cut..]);
        for _ in 0..count {
            sum += 1;
            assert_eq!(raw.read().integer(), sum);
        }
    }
}

/// Long arguments and replies, which the sockets do not take at once.
fn long_values(port: u16, seed: u64) {
    const BYTES: usize = 3_000_000;
    let mut raw = Raw::connect(port);
    let key = format!("long:{seed}");
    for round in 0..6 {
        let letter = char::from(b'a' + round as u8).to_string();
        let value = letter.repeat(BYTES + round);
        let mut bytes = encode(&["SET", &key, &value]);
        for _ in 0..4 {
            encode_into(&mut bytes, &["GET", &key]);
        }
        raw.send(&bytes);
        assert_eq!(raw.read().text(), "OK");
        for _ in 0..4 {
            assert!(raw.read().bytes() == value.as_bytes(), "another value");
        }
    }
}

/// Transactions whose commands arrive in turns of their own.
fn transactions(port: u16, seed: u64) {
    let mut raw = Raw::connect(port);
    let key = format!("transaction:{seed}");
    for round in 1..=ROUNDS as i64 {
        check(&mut raw, &format!("WATCH {key}"), "OK");
        check(&mut raw, "MULTI", "OK");
        assert_eq!(raw.call(&format!("INCR {key}")).text(), "QUEUED");
        assert_eq!(raw.call("SELECT 1").text(), "QUEUED");
        assert_eq!(raw.call("SELECT 0").text(), "QUEUED");
        let replies = raw.call("EXEC");
        assert_eq!(replies.items()[0].integer(), round, "{}", replies.show());
    }
}

/// One client waits for what the other one pushes.
fn blocked(port: u16, seed: u64) {
    let (there, back) = (format!("there:{seed}"), format!("back:{seed}"));
    let echo = {
        let (there, back) = (there.clone(), back.clone());
        std::thread::spawn(move || {
            let mut raw = Raw::connect(port);
            for _ in 0..ROUNDS {
                let popped = raw.call(&format!("BLPOP {there} 30"));
                let value = popped.items()[1].text();
                raw.call(&format!("RPUSH {back} {value}"));
            }
        })
    };
    let mut raw = Raw::connect(port);
    for round in 0..ROUNDS {
        raw.send(&encode(&["RPUSH", &there, &round.to_string()]));
        raw.send(&encode(&["BLPOP", &back, "30"]));
        raw.read().integer();
        assert_eq!(raw.read().items()[1].text(), round.to_string());
    }
    echo.join().expect("the other client");
}

/// Messages arrive in order, at a subscriber that also asks.
fn messages(port: u16, seed: u64) {
    let channel = format!("channel:{seed}");
    let mut subscriber = Raw::connect(port);
    subscriber.call("HELLO 3");
    subscriber.call(&format!("SUBSCRIBE {channel}"));
    let mut publisher = Raw::connect(port);
    for round in 0..ROUNDS {
        let mut bytes = Vec::new();
        for part in 0..3 {
            encode_into(
                &mut bytes,
                &["PUBLISH", &channel, &format!("{round} {part}")],
            );
        }
        publisher.send(&bytes);
        for part in 0..3 {
            assert_eq!(
                subscriber.read().items()[2].text(),
                format!("{round} {part}")
            );
            assert_eq!(publisher.read().integer(), 1);
        }
        subscriber.send(&encode(&["ECHO", &round.to_string()]));
        assert_eq!(subscriber.read().text(), round.to_string());
    }
}

fn all_at_once(server: &Server, clients: &[fn(u16, u64)]) {
    let port = server.port;
    let threads: Vec<JoinHandle<()>> = clients
        .iter()
        .cycle()
        .take(2 * clients.len())
        .enumerate()
        .map(|(seed, client)| {
            let client = *client;
            std::thread::spawn(move || client(port, seed as u64))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client");
    }
}

#[test]
fn clients_notice_nothing_when_their_connections_move_after_each_turn() {
    if support::is_stand_in() {
        return;
    }
    let server = start(Options::default());
    let clients = [pipelines, long_values, transactions, blocked, messages];
    all_at_once(&server, &clients);
    let mut raw = server.raw();
    let descriptors = |raw: &mut Raw| [(); 2].map(|()| descriptor(raw));
    let [before, after] = descriptors(&mut raw);
    assert_ne!(before, after, "the connection has not moved");
    let moved = support::info_number(&mut raw, "basalt", "connections_moved");
    assert!(
        moved > 10.0 * ROUNDS as f64,
        "only {moved} times did a connection move"
    );
    check(&mut raw, "DEBUG MOVE-CONNECTIONS 0", "OK");
    all_at_once(&server, &[pipelines]);
    let [before, after] = descriptors(&mut raw);
    assert_eq!(before, after, "the connection has moved");
    support::eventually("the other clients leave", || {
        raw.call("CLIENT LIST").text().lines().count() == 1
    });
}

/// Returns the file descriptor of a connection's socket, which is another one in another event loop.
fn descriptor(raw: &mut Raw) -> String {
    let info = raw.call("CLIENT INFO").text();
    let field = info.split(' ').find(|field| field.starts_with("fd="));
    field.expect("a descriptor").to_owned()
}

#[test]
fn encrypted_connections_move_too() {
    if support::is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let port = support::free_port();
    let _server = start(authority.options(port));
    let clients: Vec<JoinHandle<()>> = (0..4u8)
        .map(|number| {
            let config = authority.client(Some("client"), rustls::ALL_VERSIONS);
            std::thread::spawn(move || {
                let mut channel = connect(port, config);
                let key = format!("key:{number}");
                for round in 0..ROUNDS {
                    // Records of 16 KiB: a long value arrives and leaves in many.
                    let value = "v".repeat(if round % 10 == 0 { 200_000 } else { 10 } + round);
                    let mut bytes = encode(&["SET", &key, &value]);
                    encode_into(&mut bytes, &["GET", &key]);
                    channel.write_all(&bytes).expect("it is sent");
                    let expected = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
                    let mut found = vec![0; expected.len()];
                    channel.read_exact(&mut found).expect("it is received");
                    assert!(found == expected.as_bytes(), "round {round}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client");
    }
}
