//! Which shard owns a key.
//!
//! The slot is Redis Cluster's (CRC16 of the hash tag, 16,384 slots), so that `{tag}` keeps keys together. The owner of
//! a slot is its low bits: shards are a power of two, so no table is needed (one of 32 KiB would cost a cache miss a
//! key). The table inside a shard uses another, keyed hash.

use super::ownership::ShardList;
use basalt_commands::cluster::route::SlotOf;
use basalt_commands::command::args::RoutedKey;
use basalt_core::base::hash::{Seed, slot};

/// See the module.
#[derive(Clone, Copy)]
pub struct Router {
    seed: Seed,
    mask: u16,
    /// Slots are computed although there may be one shard.
    names_slots: bool,
    /// Whether this server is a node of a cluster.
    is_node: bool,
}

impl Router {
    /// A router over so many shards, a power of two.
    pub fn new(seed: Seed, shard_count: u16) -> Router {
        assert!(shard_count.is_power_of_two(), "shards are a power of two");
        Router {
            seed,
            mask: shard_count - 1,
            names_slots: shard_count > 1,
            is_node: false,
        }
    }

    /// The router of a node of a cluster, if this is one.
    #[must_use]
    pub fn of_node(self, is_node: bool) -> Router {
        Router {
            names_slots: self.names_slots || is_node,
            is_node,
            ..self
        }
    }

    /// Whether this server is a node of a cluster.
    #[inline]
    pub fn is_node(&self) -> bool {
        self.is_node
    }

    /// The hash key of all tables.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> u16 {
        self.mask + 1
    }

    /// The key at an argument position, on a command that needs no other shard.
    #[inline]
    pub fn routed(&self, argument: usize, key: &[u8]) -> RoutedKey {
        self.routed_in_slot(argument, key).0
    }

    /// The key at an argument position, with its slot; that is 0 where there is one shard and no cluster.
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

    /// A key's hash and shard.
    #[inline]
    pub fn route(&self, key: &[u8]) -> (u64, u16) {
        let (hash, slot) = self.place(key);
        (hash, slot & self.mask)
    }

    /// A key's hash and slot. Not inlined, so that both come back in registers.
    #[inline(never)]
    fn place(&self, key: &[u8]) -> (u64, u16) {
        (self.seed.hash(key), self.slot(key))
    }

    /// The shard that has the keys of a slot.
    #[inline]
    pub fn shard_of_slot(&self, slot: u16) -> u16 {
        slot & self.mask
    }

    #[inline]
    fn slot(&self, key: &[u8]) -> u16 {
        if self.names_slots { slot(key) } else { 0 }
    }
}

/// Shards in order, each once.
pub fn in_order(shards: impl IntoIterator<Item = u16>) -> ShardList {
    let mut shards: ShardList = shards.into_iter().collect();
    if shards.len() > 1 {
        shards.sort_unstable();
        shards.dedup();
    }
    shards
}

/// The shards of some keys, in order.
pub fn shards_of(keys: &[RoutedKey]) -> ShardList {
    in_order(keys.iter().map(|key| key.shard))
}

/// Tells each key the place of its shard among these, which are ascending and have the shards of all keys.
pub fn set_engine_indices(keys: &mut [RoutedKey], shards: &[u16]) {
    for key in keys {
        key.engine_index = shards.partition_point(|shard| *shard < key.shard) as u16;
    }
}
