//! Memory that shards divide among themselves: all memory for data, or the share of one database.
//!
//! ```text
//! limit = granted to shard 0 + granted to shard 1 + … + free
//! ```
//!
//! See [`Budget`](super::Budget) for the terms (grant, draw, debt) and for how memory is granted, traded and
//! reclaimed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::super::Policy;
use crate::published::{Account, Published};

/// Maximum bytes by which a shard's grant is raised at once beyond what the shard needs.
const CHUNK_BYTES_MAX: i64 = 256 * 1024;

/// A shard draws at most its even part of the free bytes, divided by this.
const CHUNK_PARTS: i64 = 4;

/// Below this fraction of the limit, free memory is scarce: shards return what they do not use, and begin to record
/// the order in which keys arrive.
const SCARCE_PARTS: i64 = 8;

/// Maximum bytes exchanged by two shards in one trade.
const TRADE_BYTES_MAX: i64 = 64 * 1024;

/// Minimum bytes exchanged by two shards in one trade, except for tiny limits.
const TRADE_BYTES_MIN: i64 = 512;

/// A trade moves an even share of the limit divided by this.
const TRADE_PARTS: i64 = 256;

/// Maximum bytes that an evicting shard frees beyond its debt.
const AHEAD_BYTES_MAX: i64 = 1024;
/// An evicting shard frees at most a trade divided by this beyond its debt.
const AHEAD_PARTS: i64 = 4;

/// A limit below this is enforced to the byte, if there are at most [`EXACT_SHARDS_MAX`] shards.
const EXACT_BELOW_BYTES: i64 = 16 * 1024 * 1024;
/// Maximum number of shards for which a limit is enforced to the byte, as every shard is asked for its debt each
/// time.
const EXACT_SHARDS_MAX: usize = 128;

/// Minimum bytes that each shard is asked to free in a shortage; determines how many shards are asked.
const PART_BYTES_MIN: i64 = 4 * 1024;

/// A shard whose debt is this many trades is not asked for more.
const DEBT_TRADES_MAX: i64 = 4;

/// While all shards together owe more than this fraction of the limit, commands that may allocate evict keys first.
const BEHIND_PARTS: i64 = 64;

/// The debts of large values are asked of all shards once they add up to this fraction of the limit.
const UNASSESSED_PARTS: i64 = 1024;

/// The golden ratio as a fraction of 2^64: its multiples are evenly distributed, however many there are.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The owner of a pool: None for all databases together, or the number of one database.
pub(crate) type PoolOwner = Option<usize>;

/// True if an amount of bytes is too large to be moved between shards by trades.
pub(in crate::evict) fn is_too_large_for_trades(bytes: i64, trade: i64) -> bool {
    bytes > DEBT_TRADES_MAX * trade
}

#[cfg(test)]
thread_local! {
    /// Number of times that the usage of all shards was summed up.
    pub(in crate::evict) static SUMS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A counter on a cache line of its own, because all shards write it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicI64);

/// A pool of memory: a limit, its free bytes, and the shards that draw from them; see the module.
#[derive(Debug, Default)]
pub(in crate::evict) struct MemoryPool {
    whose: PoolOwner,
    all_published: Arc<[Arc<Published>]>,
    free: PaddedCounter,
    /// Limit in bytes; 0: none.
    limit: AtomicI64,
    /// True if the debts are so large that commands that may allocate must evict keys first.
    is_behind: AtomicBool,
    /// Determines the shard that is asked first in the next shortage.
    asked_first: AtomicU64,
    /// Bytes overdrawn for large values since all shards were last read because of them.
    unassessed: PaddedCounter,
}

impl MemoryPool {
    /// Creates a pool of these shards, with no limit yet.
    pub(super) fn of(whose: PoolOwner, all_published: Arc<[Arc<Published>]>) -> MemoryPool {
        MemoryPool {
            whose,
            all_published,
            ..MemoryPool::default()
        }
    }

    pub(super) fn all_published(&self) -> &[Arc<Published>] {
        &self.all_published
    }

