//! Alarms of keys that must be examined again without a change: a lock that clients wait for expires, or the next
//! member of a queue is due.
//!
//! A handler that finds its key not ready yet sets the key's alarm and goes on waiting ([`Waiters::look_again`]).
//! When the alarm goes off, the key counts as changed, so that its waiters are served; no client polls, and no client
//! has a timer of its own.
//!
//! [`Waiters::look_again`]: super::waiting::Waiters::look_again
//!
//! Invariants: a key has at most one alarm, the last one that was set; without alarms no memory is used.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use basalt_core::base::maps;

/// A database and a key in it.
type DbKey = (usize, Box<[u8]>);

/// The alarms of a shard, see the module.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_place: HashMap<Arc<DbKey>, u64>,
    by_time: BTreeSet<(u64, Arc<DbKey>)>,
}

impl Alarms {
    pub(super) fn set(&mut self, place: &Arc<DbKey>, at_ms: u64) {
        if let Some(before) = self.by_place.insert(Arc::clone(place), at_ms) {
            self.by_time.remove(&(before, Arc::clone(place)));
        }
        self.by_time.insert((at_ms, Arc::clone(place)));
    }

    /// Removes the alarm of a key without waiters.
    pub(super) fn clear(&mut self, place: &DbKey) {
        if self.by_place.is_empty() {
            return;
        }
        if let Some((place, at_ms)) = self.by_place.remove_entry(place) {
            self.by_time.remove(&(at_ms, place));
            maps::shrink(&mut self.by_place);
        }
    }

    /// Removes and returns the database and key of the next alarm that is due by `now_ms`.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<Arc<DbKey>> {
        let (at_ms, _) = self.by_time.first()?;
        if *at_ms > now_ms {
            return None;
        }
        let (_, place) = self.by_time.pop_first()?;
        self.by_place.remove(&place);
        maps::shrink(&mut self.by_place);
        Some(place)
    }

    /// Returns the time of the next alarm, in Unix milliseconds.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ms, _)| *at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_alarm_of_a_key_counts_and_goes_off_once() {
        let mut alarms = Alarms::default();
        let [a, b] = [b"a", b"b"].map(|key| Arc::new((0, Box::from(&key[..]))));
        alarms.set(&a, 10);
        alarms.set(&b, 20);
        alarms.set(&a, 30);
        assert_eq!(alarms.next_ms(), Some(20));
        assert_eq!(alarms.pop_due(19), None);
        assert_eq!(alarms.pop_due(25), Some(b));
        assert_eq!((alarms.pop_due(25), alarms.next_ms()), (None, Some(30)));
        alarms.clear(&a);
        assert_eq!((alarms.pop_due(99), alarms.next_ms()), (None, None));
        assert_eq!(alarms.by_place.capacity(), 0);
    }
}
