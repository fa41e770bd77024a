//! Attempts: an engine can be rolled back to its state at the start of an attempt to run a script or transaction.
//!
//! A script may turn out to need shards that are not locked, or more time than a connection's thread can spend. Then
//! its effects are undone, and the script runs again. During an attempt, the first change of each key saves the key's
//! previous state ([`log`]); deleted or overwritten values move there instead of being freed, and for large
//! collections that change in place only the changes are saved. Flushed and swapped databases are recorded as such.
//! [`Engine::undo_attempt`] restores all that, newest first; [`Engine::commit_attempt`] drops it.
//!
//! Restored: keys, values, deadlines, the memory charged for them, and the counters of commands. Recorded effects are
//! discarded; the caller delivers none before the attempt commits. Not restored, as no client can see it: stamps
//! (they only ever grow), the capacity of tables, trees and wheels, the order of members in a table's buckets, access
//! bits, the state of the random numbers. Clients that cache keys touched by an undone attempt get an unnecessary
//! invalidation.
//!
//! Keys that expired during an attempt are restored too, and expire again.

pub(super) mod log;

use std::cell::Cell;

use super::db::Db;
use super::effect;
use super::published::{DbCounts, Published};
use super::value::object::entry_bytes;
use super::value::{CollectionBody, Part, Trash};
use super::{Engine, Key};
use basalt_core::alloc::account;
use basalt_core::structures::entry::Value;
use log::KeyBeforeImage;
use smallvec::SmallVec;

/// The effect of a command on the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The value changes in place.
    InPlace(Part),
    /// The value is moved to another key, database or shard.
    Taken,
}

/// Maximum bytes of a collection's undo journal in an attempt: beyond that, the journal would soon be larger than a
/// copy of the collection.
const JOURNAL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A change of a whole database during an attempt.
pub(super) enum DbChange {
    /// A database was emptied: its number and its contents.
    Emptied(usize, Box<Db>),
    /// Two databases were swapped.
    Exchanged(usize, usize),
    /// A tag of a database, given by its number there, was invalidated.
    TagInvalidated(usize, u32),
}

/// The state at the start of an attempt.
pub(super) struct Attempt {
    changes: Vec<DbChange>,
    effects: effect::Mark,
    counts: [u64; COUNTS],
    /// The counters of each database that was ever used.
    db_counts: SmallVec<[DbCounts; 1]>,
    /// The counters of expiry lag, saved before the first expiry.
    lag: Option<Box<[u64; LAGS]>>,
}

thread_local! {
    /// An attempt kept for reuse by this thread. In the engine it would be further cache lines that move from core to
    /// core with each transaction.
    static SPARE: Cell<Option<Box<Attempt>>> = const { Cell::new(None) };
}

/// Drops the memory kept for reuse on this thread, for tests that count bytes.
#[cfg(any(test, feature = "testing"))]
pub fn drop_room() {
    SPARE.take();
    log::drop_room();
}

/// Number of counters that are restored with an attempt.
const COUNTS: usize = 20;

/// Number of counters of expiry lag.
const LAGS: usize = super::published::LAG_BOUNDS_MS.len() + 3;

impl Attempt {
    /// Records a change of a whole database, for undo.
    pub(super) fn note(&mut self, change: DbChange) {
        self.changes.push(change);
    }

    /// Saves the lag counters, as an expired key or element is about to be deleted.
    #[cold]
    pub(super) fn keep_lag(&mut self, published: &Published) {
        self.lag.get_or_insert_with(|| {
            let mut kept = account::uncharged(|| Box::new([0; LAGS]));
            for (kept, counter) in kept.iter_mut().zip(lags(published)) {
                *kept = counter.get();
            }
            kept
        });
    }
}

/// Returns the counters that are restored with an attempt.
fn counts(published: &Published) -> [&basalt_core::base::counter::Counter; COUNTS] {
    let (leases, tags) = (&published.leases, &published.tags);
    [
        &published.expired_fields,
        &published.lazyfreed,
        &published.dirty,
        &published.commands,
        &leases.given,
        &leases.filled,
        &leases.dropped,
        &leases.void_by_time,
        &leases.void_by_change,
        &leases.fills_refused,
        &leases.stale_served,
        &published.locks.taken,
        &published.locks.handed_over,
        &published.locks.retaken,
        &published.locks.released,
        &published.rates.let_through,
        &published.rates.limited,
        &published.rates.due_taken,
        &tags.invalidated,
        &tags.keys_invalidated,
    ]
}

fn lags(published: &Published) -> impl Iterator<Item = &basalt_core::base::counter::Counter> {
    published
        .expiry_lag
        .iter()
        .chain([&published.expiry_lag_sum_ms, &published.expiry_lag_max_ms])
}

