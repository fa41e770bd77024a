//! Databases with a share of memory, next to databases without one.

use super::*;

const SHARE: u64 = 1 << 20;

/// Bytes by which a share may be exceeded, in addition to what commands in flight add: see
/// [`budget`](super::super::budget).
const TOLERANCE: i64 = SHARE as i64 / 32;

fn server(shards: usize, limit: u64, policy: Policy) -> Server {
    let server = Server::new(shards, limit, policy);
    server.budget.share_out(&[(1, SHARE)]);
    server
}

impl Server {
    fn used(&self, db: usize) -> i64 {
        let shards = self.engines.iter();
        shards
            .map(|engine| engine.published().dbs[db].used_bytes())
            .sum()
    }

    fn evicted_from(&self, db: usize) -> u64 {
        let shards = self.engines.iter();
        shards
            .map(|engine| engine.published().counts(db).evicted)
            .sum()
    }

    /// Acts as a session: debts are paid first, and then the command runs.
    fn put(&mut self, shard: usize, db: usize, name: &str, len: usize) -> bool {
        self.hold_back_from(db);
        let deadline = Deadline::At(NOW.unix_ms + 1_000_000);
        self.set_at(shard, db, name, len, deadline)
    }
}

#[test]
fn a_database_over_its_share_loses_keys_and_the_others_none() {
    for policy in EVICTING {
        for shards in [1, 16] {
            // Once with a limit for all databases, and once without.
            for limit in [64 << 20, 0] {
                let mut server = server(shards, limit, policy);
                let mut most = 0;
                for number in 0..20_000 {
                    let shard = number % shards;
                    assert!(server.put(shard, 1, &format!("many:{number}"), 100));
                    assert!(server.put(shard, 0, &format!("kept:{number}"), 20));
                    most = most.max(server.used(1));
                    if number % 64 == 0 {
                        server.tick(shard);
                    }
                }
                let share = SHARE as i64;
                assert!(most <= share + TOLERANCE, "{policy:?} {shards}: {most}");
                assert!(most > share * 9 / 10, "{policy:?} {shards}: {most}");
                assert_eq!(server.evicted_from(0), 0, "{policy:?}");
                assert!(server.evicted_from(1) > 10_000);
                assert_eq!(server.engines[0].db(0).map(Db::len), Some(20_000 / shards));
            }
        }
    }
}

#[test]
fn large_values_among_small_ones_keep_within_the_share() {
    let mut server = server(16, 0, Policy::AllkeysLru);
    let mut most = 0;
    for number in 0..2_000 {
        let len = if number % 10 == 0 { 60_000 } else { 100 };
        assert!(server.put(number % 16, 1, &format!("key:{number}"), len));
        most = most.max(server.used(1));
    }
    assert!(most <= SHARE as i64 + TOLERANCE + 61_000, "{most}");
    server.rest();
    assert!(server.used(1) <= SHARE as i64, "{}", server.used(1));
}

#[test]
fn without_eviction_the_database_is_refused_and_no_other() {
    let mut server = server(4, 0, Policy::NoEviction);
    let mut taken = 0;
    while server.put(taken % 4, 1, &format!("key:{taken}"), 1_000) {
        taken += 1;
    }
    assert!((800..1_050).contains(&taken), "{taken} values of 1 KiB");
    for shard in 0..4 {
        let engine = &mut server.engines[shard];
        assert_eq!(engine.make_room(0, NOW), Ok(()));
        assert_eq!(engine.make_room(1, NOW), Err(Full::Share(1)));
        assert_eq!(engine.check_share(1), Err(Full::Share(1)));
        assert_eq!(engine.check_share(2), Ok(()));
    }
    // Deletions free memory, also for other shards.
    for number in 0..taken {
        let key = Key::new(format!("key:{number}").into_bytes().leak(), SEED);
        let mut keyspace = server.engines[number % 4].keyspace(1, NOW);
        if number % 4 == 0
            && let Some(place) = keyspace.find_write(&key)
        {
            keyspace.delete(place);
        }
    }
    server.budget.assess();
    assert!(server.put(3, 1, "there is room again", 1_000));
    // The share is removed, and every bound with it.
    server.budget.share_out(&[]);
    assert!((0..2_000).all(|number| server.put(number % 4, 1, &format!("more:{number}"), 1_000)));
}

#[test]
fn keys_of_others_do_not_count_as_evictable() {
    let mut server = server(4, 64 << 20, Policy::VolatileLru);
    for number in 0..1_000 {
        assert!(server.put(number % 4, 0, &format!("volatile:{number}"), 100));
    }
    let mut taken = 0;
    loop {
        server.hold_back_from(1);
        let name = format!("for ever:{taken}");
        if !server.set_at(taken % 4, 1, &name, 1_000, Deadline::Clear) {
            break;
        }
        taken += 1;
    }
    assert!((800..1_100).contains(&taken), "{taken} values of 1 KiB");
    assert_eq!(server.engines[0].make_room(1, NOW), Err(Full::Share(1)));
    assert_eq!((server.evicted_from(0), server.evicted_from(1)), (0, 0));
}

#[test]
fn a_share_belongs_to_the_number_and_what_comes_to_it_has_to_fit() {
    let mut server = server(4, 0, Policy::AllkeysLfu);
    for number in 0..20_000 {
        assert!(server.put(number % 4, 0, &format!("key:{number}"), 200));
    }
    let large = server.used(0);
    assert!(large > 3 * SHARE as i64);
    for engine in &mut server.engines {
        engine.swap_dbs(0, 1, NOW);
        assert!(engine.published().owes());
    }
    assert_eq!(server.used(1), large);
    server.rest();
    assert!(server.used(1) <= SHARE as i64, "{}", server.used(1));
    // Once flushed, the database has its whole share again.
    for engine in &mut server.engines {
        engine.flush_db(1);
    }
    assert_eq!(server.used(1), 0);
    let evicted = server.evicted_from(1);
    for number in 0..2_000 {
        assert!(server.put(number % 4, 1, &format!("new:{number}"), 200));
    }
    assert_eq!(server.evicted_from(1), evicted);
    // A smaller share is a shortage that all shards pay for.
    server.budget.share_out(&[(1, SHARE / 4)]);
    server.rest();
    assert!(server.used(1) <= SHARE as i64 / 4, "{}", server.used(1));
    assert!(server.used(1) > SHARE as i64 / 8, "{}", server.used(1));
}

#[test]
fn when_all_memory_is_short_a_database_over_its_share_goes_first() {
    let mut server = server(1, 0, Policy::AllkeysRandom);
    for number in 0..3_000 {
        assert!(server.put(0, 0, &format!("key:{number}"), 100));
        assert!(server.put(0, 2, &format!("key:{number}"), 100));
    }
    // After the swap the database exceeds its share for a moment, as nothing has been evicted yet.
    server.engines[0].swap_dbs(1, 2, NOW);
    server.budget.share_out(&[(1, 100_000)]);
    let used = server.budget.used_bytes() as u64;
    server
        .budget
        .configure(used - 200_000, Policy::AllkeysRandom, false);
    server.rest();
    assert_eq!(server.evicted_from(0), 0);
    assert!(server.evicted_from(1) > 0 && server.used(1) <= 100_000);
}
