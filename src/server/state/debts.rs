//! Debts: bytes that shards must evict because the memory limit is exceeded, before more data is added.

use crate::shard::execute::serve_waiters;
use crate::shard::job::Job;
use crate::shard::ownership::ShardGuard;
use crate::telemetry::clock::Ticks;
use basalt_engine::{Engine, Now};

use super::Service;

/// Nanoseconds for which a thread that is about to allocate makes shards evict before it serves other connections.
const DEBTS_NS_MAX: u64 = 250_000;

impl Service {
    /// Makes all shards evict what they owe, except shards that are locked. The caller must have no shard
    /// locked.
    #[cold]
    pub fn settle_debts(&self, now: Now) {
        /// Number of rounds over all shards: a shard with nothing to evict passes its debt to others, which may
        /// already have been visited in the round.
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            self.budget.assess();
            let mut all = self.all_published.iter();
            if !all.any(|published| published.owes()) {
                return;
            }
            self.ask_all(1, now, u64::MAX);
        }
    }

    /// Makes shards evict for a moment on behalf of a caller that is about to add to a database. Returns
    /// whether memory is still over the limit and can still be reduced. The caller must have no shard locked.
    #[cold]
    #[inline(never)]
    pub fn pay_debts(&self, db: usize, now: Now) -> bool {
        self.budget.assess();
        // Visit all shards twice: a shard with nothing to evict passes its debt to others, which may already
        // have been visited.
        let has_paid = self.ask_all(2, now, DEBTS_NS_MAX);
        // If flushed data is still being freed, the caller waits for that.
        match has_paid || self.budget.is_freeing() {
            true => self.budget.note_debts(),
            false => self.budget.give_up_debts(),
        }
        self.budget.holds_back(db)
    }

    /// Makes all indebted shards evict, for some rounds, or until some have evicted and `ns_max` has passed.
    /// Returns whether any evicted. Only after all shards were asked is it known that none can evict.
    fn ask_all(&self, rounds: usize, now: Now, ns_max: u64) -> bool {
        let began = Ticks::now();
        let (first, count) = (self.budget.next_asked(), self.all_published.len());
        let mut has_paid = false;
        for step in 0..rounds * count {
            // The first shard to evict may leave nothing to evict for the others.
            let shard = first.wrapping_add(step) % count;
            let published = &self.all_published[shard];
            if published.owes()
                && let Some(engine) = self.shards.try_take(shard as u16)
            {
                let before = published.used_bytes();
                self.settle_debt(engine, now);
                has_paid |= published.used_bytes() < before;
            }
            if has_paid && Ticks::now().since_ns(began) > ns_max {
                break;
            }
        }
        has_paid
    }

    fn settle_debt(&self, mut engine: ShardGuard<'_, Engine, Job>, now: Now) {
        let began = Ticks::now();
        engine.evict_slice(now);
        let evicted = Ticks::now();
        serve_waiters(&mut engine, now);
        let freeing = Ticks::now();
        // Evicted values are freed when the shard is released.
        drop(engine);
        let freed = Ticks::now();
        let config = self.config.load();
        let spent_ns = evicted.since_ns(began);
        self.telemetry
            .note_evict_slice(&config, now.unix_ms, spent_ns);
        let spent_ns = freed.since_ns(freeing);
        self.telemetry
            .note_evicted_freed(&config, now.unix_ms, spent_ns);
    }
}
