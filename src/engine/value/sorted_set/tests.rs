//! Both encodings of a sorted set compared with a map, across the limits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use basalt_core::structures::entry::Entry;

const SEED: HashSeed = HashSeed { k0: 1, k1: 9 };

fn limits(members: usize, form: OrderedIndexType) -> SortedSetLimits {
    SortedSetLimits {
        members,
        member_bytes: 12,
        form,
        seed: SEED,
    }
}

fn contents(set: SortedSet<'_>) -> Vec<(Vec<u8>, f64)> {
    set.iter()
        .map(|(member, score)| (member.to_vec(), score))
        .collect()
}

fn ordered(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = model.iter().map(|(m, s)| (m.clone(), *s)).collect();
    all.sort_by(|one, two| one.1.partial_cmp(&two.1).unwrap().then(one.0.cmp(&two.0)));
    all
}

fn follow(limits: SortedSetLimits, steps: &[(u8, u16, i8)]) {
    let mut entry: Entry<Object> = SortedSetMut::empty_entry(b"key");
    let mut model = BTreeMap::new();
    for (action, number, score) in steps {
        let member = match number % 7 {
            0 => format!("{number}"),
            1 => format!("a rather long member {number}"),
            _ => format!("m{number}"),
        }
        .into_bytes();
        let score = match score {
            0 => f64::INFINITY,
            1 => 1e17,
            2 => 0.1,
            score => f64::from(*score) / 4.0,
        };
        let mut set = SortedSetMut::new(&mut entry, limits);
        match action {
            0 | 1 => assert_eq!(set.remove(&member), model.remove(&member)),
            2 => {
                let from = usize::from(*number) % (model.len() + 1);
                for (member, _) in ordered(&model).into_iter().skip(from).take(3) {
                    model.remove(&member);
                }
                set.remove_range(from, 3);
            }
            _ => {
                set.update(&member, 0.0, |old| {
                    assert_eq!(old, model.get(&member).copied());
                    Some(score)
                });
                model.insert(member, score);
            }
        }
    }
    let set = SortedSet::of(entry.view());
    let order = ordered(&model);
    assert_eq!(contents(set), order);
    assert_eq!(set.len(), order.len());
    let mut backwards: Vec<_> = set
        .range(0, set.len(), Direction::Descending)
        .map(|(member, score)| (member.to_vec(), score))
        .collect();
    backwards.reverse();
    assert_eq!(backwards, order);
    for (rank, (member, score)) in order.iter().enumerate() {
        assert_eq!(set.rank(member), Some((rank, *score)));
        assert_eq!(set.score(member), Some(*score));
        let got = set
            .get(rank)
            .map(|(member, score)| (member.to_vec(), score));
        assert_eq!(got.as_ref(), Some(&order[rank]));
    }
    let below = order.iter().filter(|(_, score)| *score < 2.0).count();
    assert_eq!(set.rank_by_score(|score| score < 2.0), below);
    let mut seen = Vec::new();
    assert_eq!(
        set.scan(0, usize::MAX, |member, score| seen
            .push((member.to_vec(), score))),
        0
    );
    seen.sort_by(|one, two| one.1.partial_cmp(&two.1).unwrap().then(one.0.cmp(&two.0)));
    assert_eq!(seen, order);
    if let SortedSet::Small(pack) = set {
        assert!(pack.is_empty() || check_listpack(pack.bytes()));
    }
    let made = SortedSetMut::entry_of(b"other", &mut order.clone(), limits);
    assert_eq!(contents(SortedSet::of(made.view())), order);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changes_leave_what_a_map_would_hold(
        members in 0..40usize,
        is_tree in any::<bool>(),
        steps in prop::collection::vec((0..8u8, 0..90u16, 0..20i8), 1..200),
    ) {
        follow(limits(members, if is_tree { OrderedIndexType::Tree } else { OrderedIndexType::Skip }), &steps);
    }
}

#[test]
fn a_set_becomes_large_by_number_or_by_length() {
    let kind = |entry: &Entry<Object>| ObjectKind(entry.view().kind());
    let mut entry = SortedSetMut::empty_entry(b"key");
    let mut set = SortedSetMut::new(&mut entry, limits(2, OrderedIndexType::Tree));
    set.update(b"one", 0.0, |_| Some(1.0));
    set.update(b"two", 0.0, |_| Some(2.0));
    set.update(b"one", 0.0, |_| Some(3.0));
    assert_eq!(kind(&entry), LISTPACK);
    SortedSetMut::new(&mut entry, limits(2, OrderedIndexType::Tree))
        .update(b"three", 0.0, |_| None);
    assert_eq!(kind(&entry), LISTPACK);
    SortedSetMut::new(&mut entry, limits(2, OrderedIndexType::Tree))
        .update(b"three", 0.0, |_| Some(0.5));
    assert_eq!(kind(&entry), SKIPLIST);
    let mut entry = SortedSetMut::empty_entry(b"key");
    SortedSetMut::new(&mut entry, limits(2, OrderedIndexType::Skip)).update(
        b"thirteen bytes",
        0.0,
        |_| Some(1.0),
    );
    assert_eq!(kind(&entry), SKIPLIST);
    assert_eq!(SortedSet::of(entry.view()).len(), 1);
}

#[test]
fn packs_from_elsewhere_are_taken_only_in_order() {
    let pack_of = |texts: &[&str]| {
        let mut bytes = basalt_core::structures::listpack::EMPTY.to_vec();
        let mut pack = basalt_core::structures::listpack::ListpackMut::new(&mut bytes);
        texts
            .iter()
            .for_each(|text| pack.push_back(text.as_bytes()));
        bytes
    };
    assert!(check_listpack(&pack_of(&["a", "1", "b", "1", "c", "2.5"])));
    assert!(check_listpack(&pack_of(&["a", "-inf", "b", "inf"])));
    for wrong in [
        &["a", "1", "b"][..],
        &[],
        &["a", "x"],
        &["a", "nan"],
        &["b", "1", "a", "1"],
        &["a", "2", "b", "1"],
        &["a", "1", "a", "2"],
    ] {
        assert!(!check_listpack(&pack_of(wrong)), "{wrong:?}");
    }
    assert!(!check_listpack(b"no pack"));
}

#[test]
fn a_set_of_many_members_is_in_order_whatever_order_they_come_in() {
    for form in [OrderedIndexType::Tree, OrderedIndexType::Skip] {
        let mut members: Vec<(Vec<u8>, f64)> = (0..3_000)
            .map(|number| {
                let score = [0.0, -0.0, 1.5, f64::NEG_INFINITY][number % 4];
                (format!("m{}", number * 7 % 3_000).into_bytes(), score)
            })
            .collect();
        let made = SortedSetMut::entry_of(b"key", &mut members.clone(), limits(10, form));
        match SortedSet::of(made.view()) {
            SortedSet::Large(ranking) => ranking.check_invariants(),
            SortedSet::Small(_) => panic!("it is large"),
        }
        members.sort_by(|one, two| one.1.partial_cmp(&two.1).unwrap().then(one.0.cmp(&two.0)));
        assert_eq!(contents(SortedSet::of(made.view())), members);
        // If a member occurs twice, its last score counts, as before.
        let mut twice: Vec<_> = (0..20)
            .map(|number| (vec![b'a' + number % 19], f64::from(number)))
            .collect();
        let made = SortedSetMut::entry_of(b"key", &mut twice, limits(10, form));
        let set = SortedSet::of(made.view());
        assert_eq!((set.len(), set.score(b"a")), (19, Some(19.0)));
    }
}
