//! Accepting connections: limits, protected mode, and handing each to its task.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use super::handshaking::Handshaking;
use super::runtime::Spawner;
use crate::console::Console;
use crate::net::connection::{Handed, Owner};
use crate::net::stream::Stream;
use crate::net::{connection, listener};
use crate::replication::primary::Primary;
use crate::session::Session;
use crate::state::Service;
use crate::telemetry::{clock, exporter, log};
use crate::tls::handshake::{Done, Failure, REASONS};
use crate::tls::names::Names;
use basalt_commands::acl::Denied;
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::route::Manner;
use basalt_commands::command::acl::check::{self, Asker, Place};
use basalt_commands::config::Config;
use basalt_commands::config::values::{AS_BIND, TlsAuthClientsUser};
use basalt_core::base::lossless;

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener),
    Unix(UnixListener),
}

/// A socket that is being accepted from, until it is closed.
pub(super) struct Open {
    pub(super) listener: Listener,
    closed: AtomicBool,
}

impl Open {
    pub(super) fn new(listener: Listener) -> Open {
        Open {
            listener,
            closed: AtomicBool::new(false),
        }
    }

    /// Whether accepting is over.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Ends accepting at once; the port is free for another socket when this returns.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Listener::Tcp(listener) | Listener::Tls(listener) = &self.listener {
            // On a listening socket this wakes the acceptor, and leaves the port. It fails only when that was done
            // before.
            let _ = socket2::SockRef::from(listener).shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Opens the sockets on a port, at each address of the configuration; the text says which failed. Port 0 has none.
pub(super) fn open_tcp(
    config: &Config,
    port: u16,
    kind: fn(TcpListener) -> Listener,
) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    for address in &config.bind {
        let (name, optional) = match address.strip_prefix('-') {
            Some(name) => (name, true),
            None => (address.as_str(), false),
        };
        match listener::tcp(name, port, config.tcp_backlog as i32) {
            Ok(socket) => listeners.push(kind(socket)),
            Err(error) if optional && error.kind() != io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "; another process listens there, mostly another server of this machine: `port` (--port) chooses \
                         another port, and `ss -ltnp` names who has this one"
                    }
                    _ => "",
                };
                return Err(format!(
                    "Could not create server TCP listening socket {name}:{port}: {error}{hint}"
                ));
            }
        }
    }
    Ok(listeners)
}

/// Opens the unix socket of the configuration, if it names one.
pub(super) fn open_unix(config: &Config) -> Result<Vec<Listener>, String> {
    if config.unixsocket.is_empty() {
        return Ok(Vec::new());
    }
    let path = &lossless::path_of(&config.unixsocket);
    match listener::unix(path, config.unixsocketperm) {
        Ok(socket) => Ok(vec![Listener::Unix(socket)]),
        Err(error) => Err(format!("Failed opening Unix socket: bind: {error}")),
    }
}

/// The addresses that the metrics are served at, if they are served.
pub(super) fn metrics_addresses(config: &Config) -> &[String] {
    match config.metrics_bind.as_slice() {
        _ if config.metrics_port == 0 => &[],
        [only] if only == AS_BIND => &config.bind,
        others => others,
    }
}

/// Ports that are tried one after the other where `metrics-port` has its default, so that several servers of one
/// machine start as several redis-servers do.
const DEFAULT_PORTS: u16 = 64;

/// Metrics that are served.
pub(super) struct Metrics {
    /// Where, for the start's own word of it.
    pub(super) port: u16,
    _served: exporter::Handle,
}

/// Opens the metrics endpoint, if there is to be one; the text says why it can not be.
pub(super) fn metrics(config: &Config, service: &Arc<Service>) -> Result<Option<Metrics>, String> {
    let wanted = config.metrics_port;
    let is_default = wanted == Config::default().metrics_port;
    let last = if is_default {
        wanted + DEFAULT_PORTS - 1
    } else {
        wanted
    };
    let mut port = wanted;
    let listeners = loop {
        match open_metrics(config, port) {
            Ok(listeners) => break listeners,
            Err((_, error)) if port < last && error.kind() == io::ErrorKind::AddrInUse => port += 1,
            Err((name, error)) => {
                return Err(format!(
                    "Can't serve metrics on {name}:{port}: {error}; choose another port by `metrics-port`, or 0 for none \
                     (redis_exporter listens on 9121 too, and is not needed)"
                ));
            }
        }
    };
    if listeners.is_empty() {
        return Ok(None);
    }
    if port != wanted {
        tracing::warn!(
            "Port {wanted} is taken, so that metrics are served on port {port}; metrics-port chooses one"
        );
    }
    let console = Arc::new(Console::new(Arc::clone(service) as _));
    match exporter::start(listeners, Arc::clone(service) as _, console) {
        Ok(served) => Ok(Some(Metrics {
            port,
            _served: served,
        })),
        Err(error) => Err(format!("Can't serve metrics on port {port}: {error}")),
    }
}

