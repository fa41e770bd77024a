//! An element of a collection that may be large: out of a listpack, or a block of its own.

use crate::base::number;
use crate::structures::block::Block;
use crate::structures::listpack::Element;

/// See the module. (Listpacks know nothing of it: with a third form their elements would take half as much again to
/// hand on.)
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Any element.
    Element(Element<'a>),
    /// A long one, which can be shared.
    Block(&'a Block),
}

impl<'a> Item<'a> {
    /// Bytes that are no block.
    #[inline]
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Item<'a> {
        Item::Element(Element::Bytes(bytes))
    }

    /// How long the text is.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Item::Element(element) => element.len(),
            Item::Block(block) => block.len(),
        }
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Shows the text.
    #[inline]
    pub fn with_bytes<R>(self, show: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Item::Element(element) => element.with_bytes(show),
            Item::Block(block) => show(block),
        }
    }

    /// The text.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// The number that the text is in its canonical form.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        match self {
            Item::Element(element) => element.integer(),
            Item::Block(block) => number::parse_i64(block),
        }
    }

    /// Whether this is the text, which is also a number if it is given as such.
    #[inline]
    #[must_use]
    pub fn equals(self, text: &[u8], number: Option<i64>) -> bool {
        match self {
            Item::Element(Element::Integer(own)) => number == Some(own),
            Item::Element(Element::Bytes(own)) => own == text,
            Item::Block(block) => block[..] == *text,
        }
    }
}

impl<'a> From<Element<'a>> for Item<'a> {
    #[inline]
    fn from(element: Element<'a>) -> Item<'a> {
        Item::Element(element)
    }
}
