//! A thread's hot keys: chosen by its samples, with the copies of their strings.

use std::cell::RefCell;
use std::sync::Arc;

use crate::telemetry::counters::{PublishedCopy, ThreadCounters};
use basalt_core::base::counter::Counter;
use basalt_engine::Key;
use basalt_engine::db::{Seen, TextCopy};

/// Maximum number of keys of a thread with copies.
const KEYS_MAX: usize = 64;
/// Maximum length of a copied string.
pub(super) const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a copied string's key.
const KEY_BYTES_MAX: usize = 512;
/// Maximum total length of a thread's copied strings.
const BYTES_MAX: usize = 256 * 1024;

/// Minimum duration of the period over which samples are compared.
const PERIOD_MS: u64 = 100;
/// Maximum duration of that period: a thread that takes fewer than `SAMPLES_MIN` samples in it has no hot keys.
const PERIOD_MS_MAX: u64 = 1_000;
/// Minimum number of samples that are compared.
const SAMPLES_MIN: u32 = 64;
/// A key is hot from this part of the samples on, and of this number.
const HOT_PART: u32 = 64;
const HOT_SAMPLES_MIN: u32 = 4;
/// A key stays hot down to this part of the samples.
const WARM_PART: u32 = 256;
/// Number of periods below that part after which the copy is dropped.
const COLD_PERIODS_MAX: u8 = 3;
/// Maximum number of keys that samples are counted for. A hot key is nearly always among the first so many samples.
const CANDIDATES_MAX: usize = 256;

/// Number of reads from a copy after which one goes the ordinary way. With one in 64, the token of a key that 64
/// threads read would be in use nearly all the time.
const READS_BETWEEN: u32 = 255;
/// Time since the last ordinary read after which one goes the ordinary way.
const MS_BETWEEN: u64 = 100;
/// Minimum number of reads for which a copy was worth its making.
const READS_WORTHWHILE: u32 = 32;
/// Time after a copy that was not worth its making until the next one.
const BACK_OFF_MS: u64 = 100;

/// Number of places of the index, a power of two.
const INDEX_LEN: usize = 128;

thread_local! {
    static COPIES: RefCell<HotCopies> = const { RefCell::new(HotCopies::new()) };
}

/// Calls `work` with the hot keys of this thread.
#[inline]
pub(super) fn with<R>(work: impl FnOnce(&mut HotCopies) -> R) -> R {
    COPIES.with_borrow_mut(work)
}

/// Counts a sampled command of this thread; `key` is that of a read that a copy can answer. If copies are not enabled,
/// drops those that there are.
#[cold]
pub(super) fn count_sample(
    counters: &ThreadCounters,
    key: Option<(usize, &Key<'_>)>,
    (is_enabled, now_ms): (bool, u64),
) {
    with(|copies| {
        if !is_enabled {
            copies.clear();
            copies.publish(counters);
        } else if copies.count(key, now_ms) {
            copies.publish(counters);
        }
    });
}

/// True if this thread has a copy of the string under a key.
pub(super) fn has_copy(db: usize, key: &Key<'_>) -> bool {
    COPIES.with_borrow(|copies| copies.has_copy(db, key))
}

/// A key of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HotKey {
    hash: u64,
    db: usize,
    bytes: Box<[u8]>,
}

impl HotKey {
    #[inline]
    fn is(&self, db: usize, key: &Key<'_>) -> bool {
        self.hash == key.hash && self.db == db && *self.bytes == *key.bytes
    }
}

/// A copy of a hot key's string.
#[derive(Debug)]
pub(super) struct HotCopy {
    text: TextCopy,
    /// Reads from the copy before the last ordinary read, and since then.
    reads: u32,
    reads_since: u32,
    /// Time of the last ordinary read.
    ordinary_ms: u64,
    /// The counter of reads that copies of this database answer.
    counter: &'static Counter,
}

/// A hot key, and its copy if there is one.
#[derive(Debug)]
struct Place {
    key: HotKey,
    copy: Option<HotCopy>,
    /// No copy is made before this time.
    not_before_ms: u64,
    cold_periods: u8,
}

/// A key and its samples in the current period.
#[derive(Debug)]
struct Candidate {
    key: HotKey,
    samples: u32,
}

