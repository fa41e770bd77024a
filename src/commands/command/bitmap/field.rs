//! BITFIELD: integers of 1 to 64 bits at any offset of a string.
//!
//! The operations are parsed twice: once to refuse the request as a whole if any of them is wrong, once to run them,
//! so that no parsed operation needs to be stored.

use super::{SETBIT_EVENT, no_offset, valid_offset};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, Flags, Group, KeyFlags, KeySpec, ReadArgument,
};
use crate::command::error::CommandError;
use crate::command::string::edit::weigh_write;
use basalt_core::alloc::account;
use basalt_core::base::number;

/// `BITFIELD key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET | INCRBY> encoding offset value ...]`
pub(super) static BITFIELD: Command = Command::new("bitfield", Group::Bitmap, -2)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW
            .or(KeyFlags::ACCESS)
            .or(KeyFlags::UPDATE)
            .or(KeyFlags::VARIABLE_FLAGS),
    )
    .note("This command allows both access and modification of the key")])
    .key_flags_of(key_flags)
    .flags(Flags::DENYOOM)
    .doc(
        "3.2.0",
        "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
         <SET encoding offset value:integer | INCRBY encoding offset increment> \
         [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
         <SET encoding offset value:integer | INCRBY encoding offset increment> ...]]",
        "Reads, sets and adds to integers of any width inside a string.",
    )
    .complexity("O(1) for each operation.")
    .takes_long()
    .on_keys(bitfield);

/// Returns the flags of the key: requests that consist of GETs only read.
fn key_flags(count: usize, argument: ReadArgument<'_, '_>) -> KeyFlags {
    match only_gets(count, argument) {
        true => KeyFlags::RO.or(KeyFlags::ACCESS),
        false => KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    }
}

/// Whether a request of BITFIELD consists of complete GETs and OVERFLOWs only: a malformed one counts as a write.
fn only_gets(argument_count: usize, argument: ReadArgument<'_, '_>) -> bool {
    let mut at = 2;
    while at < argument_count {
        let is = |word: &str| argument(at).eq_ignore_ascii_case(word.as_bytes());
        at += match argument_count - at - 1 {
            2.. if is("get") => 3,
            1.. if is("overflow") => 2,
            _ => return false,
        };
    }
    true
}

/// `BITFIELD_RO key [GET encoding offset [GET encoding offset ...]]`
pub(super) static BITFIELD_RO: Command = Command::new("bitfield_ro", Group::Bitmap, -2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "6.0.0",
        "key [GET encoding offset [GET encoding offset ...]]",
        "Reads integers of any width inside a string.",
    )
    .complexity("O(1) for each operation.")
    .on_keys(bitfield_ro);

/// The width and signedness of an integer field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitfieldEncoding {
    signed: bool,
    bits: u32,
}

impl BitfieldEncoding {
    fn parse(text: &[u8]) -> Result<BitfieldEncoding, CommandError> {
        let parse = || {
            let (signed, bits_max) = match text.first()? {
                b'i' => (true, 64),
                b'u' => (false, 63),
                _ => return None,
            };
            let bits = number::parse_i64(&text[1..])?;
            (1..=bits_max).contains(&bits).then_some(BitfieldEncoding {
                signed,
                bits: bits as u32,
            })
        };
        parse().ok_or_else(|| {
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
                .into()
        })
    }

    fn min(self) -> i128 {
        if self.signed {
            -(1 << (self.bits - 1))
        } else {
            0
        }
    }

    fn max(self) -> i128 {
        if self.signed {
            (1 << (self.bits - 1)) - 1
        } else {
            (1 << self.bits) - 1
        }
    }

    /// Converts the lowest bits to a number.
    fn interpret(self, raw: u64) -> i128 {
        let shift = 128 - self.bits;
        if self.signed {
            i128::from(raw) << shift >> shift
        } else {
            (u128::from(raw) << shift >> shift) as i128
        }
    }

    /// Converts a number to one that a field can hold; `None` if it does not fit and the operation must fail.
    fn fit(self, number: i128, overflow: BitfieldOverflow) -> Option<i128> {
        if (self.min()..=self.max()).contains(&number) {
            return Some(number);
        }
        match overflow {
            BitfieldOverflow::Wrap => Some(self.interpret(number as u64)),
            BitfieldOverflow::Saturate => Some(number.clamp(self.min(), self.max())),
            BitfieldOverflow::Fail => None,
        }
    }
}

/// The treatment of a number that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitfieldOverflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitfieldAction {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    action: BitfieldAction,
    encoding: BitfieldEncoding,
    offset: u64,
    overflow: BitfieldOverflow,
}

