//! Keys by hash slot, for a server that is a cluster or a part of one: the contents of a slot, and the deletion of
//! the keys of a slot that moved to another server. The data structure is in `db/slots.rs`.

use smallvec::SmallVec;

use super::Engine;
use basalt_core::base::hash::slot;

/// Keys of a slot deleted after each lookup of the next keys to delete.
const DELETED_TOGETHER: usize = 64;

/// Returns the position of a key with this hash in walks over a slot: once a walk returns a position, it has visited
/// all keys with lower positions that existed throughout.
pub fn walk_position(hash: u64) -> u64 {
    u64::from(super::short_hash::shorten(hash))
}

impl Engine {
    /// Starts indexing keys by slot, in an engine without data that is one of `shard_count` shards, a power of two.
    /// The index costs five bytes per key, and 240 to 290 instructions per insertion or removal.
    pub fn keep_slots(&mut self, shard_count: u16) {
        assert!(
            shard_count.is_power_of_two(),
            "shards are a power of two, of slots too"
        );
        debug_assert!(self.dbs.iter().all(Option::is_none));
        for db in &self.published.dbs {
            db.slots_in_use.keep(shard_count.ilog2());
        }
        self.slot_shards = Some(shard_count);
    }

    /// True if keys are indexed by slot and this shard owns the slot.
    pub fn has_slot(&self, slot: u16) -> bool {
        self.slot_shards
            .is_some_and(|shard_count| slot & (shard_count - 1) == self.shard)
    }

    /// Returns the number of keys of one of this shard's slots in all databases, including expired keys that have
    /// not been deleted yet.
    pub fn keys_in_slot(&self, slot: u16) -> u64 {
        if !self.has_slot(slot) {
            return 0;
        }
        let dbs = self.dbs.iter().flatten();
        dbs.map(|db| db.keys_in_slot(slot)).sum()
    }

    /// Sets whether a slot of this shard is being imported: commands that list or count all keys leave its keys out
    /// meanwhile.
    pub fn set_coming(&mut self, slot: u16, is_coming: bool) {
        match is_coming {
            true => self.coming.insert(slot),
            false => self.coming.remove(&slot),
        };
    }

    /// True if a key belongs to a slot that is being imported.
    #[inline]
    pub(super) fn is_coming(&self, key: &[u8]) -> bool {
        !self.coming.is_empty() && self.coming.contains(&slot(key))
    }

    /// Deletes `count` keys, or slightly more, of a slot that this server no longer owns. Returns the number of
    /// deleted keys, less than `count` if no keys are left. As in Redis, deletions are logged one by one, as UNLINK
    /// if configured (`lazyfree-lazy-server-del`), else as DEL; clients that watch, wait for or cache the keys are
    /// notified; no keyspace event is raised, as no client deleted anything.
    ///
    /// Like every change, the deletion must be followed by the usual work of the thread that has locked the shard:
    /// deliveries and the log.
    pub fn delete_of_slot(&mut self, db: usize, wanted: u16, count: usize, unlinks: bool) -> usize {
        if !self.has_slot(wanted) {
            return 0;
        }
        let seed = self.seed;
        let mut deleted = 0;
        while deleted < count {
            let Some(database) = self.db(db) else { break };
            let mut hashes = SmallVec::<[u64; DELETED_TOGETHER]>::new();
            let together = (count - deleted).min(DELETED_TOGETHER);
            database.walk_slot(wanted, 0, together, |entry| {
                hashes.push(seed.hash(entry.key()));
            });
            if hashes.is_empty() {
                break;
            }
            for hash in hashes {
                self.delete_lost(db, wanted, hash, unlinks);
                deleted += 1;
            }
        }
        deleted
    }

    /// Deletes the key with this hash if it belongs to the slot.
    fn delete_lost(&mut self, index: usize, wanted: u16, hash: u64, unlinks: bool) {
        let seed = self.seed;
        let Some(db) = self.db(index) else { return };
        let place = db.table.find_by_hash(hash, |entry| {
            seed.hash(entry.key()) == hash && slot(entry.key()) == wanted
        });
        let Some(place) = place else {
            debug_assert!(false, "it was found just now");
            return;
        };
        self.leaves(index, place);
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let entry = db.at(place);
        self.effects.lost(index, entry.key());
        self.effects.log_lost(index, entry.key(), unlinks);
        self.waiters.key_changed(index, entry.key());
        let stamp = self.effects.stamp();
        self.watches.key_changed(index, entry.key(), stamp);
        self.published.dirty.add(1);
        let trash = db.charged(|db| db.delete(place));
        self.discard(index, trash);
    }
}

#[cfg(test)]
mod tests;
