//! HeavyKeeper: the most frequently added elements, after Yang et al., "HeavyKeeper: An Accurate Algorithm for
//! Finding Top-k Elephant Flows" (USENIX ATC 2018).
//!
//! `depth` rows of `width` counters, each with the fingerprint of the element that it counts. An element that meets
//! another's counter lowers it with a probability of `decay` to the power of the count, so that rare elements fade
//! and frequent ones stay; at zero the counter gets the new element's fingerprint. In addition to the rows, a heap,
//! lowest count first, keeps the names of the `k` most frequent elements. The heap has `k` slots from the start,
//! where slots without a name have a count of zero, and names sink in it as in Redis's module, so that among names
//! with equal counts the same one is removed first.
//!
//! Instead of a random decision for each unit of an increment, the number of decisions until the next hit is
//! sampled from its geometric distribution: a large count costs no more than the hits. The caller passes in
//! randomness.

use std::collections::HashSet;
use std::ops::Range;

use super::cut::things_in;
use super::{COUNTERS_BYTES_MAX, SketchCodec, SketchCut, SketchDecoder, is_available};
use crate::base::random::Random;
use crate::structures::murmur::murmur32;

/// Seed of the hash for fingerprints; the hashes of rows use the row's number as the seed.
const FINGERPRINT_SEED: u32 = 1919;

/// The parameters of a sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopKParams {
    k: u32,
    width: u32,
    depth: u32,
    decay: f64,
}

impl TopKParams {
    /// Plans a sketch of the `k` most frequent elements, with `depth` rows of `width` counters. Returns `None` if
    /// they would take too much memory.
    pub fn new(k: u32, width: u32, depth: u32, decay: f64) -> Option<TopKParams> {
        const NAME_BYTES: u64 = 24;
        let counters = u64::from(width) * u64::from(depth);
        let bytes = counters
            .checked_mul(8)?
            .checked_add(u64::from(k) * NAME_BYTES)?;
        let makes_sense = k > 0 && width > 0 && depth > 0 && decay > 0.0 && decay <= 1.0;
        (makes_sense && bytes <= COUNTERS_BYTES_MAX && is_available(bytes)).then_some(TopKParams {
            k,
            width,
            depth,
            decay,
        })
    }

    /// Creates the empty sketch that was planned.
    pub fn build(&self) -> TopK {
        TopK {
            plan: *self,
            counters: vec![[0; 2]; self.width as usize * self.depth as usize],
            fingerprints: vec![0; self.k as usize],
            names: vec![
                Name {
                    count: 0,
                    element: Box::default(),
                };
                self.k as usize
            ],
            cut: SketchCut::default(),
        }
    }
}

/// The fingerprint of the counted element, and the count. Plain numbers, so that the system provides zeroed memory
/// without touching it.
type TopKCounter = [u32; 2];
const FINGERPRINT: usize = 0;
const COUNT: usize = 1;

/// A slot of the heap; a slot without a name has a count of zero.
#[derive(Clone)]
struct Name {
    count: u32,
    element: Box<[u8]>,
}

/// The most frequent elements, see the module.
#[derive(Clone)]
pub struct TopK {
    plan: TopKParams,
    counters: Vec<TopKCounter>,
    /// Fingerprints of the names, in the same order; separate so that a search reads few bytes.
    fingerprints: Vec<u32>,
    /// A heap: no name has a lower count than the one at half its position.
    names: Vec<Name>,
    cut: SketchCut,
}

fn fingerprint(element: &[u8]) -> u32 {
    murmur32(element, FINGERPRINT_SEED)
}

impl TopK {
    /// Returns the number of names, width and depth of the counters, and the decay.
    pub fn settings(&self) -> (u32, u32, u32, f64) {
        let TopKParams {
            k,
            width,
            depth,
            decay,
        } = self.plan;
        (k, width, depth, decay)
    }

