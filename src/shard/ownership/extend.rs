//! Tokens in hand that can become more, and messages that leave for a thread of their own.
//!
//! Most work knows its shards beforehand. A script may find out on the way that it needs another one: it may *try* for
//! it ([`HeldTokens::try_extend`]), in any order, as somebody who never waits cannot be part of a deadlock. If it gets
//! none, its caller undoes what it did and asks for more shards at once.
//!
//! A message may also take too long for the thread that happens to have its last token. Such a message *is offloaded*:
//! it leaves with all its tokens as a [`Offloaded`], and some other thread runs and settles it ([`Shards::resume`]).
//! Its shards are marked as held for long, so that messages wait there without tokens of other shards; those that have
//! waited for too long can be turned away ([`HeldTokens::turn_away`]).
#![expect(
    unsafe_code,
    reason = "a view stands for tokens as guards do, and takes messages out of queues"
)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use super::drain::Drain;
use super::engines::HeldEngines;
use super::queued::{Link, QueuedMessage};
use super::sync::{Fault, spin_loop};
use super::{Message, ShardList, Shards, holds, is_route};

/// A view of tokens that are held, which can take in more.
pub struct HeldTokens<'a, E, M> {
    shards: &'a Shards<E, M>,
    /// Ascending, all ours.
    tokens: &'a mut ShardList,
    /// The tokens are held for long, on a thread of their own.
    holds_long: bool,
    not_send: PhantomData<*mut E>,
}

impl<'a, E: Send, M: Message<E>> HeldTokens<'a, E, M> {
    /// # Safety
    /// 1. The tokens are the caller's for `'a`, who uses no other view of them meanwhile. 2. They are ascending,
    ///    without duplicates, in range. 3. What is in `tokens` afterwards is the caller's to let go.
    pub(super) unsafe fn new(
        shards: &'a Shards<E, M>,
        tokens: &'a mut ShardList,
    ) -> HeldTokens<'a, E, M> {
        HeldTokens {
            shards,
            tokens,
            holds_long: false,
            not_send: PhantomData,
        }
    }

    /// The shards in hand, ascending.
    pub fn shards(&self) -> &[u16] {
        self.tokens
    }

    /// The engines in hand.
    pub fn engines(&mut self) -> HeldEngines<'_, E> {
        // SAFETY: (1) our tokens, and `&mut self` for the view's life; (2) kept by `try_extend`.
        unsafe { self.shards.engines(self.tokens) }
    }

    /// Whether a shard is in hand.
    #[inline]
    pub fn holds(&self, shard: u16) -> bool {
        match self.tokens.as_slice() {
            [only] => *only == shard,
            many => many.binary_search(&shard).is_ok(),
        }
    }

    /// Tries for one more shard, looking again up to `spins` times while it is held; never waits. True if it is in hand
    /// now. It is let go with the others.
    pub fn try_extend(&mut self, shard: u16, spins: u32) -> bool {
        let Err(at) = self.tokens.binary_search(&shard) else {
            return true;
        };
        let Some(gate) = self.shards.gates.get(usize::from(shard)) else {
            return false;
        };
        let mut spins_left = spins;
        while !gate.try_take() {
            if spins_left == spins {
                self.shards.found_held(shard);
            }
            if spins_left == 0 {
                return false;
            }
            spins_left -= 1;
            spin_loop();
        }
        if self.holds_long {
            let mut loose = ShardList::new();
            // SAFETY: our token since a moment ago.
            unsafe { self.shards.hold_long(shard, &mut loose) };
            self.shards.give_up(&mut loose);
        }
        if !gate.has(Fault::ForgetsExtension) {
            self.tokens.insert(at, shard);
        }
        true
    }

    /// Shows `refuse` the messages that wait for the shards in hand: those that were not seen before, or with `whole`
    /// all of them. The ones that it turns away, with a reply, leave the queues and are finished. That wakes their
    /// tasks with tokens in hand: a microsecond of shards that are held for seconds.
    ///
    /// Does nothing but for a message that was offloaded: others have no time to look after queues.
    pub fn turn_away(&mut self, whole: bool, mut refuse: impl FnMut(&mut M) -> bool) {
        if !self.holds_long {
            return;
        }
        let mut refused = Vec::new();
        for &shard in self.tokens.iter() {
            let gate = &self.shards.gates[usize::from(shard)];
            if !gate.has_new() && !whole {
                continue;
            }
            // SAFETY: our token.
            let mut list = unsafe { gate.take_queue() };
            let (mut oldest, mut newest): (*mut Link, Option<NonNull<Link>>) =
                (ptr::null_mut(), None);
            while let Some(link) = NonNull::new(list) {
                // SAFETY: what was in the queue is ours now, and of type `M`.
                let queued = unsafe {
                    list = Link::next(link);
                    QueuedMessage::<M>::borrow(link)
                };
                if refuse(&mut queued.message) {
                    self.shards.give_up(&mut queued.tokens);
                    // SAFETY: ours, and in no list any more.
                    refused.push(unsafe { QueuedMessage::<M>::from_link(link) });
                    continue;
                }
                // SAFETY: all links of both lists are ours.
                unsafe {
                    Link::set_next(link, ptr::null_mut());
                    match newest {
                        Some(newest) => Link::set_next(newest, link.as_ptr()),
                        None => oldest = link.as_ptr(),
                    }
                }
                newest = Some(link);
            }
            if gate.has(Fault::DropsKept) {
                oldest = ptr::null_mut();
            }
            // SAFETY: our token; the list is what was taken, without what left it.
            unsafe { gate.put_queue_back(oldest) };
        }
        refused.into_iter().for_each(M::finish);
    }
}

