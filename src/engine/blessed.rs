//! Blessed keys: keys that BLESS protects from eviction.
//!
//! The blessing belongs to a key, not to its value, so it outlives what replaces the value and ends when the key leaves
//! the table. It is kept beside the table ([`Db`](super::db::Db)), by the hash of the key, so that BLESS SCAN visits
//! only blessed keys. Eviction reads none of this: a blessed key has the access bit that held locks have
//! ([`order`](super::evict)).
//!
//! Blessings go into snapshots as aux fields and into the log as notes ([`note`](super::note)), both of which other
//! servers skip.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use basalt_core::alloc::account;

/// Reasons why a blessed key is counted among the keys that cannot be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pin {
    /// The key has no deadline.
    Plain,
    /// The key has a deadline.
    Volatile,
    /// The key is a held lock too, which is counted as such.
    HeldLock,
}

/// A key that is blessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlessedKey {
    /// The name of the key.
    pub key: Box<[u8]>,
    pin: Pin,
}

/// The blessed keys of a database by the hashes of their names.
pub type ByHash = BTreeMap<u64, SmallVec<[BlessedKey; 1]>>;

/// Low bits of a hash that a position of a walk leaves out, as a cursor has room for 48 bits.
const POSITION_SHIFT: u32 = 16;

/// Numbers of blessed keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlessedCounts {
    pub(super) all: u64,
    /// Keys that only their blessing protects.
    pub(super) pinned: u64,
    /// Keys that only their blessing protects and that have deadlines.
    pub(super) pinned_volatile: u64,
}

impl BlessedCounts {
    fn of(pin: Pin) -> BlessedCounts {
        BlessedCounts {
            all: 1,
            pinned: u64::from(pin != Pin::HeldLock),
            pinned_volatile: u64::from(pin == Pin::Volatile),
        }
    }

    fn add(&mut self, pin: Pin) {
        let one = BlessedCounts::of(pin);
        self.all += one.all;
        self.pinned += one.pinned;
        self.pinned_volatile += one.pinned_volatile;
    }

    fn subtract(&mut self, pin: Pin) {
        let one = BlessedCounts::of(pin);
        self.all -= one.all;
        self.pinned -= one.pinned;
        self.pinned_volatile -= one.pinned_volatile;
    }
}

/// A key and whether it was blessed before.
pub(super) type BlessingChange = (Box<[u8]>, bool);

/// The blessed keys of one database of a shard.
///
/// Invariant: each of them is in the table.
#[derive(Debug, Default)]
pub(super) struct Blessed {
    /// Shared with a snapshot that has not yet written them: the first change after its cut makes a copy.
    by_hash: Arc<ByHash>,
    counts: BlessedCounts,
    /// Changes since the current attempt began, for undo.
    before: Option<Vec<BlessingChange>>,
}

impl Blessed {
    pub(super) fn is_empty(&self) -> bool {
        self.counts.all == 0
    }

    pub(super) fn counts(&self) -> BlessedCounts {
        self.counts
    }

    pub(super) fn contains(&self, hash: u64, key: &[u8]) -> bool {
        let row = self.by_hash.get(&hash);
        row.is_some_and(|row| row.iter().any(|blessed| *blessed.key == *key))
    }

    /// Returns all blessed keys as they are now, for a snapshot.
    pub(super) fn at_cut(&self) -> Arc<ByHash> {
        Arc::clone(&self.by_hash)
    }

    /// Returns the keys for modification. What a snapshot still reads is freed on the snapshot's thread, so the shard
    /// must not be charged for the copy.
    fn own(&mut self) -> &mut ByHash {
        if Arc::get_mut(&mut self.by_hash).is_none() {
            account::uncharged(|| self.by_hash = Arc::new((*self.by_hash).clone()));
        }
        Arc::make_mut(&mut self.by_hash)
    }

    /// Blesses a key. Returns false if it was blessed.
    pub(super) fn put(&mut self, hash: u64, key: &[u8], pin: Pin) -> bool {
        if self.contains(hash, key) {
            return false;
        }
        let key = BlessedKey {
            key: key.into(),
            pin,
        };
        self.note(&key.key, false);
        self.own().entry(hash).or_default().push(key);
        self.counts.add(pin);
        true
    }