/// A thread's hot keys, see the module.
#[derive(Debug)]
pub(super) struct HotCopies {
    places: Vec<Place>,
    /// Index of a place plus one, by hash, at the first free position from there on; 0 if free.
    index: [u8; INDEX_LEN],
    bytes: usize,
    candidates: Vec<Candidate>,
    samples: u32,
    began_ms: u64,
}

/// The way in which a read of a key runs.
pub(super) enum ReadVerdict {
    /// The copy answers the read.
    Answered,
    /// The read runs in the ordinary way.
    Ordinary,
    /// The read runs in the ordinary way, after which the string is copied.
    Copies,
}

impl HotCopies {
    pub(super) const fn new() -> HotCopies {
        HotCopies {
            places: Vec::new(),
            index: [0; INDEX_LEN],
            bytes: 0,
            candidates: Vec::new(),
            samples: 0,
            began_ms: 0,
        }
    }

    #[inline]
    fn find(&self, db: usize, key: &Key<'_>) -> Option<usize> {
        let mut at = index_of(key.hash);
        loop {
            let place = usize::from(self.index[at]).checked_sub(1)?;
            if self.places[place].key.is(db, key) {
                return Some(place);
            }
            at = (at + 1) % INDEX_LEN;
        }
    }

    /// Decides how a read runs; returns the copy that answers it.
    #[inline]
    pub(super) fn judge(
        &mut self,
        db: usize,
        key: &Key<'_>,
        now_ms: u64,
    ) -> (ReadVerdict, Option<&mut HotCopy>) {
        let Some(found) = self.find(db, key) else {
            return (ReadVerdict::Ordinary, None);
        };
        let place = &mut self.places[found];
        if let Some(copy) = &place.copy
            && !copy.is_current(now_ms)
        {
            self.bytes -= copy.text.bytes.len();
            return (place.end_copy(now_ms), None);
        }
        (place.judge(now_ms), place.copy.as_mut())
    }

    /// True if a copy answered the last read of a key, or may answer the next.
    pub(super) fn has_copy(&self, db: usize, key: &Key<'_>) -> bool {
        self.find(db, key)
            .is_some_and(|found| self.places[found].copy.is_some())
    }

    /// Keeps a copy of the string under a hot key.
    pub(super) fn keep(&mut self, db: usize, key: &Key<'_>, copy: HotCopy) {
        let Some(found) = self.find(db, key) else {
            return;
        };
        let place = &mut self.places[found];
        if self.bytes + copy.text.bytes.len() > BYTES_MAX {
            place.not_before_ms = copy.ordinary_ms + BACK_OFF_MS;
            return;
        }
        self.bytes += copy.text.bytes.len();
        place.copy = Some(copy);
    }

    /// Notes that the string under a hot key cannot be copied.
    pub(super) fn put_off(&mut self, db: usize, key: &Key<'_>, now_ms: u64) {
        if let Some(found) = self.find(db, key) {
            self.places[found].not_before_ms = now_ms + BACK_OFF_MS;
        }
    }

    fn index_all(&mut self) {
        self.index = [0; INDEX_LEN];
        for (place, found) in self.places.iter().enumerate() {
            let mut at = index_of(found.key.hash);
            while self.index[at] != 0 {
                at = (at + 1) % INDEX_LEN;
            }
            self.index[at] = place as u8 + 1;
        }
    }

