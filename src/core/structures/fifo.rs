//! A queue of 32-bit words that grows and shrinks by small chunks, so that no push ever copies its contents.
//!
//! Invariants: only the first and the last chunk are partly filled; an empty queue has at most one chunk, which it
//! keeps for the next push.

use std::collections::VecDeque;

/// Words in a chunk, which has 512 bytes. With a small memory limit, even one chunk for each shard takes a notable
/// part of it.
const CHUNK: usize = 128;

/// A queue of words, see the module.
#[derive(Debug, Default)]
pub struct Fifo {
    chunks: VecDeque<Box<[u32; CHUNK]>>,
    /// Number of words already removed from the first chunk.
    taken: usize,
    len: usize,
}

impl Fifo {
    /// Returns the number of words.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no words.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a word at the end.
    pub fn push(&mut self, word: u32) {
        let at = self.taken + self.len;
        if at == self.chunks.len() * CHUNK {
            self.chunks.push_back(Box::new([0; CHUNK]));
        }
        self.chunks[at / CHUNK][at % CHUNK] = word;
        self.len += 1;
    }

    /// Returns the word at an index counted from the front; None beyond the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u32> {
        let at = self.taken + index;
        (index < self.len).then(|| self.chunks[at / CHUNK][at % CHUNK])
    }

    /// Removes and returns the oldest word.
    pub fn pop(&mut self) -> Option<u32> {
        let word = self.get(0)?;
        self.taken += 1;
        self.len -= 1;
        if self.taken == CHUNK {
            self.taken = 0;
            let first = self.chunks.pop_front();
            // A queue that stays short reuses its only chunk.
            if self.chunks.is_empty() {
                self.chunks.extend(first);
            }
        }
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn words_come_out_in_the_order_in_which_they_went_in() {
        let mut random = Random::new(1);
        let mut fifo = Fifo::default();
        let mut model = VecDeque::new();
        for round in 0..if cfg!(miri) { 2_000 } else { 100_000_u32 } {
            // Grows for a while, then shrinks.
            let pushes = random.below(100) < if round / 3_000 % 2 == 0 { 60 } else { 40 };
            if pushes {
                fifo.push(round);
                model.push_back(round);
            } else {
                assert_eq!(fifo.pop(), model.pop_front());
            }
            assert_eq!(fifo.len(), model.len());
            assert_eq!(fifo.is_empty(), model.is_empty());
            assert_eq!(fifo.get(3), model.get(3).copied());
            assert!(fifo.chunks.len() <= fifo.len() / CHUNK + 2);
        }
    }
}
