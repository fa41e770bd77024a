//! Tests of `slots`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::db::Db;
use crate::evict::Policy;
use crate::evict::budget::Budget;
use crate::keyspace::Deadline;
use crate::snapshot::Chunk;
use crate::snapshot::alone::Larges;
use crate::{Key, Now};
use basalt_core::base::hash::{HashSeed, SLOTS};
use basalt_core::base::random::Random;

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

/// Creates the second of four shards, or the only one.
fn engine(shard_count: u16) -> Engine {
    let mut engine = Engine::new(3, SEED, 1);
    engine.shard = u16::from(shard_count > 1);
    engine.keep_slots(shard_count);
    engine
}

fn put(engine: &mut Engine, db: usize, name: &[u8], now: Now, deadline: Deadline) {
    let key = Key::new(name, SEED);
    let mut keyspace = engine.keyspace(db, now);
    let found = keyspace.find_write(&key);
    keyspace.put_text(&key, found, name, deadline);
}

/// Returns the keys of each slot by a scan of all keys.
fn all(engine: &Engine, db: usize) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let mut slots = BTreeMap::<u16, Vec<Vec<u8>>>::new();
    if let Some(db) = engine.db(db) {
        db.table().for_each(|entry| {
            let keys = slots.entry(slot(entry.key())).or_default();
            keys.push(entry.key().to_vec());
        });
    }
    slots.values_mut().for_each(|keys| keys.sort());
    slots
}

/// Checks the index of slots against a scan of all keys, walking `budget` keys at a time.
fn check(engine: &mut Engine, budget: usize) {
    let mut in_use = std::collections::BTreeSet::new();
    for db in 0..engine.database_count() {
        let expected = all(engine, db);
        in_use.extend(expected.keys().copied());
        let keyspace = engine.keyspace(db, Now::default());
        let sum: u64 = (0..SLOTS).map(|slot| keyspace.keys_in_slot(slot)).sum();
        assert_eq!(sum, keyspace.len() as u64, "no slot has more than its keys");
        for (slot, keys) in expected {
            assert_eq!(keyspace.keys_in_slot(slot), keys.len() as u64);
            let mut found = Vec::new();
            let mut position = 0;
            loop {
                position = keyspace.walk_slot(slot, position, budget, |entry| {
                    found.push(entry.key().to_vec());
                });
                if position == 0 {
                    break;
                }
            }
            found.sort();
            assert_eq!(found, keys);
        }
    }
    for slot in (0..SLOTS).filter(|slot| engine.has_slot(*slot)) {
        let is_in_use = engine.published().has_keys_in_slot(slot);
        assert_eq!(is_in_use, in_use.contains(&slot), "slot {slot}");
    }
}

/// Checks that all memory of the shard is charged to some database, once nothing is waiting to be freed.
fn check_bytes(engine: &mut Engine) {
    let mut doomed = engine.take_doomed();
    while doomed.free_some(64) {}
    engine.settle(&mut doomed);
    let published = engine.published();
    let dbs: Vec<i64> = published.dbs.iter().map(|db| db.used_bytes()).collect();
    assert_eq!(dbs.iter().sum::<i64>(), engine.used_bytes(), "{dbs:?}");
    for (index, bytes) in dbs.iter().enumerate() {
        assert_eq!(*bytes > 0, engine.db(index).is_some(), "{index}: {dbs:?}");
    }
}

/// Returns names in few slots of the engine's shard: some slots have many keys.
fn names(engine: &Engine) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for tag in (0..).map(|number| format!("{{t{number}}}")) {
        if engine.has_slot(slot(tag.as_bytes())) {
            let many = if names.is_empty() { 600 } else { 8 };
            names.extend((0..many).map(|number| format!("{tag}{number}").into_bytes()));
        }
        if names.len() > 700 {
            return names;
        }
    }
    unreachable!("there are tags for all slots")
}

