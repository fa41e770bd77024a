//! Commands that set and delete fields.

use super::{HDEL_EVENT, HSET_EVENT, at, delete_if_empty, edit, rules};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, HashRef, new_hash};

const SET_FLAGS: Flags = Flags::DENYOOM.or(Flags::FAST);

/// `HSET key field value [field value ...]`
pub(super) static HSET: Command = Command::new("hset", Group::Hash, -4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(SET_FLAGS)
    .keeps_blocks(3, 2)
    .doc(
        "2.0.0",
        "key field value [field value ...]",
        "Sets fields of a hash and returns the number of new fields.",
    )
    .complexity("O(N), N being the count of fields.")
    .history(&[("4.0.0", "Accepts several fields with values.")])
    .looks_up(2)
    .on_keys(|cx, args, out| {
        let added = set_pairs(cx, args, "hset")?;
        out.integer(added as i64);
        Ok(())
    });

/// `HMSET key field value [field value ...]`
pub(super) static HMSET: Command = Command::new("hmset", Group::Hash, -4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(SET_FLAGS)
    .keeps_blocks(3, 2)
    .doc(
        "2.0.0",
        "key field value [field value ...]",
        "Sets fields of a hash.",
    )
    .complexity("O(N), N being the count of fields.")
    .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
    .on_keys(|cx, args, out| {
        set_pairs(cx, args, "hmset")?;
        out.ok();
        Ok(())
    });

/// Sets the fields after the key; returns how many are new.
fn set_pairs(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    command: &'static str,
) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(command));
    }
    let pairs =
        (0..args.len() / 2 - 1).map(|pair| (args.get(2 * pair + 2), args.content(2 * pair + 3)));
    let rules = rules(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let added = match keyspace.find_typed(&key, DataType::Hash)? {
        Some(place) => edit(&mut keyspace, place, &rules, |hash| {
            hash.expect(pairs.clone());
            pairs
                .filter(|(name, value)| hash.set(name, *value, FieldDeadline::Clear))
                .count()
        }),
        None => {
            let place = keyspace.create(&key, || new_hash(key.bytes, pairs, &rules));
            at(&keyspace, place).map_or(0, HashRef::len)
        }
    };
    let names = (0..args.len() / 2 - 1).map(|pair| args.get(2 * pair + 2));
    keyspace.wrote_fields(key.bytes, HSET_EVENT, names);
    Ok(added)
}

/// `HSETNX key field value`
pub(super) static HSETNX: Command = Command::new("hsetnx", Group::Hash, 4)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))])
    .flags(SET_FLAGS)
    .keeps_block(3)
    .doc(
        "2.0.0",
        "key field value",
        "Sets a hash field unless it exists.",
    )
    .looks_up(2)
    .on_keys(hsetnx);

fn hsetnx(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = rules(cx);
    let key = args.key(1);
    let (name, value) = (args.get(2), args.content(3));
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    if let Some(place) = found {
        if at(&keyspace, place).is_some_and(|hash| hash.get(name).is_some()) {
            out.integer(0);
            return Ok(());
        }
        edit(&mut keyspace, place, &rules, |hash| {
            hash.set(name, value, FieldDeadline::Clear)
        });
    } else {
        let pair = std::iter::once((name, value));
        keyspace.create(&key, || new_hash(key.bytes, pair, &rules));
    }
    keyspace.wrote_fields(key.bytes, HSET_EVENT, [name]);
    out.integer(1);
    Ok(())
}

/// `HDEL key field [field ...]`
pub(super) static HDEL: Command = Command::new("hdel", Group::Hash, -3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST)
    .doc(
        "2.0.0",
        "key field [field ...]",
        "Deletes fields of a hash and returns the number of deleted fields; deletes the hash with its last field.",
    )
    .complexity("O(N), N being the count of fields.")
    .history(&[("2.4.0", "Accepts several fields.")])
    .on_keys(hdel);

fn hdel(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = rules(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Hash)? else {
        out.integer(0);
        return Ok(());
    };
    let mut gone = Vec::with_capacity(match keyspace.wants_fields() {
        true => args.len(),
        false => 0,
    });
    let has_room = gone.capacity() > 0;
    let deleted = edit(&mut keyspace, place, &rules, |hash| {
        let removed = args.from(2).filter(|name| hash.remove(name));
        // The capacity is reserved, so that nothing is charged to the hash.
        removed
            .inspect(|name| {
                if has_room {
                    gone.push(*name);
                }
            })
            .count()
    });
    if deleted > 0 {
        keyspace.wrote_fields(key.bytes, HDEL_EVENT, gone);
        delete_if_empty(&mut keyspace, &key, place);
    }
    out.integer(deleted as i64);
    Ok(())
}
