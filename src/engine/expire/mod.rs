//! Deletion of expired keys from the timer wheels, in bounded slices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::db::{Db, expired_from, next_due};
use super::effect::Event;
use super::own_deadlines::OwnDeadlines;
use super::value::{DataType, Object, ObjectKind, Trash, lapse};
use super::{DroppedValue, Engine, Now};
use basalt_core::alloc::account;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::table::EntrySlot;
use basalt_core::structures::wheel;

/// Wheel items examined per database and slice; keeps a slice well under 100 µs.
const ITEMS_PER_SLICE: usize = 64;

/// Items whose entries are prefetched before the first of them is read.
const FETCHED_AHEAD: usize = 8;

/// Expired elements of large collections deleted per database and slice.
const FIELDS_PER_SLICE: usize = 256;

/// Expired elements that a command deletes when it looks up their collection; further expired elements stay, but the
/// command does not see them.
pub(super) const FIELDS_PER_LOOKUP: usize = 32;

/// Suspension of expiry. During CLIENT PAUSE, until `until_ms`, expired keys are not deleted, although clients no
/// longer see them. While data are loaded, every reader sees expired keys, because later records may give them another
/// deadline.
#[derive(Debug, Default)]
pub struct Rest {
    until_ms: AtomicU64,
    is_loading: AtomicBool,
    /// True on a replica: the primary decides when keys are deleted. Expired keys are hidden from all commands but
    /// the primary's.
    follows: AtomicBool,
    /// The connection that runs the primary's commands.
    link: AtomicU64,
}

impl Rest {
    /// Sets the end of the suspension, as Unix time in milliseconds.
    pub fn set(&self, until_ms: u64) {
        self.until_ms.store(until_ms, Relaxed);
    }

    /// True if expired keys are hidden but not deleted now.
    pub fn holds(&self, now_ms: u64) -> bool {
        self.stops(now_ms) || self.follows()
    }

    /// True if the background deletes no keys now. On a replica it deletes only keys whose deadline was set here.
    pub fn stops(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) > now_ms || self.is_loading()
    }

    /// Sets whether this server is a replica, whose primary decides when keys are deleted.
    pub fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Relaxed);
    }

    /// True on a replica, whose primary decides when keys are deleted.
    pub fn follows(&self) -> bool {
        self.follows.load(Relaxed)
    }

    /// Sets the connection that runs the primary's commands.
    pub fn set_link(&self, client: u64) {
        self.link.store(client, Relaxed);
    }

    /// True if expired keys are visible to the commands of a connection.
    pub fn shows_all(&self, client: u64) -> bool {
        self.is_loading() || self.follows() && self.link.load(Relaxed) == client
    }

    /// Sets whether all keys are visible to every connection.
    pub fn set_loading(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Relaxed);
    }

    /// True if all keys are visible to every connection.
    pub fn is_loading(&self) -> bool {
        self.is_loading.load(Relaxed)
    }
}

/// True if nothing unexpired is left of an entry at a time, though the entry has not been deleted yet.
pub(super) fn is_over(entry: EntryRef<'_, Object>, now_ms: u64) -> bool {
    entry
        .deadline()
        .is_some_and(|deadline_ms| expired_from(deadline_ms) <= now_ms)
        || lapse::is_over(entry, now_ms)
}

/// Returns the event of elements deleted by expiry, and the command that deletes them elsewhere.
fn said_of_lapsed(entry: EntryRef<'_, Object>) -> (Event, &'static [u8]) {
    match ObjectKind(entry.kind()).data_type() {
        DataType::Set => (Event::SEXPIRED, b"SREM"),
        _ => (Event::HEXPIRED, b"HDEL"),
    }
}

impl Db {
    /// True if an entry is invisible to readers though it has not been deleted yet: it has expired, or one of its
    /// tags was invalidated.
    pub(super) fn is_gone(&self, entry: EntryRef<'_, Object>, now_ms: u64) -> bool {
        is_over(entry, now_ms) || self.is_invalidated(entry)
    }
}

