//! Blocked requests for this shard's keys, first come first served.
//!
//! Every change of a key with waiters makes the key ready; the thread that holds the shard serves the waiters after
//! its command. The layer above defines waiters and how they are served.
//!
//! Normally every waiter is tried, since a later one may succeed where an earlier one failed. Waiters for something
//! exclusive, such as a lock, are marked `in_turn`: once one of them cannot be served, no later one is tried.
//!
//! Invariants: queues are never empty; a waiter is at most once in the queue of a key; memory shrinks as waiters leave,
//! to none without waiters; the time to join or leave does not depend on the length of the queue.

mod loading;

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::Now;
use super::alarms::Alarms;
use super::holders::Connections;
use super::leases::Leases;
use super::published::Published;
use super::value::DataType;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::maps;

/// A blocked request.
pub trait Waiter: Send + Sync {
    /// Returns a number that no other waiter ever has; later waiters have larger ones.
    fn id(&self) -> u64;

    /// True if the request is still blocked; otherwise the waiter is dropped from the queues.
    fn is_waiting(&self) -> bool;

    /// Returns the waiter as its concrete type, for the layer that made it.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Sends waiters to all shards whose keys they wait for.
pub trait Dispatcher: Send + Sync {
    /// Sends a waiter to its shards; the calling thread has no shard locked.
    fn call(&self, waiter: Arc<dyn Waiter>);
}

/// The condition under which a key is examined for a waiter; any of `data_type` and `when_gone` suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitCondition {
    /// The key holds a value of this type.
    pub data_type: DataType,
    /// True if the key is also examined once it is deleted, or holds another type.
    pub when_gone: bool,
    /// The client waits for the key to be loaded: while another client loads it, the key is examined only if it
    /// exists.
    pub when_loaded: bool,
    /// True if this waiter cannot be served either once an earlier waiter in turn could not be served.
    pub in_turn: bool,
}

impl WaitCondition {
    /// True if a key in this state should be examined.
    pub fn is_met_by(self, held: Held) -> bool {
        let is_awaited = held.data_type == Some(self.data_type) || self.when_gone;
        is_awaited && !(self.when_loaded && held.is_loading())
    }
}

/// The observed state of a key with waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The type of its value, if it exists.
    pub data_type: Option<DataType>,
    /// True if a client has a lease of the key.
    pub is_leased: bool,
}

impl Held {
    /// True if the key is still being loaded: it does not exist and a client has a lease of it.
    pub fn is_loading(self) -> bool {
        self.data_type.is_none() && self.is_leased
    }
}

/// An entry in a queue.
#[derive(Clone)]
pub struct Waiting {
    /// The request that waits.
    pub waiter: Arc<dyn Waiter>,
    /// The condition that it waits for.
    pub interest: WaitCondition,
}

/// Alarms handled in one slice.
const ALARMS_PER_SLICE: usize = 256;

/// A database and a key in it.
pub type Place = (usize, Box<[u8]>);

/// Waiters of one key, by number, which is their order of arrival, and the number of waiters for each kind of change.
#[derive(Default)]
struct KeyWaitQueue {
    waiters: BTreeMap<u64, Waiting>,
    /// Number of waiters that also wait for the key to be deleted.
    when_gone: usize,
    when_loaded: usize,
    /// Number of waiters that are served in turn.
    in_turn: usize,
}

impl KeyWaitQueue {
    fn count(&mut self, interest: WaitCondition, by: isize) {
        let step = |count: &mut usize, counts: bool| {
            *count = count.wrapping_add_signed(by * isize::from(counts));
        };
        step(&mut self.when_gone, interest.when_gone);
        step(&mut self.when_loaded, interest.when_loaded);
        step(&mut self.in_turn, interest.in_turn);
    }
}

