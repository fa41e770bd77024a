//! What one thread saw of how prefixes are used: a fixed number of places, however many there are.

use std::sync::LazyLock;

use basalt_core::base::hash::Seed;
use basalt_core::structures::space_saving::SpaceSaving;

/// Places of a thread's list: a prefix that has more than this part of all uses is in it.
const PLACES: usize = 256;

/// By what prefixes are told apart.
static SEED: LazyLock<Seed> = LazyLock::new(|| Seed {
    k0: rand::random(),
    k1: rand::random(),
});

/// Uses of keys, scaled to all commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By commands that read.
    pub reads: u64,
    /// By commands that write.
    pub writes: u64,
    /// Reads of which it is known that the key was there.
    pub hits: u64,
    /// Reads of which it is known that it was not.
    pub misses: u64,
}

impl Counts {
    /// Uses of both kinds.
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

/// See the module. The counts of a place are those since its prefix has it, so that they are never too large.
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

    /// What a prefix that is not in the list may have at most.
    pub(super) fn least(&self) -> u64 {
        self.list.least()
    }

    /// The prefixes with their counts, and what these may lack.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Box<[u8]>, Counts, u64)> {
        let places = self.list.iter().zip(&self.counts);
        places.map(|(heavy, counts)| (heavy.name, *counts, heavy.excess))
    }
}