    /// Counts a sample; `key` is that of a read that a copy can answer. Returns true if the hot keys changed.
    pub(super) fn count(&mut self, key: Option<(usize, &Key<'_>)>, now_ms: u64) -> bool {
        let period_ms = now_ms.wrapping_sub(self.began_ms);
        let is_over = period_ms >= PERIOD_MS && self.samples >= SAMPLES_MIN;
        if is_over {
            self.choose();
        }
        if is_over || period_ms > PERIOD_MS_MAX {
            self.candidates.clear();
            (self.samples, self.began_ms) = (0, now_ms);
        }
        self.samples += 1;
        if let Some((db, key)) = key.filter(|(_, key)| key.bytes.len() <= KEY_BYTES_MAX) {
            if let Some(candidate) = (self.candidates.iter_mut()).find(|one| one.key.is(db, key)) {
                candidate.samples += 1;
            } else if self.candidates.len() < CANDIDATES_MAX {
                let bytes = key.bytes.into();
                let hash = key.hash;
                let key = HotKey { hash, db, bytes };
                self.candidates.push(Candidate { key, samples: 1 });
            }
        }
        is_over
    }

    /// Chooses the hot keys by the samples of a period.
    fn choose(&mut self) {
        let (samples, candidates) = (self.samples, std::mem::take(&mut self.candidates));
        for place in &mut self.places {
            let own = candidates
                .iter()
                .find(|candidate| candidate.key == place.key);
            let is_warm = own.is_some_and(|own| own.samples * WARM_PART >= samples);
            place.cold_periods = if is_warm { 0 } else { place.cold_periods + 1 };
        }
        self.places
            .retain(|place| place.cold_periods < COLD_PERIODS_MAX);
        self.bytes = (self.places.iter())
            .filter_map(|place| Some(place.copy.as_ref()?.text.bytes.len()))
            .sum();
        let mut hot = candidates;
        hot.retain(|one| one.samples >= HOT_SAMPLES_MIN && one.samples * HOT_PART >= samples);
        hot.sort_unstable_by_key(|one| std::cmp::Reverse(one.samples));
        for candidate in hot {
            let is_known = self.places.iter().any(|place| place.key == candidate.key);
            if !is_known && self.places.len() < KEYS_MAX {
                self.places.push(Place {
                    key: candidate.key,
                    copy: None,
                    not_before_ms: 0,
                    cold_periods: 0,
                });
            }
        }
        self.index_all();
    }

    pub(super) fn clear(&mut self) {
        *self = HotCopies::new();
    }

    /// Publishes the thread's figures.
    pub(super) fn publish(&self, counters: &ThreadCounters) {
        counters.hot_copies.keys.set(self.places.len() as u64);
        let published = self.places.iter().filter_map(|place| {
            let text = &place.copy.as_ref()?.text;
            Some(PublishedCopy {
                db: place.key.db,
                name: place.key.bytes.clone(),
                len: text.bytes.len(),
                validity: Arc::clone(&text.validity),
            })
        });
        *counters.hot_copies.copies.lock() = published.collect();
    }
}

#[inline]
fn index_of(hash: u64) -> usize {
    (hash >> 16) as usize % INDEX_LEN
}

impl HotCopy {
    pub(super) fn new(text: TextCopy, counter: &'static Counter, now_ms: u64) -> HotCopy {
        HotCopy {
            text,
            reads: 0,
            reads_since: 0,
            ordinary_ms: now_ms,
            counter,
        }
    }

    #[inline]
    fn is_current(&self, now_ms: u64) -> bool {
        self.text.validity.is_current() && now_ms < self.text.until_ms
    }

    /// Returns the positions that a reply with the copy reflects.
    pub(super) fn seen(&self) -> Seen {
        self.text.seen
    }

    /// Returns the string for a read.
    #[inline]
    pub(super) fn read(&mut self) -> &[u8] {
        self.reads_since += 1;
        self.counter.add(1);
        &self.text.bytes
    }
}

impl Place {
    /// Decides how a read runs.
    #[inline]
    fn judge(&mut self, now_ms: u64) -> ReadVerdict {
        let Some(copy) = &mut self.copy else {
            return match self.not_before_ms <= now_ms {
                true => ReadVerdict::Copies,
                false => ReadVerdict::Ordinary,
            };
        };
        if copy.reads_since >= READS_BETWEEN || now_ms.wrapping_sub(copy.ordinary_ms) >= MS_BETWEEN
        {
            copy.reads = copy.reads.saturating_add(copy.reads_since);
            (copy.reads_since, copy.ordinary_ms) = (0, now_ms);
            return ReadVerdict::Ordinary;
        }
        ReadVerdict::Answered
    }

    /// Drops a copy that is not current.
    #[cold]
    fn end_copy(&mut self, now_ms: u64) -> ReadVerdict {
        let reads = self
            .copy
            .take()
            .map_or(0, |copy| copy.reads + copy.reads_since);
        if reads < READS_WORTHWHILE {
            self.not_before_ms = now_ms + BACK_OFF_MS;
            return ReadVerdict::Ordinary;
        }
        ReadVerdict::Copies
    }
}
