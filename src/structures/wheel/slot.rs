//! The items of one slot of the wheel, in no order: a short row, or sixteen slots parted by bits of the items.
//!
//! An item is looked for by going along a row, so rows have to stay short, however many items share a slot: where all
//! keys live for a day, all of them share a few. A slot that grows beyond a row's length is parted by the four bits
//! that follow those by which the slot itself was parted; one that shrinks far below it becomes a row again.

use std::mem;

use crate::alloc::account::size_class;

/// Items that a row holds at most, but for one that can be parted no further.
const ROW_MAX: usize = 256;

/// A parted slot with so few items becomes a row.
const PARTED_MIN: usize = 32;

const PARTS: usize = 16;
const PART_BITS: u32 = 4;

/// The lowest of the bits that part slots: those above are bits of the item too.
const PARTING_SHIFT: u32 = 34;

/// How often slots are parted: there are no more bits.
const DEPTH_MAX: u32 = (u64::BITS - PARTING_SHIFT) / PART_BITS;

/// See the module.
pub(super) enum Slot {
    Row(Vec<u64>),
    Parted(Box<Parts>),
}

pub(super) struct Parts {
    len: usize,
    parts: [Slot; PARTS],
}

const _: () = assert!(
    size_of::<Slot>() == size_of::<Vec<u64>>(),
    "there are many, and most of them are empty"
);

impl Slot {
    pub(super) const EMPTY: Slot = Slot::Row(Vec::new());

    pub(super) fn len(&self) -> usize {
        match self {
            Slot::Row(row) => row.len(),
            Slot::Parted(parted) => parted.len,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, item: u64) {
        self.push_at(0, item);
    }

    fn push_at(&mut self, depth: u32, item: u64) {
        match self {
            Slot::Row(row) if row.len() < ROW_MAX || depth == DEPTH_MAX => push(row, item),
            Slot::Row(row) => {
                let row = mem::take(row);
                let mut parts = [const { Slot::EMPTY }; PARTS];
                for &item in row.iter().chain([&item]) {
                    parts[part_of(item, depth)].push_at(depth + 1, item);
                }
                let len = row.len() + 1;
                *self = Slot::Parted(Box::new(Parts { len, parts }));
            }
            Slot::Parted(parted) => {
                parted.len += 1;
                parted.parts[part_of(item, depth)].push_at(depth + 1, item);
            }
        }
    }

    /// Takes any item out.
    pub(super) fn pop(&mut self) -> Option<u64> {
        match self {
            Slot::Row(row) => {
                let item = row.pop();
                if row.is_empty() {
                    *row = Vec::new();
                }
                item
            }
            Slot::Parted(parted) => {
                let item = parted.parts.iter_mut().find_map(Slot::pop);
                self.shrink();
                item
            }
        }
    }

    /// Takes this item out; whether it was there.
    pub(super) fn remove(&mut self, item: u64) -> bool {
        self.remove_at(0, item)
    }

    fn remove_at(&mut self, depth: u32, item: u64) -> bool {
        match self {
            Slot::Row(row) => {
                let found = row.iter().position(|&other| other == item);
                if let Some(at) = found {
                    row.swap_remove(at);
                    fit(row);
                }
                found.is_some()
            }
            Slot::Parted(parted) => {
                let found = parted.parts[part_of(item, depth)].remove_at(depth + 1, item);
                if found {
                    self.shrink();
                }
                found
            }
        }
    }

    /// Takes out the item that `offset` puts first, as exactly as a look at `looks` of them tells; `draw` gives a
    /// number below its argument.
    pub(super) fn take_soonest(
        &mut self,
        looks: usize,
        draw: &mut dyn FnMut(usize) -> usize,
        offset: fn(u64) -> u64,
    ) -> Option<u64> {
        match self {
            Slot::Row(row) => {
                let len = row.len();
                let best = (0..looks.min(len))
                    .map(|look| if len <= looks { look } else { draw(len) })
                    .min_by_key(|&at| offset(row[at]))?;
                let item = row.swap_remove(best);
                fit(row);
                Some(item)
            }
            Slot::Parted(parted) => {
                // What parts them says nothing of when they are due.
                let first = draw(PARTS);
                let item = (0..PARTS)
                    .map(|step| (first + step) % PARTS)
                    .find(|&part| !parted.parts[part].is_empty())
                    .and_then(|part| parted.parts[part].take_soonest(looks, draw, offset));
                self.shrink();
                item
            }
        }
    }

    /// After an item was taken out of a part.
    fn shrink(&mut self) {
        let Slot::Parted(parted) = self else {
            return;
        };
        parted.len -= 1;
        if parted.len <= PARTED_MIN {
            let mut row = Vec::with_capacity(PARTED_MIN);
            while let Some(item) = parted.parts.iter_mut().find_map(Slot::pop) {
                row.push(item);
            }
            *self = Slot::Row(row);
        }
    }

    /// What the items occupy, without the slot itself.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Slot::Row(row) if row.capacity() == 0 => 0,
            Slot::Row(row) => size_class(row.capacity() * size_of::<u64>()),
            Slot::Parted(parted) => {
                let parts = parted.parts.iter().map(Slot::memory_bytes);
                size_class(size_of::<Parts>()) + parts.sum::<usize>()
            }
        }
    }
}

