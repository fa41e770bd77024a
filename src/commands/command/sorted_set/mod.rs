//! Sorted sets: members with one score each, ordered by score.
//!
//! ```text
//! this file  shared code
//! add        ZADD ZINCRBY
//! member     ZREM ZCARD ZSCORE ZMSCORE ZRANK ZREVRANK ZRANDMEMBER ZSCAN
//! bounds     ranges of ranks, scores and members
//! range      ZRANGE and its older relatives, ZRANGESTORE
//! count      ZCOUNT ZLEXCOUNT ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX
//! operands   the sets that set operations read, and what they do with a member
//! combine    ZUNION ZINTER ZDIFF, their STORE forms, ZINTERCARD
//! aside      the STORE forms and ZRANGESTORE of large sets, built with the shards released
//! pop        ZPOPMIN ZPOPMAX ZMPOP and their blocking forms
//! due        ZPOPDUE BZPOPDUE
//! transfer   ZMOVE BZMOVE ZMOVEMEMBER
//! ```

pub(super) mod add;
mod aside;
mod bounds;
mod combine;
mod count;
mod due;
mod member;
mod operands;
mod pop;
mod range;
#[cfg(test)]
mod tests;
mod transfer;

use super::Args;
use super::Out;
use super::context::ShardCx;
use super::declaration::{Command, CommandResult};
use super::element::reply_element;
use super::error::CommandError;
use crate::config::Config;
use crate::config::values::ZsetIndex;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::number;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::ordered::OrderedIndexType;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::{Keyspace, WrongType};
use basalt_engine::value::object::detached;
use basalt_engine::value::sorted_set::{ScoredMembers, SortedSet, SortedSetLimits, SortedSetMut};
use basalt_engine::value::{DataType, Object};

pub(super) static TABLE: &[&Command] = &[
    &transfer::BZMOVE,
    &pop::BZMPOP,
    &due::BZPOPDUE,
    &pop::BZPOPMAX,
    &pop::BZPOPMIN,
    &add::ZADD,
    &member::ZCARD,
    &count::ZCOUNT,
    &combine::ZDIFF,
    &combine::ZDIFFSTORE,
    &add::ZINCRBY,
    &combine::ZINTER,
    &combine::ZINTERCARD,
    &combine::ZINTERSTORE,
    &count::ZLEXCOUNT,
    &transfer::ZMOVE,
    &transfer::ZMOVEMEMBER,
    &pop::ZMPOP,
    &member::ZMSCORE,
    &due::ZPOPDUE,
    &pop::ZPOPMAX,
    &pop::ZPOPMIN,
    &member::ZRANDMEMBER,
    &range::ZRANGE,
    &range::ZRANGEBYLEX,
    &range::ZRANGEBYSCORE,
    &range::ZRANGESTORE,
    &member::ZRANK,
    &member::ZREM,
    &count::ZREMRANGEBYLEX,
    &count::ZREMRANGEBYRANK,
    &count::ZREMRANGEBYSCORE,
    &range::ZREVRANGE,
    &range::ZREVRANGEBYLEX,
    &range::ZREVRANGEBYSCORE,
    &member::ZREVRANK,
    &member::ZSCAN,
    &member::ZSCORE,
    &combine::ZUNION,
    &combine::ZUNIONSTORE,
];

/// Returns an event of sorted sets (class `z`).
pub(super) const fn event(name: &'static str) -> Event {
    Event::new(b'z', name)
}

/// Returns the current limits of small sorted sets.
pub(in crate::command) fn limits(cx: &ShardCx<'_>) -> SortedSetLimits {
    limits_of(cx.config, cx.seed())
}

/// Returns the limits of small sorted sets under a configuration.
pub(in crate::command) fn limits_of(config: &Config, seed: HashSeed) -> SortedSetLimits {
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    SortedSetLimits {
        members: count(config.zset_max_listpack_entries),
        member_bytes: count(config.zset_max_listpack_value),
        form: match config.zset_index {
            ZsetIndex::Btree => OrderedIndexType::Tree,
            ZsetIndex::Skiplist => OrderedIndexType::Skip,
        },
        seed,
    }
}

