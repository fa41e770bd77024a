//! Access to the fencing tokens of locks for handlers and loaders; see [`fences`](super::fences).
//!
//! A lock is held, and so never evicted, from the moment it gets its fence for as long as it has the form that LOCK
//! creates ([`Db`](super::db::Db), `lock_bytes`). Held locks use at most a sixteenth of the memory limit over all
//! shards: their bytes are counted in one place for all shards, and a lock that would exceed the sixteenth is not
//! held, that is, evictable. Threads that check concurrently may exceed it by one small lock each, and locks that are
//! taken repeatedly may exceed it by the digits of their counts. A replica holds what its primary held, regardless of
//! its own limit.

use super::db::eviction::{LOCK_BYTES_MAX, lock_overhead_bytes};
use super::fences::{Fence, TooFar};
use super::keyspace::Keyspace;
use super::{Engine, Key, Now};

/// The fraction of the memory limit that held locks may use, as they are not evicted.
const LOCKS_PART: u64 = 16;

/// Maximum bytes of a lock's hash, without the names of its key and its owner.
const ENTRY_BYTES: usize = 40;

/// Additional bytes of the hash if the owner's name is too long for a listpack.
const TABLE_BYTES: usize = 352;

/// Returns an upper estimate of a lock's bytes, by key and owner. `is_small` tells whether the lock will be a small
/// hash.
fn coming_bytes(key: &[u8], owner: &[u8], is_small: bool) -> usize {
    let names = key.len() + owner.len();
    // Rounded up, as allocators do.
    let entry = match is_small {
        true => ENTRY_BYTES + names + names / 4,
        false => ENTRY_BYTES + TABLE_BYTES + names + names / 4,
    };
    entry + lock_overhead_bytes(key.len())
}

impl Keyspace<'_> {
    /// True if a lock with this key and owner may be created: the capacity for held locks suffices, or the lock is
    /// too large to be held at all. `is_small` tells whether the lock will be a small hash.
    pub fn may_hold(&mut self, key: &[u8], owner: &[u8], is_small: bool) -> bool {
        let bytes = coming_bytes(key, owner, is_small);
        bytes > LOCK_BYTES_MAX || bytes as u64 <= self.engine().room_for_locks()
    }

    /// Marks the lock under a key as held if it was not and there is capacity. The lock has a fence and has just been
    /// given a new deadline.
    pub fn hold(&mut self, key: &[u8]) {
        let (db, room) = (self.db_index(), self.engine().room_for_locks());
        if let Some(db) = self.engine().db_mut(db) {
            db.begin_hold(key, room);
        }
    }

    /// Returns the fencing token of the lock under a key, if it was issued to this owner.
    pub fn fence(&mut self, key: &[u8], owner: &[u8]) -> Option<u64> {
        let db = self.db_index();
        let fence = self.engine().db(db)?.fence(key)?;
        fence.is_of(owner).then_some(fence.number)
    }

    /// Issues a fencing token to the owner of the lock under a key, which must exist.
    pub fn draw_fence(&mut self, key: &[u8], owner: &[u8]) -> Fence {
        let (db, now) = (self.db_index(), self.now());
        let engine = self.engine();
        let fence = Fence::of(engine.fence_source.next(now), owner);
        let room = engine.room_for_locks();
        if let Some(db) = engine.db_mut(db) {
            db.put_fence(key, fence, room);
        }
        fence
    }
}

impl Engine {
    /// Returns the bytes still available for held locks.
    fn room_for_locks(&self) -> u64 {
        let budget = self.budget();
        match u64::try_from(budget.limit_bytes()).unwrap_or(0) {
            limit if limit > 0 && budget.policy().evicts() => {
                (limit / LOCKS_PART).saturating_sub(budget.held_bytes())
            }
            _ => u64::MAX,
        }
    }

    /// Takes over the fence that another server, or an earlier run of this one, has issued for the lock under a
    /// key: all tokens issued here from now on are larger, and the lock gets the fence if its key is here.
    pub fn note_fence(
        &mut self,
        db: usize,
        key: &[u8],
        fence: Fence,
        now: Now,
    ) -> Result<(), TooFar> {
        self.fence_source.raise(fence.number, now)?;
        let (key, room) = (Key::new(key, self.seed()), self.room_for_locks());
        if let Some(db) = self.db_mut(db)
            && db.find(&key).is_some()
        {
            db.put_fence(key.bytes, fence, room);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
