//! Loads stretches (consecutive records) of a snapshot into shards. A stretch is decoded while no shard is
//! locked; then its keys are inserted, one shard after the other.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use smallvec::SmallVec;

use crossbeam::channel::{self, Receiver, Sender, TrySendError};

use super::room::{self, TableReservation};
use super::{Due, LoadError, Loader, Rules};
use crate::persist::rdb::decode::{RawEntry, RdbRecordBatch};
use crate::persist::rdb::fault::Fault;
use crate::script::stack;
use crate::shard::Shards;
use crate::state::Service;
use crate::telemetry::log;
use basalt_commands::command::generic::dump;
use basalt_commands::command::generic::object::is_lfu;
use basalt_commands::config::Config;
use basalt_core::structures::entry::{DEADLINE_MAX, Entry};
use basalt_core::structures::table::prefetch_line;
use basalt_engine::marks::{Marks, TAG_BYTES_MAX, TAGS_MAX};
use basalt_engine::restored_access::Access;
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::{self, Limits, Malformed};
use basalt_engine::value::Object;
use basalt_engine::{Key, Now};

/// Maximum number of queued stretches per thread.
const WAITING_PER_THREAD: usize = 2;

/// Minimum number of keys per shard for which capacity is reserved: a smaller table hardly grows.
const ROOM_KEYS_MIN: usize = 256;

/// Number of keys, ahead of the one being inserted, whose table slots are prefetched.
const AHEAD: usize = 8;

/// Maximum number of keys left out for one reason that are logged individually.
const LEFT_OUT_TOLD_MAX: u64 = 10;

/// Counts of keys processed by a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadCounts {
    pub(super) keys: u64,
    pub(super) expired: u64,
    pub(super) empty: u64,
    /// Values of modules that do not exist here.
    pub(super) of_modules: u64,
}

/// The decoding threads. The reading thread also decodes stretches while their queue is full.
pub(super) struct Workers {
    placer: Arc<Placer>,
    queue: Option<Sender<RdbRecordBatch>>,
    waiting: Receiver<RdbRecordBatch>,
    threads: Vec<JoinHandle<(LoadCounts, Option<LoadError>)>>,
    own: (LoadCounts, Option<LoadError>),
    room: TableReservation,
}

impl Workers {
    /// Starts the decoding threads: one fewer than the loader's number, as the reading thread also decodes.
    pub(super) fn start(loader: &Loader, config: &Config, now: Now, rules: Rules) -> Workers {
        let (service, others) = (loader.service, loader.threads.saturating_sub(1));
        let limits = dump::limits(config, service.router.seed(), now);
        let placer = Arc::new(Placer {
            service,
            shards: Arc::clone(&loader.shards),
            limits,
            now,
            rules,
            by_frequency: is_lfu(config.maxmemory_policy),
            skips_modules: config.rdb_skip_unknown_modules,
            has_failed: AtomicBool::new(false),
            empty: AtomicU64::new(0),
            of_modules: AtomicU64::new(0),
        });
        let (sender, receiver) =
            channel::bounded::<RdbRecordBatch>(others * WAITING_PER_THREAD + 1);
        let mut threads = Vec::with_capacity(others);
        for number in 0..others {
            let (placer, receiver) = (Arc::clone(&placer), receiver.clone());
            let made = stack::spawn(format!("basalt-load-{number}"), move || {
                let mut done = (LoadCounts::default(), None);
                while let Ok(stretch) = receiver.recv() {
                    placer.place_noting(stretch, &mut done);
                }
                done
            });
            // If a thread cannot be started, loading only takes longer; the reason is logged.
            threads.extend(made.ok());
        }
        Workers {
            placer,
            queue: (!threads.is_empty()).then_some(sender),
            waiting: receiver,
            threads,
            own: (LoadCounts::default(), None),
            room: TableReservation::new(Arc::clone(&loader.shards)),
        }
    }

    /// Reserves capacity for `keys` keys in an empty database: tables that do not grow are filled faster. Does
    /// nothing for a few keys, which may fall into only some of the shards.
    pub(super) fn make_room(&mut self, db: usize, keys: usize) {
        let Placer { shards, now, .. } = &*self.placer;
        let each = keys.div_ceil(shards.len());
        if each < ROOM_KEYS_MIN {
            return;
        }
        // Mean plus three standard deviations: a bound that a random distribution of keys to shards hardly
        // exceeds.
        let most = each + 3 * each.isqrt();
        for shard in 0..shards.len() {
            self.room.reserve(shard as u16, db, most, *now);
        }
    }

    /// True if a thread has found an error, so that loading must end.
    pub(super) fn has_failed(&self) -> bool {
        self.placer.has_failed.load(Relaxed)
    }

    /// Queues a stretch for the decoding threads or, if their queue is full, decodes it on the calling thread.
    pub(super) fn hand_on(&mut self, stretch: RdbRecordBatch) {
        let left = match &self.queue {
            Some(queue) => match queue.try_send(stretch) {
                Ok(()) => return,
                Err(TrySendError::Full(stretch) | TrySendError::Disconnected(stretch)) => stretch,
            },
            None => stretch,
        };
        self.placer.place_noting(left, &mut self.own);
    }

