//! HyperLogLog: estimates the number of different elements, in at most 12 KiB, with a standard error of 0.81 %.
//!
//! An element's hash selects one of 16,384 registers by its low 14 bits; the register keeps the longest run of
//! zeros, plus one, at the start of the other 50 bits of any element. The sketch is a string of bytes, the same as
//! Redis's, byte for byte, because clients copy such strings between servers:
//!
//! ```text
//! 0       4          5        8                   16
//! "HYLL"  encoding   unused   cached cardinality  registers
//! ```
//!
//! The cached cardinality is little-endian; its highest bit marks it as out of date. Encoding 0 is [`dense`], 1 is
//! [`sparse`]. A string written by a client may contain anything: a [`Sketch`] has a valid header, and the rest is
//! checked as it is read. The module knows nothing of keys.

pub mod dense;
pub mod estimate;
pub mod hash;
pub mod self_test;
pub mod sparse;
#[cfg(test)]
mod tests;

use crate::structures::splice::Splice;
use sparse::RegisterUpdate;

/// Low bits of a hash that select a register.
const INDEX_BITS: u32 = 14;

/// Number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;

/// The highest value that a hash can give to a register.
const VALUE_MAX: u8 = (64 - INDEX_BITS + 1) as u8;

/// Bytes before the registers.
pub const HEADER_BYTES: usize = 16;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const CACHE_AT: usize = 8;
const CACHE_FLAG_AT: usize = 15;
const CACHE_STALE: u8 = 0x80;

/// Error: the registers are invalid, although the header is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The encoding of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Each register takes six bits.
    Dense,
    /// Runs of equal registers are stored.
    Sparse,
}

/// All registers, one byte each: the target for merging several sketches.
pub struct Registers(Box<[u8; REGISTERS]>);

impl Registers {
    /// Returns the registers of an empty sketch.
    pub fn new() -> Registers {
        Registers(Box::new([0; REGISTERS]))
    }

    /// Returns all values in order.
    pub fn values(&self) -> &[u8; REGISTERS] {
        &self.0
    }

    /// Adds an element.
    pub fn add(&mut self, element: &[u8]) {
        let (index, value) = hash::register_of(element);
        let register = &mut self.0[index];
        *register = value.max(*register);
    }

    /// Returns the estimated cardinality of all that was merged.
    pub fn count(&self) -> u64 {
        let mut counts = estimate::Histogram::new();
        counts.add_all(&self.0[..]);
        counts.cardinality()
    }
}

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

/// A string with the header of a sketch.
#[derive(Clone, Copy)]
pub struct Sketch<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
}

impl<'a> Sketch<'a> {
    /// Wraps a string; `None` if its header is not that of a sketch.
    pub fn of(bytes: &'a [u8]) -> Option<Sketch<'a>> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        if !header.starts_with(MAGIC) {
            return None;
        }
        let encoding = match header[4] {
            DENSE if bytes.len() == HEADER_BYTES + dense::BYTES => Encoding::Dense,
            SPARSE => Encoding::Sparse,
            _ => return None,
        };
        Some(Sketch { bytes, encoding })
    }

    /// Returns the encoding of the sketch's registers.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the bytes after the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or(&[])
    }

    /// Returns the cardinality that was last computed, unless the registers changed since.
    pub fn cached(&self) -> Option<u64> {
        let cache = self.bytes.get(CACHE_AT..)?.first_chunk::<8>()?;
        let count = u64::from_le_bytes(*cache);
        (count >> 63 == 0).then_some(count)
    }

    /// Computes the cardinality.
    pub fn count(&self) -> Result<u64, Corrupt> {
        let mut counts = estimate::Histogram::new();
        match self.encoding {
            Encoding::Dense => dense::count_values(self.body(), &mut counts),
            Encoding::Sparse => sparse::count_values(self.body(), &mut counts)?,
        }
        Ok(counts.cardinality())
    }

    /// Raises `registers` to at least those of the sketch.
    pub fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        match self.encoding {
            Encoding::Dense => dense::merge(self.body(), &mut registers.0),
            Encoding::Sparse => sparse::merge(self.body(), &mut registers.0)?,
        }
        Ok(())
    }
}

/// Creates an empty sketch: sparse, one run of zeros.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = SPARSE;
    bytes.extend_from_slice(&sparse::EMPTY);
    bytes
}

