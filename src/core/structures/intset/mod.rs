//! A sorted set of integers in one run of bytes.
//!
//! ```text
//! width u32 | count u32 | integer …
//! ```
//!
//! The format is that of Redis's intset, byte for byte: little-endian, the integers ascending, each of `width` bytes,
//! which is 2, 4 or 8. The width grows when an integer needs it and never shrinks. The bytes may be in a vector or in
//! an entry, see [`Splice`].
//!
//! Invariants: an [`Intset`] holds bytes that [`Intset::check`] accepts, as it is made from bytes that
//! [`IntsetMut`] wrote or that were checked.

use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::structures::splice::Splice;

/// A set without members.
pub const EMPTY: [u8; 8] = [2, 0, 0, 0, 0, 0, 0, 0];

/// Maximum number of members of a set; callers choose another encoding long before.
pub const MEMBERS_MAX: usize = 1 << 28;

const HEAD_BYTES: usize = 8;

/// A view of a set.
#[derive(Clone, Copy, Debug)]
pub struct Intset<'a> {
    bytes: &'a [u8],
}

impl<'a> Intset<'a> {
    /// Wraps bytes that are a set.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() >= HEAD_BYTES, "a set has a head");
        Self { bytes }
    }

    /// Wraps bytes that come from outside; None unless they are a valid set in every detail, strictly ascending. An
    /// empty set is accepted.
    #[must_use]
    pub fn check(bytes: &'a [u8]) -> Option<Self> {
        let (head, members) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [width @ .., c0, c1, c2, c3] = *head;
        let width = match width {
            [width @ (2 | 4 | 8), 0, 0, 0] => usize::from(width),
            _ => return None,
        };
        let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        if count.checked_mul(width)? != members.len() {
            return None;
        }
        let set = Self { bytes };
        set.iter().is_sorted_by(|a, b| a < b).then_some(set)
    }

    /// Returns all bytes, in the form for dumps.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of members.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.members().len() / self.width()
    }

    /// True if there is no member.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.members().is_empty()
    }

    /// True if an integer is a member.
    #[inline]
    #[must_use]
    pub fn contains(self, value: i64) -> bool {
        width_of(value) <= self.width() && self.search(value).is_ok()
    }

    /// Returns the member at an index, in ascending order.
    #[inline]
    #[must_use]
    pub fn get(self, index: usize) -> Option<i64> {
        let width = self.width();
        let at = index.checked_mul(width)?;
        let bytes = self.members().get(at..)?.get(..width)?;
        Some(read(bytes))
    }

    /// Returns the index of a member; as an error, the index that the integer would have.
    ///
    /// # Errors
    /// Returns an error if the integer is not a member.
    pub fn search(self, value: i64) -> Result<usize, usize> {
        let mut range = 0..self.len();
        // Integers are often added in ascending order, and then belong at the end.
        match self.max() {
            Some(max) if value > max => return Err(range.end),
            _ => {}
        }
        while !range.is_empty() {
            let middle = range.start + range.len() / 2;
            match self
                .get(middle)
                .map_or(Ordering::Greater, |member| member.cmp(&value))
            {
                Ordering::Less => range.start = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => range.end = middle,
            }
        }
        Err(range.start)
    }

    /// Returns the least member.
    #[inline]
    #[must_use]
    pub fn min(self) -> Option<i64> {
        self.get(0)
    }

    /// Returns the greatest member.
    #[inline]
    #[must_use]
    pub fn max(self) -> Option<i64> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns an iterator over the members in ascending order, which also works from the end.
    #[inline]
    #[must_use]
    pub fn iter(self) -> Iter<'a> {
        Iter {
            set: self,
            left: 0..self.len(),
        }
    }

    /// Returns the bytes per member.
    #[inline]
    #[must_use]
    pub fn width(self) -> usize {
        match self.bytes[0] {
            2 => 2,
            4 => 4,
            _ => 8,
        }
    }

    #[inline]
    fn members(self) -> &'a [u8] {
        &self.bytes[HEAD_BYTES..]
    }
}

/// Returns the bytes that an integer needs.
#[inline]
fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

/// Decodes an integer of two, four or eight bytes.
#[inline]
fn read(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// Encodes an integer in all bytes of `room`, which must suffice for it.
#[inline]
fn write(value: i64, room: &mut [u8]) {
    room.copy_from_slice(&value.to_le_bytes()[..room.len()]);
}

/// Members in ascending order, see [`Intset::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    set: Intset<'a>,
    left: Range<usize>,
}

impl Iterator for Iter<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        self.set.get(self.left.next()?)
    }

    #[inline]
    fn nth(&mut self, skipped: usize) -> Option<i64> {
        self.set.get(self.left.nth(skipped)?)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<i64> {
        self.set.get(self.left.next_back()?)
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl FusedIterator for Iter<'_> {}

impl<'a> IntoIterator for Intset<'a> {
    type Item = i64;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// A set for writing. Callers keep it below [`MEMBERS_MAX`].
pub struct IntsetMut<'b, B: Splice> {
    buffer: &'b mut B,
}

impl<'b, B: Splice> IntsetMut<'b, B> {
    /// Wraps a buffer that holds a set.
    #[inline]
    pub fn new(buffer: &'b mut B) -> Self {
        debug_assert!(buffer.bytes().len() >= HEAD_BYTES, "there is a set");
        Self { buffer }
    }

    /// Returns the set for reading.
    #[inline]
    #[must_use]
    pub fn as_intset(&self) -> Intset<'_> {
        Intset::new(self.buffer.bytes())
    }

    /// Adds an integer. Returns whether it was not a member yet.
    pub fn add(&mut self, value: i64) -> bool {
        let set = self.as_intset();
        let width = set.width();
        if width_of(value) > width {
            self.widen(width_of(value));
        }
        let set = self.as_intset();
        let (width, len) = (set.width(), set.len());
        let Err(index) = set.search(value) else {
            return false;
        };
        let room = self.buffer.splice(HEAD_BYTES + index * width, 0, width);
        write(value, room);
        self.set_count(len + 1);
        true
    }

    /// Removes an integer. Returns whether it was a member.
    pub fn remove(&mut self, value: i64) -> bool {
        let set = self.as_intset();
        match set.search(value) {
            Ok(index) => self.remove_at(index).is_some(),
            Err(_) => false,
        }
    }

    /// Removes the member at an index and returns it.
    pub fn remove_at(&mut self, index: usize) -> Option<i64> {
        let set = self.as_intset();
        let (width, len) = (set.width(), set.len());
        let value = set.get(index)?;
        self.buffer.splice(HEAD_BYTES + index * width, width, 0);
        self.set_count(len - 1);
        Some(value)
    }

    /// Increases the bytes per member.
    #[cold]
    fn widen(&mut self, new: usize) {
        let set = self.as_intset();
        let (old, len) = (set.width(), set.len());
        let end = self.buffer.bytes().len();
        self.buffer.splice(end, 0, len * (new - old));
        let bytes = self.buffer.bytes_mut();
        bytes[0] = new as u8;
        let members = &mut bytes[HEAD_BYTES..];
        // From the last to the first, so that no integer is overwritten before it has moved.
        for index in (0..len).rev() {
            let value = read(&members[index * old..(index + 1) * old]);
            write(value, &mut members[index * new..(index + 1) * new]);
        }
    }

    fn set_count(&mut self, count: usize) {
        debug_assert!(count <= MEMBERS_MAX);
        let count = u32::try_from(count).expect("callers keep to MEMBERS_MAX");
        self.buffer.bytes_mut()[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
