//! Makes long-running scripts check the clock at their next instruction.
//!
//! An interpreter counts instructions, and checks every few thousand whether the script may continue. A single
//! instruction may take long, such as comparing texts of a hundred megabytes, so the count alone says nothing
//! about time.
//!
//! ```text
//! a thread that runs scripts                     the watching thread
//! register()                                     look(), every LOOK_MS
//! Entered: counts entries and exits          ──▶   same script as at the last check?
//! handler: hooks the running state           ◀──   SIGURG
//! next instruction or call: the hook runs,
//!   settle() resumes counting
//! next step of one of our functions: is_due()
//! ```
//!
//! SIGURG is ignored by default, so a signal from another process, or a late one, does no harm. A coroutine has
//! its own hooks, so [`CURRENT`] is changed when one is resumed.

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mlua::state::RawLua;
use mlua::{Lua, ffi};

use crate::sys::crash::thread_number;

/// Instructions between two clock checks, unless a check is requested earlier.
pub const INSTRUCTIONS: u32 = 10_000;

/// Milliseconds between two checks of the running scripts.
pub const LOOK_MS: u32 = 25;

/// State of a script thread that the watching thread sees.
struct WatchedScriptThread {
    thread: i32,
    /// Number of script entries and exits; odd while a script runs. Only `thread` writes it.
    changes: AtomicU64,
    /// The value at the watching thread's last check.
    seen: AtomicU64,
}

/// All threads that ever created an interpreter. Entries are never removed, because threads that run scripts
/// are not created again and again.
static PLACES: Mutex<Vec<&'static WatchedScriptThread>> = Mutex::new(Vec::new());

thread_local! {
    /// The Lua state running on this thread, null if none. Const-initialized, because a handler reads it.
    static CURRENT: Cell<*mut mlua::lua_State> = const { Cell::new(null_mut()) };
    static PLACE: Cell<Option<&'static WatchedScriptThread>> = const { Cell::new(None) };
    /// Whether the running script was interrupted and has not checked the clock since.
    static IS_DUE: Cell<bool> = const { Cell::new(false) };
}

/// Registers the calling thread as one that runs scripts. Returns whether it is the first one.
pub fn register() -> bool {
    if PLACE.get().is_some() {
        return false;
    }
    let place: &WatchedScriptThread = Box::leak(Box::new(WatchedScriptThread {
        thread: thread_number(),
        changes: AtomicU64::new(0),
        seen: AtomicU64::new(0),
    }));
    PLACE.set(Some(place));
    let mut places = PLACES.lock().unwrap_or_else(|broken| broken.into_inner());
    places.push(place);
    places.len() == 1
}

/// Whether any thread runs scripts.
pub fn is_needed() -> bool {
    let places = PLACES.lock().unwrap_or_else(|broken| broken.into_inner());
    !places.is_empty()
}

/// Installs the SIGURG handler. To be called once, by the thread that will call [`look`].
pub fn install() -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this type, which requests nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int) = handle;
    action.sa_sigaction = handler as *const () as usize;
    // Scripts may use much stack: the handler runs on the stack for crash handlers.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and its handler has the type that the flags promise and calls only permitted
    // functions.
    match unsafe { libc::sigaction(libc::SIGURG, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Interrupts each thread that is in the same script as at the previous call.
pub fn look() {
    let places = PLACES.lock().unwrap_or_else(|broken| broken.into_inner());
    for place in places.iter() {
        let changes = place.changes.load(Relaxed);
        if place.seen.swap(changes, Relaxed) == changes && changes % 2 == 1 {
            // SAFETY: sends a signal that this process handles to one of its own threads, or to none.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), place.thread, libc::SIGURG) };
        }
    }
}

extern "C" fn handle(_: c_int) {
    let state = CURRENT.get();
    if !state.is_null() {
        IS_DUE.set(true);
        // SAFETY: the state runs on this thread, so it exists; a hook may be set at any time.
        unsafe { demand(state) };
    }
}

/// Whether the running script must check the clock now, for our own functions that take long. Resets the
/// request.
#[inline]
pub fn is_due() -> bool {
    IS_DUE.get() && IS_DUE.replace(false)
}

/// The hook masks for counting, and for checking the clock immediately. A C function that calls C functions
/// executes no instruction.
const COUNTS: c_int = ffi::LUA_MASKCOUNT;
const LOOKS_NOW: c_int = ffi::LUA_MASKCOUNT | ffi::LUA_MASKCALL;

/// Makes the hook of a state run before its next instruction or call.
///
/// # Safety
///
/// The state exists, and no other thread uses it.
unsafe fn demand(state: *mut mlua::lua_State) {
    // SAFETY: the contract. This writes four fields of the state, each of which is valid by itself.
    unsafe { ffi::lua_sethook(state, ffi::lua_gethook(state), LOOKS_NOW, 1) };
}

/// Guard that marks a script as running on this thread until it is dropped.
pub(super) struct Entered {
    state: *mut mlua::lua_State,
    /// The state that was running before, if this script was started by another script; null if none.
    before: *mut mlua::lua_State,
}

impl Entered {
    /// Marks a state of this thread as running; it must exist for as long as the result does.
    #[inline]
    pub(super) fn new(state: *mut mlua::lua_State) -> Entered {
        let before = CURRENT.replace(state);
        count(before);
        Entered { state, before }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.before);
        count(self.before);
        // SAFETY: the state exists, and no handler uses it any more.
        unsafe { settle_state(self.state) };
    }
}

/// Runs `work` for a script that has ended, such as writing its reply, so that it counts as part of the
/// script's run.
pub fn running<R>(lua: &Lua, work: impl FnOnce() -> R) -> R {
    let _entered = Entered::new(lua.exec_raw_lua(RawLua::state));
    work()
}

/// Counts an entry or exit of a script, if it is the outermost script of this thread.
#[inline]
fn count(before: *mut mlua::lua_State) {
    if before.is_null()
        && let Some(place) = PLACE.get()
    {
        let changes = &place.changes;
        changes.store(changes.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// Runs a coroutine from another state through `run`, so that both are tracked.
///
/// # Safety
///
/// 1. Both exist until `run` returns, and belong to this thread.
/// 2. No Lua error passes `run`.
pub(super) unsafe fn follow<R>(
    from: *mut mlua::lua_State,
    into: *mut mlua::lua_State,
    run: impl FnOnce() -> R,
) -> R {
    let before = CURRENT.replace(into);
    let result = run();
    CURRENT.set(before);
    // A check that the coroutine was to make and did not passes to the resuming state: it may have been a single C
    // function.
    // SAFETY: the caller guarantees (1).
    unsafe {
        if ffi::lua_gethookmask(into) == LOOKS_NOW {
            demand(from);
        }
    }
    result
}

/// Makes the running state count instructions again until the next hook; called when a hook has run.
pub fn settle() {
    IS_DUE.set(false);
    let state = CURRENT.get();
    if !state.is_null() {
        // SAFETY: the current state exists, and belongs to this thread.
        unsafe { settle_state(state) };
    }
}

/// Makes a state count instructions again.
///
/// # Safety
///
/// The state exists, and no other thread uses it.
#[inline]
unsafe fn settle_state(state: *mut mlua::lua_State) {
    // SAFETY: the caller guarantees this function's contract.
    unsafe {
        if ffi::lua_gethookmask(state) == LOOKS_NOW {
            let hook = ffi::lua_gethook(state);
            ffi::lua_sethook(state, hook, COUNTS, INSTRUCTIONS as c_int);
        }
    }
}
