//! Sets of strings, each there once, in no order.
//!
//! ```text
//! this file  what all of them share
//! member     SADD SREM SMOVE SISMEMBER SMISMEMBER SCARD SMEMBERS SSCAN
//! draw       SPOP SRANDMEMBER
//! combine    SINTER SINTERCARD SUNION SDIFF, and their STORE forms
//! ```

mod combine;
mod draw;
mod member;
#[cfg(test)]
mod tests;

use super::context::ShardCx;
use super::declaration::Command;
use crate::base::hash::Seed;
use crate::config::Config;
use crate::engine::Key;
use crate::engine::effect::Event;
use crate::engine::keyspace::Keyspace;
use crate::engine::value::set::{Limits, SetRef};
use crate::structures::intset;
use crate::structures::table::Place;

pub(super) static TABLE: &[&Command] = &[
    &member::SADD,
    &member::SCARD,
    &combine::SDIFF,
    &combine::SDIFFSTORE,
    &combine::SINTER,
    &combine::SINTERCARD,
    &combine::SINTERSTORE,
    &member::SISMEMBER,
    &member::SMEMBERS,
    &member::SMISMEMBER,
    &member::SMOVE,
    &draw::SPOP,
    &draw::SRANDMEMBER,
    &member::SREM,
    &member::SSCAN,
    &combine::SUNION,
    &combine::SUNIONSTORE,
];

/// An event of sets (class `s`).
const fn event(name: &'static str) -> Event {
    Event::new(b's', name)
}

/// The limits of small sets, as they are configured now.
pub(in crate::command) fn limits(cx: &ShardCx<'_>) -> Limits {
    limits_of(cx.config, cx.seed())
}

/// The limits of small sets under a configuration.
pub(in crate::command) fn limits_of(config: &Config, seed: Seed) -> Limits {
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    Limits {
        // No intset of gibibytes, whatever is configured.
        intset_entries: count(config.set_max_intset_entries).min(intset::MEMBERS_MAX - 1),
        listpack_entries: count(config.set_max_listpack_entries),
        listpack_value: count(config.set_max_listpack_value),
        seed,
    }
}

/// Records that members were taken out of a set, and deletes it if none are left.
fn took_out(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: Place, event: Event) {
    let is_empty = SetRef::of(keyspace.entry(place)).is_empty();
    if is_empty {
        keyspace.delete(place);
    }
    keyspace.wrote(key.bytes, event);
    if is_empty {
        keyspace.wrote(key.bytes, Event::DEL);
    }
}
