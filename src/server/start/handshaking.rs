//! TLS handshakes of clients, on dedicated low-priority threads, so that a burst of handshakes hardly affects
//! other clients. The number and duration of handshakes are bounded; when there are too many, the oldest is
//! dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::telemetry::handshakes::Handshakes;
use crate::tls::handshake::{self, CompletedHandshake, HandshakeError};

/// Timeout of a handshake.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum number of handshakes in progress. Each takes some KiB, and at most the bytes that a peer may send
/// before it is authenticated.
const COUNT_MAX: usize = 1024;

/// Niceness of the threads, relative to those that serve clients.
const NICENESS: i32 = 10;

/// The handshakes in progress; see the module.
pub(super) struct Handshaking {
    thread_count: usize,
    threads: OnceLock<Vec<Handle>>,
    started: AtomicU64,
    under_way: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Handshaking {
    /// Starts one handshake thread for every two threads that serve connections.
    pub(super) fn new(serving_threads: usize) -> Handshaking {
        Handshaking {
            thread_count: (serving_threads / 2).max(1),
            threads: OnceLock::new(),
            started: AtomicU64::new(0),
            under_way: Mutex::default(),
        }
    }

    /// Returns the number of handshakes in progress.
    pub(super) fn count(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Aborts the oldest handshake. Returns whether there was one.
    pub(super) fn drop_oldest(&self) -> bool {
        let oldest = self.under_way.lock().pop_first();
        oldest.map(|(_, task)| task.abort()).is_some()
    }

    /// Starts a handshake. `then` is called when the handshake ends, unless the handshake was dropped in favor
    /// of others.
    pub(super) fn begin(
        self: &Arc<Self>,
        socket: std::net::TcpStream,
        context: Arc<ServerConfig>,
        figures: &'static Handshakes,
        then: impl FnOnce(Result<CompletedHandshake, HandshakeError>) + Send + 'static,
    ) {
        let number = self.started.fetch_add(1, Relaxed);
        let threads = self.threads.get_or_init(|| start(self.thread_count));
        let Some(thread) = threads.get(number as usize % threads.len().max(1)) else {
            return;
        };
        // Keep the lock until the task is registered, so that the task cannot unregister itself before.
        let mut under_way = self.under_way.lock();
        let counted = HandshakeGuard {
            of: Arc::clone(self),
            number,
            figures,
        };
        figures.under_way.fetch_add(1, Relaxed);
        let task = thread.spawn(async move {
            let shaken = tokio::time::timeout(TIME_MAX, async {
                handshake::accept(TcpStream::from_std(socket)?, context).await
            });
            let shaken = shaken.await.unwrap_or(Err(HandshakeError::Late));
            drop(counted);
            then(shaken);
        });
        under_way.insert(number, task.abort_handle());
        let is_over = under_way.len() > COUNT_MAX;
        drop(under_way);
        if is_over {
            self.drop_oldest();
        }
    }
}

/// Counts a handshake until it is over or dropped.
struct HandshakeGuard {
    of: Arc<Handshaking>,
    number: u64,
    figures: &'static Handshakes,
}

impl Drop for HandshakeGuard {
    fn drop(&mut self) {
        self.figures.under_way.fetch_sub(1, Relaxed);
        self.of.under_way.lock().remove(&self.number);
    }
}

fn start(count: usize) -> Vec<Handle> {
    let started = (0..count).map(|index| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(format!("basalt-tls-{index}"))
            .spawn(move || {
                // Affects only this thread; if it fails, handshakes merely compete with clients.
                let _ = rustix::process::setpriority_process(None, NICENESS);
                runtime.block_on(std::future::pending::<()>());
            })?;
        Ok(handle)
    });
    let started: Result<Vec<Handle>, std::io::Error> = started.collect();
    started.unwrap_or_else(|error| {
        tracing::error!("Can't create a thread for TLS handshakes: {error}");
        Vec::new()
    })
}
