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
mod tests;
