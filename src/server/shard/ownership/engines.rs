//! The engines of the held tokens.
//!
//! This module does not depend on messages and queues. Code that runs on engines sees only `HeldEngines`,
//! however the tokens were obtained, so it is written once for one shard and for many, for immediate and for
//! queued runs. A view is two slices and allocates nothing.
#![expect(
    unsafe_code,
    reason = "the tokens that the view stands for make its engines exclusive"
)]

use std::marker::PhantomData;

use crossbeam::utils::CachePadded;

use super::gate::ShardGate;

/// The engines of one or more shards whose tokens are all held, for as long as the view lives.
pub struct HeldEngines<'a, E> {
    gates: &'a [CachePadded<ShardGate<E>>],
    /// Indices of the held shards: ascending, without duplicates, all in range.
    shards: &'a [u16],
    engines: PhantomData<&'a mut E>,
}

impl<'a, E> HeldEngines<'a, E> {
    /// # Safety
    /// 1. All tokens of `shards` are held for `'a` and no other code uses them. 2. `shards` is ascending without
    ///    duplicates and each is in range of `gates`.
    #[inline(always)]
    pub(super) unsafe fn new(
        gates: &'a [CachePadded<ShardGate<E>>],
        shards: &'a [u16],
    ) -> HeldEngines<'a, E> {
        HeldEngines {
            gates,
            shards,
            engines: PhantomData,
        }
    }

    /// Returns the number of held shards, which is at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "somebody holds a shard")]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns the held shards, ascending.
    #[inline]
    pub fn shards(&self) -> &'a [u16] {
        self.shards
    }

    /// Returns the engine of `shard`, or `None` if its token is not held.
    #[inline]
    pub fn get(&mut self, shard: u16) -> Option<&mut E> {
        let in_hand = match self.shards {
            [only] => *only == shard,
            many => many.binary_search(&shard).is_ok(),
        };
        // SAFETY: the shard is held, and `&mut self` lends one reference at a time.
        in_hand.then(|| unsafe { &mut *self.gates[shard as usize].engine() })
    }

    /// Returns the engine of the lowest held shard.
    #[inline]
    pub fn first(&mut self) -> &mut E {
        // SAFETY: the shard is held, and `&mut self` lends one reference at a time.
        unsafe { &mut *self.gates[self.shards[0] as usize].engine() }
    }

    /// Returns all held engines.
    #[cold]
    pub fn all(&mut self) -> Vec<&mut E> {
        self.iter().map(|(_, engine)| engine).collect()
    }

    /// Iterates over all held engines with their shards, ascending.
    pub fn iter(&mut self) -> impl Iterator<Item = (u16, &mut E)> {
        let gates = self.gates;
        self.shards.iter().map(move |&shard| {
            // SAFETY: the shards are held, and differ, so no engine is lent twice.
            (shard, unsafe { &mut *gates[shard as usize].engine() })
        })
    }
}
