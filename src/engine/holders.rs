//! Leases by user and connection, and the choice of the lease to end at the limit; see [`leases`](super::leases).
//!
//! Users share the capacity: the user with the most leases loses one. Within a user, leases of closed connections go
//! first, in the order in which they would expire. Then a connection that holds more than [`SMALL`] loses its oldest
//! one, the largest connection first. If none holds that many, the user's oldest lease goes: one connection that
//! serves a whole program is no worse off than many connections with one lease each, and a client can end the leases
//! of other users only by requesting the whole capacity while these load their keys.
//!
//! All counts are maintained incrementally. Queues keep the leases of a user and of a connection in the order in
//! which they were given. A queue may hold ended leases too, about as many as are in force; the sequence number of
//! each lease tells which are in force. Closed connections are found by scanning all connections that hold leases,
//! once per [`LEASES_PER_LOOK`] leases given at the limit, so that no connection has to report its end.

use std::collections::{BTreeSet, HashMap, VecDeque};

use basalt_core::base::maps;

/// Maximum number of leases of a shard in force at a time. Beyond that the user with the most loses one: ending a
/// lease is always safe.
pub(super) const LEASES_MAX: usize = 1 << 13;

/// A database and the hash of a key in it.
pub(super) type Leased = (usize, u64);

#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) token: u64,
    /// The number of the user that the lease was given to.
    pub(super) user: u64,
    /// The id of the connection that the lease was given to, or [`CLOSED`] once it was found closed.
    pub(super) connection: u64,
    /// Sequence number of the lease, see [`Holders`].
    pub(super) number: u64,
    /// The first time, in Unix milliseconds, at which it is expired.
    pub(super) until_ms: u64,
    /// The number of tag invalidations before the lease was given, see [`leases`](super::leases).
    pub(super) given_at: u64,
    /// The key, once a client waits for it.
    pub(super) waited: Option<Box<[u8]>>,
}

impl Lease {
    /// Returns the user and the connection that the lease was given to.
    pub(super) fn holder(&self) -> (u64, u64) {
        (self.user, self.connection)
    }
}

/// The connections and users of a server, as far as leases need to know them.
pub trait Connections: Send + Sync {
    /// Returns the number of a connection's user.
    fn user_of(&self, connection: u64) -> u64;

    /// True if the connection is still open.
    fn is_open(&self, connection: u64) -> bool;

    /// True if the connection's user may store loaded data under a key of a database.
    fn may_load(&self, connection: u64, db: usize, key: &[u8]) -> bool;
}

/// A connection with at most this many leases is not chosen before others when a lease must end.
pub(super) const SMALL: usize = 64;

/// Leases given at the limit between two scans for closed connections.
pub(super) const LEASES_PER_LOOK: usize = 512;

/// The connection id under which leases of closed connections are kept.
const CLOSED: u64 = 0;

/// Leases by their keys.
pub(super) type LeasesByKey = HashMap<Leased, Lease>;

/// A user's number and a connection's id.
type Holder = (u64, u64);

/// Leases in the order in which they were given, with their sequence numbers, and how many of them are in force.
#[derive(Default)]
struct Queue {
    count: usize,
    items: VecDeque<(u64, Leased)>,
}

/// Ended entries of a queue, beyond twice those in force, at which it is compacted.
const ENDED_MAX: usize = 16;

fn is_in_force(by_key: &LeasesByKey, (number, leased): (u64, Leased)) -> bool {
    let lease = by_key.get(&leased);
    lease.is_some_and(|lease| lease.number == number)
}

impl Queue {
    fn push(&mut self, number: u64, leased: Leased) {
        self.count += 1;
        self.items.push_back((number, leased));
    }

    /// Counts one ended lease. Returns whether the queue has leases in force.
    fn ended(&mut self, by_key: &LeasesByKey) -> bool {
        self.count -= 1;
        if self.items.len() > 2 * self.count + ENDED_MAX {
            self.items.retain(|item| is_in_force(by_key, *item));
            self.items.shrink_to(2 * self.count);
        }
        self.count > 0
    }

    /// Returns the oldest lease in force.
    fn oldest(&mut self, by_key: &LeasesByKey) -> Option<Leased> {
        while let Some(item) = self.items.front() {
            if is_in_force(by_key, *item) {
                return Some(item.1);
            }
            self.items.pop_front();
        }
        None
    }
}

