//! The choice of a database's next key to evict.

use super::Policy;
use super::order::{HELD_BIT, VOLATILE_BIT};
use crate::db::{Db, expired_from, next_due};
use crate::published::Published;
use basalt_core::base::random::Random;
use basalt_core::structures::table::EntrySlot;
use basalt_core::structures::wheel;

/// Random keys sampled to find an evictable one, before the table is searched in order.
const DRAWS_MAX: usize = 32;

/// Items of one wheel slot that are compared.
const WHEEL_LOOKS: usize = 16;

/// Items taken from the wheel to find one that still refers to a key.
const WHEEL_ITEMS_MAX: usize = 256;

impl Db {
    /// Returns the place of the next key to evict under a policy, if there is one.
    pub(super) fn choose(
        &mut self,
        policy: Policy,
        random: &mut Random,
        published: &Published,
    ) -> Option<EntrySlot> {
        match policy {
            Policy::NoEviction => None,
            Policy::AllkeysRandom => self.draw(random, 0),
            Policy::AllkeysLru | Policy::AllkeysLfu => self
                .choose_by_order(published)
                .or_else(|| self.draw(random, 0)),
            Policy::VolatileRandom => self.draw(random, VOLATILE_BIT),
            Policy::VolatileLru | Policy::VolatileLfu => self
                .choose_by_order(published)
                .or_else(|| self.draw(random, VOLATILE_BIT)),
            Policy::VolatileTtl => self
                .take_soonest(random)
                .or_else(|| self.draw(random, VOLATILE_BIT)),
        }
    }

    /// Returns any key that is not a held lock and has the `wanted` access bits.
    fn draw(&mut self, random: &mut Random, wanted: u8) -> Option<EntrySlot> {
        if self.evictable_count(wanted & VOLATILE_BIT != 0) == 0 {
            return None;
        }
        let may_go = |bits: u8| bits & (wanted | HELD_BIT) == wanted;
        let mut first = None;
        for _ in 0..DRAWS_MAX {
            let place = self.table.random(&mut || random.next_u64())?;
            if may_go(self.table.bits(place)) {
                return Some(place);
            }
            first.get_or_insert(place);
        }
        // Keys with these bits are so rare that going round the table from a random key is the way to find one.
        let hash = self.hash_of(self.table.at(first?));
        let (cursor, mut found) = (self.table.cursor_at(hash), None);
        self.table.sweep(cursor, self.table.len(), |place, bits| {
            found = found.or_else(|| may_go(bits).then_some(place));
            (bits, found.is_some())
        });
        found
    }

    /// Takes a key whose deadline is sooner than most others', and removes its item from the wheel.
    ///
    /// The item found may have been armed for another deadline, of a former key with the same name or of this key
    /// before its deadline was extended. Then the item is armed again and does not make the key a candidate.
    fn take_soonest(&mut self, random: &mut Random) -> Option<EntrySlot> {
        let mut kept = Vec::new();
        let mut found = None;
        for _ in 0..WHEEL_ITEMS_MAX {
            let Some(taken) = self
                .wheel
                .take_soonest(WHEEL_LOOKS, |len| random.index(len))
            else {
                break;
            };
            let (seed, item) = (self.seed(), taken.item);
            let (mut next_ms, mut is_due) = (None, false);
            let place = self.table.find_by_hash(item, |entry| {
                if (seed.hash(entry.key()) ^ item) & wheel::ITEM != 0 {
                    return false;
                }
                next_ms = next_due(entry);
                let due_ms = [entry.deadline().map(expired_from), next_ms];
                // The deadline of a field is no reason to evict the whole key.
                is_due = entry.deadline().is_some()
                    && (due_ms.into_iter().flatten())
                        .any(|due_ms| self.wheel.was_armed_for(&taken, due_ms));
                true
            });
            found = place.filter(|place| is_due && self.table.bits(*place) & HELD_BIT == 0);
            if found.is_some() {
                break;
            }
            kept.extend(next_ms.map(|at_ms| (at_ms, item)));
        }
        for (at_ms, item) in kept {
            self.arm_item(at_ms, item);
        }
        found
    }
}
