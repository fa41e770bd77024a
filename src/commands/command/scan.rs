//! Shared code of SCAN and the walks over one collection (HSCAN, SSCAN, ZSCAN): cursors, options, replies.

use super::context::{Gather, ShardPlace};
use super::declaration::CommandResult;
use super::error::CommandError;
use super::{Args, Out};
use basalt_core::base::glob::{self, Case};

/// Elements that one call examines, unless COUNT says otherwise.
pub const COUNT_DEFAULT: usize = 10;

/// Parses a cursor like C's `strtoul`: empty text is 0, a sign is allowed and a negative number wraps around.
pub fn cursor(text: &[u8]) -> Result<u64, CommandError> {
    parse_cursor(text).ok_or_else(|| "ERR invalid cursor".into())
}

fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// Low bits of a cursor over shards that hold the position in the shard; the shard's index is in the bits above.
const POSITION_BITS: u32 = 48;

/// Returns the shard where a cursor continues.
pub fn shard_of(text: &[u8], shard_count: u16) -> Result<u16, CommandError> {
    // Any number is accepted: a cursor of a server with more shards continues in some shard.
    Ok((cursor(text)? >> POSITION_BITS) as u16 % shard_count)
}

/// Returns the position in a shard where a cursor continues: at its beginning, unless it is the cursor's own shard.
pub fn position_in(text: &[u8], shard: ShardPlace) -> Result<u64, CommandError> {
    let is_first = shard_of(text, shard.count)? == shard.index;
    Ok(match is_first {
        true => cursor(text)? & ((1 << POSITION_BITS) - 1),
        false => 0,
    })
}

/// Ends a visit after which the shard continues at `next`, 0 if it was walked to its end: the walk over all shards
/// pauses there, or before the next shard once `count` elements were examined.
pub fn end_visit(gather: &mut Gather, shard: ShardPlace, next: u64, count: u64) {
    let next_shard = u64::from(shard.index) + 1;
    if next != 0 {
        gather.cursor = u64::from(shard.index) << POSITION_BITS | next;
        gather.done = true;
    } else if next_shard < u64::from(shard.count) && gather.visited >= count {
        gather.cursor = next_shard << POSITION_BITS;
        gather.done = true;
    }
}

/// Writes the reply of a walk over shards: the cursor, and the elements.
pub fn merge(_: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    out.array(2);
    out.bulk(itoa::Buffer::new().format(gather.cursor).as_bytes());
    gather.reply(out);
    Ok(())
}

/// `[MATCH pattern] [COUNT count]`, and a word that omits values or scores
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    /// Pattern that elements must match; None: all elements match.
    pub pattern: Option<&'a [u8]>,
    /// Number of elements to examine.
    pub count: usize,
    /// Whether values of fields, or scores of members, are omitted.
    pub is_bare: bool,
}

impl<'a> Options<'a> {
    /// Parses the options from an argument on.
    pub fn parse(args: &Args<'a>, from: usize) -> Result<Options<'a>, CommandError> {
        Options::parse_with(args, from, None, |_| false)
    }

    /// Parses the options from an argument on, possibly including a word that omits values or scores, and other
    /// options with one argument each: `takes` is called with the position of an unknown word, and returns whether it
    /// is such an option.
    pub fn parse_with(
        args: &Args<'a>,
        from: usize,
        bare: Option<&str>,
        mut takes: impl FnMut(usize) -> bool,
    ) -> Result<Options<'a>, CommandError> {
        let mut options = Options {
            pattern: None,
            count: COUNT_DEFAULT,
            is_bare: false,
        };
        let mut at = from;
        while at < args.len() {
            if bare.is_some_and(|bare| args.is(at, bare)) {
                options.is_bare = true;
                at += 1;
                continue;
            }
            if at + 1 >= args.len() {
                return Err(CommandError::Syntax);
            }
            if args.is(at, "count") {
                let count = args.integer(at + 1)?;
                if count < 1 {
                    return Err(CommandError::Syntax);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            } else if args.is(at, "match") {
                let pattern = args.get(at + 1);
                options.pattern = (!glob::matches_all(pattern)).then_some(pattern);
            } else if !takes(at) {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Whether an element matches the pattern.
    pub fn fits(&self, element: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, element, Case::Sensitive))
    }
}

/// Writes the reply: the next cursor, and an array of `count` replies that were written to `elements`.
pub fn reply(next: u64, count: usize, elements: &mut Out, out: &mut Out) {
    out.array(2);
    out.bulk(itoa::Buffer::new().format(next).as_bytes());
    out.array(count);
    out.append(elements);
}

/// Writes the reply for a missing key.
pub fn reply_nothing(out: &mut Out) {
    out.array(2);
    out.bulk(b"0");
    out.array(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_strtoul_reads_them() {
        for (text, value) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("+5", Some(5)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", Some(u64::MAX)),
            ("-", None),
            ("+", None),
            (" 1", None),
            ("1 ", None),
            ("0x1", None),
        ] {
            assert_eq!(cursor(text.as_bytes()).ok(), value, "{text:?}");
        }
    }
}
