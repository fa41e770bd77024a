//! The interface of all large collections: their elements and pieces, and the journals that undo their changes.

use super::stream::piece::StreamPiece;
use basalt_core::alloc::slabs::Mover;
use basalt_core::structures::item::Item;
use basalt_core::structures::quicklist::{End, QuicklistLimits, QuicklistNodeView};
use basalt_core::structures::undo_log::{UndoLog, UndoRecord};

/// A journal that undoes the changes of a collection, without a full copy. Charged to no account.
pub enum Journal {
    /// For a collection with named members or fields.
    Changes(UndoLog),
    /// For a list, with the limits that it was made with.
    List {
        /// Changes of the list.
        changes: UndoLog,
        /// The limits needed to restore the nodes if the list has become a listpack since.
        limits: QuicklistLimits,
    },
    /// For a stream: copies of what changed.
    Stream(Box<super::stream::Before>),
}

impl Journal {
    /// Returns the undo log of a journal to continue, or a new one.
    pub(super) fn into_log(journal: Option<Journal>) -> UndoLog {
        match journal {
            Some(Journal::Changes(changes) | Journal::List { changes, .. }) => changes,
            _ => UndoLog::default(),
        }
    }

    /// Returns the changes of a collection with named members or fields, from the last one back to the offset
    /// `from`.
    pub(super) fn changes_to(&self, from: usize) -> impl Iterator<Item = UndoRecord<'_>> {
        let changes = match self {
            Journal::Changes(changes) => Some(changes.backwards_to(from)),
            _ => None,
        };
        changes.into_iter().flatten()
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Journal::Changes(changes) | Journal::List { changes, .. } => changes.len(),
            Journal::Stream(before) => before.bytes(),
        }
    }
}

/// The part of a collection that a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Any part of the collection.
    Any,
    /// The entries of a stream, not the state of its groups; in other collections any part.
    Entries,
}

/// A position in a walk over the memory of a collection. The default stands for the start and for the end. Each type
/// interprets the numbers in its own way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionCursor {
    /// Index of the structure within the collection.
    pub part: u64,
    /// Position in that structure.
    pub at: u128,
}

impl CollectionCursor {
    /// Returns the position in a collection that is a single structure, whose positions begin and end at 0.
    pub fn single(&self) -> u64 {
        self.at as u64
    }
}

impl From<u64> for CollectionCursor {
    fn from(position: u64) -> CollectionCursor {
        CollectionCursor {
            part: 0,
            at: position.into(),
        }
    }
}

/// An element of a collection that can be saved in pieces.
#[derive(Clone, Copy, Debug)]
pub struct ElementRef<'a> {
    /// The member or field.
    pub name: &'a [u8],
    /// The value of a field.
    pub value: Item<'a>,
    /// The bits of a sorted set member's score; the deadline of a hash field or set member, or [`u64::MAX`] without
    /// one.
    pub number: u64,
}

impl<'a> ElementRef<'a> {
    /// Creates an element from its parts.
    pub fn new(name: &'a [u8], value: &'a [u8], number: u64) -> ElementRef<'a> {
        let value = Item::bytes(value);
        ElementRef {
            name,
            value,
            number,
        }
    }
}

/// A piece of a collection that is saved in pieces.
#[derive(Clone, Copy)]
pub enum CollectionPiece<'a> {
    /// An element of a set, sorted set or hash.
    Element(ElementRef<'a>),
    /// A node of a list, and its number of elements.
    Node(&'a QuicklistNodeView<'a>, usize),
    /// A piece of a stream.
    Stream(StreamPiece<'a>),
    /// A page of a sketch.
    Page(&'a [u8]),
}

/// A callback that receives pieces.
pub type ShowPiece<'f> = dyn for<'a> FnMut(CollectionPiece<'a>) + 'f;

/// A callback that receives the name of a changed element and its previous state, if it existed.
pub type ShowBefore<'f> = dyn for<'a> FnMut(&'a [u8], Option<ElementRef<'a>>) + 'f;

/// Operations of all large collections, whatever their type.
pub trait CollectionBody {
    /// Returns a copy that shares nothing with the original.
    fn duplicate(&self) -> Self;

    /// Prefetches the memory read at one end.
    fn prefetch_end(&self, end: End) {
        let _ = end;
    }

    /// Prefetches the position of an element of this name, or where it would be, if it is likely not in the cache.
    /// `is_in_use` tells that the preceding command works on the collection too.
    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        let _ = (name, is_in_use);
    }

    /// Starts recording an undo journal, after `journal` if given. Returns false if this is not supported.
    fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
        match self.undo_log() {
            Some(changes) => {
                *changes = Some(Journal::into_log(journal));
                true
            }
            None => false,
        }
    }

    /// Stops recording and returns the journal.
    fn take_changes(&mut self) -> Option<Journal> {
        self.undo_log()?.take().map(Journal::Changes)
    }

    /// Returns the field that holds the undo log, if the type records its changes in one.
    fn undo_log(&mut self) -> Option<&mut Option<UndoLog>> {
        None
    }

    /// Undoes the changes of a journal, from the last to the first.
    fn undo(&mut self, journal: &Journal) {
        let _ = journal;
    }

    /// Returns the bytes that have to be copied before this part changes: 0 where a journal records single elements;
    /// None for collections without a journal.
    fn copied_bytes(&self, part: Part) -> Option<usize> {
        let _ = part;
        self.elements().map(|_| 0)
    }

    /// Returns the number of elements; None for sketches.
    fn elements(&self) -> Option<usize> {
        None
    }

    /// Returns a sketch's encoded state, without its pages.
    fn head(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the number of pages of a sketch.
    fn pages(&self) -> u64 {
        0
    }

    /// Returns the hash that determines the position of an element of this name.
    fn element_hash(&self, name: &[u8]) -> u64 {
        let _ = name;
        0
    }

    /// Visits about `budget` elements, starting at a position; each element that exists from the first call to the
    /// last is visited once. Returns the next position, the least hash that was not visited; 0 at the end.
    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        let _ = (position, budget, show);
        0
    }

    /// Visits the previous states of elements from a journal, from the last change to the first, down to the offset
    /// `from`.
    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        let _ = (changes, from, show);
    }

    /// Makes a cut: [`CollectionBody::show_cut`] will return the state at this time, in order and regardless of later
    /// changes. Returns false if the collection is saved element by element instead.
    fn begin_cut(&mut self) -> bool {
        false
    }

    /// Visits about `budget` small pieces in their state at the cut, or fewer large ones. Returns true while more
    /// are left.
    fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
        let _ = (budget, show);
        false
    }

    /// Returns the approximate bytes copied for the cut since the last call.
    fn take_copied(&mut self) -> usize {
        0
    }

    /// Drops the cut, freeing about `budget` pieces that were kept for it. Returns true while more are left.
    fn forget_cut(&mut self, budget: usize) -> bool {
        let _ = budget;
        false
    }

    /// Frees a bounded part, about `budget` elements. Returns true while more is left. What is left is no valid
    /// collection.
    fn free_some(&mut self, budget: usize) -> bool;

    /// Moves allocations out of sparse slabs of the allocator, examining about `budget` allocations, starting at
    /// `from`, where the previous call stopped. Returns the position where this call stops, the default at the end.
    /// Allocations that are referenced from outside stay.
    fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        let _ = (from, budget, mover);
        CollectionCursor::default()
    }
}
