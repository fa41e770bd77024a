//! Changing a listpack in place. Every change is one splice and a new head.
//!
//! Texts are stored in their smallest form. Functions with `_element` in their name take an [`Element`], for
//! callers that have a number already or copy from another listpack.

use crate::structures::listpack::encoding::Encoded;
use crate::structures::listpack::{
    At, BYTES_MAX, COUNT_UNKNOWN, EMPTY, Element, HEAD_BYTES, Listpack, at,
};
use crate::structures::splice::Splice;

/// A listpack for writing. Callers check [`Listpack::fits`] before they add elements.
pub struct ListpackMut<'b, B: Splice> {
    buffer: &'b mut B,
}

impl<'b, B: Splice> ListpackMut<'b, B> {
    /// Wraps a buffer that holds a listpack.
    #[inline]
    pub fn new(buffer: &'b mut B) -> Self {
        debug_assert!(buffer.bytes().len() >= EMPTY.len(), "there is a pack");
        Self { buffer }
    }

    /// Returns the listpack for reading.
    #[inline]
    #[must_use]
    pub fn as_listpack(&self) -> Listpack<'_> {
        Listpack::new(self.buffer.bytes())
    }

    /// Adds a text after the last element.
    pub fn push_back(&mut self, text: &[u8]) {
        self.push_back_element(Element::of(text));
    }

    /// Adds a text before the first element.
    pub fn push_front(&mut self, text: &[u8]) {
        self.push_front_element(Element::of(text));
    }

    /// Inserts a text before the element at a position. Returns the position of the new element.
    pub fn insert_before(&mut self, place: At, text: &[u8]) -> At {
        self.insert_element_before(place, Element::of(text))
    }

    /// Inserts a text after the element at a position. Returns the position of the new element.
    pub fn insert_after(&mut self, place: At, text: &[u8]) -> At {
        self.insert_element_after(place, Element::of(text))
    }

    /// Replaces the element at a position by a text. Returns its position.
    pub fn replace(&mut self, place: At, text: &[u8]) -> At {
        self.replace_element(place, Element::of(text))
    }

    /// Adds an element after the last one.
    pub fn push_back_element(&mut self, element: Element<'_>) {
        let end = self.as_listpack().end();
        self.put(end, 0, element, 1);
    }

    /// Adds an element before the first one.
    pub fn push_front_element(&mut self, element: Element<'_>) {
        self.put(HEAD_BYTES, 0, element, 1);
    }

    /// Inserts an element before the one at a position. Returns the position of the new element.
    pub fn insert_element_before(&mut self, place: At, element: Element<'_>) -> At {
        self.put(place.offset(), 0, element, 1)
    }

    /// Inserts an element after the one at a position. Returns the position of the new element.
    pub fn insert_element_after(&mut self, place: At, element: Element<'_>) -> At {
        let after = self.as_listpack().after(place);
        self.put(after, 0, element, 1)
    }

    /// Replaces an element by another. Returns its position.
    pub fn replace_element(&mut self, place: At, element: Element<'_>) -> At {
        let removed = self.as_listpack().after(place) - place.offset();
        self.put(place.offset(), removed, element, 0)
    }

    /// Adds many elements after the last one, in one splice.
    pub fn push_back_all<'e>(&mut self, elements: impl Iterator<Item = Element<'e>> + Clone) {
        let sizes = elements.clone().map(Element::encoded_len);
        let (count, size) = sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
        let end = self.as_listpack().end();
        let mut left = self.buffer.splice(end, 0, size);
        for element in elements {
            let encoded = Encoded::of(element);
            let room;
            (room, left) = left.split_at_mut(encoded.whole_size());
            encoded.write(room);
        }
        self.update_head(0, count);
    }

    /// Adds copies of all elements of another listpack after the last element.
    pub fn push_back_pack(&mut self, other: Listpack<'_>) {
        let elements = &other.bytes()[HEAD_BYTES..other.end()];
        let end = self.as_listpack().end();
        let room = self.buffer.splice(end, 0, elements.len());
        room.copy_from_slice(elements);
        self.update_head(0, other.len());
    }

    /// Removes an element. Returns the new position of the next element; None at the end.
    pub fn remove(&mut self, place: At) -> Option<At> {
        self.remove_range(place, 1)
    }

    /// Removes `count` elements starting at a position, or fewer if the listpack ends before. Returns the new
    /// position of the next element; None at the end.
    pub fn remove_range(&mut self, from: At, count: usize) -> Option<At> {
        let pack = self.as_listpack();
        let (mut until, mut removed) = (from, 0);
        let end = loop {
            if removed == count {
                break until.offset();
            }
            removed += 1;
            match pack.next(until) {
                Some(next) => until = next,
                None => break pack.end(),
            }
        };
        self.buffer.splice(from.offset(), end - from.offset(), 0);
        self.update_head(removed, 0);
        self.as_listpack().at(from.offset())
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        let len = self.buffer.bytes().len();
        self.buffer
            .splice(0, len, EMPTY.len())
            .copy_from_slice(&EMPTY);
    }

    /// Writes an element over `removed` bytes at an offset; `added` is the increase of the count.
    #[inline]
    fn put(&mut self, offset: usize, removed: usize, element: Element<'_>, added: usize) -> At {
        let encoded = Encoded::of(element);
        let room = self.buffer.splice(offset, removed, encoded.whole_size());
        encoded.write(room);
        self.update_head(0, added);
        at(offset)
    }

    /// Updates the head after a change of the elements.
    #[inline]
    fn update_head(&mut self, removed: usize, added: usize) {
        let bytes = self.buffer.bytes_mut();
        let total = u32::try_from(bytes.len()).expect("callers keep to BYTES_MAX");
        debug_assert!(total as usize <= 2 * BYTES_MAX);
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        let count = u16::from_le_bytes([bytes[4], bytes[5]]);
        if count != COUNT_UNKNOWN {
            // The count saturates, and is unknown from then on.
            let count = (usize::from(count) - removed).saturating_add(added);
            let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
            bytes[4..6].copy_from_slice(&count.to_le_bytes());
        }
    }
}
