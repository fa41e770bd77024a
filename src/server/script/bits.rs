//! The `bit` library: operations on 32-bit integers, as in BitOp.
//!
//! Numbers are taken modulo 2^32; results are signed. Shift counts are taken modulo 32.

use mlua::{Lua, MultiValue, Table, Value};

use super::convert::string;
use super::errors;

type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

/// Adds the `bit` library to `libraries`.
pub(super) fn install(lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    let bit = lua.create_table()?;
    let unary: [(&'static str, Unary); 3] = [
        ("tobit", |bits| bits),
        ("bnot", |bits| !bits),
        ("bswap", u32::swap_bytes),
    ];
    for (name, apply) in unary {
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            Ok(signed(apply(bits(lua, &arguments, 0, name)?)))
        })?;
        bit.raw_set(name, function)?;
    }
    let folded: [(&'static str, Binary); 3] = [
        ("band", |left, right| left & right),
        ("bor", |left, right| left | right),
        ("bxor", |left, right| left ^ right),
    ];
    for (name, apply) in folded {
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            let mut result = bits(lua, &arguments, 0, name)?;
            for at in 1..arguments.len() {
                result = apply(result, bits(lua, &arguments, at, name)?);
            }
            Ok(signed(result))
        })?;
        bit.raw_set(name, function)?;
    }
    let shifts: [(&'static str, Binary); 5] = [
        ("lshift", |bits, count| bits << count),
        ("rshift", |bits, count| bits >> count),
        ("arshift", |bits, count| (bits as i32 >> count) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, apply) in shifts {
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            let value = bits(lua, &arguments, 0, name)?;
            let count = bits(lua, &arguments, 1, name)? & 31;
            Ok(signed(apply(value, count)))
        })?;
        bit.raw_set(name, function)?;
    }
    bit.raw_set("tohex", lua.create_function(to_hex)?)?;
    libraries.raw_set("bit", bit)
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

/// Returns an argument modulo 2^32, rounded like an addition of 1.5 * 2^52.
fn bits(lua: &Lua, arguments: &MultiValue, at: usize, function: &str) -> mlua::Result<u32> {
    let number = match arguments.get(at) {
        None | Some(Value::Nil) => None,
        Some(value) => lua.coerce_number(value.clone())?,
    };
    let Some(number) = number else {
        return Err(errors::wrong_type(
            lua,
            at + 1,
            function,
            "number",
            arguments.get(at),
        ));
    };
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    Ok((number + MAGIC).to_bits() as u32)
}

/// `bit.tohex`: returns the lowest hexadecimal digits of a number, as many as the second argument says; in
/// upper case if that is negative.
fn to_hex(lua: &Lua, arguments: MultiValue) -> mlua::Result<Value> {
    let value = bits(lua, &arguments, 0, "tohex")?;
    let count = match arguments.get(1) {
        None => 8,
        Some(_) => bits(lua, &arguments, 1, "tohex")? as i32,
    };
    let digits = match count < 0 {
        true => format!("{value:08X}"),
        false => format!("{value:08x}"),
    };
    let count = count.unsigned_abs().min(8) as usize;
    string(lua, &digits.as_bytes()[8 - count..])
}
