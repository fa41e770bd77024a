//! Whole sketches: see [`pages`] for the format.

use std::borrow::Cow;

use super::Malformed;
use super::pages::{self, OPCODE_EOF, OPCODE_STRING, number_of};
use super::reader::Reader;
use super::writer::Writer;
use crate::value::sketch::{SketchType, entry_of, view};
use crate::value::{DataType, Object, ObjectKind};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::sketch::bloom::Bloom;
use basalt_core::structures::sketch::count_min::CountMin;
use basalt_core::structures::sketch::cuckoo::Cuckoo;
use basalt_core::structures::sketch::t_digest::TDigest;
use basalt_core::structures::sketch::top_k::TopK;
use basalt_core::structures::sketch::{BYTES_MAX, CHUNK_BYTES_MAX, SketchCodec};

const SKETCHES: [DataType; 5] = [
    DataType::Bloom,
    DataType::Cuckoo,
    DataType::CountMin,
    DataType::TopK,
    DataType::TDigest,
];

/// Writes a sketch after its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    let (head, data) = parts(entry);
    pages::begin(ObjectKind(entry.kind()).data_type(), &head, writer);
    data.chunks(CHUNK_BYTES_MAX)
        .for_each(|piece| pages::page(piece, writer));
    pages::end(writer);
}

/// Returns the parameters and the data of a sketch, both encoded.
pub fn parts(entry: EntryRef<'_, Object>) -> (Vec<u8>, Vec<u8>) {
    fn both<S: SketchType + SketchCodec>(entry: EntryRef<'_, Object>) -> (Vec<u8>, Vec<u8>) {
        let sketch = view::<S>(entry);
        (sketch.head(), sketch.data())
    }
    match ObjectKind(entry.kind()).data_type() {
        DataType::Bloom => both::<Bloom>(entry),
        DataType::Cuckoo => both::<Cuckoo>(entry),
        DataType::CountMin => both::<CountMin>(entry),
        DataType::TopK => both::<TopK>(entry),
        DataType::TDigest => both::<TDigest>(entry),
        other => unreachable!("no sketch: {other:?}"),
    }
}

/// Reads a sketch whose module number has been read.
pub(super) fn read(
    number: u64,
    key: &[u8],
    reader: &mut Reader<'_>,
) -> Result<Entry<Object>, Malformed> {
    let data_type = SKETCHES
        .into_iter()
        .find(|data_type| number_of(*data_type) == number)
        .ok_or(Malformed::MODULE)?;
    let head = piece(reader)?.ok_or(Malformed::SHORT)?;
    // An empty sketch may have no pieces at all.
    let mut data = Vec::new();
    while let Some(more) = piece(reader)? {
        if (data.len() + more.len()) as u64 > BYTES_MAX {
            return Err(Malformed("a sketch larger than the limit"));
        }
        data.extend_from_slice(&more);
    }
    fn made<S: SketchType + SketchCodec>(
        key: &[u8],
        head: &[u8],
        data: &[u8],
    ) -> Option<Entry<Object>> {
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
    entry.ok_or(Malformed("a sketch with inconsistent parts"))
}

/// Reads the next string of a module value; None at its end marker.
fn piece<'a>(reader: &mut Reader<'a>) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
    match reader.length()? {
        OPCODE_STRING => reader.string().map(Some),
        OPCODE_EOF => Ok(None),
        _ => Err(Malformed("a part of a sketch of another type")),
    }
}