    /// Returns a shard's usage and grant in this pool.
    pub(in crate::evict) fn account<'p>(&self, published: &'p Published) -> &'p Account {
        published.account(self.whose)
    }

    fn debt(&self, published: &Published) -> i64 {
        self.account(published).debt_bytes()
    }

    /// Sets the pool's limit in bytes; 0: none. `measure_elsewhere` returns the bytes of the limit that are used
    /// outside the shards.
    pub(super) fn configure(&self, limit: i64, measure_elsewhere: impl FnOnce() -> i64) {
        let before = self.limit.swap(limit, SeqCst);
        if limit == 0 {
            for published in self.all_published() {
                self.account(published).granted().store(i64::MAX, Relaxed);
            }
            self.free.0.store(0, Relaxed);
            self.is_behind.store(false, Relaxed);
        } else if before != 0 {
            self.free.0.fetch_add(limit - before, SeqCst);
        } else {
            // Set the free bytes before any shard has a grant that it could use up.
            let used = self.used_bytes();
            let elsewhere = measure_elsewhere();
            self.free.0.store(limit - elsewhere - used, SeqCst);
            let mut granted = 0;
            for published in self.all_published() {
                let account = self.account(published);
                let part = account.used_bytes();
                account.granted().store(part, Relaxed);
                granted += part;
            }
            self.free.0.fetch_add(used - granted, SeqCst);
        }
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.limit.load(Relaxed) != 0
    }

    pub(super) fn limit_bytes(&self) -> i64 {
        self.limit.load(Relaxed)
    }

    /// True if so little is free that the order in which keys arrive begins to matter.
    pub(super) fn is_scarce(&self) -> bool {
        self.is_limited() && self.free.0.load(Relaxed) < self.limit_bytes() / SCARCE_PARTS
    }

    pub(super) fn free_bytes(&self) -> i64 {
        self.free.0.load(Relaxed)
    }

    /// Adds to the free bytes, or subtracts if negative, as less or more is used outside of the shards.
    pub(super) fn add_free(&self, bytes: i64) {
        self.free.0.fetch_add(bytes, Relaxed);
    }

    /// Returns the bytes charged to all shards.
    pub(super) fn used_bytes(&self) -> i64 {
        #[cfg(test)]
        SUMS.set(SUMS.get() + 1);
        let all = self.all_published().iter();
        all.map(|published| self.account(published).used_bytes())
            .sum()
    }

    /// True if the limit is enforced to the byte.
    pub(in crate::evict) fn is_exact(&self) -> bool {
        self.limit_bytes() < EXACT_BELOW_BYTES && self.all_published().len() <= EXACT_SHARDS_MAX
    }

    /// Moves free bytes to the grant of a shard that needs `needed` bytes more; fewer if fewer are free.
    pub(in crate::evict) fn draw(&self, published: &Published, needed: i64) {
        let free = self.free.0.load(Relaxed);
        if free <= 0 {
            return;
        }
        let shards = self.all_published().len().max(1) as i64;
        let chunk = (free / (CHUNK_PARTS * shards)).min(CHUNK_BYTES_MAX);
        let drawn = (needed + chunk).min(free);
        self.free.0.fetch_sub(drawn, Relaxed);
        let granted = self.account(published).granted();
        granted.fetch_add(drawn, Relaxed);
    }

    /// Raises a shard's grant to what the shard has used already, though nothing is free.
    pub(super) fn overdraw(&self, published: &Published, needed: i64) {
        self.free.0.fetch_sub(needed, Relaxed);
        let granted = self.account(published).granted();
        granted.fetch_add(needed, Relaxed);
    }

    /// True if so much was overdrawn, with these bytes, that the shortage should be asked of all shards now. As all
    /// shards are read for that, smaller amounts wait for more, or for the background.
    pub(super) fn is_assessment_due(&self, overdrawn: i64) -> bool {
        let unassessed = self.unassessed.0.fetch_add(overdrawn, Relaxed) + overdrawn;
        let is_due = self.is_exact() || unassessed >= self.limit_bytes() / UNASSESSED_PARTS;
        if is_due {
            self.unassessed.0.store(0, Relaxed);
        }
        is_due
    }

    /// True if the free bytes exceed this need by so much that the usage of the shards need not be summed up.
    pub(super) fn has_ample_room(&self, needed: i64) -> bool {
        self.free_bytes().saturating_sub(needed) > self.limit_bytes() / SCARCE_PARTS
    }

    /// Takes back what a shard has freed far beyond its debt: shards in debt draw these bytes before they evict.
    pub(in crate::evict) fn give_back(&self, published: &Published, trade: i64) {
        let unused = -self.debt(published);
        if is_too_large_for_trades(unused, trade) {
            self.take_back(published, unused);
        }
    }

    fn take_back(&self, published: &Published, unused: i64) {
        let granted = self.account(published).granted();
        granted.fetch_sub(unused, Relaxed);
        self.free.0.fetch_add(unused, Relaxed);
    }

    /// Sums up the debts of all shards. Returns whether the sum is so large that writers must wait.
    pub(super) fn note_debts(&self) -> bool {
        let is_behind = self.is_limited() && self.debt_bytes() > self.limit_bytes() / BEHIND_PARTS;
        if is_behind != self.is_behind.load(Relaxed) {
            self.is_behind.store(is_behind, Relaxed);
        }
        is_behind
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    pub(super) fn give_up_debts(&self) {
        self.is_behind.store(false, Relaxed);
    }

    /// Returns the shard with which to begin when all shards are asked to pay: a different one each time.
    pub(super) fn next_asked(&self) -> usize {
        self.asked_first.fetch_add(1, Relaxed) as usize
    }

    /// Takes back unused grants if memory is scarce, and, if usage exceeds the limit and keys may be evicted for it
    /// (`may_ask`), lowers the grants of all shards in proportion.
    pub(super) fn assess(&self, policy: Policy, may_ask: bool) {
        let limit = self.limit_bytes();
        if limit == 0 {
            return;
        }
        let used = self.used_bytes();
        if self.free_bytes() < limit / SCARCE_PARTS {
            let mut owed = 0;
            for published in self.all_published() {
                let unused = -self.debt(published);
                if unused > 0 {
                    self.take_back(published, unused);
                } else {
                    owed -= unused;
                }
            }
            if owed > 0 && self.free_bytes() > 0 && !self.is_any_evictable(policy) {
                self.forgive();
            }
        }
        let short = -self.free_bytes();
        if short > 0 && used > 0 && may_ask {
            let returned = self.ask(short, used);
            self.free.0.fetch_add(returned, Relaxed);
        }
    }

    /// Lowers the grants of shards, by their size, to obtain `short` missing bytes. Returns how many bytes were
    /// obtained.
    ///
    /// As a shard with a debt of one byte evicts a whole key, a small shortage is asked of a few shards: of each
    /// about the size of a key. The first shard is chosen at random by size, so that all keys compete.
    fn ask(&self, short: i64, used: i64) -> i64 {
        let all_published = self.all_published();
        let keys: u64 = all_published
            .iter()
            .map(|published| published.evictable(self.whose, false))
            .sum();
        let key_bytes = used / (keys as i64).max(1);
        let part_min = self.trade_bytes().max(PART_BYTES_MIN).max(key_bytes);
        let point = (self.next_asked() as u64).wrapping_mul(GOLDEN);
        let mut before =
            ((u128::from(point) * u128::from(used.unsigned_abs())) >> u64::BITS) as i64;
        let first = all_published.iter().position(|published| {
            before -= self.account(published).used_bytes();
            before < 0
        });
        let first = first.unwrap_or(0);
        let mut returned = 0;
        for step in 0..all_published.len() {
            let account = self.account(&all_published[(first + step) % all_published.len()]);
            let taken = account.used_bytes();
            if taken <= 0 || returned >= short {
                continue;
            }
            // Rounded up, or a shortage of a few bytes would be asked of no shard.
            let part = (i128::from(short) * i128::from(taken) / i128::from(used)) as i64 + 1;
            let part = part.max(part_min.min(taken)).min(short - returned);
            account.granted().fetch_sub(part, Relaxed);
            returned += part;
        }
        returned
    }

    /// Gives free bytes first to shards in debt, if no shard has anything to evict: if any shard could draw them,
    /// each client buffer that comes and goes would leave capacity for as much data again, without end. Where keys
    /// can be evicted, free bytes are left to the shards that are written to, or else some shards would grow at the
    /// cost of others.
    fn forgive(&self) {
        for published in self.all_published() {
            let part = self.debt(published).min(self.free_bytes());
            if part > 0 {
                self.overdraw(published, part);
            }
        }
    }

    /// Returns the sum of the shards' debts, plus the bytes by which the pool itself is overdrawn.
    pub(super) fn debt_bytes(&self) -> i64 {
        let all = self.all_published().iter();
        let debts = all.map(|published| self.debt(published).max(0));
        debts.sum::<i64>() + (-self.free_bytes()).max(0)
    }

    /// True if any shard has a key that the policy may evict.
    pub(super) fn is_any_evictable(&self, policy: Policy) -> bool {
        policy.evicts() && {
            let volatile_only = policy.is_volatile_only();
            let mut all = self.all_published().iter();
            all.any(|published| published.evictable(self.whose, volatile_only) > 0)
        }
    }

    /// Returns the bytes that two shards exchange in one trade.
    pub(in crate::evict) fn trade_bytes(&self) -> i64 {
        let shards = self.all_published().len().max(1) as i64;
        let even = self.limit_bytes() / (shards * TRADE_PARTS);
        even.clamp(TRADE_BYTES_MIN, TRADE_BYTES_MAX)
    }

    /// Returns the bytes that an evicting shard frees beyond its debt.
    pub(in crate::evict) fn ahead_bytes(&self, trade: i64) -> i64 {
        if self.is_exact() {
            return 0;
        }
        (trade / AHEAD_PARTS).min(AHEAD_BYTES_MAX)
    }

    /// Moves `bytes` of grant (one trade) to this shard from another one, drawn at random; larger shards are drawn more
    /// often.
    pub(in crate::evict) fn trade(
        &self,
        published: &Published,
        bytes: i64,
        mut draw: impl FnMut(u64) -> u64,
    ) {
        const TRIES: usize = 4;
        let all_published = self.all_published();
        if all_published.len() < 2 {
            return;
        }
        let even = (self.limit_bytes() / all_published.len() as i64).max(1);
        for _ in 0..TRIES {
            let other = &*all_published[draw(all_published.len() as u64) as usize];
            let account = self.account(other);
            let is_large = account.used_bytes() > draw(2 * even as u64) as i64;
            let is_asked = is_large && !is_too_large_for_trades(account.debt_bytes() + 1, bytes);
            if is_asked && !std::ptr::eq(other, published) {
                self.move_part(other, published, bytes);
                return;
            }
        }
    }

    fn move_part(&self, from: &Published, to: &Published, bytes: i64) {
        let (from, to) = (self.account(from), self.account(to));
        from.granted().fetch_sub(bytes, Relaxed);
        to.granted().fetch_add(bytes, Relaxed);
    }

    /// Moves the grant that a shard without evictable keys needs from shards that have such keys. Returns the bytes
    /// obtained.
    pub(in crate::evict) fn beg(
        &self,
        published: &Published,
        needed: i64,
        start: u64,
        volatile_only: bool,
    ) -> i64 {
        let all_published = self.all_published();
        let mut left = needed;
        for step in 0..all_published.len() {
            if left <= 0 {
                break;
            }
            let other = &*all_published[(start as usize).wrapping_add(step) % all_published.len()];
            if std::ptr::eq(other, published) || other.evictable(self.whose, volatile_only) == 0 {
                continue;
            }
            let account = self.account(other);
            let possible = account
                .used_bytes()
                .min(DEBT_TRADES_MAX * self.trade_bytes());
            let part = (possible - account.debt_bytes().max(0)).min(left);
            if part > 0 {
                self.move_part(other, published, part);
                left -= part;
            }
        }
        needed - left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_free_goes_to_those_who_owe_first() {
        let all_published = (0..4).map(|_| Arc::new(Published::new(2)));
        let all_published: Arc<[Arc<Published>]> = all_published.collect();
        for whose in [None, Some(1)] {
            let pool = MemoryPool::of(whose, Arc::clone(&all_published));
            pool.configure(1 << 20, || 0);
            for published in pool.all_published() {
                pool.account(published).add_used(1 << 18);
                pool.draw(published, pool.debt(published));
                pool.assess(Policy::VolatileLru, true);
            }
            assert_eq!((pool.debt_bytes(), pool.free_bytes()), (0, 0));
            pool.account(&pool.all_published()[2]).add_used(100_000);
            for round in 1..=2 {
                // A client buffer has been freed.
                pool.add_free(40_000);
                pool.assess(Policy::VolatileLru, true);
                assert_eq!(pool.debt_bytes(), 100_000 - 40_000 * round);
                assert_eq!(pool.free_bytes(), 0);
                // All other shards are unchanged: no shard can draw anything.
                let debts = pool.all_published().iter();
                let debts: Vec<i64> = debts.map(|published| pool.debt(published)).collect();
                assert_eq!(debts, [0, 0, pool.debt_bytes(), 0]);
            }
        }
    }

    #[test]
    fn a_limit_that_is_taken_away_leaves_shards_what_they_have() {
        let all_published: Arc<[Arc<Published>]> = [Arc::new(Published::new(2))].into();
        let pool = MemoryPool::of(Some(1), all_published);
        let account = pool.account(&pool.all_published()[0]);
        account.add_used(5_000);
        pool.configure(4_000, || 0);
        assert_eq!((pool.debt_bytes(), pool.free_bytes()), (1_000, -1_000));
        pool.configure(6_000, || 0);
        assert_eq!((pool.debt_bytes(), pool.free_bytes()), (0, 1_000));
        pool.configure(0, || 0);
        assert!(account.debt_bytes() < 0 && pool.debt_bytes() == 0);
    }
}
