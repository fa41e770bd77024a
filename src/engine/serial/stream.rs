//! Streams: nodes of packed entries, then figures, then consumer groups.
//!
//! ```text
//! 15  LISTPACKS      nodes | length | last id | groups
//! 19  LISTPACKS_2    … | length | last id | first id | greatest deleted id | added | groups
//! 21  LISTPACKS_3    as 19, and consumers have the time when they were active
//!
//! nodes       count | ( string with the master id | string with a pack ) …
//! id          two lengths; in strings and in pending lists 16 bytes big-endian
//! groups      count | ( name | last id | read (from 19 on) | pending | consumers ) …
//! pending     count | ( id | delivery time u64 | deliveries ) …
//! consumers   count | ( name | seen u64 | active u64 (from 21 on) | count | id … ) …
//! ```
//!
//! A pending entry stands in its group's list with its figures, and in the list of exactly one consumer.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::Reader;
use super::{Malformed, types};
use crate::structures::pack::{Element, Pack};

/// An entry's id: milliseconds and a number.
pub(super) type Id = (u64, u64);

/// A stream as its bytes describe it, checked but for the rules of whoever builds it.
pub(super) struct Parts {
    pub(super) length: u64,
    pub(super) last_id: Id,
    pub(super) first_id: Id,
    pub(super) deleted_id_max: Id,
    pub(super) added: u64,
    pub(super) groups: Vec<Group>,
}

/// A consumer group.
pub(super) struct Group {
    pub(super) name: Vec<u8>,
    pub(super) last_id: Id,
    /// How many entries it has read; unknown if negative.
    pub(super) read: i64,
    /// By id: when it was delivered last, how often, and to which of the consumers.
    pub(super) pending: BTreeMap<Id, Pending>,
    pub(super) consumers: Vec<Consumer>,
}

/// An entry that was delivered and not acknowledged.
pub(super) struct Pending {
    pub(super) delivered_ms: u64,
    pub(super) deliveries: u64,
    pub(super) consumer: usize,
}

/// A consumer of a group.
pub(super) struct Consumer {
    pub(super) name: Vec<u8>,
    pub(super) seen_ms: u64,
    /// None if it never was.
    pub(super) active_ms: Option<u64>,
}

/// What stands for "never" and for "unknown" in fields without a sign.
pub(super) const NONE: u64 = u64::MAX;

/// Reads a stream of any form; `add` gets each entry that is not deleted, in order: its id, fields and values.
pub(super) fn read(
    form: u8,
    reader: &mut Reader<'_>,
    mut add: impl FnMut(Id, &[Element<'_>]) -> Result<(), Malformed>,
) -> Result<Parts, Malformed> {
    let mut walk = Walk::default();
    for _ in 0..reader.count(2)? {
        let master = id_of(&reader.string()?)?;
        let bytes = reader.string()?;
        walk.node(master, &bytes, &mut add)?;
    }
    let length = reader.length()?;
    let last_id = id(reader)?;
    if length != walk.live || walk.last.is_some_and(|last| last > last_id) {
        return Err(Malformed("a stream whose figures do not fit its entries"));
    }
    let mut parts = Parts {
        length,
        last_id,
        first_id: walk.first.unwrap_or_default(),
        deleted_id_max: (0, 0),
        added: length,
        groups: Vec::new(),
    };
    if form != types::STREAM_LISTPACKS {
        // What it says of the first entry is known from the entries.
        id(reader)?;
        parts.deleted_id_max = id(reader)?;
        parts.added = reader.length()?;
    }
    let mut names = BTreeSet::new();
    for _ in 0..reader.count(5)? {
        let group = read_group(form, reader, &parts)?;
        if !names.insert(group.name.clone()) {
            return Err(Malformed("two groups of one name"));
        }
        parts.groups.push(group);
    }
    Ok(parts)
}

/// The walk over all nodes: ids must rise from the first entry to the last, deleted ones too.
#[derive(Default)]
struct Walk {
    first: Option<Id>,
    last: Option<Id>,
    live: u64,
}

/// An entry that is there only to say that it was deleted.
pub(super) const DELETED: i64 = 1;
/// An entry with the fields of its node.
pub(super) const SAME_FIELDS: i64 = 2;

impl Walk {
    fn node(
        &mut self,
        master: Id,
        bytes: &[u8],
        add: &mut impl FnMut(Id, &[Element<'_>]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let pack = Pack::check(bytes).ok_or(Malformed::PACK)?;
        let mut elements = pack.iter();
        let (live, deleted) = (integer(&mut elements)?, integer(&mut elements)?);
        let field_count = count(&mut elements, pack.len())?;
        let mut fields = Vec::with_capacity(field_count);
        for _ in 0..field_count {
            fields.push(next(&mut elements)?);
        }
        if integer(&mut elements)? != 0 {
            return Err(Malformed::PACK);
        }
        let (mut live_seen, mut deleted_seen) = (0i64, 0i64);
        let mut pairs: Vec<Element<'_>> = Vec::new();
        while let Some(flags) = elements.next() {
            let flags = flags.integer().ok_or(Malformed::PACK)?;
            let ms = master.0.wrapping_add(integer(&mut elements)? as u64);
            let sequence = master.1.wrapping_add(integer(&mut elements)? as u64);
            pairs.clear();
            let parts = if flags & SAME_FIELDS != 0 {
                for field in &fields {
                    pairs.push(*field);
                    pairs.push(next(&mut elements)?);
                }
                3 + fields.len()
            } else {
                let own = count(&mut elements, pack.len())?;
                for _ in 0..own {
                    pairs.push(next(&mut elements)?);
                    pairs.push(next(&mut elements)?);
                }
                4 + 2 * own
            };
            if integer(&mut elements)? != parts as i64 {
                return Err(Malformed::PACK);
            }
            let id = (ms, sequence);
            if id == (0, 0) || self.last.is_some_and(|last| id <= last) {
                return Err(Malformed::ORDER);
            }
            self.last = Some(id);
            if flags & DELETED != 0 {
                deleted_seen += 1;
                continue;
            }
            live_seen += 1;
            self.live += 1;
            self.first.get_or_insert(id);
            add(id, &pairs)?;
        }
        if live_seen != live || deleted_seen != deleted || live == 0 {
            return Err(Malformed(
                "a stream node whose counts do not fit its entries",
            ));
        }
        Ok(())
    }
}

fn next<'a>(elements: &mut impl Iterator<Item = Element<'a>>) -> Result<Element<'a>, Malformed> {
    elements.next().ok_or(Malformed::PACK)
}

fn integer<'a>(elements: &mut impl Iterator<Item = Element<'a>>) -> Result<i64, Malformed> {
    next(elements)?.integer().ok_or(Malformed::PACK)
}

/// A count of elements of the same pack, of which it has `limit`.
fn count<'a>(
    elements: &mut impl Iterator<Item = Element<'a>>,
    limit: usize,
) -> Result<usize, Malformed> {
    usize::try_from(integer(elements)?)
        .ok()
        .filter(|count| *count <= limit)
        .ok_or(Malformed::PACK)
}

