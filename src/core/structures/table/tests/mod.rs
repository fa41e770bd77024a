//! The table compared with a hash map, with crafted hashes, and its walks across changes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use super::*;
use crate::base::random::Random;
use crate::structures::entry::{Entry, EntryRef, Value};

mod successor;

const SEED: HashSeed = HashSeed { k0: 17, k1: 42 };

type Numbers = Table<Entry<()>>;

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn number(view: EntryRef<'_, ()>) -> i64 {
    match view.value() {
        Value::Integer(value) => value,
        _ => panic!("these tests store numbers"),
    }
}

fn put(table: &mut Numbers, key: &[u8], value: i64) -> EntrySlot {
    let hash = table.hash(key);
    match table.find(hash, key) {
        Some(place) => {
            table.edit(place).set_integer(value);
            place
        }
        None => table.insert_new(hash, Entry::integer(1, key, value, None)),
    }
}

fn place(table: &Numbers, key: &[u8]) -> Option<EntrySlot> {
    table.find(table.hash(key), key)
}

fn take(table: &mut Numbers, key: &[u8]) -> Option<i64> {
    let place = place(table, key)?;
    Some(number(table.remove(place).view()))
}

/// Returns keys whose hashes agree in the top `bits` bits.
fn colliding(bits: u32, count: usize) -> Vec<Vec<u8>> {
    (0..)
        .map(key)
        .filter(|key| SEED.hash(key) >> (64 - bits) == 1)
        .take(count)
        .collect()
}

#[test]
fn a_table_with_room_is_one_as_any_other_and_takes_no_more() {
    let counts: &[usize] = match cfg!(miri) {
        true => &[1, 30, 300],
        false => &[1, 7, 8, 60, 396, 397, 2_000, 70_000, 200_000],
    };
    let ways: [fn(&mut Numbers, usize); 2] = [Numbers::reserve, Numbers::reserve_all];
    for (&count, reserve) in counts.iter().flat_map(|count| ways.map(|way| (count, way))) {
        let (mut grown, mut made) = (Numbers::new(SEED), Numbers::new(SEED));
        reserve(&mut made, 0);
        assert_eq!(made.memory_bytes(), grown.memory_bytes());
        reserve(&mut made, count);
        made.check_invariants();
        for number in 0..count {
            put(&mut grown, &key(number), number as i64);
            put(&mut made, &key(number), number as i64);
        }
        made.check_invariants();
        let (grown, bytes) = (grown.memory_bytes(), made.memory_bytes());
        assert!(
            bytes <= grown * 5 / 4,
            "{count}: {bytes} instead of {grown}"
        );
        reserve(&mut made, 10 * count);
        assert_eq!(made.memory_bytes(), bytes, "only an empty one makes room");
        for number in 0..count {
            assert_eq!(take(&mut made, &key(number)), Some(number as i64));
        }
        made.check_invariants();
        assert_eq!(made.memory_bytes(), Numbers::new(SEED).memory_bytes());
    }
}

#[test]
fn a_table_with_all_its_room_does_not_grow_while_it_is_filled() {
    let count = if cfg!(miri) { 300 } else { 200_000 };
    let mut table = Numbers::new(SEED);
    table.reserve_all(count);
    let bytes = table.memory_bytes();
    for number in 0..count {
        put(&mut table, &key(number), number as i64);
    }
    assert!(table.memory_bytes() <= bytes + bytes / 100);
}

