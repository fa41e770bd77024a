//! Elements one after the other in one run of bytes: small lists, hashes, sets and sorted sets.
//!
//! ```text
//! total u32 | count u16 | element … | 0xFF
//! ```
//!
//! The format is that of Redis's listpack, byte for byte, so that a small collection is dumped and restored by
//! copying. Total counts all bytes. Count is 65535 if it is not known. Both are little-endian. Elements are
//! described in [`encoding`].
//!
//! An element is an integer or bytes, which is determined by its text alone: the decimal text of an `i64` in its one
//! canonical form is an integer. A listpack knows nothing of fields and scores, and its bytes may be in a vector or
//! in an entry, see [`Splice`].
//!
//! Invariants: a [`Listpack`] holds bytes that [`Listpack::check`] accepts, as it is made from bytes that
//! [`ListpackMut`] wrote or that were checked. Reading never leaves the slice: on invalid bytes, functions panic or
//! return wrong elements, but do nothing worse.
//!
//! [`Splice`]: crate::structures::splice::Splice

mod edit;
mod encoding;
#[cfg(test)]
mod tests;

pub use edit::ListpackMut;

use std::iter::FusedIterator;

use crate::base::number;
use encoding::{END, Encoded};

/// A listpack without elements.
pub const EMPTY: [u8; 7] = [7, 0, 0, 0, 0, 0, END];

/// Maximum bytes of a listpack; callers check [`Listpack::fits`] and choose another encoding if the elements do not
/// fit.
pub const BYTES_MAX: usize = 1 << 30;

const HEAD_BYTES: usize = 6;
const COUNT_UNKNOWN: u16 = u16::MAX;

/// One element of a listpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element<'a> {
    /// An integer, from text like `-12`.
    Integer(i64),
    /// Any other bytes.
    Bytes(&'a [u8]),
}

/// Position of an element. Valid until the listpack changes at or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(u32);

/// A view of a listpack.
#[derive(Clone, Copy, Debug)]
pub struct Listpack<'a> {
    bytes: &'a [u8],
}

/// Returns the bytes that a text takes as an element of a listpack.
#[must_use]
pub fn encoded_len(bytes: &[u8]) -> usize {
    Element::of(bytes).encoded_len()
}

impl<'a> Element<'a> {
    /// Returns a text as an element: as an integer if it is the canonical text of one.
    #[inline]
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        number::parse_i64(text).map_or(Element::Bytes(text), Element::Integer)
    }

    /// Returns the length of the text.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Element::Integer(value) => integer_text_len(value),
            Element::Bytes(bytes) => bytes.len(),
        }
    }

    /// True if the text is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, Element::Bytes([]))
    }

    /// Passes the text to `show`.
    #[inline]
    pub fn with_bytes<R>(self, show: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Element::Integer(value) => show(itoa::Buffer::new().format(value).as_bytes()),
            Element::Bytes(bytes) => show(bytes),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// True if the element has this text.
    #[inline]
    #[must_use]
    pub fn is(self, text: &[u8]) -> bool {
        match self {
            Element::Integer(value) => number::parse_i64(text) == Some(value),
            Element::Bytes(bytes) => bytes == text,
        }
    }

    /// Returns the number of which the text is the canonical form, if any.
    #[inline]
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        match self {
            Element::Integer(value) => Some(value),
            // Such an element was not created here, but other servers may have stored a number as text.
            Element::Bytes(bytes) => number::parse_i64(bytes),
        }
    }

    /// Returns the bytes that the element takes in a listpack.
    #[must_use]
    pub fn encoded_len(self) -> usize {
        Encoded::of(self).whole_size()
    }
}

fn integer_text_len(value: i64) -> usize {
    let magnitude = value.unsigned_abs();
    let digits = magnitude.checked_ilog10().map_or(1, |log| log as usize + 1);
    digits + usize::from(value < 0)
}

impl At {
    #[inline]
    fn offset(self) -> usize {
        self.0 as usize
    }
}

