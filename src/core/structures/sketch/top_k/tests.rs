//! Tests of `top_k`.

use super::*;
use std::collections::HashMap;

fn make(k: u32, width: u32, depth: u32, decay: f64) -> TopK {
    TopKParams::new(k, width, depth, decay)
        .expect("small")
        .build()
}

fn check_invariants(sketch: &TopK) {
    assert_eq!(sketch.names.len(), sketch.fingerprints.len());
    assert!(sketch.names.len() <= sketch.plan.k as usize);
    for at in 1..sketch.names.len() {
        assert!(sketch.names[(at - 1) / 2].count <= sketch.names[at].count);
    }
    let pairs = sketch.names.iter().zip(&sketch.fingerprints);
    for (name, print) in pairs.filter(|(name, _)| name.count > 0) {
        assert_eq!(fingerprint(&name.element), *print);
    }
}

#[cfg(not(miri))]
#[test]
fn the_most_frequent_elements_are_found() {
    let mut random = Random::new(11);
    let mut sketch = make(20, 500, 5, 0.9);
    let mut exact: HashMap<u64, u32> = HashMap::new();
    for _ in 0..60_000 {
        // Element n occurs about 1/n as often as the first.
        let element = (random.unit() * 8.0).exp() as u64;
        sketch.add(&element.to_le_bytes(), 1, &mut random);
        *exact.entry(element).or_default() += 1;
    }
    check_invariants(&sketch);
    let mut best: Vec<(u64, u32)> = exact.into_iter().collect();
    best.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let found = best[..20]
        .iter()
        .filter(|(element, _)| sketch.has(&element.to_le_bytes()));
    assert!(found.count() >= 18);
    let list = sketch.list();
    assert_eq!(list.len(), 20);
    assert!(list.is_sorted_by(|first, second| first.1 >= second.1));
    for (element, count) in &best[..10] {
        let estimate = sketch.count(&element.to_le_bytes());
        assert!(estimate <= *count, "never too high without collisions");
        assert!(
            f64::from(estimate) > 0.95 * f64::from(*count),
            "{estimate} of {count}"
        );
    }
}

#[test]
fn a_name_goes_when_a_better_one_comes() {
    let mut random = Random::new(1);
    let mut sketch = make(2, 50, 5, 0.9);
    assert_eq!(sketch.add(b"a", 5, &mut random), None);
    assert_eq!(sketch.add(b"b", 3, &mut random), None);
    assert_eq!(sketch.add(b"c", 1, &mut random), None);
    assert!(!sketch.has(b"c"));
    assert_eq!(sketch.count(b"c"), 1);
    assert_eq!(sketch.add(b"c", 9, &mut random).as_deref(), Some(&b"b"[..]));
    assert_eq!(sketch.list(), [(&b"c"[..], 10), (b"a", 5)]);
    assert_eq!(sketch.add(b"d", 0, &mut random), None);
    check_invariants(&sketch);
}

#[test]
fn of_names_with_one_count_those_go_that_go_in_rediss_module() {
    let mut random = Random::new(1);
    let mut sketch = make(3, 50, 4, 0.9);
    for name in [b"A", b"B", b"C"] {
        assert_eq!(sketch.add(name, 1, &mut random), None);
    }
    let list: Vec<&[u8]> = sketch.list().iter().map(|(name, _)| *name).collect();
    assert_eq!(list, [b"A", b"C", b"B"]);
    for (name, gone) in [(b"D", b"A"), (b"E", b"C"), (b"F", b"D")] {
        let expelled = sketch.add(name, 1, &mut random);
        assert_eq!(expelled.as_deref(), Some(&gone[..]));
        check_invariants(&sketch);
    }
    let again = TopK::from_parts(&sketch.head(), &sketch.data()).expect("whole");
    assert_eq!(again.list(), sketch.list());
}

#[test]
fn what_was_written_without_empty_places_is_read() {
    let mut random = Random::new(1);
    let mut sketch = make(5, 50, 4, 0.9);
    for (name, times) in [(b"a", 3), (b"b", 1), (b"c", 2)] {
        sketch.add(name, times, &mut random);
    }
    let mut head = sketch.head();
    head.truncate(20);
    for (count, name) in [(1_u32, b"b"), (3, b"a"), (2, b"c")] {
        head.extend_from_slice(&count.to_le_bytes());
        head.extend_from_slice(&1_u32.to_le_bytes());
        head.extend_from_slice(name);
    }
    let again = TopK::from_parts(&head, &sketch.data()).expect("whole");
    check_invariants(&again);
    assert_eq!(again.list(), sketch.list());
}

#[cfg(not(miri))]
#[test]
fn counters_change_hands_as_often_as_single_throws_would() {
    // Each decision lowers by one with the probability decay^count; the expected number from 3 down to 0 is the
    // sum of the inverses.
    let mut random = Random::new(9);
    let decay = 0.5_f64;
    let expected: f64 = (1..=3).map(|count| decay.powi(-count)).sum();
    let rounds = 4_000;
    let mut throws = 0;
    for _ in 0..rounds {
        let mut counter = [1, 3];
        let left = wear_down(&mut counter, 10_000, decay, &mut random).expect("soon");
        throws += 10_000 - left + 1;
    }
    let measured = f64::from(throws) / f64::from(rounds);
    assert!(
        (measured / expected - 1.0).abs() < 0.05,
        "{measured} {expected}"
    );
}

#[test]
fn without_decay_every_throw_hits() {
    let mut random = Random::new(2);
    for (count, times, left) in [
        (5, 5, Some(1)),
        (5, 4, None),
        (1, 1, Some(1)),
        (3, 100_000, Some(99_998)),
    ] {
        let mut counter = [1, count];
        assert_eq!(
            wear_down(&mut counter, times, 1.0, &mut random),
            left,
            "{count} {times}"
        );
    }
}

#[test]
fn extremes_neither_panic_nor_take_long() {
    let mut random = Random::new(3);
    for decay in [f64::MIN_POSITIVE, 1e-9, 0.9, 1.0 - 1e-16, 1.0] {
        let mut sketch = make(3, 1, 1, decay);
        for round in 0..50_u32 {
            sketch.add(&(round % 7).to_le_bytes(), 100_000, &mut random);
            check_invariants(&sketch);
        }
        sketch.add(b"much", u32::MAX, &mut random);
        sketch.add(b"much", u32::MAX, &mut random);
    }
}

#[test]
fn more_memory_than_allowed_is_refused_before_it_is_taken() {
    assert!(TopKParams::new(u32::MAX, 8, 7, 0.9).is_none());
    assert!(TopKParams::new(1, u32::MAX, 7, 0.9).is_none());
    assert!(TopKParams::new(1, 8, u32::MAX, 0.9).is_none());
    assert!(TopKParams::new(1, 8, 7, f64::NAN).is_none());
}

#[test]
fn names_are_freed_in_slices() {
    let mut random = Random::new(3);
    let mut sketch = make(100, 1000, 3, 0.9);
    for number in 0..100_u32 {
        sketch.add(&number.to_le_bytes(), 1, &mut random);
    }
    let mut slices = 1;
    while sketch.free_some(10) {
        slices += 1;
    }
    assert_eq!(slices, 10);
}
