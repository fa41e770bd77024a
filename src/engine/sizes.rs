//! Histograms of the values of each type by length and by memory, updated whenever a value is added, removed or
//! changed, for INFO KEYSIZES.
//!
//! There is a bin for each power of two. A change within one bin costs a comparison.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::value::hash::HashRef;
use super::value::list::ListRef;
use super::value::object::entry_bytes;
use super::value::set::SetRef;
use super::value::sorted_set::SortedSet;
use super::value::{DataType, Object, ObjectKind, Text};
use basalt_core::structures::entry::EntryRef;

/// Number of types whose sizes are counted: the types with the numbers below this.
pub const TYPES_COUNTED: usize = 5;

/// One bin for zero, and one for each power of two.
pub const BINS: usize = 41;

/// Returns the bin of a size: 0, or one more than the exponent of the greatest power of two that is not greater.
#[inline]
fn bin(size: u64) -> u8 {
    ((u64::BITS - size.leading_zeros()) as u8).min(BINS as u8 - 1)
}

/// The bins in which one value is counted: by length and by memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeOf {
    data_type: u8,
    length: u8,
    bytes: u8,
}

impl SizeOf {
    /// Returns the bins of a value; None for types whose sizes are not counted.
    #[inline]
    pub(super) fn of(entry: EntryRef<'_, Object>) -> Option<SizeOf> {
        if let Some(text) = Text::of(entry) {
            return Some(SizeOf::of_text(text.len()));
        }
        SizeOf::of_collection(entry)
    }

    /// Returns the bins of a string of `len` bytes.
    #[inline]
    pub(super) fn of_text(len: usize) -> SizeOf {
        SizeOf {
            data_type: DataType::String as u8,
            length: bin(len as u64),
            bytes: 0,
        }
    }

    fn of_collection(entry: EntryRef<'_, Object>) -> Option<SizeOf> {
        // Expired elements count until they are deleted.
        let data_type = ObjectKind(entry.kind()).data_type();
        let len = match data_type {
            DataType::List => ListRef::of(entry)?.len(),
            DataType::Set => SetRef::of(entry, 0).len(),
            DataType::SortedSet => SortedSet::of(entry).len(),
            DataType::Hash => HashRef::of(entry, 0)?.len(),
            _ => return None,
        };
        Some(SizeOf {
            data_type: data_type as u8,
            length: bin(len as u64),
            bytes: bin(entry_bytes(entry) as u64),
        })
    }
}

/// The size histograms of a database, see the module. There is one writer at a time, the holder of the shard; any
/// thread may read.
#[derive(Debug)]
pub struct Sizes {
    lengths: [[AtomicU32; BINS]; TYPES_COUNTED],
    bytes: [[AtomicU32; BINS]; TYPES_COUNTED],
}

impl Default for Sizes {
    fn default() -> Sizes {
        let none = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0)));
        Sizes {
            lengths: none(),
            bytes: none(),
        }
    }
}

fn step(counts: &[[AtomicU32; BINS]; TYPES_COUNTED], data_type: u8, bin: u8, by: u32) {
    let count = &counts[usize::from(data_type)][usize::from(bin)];
    count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Sizes {
    fn count(&self, size: SizeOf, by: u32) {
        step(&self.lengths, size.data_type, size.length, by);
        step(&self.bytes, size.data_type, size.bytes, by);
    }

    /// Counts an added value.
    #[inline]
    pub(super) fn came(&self, size: Option<SizeOf>) {
        if let Some(size) = size {
            self.count(size, 1);
        }
    }

    /// Counts a removed value.
    #[inline]
    pub(super) fn went(&self, size: Option<SizeOf>) {
        if let Some(size) = size {
            self.count(size, u32::MAX);
        }
    }

    /// Counts a value whose size has changed.
    #[inline]
    pub(super) fn changed(&self, before: Option<SizeOf>, after: Option<SizeOf>) {
        if before != after {
            self.went(before);
            self.came(after);
        }
    }

    /// Counts a string whose length has changed.
    #[inline]
    pub(super) fn text_changed(&self, before: usize, after: usize) {
        if before != after && bin(before as u64) != bin(after as u64) {
            self.text_changed_bin(before, after);
        }
    }

    #[cold]
    #[inline(never)]
    fn text_changed_bin(&self, before: usize, after: usize) {
        self.went(Some(SizeOf::of_text(before)));
        self.came(Some(SizeOf::of_text(after)));
    }

    /// Returns the number of values in each bin of length, for a type given by its number; nothing for types that are
    /// not counted.
    pub fn lengths(&self, data_type: usize) -> impl Iterator<Item = u64> {
        self.lengths[data_type]
            .iter()
            .map(|count| u64::from(count.load(Relaxed)))
    }

    /// Returns the number of values in each bin of bytes, for a type given by its number. The bytes of strings are
    /// not counted.
    pub fn bytes(&self, data_type: usize) -> impl Iterator<Item = u64> {
        self.bytes[data_type]
            .iter()
            .map(|count| u64::from(count.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Deadline;
    use crate::{Engine, Key, Now};
    use basalt_core::base::hash::HashSeed;

    const SEED: HashSeed = HashSeed { k0: 7, k1: 8 };

    /// Returns the non-empty bins of string lengths of a database.
    fn strings(engine: &Engine, db: usize) -> Vec<(usize, u64)> {
        let sizes = engine.published().dbs[db].sizes();
        let Some(sizes) = sizes else {
            return Vec::new();
        };
        let counts = sizes.lengths(DataType::String as usize).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn set(engine: &mut Engine, db: usize, name: &str, value: &str) {
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = engine.keyspace(db, Now { unix_ms: 1_000 });
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, value.as_bytes(), Deadline::Clear);
    }

    #[test]
    fn a_size_is_in_the_bin_of_its_greatest_power_of_two() {
        for (size, expected) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4)] {
            assert_eq!(bin(size), expected, "{size}");
        }
        assert_eq!(bin((1 << 29) - 1), 29);
        assert_eq!(bin(u64::MAX), 40);
    }

    #[test]
    fn sizes_follow_values_and_databases() {
        let mut engine = Engine::new(3, SEED, 1);
        assert_eq!(strings(&engine, 0), []);
        set(&mut engine, 0, "a", "12345");
        set(&mut engine, 0, "b", "text");
        set(&mut engine, 0, "c", &"x".repeat(100_000));
        assert_eq!(strings(&engine, 0), [(3, 2), (17, 1)]);
        set(&mut engine, 0, "a", "");
        set(&mut engine, 0, "b", "123");
        set(&mut engine, 0, "c", "-1");
        assert_eq!(strings(&engine, 0), [(0, 1), (2, 2)]);
        set(&mut engine, 1, "d", "1");
        engine.swap_dbs(0, 1, Now { unix_ms: 1_000 });
        assert_eq!(strings(&engine, 0), [(1, 1)]);
        assert_eq!(strings(&engine, 1), [(0, 1), (2, 2)]);
        let key = Key::new(b"a", SEED);
        let mut keyspace = engine.keyspace(1, Now { unix_ms: 1_000 });
        let place = keyspace.find_write(&key).expect("it is there");
        keyspace.delete(place);
        assert_eq!(strings(&engine, 1), [(2, 2)]);
        engine.flush_db(1);
        assert_eq!(strings(&engine, 1), []);
        set(&mut engine, 1, "e", "1");
        assert_eq!(strings(&engine, 1), [(1, 1)]);
    }
}
