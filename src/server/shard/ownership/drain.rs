//! The loop that runs queues, carries messages from shard to shard, and releases tokens.
//!
//! This module does not depend on guards. A drain is one thread's worklist. After a message over several shards
//! has run, several tokens must be released, each of which has a queue where further such messages may wait.
//! The drain processes all of them by iteration; the stack depth does not depend on the queues.
//!
//! Invariant: every token that a drain receives leaves the drain: it is released, moves on with a message, or
//! goes to the shard's worker.
#![expect(unsafe_code, reason = "messages change engines as raw links")]

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use super::gate::AcquireOutcome;
use super::queued::{IntrusiveLink, QueuedMessage};
use super::sync::{InjectedFault, spin_loop, yield_now};
use super::tokens::{HeldTokens, Offloaded};
use super::{ShardList, ShardMessage, ShardSet, holds};

/// Attempts to take a held token for a message that has waited without tokens and now needs its other shards.
const SPINS: u32 = 256;

/// Number of yields to other threads before such an attempt is given up: the holder may be waiting for a core.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 8 };

/// One thread's worklist. Must be closed (`Drain::close`) while a `holds` section is open.
pub(super) struct Drain<'s, E, M> {
    shards: &'s ShardSet<E, M>,
    messages: usize,
    /// Tokens still to be released: those of messages that have run, and those that waiting messages gave up.
    loose: ShardList,
    /// Shards whose workers received a token and must be woken at the end.
    sleepers: Vec<u16>,
}