fn part_of(item: u64, depth: u32) -> usize {
    (item >> (PARTING_SHIFT + PART_BITS * depth)) as usize % PARTS
}

/// Pushes with room for no more than the allocator gives anyway, as most slots stay short.
fn push(row: &mut Vec<u64>, item: u64) {
    if row.len() == row.capacity() {
        row.reserve_exact(room_for(row.len() + 1) - row.len());
    }
    row.push(item);
}

/// Gives back what a row that became shorter does not need.
fn fit(row: &mut Vec<u64>) {
    if row.is_empty() {
        *row = Vec::new();
    } else if row.len() <= row.capacity() / 2 {
        row.shrink_to(room_for(row.len()));
    }
}

/// Items for which the allocator gives room when it is asked for so many.
fn room_for(items: usize) -> usize {
    size_class(items * size_of::<u64>()) / size_of::<u64>()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Draw;
    use super::*;
    use crate::alloc::account;
    use std::collections::BTreeSet;

    fn check(slot: &Slot, is_part: bool) {
        match slot {
            Slot::Row(row) => {
                assert!(row.len() <= ROW_MAX || is_part);
                assert_eq!(row.is_empty(), row.capacity() == 0);
            }
            Slot::Parted(parted) => {
                assert!(parted.len > PARTED_MIN);
                assert_eq!(
                    parted.len,
                    parted.parts.iter().map(Slot::len).sum::<usize>()
                );
                parted.parts.iter().for_each(|part| check(part, true));
            }
        }
    }

    #[test]
    fn items_come_and_go_in_any_order() {
        let turns = if cfg!(miri) { 3_000 } else { 60_000 };
        // Few bits apart, so that rows are parted several times, and as far apart as hashes are.
        for spread in [1 << 4, 1 << 12, 1 << 30] {
            let mut draw = Draw(spread);
            let (mut slot, mut model) = (Slot::EMPTY, BTreeSet::new());
            let before = account::thread_bytes();
            for turn in 0..turns {
                let item = draw.below(spread) << PARTING_SHIFT | draw.below(1 << 12);
                let grows = turn / (turns / 6) % 2 == 0;
                match draw.below(10) {
                    0..5 if grows && model.insert(item) => slot.push(item),
                    0 | 5 => assert_eq!(slot.remove(item), model.remove(&item)),
                    1 | 6 => {
                        let known = model.range(item..).next().copied();
                        assert!(known.is_none_or(|known| slot.remove(known)));
                        known.map(|known| model.remove(&known));
                    }
                    2 | 7 => {
                        let item = slot.pop();
                        assert!(item.map_or(model.is_empty(), |item| model.remove(&item)));
                    }
                    3 => {
                        let mut at = |bound: usize| draw.below(bound as u64) as usize;
                        let item = slot.take_soonest(4, &mut at, |item| item & 0xfff);
                        assert!(item.map_or(model.is_empty(), |item| model.remove(&item)));
                    }
                    _ => {}
                }
                assert_eq!(slot.len(), model.len());
                if turn % 500 == 0 {
                    check(&slot, false);
                }
            }
            while let Some(item) = slot.pop() {
                assert!(model.remove(&item));
            }
            assert!(model.is_empty() && slot.is_empty());
            assert_eq!(slot.memory_bytes(), 0);
            drop(model);
            let left = account::thread_bytes() - before;
            assert_eq!(left, 0, "an empty slot has no memory");
        }
    }

    #[test]
    fn a_row_of_all_its_items_shows_the_soonest() {
        let mut slot = Slot::EMPTY;
        for item in [5, 3, 9, 4] {
            slot.push(item << PARTING_SHIFT | item);
        }
        let mut soonest = || slot.take_soonest(8, &mut |_| 0, |item| item & 0xfff);
        let order: Vec<u64> = std::iter::from_fn(|| soonest().map(|item| item & 0xfff)).collect();
        assert_eq!(order, [3, 4, 5, 9]);
    }

    #[test]
    fn what_a_slot_of_many_says_it_takes_is_what_it_takes() {
        let before = account::thread_bytes();
        let mut slot = Slot::EMPTY;
        let mut draw = Draw(9);
        let count = if cfg!(miri) { 2_000 } else { 100_000 };
        for _ in 0..count {
            slot.push(draw.below(u64::MAX));
        }
        let taken = account::thread_bytes() - before;
        assert_eq!(slot.memory_bytes() as i64, taken);
        let each = taken as f64 / f64::from(count);
        assert!(each < 10.0, "{each} bytes each");
    }
}
