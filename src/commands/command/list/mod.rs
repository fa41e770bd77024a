//! Lists: queues and stacks of strings.
//!
//! ```text
//! push       LPUSH RPUSH LPUSHX RPUSHX
//! edit       LINSERT LSET LREM LTRIM
//! pop        LPOP RPOP LMPOP, and BLPOP BRPOP BLMPOP, which wait
//! transfer   LMOVE LMOVEM RPOPLPUSH, and BLMOVE BLMOVEM BRPOPLPUSH, which wait
//! read       LLEN LINDEX LRANGE LPOS
//! ```
//!
//! The memory layout of a list is internal to [`list`]; here it has two ends and numbered elements. A list that loses
//! its last element is deleted, and the event `del` follows that of the command.

mod edit;
mod pop;
mod push;
mod read;
#[cfg(test)]
mod tests;
mod transfer;

use super::Args;
use super::context::ShardCx;
use super::declaration::{Command, KeyFlags};
use super::error::CommandError;
use basalt_core::structures::quicklist::{End, QuicklistLimits};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::list;

pub(super) static TABLE: &[&Command] = &[
    &transfer::BLMOVE,
    &transfer::BLMOVEM,
    &pop::BLMPOP,
    &pop::BLPOP,
    &pop::BRPOP,
    &transfer::BRPOPLPUSH,
    &read::LINDEX,
    &edit::LINSERT,
    &read::LLEN,
    &transfer::LMOVE,
    &transfer::LMOVEM,
    &pop::LMPOP,
    &pop::LPOP,
    &read::LPOS,
    &push::LPUSH,
    &push::LPUSHX,
    &read::LRANGE,
    &edit::LREM,
    &edit::LSET,
    &edit::LTRIM,
    &pop::RPOP,
    &transfer::RPOPLPUSH,
    &push::RPUSH,
    &push::RPUSHX,
];

/// Flags of a key whose elements are removed and returned.
const POPPED: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);
/// Flags of a key to which elements are added.
const PUSHED: KeyFlags = KeyFlags::RW.or(KeyFlags::INSERT);

fn limits(cx: &ShardCx<'_>) -> QuicklistLimits {
    list::limits(
        cx.config.list_max_listpack_size,
        cx.config.list_compress_depth,
    )
}

/// Parses LEFT or RIGHT.
fn end_named(args: &Args<'_>, at: usize) -> Result<End, CommandError> {
    if args.is(at, "left") {
        Ok(End::Front)
    } else if args.is(at, "right") {
        Ok(End::Back)
    } else {
        Err(CommandError::Syntax)
    }
}

fn pushed_event(end: End) -> Event {
    match end {
        End::Front => Event::new(b'l', "lpush"),
        End::Back => Event::new(b'l', "rpush"),
    }
}

fn popped_event(end: End) -> Event {
    match end {
        End::Front => Event::new(b'l', "lpop"),
        End::Back => Event::new(b'l', "rpop"),
    }
}

/// Records that elements were removed from a list, and deletes the key if no element is left.
#[inline]
fn took(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, event: Event, len: usize) {
    keyspace.wrote(key.bytes, event);
    if len == 0 {
        keyspace.delete_emptied(key, place);
    }
}

/// Converts an index, which counts from the end if it is negative, to an element's number.
fn index_within(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Returns the first element of a range of indices, and the number of elements.
fn range_within(start: i64, stop: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let absolute = |index: i64| if index < 0 { index + len } else { index };
    let (start, stop) = (absolute(start).max(0), absolute(stop).min(len - 1));
    (start <= stop).then(|| (start as usize, (stop - start + 1) as usize))
}
