//! A gate at which tasks wait until a log position has passed.
//!
//! The thread that opens the gate belongs to no runtime, and waking a task from there costs a system call. So
//! tasks wait at **relays**. A relay is one task per runtime. The opening thread wakes only the relays; each
//! relay then wakes those tasks of its runtime whose position has passed, which costs next to nothing from
//! within the runtime. Tasks on threads without a relay are woken one by one by the opening thread.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::atomic::fence;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use std::task::{Context, Poll, Waker};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

thread_local! {
    static RELAY: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Makes tasks on the calling thread wait at relay `number`, at all gates that have at least that many relays.
pub fn wait_at_relay(number: usize) {
    RELAY.set(Some(number));
}

/// A task that waits at the gate.
struct GateWaiter {
    /// Log position waited for; 0 to wait for `Gate::open`.
    position: u64,
    waker: Waker,
}

/// Tasks that wait at one relay, or on threads without a relay.
#[derive(Default)]
struct GateWaiters {
    are_there: AtomicBool,
    all: Mutex<Vec<GateWaiter>>,
}

impl GateWaiters {
    fn push(&self, waiter: GateWaiter) {
        self.all.lock().push(waiter);
        self.are_there.store(true, Relaxed);
    }
}

#[derive(Default)]
struct WakeRelay {
    waiters: GateWaiters,
    /// Whether all waiters must check again, whatever position has passed.
    wakes_all: AtomicBool,
    task: AtomicWaker,
}

/// A gate at which tasks wait until a log position has passed.
#[derive(Default)]
pub struct Gate {
    passed: AtomicU64,
    waiters: GateWaiters,
    relays: OnceLock<Box<[WakeRelay]>>,
}

impl Gate {
    /// Sets the number of relays; each needs a task that polls [`Gate::poll_relay`].
    pub fn set_relays(&self, count: usize) {
        self.relays
            .get_or_init(|| (0..count).map(|_| WakeRelay::default()).collect());
    }

    fn relays(&self) -> &[WakeRelay] {
        self.relays.get().map_or(&[], |relays| relays)
    }

    /// Returns the highest position that has passed.
    pub fn passed(&self) -> u64 {
        self.passed.load(Acquire)
    }

    /// Returns roughly how many tasks wait for positions that have not passed; cancelled tasks may still be
    /// counted.
    pub fn waiting(&self) -> usize {
        let passed = self.passed();
        let count = |waiters: &GateWaiters| {
            let all = waiters.all.lock();
            all.iter().filter(|waiter| waiter.position > passed).count()
        };
        let relayed = self.relays().iter().map(|relay| &relay.waiters);
        relayed.chain([&self.waiters]).map(count).sum()
    }

    /// Marks a position as passed, and wakes all tasks that wait for it or an earlier one.
    pub fn pass(&self, position: u64) {
        self.passed.fetch_max(position, Release);
        self.wake(false);
    }

    /// Wakes all waiting tasks so that they check their conditions again.
    pub fn open(&self) {
        self.wake(true);
    }

    fn wake(&self, wakes_all: bool) {
        // Pairs with the fence of waiting tasks: either a task sees the change, or this thread sees that the
        // task waits.
        fence(SeqCst);
        for relay in self.relays() {
            if relay.waiters.are_there.swap(false, Relaxed) {
                relay.wakes_all.fetch_or(wakes_all, Relaxed);
                relay.task.wake();
            }
        }
        if self.waiters.are_there.swap(false, Relaxed) {
            let waiters = std::mem::take(&mut *self.waiters.all.lock());
            waiters.into_iter().for_each(|waiter| waiter.waker.wake());
        }
    }

    /// Wakes the relay's tasks that may pass; polled by the task of the relay.
    pub fn poll_relay(&self, number: usize, cx: &mut Context<'_>) -> Poll<Infallible> {
        let Some(relay) = self.relays().get(number) else {
            return Poll::Pending;
        };
        relay.task.register(cx.waker());
        let wakes_all = relay.wakes_all.swap(false, Relaxed);
        let mut ready = Vec::new();
        loop {
            let passed = self.passed();
            let mut all = relay.waiters.all.lock();
            let may_pass = |waiter: &mut GateWaiter| wakes_all || waiter.position <= passed;
            ready.extend(all.extract_if(.., may_pass));
            let are_left = !all.is_empty();
            drop(all);
            if are_left {
                relay.waiters.are_there.store(true, Relaxed);
                fence(SeqCst);
            }
            if !are_left || self.passed() == passed {
                break;
            }
        }
        ready.into_iter().for_each(|waiter| waiter.waker.wake());
        Poll::Pending
    }

    /// Completes once `position` has passed.
    pub fn poll_passed(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.passed() >= position {
            return Poll::Ready(());
        }
        self.poll_until(position, cx, || self.passed() >= position)
    }

    /// Completes when `holds` returns true. Checks `holds` each time the gate opens.
    pub fn poll_next(&self, cx: &mut Context<'_>, holds: impl Fn() -> bool) -> Poll<()> {
        self.poll_until(0, cx, holds)
    }

    /// Completes when `holds` returns true. Checks `holds` when `position` has passed and at each
    /// `Gate::open`.
    pub fn poll_until(
        &self,
        position: u64,
        cx: &mut Context<'_>,
        holds: impl Fn() -> bool,
    ) -> Poll<()> {
        let relay = RELAY.get().and_then(|number| self.relays().get(number));
        let waiters = relay.map_or(&self.waiters, |relay| &relay.waiters);
        waiters.push(GateWaiter {
            position,
            waker: cx.waker().clone(),
        });
        fence(SeqCst);
        match holds() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn counting() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn tasks_pass_once_their_position_has() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(gate.poll_passed(0, &mut cx).is_ready());
        assert!(gate.poll_passed(5, &mut cx).is_pending());
        gate.pass(4);
        assert!(gate.poll_passed(5, &mut cx).is_pending());
        gate.pass(5);
        gate.pass(3);
        assert!(gate.poll_passed(5, &mut cx).is_ready() && gate.passed() == 5);
        assert!(gate.waiters.all.lock().is_empty());
    }

    #[test]
    fn a_relay_is_woken_for_all_of_its_threads_and_wakes_those_who_may_pass() {
        std::thread::spawn(|| {
            let gate = Gate::default();
            gate.set_relays(2);
            wait_at_relay(1);
            let (relayed, relay) = counting();
            let mut relay = Context::from_waker(&relay);
            assert!(gate.poll_relay(1, &mut relay).is_pending());
            let (woken, waker) = counting();
            let mut cx = Context::from_waker(&waker);
            for position in [3, 4, 9] {
                assert!(gate.poll_passed(position, &mut cx).is_pending());
            }
            let wakes = || (relayed.0.load(Relaxed), woken.0.load(Relaxed));
            gate.pass(4);
            assert_eq!(wakes(), (1, 0));
            assert_eq!(
                gate.waiting(),
                1,
                "who may pass does not wait, woken or not"
            );
            assert!(gate.poll_relay(1, &mut relay).is_pending());
            assert_eq!(wakes(), (1, 2));
            gate.pass(5);
            assert!(gate.poll_relay(1, &mut relay).is_pending());
            assert_eq!(wakes(), (2, 2), "the last one stays");
            gate.open();
            assert!(gate.poll_relay(1, &mut relay).is_pending());
            assert_eq!(wakes(), (3, 3), "it is to look again");
            gate.pass(9);
            assert_eq!(wakes(), (3, 3), "nobody waits");
        })
        .join()
        .expect("it is well");
    }
}
