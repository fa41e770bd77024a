//! Functions of Lua's own libraries, guarded by a check of their arguments.
//!
//! A wrapper function written in Lua would be visible in errors: Lua names the line that called its function,
//! and a tail call leaves no line. So Lua calls a single C frame of this module, in which its own function runs
//! as if called directly, unless the fallback is called.

use std::ffi::c_int;

use mlua::{Function, Lua, Table, ffi};

use super::{Given, Lifted, with_given};

/// Checks the arguments of a function. It has no access to the interpreter, and a panic in it ends the process.
pub trait Screen: 'static {
    /// Whether Lua's own function may run.
    fn passes(given: &Given<'_>) -> bool;
}

/// A screen that lets all calls pass.
pub struct Open;

impl Screen for Open {
    fn passes(_: &Given<'_>) -> bool {
        true
    }
}

/// Returns a guarded library function. Calls that pass the screen go to `function`; other calls, and those
/// whose first argument is a key of the table `refused`, go to `otherwise`.
pub fn screened<S: Screen>(
    lua: &Lua,
    function: &Function,
    refused: Option<&Table>,
    otherwise: &Function,
) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for the three values, one upvalue, and what `pop` needs; the memory limit is lifted.
        // What was pushed is popped again, except the closure, which is returned. Pushing mlua's references takes
        // no memory.
        unsafe {
            if ffi::lua_checkstack(state, 6) == 0 {
                return Err(mlua::Error::StackError);
            }
            let top = ffi::lua_gettop(state);
            let pushed = raw.push(function).and_then(|()| raw.push(otherwise));
            let pushed = pushed.and_then(|()| raw.push(refused));
            // Require a C function without upvalues: it would look for upvalues in the closure created here.
            let is_plain = pushed.is_ok()
                && ffi::lua_tocfunction(state, top + 1).is_some()
                && ffi::lua_getupvalue(state, top + 1, 1).is_null();
            if !is_plain {
                ffi::lua_settop(state, top);
                return Err(mlua::Error::runtime("a plain function of Lua's own"));
            }
            ffi::lua_pushcclosure(state, enter_screened::<S>, 3);
            raw.pop()
        }
    })
}

/// Entry point of a screened function.
///
/// # Safety
///
/// For Lua only, as a closure with three upvalues: a plain C function, another function, and a table or nil.
unsafe extern "C-unwind" fn enter_screened<S: Screen>(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua passes a usable state, and the callee returns before anything changes its stack.
    let (count, passes) = unsafe { with_given(state, S::passes) };
    // SAFETY: Lua leaves a function room for some values besides its arguments. The closure's upvalues are those in
    // the contract. Lua's function finds the frame as Lua would have passed it, and its results are the closure's.
    // An error passes this frame by a jump: nothing is left in it to be dropped.
    unsafe {
        let refused = ffi::lua_upvalueindex(3);
        let mut is_refused = false;
        if passes && count > 0 && ffi::lua_type(state, refused) == ffi::LUA_TTABLE {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_rawget(state, refused);
            is_refused = ffi::lua_type(state, -1) != ffi::LUA_TNIL;
            ffi::lua_pop(state, 1);
        }
        if passes
            && !is_refused
            && let Some(function) = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1))
        {
            return function(state);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LuaArgument;
    use super::*;

    /// A screen that rejects texts of more than three bytes.
    struct Short;

    impl Screen for Short {
        fn passes(given: &Given<'_>) -> bool {
            let mut arguments = given.iter();
            !matches!(arguments.next(), Some(LuaArgument::Text(text)) if text.len() > 3)
        }
    }

    #[test]
    fn what_passes_is_answered_by_luas_own_function_and_the_rest_by_the_other() {
        let lua = Lua::new();
        let other = "return function(...) return 'other', select('#', ...), ... end";
        let other: Function = lua.load(other).eval().expect("compiles");
        let string: Table = lua.globals().get("string").expect("there");
        let upper: Function = string.get("upper").expect("there");
        let function = screened::<Short>(&lua, &upper, None, &other).expect("plain");
        lua.globals().set("f", function).expect("room");
        let refused = lua.create_table().expect("room");
        let raw_set: Function = lua.globals().get("rawset").expect("there");
        let function = screened::<Open>(&lua, &raw_set, Some(&refused), &other).expect("plain");
        lua.globals().set("set", function).expect("room");
        let inner = lua.create_table().expect("room");
        refused.set(&inner, true).expect("room");
        lua.globals().set("inner", inner).expect("room");
        for (call, expected) in [
            ("f('abc')", "ABC"),
            ("f('abcd')", "other"),
            ("select('#', f('abcd', nil, nil))", "5"),
            ("select(2, f('abcd', nil))", "2"),
            ("f(12)", "12"),
            ("set({}, 'a', 7).a", "7"),
            ("set(inner, 'a', 7)", "other"),
            ("inner.a", "nil"),
        ] {
            let run = lua.load(format!("return tostring(({call}))")).eval();
            let got: String = run.expect(call);
            assert_eq!(got, expected, "{call}");
        }
        for (code, expected) in [
            (
                "return f()",
                "name:1: bad argument #1 to 'f' (string expected, got no value)",
            ),
            (
                "\nreturn f({})",
                "name:2: bad argument #1 to 'f' (string expected, got table)",
            ),
            (
                "local t = {f = f}\n\nlocal x = t:f()",
                "name:3: calling 'f' on bad self (string expected, got table)",
            ),
        ] {
            let failed = lua.load(code).set_name("=name").exec();
            let text = failed.expect_err(code).to_string();
            assert!(text.contains(expected), "{code}: {text}");
        }
        let closure: Function = lua.load("return function() end").eval().expect("compiles");
        assert!(screened::<Open>(&lua, &closure, None, &other).is_err());
    }
}
