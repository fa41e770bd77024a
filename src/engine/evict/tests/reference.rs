//! A plain S3-FIFO over a map, compared key for key with the implementation on the table.
//!
//! The reference gets the same hashes. The order in which the clock hand goes round is determined by the table: the
//! reference gets the keys ahead of the hand, and returns the key to evict and how far the hand moves.

use std::collections::{HashMap, VecDeque};

use super::super::order::{EvictionParams, size_class};
use super::*;
use basalt_core::base::random::Random;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    uses: u8,
    is_small: bool,
    is_volatile: bool,
    class: u8,
}

impl State {
    fn worth(self) -> i32 {
        i32::from(self.uses) - i32::from(self.class)
    }
}

struct Reference {
    rules: (bool, usize, bool),
    keys: HashMap<u64, State>,
    queue: VecDeque<u64>,
    /// Fingerprints of evicted keys, the newest first, 0 for a free slot.
    ghosts: Vec<[u8; 8]>,
}

impl Reference {
    fn ghost_place(&self, hash: u64) -> (usize, u8) {
        let at = ((hash >> 32) * self.ghosts.len() as u64) >> 32;
        (at as usize, ((hash & 0xffff_ffff) % 255 + 1) as u8)
    }

    fn come(&mut self, hash: u64, is_volatile: bool, class: u8) {
        let (volatile_only, _, by_size) = self.rules;
        let mut state = State {
            is_volatile,
            class: if by_size { class } else { 0 },
            ..State::default()
        };
        if !volatile_only || is_volatile {
            self.enter(hash, &mut state);
        }
        self.keys.insert(hash, state);
        self.settle();
    }

    fn enter(&mut self, hash: u64, state: &mut State) {
        if !self.ghosts.is_empty() {
            let (at, mark) = self.ghost_place(hash);
            let known = self.ghosts[at].iter().position(|known| *known == mark);
            if let Some(known) = known {
                self.ghosts[at].copy_within(known + 1.., known);
                self.ghosts[at][7] = 0;
                state.uses = state.uses.max(1);
            }
        }
        state.is_small = true;
        self.queue.push_back(hash);
    }

    fn go(&mut self, hash: u64) {
        let state = self.keys.remove(&hash).expect("in both");
        if state.is_small {
            self.queue.retain(|other| *other != hash);
        }
    }

    /// Replaces the value as RENAME and similar commands do.
    fn renew(&mut self, hash: u64) {
        let mut state = self.keys[&hash];
        self.go(hash);
        state.is_small = false;
        if !self.rules.0 || state.is_volatile {
            self.enter(hash, &mut state);
        }
        self.keys.insert(hash, state);
        self.settle();
    }

    fn mark_volatile(&mut self, hash: u64, is_volatile: bool) {
        let mut state = self.keys[&hash];
        if state.is_volatile == is_volatile {
            return;
        }
        let is_new = self.rules.0 && is_volatile && !state.is_small;
        state.is_volatile = is_volatile;
        if is_new {
            self.enter(hash, &mut state);
        }
        self.keys.insert(hash, state);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..2 {
            if self.queue.len() <= self.keys.len() / 2 + 256 {
                break;
            }
            let oldest = self.queue.pop_front().expect("long");
            self.keys.get_mut(&oldest).expect("there").is_small = false;
        }
    }

    fn fit_ghosts(&mut self) {
        let wanted = self.keys.len() * 50 / 100;
        let has = self.ghosts.len() * 8;
        if wanted.abs_diff(has) > has / 4 + 8 {
            let count = wanted.div_ceil(8).max(1);
            let old = std::mem::take(&mut self.ghosts);
            self.ghosts = (0..count)
                .map(|at| match old.len() {
                    0 => [0; 8],
                    len => {
                        let (first, last) = (at * len / count, ((at + 1) * len - 1) / count);
                        let mut bucket = old[first];
                        if first != last {
                            bucket[4..].copy_from_slice(&old[last][..4]);
                        }
                        bucket
                    }
                })
                .collect();
        }
    }

    fn look_at_queue(&mut self, is_due: impl Fn(usize) -> bool) -> Option<u64> {
        for _ in 0..64 {
            if !is_due(self.queue.len()) {
                return None;
            }
            let hash = self.queue.pop_front()?;
            let state = self.keys.get_mut(&hash).expect("there");
            state.is_small = false;
            if self.rules.0 && !state.is_volatile {
                continue;
            }
            if state.worth() > 0 {
                state.uses = 0;
            } else {
                self.note_ghost(hash);
                return Some(hash);
            }
        }
        None
    }

    fn note_ghost(&mut self, hash: u64) {
        let (at, mark) = self.ghost_place(hash);
        self.ghosts[at].copy_within(..7, 1);
        self.ghosts[at][0] = mark;
    }

    fn oldest(&mut self) -> Option<u64> {
        for _ in 0..64 {
            let hash = self.queue.pop_front()?;
            let state = self.keys.get_mut(&hash).expect("there");
            state.is_small = false;
            if !self.rules.0 || state.is_volatile {
                self.note_ghost(hash);
                return Some(hash);
            }
        }
        None
    }

