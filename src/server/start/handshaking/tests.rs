//! Handshakes are begun a few at a time, and not at all for clients that have given up.

use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::AtomicUsize;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// A resolver without a certificate, which counts the handshakes that asked for one: those whose first message was
/// processed.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

impl ResolvesServerCert for Asked {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.fetch_add(1, Relaxed);
        None
    }
}

/// The reasons for which handshakes failed, in order.
type Failures = Arc<Mutex<Vec<String>>>;

struct Scene {
    handshaking: Arc<Handshaking>,
    asked: Arc<Asked>,
    context: Arc<ServerConfig>,
    figures: &'static Handshakes,
    failures: Failures,
}

impl Scene {
    /// A server whose handshakes all wait: the test itself is the thread that begins them.
    fn new() -> Scene {
        let asked = Arc::new(Asked::default());
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_no_client_auth();
        let handshaking = Handshaking::new(1);
        handshaking.pending.lock().idle.clear();
        Scene {
            handshaking: Arc::new(handshaking),
            context: Arc::new(builder.with_cert_resolver(Arc::clone(&asked) as _)),
            asked,
            figures: Box::leak(Box::default()),
            failures: Failures::default(),
        }
    }

    /// A client that has sent its first message. Returns its socket.
    fn connect(&self) -> std::net::TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let mut client = std::net::TcpStream::connect(address).expect("a connection");
        let mut hello = Vec::new();
        let mut tls = ClientConnection::new(client_config(), name()).expect("a client");
        tls.write_tls(&mut hello).expect("its first message");
        client.write_all(&hello).expect("it is sent");
        self.accept(&listener);
        client
    }

    /// Accepts a connection, whose handshake then waits.
    fn accept(&self, listener: &TcpListener) {
        let (socket, _) = listener.accept().expect("it is accepted");
        socket.set_nonblocking(true).expect("a mode");
        let failures = Arc::clone(&self.failures);
        self.handshaking.begin(
            (socket, Arc::clone(&self.context)),
            self.figures,
            || 1,
            move |shaken| {
                failures
                    .lock()
                    .extend(shaken.err().map(|error| error.to_string()))
            },
        );
    }

    /// Begins the handshakes, `count_max` in a turn, until all are over. Returns how many waited after each turn.
    fn begin_all(&self, count_max: u32) -> Vec<usize> {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let beginning = Arc::clone(&self.handshaking).begin_waiting(0, move || count_max);
            tokio::spawn(beginning);
            let mut waited = Vec::new();
            while self.handshaking.count() > 0 {
                tokio::task::yield_now().await;
                let waiting = self.handshaking.pending.lock().waiting.len();
                assert_eq!(self.figures.waiting.load(Relaxed), waiting as u64);
                waited.push(waiting);
            }
            waited
        })
    }
}

fn client_config() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("versions");
    let config = builder.with_root_certificates(RootCertStore::empty());
    Arc::new(config.with_no_client_auth())
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

#[test]
fn a_thread_begins_no_more_handshakes_in_one_turn_than_it_may() {
    for (count_max, expected) in [(1, vec![4, 3, 2, 1, 0]), (2, vec![3, 1, 0]), (9, vec![0])] {
        let scene = Scene::new();
        let _clients: Vec<_> = (0..5).map(|_| scene.connect()).collect();
        let mut waited = scene.begin_all(count_max);
        waited.dedup();
        assert_eq!(waited, expected, "{count_max} in a turn");
        assert_eq!(scene.asked.0.load(Relaxed), 5, "all are begun");
        assert_eq!(scene.failures.lock().len(), 5);
        assert_eq!(scene.figures.under_way.load(Relaxed), 0);
    }
}

#[test]
fn no_key_is_computed_for_a_client_that_has_given_up() {
    let scene = Scene::new();
    let there = scene.connect();
    drop(scene.connect());
    let half_closed = scene.connect();
    half_closed.shutdown(Shutdown::Write).expect("it is closed");
    scene.begin_all(1);
    assert_eq!(
        scene.asked.0.load(Relaxed),
        1,
        "only for the client that is there"
    );
    let given_up = HandshakeError::GivenUp.to_string();
    let failures = scene.failures.lock();
    assert_eq!(failures.iter().filter(|text| **text == given_up).count(), 2);
    assert_eq!(failures.len(), 3);
    drop(there);
}

#[test]
fn a_client_that_gives_up_after_its_handshake_began_gets_no_answer_either() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut client = std::net::TcpStream::connect(address).expect("a connection");
    let (socket, _) = listener.accept().expect("it is accepted");
    socket.set_nonblocking(true).expect("a mode");
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let shaken = runtime.block_on(async {
        let socket = TcpStream::from_std(socket).expect("it is registered");
        let shaking = tokio::spawn(handshake::accept(socket, Arc::clone(&scene.context)));
        tokio::task::yield_now().await;
        let mut tls = ClientConnection::new(client_config(), name()).expect("a client");
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).expect("its first message");
        client.write_all(&hello).expect("it is sent");
        drop(client);
        shaking.await.expect("it ends")
    });
    assert!(matches!(shaken, Err(HandshakeError::GivenUp)));
    assert_eq!(scene.asked.0.load(Relaxed), 0);
}

#[test]
fn plain_text_is_called_that_even_if_its_sender_has_gone() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    for said in [&b"PING\r\n"[..], b""] {
        let mut client = std::net::TcpStream::connect(address).expect("a connection");
        client.write_all(said).expect("it is sent");
        scene.accept(&listener);
    }
    scene.begin_all(1);
    let failures = scene.failures.lock();
    assert!(failures[0].contains("not TLS"), "{}", failures[0]);
    assert_eq!(failures[1], HandshakeError::GivenUp.to_string());
}

#[test]
fn the_oldest_is_dropped_whether_it_has_begun_or_not() {
    let scene = Scene::new();
    assert!(!scene.handshaking.drop_oldest());
    let _clients = [scene.connect(), scene.connect()];
    assert!(scene.handshaking.drop_oldest());
    assert_eq!(scene.handshaking.count(), 1);
    assert_eq!(scene.figures.waiting.load(Relaxed), 1);
    assert_eq!(scene.handshaking.pending.lock().waiting[0].number, 2);
}
