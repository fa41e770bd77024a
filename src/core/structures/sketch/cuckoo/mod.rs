//! A cuckoo filter: one byte for each element, in one of two buckets, so that elements can be removed again.
//!
//! An element's fingerprint, 1 to 255, may be in the bucket selected by its hash or in a second one, which follows
//! from the first bucket and the fingerprint alone; so a fingerprint can be moved without knowing its element:
//!
//! ```text
//! other bucket = bucket ^ fingerprint * 0x5bd1e995        (both modulo the number of buckets, a power of two)
//! ```
//!
//! When both buckets are full, fingerprints are moved to their other buckets, up to a limit of moves; if that finds
//! no free slot the moves are reverted and a further layer of buckets is added. Removing many elements moves the
//! fingerprints of the last layer back into earlier ones, and frees it when it is empty. Hash, buckets and the layout
//! of dumps are those of Redis's filters.

use std::ops::Range;

use super::cut::part_of;
use super::{
    BYTES_MAX, CHUNK_BYTES_MAX, SketchCodec, SketchCut, SketchDecoder, is_available, locate,
};
use crate::structures::murmur::murmur64a;

/// Maximum number of layers of a filter.
const LAYERS_MAX: usize = u16::MAX as usize;

/// Maximum number of fingerprints in a bucket, which fits the field of a dump.
pub const BUCKET_SIZE_MAX: u16 = 255;
/// Maximum growth factor from one layer to the next, which fits the field of a dump.
pub const EXPANSION_MAX: u16 = 32_768;

const HEADER_BYTES: usize = 38;

/// The parameters of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooParams {
    /// Number of buckets of the first layer: a power of two.
    buckets: u64,
    bucket_size: u16,
    moves_max: u16,
    /// Growth factor of each further layer: a power of two, or zero if the filter does not grow.
    expansion: u16,
    layers: u16,
    len: u64,
    removed: u64,
}

impl CuckooParams {
    /// Plans a filter for `capacity` elements. Returns `None` if it would take too much memory.
    pub fn new(
        capacity: u64,
        bucket_size: u16,
        moves_max: u16,
        expansion: u16,
    ) -> Option<CuckooParams> {
        if bucket_size == 0 || bucket_size > BUCKET_SIZE_MAX || expansion > EXPANSION_MAX {
            return None;
        }
        let expansion = match expansion {
            0 => 0,
            some => some.checked_next_power_of_two()?,
        };
        CuckooParams {
            buckets: (capacity / u64::from(bucket_size)).checked_next_power_of_two()?,
            bucket_size,
            moves_max,
            expansion,
            layers: 1,
            len: 0,
            removed: 0,
        }
        .checked()
    }

    /// Plans the filter of a dumped header; `None` if it is invalid or takes too much memory.
    pub fn from_header(header: &[u8]) -> Option<CuckooParams> {
        let mut reader = SketchDecoder { rest: header };
        let (len, buckets, removed) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let layers = u16::try_from(reader.u64()?).ok()?;
        let (bucket_size, moves_max, expansion) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let makes_sense = reader.rest.is_empty()
            && (1..=BUCKET_SIZE_MAX).contains(&bucket_size)
            && moves_max > 0
            && buckets.is_power_of_two()
            && (expansion == 0 && layers == 1
                || expansion <= EXPANSION_MAX && expansion.is_power_of_two() && layers > 0);
        let plan = CuckooParams {
            buckets,
            bucket_size,
            moves_max,
            expansion,
            layers,
            len,
            removed,
        };
        plan.checked().filter(|_| makes_sense)
    }

    fn checked(self) -> Option<CuckooParams> {
        let mut total = 0_u64;
        for layer in 0..self.layers {
            total = total.checked_add(self.layer_bytes(usize::from(layer))?)?;
            if total > BYTES_MAX {
                return None;
            }
        }
        is_available(total).then_some(self)
    }

    fn layer_bytes(&self, layer: usize) -> Option<u64> {
        let factor = u64::from(self.expansion).checked_pow(u32::try_from(layer).ok()?)?;
        let buckets = self.buckets.checked_mul(factor)?;
        buckets.checked_mul(u64::from(self.bucket_size))
    }

