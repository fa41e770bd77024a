//! The threads that serve connections with an event loop each, and the connections that move between them.
//!
//! If each core has its own runtime, a connection belongs to one event loop, so that its memory and its socket stay
//! in one core's cache. A new connection goes to the less busy one of two loops drawn at random. A loop that is much
//! busier than the others is *measured* for a moment: each poll of a connection's task adds its time to the
//! connection's sum. The [`balance`]r then *orders* some of its connections to move, and each one moves when it has
//! finished its current turn: its socket leaves the one loop and is registered with the other, while unread requests
//! and unsent replies stay with it.
//!
//! While no loop is too busy, all of this costs a connection one load of a flag for each poll.

pub mod arrivals;
mod balance;

use std::cell::Cell;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use crossbeam::utils::CachePadded;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use crate::telemetry::clock::Ticks;
use arrivals::Arrivals;
pub use balance::Balancer;
use basalt_core::base::random::Random;

/// The loop's connections add up their time.
const MEASURED: u8 = 1;
/// Some of the loop's connections are to move.
const ORDERS: u8 = 2;
/// All connections move after each turn, for tests.
const ALL_MOVE: u8 = 4;

/// Busy times that differ by less than this many thousandths count as equal when a connection is placed.
const EQUALLY_BUSY: u32 = 50;

thread_local! {
    /// The event loop of this thread, on threads that have one.
    static CURRENT: Cell<Option<&'static EventLoop>> = const { Cell::new(None) };
}

/// A thread that serves connections. The flags that each turn reads are on a cache line that is seldom written.
#[derive(Debug)]
pub struct EventLoop {
    runtime: Handle,
    /// The bits [`MEASURED`], [`ORDERS`] and [`ALL_MOVE`].
    flags: CachePadded<AtomicU8>,
    /// Number of its connections.
    connections: AtomicUsize,
    /// Thousandths of the time for which it was busy lately.
    busy: AtomicU32,
    /// Nanoseconds of each connection since the measurement began.
    measured: Mutex<HashMap<u64, u64>>,
    /// Connections that are to move, by their clients' IDs, and the loop that each moves to.
    orders: Mutex<HashMap<u64, &'static EventLoop>>,
    /// The loop to which connections move under [`ALL_MOVE`].
    next: OnceLock<&'static EventLoop>,
    /// New connections that it has not begun yet.
    arrivals: Arrivals,
}

/// The event loops of the server, which live as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct EventLoops {
    all: &'static [EventLoop],
    /// Draws the loops for new connections.
    random: &'static Mutex<Random>,
}

impl EventLoop {
    fn new(runtime: Handle) -> EventLoop {
        EventLoop {
            runtime,
            flags: CachePadded::default(),
            connections: AtomicUsize::new(0),
            busy: AtomicU32::new(0),
            measured: Mutex::default(),
            orders: Mutex::default(),
            next: OnceLock::new(),
            arrivals: Arrivals::default(),
        }
    }

    /// Returns the runtime that runs the loop.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Makes the calling thread run this loop.
    pub fn begin(&'static self) {
        CURRENT.set(Some(self));
    }

    /// Counts a connection that begins here, or moves here, until [`ended`] is called on this loop's thread.
    pub fn add_connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// True if it has connections of which one could leave the others.
    fn has_several(&self) -> bool {
        self.connections.load(Relaxed) > 1
    }

