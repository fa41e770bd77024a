//! TLS as clients see it, with certificates that are made for each test.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{
    self, Options, Oracle, Server, check, eventually, free_port, info_number, is_stand_in,
};
use crate::wire::{Raw, encode};

/// A certificate authority, and the folder with the certificates that it signed.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::called("basalt tests")
    }

    fn called(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { folder, issuer };
        fs::write(authority.path("ca.crt"), authority.issuer.pem()).expect("it is written");
        authority.sign("server", "server", |_| {});
        authority.sign("client", "client", |_| {});
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate and its key.
    pub(crate) fn sign(&self, file: &str, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("it is written");
        fs::write(self.path(&format!("{file}.crt")), certificate.pem()).expect("it is written");
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    pub(crate) fn options(&self, port: u16) -> Options {
        Options::default()
            .with("tls-port", &port.to_string())
            .with("tls-cert-file", &self.text("server.crt"))
            .with("tls-key-file", &self.text("server.key"))
            .with("tls-ca-cert-file", &self.text("ca.crt"))
    }

    /// Returns the configuration of a client with a certificate of this name, or without one.
    pub(crate) fn client(&self, name: Option<&str>, versions: Versions) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.path("ca.crt")).expect("the authority");
        roots.add(ca).expect("the authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        match name {
            None => builder.with_no_client_auth(),
            Some(name) => builder
                .with_client_auth_cert(chain(&self.path(&format!("{name}.crt"))), self.key(name))
                .expect("a certificate"),
        }
    }

    fn key(&self, name: &str) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("a key")
    }
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    let chain = CertificateDer::pem_file_iter(path).expect("a file");
    chain.map(|one| one.expect("a certificate")).collect()
}

pub(crate) type Versions = &'static [&'static rustls::SupportedProtocolVersion];

pub(crate) static OLD: Versions = &[&rustls::version::TLS12];
pub(crate) static NEW: Versions = &[&rustls::version::TLS13];

pub(crate) type Channel = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn connect(port: u16, config: ClientConfig) -> Channel {
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    socket.set_nodelay(true).expect("no delay");
    StreamOwned::new(tls, socket)
}

/// Returns the reply to a request, of known length, or an error if the server did not accept the client.
pub(crate) fn ask(channel: &mut Channel, request: &[u8], expected: &[u8]) -> std::io::Result<()> {
    channel.write_all(request)?;
    let mut reply = vec![0; expected.len()];
    channel.read_exact(&mut reply)?;
    assert_eq!(reply, expected);
    Ok(())
}

pub(crate) fn ping(channel: &mut Channel) -> std::io::Result<()> {
    ask(channel, b"PING\r\n", b"+PONG\r\n")
}

pub(crate) fn metric(port: u16, name: &str) -> f64 {
    let mut http = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
    http.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it takes a request");
    let mut page = String::new();
    http.read_to_string(&mut page).expect("a page");
    let line = page.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()).expect(name);
    value.parse().expect("a number")
}

