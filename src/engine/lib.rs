//! One shard's keyspace: databases, values, expiry, effects.
//!
//! Synchronous and deterministic: the caller passes in time and randomness. No I/O, no threads, no locks. An
//! [`Engine`] is `Send`, because any thread that holds the shard's lock (the *token*) may run it; two threads never
//! use it at once. State that other threads may read without the token is in [`published::Published`].

#![forbid(unsafe_code)]

mod alarms;
pub mod blessed;
pub mod db;
pub mod defrag;
pub mod effect;
pub mod evict;
pub mod expire;
pub mod fences;
pub mod holders;
pub mod hot_counts;
pub mod invalidation;
pub mod keyspace;
mod large_values;
pub mod largest;
pub mod leases;
mod locks;
pub mod marks;
pub mod migration;
mod miss_ratio;
pub mod note;
mod own_deadlines;
pub mod published;
pub mod record;
mod replace;
pub mod restored_access;
mod sampling;
pub mod serial;
mod short_hash;
pub mod sizes;
pub mod slot_usage;
pub mod slots;
pub mod snapshot;
pub mod tracking;
pub mod undo;
pub mod value;
pub mod waiting;
pub mod watching;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::reuse_distance::ReuseDistance;
use db::Db;
use effect::Effects;
use evict::budget::Budget;
use published::{DbCounts, Published};
use smallvec::SmallVec;

/// A key as routing prepares it: its bytes and their hash, computed once per request.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes of the key.
    pub bytes: &'a [u8],
    /// Keyed hash of all bytes of the key.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes a key that did not come with a request.
    pub fn new(bytes: &'a [u8], seed: HashSeed) -> Key<'a> {
        Key {
            bytes,
            hash: seed.hash(bytes),
        }
    }
}

/// The time at which a command runs, frozen for the whole command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// Data that a shard has released: flushed databases and huge values. Only the owner of this struct still refers to
/// them, so they are freed without the shard's lock (token).
pub struct Doomed {
    /// Each database with its number of keys.
    dbs: Vec<(Db, i64)>,
    values: Vec<value::Trash>,
    tracked: Vec<tracking::Forgotten>,
    freed_bytes: i64,
    /// Freed databases that have not yet been reported to the shard.
    freed_dbs: i64,
    budget: Arc<Budget>,
}

/// A shard that uses no more than this frees released databases immediately.
const FREED_AT_ONCE_BYTES: i64 = 16 * 1024;

/// Elements of a huge value freed in the time of one database segment; the two take about equally long.
const ELEMENTS_PER_SEGMENT: usize = 256;

impl Doomed {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.dbs.is_empty() && self.tracked.is_empty()
    }

    /// Frees up to `segments` table segments, or a comparable part of a huge value. Returns true while something is
    /// left to free.
    pub fn free_some(&mut self, segments: usize) -> bool {
        // The bytes of huge values were credited to the shard when the values were deleted.
        if let Some(trash) = self.values.last_mut() {
            if !trash.free_some(segments * ELEMENTS_PER_SEGMENT) {
                let bytes = trash.bytes();
                self.values.pop();
                self.budget.add_leaving(-bytes);
                self.budget.add_pending(-1);
            }
            return !self.is_empty();
        }
        // The table of tracked keys is not charged to any shard's account.
        if let Some(tracked) = self.tracked.last_mut() {
            if !tracked.drain_some(segments) {
                self.tracked.pop();
            }
            return !self.is_empty();
        }
        let before = basalt_core::alloc::account::charged_bytes();
        if let Some((db, keys)) = self.dbs.last_mut()
            && !db.drain_some(segments)
        {
            self.budget.add_pending(-*keys);
            self.dbs.pop();
            self.freed_dbs += 1;
        }
        let more = !self.dbs.is_empty();
        if !more {
            self.dbs = Vec::new();
        }
        self.freed_bytes += before - basalt_core::alloc::account::charged_bytes();
        more
    }
}

/// A value that is freed on drop. Until then its bytes are charged to no shard but counted as used outside the
/// shards, so that memory being freed is not taken for free.
pub struct DroppedValue {
    /// The value; None once it is freed.
    trash: Option<value::Trash>,
    budget: Arc<Budget>,
}

impl DroppedValue {
    fn new(trash: value::Trash, budget: &Arc<Budget>) -> DroppedValue {
        budget.add_leaving(trash.bytes());
        DroppedValue {
            trash: Some(trash),
            budget: Arc::clone(budget),
        }
    }
}