impl Engine {
    /// Deletes some expired keys in all databases. Returns true while more are expired.
    ///
    /// Also publishes the time before which no deadline is armed, so that no thread needs to lock the shard to know
    /// whether it has work.
    pub fn expire_slice(&mut self, now: Now) -> bool {
        if self.rest.follows() {
            return self.expire_own_slice(now);
        }
        let mut more = false;
        let mut next_ms = u64::MAX;
        for index in 0..self.dbs.len() {
            let Some(db) = self.dbs[index].as_deref_mut() else {
                continue;
            };
            if db.wheel.is_empty() && db.partly_expired_hashes.is_empty() {
                continue;
            }
            let partly_expired_hashes = std::mem::take(&mut db.partly_expired_hashes);
            let mut due = [0u64; ITEMS_PER_SLICE];
            let mut count = 0;
            let left = db.charged(|db| {
                db.wheel.advance(now.unix_ms, ITEMS_PER_SLICE, |hash| {
                    due[count] = hash;
                    count += 1;
                })
            });
            more |= left;
            let mut fields_left = FIELDS_PER_SLICE;
            for (at, &hash) in due[..count]
                .iter()
                .chain(&partly_expired_hashes)
                .enumerate()
            {
                self.fetch_due(index, &due[..count], at);
                self.fire(index, hash, now, &mut fields_left);
            }
            if let Some(db) = self.dbs[index].as_deref() {
                next_ms = next_ms.min(db.wheel.next_due_ms().unwrap_or(u64::MAX));
                if !db.partly_expired_hashes.is_empty() {
                    more = true;
                    next_ms = 0;
                }
            }
            if let Some(db) = self.dbs[index].as_deref_mut() {
                db.charged(|_| drop(partly_expired_hashes));
            }
            if let Some(db) = self.dbs[index].as_deref_mut()
                && db.charged(|db| db.sweep_slice(now.unix_ms))
            {
                more = true;
                next_ms = 0;
            }
        }
        if let Some(alarm_ms) = self.waiters.go_off(now.unix_ms) {
            next_ms = next_ms.min(alarm_ms);
        }
        self.end_slice(now, more, next_ms)
    }

    /// Expires keys on a replica: only deadlines that clients set on this replica count.
    fn expire_own_slice(&mut self, now: Now) -> bool {
        let mut more = false;
        let mut next_ms = u64::MAX;
        for index in 0..self.dbs.len() {
            let Some(db) = self.dbs[index].as_deref_mut() else {
                continue;
            };
            if db.charged(|db| db.sweep_slice(now.unix_ms)) {
                more = true;
                next_ms = 0;
            }
            let Some(mut own) = db.own_deadlines.take() else {
                continue;
            };
            let mut due = [0u64; ITEMS_PER_SLICE];
            let mut count = 0;
            more |= db.charged(|_| {
                own.advance(now.unix_ms, ITEMS_PER_SLICE, |item| {
                    due[count] = item;
                    count += 1;
                })
            });
            for (at, &hash) in due[..count].iter().enumerate() {
                self.fetch_due(index, &due[..count], at);
                let later_ms = self.fire_own(index, hash, now);
                if let Some(later_ms) = later_ms
                    && let Some(db) = self.dbs[index].as_deref_mut()
                {
                    db.charged(|_| own.arm(later_ms, hash));
                }
            }
            next_ms = next_ms.min(own.next_due_ms().unwrap_or(u64::MAX));
            if let Some(db) = self.dbs[index].as_deref_mut() {
                db.charged(|db| db.own_deadlines = (!own.is_empty()).then_some(own));
            }
        }
        self.end_slice(now, more, next_ms)
    }

    /// Ends due leases, frees invalidated keys, and publishes when the next slice is due. Returns true if more is due.
    fn end_slice(&mut self, now: Now, more: bool, next_ms: u64) -> bool {
        let (more_leases, lease_end_ms) = self.end_leases(now);
        let more_invalidated = self.free_invalidated();
        let next_ms = match more_invalidated {
            true => 0,
            false => next_ms.min(lease_end_ms),
        };
        self.published.next_deadline_ms.set(next_ms);
        more || more_leases || more_invalidated
    }

    /// Deletes a key whose deadline was set on this replica, if the deadline has passed. Returns the deadline if it
    /// is still to come.
    fn fire_own(&mut self, index: usize, hash: u64, now: Now) -> Option<u64> {
        let (db, seed) = (self.dbs[index].as_deref_mut()?, self.seed);
        let mut later_ms = None;
        let place = db.table.find_by_hash(hash, |entry| {
            let due_ms = entry.deadline().map(expired_from);
            let is_meant = (seed.hash(entry.key()) ^ hash) & wheel::ITEM == 0;
            later_ms = due_ms
                .filter(|due_ms| is_meant && *due_ms > now.unix_ms)
                .or(later_ms);
            is_meant && due_ms.is_some_and(|due_ms| due_ms <= now.unix_ms)
        });
        let Some(place) = place else {
            return later_ms;
        };
        self.expire_due(index, place, now, FIELDS_PER_SLICE);
        None
    }