#[test]
fn clients_with_a_certificate_are_served_as_on_a_plain_port() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    for versions in [NEW, OLD] {
        let mut channel = connect(port, authority.client(Some("client"), versions));
        ping(&mut channel).expect("it is served");
        // A pipeline that is more than one record each way.
        let requests = b"PING\r\n".repeat(20_000);
        ask(&mut channel, &requests, &b"+PONG\r\n".repeat(20_000)).expect("all replies");
        let value = vec![b'v'; 3 << 20];
        ask(
            &mut channel,
            &encode(&[b"SET", &b"big"[..], &value]),
            b"+OK\r\n",
        )
        .expect("it is set");
        let mut expected = format!("${}\r\n", value.len()).into_bytes();
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\n");
        ask(&mut channel, b"GET big\r\n", &expected).expect("it comes back");
        // Records of one byte.
        for byte in b"ECHO hello\r\n" {
            channel.write_all(&[*byte]).expect("it is sent");
            channel.flush().expect("it is sent");
        }
        ask(&mut channel, b"", b"$5\r\nhello\r\n").expect("it is answered");
        // A subscriber receives messages from the plain port.
        ask(
            &mut channel,
            b"SUBSCRIBE c\r\n",
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
        )
        .expect("it subscribes");
        check(&mut server.raw(), "PUBLISH c hi", "(integer) 1");
        ask(
            &mut channel,
            b"",
            b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
        )
        .expect("it hears");
        ask(&mut channel, b"QUIT\r\n", b"+OK\r\n").expect("it is told");
        assert_eq!(channel.read(&mut [0]).expect("an end in order"), 0);
    }
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_its_replies() {
    let authority = Authority::new();
    let port = free_port();
    let _server = Server::start(&authority.options(port));
    let mut channel = connect(port, authority.client(Some("client"), rustls::ALL_VERSIONS));
    let value = vec![b'x'; 1 << 20];
    ask(
        &mut channel,
        &encode(&[b"SET", &b"k"[..], &value]),
        b"+OK\r\n",
    )
    .expect("it is set");
    // More than sockets can buffer, and a client that sleeps.
    channel
        .write_all(&b"GET k\r\n".repeat(24))
        .expect("they are sent");
    std::thread::sleep(Duration::from_millis(300));
    let mut one = b"$1048576\r\n".to_vec();
    one.extend_from_slice(&value);
    one.extend_from_slice(b"\r\n");
    for _ in 0..24 {
        ask(&mut channel, b"", &one).expect("each of them");
    }
    ping(&mut channel).expect("it goes on");
}

#[test]
fn who_does_not_shake_hands_as_he_should_is_refused_with_the_reason() {
    let authority = Authority::new();
    let stranger = Authority::called("strangers");
    fs::copy(stranger.path("client.crt"), authority.path("stranger.crt")).expect("a copy");
    fs::copy(stranger.path("client.key"), authority.path("stranger.key")).expect("a copy");
    authority.sign("expired", "expired", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    authority.sign("purpose", "purpose", |params| {
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
    });
    let (port, metrics_port) = (free_port(), free_port());
    let options = authority
        .options(port)
        .with("metrics-port", &metrics_port.to_string());
    let server = Server::start(&options);
    let mut good = connect(port, authority.client(Some("client"), rustls::ALL_VERSIONS));
    ping(&mut good).expect("it is served");
    for (name, reason, text) in [
        (None, "no_certificate", "peer did not return a certificate"),
        (
            Some("stranger"),
            "certificate_unknown_issuer",
            "UnknownIssuer",
        ),
        (Some("expired"), "certificate_expired", "xpired"),
        (
            Some("purpose"),
            "certificate_other",
            "certificate verify failed",
        ),
    ] {
        let mut channel = connect(port, authority.client(name, rustls::ALL_VERSIONS));
        assert!(ping(&mut channel).is_err(), "{name:?}");
        let figure = format!("basalt_tls_handshakes_failed_total{{reason=\"{reason}\"}}");
        eventually(reason, || metric(metrics_port, &figure) == 1.0);
        let log = server.log();
        let line = log.lines().find(|line| {
            line.contains("Error accepting a client connection: ") && line.contains(text)
        });
        assert!(
            line.is_some_and(|line| line.contains("addr=127.0.0.1:")),
            "{text}: {log}"
        );
    }
    // Plain text on the port for TLS.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    plain
        .write_all(b"*1\r\n$4\r\nPING\r\n")
        .expect("it is sent");
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply);
    assert!(reply.is_empty(), "{reply:?}");
    eventually("the log of plain text", || {
        server.log().contains("wrong version number")
    });
    // Half of a handshake, and then nothing; another that ends there.
    let hello = {
        let config = authority.client(Some("client"), rustls::ALL_VERSIONS);
        let name = ServerName::try_from("localhost").expect("a name");
        let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut bytes = Vec::new();
        tls.write_tls(&mut bytes).expect("a hello");
        bytes
    };
    let mut half = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    half.write_all(&hello[..hello.len() / 2])
        .expect("it is sent");
    let mut gone = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    gone.write_all(&hello[..hello.len() / 2])
        .expect("it is sent");
    drop(gone);
    eventually("the log of an end", || {
        server.log().contains("gave up before its handshake")
    });
    // TLS on the plain port is no request, and the others go on.
    let mut wrong = server.raw();
    wrong.send(&hello);
    wrong.send(b"\r\n");
    ping(&mut good).expect("the others go on");
    eventually("they are all gone", || {
        metric(metrics_port, "basalt_tls_handshakes_under_way") <= 1.0
    });
    drop(half);
}

