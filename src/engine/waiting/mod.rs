//! Blocked requests of this shard's keys, first come first served.
//!
//! Every change of a key with waiters makes the key ready; the thread with the shard in hand serves the waiters once
//! its command is over. What a waiter is, and how it is served, is decided in the layer above.
//!
//! Most waiters are looked at each in its turn, as one may find what another one did not. Those that wait *in turn* for
//! what one of them can have at a time, a lock, are not: where the first finds nothing, those behind it do not either.
//!
//! Invariants: no queue is empty; a waiter stands in the queue of a key once; without waiters no memory is taken, and
//! with few of them little, however many there were. To come and to leave take as long whatever stands in the queue.

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
use basalt_core::base::hash::Seed;
use basalt_core::base::maps;

/// Somebody who waits.
pub trait Waiter: Send + Sync {
    /// A number that no other waiter ever has; who comes to a key later has a larger one.
    fn id(&self) -> u64;

    /// Whether it still waits; who does not is dropped from the queues.
    fn is_waiting(&self) -> bool;

    /// For the layer that made it.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Brings waiters to all shards that they need.
pub trait Caller: Send + Sync {
    /// For callers that hold no shard.
    fn call(&self, waiter: Arc<dyn Waiter>);
}

/// What makes a key worth a look for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The key holds this type.
    pub data_type: DataType,
    /// Or it is gone, or holds another type.
    pub when_gone: bool,
    /// Of a client that waits for the key to be loaded: while another one loads it, the key is not worth a look unless
    /// it is there.
    pub when_loaded: bool,
    /// Nothing is there for this waiter where there was nothing for one before it that waits in turn.
    pub in_turn: bool,
}

impl Interest {
    /// Whether a key that holds this, or nothing, is worth a look.
    pub fn is_met_by(self, held: Held) -> bool {
        let is_awaited = held.data_type == Some(self.data_type) || self.when_gone;
        is_awaited && !(self.when_loaded && held.is_loading())
    }
}

/// What a key with waiters is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it holds, if it is there.
    pub data_type: Option<DataType>,
    /// Whether a client has a lease of it.
    pub is_leased: bool,
}

impl Held {
    /// Whether there is nothing yet for those who wait for the key to be loaded.
    pub fn is_loading(self) -> bool {
        self.data_type.is_none() && self.is_leased
    }
}

/// One place in a queue.
#[derive(Clone)]
pub struct Waiting {
    /// Who.
    pub waiter: Arc<dyn Waiter>,
    /// For what.
    pub interest: Interest,
}

/// Alarms that go off in one slice.
const ALARMS_PER_SLICE: usize = 256;

/// A database and a key in it.
pub type Place = (usize, Box<[u8]>);

/// Waiters of one key by their numbers, which are in the order of their coming, and how many of them wait for what.
#[derive(Default)]
struct Queue {
    waiters: BTreeMap<u64, Waiting>,
    /// How many of them also wait for the key to go.
    when_gone: usize,
    when_loaded: usize,
    /// How many of them wait in turn.
    in_turn: usize,
}

impl Queue {
    fn count(&mut self, interest: Interest, by: isize) {
        let step = |count: &mut usize, counts: bool| {
            *count = count.wrapping_add_signed(by * isize::from(counts));
        };
        step(&mut self.when_gone, interest.when_gone);
        step(&mut self.when_loaded, interest.when_loaded);
        step(&mut self.in_turn, interest.in_turn);
    }
}

/// See the module.
#[derive(Default)]
pub struct Waiters {
    queues: HashMap<Place, Queue>,
    /// Who loads keys that are missing.
    pub(super) leases: Leases,
    /// A change of a key is worth a look: some client waits, or has a lease.
    is_attentive: bool,
    /// When keys are looked at again.
    alarms: Alarms,
    ready: Vec<Place>,
    /// Who brings waiters to further shards; it does so once this one is let go.
    pub caller: Option<Arc<dyn Caller>>,
    /// Connections and users of leases; none in tests of one shard.
    pub connections: Option<Arc<dyn Connections>>,
    /// Somebody is to be brought.
    calls: bool,
    published: Option<Arc<Published>>,
}

impl Waiters {
    /// No waiters yet; how many keys somebody waits for will be published there.
    pub fn published_in(published: Arc<Published>, seed: Seed) -> Waiters {
        Waiters {
            leases: Leases::published_in(Arc::clone(&published), seed),
            published: Some(published),
            ..Waiters::default()
        }
    }

