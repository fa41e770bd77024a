//! Sketches compared with a model, and tested on bytes that no server wrote.

use super::*;
use crate::base::random::Random;
use proptest::prelude::*;

const SPARSE_BYTES_MAX: usize = 3000;

/// Returns the registers that a sketch must hold: the highest value added to each.
fn model<'e>(elements: impl Iterator<Item = &'e [u8]>) -> Vec<u8> {
    let mut registers = vec![0; REGISTERS];
    for element in elements {
        let (index, value) = hash::register_of(element);
        registers[index] = registers[index].max(value);
    }
    registers
}

fn values(bytes: &[u8]) -> Vec<u8> {
    let mut registers = Registers::new();
    let sketch = Sketch::of(bytes).expect("a sketch");
    sketch.merge_into(&mut registers).expect("it is sound");
    registers.values().to_vec()
}

fn numbers(from: u64, count: u64) -> Vec<[u8; 8]> {
    (from..from + count).map(u64::to_be_bytes).collect()
}

fn add_one(bytes: &mut Vec<u8>, element: &[u8], limit: usize) -> Result<bool, Corrupt> {
    add(bytes, std::iter::once(element), limit)
}

fn encoding(bytes: &[u8]) -> Encoding {
    Sketch::of(bytes).expect("a sketch").encoding()
}

fn count(bytes: &[u8]) -> u64 {
    let sketch = Sketch::of(bytes).expect("a sketch");
    sketch.count().expect("it is sound")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 32 }))]

    #[test]
    fn registers_hold_the_highest_values_in_either_encoding(
        from: u64,
        count in 0_u64..if cfg!(miri) { 60 } else { 3000 },
        limit in prop_oneof![Just(0), 18_usize..300, Just(SPARSE_BYTES_MAX), Just(20_000)],
    ) {
        let elements = numbers(from >> 1, count);
        let mut bytes = empty();
        let mut changes = 0;
        for element in &elements {
            changes += usize::from(add_one(&mut bytes, element, limit).expect("sound"));
        }
        let expected = model(elements.iter().map(|element| &element[..]));
        prop_assert!(changes >= expected.iter().filter(|value| **value > 0).count());
        prop_assert_eq!(&values(&bytes), &expected);
        prop_assert!(encoding(&bytes) == Encoding::Dense || bytes.len() <= limit.max(18));
        let mut dense = bytes.clone();
        to_dense(&mut dense).expect("sound");
        prop_assert_eq!(&values(&dense), &expected);
        prop_assert_eq!(self::count(&dense), self::count(&bytes));
        // The elements were added before: nothing changes.
        let before = bytes.clone();
        let again = add(&mut bytes, elements.iter().map(|element| &element[..]), limit);
        prop_assert_eq!(again, Ok(false));
        prop_assert_eq!(before, bytes);
    }

    #[test]
    fn all_at_once_is_the_same_bytes_as_one_by_one(
        known in 0_u64..400,
        from in 0_u64..500,
        count in 0_u64..700,
        limit in prop_oneof![18_usize..200, Just(SPARSE_BYTES_MAX)],
    ) {
        let mut all = empty();
        for element in &numbers(0, known) {
            add_one(&mut all, element, limit).expect("sound");
        }
        let mut one_by_one = all.clone();
        let mut union = Registers::new();
        Sketch::of(&all).expect("a sketch").merge_into(&mut union).expect("sound");
        let mut other = empty();
        for element in &numbers(from, count) {
            add_one(&mut other, element, SPARSE_BYTES_MAX).expect("sound");
        }
        Sketch::of(&other).expect("a sketch").merge_into(&mut union).expect("sound");
        raise_all(&mut all, &union, limit).expect("sound");
        for (index, value) in union.values().iter().enumerate() {
            if *value > 0 {
                raise(&mut one_by_one, index, *value, limit).expect("sound");
            }
        }
        forget_cached(&mut one_by_one);
        prop_assert_eq!(all, one_by_one);
    }
}