#[test]
fn records_that_were_changed_on_their_way_end_the_connection() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let mut channel = connect(port, authority.client(Some("client"), rustls::ALL_VERSIONS));
    ping(&mut channel).expect("it is served");
    let mut record = vec![23, 3, 3, 0, 64];
    record.extend_from_slice(&[7; 64]);
    channel.sock.write_all(&record).expect("it is sent");
    assert!(ping(&mut channel).is_err());
    check(&mut server.raw(), "PING", "PONG");
}

#[test]
fn certificates_are_read_anew_by_config_set_and_by_themselves_and_connections_go_on() {
    let authority = Authority::new();
    let port = free_port();
    let metrics = free_port();
    let options = authority
        .options(port)
        .with("metrics-port", &metrics.to_string())
        .with("tls-auto-reload-interval", "1");
    let server = Server::start(&options);
    let begin = || connect(port, authority.client(Some("client"), rustls::ALL_VERSIONS));
    let shown = |channel: &Channel| channel.conn.peer_certificates().expect("one")[0].to_vec();
    let of_file = |name: &str| chain(&authority.path(name))[0].to_vec();
    let mut old = begin();
    ping(&mut old).expect("it is served");
    assert_eq!(shown(&old), of_file("server.crt"));
    authority.sign("second", "second", |_| {});
    let mut raw = server.raw();
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {}",
        authority.text("second.crt"),
        authority.text("second.key")
    );
    check(&mut raw, &set, "OK");
    let mut new = begin();
    ping(&mut new).expect("it is served");
    assert_eq!(shown(&new), of_file("second.crt"));
    // Settings that do not match each other change nothing.
    for pair in [
        format!("tls-cert-file {}", authority.text("server.crt")),
        "tls-cert-file /nonexistent".to_owned(),
        "tls-ca-cert-file \"\"".to_owned(),
        "tls-protocols TLSv1.1".to_owned(),
        "tls-protocols SSLv3".to_owned(),
        "tls-ciphers AES256-SHA".to_owned(),
        "tls-ciphersuites TLS_AES_128_CCM_SHA256".to_owned(),
        "tls-groups X25519:nothing".to_owned(),
        "tls-groups P-521".to_owned(),
    ] {
        let name = pair.split(' ').next().expect("a name");
        let expected = format!(
            "(error) ERR CONFIG SET failed (possibly related to argument '{name}') - \
             Unable to update TLS configuration. Check server logs."
        );
        check(&mut raw, &format!("CONFIG SET {pair}"), &expected);
        let mut channel = begin();
        ping(&mut channel).expect("it is served as before");
        assert_eq!(shown(&channel), of_file("second.crt"));
    }
    // Files change under the same names: broken ones are left alone, good ones come into force.
    fs::write(authority.path("second.crt"), "broken").expect("it is written");
    eventually("the log says so", || {
        server.log().contains("the previous ones stay in use")
    });
    ping(&mut begin()).expect("it is served as before");
    assert_eq!(metric(metrics, "basalt_tls_last_reload_status"), 0.0);
    let doctor = raw.call("MEMORY DOCTOR").show();
    assert!(
        doctor.contains("TLS files have changed but cannot be loaded"),
        "{doctor}"
    );
    authority.sign("second", "third", |_| {});
    let third = of_file("second.crt");
    eventually("the third is in force", || {
        let mut channel = begin();
        ping(&mut channel).is_ok() && shown(&channel) == third
    });
    ping(&mut old).expect("it goes on");
    assert_eq!(metric(metrics, "basalt_tls_last_reload_status"), 1.0);
    // A certificate that expires soon is reported before it does.
    let end = "basalt_tls_certificate_end_timestamp_seconds{directive=\"tls-cert-file\"}";
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs() as f64;
    assert!(metric(metrics, end) > now_s + 1e7);
    assert!(!raw.call("MEMORY DOCTOR").show().contains("certificate"));
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(5 * 24 * 3600);
    authority.sign("second", "fourth", |params| params.not_after = soon.into());
    eventually("its end is told of", || {
        let doctor = raw.call("MEMORY DOCTOR").show();
        doctor.contains("(tls-cert-file) expires in 4 days")
    });
    assert!(metric(metrics, end) < now_s + 6.0 * 24.0 * 3600.0);
}

