//! What a shard publishes: counters and table addresses that anyone may read without the token.
//!
//! Only the holder of the shard's token writes, with relaxed loads and stores; readers see each figure whole, though
//! not all figures of one moment. Nothing here is ever followed as a pointer by a reader except as a prefetch hint.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use super::sizes::Sizes;
use super::value::TYPES;
use basalt_core::base::counter::Counter;
use basalt_core::base::hash::SLOTS;
use basalt_core::structures::reuse_distance::{self, Curve};

/// Look-ups by commands that read.
#[derive(Debug, Default)]
pub struct LookUps {
    /// Look-ups that found the key.
    pub hits: Counter,
    /// Look-ups that did not find it.
    pub misses: Counter,
}

/// What is published of one database. What sessions read of it before they have the token is on a line that commands
/// seldom write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct PublishedDb {
    /// Address and depth of the table's directory, for prefetching only.
    pub directory: Arc<AtomicU64>,
    /// How large its values are, if it has any.
    sizes: ArcSwapOption<Sizes>,
    /// In a cluster: which slots have keys.
    pub(super) slots_in_use: SlotsInUse,
    /// Keys deleted because their time had come.
    pub expired: Counter,
    /// Keys deleted to make room.
    pub evicted: Counter,
    /// What the shard takes for it, and what it may take of the database's share.
    account: Account,
    /// See [`Published::look_ups`].
    look_ups: LookUps,
    /// Keys.
    pub keys: Counter,
    /// Keys with a deadline.
    pub volatile_keys: Counter,
    /// Mean of their deadlines in Unix milliseconds; 0 when there is none. One figure and not the sum, as a reader who
    /// finds a sum that lacks one of the keys that he counted would be wrong by years.
    pub deadline_mean_ms: Counter,
    /// Hashes of which fields have deadlines.
    pub field_volatile_keys: Counter,
    /// Locks that are held: these are not evicted.
    pub held_keys: Counter,
    /// Bytes that they take.
    held_bytes: Counter,
    /// KiB of the largest value of each type; 0 when none is large.
    largest_kib: [AtomicU32; TYPES],
}

impl PublishedDb {
    /// Bytes that the shard takes for the database: keys, values, and what finds them.
    pub fn used_bytes(&self) -> i64 {
        self.account.used_bytes()
    }

    /// Bytes that it takes beyond what the shard was granted of the database's share; negative while there is room.
    #[inline]
    pub fn debt_bytes(&self) -> i64 {
        self.account.debt_bytes()
    }

    pub(super) fn set_used(&self, bytes: i64) {
        self.account.used.store(bytes, Relaxed);
    }

    /// Bytes of the largest value of a type, by its number, in whole KiB; 0 when none is large.
    pub fn largest(&self, data_type: usize) -> u64 {
        let kib = self.largest_kib.get(data_type);
        kib.map_or(0, |kib| u64::from(kib.load(Relaxed)) << 10)
    }

    /// How large values are, if there are any.
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

/// Bytes that the held locks of all shards take; on a line of its own, as all shards write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Held(AtomicU64);

impl Held {
    /// The bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn change(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// Which slots of a shard have keys in a database; a bit for each, by what of its number the shard does not say.
#[derive(Debug, Default)]
pub(super) struct SlotsInUse(OnceLock<SlotBits>);

#[derive(Debug)]
struct SlotBits {
    shard_bits: u32,
    words: Box<[AtomicU64]>,
}

impl SlotsInUse {
    /// Makes room for the slots of a shard, of whose numbers so many lowest bits are left out.
    pub(super) fn keep(&self, shard_bits: u32) {
        let words = usize::from(SLOTS >> shard_bits).div_ceil(64);
        self.0.get_or_init(|| SlotBits {
            shard_bits,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        });
    }