/// Adds elements to a sketch, which turns dense when its sparse form would take more than `sparse_bytes_max`.
/// Returns whether any register changed.
///
/// On an error the sketch stays unchanged.
pub fn add<'e, B: Splice>(
    buffer: &mut B,
    elements: impl ExactSizeIterator<Item = &'e [u8]>,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    // Only a corrupt sketch causes an error, and only here a later element can fail after an earlier one changed
    // something.
    let mut before = None;
    let may_need_undo = elements.len() > 1;
    let mut changed = false;
    for element in elements {
        let (index, value) = hash::register_of(element);
        if may_need_undo && before.is_none() && is_sparse(buffer.bytes()) {
            before = Some(buffer.bytes().to_vec());
        }
        match raise(buffer, index, value, sparse_bytes_max) {
            Ok(raised) => changed |= raised,
            Err(Corrupt) => {
                if let (Some(before), true) = (before, changed) {
                    let len = buffer.bytes().len();
                    let room = buffer.splice(0, len, before.len());
                    room.copy_from_slice(&before);
                }
                return Err(Corrupt);
            }
        }
    }
    Ok(changed)
}

/// Raises every register of a sketch to at least the given one, all at once in a dense sketch; in a sparse sketch one
/// by one, as if elements with these values had been added in the order of the registers.
pub fn raise_all<B: Splice>(
    buffer: &mut B,
    registers: &Registers,
    sparse_bytes_max: usize,
) -> Result<(), Corrupt> {
    let mut hint = sparse::Hint::default();
    for (index, &value) in registers.0.iter().enumerate() {
        if value == 0 {
            continue;
        }
        if is_sparse(buffer.bytes()) {
            match sparse::raise(buffer, &mut hint, index, value, sparse_bytes_max)? {
                RegisterUpdate::Kept | RegisterUpdate::Raised => continue,
                RegisterUpdate::NeedsDense => to_dense(buffer)?,
            }
        }
        let body = buffer.bytes_mut().get_mut(HEADER_BYTES..);
        dense::raise_all(body.unwrap_or_default(), &registers.0);
        break;
    }
    forget_cached(buffer.bytes_mut());
    Ok(())
}

/// Raises one register. Returns whether it was lower.
fn raise<B: Splice>(
    buffer: &mut B,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    if is_sparse(buffer.bytes()) {
        let mut hint = sparse::Hint::default();
        match sparse::raise(buffer, &mut hint, index, value, sparse_bytes_max)? {
            RegisterUpdate::Kept => return Ok(false),
            RegisterUpdate::Raised => {
                forget_cached(buffer.bytes_mut());
                return Ok(true);
            }
            RegisterUpdate::NeedsDense => to_dense(buffer)?,
        }
    }
    let bytes = buffer.bytes_mut();
    let registers = bytes.get_mut(HEADER_BYTES..).ok_or(Corrupt)?;
    let raised = dense::raise(registers, index, value);
    if raised {
        forget_cached(bytes);
    }
    Ok(raised)
}

/// Converts a sparse sketch to the dense form; a dense one stays unchanged. The header stays except for the
/// encoding.
pub fn to_dense<B: Splice>(buffer: &mut B) -> Result<(), Corrupt> {
    if !is_sparse(buffer.bytes()) {
        return Ok(());
    }
    let mut registers = Registers::new();
    sparse::merge(body(buffer.bytes()), &mut registers.0)?;
    let old_bytes = buffer.bytes().len().saturating_sub(HEADER_BYTES);
    let room = buffer.splice(HEADER_BYTES, old_bytes, dense::BYTES);
    room.fill(0);
    dense::raise_all(room, &registers.0);
    buffer.bytes_mut()[4] = DENSE;
    Ok(())
}

fn is_sparse(bytes: &[u8]) -> bool {
    bytes.get(4) == Some(&SPARSE)
}

fn body(bytes: &[u8]) -> &[u8] {
    bytes.get(HEADER_BYTES..).unwrap_or(&[])
}

/// Stores the cardinality that was just computed.
pub fn set_cached(bytes: &mut [u8], count: u64) {
    if let Some(cache) = bytes.get_mut(CACHE_AT..HEADER_BYTES) {
        cache.copy_from_slice(&count.to_le_bytes());
    }
}

/// Marks the cached cardinality as out of date, so that it is computed anew.
pub fn forget_cached(bytes: &mut [u8]) {
    if let Some(flag) = bytes.get_mut(CACHE_FLAG_AT) {
        *flag |= CACHE_STALE;
    }
}
