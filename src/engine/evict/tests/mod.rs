//! Shards that share one budget, under each eviction policy.

use std::sync::Arc;

use super::budget::SUMS;
use super::*;
use crate::keyspace::Deadline;
use crate::value::string_entry;
use crate::{Key, published::Published};
use basalt_core::base::hash::HashSeed;

mod ages;
mod reference;
mod shares;

const SEED: HashSeed = HashSeed { k0: 3, k1: 4 };
const NOW: Now = Now {
    unix_ms: 1_700_000_000_000,
};

/// The shards of a server, which share one budget.
struct Server {
    engines: Vec<Engine>,
    budget: Arc<Budget>,
    refused: usize,
}

impl Server {
    fn new(shards: usize, limit: u64, policy: Policy) -> Server {
        let mut engines: Vec<Engine> = (0..shards)
            .map(|shard| Engine::new(4, SEED, shard as u64 + 1))
            .collect();
        let all_published = engines.iter().map(|engine| Arc::clone(engine.published()));
        let budget = Arc::new(Budget::of(all_published.collect()));
        for engine in &mut engines {
            engine.effects.set_recording(true);
            engine.set_budget(Arc::clone(&budget));
        }
        budget.configure(limit, policy, false);
        Server {
            engines,
            budget,
            refused: 0,
        }
    }

    fn set(&mut self, shard: usize, name: &str, len: usize, deadline: Deadline) -> bool {
        self.set_at(shard, 0, name, len, deadline)
    }

    fn set_at(
        &mut self,
        shard: usize,
        db: usize,
        name: &str,
        len: usize,
        deadline: Deadline,
    ) -> bool {
        let engine = &mut self.engines[shard];
        if engine.make_room(db, NOW).is_err() {
            self.refused += 1;
            return false;
        }
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = engine.keyspace(db, NOW);
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, &vec![b'v'; len], deadline);
        engine.pay(NOW, 1);
        engine.deferred.settle();
        true
    }

    fn has(&mut self, shard: usize, name: &str) -> bool {
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = self.engines[shard].keyspace(0, NOW);
        keyspace.find_read(&key).is_some()
    }

    fn delete(&mut self, shard: usize, name: &str) {
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = self.engines[shard].keyspace(0, NOW);
        if let Some(place) = keyspace.find_write(&key) {
            keyspace.delete(place);
        }
        self.engines[shard].deferred.settle();
    }

    /// Runs the background's work once, starting with this shard.
    fn tick(&mut self, first: usize) {
        self.budget.assess();
        let shards = self.engines.len();
        for step in 0..shards {
            let engine = &mut self.engines[(first + step) % shards];
            engine.evict_slice(NOW);
            engine.deferred.settle();
        }
    }

    /// Runs the background's work until nothing is left to do.
    fn rest(&mut self) {
        self.budget.assess();
        for _ in 0..100_000 {
            let mut more = false;
            for engine in &mut self.engines {
                more |= engine.evict_slice(NOW);
                engine.deferred.settle();
            }
            // A trade may have put shards in debt that had been asked to pay before.
            let mut all = self.engines.iter();
            if !more && !all.any(|engine| engine.published().owes()) {
                return;
            }
            if !more && !self.budget.is_any_evictable() {
                return;
            }
        }
        panic!("eviction does not come to an end");
    }

    fn keys(&self) -> u64 {
        let keys = self
            .engines
            .iter()
            .map(|engine| engine.published().evictable(None, false));
        keys.sum()
    }

    fn evicted(&self) -> u64 {
        self.engines
            .iter()
            .map(|engine| engine.published().all_counts().evicted)
            .sum()
    }
}

impl Server {
    /// Acts as sessions do before a command that may allocate, while the shards are far in debt.
    fn hold_back(&mut self) {
        self.hold_back_from(0);
    }

