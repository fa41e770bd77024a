//! Tag invalidation: the keys of the tag become invisible at once, and are deleted in slices.

use super::Engine;
use super::db::Db;
use super::effect::Event;
use super::undo::DbChange;
use basalt_core::structures::table::EntrySlot;

/// Keys of a tag deleted in one slice.
const FREED_PER_SLICE: usize = 64;

/// Number of keys that an invalidation deletes at once in each shard, while all shards are locked.
const FREED_AT_ONCE: usize = 16;

/// Number of keys that a command deletes at once in all shards together, whatever their number: enough to finish a
/// small tag, and some 0.1 ms of work.
pub const FREED_AT_ONCE_IN_ALL: usize = 256;

impl Engine {
    /// Invalidates a tag: its keys become invisible. Some of them are deleted here, the others by the background.
    /// Returns the number of keys that had the tag.
    ///
    /// `deletions_left` is how many keys the command may still delete, see [`FREED_AT_ONCE_IN_ALL`].
    pub fn invalidate_tag(
        &mut self,
        index: usize,
        name: &[u8],
        deletions_left: &mut usize,
    ) -> usize {
        self.waiters.note_invalidated(index, name);
        let db = self.dbs[index].as_deref_mut();
        let Some((id, count)) = db.and_then(|db| db.invalidate_tag(name)) else {
            return 0;
        };
        if let Some(attempt) = &mut self.attempt {
            attempt.note(DbChange::TagInvalidated(index, id));
        }
        self.published.tags.invalidated.add(1);
        let here = FREED_AT_ONCE.min(*deletions_left);
        let mut left = here;
        if here == 0 || self.free_invalidated_of(index, &mut left) {
            self.published.next_deadline_ms.set(0);
        }
        *deletions_left -= here - left;
        count
    }

    /// Deletes some keys of invalidated tags, and frees the names of tags without keys. Returns true while there are
    /// more to delete.
    pub fn free_invalidated(&mut self) -> bool {
        let mut more = false;
        for index in 0..self.dbs_end {
            more |= self.free_invalidated_of(index, &mut { FREED_PER_SLICE });
            if let Some(db) = self.dbs[index].as_deref_mut() {
                db.charged(Db::sweep_tags);
            }
        }
        more
    }

    /// Deletes at most `left` keys of invalidated tags of one database, and counts `left` down. Returns true while
    /// there are more to delete.
    fn free_invalidated_of(&mut self, index: usize, left: &mut usize) -> bool {
        loop {
            let db = self.dbs[index].as_deref_mut();
            let Some(void) = db.and_then(|db| db.charged(|db| db.void_keys((*left).max(1)))) else {
                return false;
            };
            if *left == 0 {
                return true;
            }
            *left = left.saturating_sub(void.shorts.len());
            for short in void.shorts {
                let db = self.dbs[index].as_deref_mut();
                let place = db.as_ref().and_then(|db| db.find_tagged(short, void.id));
                match (place, db) {
                    (Some(place), _) => self.delete_invalidated(index, place),
                    (None, Some(db)) => db.forget_tagged(short, void.id),
                    (None, None) => {}
                }
            }
        }
    }

    /// Deletes a key with an invalidated tag.
    #[cold]
    pub(super) fn delete_invalidated(&mut self, index: usize, place: EntrySlot) {
        self.leaves(index, place);
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let entry = db.at(place);
        self.effects.expired(index, entry.key(), Event::DEL);
        self.effects.log_lost(index, entry.key(), true);
        self.waiters.key_changed(index, entry.key());
        let stamp = self.effects.stamp();
        self.watches.key_changed(index, entry.key(), stamp);
        self.published.tags.keys_invalidated.add(1);
        let trash = db.charged(|db| db.delete(place));
        self.discard(index, trash);
    }
}
