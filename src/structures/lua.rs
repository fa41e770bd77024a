//! Lua's stack, read and written in place.
//!
//! The safe interface of `mlua` holds every string and table that passes it by a reference of its own, which costs a few
//! hundred instructions a value. What each script does goes through here instead: it is given lists of texts, and it
//! calls functions of ours with texts and gets a text. Knows nothing of what these are.
//!
//! ```text
//! into Lua    set_lists, list      texts as tables
//!             answer               a text as what a function returns
//! out of Lua  Taken                the arguments of a function, shown one after the other to a `Take`
//! ```
//!
//! Invariant: no error of Lua's passes a frame of ours. Of the functions of Lua that are called here those that allocate
//! can fail for want of memory only, and never do: the bound of the interpreter is lifted meanwhile ([`Lifted`]), and
//! without a bound its allocator gives memory or ends the process. They may collect garbage, of which nothing has a
//! finalizer that fails (scripts can make none). What is long, or many, goes the safe way.

#![expect(
    unsafe_code,
    reason = "Lua's stack is reached by raw pointers; the safe interface costs more than the scripts"
)]

use std::ffi::c_int;
use std::marker::PhantomData;

use mlua::state::RawLua;
use mlua::{FromLuaMulti, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value, ffi};

/// Bytes that are passed without a look at the bound of memory.
const FREE_BYTES_MAX: usize = 64 * 1024;

/// Texts of a list that is made in place.
const TEXTS_MAX: usize = 4096;

/// The interpreter has no bound of memory while this lives. Whoever holds it runs no code but what stands in this file.
struct Lifted<'l> {
    lua: &'l Lua,
    bound: usize,
}

impl<'l> Lifted<'l> {
    #[inline]
    fn of(lua: &'l Lua) -> Option<Lifted<'l>> {
        let bound = lua.set_memory_limit(0).ok()?;
        Some(Lifted { lua, bound })
    }
}

impl Drop for Lifted<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = self.lua.set_memory_limit(self.bound);
    }
}

// Into Lua -------------------------------------------------------------------------------------------------------

/// Pushes a text.
///
/// # Safety
///
/// 1. The stack has room for one value.
/// 2. The bound of memory is lifted.
#[inline]
unsafe fn push_text(state: *mut mlua::lua_State, text: &[u8]) {
    // SAFETY: the text is readable for its length, and Lua copies it; the rest is 1 and 2 of the contract.
    unsafe { ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len()) };
}

/// Pushes a table of texts.
///
/// # Safety
///
/// 1. The stack has room for two values.
/// 2. The bound of memory is lifted.
#[inline]
unsafe fn push_list(state: *mut mlua::lua_State, texts: &[&[u8]]) {
    // SAFETY: no more than TEXTS_MAX texts are asked for. The table lies on top, and below each text that is put into it,
    // so the index names a table; the rest is 1 and 2 of the contract.
    unsafe {
        ffi::lua_createtable(state, texts.len() as c_int, 0);
        for (at, text) in texts.iter().enumerate() {
            push_text(state, text);
            ffi::lua_rawseti(state, -2, at as ffi::lua_Integer + 1);
        }
    }
}

fn is_small(texts: &[&[u8]]) -> bool {
    texts.len() <= TEXTS_MAX && texts.iter().map(|text| text.len()).sum::<usize>() <= FREE_BYTES_MAX
}

/// Puts tables of texts into a table, each under its name; metatables are not asked.
pub fn set_lists(lua: &Lua, table: &Table, lists: [(&LuaString, &[&[u8]]); 2]) -> mlua::Result<()> {
    if let Some(_lifted) = Lifted::of(lua)
        && lists.iter().all(|(_, texts)| is_small(texts))
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room for the four values that lie on the stack at most is made first, and the bound is lifted. The
            // table lies below the name and the list when these are put into it, and the name is no nil. What was pushed
            // is popped again, also if a push fails: references alone are pushed that way, which cannot.
            unsafe {
                if ffi::lua_checkstack(state, 6) == 0 {
                    return Err(mlua::Error::StackError);
                }
                raw.push(table)?;
                for (name, texts) in lists {
                    raw.push(name)?;
                    push_list(state, texts);
                    ffi::lua_rawset(state, -3);
                }
                ffi::lua_pop(state, 1);
            }
            Ok(())
        });
    }
    for (name, texts) in lists {
        table.raw_set(name, long_list(lua, texts)?)?;
    }
    Ok(())
}

