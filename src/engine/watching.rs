//! Keys of this shard that are watched by transactions (WATCH), and the stamps of their last changes.
//!
//! Stamps order what happens on a shard, and a connection knows the largest that it has seen: a key whose change has
//! a larger stamp changed after the connection began to watch it. So a change need not notify any connection.
//!
//! Invariants: a key has an entry here while it is watched; without watched keys no memory is used.

use std::collections::HashMap;
use std::sync::Arc;

use super::published::Published;
use super::waiting::Place;
use super::{Engine, Key, Now};
use basalt_core::base::maps;

/// A key that must not change before EXEC.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Database of the key.
    pub db: usize,
    /// Name of the key.
    pub key: Box<[u8]>,
    /// Hash of the key.
    pub hash: u64,
    /// Shard of the key.
    pub shard: u16,
    /// The largest stamp known to the connection when it began to watch.
    pub stamp: u64,
    /// Number of times that the connection asked to watch the key.
    pub times: usize,
}

impl Watched {
    /// Returns the key in the form that engines look up.
    pub fn key(&self) -> Key<'_> {
        Key {
            bytes: &self.key,
            hash: self.hash,
        }
    }

    /// Deletes the key if it has expired meanwhile, which counts as a change.
    pub fn expire(&self, engine: &mut Engine, now: Now) {
        let mut keyspace = engine.keyspace(self.db, now).untouched();
        let _ = keyspace.find_write(&self.key());
    }

    /// True if the key changed after its connection began to watch it.
    pub fn has_changed(&self, engine: &mut Engine, now: Now) -> bool {
        self.expire(engine, now);
        let Watched { db, key, stamp, .. } = self;
        engine.watches.changed_since(*db, key, *stamp)
    }

    /// Ends the watch of the key on behalf of its connection.
    pub fn forget(&self, engine: &mut Engine) {
        engine.watches.remove(self.db, &self.key, self.times);
    }
}

/// The watched keys of a shard, see the module.
#[derive(Debug, Default)]
pub struct Watches {
    keys: HashMap<Place, Watch>,
    /// The stamps replaced during an attempt, oldest first, for undo.
    replaced: Option<Vec<(Place, Stamps)>>,
    published: Option<Arc<Published>>,
}

#[derive(Debug, Default)]
struct Watch {
    watchers: usize,
    stamps: Stamps,
}

/// The stamps of a key's last changes.
#[derive(Clone, Copy, Debug, Default)]
struct Stamps {
    /// Stamp of the last change of the key's data.
    changed: u64,
    /// Stamp of the last change that left the data as it was, such as a read of a stream's group.
    touched: u64,
}

impl Watches {
    /// Creates an empty set of watches that publishes the number of watched keys in `published`.
    pub fn published_in(published: Arc<Published>) -> Watches {
        Watches {
            published: Some(published),
            ..Watches::default()
        }
    }

    fn publish(&self) {
        if let Some(published) = &self.published {
            published.watched_keys.set(self.keys.len() as u64);
        }
    }

    /// Adds a watcher to a key.
    pub fn add(&mut self, db: usize, key: &[u8]) {
        self.keys.entry((db, key.into())).or_default().watchers += 1;
        self.publish();
    }

    /// Removes a watcher that had asked to watch a key `times` times.
    pub fn remove(&mut self, db: usize, key: &[u8], times: usize) {
        let place: Place = (db, key.into());
        if let Some(watch) = self.keys.get_mut(&place) {
            watch.watchers = watch.watchers.saturating_sub(times);
            if watch.watchers == 0 {
                self.keys.remove(&place);
            }
        }
        maps::shrink(&mut self.keys);
        self.publish();
    }

    /// True if a watched key changed after this stamp.
    pub fn changed_since(&self, db: usize, key: &[u8], stamp: u64) -> bool {
        self.keys
            .get(&(db, Box::from(key)))
            .is_some_and(|watch| watch.stamps.changed > stamp)
    }

    /// True if anything about a watched key changed after this stamp, including the read state of a stream's groups.
    pub fn touched_since(&self, db: usize, key: &[u8], stamp: u64) -> bool {
        self.keys
            .get(&(db, Box::from(key)))
            .is_some_and(|watch| watch.stamps.changed.max(watch.stamps.touched) > stamp)
    }

