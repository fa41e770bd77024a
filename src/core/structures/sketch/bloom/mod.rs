//! A scalable Bloom filter: layers, each with half the error rate of the one before.
//!
//! An element sets some bits of the newest layer; it counts as present if all its bits are set in any layer. A layer
//! is full when it has as many elements as it was planned for. The first layer has half of the stated error rate, the
//! next a quarter and so on, so that the total rate stays below the stated one, however many layers there are:
//!
//! ```text
//! layer           0      1      2
//! elements        n      2n     4n          (growth 2)
//! error rate      e/2    e/4    e/8         sum < e
//! bits/element    -log2(error) / ln 2
//! ```
//!
//! Bits, hashes and the layout of dumps are those of Redis's filters, so that dumps are compatible both ways. Dumps
//! come from clients: every length and count in them is checked.

use std::f64::consts::LN_2;
use std::ops::Range;

use super::cut::part_of;
use super::{
    BYTES_MAX, CHUNK_BYTES_MAX, SketchCodec, SketchCut, SketchDecoder, is_available, locate,
};
use crate::structures::murmur::murmur64a;

const SEED: u64 = 0xc6a4_a793_5bd1_e995;

/// The error rate of each layer as a fraction of that of the layer before; of the first one as a fraction of the
/// stated rate.
const TIGHTENING: f64 = 0.5;

/// Flags of a dump: bits are not rounded to a power of two; hashes have 64 bits; the filter does not grow.
const NO_ROUND: u32 = 1;
const FORCE_64: u32 = 4;
const NO_SCALING: u32 = 8;

const HEADER_BYTES: usize = 20;
const LAYER_HEADER_BYTES: usize = 53;

/// The reason why an element was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The filter is full and does not grow.
    Full,
    /// The filter would grow beyond its memory limit.
    NoMemory,
}

/// The parameters of a layer.
#[derive(Clone, Copy, Debug)]
struct LayerPlan {
    capacity: u64,
    error_rate: f64,
    hashes: u32,
    bytes: u64,
    len: u64,
}

impl LayerPlan {
    fn new(capacity: u64, error_rate: f64) -> Option<LayerPlan> {
        if capacity == 0 || !(error_rate > 0.0 && error_rate < 1.0) {
            return None;
        }
        let bits = capacity as f64 * bits_per_element(error_rate);
        let bytes = (bits as u64).max(1).div_ceil(64) * 8;
        let plan = LayerPlan {
            capacity,
            error_rate,
            hashes: (bits_per_element(error_rate) * LN_2).ceil() as u32,
            bytes,
            len: 0,
        };
        (bytes <= BYTES_MAX).then_some(plan)
    }

    fn build(&self) -> Layer {
        Layer {
            bits: vec![0; self.bytes as usize],
            capacity: self.capacity,
            error_rate: self.error_rate,
            hashes: self.hashes,
            len: self.len,
        }
    }
}

fn bits_per_element(error_rate: f64) -> f64 {
    -error_rate.ln() / (LN_2 * LN_2)
}

/// The parameters of a filter.
#[derive(Clone, Debug)]
pub struct BloomParams {
    layers: Vec<LayerPlan>,
    len: u64,
    growth: u32,
    scales: bool,
}

impl BloomParams {
    /// Plans a filter for `capacity` elements; `growth` is the factor by which the next layer is larger, `None` for a
    /// filter of one layer. Returns `None` if it would take too much memory.
    pub fn new(capacity: u64, error_rate: f64, growth: Option<u32>) -> Option<BloomParams> {
        let share = if growth.is_some() { TIGHTENING } else { 1.0 };
        let layer = LayerPlan::new(capacity, error_rate * share)?;
        is_available(layer.bytes).then(|| BloomParams {
            layers: vec![layer],
            len: 0,
            growth: growth.unwrap_or(0),
            scales: growth.is_some(),
        })
    }

