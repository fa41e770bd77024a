//! Direct access to Lua's stack.
//!
//! The safe interface of `mlua` keeps a reference of its own to every string and table that passes it, which
//! costs a few hundred instructions per value. The operations that every script needs go through this module
//! instead: passing lists of texts to a script, calls of our functions with texts, and returning a text to the
//! script. The module does not know what the texts mean.
//!
//! ```text
//! into Lua    set_lists, list      texts as tables; Kept: a reusable table of texts
//!             answer               a text as a function's return value
//! out of Lua  Taken                the arguments of a function, passed one by one to a `Take`
//! both        call_below           calls a function with an error handler, which is Pinned
//!             direct               a function of ours that Lua calls without intermediaries, a `Direct`
//!             screen               functions of Lua's own, guarded by a check of their arguments
//!             compiling            compiles long texts piece by piece
//!             naming               tostring, without addresses
//!             protected            calls that catch errors, and coroutines, which track what runs
//! meanwhile   attention            makes long-running code check the clock
//! ```
//!
//! Invariant: no Lua error passes one of our frames, except those of [`enter`] and of screened functions, which
//! have nothing left to drop by then. Of the Lua functions called here, those that allocate can only fail for
//! lack of memory, and never do: the interpreter's memory limit is lifted meanwhile ([`Lifted`]), and without a
//! limit its allocator returns memory or ends the process. They may collect garbage, but no garbage has a
//! finalizer that fails (scripts cannot create finalizers). Long or numerous values are passed through the safe
//! interface.

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

/// Bytes that are passed without checking the memory limit.
const FREE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of texts of a list that is created directly.
const TEXTS_MAX: usize = 4096;

