//! One node of a stream: up to some hundred entries packed into one buffer in the format of Redis, so that DUMP
//! copies a node as it is.
//!
//! ```text
//! live | deleted | fields | name … | 0 |  entry | entry | …              the first line: the master
//! flags | ms | seq | value … | count                                     an entry with the master's names
//! flags | ms | seq | fields | name | value | … | count                   an entry with names of its own
//! ```
//!
//! `ms` and `seq` are distances from the node's ID, which is that of its first entry. `count` is the number of the
//! entry's elements before `count` itself, for walking backwards; the zero after the master ends such a walk. A
//! deleted entry stays, with a flag, until its node is removed. A node knows nothing of other nodes and of consumer
//! groups.
//!
//! A node from a dump or a file is accepted only after [`Node::check`]; all the same, nothing here panics on an
//! invalid one.

use super::id::StreamId;
use basalt_core::structures::listpack::{At, EMPTY, Element, Listpack, ListpackMut};

/// The entry is deleted.
const DELETED: i64 = 1;
/// The entry has the field names of the master entry, and does not store them.
const SAME_FIELDS: i64 = 2;

/// A packed node, see the module.
#[derive(Clone)]
pub struct Node {
    bytes: Vec<u8>,
}

/// The parsed head of a node, before its entries.
#[derive(Clone, Copy)]
struct StreamNodeHeader {
    live: i64,
    deleted: i64,
    /// The number of the master's names, and their position.
    field_count: usize,
    names: At,
    first: Option<At>,
}

/// One entry, in place.
#[derive(Clone, Copy)]
pub struct StreamEntry<'a> {
    /// ID of the entry.
    pub id: StreamId,
    pack: Listpack<'a>,
    flags_at: At,
    flags: i64,
    field_count: usize,
    /// The position of the first name in the master, if the entry has the master's names.
    names: Option<At>,
    /// The position of the entry's first value, or of its first name if it has names of its own.
    body: At,
}

impl<'a> StreamEntry<'a> {
    /// Returns the number of fields.
    pub fn field_count(&self) -> usize {
        self.field_count
    }

    /// True if the entry is deleted and remains only until its node is removed.
    pub(super) fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Returns an iterator over the names and values.
    pub fn fields(&self) -> EntryFields<'a> {
        EntryFields {
            pack: self.pack,
            left: self.field_count,
            names: self.names,
            body: Some(self.body),
        }
    }

    /// Returns the entry's flags and their position, the argument of [`Node::delete`].
    pub(super) fn mark(&self) -> EntryFlags {
        EntryFlags {
            flags_at: self.flags_at,
            flags: self.flags,
        }
    }

    /// Returns the position of the entry's `count`.
    fn count_at(&self) -> Option<At> {
        let elements = match self.names {
            Some(_) => self.field_count,
            None => self.field_count.checked_mul(2)?,
        };
        let mut at = self.body;
        for _ in 0..elements {
            at = self.pack.next(at)?;
        }
        Some(at)
    }
}

/// The position and the value of an entry's flags.
#[derive(Clone, Copy)]
pub(super) struct EntryFlags {
    flags_at: At,
    flags: i64,
}

/// The fields of one entry.
pub struct EntryFields<'a> {
    pack: Listpack<'a>,
    left: usize,
    names: Option<At>,
    body: Option<At>,
}

impl<'a> Iterator for EntryFields<'a> {
    type Item = (Element<'a>, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match self.names {
            Some(at) => {
                self.names = self.pack.next(at);
                self.pack.get(at)
            }
            None => {
                let at = self.body?;
                self.body = self.pack.next(at);
                self.pack.get(at)
            }
        };
        let at = self.body?;
        self.body = self.pack.next(at);
        Some((name, self.pack.get(at)))
    }
}

/// The entries of a node in one direction, including deleted ones.
#[derive(Clone)]
pub(super) struct Items<'a> {
    pack: Listpack<'a>,
    master: StreamId,
    head: Option<StreamNodeHeader>,
    /// The position to read next: of an entry's flags forwards, of the `count` at an entry's end backwards.
    at: Option<At>,
    is_reverse: bool,
}

