//! Deleting keys whose time has come, in bounded slices, from the timer wheels.

use super::effect::Event;
use super::{Engine, Now};

/// Wheel items looked at per database and slice; keeps a slice well under 100 µs.
const ITEMS_PER_SLICE: usize = 64;

impl Engine {
    /// Deletes some of the keys that are due in all databases; true while more are due.
    ///
    /// Also publishes the time before which no deadline is armed, so that nobody needs the token to know whether
    /// this shard has work.
    pub fn expire_slice(&mut self, now: Now) -> bool {
        let mut more = false;
        let mut next_ms = u64::MAX;
        for index in 0..self.dbs.len() {
            let Some(db) = self.dbs[index].as_deref_mut() else {
                continue;
            };
            if db.wheel.is_empty() {
                continue;
            }
            let mut due = [0u64; ITEMS_PER_SLICE];
            let mut count = 0;
            let left = db.charged(|db| {
                db.wheel.advance(now.unix_ms, ITEMS_PER_SLICE, |hash| {
                    due[count] = hash;
                    count += 1;
                })
            });
            more |= left;
            for &hash in &due[..count] {
                self.fire(index, hash, now);
            }
            if let Some(db) = self.dbs[index].as_deref() {
                next_ms = next_ms.min(db.wheel.next_due_ms().unwrap_or(u64::MAX));
            }
        }
        self.board.next_deadline_ms.set(next_ms);
        more
    }

    /// An item fired: delete the key if it is due, arm it again if its deadline was moved, else forget the item.
    fn fire(&mut self, index: usize, hash: u64, now: Now) {
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let mut later_ms = None;
        let place = db.table.find_by_hash(hash, |entry| match entry.deadline() {
            Some(deadline_ms) if deadline_ms <= now.unix_ms => true,
            Some(deadline_ms) => {
                later_ms = Some(deadline_ms);
                false
            }
            None => false,
        });
        match (place, later_ms) {
            (Some(place), _) => self.expire_now(index, place, now),
            (None, Some(deadline_ms)) => db.charged(|db| db.wheel.arm(deadline_ms, hash)),
            (None, None) => {}
        }
    }

    /// Deletes a key that is due and records it as expired.
    pub(super) fn expire_now(
        &mut self,
        index: usize,
        place: crate::structures::table::Place,
        now: Now,
    ) {
        let Some(db) = self.dbs[index].as_deref_mut() else {
            return;
        };
        let entry = db.at(place);
        let lag_ms = now
            .unix_ms
            .saturating_sub(entry.deadline().unwrap_or(now.unix_ms));
        self.effects.wrote(index, entry.key(), Event::EXPIRED);
        self.board.note_lag(lag_ms);
        self.board.expired.add(1);
        let trash = db.charged(|db| super::value::Trash::from_entry(db.remove(place)));
        self.discard(trash);
    }

    /// Keeps a large value until the token is let go; small ones are freed already.
    pub(super) fn discard(&mut self, trash: Option<super::value::Trash>) {
        if let Some(trash) = trash {
            self.board.add_used(-trash.bytes());
            self.trash.push(trash);
        }
    }
}
