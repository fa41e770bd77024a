//! What every large collection can do, and what it is shown by: its elements and pieces, and what undoes its changes.

use super::stream::piece::StreamPiece;
use basalt_core::alloc::slabs::Mover;
use basalt_core::structures::item::Item;
use basalt_core::structures::quicklist::{End, Limits, NodeView};
use basalt_core::structures::undo_log::{Record, UndoLog};

/// What undoes the changes of a collection, without a copy of all of it. Charged to no account.
pub enum Journal {
    /// Of what has members or fields by name.
    Changes(UndoLog),
    /// Of a list, and what it was made with.
    List {
        /// Changes of the list.
        changes: UndoLog,
        /// For when it became too small for nodes.
        limits: Limits,
    },
    /// Of a stream.
    Stream(Box<super::stream::Before>),
}

impl Journal {
    /// The undo log of a journal to go on with, or a new one.
    pub(super) fn into_log(journal: Option<Journal>) -> UndoLog {
        match journal {
            Some(Journal::Changes(changes) | Journal::List { changes, .. }) => changes,
            _ => UndoLog::default(),
        }
    }

    /// Changes of what has members or fields by name, from the last to the first behind so many bytes.
    pub(super) fn changes_to(&self, from: usize) -> impl Iterator<Item = Record<'_>> {
        let changes = match self {
            Journal::Changes(changes) => Some(changes.backwards_to(from)),
            _ => None,
        };
        changes.into_iter().flatten()
    }

    /// Bytes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Journal::Changes(changes) | Journal::List { changes, .. } => changes.len(),
            Journal::Stream(before) => before.bytes(),
        }
    }
}

/// What of a collection a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Anything.
    Any,
    /// The entries of a stream, not who has read them; else anything.
    Entries,
}

/// Where a walk over what a collection consists of stands: nowhere yet, or at its end, by default. What it means, each
/// type knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Which of the structures that it consists of.
    pub part: u64,
    /// Where in there.
    pub at: u128,
}

impl Standing {
    /// The position in a collection that is one structure, whose positions begin and end at 0.
    pub fn single(&self) -> u64 {
        self.at as u64
    }
}

impl From<u64> for Standing {
    fn from(position: u64) -> Standing {
        Standing {
            part: 0,
            at: position.into(),
        }
    }
}

/// An element of a collection that can be saved by the piece.
#[derive(Clone, Copy, Debug)]
pub struct ElementRef<'a> {
    /// The member or field.
    pub name: &'a [u8],
    /// The value of a field.
    pub value: Item<'a>,
    /// The bits of a member's score; the deadline of a field, or [`u64::MAX`].
    pub number: u64,
}

impl<'a> ElementRef<'a> {
    /// An element of these parts.
    pub fn new(name: &'a [u8], value: &'a [u8], number: u64) -> ElementRef<'a> {
        let value = Item::bytes(value);
        ElementRef {
            name,
            value,
            number,
        }
    }
}

/// A piece of a collection that is saved by the piece.
#[derive(Clone, Copy)]
pub enum Piece<'a> {
    /// An element of a set, sorted set or hash.
    Element(ElementRef<'a>),
    /// A node of a list, and how many elements it has.
    Node(&'a NodeView<'a>, usize),
    /// A piece of a stream.
    Stream(StreamPiece<'a>),
    /// A page of a sketch.
    Page(&'a [u8]),
}

/// What pieces are shown to.
pub type ShowPiece<'f> = dyn for<'a> FnMut(Piece<'a>) + 'f;

/// What is shown of an element that has changed: its name, and what it was, if it was there.
pub type ShowBefore<'f> = dyn for<'a> FnMut(&'a [u8], Option<ElementRef<'a>>) + 'f;

/// What every large collection can do, whatever its type.
pub trait Body {
    /// A copy that shares nothing with it.
    fn duplicate(&self) -> Self;

    /// Fetches into the cache what will be read at one end.
    fn prefetch_end(&self, end: End) {
        let _ = end;
    }

    /// Fetches into the cache where an element of this name stands, or would, if it is likely that it is not there. It
    /// is in use if the command before works on the collection too.
    fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
        let _ = (name, is_in_use);
    }

    /// From now on writes down what undoes its changes, behind what was written before; false if it cannot do that.
    fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
        match self.undo_log() {
            Some(changes) => {
                *changes = Some(Journal::into_log(journal));
                true
            }
            None => false,
        }
    }

    /// No longer does, and hands it out.
    fn take_changes(&mut self) -> Option<Journal> {
        self.undo_log()?.take().map(Journal::Changes)
    }

    /// Where it writes its changes down, if an undo log is all that takes.
    fn undo_log(&mut self) -> Option<&mut Option<UndoLog>> {
        None
    }

    /// Undoes what a journal says, from the last change to the first.
    fn undo(&mut self, journal: &Journal) {
        let _ = journal;
    }

    /// What has to be copied before this part of it changes: nothing where a journal knows the elements; not known of
    /// collections that have no journal.
    fn copied_bytes(&self, part: Part) -> Option<usize> {
        let _ = part;
        self.elements().map(|_| 0)
    }

    /// How many elements it has; none of sketches.
    fn elements(&self) -> Option<usize> {
        None
    }

    /// What it is made of, beside its pages, if it is a sketch.
    fn head(&self) -> Vec<u8> {
        Vec::new()
    }

    /// How many pages it is shown in, if it is a sketch.
    fn pages(&self) -> u64 {
        0
    }

    /// The hash by which an element of this name lies.
    fn element_hash(&self, name: &[u8]) -> u64 {
        let _ = name;
        0
    }

    /// Shows some `budget` elements from a position on, and each that is there from the first call to the last once;
    /// the next position, which is the least hash that was not seen, 0 at the end.
    fn show_some(
        &self,
        position: u64,
        budget: usize,
        show: &mut dyn for<'a> FnMut(ElementRef<'a>),
    ) -> u64 {
        let _ = (position, budget, show);
        0
    }

    /// Shows what elements were before changes that a journal undoes, from the last to the first, without those that it
    /// had when it had so many bytes.
    fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
        let _ = (changes, from, show);
    }

    /// What it is now is to be shown by [`Body::show_cut`], in its order and whatever becomes of it; false if its
    /// pieces are elements, which have no order.
    fn begin_cut(&mut self) -> bool {
        false
    }

    /// Shows some `budget` small pieces as they were at the cut, or fewer large ones; true while more are left.
    fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
        let _ = (budget, show);
        false
    }

    /// Bytes that were copied for the cut since this was asked last, roughly.
    fn take_copied(&mut self) -> usize {
        0
    }

    /// Forgets the cut, and some `budget` pieces that were kept for it; true while more are left.
    fn forget_cut(&mut self, budget: usize) -> bool {
        let _ = budget;
        false
    }

    /// Frees a bounded part, some `budget` elements; true while more is left. What is left is no collection any more.
    fn free_some(&mut self, budget: usize) -> bool;

    /// Moves what lies in sparse slabs of the allocator, among some `budget` pieces of memory, from where the call that
    /// returned `from` stopped; returns where this one stops, the default at the end. What others point to stays.
    fn relocate_some(&mut self, from: Standing, budget: usize, mover: &mut Mover) -> Standing {
        let _ = (from, budget, mover);
        Standing::default()
    }
}