impl<'a> Items<'a> {
    fn read(&self, flags_at: At) -> Option<StreamEntry<'a>> {
        let (pack, head) = (self.pack, self.head?);
        let flags = integer(pack, flags_at)?;
        let ms_at = pack.next(flags_at)?;
        let seq_at = pack.next(ms_at)?;
        let id = self
            .master
            .moved(integer(pack, ms_at)?, integer(pack, seq_at)?);
        let behind = pack.next(seq_at)?;
        let is_same = flags & SAME_FIELDS != 0;
        let (field_count, names, body) = if is_same {
            (head.field_count, Some(head.names), behind)
        } else {
            let count = usize::try_from(integer(pack, behind)?).ok()?;
            (count, None, pack.next(behind)?)
        };
        Some(StreamEntry {
            id,
            pack,
            flags_at,
            flags,
            field_count,
            names,
            body,
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        let mut at = self.at.take()?;
        if !self.is_reverse {
            let item = self.read(at)?;
            self.at = self.pack.next(item.count_at()?);
            return Some(item);
        }
        let count = integer(self.pack, at)?;
        if count <= 0 {
            return None;
        }
        for _ in 0..count {
            at = self.pack.prev(at)?;
        }
        self.at = self.pack.prev(at);
        self.read(at)
    }
}

fn integer(pack: Listpack<'_>, at: At) -> Option<i64> {
    pack.get(at).integer()
}

impl Node {
    /// Creates a node without entries, whose master has the names of the first entry to be added. `part` returns the
    /// names and values of that entry: even indexes are names.
    pub(super) fn new<'p>(field_count: usize, part: &impl Fn(usize) -> &'p [u8]) -> Node {
        let mut node = Node {
            bytes: EMPTY.to_vec(),
        };
        let number = Element::Integer;
        let names = (0..field_count).map(|index| Element::of(part(2 * index)));
        let head = [0, 0, field_count as i64].into_iter().map(number);
        ListpackMut::new(&mut node.bytes).push_back_all(head.chain(names).chain([number(0)]));
        node
    }

    /// Moves the bytes to newly allocated memory of the same size.
    pub(super) fn relocate(&mut self) {
        let mut fresh = Vec::with_capacity(self.bytes.capacity());
        fresh.extend_from_slice(&self.bytes);
        self.bytes = fresh;
    }

    /// Returns the packed bytes, as DUMP writes them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Creates a node from bytes of a dump or file; None unless they are a valid node for the first ID `master`.
    pub fn check(bytes: Vec<u8>, master: StreamId) -> Option<Node> {
        Listpack::check(&bytes)?;
        let node = Node { bytes };
        let head = node.head()?;
        let mut items = node.items(master, false);
        let (mut live, mut deleted) = (0, 0);
        let mut before = None;
        while items.at.is_some() {
            let item = items.next()?;
            let count_at = item.count_at()?;
            let own = if item.names.is_some() { 3 } else { 4 };
            let elements = if item.names.is_some() { 1 } else { 2 };
            let expected = item.field_count.checked_mul(elements)?.checked_add(own)?;
            let is_counted = integer(node.pack(), count_at) == i64::try_from(expected).ok();
            if !is_counted || item.id < master || before.is_some_and(|before| item.id <= before) {
                return None;
            }
            before = Some(item.id);
            *(if item.is_deleted() {
                &mut deleted
            } else {
                &mut live
            }) += 1;
        }
        (head.live == live && head.deleted == deleted).then_some(node)
    }

