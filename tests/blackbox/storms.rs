//! Storms of new connections: a bounded number is begun in one turn, and those that hang up leave nothing behind.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::support::{self, Options, Server, check, eventually, free_port, http, info_number};
use crate::tls::Authority;
use crate::wire::Raw;

const BEGUN_MAX: &str = "eventloop_new_connections_per_cycle_max";

/// Lets `count` clients connect while the server stands still, and serves them when it goes on.
fn storm(server: &Server, count: usize) {
    server.signal("STOP");
    // They wait in the kernel (tcp-backlog).
    let clients: Vec<_> = (0..count)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("it listens"))
        .collect();
    server.signal("CONT");
    for mut client in clients {
        client.write_all(b"PING\r\n").expect("it is sent");
        let mut client = Raw::over(client).expect("a client");
        assert_eq!(client.read().text(), "PONG");
    }
}

#[test]
fn max_new_connections_per_cycle_bounds_what_a_turn_begins() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(16).threads(1);
    let server = Server::start(&options.with("max-new-connections-per-cycle", "3"));
    let mut client = server.raw();
    storm(&server, 300);
    let most = info_number(&mut client, "debug", BEGUN_MAX);
    assert!((1.0..=3.0).contains(&most), "{most} in one turn");
    check(
        &mut client,
        "CONFIG SET max-new-connections-per-cycle 1000",
        "OK",
    );
    eventually("more than before in one turn", || {
        storm(&server, 300);
        info_number(&mut client, "debug", BEGUN_MAX) > 3.0
    });
}

/// Returns the number of open file descriptors of a server.
fn descriptors(server: &Server) -> usize {
    let folder = format!("/proc/{}/fd", server.pid());
    std::fs::read_dir(folder).expect("a process").count()
}

/// Returns the sum of a metric over all its labels.
fn sum(metrics_port: u16, name: &str) -> f64 {
    let page = http(metrics_port, "/metrics");
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Closes a connection so that the server's replies to it fail.
fn reset(stream: TcpStream) {
    let socket = socket2::SockRef::from(&stream);
    socket
        .set_linger(Some(Duration::ZERO))
        .expect("a socket has the option");
}

/// A client of the plain port that hangs up before it has authenticated.
fn hang_up(port: u16, number: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let said: &[u8] = match number % 6 {
        0 => b"",
        1 => b"*2\r\n$4\r\nAUTH\r\n$6\r\nsec",
        2 => b"AUTH wrong\r\nGET key\r\n",
        3 => b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1000000\r\nxxxx",
        4 => b"HELLO 3 AUTH nobody wrong\r\n",
        _ => b"\0\0\0\0",
    };
    let _ = stream.write_all(said);
    if number % 5 < 2 {
        reset(stream);
    }
}

/// A client of the TLS port that hangs up in its handshake.
fn hang_up_tls(port: u16, number: usize, hello: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let said = match number % 4 {
        0 => &[],
        1 => &hello[..hello.len() / 2],
        2 => hello,
        _ => b"AUTH secret\r\n",
    };
    let _ = stream.write_all(said);
    if number % 5 < 2 {
        reset(stream);
    }
}

#[test]
fn clients_that_hang_up_before_auth_leave_nothing_behind() {
    const COUNT: usize = 2_000;
    if support::is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let (tls_port, metrics_port) = (free_port(), free_port());
    let options = authority.options(tls_port).with("requirepass", "secret");
    let server = Server::start(&options.with("metrics-port", &metrics_port.to_string()));
    let mut client = server.raw();
    check(&mut client, "AUTH secret", "OK");
    let config = authority.client(Some("client"), rustls::ALL_VERSIONS);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a hello");
    // Threads, files and buffers that the first clients cause stay.
    hang_up_tls(tls_port, 2, &hello);
    let failures = |expected: usize| {
        let name = "basalt_tls_handshakes_failed_total";
        eventually("each handshake has failed, once", || {
            let count = sum(metrics_port, name) as usize;
            assert!(count <= expected, "{count} of {expected}");
            count == expected
        });
    };
    failures(1);
    let before = descriptors(&server);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let hello = &hello;
            let port = server.port;
            scope.spawn(move || {
                for number in (part..COUNT).step_by(4) {
                    hang_up(port, number / 4);
                    hang_up_tls(tls_port, number / 4, hello);
                }
            });
        }
    });
    failures(COUNT + 1);
    eventually("all are gone", || {
        let mut is_left = |section, field, count| info_number(&mut client, section, field) > count;
        !is_left("clients", "connected_clients", 1.0)
            && !is_left("clients", "unauthenticated_clients", 0.0)
            && !is_left("memory", "mem_clients_unauthenticated", 0.0)
            && descriptors(&server) <= before
    });
    for name in [
        "basalt_tls_handshakes_waiting",
        "basalt_tls_handshakes_under_way",
    ] {
        assert_eq!(sum(metrics_port, name), 0.0, "{name}");
    }
    check(&mut client, "EXISTS key", "(integer) 0");
    let refused = info_number(&mut client, "stats", "rejected_connections");
    assert_eq!(refused, 0.0);
}

#[test]
fn a_subscriber_that_is_stuck_is_cut_by_time_and_one_that_reads_is_not() {
    const MESSAGE_BYTES: usize = 100_000;
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(16).threads(2));
    let mut client = server.raw();
    let mut subscribers = [server.raw(), server.raw()];
    for (subscriber, name) in subscribers.iter_mut().zip(["reading", "stuck"]) {
        check(subscriber, &format!("CLIENT SETNAME {name}"), "OK");
        subscriber.call("SUBSCRIBE news");
    }
    let [mut reading, _stuck] = subscribers;
    let publish = format!("PUBLISH news {}", "m".repeat(MESSAGE_BYTES));
    let waiting_bytes = |client: &mut Raw| {
        let list = client.call("CLIENT LIST TYPE pubsub").text();
        let line = list.lines().find(|line| line.contains(" name=stuck "));
        let mut words = line.expect("it is there").split(' ');
        let bytes = words.find_map(|word| word.strip_prefix("omem="));
        bytes.expect("a field").parse::<usize>().expect("a number")
    };
    // Its socket takes some, and far less waits than the soft limit of eight megabytes.
    eventually("messages wait", || {
        client.call(&publish);
        reading.read();
        waiting_bytes(&mut client) > 3 * MESSAGE_BYTES
    });
    let cut = "client_output_buffer_limit_disconnections";
    assert_eq!(info_number(&mut client, "stats", cut), 0.0);
    check(&mut client, "CONFIG SET client-output-timeout 1", "OK");
    eventually("it is cut", || {
        client.call("PUBLISH news more");
        assert_eq!(reading.read().items().len(), 3);
        info_number(&mut client, "stats", cut) == 1.0
    });
    check(&mut client, "PUBLISH news last", "(integer) 1");
    reading.read();
}
