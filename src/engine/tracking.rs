//! Tracking of the keys that connections may have cached (CLIENT TRACKING), and the invalidations to send them.
//!
//! A read by a tracking connection is recorded while the shard is still locked; a change takes the key out again
//! with all its readers, and that record goes to `pubsub::tracking`, which notifies them. So no change falls
//! between a read and its record, and each recorded read causes at most one invalidation. Keys are identified by
//! name, regardless of the database, as in Redis.
//!
//! A key with its readers is one allocation, in a table like the keyspace's:
//!
//! ```text
//! key | reader u32 | reader u32 | …     ascending
//! ```
//!
//! A reader is the low half of a connection's number. One that has disconnected stays until the key changes, and is
//! skipped when the others are notified; after 2^32 further connections the number may belong to another client,
//! which then gets an invalidation of a key that it never cached.
//!
//! The table is bounded by its keys (`tracking-table-max-keys`) and, where memory is limited, by its bytes
//! ([`TrackedCount::bound_bytes`]), as names may be long. Beyond that, randomly sampled keys are dropped: their
//! readers are notified as if they had changed.
//!
//! Invariants: a shard without tracked keys uses no memory here; the counts are totals over all shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Key;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::table::Table;

/// Maximum readers recorded for one key; beyond that all of them are notified, and recording starts over.
const READERS_MAX: usize = 16 * 1024;

const READER_BYTES: usize = size_of::<u32>();

/// Bytes of a key's slot in the table, in addition to its entry.
const PLACE_BYTES: u64 = 16;

/// Returns the bytes of an entry and its slot.
fn bytes_of(entry: EntryRef<'_, ()>) -> u64 {
    entry.memory_bytes() as u64 + PLACE_BYTES
}

/// The size of the tracking tables of all shards.
#[derive(Debug, Default)]
pub struct TrackedCount {
    keys: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
    /// Limit in bytes; 0: none.
    bytes_max: AtomicU64,
}

