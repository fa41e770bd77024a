//! Many connections: ten thousand idle ones, the limit and its error, and timeouts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::support::{self, Options, Server, check, is_stand_in};
use crate::wire::Raw;

#[test]
fn ten_thousand_idle_connections_disturb_nobody() {
    // One descriptor each on both sides, plus what the test harness itself has open.
    let available = support::raise_descriptor_limit().saturating_sub(1000);
    let count = available.min(10_000);
    let server = Server::start(&Options::shards(64).with("maxclients", "10500"));
    let mut raw = server.raw();
    check(&mut raw, "SET idle v", "OK");
    let before = server.resident_bytes();
    let idle: Vec<TcpStream> = (0..count)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("one more connection"))
        .collect();
    support::eventually("all are counted", || {
        support::info_number(&mut raw, "clients", "connected_clients") as usize == count + 1
    });
    let each = server.resident_bytes().saturating_sub(before) / count.max(1) as u64;
    eprintln!("{count} idle connections, {each} resident bytes each");
    for _ in 0..100 {
        check(&mut raw, "GET idle", "\"v\"");
    }
    drop(idle);
    support::eventually("all are gone", || {
        raw.call("INFO clients")
            .body()
            .contains("connected_clients:1\r\n")
    });
    check(&mut raw, "GET idle", "\"v\"");
}

#[test]
fn clients_above_the_limit_are_told_and_closed() {
    let server = Server::start(&Options::shards(2).with("maxclients", "5"));
    // The connection that found the server ready may still count for a moment.
    let join = || {
        let mut joined = None;
        support::eventually("a place is free", || {
            let mut raw = server.raw();
            raw.send_unchecked(b"PING\r\n");
            let welcome = raw.try_read().is_ok_and(|value| value.show() == "PONG");
            joined = welcome.then_some(raw);
            welcome
        });
        joined.expect("a client")
    };
    let mut clients: Vec<Raw> = (0..5).map(|_| join()).collect();
    let mut sixth = server.raw();
    assert_eq!(
        sixth.read_to_close(),
        b"-ERR max number of clients reached\r\n"
    );
    clients.pop();
    clients.push(join());
    let text = clients[0].call("INFO stats").body();
    assert!(!text.contains("rejected_connections:0\r\n"), "{text}");
    check(&mut clients[0], "CONFIG SET maxclients 100", "OK");
    let more: Vec<Raw> = (0..20).map(|_| server.raw()).collect();
    for mut client in more {
        check(&mut client, "PING", "PONG");
    }
}

#[test]
fn idle_clients_are_closed_after_the_time_out() {
    let server = Server::start(&Options::shards(2).with("timeout", "1"));
    let mut raw = server.raw();
    check(&mut raw, "PING", "PONG");
    assert!(raw.is_closed(), "closed after a second of silence");
}

#[test]
fn a_unix_socket_serves_with_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("socket");
    let server = Server::start(
        &Options::shards(2)
            .with("unixsocket", path.to_str().expect("text"))
            .with("unixsocketperm", "700"),
    );
    let mode = std::fs::metadata(&path)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("connect");
    stream
        .write_all(b"SET unix v\r\nGET unix\r\n")
        .expect("send");
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).expect("two replies");
    assert_eq!(&reply, b"+OK\r\n$1\r\nv\r\n");
    check(&mut server.raw(), "GET unix", "\"v\"");
}

#[test]
fn several_addresses_of_both_families_are_served() {
    if TcpListener::bind(("::1", 0)).is_err() {
        support::skipped("no IPv6 here");
        return;
    }
    let server = Server::start(&Options::shards(2).with("bind", "127.0.0.1 ::1 -192.0.2.1"));
    check(&mut server.raw(), "SET family v", "OK");
    let mut stream = TcpStream::connect(("::1", server.port)).expect("connect over IPv6");
    stream.write_all(b"GET family\r\n").expect("send");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"$1\r\nv\r\n");
}

#[test]
fn metrics_and_health_answer_over_http() {
    if is_stand_in() {
        return;
    }
    let port = support::free_port();
    let server = Server::start(&Options::shards(8).with("metrics-port", &port.to_string()));
    check(&mut server.raw(), "SET scraped v", "OK");
    for path in ["/health", "/ready"] {
        let answer = support::http(port, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    support::eventually("the key is published", || {
        support::http(port, "/metrics").contains("redis_db_keys{db=\"db0\"} 1\n")
    });
    let metrics = support::http(port, "/metrics");
    for name in [
        "redis_up",
        "redis_uptime_in_seconds",
        "redis_connected_clients",
        "redis_blocked_clients",
        "redis_memory_used_bytes",
        "redis_memory_max_bytes",
        "redis_memory_used_rss_bytes",
        "redis_commands_processed_total",
        "redis_commands_total",
        "redis_commands_duration_seconds_total",
        "redis_commands_latencies_usec_bucket",
        "redis_keyspace_hits_total",
        "redis_keyspace_misses_total",
        "redis_net_input_bytes_total",
        "redis_net_output_bytes_total",
        "redis_db_keys",
        "redis_db_keys_expiring",
        "redis_expired_keys_total",
        "redis_evicted_keys_total",
        "redis_instance_info",
        "redis_connections_received_total",
        "redis_rejected_connections_total",
        "redis_config_maxclients",
    ] {
        let found = metrics.lines().any(|line| {
            line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"))
        });
        assert!(found, "/metrics lacks {name}");
    }
    assert!(support::http(port, "/nosuch").starts_with("HTTP/1.1 404"));
}
