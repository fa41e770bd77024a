//! Leases of this shard's keys: the right of one client, for a limited time, to load a key that is missing or stale.
//!
//! A lease is a random number, the token, that LGET gives to one client and that LFILL has to present. Every change
//! of the key ends the lease, and so does a deletion when there was no key to delete: a client that read an old row
//! of the source database before another client changed that row can no longer store it here. Leases are kept beside
//! the queues of [`waiting`](super::waiting), because clients that wait for a key to be loaded must be served when
//! its lease ends.
//!
//! A lease identifies its key by the hash alone. Two keys with one hash would share one lease: one of them would
//! appear busy while the other is loaded, and a change of either would end it. Both are safe, so the names need not
//! be kept.
//!
//! The limit of a shard is shared by all users. At the limit the user with the most leases, who may be the requesting
//! one, loses a lease, leases of closed connections first ([`holders`](super::holders)): a client that requests
//! leases without end voids its own. A lease does not end with its connection: many programs send LFILL on another
//! connection than LGET.
//!
//! Invariants: no more than [`LEASES_MAX`] leases are in force; without leases no memory is used.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::holders::{Connections, Holders, LEASES_MAX, Lease, Leased};
use super::published::Published;
use super::{Engine, Now};
use basalt_core::alloc::account;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::maps;

/// Random bits of a token. A guess hits one of 2^53: a million guesses a second, for as long as a lease of a minute
/// is in force, hit it once in 150 million leases. A client that may guess by LFILL may write the key anyway.
pub(super) const TOKEN_BITS: u32 = 53;

/// Number of tag invalidations remembered while leases are in force. Beyond that number all are forgotten, and leases
/// given before can no longer fill a key that is to have tags.
const INVALIDATED_MAX: usize = 1024;

/// Expired leases that are ended in one slice.
const ENDED_PER_SLICE: usize = 64;

/// Whether a key is being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// No client has a lease.
    Free,
    /// A client with the token is loading the key.
    Leased,
    /// A lease has just expired, and clients that wait for the key are served before a new lease is given.
    Promised,
}

/// The undo record of a change during an attempt.
#[derive(Debug)]
pub(super) enum Undo {
    Given(Leased),
    Ended(Leased, Lease),
}

/// The leases of a shard, see the module.
#[derive(Default)]
pub(super) struct Leases {
    pub(super) by_key: HashMap<Leased, Lease>,
    pub(super) by_end: BTreeSet<(u64, usize, u64)>,
    pub(super) holders: Holders,
    /// Tags invalidated while leases were in force, by the hash of the name, with the sequence number of the
    /// invalidation.
    invalidated: HashMap<Leased, u64>,
    pub(super) invalidations: u64,
    /// Tag invalidations up to this sequence number were forgotten, because there were too many.
    forgotten: u64,
    /// Undo records of the current attempt.
    pub(super) undo: Option<Vec<Undo>>,
    seed: Option<HashSeed>,
    pub(super) published: Option<Arc<Published>>,
}

/// The reason for the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEndReason {
    Filled,
    Dropped,
    Time,
    Change,
}

