//! The engines of the tokens in hand.
//!
//! Knows no messages and no queues: whatever got the tokens, the code that runs on the engines sees only this, so it is
//! written once for one shard and for many, for at once and for queued. A view is two slices and allocates nothing.
#![expect(
    unsafe_code,
    reason = "the tokens that the view stands for make its engines exclusive"
)]

use std::marker::PhantomData;

use crossbeam::utils::CachePadded;

use super::gate::Gate;

/// The engines of one or more shards whose tokens are all held, for as long as the view lives.
pub struct HeldEngines<'a, E> {
    gates: &'a [CachePadded<Gate<E>>],
    /// Ascending, without duplicates, all in range.
    shards: &'a [u16],
    engines: PhantomData<&'a mut E>,
}

impl<'a, E> HeldEngines<'a, E> {
    /// # Safety
    /// 1. All tokens of `shards` are held for `'a` and no other code uses them. 2. `shards` is ascending without
    ///    duplicates and each is in range of `gates`.
    #[inline(always)]
    pub(super) unsafe fn new(
        gates: &'a [CachePadded<Gate<E>>],
        shards: &'a [u16],
    ) -> HeldEngines<'a, E> {
        HeldEngines {
            gates,
            shards,
            engines: PhantomData,
        }
    }

    /// How many shards are in hand; at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "somebody holds a shard")]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// The shards in hand, ascending.
    #[inline]
    pub fn shards(&self) -> &'a [u16] {
        self.shards
    }

    /// The engine of `shard`, if it is in hand.
    #[inline]
    pub fn get(&mut self, shard: u16) -> Option<&mut E> {
        let in_hand = match self.shards {
            [only] => *only == shard,
            many => many.binary_search(&shard).is_ok(),
        };
        // SAFETY: in hand, and `&mut self` lets out one reference at a time.
        in_hand.then(|| unsafe { &mut *self.gates[shard as usize].engine() })
    }

    /// The engine of the lowest shard in hand: the only one where there is but one.
    #[inline]
    pub fn first(&mut self) -> &mut E {
        // SAFETY: in hand, and `&mut self` lets out one reference at a time.
        unsafe { &mut *self.gates[self.shards[0] as usize].engine() }
    }

    /// All engines in hand.
    #[cold]
    pub fn all(&mut self) -> Vec<&mut E> {
        self.iter().map(|(_, engine)| engine).collect()
    }

    /// All engines in hand with their shards, ascending.
    pub fn iter(&mut self) -> impl Iterator<Item = (u16, &mut E)> {
        let gates = self.gates;
        self.shards.iter().map(move |&shard| {
            // SAFETY: in hand; the shards differ, so no engine is let out twice.
            (shard, unsafe { &mut *gates[shard as usize].engine() })
        })
    }
}