#[test]
fn what_is_known_of_slots_is_so_whatever_is_done() {
    for shard_count in [1, 4] {
        let mut random = Random::new(u64::from(shard_count));
        let mut engine = engine(shard_count);
        let budget = Arc::new(Budget::of([Arc::clone(engine.published())].into()));
        engine.set_budget(Arc::clone(&budget));
        let names = names(&engine);
        let mut now = Now { unix_ms: 1_000_000 };
        let mut done = [0; 14];
        for turn in 0..if cfg!(miri) { 300 } else { 8_000 } {
            let (db, other) = (random.index(3), random.index(3));
            let (name, to) = (
                &names[random.index(names.len())],
                &names[random.index(names.len())],
            );
            let (key, to) = (Key::new(name, SEED), Key::new(to, SEED));
            let action = random.index(1_000);
            let kind = match action {
                0..600 => {
                    let deadline = match random.index(3) {
                        0 => Deadline::At(now.unix_ms + random.below(2_000)),
                        1 => Deadline::Keep,
                        _ => Deadline::Clear,
                    };
                    put(&mut engine, db, name, now, deadline);
                    0
                }
                600..700 => {
                    let mut keyspace = engine.keyspace(db, now);
                    if let Some(place) = keyspace.find_write(&key) {
                        keyspace.delete(place);
                    }
                    1
                }
                // As RENAME and MOVE do, and COPY.
                700..850 => {
                    let mut keyspace = engine.keyspace(db, now);
                    if let Some(place) = keyspace.find_write(&key) {
                        let entry = match action < 800 {
                            true => keyspace.take(place),
                            false => keyspace.duplicate(place),
                        };
                        let mut keyspace = engine.keyspace(other, now);
                        let found = keyspace.find_write(&to);
                        keyspace.adopt(&to, found, entry);
                    }
                    2
                }
                850..890 => {
                    now.unix_ms += random.below(400);
                    engine.expire_slice(now);
                    3
                }
                890..910 => {
                    let _ = engine.keyspace(db, now).find_read(&key);
                    4
                }
                910..930 if !engine.is_in_attempt() => {
                    engine.begin_attempt();
                    5
                }
                930..960 if engine.is_in_attempt() => {
                    match random.index(2) {
                        0 => engine.undo_attempt(),
                        _ => engine.commit_attempt(),
                    }
                    6
                }
                960..965 => {
                    engine.flush_db(db);
                    7
                }
                965..970 => {
                    engine.swap_dbs(db, other, now);
                    8
                }
                970..980 if !engine.is_in_attempt() => {
                    let limit = engine.used_bytes().max(2) as u64 / 2;
                    budget.configure(limit, Policy::AllkeysRandom, false);
                    budget.assess();
                    engine.evict_slice(now);
                    budget.configure(0, Policy::NoEviction, false);
                    9
                }
                980..990 => {
                    let count = random.index(300);
                    engine.delete_of_slot(db, slot(name), count, false);
                    10
                }
                990..992 if !engine.is_in_attempt() => {
                    let mut aside = super::tests::engine(shard_count);
                    for name in &names[..random.index(names.len())] {
                        put(&mut aside, db, name, now, Deadline::Clear);
                    }
                    engine.replace_data(&mut aside);
                    11
                }
                992..997 => {
                    let mut doomed = engine.take_doomed();
                    while doomed.free_some(1) {}
                    engine.settle(&mut doomed);
                    12
                }
                _ => {
                    engine.flush_all();
                    13
                }
            };
            engine.deferred.settle();
            done[kind] += 1;
            // Checks each slot in each database, which takes a while.
            if kind > 4 || turn % 100 == 0 {
                check(&mut engine, 1 + random.index(200));
            }
            if turn % 16 == 0 && !engine.is_in_attempt() {
                check_bytes(&mut engine);
            }
        }
        assert!(done.iter().all(|count| *count > 0), "{done:?}");
        assert_ne!(engine.published().all_counts().evicted, 0);
        assert_ne!(engine.published().all_counts().expired, 0);
        engine.commit_attempt();
        engine.flush_all();
        engine.deferred.settle();
        let mut doomed = engine.take_doomed();
        while doomed.free_some(1) {}
        engine.settle(&mut doomed);
        assert_eq!(engine.used_bytes(), 0, "rows are paid for, and come back");
    }
}

