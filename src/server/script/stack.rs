//! The stacks of the threads that run scripts.
//!
//! Tables in tables are written and read by functions that call themselves, a thousand deep, and Lua's own functions
//! may call scripts that call them, 200 deep. A thread that lets a shard go runs what was queued for it meanwhile,
//! scripts among that: so every thread that ever takes a shard is made here, or given [`BYTES_MIN`] and marked by its
//! maker.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};

use crate::telemetry::log;
use basalt_commands::command::error::CommandError;

/// What the stack of such a thread must hold.
pub const BYTES_MIN: usize = 8 * 1024 * 1024;

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread was given [`BYTES_MIN`]; it gets a stack for what handles crashes too, as one that runs
/// out of stack has none left.
pub fn mark() {
    IS_LARGE.set(true);
    #[cfg(not(miri))]
    crate::sys::crash::prepare_thread();
}

/// The system has no room for another thread. What the thread was to do was not begun, and is dropped.
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

/// Makes a thread that may run scripts. That it can not be made is for the caller to handle, and told in the log.
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

/// A script is about to run here. Tests run their scripts where they are; those that go deep ask for a thread.
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
