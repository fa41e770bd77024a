//! Making room: which keys go when memory is full, and when.
//!
//! A shard that has used up its part of the [`budget`] pays at once for what it put in: a few evictions for each entry
//! that a command made, more for large ones, so that no command takes long. What it still owes then is paid with the
//! commands that follow and by the background, in slices. Keys whose time has come go first.
//!
//! Which key goes is the matter of the database, by [`Policy`].
//!
//! Invariants: a key is evicted only while its shard takes more than it was granted; nothing is evicted while flushed
//! databases are still being freed; a command is refused only if nothing can be evicted in any shard.

pub mod budget;
mod by_order;
mod choose;
pub(super) mod order;

use std::sync::Arc;

use super::db::{Db, gone_at};
use super::effect::Event;
use super::{Engine, Now};
use crate::alloc::account;
use crate::structures::table::Place;
use budget::Budget;
use order::Rules;

/// What goes when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// Nothing: commands that may grow are refused.
    #[default]
    NoEviction,
    /// What was not used of late.
    AllkeysLru,
    /// What is used seldom.
    AllkeysLfu,
    /// Any key.
    AllkeysRandom,
    /// What was not used of late, of the keys with a deadline.
    VolatileLru,
    /// What is used seldom, of the keys with a deadline.
    VolatileLfu,
    /// Any key with a deadline.
    VolatileRandom,
    /// The key with the soonest deadline.
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

    /// Whether anything may go at all.
    pub fn evicts(self) -> bool {
        self != Policy::NoEviction
    }

    /// Whether only keys with a deadline may go.
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

/// Evictions for each key that a command names.
const EVICTIONS_PER_KEY: usize = 3;

/// A command that put in more pays one eviction more for so many bytes.
const BYTES_PER_EVICTION: i64 = 1024;

/// Evictions that one command pays at most.
const EVICTIONS_PER_COMMAND_MAX: usize = 1024;

/// Keys of which the lines are fetched before the first of them is looked at.
const FETCHED_AHEAD: usize = 12;

/// Evictions in one slice of the background.
const EVICTIONS_PER_SLICE: usize = 128;

impl Engine {
    /// Says which budget this shard lives on.
    pub fn set_budget(&mut self, budget: Arc<Budget>) {
        self.budget = budget;
    }