    /// Acts as sessions do before a command adds to a database.
    fn hold_back_from(&mut self, db: usize) {
        for _ in 0..100_000 {
            if !self.budget.is_behind() || !self.budget.holds_back(db) {
                return;
            }
            self.budget.assess();
            let used = self.budget.used_bytes();
            for engine in &mut self.engines {
                engine.evict_slice(NOW);
                engine.deferred.settle();
            }
            match self.budget.used_bytes() < used {
                true => self.budget.note_debts(),
                false => self.budget.give_up_debts(),
            }
        }
        panic!("it is held back for ever");
    }
}

const EVICTING: [Policy; 7] = [
    Policy::AllkeysLru,
    Policy::AllkeysLfu,
    Policy::AllkeysRandom,
    Policy::VolatileLru,
    Policy::VolatileLfu,
    Policy::VolatileRandom,
    Policy::VolatileTtl,
];

#[test]
fn large_values_in_many_shards_do_not_add_up_where_nothing_can_be_evicted() {
    const LEN: usize = 100_000;
    let volatile = EVICTING
        .into_iter()
        .filter(|policy| policy.is_volatile_only());
    for policy in volatile.chain([Policy::NoEviction]) {
        let limit = 8 << 20;
        let mut server = Server::new(64, limit, policy);
        // Leaves unused grants in all shards.
        for index in 0..6_400 {
            assert!(server.set(index % 64, &format!("small{index}"), 500, Deadline::Clear));
        }
        for index in 0..400 {
            server.set(
                index * 7 % 64,
                &format!("large{index}"),
                LEN,
                Deadline::Clear,
            );
            let over = server.budget.used_bytes() - limit as i64;
            assert!(over < 2 * LEN as i64, "{policy:?}: {over} bytes over");
        }
        let used = server.budget.used_bytes();
        assert!(
            server.refused > 300,
            "{policy:?}: {} refused",
            server.refused
        );
        assert!(used > limit as i64 / 10 * 9, "{policy:?}: {used} used");
        assert_eq!(server.evicted(), 0);
        assert!(
            !server.budget.is_behind() || {
                server.hold_back();
                !server.budget.is_behind()
            }
        );
    }
}

#[test]
fn large_values_over_small_ones_stay_within_the_bound() {
    const LEN: usize = 1 << 20;
    for policy in EVICTING {
        let limit = 24 << 20;
        let mut server = Server::new(64, limit, policy);
        let soon = |index: u64| Deadline::At(NOW.unix_ms + 1_000_000 + index);
        for index in 0..150_000 {
            let shard = index as usize * 5 % 64;
            server.set(shard, &format!("small{index}"), 100, soon(index));
        }
        let bound = limit as i64 / 32 + 2 * LEN as i64;
        for index in 0..100 {
            server.hold_back();
            let shard = index as usize * 11 % 64;
            assert!(server.set(shard, &format!("large{index}"), LEN, soon(index)));
            let over = server.budget.used_bytes() - limit as i64;
            assert!(over < bound, "{policy:?}: {over} bytes over");
        }
        server.rest();
        let used = server.budget.used_bytes();
        assert!(
            used <= limit as i64 && used > limit as i64 / 2,
            "{policy:?}: {used}"
        );
    }
}

#[test]
fn a_large_value_for_which_there_is_room_evicts_nothing() {
    for policy in EVICTING {
        let limit = 100 << 20;
        let mut server = Server::new(64, limit, policy);
        let deadline = Deadline::At(NOW.unix_ms + 1_000_000);
        for index in 0..40 {
            let shard = index * 11 % 64;
            assert!(server.set(shard, &format!("large{index}"), 1 << 20, deadline));
        }
        let mut number = 0;
        while server.budget.free_bytes() >= 47 << 19 {
            let shard = number % 64;
            assert!(server.set(shard, &format!("small{number}"), 500, deadline));
            number += 1;
        }
        // The free bytes do not suffice, but the shards have unused grants.
        let room = limit as i64 - server.budget.used_bytes();
        assert!(room > 49 << 19, "{policy:?}: {room}");
        server.budget.assess_at(NOW.unix_ms);
        assert!(server.set(5, "huge", (24 << 20) - 200, deadline));
        server.rest();
        assert_eq!(server.evicted(), 0, "{policy:?}");
    }
}