/// The waiters of a shard, see the module.
#[derive(Default)]
pub struct Waiters {
    queues: HashMap<Place, KeyWaitQueue>,
    /// Leases for loading missing keys.
    pub(super) leases: Leases,
    /// True if changes of keys must be examined: some client waits, or has a lease.
    is_attentive: bool,
    /// The alarms of keys to examine again at a time.
    alarms: Alarms,
    ready: Vec<Place>,
    /// Sends waiters to the shards of their other keys, once this shard is released.
    pub caller: Option<Arc<dyn Dispatcher>>,
    /// Connections and users, as leases need them; None in tests of one shard.
    pub connections: Option<Arc<dyn Connections>>,
    /// True if a waiter must be sent to the shards of its other keys.
    calls: bool,
    published: Option<Arc<Published>>,
}

impl Waiters {
    /// Creates an empty set of waiters that publishes the number of awaited keys in `published`.
    pub fn published_in(published: Arc<Published>, seed: HashSeed) -> Waiters {
        Waiters {
            leases: Leases::published_in(Arc::clone(&published), seed),
            published: Some(published),
            ..Waiters::default()
        }
    }

    /// Publishes the counts after a change of a queue; `before` and `after` are the numbers of its waiters for
    /// deletion and for loading.
    fn publish(&self, before: (usize, usize), after: (usize, usize)) {
        if let Some(published) = &self.published {
            published.waited_keys.set(self.queues.len() as u64);
            let (was_any, is_any) = (u64::from(before.0 > 0), u64::from(after.0 > 0));
            let count = published.waited_keys_when_gone.get() + is_any;
            published
                .waited_keys_when_gone
                .set(count.saturating_sub(was_any));
            let count = published.leases.waiting.get() + after.1 as u64;
            published
                .leases
                .waiting
                .set(count.saturating_sub(before.1 as u64));
        }
    }

    /// Updates whether changes of keys must be examined.
    pub(super) fn note_attention(&mut self) {
        self.is_attentive = !self.queues.is_empty() || !self.leases.is_empty();
    }

    /// True if no client waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Adds a waiter to the end of a key's queue, unless it is in the queue already.
    pub fn add(&mut self, db: usize, key: &[u8], waiting: Waiting) {
        let queue = self.queues.entry((db, key.into())).or_default();
        let before = (queue.when_gone, queue.when_loaded);
        let (id, interest) = (waiting.waiter.id(), waiting.interest);
        if let Entry::Vacant(place) = queue.waiters.entry(id) {
            place.insert(waiting);
            queue.count(interest, 1);
        }
        let after = (queue.when_gone, queue.when_loaded);
        if interest.when_loaded {
            self.leases.note_waited(db, key);
        }
        self.publish(before, after);
        self.note_attention();
    }

    /// Removes a waiter from a key's queue. Returns true if it was in the queue.
    pub fn remove(&mut self, db: usize, key: &[u8], id: u64) -> bool {
        // The standard map requires a key of the stored type.
        let place: Place = (db, key.into());
        let Some(queue) = self.queues.get_mut(&place) else {
            return false;
        };
        let before = (queue.when_gone, queue.when_loaded);
        let found = queue.waiters.remove(&id);
        if let Some(waiting) = &found {
            queue.count(waiting.interest, -1);
        }
        let after = (queue.when_gone, queue.when_loaded);
        if queue.waiters.is_empty() {
            self.queues.remove(&place);
            maps::shrink(&mut self.queues);
            self.alarms.clear(&place);
        }
        self.publish(before, after);
        self.note_attention();
        found.is_some()
    }

    /// Visits all waiters and the keys that they wait for.
    pub fn each(&self, mut look: impl FnMut(&Place, &Waiting)) {
        for (place, queue) in &self.queues {
            queue
                .waiters
                .values()
                .for_each(|waiting| look(place, waiting));
        }
    }

    /// True if all waiters of a key wait for it to be loaded.
    pub fn all_when_loaded(&self, place: &Place) -> bool {
        let queue = self.queues.get(place);
        queue.is_none_or(|queue| queue.when_loaded == queue.waiters.len())
    }

    /// True if a client has a lease of a key.
    pub fn is_leased(&self, place: &Place, now: Now) -> bool {
        !self.leases.is_empty() && self.leases.are_in_force(place.0, &place.1, now)
    }

