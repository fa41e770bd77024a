//! Doublings and halvings of the directory: prepared in slices, and unseen by walks.

use super::super::successor::{Successor, prepare_from_depth, prepared_words};
use super::*;

#[test]
fn a_doubling_is_prepared_before_it_is_needed() {
    let mut table = Numbers::new(SEED);
    let mut unprepared = 0;
    for number in 0..if cfg!(miri) { 220 } else { 60_000 } {
        let key = key(number);
        let (depth, words) = (table.directory.depth(), table.directory.len());
        let prepared = table.successor.as_ref().map_or(0, |next| next.prepared);
        table.insert_new(table.hash(&key), Entry::integer(1, &key, 0, None));
        if table.directory.depth() > depth && depth >= prepare_from_depth() {
            unprepared = unprepared.max(words - prepared);
        }
    }
    assert!(table.directory.depth() > prepare_from_depth());
    assert_eq!(unprepared, 0);
}

/// Returns a table and the numbers of its keys in an order of deletion: any order, or that of hashes.
fn filled_for_deletion(count: usize, by_hash: bool) -> (Numbers, Vec<usize>) {
    let mut table = Numbers::new(SEED);
    for number in 0..count {
        put(&mut table, &key(number), number as i64);
    }
    let mut order: Vec<usize> = (0..count).collect();
    if by_hash {
        order.sort_by_key(|number| SEED.hash(&key(*number)));
    } else {
        let mut draw = Random::new(1);
        (1..count).for_each(|at| order.swap(at, draw.index(at + 1)));
    }
    (table, order)
}

fn words(table: &Numbers) -> Vec<u64> {
    let words = 0..table.directory.len();
    words
        .map(|index| table.directory.get(index).word())
        .collect()
}

#[test]
fn a_halving_is_prepared_in_slices_whatever_the_order_of_deletions() {
    let (count, left) = if cfg!(miri) { (220, 20) } else { (15_000, 100) };
    for by_hash in [false, true] {
        let (mut table, order) = filled_for_deletion(count, by_hash);
        let (full_depth, mut halvings) = (table.directory.depth(), 0);
        for (step, number) in order[left..].iter().enumerate() {
            let (depth, before) = (table.directory.depth(), words(&table));
            let prepared = table.successor.as_ref().map_or(0, |next| next.prepared);
            let successor_depth = table.successor.as_ref().map(|next| next.directory.depth());
            take(&mut table, &key(*number));
            let after = table.directory.depth();
            if after == depth {
                let pairs = before.iter().zip(words(&table));
                let changed = pairs.filter(|(before, after)| **before != *after).count();
                assert!(changed <= 32, "{changed} words changed at once");
            } else if depth > prepare_from_depth() {
                halvings += 1;
                // Else the new directory is so small that it was filled at once.
                if after > prepare_from_depth() || successor_depth == Some(after) {
                    let missing = (before.len() - prepared) >> (depth - after);
                    assert!(
                        missing <= 4 * prepared_words(),
                        "{missing} words of depth {after} were missing"
                    );
                }
            }
            if step % 97 == 0 || after != depth {
                table.check_invariants();
            }
        }
        table.check_invariants();
        assert!(halvings > 0 && full_depth > prepare_from_depth());
        assert!(table.directory.depth() <= prepare_from_depth(), "{by_hash}");
        for number in &order[..left] {
            assert_eq!(take(&mut table, &key(*number)), Some(*number as i64));
        }
        assert_eq!(table.memory_bytes(), 0);
    }
}

#[test]
fn a_table_that_grows_while_a_halving_is_prepared_has_what_it_had() {
    let (count, rounds) = if cfg!(miri) { (200, 2) } else { (30_000, 20) };
    for seed in 0..2 {
        let mut draw = Random::new(seed);
        let (mut table, order) = filled_for_deletion(count, seed == 1);
        let (mut present, mut next) = (order, count);
        let mut turned = 0;
        for round in 0..rounds {
            // Deletes until a halving has begun, and a little further, then inserts.
            let further = draw.index(count / 20);
            let mut since = 0;
            while since < further && present.len() > 20 {
                let number = present.swap_remove(draw.index(present.len()));
                assert_eq!(take(&mut table, &key(number)), Some(number as i64));
                let depth = table.directory.depth();
                let halves = |of: &Successor| of.directory.depth() < depth;
                since += usize::from(table.successor.as_deref().is_some_and(halves));
            }
            table.check_invariants();
            turned += usize::from(table.successor.is_some());
            for _ in 0..draw.index(count / (1 + round % 3)) {
                put(&mut table, &key(next), next as i64);
                present.push(next);
                next += 1;
            }
            table.check_invariants();
        }
        assert!(cfg!(miri) || turned > 0, "some halving was interrupted");
        assert_eq!(table.len(), present.len());
        for number in present {
            assert_eq!(take(&mut table, &key(number)), Some(number as i64));
        }
    }
}

#[test]
fn walks_miss_nothing_while_the_directory_halves() {
    let (count, stay) = if cfg!(miri) { (200, 20) } else { (20_000, 300) };
    for (once, by_hash) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut table, mut order) = filled_for_deletion(count, by_hash);
        let full_depth = table.directory.depth();
        let stayers: Vec<usize> = order.iter().copied().step_by(count / stay).collect();
        order.retain(|number| !stayers.contains(number));
        order.reverse();
        let (mut cursor, mut seen) = (0, HashSet::new());
        loop {
            let mut see = |view: EntryRef<'_, ()>| {
                let is_first = seen.insert(number(view));
                assert!(is_first || !once, "seen twice");
            };
            cursor = match once {
                true => table.scan_once(cursor, 20, &mut see),
                false => table.scan(cursor, 20, &mut see),
            };
            if cursor == 0 {
                break;
            }
            for _ in 0..count / 25 {
                if let Some(number) = order.pop() {
                    take(&mut table, &key(number));
                }
            }
        }
        assert!(table.directory.depth() < full_depth, "it halved meanwhile");
        for number in stayers {
            assert!(seen.contains(&(number as i64)), "{number} was there");
        }
    }
}
