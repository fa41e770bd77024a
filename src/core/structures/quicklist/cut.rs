//! The state of a quicklist at one moment, the cut, passed to the snapshot node by node while the list continues to
//! change.
//!
//! ```text
//! the row now      [n][a][b][x][y][e][f]
//! runs             new 1 | same 2: a b | gone: c d | new 2 | same 2: e f
//! at the cut       [a][b][c][d][e][f]
//! ```
//!
//! Runs cover the row of nodes from front to back, and nodes that were between them. Changes of nodes are announced
//! here: a node that is unchanged since the cut is kept, as a copy or, if it leaves the row, the node itself. Nodes
//! that have been saved count as new, so that nothing is kept of them. Between two `Same` runs there is at most one
//! `Gone` run, followed by at most one `New` run.
//!
//! Copies are charged to no account (see [`account::uncharged`]). A node that left the row stays charged to its account
//! until it has been saved.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use super::node::QuicklistNode;
use super::{Quicklist, QuicklistNodeView};
use crate::alloc::account;

enum QuicklistCutRun {
    /// Number of nodes of the row that are unchanged.
    Same(usize),
    /// Number of nodes of the row that are new, or have been saved.
    New(usize),
    /// Nodes that left the row, or changed there.
    Gone(VecDeque<Gone>),
}

enum Gone {
    Copied(QuicklistNode),
    Moved(QuicklistNode),
}

impl QuicklistCutRun {
    /// Returns the number of nodes of the row that the run covers.
    fn len(&self) -> usize {
        match self {
            QuicklistCutRun::Same(count) | QuicklistCutRun::New(count) => *count,
            QuicklistCutRun::Gone(_) => 0,
        }
    }

    fn is_same(&self) -> bool {
        matches!(self, QuicklistCutRun::Same(_))
    }
}

/// A cut in progress, see the module.
pub(super) struct QuicklistCut {
    runs: VecDeque<QuicklistCutRun>,
    /// Number of nodes of the row covered by the runs.
    covered: usize,
    /// The `New` run whose length the last change may have altered.
    open: usize,
    /// True if the cut was dropped: nothing is saved any more.
    is_forgotten: bool,
    /// Bytes of copied nodes.
    copied_bytes: usize,
}

impl QuicklistCut {
    fn of(nodes: usize) -> QuicklistCut {
        let mut runs = VecDeque::with_capacity(4);
        runs.push_back(QuicklistCutRun::New(0));
        if nodes > 0 {
            runs.push_back(QuicklistCutRun::Same(nodes));
        }
        QuicklistCut {
            runs,
            covered: nodes,
            open: 0,
            is_forgotten: false,
            copied_bytes: 0,
        }
    }

    /// Adjusts the runs to the length of the row after the last change.
    fn settle(&mut self, nodes: usize) {
        if nodes == self.covered {
            return;
        }
        match self.runs.get_mut(self.open) {
            Some(QuicklistCutRun::New(count)) => *count = (*count + nodes) - self.covered,
            _ => debug_assert!(false, "touch() is called before the row changes"),
        }
        self.covered = nodes;
    }

    /// Saves the old state of nodes that are about to be changed, removed, or followed by new ones. Nodes in `leaving`
    /// will be removed, so they may be taken instead of copied.
    fn touch(
        &mut self,
        row: &mut VecDeque<QuicklistNode>,
        nodes: Range<usize>,
        leaving: Range<usize>,
    ) {
        if self.is_forgotten {
            return;
        }
        self.settle(row.len());
        if self.is_new(&nodes) {
            return;
        }
        let first = self.split(nodes.start);
        let end = self.split(nodes.end);
        let mut gone = VecDeque::new();
        let mut at = nodes.start;
        for run in self.runs.drain(first..end) {
            match run {
                QuicklistCutRun::Same(count) => {
                    let same = row.range_mut(at..at + count);
                    gone.extend(same.zip(at..).map(
                        |(node, index)| match leaving.contains(&index) {
                            true => Gone::Moved(node.take()),
                            false => {
                                self.copied_bytes += node.len_bytes();
                                Gone::Copied(node.share())
                            }
                        },
                    ));
                    at += count;
                }
                QuicklistCutRun::New(count) => at += count,
                QuicklistCutRun::Gone(mut kept) => gone.append(&mut kept),
            }
        }
        self.runs.insert(first, QuicklistCutRun::New(nodes.len()));
        if !gone.is_empty() {
            self.runs.insert(first, QuicklistCutRun::Gone(gone));
        }
        self.open = self.join(first);
    }

