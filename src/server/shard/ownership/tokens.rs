//! A view of held tokens through which running code can take more, and messages that move with their tokens to
//! another thread.
//!
//! Most work knows its shards beforehand. A script may find out while it runs that it needs another shard. It
//! may *try* to take the token ([`HeldTokens::try_extend`]), in any order, because a caller that never waits
//! cannot be part of a deadlock. If that fails, its caller undoes its changes and requests more shards at once.
//!
//! A message may also take too long for the thread that happens to get its last token. Such a message *is
//! offloaded*: it leaves with all its tokens as an [`Offloaded`], and some other thread runs and settles it
//! ([`ShardSet::resume`]). Its shards are marked as held for long, so that messages wait there without tokens of
//! other shards; messages that have waited for too long can be turned away ([`HeldTokens::turn_away`]).
#![expect(
    unsafe_code,
    reason = "a view stands for tokens as guards do, and takes messages out of queues"
)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::engines::HeldEngines;
use super::queued::{IntrusiveLink, QueuedMessage};
use super::sync::{InjectedFault, spin_loop};
use super::{ShardList, ShardMessage, ShardSet};

/// A view of held tokens, which can take more.
pub struct HeldTokens<'a, E, M> {
    shards: &'a ShardSet<E, M>,
    /// Shards whose tokens this view holds, ascending.
    tokens: &'a mut ShardList,
    /// True if the message was offloaded, so that the tokens are held for long.
    pub(super) holds_long: bool,
    not_send: PhantomData<*mut E>,
}

impl<'a, E: Send, M: ShardMessage<E>> HeldTokens<'a, E, M> {
    /// # Safety
    /// 1. The caller has the tokens for `'a`, and uses no other view of them meanwhile. 2. They are ascending,
    ///    without duplicates, in range. 3. The caller releases all `tokens` afterwards.
    pub(super) unsafe fn new(
        shards: &'a ShardSet<E, M>,
        tokens: &'a mut ShardList,
    ) -> HeldTokens<'a, E, M> {
        HeldTokens {
            shards,
            tokens,
            holds_long: false,
            not_send: PhantomData,
        }
    }

    /// Returns the held shards, ascending.
    pub fn shards(&self) -> &[u16] {
        self.tokens
    }

    /// Returns the held engines.
    pub fn engines(&mut self) -> HeldEngines<'_, E> {
        // SAFETY: (1) our tokens, and `&mut self` for the view's life; (2) kept by `try_extend`.
        unsafe { self.shards.engines(self.tokens) }
    }

    /// Returns whether a shard is held.
    #[inline]
    pub fn holds(&self, shard: u16) -> bool {
        match self.tokens.as_slice() {
            [only] => *only == shard,
            many => many.binary_search(&shard).is_ok(),
        }
    }

    /// Tries to take one more token, retrying up to `spins` times while another thread holds it; never waits.
    /// Returns true if this view holds the token now. The token is released with the others.
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
            // SAFETY: this thread has just taken the token.
            unsafe { self.shards.hold_long(shard, &mut loose) };
            self.shards.release_to_workers(&mut loose);
        }
        if !gate.has(InjectedFault::ForgetsExtension) {
            self.tokens.insert(at, shard);
        }
        true
    }

    /// Passes the messages that wait for the held shards to `refuse`: the newly queued ones, or all of them if
    /// `whole`. A message for which `refuse` writes a reply and returns true leaves the queue and is finished.
    /// This wakes its task while tokens are held, which takes a microsecond, for shards that are held for
    /// seconds.
    ///
    /// Does nothing unless the running message was offloaded: other messages are too short for this.
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
            // SAFETY: this thread has the token.
            let mut list = unsafe { gate.take_queue() };
            let (mut oldest, mut newest): (*mut IntrusiveLink, Option<NonNull<IntrusiveLink>>) =
                (ptr::null_mut(), None);
            while let Some(link) = NonNull::new(list) {
                // SAFETY: the taken list belongs to this thread, and its messages are of type `M`.
                let queued = unsafe {
                    list = IntrusiveLink::next(link);
                    QueuedMessage::<M>::borrow(link)
                };
                if refuse(&mut queued.message) {
                    self.shards.release_to_workers(&mut queued.tokens);
                    // SAFETY: this thread owns the message, which is in no list any more.
                    refused.push(unsafe { QueuedMessage::<M>::from_link(link) });
                    continue;
                }
                // SAFETY: all links of both lists belong to this thread.
                unsafe {
                    IntrusiveLink::set_next(link, ptr::null_mut());
                    match newest {
                        Some(newest) => IntrusiveLink::set_next(newest, link.as_ptr()),
                        None => oldest = link.as_ptr(),
                    }
                }
                newest = Some(link);
            }
            if gate.has(InjectedFault::DropsKept) {
                oldest = ptr::null_mut();
            }
            // SAFETY: this thread has the token; the list is the one that was taken, less the refused messages, and
            // nothing was popped meanwhile.
            unsafe { gate.put_queue_back(oldest) };
        }
        refused.into_iter().for_each(M::finish);
    }
}

/// A message with all its tokens, on its way to a separate thread, which must [`ShardSet::resume`] it. If it is dropped
/// instead, its shards stay held forever, so that is for the shutdown only.
#[must_use = "its shards are held until it is resumed"]
pub struct Offloaded<M> {
    pub(super) queued: Box<QueuedMessage<M>>,
}

impl<M> Offloaded<M> {
    pub(super) fn new(queued: Box<QueuedMessage<M>>) -> Offloaded<M> {
        Offloaded { queued }
    }

    /// Returns the message.
    pub fn message(&mut self) -> &mut M {
        &mut self.queued.message
    }
}

impl<E: Send, M: ShardMessage<E>> ShardSet<E, M> {
    /// Releases the tokens of a waiting message that must start over. If messages are queued for a token, it
    /// goes to the shard's worker, because this thread is busy.
    fn release_to_workers(&self, tokens: &mut ShardList) {
        for shard in tokens.drain(..) {
            // SAFETY: the token came with the message and is not used after `true`.
            if !unsafe { self.try_release(shard) } {
                self.hand_to_worker(shard);
                self.wake_worker(shard);
            }
        }
    }
}
