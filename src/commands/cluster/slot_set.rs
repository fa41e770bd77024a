//! Sets of hash slots.

use std::sync::{Arc, LazyLock};

use basalt_core::base::hash::SLOTS;

const WORDS: usize = SLOTS as usize / 64;

/// Bytes of a set on the wire.
pub const SLOT_SET_BYTES: usize = SLOTS as usize / 8;

/// A set of hash slots: one bit for each of the 16384 slots. Copies share their memory until one of them changes, as
/// all packets of a node carry the node's set.
#[derive(Clone)]
pub struct SlotSet(Arc<[u64; WORDS]>);

static EMPTY: LazyLock<Arc<[u64; WORDS]>> = LazyLock::new(|| Arc::new([0; WORDS]));

impl Default for SlotSet {
    fn default() -> Self {
        SlotSet(Arc::clone(&EMPTY))
    }
}

impl PartialEq for SlotSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for SlotSet {}

impl SlotSet {
    /// Returns the set of all slots.
    #[must_use]
    pub fn all() -> SlotSet {
        SlotSet(Arc::new([u64::MAX; WORDS]))
    }

    /// Decodes a set: slot `n` is bit `n % 8` of byte `n / 8`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SLOT_SET_BYTES]) -> SlotSet {
        let (words, _) = bytes.as_chunks::<8>();
        SlotSet(Arc::new(std::array::from_fn(|at| {
            u64::from_le_bytes(words[at])
        })))
    }

    /// Encodes the set: slot `n` is bit `n % 8` of byte `n / 8`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SLOT_SET_BYTES] {
        let mut bytes = [0; SLOT_SET_BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, bits) in words.iter_mut().zip(self.0.iter()) {
            *word = bits.to_le_bytes();
        }
        bytes
    }

    /// Whether a slot is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot) / 64] >> (slot % 64) & 1 == 1
    }

    /// Whether a slot is in the set; false for an index out of range.
    #[inline]
    #[must_use]
    pub fn contains_at(&self, index: usize) -> bool {
        let word = self.0.get(index / 64);
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Adds a slot; returns whether it was absent.
    pub fn insert(&mut self, slot: u16) -> bool {
        let was = self.contains(slot);
        if !was {
            Arc::make_mut(&mut self.0)[usize::from(slot) / 64] |= 1 << (slot % 64);
        }
        !was
    }

    /// Removes a slot; returns whether it was present.
    pub fn remove(&mut self, slot: u16) -> bool {
        let was = self.contains(slot);
        if was {
            Arc::make_mut(&mut self.0)[usize::from(slot) / 64] &= !(1 << (slot % 64));
        }
        was
    }

    /// Returns the number of slots in the set.
    #[must_use]
    pub fn len(&self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Iterates over the slots in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = *word;
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits = (bits != 0).then(|| bits & (bits - 1))?;
                Some(at as u16 * 64 + bit as u16)
            })
        })
    }

    /// Formats the slots for clients: numbers and ranges, separated by commas, such as `1,5-7`.
    #[must_use]
    pub fn listed(&self) -> String {
        let ranges = self.ranges().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        ranges.collect::<Vec<_>>().join(",")
    }

    /// Iterates over runs of consecutive slots, by their first and last slot, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let mut slots = self.iter().peekable();
        std::iter::from_fn(move || {
            let first = slots.next()?;
            let mut last = first;
            while slots.peek() == Some(&(last + 1)) {
                last += 1;
                slots.next();
            }
            Some((first, last))
        })
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ranges()).finish()
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<T: IntoIterator<Item = u16>>(slots: T) -> Self {
        let mut set = SlotSet::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::SlotSet;
    use basalt_core::base::hash::SLOTS;

    #[test]
    fn slots_come_back_as_ranges_and_over_the_wire() {
        let set: SlotSet = [0, 1, 2, 63, 64, 65, 9000, 16383].into_iter().collect();
        let ranges: Vec<_> = set.ranges().collect();
        assert_eq!(ranges, [(0, 2), (63, 65), (9000, 9000), (16383, 16383)]);
        assert_eq!(set.len(), 8);
        let bytes = set.to_bytes();
        assert_eq!(bytes[0], 0b111);
        assert_eq!(bytes[2047], 0x80);
        assert_eq!(SlotSet::from_bytes(&bytes), set);
        assert_eq!(SlotSet::all().ranges().collect::<Vec<_>>(), [(0, 16383)]);
    }

    #[test]
    fn insert_and_remove_say_what_changed() {
        let mut set = SlotSet::default();
        assert!(set.is_empty() && set.insert(7) && !set.insert(7));
        assert!(set.contains(7) && !set.contains(8));
        assert!(set.contains_at(7) && !set.contains_at(usize::from(SLOTS)));
        assert!(set.remove(7) && !set.remove(7) && set.is_empty());
    }
}
