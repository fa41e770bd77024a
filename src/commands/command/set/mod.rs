//! Sets: unique strings without an order.
//!
//! ```text
//! this file  shared code
//! member     SADD SREM SMOVE SISMEMBER SMISMEMBER SCARD SMEMBERS SSCAN
//! draw       SPOP SRANDMEMBER
//! expire     SEXPIRE SPEXPIRE SEXPIREAT SPEXPIREAT SPERSIST STTL SPTTL SEXPIRETIME SPEXPIRETIME
//! combine    SINTER SUNION SDIFF, their STORE forms, and SINTERCARD SUNIONCARD SDIFFCARD
//! aside      the STORE forms of large sets, built with the shards released
//! ```

mod aside;
mod combine;
mod draw;
mod expire;
mod member;
#[cfg(test)]
mod tests;

use super::Args;
use super::context::ShardCx;
use super::declaration::Command;
use super::element_deadline::log_names;
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::intset;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::set::{SetLimits, SetRef};

pub(super) static TABLE: &[&Command] = &[
    &member::SADD,
    &member::SCARD,
    &combine::SDIFF,
    &combine::SDIFFCARD,
    &combine::SDIFFSTORE,
    &expire::SEXPIRE,
    &expire::SEXPIREAT,
    &expire::SEXPIRETIME,
    &combine::SINTER,
    &combine::SINTERCARD,
    &combine::SINTERSTORE,
    &member::SISMEMBER,
    &member::SMEMBERS,
    &member::SMISMEMBER,
    &member::SMOVE,
    &expire::SPERSIST,
    &expire::SPEXPIRE,
    &expire::SPEXPIREAT,
    &expire::SPEXPIRETIME,
    &draw::SPOP,
    &expire::SPTTL,
    &draw::SRANDMEMBER,
    &member::SREM,
    &member::SSCAN,
    &expire::STTL,
    &combine::SUNION,
    &combine::SUNIONCARD,
    &combine::SUNIONSTORE,
];

const SREM_EVENT: Event = event("srem");

/// Returns an event of sets (class `s`).
const fn event(name: &'static str) -> Event {
    Event::new(b's', name)
}

/// Returns the current limits of small sets.
pub(in crate::command) fn limits(cx: &ShardCx<'_>) -> SetLimits {
    limits_of(cx.config, cx.seed(), cx.elements_due_ms())
}

/// Returns the limits of small sets under a configuration, at a given time.
pub(in crate::command) fn limits_of(config: &Config, seed: HashSeed, now_ms: u64) -> SetLimits {
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    SetLimits {
        // Prevents an intset of gigabytes, whatever is configured.
        intset_entries: count(config.set_max_intset_entries).min(intset::MEMBERS_MAX - 1),
        listpack_entries: count(config.set_max_listpack_entries),
        listpack_value: count(config.set_max_listpack_value),
        seed,
        now_ms,
    }
}

/// Returns the set at a place.
fn at<'k>(keyspace: &'k Keyspace<'_>, place: EntrySlot) -> SetRef<'k> {
    SetRef::of(keyspace.entry(place), keyspace.elements_due_ms())
}

/// Returns the named members that are in a set although they have expired, if the change is logged: adding such a
/// member creates a new one here, but on a replica, whose clock may be behind, the old one still exists.
fn lapsed<'a>(
    keyspace: &Keyspace<'_>,
    place: EntrySlot,
    is_logged: bool,
    members: impl Iterator<Item = &'a [u8]>,
) -> Vec<&'a [u8]> {
    let (set, due_ms) = (at(keyspace, place), keyspace.elements_due_ms());
    let has_due = set.next_deadline().is_some_and(|at_ms| at_ms <= due_ms);
    if !is_logged || !has_due {
        return Vec::new();
    }
    let all = SetRef::of(keyspace.entry(place), 0);
    let is_lapsed = |member: &&[u8]| all.contains(member) && !set.contains(member);
    members.filter(is_lapsed).collect()
}

/// Logs that expired members are removed, before the command that adds them again.
fn log_lapsed(cx: &mut ShardCx<'_>, args: &Args<'_>, key: &[u8], lapsed: &[&[u8]]) {
    if !lapsed.is_empty() {
        log_names(cx, &[b"SREM", key], lapsed);
        cx.log_instead(args.contents(0));
    }
}

/// Records that members were removed from a set, and deletes the key if no member is left.
fn took_out(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, event: Event) {
    let is_empty = at(keyspace, place).is_empty();
    if is_empty {
        keyspace.delete_over(place);
    }
    keyspace.wrote(key.bytes, event);
    if is_empty {
        keyspace.wrote(key.bytes, Event::DEL);
    }
}

/// The set operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetOperation {
    Intersection,
    Union,
    /// The members of the first set that none of the others has.
    Difference,
}

/// Returns whether a difference of sets of these lengths is found sooner by searching each of the first set's members
/// in the others, which takes N steps for each of them, than by removing all others' members from a copy of the first
/// set, which takes as many steps as all sets have members together. As a member may be found in one of the first sets,
/// the first way is estimated to take half of its maximum.
fn is_searched(lens: &[usize]) -> bool {
    let searching = lens
        .first()
        .map_or(0, |first| first.saturating_mul(lens.len()) / 2);
    searching <= lens.iter().sum()
}