/// Parses a score, which is any number but NaN.
pub(super) fn score(text: &[u8]) -> Result<f64, CommandError> {
    match number::parse_i64(text) {
        Some(score) => Ok(score as f64),
        None => number::parse_f64(text).ok_or(CommandError::NotFloat),
    }
}

/// Looks up a sorted set for a command that reads it.
#[inline]
pub(super) fn read<'k>(
    keyspace: &'k mut Keyspace<'_>,
    key: &Key<'_>,
) -> Result<Option<SortedSet<'k>>, WrongType> {
    let found = keyspace.read_typed(key, DataType::SortedSet)?;
    Ok(found.map(|place| SortedSet::of(keyspace.entry(place))))
}

/// Calls `answer` with the score of each member that a command names, if it exists, to write its reply.
#[inline]
pub(super) fn answer_each(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    answer: impl Fn(Option<f64>, &mut Out),
) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let set = read(&mut keyspace, &key)?;
    out.array(args.len() - 2);
    for member in args.from(2) {
        answer(set.and_then(|set| set.score(member)), out);
    }
    Ok(())
}

/// Begins an array of members, with or without their scores. RESP3 gets pairs, RESP2 a flat array.
fn begin_members(count: usize, with_scores: bool, out: &mut Out) {
    let is_flat = with_scores && !out.is_resp3();
    out.array(if is_flat { count * 2 } else { count });
}

/// Writes one member of an array that `begin_members` began.
fn reply_scored(member: Element<'_>, score: f64, with_scores: bool, out: &mut Out) {
    if with_scores && out.is_resp3() {
        out.array(2);
    }
    reply_element(member, out);
    if with_scores {
        out.double(score);
    }
}

/// Records that members were removed, and deletes the set if none is left.
fn took_out(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, event: Event) {
    let is_empty = SortedSet::of(keyspace.entry(place)).is_empty();
    if is_empty {
        keyspace.delete(place);
    }
    keyspace.wrote(key.bytes, event);
    if is_empty {
        keyspace.wrote(key.bytes, Event::DEL);
    }
}

/// Logs that a key holds exactly these members, in place of a command that older servers do not know.
pub(super) fn log_members(cx: &mut ShardCx<'_>, key: &Key<'_>, members: &ScoredMembers) {
    if !cx.is_logged() {
        return;
    }
    cx.log_nothing();
    if cx.at(key).find_write(key).is_some() {
        cx.log_deletion(key.bytes, false);
    }
    if members.is_empty() {
        return;
    }
    let text = |score: f64| number::F64Buffer::default().format(score).to_vec();
    let scores: Vec<Vec<u8>> = members.iter().map(|(_, score)| text(*score)).collect();
    let mut request: Vec<Content<'_>> = vec![b"ZADD".into(), key.bytes.into()];
    for ((member, _), score) in members.iter().zip(&scores) {
        request.push(score.into());
        request.push(member.into());
    }
    cx.log_instead(request);
    cx.log_blessing(key);
}

/// Stores members, each of which occurs once, under a key, replacing its value; without members the key is deleted.
/// Returns the number of members.
pub(super) fn store(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    mut members: ScoredMembers,
    event: Event,
    out: &mut Out,
) {
    let limits = limits(cx);
    let entry = detached(|| SortedSetMut::entry_of(key.bytes, &mut members, limits));
    install(cx, key, entry, event, out);
}

/// Stores a sorted set that belongs to no shard yet under a key, as [`store`] does.
fn install(cx: &mut ShardCx<'_>, key: &Key<'_>, entry: Entry<Object>, event: Event, out: &mut Out) {
    let count = SortedSet::of(entry.view()).len();
    let mut keyspace = cx.at(key);
    let found = keyspace.find_write(key);
    if count > 0 {
        keyspace.overwrites(key, found, DataType::SortedSet);
        keyspace.adopt(key, found, entry);
        keyspace.wrote(key.bytes, event);
    } else if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, Event::DEL);
    }
    out.integer(count as i64);
}