fn read_group(form: u8, reader: &mut Reader<'_>, parts: &Parts) -> Result<Group, Malformed> {
    let name = reader.string()?.into_owned();
    let last_id = id(reader)?;
    let read = if form == types::STREAM_LISTPACKS {
        read_by_then(parts, last_id)
    } else {
        reader.length()? as i64
    };
    let mut pending = BTreeMap::new();
    for _ in 0..reader.count(25)? {
        let id = id_of(&reader.array::<16>()?)?;
        let entry = Pending {
            delivered_ms: reader.millis()?,
            deliveries: reader.length()?,
            consumer: usize::MAX,
        };
        if pending.insert(id, entry).is_some() {
            return Err(Malformed("an entry pending twice"));
        }
    }
    let mut consumers: Vec<Consumer> = Vec::new();
    let mut names = BTreeSet::new();
    let mut owned = 0;
    for _ in 0..reader.count(10)? {
        let name = reader.string()?.into_owned();
        if !names.insert(name.clone()) {
            return Err(Malformed("two consumers of one name"));
        }
        let seen_ms = reader.millis()?;
        let active_ms = if form == types::STREAM_LISTPACKS_3 {
            Some(reader.millis()?).filter(|active_ms| *active_ms != NONE)
        } else {
            // The best guess there is.
            Some(seen_ms)
        };
        for _ in 0..reader.count(16)? {
            let id = id_of(&reader.array::<16>()?)?;
            let entry = pending
                .get_mut(&id)
                .filter(|entry| entry.consumer == usize::MAX)
                .ok_or(Malformed(
                    "an entry that a consumer has and its group has not",
                ))?;
            entry.consumer = consumers.len();
            owned += 1;
        }
        consumers.push(Consumer {
            name,
            seen_ms,
            active_ms,
        });
    }
    if owned != pending.len() {
        return Err(Malformed("an entry pending for nobody"));
    }
    Ok(Group {
        name,
        last_id,
        read,
        pending,
        consumers,
    })
}

/// How many entries a group of a stream without figures has read, if its last id tells.
fn read_by_then(parts: &Parts, last_id: Id) -> i64 {
    if parts.added == 0 {
        return 0;
    }
    if parts.length == 0 && last_id < parts.last_id {
        return parts.added as i64;
    }
    match last_id.cmp(&parts.last_id) {
        std::cmp::Ordering::Equal => parts.added as i64,
        _ if last_id > parts.last_id => -1,
        _ if last_id < parts.first_id => (parts.added - parts.length) as i64,
        _ if last_id == parts.first_id => (parts.added - parts.length + 1) as i64,
        _ => -1,
    }
}

fn id(reader: &mut Reader<'_>) -> Result<Id, Malformed> {
    Ok((reader.length()?, reader.length()?))
}

fn id_of(bytes: &[u8]) -> Result<Id, Malformed> {
    let whole: [u8; 16] = bytes
        .try_into()
        .map_err(|_| Malformed("an id of another length"))?;
    let whole = u128::from_be_bytes(whole);
    Ok(((whole >> 64) as u64, whole as u64))
}
