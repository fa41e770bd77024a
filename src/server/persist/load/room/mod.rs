//! Reserves capacity in hash tables for the keys to be loaded: growing the tables during loading would take a
//! quarter of the time.
//!
//! A snapshot states its number of keys. The number is trusted unless the snapshot's length makes it
//! impossible. An append-only file does not state it:
//!
//! ```text
//! file  ├─ first half ─┼─ second half ─┼──────────── the rest ────────────┤
//!       keys are counted here,     and here: as many new ones? then reserve for as many more per byte
//! ```
//!
//! The first part of the commands is run without reserving. If the second half of this part has added as many
//! new keys per byte as the first half, the rest of the file is expected to do the same, and tables are resized
//! accordingly: for no more keys than a file of that length can have, and for at most a few times the present
//! number of keys. Many files first insert keys and then only update them, and memory use must not be a
//! multiple of what is needed in the end.
//!
//! If fewer keys arrive than expected, or most keys of a snapshot have expired, tables are shrunk at the end to
//! fit the actual number of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::shard::Shards;
use crate::shard::job::Job;
use crate::shard::ownership::ShardGuard;
use crate::state::Service;
use basalt_engine::{Engine, Now};

/// Fraction of a file (1/n) from which the rest is extrapolated.
const SAMPLED_PART: u64 = 16;

/// Minimum bytes of a file for which reserving is worthwhile.
const BYTES_MIN: u64 = if cfg!(test) { 64 * 1024 } else { 1024 * 1024 };

/// Minimum bytes of a key in a file, with its length and that of its value.
const KEY_BYTES_MIN: u64 = 13;

/// Minimum number of keys for which a table is resized: a smaller one hardly grows.
const ROOM_KEYS_MIN: usize = if cfg!(test) { 64 } else { 256 };

/// Maximum capacity to reserve, as a multiple of the present keys.
const ROOM_FACTOR_MAX: usize = 4;

/// A position in the file at which keys are counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum SamplePoint {
    /// Before the first command.
    Begin,
    /// In the middle of the sampled part.
    Middle {
        /// Bytes of commands read so far.
        read: u64,
    },
    /// At the end of the sampled part.
    End {
        /// Bytes of commands read so far.
        read: u64,
        /// Bytes of commands that follow.
        left: u64,
    },
}

/// Schedule for counting keys.
pub(super) struct Schedule {
    start_offset: u64,
    len: u64,
    next: Option<SamplePoint>,
    /// Bytes of commands read before the last sample.
    sampled: u64,
}

impl Schedule {
    /// Creates a schedule for commands that begin at `begins` in their file and take `len` bytes; 0 if unknown.
    pub(super) fn new(start_offset: u64, len: u64) -> Schedule {
        Schedule {
            start_offset,
            len,
            next: (len >= BYTES_MIN).then_some(SamplePoint::Begin),
            sampled: 0,
        }
    }

    /// Returns the sample that is due after the commands up to `offset` were read.
    pub(super) fn due(&mut self, offset: u64) -> Option<SamplePoint> {
        let read = offset.saturating_sub(self.start_offset);
        let part = self.len / SAMPLED_PART;
        let (due, next) = match self.next? {
            SamplePoint::Begin => (SamplePoint::Begin, Some(SamplePoint::Middle { read })),
            // No command was run since the last sample: the bytes read since then belong to one transaction.
            _ if read == self.sampled => return None,
            SamplePoint::Middle { .. } if read >= part / 2 => {
                let end = SamplePoint::End { read: 0, left: 0 };
                (SamplePoint::Middle { read }, Some(end))
            }
            SamplePoint::End { .. } if read >= part => {
                let left = self.len.saturating_sub(read);
                (SamplePoint::End { read, left }, None)
            }
            SamplePoint::Middle { .. } | SamplePoint::End { .. } => return None,
        };
        self.next = next;
        self.sampled = read;
        Some(due)
    }
}

/// Locks a shard. The caller holds no other lock.
pub(super) fn take(shards: &Shards, shard: u16) -> ShardGuard<'_, Engine, Job> {
    const SPINS: u32 = 200;
    loop {
        match shards.take_spinning(shard, SPINS) {
            Some(engine) => return engine,
            // Another thread inserts keys there, or a background task reads it.
            None => std::thread::yield_now(),
        }
    }
}

/// Capacity reserved in tables.
pub(super) struct TableReservation {
    shards: Arc<Shards>,
    /// Largest number of keys for which capacity was reserved, by shard and database.
    made: BTreeMap<(u16, usize), usize>,
}

impl TableReservation {
    /// Creates an empty record of reserved capacity for these shards.
    pub(super) fn new(shards: Arc<Shards>) -> TableReservation {
        TableReservation {
            shards,
            made: BTreeMap::new(),
        }
    }

