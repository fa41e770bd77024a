//! Changes made by commands: the single source for persistence, replication, notifications, tracking and waiters.
//!
//! Every effect carries a Lamport stamp, one more than the larger of the shard's and the connection's, so that
//! streams of several shards can be merged in an order that preserves the order of each client's commands.

mod logging;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;

use super::Key;
use super::record::{Audience, Log, Records};
use super::tracking::{Forgotten, InvalidatedKey, Invalidations, Tracked, TrackedCount, Written};
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;

/// Maximum number of tracked keys that one read of a tracking connection drops when too many keys are tracked.
const LAPSED_PER_READ: usize = 16;

/// A change of a key, as keyspace notifications name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Notification class, as in `notify-keyspace-events`.
    pub class: u8,
    /// The event's name, as in keyspace notifications.
    pub name: &'static str,
}

impl Event {
    /// Creates an event of a class.
    pub const fn new(class: u8, name: &'static str) -> Event {
        Event { class, name }
    }

    /// Creates a generic event (class `g`).
    pub const fn generic(name: &'static str) -> Event {
        Event::new(b'g', name)
    }

    /// Creates a string event (class `$`).
    pub const fn string(name: &'static str) -> Event {
        Event::new(b'$', name)
    }

    /// Event of a key that was looked up and does not exist.
    pub const MISS: Event = Event::new(b'm', "keymiss");
    /// Event of a key whose value is replaced as a whole.
    pub const OVERWRITTEN: Event = Event::new(b'o', "overwritten");
    /// Event of a key whose type has changed.
    pub const TYPE_CHANGED: Event = Event::new(b'c', "type_changed");
    /// Event of a key that did not exist before.
    pub const NEW: Event = Event::new(b'n', "new");
    /// A key deleted because it expired.
    pub const EXPIRED: Event = Event::new(b'x', "expired");
    /// Hash fields deleted because they expired.
    pub const HEXPIRED: Event = Event::new(b'h', "hexpired");
    /// Set members deleted because they expired.
    pub const SEXPIRED: Event = Event::new(b's', "sexpired");
    /// A key deleted by eviction.
    pub const EVICTED: Event = Event::new(b'e', "evicted");
    /// Event of a key that was deleted.
    pub const DEL: Event = Event::generic("del");
}

/// One change of a key, as recorded for notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Lamport stamp: the position in the order over all shards.
    pub stamp: u64,
    /// Database of the key.
    pub db: usize,
    /// Name of the key.
    pub key: Box<[u8]>,
    /// The kind of change.
    pub event: Event,
    /// The affected elements (fields or members), for events that report them.
    pub elements: Vec<Box<[u8]>>,
}

/// The classes of events with subscribers, and whether commands are logged; read by all shards, rarely written.
#[derive(Debug, Default)]
pub struct Interest(AtomicU64);

impl Interest {
    /// Returns the bit of a class, given by its letter.
    pub const fn bit(class: u8) -> u64 {
        match class {
            b'$' => 1,
            letter => 2 << (letter.wrapping_sub(b'a') & 31),
        }
    }

