//! The script that this thread runs, as the functions see it that the script calls: who hosts it, what it may do, the
//! arguments of the call that is being prepared, and whether it may go on.

use std::cell::{Cell, RefCell};

use super::errors::Raised;
use super::host::{Hosts, Interrupted};
use super::random::Rand48;
use super::words::Arguments;
use crate::sys::lua::{self, Take, attention};
use crate::telemetry::clock::Ticks;
use basalt_commands::command::Out;
use basalt_core::resp::reply::Protocol;
use basalt_core::structures::scoped_tls::ScopedTls;

/// How long the code of a library may run while it is loaded.
const LOADING_NS_MAX: u64 = 500_000_000;

thread_local! {
    static ARGUMENTS: RefCell<Arguments> = RefCell::default();
    /// The hosts of the scripts that this thread runs.
    pub(super) static HOST: ScopedTls<Hosts> = const { ScopedTls::new() };
    /// What the script of this thread is like.
    pub(super) static RUN: Run = Run::default();
}

/// See [`RUN`].
#[derive(Default)]
pub(super) struct Run {
    /// The protocol that the script chose for replies.
    pub(super) protocol: Cell<Protocol>,
    /// The script may not write.
    pub(super) is_read_only: Cell<bool>,
    /// The script may add data although there is no memory for it.
    pub(super) is_free_to_grow: Cell<bool>,
    /// Why the script has to end, if it has to.
    pub(super) interrupted: Cell<Option<Interrupted>>,
    /// Since when a library is being loaded.
    pub(super) loading_since: Cell<Option<Ticks>>,
    /// Replies of commands on their way to Lua.
    pub(super) out: RefCell<Out>,
    /// What the function that finishes a call is to do.
    pub(super) unfinished: Cell<Unfinished>,
    /// State of `math.random`.
    pub(super) random: Cell<Rand48>,
}

/// What is left to be done of a call for which a [`Return`](crate::sys::lua::Return) is not enough.
#[derive(Default)]
pub(super) enum Unfinished {
    /// The reply in the output is converted.
    #[default]
    Reply,
    /// The script hears of an error.
    Failed {
        /// The error reply.
        text: Vec<u8>,
        /// The statistics know of it.
        is_counted: bool,
    },
    /// The script ends.
    Interrupted(Interrupted),
}

/// Works on the arguments of the call that is being prepared.
pub(super) fn with_arguments<R>(work: impl FnOnce(&mut Arguments) -> R) -> R {
    ARGUMENTS.with_borrow_mut(work)
}

/// One argument on its way into the [`Arguments`] of this thread.
pub(super) struct Argument;

impl Take for Argument {
    #[inline]
    fn take(argument: lua::Argument<'_>) {
        with_arguments(|arguments| arguments.take(argument));
    }
}

/// Forgets the arguments of this call, whatever becomes of it.
pub(super) struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        with_arguments(Arguments::clear);
    }
}

/// Asked by what takes long at each of its steps: whether the script may go on.
#[inline]
pub(super) fn look() -> mlua::Result<()> {
    match attention::is_due() {
        false => Ok(()),
        true => tick(),
    }
}

/// Bytes between two steps of what goes through a text.
pub(super) const STEP_BYTES: usize = 64 * 1024;

/// Whether the script may go on.
pub(super) fn tick() -> mlua::Result<()> {
    RUN.with(|run| {
        if run.interrupted.get().is_some() {
            return Err(Raised::Interrupted.into());
        }
        if let Some(since) = run.loading_since.get() {
            if Ticks::now().since_ns(since) > LOADING_NS_MAX {
                return Err(interrupt(Interrupted::Killed));
            }
            return Ok(());
        }
        match HOST.with(|host| host.with(|host| host.tick())) {
            Some(Err(interrupted)) => Err(interrupt(interrupted)),
            _ => Ok(()),
        }
    })
}

/// From now on nothing of this script succeeds.
pub(super) fn interrupt(interrupted: Interrupted) -> mlua::Error {
    RUN.with(|run| run.interrupted.set(Some(interrupted)));
    Raised::Interrupted.into()
}