    /// Plans the filter of a dumped header; `None` if it is invalid or takes too much memory.
    pub fn from_header(header: &[u8]) -> Option<BloomParams> {
        let mut reader = SketchDecoder { rest: header };
        let (len, count) = (reader.u64()?, reader.u32()? as usize);
        let (options, growth) = (reader.u32()?, reader.u32()?);
        let is_known = options & !NO_SCALING == NO_ROUND | FORCE_64;
        if !is_known || count == 0 || reader.rest.len() != count.checked_mul(LAYER_HEADER_BYTES)? {
            return None;
        }
        let (mut layers, mut bytes_total, mut len_total) = (Vec::new(), 0_u64, 0_u64);
        for _ in 0..count {
            let (bytes, bits, layer_len) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let (error_rate, _bits_per_element) = (reader.f64()?, reader.f64()?);
            let (hashes, capacity) = (reader.u32()?, reader.u64()?);
            let [rounded_bits] = reader.take()?;
            if !(error_rate > 0.0 && error_rate < 1.0) || capacity == 0 || rounded_bits != 0 {
                return None;
            }
            let hashes_expected = (bits_per_element(error_rate) * LN_2).ceil() as u32;
            // Logarithms computed by other libraries may differ in the last bit, so the number of hashes may differ
            // by one.
            if hashes == 0 || hashes.abs_diff(hashes_expected) > 1 {
                return None;
            }
            if bytes == 0 || bytes > BYTES_MAX || bytes % 8 != 0 || bits != bytes * 8 {
                return None;
            }
            bytes_total = bytes_total.checked_add(bytes)?;
            len_total = len_total.checked_add(layer_len)?;
            layers.push(LayerPlan {
                capacity,
                error_rate,
                hashes,
                bytes,
                len: layer_len,
            });
        }
        (len_total == len && is_available(bytes_total)).then_some(BloomParams {
            layers,
            len,
            growth,
            scales: options & NO_SCALING == 0,
        })
    }

    /// Creates the empty filter that was planned.
    pub fn build(&self) -> Bloom {
        Bloom {
            layers: self.layers.iter().map(LayerPlan::build).collect(),
            len: self.len,
            growth: self.growth,
            scales: self.scales,
            cut: SketchCut::default(),
        }
    }
}

#[derive(Clone)]
struct Layer {
    bits: Vec<u8>,
    capacity: u64,
    error_rate: f64,
    hashes: u32,
    len: u64,
}

/// Two hashes of an element, which determine its bits in every layer.
#[derive(Clone, Copy)]
struct Hashes(u64, u64);

impl Hashes {
    fn of(element: &[u8]) -> Hashes {
        let first = murmur64a(element, SEED);
        Hashes(first, murmur64a(element, first))
    }
}

impl Layer {
    fn positions(&self, hashes: Hashes) -> impl Iterator<Item = (usize, u8)> + use<> {
        let bits = (self.bits.len() as u64 * 8).max(1);
        (0..u64::from(self.hashes)).map(move |number| {
            let bit = hashes.0.wrapping_add(number.wrapping_mul(hashes.1)) % bits;
            ((bit / 8) as usize, 1 << (bit % 8))
        })
    }

    fn has(&self, hashes: Hashes) -> bool {
        self.positions(hashes)
            .all(|(byte, mask)| self.bits.get(byte).is_some_and(|bits| bits & mask != 0))
    }

    fn add(&mut self, hashes: Hashes) {
        for (byte, mask) in self.positions(hashes) {
            if let Some(bits) = self.bits.get_mut(byte) {
                *bits |= mask;
            }
        }
        self.len += 1;
    }
}

/// A Bloom filter, see the module.
#[derive(Clone)]
pub struct Bloom {
    layers: Vec<Layer>,
    len: u64,
    growth: u32,
    scales: bool,
    cut: SketchCut,
}

impl Bloom {
    /// True if an element may have been added; if false, it certainly was not.
    pub fn has(&self, element: &[u8]) -> bool {
        let hashes = Hashes::of(element);
        // The newest layer first: it is the largest.
        self.layers.iter().rev().any(|layer| layer.has(hashes))
    }

    /// Adds an element. Returns false if the element seems to exist already.
    pub fn add(&mut self, element: &[u8]) -> Result<bool, NotAdded> {
        let hashes = Hashes::of(element);
        if self.layers.iter().rev().any(|layer| layer.has(hashes)) {
            return Ok(false);
        }
        let newest = self.layers.last().ok_or(NotAdded::NoMemory)?;
        if newest.len >= newest.capacity {
            if !self.scales {
                return Err(NotAdded::Full);
            }
            let plan = newest
                .capacity
                .checked_mul(u64::from(self.growth))
                .and_then(|capacity| LayerPlan::new(capacity, newest.error_rate * TIGHTENING))
                .filter(|plan| self.bits_bytes() + plan.bytes <= BYTES_MAX)
                .filter(|plan| is_available(plan.bytes));
            self.layers.push(plan.ok_or(NotAdded::NoMemory)?.build());
        }
        self.touch_newest(hashes);
        if let Some(newest) = self.layers.last_mut() {
            newest.add(hashes);
        }
        self.len = self.len.saturating_add(1);
        Ok(true)
    }

    /// Announces to a snapshot in progress that bits of an element will be set in the newest layer.
    #[inline]
    fn touch_newest(&mut self, hashes: Hashes) {
        if self.cut.is_open()
            && let Some(newest) = self.layers.last()
        {
            let first = self.bits_bytes() - newest.bits.len() as u64;
            for (byte, _) in newest.positions(hashes) {
                let at = first + byte as u64;
                self.touch(at..at + 1);
            }
        }
    }