    /// Sets the wanted classes, given as bits.
    pub fn set(&self, bits: u64) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |old| {
            Some(old & !Interest::CLASSES | bits & Interest::CLASSES)
        });
    }

    /// The bits of classes, which are letters.
    const CLASSES: u64 = (1 << 27) - 1;

    /// Flag besides the event classes: every written key is wanted (CLIENT TRACKING BCAST).
    const ALL_KEYS: u64 = 1 << 31;

    /// The append-only file reads the log of commands.
    const LOGGING: u64 = 1 << 30;

    /// Replicas, or the backlog kept for them, read the log of commands.
    const REPLICATING: u64 = 1 << 29;

    /// Flag besides the event classes: the changed fields of hashes are wanted.
    const ELEMENTS: u64 = 1 << 33;

    /// Slot migrations to other nodes read the log of commands.
    const MOVING: u64 = 1 << 32;

    /// Keys that expire are logged as UNLINK.
    const UNLINKS_EXPIRED: u64 = 1 << 28;

    /// Keys that are evicted are logged as UNLINK.
    const UNLINKS_EVICTED: u64 = 1 << 27;

    fn put(&self, bit: u64, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(bit, Relaxed),
            false => self.0.fetch_and(!bit, Relaxed),
        };
    }

    #[inline]
    fn has(&self, bit: u64) -> bool {
        self.0.load(Relaxed) & bit != 0
    }

    /// Sets whether an audience (append-only file, replicas, slot migrations) reads the log of commands. Without
    /// readers, logging costs nothing.
    pub fn set_listening(&self, audience: Audience, is_on: bool) {
        if audience.any(Audience::FILE) {
            self.put(Interest::LOGGING, is_on);
        }
        if audience.any(Audience::REPLICAS) {
            self.put(Interest::REPLICATING, is_on);
        }
        if audience.any(Audience::MOVES) {
            self.put(Interest::MOVING, is_on);
        }
    }

    /// True if anything reads the log of commands.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.has(Interest::LOGGING | Interest::REPLICATING | Interest::MOVING)
    }

    /// True if the append-only file reads the log.
    pub fn is_filing(&self) -> bool {
        self.has(Interest::LOGGING)
    }

    /// True if replicas, or the backlog kept for them, read the log; records meant only for them are logged then.
    pub fn is_replicating(&self) -> bool {
        self.has(Interest::REPLICATING)
    }

    /// Sets whether expired keys and evicted keys are logged as UNLINK instead of DEL.
    pub fn set_unlinking(&self, expired: bool, evicted: bool) {
        self.put(Interest::UNLINKS_EXPIRED, expired);
        self.put(Interest::UNLINKS_EVICTED, evicted);
    }

    /// Returns the command (DEL or UNLINK) that is logged when a key expires.
    pub fn deletion_of_expired(&self) -> &'static [u8] {
        match self.has(Interest::UNLINKS_EXPIRED) {
            true => b"UNLINK",
            false => b"DEL",
        }
    }

    /// Returns the command (DEL or UNLINK) that is logged when a key is evicted.
    pub fn deletion_of_evicted(&self) -> &'static [u8] {
        match self.has(Interest::UNLINKS_EVICTED) {
            true => b"UNLINK",
            false => b"DEL",
        }
    }

    /// Sets whether every written key is wanted (CLIENT TRACKING BCAST).
    pub fn set_all_keys(&self, wanted: bool) {
        self.put(Interest::ALL_KEYS, wanted);
    }

    /// True if every written key is wanted.
    pub fn wants_all_keys(&self) -> bool {
        self.has(Interest::ALL_KEYS)
    }

    /// Sets whether the changed fields of hashes are wanted.
    pub fn set_elements(&self, wanted: bool) {
        self.put(Interest::ELEMENTS, wanted);
    }

    /// True if the changed fields of hashes are wanted.
    #[inline]
    pub fn wants_elements(&self) -> bool {
        self.has(Interest::ELEMENTS)
    }

    /// True if any event class is wanted.
    #[inline]
    fn is_any(&self) -> bool {
        self.has(Interest::ALL_KEYS | Interest::CLASSES)
    }

    /// True if events of replaced values are wanted.
    #[inline]
    pub fn wants_replacements(&self) -> bool {
        self.has(Interest::bit(Event::OVERWRITTEN.class) | Interest::bit(Event::TYPE_CHANGED.class))
    }

    /// True if a class is wanted.
    #[inline]
    pub fn wants(&self, class: u8) -> bool {
        let bits = self.0.load(Relaxed);
        bits != 0 && bits & Interest::bit(class) != 0
    }
}

/// A receiver of effects: puts them into one order for all shards and delivers them later.
pub trait Follower: Send + Sync {
    /// Appends the effects of one command or transaction at the end of the order over all shards, while all its
    /// shards are locked. Returns the position after them.
    fn append(&self, news: Box<News>) -> u64;

    /// Delivers what was appended and not yet delivered, or leaves it to a thread that is delivering now. No shard
    /// is locked.
    fn deliver(&self);
}

/// A message that a transaction or a script published between its changes.
pub struct Publication {
    /// Stamp of the last effect before the message.
    pub stamp: u64,
    /// The message itself, opaque to all but the follower.
    pub message: Arc<dyn Any + Send + Sync>,
}

/// The effects of one command, one transaction or script, or one slice of expiry on one or several shards, as far as
/// they are wanted.
#[derive(Default)]
pub struct News {
    /// The effects, in order; usually one.
    pub effects: SmallVec<[Effect; 1]>,
    /// The messages published between the effects, in order.
    pub publications: Vec<Publication>,
    /// Invalidations for clients with client-side caching.
    pub invalidations: Invalidations,
    /// The position in the log of commands after all these effects.
    pub log_seen: u64,
}

