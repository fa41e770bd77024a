//! Defragmentation (`activedefrag`): moves allocations out of sparse slabs of the allocator, in slices, so that the
//! slabs become empty and are returned to the system.
//!
//! A walk covers all databases of a shard: their tables with the entries, and the parts of large collections. A
//! slice takes some 100 µs. Changes between two slices do not matter: a key that is added or removed meanwhile may
//! be left out of this walk.

use super::{Engine, Key};
use crate::value::{CollectionCursor, Object};
use basalt_core::alloc::account;
use basalt_core::alloc::slabs::Mover;
use basalt_core::structures::entry::{EntryRef, Value};

/// Entries examined by a slice.
const ENTRIES_PER_SLICE: usize = 128;

/// The progress of a walk over one shard.
#[derive(Default)]
pub struct Walk {
    db: usize,
    position: u64,
    is_table_done: bool,
    /// Large collections of the segments walked last, and the progress in each.
    collections: Vec<(Box<[u8]>, CollectionCursor)>,
    /// Keys of which some allocation was moved.
    pub keys_moved: u64,
    /// Keys that were examined and not moved.
    pub keys_left_alone: u64,
}

fn is_collection(entry: EntryRef<'_, Object>) -> bool {
    matches!(entry.value(), Value::Object(_))
}

impl Engine {
    /// Continues a walk. Returns false at its end.
    pub fn defrag_slice(&mut self, walk: &mut Walk, mover: &mut Mover) -> bool {
        if let Some((name, from)) = walk.collections.pop() {
            let moved = mover.moved;
            let next = self.relocate_collection(walk.db, &name, from, mover);
            walk.keys_moved += u64::from(mover.moved > moved);
            if next != CollectionCursor::default() {
                walk.collections.push((name, next));
            }
            return true;
        }
        if std::mem::take(&mut walk.is_table_done) {
            walk.db += 1;
        }
        let Some(db) = self.dbs.get_mut(walk.db) else {
            return false;
        };
        if let Some(db) = db.as_deref_mut() {
            let (moved, left_alone) = (mover.moved, mover.left_alone);
            walk.position = db.charged(|db| {
                let collections = &mut walk.collections;
                db.table
                    .relocate_some(walk.position, ENTRIES_PER_SLICE, mover, |entry| {
                        if is_collection(entry) {
                            account::uncharged(|| {
                                collections.push((entry.key().into(), CollectionCursor::default()))
                            });
                        }
                    })
            });
            walk.keys_moved += mover.moved - moved;
            walk.keys_left_alone += mover.left_alone - left_alone;
        } else {
            walk.position = 0;
        }
        // The database is done once its large collections are done too.
        walk.is_table_done = walk.position == 0;
        true
    }

    /// Continues with one large collection. Returns the position at which to continue.
    fn relocate_collection(
        &mut self,
        index: usize,
        name: &[u8],
        from: CollectionCursor,
        mover: &mut Mover,
    ) -> CollectionCursor {
        let key = Key::new(name, self.seed);
        let Some(db) = self.dbs.get_mut(index).and_then(|db| db.as_deref_mut()) else {
            return CollectionCursor::default();
        };
        let Some(place) = db.find(&key) else {
            return CollectionCursor::default();
        };
        db.charged(|db| match db.table.edit(place).object_mut() {
            Some(object) => object.relocate_some(from, ENTRIES_PER_SLICE, mover),
            None => CollectionCursor::default(),
        })
    }
}

#[cfg(all(test, not(any(miri, feature = "system-allocator"))))]
mod tests {
    use super::*;
    use crate::Now;
    use crate::keyspace::Deadline;
    use crate::value::sorted_set::{SortedSetLimits, SortedSetMut};
    use basalt_core::base::hash::HashSeed;
    use basalt_core::structures::ordered::OrderedIndexType;

    const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };
    const NOW: Now = Now { unix_ms: 1_000 };

    fn name(index: usize) -> String {
        format!("key:{index}")
    }

    #[test]
    fn a_walk_moves_what_is_sparse_and_changes_nothing_that_can_be_seen() {
        let mut engine = Engine::new(2, SEED, 1);
        let value = |index: usize| vec![index as u8; 40 + index % 100];
        for db in [0, 1] {
            for index in 0..20_000 {
                let name = name(index);
                let key = Key::new(name.as_bytes(), SEED);
                let deadline = Deadline::At(2_000 + index as u64);
                engine
                    .keyspace(db, NOW)
                    .put_text(&key, None, &value(index), deadline);
            }
            for index in (0..20_000).filter(|index| index % 8 != 0) {
                let name = name(index);
                let key = Key::new(name.as_bytes(), SEED);
                let mut keyspace = engine.keyspace(db, NOW);
                let place = keyspace.find_write(&key).expect("stored above");
                keyspace.delete(place);
            }
        }
        let used = engine.used_bytes();
        let mut mover = Mover::new(10).expect("jemalloc can be asked");
        let mut walk = Walk::default();
        let mut slices = 0;
        while engine.defrag_slice(&mut walk, &mut mover) {
            slices += 1;
        }
        assert!(slices > 10, "a slice is bounded: {slices}");
        assert!(mover.moved > 3_000, "{} of 5000", mover.moved);
        assert_eq!(engine.used_bytes(), used);
        for db in [0, 1] {
            for index in (0..20_000).step_by(8) {
                let name = name(index);
                let key = Key::new(name.as_bytes(), SEED);
                let mut keyspace = engine.keyspace(db, NOW);
                let place = keyspace.find_write(&key).expect("it was not deleted");
                let entry = keyspace.entry(place);
                assert!(matches!(entry.value(), Value::Bytes(bytes) if bytes == value(index)));
                assert_eq!(entry.deadline(), Some(2_000 + index as u64));
            }
        }
    }

    #[test]
    fn collections_of_which_everything_moves_are_paid_for_to_the_byte() {
        let mut engine = Engine::new(1, SEED, 1);
        let limits = SortedSetLimits {
            members: 10,
            member_bytes: 64,
            form: OrderedIndexType::Tree,
            seed: SEED,
        };
        let key = |name: &'static str| Key::new(name.as_bytes(), SEED);
        // The table of the database stays after it has become empty.
        engine
            .keyspace(0, NOW)
            .put_text(&key("other"), None, b"v", Deadline::Clear);
        let used = engine.used_bytes();
        let mut keyspace = engine.keyspace(0, NOW);
        let place = keyspace.create(&key("ranking"), || SortedSetMut::empty_entry(b"ranking"));
        keyspace.edit(place, |entry| {
            let mut set = SortedSetMut::new(entry, limits);
            for number in 0..5_000 {
                set.update(name(number).as_bytes(), 0.0, |_| Some(number as f64));
            }
        });
        let mut mover = Mover::of_everything();
        let mut walk = Walk::default();
        while engine.defrag_slice(&mut walk, &mut mover) {}
        assert!(mover.moved > 5_000);
        let mut keyspace = engine.keyspace(0, NOW);
        let place = keyspace.find_write(&key("ranking")).expect("stored above");
        keyspace.delete(place);
        assert_eq!(engine.used_bytes(), used);
    }
}
