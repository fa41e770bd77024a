//! Tests of `cuckoo`.

use super::*;
use crate::base::random::Random;

fn make(capacity: u64, bucket_size: u16, expansion: u16) -> Cuckoo {
    CuckooParams::new(capacity, bucket_size, 20, expansion)
        .expect("small")
        .build()
}

fn name(number: u64) -> Vec<u8> {
    format!("element-{number}").into_bytes()
}

fn check_invariants(filter: &Cuckoo) {
    let used: usize = filter
        .layers
        .iter()
        .map(|layer| layer.iter().filter(|byte| **byte != 0).count())
        .sum();
    assert_eq!(used as u64, filter.len());
}

#[test]
fn what_was_added_is_there_until_it_is_removed() {
    for (capacity, bucket_size, expansion) in [(8, 1, 1), (30, 3, 4), (64, 4, 2), (100, 2, 1)]
        .into_iter()
        .take(if cfg!(miri) { 2 } else { 4 })
    {
        let mut filter = make(capacity, bucket_size, expansion);
        let count = if cfg!(miri) { 60 } else { 600 };
        for number in 0..count {
            assert_eq!(filter.add(&name(number)), Added::Yes);
            check_invariants(&filter);
        }
        assert!(filter.layers() > 1);
        assert!((0..count).all(|number| filter.has(&name(number))));
        assert!((0..count).all(|number| filter.count(&name(number)) >= 1));
        let layers = filter.layers();
        for number in 0..count {
            assert!(filter.remove(&name(number)), "{number} was there");
            check_invariants(&filter);
            // Every element not removed yet is found, wherever it was moved to.
            assert!(
                (number + 1..count)
                    .step_by(37)
                    .all(|other| filter.has(&name(other)))
            );
        }
        assert!(filter.is_empty() && filter.layers() < layers);
        assert!(!filter.remove(&name(0)));
    }
}

#[test]
fn errors_are_as_rare_as_a_byte_allows() {
    // With two buckets of `b` slots at load 1 the rate is about 2 b / 255.
    for (bucket_size, limit) in [(1, 0.012), (2, 0.022), (4, 0.04)] {
        let mut filter = make(4_096, bucket_size, 1);
        for number in 0..if cfg!(miri) { 100 } else { 3_000 } {
            filter.add(&name(number));
        }
        let tries = if cfg!(miri) { 100 } else { 20_000 };
        let strange = (10_000..10_000 + tries).filter(|number| filter.has(&name(*number)));
        let measured = strange.count() as f64 / tries as f64 / filter.layers() as f64;
        assert!(measured < limit, "{measured} for buckets of {bucket_size}");
    }
}

#[test]
fn an_element_is_counted_as_often_as_it_was_added() {
    let mut filter = make(1_000, 4, 1);
    for number in 0..100 {
        for _ in 0..number % 5 {
            filter.add(&name(number));
        }
    }
    let exact = (0..100).filter(|number| filter.count(&name(*number)) == number % 5);
    assert!(exact.count() >= 95);
    assert!((0..100).all(|number| filter.count(&name(number)) >= number % 5));
    assert_eq!(filter.add_new(&name(4)), Added::Exists);
}

#[test]
fn a_filter_that_does_not_grow_is_full_and_stays_as_it_was() {
    let mut filter = make(8, 2, 0);
    let mut number = 0;
    while filter.add(&name(number)) == Added::Yes {
        number += 1;
        assert!(number <= 8);
    }
    let before = filter.layers.clone();
    for more in number..number + 50 {
        let full = filter.add(&name(more));
        if full == Added::Full {
            assert_eq!(filter.layers, before);
        } else {
            break;
        }
    }
    assert!((0..number).all(|number| filter.has(&name(number))));
}

#[test]
fn the_same_element_over_and_over_adds_layers() {
    let mut filter = make(64, 2, 1);
    for round in 1..=20 {
        assert_eq!(filter.add(b"same"), Added::Yes);
        assert_eq!(filter.count(b"same"), round);
    }
    assert_eq!(filter.layers(), 5);
}

#[test]
fn more_memory_than_allowed_is_refused_before_it_is_taken() {
    assert!(CuckooParams::new(u64::MAX, 2, 20, 1).is_none());
    assert!(CuckooParams::new(1 << 40, 2, 20, 1).is_none());
    assert!(CuckooParams::new(10, 0, 20, 1).is_none());
    assert!(CuckooParams::new(10, 256, 20, 1).is_none());
}

#[test]
fn a_dump_restores_the_filter() {
    let mut filter = make(50, 2, 2);
    for number in 0..300 {
        filter.add(&name(number));
    }
    let mut copy = CuckooParams::from_header(&filter.header())
        .expect("sound")
        .build();
    let mut cursor = 1;
    while let Some(chunk) = filter.chunk(cursor) {
        assert!(copy.load_chunk(cursor, chunk));
        cursor += chunk.len() as u64;
    }
    assert_eq!(copy.header(), filter.header());
    assert_eq!(copy.layers, filter.layers);
}

#[test]
fn hostile_dumps_are_refused_or_harmless() {
    let mut random = Random::new(4);
    let mut filter = make(50, 2, 2);
    for number in 0..300 {
        filter.add(&name(number));
    }
    let header = filter.header();
    let mut accepted = 0;
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        let hostile = super::super::damaged(&header, &mut random);
        let Some(plan) = CuckooParams::from_header(&hostile) else {
            continue;
        };
        let bytes = (0..usize::from(plan.layers)).filter_map(|layer| plan.layer_bytes(layer));
        if bytes.sum::<u64>() > 1 << 16 {
            continue;
        }
        accepted += 1;
        let mut built = plan.build();
        for cursor in [0, 1, 2, 1000, u64::MAX] {
            let _ = built.chunk(cursor);
            let _ = built.load_chunk(cursor, b"abc");
        }
        if built.layers() < 100 {
            let _ = (built.add(b"a"), built.count(b"a"), built.remove(b"abc"));
        }
    }
    assert!(accepted > 0);
}
