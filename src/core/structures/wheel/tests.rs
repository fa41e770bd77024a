//! Tests of `wheel`.

use super::*;
use crate::alloc::account;
use crate::base::random::Random;

fn check(wheel: &Wheel) {
    let mut len = 0;
    for level in &wheel.levels {
        for (page, slots) in level.pages.iter().enumerate() {
            assert_eq!(slots.is_some(), level.used[page] != 0, "pages come and go");
            for (slot, items) in slots.iter().flat_map(|slots| slots.iter().enumerate()) {
                assert_eq!(level.used[page] >> slot & 1 != 0, !items.is_empty());
                len += items.len();
            }
        }
    }
    assert!(wheel.beyond.values().all(|items| !items.is_empty()));
    len += wheel.beyond.values().map(Slot::len).sum::<usize>();
    assert_eq!(wheel.len, len);
}

/// Returns an item from which the number can be recovered: the number is in the bits that the wheel returns.
fn item(number: u64) -> u64 {
    number << 34
}

#[test]
fn every_item_fires_in_its_slot_and_never_before_its_deadline() {
    // Each seed chooses how far ahead deadlines lie and how coarsely time passes.
    for seed in 1..=if cfg!(miri) { 4 } else { 40 } {
        let mut draw = Random::new(seed * 7919);
        let reach = [
            100,
            9_000,
            600_000,
            5_000_000,
            3_000_000_000,
            90_000_000_000,
        ];
        let reach = reach[draw.index(6)];
        let step = (reach / 2000).max(1);
        let mut now = draw.below(1 << 41);
        let mut wheel = Wheel::new(now);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut number = 0;
        for turn in 0..if cfg!(miri) { 150 } else { 4000 } {
            for _ in 0..draw.below(6) {
                let deadline = (now + draw.below(reach)).saturating_sub(draw.below(50));
                wheel.arm(deadline, item(number));
                // An item that is armed after its deadline fires late, which is no error of the wheel.
                model.insert(number, deadline.max(now));
                number += 1;
            }
            let before = now;
            now += draw.below(step);
            let due = wheel.next_due_ms();
            let budget = 1 + draw.index(9);
            let mut drained = false;
            let mut fired_any = false;
            while !drained {
                let mut fired = 0;
                drained = !wheel.advance(now, budget, |item| {
                    fired += 1;
                    let deadline = model.remove(&(item >> 34)).expect("armed, and fired once");
                    assert!(deadline <= now, "never early");
                    assert!(deadline + 2 * TICK_MS > before, "a turn late at most");
                });
                assert!(fired <= budget);
                fired_any |= fired > 0;
            }
            assert!(
                !fired_any || due.is_some_and(|due| due <= now),
                "the bound is a bound"
            );
            assert_eq!(wheel.len(), model.len());
            if turn % 100 == 0 {
                check(&wheel);
                let late = model
                    .values()
                    .filter(|&&deadline| deadline + 2 * TICK_MS <= now);
                assert_eq!(late.count(), 0, "nothing is left behind");
            }
        }
        while let Some(due) = wheel.next_due_ms() {
            wheel.advance(due.max(now), 1000, |item| {
                assert!(model.remove(&(item >> 34)).is_some());
            });
        }
        assert!(model.is_empty() && wheel.is_empty());
        check(&wheel);
        assert_eq!(wheel.memory_bytes(), 0);
    }
}

