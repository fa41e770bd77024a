//! The primitives of the shard token, from std or from loom, and the fault switches of the loom models.
//!
//! This module does not depend on tokens. Under `cfg(loom)` the model checker watches each atomic and each cell
//! below. The counters are always std's, because no decision depends on them and they would only multiply the
//! states.

#[cfg(not(loom))]
pub(super) use self::plain::*;
#[cfg(loom)]
pub(super) use self::watched::*;

#[cfg(not(loom))]
mod plain {
    pub(in super::super) use atomic_waker::AtomicWaker;
    pub(in super::super) use std::hint::spin_loop;
    pub(in super::super) use std::sync::atomic::{AtomicBool, AtomicPtr};
    pub(in super::super) use std::thread::yield_now;

    /// std's cell, with the access by closure that loom needs to watch it.
    pub(in super::super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in super::super) const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(in super::super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub(in super::super) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }

    macro_rules! per_thread {
        ($name:ident: $type:ty = $value:expr) => {
            std::thread_local! { static $name: $type = const { $value } }
        };
    }
    pub(in super::super) use per_thread;

    /// Ends the process after a panic while a token is held: the engine may be half changed, and other threads
    /// would trust it.
    #[cold]
    pub(in super::super) fn stop_unwinding() {
        std::process::abort();
    }
}

#[cfg(loom)]
mod watched {
    pub(in super::super) use loom::cell::UnsafeCell;
    pub(in super::super) use loom::hint::spin_loop;
    pub(in super::super) use loom::sync::atomic::{AtomicBool, AtomicPtr};
    pub(in super::super) use loom::thread::yield_now;
    use std::task::Waker;

    /// The waker's slot with the guarantees of the real type: `register` and `wake` are ordered, a wake after a
    /// registration finds its waker, and everything before a wake is seen after a later registration. loom's own type
    /// of this name needs loom's `block_on`, which aborts instead of failing when a model deadlocks in it, and the
    /// negative controls must fail.
    pub(in super::super) struct AtomicWaker(loom::sync::Mutex<Option<Waker>>);

    impl AtomicWaker {
        pub(in super::super) fn new() -> AtomicWaker {
            AtomicWaker(loom::sync::Mutex::new(None))
        }

        pub(in super::super) fn register(&self, waker: &Waker) {
            *self.0.lock().expect("no panic under it") = Some(waker.clone());
        }

        pub(in super::super) fn wake(&self) {
            let waker = self.0.lock().expect("no panic under it").take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    macro_rules! per_thread {
        ($name:ident: $type:ty = $value:expr) => {
            loom::thread_local! { static $name: $type = $value }
        };
    }
    pub(in super::super) use per_thread;

    /// In a model, a panic is a result that must reach the test which expects it, so only leave the token
    /// unreleased.
    pub(in super::super) fn stop_unwinding() {}
}

/// A step that a negative control leaves out, to prove that the models would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// The protocol as it is.
    None,
    /// A release stores "free" over links queued meanwhile.
    ForgetsPending,
    /// A taker loads and then stores, instead of deciding in one step.
    TakesInTwoSteps,
    /// The release of a token lacks Release ordering.
    ReleasesRelaxed,
    /// Queueing lacks Release ordering.
    PushesRelaxed,
    /// The hand-over to the worker lacks Release ordering.
    HandsOverRelaxed,
    /// A token is handed to the worker without a wake.
    DropsWorkerWake,
    /// The worker checks for a token first and registers its waker afterwards, without another check.
    RegistersTooLate,
    /// A list is run newest first.
    RunsNewestFirst,
    /// The rest of a list is dropped when a message carries the token away.
    DropsBacklog,
    /// A travelling message leaves its earlier tokens behind.
    ForgetsTokens,
    /// A shard taken by extension is not released with the others.
    ForgetsExtension,
    /// Turning messages away drops those that should stay in the queue.
    DropsKept,
    /// A message that gives up its tokens does not release them.
    ForgetsLoose,
}
