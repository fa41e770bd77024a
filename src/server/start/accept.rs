//! Accepts connections: limits, protected mode, and handing each one to its task.
//!
//! In a storm of new connections, those that are served keep their latency: an accepting task takes
//! `max-new-connections-per-cycle` connections before it yields, and an event loop begins as many of those that it was
//! given in one turn ([`arrivals`]). The rest waits in queues, bounded by `maxclients`, and in the kernel, bounded by
//! `tcp-backlog`.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use super::handshaking::Handshaking;
use super::runtime::Spawner;
use crate::console::Console;
use crate::net::connection::{DetachedConnection, Owner, TurnState};
use crate::net::event_loops::{EventLoop, arrivals, timed};
use crate::net::stream::ClientSocket;
use crate::net::{connection, listener};
use crate::replication::primary::Primary;
use crate::session::Session;
use crate::state::Service;
use crate::telemetry::{clock, exporter, log};
use crate::tls::handshake::{CompletedHandshake, HandshakeError, REASONS};
use crate::tls::names::Names;
use basalt_commands::acl::Denied;
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::route::RoutingFlags;
use basalt_commands::command::acl::check::{self, AclLogContext, Asker};
use basalt_commands::config::Config;
use basalt_commands::config::values::{AS_BIND, TlsAuthClientsUser};
use basalt_core::base::lossless;

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener),
    Unix(UnixListener),
}

/// A listening socket on which connections are accepted until `OpenListener::close`.
pub(super) struct OpenListener {
    pub(super) listener: Listener,
    closed: AtomicBool,
}

impl OpenListener {
    pub(super) fn new(listener: Listener) -> OpenListener {
        OpenListener {
            listener,
            closed: AtomicBool::new(false),
        }
    }

