//! Space-Saving: the heaviest names of a stream, with their weights, in a fixed number of slots.
//!
//! A name with a slot gains its weight there. A name without a slot takes the slot of the lightest name, and adds
//! that name's weight to its own: so a weight is never too small, and too large by at most the weight taken over.
//! Every name with more than the `n`th part of the total weight is in a list of `n` slots. Names are identified by a
//! keyed hash of 64 bits.

/// Maximum bytes of a name; longer names are truncated.
pub const NAME_BYTES_MAX: usize = 512;

/// One name of a list, with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heavy {
    /// The name, truncated to [`NAME_BYTES_MAX`] bytes.
    pub name: Box<[u8]>,
    /// Hash of the name.
    pub hash: u64,
    /// Upper bound of the name's weight.
    pub weight: u64,
    /// The part of the weight that may belong to other names.
    pub excess: u64,
}

/// A list of the heaviest names of a stream, see the module.
#[derive(Clone, Debug)]
pub struct SpaceSaving {
    slot_count: usize,
    hashes: Vec<u64>,
    weights: Vec<u64>,
    excesses: Vec<u64>,
    names: Vec<Box<[u8]>>,
    total: u64,
}

impl SpaceSaving {
    /// Creates an empty list with this many slots, at least one.
    pub fn new(slot_count: usize) -> SpaceSaving {
        SpaceSaving {
            slot_count: slot_count.max(1),
            hashes: Vec::new(),
            weights: Vec::new(),
            excesses: Vec::new(),
            names: Vec::new(),
            total: 0,
        }
    }

    /// Returns the weight of everything that was ever added.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds to the weight of a name. Returns the name's slot, and whether it had none before.
    pub fn add(&mut self, name: &[u8], hash: u64, weight: u64) -> (usize, bool) {
        self.total = self.total.saturating_add(weight);
        // Branchless, so that several hashes are compared at a time.
        let found =
            self.hashes
                .iter()
                .enumerate()
                .fold(usize::MAX, |found, (at, each)| match *each == hash {
                    true => at,
                    false => found,
                });
        if let Some(own) = self.weights.get_mut(found) {
            *own = own.saturating_add(weight);
            return (found, false);
        }
        let name: Box<[u8]> = name[..name.len().min(NAME_BYTES_MAX)].into();
        if self.hashes.len() < self.slot_count {
            self.hashes.push(hash);
            self.weights.push(weight);
            self.excesses.push(0);
            self.names.push(name);
            return (self.hashes.len() - 1, true);
        }
        let lightest = self.weights.iter().enumerate().min_by_key(|(_, own)| **own);
        let (at, &taken) = lightest.expect("there is at least one slot");
        self.hashes[at] = hash;
        self.weights[at] = taken.saturating_add(weight);
        self.excesses[at] = taken;
        self.names[at] = name;
        (at, true)
    }

    /// Returns the maximum weight of a name without a slot.
    pub fn least(&self) -> u64 {
        match self.hashes.len() < self.slot_count {
            true => 0,
            false => self.weights.iter().copied().min().unwrap_or(0),
        }
    }

    /// Halves all weights, so that old ones count for less.
    pub fn age(&mut self) {
        for weight in self.weights.iter_mut().chain(&mut self.excesses) {
            *weight /= 2;
        }
        self.total /= 2;
    }

    /// Returns the hashes of the names, each with the weight that certainly belongs to it.
    pub fn certain(&self) -> impl Iterator<Item = (u64, u64)> {
        let own = self.weights.iter().zip(&self.excesses);
        let own = own.map(|(weight, excess)| weight.saturating_sub(*excess));
        self.hashes.iter().copied().zip(own)
    }

    /// Returns the names, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Heavy> {
        (0..self.hashes.len()).map(|at| Heavy {
            name: self.names[at].clone(),
            hash: self.hashes[at],
            weight: self.weights[at],
            excess: self.excesses[at],
        })
    }
}

/// Returns the heaviest names of several lists together, heaviest first, and the total weight.
pub fn heaviest<'f>(
    lists: impl Iterator<Item = &'f SpaceSaving>,
    count: usize,
) -> (Vec<Heavy>, u64) {
    let mut total: u64 = 0;
    let mut all: Vec<Heavy> = Vec::new();
    for list in lists {
        total = total.saturating_add(list.total());
        all.extend(list.iter());
    }
    all.sort_unstable_by_key(|heavy| heavy.hash);
    all.dedup_by(|next, kept| {
        let is_same = next.hash == kept.hash;
        if is_same {
            kept.weight = kept.weight.saturating_add(next.weight);
            kept.excess = kept.excess.saturating_add(next.excess);
        }
        is_same
    });
    // Sorted by the certain weight: a name added last may owe all its weight to its predecessor in the slot.
    all.sort_by_key(|heavy| {
        std::cmp::Reverse((heavy.weight - heavy.excess.min(heavy.weight), heavy.weight))
    });
    all.truncate(count);
    (all, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn hash(name: &[u8]) -> u64 {
        crate::base::hash::HashSeed { k0: 1, k1: 2 }.hash(name)
    }

    #[test]
    fn weights_are_never_too_small_and_too_large_by_no_more_than_said() {
        let mut list = SpaceSaving::new(20);
        let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut random = crate::base::random::Random::new(5);
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let number = (random.unit() * random.unit() * random.unit() * 300.0) as u64;
            let name = format!("name{number}").into_bytes();
            let weight = 1 + random.below(9);
            list.add(&name, hash(&name), weight);
            *exact.entry(name).or_default() += weight;
        }
        let total: u64 = exact.values().sum();
        assert_eq!(list.total(), total);
        let found: HashMap<Vec<u8>, Heavy> = list
            .iter()
            .map(|heavy| (heavy.name.to_vec(), heavy))
            .collect();
        assert_eq!(found.len(), 20);
        for (name, weight) in &exact {
            match found.get(name) {
                Some(heavy) => {
                    assert!(heavy.weight >= *weight && heavy.weight - heavy.excess <= *weight);
                }
                None => assert!(*weight <= total / 20, "{name:?} is heavy"),
            }
        }
    }

    #[test]
    fn lists_of_several_writers_are_one() {
        let mut lists = [SpaceSaving::new(4), SpaceSaving::new(4)];
        for (list, name, weight) in [(0, "a", 5), (1, "a", 6), (1, "b", 8), (0, "c", 1)] {
            lists[list].add(name.as_bytes(), hash(name.as_bytes()), weight);
        }
        let (heavy, total) = heaviest(lists.iter(), 2);
        let names: Vec<(&[u8], u64)> = heavy
            .iter()
            .map(|heavy| (&*heavy.name, heavy.weight))
            .collect();
        assert_eq!((names, total), (vec![(&b"a"[..], 11), (b"b", 8)], 20));
        lists[0].age();
        assert_eq!(lists[0].total(), 3);
    }

    #[test]
    fn a_long_name_is_kept_cut() {
        let mut list = SpaceSaving::new(1);
        list.add(&[b'x'; 2_000], 1, 1);
        assert_eq!(
            list.iter().next().map(|heavy| heavy.name.len()),
            Some(NAME_BYTES_MAX)
        );
    }
}