/// A point in the changes of a shard, to which they can be rolled back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    dirty: u64,
    by_clock: u64,
    recorded: usize,
    logged: usize,
}

/// The fields that nearly every command reads or writes, on one cache line: a core that takes a shard from another
/// core waits for each line that the other has written.
#[derive(Default)]
#[repr(C, align(64))]
struct Hot {
    stamp: u64,
    /// Id of the connection whose command runs, see [`Effects::begin`].
    client: u64,
    /// The position in the follower's order after this shard's latest entry.
    position: u64,
    /// The position in the log of commands after this shard's latest command.
    log_position: u64,
    dirty: u64,
    by_clock: u64,
    only_reads: bool,
    recording: bool,
    /// True if each change must be examined regardless of interest: effects are recorded, or keys are tracked.
    is_attentive: bool,
    /// True if there are effects to append for the follower.
    has_news: bool,
    /// True if there are command records to append to the log.
    has_records: bool,
    /// True if one of these records is of a command, not of a key that expired or was evicted.
    has_writes: bool,
}

/// The recorded changes of one shard.
#[derive(Default)]
#[repr(C)]
pub struct Effects {
    hot: Hot,
    log: Vec<Effect>,
    invalidations: Invalidations,
    tracked: Tracked,
    interest: Arc<Interest>,
    follower: Option<Arc<dyn Follower>>,
    /// Records of commands that were not yet appended to the log.
    records: Records,
    commands_log: Option<Arc<dyn Log>>,
}

impl Effects {
    /// Returns the stamp of the last effect, or a larger one that a reading connection has seen elsewhere.
    pub fn stamp(&self) -> u64 {
        self.hot.stamp
    }

    /// Raises the stamp to at least the largest that a connection or another shard has seen.
    pub fn raise(&mut self, stamp: u64) {
        self.hot.stamp = self.hot.stamp.max(stamp);
    }

    /// Begins a command of a connection that has seen all effects up to `stamp`; `only_reads` tells that the
    /// command changes nothing.
    #[inline]
    pub fn begin(&mut self, client: u64, stamp: u64, only_reads: bool) {
        self.raise(stamp);
        self.hot.client = client;
        self.hot.only_reads = only_reads;
    }

    /// Returns the id of the connection whose command runs.
    pub fn client(&self) -> u64 {
        self.hot.client
    }

    /// True if the current command changes nothing.
    pub fn only_reads(&self) -> bool {
        self.hot.only_reads
    }

    /// Returns the number of changes so far.
    pub fn dirty(&self) -> u64 {
        self.hot.dirty
    }

    /// Sets the follower of effects and the `Interest` in which the follower registers what it wants.
    pub fn set_follower(&mut self, interest: Arc<Interest>, follower: Arc<dyn Follower>) {
        self.interest = interest;
        self.follower = Some(follower);
    }

    /// Sets the log that records of commands are appended to. Whether any are written depends on
    /// [`Interest::set_listening`].
    pub fn set_log(&mut self, log: Arc<dyn Log>) {
        self.commands_log = Some(log);
    }

