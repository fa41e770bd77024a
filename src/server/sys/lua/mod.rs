//! Lua's stack, read and written in place.
//!
//! The safe interface of `mlua` holds every string and table that passes it by a reference of its own, which costs a
//! few hundred instructions a value. What each script does goes through here instead: it is given lists of texts, and
//! it calls functions of ours with texts and gets a text. Knows nothing of what these are.
//!
//! ```text
//! into Lua    set_lists, list      texts as tables; Kept: the same table with other texts
//!             answer               a text as what a function returns
//! out of Lua  Taken                the arguments of a function, shown one after the other to a `Take`
//! both        call_below           a function is called below a handler of errors, which is Pinned
//!             direct               a function of ours that Lua calls without anything in between, a `Direct`
//!             screen               functions of Lua's own behind a look at what they are called with
//!             compiling            long texts are compiled piece by piece
//!             naming               tostring, without addresses
//!             protected            calls that catch errors, and coroutines, which say what runs
//! meanwhile   attention            what runs for long looks at the clock
//! ```
//!
//! Invariant: no error of Lua's passes a frame of ours, but for that of [`enter`] and that of a screened function,
//! which have nothing to drop by then. Of the functions of Lua that are called here those that allocate can fail for
//! want of memory only, and never do: the bound of the interpreter is lifted meanwhile ([`Lifted`]), and without a
//! bound its allocator gives memory or ends the process. They may collect garbage, of which nothing has a finalizer
//! that fails (scripts can make none). What is long, or many, goes the safe way.

#![expect(
    unsafe_code,
    reason = "Lua's stack is reached by raw pointers; the safe interface costs more than the scripts"
)]

pub mod attention;
pub mod compiling;
mod given;
pub mod naming;
pub mod protected;
pub mod screen;

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use mlua::state::RawLua;
use mlua::{
    FromLuaMulti, Function, IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, RegistryKey, Table,
    Value, ffi,
};

use basalt_core::base::lossless;

pub use given::{Given, Sort};

/// Bytes that are passed without a look at the bound of memory.
const FREE_BYTES_MAX: usize = 64 * 1024;

/// Texts of a list that is made in place.
const TEXTS_MAX: usize = 4096;

/// The interpreter has no bound of memory while this lives. Its holder runs no code but what stands in this file.
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
    // SAFETY: no more than TEXTS_MAX texts are asked for. The table lies on top, and below each text that is put into
    // it, so the index names a table; the rest is 1 and 2 of the contract.
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
            // SAFETY: room for the four values that lie on the stack at most is made first, and the bound is lifted.
            // The table lies below the name and the list when these are put into it, and the name is no nil. What was
            // pushed is popped again, also if a push fails: references alone are pushed that way, which cannot.
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

/// Texts of a [`Kept`] list.
const KEPT_TEXTS_MAX: usize = 16;

/// Bytes of each of them.
const KEPT_TEXT_BYTES_MAX: usize = 1024;

/// A value of an interpreter that is kept for long, or pushed again and again. It lies in the interpreter's registry,
/// which grows with what is kept: what `mlua` refers to otherwise has a place on the stack of one of Lua's threads, of
/// which there are 8,000.
pub struct Pinned {
    place: RegistryKey,
    /// The interpreter of the value.
    home: *const c_void,
}

impl Pinned {
    /// Keeps a value.
    pub fn new(lua: &Lua, value: impl IntoLua) -> mlua::Result<Pinned> {
        Ok(Pinned {
            place: lua.create_registry_value(value)?,
            home: home_of(lua),
        })
    }

    /// Whether this is a value of an interpreter, and not of one that is gone and had its place.
    pub fn is_of(&self, lua: &Lua) -> bool {
        lua.owns_registry_value(&self.place)
    }

    /// Pushes it.
    ///
    /// # Safety
    ///
    /// 1. The stack has room for one value.
    /// 2. The state is one of `home`'s.
    #[inline]
    unsafe fn push(&self, state: *mut mlua::lua_State) {
        // SAFETY: 1 and 2 of the contract; a table is read without asking metatables, which cannot fail.
        unsafe { ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, self.place.id().into()) };
    }
}

/// What tells interpreters apart.
#[inline]
fn home_of(lua: &Lua) -> *const c_void {
    // SAFETY: every interpreter has its own registry, a table, as long as it lives; nothing is pushed.
    lua.exec_raw_lua(|raw| unsafe { ffi::lua_topointer(raw.state(), ffi::LUA_REGISTRYINDEX) })
}

