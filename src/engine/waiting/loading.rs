//! Clients that wait for a key to be loaded, and clients that load one: see [`leases`](crate::leases).

use super::Waiters;
use crate::holders::Lease;
use crate::leases::{LeaseEndReason, LeaseStatus, TOKEN_BITS, Undo};
use crate::{Key, Now};
use basalt_core::alloc::account;
use basalt_core::base::random::Random;

impl Waiters {
    /// Returns whether a client is loading a key. An expired lease ends here; clients that waited for it are served
    /// after the current command.
    pub fn lease_of(&mut self, db: usize, key: &Key<'_>, now: Now) -> LeaseStatus {
        let leased = (db, key.hash);
        match self.leases.by_key.get(&leased) {
            None => return LeaseStatus::Free,
            Some(lease) if lease.until_ms > now.unix_ms => return LeaseStatus::Leased,
            Some(_) => {}
        }
        self.leases.end(leased, LeaseEndReason::Time);
        self.note_attention();
        match self.wake(db, key.bytes) {
            true => LeaseStatus::Promised,
            false => LeaseStatus::Free,
        }
    }

    /// True if the user of a connection may store the value that it loads for a key, and so may get a lease of the
    /// key.
    pub fn may_load(&self, (db, connection): (usize, u64), key: &Key<'_>) -> bool {
        let connections = self.connections.as_deref();
        connections.is_none_or(|connections| connections.may_load(connection, db, key.bytes))
    }

    /// Gives a lease of a key, which has none, to the connection with this id. Returns the token.
    pub fn give_lease(
        &mut self,
        (db, connection): (usize, u64),
        key: &Key<'_>,
        until_ms: u64,
        random: &mut Random,
    ) -> u64 {
        let token = loop {
            // 53 bits: JavaScript numbers are exact up to that, and clients in that language round larger ones
            // silently.
            match random.next_u64() >> (64 - TOKEN_BITS) {
                0 => {}
                token => break token,
            }
        };
        let connections = self.connections.as_deref();
        let user = connections.map_or(0, |connections| connections.user_of(connection));
        if let Some(victim) = self.leases.victim(user, connections)
            && let Some(waited) = self.leases.end(victim, LeaseEndReason::Time)
        {
            self.wake(victim.0, &waited);
        }
        let leased = (db, key.hash);
        self.leases.charged(|leases| {
            let lease = Lease {
                token,
                user,
                connection,
                number: 0,
                until_ms,
                given_at: leases.invalidations,
                waited: None,
            };
            leases.insert(leased, lease);
            if let Some(undo) = &mut leases.undo {
                account::uncharged(|| undo.push(Undo::Given(leased)));
            }
        });
        if let Some(published) = &self.leases.published {
            published.leases.given.add(1);
            let next_ms = published.next_deadline_ms.get().min(until_ms);
            published.next_deadline_ms.set(next_ms);
        }
        self.note_attention();
        token
    }

    /// Ends the lease of a key if the token matches and the lease has not expired. Returns whether it ended.
    fn redeem(
        &mut self,
        db: usize,
        key: &Key<'_>,
        token: u64,
        now: Now,
        end: LeaseEndReason,
    ) -> bool {
        let lease = self.leases.by_key.get(&(db, key.hash));
        let is_valid =
            lease.is_some_and(|lease| lease.token == token && lease.until_ms > now.unix_ms);
        if is_valid {
            self.leases.end((db, key.hash), end);
            self.note_attention();
        }
        is_valid
    }

    /// Ends the lease of a key whose value is about to be stored, if the token matches, the lease has not expired,
    /// and none of the key's new tags was invalidated meanwhile. Returns whether all these conditions were met.
    pub fn fill_lease<'t>(
        &mut self,
        db: usize,
        key: &Key<'_>,
        token: u64,
        now: Now,
        tags: impl Iterator<Item = &'t [u8]>,
    ) -> bool {
        let outdated = self
            .leases
            .by_key
            .get(&(db, key.hash))
            .is_some_and(|lease| lease.token == token && self.leases.is_outdated(db, lease, tags));
        if outdated {
            self.key_changed(db, key.bytes);
        }
        let is_filled = !outdated && self.redeem(db, key, token, now, LeaseEndReason::Filled);
        if !is_filled && let Some(published) = &self.leases.published {
            published.leases.fills_refused.add(1);
        }
        is_filled
    }

    /// Records that a tag was invalidated.
    pub(crate) fn note_invalidated(&mut self, db: usize, tag: &[u8]) {
        self.leases.note_invalidated(db, tag);
    }

    /// Ends the lease of a key whose loader gives up, if the token matches. Returns whether it ended. The first
    /// waiting client gets the next lease.
    pub fn drop_lease(&mut self, db: usize, key: &Key<'_>, token: u64, now: Now) -> bool {
        let is_dropped = self.redeem(db, key, token, now, LeaseEndReason::Dropped);
        if is_dropped {
            self.wake(db, key.bytes);
        }
        is_dropped
    }

    /// Ends all leases of a database.
    pub fn void_leases(&mut self, db: usize) {
        if !self.leases.is_empty() {
            self.leases.void_db(db);
            self.note_attention();
        }
    }

    pub(crate) fn begin_attempt(&mut self) {
        self.leases.begin_attempt();
    }

    pub(crate) fn commit_attempt(&mut self) {
        self.leases.undo = None;
    }

    pub(crate) fn undo_attempt(&mut self) {
        self.forget_ready();
        self.leases.undo_attempt();
        self.note_attention();
    }
}
