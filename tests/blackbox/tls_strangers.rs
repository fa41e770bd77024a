//! Malicious or faulty clients of the TLS port: other clients are not disturbed, and memory stays bounded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::support::{self, Server, check, eventually, free_port, info_number};
use crate::tls::{Authority, NEW, OLD, Versions, ask, connect, metric, ping};

/// Handshakes that the server has under way at once.
const HANDSHAKES_MAX: usize = 1024;

/// Returns the first message of a TLS client.
fn hello(authority: &Authority) -> Vec<u8> {
    let config = authority.client(Some("client"), rustls::ALL_VERSIONS);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).expect("a hello");
    bytes
}

fn open(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket
        .set_read_timeout(Some(Duration::from_secs(90)))
        .expect("a time-out");
    socket
}

/// True if the server has ended a connection, whatever it sent before.
fn ends(socket: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    match socket.read_to_end(&mut said) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn half_handshakes_end_by_a_deadline_and_more_than_there_is_room_for_push_out_the_oldest() {
    let authority = Authority::new();
    let (port, metrics_port) = (free_port(), free_port());
    let options = authority
        .options(port)
        .with("metrics-port", &metrics_port.to_string());
    let server = Server::start(&options);
    let mut good = connect(port, authority.client(Some("client"), NEW));
    ping(&mut good).expect("it is served");
    let hello = hello(&authority);
    let before = server.resident_bytes();
    let mut stalled: Vec<TcpStream> = (0..HANDSHAKES_MAX + 100)
        .map(|_| {
            let mut socket = open(port);
            socket
                .write_all(&hello[..hello.len() / 2])
                .expect("it is sent");
            socket
        })
        .collect();
    let under_way = || metric(metrics_port, "basalt_tls_handshakes_under_way");
    eventually("no more than there is room for", || {
        under_way() <= HANDSHAKES_MAX as f64
    });
    // The oldest had to go; a client that comes now is served, and so is one that was there.
    assert!(ends(&mut stalled[0]), "the oldest is closed");
    ping(&mut connect(port, authority.client(Some("client"), OLD))).expect("it is served");
    ping(&mut good).expect("it goes on");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(
        grown < HANDSHAKES_MAX as u64 * 64 * 1024,
        "{grown} bytes for half handshakes"
    );
    eventually("the deadline", || under_way() == 0.0);
    assert!(server.log().contains("the handshake took too long"));
    assert!(stalled.iter_mut().all(ends));
    ping(&mut good).expect("it goes on");
}

#[test]
fn a_handshake_without_end_is_cut_off_before_it_takes_much() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    // A message of 16 MiB less one by its own account, in records as long as may be.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    let mut socket = open(port);
    let is_cut = (0..200).any(|_| socket.write_all(&record).is_err());
    assert!(is_cut || ends(&mut socket));
    // Many records with nothing in them.
    let mut socket = open(port);
    let empty = [22, 3, 1, 0, 0].repeat(1_000);
    let is_cut = (0..1_000).any(|_| socket.write_all(&empty).is_err());
    assert!(is_cut || ends(&mut socket));
    // Bytes one at a time, up to a hello that requests unknown options.
    let mut socket = open(port);
    for byte in [22, 3, 1, 0, 5, 1, 0, 0, 1, 3] {
        socket.write_all(&[byte]).expect("it is sent");
    }
    assert!(ends(&mut socket));
    check(&mut server.raw(), "PING", "PONG");
}

#[test]
fn a_hello_in_records_of_one_byte_each_is_a_hello() {
    let authority = Authority::new();
    let port = free_port();
    let _server = Server::start(&authority.options(port));
    let bytes = hello(&authority);
    let mut socket = open(port);
    // The header of a record is five bytes; the hello fits one record, but is sent as records of one byte.
    for byte in &bytes[5..] {
        let sent = socket.write_all(&[22, 3, 1, 0, 1, *byte]);
        if sent.is_err() {
            break;
        }
    }
    let mut head = [0; 5];
    socket.read_exact(&mut head).expect("an answer");
    // A hello of the server (22), or an alert (21) because it takes this for an attack; no silence.
    assert!([21, 22].contains(&head[0]), "{head:?}");
}

