//! Hashes: individual pairs, or one listpack; fields with deadlines since version 12.
//!
//! ```text
//! 4   HASH             count | ( field | value ) …
//! 9   ZIPMAP           string with a zipmap
//! 13  ZIPLIST          string with a ziplist of field, value …
//! 16  LISTPACK         string with a listpack of field, value …
//! 24  METADATA         earliest deadline u64 | count | ( deadline | field | value ) …
//!                      deadline: length; 0 none, else 1 more than its distance from the earliest
//! 25  LISTPACK_EX      earliest deadline u64 | string with a listpack of field, value, deadline …
//!                      those with a deadline first, earliest first; 0 none
//! 22, 23               24 and 25 of a release candidate: no earliest deadline, and deadlines are absolute
//! 22  of Valkey        count | ( field | value | deadline i64, -1 none ) …
//! 29  TEMPLATE         count | field … | string with a listpack of values
//! 30  TEMPLATE_REF     string with a listpack of the template's number and the values
//! 31  TEMPLATE         count | ( field | value ) …
//! 32  TEMPLATE_REF     the template's number | value …
//! ```
//!
//! A template is a list of field names that many hashes share; a file contains it once, before these hashes.

use super::packed::{Packed, distinct};
use super::reader::Reader;
use super::writer::Writer;
use super::{Form, Malformed, SEARCHED_MAX, V12, types, valkey};
use crate::value::hash::{
    FieldDeadline, HASHTABLE, HashMut, HashRef, HashRules, HashTable, LISTPACK, LISTPACKEX,
};
use crate::value::{Collection, Object, ObjectKind};
use basalt_core::structures::entry::{DEADLINE_MAX, Entry, EntryRef, Value};
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::{self, Element, Listpack, ListpackMut};
use basalt_core::structures::zipmap::Zipmap;