    /// Returns the number of elements added.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no element was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the total capacity of all layers.
    pub fn capacity(&self) -> u64 {
        let capacities = self.layers.iter().map(|layer| layer.capacity);
        capacities.fold(0, u64::saturating_add)
    }

    /// Returns the number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Describes each layer in a line, in the form of Redis's module.
    pub fn describe_layers(&self) -> impl ExactSizeIterator<Item = String> {
        self.layers.iter().map(|layer| {
            let bytes = layer.bits.len();
            format!(
                "bytes:{bytes} bits:{} hashes:{} hashwidth:64 capacity:{} size:{} ratio:{}",
                bytes * 8,
                layer.hashes,
                layer.capacity,
                layer.len,
                layer.error_rate,
            )
        })
    }

    /// Returns the growth factor of the next layer; `None` if the filter does not grow.
    pub fn growth(&self) -> Option<u32> {
        self.scales.then_some(self.growth)
    }

    fn bits_bytes(&self) -> u64 {
        self.layers
            .iter()
            .map(|layer| layer.bits.len() as u64)
            .sum()
    }

    /// Returns the filter's size in bytes, computed as in Redis's module.
    pub fn memory_bytes(&self) -> u64 {
        32 + 64 * self.layers.len() as u64 + self.bits_bytes()
    }

    /// Returns the header of a dump.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES + LAYER_HEADER_BYTES * self.layers.len());
        let options = NO_ROUND | FORCE_64 | if self.scales { 0 } else { NO_SCALING };
        header.extend_from_slice(&self.len.to_le_bytes());
        header.extend_from_slice(&(self.layers.len() as u32).to_le_bytes());
        header.extend_from_slice(&options.to_le_bytes());
        header.extend_from_slice(&self.growth.to_le_bytes());
        for layer in &self.layers {
            let bytes = layer.bits.len() as u64;
            header.extend_from_slice(&bytes.to_le_bytes());
            header.extend_from_slice(&(bytes * 8).to_le_bytes());
            header.extend_from_slice(&layer.len.to_le_bytes());
            header.extend_from_slice(&layer.error_rate.to_le_bytes());
            header.extend_from_slice(&bits_per_element(layer.error_rate).to_le_bytes());
            header.extend_from_slice(&layer.hashes.to_le_bytes());
            header.extend_from_slice(&layer.capacity.to_le_bytes());
            header.push(0);
        }
        header
    }

    /// Returns the piece of the bits at a cursor, which counts bytes from 1; `None` at the end.
    pub fn chunk(&self, cursor: u64) -> Option<&[u8]> {
        let (layer, at) = locate(self.layers.iter().map(|layer| layer.bits.len()), cursor)?;
        let rest = self.layers.get(layer)?.bits.get(at..)?;
        rest.get(..rest.len().min(CHUNK_BYTES_MAX))
    }

    /// Restores a piece of a dump at its cursor. Returns false if the piece does not fit there.
    pub fn load_chunk(&mut self, cursor: u64, chunk: &[u8]) -> bool {
        let lengths = self.layers.iter().map(|layer| layer.bits.len());
        let Some((layer, at)) = locate(lengths, cursor) else {
            return false;
        };
        self.touch(cursor - 1..cursor - 1 + chunk.len() as u64);
        let room = self
            .layers
            .get_mut(layer)
            .and_then(|layer| layer.bits.get_mut(at..))
            .and_then(|rest| rest.get_mut(..chunk.len()));
        room.map(|room| room.copy_from_slice(chunk)).is_some()
    }
}

impl SketchCodec for Bloom {
    fn head(&self) -> Vec<u8> {
        self.header()
    }

    fn data_bytes(&self) -> u64 {
        self.bits_bytes()
    }

    fn part(&self, bytes: Range<u64>) -> Vec<u8> {
        part_of(self.layers.iter().map(|layer| &*layer.bits), bytes)
    }

    fn cut(&mut self) -> &mut SketchCut {
        &mut self.cut
    }

    fn from_parts(head: &[u8], data: &[u8]) -> Option<Bloom> {
        let plan = BloomParams::from_header(head)?;
        let bytes: u64 = plan.layers.iter().map(|layer| layer.bytes).sum();
        if bytes != data.len() as u64 {
            return None;
        }
        let mut bloom = plan.build();
        let mut rest = data;
        for layer in &mut bloom.layers {
            let (bits, behind) = rest.split_at_checked(layer.bits.len())?;
            layer.bits.copy_from_slice(bits);
            rest = behind;
        }
        Some(bloom)
    }
}

#[cfg(test)]
mod tests;
