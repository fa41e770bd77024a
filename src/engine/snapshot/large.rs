//! Large collections are saved in pieces: some pieces at a time, and elements that change before they are saved are
//! kept in their state at the cut.
//!
//! The state of the save is stored in the object ([`Object::saving`](Object)), so that it moves with the
//! collection: under another key, into another database or shard, or aside, if the collection was deleted or
//! replaced.
//!
//! Lists, streams and sketches have an order and keep their state at the cut themselves
//! ([`CollectionBody::begin_cut`]). Elements of sets, sorted sets and hashes are saved in the order of their hashes:
//! such a collection records an undo journal of every edit while it is being saved ([`CollectionBody::keep_changes`]),
//! so that each edit reports which elements it touched and their previous state. Elements that lie before the walk's
//! position have been saved, and nothing is kept of them; the first change of an element after the position keeps its
//! previous state, which the walk saves when it reaches the element. So a write costs as much as its elements, and
//! memory grows with what was changed.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Chunk, CollectionProgress, Outlet, Stream};
use crate::marks::Marks;
use crate::serial::pieces::CollectionShape;
use crate::value::{Collection, CollectionBody, CollectionPiece, ElementRef, Journal, Object};
use basalt_core::alloc::account;
use basalt_core::base::sizes::usual_or_small;
use basalt_core::structures::entry::{Entry, EntryRef, Value};

/// Minimum number of elements of a collection that is saved in pieces; a smaller collection takes less time to save
/// than to track.
fn elements_min() -> usize {
    usual_or_small(1024, 12)
}

/// Collections with at least this many bytes are saved in pieces, too.
fn bytes_min() -> usize {
    usual_or_small(128, 8) * 1024
}

/// Elements saved between two checks of the time.
fn elements_per_step() -> usize {
    usual_or_small(64, 4)
}

/// The previous state of an element.
struct ElementBeforeImage {
    number: u64,
    value: Box<[u8]>,
}

/// An element that changed before the walk reached it; `was` is None if it did not exist.
struct ChangedElement {
    name: Box<[u8]>,
    was: Option<ElementBeforeImage>,
    /// The next element with the same hash.
    next_same_hash: Option<Box<ChangedElement>>,
}

impl ChangedElement {
    fn has(&self, name: &[u8]) -> bool {
        let mut next = Some(self);
        while let Some(kept) = next {
            if *kept.name == *name {
                return true;
            }
            next = kept.next_same_hash.as_deref();
        }
        false
    }
}

/// Progress of saving the elements of a collection without an order.
struct Elements {
    /// The least hash that the walk has not reached; None at the end.
    position: Option<u64>,
    /// Elements that changed before the walk reached them, by their hashes. (A hash table would have to grow all at
    /// once.)
    before: BTreeMap<u64, ChangedElement>,
}

impl Elements {
    fn has(&self, hash: impl FnOnce() -> u64, name: &[u8]) -> bool {
        let kept = match self.before.is_empty() {
            true => None,
            false => self.before.get(&hash()),
        };
        kept.is_some_and(|kept| kept.has(name))
    }

    /// Removes and returns a changed element that the walk has already passed.
    fn next_kept(&mut self) -> Option<ChangedElement> {
        let first = self.before.first_entry()?;
        let is_seen = self.position.is_none_or(|position| *first.key() < position);
        is_seen.then(|| first.remove())
    }
}

/// A large collection that is being saved.
pub(crate) struct LargeCollectionSave {
    outlet: Arc<dyn Outlet>,
    stream: u64,
    /// Key of the collection at the cut.
    key: Box<[u8]>,
    /// Shape of the collection at the cut.
    shape: CollectionShape,
    /// Elements written so far.
    written: u64,
    /// The changed elements; None if the collection itself keeps its state at the cut.
    elements: Option<Elements>,
    /// Encoded data that has not been passed to the outlet yet.
    chunk: Chunk,
    is_ended: bool,
}

/// True if an entry is to be saved in pieces.
pub(super) fn is_large(entry: EntryRef<'_, Object>) -> bool {
    let Value::Object(object) = entry.value() else {
        return false;
    };
    // A document is saved as one string, so that other servers can read it.
    if matches!(object.body, Collection::Json(_)) {
        return false;
    }
    let elements = object.body.elements();
    elements.is_some_and(|elements| elements >= elements_min())
        || entry.memory_bytes() + object.bytes() >= bytes_min()
}

impl LargeCollectionSave {
    /// Begins to save a collection in its current state.
    pub(super) fn begin(
        entry: &mut Entry<Object>,
        marks: &Marks<'_>,
        db: usize,
        outlet: &Arc<dyn Outlet>,
    ) {
        let stream = outlet.begin_stream();
        let mut chunk = Chunk::of(db);
        chunk.stream = Some(Stream {
            id: stream,
            is_last: false,
        });
        chunk.keys = 1;
        let shape = outlet.begin_large(entry.view(), marks, &mut chunk);
        let key = entry.view().key().into();
        let Some(object) = entry.object_mut() else {
            return;
        };
        let elements = match object.body.begin_cut() {
            true => None,
            false => Some(Elements {
                position: Some(0),
                before: BTreeMap::new(),
            }),
        };
        object.saving = Some(Box::new(LargeCollectionSave {
            outlet: Arc::clone(outlet),
            stream,
            key,
            shape,
            written: 0,
            elements,
            chunk,
            is_ended: false,
        }));
    }

    /// Returns the outlet that the collection is sent to.
    pub(super) fn outlet(&self) -> &Arc<dyn Outlet> {
        &self.outlet
    }

