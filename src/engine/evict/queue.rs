//! The queue of new keys: a [short hash](crate::short_hash) for each, the oldest at the front.
//!
//! A key that is deleted or expires leaves its entry (its *word*) in the queue, as its position in the queue is not
//! known. A new key of the same name has a word of its own, further back, and must not be evicted when the first word
//! reaches the front. So the hash of a key that leaves is recorded as *departed*, and the front skips the oldest word
//! of each departed hash:
//!
//! ```text
//! SET a, DEL a, SET a     front ▶ a b c a      departed: a      the first word of a refers to no key
//! ```
//!
//! Invariant: of each short hash there are as many words as keys in the queue and departures together. So a word
//! without a departure refers to a key that exists and existed when the word was added. (Two keys with one short
//! hash, one pair in 2^32, may be swapped.)
//!
//! Words that refer to no key could pile up where names come and go faster than keys are evicted. Once they are
//! more than a quarter of the others, the queue is *sifted*, a few words for each departure: words move from the
//! old part to the sifted one, or are dropped with their departure. Departures meanwhile are recorded separately,
//! because a word for one of them that has been sifted already is older than any that is still to be examined.
//!
//! ```text
//! front ▶ sifted ◀─ to be sifted (rest, then the first of words) │ came since ◀ end
//! ```

use crate::short_hash::shorten;
use basalt_core::structures::fifo::Fifo;
use basalt_core::structures::parted::Parted;

/// Sifting begins at one departure for this many keys in the queue.
const KEYS_PER_DEPARTURE: usize = 4;

/// Departures allowed in addition to those per key.
const DEPARTED_SLACK: usize = 64;

/// Words sifted for each departure.
const SIFTED_PER_DEPARTURE: usize = 8;

/// Maximum words of departed keys that are skipped in one call.
const PASSED_MAX: usize = 1024;

/// The queue of new keys, see the module.
pub(super) struct NewKeyQueue {
    /// The oldest words; during sifting, the words that have been sifted.
    sifted: Fifo,
    /// Words that have yet to be sifted, older than all in `words`.
    rest: Fifo,
    /// The newest words.
    words: Fifo,
    /// Number of words in `words` that have yet to be sifted.
    unsifted: usize,
    /// Hashes of keys that left before their words reached the front.
    departed: Parted<u32>,
    /// Hashes of keys that left since sifting began.
    departed_since: Parted<u32>,
}

impl Default for NewKeyQueue {
    fn default() -> NewKeyQueue {
        NewKeyQueue {
            sifted: Fifo::default(),
            rest: Fifo::default(),
            words: Fifo::default(),
            unsifted: 0,
            departed: Parted::EMPTY,
            departed_since: Parted::EMPTY,
        }
    }
}

impl NewKeyQueue {
    /// Returns the number of keys in the queue.
    pub(super) fn len(&self) -> usize {
        self.words() - self.departed.len() - self.departed_since.len()
    }

    fn words(&self) -> usize {
        self.sifted.len() + self.rest.len() + self.words.len()
    }

    fn is_sifting(&self) -> bool {
        self.unsifted > 0 || !self.rest.is_empty()
    }