#[test]
fn a_table_that_is_laid_out_anew_has_what_it_had() {
    let counts: &[usize] = match cfg!(miri) {
        true => &[0, 1, 30, 300],
        false => &[0, 1, 7, 8, 60, 396, 2_000, 70_000],
    };
    for &count in counts {
        for target in [0, count / 3, count, 3 * count, 16 * count] {
            let published = Arc::new(AtomicU64::new(0));
            let mut table = Numbers::with_published(SEED, Arc::clone(&published));
            for number in 0..count {
                let place = put(&mut table, &key(number), number as i64);
                table.set_bits(place, (number % 100) as u8);
            }
            table.flip_parity();
            for number in (0..count).step_by(3) {
                let place = place(&table, &key(number)).expect("it is there");
                table.mark_saved(place);
            }
            table.refit(target);
            table.check_invariants();
            assert_eq!(
                published.load(Ordering::Relaxed) == 0,
                count.max(target) == 0
            );
            let mut fresh = Numbers::new(SEED);
            fresh.reserve_all(count.max(target));
            let (bytes, expected) = (table.memory_bytes(), fresh.memory_bytes());
            assert!(
                bytes <= expected + expected / 100,
                "{count} for {target}: {bytes} and {expected}"
            );
            for number in 0..count {
                let place = place(&table, &key(number)).expect("it is there");
                assert_eq!(table.bits(place), (number % 100) as u8);
                assert_eq!(table.saved(place), number % 3 == 0);
                assert_eq!(table.len(), count - number);
                assert_eq!(take(&mut table, &key(number)), Some(number as i64));
            }
            table.check_invariants();
        }
    }
}

#[test]
fn chains_are_laid_out_anew_too() {
    let (bits, count) = if cfg!(miri) { (6, 250) } else { (14, 3_000) };
    let keys = colliding(bits, count);
    let mut table = Numbers::new(SEED);
    for (number, key) in keys.iter().enumerate() {
        put(&mut table, key, number as i64);
    }
    for target in [0, 8 * count] {
        table.refit(target);
        table.check_invariants();
        assert_eq!(table.len(), count);
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(take(&mut table, key), Some(number as i64));
    }
}

#[test]
fn any_sequence_of_changes_leaves_what_a_map_would_hold() {
    // Each seed chooses how large its table gets and how its operations are weighted.
    for seed in 0..if cfg!(miri) { 2 } else { 12 } {
        let mut draw = Random::new(seed);
        let keys = if cfg!(miri) {
            [5, 20, 60, 120, 120]
        } else {
            [5, 60, 500, 3000, 12_000]
        }[draw.index(5)];
        let mut table = Numbers::new(SEED);
        let mut model: HashMap<usize, (i64, u8, bool)> = HashMap::new();
        for phase in 0..if cfg!(miri) { 3 } else { 6 } {
            let removals = draw.index(100);
            for _ in 0..keys {
                let number = draw.index(keys);
                let key = key(number);
                if draw.index(100) < removals {
                    let taken = take(&mut table, &key);
                    assert_eq!(taken, model.remove(&number).map(|(value, ..)| value));
                    continue;
                }
                let value = draw.next_u64() as i64;
                let place = put(&mut table, &key, value);
                let known = model.entry(number).or_insert((value, 0, true));
                known.0 = value;
                match draw.index(4) {
                    0 => {
                        known.1 = draw.below(128) as u8;
                        table.set_bits(place, known.1);
                    }
                    1 => {
                        let hash = table.hash(&key);
                        let mut found = table.find_mut(hash, &key).expect("just put");
                        assert!(found.place() == place && found.view().key() == key);
                        found.touch();
                        known.1 += u8::from(known.1 & 3 != 3);
                    }
                    2 => {
                        table.mark_saved(place);
                        known.2 = true;
                    }
                    _ => {}
                }
            }
            check(&table, &model, keys);
            if phase % 2 == 0 {
                // Everything unsaved must be marked before the next flip.
                let mut places = Vec::new();
                table.walk(0, usize::MAX, |place, _, _| places.push(place));
                places.into_iter().for_each(|place| table.mark_saved(place));
                table.flip_parity();
                model.values_mut().for_each(|known| known.2 = false);
            }
        }
        for number in 0..keys {
            assert_eq!(
                take(&mut table, &key(number)),
                model.remove(&number).map(|known| known.0)
            );
            if number % (keys / 5) == 0 {
                table.check_invariants();
            }
        }
        assert_eq!(table.memory_bytes(), 0, "an empty table has no memory");
    }
}