    /// True if commands are logged.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.interest.is_logging()
    }

    /// Returns which effects are wanted.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// True if there is something to append: effects or command records.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.hot.has_news | self.hot.has_records
    }

    /// Returns how many of the changes were caused by expiry instead of a command.
    pub fn by_clock(&self) -> u64 {
        self.hot.by_clock
    }

    /// Records a change made by expiry. It is attributed to no client, even if a command found the expired key.
    pub fn expired(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.by_clock += 1;
        let client = std::mem::take(&mut self.hot.client);
        self.wrote(db, key, event);
        self.hot.client = client;
    }

    /// Records that a key is gone from this server without having been deleted by a client: its slot has moved to
    /// another server. Clients that cache it are notified. It raises no event, as in Redis: for its clients the key
    /// still exists.
    pub(super) fn lost(&mut self, db: usize, key: &[u8]) {
        self.hot.by_clock += 1;
        self.hot.dirty += 1;
        self.hot.stamp += 1;
        if self.hot.is_attentive || self.interest.is_any() {
            let client = std::mem::take(&mut self.hot.client);
            self.void(db, key);
            self.hot.client = client;
        }
    }

    /// Logs that a key is gone from this server, see [`Effects::lost`].
    pub(super) fn log_lost(&mut self, db: usize, key: &[u8], unlinks: bool) {
        if self.is_logging() {
            let name: &[u8] = match unlinks {
                true => b"UNLINK",
                false => b"DEL",
            };
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Records that a key changed, with the event to publish.
    #[inline]
    pub fn wrote(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.dirty += 1;
        self.followed(db, key, event);
    }

    /// Records an event that follows from a change already counted, such as the deletion of a collection that a
    /// change emptied.
    #[inline]
    pub fn followed(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.stamp += 1;
        if self.hot.is_attentive || self.interest.is_any() {
            self.heed(db, key, event);
        }
    }

    /// Records a change to a key's metadata only, such as the read state of a stream's groups. The data stay the same,
    /// so clients that cache the key are not notified.
    pub fn wrote_metadata(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.dirty += 1;
        self.hot.stamp += 1;
        if self.hot.recording || self.interest.wants(event.class) {
            self.record(db, key, event);
        }
    }

    /// Passes a change to the recorder, the follower and client tracking, as far as they want it.
    #[cold]
    fn heed(&mut self, db: usize, key: &[u8], event: Event) {
        if self.hot.recording || self.interest.wants(event.class) {
            self.record(db, key, event);
        }
        self.void(db, key);
    }

    /// Notifies clients that cache a key that it has changed.
    fn void(&mut self, db: usize, key: &[u8]) {
        if let Some(invalidated) = self.tracked.take(key, self.hot.client) {
            self.invalidate(invalidated);
        }
        if self.interest.wants_all_keys() {
            let (key, by) = (key.into(), self.hot.client);
            self.invalidations.written.push(Written { key, db, by });
            self.note_news();
        }
    }

    fn invalidate(&mut self, mut invalidated: InvalidatedKey) {
        invalidated.stamp = self.hot.stamp;
        self.invalidations.keys.push(invalidated);
        self.note_news();
    }

    #[cold]
    fn note_news(&mut self) {
        self.hot.has_news = self.follower.is_some();
        self.hot.is_attentive = self.hot.recording || !self.tracked.is_empty();
    }

    /// Records an event that is not a change of its own but may be wanted: a miss, a new key.
    #[inline]
    pub fn noticed(&mut self, db: usize, key: &[u8], event: Event) {
        if self.interest.wants(event.class) {
            // The stamp orders the event among one command's effects on several shards.
            self.hot.stamp += 1;
            self.record(db, key, event);
        }
    }

    /// Records which elements of a key were affected, which is not a change of its own.
    #[cold]
    #[inline(never)]
    pub fn noticed_elements<N: AsRef<[u8]>>(
        &mut self,
        db: usize,
        key: &[u8],
        event: Event,
        names: impl IntoIterator<Item = N>,
    ) {
        let names = names.into_iter();
        let names: Vec<Box<[u8]>> = names.map(|name| name.as_ref().into()).collect();
        if !names.is_empty() {
            self.hot.stamp += 1;
            self.record_of(db, key, event, names);
        }
    }

    #[cold]
    fn record(&mut self, db: usize, key: &[u8], event: Event) {
        self.record_of(db, key, event, Vec::new());
    }

    fn record_of(&mut self, db: usize, key: &[u8], event: Event, elements: Vec<Box<[u8]>>) {
        self.log.push(Effect {
            stamp: self.hot.stamp,
            db,
            key: key.into(),
            event,
            elements,
        });
        self.note_news();
    }

    /// Records that a connection with client-side caching read a key, and drops other keys if all shards together
    /// track more than `keys_max` (0: any number).
    #[cold]
    pub fn track(
        &mut self,
        key: &Key<'_>,
        client: u64,
        seed: HashSeed,
        keys_max: u64,
        random: &mut Random,
    ) {
        if let Some(invalidated) = self.tracked.add(key, client, seed) {
            self.invalidate(invalidated);
        }
        self.hot.is_attentive = true;
        if self.limit_tracked(keys_max, LAPSED_PER_READ, random)
            && self.tracked.count().exceeds_bytes()
            // Dropping other keys did not free enough bytes for a name as long as this one.
            && let Some(invalidated) = self.tracked.take(key.bytes, 0)
        {
            self.invalidate(invalidated);
        }
    }

    /// Drops at most `budget` tracked keys if all shards together track more than `keys_max` (0: any number), or
    /// more bytes than allowed. Returns true if there are still too many.
    pub fn limit_tracked(&mut self, keys_max: u64, budget: usize, random: &mut Random) -> bool {
        for _ in 0..budget {
            if !self.tracked.count().exceeds(keys_max) {
                return false;
            }
            let Some(invalidated) = self.tracked.take_random(&mut || random.next_u64()) else {
                return false;
            };
            self.invalidate(invalidated);
        }
        !self.tracked.is_empty() && self.tracked.count().exceeds(keys_max)
    }

    /// Invalidates everything that clients may have cached. Returns the tracked keys, as there may be much to free.
    pub fn void_all(&mut self) -> Option<Forgotten> {
        let forgotten = self.tracked.take_all();
        self.invalidations.all = true;
        self.note_news();
        forgotten
    }

    /// Sets the counter of tracked keys that all shards share.
    pub fn count_tracked(&mut self, count: Arc<TrackedCount>) {
        self.tracked.set_count(count);
    }

    /// Counts `count` changes that belong to no single key (FLUSHALL, SWAPDB).
    pub fn changed(&mut self, count: u64) {
        self.hot.stamp += 1;
        self.hot.dirty += count;
    }

    /// Starts or stops recording all effects for [`Effects::take`].
    pub fn set_recording(&mut self, recording: bool) {
        self.hot.recording = recording;
        self.hot.is_attentive = recording || !self.tracked.is_empty();
        if !recording {
            self.log = Vec::new();
        }
    }

    /// Returns the effects recorded since the last call.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.log)
    }

    /// Returns the current position in the changes.
    pub fn mark(&self) -> Mark {
        Mark {
            dirty: self.hot.dirty,
            by_clock: self.hot.by_clock,
            recorded: self.log.len(),
            logged: self.records.len(),
        }
    }

    /// Discards the records of changes since `mark`, which were undone. The stamp stays, as other connections or
    /// shards may have seen it.
    pub fn back_to(&mut self, mark: Mark) {
        self.hot.dirty = mark.dirty;
        self.hot.by_clock = mark.by_clock;
        self.log.truncate(mark.recorded);
        self.records.truncate(mark.logged);
        self.hot.has_records = !self.records.is_empty();
        // Which of the records are left is not known.
        self.hot.has_writes = self.hot.has_records;
    }

    /// Returns the number of recorded effects that were not yet taken.
    #[inline]
    pub fn recorded(&self) -> usize {
        self.log.len()
    }

    /// Discards recorded misses after the first `since` effects: the commands that caused them will run again.
    #[inline]
    pub fn forget_misses(&mut self, since: usize) {
        if self.log.len() > since {
            self.forget_recorded_misses(since);
        }
    }

    #[cold]
    fn forget_recorded_misses(&mut self, since: usize) {
        let mut at = 0;
        self.log.retain(|effect| {
            at += 1;
            at <= since || effect.event.name != Event::MISS.name
        });
    }

    /// True if there are effects to append for the follower.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.hot.has_news
    }

    /// Returns the follower's position after all changes that are visible in this shard.
    #[inline]
    pub fn position(&self) -> u64 {
        self.hot.position
    }

    /// Moves everything wanted by the follower into `news`.
    fn hand_out(&mut self, news: &mut News) {
        self.hot.has_news = false;
        if !self.invalidations.is_empty() {
            news.invalidations.append(&mut self.invalidations);
        }
        match news.effects.is_empty() && self.log.len() > 1 {
            true => news.effects = SmallVec::from_vec(std::mem::take(&mut self.log)),
            false => news.effects.extend(self.log.drain(..)),
        }
    }
}

/// Appends the effects of shards that are locked together, merged by stamp, with the messages published between them.
/// Returns the follower if anything was appended for it. Without a follower the messages stay in `publications`.
pub fn append(
    all: &mut [&mut super::Engine],
    publications: &mut Vec<Publication>,
) -> Option<Arc<dyn Follower>> {
    let mut news = Box::<News>::default();
    let (mut follower, mut count) = (None, 0);
    for engine in all.iter_mut() {
        let effects = &mut engine.effects;
        if effects.has_news() || !publications.is_empty() && follower.is_none() {
            follower = follower.or_else(|| effects.follower.clone());
            effects.hand_out(&mut news);
            count += 1;
        }
    }
    let follower = follower?;
    news.publications.append(publications);
    if count > 1 {
        news.invalidations
            .keys
            .sort_by_key(|invalidated| invalidated.stamp);
        news.effects.sort_by_key(|effect| effect.stamp);
    }
    let positions = all.iter().map(|engine| engine.effects.log_position());
    news.log_seen = positions.fold(0, u64::max);
    let position = follower.append(news);
    for engine in all {
        engine.effects.hot.position = position;
    }
    Some(follower)
}
