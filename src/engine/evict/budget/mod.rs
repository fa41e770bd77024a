//! How much memory there is for all shards together, and who has which part of it.
//!
//! ```text
//! limit = elsewhere + granted to shard 0 + granted to shard 1 + … + free
//! ```
//!
//! A shard compares what it takes with what it was granted: two words on one published line. Only when it has
//! used up its part does it come here, for a chunk of what is free. The chunk shrinks with what is left, so that a
//! limit of 8 MiB works with 64 shards. Once nothing is free a shard lives within its part: what it puts in, it takes
//! out again (see [`super`]), and parts move between shards in small trades, so that a shard which is written more
//! grows at the cost of those which are written less, as if all keys lay in one place.
//!
//! Only data evicts data, so `elsewhere` names what counts beside the shards, each with a bound: the server itself
//! ([`Budget::set_base`]), and the buffers of clients within a bound ([`Budget::bound_clients`]). What waits for
//! the disk, for replicas or for a snapshot never counts: it has bounds of its own, at which writers wait. `elsewhere`
//! is measured now and then ([`Budget::assess`]). While clients use tracking, its recent minimum counts: invalidations
//! that leave within a few milliseconds would otherwise evict more keys, whose invalidations would evict more again.
//! Clients' buffers count when keys are evicted, as in Redis; but a command is refused for lack of memory only if the
//! data, with what the server takes without clients, is above the limit.
//!
//! A command may put in far more than a few evictions take out. The debt of its shard is then spread over all shards by
//! their size ([`Budget::spread`]), so that no other shard fills a grant that it has not used yet. As a debt of one
//! byte costs a whole key, each shard is asked for at least what a key takes on average; and what a shard frees far
//! beyond its debt becomes free again ([`Pool::give_back`]), and shards in debt look there first. While all debts
//! together are more than a sixty-fourth of the limit, commands that may grow are held back, and pay
//! ([`Budget::is_behind`]). So no more is ever taken than the limit, twice that sixty-fourth, and what the commands
//! under way add, as long as anything can be evicted.
//!
//! With a limit of a few MiB the debts of 64 shards would be a notable part of it. There nothing is freed ahead of
//! need, and a thread that paid something has all shards pay to the byte once it holds no shard any more
//! ([`Budget::takes_settling`]).
//!
//! The share that a database has ([`Budget::share_out`]) is memory that shards share out in the same way, among what
//! each of them takes for that database: a [`pool`] as the one of all memory is. So a database that has used up its
//! share lives within it, and the others do not feel it. Who is over a share pays to that first, from the database's
//! keys.
//!
//! Everything is a plain atomic figure: a thread that reads an old one takes a little too much, which the next
//! assessment finds. Nothing here waits, and lowering a shard's part needs no token.

mod pool;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::Policy;
use crate::published::{Held, Published};
use crate::tracking::TrackedCount;
use basalt_core::alloc::account;
pub(super) use pool::{Pool, Whose, is_beyond_trades};

/// Where the limit is kept to the byte, the server itself may be seen to take so much more between two looks at it.
const EXACT_GROWTH_BYTES: i64 = 16 * 1024;

/// The background measures what is taken elsewhere once in so long.
const BACKGROUND_PAUSE_MS: u64 = 10;

/// While clients are told which keys go, what is taken elsewhere counts once it has been taken for so long, or twice as
/// long.
const LASTING_MS: u64 = 10;

/// Bytes taken elsewhere that count at once, however short they are taken.
const PASSING_BYTES_COUNTED: i64 = 6 * 1024;

/// Shards whose published figures are read for an assessment, in each millisecond.
const SHARDS_PER_MS: u64 = 64;

