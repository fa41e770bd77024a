//! Tests of `holders`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use super::*;
use crate::{Engine, Key, Now};
use basalt_core::base::hash::HashSeed;
use basalt_core::base::random::Random;

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };
const HOUR_MS: u64 = 3_600_000;

/// Connections whose user number is the digits before the last six.
#[derive(Default)]
struct Known(Mutex<HashSet<u64>>);

impl Connections for Known {
    fn user_of(&self, connection: u64) -> u64 {
        connection / 1_000_000
    }

    fn is_open(&self, connection: u64) -> bool {
        !self.0.lock().expect("no panic").contains(&connection)
    }

    fn may_load(&self, _: u64, _: usize, _: &[u8]) -> bool {
        true
    }
}

impl Known {
    fn close(&self, connections: impl Iterator<Item = u64>) {
        self.0.lock().expect("no panic").extend(connections);
    }
}

fn engine() -> (Engine, Arc<Known>) {
    let (mut engine, known) = (Engine::new(1, SEED, 1), Arc::<Known>::default());
    engine.waiters.connections = Some(Arc::clone(&known) as _);
    (engine, known)
}

fn give(engine: &mut Engine, connection: u64, name: &str, until_ms: u64) -> u64 {
    let key = Key::new(name.as_bytes(), SEED);
    let to = (0, connection);
    let token = engine
        .waiters
        .give_lease(to, &key, until_ms, &mut engine.random);
    assert!(engine.published().leases.in_force.get() <= LEASES_MAX as u64);
    token
}

fn fills(engine: &mut Engine, name: &str, token: u64) -> bool {
    let key = Key::new(name.as_bytes(), SEED);
    let now = Now { unix_ms: 1 };
    engine
        .waiters
        .fill_lease(0, &key, token, now, std::iter::empty())
}

/// Makes fifty loads on one connection, as a program does. Returns the number of values that were stored.
fn web_tier(engine: &mut Engine, connection: u64) -> usize {
    let names: Vec<String> = (0..50).map(|number| format!("page {number}")).collect();
    let tokens: Vec<u64> = names
        .iter()
        .map(|name| give(engine, connection, name, 5_000))
        .collect();
    let pages = names.iter().zip(tokens);
    pages
        .filter(|(name, token)| fills(engine, name, *token))
        .count()
}

#[test]
fn one_lease_each_of_many_connections_voids_none_of_a_program_on_one() {
    for (user, is_closed) in [(1, true), (1, false), (2, true), (2, false)] {
        let (mut engine, known) = engine();
        for number in 0..20_000 {
            let connection = user * 1_000_000 + number;
            give(&mut engine, connection, &format!("mine {number}"), HOUR_MS);
            if is_closed {
                known.close(std::iter::once(connection));
            }
        }
        let in_force = engine.published().leases.in_force.get();
        assert_eq!(in_force, LEASES_MAX as u64);
        for _ in 0..20 {
            assert_eq!(web_tier(&mut engine, 1_999_999), 50, "{user} {is_closed}");
        }
    }
}

#[test]
fn a_user_that_holds_most_pays_however_many_connections_it_has() {
    let (mut engine, _) = engine();
    let kept: Vec<(String, u64)> = (0..2_000)
        .map(|number| {
            let name = format!("kept {number}");
            let connection = 1_000_000 + number % 2;
            let token = give(&mut engine, connection, &name, HOUR_MS);
            (name, token)
        })
        .collect();
    for number in 0..30_000 {
        give(
            &mut engine,
            2_000_000 + number % 7_000,
            &format!("many {number}"),
            HOUR_MS,
        );
    }
    for (name, token) in kept {
        assert!(fills(&mut engine, &name, token), "{name}");
    }
}

#[test]
fn leases_of_closed_connections_go_first_and_those_that_would_end_soonest() {
    let (mut engine, known) = engine();
    let half = LEASES_MAX as u64 / 2;
    let mut tokens = Vec::new();
    for number in 0..2 * half {
        // The later connections are closed, and of their leases those given first expire last.
        let name = format!("lease {number}");
        tokens.push(give(
            &mut engine,
            1_000_000 + number,
            &name,
            HOUR_MS - number,
        ));
    }
    known.close((half..2 * half).map(|number| 1_000_000 + number));
    for number in 0..1_000 {
        give(&mut engine, 1_900_000, &format!("new {number}"), HOUR_MS);
    }
    for number in 0..2 * half {
        let name = format!("lease {number}");
        let is_good = fills(&mut engine, &name, tokens[number as usize]);
        assert_eq!(is_good, number < 2 * half - 1_000, "{number}");
    }
}

#[test]
fn what_is_counted_is_what_is_there_whatever_comes_and_goes() {
    let (mut engine, known) = engine();
    let mut random = Random::new(5);
    let mut is_trying = false;
    for step in 0..60_000_u64 {
        let name = format!("lease {}", random.next_u64() % 12_000);
        let connection = random.next_u64() % 3 * 1_000_000 + 1 + random.next_u64() % 40;
        match random.next_u64() % 20 {
            0 => engine.waiters.key_changed(0, name.as_bytes()),
            1 if !is_trying => {
                engine.begin_attempt();
                is_trying = true;
            }
            2 | 3 if is_trying => {
                engine.undo_attempt();
                is_trying = false;
            }
            4 if step % 40 == 0 => known.close(std::iter::once(connection)),
            _ => drop(give(&mut engine, connection, &name, 1_000 + step)),
        }
    }
    if is_trying {
        engine.commit_attempt();
    }
    let leases = &engine.waiters.leases;
    let (mut users, mut connections) = (HashMap::new(), HashMap::new());
    for lease in leases.by_key.values() {
        *users.entry(lease.user).or_insert(0) += 1;
        *connections.entry(lease.holder()).or_insert(0) += 1;
    }
    let holders = &leases.holders;
    let items = holders.users.values().chain(holders.connections.values());
    for queue in items {
        assert!(queue.items.len() <= 2 * queue.count + 2 * ENDED_MAX);
        let items = queue.items.iter();
        let in_force = items.filter(|item| is_in_force(&leases.by_key, **item));
        assert_eq!(in_force.count(), queue.count);
    }
    let count = |(of, queue): (&u64, &Queue)| (*of, queue.count);
    assert_eq!(
        holders.users.iter().map(count).collect::<HashMap<_, _>>(),
        users
    );
    let count = |(of, queue): (&Holder, &Queue)| (*of, queue.count);
    let counted = holders.connections.iter().map(count);
    assert_eq!(counted.collect::<HashMap<_, _>>(), connections);
    let sizes: BTreeSet<(usize, u64)> = users.iter().map(|(of, count)| (*count, *of)).collect();
    assert_eq!(holders.sizes, sizes);
    let large = connections
        .iter()
        .filter(|((_, of), count)| **count > SMALL && *of != CLOSED);
    let large = large.map(|((user, of), count)| (*user, *count, *of));
    assert_eq!(holders.large, large.collect());
    engine.waiters.void_leases(0);
    assert_eq!(engine.used_bytes(), 0);
}