    /// Records a deadline that was set on a replica. The primary decides when its own keys are deleted, but may not
    /// know of a deadline set here by another connection than the replication link, so this server has to delete the
    /// key.
    #[cold]
    pub(super) fn note_own_deadline(&mut self, db: usize, hash: u64, deadline_ms: u64, now: Now) {
        if self.rest.shows_all(self.effects.client()) {
            return;
        }
        let Some(db) = self.dbs[db].as_deref_mut() else {
            return;
        };
        let due_ms = expired_from(deadline_ms);
        db.charged(|db| {
            let empty = || Box::new(OwnDeadlines::new(now.unix_ms));
            db.own_deadlines.get_or_insert_with(empty).arm(due_ms, hash);
        });
        let next_ms = self.published.next_deadline_ms.get().min(due_ms);
        self.published.next_deadline_ms.set(next_ms);
    }

    /// Makes this server decide when keys expire, as it is no longer a replica; also for deadlines that the primary
    /// set.
    pub fn decide_deadlines(&mut self) {
        for db in self.dbs.iter_mut().flatten() {
            db.charged(|db| db.own_deadlines = None);
        }
        self.published.next_deadline_ms.set(0);
    }

    /// Prefetches what firing the due items reads and writes, before the item at `at` is fired: at the first item the
    /// table's lines of all, and the entries of the next items at each. So the cache misses of several items overlap.
    fn fetch_due(&self, index: usize, due: &[u64], at: usize) {
        let Some(db) = self.dbs[index].as_deref() else {
            return;
        };
        if at == 0 {
            due.iter().for_each(|hash| db.table.prefetch(*hash));
        }
        let next = match at {
            0 => 0..FETCHED_AHEAD,
            _ => at + FETCHED_AHEAD - 1..at + FETCHED_AHEAD,
        };
        let next = due.iter().skip(next.start).take(next.len());
        next.for_each(|hash| db.table.prefetch_removal(*hash));
    }

    /// Handles a fired item: deletes the expired part of the key, arms it again for later deadlines, or drops the
    /// item.
    fn fire(&mut self, index: usize, hash: u64, now: Now, fields_left: &mut usize) {
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let mut later_ms = None;
        // The table compares only a few bits of the hash, but the position searched depends on all of them. Otherwise
        // an item could match another key than its own, delete that key, and leave its own key without any item.
        let seed = self.seed;
        let place = db.table.find_by_hash(hash, |entry| match next_due(entry) {
            Some(_) if (seed.hash(entry.key()) ^ hash) & wheel::ITEM != 0 => false,
            Some(due_ms) if due_ms <= now.unix_ms => true,
            Some(due_ms) => {
                later_ms = Some(due_ms);
                false
            }
            None => false,
        });
        match (place, later_ms) {
            (Some(place), _) => {
                let before = self.published.expired_fields.get();
                let gone = self.expire_due(index, place, now, *fields_left);
                let deleted = self.published.expired_fields.get() - before;
                *fields_left = fields_left.saturating_sub(deleted as usize);
                if gone {
                    return;
                }
                let Some(db) = self.dbs[index].as_deref_mut() else {
                    return;
                };
                if let Some(due_ms) = next_due(db.at(place)) {
                    if due_ms > now.unix_ms {
                        db.charged(|db| db.arm_item(due_ms, hash));
                    } else if !db.partly_expired_hashes.contains(&hash) {
                        db.charged(|db| db.partly_expired_hashes.push(hash));
                    }
                }
            }
            (None, Some(due_ms)) => db.charged(|db| db.arm_item(due_ms, hash)),
            (None, None) => {}
        }
    }

