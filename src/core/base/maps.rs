//! Maps and sets that release memory when most of their contents are gone.
//!
//! The allocated size cannot be queried: the capacity reported by the standard library falls with removed entries
//! that leave a gap behind. So the size is checked whenever the number of entries falls to a power of two, which
//! costs nothing where there is little unused capacity.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// Capacity for this many entries is kept, unless there are none.
const ROOM_KEPT: usize = 32;

/// Factor of the required capacity that is kept, so that it is not soon allocated again.
const ROOM_LEFT: usize = 2;

/// Returns the capacity to keep for a number of entries; None unless it is time for a check. Moving the entries costs
/// less than the removals since the last check.
fn room_for(len: usize) -> Option<usize> {
    let is_time = len == 0 || (len >= ROOM_KEPT && len.is_power_of_two());
    is_time.then_some(len * ROOM_LEFT)
}

/// Releases unused capacity, all of the capacity if no entry is left. Must be called after an entry was removed.
pub fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(room) = room_for(map.len()) {
        map.shrink_to(room);
    }
}

/// Does the same as [`shrink`] for a set.
pub fn shrink_set<T: Eq + Hash, S: BuildHasher>(set: &mut HashSet<T, S>) {
    if let Some(room) = room_for(set.len()) {
        set.shrink_to(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_with_what_needed_it() {
        let mut map: HashMap<u32, u32> = (0..10_000).map(|number| (number, 0)).collect();
        let mut set: HashSet<u32> = map.keys().copied().collect();
        for number in 0..10_000 {
            map.remove(&number);
            set.remove(&number);
            shrink(&mut map);
            shrink_set(&mut set);
            let len = map.len();
            if len.is_power_of_two() && len >= ROOM_KEPT {
                let rooms = [map.capacity(), set.capacity()];
                assert!(rooms.iter().all(|room| *room < 4 * len), "{len}: {rooms:?}");
            }
        }
        assert_eq!((map.capacity(), set.capacity()), (0, 0));
    }

    #[test]
    fn room_that_was_given_back_is_not_needed_at_once() {
        let mut map: HashMap<u32, u32> = (0..1_000).map(|number| (number, 0)).collect();
        (64..1_000).for_each(|number| {
            map.remove(&number);
            shrink(&mut map);
        });
        let room = map.capacity();
        for number in 64..128 {
            map.insert(number, 0);
        }
        assert_eq!(map.capacity(), room);
    }
}
