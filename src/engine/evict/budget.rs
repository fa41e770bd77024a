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
//! beyond its debt becomes free again ([`Budget::give_back`]), and shards in debt look there first. While all debts
//! together are more than a sixty-fourth of the limit, commands that may grow are held back, and pay
//! ([`Budget::is_behind`]). So no more is ever taken than the limit, twice that sixty-fourth, and what the commands
//! under way add, as long as anything can be evicted.
//!
//! With a limit of a few MiB the debts of 64 shards would be a notable part of it. There nothing is freed ahead of
//! need, and a thread that paid something has all shards pay to the byte once it holds no shard any more
//! ([`Budget::takes_settling`]).
//!
//! Everything is a plain atomic figure: a thread that reads an old one takes a little too much, which the next
//! assessment finds. Nothing here waits, and lowering a shard's part needs no token.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};

use super::Policy;
use crate::alloc::account;
use crate::engine::published::Published;
use crate::engine::tracking::TrackedCount;

/// The most that a shard draws at once beyond what it needs.
const CHUNK_BYTES_MAX: i64 = 256 * 1024;

/// A shard draws one part in so many of what is free, divided by the number of shards.
const CHUNK_PARTS: i64 = 4;

/// Below this part of the limit what is free is scarce: shards give back what they do not use, and begin to remember in
/// which order keys came.
const SCARCE_PARTS: i64 = 8;

/// What two shards exchange in one trade, at most.
const TRADE_BYTES_MAX: i64 = 64 * 1024;

/// What two shards exchange in one trade, at least, but for limits too small for anything.
const TRADE_BYTES_MIN: i64 = 512;

/// Parts of an even share of the limit that are exchanged in one trade.
const TRADE_PARTS: i64 = 256;

/// The most that a shard frees ahead of its need.
const AHEAD_BYTES_MAX: i64 = 1024;
/// A shard frees one part in so many of a trade ahead of its need.
const AHEAD_PARTS: i64 = 4;

/// A limit below this is kept to the byte, if there are at most [`EXACT_SHARDS_MAX`] shards.
const EXACT_BELOW_BYTES: i64 = 16 * 1024 * 1024;
/// The most shards for a limit that is kept to the byte, as each is asked each time.
const EXACT_SHARDS_MAX: usize = 128;
/// Where the limit is kept to the byte, the server itself may be seen to take so much more between two looks at it.
const EXACT_GROWTH_BYTES: i64 = 16 * 1024;

/// The background measures what is taken elsewhere once in so long.
const BACKGROUND_PAUSE_MS: u64 = 10;

/// While clients are told which keys go, what is taken elsewhere counts once it has been taken for so long, or twice as
/// long.
const LASTING_MS: u64 = 10;

/// Bytes taken elsewhere that count at once, however short they are taken.
const PASSING_BYTES_COUNTED: i64 = 6 * 1024;

/// A shortage is asked of as few shards as have to give up so much each.
const PART_BYTES_MIN: i64 = 4 * 1024;

/// A shard that owes this many trades is not asked for more.
const DEBT_TRADES_MAX: i64 = 4;

/// While all shards together owe more than one part in so many of the limit, a command that may add to it pays first.
const BEHIND_PARTS: i64 = 64;

/// Shards whose published figures are read for an assessment, in each millisecond.
const SHARDS_PER_MS: u64 = 64;

/// What the server itself takes more than when the limit was set counts up to one part in so many of it, so that what
/// is not told apart from it can never evict more.
const GROWTH_PARTS: i64 = 128;
/// The bound of that growth where the limit is small.
const GROWTH_BYTES_MIN: i64 = 256 * 1024;
/// The bound of that growth where the limit is large.
const GROWTH_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// What counts of the server itself rises by one part in so many of its bound at a time, as its parts are not measured
/// at one moment.
const RISES: i64 = 8;

/// The golden ratio as a part of 2^64: its multiples lie evenly, however many there are.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whether so many bytes are more than trades are for.
pub(super) fn is_beyond_trades(bytes: i64, trade: i64) -> bool {
    bytes > DEBT_TRADES_MAX * trade
}

/// On a line of its own, because all shards write it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared(AtomicI64);

