//! The threads that serve connections: one shared tokio runtime, or one single-threaded runtime per core.
//!
//! Connection tasks are plain `Send` futures without thread-local state, so only this module and
//! [`net::event_loops`](crate::net::event_loops) know the difference.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::net::event_loops::{EventLoop, EventLoops};
use crate::persist::oplog::wait_at_relay;
use crate::script::{self, stack};
use crate::shard::unit;
use crate::telemetry::counters;
use basalt_commands::config::values::Runtime as Choice;
use basalt_core::alloc::slabs;

/// Number of threads from which on each has a runtime of its own by default. A shared runtime waits for all sockets'
/// events in one place, one thread at a time, and its connections change cores; with few threads neither costs much,
/// and an idle thread takes the connections of a busy one at once.
const PER_CORE_THREADS_MIN: usize = 4;

/// Events that a thread of the shared runtime takes at once. Its queue has room for 256 tasks; the others would go to a
/// queue that is served seldom.
const EVENTS_PER_TICK: usize = 128;

/// The runtimes that serve connections; see the module.
pub(super) struct Runtimes {
    main: Runtime,
    spawner: Spawner,
}

/// Assigns new connections and tasks to runtimes.
#[derive(Clone)]
pub(super) struct Spawner {
    loops: EventLoops,
    next: Arc<AtomicUsize>,
}

impl Spawner {
    /// Spawns a task that serves no connection; with a runtime per core, these are assigned round-robin.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let all = self.loops.all();
        let at = self.next.fetch_add(1, Relaxed) % all.len();
        all[at].runtime().spawn(task);
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
        for handle in self.loops.all().iter().map(EventLoop::runtime) {
            // A thread that finds work wakes the next one to look for more.
            for _ in 0..2 * handle.metrics().num_workers() {
                handle.spawn(async {});
            }
        }
    }

    /// Returns all event loops.
    pub(super) fn loops(&self) -> EventLoops {
        self.loops
    }

    /// Returns the event loop for a new connection, in whose runtime's context its socket is to be registered.
    pub(super) fn place(&self) -> &'static EventLoop {
        self.loops.place()
    }
}

impl Runtimes {
    /// Starts the threads.
    pub(super) fn new(choice: Choice, thread_count: usize) -> Runtimes {
        match is_shared(choice, thread_count) {
            true => {
                let mut builder = Builder::new_multi_thread();
                // Run connections in the order in which they become ready; the LIFO slot would run the one
                // woken last first.
                #[cfg(tokio_unstable)]
                builder.disable_lifo_slot();
                builder.max_io_events_per_tick(EVENTS_PER_TICK);
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
                let loops = EventLoops::new(std::iter::once(main.handle().clone()));
                Runtimes::of(main, loops)
            }
            false => {
                let main = Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("basalt-accept")
                    .thread_stack_size(stack::BYTES_MIN)
                    .on_thread_start(stack::mark)
                    .enable_all()
                    .build()
                    .expect("the system has room for the accepting thread");
                let runtimes: Vec<Runtime> = (0..thread_count).map(|_| single()).collect();
                if thread_count > 1 {
                    unit::serve_connections_at_home();
                }
                let loops =
                    EventLoops::new(runtimes.iter().map(|runtime| runtime.handle().clone()));
                for (index, (runtime, event_loop)) in
                    runtimes.into_iter().zip(loops.all()).enumerate()
                {
                    run(index, runtime, event_loop);
                }
                Runtimes::of(main, loops)
            }
        }
    }

    fn of(main: Runtime, loops: EventLoops) -> Runtimes {
        let next = Arc::default();
        Runtimes {
            main,
            spawner: Spawner { loops, next },
        }
    }

    /// Returns the spawner for new connections.
    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Returns all runtimes that serve connections.
    pub(super) fn handles(&self) -> Vec<Handle> {
        let all = self.spawner.loops.all().iter();
        all.map(|event_loop| event_loop.runtime().clone()).collect()
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

/// Whether all threads share one runtime.
fn is_shared(choice: Choice, thread_count: usize) -> bool {
    match choice {
        // A single thread has nothing to share, and the shared runtime's queue of 256 tasks delays some
        // connections if there are many: p99 at 400 connections was 47 ms.
        _ if thread_count == 1 => false,
        Choice::Shared => true,
        Choice::PerCore => false,
        Choice::Auto => thread_count < PER_CORE_THREADS_MIN,
    }
}

fn single() -> Runtime {
    Builder::new_current_thread()
        .on_thread_park(rest)
        .enable_all()
        .build()
        .expect("the system has room for a runtime")
}

/// Starts a thread that runs an event loop.
fn run(index: usize, runtime: Runtime, event_loop: &'static EventLoop) {
    let name = format!("basalt-worker-{index}");
    stack::spawn(name, move || {
        event_loop.begin();
        wait_at_relay(index);
        runtime.block_on(std::future::pending::<()>());
    })
    .expect("the system has room for the worker threads");
}
