//! Eviction: which keys are evicted when memory is full, and when.
//!
//! A shard that has used up its part of the [`budget`] is in debt and pays, that is, evicts keys, at once for what it
//! added: a few evictions for each entry that a command made, more for large ones, so that no command takes long. The
//! rest of its debt is paid with the following commands and by the background, in slices. Expired keys are deleted
//! first.
//!
//! The database chooses the key to evict, by [`Policy`].
//!
//! The share of memory of a database (`maxmemory-db`) is enforced in the same way, by evicting that database's own
//! keys, before the limit of all memory: each shard's usage for the database is compared with the shard's grant of
//! the share.
//!
//! Invariants: a key is evicted only while its shard exceeds its grant, of all memory or of the key's database's
//! share; nothing is evicted for the limit of all memory while flushed databases are still being freed; a command
//! is refused only if nothing can be evicted in any shard, or in any shard of the database whose share is used up.

pub mod budget;
mod by_order;
mod choose;
pub(super) mod order;
mod queue;

use std::sync::Arc;

use smallvec::SmallVec;

use super::db::{Db, expired_from};
use super::effect::Event;
use super::{Engine, Now};
use basalt_core::alloc::account;
use basalt_core::structures::table::EntrySlot;
use budget::{Budget, MemoryPool, PoolOwner};
use order::EvictionParams;

/// The reason why a command that may allocate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The data uses all memory available for it, and nothing can be evicted.
    Memory,
    /// The database with this number has used up its share, and nothing can be evicted from it.
    Share(usize),
}

/// The eviction policy (`maxmemory-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// Evicts nothing: commands that may allocate are refused.
    #[default]
    NoEviction,
    /// Evicts keys that were not used recently.
    AllkeysLru,
    /// Evicts keys that are used rarely.
    AllkeysLfu,
    /// Evicts random keys, with or without a deadline.
    AllkeysRandom,
    /// Evicts keys that were not used recently, among the keys with a deadline.
    VolatileLru,
    /// Evicts keys that are used rarely, among the keys with a deadline.
    VolatileLfu,
    /// Evicts random keys with a deadline.
    VolatileRandom,
    /// Evicts the key with the soonest deadline.
    VolatileTtl,
}

impl Policy {
    const ALL: [Policy; 8] = [
        Policy::NoEviction,
        Policy::AllkeysLru,
        Policy::AllkeysLfu,
        Policy::AllkeysRandom,
        Policy::VolatileLru,
        Policy::VolatileLfu,
        Policy::VolatileRandom,
        Policy::VolatileTtl,
    ];

    fn of(code: u8) -> Policy {
        Policy::ALL
            .get(usize::from(code))
            .copied()
            .unwrap_or_default()
    }

    /// True if the policy evicts anything.
    pub fn evicts(self) -> bool {
        self != Policy::NoEviction
    }

    /// True if only keys with a deadline may be evicted.
    pub fn is_volatile_only(self) -> bool {
        matches!(
            self,
            Policy::VolatileLru
                | Policy::VolatileLfu
                | Policy::VolatileRandom
                | Policy::VolatileTtl
        )
    }
}

/// Number of keys that a command evicts, while its shard is in debt, for each key that it names.
const EVICTIONS_PER_KEY: usize = 3;

/// Bytes of debt for which a command evicts one more key.
const BYTES_PER_EVICTION: i64 = 1024;

/// Maximum number of keys that one command evicts.
const EVICTIONS_PER_COMMAND_MAX: usize = 1024;

/// Keys whose cache lines are prefetched before the first of them is read.
const FETCHED_AHEAD: usize = 12;

/// Evictions in one slice of the background.
const EVICTIONS_PER_SLICE: usize = 128;

/// Maximum number of candidates passed over because a snapshot would keep them.
const KEPT_PASSED_MAX: usize = 8;

impl Engine {
    /// Sets the budget of this shard.
    pub fn set_budget(&mut self, budget: Arc<Budget>) {
        self.budget = budget;
    }