/// Guard that lifts the interpreter's memory limit while it exists. Its owner must run no code outside of this
/// module.
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
/// 2. The memory limit is lifted.
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
/// 2. The memory limit is lifted.
#[inline]
unsafe fn push_list(state: *mut mlua::lua_State, texts: &[&[u8]]) {
    // SAFETY: callers pass at most TEXTS_MAX texts. The table is on top, and below each text that is stored into
    // it, so the index refers to a table; the rest is 1 and 2 of the contract.
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

/// Stores tables of texts in a table, each under its name, without metamethods.
pub fn set_lists(lua: &Lua, table: &Table, lists: [(&LuaString, &[&[u8]]); 2]) -> mlua::Result<()> {
    if let Some(_lifted) = Lifted::of(lua)
        && lists.iter().all(|(_, texts)| is_small(texts))
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room is made first for the at most four values on the stack, and the memory limit is lifted.
            // The table lies below the name and the list when these are stored into it, and the name is not nil.
            // What was pushed is popped again, even if a push fails: only references are pushed that way, which
            // cannot fail.
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

/// Maximum number of texts in a reusable [`ReusableTextTable`] list.
const KEPT_TEXTS_MAX: usize = 16;

/// Maximum bytes of each text.
const KEPT_TEXT_BYTES_MAX: usize = 1024;

/// A Lua value that is kept for long, or pushed repeatedly. It is stored in the interpreter's registry, which
/// grows as needed; `mlua`'s own references take one of only 8,000 slots on the stack of a Lua thread.
pub struct Pinned {
    place: RegistryKey,
    /// Identifies the interpreter of the value.
    home: *const c_void,
}

impl Pinned {
    /// Stores a value.
    pub fn new(lua: &Lua, value: impl IntoLua) -> mlua::Result<Pinned> {
        Ok(Pinned {
            place: lua.create_registry_value(value)?,
            home: home_of(lua),
        })
    }

    /// Whether the value belongs to this interpreter, and not to a previous one at the same address.
    pub fn is_of(&self, lua: &Lua) -> bool {
        lua.owns_registry_value(&self.place)
    }

    /// Pushes the value.
    ///
    /// # Safety
    ///
    /// 1. The stack has room for one value.
    /// 2. The state belongs to `home`.
    #[inline]
    unsafe fn push(&self, state: *mut mlua::lua_State) {
        // SAFETY: 1 and 2 of the contract; the table is read without metamethods, which cannot fail.
        unsafe { ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, self.place.id().into()) };
    }
}

/// Returns a pointer that identifies an interpreter.
#[inline]
fn home_of(lua: &Lua) -> *const c_void {
    // SAFETY: every interpreter has its own registry, a table, for its whole life; nothing is pushed.
    lua.exec_raw_lua(|raw| unsafe { ffi::lua_topointer(raw.state(), ffi::LUA_REGISTRYINDEX) })
}

/// A table of a few short texts that is refilled repeatedly.
pub struct ReusableTextTable {
    table: Table,
    pinned: Pinned,
    /// Number of the table's slots that may contain a text.
    used: Cell<usize>,
}

impl ReusableTextTable {
    /// Creates an empty list.
    pub fn new(lua: &Lua) -> mlua::Result<ReusableTextTable> {
        let table = lua.create_table_with_capacity(KEPT_TEXTS_MAX, 0)?;
        Ok(ReusableTextTable {
            pinned: Pinned::new(lua, &table)?,
            table,
            used: Cell::new(0),
        })
    }

    /// Returns the table, which no other code may change.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether these texts are few and short enough.
    #[inline]
    pub fn fits(&self, texts: &[&[u8]]) -> bool {
        texts.len() <= KEPT_TEXTS_MAX && texts.iter().all(|text| text.len() <= KEPT_TEXT_BYTES_MAX)
    }

    /// Replaces the texts in the table.
    ///
    /// # Safety
    ///
    /// 1. The stack has room for two values.
    /// 2. The state belongs to the table's interpreter.
    /// 3. The memory limit is lifted.
    #[inline]
    unsafe fn fill(&self, state: *mut mlua::lua_State, texts: &[&[u8]]) {
        let texts = &texts[..texts.len().min(KEPT_TEXTS_MAX)];
        // SAFETY: the contract. The table lies below what is stored into it, and is popped again.
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

/// Creates a table of texts.
pub fn list(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Table> {
    if let Some(_lifted) = Lifted::of(lua)
        && is_small(texts)
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room is made for the table, a text, and what `pop` needs; the memory limit is lifted; the
            // table that is popped is the one that was pushed.
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

/// The return value of a function.
pub struct ReturnValue(LuaReturnSlot);

enum LuaReturnSlot {
    Given(Value),
    /// Already on top of the stack.
    OnTop,
}

/// Makes a text the return value of one of our functions; the result must be returned immediately.
#[inline]
pub fn answer(lua: &Lua, text: &[u8]) -> mlua::Result<ReturnValue> {
    if text.len() <= FREE_BYTES_MAX
        && let Some(_lifted) = Lifted::of(lua)
    {
        return lua.exec_raw_lua(|raw| {
            let state = raw.state();
            // SAFETY: room is made for the text; the memory limit is lifted.
            unsafe {
                if ffi::lua_checkstack(state, 1) == 0 {
                    return Err(mlua::Error::StackError);
                }
                push_text(state, text);
            }
            Ok(ReturnValue(LuaReturnSlot::OnTop))
        });
    }
    lua.create_string(text)
        .map(|text| Value::String(text).into())
}

impl From<Value> for ReturnValue {
    fn from(value: Value) -> ReturnValue {
        ReturnValue(LuaReturnSlot::Given(value))
    }
}

impl IntoLuaMulti for ReturnValue {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self.0 {
            LuaReturnSlot::Given(value) => value.into_lua_multi(lua),
            LuaReturnSlot::OnTop => Err(mlua::Error::runtime(
                "an answer is returned, and nothing else",
            )),
        }
    }

    #[inline]
    unsafe fn push_into_stack_multi(self, lua: &RawLua) -> mlua::Result<c_int> {
        match self.0 {
            LuaReturnSlot::Given(value) => {
                // SAFETY: the caller guarantees this function's contract; one value is pushed, for which a function of
                // this server has room.
                unsafe { lua.push(value)? };
                Ok(1)
            }
            // Whatever is on top is a value in this function's frame, though after a misuse not the one that was
            // pushed; an empty frame returns nothing.
            LuaReturnSlot::OnTop => {
                // SAFETY: the state is the one that runs the function.
                let count = unsafe { ffi::lua_gettop(lua.state()) };
                Ok(count.min(1))
            }
        }
    }
}

/// Returns the error of a text that does not compile, losslessly, because it may contain any bytes. Call only
/// for texts that are known not to compile; if the error cannot be read, returns `message`.
#[cold]
pub fn compile_failure(lua: &Lua, code: &[u8], name: &str, message: String) -> String {
    let (Some(_lifted), Ok(name)) = (Lifted::of(lua), std::ffi::CString::new(name)) else {
        return message;
    };
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for what is pushed, and the memory limit is lifted. The code is readable for its
        // length, and the name ends with a zero. Compiling is protected, and leaves a function or a text, which is
        // popped again. Reading a text's bytes does not convert it, and they stay in place while it is on the
        // stack.
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

/// An argument of a function.
pub enum LuaArgument<'s> {
    /// A string.
    Text(&'s [u8]),
    /// A number.
    Number(f64),
    /// An argument of any other type.
    Other,
}

/// Receives the arguments of a call.
pub trait Take: 'static {
    /// Receives one argument; they arrive in order.
    fn take(argument: LuaArgument<'_>);
}

/// Marker parameter of a function whose arguments were all passed to `T`.
pub struct LuaCallArguments<T: Take>(PhantomData<T>);

impl<T: Take> FromLuaMulti for LuaCallArguments<T> {
    fn from_lua_multi(values: MultiValue, _: &Lua) -> mlua::Result<Self> {
        for value in values {
            match value {
                Value::String(text) => T::take(LuaArgument::Text(&text.as_bytes())),
                Value::Integer(number) => T::take(LuaArgument::Number(number as f64)),
                Value::Number(number) => T::take(LuaArgument::Number(number)),
                _ => T::take(LuaArgument::Other),
            }
        }
        Ok(LuaCallArguments(PhantomData))
    }

    #[inline]
    unsafe fn from_stack_multi(count: c_int, lua: &RawLua) -> mlua::Result<Self> {
        let state = lua.state();
        for index in -count..0 {
            // SAFETY: the caller guarantees that this many values are on the stack; `take` has no access to the
            // state, so that they stay there while it runs.
            T::take(unsafe { argument(state, index) });
        }
        Ok(LuaCallArguments(PhantomData))
    }
}

// Both -----------------------------------------------------------------------------------------------------------

/// Maximum number of arguments of a call.
const CALL_ARGUMENTS_MAX: usize = 16;

/// The outcome of a call.
pub enum Called<R> {
    /// The call returned a text, from which the caller made this value.
    Text(R),
    /// The call returned another value.
    Value(Value),
    /// The call failed: the error handler's result, or an error text of Lua itself.
    Failed(Value),
}

/// Fills lists with texts that [fit](ReusableTextTable::fits), then calls a function with a handler that receives
/// raised errors. Handler and lists must belong to this interpreter.
pub fn call_below<R>(
    lua: &Lua,
    handler: &Pinned,
    function: &Pinned,
    filled: &[(&ReusableTextTable, &[&[u8]])],
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
        // SAFETY: room is made for handler, function, arguments and result, before that for a list and a text, and
        // for what `pop_value` needs; the memory limit is lifted until the function is called, when it applies
        // again. Pushing mlua's references takes no memory. The pinned values belong to this interpreter. The call
        // is protected, and leaves one result in any case. Reading a text's bytes does not convert it, and they
        // stay in place while it is on the stack, which is until `on_text` returns.
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

/// The result of a [`Direct`] function.
#[derive(Clone, Copy)]
pub struct Return(Returned);

#[derive(Clone, Copy)]
enum Returned {
    /// The text in [`TEXT`].
    Text,
    /// A table with the text in [`TEXT`] under this name.
    Field(&'static str),
    Number(f64),
    Boolean(bool),
    Otherwise,
}

/// Maximum length of a text in a [`Return`].
pub const RETURN_BYTES_MAX: usize = 1024;

thread_local! {
    /// A text on its way into Lua; only touched by [`Return::text`] and [`enter`].
    static TEXT: UnsafeCell<Vec<u8>> = const { UnsafeCell::new(Vec::new()) };
}

impl Return {
    /// Creates a text result, if it is no longer than [`RETURN_BYTES_MAX`]; it must be returned immediately.
    #[inline]
    pub fn text(text: &[u8]) -> Option<Return> {
        Return::with_text(Returned::Text, text)
    }

    /// Creates a result that is a table with such a text under a name, and nothing else.
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
            // SAFETY: the cell is thread-local, and no reference to its content outlives a function of this file.
            let kept = unsafe { &mut *place.get() };
            kept.clear();
            kept.extend_from_slice(text);
        });
        Some(Return(returned))
    }

    /// Creates a number result.
    #[inline]
    pub fn number(number: f64) -> Return {
        Return(Returned::Number(number))
    }

    /// Creates a boolean result.
    #[inline]
    pub fn boolean(value: bool) -> Return {
        Return(Returned::Boolean(value))
    }

    /// Creates a result that makes Lua call the fallback function given to `direct`, without arguments.
    #[inline]
    pub fn otherwise() -> Return {
        Return(Returned::Otherwise)
    }
}

/// A function that Lua calls directly. The function has no access to the interpreter, and a panic in it ends
/// the process.
pub trait Direct: 'static {
    /// Handles a call.
    fn call(given: &Given<'_>) -> Return;
}

/// Guard that ends the process on a panic, which must not unwind into the interpreter's frames.
struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Makes a Lua function from a [`Direct`] one, with a fallback for calls that it delegates.
pub fn direct<D: Direct>(lua: &Lua, otherwise: &Function) -> mlua::Result<Function> {
    closure(lua, enter::<D>, otherwise)
}

/// Makes a function from its entry point, with another function as its upvalue.
fn closure(lua: &Lua, entry: ffi::lua_CFunction, upvalue: &Function) -> mlua::Result<Function> {
    let _lifted = Lifted::of(lua);
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for the two values, one after the other, and for what `pop` needs; the memory limit
        // is lifted. Pushing mlua's references takes no memory.
        unsafe {
            if ffi::lua_checkstack(state, 4) == 0 {
                return Err(mlua::Error::StackError);
            }
            raw.push(upvalue)?;
            ffi::lua_pushcclosure(state, entry, 1);
            raw.pop()
        }
    })
}

/// Passes the arguments of a call to `look`, in which a panic ends the process. Returns the number of arguments,
/// and the result.
///
/// # Safety
///
/// 1. `state` was passed by Lua to one of its functions, which has not touched the stack.
/// 2. What is passed to `look` is not used after it returned.
#[inline(always)]
unsafe fn with_given<R>(
    state: *mut mlua::lua_State,
    look: impl FnOnce(&Given<'_>) -> R,
) -> (c_int, R) {
    let fatal = Fatal;
    // SAFETY: the caller guarantees (1).
    let count = unsafe { ffi::lua_gettop(state) };
    // SAFETY: the caller guarantees (1) and (2).
    let given = unsafe { Given::new(state, count) };
    let result = look(&given);
    std::mem::forget(fatal);
    (count, result)
}

/// Entry point of a [`Direct`] function.
///
/// # Safety
///
/// For Lua only, as a closure with one upvalue.
unsafe extern "C-unwind" fn enter<D: Direct>(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua passes a usable state, and the callee returns before anything changes its stack.
    let (_, Return(returned)) = unsafe { with_given(state, D::call) };
    // SAFETY: Lua leaves a function room for some values besides its arguments. An error, for lack of memory or
    // from the fallback function, passes this frame by a jump: nothing is left in it to be dropped. The table lies
    // below the name and the text when these are stored into it.
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

/// Pushes the text in [`TEXT`].
///
/// # Safety
///
/// 1. The stack has room for one value.
/// 2. An error, for lack of memory, may pass the caller's frame.
#[inline]
unsafe fn push_kept_text(state: *mut mlua::lua_State) {
    let (start, len) = TEXT.with(|place| {
        // SAFETY: no reference to its content outlives a function of this file, and none exists now.
        let text = unsafe { &*place.get() };
        (text.as_ptr(), text.len())
    });
    // SAFETY: the contract. The text is readable for its length, and Lua copies it before anything can touch the
    // cell again, because nothing that it calls meanwhile is ours. Nothing is left here to be dropped.
    unsafe { ffi::lua_pushlstring(state, start.cast(), len) };
}

/// Reads a value on the stack.
///
/// # Safety
///
/// There is a value at this index, and it stays there for the lifetime.
#[inline]
unsafe fn argument<'s>(state: *mut mlua::lua_State, index: c_int) -> LuaArgument<'s> {
    // SAFETY: the contract. Reading a string's bytes does not convert it, and they stay in place while it is on the
    // stack.
    unsafe {
        match ffi::lua_type(state, index) {
            ffi::LUA_TSTRING => {
                let mut len = 0;
                let start = ffi::lua_tolstring(state, index, &mut len);
                LuaArgument::Text(std::slice::from_raw_parts(start.cast::<u8>(), len))
            }
            ffi::LUA_TNUMBER => LuaArgument::Number(ffi::lua_tonumber(state, index)),
            _ => LuaArgument::Other,
        }
    }
}

#[cfg(test)]
mod tests;
