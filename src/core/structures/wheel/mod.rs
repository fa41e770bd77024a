//! A timer wheel: finds which of many items are due, in bounded slices, at eight bytes per item.
//!
//! ```text
//! level 0    512 slots of 16 ms     the next 8 s
//! level 1    512 slots of 8 s       the next 70 min
//! level 2    512 slots of 70 min    the next 25 days
//! beyond     a map of slots of 70 min
//! ```
//!
//! A slot of a higher level is distributed to the levels below when its time begins, so every item ends in a slot of
//! 16 ms. For that distribution, the last 18 bits of the item's deadline (in slots of level 0) must be kept. They
//! replace bits 16-33 of the item: an item is a hash, of which tables use only the highest and the lowest bits, so
//! that the same entries are found without the replaced bits; see [`ITEM`].
//!
//! The wheel reads no clock. No item has to be cancelled, as the code that handles a fired item checks whether the
//! item is still valid; where memory is scarce, an obsolete item can be removed, see [`Wheel::cancel`].
//!
//! Invariants: items never fire before their deadline, and at most one slot of level 0 after it if the wheel is
//! advanced in time; a slot has its bit set if and only if it holds items; an empty wheel has no memory. `now_ms`
//! must not go backwards for long: while it does, nothing fires.

use std::collections::BTreeMap;

use crate::alloc::account::size_class;
use crate::structures::parted::{PART_BITS, PARTS, Parted, Word};

/// The bits of an item that the wheel returns; the others are returned as zero.
pub const ITEM: u64 = !(OFFSET_MASK << OFFSET_SHIFT);

const OFFSET_SHIFT: u32 = 16;
const OFFSET_MASK: u64 = (1 << (2 * SLOT_BITS)) - 1;

/// Milliseconds in a slot of level 0.
pub const TICK_MS: u64 = 16;

const SLOT_BITS: u32 = 9;
const SLOTS: u64 = 1 << SLOT_BITS;
const LEVELS: usize = 3;

/// Number of items that are moved to a lower level in the time of firing one item.
const MOVES_FOR_ONE: usize = 8;

/// The items of one slot of the wheel.
type Slot = Parted<u64>;

/// The lowest bit by which the items of a slot are partitioned: the bits from here on belong to the item in every
/// stored form.
const PARTING_SHIFT: u32 = OFFSET_SHIFT + 2 * SLOT_BITS;

impl Word for u64 {
    const DEPTH_MAX: u32 = (u64::BITS - PARTING_SHIFT) / PART_BITS;

    fn part(self, depth: u32) -> usize {
        (self >> (PARTING_SHIFT + PART_BITS * depth)) as usize % PARTS
    }
}

/// A timer wheel, see the module.
pub struct Wheel {
    /// The first tick that has not been processed. Tick `n` is due from `n * TICK_MS` on.
    next: u64,
    len: usize,
    levels: [WheelLevel; LEVELS],
    /// Items beyond the last level, by the number of slots of level 2 since time zero.
    beyond: BTreeMap<u64, Slot>,
}

/// An item removed by [`Wheel::take_soonest`].
pub struct WheelItem {
    /// The item, with zeros in place of the bits that are not kept.
    pub item: u64,
    /// The low bits of the tick at which the item would have fired.
    offset: u64,
}

/// 512 slots; the memory for 64 of them is allocated and freed with their items.
#[derive(Default)]
struct WheelLevel {
    used: [u64; 8],
    pages: [Option<Box<[Slot; 64]>>; 8],
}

impl Wheel {
    /// Creates an empty wheel, for deadlines after `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            next: now_ms / TICK_MS + 1,
            len: 0,
            levels: Default::default(),
            beyond: BTreeMap::new(),
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item to fire when `deadline_ms` has passed; if it has passed already, the item fires at the next call
    /// of [`Wheel::advance`].
    pub fn arm(&mut self, deadline_ms: u64, item: u64) {
        // Rounded up: a tick fires once the time reaches the start of the tick.
        let tick = deadline_ms.div_ceil(TICK_MS).max(self.next);
        self.len += 1;
        self.place(tick, item);
    }

