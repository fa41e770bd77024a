//! Tests of `leases`.

use super::*;
use crate::Key;

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

fn now(unix_ms: u64) -> Now {
    Now { unix_ms }
}

fn give(engine: &mut Engine, name: &[u8], until_ms: u64) -> u64 {
    give_to(engine, 1, name, until_ms)
}

fn give_to(engine: &mut Engine, holder: u64, name: &[u8], until_ms: u64) -> u64 {
    let key = Key::new(name, SEED);
    engine
        .waiters
        .give_lease((0, holder), &key, until_ms, &mut engine.random)
}

fn fills(engine: &mut Engine, name: &[u8], token: u64, at_ms: u64) -> bool {
    let key = Key::new(name, SEED);
    let no_tags = std::iter::empty();
    engine
        .waiters
        .fill_lease(0, &key, token, now(at_ms), no_tags)
}

#[test]
fn a_token_is_good_once_and_until_its_time_is_over() {
    let mut engine = Engine::new(1, SEED, 1);
    let token = give(&mut engine, b"a", 100);
    assert!(!fills(&mut engine, b"a", token ^ 1, 50), "another token");
    assert!(!fills(&mut engine, b"b", token, 50), "another key");
    assert!(fills(&mut engine, b"a", token, 99));
    assert!(!fills(&mut engine, b"a", token, 99), "a second time");
    let token = give(&mut engine, b"a", 100);
    assert!(!fills(&mut engine, b"a", token, 100), "its time is over");
}

/// JavaScript reads a number as a double, and clients in that language send what they have read.
#[test]
fn tokens_are_exact_as_doubles_and_use_all_bits_that_these_have() {
    let mut engine = Engine::new(1, SEED, 1);
    let mut all = 0;
    for number in 0..2_000u64 {
        let token = give(&mut engine, &number.to_le_bytes(), 100);
        assert!(token != 0 && (token as f64) as u64 == token, "{token}");
        all |= token;
        assert!(fills(&mut engine, &number.to_le_bytes(), token, 50));
    }
    assert_eq!(all, (1 << TOKEN_BITS) - 1);
}

#[test]
fn every_fill_is_counted_as_one_that_stored_or_as_one_that_was_refused() {
    let mut engine = Engine::new(1, SEED, 1);
    let token = give(&mut engine, b"a", 100);
    assert!(!fills(&mut engine, b"a", token + 1, 50), "another token");
    assert!(!fills(&mut engine, b"b", token, 50), "no lease");
    assert!(fills(&mut engine, b"a", token, 50));
    let tagged = give(&mut engine, b"a", 100);
    engine.waiters.note_invalidated(0, b"tag");
    let (key, tags) = (Key::new(b"a", SEED), [&b"tag"[..]]);
    let waiters = &mut engine.waiters;
    assert!(!waiters.fill_lease(0, &key, tagged, now(50), tags.into_iter()));
    let figures = &engine.published().leases;
    assert_eq!((figures.filled.get(), figures.fills_refused.get()), (1, 3));
    assert_eq!(figures.void_by_change.get(), 1);
}

#[test]
fn a_change_of_the_key_ends_its_lease_and_no_other() {
    let mut engine = Engine::new(1, SEED, 1);
    let (one, other) = (give(&mut engine, b"a", 100), give(&mut engine, b"b", 100));
    engine.waiters.key_changed(0, b"a");
    engine.waiters.key_changed(1, b"b");
    engine.waiters.wake(0, b"b");
    assert!(!fills(&mut engine, b"a", one, 1));
    assert!(fills(&mut engine, b"b", other, 1));
    let figures = &engine.published().leases;
    assert_eq!((figures.given.get(), figures.in_force.get()), (2, 0));
    assert_eq!((figures.filled.get(), figures.void_by_change.get()), (1, 1));
}