impl Operation {
    /// Returns the number that a SET of a signed field stores, before it is made to fit.
    ///
    /// Redis's test for overflow overflows itself for the smallest numbers, so that they saturate at the wrong side;
    /// a compatible server must produce the same bits.
    fn signed(&self, value: i64) -> i128 {
        let value = i128::from(value);
        let max = self.encoding.max();
        if self.overflow == BitfieldOverflow::Saturate
            && max - value > i128::from(i64::MAX)
            && self.encoding.bits < 64
        {
            max
        } else {
            value
        }
    }
}

/// Parses the operations of a request, one after the other.
struct Operations<'a, 'b> {
    args: &'b Args<'a>,
    at: usize,
    overflow: BitfieldOverflow,
    limit_bytes: u64,
}

impl<'a, 'b> Operations<'a, 'b> {
    fn of(args: &'b Args<'a>, limit_bytes: u64) -> Operations<'a, 'b> {
        Operations {
            args,
            at: 2,
            overflow: BitfieldOverflow::Wrap,
            limit_bytes,
        }
    }

    fn read(&mut self) -> Result<Option<Operation>, CommandError> {
        let args = self.args;
        while self.at < args.len() {
            let at = self.at;
            let following = args.len() - at - 1;
            if args.is(at, "overflow") && following >= 1 {
                self.overflow = overflow(args, at + 1)?;
                self.at += 2;
                continue;
            }
            let takes = if args.is(at, "get") {
                2
            } else if args.is(at, "set") || args.is(at, "incrby") {
                3
            } else {
                return Err(CommandError::Syntax);
            };
            if following < takes {
                return Err(CommandError::Syntax);
            }
            let encoding = BitfieldEncoding::parse(args.get(at + 1))?;
            let offset = field_offset(args.get(at + 2), encoding.bits, self.limit_bytes)?;
            let action = match takes {
                2 => BitfieldAction::Get,
                _ if args.is(at, "set") => BitfieldAction::Set(args.integer(at + 3)?),
                _ => BitfieldAction::Add(args.integer(at + 3)?),
            };
            self.at += takes + 1;
            return Ok(Some(Operation {
                action,
                encoding,
                offset,
                overflow: self.overflow,
            }));
        }
        Ok(None)
    }
}

fn overflow(args: &Args<'_>, at: usize) -> Result<BitfieldOverflow, CommandError> {
    if args.is(at, "wrap") {
        Ok(BitfieldOverflow::Wrap)
    } else if args.is(at, "sat") {
        Ok(BitfieldOverflow::Saturate)
    } else if args.is(at, "fail") {
        Ok(BitfieldOverflow::Fail)
    } else {
        Err("ERR Invalid OVERFLOW type specified".into())
    }
}

/// Parses an offset in bits; after `#` it counts fields of this width.
fn field_offset(text: &[u8], bits: u32, limit_bytes: u64) -> Result<u64, CommandError> {
    let (text, step) = match text.strip_prefix(b"#") {
        Some(rest) => (rest, i64::from(bits)),
        None => (text, 1),
    };
    number::parse_i64(text)
        .and_then(|offset| offset.checked_mul(step))
        .and_then(|offset| valid_offset(offset, limit_bytes))
        .ok_or_else(no_offset)
}

/// Summary of a completely parsed request.
struct Summary {
    count: usize,
    /// Minimum bytes of the string after the writes; `None` if no operation writes.
    len_min: Option<usize>,
}

fn summarize(mut operations: Operations<'_, '_>) -> Result<Summary, CommandError> {
    let mut summary = Summary {
        count: 0,
        len_min: None,
    };
    while let Some(operation) = operations.read()? {
        summary.count += 1;
        if operation.action != BitfieldAction::Get {
            let end = (operation.offset + u64::from(operation.encoding.bits)).div_ceil(8) as usize;
            summary.len_min = Some(summary.len_min.unwrap_or(0).max(end));
        }
    }
    Ok(summary)
}

