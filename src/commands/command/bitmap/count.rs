//! Commands that count and find bits in a range of bytes or of bits.

use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeySpec};
use crate::command::error::CommandError;
use basalt_engine::value::Text;

/// `BITCOUNT key [start [end [BYTE | BIT]]]`
pub(super) static BITCOUNT: Command = Command::new("bitcount", Group::Bitmap, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.6.0",
        "key [start [end [BYTE | BIT]]]",
        "Counts the set bits of a string, or of a part of it.",
    )
    .complexity("O(N)")
    .history(&[("7.0.0", "New options: `BYTE` and `BIT`.")])
    .takes_long()
    .on_keys(bitcount);

fn bitcount(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let range = match args.len() {
        2 => None,
        3 => Some((args.integer(2)?, -1, BitcountUnit::Byte)),
        4 | 5 => {
            let (start, end) = (args.integer(2)?, args.integer(3)?);
            Some((start, end, BitcountUnit::parse(args, 4)?))
        }
        _ => return Err(CommandError::Syntax),
    };
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(text) = keyspace.read_text(&key)? else {
        out.integer(0);
        return Ok(());
    };
    let bits = match range {
        None => Some((0, text.len() as u64 * 8)),
        // Checked before the positions are made absolute, so that "-1 -5" is empty in any string.
        Some((start, end, _)) if start < 0 && end < 0 && start > end => None,
        Some((start, end, unit)) => unit.bits(text.len(), start, end),
    };
    let counted = bits.map_or(0, |(from, to)| to.saturating_sub(from) / 8);
    scales.weigh_bytes(usize::try_from(counted).unwrap_or(usize::MAX) / 8)?;
    let count = match bits {
        Some((from, to)) => text.with_bytes(|bytes| count_ones(bytes, from, to)),
        None => 0,
    };
    out.integer(count as i64);
    Ok(())
}

/// The unit of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitcountUnit {
    Byte,
    Bit,
}

impl BitcountUnit {
    /// Parses the unit at `at`; bytes if there is no such argument.
    fn parse(args: &Args<'_>, at: usize) -> Result<BitcountUnit, CommandError> {
        if at >= args.len() || args.is(at, "byte") {
            Ok(BitcountUnit::Byte)
        } else if args.is(at, "bit") {
            Ok(BitcountUnit::Bit)
        } else {
            Err(CommandError::Syntax)
        }
    }

    /// Converts inclusive positions, negative ones from the end, to a range of bits; `None` if it is empty.
    fn bits(self, len_bytes: usize, start: i64, end: i64) -> Option<(u64, u64)> {
        let unit_bits = if self == BitcountUnit::Byte { 8 } else { 1 };
        let len = len_bytes as i64 * (8 / unit_bits);
        let absolute = |position: i64| match position {
            0.. => position,
            _ => len.saturating_add(position).max(0),
        };
        let (from, to) = (absolute(start), absolute(end).min(len - 1));
        (from <= to).then(|| ((from * unit_bits) as u64, ((to + 1) * unit_bits) as u64))
    }
}

/// Returns the bytes that a range of bits touches, and how many bits of the first and last one are outside.
fn touched(bytes: &[u8], from: u64, to: u64) -> (&[u8], u32, u32) {
    let (first, last) = ((from / 8) as usize, to.div_ceil(8) as usize);
    (
        &bytes[first..last],
        (from % 8) as u32,
        (last as u64 * 8 - to) as u32,
    )
}

/// Counts the set bits of a nonempty range.
fn count_ones(bytes: &[u8], from: u64, to: u64) -> u64 {
    let (bytes, before, behind) = touched(bytes, from, to);
    let (&first, &last) = (bytes.first().unwrap_or(&0), bytes.last().unwrap_or(&0));
    let outside =
        (first & !(0xff_u8 >> before)).count_ones() + (last & !(0xff_u8 << behind)).count_ones();
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u64 = words
        .iter()
        .map(|word| u64::from(u64::from_ne_bytes(*word).count_ones()))
        .sum();
    let in_rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    in_words + in_rest - u64::from(outside)
}

