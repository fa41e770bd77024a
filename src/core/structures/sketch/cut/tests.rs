//! Tests of `cut`.

use super::super::bloom::{self, Bloom};
use super::super::count_min::{self, CountMin, Sum};
use super::super::cuckoo::{self, Cuckoo};
use super::super::t_digest::TDigest;
use super::super::top_k::{self, TopK};
use super::*;
use crate::base::random::Random;

/// Changes a sketch at random, in all ways that `change` provides.
fn goes_on<S: SketchCodec + Clone>(
    seed: u64,
    mut sketch: S,
    change: impl Fn(&mut S, &mut Random, u64),
) {
    let mut random = Random::new(seed);
    let mut number = 0;
    for round in 0..40 {
        for _ in 0..random.next_u64() % 300 {
            number += 1;
            change(&mut sketch, &mut random, number);
        }
        let expected = sketch.data();
        assert_eq!(sketch.pages(), pages(expected.len() as u64));
        sketch.begin_cut();
        assert!(!sketch.clone().cut().is_open(), "a copy is whole");
        let (mut shown, mut count) = (Vec::new(), 0);
        let is_given_up = round % 8 == 7;
        loop {
            for _ in 0..random.next_u64() % 8 {
                number += 1;
                change(&mut sketch, &mut random, number);
            }
            let mut show = |page: &[u8]| {
                shown.extend_from_slice(page);
                count += 1;
            };
            let more = match is_given_up && number % 5 == 0 {
                true => sketch.forget_cut(3),
                false => sketch.show_cut(1 + (random.next_u64() % 3) as usize, &mut show),
            };
            if !more {
                break;
            }
        }
        assert!(!sketch.cut().is_open());
        if !is_given_up {
            assert_eq!(count, pages(expected.len() as u64));
            assert!(shown == expected, "seed {seed}, round {round}");
        }
    }
}

fn name(random: &mut Random, many: u64) -> Vec<u8> {
    format!("element-{}", random.next_u64() % many).into_bytes()
}

#[test]
fn what_is_shown_is_what_was_there_at_the_cut() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let bloom = bloom::BloomParams::new(300, 0.01, Some(2))
            .expect("small")
            .build();
        goes_on(seed, bloom, |filter: &mut Bloom, random, number| {
            let _ = filter.add(&name(random, number));
            if number % 97 == 0 {
                filter.load_chunk(1 + random.next_u64() % 100, &[number as u8; 90]);
            }
        });
        let cuckoo = cuckoo::CuckooParams::new(64, 2, 20, 1)
            .expect("small")
            .build();
        goes_on(seed, cuckoo, |filter: &mut Cuckoo, random, number| {
            // Layers are added, and removed.
            match number / 400 % 2 {
                0 => assert!(filter.add(&name(random, 500)) != cuckoo::Added::Full),
                _ => {
                    filter.remove(&name(random, 500));
                }
            }
        });
        let count_min = count_min::CountMinParams::new(40, 3, count_min::CellSize::Four)
            .expect("small")
            .build();
        goes_on(seed, count_min, |sketch: &mut CountMin, random, number| {
            let by = (1 + number % 3).cast_signed();
            let _ = sketch.add(&name(random, 90), by);
            if number % 50 == 0 {
                let mut sum = Sum::new(sketch);
                sum.add(sketch, 2);
                sketch.replace(&sum);
            }
        });
        let top_k = top_k::TopKParams::new(5, 30, 3, 0.9)
            .expect("small")
            .build();
        goes_on(seed, top_k, |sketch: &mut TopK, random, _| {
            let element = name(random, 60);
            sketch.add(&element, 1, random);
        });
        let digest = TDigest::new(60);
        goes_on(
            seed,
            digest,
            |digest: &mut TDigest, random, number| match number % 331 {
                0 => digest.reset(),
                1 => {
                    let mut other = TDigest::new(60);
                    for one in 0..80 {
                        other.add(f64::from(one)).expect("few");
                    }
                    digest.replace(&other);
                }
                _ => digest.add(random.unit()).expect("few"),
            },
        );
    }
}
