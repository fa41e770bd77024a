//! Converts command replies to Lua values, and Lua values to replies.
//!
//! ```text
//! RESP2 to Lua:  :1 1   $ "text"   + {ok=}   - {err=}   * {…}   nil false
//! RESP3 to Lua:  _ nil   # true/false   , {double=}   ( {big_number=}   = {verbatim_string={string=,format=}}
//!                % {map={…}}   ~ {set={member=true…}}   attributes are skipped
//! ```

use mlua::{IntoLua, Lua, Table, Value};

use super::current::look;
use super::errors;
use super::numerals::truncated;
use crate::sys::lua;
use basalt_commands::command::Out;
use basalt_core::base::lossless::before_nul;
use basalt_core::base::number::{parse_f64, parse_i64};
use basalt_core::resp::reply::Protocol;

/// Maximum nesting depth of tables in a reply.
const DEPTH_MAX: usize = 800;

/// Bytes to be converted to a Lua string.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

/// Creates a Lua string.
pub(super) fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    Bytes(bytes).into_lua(lua)
}

// From replies ---------------------------------------------------------------------------------------------------

/// Reader of replies of this server's own commands, which are well-formed.
pub(super) struct ReplyReader<'a> {
    rest: &'a [u8],
}

impl<'a> ReplyReader<'a> {
    pub(super) fn new(reply: &'a [u8]) -> ReplyReader<'a> {
        ReplyReader { rest: reply }
    }

    /// Returns the data before the next line end, and skips the data and the line end.
    fn line(&mut self) -> &'a [u8] {
        let end = memchr::memchr(b'\r', self.rest).unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        line
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let bytes = self.rest.get(..count).unwrap_or_default();
        self.rest = self.rest.get(count + 2..).unwrap_or_default();
        bytes
    }

    /// Returns the contents of a reply that is a single bulk string; `None` for any other reply.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest;
        if rest.first() == Some(&b'$') {
            let head = self.line().get(1..).unwrap_or_default();
            if let Some(length @ 0..) = parse_i64(head) {
                return Some(self.bytes(length as usize));
            }
            self.rest = rest;
        }
        None
    }

    /// Converts one reply to a value.
    pub(super) fn value(&mut self, lua: &Lua) -> mlua::Result<Value> {
        look()?;
        let line = self.line();
        let Some((kind, head)) = line.split_first() else {
            return Ok(Value::Nil);
        };
        let length = || parse_i64(head).unwrap_or(0);
        match kind {
            b':' => Ok(Value::Number(length() as f64)),
            b'$' => match length() {
                0.. => lua
                    .create_string(self.bytes(length() as usize))
                    .map(Value::String),
                _ => Ok(Value::Boolean(false)),
            },
            b'+' => field(lua, "ok", Bytes(head)),
            b'-' => {
                let text = errors::with_code(line);
                errors::table(lua, &text, true).map(Value::Table)
            }
            b'*' | b'>' => match length() {
                0.. => self.array(lua, length() as usize),
                _ => Ok(Value::Boolean(false)),
            },
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(head == b"t")),
            b',' => field(lua, "double", parse_f64(head).unwrap_or(f64::NAN)),
            b'(' => field(lua, "big_number", Bytes(head)),
            b'=' => {
                let whole = self.bytes(length().max(0) as usize);
                let (format, text) = whole.split_at(whole.len().min(3));
                let inner = lua.create_table_with_capacity(0, 2)?;
                inner.raw_set("string", Bytes(text.get(1..).unwrap_or_default()))?;
                inner.raw_set("format", Bytes(format))?;
                field(lua, "verbatim_string", inner)
            }
            b'%' => {
                let map = lua.create_table()?;
                for _ in 0..length() {
                    let key = self.value(lua)?;
                    let value = self.value(lua)?;
                    set(&map, key, value)?;
                }
                field(lua, "map", map)
            }
            b'~' => {
                let set_of = lua.create_table()?;
                for _ in 0..length() {
                    let member = self.value(lua)?;
                    set(&set_of, member, Value::Boolean(true))?;
                }
                field(lua, "set", set_of)
            }
            b'|' => {
                for _ in 0..length() * 2 {
                    self.value(lua)?;
                }
                self.value(lua)
            }
            _ => Ok(Value::Nil),
        }
    }

    fn array(&mut self, lua: &Lua, count: usize) -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(count, 0)?;
        for index in 1..=count {
            let value = self.value(lua)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }
}

/// Returns the Lua form of a reply that can be passed to Lua without further work: a short string, an integer,
/// a status, or null; otherwise `None`.
#[inline]
pub(super) fn at_once(reply: &[u8]) -> Option<lua::Return> {
    let (kind, rest) = reply.split_first()?;
    let number = |end: usize| parse_i64(rest.get(..end)?);
    match kind {
        b'$' => {
            let end = rest.iter().take(6).position(|byte| *byte == b'\r')?;
            match number(end)? {
                -1 => Some(lua::Return::boolean(false)),
                length => {
                    let start = end + 2;
                    let length = usize::try_from(length).ok()?;
                    lua::Return::text(rest.get(start..start.checked_add(length)?)?)
                }
            }
        }
        b':' => {
            let end = memchr::memchr(b'\r', rest)?;
            Some(lua::Return::number(number(end)? as f64))
        }
        b'+' => {
            let end = memchr::memchr(b'\r', rest)?;
            lua::Return::field("ok", &rest[..end])
        }
        _ => None,
    }
}

