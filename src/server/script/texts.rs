//! Functions of Lua's `string` library for long texts: with the same results, in less time, and in steps
//! between which a script can be interrupted.
//!
//! Lua's own functions process a text byte by byte, and check nothing until they are done. They are used for short
//! texts ([`super::screens`]).

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use super::convert::string;
use super::current::{STEP_BYTES, look};
use super::memory::limit_bytes;
use super::{arguments, errors};

/// Adds the functions to `native`, as `texts`.
pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let texts = lua.create_table()?;
    let upper = |lua: &Lua, given| changed(lua, &given, "upper", <[u8]>::make_ascii_uppercase);
    let lower = |lua: &Lua, given| changed(lua, &given, "lower", <[u8]>::make_ascii_lowercase);
    texts.raw_set("upper", lua.create_function(upper)?)?;
    texts.raw_set("lower", lua.create_function(lower)?)?;
    texts.raw_set("reverse", lua.create_function(reverse)?)?;
    texts.raw_set("rep", lua.create_function(repeat)?)?;
    let library: Table = lua.globals().raw_get("string")?;
    let own: Function = library.raw_get("format")?;
    let format = lua.create_function(move |lua, given| format(lua, &own, &given))?;
    texts.raw_set("format", format)?;
    native.raw_set("texts", texts)
}

fn out_of_memory() -> mlua::Error {
    mlua::Error::MemoryError("not enough memory".to_owned())
}

/// Appends to a generated text. Returns an error if it exceeds the memory limit.
fn add(made: &mut Vec<u8>, text: &[u8]) -> mlua::Result<()> {
    if made.len() + text.len() > limit_bytes() {
        return Err(out_of_memory());
    }
    made.extend_from_slice(text);
    Ok(())
}

fn repeat(lua: &Lua, given: MultiValue) -> mlua::Result<Value> {
    let text = arguments::text(lua, &given, 0, "rep")?;
    // Convert the count to a C `int`, as Lua does.
    let count = arguments::integer(lua, &given, 1, "rep")? as i32;
    let text = text.as_bytes();
    let count = usize::try_from(count).unwrap_or(0);
    match text.len().checked_mul(count) {
        Some(0) => string(lua, b""),
        Some(bytes) if bytes + lua.used_memory() <= limit_bytes() => {
            string(lua, &text.repeat(count))
        }
        _ => Err(out_of_memory()),
    }
}

fn changed(
    lua: &Lua,
    given: &MultiValue,
    name: &str,
    change: fn(&mut [u8]),
) -> mlua::Result<Value> {
    let text = arguments::text(lua, given, 0, name)?;
    let mut text = text.as_bytes().to_vec();
    for part in text.chunks_mut(STEP_BYTES) {
        look()?;
        change(part);
    }
    string(lua, &text)
}

fn reverse(lua: &Lua, given: MultiValue) -> mlua::Result<Value> {
    let text = arguments::text(lua, &given, 0, "reverse")?;
    let text = text.as_bytes();
    let mut made = Vec::with_capacity(text.len());
    for part in text.rchunks(STEP_BYTES) {
        look()?;
        made.extend(part.iter().rev());
    }
    string(lua, &made)
}

/// Minimum length of a text that `%s` copies unchanged; a shorter text ends at its first zero byte, like a C
/// string.
const LONG: usize = 100;

/// Formats each directive by Lua's own function; the text between directives, and `%q`, whose result may be
/// long, are handled here.
fn format(lua: &Lua, own: &Function, given: &MultiValue) -> mlua::Result<Value> {
    let pattern = arguments::text(lua, given, 0, "format")?;
    let pattern = pattern.as_bytes();
    let (mut rest, mut made, mut at) = (&*pattern, Vec::new(), 0);
    while !rest.is_empty() {
        look()?;
        let step = &rest[..rest.len().min(STEP_BYTES)];
        let plain = memchr::memchr(b'%', step).unwrap_or(step.len());
        add(&mut made, &rest[..plain])?;
        rest = &rest[plain..];
        let Some(directive) = rest.strip_prefix(b"%") else {
            continue;
        };
        if let [b'%', after @ ..] = directive {
            made.push(b'%');
            rest = after;
            continue;
        }
        let is_modifier = |byte: &&u8| b"-+ #0123456789.".contains(byte);
        let kind = directive.iter().take_while(is_modifier).count();
        let (directive, after) = rest.split_at(rest.len().min(kind + 2));
        rest = after;
        at += 1;
        if at >= given.len() {
            return Err(bad_argument(lua, at, "no value"));
        }
        let argument = match directive.last() {
            Some(b's' | b'q') => match lua.coerce_string(given[at].clone())? {
                Some(text) => Value::String(text),
                None => return Err(wrong_type(lua, at, "string", &given[at])),
            },
            Some(
                b'c' | b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'e' | b'E' | b'f' | b'g' | b'G',
            ) => match lua.coerce_number(given[at].clone())? {
                Some(number) => Value::Number(number),
                None => return Err(wrong_type(lua, at, "number", &given[at])),
            },
            _ => Value::Nil,
        };
        match (directive, &argument) {
            (b"%q", Value::String(text)) => quote(&text.as_bytes(), &mut made)?,
            (b"%s", Value::String(text)) if text.as_bytes().len() >= LONG => {
                add(&mut made, &text.as_bytes())?;
            }
            _ => {
                let directive = lua.create_string(directive)?;
                let text = own.call::<LuaString>((directive, argument));
                let failed = |error| errors::complain_in_place(lua, &errors::plain(&error));
                let text = text.map_err(failed)?;
                add(&mut made, &text.as_bytes())?;
            }
        }
    }
    string(lua, &made)
}

/// Returns an error about an argument of `format` like Lua's own function.
fn bad_argument(lua: &Lua, at: usize, why: &str) -> mlua::Error {
    let number = at + 1;
    errors::complain_in_place(lua, &format!("bad argument #{number} to 'format' ({why})"))
}

fn wrong_type(lua: &Lua, at: usize, wanted: &str, got: &Value) -> mlua::Error {
    let got = errors::type_name(got);
    bad_argument(lua, at, &format!("{wanted} expected, got {got}"))
}

/// Quotes a text for Lua's compiler.
fn quote(text: &[u8], made: &mut Vec<u8>) -> mlua::Result<()> {
    made.push(b'"');
    for part in text.chunks(STEP_BYTES) {
        look()?;
        // Quoting makes at most four bytes of each byte.
        if made.len() + 4 * part.len() > limit_bytes() {
            return Err(out_of_memory());
        }
        for &byte in part {
            match byte {
                b'"' | b'\\' | b'\n' => made.extend_from_slice(&[b'\\', byte]),
                b'\r' => made.extend_from_slice(b"\\r"),
                0 => made.extend_from_slice(b"\\000"),
                byte => made.push(byte),
            }
        }
    }
    made.push(b'"');
    Ok(())
}