    /// Fires items that are due at `now_ms`, at most `budget`. Returns whether more are due.
    pub fn advance(&mut self, now_ms: u64, budget: usize, mut fire: impl FnMut(u64)) -> bool {
        let mut left = budget.saturating_mul(MOVES_FOR_ONE);
        let end = now_ms / TICK_MS + 1;
        while self.next < end {
            let event = self.next_event().unwrap_or(end).max(self.next);
            if event >= end {
                self.next = end;
                break;
            }
            self.next = event;
            if left == 0 || !self.cascade(&mut left) {
                return true;
            }
            let index = self.next % SLOTS;
            while let Some(item) = self.levels[0].pop(index) {
                self.len -= 1;
                fire(item & ITEM);
                left = left.saturating_sub(MOVES_FOR_ONE);
                if left == 0 && self.levels[0].is_used(index) {
                    return true;
                }
            }
            self.next += 1;
        }
        false
    }

    /// Returns a time before which nothing is due; None without items. The wheel need not be advanced earlier and
    /// should be advanced then, though possibly nothing fires.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.next_event().map(|tick| tick.max(self.next) * TICK_MS)
    }

    /// Removes and returns an item that is approximately the first to fire, from a sample of `looks` items of one
    /// slot; `draw` returns a random number below its argument.
    pub fn take_soonest(
        &mut self,
        looks: usize,
        draw: impl FnMut(usize) -> usize,
    ) -> Option<WheelItem> {
        let item = self.take_first(looks, draw)?;
        Some(WheelItem {
            item: item & ITEM,
            offset: offset(item),
        })
    }

    /// True if a removed item was armed for this deadline. Of other deadlines, one in 2^18 is a false positive.
    #[must_use]
    pub fn was_armed_for(&self, taken: &WheelItem, deadline_ms: u64) -> bool {
        let tick = deadline_ms.div_ceil(TICK_MS).max(self.next);
        taken.offset == tick & OFFSET_MASK
    }

    fn take_first(&mut self, looks: usize, mut draw: impl FnMut(usize) -> usize) -> Option<u64> {
        for (level, slots) in self.levels.iter_mut().enumerate() {
            let now = self.next >> (SLOT_BITS * level as u32);
            let Some(ahead) = slots.first_from(now % SLOTS) else {
                continue;
            };
            let slot = (now + ahead) % SLOTS;
            let item = slots.change(slot, |slot| slot.take_soonest(looks, &mut draw, offset))??;
            self.len -= 1;
            return Some(item);
        }
        let mut soonest = self.beyond.first_entry()?;
        let item = soonest.get_mut().take_soonest(looks, &mut draw, offset)?;
        if soonest.get().is_empty() {
            soonest.remove();
        }
        self.len -= 1;
        Some(item)
    }

    /// Removes an item that was armed for a deadline. Returns false if there is no such item, because it has fired or
    /// was armed for another deadline.
    pub fn cancel(&mut self, deadline_ms: u64, item: u64) -> bool {
        let tick = deadline_ms.div_ceil(TICK_MS);
        if tick < self.next {
            return false;
        }
        let item = with_offset(item, tick);
        // The item may still be on a higher level than the one where it would be put now.
        let is_found = self.levels.iter_mut().enumerate().any(|(level, slots)| {
            let shift = SLOT_BITS * level as u32;
            let is_within = (tick >> shift) - (self.next >> shift) < SLOTS;
            let slot = (tick >> shift) % SLOTS;
            is_within && slots.change(slot, |slot| slot.remove(item)) == Some(true)
        }) || self.cancel_beyond(tick, item);
        self.len -= usize::from(is_found);
        is_found
    }

    fn cancel_beyond(&mut self, tick: u64, item: u64) -> bool {
        let number = tick >> (2 * SLOT_BITS);
        let Some(slot) = self.beyond.get_mut(&number) else {
            return false;
        };
        let is_found = slot.remove(item);
        if slot.is_empty() {
            self.beyond.remove(&number);
        }
        is_found
    }

    /// Drops all items.
    pub fn clear(&mut self) {
        self.levels = Default::default();
        self.beyond = BTreeMap::new();
        self.len = 0;
    }

    /// Returns the bytes allocated beyond the wheel itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pages = self
            .levels
            .iter()
            .flat_map(|level| level.pages.iter().flatten());
        let near: usize = pages
            .map(|page| {
                size_class(size_of::<[Slot; 64]>())
                    + page.iter().map(Slot::memory_bytes).sum::<usize>()
            })
            .sum();
        // A map's node holds eleven pairs and is two thirds full on average.
        let far: usize = self
            .beyond
            .values()
            .map(|slot| slot.memory_bytes() + 50)
            .sum();
        near + far
    }

    /// Puts an item into the slot of its tick as seen from `next`.
    fn place(&mut self, tick: u64, item: u64) {
        let item = with_offset(item, tick);
        // Each level holds the items that are fewer than 512 of its slots ahead.
        for (level, slots) in self.levels.iter_mut().enumerate() {
            let shift = SLOT_BITS * level as u32;
            if (tick >> shift) - (self.next >> shift) < SLOTS {
                return slots.push((tick >> shift) % SLOTS, item);
            }
        }
        let slot = self.beyond.entry(tick >> (2 * SLOT_BITS));
        slot.or_insert(Slot::EMPTY).push(item);
    }

    /// Distributes the items of higher levels' slots that begin with tick `next` to lower levels. Returns whether
    /// that is complete; `left` limits the work.
    fn cascade(&mut self, left: &mut usize) -> bool {
        let next = self.next;
        if next.is_multiple_of(SLOTS * SLOTS) {
            let slot = next >> (2 * SLOT_BITS);
            while self.levels[2].is_used(slot % SLOTS) || self.beyond.contains_key(&slot) {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                let item = self.levels[2]
                    .pop(slot % SLOTS)
                    .or_else(|| self.pop_beyond(slot));
                if let Some(item) = item {
                    self.place(next | offset(item), item);
                }
            }
        }
        if next.is_multiple_of(SLOTS) {
            let slot = (next >> SLOT_BITS) % SLOTS;
            while self.levels[1].is_used(slot) {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                if let Some(item) = self.levels[1].pop(slot) {
                    self.place(next | (offset(item) % SLOTS), item);
                }
            }
        }
        true
    }

    fn pop_beyond(&mut self, slot: u64) -> Option<u64> {
        let items = self.beyond.get_mut(&slot)?;
        let item = items.pop();
        if items.is_empty() {
            self.beyond.remove(&slot);
        }
        item
    }

    /// Returns the first tick at which there is something to fire or to distribute.
    fn next_event(&self) -> Option<u64> {
        let near = self.levels.iter().enumerate().filter_map(|(level, slots)| {
            let shift = SLOT_BITS * level as u32;
            let now = self.next >> shift;
            Some((now + slots.first_from(now % SLOTS)?) << shift)
        });
        let far = self
            .beyond
            .first_key_value()
            .map(|(slot, _)| slot << (2 * SLOT_BITS));
        near.chain(far).min()
    }
}

