//! An element of a collection that may be large: from a listpack, or in a block of its own.

use crate::base::number;
use crate::structures::block::SharedBlock;
use crate::structures::listpack::Element;

/// An element of a collection, see the module. (Listpacks do not use this type: with a third variant, passing their
/// elements would cost half as much again.)
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// An element of a listpack, or bytes.
    Element(Element<'a>),
    /// A long element in a block, which can be shared.
    Block(&'a SharedBlock),
}

impl<'a> Item<'a> {
    /// Wraps bytes that are not in a block.
    #[inline]
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Item<'a> {
        Item::Element(Element::Bytes(bytes))
    }

    /// Returns the length of the text.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Item::Element(element) => element.len(),
            Item::Block(block) => block.len(),
        }
    }

    /// True if the text is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Passes the text to `show`.
    #[inline]
    pub fn with_bytes<R>(self, show: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Item::Element(element) => element.with_bytes(show),
            Item::Block(block) => show(block),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// Returns the number of which the text is the canonical form, if any.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        match self {
            Item::Element(element) => element.integer(),
            Item::Block(block) => number::parse_i64(block),
        }
    }

    /// True if the element equals `text`; `number` is the text's value if it is numeric.
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