    /// The budget that this shard lives on.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Before a command that may make the shard grow: whether there is no room but for what can be made.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.published.debt_bytes() >= 0
    }

    /// Before a command that may make the shard grow: whether there is room, or can be made.
    #[inline]
    pub fn has_room(&mut self, now: Now) -> bool {
        !self.lacks_room() || self.find_room(now)
    }

    /// After such a command: whether it put in more than was granted.
    #[inline]
    pub fn owes(&self) -> bool {
        self.published.debt_bytes() > 0
    }

    /// After such a command, which named so many keys: pays for what it put in.
    #[inline]
    pub fn pay(&mut self, now: Now, keys: usize) {
        if self.published.debt_bytes() > 0 {
            self.pay_some(now, keys);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_room(&mut self, now: Now) -> bool {
        if self.rest.is_loading() {
            return true;
        }
        self.budget
            .draw(&self.published, self.published.debt_bytes() + 1);
        self.keep_order();
        if self.published.debt_bytes() < 0 {
            // What is free because a buffer just went is needed again for the next one: while the data alone are above
            // the limit and nothing can be evicted, it is no room.
            return !self.budget.policy().evicts() || !self.budget.is_out_of_memory(0);
        }
        if self.budget.is_freeing() {
            // Who comes after this one waits, if that is not enough.
            self.budget.note_debts();
            return true;
        }
        if !self.budget.policy().evicts() {
            self.budget.assess();
            self.budget
                .draw(&self.published, self.published.debt_bytes() + 1);
            return self.published.debt_bytes() < 0;
        }
        if self.must_evict(now) {
            self.evict_some(now, 1);
        }
        // A shard that owes nothing may still not add anything, if no shard can pay what others owe.
        self.published.debt_bytes() < 0 || !self.budget.is_out_of_memory(0)
    }

    /// Begins to remember in which order keys come, once that matters, or stops.
    pub fn keep_order(&mut self) {
        let wanted = Rules::of(self.budget.policy(), self.budget.is_by_size());
        // An order that was begun goes on as long as its policy and the limit stand.
        let is_due = self.budget.is_limited() && (self.order.is_some() || self.budget.is_scarce());
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
        if self.must_evict(now) {
            // First of all: a command that puts in something large would give up just that, if its shard has little
            // else.
            self.budget.spread(&self.published);
            self.evict_some(now, keys);
        }
    }

    /// Looks for room that no shard uses; whether the shard still owes something, for which keys can go.
    fn must_evict(&mut self, now: Now) -> bool {
        self.budget
            .draw(&self.published, self.published.debt_bytes());
        self.keep_order();
        let debt = self.published.debt_bytes();
        if debt <= 0 {
            return false;
        }
        if !self.budget.policy().evicts() {
            self.budget.overdraw(&self.published, debt);
            return false;
        }
        self.budget.note_unsettled();
        self.budget.assess_at(now.unix_ms);
        // What other shards had too much may be free by now.
        self.budget.draw(&self.published, debt);
        true
    }

    /// Pays as much as is fair for a command that named so many keys.
    fn evict_some(&mut self, now: Now, keys: usize) {
        let debt = self.published.debt_bytes();
        if debt <= 0 {
            return;
        }
        let evictions = EVICTIONS_PER_KEY
            .saturating_mul(keys.max(1))
            .saturating_add((debt / BYTES_PER_EVICTION) as usize);
        self.evict(now, evictions.min(EVICTIONS_PER_COMMAND_MAX));
    }

    /// Pays some of what the shard owes; true if it still owes something and can pay.
    pub fn evict_slice(&mut self, now: Now) -> bool {
        if !self.budget.policy().evicts() || self.published.debt_bytes() <= 0 {
            return false;
        }
        self.budget.assess_at(now.unix_ms);
        self.budget
            .draw(&self.published, self.published.debt_bytes());
        if self.published.debt_bytes() <= 0 {
            return false;
        }
        let could_pay = self.evict(now, EVICTIONS_PER_SLICE);
        could_pay && self.published.debt_bytes() > 0
    }

    /// Evicts keys until the shard takes no more than it was granted, so many at most; false if there are none. A few
    /// go ahead of need, so that what they have to be fetched for is waited for once. If the last of them was so large
    /// that far more is paid than was owed, others who owe have the rest.
    fn evict(&mut self, now: Now, evictions_max: usize) -> bool {
        if self.budget.is_freeing() || self.rest.is_loading() {
            return false;
        }
        // 0 asks the background to tidy up, which takes too long for here.
        let due_ms = self.published.next_deadline_ms.get();
        if due_ms != 0 && due_ms <= now.unix_ms && self.published.debt_bytes() > 0 {
            self.expire_slice(now);
        }
        let policy = self.budget.policy();
        let trade = self.budget.trade_bytes();
        let ahead = self.budget.ahead_bytes(trade);
        let mut freed = 0;
        for db in self.dbs.iter().flatten() {
            db.prefetch_front(FETCHED_AHEAD);
        }
        for _ in 0..evictions_max {
            let debt = self.published.debt_bytes();
            // Large ones are not worth to be gone ahead of need.
            if debt <= -ahead || (debt <= 0 && freed > ahead) {
                break;
            }
            let Some((index, place)) = self.choose(policy) else {
                let start = self.random.next_u64();
                if debt <= 0 {
                    return true;
                }
                let has_moved = self.budget.beg(&self.published, debt, start) > 0;
                if has_moved {
                    self.budget.ask_to_settle();
                }
                return has_moved;
            };
            let before = self.published.used_bytes();
            self.evict_at(index, place, now);
            freed = before - self.published.used_bytes();
            self.trade(freed, trade);
        }
        self.budget.give_back(&self.published, trade);
        true
    }

    /// Parts of the budget move to where keys are evicted, `trade` bytes for as many that went. Not for a key that is
    /// larger than a few of those: the other shard would give up as large a one for a small part of it, and so on from
    /// shard to shard. What is as large was asked of shards by their size.
    fn trade(&mut self, freed: i64, trade: i64) {
        self.untraded_bytes += freed;
        if self.untraded_bytes >= trade {
            self.untraded_bytes = 0;
            if !budget::is_beyond_trades(freed, trade) {
                let random = &mut self.random;
                self.budget
                    .trade(&self.published, trade, |bound| random.below(bound));
            }
        }
    }

    /// The database and the place of the key that goes next.
    fn choose(&mut self, policy: Policy) -> Option<(usize, Place)> {
        let volatile_only = policy.is_volatile_only();
        let candidates = |db: &Db| match volatile_only {
            true => db.volatile_count(),
            false => db.len(),
        };
        let total: usize = self.dbs.iter().flatten().map(|db| candidates(db)).sum();
        if total == 0 {
            return None;
        }
        // Each database as often as it has candidates.
        let mut number = None;
        let index = self.dbs.iter().position(|db| {
            let Some(db) = db else { return false };
            let count = candidates(db);
            if count == total {
                return true;
            }
            let left = number.get_or_insert_with(|| self.random.index(total));
            let is_it = *left < count;
            *left = left.saturating_sub(count);
            is_it
        })?;
        let Engine {
            dbs,
            random,
            published,
            ..
        } = self;
        let db = dbs[index].as_deref_mut()?;
        let place = db.charged(|db| db.choose(policy, random, published))?;
        Some((index, place))
    }

    /// Evicts the key at a place.
    fn evict_at(&mut self, index: usize, place: Place, now: Now) {
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let entry = db.at(place);
        if entry
            .deadline()
            .is_some_and(|at_ms| gone_at(at_ms) <= now.unix_ms)
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
            // Where memory is scarce, the wheel is not to remember keys that are gone.
            db.disarm(place);
            db.delete(place)
        });
        let is_empty = db.is_empty() && !db.keeps_images();
        self.discard(index, trash);
        if is_empty {
            self.drop_empty(index);
        }
    }

    /// Gives back what a database without keys still takes: a few KiB, which count where a small limit is shared by
    /// many shards.
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