    fn places<'e>(&self, element: &'e [u8]) -> impl Iterator<Item = usize> + use<'e> {
        let (width, depth) = (self.plan.width, self.plan.depth);
        (0..depth).map(move |row| {
            row as usize * width as usize + (murmur32(element, row) % width) as usize
        })
    }

    /// Adds an element `times` times. Returns the name that was removed to make room for it, if any.
    pub fn add(&mut self, element: &[u8], times: u32, random: &mut Random) -> Option<Box<[u8]>> {
        let fingerprint = fingerprint(element);
        let mut best = 0;
        for place in self.places(element) {
            let at = (place * size_of::<TopKCounter>()) as u64;
            self.touch(at..at + 1);
            let Some(counter) = self.counters.get_mut(place) else {
                continue;
            };
            if counter[COUNT] == 0 {
                *counter = [fingerprint, times];
            } else if counter[FINGERPRINT] == fingerprint {
                counter[COUNT] = counter[COUNT].saturating_add(times);
            } else if let Some(left) = wear_down(counter, times, self.plan.decay, random) {
                *counter = [fingerprint, left];
            } else {
                continue;
            }
            best = best.max(counter[COUNT]);
        }
        if best == 0 || best < self.lowest() {
            return None;
        }
        self.keep(element, fingerprint, best)
    }

    /// Returns the count that a new name must reach to enter the heap.
    fn lowest(&self) -> u32 {
        self.names.first().map_or(0, |name| name.count)
    }

    fn position(&self, element: &[u8], fingerprint: u32) -> Option<usize> {
        let same = |(at, other): (usize, &u32)| {
            let is_same = *other == fingerprint && {
                let name = self.names.get(at)?;
                name.count > 0 && *name.element == *element
            };
            is_same.then_some(at)
        };
        self.fingerprints.iter().enumerate().find_map(same)
    }

    fn keep(&mut self, element: &[u8], fingerprint: u32, count: u32) -> Option<Box<[u8]>> {
        if let Some(at) = self.position(element, fingerprint) {
            // Not the maximum of both counts, because the counters may have been lowered meanwhile.
            self.names[at].count = count;
            self.sift_down(at);
            self.sift_up(at);
            return None;
        }
        let name = Name {
            count,
            element: element.into(),
        };
        let gone = std::mem::replace(self.names.first_mut()?, name);
        self.fingerprints[0] = fingerprint;
        self.sift_down(0);
        (gone.count > 0).then_some(gone.element)
    }

    fn swap(&mut self, first: usize, second: usize) {
        self.names.swap(first, second);
        self.fingerprints.swap(first, second);
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.names[above].count <= self.names[at].count {
                return;
            }
            self.swap(above, at);
            at = above;
        }
    }

    /// Moves a name down in the heap, after names with lower counts, and initially after one with an equal count.
    fn sift_down(&mut self, mut at: usize) {
        let mut is_first = true;
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.names.len());
            let Some(lowest) = children.min_by_key(|child| self.names[*child].count) else {
                return;
            };
            let (own, below) = (self.names[at].count, self.names[lowest].count);
            if own < below || own == below && !is_first {
                return;
            }
            self.swap(at, lowest);
            (at, is_first) = (lowest, false);
        }
    }

    /// True if an element is among the most frequent ones.
    pub fn has(&self, element: &[u8]) -> bool {
        self.position(element, fingerprint(element)).is_some()
    }

    /// Returns how often an element was added, as far as the counters show.
    pub fn count(&self, element: &[u8]) -> u32 {
        let fingerprint = fingerprint(element);
        let counters = self
            .places(element)
            .filter_map(|place| self.counters.get(place));
        let own = counters.filter(|counter| counter[FINGERPRINT] == fingerprint);
        own.map(|counter| counter[COUNT]).max().unwrap_or(0)
    }

    /// Returns the most frequent elements, highest count first; equal counts are in the order of the heap.
    pub fn list(&self) -> Vec<(&[u8], u32)> {
        let mut list: Vec<(&[u8], u32)> = self
            .names
            .iter()
            .filter(|name| name.count > 0)
            .map(|name| (&*name.element, name.count))
            .collect();
        // Stable: among equal counts, those nearer to the root come first.
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        list
    }

    /// Frees some names. Returns true while more are left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        self.fingerprints.clear();
        self.names.truncate(self.names.len().saturating_sub(budget));
        !self.names.is_empty()
    }
}

