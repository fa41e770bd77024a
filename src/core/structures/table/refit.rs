//! Rebuilding a table for another number of entries.

use std::mem;

use super::directory::Directory;
use super::segment::{self, Segment};
use super::{Stored, Table};

impl<T: Stored> Table<T> {
    /// Rebuilds the table for `count` entries, or for the existing ones if there are more of them, as
    /// [`reserve_all`](Table::reserve_all) does for an empty one. Takes as long as inserting all entries; does
    /// nothing while the table is drained. Places become invalid.
    pub fn refit(&mut self, count: usize) {
        if self.drained != usize::MAX {
            return;
        }
        self.successor = None;
        self.deepest = 0;
        let former = mem::replace(&mut self.directory, Directory::nothing());
        self.reserve_all(count.max(self.len));
        for segment in former.segments() {
            self.move_in(segment);
        }
        // The former directory was published until now, if nothing has replaced it.
        self.directory.publish(self.published.as_ref());
    }

    /// Moves the entries of a segment, and of the segments chained to it, to their new positions, and frees the
    /// segments.
    fn move_in(&mut self, segment: Segment) {
        let mut next = segment;
        while !next.is_none() {
            // SAFETY: live, and in no word of the table; slots own their entries, and each moves to one segment;
            // the old one is freed when all have moved, and never used again.
            unsafe {
                next.each(|_, slot, _| {
                    if let Some(entry) = slot.entry() {
                        segment::prefetch(entry.as_ptr());
                    }
                });
                next.each(|_, slot, t16| {
                    // An entry that a forgotten edit has leaked has no key to hash.
                    let hash = slot
                        .entry()
                        .map_or(t16 & 0xff, |entry| self.seed.hash(T::key(T::borrow(entry))));
                    let home = self.directory.of(hash);
                    if !home.is_unusual() && home.count() < Segment::room(home.buckets()) {
                        home.insert(slot, hash & 0xff);
                    } else {
                        self.insert_making_room(hash, slot);
                    }
                });
                let this = next;
                next = match segment.is_chained() {
                    true => this.next(),
                    false => Segment::NONE,
                };
                this.free();
            }
        }
    }
}
