//! Tests of `pages`.

use std::collections::BTreeSet;

use super::*;
use basalt_core::base::random::Random;

#[test]
fn an_item_keeps_its_deadline_and_what_tables_look_at() {
    for deadline_ms in [0, 1, 1_700_000_000_000, DEADLINE_MAX] {
        for hash in [0, 1, 0xffff, u64::MAX, 0x8123_4567_89ab_cdef] {
            let due = DeadlineItem::new(deadline_ms, hash);
            assert_eq!(due.deadline_ms(), deadline_ms);
            assert_eq!(due.hash(), hash & HASH);
            assert!(due.is_of(hash) && due.is_of(hash ^ 0x3_0000) && !due.is_of(hash ^ 1));
        }
    }
    assert!(DeadlineItem::new(1, u64::MAX) < DeadlineItem::new(2, 0));
    assert_eq!(DeadlineItem::new(u64::MAX, 0).deadline_ms(), DEADLINE_MAX);
}

#[test]
fn pages_are_moved_piece_by_piece_and_stay_what_they_were() {
    let mut deadlines = DeadlineIndex::default();
    for number in 0..5_000 {
        deadlines.insert(DeadlineItem::new(number * 7 % 900, number << 40));
    }
    let items: Vec<DeadlineItem> = deadlines.iter().collect();
    let places = |deadlines: &DeadlineIndex| -> Vec<usize> {
        let pages = deadlines.pages.values();
        pages.map(|page| page.as_ptr().addr()).collect()
    };
    let before = places(&deadlines);
    let mut mover = Mover::of_everything();
    let (mut from, mut slices) = (0, 0);
    loop {
        from = deadlines.relocate_some(from, 10, &mut mover);
        slices += 1;
        if from == 0 {
            break;
        }
    }
    assert_eq!(slices, before.len().div_ceil(10));
    assert_eq!(mover.moved, before.len() as u64);
    // Nearly all pages: a page may get the address that another page had.
    let moved = before.iter().zip(places(&deadlines));
    let stayed = moved.filter(|(before, now)| **before == *now).count();
    assert!(stayed * 10 < before.len(), "{stayed} of {}", before.len());
    assert!(deadlines.iter().eq(items));
    deadlines.check_invariants();
}

#[test]
fn the_node_of_a_small_tree_moves_too() {
    let mut deadlines = DeadlineIndex::default();
    deadlines.insert(DeadlineItem::new(7, 1 << 40));
    let place = |deadlines: &DeadlineIndex| {
        let name = deadlines.pages.keys().next().expect("a page");
        std::ptr::from_ref(name).addr()
    };
    let before = place(&deadlines);
    let mut mover = Mover::of_everything();
    assert_eq!(deadlines.relocate_some(0, 10, &mut mover), 0);
    assert_ne!(place(&deadlines), before);
    assert_eq!(deadlines.first(), Some(DeadlineItem::new(7, 1 << 40)));
}

#[test]
fn items_are_a_sorted_set() {
    for spread in [3, 200, 50_000] {
        let mut random = Random::new(spread);
        let (mut ours, mut model) = (DeadlineIndex::default(), BTreeSet::new());
        for step in 0..20_000_u64 {
            // The index grows, then shrinks; deadlines rise for a part of the time.
            let grows = random.below(100) < if step % 8_000 < 5_000 { 80 } else { 20 };
            if grows {
                let start = if step % 3_000 < 1_000 { step } else { 0 };
                let due = DeadlineItem::new(start + random.below(spread), random.below(500) << 40);
                ours.insert(due);
                model.insert(due);
            } else if random.below(3) == 0 {
                assert_eq!(ours.pop_first(), model.pop_first());
            } else {
                let due = DeadlineItem::new(random.below(spread), random.below(500) << 40);
                let due = model.range(due..).next().copied().unwrap_or(due);
                ours.remove(due);
                model.remove(&due);
            }
            assert_eq!(ours.len(), model.len());
            assert_eq!(ours.first(), model.first().copied());
            assert_eq!(ours.last(), model.last().copied());
            if step % 500 == 0 {
                ours.check_invariants();
                assert!(ours.iter().eq(model.iter().copied()));
                let now_ms = random.below(spread);
                let due = model.iter().filter(|due| due.deadline_ms() <= now_ms);
                assert_eq!(ours.due(now_ms), due.count());
            }
        }
        while let Some(due) = ours.pop_first() {
            assert_eq!(Some(due), model.pop_first());
            ours.check_invariants();
        }
        assert!(model.is_empty() && ours.is_empty());
    }
}
