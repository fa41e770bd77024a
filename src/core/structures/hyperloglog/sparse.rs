//! The sparse encoding: runs of equal registers, for sketches with few elements.
//!
//! ```text
//! 00nnnnnn             n + 1 registers at zero, 1 to 64
//! 01nnnnnn nnnnnnnn    n + 1 registers at zero, 1 to 16,384, high bits first
//! 1vvvvvnn             n + 1 registers, 1 to 4, at v + 1, 1 to 32
//! ```
//!
//! Runs are split where a register changes, and merged again only nearby and only as far as in Redis, so that the
//! same elements in the same order give the same bytes. The total length of all runs must be the number of
//! registers; bytes from clients may violate that, and nothing here trusts them.

use super::estimate::Histogram;
use super::{Corrupt, HEADER_BYTES, REGISTERS};
use crate::structures::splice::Splice;

/// The runs of an empty sketch.
pub(super) const EMPTY: [u8; 2] = [0x7f, 0xff];

/// The highest value that a run can store.
const VALUE_MAX: u8 = 32;

/// Maximum length of a run of zeros in one byte; longer runs take two bytes.
const SHORT_ZEROS_MAX: usize = 64;

/// Maximum length of a run of a value.
const VALUES_MAX: usize = 4;

/// Number of runs examined for neighbors of the same value to be merged.
const JOIN_LOOKS: usize = 5;

/// One run of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRun {
    /// The value of its registers.
    pub value: u8,
    /// Number of registers in the run.
    pub len: usize,
    /// Number of encoded bytes.
    pub bytes: usize,
}

/// Returns the run at a position; `None` at the end.
#[inline]
fn run_at(runs: &[u8], at: usize) -> Option<RegisterRun> {
    let (bytes, len) = extent_at(runs, at)?;
    let value = match runs[at] {
        first @ 0x80.. => (first >> 2 & 0x1f) + 1,
        _ => 0,
    };
    Some(RegisterRun { value, len, bytes })
}

/// Returns one run after the other, without a check.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = RegisterRun> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let run = run_at(bytes, at)?;
        at += run.bytes;
        Some(run)
    })
}

/// Counts how many registers have each value.
pub(super) fn count_values(bytes: &[u8], counts: &mut Histogram) -> Result<(), Corrupt> {
    let mut total = 0;
    for run in runs(bytes) {
        counts.add_run(run.value, run.len);
        total += run.len;
    }
    if total == REGISTERS {
        Ok(())
    } else {
        Err(Corrupt)
    }
}

/// Raises bytes to at least these registers. On an error some may be raised already.
pub(super) fn merge(bytes: &[u8], into: &mut [u8; REGISTERS]) -> Result<(), Corrupt> {
    let mut first = 0;
    for run in runs(bytes) {
        let registers = into.get_mut(first..first + run.len).ok_or(Corrupt)?;
        if run.value > 0 {
            for register in registers {
                *register = (*register).max(run.value);
            }
        }
        first += run.len;
    }
    if first == REGISTERS {
        Ok(())
    } else {
        Err(Corrupt)
    }
}

/// The run that covers a register: the run, its position, its first register, and the position of the run before it.
struct CoveringRun {
    run: RegisterRun,
    at: usize,
    first: usize,
    before: Option<Hint>,
}

/// Number of registers of a one-byte run, by that byte; 0 for the first byte of a two-byte run.
const SHORT_LENS: [u8; 256] = {
    let mut lens = [0; 256];
    let mut byte = 0;
    while byte < lens.len() {
        lens[byte] = match byte >> 6 {
            0 => byte as u8 + 1,
            1 => 0,
            _ => (byte % VALUES_MAX) as u8 + 1,
        };
        byte += 1;
    }
    lens
};

/// Returns bytes and registers of the run at a position, without a branch, as the kinds of runs are unpredictable.
/// A missing second byte of a run counts as zero.
#[inline(always)]
fn extent_at(runs: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = *runs.get(at)?;
    let is_long = usize::from(first >> 6 == 1);
    let second = runs.get(at + is_long).copied().unwrap_or(0);
    let long = (usize::from(first & 0x3f) << 8 | usize::from(second)) + 1;
    let len = usize::from(SHORT_LENS[usize::from(first)]) + long * is_long;
    Some((1 + is_long, len))
}

fn find(runs: &[u8], hint: Hint, index: usize) -> Option<CoveringRun> {
    let Hint { mut at, mut first } = hint;
    let mut before = hint;
    while let Some((bytes, len)) = extent_at(runs, at) {
        if index < first + len {
            return Some(CoveringRun {
                run: run_at(runs, at)?,
                at,
                first,
                before: (at > hint.at).then_some(before),
            });
        }
        before = Hint { at, first };
        at += bytes;
        first += len;
    }
    None
}

/// A position at which to begin the search for a register with a higher index than the previous one.
#[derive(Clone, Copy, Default)]
pub(super) struct Hint {
    at: usize,
    first: usize,
}

/// The result of raising a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterUpdate {
    /// The register already had at least this value.
    Kept,
    /// The register was raised.
    Raised,
    /// Nothing changed: the sketch must become dense first.
    NeedsDense,
}

