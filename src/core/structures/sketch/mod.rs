//! Sketches: approximate statistics of many elements, in memory that does not grow with them.
//!
//! ```text
//! bloom      whether an element was added; grows by layers
//! cuckoo     the same, and elements can be removed
//! count_min  how often an element was added
//! top_k      which elements were added most often
//! t_digest   the distribution of numbers
//! ```
//!
//! The module knows nothing of keys and replies. A client's request for memory is checked before anything is
//! allocated: planning a sketch tells whether it may be made, building it then cannot fail.

pub mod bloom;
pub mod count_min;
pub mod cuckoo;
mod cut;
pub mod t_digest;
pub mod top_k;

use std::ops::Range;

pub use cut::SketchCut;

/// Maximum size of a sketch: 2 GiB, more than any useful one needs.
pub const BYTES_MAX: u64 = 1 << 31;

/// Maximum size of counters whose number is chosen by the client: the maximum length of a string.
pub const COUNTERS_BYTES_MAX: u64 = 1 << 29;

/// Maximum size of a piece of a dump: small enough that copying it delays no client.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// True if a sketch may have this many bytes and the system can provide them.
///
/// Tested by an allocation, which for relevant sizes maps pages and touches none.
pub(super) fn is_available(bytes: u64) -> bool {
    let Some(bytes) = usize::try_from(bytes).ok().filter(|_| bytes <= BYTES_MAX) else {
        return false;
    };
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// The serialization of a sketch, whole or by the page, and its inverse.
pub trait SketchCodec: Sized {
    /// Returns the sketch's encoded parameters, which are small.
    fn head(&self) -> Vec<u8>;

    /// Returns the number of bytes of [`SketchCodec::data`].
    fn data_bytes(&self) -> u64;

    /// Returns a range of [`SketchCodec::data`].
    fn part(&self, bytes: Range<u64>) -> Vec<u8>;

    /// Returns all the sketch's data, encoded.
    fn data(&self) -> Vec<u8> {
        self.part(0..self.data_bytes())
    }

    /// Returns the sketch's progress in a cut.
    fn cut(&mut self) -> &mut SketchCut;

    /// Creates a sketch from parts that come from outside; None if they do not fit together. Allocates no more memory
    /// than the parts themselves take.
    fn from_parts(head: &[u8], data: &[u8]) -> Option<Self>;

    /// Returns the number of pages in which the sketch is saved.
    fn pages(&self) -> u64 {
        cut::pages(self.data_bytes())
    }

    /// Makes a cut: [`SketchCodec::show_cut`] will return the current data, regardless of later changes.
    fn begin_cut(&mut self) {
        cut::begin(self);
    }

    /// Passes `count` pages of [`SketchCodec::data`] in their state at the cut to `show`. Returns true while more are
    /// left.
    fn show_cut(&mut self, count: usize, show: &mut dyn FnMut(&[u8])) -> bool {
        cut::show(self, count, show)
    }

    /// Returns the bytes copied for the cut since the last call.
    fn take_copied(&mut self) -> usize {
        cut::take_copied(self)
    }

    /// Drops the cut, and about `budget` pages that were kept for it. Returns true while more are left.
    fn forget_cut(&mut self, budget: usize) -> bool {
        cut::forget(self, budget)
    }

    /// Announces that bytes of [`SketchCodec::data`] will be changed, or removed.
    #[inline]
    fn touch(&mut self, bytes: Range<u64>) {
        if self.cut().is_open() {
            cut::touch(self, bytes);
        }
    }
}

/// Reads numbers from the front of untrusted bytes.
struct SketchDecoder<'a> {
    rest: &'a [u8],
}

impl SketchDecoder<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }
}

/// Returns the buffer and the position in it for a cursor of a dump, which numbers the bytes of several buffers
/// consecutively, beginning with 1.
fn locate(lengths: impl Iterator<Item = usize>, cursor: u64) -> Option<(usize, usize)> {
    let mut offset = cursor.checked_sub(1)?;
    for (index, len) in lengths.enumerate() {
        if offset < len as u64 {
            return Some((index, offset as usize));
        }
        offset -= len as u64;
    }
    None
}

/// Returns a copy of a dump's header with some bytes changed, or the end missing.
#[cfg(test)]
fn damaged(header: &[u8], random: &mut crate::base::random::Random) -> Vec<u8> {
    let mut damaged = header.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.index(damaged.len());
        damaged[at] = [0, 1, 0x7f, 0xff, random.next_u64() as u8][random.index(5)];
    }
    if random.below(8) == 0 {
        damaged.truncate(random.index(damaged.len() + 1));
    }
    damaged
}