impl<'s, E: Send, M: ShardMessage<E>> Drain<'s, E, M> {
    pub(super) fn new(shards: &'s ShardSet<E, M>) -> Drain<'s, E, M> {
        Drain {
            shards,
            messages: 0,
            loose: ShardList::new(),
            sleepers: Vec::new(),
        }
    }

    /// Wakes the workers; call when the drain has no token left. Returns the number of messages run or carried
    /// on.
    pub(super) fn close(self) -> usize {
        debug_assert!(self.loose.is_empty());
        for shard in self.sleepers {
            self.shards.wake_worker(shard);
        }
        self.messages
    }

    /// Carries a message as far as possible and releases the tokens that this leaves.
    ///
    /// # Safety
    /// 1. The caller owns the message. 2. The caller has the token of `shard`, the first on the message's route.
    pub(super) unsafe fn carry_and_settle(&mut self, link: NonNull<IntrusiveLink>, shard: u16) {
        // SAFETY: the caller guarantees (1) and (2); `carry` returns whether the token stays here.
        unsafe {
            if self.carry(link, shard) == TokenDisposition::Stays {
                self.let_go(shard);
            }
        }
        self.settle_rest();
    }

    /// Releases `shard` and all tokens that become loose by that.
    ///
    /// # Safety
    /// The caller has the token of `shard`, and does not use it afterwards.
    pub(super) unsafe fn settle(&mut self, shard: u16) {
        // SAFETY: the caller guarantees this function's contract.
        unsafe { self.let_go(shard) };
        self.settle_rest();
    }

    /// Finishes a message that has run, and releases its tokens and all that become loose by that.
    ///
    /// # Safety
    /// The caller owns the message and the tokens that it carries, and does not use them afterwards.
    pub(super) unsafe fn settle_message(&mut self, link: NonNull<IntrusiveLink>) {
        // SAFETY: the caller guarantees this function's contract.
        unsafe { self.ran(link) };
        self.settle_rest();
    }

    /// Releases the loose tokens, and all tokens that become loose by running queued messages.
    pub(super) fn settle_rest(&mut self) {
        while !self.loose.is_empty() {
            let mut tokens = std::mem::take(&mut self.loose);
            // First release the tokens that no message waits for, so that no shard waits for another shard's
            // queue. SAFETY: the tokens are ours, and those that were released leave the list.
            tokens.retain(|token| unsafe { !self.shards.try_release(*token) });
            for token in tokens {
                // SAFETY: this thread still has the token, which could not be released above.
                unsafe { self.let_go(token) };
            }
        }
    }

    /// Runs the pending messages of `shard` and releases it. May end early: the token leaves with a travelling message,
    /// or a message that has run leaves it loose, or the bound is reached and the worker gets it.
    ///
    /// # Safety
    /// The caller has the token of `shard`, and does not use it afterwards. `settle_rest` is to follow.
    pub(super) unsafe fn let_go(&mut self, shard: u16) {
        let gate = &self.shards.gates[shard as usize];
        loop {
            // SAFETY: this thread has the token, and does not use it after `true`.
            if unsafe { self.shards.try_release(shard) } {
                return;
            }
            if self.messages >= self.shards.drain_max {
                self.shards.hand_to_worker(shard);
                self.sleepers.push(shard);
                return;
            }
            self.messages += 1;
            // SAFETY: `pop` (1) our token, (2) `try_release` has just returned false. `carry` (1) a popped message is
            // its popper's, (2) it queued here for this token.
            if unsafe { self.carry(gate.pop(), shard) } == TokenDisposition::Leaves {
                return;
            }
        }
    }

    /// Gives the message the token of `shard`, for which it came or queued, and runs it or carries it to its next
    /// shard.
    ///
    /// # Safety
    /// 1. The caller owns the message. 2. The caller has the token of `shard`.
    unsafe fn carry(&mut self, link: NonNull<IntrusiveLink>, shard: u16) -> TokenDisposition {
        // SAFETY: (1); the reference is not used after the message moves on.
        let queued = unsafe { QueuedMessage::<M>::borrow(link) };
        let is_simple = !queued.message.is_extendable() && !queued.message.is_offloaded();
        if is_simple && queued.tokens.is_empty() && queued.message.shards().len() == 1 {
            // SAFETY: (2), and the token is used by no other thread while this runs; one shard, in range.
            let mut engines = unsafe { self.shards.engines(slice::from_ref(&shard)) };
            holds::while_running(|| queued.message.run(&mut engines));
            // SAFETY: this drain owns the message, which is in no list.
            unsafe { self.defer_finish(link) };
            return TokenDisposition::Stays;
        }
        // SAFETY: the caller guarantees (1) and (2).
        unsafe {
            match std::mem::take(&mut queued.waits_without_tokens) {
                true => self.take_rest(link, shard),
                false => self.travel(link, shard),
            }
        }
        TokenDisposition::Leaves
    }

    /// Carries a message from shard to shard, upward, until it runs or has to queue.
    ///
    /// # Safety
    /// 1. The caller owns the message. 2. The caller has the token of `shard`, the next on the message's route.
    unsafe fn travel(&mut self, link: NonNull<IntrusiveLink>, mut shard: u16) {
        loop {
            // SAFETY: (1); borrowed anew, for the message may have been published and not left.
            let queued = unsafe { QueuedMessage::<M>::borrow(link) };
            queued.tokens.push(shard);
            let Some(&next) = queued.message.shards().get(queued.tokens.len()) else {
                break;
            };
            // A message whose shards change between calls would break the ascending order that prevents
            // deadlock.
            assert!(
                next > shard,
                "the shards of a message are ascending and stay the same"
            );
            if self.shards.gates[shard as usize].has(InjectedFault::ForgetsTokens) {
                // SAFETY: none, on purpose: this injected fault is for models only.
                let _ = unsafe { self.shards.gates[shard as usize].try_release() };
            }
            self.shards.tally(shard).handed_over.fetch_add(1, Relaxed);
            let heeds_long = !queued.insists();
            // SAFETY: (1) live and in no queue; (2) we return at once if it was queued.
            match unsafe { self.shards.gates[next as usize].take_or_push(link, heeds_long) } {
                AcquireOutcome::Taken => shard = next,
                AcquireOutcome::Queued => {
                    self.shards.tally(next).queued.fetch_add(1, Relaxed);
                    return;
                }
                // SAFETY: the caller guarantees (1).
                AcquireOutcome::HeldLong => return unsafe { self.wait_without_tokens(link, next) },
            }
        }
        // SAFETY: (1); the message carries all its tokens.
        unsafe { self.run(link) };
    }

    /// Queues a message at a shard that is held for long, without the message's tokens.
    ///
    /// # Safety
    /// The caller owns the message and the tokens that it carries.
    unsafe fn wait_without_tokens(&mut self, link: NonNull<IntrusiveLink>, shard: u16) {
        // SAFETY: the caller guarantees this function's contract.
        let queued = unsafe { QueuedMessage::<M>::borrow(link) };
        self.set_loose(&mut queued.tokens);
        queued.waits_without_tokens = true;
        // SAFETY: (1) live and in no queue; (2) not touched any more if it was queued.
        match unsafe { self.shards.gates[shard as usize].take_or_push(link, false) } {
            AcquireOutcome::Queued => {
                self.shards.tally(shard).queued.fetch_add(1, Relaxed);
            }
            AcquireOutcome::Taken | AcquireOutcome::HeldLong => {
                // SAFETY: this thread still owns the message, and has the token.
                unsafe {
                    QueuedMessage::<M>::borrow(link).waits_without_tokens = false;
                    self.take_rest(link, shard);
                }
            }
        }
    }

    /// Handles the turn of a message that waited for `shard` without tokens: it runs if it gets the rest of its shards,
    /// otherwise it starts over.
    ///
    /// # Safety
    /// 1. The caller owns the message, which carries no tokens. 2. The caller has the token of `shard`, which is on
    ///    the message's route.
    unsafe fn take_rest(&mut self, link: NonNull<IntrusiveLink>, shard: u16) {
        // SAFETY: the caller guarantees (1).
        let queued = unsafe { QueuedMessage::<M>::borrow(link) };
        for &other in queued.message.shards() {
            if other != shard && !self.take_patiently(other) {
                if !queued.tokens.contains(&shard) {
                    queued.tokens.push(shard);
                }
                self.set_loose(&mut queued.tokens);
                queued.misses = queued.misses.saturating_add(1);
                let first = queued.message.shards()[0];
                // SAFETY: (1) live and in no queue; (2) we leave at once if it was queued.
                return match unsafe { self.shards.gates[first as usize].take_or_push(link, false) }
                {
                    // SAFETY: this thread still owns the message, and has the token.
                    AcquireOutcome::Taken => unsafe { self.travel(link, first) },
                    AcquireOutcome::Queued | AcquireOutcome::HeldLong => {}
                };
            }
            queued.tokens.push(other);
        }
        // SAFETY: (1); the message carries all its tokens.
        unsafe { self.run(link) };
    }

    /// Tries for a token for a bounded time; returns whether it was taken. The caller already has the token of
    /// a shard that was held for long, so the wait does not matter.
    fn take_patiently(&self, shard: u16) -> bool {
        let gate = &self.shards.gates[shard as usize];
        for round in 0..=YIELDS {
            for _ in 0..if cfg!(loom) { 1 } else { SPINS } {
                if gate.seems_free() && gate.try_take() {
                    return true;
                }
                spin_loop();
            }
            if round < YIELDS {
                yield_now();
            }
        }
        false
    }

    fn set_loose(&mut self, tokens: &mut ShardList) {
        let forgets =
            |&token: &u16| self.shards.gates[token as usize].has(InjectedFault::ForgetsLoose);
        if !tokens.iter().any(forgets) {
            self.loose.append(tokens);
        }
        tokens.clear();
    }

    /// Runs a message that has all its tokens, or offloads it to a separate thread.
    ///
    /// # Safety
    /// The caller owns the message, which carries all its tokens.
    unsafe fn run(&mut self, link: NonNull<IntrusiveLink>) {
        // SAFETY: the caller guarantees this function's contract.
        let QueuedMessage {
            tokens, message, ..
        } = unsafe { QueuedMessage::<M>::borrow(link) };
        if tokens.len() > 1 {
            self.shards
                .tally(tokens[0])
                .multi_shard_runs
                .fetch_add(1, Relaxed);
        }
        if message.is_offloaded() {
            for &token in &*tokens {
                // SAFETY: this thread owns the message and so its tokens.
                unsafe { self.shards.hold_long(token, &mut self.loose) };
            }
            // SAFETY: (1) this thread owns the message, and the tokens leave with it; (2) its type is `M`; (3) drains
            // live inside holds.
            return unsafe { holds::defer(link, offload::<E, M>) };
        }
        if message.is_extendable() {
            // SAFETY: as below; tokens added by it are released with the others.
            let mut held = unsafe { HeldTokens::new(self.shards, tokens) };
            holds::while_running(|| message.run_extendable(&mut held));
        } else {
            // SAFETY: the message's tokens are ours with it, and used by no other thread while this runs; ascending,
            // and each was in range of the gates when it was taken.
            let mut engines = unsafe { self.shards.engines(tokens) };
            holds::while_running(|| message.run(&mut engines));
        }
        // SAFETY: the caller guarantees this function's contract.
        unsafe { self.ran(link) };
    }

    /// Ends the run of a message: schedules its `finish`, before that of the messages that waited for its
    /// tokens, and makes the tokens loose.
    ///
    /// # Safety
    /// The caller owns the message and the tokens that it carries, and does not use them afterwards.
    unsafe fn ran(&mut self, link: NonNull<IntrusiveLink>) {
        // SAFETY: the caller guarantees this function's contract.
        let queued = unsafe { QueuedMessage::<M>::borrow(link) };
        self.loose.append(&mut queued.tokens);
        // SAFETY: this drain owns the message, which is in no list.
        unsafe { self.defer_finish(link) };
    }

    /// # Safety
    /// The caller owns the message, and does not use it afterwards.
    unsafe fn defer_finish(&mut self, link: NonNull<IntrusiveLink>) {
        // SAFETY: (1) the caller owns the message; (2) its type is `M`; (3) drains live inside holds.
        unsafe { holds::defer(link, finish::<E, M>) };
    }
}
/// Whether a shard's token stays after a message got it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenDisposition {
    Stays,
    Leaves,
}

/// # Safety
/// As [`QueuedMessage::from_link`].
unsafe fn finish<E, M: ShardMessage<E>>(link: NonNull<IntrusiveLink>) {
    // SAFETY: the caller guarantees this function's contract.
    M::finish(unsafe { QueuedMessage::<M>::from_link(link) });
}

/// # Safety
/// As [`QueuedMessage::from_link`].
unsafe fn offload<E, M: ShardMessage<E>>(link: NonNull<IntrusiveLink>) {
    // SAFETY: the caller guarantees this function's contract.
    M::offload(Offloaded::new(unsafe {
        QueuedMessage::<M>::from_link(link)
    }));
}