/// A table of a few short texts that is filled again and again.
pub struct Kept {
    table: Table,
    pinned: Pinned,
    /// How many places may be in use.
    used: Cell<usize>,
}

impl Kept {
    /// An empty one.
    pub fn new(lua: &Lua) -> mlua::Result<Kept> {
        let table = lua.create_table_with_capacity(KEPT_TEXTS_MAX, 0)?;
        Ok(Kept {
            pinned: Pinned::new(lua, &table)?,
            table,
            used: Cell::new(0),
        })
    }

    /// The table, which no other code may change.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether these are few and short.
    #[inline]
    pub fn fits(&self, texts: &[&[u8]]) -> bool {
        texts.len() <= KEPT_TEXTS_MAX && texts.iter().all(|text| text.len() <= KEPT_TEXT_BYTES_MAX)
    }

    /// Makes it hold these texts.
    ///
    /// # Safety
    ///
    /// 1. The stack has room for two values.
    /// 2. The state is one of the interpreter's that the table is of.
    /// 3. The bound of memory is lifted.
    #[inline]
    unsafe fn fill(&self, state: *mut mlua::lua_State, texts: &[&[u8]]) {
        let texts = &texts[..texts.len().min(KEPT_TEXTS_MAX)];
        // SAFETY: the contract. The table lies below what is put into it, and is popped again.
        unsafe {
            self.pinned.push(state);
            for (at, text) in texts.iter().enumerate() {
                push_text(state, text);
                ffi::lua_rawseti(state, -2, at as ffi::lua_Integer + 1);
            }
            for at in texts.len()..self.used.get() {
                ffi::lua_pushnil(state);
                ffi::lua_rawseti(state, -2, at as ffi::lua_Integer + 1);
            }
            ffi::lua_pop(state, 1);
        }
        self.used.set(texts.len());
    }
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
            // Whatever lies on top is a value of this function's frame, be it by a misuse not the one that was pushed;
            // of an empty frame none is returned.
            Place::OnTop => {
                // SAFETY: the state is the one that runs the function.
                let count = unsafe { ffi::lua_gettop(lua.state()) };
                Ok(count.min(1))
            }
        }
    }
}

/// Why a text does not compile, as any bytes may stand in it; `message` is what is known of it. For texts that were
/// found not to.
#[cold]
pub fn compile_failure(lua: &Lua, code: &[u8], name: &str, message: String) -> String {
    let (Some(_lifted), Ok(name)) = (Lifted::of(lua), std::ffi::CString::new(name)) else {
        return message;
    };
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room for what is pushed is made, and the bound is lifted. The code is readable for its length, and
        // the name ends with a zero. Compiling is protected, and leaves a function or a text, which is popped again. A
        // text is not converted by asking for its bytes, and stays where it is while it lies on the stack.
        unsafe {
            if ffi::lua_checkstack(state, 2) == 0 {
                return message;
            }
            let mode = c"t".as_ptr();
            let status =
                ffi::luaL_loadbufferx(state, code.as_ptr().cast(), code.len(), name.as_ptr(), mode);
            let mut text = message;
            if status != ffi::LUA_OK && ffi::lua_type(state, -1) == ffi::LUA_TSTRING {
                let mut len = 0;
                let start = ffi::lua_tolstring(state, -1, &mut len);
                text =
                    lossless::text_of(std::slice::from_raw_parts(start.cast(), len)).into_owned();
            }
            ffi::lua_pop(state, 1);
            text
        }
    })
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

/// Sees the arguments of a call.
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
            // SAFETY: the caller says that so many values lie on the stack; `take` gets no hold of the state, so that
            // they stay there while it runs.
            T::take(unsafe { argument(state, index) });
        }
        Ok(Taken(PhantomData))
    }
}

// Both -----------------------------------------------------------------------------------------------------------

/// Arguments of a function that is called.
const CALL_ARGUMENTS_MAX: usize = 16;

/// How a call ended.
pub enum Called<R> {
    /// With a text, of which the caller made this.
    Text(R),
    /// With another value.
    Value(Value),
    /// With an error: what the handler made of it, or a text of Lua's own.
    Failed(Value),
}

