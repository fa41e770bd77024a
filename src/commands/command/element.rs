//! Writes elements of collections as replies.

use super::Out;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::Element;

/// Writes an element; the bytes of a long one are shared with its collection.
#[inline]
pub fn reply_item(item: Item<'_>, out: &mut Out) {
    match item {
        Item::Element(element) => reply_element(element, out),
        Item::Block(block) => reply_block(block, out),
    }
}

/// Writes an element of a listpack.
#[inline]
pub fn reply_element(element: Element<'_>, out: &mut Out) {
    match element {
        Element::Integer(number) => out.bulk_integer(number),
        Element::Bytes(bytes) => out.bulk(bytes),
    }
}

#[cold]
#[inline(never)]
fn reply_block(block: &SharedBlock, out: &mut Out) {
    out.bulk_shared(block.clone().into_bytes());
}
