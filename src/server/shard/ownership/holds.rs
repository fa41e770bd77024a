//! Per-thread state: whether the thread holds tokens, and for which messages it still has to call `finish`.
//!
//! This module does not depend on shards and message types. Invariants: no `finish` runs while this thread
//! holds a token, even one of another set of shards; no `finish` runs inside another, so a `finish` that
//! submits cannot recurse; messages are finished in the order in which they ran.
#![expect(unsafe_code, reason = "messages of any message type wait in one list")]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::queued::{FinishFn, IntrusiveLink};
use super::sync::{per_thread, stop_unwinding};

struct ThreadHolds {
    /// Number of guards alive on this thread, each for one or several tokens.
    depth: Cell<usize>,
    finishing: Cell<bool>,
    /// Only checked in debug builds: a message must not touch tokens while it runs.
    running: Cell<bool>,
    /// Function that does the deferred work of engines, if there is any (`owe`).
    settle: Cell<Option<fn()>>,
    oldest: Cell<*mut IntrusiveLink>,
    newest: Cell<*mut IntrusiveLink>,
}

per_thread!(THREAD_HOLDS: ThreadHolds = ThreadHolds {
    depth: Cell::new(0),
    finishing: Cell::new(false),
    running: Cell::new(false),
    settle: Cell::new(None),
    oldest: Cell::new(ptr::null_mut()),
    newest: Cell::new(ptr::null_mut()),
});

/// Records that this thread is about to hold tokens.
#[inline]
pub(super) fn enter() {
    THREAD_HOLDS.with(|holds| {
        debug_assert!(
            !holds.running.get(),
            "a running message must not take, submit or let go"
        );
        holds.depth.set(holds.depth.get() + 1);
    });
}

/// Records that the tokens taken since the matching [`enter`] are released. When the thread holds no token any
/// more, deferred work is done and `finish` is called for the messages that ran.
#[inline]
pub(super) fn leave() {
    let owes = THREAD_HOLDS.with(|holds| {
        let depth = holds.depth.get() - 1;
        holds.depth.set(depth);
        depth == 0
            && (!holds.oldest.get().is_null() || holds.settle.get().is_some())
            && !holds.finishing.get()
    });
    if owes {
        finish_all();
    }
}

/// Schedules `settle`, which does the deferred work of engines, for when this thread holds no token any more.
#[cold]
pub(super) fn owe(settle: fn()) {
    THREAD_HOLDS.with(|holds| holds.settle.set(Some(settle)));
}

/// Returns whether this thread holds tokens. Reads only thread-local state and calls nothing, so signal handlers may
/// use it.
pub(super) fn is_open() -> bool {
    THREAD_HOLDS.with(|holds| holds.depth.get() > 0)
}

/// Ends the process if this thread unwinds while holding a token: other threads would trust a half-changed
/// engine. Returns whether the thread unwinds, for loom models, which continue.
#[inline]
pub(super) fn unwinds() -> bool {
    let unwinds = std::thread::panicking();
    if unwinds {
        stop_unwinding();
    }
    unwinds
}

/// A guard for a section in which the thread holds tokens without a public guard.
pub(super) struct TokenHoldGuard(());

impl TokenHoldGuard {
    pub(super) fn new() -> TokenHoldGuard {
        enter();
        TokenHoldGuard(())
    }
}

impl Drop for TokenHoldGuard {
    fn drop(&mut self) {
        if !unwinds() {
            leave();
        }
    }
}

/// Runs a message, which must not take or release tokens or submit messages (checked in debug builds).
#[inline(always)]
pub(super) fn while_running(run: impl FnOnce()) {
    if cfg!(debug_assertions) {
        THREAD_HOLDS.with(|holds| holds.running.set(true));
    }
    run();
    if cfg!(debug_assertions) {
        THREAD_HOLDS.with(|holds| holds.running.set(false));
    }
}

/// Schedules the `finish` of a message that has run.
///
/// # Safety
/// 1. `link` points to a live message that no other owner has. 2. `finish` is right for its type. 3. A hold is open.
pub(super) unsafe fn defer(link: NonNull<IntrusiveLink>, finish: FinishFn) {
    THREAD_HOLDS.with(|holds| {
        debug_assert!(holds.depth.get() > 0);
        // SAFETY: the caller guarantees (1).
        unsafe {
            IntrusiveLink::set_finish(link, finish);
            IntrusiveLink::set_next(link, ptr::null_mut());
        }
        match NonNull::new(holds.newest.replace(link.as_ptr())) {
            // SAFETY: messages in this list are this thread's.
            Some(newest) => unsafe { IntrusiveLink::set_next(newest, link.as_ptr()) },
            None => holds.oldest.set(link.as_ptr()),
        }
    });
}

#[cold]
#[inline(never)]
fn finish_all() {
    /// A panic in `finish` must not leave the `finishing` flag set.
    struct Finishing;
    impl Drop for Finishing {
        fn drop(&mut self) {
            THREAD_HOLDS.with(|holds| holds.finishing.set(false));
        }
    }

    THREAD_HOLDS.with(|holds| holds.finishing.set(true));
    let _finishing = Finishing;
    loop {
        // Do the deferred work first, so that other clients are notified of a message's effects before its own
        // client has the reply.
        if let Some(settle) = THREAD_HOLDS.with(|holds| holds.settle.take()) {
            settle();
            continue;
        }
        let Some(link) = THREAD_HOLDS.with(pop) else {
            return;
        };
        // SAFETY: messages in this list are this thread's; `pop` has taken this one out.
        let finish = unsafe { IntrusiveLink::finish(link) };
        let finish = finish.expect("a deferred message has a finish function");
        // SAFETY: set together with the message by `defer`, clauses 1 and 2.
        unsafe { finish(link) };
    }
}

fn pop(holds: &ThreadHolds) -> Option<NonNull<IntrusiveLink>> {
    let link = NonNull::new(holds.oldest.get())?;
    // SAFETY: messages in this list are this thread's.
    let next = unsafe { IntrusiveLink::next(link) };
    holds.oldest.set(next);
    if next.is_null() {
        holds.newest.set(ptr::null_mut());
    }
    Some(link)
}
