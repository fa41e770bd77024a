//! Doubling and halving of the directory, both prepared in slices.
//!
//! While a table grows or shrinks, the directory that comes next is filled beside the current one, a few words at
//! each split or merge, and follows all changes of the part that it has already. The exchange of the two is then one
//! step, whatever the size of the table.
//!
//! A doubling cannot wait: if its directory is needed too early, the rest of it is filled at once. A halving can, so
//! it never fills more than a slice.

use super::directory::{DEPTH_MAX, Directory};
use super::segment::Segment;
use super::{Stored, Table};
use crate::base::sizes::usual_or_small;

/// Directories from this depth on are prepared in slices before they are needed; smaller ones are copied at once,
/// in a microsecond.
pub(super) fn prepare_from_depth() -> u32 {
    if cfg!(miri) {
        return 1;
    }
    usual_or_small(9, 3) as u32
}

/// Number of words prepared at each split or merge. The preparation of a doubling starts when a quarter of the words
/// are as deep as the directory; at least a quarter as many splits follow before one of those segments is full, enough
/// to prepare many times the number of words. Should that not suffice after all, doubling prepares the rest. That of
/// a halving starts at a sixteenth; half as many merges follow before none of those segments is left, enough to
/// prepare four times the number of words.
pub(super) fn prepared_words() -> usize {
    usual_or_small(64, 10)
}

/// Maximum number of words examined for the depth that a table still needs.
fn examined_words() -> usize {
    usual_or_small(512, 8)
}

/// The next directory of a table, deeper or shallower than the current one.
pub(super) struct Successor {
    pub(super) directory: Directory,
    /// Number of words of the current directory that the successor has already.
    pub(super) prepared: usize,
    /// Number of the successor's segments that are as deep as itself.
    deepest: usize,
}

impl Successor {
    /// True if the successor is to follow a directory of this depth that has become too small.
    fn doubles(&self, depth: u32) -> bool {
        self.directory.depth() > depth
    }

    /// Copies about `words` words of `current`, counted in the smaller of the two directories.
    fn prepare(&mut self, current: &Directory, words: usize) {
        let (depth, len) = (current.depth(), current.len());
        let doubles = self.doubles(depth);
        let step = if doubles {
            1
        } else {
            len / self.directory.len()
        };
        let words = words.saturating_mul(step);
        let until = self.prepared.saturating_add(words).min(len);
        for index in (self.prepared..until).step_by(step) {
            let segment = current.get(index);
            if doubles {
                self.directory.set(2 * index, segment);
                self.directory.set(2 * index + 1, segment);
            } else {
                self.deepest += usize::from(self.is_deepest(segment));
                self.directory.set(index / step, segment);
            }
        }
        self.prepared = until;
    }

    /// Changes what refers to the words from `first` on of a current directory with `len` words. Returns false if
    /// the segment is too deep for a halving.
    fn follow(
        &mut self,
        current: &Directory,
        first: usize,
        words: usize,
        segment: Segment,
    ) -> bool {
        let depth = current.depth();
        let until = (first + words).min(self.prepared);
        if self.doubles(depth) {
            for index in first..until {
                self.directory.set(2 * index, segment);
                self.directory.set(2 * index + 1, segment);
            }
            return true;
        }
        // The table counts the segments that are too deep for a directory half as large.
        if segment.depth() > self.directory.depth() && self.directory.depth() + 1 < depth {
            return false;
        }
        let step = current.len() / self.directory.len();
        for index in (first.next_multiple_of(step)..until).step_by(step) {
            let former = self.directory.get(index / step);
            self.deepest -= usize::from(self.is_deepest(former));
            self.deepest += usize::from(self.is_deepest(segment));
            self.directory.set(index / step, segment);
        }
        true
    }

    fn is_deepest(&self, segment: Segment) -> bool {
        !segment.is_none() && segment.depth() == self.directory.depth()
    }
}

impl<T: Stored> Table<T> {
    /// Changes all words that refer to the segment at `index` to `segment`, which has the same depth.
    pub(super) fn rename(&mut self, index: usize, segment: Segment) {
        let (first, words) = self.span(index, segment);
        for index in first..first + words {
            self.directory.set(index, segment);
        }
        if let Some(successor) = &mut self.successor
            && !successor.follow(&self.directory, first, words, segment)
        {
            self.successor = None;
        }
    }

