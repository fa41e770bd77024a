//! The threads that serve connections: one shared tokio runtime, or one single-threaded runtime per core.
//!
//! Connection tasks are plain `Send` futures and need nothing thread-local, so this is the only place that knows.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::persist::oplog::wait_at_relay;
use crate::script::{self, stack};
use crate::telemetry::counters;
use basalt_commands::config::values::Runtime as Choice;
use basalt_core::alloc::slabs;

/// See the module.
pub(super) struct Runtimes {
    main: Runtime,
    spawner: Spawner,
}

/// Where new connections go.
#[derive(Clone)]
pub(super) struct Spawner {
    handles: Arc<[Handle]>,
    next: Arc<AtomicUsize>,
}

impl Spawner {
    /// Runs a connection's task; with a runtime per core they are dealt out in turn.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let at = self.next.fetch_add(1, Relaxed) % self.handles.len();
        self.handles[at].spawn(task);
    }

    /// Has all threads that serve connections give back the free places that they keep for themselves: those at work
    /// when they next rest, and those that rest now, as an idle one may hold many slabs for hours.
    pub(super) fn empty_caches(&self) {
        slabs::empty_caches();
        self.rest_again();
    }

    /// Has all threads that serve connections rest once more, also those that wait.
    pub(super) fn rest_again(&self) {
        for handle in &*self.handles {
            // A thread that finds work wakes the next one to look for more.
            for _ in 0..2 * handle.metrics().num_workers() {
                handle.spawn(async {});
            }
        }
    }

    /// Enters the runtime that the next connection belongs to, so that its socket is registered there.
    pub(super) fn handle(&self) -> &Handle {
        &self.handles[self.next.fetch_add(1, Relaxed) % self.handles.len()]
    }
}

impl Runtimes {
    /// Starts the threads.
    pub(super) fn new(choice: Choice, thread_count: usize) -> Runtimes {
        match choice {
            // With one thread there is no other to share with, and the shared runtime's queue of 256 tasks would make
            // some of many connections wait long: p99 at 400 connections was 47 ms.
            Choice::Shared if thread_count > 1 => {
                let mut builder = Builder::new_multi_thread();
                // Of two connections that become ready together the first is to run first, not the one woken last.
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

    /// Where new connections go.
    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// All that serve connections.
    pub(super) fn handles(&self) -> &[Handle] {
        &self.spawner.handles
    }

    /// The runtime on which sockets are accepted.
    pub(super) fn main(&self) -> &Handle {
        self.main.handle()
    }

    /// Runs a future on the calling thread.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.main.block_on(future)
    }
}

/// What a thread does before it waits.
fn rest() {
    // From the start on: a thread that came by them with its first connection would let others' keys be evicted.
    counters::local();
    script::rest();
    slabs::empty_cache_if_told();
}

/// A thread of its own with a single-threaded runtime.
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
