//! An unordered multiset of words, any of which can be removed: a short row, or sixteen rows partitioned by bits of
//! the words.
//!
//! A word is found by a linear search of a row, so rows have to stay short, however many words there are: for example
//! in a slot of the timer wheel if all keys live for a day, or in a cluster slot if all keys have the same hash tag.
//! A row that exceeds its maximum length is partitioned by the four bits that follow those by which it was
//! partitioned itself; parts that hold far fewer words become one row again.
//!
//! ```text
//! up to 256 words   [ Vec ]
//! beyond            [ Box ] ─▶ 16 × [ Vec | Box ─▶ 16 × … ]      four bits of a word select its part
//! ```
//!
//! The kind of [`Word`] determines the bits. Words of 32 bits are partitioned by the highest first: then parts
//! follow one another in the order of numbers, and the words that follow one are found without reading the others
//! (see [`Parted::following`]).

use std::mem;

use smallvec::SmallVec;

use crate::alloc::account::size_class;

/// Maximum words of a row, except for a row that can be partitioned no further.
const ROW_MAX: usize = 256;

/// If parts have at most this many words in total, they become one row.
const PARTED_MIN: usize = 32;

/// Number of parts of a partitioned set of words.
pub const PARTS: usize = 16;
/// Number of bits of a word that select its part.
pub const PART_BITS: u32 = 4;

/// A word in a row.
pub trait Word: Copy + Eq {
    /// Maximum depth of partitioning.
    const DEPTH_MAX: u32;

    /// Returns the part of a word, below [`PARTS`], in the `depth`-th partition, counted from 0.
    fn part(self, depth: u32) -> usize;
}

/// Partitioned by the highest bits first, so that parts are in the order of numbers.
impl Word for u32 {
    const DEPTH_MAX: u32 = u32::BITS / PART_BITS;

    fn part(self, depth: u32) -> usize {
        (self >> (u32::BITS - PART_BITS * (depth + 1))) as usize % PARTS
    }
}

/// A multiset of words, see the module.
pub enum Parted<W> {
    /// Few words, in a row.
    Row(Vec<W>),
    /// Many words, in parts.
    Parts(Box<Parts<W>>),
}

/// Words, partitioned by some of their bits.
pub struct Parts<W> {
    len: usize,
    /// The part from which a word was last taken: taking all words one by one passes over no empty parts.
    latest: usize,
    parts: [Parted<W>; PARTS],
}

const _: () = assert!(
    size_of::<Parted<u64>>() == size_of::<Vec<u64>>(),
    "there are many, and most of them are empty"
);

impl<W: Word> Parted<W> {
    /// The empty set, which takes no memory.
    pub const EMPTY: Parted<W> = Parted::Row(Vec::new());

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        match self {
            Parted::Row(row) => row.len(),
            Parted::Parts(parted) => parted.len,
        }
    }

    /// True if there are no words.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a word. If it exists already, it is counted once more.
    pub fn push(&mut self, word: W) {
        self.push_at(0, word);
    }

    fn push_at(&mut self, depth: u32, word: W) {
        match self {
            Parted::Row(row) if row.len() < ROW_MAX || depth == W::DEPTH_MAX => push(row, word),
            Parted::Row(row) => {
                let row = mem::take(row);
                let mut parts = [const { Self::EMPTY }; PARTS];
                for &word in row.iter().chain([&word]) {
                    parts[word.part(depth)].push_at(depth + 1, word);
                }
                let len = row.len() + 1;
                *self = Parted::Parts(Box::new(Parts {
                    len,
                    latest: 0,
                    parts,
                }));
            }
            Parted::Parts(parted) => {
                parted.len += 1;
                parted.parts[word.part(depth)].push_at(depth + 1, word);
            }
        }
    }

    /// Removes and returns any word.
    pub fn pop(&mut self) -> Option<W> {
        match self {
            Parted::Row(row) => {
                let word = row.pop();
                if row.is_empty() {
                    *row = Vec::new();
                }
                word
            }
            Parted::Parts(parted) => {
                let word = parted.pop();
                self.shrink();
                word
            }
        }
    }

    /// Removes this word, once. Returns whether it existed.
    pub fn remove(&mut self, word: W) -> bool {
        self.remove_at(0, word)
    }

    fn remove_at(&mut self, depth: u32, word: W) -> bool {
        match self {
            Parted::Row(row) => {
                let found = row.iter().position(|&other| other == word);
                if let Some(at) = found {
                    row.swap_remove(at);
                    fit(row);
                }
                found.is_some()
            }
            Parted::Parts(parted) => {
                let found = parted.parts[word.part(depth)].remove_at(depth + 1, word);
                if found {
                    self.shrink();
                }
                found
            }
        }
    }

    /// Removes and returns the word with approximately the least `offset`, from a sample of `looks` words; `draw`
    /// returns a random number below its argument.
    pub fn take_soonest(
        &mut self,
        looks: usize,
        draw: &mut dyn FnMut(usize) -> usize,
        offset: fn(W) -> u64,
    ) -> Option<W> {
        match self {
            Parted::Row(row) => {
                let len = row.len();
                let best = (0..looks.min(len))
                    .map(|look| if len <= looks { look } else { draw(len) })
                    .min_by_key(|&at| offset(row[at]))?;
                let word = row.swap_remove(best);
                fit(row);
                Some(word)
            }
            Parted::Parts(parted) => {
                // The partition is unrelated to the due time.
                let first = draw(PARTS);
                let word = (0..PARTS)
                    .map(|step| (first + step) % PARTS)
                    .find(|&part| !parted.parts[part].is_empty())
                    .and_then(|part| parted.parts[part].take_soonest(looks, draw, offset));
                self.shrink();
                word
            }
        }
    }

    /// Counts a word that was removed from a part.
    fn shrink(&mut self) {
        let Parted::Parts(parted) = self else {
            return;
        };
        parted.len -= 1;
        if parted.len <= PARTED_MIN {
            let mut row = Vec::with_capacity(PARTED_MIN);
            while let Some(word) = parted.pop() {
                row.push(word);
            }
            *self = Parted::Row(row);
        }
    }

    /// Returns the bytes allocated for the words, without this value itself.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Parted::Row(row) if row.capacity() == 0 => 0,
            Parted::Row(row) => size_class(row.capacity() * size_of::<W>()),
            Parted::Parts(parted) => {
                let parts = parted.parts.iter().map(Parted::memory_bytes);
                size_class(size_of::<Parts<W>>()) + parts.sum::<usize>()
            }
        }
    }
}

