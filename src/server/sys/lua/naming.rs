//! `tostring` of values without a text: a name that is unique to the value but does not reveal its address.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;

use mlua::{Function, Lua, ffi};

use super::protected::made;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;

static SEED: OnceLock<HashSeed> = OnceLock::new();

/// Returns a number that names the value at an address. Without the seed, which is private to this process, the
/// address cannot be derived from the number, or vice versa.
pub fn number_of(place: *const c_void) -> u64 {
    let seed = SEED.get_or_init(|| {
        let mut random = Random::from_system();
        HashSeed {
            k0: random.next_u64(),
            k1: random.next_u64(),
        }
    });
    seed.hash(&place.addr().to_ne_bytes())
}

/// Creates the `tostring` of scripts from Lua's own.
pub fn tostring(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    made(lua, enter, own, own)
}

/// Bytes of a name: enough for the longest type name and a number.
const NAME_BYTES_MAX: usize = 48;

/// Entry point of `tostring`.
///
/// # Safety
///
/// For Lua only, as a closure with Lua's own function.
unsafe extern "C-unwind" fn enter(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua passes a usable state, and leaves a function room for some values besides its arguments. Its own
    // function finds the frame as Lua would have passed it, and leaves a value on top if it returns. Reading a
    // string's bytes does not convert it, and they stay in place while it is on the stack. Nothing is left to be
    // dropped when an error passes.
    unsafe {
        let place = ffi::lua_topointer(state, 1);
        let Some(own) = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) else {
            return 0;
        };
        let answered = own(state);
        if place.is_null() || ffi::lua_type(state, -1) != ffi::LUA_TSTRING {
            return answered;
        }
        let mut len = 0;
        let start = ffi::lua_tolstring(state, -1, &raw mut len);
        let text = std::slice::from_raw_parts(start.cast::<u8>(), len);
        // A text made by a metatable's `__tostring` differs and is kept.
        let mut buffer = [0; NAME_BYTES_MAX];
        let mut digits = &mut buffer[..];
        let _ = write!(digits, ": {place:p}");
        let left = digits.len();
        let address = &buffer[..NAME_BYTES_MAX - left];
        let Some(kind) = text.strip_suffix(address) else {
            return answered;
        };
        if kind.len() > NAME_BYTES_MAX - 20 {
            return answered;
        }
        let mut name = [0; NAME_BYTES_MAX];
        let mut rest = &mut name[..];
        let _ = rest.write_all(kind);
        let _ = write!(rest, ": 0x{:016x}", number_of(place));
        let left = rest.len();
        ffi::lua_pushlstring(state, name.as_ptr().cast(), NAME_BYTES_MAX - left);
        1
    }
}
