//! A set compared with one of the standard library, over every encoding and limit.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::value::CollectionBody;
use basalt_core::base::random::Random;

const SEED: HashSeed = HashSeed { k0: 3, k1: 5 };

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
    let set = SetRef::of(entry.view(), 0);
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
        let limits = SetLimits { intset_entries, listpack_entries, listpack_value, seed: SEED, now_ms: 0 };
        let mut random = Random::new(steps.len() as u64);
        let mut entry = empty_intset(b"key");
        let mut model = BTreeSet::new();
        for step in steps {
            match step {
                Step::Add(member) => {
                    prop_assert_eq!(add(&mut entry, &member, &limits), model.insert(member));
                }
                Step::Remove(member) => {
                    prop_assert_eq!(remove(&mut entry, &member, 0), model.remove(&member));
                }
                Step::Expect(count) => expect_members(&mut entry, count, &limits),
                Step::Sample(count) => {
                    let mut found = BTreeSet::new();
                    sample(SetRef::of(entry.view(), 0), count, &mut random, |member| {
                        assert!(found.insert(member.to_vec()));
                    });
                    prop_assert_eq!(found.len(), count.min(model.len()));
                    prop_assert!(found.is_subset(&model));
                    random_many(SetRef::of(entry.view(), 0), count, &mut random, |member| {
                        assert!(model.contains(&member.to_vec()));
                    });
                }
                Step::Take(count) => {
                    if count < model.len() {
                        let mut drop = |member: Element<'_>| {
                            assert!(model.remove(&member.to_vec()));
                        };
                        if leaves_few(SetRef::of(entry.view(), 0), count) {
                            entry = left_of(entry.view(), count, &mut random, &limits, drop);
                        } else {
                            take_many(&mut entry, count, &mut random, 0, &mut drop);
                        }
                    }
                }
            }
            prop_assert_eq!(&all(&entry), &model);
            let set = SetRef::of(entry.view(), 0);
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
                SetRef::Table(..) => {}
            }
        }
    }
}