/// Listens for scrapers on all addresses; the one that cannot be had, and why.
fn open_metrics(
    config: &Config,
    port: u16,
) -> Result<Vec<std::net::TcpListener>, (String, io::Error)> {
    let mut listeners = Vec::new();
    for address in metrics_addresses(config) {
        let (name, optional) = match address.strip_prefix('-') {
            Some(name) => (name, true),
            None => (address.as_str(), false),
        };
        match listener::tcp(name, port, config.tcp_backlog as i32).and_then(TcpListener::into_std) {
            Ok(listener) => listeners.push(listener),
            Err(error) if optional && error.kind() != io::ErrorKind::AddrInUse => {}
            Err(error) => return Err((name.to_owned(), error)),
        }
    }
    Ok(listeners)
}

/// What connections leave to the server.
pub(super) struct Owning {
    /// Who serves those of replicas.
    pub(super) replicas: Arc<Primary>,
    /// Says that the server is to stop.
    pub(super) stop: watch::Sender<bool>,
    /// Handshakes of clients that are not served yet.
    pub(super) handshaking: Arc<Handshaking>,
}

impl Owner for Owning {
    fn own(&self, handed: Handed) {
        tokio::spawn(Arc::clone(&self.replicas).serve(handed));
    }

    fn stop(&self) {
        let _ = self.stop.send(true);
    }
}

