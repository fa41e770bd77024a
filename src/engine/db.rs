//! One database of one shard: the table of keys and the wheel of deadlines.

use std::sync::Arc;

use super::Key;
use super::board::ShardBoard;
use super::told::Told;
use super::value::Object;
use crate::base::hash::Seed;
use crate::structures::account;
use crate::structures::entry::{Entry, EntryRef};
use crate::structures::table::{Place, Table};
use crate::structures::wheel::Wheel;

/// See the module. Mutations charge what they allocate to the shard.
pub struct Db {
    index: usize,
    pub(super) table: Table<Entry<Object>>,
    pub(super) wheel: Wheel,
    sweep: Option<Sweep>,
    seed: Seed,
    volatile_count: usize,
    pub(super) told: Told,
    board: Arc<ShardBoard>,
}

/// A wheel under way that will replace one that is full of items whose keys are gone.
///
/// The wheel cancels nothing: deleting a key leaves its item until it fires. A workload that sets keys with long
/// deadlines and deletes them soon would pile items up, so the wheel is made anew from the keys when it holds
/// several times more items than there are deadlines, some keys at a time.
struct Sweep {
    wheel: Wheel,
    cursor: u64,
}

/// Items for each deadline, and beside that, before a sweep begins.
const STALE_ITEMS_RATIO_MAX: usize = 4;
/// See above.
const STALE_ITEMS_MAX: usize = 4096;
/// Keys that a sweep looks at in one slice.
const SWEEP_KEYS: usize = 256;

impl Db {
    pub(super) fn new(index: usize, seed: Seed, board: Arc<ShardBoard>, now_ms: u64) -> Db {
        let directory = Arc::clone(&board.dbs[index].directory);
        Db {
            index,
            table: Table::with_board(seed, directory),
            wheel: Wheel::new(now_ms),
            sweep: None,
            seed,
            volatile_count: 0,
            told: Told::default(),
            board,
        }
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys with a deadline.
    pub fn volatile_count(&self) -> usize {
        self.volatile_count
    }

    /// The table, for those that walk it.
    pub fn table(&self) -> &Table<Entry<Object>> {
        &self.table
    }

    /// Fetches into the cache what may be the entry of a key with this hash; reads nothing of it.
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch_matches(hash);
    }

    pub(super) fn find(&self, key: &Key<'_>) -> Option<Place> {
        self.table.find(key.hash, key.bytes)
    }

    pub(super) fn at(&self, place: Place) -> EntryRef<'_, Object> {
        self.table.at(place)
    }

    /// Runs a change and charges what it allocated or freed.
    pub(super) fn charged<R>(&mut self, change: impl FnOnce(&mut Db) -> R) -> R {
        let before = account::charged_bytes();
        let result = change(self);
        self.board.add_used(account::charged_bytes() - before);
        result
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Entry<Object>) -> Place {
        let deadline = entry.view().deadline();
        let place = self.table.insert_new(hash, entry);
        if let Some(deadline_ms) = deadline {
            self.volatile_count += 1;
            self.arm(hash, deadline_ms);
        }
        self.publish();
        place
    }

    pub(super) fn replace(
        &mut self,
        place: Place,
        hash: u64,
        entry: Entry<Object>,
    ) -> Entry<Object> {
        let deadline = entry.view().deadline();
        let old = self.table.replace(place, entry);
        let before = old.view().deadline();
        if before.is_none() && deadline.is_none() {
            return old;
        }
        self.volatile_count -= usize::from(before.is_some());
        if let Some(deadline_ms) = deadline {
            self.volatile_count += 1;
            // SET … EX over and over must not pile up items: the old one fires first and arms itself again.
            if before.is_none_or(|old_ms| deadline_ms < old_ms) {
                self.arm(hash, deadline_ms);
            }
        }
        self.publish();
        old
    }

    pub(super) fn remove(&mut self, place: Place) -> Entry<Object> {
        let old = self.table.remove(place);
        if !self.told.is_empty() {
            self.told.forget(self.seed.hash(old.view().key()));
        }
        self.volatile_count -= usize::from(old.view().deadline().is_some());
        self.publish();
        old
    }

    pub(super) fn set_deadline(&mut self, place: Place, hash: u64, deadline: Option<u64>) {
        let before = self.table.at(place).deadline();
        if before == deadline {
            return;
        }
        self.table.edit(place).set_deadline(deadline);
        self.volatile_count -= usize::from(before.is_some());
        if let Some(deadline_ms) = deadline {
            self.volatile_count += 1;
            // A later deadline finds the old item when it fires and arms itself again then.
            if before.is_none_or(|old| deadline_ms < old) {
                self.arm(hash, deadline_ms);
            }
        }
        self.publish();
    }

    fn arm(&mut self, hash: u64, deadline_ms: u64) {
        self.arm_item(deadline_ms, hash);
        if self.is_stale() {
            // The background looks at shards whose next deadline has come.
            self.board.next_deadline_ms.set(0);
        }
        if deadline_ms < self.board.next_deadline_ms.get() {
            self.board.next_deadline_ms.set(deadline_ms);
        }
    }

    /// Adds an item to the wheel, and to the one that will replace it.
    pub(super) fn arm_item(&mut self, deadline_ms: u64, hash: u64) {
        self.wheel.arm(deadline_ms, hash);
        if let Some(sweep) = &mut self.sweep {
            sweep.wheel.arm(deadline_ms, hash);
        }
    }

    fn is_stale(&self) -> bool {
        self.wheel.len() > STALE_ITEMS_RATIO_MAX * self.volatile_count + STALE_ITEMS_MAX
    }

    /// Goes on with a sweep, or begins one if too many items are stale; true while it is not done.
    pub(super) fn sweep_slice(&mut self, now_ms: u64) -> bool {
        if self.sweep.is_none() {
            if !self.is_stale() {
                return false;
            }
            self.sweep = Some(Sweep {
                wheel: Wheel::new(now_ms),
                cursor: 0,
            });
        }
        let Db {
            table,
            sweep: Some(sweep),
            seed,
            ..
        } = self
        else {
            return false;
        };
        let Sweep { wheel, cursor } = sweep;
        *cursor = table.scan(*cursor, SWEEP_KEYS, |entry| {
            if let Some(deadline_ms) = entry.deadline() {
                wheel.arm(deadline_ms, seed.hash(entry.key()));
            }
        });
        if *cursor != 0 {
            return true;
        }
        if let Some(sweep) = self.sweep.take() {
            self.wheel = sweep.wheel;
        }
        false
    }

    fn publish(&self) {
        let db = &self.board.dbs[self.index];
        db.keys.set(self.table.len() as u64);
        db.volatile_keys.set(self.volatile_count as u64);
    }

    /// Takes this database off the board: another one will show itself in its place.
    pub(super) fn hide(&mut self) {
        self.table.set_board(None);
    }

    /// SWAPDB: this database now has another number.
    pub(super) fn move_to(&mut self, index: usize) {
        self.index = index;
        self.table
            .set_board(Some(Arc::clone(&self.board.dbs[index].directory)));
        self.publish();
    }

    /// Frees some segments; false once nothing is left.
    pub(super) fn drain_some(&mut self, segments: usize) -> bool {
        self.wheel = Wheel::new(0);
        self.sweep = None;
        self.table.drain_some(segments)
    }
}
