//! Tests of `count_min`.

use super::*;
use crate::base::random::Random;
use std::collections::HashMap;

fn make(width: u64, depth: u64) -> CountMin {
    CountMinParams::new(width, depth, CellSize::Four)
        .expect("small")
        .build()
}

/// Adds random names, a few frequent and many rare ones. Returns their exact counts.
fn fill(sketch: &mut CountMin, seed: u64, count: u64) -> HashMap<u64, u64> {
    let mut random = Random::new(seed);
    let mut exact = HashMap::new();
    for _ in 0..count {
        let name = (1.0 / (random.unit() + 0.0005)) as u64;
        sketch.add(&name.to_le_bytes(), 1).expect("it fits");
        *exact.entry(name).or_default() += 1;
    }
    exact
}

#[cfg(not(miri))]
#[test]
fn estimates_are_never_too_low_and_seldom_much_too_high() {
    let (error_rate, probability) = (0.005, 0.01);
    let (width, depth) = dimensions(error_rate, probability);
    assert_eq!((width, depth), (400, 7));
    let mut sketch = make(width, depth);
    let count = 30_000;
    let exact = fill(&mut sketch, 5, count);
    assert_eq!(sketch.count(), count);
    let mut too_high = 0;
    for (name, times) in &exact {
        let estimate = sketch.estimate(&name.to_le_bytes());
        assert!(estimate >= *times);
        too_high += usize::from((estimate - times) as f64 > error_rate * count as f64);
    }
    assert!(
        too_high as f64 <= probability * exact.len() as f64,
        "{too_high}"
    );
}

#[test]
fn dimensions_are_those_of_redis() {
    assert_eq!(dimensions(0.001, 0.01), (2000, 7));
    assert_eq!(dimensions(0.1, 0.5), (20, 1));
    let (_, depth) = dimensions(0.1, 1e-300);
    assert!(CountMinParams::new(20, depth, CellSize::Four).is_none());
}

#[test]
fn a_sum_is_as_if_everything_had_been_added_to_one() {
    let (mut first, mut second, mut both) = (make(100, 4), make(100, 4), make(100, 4));
    for number in 0..500_u32 {
        let element = number.to_le_bytes();
        first.add(&element, 1).expect("it fits");
        second.add(&element, 2).expect("it fits");
        both.add(&element, 3 + 4).expect("it fits");
    }
    let mut sum = Sum::new(&first);
    assert!(sum.add(&first, 3) && sum.add(&second, 2));
    let mut target = make(100, 4);
    assert!(target.replace(&sum));
    assert_eq!((target.cells, target.count), (both.cells, both.count));
    assert!(!sum.add(&make(10, 4), 1));
}

#[test]
fn sums_that_do_not_fit_change_nothing() {
    let (mut small, mut target) = (make(1, 1), make(1, 1));
    small.add(b"a", 5).expect("it fits");
    target.add(b"a", 7).expect("it fits");
    for (weight, adds, fits) in [
        (-1, true, false),
        (i64::from(u32::MAX), true, false),
        (i64::MAX, false, false),
        (2, true, true),
    ] {
        let mut sum = Sum::new(&small);
        assert_eq!(sum.add(&small, weight), adds);
        assert_eq!(target.replace(&sum) && adds, fits);
        if !fits && adds {
            assert_eq!(target.estimate(b"a"), 7);
        }
    }
    assert_eq!(target.estimate(b"a"), 10);
}

#[test]
fn a_change_that_a_counter_cannot_hold_changes_nothing() {
    for (bytes, limit) in [
        (1, 255),
        (2, 65_535),
        (4, i64::from(u32::MAX)),
        (8, i64::MAX),
    ] {
        let cell = CellSize::of(bytes).expect("a size");
        let plan = CountMinParams::new(10, 2, cell).expect("small");
        let mut sketch = plan.build();
        assert_eq!(sketch.data_bytes(), 20 * bytes);
        assert_eq!(sketch.add(b"a", limit - 1), Ok(limit.cast_unsigned() - 1));
        for by in [2, i64::MAX] {
            assert_eq!(sketch.add(b"a", by), Err(OutOfRange::Overflow));
        }
        assert_eq!(sketch.add(b"a", 1), Ok(limit.cast_unsigned()));
        assert_eq!(sketch.add(b"a", 1), Err(OutOfRange::Overflow));
        for by in [i64::MIN, -limit] {
            let expected = match by == -limit {
                true => Ok(0),
                false => Err(OutOfRange::Underflow),
            };
            assert_eq!(sketch.add(b"a", by), expected);
        }
        assert_eq!((sketch.count(), sketch.estimate(b"a")), (0, 0));
        assert_eq!(sketch.add(b"a", -1), Err(OutOfRange::Underflow));
        assert_eq!(sketch.add(b"b", 7), Ok(7));
        let copy = CountMin::from_parts(&sketch.head(), &sketch.data()).expect("its parts");
        assert_eq!((copy.cell_size(), copy.estimate(b"b")), (cell, 7));
        assert!(CountMin::from_parts(&sketch.head(), &sketch.data()[1..]).is_none());
        // Other sizes do not add up.
        assert_eq!(Sum::new(&make(10, 2)).add(&sketch, 1), bytes == 4);
    }
    assert!(
        [0, 3, 5, 16, u64::MAX]
            .map(CellSize::of)
            .iter()
            .all(Option::is_none)
    );
    let head = [1_u64, 1, 0].iter().flat_map(|number| number.to_le_bytes());
    let head: Vec<u8> = head.collect();
    assert!(CountMin::from_parts(&head, &[0; 4]).is_some());
    for (end, data) in [
        (&[3][..], &[0; 3][..]),
        (&[8], &[0xff; 8]),
        (&[1, 1], &[0]),
        (&[2], &[0; 4]),
    ] {
        assert!(CountMin::from_parts(&[&head, end].concat(), data).is_none());
    }
}

#[test]
fn more_memory_than_allowed_is_refused_before_it_is_taken() {
    for (width, depth) in [(0, 1), (1, 0), (u64::MAX, 2), (1 << 30, 1 << 10)] {
        assert!(CountMinParams::new(width, depth, CellSize::One).is_none());
    }
}