    /// Ends the blessing of a key. Returns false if it was not blessed.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        if !self.contains(hash, key) {
            return false;
        }
        let by_hash = self.own();
        let mut gone = None;
        if let Some(row) = by_hash.get_mut(&hash) {
            let at = row.iter().position(|blessed| *blessed.key == *key);
            gone = at.map(|at| row.swap_remove(at));
            if row.is_empty() {
                by_hash.remove(&hash);
            }
        }
        if let Some(blessed) = gone {
            self.counts.subtract(blessed.pin);
            self.note(key, true);
        }
        true
    }

    /// Sets the reason why a blessed key is counted. Returns false if the key is not blessed.
    pub(super) fn set_pin(&mut self, hash: u64, key: &[u8], pin: Pin) -> bool {
        let row = self.by_hash.get(&hash);
        let found = row.and_then(|row| row.iter().find(|blessed| *blessed.key == *key));
        let Some(before) = found.map(|blessed| blessed.pin) else {
            return false;
        };
        if before != pin {
            let row = self.own().get_mut(&hash).into_iter().flatten();
            row.filter(|blessed| *blessed.key == *key)
                .for_each(|blessed| blessed.pin = pin);
            self.counts.subtract(before);
            self.counts.add(pin);
        }
        true
    }

    /// Visits blessed keys in the order of their hashes, from a position on, until `count` keys were visited. Returns
    /// the position at which to continue; 0 at the end.
    pub(super) fn walk(&self, position: u64, count: usize, mut visit: impl FnMut(&[u8])) -> u64 {
        let mut visited = 0;
        let mut last = None;
        for (hash, row) in self.by_hash.range(position << POSITION_SHIFT..) {
            let at = hash >> POSITION_SHIFT;
            // Keys at the same position are visited together.
            if visited >= count && last != Some(at) {
                return at;
            }
            last = Some(at);
            visited += row.len();
            row.iter().for_each(|blessed| visit(&blessed.key));
        }
        0
    }

    fn note(&mut self, key: &[u8], was_blessed: bool) {
        if let Some(all) = &mut self.before {
            account::uncharged(|| all.push((key.into(), was_blessed)));
        }
    }

    /// Starts recording changes for undo.
    pub(super) fn keep_changes(&mut self) {
        self.before.get_or_insert_default();
    }

    /// Stops recording changes.
    pub(super) fn forget_changes(&mut self) {
        if self.before.is_some() {
            account::uncharged(|| self.before = None);
        }
    }

    /// Stops recording changes and returns them, oldest first.
    pub(super) fn take_changes(&mut self) -> Vec<BlessingChange> {
        self.before.take().unwrap_or_default()
    }

    /// Drops all blessings, as the database is emptied, maybe by the attempt whose changes are recorded.
    pub(super) fn forget(&mut self) {
        self.forget_changes();
        if !self.is_empty() {
            self.own();
            self.by_hash = Arc::default();
            self.counts = BlessedCounts::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(blessed: &Blessed, position: u64, count: usize) -> (Vec<Vec<u8>>, u64) {
        let mut keys = Vec::new();
        let next = blessed.walk(position, count, |key| keys.push(key.to_vec()));
        (keys, next)
    }

    #[test]
    fn keys_are_counted_by_what_protects_them() {
        let mut blessed = Blessed::default();
        assert!(blessed.put(7, b"a", Pin::Plain) && !blessed.put(7, b"a", Pin::Plain));
        assert!(blessed.put(7, b"b", Pin::Volatile));
        assert!(blessed.set_pin(7, b"a", Pin::HeldLock) && !blessed.set_pin(7, b"c", Pin::Plain));
        let counts = blessed.counts();
        let expected = BlessedCounts {
            all: 2,
            pinned: 1,
            pinned_volatile: 1,
        };
        assert_eq!(counts, expected);
        assert!(blessed.remove(7, b"b") && !blessed.remove(7, b"b") && !blessed.remove(8, b"a"));
        assert!(blessed.contains(7, b"a") && !blessed.contains(7, b"b"));
        assert_eq!((blessed.counts().all, blessed.counts().pinned), (1, 0));
    }

    #[test]
    fn a_walk_visits_all_keys_and_those_at_one_position_together() {
        let mut blessed = Blessed::default();
        let top = u64::MAX >> POSITION_SHIFT;
        for (hash, key) in [
            (0, b"a"),
            (5 << POSITION_SHIFT, b"b"),
            ((5 << POSITION_SHIFT) + 1, b"c"),
            (u64::MAX, b"d"),
        ] {
            blessed.put(hash, key, Pin::Plain);
        }
        assert_eq!(walked(&blessed, 0, 1), (vec![b"a".to_vec()], 5));
        assert_eq!(
            walked(&blessed, 5, 1),
            (vec![b"b".to_vec(), b"c".to_vec()], top)
        );
        assert_eq!(walked(&blessed, top, 1), (vec![b"d".to_vec()], 0));
        assert_eq!(walked(&blessed, 0, 9).0.len(), 4);
        assert_eq!(walked(&Blessed::default(), 0, 9), (vec![], 0));
    }

    #[test]
    fn a_cut_stays_as_it_was_and_changes_are_recorded() {
        let mut blessed = Blessed::default();
        blessed.put(1, b"a", Pin::Plain);
        let cut = blessed.at_cut();
        blessed.keep_changes();
        blessed.remove(1, b"a");
        blessed.put(2, b"b", Pin::Plain);
        assert!(cut.contains_key(&1) && !cut.contains_key(&2));
        let changes = blessed.take_changes();
        assert_eq!(
            changes,
            [
                (b"a".as_slice().into(), true),
                (b"b".as_slice().into(), false)
            ]
        );
    }
}
