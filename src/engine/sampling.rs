//! Memory analysis of a shard by randomly sampled entries: for diagnosis, never for a client's command.

use super::expire::is_over;
use super::value::object::entry_bytes;
use super::value::{DataType, ObjectKind};
use super::{Engine, Key, Now};

impl Engine {
    /// True if a key exists. Nothing is counted, touched or deleted.
    pub fn is_there(&self, index: usize, key: &Key<'_>, now: Now) -> bool {
        let db = self.dbs.get(index).and_then(|db| db.as_deref());
        let found = db.and_then(|db| Some(db.at(db.find(key)?)));
        found.is_some_and(|entry| !is_over(entry, now.unix_ms))
    }

    /// Calls `visit` with key, type and bytes of `count` randomly sampled entries of a database; never if the
    /// database is empty.
    pub fn sample(
        &mut self,
        index: usize,
        count: usize,
        mut visit: impl FnMut(&[u8], DataType, u64),
    ) {
        let Engine { dbs, random, .. } = self;
        let Some(db) = dbs.get(index).and_then(|db| db.as_deref()) else {
            return;
        };
        for _ in 0..count {
            let Some(place) = db.table.random(&mut || random.next_u64()) else {
                return;
            };
            let entry = db.at(place);
            let data_type = ObjectKind(entry.kind()).data_type();
            visit(entry.key(), data_type, entry_bytes(entry) as u64);
        }
    }
}