    /// Reserves capacity for `keys` keys in an empty database of a shard.
    pub(super) fn reserve(&mut self, shard: u16, db: usize, keys: usize, now: Now) {
        take(&self.shards, shard).reserve(db, keys, now);
        self.note(shard, db, keys);
    }

    /// Resizes a database of a shard to hold `keys` keys, including those already there.
    pub(super) fn refit(&mut self, shard: u16, db: usize, keys: usize) {
        take(&self.shards, shard).refit(db, keys);
        self.note(shard, db, keys);
    }

    fn note(&mut self, shard: u16, db: usize, keys: usize) {
        let made = self.made.entry((shard, db)).or_default();
        *made = keys.max(*made);
    }

    /// Shrinks tables with much excess capacity; call after the last key.
    pub(super) fn end(self) {
        let mut refitted = None;
        for ((shard, db), keys) in self.made {
            if refitted == Some(shard) {
                continue;
            }
            let mut engine = take(&self.shards, shard);
            let there = |engine: &Engine, db| engine.db(db).map_or(0, |db| db.len());
            if there(&engine, db) >= keys - keys / 4 {
                continue;
            }
            // Check all databases: SWAPDB may have moved the tables with reserved capacity.
            for db in 0..engine.database_count() {
                let keys = there(&engine, db);
                engine.refit(db, keys);
            }
            refitted = Some(shard);
        }
    }
}

/// Key counts and reserved capacity of a thread's shards.
pub(super) struct CapacityEstimator {
    service: &'static Service,
    /// Number of this thread, and of all threads.
    number: usize,
    threads: usize,
    /// Number of keys by shard of this thread and by database, at the first sample and (`middle`) the second
    /// one.
    begin: Vec<Vec<usize>>,
    middle: Vec<Vec<usize>>,
    /// Bytes of commands before the second sample.
    middle_read: u64,
    room: TableReservation,
}

impl CapacityEstimator {
    pub(super) fn new(
        service: &'static Service,
        number: usize,
        threads: usize,
    ) -> CapacityEstimator {
        CapacityEstimator {
            service,
            number,
            threads,
            begin: Vec::new(),
            middle: Vec::new(),
            middle_read: 0,
            room: TableReservation::new(Arc::clone(&service.shards)),
        }
    }

    pub(super) fn sample(&mut self, sample: SamplePoint) {
        match sample {
            SamplePoint::Begin => self.begin = self.count(),
            SamplePoint::Middle { read } => {
                self.middle = self.count();
                self.middle_read = read;
            }
            SamplePoint::End { read, left } => self.make_room(read, left),
        }
    }

    /// Shrinks tables with much excess capacity; call after the last command.
    pub(super) fn end(self) {
        self.room.end();
    }

    fn shards(&self) -> impl Iterator<Item = u16> + use<> {
        let count = self.service.shards.len();
        (self.number..count)
            .step_by(self.threads)
            .map(|shard| shard as u16)
    }

    fn count(&self) -> Vec<Vec<usize>> {
        let count = |shard| {
            let engine = take(&self.service.shards, shard);
            let keys = |db| engine.db(db).map_or(0, |db| db.len());
            (0..engine.database_count()).map(keys).collect()
        };
        self.shards().map(count).collect()
    }

    fn make_room(&mut self, read: u64, left: u64) {
        let now = self.count();
        // This thread's share of the limit for all threads.
        let mut most = u128::from(left / KEY_BYTES_MIN / self.threads as u64);
        let databases = now.first().map_or(0, Vec::len);
        for db in 0..databases {
            let sum = |counts: &[Vec<usize>]| counts.iter().map(|of_shard| of_shard[db]).sum();
            let (begin, middle, end): (usize, usize, usize) =
                (sum(&self.begin), sum(&self.middle), sum(&now));
            let (first, second) = (middle.saturating_sub(begin), end.saturating_sub(middle));
            let second_read = read.saturating_sub(self.middle_read);
            if !is_steady((first, self.middle_read), (second, second_read)) {
                continue;
            }
            for ((shard, begin), now) in self.shards().zip(&self.begin).zip(&now) {
                let (begin, now) = (begin[db], now[db]);
                let new = now.saturating_sub(begin) as u128;
                let more = new * u128::from(left) / u128::from(read.max(1));
                if more > most {
                    continue;
                }
                let keys = now + more as usize;
                if keys < ROOM_KEYS_MIN || keys / 2 < now {
                    continue;
                }
                most -= more;
                let keys = keys.min(now * ROOM_FACTOR_MAX);
                self.room.refit(shard, db, keys);
            }
        }
    }
}

/// True if about as many keys per byte were added in the second half as in the first.
fn is_steady((first, first_bytes): (usize, u64), (second, second_bytes): (usize, u64)) -> bool {
    let rate = |keys: usize, other_bytes: u64| keys as u128 * u128::from(other_bytes);
    20 * rate(second, first_bytes) >= 19 * rate(first, second_bytes)
}

#[cfg(test)]
mod tests;
