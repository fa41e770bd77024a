//! The fences of locks, as handlers and loaders give and ask them; see [`fences`](super::fences).

use super::fences::Fence;
use super::keyspace::Keyspace;
use super::{Engine, Key};

impl Keyspace<'_> {
    /// The fence of the lock under a key, if it was drawn for this owner.
    pub fn fence(&mut self, key: &[u8], owner: &[u8]) -> Option<u64> {
        let db = self.db_index();
        let fence = self.engine().db(db)?.fence(key)?;
        fence.is_of(owner).then_some(fence.number)
    }

    /// Draws a fence for the owner of the lock under a key, which is there.
    pub fn draw_fence(&mut self, key: &[u8], owner: &[u8]) -> Fence {
        let (db, now) = (self.db_index(), self.now());
        let engine = self.engine();
        let fence = Fence::of(engine.fence_source.next(now), owner);
        if let Some(db) = engine.db_mut(db) {
            db.put_fence(key, fence);
        }
        fence
    }
}

impl Engine {
    /// Another server has drawn a fence: all that are drawn here are larger, and the lock has it, if its key is here
    /// and it is said for whom it was drawn.
    pub fn note_fence(&mut self, db: usize, key: &[u8], fence: Fence) {
        self.fence_source.raise(fence.number);
        let key = Key::new(key, self.seed());
        if fence.owner != Fence::NOBODY
            && let Some(db) = self.db_mut(db)
            && db.find(&key).is_some()
        {
            db.put_fence(key.bytes, fence);
        }
    }
}
