//! State published by a shard: counters and table addresses that any thread may read without locking the shard.
//!
//! Only the thread that has locked the shard writes, with relaxed loads and stores; readers see each value untorn,
//! but values may be of different moments. Readers never dereference an address here; they use it only as a prefetch
//! hint.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use super::sizes::Sizes;
use super::value::TYPES;
use basalt_core::base::counter::Counter;
use basalt_core::base::hash::SLOTS;
use basalt_core::structures::reuse_distance::{self, Curve};

/// Lookups by reading commands.
#[derive(Debug, Default)]
pub struct LookUps {
    /// Lookups that found the key.
    pub hits: Counter,
    /// Lookups that did not find the key.
    pub misses: Counter,
}

/// The published state of one database. The part that sessions read before they lock the shard is on a cache line
/// that commands seldom write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct PublishedDb {
    /// Address and depth of the table's directory, for prefetching only.
    pub directory: Arc<AtomicU64>,
    /// The histogram of the database's value sizes, if it has any values.
    sizes: ArcSwapOption<Sizes>,
    /// In a cluster: the slots that have keys.
    pub(super) slots_in_use: SlotsInUse,
    /// Keys deleted because they expired.
    pub expired: Counter,
    /// Keys deleted by eviction.
    pub evicted: Counter,
    /// The memory that the shard uses for the database, and its part of the database's share.
    account: Account,
    /// Lookups in the database, see [`Published::look_ups`].
    look_ups: LookUps,
    /// Number of keys.
    pub keys: Counter,
    /// Number of keys with a deadline.
    pub volatile_keys: Counter,
    /// Mean deadline of the keys with a deadline, in Unix milliseconds; 0 without such keys. Published as the mean,
    /// not the sum: a reader that combines a sum with a key count of another moment would be wrong by years.
    pub deadline_mean_ms: Counter,
    /// Hashes with field deadlines.
    pub field_volatile_keys: Counter,
    /// Locks that are held, and therefore not evicted.
    pub held_keys: Counter,
    /// Bytes of the held locks.
    held_bytes: Counter,
    /// Blessed keys.
    pub blessed_keys: Counter,
    /// Blessed keys that are not held locks, and therefore not evicted.
    pub pinned_keys: Counter,
    /// Blessed keys that are not held locks and have deadlines.
    pub pinned_volatile_keys: Counter,
    /// KiB of the largest value of each type; 0 if none is large.
    largest_kib: [AtomicU32; TYPES],
}

impl PublishedDb {
    /// Returns the bytes that the shard uses for the database: keys, values, and tables.
    pub fn used_bytes(&self) -> i64 {
        self.account.used_bytes()
    }

    /// Returns the bytes used beyond the shard's grant of the database's share; negative if below.
    #[inline]
    pub fn debt_bytes(&self) -> i64 {
        self.account.debt_bytes()
    }

    pub(super) fn set_used(&self, bytes: i64) {
        self.account.used.store(bytes, Relaxed);
    }

    /// Returns the bytes of the largest value of a type, given by its number, in whole KiB; 0 if none is large.
    pub fn largest(&self, data_type: usize) -> u64 {
        let kib = self.largest_kib.get(data_type);
        kib.map_or(0, |kib| u64::from(kib.load(Relaxed)) << 10)
    }

    /// Returns the distribution of value sizes, if there are any values.
    pub fn sizes(&self) -> Option<Arc<Sizes>> {
        self.sizes.load_full()
    }

    pub(super) fn set_sizes(&self, sizes: Option<Arc<Sizes>>) {
        self.sizes.store(sizes);
    }

    pub(super) fn set_largest(&self, data_type: usize, bytes: u64) {
        if let Some(kib) = self.largest_kib.get(data_type) {
            kib.store(u32::try_from(bytes >> 10).unwrap_or(u32::MAX), Relaxed);
        }
    }

    fn clear_largest(&self) {
        for kib in &self.largest_kib {
            kib.store(0, Relaxed);
        }
    }
}

/// Bytes of the held locks of all shards; on a line of its own, as all shards write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct HeldLockBytes(AtomicU64);