/// The limit holds 25 or 100 values, and there are 64 shards.
#[test]
fn values_of_which_there_are_few_in_a_shard_leave_the_limit_in_use() {
    for policy in EVICTING {
        for values in [25, 100] {
            let limit = values << 20;
            let mut server = Server::new(64, limit, policy);
            // With its overhead, a value of this length fills an allocation.
            let len = (1 << 20) - 200;
            let held = values as i64 - 1;
            let mut fresh = 0;
            for number in 0..600_u64 {
                server.hold_back();
                let deadline = Deadline::At(NOW.unix_ms + 1_000_000 + number);
                let shard = SEED.hash(&number.to_le_bytes()) as usize % 64;
                let name = format!("key:{number}");
                assert!(server.set(shard, &name, len, deadline));
                let over = server.budget.used_bytes() - limit as i64;
                let bound = limit as i64 / 32 + (1 << 20);
                assert!(over < bound, "{policy:?}: {over} bytes over");
                server.tick(number as usize);
                let used = server.budget.used_bytes();
                if number >= 200 {
                    assert!(
                        used > limit as i64 / 10 * 9,
                        "{policy:?}, {values} values: {used} at {number}"
                    );
                    fresh += usize::from(server.has(shard, &name));
                }
            }
            server.rest();
            assert!(server.budget.used_bytes() <= limit as i64, "{policy:?}");
            // One value is evicted for each new one, and it is seldom the new one.
            let evicted = server.evicted() as i64;
            assert!(
                (600 - held..600 - held + 20).contains(&evicted),
                "{policy:?}: {evicted} of 600, {held} held"
            );
            assert!(fresh >= 320, "{policy:?}: {fresh} of 400 stay");
        }
    }
}

#[test]
fn a_flood_of_writes_stays_at_the_limit_and_uses_it() {
    for policy in EVICTING {
        for shards in [1, 64] {
            let limit = 4 << 20;
            let mut server = Server::new(shards, limit, policy);
            for number in 0..60_000_u64 {
                let at_ms = NOW.unix_ms + 1_000_000 + number % 5_000_000;
                let shard = SEED.hash(&number.to_le_bytes()) as usize % shards;
                let name = format!("key:{number}");
                assert!(
                    server.set(shard, &name, 100, Deadline::At(at_ms)),
                    "{policy:?}"
                );
                let used = server.budget.used_bytes();
                assert!(
                    used < limit as i64 * 66 / 64,
                    "{policy:?}: {used} at {number}"
                );
            }
            server.rest();
            let used = server.budget.used_bytes();
            assert!(used <= limit as i64, "{policy:?}: {used}");
            assert!(used > limit as i64 * 9 / 10, "{policy:?}: only {used}");
            assert!(server.evicted() > 20_000);
        }
    }
}

#[test]
fn without_eviction_commands_are_refused_until_something_is_deleted() {
    let mut server = Server::new(64, 1 << 20, Policy::NoEviction);
    let mut number = 0;
    while server.set(number % 64, &format!("key:{number}"), 100, Deadline::Clear) {
        number += 1;
    }
    let used = server.budget.used_bytes();
    assert!((1 << 20..(1 << 20) + 8192).contains(&used), "{used}");
    assert!(server.budget.is_out_of_memory(0) || used == 1 << 20);
    for shard in 0..64 {
        assert!(
            !server.set(shard, "other", 1, Deadline::Clear),
            "every shard refuses"
        );
    }
    for deleted in 0..100 {
        server.delete(deleted % 64, &format!("key:{deleted}"));
    }
    assert!(!server.budget.is_out_of_memory(0));
    for shard in [0, 63, 17] {
        assert!(
            server.set(shard, "other", 1, Deadline::Clear),
            "every shard may grow"
        );
    }
    assert_eq!(server.evicted(), 0);
}

