//! `loadstring` for long texts: passes them to the compiler piece by piece, and stops once the script may not
//! continue.

use std::ffi::{c_char, c_int, c_void};

use mlua::{Function, Lua, ffi};

use super::{Fatal, closure};

/// Bytes passed to the compiler at once. The compiler may take microseconds for a single name in nested
/// functions.
const PIECE_BYTES: usize = 4 * 1024;

/// Bytes of a chunk's text that are used as its name if it has none; errors show fewer.
const NAME_BYTES: usize = 256;

/// Check between two pieces whether the script may continue. It has no access to the interpreter, and a panic
/// in it ends the process.
pub trait ScriptGate: 'static {
    /// Whether the script may continue.
    fn is_open() -> bool;
}

/// Creates the `loadstring` function; it calls `refuse`, which raises an error, if the script may not continue.
pub fn stepwise<G: ScriptGate>(lua: &Lua, refuse: &Function) -> mlua::Result<Function> {
    closure(lua, enter::<G>, refuse)
}

/// The rest of a text.
struct LuaSourceReader {
    rest: *const c_char,
    len: usize,
    is_stopped: bool,
}

/// Passes the next piece to Lua's compiler.
///
/// # Safety
///
/// For Lua's compiler only, with [`LuaSourceReader`] to which there is no other reference.
unsafe extern "C-unwind" fn read<G: ScriptGate>(
    _: *mut mlua::lua_State,
    pieces: *mut c_void,
    size: *mut usize,
) -> *const c_char {
    // SAFETY: the contract; Lua passes a place for the size. The returned piece lies within the text.
    unsafe {
        let pieces = &mut *pieces.cast::<LuaSourceReader>();
        if !pieces.is_stopped {
            let fatal = Fatal;
            pieces.is_stopped = !G::is_open();
            std::mem::forget(fatal);
        }
        let len = match pieces.is_stopped {
            true => 0,
            false => pieces.len.min(PIECE_BYTES),
        };
        *size = len;
        let piece = pieces.rest;
        pieces.rest = piece.add(len);
        pieces.len -= len;
        piece
    }
}

/// Entry point of the function, called with a text, and its name or nothing.
///
/// # Safety
///
/// For Lua only, as a closure with a function.
unsafe extern "C-unwind" fn enter<G: ScriptGate>(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua passes a usable state, and leaves a function room for some values besides its arguments. Text and
    // name lie below whatever the compiler pushes, so they stay in place. Nothing is left to be dropped when an
    // error passes.
    unsafe {
        ffi::lua_settop(state, 2);
        let mut len = 0;
        let text = ffi::luaL_checklstring(state, 1, &raw mut len);
        if ffi::lua_type(state, 2) == ffi::LUA_TNIL {
            ffi::lua_pushlstring(state, text, len.min(NAME_BYTES));
            ffi::lua_replace(state, 2);
        }
        let name = ffi::luaL_checklstring(state, 2, std::ptr::null_mut());
        let mut pieces = LuaSourceReader {
            rest: text,
            len,
            is_stopped: false,
        };
        let status = ffi::lua_load(state, read::<G>, (&raw mut pieces).cast(), name);
        if pieces.is_stopped {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
            ffi::lua_call(state, 0, 0);
        }
        if status == ffi::LUA_OK {
            return 1;
        }
        ffi::lua_pushnil(state);
        ffi::lua_insert(state, -2);
        2
    }
}