/// A table of texts.
pub fn list(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Table> {
    if let Some(_lifted) = Lifted::of(lua)
        && is_small(texts)
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room is made for the table, a text, and what `pop` needs; the bound is lifted; the table that is
            // popped is the one that was pushed.
            unsafe {
                if ffi::lua_checkstack(state, 4) == 0 {
                    return Err(mlua::Error::StackError);
                }
                push_list(state, texts);
                raw.pop()
            }
        });
    }
    long_list(lua, texts)
}

#[cold]
fn long_list(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(texts.len(), 0)?;
    for (at, text) in texts.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(text)?)?;
    }
    Ok(table)
}

/// What a function returns: one value.
pub struct Answer(Place);

enum Place {
    Given(Value),
    /// On top of the stack already.
    OnTop,
}

/// A text as the value that a function of ours returns, which is what the answer is to be used for, at once.
#[inline]
pub fn answer(lua: &Lua, text: &[u8]) -> mlua::Result<Answer> {
    if text.len() <= FREE_BYTES_MAX
        && let Some(_lifted) = Lifted::of(lua)
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room for the text is made; the bound is lifted.
            unsafe {
                if ffi::lua_checkstack(state, 1) == 0 {
                    return Err(mlua::Error::StackError);
                }
                push_text(state, text);
            }
            Ok(Answer(Place::OnTop))
        });
    }
    lua.create_string(text)
        .map(|text| Value::String(text).into())
}

impl From<Value> for Answer {
    fn from(value: Value) -> Answer {
        Answer(Place::Given(value))
    }
}

impl IntoLuaMulti for Answer {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self.0 {
            Place::Given(value) => value.into_lua_multi(lua),
            Place::OnTop => Err(mlua::Error::runtime(
                "an answer is returned, and nothing else",
            )),
        }
    }

    #[inline]
    unsafe fn push_into_stack_multi(self, lua: &RawLua) -> mlua::Result<c_int> {
        match self.0 {
            Place::Given(value) => {
                // SAFETY: passed on; one value is pushed, which a function of ours has room for.
                unsafe { lua.push(value)? };
                Ok(1)
            }
            // Whatever lies on top is a value of this function's frame, be it by a misuse not the one that was pushed; of
            // an empty frame none is returned.
            Place::OnTop => {
                // SAFETY: the state is the one that runs the function.
                let count = unsafe { ffi::lua_gettop(lua.state()) };
                Ok(count.min(1))
            }
        }
    }
}

// Out of Lua -----------------------------------------------------------------------------------------------------

/// What a function was called with.
pub enum Argument<'s> {
    /// A string.
    Text(&'s [u8]),
    /// A number.
    Number(f64),
    /// Anything else.
    Other,
}

/// Whoever wants to see arguments.
pub trait Take: 'static {
    /// One argument; they come in order.
    fn take(argument: Argument<'_>);
}

/// The arguments of a function, which were shown to `T`.
pub struct Taken<T: Take>(PhantomData<T>);

impl<T: Take> FromLuaMulti for Taken<T> {
    fn from_lua_multi(values: MultiValue, _: &Lua) -> mlua::Result<Self> {
        for value in values {
            match value {
                Value::String(text) => T::take(Argument::Text(&text.as_bytes())),
                Value::Integer(number) => T::take(Argument::Number(number as f64)),
                Value::Number(number) => T::take(Argument::Number(number)),
                _ => T::take(Argument::Other),
            }
        }
        Ok(Taken(PhantomData))
    }

