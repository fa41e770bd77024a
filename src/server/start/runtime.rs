//! The threads that serve connections: one shared tokio runtime, or one single-threaded runtime per core.
//!
//! Connection tasks are plain `Send` futures without thread-local state, so only this module knows the difference.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::persist::oplog::wait_at_relay;
use crate::script::{self, stack};
use crate::telemetry::counters;
use basalt_commands::config::values::Runtime as Choice;
use basalt_core::alloc::slabs;

/// The runtimes that serve connections; see the module.
pub(super) struct Runtimes {
    main: Runtime,
    spawner: Spawner,
}

/// Assigns new connections to runtimes.
#[derive(Clone)]
pub(super) struct Spawner {
    handles: Arc<[Handle]>,
    next: Arc<AtomicUsize>,
}

impl Spawner {
    /// Spawns a connection's task; with a runtime per core, connections are assigned round-robin.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let at = self.next.fetch_add(1, Relaxed) % self.handles.len();
        self.handles[at].spawn(task);
    }

    /// Makes all threads that serve connections return their cached free slots: busy threads do so when they
    /// next park; parked threads are woken, because an idle thread's cache may keep many slabs allocated for
    /// hours.
    pub(super) fn empty_caches(&self) {
        slabs::empty_caches();
        self.rest_again();
    }

    /// Makes all threads that serve connections, including parked ones, clean up and park again.
    pub(super) fn rest_again(&self) {
        for handle in &*self.handles {
            // A thread that finds work wakes the next one to look for more.
            for _ in 0..2 * handle.metrics().num_workers() {
                handle.spawn(async {});
            }
        }
    }

    /// Returns the runtime of the next connection, in whose context its socket is to be registered.
    pub(super) fn handle(&self) -> &Handle {
        &self.handles[self.next.fetch_add(1, Relaxed) % self.handles.len()]
    }
}

impl Runtimes {
    /// Starts the threads.
    pub(super) fn new(choice: Choice, thread_count: usize) -> Runtimes {
        match choice {
            // With one thread, sharing has no benefit, and the shared runtime's queue of 256 tasks delays some
            // connections if there are many: p99 at 400 connections was 47 ms.
            Choice::Shared if thread_count > 1 => {
                let mut builder = Builder::new_multi_thread();
                // Run connections in the order in which they become ready; the LIFO slot would run the one
                // woken last first.
                #[cfg(tokio_unstable)]
                builder.disable_lifo_slot();
                let main = builder
                    .worker_threads(thread_count)
                    .thread_name("basalt-worker")
                    .thread_stack_size(stack::BYTES_MIN)
                    .on_thread_start(|| {
                        stack::mark();
                        wait_at_relay(0);
                    })
                    .on_thread_park(rest)
                    .enable_all()
                    .build()
                    .expect("the system has room for the worker threads");
                let handles = Arc::from([main.handle().clone()]);
                Runtimes {
                    main,
                    spawner: Spawner {
                        handles,
                        next: Arc::default(),
                    },
                }
            }
            Choice::Shared | Choice::PerCore => {
                let main = Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("basalt-accept")
                    .thread_stack_size(stack::BYTES_MIN)
                    .on_thread_start(stack::mark)
                    .enable_all()
                    .build()
                    .expect("the system has room for the accepting thread");
                let handles = (0..thread_count).map(single).collect();
                Runtimes {
                    main,
                    spawner: Spawner {
                        handles,
                        next: Arc::default(),
                    },
                }
            }
        }
    }

    /// Returns the spawner for new connections.
    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Returns all runtimes that serve connections.
    pub(super) fn handles(&self) -> &[Handle] {
        &self.spawner.handles
    }

    /// Returns the runtime on which sockets are accepted.
    pub(super) fn main(&self) -> &Handle {
        self.main.handle()
    }

    /// Runs a future on the calling thread.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.main.block_on(future)
    }
}

/// Cleans up a thread before it parks.
fn rest() {
    // Create the thread's counters at startup: their memory, allocated with the first connection, could cause
    // eviction.
    counters::local();
    script::rest();
    slabs::empty_cache_if_told();
}

/// Starts a thread with its own single-threaded runtime.
fn single(index: usize) -> Handle {
    let runtime = Builder::new_current_thread()
        .on_thread_park(rest)
        .enable_all()
        .build()
        .expect("the system has room for a runtime");
    let handle = runtime.handle().clone();
    let name = format!("basalt-worker-{index}");
    stack::spawn(name, move || {
        wait_at_relay(index);
        runtime.block_on(std::future::pending::<()>());
    })
    .expect("the system has room for the worker threads");
    handle
}