/// What the server itself takes more than when the limit was set counts up to one part in so many of it, so that what
/// is not told apart from it can never evict more.
const GROWTH_PARTS: i64 = 128;
/// The bound of that growth where the limit is small.
const GROWTH_BYTES_MIN: i64 = 256 * 1024;
/// The bound of that growth where the limit is large.
const GROWTH_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Where a limit is set, what the server itself takes more than at its start counts up to one part in so many of it,
/// however often a limit is set: a change of the settings, or of the role, evicts no data on that account.
const AT_LIMIT_PARTS: i64 = 8;
/// The bound of that where the limit is small, so that a limit just below what is used has keys evicted.
const AT_LIMIT_BYTES_MIN: i64 = 8 * 1024 * 1024;
/// The bound of that where the limit is large.
const AT_LIMIT_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// What counts of the server itself rises by one part in so many of its bound at a time, as its parts are not measured
/// at one moment.
const RISES: i64 = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct Budget {
    /// All memory for data.
    pool: Pool,
    /// The shares of databases, by number.
    shares: Box<[Pool]>,
    /// Whether any database has one.
    has_shares: AtomicBool,
    elsewhere: AtomicI64,
    /// Bytes of held locks, which are never evicted.
    held: Arc<Held>,
    /// The least that was measured elsewhere since [`Budget::low_since_ms`], and in the period before.
    lows: [AtomicI64; 2],
    low_since_ms: AtomicU64,
    /// Clients are told which keys go.
    is_telling: AtomicBool,
    /// What the server takes without data, clients, and what waits for somebody.
    base: AtomicI64,
    /// What the server took without data and clients when it had started.
    base_at_start: AtomicI64,
    /// What the server took without data and clients when the limit was set.
    base_at_limit: AtomicI64,
    /// Something waited for the disk, for replicas or for a snapshot at the last look.
    is_anything_waiting: AtomicBool,
    /// What the server seemed to take at that look.
    base_seen: AtomicI64,
    /// Asks what clients take.
    clients_bytes: OnceLock<fn() -> i64>,
    /// What shards remember of which clients have cached which keys: it counts with what clients take.
    tracked: OnceLock<Arc<TrackedCount>>,
    /// Bytes of clients that data give way to.
    clients_max: AtomicI64,
    policy: AtomicU8,
    /// Whether larger values go earlier.
    by_size: AtomicBool,
    went_on_ms: AtomicU64,
    /// Flushed databases that are on their way back to the allocator, still on the account of their shards.
    freeing: AtomicI64,
    /// Keys of those, and huge values, that no look-up finds any more but that still take memory.
    pending: AtomicI64,
    /// A limit so small that it is kept to the byte was reached: threads without a shard in hand see to all debts.
    is_unsettled: AtomicBool,
    /// The shards owe so much that who may add to it pays first.
    is_behind: AtomicBool,
    /// Bytes of large values on the same way, on no shard's account.
    leaving: AtomicI64,
    assessed_ms: AtomicU64,
    /// When the limit was exceeded, in Unix milliseconds; 0: it is not.
    exceeded_since_ms: AtomicU64,
    exceeded_ms: AtomicU64,
}

impl Budget {
    /// A budget of these shards, with no limit yet.
    pub fn of(all_published: Box<[Arc<Published>]>) -> Budget {
        let all_published: Arc<[Arc<Published>]> = all_published.into();
        let dbs = all_published.first().map_or(0, |shard| shard.dbs.len());
        let held = Arc::default();
        for published in &*all_published {
            published.join_held(&held);
        }
        let share = |db| Pool::of(Some(db), Arc::clone(&all_published));
        Budget {
            shares: (0..dbs).map(share).collect(),
            pool: Pool::of(None, all_published),
            held,
            ..Budget::default()
        }
    }

    fn all_published(&self) -> &[Arc<Published>] {
        self.pool.all_published()
    }

    pub(super) fn pool(&self, whose: Whose) -> &Pool {
        match whose {
            None => &self.pool,
            Some(db) => &self.shares[db],
        }
    }

    /// The pools that have a limit and are databases' shares.
    fn limited_shares(&self) -> impl Iterator<Item = &Pool> {
        let shares = match self.has_shares() {
            true => &self.shares[..],
            false => &[],
        };
        shares.iter().filter(|share| share.is_limited())
    }

