//! The memory limit for all shards together, and its division among them. Each shard has a *grant*: the bytes of the
//! limit that it may use. A shard *draws* when its grant is raised from the free bytes; its *debt* is its usage above
//! its grant; it *pays* by evicting keys until the debt is gone; a *trade* moves a part of one shard's grant to
//! another shard; a *pool* is a limit with its free bytes and the grants made from them.
//!
//! ```text
//! limit = elsewhere + granted to shard 0 + granted to shard 1 + … + free
//! ```
//!
//! A shard compares its usage with its grant: two integers on one published cache line. Only when the shard has used
//! up its grant does it draw a chunk of the free bytes here. The chunk shrinks with what is left, so that a limit of
//! 8 MiB works with 64 shards. Once nothing is free a shard lives within its grant: it evicts as much as it adds (see
//! [`super`]), and grants move between shards in small trades, so that a shard that is written more grows at the cost
//! of those that are written less, as if all keys were in one place.
//!
//! Only data evicts data, so `elsewhere` comprises the usage beside the shards that counts, each with a bound: the
//! server itself ([`Budget::set_base`]), and the buffers of clients within a bound ([`Budget::bound_clients`]). Data
//! waiting for the disk, for replicas or for a snapshot never counts: such buffers have limits of their own, at which
//! writers wait. `elsewhere` is measured from time to time ([`Budget::assess`]). While clients use tracking, only the
//! recent minimum of `elsewhere` counts: invalidations that leave within a few milliseconds would otherwise evict
//! more keys, whose invalidations would evict more again. Clients' buffers count when keys are evicted, as in Redis;
//! but a command is refused for lack of memory only if the data, with the server's own usage without clients, is
//! above the limit.
//!
//! A command may add far more than a few evictions remove. The debt of its shard is then spread over all shards by
//! their size ([`Budget::spread`]), so that no other shard fills a grant that it has not used yet. As a debt of one
//! byte costs a whole key, each shard is asked for at least the average size of a key; and memory that a shard frees
//! far beyond its debt becomes free again ([`MemoryPool::give_back`]), and shards in debt draw from there first. While
//! all debts together are more than a sixty-fourth of the limit, commands that may allocate wait, and evict keys for
//! the debts first ([`Budget::is_behind`]). So usage never exceeds the limit, plus twice that sixty-fourth, plus what
//! the commands in flight add, as long as anything can be evicted.
//!
//! With a limit of a few MiB the debts of 64 shards would be a notable part of it. There nothing is freed ahead of
//! need, and a thread that evicted keys to reduce a debt makes all shards pay their whole debts once it has released
//! its shard ([`Budget::takes_settling`]).
//!
//! The share of a database ([`Budget::share_out`]) is memory that shards divide in the same way, among their usage
//! for that database: it is a [`pool`] like that of all memory. So a database that has used up its share lives within
//! it, and the others are not affected. A shard that exceeds its grant of a share evicts that database's keys first.
//!
//! Everything is a plain atomic number: a thread that reads an old value uses a little too much, which the next
//! assessment finds. Nothing here waits, and lowering a shard's grant needs no lock of the shard.

mod pool;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::Policy;
use crate::published::{HeldLockBytes, Published};
use crate::tracking::TrackedCount;
use basalt_core::alloc::account;
#[cfg(test)]
pub(super) use pool::SUMS;
pub(super) use pool::{MemoryPool, PoolOwner, is_too_large_for_trades};

/// Bytes by which the server's own usage (without data) may grow between two measurements, where the limit is
/// enforced to the byte.
const EXACT_GROWTH_BYTES: i64 = 16 * 1024;

/// Interval at which the background measures the usage elsewhere.
const BACKGROUND_PAUSE_MS: u64 = 10;

/// While clients are notified of evicted keys, usage outside the shards counts only once it has lasted this long, or
/// up to twice as long.
const LASTING_MS: u64 = 10;

/// Bytes used outside the shards that count at once, however briefly they are used.
const PASSING_BYTES_COUNTED: i64 = 6 * 1024;

