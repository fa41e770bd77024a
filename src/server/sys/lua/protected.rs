//! `coroutine.resume`, `coroutine.wrap`, `pcall` and `xpcall` like Lua's own, with these differences:
//!
//! - the running state is tracked (see [`super::attention`]);
//! - errors raised by a coroutine pass through a function before scripts see them;
//! - there is always a stack slot for the value before the results, which Lua 5.1 does not ensure for thousands of
//!   results.

use std::ffi::{CStr, c_int};

use mlua::{Function, Lua, ffi};

use super::{Lifted, attention};

unsafe extern "C-unwind" {
    /// Copies the depth of nested C calls from one state to another. Part of Lua's interface, but not declared
    /// by mlua.
    fn lua_setlevel(from: *mut mlua::lua_State, to: *mut mlua::lua_State);
}

/// Creates `coroutine.resume` from Lua's own function, and from `seen`, which converts raised errors to what
/// scripts see.
pub fn resume(lua: &Lua, own: &Function, seen: &Function) -> mlua::Result<Function> {
    made(lua, resume_entered, own, seen)
}

/// Makes `pcall` from Lua's own, which handles calls without arguments.
pub fn pcall(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    made(lua, pcall_entered, own, own)
}

/// Makes `xpcall` from Lua's own, which handles calls without a handler.
pub fn xpcall(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    made(lua, xpcall_entered, own, own)
}

/// Makes `coroutine.wrap` from `coroutine.create`.
pub fn wrap(lua: &Lua, create: &Function) -> mlua::Result<Function> {
    made(lua, wrap_entered, create, create)
}

/// Makes a function from its entry point, with Lua's own function and another one as upvalues.
pub(super) fn made(
    lua: &Lua,
    entry: ffi::lua_CFunction,
    own: &Function,
    seen: &Function,
) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for the two values and for what `pop` needs; the memory limit is lifted. What was
        // pushed is popped again, except the closure, which is returned. Pushing mlua's references takes no memory.
        unsafe {
            if ffi::lua_checkstack(state, 5) == 0 {
                return Err(mlua::Error::StackError);
            }
            let top = ffi::lua_gettop(state);
            let pushed = raw.push(own).and_then(|()| raw.push(seen));
            if pushed.is_err() || ffi::lua_tocfunction(state, top + 1).is_none() {
                ffi::lua_settop(state, top);
                return Err(mlua::Error::runtime("a plain function of Lua's own"));
            }
            ffi::lua_pushcclosure(state, entry, 2);
            raw.pop()
        }
    })
}

/// Returns why a coroutine cannot be resumed; `None` if it can.
///
/// # Safety
///
/// Both states exist.
unsafe fn hindrance(
    state: *mut mlua::lua_State,
    coroutine: *mut mlua::lua_State,
) -> Option<&'static CStr> {
    const DEAD: &CStr = c"cannot resume dead coroutine";
    if state == coroutine {
        return Some(c"cannot resume running coroutine");
    }
    // SAFETY: the contract, and there is room for the frame's description.
    unsafe {
        let mut frame = std::mem::zeroed();
        match ffi::lua_status(coroutine) {
            ffi::LUA_YIELD => None,
            ffi::LUA_OK if ffi::lua_getstack(coroutine, 0, &raw mut frame) > 0 => {
                Some(c"cannot resume normal coroutine")
            }
            ffi::LUA_OK if ffi::lua_gettop(coroutine) > 0 => None,
            _ => Some(DEAD),
        }
    }
}

/// Resumes a coroutine with the `count` arguments on top of the stack. Returns the number of results on top, or
/// `None` if the raised error is on top instead.
///
/// # Safety
///
/// 1. The coroutine is suspended, belongs to the state's interpreter, and has room for the arguments.
/// 2. A Lua error may pass the caller's frame.
unsafe fn run(
    state: *mut mlua::lua_State,
    coroutine: *mut mlua::lua_State,
    count: c_int,
) -> Option<c_int> {
    // SAFETY: the contract. Resuming is protected: a raised error is returned as a status, with the value on top.
    // The coroutine is a value held by the caller's function. The only error that passes here is the last one, when
    // nothing is left to be dropped.
    unsafe {
        ffi::lua_xmove(state, coroutine, count);
        lua_setlevel(state, coroutine);
        let status = attention::follow(state, coroutine, || ffi::lua_resume_(coroutine, count));
        if status != ffi::LUA_OK && status != ffi::LUA_YIELD {
            ffi::lua_xmove(coroutine, state, 1);
            return None;
        }
        let results = ffi::lua_gettop(coroutine);
        // Two more slots for the values that the caller adds.
        if ffi::lua_checkstack(state, results + 2) == 0 {
            ffi::luaL_error(state, c"too many results to resume".as_ptr());
        }
        ffi::lua_xmove(coroutine, state, results);
        Some(results)
    }
}

