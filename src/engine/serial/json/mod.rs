//! Documents, in the form of RedisJSON's module values.
//!
//! ```text
//! 7   MODULE_2   name "ReJSON-RL" and version, 9 letters of 6 bits and 10 bits | ( opcode | value ) … | 0
//! opcode         1 signed · 2 unsigned · 4 double · 5 string
//!
//! version 0      the document value by value, see [`tree`]                      RedisJSON 1
//! version 2      string text | unsigned n | two strings if n > 0                RedisJSON 2 before its release
//! version 3      string text                                                    RedisJSON 2 to 8.8, valkey-json
//! version 4      string CBOR, see [`cbor`]                                      RedisJSON after that
//! ```
//!
//! All of these are read; version 3 is written, which every server with such a module reads. This is the one place that
//! knows the form in which documents are saved, dumped and sent to replicas.

mod cbor;
#[cfg(test)]
mod tests;
mod tree;

use super::Malformed;
use super::pages::{OPCODE_EOF, OPCODE_STRING, number_versioned};
use super::reader::Reader;
use super::types;
use super::writer::Writer;
use crate::value::json::{JsonRef, entry_of, parse};
use crate::value::{DataType, Object};
use basalt_core::structures::entry::{Entry, EntryRef};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The version that is written: the text alone.
const VERSION: u64 = 3;

const OPCODE_SIGNED: u64 = 1;
const OPCODE_UNSIGNED: u64 = 2;
const OPCODE_DOUBLE: u64 = 4;

/// The deepest document, as in RedisJSON.
const DEPTH_MAX: usize = 128;

const FORM: Malformed = Malformed("a document in an unknown form");
const DEEP: Malformed = Malformed("a document that is too deep");

/// Whether this process has written a document in this form.
static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Whether this process has written a document, so that a snapshot may contain some: servers without a module for them
/// cannot load it.
pub fn has_written_documents() -> bool {
    HAS_WRITTEN.load(Relaxed)
}

/// The number of the module without a version.
fn module() -> u64 {
    number_versioned(DataType::Json.name(), 0)
}

/// Whether a module's number, in any version, is that of documents.
pub(super) fn is_document(number: u64) -> bool {
    number >> 10 == module() >> 10
}

/// Writes a document with its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    if !has_written_documents() {
        HAS_WRITTEN.store(true, Relaxed);
    }
    writer.kind(types::MODULE_2);
    writer.length(module() | VERSION);
    writer.length(OPCODE_STRING);
    writer.string(&JsonRef::of(entry).text());
    writer.length(OPCODE_EOF);
}

/// Reads a document whose module number has been read.
pub(super) fn read(
    number: u64,
    key: &[u8],
    reader: &mut Reader<'_>,
) -> Result<Entry<Object>, Malformed> {
    let doc = match number & 1023 {
        0 => document(&tree::text(reader)?)?,
        2 => {
            let doc = document(&string(reader)?)?;
            if unsigned(reader)? > 0 {
                string(reader)?;
                string(reader)?;
            }
            doc
        }
        VERSION => document(&string(reader)?)?,
        4 => document(&cbor::text(&string(reader)?)?)?,
        _ => return Err(Malformed::MODULE),
    };
    match reader.length()? {
        OPCODE_EOF => Ok(entry_of(key, doc)),
        _ => Err(FORM),
    }
}

fn document(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    parse(text).map_err(|_| Malformed("a document that is no JSON"))
}

fn string<'a>(reader: &mut Reader<'a>) -> Result<std::borrow::Cow<'a, [u8]>, Malformed> {
    match reader.length()? {
        OPCODE_STRING => reader.string(),
        _ => Err(FORM),
    }
}

fn unsigned(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    match reader.length()? {
        OPCODE_UNSIGNED => reader.length(),
        _ => Err(FORM),
    }
}

/// JSON text that is written value by value; the parser of documents checks it afterwards.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// The arrays and objects that are open.
    open: Vec<Open>,
}

struct Open {
    is_object: bool,
    /// The elements or members that are still to come.
    left: u64,
    has_any: bool,
}

/// The next thing to read for a [`Text`].
enum Next {
    Value,
    /// A key, and then its value.
    Member,
    End,
}

impl Text {
    fn word(&mut self, word: &str) {
        self.bytes.extend_from_slice(word.as_bytes());
    }

    fn number(&mut self, number: impl itoa::Integer) {
        self.word(itoa::Buffer::new().format(number));
    }

    fn float(&mut self, number: f64) {
        self.word(&format!("{number:?}"));
    }

    fn quoted(&mut self, text: &[u8]) {
        self.bytes.push(b'"');
        for byte in text {
            match byte {
                b'"' | b'\\' => self.bytes.extend_from_slice(&[b'\\', *byte]),
                0..0x20 => self.word(&format!("\\u{byte:04x}")),
                _ => self.bytes.push(*byte),
            }
        }
        self.bytes.push(b'"');
    }

    /// Begins an array or an object of `len` elements or members.
    fn begin(&mut self, is_object: bool, len: u64) -> Result<(), Malformed> {
        if self.open.len() == DEPTH_MAX {
            return Err(DEEP);
        }
        self.bytes.push(if is_object { b'{' } else { b'[' });
        self.open.push(Open {
            is_object,
            left: len,
            has_any: false,
        });
        Ok(())
    }

    /// Ends what is complete, and returns what follows.
    fn next(&mut self) -> Next {
        loop {
            let Some(open) = self.open.last_mut() else {
                return Next::End;
            };
            if open.left == 0 {
                self.bytes.push(if open.is_object { b'}' } else { b']' });
                self.open.pop();
                continue;
            }
            open.left -= 1;
            if std::mem::replace(&mut open.has_any, true) {
                self.bytes.push(b',');
            }
            return match open.is_object {
                true => Next::Member,
                false => Next::Value,
            };
        }
    }
}
