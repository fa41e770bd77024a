//! Requests that are empty or long, errors that quote what a client sent, and connections that are reset.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{SHAPES, at_each_shape, is_well};
use crate::acl::signed_in;
use crate::support::{Options, Server, check, eventually, info_number};
use crate::wire::{Value, encode};

/// Bytes by which memory may differ for other reasons than the requests of a test.
const SLACK_BYTES: f64 = 3_000_000.0;

/// An empty request left its kind behind, and the next one of another kind ended the server.
#[test]
fn cve_2026_27623_empty_requests_leave_nothing_behind() {
    let empty: [&[u8]; 7] = [
        b"*0\r\n",
        b"*-1\r\n",
        b"\r\n",
        b"  \r\n",
        b"*0\r\n\r\n",
        b"\r\n*0\r\n*-1\r\n",
        b"*0\r\n*0\r\n",
    ];
    let large = encode(&["ECHO", &"x".repeat(70_000)]);
    for password in [false, true] {
        for (shards, threads) in SHAPES {
            let mut options = Options::shards(shards).threads(threads);
            if password {
                options = options.with("requirepass", "secret");
            }
            let server = Server::start(&options);
            for first in empty {
                for second in empty {
                    let mut client = server.raw();
                    let requests = [first, b"PING\r\n", second, b"*1\r\n$4\r\nPING\r\n", first];
                    client.send(&requests.concat());
                    let replies = [client.read().show(), client.read().show()];
                    let expected = match password {
                        true => "(error) NOAUTH Authentication required.",
                        false => "PONG",
                    };
                    assert_eq!(replies, [expected; 2], "{first:?} {second:?}");
                    if !password {
                        // The request comes in two parts, with an empty one before each.
                        client.send(first);
                        client.send(&large[..40_000]);
                        client.send(&large[40_000..]);
                        client.send(second);
                        assert_eq!(client.read().bytes().len(), 70_000);
                    }
                }
            }
            if !password {
                is_well(&server);
            }
        }
    }
}

/// Commands that answer more than one reply, or none, or end the connection or the server.
const APART: &[&str] = &[
    "monitor",
    "psync",
    "sync",
    "quit",
    "shutdown",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "replconf",
    "reset",
    "debug",
    "failover",
    "multi",
    "exec",
    "discard",
];

/// Line ends that a client had sent were in an error, and behind them what looked like another reply.
#[test]
fn redis_8_0_6_and_cve_2025_67733_errors_that_quote_a_client_are_one_line() {
    let evil = "a\r\n+injected\r\n$1\r\n";
    at_each_shape(|server| {
        let mut client = server.raw();
        let listed = client.call("COMMAND LIST");
        let mut names: Vec<String> = listed.items().iter().map(Value::text).collect();
        names.retain(|name| {
            let first = name.split('|').next().unwrap_or(name);
            !APART.contains(&first) && name != "client|reply" && name != "client|kill"
        });
        names.extend([
            "no such".to_owned(),
            evil.to_owned(),
            format!("client|{evil}"),
        ]);
        names.extend(
            ["object", "config", "xgroup", "acl", "function"].map(|name| format!("{name}|{evil}")),
        );
        for protocol in ["HELLO 2", "HELLO 3"] {
            assert!(!client.call(protocol).is_error());
            for name in &names {
                let words: Vec<&str> = name.split('|').collect();
                let mut requests = Vec::new();
                for behind in [
                    &[][..],
                    &[evil],
                    &[evil, evil],
                    &["key", evil],
                    &["key", evil, evil],
                    &["key", "1", evil],
                    &["1", "key", evil],
                    &["GROUP", evil, evil, "STREAMS", "key", ">"],
                    &[evil, evil, evil, evil],
                ] {
                    let request = [&words[..], behind].concat();
                    requests.extend(encode(&request));
                    requests.extend(encode(&["ECHO", "marker"]));
                }
                client.send(&requests);
                for _ in 0..9 {
                    let mut reply = client.read();
                    while matches!(reply, Value::Push(_)) {
                        reply = client.read();
                    }
                    assert_eq!(
                        client.read(),
                        Value::Bulk(b"marker".to_vec()),
                        "{name}: {reply:?}"
                    );
                }
            }
            client = server.raw();
        }
    });
}

