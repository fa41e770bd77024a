//! Copies of large values that are made in slices: a slice is read with the shard locked, and added to the copy while
//! it is not.
//!
//! ```text
//! set, hash     elements by their hashes   copied, then inserted
//! sorted set    members by their ranks     copied, then collected until the order is built from all of them
//! list          nodes                      copied; long elements are shared, then copied
//! long string   its block                  shared, then copied
//! ```
//!
//! The copy is what [`duplicate`](super::CollectionBody::duplicate) makes. Other values are not copied in slices:
//! streams, as reading a group does not count as a change of them, and sketches.

use super::deadlines::table::{ElementTable, ElementValue};
use super::object::{Collection, Object, note_entry_bytes};
use super::slices;
use basalt_core::alloc::account;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::item::Item;
use basalt_core::structures::ordered::ranking::Ranking;
use basalt_core::structures::ordered::{Direction, OrderedIndexType};
use basalt_core::structures::quicklist::Quicklist;
use basalt_core::structures::text_arena::TextArena;

/// Elements copied in one slice.
const ELEMENTS_PER_SLICE: usize = 512;

/// Bytes of elements after which a slice ends.
const BYTES_PER_SLICE: usize = 64 * 1024;

/// Elements visited between two looks at these limits.
const ELEMENTS_PER_STEP: usize = 64;

/// Elements of a slice.
#[derive(Default)]
struct Elements {
    /// The names, or names and values in turns.
    texts: TextArena,
    /// The scores, or deadlines as [`ElementRef::number`](super::ElementRef).
    numbers: Vec<u64>,
    /// Values in blocks of their own, by the numbers of their elements; their texts are empty.
    blocks: Vec<(usize, SharedBlock)>,
}

impl Elements {
    fn clear(&mut self) {
        self.texts.clear();
        self.numbers.clear();
        self.blocks.clear();
    }

    fn is_full(&self) -> bool {
        self.numbers.len() >= ELEMENTS_PER_SLICE || self.texts.bytes() >= BYTES_PER_SLICE
    }
}

/// The copy so far.
enum Body {
    /// A set or a hash.
    Table(Collection),
    SortedSet {
        form: OrderedIndexType,
        members: TextArena,
        scores: Vec<f64>,
    },
    /// A list, and the nodes of the slice.
    List(Quicklist, Option<Quicklist>),
    /// A string.
    Block(SharedBlock),
    /// A copy that is complete.
    Whole(Collection),
}

/// The outcome of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySlice {
    /// More slices follow.
    More,
    /// The value was read to the end.
    Whole,
    /// The value is not what it was at the beginning.
    Changed,
}

/// A copy of a large value, see the module.
pub struct SlicedCopy {
    kind: u8,
    seed: HashSeed,
    body: Body,
    position: u64,
    is_whole: bool,
    slice: Elements,
    /// Bytes allocated by the copy of a collection beyond the box of its object.
    bytes: i64,
}

impl SlicedCopy {
    /// Begins to copy a value; None if it is not copied in slices.
    pub fn begin(entry: EntryRef<'_, Object>, seed: HashSeed) -> Option<SlicedCopy> {
        let body = match entry.value() {
            Value::Block(block) => Body::Block(SharedBlock::clone(block)),
            Value::Object(object) => match &object.body {
                Collection::Set(_) => Body::Table(Collection::Set(ElementTable::new(seed))),
                Collection::Hash(_) => Body::Table(Collection::Hash(ElementTable::new(seed))),
                Collection::SortedSet(ranking) => Body::SortedSet {
                    form: ranking.form(),
                    members: TextArena::default(),
                    scores: Vec::new(),
                },
                Collection::List(list) => Body::List(Quicklist::new(list.limits()), None),
                _ => return None,
            },
            Value::Integer(_) | Value::Bytes(_) => return None,
        };
        Some(SlicedCopy {
            kind: entry.kind(),
            seed,
            body,
            position: 0,
            is_whole: false,
            slice: Elements::default(),
            bytes: 0,
        })
    }

    /// Reads a slice of the value.
    pub fn read(&mut self, entry: EntryRef<'_, Object>) -> CopySlice {
        if entry.kind() != self.kind {
            return CopySlice::Changed;
        }
        let is_whole = match &mut self.body {
            Body::Table(table) => {
                let has_values = matches!(table, Collection::Hash(_));
                self.position = read_elements(entry, self.position, has_values, &mut self.slice);
                Some(self.position == 0)
            }
            Body::SortedSet { .. } => {
                Some(read_members(entry, &mut self.position, &mut self.slice))
            }
            Body::List(copy, part) => {
                let (before, done) = (account::charged_bytes(), copy.len());
                *part = list_of(entry).and_then(|list| list.copy_some(done, BYTES_PER_SLICE));
                self.bytes += account::charged_bytes() - before;
                let read = part.as_ref().map(|part| done + part.len());
                read.map(|read| read >= slices::ordered_len(entry))
            }
            Body::Block(_) => Some(true),
            Body::Whole(_) => None,
        };
        match is_whole {
            Some(is_whole) => {
                self.is_whole = is_whole;
                match is_whole {
                    true => CopySlice::Whole,
                    false => CopySlice::More,
                }
            }
            None => CopySlice::Changed,
        }
    }

