//! Leases of this shard's keys: which client may load a key that is missing or stale, and until when.
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
pub enum Standing {
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
            account::apart(|| {
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
mod tests {
    use super::*;
    use crate::Key;

    const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

    fn now(unix_ms: u64) -> Now {
        Now { unix_ms }
    }

    fn give(engine: &mut Engine, name: &[u8], until_ms: u64) -> u64 {
        give_to(engine, 1, name, until_ms)
    }

    fn give_to(engine: &mut Engine, holder: u64, name: &[u8], until_ms: u64) -> u64 {
        let key = Key::new(name, SEED);
        engine
            .waiters
            .give_lease((0, holder), &key, until_ms, &mut engine.random)
    }

    fn fills(engine: &mut Engine, name: &[u8], token: u64, at_ms: u64) -> bool {
        let key = Key::new(name, SEED);
        let no_tags = std::iter::empty();
        engine
            .waiters
            .fill_lease(0, &key, token, now(at_ms), no_tags)
    }

    #[test]
    fn a_token_is_good_once_and_until_its_time_is_over() {
        let mut engine = Engine::new(1, SEED, 1);
        let token = give(&mut engine, b"a", 100);
        assert!(!fills(&mut engine, b"a", token ^ 1, 50), "another token");
        assert!(!fills(&mut engine, b"b", token, 50), "another key");
        assert!(fills(&mut engine, b"a", token, 99));
        assert!(!fills(&mut engine, b"a", token, 99), "a second time");
        let token = give(&mut engine, b"a", 100);
        assert!(!fills(&mut engine, b"a", token, 100), "its time is over");
    }

    /// JavaScript reads a number as a double, and clients in that language send what they have read.
    #[test]
    fn tokens_are_exact_as_doubles_and_use_all_bits_that_these_have() {
        let mut engine = Engine::new(1, SEED, 1);
        let mut all = 0;
        for number in 0..2_000u64 {
            let token = give(&mut engine, &number.to_le_bytes(), 100);
            assert!(token != 0 && (token as f64) as u64 == token, "{token}");
            all |= token;
            assert!(fills(&mut engine, &number.to_le_bytes(), token, 50));
        }
        assert_eq!(all, (1 << TOKEN_BITS) - 1);
    }

    #[test]
    fn every_fill_is_counted_as_one_that_stored_or_as_one_that_was_refused() {
        let mut engine = Engine::new(1, SEED, 1);
        let token = give(&mut engine, b"a", 100);
        assert!(!fills(&mut engine, b"a", token + 1, 50), "another token");
        assert!(!fills(&mut engine, b"b", token, 50), "no lease");
        assert!(fills(&mut engine, b"a", token, 50));
        let tagged = give(&mut engine, b"a", 100);
        engine.waiters.note_invalidated(0, b"tag");
        let (key, tags) = (Key::new(b"a", SEED), [&b"tag"[..]]);
        let waiters = &mut engine.waiters;
        assert!(!waiters.fill_lease(0, &key, tagged, now(50), tags.into_iter()));
        let figures = &engine.published().leases;
        assert_eq!((figures.filled.get(), figures.fills_refused.get()), (1, 3));
        assert_eq!(figures.void_by_change.get(), 1);
    }

    #[test]
    fn a_change_of_the_key_ends_its_lease_and_no_other() {
        let mut engine = Engine::new(1, SEED, 1);
        let (one, other) = (give(&mut engine, b"a", 100), give(&mut engine, b"b", 100));
        engine.waiters.key_changed(0, b"a");
        engine.waiters.key_changed(1, b"b");
        engine.waiters.wake(0, b"b");
        assert!(!fills(&mut engine, b"a", one, 1));
        assert!(fills(&mut engine, b"b", other, 1));
        let figures = &engine.published().leases;
        assert_eq!((figures.given.get(), figures.in_force.get()), (2, 0));
        assert_eq!((figures.filled.get(), figures.void_by_change.get()), (1, 1));
    }

    #[test]
    fn of_too_many_leases_of_one_holder_those_go_that_would_end_first() {
        let mut engine = Engine::new(1, SEED, 1);
        let names: Vec<String> = (0..=LEASES_MAX).map(|number| number.to_string()).collect();
        let mut tokens = Vec::new();
        for (number, name) in names.iter().enumerate() {
            tokens.push(give(&mut engine, name.as_bytes(), 1_000 + number as u64));
        }
        assert_eq!(engine.published().leases.in_force.get(), LEASES_MAX as u64);
        let bytes = engine.used_bytes() / LEASES_MAX as i64;
        assert!(bytes < 400, "{bytes} bytes each");
        assert!(!fills(&mut engine, names[0].as_bytes(), tokens[0], 1));
        for (name, token) in names.iter().zip(&tokens).skip(1) {
            assert!(fills(&mut engine, name.as_bytes(), *token, 1));
        }
        assert_eq!(engine.used_bytes(), 0);
    }

    #[test]
    fn a_holder_of_many_leases_voids_its_own_and_none_of_the_others() {
        let mut engine = Engine::new(1, SEED, 1);
        // A hundred clients with ten leases each, which would end before all others.
        let mut kept = Vec::new();
        for number in 0..1_000u64 {
            let name = format!("kept {number}");
            let token = give_to(&mut engine, 100 + number % 100, name.as_bytes(), 1_000);
            kept.push((name, token));
        }
        let most = (1..=20_000u64).map(|number| {
            let name = format!("many {number}");
            let token = give_to(&mut engine, 7, name.as_bytes(), 1_000_000 + number);
            (name, token)
        });
        let most: Vec<(String, u64)> = most.collect();
        let later = give_to(&mut engine, 8, b"later", 1_000);
        assert!(engine.published().leases.in_force.get() <= LEASES_MAX as u64);
        assert!(fills(&mut engine, b"later", later, 1));
        for (name, token) in &kept {
            assert!(fills(&mut engine, name.as_bytes(), *token, 1), "{name}");
        }
        let of_most = most.iter().filter(|(name, token)| {
            let key = Key::new(name.as_bytes(), SEED);
            let lease = engine.waiters.leases.by_key.get(&(0, key.hash));
            lease.is_some_and(|lease| lease.token == *token)
        });
        let left = of_most.count();
        assert_eq!(left, LEASES_MAX - 1_000 - 1);
    }

    #[test]
    fn an_attempt_that_is_undone_leaves_leases_as_they_were() {
        let mut engine = Engine::new(1, SEED, 1);
        let kept = give(&mut engine, b"a", 100);
        let changed = give(&mut engine, b"b", 100);
        engine.begin_attempt();
        assert!(fills(&mut engine, b"a", kept, 1));
        engine.waiters.key_changed(0, b"b");
        let token = give(&mut engine, b"c", 100);
        engine.undo_attempt();
        assert!(fills(&mut engine, b"a", kept, 1));
        assert!(fills(&mut engine, b"b", changed, 1));
        assert!(!fills(&mut engine, b"c", token, 1), "no client has seen it");
        assert_eq!(engine.used_bytes(), 0);
    }

    #[test]
    fn leases_end_in_slices_when_their_time_is_over() {
        let mut engine = Engine::new(1, SEED, 1);
        for number in 0..200u64 {
            give(
                &mut engine,
                number.to_string().as_bytes(),
                10 + number % 2 * 1_000,
            );
        }
        assert_eq!(engine.published().next_deadline_ms.get(), 10);
        while engine.expire_slice(now(10)) {}
        assert_eq!(engine.published().leases.in_force.get(), 100);
        assert_eq!(engine.published().next_deadline_ms.get(), 1_010);
        while engine.expire_slice(now(2_000)) {}
        let figures = &engine.published().leases;
        assert_eq!(
            (figures.in_force.get(), figures.void_by_time.get()),
            (0, 200)
        );
        assert_eq!(engine.published().next_deadline_ms.get(), u64::MAX);
    }
}