    fn set_busy(&self, spent_ns: u64, period_ns: u64) {
        let busy = u128::from(spent_ns) * 1000 / u128::from(period_ns.max(1));
        self.busy.store(busy as u32, Relaxed);
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    fn set(&self, flag: u8, is_on: bool) {
        match is_on {
            true => self.flags.fetch_or(flag, Relaxed),
            false => self.flags.fetch_and(!flag, Relaxed),
        };
    }

    /// Starts a measurement of the connections' times.
    fn measure(&self) {
        self.measured.lock().clear();
        self.set(MEASURED, true);
    }

    /// Ends a measurement, and returns each client's nanoseconds.
    fn end_measurement(&self) -> HashMap<u64, u64> {
        self.set(MEASURED, false);
        std::mem::take(&mut *self.measured.lock())
    }

    #[cold]
    fn add_time(&self, client: u64, spent_ns: u64) {
        *self.measured.lock().entry(client).or_default() += spent_ns;
    }

    /// Replaces the orders; those that no connection has followed yet are void.
    fn order(&self, orders: HashMap<u64, &'static EventLoop>) {
        let has_orders = !orders.is_empty();
        *self.orders.lock() = orders;
        self.set(ORDERS, has_orders);
    }

    /// How busy the loop is, for placement: first its time, then its connections.
    fn load(&self) -> (u32, usize) {
        let busy = self.busy.load(Relaxed) / EQUALLY_BUSY;
        (busy, self.connections.load(Relaxed))
    }
}

impl EventLoops {
    /// Creates the loops that these runtimes run, one each.
    pub fn new(runtimes: impl Iterator<Item = Handle>) -> EventLoops {
        let all: &'static [EventLoop] = Box::leak(runtimes.map(EventLoop::new).collect());
        for (event_loop, next) in all.iter().zip(all.iter().cycle().skip(1)) {
            let _is_first = event_loop.next.set(next);
        }
        EventLoops {
            all,
            random: Box::leak(Box::new(Mutex::new(Random::from_system()))),
        }
    }

    /// Returns all loops.
    pub fn all(self) -> &'static [EventLoop] {
        self.all
    }

    /// Returns the loop for a new connection: the less busy one of two drawn at random.
    pub fn place(self) -> &'static EventLoop {
        let mut random = self.random.lock();
        let mut draw = || &self.all[random.index(self.all.len())];
        let (one, other) = (draw(), draw());
        match other.load() < one.load() {
            true => other,
            false => one,
        }
    }

    /// Makes each connection move to the next loop after each turn, or no longer. For tests.
    pub fn set_all_move(self, is_on: bool) {
        for event_loop in self.all {
            event_loop.set(ALL_MOVE, is_on && self.all.len() > 1);
        }
    }

    /// Returns the balancer of these loops, if there are several.
    pub fn balancer(self) -> Option<Balancer> {
        (self.all.len() > 1).then(|| Balancer::new(self.all))
    }
}

/// Returns the event loop of the calling thread.
pub(super) fn current() -> Option<&'static EventLoop> {
    CURRENT.get()
}

pin_project! {
    /// The task of a client's connection. While the thread's event loop is measured, each poll adds its time.
    pub struct Timed<F> {
        client: u64,
        #[pin]
        serving: F,
    }
}

/// Wraps the task of a client's connection, see [`Timed`].
pub fn timed<F: Future>(client: u64, serving: F) -> Timed<F> {
    Timed { client, serving }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match CURRENT.get() {
            Some(event_loop) if event_loop.has(MEASURED) => {
                let began = Ticks::now();
                let polled = this.serving.poll(cx);
                event_loop.add_time(*this.client, Ticks::now().since_ns(began));
                polled
            }
            _ => this.serving.poll(cx),
        }
    }
}

/// Returns the event loop that a client's connection has to move to now.
#[inline]
pub(super) fn destination(client: u64) -> Option<&'static EventLoop> {
    let event_loop = CURRENT.get()?;
    match event_loop.has(ORDERS | ALL_MOVE) {
        true => ordered(event_loop, client),
        false => None,
    }
}

#[cold]
fn ordered(event_loop: &'static EventLoop, client: u64) -> Option<&'static EventLoop> {
    let mut orders = event_loop.orders.lock();
    let ordered = orders.remove(&client);
    if orders.is_empty() {
        event_loop.set(ORDERS, false);
    }
    match event_loop.has(ALL_MOVE) {
        true => ordered.or(event_loop.next.get().copied()),
        false => ordered,
    }
}

/// Records that a connection of the calling thread's event loop has ended or moved.
pub(super) fn ended() {
    if let Some(event_loop) = CURRENT.get() {
        event_loop.connections.fetch_sub(1, Relaxed);
    }
}
