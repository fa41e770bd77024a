//! Large collections in pieces, in the same forms as [`super::write`] writes them whole.

use super::writer::Writer;
use super::{self as serial, V12, lapsing, nodes, pages, stream, types, valkey};
use crate::value::{Collection, CollectionBody, CollectionPiece, ElementRef, Object, ObjectKind};
use basalt_core::structures::entry::{EntryRef, Value};

/// The description of a collection, and the form of its elements.
#[derive(Clone, Copy, Debug)]
pub struct CollectionShape {
    pub(super) form: CollectionForm,
    /// Number of elements to write; nodes for a stream, pages for a sketch.
    pub(super) count: u64,
    /// Deadline of the whole collection.
    pub(super) deadline: Option<u64>,
    /// Elements expired at this time are left out.
    now_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CollectionForm {
    Set,
    /// A set whose members have deadlines.
    VolatileSet,
    SortedSet,
    Hash,
    /// A hash with field deadlines, the earliest of which is not before this time.
    VolatileHash(u64),
    /// A list with this number of nodes.
    List(u64),
    /// A stream, with the features that determine its form.
    Stream(stream::StreamFeatures),
    Sketch,
}

/// Returns the parameters of a sketch.
fn head(entry: EntryRef<'_, Object>) -> Vec<u8> {
    match entry.value() {
        Value::Object(object) => object.body.head(),
        _ => Vec::new(),
    }
}

impl CollectionShape {
    /// Returns the number of elements that follow; of nodes for a stream, of pages for a sketch.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Describes a collection in its state at a time.
    pub fn of(entry: EntryRef<'_, Object>, now_ms: u64) -> CollectionShape {
        let Value::Object(object) = entry.value() else {
            unreachable!("only large collections are written by the piece")
        };
        let mut shape = CollectionShape {
            form: CollectionForm::Set,
            count: object.body.elements().unwrap_or(0) as u64,
            deadline: entry.deadline(),
            now_ms,
        };
        match &object.body {
            Collection::SortedSet(_) => shape.form = CollectionForm::SortedSet,
            Collection::Hash(table) => {
                match table.len(now_ms) {
                    // A collection with only expired elements is about to be deleted, but exists until then.
                    0 => shape.now_ms = 0,
                    live => shape.count = live as u64,
                }
                shape.form = match table.next_deadline() {
                    Some(earliest) => CollectionForm::VolatileHash(earliest),
                    None => CollectionForm::Hash,
                };
            }
            Collection::List(list) => shape.form = CollectionForm::List(list.nodes().len() as u64),
            Collection::Stream(stream) => {
                shape.form = CollectionForm::Stream(stream::StreamFeatures::of(stream));
                shape.count = stream.node_count() as u64;
            }
            Collection::Set(members) => {
                match members.len(now_ms) {
                    0 => shape.now_ms = 0,
                    live => shape.count = live as u64,
                }
                if members.next_deadline().is_some() {
                    shape.form = CollectionForm::VolatileSet;
                }
            }
            Collection::Json(_) => unreachable!("documents are written whole"),
            Collection::Bloom(_)
            | Collection::Cuckoo(_)
            | Collection::CountMin(_)
            | Collection::TopK(_)
            | Collection::TDigest(_) => {
                shape.form = CollectionForm::Sketch;
                shape.count = object.body.pages();
            }
        }
        shape
    }

    /// Writes the head of a collection after its type byte, in its state at a time.
    pub fn begin(entry: EntryRef<'_, Object>, now_ms: u64, writer: &mut Writer) -> CollectionShape {
        let shape = CollectionShape::of(entry, now_ms);
        match shape.form {
            CollectionForm::Set => writer.kind(types::SET),
            CollectionForm::VolatileSet => {
                lapsing::begin(writer);
                return shape;
            }
            CollectionForm::SortedSet => writer.kind(types::ZSET_2),
            CollectionForm::Hash => writer.kind(types::HASH),
            CollectionForm::VolatileHash(_) if writer.form() == serial::Form::Valkey => {
                valkey::begin_hash(shape.count, writer);
                return shape;
            }
            CollectionForm::VolatileHash(earliest) => {
                writer.needs(V12);
                writer.kind(types::HASH_METADATA);
                writer.millis(earliest);
            }
            CollectionForm::List(nodes) => {
                nodes::begin(nodes, writer);
                return shape;
            }
            CollectionForm::Stream(has) => stream::kind(has, writer),
            CollectionForm::Sketch => {
                let data_type = ObjectKind(entry.kind()).data_type();
                pages::begin(data_type, &head(entry), writer);
                return shape;
            }
        }
        writer.length(shape.count);
        shape
    }

    /// True if an element is left out because it had expired at the cut.
    pub(super) fn leaves_out(&self, piece: &ElementRef<'_>) -> bool {
        let has_deadline = !matches!(self.form, CollectionForm::SortedSet);
        has_deadline && piece.number <= self.now_ms
    }

    /// Writes a piece. Returns its number of elements, as counted by [`CollectionShape::count`].
    pub fn piece(&self, piece: &CollectionPiece<'_>, writer: &mut Writer) -> u64 {
        match piece {
            CollectionPiece::Element(element) => self.element(element, writer),
            CollectionPiece::Node(node, count) => {
                nodes::node(node, writer);
                *count as u64
            }
            CollectionPiece::Stream(piece) => match self.form {
                CollectionForm::Stream(has) => stream::piece(piece, has, writer),
                _ => 0,
            },
            CollectionPiece::Page(page) => {
                pages::page(page, writer);
                1
            }
        }
    }

    /// Writes what follows the last piece: an end marker (sketches, sets with member deadlines) or an empty producer
    /// section (some streams); nothing for other types.
    pub fn end(&self, writer: &mut Writer) {
        match self.form {
            CollectionForm::Sketch | CollectionForm::VolatileSet => pages::end(writer),
            CollectionForm::Stream(has) => stream::end(has, writer),
            _ => {}
        }
    }

    fn element(&self, piece: &ElementRef<'_>, writer: &mut Writer) -> u64 {
        if self.leaves_out(piece) {
            return 0;
        }
        match self.form {
            CollectionForm::SortedSet => {
                writer.string(piece.name);
                writer.double(f64::from_bits(piece.number));
            }
            CollectionForm::Hash => {
                writer.string(piece.name);
                writer.item(piece.value);
            }
            CollectionForm::VolatileHash(_) if writer.form() == serial::Form::Valkey => {
                writer.string(piece.name);
                writer.item(piece.value);
                let deadline = Some(piece.number).filter(|at_ms| *at_ms != u64::MAX);
                valkey::deadline(deadline, writer);
            }
            CollectionForm::VolatileHash(earliest) => {
                let behind = match piece.number {
                    u64::MAX => 0,
                    at_ms => at_ms.saturating_sub(earliest) + 1,
                };
                writer.length(behind);
                writer.string(piece.name);
                writer.item(piece.value);
            }
            CollectionForm::VolatileSet => {
                let deadline = Some(piece.number).filter(|at_ms| *at_ms != u64::MAX);
                lapsing::member(piece.name, deadline, writer);
            }
            CollectionForm::Set
            | CollectionForm::List(_)
            | CollectionForm::Stream(_)
            | CollectionForm::Sketch => {
                writer.string(piece.name);
            }
        }
        1
    }
}
