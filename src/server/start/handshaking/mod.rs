//! TLS handshakes of clients, on dedicated low-priority threads, so that a burst of handshakes hardly affects
//! other clients. The number and duration of handshakes are bounded; when there are too many, the oldest is
//! dropped.
//!
//! In a storm, connections wait for their handshake in the order of their arrival, and a thread begins
//! `max-new-tls-connections-per-cycle` of them in each turn of its event loop: handshakes that have begun are finished
//! before the next ones begin, so that few clients wait in the middle of one. Meanwhile some clients may run out of
//! patience. No key is computed for a client that has closed its connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
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

/// The handshakes that wait to be begun, and those in progress; see the module.
pub(super) struct Handshaking {
    thread_count: usize,
    threads: OnceLock<Vec<Handle>>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// Number of handshakes so far, in the order in which their connections arrived.
    count: u64,
    waiting: VecDeque<Waiting>,
    /// Handshakes in progress, by their numbers.
    under_way: BTreeMap<u64, AbortHandle>,
    /// Indices of the threads that begin no handshakes, because none was waiting.
    idle: Vec<usize>,
}

/// A connection whose handshake has not begun.
struct Waiting {
    number: u64,
    socket: std::net::TcpStream,
    context: Arc<ServerConfig>,
    figures: &'static Handshakes,
    then: Box<dyn FnOnce(Result<CompletedHandshake, HandshakeError>) + Send>,
}

impl Handshaking {
    /// Handshakes run on one thread for every two threads that serve connections.
    pub(super) fn new(serving_threads: usize) -> Handshaking {
        let thread_count = (serving_threads / 2).max(1);
        Handshaking {
            thread_count,
            threads: OnceLock::new(),
            pending: Mutex::new(Pending {
                idle: (0..thread_count).collect(),
                ..Pending::default()
            }),
        }
    }

    /// Returns the number of handshakes in progress, or waiting to be begun.
    pub(super) fn count(&self) -> usize {
        let pending = self.pending.lock();
        pending.under_way.len() + pending.waiting.len()
    }

    /// Drops the connection that is in its handshake, or waits for it, for longest. Returns whether there was one.
    pub(super) fn drop_oldest(&self) -> bool {
        let mut pending = self.pending.lock();
        let oldest = pending.under_way.pop_first();
        let waiting = match oldest {
            Some(_) => None,
            None => pending.waiting.pop_front(),
        };
        drop(pending);
        match (oldest, waiting) {
            (Some((_, task)), _) => task.abort(),
            (None, Some(waiting)) => {
                waiting.figures.waiting.fetch_sub(1, Relaxed);
            }
            (None, None) => return false,
        }
        true
    }

    /// Performs a handshake when its turn has come: a thread begins `count_max()` of those that wait, and then goes on
    /// with those in progress. `then` is called when the handshake ends, unless it was dropped in favor of others.
    pub(super) fn begin(
        self: &Arc<Self>,
        (socket, context): (std::net::TcpStream, Arc<ServerConfig>),
        figures: &'static Handshakes,
        count_max: impl Fn() -> u32 + Send + 'static,
        then: impl FnOnce(Result<CompletedHandshake, HandshakeError>) + Send + 'static,
    ) {
        let threads = self.threads.get_or_init(|| start(self.thread_count));
        let mut pending = self.pending.lock();
        pending.count += 1;
        let waiting = Waiting {
            number: pending.count,
            socket,
            context,
            figures,
            then: Box::new(then),
        };
        pending.waiting.push_back(waiting);
        figures.waiting.fetch_add(1, Relaxed);
        let idle = pending.idle.pop();
        drop(pending);
        if let Some(index) = idle
            && let Some(thread) = threads.get(index)
        {
            thread.spawn(Arc::clone(self).begin_waiting(index, count_max));
        }
    }

    /// Begins handshakes on the calling thread, until none waits.
    async fn begin_waiting(self: Arc<Self>, index: usize, count_max: impl Fn() -> u32) {
        loop {
            for _ in 0..count_max() {
                let mut pending = self.pending.lock();
                let Some(next) = pending.waiting.pop_front() else {
                    return pending.idle.push(index);
                };
                next.figures.waiting.fetch_sub(1, Relaxed);
                if handshake::is_given_up(&next.socket) {
                    drop(pending);
                    (next.then)(Err(HandshakeError::GivenUp));
                    continue;
                }
                self.begin_next(&mut pending, next);
                let is_over = pending.under_way.len() > COUNT_MAX;
                drop(pending);
                if is_over {
                    self.drop_oldest();
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Begins a handshake on the calling thread. The lock is kept until its task is registered, so that the task cannot
    /// unregister itself before.
    fn begin_next(self: &Arc<Self>, pending: &mut Pending, next: Waiting) {
        let Waiting {
            number,
            socket,
            context,
            figures,
            then,
        } = next;
        let counted = HandshakeGuard {
            of: Arc::clone(self),
            number,
            figures,
        };
        figures.under_way.fetch_add(1, Relaxed);
        let task = tokio::spawn(async move {
            let shaken = tokio::time::timeout(TIME_MAX, async {
                handshake::accept(TcpStream::from_std(socket)?, context).await
            });
            let shaken = shaken.await.unwrap_or(Err(HandshakeError::Late));
            drop(counted);
            then(shaken);
        });
        pending.under_way.insert(number, task.abort_handle());
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
        self.of.pending.lock().under_way.remove(&self.number);
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

#[cfg(test)]
mod tests;