    /// Creates the empty filter that was planned.
    pub fn build(&self) -> Cuckoo {
        let layers = 0..usize::from(self.layers);
        let bytes = |layer| self.layer_bytes(layer).unwrap_or(0) as usize;
        Cuckoo {
            layers: layers.map(|layer| vec![0; bytes(layer)]).collect(),
            plan: *self,
            len: self.len,
            removed: self.removed,
            cut: SketchCut::default(),
        }
    }
}

/// The result of adding an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The element was added.
    Yes,
    /// The element seems to exist already.
    Exists,
    /// There is no free slot, and the filter does not grow.
    Full,
    /// The filter would grow beyond its memory limit.
    NoMemory,
}

/// The hash and the fingerprint of an element.
#[derive(Clone, Copy)]
struct CuckooElement {
    hash: u64,
    fingerprint: u8,
}

impl CuckooElement {
    fn of(element: &[u8]) -> CuckooElement {
        let hash = murmur64a(element, 0);
        CuckooElement {
            hash,
            fingerprint: (hash % 255 + 1) as u8,
        }
    }
}

fn other(fingerprint: u8, bucket: u64) -> u64 {
    bucket ^ u64::from(fingerprint).wrapping_mul(0x5bd1_e995)
}

/// A cuckoo filter, see the module.
#[derive(Clone)]
pub struct Cuckoo {
    layers: Vec<Vec<u8>>,
    plan: CuckooParams,
    len: u64,
    removed: u64,
    cut: SketchCut,
}

/// Returns the positions of a bucket in a layer.
fn bucket_at(layer: &[u8], bucket_size: usize, bucket: u64) -> std::ops::Range<usize> {
    let buckets = (layer.len() / bucket_size).max(1) as u64;
    let from = (bucket % buckets) as usize * bucket_size;
    from..from + bucket_size
}

/// Returns the position of a byte (a fingerprint, or zero for a free slot) in the two buckets of an element.
fn find(layer: &[u8], bucket_size: usize, element: CuckooElement, wanted: u8) -> Option<usize> {
    [element.hash, other(element.fingerprint, element.hash)]
        .into_iter()
        .find_map(|bucket| {
            let places = bucket_at(layer, bucket_size, bucket);
            let at = layer
                .get(places.clone())?
                .iter()
                .position(|byte| *byte == wanted)?;
            Some(places.start + at)
        })
}

impl Cuckoo {
    fn bucket_size(&self) -> usize {
        usize::from(self.plan.bucket_size)
    }

    /// True if an element may be present; if false, it certainly is not.
    pub fn has(&self, element: &[u8]) -> bool {
        self.has_fingerprint(CuckooElement::of(element))
    }

    fn has_fingerprint(&self, element: CuckooElement) -> bool {
        let bucket_size = self.bucket_size();
        self.layers
            .iter()
            .any(|layer| find(layer, bucket_size, element, element.fingerprint).is_some())
    }

    /// Returns how often an element may have been added, which is never too low.
    pub fn count(&self, element: &[u8]) -> u64 {
        let element = CuckooElement::of(element);
        let bucket_size = self.bucket_size();
        let mut count = 0;
        for layer in &self.layers {
            let first = bucket_at(layer, bucket_size, element.hash);
            let second = bucket_at(layer, bucket_size, other(element.fingerprint, element.hash));
            let in_bucket = |places: std::ops::Range<usize>| {
                let bucket = layer.get(places).unwrap_or(&[]);
                let same = bucket.iter().filter(|byte| **byte == element.fingerprint);
                same.count() as u64
            };
            count += in_bucket(first.clone());
            if second != first {
                count += in_bucket(second);
            }
        }
        count
    }

    /// Adds an element, once more if it exists already.
    pub fn add(&mut self, element: &[u8]) -> Added {
        self.add_fingerprint(CuckooElement::of(element))
    }

    /// Adds an element unless it seems to exist.
    pub fn add_new(&mut self, element: &[u8]) -> Added {
        let element = CuckooElement::of(element);
        if self.has_fingerprint(element) {
            return Added::Exists;
        }
        self.add_fingerprint(element)
    }