    /// True if a part of the collection has been encoded.
    pub(crate) fn is_partly_saved(&self) -> bool {
        self.written > 0
    }

    /// True if changes must be reported by [`LargeCollectionSave::note`].
    pub(crate) fn follows_changes(&self) -> bool {
        self.elements.is_some()
    }

    /// Records elements that an edit changed: `changes` is the undo journal; its part from the offset `from` on
    /// belongs to this edit.
    pub(crate) fn note(&mut self, body: &Collection, changes: &Journal, from: usize) {
        let Some(elements) = &mut self.elements else {
            return;
        };
        let Some(position) = elements.position else {
            return;
        };
        // The journal is read from the last change to the first: the state before the first change of an element
        // counts.
        let mut first: HashMap<Box<[u8]>, Option<ElementBeforeImage>> = HashMap::new();
        body.each_before(changes, from, &mut |name, was| {
            let hash = body.element_hash(name);
            if hash < position || elements.has(|| hash, name) {
                return;
            }
            let was = was.map(|element| ElementBeforeImage {
                number: element.number,
                value: element.value.to_vec().into(),
            });
            first.insert(name.into(), was);
        });
        for (name, was) in first {
            let hash = body.element_hash(&name);
            let next_same_hash = elements.before.remove(&hash).map(Box::new);
            let value_bytes = was.as_ref().map_or(0, |was| was.value.len());
            let bytes = size_of::<(u64, ChangedElement)>() + name.len() + value_bytes;
            self.outlet.note_copied(bytes);
            elements.before.insert(
                hash,
                ChangedElement {
                    name,
                    was,
                    next_same_hash,
                },
            );
        }
    }

    /// Continues saving. Returns true while anything is left. Checks `goes_on` between steps.
    pub(crate) fn go_on(
        &mut self,
        body: &mut Collection,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            let more = match (self.outlet.is_given_up(), &self.elements) {
                (true, Some(_)) => account::uncharged(|| self.forget_some()),
                (true, None) => body.forget_cut(elements_per_step()),
                (false, Some(_)) => account::uncharged(|| self.show_some(body)),
                (false, None) => {
                    self.outlet.note_copied(body.take_copied());
                    let more = body.show_cut(elements_per_step(), &mut |piece| self.encode(&piece));
                    account::uncharged(|| self.hand_on());
                    more
                }
            };
            if !more || !goes_on() {
                return more;
            }
        }
    }

    /// Saves some elements. Returns true while more are left.
    fn show_some(&mut self, body: &Collection) -> bool {
        let Some(mut elements) = self.elements.take() else {
            return false;
        };
        for _ in 0..elements_per_step() {
            let Some(mut kept) = elements.next_kept() else {
                break;
            };
            loop {
                if let Some(was) = &kept.was {
                    let element = ElementRef::new(&kept.name, &was.value, was.number);
                    self.encode(&CollectionPiece::Element(element));
                }
                match kept.next_same_hash {
                    Some(next) => kept = *next,
                    None => break,
                }
            }
        }
        let is_behind = elements.before.first_key_value().is_some_and(|(hash, _)| {
            let position = elements.position;
            position.is_none_or(|position| *hash < position)
        });
        if !is_behind && let Some(position) = elements.position {
            let next = body.show_some(position, elements_per_step(), &mut |element| {
                if !elements.has(|| body.element_hash(element.name), element.name) {
                    self.encode(&CollectionPiece::Element(element));
                }
            });
            elements.position = (next != 0).then_some(next);
        }
        self.hand_on();
        let more = elements.position.is_some() || !elements.before.is_empty();
        self.elements = Some(elements);
        more
    }

    /// Drops some of the kept elements. Returns true while more are left.
    fn forget_some(&mut self) -> bool {
        let Some(elements) = &mut self.elements else {
            return false;
        };
        elements.position = None;
        for _ in 0..elements_per_step() {
            if elements.before.pop_first().is_none() {
                return false;
            }
        }
        true
    }

    fn encode(&mut self, piece: &CollectionPiece<'_>) {
        let begun = CollectionProgress {
            key: &self.key,
            shape: &self.shape,
            written: self.written,
        };
        self.written += self.outlet.encode_piece(piece, &begun, &mut self.chunk);
    }

    fn hand_on(&mut self) {
        if self.chunk.is_full() {
            let next = Chunk {
                db: self.chunk.db,
                stream: self.chunk.stream,
                ..Chunk::default()
            };
            self.outlet.give(std::mem::replace(&mut self.chunk, next));
        }
    }

    /// Ends the save: all is encoded, or the snapshot was aborted.
    pub(crate) fn end(mut self: Box<Self>) {
        self.is_ended = true;
        if self.outlet.is_given_up() {
            return;
        }
        let begun = CollectionProgress {
            key: &self.key,
            shape: &self.shape,
            written: self.written,
        };
        self.outlet.end_large(&begun, &mut self.chunk);
        self.chunk.stream = Some(Stream {
            id: self.stream,
            is_last: true,
        });
        let count = self.shape.count();
        debug_assert!(
            self.written == count,
            "{} of {count} elements",
            self.written
        );
        match self.written == count {
            true => self.outlet.give(std::mem::take(&mut self.chunk)),
            false => {
                let why = "a collection was saved with other elements than it had";
                self.outlet.fail(why);
            }
        }
    }
}

impl Drop for LargeCollectionSave {
    fn drop(&mut self) {
        if !self.is_ended && !self.outlet.is_given_up() {
            self.outlet
                .fail("a collection went away before it was saved");
        }
        self.outlet.end_stream();
    }
}
