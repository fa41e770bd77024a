//! One thread's view of prefix usage, in a fixed number of slots however many prefixes there are.

use std::sync::LazyLock;

use basalt_core::base::hash::HashSeed;
use basalt_core::structures::space_saving::SpaceSaving;

/// Slots in a thread's list. A prefix with more than 1/256 of all uses is guaranteed to be in it.
const PLACES: usize = 256;

/// Hash seed of the prefixes.
static SEED: LazyLock<HashSeed> = LazyLock::new(|| HashSeed {
    k0: rand::random(),
    k1: rand::random(),
});

/// Uses of keys, scaled to all commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Uses by read commands.
    pub reads: u64,
    /// Uses by write commands.
    pub writes: u64,
    /// Reads known to have found the key.
    pub hits: u64,
    /// Reads known to have missed.
    pub misses: u64,
}

impl Counts {
    /// Returns the sum of reads and writes.
    pub fn all(&self) -> u64 {
        self.reads + self.writes
    }

    pub(super) fn add(&mut self, more: Counts) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.hits += more.hits;
        self.misses += more.misses;
    }

    fn halve(&mut self) {
        self.reads /= 2;
        self.writes /= 2;
        self.hits /= 2;
        self.misses /= 2;
    }
}

/// Prefix usage seen by one thread; see the module. A slot's counts begin when its prefix takes the slot, so
/// they may be too low but never too high.
#[derive(Debug)]
pub struct Uses {
    generation: u64,
    list: SpaceSaving,
    counts: Vec<Counts>,
}

impl Default for Uses {
    fn default() -> Uses {
        Uses {
            generation: 0,
            list: SpaceSaving::new(PLACES),
            counts: Vec::new(),
        }
    }
}

impl Uses {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn add(&mut self, generation: u64, prefix: &[u8], counts: Counts) {
        if self.generation != generation {
            *self = Uses::default();
            self.generation = generation;
        }
        let (place, is_new) = self.list.add(prefix, SEED.hash(prefix), counts.all());
        self.counts
            .resize(self.counts.len().max(place + 1), Counts::default());
        if is_new {
            self.counts[place] = Counts::default();
        }
        self.counts[place].add(counts);
    }

    pub(super) fn age(&mut self) {
        self.list.age();
        self.counts.iter_mut().for_each(Counts::halve);
    }

    /// Returns an upper bound of the uses of any prefix that is not in the list.
    pub(super) fn least(&self) -> u64 {
        self.list.least()
    }

    /// Returns the prefixes with their counts, and an upper bound of the uses missing from these counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Box<[u8]>, Counts, u64)> {
        let places = self.list.iter().zip(&self.counts);
        places.map(|(heavy, counts)| (heavy.name, *counts, heavy.excess))
    }
}
