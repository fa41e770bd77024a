//! LZF: a small and fast compression, used by Redis for long strings in dumps.
//!
//! ```text
//! 000nnnnn                  n + 1 bytes follow as they are
//! nnnooooo oooooooo         n + 2 bytes from o + 1 back; n is 1 to 6
//! 111ooooo nnnnnnnn oooooooo   n + 9 bytes from o + 1 back
//! ```
//!
//! A copy may overlap with its own output, which repeats it. There is no header: the length before compression has
//! to be stored separately.

use std::ops::Range;

/// Maximum number of literal bytes in a run.
const RUN_MAX: usize = 32;
/// Maximum distance of a copy.
const DISTANCE_MAX: usize = 1 << 13;
const COPY_MIN: usize = 3;
const COPY_MAX: usize = 264;
/// Maximum bytes that one byte can represent: three bytes represent at most 264.
const RATIO_MAX: usize = 88;

/// Number of slots for past positions, in bits: as many slots as input bytes, within these bounds.
const SLOT_BITS_MIN: u32 = 6;
const SLOT_BITS_MAX: u32 = 14;
/// Up to this number of bits, the slots are on the stack.
const SLOT_BITS_SMALL: u32 = 9;
/// After 2 to the power of this many misses, one more byte is skipped at each further miss.
const MISSES_SHIFT: u32 = 6;

/// Number of bytes copied at once where there is space, as that takes less time than checking how many are needed.
const STRIDE: usize = 16;

/// The last position of three bytes, plus one; 0: none.
trait Seen: Copy {
    fn of(position: usize) -> Self;
    fn position(self) -> usize;
}

impl Seen for u16 {
    #[inline]
    fn of(position: usize) -> u16 {
        position as u16
    }

    #[inline]
    fn position(self) -> usize {
        usize::from(self)
    }
}

impl Seen for u32 {
    #[inline]
    fn of(position: usize) -> u32 {
        position as u32
    }

    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

/// Compresses bytes; None if the result would not be smaller.
#[must_use]
pub fn compress(input: &[u8]) -> Option<Vec<u8>> {
    if input.len() <= COPY_MIN || input.len() > u32::MAX as usize {
        return None;
    }
    let bits = usize::BITS - input.len().leading_zeros();
    let bits = bits.clamp(SLOT_BITS_MIN, SLOT_BITS_MAX);
    // Clearing all slots takes longer than compressing a short string.
    if bits <= SLOT_BITS_SMALL {
        let mut seen = [0_u16; 1 << SLOT_BITS_SMALL];
        compress_with(input, &mut seen[..1 << bits], bits)
    } else {
        compress_with(input, &mut vec![0_u32; 1 << bits], bits)
    }
}

/// Compresses with `bits` bits of slots, all of them empty.
fn compress_with<S: Seen>(input: &[u8], seen: &mut [S], bits: u32) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(input.len() / 2 + STRIDE);
    // Input bytes before this position have been written.
    let mut written = 0;
    let (mut at, mut misses) = (0, 0);
    while let Some(here) = word_at(input, at) {
        let slot = &mut seen[slot(here, bits)];
        let candidate = slot.position().checked_sub(1);
        *slot = S::of(at + 1);
        let is_same = |from: usize| {
            at - from <= DISTANCE_MAX
                && word_at(input, from).is_some_and(|one| (one ^ here) << 8 == 0)
        };
        let Some(from) = candidate.filter(|from| is_same(*from)) else {
            misses += 1;
            // Data without repetitions is examined less often.
            at += 1 + (misses >> MISSES_SHIFT);
            continue;
        };
        misses = 0;
        let len = same_len(&input[at..], &input[from..]);
        write_runs(input, written..at, &mut out);
        write_copy(at - from, len, &mut out);
        at += len;
        written = at;
    }
    // The output does not get smaller any more: the rest need not even be copied.
    if out.len() >= written {
        return None;
    }
    write_runs(input, written..input.len(), &mut out);
    (out.len() < input.len()).then_some(out)
}

