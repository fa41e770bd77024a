//! The encoding of one element in a listpack.
//!
//! ```text
//! first byte   what follows                    what it is
//! 0vvvvvvv                                     0 to 127
//! 10nnnnnn     n bytes                         up to 63 bytes
//! 110vvvvv     1 byte                          an integer of 13 bits, the higher bits first
//! 1110nnnn     1 byte of n, n bytes            up to 4095 bytes; the higher bits of n first
//! 11110000     4 bytes of n, n bytes           any bytes; n little-endian
//! 11110001     2 bytes                         an integer of 16 bits, little-endian, as those below
//! 11110010     3 bytes                         of 24 bits
//! 11110011     4 bytes                         of 32 bits
//! 11110100     8 bytes                         of 64 bits
//! 11111111                                     no element: the end of the listpack
//! ```
//!
//! After this the element's size is stored once more, the back length, for walking backwards: seven bits per byte,
//! the highest first; all bytes but the first have the high bit set, so that a reader that comes from the end knows
//! where to stop.

use crate::structures::listpack::Element;

/// The byte after the last element.
pub(super) const END: u8 = 0xFF;

/// Maximum bytes of a head: an integer of 64 bits.
const HEAD_BYTES_MAX: usize = 9;

/// Returns the element at the beginning of `bytes` and its size without the back length; None if it is incomplete.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let (&first, rest) = bytes.split_first()?;
    Some(match first {
        0x00..=0x7F => (Element::Integer(i64::from(first)), 1),
        0x80..=0xBF => {
            let len = usize::from(first & 0x3F);
            (Element::Bytes(rest.get(..len)?), 1 + len)
        }
        0xC0..=0xDF => {
            let raw = u16::from_be_bytes([first & 0x1F, *rest.first()?]);
            // Sign extension: shifted up to the sign bit and back again.
            let value = (raw << 3).cast_signed() >> 3;
            (Element::Integer(i64::from(value)), 2)
        }
        0xE0..=0xEF => {
            let (&low, body) = rest.split_first()?;
            let len = usize::from(u16::from_be_bytes([first & 0x0F, low]));
            (Element::Bytes(body.get(..len)?), 2 + len)
        }
        0xF0 => {
            let (len, body) = rest.split_first_chunk::<4>()?;
            let len = u32::from_le_bytes(*len) as usize;
            (Element::Bytes(body.get(..len)?), 5 + len)
        }
        0xF1 => {
            let value = i16::from_le_bytes(*rest.first_chunk()?);
            (Element::Integer(i64::from(value)), 3)
        }
        0xF2 => {
            let &[low, middle, high] = rest.first_chunk()?;
            let value = i32::from_le_bytes([0, low, middle, high]) >> 8;
            (Element::Integer(i64::from(value)), 4)
        }
        0xF3 => {
            let value = i32::from_le_bytes(*rest.first_chunk()?);
            (Element::Integer(i64::from(value)), 5)
        }
        0xF4 => {
            let value = i64::from_le_bytes(*rest.first_chunk()?);
            (Element::Integer(value), 9)
        }
        _ => return None,
    })
}

/// An element ready to be written: its head, and the bytes after it.
pub(super) struct Encoded<'e> {
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    body: &'e [u8],
}

impl<'e> Encoded<'e> {
    /// Encodes an element in the smallest form possible.
    #[inline]
    pub(super) fn of(element: Element<'e>) -> Self {
        match element {
            Element::Integer(value) => Self::integer(value),
            Element::Bytes(bytes) => Self::text(bytes),
        }
    }

