//! Tests of `locks`.

use std::sync::Arc;

use super::*;
use crate::evict::Policy;
use crate::evict::budget::Budget;
use crate::value::hash::{FieldDeadline, HashMut, HashRules, new_hash};
use basalt_core::base::hash::HashSeed;

const SEED: HashSeed = HashSeed { k0: 3, k1: 4 };
const NOW: Now = Now {
    unix_ms: 1_700_000_000_000,
};
const LIMIT: u64 = 16 << 20;
const PART: u64 = LIMIT / LOCKS_PART;

fn rules() -> HashRules {
    HashRules {
        fields_max: 128,
        element_bytes_max: 64,
        seed: SEED,
        now_ms: NOW.unix_ms,
    }
}

/// Creates shards that share one budget.
fn shards(count: usize) -> (Vec<Engine>, Arc<Budget>) {
    let engines = (0..count).map(|shard| Engine::new(2, SEED, shard as u64 + 1));
    let mut engines: Vec<Engine> = engines.collect();
    let all = engines.iter().map(|engine| Arc::clone(engine.published()));
    let budget = Arc::new(Budget::of(all.collect()));
    for engine in &mut engines {
        engine.set_budget(Arc::clone(&budget));
    }
    budget.configure(LIMIT, Policy::AllkeysLru, false);
    (engines, budget)
}

/// Creates a lock as LOCK does. Returns whether that was allowed.
fn lock(engine: &mut Engine, name: &str, owner: &[u8]) -> bool {
    let (key, rules) = (Key::new(name.as_bytes(), SEED), rules());
    let mut keyspace = engine.keyspace(0, NOW);
    if !keyspace.may_hold(key.bytes, owner, rules.makes_small(owner)) {
        return false;
    }
    let pair = std::iter::once((owner, &b"1"[..]));
    let place = keyspace.create(&key, || new_hash(key.bytes, pair, &rules));
    keyspace.set_deadline(&key, place, Some(NOW.unix_ms + 1_000_000));
    keyspace.draw_fence(key.bytes, owner);
    true
}

