//! Documents, in the form of RedisJSON's module values.
//!
//! ```text
//! 7   MODULE_2   name "ReJSON-RL" and version 3, 9 letters of 6 bits and 10 bits | 5 string | 0
//! string         the text of the document
//! ```
//!
//! This is the one place that knows the form in which documents are saved, dumped and sent to replicas.

use super::Malformed;
use super::pages::{OPCODE_EOF, OPCODE_STRING, number_versioned};
use super::reader::Reader;
use super::types;
use super::writer::Writer;
use crate::value::json::{JsonRef, entry_of, parse};
use crate::value::{DataType, Object};
use basalt_core::structures::entry::{Entry, EntryRef};

/// The version of the form: the text alone.
const VERSION: u64 = 3;

/// Returns the number of the module.
pub(super) fn number() -> u64 {
    number_versioned(DataType::Json.name(), VERSION)
}

/// Writes a document with its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    writer.kind(types::MODULE_2);
    writer.length(number());
    writer.length(OPCODE_STRING);
    writer.string(&JsonRef::of(entry).text());
    writer.length(OPCODE_EOF);
}

/// Reads a document whose module number has been read.
pub(super) fn read(key: &[u8], reader: &mut Reader<'_>) -> Result<Entry<Object>, Malformed> {
    const FORM: Malformed = Malformed("a document in an unknown form");
    if reader.length()? != OPCODE_STRING {
        return Err(FORM);
    }
    let text = reader.string()?;
    let doc = parse(&text).map_err(|_| Malformed("a document that is no JSON"))?;
    match reader.length()? {
        OPCODE_EOF => Ok(entry_of(key, doc)),
        _ => Err(FORM),
    }
}
