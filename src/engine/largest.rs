//! The largest values of a database by type, without scans: every change of a value reports its new size, and the
//! few largest are remembered by the hash of their key.
//!
//! The entries are hints: the command that lists the largest values looks their keys up, so that no reply is stale.
//! When a recorded key is deleted, its slot stays empty until the next large value is written. As each shard
//! remembers its own few, the ten largest values overall are hardly ever missed. Sizes are recorded in steps of an
//! eighth, so that a value that grows by one element at a time is recorded seldom.

use super::value::{DataType, Object, TYPES};
use basalt_core::structures::entry::{EntryRef, Value};

/// Minimum size of a large value.
pub const LARGE_BYTES_MIN: u64 = 16 * 1024;

/// Values remembered for each type, in each database of a shard.
const PLACES: usize = 4;

/// A value that was large when its size was recorded; an element with 0 bytes is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Large {
    pub(super) hash: u64,
    pub(super) bytes: u64,
}

/// The largest values by type, see the module. Memory is allocated only at creation, so that a database uses as much
/// of it after a large value as before.
#[derive(Debug, Default)]
pub(super) struct Largest([[Large; PLACES]; TYPES]);

const _: () = assert!(size_of::<Largest>() == 832);

impl Largest {
    pub(super) fn note(&mut self, data_type: DataType, hash: u64, bytes: u64) {
        let list = &mut self.0[data_type as usize];
        let known = list
            .iter()
            .position(|large| large.bytes > 0 && large.hash == hash);
        if let Some(at) = known {
            list[at].bytes = bytes;
        } else if let Some(least) = list.iter_mut().min_by_key(|large| large.bytes)
            && least.bytes < bytes
        {
            *least = Large { hash, bytes };
        }
    }

    pub(super) fn forget(&mut self, data_type: DataType, hash: u64) {
        for large in &mut self.0[data_type as usize] {
            if large.hash == hash {
                *large = Large::default();
            }
        }
    }

    pub(super) fn of(&self, data_type: DataType) -> impl Iterator<Item = &Large> {
        self.0[data_type as usize]
            .iter()
            .filter(|large| large.bytes > 0)
    }
}

/// True if two sizes differ enough to be recorded again.
pub(super) fn is_other_step(before: u64, after: u64) -> bool {
    let step = |bytes: u64| {
        let shift = bytes.max(8).ilog2() - 3;
        (shift, bytes >> shift)
    };
    step(before) != step(after)
}

/// True if an entry may be large: inline values are not, except for small collections, whose edits report their
/// size.
#[inline]
pub(super) fn may_be_large(entry: EntryRef<'_, Object>) -> bool {
    matches!(entry.value(), Value::Block(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_each_key_once() {
        let mut largest = Largest::default();
        for round in 0..3 {
            for hash in 0..100 {
                largest.note(
                    DataType::List,
                    hash,
                    20_000 + (hash * 37 % 100) * 100 + round,
                );
            }
        }
        let mut kept: Vec<u64> = largest
            .of(DataType::List)
            .map(|large| large.bytes)
            .collect();
        kept.sort_unstable();
        let best: Vec<u64> = (96..100).map(|step| 20_000 + step * 100 + 2).collect();
        assert_eq!(kept, best);
        assert_eq!(largest.of(DataType::Hash).count(), 0);
        let hash = largest.of(DataType::List).next().map(|large| large.hash);
        largest.forget(DataType::List, hash.expect("there are some"));
        assert_eq!(largest.of(DataType::List).count(), PLACES - 1);
    }

    #[test]
    fn sizes_are_noted_in_steps_of_an_eighth() {
        assert!(!is_other_step(16_384, 16_400) && !is_other_step(100_000, 101_000));
        assert!(is_other_step(16_384, 18_500) && is_other_step(100_000, 50_000));
        let steps = (16_384..1 << 20).filter(|bytes| is_other_step(*bytes, bytes + 1));
        assert_eq!(steps.count(), 48);
    }

    #[test]
    fn every_type_has_its_list() {
        assert!(
            DataType::ALL
                .iter()
                .all(|(data_type, _)| (*data_type as usize) < TYPES)
        );
    }
}
