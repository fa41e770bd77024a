//! The HTTP endpoint: `/metrics`, `/health` and `/ready`, on a thread and a small runtime of its own; a [`Site`] has
//! the other pages.
//!
//! It reads published counters only, so a scrape waits for no shard, and no scrape, however slow, takes time from a
//! thread that serves clients. Connections, headers and the time to send and to take them are bounded. No client waits
//! for a place: a new connection takes that of the oldest one, if need be, so that a probe is answered whatever others
//! hold.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue,
    VARY, WWW_AUTHENTICATE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::metrics;
use super::observed::Observed;
use crate::base::{base64, hex, lossless};
use crate::tls::handshake;

/// Connections served at once.
const CONNECTIONS_MAX: usize = 64;

/// Connections from one address that are served at once.
const OF_ONE_ADDRESS_MAX: usize = 48;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Bytes of a page from which on it is worth being compressed.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// Within which a request's head must be complete, and after which an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Within which a client has to take some more of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// After which a connection is closed in any case, so that one that reads slowly does not keep its place for ever.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What is sent as an answer: a text at once, or events as they come.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is served beside the endpoint's own pages.
pub trait Site: Send + Sync {
    /// The answer to a request for any other path; none if there is no such page.
    fn answer(&self, request: &Request<Incoming>, visit: Visit) -> Option<Answer>;
}

/// Who asks, and for how long it can be answered.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The address of the client.
    pub peer: IpAddr,
    /// When the connection is closed in any case.
    pub ends: Instant,
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
    fn answer(&self, _: &Request<Incoming>, _: Visit) -> Option<Answer> {
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
        };
        let number = places.next_number();
        let own_places = Arc::clone(&places);
        let task = tokio::spawn(async move {
            let served = serve_one(stream, &shared, visit);
            // What goes wrong on a connection ends it and concerns no other.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            own_places.leave(number);
        });
        places.take(number, visit.peer, task.abort_handle());
    }
}

/// Serves one connection, by TLS if the configuration says so.
async fn serve_one(stream: TcpStream, shared: &Served, visit: Visit) {
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
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Served, visit: Visit) {
    let service = &*shared.service;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(
            TokioIo::new(Impatient::new(stream)),
            service_fn(move |request: Request<Incoming>| async move {
                if matches!(request.uri().path(), "/health" | "/ready") {
                    return Ok::<_, Infallible>(answer(&request, service));
                }
                // The semaphore is never closed.
                let turn = shared.turns.acquire().await;
                let of_site = match request.uri().path() {
                    "/metrics" => None,
                    _ => shared.site.answer(&request, visit),
                };
                let after = of_site
                    .as_ref()
                    .map_or(Duration::ZERO, |answer| answer.after);
                let response = match of_site {
                    Some(answer) => answer.response,
                    None => answer(&request, service),
                };
                tokio::task::yield_now().await;
                drop(turn);
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                Ok(response)
            }),
        );
    let _ = connection.await;
}

/// The connections that are served, in the order of coming.
#[derive(Default)]
struct Places {
    taken: Mutex<VecDeque<Place>>,
    last_number: AtomicU64,
}

struct Place {
    number: u64,
    address: IpAddr,
    task: AbortHandle,
}

impl Places {
    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Relaxed)
    }

    /// A connection comes; those that have been there for longest make way for it. The endpoint has one thread, so its
    /// task has not run yet.
    fn take(&self, number: u64, address: IpAddr, task: AbortHandle) {
        let mut taken = self.taken.lock();
        let is_same = |place: &Place| place.address == address;
        if taken.iter().filter(|place| is_same(place)).count() >= OF_ONE_ADDRESS_MAX
            && let Some(first) = taken.iter().position(is_same)
            && let Some(place) = taken.remove(first)
        {
            place.task.abort();
        }
        if taken.len() >= CONNECTIONS_MAX
            && let Some(place) = taken.pop_front()
        {
            place.task.abort();
        }
        taken.push_back(Place {
            number,
            address,
            task,
        });
    }

    fn leave(&self, number: u64) {
        self.taken.lock().retain(|place| place.number != number);
    }
}

