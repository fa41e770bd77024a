//! The HTTP endpoint: `/metrics`, `/health` and `/ready`, on a thread and a small runtime of its own; a [`Site`] has
//! the other pages.
//!
//! It reads published counters only, so a scrape waits for no shard, and no scrape, however slow, takes time from a
//! thread that serves clients. Connections, headers and the time to send and to take them are bounded. No client waits
//! for a place, so that a probe is answered whatever others hold.
//!
//! ```text
//! places     who is served, and who makes way for whom
//! patience   clients that take nothing
//! hosts      by which names a browser may ask
//! answers    the endpoint's own pages, and what all answers have in common
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
use patience::Impatient;
use places::{Places, Stay};

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Within which a request's head must be complete, and after which an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// After which a connection is closed in any case, so that one that reads slowly does not keep its place for ever.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What is sent as an answer: a text at once, or events as they come.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is served beside the endpoint's own pages.
pub trait Site: Send + Sync {
    /// The answer to a request for any other path; none if there is no such page.
    fn answer(&self, request: &Request<Incoming>, visit: &Visit) -> Option<Answer>;
}

/// Who asks, and for how long it can be answered.
#[derive(Clone)]
pub struct Visit {
    /// The address of the client.
    pub peer: IpAddr,
    /// When the connection is closed in any case.
    pub ends: Instant,
    places: Arc<Places>,
    number: u64,
}

impl Visit {
    /// Keeps the connection's place for an answer that goes on and on, until what comes of this is dropped; none while
    /// too many do.
    pub fn stay(&self) -> Option<Stay> {
        Places::stay(&self.places, self.number)
    }
}

/// An answer of a site.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub response: Response<Body>,
    /// How long it is put off.
    pub after: Duration,
}

/// No other pages.
#[derive(Clone, Copy, Debug)]
pub struct NoSite;

impl Site for NoSite {
    fn answer(&self, _: &Request<Incoming>, _: &Visit) -> Option<Answer> {
        None
    }
}

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No receiver is left if the thread has ended.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Serves on these sockets until the handle is dropped.
pub fn start(
    listeners: Vec<TcpListener>,
    service: Arc<dyn Observed>,
    site: Arc<dyn Site>,
) -> io::Result<Handle> {
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
    Ok(Handle {
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
    let places = Arc::<Places>::default();
    let turns = Arc::new(Semaphore::new(1));
    for listener in listeners {
        // The socket was made on this machine a moment ago; a runtime that takes no socket can serve nothing.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            continue;
        };
        let shared = Served {
            service: Arc::clone(&service),
            site: Arc::clone(&site),
            turns: Arc::clone(&turns),
        };
        tokio::spawn(accept(listener, shared, Arc::clone(&places)));
    }
    // An error says that the handle is gone, which means the same.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// What all connections have in common.
#[derive(Clone)]
struct Served {
    service: Arc<dyn Observed>,
    site: Arc<dyn Site>,
    /// What takes some time to make is made in its turn.
    turns: Arc<Semaphore>,
}

async fn accept(listener: tokio::net::TcpListener, shared: Served, places: Arc<Places>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors: what helps is that some connection ends.
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
            // What goes wrong on a connection ends it and concerns no other.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            own_places.leave(number);
        });
        // The endpoint has one thread, so the task has not run yet.
        places.take(number, address, task.abort_handle());
    }
}

/// Serves one connection, by TLS if the configuration says so.
async fn serve_one(stream: TcpStream, shared: &Served, visit: &Visit) {
    if !shared.service.config().metrics_tls {
        return converse(stream, shared, visit).await;
    }
    let Some(contexts) = shared.service.tls() else {
        return;
    };
    let shaken = handshake::accept(stream, Arc::clone(&contexts.anonymous));
    if let Ok(Ok(done)) = tokio::time::timeout(HEAD_TIMEOUT, shaken).await
        && let Ok(channel) = done.open()
    {
        converse(channel, shared, visit).await;
    }
}

/// Answers the requests of a connection. A scrape, or a page of the site, is made in its turn, and whatever else is
/// ready comes between two of them: so a probe waits for one or two, however many are asked for.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Served, visit: &Visit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(
            TokioIo::new(Impatient::new(stream)),
            service_fn(move |request: Request<Incoming>| async move {
                let answered = answer(&request, shared, visit).await;
                Ok::<_, Infallible>(answers::guarded(answered))
            }),
        );
    let _ = connection.await;
}

async fn answer(request: &Request<Incoming>, shared: &Served, visit: &Visit) -> Response<Body> {
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
        Some(Answer { response, after }) => (response, after),
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