    fn add_fingerprint(&mut self, element: CuckooElement) -> Added {
        let is_there = self.put(element) || self.displace(element) || {
            if self.plan.expansion == 0 {
                return Added::Full;
            }
            if !self.grow() {
                return Added::NoMemory;
            }
            self.put(element)
        };
        if !is_there {
            return Added::NoMemory;
        }
        self.len = self.len.saturating_add(1);
        Added::Yes
    }

    /// Puts a fingerprint into a free slot of its buckets, in the newest layer that has one.
    fn put(&mut self, element: CuckooElement) -> bool {
        let bucket_size = self.bucket_size();
        for layer in (0..self.layers.len()).rev() {
            if let Some(at) = find(&self.layers[layer], bucket_size, element, 0) {
                self.touch_place(layer, at);
                self.layers[layer][at] = element.fingerprint;
                return true;
            }
        }
        false
    }

    /// Frees a slot in the newest layer by moving fingerprints to their other buckets. Returns false, and reverts
    /// everything, if the last fingerprint moved finds no slot either.
    fn displace(&mut self, element: CuckooElement) -> bool {
        let bucket_size = self.bucket_size();
        let moves_max = self.plan.moves_max;
        let Some(last) = self.layers.len().checked_sub(1) else {
            return false;
        };
        let mut homeless = element.fingerprint;
        let mut bucket = element.hash;
        let mut moved = Vec::new();
        for turn in 0..usize::from(moves_max) {
            let at = bucket_at(&self.layers[last], bucket_size, bucket).start + turn % bucket_size;
            self.touch_place(last, at);
            let layer = &mut self.layers[last];
            std::mem::swap(&mut layer[at], &mut homeless);
            moved.push(at);
            let buckets = (layer.len() / bucket_size) as u64;
            bucket = other(homeless, bucket % buckets);
            let places = bucket_at(layer, bucket_size, bucket);
            if let Some(free) = layer[places.clone()].iter().position(|byte| *byte == 0) {
                self.touch_place(last, places.start + free);
                self.layers[last][places.start + free] = homeless;
                return true;
            }
        }
        for at in moved.into_iter().rev() {
            std::mem::swap(&mut self.layers[last][at], &mut homeless);
        }
        false
    }

    fn grow(&mut self) -> bool {
        let bytes = self
            .plan
            .layer_bytes(self.layers.len())
            .filter(|_| self.layers.len() < LAYERS_MAX)
            .filter(|bytes| {
                let taken: usize = self.layers.iter().map(Vec::len).sum();
                taken as u64 + bytes <= BYTES_MAX && is_available(*bytes)
            });
        if let Some(bytes) = bytes {
            self.layers.push(vec![0; bytes as usize]);
        }
        bytes.is_some()
    }

    /// Removes one occurrence of an element. Returns false if the element is not found. Removing an element that was
    /// never added may remove another one.
    pub fn remove(&mut self, element: &[u8]) -> bool {
        let element = CuckooElement::of(element);
        let bucket_size = self.bucket_size();
        for layer in (0..self.layers.len()).rev() {
            let buckets = &self.layers[layer];
            if let Some(at) = find(buckets, bucket_size, element, element.fingerprint) {
                self.touch_place(layer, at);
                self.layers[layer][at] = 0;
                self.len = self.len.saturating_sub(1);
                self.removed = self.removed.saturating_add(1);
                if self.layers.len() > 1 && self.removed > self.len / 10 {
                    self.compact();
                }
                return true;
            }
        }
        false
    }

    /// Moves fingerprints of the last layers into earlier ones, and frees layers that become empty.
    fn compact(&mut self) {
        let bucket_size = self.bucket_size();
        while self.layers.len() > 1 {
            let last = self.layers.len() - 1;
            // Announced at once for the whole layer, as moving takes longer than a copy.
            self.touch(self.first_byte(last)..self.data_bytes());
            let mut is_empty = true;
            for at in 0..self.layers[last].len() {
                let fingerprint = self.layers[last][at];
                if fingerprint == 0 {
                    continue;
                }
                // The number of buckets of an earlier layer divides that of the last one, so the bucket's number
                // contains enough of the hash.
                let element = CuckooElement {
                    hash: (at / bucket_size) as u64,
                    fingerprint,
                };
                let place = (0..last).find_map(|layer| {
                    let free = find(&self.layers[layer], bucket_size, element, 0)?;
                    Some((layer, free))
                });
                match place {
                    Some((layer, free)) => {
                        self.touch_place(layer, free);
                        self.layers[layer][free] = fingerprint;
                        self.layers[last][at] = 0;
                    }
                    None => is_empty = false,
                }
            }
            if !is_empty {
                break;
            }
            self.layers.pop();
        }
        self.removed = 0;
    }

