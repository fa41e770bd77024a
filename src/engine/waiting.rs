//! Blocked requests of this shard's keys, first come first served.
//!
//! Every change of a key with waiters makes the key ready; the thread with the shard in hand serves the waiters once
//! its command is over. What a waiter is, and how it is served, is decided in the layer above.
//!
//! Invariants: no queue is empty; a waiter stands in the queue of a key once; without waiters no memory is taken, and
//! with few of them little, however many there were.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::published::Published;
use super::value::DataType;
use crate::base::maps;

/// Somebody who waits.
pub trait Waiter: Send + Sync {
    /// A number that no other waiter ever has.
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
}

impl Interest {
    /// Whether a key that holds this, or nothing, is worth a look.
    pub fn is_met_by(self, held: Option<DataType>) -> bool {
        held == Some(self.data_type) || self.when_gone
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

/// A database and a key in it.
pub type Place = (usize, Box<[u8]>);

/// See the module.
#[derive(Default)]
pub struct Waiters {
    queues: HashMap<Place, VecDeque<Waiting>>,
    ready: Vec<Place>,
    /// Who brings waiters to further shards; it does so once this one is let go.
    pub caller: Option<Arc<dyn Caller>>,
    /// Somebody is to be brought.
    calls: bool,
    published: Option<Arc<Published>>,
}

fn any_when_gone(queue: &VecDeque<Waiting>) -> bool {
    queue.iter().any(|waiting| waiting.interest.when_gone)
}

impl Waiters {
    /// No waiters yet; how many keys somebody waits for will be published there.
    pub fn published_in(published: Arc<Published>) -> Waiters {
        Waiters {
            published: Some(published),
            ..Waiters::default()
        }
    }

    /// Publishes the counts after a change of a queue in which somebody waited, or not, for its key to go.
    fn publish(&self, before: bool, after: bool) {
        if let Some(published) = &self.published {
            published.waited_keys.set(self.queues.len() as u64);
            let count = published.waited_keys_when_gone.get();
            let count = (count + u64::from(after)).saturating_sub(u64::from(before));
            published.waited_keys_when_gone.set(count);
        }
    }

    /// Whether no client waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a waiter at the end of a key's queue, unless it stands there already.
    pub fn add(&mut self, db: usize, key: &[u8], waiting: Waiting) {
        let queue = self.queues.entry((db, key.into()));
        let queue = queue.or_insert_with(|| VecDeque::with_capacity(1));
        let id = waiting.waiter.id();
        let before = any_when_gone(queue);
        if queue.iter().all(|other| other.waiter.id() != id) {
            queue.push_back(waiting);
        }
        let after = any_when_gone(queue);
        self.publish(before, after);
    }

    /// Takes a waiter out of a key's queue; true if it stood there.
    pub fn remove(&mut self, db: usize, key: &[u8], id: u64) -> bool {
        // The standard map wants a key of the type it holds.
        let place: Place = (db, key.into());
        let Some(queue) = self.queues.get_mut(&place) else {
            return false;
        };
        let before = queue.len();
        let before_when_gone = any_when_gone(queue);
        queue.retain(|waiting| waiting.waiter.id() != id);
        let found = queue.len() < before;
        let after_when_gone = any_when_gone(queue);
        if queue.is_empty() {
            self.queues.remove(&place);
            maps::shrink(&mut self.queues);
        }
        self.publish(before_when_gone, after_when_gone);
        found
    }

    /// Goes over all waiters, with the places where they wait.
    pub fn each(&self, mut look: impl FnMut(&Place, &Waiting)) {
        for (place, queue) in &self.queues {
            queue.iter().for_each(|waiting| look(place, waiting));
        }
    }

    /// The `index`th waiter of a key.
    pub fn nth(&self, place: &Place, index: usize) -> Option<&Waiting> {
        self.queues.get(place)?.get(index)
    }

    /// A key changed: the clients that wait for it are to be looked at.
    #[inline]
    pub fn key_changed(&mut self, db: usize, key: &[u8]) {
        if !self.queues.is_empty() {
            self.note(db, key);
        }
    }

    #[cold]
    fn note(&mut self, db: usize, key: &[u8]) {
        let place: Place = (db, key.into());
        if self.queues.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push(place);
        }
    }

    /// A whole database changed (FLUSHDB, SWAPDB).
    pub fn database_changed(&mut self, db: usize) {
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
        let mut waiters = Waiters::published_in(Arc::clone(&published));
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
        for id in [3, 1, 2, 1] {
            waiters.add(0, b"k", waiting(id));
        }
        let place: Place = (0, b"k"[..].into());
        let order = |waiters: &Waiters| -> Vec<u64> {
            (0..)
                .map_while(|index| waiters.nth(&place, index))
                .map(|waiting| waiting.waiter.id())
                .collect()
        };
        assert_eq!(order(&waiters), [3, 1, 2]);
        assert!(waiters.remove(0, b"k", 1) && !waiters.remove(0, b"k", 1));
        assert_eq!(order(&waiters), [3, 2]);
        assert!(waiters.remove(0, b"k", 3) && waiters.remove(0, b"k", 2));
        assert!(waiters.is_empty());
    }
}
