//! The `cmsgpack` library: converts Lua values to MessagePack and back.
//!
//! A table is an array if its keys are the integers from 1 on without a gap (this includes an empty one),
//! otherwise a map. Nested tables are written down to a depth of 16, below which nil is written. Input is
//! untrusted: memory for a claimed length is allocated only as far as the input has bytes.

use mlua::{Lua, MultiValue, Table, Value};

use super::convert::string;
use super::current::look;
use super::numerals::truncated;
use super::{arguments, errors};

/// Maximum nesting depth written.
const WRITTEN_DEPTH_MAX: usize = 16;

/// Maximum nesting depth read.
const READ_DEPTH_MAX: usize = 1000;

/// Maximum number of values returned to Lua from one call.
const RESULTS_MAX: usize = 7_500;

/// Maximum length of a generated text.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Adds the `cmsgpack` library to `libraries`.
pub(super) fn install(lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("unpack_one", lua.create_function(unpack_one)?)?;
    library.raw_set("unpack_limit", lua.create_function(unpack_limit)?)?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "")?;
    library.raw_set("_DESCRIPTION", "MessagePack for scripts")?;
    libraries.raw_set("cmsgpack", library)
}

fn pack(lua: &Lua, given: MultiValue) -> mlua::Result<Value> {
    if given.is_empty() {
        return Err(errors::bad_argument(
            lua,
            0,
            "pack",
            "MessagePack pack needs input.",
        ));
    }
    let mut writer = MsgpackWriter {
        lua,
        bytes: Vec::with_capacity(64),
    };
    for value in &given {
        writer.value(value, 0)?;
    }
    string(lua, &writer.bytes)
}

struct MsgpackWriter<'a> {
    lua: &'a Lua,
    bytes: Vec<u8>,
}

