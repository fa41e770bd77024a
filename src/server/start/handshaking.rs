//! TLS handshakes of clients: on threads of their own, which give way to those that serve, so that a storm of them
//! costs others little. Bounded in number and in time; when there are too many, the oldest goes.

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
use crate::tls::handshake::{self, Done, Failure};

/// How long a handshake may take.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Handshakes under way at once. Each holds some KiB, and at most what a peer may send before it is known.
const COUNT_MAX: usize = 1024;

/// How far the threads stand behind those that serve.
const NICENESS: i32 = 10;

/// See the module.
pub(super) struct Handshaking {
    thread_count: usize,
    threads: OnceLock<Vec<Handle>>,
    started: AtomicU64,
    under_way: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Handshaking {
    /// One thread for every two that serve.
    pub(super) fn new(serving_threads: usize) -> Handshaking {
        Handshaking {
            thread_count: (serving_threads / 2).max(1),
            threads: OnceLock::new(),
            started: AtomicU64::new(0),
            under_way: Mutex::default(),
        }
    }

    /// How many are under way.
    pub(super) fn count(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Ends the oldest; whether there was one.
    pub(super) fn drop_oldest(&self) -> bool {
        let oldest = self.under_way.lock().pop_first();
        oldest.map(|(_, task)| task.abort()).is_some()
    }

    /// Begins one; `then` is told of its end, unless others needed its place.
    pub(super) fn begin(
        self: &Arc<Self>,
        socket: std::net::TcpStream,
        context: Arc<ServerConfig>,
        figures: &'static Handshakes,
        then: impl FnOnce(Result<Done, Failure>) + Send + 'static,
    ) {
        let number = self.started.fetch_add(1, Relaxed);
        let threads = self.threads.get_or_init(|| start(self.thread_count));
        let Some(thread) = threads.get(number as usize % threads.len().max(1)) else {
            return;
        };
        // Held until the task is known, so that it ends after that.
        let mut under_way = self.under_way.lock();
        let counted = Counted {
            of: Arc::clone(self),
            number,
            figures,
        };
        figures.under_way.fetch_add(1, Relaxed);
        let task = thread.spawn(async move {
            let shaken = tokio::time::timeout(TIME_MAX, async {
                handshake::accept(TcpStream::from_std(socket)?, context).await
            });
            let shaken = shaken.await.unwrap_or(Err(Failure::Late));
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

/// Counts one, until it is over or dropped.
struct Counted {
    of: Arc<Handshaking>,
    number: u64,
    figures: &'static Handshakes,
}

impl Drop for Counted {
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
                // Of this thread alone; without it handshakes only come into the way of others.
                let _ = rustix::process::setpriority_process(None, NICENESS);
                runtime.block_on(std::future::pending::<()>());
            })?;
        Ok(handle)
    });
    let started: Result<Vec<Handle>, std::io::Error> = started.collect();
    started.unwrap_or_else(|error| {
        tracing::error!("No thread for TLS handshakes: {error}");
        Vec::new()
    })
}