    /// Notes whether a slot has keys.
    pub(super) fn note(&self, slot: u16, is_in_use: bool) {
        let Some(bits) = self.0.get() else {
            return debug_assert!(false, "room is made before the first key comes");
        };
        let number = usize::from(slot >> bits.shard_bits);
        let (word, bit) = (&bits.words[number / 64], 1 << (number % 64));
        // The holder of the shard alone writes.
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

/// What is published of the tags of a shard's keys.
#[derive(Debug, Default)]
pub struct PublishedTags {
    /// Tags that were invalidated while keys of this shard had them.
    pub invalidated: Counter,
    /// Keys deleted because a tag was invalidated.
    pub keys_invalidated: Counter,
}

/// What is published of the leases of a shard.
#[derive(Debug, Default)]
pub struct PublishedLeases {
    /// Leases that were given.
    pub given: Counter,
    /// Leases that are in force now.
    pub in_force: Counter,
    /// Clients that wait for a key to be loaded.
    pub waiting: Counter,
    /// Leases that ended with a value.
    pub filled: Counter,
    /// Leases that were given up.
    pub dropped: Counter,
    /// Leases whose time was over.
    pub void_by_time: Counter,
    /// Leases that ended as their key changed.
    pub void_by_change: Counter,
    /// Values that LFILL did not store: no lease of the key had the token, or a tag was invalidated meanwhile.
    pub fills_refused: Counter,
    /// Values that were answered past their fresh time.
    pub stale_served: Counter,
}

/// What a shard counted of locks.
#[derive(Debug, Default)]
pub struct PublishedLocks {
    /// Locks that an owner got.
    pub taken: Counter,
    /// Locks that an owner got who had waited for them.
    pub handed_over: Counter,
    /// Times that an owner took a lock which it had.
    pub retaken: Counter,
    /// Locks that their owner released.
    pub released: Counter,
}

/// What a shard counted of rates and of queues of what is due.
#[derive(Debug, Default)]
pub struct PublishedRates {
    /// Requests that CL.THROTTLE let through.
    pub let_through: Counter,
    /// Requests that it did not.
    pub limited: Counter,
    /// Members that were taken out as they were due.
    pub due_taken: Counter,
}

/// What a shard takes and what it may take, side by side on one line: they are compared whenever it may have grown.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Account {
    used: AtomicI64,
    /// The shard's part of a limit, see [`super::evict::budget`]. Others may lower and raise it.
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
    /// Charges bytes, or takes them back, when negative.
    pub(super) fn add_used(&self, bytes: i64) {
        self.used.store(self.used.load(Relaxed) + bytes, Relaxed);
    }

    #[inline]
    pub(super) fn used_bytes(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// What may be taken; `i64::MAX` while there is no limit.
    #[inline]
    pub(super) fn granted(&self) -> &AtomicI64 {
        &self.granted
    }

    /// Bytes taken beyond what was granted; negative while there is room.
    #[inline]
    pub(super) fn debt_bytes(&self) -> i64 {
        self.used_bytes() - self.granted.load(Relaxed)
    }
}

/// What a shard counted in one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbCounts {
    /// Look-ups by reading commands that found the key.
    pub hits: u64,
    /// Look-ups by reading commands that did not.
    pub misses: u64,
    /// Keys deleted because their time had come.
    pub expired: u64,
    /// Keys deleted to make room.
    pub evicted: u64,
}

impl DbCounts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: DbCounts) -> DbCounts {
        DbCounts {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }

