//! Tests of `intset`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::structures::entry::Entry;

fn check(bytes: &[u8], model: &BTreeSet<i64>) {
    let set = Intset::check(bytes).expect("a set in every detail");
    assert_eq!(set.len(), model.len());
    assert_eq!(set.is_empty(), model.is_empty());
    assert!(set.iter().eq(model.iter().copied()));
    assert!(set.iter().rev().eq(model.iter().rev().copied()));
    assert_eq!(set.min(), model.first().copied());
    assert_eq!(set.max(), model.last().copied());
    for (index, &member) in model.iter().enumerate() {
        assert_eq!(set.get(index), Some(member));
        assert_eq!(set.search(member), Ok(index));
    }
    for beyond in [model.len(), usize::MAX] {
        assert_eq!(set.get(beyond), None);
    }
    assert_eq!(bytes.len(), HEAD_BYTES + set.len() * set.width());
}

fn set_of(members: &[i64]) -> Vec<u8> {
    let mut bytes = EMPTY.to_vec();
    for &member in members {
        IntsetMut::new(&mut bytes).add(member);
    }
    bytes
}

#[test]
fn an_empty_set_is_empty() {
    check(&EMPTY, &BTreeSet::new());
    assert!(!Intset::new(&EMPTY).contains(0));
    assert!(!IntsetMut::new(&mut EMPTY.to_vec()).remove(0));
}

#[test]
fn members_become_the_bytes_that_redis_writes() {
    // `SADD i 1 -5 300 70000`, then `SADD i -5000000000`, as redis-server 7.0.15 dumps them.
    let mut bytes = set_of(&[1, -5, 300, 70_000]);
    let recorded = b"\x04\0\0\0\x04\0\0\0\xfb\xff\xff\xff\x01\0\0\0,\x01\0\0p\x11\x01\0";
    assert_eq!(bytes, recorded);
    IntsetMut::new(&mut bytes).add(-5_000_000_000);
    let recorded = b"\x08\0\0\0\x05\0\0\0\0\x0e\xfa\xd5\xfe\xff\xff\xff\
            \xfb\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0\0\0\0\0,\x01\0\0\0\0\0\0p\x11\x01\0\0\0\0\0";
    assert_eq!(bytes, recorded);
}

#[test]
fn the_width_stays_when_the_wide_member_goes() {
    let mut bytes = set_of(&[1, i64::MAX]);
    assert!(IntsetMut::new(&mut bytes).remove(i64::MAX));
    assert_eq!(Intset::new(&bytes).width(), 8);
    check(&bytes, &BTreeSet::from([1]));
}

#[test]
fn each_part_of_the_format_is_checked() {
    for (bytes, why) in [
        (&b""[..], "nothing"),
        (b"\x02\0\0\0\0\0\0", "half a head"),
        (b"\x03\0\0\0\0\0\0\0", "an unknown width"),
        (b"\0\0\0\0\0\0\0\0", "no width"),
        (b"\x02\x01\0\0\0\0\0\0", "a wide width"),
        (b"\x02\0\0\0\x01\0\0\0", "a count too high"),
        (b"\x02\0\0\0\0\0\0\0\x01\0", "a count too low"),
        (b"\x08\0\0\0\xff\xff\xff\xff", "a huge count"),
        (b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0", "a member twice"),
        (b"\x02\0\0\0\x02\0\0\0\x05\0\x04\0", "members out of order"),
    ] {
        assert!(Intset::check(bytes).is_none(), "{why} was accepted");
    }
}

fn value() -> impl Strategy<Value = i64> {
    let near = prop::sample::select(vec![
        0,
        i64::from(i16::MIN),
        i64::from(i16::MAX),
        i64::from(i32::MIN),
        i64::from(i32::MAX),
        i64::MIN,
        i64::MAX,
    ]);
    prop_oneof![
        6 => -20_i64..20,
        3 => any::<i16>().prop_map(i64::from),
        1 => any::<i32>().prop_map(i64::from),
        1 => (near, -2_i64..=2).prop_map(|(near, offset)| near.saturating_add(offset)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn any_sequence_of_changes_leaves_what_a_tree_would_hold(
        changes in prop::collection::vec((0_u8..4, value(), any::<usize>()), 0..if cfg!(miri) { 20 } else { 80 }),
    ) {
        let mut bytes = EMPTY.to_vec();
        let mut entry = Entry::<()>::bytes(1, b"key", &EMPTY, None);
        let mut model = BTreeSet::new();
        for (what, value, index) in changes {
            let mut set = IntsetMut::new(&mut bytes);
            let mut twin = IntsetMut::new(&mut entry);
            prop_assert_eq!(set.as_intset().contains(value), model.contains(&value));
            match what {
                0 | 1 => {
                    let added = model.insert(value);
                    prop_assert_eq!((set.add(value), twin.add(value)), (added, added));
                }
                2 => {
                    let removed = model.remove(&value);
                    prop_assert_eq!((set.remove(value), twin.remove(value)), (removed, removed));
                }
                _ => {
                    let index = index.checked_rem(model.len()).unwrap_or(0);
                    let removed = model.iter().nth(index).copied();
                    if let Some(value) = removed {
                        model.remove(&value);
                    }
                    prop_assert_eq!(set.remove_at(index), removed);
                    twin.remove_at(index);
                }
            }
            check(&bytes, &model);
            prop_assert_eq!(Splice::bytes(&entry), &bytes[..]);
        }
    }

    #[test]
    fn garbage_is_refused_or_ascends(
        width in prop::sample::select(vec![2_u8, 4, 8]),
        count in 0_u8..4,
        members in prop::collection::vec(any::<u8>(), 0..34),
    ) {
        let mut bytes = vec![width, 0, 0, 0, count, 0, 0, 0];
        bytes.extend_from_slice(&members);
        if let Some(set) = Intset::check(&bytes) {
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>().len(), usize::from(count));
        }
    }
}