    /// Whether the socket was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Stops accepting at once; the port is free for another socket when the function returns.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Listener::Tcp(listener) | Listener::Tls(listener) = &self.listener {
            // On a listening socket, `shutdown` wakes the accepting task and frees the port. It fails only if
            // it was called before.
            let _ = socket2::SockRef::from(listener).shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Opens the sockets on a port, at each configured address; none for port 0. The error text states which
/// address failed.
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
                        "; another process, often another server, listens on this port: set another `port` (--port), \
                         or find the process with `ss -ltnp`"
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

/// Opens the configured unix socket, if any.
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

/// Returns the addresses at which the metrics are served, if enabled.
pub(super) fn metrics_addresses(config: &Config) -> &[String] {
    match config.metrics_bind.as_slice() {
        _ if config.metrics_port == 0 => &[],
        [only] if only == AS_BIND => &config.bind,
        others => others,
    }
}

/// Number of consecutive ports tried if `metrics-port` has a default, so that several servers start on one
/// machine as several redis-servers do.
const DEFAULT_PORTS: u16 = 64;

/// The open metrics endpoint.
pub(super) struct Metrics {
    /// The port, for the startup message.
    pub(super) port: u16,
    _served: exporter::ExporterHandle,
}

/// Opens the metrics endpoint, if enabled. The error text states why it cannot be opened.
pub(super) fn metrics(config: &Config, service: &Arc<Service>) -> Result<Option<Metrics>, String> {
    let wanted = config.metrics_port;
    let is_default = [
        Config::default().metrics_port,
        Config::METRICS_PORT_BESIDE_EXPORTER,
    ]
    .contains(&wanted);
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
                    "Can't serve metrics on {name}:{port}: {error}; set `metrics-port` to another port, or to 0 to \
                     disable it (redis_exporter also uses 9121; it is not needed)"
                ));
            }
        }
    };
    if listeners.is_empty() {
        return Ok(None);
    }
    if port != wanted {
        tracing::warn!(
            "Port {wanted} is in use: metrics are served on port {port} instead; set metrics-port to choose a port"
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

/// Opens the metrics endpoint's sockets on all addresses. On error returns the address that failed, and why.
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

/// The parts of the server that connections need.
pub(super) struct ConnectionOwner {
    /// Serves the connections of replicas.
    pub(super) replicas: Arc<Primary>,
    /// Signals that the server is to stop.
    pub(super) stop: watch::Sender<bool>,
    /// TLS handshakes in progress.
    pub(super) handshaking: Arc<Handshaking>,
}

impl Owner for ConnectionOwner {
    fn own(&self, handed: DetachedConnection) {
        tokio::spawn(Arc::clone(&self.replicas).serve(handed));
    }

    fn stop(&self) {
        let _ = self.stop.send(true);
    }

    fn serve_in(
        &'static self,
        event_loop: &'static EventLoop,
        stream: ClientSocket,
        session: Session,
        kept: TurnState,
    ) {
        event_loop.add_connection();
        let client = session.connection.id();
        let serving = connection::serve(stream, session, kept, self);
        event_loop.runtime().spawn(timed(client, serving));
    }
}

/// Accepts connections until the server stops, a bounded number in one turn of the event loop.
pub(super) async fn accept(
    open: Arc<OpenListener>,
    service: &'static Service,
    spawner: Spawner,
    owner: &'static ConnectionOwner,
) {
    let mut stopped = owner.stop.subscribe();
    let mut since_yield = 0;
    loop {
        let accepted = tokio::select! {
            accepted = next(&open.listener) => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        match accepted {
            Ok(socket) => {
                admit(socket, service, &spawner, owner);
                since_yield += 1;
                if since_yield >= service.config.load().max_new_connections_per_cycle {
                    since_yield = 0;
                    tokio::task::yield_now().await;
                }
            }
            Err(_) if open.is_closed() => return,
            // File descriptors have run out: wait for some connection to end.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

/// A socket that is not yet registered with a runtime, with its addresses.
struct Accepted {
    socket: Socket,
    peer: String,
    local: String,
    is_local: bool,
}

impl Accepted {
    fn split(self) -> (Socket, Arrival) {
        let (fd, is_unix, is_tls) = match &self.socket {
            Socket::Tcp(socket) => (socket.as_raw_fd(), false, false),
            Socket::Tls(socket) => (socket.as_raw_fd(), false, true),
            Socket::Unix(socket) => (socket.as_raw_fd(), true, false),
        };
        let arrival = Arrival {
            fd,
            is_unix,
            is_tls,
            peer: self.peer,
            local: self.local,
        };
        (self.socket, arrival)
    }
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

/// Unauthenticated clients may use 1/n of `maxclients`.
const UNAUTHENTICATED_PARTS: usize = 2;

/// Closes the unauthenticated client that has been connected for longest, if there are too many unauthenticated
/// clients or too many clients. So clients with a password can connect, however many connections others have
/// opened.
fn make_way(service: &Service, maxclients: usize) {
    let clients = &service.clients;
    let share = (maxclients / UNAUTHENTICATED_PARTS).max(1);
    let is_full = || clients.unauthenticated() >= share || clients.count() >= maxclients;
    if is_full() && clients.close_unauthenticated() {
        note_closed(1);
    }
}

/// Logs, rate-limited, that unauthenticated clients were closed.
pub(super) fn note_closed(count: usize) {
    log::warn_seldom(
        "unauthenticated",
        format_args!(
            "Closed {count} unauthenticated client(s): auth-timeout expired, or they used up their share of \
             maxclients"
        ),
    );
}

/// Reply to a client that protected mode rejects.
const PROTECTED: &str = "-DENIED basalt is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. To \
connect from other computers, set a password for the default user (requirepass), or turn protected mode off with \
CONFIG SET protected-mode no sent from the loopback interface, or with the directive protected-mode no.\r\n";

fn admit(
    accepted: Accepted,
    service: &'static Service,
    spawner: &Spawner,
    owner: &'static ConnectionOwner,
) {
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
    // If `maxclients` is reached, drop the oldest connection that is still in its TLS handshake instead of
    // refusing this client.
    let refusal = refusal.filter(|text| *text == PROTECTED || !owner.handshaking.drop_oldest());
    if let Some(text) = refusal {
        service.clients.rejected.fetch_add(1, Relaxed);
        use std::io::Write;
        // Try only once to send the refusal: do not wait for a client that does not read it.
        let _ = match accepted.socket {
            Socket::Tcp(mut socket) => socket.write(text.as_bytes()),
            Socket::Unix(mut socket) => socket.write(text.as_bytes()),
            // Send no text to a TLS client, because that would require a handshake first.
            Socket::Tls(_) => Ok(0),
        };
        return;
    }
    let keepalive_s = u64::from(config.tcp_keepalive);
    let (socket, arrival) = accepted.split();
    match socket {
        Socket::Tls(socket) => shake_hands(service, spawner, owner, (socket, arrival), keepalive_s),
        Socket::Tcp(socket) => begin(service, spawner, owner, arrival, None, move || {
            let stream = TcpStream::from_std(socket)?;
            // Ignore errors: the socket works without these options.
            let _ = listener::prepare(&stream, keepalive_s);
            Ok(ClientSocket::Tcp(stream))
        }),
        Socket::Unix(socket) => begin(service, spawner, owner, arrival, None, move || {
            Ok(ClientSocket::Unix(UnixStream::from_std(socket)?))
        }),
    }
}

/// Begins the TLS handshake of a connection, which is served after it.
fn shake_hands(
    service: &'static Service,
    spawner: &Spawner,
    owner: &'static ConnectionOwner,
    (socket, arrival): (std::net::TcpStream, Arrival),
    keepalive_s: u64,
) {
    let Some(contexts) = service.tls.current() else {
        return;
    };
    let (spawner, context) = (spawner.clone(), Arc::clone(&contexts.server));
    let figures = &service.telemetry.handshakes;
    let then = move |shaken: Result<CompletedHandshake, HandshakeError>| match shaken {
        Ok(done) => {
            figures.done.fetch_add(1, Relaxed);
            let holder = done.names();
            begin(service, &spawner, owner, arrival, holder, move || {
                let channel = done.open()?;
                let _ = listener::prepare(channel.socket(), keepalive_s);
                Ok(ClientSocket::Tls(Box::new(channel)))
            });
        }
        Err(failure) => {
            figures.failed[failure.reason()].fetch_add(1, Relaxed);
            let Arrival { peer, local, .. } = arrival;
            log::warn_seldom(
                REASONS[failure.reason()],
                format_args!(
                    "Error accepting a client connection: {failure} (addr={peer} laddr={local})"
                ),
            );
        }
    };
    let count_max = || service.config.load().max_new_tls_connections_per_cycle;
    let handshaking = &owner.handshaking;
    handshaking.begin((socket, context), figures, count_max, then);
}

/// A connection that is to be served: the number of its socket, its kind and its addresses.
struct Arrival {
    fd: RawFd,
    is_unix: bool,
    is_tls: bool,
    peer: String,
    local: String,
}

/// Counts a client and lets an event loop serve it. `open`, called by that loop's thread, registers the client's socket
/// with the loop: while connections arrive in a storm, the thread that accepts them makes few system calls for each.
/// `holder` has the names in the client's certificate.
fn begin(
    service: &'static Service,
    spawner: &Spawner,
    owner: &'static ConnectionOwner,
    arrival: Arrival,
    holder: Option<Names>,
    open: impl FnOnce() -> io::Result<ClientSocket> + Send + 'static,
) {
    let shared = Arc::new(Shared::new(
        service.clients.next_id(),
        arrival.peer,
        arrival.local,
        arrival.fd,
        arrival.is_unix,
        clock::unix_ms(),
    ));
    let default = service.users.default();
    let mut connection = Connection::new(Arc::clone(&shared), true);
    if arrival.is_tls {
        (connection.routing, connection.own_routing) = (RoutingFlags::TLS, RoutingFlags::TLS);
    }
    connection.set_user(default, default.user().needs_no_password());
    service.clients.add(shared);
    if let Some(names) = holder {
        sign_in_holder(service, &mut connection, names);
    }
    let mut session = Session::new(connection, service);
    let event_loop = spawner.place();
    let begin = move || match open() {
        Ok(stream) => owner.serve_in(event_loop, stream, session, TurnState::default()),
        // The client has hung up, or file descriptors have run out.
        Err(_) => connection::leave(&mut session),
    };
    arrivals::take(event_loop, service, Box::new(begin));
}

/// Authenticates a client as the user named by its certificate, if the configuration says which name to use and the
/// user may log in. Otherwise the client stays the default user, and the failure is counted and logged.
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
        place: AclLogContext::TopLevel,
        db: connection.db,
        now_ms: clock::unix_ms(),
    };
    check::note(asker, Denied::Certificate, name.as_bytes(), b"");
}
