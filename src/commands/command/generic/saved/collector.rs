//! The sink of the snapshots under test: collects what was saved.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crossbeam::queue::SegQueue;

use basalt_core::structures::entry::{EntryRef, Value};
use basalt_engine::marks::Marks;
use basalt_engine::serial::pieces::CollectionShape;
use basalt_engine::serial::{self, Form, sketch, writer::Writer};
use basalt_engine::snapshot::{Chunk, CollectionProgress, Outlet, Stream};
use basalt_engine::value::{Collection, CollectionBody, CollectionPiece, ElementRef, Object};

/// A saved entry: its database, and its complete state.
pub(super) type SavedEntry = (usize, Vec<u8>);

/// Kinds of collections that are saved in pieces.
pub(super) const KINDS: usize = 4;

/// First byte of a piece whose order matters.
const ORDERED: u8 = b'=';

/// Collects the saved entries.
#[derive(Default)]
pub(super) struct Collector {
    saved: SegQueue<SavedEntry>,
    /// Parts of large collections: the stream of chunks, the database, the first part and the pieces.
    parts: SegQueue<(Stream, usize, Vec<Vec<u8>>)>,
    pub(super) streams: AtomicU64,
    pub(super) open_streams: AtomicU64,
    /// Number of pieces saved, by kind: of lists, of streams, of sets and other unordered types, and of sketches.
    pub(super) pieces: [AtomicU64; KINDS],
    pub(super) is_given_up: AtomicBool,
}

/// Whether a collection consists of unordered elements.
fn is_unordered(entry: EntryRef<'_, Object>) -> bool {
    matches!(entry.value(), Value::Object(object)
        if matches!(object.body, Collection::Set(_) | Collection::SortedSet(_) | Collection::Hash(_)))
}

fn is_sketch(entry: EntryRef<'_, Object>) -> bool {
    matches!(entry.value(), Value::Object(object) if object.body.pages() > 0)
}

/// Returns the key of an entry and its properties.
fn first_part(entry: EntryRef<'_, Object>) -> Vec<u8> {
    format!("{:?} {:?} ", entry.key(), entry.deadline()).into_bytes()
}

/// Returns all of an entry except a string in a block, and unordered elements.
fn inline_part(entry: EntryRef<'_, Object>) -> Vec<u8> {
    let mut bytes = first_part(entry);
    if is_sketch(entry) {
        let (head, data) = sketch::parts(entry);
        bytes.extend(head);
        bytes.extend(data);
    } else if !is_unordered(entry) && !matches!(entry.value(), Value::Block(_)) {
        let mut writer = Writer::new(Form::Whole, false);
        // At time 0 no field has expired.
        serial::write(entry, 0, &mut writer);
        bytes.extend_from_slice(writer.bytes());
    }
    bytes
}

fn bytes_of(piece: &ElementRef<'_>) -> Vec<u8> {
    let value = piece.value.to_vec();
    format!("{:?} {:?} {:x}; ", piece.name, value, piece.number).into_bytes()
}

/// Returns an entry in a form that does not depend on the order of elements.
pub(super) fn whole(entry: EntryRef<'_, Object>) -> Vec<u8> {
    let mut bytes = inline_part(entry);
    match entry.value() {
        Value::Block(block) => bytes.extend_from_slice(block),
        Value::Object(object) if is_unordered(entry) => {
            let mut pieces = Vec::new();
            let mut position = 0;
            loop {
                let body = &object.body;
                position =
                    body.show_some(position, 100, &mut |piece| pieces.push(bytes_of(&piece)));
                if position == 0 {
                    break;
                }
            }
            pieces.sort_unstable();
            bytes.extend(pieces.into_iter().flatten());
        }
        _ => {}
    }
    bytes
}

impl Collector {
    fn push(&self, chunk: &mut Chunk, part: &[u8]) {
        chunk.bytes.extend((part.len() as u32).to_le_bytes());
        chunk.bytes.extend(part);
    }

