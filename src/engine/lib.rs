//! One shard's keyspace: databases, values, expiry, effects.
//!
//! Synchronous and deterministic: time and randomness are handed in. No I/O, no threads, no locks. An [`Engine`] is
//! `Send`, because the thread that holds the shard's token runs it for that moment, and is never touched by two
//! threads at once. What other threads may read without the token is in [`published::Published`].

#![forbid(unsafe_code)]

mod alarms;
pub mod db;
pub mod defrag;
pub mod effect;
pub mod evict;
pub mod expire;
pub mod fences;
pub mod holders;
pub mod hot_counts;
mod invalidation;
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

use basalt_core::base::hash::Seed;
use basalt_core::base::random::Random;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::reuse_distance::ReuseDistance;
use db::Db;
use effect::Effects;
use evict::budget::Budget;
use published::{DbCounts, Published};
use smallvec::SmallVec;

/// A key as routing prepared it: its bytes and their hash, computed once per request.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key itself.
    pub bytes: &'a [u8],
    /// Keyed hash of all its bytes.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes a key that did not come with a request.
    pub fn new(bytes: &'a [u8], seed: Seed) -> Key<'a> {
        Key {
            bytes,
            hash: seed.hash(bytes),
        }
    }
}

/// The moment at which a command runs: frozen for its whole length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// What a shard gave up: flushed databases and huge values. Their holder alone knows them any more, so they are freed
/// without a token.
pub struct Doomed {
    /// Each with the number of its keys.
    dbs: Vec<(Db, i64)>,
    values: Vec<value::Trash>,
    tracked: Vec<tracking::Forgotten>,
    freed_bytes: i64,
    /// Databases that are freed, of which the shard has yet to be told.
    freed_dbs: i64,
    budget: Arc<Budget>,
}

/// A shard that takes no more than this frees what it gives up at once.
const FREED_AT_ONCE_BYTES: i64 = 16 * 1024;

/// Elements of a huge value that are freed together with one segment of a database, as they take about as long.
const ELEMENTS_PER_SEGMENT: usize = 256;

impl Doomed {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.dbs.is_empty() && self.tracked.is_empty()
    }

    /// Frees a few segments, or as much of a huge value; true while some are left.
    pub fn free_some(&mut self, segments: usize) -> bool {
        // Huge values left the shard's account when they were deleted.
        if let Some(trash) = self.values.last_mut() {
            if !trash.free_some(segments * ELEMENTS_PER_SEGMENT) {
                let bytes = trash.bytes();
                self.values.pop();
                self.budget.add_leaving(-bytes);
                self.budget.add_pending(-1);
            }
            return !self.is_empty();
        }
        // What is tracked is on no shard's account.
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

/// A value that is freed when this is dropped. Until then it is on no shard's account: it would count as taken beside
/// the shards, and as much again would be evicted for it.
pub struct Leaving {
    /// None once it is freed.
    trash: Option<value::Trash>,
    budget: Arc<Budget>,
}

impl Leaving {
    fn new(trash: value::Trash, budget: &Arc<Budget>) -> Leaving {
        budget.add_leaving(trash.bytes());
        Leaving {
            trash: Some(trash),
            budget: Arc::clone(budget),
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let bytes = self.trash.as_ref().map_or(0, value::Trash::bytes);
        self.trash = None;
        self.budget.add_leaving(-bytes);
    }
}

/// What a hold leaves to be done when its thread has no token any more, so that no command waits for it.
#[derive(Default)]
pub struct Deferred {
    /// Values too large to be freed under the token.
    pub trash: Vec<Leaving>,
    /// Tasks that can go on.
    pub wakes: Vec<Waker>,
    /// Lines for the log, of what only those want to know who look for it.
    pub notes: Vec<String>,
    /// Has something to deliver that was appended meanwhile.
    pub follower: Option<Arc<dyn effect::Follower>>,
}

impl Deferred {
    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.trash.is_empty()
            && self.wakes.is_empty()
            && self.follower.is_none()
            && self.notes.is_empty()
    }

    /// Takes over what another one has.
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

    /// Does it. The thread has no token.
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

/// Where commands stood that change nothing, see [`Engine::reads`].
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Commands counted by then.
    commands: u64,
    /// Of each database.
    counts: SmallVec<[DbCounts; 1]>,
    /// Effects recorded by then.
    recorded: usize,
}

/// All that one shard owns. What each command writes comes first, and then what each command reads, so that few lines
/// go from core to core with the shard.
#[repr(C)]
pub struct Engine {
    /// What commands changed, for all who follow changes.
    pub effects: Effects,
    dbs: Box<[Option<Box<Db>>]>,
    /// No database from here on was ever written to, or read from: most clients use the first one alone.
    dbs_end: usize,
    seed: Seed,
    published: Arc<Published>,
    /// For RANDOMKEY, eviction and the like.
    pub random: Random,
    /// What is to be done once the token is let go.
    pub deferred: Deferred,
    /// Who waits for keys of this shard.
    pub waiters: waiting::Waiters,
    /// Which keys transactions watch.
    pub watches: watching::Watches,
    /// Number of the shard among those of the server.
    pub shard: u16,
    /// The keys that the curve follows, while it is kept.
    reuse: Option<Box<ReuseDistance>>,
    /// Until when nothing expires; the same for all shards.
    pub rest: Arc<expire::Rest>,
    /// How often the server's hottest keys were used of late.
    pub hot_counts: Arc<hot_counts::HotCounts>,
    /// Where the fences of locks come from; the same for all shards.
    pub fence_source: Arc<fences::FenceSource>,
    /// Databases that FLUSHALL, FLUSHDB or SWAPDB gave up, freed in slices.
    doomed: Vec<(Db, i64)>,
    /// Databases that were given up before a snapshot was through with them.
    #[expect(
        clippy::vec_box,
        reason = "they come and go as the boxes that they are in"
    )]
    flushed_unsaved: Vec<Box<Db>>,
    /// Collections that were, too; charged to no account.
    left_unsaved: VecDeque<value::Trash>,
    /// Huge values, freed in slices too.
    doomed_values: Vec<value::Trash>,
    /// What can be undone, if anything.
    attempt: Option<Box<undo::Attempt>>,
    budget: Arc<Budget>,
    /// By which rules keys are ordered, if they are.
    order: Option<evict::order::Rules>,
    /// In a cluster, whose slots' keys are kept apart: how many shards there are.
    slot_shards: Option<u16>,
    /// What requests for its slots took, where that is counted.
    slot_usage: slot_usage::SlotUsage,
    /// Slots whose keys are on their way to here, and which no client is shown.
    coming: BTreeSet<u16>,
    /// What was evicted since a part of the budget last moved here: of all memory, then of each database's share.
    untraded_bytes: SmallVec<[i64; 2]>,
    /// What was tracked of flushed databases, freed in slices as well.
    doomed_tracked: Vec<tracking::Forgotten>,
    /// What had been counted of reads when the command that runs began, if it said that it may do nothing.
    reads_before: Reads,
}

