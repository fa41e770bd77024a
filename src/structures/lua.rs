//! Lua's stack, read and written in place.
//!
//! The safe interface of `mlua` holds every string and table that passes it by a reference of its own, which costs a few
//! hundred instructions a value. What each script does goes through here instead: it is given lists of texts, and it
//! calls functions of ours with texts and gets a text. Knows nothing of what these are.
//!
//! ```text
//! into Lua    set_lists, list      texts as tables; Kept: the same table with other texts
//!             answer               a text as what a function returns
//! out of Lua  Taken                the arguments of a function, shown one after the other to a `Take`
//! both        call_below           a function is called below a handler of errors, which is Pinned
//!             direct               a function of ours that Lua calls without anything in between, a `Direct`
//! ```
//!
//! Invariant: no error of Lua's passes a frame of ours, but for that of [`enter`], which has nothing to drop by then. Of the functions of Lua that are called here those that allocate
//! can fail for want of memory only, and never do: the bound of the interpreter is lifted meanwhile ([`Lifted`]), and
//! without a bound its allocator gives memory or ends the process. They may collect garbage, of which nothing has a
//! finalizer that fails (scripts can make none). What is long, or many, goes the safe way.

#![expect(
    unsafe_code,
    reason = "Lua's stack is reached by raw pointers; the safe interface costs more than the scripts"
)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use mlua::state::RawLua;
use mlua::{
    FromLuaMulti, Function, IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, RegistryKey, Table,
    Value, ffi,
};

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

/// Texts of a [`Kept`] list.
const KEPT_TEXTS_MAX: usize = 16;

/// Bytes of each of them.
const KEPT_TEXT_BYTES_MAX: usize = 1024;

/// A value of an interpreter that is pushed again and again.
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

    /// The table, which nobody else may change.
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
            // SAFETY: the caller says that so many values lie on the stack; `take` gets no hold of the state, so that they
            // stay there while it runs.
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
    function: &Function,
    filled: &[(&Kept, &[&[u8]])],
    arguments: &[Table],
    on_text: impl FnOnce(&[u8]) -> R,
) -> mlua::Result<Called<R>> {
    let home = home_of(lua);
    let are_here = handler.home == home && filled.iter().all(|(kept, _)| kept.pinned.home == home);
    assert!(are_here, "a value of another interpreter");
    if arguments.len() > CALL_ARGUMENTS_MAX {
        return Err(mlua::Error::StackError);
    }
    let Some(lifted) = Lifted::of(lua) else {
        return Err(mlua::Error::MemoryControlNotAvailable);
    };
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: room is made for handler, function, arguments and result, for a list and a text before that, and for what
        // `pop_value` needs; the bound is lifted until the function is called, which is when it holds again. Pushing what
        // mlua refers to takes no memory. What is pinned is of this interpreter. The call is protected, and gives one
        // result in any case. A text is not converted by asking for its bytes, and stays where it is while it lies on the
        // stack, which is until `on_text` is over.
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
            let mut pushed = raw.push(function);
            for argument in arguments {
                pushed = pushed.and_then(|()| raw.push(argument));
            }
            if let Err(error) = pushed {
                ffi::lua_settop(state, top);
                return Err(error);
            }
            let status = ffi::lua_pcall(state, arguments.len() as c_int, 1, top + 1);
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

/// What a [`Direct`] function was called with.
pub struct Given<'s> {
    state: *mut mlua::lua_State,
    count: c_int,
    _stays: PhantomData<&'s ()>,
}

impl<'s> Given<'s> {
    /// The arguments in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Argument<'s>> {
        let state = self.state;
        // SAFETY: so many values lie on the stack, from the first place on, for as long as the function runs that made
        // this, which is no shorter than 's; nobody else gets hold of the state.
        (1..=self.count).map(move |index| unsafe { argument(state, index) })
    }
}

/// What a [`Direct`] function answers.
#[derive(Clone, Copy)]
pub struct Return(Returned);