    /// Publishes the counts after a queue changed in which so many waited for its key to go, and to be loaded.
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

    /// Notes whether changes of keys are worth a look.
    pub(super) fn note_attention(&mut self) {
        self.is_attentive = !self.queues.is_empty() || !self.leases.is_empty();
    }

    /// Whether no client waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a waiter at the end of a key's queue, unless it stands there already.
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

    /// Takes a waiter out of a key's queue; true if it stood there.
    pub fn remove(&mut self, db: usize, key: &[u8], id: u64) -> bool {
        // The standard map wants a key of the type it holds.
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

    /// Goes over all waiters, with the places where they wait.
    pub fn each(&self, mut look: impl FnMut(&Place, &Waiting)) {
        for (place, queue) in &self.queues {
            queue
                .waiters
                .values()
                .for_each(|waiting| look(place, waiting));
        }
    }

    /// Whether all who wait for a key wait for it to be loaded.
    pub fn all_when_loaded(&self, place: &Place) -> bool {
        let queue = self.queues.get(place);
        queue.is_none_or(|queue| queue.when_loaded == queue.waiters.len())
    }

    /// Whether a client has a lease of a key.
    pub fn is_leased(&self, place: &Place, now: Now) -> bool {
        !self.leases.is_empty() && self.leases.are_in_force(place.0, &place.1, now)
    }

    /// The next waiter of a key behind the one with a number; the first one behind none.
    pub fn next(&self, place: &Place, behind: Option<u64>) -> Option<&Waiting> {
        let from = behind.map_or(Unbounded, Excluded);
        let mut rest = self.queues.get(place)?.waiters.range((from, Unbounded));
        rest.next().map(|(_, waiting)| waiting)
    }

    /// Whether all who wait for a key do so in turn.
    pub fn are_all_in_turn(&self, place: &Place) -> bool {
        let queue = self.queues.get(place);
        queue.is_none_or(|queue| queue.in_turn == queue.waiters.len())
    }

    /// How many wait for a key in turn.
    pub fn waiting_in_turn(&self, db: usize, key: &[u8]) -> usize {
        if self.queues.is_empty() {
            return 0;
        }
        let queue = self.queues.get(&(db, key.into()));
        queue.map_or(0, |queue| queue.in_turn)
    }

    /// Whether any of them is not gone.
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

    /// Has a key looked at again at a Unix time in milliseconds, if a client waits for it then.
    pub fn look_again(&mut self, db: usize, key: &[u8], at_ms: u64) {
        self.alarms.set(&Arc::new((db, key.into())), at_ms);
        if let Some(published) = &self.published {
            let next_ms = &published.next_deadline_ms;
            next_ms.set(next_ms.get().min(at_ms));
        }
    }

    /// Lets alarms go off whose time has come, some of them at a time; when the next one does.
    pub(super) fn go_off(&mut self, now_ms: u64) -> Option<u64> {
        for _ in 0..ALARMS_PER_SLICE {
            let Some(place) = self.alarms.pop_due(now_ms) else {
                break;
            };
            self.wake(place.0, &place.1);
        }
        self.alarms.next_ms()
    }

    /// A key changed, or a client wanted it gone: its lease ends, and the clients that wait for it are to be looked at.
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

    /// The clients that wait for a key are to be looked at, if any do: nothing that a client did has changed it.
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

    /// A whole database changed (FLUSHDB, SWAPDB).
    pub fn database_changed(&mut self, db: usize) {
        self.void_leases(db);
        for place in self.queues.keys() {
            if place.0 == db && !self.ready.contains(place) {
                self.ready.push(place.clone());
            }
        }
    }

    /// Somebody is to be brought to further shards once this one is let go, which should be soon.
    pub fn note_call(&mut self) {
        self.calls = true;
    }

    /// Whether that was noted since the last time.
    #[inline]
    pub fn take_call(&mut self) -> bool {
        self.calls && std::mem::take(&mut self.calls)
    }

    /// Whether some key is to be looked at.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Nothing changed after all.
    pub fn forget_ready(&mut self) {
        self.ready = Vec::new();
    }

    /// The keys to look at, in the order in which they became so.
    pub fn take_ready(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered(u64);

    impl Waiter for Numbered {
        fn id(&self) -> u64 {
            self.0
        }

        fn is_waiting(&self) -> bool {
            true
        }

        fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
            self
        }
    }

    fn waiting(id: u64) -> Waiting {
        Waiting {
            waiter: Arc::new(Numbered(id)),
            interest: Interest {
                data_type: DataType::List,
                when_gone: false,
                when_loaded: false,
                in_turn: false,
            },
        }
    }

    #[test]
    fn a_key_becomes_ready_once_and_only_when_somebody_waits_for_it() {
        let mut waiters = Waiters::default();
        waiters.key_changed(0, b"a");
        assert!(!waiters.has_ready(), "nobody waits");
        waiters.add(0, b"a", waiting(1));
        waiters.add(1, b"b", waiting(1));
        waiters.key_changed(0, b"b");
        assert!(!waiters.has_ready(), "another database");
        waiters.key_changed(1, b"b");
        waiters.key_changed(0, b"a");
        waiters.key_changed(1, b"b");
        let ready: Vec<Place> = waiters.take_ready();
        assert_eq!(ready, [(1, b"b"[..].into()), (0, b"a"[..].into())]);
        assert!(!waiters.has_ready());
        waiters.database_changed(1);
        assert_eq!(waiters.take_ready().len(), 1);
    }

    #[test]
    fn how_many_keys_somebody_waits_for_is_published() {
        let published = Arc::new(Published::new(1));
        let mut waiters = Waiters::published_in(Arc::clone(&published), Seed { k0: 1, k1: 2 });
        let shown = || {
            (
                published.waited_keys.get(),
                published.waited_keys_when_gone.get(),
            )
        };
        let mut anxious = waiting(3);
        anxious.interest.when_gone = true;
        waiters.add(0, b"a", waiting(1));
        waiters.add(0, b"a", anxious.clone());
        assert_eq!(shown(), (1, 1));
        waiters.add(0, b"b", anxious.clone());
        waiters.add(0, b"b", anxious);
        assert_eq!(shown(), (2, 2));
        waiters.remove(0, b"a", 3);
        assert_eq!(shown(), (2, 1));
        waiters.remove(0, b"b", 3);
        waiters.remove(0, b"b", 3);
        waiters.remove(0, b"a", 1);
        assert_eq!(shown(), (0, 0));
    }

    #[test]
    fn waiters_stand_in_the_order_in_which_they_came_and_once() {
        let mut waiters = Waiters::default();
        for id in [1, 3, 1, 4] {
            waiters.add(0, b"k", waiting(id));
        }
        let place: Place = (0, b"k"[..].into());
        let order = |waiters: &Waiters| -> Vec<u64> {
            let mut behind = None;
            let next = || {
                behind = Some(waiters.next(&place, behind)?.waiter.id());
                behind
            };
            std::iter::from_fn(next).collect()
        };
        assert_eq!(order(&waiters), [1, 3, 4]);
        assert!(waiters.remove(0, b"k", 1) && !waiters.remove(0, b"k", 1));
        assert_eq!(order(&waiters), [3, 4]);
        assert!(waiters.remove(0, b"k", 3) && waiters.remove(0, b"k", 4));
        assert!(waiters.is_empty());
    }

    #[test]
    fn those_who_wait_in_turn_are_told_from_the_others() {
        let mut waiters = Waiters::default();
        let place: Place = (0, b"k"[..].into());
        let mut patient = waiting(1);
        patient.interest.in_turn = true;
        waiters.add(0, b"k", patient);
        assert!(waiters.are_all_in_turn(&place));
        waiters.add(0, b"k", waiting(2));
        assert!(!waiters.are_all_in_turn(&place));
        let shown = |waiters: &Waiters| {
            let key = b"k";
            (
                waiters.waiting_in_turn(0, key),
                waiters.is_awaited_in_turn(0, key),
            )
        };
        assert_eq!(shown(&waiters), (1, true));
        waiters.remove(0, b"k", 1);
        assert_eq!(shown(&waiters), (0, false));
        assert!(!waiters.is_awaited_in_turn(0, b"other"));
    }

    #[test]
    fn a_million_wait_for_one_key_and_leave_in_any_order() {
        const COUNT: u64 = 1_000_000;
        let mut waiters = Waiters::default();
        let one: Arc<dyn Waiter> = Arc::new(Numbered(0));
        let interest = waiting(0).interest;
        for id in 0..COUNT {
            let waiter: Arc<dyn Waiter> = match id {
                0 => Arc::clone(&one),
                _ => Arc::new(Numbered(id)),
            };
            waiters.add(0, b"k", Waiting { waiter, interest });
        }
        // A factor without 2 and 5 visits each number once.
        for step in 0..COUNT {
            assert!(waiters.remove(0, b"k", step * 7_919 % COUNT));
        }
        assert!(waiters.is_empty());
    }
}