#[test]
fn versions_clients_without_certificates_and_the_port_itself_may_change() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let mut raw = server.raw();
    ping(&mut connect(port, authority.client(Some("client"), OLD))).expect("it is served");
    check(&mut raw, "CONFIG SET tls-protocols TLSv1.3", "OK");
    assert!(ping(&mut connect(port, authority.client(Some("client"), OLD))).is_err());
    ping(&mut connect(
        port,
        authority.client(Some("client"), rustls::ALL_VERSIONS),
    ))
    .expect("it is served");
    check(&mut raw, "CONFIG SET tls-auth-clients optional", "OK");
    ping(&mut connect(
        port,
        authority.client(None, rustls::ALL_VERSIONS),
    ))
    .expect("it is served");
    let elsewhere = free_port();
    check(&mut raw, &format!("CONFIG SET tls-port {elsewhere}"), "OK");
    ping(&mut connect(
        elsewhere,
        authority.client(None, rustls::ALL_VERSIONS),
    ))
    .expect("it is served there");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    check(&mut raw, "CONFIG SET tls-port 0", "OK");
    assert!(TcpStream::connect(("127.0.0.1", elsewhere)).is_err());
}

#[test]
fn keys_are_exchanged_in_the_groups_that_are_listed() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port).with("tls-groups", "P-384"));
    let mut raw = server.raw();
    let group = || {
        let mut channel = connect(port, authority.client(Some("client"), rustls::ALL_VERSIONS));
        ping(&mut channel).expect("it is served");
        let group = channel.conn.negotiated_key_exchange_group();
        group.expect("a handshake").name()
    };
    assert_eq!(group(), rustls::NamedGroup::secp384r1);
    for (list, expected) in [
        ("X25519:P-521", rustls::NamedGroup::X25519),
        ("prime256v1", rustls::NamedGroup::secp256r1),
    ] {
        check(&mut raw, &format!("CONFIG SET tls-groups {list}"), "OK");
        assert_eq!(group(), expected);
    }
    assert!(server.log().contains("tls-groups: P-521 is not supported"));
}

