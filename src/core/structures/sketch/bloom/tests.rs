//! Tests of `bloom`.

use super::*;
use crate::base::random::Random;

fn make(capacity: u64, error_rate: f64, growth: Option<u32>) -> Bloom {
    BloomParams::new(capacity, error_rate, growth)
        .expect("small")
        .build()
}

fn false_positives(filter: &Bloom, tries: u64) -> f64 {
    let strange = |number: u64| format!("other-{number}");
    let hits = (0..tries).filter(|number| filter.has(strange(*number).as_bytes()));
    hits.count() as f64 / tries as f64
}

#[test]
fn what_was_added_is_there_and_the_rest_errs_less_than_stated() {
    for (capacity, error_rate, growth, count) in [
        (2_000, 0.01, None, 2_000),
        (2_000, 0.1, None, 2_000),
        (5_000, 0.001, None, 5_000),
        (100, 0.01, Some(2), 20_000),
        (50, 0.05, Some(1), 500),
        (10, 0.02, Some(4), 10_000),
    ] {
        let count = if cfg!(miri) { count.min(120) } else { count };
        let mut filter = make(capacity, error_rate, growth);
        let mut refused = 0;
        for number in 0..count {
            match filter.add(format!("element-{number}").as_bytes()) {
                Ok(true) => {}
                Ok(false) => refused += 1,
                Err(error) => panic!("{error:?} at {number}"),
            }
        }
        assert_eq!(filter.len() + refused, count);
        assert!((0..count).all(|number| filter.has(format!("element-{number}").as_bytes())));
        // A binomial count deviates by its square root; three of them are allowed for.
        let tries = if cfg!(miri) { 100 } else { 40_000 };
        let slack = 3.0 * (error_rate / tries as f64).sqrt();
        let measured = false_positives(&filter, tries);
        assert!(
            measured <= error_rate + slack,
            "{measured} > {error_rate} for {capacity} and {growth:?}"
        );
        assert!(
            refused as f64 <= count as f64 * error_rate + 3.0,
            "{refused} of {count} taken as there"
        );
    }
}

#[test]
fn a_filter_that_does_not_grow_is_full_when_it_is() {
    let mut filter = make(3, 0.01, None);
    for element in [b"a", b"b", b"c"] {
        assert_eq!(filter.add(element), Ok(true));
    }
    assert_eq!(filter.add(b"a"), Ok(false));
    assert_eq!(filter.add(b"d"), Err(NotAdded::Full));
    assert_eq!((filter.len(), filter.layers()), (3, 1));
}

/// Expected sizes are from the tests of Redis's module.
#[test]
fn sizes_are_those_of_redis() {
    assert_eq!(make(100, 0.01, Some(2)).memory_bytes(), 240);
    assert_eq!(make(100, 0.001, Some(2)).memory_bytes(), 296);
    let mut filters = [1, 2, 4].map(|growth| make(4, 0.01, Some(growth)));
    for number in 0..100 {
        for filter in &mut filters {
            filter.add(number.to_string().as_bytes()).expect("small");
        }
    }
    assert_eq!(filters.map(|filter| filter.layers()), [23, 5, 4]);
}

/// Collisions with added elements depend on every bit of every hash.
#[test]
fn elements_collide_as_in_redis() {
    for (capacity, error_rate, count, len, layers) in [
        (
            10,
            0.01,
            100,
            99,
            &[(16, 8, 10), (32, 9, 20), (72, 10, 40), (160, 11, 29)][..],
        ),
        (
            100,
            0.001,
            4000,
            3997,
            &[
                (200, 11, 100),
                (432, 12, 200),
                (936, 13, 400),
                (2016, 14, 800),
                (4320, 15, 1600),
                (9216, 16, 897),
            ],
        ),
    ]
    .into_iter()
    .take(if cfg!(miri) { 1 } else { 2 })
    {
        let mut filter = make(capacity, error_rate, Some(2));
        for number in 0..count {
            filter.add(number.to_string().as_bytes()).expect("small");
        }
        assert_eq!(filter.len(), len);
        let shapes = filter.layers.iter();
        let shapes: Vec<(usize, u32, u64)> = shapes
            .map(|layer| (layer.bits.len(), layer.hashes, layer.len))
            .collect();
        assert_eq!(shapes, layers);
    }
}

#[test]
fn more_memory_than_allowed_is_refused_before_it_is_taken() {
    assert!(BloomParams::new(u64::MAX, 0.01, None).is_none());
    assert!(BloomParams::new(1 << 30, 1e-300, None).is_none());
    assert!(BloomParams::new(0, 0.01, None).is_none());
    assert!(BloomParams::new(10, 0.0, None).is_none());
    assert!(BloomParams::new(10, f64::NAN, None).is_none());
    let mut filter = make(1, 0.01, Some(u32::MAX));
    assert_eq!(filter.add(b"a"), Ok(true));
    assert_eq!(filter.add(b"b"), Err(NotAdded::NoMemory));
}

fn restored(filter: &Bloom) -> Bloom {
    let mut copy = BloomParams::from_header(&filter.header())
        .expect("sound")
        .build();
    let mut cursor = 1;
    while let Some(chunk) = filter.chunk(cursor) {
        assert!(copy.load_chunk(cursor, chunk));
        cursor += chunk.len() as u64;
    }
    copy
}

#[test]
fn a_dump_restores_the_filter() {
    let mut filter = make(10, 0.01, Some(2));
    for number in 0..500_u32 {
        filter.add(&number.to_le_bytes()).expect("small");
    }
    let copy = restored(&filter);
    assert_eq!(copy.header(), filter.header());
    assert!((0..500_u32).all(|number| copy.has(&number.to_le_bytes())));
    let layers = |filter: &Bloom| -> Vec<Vec<u8>> {
        filter
            .layers
            .iter()
            .map(|layer| layer.bits.clone())
            .collect()
    };
    assert_eq!(layers(&copy), layers(&filter));
}

#[test]
fn hostile_dumps_are_refused_or_harmless() {
    let mut random = Random::new(3);
    let mut filter = make(10, 0.01, Some(2));
    for number in 0..40_u32 {
        filter.add(&number.to_le_bytes()).expect("small");
    }
    let header = filter.header();
    let mut accepted = 0;
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        let hostile = super::super::damaged(&header, &mut random);
        let Some(plan) = BloomParams::from_header(&hostile) else {
            continue;
        };
        if plan.layers.iter().map(|layer| layer.bytes).sum::<u64>() > 1 << 20 {
            continue;
        }
        accepted += 1;
        let mut built = plan.build();
        let _ = built.add(b"a");
        let _ = (built.has(b"b"), built.capacity(), built.header());
        for cursor in [0, 1, 2, 1000, u64::MAX] {
            let _ = built.chunk(cursor);
            let _ = built.load_chunk(cursor, b"abc");
        }
    }
    assert!(accepted > 0);
}

#[test]
fn pieces_that_fit_nowhere_change_nothing() {
    let mut filter = make(10, 0.01, Some(2));
    let len = filter.layers[0].bits.len() as u64;
    assert!(!filter.load_chunk(0, b"a"));
    assert!(!filter.load_chunk(len + 1, b"a"));
    assert!(!filter.load_chunk(len, b"ab"));
    assert!(filter.load_chunk(len, b"a"));
}