    /// True if all these nodes are new already; then the caller is expected to change their number.
    fn is_new(&mut self, nodes: &Range<usize>) -> bool {
        if nodes.start == 0 {
            let at = self.leading();
            if matches!(self.runs.get(at), Some(QuicklistCutRun::New(count)) if *count >= nodes.len())
            {
                self.open = at;
                return true;
            }
        }
        if nodes.end == self.covered
            && let Some(QuicklistCutRun::New(count)) = self.runs.back()
            && *count >= nodes.len()
        {
            self.open = self.runs.len() - 1;
            return true;
        }
        false
    }

    /// Returns the index of the first run that covers nodes of the row, unless it is a `Same` run.
    fn leading(&self) -> usize {
        usize::from(matches!(self.runs.front(), Some(QuicklistCutRun::Gone(_))))
    }

    /// Splits the run across the position `nodes`. Returns the run that begins there.
    fn split(&mut self, nodes: usize) -> usize {
        let (mut index, mut before);
        if nodes <= self.covered / 2 {
            (index, before) = (0, 0);
            while let Some(run) = self.runs.get(index)
                && before + run.len() <= nodes
            {
                before += run.len();
                index += 1;
            }
        } else {
            (index, before) = (self.runs.len(), self.covered);
            while before > nodes {
                index -= 1;
                before -= self.runs[index].len();
            }
            if before == nodes {
                return index;
            }
        }
        if before == nodes {
            return index;
        }
        let first = nodes - before;
        let second = match &mut self.runs[index] {
            QuicklistCutRun::Same(count) => {
                QuicklistCutRun::Same(std::mem::replace(count, first) - first)
            }
            QuicklistCutRun::New(count) => {
                QuicklistCutRun::New(std::mem::replace(count, first) - first)
            }
            QuicklistCutRun::Gone(_) => {
                unreachable!("a run of removed nodes covers no node of the row")
            }
        };
        self.runs.insert(index + 1, second);
        index + 1
    }

    /// Merges a run with the adjacent runs, between two `Same` runs, into at most two. Returns the `New` one.
    fn join(&mut self, at: usize) -> usize {
        let (mut first, mut end) = (at, at);
        while first > 0 && !self.runs[first - 1].is_same() {
            first -= 1;
        }
        while end < self.runs.len() && !self.runs[end].is_same() {
            end += 1;
        }
        let mut new = 0;
        let mut gone: Option<VecDeque<Gone>> = None;
        for run in self.runs.drain(first..end) {
            match run {
                QuicklistCutRun::New(count) => new += count,
                QuicklistCutRun::Gone(mut kept) => match &mut gone {
                    Some(gone) => gone.append(&mut kept),
                    None => gone = Some(kept),
                },
                QuicklistCutRun::Same(_) => {}
            }
        }
        self.runs.insert(first, QuicklistCutRun::New(new));
        if let Some(gone) = gone {
            self.runs.insert(first, QuicklistCutRun::Gone(gone));
            return first + 1;
        }
        first
    }

    /// Returns the next item to save: a kept node, or a node of the row; None at the end.
    fn next(&mut self, nodes: usize) -> Option<NextCutNode> {
        self.settle(nodes);
        if let Some(QuicklistCutRun::Gone(kept)) = self.runs.front_mut() {
            match kept.pop_front() {
                Some(node) => return Some(NextCutNode::Kept(node)),
                None => {
                    self.runs.pop_front();
                    self.open = self.open.saturating_sub(1);
                }
            }
        }
        // Nodes that have been saved are at the front, as a `New` run.
        let Some(QuicklistCutRun::New(shown)) = self.runs.front() else {
            self.runs.push_front(QuicklistCutRun::New(0));
            self.open += 1;
            return self.next(nodes);
        };
        let index = *shown;
        match self.runs.get_mut(1)? {
            QuicklistCutRun::Same(count) => {
                *count -= 1;
                let is_over = *count == 0;
                if let Some(QuicklistCutRun::New(shown)) = self.runs.front_mut() {
                    *shown += 1;
                }
                if is_over {
                    self.runs.remove(1);
                    self.open = self.join(0);
                }
                Some(NextCutNode::InRow(index))
            }
            _ => {
                debug_assert!(false, "a run of removed nodes precedes a run of new ones");
                None
            }
        }
    }
}