/// The engine of a shard, if it is among those in hand.
pub fn engine_of<'e>(engines: &'e mut [&mut Engine], shard: u16) -> Option<&'e mut Engine> {
    let engine = engines.iter_mut().find(|engine| engine.shard == shard);
    engine.map(|engine| &mut **engine)
}

impl Engine {
    /// An engine with so many databases, all of them empty and without memory of their own.
    pub fn new(database_count: usize, seed: Seed, random_seed: u64) -> Engine {
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

    /// A command of a connection begins, see [`Effects::begin`].
    #[inline]
    pub fn begin_command(&mut self, client: u64, stamp: u64, only_reads: bool) {
        self.effects.begin(client, stamp, only_reads);
    }

    /// Where commands stand that change nothing, for [`Engine::forget_reads_since`].
    #[inline]
    pub fn reads(&self) -> Reads {
        Reads {
            commands: self.published.commands.get(),
            counts: self.counts(),
            recorded: self.effects.recorded(),
        }
    }

    /// Commands that looked keys up since then will be run again: what they looked up is not counted twice, and what
    /// they missed is not told twice. What was deleted meanwhile, because its time had come, stays so.
    pub fn forget_reads_since(&mut self, then: &Reads) {
        self.published.commands.set(then.commands);
        for db in 0..self.dbs_end {
            // A database that was not read from by then had no look-ups.
            let kept = then.counts.get(db).copied().unwrap_or_default();
            // What has expired meanwhile stays so.
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

    /// What was counted in each database that was ever used.
    fn counts(&self) -> SmallVec<[DbCounts; 1]> {
        (0..self.dbs_end)
            .map(|db| self.published.counts(db))
            .collect()
    }

    /// Look-ups in a database are about to be counted.
    #[inline]
    fn note_look_ups(&mut self, db: usize) {
        if db >= self.dbs_end {
            self.dbs_end = db + 1;
        }
    }

    /// A command begins that may find that it has to run elsewhere, see [`Engine::forget_reads`].
    #[inline]
    pub fn keep_reads(&mut self) {
        self.reads_before = self.reads();
    }

    /// The command that began with [`Engine::keep_reads`] did nothing, and will be run again.
    #[cold]
    pub fn forget_reads(&mut self) {
        let before = std::mem::take(&mut self.reads_before);
        self.forget_reads_since(&before);
    }

    /// What others may see of this shard without its token.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The hash key of all tables.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// How many databases there are.
    pub fn database_count(&self) -> usize {
        self.dbs.len()
    }

    /// A database, if it was ever written to.
    pub fn db(&self, index: usize) -> Option<&Db> {
        self.dbs[index].as_deref()
    }

    fn db_mut(&mut self, index: usize) -> Option<&mut Db> {
        self.dbs[index].as_deref_mut()
    }

    /// Makes room for so many keys in an empty database, which may take some milliseconds.
    pub fn reserve(&mut self, index: usize, keys: usize, now: Now) {
        self.db_or_create(index, now).reserve(keys);
    }

    /// Lays a database out for so many keys, or for those that it has, which may take some milliseconds.
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

    /// The entry of a key, without counting, touching or deleting anything: for keys that were just looked up.
    pub fn peek(&self, db: usize, key: &Key<'_>) -> Option<EntryRef<'_, value::Object>> {
        let db = self.db(db)?;
        Some(db.at(db.find(key)?))
    }

    /// Whether there is a key whose time is not over. Nothing is counted, touched or deleted.
    pub fn has_key(&self, db: usize, key: &Key<'_>, now: Now) -> bool {
        let Some(db) = self.db(db) else {
            return false;
        };
        let place = db.find(key);
        place.is_some_and(|place| !db.is_gone(db.at(place), now.unix_ms))
    }

    /// A view on one database at one moment.
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
        // Redis tells no client, and leaves clients that cache with values of the other database.
        self.void_caches();
        self.note_swap(first, second);
        self.waiters.database_changed(first);
        self.waiters.database_changed(second);
        if let Some(attempt) = &mut self.attempt {
            attempt.note(undo::DbChange::Exchanged(first, second));
        }
    }

    fn exchange(&mut self, first: usize, second: usize) {
        // Both first: a table that moves blanks the place it had, which may be the other one's by then.
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

    /// Deletes what has expired of the watched names of two databases: it is as good as absent, and must not seem to go
    /// later on, from the other one.
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

    /// Watched keys that are in either of two databases count as changed when these are exchanged.
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

    /// Whatever anybody cached is void.
    fn void_caches(&mut self) {
        if let Some(forgotten) = self.effects.void_all() {
            self.doomed_tracked.push(forgotten);
            self.published.set_doomed(true);
        }
    }

    /// Remembers that a connection which caches read a key; see [`Effects::track`].
    #[cold]
    pub fn track(&mut self, key: &Key<'_>, client: u64, keys_max: u64) {
        let seed = self.seed;
        self.effects
            .track(key, client, seed, keys_max, &mut self.random);
    }

    /// Forgets some keys that are tracked, if there are too many; see [`Effects::limit_tracked`].
    pub fn limit_tracked(&mut self, keys_max: u64, budget: usize) -> bool {
        self.effects
            .limit_tracked(keys_max, budget, &mut self.random)
    }

    /// Empties all databases, see [`Engine::flush_db`]; how many keys there were.
    pub fn flush_all(&mut self) -> usize {
        (0..self.database_count()).map(|db| self.flush_db(db)).sum()
    }

    /// Empties one database; the memory is given back in slices, see [`Engine::take_doomed`].
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
        // What is drained later must not blank the place of the database that follows.
        db.hide();
        self.published.clear_db(index);
        match &mut self.attempt {
            Some(attempt) => attempt.note(undo::DbChange::Emptied(index, db)),
            None => self.doom(db),
        }
        removed
    }

    /// Gives a database up; its memory comes back in slices, but for the smallest.
    fn doom(&mut self, db: Box<Db>) {
        if db.is_saving() {
            return self.keep_unsaved(db);
        }
        // The database leaves its box, which is freed at the end of the block, and the list of the doomed may grow.
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

    /// Hands out what flushes gave up, to be freed without the token.
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

    /// Takes back from the shard's account what the freeing of its doomed databases gave back.
    pub fn settle(&mut self, doomed: &mut Doomed) {
        self.published
            .add_used(-std::mem::take(&mut doomed.freed_bytes));
        self.budget
            .add_freeing(-std::mem::take(&mut doomed.freed_dbs));
    }

    /// Bytes that the allocator handed out for this shard's data.
    pub fn used_bytes(&self) -> i64 {
        self.published.used_bytes()
    }
}
