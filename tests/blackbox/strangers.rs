//! Unauthenticated clients, where a password is required: they occupy little memory, cost other clients
//! nothing, and keep no client out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{self, Options, Server, check, eventually, info_number};
use crate::wire::Raw;

const KEYS: i64 = 1_000;

fn options() -> Options {
    Options::shards(64).threads(2).with("requirepass", "secret")
}

fn signed_in(server: &Server) -> Raw {
    let mut client = server.raw();
    check(&mut client, "AUTH secret", "OK");
    client
}

fn stranger(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    stream.set_nonblocking(true).expect("a socket");
    stream
}

/// Sends as much as the server takes; how many bytes that were.
fn send_some(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    stream.write(bytes).unwrap_or(0)
}

/// Starts a server with data, near its limit.
fn filled(policy: &str) -> (Server, Raw) {
    let server = Server::start(
        &options()
            .with("maxmemory", "40mb")
            .with("maxmemory-policy", policy),
    );
    let mut client = signed_in(&server);
    for key in 0..KEYS {
        check(
            &mut client,
            &format!("SET key:{key} {}", "x".repeat(30_000)),
            "OK",
        );
    }
    (server, client)
}

#[test]
fn those_who_never_read_their_errors_hold_little_and_evict_nothing() {
    if support::is_stand_in() {
        return;
    }
    let (server, mut client) = filled("allkeys-lru");
    let mut strangers: Vec<_> = (0..40).map(|_| stranger(&server)).collect();
    let requests = b"GET x\r\n".repeat(20_000);
    for _ in 0..60 {
        let sent: usize = strangers
            .iter_mut()
            .map(|stream| send_some(stream, &requests))
            .sum();
        if sent == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&mut client, "DBSIZE", &format!("(integer) {KEYS}"));
    let held = info_number(&mut client, "memory", "mem_clients_unauthenticated");
    // Each has 16 KiB of input and 16 of replies; then the replies of the turn that passed that bound, of 128
    // requests, and the plans of a turn's requests, about 4.5 KiB in each case.
    assert!(held < 40.0 * 43_000.0, "{held}");
    let others = info_number(&mut client, "memory", "mem_clients_normal");
    assert!(others < 100_000.0, "{others}");
    let count = info_number(&mut client, "clients", "unauthenticated_clients");
    assert_eq!(count, 40.0);
}

#[test]
fn half_requests_refuse_nothing_of_others() {
    if support::is_stand_in() {
        return;
    }
    let (server, mut client) = filled("noeviction");
    let half = [&b"*2\r\n$4\r\nAUTH\r\n$16000\r\n"[..], &[b'x'; 15_000]].concat();
    let mut strangers: Vec<_> = (0..1_500).map(|_| stranger(&server)).collect();
    for stream in &mut strangers {
        send_some(stream, &half);
    }
    eventually("they are there, and what they sent is read", || {
        info_number(&mut client, "clients", "unauthenticated_clients") == 1_500.0
            && info_number(&mut client, "memory", "mem_clients_unauthenticated")
                > 1_500.0 * 15_000.0
    });
    let held = info_number(&mut client, "memory", "mem_clients_unauthenticated");
    assert!(held < 1_500.0 * 20_000.0, "{held}");
    for key in 0..100 {
        check(&mut client, &format!("SET more:{key} {key}"), "OK");
    }
    check(&mut client, "DBSIZE", &format!("(integer) {}", KEYS + 100));
    let evicted = info_number(&mut client, "stats", "evicted_clients");
    assert_eq!(evicted, 0.0);
}

#[test]
fn a_request_beyond_16_kib_ends_the_connection() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&options());
    // Ten arguments of 16 KiB are within Redis's limit for each of them.
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    let argument = [&b"$16384\r\n"[..], &[b'x'; 16_384], b"\r\n"].concat();
    let request = [&b"*10\r\n"[..], &argument.repeat(9)].concat();
    let _ = stream.write_all(&request);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    let mut rest = Vec::new();
    // Either end of a connection may say that it is over.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let mut client = signed_in(&server);
    assert_eq!(
        info_number(&mut client, "clients", "unauthenticated_clients"),
        0.0
    );
}

#[test]
fn those_whose_wrong_passwords_are_answered_late_hold_no_more_than_others() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&options());
    let mut client = signed_in(&server);
    let mut strangers: Vec<_> = (0..20).map(|_| stranger(&server)).collect();
    let requests = b"AUTH nobody wrong\r\n".repeat(10_000);
    let attempts = |client: &mut Raw| info_number(client, "stats", "acl_access_denied_auth");
    for round in 1..=6 {
        for stream in &mut strangers {
            send_some(stream, &requests);
        }
        eventually("some more are answered", || {
            attempts(&mut client) >= f64::from(round * 40)
        });
    }
    let clients = info_number(&mut client, "clients", "unauthenticated_clients");
    let bytes = info_number(&mut client, "memory", "mem_clients_unauthenticated");
    assert_eq!(clients, 20.0);
    assert!(bytes / clients < 36.0 * 1024.0, "{bytes}");
    check(&mut client, "PING", "PONG");
}

#[test]
fn who_has_a_password_comes_in_however_many_strangers_there_are() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&options().with("maxclients", "20"));
    let mut first = signed_in(&server);
    let mut strangers = Vec::new();
    for round in 0..60 {
        strangers.push(stranger(&server));
        if round % 12 == 0 {
            let mut client = signed_in(&server);
            check(&mut client, "PING", "PONG");
        }
    }
    eventually("half of the places are theirs", || {
        info_number(&mut first, "clients", "unauthenticated_clients_closed") >= 49.0
            && info_number(&mut first, "clients", "unauthenticated_clients") <= 10.0
    });
    assert_eq!(
        info_number(&mut first, "stats", "rejected_connections"),
        0.0
    );
    assert!(server.log().contains("unauthenticated client(s)"));
    check(&mut first, "PING", "PONG");
}

#[test]
fn who_takes_too_long_to_sign_in_is_closed_and_nobody_else() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&options().with("auth-timeout", "1"));
    let mut client = signed_in(&server);
    let mut late = server.raw();
    eventually("it is closed", || {
        late.send_unchecked(b"PING\r\n");
        late.try_read().is_err()
    });
    check(&mut client, "PING", "PONG");
    let closed = info_number(&mut client, "clients", "unauthenticated_clients_closed");
    assert_eq!(closed, 1.0);
    // Without a password there is nothing to wait for.
    check(&mut client, "CONFIG SET requirepass \"\"", "OK");
    let mut open = server.raw();
    std::thread::sleep(Duration::from_millis(2_500));
    check(&mut open, "PING", "PONG");
}