/// Sets an entry of a table, unless Lua does not allow `key` as a key (nil or NaN).
fn set(table: &Table, key: Value, value: Value) -> mlua::Result<()> {
    match &key {
        Value::Nil => Ok(()),
        Value::Number(number) if number.is_nan() => Ok(()),
        _ => table.raw_set(key, value),
    }
}

fn field(lua: &Lua, name: &str, value: impl IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

// To replies -----------------------------------------------------------------------------------------------------

/// Outcome of writing a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplyWriteOutcome {
    /// Whether the reply is an error.
    pub(super) failed: bool,
    /// Whether the error has already been counted in the statistics.
    pub(super) is_counted: bool,
}

/// Writes the return value of a script. `script` is the protocol that the script chose with `redis.setresp`.
pub(super) fn write(
    value: &Value,
    script: Protocol,
    out: &mut Out,
) -> mlua::Result<ReplyWriteOutcome> {
    write_at(value, script, out, 0)
}

fn write_at(
    value: &Value,
    script: Protocol,
    out: &mut Out,
    depth: usize,
) -> mlua::Result<ReplyWriteOutcome> {
    look()?;
    if depth > DEPTH_MAX {
        out.error("ERR reached lua stack limit");
        return Ok(ReplyWriteOutcome::default());
    }
    match value {
        Value::String(text) => out.bulk(&text.as_bytes()),
        Value::Boolean(value) => match (script, value) {
            (Protocol::Resp3, value) => out.boolean(*value),
            (Protocol::Resp2, true) => out.integer(1),
            (Protocol::Resp2, false) => out.null(),
        },
        Value::Integer(number) => out.integer(*number),
        Value::Number(number) => out.integer(truncated(*number)),
        Value::Table(table) => return write_table(table, script, out, depth),
        _ => out.null(),
    }
    Ok(ReplyWriteOutcome::default())
}

fn write_table(
    table: &Table,
    script: Protocol,
    out: &mut Out,
    depth: usize,
) -> mlua::Result<ReplyWriteOutcome> {
    // Most tables are arrays. The special names (`err`, `ok` …) must still be checked first, because a table
    // can have both elements and such names.
    if let Some(written) = write_named(table, out)? {
        return Ok(written);
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let mark = out.later();
        let mut count = 0;
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write_at(&key, script, out, depth + 1)?;
            write_at(&value, script, out, depth + 1)?;
            count += 1;
        }
        out.close_map(mark, count);
        return Ok(ReplyWriteOutcome::default());
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let mark = out.later();
        let mut count = 0;
        for pair in set.pairs::<Value, Value>() {
            let (member, _) = pair?;
            write_at(&member, script, out, depth + 1)?;
            count += 1;
        }
        out.close_set(mark, count);
        return Ok(ReplyWriteOutcome::default());
    }
    let mark = out.later();
    let mut count = 0;
    loop {
        let element: Value = table.raw_get(count + 1)?;
        if element.is_nil() {
            break;
        }
        write_at(&element, script, out, depth + 1)?;
        count += 1;
        if depth == DEPTH_MAX {
            break;
        }
    }
    out.close_array(mark, count);
    Ok(ReplyWriteOutcome::default())
}

/// Writes a table that represents an error, status, number or string (by a name such as `err`, `ok` or
/// `double`); returns `None` for other tables.
#[inline]
fn write_named(table: &Table, out: &mut Out) -> mlua::Result<Option<ReplyWriteOutcome>> {
    if let Value::String(text) = table.raw_get("err")? {
        let is_counted = matches!(
            table.raw_get("ignore_error_stats_update")?,
            Value::Boolean(true)
        );
        out.error(before_nul(&text.as_bytes()));
        return Ok(Some(ReplyWriteOutcome {
            failed: true,
            is_counted,
        }));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        out.simple(one_line(before_nul(&text.as_bytes())));
        return Ok(Some(ReplyWriteOutcome::default()));
    }
    let double = match table.raw_get("double")? {
        Value::Number(number) => Some(number),
        Value::Integer(number) => Some(number as f64),
        _ => None,
    };
    if let Some(number) = double {
        out.double(number);
        return Ok(Some(ReplyWriteOutcome::default()));
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        out.big_number(one_line(&digits.as_bytes()));
        return Ok(Some(ReplyWriteOutcome::default()));
    }
    if let Value::Table(inner) = table.raw_get("verbatim_string")?
        && let Value::String(format) = inner.raw_get("format")?
        && let Value::String(text) = inner.raw_get("string")?
    {
        let format = format.as_bytes();
        let mut name = [b' '; 3];
        for (to, from) in name.iter_mut().zip(format.iter()) {
            *to = *from;
        }
        match std::str::from_utf8(&name) {
            Ok(name) => out.verbatim(name, text.as_bytes()),
            Err(_) => out.verbatim("txt", text.as_bytes()),
        }
        return Ok(Some(ReplyWriteOutcome::default()));
    }
    Ok(None)
}

fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter()
        .map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            other => *other,
        })
        .collect()
}
