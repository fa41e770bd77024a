//! Hashes: named fields with values, each of which may expire on its own.
//!
//! ```text
//! get       HGET HMGET HEXISTS HSTRLEN HLEN
//! set       HSET HMSET HSETNX HDEL
//! number    HINCRBY HINCRBYFLOAT
//! whole     HGETALL HKEYS HVALS HSCAN
//! random    HRANDFIELD
//! expire    HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST HTTL HPTTL HEXPIRETIME HPEXPIRETIME
//! combined  HGETEX HSETEX HGETDEL
//! import    HIMPORT
//! ```
//!
//! Whether a hash is packed or a table is internal to the engine, as is the deletion of expired fields: handlers
//! never see such a field.

mod combined;
mod expire;
mod get;
mod import;
mod number;
mod random;
mod set;
#[cfg(test)]
mod tests;
mod whole;

use super::context::ShardCx;
use super::declaration::{Command, KeyFlags, KeySpec};
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::Now;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::{Keyspace, WrongType};
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{Field, HashMut, HashRef, HashRules};

pub(super) static TABLE: &[&Command] = &[
    &set::HDEL,
    &get::HEXISTS,
    &expire::HEXPIRE,
    &expire::HEXPIREAT,
    &expire::HEXPIRETIME,
    &get::HGET,
    &whole::HGETALL,
    &combined::HGETDEL,
    &combined::HGETEX,
    &import::HIMPORT,
    &number::HINCRBY,
    &number::HINCRBYFLOAT,
    &whole::HKEYS,
    &get::HLEN,
    &get::HMGET,
    &set::HMSET,
    &expire::HPERSIST,
    &expire::HPEXPIRE,
    &expire::HPEXPIREAT,
    &expire::HPEXPIRETIME,
    &expire::HPTTL,
    &random::HRANDFIELD,
    &whole::HSCAN,
    &set::HSET,
    &combined::HSETEX,
    &set::HSETNX,
    &get::HSTRLEN,
    &expire::HTTL,
    &whole::HVALS,
];

const LOOKED_AT: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];
const ACCESSED_AND_UPDATED: &[KeySpec] = &[KeySpec::one(
    1,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

const HSET_EVENT: Event = Event::new(b'h', "hset");
const HDEL_EVENT: Event = Event::new(b'h', "hdel");

/// Returns the parameters for changes of hashes.
pub(in crate::command) fn rules(cx: &ShardCx<'_>) -> HashRules {
    // No field expires while data are loaded: a later record may remove its deadline.
    let now = match cx.is_loading() {
        true => Now::default(),
        false => cx.now,
    };
    rules_of(cx.config, cx.seed(), now)
}

/// Returns the parameters for changes of hashes under a configuration, at this time.
pub(in crate::command) fn rules_of(config: &Config, seed: HashSeed, now: Now) -> HashRules {
    let limit = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    HashRules {
        fields_max: limit(config.hash_max_listpack_entries),
        element_bytes_max: limit(config.hash_max_listpack_value),
        seed,
        now_ms: now.unix_ms,
    }
}

/// Looks up a hash for a command that reads it.
#[inline]
fn read<'k>(
    keyspace: &'k mut Keyspace<'_>,
    key: &Key<'_>,
) -> Result<Option<HashRef<'k>>, WrongType> {
    let found = keyspace.read_typed(key, DataType::Hash)?;
    Ok(found.and_then(|place| at(keyspace, place)))
}

/// Returns the hash at a place.
#[inline]
fn at<'k>(keyspace: &'k Keyspace<'_>, place: EntrySlot) -> Option<HashRef<'k>> {
    HashRef::of(keyspace.entry(place), keyspace.elements_due_ms())
}

/// Returns a field of the hash that a lookup found, if both exist, with the hash's place.
fn field_at<'k>(
    keyspace: &'k Keyspace<'_>,
    found: Option<EntrySlot>,
    name: &[u8],
) -> Option<(EntrySlot, Field<'k>)> {
    let place = found?;
    Some((place, at(keyspace, place)?.get(name)?))
}

/// Changes the hash at a place. `change` must not allocate anything that outlives it, replies above all, as that
/// would be charged to the hash.
#[inline]
pub(super) fn edit<R>(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    rules: &HashRules,
    change: impl FnOnce(&mut HashMut<'_>) -> R,
) -> R {
    keyspace.edit(place, |entry| change(&mut HashMut::new(entry, rules)))
}

/// Deletes the key of a hash that has lost its last field.
fn delete_if_empty(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot) {
    if at(keyspace, place).is_none_or(HashRef::is_empty) {
        keyspace.delete_over(place);
        keyspace.wrote(key.bytes, Event::DEL);
    }
}
