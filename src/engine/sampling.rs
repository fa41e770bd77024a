//! What a shard's memory is made of, by entries drawn at random: for who looks at it, never for a client's command.

use super::expire::is_over;
use super::value::object::entry_bytes;
use super::value::{DataType, Kind};
use super::{Engine, Key, Now};

impl Engine {
    /// Whether a key is there, which leaves no trace.
    pub fn is_there(&self, index: usize, key: &Key<'_>, now: Now) -> bool {
        let db = self.dbs.get(index).and_then(|db| db.as_deref());
        let found = db.and_then(|db| Some(db.at(db.find(key)?)));
        found.is_some_and(|entry| !is_over(entry, now.unix_ms))
    }

    /// Calls with key, type and bytes of so many entries of a database, drawn at random; of fewer where it is empty.
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
            let data_type = Kind(entry.kind()).data_type();
            visit(entry.key(), data_type, entry_bytes(entry) as u64);
        }
    }
}