/// Lets an element lower another element's counter up to `times` times. Returns how many of these times are left when
/// the counter reaches zero; None if it does not.
fn wear_down(
    counter: &mut TopKCounter,
    times: u32,
    decay: f64,
    random: &mut Random,
) -> Option<u32> {
    let mut left = times;
    while left > 0 {
        let chance = decay.powf(f64::from(counter[COUNT]));
        let misses = misses_before_hit(chance, random);
        if misses >= u64::from(left) {
            return None;
        }
        left -= misses as u32;
        counter[COUNT] -= 1;
        if counter[COUNT] == 0 {
            // The decision that brought the counter to zero counts for the new element.
            return Some(left);
        }
        left -= 1;
        if decay == 1.0 {
            let hits = left.min(counter[COUNT]);
            counter[COUNT] -= hits;
            left -= hits;
            if counter[COUNT] == 0 {
                return Some(left + 1);
            }
        }
    }
    None
}

/// Samples the number of misses before a hit, where each decision is a hit with probability `chance`.
fn misses_before_hit(chance: f64, random: &mut Random) -> u64 {
    if chance >= 1.0 {
        return 0;
    }
    // From 0 up to but not including 1, so the logarithm is finite; a probability too small for the quotient gives
    // infinity.
    let misses = (-random.unit()).ln_1p() / (-chance).ln_1p();
    if misses.is_nan() {
        u64::MAX
    } else {
        misses as u64
    }
}

impl SketchCodec for TopK {
    /// The parameters, then the names in the order of their heap, including empty slots.
    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let (k, width, depth, decay) = self.settings();
        for number in [k, width, depth] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&decay.to_le_bytes());
        for name in &self.names {
            head.extend_from_slice(&name.count.to_le_bytes());
            head.extend_from_slice(&(name.element.len() as u32).to_le_bytes());
            head.extend_from_slice(&name.element);
        }
        head
    }

    fn data_bytes(&self) -> u64 {
        (self.counters.len() * size_of::<TopKCounter>()) as u64
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        let numbers = self.counters[things_in(bytes, size_of::<TopKCounter>())]
            .iter()
            .flat_map(|counter| [counter[FINGERPRINT], counter[COUNT]]);
        numbers.flat_map(u32::to_le_bytes).collect()
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<TopK> {
        let mut reader = SketchDecoder { rest: head };
        let (k, width, depth) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let decay = reader.f64()?;
        let counters = u64::from(width).checked_mul(u64::from(depth))?;
        if counters.checked_mul(8)? != data.len() as u64 {
            return None;
        }
        let mut sketch = TopKParams::new(k, width, depth, decay)?.build();
        let mut names = Vec::new();
        while !reader.rest.is_empty() {
            let (count, len) = (reader.u32()?, reader.u32()? as usize);
            let (element, rest) = reader.rest.split_at_checked(len)?;
            reader.rest = rest;
            if names.len() == k as usize || count == 0 && len > 0 {
                return None;
            }
            names.push((count, element));
        }
        let is_whole = names.len() == k as usize;
        let above = |at: usize| names[at.saturating_sub(1) / 2].0;
        if !(0..names.len()).all(|at| above(at) <= names[at].0) {
            return None;
        }
        let named = || names.iter().filter(|(count, _)| *count > 0);
        let distinct: HashSet<&[u8]> = named().map(|(_, element)| *element).collect();
        if distinct.len() != named().count() {
            return None;
        }
        for (at, (count, element)) in names.iter().enumerate().filter(|(_, name)| name.0 > 0) {
            // The names of a dump without empty slots are arranged as a heap again.
            let at = if is_whole { at } else { 0 };
            sketch.fingerprints[at] = fingerprint(element);
            sketch.names[at] = Name {
                count: *count,
                element: (*element).into(),
            };
            if !is_whole {
                sketch.sift_down(0);
            }
        }
        let mut reader = SketchDecoder { rest: data };
        for counter in &mut sketch.counters {
            counter[FINGERPRINT] = reader.u32()?;
            counter[COUNT] = reader.u32()?;
        }
        Some(sketch)
    }
}

#[cfg(test)]
mod tests;