enum NextCutNode {
    Kept(Gone),
    InRow(usize),
}

fn view(node: &QuicklistNode) -> QuicklistNodeView<'_> {
    if let Some(element) = node.as_plain() {
        QuicklistNodeView::Plain(element)
    } else if let Some(pack) = node.as_listpack() {
        QuicklistNodeView::Packed(Cow::Borrowed(pack.bytes()))
    } else {
        QuicklistNodeView::Packed(Cow::Owned(node.unpacked()))
    }
}

impl Quicklist {
    /// Returns the nodes from front to back.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = QuicklistNodeView<'_>> {
        self.nodes.iter().map(view)
    }

    /// Makes a cut: [`Quicklist::show_cut`] will return the current state, regardless of later changes.
    pub fn begin_cut(&mut self) {
        self.cut = Some(account::uncharged(|| {
            Box::new(QuicklistCut::of(self.nodes.len()))
        }));
    }

    /// True if a part of the cut has not been saved yet.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Passes nodes in their state at the cut to `show`, with the number of elements of each, until they reach
    /// `bytes_max` bytes in total. Returns true while more are left.
    pub fn show_cut(
        &mut self,
        bytes_max: usize,
        show: &mut dyn FnMut(&QuicklistNodeView<'_>, usize),
    ) -> bool {
        let Quicklist { nodes, cut, .. } = self;
        let Some(cut) = cut else { return false };
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some(next) = account::uncharged(|| cut.next(nodes.len())) else {
                account::uncharged(|| self.cut = None);
                return false;
            };
            let mut show = |node: &QuicklistNode| {
                bytes += node.len_bytes() + size_of::<QuicklistNode>();
                account::uncharged(|| show(&view(node), node.count()));
            };
            match next {
                NextCutNode::InRow(index) => show(&nodes[index]),
                NextCutNode::Kept(Gone::Moved(node)) => show(&node),
                NextCutNode::Kept(Gone::Copied(node)) => {
                    show(&node);
                    account::uncharged(|| drop(node));
                }
            }
        }
        true
    }

    /// Returns the bytes of nodes copied since the last call.
    pub fn take_copied(&mut self) -> usize {
        let cut = self.cut.as_deref_mut();
        cut.map_or(0, |cut| std::mem::take(&mut cut.copied_bytes))
    }

    /// Drops the cut, and about `budget` nodes that were kept for it. Returns true while more are left.
    pub fn forget_cut(&mut self, budget: usize) -> bool {
        let Some(cut) = &mut self.cut else {
            return false;
        };
        cut.is_forgotten = true;
        for _ in 0..budget {
            let last = match cut.runs.back_mut() {
                Some(QuicklistCutRun::Gone(kept)) => kept.pop_back(),
                Some(_) => None,
                None => break,
            };
            match last {
                Some(Gone::Moved(node)) => drop(node),
                Some(Gone::Copied(node)) => account::uncharged(|| drop(node)),
                None => account::uncharged(|| drop(cut.runs.pop_back())),
            }
        }
        let is_empty = cut.runs.is_empty();
        if is_empty {
            account::uncharged(|| self.cut = None);
        }
        !is_empty
    }

    /// Announces that nodes in this range, and no others, will be changed, removed, or followed by new ones.
    #[inline]
    pub(super) fn touch(&mut self, nodes: Range<usize>) {
        if self.cut.is_some() {
            self.touch_cut(nodes, 0..0);
        }
    }

    /// Announces a change of nodes in a range; of nodes in `leaving`, which will be removed, the caller uses only the
    /// counts from now on.
    #[cold]
    #[inline(never)]
    pub(super) fn touch_cut(&mut self, nodes: Range<usize>, leaving: Range<usize>) {
        let Quicklist {
            nodes: row,
            cut: Some(cut),
            ..
        } = self
        else {
            return;
        };
        let end = nodes.end.min(row.len());
        let start = nodes.start.min(end);
        account::uncharged(|| cut.touch(row, start..end, leaving));
    }
}