/// Returns four bytes as a number, of which the first three count; None near the end.
#[inline]
fn word_at(input: &[u8], at: usize) -> Option<u32> {
    let four = input.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

#[inline]
fn slot(word: u32, bits: u32) -> usize {
    // Knuth's multiplier spreads the three bytes over the high bits.
    let hash = (word << 8 >> 8).wrapping_mul(2_654_435_761);
    (hash >> (u32::BITS - bits)) as usize
}

/// Returns how many bytes are equal, up to the longest copy.
#[inline]
fn same_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len()).min(COPY_MAX);
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += size_of::<u64>();
    }
    let rest = a[at..].iter().zip(&b[at..]);
    at + rest.take_while(|(a, b)| a == b).count()
}

#[inline]
fn write_runs(input: &[u8], range: Range<usize>, out: &mut Vec<u8>) {
    let len = range.len();
    if let Some(stride) = input[range.start..].first_chunk::<STRIDE>()
        && (1..=STRIDE).contains(&len)
    {
        out.push((len - 1) as u8);
        let end = out.len() + len;
        out.extend_from_slice(stride);
        out.truncate(end);
        return;
    }
    for run in input[range].chunks(RUN_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

fn write_copy(distance: usize, len: usize, out: &mut Vec<u8>) {
    let [low, high, ..] = (distance - 1).to_le_bytes();
    let len = len - 2;
    if len < 7 {
        out.extend_from_slice(&[(len as u8) << 5 | high, low]);
    } else {
        out.extend_from_slice(&[0xE0 | high, (len - 7) as u8, low]);
    }
}

/// Decompresses data that was `len` bytes long; None if the input is malformed or yields another length. Callers
/// check `len` against their own limit first; no more than that is allocated, and nothing for a length that so
/// little input cannot produce.
#[must_use]
pub fn decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > input.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut out = vec![0; len];
    // Output bytes before this position have been written.
    let mut at = 0;
    let mut left = input;
    while let Some((&control, rest)) = left.split_first() {
        if control < 0x20 {
            let count = usize::from(control) + 1;
            left = match (rest.first_chunk::<RUN_MAX>(), out[at..].first_chunk_mut()) {
                (Some(from), Some(to)) => {
                    *to = *from;
                    &rest[count..]
                }
                _ => {
                    let (run, behind) = rest.split_at_checked(count)?;
                    out.get_mut(at..at + count)?.copy_from_slice(run);
                    behind
                }
            };
            at += count;
        } else {
            let (more, rest) = match control >> 5 {
                7 => {
                    let (&more, rest) = rest.split_first()?;
                    (usize::from(more), rest)
                }
                _ => (0, rest),
            };
            let (&low, rest) = rest.split_first()?;
            let count = usize::from(control >> 5) + more + 2;
            let distance = usize::from(u16::from_be_bytes([control & 0x1F, low])) + 1;
            repeat(&mut out, at.checked_sub(distance)?, at, count)?;
            at += count;
            left = rest;
        }
    }
    (at == len).then_some(out)
}

/// Copies `count` bytes from `from` to `at`, possibly including bytes copied just before; None if the output has no
/// space for them.
#[inline]
fn repeat(out: &mut [u8], from: usize, at: usize, count: usize) -> Option<()> {
    let (done, room) = out.split_at_mut(at);
    let period = &done[from..];
    if count <= STRIDE
        && let Some(stride) = period.first_chunk::<STRIDE>()
        && let Some(to) = room.first_chunk_mut()
    {
        *to = *stride;
        return Some(());
    }
    let room = room.get_mut(..count)?;
    let first = count.min(period.len());
    room[..first].copy_from_slice(&period[..first]);
    // Each round can copy all bytes between, so the amount doubles.
    let mut copied = first;
    while copied < count {
        let part = copied.min(count - copied);
        room.copy_within(..part, copied);
        copied += part;
    }
    Some(())
}

#[cfg(test)]
mod tests;
