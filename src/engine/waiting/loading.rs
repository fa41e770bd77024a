//! Who waits for a key to be loaded, and who loads it: see [`leases`](crate::engine::leases).

use super::Waiters;
use crate::alloc::account;
use crate::base::random::Random;
use crate::engine::leases::{End, LEASES_MAX, Lease, Standing, Undo};
use crate::engine::{Key, Now};

impl Waiters {
    /// Whether a key is being loaded by a client. Where the time of a lease is over, it ends here; those who waited for
    /// it are served behind the command that runs.
    pub fn lease_of(&mut self, db: usize, key: &Key<'_>, now: Now) -> Standing {
        let leased = (db, key.hash);
        match self.leases.by_key.get(&leased) {
            None => return Standing::Free,
            Some(lease) if lease.until_ms > now.unix_ms => return Standing::Leased,
            Some(_) => {}
        }
        self.leases.end(leased, End::Time);
        self.note_attention();
        match self.wake(db, key.bytes) {
            true => Standing::Promised,
            false => Standing::Free,
        }
    }

    /// Gives a lease of a key that has none; the token.
    pub fn give_lease(
        &mut self,
        db: usize,
        key: &Key<'_>,
        until_ms: u64,
        random: &mut Random,
    ) -> u64 {
        let token = loop {
            // 63 bits, so that it is positive in every language.
            match random.next_u64() >> 1 {
                0 => {}
                token => break token,
            }
        };
        if self.leases.by_key.len() >= LEASES_MAX
            && let Some(&(_, db, hash)) = self.leases.by_end.first()
            && let Some(waited) = self.leases.end((db, hash), End::Time)
        {
            self.wake(db, &waited);
        }
        let leased = (db, key.hash);
        self.leases.charged(|leases| {
            let lease = Lease {
                token,
                until_ms,
                given_at: leases.invalidations,
                waited: None,
            };
            leases.insert(leased, lease);
            if let Some(undo) = &mut leases.undo {
                account::apart(|| undo.push(Undo::Given(leased)));
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

    /// Ends the lease of a key if this is its token and its time is not over; whether it was.
    fn redeem(&mut self, db: usize, key: &Key<'_>, token: u64, now: Now, end: End) -> bool {
        let lease = self.leases.by_key.get(&(db, key.hash));
        let is_valid =
            lease.is_some_and(|lease| lease.token == token && lease.until_ms > now.unix_ms);
        if is_valid {
            self.leases.end((db, key.hash), end);
            self.note_attention();
        }
        is_valid
    }

    /// Ends the lease of a key whose value is about to be stored, if this is its token, its time is not over, and none
    /// of the tags that the key is to have was invalidated meanwhile; whether it was so.
    pub fn fill_lease<'t>(
        &mut self,
        db: usize,
        key: &Key<'_>,
        token: u64,
        now: Now,
        tags: impl Iterator<Item = &'t [u8]>,
    ) -> bool {
        if let Some(lease) = self.leases.by_key.get(&(db, key.hash))
            && lease.token == token
            && self.leases.is_outdated(db, lease, tags)
        {
            self.key_changed(db, key.bytes);
            return false;
        }
        self.redeem(db, key, token, now, End::Filled)
    }

    /// A tag was invalidated.
    pub(in crate::engine) fn note_invalidated(&mut self, db: usize, tag: &[u8]) {
        self.leases.note_invalidated(db, tag);
    }

    /// Ends the lease of a key whose loader gives up, likewise. The first client that waits comes next.
    pub fn drop_lease(&mut self, db: usize, key: &Key<'_>, token: u64, now: Now) -> bool {
        let is_dropped = self.redeem(db, key, token, now, End::Dropped);
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

    pub(in crate::engine) fn begin_attempt(&mut self) {
        self.leases.begin_attempt();
    }

    pub(in crate::engine) fn commit_attempt(&mut self) {
        self.leases.undo = None;
    }

    pub(in crate::engine) fn undo_attempt(&mut self) {
        self.forget_ready();
        self.leases.undo_attempt();
        self.note_attention();
    }
}