impl Leases {
    /// Creates an empty set of leases that publishes its counts in `published`.
    pub(super) fn published_in(published: Arc<Published>, seed: HashSeed) -> Leases {
        Leases {
            seed: Some(seed),
            published: Some(published),
            ..Leases::default()
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn charged<R>(&mut self, change: impl FnOnce(&mut Leases) -> R) -> R {
        let before = account::charged_bytes();
        let result = change(self);
        if let Some(published) = &self.published {
            published.add_used(account::charged_bytes() - before);
            published.leases.in_force.set(self.by_key.len() as u64);
        }
        result
    }

    pub(super) fn insert(&mut self, leased: Leased, mut lease: Lease) {
        self.by_end.insert((lease.until_ms, leased.0, leased.1));
        self.holders.came(leased, &mut lease);
        if let Some(before) = self.by_key.insert(leased, lease) {
            self.by_end.remove(&(before.until_ms, leased.0, leased.1));
            self.holders.went(&before, &self.by_key);
        }
    }

    fn remove(&mut self, leased: Leased) -> Option<Lease> {
        let lease = self.by_key.remove(&leased)?;
        self.by_end.remove(&(lease.until_ms, leased.0, leased.1));
        self.holders.went(&lease, &self.by_key);
        maps::shrink(&mut self.by_key);
        if self.by_end.is_empty() {
            self.by_end = BTreeSet::new();
            self.invalidated = HashMap::new();
        }
        Some(lease)
    }

    /// Ends a lease. Returns the key if clients wait for it.
    pub(super) fn end(&mut self, leased: Leased, end: LeaseEndReason) -> Option<Box<[u8]>> {
        if let (Some(published), true) = (&self.published, self.by_key.contains_key(&leased)) {
            let figures = &published.leases;
            match end {
                LeaseEndReason::Filled => figures.filled.add(1),
                LeaseEndReason::Dropped => figures.dropped.add(1),
                LeaseEndReason::Time => figures.void_by_time.add(1),
                LeaseEndReason::Change => figures.void_by_change.add(1),
            }
        }
        self.charged(|leases| {
            let lease = leases.remove(leased)?;
            // The copy kept for undo is charged to no account: the shard is credited with what it was charged for.
            account::uncharged(|| {
                if let Some(undo) = &mut leases.undo {
                    undo.push(Undo::Ended(leased, lease.clone()));
                }
                lease.waited.clone()
            })
        })
    }

    /// Returns the lease to end if the limit is reached and user `asker` is to get one more.
    pub(super) fn victim(
        &mut self,
        asker: u64,
        connections: Option<&dyn Connections>,
    ) -> Option<Leased> {
        if self.by_key.len() < LEASES_MAX {
            return None;
        }
        self.charged(|leases| {
            let Leases {
                holders, by_key, ..
            } = leases;
            holders.victim(asker, by_key, connections)
        })
    }

    /// Records that a client waits for a key, to be served when its lease ends.
    pub(super) fn note_waited(&mut self, db: usize, key: &[u8]) {
        let leased = (db, self.hash(key));
        self.charged(|leases| {
            if let Some(lease) = leases.by_key.get_mut(&leased)
                && lease.waited.is_none()
            {
                lease.waited = Some(key.into());
            }
        });
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.seed.map_or(0, |seed| seed.hash(key))
    }

    /// Ends the lease of a key that changed, if there is one.
    pub(super) fn void(&mut self, db: usize, key: &[u8]) {
        let leased = (db, self.hash(key));
        self.end(leased, LeaseEndReason::Change);
    }

    /// Ends all leases of a database; the caller handles the keys that clients wait for.
    pub(super) fn void_db(&mut self, db: usize) {
        let all: Vec<Leased> = self.by_key.keys().copied().collect();
        for leased in all.into_iter().filter(|leased| leased.0 == db) {
            self.end(leased, LeaseEndReason::Change);
        }
    }

    /// Records that a tag was invalidated: values read before that must not be stored with the tag.
    pub(super) fn note_invalidated(&mut self, db: usize, tag: &[u8]) {
        if self.is_empty() {
            return;
        }
        self.charged(|leases| {
            let tag = (db, leases.hash(tag));
            leases.invalidations += 1;
            if leases.invalidated.len() >= INVALIDATED_MAX {
                leases.invalidated.clear();
                leases.forgotten = leases.invalidations;
            }
            leases.invalidated.insert(tag, leases.invalidations);
        });
    }

    /// True if one of these tags was invalidated since a lease was given.
    pub(super) fn is_outdated<'t>(
        &self,
        db: usize,
        lease: &Lease,
        mut tags: impl Iterator<Item = &'t [u8]>,
    ) -> bool {
        tags.any(|tag| {
            let at = self.invalidated.get(&(db, self.hash(tag)));
            self.forgotten > lease.given_at || at.is_some_and(|at| *at > lease.given_at)
        })
    }

    /// True if the lease of a key with waiters is in force.
    pub(super) fn are_in_force(&self, db: usize, key: &[u8], now: Now) -> bool {
        let lease = self.by_key.get(&(db, self.hash(key)));
        lease.is_some_and(|lease| lease.until_ms > now.unix_ms)
    }

    pub(super) fn begin_attempt(&mut self) {
        self.undo = Some(Vec::new());
    }

    pub(super) fn undo_attempt(&mut self) {
        let changes = self.undo.take().unwrap_or_default();
        self.charged(|leases| {
            for change in changes.iter().rev() {
                match change {
                    Undo::Given(leased) => {
                        leases.remove(*leased);
                    }
                    // Cloned, so that the shard is charged for the restored copy, and not for the uncharged one kept
                    // for undo.
                    Undo::Ended(leased, lease) => leases.insert(*leased, lease.clone()),
                }
            }
        });
    }
}

impl Engine {
    /// Ends some expired leases. Returns true while more have expired, and the time of the next expiry, `u64::MAX` if
    /// no lease is left.
    pub(super) fn end_leases(&mut self, now: Now) -> (bool, u64) {
        for _ in 0..ENDED_PER_SLICE {
            let Some(&(until_ms, db, hash)) = self.waiters.leases.by_end.first() else {
                return (false, u64::MAX);
            };
            if until_ms > now.unix_ms {
                return (false, until_ms);
            }
            let waited = self.waiters.leases.end((db, hash), LeaseEndReason::Time);
            self.waiters.note_attention();
            if let Some(key) = waited {
                self.waiters.wake(db, &key);
            }
        }
        (true, 0)
    }
}

#[cfg(test)]
mod tests;