    /// What was counted since then.
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

/// See the module. What nearly every command reads or writes stands in the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Published {
    /// Look-ups in the first database: most clients use it alone.
    first_look_ups: LookUps,
    account: Account,
    /// Commands run on this shard.
    pub commands: Counter,
    /// Changes since the start.
    pub dirty: Counter,
    /// When a key of this shard was used last, in Unix milliseconds.
    pub used_at_ms: Counter,
    /// Keys whose mark is below this are followed for the curve; none, when it is zero.
    followed_below: AtomicU32,
    doomed: AtomicBool,
    ordered: AtomicBool,
    /// Whether the configuration wants the curve.
    curve_wanted: AtomicBool,
    sharing: AtomicBool,
    /// One entry per database.
    pub dbs: Box<[PublishedDb]>,
    /// Look-ups by how much memory they need; see [`basalt_core::structures::reuse_distance`].
    pub curve: Curve,
    /// Fields of hashes deleted because their time had come.
    pub expired_fields: Counter,
    /// Collections freed after the token was let go.
    pub lazyfreed: Counter,
    /// Times that all databases were flushed, counted in one shard each.
    pub flushes: Counter,
    /// How often a database of this shard was emptied.
    pub emptied: Counter,
    /// Evicted keys that went out of the queue of new ones.
    pub evicted_small: Counter,
    /// Evicted keys that the hand came by.
    pub evicted_main: Counter,
    /// Keys that were used while they stood in that queue, and so came to the main part.
    pub promoted: Counter,
    /// Keys that came again soon after they went.
    pub ghost_hits: Counter,
    /// Keys that somebody waits for.
    pub waited_keys: Counter,
    /// Keys that somebody waits for who also wants to know when the key goes.
    pub waited_keys_when_gone: Counter,
    /// Who loads missing keys.
    pub leases: PublishedLeases,
    /// Locks.
    pub locks: PublishedLocks,
    /// Rates, and what is due.
    pub rates: PublishedRates,
    /// What became of tags.
    pub tags: PublishedTags,
    /// Bytes of held locks of all shards that share a budget.
    held: OnceLock<Arc<Held>>,
    /// Keys that somebody watches.
    pub watched_keys: Counter,
    /// No armed deadline lies before this time (Unix ms); `u64::MAX` when none is armed.
    pub next_deadline_ms: Counter,
    /// How late keys were deleted, by bucket of [`LAG_BOUNDS_MS`].
    pub expiry_lag: [Counter; LAG_BOUNDS_MS.len() + 1],
    /// Sum of all lags, in milliseconds.
    pub expiry_lag_sum_ms: Counter,
    /// The longest lag, in milliseconds.
    pub expiry_lag_max_ms: Counter,
}

impl Published {
    /// All zeroes.
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

    /// Look-ups by commands that read, in one database.
    #[inline]
    pub fn look_ups(&self, db: usize) -> &LookUps {
        match db {
            0 => &self.first_look_ups,
            db => &self.dbs[db].look_ups,
        }
    }

    /// What was counted in one database.
    pub fn counts(&self, db: usize) -> DbCounts {
        let (look_ups, of_db) = (self.look_ups(db), &self.dbs[db]);
        DbCounts {
            hits: look_ups.hits.get(),
            misses: look_ups.misses.get(),
            expired: of_db.expired.get(),
            evicted: of_db.evicted.get(),
        }
    }

    /// Goes back to what was counted in a database.
    pub(super) fn recount(&self, db: usize, counts: DbCounts) {
        let (look_ups, of_db) = (self.look_ups(db), &self.dbs[db]);
        look_ups.hits.set(counts.hits);
        look_ups.misses.set(counts.misses);
        of_db.expired.set(counts.expired);
        of_db.evicted.set(counts.evicted);
    }

    /// What was counted in all databases together.
    pub fn all_counts(&self) -> DbCounts {
        let all = (0..self.dbs.len()).map(|db| self.counts(db));
        all.fold(DbCounts::default(), |sum, of_db| sum.plus(of_db))
    }

    /// Charges bytes to the shard (or takes them back, when negative).
    pub fn add_used(&self, bytes: i64) {
        // Most changes fit where the old value was: no need to dirty the line then.
        if bytes != 0 {
            self.account.add_used(bytes);
        }
    }

    /// Bytes charged to the shard.
    #[inline]
    pub fn used_bytes(&self) -> i64 {
        self.account.used_bytes()
    }

    /// What it takes and may take in all, or of the share of one database.
    pub(super) fn account(&self, whose: Option<usize>) -> &Account {
        match whose {
            None => &self.account,
            Some(db) => &self.dbs[db].account,
        }
    }

    /// Whether there is a limit to what the shard may take.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.account.granted().load(Relaxed) != i64::MAX
    }