impl HeldLockBytes {
    /// Returns the bytes of all shards' held locks.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn change(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// The slots of a shard that have keys in a database: one bit each, indexed by the slot number without the bits
/// that the shard determines.
#[derive(Debug, Default)]
pub(super) struct SlotsInUse(OnceLock<SlotBits>);

#[derive(Debug)]
struct SlotBits {
    shard_bits: u32,
    words: Box<[AtomicU64]>,
}

impl SlotsInUse {
    /// Allocates bits for the slots of a shard; `shard_bits` is the number of low bits of a slot that select the
    /// shard and have no bits here.
    pub(super) fn keep(&self, shard_bits: u32) {
        let words = usize::from(SLOTS >> shard_bits).div_ceil(64);
        self.0.get_or_init(|| SlotBits {
            shard_bits,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        });
    }

    /// Records whether a slot has keys.
    pub(super) fn note(&self, slot: u16, is_in_use: bool) {
        let Some(bits) = self.0.get() else {
            return debug_assert!(false, "room is made before the first key comes");
        };
        let number = usize::from(slot >> bits.shard_bits);
        let (word, bit) = (&bits.words[number / 64], 1 << (number % 64));
        // Only the thread that has locked the shard writes.
        let others = word.load(Relaxed) & !bit;
        word.store(if is_in_use { others | bit } else { others }, Relaxed);
    }

    pub(super) fn clear(&self) {
        for word in self.0.get().iter().flat_map(|bits| &bits.words) {
            word.store(0, Relaxed);
        }
    }

    fn contains(&self, slot: u16) -> bool {
        self.0.get().is_some_and(|bits| {
            let number = usize::from(slot >> bits.shard_bits);
            bits.words[number / 64].load(Relaxed) >> (number % 64) & 1 == 1
        })
    }
}

/// Upper bounds of the expiry lag buckets, in milliseconds; the last bucket is open.
pub const LAG_BOUNDS_MS: [u64; 10] = [1, 5, 10, 20, 50, 100, 250, 500, 1_000, 5_000];

/// The published tag counters of a shard.
#[derive(Debug, Default)]
pub struct PublishedTags {
    /// Tags invalidated while keys of this shard had them.
    pub invalidated: Counter,
    /// Keys deleted because a tag was invalidated.
    pub keys_invalidated: Counter,
}

/// The published lease counters of a shard.
#[derive(Debug, Default)]
pub struct PublishedLeases {
    /// Leases given to clients.
    pub given: Counter,
    /// Leases in force now.
    pub in_force: Counter,
    /// Clients that wait for a key to be loaded.
    pub waiting: Counter,
    /// Leases ended by a fill.
    pub filled: Counter,
    /// Leases given up by the client that had them.
    pub dropped: Counter,
    /// Leases ended because their time was over.
    pub void_by_time: Counter,
    /// Leases ended by a change of their key.
    pub void_by_change: Counter,
    /// Values that LFILL did not store: the token matched no lease of the key, or a tag was invalidated meanwhile.
    pub fills_refused: Counter,
    /// Stale values served to clients, past their fresh time.
    pub stale_served: Counter,
}

/// The lock counters of a shard.
#[derive(Debug, Default)]
pub struct PublishedLocks {
    /// Locks acquired, by whichever owner.
    pub taken: Counter,
    /// Locks acquired after waiting.
    pub handed_over: Counter,
    /// Locks acquired again by their owner.
    pub retaken: Counter,
    /// Locks released by their owner.
    pub released: Counter,
}

/// The counters of rate limits and of queues of due members.
#[derive(Debug, Default)]
pub struct PublishedRates {
    /// Requests allowed by CL.THROTTLE.
    pub let_through: Counter,
    /// Requests rejected by CL.THROTTLE.
    pub limited: Counter,
    /// Members of sorted sets removed because they were due.
    pub due_taken: Counter,
}

/// The memory that a shard uses and its grant, side by side on one cache line: they are compared whenever usage may
/// have grown.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Account {
    used: AtomicI64,
    /// The shard's grant: its part of a limit, see [`super::evict::budget`]. Other threads may lower and raise it.
    granted: AtomicI64,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            used: AtomicI64::new(0),
            granted: AtomicI64::new(i64::MAX),
        }
    }
}

impl Account {
    /// Charges bytes, or credits them if negative.
    pub(super) fn add_used(&self, bytes: i64) {
        self.used.store(self.used.load(Relaxed) + bytes, Relaxed);
    }

