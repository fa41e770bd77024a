//! The arguments of a function of this server, as passed by Lua.

use std::ffi::c_int;
use std::marker::PhantomData;

use mlua::ffi;

use super::{LuaArgument, argument};

/// The arguments of a [`Direct`](super::Direct) function.
pub struct Given<'s> {
    state: *mut mlua::lua_State,
    count: c_int,
    _stays: PhantomData<&'s ()>,
}

impl<'s> Given<'s> {
    /// Wraps the arguments of a call.
    ///
    /// # Safety
    ///
    /// `count` values lie on the stack of a state that Lua passed to one of its functions, for as long as the
    /// result is used, and no other code touches it.
    #[inline]
    pub(super) unsafe fn new(state: *mut mlua::lua_State, count: c_int) -> Given<'s> {
        Given {
            state,
            count,
            _stays: PhantomData,
        }
    }

    /// Returns the arguments in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = LuaArgument<'s>> {
        let state = self.state;
        // SAFETY: `count` values lie on the stack, from the first slot on, while the function that created this
        // runs, which is no shorter than 's; no other code has access to the state.
        (1..=self.count).map(move |index| unsafe { argument(state, index) })
    }
}

/// The kind of an argument that has no [`LuaArgument`] variant of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Missing, or nil.
    Nothing,
    /// A function.
    Function,
    /// A table.
    Table,
    /// Any other value.
    Other,
}

impl Given<'_> {
    /// Returns the number of arguments.
    #[inline]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the kind of an argument, counted from zero.
    #[inline]
    pub fn sort(&self, at: usize) -> Sort {
        if at >= self.count() {
            return Sort::Nothing;
        }
        // SAFETY: as in `iter`: `count` values lie on the stack.
        match unsafe { ffi::lua_type(self.state, at as c_int + 1) } {
            ffi::LUA_TNIL => Sort::Nothing,
            ffi::LUA_TFUNCTION => Sort::Function,
            ffi::LUA_TTABLE => Sort::Table,
            _ => Sort::Other,
        }
    }

    /// Returns the length of a table or text argument, counted from zero, without metamethods.
    #[inline]
    pub fn len_of(&self, at: usize) -> Option<usize> {
        if at >= self.count() {
            return None;
        }
        // SAFETY: as in `iter`. Only for a number would the length be that of a text, which would have to be
        // created.
        unsafe {
            match ffi::lua_type(self.state, at as c_int + 1) {
                ffi::LUA_TTABLE | ffi::LUA_TSTRING => {
                    Some(ffi::lua_rawlen(self.state, at as c_int + 1) as usize)
                }
                _ => None,
            }
        }
    }
}

impl Given<'_> {
    /// Whether an argument is present, and neither nil nor false.
    #[inline]
    pub fn is_true(&self, at: usize) -> bool {
        // SAFETY: as in `iter`.
        at < self.count() && unsafe { ffi::lua_toboolean(self.state, at as c_int + 1) != 0 }
    }

    /// Returns the length of the longest text among the first `count` elements of a table argument.
    pub fn longest_element(&self, at: usize, count: usize) -> usize {
        if self.sort(at) != Sort::Table {
            return 0;
        }
        let length = |element: usize| {
            // SAFETY: the argument is a table, of which an element is read without metamethods. Lua leaves a
            // function room for some values besides its arguments; the pushed one is popped again. Only for a
            // number would the length be that of a text, which would have to be created.
            unsafe {
                ffi::lua_rawgeti(self.state, at as c_int + 1, element as ffi::lua_Integer);
                let length = match ffi::lua_type(self.state, -1) {
                    ffi::LUA_TSTRING => ffi::lua_rawlen(self.state, -1) as usize,
                    _ => 0,
                };
                ffi::lua_pop(self.state, 1);
                length
            }
        };
        (1..=count).map(length).max().unwrap_or(0)
    }

    /// Returns the memory that the interpreter uses, in KiB.
    pub fn interpreter_kib(&self) -> usize {
        // SAFETY: as in `iter`; this only reads a figure.
        let kib = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOUNT, 0) };
        usize::try_from(kib).unwrap_or(0)
    }
}