    /// Decodes the stretches still queued, and waits for all threads. Returns the total counts, and the error
    /// that comes first in the snapshot.
    pub(super) fn end(self) -> (LoadCounts, Option<LoadError>) {
        drop(self.queue);
        let mut own = self.own;
        while let Ok(stretch) = self.waiting.recv() {
            self.placer.place_noting(stretch, &mut own);
        }
        let (mut tally, mut error) = own;
        for thread in self.threads {
            // Ignore a panic of the thread: a panic while a shard was locked has already ended the process.
            let (other, found) = thread.join().unwrap_or_default();
            tally.keys += other.keys;
            tally.expired += other.expired;
            tally.empty += other.empty;
            tally.of_modules += other.of_modules;
            error = first(error, found);
        }
        self.room.end();
        (tally, error)
    }
}

fn first(one: Option<LoadError>, other: Option<LoadError>) -> Option<LoadError> {
    [one, other]
        .into_iter()
        .flatten()
        .min_by_key(|error| error.offset)
}

/// Parses an auxiliary field about the key after it, see [`MARKS`](crate::persist::rdb::MARKS).
fn marks_in(field: &[u8]) -> Option<Marks<'_>> {
    let (stale_ms, mut rest) = field.split_first_chunk()?;
    let mut marks = Marks {
        stale_ms: u32::from_le_bytes(*stale_ms),
        tags: SmallVec::new(),
    };
    while let Some((len, behind)) = rest.split_first_chunk() {
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let tag = behind.get(..len).filter(|_| len <= TAG_BYTES_MAX)?;
        marks.tags.push(tag);
        rest = &behind[len..];
    }
    (rest.is_empty() && marks.tags.len() <= TAGS_MAX).then_some(marks)
}

/// Context for inserting stretches into shards.
struct Placer {
    service: &'static Service,
    shards: Arc<Shards>,
    limits: Limits,
    now: Now,
    rules: Rules,
    /// True if the eviction policy uses access counts, not the time of the last access.
    by_frequency: bool,
    /// True if values of modules that do not exist here are left out (`rdb-skip-unknown-modules`).
    skips_modules: bool,
    has_failed: AtomicBool,
    /// Number of empty collections found so far.
    empty: AtomicU64,
    /// Number of values of unknown modules left out so far.
    of_modules: AtomicU64,
}

/// A decoded key and its destination.
struct Decoded<'s> {
    key: Cow<'s, [u8]>,
    hash: u64,
    shard: u16,
    raw: &'s RawEntry,
    /// The entry; `None` after it was inserted into its shard.
    entry: Option<Entry<Object>>,
    /// Metadata that only this server has, serialized: how long the key counts as stale before it expires, and
    /// its tags.
    marks: Option<Cow<'s, [u8]>>,
}

/// A key of a snapshot as it is read.
enum Read<'s> {
    Value(Decoded<'s>),
    /// A collection without elements.
    Empty,
    /// A value of a module that does not exist here, which is left out.
    OfModule,
}

impl Placer {
    fn place_noting(&self, stretch: RdbRecordBatch, done: &mut (LoadCounts, Option<LoadError>)) {
        let (tally, error) = done;
        if let Err(found) = self.place(&stretch, tally) {
            self.has_failed.store(true, Relaxed);
            *error = first(error.take(), Some(found));
        }
    }

    fn place(&self, stretch: &RdbRecordBatch, tally: &mut LoadCounts) -> Result<(), LoadError> {
        let mut decoded = Vec::with_capacity(stretch.entries.len());
        for raw in &stretch.entries {
            let is_due = raw.deadline.is_some_and(|at_ms| at_ms <= self.now.unix_ms);
            if is_due && self.rules.due != Due::Loaded {
                tally.expired += 1;
                if self.rules.due == Due::LeftOut {
                    continue;
                }
            }
            let made = self.decode(stretch, raw).map_err(|fault| LoadError {
                offset: stretch.offset + raw.at as u64,
                fault,
            })?;
            match made {
                Read::Value(one) => decoded.push(one),
                Read::Empty => tally.empty += 1,
                Read::OfModule => tally.of_modules += 1,
            }
        }
        let (order, ends) = self.by_shard(&decoded);
        let starts = [0].into_iter().chain(ends.iter().copied());
        let groups: Vec<&[u32]> = starts
            .zip(&ends)
            .map(|(start, end)| &order[start..*end])
            .collect();
        for (shard, group) in groups.iter().enumerate() {
            if let Some(next) = groups.get(shard + 1) {
                self.prefetch_lines(next, &decoded);
            }
            if !group.is_empty() {
                self.put(shard as u16, group, &mut decoded, stretch.offset)?;
                tally.keys += group.len() as u64;
            }
        }
        Ok(())
    }