    /// Returns the budget of this shard.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn pool(&self, whose: PoolOwner) -> &MemoryPool {
        self.budget.pool(whose)
    }

    fn debt(&self, whose: PoolOwner) -> i64 {
        self.published.account(whose).debt_bytes()
    }

    /// Draws free bytes from a pool to cover the shard's debt and `more` bytes.
    fn draw(&self, whose: PoolOwner, more: i64) {
        let needed = self.debt(whose) + more;
        self.pool(whose).draw(&self.published, needed);
    }

    /// True if the shard has no unused grant left for a command that may allocate in this database, so that memory
    /// must be granted or freed first.
    #[inline]
    pub fn lacks_room(&self, db: usize) -> bool {
        self.published.debt_bytes() >= 0 || self.lacks_share(db)
    }

    #[inline]
    fn lacks_share(&self, db: usize) -> bool {
        self.published.is_sharing() && self.published.dbs[db].debt_bytes() >= 0
    }

    /// Frees memory before a command that may allocate in this database. Returns an error if no memory is free and none
    /// can be freed.
    #[inline]
    pub fn make_room(&mut self, db: usize, now: Now) -> Result<(), Full> {
        if self.lacks_share(db) && !self.find_room(Some(db), now) {
            return Err(Full::Share(db));
        }
        if self.published.debt_bytes() >= 0 && !self.find_room(None, now) {
            return Err(Full::Memory);
        }
        Ok(())
    }

    /// Checks a running command that is about to add to another database than the one that its client selected. Returns
    /// an error if that database has used up its share and nothing can be evicted from it. Nothing is evicted yet, as
    /// the command is not done.
    pub fn check_share(&self, db: usize) -> Result<(), Full> {
        if !self.lacks_share(db) || self.rest.is_loading() {
            return Ok(());
        }
        self.draw(Some(db), 1);
        let is_full = match self.budget.policy().evicts() {
            true => self.is_full(Some(db)),
            false => true,
        };
        match is_full && self.lacks_share(db) {
            true => Err(Full::Share(db)),
            false => Ok(()),
        }
    }

    /// True if the shard exceeds its grants, to be checked after a command that may allocate.
    #[inline]
    pub fn owes(&self) -> bool {
        self.published.owes()
    }

    /// Evicts keys to pay for what a command that may allocate, and that named `keys` keys, has added.
    #[inline]
    pub fn pay(&mut self, now: Now, keys: usize) {
        if self.published.owes() {
            self.pay_some(now, keys);
        }
    }

    /// Returns the databases for which this shard exceeds its grant of their shares.
    fn dbs_in_debt(&self) -> SmallVec<[usize; 2]> {
        match self.published.is_sharing() {
            true => (0..self.dbs_end)
                .filter(|db| self.debt(Some(*db)) > 0)
                .collect(),
            false => SmallVec::new(),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_room(&mut self, whose: PoolOwner, now: Now) -> bool {
        if self.rest.is_loading() {
            return true;
        }
        self.draw(whose, 1);
        self.keep_order();
        if self.debt(whose) < 0 {
            // Memory that is free because a client buffer was just freed is needed for the next buffer: while the
            // data alone exceeds the limit and nothing can be evicted, such memory does not count.
            return !self.budget.policy().evicts() || !self.is_full(whose);
        }
        if whose.is_none() && self.budget.is_freeing() {
            // If the spread debts are still too large, the next commands wait.
            self.budget.note_debts();
            return true;
        }
        if !self.budget.policy().evicts() {
            self.budget.assess();
            self.draw(whose, 1);
            return self.debt(whose) < 0;
        }
        if self.must_evict(whose, now) {
            self.evict_some(whose, now, 1);
        }
        // A shard without debt must still add nothing if no shard can evict anything for the debts of others.
        self.debt(whose) < 0 || !self.is_full(whose)
    }

    /// True if the data uses all of the memory and no shard can evict anything. Other shards are only read if this one
    /// has nothing to evict: their usage changes with every write there.
    fn is_full(&self, whose: PoolOwner) -> bool {
        let volatile_only = self.budget.policy().is_volatile_only();
        self.published.evictable(whose, volatile_only) == 0 && self.budget.is_full(whose)
    }

    /// Starts recording the order in which keys arrive once memory is scarce, or stops recording it.
    pub fn keep_order(&mut self) {
        let wanted = EvictionParams::of(self.budget.policy(), self.budget.is_by_size());
        // An order, once begun, is kept as long as its policy and the limit stay the same.
        let is_due =
            self.budget.limits_anything() && (self.order.is_some() || self.budget.is_scarce());
        let rules = wanted.filter(|_| is_due);
        if rules != self.order {
            self.order = rules;
            self.published.set_ordered(rules.is_some());
            for db in self.dbs.iter_mut().flatten() {
                db.charged(|db| db.set_order(rules));
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn pay_some(&mut self, now: Now, keys: usize) {
        for db in self.dbs_in_debt() {
            self.pay_to(Some(db), now, keys);
        }
        self.pay_to(None, now, keys);
    }

    fn pay_to(&mut self, whose: PoolOwner, now: Now, keys: usize) {
        if self.debt(whose) > 0 && self.must_evict(whose, now) {
            // Spread the debt first: a command that adds something large would evict just that, if its shard has
            // little else.
            self.budget.spread(self.pool(whose), &self.published);
            self.evict_some(whose, now, keys);
        }
    }

    /// Draws memory that no shard uses. Returns whether the shard is still in debt and keys can be evicted for it.
    fn must_evict(&mut self, whose: PoolOwner, now: Now) -> bool {
        self.draw(whose, 0);
        self.keep_order();
        let debt = self.debt(whose);
        if debt <= 0 {
            return false;
        }
        let pool = self.pool(whose);
        if !self.budget.policy().evicts() {
            self.budget.overdraw(pool, &self.published, debt);
            return false;
        }
        self.budget.note_unsettled(pool);
        self.budget.assess_at(now.unix_ms);
        // Memory that other shards had in excess may have been returned by now.
        pool.draw(&self.published, debt);
        true
    }

    /// Evicts as many keys as is fair for a command that named `keys` keys, to reduce the debt.
    fn evict_some(&mut self, whose: PoolOwner, now: Now, keys: usize) {
        let debt = self.debt(whose);
        if debt <= 0 {
            return;
        }
        let evictions = EVICTIONS_PER_KEY
            .saturating_mul(keys.max(1))
            .saturating_add((debt / BYTES_PER_EVICTION) as usize);
        self.evict(whose, now, evictions.min(EVICTIONS_PER_COMMAND_MAX));
    }

    /// Evicts some keys to reduce the shard's debt. Returns true if the shard is still in debt and has keys to evict.
    pub fn evict_slice(&mut self, now: Now) -> bool {
        let mut more = false;
        for db in self.dbs_in_debt() {
            more |= self.evict_slice_of(Some(db), now);
        }
        more | self.evict_slice_of(None, now)
    }

    fn evict_slice_of(&mut self, whose: PoolOwner, now: Now) -> bool {
        if !self.budget.policy().evicts() || self.debt(whose) <= 0 {
            return false;
        }
        self.budget.assess_at(now.unix_ms);
        self.draw(whose, 0);
        if self.debt(whose) <= 0 {
            return false;
        }
        let could_pay = self.evict(whose, now, EVICTIONS_PER_SLICE);
        could_pay && self.debt(whose) > 0
    }

    /// Evicts up to `evictions_max` keys, of all databases or of one, until the shard is within its grant. Returns
    /// false if there are no evictable keys. A few keys are evicted beyond the debt, so that several cache misses are
    /// waited for together. If the last key was so large that far more is freed than was owed, other shards in debt
    /// get the rest.
    fn evict(&mut self, whose: PoolOwner, now: Now, evictions_max: usize) -> bool {
        let waits = whose.is_none() && self.budget.is_freeing();
        if waits || self.rest.is_loading() {
            return false;
        }
        // A deadline of 0 is a request to the background to clean up, which takes too long here.
        let due_ms = self.published.next_deadline_ms.get();
        if due_ms != 0 && due_ms <= now.unix_ms && self.debt(whose) > 0 {
            self.expire_slice(now);
        }
        let policy = self.budget.policy();
        let trade = self.pool(whose).trade_bytes();
        let ahead = self.pool(whose).ahead_bytes(trade);
        let mut freed = 0;
        for (index, db) in self.dbs.iter().enumerate() {
            if let Some(db) = db
                && whose.is_none_or(|whose| whose == index)
            {
                db.prefetch_front(FETCHED_AHEAD);
            }
        }
        for _ in 0..evictions_max {
            let debt = self.debt(whose);
            // Large keys are not worth evicting beyond the debt.
            if debt <= -ahead || (debt <= 0 && freed > ahead) {
                break;
            }
            let Some((index, place)) = self.choose(whose, policy) else {
                let start = self.random.next_u64();
                if debt <= 0 {
                    return true;
                }
                let (pool, volatile_only) = (self.pool(whose), policy.is_volatile_only());
                let has_moved = pool.beg(&self.published, debt, start, volatile_only) > 0;
                if has_moved {
                    self.budget.ask_to_settle();
                }
                return has_moved;
            };
            let account = self.published.account(whose);
            let before = account.used_bytes();
            self.evict_at(index, place, now);
            freed = before - self.published.account(whose).used_bytes();
            self.trade(whose, freed, trade);
        }
        self.pool(whose).give_back(&self.published, trade);
        true
    }

    /// Moves `trade` bytes of other shards' grants to this shard for each `trade` bytes that it has evicted. Does
    /// nothing for a key that is larger than a few trades: the other shard would evict an equally large one for a
    /// small part of it, and so on from shard to shard. So large an amount has been spread over all shards by their
    /// size.
    fn trade(&mut self, whose: PoolOwner, freed: i64, trade: i64) {
        let at = whose.map_or(0, |db| db + 1);
        if self.untraded_bytes.len() <= at {
            // The list is only needed for databases with shares, and is not charged to the data.
            account::uncharged(|| self.untraded_bytes.resize(at + 1, 0));
        }
        let untraded = &mut self.untraded_bytes[at];
        *untraded += freed;
        if *untraded >= trade {
            *untraded = 0;
            if !budget::is_too_large_for_trades(freed, trade) {
                let random = &mut self.random;
                let pool = self.budget.pool(whose);
                pool.trade(&self.published, trade, |bound| random.below(bound));
            }
        }
    }

    /// Returns the database and the place of the next key to evict, of all databases or of one.
    fn choose(&mut self, whose: PoolOwner, policy: Policy) -> Option<(usize, EntrySlot)> {
        let index = match whose {
            Some(db) => db,
            None => self.draw_db(policy)?,
        };
        let Engine {
            dbs,
            random,
            published,
            ..
        } = self;
        let db = dbs[index].as_deref_mut()?;
        let mut passed = 0;
        loop {
            let place = db.charged(|db| db.choose(policy, random, published))?;
            // Evicting it would free nothing before the snapshot has saved it, and take its memory twice: others go.
            if passed == KEPT_PASSED_MAX || !db.is_kept_by_snapshot(place) {
                return Some((index, place));
            }
            passed += 1;
        }
    }

    /// Returns the database to evict the next key from: one that exceeds its share and has candidates, or else a
    /// random one with a probability proportional to its candidates.
    fn draw_db(&mut self, policy: Policy) -> Option<usize> {
        let volatile_only = policy.is_volatile_only();
        let candidates = |db: &Db| db.evictable_count(volatile_only);
        let total: usize = self.dbs.iter().flatten().map(|db| candidates(db)).sum();
        if total == 0 {
            return None;
        }
        let over = self.dbs_in_debt().into_iter().find(|index| {
            let db = self.dbs[*index].as_deref();
            db.is_some_and(|db| candidates(db) > 0)
        });
        if over.is_some() {
            return over;
        }
        let mut number = None;
        self.dbs.iter().position(|db| {
            let Some(db) = db else { return false };
            let count = candidates(db);
            if count == total {
                return true;
            }
            let left = number.get_or_insert_with(|| self.random.index(total));
            let is_it = *left < count;
            *left = left.saturating_sub(count);
            is_it
        })
    }

    /// Evicts the key at a place.
    fn evict_at(&mut self, index: usize, place: EntrySlot, now: Now) {
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let entry = db.at(place);
        if entry
            .deadline()
            .is_some_and(|at_ms| expired_from(at_ms) <= now.unix_ms)
        {
            self.expire_due(index, place, now, usize::MAX);
            return;
        }
        self.effects.expired(index, entry.key(), Event::EVICTED);
        self.effects.log_evicted(index, entry.key());
        self.waiters.wake(index, entry.key());
        let stamp = self.effects.stamp();
        self.watches.key_changed(index, entry.key(), stamp);
        self.published.dbs[index].evicted.add(1);
        let trash = db.charged(|db| {
            // Where memory is scarce, the wheel must not keep items of keys that are gone.
            db.disarm(place);
            db.delete(place)
        });
        let is_empty = db.is_empty() && !db.keeps_images();
        self.discard(index, trash);
        if is_empty {
            self.drop_empty(index);
        }
    }

    /// Frees the remaining memory of a database without keys: a few KiB, which matter where a small limit is shared
    /// by many shards.
    #[cold]
    fn drop_empty(&mut self, index: usize) {
        let before = account::charged_bytes();
        if let Some(mut db) = self.dbs[index].take() {
            db.hide();
            db.end_saving_of_nothing();
        }
        self.published.add_used(account::charged_bytes() - before);
        self.published.clear_db(index);
    }
}

#[cfg(test)]
mod tests;
