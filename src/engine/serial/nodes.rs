//! Serialized lists: node after node, each a listpack or one large element.

use super::types;
use super::writer::Writer;
use basalt_core::structures::quicklist::QuicklistNodeView;

/// A node that is a single element.
pub(super) const NODE_PLAIN: u64 = 1;
/// A node that is a listpack of elements.
pub(super) const NODE_PACKED: u64 = 2;

/// Writes the head of a list with `nodes` nodes.
pub(super) fn begin(nodes: u64, writer: &mut Writer) {
    writer.kind(types::LIST_QUICKLIST_2);
    writer.length(nodes);
}

/// Writes a node of a list.
pub(super) fn node(node: &QuicklistNodeView<'_>, writer: &mut Writer) {
    match node {
        QuicklistNodeView::Packed(pack) => {
            writer.length(NODE_PACKED);
            writer.string(pack);
        }
        QuicklistNodeView::Plain(element) => {
            writer.length(NODE_PLAIN);
            writer.item(*element);
        }
    }
}