/// A socket whose client is given up when it takes nothing for [`WRITE_TIMEOUT`].
struct Impatient<S> {
    stream: S,
    patience: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Impatient<S> {
    fn new(stream: S) -> Impatient<S> {
        Impatient {
            stream,
            patience: Box::pin(tokio::time::sleep(WRITE_TIMEOUT)),
            is_waiting: false,
        }
    }

    /// What a write answers, or that it took too long.
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            let deadline = tokio::time::Instant::now() + WRITE_TIMEOUT;
            self.patience.as_mut().reset(deadline);
        }
        match self.patience.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn answer(request: &Request<Incoming>, service: &dyn Observed) -> Response<Body> {
    let path = request.uri().path();
    if !matches!(path, "/" | "/metrics" | "/health" | "/ready") {
        return text(
            StatusCode::NOT_FOUND,
            "Not found. There are /metrics, /health and /ready.\n",
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" if !may_read(request, &service.config().metrics_auth) => {
            let mut response = text(
                StatusCode::UNAUTHORIZED,
                "A user and a password are needed.\n",
            );
            let asked = HeaderValue::from_static("Basic realm=\"basalt\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, asked);
            response
        }
        "/metrics" => {
            let mut response = page(request.headers(), metrics::render(service).into_bytes());
            let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        "/health" => text(StatusCode::OK, "ok\n"),
        "/ready" if service.telemetry().is_ready() => text(StatusCode::OK, "ready\n"),
        "/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        _ => text(StatusCode::OK, "basalt: /metrics /health /ready\n"),
    }
}

/// A page, compressed if the request asks for that and there is enough of it.
pub fn page(asked: &HeaderMap, page: Vec<u8>) -> Response<Body> {
    let compressed = match takes_gzip(asked) && page.len() >= COMPRESSED_BYTES_MIN {
        true => gzip(&page).ok(),
        false => None,
    };
    let is_compressed = compressed.is_some();
    let mut response = text(StatusCode::OK, compressed.unwrap_or(page));
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    // Numbers and names that recur shrink to a tenth at the fastest level; better ones take several times as long.
    let mut encoder = GzEncoder::new(Vec::with_capacity(page.len() / 4), Compression::fast());
    encoder.write_all(page)?;
    encoder.finish()
}

/// Whether gzip is among the codings that a request takes (RFC 9110, 12.5.3). What is named goes before `*`, and weight
/// 0 forbids a coding.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let (mut of_gzip, mut of_any) = (None, None);
    for header in asked.get_all(ACCEPT_ENCODING) {
        for coding in header.to_str().unwrap_or_default().split(',') {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let weight: f64 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            match name.as_str() {
                "gzip" | "x-gzip" => of_gzip = Some(weight > 0.0),
                "*" => of_any = Some(weight > 0.0),
                _ => {}
            }
        }
    }
    of_gzip.or(of_any).unwrap_or(false)
}

/// Whether a request shows the user and the password that are asked for (`metrics-auth`), or none are.
pub fn may_read(request: &Request<Incoming>, asked: &str) -> bool {
    asked.is_empty() || shows_auth(request.headers(), asked)
}

/// Whether headers show the user and the password of `metrics-auth`. Digests are compared, so the time that takes tells
/// nothing of the password.
pub fn shows_auth(headers: &HeaderMap, asked: &str) -> bool {
    let Some((user, secret)) = asked.split_once(':') else {
        return false;
    };
    let header = headers.get(AUTHORIZATION);
    let shown =
        header.and_then(|header| base64::decode(header.as_bytes().strip_prefix(b"Basic ")?));
    let Some(shown) = shown else {
        return false;
    };
    let split = shown.iter().position(|byte| *byte == b':');
    let Some((shown_user, password)) = split.map(|at| (&shown[..at], &shown[at + 1..])) else {
        return false;
    };
    let hexadecimal = |bytes: &[u8]| -> String { hex::text(&Sha256::digest(bytes)) };
    let wanted = match secret.strip_prefix('#') {
        Some(digest) => digest.to_ascii_lowercase(),
        None => hexadecimal(&lossless::bytes_of(secret)),
    };
    let wanted = hexadecimal(&[&*lossless::bytes_of(user), b":", wanted.as_bytes()].concat());
    let shown = hexadecimal(password);
    wanted == hexadecimal(&[shown_user, b":", shown.as_bytes()].concat())
}

/// A plain text as an answer.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::config::Config;
    use crate::session::service::Service;
    use crate::telemetry::Telemetry;

    fn endpoint() -> (Handle, Arc<Service>) {
        let telemetry = Telemetry::new(None, 1);
        let service = Arc::new(crate::server::build(
            Arc::new(Config::default()),
            2,
            telemetry,
        ));
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let handle =
            start(vec![listener], Arc::clone(&service) as _, Arc::new(NoSite)).expect("a thread");
        (handle, service)
    }

    fn ask(handle: &Handle, request: &str) -> String {
        let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream
            .read_to_string(&mut reply)
            .expect("it answers and closes");
        reply
    }

    fn get(handle: &Handle, path: &str) -> String {
        ask(
            handle,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
    }

    #[test]
    fn metrics_and_health_are_served_and_ready_follows_the_server() {
        let (handle, service) = endpoint();
        let metrics = get(&handle, "/metrics");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4"));
        assert!(metrics.contains("\nredis_up 1\n"));
        assert!(get(&handle, "/health").ends_with("\r\n\r\nok\n"));
        assert!(get(&handle, "/ready").starts_with("HTTP/1.1 503 "));
        service.telemetry.set_ready(true);
        assert!(get(&handle, "/ready").starts_with("HTTP/1.1 200 "));
    }

    fn headers_of(codings: &[&'static str]) -> HeaderMap {
        let values = codings
            .iter()
            .map(|codings| HeaderValue::from_static(codings));
        values.map(|codings| (ACCEPT_ENCODING, codings)).collect()
    }

    #[test]
    fn gzip_is_taken_where_it_is_asked_for_and_not_forbidden() {
        for (codings, taken) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["x-gzip"], true),
            (&["*"], true),
            (&["deflate", "br, gzip"], true),
            (&["gzip;q=0"], false),
            (&["gzip; q=0.000, *"], false),
            (&["*;q=0"], false),
            (&["*;q=0, gzip;q=1"], true),
            (&["identity"], false),
            (&["gzippy"], false),
            (&["gzip;q=nonsense"], false),
            (&[""], false),
            (&[",;;q=,=;"], false),
        ] {
            assert_eq!(takes_gzip(&headers_of(codings)), taken, "{codings:?}");
        }
    }

    #[test]
    fn a_page_is_compressed_where_that_is_asked_for_and_worth_it() {
        let (handle, _service) = endpoint();
        let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
        let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).expect("it reads");
        let mut reply = Vec::new();
        stream
            .read_to_end(&mut reply)
            .expect("it answers and closes");
        let split = reply.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = reply.split_at(split.expect("a head") + 4);
        let head = std::str::from_utf8(head).expect("a text");
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: Accept-Encoding"));
        let mut page = String::new();
        flate2::read::GzDecoder::new(body)
            .read_to_string(&mut page)
            .expect("gzip");
        assert!(page.contains("\nredis_up 1\n") && page.ends_with('\n'));
        assert!(
            body.len() * 3 < page.len(),
            "{} of {}",
            body.len(),
            page.len()
        );

        let plain = get(&handle, "/metrics");
        assert!(!plain.contains("content-encoding") && plain.contains("vary: Accept-Encoding"));
        let encoding = |bytes| {
            let response = super::page(&headers_of(&["gzip"]), vec![b'x'; bytes]);
            response.headers().contains_key(CONTENT_ENCODING)
        };
        assert!(!encoding(COMPRESSED_BYTES_MIN - 1) && encoding(COMPRESSED_BYTES_MIN));
    }

