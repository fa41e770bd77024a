//! The `struct` library: converts numbers and strings to and from C layouts, by a format.
//!
//! ```text
//! > < big, little endian   ! n  align to powers of two up to n   x  a byte of padding   blank  ignored
//! b B h H l L i n I n T    integers of 1, 2, 8, n (4), 8 bytes, lower case signed       f d  floats
//! s  a string and a zero   c n  n bytes of a string; c0 all of it, or as many as the preceding number
//! ```

use mlua::{Lua, MultiValue, Table, Value};

use super::convert::string;
use super::current::look;
use super::numerals::truncated;
use super::{arguments, errors};

/// Maximum bytes of an integer in a format (`i32`).
const INTEGER_BYTES_MAX: usize = 32;

/// Alignment set by `!` alone.
const ALIGNMENT: usize = 8;

/// Maximum number of values returned to Lua from one call.
const RESULTS_MAX: usize = 7_500;

/// Adds the `struct` library to `libraries`.
pub(super) fn install(lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("size", lua.create_function(size)?)?;
    libraries.raw_set("struct", library)
}

/// A format being read, with the byte order and alignment in effect.
struct Format<'a> {
    lua: &'a Lua,
    function: &'static str,
    rest: &'a [u8],
    is_big: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, function: &'static str, text: &'a [u8]) -> Format<'a> {
        let end = text
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(text.len());
        Format {
            lua,
            function,
            rest: &text[..end],
            is_big: false,
            alignment: 1,
        }
    }

    /// Returns the next option, its size in bytes, and the bytes of padding that it needs at `position`.
    fn next(&mut self, position: usize) -> mlua::Result<Option<(u8, usize, usize)>> {
        look()?;
        let Some((&option, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_BYTES_MAX {
                    return Err(self.complain(format!(
                        "integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"
                    )));
                }
                size
            }
            _ => 0,
        };
        let padding = match size {
            0 => 0,
            _ if option == b'c' => 0,
            size => {
                let unit = size.min(self.alignment);
                unit.wrapping_sub(position & (unit - 1)) & (unit - 1)
            }
        };
        Ok(Some((option, size, padding)))
    }

    /// Reads the number at the current position of the format; returns `otherwise` if no number is there.
    fn number(&mut self, otherwise: usize) -> mlua::Result<usize> {
        let count = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 {
            return Ok(otherwise);
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let mut number = 0_i32;
        for digit in digits {
            number = number
                .checked_mul(10)
                .and_then(|number| number.checked_add(i32::from(digit - b'0')))
                .ok_or_else(|| self.complain("integral size overflow"))?;
        }
        Ok(number as usize)
    }

    /// Processes an option without a value: order and alignment.
    fn control(&mut self, option: u8) -> mlua::Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(self.complain(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            other => {
                let mut why = b"invalid format option '".to_vec();
                why.extend_from_slice(&[other, b'\'']);
                let why = String::from_utf8_lossy(&why).into_owned();
                return Err(self.bad(1, &why));
            }
        }
        Ok(())
    }

    fn complain(&self, text: impl AsRef<[u8]>) -> mlua::Error {
        errors::complain(self.lua, text)
    }

    fn bad(&self, number: usize, why: &str) -> mlua::Error {
        errors::bad_argument(self.lua, number, self.function, why)
    }
}

fn pack(lua: &Lua, mut given: MultiValue) -> mlua::Result<Value> {
    let text = arguments::text(lua, &given, 0, "pack")?;
    // In Redis, a nil follows the arguments on the stack, so the error for the first missing argument names a
    // nil.
    given.push_back(Value::Nil);
    let text = text.as_bytes();
    let mut format = Format::new(lua, "pack", &text);
    let mut packed = Vec::new();
    let mut at = 1;
    while let Some((option, size, padding)) = format.next(packed.len())? {
        packed.resize(packed.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = arguments::number(lua, &given, at, "pack")?;
                put_integer(number, size, format.is_big, &mut packed);
                at += 1;
            }
            b'x' => packed.push(0),
            b'f' => {
                let number = arguments::number(lua, &given, at, "pack")? as f32;
                packed.extend_from_slice(&ordered(number.to_be_bytes(), format.is_big));
                at += 1;
            }
            b'd' => {
                let number = arguments::number(lua, &given, at, "pack")?;
                packed.extend_from_slice(&ordered(number.to_be_bytes(), format.is_big));
                at += 1;
            }
            b'c' | b's' => {
                let value = arguments::text(lua, &given, at, "pack")?;
                let value = value.as_bytes();
                at += 1;
                let size = if size == 0 { value.len() } else { size };
                let Some(bytes) = value.get(..size) else {
                    return Err(format.bad(at + 1, "string too short"));
                };
                packed.extend_from_slice(bytes);
                if option == b's' {
                    packed.push(0);
                }
            }
            other => format.control(other)?,
        }
    }
    string(lua, &packed)
}