#[test]
fn of_other_slots_nothing_is_looked_at() {
    const EACH: usize = 10;
    const HOT: usize = if cfg!(miri) { 2_000 } else { 200_000 };
    let others = if cfg!(miri) { 1_000 } else { 160_000 };
    let mut engine = engine(1);
    let now = Now::default();
    for number in 0..others {
        put(
            &mut engine,
            0,
            format!("{{{}}}{number}", number / EACH).as_bytes(),
            now,
            Deadline::Clear,
        );
    }
    let before = engine.used_bytes();
    let table = |engine: &Engine| {
        let db = engine.db(0).expect("it has keys");
        db.table().memory_bytes()
    };
    let table_before = table(&engine);
    for number in 0..HOT {
        put(
            &mut engine,
            0,
            format!("{{hot}}{number}").as_bytes(),
            now,
            Deadline::Clear,
        );
    }
    // A table's size depends on the number of keys, not on their slots.
    let grown = (table(&engine) - table_before) / HOT;
    assert!(
        cfg!(miri) || (8..24).contains(&grown),
        "{grown} bytes a key"
    );
    let bytes = (engine.used_bytes() - before) as usize / HOT;
    assert!(bytes < 120, "{bytes} bytes a key");
    for (name, count) in [(&b"{hot}"[..], HOT), (b"{7}", EACH), (b"{none}", 0)] {
        let wanted = slot(name);
        // A few tags share a slot.
        let count = count as u64..=count as u64 + 9 * EACH as u64;
        let db = engine.db(0).expect("it has keys");
        let looked_before = db.looked_at();
        let mut visited = 0;
        assert_eq!(db.walk_slot(wanted, 0, usize::MAX, |_| visited += 1), 0);
        assert_eq!(visited, db.keys_in_slot(wanted));
        assert!(count.contains(&visited), "{visited}");
        let looked_at = db.looked_at() - looked_before;
        assert!(
            looked_at - visited <= visited / 100,
            "{looked_at} for {visited}"
        );
    }
    // A walk in small steps examines no key twice.
    let db = engine.db(0).expect("it has keys");
    let (before, mut visited, mut position, mut steps) = (db.looked_at(), 0, 0, 0);
    loop {
        position = db.walk_slot(slot(b"{hot}"), position, 100, |_| visited += 1);
        steps += 1;
        if position == 0 {
            break;
        }
    }
    assert_eq!(visited, db.keys_in_slot(slot(b"{hot}")));
    assert_eq!(steps, visited.div_ceil(100), "as many as were asked for");
    assert!(db.looked_at() - before - visited <= visited / 100);
}

#[test]
fn a_slot_that_goes_elsewhere_is_read_alone_however_many_keys_others_have() {
    let hot = if cfg!(miri) { 50 } else { 2_000 };
    let others = if cfg!(miri) { 200 } else { 18_000 };
    let now = Now::default();
    for others in [others, 20 * others] {
        let mut engine = engine(1);
        for number in 0..hot {
            let name = format!("{{hot}}{number}");
            put(&mut engine, 0, name.as_bytes(), now, Deadline::Clear);
        }
        for number in 0..others {
            let name = format!("other{number}");
            put(&mut engine, 0, name.as_bytes(), now, Deadline::Clear);
        }
        let wanted = slot(b"{hot}");
        let keys = engine.keys_in_slot(wanted);
        let looked_at = |engine: &Engine| engine.db(0).map_or(0, Db::looked_at);
        let before = looked_at(&engine);
        let (mut next, mut written, mut slices) = (0, 0, 0);
        loop {
            let mut chunk = Chunk::default();
            let into = (&mut chunk, Larges::Whole);
            let step = engine.write_slot((0, wanted), next, 4096, into, now.unix_ms);
            (next, slices) = (step.next, slices + 1);
            written += step.keys;
            if next == 0 {
                break;
            }
        }
        assert_eq!(written, keys);
        assert!(slices > 1);
        let beside = looked_at(&engine) - before - keys;
        assert!(beside <= keys / 100, "{beside} others were looked at");
    }
}

