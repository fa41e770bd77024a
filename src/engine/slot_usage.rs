//! Resources used by the requests for each slot of a shard, for CLUSTER SLOT-STATS. Counted while the shard is
//! locked, so that two threads never write to the same counter.

use super::Engine;
use basalt_core::alloc::account;
use basalt_core::base::hash::SLOTS;

/// Resources used by the requests for one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds of executing commands.
    pub cpu_ns: u64,
    /// Bytes of the requests.
    pub bytes_in: u64,
    /// Bytes of the replies.
    pub bytes_out: u64,
}

impl Usage {
    fn add(&mut self, more: Usage) {
        self.cpu_ns += more.cpu_ns;
        self.bytes_in += more.bytes_in;
        self.bytes_out += more.bytes_out;
    }
}

/// One element for each slot of the shard, indexed by the bits of its number that do not select the shard; allocated
/// at the first count and charged to no account, as it is not client data.
#[derive(Default)]
pub(super) struct SlotUsage(Option<Box<[Usage]>>);

impl Engine {
    /// Adds to the usage of a slot of this shard, if keys are indexed by slot.
    pub fn count_slot(&mut self, slot: u16, usage: Usage) {
        let Some((place, slots)) = self.place_of_slot(slot) else {
            return;
        };
        let SlotUsage(counted) = &mut self.slot_usage;
        let fresh = || account::uncharged(|| vec![Usage::default(); slots].into_boxed_slice());
        counted.get_or_insert_with(fresh)[place].add(usage);
    }

    /// Returns the usage of a slot of this shard.
    pub fn slot_usage(&self, slot: u16) -> Usage {
        let counted = self.slot_usage.0.as_ref().zip(self.place_of_slot(slot));
        counted.map_or(Usage::default(), |(counted, (place, _))| counted[place])
    }

    /// Resets the usage of all slots of this shard except those for which `keeps` is true.
    pub fn forget_slot_usage(&mut self, keeps: impl Fn(u16) -> bool) {
        let Some(shard_count) = self.slot_shards else {
            return;
        };
        if let SlotUsage(Some(counted)) = &mut self.slot_usage {
            let slots = (self.shard..).step_by(usize::from(shard_count));
            for (usage, slot) in counted.iter_mut().zip(slots) {
                if !keeps(slot) {
                    *usage = Usage::default();
                }
            }
        }
    }

    /// Returns the index of a slot among this shard's slots, and the number of these.
    fn place_of_slot(&self, slot: u16) -> Option<(usize, usize)> {
        let shard_count = self.slot_shards.filter(|_| self.has_slot(slot))?;
        let slots = usize::from(SLOTS / shard_count.min(SLOTS));
        Some((usize::from(slot >> shard_count.ilog2()), slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_core::base::hash::HashSeed;

    const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

    fn engine(shard: u16) -> Engine {
        let mut engine = Engine::new(1, SEED, 1);
        engine.shard = shard;
        engine.keep_slots(4);
        engine
    }

    #[test]
    fn slots_of_a_shard_are_counted_each_for_itself_and_forgotten_alone() {
        let mut engine = engine(3);
        let usage = Usage {
            cpu_ns: 1,
            bytes_in: 20,
            bytes_out: 300,
        };
        for slot in [3, 7, 7, 16_383, 4] {
            engine.count_slot(slot, usage);
        }
        assert_eq!(engine.slot_usage(3), usage);
        assert_eq!(engine.slot_usage(7).bytes_in, 40);
        assert_eq!(engine.slot_usage(16_383), usage);
        assert_eq!(engine.slot_usage(11), Usage::default());
        assert_eq!(engine.slot_usage(4), Usage::default(), "another shard's");
        engine.forget_slot_usage(|slot| slot == 7);
        assert_eq!(engine.slot_usage(7).cpu_ns, 2);
        assert_eq!(engine.slot_usage(3), Usage::default());
        assert_eq!(engine.slot_usage(16_383), Usage::default());
    }

    #[test]
    fn a_server_without_slots_counts_nothing() {
        let mut engine = Engine::new(1, SEED, 1);
        engine.count_slot(
            0,
            Usage {
                cpu_ns: 1,
                ..Usage::default()
            },
        );
        assert_eq!(engine.slot_usage(0), Usage::default());
    }
}