#[test]
fn replicas_follow_by_tls_also_those_of_redis_server_and_migrate_goes_by_it() {
    let authority = Authority::new();
    let encrypted = |port: u16| {
        authority
            .options(port)
            .with("tls-replication", "yes")
            .with("tls-cluster", "yes")
            .with("repl-diskless-sync-delay", "0")
    };
    let (first_port, second_port) = (free_port(), free_port());
    let primary = Server::start(&encrypted(first_port));
    let replica = Server::start(&encrypted(second_port));
    let value = "v".repeat(300_000);
    primary.raw().command(&["SET", "before", &value]);
    let follow = |server: &Server, port: u16| {
        check(
            &mut server.raw(),
            &format!("REPLICAOF 127.0.0.1 {port}"),
            "OK",
        );
    };
    let has = |server: &Server, key: &str| {
        server.raw().call(&format!("EXISTS {key}")).show() == "(integer) 1"
    };
    follow(&replica, first_port);
    eventually("the snapshot", || has(&replica, "before"));
    check(&mut primary.raw(), "SET after 1", "OK");
    eventually("the stream", || has(&replica, "after"));
    check(&mut primary.raw(), "WAIT 1 60000", "(integer) 1");
    check(&mut replica.raw(), "REPLICAOF NO ONE", "OK");
    check(&mut replica.raw(), "FLUSHALL", "OK");
    let migrate = format!("MIGRATE 127.0.0.1 {second_port} before 0 10000");
    check(&mut primary.raw(), &migrate, "OK");
    assert!(has(&replica, "before") && !has(&primary, "before"));
    // Both ways with redis-server.
    let Some(oracle) = Oracle::start() else {
        return;
    };
    let oracle_port = free_port();
    let mut judge = oracle.0.raw();
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {} tls-ca-cert-file {} tls-replication yes tls-port {oracle_port}",
        authority.text("server.crt"),
        authority.text("server.key"),
        authority.text("ca.crt"),
    );
    check(&mut judge, &set, "OK");
    check(&mut judge, "CONFIG SET repl-diskless-sync-delay 0", "OK");
    follow(&oracle.0, first_port);
    eventually("the snapshot, in redis-server", || has(&oracle.0, "after"));
    check(&mut primary.raw(), "SET later 1", "OK");
    eventually("the stream, in redis-server", || has(&oracle.0, "later"));
    check(&mut judge, "REPLICAOF NO ONE", "OK");
    judge.command(&["SET", "large", &value]);
    follow(&replica, oracle_port);
    eventually("the snapshot of redis-server", || has(&replica, "large"));
    check(&mut judge, "SET last 1", "OK");
    eventually("the stream of redis-server", || has(&replica, "last"));
}

#[test]
fn a_start_without_what_tls_needs_fails_and_says_what_is_missing() {
    let authority = Authority::new();
    let (cert, key) = (authority.text("server.crt"), authority.text("server.key"));
    let other_key = authority.text("client.key");
    for (directives, expected) in [
        (vec![], "No tls-cert-file configured!"),
        (
            vec!["--tls-cert-file", &cert],
            "No tls-key-file configured!",
        ),
        (
            vec!["--tls-cert-file", &cert, "--tls-key-file", &key],
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified",
        ),
        (
            vec![
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &other_key,
                "--tls-auth-clients",
                "no",
            ],
            "does not belong to the certificate",
        ),
    ] {
        let port = free_port().to_string();
        let output = support::command()
            .args(["--port", "0", "--metrics-port", "0", "--tls-port", &port])
            .args([
                "--dir",
                authority.folder.path().to_str().expect("a plain path"),
            ])
            .args(&directives)
            .output()
            .expect("the server");
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "{directives:?} starts");
        assert!(log.contains(expected), "{directives:?}: {log}");
    }
}

#[test]
fn metrics_go_by_tls_and_for_a_password() {
    let authority = Authority::new();
    let metrics_port = free_port();
    let options = Options::default()
        .with("tls-cert-file", &authority.text("server.crt"))
        .with("tls-key-file", &authority.text("server.key"))
        .with("metrics-port", &metrics_port.to_string())
        .with("metrics-tls", "yes")
        .with("metrics-auth", "prom:secret");
    let server = Server::start(&options);
    let get = |path: &str, header: &str| {
        let mut channel = connect(metrics_port, authority.client(None, rustls::ALL_VERSIONS));
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n");
        channel.write_all(request.as_bytes()).expect("it is sent");
        let mut page = String::new();
        channel.read_to_string(&mut page).expect("a page that ends");
        page
    };
    let is_refused = |header: &str| {
        let page = get("/metrics", header);
        page.starts_with("HTTP/1.1 401 ") && page.contains("www-authenticate: Basic")
    };
    let good = "Authorization: Basic cHJvbTpzZWNyZXQ=\r\n";
    assert!(get("/health", "").starts_with("HTTP/1.1 200 "));
    assert!(is_refused("") && is_refused("Authorization: Basic ?\r\n"));
    // prom:secrets
    assert!(is_refused("Authorization: Basic cHJvbTpzZWNyZXRz\r\n"));
    assert!(get("/metrics", good).contains("redis_up 1"));
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let mut raw = server.raw();
    check(
        &mut raw,
        &format!("CONFIG SET metrics-auth prom:#{digest}"),
        "OK",
    );
    assert!(get("/metrics", good).contains("redis_up 1"));
    assert!(raw.call("CONFIG SET metrics-auth prom").is_error());
    check(&mut raw, "CONFIG SET metrics-auth \"\"", "OK");
    assert!(get("/metrics", "").contains("redis_up 1"));
}