#[derive(Clone, Copy)]
enum Returned {
    /// What was put into [`TEXT`].
    Text,
    Number(f64),
    Boolean(bool),
    Otherwise,
}

/// Longer texts are no [`Return`].
pub const RETURN_BYTES_MAX: usize = 1024;

thread_local! {
    /// A text on its way into Lua; touched by nobody but [`Return::text`] and [`enter`].
    static TEXT: UnsafeCell<Vec<u8>> = const { UnsafeCell::new(Vec::new()) };
}

impl Return {
    /// A text, if it is no longer than [`RETURN_BYTES_MAX`]; it is to be returned at once.
    #[inline]
    pub fn text(text: &[u8]) -> Option<Return> {
        if text.len() > RETURN_BYTES_MAX {
            return None;
        }
        TEXT.with(|place| {
            // SAFETY: the place is the thread's own, and no reference to what is in there outlives a function of this file.
            let kept = unsafe { &mut *place.get() };
            kept.clear();
            kept.extend_from_slice(text);
        });
        Some(Return(Returned::Text))
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

/// What Lua calls for a [`Direct`] function.
///
/// # Safety
///
/// For Lua only, as a closure with one value.
unsafe extern "C-unwind" fn enter<D: Direct>(state: *mut mlua::lua_State) -> c_int {
    let fatal = Fatal;
    // SAFETY: Lua gives a state that can be used.
    let count = unsafe { ffi::lua_gettop(state) };
    let given = Given {
        state,
        count,
        _stays: PhantomData,
    };
    let returned = D::call(&given).0;
    std::mem::forget(fatal);
    // SAFETY: Lua leaves a function room for some values besides its arguments. An error, for want of memory or of the
    // other function, passes this frame by a jump: nothing is left in it that is to be dropped. The text is readable for
    // its length, and Lua copies it before anybody can touch the place again, as nothing that it calls meanwhile is ours.
    unsafe {
        match returned {
            Returned::Text => {
                let (start, len) = TEXT.with(|place| {
                    let text = &*place.get();
                    (text.as_ptr(), text.len())
                });
                ffi::lua_pushlstring(state, start.cast(), len);
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

/// A value on the stack.
///
/// # Safety
///
/// There is one at this index, and it stays there for as long as the lifetime says.
#[inline]
unsafe fn argument<'s>(state: *mut mlua::lua_State, index: c_int) -> Argument<'s> {
    // SAFETY: the contract. A string is not converted by asking for its bytes, and these stay where they are while it lies
    // there.
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
    fn a_kept_table_holds_what_it_was_filled_with_last() {
        let lua = Lua::new();
        let kept = Kept::new(&lua).expect("room");
        lua.globals().raw_set("A", kept.table()).expect("room");
        let nothing = lua.load("").into_function().expect("compiles");
        let handler = Pinned::new(&lua, &nothing).expect("room");
        let fill = |texts: &[&[u8]]| {
            let called = call_below(&lua, &handler, &nothing, &[(&kept, texts)], &[], |_| ());
            assert!(matches!(called, Ok(Called::Value(Value::Nil))));
        };
        let texts: [&[u8]; KEPT_TEXTS_MAX] = std::array::from_fn(|at| &b"abcdefghijklmnop"[at..]);
        for count in (0..=KEPT_TEXTS_MAX).chain([3, 16, 0, 1]) {
            assert!(kept.fits(&texts[..count]));
            fill(&texts[..count]);
            let got: (usize, usize, Option<String>) = lua
                .load("local n = 0 for _ in pairs(A) do n = n + 1 end return #A, n, A[#A]")
                .eval()
                .expect("fine");
            let last = texts[..count]
                .last()
                .map(|text| String::from_utf8_lossy(text).into());
            assert_eq!(got, (count, count, last));
        }
        assert!(!kept.fits(&[&b"x"[..]; KEPT_TEXTS_MAX + 1]));
        assert!(!kept.fits(&[&[b'x'; KEPT_TEXT_BYTES_MAX + 1]]));
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

    /// Answers as its first argument asks.
    struct Obliging;

    impl Direct for Obliging {
        fn call(given: &Given<'_>) -> Return {
            let mut arguments = given.iter();
            match (arguments.next(), arguments.next()) {
                (Some(Argument::Text(text)), None) => {
                    Return::text(text).unwrap_or(Return::otherwise())
                }
                (Some(Argument::Number(number)), None) => Return::number(number + 1.0),
                (None, None) => Return::boolean(true),
                _ => Return::otherwise(),
            }
        }
    }

    fn with_obliging() -> Lua {
        let lua = Lua::new();
        lua.set_memory_limit(1 << 24).expect("bounded");
        let other = lua.create_function(|_, ()| Err::<(), _>(mlua::Error::runtime("other")));
        let function = direct::<Obliging>(&lua, &other.expect("room")).expect("room");
        lua.globals().raw_set("f", function).expect("room");
        lua
    }

    #[test]
    fn a_direct_function_answers_itself_or_has_another_one_answer() {
        let lua = with_obliging();
        for (call, expected) in [
            ("f('a\\0b') == 'a\\0b'", "true"),
            ("f(1.5)", "2.5"),
            ("f()", "true"),
            ("#f(('x'):rep(1024))", "1024"),
            ("coroutine.wrap(function() return f('in') end)()", "in"),
            ("select('#', f('x'))", "1"),
            ("pcall(f, {})", "false"),
            ("pcall(f, 1, 2)", "false"),
            ("pcall(f, ('x'):rep(1025))", "false"),
            ("pcall(f, unpack({}, 1, 200))", "false"),
        ] {
            let run = lua.load(format!("return tostring(({call}))")).eval();
            let got: String = run.expect(call);
            assert_eq!(got, expected, "{call}");
        }
    }

    #[test]
    fn a_call_below_a_handler_ends_with_a_text_a_value_or_what_the_handler_made() {
        let lua = with_obliging();
        let handler = lua.create_function(|_, value: Value| Ok((value.is_error(), true)));
        let handler = Pinned::new(&lua, handler.expect("room")).expect("room");
        let describe = |code: &str, arguments: &[Table]| {
            let function = lua.load(code).into_function().expect("compiles");
            let called = call_below(&lua, &handler, &function, &[], arguments, <[u8]>::to_vec);
            match called.expect("room") {
                Called::Text(text) => format!("text {}", String::from_utf8_lossy(&text)),
                Called::Value(value) => format!("value {value:?}"),
                Called::Failed(Value::String(text)) => format!("failed {}", text.display()),
                Called::Failed(value) => format!("failed {value:?}"),
            }
        };
        let list = lua.create_sequence_from([1, 2, 3]).expect("room");
        for _ in 0..100 {
            for (code, expected) in [
                ("return 'yes'", "text yes"),
                ("return 7, 8", "value Integer(7)"),
                ("", "value Nil"),
                ("return #(...)", "value Integer(3)"),
                ("error('no')", "failed Boolean(false)"),
                ("return f({})", "failed Boolean(true)"),
            ] {
                assert_eq!(describe(code, std::slice::from_ref(&list)), expected);
            }
        }
        assert_eq!(
            describe("return ('x'):rep(1e8)", &[]),
            "failed not enough memory"
        );
        let endless = "local all = {} while true do all[#all + 1] = f(tostring(#all)) end";
        assert_eq!(describe(endless, &[]), "failed not enough memory");
        lua.gc_collect().expect("room");
        assert_eq!(describe("return f(41)", &[]), "value Integer(42)");
        let too_many = vec![list; CALL_ARGUMENTS_MAX + 1];
        let function = lua.load("return 1").into_function().expect("compiles");
        assert!(call_below(&lua, &handler, &function, &[], &too_many, |_| ()).is_err());
    }
}
