//! How many values of each type there are by their length, and by what they take: counted whenever a value comes, goes
//! or changes, for INFO KEYSIZES.
//!
//! A count is kept for each power of two. A value that stays between two of them costs a comparison.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::value::hash::HashRef;
use super::value::list::ListRef;
use super::value::object::entry_bytes;
use super::value::set::SetRef;
use super::value::sorted_set::SortedSet;
use super::value::{DataType, Kind, Object, Text};
use basalt_core::structures::entry::EntryRef;

/// Types of which sizes are counted: those of the lowest numbers.
pub const TYPES_COUNTED: usize = 5;

/// One for nothing, and one for each power of two.
pub const BINS: usize = 41;

/// The bin of a size: 0, or one more than the greatest power of two that is not greater.
#[inline]
fn bin(size: u64) -> u8 {
    ((u64::BITS - size.leading_zeros()) as u8).min(BINS as u8 - 1)
}

/// Where one value is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeOf {
    data_type: u8,
    length: u8,
    bytes: u8,
}

impl SizeOf {
    /// Of a value; none of types whose sizes are not counted.
    #[inline]
    pub(super) fn of(entry: EntryRef<'_, Object>) -> Option<SizeOf> {
        if let Some(text) = Text::of(entry) {
            return Some(SizeOf::of_text(text.len()));
        }
        SizeOf::of_collection(entry)
    }

    /// Of a string of so many bytes.
    #[inline]
    pub(super) fn of_text(len: usize) -> SizeOf {
        SizeOf {
            data_type: DataType::String as u8,
            length: bin(len as u64),
            bytes: 0,
        }
    }

    fn of_collection(entry: EntryRef<'_, Object>) -> Option<SizeOf> {
        // What is due counts until it is deleted.
        let data_type = Kind(entry.kind()).data_type();
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

/// See the module. One writer at a time, which has the shard in hand; anybody may read.
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

    /// A value came.
    #[inline]
    pub(super) fn came(&self, size: Option<SizeOf>) {
        if let Some(size) = size {
            self.count(size, 1);
        }
    }

    /// A value went.
    #[inline]
    pub(super) fn went(&self, size: Option<SizeOf>) {
        if let Some(size) = size {
            self.count(size, u32::MAX);
        }
    }

    /// A value had one size, and has another one now.
    #[inline]
    pub(super) fn changed(&self, before: Option<SizeOf>, after: Option<SizeOf>) {
        if before != after {
            self.went(before);
            self.came(after);
        }
    }

    /// A string had one length, and has another one now.
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

    /// How many values of a type, by its number, have lengths in each bin.
    pub fn lengths(&self, data_type: usize) -> impl Iterator<Item = u64> {
        self.lengths[data_type]
            .iter()
            .map(|count| u64::from(count.load(Relaxed)))
    }

    /// How many values of a type, by its number, take bytes in each bin. What strings take is not counted.
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
    use basalt_core::base::hash::Seed;

    const SEED: Seed = Seed { k0: 7, k1: 8 };

    /// The strings of a database by the bins of their lengths, without those of none.
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