    /// From now on the server itself counts too, which takes `base` bytes at its start, and so do its clients, and what
    /// is remembered of the keys that they have cached.
    pub fn count_process(&self, base: i64, clients_bytes: fn() -> i64, tracked: Arc<TrackedCount>) {
        self.base_at_start.store(base, Relaxed);
        self.base_at_limit.store(base, Relaxed);
        self.base.store(base, Relaxed);
        // A second server of a process, in tests, counts the same clients.
        let _ = self.clients_bytes.set(clients_bytes);
        let _ = self.tracked.set(tracked);
    }

    /// Bytes that clients take, with what is remembered of the keys that they have cached; none where nothing counts
    /// but the shards.
    pub fn clients_bytes(&self) -> Option<i64> {
        let clients = self.clients_bytes.get()?();
        let tracked = self.tracked.get().map_or(0, |tracked| tracked.bytes());
        Some(clients + tracked.cast_signed())
    }

    /// Has data give way to so many bytes of clients at most; `None`: to all that they take.
    pub fn bound_clients(&self, bytes: Option<u64>) {
        let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
        self.clients_max.store(bytes.unwrap_or(i64::MAX), Relaxed);
    }

    /// Sets the limit in bytes (0: none), what goes when it is reached, and whether larger values go earlier. Callers
    /// do so one at a time.
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

    /// Gives databases shares of memory, in bytes; 0, as for all that are not named: none. Callers do so one at a time.
    pub fn share_out(&self, shares: &[(usize, u64)]) {
        for (db, pool) in self.shares.iter().enumerate() {
            let of_db = shares.iter().find(|(number, _)| *number == db);
            let limit = of_db.map_or(0, |(_, bytes)| i64::try_from(*bytes).unwrap_or(i64::MAX));
            pool.configure(limit, || 0);
        }
        let has_shares = self.shares.iter().any(Pool::is_limited);
        self.has_shares.store(has_shares, Relaxed);
        for published in self.all_published() {
            published.set_sharing(has_shares);
        }
        self.assess();
    }

    /// Whether any database has a share.
    pub fn has_shares(&self) -> bool {
        self.has_shares.load(Relaxed)
    }

    /// The share of a database in bytes, 0 for none.
    pub fn share_bytes(&self, db: usize) -> i64 {
        self.shares.get(db).map_or(0, Pool::limit_bytes)
    }

    /// Bytes that databases take beyond their shares, and are to be evicted from them.
    pub fn share_debt_bytes(&self) -> i64 {
        self.limited_shares().map(Pool::debt_bytes).sum()
    }

    /// Whether there is a limit, or a share.
    pub fn limits_anything(&self) -> bool {
        self.is_limited() || self.has_shares()
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.pool.is_limited()
    }

    /// The limit; 0 for none.
    pub fn limit_bytes(&self) -> i64 {
        self.pool.limit_bytes()
    }

    /// What goes when memory is full.
    #[inline]
    pub fn policy(&self) -> Policy {
        Policy::of(self.policy.load(Relaxed))
    }

    /// Whether larger values go earlier.
    pub fn is_by_size(&self) -> bool {
        self.by_size.load(Relaxed)
    }

    /// Whether so little is free that the order in which keys come begins to matter.
    pub fn is_scarce(&self) -> bool {
        self.pool.is_scarce() || self.limited_shares().any(Pool::is_scarce)
    }

    /// Whether the process takes so much that connections alone may soon make it too much.
    pub fn is_close(&self) -> bool {
        self.pool.is_scarce()
            || (self.is_limited() && account::total_bytes() > self.limit_bytes() / 4 * 3)
    }

    /// Bytes of the limit that are not taken: negative while more is taken than the limit allows.
    pub fn free_bytes(&self) -> i64 {
        self.pool.free_bytes()
    }

    /// Bytes charged to all shards.
    pub fn used_bytes(&self) -> i64 {
        self.pool.used_bytes()
    }

