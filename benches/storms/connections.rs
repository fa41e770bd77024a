//! Storms of connections: all clients connect within a second, with AUTH, and try again until they are in.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Figures, Plan};
use crate::steady::{self, Steady};
use crate::support::arguments::Arguments;
use crate::support::peers::Peer;
use crate::support::process::Process;

const PASSWORD: &str = "secret";

/// Time in which all clients of the storm connect for the first time.
const STORM: Duration = Duration::from_secs(1);

/// Patience of a client, from connect to the reply to AUTH, and its pause before it tries again.
const PATIENCE: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_millis(200);

/// Time after which the measurement gives up.
const END: Duration = Duration::from_secs(120);

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// Directives of all servers without TLS.
pub(crate) fn plain() -> Vec<String> {
    words(&["--requirepass", PASSWORD, "--maxclients", "15000"])
}

/// Directives of all servers with TLS.
pub(crate) fn tls(plan: &Plan) -> Vec<String> {
    let path = |name: &str| plan.folder.path().join(name).display().to_string();
    let more = words(&[
        "--tls-port",
        &plan.tls_port.to_string(),
        "--tls-cert-file",
        &path("server.crt"),
        "--tls-key-file",
        &path("server.key"),
        "--tls-ca-cert-file",
        &path("ca.crt"),
        "--tls-auth-clients",
        "no",
    ]);
    [plain(), more].concat()
}

/// Returns the server if it has TLS; for a redis-server without it, another one.
pub(crate) fn with_tls(plan: &Plan, server: &Peer, arguments: &Arguments) -> Option<Peer> {
    let other = Peer {
        binary: arguments.value("--tls-redis", "redis-server").into(),
        ..server.clone()
    };
    let mut choices = vec![server.clone()];
    choices.extend((server.name == "redis").then_some(other));
    choices.into_iter().find(|server| {
        // A server that cannot do what a directive asks ends at once.
        let mut command = Command::new(&server.binary);
        command.args(["--port", "0"]).args(tls(plan));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = child else {
            return false;
        };
        std::thread::sleep(Duration::from_secs(1));
        let is_running = child.try_wait().is_ok_and(|ended| ended.is_none());
        let _ = child.kill();
        let _ = child.wait();
        is_running
    })
}

/// Writes a certificate for the servers, and the authority that has signed it.
pub(crate) fn write_certificates(folder: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("a file");
    };
    let names = |name: &str| rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let mut params = names("authority");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    write(
        "ca.crt",
        params.self_signed(&key).expect("a certificate").pem(),
    );
    let authority = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let signed = names("localhost").signed_by(&key, &authority);
    write("server.crt", signed.expect("a certificate").pem());
    write("server.key", key.serialize_pem());
}

pub(crate) fn run_plain(plan: &Plan, server: &Process, _: &str) -> Figures {
    run(
        plan,
        server,
        plan.clients,
        &Way {
            port: server.port,
            tls: None,
        },
    )
}

pub(crate) fn run_tls(plan: &Plan, server: &Process, _: &str) -> Figures {
    let mut roots = RootCertStore::empty();
    let file = plan.folder.path().join("ca.crt");
    let authority = CertificateDer::from_pem_file(file).expect("the authority");
    roots.add(authority).expect("the authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // Clients of different processes share no sessions.
    config.resumption = rustls::client::Resumption::disabled();
    let way = Way {
        port: plan.tls_port,
        tls: Some(Arc::new(config)),
    };
    run(plan, server, plan.tls_clients, &way)
}

/// The way in which the clients connect.
#[derive(Clone)]
struct Way {
    port: u16,
    tls: Option<Arc<ClientConfig>>,
}

fn run(plan: &Plan, server: &Process, count: usize, way: &Way) -> Figures {
    let mut client = server.client();
    client.ask(&["AUTH", PASSWORD]);
    steady::load(&mut client);
    let idle_ms = steady::p99_idle_ms(server.port, Some(PASSWORD), plan.quick);
    let steady = Steady::start(server.port, Some(PASSWORD));
    let retries = Arc::new(AtomicUsize::new(0));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let began = Instant::now();
    let (took, missing) = runtime.block_on(async {
        let tasks: Vec<_> = (0..count)
            .map(|number| {
                let at = STORM * number as u32 / count as u32;
                tokio::spawn(come_in(way.clone(), at, Arc::clone(&retries)))
            })
            .collect();
        let mut kept = Vec::new();
        let mut missing = 0;
        for task in tasks {
            let left = END.saturating_sub(began.elapsed());
            match tokio::time::timeout(left, task).await {
                Ok(socket) => kept.push(socket.expect("a client")),
                Err(_late) => missing += 1,
            }
        }
        (began.elapsed(), missing)
    });
    let storm_ms = steady.p99_ms();
    vec![
        ("p99 before, ms", idle_ms),
        ("p99 in the storm, ms", storm_ms),
        ("all in after, s", took.as_secs_f64()),
        ("tried again", retries.load(Relaxed) as f64),
        ("not in", f64::from(missing)),
    ]
}

/// One client, until it is in. Returns its socket.
async fn come_in(way: Way, at: Duration, retries: Arc<AtomicUsize>) -> TcpStream {
    tokio::time::sleep(at).await;
    loop {
        if let Ok(Ok(socket)) = tokio::time::timeout(PATIENCE, sign_in(&way)).await {
            return socket;
        }
        retries.fetch_add(1, Relaxed);
        tokio::time::sleep(REST).await;
    }
}

async fn sign_in(way: &Way) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect(("127.0.0.1", way.port)).await?;
    let request = format!("AUTH {PASSWORD}\r\n");
    let Some(config) = &way.tls else {
        socket.write_all(request.as_bytes()).await?;
        let mut reply = [0; 64];
        let count = socket.read(&mut reply).await?;
        return is_ok(&reply[..count]).map(|()| socket);
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    io::Write::write_all(&mut tls.writer(), request.as_bytes())?;
    loop {
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes)?;
        }
        socket.write_all(&bytes).await?;
        let mut received = [0; 4096];
        let count = socket.read(&mut received).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &received[..count];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
        let mut reply = [0; 64];
        match io::Read::read(&mut tls.reader(), &mut reply) {
            Ok(count) => return is_ok(&reply[..count]).map(|()| socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_ok(reply: &[u8]) -> io::Result<()> {
    match reply.starts_with(b"+OK") {
        true => Ok(()),
        false => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}
