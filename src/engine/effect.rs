//! What commands changed: the one place on which persistence, replication, notifications, tracking and waiters feed.
//!
//! Every effect carries a Lamport stamp: one more than the larger of the shard's and the connection's, so that
//! streams of several shards can be merged in an order that respects what each client did in order.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;

use super::Key;
use super::record::{Audience, Head, Log, Records};
use super::tracking::{Forgotten, InvalidatedKey, Invalidations, Tracked, TrackedCount, Written};
use basalt_core::base::hash::Seed;
use basalt_core::base::random::Random;
use basalt_core::structures::block::Content;

/// Keys that a read of a tracking connection forgets at most, when too many are remembered.
const LAPSED_PER_READ: usize = 16;

/// What happened to a key, named as keyspace notifications name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Notification class, as in `notify-keyspace-events`.
    pub class: u8,
    /// The event's name.
    pub name: &'static str,
}

impl Event {
    /// An event of a class.
    pub const fn new(class: u8, name: &'static str) -> Event {
        Event { class, name }
    }

    /// A generic event (class `g`).
    pub const fn generic(name: &'static str) -> Event {
        Event::new(b'g', name)
    }

    /// An event of strings (class `$`).
    pub const fn string(name: &'static str) -> Event {
        Event::new(b'$', name)
    }

    /// A key that was looked for and is not there.
    pub const MISS: Event = Event::new(b'm', "keymiss");
    /// A key of which the value is replaced as a whole.
    pub const OVERWRITTEN: Event = Event::new(b'o', "overwritten");
    /// A key that holds another type than before.
    pub const TYPE_CHANGED: Event = Event::new(b'c', "type_changed");
    /// A key that was not there before.
    pub const NEW: Event = Event::new(b'n', "new");
    /// A key deleted because its time had come.
    pub const EXPIRED: Event = Event::new(b'x', "expired");
    /// Fields of a hash deleted because their time had come.
    pub const HEXPIRED: Event = Event::new(b'h', "hexpired");
    /// Members of a set deleted because their time had come.
    pub const SEXPIRED: Event = Event::new(b's', "sexpired");
    /// A key deleted to make room.
    pub const EVICTED: Event = Event::new(b'e', "evicted");
    /// A key deleted.
    pub const DEL: Event = Event::generic("del");
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Order among all shards.
    pub stamp: u64,
    /// Database.
    pub db: usize,
    /// Key.
    pub key: Box<[u8]>,
    /// What happened.
    pub event: Event,
    /// The elements that it happened to, where they are what is told.
    pub elements: Vec<Box<[u8]>>,
}

/// The classes of events that anybody wants to hear of, and whether commands are logged; all shards read it, few ever
/// write it.
#[derive(Debug, Default)]
pub struct Interest(AtomicU64);

impl Interest {
    /// The bit of a class, by its letter.
    pub const fn bit(class: u8) -> u64 {
        match class {
            b'$' => 1,
            letter => 2 << (letter.wrapping_sub(b'a') & 31),
        }
    }

