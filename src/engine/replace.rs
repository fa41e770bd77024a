//! Replacement of all data of a shard by data that was assembled separately, invisible to clients.

use std::sync::Arc;

use super::{Engine, Key};

impl Engine {
    /// Replaces the databases by those of another engine; the old ones are freed in slices. Returns the number of
    /// removed keys. Clients that cache, watch or wait for keys are notified of the change.
    pub fn replace_data(&mut self, other: &mut Engine) -> usize {
        let mut removed = 0;
        for index in 0..self.dbs.len() {
            removed += self.flush_db(index);
            let Some(mut db) = other.dbs.get_mut(index).and_then(Option::take) else {
                continue;
            };
            assert_eq!(
                db.keeps_slots(),
                self.slot_shards.is_some(),
                "both servers' shards are of one kind"
            );
            db.hide();
            db.join(Arc::clone(&self.published), index);
            db.charged(|db| db.set_order(self.order));
            if !self.watches.is_empty() {
                self.effects.changed(0);
                let (stamp, seed) = (self.effects.stamp(), self.seed);
                self.watches
                    .database_changed(index, stamp, |key| db.find(&Key::new(key, seed)).is_some());
            }
            self.dbs[index] = Some(db);
            self.dbs_end = self.dbs_end.max(index + 1);
            self.waiters.database_changed(index);
        }
        let bytes = other.published.used_bytes();
        other.published.add_used(-bytes);
        self.published.add_used(bytes);
        self.published.next_deadline_ms.set(0);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Now;
    use crate::keyspace::Deadline;
    use basalt_core::base::hash::HashSeed;

    fn put(engine: &mut Engine, db: usize, name: &[u8], value: &[u8]) {
        let key = Key::new(name, engine.seed());
        let mut keyspace = engine.keyspace(db, Now::default());
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, value, Deadline::Clear);
    }

    #[test]
    fn data_and_accounts_are_those_of_the_other() {
        let seed = HashSeed { k0: 1, k1: 2 };
        let mut engines = [Engine::new(4, seed, 1), Engine::new(4, seed, 1)];
        let [here, aside] = &mut engines;
        put(here, 0, b"old", &[b'x'; 5000]);
        put(here, 2, b"old", b"x");
        for number in 0..100 {
            put(aside, 0, format!("new{number}").as_bytes(), b"y");
        }
        put(aside, 3, b"new", b"y");
        let bytes = aside.used_bytes();
        assert_eq!(here.replace_data(aside), 2);
        assert_eq!(aside.used_bytes(), 0);
        assert!(here.used_bytes() >= bytes);
        let keys: Vec<u64> = here
            .published()
            .dbs
            .iter()
            .map(|db| db.keys.get())
            .collect();
        assert_eq!(keys, [100, 0, 0, 1]);
        let found =
            |engine: &Engine, db, name: &[u8]| engine.peek(db, &Key::new(name, seed)).is_some();
        assert!(found(here, 0, b"new7") && found(here, 3, b"new"));
        assert!(!found(here, 0, b"old") && !found(here, 2, b"old"));
        put(here, 0, b"later", b"z");
        assert_eq!(here.published().dbs[0].keys.get(), 101);
    }
}