/// Fills lists with texts, which [fit](Kept::fits), then calls a function below a handler that is called with what is
/// raised. Handler and lists are of this interpreter.
pub fn call_below<R>(
    lua: &Lua,
    handler: &Pinned,
    function: &Pinned,
    filled: &[(&Kept, &[&[u8]])],
    arguments: &[Table],
    on_text: impl FnOnce(&[u8]) -> R,
) -> mlua::Result<Called<R>> {
    let home = home_of(lua);
    let are_here = handler.home == home
        && function.home == home
        && filled.iter().all(|(kept, _)| kept.pinned.home == home);
    assert!(are_here, "a value of another interpreter");
    if arguments.len() > CALL_ARGUMENTS_MAX {
        return Err(mlua::Error::StackError);
    }
    let Some(lifted) = Lifted::of(lua) else {
        return Err(mlua::Error::MemoryControlNotAvailable);
    };
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for handler, function, arguments and result, for a list and a text before that, and for
        // what `pop_value` needs; the bound is lifted until the function is called, which is when it holds again.
        // Pushing what mlua refers to takes no memory. What is pinned is of this interpreter. The call is protected,
        // and gives one result in any case. A text is not converted by asking for its bytes, and stays where it is
        // while it lies on the stack, which is until `on_text` is over.
        unsafe {
            if ffi::lua_checkstack(state, arguments.len() as c_int + 8) == 0 {
                return Err(mlua::Error::StackError);
            }
            let top = ffi::lua_gettop(state);
            for (kept, texts) in filled {
                kept.fill(state, texts);
            }
            drop(lifted);
            handler.push(state);
            function.push(state);
            let mut pushed = Ok(());
            for argument in arguments {
                pushed = pushed.and_then(|()| raw.push(argument));
            }
            if let Err(error) = pushed {
                ffi::lua_settop(state, top);
                return Err(error);
            }
            let entered = attention::Entered::new(state);
            let status = ffi::lua_pcall(state, arguments.len() as c_int, 1, top + 1);
            drop(entered);
            let called = if status != ffi::LUA_OK {
                Called::Failed(raw.pop_value())
            } else if ffi::lua_type(state, -1) == ffi::LUA_TSTRING {
                let mut len = 0;
                let start = ffi::lua_tolstring(state, -1, &mut len);
                Called::Text(on_text(std::slice::from_raw_parts(start.cast(), len)))
            } else {
                Called::Value(raw.pop_value())
            };
            ffi::lua_settop(state, top);
            Ok(called)
        }
    })
}

/// What a [`Direct`] function answers.
#[derive(Clone, Copy)]
pub struct Return(Returned);

#[derive(Clone, Copy)]
enum Returned {
    /// What was put into [`TEXT`].
    Text,
    /// The text in [`TEXT`], in a table under this name.
    Field(&'static str),
    Number(f64),
    Boolean(bool),
    Otherwise,
}

/// Longer texts are no [`Return`].
pub const RETURN_BYTES_MAX: usize = 1024;

thread_local! {
    /// A text on its way into Lua; touched by [`Return::text`] and [`enter`] alone.
    static TEXT: UnsafeCell<Vec<u8>> = const { UnsafeCell::new(Vec::new()) };
}

impl Return {
    /// A text, if it is no longer than [`RETURN_BYTES_MAX`]; it is to be returned at once.
    #[inline]
    pub fn text(text: &[u8]) -> Option<Return> {
        Return::with_text(Returned::Text, text)
    }

    /// A table with nothing but such a text in it, under a name.
    #[inline]
    pub fn field(name: &'static str, text: &[u8]) -> Option<Return> {
        Return::with_text(Returned::Field(name), text)
    }

    #[inline]
    fn with_text(returned: Returned, text: &[u8]) -> Option<Return> {
        if text.len() > RETURN_BYTES_MAX {
            return None;
        }
        TEXT.with(|place| {
            // SAFETY: the place is the thread's own, and no reference to what is in there outlives a function of this
            // file.
            let kept = unsafe { &mut *place.get() };
            kept.clear();
            kept.extend_from_slice(text);
        });
        Some(Return(returned))
    }

    /// A number.
    #[inline]
    pub fn number(number: f64) -> Return {
        Return(Returned::Number(number))
    }

    /// True or false.
    #[inline]
    pub fn boolean(value: bool) -> Return {
        Return(Returned::Boolean(value))
    }