impl Drop for DroppedValue {
    fn drop(&mut self) {
        let bytes = self.trash.as_ref().map_or(0, value::Trash::bytes);
        self.trash = None;
        self.budget.add_leaving(-bytes);
    }
}

/// Work that is deferred until the thread has released the shard, so that no command waits for it.
#[derive(Default)]
pub struct Deferred {
    /// Values that are too large to be freed while the shard is locked.
    pub trash: Vec<DroppedValue>,
    /// Tasks to wake once the shard is released.
    pub wakes: Vec<Waker>,
    /// Log lines of level debug.
    pub notes: Vec<String>,
    /// The follower that must deliver effects, if any were appended while the shard was locked.
    pub follower: Option<Arc<dyn effect::Follower>>,
}

impl Deferred {
    /// True if there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.trash.is_empty()
            && self.wakes.is_empty()
            && self.follower.is_none()
            && self.notes.is_empty()
    }

    /// Moves the work of another `Deferred` into this one.
    #[cold]
    pub fn append(&mut self, other: &mut Deferred) {
        if !(other.trash.is_empty() && other.wakes.is_empty() && other.notes.is_empty()) {
            self.trash.append(&mut other.trash);
            self.wakes.append(&mut other.wakes);
            self.notes.append(&mut other.notes);
        }
        if let Some(follower) = other.follower.take() {
            self.follower = Some(follower);
        }
    }

    /// Does the deferred work. The thread must not have the shard locked.
    pub fn settle(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.deliver();
        }
        self.wakes.drain(..).for_each(Waker::wake);
        self.notes
            .drain(..)
            .for_each(|note| tracing::debug!("{note}"));
        self.trash.clear();
    }
}

/// Counters before a read-only command, see [`Engine::reads`].
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Commands counted so far.
    commands: u64,
    /// Counts of each database.
    counts: SmallVec<[DbCounts; 1]>,
    /// Effects recorded so far.
    recorded: usize,
}

/// The complete state of one shard. Fields that each command writes come first, then fields that each command
/// reads, so that few cache lines move from core to core with the shard.
#[repr(C)]
pub struct Engine {
    /// Effects of commands: the changes to pass to the log, notifications and client tracking.
    pub effects: Effects,
    dbs: Box<[Option<Box<Db>>]>,
    /// One more than the index of the last database that was ever written or read: most clients use only the first
    /// database.
    dbs_end: usize,
    seed: HashSeed,
    published: Arc<Published>,
    /// Random numbers for RANDOMKEY, eviction and the like.
    pub random: Random,
    /// Work to do once the shard is released.
    pub deferred: Deferred,
    /// Clients waiting for keys of this shard.
    pub waiters: waiting::Waiters,
    /// Keys watched by transactions.
    pub watches: watching::Watches,
    /// Index of the shard within the server.
    pub shard: u16,
    /// The keys sampled for the miss ratio curve, while it is enabled.
    reuse: Option<Box<ReuseDistance>>,
    /// The suspension of expiry; shared by all shards.
    pub rest: Arc<expire::Rest>,
    /// Recent use counts of the server's hottest keys.
    pub hot_counts: Arc<hot_counts::HotCounts>,
    /// The source of fencing tokens for locks; shared by all shards.
    pub fence_source: Arc<fences::FenceSource>,
    /// Databases released by FLUSHALL, FLUSHDB or SWAPDB, freed in slices.
    doomed: Vec<(Db, i64)>,
    /// Databases that were flushed or swapped out before a snapshot had saved them.
    #[expect(
        clippy::vec_box,
        reason = "they come and go as the boxes that they are in"
    )]
    flushed_unsaved: Vec<Box<Db>>,
    /// Collections that were deleted before a snapshot had saved them; charged to no account.
    left_unsaved: VecDeque<value::Trash>,
    /// Huge values, also freed in slices.
    doomed_values: Vec<value::Trash>,
    /// The undo state of the current attempt, if any.
    attempt: Option<Box<undo::Attempt>>,
    budget: Arc<Budget>,
    /// The rules that order keys for eviction; None if keys are not ordered.
    order: Option<evict::order::EvictionParams>,
    /// The number of shards, if keys are indexed by slot, as in a cluster.
    slot_shards: Option<u16>,
    /// Resources used by requests per slot, if counted.
    slot_usage: slot_usage::SlotUsage,
    /// Slots that are being imported; their keys are hidden from clients.
    coming: BTreeSet<u16>,
    /// Bytes evicted for which this shard has not yet received grants from other shards: for the limit of all memory,
    /// then for each database's share.
    untraded_bytes: SmallVec<[i64; 2]>,
    /// Tracked keys of flushed databases, also freed in slices.
    doomed_tracked: Vec<tracking::Forgotten>,
    /// Read counters from before the current command, if the command may turn out to have to run elsewhere.
    reads_before: Reads,
}