    /// Says what is wanted: the bits of classes.
    pub fn set(&self, bits: u64) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |old| {
            Some(old & !Interest::CLASSES | bits & Interest::CLASSES)
        });
    }

    /// Classes are letters.
    const CLASSES: u64 = (1 << 27) - 1;

    /// Beside the classes: somebody wants to hear of every key that is written.
    const ALL_KEYS: u64 = 1 << 31;

    /// The append-only file reads the log of commands.
    const LOGGING: u64 = 1 << 30;

    /// Replicas, or the backlog kept for them, read the log of commands.
    const REPLICATING: u64 = 1 << 29;

    /// Beside the classes: somebody wants to hear of the fields of hashes that change.
    const ELEMENTS: u64 = 1 << 33;

    /// Slots that move to other nodes read the log of commands.
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

    /// Says whether readers of an audience listen to the log of commands. Readers that listen to nothing leave no cost
    /// behind.
    pub fn set_listening(&self, audience: Audience, is_on: bool) {
        if audience.includes(Audience::FILE) {
            self.put(Interest::LOGGING, is_on);
        }
        if audience.includes(Audience::REPLICAS) {
            self.put(Interest::REPLICATING, is_on);
        }
        if audience.includes(Audience::MOVES) {
            self.put(Interest::MOVING, is_on);
        }
    }

    /// Whether anybody reads the log of commands.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.has(Interest::LOGGING | Interest::REPLICATING | Interest::MOVING)
    }

    /// Whether the append-only file reads the log.
    pub fn is_filing(&self) -> bool {
        self.has(Interest::LOGGING)
    }

    /// Whether replicas, or the backlog kept for them, read the log: what is meant for them alone is logged then.
    pub fn is_replicating(&self) -> bool {
        self.has(Interest::REPLICATING)
    }

    /// Says whether keys that expire, and keys that are evicted, are logged as UNLINK, else as DEL.
    pub fn set_unlinking(&self, expired: bool, evicted: bool) {
        self.put(Interest::UNLINKS_EXPIRED, expired);
        self.put(Interest::UNLINKS_EVICTED, evicted);
    }

    /// The command that deletes a key elsewhere whose time has come.
    pub fn deletion_of_expired(&self) -> &'static [u8] {
        match self.has(Interest::UNLINKS_EXPIRED) {
            true => b"UNLINK",
            false => b"DEL",
        }
    }

    /// The command that deletes a key elsewhere that was evicted.
    pub fn deletion_of_evicted(&self) -> &'static [u8] {
        match self.has(Interest::UNLINKS_EVICTED) {
            true => b"UNLINK",
            false => b"DEL",
        }
    }

    /// Says whether somebody wants to hear of every key that is written (CLIENT TRACKING BCAST).
    pub fn set_all_keys(&self, wanted: bool) {
        self.put(Interest::ALL_KEYS, wanted);
    }

    /// Whether somebody does.
    pub fn wants_all_keys(&self) -> bool {
        self.has(Interest::ALL_KEYS)
    }

    /// Says whether somebody wants to hear of the fields of hashes that change.
    pub fn set_elements(&self, wanted: bool) {
        self.put(Interest::ELEMENTS, wanted);
    }

    /// Whether somebody does.
    #[inline]
    pub fn wants_elements(&self) -> bool {
        self.has(Interest::ELEMENTS)
    }

    /// Whether anything is wanted at all of single changes.
    #[inline]
    fn is_any(&self) -> bool {
        self.has(Interest::ALL_KEYS | Interest::CLASSES)
    }

    /// Whether somebody wants to hear of values that are replaced.
    #[inline]
    pub fn wants_replacements(&self) -> bool {
        self.has(Interest::bit(Event::OVERWRITTEN.class) | Interest::bit(Event::TYPE_CHANGED.class))
    }

    /// Whether a class is wanted.
    #[inline]
    pub fn wants(&self, class: u8) -> bool {
        let bits = self.0.load(Relaxed);
        bits != 0 && bits & Interest::bit(class) != 0
    }
}

/// Hears of effects: puts what happened into one order for all shards, and tells it later.
pub trait Follower: Send + Sync {
    /// Draws the next place in that order for what one step did. All shards of the step are in hand. The position
    /// behind it.
    fn append(&self, news: Box<News>) -> u64;

    /// Tells what was appended and is not told yet, or leaves it to a thread that does so now. No shard is in hand.
    fn deliver(&self);
}

/// A message that a transaction or a script published between its changes.
pub struct Publication {
    /// Stamp of the last effect before it.
    pub stamp: u64,
    /// What only the follower understands.
    pub message: Arc<dyn Any + Send + Sync>,
}