/// Returns a hash at a time; including its expired fields if all have expired, because the hash exists until it is
/// deleted.
pub(super) fn live(entry: EntryRef<'_, Object>, now_ms: u64) -> HashRef<'_> {
    let live = HashRef::of(entry, now_ms).filter(|hash| !hash.is_empty());
    live.or_else(|| HashRef::of(entry, 0))
        .expect("the type was checked")
}

/// Writes a hash after its type byte, without expired fields.
pub(super) fn write(entry: EntryRef<'_, Object>, now_ms: u64, writer: &mut Writer) {
    if let Value::Bytes(pairs) = entry.value()
        && ObjectKind(entry.kind()) == LISTPACK
    {
        writer.kind(types::HASH_LISTPACK);
        return writer.string(pairs);
    }
    let hash = live(entry, now_ms);
    let mut earliest: Option<u64> = None;
    hash.for_each(|field| {
        let both = earliest.into_iter().chain(field.deadline);
        earliest = both.min();
    });
    let is_small = matches!(entry.value(), Value::Bytes(_));
    match (is_small, earliest) {
        (_, Some(_)) if writer.form() == Form::Valkey => {
            valkey::begin_hash(hash.len() as u64, writer);
            hash.for_each(|field| {
                writer.element(field.name);
                writer.item(field.value);
                valkey::deadline(field.deadline, writer);
            });
        }
        (true, None) if writer.form() != Form::Whole => {
            writer.kind(types::HASH_LISTPACK);
            writer.string(&packed(hash, false));
        }
        (true, earliest) => {
            writer.needs(V12);
            writer.kind(types::HASH_LISTPACK_EX);
            writer.millis(earliest.unwrap_or(0));
            writer.string(&packed(hash, true));
        }
        (false, None) => {
            writer.kind(types::HASH);
            writer.length(hash.len() as u64);
            hash.for_each(|field| {
                writer.element(field.name);
                writer.item(field.value);
            });
        }
        (false, Some(earliest)) => {
            writer.needs(V12);
            writer.kind(types::HASH_METADATA);
            writer.millis(earliest);
            writer.length(hash.len() as u64);
            hash.for_each(|field| {
                let behind = field
                    .deadline
                    .map(|at_ms| at_ms.saturating_sub(earliest) + 1);
                writer.length(behind.unwrap_or(0));
                writer.element(field.name);
                writer.item(field.value);
            });
        }
    }
}

/// Returns the listpack of a small hash, with or without deadlines.
fn packed(hash: HashRef<'_>, has_deadlines: bool) -> Vec<u8> {
    let mut bytes = listpack::EMPTY.to_vec();
    let mut pack = ListpackMut::new(&mut bytes);
    hash.for_each(|field| {
        pack.push_back_element(field.name);
        match field.value {
            Item::Element(value) => pack.push_back_element(value),
            Item::Block(value) => pack.push_back(value),
        }
        if has_deadlines {
            let deadline = field.deadline.map_or(0, |at_ms| at_ms as i64);
            pack.push_back_element(Element::Integer(deadline));
        }
    });
    bytes
}

/// Reads a hash of any form.
pub(super) fn read(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    rules: &HashRules,
) -> Result<Entry<Object>, Malformed> {
    match rdb_type {
        types::HASH => {
            let count = reader.count(2)?;
            let mut fields = HashBuilder::new(key, count, rules)?;
            for _ in 0..count {
                let field = reader.string()?;
                let value = reader.string()?;
                fields.add(&field, &value, None)?;
            }
            Ok(fields.entry)
        }
        types::HASH_ZIPMAP => {
            let bytes = reader.string()?;
            let map = Zipmap::check(&bytes).ok_or(Malformed::PACK)?;
            let mut fields = HashBuilder::new(key, map.len(), rules)?;
            for (field, value) in map.iter() {
                fields.add(field, value, None)?;
            }
            Ok(fields.entry)
        }
        types::HASH_ZIPLIST => {
            let bytes = reader.string()?;
            let packed = Packed::ziplist(&bytes)?;
            let mut fields = HashBuilder::new(key, packed.len() / 2, rules)?;
            packed.each_group(|[field, value]| fields.add_elements(field, value, None))?;
            Ok(fields.entry)
        }
        types::VALKEY_HASH_2 if reader.is_valkey() => {
            let count = reader.count(10)?;
            let mut fields = HashBuilder::new(key, count, rules)?;
            for _ in 0..count {
                let (field, value) = (reader.string()?, reader.string()?);
                let deadline = valkey::read_deadline(reader)?;
                fields.add(&field, &value, deadline)?;
            }
            Ok(fields.entry)
        }
        types::HASH_METADATA | types::HASH_METADATA_RC => {
            let earliest = if rdb_type == types::HASH_METADATA {
                reader.millis()?
            } else {
                1
            };
            let count = reader.count(3)?;
            let mut fields = HashBuilder::new(key, count, rules)?;
            for _ in 0..count {
                let deadline = match reader.length()? {
                    0 => None,
                    behind => Some(checked_deadline(earliest.checked_add(behind - 1))?),
                };
                let field = reader.string()?;
                let value = reader.string()?;
                fields.add(&field, &value, deadline)?;
            }
            Ok(fields.entry)
        }
        types::HASH_LISTPACK => read_pack::<2>(LISTPACK, key, reader, rules),
        _ => {
            if rdb_type == types::HASH_LISTPACK_EX {
                // The earliest deadline, repeated here for readers that do not parse the listpack.
                reader.millis()?;
            }
            read_pack::<3>(LISTPACKEX, key, reader, rules)
        }
    }
}

/// Reads a hash whose field names are separate from its values.
pub(super) fn read_template(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    rules: &HashRules,
) -> Result<Entry<Object>, Malformed> {
    const OTHER_COUNT: Malformed = Malformed("as many values as fields are due");
    match rdb_type {
        types::HASH_TEMPLATE_ARRAY => {
            let count = reader.count(2)?;
            let mut fields = HashBuilder::new(key, count, rules)?;
            for _ in 0..count {
                let (field, value) = (reader.string()?, reader.string()?);
                fields.add(&field, &value, None)?;
            }
            Ok(fields.entry)
        }
        types::HASH_TEMPLATE_ARRAY_REF => {
            let number = reader.length()?;
            let names = reader.template(number)?;
            let mut fields = HashBuilder::new(key, names.len(), rules)?;
            for name in names {
                fields.add(name, &reader.string()?, None)?;
            }
            Ok(fields.entry)
        }
        _ => {
            let mut own = Vec::new();
            if rdb_type == types::HASH_TEMPLATE_LISTPACK {
                for _ in 0..reader.count(1)? {
                    own.push(reader.string()?.into_owned().into_boxed_slice());
                }
            }
            let bytes = reader.string()?;
            let pack = Listpack::check(&bytes).ok_or(Malformed::PACK)?;
            let mut values = pack.iter();
            let names = match rdb_type {
                types::HASH_TEMPLATE_LISTPACK => own.as_slice(),
                _ => {
                    let number = values.next().and_then(|number| number.integer());
                    let number = number.and_then(|number| u64::try_from(number).ok());
                    reader.template(number.ok_or(Malformed::PACK)?)?
                }
            };
            let mut fields = HashBuilder::new(key, names.len(), rules)?;
            for name in names {
                let value = values.next().ok_or(OTHER_COUNT)?;
                value.with_bytes(|value| fields.add(name, value, None))?;
            }
            match values.next() {
                None => Ok(fields.entry),
                Some(_) => Err(OTHER_COUNT),
            }
        }
    }
}

/// Reads a listpack of groups of `N` elements: field, value, and optionally deadline.
fn read_pack<const N: usize>(
    kind: ObjectKind,
    key: &[u8],
    reader: &mut Reader<'_>,
    rules: &HashRules,
) -> Result<Entry<Object>, Malformed> {
    let bytes = reader.string()?;
    let pack = Listpack::check(&bytes).ok_or(Malformed::PACK)?;
    let distinct = distinct(pack, N)?;
    let count = pack.len() / N;
    if N == 2 && count > 0 && count <= rules.fields_max {
        return Ok(Entry::bytes(kind.0, key, &distinct, None));
    }
    let mut large = None;
    if count == 0 || count > rules.fields_max {
        large = Some(HashBuilder::new(key, count, rules)?);
    }
    // Fields without a deadline come last.
    let mut last = Some(0);
    Packed::Listpack(pack).each_group::<N>(|group| {
        let (field, value) = (group[0], group[1]);
        let deadline = match group.get(2) {
            None => None,
            Some(element) => deadline_of(*element)?,
        };
        let is_in_order = deadline.is_none() || last.is_some_and(|last| Some(last) <= deadline);
        if !is_in_order {
            return Err(Malformed::ORDER);
        }
        last = deadline;
        match &mut large {
            Some(fields) => fields.add_elements(field, value, deadline),
            None => Ok(()),
        }
    })?;
    Ok(match large {
        Some(fields) => fields.entry,
        None => Entry::bytes(kind.0, key, &distinct, None),
    })
}

fn deadline_of(element: Element<'_>) -> Result<Option<u64>, Malformed> {
    let number = element
        .integer()
        .ok_or(Malformed("an expiry time that is not a number"))?;
    match number {
        0 => Ok(None),
        at_ms => checked_deadline(u64::try_from(at_ms).ok()).map(Some),
    }
}

fn checked_deadline(at_ms: Option<u64>) -> Result<u64, Malformed> {
    at_ms
        .filter(|at_ms| (1..=DEADLINE_MAX).contains(at_ms))
        .ok_or(Malformed("an expiry time out of range"))
}

/// A hash under construction.
struct HashBuilder {
    entry: Entry<Object>,
    rules: HashRules,
}

impl HashBuilder {
    /// Prepares for `count` fields, at least one.
    fn new(key: &[u8], count: usize, rules: &HashRules) -> Result<HashBuilder, Malformed> {
        if count == 0 {
            return Err(Malformed::EMPTY);
        }
        let rules = HashRules {
            fields_max: rules.fields_max.min(SEARCHED_MAX),
            // While the hash is built no field counts as expired: expired fields are deleted once the hash is stored.
            now_ms: 0,
            ..*rules
        };
        let entry = if count > rules.fields_max {
            let mut table = HashTable::new(rules.seed);
            table.reserve(count);
            Entry::object(
                HASHTABLE.0,
                key,
                Object::boxed(Collection::Hash(table)),
                None,
            )
        } else {
            Entry::bytes(LISTPACK.0, key, &listpack::EMPTY, None)
        };
        Ok(HashBuilder { entry, rules })
    }

    fn add(&mut self, field: &[u8], value: &[u8], deadline: Option<u64>) -> Result<(), Malformed> {
        let mut hash = HashMut::new(&mut self.entry, &self.rules);
        if !hash.set(field, value, FieldDeadline::Keep) {
            return Err(Malformed::TWICE);
        }
        if deadline.is_some() {
            hash.set_deadline(field, deadline);
        }
        Ok(())
    }

    fn add_elements(
        &mut self,
        field: Element<'_>,
        value: Element<'_>,
        deadline: Option<u64>,
    ) -> Result<(), Malformed> {
        field.with_bytes(|field| value.with_bytes(|value| self.add(field, value, deadline)))
    }
}