fn offset(item: u64) -> u64 {
    item >> OFFSET_SHIFT & OFFSET_MASK
}

/// Returns an item in its stored form.
fn with_offset(item: u64, tick: u64) -> u64 {
    item & ITEM | (tick & OFFSET_MASK) << OFFSET_SHIFT
}

impl WheelLevel {
    fn is_used(&self, slot: u64) -> bool {
        self.used[slot as usize / 64] >> (slot % 64) & 1 != 0
    }

    fn push(&mut self, slot: u64, item: u64) {
        let (page, slot) = (slot as usize / 64, slot as usize % 64);
        let slots = self.pages[page].get_or_insert_with(|| Box::new([const { Slot::EMPTY }; 64]));
        slots[slot].push(item);
        self.used[page] |= 1 << slot;
    }

    fn pop(&mut self, slot: u64) -> Option<u64> {
        self.change(slot, Slot::pop)?
    }

    /// Changes a slot, if it has memory.
    fn change<R>(&mut self, slot: u64, change: impl FnOnce(&mut Slot) -> R) -> Option<R> {
        let (page, slot) = (slot as usize / 64, slot as usize % 64);
        let slots = self.pages[page].as_mut()?;
        let result = change(&mut slots[slot]);
        if slots[slot].is_empty() {
            self.used[page] &= !(1 << slot);
            if self.used[page] == 0 {
                self.pages[page] = None;
            }
        }
        Some(result)
    }

    /// Returns the distance from slot `start` to the first used slot, cyclically; None if no slot is used.
    fn first_from(&self, start: u64) -> Option<u64> {
        let (word, bit) = (start as usize / 64, start % 64);
        // The word of the start is visited twice: first its bits from the start on, and last the bits below.
        for step in 0..=8_usize {
            let mask = match step {
                0 => u64::MAX << bit,
                8 => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let index = (word + step) % 8;
            let used = self.used[index] & mask;
            if used != 0 {
                let slot = index as u64 * 64 + u64::from(used.trailing_zeros());
                return Some((slot + SLOTS - start) % SLOTS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