    /// What the other function returns, or raises, that was given with this one; it is called without arguments.
    #[inline]
    pub fn otherwise() -> Return {
        Return(Returned::Otherwise)
    }
}

/// A function that Lua calls directly. It has no access to the interpreter, and a panic in it ends the process.
pub trait Direct: 'static {
    /// The function.
    fn call(given: &Given<'_>) -> Return;
}

/// Ends the process when a panic passes, which must not meet the frames of the interpreter.
struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Makes a function for Lua of a [`Direct`] one, and of one that answers when that does not.
pub fn direct<D: Direct>(lua: &Lua, otherwise: &Function) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room for the two values, one after the other, and for what `pop` needs is made; the bound is lifted.
        unsafe {
            if ffi::lua_checkstack(state, 4) == 0 {
                return Err(mlua::Error::StackError);
            }
            raw.push(otherwise)?;
            ffi::lua_pushcclosure(state, enter::<D>, 1);
            raw.pop()
        }
    })
}

/// Shows the arguments of a call to somebody who may not panic; how many there are, and what that returns.
///
/// # Safety
///
/// 1. A state that Lua gave to a function of its own, which has not touched the stack.
/// 2. What `look` is shown is not used after it returned.
#[inline(always)]
unsafe fn with_given<R>(
    state: *mut mlua::lua_State,
    look: impl FnOnce(&Given<'_>) -> R,
) -> (c_int, R) {
    let fatal = Fatal;
    // SAFETY: (1).
    let count = unsafe { ffi::lua_gettop(state) };
    // SAFETY: (1) and (2).
    let given = unsafe { Given::new(state, count) };
    let result = look(&given);
    std::mem::forget(fatal);
    (count, result)
}

/// What Lua calls for a [`Direct`] function.
///
/// # Safety
///
/// For Lua only, as a closure with one value.
unsafe extern "C-unwind" fn enter<D: Direct>(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua gives a state that can be used, and what is called returns before anybody changes its stack.
    let (_, Return(returned)) = unsafe { with_given(state, D::call) };
    // SAFETY: Lua leaves a function room for some values besides its arguments. An error, for want of memory or of the
    // other function, passes this frame by a jump: nothing is left in it that is to be dropped. The table lies below
    // the name and the text when these are put into it.
    unsafe {
        match returned {
            Returned::Text => push_kept_text(state),
            Returned::Field(name) => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_pushlstring(state, name.as_ptr().cast(), name.len());
                push_kept_text(state);
                ffi::lua_rawset(state, -3);
            }
            Returned::Number(number) => ffi::lua_pushnumber(state, number),
            Returned::Boolean(value) => ffi::lua_pushboolean(state, c_int::from(value)),
            Returned::Otherwise => {
                ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
                ffi::lua_call(state, 0, 1);
            }
        }
    }
    1
}

/// Pushes what is in [`TEXT`].
///
/// # Safety
///
/// 1. The stack has room for one value.
/// 2. An error, for want of memory, may pass the caller's frame.
#[inline]
unsafe fn push_kept_text(state: *mut mlua::lua_State) {
    let (start, len) = TEXT.with(|place| {
        // SAFETY: no reference to what is in there outlives a function of this file, and none is out now.
        let text = unsafe { &*place.get() };
        (text.as_ptr(), text.len())
    });
    // SAFETY: the contract. The text is readable for its length, and Lua copies it before anybody can touch the place
    // again, as nothing that it calls meanwhile is ours. Nothing is left here that is to be dropped.
    unsafe { ffi::lua_pushlstring(state, start.cast(), len) };
}

/// A value on the stack.
///
/// # Safety
///
/// There is one at this index, and it stays there for as long as the lifetime says.
#[inline]
unsafe fn argument<'s>(state: *mut mlua::lua_State, index: c_int) -> Argument<'s> {
    // SAFETY: the contract. A string is not converted by asking for its bytes, and these stay where they are while it
    // lies there.
    unsafe {
        match ffi::lua_type(state, index) {
            ffi::LUA_TSTRING => {
                let mut len = 0;
                let start = ffi::lua_tolstring(state, index, &mut len);
                Argument::Text(std::slice::from_raw_parts(start.cast::<u8>(), len))
            }
            ffi::LUA_TNUMBER => Argument::Number(ffi::lua_tonumber(state, index)),
            _ => Argument::Other,
        }
    }
}

#[cfg(test)]
mod tests;
