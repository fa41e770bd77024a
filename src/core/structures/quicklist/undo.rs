//! The undo log of a quicklist: records the element for a change at an end, and copies of nodes for a change in the
//! middle.
//!
//! A window is a part of the row of nodes as it was before a change: the numbers of nodes before and after it, which
//! the change does not affect, and copies of the nodes within. As changes are undone newest first, the nodes outside
//! are then the same as before, perhaps with different compression.

use std::collections::VecDeque;
use std::ops::Range;

use super::node::QuicklistNode;
use super::{End, Quicklist};
use crate::structures::undo_log::{UndoLog, UndoRecord};

/// An element was added at the front.
const PUSHED_FRONT: u8 = 0;
/// An element was added at the back.
const PUSHED_BACK: u8 = 1;
/// An element was removed from the node at the front, which keeps others.
const POPPED_FRONT: u8 = 2;
/// An element was removed from the node at the back, which keeps others.
const POPPED_BACK: u8 = 3;
/// A window: the number of nodes before it, and as bytes the numbers of nodes within and after it. Copies of its
/// nodes precede this record.
const WINDOW: u8 = 4;
/// A node of a window; its form is added to this.
const NODE: u8 = 5;

/// Records the addition of an element at an end.
#[cold]
pub(super) fn keep_push(changes: &mut UndoLog, end: End) {
    let mark = match end {
        End::Front => PUSHED_FRONT,
        End::Back => PUSHED_BACK,
    };
    changes.keep(&[], 0, mark);
}

/// Records the removal of an element at an end, from a node with other elements.
#[cold]
pub(super) fn keep_pop(changes: &mut UndoLog, end: End, element: &[u8]) {
    let mark = match end {
        End::Front => POPPED_FRONT,
        End::Back => POPPED_BACK,
    };
    changes.keep(element, 0, mark);
}

impl Quicklist {
    /// Starts recording an undo log, appending to `changes`.
    pub fn keep_changes(&mut self, changes: UndoLog) {
        self.changes = Some(changes);
    }

    /// Stops recording and returns the undo log.
    pub fn take_changes(&mut self) -> Option<UndoLog> {
        self.changes.take()
    }

    /// True if changes are recorded.
    #[inline]
    #[must_use]
    pub fn keeps_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Records that nodes in this range, and no others, will be changed, removed, or followed by new ones.
    #[inline]
    pub(super) fn keep_window(&mut self, nodes: Range<usize>) {
        self.keep_leaving(nodes, 0..0);
    }

    /// Records a change of nodes in a range; of nodes in `leaving`, which will be removed, the caller uses only the
    /// counts from now on.
    #[inline]
    pub(super) fn keep_leaving(&mut self, nodes: Range<usize>, leaving: Range<usize>) {
        if self.changes.is_some() {
            self.write_window(nodes.clone());
        }
        if self.cut.is_some() {
            self.touch_cut(nodes, leaving);
        }
    }

    #[cold]
    fn write_window(&mut self, nodes: Range<usize>) {
        let Quicklist {
            nodes: row,
            changes: Some(changes),
            ..
        } = self
        else {
            return;
        };
        let end = nodes.end.min(row.len());
        let start = nodes.start.min(end);
        for node in row.range(start..end) {
            let (bytes, counts, form) = node.parts();
            changes.keep(bytes, counts, NODE + form);
        }
        let mut counts = [0; 16];
        counts[..8].copy_from_slice(&((end - start) as u64).to_le_bytes());
        counts[8..].copy_from_slice(&((row.len() - end) as u64).to_le_bytes());
        changes.keep(&counts, start as u64, WINDOW);
    }

    /// Undoes the recorded changes, from the last to the first.
    pub fn undo(&mut self, changes: &UndoLog) {
        let mut changes = changes.backwards();
        while let Some(change) = changes.next() {
            match change.mark {
                PUSHED_FRONT => drop(self.pop(End::Front, |_| {})),
                PUSHED_BACK => drop(self.pop(End::Back, |_| {})),
                POPPED_FRONT => self.push_into(End::Front, change.bytes),
                POPPED_BACK => self.push_into(End::Back, change.bytes),
                _ => self.restore_window(change, &mut changes),
            }
        }
    }

    /// Puts an element into the node at an end, whether or not it is full: it was there before.
    fn push_into(&mut self, end: End, element: &[u8]) {
        self.touch(self.end_node(end));
        if let Some(node) = self.end_mut(end) {
            node.push(end, element);
            self.count += 1;
        }
    }

    fn restore_window<'a>(
        &mut self,
        window: UndoRecord<'_>,
        before: &mut impl Iterator<Item = UndoRecord<'a>>,
    ) {
        let count_at = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&window.bytes[at..at + 8]);
            u64::from_le_bytes(bytes) as usize
        };
        let (inside, behind) = (count_at(0), count_at(8));
        let mut nodes: Vec<QuicklistNode> = before
            .take(inside)
            .map(|node| QuicklistNode::of_parts(node.bytes, node.number, node.mark - NODE))
            .collect();
        nodes.reverse();
        self.touch(window.number as usize..self.nodes.len() - behind);
        let tail: VecDeque<QuicklistNode> = self.nodes.split_off(self.nodes.len() - behind);
        let gone = self.nodes.split_off(window.number as usize);
        let elements = |nodes: &mut dyn Iterator<Item = &QuicklistNode>| {
            nodes.map(QuicklistNode::count).sum::<usize>()
        };
        self.count -= elements(&mut gone.iter());
        self.count += elements(&mut nodes.iter());
        drop(gone);
        // These nodes may have been at the ends meanwhile, where nodes keep free space.
        let start = self.nodes.len();
        self.nodes.extend(nodes);
        let end = self.nodes.len();
        self.nodes.extend(tail);
        for at in [start.wrapping_sub(1), end] {
            if let Some(node) = self.nodes.get_mut(at) {
                node.seal();
            }
        }
        self.compress_all();
    }
}