/// See the module.
#[derive(Debug, Default)]
pub struct Budget {
    free: Shared,
    /// 0: none.
    limit: AtomicI64,
    elsewhere: AtomicI64,
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
    /// Whom the next shortage is asked of first.
    asked_first: AtomicU64,
    /// Bytes of large values on the same way, on no shard's account.
    leaving: AtomicI64,
    assessed_ms: AtomicU64,
    /// When the limit was exceeded, in Unix milliseconds; 0: it is not.
    exceeded_since_ms: AtomicU64,
    exceeded_ms: AtomicU64,
    all_published: OnceLock<Box<[Arc<Published>]>>,
}

impl Budget {
    /// A budget of these shards, with no limit yet.
    pub fn of(all_published: Box<[Arc<Published>]>) -> Budget {
        let budget = Budget::default();
        let _ = budget.all_published.set(all_published);
        budget
    }

    fn all_published(&self) -> &[Arc<Published>] {
        self.all_published
            .get()
            .map_or(&[], |all_published| all_published)
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
        let before = self.limit.swap(limit, SeqCst);
        if limit == 0 {
            for published in self.all_published() {
                published.granted().store(i64::MAX, Relaxed);
            }
            self.free.0.store(0, Relaxed);
            self.elsewhere.store(0, Relaxed);
            self.exceeded_since_ms.store(0, Relaxed);
            self.is_behind.store(false, Relaxed);
            return;
        }
        if before != 0 {
            self.free.0.fetch_add(limit - before, SeqCst);
        } else {
            // What is free is known before anybody has a part that could be used up.
            let used = self.used_bytes();
            let elsewhere = self.measure_elsewhere();
            self.elsewhere.store(elsewhere, SeqCst);
            for low in &self.lows {
                low.store(elsewhere, Relaxed);
            }
            self.free.0.store(limit - elsewhere - used, SeqCst);
            let mut granted = 0;
            for published in self.all_published() {
                let part = published.used_bytes();
                published.granted().store(part, Relaxed);
                granted += part;
            }
            self.free.0.fetch_add(used - granted, SeqCst);
        }
        self.assess();
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limit.load(Relaxed) != 0
    }

    /// The limit; 0 for none.
    pub fn limit_bytes(&self) -> i64 {
        self.limit.load(Relaxed)
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
        self.is_limited() && self.free.0.load(Relaxed) < self.limit_bytes() / SCARCE_PARTS
    }

    /// Whether the process takes so much that connections alone may soon make it too much.
    pub fn is_close(&self) -> bool {
        self.is_scarce()
            || (self.is_limited() && account::total_bytes() > self.limit_bytes() / 4 * 3)
    }

    /// Bytes of the limit that are not taken: negative while more is taken than the limit allows.
    pub fn free_bytes(&self) -> i64 {
        self.free.0.load(Relaxed)
    }