    fn pack(&self) -> Listpack<'_> {
        Listpack::new(&self.bytes)
    }

    fn head(&self) -> Option<StreamNodeHeader> {
        let pack = self.pack();
        let live_at = pack.first()?;
        let deleted_at = pack.next(live_at)?;
        let count_at = pack.next(deleted_at)?;
        let field_count = usize::try_from(integer(pack, count_at)?).ok()?;
        let names = pack.next(count_at)?;
        let mut at = names;
        for _ in 0..field_count {
            at = pack.next(at)?;
        }
        if integer(pack, at)? != 0 {
            return None;
        }
        Some(StreamNodeHeader {
            live: integer(pack, live_at)?,
            deleted: integer(pack, deleted_at)?,
            field_count,
            names,
            first: pack.next(at),
        })
    }

    /// Returns the numbers of live and of deleted entries.
    pub(super) fn counts(&self) -> (u64, u64) {
        let pack = self.pack();
        let number = |at: Option<At>| {
            at.and_then(|at| integer(pack, at))
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or(0)
        };
        let live_at = pack.first();
        (
            number(live_at),
            number(live_at.and_then(|at| pack.next(at))),
        )
    }

    /// Returns the entries that are not deleted.
    pub fn entries(&self, master: StreamId) -> impl Iterator<Item = StreamEntry<'_>> {
        let items = self.items(master, false);
        items.filter(|item| !item.is_deleted())
    }

    /// Returns the entries, including deleted ones.
    pub(super) fn items(&self, master: StreamId, is_reverse: bool) -> Items<'_> {
        let (pack, head) = (self.pack(), self.head());
        let at = match (head, is_reverse) {
            (Some(head), false) => head.first,
            (Some(_), true) => pack.last(),
            (None, _) => None,
        };
        Items {
            pack,
            master,
            head,
            at,
            is_reverse,
        }
    }

    /// Adds an entry after all others. `part` returns its names and values, alternating.
    pub(super) fn append<'p>(
        &mut self,
        master: StreamId,
        id: StreamId,
        field_count: usize,
        part: &impl Fn(usize) -> &'p [u8],
    ) {
        let is_same = self.has_names(field_count, part);
        let (ms, seq) = id.distance_from(master);
        let mut pack = ListpackMut::new(&mut self.bytes);
        let number = Element::Integer;
        if is_same {
            let head = [SAME_FIELDS, ms, seq].into_iter().map(number);
            let values = (0..field_count).map(|index| Element::of(part(2 * index + 1)));
            let count = number(3 + field_count as i64);
            pack.push_back_all(head.chain(values).chain([count]));
        } else {
            let head = [0, ms, seq, field_count as i64].into_iter().map(number);
            let pairs = (0..2 * field_count).map(|index| Element::of(part(index)));
            let count = number(4 + 2 * field_count as i64);
            pack.push_back_all(head.chain(pairs).chain([count]));
        }
        self.add_to_counts(1, 0);
    }

    /// True if an entry has the same names as the master.
    fn has_names<'p>(&self, field_count: usize, part: &impl Fn(usize) -> &'p [u8]) -> bool {
        let pack = self.pack();
        let Some(head) = self.head() else {
            return false;
        };
        if head.field_count != field_count {
            return false;
        }
        let mut at = Some(head.names);
        (0..field_count).all(|index| {
            at.is_some_and(|name_at| {
                at = pack.next(name_at);
                pack.get(name_at).is(part(2 * index))
            })
        })
    }

    /// Marks live entries as deleted; `marks` are in the order of their positions.
    pub(super) fn delete(&mut self, marks: &[EntryFlags]) {
        let mut pack = ListpackMut::new(&mut self.bytes);
        // From the last to the first: a change invalidates the positions after it.
        for mark in marks.iter().rev() {
            pack.replace_element(mark.flags_at, Element::Integer(mark.flags | DELETED));
        }
        let count = marks.len() as i64;
        self.add_to_counts(-count, count);
    }

    fn add_to_counts(&mut self, live: i64, deleted: i64) {
        let mut pack = ListpackMut::new(&mut self.bytes);
        let mut add = |index: isize, change: i64| {
            let read = pack.as_listpack();
            let Some(at) = read.nth(index) else {
                return;
            };
            let count = integer(read, at).unwrap_or(0).saturating_add(change);
            pack.replace_element(at, Element::Integer(count));
        };
        add(0, live);
        if deleted != 0 {
            add(1, deleted);
        }
    }

    /// Frees unused capacity, as nothing will be added any more.
    pub(super) fn close(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