fn check(table: &Numbers, model: &HashMap<usize, (i64, u8, bool)>, keys: usize) {
    table.check_invariants();
    assert_eq!(table.len(), model.len());
    assert_eq!(table.is_empty(), model.is_empty());
    for wanted in 0..keys {
        let key = key(wanted);
        let known = model.get(&wanted);
        assert_eq!(
            table.get(table.hash(&key), &key).map(number),
            known.map(|known| known.0)
        );
        let place = place(table, &key);
        assert_eq!(place.is_some(), known.is_some());
        if let (Some(place), Some(&(value, bits, saved))) = (place, known) {
            assert_eq!(number(table.at(place)), value);
            assert_eq!((table.bits(place), table.saved(place)), (bits, saved));
        }
    }
    let mut seen = HashSet::new();
    table.for_each(|view| assert!(seen.insert(view.key().to_vec()), "each once"));
    assert_eq!(seen.len(), model.len());
}

#[test]
fn a_walk_returns_everything_that_stays_however_the_table_changes_meanwhile() {
    let (seeds, most, steps) = if cfg!(miri) {
        (2, 120, 40)
    } else {
        (30, 8000, 200)
    };
    for seed in 0..2 * seeds {
        let once = seed >= seeds;
        let mut draw = Random::new(seed);
        let stay = [3, 100, most / 4][draw.index(3)];
        let come_and_go = [0, 50, most][draw.index(3)];
        let budget = 1 + draw.index(50);
        let mut table = Numbers::new(SEED);
        for number in 0..stay {
            put(&mut table, &key(number), number as i64);
        }
        let mut seen = HashSet::new();
        let mut cursor = 0;
        // Growth and shrinkage in turns.
        let (mut next, mut growing) = (stay, true);
        loop {
            if once {
                cursor = table.scan_once(cursor, budget, |view| {
                    let is_first = seen.insert(number(view));
                    assert!(is_first || number(view) < 0, "seed {seed}: seen twice");
                });
            } else {
                cursor = table.scan(cursor, budget, |view| {
                    seen.insert(number(view));
                });
                assert!(cursor < 1 << 48);
            }
            if cursor == 0 {
                break;
            }
            for _ in 0..draw.index(steps) {
                if growing && next < stay + come_and_go {
                    put(&mut table, &key(next), -1);
                    next += 1;
                } else if !growing && next > stay {
                    next -= 1;
                    take(&mut table, &key(next));
                }
            }
            growing ^= draw.index(20) == 0;
        }
        for number in 0..stay as i64 {
            assert!(
                seen.contains(&number),
                "seed {seed}: {number} was there all along"
            );
        }
        table.check_invariants();
    }
}

#[test]
fn a_walk_over_an_unchanged_table_sees_each_entry_once_and_keeps_to_its_budget() {
    const KEYS: usize = if cfg!(miri) { 120 } else { 5000 };
    let mut table = Numbers::new(SEED);
    for number in 0..KEYS {
        put(&mut table, &key(number), number as i64);
    }
    let least = if cfg!(miri) { 10 } else { 1 };
    for budget in [least, 10 * least, 10_000] {
        let mut seen = HashSet::new();
        let mut cursor = 0;
        loop {
            let mut step = 0;
            cursor = table.scan(cursor, budget, |view| {
                step += 1;
                assert!(seen.insert(number(view)), "once");
            });
            assert!(step < budget + 64, "one home at most beyond the budget");
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), KEYS);
    }
}

#[test]
fn any_number_is_safe_as_a_cursor() {
    let mut draw = Random::new(3);
    let mut table = Numbers::new(SEED);
    let counts: &[usize] = if cfg!(miri) {
        &[0, 1, 120]
    } else {
        &[0, 1, 500, 5000]
    };
    for &count in counts {
        for number in 0..count {
            put(&mut table, &key(number), 0);
        }
        for _ in 0..if cfg!(miri) { 15 } else { 2000 } {
            let cursor = draw.next_u64() >> draw.index(64);
            table.scan(cursor, 10, |_| {});
        }
        table.scan(u64::MAX, 10, |_| {});
    }
}

