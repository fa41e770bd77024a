//! The fences of a database's locks.

use std::sync::Arc;

use super::{Db, HAS_FENCES};
use crate::fences::{ByKey, Fence};
use basalt_core::alloc::account;

impl Db {
    /// Returns the fence of the lock under a key, if it has one.
    pub(crate) fn fence(&self, key: &[u8]) -> Option<Fence> {
        match self.hooks & HAS_FENCES {
            0 => None,
            _ => self.fences.of(key),
        }
    }

    /// Returns all fences as they are now, for a snapshot.
    pub(crate) fn fences_at_cut(&self) -> Option<Arc<ByKey>> {
        (self.hooks & HAS_FENCES != 0).then(|| self.fences.at_cut())
    }

    /// Gives a fence to the lock under a key, which must exist; the lock becomes held if it takes no more than `room`
    /// bytes.
    pub(crate) fn put_fence(&mut self, key: &[u8], fence: Fence, room: u64) {
        self.hooks |= HAS_FENCES;
        if self.keeps_images() {
            self.fences.keep_changes();
        }
        self.charged(|db| db.fences.put(key, fence));
        self.begin_hold(key, room);
    }

    /// Drops the fence of a key that is removed or gets another value.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_fence(&mut self, key: &[u8]) {
        if self.keeps_images() {
            self.fences.keep_changes();
        }
        self.fences.remove(key);
        self.settle_fences();
        self.publish_held();
    }

    pub(super) fn settle_fences(&mut self) {
        match self.fences.is_empty() {
            true => self.hooks &= !HAS_FENCES,
            false => self.hooks |= HAS_FENCES,
        }
    }

    /// Commits the changes to fences that the current attempt made.
    pub(crate) fn commit_fences(&mut self) {
        self.fences.forget_changes();
    }

    /// Rolls fences back to their state before the attempt.
    pub(crate) fn undo_fences(&mut self) {
        let changed = self.charged(|db| db.fences.undo());
        self.settle_fences();
        for (key, _) in &changed {
            self.restore_hold(key);
        }
        self.publish_held();
        account::uncharged(|| drop(changed));
    }
}