    #[inline]
    pub(super) fn used_bytes(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// Returns the granted bytes; `i64::MAX` without a limit.
    #[inline]
    pub(super) fn granted(&self) -> &AtomicI64 {
        &self.granted
    }

    /// Returns the bytes used beyond the grant; negative if below.
    #[inline]
    pub(super) fn debt_bytes(&self) -> i64 {
        self.used_bytes() - self.granted.load(Relaxed)
    }
}

/// Counters of a shard for one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbCounts {
    /// Lookups by reading commands that found the key.
    pub hits: u64,
    /// Lookups by reading commands that did not find the key.
    pub misses: u64,
    /// Keys deleted because they expired.
    pub expired: u64,
    /// Keys deleted by eviction.
    pub evicted: u64,
}

impl DbCounts {
    /// Returns the sums of this and another count.
    #[must_use]
    pub fn plus(self, other: DbCounts) -> DbCounts {
        DbCounts {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }

    /// Returns the differences of this and an earlier count.
    #[must_use]
    pub fn since(self, earlier: DbCounts) -> DbCounts {
        DbCounts {
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            expired: self.expired.saturating_sub(earlier.expired),
            evicted: self.evicted.saturating_sub(earlier.evicted),
        }
    }
}

/// The published state of a shard, see the module. The first cache line holds what nearly every command accesses.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Published {
    /// Lookups in the first database: most clients use only that one.
    first_look_ups: LookUps,
    account: Account,
    /// Number of commands run on this shard.
    pub commands: Counter,
    /// Number of changes since the server's start.
    pub dirty: Counter,
    /// Time of the last use of any key of this shard, in Unix milliseconds.
    pub used_at_ms: Counter,
    /// Keys whose hash mark is below this are sampled for the miss ratio curve; 0: no key is.
    followed_below: AtomicU32,
    doomed: AtomicBool,
    ordered: AtomicBool,
    /// True if the configuration enables the curve.
    curve_wanted: AtomicBool,
    sharing: AtomicBool,
    /// One entry per database.
    pub dbs: Box<[PublishedDb]>,
    /// Lookups by the cache size needed for a hit; see [`basalt_core::structures::reuse_distance`].
    pub curve: Curve,
    /// Hash fields deleted because they expired.
    pub expired_fields: Counter,
    /// Large values freed after the shard was released.
    pub lazyfreed: Counter,
    /// Flushes of all databases, each counted in one shard.
    pub flushes: Counter,
    /// Number of times that a database of this shard was emptied.
    pub emptied: Counter,
    /// Keys evicted from the queue of new keys.
    pub evicted_small: Counter,
    /// Keys evicted by the clock hand.
    pub evicted_main: Counter,
    /// Keys that were used while in the queue of new keys, and so were promoted to the main part.
    pub promoted: Counter,
    /// Keys that were written again soon after their eviction.
    pub ghost_hits: Counter,
    /// Number of keys that a client waits for.
    pub waited_keys: Counter,
    /// Number of keys of which a waiting client also wants to know when they are deleted.
    pub waited_keys_when_gone: Counter,
    /// Counters of leases (LGET, LFILL).
    pub leases: PublishedLeases,
    /// Counters of locks (LOCK).
    pub locks: PublishedLocks,
    /// Rate limit and due member counters.
    pub rates: PublishedRates,
    /// Counters of tags (TAG).
    pub tags: PublishedTags,
    /// Bytes of held locks, shared by all shards on one budget.
    held: OnceLock<Arc<HeldLockBytes>>,
    /// Number of keys that a client watches.
    pub watched_keys: Counter,
    /// Lower bound of the armed deadlines (Unix ms); `u64::MAX` when none is armed.
    pub next_deadline_ms: Counter,
    /// Delays of deletion after expiry, counted by bucket of [`LAG_BOUNDS_MS`].
    pub expiry_lag: [Counter; LAG_BOUNDS_MS.len() + 1],
    /// Sum of the delays of deletion after expiry, in milliseconds.
    pub expiry_lag_sum_ms: Counter,
    /// The longest delay of deletion after expiry, in milliseconds.
    pub expiry_lag_max_ms: Counter,
}