    /// What counts beside the shards at this moment.
    fn measure_elsewhere(&self) -> i64 {
        let Some(bytes) = self.clients_bytes() else {
            return 0;
        };
        let clients = match self.policy() {
            // Nothing can be evicted for them, and no command is refused because of them.
            Policy::NoEviction => 0,
            _ => bytes.clamp(0, self.clients_max.load(Relaxed)),
        };
        self.base_now(bytes) + clients
    }

    /// What the server itself takes at this moment, as far as that is known.
    fn base_now(&self, clients: i64) -> i64 {
        let base = self.base.load(Relaxed);
        // What waits for somebody slower is known by looks only.
        if !self.is_exact() || self.is_anything_waiting.load(Relaxed) {
            return base;
        }
        let now = self.beside_data_bytes() - clients;
        now.clamp(base, base + EXACT_GROWTH_BYTES)
    }

    /// Notes that a large value was given up, or freed at last (negative).
    pub(crate) fn add_leaving(&self, bytes: i64) {
        self.leaving.fetch_add(bytes, Relaxed);
    }

    /// Notes that so many flushed databases are on their way back to the allocator, or that they have arrived
    /// (negative). Nothing is evicted meanwhile.
    pub(crate) fn add_freeing(&self, databases: i64) {
        if databases < 0 {
            // What they took is free before anybody pays again.
            self.assess();
        }
        self.freeing.fetch_add(databases, Relaxed);
    }

    /// See [`Budget::add_freeing`].
    pub fn is_freeing(&self) -> bool {
        self.freeing.load(Relaxed) > 0
    }

    /// Notes that so many objects wait to be freed, or are freed at last (negative).
    pub(crate) fn add_pending(&self, objects: i64) {
        self.pending.fetch_add(objects, Relaxed);
    }

    /// Keys of flushed databases, and huge values, that are yet to be freed.
    pub fn pending_objects(&self) -> u64 {
        self.pending.load(Relaxed).max(0).unsigned_abs()
    }

    /// Called again and again by the background, which knows whether clients are told of keys that go. It evicts for
    /// what others take only now and then: while clients are told what goes, their buffers grow, for which more would
    /// go.
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

    /// What counts of what is taken elsewhere now.
    fn lasting(&self, measured: i64) -> i64 {
        if !self.is_telling.load(Relaxed) {
            return measured;
        }
        let low = self.lows[0].fetch_min(measured, Relaxed).min(measured);
        let low = low.min(self.lows[1].load(Relaxed));
        measured.min(low + PASSING_BYTES_COUNTED)
    }

    /// Says what the server itself takes by now. However much that seems to be, it counts within bounds, and rises
    /// slowly, by what two looks have seen. Something `is_waiting` for the disk, for replicas or for a snapshot.
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

    /// Says what the server itself takes when a limit in bytes is about to be set: that counts at once, within bounds.
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

    /// Bytes that count against the limit now: data, the server itself, and clients within their bound.
    pub fn counted_bytes(&self) -> i64 {
        self.used_bytes() + self.measure_elsewhere()
    }

    /// Bytes taken beside the shards now, for whatever purpose, and whether it counts or not.
    pub fn beside_data_bytes(&self) -> i64 {
        account::total_bytes() - self.used_bytes() - self.leaving.load(Relaxed)
    }

    /// Whether the limit is kept to the byte.
    pub fn is_exact(&self) -> bool {
        self.pool.is_exact()
    }

    /// Notes that a shard paid something, where the limit of a pool is kept to the byte.
    pub(super) fn note_unsettled(&self, pool: &Pool) {
        if pool.is_exact() {
            self.ask_to_settle();
        }
    }

    /// Asks for all shards to pay what they owe, before the next reply leaves.
    pub(super) fn ask_to_settle(&self) {
        self.is_unsettled.store(true, Relaxed);
    }

