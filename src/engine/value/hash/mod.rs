//! Hashes: named fields with values, each with an optional deadline of its own.
//!
//! ```text
//! small   pairs or triples in a listpack beside the key     few and short fields
//! large   a table of fields                             all others
//! ```
//!
//! A hash becomes large when it has more fields, or a longer one, than [`HashRules`] allow, and never becomes small
//! again. A field whose deadline has passed is invisible to readers, which use [`HashRef`] or [`HashMut`]; the
//! engine deletes it a little later, see [`lapse`](super::lapse).
//!
//! Invariant: a hash in the keyspace has at least one field, even if only an expired one.

pub(super) mod large;
mod small;
#[cfg(test)]
mod tests;

pub use large::{FieldDeadline, HashTable};

use super::deadlines::ELEMENT_DEADLINE_MAX;
use super::deadlines::table::ElementValue;
use super::kind::{DataType, ObjectKind, ValueEncoding};
use super::object::{Collection, Object};
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;
use basalt_core::structures::block::{Content, Kept};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::{At, EMPTY, Element, Listpack, ListpackMut, encoded_len};
use large::HashFieldRecordRef;
use small::FieldStride;

/// A small hash without deadlines.
pub const LISTPACK: ObjectKind = ObjectKind::new(DataType::Hash, ValueEncoding::Listpack);
/// A small hash whose fields have, or had, deadlines.
pub const LISTPACKEX: ObjectKind = ObjectKind::new(DataType::Hash, ValueEncoding::Listpackex);
/// A large hash.
pub const HASHTABLE: ObjectKind = ObjectKind::new(DataType::Hash, ValueEncoding::Hashtable);

/// The limits of small hashes, and the context of a change.
#[derive(Clone, Copy)]
pub struct HashRules {
    /// `hash-max-listpack-entries`.
    pub fields_max: usize,
    /// `hash-max-listpack-value`: maximum bytes of a field's name or value.
    pub element_bytes_max: usize,
    /// Hash key for tables.
    pub seed: HashSeed,
    /// Time of the command, in Unix milliseconds.
    pub now_ms: u64,
}

impl HashRules {
    fn fits(&self, field: &[u8], value: &[u8]) -> bool {
        field.len() <= self.element_bytes_max && value.len() <= self.element_bytes_max
    }

    /// True if a hash with one field and a short value begins as a small one.
    pub fn makes_small(&self, field: &[u8]) -> bool {
        self.fields_max > 0 && self.fits(field, b"1")
    }
}

/// A field in either representation.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Name of the field.
    pub name: Element<'a>,
    /// Value of the field.
    pub value: Item<'a>,
    /// Time of expiry, in Unix milliseconds.
    pub deadline: Option<u64>,
}

