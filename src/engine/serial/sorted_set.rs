//! Sorted sets: members with scores, or a listpack of both.
//!
//! ```text
//! 3   ZSET       count | ( member | score as text ) …       before version 8
//! 5   ZSET_2     count | ( member | score f64 ) …           highest first, though no reader requires it
//! 12  ZIPLIST    string with a ziplist of member, score …   in order
//! 17  LISTPACK   string with a listpack of member, score …  in order
//! ```

use super::packed::Packed;
use super::packed::{distinct, score};
use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, SEARCHED_MAX, types};
use crate::value::Object;
use crate::value::sorted_set::{LISTPACK, ScoredMembers, SortedSet, SortedSetLimits, SortedSetMut};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::listpack::{Element, Listpack};
use basalt_core::structures::ordered::Direction;

/// Writes a sorted set after its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    match SortedSet::of(entry) {
        SortedSet::Small(pack) => {
            writer.kind(types::ZSET_LISTPACK);
            writer.string(pack.bytes());
        }
        set => {
            writer.kind(types::ZSET_2);
            writer.length(set.len() as u64);
            // Other servers write and load members in descending order, in which each insertion is at the front and
            // fastest.
            for (member, score) in set.range(0, set.len(), Direction::Descending) {
                writer.element(member);
                writer.double(score);
            }
        }
    }
}

/// Reads a sorted set of any form.
pub(super) fn read(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &SortedSetLimits,
) -> Result<Entry<Object>, Malformed> {
    match rdb_type {
        types::ZSET | types::ZSET_2 => {
            let count = reader.count(2)?;
            let mut members = Vec::with_capacity(count);
            for _ in 0..count {
                let member = reader.string()?;
                let score = if rdb_type == types::ZSET {
                    reader.text_double()?
                } else {
                    reader.double()?
                };
                members.push((member, score));
            }
            entry_of(key, members, limits)
        }
        types::ZSET_ZIPLIST => {
            let bytes = reader.string()?;
            let mut members = ScoredMembers::new();
            Packed::ziplist(&bytes)?.each_group(|[member, text]| {
                members.push((member.to_vec(), score(text)?));
                Ok(())
            })?;
            check_order(&members)?;
            entry_of(key, members, limits)
        }
        _ => {
            let bytes = reader.string()?;
            let pack = Listpack::check(&bytes).ok_or(Malformed::PACK)?;
            let distinct = distinct(pack, 2)?;
            check_order_of(pack)?;
            if !pack.is_empty() && pack.len() / 2 <= limits.members {
                return Ok(Entry::bytes(LISTPACK.0, key, &distinct, None));
            }
            let mut members = ScoredMembers::with_capacity(pack.len() / 2);
            Packed::Listpack(pack).each_group(|[member, text]| {
                members.push((member.to_vec(), score(text)?));
                Ok(())
            })?;
            entry_of(key, members, limits)
        }
    }
}

/// Checks that a listpack of members, each followed by its score, is in order, without copies.
fn check_order_of(pack: Listpack<'_>) -> Result<(), Malformed> {
    let mut last: Option<(f64, Element<'_>)> = None;
    Packed::Listpack(pack).each_group(|[member, text]| {
        let score = score(text)?;
        let is_behind = last.is_none_or(|(low, before)| {
            low < score
                || low == score && before.with_bytes(|one| member.with_bytes(|other| one < other))
        });
        last = Some((score, member));
        match is_behind {
            true => Ok(()),
            false => Err(Malformed::ORDER),
        }
    })
}

fn check_order(members: &ScoredMembers) -> Result<(), Malformed> {
    let is_ascending = members.is_sorted_by(|(one, low), (two, high)| (low, one) < (high, two));
    if is_ascending {
        Ok(())
    } else {
        Err(Malformed::ORDER)
    }
}

fn entry_of<M: AsRef<[u8]>>(
    key: &[u8],
    mut members: Vec<(M, f64)>,
    limits: &SortedSetLimits,
) -> Result<Entry<Object>, Malformed> {
    if members.is_empty() {
        return Err(Malformed::EMPTY);
    }
    let limits = SortedSetLimits {
        members: limits.members.min(SEARCHED_MAX),
        ..*limits
    };
    let entry = SortedSetMut::entry_of(key, &mut members, limits);
    // If a member occurs twice, the second occurrence overwrote the first.
    if SortedSet::of(entry.view()).len() < members.len() {
        return Err(Malformed::TWICE);
    }
    Ok(entry)
}
