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

use std::borrow::Cow;

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, types};
use crate::engine::value::sketch::{Sketch, entry_of, view};
use crate::engine::value::{DataType, Kind, Object};
use crate::structures::entry::{Entry, EntryRef};
use crate::structures::sketch::bloom::Bloom;
use crate::structures::sketch::count_min::CountMin;
use crate::structures::sketch::cuckoo::Cuckoo;
use crate::structures::sketch::t_digest::TDigest;
use crate::structures::sketch::top_k::TopK;
use crate::structures::sketch::{BYTES_MAX, CHUNK_BYTES_MAX, Parts};

/// Of the form of the strings.
const VERSION: u64 = 1023;
const STRING: u64 = 5;
const END: u64 = 0;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const SKETCHES: [DataType; 5] = [
    DataType::Bloom,
    DataType::Cuckoo,
    DataType::CountMin,
    DataType::TopK,
    DataType::TDigest,
];

/// The number that stands for a type.
fn number_of(data_type: DataType) -> u64 {
    let letter = |byte: u8| LETTERS.iter().position(|letter| *letter == byte);
    let name = data_type.name().bytes();
    let number = name.fold(0, |number, byte| {
        number << 6 | letter(byte).unwrap_or(0) as u64
    });
    number << 10 | VERSION
}

/// Writes a sketch, behind its type.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    let data_type = Kind(entry.kind()).data_type();
    writer.kind(types::MODULE_2);
    writer.length(number_of(data_type));
    let (head, data) = parts(entry);
    for piece in std::iter::once(head.as_slice()).chain(data.chunks(CHUNK_BYTES_MAX)) {
        writer.length(STRING);
        writer.string(piece);
    }
    writer.length(END);
}

/// What a sketch is made of, and what it counted.
pub fn parts(entry: EntryRef<'_, Object>) -> (Vec<u8>, Vec<u8>) {
    fn both<S: Sketch + Parts>(entry: EntryRef<'_, Object>) -> (Vec<u8>, Vec<u8>) {
        let sketch = view::<S>(entry);
        (sketch.head(), sketch.data())
    }
    match Kind(entry.kind()).data_type() {
        DataType::Bloom => both::<Bloom>(entry),
        DataType::Cuckoo => both::<Cuckoo>(entry),
        DataType::CountMin => both::<CountMin>(entry),
        DataType::TopK => both::<TopK>(entry),
        DataType::TDigest => both::<TDigest>(entry),
        other => unreachable!("no sketch: {other:?}"),
    }
}

/// Reads a sketch.
pub(super) fn read(key: &[u8], reader: &mut Reader<'_>) -> Result<Entry<Object>, Malformed> {
    let number = reader.length()?;
    let data_type = SKETCHES
        .into_iter()
        .find(|data_type| number_of(*data_type) == number)
        .ok_or(Malformed("a value of a module that is not here"))?;
    let head = piece(reader)?.ok_or(Malformed::SHORT)?;
    // A sketch that counted nothing may have no pieces at all.
    let mut data = Vec::new();
    while let Some(more) = piece(reader)? {
        if (data.len() + more.len()) as u64 > BYTES_MAX {
            return Err(Malformed("a sketch beyond the limit"));
        }
        data.extend_from_slice(&more);
    }
    fn made<S: Sketch + Parts>(key: &[u8], head: &[u8], data: &[u8]) -> Option<Entry<Object>> {
        S::from_parts(head, data).map(|sketch| entry_of(key, sketch))
    }
    let entry = match data_type {
        DataType::Bloom => made::<Bloom>(key, &head, &data),
        DataType::Cuckoo => made::<Cuckoo>(key, &head, &data),
        DataType::CountMin => made::<CountMin>(key, &head, &data),
        DataType::TopK => made::<TopK>(key, &head, &data),
        DataType::TDigest => made::<TDigest>(key, &head, &data),
        _ => None,
    };
    entry.ok_or(Malformed("a sketch whose parts do not fit together"))
}

/// The next string; none at the end.
fn piece<'a>(reader: &mut Reader<'a>) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
    match reader.length()? {
        STRING => reader.string().map(Some),
        END => Ok(None),
        _ => Err(Malformed("a part of a sketch of another kind")),
    }
}