    #[test]
    fn other_paths_and_methods_are_refused_and_head_has_no_body() {
        let (handle, _service) = endpoint();
        assert!(get(&handle, "/else").starts_with("HTTP/1.1 404 "));
        let post =
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let refused = ask(&handle, post);
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("allow: GET, HEAD"));
        let head = ask(
            &handle,
            "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        assert!(
            head.contains("content-length: 3") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
    }

    #[test]
    fn one_connection_serves_several_requests() {
        let (handle, _service) = endpoint();
        let one = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
        let last = "GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let replies = ask(&handle, &format!("{one}{one}{last}"));
        assert_eq!(replies.matches("HTTP/1.1 200 ").count(), 2);
        assert_eq!(replies.matches("HTTP/1.1 503 ").count(), 1);
    }

    #[test]
    fn garbage_and_endless_heads_end_the_connection_and_nothing_else() {
        let (handle, _service) = endpoint();
        assert!(ask(&handle, "*1\r\n$4\r\nPING\r\n").starts_with("HTTP/1.1 400 "));
        let long = format!(
            "GET / HTTP/1.1\r\nX: {}\r\n\r\n",
            "y".repeat(2 * HEAD_BYTES_MAX)
        );
        let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
        // It may hang up before it read all.
        let _ = stream.write_all(long.as_bytes());
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(!reply.starts_with(b"HTTP/1.1 200"));
        assert!(get(&handle, "/health").ends_with("ok\n"));
    }

    #[test]
    fn probes_are_answered_whatever_those_hold_who_never_read() {
        let (handle, _service) = endpoint();
        let scrapes = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
        let greedy: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
                // Others come, for whom the first are closed.
                let _ = stream.write_all(scrapes.as_bytes());
                stream
            })
            .collect();
        for _ in 0..3 {
            assert!(get(&handle, "/health").ends_with("ok\n"));
        }
        drop(greedy);
    }

    #[test]
    fn a_probe_waits_for_few_scrapes_however_many_are_asked_for() {
        let (handle, _service) = endpoint();
        let scrapes = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
        let mut greedy: Vec<TcpStream> = (0..OF_ONE_ADDRESS_MAX - 1)
            .map(|_| {
                let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
                stream.write_all(scrapes.as_bytes()).expect("there is room");
                stream
            })
            .collect();
        assert!(get(&handle, "/health").ends_with("ok\n"));
        let mut made = 0;
        for stream in &mut greedy {
            stream.set_nonblocking(true).expect("a socket");
            let mut answers = vec![0; 1 << 20];
            let count = stream.read(&mut answers).unwrap_or(0);
            let starts = answers[..count].windows(15);
            made += starts.filter(|bytes| bytes == b"HTTP/1.1 200 OK").count();
        }
        assert!(made < 6 * OF_ONE_ADDRESS_MAX, "{made} scrapes were made");
    }

    #[test]
    fn a_dropped_handle_gives_the_port_back() {
        let (handle, _service) = endpoint();
        let address = handle.addresses()[0];
        drop(handle);
        assert!(TcpStream::connect(address).is_err());
    }
}
