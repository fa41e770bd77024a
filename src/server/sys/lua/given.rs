//! What a function of ours was called with, as Lua calls it.

use std::ffi::c_int;
use std::marker::PhantomData;

use mlua::ffi;

use super::{Argument, argument};

/// What a [`Direct`](super::Direct) function was called with.
pub struct Given<'s> {
    state: *mut mlua::lua_State,
    count: c_int,
    _stays: PhantomData<&'s ()>,
}

impl<'s> Given<'s> {
    /// What a function was called with.
    ///
    /// # Safety
    ///
    /// So many values lie on the stack of a state that Lua gave to a function of its own, for as long as the result is
    /// used, and no other code touches it.
    #[inline]
    pub(super) unsafe fn new(state: *mut mlua::lua_State, count: c_int) -> Given<'s> {
        Given {
            state,
            count,
            _stays: PhantomData,
        }
    }

    /// The arguments in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Argument<'s>> {
        let state = self.state;
        // SAFETY: so many values lie on the stack, from the first place on, for as long as the function runs that made
        // this, which is no shorter than 's; no other code gets hold of the state.
        (1..=self.count).map(move |index| unsafe { argument(state, index) })
    }
}

/// What sort of value an argument is that has no [`Argument`] of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// None was given, or nil.
    Nothing,
    /// A function.
    Function,
    /// A table.
    Table,
    /// Any other value.
    Other,
}

impl Given<'_> {
    /// How many arguments there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// What sort of value an argument is, counted from zero.
    #[inline]
    pub fn sort(&self, at: usize) -> Sort {
        if at >= self.count() {
            return Sort::Nothing;
        }
        // SAFETY: as in `iter`: so many values lie on the stack.
        match unsafe { ffi::lua_type(self.state, at as c_int + 1) } {
            ffi::LUA_TNIL => Sort::Nothing,
            ffi::LUA_TFUNCTION => Sort::Function,
            ffi::LUA_TTABLE => Sort::Table,
            _ => Sort::Other,
        }
    }

    /// The length of a table, or of a text, counted from zero; metatables are not asked.
    #[inline]
    pub fn len_of(&self, at: usize) -> Option<usize> {
        if at >= self.count() {
            return None;
        }
        // SAFETY: as in `iter`. Only of a number the length would be that of a text, which would have to be made.
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
    /// Whether an argument is there, and neither nil nor false.
    #[inline]
    pub fn is_true(&self, at: usize) -> bool {
        // SAFETY: as in `iter`.
        at < self.count() && unsafe { ffi::lua_toboolean(self.state, at as c_int + 1) != 0 }
    }

    /// The length of the longest text among so many elements of a table, which is an argument.
    pub fn longest_element(&self, at: usize, count: usize) -> usize {
        if self.sort(at) != Sort::Table {
            return 0;
        }
        let length = |element: usize| {
            // SAFETY: a table lies there, of which an element is read without asking metatables. Lua leaves a function
            // room for some values besides its arguments; the one that is put there is taken away again. Only of a
            // number the length would be that of a text, which would have to be made.
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

    /// What the interpreter takes of memory, in KiB.
    pub fn interpreter_kib(&self) -> usize {
        // SAFETY: as in `iter`; this reads a figure.
        let kib = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOUNT, 0) };
        usize::try_from(kib).unwrap_or(0)
    }
}
