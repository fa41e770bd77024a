//! Tests of `expire`.

use super::*;
use crate::Key;
use crate::db::Db;
use crate::keyspace::Deadline;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

fn set(engine: &mut Engine, name: &str, now_ms: u64, deadline: Deadline) {
    let key = Key::new(name.as_bytes(), SEED);
    let mut keyspace = engine.keyspace(0, Now { unix_ms: now_ms });
    let found = keyspace.find_write(&key);
    keyspace.put_text(&key, found, b"value", deadline);
}

#[test]
fn due_keys_are_deleted_in_slices_and_others_stay() {
    let mut engine = Engine::new(1, SEED, 1);
    for index in 0..1_000 {
        set(
            &mut engine,
            &format!("short{index}"),
            1_000,
            Deadline::At(2_000),
        );
        set(
            &mut engine,
            &format!("long{index}"),
            1_000,
            Deadline::At(900_000),
        );
        set(&mut engine, &format!("ever{index}"), 1_000, Deadline::Clear);
    }
    assert!(
        !engine.expire_slice(Now { unix_ms: 1_500 }),
        "nothing is due yet"
    );
    let mut slices = 0;
    while engine.expire_slice(Now { unix_ms: 2_100 }) {
        slices += 1;
    }
    assert!(slices >= 10, "a slice is bounded: {slices}");
    assert_eq!(
        engine.db(0).map(|db| (db.len(), db.volatile_count())),
        Some((2_000, 1_000))
    );
    assert_eq!(engine.published().counts(0).expired, 1_000);
    assert_eq!(engine.effects.dirty(), 1_000);
}

#[test]
fn a_key_lives_through_the_millisecond_of_its_deadline() {
    let mut engine = Engine::new(1, SEED, 1);
    // Multiples of the wheel's tick and other times: the wheel must not fire before a lookup sees the key as
    // expired.
    for deadline_ms in [1_600, 1_601, 1_615] {
        let name = deadline_ms.to_string();
        set(&mut engine, &name, 1_000, Deadline::At(deadline_ms));
        let key = Key::new(name.as_bytes(), SEED);
        let mut find = |now_ms| {
            let now = Now { unix_ms: now_ms };
            while engine.expire_slice(now) {}
            engine.keyspace(0, now).find_write(&key).is_some()
        };
        assert!(find(deadline_ms - 1) && find(deadline_ms), "{deadline_ms}");
        assert!(!find(deadline_ms + 1), "{deadline_ms}");
    }
}

#[test]
fn a_deadline_that_moved_or_went_is_respected() {
    let mut engine = Engine::new(1, SEED, 1);
    set(&mut engine, "later", 1_000, Deadline::At(2_000));
    set(&mut engine, "later", 1_000, Deadline::At(5_000));
    set(&mut engine, "sooner", 1_000, Deadline::At(5_000));
    set(&mut engine, "sooner", 1_000, Deadline::At(2_000));
    set(&mut engine, "never", 1_000, Deadline::At(2_000));
    set(&mut engine, "never", 1_000, Deadline::Clear);
    while engine.expire_slice(Now { unix_ms: 3_000 }) {}
    assert_eq!(
        engine.db(0).map(|db| db.len()),
        Some(2),
        "only `sooner` went"
    );
    while engine.expire_slice(Now { unix_ms: 6_000 }) {}
    assert_eq!(engine.db(0).map(|db| db.len()), Some(1), "then `later`");
}

#[test]
fn keys_deleted_before_their_time_do_not_pile_up_in_the_wheel() {
    let mut engine = Engine::new(1, SEED, 1);
    set(&mut engine, "kept", 1_000, Deadline::At(3_600_000));
    for round in 0..50 {
        for index in 0..1_000 {
            let name = format!("lock{index}");
            set(&mut engine, &name, 1_000, Deadline::At(3_000_000));
            let key = Key::new(name.as_bytes(), SEED);
            let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
            let place = keyspace.find_write(&key).expect("just set");
            keyspace.delete(place);
        }
        while engine.expire_slice(Now {
            unix_ms: 1_000 + round,
        }) {}
    }
    let items = engine.db(0).map(|db| db.wheel.len());
    assert!(
        items.is_some_and(|items| items < 8_000),
        "{items:?} items for one key"
    );
    while engine.expire_slice(Now { unix_ms: 3_700_000 }) {}
    assert_eq!(engine.db(0).map(|db| db.len()), Some(0));
}

#[test]
fn deadlines_that_are_moved_over_and_over_are_all_kept() {
    let mut engine = Engine::new(1, SEED, 1);
    let (mut now_ms, mut random) = (1_000, Random::new(1));
    for round in 0..300_000 {
        let name = format!("key{}", random.below(100_000));
        set(&mut engine, &name, now_ms, Deadline::At(now_ms + 300));
        now_ms += u64::from(round % 30 == 0);
        if round % 300 == 0 {
            while engine.expire_slice(Now { unix_ms: now_ms }) {}
        }
    }
    now_ms += 1_000;
    while engine.expire_slice(Now { unix_ms: now_ms }) {}
    assert_eq!(engine.db(0).map(|db| db.len()), Some(0));
}

#[test]
fn of_a_replicas_keys_those_go_whose_deadline_was_given_here() {
    const LINK: u64 = 7;
    let mut engine = Engine::new(1, SEED, 1);
    engine.rest.set_follows(true);
    engine.rest.set_link(LINK);
    for index in 0..100 {
        engine.begin_command(LINK, 0, false);
        set(
            &mut engine,
            &format!("theirs{index}"),
            1_000,
            Deadline::At(2_000),
        );
        engine.begin_command(1, 0, false);
        set(
            &mut engine,
            &format!("own{index}"),
            1_000,
            Deadline::At(2_000),
        );
    }
    set(&mut engine, "own0", 1_000, Deadline::At(9_000));
    set(&mut engine, "own1", 1_000, Deadline::Clear);
    while engine.expire_slice(Now { unix_ms: 2_100 }) {}
    assert_eq!(engine.db(0).map(Db::len), Some(102));
    while engine.expire_slice(Now { unix_ms: 9_100 }) {}
    assert_eq!(engine.db(0).map(Db::len), Some(101));
    assert_eq!(engine.published.next_deadline_ms.get(), u64::MAX);

    engine.rest.set_follows(false);
    engine.decide_deadlines();
    assert_eq!(engine.published.next_deadline_ms.get(), 0);
    while engine.expire_slice(Now { unix_ms: 9_100 }) {}
    assert_eq!(engine.db(0).map(Db::len), Some(1), "own1");
}