#[test]
fn a_walk_shows_what_stays_once_whatever_comes_and_goes() {
    let mut random = Random::new(9);
    let mut engine = engine(1);
    let now = Now::default();
    let name = |number: usize| format!("{{t}}{number}").into_bytes();
    let count = if cfg!(miri) { 300 } else { 3_000 };
    for number in 0..count {
        put(&mut engine, 0, &name(number), now, Deadline::Clear);
    }
    let (mut position, mut seen) = (0, Vec::new());
    let mut came = count;
    loop {
        let keyspace = engine.keyspace(0, now);
        position = keyspace.walk_slot(slot(b"t"), position, 7, |entry| {
            seen.push(entry.key().to_vec());
        });
        if position == 0 {
            break;
        }
        // The first half of the keys stays; some of the others are deleted, and more are added.
        for _ in 0..20 {
            let number = count / 2 + random.index(came - count / 2);
            let key_name = name(number);
            let key = Key::new(&key_name, SEED);
            let mut keyspace = engine.keyspace(0, now);
            if let Some(place) = keyspace.find_write(&key) {
                keyspace.delete(place);
            }
            if random.index(3) == 0 && came < 3 * count {
                put(&mut engine, 0, &name(came), now, Deadline::Clear);
                came += 1;
            }
        }
    }
    for number in 0..count / 2 {
        let name = name(number);
        assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1);
    }
    let total = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(
        seen.len(),
        total,
        "nothing is shown twice that did not come again"
    );
}

#[test]
fn keys_on_their_way_to_here_are_not_shown() {
    let mut engine = engine(1);
    let now = Now::default();
    for name in [&b"{t}1"[..], b"{t}2", b"other"] {
        put(&mut engine, 0, name, now, Deadline::Clear);
    }
    let shown = |engine: &mut Engine| {
        let mut keyspace = engine.keyspace(0, now);
        let (mut scanned, mut walked) = (0, 0);
        while keyspace.scan_expiring(0, 100, |_| scanned += 1) != 0 {}
        while keyspace.scan_once(0, 100, |_| walked += 1) != 0 {}
        (keyspace.shown_len(), scanned, walked, keyspace.len())
    };
    assert_eq!(shown(&mut engine), (3, 3, 3, 3));
    engine.set_coming(slot(b"t"), true);
    assert_eq!(shown(&mut engine), (1, 1, 1, 3));
    assert_eq!(engine.keyspace(0, now).random(), Some(b"other".to_vec()));
    engine.set_coming(slot(b"t"), false);
    assert_eq!(shown(&mut engine), (3, 3, 3, 3));
}

#[test]
fn keys_of_a_lost_slot_go_as_redis_lets_them_go() {
    let mut engine = engine(1);
    engine.effects.set_recording(true);
    let now = Now::default();
    for number in 0..300 {
        put(
            &mut engine,
            0,
            format!("{{t}}{number}").as_bytes(),
            now,
            Deadline::Clear,
        );
    }
    put(&mut engine, 0, b"other", now, Deadline::Clear);
    let watched = Key::new(b"{t}7", SEED);
    engine.watches.add(0, watched.bytes);
    engine.track(&watched, 5, 0);
    let interest = engine.effects.interest();
    interest.set_listening(crate::record::Audience::BOTH, true);
    engine.effects.take();
    let (stamp, dirty) = (engine.effects.stamp(), engine.published().dirty.get());
    let lost = slot(b"t");
    assert_eq!(engine.delete_of_slot(0, lost, 100, false), 100);
    assert_eq!(engine.keyspace(0, now).keys_in_slot(lost), 200);
    assert_eq!(engine.delete_of_slot(0, lost, 1_000, true), 200);
    assert_eq!(engine.delete_of_slot(0, lost, 1_000, true), 0);
    assert_eq!(engine.keyspace(0, now).len(), 1);
    let logged: Vec<String> = (engine.effects.records().iter())
        .map(|record| String::from_utf8_lossy(&record.bytes.to_vec()).into_owned())
        .collect();
    assert_eq!(logged.len(), 300);
    assert!(
        logged[0].starts_with("*2\r\n$3\r\nDEL\r\n$"),
        "{}",
        logged[0]
    );
    assert!(
        logged[299].starts_with("*2\r\n$6\r\nUNLINK\r\n$"),
        "{}",
        logged[299]
    );
    assert!(engine.watches.changed_since(0, watched.bytes, stamp));
    assert!(engine.effects.take().is_empty(), "there is no event");
    assert_eq!(engine.published().dirty.get() - dirty, 300);
    let by_clock = engine.effects.by_clock();
    assert_eq!(engine.effects.dirty(), by_clock, "no command's changes");
}
