//! A set against one of the standard library, over every encoding and limit.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::base::random::Random;
use crate::engine::value::Body;

const SEED: Seed = Seed { k0: 3, k1: 5 };

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<u8>),
    Remove(Vec<u8>),
    Expect(usize),
    Sample(usize),
    Take(usize),
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-20_i64..20).prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (0_u8..9).prop_map(|byte| vec![b'0', b'0' + byte]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => member().prop_map(Step::Add),
        4 => member().prop_map(Step::Remove),
        1 => (0_usize..20).prop_map(Step::Expect),
        1 => (0_usize..20).prop_map(Step::Sample),
        1 => (0_usize..20).prop_map(Step::Take),
    ]
}

fn all(entry: &Entry<Object>) -> BTreeSet<Vec<u8>> {
    let set = SetRef::of(entry.view());
    let mut found = BTreeSet::new();
    set.for_each(|member| assert!(found.insert(member.to_vec()), "each once"));
    assert_eq!(found.len(), set.len());
    found
}

proptest! {
    #[test]
    fn a_set_does_what_the_std_set_does(
        steps in prop::collection::vec(step(), 0..120),
        intset_entries in 0_usize..16,
        listpack_entries in 0_usize..16,
        listpack_value in 0_usize..10,
    ) {
        let limits = Limits { intset_entries, listpack_entries, listpack_value, seed: SEED };
        let mut random = Random::new(steps.len() as u64);
        let mut entry = empty_intset(b"key");
        let mut model = BTreeSet::new();
        for step in steps {
            match step {
                Step::Add(member) => {
                    prop_assert_eq!(add(&mut entry, &member, &limits), model.insert(member));
                }
                Step::Remove(member) => {
                    prop_assert_eq!(remove(&mut entry, &member), model.remove(&member));
                }
                Step::Expect(count) => expect_members(&mut entry, count, &limits),
                Step::Sample(count) => {
                    let mut found = BTreeSet::new();
                    sample(SetRef::of(entry.view()), count, &mut random, |member| {
                        assert!(found.insert(member.to_vec()));
                    });
                    prop_assert_eq!(found.len(), count.min(model.len()));
                    prop_assert!(found.is_subset(&model));
                    random_many(SetRef::of(entry.view()), count, &mut random, |member| {
                        assert!(model.contains(&member.to_vec()));
                    });
                }
                Step::Take(count) => {
                    if count < model.len() {
                        let mut drop = |member: Element<'_>| {
                            assert!(model.remove(&member.to_vec()));
                        };
                        if leaves_few(SetRef::of(entry.view()), count) {
                            entry = left_of(entry.view(), count, &mut random, &limits, drop);
                        } else {
                            take_many(&mut entry, count, &mut random, &mut drop);
                        }
                    }
                }
            }
            prop_assert_eq!(&all(&entry), &model);
            let set = SetRef::of(entry.view());
            for member in &model {
                prop_assert!(set.contains(member));
                prop_assert!(set.has(Element::Bytes(member)));
                prop_assert!(set.has(Element::of(member)));
            }
            match set {
                SetRef::Intset(numbers) => {
                    prop_assert!(numbers.len() <= intset_entries.max(model.len().min(1)));
                }
                SetRef::Listpack(pack) => {
                    prop_assert!(pack.len() <= listpack_entries);
                    prop_assert!(model.iter().all(|member| member.len() <= listpack_value));
                }
                SetRef::Table(_) => {}
            }
        }
    }
}

#[test]
fn a_walk_stops_where_it_is_told_to() {
    let limits = Limits {
        intset_entries: 0,
        listpack_entries: 0,
        listpack_value: 0,
        seed: SEED,
    };
    let mut entry = new_entry(b"key", b"a", 1, &limits);
    for number in 0..1000 {
        add(&mut entry, format!("m{number}").as_bytes(), &limits);
    }
    for wanted in [1, 63, 64, 65, 500, 1000] {
        let mut count = 0;
        SetRef::of(entry.view()).while_each(|_| {
            count += 1;
            count < wanted
        });
        assert_eq!(count, wanted);
    }
}

#[test]
fn a_large_set_is_freed_in_slices() {
    let mut members = Members::new(SEED);
    for number in 0..5_000 {
        members.insert(format!("m{number}").as_bytes());
    }
    let copy = members.duplicate();
    let mut slices = 1;
    while members.free_some(512) {
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    assert_eq!(members.len(), 0);
    assert_eq!(copy.len(), 5_000);
    assert!(copy.contains(b"m4999"));
}

#[test]
fn a_large_set_whose_changes_are_undone_has_its_members_again() {
    let limits = Limits {
        intset_entries: 4,
        listpack_entries: 4,
        listpack_value: 8,
        seed: SEED,
    };
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut entry = empty_intset(b"key");
        let change = |entry: &mut Entry<Object>, random: &mut Random| {
            let member = random.below(150).to_string();
            let len = SetRef::of(entry.view()).len();
            match random.below(8) {
                0..=3 => drop(add(entry, member.as_bytes(), &limits)),
                4 | 5 => drop(remove(entry, member.as_bytes())),
                6 if len > 1 => {
                    let count = random.index(len);
                    take_many(entry, count, random, |_| {});
                }
                _ => members_mut(entry).take_random(random, |_| {}),
            }
        };
        for member in 0..100_u8 {
            add(&mut entry, member.to_string().as_bytes(), &limits);
        }
        let before = all(&entry);
        let mut journal = None;
        for _ in 0..random.below(4) {
            assert!(members_mut(&mut entry).keep_changes(journal));
            for _ in 0..random.below(30) {
                change(&mut entry, &mut random);
            }
            journal = members_mut(&mut entry).take_changes();
        }
        if let Some(journal) = &journal {
            members_mut(&mut entry).undo(journal);
        }
        assert_eq!(all(&entry), before, "seed {seed}");
    }
}
