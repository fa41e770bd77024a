//! Argument checks of callbacks, with the error messages of Lua's own libraries.

use mlua::{Lua, LuaString, MultiValue, Value};

use super::errors;
use super::numerals::truncated;

/// Returns a string argument; numbers are converted.
pub(super) fn text(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
) -> mlua::Result<LuaString> {
    let text = match arguments.get(at) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => lua.coerce_string(value.clone())?,
        _ => None,
    };
    text.ok_or_else(|| errors::wrong_type(lua, at + 1, function, "string", arguments.get(at)))
}

/// Returns a number argument; numeric strings are converted.
pub(super) fn number(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
) -> mlua::Result<f64> {
    let number = match arguments.get(at) {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(value @ Value::String(_)) => lua.coerce_number(value.clone())?,
        _ => None,
    };
    number.ok_or_else(|| errors::wrong_type(lua, at + 1, function, "number", arguments.get(at)))
}

/// Returns a number argument without its fraction.
pub(super) fn integer(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
) -> mlua::Result<i64> {
    number(lua, arguments, at, function).map(truncated)
}

/// Returns a number argument without its fraction, or `otherwise` if the argument is missing or nil.
pub(super) fn integer_or(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
    otherwise: i64,
) -> mlua::Result<i64> {
    match arguments.get(at) {
        None | Some(Value::Nil) => Ok(otherwise),
        Some(_) => integer(lua, arguments, at, function),
    }
}