/// Returns the engine of a shard, if that shard is among the locked ones.
pub fn engine_of<'e>(engines: &'e mut [&mut Engine], shard: u16) -> Option<&'e mut Engine> {
    let engine = engines.iter_mut().find(|engine| engine.shard == shard);
    engine.map(|engine| &mut **engine)
}

impl Engine {
    /// Creates an engine with `database_count` databases, all empty and without memory of their own.
    pub fn new(database_count: usize, seed: HashSeed, random_seed: u64) -> Engine {
        #[cfg(test)]
        basalt_core::base::sizes::shrink();
        let published = Arc::new(Published::new(database_count));
        Engine {
            dbs: (0..database_count).map(|_| None).collect(),
            dbs_end: database_count.min(1),
            seed,
            effects: Effects::default(),
            random: Random::new(random_seed),
            deferred: Deferred::default(),
            waiters: waiting::Waiters::published_in(Arc::clone(&published), seed),
            watches: watching::Watches::published_in(Arc::clone(&published)),
            published,
            shard: 0,
            reuse: None,
            rest: Arc::default(),
            hot_counts: Arc::default(),
            fence_source: Arc::default(),
            doomed: Vec::new(),
            flushed_unsaved: Vec::new(),
            left_unsaved: VecDeque::new(),
            doomed_values: Vec::new(),
            attempt: None,
            budget: Arc::default(),
            order: None,
            slot_shards: None,
            slot_usage: slot_usage::SlotUsage::default(),
            coming: BTreeSet::new(),
            untraded_bytes: SmallVec::new(),
            doomed_tracked: Vec::new(),
            reads_before: Reads::default(),
        }
    }

    /// Begins a command of a connection, see [`Effects::begin`].
    #[inline]
    pub fn begin_command(&mut self, client: u64, stamp: u64, only_reads: bool) {
        self.effects.begin(client, stamp, only_reads);
    }

    /// Returns the counters that read-only commands change, for [`Engine::forget_reads_since`].
    #[inline]
    pub fn reads(&self) -> Reads {
        Reads {
            commands: self.published.commands.get(),
            counts: self.counts(),
            recorded: self.effects.recorded(),
        }
    }

    /// Resets the lookup counters to their values in `then`, because the commands since then will run again: neither
    /// their lookups nor their misses shall count twice. Keys that expired and were deleted meanwhile stay deleted.
    pub fn forget_reads_since(&mut self, then: &Reads) {
        self.published.commands.set(then.commands);
        for db in 0..self.dbs_end {
            // A database that had not been read at that time had no lookups.
            let kept = then.counts.get(db).copied().unwrap_or_default();
            // Only lookups are reset: keys that have expired since then stay deleted, and counted.
            let now = self.published.counts(db);
            self.published.recount(
                db,
                DbCounts {
                    hits: kept.hits,
                    misses: kept.misses,
                    ..now
                },
            );
        }
        self.effects.forget_misses(then.recorded);
    }

    /// Returns the counts of each database that was ever used.
    fn counts(&self) -> SmallVec<[DbCounts; 1]> {
        (0..self.dbs_end)
            .map(|db| self.published.counts(db))
            .collect()
    }

    /// Makes sure that lookups in a database are counted.
    #[inline]
    fn note_look_ups(&mut self, db: usize) {
        if db >= self.dbs_end {
            self.dbs_end = db + 1;
        }
    }

    /// Begins a command that may turn out to have to run on other shards, see [`Engine::forget_reads`].
    #[inline]
    pub fn keep_reads(&mut self) {
        self.reads_before = self.reads();
    }

    /// Resets the counters to their values at [`Engine::keep_reads`]: the command did nothing and will run again.
    #[cold]
    pub fn forget_reads(&mut self) {
        let before = std::mem::take(&mut self.reads_before);
        self.forget_reads_since(&before);
    }

