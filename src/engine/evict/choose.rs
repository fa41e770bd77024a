//! Which key of a database goes next.

use super::Policy;
use crate::base::random::Random;
use crate::engine::db::{Db, next_due};
use crate::engine::published::Published;
use crate::structures::table::Place;
use crate::structures::wheel;

/// Keys drawn at random to find one with a deadline, before the wheel is asked for one.
const DRAWS_MAX: usize = 32;

/// Items of one slot of the wheel that are compared.
const WHEEL_LOOKS: usize = 16;

/// Items taken from the wheel to find one that still stands for a key.
const WHEEL_ITEMS_MAX: usize = 256;

impl Db {
    /// The place of the key that a policy lets go next, if there is one.
    pub(super) fn choose(
        &mut self,
        policy: Policy,
        random: &mut Random,
        published: &Published,
    ) -> Option<Place> {
        match policy {
            Policy::NoEviction => None,
            Policy::AllkeysRandom => self.table.random(&mut || random.next_u64()),
            Policy::AllkeysLru | Policy::AllkeysLfu => self
                .choose_by_order(published)
                .or_else(|| self.table.random(&mut || random.next_u64())),
            Policy::VolatileRandom => self.draw_volatile(random),
            Policy::VolatileLru | Policy::VolatileLfu => self
                .choose_by_order(published)
                .or_else(|| self.draw_volatile(random)),
            Policy::VolatileTtl => self.take_soonest(random),
        }
    }

    fn draw_volatile(&mut self, random: &mut Random) -> Option<Place> {
        for _ in 0..DRAWS_MAX {
            let place = self.table.random(&mut || random.next_u64())?;
            if self.table.at(place).deadline().is_some() {
                return Some(place);
            }
        }
        self.take_soonest(random)
    }

    /// A key of which the deadline is sooner than most others', with its item of the wheel gone.
    fn take_soonest(&mut self, random: &mut Random) -> Option<Place> {
        let mut kept = Vec::new();
        let mut found = None;
        for _ in 0..WHEEL_ITEMS_MAX {
            let Some(item) = self
                .wheel
                .take_soonest(WHEEL_LOOKS, |len| random.index(len))
            else {
                break;
            };
            let (seed, mut later_ms) = (self.seed(), None);
            let place = self.table.find_by_hash(item, |entry| {
                if (seed.hash(entry.key()) ^ item) & wheel::ITEM != 0 {
                    return false;
                }
                // Fields with deadlines are no reason for the key to go.
                later_ms = next_due(entry);
                entry.deadline().is_some()
            });
            if place.is_some() {
                found = place;
                break;
            }
            kept.extend(later_ms.map(|at_ms| (at_ms, item)));
        }
        for (at_ms, item) in kept {
            self.arm_item(at_ms, item);
        }
        found
    }
}