    #[inline]
    unsafe fn from_stack_multi(count: c_int, lua: &RawLua) -> mlua::Result<Self> {
        let state = lua.state();
        for index in -count..0 {
            // SAFETY: the caller says that so many values lie on the stack.
            let kind = unsafe { ffi::lua_type(state, index) };
            match kind {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    // SAFETY: as above. A string is not converted by asking for its bytes, and they stay where they are
                    // while it lies there, which is for longer than `take` runs: it gets no hold of the state.
                    let text = unsafe {
                        let start = ffi::lua_tolstring(state, index, &mut len);
                        std::slice::from_raw_parts(start.cast::<u8>(), len)
                    };
                    T::take(Argument::Text(text));
                }
                ffi::LUA_TNUMBER => {
                    // SAFETY: as above.
                    let number = unsafe { ffi::lua_tonumber(state, index) };
                    T::take(Argument::Number(number));
                }
                _ => T::take(Argument::Other),
            }
        }
        Ok(Taken(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = RefCell::default();
    }

    struct Seen;

    impl Take for Seen {
        fn take(argument: Argument<'_>) {
            let text = match argument {
                Argument::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
                Argument::Number(number) => number.to_string(),
                Argument::Other => "other".to_owned(),
            };
            SEEN.with_borrow_mut(|seen| seen.push(text));
        }
    }

    #[test]
    fn lists_arrive_as_tables_and_leave_the_stack_as_it_was() {
        let lua = Lua::new();
        lua.set_memory_limit(1 << 26).expect("bounded");
        let names =
            [lua.create_string("A"), lua.create_string("B")].map(|name| name.expect("room"));
        let long = vec![b'x'; FREE_BYTES_MAX];
        let many = vec![&b"y"[..]; TEXTS_MAX + 1];
        for _ in 0..1000 {
            let texts: [&[u8]; 3] = [b"one", b"", b"a\0b"];
            let lists = [(&names[0], &texts[..]), (&names[1], &[][..])];
            set_lists(&lua, &lua.globals(), lists).expect("room");
        }
        let check = "return #A, A[1], A[2], A[3] == 'a\\0b', #B";
        let got: (usize, String, String, bool, usize) = lua.load(check).eval().expect("fine");
        assert_eq!(got, (3, "one".to_owned(), String::new(), true, 0));
        let texts = [&long[..], b"z"];
        let lists = [(&names[0], &texts[..]), (&names[1], &many[..])];
        set_lists(&lua, &lua.globals(), lists).expect("room");
        let got: (usize, usize, String, usize) =
            lua.load("return #A, #A[1], A[2], #B").eval().expect("fine");
        assert_eq!(got, (2, FREE_BYTES_MAX, "z".to_owned(), TEXTS_MAX + 1));
        assert_eq!(list(&lua, &texts[1..]).expect("room").raw_len(), 1);
        assert_eq!(lua.set_memory_limit(0).expect("bounded"), 1 << 26);
    }

    #[test]
    fn arguments_are_shown_in_order_and_a_text_comes_back() {
        let lua = Lua::new();
        let function = lua
            .create_function(|lua, _: Taken<Seen>| {
                let seen = SEEN.with_borrow_mut(std::mem::take);
                match seen.len() {
                    0 => Ok(Value::Nil.into()),
                    _ => answer(lua, seen.join(" ").as_bytes()),
                }
            })
            .expect("room");
        lua.globals().raw_set("f", function).expect("room");
        for (call, expected) in [
            (
                "f('a', 1, 2.5, {}, nil, 'b')",
                "\"a\" 1 2.5 other other \"b\"",
            ),
            ("tostring(f())", "nil"),
            ("f('x') .. f('y')", "\"x\"\"y\""),
            ("coroutine.wrap(function() return f('in') end)()", "\"in\""),
            ("#f(('x'):rep(100000))", "100002"),
            ("select('#', f(1, 2, 3))", "1"),
        ] {
            let got: String = lua
                .load(format!("return tostring({call})"))
                .eval()
                .expect(call);
            assert_eq!(got, expected, "{call}");
        }
    }

    #[test]
    fn many_lists_and_texts_are_garbage_that_is_collected() {
        let lua = Lua::new();
        let name = lua.create_string("A").expect("room");
        let other = lua.create_string("B").expect("room");
        for number in 0..20_000 {
            let text = number.to_string();
            let texts = [text.as_bytes()];
            let lists = [(&name, &texts[..]), (&other, &texts[..])];
            set_lists(&lua, &lua.globals(), lists).expect("room");
        }
        assert!(lua.used_memory() < 4 << 20, "{}", lua.used_memory());
    }
}
