//! Large collections are saved by the piece: elements are shown in the order of their hashes, some at a time, and what
//! changes before the walk came by is remembered as it was.
//!
//! While it is being saved a collection changes with its undo log on ([`Body::keep_changes`]), so that each edit tells which
//! elements it touched, and what they were. Of an element that lies before the walk's position nothing is kept, as it
//! has been saved; of others the first change keeps what there was, and the walk leaves them out from then on. What was kept is
//! saved in the end. So a write costs what the piece costs, and memory grows with what was changed.
//!
//! A collection that is deleted or replaced meanwhile is kept until the walk is through with it. One that is taken out to be put
//! elsewhere, or that an undo log wants to have, is saved at once.

use std::collections::HashMap;

use super::{Begun, Chunk, Outlet, Stream};
use crate::engine::serial::pieces::Shape;
use crate::engine::value::{Body, Collection, ElementRef, Journal, Object};
use crate::structures::entry::{Entry, EntryRef, Value};

/// Collections of so many elements are saved by the piece; smaller ones take less time than to remember what they were.
const ELEMENTS_MIN: usize = if cfg!(test) { 12 } else { 1024 };

/// Elements between two looks at the time.
const ELEMENTS_PER_STEP: usize = if cfg!(test) { 4 } else { 64 };

/// What an element was.
struct Before {
    number: u64,
    value: Box<[u8]>,
}

/// A large collection on its way.
pub(in crate::engine) struct Large {
    stream: u64,
    /// What it was at the cut.
    shape: Shape,
    /// Elements written so far.
    written: u64,
    /// The least hash that the walk has not seen; none when it has seen all.
    position: Option<u64>,
    /// What elements were that changed before the walk came by; none: not there.
    before: HashMap<Box<[u8]>, Option<Before>>,
    /// What was encoded and not handed on yet.
    chunk: Chunk,
    /// The collection itself, once it was deleted or replaced.
    pub(in crate::engine) left: Option<Entry<Object>>,
}

/// The collection of an entry, if it is one to be saved by the piece.
fn collection(entry: EntryRef<'_, Object>) -> Option<&Collection> {
    match entry.value() {
        Value::Object(object) => Some(&object.body),
        _ => None,
    }
}

/// Whether an entry is to be saved by the piece.
pub(super) fn is_large(entry: EntryRef<'_, Object>) -> bool {
    let elements = collection(entry).and_then(Body::elements);
    elements.is_some_and(|elements| elements >= ELEMENTS_MIN)
}

impl Large {
    /// Begins with a collection as it is now.
    pub(super) fn begin(entry: EntryRef<'_, Object>, db: usize, outlet: &dyn Outlet) -> Large {
        let stream = outlet.next_stream();
        let mut chunk = Chunk::of(db);
        chunk.stream = Some(Stream {
            id: stream,
            is_last: false,
        });
        chunk.keys = 1;
        let shape = outlet.begin_large(entry, &mut chunk);
        Large {
            stream,
            shape,
            written: 0,
            position: Some(0),
            before: HashMap::new(),
            chunk,
            left: None,
        }
    }

    /// Elements are about to be others: `changes` tells what undoes that, and what it had before ends at `from`.
    pub(super) fn note(&mut self, entry: EntryRef<'_, Object>, changes: &Journal, from: usize) {
        let (Some(position), Some(body)) = (self.position, collection(entry)) else {
            return;
        };
        // From the last change to the first: what an element was at first is what counts.
        let mut first: HashMap<Box<[u8]>, Option<Before>> = HashMap::new();
        body.each_before(changes, from, &mut |name, was| {
            if body.element_hash(name) < position || self.before.contains_key(name) {
                return;
            }
            let was = was.map(|element| Before {
                number: element.number,
                value: element.value.to_vec().into(),
            });
            first.insert(name.into(), was);
        });
        self.before.extend(first);
    }

    /// Goes on; true while something is left.
    pub(super) fn go_on(
        &mut self,
        entry: EntryRef<'_, Object>,
        outlet: &dyn Outlet,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        let Some(body) = collection(entry) else {
            return false;
        };
        while let Some(position) = self.position {
            let Large {
                before,
                chunk,
                written,
                shape,
                ..
            } = self;
            let next = body.show_some(position, ELEMENTS_PER_STEP, &mut |element| {
                if !before.contains_key(element.name) {
                    let begun = Begun {
                        key: entry.key(),
                        shape,
                        written: *written,
                    };
                    *written += u64::from(outlet.encode_piece(&element, &begun, chunk));
                }
            });
            self.position = (next != 0).then_some(next);
            self.hand_on(outlet);
            if !goes_on() {
                return true;
            }
        }
        let mut steps = 0;
        while let Some(name) = self.before.keys().next() {
            let name = name.clone();
            if let Some(Some(was)) = self.before.remove(&name) {
                let element = ElementRef::new(&name, &was.value, was.number);
                let begun = Begun {
                    key: entry.key(),
                    shape: &self.shape,
                    written: self.written,
                };
                self.written += u64::from(outlet.encode_piece(&element, &begun, &mut self.chunk));
            }
            steps += 1;
            if steps % ELEMENTS_PER_STEP == 0 {
                self.hand_on(outlet);
                if !goes_on() {
                    return true;
                }
            }
        }
        false
    }

    fn hand_on(&mut self, outlet: &dyn Outlet) {
        if self.chunk.is_full() {
            let next = Chunk {
                db: self.chunk.db,
                stream: self.chunk.stream,
                ..Chunk::default()
            };
            outlet.give(std::mem::replace(&mut self.chunk, next));
        }
    }

    /// All is encoded.
    pub(super) fn end(mut self, outlet: &dyn Outlet) -> Option<Entry<Object>> {
        self.chunk.stream = Some(Stream {
            id: self.stream,
            is_last: true,
        });
        let is_whole = self.written == self.shape.count();
        debug_assert!(
            is_whole,
            "{} of {} elements",
            self.written,
            self.shape.count()
        );
        match is_whole {
            true => outlet.give(self.chunk),
            false => outlet.fail("a collection was saved with other elements than it had"),
        }
        self.left
    }
}