impl MsgpackWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        look()?;
        if self.bytes.len() > TEXT_BYTES_MAX {
            return Err(errors::complain(self.lua, "not enough memory"));
        }
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Boolean(value) => self.bytes.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => {
                let whole = truncated(*number);
                // Numbers of 2^63 or more are truncated to the smallest integer, which differs from them, so
                // they stay floats.
                if whole as f64 == *number && whole != i64::MAX {
                    self.integer(whole);
                } else {
                    self.double(*number);
                }
            }
            Value::Table(table) if depth < WRITTEN_DEPTH_MAX => return self.table(table, depth),
            _ => self.bytes.push(0xc0),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let (mut largest, mut count, mut is_array) = (0, 0, true);
        for pair in table.pairs::<Value, Value>() {
            look()?;
            let (key, _) = pair?;
            count += 1;
            match key {
                Value::Integer(index) if (1..=i64::from(i32::MAX)).contains(&index) => {
                    largest = largest.max(index);
                }
                _ => is_array = false,
            }
        }
        if is_array && largest == count {
            self.head(count as usize, 0x90, 15, None, 0xdc);
            for index in 1..=count {
                let element: Value = table.raw_get(index)?;
                self.value(&element, depth + 1)?;
            }
        } else {
            self.head(count as usize, 0x80, 15, None, 0xde);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.value(&key, depth + 1)?;
                self.value(&value, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Writes a type with a count, in the shortest form: within the type byte, or with 8 bits (if the type has
    /// this form), 16 or 32 bits.
    fn head(&mut self, count: usize, fixed: u8, fixed_max: usize, byte: Option<u8>, word: u8) {
        match (count, byte) {
            (_, _) if count <= fixed_max => self.bytes.push(fixed | count as u8),
            (0..=0xff, Some(byte)) => self.bytes.extend_from_slice(&[byte, count as u8]),
            (0..=0xffff, _) => {
                self.bytes.push(word);
                self.bytes.extend_from_slice(&(count as u16).to_be_bytes());
            }
            _ => {
                self.bytes.push(word + 1);
                self.bytes.extend_from_slice(&(count as u32).to_be_bytes());
            }
        }
    }

    fn string(&mut self, text: &[u8]) {
        self.head(text.len(), 0xa0, 31, Some(0xd9), 0xda);
        self.bytes.extend_from_slice(text);
    }

    fn integer(&mut self, number: i64) {
        let mut put = |mark: u8, bytes: &[u8]| {
            self.bytes.push(mark);
            self.bytes.extend_from_slice(bytes);
        };
        match number {
            -32..=127 => self.bytes.push(number as u8),
            128..=0xff => put(0xcc, &(number as u8).to_be_bytes()),
            0x100..=0xffff => put(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => put(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => put(0xcf, &number.to_be_bytes()),
            -128..=-33 => put(0xd0, &(number as i8).to_be_bytes()),
            -32_768..=-129 => put(0xd1, &(number as i16).to_be_bytes()),
            -2_147_483_648..=-32_769 => put(0xd2, &(number as i32).to_be_bytes()),
            _ => put(0xd3, &number.to_be_bytes()),
        }
    }

    fn double(&mut self, number: f64) {
        let short = number as f32;
        if f64::from(short) == number {
            self.bytes.push(0xca);
            self.bytes.extend_from_slice(&short.to_be_bytes());
        } else {
            self.bytes.push(0xcb);
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn unpack(lua: &Lua, given: MultiValue) -> mlua::Result<MultiValue> {
    unpack_from(lua, &given, "unpack", 0, 0)
}

fn unpack_one(lua: &Lua, given: MultiValue) -> mlua::Result<MultiValue> {
    let offset = arguments::integer_or(lua, &given, 1, "unpack_one", 0)?;
    unpack_from(lua, &given, "unpack_one", 1, offset)
}

fn unpack_limit(lua: &Lua, given: MultiValue) -> mlua::Result<MultiValue> {
    let limit = arguments::integer(lua, &given, 1, "unpack_limit")?;
    let offset = arguments::integer_or(lua, &given, 2, "unpack_limit", 0)?;
    unpack_from(lua, &given, "unpack_limit", limit, offset)
}

const TOO_MANY: &str =
    "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)";

fn unpack_from(
    lua: &Lua,
    given: &MultiValue,
    function: &str,
    limit: i64,
    offset: i64,
) -> mlua::Result<MultiValue> {
    let text = arguments::text(lua, given, 0, function)?;
    let text = text.as_bytes();
    let length = text.len();
    if offset < 0 || limit < 0 {
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return Err(errors::complain(lua, text));
    }
    let Some(rest) = usize::try_from(offset)
        .ok()
        .and_then(|offset| text.get(offset..))
    else {
        let text = format!("Start offset {offset} greater than input length {length}.");
        return Err(errors::complain(lua, text));
    };
    let takes_all = limit == 0 && offset == 0;
    let limit = if takes_all { i64::MAX } else { limit };
    let mut reader = MsgpackReader { lua, rest };
    let mut values = Vec::new();
    while !reader.rest.is_empty() && (values.len() as i64) < limit {
        let value = reader.value(0).map_err(|failed| match failed {
            MsgpackError::Short => errors::complain(lua, "Missing bytes in input."),
            MsgpackError::Format => errors::complain(lua, "Bad data format in input."),
            MsgpackError::Deep => errors::complain(lua, TOO_MANY),
            MsgpackError::Raised(error) => error,
        })?;
        values.push(value);
        if values.len() > RESULTS_MAX {
            return Err(errors::complain(lua, TOO_MANY));
        }
    }
    if !takes_all {
        let next = match reader.rest.len() {
            0 => -1,
            left => (length - left) as i64,
        };
        values.insert(0, Value::Integer(next));
    }
    Ok(MultiValue::from_vec(values))
}

/// Reason why a value cannot be read.
enum MsgpackError {
    Short,
    Format,
    Deep,
    Raised(mlua::Error),
}

impl From<mlua::Error> for MsgpackError {
    fn from(error: mlua::Error) -> MsgpackError {
        MsgpackError::Raised(error)
    }
}

struct MsgpackReader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> MsgpackReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], MsgpackError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(MsgpackError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MsgpackError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(MsgpackError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn value(&mut self, depth: usize) -> Result<Value, MsgpackError> {
        look()?;
        let [mark] = self.array()?;
        let number = match mark {
            0x00..=0x7f => f64::from(mark),
            0xe0..=0xff => f64::from(mark as i8),
            0xcc => f64::from(u8::from_be_bytes(self.array()?)),
            0xcd => f64::from(u16::from_be_bytes(self.array()?)),
            0xce => f64::from(u32::from_be_bytes(self.array()?)),
            // Read unsigned integers as signed, as Redis does.
            0xcf | 0xd3 => i64::from_be_bytes(self.array()?) as f64,
            0xd0 => f64::from(i8::from_be_bytes(self.array()?)),
            0xd1 => f64::from(i16::from_be_bytes(self.array()?)),
            0xd2 => f64::from(i32::from_be_bytes(self.array()?)),
            0xca => f64::from(f32::from_be_bytes(self.array()?)),
            0xcb => f64::from_be_bytes(self.array()?),
            0xc0 => return Ok(Value::Nil),
            0xc2 | 0xc3 => return Ok(Value::Boolean(mark == 0xc3)),
            0xa0..=0xbf => return self.string(usize::from(mark & 0x1f)),
            0xd9 => {
                let length = u8::from_be_bytes(self.array()?);
                return self.string(length.into());
            }
            0xda => {
                let length = u16::from_be_bytes(self.array()?);
                return self.string(length.into());
            }
            0xdb => {
                let length = u32::from_be_bytes(self.array()?);
                return self.string(length as usize);
            }
            0x90..=0x9f => return self.list(usize::from(mark & 0xf), depth),
            0xdc => {
                let count = u16::from_be_bytes(self.array()?);
                return self.list(count.into(), depth);
            }
            0xdd => {
                let count = u32::from_be_bytes(self.array()?);
                return self.list(count as usize, depth);
            }
            0x80..=0x8f => return self.map(usize::from(mark & 0xf), depth),
            0xde => {
                let count = u16::from_be_bytes(self.array()?);
                return self.map(count.into(), depth);
            }
            0xdf => {
                let count = u32::from_be_bytes(self.array()?);
                return self.map(count as usize, depth);
            }
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(MsgpackError::Format),
        };
        Ok(Value::Number(number))
    }

    fn string(&mut self, length: usize) -> Result<Value, MsgpackError> {
        let text = self.take(length)?;
        Ok(string(self.lua, text)?)
    }

    fn list(&mut self, count: usize, depth: usize) -> Result<Value, MsgpackError> {
        if depth >= READ_DEPTH_MAX {
            return Err(MsgpackError::Deep);
        }
        let table = self.lua.create_table()?;
        for index in 1..=count {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> Result<Value, MsgpackError> {
        if depth >= READ_DEPTH_MAX {
            return Err(MsgpackError::Deep);
        }
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            match key {
                Value::Nil => return Err(self.no_key("table index is nil")),
                Value::Number(number) if number.is_nan() => {
                    return Err(self.no_key("table index is NaN"));
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }

    fn no_key(&self, why: &str) -> MsgpackError {
        MsgpackError::Raised(errors::complain(self.lua, why))
    }
}
