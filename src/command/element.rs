//! An element of a collection as a reply.

use super::Out;
use crate::structures::pack::Element;

/// Writes an element; a long one is shared with its collection.
#[inline]
pub fn reply_element(element: Element<'_>, out: &mut Out) {
    match element {
        Element::Integer(number) => out.bulk_integer(number),
        Element::Bytes(bytes) => out.bulk(bytes),
        Element::Block(block) => out.bulk_shared(block.clone().into_bytes()),
    }
}