#[test]
fn whatever_bytes_a_client_writes_nothing_panics_and_errors_change_nothing() {
    let mut random = Random::new(7);
    let elements = numbers(1, 40);
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let mut bytes = empty();
        for element in &numbers(round, [0, 3, 60, 300][random.index(4)]) {
            add_one(&mut bytes, element, SPARSE_BYTES_MAX).expect("sound");
        }
        if random.below(20) == 0 {
            to_dense(&mut bytes).expect("sound");
        }
        for _ in 0..=random.below(6) {
            match random.below(8) {
                0 => bytes.truncate(random.index(bytes.len() + 1)),
                1 => bytes.extend((0..random.below(9)).map(|_| random.next_u64() as u8)),
                // The runs of the body matter most, so they are changed often and the header seldom.
                2 if !bytes.is_empty() => {
                    let at = random.index(bytes.len().min(HEADER_BYTES));
                    bytes[at] = random.next_u64() as u8;
                }
                _ if bytes.len() > HEADER_BYTES => {
                    let at = HEADER_BYTES + random.index(bytes.len() - HEADER_BYTES);
                    bytes[at] = random.next_u64() as u8;
                }
                _ => {}
            }
        }
        let Some(sketch) = Sketch::of(&bytes) else {
            continue;
        };
        let _ = (sketch.cached(), sketch.count());
        let _ = sparse::runs(sketch.body()).count();
        let mut registers = Registers::new();
        let merged = sketch.merge_into(&mut registers);
        let _ = registers.count();
        for limit in [0, 100, SPARSE_BYTES_MAX, usize::MAX] {
            let mut changed = bytes.clone();
            let added = add(
                &mut changed,
                elements.iter().map(|element| &element[..]),
                limit,
            );
            assert!(
                added.is_ok() || changed == bytes,
                "an error changes nothing"
            );
            assert!(Sketch::of(&changed).is_some(), "a sketch stays one");
        }
        let mut dense = bytes.clone();
        let is_dense = to_dense(&mut dense);
        assert_eq!(is_dense.is_ok(), merged.is_ok());
        assert!(is_dense.is_ok() || dense == bytes);
        if merged.is_ok() {
            assert_eq!(raise_all(&mut dense, &registers, 0), Ok(()));
            let mut raised = bytes;
            assert_eq!(raise_all(&mut raised, &registers, SPARSE_BYTES_MAX), Ok(()));
        }
    }
}

#[test]
fn estimates_are_as_near_as_the_theory_says() {
    let (mut bytes, mut worst) = (empty(), 0.0_f64);
    let mut next = 1;
    for number in 1..=if cfg!(miri) { 1000 } else { 60_000_u64 } {
        add_one(&mut bytes, &number.to_be_bytes(), SPARSE_BYTES_MAX).expect("sound");
        if number == next {
            let error = count(&bytes).abs_diff(number) as f64 / number as f64;
            worst = worst.max(error);
            next = next * 5 / 4 + 1;
        }
    }
    // The standard error is 1.04 / sqrt(16,384), 0.81 %.
    assert!(worst < 0.03, "{worst}");
}

#[test]
fn a_cached_count_is_good_until_a_register_changes() {
    let mut bytes = empty();
    assert_eq!(Sketch::of(&bytes).expect("a sketch").cached(), Some(0));
    add_one(&mut bytes, b"a", SPARSE_BYTES_MAX).expect("sound");
    assert_eq!(Sketch::of(&bytes).expect("a sketch").cached(), None);
    set_cached(&mut bytes, 1);
    add_one(&mut bytes, b"a", SPARSE_BYTES_MAX).expect("sound");
    assert_eq!(Sketch::of(&bytes).expect("a sketch").cached(), Some(1));
    to_dense(&mut bytes).expect("sound");
    assert_eq!(Sketch::of(&bytes).expect("a sketch").cached(), Some(1));
    add_one(&mut bytes, b"b", SPARSE_BYTES_MAX).expect("sound");
    assert_eq!(Sketch::of(&bytes).expect("a sketch").cached(), None);
}