fn change(engine: &mut Engine, name: &str, change: impl FnOnce(&mut HashMut<'_>)) {
    let (key, rules) = (Key::new(name.as_bytes(), SEED), rules());
    let mut keyspace = engine.keyspace(0, NOW);
    let place = keyspace.find_write(&key).expect("it is there");
    keyspace.edit(place, |entry| change(&mut HashMut::new(entry, &rules)));
}

fn held_keys(engines: &[Engine]) -> u64 {
    let dbs = engines.iter().map(|engine| &engine.published().dbs[0]);
    dbs.map(|db| db.held_keys.get()).sum()
}

#[test]
fn what_a_lock_will_take_is_foreseen() {
    for owner_len in (1..140).step_by(3).chain([500, 1_000, 2_000]) {
        for name_len in (1..100).step_by(7).chain([300, 700]) {
            let (mut engines, budget) = shards(1);
            let (name, owner) = ("n".repeat(name_len), vec![b'o'; owner_len]);
            let foreseen = coming_bytes(name.as_bytes(), &owner, owner_len <= 64) as u64;
            assert!(lock(&mut engines[0], &name, &owner));
            let held = budget.held_bytes();
            let is_held = held > 0 || foreseen > LOCK_BYTES_MAX as u64;
            assert!(is_held && held <= foreseen, "{held}, {foreseen}");
            if held > 0 {
                let most = held + held / 4 + 60;
                assert!(
                    foreseen < most,
                    "{owner_len}, {name_len}: {held}, {foreseen}"
                );
            }
        }
    }
}

#[test]
fn a_lock_is_held_as_long_as_it_is_what_lock_has_made() {
    type Change = fn(&mut HashMut<'_>);
    let changes: [(&str, Change, bool); 6] = [
        ("taken again", |hash| set(hash, b"me", b"2"), true),
        ("another field", |hash| set(hash, b"f", b"v"), false),
        (
            "no number",
            |hash| set(hash, b"me", &[b'v'; 100_000]),
            false,
        ),
        (
            "a deadline",
            |hash| _ = hash.set_deadline(b"me", Some(u64::MAX / 4)),
            false,
        ),
        (
            "another owner",
            |hash| {
                set(hash, b"other", b"1");
                hash.remove(b"me");
            },
            false,
        ),
        ("nothing", |hash| _ = hash.remove(b"none"), true),
    ];
    for (what, how, is_held) in changes {
        let (mut engines, budget) = shards(2);
        assert!(lock(&mut engines[1], "l", b"me") && lock(&mut engines[1], "k", b"me"));
        assert_eq!(held_keys(&engines), 2);
        let both = budget.held_bytes();
        change(&mut engines[1], "l", how);
        assert_eq!(held_keys(&engines), 1 + u64::from(is_held), "{what}");
        if !is_held {
            assert_eq!(budget.held_bytes(), both / 2, "{what}");
        }
        // The lock is held again only through LOCK and LOCKEXTEND, and only if it has the form that LOCK creates.
        change(&mut engines[1], "l", |hash| _ = hash.remove(b"f"));
        assert_eq!(held_keys(&engines), 1 + u64::from(is_held), "{what}");
    }
}

fn set(hash: &mut HashMut<'_>, field: &[u8], value: &[u8]) {
    hash.set(field, value, FieldDeadline::Clear);
}

#[test]
fn a_change_that_is_undone_leaves_a_lock_held() {
    let (mut engines, budget) = shards(1);
    assert!(lock(&mut engines[0], "l", b"me") && lock(&mut engines[0], "k", b"me"));
    let before = (held_keys(&engines), budget.held_bytes());
    engines[0].begin_attempt();
    change(&mut engines[0], "l", |hash| set(hash, b"f", b"v"));
    assert_eq!(held_keys(&engines), 1);
    engines[0].flush_db(0);
    assert_eq!((held_keys(&engines), budget.held_bytes()), (0, 0));
    engines[0].undo_attempt();
    assert_eq!((held_keys(&engines), budget.held_bytes()), before);
    // A committed change stays, and an undone attempt does not make a lock held that was not held before.
    engines[0].begin_attempt();
    change(&mut engines[0], "l", |hash| set(hash, b"f", b"v"));
    engines[0].commit_attempt();
    engines[0].begin_attempt();
    change(&mut engines[0], "l", |hash| set(hash, b"me", b"2"));
    assert!(lock(&mut engines[0], "new", b"me"));
    engines[0].undo_attempt();
    assert_eq!(
        (held_keys(&engines), budget.held_bytes()),
        (1, before.1 / 2)
    );
    engines[0].swap_dbs(0, 1, NOW);
    assert_eq!(
        (held_keys(&engines), budget.held_bytes()),
        (0, before.1 / 2)
    );
    engines[0].flush_all();
    assert_eq!(budget.held_bytes(), 0);
}

#[test]
fn locks_of_all_shards_take_their_part_and_no_more_wherever_they_are() {
    for (crowded, name_len, owner_len) in [(1, 10, 10), (64, 10, 10), (64, 500, 50), (3, 9, 900)] {
        let (mut engines, budget) = shards(64);
        let (end, owner) = ("n".repeat(name_len), vec![b'o'; owner_len]);
        let mut taken = 0_u64;
        while lock(
            &mut engines[taken as usize % crowded],
            &format!("{taken}{end}"),
            &owner,
        ) {
            taken += 1;
            assert!(taken < 100_000, "there is a bound");
        }
        let held = budget.held_bytes();
        assert!(
            held <= PART && held > PART - 4 * LOCK_BYTES_MAX as u64,
            "{held}"
        );
        assert_eq!(held_keys(&engines), taken, "each of them is held");
        let last = format!("last{end}");
        // A shard without locks can create one as soon as any other shard has released some.
        assert!(!lock(&mut engines[63], &last, &owner));
        for number in 0..8 {
            let name = format!("{number}{end}");
            let key = Key::new(name.as_bytes(), SEED);
            let mut keyspace = engines[number % crowded].keyspace(0, NOW);
            let place = keyspace.find_write(&key).expect("it is there");
            keyspace.delete(place);
        }
        assert!(lock(&mut engines[63], &last, &owner));
    }
}

#[test]
fn a_large_lock_is_made_and_is_a_key_like_any_other() {
    let (mut engines, budget) = shards(1);
    for (number, len) in [4_000, 5_000, 4_000_000].into_iter().enumerate() {
        assert!(lock(&mut engines[0], &number.to_string(), &vec![b'o'; len]));
    }
    assert!(lock(&mut engines[0], &"k".repeat(3_000), b"me"));
    assert_eq!((held_keys(&engines), budget.held_bytes()), (0, 0));
}

#[test]
fn a_lock_that_lost_its_end_is_held_again_only_where_there_is_room() {
    let (mut engines, budget) = shards(1);
    let name = "l".repeat(200);
    let key = Key::new(name.as_bytes(), SEED);
    assert!(lock(&mut engines[0], &name, b"me"));
    let mut keyspace = engines[0].keyspace(0, NOW);
    let place = keyspace.find_write(&key).expect("it is there");
    keyspace.set_deadline(&key, place, None);
    assert_eq!(budget.held_bytes(), 0);
    // PEXPIRE gives the lock a deadline again but does not make it held; LOCKEXTEND does.
    let mut keyspace = engines[0].keyspace(0, NOW);
    keyspace.set_deadline(&key, place, Some(NOW.unix_ms + 1_000));
    assert_eq!(budget.held_bytes(), 0);
    engines[0].keyspace(0, NOW).hold(key.bytes);
    assert!(budget.held_bytes() > 0);
    let mut keyspace = engines[0].keyspace(0, NOW);
    keyspace.set_deadline(&key, place, None);
    keyspace.set_deadline(&key, place, Some(NOW.unix_ms + 1_000));
    for number in 0.. {
        if !lock(&mut engines[0], &number.to_string(), b"me") {
            break;
        }
    }
    let full = budget.held_bytes();
    engines[0].keyspace(0, NOW).hold(key.bytes);
    assert_eq!(budget.held_bytes(), full);
}