impl Published {
    /// Creates counters that are all zero.
    pub fn new(database_count: usize) -> Published {
        let published = Published {
            first_look_ups: LookUps::default(),
            used_at_ms: Counter::default(),
            commands: Counter::default(),
            dirty: Counter::default(),
            account: Account::default(),
            followed_below: AtomicU32::new(0),
            doomed: AtomicBool::new(false),
            ordered: AtomicBool::new(false),
            curve_wanted: AtomicBool::new(false),
            sharing: AtomicBool::new(false),
            dbs: (0..database_count)
                .map(|_| PublishedDb::default())
                .collect(),
            curve: Curve::default(),
            expired_fields: Counter::default(),
            lazyfreed: Counter::default(),
            flushes: Counter::default(),
            emptied: Counter::default(),
            evicted_small: Counter::default(),
            evicted_main: Counter::default(),
            promoted: Counter::default(),
            ghost_hits: Counter::default(),
            waited_keys: Counter::default(),
            waited_keys_when_gone: Counter::default(),
            leases: PublishedLeases::default(),
            locks: PublishedLocks::default(),
            rates: PublishedRates::default(),
            tags: PublishedTags::default(),
            held: OnceLock::new(),
            watched_keys: Counter::default(),
            next_deadline_ms: Counter::default(),
            expiry_lag: Default::default(),
            expiry_lag_sum_ms: Counter::default(),
            expiry_lag_max_ms: Counter::default(),
        };
        published.next_deadline_ms.set(u64::MAX);
        published
    }

    /// Returns the lookups by reading commands in one database.
    #[inline]
    pub fn look_ups(&self, db: usize) -> &LookUps {
        match db {
            0 => &self.first_look_ups,
            db => &self.dbs[db].look_ups,
        }
    }

    /// Returns the counts of one database.
    pub fn counts(&self, db: usize) -> DbCounts {
        let (look_ups, of_db) = (self.look_ups(db), &self.dbs[db]);
        DbCounts {
            hits: look_ups.hits.get(),
            misses: look_ups.misses.get(),
            expired: of_db.expired.get(),
            evicted: of_db.evicted.get(),
        }
    }

    /// Sets the counts of a database, as after an undone attempt.
    pub(super) fn recount(&self, db: usize, counts: DbCounts) {
        let (look_ups, of_db) = (self.look_ups(db), &self.dbs[db]);
        look_ups.hits.set(counts.hits);
        look_ups.misses.set(counts.misses);
        of_db.expired.set(counts.expired);
        of_db.evicted.set(counts.evicted);
    }

    /// Returns the counts of all databases together.
    pub fn all_counts(&self) -> DbCounts {
        let all = (0..self.dbs.len()).map(|db| self.counts(db));
        all.fold(DbCounts::default(), |sum, of_db| sum.plus(of_db))
    }

    /// Charges bytes to the shard, or credits them if negative.
    pub fn add_used(&self, bytes: i64) {
        // Most changes fit into the old value's allocation: the cache line is not written then.
        if bytes != 0 {
            self.account.add_used(bytes);
        }
    }

    /// Returns the bytes charged to the shard.
    #[inline]
    pub fn used_bytes(&self) -> i64 {
        self.account.used_bytes()
    }

    /// Returns the account of the whole shard, or that of one database's share.
    pub(super) fn account(&self, whose: Option<usize>) -> &Account {
        match whose {
            None => &self.account,
            Some(db) => &self.dbs[db].account,
        }
    }

