//! The loop that runs queues, carries messages from shard to shard, and lets tokens go.
//!
//! Knows no guards. One drain is one thread's worklist: running a message over several shards leaves several tokens to
//! let go, each with a queue, in which the next such message may wait. All of it is worked off here by iteration; the
//! stack depth does not depend on what is queued.
//!
//! Invariant: every token that comes to a drain leaves it: let go, with a message, or to the shard's worker.
#![expect(unsafe_code, reason = "parcels change hands as raw links")]

use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use super::gate::Entry;
use super::parcel::{Link, Parcel};
use super::reach::{Departed, Reach};
use super::sync::Fault;
use super::{Message, Shards, tenure};

/// To be closed, inside a tenure.
pub(super) struct Drain<'s, E, M> {
    shards: &'s Shards<E, M>,
    messages: usize,
    /// Parcels that have run and whose tokens are still to be let go, newest first.
    ran: *mut Link,
    /// Workers that were handed a token and are to be woken at the end.
    sleepers: Vec<u16>,
}

impl<'s, E: Send, M: Message<E>> Drain<'s, E, M> {
    pub(super) fn new(shards: &'s Shards<E, M>) -> Drain<'s, E, M> {
        Drain {
            shards,
            messages: 0,
            ran: ptr::null_mut(),
            sleepers: Vec::new(),
        }
    }

    /// Wakes the workers, now that no token is left here. How many messages were run or carried on.
    pub(super) fn close(self) -> usize {
        debug_assert!(self.ran.is_null());
        for shard in self.sleepers {
            self.shards.wake_worker(shard);
        }
        self.messages
    }

    /// Takes a parcel as far as it goes and lets go of what that leaves.
    ///
    /// # Safety
    /// 1. The parcel is the caller's. 2. So is the token of `shard`, the next one on the parcel's route.
    pub(super) unsafe fn carry_and_settle(&mut self, link: NonNull<Link>, shard: u16) {
        // SAFETY: the caller's (1) and (2); `carry` says when the token is still ours.
        unsafe {
            if self.carry(link, shard) == Token::Stays {
                self.let_go(shard);
            }
        }
        self.settle_rest();
    }

    /// Lets go of `shard` and of whatever comes of it.
    ///
    /// # Safety
    /// The caller has the token of `shard`, and no longer afterwards.
    pub(super) unsafe fn settle(&mut self, shard: u16) {
        // SAFETY: the caller's.
        unsafe { self.let_go(shard) };
        self.settle_rest();
    }

    /// Lets go of what a parcel that has run carries, and of whatever comes of it.
    ///
    /// # Safety
    /// The parcel is the caller's, with the tokens that it carries, and no longer afterwards.
    pub(super) unsafe fn settle_parcel(&mut self, link: NonNull<Link>) {
        // SAFETY: ours, out of every list.
        unsafe { Link::set_next(link, self.ran) };
        self.ran = link.as_ptr();
        self.settle_rest();
    }

    /// Works off what `let_go` left.
    pub(super) fn settle_rest(&mut self) {
        while let Some(link) = NonNull::new(self.ran) {
            // SAFETY: parcels in this list are ours; nothing below reaches this one but through `parcel`.
            let parcel = unsafe {
                self.ran = Link::next(link);
                Parcel::<M>::borrow(link)
            };
            let mut tokens = std::mem::take(&mut parcel.tokens);
            // First all that nobody waits for, so that no shard waits for another one's queue.
            // SAFETY: the tokens came with the parcel, each is let go once.
            tokens.retain(|&token| unsafe { !self.shards.gates[token as usize].try_release() });
            for &token in &tokens {
                // SAFETY: still ours: it could not be let go above.
                unsafe { self.let_go(token) };
            }
            tokens.clear();
            parcel.tokens = tokens;
            // SAFETY: ours, out of every list.
            unsafe { self.defer_finish(link) };
        }
    }

    /// Runs what is pending on `shard` and lets go. May end early: the token leaves with a message that travels, or a
    /// message that has run keeps it in `ran`, or the bound is reached and the worker gets it.
    ///
    /// # Safety
    /// The caller has the token of `shard`, and no longer afterwards. `settle_rest` is to follow.
    pub(super) unsafe fn let_go(&mut self, shard: u16) {
        let gate = &self.shards.gates[shard as usize];
        loop {
            // SAFETY: our token; after `true` it is not used again.
            if unsafe { gate.try_release() } {
                return;
            }
            if self.messages >= self.shards.drain_max {
                self.shards.hand_to_worker(shard);
                self.sleepers.push(shard);
                return;
            }
            self.messages += 1;
            // SAFETY: `pop` (1) our token, (2) `try_release` has just said no. `carry` (1) a popped parcel is its
            // popper's, (2) it queued here for this token.
            if unsafe { self.carry(gate.pop(), shard) } == Token::Leaves {
                return;
            }
        }
    }

    /// Gives the parcel the token of `shard`, and runs it or brings it to its next shard, and so on.
    ///
    /// # Safety
    /// 1. The parcel is the caller's. 2. So is the token of `shard`, the next one on the parcel's route.
    unsafe fn carry(&mut self, link: NonNull<Link>, mut shard: u16) -> Token {
        // SAFETY: (1); the reference is not used after the parcel moves on.
        let parcel = unsafe { Parcel::<M>::borrow(link) };
        let is_simple = !parcel.message.reaches() && !parcel.message.departs();
        if is_simple && parcel.tokens.is_empty() && parcel.message.shards().len() == 1 {
            // SAFETY: (2), and the token is used by nobody else while this runs; one shard, in range.
            let mut hands = unsafe { self.shards.hands(slice::from_ref(&shard)) };
            tenure::while_running(|| parcel.message.run(&mut hands));
            // SAFETY: ours, out of every list.
            unsafe { self.defer_finish(link) };
            return Token::Stays;
        }
        loop {
            // SAFETY: as above; borrowed anew, for the parcel may have been published and not left.
            let parcel = unsafe { Parcel::<M>::borrow(link) };
            parcel.tokens.push(shard);
            let Some(&next) = parcel.message.shards().get(parcel.tokens.len()) else {
                break;
            };
            // A message that changes its mind would break the order that keeps everybody from deadlock.
            assert!(
                next > shard,
                "the shards of a message are ascending and stay the same"
            );
            if self.shards.gates[shard as usize].has(Fault::ForgetsTokens) {
                // SAFETY: wrong, as it is meant to be: only a model comes here.
                let _ = unsafe { self.shards.gates[shard as usize].try_release() };
            }
            self.shards.tally(shard).handed_over.fetch_add(1, Relaxed);
            // SAFETY: (1) live and in no queue; (2) we leave at once if it was queued.
            match unsafe { self.shards.gates[next as usize].take_or_push(link) } {
                Entry::Taken => shard = next,
                Entry::Queued => {
                    self.shards.tally(next).queued.fetch_add(1, Relaxed);
                    return Token::Leaves;
                }
            }
        }
        // SAFETY: (1) still ours.
        let Parcel {
            tokens, message, ..
        } = unsafe { Parcel::<M>::borrow(link) };
        if tokens.len() > 1 {
            self.shards
                .tally(tokens[0])
                .multi_shard_runs
                .fetch_add(1, Relaxed);
        }
        if message.departs() {
            // SAFETY: (1) the parcel is ours, and the tokens leave with it; (2) a parcel of `M`; (3) as ever.
            unsafe { tenure::defer(link, depart::<E, M>) };
            return Token::Leaves;
        }
        if message.reaches() {
            // SAFETY: as below; what it adds to the tokens is let go with them.
            let mut reach = unsafe { Reach::new(self.shards, tokens) };
            tenure::while_running(|| message.run_reaching(&mut reach));
        } else {
            // SAFETY: the parcel's tokens are ours with it, and used by nobody else while this runs; pushed ascending,
            // and each was in range of the gates when it was taken.
            let mut hands = unsafe { self.shards.hands(tokens) };
            tenure::while_running(|| message.run(&mut hands));
        }
        // SAFETY: ours, out of every list.
        unsafe { Link::set_next(link, self.ran) };
        self.ran = link.as_ptr();
        Token::Leaves
    }

    /// # Safety
    /// The parcel is the caller's, and no longer afterwards.
    unsafe fn defer_finish(&mut self, link: NonNull<Link>) {
        // SAFETY: (1) the caller's; (2) a parcel of `M`; (3) drains live inside tenures.
        unsafe { tenure::defer(link, finish::<E, M>) };
    }
}

/// Where the token of a shard is after a parcel got it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Stays,
    Leaves,
}

/// # Safety
/// As [`Parcel::from_link`].
unsafe fn finish<E, M: Message<E>>(link: NonNull<Link>) {
    // SAFETY: the caller's.
    M::finish(unsafe { Parcel::<M>::from_link(link) });
}

/// # Safety
/// As [`Parcel::from_link`].
unsafe fn depart<E, M: Message<E>>(link: NonNull<Link>) {
    // SAFETY: the caller's.
    M::depart(Departed::new(unsafe { Parcel::<M>::from_link(link) }));
}