/// Returns the position of the first bit of a range that equals `wanted`; None if there is none.
fn find_bit(bytes: &[u8], from: u64, to: u64, wanted: bool) -> Option<u64> {
    let (touched, before, _) = touched(bytes, from, to);
    // Inverted if a zero is wanted, so that a one is searched for in any case.
    let flip = if wanted { 0 } else { 0xff };
    let (&first, rest) = touched.split_first()?;
    let first = (first ^ flip) & (0xff >> before);
    let first_at = from / 8 * 8;
    let found = if first != 0 {
        first_at + u64::from(first.leading_zeros())
    } else {
        let index = rest.iter().position(|byte| byte ^ flip != 0)?;
        first_at + 8 + index as u64 * 8 + u64::from((rest[index] ^ flip).leading_zeros())
    };
    (found < to).then_some(found)
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`
pub(super) static BITPOS: Command = Command::new("bitpos", Group::Bitmap, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.7",
        "key bit [start [end [BYTE | BIT]]]",
        "Finds the first set or clear bit of a string, or of a part of it.",
    )
    .complexity("O(N)")
    .history(&[("7.0.0", "New options: `BYTE` and `BIT`.")])
    .on_keys(bitpos);

fn bitpos(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = match args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = if args.len() > 3 { args.integer(3)? } else { 0 };
    let unit = BitcountUnit::parse(args, 5)?;
    let end = if args.len() > 4 {
        Some(args.integer(4)?)
    } else {
        None
    };
    let key = args.key(1);
    let position = match cx.at(&key).read_text(&key)? {
        // A missing key is treated as an endless string of zeros.
        None => {
            if wanted {
                -1
            } else {
                0
            }
        }
        Some(text) => first_bit(text, wanted, unit, start, end),
    };
    out.integer(position);
    Ok(())
}

fn first_bit(
    text: Text<'_>,
    wanted: bool,
    unit: BitcountUnit,
    start: i64,
    end: Option<i64>,
) -> i64 {
    let Some((from, to)) = unit.bits(text.len(), start, end.unwrap_or(-1)) else {
        return -1;
    };
    match text.with_bytes(|bytes| find_bit(bytes, from, to, wanted)) {
        Some(position) => position as i64,
        // If no end was given, the string is treated as if followed by zeros.
        None if !wanted && end.is_none() => to as i64,
        None => -1,
    }
}

/// `BITRANGEINTARRAY key start end [BYTE | BIT] [LIMIT count] [ZEROS]`
pub(super) static BITRANGEINTARRAY: Command = Command::new("bitrangeintarray", Group::Bitmap, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "8.12.0",
        "key start end [BYTE | BIT] [LIMIT count] [ZEROS]",
        "Returns the offsets of the set or clear bits in a part of a string.",
    )
    .complexity("O(N+M) for N bytes in the range and M offsets that are returned.")
    .takes_long()
    .on_keys(bitrangeintarray);

fn bitrangeintarray(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    let (mut unit, mut limit, mut wanted) = (None, None, true);
    let mut at = 4;
    while at < args.len() {
        if unit.is_none() && (args.is(at, "byte") || args.is(at, "bit")) {
            unit = Some(BitcountUnit::parse(args, at)?);
        } else if limit.is_none() && args.is(at, "limit") && at + 1 < args.len() {
            at += 1;
            let count = args.integer(at)?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            limit = Some(count.ok_or("ERR LIMIT should be greater than 0")?);
        } else if wanted && args.is(at, "zeros") {
            wanted = false;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let text = keyspace.read_text(&key)?;
    let bits = match (start, end) {
        // As in BITCOUNT: checked before the positions are made absolute.
        (..0, ..0) if start > end => None,
        _ => text.and_then(|text| {
            unit.unwrap_or(BitcountUnit::Byte)
                .bits(text.len(), start, end)
        }),
    };
    let (Some(text), Some((from, to))) = (text, bits) else {
        out.array(0);
        return Ok(());
    };
    let most = limit.unwrap_or(usize::MAX);
    let count = text.with_bytes(|bytes| {
        let ones = count_ones(bytes, from, to);
        let found = if wanted { ones } else { to - from - ones };
        usize::try_from(found).unwrap_or(usize::MAX).min(most)
    });
    let searched = usize::try_from((to - from) / 8).unwrap_or(usize::MAX);
    scales.weigh(count.saturating_add(searched / SEARCHED_PER_ELEMENT))?;
    out.array(count);
    text.with_bytes(|bytes| {
        offsets(bytes, (from, to), wanted)
            .take(count)
            .for_each(|offset| out.integer(offset as i64));
    });
    Ok(())
}

/// Searching this many bytes costs about as much as returning an element.
const SEARCHED_PER_ELEMENT: usize = 64;

/// Returns the positions of the bits in a nonempty range that equal `wanted`, in ascending order.
fn offsets(
    bytes: &[u8],
    (from, to): (u64, u64),
    wanted: bool,
) -> impl Iterator<Item = u64> + use<'_> {
    let (touched, before, behind) = touched(bytes, from, to);
    // Inverted if zeros are wanted, so that ones are searched for in any case.
    let flip = if wanted { 0 } else { 0xff };
    let (last, first_at) = (touched.len() - 1, from / 8 * 8);
    touched.iter().enumerate().flat_map(move |(index, byte)| {
        let mut left = byte ^ flip;
        if index == 0 {
            left &= 0xff >> before;
        }
        if index == last {
            left &= 0xff << behind;
        }
        let byte_at = first_at + index as u64 * 8;
        std::iter::from_fn(move || {
            let at = left.leading_zeros();
            left &= !0x80_u8.checked_shr(at)?;
            Some(byte_at + u64::from(at))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit(bytes: &[u8], at: u64) -> bool {
        bytes[at as usize / 8] & (0x80 >> (at % 8)) != 0
    }

    proptest! {
        #[test]
        fn counting_and_finding_agree_with_looking_at_each_bit(
            bytes in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 1..40),
            cuts: (u64, u64),
            wanted: bool,
        ) {
            let bits = bytes.len() as u64 * 8;
            let (x, y) = (cuts.0 % bits, cuts.1 % bits);
            let (from, to) = (x.min(y), x.max(y) + 1);
            let ones = (from..to).filter(|at| bit(&bytes, *at)).count() as u64;
            prop_assert_eq!(count_ones(&bytes, from, to), ones);
            let first = (from..to).find(|at| bit(&bytes, *at) == wanted);
            prop_assert_eq!(find_bit(&bytes, from, to, wanted), first);
            let all: Vec<u64> = (from..to).filter(|at| bit(&bytes, *at) == wanted).collect();
            prop_assert_eq!(offsets(&bytes, (from, to), wanted).collect::<Vec<u64>>(), all);
        }
    }
}
