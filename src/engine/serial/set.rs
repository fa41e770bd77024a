//! Sets: individual members, an intset, or a listpack.
//!
//! ```text
//! 2   SET        count | string …
//! 11  INTSET     string with an intset
//! 20  LISTPACK   string with a listpack; since version 11, so it is not written for others
//! 7   MODULE_2   with deadlines of members, see [`lapsing`]
//! ```

use super::lapsing;
use super::packed::distinct;
use super::pages::{self, OPCODE_EOF, OPCODE_STRING};
use super::reader::Reader;
use super::writer::Writer;
use super::{Form, Malformed, SEARCHED_MAX, V11, types};
use crate::value::deadlines::ELEMENT_DEADLINE_MAX;
use crate::value::set::{
    SetLimits, SetRef, add, empty_intset, empty_table, expect_members, reserve, set_deadline,
};
use crate::value::{DataType, Object, ObjectKind, ValueEncoding};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::intset::Intset;
use basalt_core::structures::listpack::{Element, Listpack};

const INTSET: ObjectKind = ObjectKind::new(DataType::Set, ValueEncoding::Intset);
const LISTPACK: ObjectKind = ObjectKind::new(DataType::Set, ValueEncoding::Listpack);

/// Returns a set at a time; including its expired members if all have expired, because the set exists until it is
/// deleted.
pub(super) fn live(entry: EntryRef<'_, Object>, now_ms: u64) -> SetRef<'_> {
    let live = SetRef::of(entry, now_ms);
    match live.is_empty() {
        true => SetRef::of(entry, 0),
        false => live,
    }
}

/// Writes a set after its type byte, without expired members.
pub(super) fn write(entry: EntryRef<'_, Object>, now_ms: u64, writer: &mut Writer) {
    match live(entry, now_ms) {
        set if set.next_deadline().is_some() => {
            lapsing::begin(writer);
            set.for_each_with_deadline(|member, deadline| {
                member.with_bytes(|member| lapsing::member(member, deadline, writer));
            });
            pages::end(writer);
        }
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
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &SetLimits,
) -> Result<Entry<Object>, Malformed> {
    match rdb_type {
        types::SET => {
            let count = reader.count(1)?;
            let mut members = SetBuilder::new(key, count, limits)?;
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
            let mut members = SetBuilder::new(key, numbers.len(), limits)?;
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
            let mut members = SetBuilder::new(key, pack.len(), limits)?;
            for member in pack.iter() {
                member.with_bytes(|member| members.add(member))?;
            }
            Ok(members.entry)
        }
    }
}

/// Reads a set whose members may have deadlines, after the number of the format.
pub(super) fn read_lapsing(
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &SetLimits,
) -> Result<Entry<Object>, Malformed> {
    let limits = SetLimits {
        // While the set is built no member counts as expired: expired members are deleted once the set is stored.
        now_ms: 0,
        ..*limits
    };
    let mut entry = empty_table(key, limits.seed);
    let mut is_empty = true;
    loop {
        match reader.length()? {
            OPCODE_EOF if is_empty => return Err(Malformed::EMPTY),
            OPCODE_EOF => return Ok(entry),
            lapsing::OPCODE_UINT => {}
            _ => return Err(Malformed("a part of a set of another type")),
        }
        let deadline = match reader.length()? {
            0 => None,
            more if more - 1 <= ELEMENT_DEADLINE_MAX => Some(more - 1),
            _ => return Err(Malformed("an expiry time out of range")),
        };
        if reader.length()? != OPCODE_STRING {
            return Err(Malformed("a part of a set of another type"));
        }
        let member = reader.string()?;
        if !add(&mut entry, &member, &limits) {
            return Err(Malformed::TWICE);
        }
        set_deadline(&mut entry, &member, deadline, &limits);
        is_empty = false;
    }
}

/// A set under construction.
struct SetBuilder {
    entry: Entry<Object>,
    limits: SetLimits,
}

impl SetBuilder {
    /// Prepares for `count` members, at least one.
    fn new(key: &[u8], count: usize, limits: &SetLimits) -> Result<SetBuilder, Malformed> {
        if count == 0 {
            return Err(Malformed::EMPTY);
        }
        let limits = SetLimits {
            intset_entries: limits.intset_entries.min(SEARCHED_MAX),
            listpack_entries: limits.listpack_entries.min(SEARCHED_MAX),
            ..*limits
        };
        let mut entry = empty_intset(key);
        expect_members(&mut entry, count, &limits);
        reserve(&mut entry, count);
        Ok(SetBuilder { entry, limits })
    }

    fn add(&mut self, member: &[u8]) -> Result<(), Malformed> {
        if add(&mut self.entry, member, &self.limits) {
            Ok(())
        } else {
            Err(Malformed::TWICE)
        }
    }
}
