//! Locks with waiting, reentrance and fencing tokens.
//!
//! ```text
//! take   LOCK
//! keep   UNLOCK LOCKEXTEND LOCKINFO
//! fence  FENCE, in the log only
//! ```
//!
//! A lock is a hash with a deadline and one field, the name of its owner, whose value is the owner's hold count. This
//! is the layout of a reentrant lock of Redisson, so that clients of Redisson and of these commands exclude each
//! other, and any client can read who owns a lock. The fencing token, which a hash cannot hold, is stored beside it
//! ([`fences`]).
//!
//! A client that waits for a lock is in the queue of its key, as with BLPOP, and waits in turn: if the first waiting
//! client finds that another owner has the lock, the requests of those after it are not run. A lock that is free
//! while clients wait for it belongs to the first one, even at the moment when a command comes across an expired
//! lock.
//!
//! [`fences`]: basalt_engine::fences

mod fence;
mod keep;
mod take;
#[cfg(test)]
mod tests;

use super::Args;
use super::context::ShardCx;
use super::declaration::{Command, KeyFlags, KeySpec};
use super::error::CommandError;
use super::options::TimeForm;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::fences::Fence;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::HashRef;

pub(super) static TABLE: &[&Command] = &[
    &take::LOCK,
    &keep::LOCKEXTEND,
    &keep::LOCKINFO,
    &keep::UNLOCK,
];

pub(super) use fence::FENCE;
pub(super) use take::LOCK;

const HELD: &[KeySpec] = &[KeySpec::one(
    1,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

const EXPIRE_EVENT: Event = Event::generic("expire");

const NOT_OWNER: &str = "NOTOWNER The lock is not held by this owner";

/// Returns the owner that a request names.
fn owner<'a>(args: &Args<'a>) -> Result<&'a [u8], CommandError> {
    match args.get(2) {
        b"" => Err("ERR The owner of a lock must not be empty".into()),
        owner => Ok(owner),
    }
}

/// Returns the deadline of a lock that a request takes or extends now, in Unix milliseconds.
fn deadline_ms(cx: &ShardCx<'_>, args: &Args<'_>) -> Result<u64, CommandError> {
    TimeForm::Millis.deadline_ms(args.integer(3)?, cx.now, cx.command.full_name)
}

/// Returns the hold count of an owner, if that owner has the lock at `place`.
fn holds(
    keyspace: &Keyspace<'_>,
    place: EntrySlot,
    owner: &[u8],
) -> Result<Option<i64>, CommandError> {
    let hash = HashRef::of(keyspace.entry(place), keyspace.elements_due_ms());
    let Some(field) = hash.and_then(|hash| hash.get(owner)) else {
        return Ok(None);
    };
    let holds = field.value.integer();
    Ok(Some(holds.ok_or("ERR hash value is not an integer")?))
}

/// Returns the owner in the hash at `place` and the hold count, if the hash has only one field.
fn only_owner(keyspace: &Keyspace<'_>, place: EntrySlot) -> Option<(Vec<u8>, i64)> {
    let hash = HashRef::of(keyspace.entry(place), keyspace.elements_due_ms())?;
    let mut found = None;
    if hash.len() == 1 {
        hash.for_each(|field| {
            let holds = field.value.integer();
            found = holds.map(|holds| (field.name.with_bytes(<[u8]>::to_vec), holds));
        });
    }
    found
}

/// Whether a lock has this fencing token and is held by the owner to whom the token was issued.
pub(super) fn is_held_with(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    fence: i64,
) -> Result<bool, CommandError> {
    let mut keyspace = cx.at(key);
    let Some(place) = keyspace.find_typed(key, DataType::Hash)? else {
        return Ok(false);
    };
    let Some((owner, _)) = only_owner(&keyspace, place) else {
        return Ok(false);
    };
    let drawn = keyspace.fence(key.bytes, &owner);
    Ok(drawn.is_some_and(|drawn| i64::try_from(drawn) == Ok(fence)))
}

/// Logs the fencing token of a lock, after the record that creates the lock, as a note.
fn log_fence(cx: &mut ShardCx<'_>, key: &[u8], fence: Fence) {
    if cx.is_logged() {
        let (number, owner) = fence.texts();
        cx.log_note(&[b"FENCE", number.as_bytes(), key, owner.as_bytes()]);
    }
}