#[test]
fn the_user_may_be_the_one_that_the_certificate_names() {
    let authority = Authority::new();
    authority.sign("uris", "nobody", |params| {
        for uri in ["spiffe://web/cart", "spiffe://web/shop"] {
            let uri = uri.try_into().expect("plain text");
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        }
    });
    authority.sign("twice", "first", |params| {
        let common_name = rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]);
        params.distinguished_name.push(common_name, "client");
    });
    let port = free_port();
    let options = authority.options(port).with("tls-auth-clients", "optional");
    let server = Server::start(&options.with("tls-auth-clients-user", "CN"));
    let mut admin = server.raw();
    check(
        &mut admin,
        "CONFIG GET tls-auth-clients-user",
        "1) \"tls-auth-clients-user\"\n2) \"CN\"",
    );
    let whoami = |name: Option<&str>, expected: &str| {
        let mut channel = connect(port, authority.client(name, NEW));
        let expected = format!("${}\r\n{expected}\r\n", expected.len());
        ask(&mut channel, b"ACL WHOAMI\r\n", expected.as_bytes()).expect("it is answered");
        channel
    };
    let denied = |admin: &mut Raw| info_number(admin, "stats", "acl_access_denied_tls_cert");
    // There is no such user yet.
    drop(whoami(Some("client"), "default"));
    assert_eq!(denied(&mut admin), 1.0);
    let log = admin.call("ACL LOG").show();
    assert!(
        log.contains("\"tls-cert\"") && log.contains("\"client\""),
        "{log}"
    );
    // Without a password: the certificate alone lets it in.
    check(
        &mut admin,
        "ACL SETUSER client on resetpass ~a:* +@all",
        "OK",
    );
    let mut channel = whoami(Some("client"), "client");
    ask(
        &mut channel,
        b"GET b:1\r\n",
        b"-NOPERM No permissions to access a key\r\n",
    )
    .expect("it is refused");
    drop(whoami(None, "default"));
    // The first of two names counts, as it does where OpenSSL is asked.
    drop(whoami(Some("twice"), "default"));
    check(&mut admin, "ACL SETUSER first on resetpass +@all", "OK");
    drop(whoami(Some("twice"), "first"));
    assert!(admin.call("AUTH client any").is_error());
    check(&mut admin, "ACL SETUSER client off", "OK");
    drop(whoami(Some("client"), "default"));
    check(&mut admin, "ACL SETUSER client on", "OK");
    // A client with a certificate needs no password, even where all others do.
    check(&mut admin, "CONFIG SET requirepass secret", "OK");
    drop(whoami(Some("client"), "client"));
    check(&mut admin, "CONFIG SET tls-auth-clients-user URI", "OK");
    check(
        &mut admin,
        "ACL SETUSER spiffe://web/shop on resetpass +@all",
        "OK",
    );
    drop(whoami(Some("uris"), "spiffe://web/shop"));
    check(&mut admin, "CONFIG SET tls-auth-clients-user off", "OK");
    let mut channel = connect(port, authority.client(Some("client"), NEW));
    ask(
        &mut channel,
        b"ACL WHOAMI\r\n",
        b"-NOAUTH Authentication required.\r\n",
    )
    .expect("it is told");
}

#[test]
fn a_key_that_every_user_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    if is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let port = free_port();
    for (mode, is_warned) in [(0o644, true), (0o600, false)] {
        let key = authority.path("server.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("its mode");
        let server = Server::start(&authority.options(port));
        // The port answers before the log reports it, and the advice comes before that line.
        eventually("the end of the start is logged", || {
            server.log().contains("Ready to accept connections")
        });
        let log = server.log();
        let warning = format!("can read {} and the private key in it", key.display());
        assert_eq!(log.contains(&warning), is_warned, "{log}");
    }
}