impl TrackedCount {
    /// Returns the number of keys that a client may have cached.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Returns the sum of the numbers of readers of all keys (INFO `tracking_total_items`).
    pub fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Returns the bytes of all tracking tables.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Limits the tracking tables of all shards, in bytes; 0: no limit.
    pub fn bound_bytes(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// True if more than `keys_max` keys (0: any number) or more bytes than the limit are recorded.
    pub fn exceeds(&self, keys_max: u64) -> bool {
        (keys_max > 0 && self.keys() > keys_max) || self.exceeds_bytes()
    }

    /// True if more bytes than the limit are recorded.
    pub fn exceeds_bytes(&self) -> bool {
        let bytes_max = self.bytes_max.load(Relaxed);
        bytes_max > 0 && self.bytes() > bytes_max
    }

    fn add(&self, keys: u64, items: u64, bytes: u64) {
        self.keys.fetch_add(keys, Relaxed);
        self.items.fetch_add(items, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn remove(&self, keys: u64, items: u64, bytes: u64) {
        self.keys.fetch_sub(keys, Relaxed);
        self.items.fetch_sub(items, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The tracked keys of a shard that FLUSHALL dropped, to be freed in slices.
pub type Forgotten = Table<Entry<()>>;

/// A key that has changed since its readers read it.
pub struct InvalidatedKey {
    entry: Entry<()>,
    /// Stamp of the change, among the effects of all shards.
    pub stamp: u64,
    /// Id of the connection that changed the key; 0: none.
    pub by: u64,
}

impl InvalidatedKey {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.entry.view().key()
    }

    /// Returns the clients that read it.
    pub fn readers(&self) -> impl Iterator<Item = u32> {
        readers(self.entry.view())
    }
}

/// A key that was written, for clients in broadcast mode that follow all keys with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Name of the key.
    pub key: Box<[u8]>,
    /// The number of its database.
    pub db: usize,
    /// Id of the connection that changed the key; 0: none.
    pub by: u64,
}

/// Invalidations to send to clients with client-side caching.
#[derive(Default)]
pub struct Invalidations {
    /// Keys that tracking clients have read and that have changed since.
    pub keys: Vec<InvalidatedKey>,
    /// All keys that were written, while a client tracks in broadcast mode.
    pub written: Vec<Written>,
    /// True if everything that clients have cached is invalid.
    pub all: bool,
}

impl Invalidations {
    /// True if nothing is invalidated.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.written.is_empty() && !self.all
    }

    /// Moves the invalidations of another shard into this one.
    pub fn append(&mut self, other: &mut Invalidations) {
        self.keys.append(&mut other.keys);
        self.written.append(&mut other.written);
        self.all |= std::mem::take(&mut other.all);
    }
}

fn bytes(entry: EntryRef<'_, ()>) -> &[u8] {
    match entry.value() {
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

fn readers(entry: EntryRef<'_, ()>) -> impl Iterator<Item = u32> {
    let (chunks, _) = bytes(entry).as_chunks::<READER_BYTES>();
    chunks.iter().map(|chunk| u32::from_le_bytes(*chunk))
}

fn count_of(entry: EntryRef<'_, ()>) -> u64 {
    (bytes(entry).len() / READER_BYTES) as u64
}

/// The tracked keys of a shard, see the module.
#[derive(Default)]
pub struct Tracked {
    table: Option<Box<Table<Entry<()>>>>,
    count: Arc<TrackedCount>,
}

impl Tracked {
    /// Sets the counter that all shards share.
    pub fn set_count(&mut self, count: Arc<TrackedCount>) {
        self.count = count;
    }

    /// True if no client tracks a key of this shard.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_none()
    }

    /// Returns the counter over all shards.
    pub fn count(&self) -> &TrackedCount {
        &self.count
    }

    /// Records that a connection read a key. If the key has too many readers, removes and returns it: its readers
    /// must be notified.
    pub fn add(&mut self, key: &Key<'_>, client: u64, seed: HashSeed) -> Option<InvalidatedKey> {
        let table = self.table.get_or_insert_with(|| Box::new(Table::new(seed)));
        let reader = client as u32;
        let fresh = |key: &Key<'_>| Entry::bytes(0, key.bytes, &reader.to_le_bytes(), None);
        let Some(place) = table.find(key.hash, key.bytes) else {
            let entry = fresh(key);
            self.count.add(1, 1, bytes_of(entry.view()));
            table.insert_new(key.hash, entry);
            return None;
        };
        let known = bytes(table.at(place));
        let (chunks, _) = known.as_chunks::<READER_BYTES>();
        let Err(at) = chunks.binary_search_by_key(&reader, |chunk| u32::from_le_bytes(*chunk))
        else {
            return None;
        };
        if chunks.len() >= READERS_MAX {
            let items = chunks.len() as u64 - 1;
            let fresh = fresh(key);
            self.count.add(0, 0, bytes_of(fresh.view()));
            let entry = table.replace(place, fresh);
            self.count.remove(0, items, bytes_of(entry.view()));
            return Some(InvalidatedKey {
                entry,
                stamp: 0,
                by: 0,
            });
        }
        let (before, after) = known.split_at(at * READER_BYTES);
        let grown = [before, &reader.to_le_bytes(), after].concat();
        let before = bytes_of(table.at(place));
        table.edit(place).set_bytes(&grown);
        self.count.add(0, 1, bytes_of(table.at(place)));
        self.count.remove(0, 0, before);
        None
    }

    /// Removes a key and returns it with its readers; `by` is the connection that changed it.
    pub fn take(&mut self, key: &[u8], by: u64) -> Option<InvalidatedKey> {
        let table = self.table.as_deref_mut()?;
        let place = table.find(table.hash(key), key)?;
        let entry = table.remove(place);
        Some(self.taken(entry, by))
    }

    /// Removes a random key and returns it with its readers.
    pub fn take_random(&mut self, draw: &mut dyn FnMut() -> u64) -> Option<InvalidatedKey> {
        let table = self.table.as_deref_mut()?;
        let place = table.random(draw)?;
        let entry = table.remove(place);
        Some(self.taken(entry, 0))
    }

    fn taken(&mut self, entry: Entry<()>, by: u64) -> InvalidatedKey {
        let view = entry.view();
        self.count.remove(1, count_of(view), bytes_of(view));
        if self.table.as_ref().is_some_and(|table| table.is_empty()) {
            self.table = None;
        }
        InvalidatedKey {
            entry,
            stamp: 0,
            by,
        }
    }

    /// Removes and returns all tracked keys, to be freed; None if there are none.
    pub fn take_all(&mut self) -> Option<Forgotten> {
        let table = self.table.take()?;
        let (mut items, mut bytes) = (0, 0);
        table.for_each(|entry| {
            items += count_of(entry);
            bytes += bytes_of(entry);
        });
        self.count.remove(table.len() as u64, items, bytes);
        Some(*table)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use basalt_core::base::random::Random;

    const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

    #[test]
    fn a_key_is_told_once_to_all_who_read_it() {
        let mut tracked = Tracked::default();
        let key = Key::new(b"k", SEED);
        for client in [9, 3, 9, 1 << 32 | 5] {
            assert!(tracked.add(&key, client, SEED).is_none());
        }
        assert_eq!((tracked.count.keys(), tracked.count.items()), (1, 3));
        let invalidated = tracked.take(b"k", 7).expect("somebody read it");
        assert_eq!(invalidated.key(), b"k");
        assert_eq!(invalidated.readers().collect::<Vec<_>>(), [3, 5, 9]);
        assert_eq!(invalidated.by, 7);
        assert!(tracked.take(b"k", 7).is_none() && tracked.is_empty());
        assert_eq!((tracked.count.keys(), tracked.count.items()), (0, 0));
    }

    #[test]
    fn a_key_with_too_many_readers_lapses_for_all_of_them() {
        let mut tracked = Tracked::default();
        let key = Key::new(b"k", SEED);
        for client in 0..READERS_MAX as u64 {
            assert!(tracked.add(&key, client, SEED).is_none());
        }
        let invalidated = tracked.add(&key, u64::from(u32::MAX), SEED);
        let invalidated = invalidated.expect("no room for one more");
        assert_eq!(invalidated.readers().count(), READERS_MAX);
        assert_eq!((tracked.count.keys(), tracked.count.items()), (1, 1));
        let invalidated = tracked.take(b"k", 0).expect("the last one is remembered");
        assert_eq!(invalidated.readers().collect::<Vec<_>>(), [u32::MAX]);
    }

    #[test]
    fn what_is_remembered_equals_a_model() {
        let mut random = Random::new(5);
        let mut tracked = Tracked::default();
        let mut model: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
        for _ in 0..20_000 {
            let name = format!("key:{}", random.next_u64() % 300).into_bytes();
            let key = Key::new(&name, SEED);
            match random.next_u64() % 100 {
                0 => {
                    tracked.take_all();
                    model.clear();
                }
                1..=20 => {
                    let invalidated = tracked.take(&name, 0);
                    let readers = invalidated.map(|invalidated| invalidated.readers().collect());
                    assert_eq!(readers, model.remove(&name));
                }
                21..=25 => {
                    let invalidated = tracked.take_random(&mut || random.next_u64());
                    assert_eq!(invalidated.is_none(), model.is_empty());
                    if let Some(invalidated) = invalidated {
                        let readers = model.remove(invalidated.key());
                        assert_eq!(Some(invalidated.readers().collect()), readers);
                    }
                }
                _ => {
                    let client = random.next_u64() % 40;
                    assert!(tracked.add(&key, client, SEED).is_none());
                    model.entry(name).or_default().insert(client as u32);
                }
            }
            assert_eq!(tracked.is_empty(), model.is_empty());
            assert_eq!(tracked.count.keys(), model.len() as u64);
            let items: usize = model.values().map(BTreeSet::len).sum();
            assert_eq!(tracked.count.items(), items as u64);
            let bytes = |(key, readers): (&Vec<u8>, &BTreeSet<u32>)| {
                let readers = vec![0; readers.len() * READER_BYTES];
                bytes_of(Entry::<()>::bytes(0, key, &readers, None).view())
            };
            assert_eq!(tracked.count.bytes(), model.iter().map(bytes).sum::<u64>());
        }
    }
}