#[test]
fn a_certificate_that_signs_itself_is_refused() {
    let authority = Authority::new();
    let (port, metrics_port) = (free_port(), free_port());
    let options = authority
        .options(port)
        .with("metrics-port", &metrics_port.to_string());
    let _server = Server::start(&options);
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let key = KeyPair::generate().expect("a key");
    let own = params.self_signed(&key).expect("a certificate");
    std::fs::write(authority.path("own.crt"), own.pem()).expect("it is written");
    std::fs::write(authority.path("own.key"), key.serialize_pem()).expect("it is written");
    for (count, versions) in [(1.0, NEW), (2.0, OLD)] {
        let mut channel = connect(port, authority.client(Some("own"), versions));
        assert!(ping(&mut channel).is_err());
        let figure = "basalt_tls_handshakes_failed_total{reason=\"certificate_unknown_issuer\"}";
        eventually("it is counted", || metric(metrics_port, figure) == count);
    }
}

#[test]
fn a_client_that_stops_within_a_record_holds_up_nobody_and_is_forgotten_when_it_goes() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let mut raw = server.raw();
    let clients = |raw: &mut crate::wire::Raw| info_number(raw, "clients", "connected_clients");
    let each: [Versions; 2] = [NEW, OLD];
    for versions in each {
        let mut halting = connect(port, authority.client(Some("client"), versions));
        ping(&mut halting).expect("it is served");
        let mut other = connect(port, authority.client(Some("client"), versions));
        ping(&mut other).expect("it is served");
        // One whole request, and then a record of which the second half does not come.
        let (mut whole, mut half) = (Vec::new(), Vec::new());
        let mut writer = halting.conn.writer();
        writer.write_all(b"SET whole 1\r\n").expect("room");
        halting.conn.write_tls(&mut whole).expect("a record");
        let mut writer = halting.conn.writer();
        writer.write_all(b"SET half 1\r\n").expect("room");
        halting.conn.write_tls(&mut half).expect("a record");
        whole.extend_from_slice(&half[..half.len() / 2]);
        halting.sock.write_all(&whole).expect("it is sent");
        ask(&mut halting, b"", b"+OK\r\n").expect("the whole one is answered");
        ping(&mut other).expect("the others go on");
        check(&mut raw, "EXISTS whole half", "(integer) 1");
        assert_eq!(clients(&mut raw), 3.0);
        drop(halting);
        eventually("it is forgotten", || clients(&mut raw) == 2.0);
        check(&mut raw, "EXISTS whole half", "(integer) 1");
        drop(other);
        eventually("both are", || clients(&mut raw) == 1.0);
    }
}

#[test]
fn renegotiation_is_refused_and_ends_the_connection_of_who_insists() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let Ok(mut child) = Command::new("openssl")
        .args([
            "s_client",
            "-tls1_2",
            "-connect",
            &format!("127.0.0.1:{port}"),
        ])
        .args(["-cert", &authority.text("client.crt")])
        .args(["-key", &authority.text("client.key")])
        .args(["-CAfile", &authority.text("ca.crt")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return support::skipped("no openssl");
    };
    let mut stdin = child.stdin.take().expect("piped");
    let mut said = child.stdout.take().expect("piped");
    stdin.write_all(b"PING\r\n").expect("it reads");
    // The next bytes may be a command of their own only after everything before them has been answered.
    let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
    while !text.windows(5).any(|five| five == b"+PONG") {
        let count = said.read(&mut bytes).expect("it speaks");
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..count]);
    }
    stdin.write_all(b"R\n").expect("it reads");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("it ends");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no renegotiation"), "{rest}{errors}");
    check(&mut server.raw(), "PING", "PONG");
}

#[test]
fn a_hello_on_the_plain_port_is_answered_with_errors_and_harms_nobody() {
    let authority = Authority::new();
    let server = Server::start(&authority.options(free_port()));
    let hello = hello(&authority);
    for rounds in [1, 100] {
        let mut socket = open(server.port);
        // The server may have hung up before it took everything.
        let _ = socket.write_all(&hello.repeat(rounds));
        let _ = socket.write_all(b"\r\n");
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        assert!(said.is_empty() || said.starts_with(b"-ERR "), "{said:?}");
    }
    let mut raw = server.raw();
    check(&mut raw, "PING", "PONG");
    check(&mut raw, "DBSIZE", "(integer) 0");
}