    /// Records the stamp of a key's change, if the key is watched.
    #[inline]
    pub fn key_changed(&mut self, db: usize, key: &[u8], stamp: u64) {
        if !self.keys.is_empty() {
            self.note(db, key, |watch| watch.stamps.changed = stamp);
        }
    }

    /// Records a change to a key's metadata only, such as the read state of a stream's groups. The data stay the same,
    /// so EXEC does not fail.
    #[inline]
    pub fn key_touched(&mut self, db: usize, key: &[u8], stamp: u64) {
        if !self.keys.is_empty() {
            self.note(db, key, |watch| watch.stamps.touched = stamp);
        }
    }

    #[cold]
    fn note(&mut self, db: usize, key: &[u8], change: impl FnOnce(&mut Watch)) {
        let place: Place = (db, key.into());
        if let Some(watch) = self.keys.get_mut(&place) {
            let before = watch.stamps;
            change(watch);
            if let Some(replaced) = &mut self.replaced {
                replaced.push((place, before));
            }
        }
    }

    /// Starts recording changes for undo.
    #[inline]
    pub fn begin_attempt(&mut self) {
        // No client begins to watch keys while another thread has the shard locked.
        if !self.keys.is_empty() {
            self.replaced = Some(Vec::new());
        }
    }

    /// Keeps the changes of an attempt, and stops recording.
    #[inline]
    pub fn commit_attempt(&mut self) {
        if self.replaced.is_some() {
            self.replaced = None;
        }
    }

    /// Restores the stamps from before the attempt, and stops recording.
    pub fn undo_attempt(&mut self) {
        for (place, stamps) in self.replaced.take().into_iter().flatten().rev() {
            if let Some(watch) = self.keys.get_mut(&place) {
                watch.stamps = stamps;
            }
        }
    }

    /// Records the stamp of a change of many watched keys of a database at once: those for which `is_hit` is true.
    pub fn database_changed(&mut self, db: usize, stamp: u64, is_hit: impl Fn(&[u8]) -> bool) {
        for (place, watch) in &mut self.keys {
            if place.0 == db && is_hit(&place.1) {
                let before = watch.stamps;
                watch.stamps.changed = stamp;
                if let Some(replaced) = &mut self.replaced {
                    replaced.push((place.clone(), before));
                }
            }
        }
    }

    /// Returns the names of all watched keys of two databases.
    pub fn keys_of(&self, dbs: [usize; 2]) -> Vec<Box<[u8]>> {
        self.keys
            .keys()
            .filter(|(db, _)| dbs.contains(db))
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// True if no client watches any key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_leave_is_no_change_of_the_data() {
        let mut watches = Watches::default();
        watches.add(0, b"k");
        watches.key_touched(0, b"k", 5);
        assert!(!watches.changed_since(0, b"k", 4) && watches.touched_since(0, b"k", 4));
        watches.key_changed(0, b"k", 6);
        assert!(watches.changed_since(0, b"k", 5) && watches.touched_since(0, b"k", 5));
    }

    #[test]
    fn a_change_counts_for_those_who_watched_before_it() {
        let mut watches = Watches::default();
        watches.key_changed(0, b"k", 5);
        watches.add(0, b"k");
        assert!(!watches.changed_since(0, b"k", 0), "nobody watched then");
        watches.key_changed(1, b"k", 6);
        assert!(!watches.changed_since(0, b"k", 5), "another database");
        watches.key_changed(0, b"k", 7);
        watches.add(0, b"k");
        assert!(watches.changed_since(0, b"k", 5) && !watches.changed_since(0, b"k", 7));
        watches.remove(0, b"k", 1);
        assert!(watches.changed_since(0, b"k", 5), "one is left");
        watches.remove(0, b"k", 1);
        watches.remove(0, b"k", 1);
        assert!(watches.is_empty());
    }

    #[test]
    fn how_many_keys_are_watched_is_published() {
        let published = Arc::new(Published::new(1));
        let mut watches = Watches::published_in(Arc::clone(&published));
        watches.add(0, b"a");
        watches.add(0, b"a");
        watches.add(0, b"b");
        assert_eq!(published.watched_keys.get(), 2);
        watches.remove(0, b"b", 1);
        watches.remove(0, b"a", 1);
        assert_eq!(published.watched_keys.get(), 1);
        watches.remove(0, b"a", 1);
        assert_eq!(published.watched_keys.get(), 0);
    }
}
