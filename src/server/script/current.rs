//! State of the script running on this thread, for the functions that it calls: its host, its permissions, the
//! arguments of the call being prepared, and whether it may continue.

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

/// Maximum run time of a library's code while it is loaded.
const LOADING_NS_MAX: u64 = 500_000_000;

thread_local! {
    static ARGUMENTS: RefCell<Arguments> = RefCell::default();
    /// Hosts of the scripts running on this thread.
    pub(super) static HOST: ScopedTls<Hosts> = const { ScopedTls::new() };
    /// State of the script running on this thread.
    pub(super) static RUN: ScriptRunState = ScriptRunState::default();
}

/// State of a running script, see [`RUN`].
#[derive(Default)]
pub(super) struct ScriptRunState {
    /// The protocol that the script chose for replies of its calls (`redis.setresp`).
    pub(super) protocol: Cell<Protocol>,
    /// Whether the script may not write.
    pub(super) is_read_only: Cell<bool>,
    /// Whether the script may add data although memory is exhausted.
    pub(super) is_free_to_grow: Cell<bool>,
    /// Why the script has to end; `None` if it may continue.
    pub(super) interrupted: Cell<Option<Interrupted>>,
    /// When loading of the current library began, if one is being loaded.
    pub(super) loading_since: Cell<Option<Ticks>>,
    /// Command replies being passed to Lua.
    pub(super) out: RefCell<Out>,
    /// Work left for `calls::finish`.
    pub(super) unfinished: Cell<Unfinished>,
    /// State of `math.random`.
    pub(super) random: Cell<Rand48>,
}

/// Remaining work of a call that a [`Return`](crate::sys::lua::Return) cannot express.
#[derive(Default)]
pub(super) enum Unfinished {
    /// Convert the reply in the output.
    #[default]
    Reply,
    /// Report an error to the script.
    Failed {
        /// The error reply.
        text: Vec<u8>,
        /// Whether the error has already been counted in the statistics.
        is_counted: bool,
    },
    /// End the script, because its host has ended the unit.
    Interrupted(Interrupted),
}

/// Accesses the arguments of the call being prepared.
pub(super) fn with_arguments<R>(work: impl FnOnce(&mut Arguments) -> R) -> R {
    ARGUMENTS.with_borrow_mut(work)
}

/// Receiver that adds an argument from Lua's stack to the [`Arguments`] of this thread.
pub(super) struct ArgumentTaker;

impl Take for ArgumentTaker {
    #[inline]
    fn take(argument: lua::LuaArgument<'_>) {
        with_arguments(|arguments| arguments.take(argument));
    }
}

/// Guard that clears this thread's [`Arguments`] when the call ends in any way.
pub(super) struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        with_arguments(Arguments::clear);
    }
}

/// Returns an error if the script must end, and checks that with the host now and then; called at each step of
/// long operations.
#[inline]
pub(super) fn look() -> mlua::Result<()> {
    match attention::is_due() {
        false => Ok(()),
        true => tick(),
    }
}

/// Bytes of text that long operations process between two calls of `look`.
pub(super) const STEP_BYTES: usize = 64 * 1024;

/// Asks the host whether the script may continue; returns an error if the script must end.
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

/// Interrupts the script: from now on none of its calls succeeds.
pub(super) fn interrupt(interrupted: Interrupted) -> mlua::Error {
    RUN.with(|run| run.interrupted.set(Some(interrupted)));
    Raised::Interrupted.into()
}