/// What one command, one unit, or one slice of expiry did to one or several shards, as far as others want to hear of
/// it.
#[derive(Default)]
pub struct News {
    /// What happened, in order; mostly one.
    pub effects: SmallVec<[Effect; 1]>,
    /// The messages between the effects, in order.
    pub publications: Vec<Publication>,
    /// What clients with client-side caching are to drop.
    pub invalidations: Invalidations,
    /// The position in the log of commands behind all that this tells of.
    pub log_seen: u64,
}

/// A point in the changes of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    dirty: u64,
    by_clock: u64,
    recorded: usize,
    logged: usize,
}

/// What nearly every command reads or writes of its shard's changes, on one line of the cache: who takes a shard that
/// another core had waits for each line that the other wrote.
#[derive(Default)]
#[repr(C, align(64))]
struct Hot {
    stamp: u64,
    /// The connection whose command runs, see [`Effects::begin`].
    client: u64,
    /// The position behind what this shard appended last, among what the follower hears of.
    position: u64,
    /// The position behind what this shard appended last to the log of commands.
    log_position: u64,
    dirty: u64,
    by_clock: u64,
    only_reads: bool,
    recording: bool,
    /// A change is worth a look, whatever others are interested in: effects are recorded, or keys are tracked.
    is_attentive: bool,
    /// The follower is to be told something.
    has_news: bool,
    /// Something is to be logged.
    has_records: bool,
}

/// The changes of one shard.
#[derive(Default)]
#[repr(C)]
pub struct Effects {
    hot: Hot,
    log: Vec<Effect>,
    invalidations: Invalidations,
    tracked: Tracked,
    interest: Arc<Interest>,
    follower: Option<Arc<dyn Follower>>,
    /// What commands leave for the log that was not appended yet.
    records: Records,
    commands_log: Option<Arc<dyn Log>>,
}

impl Effects {
    /// The stamp of the last effect or of the last reader that knew more.
    pub fn stamp(&self) -> u64 {
        self.hot.stamp
    }

    /// Raises the stamp to what a connection or another shard has seen.
    pub fn raise(&mut self, stamp: u64) {
        self.hot.stamp = self.hot.stamp.max(stamp);
    }

    /// A command of a connection begins, which knows of all effects up to a stamp, and may change nothing or something.
    #[inline]
    pub fn begin(&mut self, client: u64, stamp: u64, only_reads: bool) {
        self.raise(stamp);
        self.hot.client = client;
        self.hot.only_reads = only_reads;
    }

    /// The connection whose command runs.
    pub fn client(&self) -> u64 {
        self.hot.client
    }

    /// Whether the command that runs changes nothing.
    pub fn only_reads(&self) -> bool {
        self.hot.only_reads
    }

    /// Changes so far.
    pub fn dirty(&self) -> u64 {
        self.hot.dirty
    }

    /// Says who hears of effects, and where it says which.
    pub fn set_follower(&mut self, interest: Arc<Interest>, follower: Arc<dyn Follower>) {
        self.interest = interest;
        self.follower = Some(follower);
    }

    /// Says where the records of commands go. Whether there are any is what [`Interest::set_listening`] says.
    pub fn set_log(&mut self, log: Arc<dyn Log>) {
        self.commands_log = Some(log);
    }

