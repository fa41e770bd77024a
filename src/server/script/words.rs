//! The arguments of a command called by a script: conversion of values to texts.

use super::numerals::truncated;
use crate::sys::lua;
use basalt_core::base::number::F64Buffer;
use basalt_core::resp::request::Span;

/// The arguments of one call, collected while they are taken from Lua's stack.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) data: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// Whether an argument was neither a string nor a number.
    pub(super) is_spoiled: bool,
}

/// Bytes of capacity kept between calls.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Number of spans whose capacity is kept between calls.
const KEPT_SPANS_MAX: usize = 8 * 1024;

impl Arguments {
    /// Clears all arguments.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
        self.give_back();
        self.is_spoiled = false;
    }

    /// Frees buffers that exceed the capacity kept between calls.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if self.data.capacity() > KEPT_BYTES_MAX || self.spans.capacity() > KEPT_SPANS_MAX {
            *self = Arguments::default();
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // Positions fit in 32 bits: Lua's memory limit is below 4 GiB.
        self.spans
            .push(Span::in_buffer(self.data.len(), bytes.len()));
        self.data.extend_from_slice(bytes);
    }

    /// Adds an argument.
    #[inline]
    pub(super) fn take(&mut self, argument: lua::LuaArgument<'_>) {
        match argument {
            lua::LuaArgument::Text(text) => self.push(text),
            lua::LuaArgument::Number(number) => match whole(number) {
                Some(number) => self.push(itoa::Buffer::new().format(number).as_bytes()),
                None => self.push(F64Buffer::default().format(number)),
            },
            lua::LuaArgument::Other => self.is_spoiled = true,
        }
    }
}

/// Returns a number that is an integer and not negative zero.
fn whole(number: f64) -> Option<i64> {
    let integer = truncated(number);
    ((integer as f64).to_bits() == number.to_bits()).then_some(integer)
}
