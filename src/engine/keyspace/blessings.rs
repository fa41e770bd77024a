//! Blessings of keys for handlers and loaders; see [`blessed`](crate::blessed).

use super::Keyspace;
use crate::{Engine, Key};

impl Keyspace<'_> {
    /// True if a key is blessed, that is, protected from eviction.
    pub fn is_blessed(&self, key: &Key<'_>) -> bool {
        let db = self.engine.db(self.db);
        db.is_some_and(|db| db.is_blessed(key))
    }

    /// Blesses a key that exists, or ends its blessing. Returns whether that changed anything.
    pub fn set_blessed(&mut self, key: &Key<'_>, is_blessed: bool) -> bool {
        match self.engine.db_mut(self.db) {
            Some(db) => db.set_blessed(key, is_blessed),
            None => false,
        }
    }

    /// Visits blessed keys from a position on, and returns the position at which to continue; 0 at the end. Expired
    /// keys are left out, and so are those of slots that another node moves here.
    pub fn walk_blessed(
        &self,
        position: u64,
        count: usize,
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> u64 {
        let (engine, now_ms) = (&*self.engine, self.now.unix_ms);
        let Some(db) = engine.db(self.db) else {
            return 0;
        };
        db.walk_blessed(position, count, |key| {
            let found = db.find(&Key::new(key, engine.seed()));
            let is_shown = found.is_some_and(|place| !db.is_gone(db.at(place), now_ms));
            visit((is_shown && !engine.is_coming(key)).then_some(key));
        })
    }
}

impl Engine {
    /// Blesses a key as it was on another server or in an earlier run of this one, if it is here.
    pub fn note_blessing(&mut self, db: usize, key: &[u8]) {
        let key = Key::new(key, self.seed());
        if let Some(db) = self.db_mut(db) {
            db.set_blessed(&key, true);
        }
    }
}