/// The tokens of some shards, which can become more. Dropping it runs what came in meanwhile, as for
/// [`super::ShardGuard`].
#[must_use = "dropping it lets go of the shards"]
pub struct ExtendableGuard<'s, E: Send, M: Message<E>> {
    shards: &'s Shards<E, M>,
    tokens: ShardList,
    not_send: PhantomData<*mut E>,
}

impl<E: Send, M: Message<E>> ExtendableGuard<'_, E, M> {
    /// The shards in hand, ascending.
    pub fn shards(&self) -> &[u16] {
        &self.tokens
    }

    /// The engines in hand.
    #[inline]
    pub fn engines(&mut self) -> HeldEngines<'_, E> {
        // SAFETY: (1) our tokens, and `&mut self` for the view's life; (2) checked when they were taken.
        unsafe { self.shards.engines(&self.tokens) }
    }

    /// The view through which work is done and more shards are tried for.
    pub fn tokens(&mut self) -> HeldTokens<'_, E, M> {
        // SAFETY: (1) our tokens, `&mut self` for the view's life; (2) checked when taken; (3) let go by `drop`.
        unsafe { HeldTokens::new(self.shards, &mut self.tokens) }
    }
}

impl<E: Send, M: Message<E>> Drop for ExtendableGuard<'_, E, M> {
    fn drop(&mut self) {
        if holds::unwinds() {
            return;
        }
        // SAFETY: our tokens, not used again.
        unsafe { self.shards.let_go_all(&self.tokens) };
        holds::leave();
    }
}

/// A message with all its tokens, on its way to a thread of its own, which is to [`Shards::resume`] it. If it is
/// dropped instead its shards stay held for ever, so that is for the end of the server only.
#[must_use = "its shards are held until it is resumed"]
pub struct Offloaded<M> {
    queued: Box<QueuedMessage<M>>,
}

impl<M> Offloaded<M> {
    pub(super) fn new(queued: Box<QueuedMessage<M>>) -> Offloaded<M> {
        Offloaded { queued }
    }

    /// The message.
    pub fn message(&mut self) -> &mut M {
        &mut self.queued.message
    }
}

impl<E: Send, M: Message<E>> Shards<E, M> {
    /// Takes some shards (ascending, no duplicates; none at all is fine) without waiting, or none of them; more can be
    /// tried for.
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
                return None; // and `guard` lets go of what it has
            }
            guard.tokens.push(shard);
        }
        if shards.len() > 1 {
            self.tally(shards[0]).multi_shard_runs.fetch_add(1, Relaxed);
        }
        Some(guard)
    }

    /// Runs a message that was offloaded, on this thread, and lets go of its shards.
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
        let hold = holds::Hold::new();
        let QueuedMessage {
            tokens, message, ..
        } = &mut *queued;
        // SAFETY: (1) the tokens came with the message, which is ours; (2) they were pushed ascending and in range of
        // these very gates; (3) let go below.
        let mut held = unsafe { HeldTokens::new(self, tokens) };
        held.holds_long = true;
        let result = run(message, &mut held);
        for &token in &*tokens {
            self.gates[usize::from(token)].set_long(false);
        }
        let mut drain = Drain::new(self);
        // SAFETY: the message and its tokens are ours.
        unsafe { drain.settle_message(queued.into_link()) };
        drain.close();
        drop(hold);
        result
    }

    /// Lets go of tokens that a message brought which is to start over. Their queues are left to the workers: this
    /// thread has other things to do.
    fn give_up(&self, tokens: &mut ShardList) {
        for shard in tokens.drain(..) {
            // SAFETY: the token came with the message and is not used after `true`.
            if !unsafe { self.try_release(shard) } {
                self.hand_to_worker(shard);
                self.wake_worker(shard);
            }
        }
    }
}
