//! Sketches: values of modules, as servers call them.
//!
//! ```text
//! 7   MODULE_2   name and version of the type, 9 letters of 6 bits and 10 bits | ( opcode | value ) … | 0
//! opcode         5 string
//! strings        what the sketch is made of, then all that it counted, in pieces
//! ```
//!
//! The names are those that TYPE shows. The version is one that no module of Redis has, because the strings are not
//! theirs: their servers refuse such a value, and theirs are refused here.

use super::types;
use super::writer::Writer;
use crate::value::DataType;

/// Of the form of the strings.
const VERSION: u64 = 1023;
/// A string follows.
pub(super) const STRING: u64 = 5;
/// Nothing follows.
pub(super) const END: u64 = 0;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The number that stands for a type.
pub(super) fn number_of(data_type: DataType) -> u64 {
    number_named(data_type.name())
}

/// The number that stands for a name.
pub(super) fn number_named(name: &str) -> u64 {
    let letter = |byte: u8| LETTERS.iter().position(|letter| *letter == byte);
    let number = name.bytes().fold(0, |number, byte| {
        number << 6 | letter(byte).unwrap_or(0) as u64
    });
    number << 10 | VERSION
}

/// Writes the beginning of a sketch of which the pages follow, behind its type.
pub(super) fn begin(data_type: DataType, head: &[u8], writer: &mut Writer) {
    writer.kind(types::MODULE_2);
    writer.length(number_of(data_type));
    page(head, writer);
}

/// Writes some of what a sketch counted.
pub(super) fn page(page: &[u8], writer: &mut Writer) {
    writer.length(STRING);
    writer.string(page);
}

/// Writes what follows the last page.
pub(super) fn end(writer: &mut Writer) {
    writer.length(END);
}