    /// Whether all shards are to be asked for what they owe now: by the caller, who has none in hand.
    #[inline]
    pub fn takes_settling(&self) -> bool {
        self.is_unsettled.load(Relaxed) && self.is_unsettled.swap(false, Relaxed)
    }

    /// Grants a shard what it has taken already, though nothing is free: from now on no shard grows without a refusal.
    pub(super) fn overdraw(&self, pool: &Pool, published: &Published, needed: i64) {
        pool.overdraw(published, needed);
        self.assess();
    }

    /// Spreads what a shard owes over all shards, if it is more than the next few commands will pay: what others were
    /// granted and do not use goes first, and what is left is asked of them by their size.
    pub(super) fn spread(&self, pool: &Pool, published: &Published) {
        let debt = pool.account(published).debt_bytes();
        if is_beyond_trades(debt, pool.trade_bytes()) {
            self.overdraw(pool, published, debt);
            self.note_debts();
        }
    }

    /// Looks how much all shards owe.
    pub fn note_debts(&self) {
        let mut is_behind = self.pool.note_debts();
        for share in self.limited_shares() {
            is_behind |= share.note_debts();
        }
        if is_behind != self.is_behind.load(Relaxed) {
            self.is_behind.store(is_behind, Relaxed);
        }
    }

    /// Whether so much is owed that a command that may add to it pays first: in all, or to the share of some database.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    /// Whether that is so for a command that adds to a database.
    #[cold]
    pub fn holds_back(&self, db: usize) -> bool {
        self.pool.is_behind() || self.shares.get(db).is_some_and(Pool::is_behind)
    }

    /// Holds back no writers any more, as no shard can pay now.
    pub fn give_up_debts(&self) {
        self.pool.give_up_debts();
        self.shares.iter().for_each(Pool::give_up_debts);
        self.is_behind.store(false, Relaxed);
    }

    /// With which shard to begin where all are asked: a different one each time.
    pub fn next_asked(&self) -> usize {
        self.pool.next_asked()
    }

    /// As [`Budget::assess`], unless somebody did so of late. Many shards are looked at less often.
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

    /// Measures what is taken outside of the shards, takes back what shards do not use if it is scarce, and, if more is
    /// taken than there is, lowers the parts of all shards alike. Likewise of what databases have shares of.
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

    /// Bytes of all debts, in which the shortage is that no shard could be asked to pay.
    pub fn debt_bytes(&self) -> i64 {
        self.pool.debt_bytes()
    }

    /// Whether a shard that owes has to be refused more: the data take all that there is, or that their database has,
    /// and nothing can be evicted.
    pub(super) fn is_full(&self, whose: Whose) -> bool {
        match whose {
            None => self.is_out_of_memory(0),
            Some(db) => {
                let share = &self.shares[db];
                share.used_bytes() > share.limit_bytes() && !share.is_any_evictable(self.policy())
            }
        }
    }

    /// Whether the data alone, with the server itself and so many bytes that are to become data, are above the limit.
    pub fn is_out_of_memory(&self, coming: usize) -> bool {
        let limit = self.limit_bytes();
        if limit == 0 || self.is_freeing() {
            return false;
        }
        let taken = self.base.load(Relaxed) + self.used_bytes() + coming as i64;
        taken > limit && !self.is_any_evictable()
    }

    /// Whether so many bytes more of data are within the limit, without anything being evicted for them.
    pub fn has_room(&self, bytes: usize) -> bool {
        let taken = self.base.load(Relaxed) + self.used_bytes();
        !self.is_limited() || taken.saturating_add_unsigned(bytes as u64) <= self.limit_bytes()
    }

    /// What held locks take in all shards.
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Keys of all shards that the policy lets go.
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

    /// Whether any shard has a key that the policy lets go.
    pub fn is_any_evictable(&self) -> bool {
        self.pool.is_any_evictable(self.policy())
    }

    /// Notes whether the limit is exceeded at a moment, for the figures of INFO.
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

    /// How long the limit has been exceeded by now, and how long it was in all, in milliseconds.
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