#[test]
fn a_walk_stops_where_it_is_told_to() {
    let limits = SetLimits {
        intset_entries: 0,
        listpack_entries: 0,
        listpack_value: 0,
        seed: SEED,
        now_ms: 0,
    };
    let mut entry = new_entry(b"key", b"a", 1, &limits);
    for number in 0..1000 {
        add(&mut entry, format!("m{number}").as_bytes(), &limits);
    }
    for wanted in [1, 63, 64, 65, 500, 1000] {
        let mut count = 0;
        SetRef::of(entry.view(), 0).while_each(|_| {
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
        members.insert(format!("m{number}").as_bytes(), 0);
    }
    let copy = members.duplicate();
    let mut slices = 1;
    while members.free_some(512) {
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    assert_eq!(members.len(0), 0);
    assert_eq!(copy.len(0), 5_000);
    assert!(copy.contains(b"m4999", 0));
}

#[test]
fn a_large_set_whose_changes_are_undone_has_its_members_again() {
    let limits = SetLimits {
        intset_entries: 4,
        listpack_entries: 4,
        listpack_value: 8,
        seed: SEED,
        now_ms: 0,
    };
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut entry = empty_intset(b"key");
        let change = |entry: &mut Entry<Object>, random: &mut Random| {
            let member = random.below(150).to_string();
            let len = SetRef::of(entry.view(), 0).len();
            match random.below(8) {
                0..=3 => drop(add(entry, member.as_bytes(), &limits)),
                4 | 5 => drop(remove(entry, member.as_bytes(), 0)),
                6 if len > 1 => {
                    let count = random.index(len);
                    take_many(entry, count, random, 0, |_| {});
                }
                _ => members_mut(entry).take_random(random, 0, |_| {}),
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

/// The members with their deadlines.
type Model = BTreeMap<Vec<u8>, Option<u64>>;

#[derive(Clone, Debug)]
enum Timed {
    Add(Vec<u8>),
    Remove(Vec<u8>),
    Expire(Vec<u8>, Option<u64>),
    Take(usize),
    Delete(usize),
    Wait(u64),
    /// Undoes this number of the following steps.
    Attempt(usize),
}

fn timed() -> impl Strategy<Value = Timed> {
    prop_oneof![
        6 => member().prop_map(Timed::Add),
        3 => member().prop_map(Timed::Remove),
        6 => (member(), prop::option::of(0_u64..60)).prop_map(|(name, ms)| Timed::Expire(name, ms)),
        1 => (0_usize..8).prop_map(Timed::Take),
        1 => (0_usize..8).prop_map(Timed::Delete),
        2 => (0_u64..20).prop_map(Timed::Wait),
        1 => (1_usize..12).prop_map(Timed::Attempt),
    ]
}

fn shown(entry: &Entry<Object>, now_ms: u64) -> Model {
    let mut found = Model::new();
    SetRef::of(entry.view(), now_ms).for_each_with_deadline(|member, deadline| {
        assert_eq!(found.insert(member.to_vec(), deadline), None, "each once");
    });
    found
}

proptest! {
    #[test]
    fn members_are_there_until_their_time_comes_and_changes_can_be_undone(
        steps in prop::collection::vec(timed(), 0..120),
        small_entries in 0_usize..16,
    ) {
        let is_live = |deadline: Option<u64>, now_ms: u64| deadline.is_none_or(|at_ms| at_ms > now_ms);
        let mut limits = SetLimits {
            intset_entries: small_entries,
            listpack_entries: small_entries,
            listpack_value: 10,
            seed: SEED,
            now_ms: 1_000,
        };
        let mut random = Random::new(steps.len() as u64);
        let mut entry = empty_intset(b"key");
        let mut model = Model::new();
        let mut attempt: Option<(usize, Model)> = None;
        for step in steps {
            let now_ms = limits.now_ms;
            if let Some((left, before)) = &mut attempt {
                *left -= 1;
                if *left == 0 {
                    let members = members_mut(&mut entry);
                    let journal = members.take_changes().expect("kept since it began");
                    members.undo(&journal);
                    prop_assert_eq!(shown(&entry, 0), before.clone());
                    model = before.clone();
                    attempt = None;
                }
            }
            let live = |model: &Model, name: &Vec<u8>| {
                model.get(name).is_some_and(|deadline| is_live(*deadline, now_ms))
            };
            match step {
                Timed::Add(name) => {
                    let is_new = !live(&model, &name);
                    prop_assert_eq!(add(&mut entry, &name, &limits), is_new);
                    if is_new {
                        model.insert(name, None);
                    }
                }
                Timed::Remove(name) => {
                    let was_there = live(&model, &name);
                    prop_assert_eq!(remove(&mut entry, &name, now_ms), was_there);
                    if was_there {
                        model.remove(&name);
                    }
                }
                Timed::Expire(name, ms) => {
                    let deadline = ms.map(|ms| now_ms + ms);
                    let is_there = live(&model, &name);
                    prop_assert_eq!(set_deadline(&mut entry, &name, deadline, &limits), is_there);
                    if is_there {
                        model.insert(name, deadline);
                    }
                }
                Timed::Take(count) => {
                    let there = SetRef::of(entry.view(), now_ms).len();
                    if count < there {
                        let mut taken = BTreeSet::new();
                        take_many(&mut entry, count, &mut random, now_ms, |member| {
                            assert!(taken.insert(member.to_vec()), "each once");
                        });
                        prop_assert_eq!(taken.len(), count);
                        for name in &taken {
                            prop_assert!(live(&model, name));
                            model.remove(name);
                        }
                    }
                }
                Timed::Delete(budget) => {
                    if ObjectKind(entry.view().kind()) == HASHTABLE {
                        let mut gone = Vec::new();
                        expire_some(&mut entry, now_ms, budget, |name, deadline_ms| {
                            gone.push((name.to_vec(), deadline_ms));
                        });
                        for (name, deadline_ms) in gone {
                            prop_assert!(deadline_ms <= now_ms);
                            prop_assert_eq!(model.remove(&name), Some(Some(deadline_ms)));
                        }
                    }
                }
                Timed::Wait(ms) => limits.now_ms += ms,
                Timed::Attempt(steps) => {
                    if attempt.is_none() && ObjectKind(entry.view().kind()) == HASHTABLE {
                        members_mut(&mut entry).keep_changes(None);
                        attempt = Some((steps, shown(&entry, 0)));
                    }
                }
            }
            let now_ms = limits.now_ms;
            if ObjectKind(entry.view().kind()) == HASHTABLE {
                members_mut(&mut entry).check_invariants();
            }
            prop_assert_eq!(&shown(&entry, 0), &model);
            let mut wanted = model.clone();
            wanted.retain(|_, deadline| is_live(*deadline, now_ms));
            prop_assert_eq!(&shown(&entry, now_ms), &wanted);
            let set = SetRef::of(entry.view(), now_ms);
            prop_assert_eq!(set.len(), wanted.len());
            prop_assert_eq!(set.next_deadline(), model.values().filter_map(|at_ms| *at_ms).min());
            for name in model.keys() {
                prop_assert_eq!(set.contains(name), wanted.contains_key(name));
                prop_assert_eq!(set.deadline(name), wanted.get(name).copied());
            }
            let mut count = 0;
            sample(set, 5, &mut random, |member| {
                assert!(wanted.contains_key(&member.to_vec()));
                count += 1;
            });
            prop_assert_eq!(count, wanted.len().min(5));
            random_many(set, 5, &mut random, |member| {
                assert!(wanted.contains_key(&member.to_vec()));
            });
        }
    }
}

#[test]
fn a_member_drawn_is_never_one_that_is_due() {
    let mut members = Members::new(SEED);
    let mut random = Random::new(7);
    for number in 0..1_000_u32 {
        members.insert(number.to_string().as_bytes(), 0);
        let deadline = (number % 10 > 0).then_some(500 + u64::from(number));
        members.set_deadline(number.to_string().as_bytes(), deadline, 0);
    }
    for (now_ms, live) in [(0, 1_000), (1_000, 550), (2_000, 100)] {
        assert_eq!(members.len(now_ms), live);
        let mut drawn = BTreeSet::new();
        for _ in 0..2_000 {
            let member = members.random(&mut random, now_ms).expect("some are left");
            assert!(members.contains(member.key(), now_ms));
            drawn.insert(member.key().to_vec());
        }
        assert!(drawn.len() * 3 > live * 2, "{} of {live}", drawn.len());
    }
    members.take_random(&mut random, 2_000, |_| {});
    assert_eq!((members.len(2_000), members.total()), (99, 999));
}
