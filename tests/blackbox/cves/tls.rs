//! TLS connections that close each other, and names in certificates.

use std::io::{Read, Write};

use super::{SHAPES, is_well};
use crate::support::{Server, check, free_port, info_number};
use crate::tls::{Authority, Channel, NEW, OLD, ask, connect};

/// Connections that close each other, and the rounds.
const CONNECTIONS: usize = 6;
const ROUNDS: usize = 4;

/// Requests before and behind those that close others.
const PINGS: usize = 2_000;

fn id_of(channel: &mut Channel) -> String {
    channel.write_all(b"CLIENT ID\r\n").expect("it is sent");
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") {
        let mut byte = [0];
        channel.read_exact(&mut byte).expect("a reply");
        reply.push(byte[0]);
    }
    let text = String::from_utf8(reply).expect("a number");
    text.trim().trim_start_matches(':').to_owned()
}

/// A command closed another connection whose decrypted data were still to be processed, and these were used afterwards
/// (81934; in Valkey by CLIENT KILL, 56684).
#[test]
fn cve_2026_81934_and_56684_tls_connections_may_close_each_other_with_data_pending() {
    let authority = Authority::new();
    for (shards, threads) in SHAPES {
        let port = free_port();
        let options = authority.options(port).threads(threads);
        let server = Server::start(&options.with("shards", &shards.to_string()));
        let mut closed = 0;
        for round in 0..ROUNDS {
            let versions = if round % 2 == 0 { NEW } else { OLD };
            let mut channels: Vec<Channel> = (0..CONNECTIONS)
                .map(|_| connect(port, authority.client(Some("client"), versions)))
                .collect();
            let ids: Vec<String> = channels.iter_mut().map(id_of).collect();
            // Several records come at once: when the first request runs, the others are there, but not processed.
            for (at, channel) in channels.iter_mut().enumerate() {
                let mut requests = b"PING\r\n".repeat(PINGS);
                for step in 1..CONNECTIONS {
                    let other = &ids[(at + step) % CONNECTIONS];
                    requests.extend(format!("CLIENT KILL ID {other}\r\nPING\r\n").bytes());
                }
                if round == ROUNDS - 1 {
                    requests.extend_from_slice(b"CLIENT KILL TYPE normal SKIPME no\r\n");
                }
                requests.extend(b"PING\r\n".repeat(PINGS));
                // A connection that was closed before cannot send any more.
                let _ = channel.write_all(&requests);
            }
            for mut channel in channels {
                let mut rest = Vec::new();
                channel.sock.shutdown(std::net::Shutdown::Write).ok();
                let _ = channel.read_to_end(&mut rest);
                closed += usize::from(rest.len() < 2 * PINGS * b"+PONG\r\n".len());
            }
            is_well(&server);
        }
        assert!(closed > 0, "none was closed before its end");
    }
}

/// A name in a certificate was read up to a zero byte, so one authority's `admin\0x` was `admin`.
#[test]
fn redis_8_8_2_a_name_with_a_zero_byte_is_no_other_name() {
    let authority = Authority::new();
    authority.sign("zero", "admin\0attacker", |_| {});
    authority.sign("plain", "admin", |_| {});
    authority.sign("uri", "nobody", |params| {
        let uri = "spiffe://admin\0x".try_into().expect("plain text");
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
    });
    for (shards, threads) in SHAPES {
        let port = free_port();
        let options = authority.options(port).threads(threads);
        let options = options.with("shards", &shards.to_string());
        let server = Server::start(&options.with("tls-auth-clients-user", "CN"));
        let mut raw = server.raw();
        check(&mut raw, "ACL SETUSER admin on resetpass ~* +@all", "OK");
        check(
            &mut raw,
            "ACL SETUSER spiffe://admin on resetpass ~* +@all",
            "OK",
        );
        check(&mut raw, "CONFIG SET requirepass secret", "OK");
        let is_nobody = |name: &str| {
            let mut channel = connect(port, authority.client(Some(name), NEW));
            let refused = b"-NOAUTH Authentication required.\r\n";
            ask(&mut channel, b"ACL WHOAMI\r\n", refused).expect("it is told");
        };
        let mut channel = connect(port, authority.client(Some("plain"), NEW));
        ask(&mut channel, b"ACL WHOAMI\r\n", b"$5\r\nadmin\r\n").expect("it is signed in");
        is_nobody("zero");
        let denied = info_number(&mut raw, "stats", "acl_access_denied_tls_cert");
        assert_eq!(denied, 1.0);
        check(&mut raw, "CONFIG SET tls-auth-clients-user URI", "OK");
        is_nobody("uri");
        is_well_with_password(&server);
    }
}

/// Like `is_well`, for a server that asks for a password.
fn is_well_with_password(server: &Server) {
    let mut raw = server.raw();
    check(&mut raw, "AUTH secret", "OK");
    check(&mut raw, "PING", "PONG");
    assert!(!server.log().contains("BUG REPORT"));
}