#[test]
fn a_flood_of_one_prefix_chains_segments_instead_of_doubling_the_directory() {
    let (bits, count, honest) = if cfg!(miri) {
        (1, 120, 80)
    } else {
        (9, 3000, 60_000)
    };
    let keys = colliding(bits, count);
    let mut table = Numbers::new(SEED);
    for (number, key) in keys.iter().enumerate() {
        put(&mut table, key, number as i64);
        if number % 100 == 0 && !cfg!(miri) {
            table.check_invariants();
        }
    }
    table.check_invariants();
    assert!(table.directory.depth() <= 8, "the guard held");
    let mut chained = false;
    for index in 0..table.directory.len() {
        chained |= table.directory.get(index).is_chained();
    }
    assert!(chained, "the keys had to go somewhere");
    for (number_, key) in keys.iter().enumerate() {
        assert_eq!(
            table.get(table.hash(key), key).map(number),
            Some(number_ as i64)
        );
    }
    // Walks, random sampling and drains work on chains too.
    let mut seen = HashSet::new();
    let mut cursor = 0;
    loop {
        cursor = table.scan(cursor, 20, |view| assert!(seen.insert(number(view))));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), keys.len());
    let mut draw = Random::new(1);
    for _ in 0..if cfg!(miri) { 10 } else { 100 } {
        let place = table
            .random(&mut || draw.next_u64())
            .expect("it is not empty");
        let _ = table.at(place);
    }
    // Once keys with ordinary hashes make the table large, the limit on depth allows the attacked prefix to split.
    for number in 0..honest {
        put(&mut table, format!("honest:{number}").as_bytes(), 0);
    }
    table.check_invariants();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(take(&mut table, key), Some(number as i64));
        if number % 300 == 0 {
            table.check_invariants();
        }
    }
    table.check_invariants();
    assert_eq!(table.len(), honest);
}

#[test]
fn entries_of_one_and_the_same_hash_are_all_kept_and_all_shown() {
    // The hash is passed in, so that equal hashes need no search; segments with equal hashes cannot be split.
    const KEYS: usize = if cfg!(miri) { 80 } else { 300 };
    let mut table = Numbers::new(SEED);
    for number in 0..KEYS {
        let key = key(number);
        table.insert_new(7 << 60 | 99, Entry::integer(1, &key, number as i64, None));
    }
    let mut shown = HashSet::new();
    assert_eq!(
        table.find_by_hash(7 << 60 | 99, |view| !shown.insert(number(view))),
        None
    );
    assert_eq!(shown.len(), KEYS);
    let found = table.find_by_hash(7 << 60 | 99, |view| number(view) == 70);
    assert_eq!(found.map(|place| number(table.at(place))), Some(70));
    for number in 0..KEYS {
        let key = key(number);
        let place = table.find(7 << 60 | 99, &key).expect("kept");
        table.remove(place);
    }
    assert_eq!(table.memory_bytes(), 0);
}

#[test]
fn draws_reach_every_entry_equally_often() {
    let mut table = Numbers::new(SEED);
    let mut draw = Random::new(9);
    assert_eq!(table.random(&mut || draw.next_u64()), None);
    const KEYS: usize = if cfg!(miri) { 40 } else { 1000 };
    for number in 0..KEYS {
        put(&mut table, &key(number), number as i64);
    }
    let mut drawn = vec![0; KEYS];
    for _ in 0..100 * KEYS {
        let place = table
            .random(&mut || draw.next_u64())
            .expect("it is not empty");
        drawn[number(table.at(place)) as usize] += 1;
    }
    assert!(
        drawn.iter().all(|&times| (50..160).contains(&times)),
        "{drawn:?}"
    );
    // When only one of many entries is left, it is found as well.
    for number in 1..KEYS {
        take(&mut table, &key(number));
    }
    assert!(table.random(&mut || draw.next_u64()).is_some());
}