    /// Returns the word at an index counted from the front, whether or not the word refers to a key; None beyond the
    /// end.
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        let mut index = index;
        for part in [&self.sifted, &self.rest, &self.words] {
            match part.get(index) {
                Some(word) => return Some(word),
                None => index -= part.len(),
            }
        }
        None
    }

    /// Adds a key with this hash.
    pub(super) fn push(&mut self, hash: u64) {
        self.words.push(shorten(hash));
    }

    /// Records that a key leaves the table, or the queue, before it reaches the front.
    pub(super) fn depart(&mut self, hash: u64) {
        match self.is_sifting() {
            true => self.departed_since.push(shorten(hash)),
            false => self.departed.push(shorten(hash)),
        }
        let departed = self.departed.len();
        if !self.is_sifting() && departed > self.len() / KEYS_PER_DEPARTURE + DEPARTED_SLACK {
            self.rest = std::mem::take(&mut self.sifted);
            self.unsifted = self.words.len();
        }
        if self.is_sifting() {
            self.sift(SIFTED_PER_DEPARTURE);
        }
    }

    fn sift(&mut self, words_max: usize) {
        for _ in 0..words_max {
            let Some(word) = self.pop_unsifted() else {
                break;
            };
            if !self.departed.remove(word) {
                self.sifted.push(word);
            }
        }
        self.end_sifting();
    }

    /// Removes and returns the oldest word that has yet to be sifted.
    fn pop_unsifted(&mut self) -> Option<u32> {
        if let Some(word) = self.rest.pop() {
            return Some(word);
        }
        self.unsifted = self.unsifted.checked_sub(1)?;
        self.words.pop()
    }

    /// Once all words have been sifted, makes the departures since then the current ones.
    fn end_sifting(&mut self) {
        if !self.is_sifting() && !self.departed_since.is_empty() {
            debug_assert!(
                self.departed.is_empty(),
                "each departure was matched by a sifted word"
            );
            self.departed = std::mem::replace(&mut self.departed_since, Parted::EMPTY);
        }
    }

    /// Removes and returns the word of the key that has been in the queue longest. None means that the queue is
    /// empty, or that a great many departed keys were skipped at the front: the next call continues after them.
    pub(super) fn pop(&mut self) -> Option<u32> {
        for _ in 0..PASSED_MAX {
            let is_sifting = self.is_sifting();
            let (word, is_sifted) = match self.sifted.pop() {
                Some(word) => (word, is_sifting),
                None if is_sifting => (self.pop_unsifted()?, false),
                None => (self.words.pop()?, false),
            };
            // If words are equal, the oldest belongs to the key that departed first.
            let has_departed = !is_sifted && self.departed.remove(word)
                || is_sifting && self.departed_since.remove(word);
            self.end_sifting();
            if !has_departed {
                return Some(word);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_core::base::random::Random;
    use std::collections::HashMap;

    /// Returns a hash whose short hash is the number `name`.
    fn hash(name: u32) -> u64 {
        u64::from(name >> 16) << 48 | u64::from(name & 0xffff)
    }

    /// Adds, removes and re-adds random names, and removes the oldest from time to time, in parallel with a model
    /// list that is searched for each key that leaves.
    fn compare(names: u64, keys_max: usize, leaving_percent: u64, seed: u64) -> usize {
        let mut random = Random::new(seed);
        let (mut queue, mut model) = (NewKeyQueue::default(), Vec::<(u32, u32)>::new());
        let mut lives = HashMap::<u32, u32>::new();
        let (mut departures, mut rounds_of_sifting, mut was_sifting) = (0, 0, false);
        for _ in 0..if cfg!(miri) { 2_000 } else { 30_000 } {
            let name = random.below(names) as u32;
            let standing = model.iter().position(|(other, _)| *other == name);
            match standing {
                Some(at) if random.below(100) < leaving_percent => {
                    model.remove(at);
                    queue.depart(hash(name));
                    departures += 1;
                }
                Some(_) => {}
                None => {
                    let life = lives.entry(name).or_default();
                    *life += 1;
                    model.push((name, *life));
                    queue.push(hash(name));
                }
            }
            while model.len() > keys_max {
                let (name, _) = model.remove(0);
                assert_eq!(queue.pop(), Some(shorten(hash(name))), "seed {seed}");
            }
            assert_eq!(queue.len(), model.len());
            let stale = queue.words() - queue.len();
            let stale_max = queue.len().max(keys_max) / 2 + 2 * DEPARTED_SLACK;
            assert!(stale <= stale_max, "{stale} of {}", queue.words());
            rounds_of_sifting += usize::from(queue.is_sifting() && !was_sifting);
            was_sifting = queue.is_sifting();
        }
        assert!(departures > 0);
        while let Some((name, _)) = (!model.is_empty()).then(|| model.remove(0)) {
            assert_eq!(queue.pop(), Some(shorten(hash(name))), "seed {seed}");
        }
        assert_eq!((queue.len(), queue.pop(), queue.words()), (0, None, 0));
        assert!(queue.departed.is_empty() && queue.departed_since.is_empty());
        rounds_of_sifting
    }

    #[test]
    fn keys_leave_in_the_order_in_which_their_present_lives_began() {
        for seed in 1..=2 {
            for leaving_percent in [5, 60, 95] {
                compare(50, 20, leaving_percent, seed);
                compare(100_000, 700, leaving_percent, seed);
                let mut rounds = compare(3_000, 1_000, leaving_percent, seed);
                // With fewer names than `keys_max`, nothing is taken from the queue before the end.
                rounds += compare(50, 60, leaving_percent, seed);
                rounds += compare(3_000, 4_000, leaving_percent, seed);
                assert!(rounds > 3 || cfg!(miri), "{rounds} rounds of sifting");
            }
        }
    }
}