impl<'a> Field<'a> {
    fn of_record(record: HashFieldRecordRef<'a>) -> Field<'a> {
        Field {
            name: Element::Bytes(record.key()),
            value: Kept::of(record),
            deadline: record.deadline(),
        }
    }
}

impl<'a> From<small::ListpackField<'a>> for Field<'a> {
    fn from(packed: small::ListpackField<'a>) -> Field<'a> {
        Field {
            name: packed.name,
            value: packed.value.into(),
            deadline: packed.deadline,
        }
    }
}

#[derive(Clone, Copy)]
enum Layout<'a> {
    Small(Listpack<'a>, FieldStride),
    Large(&'a HashTable),
}

impl<'a> Layout<'a> {
    #[inline]
    fn of(entry: EntryRef<'a, Object>) -> Option<Layout<'a>> {
        let kind = ObjectKind(entry.kind());
        match entry.value() {
            Value::Bytes(bytes) if kind == LISTPACK => {
                Some(Layout::Small(Listpack::new(bytes), FieldStride::Pairs))
            }
            Value::Bytes(bytes) if kind == LISTPACKEX => {
                Some(Layout::Small(Listpack::new(bytes), FieldStride::Triples))
            }
            Value::Object(object) => match &object.body {
                Collection::Hash(table) => Some(Layout::Large(table)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the soonest deadline of a field, if the entry is a hash with deadlines.
#[inline]
pub(super) fn next_field_deadline(entry: EntryRef<'_, Object>) -> Option<u64> {
    match Layout::of(entry)? {
        Layout::Small(_, FieldStride::Pairs) => None,
        Layout::Small(triples, FieldStride::Triples) => small::next_deadline(triples),
        Layout::Large(table) => table.next_deadline(),
    }
}

/// Returns the number of expired fields, if the entry is a hash without any unexpired field.
pub(super) fn is_empty_or_over(entry: EntryRef<'_, Object>, now_ms: u64) -> Option<usize> {
    match Layout::of(entry)? {
        Layout::Small(pack, FieldStride::Pairs) => pack.is_empty().then_some(0),
        Layout::Small(pack, FieldStride::Triples) => {
            let (all, due) = (
                pack.len() / FieldStride::Triples.step(),
                small::due(pack, now_ms),
            );
            (all == due).then_some(due)
        }
        Layout::Large(table) => table.is_over(now_ms).then(|| table.total()),
    }
}

/// Deletes expired fields of a hash, at most `budget` of them if it is large, and passes the name and the deadline of
/// each to `show`. Returns their number. The hash may be empty afterwards.
pub(super) fn expire_some(
    entry: &mut Entry<Object>,
    now_ms: u64,
    budget: usize,
    mut deleted: impl FnMut(Element<'_>, u64),
) -> usize {
    if let Some(table) = large_mut(entry) {
        return table.expire_some(now_ms, budget, deleted);
    }
    let Some(Layout::Small(triples, FieldStride::Triples)) = Layout::of(entry.view()) else {
        return 0;
    };
    let Some(first) = triples.first() else {
        return 0;
    };
    let due = small::due(triples, now_ms);
    for field in small::fields(triples, FieldStride::Triples).take(due) {
        deleted(field.name, field.deadline.unwrap_or(now_ms));
    }
    ListpackMut::new(entry).remove_range(first, due * FieldStride::Triples.step());
    due
}

fn large_mut(entry: &mut Entry<Object>) -> Option<&mut HashTable> {
    match &mut entry.object_mut()?.body {
        Collection::Hash(table) => Some(table),
        _ => None,
    }
}

/// A hash for reading, at one time.
#[derive(Clone, Copy)]
pub struct HashRef<'a> {
    layout: Layout<'a>,
    now_ms: u64,
}

impl<'a> HashRef<'a> {
    /// Returns the hash of an entry; `None` if the entry holds another type.
    #[inline]
    pub fn of(entry: EntryRef<'a, Object>, now_ms: u64) -> Option<HashRef<'a>> {
        let layout = Layout::of(entry)?;
        Some(HashRef { layout, now_ms })
    }

    /// Returns the number of fields.
    pub fn len(self) -> usize {
        match self.layout {
            Layout::Small(pack, FieldStride::Pairs) => pack.len() / 2,
            Layout::Small(pack, FieldStride::Triples) => {
                pack.len() / 3 - small::due(pack, self.now_ms)
            }
            Layout::Large(table) => table.len(self.now_ms),
        }
    }

    /// True if no field is left.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns a field by its name.
    #[inline]
    pub fn get(self, name: &[u8]) -> Option<Field<'a>> {
        match self.layout {
            Layout::Small(pack, form) => {
                let at = pack.find(name, form.step())?;
                small::field_at(pack, form, at)
                    .filter(|field| field.is_live(self.now_ms))
                    .map(Field::from)
            }
            Layout::Large(table) => table.get(name, self.now_ms).map(Field::of_record),
        }
    }

    /// Visits every field: a small hash in the order of its listpack, a large one in no order.
    pub fn for_each(self, mut visit: impl FnMut(Field<'_>)) {
        match self.layout {
            Layout::Small(pack, form) => small::fields(pack, form)
                .filter(|field| field.is_live(self.now_ms))
                .for_each(|field| visit(Field::from(field))),
            Layout::Large(table) => {
                table.for_each(self.now_ms, |record| visit(Field::of_record(record)));
            }
        }
    }

    /// Visits about `budget` fields after a cursor, all of a small hash. Returns the next cursor, 0 at the end.
    pub fn scan(self, cursor: u64, budget: usize, mut visit: impl FnMut(Field<'_>)) -> u64 {
        match self.layout {
            Layout::Small(..) => {
                self.for_each(visit);
                0
            }
            Layout::Large(table) => table.scan(cursor, budget, self.now_ms, |record| {
                visit(Field::of_record(record));
            }),
        }
    }

    /// Visits `count` random fields, possibly with repetitions; stops when `visit` returns false.
    pub fn draw(self, random: &mut Random, count: usize, mut visit: impl FnMut(Field<'_>) -> bool) {
        let len = self.len();
        if len == 0 {
            return;
        }
        match self.layout {
            Layout::Small(pack, form) => {
                // Positions in a listpack are found by walking; for more than one they are collected first.
                let live = small::fields(pack, form).filter(|field| field.is_live(self.now_ms));
                if count == 1 {
                    if let Some(field) = { live }.nth(random.index(len)) {
                        visit(Field::from(field));
                    }
                    return;
                }
                let all: Vec<small::ListpackField<'_>> = live.collect();
                for _ in 0..count {
                    if !visit(Field::from(all[random.index(all.len())])) {
                        return;
                    }
                }
            }
            Layout::Large(table) => {
                for _ in 0..count {
                    let Some(record) = table.random(random, self.now_ms) else {
                        return;
                    };
                    if !visit(Field::of_record(record)) {
                        return;
                    }
                }
            }
        }
    }

    /// Visits `count` different random fields, or all if there are no more than that.
    pub fn draw_distinct(
        self,
        random: &mut Random,
        count: usize,
        mut visit: impl FnMut(Field<'_>),
    ) {
        /// If more than this fraction of a hash is wanted, a walk over all of it is cheaper than sampling until
        /// enough fields differ.
        const WALK_SHARE: usize = 3;
        let len = self.len();
        if count < len / WALK_SHARE
            && let Layout::Large(table) = self.layout
        {
            let mut seen = std::collections::HashSet::with_capacity(count);
            while seen.len() < count
                && let Some(record) = table.random(random, self.now_ms)
            {
                // A record does not move while the table is borrowed.
                if seen.insert(record.key().as_ptr() as usize) {
                    visit(Field::of_record(record));
                }
            }
            return;
        }
        // Selection sampling: each field is taken with a probability of the number still wanted divided by the number
        // of remaining fields.
        let (mut wanted, mut left) = (count.min(len), len);
        self.for_each(|field| {
            if wanted > 0 && random.index(left) < wanted {
                wanted -= 1;
                visit(field);
            }
            left = left.saturating_sub(1).max(1);
        });
    }
}

/// Creates a hash with these fields, at least one; if a name occurs more than once, its last value counts.
pub fn new_hash<'f, V: Into<Content<'f>>>(
    key: &[u8],
    fields: impl Iterator<Item = (&'f [u8], V)> + Clone,
    rules: &HashRules,
) -> Entry<Object> {
    let fields = fields.map(|(name, value)| (name, value.into()));
    let (mut count, mut bytes, mut is_small) = (0, EMPTY.len(), true);
    for (name, value) in fields.clone() {
        count += 1;
        bytes += encoded_len(name) + encoded_len(&value);
        is_small &= rules.fits(name, &value);
    }
    if is_small && count <= rules.fields_max && Listpack::new(&EMPTY).fits(bytes) {
        let mut pack = Vec::with_capacity(bytes);
        pack.extend_from_slice(&EMPTY);
        let mut pairs = ListpackMut::new(&mut pack);
        for (name, value) in fields {
            small::set_pair(&mut pairs, name, &value);
        }
        return Entry::bytes(LISTPACK.0, key, &pack, None);
    }
    let mut table = HashTable::new(rules.seed);
    for (name, value) in fields {
        table.set(name, value, FieldDeadline::Clear, rules.now_ms);
    }
    Entry::object(
        HASHTABLE.0,
        key,
        Object::boxed(Collection::Hash(table)),
        None,
    )
}

/// A hash for writing.
pub struct HashMut<'e> {
    entry: &'e mut Entry<Object>,
    rules: &'e HashRules,
}

impl<'e> HashMut<'e> {
    /// Wraps an entry that holds a hash.
    pub fn new(entry: &'e mut Entry<Object>, rules: &'e HashRules) -> HashMut<'e> {
        debug_assert!(Layout::of(entry.view()).is_some(), "it is a hash");
        HashMut { entry, rules }
    }

    /// Returns the hash for reading.
    pub fn view(&self) -> Option<HashRef<'_>> {
        HashRef::of(self.entry.view(), self.rules.now_ms)
    }

    fn form(&self) -> FieldStride {
        if ObjectKind(self.entry.view().kind()) == LISTPACKEX {
            FieldStride::Triples
        } else {
            FieldStride::Pairs
        }
    }

    /// Makes the hash large if it would become large by setting these fields one after the other.
    pub fn expect<'f>(&mut self, fields: impl ExactSizeIterator<Item = (&'f [u8], Content<'f>)>) {
        if fields.len() > self.rules.fields_max || { fields }
            .any(|(name, value)| !self.rules.fits(name, &value))
        {
            self.make_large();
        }
    }

    /// Sets a field. Returns true if it is new.
    #[inline]
    pub fn set<'v>(
        &mut self,
        name: &[u8],
        value: impl Into<Content<'v>>,
        deadline: FieldDeadline,
    ) -> bool {
        let value: Content<'_> = value.into();
        let now_ms = self.rules.now_ms;
        if let Some(table) = large_mut(self.entry) {
            return table.set(name, value, deadline, now_ms);
        }
        let more = encoded_len(name) + encoded_len(&value) + TRIPLE_BYTES;
        if !self.rules.fits(name, &value) || !self.pack().fits(more) {
            return self.make_large().set(name, value, deadline, now_ms);
        }
        let is_new = match self.form() {
            FieldStride::Pairs => small::set_pair(&mut ListpackMut::new(self.entry), name, &value),
            FieldStride::Triples => self.set_triple(name, &value, deadline),
        };
        if is_new && self.pack().len() / self.form().step() > self.rules.fields_max {
            self.make_large();
        }
        is_new
    }

    fn set_triple(&mut self, name: &[u8], value: &[u8], deadline: FieldDeadline) -> bool {
        let mut triples = ListpackMut::new(self.entry);
        let pack = triples.as_listpack();
        let Some(at) = pack.find(name, FieldStride::Triples.step()) else {
            small::push_triple(&mut triples, Element::of(name), Element::of(value), None);
            return true;
        };
        let field = small::field_at(pack, FieldStride::Triples, at);
        let was_live = field.is_some_and(|field| field.is_live(self.rules.now_ms));
        let has_deadline = field.is_some_and(|field| field.deadline.is_some());
        if has_deadline && (deadline == FieldDeadline::Clear || !was_live) {
            small::move_triple(&mut triples, at, Some(value), None);
        } else if let Some(value_at) = pack.next(at) {
            triples.replace(value_at, value);
        }
        !was_live
    }

    /// Deletes a field. Returns true if it existed. If the hash is empty afterwards, its key must be deleted.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let now_ms = self.rules.now_ms;
        if let Some(table) = large_mut(self.entry) {
            return table.remove(name, now_ms);
        }
        let form = self.form();
        let Some((at, field)) = self.find(name, form) else {
            return false;
        };
        let was_live = field.is_live(now_ms);
        small::remove(&mut ListpackMut::new(self.entry), form, at);
        was_live
    }

    /// Sets or removes the deadline of a field. Returns false if there is no such field.
    pub fn set_deadline(&mut self, name: &[u8], deadline: Option<u64>) -> bool {
        let now_ms = self.rules.now_ms;
        let deadline = deadline.map(|deadline_ms| deadline_ms.min(ELEMENT_DEADLINE_MAX));
        if let Some(table) = large_mut(self.entry) {
            return table.set_deadline(name, deadline, now_ms);
        }
        let form = self.form();
        let Some((_, field)) = self.find(name, form) else {
            return false;
        };
        if !field.is_live(now_ms) {
            return false;
        }
        if field.deadline == deadline {
            return true;
        }
        if form == FieldStride::Pairs {
            let triples = small::triples_of(self.pack());
            self.entry.set_bytes(&triples);
            self.entry.set_kind(LISTPACKEX.0);
        }
        if let Some(at) = self.pack().find(name, FieldStride::Triples.step()) {
            small::move_triple(&mut ListpackMut::new(self.entry), at, None, deadline);
        }
        true
    }

    /// Returns the listpack of a small hash.
    fn pack(&self) -> Listpack<'_> {
        match Layout::of(self.entry.view()) {
            Some(Layout::Small(pack, _)) => pack,
            _ => Listpack::new(&EMPTY),
        }
    }

    fn find(&self, name: &[u8], form: FieldStride) -> Option<(At, small::ListpackField<'_>)> {
        let pack = self.pack();
        let at = pack.find(name, form.step())?;
        Some((at, small::field_at(pack, form, at)?))
    }

    fn make_large(&mut self) -> &mut HashTable {
        if large_mut(self.entry).is_none() {
            let mut table = HashTable::new(self.rules.seed);
            for field in small::fields(self.pack(), self.form()) {
                field.name.with_bytes(|name| {
                    let push = |value: &[u8]| table.push(name, value, field.deadline);
                    field.value.with_bytes(push);
                });
            }
            self.entry
                .set_object(Object::boxed(Collection::Hash(table)));
            self.entry.set_kind(HASHTABLE.0);
        }
        large_mut(self.entry).expect("made large")
    }
}

/// Maximum bytes of a deadline in a listpack.
const TRIPLE_BYTES: usize = 10;
