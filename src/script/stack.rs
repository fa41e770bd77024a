//! The stacks of the threads that run scripts.
//!
//! Tables in tables are written and read by functions that call themselves, a thousand deep, and Lua's own functions may
//! call scripts that call them, 200 deep. Whoever lets a shard go runs what was queued for it meanwhile, scripts among
//! that: so every thread that ever takes a shard is made here, or given [`BYTES_MIN`] and marked by whoever makes it.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

/// What the stack of such a thread must hold.
pub const BYTES_MIN: usize = 8 * 1024 * 1024;

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread was given [`BYTES_MIN`]; it gets a stack for what handles crashes too, as one that runs out
/// of stack has none left.
pub fn mark() {
    IS_LARGE.set(true);
    #[cfg(not(miri))]
    crate::structures::crash::prepare_thread();
}

/// Makes a thread that may run scripts.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new()
        .name(name)
        .stack_size(BYTES_MIN)
        .spawn(move || {
            mark();
            work()
        })
}

/// A script is about to run here. Tests run their scripts where they are; those that go deep ask for a thread.
#[inline]
pub(super) fn check() {
    debug_assert!(
        cfg!(test) || IS_LARGE.get(),
        "the thread {:?} was not made for scripts",
        std::thread::current().name()
    );
}
