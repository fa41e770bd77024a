//! Collections that outgrew their entry, and values that are freed after the shard is released.
//!
//! An object knows its allocated size to the byte, because [`Keyspace::edit`] measures every change; so MEMORY
//! USAGE, RENAME to another shard and deletion cost the same whatever a collection's size.
//!
//! [`Keyspace::edit`]: crate::keyspace::Keyspace::edit

use super::body::{
    CollectionBody, CollectionCursor, ElementRef, Journal, Part, ShowBefore, ShowPiece,
};
use super::hash::large::HashTable;
use crate::snapshot::large::LargeCollectionSave;
use basalt_core::alloc::account;
use basalt_core::alloc::slabs::Mover;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::ordered::ranking::Ranking;
use basalt_core::structures::quicklist::{End, Quicklist};

macro_rules! collections {
    ($($(#[$doc:meta])* $name:ident($body:ty);)*) => {
        /// A large collection, with one variant per type.
        pub enum Collection {
            $($(#[$doc])* $name($body),)*
        }

        impl CollectionBody for Collection {
            fn duplicate(&self) -> Collection {
                match *self {
                    $(Collection::$name(ref body) => Collection::$name(body.duplicate()),)*
                }
            }

            fn prefetch_end(&self, end: End) {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::prefetch_end(body, end),)*
                }
            }

            fn prefetch_element(&self, name: &[u8], is_in_use: bool) {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::prefetch_element(body, name, is_in_use),)*
                }
            }

            fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::keep_changes(body, journal),)*
                }
            }

            fn take_changes(&mut self) -> Option<Journal> {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::take_changes(body),)*
                }
            }

            fn undo(&mut self, journal: &Journal) {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::undo(body, journal),)*
                }
            }

            fn copied_bytes(&self, part: Part) -> Option<usize> {
                match *self {
                    $(Collection::$name(ref body) => body.copied_bytes(part),)*
                }
            }

            fn elements(&self) -> Option<usize> {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::elements(body),)*
                }
            }

            fn head(&self) -> Vec<u8> {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::head(body),)*
                }
            }

            fn pages(&self) -> u64 {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::pages(body),)*
                }
            }

            fn element_hash(&self, name: &[u8]) -> u64 {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::element_hash(body, name),)*
                }
            }

            fn show_some(
                &self,
                position: u64,
                budget: usize,
                show: &mut dyn for<'a> FnMut(ElementRef<'a>),
            ) -> u64 {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::show_some(body, position, budget, show),)*
                }
            }

            fn each_before(&self, changes: &Journal, from: usize, show: &mut ShowBefore<'_>) {
                match *self {
                    $(Collection::$name(ref body) => CollectionBody::each_before(body, changes, from, show),)*
                }
            }

            fn begin_cut(&mut self) -> bool {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::begin_cut(body),)*
                }
            }

            fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::show_cut(body, budget, show),)*
                }
            }

            fn take_copied(&mut self) -> usize {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::take_copied(body),)*
                }
            }

            fn forget_cut(&mut self, budget: usize) -> bool {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::forget_cut(body, budget),)*
                }
            }

            fn free_some(&mut self, budget: usize) -> bool {
                match *self {
                    $(Collection::$name(ref mut body) => body.free_some(budget),)*
                }
            }

            fn relocate_some(&mut self, from: CollectionCursor, budget: usize, mover: &mut Mover) -> CollectionCursor {
                match *self {
                    $(Collection::$name(ref mut body) => CollectionBody::relocate_some(body, from, budget, mover),)*
                }
            }
        }
    };
}

collections! {
    /// A hash.
    Hash(HashTable);
    /// A Bloom filter.
    Bloom(basalt_core::structures::sketch::bloom::Bloom);
    /// A cuckoo filter.
    Cuckoo(basalt_core::structures::sketch::cuckoo::Cuckoo);
    /// A count-min sketch.
    CountMin(basalt_core::structures::sketch::count_min::CountMin);
    /// A list of the most frequent elements.
    TopK(basalt_core::structures::sketch::top_k::TopK);
    /// A t-digest.
    TDigest(basalt_core::structures::sketch::t_digest::TDigest);
    /// A JSON document.
    Json(super::json::large::LargeJson);
    /// A sorted set.
    SortedSet(Ranking);
    /// A stream.
    Stream(Box<crate::value::stream::StreamValue>);
    /// A list of many nodes.
    List(Quicklist);
    /// A set.
    Set(super::set::Members);
}

/// A large collection that an entry refers to, see the module.
pub struct Object {
    /// The collection itself.
    pub body: Collection,
    /// Bytes allocated by the collection beyond the box of this struct.
    bytes: usize,
    /// State of a snapshot that is saving the collection in pieces. It moves with the collection; charged to no
    /// account.
    pub(crate) saving: Option<Box<LargeCollectionSave>>,
}

impl Object {
    /// Continues saving the collection in pieces. Returns true while more is left.
    pub(crate) fn save_some(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let Object {
            body,
            bytes,
            saving: Some(large),
        } = self
        else {
            return false;
        };
        let before = account::charged_bytes();
        let more = large.go_on(body, goes_on);
        let grown = account::charged_bytes() - before;
        *bytes = bytes.saturating_add_signed(grown as isize);
        if !more {
            account::uncharged(|| self.saving.take().map(|large| large.end()));
        }
        more
    }

