//! Counting distinct elements in little memory: strings that contain a HyperLogLog.
//!
//! ```text
//! this file  PFADD PFCOUNT PFMERGE, and the error for other strings
//! debug      PFDEBUG PFSELFTEST
//! ```

mod debug;
#[cfg(test)]
mod tests;

use super::context::ShardCx;
use super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::CommandError;
use super::{Args, Out};
use crate::config::Config;
use basalt_core::structures::hyperloglog::{
    Corrupt, Encoding, Registers, Sketch, add, empty, forget_cached, raise_all, set_cached,
    to_dense,
};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::{Deadline, Keyspace};
use basalt_engine::value::Text;
use basalt_engine::value::hyperloglog as value;

pub(super) static TABLE: &[&Command] = &[
    &PFADD,
    &PFCOUNT,
    &debug::PFDEBUG,
    &PFMERGE,
    &debug::PFSELFTEST,
];

/// The event of every command that changes a sketch, including PFMERGE.
const PFADD_EVENT: Event = Event::string("pfadd");
/// The event of a count that was cached in the sketch; no client is notified of it.
const COUNTED: Event = Event::new(0, "pfcount");

#[cold]
fn no_sketch() -> CommandError {
    "WRONGTYPE Key is not a valid HyperLogLog string value.".into()
}

#[cold]
fn corrupt(_: Corrupt) -> CommandError {
    "INVALIDOBJ Corrupted HLL object detected".into()
}

fn sparse_bytes_max(config: &Config) -> usize {
    usize::try_from(config.hll_sparse_max_bytes).unwrap_or(usize::MAX)
}

/// Calls `read` with a string interpreted as a sketch.
fn with_sketch<R>(text: Text<'_>, read: impl FnOnce(Sketch<'_>) -> R) -> Result<R, CommandError> {
    text.with_bytes(|bytes| Sketch::of(bytes).map(read))
        .ok_or_else(no_sketch)
}

/// Ensures that a string that was looked up is not shared, so that it may be changed in place.
fn own(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot) -> CommandResult {
    if let Text::Block(_) = keyspace.text(place)? {
        keyspace.edit_text(key, Some(place), 0, |_| ());
    }
    Ok(())
}

/// `PFADD key [element [element ...]]`
static PFADD: Command = Command::new("pfadd", Group::HyperLogLog, -2)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        "2.8.9",
        "key [element [element ...]]",
        "Adds elements to a HyperLogLog and returns whether its estimate may have changed.",
    )
    .complexity("O(1) for each element.")
    .on_keys(pfadd);

fn pfadd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let limit = sparse_bytes_max(cx.config);
    let mut keyspace = cx.at(&key);
    let changed = match keyspace.find_text(&key)? {
        None => {
            let mut bytes = empty();
            add(&mut bytes, args.from(2), limit).map_err(corrupt)?;
            forget_cached(&mut bytes);
            keyspace.put_raw(&key, None, &bytes, Deadline::Clear);
            true
        }
        Some(place) => {
            with_sketch(keyspace.text(place)?, |_| ())?;
            own(&mut keyspace, &key, place)?;
            keyspace
                .edit(place, |entry| value::add(entry, args.from(2), limit))
                .map_err(corrupt)?
        }
    };
    if changed {
        keyspace.wrote(key.bytes, PFADD_EVENT);
    }
    out.integer(i64::from(changed));
    Ok(())
}

/// `PFCOUNT key [key ...]`
static PFCOUNT: Command = Command::new("pfcount", Group::HyperLogLog, -2)
    .reads(&[
        KeySpec::range(1, -1, 1, KeyFlags::RW.or(KeyFlags::ACCESS)).note(
            "RW because it may change the internal representation of the key, and propagate to replicas",
        ),
    ])
    .flags(Flags::MAY_REPLICATE)
    .doc(
        "2.8.9",
        "key [key ...]",
        "Returns the estimated number of distinct elements of HyperLogLogs.",
    )
    .complexity("O(1) for one key, else O(N), N being the count of keys.")
    .on_keys(pfcount);

fn pfcount(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.keys() {
        [routed] => {
            let key = args.key_of(routed);
            count_one(&mut cx.at_routed(routed), &key)?
        }
        several => {
            let mut union = Registers::new();
            for routed in several {
                let key = args.key_of(routed);
                if let Some(text) = cx.at_routed(routed).read_text(&key)? {
                    with_sketch(text, |sketch| sketch.merge_into(&mut union))?.map_err(corrupt)?;
                }
            }
            union.count()
        }
    };
    out.integer(count as i64);
    Ok(())
}

/// Returns the cardinality of one sketch. The result is cached inside the sketch, so the value changes: clients that
/// watch or cache the key are notified, and replicas execute the command too.
fn count_one(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> Result<u64, CommandError> {
    let Some(text) = keyspace.read_text(key)? else {
        return Ok(0);
    };
    let (cached, count) = with_sketch(text, |sketch| match sketch.cached() {
        Some(count) => (true, Ok(count)),
        None => (false, sketch.count()),
    })?;
    let count = count.map_err(corrupt)?;
    if !cached {
        let place = keyspace.find_text(key)?;
        keyspace.edit_text(key, place, 0, |bytes| set_cached(bytes, count));
        keyspace.wrote(key.bytes, COUNTED);
    }
    Ok(count)
}

/// `PFMERGE destkey [sourcekey [sourcekey ...]]`
static PFMERGE: Command = Command::new("pfmerge", Group::HyperLogLog, -2)
    .writes(&[
        KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::INSERT)),
        KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM)
    .doc(
        "2.8.9",
        "destkey [sourcekey [sourcekey ...]]",
        "Merges several HyperLogLogs into one.",
    )
    .complexity("O(N), N being the count of HyperLogLogs.")
    .on_keys(pfmerge);

fn pfmerge(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (mut union, mut any_dense) = (Registers::new(), false);
    for routed in args.keys() {
        let key = args.key_of(routed);
        if let Some(text) = cx.at_routed(routed).read_text(&key)? {
            with_sketch(text, |sketch| {
                any_dense |= sketch.encoding() == Encoding::Dense;
                sketch.merge_into(&mut union)
            })?
            .map_err(corrupt)?;
        }
    }
    let key = args.key(1);
    let limit = sparse_bytes_max(cx.config);
    let mut keyspace = cx.at(&key);
    match keyspace.find_text(&key)? {
        None => {
            let mut bytes = empty();
            if any_dense {
                to_dense(&mut bytes).map_err(corrupt)?;
            }
            raise_all(&mut bytes, &union, limit).map_err(corrupt)?;
            keyspace.put_raw(&key, None, &bytes, Deadline::Clear);
        }
        Some(place) => {
            own(&mut keyspace, &key, place)?;
            keyspace
                .edit(place, |entry| {
                    if any_dense {
                        value::to_dense(entry)?;
                    }
                    value::raise_all(entry, &union, limit)
                })
                .map_err(corrupt)?;
        }
    }
    keyspace.wrote(key.bytes, PFADD_EVENT);
    out.ok();
    Ok(())
}