    /// Returns all entries, sorted.
    pub(super) fn collect(&self) -> Vec<SavedEntry> {
        let mut all: Vec<SavedEntry> = std::iter::from_fn(|| self.saved.pop()).collect();
        let mut open: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        while let Some((stream, db, parts)) = self.parts.pop() {
            let known = open.entry(stream.id).or_default();
            known.extend(parts);
            if stream.is_last
                && let Some(mut parts) = open.remove(&stream.id)
            {
                match parts.get(1).is_some_and(|part| part[0] == ORDERED) {
                    true => parts[1..].iter_mut().for_each(|part| {
                        part.remove(0);
                    }),
                    false => parts[1..].sort_unstable(),
                }
                all.push((db, parts.concat()));
            }
        }
        assert!(open.is_empty() || self.is_given_up(), "each has its end");
        all.sort_unstable();
        all
    }
}

impl Outlet for Collector {
    fn encode(&self, entry: EntryRef<'_, Object>, _: &Marks<'_>, chunk: &mut Chunk) {
        match entry.value() {
            Value::Block(block) => {
                self.push(chunk, &inline_part(entry));
                chunk.push_block(block);
            }
            _ => self.push(chunk, &whole(entry)),
        }
    }

    fn takes_pieces(&self, _: EntryRef<'_, Object>) -> bool {
        true
    }

    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        _: &Marks<'_>,
        chunk: &mut Chunk,
    ) -> CollectionShape {
        let mut writer = Writer::new(Form::Whole, false);
        let shape = CollectionShape::begin(entry, 0, &mut writer);
        let mut bytes = first_part(entry);
        if is_sketch(entry) {
            bytes.extend(sketch::parts(entry).0);
        } else if !is_unordered(entry) {
            bytes.extend_from_slice(writer.bytes());
        }
        self.push(chunk, &bytes);
        shape
    }

    fn encode_piece(
        &self,
        piece: &CollectionPiece<'_>,
        at: &CollectionProgress<'_>,
        chunk: &mut Chunk,
    ) -> u64 {
        let kind = match piece {
            CollectionPiece::Node(..) => 0,
            CollectionPiece::Stream(_) => 1,
            CollectionPiece::Page(page) => {
                self.pieces[3].fetch_add(1, Relaxed);
                self.push(chunk, &[&[ORDERED], *page].concat());
                return 1;
            }
            CollectionPiece::Element(element) => {
                self.pieces[2].fetch_add(1, Relaxed);
                self.push(chunk, &bytes_of(element));
                return 1;
            }
        };
        self.pieces[kind].fetch_add(1, Relaxed);
        let mut writer = Writer::new(Form::Whole, false);
        writer.byte(ORDERED);
        let count = at.shape.piece(piece, &mut writer);
        self.push(chunk, writer.bytes());
        count
    }

    fn end_large(&self, at: &CollectionProgress<'_>, _: &mut Chunk) {
        assert_eq!(at.written, at.shape.count());
    }

    fn begin_stream(&self) -> u64 {
        self.open_streams.fetch_add(1, Relaxed);
        self.streams.fetch_add(1, Relaxed)
    }

    fn end_stream(&self) {
        self.open_streams.fetch_sub(1, Relaxed);
    }

    fn note_copied(&self, _: usize) {}

    fn fail(&self, why: &'static str) {
        panic!("{why}");
    }

    fn give(&self, chunk: Chunk) {
        let (mut at, mut blocks) = (0, chunk.blocks.iter().peekable());
        let mut entries = Vec::new();
        while at < chunk.bytes.len() {
            let len = chunk.bytes[at..at + 4].try_into().expect("four bytes");
            let end = at + 4 + u32::from_le_bytes(len) as usize;
            let mut entry = chunk.bytes[at + 4..end].to_vec();
            if let Some((_, block)) = blocks.next_if(|(position, _)| *position == end) {
                entry.extend_from_slice(block);
            }
            entries.push(entry);
            at = end;
        }
        assert!(blocks.next().is_none());
        match chunk.stream {
            Some(stream) => self.parts.push((stream, chunk.db, entries)),
            None => {
                assert_eq!(entries.len() as u64, chunk.keys);
                for entry in entries {
                    self.saved.push((chunk.db, entry));
                }
            }
        }
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }
}