    /// Adds what was read to the copy, with no shard locked.
    pub fn add(&mut self) {
        let before = account::charged_bytes();
        match &mut self.body {
            Body::Table(Collection::Set(members)) => insert_all(members, &self.slice),
            Body::Table(Collection::Hash(fields)) => insert_all(fields, &self.slice),
            Body::List(list, part) => {
                if let Some(part) = part.take() {
                    list.append_copies(part);
                }
            }
            Body::SortedSet {
                members, scores, ..
            } => {
                // Charged when the order is built.
                account::uncharged(|| {
                    members.take_all(&mut self.slice.texts);
                    let bits = self.slice.numbers.iter();
                    scores.extend(bits.map(|score| f64::from_bits(*score)));
                });
            }
            Body::Block(block) => *block = SharedBlock::new(block),
            Body::Table(_) | Body::Whole(_) => {}
        }
        self.bytes += account::charged_bytes() - before;
        self.slice.clear();
        if self.is_whole {
            self.complete();
        }
    }

    /// Builds what needs all elements.
    fn complete(&mut self) {
        if let Body::SortedSet {
            form,
            members,
            scores,
        } = &self.body
        {
            let before = account::charged_bytes();
            let ascending = members.iter().zip(scores.iter().copied());
            let ranking = Ranking::of_ascending(*form, self.seed, ascending)
                .unwrap_or_else(|| unreachable!("each member was read once, in order"));
            self.bytes += account::charged_bytes() - before;
            self.body = Body::Whole(Collection::SortedSet(ranking));
        }
    }

    /// Returns the copy under a key, without deadline and marks; if it is not complete, only to be freed.
    pub fn into_entry(self, key: &[u8]) -> Entry<Object> {
        let collection = match self.body {
            Body::Block(block) => return Entry::block(self.kind, key, block, None),
            Body::Table(collection) | Body::Whole(collection) => collection,
            Body::List(list, _) => Collection::List(list),
            Body::SortedSet { form, .. } => Collection::SortedSet(Ranking::new(form, self.seed)),
        };
        let mut entry = Entry::object(self.kind, key, Object::boxed(collection), None);
        let total = entry.view().memory_bytes() as i64 + self.bytes;
        note_entry_bytes(&mut entry, total);
        entry
    }
}

fn list_of(entry: EntryRef<'_, Object>) -> Option<&Quicklist> {
    match entry.value() {
        Value::Object(object) => match &object.body {
            Collection::List(list) => Some(list),
            _ => None,
        },
        _ => None,
    }
}

/// Reads elements of a set or a hash. Returns the next position, 0 at the end.
fn read_elements(
    entry: EntryRef<'_, Object>,
    position: u64,
    has_values: bool,
    slice: &mut Elements,
) -> u64 {
    let mut position = position;
    while !slice.is_full() {
        position = slices::show_some(entry, position, ELEMENTS_PER_STEP, &mut |element| {
            slice.texts.push(element.name);
            match element.value {
                Item::Block(block) => {
                    slice.texts.push(b"");
                    let number = slice.numbers.len();
                    slice.blocks.push((number, SharedBlock::clone(block)));
                }
                value if has_values => value.with_bytes(|value| slice.texts.push(value)),
                Item::Element(_) => {}
            }
            slice.numbers.push(element.number);
        });
        if position == 0 {
            break;
        }
    }
    position
}

/// Reads members of a sorted set. Returns whether they are the last ones.
fn read_members(entry: EntryRef<'_, Object>, position: &mut u64, slice: &mut Elements) -> bool {
    let len = slices::ordered_len(entry);
    let from = usize::try_from(*position).unwrap_or(usize::MAX).min(len);
    slices::visit_ordered(entry, Direction::Ascending, from..len, |member, score| {
        slice.texts.push(member);
        slice.numbers.push(score.to_bits());
        !slice.is_full()
    });
    *position = (from + slice.numbers.len()) as u64;
    from + slice.numbers.len() >= len
}

/// Inserts the elements of a slice, which are not in the table yet.
fn insert_all<V: ElementValue>(table: &mut ElementTable<V>, slice: &Elements) {
    let mut texts = slice.texts.iter();
    let mut blocks = slice.blocks.iter().peekable();
    for (index, number) in slice.numbers.iter().enumerate() {
        let name = texts.next().unwrap_or_default();
        let mut value: &[u8] = match V::EXISTS {
            true => texts.next().unwrap_or_default(),
            false => b"",
        };
        if let Some((_, block)) = blocks.next_if(|(at, _)| *at == index) {
            value = block;
        }
        let deadline = Some(*number).filter(|deadline_ms| *deadline_ms != u64::MAX);
        table.push(name, value, deadline);
    }
}