/// Accepts until the server stops.
pub(super) async fn accept(
    open: Arc<Open>,
    service: &'static Service,
    spawner: Spawner,
    owner: &'static Owning,
) {
    let mut stopped = owner.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = next(&open.listener) => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        match accepted {
            Ok(socket) => admit(socket, service, &spawner, owner),
            Err(_) if open.is_closed() => return,
            // Out of descriptors: what helps is that some connection ends.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

/// A socket that no runtime knows yet, and its ends.
struct Accepted {
    socket: Socket,
    peer: String,
    local: String,
    is_local: bool,
}

enum Socket {
    Tcp(std::net::TcpStream),
    Tls(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

async fn next(listener: &Listener) -> io::Result<Accepted> {
    match listener {
        Listener::Tcp(tcp) | Listener::Tls(tcp) => {
            let (stream, peer) = tcp.accept().await?;
            let local = stream.local_addr()?;
            let stream = stream.into_std()?;
            Ok(Accepted {
                socket: match listener {
                    Listener::Tls(_) => Socket::Tls(stream),
                    _ => Socket::Tcp(stream),
                },
                peer: peer.to_string(),
                local: local.to_string(),
                is_local: peer.ip().to_canonical().is_loopback(),
            })
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            let path = listener.local_addr()?;
            let path = path
                .as_pathname()
                .map_or(String::new(), |path| path.display().to_string());
            Ok(Accepted {
                socket: Socket::Unix(stream.into_std()?),
                peer: format!("{path}:0"),
                local: format!("{path}:0"),
                is_local: true,
            })
        }
    }
}

/// Clients that have not signed in may take one part in so many of `maxclients`.
const UNAUTHENTICATED_PARTS: usize = 2;

/// Makes way for a client that is yet to sign in, if there are too many of its kind, or too many at all: who has taken
/// longest goes. So clients with a password come in, however many places others hold.
fn make_way(service: &Service, maxclients: usize) {
    let clients = &service.clients;
    let share = (maxclients / UNAUTHENTICATED_PARTS).max(1);
    let is_full = || clients.unauthenticated() >= share || clients.count() >= maxclients;
    if is_full() && clients.close_unauthenticated() {
        note_closed(1);
    }
}

/// Says in the log, now and then, that clients were closed which had not signed in.
pub(super) fn note_closed(count: usize) {
    log::warn_seldom(
        "unauthenticated",
        format_args!(
            "Closed {count} client(s) that had not signed in: they took too long (auth-timeout), or their share of maxclients"
        ),
    );
}

/// What a client is told that protected mode keeps out.
const PROTECTED: &str = "-DENIED basalt is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. To \
connect from other computers, set a password for the default user (requirepass), or turn protected mode off with \
CONFIG SET protected-mode no sent from the loopback interface, or with the directive protected-mode no.\r\n";

fn admit(accepted: Accepted, service: &'static Service, spawner: &Spawner, owner: &'static Owning) {
    let config = service.config.load();
    service.clients.accepted.fetch_add(1, Relaxed);
    let default = service.users.default().user();
    let authenticated = default.needs_no_password();
    if !authenticated {
        make_way(service, config.maxclients as usize);
    }
    let refusal =
        if service.clients.count() + owner.handshaking.count() >= config.maxclients as usize {
            Some("-ERR max number of clients reached\r\n")
        } else if config.protected_mode && default.is_nopass() && !accepted.is_local {
            Some(PROTECTED)
        } else {
            None
        };
    // Who has not even shaken hands goes before one who may.
    let refusal = refusal.filter(|text| *text == PROTECTED || !owner.handshaking.drop_oldest());
    if let Some(text) = refusal {
        service.clients.rejected.fetch_add(1, Relaxed);
        use std::io::Write;
        // One attempt: a client that does not take even this is not worth waiting for.
        let _ = match accepted.socket {
            Socket::Tcp(mut socket) => socket.write(text.as_bytes()),
            Socket::Unix(mut socket) => socket.write(text.as_bytes()),
            // It would have to shake hands to hear of it.
            Socket::Tls(_) => Ok(0),
        };
        return;
    }
    let keepalive_s = u64::from(config.tcp_keepalive);
    let Accepted { peer, local, .. } = accepted;
    match accepted.socket {
        Socket::Tls(socket) => {
            let Some(contexts) = service.tls.current() else {
                return;
            };
            let (spawner, context) = (spawner.clone(), Arc::clone(&contexts.server));
            let figures = &service.telemetry.handshakes;
            let then = move |shaken: Result<Done, Failure>| match shaken {
                Ok(done) => {
                    figures.done.fetch_add(1, Relaxed);
                    let holder = done.names();
                    let open = || {
                        let channel = done.open()?;
                        let _ = listener::prepare(channel.socket(), keepalive_s);
                        Ok(Stream::Tls(Box::new(channel)))
                    };
                    begin(service, &spawner, owner, (peer, local), holder, open);
                }
                Err(failure) => {
                    figures.failed[failure.reason()].fetch_add(1, Relaxed);
                    log::warn_seldom(
                        REASONS[failure.reason()],
                        format_args!(
                            "Error accepting a client connection: {failure} (addr={peer} laddr={local})"
                        ),
                    );
                }
            };
            owner.handshaking.begin(socket, context, figures, then);
        }
        Socket::Tcp(socket) => begin(service, spawner, owner, (peer, local), None, || {
            let stream = TcpStream::from_std(socket)?;
            // A socket that takes no options still serves.
            let _ = listener::prepare(&stream, keepalive_s);
            Ok(Stream::Tcp(stream))
        }),
        Socket::Unix(socket) => begin(service, spawner, owner, (peer, local), None, || {
            Ok(Stream::Unix(UnixStream::from_std(socket)?))
        }),
    }
}

/// Begins to serve a client, whose socket `open` registers with the runtime that serves it; `holder` is whom its
/// certificate names.
fn begin(
    service: &'static Service,
    spawner: &Spawner,
    owner: &'static Owning,
    (peer, local): (String, String),
    holder: Option<Names>,
    open: impl FnOnce() -> io::Result<Stream>,
) {
    let handle = spawner.handle();
    let entered = handle.enter();
    let Ok(stream) = open() else {
        return;
    };
    drop(entered);
    let shared = Arc::new(Shared::new(
        service.clients.next_id(),
        peer,
        local,
        stream.fd(),
        matches!(stream, Stream::Unix(_)),
        clock::unix_ms(),
    ));
    let default = service.users.default();
    let mut connection = Connection::new(Arc::clone(&shared), true);
    if matches!(stream, Stream::Tls(_)) {
        (connection.manner, connection.own_manner) = (Manner::TLS.0, Manner::TLS.0);
    }
    connection.set_user(default, default.user().needs_no_password());
    service.clients.add(shared);
    if let Some(names) = holder {
        sign_in_holder(service, &mut connection, names);
    }
    let session = Session::new(connection, service);
    handle.spawn(connection::serve(stream, session, owner));
}

/// Signs a client in as the user that its certificate names, if the configuration says which name that is and the user
/// may sign in. Otherwise the client stays the default user, and that is counted and noted.
fn sign_in_holder(service: &'static Service, connection: &mut Connection, names: Names) {
    let config = service.config.load();
    let names = match config.tls_auth_clients_user {
        TlsAuthClientsUser::Off => return,
        TlsAuthClientsUser::CommonName => names.common.into_iter().collect(),
        TlsAuthClientsUser::Uri => names.uris,
    };
    let found = names.iter().find_map(|name| {
        let handle = service.users.find(name.as_bytes())?;
        handle.user().is_on().then_some(handle)
    });
    if let Some(handle) = found {
        connection.set_user(&handle, true);
        return;
    }
    let Some(name) = names.first() else {
        return;
    };
    let asker = Asker {
        client: &connection.shared,
        server: service.server(),
        config: &config,
        place: Place::TopLevel,
        db: connection.db,
        now_ms: clock::unix_ms(),
    };
    check::note(asker, Denied::Certificate, name.as_bytes(), b"");
}