    /// Returns the key to evict, and how many of the keys `ahead` the hand has passed.
    fn choose(&mut self, ahead: &[u64]) -> (Option<u64>, usize) {
        self.fit_ghosts();
        let (volatile_only, share, _) = self.rules;
        let candidates = self
            .keys
            .values()
            .filter(|state| !volatile_only || state.is_volatile)
            .count();
        let small_max = (candidates * share / 100).max(1);
        let found = self.look_at_queue(|len| len > small_max || len >= candidates);
        if found.is_some() {
            return (found, 0);
        }
        let mut at = 0;
        for _ in 0..4 {
            let mut least: Option<(i32, u64)> = None;
            for _ in 0..256 {
                let hash = ahead[at % ahead.len()];
                at += 1;
                let state = self.keys.get_mut(&hash).expect("in the table");
                if state.is_small || volatile_only && !state.is_volatile {
                    continue;
                }
                let worth = state.worth();
                if worth <= 0 {
                    return (Some(hash), at);
                }
                if least.is_none_or(|(least, _)| worth < least) {
                    least = Some((worth, hash));
                }
                state.uses -= 1;
            }
            if let Some((_, hash)) = least {
                return (Some(hash), at);
            }
        }
        (self.oldest(), at)
    }
}

/// Number of commands in each comparison.
const STEPS: u64 = 4_000;

/// Returns the hashes of all keys, starting at the hand.
fn ahead(db: &mut Db) -> Vec<u64> {
    let (cursor, len) = (db.order.as_ref().expect("ordered").hand(), db.len());
    let mut places = Vec::new();
    db.table.sweep(cursor, len, |place, bits| {
        places.push(place);
        (bits, false)
    });
    let hash = |place: &EntrySlot| SEED.hash(db.at(*place).key());
    places.iter().map(hash).collect()
}

fn compare(policy: Policy, by_size: bool, capacity: usize, seed: u64) {
    let published = Arc::new(Published::new(1));
    let mut db = Db::new(0, SEED, Arc::clone(&published), NOW.unix_ms);
    let rules = EvictionParams::of(policy, by_size).expect("a policy of order");
    db.set_order(Some(rules));
    let mut reference = Reference {
        rules: (rules.volatile_only, rules.share_percent, by_size),
        keys: HashMap::new(),
        queue: VecDeque::new(),
        ghosts: Vec::new(),
    };
    let mut random = Random::new(seed);
    let mut evictions = 0;
    for step in 0..STEPS {
        // Small numbers are accessed more often, and the popular range moves.
        let rank = random.below(random_bound(&mut Random::new(seed ^ step)));
        let name = format!("key:{}", rank + step / (STEPS / 3) * 300);
        let key = Key::new(name.as_bytes(), SEED);
        match db.find(&key) {
            Some(place) if random.below(20) == 0 => {
                db.charged(|db| drop(db.delete(place)));
                reference.go(key.hash);
            }
            Some(place) if random.below(30) == 0 => {
                let at_ms = (random.below(2) == 0).then_some(NOW.unix_ms + 1_000_000);
                db.charged(|db| db.set_deadline(place, key.hash, at_ms));
                reference.mark_volatile(key.hash, at_ms.is_some());
            }
            Some(place) if random.below(40) == 0 => {
                db.charged(|db| db.renew(place, key.hash));
                reference.renew(key.hash);
            }
            Some(_) => {
                let found = db.table.find_mut(key.hash, key.bytes);
                found.expect("just found").touch();
                let state = reference.keys.get_mut(&key.hash).expect("in both");
                state.uses = (state.uses + 1).min(3);
            }
            None => {
                let at_ms = (random.below(3) > 0).then_some(NOW.unix_ms + 1_000_000);
                let value = vec![b'v'; if rank.is_multiple_of(9) { 3_000 } else { 30 }];
                let entry = string_entry(key.bytes, &value, at_ms);
                let bytes = crate::value::object::entry_bytes(entry.view());
                let class = size_class(bytes, published.used_bytes(), db.len());
                db.charged(|db| {
                    db.insert(key.hash, entry);
                });
                reference.come(key.hash, at_ms.is_some(), class);
                while db.len() > capacity {
                    let ahead_before = ahead(&mut db);
                    let (expected, passed) = reference.choose(&ahead_before);
                    let chosen = db.charged(|db| db.choose_by_order(&published));
                    let hash = chosen.map(|place| SEED.hash(db.at(place).key()));
                    assert_eq!(hash, expected, "{policy:?} {by_size} at step {step}");
                    if evictions % 8 == 0 {
                        let ahead_now = ahead(&mut db);
                        assert_eq!(ahead_now[0], ahead_before[passed % ahead_before.len()]);
                    }
                    let Some(place) = chosen else { break };
                    db.charged(|db| drop(db.delete(place)));
                    reference.go(expected.expect("the same"));
                    evictions += 1;
                }
            }
        }
    }
    assert!(evictions > 200, "{policy:?}: {evictions}");
    assert_eq!(db.len(), reference.keys.len());
    // Uses and positions agree in every slot.
    for hash in ahead(&mut db) {
        let place = db
            .table
            .find_by_hash(hash, |entry| SEED.hash(entry.key()) == hash)
            .expect("there");
        let (bits, state) = (db.table.bits(place), reference.keys[&hash]);
        let expected = state.uses
            | u8::from(state.is_small) << 2
            | u8::from(state.is_volatile) << 3
            | state.class << 4;
        assert_eq!(bits, expected);
    }
}

fn random_bound(random: &mut Random) -> u64 {
    [30, 200, 1_000, 4_000][random.index(4)]
}

#[test]
fn the_table_evicts_key_for_key_what_the_reference_evicts() {
    let policies = [
        Policy::AllkeysLru,
        Policy::AllkeysLfu,
        Policy::VolatileLru,
        Policy::VolatileLfu,
    ];
    for (number, policy) in policies.into_iter().enumerate() {
        for (by_size, capacity) in [(false, 500), (true, 500), (false, 60)] {
            compare(policy, by_size, capacity, number as u64 + 1);
        }
    }
}
