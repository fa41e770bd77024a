//! `coroutine.resume`, `coroutine.wrap`, `pcall` and `xpcall`, as Lua's own, but that
//!
//! - what runs is followed (see [`super::attention`]);
//! - what a coroutine raised goes through a function before anybody sees it;
//! - there is a place for what is put before the results, of which Lua 5.1 is not sure where there are thousands.

use std::ffi::{CStr, c_int};

use mlua::{Function, Lua, ffi};

use super::{Lifted, attention};

unsafe extern "C-unwind" {
    /// Counts the nested calls of one state on in another one. Part of Lua's interface; mlua does not name it.
    fn lua_setlevel(from: *mut mlua::lua_State, to: *mut mlua::lua_State);
}

/// Makes `coroutine.resume` of Lua's own one, and of the function that is given what was raised and gives what is seen
/// of it.
pub fn resume(lua: &Lua, own: &Function, seen: &Function) -> mlua::Result<Function> {
    made(lua, resume_entered, own, seen)
}

/// Makes `pcall` of Lua's own one, which answers calls without arguments.
pub fn pcall(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    made(lua, pcall_entered, own, own)
}

/// Makes `xpcall` of Lua's own one, which answers calls without a handler.
pub fn xpcall(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    made(lua, xpcall_entered, own, own)
}

/// Makes `coroutine.wrap` of `coroutine.create`.
pub fn wrap(lua: &Lua, create: &Function) -> mlua::Result<Function> {
    made(lua, wrap_entered, create, create)
}

/// Makes a function of what Lua is to call, which finds Lua's own function and another one as its values.
pub(super) fn made(
    lua: &Lua,
    entry: ffi::lua_CFunction,
    own: &Function,
    seen: &Function,
) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room for the two values and for what `pop` needs is made; the bound is lifted. What was pushed is
        // popped again, but for the closure, which is handed out. Pushing what mlua refers to takes no memory.
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

/// Why a coroutine cannot be resumed, if it cannot.
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
    // SAFETY: the contract, and there is room for what is told of a frame.
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

/// Resumes a coroutine with so many arguments, which lie on top: how many results lie there then, or nothing where
/// what it raised does.
///
/// # Safety
///
/// 1. The coroutine is suspended, of the state's interpreter, and has room for the arguments.
/// 2. An error of Lua's may pass the caller's frame.
unsafe fn run(
    state: *mut mlua::lua_State,
    coroutine: *mut mlua::lua_State,
    count: c_int,
) -> Option<c_int> {
    // SAFETY: the contract. Resuming is protected: it gives what was raised as a status, with the value on top. The
    // coroutine is a value that the caller's function holds. The only error that passes here is the last one, by which
    // time nothing is left to be dropped.
    unsafe {
        ffi::lua_xmove(state, coroutine, count);
        lua_setlevel(state, coroutine);
        let status = attention::follow(state, coroutine, || ffi::lua_resume_(coroutine, count));
        if status != ffi::LUA_OK && status != ffi::LUA_YIELD {
            ffi::lua_xmove(coroutine, state, 1);
            return None;
        }
        let results = ffi::lua_gettop(coroutine);
        // Two more for what the caller adds.
        if ffi::lua_checkstack(state, results + 2) == 0 {
            ffi::luaL_error(state, c"too many results to resume".as_ptr());
        }
        ffi::lua_xmove(coroutine, state, results);
        Some(results)
    }
}

/// What Lua calls for `coroutine.resume`.
///
/// # Safety
///
/// For Lua only, as a closure with two values: Lua's own function, and one that is given what was raised.
unsafe extern "C-unwind" fn resume_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua gives a state that can be used, and leaves a function room for some values besides its arguments.
    // What cannot be resumed is for Lua's own function, which complains in the frame that it would have had; nothing
    // is left to be dropped when an error passes.
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

/// Puts what is to be seen of what was raised into its place on top.
///
/// # Safety
///
/// In a function that was made by [`made`], with room for a value.
unsafe fn show(state: *mut mlua::lua_State) {
    // SAFETY: the contract.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, -2);
        ffi::lua_call(state, 1, 1);
    }
}

/// What Lua calls for `coroutine.wrap`.
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

/// What Lua calls for a function that `coroutine.wrap` made.
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

/// What Lua calls for `pcall`.
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

/// What Lua calls for `xpcall`.
///
/// # Safety
///
/// For Lua only, as a closure with Lua's own function.
unsafe extern "C-unwind" fn xpcall_entered(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as in `resume_entered`. The handler is put below the function, and leaves before what is returned.
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

/// Has Lua's own function say what is wrong with the arguments.
///
/// # Safety
///
/// In a function that was made by [`made`].
unsafe fn complain(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: the function finds the frame as Lua would have given it.
    unsafe {
        let own = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1));
        own.map_or(0, |own| own(state))
    }
}

/// Puts whether a call succeeded before its results, which are all that lies there; how many there are then.
///
/// # Safety
///
/// In a function that was made by [`made`].
unsafe fn end(state: *mut mlua::lua_State, status: c_int) -> c_int {
    // SAFETY: room is made, or what lies there makes room.
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