    /// Returns the first waiter of a key whose number is larger than `behind`; the first of all if that is None.
    pub fn next(&self, place: &Place, behind: Option<u64>) -> Option<&Waiting> {
        let from = behind.map_or(Unbounded, Excluded);
        let mut rest = self.queues.get(place)?.waiters.range((from, Unbounded));
        rest.next().map(|(_, waiting)| waiting)
    }

    /// True if all waiters of a key wait in turn.
    pub fn are_all_in_turn(&self, place: &Place) -> bool {
        let queue = self.queues.get(place);
        queue.is_none_or(|queue| queue.in_turn == queue.waiters.len())
    }

    /// Returns the number of waiters in turn of a key.
    pub fn waiting_in_turn(&self, db: usize, key: &[u8]) -> usize {
        if self.queues.is_empty() {
            return 0;
        }
        let queue = self.queues.get(&(db, key.into()));
        queue.map_or(0, |queue| queue.in_turn)
    }

    /// True if any waiter in turn of a key still waits.
    pub fn is_awaited_in_turn(&self, db: usize, key: &[u8]) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let Some(queue) = self.queues.get(&(db, key.into())) else {
            return false;
        };
        let waits = |waiting: &Waiting| waiting.interest.in_turn && waiting.waiter.is_waiting();
        queue.waiters.values().any(waits)
    }

    /// Schedules an alarm at which a key is examined again, at a Unix time in milliseconds, if a client waits for the
    /// key then.
    pub fn look_again(&mut self, db: usize, key: &[u8], at_ms: u64) {
        self.alarms.set(&Arc::new((db, key.into())), at_ms);
        if let Some(published) = &self.published {
            let next_ms = &published.next_deadline_ms;
            next_ms.set(next_ms.get().min(at_ms));
        }
    }

    /// Handles some of the alarms that are due. Returns the time of the next one.
    pub(super) fn go_off(&mut self, now_ms: u64) -> Option<u64> {
        for _ in 0..ALARMS_PER_SLICE {
            let Some(place) = self.alarms.pop_due(now_ms) else {
                break;
            };
            self.wake(place.0, &place.1);
        }
        self.alarms.next_ms()
    }

    /// Handles a change of a key, or a client's attempt to delete it: the key's lease ends, and its waiters will be
    /// examined.
    #[inline]
    pub fn key_changed(&mut self, db: usize, key: &[u8]) {
        if self.is_attentive {
            self.note(db, key);
        }
    }

    #[cold]
    fn note(&mut self, db: usize, key: &[u8]) {
        if !self.leases.is_empty() {
            self.leases.void(db, key);
            self.note_attention();
        }
        self.wake(db, key);
    }

    /// Schedules an examination of a key for its waiters, without a change of the key. Returns true if there are any.
    pub fn wake(&mut self, db: usize, key: &[u8]) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let place: Place = (db, key.into());
        let is_waited = self.queues.contains_key(&place);
        if is_waited && !self.ready.contains(&place) {
            self.ready.push(place);
        }
        is_waited
    }

    /// Handles a change of a whole database (FLUSHDB, SWAPDB): all its waiters will be examined.
    pub fn database_changed(&mut self, db: usize) {
        self.void_leases(db);
        for place in self.queues.keys() {
            if place.0 == db && !self.ready.contains(place) {
                self.ready.push(place.clone());
            }
        }
    }

    /// Records that a waiter is to be sent to further shards once this shard is released, which should be soon.
    pub fn note_call(&mut self) {
        self.calls = true;
    }

    /// True if [`Waiters::note_call`] was called since the last call of this method.
    #[inline]
    pub fn take_call(&mut self) -> bool {
        self.calls && std::mem::take(&mut self.calls)
    }

    /// True if some key is to be examined.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Drops the keys to be examined, as nothing changed after all.
    pub fn forget_ready(&mut self) {
        self.ready = Vec::new();
    }

    /// Returns the keys to examine, in the order in which they became ready.
    pub fn take_ready(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests;
