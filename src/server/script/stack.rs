//! The stacks of the threads that run scripts.
//!
//! Nested tables are written and read by recursive functions, a thousand deep, and Lua's own functions may call
//! scripts that call them, 200 deep. A thread that releases a shard runs the jobs that were queued for the
//! shard meanwhile, including scripts. So every thread that ever locks a shard must be created by `spawn`, or
//! have a stack of [`BYTES_MIN`] and call `mark`.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};

use crate::telemetry::log;
use basalt_commands::command::error::CommandError;

/// Minimum stack size, in bytes, of a thread that may run scripts.
pub const BYTES_MIN: usize = 8 * 1024 * 1024;

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as having a stack of [`BYTES_MIN`]; also gives it a separate stack for crash handlers,
/// as a thread that overflows its stack has none left.
pub fn mark() {
    IS_LARGE.set(true);
    #[cfg(not(miri))]
    crate::sys::crash::prepare_thread();
}

/// The system cannot create another thread. The thread's work was not begun, and is dropped.
#[derive(Debug)]
pub struct NoThread {
    name: String,
    why: io::Error,
}

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Can't start the thread {}: {}", self.name, self.why)
    }
}

impl std::error::Error for NoThread {}

impl From<NoThread> for CommandError {
    fn from(error: NoThread) -> CommandError {
        format!("ERR {error}").into()
    }
}

/// Creates a thread that may run scripts. A failure is logged and returned.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    spawn_with(BYTES_MIN, name, work)
}

fn spawn_with<T: Send + 'static>(
    stack_bytes: usize,
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    let made = Builder::new()
        .name(name.clone())
        .stack_size(stack_bytes)
        .spawn(move || {
            mark();
            work()
        });
    made.map_err(|why| {
        let error = NoThread { name, why };
        log::warn_seldom("no thread", &error);
        error
    })
}

/// Asserts that a script may run on this thread. Not checked in tests, which run scripts on the test's thread,
/// and use a thread of their own for deep recursion.
#[inline]
pub(super) fn check() {
    debug_assert!(
        cfg!(test) || IS_LARGE.get(),
        "the thread {:?} was not made for scripts",
        std::thread::current().name()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_can_not_be_made_is_an_error_with_a_text_for_clients() {
        let made = spawn("fine".to_owned(), || 7).expect("there is room for this one");
        assert_eq!(made.join().ok(), Some(7));
        // More than any process can address.
        let stack_bytes = 1 << 48;
        let made = spawn_with(stack_bytes, "basalt-test".to_owned(), || 7);
        let error = made.expect_err("there is no room for this one");
        let text = CommandError::from(error).text().into_owned();
        assert!(
            text.starts_with("ERR Can't start the thread basalt-test: "),
            "{text}"
        );
    }
}