#[test]
fn draining_frees_a_table_in_slices_while_it_stays_usable() {
    let mut table = Numbers::new(SEED);
    let (keys, segments) = if cfg!(miri) { (300, 1) } else { (20_000, 4) };
    for number in 0..keys {
        put(&mut table, &key(number), number as i64);
    }
    let mut slices = 0;
    while table.drain_some(segments) {
        slices += 1;
        table.check_invariants();
        if slices < if cfg!(miri) { 4 } else { 40 } {
            // New entries may go to segments already drained, and old ones must still be found.
            for number in 0..20 {
                put(&mut table, &key(100_000 + 20 * slices + number), 0);
            }
            let mut len = 0;
            table.scan(0, usize::MAX, |_| len += 1);
            assert_eq!(len, table.len());
        }
    }
    assert!(slices > if cfg!(miri) { 2 } else { 10 });
    assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    put(&mut table, b"again", 1);
    assert_eq!(take(&mut table, b"again"), Some(1));
}

#[test]
fn the_directory_is_published_and_stale_words_are_harmless() {
    let published = Arc::new(AtomicU64::new(0));
    let mut table = Numbers::with_published(SEED, published.clone());
    prefetch_line(&published, 5);
    let mut draw = Random::new(2);
    let mut seen = HashSet::new();
    let (keys, directories) = if cfg!(miri) { (300, 3) } else { (30_000, 7) };
    for number in 0..keys {
        put(&mut table, &key(number), 0);
        seen.insert(published.load(Ordering::Relaxed));
    }
    assert!(seen.len() >= directories, "one directory for each depth");
    let other = Arc::new(AtomicU64::new(0));
    table.set_published(Some(other.clone()));
    assert_eq!(published.load(Ordering::Relaxed), 0);
    seen.insert(other.load(Ordering::Relaxed));
    drop(table);
    assert_eq!(other.load(Ordering::Relaxed), 0);
    for stale in seen {
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            prefetch_line(&AtomicU64::new(stale), draw.next_u64());
        }
    }
}

#[test]
fn threads_may_prefetch_through_the_published_word_while_tables_come_and_go() {
    let published = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicU64::new(0));
    let other = {
        let (published, stop) = (published.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut draw = Random::new(4);
            while stop.load(Ordering::Relaxed) == 0 {
                prefetch_line(&published, draw.next_u64());
            }
        })
    };
    let (rounds, keys) = if cfg!(miri) { (2, 120) } else { (20, 3000) };
    for _ in 0..rounds {
        let mut table = Numbers::with_published(SEED, published.clone());
        for number in 0..keys {
            put(&mut table, &key(number), 0);
        }
        table.prefetch(table.hash(b"key:1"));
        table.prefetch_matches(table.hash(b"key:1"));
        table.prefetch_entry(place(&table, b"key:1").expect("it was put"));
        for number in 0..keys {
            take(&mut table, &key(number));
        }
    }
    stop.store(1, Ordering::Relaxed);
    other.join().expect("nothing to fail");
}

#[test]
fn a_place_that_outlived_its_entry_panics_or_names_another_but_breaks_nothing() {
    let mut table = Numbers::new(SEED);
    let mut places = Vec::new();
    let (keys, taken) = if cfg!(miri) { (120, 110) } else { (2000, 1900) };
    for number in 0..keys {
        places.push(put(&mut table, &key(number), number as i64));
    }
    for number in 0..taken {
        take(&mut table, &key(number));
    }
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut panics = 0;
    for place in places {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            table.set_bits(place, 1);
            number(table.at(place));
        }));
        panics += usize::from(outcome.is_err());
    }
    std::panic::set_hook(quiet);
    assert!(panics > 0);
    table.check_invariants();
}

#[test]
fn a_forgotten_edit_leaks_its_entry_and_nothing_else() {
    let mut table = Numbers::new(SEED);
    const KEYS: usize = if cfg!(miri) { 120 } else { 3000 };
    for number in 0..KEYS {
        put(&mut table, &key(number), number as i64);
        if number == 100 {
            let place = place(&table, &key(50)).expect("it was put");
            let edit = table.edit(place);
            mem::forget(edit);
        }
    }
    assert!(place(&table, &key(50)).is_none());
    for number in 0..KEYS {
        assert_eq!(take(&mut table, &key(number)).is_some(), number != 50);
    }
    assert_eq!(table.random(&mut || 5), None);
}