impl<W: Word> Parts<W> {
    /// Removes and returns any word, without counting it.
    fn pop(&mut self) -> Option<W> {
        let mut parts = (self.latest..self.latest + PARTS).map(|part| part % PARTS);
        self.latest = parts.find(|&part| !self.parts[part].is_empty())?;
        self.parts[self.latest].pop()
    }
}

impl Parted<u32> {
    /// Appends to `into` at most `count` of the least words that are not below `from`, in order and each once.
    /// Returns the number from which to continue, which is above `from`; None if there are no more words.
    ///
    /// Reads only words of the rows that it takes from, and the heads of the parts that lead there.
    pub fn following(&self, from: u64, count: usize, into: &mut impl Extend<u32>) -> Option<u64> {
        let mut left = count.max(1);
        self.gather(0, 0, from, &mut left, into)
    }

    /// Like `following`, in the part at this depth that begins with the number `first`.
    fn gather(
        &self,
        depth: u32,
        first: u64,
        from: u64,
        left: &mut usize,
        into: &mut impl Extend<u32>,
    ) -> Option<u64> {
        match self {
            Parted::Row(row) => {
                let wanted = row.iter().copied().filter(|word| u64::from(*word) >= from);
                let mut words: SmallVec<[u32; ROW_MAX]> = wanted.collect();
                words.sort_unstable();
                words.dedup();
                let taken = words.len().min(*left);
                *left -= taken;
                into.extend(words[..taken].iter().copied());
                words.get(taken).map(|word| u64::from(*word))
            }
            Parted::Parts(parted) => {
                let width = 1_u64 << (u32::BITS - PART_BITS * (depth + 1));
                parted.parts.iter().zip(0_u64..).find_map(|(part, number)| {
                    let first = first + number * width;
                    match part.is_empty() || first + width <= from {
                        true => None,
                        false if *left == 0 => Some(first),
                        false => part.gather(depth + 1, first, from, left, into),
                    }
                })
            }
        }
    }
}

/// Pushes with no more capacity than the allocator provides anyway, as most rows stay short.
fn push<W>(row: &mut Vec<W>, word: W) {
    if row.len() == row.capacity() {
        row.reserve_exact(room_for::<W>(row.len() + 1) - row.len());
    }
    row.push(word);
}

/// Frees the excess capacity of a row that has become shorter.
fn fit<W>(row: &mut Vec<W>) {
    if row.is_empty() {
        *row = Vec::new();
    } else if row.len() <= row.capacity() / 2 {
        row.shrink_to(room_for::<W>(row.len()));
    }
}

/// Returns the number of words that fit into the allocator's class for a number of words.
fn room_for<W>(words: usize) -> usize {
    size_class(words * size_of::<W>()) / size_of::<W>()
}

#[cfg(test)]
mod tests;