#[test]
fn a_limit_that_is_lowered_is_reached_and_one_that_is_lifted_is_forgotten() {
    let mut server = Server::new(8, 0, Policy::AllkeysLru);
    for number in 0..20_000 {
        server.set(number % 8, &format!("key:{number}"), 50, Deadline::Clear);
    }
    let used = server.budget.used_bytes();
    server
        .budget
        .configure(used.unsigned_abs() / 2, Policy::AllkeysLru, false);
    server.rest();
    assert!(server.budget.used_bytes() <= used / 2);
    let sizes: Vec<i64> = server.engines.iter().map(Engine::used_bytes).collect();
    let (least, most) = (sizes.iter().min(), sizes.iter().max());
    assert!(
        least
            .zip(most)
            .is_some_and(|(least, most)| *least * 2 > *most),
        "{sizes:?}"
    );
    server.budget.configure(0, Policy::AllkeysLru, false);
    let (keys, evicted) = (server.keys(), server.evicted());
    for number in 20_000..40_000 {
        assert!(server.set(number % 8, &format!("key:{number}"), 50, Deadline::Clear));
    }
    assert_eq!((server.keys(), server.evicted()), (keys + 20_000, evicted));
    server.budget.configure(1, Policy::AllkeysLru, false);
    server.rest();
    assert_eq!(server.keys(), 0);
    // The one byte that is granted lets an empty shard begin; its data does not stay.
    for shard in 0..8 {
        server.set(shard, "any", 1, Deadline::Clear);
        server.rest();
        assert_eq!(server.keys(), 0);
    }
    // Memory used by something other than keys.
    server.engines[3].published().add_used(1_000);
    server.rest();
    assert!(
        !server.set(3, "any", 1, Deadline::Clear),
        "nothing is left to evict"
    );
}

#[test]
fn volatile_policies_leave_other_keys_alone() {
    for policy in EVICTING
        .into_iter()
        .filter(|policy| policy.is_volatile_only())
    {
        let mut server = Server::new(4, 1 << 20, policy);
        for number in 0..2_000 {
            server.set(number % 4, &format!("stays:{number}"), 50, Deadline::Clear);
        }
        for number in 0..20_000 {
            let deadline = Deadline::At(NOW.unix_ms + 500_000 + number as u64);
            assert!(server.set(number % 4, &format!("goes:{number}"), 50, deadline));
        }
        server.rest();
        let used = server.budget.used_bytes();
        assert!(used <= 1 << 20, "{policy:?}: {used}, {:?}", server.budget);
        for number in 0..2_000 {
            assert!(
                server.has(number % 4, &format!("stays:{number}")),
                "{policy:?}"
            );
        }
        // From now on only keys without deadline are written: they push out all evictable keys, then there is no
        // memory left.
        let mut number = 2_000;
        while server.set(number % 4, &format!("stays:{number}"), 50, Deadline::Clear) {
            number += 1;
            assert!(number < 100_000, "{policy:?}");
        }
        let volatile = server
            .engines
            .iter()
            .map(|engine| engine.published().evictable(None, true));
        assert_eq!(volatile.sum::<u64>(), 0, "{policy:?}");
    }
}

/// Keys in the millisecond of their deadline have not expired yet: they are evicted like others, and count as
/// evicted.
#[test]
fn keys_in_the_millisecond_of_their_deadline_are_evicted() {
    for policy in EVICTING {
        let mut server = Server::new(1, 1 << 20, policy);
        for number in 0..20_000 {
            let deadline = Deadline::At(NOW.unix_ms);
            assert!(server.set(0, &format!("key:{number}"), 50, deadline));
        }
        server.rest();
        let used = server.budget.used_bytes();
        assert!(used <= 1 << 20, "{policy:?}: {used}");
        assert_eq!(server.evicted() + server.keys(), 20_000, "{policy:?}");
    }
}