    /// Returns the part of this shard's state that is readable without locking it.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// Returns the hash key of all tables.
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Returns the number of databases.
    pub fn database_count(&self) -> usize {
        self.dbs.len()
    }

    /// Returns a database; None if it was never written to.
    pub fn db(&self, index: usize) -> Option<&Db> {
        self.dbs[index].as_deref()
    }

    fn db_mut(&mut self, index: usize) -> Option<&mut Db> {
        self.dbs[index].as_deref_mut()
    }

    /// Reserves capacity for `keys` keys in an empty database, which may take some milliseconds.
    pub fn reserve(&mut self, index: usize, keys: usize, now: Now) {
        self.db_or_create(index, now).reserve(keys);
    }

    /// Resizes a database for `keys` keys, or for its current number if larger, which may take some milliseconds.
    pub fn refit(&mut self, index: usize, keys: usize) {
        if let Some(db) = self.db_mut(index) {
            db.refit(keys);
        }
    }

    fn db_or_create(&mut self, index: usize, now: Now) -> &mut Db {
        let slot = &mut self.dbs[index];
        if slot.is_none() {
            let before = basalt_core::alloc::account::charged_bytes();
            *slot = Some(Box::new(Db::new(
                index,
                self.seed,
                Arc::clone(&self.published),
                now.unix_ms,
            )));
            if let Some(db) = slot {
                db.add_used(basalt_core::alloc::account::charged_bytes() - before);
                db.charged(|db| db.set_order(self.order));
                if let Some(shard_count) = self.slot_shards {
                    db.charged(|db| db.keep_slots(shard_count));
                }
            }
            self.dbs_end = self.dbs_end.max(index + 1);
            if let (Some(_), Some(db)) = (&self.attempt, slot.as_deref_mut()) {
                db.keep_images();
            }
        }
        slot.as_deref_mut().expect("created above")
    }

    /// Returns the entry of a key that was just looked up, without counting, touching or deleting anything.
    pub fn peek(&self, db: usize, key: &Key<'_>) -> Option<EntryRef<'_, value::Object>> {
        let db = self.db(db)?;
        Some(db.at(db.find(key)?))
    }

    /// True if the key exists and has not expired. Nothing is counted, touched or deleted.
    pub fn has_key(&self, db: usize, key: &Key<'_>, now: Now) -> bool {
        let Some(db) = self.db(db) else {
            return false;
        };
        let place = db.find(key);
        place.is_some_and(|place| !db.is_gone(db.at(place), now.unix_ms))
    }

    /// Returns a view of one database at one time.
    pub fn keyspace(&mut self, db: usize, now: Now) -> keyspace::Keyspace<'_> {
        keyspace::Keyspace::new(self, db, now)
    }

    /// Exchanges two databases.
    pub fn swap_dbs(&mut self, first: usize, second: usize, now: Now) {
        if first == second {
            return;
        }
        self.expire_watched([first, second], now);
        self.exchange(first, second);
        // Redis does not invalidate here, which leaves caching clients with values of the other database.
        self.void_caches();
        self.note_swap(first, second);
        self.waiters.database_changed(first);
        self.waiters.database_changed(second);
        if let Some(attempt) = &mut self.attempt {
            attempt.note(undo::DbChange::Exchanged(first, second));
        }
    }

    fn exchange(&mut self, first: usize, second: usize) {
        // Hide both databases first: a table that moves clears the address published at its old number, which may
        // belong to the other database by then.
        for index in [first, second] {
            if let Some(db) = self.dbs[index].as_deref_mut() {
                db.hide();
            }
        }
        self.dbs.swap(first, second);
        self.dbs_end = self.dbs_end.max(first.max(second) + 1);
        for index in [first, second] {
            match self.dbs[index].as_deref_mut() {
                Some(db) => db.move_to(index),
                None => self.published.clear_db(index),
            }
        }
    }

    /// Deletes expired keys that are watched in two databases which are about to be swapped: an expired key counts as
    /// absent, and must not appear to be deleted later from the other database.
    fn expire_watched(&mut self, dbs: [usize; 2], now: Now) {
        if self.watches.is_empty() {
            return;
        }
        for name in self.watches.keys_of(dbs) {
            for index in dbs {
                let key = Key::new(&name, self.seed);
                let _ = self.keyspace(index, now).untouched().find_write(&key);
            }
        }
    }