#[test]
fn what_is_cancelled_never_fires_and_takes_no_memory() {
    for seed in 1..=if cfg!(miri) { 3 } else { 30 } {
        let mut draw = Random::new(seed * 104_729);
        let reach = [9_000, 600_000, 5_000_000, 3_000_000_000, 90_000_000_000];
        let reach = reach[draw.index(5)];
        let mut now = draw.below(1 << 41);
        let mut wheel = Wheel::new(now);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for number in 0..if cfg!(miri) { 200 } else { 20_000 } {
            // Many items share a few deadlines, as keys with equal lifetimes do.
            let deadline = now + 1 + draw.below(reach) / 64 * 64;
            wheel.arm(deadline, item(number));
            model.insert(number, deadline);
            if draw.below(3) > 0 {
                let from = draw.below(number + 1);
                let (&number, &deadline) = model.range(from..).next().expect("the last one");
                assert!(wheel.cancel(deadline, item(number)));
                assert!(!wheel.cancel(deadline, item(number)), "it was there once");
                model.remove(&number);
            }
            if number % 50 == 0 {
                now += draw.below(reach / 100 + 1);
                while wheel.advance(now, 100, |item| {
                    let deadline = model.remove(&(item >> 34));
                    assert!(deadline.is_some_and(|deadline| deadline <= now));
                }) {}
                check(&wheel);
            }
            assert_eq!(wheel.len(), model.len());
        }
        for (number, deadline) in model {
            assert!(wheel.cancel(deadline, item(number)));
        }
        check(&wheel);
        assert_eq!((wheel.len(), wheel.memory_bytes()), (0, 0));
    }
}

#[test]
fn an_item_fires_at_most_one_slot_late() {
    for deadline in (1_000_000..1_000_100).chain((1_000_000..30_000_000).step_by(if cfg!(miri) {
        7_777_777
    } else {
        77_777
    })) {
        let mut wheel = Wheel::new(1_000_000);
        wheel.arm(deadline, item(1));
        let mut now = deadline - 1;
        wheel.advance(now, 100, |_| panic!("early"));
        let mut fired_at = None;
        while fired_at.is_none() {
            now += 1;
            wheel.advance(now, 100, |_| fired_at = Some(now));
        }
        assert!(now - deadline <= TICK_MS, "{deadline} fired at {now}");
    }
}

#[test]
fn the_item_comes_back_but_for_the_bits_between() {
    for ahead in [0, 5000, 500_000, 500_000_000, 5_000_000_000] {
        let mut wheel = Wheel::new(77);
        wheel.arm(77 + ahead, u64::MAX);
        let mut back = None;
        while let Some(due) = wheel.next_due_ms() {
            wheel.advance(due, 10, |item| back = Some(item));
        }
        assert_eq!(back, Some(ITEM));
    }
    assert_eq!(ITEM, 0xffff_fffc_0000_ffff);
}

#[test]
fn many_items_of_one_moment_are_dealt_out_in_slices() {
    let mut wheel = Wheel::new(0);
    for number in 0..10_000 {
        wheel.arm(100_000_000, item(number));
    }
    let mut calls = 0;
    let mut fired = 0;
    while wheel.advance(100_000_016, 64, |_| fired += 1) {
        calls += 1;
        assert!(fired <= 64 * (calls + 1));
    }
    assert_eq!(fired, 10_000);
    assert!((150..250).contains(&calls), "{calls} calls");
}

#[test]
fn time_may_jump_by_decades() {
    let mut wheel = Wheel::new(0);
    wheel.advance(1 << 47, 10, |_| {});
    wheel.arm((1 << 47) + 20, 5);
    wheel.arm(u64::MAX, 6);
    let mut fired = Vec::new();
    wheel.advance((1 << 47) + 40, 10, |item| fired.push(item));
    assert_eq!(fired, [5]);
    wheel.clear();
    assert_eq!((wheel.len(), wheel.next_due_ms()), (0, None));
}

#[test]
fn an_item_takes_about_eight_bytes() {
    for (count, reach_ms, most) in [
        (10_000, 30_000, 10.5),
        (100_000, 3_600_000, 9.5),
        (100_000, 30 * 86_400_000, 9.5),
    ]
    .into_iter()
    .take(if cfg!(miri) { 1 } else { 3 })
    {
        let mut draw = Random::new(5);
        let before = account::thread_bytes();
        let mut wheel = Wheel::new(0);
        assert_eq!(account::thread_bytes(), before);
        for number in 0..count {
            wheel.arm(draw.below(reach_ms), item(number));
        }
        let taken = account::thread_bytes() - before;
        let each = taken as f64 / count as f64;
        assert!(
            each < most,
            "{count} items over {reach_ms} ms take {each} bytes each"
        );
        let told = wheel.memory_bytes() as f64;
        assert!(
            (told / taken as f64 - 1.0).abs() < 0.05,
            "told {told}, taken {taken}"
        );
    }
}