/// Shards whose published counters are read for an assessment, per millisecond.
const SHARDS_PER_MS: u64 = 64;

/// The server's own growth since the limit was set counts against the limit only up to this fraction of it: usage
/// that looks like growth of the server but is not (allocator noise) then evicts no more than that.
const GROWTH_PARTS: i64 = 128;
/// The bound on counted growth of the server for small limits.
const GROWTH_BYTES_MIN: i64 = 256 * 1024;
/// The bound on counted growth of the server for large limits.
const GROWTH_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Fraction of the limit up to which the server's own growth since its start counts when a limit is set, however
/// often that happens: a change of the settings, or of the role, evicts no data on that account.
const AT_LIMIT_PARTS: i64 = 8;
/// The bound on counted growth since the start for small limits, so that a limit just below the usage evicts keys.
const AT_LIMIT_BYTES_MIN: i64 = 8 * 1024 * 1024;
/// The bound on counted growth since the start for large limits.
const AT_LIMIT_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// The counted usage of the server itself rises by at most this fraction of its bound per measurement, as the parts
/// of the measurement are not taken at the same moment.
const RISES: i64 = 8;

/// The memory budget of a server, see the module.
#[derive(Debug, Default)]
pub struct Budget {
    /// The pool of all memory available for data.
    pool: MemoryPool,
    /// The shares of databases, by number.
    shares: Box<[MemoryPool]>,
    /// True if any database has a share.
    has_shares: AtomicBool,
    elsewhere: AtomicI64,
    /// Bytes of held locks, which are never evicted.
    held: Arc<HeldLockBytes>,
    /// The minimum usage outside the shards since [`Budget::low_since_ms`], and in the period before.
    lows: [AtomicI64; 2],
    low_since_ms: AtomicU64,
    /// True if clients are notified of evicted keys.
    is_telling: AtomicBool,
    /// The server's usage without data, clients, and data waiting for output.
    base: AtomicI64,
    /// The server's usage without data and clients at its start.
    base_at_start: AtomicI64,
    /// The server's usage without data and clients when the limit was set.
    base_at_limit: AtomicI64,
    /// True if data waited for the disk, for replicas or for a snapshot at the last measurement.
    is_anything_waiting: AtomicBool,
    /// The server's apparent usage at the last measurement.
    base_seen: AtomicI64,
    /// The function that returns the bytes used by clients.
    clients_bytes: OnceLock<fn() -> i64>,
    /// Size of the tracking tables of client-side caching, which counts as usage of clients.
    tracked: OnceLock<Arc<TrackedCount>>,
    /// Maximum bytes of clients for which data is evicted.
    clients_max: AtomicI64,
    policy: AtomicU8,
    /// True if larger values are evicted earlier.
    by_size: AtomicBool,
    went_on_ms: AtomicU64,
    /// Number of flushed databases that are being freed and are still charged to their shards.
    freeing: AtomicI64,
    /// Number of keys of databases being freed, and of huge values, which no lookup finds any more but that still use
    /// memory.
    pending: AtomicI64,
    /// True if a limit enforced to the byte was reached: threads that hold no shard collect all debts.
    is_unsettled: AtomicBool,
    /// True if the debts are so large that commands that may allocate must evict keys first.
    is_behind: AtomicBool,
    /// Bytes of large values that are being freed, charged to no shard.
    leaving: AtomicI64,
    assessed_ms: AtomicU64,
    /// Unix time in milliseconds at which the limit was exceeded; 0 while it is not exceeded.
    exceeded_since_ms: AtomicU64,
    exceeded_ms: AtomicU64,
}

impl Budget {
    /// Creates a budget of these shards, with no limit yet.
    pub fn of(all_published: Box<[Arc<Published>]>) -> Budget {
        let all_published: Arc<[Arc<Published>]> = all_published.into();
        let dbs = all_published.first().map_or(0, |shard| shard.dbs.len());
        let held = Arc::default();
        for published in &*all_published {
            published.join_held(&held);
        }
        let share = |db| MemoryPool::of(Some(db), Arc::clone(&all_published));
        Budget {
            shares: (0..dbs).map(share).collect(),
            pool: MemoryPool::of(None, all_published),
            held,
            ..Budget::default()
        }
    }

