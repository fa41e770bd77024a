//! Version 0 of documents: each value is its kind, as an unsigned number, and then what it consists of.
//!
//! ```text
//! 0x01 null · 0x02 string · 0x04 double · 0x08 signed · 0x10 string "0" or "1"
//! 0x20 object    unsigned count | ( unsigned 0x80 | string key | value ) …
//! 0x40 array     unsigned count | value …
//! ```

use super::{FORM, Next, OPCODE_DOUBLE, OPCODE_SIGNED, OPCODE_UNSIGNED, Text, string, unsigned};
use crate::serial::Malformed;
use crate::serial::reader::Reader;

const MEMBER: u64 = 0x80;

/// Reads a document and returns its text.
pub(super) fn text(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let mut text = Text::default();
    loop {
        value(reader, &mut text)?;
        match text.next() {
            Next::End => return Ok(text.bytes),
            Next::Value => {}
            Next::Member => {
                if unsigned(reader)? != MEMBER {
                    return Err(FORM);
                }
                text.quoted(&string(reader)?);
                text.bytes.push(b':');
            }
        }
    }
}

/// Reads a scalar, or the beginning of an array or an object.
fn value(reader: &mut Reader<'_>, text: &mut Text) -> Result<(), Malformed> {
    match unsigned(reader)? {
        0x01 => text.word("null"),
        0x02 => text.quoted(&string(reader)?),
        0x04 => {
            if reader.length()? != OPCODE_DOUBLE {
                return Err(FORM);
            }
            let number = f64::from_le_bytes(reader.array()?);
            if !number.is_finite() {
                return Err(Malformed("a document with an infinite number"));
            }
            text.float(number);
        }
        0x08 => {
            // Servers write signed numbers as the unsigned ones with the same bits, and mark them as unsigned.
            if !matches!(reader.length()?, OPCODE_SIGNED | OPCODE_UNSIGNED) {
                return Err(FORM);
            }
            text.number(reader.length()? as i64);
        }
        0x10 => match &*string(reader)? {
            b"0" => text.word("false"),
            b"1" => text.word("true"),
            _ => return Err(FORM),
        },
        0x20 => text.begin(true, unsigned(reader)?)?,
        0x40 => text.begin(false, unsigned(reader)?)?,
        _ => return Err(FORM),
    }
    Ok(())
}