#[test]
fn a_table_and_its_entries_may_change_threads() {
    fn sent<T: Send>(value: T) -> T {
        std::thread::scope(|scope| scope.spawn(move || value).join()).expect("it only returns")
    }
    let mut table = Numbers::new(SEED);
    put(&mut table, b"key", 5);
    assert_eq!(take(&mut sent(table), b"key"), Some(5));
}

#[test]
fn an_edit_may_move_the_entry() {
    let mut table = Numbers::new(SEED);
    let place = put(&mut table, b"key", 5);
    table.set_bits(place, 77);
    table.edit(place).set_bytes(&[7; 5000]);
    let view = table.get(table.hash(b"key"), b"key").expect("still there");
    assert!(matches!(view.value(), Value::Bytes(bytes) if bytes.len() == 5000));
    let old = table.replace(place, Entry::integer(2, b"key", 9, None));
    assert_eq!(old.view().kind(), 1);
    assert_eq!((number(table.at(place)), table.bits(place)), (9, 77));
}

#[test]
fn small_tables_are_small() {
    let mut table = Numbers::new(SEED);
    assert_eq!(table.memory_bytes(), 0);
    let mut largest = 0;
    for number in 0..400 {
        put(&mut table, &key(number), 0);
        if number == 0 {
            assert_eq!(table.memory_bytes(), 128 + 8);
        }
        if number >= 10 {
            largest = largest.max(table.memory_bytes() / (number + 1));
        }
    }
    assert!(largest <= 24, "{largest} bytes an entry");
}

#[test]
fn keys_are_compared_to_the_last_byte() {
    for len in 0..if cfg!(miri) { 40 } else { 100 } {
        let one: Vec<u8> = (0..len).collect();
        assert_eq!(
            same_short_bytes(&one, &one.clone()),
            (4..=32).contains(&len)
        );
        for at in 0..one.len() {
            let mut two = one.clone();
            two[at] ^= 1;
            assert!(!same_short_bytes(&one, &two));
            assert!(!same_short_bytes(&one, &one[..at]));
        }
    }
}

#[test]
fn keys_of_any_length_are_found() {
    let mut table = Numbers::new(SEED);
    let lens = (0..600_usize).step_by(if cfg!(miri) { 11 } else { 1 });
    let keys: Vec<Vec<u8>> = lens.map(|len| vec![len as u8; len]).collect();
    for (len, key) in keys.iter().enumerate() {
        put(&mut table, key, len as i64);
    }
    for (len, key) in keys.iter().enumerate() {
        assert_eq!(
            table.get(table.hash(key), key).map(number),
            Some(len as i64)
        );
    }
}

#[cfg(not(any(miri, feature = "system-allocator")))]
#[test]
fn what_is_moved_is_found_as_before() {
    const KEYS: usize = 20_000;
    let mut table = Numbers::new(SEED);
    for number in 0..KEYS {
        put(&mut table, &key(number), number as i64);
    }
    for number in (0..KEYS).filter(|number| number % 10 != 0) {
        take(&mut table, &key(number));
    }
    let mut mover = crate::alloc::slabs::Mover::new(10).expect("jemalloc can be asked");
    let (mut position, mut seen) = (0, 0);
    loop {
        position = table.relocate_some(position, 100, &mut mover, |_| seen += 1);
        table.check_invariants();
        if position == 0 {
            break;
        }
    }
    assert_eq!(seen, KEYS / 10);
    assert!(mover.moved > 1_000, "{}", mover.moved);
    for number in 0..KEYS {
        let key = key(number);
        let found = table.get(table.hash(&key), &key);
        assert_eq!(found.is_some(), number % 10 == 0, "{number}");
    }
}
