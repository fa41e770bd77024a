//! Sketches: answers about many elements that are nearly right, in memory that does not grow with them.
//!
//! ```text
//! bloom      whether an element was added; grows by layers
//! cuckoo     the same, and elements can be removed
//! count_min  how often an element was added
//! top_k      which elements were added most often
//! t_digest   how numbers are distributed
//! ```
//!
//! They know neither keys nor replies. What a client asks for in memory is checked before anything is allocated:
//! planning a sketch says whether it may be made, building it then can not fail.

pub mod bloom;
pub mod count_min;
pub mod cuckoo;
mod cut;
pub mod t_digest;
pub mod top_k;

use std::ops::Range;

pub use cut::Cut;

/// A sketch takes no more than this: 2 GiB, more than any that is useful.
pub const BYTES_MAX: u64 = 1 << 31;

/// Counters whose number the client names take no more than this: as much as the longest string.
pub const COUNTERS_BYTES_MAX: u64 = 1 << 29;

/// Longest piece in which a sketch is handed out: small enough that copying it keeps no client waiting.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Whether so many bytes may be taken and are there to be had.
///
/// The answer is got by asking the allocator, which for sizes that matter maps pages and touches none.
pub(super) fn is_available(bytes: u64) -> bool {
    let Some(bytes) = usize::try_from(bytes).ok().filter(|_| bytes <= BYTES_MAX) else {
        return false;
    };
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// How a sketch is written down, whole or by the page, and read again.
pub trait Parts: Sized {
    /// What it is made of, small.
    fn head(&self) -> Vec<u8>;

    /// How many bytes [`Parts::data`] has.
    fn data_bytes(&self) -> u64;

    /// Some of [`Parts::data`].
    fn part(&self, bytes: Range<u64>) -> Vec<u8>;

    /// All that it counted.
    fn data(&self) -> Vec<u8> {
        self.part(0..self.data_bytes())
    }

    /// What it keeps of a cut.
    fn cut(&mut self) -> &mut Cut;

    /// The sketch of which somebody says that these are the parts; nothing if they do not fit together. No more memory
    /// is taken than they take themselves.
    fn from_parts(head: &[u8], data: &[u8]) -> Option<Self>;

    /// How many pages it is shown in.
    fn pages(&self) -> u64 {
        cut::pages(self.data_bytes())
    }

    /// What it counted by now is to be shown by [`Parts::show_cut`], whatever it counts from now on.
    fn begin_cut(&mut self) {
        cut::begin(self);
    }

    /// Shows so many pages of [`Parts::data`] as it was at the cut; true while more are left.
    fn show_cut(&mut self, count: usize, show: &mut dyn FnMut(&[u8])) -> bool {
        cut::show(self, count, show)
    }

    /// Bytes that were copied for the cut since this was asked last.
    fn take_copied(&mut self) -> usize {
        cut::take_copied(self)
    }

    /// Forgets the cut, and some `budget` pages that were kept for it; true while more are left.
    fn forget_cut(&mut self, budget: usize) -> bool {
        cut::forget(self, budget)
    }

    /// Bytes of [`Parts::data`] are about to change, or to go.
    #[inline]
    fn touch(&mut self, bytes: Range<u64>) {
        if self.cut().is_open() {
            cut::touch(self, bytes);
        }
    }
}

/// Takes numbers from the front of bytes that somebody else wrote.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
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

/// A part of several buffers that are numbered through as if they were one, the first byte being 1, as the cursors
/// of dumps count: the buffer and the position in it.
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

/// A copy of a dump's header with some bytes changed, or the end missing.
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
