//! Feeds the miss ratio curve (hit rate by cache size, estimated): reports uses of sampled keys to [`ReuseDistance`].
//!
//! Command paths contain a single comparison of the key's hash with a published threshold, which lies in a cache line
//! that the command touches anyway. Everything else is here, off the hot path. The curve identifies keys by their
//! hash, so keys of the same name in two databases count as one key.

use super::published::DbCounts;
use super::{Engine, Key, Now};
use basalt_core::structures::reuse_distance::{ReuseDistance, Totals};
use basalt_core::structures::table::EntrySlot;

impl Engine {
    /// Turns the curve on or off, as the configuration says.
    pub fn toggle_miss_ratio_curve(&mut self, now: Now) {
        if !self.published.has_curve_to_switch() {
            return;
        }
        if self.published.keeps_curve() {
            self.reuse = None;
            self.published.curve.clear();
            self.published.set_followed_below(0);
        } else {
            let reuse = Box::new(ReuseDistance::new(self.totals(now)));
            self.published.set_followed_below(reuse.below());
            self.reuse = Some(reuse);
        }
    }

    fn totals(&self, now: Now) -> Totals {
        let all = self.counts().into_iter();
        let counts = all.fold(DbCounts::default(), DbCounts::plus);
        Totals {
            reads: counts.hits + counts.misses,
            hits: counts.hits,
            memory_bytes: self.published.used_bytes().max(0).unsigned_abs(),
            now_ms: now.unix_ms,
        }
    }

    /// Reports that a command read a sampled key.
    #[cold]
    #[inline(never)]
    pub(super) fn followed_was_read(&mut self, bytes: Option<usize>, key: &Key<'_>, now: Now) {
        let totals = self.totals(now);
        if let Some(reuse) = &mut self.reuse {
            reuse.read(key.hash, bytes, totals, &self.published.curve);
            self.published.set_followed_below(reuse.below());
        }
    }

    /// Reports that a sampled key was written, or is about to be.
    #[cold]
    #[inline(never)]
    pub(super) fn followed_was_written(&mut self, bytes: usize, key: &Key<'_>, now: Now) {
        let totals = self.totals(now);
        if let Some(reuse) = &mut self.reuse {
            reuse.write(key.hash, bytes, totals);
            self.published.set_followed_below(reuse.below());
        }
    }

    /// Must be called before an entry is deleted, or expires. Not called for evictions: a larger cache would still
    /// contain an evicted key, and that is what the curve measures.
    #[inline]
    pub(super) fn leaves(&mut self, db: usize, place: EntrySlot) {
        if let Some(db) = self.dbs[db].as_deref()
            && self.published.may_follow(db.table.hash_byte(place))
        {
            let hash = self.seed.hash(db.at(place).key());
            self.forget_followed(hash);
        }
    }

    #[cold]
    fn forget_followed(&mut self, hash: u64) {
        if self.published.follows(hash)
            && let Some(reuse) = &mut self.reuse
        {
            reuse.forget(hash);
            self.published.set_followed_below(reuse.below());
        }
    }

    /// Drops all sampled keys, as a database was emptied. Keys of other databases are sampled again when they are
    /// used.
    pub(super) fn follow_none(&mut self) {
        if let Some(reuse) = &mut self.reuse {
            reuse.clear();
            self.published.set_followed_below(reuse.below());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Deadline;
    use basalt_core::base::hash::HashSeed;

    const SEED: HashSeed = HashSeed { k0: 3, k1: 4 };

    fn engine() -> Engine {
        let mut engine = Engine::new(2, SEED, 1);
        engine.published().want_curve(true);
        engine.toggle_miss_ratio_curve(Now::default());
        engine
    }

    /// Returns names of keys that are sampled from the start.
    fn followed(engine: &Engine, count: usize) -> Vec<String> {
        (0..)
            .map(|number| format!("key{number}"))
            .filter(|name| engine.published().follows(SEED.hash(name.as_bytes())))
            .take(count)
            .collect()
    }

    fn set(engine: &mut Engine, name: &str, deadline: Deadline) {
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, &[b'v'; 80], deadline);
    }

    fn get(engine: &mut Engine, name: &str, now_ms: u64) -> bool {
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: now_ms });
        keyspace.find_read(&key).is_some()
    }

    fn len(engine: &Engine) -> usize {
        engine.reuse.as_ref().map_or(0, |reuse| reuse.len())
    }

    #[test]
    fn keys_are_followed_from_their_first_write_to_their_end() {
        let mut engine = engine();
        let names = followed(&engine, 5);
        for name in &names {
            set(&mut engine, name, Deadline::Clear);
        }
        assert_eq!(len(&engine), 5);
        assert!(get(&mut engine, &names[0], 1_000));
        let estimate = engine.published().curve.estimate([0, 1 << 40]);
        assert!(estimate.reads > 0.0 && estimate.misses[1] == 0.0);
        // A deleted or expired key would be found by no cache, however large.
        let key = Key::new(names[1].as_bytes(), SEED);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
        let place = keyspace.find_write(&key).expect("it is there");
        keyspace.delete(place);
        assert_eq!(len(&engine), 4);
        set(&mut engine, &names[2], Deadline::At(2_000));
        assert!(!get(&mut engine, &names[2], 3_000));
        assert_eq!(len(&engine), 3);
        assert!(engine.published().curve.estimate([1 << 40]).misses[0] > 0.0);
        engine.flush_db(0);
        assert_eq!(len(&engine), 0);
    }

    #[test]
    fn a_curve_that_nobody_wants_costs_nothing_and_says_nothing() {
        let mut engine = engine();
        let name = &followed(&engine, 1)[0];
        set(&mut engine, name, Deadline::Clear);
        get(&mut engine, name, 1_000);
        engine.published().want_curve(false);
        engine.toggle_miss_ratio_curve(Now::default());
        assert!(engine.reuse.is_none() && !engine.published().keeps_curve());
        assert!(!engine.published().follows(0));
        assert_eq!(engine.published().curve.estimate([1]).reads, 0.0);
        get(&mut engine, name, 1_000);
        assert_eq!(engine.published().curve.estimate([1]).reads, 0.0);
    }

    #[test]
    fn what_leaves_no_trace_in_access_bits_leaves_none_in_the_curve() {
        let mut engine = engine();
        let name = &followed(&engine, 1)[0];
        set(&mut engine, name, Deadline::Clear);
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 }).untouched();
        assert!(keyspace.find_read(&key).is_some());
        assert_eq!(engine.published().curve.estimate([1]).reads, 0.0);
    }
}