    /// Deletes the expired part of an entry and records it: the whole entry, or some of its fields. Returns true if
    /// the key is gone.
    pub(super) fn expire_due(
        &mut self,
        index: usize,
        place: EntrySlot,
        now: Now,
        fields_max: usize,
    ) -> bool {
        let Some(db) = self.dbs[index].as_deref() else {
            return false;
        };
        let now_ms = now.unix_ms;
        if let Some(attempt) = &mut self.attempt {
            attempt.keep_lag(&self.published);
        }
        if is_over(db.at(place), now_ms) {
            self.leaves(index, place);
        }
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return false;
        };
        let entry = db.at(place);
        if let Some(deadline_ms) = entry.deadline()
            && expired_from(deadline_ms) <= now_ms
        {
            self.effects.expired(index, entry.key(), Event::EXPIRED);
            self.effects.log_expired(index, entry.key());
            self.waiters.wake(index, entry.key());
            let stamp = self.effects.stamp();
            self.watches.key_changed(index, entry.key(), stamp);
            self.published.note_lag(now_ms - deadline_ms);
            self.published.dbs[index].expired.add(1);
            let trash = db.charged(|db| db.delete(place));
            self.discard(index, trash);
            return true;
        }
        self.expire_elements(index, place, now, fields_max)
    }

    /// Deletes some expired elements of a collection and records it. Returns true if the key is gone.
    fn expire_elements(
        &mut self,
        index: usize,
        place: EntrySlot,
        now: Now,
        fields_max: usize,
    ) -> bool {
        let now_ms = now.unix_ms;
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return false;
        };
        let entry = db.at(place);
        if lapse::next_element_deadline(entry).is_none_or(|deadline_ms| deadline_ms > now_ms) {
            return false;
        }
        let (event, removal) = said_of_lapsed(entry);
        let published = &self.published;
        let is_logging = self.effects.is_logging();
        let is_told = event == Event::HEXPIRED && self.effects.interest().wants_elements();
        let mut names = Vec::new();
        let count = db.edit(place, |entry| {
            lapse::expire_some(entry, now_ms, fields_max, |name, deadline_ms| {
                published.note_lag(now_ms.saturating_sub(deadline_ms));
                if is_logging || is_told {
                    account::uncharged(|| names.push(name.to_vec()));
                }
            })
        });
        if is_logging {
            account::uncharged(|| {
                let key = db.at(place).key();
                self.effects
                    .log_expired_elements(index, removal, key, &names);
            });
        }
        let entry = db.at(place);
        // The rest of an expired collection is invisible to clients and is deleted with the key.
        let left = lapse::is_empty_or_over(entry, now_ms);
        let count = count + left.unwrap_or(0);
        published.expired_fields.add(count as u64);
        if count > 0 {
            self.effects.expired(index, entry.key(), event);
            if is_told {
                account::uncharged(|| {
                    self.effects
                        .noticed_elements(index, entry.key(), event, &names);
                });
            }
            self.waiters.wake(index, entry.key());
            let stamp = self.effects.stamp();
            self.watches.key_changed(index, entry.key(), stamp);
        }
        let Some(left) = left else {
            return false;
        };
        self.effects.expired(index, entry.key(), Event::DEL);
        if left > 0 {
            self.effects.log_expired(index, entry.key());
        }
        let trash = db.charged(|db| db.delete(place));
        self.discard(index, trash);
        true
    }

    /// Logs that the key of a collection is about to be deleted, as a change left only expired elements in it. If
    /// such elements remain, an expiry of the key is logged, because the logged change does not remove them
    /// elsewhere.
    pub(super) fn log_left_due(&mut self, index: usize, place: EntrySlot, now: Now) {
        if let Some(db) = self.dbs[index].as_deref()
            && is_over(db.at(place), now.unix_ms)
        {
            self.effects.log_expired(index, db.at(place).key());
        }
    }

    /// Keeps a removed value for freeing: a large value until the shard is released, and a huge one for the
    /// background; small values have been freed already.
    pub(super) fn discard(&mut self, index: usize, trash: Option<Trash>) {
        if let Some(trash) = trash {
            if let Some(db) = self.dbs[index].as_deref_mut() {
                db.add_used(-trash.bytes());
            }
            self.published
                .lazyfreed
                .add(u64::from(trash.is_collection()));
            self.keep_trash(trash);
        }
    }

    /// Frees a value that was built for no key after all, and is charged to no shard: a large one later.
    pub fn free_unused(&mut self, entry: Entry<Object>) {
        if let Some(trash) = Trash::from_entry(entry) {
            self.keep_trash(trash);
        }
    }

    /// Keeps a large value that is no longer charged to the shard until the shard is released.
    pub(super) fn keep_trash(&mut self, trash: Trash) {
        if trash.is_under_way() {
            self.keep_left(trash);
        } else if trash.is_huge() {
            self.budget.add_leaving(trash.bytes());
            self.budget.add_pending(1);
            self.doomed_values.push(trash);
            self.published.set_doomed(true);
        } else {
            let leaving = DroppedValue::new(trash, &self.budget);
            self.deferred.trash.push(leaving);
        }
    }
}

#[cfg(test)]
mod tests;
