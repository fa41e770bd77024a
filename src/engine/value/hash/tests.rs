//! Hashes against a model, across every threshold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::value::CollectionBody;
use crate::{Engine, Key, Now};

const SEED: HashSeed = HashSeed { k0: 7, k1: 9 };

fn rules(fields_max: usize, element_bytes_max: usize, now_ms: u64) -> HashRules {
    HashRules {
        fields_max,
        element_bytes_max,
        seed: SEED,
        now_ms,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>, bool),
    Remove(u8),
    Deadline(u8, Option<u64>),
    Expire(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![
        3 => "[0-9]{0,12}".prop_map(String::into_bytes),
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => prop::collection::vec(any::<u8>(), 60..70),
    ];
    let step = prop_oneof![
        8 => (any::<u8>(), value, any::<bool>()).prop_map(|(name, value, keep)| Step::Set(name, value, keep)),
        3 => any::<u8>().prop_map(Step::Remove),
        4 => (any::<u8>(), prop::option::of(1..50_u64))
            .prop_map(|(name, after_ms)| Step::Deadline(name, after_ms)),
        1 => (0..5_usize).prop_map(Step::Expire),
        2 => (1..20_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

fn name_of(name: u8, names: u8) -> Vec<u8> {
    let name = name % names;
    match name % 3 {
        0 => name.to_string().into_bytes(),
        1 => format!("field:{name}").into_bytes(),
        _ => vec![name, 0, 255],
    }
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn is_live(deadline: Option<u64>, now_ms: u64) -> bool {
    deadline.is_none_or(|deadline_ms| deadline_ms > now_ms)
}

fn contents(hash: HashRef<'_>) -> Model {
    let mut all = Model::new();
    hash.for_each(|field| {
        let value = (field.value.to_vec(), field.deadline);
        assert_eq!(
            all.insert(field.name.to_vec(), value),
            None,
            "each field once"
        );
    });
    all
}

proptest! {
    #[test]
    fn a_hash_is_a_map_in_which_fields_expire(
        names in 1..60_u8,
        fields_max in 0..40_usize,
        steps in steps(),
    ) {
        let mut now_ms = 1_000;
        let mut model = Model::new();
        let first = (b"first".as_slice(), b"1".as_slice());
        let mut entry = new_hash(b"key", std::iter::once(first), &rules(fields_max, 64, now_ms));
        model.insert(b"first".to_vec(), (b"1".to_vec(), None));
        for step in steps {
            let rules = rules(fields_max, 64, now_ms);
            let mut hash = HashMut::new(&mut entry, &rules);
            match step {
                Step::Set(name, value, keep) => {
                    let name = name_of(name, names);
                    let deadline = if keep { FieldDeadline::Keep } else { FieldDeadline::Clear };
                    let before = model.get(&name).filter(|field| is_live(field.1, now_ms)).cloned();
                    prop_assert_eq!(hash.set(&name, &value, deadline), before.is_none());
                    let kept = before.and_then(|field| field.1).filter(|_| keep);
                    model.insert(name, (value, kept));
                }
                Step::Remove(name) => {
                    let name = name_of(name, names);
                    let was = model.remove(&name).is_some_and(|field| is_live(field.1, now_ms));
                    prop_assert_eq!(hash.remove(&name), was);
                }
                Step::Deadline(name, after_ms) => {
                    let name = name_of(name, names);
                    let deadline = after_ms.map(|after_ms| now_ms + after_ms);
                    let field = model.get_mut(&name).filter(|field| is_live(field.1, now_ms));
                    prop_assert_eq!(hash.set_deadline(&name, deadline), field.is_some());
                    if let Some(field) = field {
                        field.1 = deadline;
                    }
                }
                Step::Expire(budget) => {
                    let due = model.values().filter(|field| !is_live(field.1, now_ms)).count();
                    let mut lags = 0;
                    let count = expire_some(&mut entry, now_ms, budget, |_, deadline_ms| {
                        assert!(deadline_ms <= now_ms);
                        lags += 1;
                    });
                    prop_assert_eq!(lags, count);
                    prop_assert!(count <= due);
                    prop_assert!(count == due || count == budget);
                    // Which fields were deleted is not reported; no expired field is visible. If the last deleted
                    // field had the same deadline as a remaining one, the model could not tell which of them it was:
                    // then all are deleted.
                    let mut deadlines: Vec<_> = model.values().map(|field| field.1).collect();
                    deadlines.retain(|deadline| !is_live(*deadline, now_ms));
                    deadlines.sort_unstable();
                    let is_tie = count > 0 && deadlines.get(count) == deadlines.get(count - 1);
                    if is_tie {
                        expire_some(&mut entry, now_ms, usize::MAX, |_, _| {});
                    }
                    if count == due || is_tie {
                        model.retain(|_, field| is_live(field.1, now_ms));
                    } else {
                        for _ in 0..count {
                            let soonest = model
                                .iter()
                                .filter(|(_, field)| !is_live(field.1, now_ms))
                                .min_by_key(|(_, field)| field.1)
                                .map(|(name, _)| name.clone())
                                .expect("as many are due");
                            model.remove(&soonest);
                        }
                    }
                }
                Step::Wait(ms) => now_ms += ms,
            }
            if let Some(table) = large_mut(&mut entry) {
                table.check_invariants();
            }
            let hash = HashRef::of(entry.view(), now_ms).expect("a hash");
            let live: Model = model
                .iter()
                .filter(|(_, field)| is_live(field.1, now_ms))
                .map(|(name, field)| (name.clone(), field.clone()))
                .collect();
            prop_assert_eq!(hash.len(), live.len());
            prop_assert_eq!(contents(hash), live.clone());
            for (name, (value, deadline)) in &live {
                let field = hash.get(name).expect("a live field");
                prop_assert!(field.value.with_bytes(|own| own == &**value));
                prop_assert_eq!(field.deadline, *deadline);
            }
            prop_assert!(hash.get(b"no such field").is_none());
            let over = is_empty_or_over(entry.view(), now_ms);
            prop_assert_eq!(over.is_some(), live.is_empty());
            let next = next_field_deadline(entry.view());
            let is_small = matches!(Layout::of(entry.view()), Some(Layout::Small(..)));
            prop_assert!(!is_small || model.len() <= fields_max);
            let wanted = model.values().filter_map(|field| field.1).min();
            prop_assert_eq!(next, wanted);
        }
    }
}

#[test]
fn fields_drawn_are_spread_evenly_and_differ_where_asked() {
    let mut random = Random::new(3);
    for fields_max in [0, 1_000] {
        let rules = rules(fields_max, 64, 0);
        let names: Vec<String> = (0..90).map(|index| format!("f{index}")).collect();
        let pairs = names.iter().map(|name| (name.as_bytes(), b"v".as_slice()));
        let entry = new_hash(b"key", pairs, &rules);
        let hash = HashRef::of(entry.view(), 0).expect("a hash");
        let mut counts = BTreeMap::new();
        hash.draw(&mut random, 90_000, |field| {
            *counts.entry(field.name.to_vec()).or_insert(0) += 1;
            true
        });
        assert_eq!(counts.len(), 90);
        assert!(
            counts.values().all(|count| (700..1_300).contains(count)),
            "{counts:?}"
        );
        for count in [0, 1, 5, 29, 30, 31, 89, 90, 200] {
            let mut drawn = Vec::new();
            hash.draw_distinct(&mut random, count, |field| drawn.push(field.name.to_vec()));
            assert_eq!(drawn.len(), count.min(90));
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), count.min(90));
        }
    }
}

#[test]
fn a_table_can_be_copied_and_freed_in_slices() {
    let mut table = HashTable::new(SEED);
    for index in 0..5_000_u64 {
        let deadline = (index % 2 == 0).then_some(1_000 + index);
        table.push(format!("field{index}").as_bytes(), b"value", deadline);
    }
    use crate::value::body::CollectionBody;
    let mut copy = table.duplicate();
    copy.check_invariants();
    assert_eq!((copy.total(), copy.deadline_count()), (5_000, 2_500));
    let mut slices = 1;
    while table.free_some(300) {
        slices += 1;
    }
    assert!(slices > 10, "{slices}");
    assert_eq!(copy.len(1_999), 4_500);
    assert_eq!(copy.expire_some(1_999, 200, |_, _| ()), 200);
    assert_eq!(copy.total(), 4_800);
    copy.check_invariants();
}

fn set(
    engine: &mut Engine,
    key: &str,
    fields: &[(String, Option<u64>)],
    now_ms: u64,
    fields_max: usize,
) {
    let key = Key::new(key.as_bytes(), SEED);
    let rules = rules(fields_max, 64, now_ms);
    let mut keyspace = engine.keyspace(0, Now { unix_ms: now_ms });
    let pairs = fields
        .iter()
        .map(|(name, _)| (name.as_bytes(), b"v".as_slice()));
    let place = match keyspace.find_write(&key) {
        Some(place) => place,
        None => keyspace.create(&key, || new_hash(key.bytes, pairs.clone(), &rules)),
    };
    for (name, deadline) in fields {
        keyspace.edit(place, |entry| {
            let mut hash = HashMut::new(entry, &rules);
            hash.set(name.as_bytes(), b"v", FieldDeadline::Clear);
            hash.set_deadline(name.as_bytes(), *deadline);
        });
    }
}

fn total(engine: &mut Engine, key: &str) -> Option<usize> {
    let key = Key::new(key.as_bytes(), SEED);
    // At time zero nothing is expired.
    let mut keyspace = engine.keyspace(0, Now { unix_ms: 0 });
    let place = keyspace.find_write(&key)?;
    HashRef::of(keyspace.entry(place), 0).map(HashRef::len)
}

#[test]
fn fields_are_deleted_on_time_in_slices_and_others_stay() {
    for fields_max in [0, 10_000] {
        let mut engine = Engine::new(1, SEED, 1);
        let fields: Vec<(String, Option<u64>)> = (0..3_000_u64)
            .map(|index| {
                let deadline = match index % 3 {
                    0 => None,
                    1 => Some(2_000 + index % 2),
                    _ => Some(60_000),
                };
                (format!("f{index}"), deadline)
            })
            .collect();
        set(&mut engine, "h", &fields, 1_000, fields_max);
        assert!(!engine.expire_slice(Now { unix_ms: 1_900 }));
        assert_eq!(total(&mut engine, "h"), Some(3_000));
        let mut slices = 1;
        while engine.expire_slice(Now { unix_ms: 2_020 }) {
            slices += 1;
        }
        assert!(
            fields_max > 0 || slices >= 4,
            "a slice is bounded: {slices}"
        );
        assert_eq!(total(&mut engine, "h"), Some(2_000));
        assert_eq!(engine.published().expired_fields.get(), 1_000);
        while engine.expire_slice(Now { unix_ms: 61_000 }) {}
        assert_eq!(total(&mut engine, "h"), Some(1_000));
        assert_eq!(engine.published().expired_fields.get(), 2_000);
        assert_eq!(engine.published().all_counts().expired, 0);
    }
}

#[test]
fn a_hash_goes_with_its_last_field() {
    for fields_max in [0, 10_000] {
        let mut engine = Engine::new(1, SEED, 1);
        engine.effects.set_recording(true);
        let fields: Vec<(String, Option<u64>)> = (0..1_000)
            .map(|index| (format!("f{index}"), Some(2_000)))
            .collect();
        set(&mut engine, "h", &fields, 1_000, fields_max);
        while engine.expire_slice(Now { unix_ms: 2_020 }) {}
        assert_eq!(engine.db(0).map(|db| db.len()), Some(0));
        assert_eq!(engine.published().expired_fields.get(), 1_000);
        let events: Vec<&str> = engine
            .effects
            .take()
            .iter()
            .map(|effect| effect.event.name)
            .collect();
        assert_eq!(events.last(), Some(&"del"));
        assert!(
            events[..events.len() - 1]
                .iter()
                .all(|name| *name == "hexpired"),
            "{events:?}"
        );
    }
}

#[test]
fn a_deadline_that_moved_is_respected_and_the_keys_own_comes_first_if_sooner() {
    for fields_max in [0, 100] {
        let mut engine = Engine::new(1, SEED, 1);
        let field = |deadline| [(String::from("f"), deadline), (String::from("g"), None)];
        set(&mut engine, "later", &field(Some(2_000)), 1_000, fields_max);
        set(&mut engine, "later", &field(Some(5_000)), 1_000, fields_max);
        set(
            &mut engine,
            "sooner",
            &field(Some(5_000)),
            1_000,
            fields_max,
        );
        set(
            &mut engine,
            "sooner",
            &field(Some(2_000)),
            1_000,
            fields_max,
        );
        set(&mut engine, "never", &field(Some(2_000)), 1_000, fields_max);
        set(&mut engine, "never", &field(None), 1_000, fields_max);
        set(&mut engine, "whole", &field(Some(5_000)), 1_000, fields_max);
        let key = Key::new(b"whole", SEED);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
        let place = keyspace.find_write(&key).expect("just set");
        keyspace.set_deadline(&key, place, Some(3_000));
        while engine.expire_slice(Now { unix_ms: 2_500 }) {}
        let totals = |engine: &mut Engine| {
            ["later", "sooner", "never", "whole"].map(|key| total(engine, key))
        };
        assert_eq!(totals(&mut engine), [Some(2), Some(1), Some(2), Some(2)]);
        while engine.expire_slice(Now { unix_ms: 3_500 }) {}
        assert_eq!(totals(&mut engine), [Some(2), Some(1), Some(2), None]);
        while engine.expire_slice(Now { unix_ms: 5_500 }) {}
        assert_eq!(totals(&mut engine), [Some(1), Some(1), Some(2), None]);
    }
}

#[test]
fn memory_is_given_back_to_the_byte() {
    let mut engine = Engine::new(1, SEED, 1);
    // The memory of the database itself, and of the table of its keys, stays.
    set(
        &mut engine,
        "other",
        &[(String::from("f"), None)],
        1_000,
        100,
    );
    let mut left = Vec::new();
    for (round, fields_max) in (0..).zip([0, 10_000, 0, 10_000]) {
        let now_ms = 1_000 + round * 100_000;
        let before = engine.used_bytes();
        let fields: Vec<(String, Option<u64>)> = (0..500)
            .map(|index| (format!("f{index}"), Some(now_ms + 1_000 + index)))
            .collect();
        set(&mut engine, "h", &fields, now_ms, fields_max);
        assert!(engine.used_bytes() > before + 4_000);
        let mut keyspace = engine.keyspace(
            0,
            Now {
                unix_ms: now_ms + 1_100,
            },
        );
        let place = keyspace
            .find_write(&Key::new(b"h", SEED))
            .expect("just set");
        keyspace.delete(place);
        engine.deferred.settle();
        while engine.expire_slice(Now {
            unix_ms: now_ms + 9_000,
        }) {}
        left.push(engine.used_bytes());
    }
    assert!(left.windows(2).all(|two| two[0] == two[1]), "{left:?}");
}

#[test]
fn a_large_hash_whose_changes_are_undone_has_its_fields_values_and_deadlines_again() {
    use basalt_core::base::random::Random;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut table = HashTable::new(SEED);
        let mut now_ms = 1_000;
        let change = |table: &mut HashTable, random: &mut Random, now_ms: &mut u64| {
            let name = format!("field:{}", random.below(80)).into_bytes();
            let deadline = (random.below(3) > 0).then(|| *now_ms + random.below(40));
            match random.below(10) {
                0..=2 => {
                    let value = vec![b'v'; random.below(30) as usize];
                    let keeps = [FieldDeadline::Keep, FieldDeadline::Clear][random.index(2)];
                    table.set(&name, Content::from(&value), keeps, *now_ms);
                }
                3 | 4 => drop(table.remove(&name, *now_ms)),
                5..=7 => drop(table.set_deadline(&name, deadline, *now_ms)),
                8 => drop(table.expire_some(*now_ms, 3, |_, _| {})),
                _ => *now_ms += random.below(5),
            }
        };
        let all = |table: &HashTable| {
            let mut all = Model::new();
            table.for_each(0, |record| {
                let value = Kept::of(record).to_vec();
                all.insert(record.key().to_vec(), (value, record.deadline()));
            });
            all
        };
        for _ in 0..200 {
            change(&mut table, &mut random, &mut now_ms);
        }
        let before = all(&table);
        let next = table.next_deadline();
        let mut journal = None;
        for _ in 0..random.below(4) {
            assert!(table.keep_changes(journal));
            for _ in 0..random.below(40) {
                change(&mut table, &mut random, &mut now_ms);
            }
            journal = table.take_changes();
        }
        if let Some(journal) = &journal {
            table.undo(journal);
        }
        table.check_invariants();
        assert_eq!(all(&table), before, "seed {seed}");
        assert_eq!(table.next_deadline(), next);
    }
}
