//! Builds a command's value aside, on a thread that serves no connection: each slice of the sources is read by a task
//! on the command's shards, as any other that is queued there; the thread adds what was read once they are released.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};

use parking_lot::{Condvar, Mutex};

use super::{Ticket, task};
use crate::shard::Shards;
use crate::telemetry::clock::Ticks;
use basalt_commands::command::aside::{Aside, SliceResult};

/// A value being built, shared by the thread and its tasks; only one of them uses it at a time.
struct Building {
    aside: Aside,
    slice: SliceResult,
    /// Time spent so far, without the wait for shards.
    duration_ns: u64,
}

/// Maximum number of values that are built at a time while memory is limited: what is being built is charged to no
/// shard yet, so the check for memory of one build does not see the others.
const LIMITED_BUILDS_MAX: usize = 2;

/// Number of builds that may begin while memory is limited.
static FREE_SLOTS: Mutex<usize> = Mutex::new(LIMITED_BUILDS_MAX);
static SLOT_FREED: Condvar = Condvar::new();

/// The right to build a value while memory is limited, until the value is stored or dropped.
struct BuildSlot;

impl BuildSlot {
    fn wait() -> BuildSlot {
        let mut free = FREE_SLOTS.lock();
        SLOT_FREED.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        BuildSlot
    }
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        *FREE_SLOTS.lock() += 1;
        SLOT_FREED.notify_one();
    }
}

/// A value that was built and is yet to be stored.
pub(super) struct BuiltAside {
    pub(super) value: Aside,
    _slot: Option<BuildSlot>,
}

/// Builds a value. Returns it, if it can be built aside, and the time that this took without the wait for shards.
pub(super) fn build(
    shards: &Shards,
    route: &[u16],
    aside: Aside,
    is_limited: bool,
) -> (Option<BuiltAside>, u64) {
    let slot = is_limited.then(BuildSlot::wait);
    let building = Arc::new(Mutex::new(Building {
        aside,
        slice: SliceResult::More,
        duration_ns: 0,
    }));
    loop {
        let shared = Arc::clone(&building);
        let read = task::send(shards, route, move |engines, now| {
            let (begun, mut building) = (Ticks::now(), shared.lock());
            building.slice = building.aside.read(engines, now);
            building.duration_ns += Ticks::now().since_ns(begun);
        });
        wait(&read);
        let (begun, mut building) = (Ticks::now(), building.lock());
        if building.slice != SliceResult::Unsuitable {
            building.aside.add();
        }
        building.duration_ns += Ticks::now().since_ns(begun);
        if building.slice != SliceResult::More {
            break;
        }
    }
    match Arc::into_inner(building).map(Mutex::into_inner) {
        Some(built) if built.slice == SliceResult::Whole => {
            let (value, duration_ns) = (built.aside, built.duration_ns);
            (Some(BuiltAside { value, _slot: slot }), duration_ns)
        }
        Some(built) => (None, built.duration_ns),
        None => unreachable!("the tasks that shared it are gone"),
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until a task has run. The calling thread has no shard locked.
fn wait(ticket: &Ticket) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    while ticket.poll(&mut cx).is_pending() {
        thread::park();
    }
}