    /// Moves some of the collection's allocations out of sparse slabs; see [`CollectionBody::relocate_some`].
    pub(crate) fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        let before = account::charged_bytes();
        let next = self.body.relocate_some(from, budget, mover);
        let grown = account::charged_bytes() - before;
        self.bytes = self.bytes.saturating_add_signed(grown as isize);
        next
    }

    /// Boxes a collection for an entry that is made inside [`Keyspace::create`] or [`Keyspace::edit`], which count
    /// its bytes.
    ///
    /// [`Keyspace::create`]: crate::keyspace::Keyspace::create
    /// [`Keyspace::edit`]: crate::keyspace::Keyspace::edit
    pub fn boxed(body: Collection) -> Box<Object> {
        Box::new(Object {
            body,
            bytes: 0,
            saving: None,
        })
    }

    /// Returns the bytes allocated by the collection beyond its own box.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a copy, with the size of the copy recorded.
    pub fn duplicate(&self) -> Box<Object> {
        let before = account::thread_bytes();
        let body = self.body.duplicate();
        let bytes = usize::try_from(account::thread_bytes() - before).unwrap_or(0);
        Box::new(Object {
            body,
            bytes,
            saving: None,
        })
    }
}

/// Makes an entry outside of any shard's account, for a result that [`Keyspace::adopt`] then charges to the shard
/// that gets it. Everything else allocated by `make` must be freed when it returns.
///
/// [`Keyspace::adopt`]: crate::keyspace::Keyspace::adopt
pub fn detached(make: impl FnOnce() -> Entry<Object>) -> Entry<Object> {
    let before = account::charged_bytes();
    let mut entry = make();
    note_entry_bytes(&mut entry, account::charged_bytes() - before);
    entry
}

/// Changes an entry outside of any shard's account, as [`detached`] makes one.
pub fn change_detached(entry: &mut Entry<Object>, change: impl FnOnce(&mut Entry<Object>)) {
    let bytes = entry_bytes(entry.view()) as i64;
    let before = account::charged_bytes();
    change(entry);
    note_entry_bytes(entry, bytes + account::charged_bytes() - before);
}

/// Returns the bytes allocated for an entry and all that it owns.
pub fn entry_bytes(entry: EntryRef<'_, Object>) -> usize {
    let beyond = match entry.value() {
        Value::Object(object) => object.bytes,
        _ => 0,
    };
    entry.memory_bytes() + beyond
}

/// Stores an object's size, given the total size of its entry.
pub(crate) fn note_entry_bytes(entry: &mut Entry<Object>, total: i64) {
    if let Value::Object(_) = entry.view().value() {
        let own = entry.view().memory_bytes() as i64;
        if let Some(object) = entry.object_mut() {
            object.bytes = usize::try_from(total - own).unwrap_or(0);
        }
    }
}

/// Returns the progress of saving an entry in pieces, if a snapshot is doing so.
pub(crate) fn under_way(entry: EntryRef<'_, Object>) -> Option<&LargeCollectionSave> {
    match entry.value() {
        Value::Object(object) => object.saving.as_deref(),
        _ => None,
    }
}

/// A value too large to be freed while the shard is locked.
pub struct Trash {
    entry: Entry<Object>,
}

/// Entries with more bytes than this are freed after the shard is released.
const TRASH_BYTES_MIN: usize = 64 * 1024;

/// Collections with more bytes than this, in many small pieces, are freed after the shard is released.
const TRASH_COLLECTION_BYTES_MIN: usize = 8 * 1024;

/// Collections with more bytes than this are freed in slices by the background, because the thread that released the
/// shard has other clients to serve.
const DOOMED_BYTES_MIN: usize = 1024 * 1024;

impl Trash {
    /// Frees a small entry at once; returns a large one for later.
    ///
    /// Entries with blocks are always returned: a reply may share the block and free it elsewhere, so that the shard
    /// would never be credited for its memory. Entries that are still being saved are returned, too.
    pub fn from_entry(entry: Entry<Object>) -> Option<Trash> {
        let view = entry.view();
        let keep = match view.value() {
            Value::Block(_) => true,
            Value::Object(object) => {
                entry_bytes(view) > TRASH_COLLECTION_BYTES_MIN || object.saving.is_some()
            }
            Value::Integer(_) | Value::Bytes(_) => entry_bytes(view) > TRASH_BYTES_MIN,
        };
        keep.then_some(Trash { entry })
    }

    /// True if the value is a collection.
    pub fn is_collection(&self) -> bool {
        matches!(self.entry.view().value(), Value::Object(_))
    }

    /// True if a snapshot still has to save some of the value.
    pub(crate) fn is_under_way(&self) -> bool {
        under_way(self.entry.view()).is_some()
    }

    /// True if a snapshot has saved some of the value.
    pub(crate) fn is_partly_saved(&self) -> bool {
        under_way(self.entry.view()).is_some_and(LargeCollectionSave::is_partly_saved)
    }

    /// Continues saving the value. Returns true while more is left.
    pub(crate) fn save_some(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let object = self.entry.object_mut();
        object.is_some_and(|object| object.save_some(goes_on))
    }

    /// Returns the bytes that are no longer charged to the shard.
    pub fn bytes(&self) -> i64 {
        entry_bytes(self.entry.view()) as i64
    }

    /// True if freeing the value at once would take too long.
    pub fn is_huge(&self) -> bool {
        let view = self.entry.view();
        matches!(view.value(), Value::Object(_)) && entry_bytes(view) > DOOMED_BYTES_MIN
    }

    /// Frees a bounded part of the value. Returns true while more is left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        self.entry
            .object_mut()
            .is_some_and(|object| object.body.free_some(budget))
    }
}
