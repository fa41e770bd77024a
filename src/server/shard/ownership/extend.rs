//! Guards that can take more tokens, and the return of messages that were offloaded (see [`super::tokens`]).
#![expect(unsafe_code, reason = "a guard stands for tokens, and lets them go")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use super::drain::Drain;
use super::engines::HeldEngines;
use super::queued::QueuedMessage;
use super::tokens::{HeldTokens, Offloaded};
use super::{ShardList, ShardMessage, ShardSet, holds, is_route};

/// The tokens of some shards, which can take more. Dropping it runs the messages queued meanwhile, as for
/// [`super::ShardGuard`].
#[must_use = "dropping it lets go of the shards"]
pub struct ExtendableGuard<'s, E: Send, M: ShardMessage<E>> {
    shards: &'s ShardSet<E, M>,
    tokens: ShardList,
    not_send: PhantomData<*mut E>,
}

impl<E: Send, M: ShardMessage<E>> ExtendableGuard<'_, E, M> {
    /// Returns the held shards, ascending.
    pub fn shards(&self) -> &[u16] {
        &self.tokens
    }

    /// Returns the held engines.
    #[inline]
    pub fn engines(&mut self) -> HeldEngines<'_, E> {
        // SAFETY: (1) our tokens, and `&mut self` for the view's life; (2) checked when they were taken.
        unsafe { self.shards.engines(&self.tokens) }
    }

    /// Returns a view of the held tokens, which gives access to the engines and can take more tokens.
    pub fn tokens(&mut self) -> HeldTokens<'_, E, M> {
        // SAFETY: (1) our tokens, `&mut self` for the view's life; (2) checked when taken; (3) released by `drop`.
        unsafe { HeldTokens::new(self.shards, &mut self.tokens) }
    }
}

impl<E: Send, M: ShardMessage<E>> Drop for ExtendableGuard<'_, E, M> {
    fn drop(&mut self) {
        if holds::unwinds() {
            return;
        }
        // SAFETY: `self` has these tokens, and does not use them again.
        unsafe { self.shards.let_go_all(&self.tokens) };
        holds::leave();
    }
}

impl<E: Send, M: ShardMessage<E>> ShardSet<E, M> {
    /// Takes the tokens of `shards` (ascending, no duplicates; possibly none) without waiting, or returns
    /// `None` if any of them is held. The guard can take more tokens later.
    pub fn try_take_all(&self, shards: &[u16]) -> Option<ExtendableGuard<'_, E, M>> {
        assert!(
            shards.is_empty() || is_route(shards, self.len()),
            "ascending shards without duplicates"
        );
        holds::enter();
        let mut guard = ExtendableGuard {
            shards: self,
            tokens: ShardList::new(),
            not_send: PhantomData,
        };
        for &shard in shards {
            if !self.gates[usize::from(shard)].try_take() {
                self.found_held(shard);
                return None; // and `guard` releases its tokens
            }
            guard.tokens.push(shard);
        }
        if shards.len() > 1 {
            self.tally(shards[0]).multi_shard_runs.fetch_add(1, Relaxed);
        }
        Some(guard)
    }

    /// Runs an offloaded message on this thread, and releases its shards.
    pub fn resume<R>(
        &self,
        offloaded: Offloaded<M>,
        run: impl FnOnce(&mut M, &mut HeldTokens<'_, E, M>) -> R,
    ) -> R {
        let mut queued = offloaded.queued;
        assert!(
            queued.home == ptr::from_ref(self).addr(),
            "a message comes back to the shards that it left"
        );
        let hold = holds::TokenHoldGuard::new();
        let QueuedMessage {
            tokens, message, ..
        } = &mut *queued;
        // SAFETY: (1) the tokens came with the message, which is ours; (2) they were pushed ascending and in range of
        // these very gates; (3) released below.
        let mut held = unsafe { HeldTokens::new(self, tokens) };
        held.holds_long = true;
        let result = run(message, &mut held);
        for &token in &*tokens {
            self.gates[usize::from(token)].set_long(false);
        }
        let mut drain = Drain::new(self);
        // SAFETY: this thread owns the message and its tokens.
        unsafe { drain.settle_message(queued.into_link()) };
        drain.close();
        drop(hold);
        result
    }
}