fn bitfield_ro(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let limit_bytes = cx.config.proto_max_bulk_len;
    let summary = summarize(Operations::of(args, limit_bytes))?;
    if summary.len_min.is_some() {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    read_fields(cx, args, out, summary.count)
}

fn bitfield(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let limit_bytes = cx.config.proto_max_bulk_len;
    let summary = summarize(Operations::of(args, limit_bytes))?;
    let Some(len_min) = summary.len_min else {
        return read_fields(cx, args, out, summary.count);
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_text(&key)?;
    let grows = match found {
        Some(place) => keyspace.text(place)?.len() < len_min,
        None => true,
    };
    weigh_write(cx, &key, found, len_min, 0)?;
    let mut keyspace = cx.at(&key);
    out.array(summary.count);
    let mut operations = Operations::of(args, limit_bytes);
    let changed = keyspace.edit_text(&key, found, len_min, |bytes| {
        let mut changed = false;
        while let Ok(Some(operation)) = operations.read() {
            // The replies' memory is not charged to the shard.
            changed |= account::uncharged(|| run(operation, bytes, grows, out));
        }
        changed
    });
    if changed {
        keyspace.wrote(key.bytes, SETBIT_EVENT);
    }
    Ok(())
}

/// Runs one operation. Returns whether it changed the string.
fn run(operation: Operation, bytes: &mut [u8], grows: bool, out: &mut Out) -> bool {
    let Operation {
        encoding, offset, ..
    } = operation;
    let before = encoding.interpret(load(bytes, offset, encoding.bits));
    let (after, answers_before) = match operation.action {
        BitfieldAction::Get => {
            out.integer(before as i64);
            return false;
        }
        // A negative number for an unsigned field counts as the large one with the same bits.
        BitfieldAction::Set(value) if encoding.signed => (operation.signed(value), true),
        BitfieldAction::Set(value) => (i128::from(value as u64), true),
        BitfieldAction::Add(increment) => (before + i128::from(increment), false),
    };
    let Some(after) = encoding.fit(after, operation.overflow) else {
        out.null();
        return false;
    };
    out.integer(if answers_before { before } else { after } as i64);
    store(bytes, offset, encoding.bits, after as u64);
    grows || before != after
}

fn read_fields(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    count: usize,
) -> CommandResult {
    let limit_bytes = cx.config.proto_max_bulk_len;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let text = keyspace.read_text(&key)?;
    out.array(count);
    let mut read_all = |bytes: &[u8]| {
        let mut operations = Operations::of(args, limit_bytes);
        while let Ok(Some(Operation {
            encoding, offset, ..
        })) = operations.read()
        {
            out.integer(encoding.interpret(load(bytes, offset, encoding.bits)) as i64);
        }
    };
    match text {
        Some(text) => text.with_bytes(read_all),
        None => read_all(&[]),
    }
    Ok(())
}

/// A field spans nine bytes at most.
const SPAN: usize = 9;

/// Returns the bytes around a field as the highest ones of a number; there are zeros past the end.
fn window(bytes: &[u8], offset: u64) -> u128 {
    let mut around = [0; 16];
    let start = usize::try_from(offset / 8)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let end = bytes.len().min(start + SPAN);
    around[..end - start].copy_from_slice(&bytes[start..end]);
    u128::from_be_bytes(around)
}

/// Returns the distance of a field from the lowest bit of its window.
fn shift(offset: u64, bits: u32) -> u32 {
    128 - (offset % 8) as u32 - bits
}

fn load(bytes: &[u8], offset: u64, bits: u32) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    (window(bytes, offset) >> shift(offset, bits)) as u64 & mask
}

/// Stores a value in a string that is long enough.
fn store(bytes: &mut [u8], offset: u64, bits: u32, value: u64) {
    let (mask, shift) = (u128::from(u64::MAX >> (64 - bits)), shift(offset, bits));
    let around = window(bytes, offset) & !(mask << shift) | (u128::from(value) & mask) << shift;
    let start = (offset / 8) as usize;
    let end = bytes.len().min(start + SPAN);
    bytes[start..end].copy_from_slice(&around.to_be_bytes()[..end - start]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_field_holds_what_was_stored_and_nothing_else_changes(
            bytes in prop::collection::vec(any::<u8>(), 20),
            offset in 0_u64..96,
            bits in 1_u32..=64,
            value: u64,
        ) {
            let mut changed = bytes.clone();
            store(&mut changed, offset, bits, value);
            prop_assert_eq!(load(&changed, offset, bits), value & (u64::MAX >> (64 - bits)));
            let inside = offset..offset + u64::from(bits);
            for at in (0..160).filter(|at| !inside.contains(at)) {
                prop_assert_eq!(load(&changed, at, 1), load(&bytes, at, 1));
            }
        }

        #[test]
        fn what_fits_stays_and_what_does_not_wraps_like_the_machine(number: i64, bits in 1_u32..=63) {
            let unsigned = BitfieldEncoding { signed: false, bits };
            let wrapped = unsigned.fit(i128::from(number), BitfieldOverflow::Wrap);
            prop_assert_eq!(wrapped, Some(i128::from(number as u64 & ((1 << bits) - 1))));
            let signed = BitfieldEncoding { signed: true, bits };
            let wrapped = signed.fit(i128::from(number), BitfieldOverflow::Wrap);
            prop_assert_eq!(wrapped, Some(i128::from(number << (64 - bits) >> (64 - bits))));
            for encoding in [signed, unsigned] {
                let fits = encoding.fit(i128::from(number), BitfieldOverflow::Fail);
                let saturated = encoding.fit(i128::from(number), BitfieldOverflow::Saturate);
                let clamped = i128::from(number).clamp(encoding.min(), encoding.max());
                prop_assert_eq!(saturated, Some(clamped));
                prop_assert_eq!(fits.is_some(), clamped == i128::from(number));
            }
        }
    }
}
