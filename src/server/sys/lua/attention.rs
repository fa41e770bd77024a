//! Has scripts that run for long look at the clock at their next instruction.
//!
//! An interpreter counts instructions, and looks whether the script may go on after some thousands of them. Each may
//! take as long as a text of a hundred megabytes takes to be compared, so that a count alone says nothing of time.
//!
//! ```text
//! a thread that runs scripts                     the thread that watches
//! register()                                     look(), every LOOK_MS
//! Entered: counts when it enters and leaves  ──▶   the same script as at the last look?
//! handler: hooks the state that runs         ◀──   SIGURG
//! next instruction or call: the hook runs,
//!   settle() has it count again
//! next step of a function of ours: is_due()
//! ```
//!
//! SIGURG is ignored by default, so one that comes from elsewhere, or too late, harms nothing. A coroutine has hooks of
//! its own, so [`CURRENT`] is changed where one is resumed.

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mlua::state::RawLua;
use mlua::{Lua, ffi};

use crate::sys::crash::thread_number;

/// Instructions between two looks at the clock, where nothing asks for one before.
pub const INSTRUCTIONS: u32 = 10_000;

/// Milliseconds between two looks at what runs.
pub const LOOK_MS: u32 = 25;

/// What the watching thread sees of a thread that runs scripts.
struct Place {
    thread: i32,
    /// How often a script was entered and left; odd while one runs. Written by `thread` alone.
    changes: AtomicU64,
    /// As the watching thread saw it last.
    seen: AtomicU64,
}

/// All threads that ever made an interpreter. Threads that run scripts do not come and go.
static PLACES: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

thread_local! {
    /// The state that runs on this thread, null while none does. What a handler reads needs no making.
    static CURRENT: Cell<*mut mlua::lua_State> = const { Cell::new(null_mut()) };
    static PLACE: Cell<Option<&'static Place>> = const { Cell::new(None) };
    /// What runs was interrupted, and has not looked since.
    static IS_DUE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is going to run scripts; whether it is the first one.
pub fn register() -> bool {
    if PLACE.get().is_some() {
        return false;
    }
    let place: &Place = Box::leak(Box::new(Place {
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

/// Takes over SIGURG. To be called once, by who is going to [`look`].
pub fn install() -> io::Result<()> {
    // SAFETY: all of zeroes is a value of this type, which asks for nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int) = handle;
    action.sa_sigaction = handler as *const () as usize;
    // Scripts go deep: the handler has the stack that crashes have.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is whole, and its handler has the type that the flags promise and calls what handlers may.
    match unsafe { libc::sigaction(libc::SIGURG, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Interrupts each thread that is in the same script as when this was called last.
pub fn look() {
    let places = PLACES.lock().unwrap_or_else(|broken| broken.into_inner());
    for place in places.iter() {
        let changes = place.changes.load(Relaxed);
        if place.seen.swap(changes, Relaxed) == changes && changes % 2 == 1 {
            // SAFETY: sends a signal that this process handles to a thread of its own, or to none.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), place.thread, libc::SIGURG) };
        }
    }
}

extern "C" fn handle(_: c_int) {
    let state = CURRENT.get();
    if !state.is_null() {
        IS_DUE.set(true);
        // SAFETY: the state runs on this thread, so it is there; a hook may be set in the middle of anything.
        unsafe { demand(state) };
    }
}

/// Whether what runs is to look at the clock now, for functions of ours that take long. They are asked once.
#[inline]
pub fn is_due() -> bool {
    IS_DUE.get() && IS_DUE.replace(false)
}

/// What an interpreter stops for that counts, and what one stops for that is to look now. A function of C that calls
/// functions of C executes no instruction.
const COUNTS: c_int = ffi::LUA_MASKCOUNT;
const LOOKS_NOW: c_int = ffi::LUA_MASKCOUNT | ffi::LUA_MASKCALL;

/// Has the hook of a state run before its next instruction or call.
///
/// # Safety
///
/// The state exists, and no other thread uses it.
unsafe fn demand(state: *mut mlua::lua_State) {
    // SAFETY: the contract. This writes four fields of the state, each of which is of use by itself.
    unsafe { ffi::lua_sethook(state, ffi::lua_gethook(state), LOOKS_NOW, 1) };
}

/// A script runs on this thread from now on, until this is dropped.
pub(super) struct Entered {
    state: *mut mlua::lua_State,
    /// What ran when it began: the script that has another one loaded.
    before: *mut mlua::lua_State,
}

impl Entered {
    /// A state of this thread begins to run, and exists for as long as the result does.
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
        // SAFETY: the state exists, and no handler looks for it any more.
        unsafe { settle_state(self.state) };
    }
}

/// Does work for a script that has ended, as part of it: what it answered is written.
pub fn running<R>(lua: &Lua, work: impl FnOnce() -> R) -> R {
    let _entered = Entered::new(lua.exec_raw_lua(RawLua::state));
    work()
}

/// Counts a change if it is one of the outermost script.
#[inline]
fn count(before: *mut mlua::lua_State) {
    if before.is_null()
        && let Some(place) = PLACE.get()
    {
        let changes = &place.changes;
        changes.store(changes.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// Runs a coroutine from another state, as `run` does, so that both are followed.
///
/// # Safety
///
/// 1. Both exist until `run` returns, and are of this thread.
/// 2. No error of Lua's passes `run`.
pub(super) unsafe fn follow<R>(
    from: *mut mlua::lua_State,
    into: *mut mlua::lua_State,
    run: impl FnOnce() -> R,
) -> R {
    let before = CURRENT.replace(into);
    let result = run();
    CURRENT.set(before);
    // What it was told to look at and did not is for who goes on: it may have been a single function of C.
    // SAFETY: (1).
    unsafe {
        if ffi::lua_gethookmask(into) == LOOKS_NOW {
            demand(from);
        }
    }
    result
}

/// The hook runs: from now on instructions are counted until it does again.
pub fn settle() {
    IS_DUE.set(false);
    let state = CURRENT.get();
    if !state.is_null() {
        // SAFETY: what is current exists, and is of this thread.
        unsafe { settle_state(state) };
    }
}

/// Has a state count instructions again.
///
/// # Safety
///
/// The state exists, and no other thread uses it.
#[inline]
unsafe fn settle_state(state: *mut mlua::lua_State) {
    // SAFETY: the contract.
    unsafe {
        if ffi::lua_gethookmask(state) == LOOKS_NOW {
            let hook = ffi::lua_gethook(state);
            ffi::lua_sethook(state, hook, COUNTS, INSTRUCTIONS as c_int);
        }
    }
}
