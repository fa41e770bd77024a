//! Changes to a part of a string, in place.

use super::grown_len;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Deadline;
use basalt_engine::value::Text;

/// `APPEND key value`
pub(super) static APPEND: Command = Command::new("append", Group::String, 3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .keeps_block(2)
    .doc(
        "2.0.0",
        "key value",
        "Appends to the string value of a key, which is created if it does not exist.",
    )
    .complexity("O(1) amortized for short additions, as the room of a string grows by doubling.")
    .takes_long()
    .on_keys(append);

fn append(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, addition) = (args.key(1), args.get(2));
    let limit = cx.config.proto_max_bulk_len;
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let before = keyspace.text_len(found)?;
    let total = match found {
        Some(_) => grown_len(before, addition.len(), limit)?,
        None => addition.len(),
    };
    if found.is_none() {
        keyspace.put_text(&key, None, args.content(2), Deadline::Clear);
    } else {
        weigh_write(cx, &key, found, before, addition.len())?;
        keyspace = cx.at(&key);
        keyspace.edit_text(&key, found, total, |bytes| {
            bytes[before..].copy_from_slice(addition);
        });
    }
    keyspace.wrote(key.bytes, Event::string("append"));
    out.integer(total as i64);
    Ok(())
}

/// `SETRANGE key offset value`
pub(super) static SETRANGE: Command = Command::new("setrange", Group::String, 4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM)
    .doc(
        "2.2.0",
        "key offset value",
        "Overwrites a part of a string, padding it with zero bytes if it is too short.",
    )
    .complexity("O(1) for short values, else O(M), M being the length of the value.")
    .takes_long()
    .on_keys(setrange);

fn setrange(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, offset, value) = (args.key(1), args.integer(2)?, args.get(3));
    let Ok(offset) = usize::try_from(offset) else {
        return Err("ERR offset is out of range".into());
    };
    let limit = cx.config.proto_max_bulk_len;
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let before = keyspace.text_len(found)?;
    if value.is_empty() {
        out.integer(before as i64);
        return Ok(());
    }
    let end = grown_len(offset, value.len(), limit)?;
    weigh_write(cx, &key, found, offset, value.len())?;
    let mut keyspace = cx.at(&key);
    keyspace.edit_text(&key, found, end, |bytes| {
        bytes[offset..end].copy_from_slice(value);
    });
    keyspace.wrote(key.bytes, Event::string("setrange"));
    out.integer(before.max(end) as i64);
    Ok(())
}

/// Checks, before bytes are written to the string that a lookup just found, whether the write moves too many bytes
/// for this thread.
pub(in crate::command) fn weigh_write(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    found: Option<EntrySlot>,
    offset: usize,
    len: usize,
) -> CommandResult {
    let scales = cx.scales();
    let keyspace = cx.at(key);
    let text = match found {
        Some(place) => Some(keyspace.text(place)?),
        None => None,
    };
    scales.weigh_bytes(moved_by(text, offset, len))
}

/// Returns the number of bytes that a write moves: the written ones, or the whole string if it must be reallocated.
fn moved_by(text: Option<Text<'_>>, offset: usize, len: usize) -> usize {
    let end = offset.saturating_add(len);
    match text {
        Some(Text::Block(block)) if end <= block.room() && block.is_unique() => {
            end.saturating_sub(offset.min(block.len()))
        }
        Some(text) => end.max(text.len()),
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_core::structures::block::SharedBlock;

    #[test]
    fn a_write_moves_all_that_has_to_find_a_new_place() {
        let block = SharedBlock::new(&[1; 1000]);
        let room = block.room();
        let text = Some(Text::Block(&block));
        assert_eq!(moved_by(text, 10, 5), 5);
        assert_eq!(moved_by(text, 1000, room - 1000), room - 1000);
        assert_eq!(moved_by(text, 1000, room), 1000 + room);
        assert_eq!(moved_by(None, 1000, 1), 1001);
        let _shared = block.clone();
        assert_eq!(moved_by(text, 10, 5), 1000);
    }
}