    /// Copies a slice of the directory into its successor, if the directory will soon have to double.
    pub(super) fn prepare_doubling(&mut self) {
        let depth = self.directory.depth();
        if !self.is_doubling() {
            if depth < prepare_from_depth()
                || depth == DEPTH_MAX
                || self.deepest < self.directory.len() / 4
            {
                return;
            }
            self.begin_successor(depth + 1);
        }
        self.prepare_words(prepared_words());
    }

    /// Doubles the directory. All segments are shallower than the directory then.
    pub(super) fn double(&mut self) {
        if !self.is_doubling() {
            self.begin_successor(self.directory.depth() + 1);
        }
        self.prepare_words(usize::MAX);
        self.install_successor();
    }

    /// Copies a slice of the directory into a smaller one, if few segments need the directory's depth, or replaces
    /// the directory, if none does.
    pub(super) fn halve_some(&mut self) {
        loop {
            let depth = self.directory.depth();
            let begun = self.successor.as_ref().map(|of| of.directory.depth());
            match (begun.filter(|begun| *begun < depth), self.lesser_depth()) {
                // A much smaller directory will do by now: start again.
                (Some(begun), Some(lesser)) if self.deepest == 0 && lesser + 2 <= begun => {
                    self.begin_successor(lesser);
                }
                (Some(_), _) => {}
                (None, Some(lesser)) => self.begin_successor(lesser),
                (None, None) => return,
            }
            self.prepare_words(if depth <= prepare_from_depth() {
                usize::MAX
            } else {
                prepared_words()
            });
            let is_prepared = |of: &Successor| of.prepared == self.directory.len();
            if self.deepest > 0 || !self.successor.as_deref().is_some_and(is_prepared) {
                return;
            }
            self.install_successor();
        }
    }

    /// Returns the depth of a smaller directory that will soon suffice; none if the present one is needed.
    fn lesser_depth(&self) -> Option<u32> {
        let lesser = self.directory.depth().checked_sub(1)?;
        if self.deepest > 0 {
            let is_soon = self.deepest <= self.directory.len() / 16;
            return (is_soon && lesser >= prepare_from_depth()).then_some(lesser);
        }
        // After deletions in the order of hashes, a few segments may be left in a large directory.
        let (mut index, mut needed) = (0, 0);
        for _ in 0..examined_words() {
            if index >= self.directory.len() {
                return Some(needed);
            }
            let segment = self.directory.get(index);
            if segment.is_none() {
                index += 1;
            } else {
                needed = needed.max(segment.depth());
                index += self.span(index, segment).1;
            }
        }
        Some(lesser)
    }

    fn is_doubling(&self) -> bool {
        let depth = self.directory.depth();
        self.successor.as_ref().is_some_and(|of| of.doubles(depth))
    }

    fn begin_successor(&mut self, depth: u32) {
        self.successor = Some(Box::new(Successor {
            directory: Directory::take(depth, self.may_publish),
            prepared: 0,
            deepest: 0,
        }));
    }

    fn prepare_words(&mut self, words: usize) {
        if let Some(successor) = &mut self.successor {
            successor.prepare(&self.directory, words);
        }
    }

    /// Replaces the directory by its successor, which is prepared to the end.
    fn install_successor(&mut self) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        // Published before the old directory returns to the pool, which saves useless prefetches.
        successor.directory.publish(self.published.as_ref());
        self.directory = successor.directory;
        self.deepest = successor.deepest;
        self.drained = usize::MAX;
    }

    /// Panics unless the successor agrees with the directory. For tests.
    pub(super) fn check_successor(&self) {
        let Some(successor) = &self.successor else {
            return;
        };
        let (depth, len) = (self.directory.depth(), self.directory.len());
        let mut deepest = 0;
        for index in 0..successor.prepared {
            let segment = self.directory.get(index);
            if successor.doubles(depth) {
                let pair = [2 * index, 2 * index + 1].map(|at| successor.directory.get(at));
                assert!(pair == [segment; 2], "the successor follows");
            } else if index % (len / successor.directory.len()) == 0 {
                let at = index * successor.directory.len() / len;
                assert!(
                    successor.directory.get(at) == segment,
                    "the successor follows"
                );
                deepest += usize::from(successor.is_deepest(segment));
            }
        }
        assert_eq!(deepest, successor.deepest);
    }
}