    /// Bytes that the shard takes beyond what it was granted; negative while it has room.
    #[inline]
    pub fn debt_bytes(&self) -> i64 {
        self.account.debt_bytes()
    }

    /// Whether it takes more than was granted, in all or of the share of a database.
    #[inline]
    pub fn owes(&self) -> bool {
        self.debt_bytes() > 0 || (self.is_sharing() && self.owes_to_share())
    }

    #[cold]
    fn owes_to_share(&self) -> bool {
        self.dbs.iter().any(|db| db.debt_bytes() > 0)
    }

    /// Keys of all databases, or of one, that may be evicted: all but held locks, or those with a deadline.
    pub(super) fn evictable(&self, whose: Option<usize>, volatile_only: bool) -> u64 {
        let of = |db: &PublishedDb| {
            let keys = match volatile_only {
                true => db.volatile_keys.get(),
                false => db.keys.get(),
            };
            keys.saturating_sub(db.held_keys.get())
        };
        match whose {
            None => self.dbs.iter().map(of).sum(),
            Some(db) => of(&self.dbs[db]),
        }
    }

    /// Adds the bytes of held locks to the total of all shards, now and at each change.
    pub(super) fn join_held(&self, held: &Arc<Held>) {
        let own = self.dbs.iter().map(|db| db.held_bytes.get()).sum();
        if self.held.set(Arc::clone(held)).is_ok() {
            held.change(0, own);
        }
    }

    /// Locks of a database that are held, and the bytes that they take.
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

    /// Whether the curve follows the key with this hash.
    #[inline]
    pub fn follows(&self, hash: u64) -> bool {
        reuse_distance::mark(hash) < self.followed_below.load(Relaxed)
    }

    /// Whether it may follow a key, of whose hash only the second lowest byte is known.
    #[inline]
    pub(super) fn may_follow(&self, hash_byte: u8) -> bool {
        u32::from(hash_byte) << 24 < self.followed_below.load(Relaxed)
    }

    pub(super) fn set_followed_below(&self, below: u32) {
        self.followed_below.store(below, Relaxed);
    }

    /// Whether the curve is kept.
    pub fn keeps_curve(&self) -> bool {
        self.followed_below.load(Relaxed) != 0
    }

    /// Whether the curve is to be kept: the shard's next holder sees to it.
    pub fn want_curve(&self, wanted: bool) {
        self.curve_wanted.store(wanted, Relaxed);
    }

    /// Whether somebody has to begin to keep the curve, or to end it: [`Engine::switch_curve`].
    ///
    /// [`Engine::switch_curve`]: super::Engine::switch_curve
    pub fn has_curve_to_switch(&self) -> bool {
        self.curve_wanted.load(Relaxed) != self.keeps_curve()
    }

    /// Whether flushed data waits to be freed.
    pub fn has_doomed(&self) -> bool {
        self.doomed.load(Relaxed)
    }

    pub(super) fn set_doomed(&self, doomed: bool) {
        self.doomed.store(doomed, Relaxed);
    }

    /// Whether the shard remembers in which order keys came.
    pub fn is_ordered(&self) -> bool {
        self.ordered.load(Relaxed)
    }

    pub(super) fn set_ordered(&self, ordered: bool) {
        self.ordered.store(ordered, Relaxed);
    }

    /// Whether any database has a share of memory.
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
        db.clear_largest();
        db.set_sizes(None);
        db.slots_in_use.clear();
    }

    /// Whether a slot of this shard has keys, in any database. Known where slots are kept.
    pub fn has_keys_in_slot(&self, slot: u16) -> bool {
        self.dbs.iter().any(|db| db.slots_in_use.contains(slot))
    }

    /// Records how late a key was deleted.
    pub fn note_lag(&self, lag_ms: u64) {
        let bucket = LAG_BOUNDS_MS.partition_point(|bound| *bound < lag_ms);
        self.expiry_lag[bucket].add(1);
        self.expiry_lag_sum_ms.add(lag_ms);
        self.expiry_lag_max_ms
            .set(lag_ms.max(self.expiry_lag_max_ms.get()));
    }
}
