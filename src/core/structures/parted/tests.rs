//! Tests of `parted`.

use super::*;
use crate::alloc::account;
use crate::base::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The lowest bit by which words of 64 bits are partitioned, as in the timer wheel.
const PARTING_SHIFT: u32 = 34;

fn check<W: Word>(slot: &Parted<W>, is_part: bool) {
    match slot {
        Parted::Row(row) => {
            assert!(row.len() <= ROW_MAX || is_part);
            assert_eq!(row.is_empty(), row.capacity() == 0);
        }
        Parted::Parts(parted) => {
            assert!(parted.len > PARTED_MIN);
            assert_eq!(
                parted.len,
                parted.parts.iter().map(Parted::len).sum::<usize>()
            );
            parted.parts.iter().for_each(|part| check(part, true));
        }
    }
}

#[test]
fn items_come_and_go_in_any_order() {
    let turns = if cfg!(miri) { 3_000 } else { 60_000 };
    // Few bits differ, so that rows are partitioned several times, or as many as in hashes.
    for spread in [1 << 4, 1 << 12, 1 << 30] {
        let mut draw = Random::new(spread);
        let (mut slot, mut model) = (Parted::EMPTY, BTreeSet::new());
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
                    let mut at = |bound: usize| draw.index(bound);
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
    let mut slot = Parted::EMPTY;
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
    let mut slot = Parted::EMPTY;
    let mut draw = Random::new(9);
    let count = if cfg!(miri) { 2_000 } else { 100_000 };
    for _ in 0..count {
        slot.push(draw.below(u64::MAX));
    }
    let taken = account::thread_bytes() - before;
    assert_eq!(slot.memory_bytes() as i64, taken);
    let each = taken as f64 / f64::from(count);
    assert!(each < 10.0, "{each} bytes each");
}

#[test]
fn words_that_follow_are_found_in_order_and_each_once() {
    let turns = if cfg!(miri) { 1_500 } else { 40_000 };
    // All bits differ, or only the lowest, so that rows are partitioned as often as possible, and words occur
    // twice.
    for shift in [0, 20] {
        let mut draw = Random::new(77);
        let (mut words, mut model) = (Parted::EMPTY, BTreeMap::<u32, usize>::new());
        for turn in 0..turns {
            let word = (draw.below(1 << 32) >> shift) as u32;
            let grows = turn < turns * 2 / 3;
            if draw.below(4) == 0 || !grows {
                let known = model.range(word..).next().map(|(word, _)| *word);
                assert!(known.is_none_or(|known| words.remove(known)));
                if let Some(known) = known {
                    let count = model.get_mut(&known).expect("it is known");
                    *count -= 1;
                    if *count == 0 {
                        model.remove(&known);
                    }
                }
            } else {
                words.push(word);
                *model.entry(word).or_default() += 1;
            }
            assert_eq!(words.len(), model.values().sum::<usize>());
            if turn % (turns / 30) == 0 {
                check(&words, false);
                let (from, count) = (draw.below(1 << 32) >> shift, draw.index(900) + 1);
                let mut found = Vec::new();
                let next = words.following(from, count, &mut found);
                let mut rest = model.range(from as u32..).map(|(word, _)| *word);
                let expected: Vec<u32> = rest.by_ref().take(count).collect();
                assert_eq!(found, expected);
                // The result may be the start of a part rather than its first word.
                let least = found.last().map_or(from, |last| u64::from(*last) + 1);
                match (next, rest.next()) {
                    (Some(next), Some(word)) => {
                        assert!((least..=u64::from(word)).contains(&next));
                    }
                    (next, word) => assert_eq!((next, word), (None, None)),
                }
            }
        }
        let mut all = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = words.following(from, 7, &mut all);
        }
        assert!(all.iter().eq(model.keys()));
        assert_eq!(words.following(1 << 32, 7, &mut all), None);
        assert_eq!(words.following(u64::MAX, 7, &mut all), None);
    }
}
