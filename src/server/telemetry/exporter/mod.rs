//! The HTTP endpoint: `/metrics`, `/health` and `/ready`, on its own thread with a small runtime. A [`Site`] adds
//! the other pages.
//!
//! The endpoint only reads published counters, so a scrape waits for no shard, and even a slow scrape takes no
//! time from threads that serve clients. Connections, headers and the time to send and receive are bounded. No
//! client waits for a connection slot, so probes are answered even if other clients hold all slots.
//!
//! ```text
//! places     connection slots and their eviction
//! patience   timeouts for clients that do not read
//! hosts      host names allowed for browsers
//! answers    the endpoint's own pages, and what all responses have in common
//! ```

pub mod answers;
pub mod hosts;
mod patience;
pub mod places;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::observed::Observed;
use crate::tls::handshake;
use patience::WriteTimeoutStream;
use places::{ConnectionSlots, Stay};

/// Maximum bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of headers in a request.
const HEADERS_MAX: usize = 64;

/// Time within which a request's head must be complete, and after which an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum lifetime of a connection, so that a slow reader does not keep its slot forever.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Body of a response: a complete text, or a stream of events.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The pages served besides the endpoint's own.
pub trait Site: Send + Sync {
    /// Returns the response to a request for any other path; `None` if there is no such page.
    fn answer(&self, request: &Request<Incoming>, visit: &Visit) -> Option<SiteResponse>;
}

/// The client of a request, and the deadline for its response.
#[derive(Clone)]
pub struct Visit {
    /// The address of the client.
    pub peer: IpAddr,
    /// When the connection is closed at the latest.
    pub ends: Instant,
    places: Arc<ConnectionSlots>,
    number: u64,
}

impl Visit {
    /// Keeps the connection's slot for a streaming response, until the returned guard is dropped; `None` if too
    /// many connections have streaming responses.
    pub fn stay(&self) -> Option<Stay> {
        ConnectionSlots::stay(&self.places, self.number)
    }
}

/// A site's response.
#[derive(Debug)]
pub struct SiteResponse {
    /// The HTTP response.
    pub response: Response<ResponseBody>,
    /// Delay before the response is sent.
    pub after: Duration,
}

/// A site without pages.
#[derive(Clone, Copy, Debug)]
pub struct NoSite;

impl Site for NoSite {
    fn answer(&self, _: &Request<Incoming>, _: &Visit) -> Option<SiteResponse> {
        None
    }
}

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct ExporterHandle {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ExporterHandle {
    /// Returns the addresses on which the endpoint listens; a configured port of 0 appears as the port that the
    /// system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for ExporterHandle {
    fn drop(&mut self) {
        // Sending fails if the thread has already ended, which is fine.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it occurred.
            let _ = thread.join();
        }
    }
}

/// Serves on these sockets until the handle is dropped.
pub fn start(
    listeners: Vec<TcpListener>,
    service: Arc<dyn Observed>,
    site: Arc<dyn Site>,
) -> io::Result<ExporterHandle> {
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<io::Result<_>>()?;
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new()
        .name("basalt-metrics".to_owned())
        .spawn(move || runtime.block_on(serve(listeners, service, site, stopped)))?;
    Ok(ExporterHandle {
        addresses,
        stop,
        thread: Some(thread),
    })
}

async fn serve(
    listeners: Vec<TcpListener>,
    service: Arc<dyn Observed>,
    site: Arc<dyn Site>,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::<ConnectionSlots>::default();
    let turns = Arc::new(Semaphore::new(1));
    for listener in listeners {
        // The socket was created on this machine a moment ago; if the runtime cannot register it, skip this
        // address.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            continue;
        };
        let shared = ExporterState {
            service: Arc::clone(&service),
            site: Arc::clone(&site),
            turns: Arc::clone(&turns),
        };
        tokio::spawn(accept(listener, shared, Arc::clone(&places)));
    }
    // An error means that the handle was dropped, which stops the endpoint, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// State shared by all connections.
#[derive(Clone)]
struct ExporterState {
    service: Arc<dyn Observed>,
    site: Arc<dyn Site>,
    /// Serializes pages that take a while to produce.
    turns: Arc<Semaphore>,
}

async fn accept(
    listener: tokio::net::TcpListener,
    shared: ExporterState,
    places: Arc<ConnectionSlots>,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of file descriptors: wait for some connection to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = shared.clone();
        let visit = Visit {
            peer: peer.ip().to_canonical(),
            ends: Instant::now() + CONNECTION_TIMEOUT,
            places: Arc::clone(&places),
            number: places.next_number(),
        };
        let (number, address) = (visit.number, visit.peer);
        let own_places = Arc::clone(&places);
        let task = tokio::spawn(async move {
            let served = serve_one(stream, &shared, &visit);
            // An error on a connection ends it and affects no other.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            own_places.leave(number);
        });
        // The endpoint has one thread, so the spawned task cannot have run (and left) yet.
        places.take(number, address, task.abort_handle());
    }
}

/// Serves one connection, over TLS if configured.
async fn serve_one(stream: TcpStream, shared: &ExporterState, visit: &Visit) {
    if !shared.service.config().metrics_tls {
        return converse(stream, shared, visit).await;
    }
    let Some(contexts) = shared.service.tls() else {
        return;
    };
    let shaken = handshake::accept(stream, Arc::clone(&contexts.no_client_certificate));
    if let Ok(Ok(done)) = tokio::time::timeout(HEAD_TIMEOUT, shaken).await
        && let Ok(channel) = done.open()
    {
        converse(channel, shared, visit).await;
    }
}

/// Answers a connection's requests. Scrapes and the site's pages are produced one at a time, and other ready
/// work runs in between; so a probe of `/health` waits for at most one or two pages, however many are
/// requested.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &ExporterState,
    visit: &Visit,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(
            TokioIo::new(WriteTimeoutStream::new(stream)),
            service_fn(move |request: Request<Incoming>| async move {
                let answered = answer(&request, shared, visit).await;
                Ok::<_, Infallible>(answers::guarded(answered))
            }),
        );
    let _ = connection.await;
}

async fn answer(
    request: &Request<Incoming>,
    shared: &ExporterState,
    visit: &Visit,
) -> Response<ResponseBody> {
    let service = &*shared.service;
    let path = request.uri().path();
    if matches!(path, "/health" | "/ready") {
        return answers::own(request, service);
    }
    // The semaphore is never closed.
    let turn = shared.turns.acquire().await;
    let of_site = match path {
        "/metrics" => None,
        _ => shared.site.answer(request, visit),
    };
    let (response, after) = match of_site {
        Some(SiteResponse { response, after }) => (response, after),
        None => (answers::own(request, service), Duration::ZERO),
    };
    tokio::task::yield_now().await;
    drop(turn);
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    response
}

#[cfg(test)]
mod tests;