/// Raises one register of a sketch to a value if it is lower.
pub(super) fn raise<B: Splice>(
    buffer: &mut B,
    hint: &mut Hint,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<RegisterUpdate, Corrupt> {
    if value > VALUE_MAX {
        return Ok(RegisterUpdate::NeedsDense);
    }
    let bytes = buffer.bytes();
    let runs = bytes.get(HEADER_BYTES..).ok_or(Corrupt)?;
    // The run at the hint may be the wanted one; then the position of the run before it must be known.
    let found = find(runs, *hint, index).filter(|found| found.before.is_some());
    let found = found.or_else(|| find(runs, Hint::default(), index));
    let CoveringRun {
        run,
        at,
        first,
        before,
    } = found.ok_or(Corrupt)?;
    if let Some(before) = before {
        *hint = before;
    }
    if run.value >= value {
        return Ok(RegisterUpdate::Kept);
    }
    if at + run.bytes > runs.len() {
        return Err(Corrupt);
    }
    let mut parts = SparseReplacement::default();
    parts.run(run.value, index - first);
    parts.run(value, 1);
    parts.run(run.value, first + run.len - 1 - index);
    let len_after = bytes.len() - run.bytes + parts.len;
    if parts.len > run.bytes && len_after > bytes_max {
        return Ok(RegisterUpdate::NeedsDense);
    }
    buffer
        .splice(HEADER_BYTES + at, run.bytes, parts.len)
        .copy_from_slice(&parts.bytes[..parts.len]);
    join(buffer, before.map_or(at, |before| before.at));
    Ok(RegisterUpdate::Raised)
}

/// The runs that replace a run: what is left of it before and after the register, and the register.
#[derive(Default)]
struct SparseReplacement {
    bytes: [u8; 5],
    len: usize,
}

impl SparseReplacement {
    fn run(&mut self, value: u8, len: usize) {
        if len == 0 {
            return;
        }
        if value > 0 {
            self.push(0x80 | (value - 1) << 2 | (len - 1) as u8);
        } else if len <= SHORT_ZEROS_MAX {
            self.push((len - 1) as u8);
        } else {
            self.push(0x40 | ((len - 1) >> 8) as u8);
            self.push((len - 1) as u8);
        }
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

/// Merges neighbors of the same value, starting with the run at `at`.
fn join<B: Splice>(buffer: &mut B, mut at: usize) {
    for _ in 0..JOIN_LOOKS {
        let runs = &buffer.bytes()[HEADER_BYTES..];
        let Some(run) = run_at(runs, at) else {
            return;
        };
        let next = run_at(runs, at + run.bytes);
        let joined = next.filter(|next| {
            run.value > 0 && run.value == next.value && run.len + next.len <= VALUES_MAX
        });
        match joined {
            Some(next) => {
                let mut parts = SparseReplacement::default();
                parts.run(run.value, run.len + next.len);
                // The merged run may still have a neighbor, so it is examined again.
                buffer.splice(HEADER_BYTES + at, 2, 1)[0] = parts.bytes[0];
            }
            None => at += run.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(runs: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(runs);
        bytes
    }

    #[track_caller]
    fn check(runs: &[u8], index: usize, value: u8, after: &[u8]) {
        let mut bytes = sketch(runs);
        assert_eq!(
            raise(&mut bytes, &mut Hint::default(), index, value, 3000),
            Ok(RegisterUpdate::Raised)
        );
        assert_eq!(&bytes[HEADER_BYTES..], after);
    }

    const fn value(value: u8, len: u8) -> u8 {
        0x80 | (value - 1) << 2 | (len - 1)
    }

    #[test]
    fn a_run_is_split_where_a_register_rises() {
        check(&EMPTY, 0, 3, &[value(3, 1), 0x7f, 0xfe]);
        check(&EMPTY, 16_383, 3, &[0x7f, 0xfe, value(3, 1)]);
        check(&EMPTY, 10, 1, &[9, value(1, 1), 0x7f, 0xf4]);
        check(&EMPTY, 64, 1, &[63, value(1, 1), 0x7f, 0xbe]);
        check(&EMPTY, 65, 1, &[0x40, 64, value(1, 1), 0x7f, 0xbd]);
        check(
            &[value(2, 3), 0x7f, 0xfc],
            1,
            5,
            &[value(2, 1), value(5, 1), value(2, 1), 0x7f, 0xfc],
        );
        check(&[0, 0x7f, 0xfe], 0, 4, &[value(4, 1), 0x7f, 0xfe]);
    }

    #[test]
    fn neighbours_of_the_same_value_are_joined() {
        check(&[value(2, 2), 0x7f, 0xfd], 2, 2, &[value(2, 3), 0x7f, 0xfc]);
        check(
            &[value(2, 2), 0, value(2, 1), 0x7f, 0xfb],
            2,
            2,
            &[value(2, 4), 0x7f, 0xfb],
        );
        check(
            &[value(2, 4), 0x7f, 0xfb],
            4,
            2,
            &[value(2, 4), value(2, 1), 0x7f, 0xfa],
        );
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        for (value, bytes_max) in [(33, 3000), (1, HEADER_BYTES + 4)] {
            let mut bytes = sketch(&EMPTY);
            let raised = raise(&mut bytes, &mut Hint::default(), 100, value, bytes_max);
            assert_eq!(raised, Ok(RegisterUpdate::NeedsDense));
            assert_eq!(bytes, sketch(&EMPTY));
        }
    }
}