    /// Marks watched keys that are in either of two databases as changed when these are swapped.
    fn note_swap(&mut self, first: usize, second: usize) {
        if self.watches.is_empty() {
            return;
        }
        let seed = self.seed;
        self.effects.changed(0);
        let stamp = self.effects.stamp();
        let Engine { dbs, watches, .. } = self;
        let is_there = |index: usize, key: &[u8]| {
            let db = dbs[index].as_deref();
            db.is_some_and(|db| db.find(&Key::new(key, seed)).is_some())
        };
        for index in [first, second] {
            watches.database_changed(index, stamp, |key| {
                is_there(first, key) || is_there(second, key)
            });
        }
    }

    /// Invalidates everything that any client has cached.
    fn void_caches(&mut self) {
        if let Some(forgotten) = self.effects.void_all() {
            self.doomed_tracked.push(forgotten);
            self.published.set_doomed(true);
        }
    }

    /// Records that a connection with client-side caching read a key; see [`Effects::track`].
    #[cold]
    pub fn track(&mut self, key: &Key<'_>, client: u64, keys_max: u64) {
        let seed = self.seed;
        self.effects
            .track(key, client, seed, keys_max, &mut self.random);
    }

    /// Drops some tracked keys if there are too many; see [`Effects::limit_tracked`].
    pub fn limit_tracked(&mut self, keys_max: u64, budget: usize) -> bool {
        self.effects
            .limit_tracked(keys_max, budget, &mut self.random)
    }

    /// Empties all databases, see [`Engine::flush_db`]. Returns the number of keys removed.
    pub fn flush_all(&mut self) -> usize {
        (0..self.database_count()).map(|db| self.flush_db(db)).sum()
    }

    /// Empties one database; its memory is freed in slices, see [`Engine::take_doomed`].
    pub fn flush_db(&mut self, index: usize) -> usize {
        self.void_caches();
        self.published.emptied.add(1);
        self.waiters.void_leases(index);
        let Some(mut db) = self.dbs[index].take() else {
            return 0;
        };
        let removed = db.len();
        self.follow_none();
        self.waiters.database_changed(index);
        if !self.watches.is_empty() {
            self.effects.changed(0);
            let (stamp, seed) = (self.effects.stamp(), self.seed);
            self.watches
                .database_changed(index, stamp, |key| db.find(&Key::new(key, seed)).is_some());
        }
        // When the flushed database is freed later, it must not clear the address that its successor has published.
        db.hide();
        self.published.clear_db(index);
        match &mut self.attempt {
            Some(attempt) => attempt.note(undo::DbChange::Emptied(index, db)),
            None => self.doom(db),
        }
        removed
    }

    /// Releases a database. Its memory is freed in slices, or at once if it is very small.
    fn doom(&mut self, db: Box<Db>) {
        if db.is_saving() {
            return self.keep_unsaved(db);
        }
        // The database is moved out of its box, whose memory is freed at the end of the block, and `doomed` may grow:
        // charge both.
        let before = basalt_core::alloc::account::charged_bytes();
        let is_small = self.published.used_bytes() <= FREED_AT_ONCE_BYTES;
        if is_small {
            drop(db);
        } else {
            let db = db;
            let keys = db.len() as i64;
            self.budget.add_freeing(1);
            self.budget.add_pending(keys);
            self.doomed.push((*db, keys));
        }
        self.published
            .add_used(basalt_core::alloc::account::charged_bytes() - before);
        if !is_small {
            self.published.set_doomed(true);
        }
    }

    /// Returns the data released by flushes, to be freed without locking the shard.
    pub fn take_doomed(&mut self) -> Doomed {
        self.published.set_doomed(false);
        Doomed {
            dbs: std::mem::take(&mut self.doomed),
            values: std::mem::take(&mut self.doomed_values),
            tracked: std::mem::take(&mut self.doomed_tracked),
            freed_bytes: 0,
            freed_dbs: 0,
            budget: Arc::clone(&self.budget),
        }
    }

    /// Subtracts the memory of databases that were freed since from the shard's account.
    pub fn settle(&mut self, doomed: &mut Doomed) {
        self.published
            .add_used(-std::mem::take(&mut doomed.freed_bytes));
        self.budget
            .add_freeing(-std::mem::take(&mut doomed.freed_dbs));
    }

    /// Returns the bytes allocated for this shard's data.
    pub fn used_bytes(&self) -> i64 {
        self.published.used_bytes()
    }
}
