//! Sets: member after member, an intset, or a listpack.
//!
//! ```text
//! 2   SET        count | string …
//! 11  INTSET     string with an intset
//! 20  LISTPACK   string with a listpack; since version 11, so it is not written for others
//! ```

use super::packed::distinct;
use super::reader::Reader;
use super::writer::Writer;
use super::{Form, Malformed, SEARCHED_MAX, V11, types};
use crate::engine::value::set::{Limits, SetRef, add, empty_intset, expect_members, reserve};
use crate::engine::value::{DataType, Encoding, Kind, Object};
use crate::structures::entry::{Entry, EntryRef};
use crate::structures::intset::Intset;
use crate::structures::listpack::{Element, Listpack};

const INTSET: Kind = Kind::new(DataType::Set, Encoding::Intset);
const LISTPACK: Kind = Kind::new(DataType::Set, Encoding::Listpack);

/// Writes a set, behind its type.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    match SetRef::of(entry) {
        SetRef::Intset(numbers) => {
            writer.kind(types::SET_INTSET);
            writer.string(numbers.bytes());
        }
        SetRef::Listpack(pack) if writer.form() != Form::Oldest => {
            writer.needs(V11);
            writer.kind(types::SET_LISTPACK);
            writer.string(pack.bytes());
        }
        set => {
            writer.kind(types::SET);
            writer.length(set.len() as u64);
            set.for_each(|member| writer.element(member));
        }
    }
}

/// Reads a set of any form.
pub(super) fn read(
    form: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<Entry<Object>, Malformed> {
    match form {
        types::SET => {
            let count = reader.count(1)?;
            let mut members = Members::new(key, count, limits)?;
            for _ in 0..count {
                members.add(&reader.string()?)?;
            }
            Ok(members.entry)
        }
        types::SET_INTSET => {
            let bytes = reader.string()?;
            let numbers = Intset::check(&bytes).ok_or(Malformed::PACK)?;
            if !numbers.is_empty() && numbers.len() <= limits.intset_entries {
                return Ok(Entry::bytes(INTSET.0, key, &bytes, None));
            }
            let mut members = Members::new(key, numbers.len(), limits)?;
            for number in numbers.iter() {
                Element::Integer(number).with_bytes(|member| members.add(member))?;
            }
            Ok(members.entry)
        }
        _ => {
            let bytes = reader.string()?;
            let pack = Listpack::check(&bytes).ok_or(Malformed::PACK)?;
            let distinct = distinct(pack, 1)?;
            if !pack.is_empty() && pack.len() <= limits.listpack_entries {
                return Ok(Entry::bytes(LISTPACK.0, key, &distinct, None));
            }
            let mut members = Members::new(key, pack.len(), limits)?;
            for member in pack.iter() {
                member.with_bytes(|member| members.add(member))?;
            }
            Ok(members.entry)
        }
    }
}

/// A set under construction.
struct Members {
    entry: Entry<Object>,
    limits: Limits,
}

impl Members {
    /// Ready for so many members, at least one.
    fn new(key: &[u8], count: usize, limits: &Limits) -> Result<Members, Malformed> {
        if count == 0 {
            return Err(Malformed::EMPTY);
        }
        let limits = Limits {
            intset_entries: limits.intset_entries.min(SEARCHED_MAX),
            listpack_entries: limits.listpack_entries.min(SEARCHED_MAX),
            ..*limits
        };
        let mut entry = empty_intset(key);
        expect_members(&mut entry, count, &limits);
        reserve(&mut entry, count);
        Ok(Members { entry, limits })
    }

    fn add(&mut self, member: &[u8]) -> Result<(), Malformed> {
        if add(&mut self.entry, member, &self.limits) {
            Ok(())
        } else {
            Err(Malformed::TWICE)
        }
    }
}
