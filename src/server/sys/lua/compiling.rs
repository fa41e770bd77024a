//! `loadstring` for long texts: the compiler is given them piece by piece, and none any more once the script may not go
//! on.

use std::ffi::{c_char, c_int, c_void};

use mlua::{Function, Lua, ffi};

use super::{Fatal, Lifted};

/// Bytes that the compiler is given at once. A name in nested functions may take it microseconds.
const PIECE_BYTES: usize = 4 * 1024;

/// Bytes of a text by which it is called that has no name: more than errors show.
const NAME_BYTES: usize = 256;

/// Says between pieces whether the script may go on. It has no access to the interpreter, and a panic in it ends the
/// process.
pub trait Gate: 'static {
    /// Whether it may.
    fn is_open() -> bool;
}

/// Makes the function, of one that raises that the script may not go on.
pub fn stepwise<G: Gate>(lua: &Lua, refuse: &Function) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room for the value and for what `pop` needs is made; the bound is lifted. Pushing what mlua refers to
        // takes no memory.
        unsafe {
            if ffi::lua_checkstack(state, 4) == 0 {
                return Err(mlua::Error::StackError);
            }
            raw.push(refuse)?;
            ffi::lua_pushcclosure(state, enter::<G>, 1);
            raw.pop()
        }
    })
}

/// What is left of a text.
struct Pieces {
    rest: *const c_char,
    len: usize,
    is_stopped: bool,
}

/// Gives Lua's compiler the next piece.
///
/// # Safety
///
/// For Lua's compiler only, with [`Pieces`] to which there is no other reference.
unsafe extern "C-unwind" fn read<G: Gate>(
    _: *mut mlua::lua_State,
    pieces: *mut c_void,
    size: *mut usize,
) -> *const c_char {
    // SAFETY: the contract; Lua gives a place for the size. What is given lies in the text.
    unsafe {
        let pieces = &mut *pieces.cast::<Pieces>();
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

/// What Lua calls: with a text, and its name or nothing.
///
/// # Safety
///
/// For Lua only, as a closure with a function.
unsafe extern "C-unwind" fn enter<G: Gate>(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua gives a state that can be used, and leaves a function room for some values besides its arguments.
    // Text and name lie below whatever the compiler puts there, so they stay where they are. Nothing is left to be
    // dropped when an error passes.
    unsafe {
        ffi::lua_settop(state, 2);
        let mut len = 0;
        let text = ffi::luaL_checklstring(state, 1, &raw mut len);
        if ffi::lua_type(state, 2) == ffi::LUA_TNIL {
            ffi::lua_pushlstring(state, text, len.min(NAME_BYTES));
            ffi::lua_replace(state, 2);
        }
        let name = ffi::luaL_checklstring(state, 2, std::ptr::null_mut());
        let mut pieces = Pieces {
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