impl<'a> Listpack<'a> {
    /// Wraps bytes that are a listpack.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() >= EMPTY.len(), "a pack has a head and an end");
        Self { bytes }
    }

    /// Wraps bytes that come from outside; None unless they are a valid listpack in every detail, from the total over
    /// each element to the count, which may be unknown but not wrong.
    #[must_use]
    pub fn check(bytes: &'a [u8]) -> Option<Self> {
        let pack = Self { bytes };
        let (&total, _) = bytes.split_first_chunk::<4>()?;
        let (&end, elements) = bytes.get(HEAD_BYTES..)?.split_last()?;
        if u32::from_le_bytes(total) as usize != bytes.len() || end != END {
            return None;
        }
        let mut left = elements;
        let mut count = 0_usize;
        while !left.is_empty() {
            let (_, size) = encoding::decode(left)?;
            left = left.get(size..)?;
            left = left.get(encoding::check_back_length(size, left)?..)?;
            count += 1;
        }
        let known = pack.known_len();
        known.is_none_or(|known| known == count).then_some(pack)
    }

    /// Returns all bytes, in the form for dumps.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of elements: without counting, unless there are at least 65535 or have been at some time.
    #[must_use]
    pub fn len(self) -> usize {
        self.known_len().unwrap_or_else(|| self.places().count())
    }

    /// True if there is no element.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.bytes.len() <= EMPTY.len()
    }

    /// True if elements of `more` bytes may be added, see [`encoded_len`].
    #[inline]
    #[must_use]
    pub fn fits(self, more: usize) -> bool {
        more <= BYTES_MAX.saturating_sub(self.bytes.len())
    }

    /// Returns the position of the first element.
    #[inline]
    #[must_use]
    pub fn first(self) -> Option<At> {
        self.at(HEAD_BYTES)
    }

    /// Returns the position of the last element.
    #[inline]
    #[must_use]
    pub fn last(self) -> Option<At> {
        self.before(self.end())
    }

    /// Returns the position of the next element; None at the end.
    #[inline]
    #[must_use]
    pub fn next(self, at: At) -> Option<At> {
        self.at(self.after(at))
    }

    /// Returns the position of the previous element; None at the start.
    #[inline]
    #[must_use]
    pub fn prev(self, at: At) -> Option<At> {
        self.before(at.offset())
    }

    /// Returns the position of the element at an index; negative ones count from the end, -1 being the last. Walks
    /// from the nearer end.
    #[must_use]
    pub fn nth(self, index: isize) -> Option<At> {
        let (mut steps, mut backwards) = match usize::try_from(index) {
            Ok(index) => (index, false),
            Err(_) => (index.unsigned_abs() - 1, true),
        };
        if let Some(len) = self.known_len() {
            if steps >= len {
                return None;
            }
            if steps > len / 2 {
                steps = len - 1 - steps;
                backwards = !backwards;
            }
        }
        let mut places = self.places();
        let place = if backwards {
            places.nth_back(steps)
        } else {
            places.nth(steps)
        };
        place.map(|(at, _)| at)
    }

    /// Returns the element at a position.
    #[inline]
    #[must_use]
    pub fn get(self, at: At) -> Element<'a> {
        self.read(at.offset()).0
    }

    /// Returns the elements in order, from either end.
    #[inline]
    #[must_use]
    pub fn iter(self) -> ListpackIter<'a> {
        ListpackIter(self.places())
    }

    /// Returns the elements in order with their positions, from either end.
    #[inline]
    #[must_use]
    pub fn places(self) -> Places<'a> {
        Places {
            pack: self,
            front: HEAD_BYTES,
            back: self.end(),
        }
    }

    /// Returns the first element equal to `wanted`, comparing only the first and every `step`-th after it.
    #[must_use]
    pub fn find(self, wanted: &[u8], step: usize) -> Option<At> {
        let skipped = step.saturating_sub(1);
        // `wanted` is parsed only at the first integer, so never in listpacks that contain only texts.
        let mut number = None;
        let (mut offset, end) = (HEAD_BYTES, self.end());
        while offset < end {
            let (element, size) = self.read(offset);
            let same = match element {
                Element::Bytes(bytes) => bytes == wanted,
                Element::Integer(value) => {
                    *number.get_or_insert_with(|| number::parse_i64(wanted)) == Some(value)
                }
            };
            if same {
                return Some(at(offset));
            }
            offset += encoding::whole_size(size);
            for _ in 0..skipped {
                if offset >= end {
                    break;
                }
                offset += encoding::whole_size(self.read(offset).1);
            }
        }
        None
    }

    /// Returns the count of the head, if it is known.
    #[inline]
    fn known_len(self) -> Option<usize> {
        let count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        (count != COUNT_UNKNOWN).then_some(usize::from(count))
    }

    /// Returns the offset of the end byte.
    #[inline]
    fn end(self) -> usize {
        self.bytes.len() - 1
    }

    /// Returns the position at an offset, unless it is the end.
    #[inline]
    fn at(self, offset: usize) -> Option<At> {
        (offset < self.end()).then(|| at(offset))
    }

    /// Returns the offset of the element after one.
    #[inline]
    fn after(self, at: At) -> usize {
        at.offset() + encoding::whole_size(self.read(at.offset()).1)
    }

    #[inline]
    fn before(self, offset: usize) -> Option<At> {
        let before = &self.bytes[HEAD_BYTES..offset];
        if before.is_empty() {
            return None;
        }
        let size = encoding::read_back_length(before);
        Some(at(offset - encoding::whole_size(size)))
    }

    /// Returns the element at an offset, and its size without the back length.
    #[inline]
    fn read(self, offset: usize) -> (Element<'a>, usize) {
        match encoding::decode(&self.bytes[offset..]) {
            Some(found) => found,
            None => not_an_element(),
        }
    }
}

#[inline]
fn at(offset: usize) -> At {
    // Totals are stored in 32 bits, so offsets fit.
    At(offset as u32)
}

#[cold]
fn not_an_element() -> ! {
    panic!("no element begins here: a place of another pack, or one that has changed")
}

/// Elements with their positions, see [`Listpack::places`].
#[derive(Clone, Debug)]
pub struct Places<'a> {
    pack: Listpack<'a>,
    front: usize,
    /// End of the elements not yet returned.
    back: usize,
}

impl<'a> Iterator for Places<'a> {
    type Item = (At, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let (element, size) = self.pack.read(self.front);
        let place = at(self.front);
        self.front += encoding::whole_size(size);
        Some((place, element))
    }
}

impl DoubleEndedIterator for Places<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let place = self.pack.before(self.back)?;
        self.back = place.offset();
        Some((place, self.pack.get(place)))
    }
}

impl FusedIterator for Places<'_> {}

/// Elements, see [`Listpack::iter`].
#[derive(Clone, Debug)]
pub struct ListpackIter<'a>(Places<'a>);

impl<'a> Iterator for ListpackIter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(_, element)| element)
    }
}

impl DoubleEndedIterator for ListpackIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|(_, element)| element)
    }
}

impl FusedIterator for ListpackIter<'_> {}

impl<'a> IntoIterator for Listpack<'a> {
    type Item = Element<'a>;
    type IntoIter = ListpackIter<'a>;

    fn into_iter(self) -> ListpackIter<'a> {
        self.iter()
    }
}