/// Converts big-endian bytes to the requested order.
fn ordered<const N: usize>(mut bytes: [u8; N], is_big: bool) -> [u8; N] {
    if !is_big {
        bytes.reverse();
    }
    bytes
}

/// Writes an integer of any size. Bytes beyond the eighth are zero, even for negative numbers.
fn put_integer(number: f64, size: usize, is_big: bool, packed: &mut Vec<u8>) {
    let value = match number < 0.0 {
        true => truncated(number) as u64,
        false => number as u64,
    };
    let little = value.to_le_bytes();
    let byte = |at: usize| little.get(at).copied().unwrap_or(0);
    match is_big {
        true => packed.extend((0..size).rev().map(byte)),
        false => packed.extend((0..size).map(byte)),
    }
}

fn get_integer(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
    let value = match is_big {
        true => bytes.iter().fold(0, fold),
        false => bytes.iter().rev().fold(0, fold),
    };
    if !is_signed {
        return value as f64;
    }
    let sign = (bytes.len() as u32 * 8).wrapping_sub(1);
    let mask = u64::MAX.wrapping_shl(sign);
    let value = if value & mask == 0 {
        value
    } else {
        value | mask
    };
    value as i64 as f64
}

fn unpack(lua: &Lua, given: MultiValue) -> mlua::Result<MultiValue> {
    let text = arguments::text(lua, &given, 0, "unpack")?;
    let text = text.as_bytes();
    let mut format = Format::new(lua, "unpack", &text);
    let data = arguments::text(lua, &given, 1, "unpack")?;
    let data = data.as_bytes();
    let position = arguments::integer_or(lua, &given, 2, "unpack", 1)?;
    if position == 0 {
        return Err(format.bad(3, "offset must be 1 or greater"));
    }
    let mut position = position.wrapping_sub(1) as u64 as usize;
    let mut values: Vec<Value> = Vec::new();
    while let Some((option, size, padding)) = format.next(position)? {
        position = position.saturating_add(padding);
        let end = position.checked_add(size).filter(|end| *end <= data.len());
        let Some(mut end) = end else {
            return Err(format.bad(2, "data string too short"));
        };
        if values.len() > RESULTS_MAX {
            return Err(format.complain("stack overflow (too many results)"));
        }
        let bytes = &data[position..end];
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = get_integer(bytes, format.is_big, option.is_ascii_lowercase());
                values.push(Value::Number(number));
            }
            b'x' => {}
            b'f' => {
                let bytes = ordered([bytes[0], bytes[1], bytes[2], bytes[3]], format.is_big);
                values.push(Value::Number(f32::from_be_bytes(bytes).into()));
            }
            b'd' => {
                let mut whole = [0; 8];
                whole.copy_from_slice(bytes);
                let number = f64::from_be_bytes(ordered(whole, format.is_big));
                values.push(Value::Number(number));
            }
            b'c' if size == 0 => {
                let length = match values.pop() {
                    Some(Value::Number(length)) => length,
                    Some(value @ Value::String(_)) => match lua.coerce_number(value)? {
                        Some(length) => length,
                        None => {
                            return Err(format.complain("format 'c0' needs a previous size"));
                        }
                    },
                    _ => return Err(format.complain("format 'c0' needs a previous size")),
                };
                let length = usize::try_from(truncated(length)).unwrap_or(usize::MAX);
                let bytes = position
                    .checked_add(length)
                    .and_then(|until| data.get(position..until));
                let Some(bytes) = bytes else {
                    return Err(format.bad(2, "data string too short"));
                };
                values.push(string(lua, bytes)?);
                end = position + length;
            }
            b'c' => values.push(string(lua, bytes)?),
            b's' => {
                let rest = &data[position..];
                let Some(length) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(format.complain("unfinished string in data"));
                };
                values.push(string(lua, &rest[..length])?);
                end = position + length + 1;
            }
            other => format.control(other)?,
        }
        position = end;
    }
    values.push(Value::Number(position as f64 + 1.0));
    Ok(MultiValue::from_vec(values))
}

fn size(lua: &Lua, given: MultiValue) -> mlua::Result<f64> {
    let text = arguments::text(lua, &given, 0, "size")?;
    let text = text.as_bytes();
    let mut format = Format::new(lua, "size", &text);
    let mut position = 0_usize;
    while let Some((option, size, padding)) = format.next(position)? {
        position = position.saturating_add(padding);
        if option == b's' {
            return Err(format.bad(1, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(format.bad(1, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option)?;
        }
        position = position.saturating_add(size);
    }
    Ok(position as f64)
}
