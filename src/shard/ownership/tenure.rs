//! What a thread must know of itself: whether it has tokens, and which parcels it owes their `finish`.
//!
//! Knows neither shards nor message types. Invariants: no `finish` runs while this thread has a token, even one of
//! another set of shards; no `finish` runs inside another, so a `finish` that submits cannot recurse; parcels are
//! finished in the order in which they ran.
#![expect(unsafe_code, reason = "parcels of any message type wait in one list")]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::parcel::{FinishFn, Link};
use super::sync::{per_thread, stop_unwinding};

struct Tenures {
    /// Guards alive on this thread, each for one token or several.
    depth: Cell<usize>,
    finishing: Cell<bool>,
    /// Only watched in debug builds: a message must not touch tokens while it runs.
    running: Cell<bool>,
    /// Does what engines have left to be done.
    settle: Cell<Option<fn()>>,
    oldest: Cell<*mut Link>,
    newest: Cell<*mut Link>,
}

per_thread!(TENURES: Tenures = Tenures {
    depth: Cell::new(0),
    finishing: Cell::new(false),
    running: Cell::new(false),
    settle: Cell::new(None),
    oldest: Cell::new(ptr::null_mut()),
    newest: Cell::new(ptr::null_mut()),
});

/// This thread is about to have tokens.
#[inline]
pub(super) fn enter() {
    TENURES.with(|tenures| {
        debug_assert!(
            !tenures.running.get(),
            "a running message must not take, submit or let go"
        );
        tenures.depth.set(tenures.depth.get() + 1);
    });
}

/// The tokens since the matching [`enter`] are gone; with the last of them, what is due is done and what ran is finished.
#[inline]
pub(super) fn leave() {
    let owes = TENURES.with(|tenures| {
        let depth = tenures.depth.get() - 1;
        tenures.depth.set(depth);
        depth == 0
            && (!tenures.oldest.get().is_null() || tenures.settle.get().is_some())
            && !tenures.finishing.get()
    });
    if owes {
        finish_all();
    }
}

/// What engines have left to be done has come to this thread: `settle` does it when no token is left here.
#[cold]
pub(super) fn owe(settle: fn()) {
    TENURES.with(|tenures| tenures.settle.set(Some(settle)));
}

/// Whether this thread has tokens.
#[cfg(test)]
pub(super) fn is_open() -> bool {
    TENURES.with(|tenures| tenures.depth.get() > 0)
}

/// Ends the process if this thread unwinds with a token in hand: others would trust a half-changed engine. Says whether
/// it unwinds, for models, which go on.
#[inline]
pub(super) fn unwinds() -> bool {
    let unwinds = std::thread::panicking();
    if unwinds {
        stop_unwinding();
    }
    unwinds
}

/// A guard over a stretch in which tokens are held by something else than a guard of the public kind.
pub(super) struct Tenure(());

impl Tenure {
    pub(super) fn new() -> Tenure {
        enter();
        Tenure(())
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !unwinds() {
            leave();
        }
    }
}

/// Runs a message: nothing in it may take, submit or let go (watched in debug builds).
#[inline(always)]
pub(super) fn while_running(run: impl FnOnce()) {
    if cfg!(debug_assertions) {
        TENURES.with(|tenures| tenures.running.set(true));
    }
    run();
    if cfg!(debug_assertions) {
        TENURES.with(|tenures| tenures.running.set(false));
    }
}

/// Owes `finish` to a parcel that has run.
///
/// # Safety
/// 1. `link` points to a live parcel that nobody else has. 2. `finish` is right for its type. 3. A tenure is open.
pub(super) unsafe fn defer(link: NonNull<Link>, finish: FinishFn) {
    TENURES.with(|tenures| {
        debug_assert!(tenures.depth.get() > 0);
        // SAFETY: (1).
        unsafe {
            Link::set_finish(link, finish);
            Link::set_next(link, ptr::null_mut());
        }
        match NonNull::new(tenures.newest.replace(link.as_ptr())) {
            // SAFETY: parcels in this list are this thread's.
            Some(newest) => unsafe { Link::set_next(newest, link.as_ptr()) },
            None => tenures.oldest.set(link.as_ptr()),
        }
    });
}

#[cold]
#[inline(never)]
fn finish_all() {
    /// A `finish` that panics must not leave the thread believing that it still finishes.
    struct Finishing;
    impl Drop for Finishing {
        fn drop(&mut self) {
            TENURES.with(|tenures| tenures.finishing.set(false));
        }
    }

    TENURES.with(|tenures| tenures.finishing.set(true));
    let _finishing = Finishing;
    loop {
        // Followers hear of what a message did before its client has the reply.
        if let Some(settle) = TENURES.with(|tenures| tenures.settle.take()) {
            settle();
            continue;
        }
        let Some(link) = TENURES.with(pop) else {
            return;
        };
        // SAFETY: parcels in this list are this thread's; `pop` has taken this one out.
        let finish = unsafe { Link::finish(link) };
        let finish = finish.expect("a deferred parcel knows how to finish");
        // SAFETY: set together with the parcel by `defer`, clauses 1 and 2.
        unsafe { finish(link) };
    }
}

fn pop(tenures: &Tenures) -> Option<NonNull<Link>> {
    let link = NonNull::new(tenures.oldest.get())?;
    // SAFETY: parcels in this list are this thread's.
    let next = unsafe { Link::next(link) };
    tenures.oldest.set(next);
    if next.is_null() {
        tenures.newest.set(ptr::null_mut());
    }
    Some(link)
}
