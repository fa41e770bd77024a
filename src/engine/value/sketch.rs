//! The sketches as collections: filters, counters, digests. Each is one object, never inside its entry, however
//! small.

use super::body::{CollectionBody, CollectionPiece, ShowPiece};
use super::object::{Collection, Object};
use super::{DataType, ObjectKind, ValueEncoding};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::sketch::SketchCodec;
use basalt_core::structures::sketch::bloom::Bloom;
use basalt_core::structures::sketch::count_min::CountMin;
use basalt_core::structures::sketch::cuckoo::Cuckoo;
use basalt_core::structures::sketch::t_digest::TDigest;
use basalt_core::structures::sketch::top_k::TopK;

/// A type of sketch.
pub trait SketchType: Sized {
    /// Data type of the sketch.
    const DATA_TYPE: DataType;

    /// Wraps the sketch in a collection.
    fn wrap(self) -> Collection;

    /// Returns the sketch in a collection, if it is one of this type.
    fn of(collection: &Collection) -> Option<&Self>;

    /// Returns the sketch in a collection for writing.
    fn of_mut(collection: &mut Collection) -> Option<&mut Self>;
}

macro_rules! sketches {
    ($($name:ident;)*) => {
        $(impl SketchType for $name {
            const DATA_TYPE: DataType = DataType::$name;

            fn wrap(self) -> Collection {
                Collection::$name(self)
            }

            fn of(collection: &Collection) -> Option<&$name> {
                match collection {
                    Collection::$name(sketch) => Some(sketch),
                    _ => None,
                }
            }

            fn of_mut(collection: &mut Collection) -> Option<&mut $name> {
                match collection {
                    Collection::$name(sketch) => Some(sketch),
                    _ => None,
                }
            }
        })*
    };
}

sketches! {
    Bloom;
    Cuckoo;
    CountMin;
    TopK;
    TDigest;
}

/// Elements of another collection that take as long to save as a page of a sketch.
const ELEMENTS_PER_PAGE: usize = 16;

macro_rules! bodies {
    ($($name:ident: $free_some:expr;)*) => {
        $(impl CollectionBody for $name {
            fn duplicate(&self) -> $name {
                self.clone()
            }

            fn head(&self) -> Vec<u8> {
                SketchCodec::head(self)
            }

            fn pages(&self) -> u64 {
                SketchCodec::pages(self)
            }

            fn begin_cut(&mut self) -> bool {
                SketchCodec::begin_cut(self);
                true
            }

            fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
                let count = (budget / ELEMENTS_PER_PAGE).max(1);
                SketchCodec::show_cut(self, count, &mut |page| show(CollectionPiece::Page(page)))
            }

            fn take_copied(&mut self) -> usize {
                SketchCodec::take_copied(self)
            }

            fn forget_cut(&mut self, budget: usize) -> bool {
                SketchCodec::forget_cut(self, budget)
            }

            fn free_some(&mut self, budget: usize) -> bool {
                $free_some(self, budget)
            }
        })*
    };
}

/// Frees a sketch without slices: it has a few large buffers, whose pages are returned in one step each.
fn at_once<S>(_: &mut S, _: usize) -> bool {
    false
}

bodies! {
    Bloom: at_once;
    Cuckoo: at_once;
    CountMin: at_once;
    TopK: TopK::free_some;
    TDigest: at_once;
}

/// Creates an entry with a sketch; to be called where allocations are charged to the shard.
pub fn entry_of<S: SketchType>(key: &[u8], sketch: S) -> Entry<Object> {
    let kind = ObjectKind::new(S::DATA_TYPE, ValueEncoding::Raw);
    Entry::object(kind.0, key, Object::boxed(sketch.wrap()), None)
}

/// Returns the sketch in an entry whose type has been checked.
pub fn view<'e, S: SketchType + 'e>(entry: EntryRef<'e, Object>) -> &'e S {
    match entry.value() {
        Value::Object(object) => S::of(&object.body),
        _ => None,
    }
    .expect("the entry holds this type of sketch")
}

/// Returns the sketch in an entry for writing.
pub fn view_mut<S: SketchType>(entry: &mut Entry<Object>) -> &mut S {
    entry
        .object_mut()
        .and_then(|object| S::of_mut(&mut object.body))
        .expect("the entry holds this type of sketch")
}
