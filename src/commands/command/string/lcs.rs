//! LCS: the longest common subsequence of two strings.
//!
//! The classic table: `lengths[i][j]` is the length of the longest common subsequence of the first `i` bytes of one
//! string and the first `j` bytes of the other. Walking back from the far corner spells the subsequence, last byte
//! first. The choice among several equally long ones, and their division into ranges, follow Redis: on a mismatch the
//! walk goes up only if that is strictly better. The length alone needs only two rows of the table; yet the same
//! limit on memory applies to both, so that the error does not depend on the options.

use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]`
pub(super) static LCS: Command = Command::new("lcs", Group::String, -3)
    .reads(&[KeySpec::range(1, 1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .doc(
        "7.0.0",
        "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        "Returns the longest common subsequence of two strings, its length or its ranges.",
    )
    .complexity("O(N*M), N and M being the lengths of the strings.")
    .takes_long()
    .on_keys(lcs);

#[derive(Clone, Copy, Debug, Default)]
struct LcsOptions {
    length: bool,
    ranges: bool,
    range_len_min: usize,
    with_range_len: bool,
}

impl LcsOptions {
    fn parse(args: &Args<'_>) -> Result<LcsOptions, CommandError> {
        let mut options = LcsOptions::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "idx") {
                options.ranges = true;
            } else if args.is(at, "len") {
                options.length = true;
            } else if args.is(at, "withmatchlen") {
                options.with_range_len = true;
            } else if args.is(at, "minmatchlen") && at + 1 < args.len() {
                at += 1;
                options.range_len_min = usize::try_from(args.integer(at)?).unwrap_or(0);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if options.length && options.ranges {
            return Err("ERR If you want both the length and indexes, please just use IDX.".into());
        }
        Ok(options)
    }
}

fn lcs(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut texts = [Vec::new(), Vec::new()];
    let mut wrong_type = false;
    for (text, routed) in texts.iter_mut().zip(args.keys()) {
        match cx.at_routed(routed).read_text(&args.key_of(routed)) {
            Ok(Some(found)) => *text = found.to_vec(),
            Ok(None) => {}
            Err(_) => wrong_type = true,
        }
    }
    if wrong_type {
        return Err("ERR The specified keys must contain string values".into());
    }
    let options = LcsOptions::parse(args)?;
    let [a, b] = &texts;
    if a.len().max(b.len()) >= u32::MAX as usize - 1 {
        return Err("ERR String too long for LCS".into());
    }
    let cells = (a.len() as u64 + 1) * (b.len() as u64 + 1);
    if cells.saturating_mul(size_of::<u32>() as u64) > cx.config.proto_max_bulk_len {
        return Err(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into(),
        );
    }
    cx.scales()
        .weigh_bytes(usize::try_from(cells / 4).unwrap_or(usize::MAX))?;
    if options.length {
        out.integer(i64::from(length_only(a, b)));
        return Ok(());
    }
    let Some(table) = LcsTable::build(a, b) else {
        return Err("ERR Insufficient memory, failed allocating transient memory for LCS".into());
    };
    if options.ranges {
        reply_ranges(&table, options, out);
    } else {
        out.bulk(&table.subsequence());
    }
    Ok(())
}

/// Fills a row of the table; `above` is the row before.
fn fill_row(row: &mut [u32], above: &[u32], byte: u8, b: &[u8]) {
    row[0] = 0;
    for (j, other) in b.iter().enumerate() {
        row[j + 1] = if byte == *other {
            above[j] + 1
        } else {
            row[j].max(above[j + 1])
        };
    }
}

fn length_only(a: &[u8], b: &[u8]) -> u32 {
    let (mut above, mut row) = (vec![0; b.len() + 1], vec![0; b.len() + 1]);
    for byte in a {
        fill_row(&mut row, &above, *byte, b);
        std::mem::swap(&mut above, &mut row);
    }
    above[b.len()]
}

struct LcsTable<'a> {
    a: &'a [u8],
    b: &'a [u8],
    lengths: Vec<u32>,
}

impl<'a> LcsTable<'a> {
    /// Builds the table; `None` if there is not enough memory.
    fn build(a: &'a [u8], b: &'a [u8]) -> Option<LcsTable<'a>> {
        let width = b.len() + 1;
        let mut lengths = Vec::new();
        lengths.try_reserve_exact((a.len() + 1) * width).ok()?;
        lengths.resize((a.len() + 1) * width, 0);
        for (i, byte) in a.iter().enumerate() {
            let (before, row) = lengths.split_at_mut((i + 1) * width);
            fill_row(&mut row[..width], &before[i * width..], *byte, b);
        }
        Some(LcsTable { a, b, lengths })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * (self.b.len() + 1) + j]
    }

    fn length(&self) -> u32 {
        self.at(self.a.len(), self.b.len())
    }

    /// Returns the matching positions in both strings, the last one first.
    fn matches(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        std::iter::from_fn(move || {
            while i > 0 && j > 0 {
                if self.a[i - 1] == self.b[j - 1] {
                    i -= 1;
                    j -= 1;
                    return Some((i, j));
                }
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
            None
        })
    }

    fn subsequence(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.matches().map(|(i, _)| self.a[i]).collect();
        bytes.reverse();
        bytes
    }
}

/// Consecutive matching positions in both strings.
#[derive(Clone, Copy)]
struct LcsMatch {
    a: usize,
    b: usize,
    len: usize,
}

fn reply_ranges(table: &LcsTable<'_>, options: LcsOptions, out: &mut Out) {
    out.map(2);
    out.bulk(b"matches");
    let mark = out.later();
    let mut count = 0;
    let mut emit = |range: LcsMatch, out: &mut Out| {
        if range.len < options.range_len_min {
            return;
        }
        count += 1;
        out.array(if options.with_range_len { 3 } else { 2 });
        for start in [range.a, range.b] {
            out.array(2);
            out.integer(start as i64);
            out.integer((start + range.len - 1) as i64);
        }
        if options.with_range_len {
            out.integer(range.len as i64);
        }
    };
    let mut current: Option<LcsMatch> = None;
    for (a, b) in table.matches() {
        current = Some(match current {
            Some(range) if (range.a, range.b) == (a + 1, b + 1) => LcsMatch {
                a,
                b,
                len: range.len + 1,
            },
            before => {
                if let Some(range) = before {
                    emit(range, out);
                }
                LcsMatch { a, b, len: 1 }
            }
        });
    }
    if let Some(range) = current {
        emit(range, out);
    }
    out.close_array(mark, count);
    out.bulk(b"len");
    out.integer(i64::from(table.length()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    /// Computes the length by plain recursion.
    fn naive(a: &[u8], b: &[u8]) -> u32 {
        match (a, b) {
            ([], _) | (_, []) => 0,
            ([x, a_rest @ ..], [y, b_rest @ ..]) => {
                if x == y {
                    naive(a_rest, b_rest) + 1
                } else {
                    naive(a_rest, b).max(naive(a, b_rest))
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_a_longest_common_subsequence(a in "[abc]{0,9}", b in "[abc]{0,9}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let table = LcsTable::build(a, b).expect("small");
            let found = table.subsequence();
            prop_assert!(is_subsequence(&found, a) && is_subsequence(&found, b));
            prop_assert_eq!(found.len() as u32, naive(a, b));
            prop_assert_eq!(table.length(), naive(a, b));
            prop_assert_eq!(length_only(a, b), naive(a, b));
        }
    }
}