    fn integer(value: i64) -> Self {
        let [b0, b1, b2, b3, ..] = value.to_le_bytes();
        match value {
            0..=127 => Self::with_head(&[b0], &[]),
            -4096..=4095 => Self::with_head(&[0xC0 | b1 & 0x1F, b0], &[]),
            -0x8000..=0x7FFF => Self::with_head(&[0xF1, b0, b1], &[]),
            -0x80_0000..=0x7F_FFFF => Self::with_head(&[0xF2, b0, b1, b2], &[]),
            -0x8000_0000..=0x7FFF_FFFF => Self::with_head(&[0xF3, b0, b1, b2, b3], &[]),
            _ => {
                let mut head = [0xF4; HEAD_BYTES_MAX];
                head[1..].copy_from_slice(&value.to_le_bytes());
                Self {
                    head,
                    head_len: HEAD_BYTES_MAX,
                    body: &[],
                }
            }
        }
    }

    fn text(bytes: &'e [u8]) -> Self {
        let [b0, b1, b2, b3, ..] = bytes.len().to_le_bytes();
        match bytes.len() {
            0..64 => Self::with_head(&[0x80 | b0], bytes),
            64..4096 => Self::with_head(&[0xE0 | b1, b0], bytes),
            len => {
                assert!(len <= u32::MAX as usize, "lengths are kept in 32 bits");
                Self::with_head(&[0xF0, b0, b1, b2, b3], bytes)
            }
        }
    }

    fn with_head(bytes: &[u8], body: &'e [u8]) -> Self {
        let mut head = [0; HEAD_BYTES_MAX];
        head[..bytes.len()].copy_from_slice(bytes);
        Self {
            head,
            head_len: bytes.len(),
            body,
        }
    }

    /// Returns the size without the back length.
    #[inline]
    fn size(&self) -> usize {
        self.head_len + self.body.len()
    }

    /// Returns the size with the back length: the bytes of the element in a listpack.
    #[inline]
    pub(super) fn whole_size(&self) -> usize {
        whole_size(self.size())
    }

    /// Writes the element to `room`, which has exactly its whole size.
    pub(super) fn write(&self, room: &mut [u8]) {
        let size = self.size();
        let (head, rest) = room.split_at_mut(self.head_len);
        let (body, back) = rest.split_at_mut(self.body.len());
        head.copy_from_slice(&self.head[..self.head_len]);
        body.copy_from_slice(self.body);
        write_back_length(size, back);
    }
}

/// Returns the size of an element together with its back length.
#[inline]
pub(super) fn whole_size(size: usize) -> usize {
    size + back_length_bytes(size)
}

/// Returns the bytes of the back length of an element. The limits are one below the powers of two, as in the format's
/// first implementation.
#[inline]
fn back_length_bytes(size: usize) -> usize {
    match size {
        0..128 => 1,
        128..0x3FFF => 2,
        0x3FFF..0x1F_FFFF => 3,
        0x1F_FFFF..0x0FFF_FFFF => 4,
        _ => 5,
    }
}

#[inline]
fn write_back_length(size: usize, room: &mut [u8]) {
    let mut left = size;
    for byte in room.iter_mut().rev() {
        *byte = (left & 0x7F) as u8 | 0x80;
        left >>= 7;
    }
    if let Some(first) = room.first_mut() {
        *first &= 0x7F;
    }
}

/// Returns the size of the element at the end of `bytes`, without its back length.
#[inline]
pub(super) fn read_back_length(bytes: &[u8]) -> usize {
    let mut size = 0;
    for (index, &byte) in bytes.iter().rev().take(5).enumerate() {
        size |= usize::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            break;
        }
    }
    size
}

/// Returns the number of bytes of the back length of an element of that size, if `bytes` begin with it.
#[inline]
pub(super) fn check_back_length(size: usize, bytes: &[u8]) -> Option<usize> {
    const ONE_BYTE_MAX: usize = 0x7f;
    if size <= ONE_BYTE_MAX {
        return (usize::from(*bytes.first()?) == size).then_some(1);
    }
    let count = back_length_bytes(size);
    let mut expected = [0; 5];
    let expected = expected.get_mut(..count)?;
    write_back_length(size, expected);
    bytes.starts_with(expected).then_some(count)
}