    /// Returns the bytes of all layers before this one, that is, its offset.
    fn first_byte(&self, layer: usize) -> u64 {
        let before = self.layers[..layer].iter();
        before.map(|layer| layer.len() as u64).sum()
    }

    /// Announces to a snapshot in progress that a slot in a layer will change.
    #[inline]
    fn touch_place(&mut self, layer: usize, at: usize) {
        if self.cut.is_open() {
            let at = self.first_byte(layer) + at as u64;
            self.touch(at..at + 1);
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements removed since the filter was last compacted.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns the number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns the number of buckets of the first layer.
    pub fn buckets(&self) -> u64 {
        self.plan.buckets
    }

    /// Returns the fingerprints per bucket, the maximum number of moves, and the growth factor of layers.
    pub fn settings(&self) -> (u16, u16, u16) {
        (
            self.plan.bucket_size,
            self.plan.moves_max,
            self.plan.expansion,
        )
    }

    /// Returns the filter's size in bytes, computed as in Redis's module.
    pub fn memory_bytes(&self) -> u64 {
        let layers: u64 = self
            .layers
            .iter()
            .map(|layer| 16 + layer.len() as u64)
            .sum();
        40 + layers
    }

    /// Returns the header of a dump.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        let (bucket_size, moves_max, expansion) = self.settings();
        for number in [
            self.len,
            self.plan.buckets,
            self.removed,
            self.layers.len() as u64,
        ] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        for number in [bucket_size, moves_max, expansion] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header
    }

    /// Returns the piece of the buckets at a cursor, which counts bytes from 1; `None` at the end.
    pub fn chunk(&self, cursor: u64) -> Option<&[u8]> {
        let (layer, at) = locate(self.layers.iter().map(Vec::len), cursor)?;
        let rest = self.layers.get(layer)?.get(at..)?;
        rest.get(..rest.len().min(CHUNK_BYTES_MAX))
    }

    /// Restores a piece of a dump at its cursor. Returns false if the piece does not fit there.
    pub fn load_chunk(&mut self, cursor: u64, chunk: &[u8]) -> bool {
        let Some((layer, at)) = locate(self.layers.iter().map(Vec::len), cursor) else {
            return false;
        };
        self.touch(cursor - 1..cursor - 1 + chunk.len() as u64);
        let room = self
            .layers
            .get_mut(layer)
            .and_then(|layer| layer.get_mut(at..))
            .and_then(|rest| rest.get_mut(..chunk.len()));
        room.map(|room| room.copy_from_slice(chunk)).is_some()
    }
}

impl SketchCodec for Cuckoo {
    fn head(&self) -> Vec<u8> {
        self.header()
    }

    fn data_bytes(&self) -> u64 {
        self.first_byte(self.layers.len())
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        part_of(self.layers.iter().map(|layer| &**layer), bytes)
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<Cuckoo> {
        let plan = CuckooParams::from_header(head)?;
        let bytes = (0..usize::from(plan.layers)).try_fold(0_u64, |sum, layer| {
            sum.checked_add(plan.layer_bytes(layer)?)
        })?;
        // The number of elements is that of the header: a filter whose pieces are being loaded does not contain all
        // of them.
        if bytes != data.len() as u64 {
            return None;
        }
        let mut cuckoo = plan.build();
        let mut rest = data;
        for layer in &mut cuckoo.layers {
            let (buckets, behind) = rest.split_at_checked(layer.len())?;
            layer.copy_from_slice(buckets);
            rest = behind;
        }
        Some(cuckoo)
    }
}

#[cfg(test)]
mod tests;