impl Engine {
    /// True during an attempt.
    pub fn is_in_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Begins an attempt: later changes can be undone.
    pub fn begin_attempt(&mut self) {
        debug_assert!(self.attempt.is_none(), "attempts do not nest");
        let attempt = Attempt {
            changes: Vec::new(),
            effects: self.effects.mark(),
            counts: counts(&self.published).map(|counter| counter.get()),
            db_counts: self.counts(),
            lag: None,
        };
        self.attempt = Some(match SPARE.take() {
            Some(mut place) => {
                *place = attempt;
                place
            }
            None => Box::new(attempt),
        });
        self.watches.begin_attempt();
        self.waiters.begin_attempt();
        self.dbs[..self.dbs_end]
            .iter_mut()
            .flatten()
            .for_each(|db| db.keep_images());
    }

    /// True if undoing a change of the value under a key would require keeping more than `bytes_max` bytes.
    pub fn needs_large_image(
        &self,
        db: usize,
        key: &Key<'_>,
        change: Change,
        collection_bytes_max: usize,
        text_bytes_max: usize,
    ) -> bool {
        let Some(db) = self.db(db) else {
            return false;
        };
        let Some(place) = db.find(key) else {
            return false;
        };
        let entry = db.at(place);
        let (bytes, bytes_max) = match (entry.value(), change) {
            (Value::Object(object), Change::InPlace(part)) => {
                let copied = object.body.copied_bytes(part);
                let journal_bytes = db.journal_bytes(key);
                if journal_bytes > JOURNAL_BYTES_MAX {
                    return true;
                }
                (copied.unwrap_or(entry_bytes(entry)), collection_bytes_max)
            }
            (Value::Object(_), Change::Taken) => (entry_bytes(entry), collection_bytes_max),
            _ => (entry_bytes(entry), text_bytes_max),
        };
        bytes > bytes_max && !db.has_image(key)
    }

    /// Ends the attempt and keeps its changes. The caller handles effects, waiters and memory, as after any command.
    pub fn commit_attempt(&mut self) {
        let Some(mut attempt) = self.attempt.take() else {
            return;
        };
        self.watches.commit_attempt();
        self.waiters.commit_attempt();
        for index in 0..self.dbs_end {
            let Some(db) = self.dbs[index].as_deref_mut() else {
                continue;
            };
            // BLESS changes no entry, so there may be no image.
            db.commit_blessings();
            if let Some(mut log) = db.take_log() {
                db.commit_fences();
                for image in log.drain() {
                    self.forget(image.before);
                }
                log.keep_room();
            }
        }
        if !attempt.changes.is_empty() {
            self.commit_changes(std::mem::take(&mut attempt.changes));
        }
        SPARE.set(Some(attempt));
    }

    #[cold]
    fn commit_changes(&mut self, changes: Vec<DbChange>) {
        for change in changes {
            if let DbChange::Emptied(_, mut db) = change {
                for image in db.take_images() {
                    self.forget(image.before);
                }
                db.commit_fences();
                db.commit_blessings();
                self.doom(db);
            }
        }
    }

    /// Frees the contents of an image, which are charged to no account.
    fn forget(&mut self, before: KeyBeforeImage) {
        if let KeyBeforeImage::Present { entry, was_moved } = before
            && let Some(trash) = Trash::from_entry(entry)
        {
            let is_freed_late = was_moved && trash.is_collection();
            self.published.lazyfreed.add(u64::from(is_freed_late));
            self.keep_trash(trash);
        }
    }

    /// Rolls back to the state at the start of the attempt.
    pub fn undo_attempt(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        let Attempt {
            changes,
            effects,
            counts: kept_counts,
            db_counts,
            lag,
        } = *attempt;
        for change in changes.into_iter().rev() {
            match change {
                DbChange::Exchanged(first, second) => self.exchange(first, second),
                DbChange::TagInvalidated(index, id) => {
                    if let Some(db) = self.dbs[index].as_deref_mut() {
                        db.undo_invalidate_tag(id);
                    }
                }
                DbChange::Emptied(index, before) => {
                    if let Some(mut db) = self.dbs[index].take() {
                        drop(db.take_images());
                        db.commit_fences();
                        db.commit_blessings();
                        db.hide();
                        self.published.clear_db(index);
                        self.doom(db);
                    }
                    self.dbs[index].insert(before).move_to(index);
                }
            }
        }
        for index in 0..self.dbs_end {
            let Some(db) = self.dbs[index].as_deref_mut() else {
                continue;
            };
            let mut gone = Vec::new();
            for image in db.take_images().into_iter().rev() {
                gone.extend(db.restore(image).and_then(Trash::from_entry));
            }
            db.undo_fences();
            db.undo_blessings();
            for trash in gone {
                self.keep_trash(trash);
            }
        }
        self.effects.back_to(effects);
        self.waiters.undo_attempt();
        self.watches.undo_attempt();
        for (counter, kept) in counts(&self.published).into_iter().zip(kept_counts) {
            counter.set(kept);
        }
        for db in 0..self.dbs_end {
            let kept = db_counts.get(db).copied().unwrap_or_default();
            self.published.recount(db, kept);
        }
        for (counter, kept) in lags(&self.published).zip(lag.into_iter().flat_map(|kept| *kept)) {
            counter.set(kept);
        }
    }
}