    /// Bytes charged to all shards.
    pub fn used_bytes(&self) -> i64 {
        self.all_published()
            .iter()
            .map(|published| published.used_bytes())
            .sum()
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
    pub(in crate::engine) fn add_leaving(&self, bytes: i64) {
        self.leaving.fetch_add(bytes, Relaxed);
    }

    /// Notes that so many flushed databases are on their way back to the allocator, or that they have arrived
    /// (negative). Nothing is evicted meanwhile.
    pub(in crate::engine) fn add_freeing(&self, databases: i64) {
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
    pub(in crate::engine) fn add_pending(&self, objects: i64) {
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

    /// Says what the server itself takes when a limit is about to be set: that counts at once.
    pub fn set_base_at_limit(&self, bytes: i64, is_waiting: bool) {
        self.is_anything_waiting.store(is_waiting, Relaxed);
        let base = bytes.max(self.base_at_start.load(Relaxed));
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
        self.limit_bytes() < EXACT_BELOW_BYTES && self.all_published().len() <= EXACT_SHARDS_MAX
    }

    /// Notes that a shard paid something, where the limit is kept to the byte.
    pub(super) fn note_unsettled(&self) {
        if self.is_exact() {
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

    /// Takes a part of what is free for a shard that needs so many bytes more; less if there is less.
    pub(super) fn draw(&self, published: &Published, needed: i64) {
        let free = self.free.0.load(Relaxed);
        if free <= 0 {
            return;
        }
        let shards = self.all_published().len().max(1) as i64;
        let chunk = (free / (CHUNK_PARTS * shards)).min(CHUNK_BYTES_MAX);
        let drawn = (needed + chunk).min(free);
        self.free.0.fetch_sub(drawn, Relaxed);
        published.granted().fetch_add(drawn, Relaxed);
    }

    /// Grants a shard what it has taken already, though nothing is free: from now on no shard grows without a refusal.
    pub(super) fn overdraw(&self, published: &Published, needed: i64) {
        self.free.0.fetch_sub(needed, Relaxed);
        published.granted().fetch_add(needed, Relaxed);
        self.assess();
    }

    /// Spreads what a shard owes over all shards, if it is more than the next few commands will pay: what others were
    /// granted and do not use goes first, and what is left is asked of them by their size.
    pub(super) fn spread(&self, published: &Published) {
        let debt = published.debt_bytes();
        if is_beyond_trades(debt, self.trade_bytes()) {
            self.overdraw(published, debt);
            self.note_debts();
        }
    }

    /// Takes back what a shard has freed far beyond what it owed: a shard that owes something finds it before it
    /// evicts.
    pub(super) fn give_back(&self, published: &Published, trade: i64) {
        let unused = -published.debt_bytes();
        if is_beyond_trades(unused, trade) {
            self.take_back(published, unused);
        }
    }

    fn take_back(&self, published: &Published, unused: i64) {
        published.granted().fetch_sub(unused, Relaxed);
        self.free.0.fetch_add(unused, Relaxed);
    }

    /// Looks how much all shards owe.
    pub fn note_debts(&self) {
        let is_behind = self.is_limited() && self.debt_bytes() > self.limit_bytes() / BEHIND_PARTS;
        if is_behind != self.is_behind.load(Relaxed) {
            self.is_behind.store(is_behind, Relaxed);
        }
    }

    /// Whether so much is owed that a command that may add to it pays first.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    /// Holds back no writers any more, as no shard can pay now.
    pub fn give_up_debts(&self) {
        self.is_behind.store(false, Relaxed);
    }

    /// With which shard to begin where all are asked: a different one each time.
    pub fn next_asked(&self) -> usize {
        self.asked_first.fetch_add(1, Relaxed) as usize
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
    /// taken than there is, lowers the parts of all shards alike.
    pub fn assess(&self) {
        let limit = self.limit_bytes();
        if limit == 0 {
            return;
        }
        let used = self.used_bytes();
        let elsewhere = self.lasting(self.measure_elsewhere());
        let before = self.elsewhere.swap(elsewhere, Relaxed);
        self.free.0.fetch_add(before - elsewhere, Relaxed);
        if self.free_bytes() < limit / SCARCE_PARTS {
            let mut owed = 0;
            for published in self.all_published() {
                let unused = -published.debt_bytes();
                if unused > 0 {
                    self.take_back(published, unused);
                } else {
                    owed -= unused;
                }
            }
            if owed > 0 && self.free_bytes() > 0 && !self.is_any_evictable() {
                self.forgive();
            }
        }
        let short = -self.free_bytes();
        if short <= 0 || used <= 0 || !self.policy().evicts() || self.is_freeing() {
            return;
        }
        let returned = self.ask(short, used);
        self.free.0.fetch_add(returned, Relaxed);
    }

    /// Asks shards by their size for what is short; for how much.
    ///
    /// As a shard that owes a byte gives up a key, a small shortage is asked of a few shards: of each as much as a key
    /// takes. With which to begin is drawn by size, so that all keys compete.
    fn ask(&self, short: i64, used: i64) -> i64 {
        let all_published = self.all_published();
        let keys: u64 = all_published
            .iter()
            .map(|published| published.evictable(false))
            .sum();
        let key_bytes = used / (keys as i64).max(1);
        let part_min = self.trade_bytes().max(PART_BYTES_MIN).max(key_bytes);
        let point = (self.next_asked() as u64).wrapping_mul(GOLDEN);
        let mut before =
            ((u128::from(point) * u128::from(used.unsigned_abs())) >> u64::BITS) as i64;
        let first = all_published.iter().position(|published| {
            before -= published.used_bytes();
            before < 0
        });
        let first = first.unwrap_or(0);
        let mut returned = 0;
        for step in 0..all_published.len() {
            let published = &*all_published[(first + step) % all_published.len()];
            let taken = published.used_bytes();
            if taken <= 0 || returned >= short {
                continue;
            }
            // Rounded up, or a few bytes would be asked of no shard.
            let part = (i128::from(short) * i128::from(taken) / i128::from(used)) as i64 + 1;
            let part = part.max(part_min.min(taken)).min(short - returned);
            published.granted().fetch_sub(part, Relaxed);
            returned += part;
        }
        returned
    }

    /// What is free goes to shards that owe first, where no shard has anything to give up: if any shard could draw it,
    /// then each buffer of a client that comes and goes would leave room for as much again, without end. Where keys can
    /// go, it is left to the shards that are written to, or else some shards would grow at the cost of others.
    fn forgive(&self) {
        for published in self.all_published() {
            let part = published.debt_bytes().min(self.free_bytes());
            if part > 0 {
                self.free.0.fetch_sub(part, Relaxed);
                published.granted().fetch_add(part, Relaxed);
            }
        }
    }

    /// Bytes of all debts, in which the shortage is that no shard could be asked to pay.
    pub fn debt_bytes(&self) -> i64 {
        let debts = self
            .all_published()
            .iter()
            .map(|published| published.debt_bytes().max(0));
        debts.sum::<i64>() + (-self.free_bytes()).max(0)
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

    /// Whether any shard has a key that the policy lets go.
    pub fn is_any_evictable(&self) -> bool {
        let policy = self.policy();
        policy.evicts() && {
            let volatile_only = policy.is_volatile_only();
            let mut all_published = self.all_published().iter();
            all_published.any(|published| published.evictable(volatile_only) > 0)
        }
    }

    /// What two shards exchange at once.
    pub(super) fn trade_bytes(&self) -> i64 {
        let shards = self.all_published().len().max(1) as i64;
        let even = self.limit_bytes() / (shards * TRADE_PARTS);
        even.clamp(TRADE_BYTES_MIN, TRADE_BYTES_MAX)
    }

    /// What a shard that evicts frees ahead of its need.
    pub(super) fn ahead_bytes(&self, trade: i64) -> i64 {
        if self.is_exact() {
            return 0;
        }
        (trade / AHEAD_PARTS).min(AHEAD_BYTES_MAX)
    }

    /// Moves a trade's worth from another shard, drawn as likely as it is large, to this one.
    pub(super) fn trade(
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
            let is_large = other.used_bytes() > draw(2 * even as u64) as i64;
            let is_asked = is_large && !is_beyond_trades(other.debt_bytes() + 1, bytes);
            if is_asked && !std::ptr::eq(other, published) {
                other.granted().fetch_sub(bytes, Relaxed);
                published.granted().fetch_add(bytes, Relaxed);
                return;
            }
        }
    }

    /// Moves what a shard without evictable keys needs from shards that have some; what it got.
    pub(super) fn beg(&self, published: &Published, needed: i64, start: u64) -> i64 {
        let all_published = self.all_published();
        let volatile_only = self.policy().is_volatile_only();
        let mut left = needed;
        for step in 0..all_published.len() {
            if left <= 0 {
                break;
            }
            let other = &*all_published[(start as usize).wrapping_add(step) % all_published.len()];
            if std::ptr::eq(other, published) || other.evictable(volatile_only) == 0 {
                continue;
            }
            let possible = other.used_bytes().min(DEBT_TRADES_MAX * self.trade_bytes());
            let part = (possible - other.debt_bytes().max(0)).min(left);
            if part > 0 {
                other.granted().fetch_sub(part, Relaxed);
                published.granted().fetch_add(part, Relaxed);
                left -= part;
            }
        }
        needed - left
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
    fn what_becomes_free_goes_to_those_who_owe_first() {
        let all_published = (0..4).map(|_| Arc::new(Published::new(1)));
        let budget = Budget::of(all_published.collect());
        budget.configure(1 << 20, Policy::VolatileLru, false);
        for published in budget.all_published() {
            published.add_used(1 << 18);
            budget.draw(published, published.debt_bytes());
            budget.assess();
        }
        assert_eq!((budget.debt_bytes(), budget.free_bytes()), (0, 0));
        budget.all_published()[2].add_used(100_000);
        for round in 1..=2 {
            // A buffer that was there is gone.
            budget.elsewhere.store(40_000, Relaxed);
            budget.assess();
            assert_eq!(budget.debt_bytes(), 100_000 - 40_000 * round);
            assert_eq!(budget.free_bytes(), 0);
            // All others are as they were: no shard can draw anything.
            let debts = budget
                .all_published()
                .iter()
                .map(|published| published.debt_bytes());
            let debts: Vec<i64> = debts.collect();
            assert_eq!(debts, [0, 0, budget.debt_bytes(), 0]);
        }
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
