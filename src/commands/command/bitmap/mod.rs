//! Strings as arrays of bits: bit 0 is the highest bit of the first byte.
//!
//! ```text
//! this file  SETBIT GETBIT, and the parsing of offsets
//! count      BITCOUNT BITPOS BITRANGEINTARRAY
//! op         BITOP
//! field      BITFIELD BITFIELD_RO
//! ```

mod count;
mod field;
mod op;
#[cfg(test)]
mod tests;

use super::Args;
use super::Out;
use super::context::ShardCx;
use super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::CommandError;
use super::string::edit::weigh_write;
use basalt_core::base::number;
use basalt_engine::effect::Event;

pub(super) static TABLE: &[&Command] = &[
    &count::BITCOUNT,
    &field::BITFIELD,
    &field::BITFIELD_RO,
    &op::BITOP,
    &count::BITPOS,
    &count::BITRANGEINTARRAY,
    &GETBIT,
    &SETBIT,
];

const SETBIT_EVENT: Event = Event::string("setbit");

/// Parses an offset in bits that is valid for a string of the maximum length.
fn bit_offset(text: &[u8], limit_bytes: u64) -> Result<u64, CommandError> {
    number::parse_i64(text)
        .and_then(|offset| valid_offset(offset, limit_bytes))
        .ok_or_else(no_offset)
}

fn valid_offset(offset: i64, limit_bytes: u64) -> Option<u64> {
    u64::try_from(offset)
        .ok()
        .filter(|offset| offset / 8 < limit_bytes)
}

#[cold]
fn no_offset() -> CommandError {
    "ERR bit offset is not an integer or out of range".into()
}

/// Returns the bit at `offset`; false beyond the end of the string.
fn bit_at(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8)
        .ok()
        .and_then(|at| bytes.get(at))
        .copied()
        .unwrap_or(0);
    byte << (offset % 8) & 0x80 != 0
}

/// `SETBIT key offset value`
static SETBIT: Command = Command::new("setbit", Group::Bitmap, 4)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::DENYOOM)
    .doc(
        "2.2.0",
        "key offset value:integer",
        "Sets or clears a bit of a string, which grows as needed; returns the old bit.",
    )
    .takes_long()
    .on_keys(setbit);

fn setbit(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let offset = bit_offset(args.get(2), cx.config.proto_max_bulk_len)?;
    let on = match args.get(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let before = keyspace.text_len(found)?;
    let byte = (offset / 8) as usize;
    weigh_write(cx, &key, found, byte, 1)?;
    let was = cx.at(&key).edit_text(&key, found, byte + 1, |bytes| {
        let was = bit_at(bytes, offset);
        let mask = 0x80 >> (offset % 8);
        if on {
            bytes[byte] |= mask
        } else {
            bytes[byte] &= !mask
        }
        was
    });
    if was != on || before <= byte {
        cx.at(&key).wrote(key.bytes, SETBIT_EVENT);
    }
    out.integer(i64::from(was));
    Ok(())
}

/// `GETBIT key offset`
static GETBIT: Command = Command::new("getbit", Group::Bitmap, 3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.2.0",
        "key offset",
        "Returns a bit of a string; bits past its end are 0.",
    )
    .on_keys(getbit);

fn getbit(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let offset = bit_offset(args.get(2), cx.config.proto_max_bulk_len)?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let text = keyspace.read_text(&key)?;
    let on = text.is_some_and(|text| text.with_bytes(|bytes| bit_at(bytes, offset)));
    out.integer(i64::from(on));
    Ok(())
}