/// Entry point of `coroutine.resume`.
///
/// # Safety
///
/// For Lua only, as a closure with two upvalues: Lua's own function, and one that is given raised errors.
unsafe extern "C-unwind" fn resume_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua passes a usable state, and leaves a function room for some values besides its arguments. A value
    // that cannot be resumed is left to Lua's own function, which reports the error in the frame that it would have
    // had; nothing is left to be dropped when an error passes.
    unsafe {
        let coroutine = ffi::lua_tothread(state, 1);
        let count = ffi::lua_gettop(state) - 1;
        let can = !coroutine.is_null()
            && hindrance(state, coroutine).is_none()
            && ffi::lua_checkstack(coroutine, count) != 0;
        if !can {
            return complain(state);
        }
        match run(state, coroutine, count) {
            Some(results) => {
                ffi::lua_pushboolean(state, 1);
                ffi::lua_insert(state, -results - 1);
                results + 1
            }
            None => {
                show(state);
                ffi::lua_pushboolean(state, 0);
                ffi::lua_insert(state, -2);
                2
            }
        }
    }
}

/// Replaces the raised error on top of the stack by its form for scripts.
///
/// # Safety
///
/// In a function made by [`made`], with room for one value.
unsafe fn show(state: *mut mlua::lua_State) {
    // SAFETY: the caller guarantees this function's contract.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, -2);
        ffi::lua_call(state, 1, 1);
    }
}

/// Entry point of `coroutine.wrap`.
///
/// # Safety
///
/// For Lua only, as a closure with `coroutine.create`.
unsafe extern "C-unwind" fn wrap_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as in `resume_entered`. Lua's own function leaves the coroutine on top.
    unsafe {
        if let Some(create) = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            create(state);
        }
        ffi::lua_pushcclosure(state, wrapped_entered, 1);
        1
    }
}

/// Entry point of a function made by `coroutine.wrap`.
///
/// # Safety
///
/// For Lua only, as a closure with a coroutine.
unsafe extern "C-unwind" fn wrapped_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as in `resume_entered`.
    unsafe {
        let coroutine = ffi::lua_tothread(state, ffi::lua_upvalueindex(1));
        let count = ffi::lua_gettop(state);
        if ffi::lua_checkstack(coroutine, count) == 0 {
            return ffi::luaL_error(state, c"too many arguments to resume".as_ptr());
        }
        if let Some(what) = hindrance(state, coroutine) {
            return ffi::luaL_error(state, what.as_ptr());
        }
        if let Some(results) = run(state, coroutine, count) {
            return results;
        }
        if ffi::lua_isstring(state, -1) != 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_insert(state, -2);
            ffi::lua_concat(state, 2);
        }
        ffi::lua_error(state)
    }
}

/// Entry point of `pcall`.
///
/// # Safety
///
/// For Lua only, as a closure with Lua's own function.
unsafe extern "C-unwind" fn pcall_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as in `resume_entered`. The function lies below its arguments.
    unsafe {
        let count = ffi::lua_gettop(state);
        if count == 0 {
            return complain(state);
        }
        let status = ffi::lua_pcall(state, count - 1, ffi::LUA_MULTRET, 0);
        end(state, status)
    }
}

/// Entry point of `xpcall`.
///
/// # Safety
///
/// For Lua only, as a closure with Lua's own function.
unsafe extern "C-unwind" fn xpcall_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as in `resume_entered`. The handler is put below the function, and is removed before the results are
    // returned.
    unsafe {
        if ffi::lua_gettop(state) < 2 {
            return complain(state);
        }
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        ffi::lua_remove(state, 1);
        end(state, status)
    }
}

/// Makes Lua's own function report what is wrong with the arguments.
///
/// # Safety
///
/// In a function made by [`made`].
unsafe fn complain(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: the function finds the frame as Lua would have given it.
    unsafe {
        let own = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1));
        own.map_or(0, |own| own(state))
    }
}

/// Inserts a boolean, whether a call succeeded, before the call's results, which are the only values on the
/// stack. Returns the resulting number of values.
///
/// # Safety
///
/// In a function made by [`made`].
unsafe fn end(state: *mut mlua::lua_State, status: c_int) -> c_int {
    // SAFETY: there is room, or clearing the stack makes room.
    unsafe {
        if ffi::lua_checkstack(state, 1) == 0 {
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, 0);
            let text = b"stack overflow";
            ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
            return 2;
        }
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}