    fn all_published(&self) -> &[Arc<Published>] {
        self.pool.all_published()
    }

    pub(super) fn pool(&self, whose: PoolOwner) -> &MemoryPool {
        match whose {
            None => &self.pool,
            Some(db) => &self.shares[db],
        }
    }

    /// Returns the pools of the databases' shares, of those that have a limit.
    fn limited_shares(&self) -> impl Iterator<Item = &MemoryPool> {
        let shares = match self.has_shares() {
            true => &self.shares[..],
            false => &[],
        };
        shares.iter().filter(|share| share.is_limited())
    }

    /// Counts the whole process from now on: the server itself, which uses `base` bytes at its start, its clients,
    /// and the tracking tables of client-side caching.
    pub fn include_process_memory(
        &self,
        base: i64,
        clients_bytes: fn() -> i64,
        tracked: Arc<TrackedCount>,
    ) {
        self.base_at_start.store(base, Relaxed);
        self.base_at_limit.store(base, Relaxed);
        self.base.store(base, Relaxed);
        // In tests a process may have a second server, which counts the same clients.
        let _ = self.clients_bytes.set(clients_bytes);
        let _ = self.tracked.set(tracked);
    }

    /// Returns the bytes used by clients, with the tracking tables; None if only the shards' data counts.
    pub fn clients_bytes(&self) -> Option<i64> {
        let clients = self.clients_bytes.get()?();
        let tracked = self.tracked.get().map_or(0, |tracked| tracked.bytes());
        Some(clients + tracked.cast_signed())
    }

    /// Limits the bytes of clients for which data is evicted; `None`: all that they use.
    pub fn bound_clients(&self, bytes: Option<u64>) {
        let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
        self.clients_max.store(bytes.unwrap_or(i64::MAX), Relaxed);
    }

    /// Sets the limit in bytes (0: none), the eviction policy, and whether larger values are evicted earlier. Must
    /// not be called concurrently.
    pub fn configure(&self, limit: u64, policy: Policy, by_size: bool) {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.policy.store(policy as u8, Relaxed);
        self.by_size.store(by_size, Relaxed);
        self.pool.configure(limit, || {
            let elsewhere = self.measure_elsewhere();
            self.elsewhere.store(elsewhere, Relaxed);
            for low in &self.lows {
                low.store(elsewhere, Relaxed);
            }
            elsewhere
        });
        if limit == 0 {
            self.elsewhere.store(0, Relaxed);
            self.exceeded_since_ms.store(0, Relaxed);
            self.is_behind.store(false, Relaxed);
        }
        self.assess();
    }

    /// Gives databases shares of memory, in bytes; 0 means no share, and so does a database's absence from `shares`.
    /// Must not be called concurrently.
    pub fn share_out(&self, shares: &[(usize, u64)]) {
        for (db, pool) in self.shares.iter().enumerate() {
            let of_db = shares.iter().find(|(number, _)| *number == db);
            let limit = of_db.map_or(0, |(_, bytes)| i64::try_from(*bytes).unwrap_or(i64::MAX));
            pool.configure(limit, || 0);
        }
        let has_shares = self.shares.iter().any(MemoryPool::is_limited);
        self.has_shares.store(has_shares, Relaxed);
        for published in self.all_published() {
            published.set_sharing(has_shares);
        }
        self.assess();
    }

    /// True if any database has a share.
    pub fn has_shares(&self) -> bool {
        self.has_shares.load(Relaxed)
    }

    /// Returns the share of a database in bytes, 0 for none.
    pub fn share_bytes(&self, db: usize) -> i64 {
        self.shares.get(db).map_or(0, MemoryPool::limit_bytes)
    }