#[test]
fn the_soonest_deadlines_go_first() {
    let mut server = Server::new(1, 1 << 20, Policy::VolatileTtl);
    let mut random = basalt_core::base::random::Random::new(5);
    let deadlines: Vec<u64> = (0..20_000).map(|_| 1 + random.below(100_000_000)).collect();
    for (number, ahead_ms) in deadlines.iter().enumerate() {
        let deadline = Deadline::At(NOW.unix_ms + 60_000 + ahead_ms);
        assert!(server.set(0, &format!("key:{number}"), 50, deadline));
    }
    let mut left: Vec<u64> = Vec::new();
    for (number, ahead_ms) in deadlines.iter().enumerate() {
        if server.has(0, &format!("key:{number}")) {
            left.push(*ahead_ms);
        }
    }
    let mut sorted = deadlines.clone();
    sorted.sort_unstable();
    let bound = sorted[deadlines.len() - left.len()];
    let early = left.iter().filter(|ahead_ms| **ahead_ms < bound).count();
    assert!(
        early * 20 < left.len(),
        "{early} of {} should have gone",
        left.len()
    );
}

#[test]
fn a_shard_that_is_written_alone_takes_its_room_from_the_others() {
    for policy in [
        Policy::AllkeysLru,
        Policy::AllkeysRandom,
        Policy::VolatileTtl,
    ] {
        let mut server = Server::new(16, 2 << 20, policy);
        let deadline = Deadline::At(NOW.unix_ms + 1_000_000);
        for number in 0..20_000 {
            server.set(number % 16, &format!("old:{number}"), 80, deadline);
        }
        server.rest();
        for number in 0..20_000 {
            assert!(
                server.set(5, &format!("new:{number}"), 80, deadline),
                "{policy:?}"
            );
            if number % 100 == 0 {
                server.rest();
            }
        }
        let used = server.engines[5].used_bytes();
        assert!(used > 1 << 20, "{policy:?}: {used}");
        assert!(server.budget.used_bytes() <= 66 << 15);
    }
}

#[test]
fn evicted_keys_are_told_counted_and_expired_ones_are_not_among_them() {
    let mut server = Server::new(1, 200_000, Policy::AllkeysRandom);
    for number in 0..3_000 {
        server.set(
            0,
            &format!("key:{number}"),
            100,
            Deadline::At(NOW.unix_ms + 1),
        );
    }
    let engine = &mut server.engines[0];
    let evicted = engine.published().all_counts().evicted;
    let told = engine.effects.take();
    let of = |name: &str| {
        told.iter()
            .filter(|effect| effect.event.name == name)
            .count()
    };
    assert_eq!(of("evicted") as u64, evicted);
    assert!(evicted > 0 && of("expired") == 0);
    // The keys expire: the next command that needs memory finds them.
    let later = Now {
        unix_ms: NOW.unix_ms + 10_000,
    };
    server.budget.configure(1, Policy::AllkeysRandom, false);
    let engine = &mut server.engines[0];
    while engine.evict_slice(later) {}
    let told = engine.effects.take();
    assert!(told.iter().all(|effect| effect.event.name == "expired"));
    assert_eq!(engine.published().all_counts().evicted, evicted);
    assert_eq!(server.keys(), 0);
}

#[test]
fn all_databases_lose_keys_and_a_value_above_the_limit_does_not_stay() {
    let mut server = Server::new(2, 1 << 20, Policy::AllkeysLfu);
    for number in 0..24_000 {
        let db = number % 4;
        server.set_at(
            number / 4 % 2,
            db,
            &format!("key:{number}"),
            100,
            Deadline::Clear,
        );
    }
    for engine in &server.engines {
        for db in 0..4 {
            let keys = engine.db(db).map_or(0, Db::len);
            assert!((400..1_500).contains(&keys), "{keys} in database {db}");
        }
    }
    assert!(server.set(0, "huge", 3 << 20, Deadline::Clear));
    server.rest();
    assert!(server.budget.used_bytes() <= 1 << 20);
    assert!(server.set(1, "next", 10, Deadline::Clear));
}