    /// Prefetches the cache lines of the tables in which the keys will be looked up.
    fn prefetch_lines(&self, group: &[u32], decoded: &[Decoded<'_>]) {
        for at in group {
            let one = &decoded[*at as usize];
            let published = &self.service.all_published[usize::from(one.shard)];
            if let Some(db) = published.dbs.get(one.raw.db) {
                prefetch_line(&db.directory, one.hash);
            }
        }
    }

    /// Decodes a key and its value.
    fn decode<'s>(
        &self,
        stretch: &'s RdbRecordBatch,
        raw: &'s RawEntry,
    ) -> Result<Read<'s>, Fault> {
        let bytes = &stretch.bytes;
        let malformed = |key: &[u8], error| stretch.fault(raw, key.to_vec(), error);
        let mut reader = Reader::new(&bytes[raw.at..raw.end], self.limits.string_bytes_max)
            .from(&stretch.origin);
        let rdb_type = reader.byte().map_err(|error| malformed(b"", error))?;
        let key = reader.string().map_err(|error| malformed(b"", error))?;
        let deadline = raw.deadline.map(|at_ms| at_ms.min(DEADLINE_MAX));
        let entry = match serial::read_as(rdb_type, &key, deadline, &mut reader, &self.limits) {
            Ok(entry) if reader.rest().is_empty() => entry,
            Ok(_) => return Err(malformed(&key, Malformed("unexpected bytes at the end"))),
            Err(Malformed::EMPTY) => {
                if self.empty.fetch_add(1, Relaxed) < LEFT_OUT_TOLD_MAX {
                    tracing::info!("Loading skipping empty key: {}", log::quoted(&key));
                }
                return Ok(Read::Empty);
            }
            Err(Malformed::MODULE) if self.skips_modules => {
                if self.of_modules.fetch_add(1, Relaxed) < LEFT_OUT_TOLD_MAX {
                    let fault = malformed(&key, Malformed::MODULE);
                    tracing::warn!("Loading skipping a module value. {fault}");
                }
                return Ok(Read::OfModule);
            }
            Err(error) => return Err(malformed(&key, error)),
        };
        let marks = match raw.marks {
            Some((from, to)) => {
                let mut reader = Reader::new(&bytes[from..to], self.limits.string_bytes_max);
                let marks = reader.string().map_err(|error| malformed(&key, error))?;
                marks_in(&marks).ok_or_else(|| {
                    malformed(&key, Malformed("key metadata in an unknown format"))
                })?;
                Some(marks)
            }
            None => None,
        };
        let (hash, shard) = self.service.router.route(&key);
        Ok(Read::Value(Decoded {
            key,
            hash,
            shard,
            raw,
            entry: Some(entry),
            marks,
        }))
    }

    /// Returns the indices of the keys, sorted by shard, and the end of each shard's range in them.
    fn by_shard(&self, decoded: &[Decoded<'_>]) -> (Vec<u32>, Vec<usize>) {
        let mut ends = vec![0; self.service.shards.len()];
        for one in decoded {
            ends[usize::from(one.shard)] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum - *end;
        }
        let mut order = vec![0; decoded.len()];
        for (at, one) in decoded.iter().enumerate() {
            let place = &mut ends[usize::from(one.shard)];
            order[*place] = at as u32;
            *place += 1;
        }
        (order, ends)
    }

    /// Inserts keys into their shard.
    fn put(
        &self,
        shard: u16,
        group: &[u32],
        decoded: &mut [Decoded<'_>],
        offset: u64,
    ) -> Result<(), LoadError> {
        let mut engine = room::take(&self.shards, shard);
        for (step, at) in group.iter().enumerate() {
            if let Some(ahead) = group.get(step + AHEAD) {
                let ahead = &decoded[*ahead as usize];
                if let Some(db) = engine.db(ahead.raw.db) {
                    db.prefetch(ahead.hash);
                }
                if let Some(entry) = &ahead.entry {
                    entry.prefetch();
                }
            }
            let one = &mut decoded[*at as usize];
            let Some(entry) = one.entry.take() else {
                continue;
            };
            let key = Key {
                bytes: &one.key,
                hash: one.hash,
            };
            let mut keyspace = engine.keyspace(one.raw.db, self.now).untouched();
            let found = keyspace.find_as_it_lies(&key);
            if found.is_some() && !self.rules.replaces {
                let (key, db) = (one.key.to_vec(), one.raw.db);
                return Err(LoadError {
                    offset: offset + one.raw.at as u64,
                    fault: Fault::Twice { key, db },
                });
            }
            keyspace.adopt(&key, found, entry);
            if let Some(marks) = one.marks.take() {
                let marks = marks_in(&marks).unwrap_or_default();
                keyspace.set_marks(&key, &marks);
            }
            if let Some(access) = one.raw.used.filter(|access| self.wants(*access)) {
                keyspace.restore_access(&key, access);
            }
        }
        Ok(())
    }

    /// True if the eviction policy uses this kind of access data (time of the last access, or frequency).
    fn wants(&self, access: Access) -> bool {
        matches!(access, Access::Frequency(_)) == self.by_frequency
    }
}