    /// True if the shard's memory is limited.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.account.granted().load(Relaxed) != i64::MAX
    }

    /// Returns the bytes used beyond the shard's grant; negative if below.
    #[inline]
    pub fn debt_bytes(&self) -> i64 {
        self.account.debt_bytes()
    }

    /// True if the shard uses more than its grant of all memory or of a database's share.
    #[inline]
    pub fn owes(&self) -> bool {
        self.debt_bytes() > 0 || (self.is_sharing() && self.owes_to_share())
    }

    #[cold]
    fn owes_to_share(&self) -> bool {
        self.dbs.iter().any(|db| db.debt_bytes() > 0)
    }

    /// Returns the number of evictable keys of all databases, or of one: all keys but held locks and blessed keys or,
    /// if `volatile_only`, those with a deadline.
    pub(super) fn evictable(&self, whose: Option<usize>, volatile_only: bool) -> u64 {
        let of = |db: &PublishedDb| {
            let (keys, pinned) = match volatile_only {
                true => (db.volatile_keys.get(), db.pinned_volatile_keys.get()),
                false => (db.keys.get(), db.pinned_keys.get()),
            };
            keys.saturating_sub(db.held_keys.get() + pinned)
        };
        match whose {
            None => self.dbs.iter().map(of).sum(),
            Some(db) => of(&self.dbs[db]),
        }
    }

    /// Adds the bytes of this shard's held locks to the total of all shards, and keeps the total up to date from now
    /// on.
    pub(super) fn join_held(&self, held: &Arc<HeldLockBytes>) {
        let own = self.dbs.iter().map(|db| db.held_bytes.get()).sum();
        if self.held.set(Arc::clone(held)).is_ok() {
            held.change(0, own);
        }
    }

    /// Sets the number and the bytes of a database's held locks.
    pub(super) fn set_held(&self, db: usize, keys: u64, bytes: u64) {
        let db = &self.dbs[db];
        let before = db.held_bytes.get();
        db.held_keys.set(keys);
        db.held_bytes.set(bytes);
        if bytes != before
            && let Some(held) = self.held.get()
        {
            held.change(before, bytes);
        }
    }

    /// True if the key with this hash is sampled for the miss ratio curve.
    #[inline]
    pub fn follows(&self, hash: u64) -> bool {
        reuse_distance::mark(hash) < self.followed_below.load(Relaxed)
    }

    /// True if a key may be sampled for the curve, when only the second lowest byte of its hash is known.
    #[inline]
    pub(super) fn may_follow(&self, hash_byte: u8) -> bool {
        u32::from(hash_byte) << 24 < self.followed_below.load(Relaxed)
    }

    pub(super) fn set_followed_below(&self, below: u32) {
        self.followed_below.store(below, Relaxed);
    }

    /// True if the curve is maintained.
    pub fn keeps_curve(&self) -> bool {
        self.followed_below.load(Relaxed) != 0
    }

    /// Sets whether the curve is wanted; the next thread that locks the shard turns the curve on or off.
    pub fn want_curve(&self, wanted: bool) {
        self.curve_wanted.store(wanted, Relaxed);
    }

    /// True if the curve has to be turned on or off: [`Engine::toggle_miss_ratio_curve`].
    ///
    /// [`Engine::toggle_miss_ratio_curve`]: super::Engine::toggle_miss_ratio_curve
    pub fn has_curve_to_switch(&self) -> bool {
        self.curve_wanted.load(Relaxed) != self.keeps_curve()
    }

    /// True if flushed data waits to be freed.
    pub fn has_doomed(&self) -> bool {
        self.doomed.load(Relaxed)
    }

    pub(super) fn set_doomed(&self, doomed: bool) {
        self.doomed.store(doomed, Relaxed);
    }

    /// True if the shard records the order in which keys arrive.
    pub fn is_ordered(&self) -> bool {
        self.ordered.load(Relaxed)
    }

    pub(super) fn set_ordered(&self, ordered: bool) {
        self.ordered.store(ordered, Relaxed);
    }

    /// True if any database has a share of memory.
    #[inline]
    pub fn is_sharing(&self) -> bool {
        self.sharing.load(Relaxed)
    }

    pub(super) fn set_sharing(&self, sharing: bool) {
        self.sharing.store(sharing, Relaxed);
    }

    pub(super) fn clear_db(&self, index: usize) {
        let db = &self.dbs[index];
        db.directory.store(0, Relaxed);
        db.keys.set(0);
        db.set_used(0);
        db.volatile_keys.set(0);
        db.deadline_mean_ms.set(0);
        db.field_volatile_keys.set(0);
        self.set_held(index, 0, 0);
        let blessed = [&db.blessed_keys, &db.pinned_keys, &db.pinned_volatile_keys];
        blessed.into_iter().for_each(|counter| counter.set(0));
        db.clear_largest();
        db.set_sizes(None);
        db.slots_in_use.clear();
    }

    /// True if a slot of this shard has keys in any database. Valid only if keys are indexed by slot.
    pub fn has_keys_in_slot(&self, slot: u16) -> bool {
        self.dbs.iter().any(|db| db.slots_in_use.contains(slot))
    }

    /// Counts the delay between a key's expiry and its deletion, in milliseconds.
    pub fn note_lag(&self, lag_ms: u64) {
        let bucket = LAG_BOUNDS_MS.partition_point(|bound| *bound < lag_ms);
        self.expiry_lag[bucket].add(1);
        self.expiry_lag_sum_ms.add(lag_ms);
        self.expiry_lag_max_ms
            .set(lag_ms.max(self.expiry_lag_max_ms.get()));
    }
}