#[test]
fn orders_come_with_scarcity_and_go_with_the_limit() {
    let mut server = Server::new(1, 1 << 20, Policy::AllkeysLru);
    let mut number = 0;
    let mut write = |server: &mut Server, count: usize| {
        for _ in 0..count {
            server.set(0, &format!("key:{number}"), 100, Deadline::Clear);
            number += 1;
        }
    };
    write(&mut server, 1_000);
    assert!(
        !server.engines[0].published().is_ordered(),
        "there is room yet"
    );
    write(&mut server, 20_000);
    assert!(server.engines[0].published().is_ordered());
    server.budget.configure(0, Policy::AllkeysLru, false);
    server.engines[0].keep_order();
    assert!(!server.engines[0].published().is_ordered());
    write(&mut server, 5_000);
    let db = server.engines[0].db(0).expect("written");
    assert!(db.order.is_none(), "the queue has run empty");
}

#[test]
fn what_little_a_shard_has_is_freed_at_once() {
    let mut server = Server::new(1, 1 << 20, Policy::AllkeysLru);
    for number in 0..50 {
        server.set(0, &format!("key:{number}"), 100, Deadline::Clear);
    }
    server.engines[0].flush_db(0);
    assert!(!server.engines[0].published().has_doomed());
    assert!(server.budget.used_bytes() < 1_000);
}

#[test]
fn flushed_data_on_their_way_out_are_waited_for() {
    let mut server = Server::new(1, 1 << 20, Policy::AllkeysLru);
    for number in 0..20_000 {
        server.set(0, &format!("key:{number}"), 100, Deadline::Clear);
    }
    let evicted = server.evicted();
    server.engines[0].flush_db(0);
    for number in 0..100 {
        assert!(server.set(0, &format!("new:{number}"), 100, Deadline::Clear));
    }
    server.budget.assess();
    assert_eq!(server.evicted(), evicted);
    let mut doomed = server.engines[0].take_doomed();
    assert!(server.budget.is_freeing());
    assert!(server.budget.pending_objects() > 1_000);
    while doomed.free_some(16) {}
    server.engines[0].settle(&mut doomed);
    assert!(!server.budget.is_freeing());
    assert_eq!(server.budget.pending_objects(), 0);
    assert!(server.budget.used_bytes() < 100_000);
    server.rest();
    assert_eq!(server.keys(), 100);
}

/// The usage of a shard is on the line that each of its commands writes: to read all of them for each command would
/// make all cores wait for each other.
#[test]
fn writes_at_the_limit_do_not_sum_up_the_usage_of_all_shards() {
    const SHARDS: usize = 256;
    const LIMIT: u64 = 64 << 20;
    const SETS: usize = 5_000;
    let mut server = Server::new(SHARDS, LIMIT, Policy::AllkeysLru);
    let fill = |server: &mut Server, prefix: &str, bytes: usize, count: usize| {
        for number in 0..count {
            let name = format!("{prefix}:{number}");
            server.set(number * 97 % SHARDS, &name, bytes, Deadline::Clear);
        }
    };
    fill(&mut server, "first", 1_000, 2 * LIMIT as usize / 1_000);
    let evicted = server.evicted();
    assert!(evicted > 0, "the cache is not full");
    // The debts of large values are asked of all shards for each 1024th of the limit, 64 KiB.
    for (prefix, bytes, sums_max) in [
        ("small", 100, 50),
        ("medium", 1_000, 50),
        ("large", 5_000, 1_000),
    ] {
        let before = SUMS.get();
        fill(&mut server, prefix, bytes, SETS);
        let sums = SUMS.get() - before;
        assert!(sums <= sums_max, "{prefix}: {sums} sums in {SETS} writes");
    }
    assert!(server.evicted() > evicted + SETS as u64);
    assert!(server.budget.used_bytes() <= LIMIT as i64 + LIMIT as i64 / 64);
}