#[test]
fn of_too_many_leases_of_one_holder_those_go_that_would_end_first() {
    let mut engine = Engine::new(1, SEED, 1);
    let names: Vec<String> = (0..=LEASES_MAX).map(|number| number.to_string()).collect();
    let mut tokens = Vec::new();
    for (number, name) in names.iter().enumerate() {
        tokens.push(give(&mut engine, name.as_bytes(), 1_000 + number as u64));
    }
    assert_eq!(engine.published().leases.in_force.get(), LEASES_MAX as u64);
    let bytes = engine.used_bytes() / LEASES_MAX as i64;
    assert!(bytes < 400, "{bytes} bytes each");
    assert!(!fills(&mut engine, names[0].as_bytes(), tokens[0], 1));
    for (name, token) in names.iter().zip(&tokens).skip(1) {
        assert!(fills(&mut engine, name.as_bytes(), *token, 1));
    }
    assert_eq!(engine.used_bytes(), 0);
}

#[test]
fn a_holder_of_many_leases_voids_its_own_and_none_of_the_others() {
    let mut engine = Engine::new(1, SEED, 1);
    // A hundred clients with ten leases each, which would end before all others.
    let mut kept = Vec::new();
    for number in 0..1_000u64 {
        let name = format!("kept {number}");
        let token = give_to(&mut engine, 100 + number % 100, name.as_bytes(), 1_000);
        kept.push((name, token));
    }
    let most = (1..=20_000u64).map(|number| {
        let name = format!("many {number}");
        let token = give_to(&mut engine, 7, name.as_bytes(), 1_000_000 + number);
        (name, token)
    });
    let most: Vec<(String, u64)> = most.collect();
    let later = give_to(&mut engine, 8, b"later", 1_000);
    assert!(engine.published().leases.in_force.get() <= LEASES_MAX as u64);
    assert!(fills(&mut engine, b"later", later, 1));
    for (name, token) in &kept {
        assert!(fills(&mut engine, name.as_bytes(), *token, 1), "{name}");
    }
    let of_most = most.iter().filter(|(name, token)| {
        let key = Key::new(name.as_bytes(), SEED);
        let lease = engine.waiters.leases.by_key.get(&(0, key.hash));
        lease.is_some_and(|lease| lease.token == *token)
    });
    let left = of_most.count();
    assert_eq!(left, LEASES_MAX - 1_000 - 1);
}

#[test]
fn an_attempt_that_is_undone_leaves_leases_as_they_were() {
    let mut engine = Engine::new(1, SEED, 1);
    let kept = give(&mut engine, b"a", 100);
    let changed = give(&mut engine, b"b", 100);
    engine.begin_attempt();
    assert!(fills(&mut engine, b"a", kept, 1));
    engine.waiters.key_changed(0, b"b");
    let token = give(&mut engine, b"c", 100);
    engine.undo_attempt();
    assert!(fills(&mut engine, b"a", kept, 1));
    assert!(fills(&mut engine, b"b", changed, 1));
    assert!(!fills(&mut engine, b"c", token, 1), "no client has seen it");
    assert_eq!(engine.used_bytes(), 0);
}

#[test]
fn leases_end_in_slices_when_their_time_is_over() {
    let mut engine = Engine::new(1, SEED, 1);
    for number in 0..200u64 {
        give(
            &mut engine,
            number.to_string().as_bytes(),
            10 + number % 2 * 1_000,
        );
    }
    assert_eq!(engine.published().next_deadline_ms.get(), 10);
    while engine.expire_slice(now(10)) {}
    assert_eq!(engine.published().leases.in_force.get(), 100);
    assert_eq!(engine.published().next_deadline_ms.get(), 1_010);
    while engine.expire_slice(now(2_000)) {}
    let figures = &engine.published().leases;
    assert_eq!(
        (figures.in_force.get(), figures.void_by_time.get()),
        (0, 200)
    );
    assert_eq!(engine.published().next_deadline_ms.get(), u64::MAX);
}