    /// Whether commands are logged.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.interest.is_logging()
    }

    /// What others are interested in.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Logs a command behind all that this shard knows of.
    pub fn log_command<'a>(
        &mut self,
        db: usize,
        audience: Audience,
        arguments: impl ExactSizeIterator<Item = Content<'a>>,
    ) {
        self.hot.stamp += 1;
        let stamp = self.hot.stamp;
        let head = Head {
            stamp,
            db,
            audience,
        };
        self.records.push(head, arguments);
        self.hot.has_records = true;
    }

    /// Logs that the time of a key had come.
    pub(super) fn log_expired(&mut self, db: usize, key: &[u8]) {
        if self.is_logging() {
            let name = self.interest.deletion_of_expired();
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Logs that a key was evicted.
    pub(super) fn log_evicted(&mut self, db: usize, key: &[u8]) {
        if self.is_logging() {
            let name = self.interest.deletion_of_evicted();
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Logs that the time of elements of a collection had come: the command that removes each.
    pub(super) fn log_expired_elements(
        &mut self,
        db: usize,
        removal: &[u8],
        key: &[u8],
        elements: &[Vec<u8>],
    ) {
        for element in elements {
            self.log_bytes(db, &[removal, key, element]);
        }
    }

    #[cold]
    fn log_bytes(&mut self, db: usize, arguments: &[&[u8]]) {
        let arguments = arguments.iter().map(|bytes| Content::from(*bytes));
        self.log_command(db, Audience::BOTH, arguments);
    }

    /// What is to be logged of this shard.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The records to be logged, to be taken, all of them.
    pub(super) fn records_mut(&mut self) -> &mut Records {
        self.hot.has_records = false;
        &mut self.records
    }

    /// Whether something is to be appended: news, or records.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.hot.has_news | self.hot.has_records
    }

    /// Appends what several shards leave together, where this one has a log. The log is borrowed: its count is
    /// written by all threads.
    pub(super) fn append_for_several(&self, records: &mut Records, is_atomic: bool) -> Option<u64> {
        let log = self.commands_log.as_ref()?;
        Some(log.append(records, is_atomic))
    }

    /// Appends what this shard alone leaves.
    pub(super) fn append_records(&mut self, is_unit: bool) -> Option<u64> {
        if !std::mem::take(&mut self.hot.has_records) {
            return None;
        }
        let is_atomic = is_unit && self.records.len() > 1;
        let position = self
            .commands_log
            .as_ref()
            .map(|log| log.append(&mut self.records, is_atomic));
        self.records.clear();
        self.hot.log_position = position.unwrap_or(self.hot.log_position);
        position
    }

    /// The position in the log behind all changes that are visible in this shard.
    #[inline]
    pub fn log_position(&self) -> u64 {
        self.hot.log_position
    }

    /// Notes that records of this shard, perhaps with others, lie before this position.
    pub fn note_log_position(&mut self, position: u64) {
        self.hot.log_position = self.hot.log_position.max(position);
    }

    /// How many of them no command asked for: something's time had come.
    pub fn by_clock(&self) -> u64 {
        self.hot.by_clock
    }

    /// Records a change that the clock made. It is no client's, even if a command came across it.
    pub fn expired(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.by_clock += 1;
        let client = std::mem::take(&mut self.hot.client);
        self.wrote(db, key, event);
        self.hot.client = client;
    }

    /// Records that a key is not here any more, though no client deleted it: its slot has gone to another server. Those
    /// who cache it are told. It is no event, as in Redis: to its clients the key still is.
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

    /// Logs that a key is not here any more, as [`Effects::lost`] has it.
    pub(super) fn log_lost(&mut self, db: usize, key: &[u8], unlinks: bool) {
        if self.is_logging() {
            let name: &[u8] = match unlinks {
                true => b"UNLINK",
                false => b"DEL",
            };
            self.log_bytes(db, &[name, key]);
        }
    }

    /// Records a change.
    #[inline]
    pub fn wrote(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.dirty += 1;
        self.followed(db, key, event);
    }

    /// Records what a change brought about, which is no change more: the end of a collection that it emptied.
    #[inline]
    pub fn followed(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.stamp += 1;
        if self.hot.is_attentive || self.interest.is_any() {
            self.heed(db, key, event);
        }
    }

    /// Records a change beside a key's data, which those who cache the key are not told.
    pub fn wrote_beside(&mut self, db: usize, key: &[u8], event: Event) {
        self.hot.dirty += 1;
        self.hot.stamp += 1;
        if self.hot.recording || self.interest.wants(event.class) {
            self.record(db, key, event);
        }
    }

    /// Hands a change to all who may want to know of it.
    #[cold]
    fn heed(&mut self, db: usize, key: &[u8], event: Event) {
        if self.hot.recording || self.interest.wants(event.class) {
            self.record(db, key, event);
        }
        self.void(db, key);
    }

    /// Tells those who cache a key that it has changed.
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

    /// Records what is no change of its own but may be asked for: a miss, a new key.
    #[inline]
    pub fn noticed(&mut self, db: usize, key: &[u8], event: Event) {
        if self.interest.wants(event.class) {
            // It takes its place in the order of one command's effects over several shards.
            self.hot.stamp += 1;
            self.record(db, key, event);
        }
    }

    /// Records to which elements of a key something happened, which is no change of its own.
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

    /// Remembers that a connection which caches read a key, and forgets others if all shards together remember more
    /// than so many (0: any number).
    #[cold]
    pub fn track(
        &mut self,
        key: &Key<'_>,
        client: u64,
        seed: Seed,
        keys_max: u64,
        random: &mut Random,
    ) {
        if let Some(invalidated) = self.tracked.add(key, client, seed) {
            self.invalidate(invalidated);
        }
        self.hot.is_attentive = true;
        if self.limit_tracked(keys_max, LAPSED_PER_READ, random)
            && self.tracked.count().exceeds_bytes()
            // Others did not make room for so long a name.
            && let Some(invalidated) = self.tracked.take(key.bytes, 0)
        {
            self.invalidate(invalidated);
        }
    }

    /// Forgets some keys that are tracked, at most `budget`, if all shards together remember more than so many (0: any
    /// number), or more bytes than they may; true if there are still more.
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

    /// Everything that anybody may have cached is void. What was remembered is handed out, as there may be much to
    /// free.
    pub fn void_all(&mut self) -> Option<Forgotten> {
        let forgotten = self.tracked.take_all();
        self.invalidations.all = true;
        self.note_news();
        forgotten
    }

    /// Says where the keys that all shards track are counted.
    pub fn count_tracked(&mut self, count: Arc<TrackedCount>) {
        self.tracked.set_count(count);
    }

    /// Counts changes that belong to no single key (FLUSHALL, SWAPDB).
    pub fn changed(&mut self, count: u64) {
        self.hot.stamp += 1;
        self.hot.dirty += count;
    }

    /// Starts or stops keeping all effects for [`Effects::take`].
    pub fn set_recording(&mut self, recording: bool) {
        self.hot.recording = recording;
        self.hot.is_attentive = recording || !self.tracked.is_empty();
        if !recording {
            self.log = Vec::new();
        }
    }

    /// Hands out what was recorded since the last call.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.log)
    }

    /// Where the changes stand.
    pub fn mark(&self) -> Mark {
        Mark {
            dirty: self.hot.dirty,
            by_clock: self.hot.by_clock,
            recorded: self.log.len(),
            logged: self.records.len(),
        }
    }

    /// Forgets what changed since, as it was undone. The stamp stays: others may have learnt it.
    pub fn back_to(&mut self, mark: Mark) {
        self.hot.dirty = mark.dirty;
        self.hot.by_clock = mark.by_clock;
        self.log.truncate(mark.recorded);
        self.records.truncate(mark.logged);
        self.hot.has_records = !self.records.is_empty();
    }

    /// How many effects are recorded that were not handed out yet.
    #[inline]
    pub fn recorded(&self) -> usize {
        self.log.len()
    }

    /// Forgets what look-ups did not find behind the first so many effects: the commands that made them will make them
    /// again.
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

    /// Whether the follower is to be told something.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.hot.has_news
    }

    /// The position behind all that the follower hears of changes that are visible in this shard.
    #[inline]
    pub fn position(&self) -> u64 {
        self.hot.position
    }

    /// Moves what the follower is to hear into `news`.
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

/// Appends what the follower is to hear of shards that are in hand together, merged by stamp, with the messages
/// between; the follower, if there was anything for it. Without a follower messages stay where they are.
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