#[test]
fn cve_2025_67733_errors_of_scripts_and_functions_are_one_line() {
    let library = "#!lua name=lib\nredis.register_function('fail', function(keys, args)\n\
         if args[2] == '1' then return redis.error_reply(args[1]) end\n\
         if args[2] == '2' then return {err = args[1]} end\n\
         if args[2] == '3' then error(args[1]) end\n\
         if args[2] == '4' then error({err = args[1]}) end\n\
         if args[2] == '5' then return redis.status_reply(args[1]) end\n\
         return redis.call(args[1]) end)";
    at_each_shape(|server| {
        let mut client = server.raw();
        assert!(!client.command(&["FUNCTION", "LOAD", library]).is_error());
        let body = library.split_once('\n').expect("a line").1;
        let script = body
            .replace(
                "redis.register_function('fail', function(keys, args)",
                "local args = ARGV",
            )
            .replace(
                "return redis.call(args[1]) end)",
                "return redis.call(args[1])",
            );
        for text in [
            "ERR a\r\n+b\r\n",
            "a\0b\r\n:1\r\n",
            "\r\n+b",
            "a\n$-1\r\n",
            "\0\r\n",
        ] {
            for way in ["1", "2", "3", "4", "5", "6"] {
                for request in [
                    ["FCALL", "fail", "0", text, way],
                    ["EVAL", &script, "0", text, way],
                ] {
                    client.send(&[encode(&request), encode(&["ECHO", "marker"])].concat());
                    let reply = client.read();
                    assert_eq!(
                        client.read().bytes(),
                        b"marker",
                        "{text:?} {way}: {reply:?}"
                    );
                    let is_line = matches!(reply, Value::Error(_) | Value::Simple(_));
                    assert!(is_line, "{text:?} {way}: {reply:?}");
                }
            }
        }
    });
}

/// Arguments of a request held memory although the user may not run it. How much a request may hold is a limit here.
#[test]
fn cve_2025_46686_requests_of_many_arguments_hold_no_more_than_the_limit() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        check(&mut admin, "CONFIG SET client-query-buffer-limit 1mb", "OK");
        check(&mut admin, "ACL SETUSER nobody on nopass -@all +auth", "OK");
        let before = info_number(&mut admin, "memory", "used_memory");
        let mut clients: Vec<_> = (0..4).map(|_| signed_in(server, "nobody")).collect();
        for client in &mut clients {
            client.send_unchecked(b"*1000000\r\n$4\r\nMSET\r\n");
            let many = b"$1\r\na\r\n".repeat(10_000);
            (0..30).for_each(|_| client.send_unchecked(&many));
        }
        // Each would hold some 40 bytes for each of 300,000 arguments.
        eventually("they are closed", || {
            admin.call("CLIENT LIST").body().lines().count() == 1
        });
        // An announced length takes no memory before its bytes arrive.
        let mut silent: Vec<_> = (0..20).map(|_| signed_in(server, "nobody")).collect();
        for client in &mut silent {
            client.send(b"*1048576\r\n$500000000\r\n");
        }
        check(&mut admin, "PING", "PONG");
        let held = info_number(&mut admin, "memory", "used_memory") - before;
        assert!(held < SLACK_BYTES, "{held}");
        // A request that is denied leaves nothing.
        let mut client = signed_in(server, "nobody");
        for _ in 0..20 {
            let mut words = vec!["MSET"];
            words.resize(20_001, "a");
            assert!(client.command(&words).is_error());
        }
        let held = info_number(&mut admin, "memory", "used_memory") - before;
        assert!(held < SLACK_BYTES, "{held}");
    });
}

/// One connection that could not be accepted ended the turn, so others waited for as long as there were more of these.
#[test]
fn cve_2025_48367_connections_that_are_reset_keep_nobody_waiting() {
    at_each_shape(|server| {
        let address: std::net::SocketAddr = ([127, 0, 0, 1], server.port).into();
        let mut client = server.raw();
        for _ in 0..40 {
            for _ in 0..20 {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
                socket.connect(&address.into()).expect("a connection");
                // A reset instead of an end.
                socket.set_linger(Some(Duration::ZERO)).expect("an option");
            }
            check(&mut server.raw(), "PING", "PONG");
            check(&mut client, "PING", "PONG");
        }
        eventually("they are gone", || {
            client.call("CLIENT LIST").body().lines().count() <= 2
        });
    });
}

/// Replies to a client that has no password were held without end.
#[test]
fn cve_2025_21605_who_has_no_password_is_held_few_errors() {
    for (shards, threads) in SHAPES {
        let options = Options::shards(shards).threads(threads);
        let server = Server::start(&options.with("requirepass", "secret"));
        let mut admin = server.raw();
        check(&mut admin, "AUTH secret", "OK");
        let before = info_number(&mut admin, "memory", "used_memory");
        let mut strangers = Vec::new();
        for _ in 0..5 {
            let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
            stream.set_nonblocking(true).expect("an option");
            let pings = b"PING\r\n".repeat(100_000);
            // Sends for as long as anything is taken, and reads nothing.
            let mut sent = 0;
            eventually("it is taken no more", || {
                let taken = (&stream).write(&pings);
                let taken = taken.unwrap_or(0);
                sent += taken;
                taken == 0 || sent > 100_000_000
            });
            strangers.push(stream);
        }
        let held = info_number(&mut admin, "memory", "used_memory") - before;
        assert!(held < SLACK_BYTES, "{held}");
    }
}