/// The leases of a shard by holder, see the module.
#[derive(Default)]
pub(super) struct Holders {
    /// The sequence number of the latest lease.
    last: u64,
    users: HashMap<u64, Queue>,
    connections: HashMap<Holder, Queue>,
    /// Users by their number of leases.
    sizes: BTreeSet<(usize, u64)>,
    /// The connections that hold more than [`SMALL`] leases: the user, the count, and the connection.
    large: BTreeSet<(u64, usize, u64)>,
    /// Leases given at the limit since the last scan for closed connections.
    since_look: Option<usize>,
}

impl Holders {
    /// Adds a lease that was given to a client or restored by undo.
    pub(super) fn came(&mut self, leased: Leased, lease: &mut Lease) {
        self.last += 1;
        lease.number = self.last;
        let user = self.users.entry(lease.user).or_default();
        self.sizes.remove(&(user.count, lease.user));
        user.push(lease.number, leased);
        self.sizes.insert((user.count, lease.user));
        let connection = self.connections.entry(lease.holder()).or_default();
        let before = connection.count;
        connection.push(lease.number, leased);
        self.note_size(lease.holder(), before, before + 1);
    }

    /// Removes a lease that has ended and is no longer in `by_key`.
    pub(super) fn went(&mut self, lease: &Lease, by_key: &LeasesByKey) {
        if let Some(user) = self.users.get_mut(&lease.user) {
            self.sizes.remove(&(user.count, lease.user));
            match user.ended(by_key) {
                true => drop(self.sizes.insert((user.count, lease.user))),
                false => drop(self.users.remove(&lease.user)),
            }
            maps::shrink(&mut self.users);
        }
        if let Some(connection) = self.connections.get_mut(&lease.holder()) {
            let before = connection.count;
            if !connection.ended(by_key) {
                self.connections.remove(&lease.holder());
            }
            maps::shrink(&mut self.connections);
            self.note_size(lease.holder(), before, before - 1);
        }
        if self.users.is_empty() {
            *self = Holders::default();
        }
    }

    fn note_size(&mut self, (user, connection): Holder, before: usize, after: usize) {
        if before.max(after) > SMALL && connection != CLOSED {
            self.large.remove(&(user, before, connection));
            if after > SMALL {
                self.large.insert((user, after, connection));
            }
        }
    }

    /// Returns the lease to end, as the limit is reached and user `asker` is to get one more.
    pub(super) fn victim(
        &mut self,
        asker: u64,
        by_key: &mut LeasesByKey,
        connections: Option<&dyn Connections>,
    ) -> Option<Leased> {
        if let Some(connections) = connections {
            let given = self.since_look.map_or(LEASES_PER_LOOK, |given| given + 1);
            self.since_look = Some(given % LEASES_PER_LOOK);
            if given >= LEASES_PER_LOOK {
                self.look_for_closed(by_key, connections);
            }
        }
        let of_asker = self.users.get(&asker).map_or(0, |user| user.count) + 1;
        let &(most, user) = self.sizes.last()?;
        let user = if of_asker > most { asker } else { user };
        if let Some(closed) = self.connections.get_mut(&(user, CLOSED)) {
            return closed.oldest(by_key);
        }
        let of_user = (user, 0, 0)..=(user, usize::MAX, u64::MAX);
        let queue = match self.large.range(of_user).next_back() {
            Some(&(_, _, largest)) => self.connections.get_mut(&(user, largest)),
            None => self.users.get_mut(&user),
        };
        queue?.oldest(by_key)
    }

    /// Assigns the leases of closed connections to [`CLOSED`].
    #[cold]
    fn look_for_closed(&mut self, by_key: &mut LeasesByKey, connections: &dyn Connections) {
        let all = self.connections.keys().copied();
        let is_closed = |of: &Holder| of.1 != CLOSED && !connections.is_open(of.1);
        let closed: Vec<Holder> = all.filter(is_closed).collect();
        let mut found = Vec::new();
        for holder in closed {
            let Some(queue) = self.connections.remove(&holder) else {
                continue;
            };
            self.note_size(holder, queue.count, 0);
            for (number, leased) in queue.items {
                let lease = by_key.get_mut(&leased);
                if let Some(lease) = lease.filter(|lease| lease.number == number) {
                    lease.connection = CLOSED;
                    found.push((lease.until_ms, lease.user, number, leased));
                }
            }
        }
        maps::shrink(&mut self.connections);
        found.sort_unstable();
        for (_, user, number, leased) in found {
            let queue = self.connections.entry((user, CLOSED)).or_default();
            queue.push(number, leased);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
