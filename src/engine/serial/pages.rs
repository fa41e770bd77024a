//! Sketches (probabilistic types), in the form of module values.
//!
//! ```text
//! 7   MODULE_2   name and version of the type, 9 letters of 6 bits and 10 bits | ( opcode | value ) … | 0
//! opcode         5 string
//! strings        the parameters of the sketch, then all its data, in pieces
//! ```
//!
//! The names are those of TYPE. No module of Redis uses this version, because the strings differ from theirs: servers
//! with such a module reject values written here, and their values are rejected here.

use super::types;
use super::writer::Writer;
use crate::value::DataType;

/// Version of the format of the strings.
const VERSION: u64 = 1023;
/// Opcode: a string follows.
pub(super) const OPCODE_STRING: u64 = 5;
/// Opcode: end of the value.
pub(super) const OPCODE_EOF: u64 = 0;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the module number for a data type.
pub(super) fn number_of(data_type: DataType) -> u64 {
    number_named(data_type.name())
}

/// Returns the module number for a module name of nine characters.
pub(super) fn number_named(name: &str) -> u64 {
    number_versioned(name, VERSION)
}

/// Returns the module number for a module name of nine characters and a version.
pub(super) fn number_versioned(name: &str, version: u64) -> u64 {
    let letter = |byte: u8| LETTERS.iter().position(|letter| *letter == byte);
    let number = name.bytes().fold(0, |number, byte| {
        number << 6 | letter(byte).unwrap_or(0) as u64
    });
    number << 10 | version
}

/// Returns the name and the version of a module from its number, which comes from a file.
pub fn module_of(number: u64) -> (String, u64) {
    let letter = |at: u64| char::from(LETTERS[(number >> (10 + 6 * at)) as usize & 63]);
    ((0..9).rev().map(letter).collect(), number & 1023)
}

/// Writes the head of a sketch after its type byte; the pages follow.
pub(super) fn begin(data_type: DataType, head: &[u8], writer: &mut Writer) {
    writer.kind(types::MODULE_2);
    writer.length(number_of(data_type));
    page(head, writer);
}

/// Writes one page of a sketch's data.
pub(super) fn page(page: &[u8], writer: &mut Writer) {
    writer.length(OPCODE_STRING);
    writer.string(page);
}

/// Writes the end marker that follows the last page.
pub(super) fn end(writer: &mut Writer) {
    writer.length(OPCODE_EOF);
}
