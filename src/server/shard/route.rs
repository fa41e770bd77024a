//! Maps keys to shards.
//!
//! The slot is Redis Cluster's (CRC16 of the hash tag, 16,384 slots), so that `{tag}` keeps keys together. The
//! owner of a slot is its low bits: the number of shards is a power of two, so no table is needed (a table of
//! 32 KiB would cost a cache miss per key). The hash table inside a shard uses another, keyed hash.

use super::ownership::ShardList;
use basalt_commands::cluster::route::SlotOf;
use basalt_commands::command::args::RoutedKey;
use basalt_core::base::hash::{HashSeed, slot};

/// Routes keys to slots and shards; see the module.
#[derive(Clone, Copy)]
pub struct Router {
    seed: HashSeed,
    mask: u16,
    /// True if slots are computed even with a single shard.
    names_slots: bool,
    /// True if this server is a cluster node.
    is_node: bool,
}

impl Router {
    /// Creates a router over `shard_count` shards, a power of two.
    pub fn new(seed: HashSeed, shard_count: u16) -> Router {
        assert!(shard_count.is_power_of_two(), "shards are a power of two");
        Router {
            seed,
            mask: shard_count - 1,
            names_slots: shard_count > 1,
            is_node: false,
        }
    }

    /// Sets whether the router is that of a cluster node.
    #[must_use]
    pub fn of_node(self, is_node: bool) -> Router {
        Router {
            names_slots: self.names_slots || is_node,
            is_node,
            ..self
        }
    }

    /// True if this server is a cluster node.
    #[inline]
    pub fn is_node(&self) -> bool {
        self.is_node
    }

    /// Returns the hash seed of all tables.
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> u16 {
        self.mask + 1
    }

    /// Returns the hash and shard of the key at an argument position, for a command whose keys are all in one
    /// shard.
    #[inline]
    pub fn routed(&self, argument: usize, key: &[u8]) -> RoutedKey {
        self.routed_in_slot(argument, key).0
    }

    /// Returns the hash and shard of the key at an argument position, and its slot. The slot is 0 with a single
    /// shard and no cluster.
    #[inline]
    pub fn routed_in_slot(&self, argument: usize, key: &[u8]) -> (RoutedKey, SlotOf) {
        let (hash, slot) = self.place(key);
        let routed = RoutedKey {
            hash,
            argument: argument as u32,
            shard: slot & self.mask,
            engine_index: 0,
        };
        (routed, SlotOf::of(slot))
    }

    /// Returns a key's hash and shard.
    #[inline]
    pub fn route(&self, key: &[u8]) -> (u64, u16) {
        let (hash, slot) = self.place(key);
        (hash, slot & self.mask)
    }

    /// Returns a key's hash and slot. Not inlined, so that both are returned in registers.
    #[inline(never)]
    fn place(&self, key: &[u8]) -> (u64, u16) {
        (self.seed.hash(key), self.slot(key))
    }

    /// Returns the shard that has the keys of a slot.
    #[inline]
    pub fn shard_of_slot(&self, slot: u16) -> u16 {
        slot & self.mask
    }

    #[inline]
    fn slot(&self, key: &[u8]) -> u16 {
        if self.names_slots { slot(key) } else { 0 }
    }
}

/// Sorts shards in ascending order and removes duplicates.
pub fn in_order(shards: impl IntoIterator<Item = u16>) -> ShardList {
    let mut shards: ShardList = shards.into_iter().collect();
    if shards.len() > 1 {
        shards.sort_unstable();
        shards.dedup();
    }
    shards
}

/// Returns the shards of the keys, ascending, without duplicates.
pub fn shards_of(keys: &[RoutedKey]) -> ShardList {
    in_order(keys.iter().map(|key| key.shard))
}

/// Sets for each key the index of its shard in `shards`, a list that is ascending and includes the shards of
/// all keys.
pub fn set_engine_indices(keys: &mut [RoutedKey], shards: &[u16]) {
    for key in keys {
        key.engine_index = shards.partition_point(|shard| *shard < key.shard) as u16;
    }
}
