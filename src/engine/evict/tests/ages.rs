//! The age at which keys are evicted: no key added within the last hundredth of the cache's turnover is evicted.
//!
//! Ages are counted in keys added since the key's own addition, so that they do not depend on the speed of the test.

use std::collections::{HashMap, VecDeque};

use super::*;
use basalt_core::base::random::Random;

/// The policies without random sampling, which may evict any key.
const BY_AGE: [Policy; 5] = [
    Policy::AllkeysLru,
    Policy::AllkeysLfu,
    Policy::VolatileLru,
    Policy::VolatileLfu,
    Policy::VolatileTtl,
];

/// Fraction of all keys that must not be evicted yet.
const YOUNG_PART: usize = 100;

/// Operations in addition to setting new keys.
#[derive(Clone, Copy, Debug, Default)]
struct Workload {
    /// Some names are deleted and written again.
    rewrites: bool,
    /// Some names expire and are written again, and some keys get their deadline after their value.
    deadlines: bool,
    /// Many names are written and deleted at once, and never written again.
    passing: bool,
    /// Evicted names are written again, and some are read.
    returning: bool,
    /// Percentage of keys with a deadline.
    volatile_percent: u64,
}

struct Cache {
    server: Server,
    policy: Policy,
    /// The time of each name's last addition, counted in added keys.
    born: HashMap<String, usize>,
    /// Names in the order in which they were added, each with the time of its addition.
    young: VecDeque<(usize, String)>,
    clock: usize,
    turnover: usize,
}

impl Cache {
    fn shard(&self, name: &str) -> usize {
        let hash = SEED.hash(name.as_bytes());
        (hash >> 20) as usize % self.server.engines.len()
    }

    fn is_there(&self, name: &str) -> bool {
        let key = Key::new(name.as_bytes(), SEED);
        let db = self.server.engines[self.shard(name)].db(0);
        db.is_some_and(|db| db.find(&key).is_some())
    }

    /// Adds a key that does not exist.
    fn come(&mut self, name: &str, is_volatile: bool, has_expired: bool) {
        // Each addition is a moment later, as if time passed.
        let at_ms = match has_expired {
            true => NOW.unix_ms - 10,
            false => NOW.unix_ms + 10_000_000 + 20 * self.clock as u64,
        };
        let deadline = match is_volatile || has_expired {
            true => Deadline::At(at_ms),
            false => Deadline::Clear,
        };
        self.clock += 1;
        self.server.set(self.shard(name), name, 60, deadline);
        if !has_expired && (is_volatile || !self.policy.is_volatile_only()) {
            self.born.insert(name.to_owned(), self.clock);
            self.young.push_back((self.clock, name.to_owned()));
        }
    }

    fn go(&mut self, name: &str) {
        self.born.remove(name);
        self.server.delete(self.shard(name), name);
    }

    fn give_deadline(&mut self, name: &str) {
        let shard = self.shard(name);
        let at_ms = NOW.unix_ms + 10_000_000 + 20 * self.clock as u64;
        let key = Key::new(name.as_bytes(), SEED);
        let mut keyspace = self.server.engines[shard].keyspace(0, NOW);
        if let Some(place) = keyspace.find_write(&key) {
            keyspace.set_deadline(&key, place, Some(at_ms));
            self.born.insert(name.to_owned(), self.clock);
            self.young.push_back((self.clock, name.to_owned()));
        }
    }

    /// Checks that all young keys exist.
    fn check(&mut self, what: &str) {
        let young_from = self.clock.saturating_sub(self.turnover / YOUNG_PART);
        while self
            .young
            .front()
            .is_some_and(|(born, _)| *born <= young_from)
        {
            self.young.pop_front();
        }
        for (born, name) in &self.young {
            let is_this_life = self.born.get(name) == Some(born);
            assert!(
                !is_this_life || self.is_there(name),
                "{what}: {name} went {} keys after it had come, of {}",
                self.clock - born,
                self.turnover,
            );
        }
    }
}

fn run(policy: Policy, shards: usize, workload: Workload) {
    const STEPS: usize = 6_000;
    let what = format!("{policy:?}, {shards} shards, {workload:?}");
    let mut random = Random::new(STEPS as u64 + shards as u64);
    let mut cache = Cache {
        server: Server::new(shards, 500_000 * shards as u64, policy),
        policy,
        born: HashMap::new(),
        young: VecDeque::new(),
        clock: 0,
        turnover: 0,
    };
    for step in 0..STEPS * shards {
        let is_volatile = random.below(100) < workload.volatile_percent;
        let name = match is_volatile {
            true => format!("new:{step}"),
            // Policies for keys with deadlines never evict these keys, which have none.
            false => format!("kept:{}", random.below(1_200)),
        };
        if !cache.is_there(&name) {
            cache.come(&name, is_volatile, false);
        }
        let again = format!("again:{}", random.below(40));
        if workload.rewrites && step % 3 == 0 {
            cache.go(&again);
            cache.come(&again, true, false);
        }
        if workload.deadlines && step % 4 == 0 {
            let name = format!("due:{}", random.below(40));
            cache.go(&name);
            cache.come(&name, true, true);
            cache.come(&name, true, false);
            let late = format!("late:{step}");
            cache.come(&late, false, false);
            cache.give_deadline(&late);
        }
        if workload.passing {
            for number in 0..10 {
                let name = format!("passing:{step}:{number}");
                cache.come(&name, true, false);
                cache.go(&name);
            }
        }
        if workload.returning {
            let bound = 1 + random.below(10_000);
            let name = format!("rank:{}", random.below(bound));
            match cache.is_there(&name) {
                true => assert!(cache.server.has(cache.shard(&name), &name)),
                false => cache.come(&name, true, false),
            }
        }
        // The background's work, as items of the wheel whose keys are gone use memory, too.
        for engine in &mut cache.server.engines {
            engine.expire_slice(NOW);
            engine.deferred.settle();
        }
        // If few keys have deadlines, only these turn over.
        cache.turnover = cache.server.budget.evictable_keys() as usize;
        match cache.server.evicted() {
            0 => cache.young.clear(),
            _ => cache.check(&what),
        }
    }
    assert!(cache.server.evicted() > 1_000, "{what}");
    assert!(cache.turnover > 1_000, "{what}: {} keys", cache.turnover);
}

#[test]
fn no_key_goes_that_is_younger_than_a_hundredth_of_the_turnover() {
    let plain = Workload {
        volatile_percent: 90,
        ..Workload::default()
    };
    let rewrites = Workload {
        rewrites: true,
        ..plain
    };
    let deadlines = Workload {
        deadlines: true,
        ..plain
    };
    let all = Workload {
        rewrites: true,
        deadlines: true,
        passing: true,
        returning: true,
        ..plain
    };
    let returning = Workload {
        returning: true,
        ..rewrites
    };
    let few_volatile = Workload {
        volatile_percent: 30,
        ..all
    };
    for policy in BY_AGE {
        for workload in [plain, rewrites, deadlines, returning, all, few_volatile] {
            run(policy, 1, workload);
        }
        run(policy, 4, all);
    }
}