    /// Returns the bytes that databases use beyond their shares and that must be evicted from them.
    pub fn share_debt_bytes(&self) -> i64 {
        self.limited_shares().map(MemoryPool::debt_bytes).sum()
    }

    /// True if there is a memory limit, or any database has a share.
    pub fn limits_anything(&self) -> bool {
        self.is_limited() || self.has_shares()
    }

    /// True if there is a memory limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.pool.is_limited()
    }

    /// Returns the limit in bytes; 0 for none.
    pub fn limit_bytes(&self) -> i64 {
        self.pool.limit_bytes()
    }

    /// Returns the eviction policy.
    #[inline]
    pub fn policy(&self) -> Policy {
        Policy::of(self.policy.load(Relaxed))
    }

    /// True if larger values are evicted earlier.
    pub fn is_by_size(&self) -> bool {
        self.by_size.load(Relaxed)
    }

    /// True if so little is free that the order in which keys arrive begins to matter.
    pub fn is_scarce(&self) -> bool {
        self.pool.is_scarce() || self.limited_shares().any(MemoryPool::is_scarce)
    }

    /// True if the process uses so much that connections alone may soon exceed the limit.
    pub fn is_close(&self) -> bool {
        self.pool.is_scarce()
            || (self.is_limited() && account::total_bytes() > self.limit_bytes() / 4 * 3)
    }

    /// Returns the unused bytes of the limit; negative while it is exceeded.
    pub fn free_bytes(&self) -> i64 {
        self.pool.free_bytes()
    }

    /// Returns the bytes charged to all shards.
    pub fn used_bytes(&self) -> i64 {
        self.pool.used_bytes()
    }

    /// Returns the current usage outside the shards, as far as it counts against the limit.
    fn measure_elsewhere(&self) -> i64 {
        let Some(bytes) = self.clients_bytes() else {
            return 0;
        };
        let clients = match self.policy() {
            // Nothing can be evicted for clients, and no command is refused because of them.
            Policy::NoEviction => 0,
            _ => bytes.clamp(0, self.clients_max.load(Relaxed)),
        };
        self.base_now(bytes) + clients
    }

    /// Returns the current usage of the server itself, as far as known.
    fn base_now(&self, clients: i64) -> i64 {
        let base = self.base.load(Relaxed);
        // Data waiting for slower output is known from measurements only.
        if !self.is_exact() || self.is_anything_waiting.load(Relaxed) {
            return base;
        }
        let now = self.bytes_outside_shards() - clients;
        now.clamp(base, base + EXACT_GROWTH_BYTES)
    }

    /// Adds the bytes of a large value that was released; subtracts them (negative) once it is freed.
    pub(crate) fn add_leaving(&self, bytes: i64) {
        self.leaving.fetch_add(bytes, Relaxed);
    }

    /// Adds to the number of flushed databases being freed; negative once they have been freed. Nothing is evicted
    /// while the number is positive.
    pub(crate) fn add_freeing(&self, databases: i64) {
        if databases < 0 {
            // Count their memory as free before any shard evicts again.
            self.assess();
        }
        self.freeing.fetch_add(databases, Relaxed);
    }

    /// True while flushed databases are being freed, see [`Budget::add_freeing`].
    pub fn is_freeing(&self) -> bool {
        self.freeing.load(Relaxed) > 0
    }

    /// Adds to the number of objects that wait to be freed; negative once they are freed.
    pub(crate) fn add_pending(&self, objects: i64) {
        self.pending.fetch_add(objects, Relaxed);
    }

    /// Returns the number of keys of flushed databases, and of huge values, that are yet to be freed.
    pub fn pending_objects(&self) -> u64 {
        self.pending.load(Relaxed).max(0).unsigned_abs()
    }

    /// Updates the measurements; called periodically by the background thread, which knows whether clients are
    /// notified of evicted keys (`is_telling`). Usage outside the shards causes evictions only from time to time:
    /// notifications of evicted keys fill clients' buffers, for which more keys would be evicted.
    pub fn go_on(&self, now_ms: u64, is_telling: bool) {
        self.is_telling.store(is_telling, Relaxed);
        if now_ms.abs_diff(self.went_on_ms.load(Relaxed)) >= BACKGROUND_PAUSE_MS {
            self.went_on_ms.store(now_ms, Relaxed);
            self.assess();
        }
        if now_ms.abs_diff(self.low_since_ms.load(Relaxed)) >= LASTING_MS {
            self.low_since_ms.store(now_ms, Relaxed);
            self.begin_period(self.measure_elsewhere());
        }
    }

    fn begin_period(&self, measured: i64) {
        let low = self.lows[0].swap(measured, Relaxed);
        self.lows[1].store(low, Relaxed);
    }

    /// Returns the part of the measured usage outside the shards that counts.
    fn lasting(&self, measured: i64) -> i64 {
        if !self.is_telling.load(Relaxed) {
            return measured;
        }
        let low = self.lows[0].fetch_min(measured, Relaxed).min(measured);
        let low = low.min(self.lows[1].load(Relaxed));
        measured.min(low + PASSING_BYTES_COUNTED)
    }

    /// Sets the current usage of the server itself. However large the measurement is, the counted usage stays within
    /// bounds, and rises slowly, by what two measurements agree on. `is_waiting` tells that data waits for the disk,
    /// for replicas or for a snapshot.
    pub fn set_base(&self, bytes: i64, is_waiting: bool) {
        self.is_anything_waiting.store(is_waiting, Relaxed);
        let bytes = bytes.min(self.base_seen.swap(bytes, Relaxed));
        let growth_max =
            (self.limit_bytes() / GROWTH_PARTS).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
        let base_max = self.base_at_limit.load(Relaxed) + growth_max;
        let base = bytes.clamp(self.base_at_start.load(Relaxed), base_max);
        let base = base.min(self.base.load(Relaxed) + growth_max / RISES);
        self.base.store(base, Relaxed);
    }

    /// Sets the usage of the server itself when a limit in bytes is about to be set: the usage counts at once, within
    /// bounds.
    pub fn set_base_at_limit(&self, bytes: i64, is_waiting: bool, limit: u64) {
        self.is_anything_waiting.store(is_waiting, Relaxed);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let growth_max = (limit / AT_LIMIT_PARTS).clamp(AT_LIMIT_BYTES_MIN, AT_LIMIT_BYTES_MAX);
        let start = self.base_at_start.load(Relaxed);
        let base = bytes.clamp(start, start + growth_max);
        self.base_at_limit.store(base, Relaxed);
        self.base_seen.store(base, Relaxed);
        self.base.store(base, Relaxed);
    }

    /// Returns the bytes that count against the limit now: data, the server itself, and clients within their bound.
    pub fn counted_bytes(&self) -> i64 {
        self.used_bytes() + self.measure_elsewhere()
    }

    /// Returns the bytes used outside the shards now, for any purpose, whether or not they count against the limit.
    pub fn bytes_outside_shards(&self) -> i64 {
        account::total_bytes() - self.used_bytes() - self.leaving.load(Relaxed)
    }

    /// True if the limit is enforced to the byte.
    pub fn is_exact(&self) -> bool {
        self.pool.is_exact()
    }

    /// Records that a shard reduced its debt, if the limit of the pool is enforced to the byte.
    pub(super) fn note_unsettled(&self, pool: &MemoryPool) {
        if pool.is_exact() {
            self.ask_to_settle();
        }
    }

    /// Requests that all shards pay their debts, before the next reply is sent.
    pub(super) fn ask_to_settle(&self) {
        self.is_unsettled.store(true, Relaxed);
    }

    /// True if the caller, which has no shard locked, must make all shards pay their debts now.
    #[inline]
    pub fn takes_settling(&self) -> bool {
        self.is_unsettled.load(Relaxed) && self.is_unsettled.swap(false, Relaxed)
    }

    /// Raises a shard's grant to what the shard has used already, though nothing is free: from now on no shard grows
    /// without a refusal.
    pub(super) fn overdraw(&self, pool: &MemoryPool, published: &Published, needed: i64) {
        pool.overdraw(published, needed);
        self.assess();
    }

    /// Spreads the debt of a shard over all shards, if it is more than the next few commands will pay: unused grants
    /// of other shards are taken first, and the rest becomes debt of all shards in proportion to their size.
    pub(super) fn spread(&self, pool: &MemoryPool, published: &Published) {
        let debt = pool.account(published).debt_bytes();
        if is_too_large_for_trades(debt, pool.trade_bytes()) {
            pool.overdraw(published, debt);
            if pool.is_assessment_due(debt) {
                self.assess();
                self.note_debts();
            }
        }
    }

    /// Updates the sum of all debts.
    pub fn note_debts(&self) {
        let mut is_behind = self.pool.note_debts();
        for share in self.limited_shares() {
            is_behind |= share.note_debts();
        }
        if is_behind != self.is_behind.load(Relaxed) {
            self.is_behind.store(is_behind, Relaxed);
        }
    }

    /// True if the debts are so large that commands that may allocate must reduce them first: debts of all memory, or
    /// of the share of some database.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    /// True if the debts are so large that a command that adds to this database must reduce them first.
    #[cold]
    pub fn holds_back(&self, db: usize) -> bool {
        self.pool.is_behind() || self.shares.get(db).is_some_and(MemoryPool::is_behind)
    }

    /// Stops making writers wait, as no shard can reduce its debt now.
    pub fn give_up_debts(&self) {
        self.pool.give_up_debts();
        self.shares.iter().for_each(MemoryPool::give_up_debts);
        self.is_behind.store(false, Relaxed);
    }

    /// Returns the shard with which to begin when all shards are asked to pay: a different one each time.
    pub fn next_asked(&self) -> usize {
        self.pool.next_asked()
    }

    /// Calls [`Budget::assess`], unless another thread did so recently. With many shards the interval is longer.
    pub(super) fn assess_at(&self, now_ms: u64) {
        let pause_ms = match self.is_exact() {
            true => 0,
            false => (self.all_published().len() as u64 / SHARDS_PER_MS).max(1),
        };
        if now_ms.abs_diff(self.assessed_ms.load(Relaxed)) >= pause_ms {
            self.assessed_ms.store(now_ms, Relaxed);
            self.assess();
        }
    }

    /// Measures the usage outside the shards, takes back unused grants if memory is scarce, and, if the limit is
    /// exceeded, lowers the grants of all shards in proportion. Does likewise for the shares of databases.
    pub fn assess(&self) {
        let policy = self.policy();
        for share in self.limited_shares() {
            share.assess(policy, policy.evicts());
        }
        if !self.is_limited() {
            return;
        }
        let elsewhere = self.lasting(self.measure_elsewhere());
        let before = self.elsewhere.swap(elsewhere, Relaxed);
        self.pool.add_free(before - elsewhere);
        self.pool
            .assess(policy, policy.evicts() && !self.is_freeing());
    }

    /// Returns the sum of the shards' debts, plus the bytes by which the limit itself is overdrawn.
    pub fn debt_bytes(&self) -> i64 {
        self.pool.debt_bytes()
    }

    /// True if a shard in debt has to be refused more memory: the data uses all of the pool, and nothing can be
    /// evicted.
    pub(super) fn is_full(&self, whose: PoolOwner) -> bool {
        match whose {
            None => self.is_out_of_memory(0),
            Some(db) => {
                let share = &self.shares[db];
                !share.is_any_evictable(self.policy()) && share.used_bytes() > share.limit_bytes()
            }
        }
    }

    /// True if the data alone, with the server itself and `coming` bytes of new data, exceeds the limit.
    pub fn is_out_of_memory(&self, coming: usize) -> bool {
        let limit = self.limit_bytes();
        if limit == 0 || self.is_freeing() || self.pool.has_ample_room(coming as i64) {
            return false;
        }
        // Whether any shard can evict is mostly known from the first one, while the usage is a sum over all shards.
        !self.is_any_evictable()
            && self.base.load(Relaxed) + self.used_bytes() + coming as i64 > limit
    }

    /// True if `bytes` more bytes of data fit the limit without any eviction.
    pub fn has_room(&self, bytes: usize) -> bool {
        let taken = self.base.load(Relaxed) + self.used_bytes();
        !self.is_limited() || taken.saturating_add_unsigned(bytes as u64) <= self.limit_bytes()
    }

    /// Returns the bytes of held locks in all shards.
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Returns the number of keys in all shards that the policy may evict.
    pub fn evictable_keys(&self) -> u64 {
        let volatile_only = self.policy().is_volatile_only();
        let all = self.pool.all_published().iter();
        match self.policy().evicts() {
            true => all
                .map(|published| published.evictable(None, volatile_only))
                .sum(),
            false => 0,
        }
    }

    /// True if any shard has a key that the policy may evict.
    pub fn is_any_evictable(&self) -> bool {
        self.pool.is_any_evictable(self.policy())
    }

    /// Records whether the limit is exceeded now, for INFO.
    pub fn note_exceeded(&self, now_ms: u64) {
        let limit = self.limit_bytes();
        let is_exceeded = limit != 0 && {
            let used = self.used_bytes();
            used + self.measure_elsewhere() > limit
        };
        let since_ms = self.exceeded_since_ms.load(Relaxed);
        if is_exceeded && since_ms == 0 {
            self.exceeded_since_ms.store(now_ms, Relaxed);
        } else if !is_exceeded && since_ms != 0 {
            self.exceeded_since_ms.store(0, Relaxed);
            let spent_ms = now_ms.saturating_sub(since_ms);
            self.exceeded_ms.fetch_add(spent_ms, Relaxed);
        }
    }

    /// Returns for how many milliseconds the limit has been exceeded now, and in total.
    pub fn exceeded_ms(&self, now_ms: u64) -> (u64, u64) {
        let current_ms = match self.exceeded_since_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms),
        };
        (current_ms, self.exceeded_ms.load(Relaxed) + current_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_set_again_and_again_counts_growth_within_a_bound() {
        const START: i64 = 10 << 20;
        let budget = Budget::default();
        budget.base_at_start.store(START, Relaxed);
        let base_at = |bytes: i64, limit: u64| {
            budget.set_base_at_limit(bytes, false, limit);
            budget.base.load(Relaxed) - START
        };
        assert_eq!(base_at(START - 1, 1 << 30), 0);
        assert_eq!(base_at(START + 1000, 1 << 30), 1000);
        for _ in 0..3 {
            assert_eq!(base_at(START + (1 << 30), 1 << 30), 128 << 20);
        }
        assert_eq!(base_at(START + (1 << 30), 1 << 20), AT_LIMIT_BYTES_MIN);
        assert_eq!(base_at(i64::MAX, u64::MAX), AT_LIMIT_BYTES_MAX);
    }

    #[test]
    fn while_clients_are_told_what_is_taken_elsewhere_counts_once_it_has_lasted() {
        const LARGE: i64 = 1 << 20;
        let budget = Budget::default();
        assert_eq!(budget.lasting(LARGE), LARGE, "nobody is told");
        budget.is_telling.store(true, Relaxed);
        assert_eq!(budget.lasting(1000), 1000, "a little counts at once");
        assert_eq!(budget.lasting(LARGE), PASSING_BYTES_COUNTED);
        budget.begin_period(LARGE);
        assert_eq!(budget.lasting(LARGE), PASSING_BYTES_COUNTED);
        budget.begin_period(LARGE);
        assert_eq!(budget.lasting(LARGE), LARGE);
        assert_eq!(budget.lasting(10), 10);
        assert_eq!(budget.lasting(LARGE), 10 + PASSING_BYTES_COUNTED);
    }
}
